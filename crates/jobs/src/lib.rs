//! Jobs that PHP pushes and PHP workers run, in pipelines.
//!
//! Jobs themselves, and where pipelines keep them, are in `pronghorn-queue` and
//! `pronghorn-brokers`.
//!
//! - `pipelines`: which there are, and which job is next.
//! - `methods` and `messages`: RPC, as RoadRunner's packages call it.
//! - `consumer`: takes jobs out of pipelines when workers are free; `call` and `reply` are what
//!   workers get and answer.
//! - `reason`: why an attempt failed.
//! - `batches`: jobs with one that comes when all of them have ended.
//! - [`clock`] and `schedules`: jobs by the clock.
//! - [`JobsService`]: all of it, as a service.
//!
//! A job runs at least once. It is gone when it is acknowledged, and never before.

#![forbid(unsafe_code)]

mod batches;
mod call;
pub mod clock;
mod consumer;
mod dead;
mod keys;
mod messages;
mod meter;
mod methods;
mod metrics;
mod pipelines;
mod reason;
mod recent;
mod reply;
mod results;
pub mod rules;
mod schedules;
mod service;
pub mod settings;
mod shares;
mod traced;

pub use service::JobsService;
