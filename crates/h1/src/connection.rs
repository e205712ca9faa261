//! The receiving half of a connection: which request is where in the bytes, and how long it may
//! take.

use std::time::Duration;

use bytes::{Buf, BytesMut};

use crate::body::{BodyState, BodyStep};
use crate::head::{self, BodyFraming, RequestHead};
use crate::refusal::Refusal;

/// Bytes of a head. Laravel's cookies fit, several of the 4 KB that browsers allow each.
pub const HEAD: usize = 64 << 10;

/// Fields of a head: browsers send twenty, proxies add ten. Cookies that come in parts are one.
pub const FIELDS: usize = 100;

/// For a head: a phone with a bad connection needs seconds; who needs more is holding the
/// connection on purpose.
pub const HEAD_TIME: Duration = Duration::from_secs(15);

/// Between two reads of a body: a phone that changes cells is back by then.
pub const BODY_PAUSE: Duration = Duration::from_secs(60);

/// Bytes per second: the slowest modem in use has twice that; a byte a minute is an attack.
pub const BODY_RATE: u64 = 500;

/// Between two requests: longer than the 60 s that common proxies keep a connection, so that none
/// of them writes into one that is being closed.
pub const IDLE: Duration = Duration::from_secs(75);

/// What a client may send, and how slowly. The defaults are the constants.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Bytes of a head.
    pub head: usize,
    /// Fields of a head. More than [`FIELDS`] cost an allocation each time.
    pub fields: usize,
    /// From the first byte of a head (for the first one: from the connection's start) to its end.
    pub head_time: Duration,
    /// Between two reads of a body.
    pub body_pause: Duration,
    /// Bytes per second that a body must come with on average, after `body_pause`.
    pub body_rate: u64,
    /// Between two requests.
    pub idle: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            head: HEAD,
            fields: FIELDS,
            head_time: HEAD_TIME,
            body_pause: BODY_PAUSE,
            body_rate: BODY_RATE,
            idle: IDLE,
        }
    }
}

impl Limits {
    /// By when a client must send more of a body that began at `since`, and of which `received`
    /// bytes came until `heard`.
    pub fn body_deadline(&self, since: Duration, heard: Duration, received: u64) -> Duration {
        let earned = received.checked_div(self.body_rate);
        let earned = Duration::from_secs(earned.unwrap_or(u64::MAX / 2));
        let average = since.saturating_add(self.body_pause).saturating_add(earned);
        heard.saturating_add(self.body_pause).min(average)
    }
}

/// What the received bytes hold next.
#[derive(Debug)]
pub enum Received {
    /// A request's head; its bytes are taken from the input.
    Head(Box<RequestHead>),
    /// The next so many bytes of the input are the body's: take them before the next call.
    Body(usize),
    /// The body is complete. Comes once for every head.
    End,
}

/// What a client did not do in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expiry {
    /// It sent nothing: close, there is nobody to tell.
    Idle,
    /// It did not finish a head: 408.
    Head,
    /// It did not go on with a body: 408.
    Body,
}

/// Reads one client's requests, one after the other. The next head is not looked for before
/// [`finish`](Self::finish).
#[derive(Debug)]
pub struct Connection {
    limits: Limits,
    phase: Phase,
    /// How many empty lines were skipped before the head.
    empty_lines: usize,
    /// How far the head's end was looked for.
    scanned: usize,
    /// When the phase began.
    since: Duration,
    /// When the client last sent something.
    heard: Duration,
    body_bytes: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Nothing of the next request is there. `first`: nothing ever was.
    Idle {
        first: bool,
    },
    Head,
    Body(BodyState),
    /// The request is complete and being answered.
    Answering,
}

/// Empty lines before a request, which old clients send behind a body (RFC 9112, section 2.2).
const LEADING_EMPTY_LINES: usize = 2;

impl Connection {
    /// A connection that was accepted at `now`. All times are measured from one moment of the
    /// caller's choice.
    pub fn new(limits: Limits, now: Duration) -> Self {
        Self {
            limits,
            phase: Phase::Idle { first: true },
            empty_lines: 0,
            scanned: 0,
            since: now,
            heard: now,
            body_bytes: 0,
        }
    }

    /// Takes the next thing from the front of `input`. `None` when more bytes are needed, or when
    /// the request is complete and being answered.
    ///
    /// # Errors
    ///
    /// When the request can't be taken. Nothing more can be received then.
    pub fn receive(
        &mut self,
        input: &mut BytesMut,
        now: Duration,
    ) -> Result<Option<Received>, Refusal> {
        match self.phase {
            Phase::Idle { .. } if input.is_empty() => Ok(None),
            Phase::Idle { first } => {
                // The time for the first head runs from the connection's start: a client that
                // connects and says nothing is as slow as one that says little.
                let since = if first { self.since } else { now };
                self.go(Phase::Head, since);
                self.receive(input, now)
            }
            Phase::Head => self.receive_head(input, now),
            Phase::Body(body) => self.receive_body(body, input, now),
            Phase::Answering => Ok(None),
        }
    }

