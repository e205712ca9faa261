//! Centrifugo: a service beside a Centrifugo server, which holds the connections of
//! clients.
//!
//! - `proxy`: Centrifugo asks by gRPC, a worker of the pool answers; `call` is what it gets.
//! - `api` and `methods`: PHP asks Centrifugo's API over RPC.
//!
//! Messages are bytes both ways: nothing here knows their fields, so that those of later releases
//! of Centrifugo pass as well.

#![forbid(unsafe_code)]

mod api;
mod call;
mod message;
mod methods;
mod metrics;
mod proxy;
mod service;
mod settings;
mod shown;

pub use service::CentrifugoService;
pub use settings::{ApiSettings, CentrifugoSettings, ProxyKey};
