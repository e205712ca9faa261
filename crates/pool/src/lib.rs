//! Pools of workers: slots, queue, dispatcher, supervisor.

#![forbid(unsafe_code)]

pub mod settings;
