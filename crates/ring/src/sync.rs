//! Atomics, or what the model checker has in their place.

#[cfg(ring_model)]
pub(crate) use loom::sync::atomic::{AtomicU32, Ordering, fence};
#[cfg(not(ring_model))]
pub(crate) use std::sync::atomic::{AtomicU32, Ordering, fence};
