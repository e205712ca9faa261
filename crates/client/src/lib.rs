//! Requests that the server itself sends: to brokers, collectors and whatever else speaks HTTP.
//!
//! - `origin`: which server, as a URL names it.
//! - `tls`: whom a client trusts and who it is, and the handshake. Clients of other protocols use
//!   it as well.
//! - `connection`: one connection, by HTTP/1 or HTTP/2, and one request at a time over it.
//! - `client`: a server with the connections that are kept for the next request.
//!
//! An answer is read whole, within [`Limits`]. Knows no redirect, no cookie and no proxy.

#![forbid(unsafe_code)]

mod client;
mod connection;
mod error;
mod origin;
mod tls;

pub use client::{Client, Options};
pub use connection::{Limits, Protocol, Reply};
pub use error::{ClientError, TlsError};
pub use hyper::header;
pub use hyper::{Method, Request, StatusCode};
pub use origin::Origin;
pub use tls::{Tls, TlsStream};
