//! Jobs that PHP pushes and PHP workers run, in pipelines.
//!
//! - [`Job`]: what is pushed, with its options.
//! - [`Driver`]: where a pipeline keeps its jobs. `memory` and `embedded` are here; both pass one
//!   suite of tests (`conformance`).
//!
//! A job runs at least once. It is gone when it is acknowledged, and never before.

#![forbid(unsafe_code)]

mod driver;
mod embedded;
mod job;
mod memory;
mod ready;

pub use driver::{Delivery, Driver, DriverError, Settlement, Stat, Ticket, Wake};
pub use embedded::Embedded;
pub use job::{Headers, Job};
pub use memory::Memory;

#[cfg(test)]
mod conformance;
