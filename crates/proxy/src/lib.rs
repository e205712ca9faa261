//! Requests that other HTTP servers answer.
//!
//! - `address`: where a server is, as the configuration names it.
//! - `settings`: the keys of an upstream.
//! - `upstream`: its servers, and which one gets a request.
//! - `server`: one server, its connections, and whether it answers.
//! - `connection`: a connection, by HTTP/1.1 or HTTP/2.
//! - `head`: the head of a request on its way there, and that of a response on its way back.
//! - `request_body`, `response_body`: bodies, piece by piece.
//! - `forward`: one request from its head to its response.
//! - `tunnel`: a connection after `101 Switching Protocols`.
//! - `watch`: health checks.
//!
//! Knows no routes and no records: it is told which upstream answers, and says what came of it.

#![forbid(unsafe_code)]

mod address;
mod connection;
mod error;
mod forward;
mod head;
mod request_body;
mod response_body;
mod server;
mod settings;
mod tunnel;
mod upstream;
mod watch;

pub use address::ServerAddress;
pub use error::{NotForwarded, UpstreamError};
pub use forward::{Forwarded, Terms};
pub use settings::{Balance, HealthSettings, UpstreamSettings};
pub use upstream::Upstream;
