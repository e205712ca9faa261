//! The composition root: configuration to parts, phases, drain. A library: prints nothing and never exits.
//!
//! [`Server::start`] brings the parts up in order and [`Server::stop`] takes them down in the reverse one. What stands for
//! itself is somewhere else: the parts are `http`, `pool` and `process`.

#![forbid(unsafe_code)]

mod control;
mod development;
mod error;
mod health;
mod http;
pub mod logs;
mod rpc;
mod server;
pub mod settings;
mod status;
mod workers;

pub use control::{Control, ControlSocket};
pub use error::StartError;
pub use http::CrewInfo;
pub use pronghorn_plugin_api::ROADRUNNER_VERSION;
pub use server::{Plan, Server};
pub use workers::{Pools, Reloaded, Resized, Standing, Workers};

/// This release.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
