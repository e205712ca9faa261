//! HTTP/1.1, the server's side, as a state machine without I/O: bytes and time in; heads, pieces of
//! bodies and bytes to send out (RFC 9112).
//!
//! - [`Connection`] reads: it finds heads and bodies in what was received and knows how long it may
//!   still take.
//! - [`Response`] writes: it decides how a reply is framed and keeps to it.
//!
//! Strict where leniency lets two servers on one path disagree about where a request ends (request
//! smuggling): a line that ends in a lone LF, both lengths, a folded line, a space before the colon
//! or an unknown transfer coding is refused, and the connection is closed after the answer.
//!
//! ```
//! use std::time::Duration;
//! use bytes::BytesMut;
//! use pronghorn_h1::{BodySize, Connection, Limits, Received, Response};
//!
//! let mut connection = Connection::new(Limits::default(), Duration::ZERO); let mut received =
//! BytesMut::from(&b"GET /hello?x=1 HTTP/1.1\r\nHost: example.org\r\n\r\n"[..]); let
//! Some(Received::Head(head)) = connection.receive(&mut received, Duration::ZERO)? else { panic!()
//! }; assert_eq!((head.method(), head.path()), ("GET", &b"/hello"[..]));
//!
//! let mut out = Vec::new();
//! let mut response = Response::new(&head, true);
//! let date = b"Sat, 21 Nov 2026 20:00:00 GMT";
//! response.head(&mut out, 200, &Default::default(), BodySize::Known(5), date);
//! out.extend_from_slice(b"hello");
//! assert!(out.starts_with(b"HTTP/1.1 200 OK\r\n"));
//! # Ok::<(), pronghorn_h1::Refusal>(())
//! ```

#![forbid(unsafe_code)]
#![warn(missing_docs, clippy::missing_errors_doc)]
#![cfg_attr(
    not(test),
    warn(clippy::indexing_slicing, clippy::arithmetic_side_effects)
)]

mod body;
mod connection;
mod head;
mod refusal;
mod response;

#[doc(hidden)]
pub use connection::fuzz_connection;
pub use connection::{BODY_PAUSE, BODY_RATE, FIELDS, HEAD, HEAD_TIME, IDLE};
pub use connection::{Connection, Expiry, Limits, Received};
pub use head::{Parts, RequestHead, Version, host_of, is_host};
pub use refusal::Refusal;
pub use response::{
    BodySize, ChunkHead, PieceFrame, Response, interim, interim_fields, reason, switching,
};

#[cfg(test)]
mod tests;
