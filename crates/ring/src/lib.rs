//! Shared memory between the server and a worker: a stream of bytes in each direction, without a
//! system call while both are awake.
//!
//! - [`SharedMemory`]: the memory of one worker process. Sealed, so that nobody can resize it;
//!   mapped by the server and by that worker only.
//! - [`Link`]: the server's end of it, an asynchronous reader and writer on one I/O thread.
//! - [`Loan`]: bytes in a box that are sent from there, without a copy on the way.
//! - [`Thread`]: an I/O thread as workers see it: whether it sleeps, and the bell that wakes it.
//! - [`Peer`]: the worker's end in Rust, for tests; the one in use is C, in `ext/pronghorn`, from
//!   the same layout.
//!
//! What both ends do is in `docs/reference/ring.md`; [`layout`] has its numbers. With `process` the
//! only crate with `unsafe`, but for the allocator of the binary. Knows nothing of pools, frames or
//! HTTP.

#![warn(missing_docs)]

#[cfg(not(all(test, feature = "model")))]
mod fuzz;
#[cfg_attr(
    all(test, feature = "model"),
    expect(dead_code, reason = "the model has no memory and no kernel")
)]
mod half;
pub mod layout;
#[cfg(not(all(test, feature = "model")))]
mod link;
#[cfg(not(all(test, feature = "model")))]
mod loan;
#[cfg(not(all(test, feature = "model")))]
mod memory;
#[cfg(not(all(test, feature = "model")))]
mod peer;
#[cfg(not(all(test, feature = "model")))]
mod questions;
#[cfg(not(all(test, feature = "model")))]
mod stack;
mod sync;
#[cfg(not(all(test, feature = "model")))]
mod thread;
#[cfg(not(all(test, feature = "model")))]
mod turn;

#[cfg(not(all(test, feature = "model")))]
#[doc(hidden)]
pub use fuzz::fuzz_box;
#[cfg(not(all(test, feature = "model")))]
pub use link::Link;
#[cfg(not(all(test, feature = "model")))]
pub use loan::Loan;
#[cfg(not(all(test, feature = "model")))]
pub use memory::SharedMemory;
#[cfg(not(all(test, feature = "model")))]
pub use peer::Peer;
#[cfg(not(all(test, feature = "model")))]
pub use stack::StackLayout;
#[cfg(not(all(test, feature = "model")))]
pub use thread::{Thread, answered, asked, collect};

#[cfg(test)]
#[cfg(not(feature = "model"))]
mod tests;

#[cfg(test)]
#[cfg(feature = "model")]
mod model;
