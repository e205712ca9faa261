//! The composition root: configuration to parts, phases, drain. A library: prints nothing and never
//! exits.
//!
//! [`Server::start`] brings the parts up in order and [`Server::stop`] takes them down in the
//! reverse one. What stands for itself is somewhere else: the parts are `http`, `pool` and
//! `process`.

#![forbid(unsafe_code)]

mod activation;
mod admin;
mod control;
mod error;
mod incidents;
mod kept;
mod log_readers;
pub mod logs;
mod machine;
mod notify;
mod own;
mod renewal;
pub mod reports;
mod rpc;
mod server;
mod services;
pub mod settings;
mod state;
mod status;
mod upgrade;
mod views;

pub use activation::presets;
pub use control::{Control, ControlSocket, ReloadOutcome, ReloadWish};
pub use error::{StartError, Unclaimed};
pub use kept::{named_state_folder_of, reports_in, state_folder_of, state_folder_of_service};
pub use machine::look;
pub use notify::Manager;
pub use own::own_files;
pub use pronghorn_workers::{
    OnInitError, PoolHandle, PoolInfo, Pools, Reloaded, Resized, Standing,
};
pub use renewal::{Source, environment};
pub use server::{Plan, Server};
pub use services::Services;
pub use upgrade::{Next, OtherProcess, Predecessor, UpgradeError, Way};

/// This release.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
