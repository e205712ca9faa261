//! The service `metrics`: what the server and its applications count, as text for Prometheus.
//!
//! Applications declare and change metrics over RPC, with RoadRunner's methods. What the server
//! counts stands under names of its own and, where RoadRunner has the same, under RoadRunner's.

#![forbid(unsafe_code)]

mod counted;
mod counting;
mod declared;
mod go;
mod recent;
mod roadrunner;
mod service;
mod settings;
mod text;
mod workers;

pub use declared::Collectors;
pub use service::{Exposition, MetricsService};
pub use settings::MetricsSettings;
