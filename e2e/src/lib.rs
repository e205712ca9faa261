//! End-to-end tests: the real binary with real PHP.
//!
//! Here is what the fault run has in common: [`faults`] under [`load`], in a short form among the
//! tests and in a long one (`make soak`).

#![forbid(unsafe_code)]
#![expect(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "made for tests only: they run in real time"
)]

pub mod cache;
pub mod faults;
pub mod jobs;
pub mod load;
pub mod queue;
pub mod ring;
pub mod rpc;
pub mod uploads;
