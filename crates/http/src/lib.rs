//! HTTP with PHP behind it: routes, middleware, files, bodies and the bridge to a pool.
//!
//! Listeners and connections are those of `pronghorn-serve`. [`PoolHandler`] is the handler that
//! asks PHP. Middleware is a handler around another one.
//!
//! Knows no transport: whether a worker is behind a relay or a ring is the pool's business.

#![forbid(unsafe_code)]

mod basic_auth;
mod body;
mod bridge;
mod coding;
mod compress;
mod development;
mod error;
mod expression;
mod fair_queue;
mod feeder;
mod file;
pub mod files;
mod fileserver;
mod identity;
mod limiter;
mod local_redirects;
pub mod middleware;
mod opened;
mod phases;
mod plugin;
mod pool_metrics;
mod rate_limit;
mod record;
mod route_names;
mod router;
pub mod routes;
mod samples;
mod scripts;
pub mod settings;
mod slow_log;
mod split;
mod trace;
mod upstreams;
mod warmup;

pub use body::BodySettings;
pub use bridge::PoolHandler;
pub use coding::Coding;
pub use compress::TypePattern;
pub use development::Development;
pub use fileserver::FileServer;
pub use local_redirects::LocalRedirects;
pub use opened::OpenedPath;
pub use plugin::{Around, FileService, HttpService};
pub use pool_metrics::PoolMetrics;
pub use route_names::RouteNames;
pub use router::{OwnRouter, Router};
pub use scripts::Scripts;
pub use slow_log::SlowLog;
pub use warmup::{warmup, warmup_of_scripts};
