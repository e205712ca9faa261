//! The HTTP side: listeners, connections, bodies, handlers and the bridge to a pool.
//!
//! A connection reads a request's head and hands it to a [`Handler`] together with its
//! [`Exchange`], through which the body can be read and the client watched; the handler's
//! [`Response`] is written in the shortest way that its body allows. [`PoolHandler`] is the handler
//! that asks PHP. Middleware is a handler around another one.
//!
//! Knows no transport: whether a worker is behind a relay or a ring is the pool's business.

#![forbid(unsafe_code)]

mod accept;
mod addresses;
mod body;
mod bridge;
mod buffers;
mod client_memory;
mod coding;
mod compress;
mod connection;
mod date;
mod development;
mod endpoint;
mod error;
mod exchange;
mod expression;
mod feeder;
mod file;
pub mod files;
mod fileserver;
mod http2;
mod limits;
mod listener;
mod local_redirects;
mod message;
mod metrics;
pub mod middleware;
mod open_file;
mod peer_address;
mod phases;
mod plugin;
mod pool_metrics;
mod protocol;
mod proxy_protocol;
mod reader;
mod record;
mod route_names;
mod router;
pub mod routes;
mod scripts;
mod sent;
mod service;
pub mod settings;
mod slow_log;
mod source;
mod split;
mod stream;
mod tls;
mod trace;
mod upgrade;
mod warmup;

pub use accept::wanted;
pub use addresses::Addresses;
pub use body::BodySettings;
pub use bridge::PoolHandler;
pub use client_memory::Charge;
pub use coding::Coding;
pub use compress::TypePattern;
pub use development::Development;
pub use endpoint::{ControlEndpoint, Endpoint};
pub use exchange::{BodyError, Exchange};
pub use fileserver::FileServer;
pub use limits::{CLIENT_MEMORY, Http2Limits, Limits, SEND_PAUSE};
pub use listener::{Accepting, ListenAddress, Listener, UnknownHost, resolve};
pub use local_redirects::LocalRedirects;
pub use message::{Body, Handled, Handler, Part, Peer, Request, Response, Unhandled};
pub use open_file::OpenFile;
pub use peer_address::PeerAddress;
pub use plugin::{Around, FileService, HttpService};
pub use pool_metrics::PoolMetrics;
pub use proxy_protocol::{ProxyProtocol, fuzz_proxy_header};
pub use route_names::RouteNames;
pub use router::Router;
pub use scripts::Scripts;
pub use sent::{AnsweredBy, Destination, OnSent, Sent, Split};
pub use service::Service;
pub use slow_log::SlowLog;
pub use source::{BodySource, Read};
pub use stream::Stream;
pub use tls::{CertificateError, Pair, Renewed, Store, Tls};
pub use trace::RequestTrace;
pub use upgrade::{Upgrade, Upgraded};
pub use warmup::{warmup, warmup_of_scripts};
