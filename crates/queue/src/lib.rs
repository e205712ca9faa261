//! Queues of jobs: what a job is, what a driver does with it, and the drivers that need no broker.
//!
//! - [`Job`]: what is pushed, and [`options`], its options.
//! - [`Driver`]: where the jobs of a pipeline are, and what becomes of one that was taken.
//! - [`Memory`] and [`Embedded`]: in this process, and in the server's store.
//! - [`Ready`]: the order of jobs that could run now.
//! - [`Wake`]: how a driver tells that it has one.
//! - `conformance`: the suite of tests that all drivers pass, also those of other crates.
//!
//! Knows no broker, no pipeline's rules, no workers and no configuration.
//!
//! A job runs at least once. It is gone when it is acknowledged, and never before.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

#[cfg(any(test, feature = "conformance"))]
#[expect(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test that fails ends by a panic"
)]
pub mod conformance;
mod driver;
mod embedded;
mod job;
mod memory;
pub mod options;
mod ready;
mod wake;

pub use driver::{
    Delivery, Driver, DriverError, Fate, Keeper, Listed, MOST_BYTES_IN_PART, MOST_IN_PART, Part,
    Removed, Settlement, Stat, Ticket, Withdrawn,
};
pub use embedded::{
    Embedded, OpenPipelines, Stored, UniqueJob, decode_job, encode_job, is_lent, stored,
};
pub use job::{Headers, Job, LONGEST_DELAY};
pub use memory::Memory;
pub use ready::{Ready, SHARE};
pub use wake::Wake;
