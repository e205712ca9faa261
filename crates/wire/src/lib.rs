//! Goridge frames and the three codecs that calls and replies are written in: bytes to types and
//! back.
//!
//! Does no I/O and knows no clock. Everything here reads bytes of a peer: lengths are compared with
//! what is there before they are used, and every decoder answers one of three things: a value,
//! "need more", or a typed error.
//!
//! - [`frame`]: the Goridge frame, on every channel between server, workers and RPC clients.
//! - [`Kind`] and [`Head`]: what a call is, and what its answer begins with.
//! - [`Request`] and [`ReplyHead`]: what a codec carries of HTTP.
//! - [`json`] and [`proto`]: RoadRunner's codecs; [`native`]: ours
//!   (`docs/reference/native-codec.md`).

#![forbid(unsafe_code)]
#![warn(missing_docs, clippy::missing_errors_doc)]
// Lengths come from a peer. Tests may panic.
#![cfg_attr(
    not(test),
    warn(clippy::indexing_slicing, clippy::arithmetic_side_effects)
)]

mod call;
mod fields;
mod foreign;
pub mod frame;
pub mod json;
mod message;
pub mod native;
pub mod proto;

pub use call::{Head, Kind};
pub use fields::Fields;
pub use foreign::Form;
pub use message::{BadHead, Codec, DecodeError, Protocol, REMOTE_USER, ReplyHead, Request};