    fn receive_head(
        &mut self,
        input: &mut BytesMut,
        now: Duration,
    ) -> Result<Option<Received>, Refusal> {
        while input.starts_with(b"\r\n") {
            if self.empty_lines == LEADING_EMPTY_LINES {
                return Err(Refusal::Syntax("empty lines before the request line"));
            }
            self.empty_lines = self.empty_lines.saturating_add(1);
            input.advance(2);
        }
        let Some(end) = head::find_end(input, &mut self.scanned, self.limits.head)? else {
            return Ok(None);
        };
        let head = head::parse(input.get(..end).unwrap_or_default(), self.limits.fields)?;
        input.advance(end);
        self.empty_lines = 0;
        self.scanned = 0;
        self.body_bytes = 0;
        self.heard = now;
        let body = match head.framing {
            BodyFraming::None => BodyState::Done,
            BodyFraming::Length(length) => BodyState::Length(length),
            BodyFraming::Chunked => BodyState::ChunkSize,
        };
        self.go(Phase::Body(body), now);
        Ok(Some(Received::Head(Box::new(head))))
    }

    fn receive_body(
        &mut self,
        mut body: BodyState,
        input: &mut BytesMut,
        now: Duration,
    ) -> Result<Option<Received>, Refusal> {
        loop {
            let step = body.step(input)?;
            self.phase = Phase::Body(body);
            match step {
                BodyStep::Skip(bytes) => input.advance(bytes),
                BodyStep::Data(bytes) => {
                    self.heard = now;
                    self.body_bytes = self.body_bytes.saturating_add(bytes as u64);
                    return Ok(Some(Received::Body(bytes)));
                }
                BodyStep::More => return Ok(None),
                BodyStep::Done => {
                    self.go(Phase::Answering, now);
                    return Ok(Some(Received::End));
                }
            }
        }
    }

    /// The request was answered; the next one may come.
    ///
    /// False when its body was never read to the end: then nobody knows where the next request
    /// starts, and the connection must be closed.
    #[must_use]
    pub fn finish(&mut self, now: Duration) -> bool {
        let complete = self.has_all();
        if complete {
            self.go(Phase::Idle { first: false }, now);
        }
        complete
    }

    /// Nobody took the body for so long, so the client could not go on with it: that time is not
    /// the client's.
    pub fn resume_body(&mut self, paused: Duration) {
        self.since = self.since.saturating_add(paused);
        self.heard = self.heard.saturating_add(paused);
    }

    fn go(&mut self, phase: Phase, now: Duration) {
        self.phase = phase;
        self.since = now;
    }

    /// By when the client must have done something, and what follows if it hasn't. `None` while it
    /// is the server's turn.
    pub fn deadline(&self) -> Option<(Duration, Expiry)> {
        let limits = &self.limits;
        match self.phase {
            Phase::Idle { first: true } => {
                Some((self.since.saturating_add(limits.head_time), Expiry::Idle))
            }
            Phase::Idle { first: false } => {
                Some((self.since.saturating_add(limits.idle), Expiry::Idle))
            }
            Phase::Head => Some((self.since.saturating_add(limits.head_time), Expiry::Head)),
            Phase::Body(BodyState::Done) | Phase::Answering => None,
            Phase::Body(_) => {
                let deadline = limits.body_deadline(self.since, self.heard, self.body_bytes);
                Some((deadline, Expiry::Body))
            }
        }
    }

    /// Whether the request has been received to its end.
    pub fn has_all(&self) -> bool {
        matches!(self.phase, Phase::Answering | Phase::Body(BodyState::Done))
    }

    /// How many bytes of the body, or of the chunk that has begun, are still to come. More may
    /// follow behind a chunk.
    pub fn announced(&self) -> u64 {
        match self.phase {
            Phase::Body(BodyState::Length(left) | BodyState::Chunk(left)) => left,
            _ => 0,
        }
    }

    /// Whether nothing of a next request is there.
    pub fn is_idle(&self) -> bool {
        matches!(self.phase, Phase::Idle { .. })
    }
}

/// Fuzz entry: the same bytes in one piece and in pieces give the same requests, and nothing panics
/// or loops.
#[doc(hidden)]
pub fn fuzz_connection(data: &[u8]) {
    let whole = replay(data, data.len().max(1));
    for piece in [1, 3] {
        assert_eq!(
            whole,
            replay(data, piece),
            "the result depends on how the bytes were cut"
        );
    }
}

/// Everything that a connection makes of some bytes, as text.
fn replay(data: &[u8], piece: usize) -> String {
    use std::fmt::Write as _;
    let mut connection = Connection::new(
        Limits {
            head: 4096,
            ..Limits::default()
        },
        Duration::ZERO,
    );
    let mut input = BytesMut::new();
    let mut seen = String::new();
    for part in data.chunks(piece) {
        input.extend_from_slice(part);
        loop {
            match connection.receive(&mut input, Duration::ZERO) {
                Ok(Some(Received::Head(head))) => _ = writeln!(seen, "{head:?}"),
                Ok(Some(Received::Body(bytes))) => {
                    for byte in input.split_to(bytes) {
                        _ = write!(seen, "{byte:02x}");
                    }
                }
                Ok(Some(Received::End)) => {
                    seen.push('.');
                    assert!(
                        connection.finish(Duration::ZERO),
                        "a request that has ended is finished"
                    );
                }
                Ok(None) => break,
                Err(refusal) => {
                    _ = write!(seen, "{refusal}");
                    return seen;
                }
            }
        }
    }
    seen
}
