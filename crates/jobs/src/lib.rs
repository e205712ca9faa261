//! Jobs that PHP pushes and PHP workers run, in pipelines.
//!
//! - [`Job`]: what is pushed, with its options.
//! - [`Driver`]: where a pipeline keeps its jobs. `memory` and `embedded` are here; both pass one
//!   suite of tests (`conformance`).
//! - `pipelines`: which there are, and which job is next.
//! - `methods` and `messages`: RPC, as RoadRunner's packages call it.
//! - `consumer`: takes jobs out of pipelines when workers are free; `call` and `reply` are what
//!   workers get and answer.
//! - [`JobsService`]: all of it, as a service.
//!
//! A job runs at least once. It is gone when it is acknowledged, and never before.

#![forbid(unsafe_code)]

mod call;
mod consumer;
mod driver;
mod embedded;
mod job;
mod memory;
mod messages;
mod methods;
mod metrics;
mod pipelines;
mod ready;
mod reply;
mod service;
pub mod settings;

pub use driver::{Delivery, Driver, DriverError, Settlement, Stat, Ticket, Wake};
pub use embedded::Embedded;
pub use job::{Headers, Job};
pub use memory::Memory;
pub use service::JobsService;

#[cfg(test)]
mod conformance;
