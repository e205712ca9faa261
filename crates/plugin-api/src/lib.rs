//! What a service of the server has to know: the one life that all of them have, and what is handed
//! to them.
//!
//! - [`Service`] and [`Running`]: made from its settings, started, stopped.
//! - [`Context`]: what a service is started with.
//! - [`rpc`]: methods for PHP and for the command line.
//! - [`Sockets`]: listening sockets on their way from process to process.
//!
//! Services know this crate and not each other, and it knows none of them and no HTTP.

#![forbid(unsafe_code)]
#![warn(missing_docs, clippy::missing_errors_doc)]

mod at_end;
mod caches;
mod configuration;
mod health;
mod kind;
mod pages;
mod processes;
mod queues;
mod readiness;
pub mod rpc;
mod service;
mod sockets;

pub use pronghorn_base::BoxFuture;

pub use at_end::AtEnd;
pub use caches::Caches;
pub use configuration::Configuration;
pub use health::{Health, Question};
pub use kind::ServiceKind;
pub use pages::{NotShown, Pages, Shown};
pub use processes::{
    InOrder, PROGRAMS_AT_ONCE, ProcessReport, ProcessWait, Processes, Restartable,
};
pub use queues::{QueueReport, Queues, queue_families};
pub use readiness::{NotReady, Readiness};
pub use service::{
    ConfiguredPool, Context, Finding, Handover, Lack, Machine, Reload, Running, Service,
    StartError, Stopped, WorkerContext, reserved_by,
};
pub use sockets::{SYSTEMDS, Sockets};
