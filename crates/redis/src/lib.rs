//! A Redis as RoadRunner's sections describe it: one server, the master that sentinels name, or a
//! cluster.
//!
//! - [`RedisSettings`]: the keys.
//! - [`Redis`]: a connection that is opened when a command needs it, and anew after it was lost.
//!
//! One reply takes at most what whoever asks says: a Redis that sends more is given up.
//!
//! Knows no service: what is kept under which key is theirs.

#![forbid(unsafe_code)]

mod bounded;
mod cluster;
mod connection;
mod failure;
mod node;
mod settings;

pub use connection::Redis;
pub use failure::RedisFailure;
pub use pronghorn_client::Tls;
/// The types that commands are written with, and that their answers are read into.
pub use redis::{Cmd, FromRedisValue, Value, cmd};
pub use settings::{RedisAddress, RedisSettings};
