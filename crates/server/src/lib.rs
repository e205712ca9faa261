//! The composition root: configuration to parts, phases, drain.

#![forbid(unsafe_code)]

pub mod logs;
pub mod settings;
