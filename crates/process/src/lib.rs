//! Child processes: spawn, watch, signal.

#![forbid(unsafe_code)]

pub mod cpus;
