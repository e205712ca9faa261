//! The number of a worker's place.

/// A worker's place in its pool: survives the process that fills it.
pub type SlotId = usize;
