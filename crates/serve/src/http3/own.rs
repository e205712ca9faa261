//! The part of a connection that its task and those of its requests share.

use std::sync::atomic::{AtomicBool, Ordering};

use quinn::Connection;
use tokio::sync::Notify;

use super::control::Streams;
use super::frame::{Code, Ended};
use crate::client_memory::ClientBytes;
use crate::message::Peer;
use crate::service::Entered;

/// Bytes of one request that may be on their way before somebody takes them.
pub(crate) const STREAM_WINDOW: u32 = 128 << 10;
/// Bytes of all requests of a connection that may be on their way, until it has one with a body
/// that is counted.
pub(crate) const FIRST_WINDOW: u32 = 32 << 10;
/// The same after the first request with such a body.
const CONNECTION_WINDOW: u32 = 256 << 10;
/// Memory for as many bytes: where pieces come out of order, `quinn` keeps whole packets, up to
/// one and a half times as many bytes beside those that count.
const CONNECTION_MEMORY: usize = CONNECTION_WINDOW as usize / 2 * 5;
/// Memory for pieces of a request that come out of order, however small they are: `quinn` keeps as
/// much in whole packets before it copies.
pub(super) const GAPS: usize = 32 << 10;
/// Bytes of replies that are kept until the client has acknowledged them.
pub(crate) const SEND_WINDOW: u32 = 1 << 20;
/// A connection of HTTP/3, beside the state that others have, too.
pub(crate) struct Own {
    pub(super) connection: Connection,
    pub(super) streams: Streams,
    /// A request has ended.
    pub(super) ended: Notify,
    /// The window of the connection is as large as it gets.
    is_wide: AtomicBool,
}

impl Own {
    pub(super) fn new(connection: Connection) -> Self {
        Self {
            connection,
            streams: Streams::default(),
            ended: Notify::new(),
            is_wide: AtomicBool::new(false),
        }
    }

    /// Lets the client send a large body. What it may send once, it may send at any time.
    pub(super) fn widen(&self, entered: &Entered, peer: &Peer) {
        if !self.is_wide.swap(true, Ordering::Relaxed) {
            self.connection.set_receive_window(CONNECTION_WINDOW.into());
            entered.keeps(peer, ClientBytes::Input, CONNECTION_MEMORY);
        }
    }

    /// The client has broken a rule.
    pub(super) fn close(&self, code: Code) {
        self.connection.close(code.into(), b"");
    }

    /// A request's stream brings no more: its client is gone, or has broken a rule.
    pub(super) fn stream_ended(&self, ended: Ended) {
        match ended {
            Ended::Gone => {}
            Ended::Broken(code) => self.close(code),
        }
    }
}
