//! gRPC and gRPC-Web on the connections of crate `serve`: what a service sees is a [`Call`] with
//! its metadata and messages, and what it gives back is a [`Reply`].
//!
//! [`Server`] is a [`Handler`](pronghorn_serve::Handler): it judges the request, reads messages
//! within their limits, keeps the client's deadline and writes statuses. [`Answers`] is what a
//! service implements. The limits of connections, heads and streams are those of `serve`.
//!
//! Knows no service and no worker; a message is bytes here.

#![forbid(unsafe_code)]

mod aside;
mod base64_pieces;
mod call;
mod content;
mod gzip;
mod message;
mod metadata;
mod outgoing;
mod path;
mod server;
mod status;
mod timeout;

pub use aside::{LONG, Wanted, aside, while_there};
pub use call::{Call, Detached, Ending, Input, Messages, Reply, ReplyBody, Streamed};
pub use content::{Content, Flavour};
pub use gzip::{compress, decompress};
pub use message::{Decoder, FrameError, PREFIX, RawMessage, frame, prefix};
pub use metadata::{Metadata, Value, decode_binary, encode_binary, is_for_the_transport};
pub use outgoing::{in_time, late, too_long};
pub use path::MethodPath;
pub use server::{Answers, Cors, MessageLimits, Server};
pub use status::{Code, Status, percent_decode, percent_encode};
pub use timeout::parse_timeout;
