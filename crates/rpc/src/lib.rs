//! Goridge RPC: calls from PHP and from the command line to the methods of the server's services.
//!
//! - [`Listener`]: a bound socket, TCP or unix.
//! - [`Server`]: accepts from it and answers calls; [`Rpc`] is the same as a service.
//! - [`Client`]: the caller's end, for the command line.
//! - [`Successor`]: the process that has taken over, for calls to this one.
//! - [`WorkerMethods`]: the same methods for workers, who ask over their own connection.
//!
//! Which methods there are is none of its business: services add them to
//! [`Methods`](pronghorn_plugin_api::rpc::Methods). Frames, errors and limits for callers:
//! `docs/reference/rpc.md`.

#![forbid(unsafe_code)]

mod client;
mod codec;
mod connection;
mod listener;
mod reply;
mod request;
mod room;
mod server;
mod service;
mod successor;
mod thread;
mod workers;

pub use client::{CallError, Client};
pub use listener::{ListenError, Listener};
pub use request::{MAX_METHOD, MAX_PAYLOAD, fuzz_request};
pub use room::{REPLIES_PER_CONNECTION, REPLIES_PER_POOL, REPLIES_UNREAD};
pub use server::{BYTES_UNDER_WAY, CALLS_PER_CONNECTION, Server};
pub use service::Rpc;
pub use successor::{Successor, answer_predecessor};
pub use thread::RpcThread;
pub use workers::{APART, WorkerMethods};
