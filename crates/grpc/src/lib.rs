//! gRPC for PHP: a service with a listener and a pool of workers, which answer the methods of the
//! services in `.proto` files.
//!
//! Calls come in by crate `grpc-wire`. To the official PHP package they look as RoadRunner's do; to
//! ours, each message of a stream goes to the worker as it comes. Health and reflection are
//! answered here.

#![forbid(unsafe_code)]

mod call;
mod calls;
mod descriptors;
mod door;
mod files;
mod front;
mod generated;
mod health;
#[cfg(feature = "descriptors")]
mod json;
#[cfg(not(feature = "descriptors"))]
#[path = "no_json.rs"]
mod json;
mod metrics;
#[cfg(feature = "descriptors")]
mod php;
#[cfg(not(feature = "descriptors"))]
#[path = "no_php.rs"]
mod php;
mod proto;
mod reflection;
mod reply;
mod service;
mod settings;
mod table;
mod tls;
mod trace;
mod uplink;

pub use door::Door;
pub use generated::{GenerateError, GeneratedFile, MARK, Shape, Wanted};
pub use php::generate;
pub use service::GrpcService;
pub use settings::{ConnectionSettings, GrpcSettings, TlsSettings};
