//! HTTP for every server of it: listeners, TLS, the PROXY protocol, connections of HTTP/1.1 and
//! HTTP/2, requests and responses, upgrades, limits.
//!
//! A connection reads a request's head and hands it to a [`Handler`] together with its
//! [`Exchange`], through which the body can be read and the client watched; the handler's
//! [`Response`] is written in the shortest way that its body allows. A [`Service`] is a handler
//! with its limits, and [`Listener`]s accept for it; an [`Endpoint`] is both for a service with one
//! address.
//!
//! A [`StreamHandler`] takes connections by the same listeners that speak another protocol.
//!
//! Knows neither who answers nor the settings of a service, but for keys that several have: that
//! one hands in what it goes by.

#![forbid(unsafe_code)]

mod accept;
mod addresses;
mod body_error;
mod buffers;
mod client_certificate;
mod client_memory;
mod client_stream;
mod connection;
mod connection_state;
mod date;
mod detached;
mod end_watch;
mod endpoint;
mod exchange;
mod field_name;
mod held_replies;
mod http2;
mod http3;
mod huffman;
mod limits;
mod listener;
mod message;
mod metrics;
mod open_file;
mod owner;
mod peer_address;
mod prefixed;
mod protocol;
mod proxy_protocol;
mod quic;
mod reader;
mod sent;
mod service;
mod settings;
mod source;
mod stream;
mod threads;
mod tls;
mod tls_socket;
mod upgrade;
mod uptake;

pub use accept::{wanted, weighed};
pub use addresses::{Addresses, ConnectionPermit, NoPermit};
pub use body_error::BodyError;
pub use buffers::give_back_body;
pub use client_certificate::ClientCertificate;
pub use client_memory::{Charge, Holder, UNCOUNTED};
pub use client_stream::{ClientStream, CutFor, StreamHandler};
pub use detached::DetachedBody;
pub use endpoint::{ControlEndpoint, Endpoint};
pub use exchange::Exchange;
pub use limits::{CLIENT_MEMORY, Http2Limits, Limits, SEND_PAUSE};
pub use listener::{Accepting, ListenAddress, ListenError, Listener, UnknownHost, resolve};
pub use message::{
    Body, Handled, Handler, Part, Peer, Request, Response, Unhandled, request_number, vary,
};
pub use open_file::OpenFile;
pub use peer_address::{Household, PeerAddress};
pub use pronghorn_h1::Refusal;
pub use proxy_protocol::{ProxyProtocol, fuzz_proxy_header};
pub use reader::{FILE_PIECE, Reader};
pub use sent::{AnsweredBy, Destination, OnSent, Sent, Split};
pub use service::Service;
pub use settings::{CertifiedClients, ClientAuth, read_pair, read_proxies};
pub use source::{BodySource, Read};
pub use tls::renewal::{ReadTls, Renewed};
pub use tls::{
    Authorities, CertificateError, ClientCertificates, Managed, Pair, Store, Tls, TlsError,
};
pub use upgrade::{Upgrade, Upgraded};
