//! What is configured for the workers of all services.

mod server;
mod watching;

pub use server::{OnInit, RelayAddress, ServerSettings};
