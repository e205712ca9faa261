//! The part of a connection that its task and those of its requests share.

use quinn::Connection;
use tokio::sync::Notify;

use super::control::Streams;
use super::frame::{Code, Ended};

/// Bytes of bodies that may be on their way before somebody takes them, and so are kept in memory:
/// of one request, and of all of a connection.
pub(crate) const STREAM_WINDOW: u32 = 128 << 10;
pub(crate) const CONNECTION_WINDOW: u32 = 256 << 10;
/// Bytes of replies that are kept until the client has acknowledged them.
pub(crate) const SEND_WINDOW: u32 = 1 << 20;
/// A connection of HTTP/3, beside the state that others have, too.
pub(crate) struct Own {
    pub(super) connection: Connection,
    pub(super) streams: Streams,
    /// A request has ended.
    pub(super) ended: Notify,
}

impl Own {
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
