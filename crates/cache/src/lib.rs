//! A cache in memory that the server and PHP processes share: readers take no lock and make no
//! system call, and a process that is killed or stopped at any instruction is in nobody's way.
//!
//! - [`Cache`]: one storage, as a process has it.
//! - `segment`: the index, and how it is read and changed.
//! - `writer`: where new entries go, and how room is made for them.
//! - `entry`: one entry. `hash`: of keys, and the sum over entries.
//! - `memory`: the only place with `unsafe`.
//! - [`layout`]: the numbers, also for the extension in C, whose `cache.c` does the same.
//!
//! `docs/decisions/0035-cache-in-shared-memory.md` says why it is so. Knows nothing of RPC, and not
//! what a value means.

mod cache;
mod entry;
mod hash;
pub mod layout;
mod memory;
mod segment;
mod writer;

pub use cache::{Cache, Outcome};
pub use entry::{Entry, NewEntry};
pub use segment::{Figures, Refused, Survey};

#[cfg(test)]
mod tests;
