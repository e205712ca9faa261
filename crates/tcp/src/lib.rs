//! TCP servers in PHP: the server holds the connections and finds messages in what clients send,
//! workers answer them.
//!
//! - [`framing`]: where a message ends.
//! - `connection`: one client, from its accept to its end; `call` is what a worker gets.
//! - `registry` and `methods`: the connections that there are, and RPC.
//! - [`TcpService`]: all of it, as a service.
//!
//! A worker is told of each connection it knows that it has ended: once, and after its last
//! message.

#![forbid(unsafe_code)]

mod call;
mod connection;
mod end;
pub mod framing;
mod id;
mod methods;
mod metrics;
mod registry;
mod server;
mod service;
pub mod settings;
mod tls;

pub use service::TcpService;
