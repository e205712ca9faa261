//! Counters, gauges and histograms, and the registry that they are read from.
//!
//! A service is given a [`Registry`] of its own, registers what it counts once, at its start, and
//! keeps the handles. To count is an atomic addition through a handle: no lock, no allocation, no
//! look-up of a name or label. Whoever reads takes [`Registry::families`].
//!
//! Knows no format: an endpoint writes what is read here as text. Knows no clock: durations come in
//! as arguments.

mod family;
mod handle;
mod histogram;
mod registry;
mod shard;

pub use family::Family;
pub use handle::{Counter, Gauge};
pub use histogram::{Exemplar, Histogram, LATENCY};
pub use registry::{Kind, Metric, ReadFamily, Reading, Registry, Series, Source};
