//! Keys and values that PHP processes share, over RPC: `kv.MGet` and its companions, as
//! RoadRunner's packages call them.
//!
//! - [`Driver`]: where a storage keeps its entries. `memory`, `embedded`, `redis` and `memcached`;
//!   all pass one suite of tests (`conformance`).
//! - `storages`: which there are, and what holds for all of them.
//! - `methods` and `messages`: RPC. What each method does: `docs/reference/rpc.md`.
//! - `metrics`: what is counted. `limits`: whether the machine has the memory.
//! - `shared`: `cache.Get` and its companions, for PHP that has not mapped a storage in memory, and
//!   what `pronghorn cache` shows. `hottest`: which keys are read most.
//! - `sessions`: `session.Open` and its companions, for PHP's save handler.
//! - `watch`: whether servers of their own answer.
//! - `persist`: what a storage in memory leaves for the next start.
//! - `moment`: times as RFC 3339 writes them.
//! - [`KvService`]: all of it, as a service.

#![forbid(unsafe_code)]

mod driver;
mod embedded;
mod hottest;
mod memcached;
mod memory;
mod messages;
mod methods;
mod metrics;
mod moment;
mod persist;
mod redis;
mod service;
mod sessions;
pub mod settings;
mod shared;
mod storages;
mod watch;

pub use driver::{Claim, Driver, DriverError, Entry, Item, Opened, SessionDriver};
pub use memcached::MemcachedAddress;
pub use moment::Moment;
pub use service::KvService;

#[cfg(test)]
mod conformance;
