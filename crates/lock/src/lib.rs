//! Locks that PHP processes share, over RPC: `lock.Lock` and its five companions.
//!
//! - [`Lock`]: the service.
//! - `driver`: where locks are kept: in memory, or in Redis, where several servers share them. Both
//!   pass one suite of tests (`conformance`).
//! - `table`: which lock is held by whom, and who waits; without a clock, so that it can be
//!   compared with a model.
//! - `locks`: the same with time and with callers that wait: `driver: memory`. These locks live
//!   only for as long as the server.
//! - `redis`: `driver: redis`, decided by a script there.
//!
//! What each method does: `docs/reference/rpc.md`.

#![forbid(unsafe_code)]

mod driver;
mod locks;
mod messages;
mod redis;
mod service;
mod table;
mod wanted;

pub use service::Lock;
