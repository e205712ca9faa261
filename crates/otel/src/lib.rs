//! The service `otel`: traces of requests, and what the server counts, for a collector of
//! OpenTelemetry.
//!
//! - [`OtelService`]: its settings, start and stop.
//! - `exporter`: the task that makes batches of traces and delivers them, one after the other.
//! - `collector`: requests of OTLP over HTTP or gRPC, with a deadline.
//! - `messages`, `encode`: what OTLP sends, as far as it is needed here.
//!
//! Whoever makes traces never waits for this crate: it is at the other end of a bounded queue.

#![forbid(unsafe_code)]

mod collector;
mod encode;
mod exporter;
mod lines;
mod messages;
mod service;
mod settings;

pub use service::{Counting, OtelService};
pub use settings::OtelSettings;
