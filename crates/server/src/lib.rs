//! The composition root: configuration to parts, phases, drain. A library: prints nothing and never exits.
//!
//! [`Server::start`] brings the parts up in order and [`Server::stop`] takes them down in the reverse one. What stands for
//! itself is somewhere else: the parts are `http`, `pool` and `process`.

#![forbid(unsafe_code)]

mod development;
mod error;
pub mod logs;
mod server;
pub mod settings;
mod workers;

pub use error::StartError;
pub use server::{Plan, Server, Stopped};
pub use workers::Reloaded;

/// This release.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// What workers and tools find as RoadRunner's version: the release whose contracts are kept.
pub const ROADRUNNER_VERSION: &str = "2025.1.15";
