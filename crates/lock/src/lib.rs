//! Locks that PHP processes share, over RPC: `lock.Lock` and its five companions.
//!
//! - [`Lock`]: the service.
//! - `table`: which lock is held by whom, and who waits; without a clock, so that it can be
//!   compared with a model.
//! - `locks`: the same with time and with callers that wait.
//!
//! Locks live in memory, and only for as long as the server. What each method does:
//! `docs/reference/rpc.md`.

#![forbid(unsafe_code)]

mod locks;
mod messages;
mod service;
mod table;

pub use service::Lock;
