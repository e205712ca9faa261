//! Time limits and sizes of connections.

use std::time::Duration;

use tokio::time::Instant;

/// Between two writes that a client takes something of: as long as a client may pause while it
/// sends.
pub const SEND_PAUSE: Duration = Duration::from_secs(60);

/// Bytes of a reply that a client must take in a second, on average, of the time that the reply
/// waits for it: as of a body that it sends.
const SEND_RATE: u64 = pronghorn_h1::BODY_RATE;

/// Bytes that clients may make the server hold. A thousand uploads or a hundred compressed replies
/// at a time fit; beside what workers take it is little.
pub const CLIENT_MEMORY: usize = 256 << 20;

/// For who does not count descriptors; the server does.
const CONNECTIONS: usize = 10_000;

/// Time limits and sizes beyond those of the protocol.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// How much a client may send, and how slowly.
    pub receive: pronghorn_h1::Limits,
    /// Between two writes that a client takes something of. Default is [`SEND_PAUSE`].
    pub send_pause: Duration,
    /// From the head of a request to the end of its response over HTTP/1.1, however much the client
    /// takes in between; meanwhile it is one of those that make room for others. It begins anew
    /// whenever the body was waited for: a live one may go on for as long as its client takes what
    /// there is. For services whose responses are short. Default is none.
    pub whole_response: Option<Duration>,
    /// Open connections in all. Default is 10,000.
    pub connections: usize,
    /// Bytes that clients may make the server hold in all, ordinary requests aside. Default is
    /// [`CLIENT_MEMORY`].
    pub memory: usize,
    /// The key of that limit, for records. Default is that of HTTP.
    pub memory_key: &'static str,
    /// The limits that HTTP/1.1 does not have.
    pub http2: Http2Limits,
}

impl Limits {
    /// Until when a client may go on to take nothing of a response that has waited since `begun`,
    /// and for `waited` before: it took something last at `moved`, and `taken` bytes in all. A byte
    /// now and then does not keep a connection.
    pub(crate) fn untaken_until(
        &self,
        begun: Instant,
        moved: Instant,
        taken: u64,
        waited: Duration,
    ) -> Instant {
        let earned = Duration::from_secs(taken / SEND_RATE);
        let left = (self.send_pause + earned).saturating_sub(waited);
        (begun + left).min(moved + self.send_pause)
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            receive: pronghorn_h1::Limits::default(),
            send_pause: SEND_PAUSE,
            whole_response: None,
            connections: CONNECTIONS,
            memory: CLIENT_MEMORY,
            memory_key: "http.client_memory",
            http2: Http2Limits::default(),
        }
    }
}

/// HTTP/2's own limits.
#[derive(Debug, Clone, Copy)]
pub struct Http2Limits {
    /// Whether it is spoken without TLS, by clients that begin with it.
    pub clear: bool,
    /// Requests that a client may have open on a connection. Default is 128, as RoadRunner's.
    pub streams: u32,
    /// How old a connection may become: the client is told then to make another one, and requests
    /// under way finish. Default is none.
    pub age: Option<Duration>,
    /// How long those may take. Default is as long as they want.
    pub age_grace: Option<Duration>,
    /// After so long without a sign of life the client is asked for one, and waited for so long.
    /// Default is none.
    pub ping: Option<(Duration, Duration)>,
    /// Whether blanks around a field's value are removed, as gRPC allows. By default, such a
    /// request is refused (RFC 9113, section 8.2.1).
    pub trims: bool,
}

impl Default for Http2Limits {
    fn default() -> Self {
        Self {
            clear: false,
            streams: 128,
            age: None,
            age_grace: None,
            ping: None,
            trims: false,
        }
    }
}
