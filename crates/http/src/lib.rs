//! The HTTP side: listeners, connections, bodies, handlers and the bridge to a pool.

#![forbid(unsafe_code)]

pub mod settings;
