//! The `native` codec, version 1, as `docs/reference/native-codec.md` specifies it.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use bytes::Bytes;

use crate::message::ascii;
use crate::{Codec, DecodeError, Fields, ReplyHead, Request};

pub mod numbers;

pub use numbers::VERSION;
use numbers::{
    ANSWER_FAILURE, ANSWER_RESULT, BODY_FILE, BODY_STREAM, BUSY, BY_PHP, DEVELOPMENT, FORM,
    IGNORABLE, JOB_DONE, JOB_DONE_WITHOUT, JOB_FAILED, JOB_RETRY, KIND_ANSWER, KIND_ASK, KIND_BODY,
    KIND_CANCEL, KIND_CHUNK, KIND_COUNTS, KIND_ERROR, KIND_EXTEND, KIND_FREE, KIND_GRPC,
    KIND_INFORMATIONAL, KIND_JOB, KIND_LOG, KIND_MESSAGE, KIND_PING, KIND_PONG, KIND_RAW,
    KIND_REMARK, KIND_RENEW, KIND_REPLY, KIND_REQUEST, KIND_ROUTE, KIND_SCRIPT, KIND_SPENT,
    KIND_TCP, KIND_WANT, LEAVING, MAX_STATE, NO_LIMIT, REST_UNIT_US, STREAMS, TCP_CLOSE,
    TCP_CLOSED, TCP_CONNECTED, TCP_DATA, TCP_STATE, TIMED, TLS, WANTS_RESULT,
};

/// In which a worker tells how long it was at work after its reply.
const REST_UNIT: Duration = Duration::from_micros(REST_UNIT_US as u64);

/// What a request's body is, beside its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum BodyKind {
    /// The body itself.
    #[default]
    Bytes,
    /// The path of a file that holds it.
    File,
    /// The form section of a parsed `multipart/form-data` body.
    Form,
    /// Nothing yet: the worker asks for it piece by piece.
    Stream,
}

/// What the envelope of a request says beside the request.
#[derive(Debug, Clone, Copy, Default)]
pub struct Envelope {
    /// 1 or more, unique among the calls of a worker.
    pub call: u32,
    /// Until the deadline; `None` without one.
    pub time_left_ms: Option<u32>,
    /// What the body is.
    pub body: BodyKind,
    /// Development mode: error details may be shown.
    pub development: bool,
    /// The worker is asked what the time of the call is spent on.
    pub timed: bool,
}

impl Envelope {
    fn flags(self) -> u8 {
        let body = match self.body {
            BodyKind::Bytes => 0,
            BodyKind::File => BODY_FILE,
            BodyKind::Form => FORM,
            BodyKind::Stream => BODY_STREAM,
        };
        let development = if self.development { DEVELOPMENT } else { 0 };
        body | development | if self.timed { TIMED } else { 0 }
    }
}

/// Appends the context of a request. None of its strings may have a NUL in it, which no part of an
/// HTTP head may (RFC 9110, section 5.5); a worker refuses one that has.
pub fn encode_request(out: &mut Vec<u8>, request: &Request<'_>, envelope: Envelope) {
    let flags = envelope.flags() | if request.tls { TLS } else { 0 };
    let start = out.len();
    put_envelope(out, KIND_REQUEST, flags, 0, envelope.call); // the count of headers comes below
    put_times(out, request.accepted_us, envelope.time_left_ms);
    out.extend_from_slice(&request.protocol.number().to_le_bytes());
    out.extend_from_slice(&count16(request.attributes.len()).to_le_bytes());
    put_u32(out, 0); // the length of the text comes below
    put_table(out, request.attributes.iter());

    let text = out.len();
    let (path, query) = (ascii(request.path), request.query.map(ascii));
    out.extend_from_slice(request.method.as_bytes());
    put_next(out, request.remote.as_bytes());
    put_next(out, request.scheme().as_bytes());
    out.extend_from_slice(request.authority.as_bytes());
    out.extend_from_slice(&path);
    if let Some(query) = &query {
        out.push(b'?');
        out.extend_from_slice(query);
    }
    put_next(out, request.authority.as_bytes());
    put_next(out, &path);
    put_next(out, query.as_deref().unwrap_or_default());
    let mut headers = 0_usize;
    for (name, value) in request.worker_headers() {
        put_next(out, name);
        put_next(out, value);
        headers = headers.saturating_add(1);
    }
    let text_len = out.len().saturating_sub(text);
    put_strings(out, request.attributes.iter());

    let len = u32::try_from(text_len).expect("a head is far below 4 GiB");
    patch(out, start.saturating_add(2), count16(headers).to_le_bytes());
    patch(out, start.saturating_add(24), len.to_le_bytes());
}

/// Appends the context of a *script*: a call of a script, whose variables the caller appends behind
/// it, as FastCGI writes them.
pub fn encode_script(out: &mut Vec<u8>, accepted_us: u64, envelope: Envelope) {
    put_envelope(out, KIND_SCRIPT, envelope.flags(), 0, envelope.call);
    put_times(out, accepted_us, envelope.time_left_ms);
}

/// Appends the context of a *raw*: a call whose body is bytes that are this server's only to pass
/// on.
pub fn encode_raw(out: &mut Vec<u8>, accepted_us: u64, envelope: Envelope) {
    put_envelope(out, KIND_RAW, envelope.flags(), 0, envelope.call);
    put_times(out, accepted_us, envelope.time_left_ms);
}

/// What a worker is told of a job, beside its payload.
#[derive(Debug, Clone, Copy, Default)]
pub struct Job<'a> {
    /// Chosen by whoever pushed it.
    pub id: &'a str,
    /// Which handler it is for.
    pub name: &'a str,
    /// Where it was queued.
    pub pipeline: &'a str,
    /// As the configuration names it.
    pub driver: &'a str,
    /// 1 for the first one.
    pub attempt: u32,
    /// Whether the reply is to have what the handler returns.
    pub wants_result: bool,
}

/// Appends the context of a *job*, whose payload is the body. A header with several values comes
/// once for each; those beyond 65,535 are left out.
pub fn encode_job<'a>(
    out: &mut Vec<u8>,
    job: &Job<'a>,
    headers: impl Iterator<Item = (&'a [u8], &'a [u8])> + Clone,
    accepted_us: u64,
    envelope: Envelope,
) {
    let headers = headers.take(u16::MAX.into());
    let flags = envelope.flags() | if job.wants_result { WANTS_RESULT } else { 0 };
    let count = count16(headers.clone().count());
    put_envelope(out, KIND_JOB, flags, count, envelope.call);
    put_times(out, accepted_us, envelope.time_left_ms);
    put_u32(out, job.attempt);
    put_named(out, [job.id, job.name, job.pipeline, job.driver], headers);
}

/// Strings and pairs: all lengths first.
fn put_named<'a, const N: usize>(
    out: &mut Vec<u8>,
    strings: [&str; N],
    pairs: impl Iterator<Item = (&'a [u8], &'a [u8])> + Clone,
) {
    for string in strings {
        put_len(out, string.len());
    }
    put_table(out, pairs.clone());
    for string in strings {
        out.extend_from_slice(string.as_bytes());
    }
    put_strings(out, pairs);
}

/// A gRPC call as a worker is told of it, beside metadata and messages.
#[derive(Debug, Clone, Copy, Default)]
pub struct Grpc<'a> {
    /// With its package.
    pub service: &'a str,
    /// Without the service.
    pub method: &'a str,
    /// Whether the reply may have any number of messages.
    pub server_streams: bool,
}

/// Appends the context of a *grpc*, whose messages are the body, each with gRPC's five bytes before
/// it. Metadata beyond 65,535 values is left out.
pub fn encode_grpc<'a>(
    out: &mut Vec<u8>,
    call: &Grpc<'a>,
    metadata: impl Iterator<Item = (&'a [u8], &'a [u8])> + Clone,
    accepted_us: u64,
    envelope: Envelope,
) {
    let metadata = metadata.take(u16::MAX.into());
    let flags = envelope.flags() | if call.server_streams { STREAMS } else { 0 };
    let count = count16(metadata.clone().count());
    put_envelope(out, KIND_GRPC, flags, count, envelope.call);
    put_times(out, accepted_us, envelope.time_left_ms);
    put_named(out, [call.service, call.method], metadata);
}

/// What a handler made of its job. The body of the reply is what it returned, or why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobReply {
    /// It is done.
    Done,
    /// It is done, and what the handler returned can't be had: why.
    DoneWithout,
    /// It has failed, and no other attempt would help.
    Failed,
    /// It is to run again, so much later.
    Retry {
        /// From now.
        delay: Duration,
    },
}

/// An event of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TcpEvent {
    /// A client has connected.
    Connected,
    /// A message of the client is the body.
    #[default]
    Data,
    /// It has ended.
    Closed,
}

/// An event as a worker is told of it, beside the client's message.
#[derive(Debug, Clone, Copy, Default)]
pub struct Tcp<'a> {
    /// The event.
    pub event: TcpEvent,
    /// As the configuration names it.
    pub server: &'a str,
    /// The connection's own name.
    pub connection: &'a str,
    /// The client's address with its port.
    pub remote: &'a str,
    /// Whether the connection is encrypted.
    pub tls: bool,
    /// The state that workers keep with the connection.
    pub state: &'a [u8],
    /// The subject of the client's certificate; empty where it has shown none that counts.
    pub certificate: &'a str,
}

/// Appends the context of a *tcp* call, whose body is the client's message.
pub fn encode_tcp(out: &mut Vec<u8>, tcp: &Tcp<'_>, accepted_us: u64, envelope: Envelope) {
    let flags = envelope.flags() | if tcp.tls { TLS } else { 0 };
    let event = match tcp.event {
        TcpEvent::Connected => TCP_CONNECTED,
        TcpEvent::Data => TCP_DATA,
        TcpEvent::Closed => TCP_CLOSED,
    };
    put_envelope(out, KIND_TCP, flags, event, envelope.call);
    put_times(out, accepted_us, envelope.time_left_ms);
    let strings = [
        tcp.server.as_bytes(),
        tcp.connection.as_bytes(),
        tcp.remote.as_bytes(),
        tcp.state,
        tcp.certificate.as_bytes(),
    ];
    for string in strings {
        put_len(out, string.len());
    }
    for string in strings {
        out.extend_from_slice(string);
    }
}

/// An answer to an event; the body of the reply is for the client.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TcpReply {
    /// It ends once the body is sent.
    pub close: bool,
    /// The state that workers keep with it from now on; None: the one before.
    pub state: Option<Bytes>,
}

/// Appends the context of a *cancel*: the client of this call has left.
pub fn encode_cancel(out: &mut Vec<u8>, call: u32) {
    put_envelope(out, KIND_CANCEL, 0, 0, call);
}

/// Appends the context of a *ping*.
pub fn encode_ping(out: &mut Vec<u8>, call: u32) {
    put_envelope(out, KIND_PING, 0, 0, call);
}

/// Appends the context of a *body*: a piece of a streamed request follows, as an answer to a
/// *want*.
pub fn encode_body(out: &mut Vec<u8>, call: u32) {
    put_envelope(out, KIND_BODY, 0, 0, call);
}

/// Appends the context of an *answer* to the question of this number: the result follows, or why
/// there is none.
pub fn encode_answer(out: &mut Vec<u8>, number: u32, is_result: bool) {
    let small = if is_result {
        ANSWER_RESULT
    } else {
        ANSWER_FAILURE
    };
    put_envelope(out, KIND_ANSWER, 0, small, number);
}

/// What a worker sends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Message {
    /// The head of a reply, which depends on the kind of the call and is not read yet; its body, or
    /// the first piece, follows the context.
    Reply {
        /// The call it answers.
        call: u32,
        /// What else it says.
        flags: ReplyFlags,
    },
    /// A further piece of a reply's body.
    Chunk {
        /// The call it belongs to.
        call: u32,
        /// What else it says, in the last chunk.
        flags: ReplyFlags,
    },
    /// The head of a 1xx reply before the real one, not read yet.
    Informational {
        /// The call it belongs to.
        call: u32,
    },
    /// The handler threw.
    Error {
        /// The call that ends with it.
        call: u32,
        /// What else it says.
        flags: ReplyFlags,
        /// What was thrown, where.
        thrown: Thrown,
    },
    /// More time is asked for.
    Extend {
        /// The call under way.
        call: u32,
        /// From now.
        left_ms: u32,
    },
    /// The worker of a reply with [`ReplyFlags::busy`] takes calls again.
    Free {
        /// The call whose reply was busy.
        call: u32,
        /// How long that was after its reply; `None` where it is not told.
        rest: Option<Duration>,
    },
    /// The next piece of a streamed request is asked for.
    Want {
        /// The call under way.
        call: u32,
        /// The most bytes that it may have.
        most: u32,
    },
    /// What the time of a call was spent on, before the end of its reply.
    Spent {
        /// The call under way.
        call: u32,
        /// By the clocks of the thread that ran it.
        spent: Spent,
    },
    /// What the application calls the call's route.
    Route {
        /// The call under way.
        call: u32,
        /// Bytes that are not UTF-8 are replaced.
        name: String,
    },
    /// The answer to a ping.
    Pong {
        /// The ping's number.
        call: u32,
    },
    /// A kind from the future that says it can be ignored.
    Ignorable,
}

/// Flags of a reply or an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReplyFlags {
    /// The body is the path of a file to send.
    pub file: bool,
    /// The worker will say when it takes calls again.
    pub busy: bool,
    /// The worker ends after this reply.
    pub leaving: bool,
}

impl ReplyFlags {
    const fn from_byte(byte: u8) -> Self {
        Self {
            file: byte & BODY_FILE != 0,
            busy: byte & BUSY != 0,
            leaving: byte & LEAVING != 0,
        }
    }
}

/// What the time of a call was spent on, while a worker had it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Spent {
    /// Computing.
    pub cpu: Duration,
    /// Not computing: asleep, behind a lock, waiting for a peer or for a processor.
    pub blocked: Duration,
}

impl Spent {
    /// Of a time at whose begin a process had taken so much of a processor, and at whose end that
    /// much. Several threads may have taken more than there was.
    #[must_use]
    pub fn of(took: Duration, cpu_before: Duration, cpu_after: Duration) -> Self {
        let cpu = cpu_after.saturating_sub(cpu_before).min(took);
        Self {
            cpu,
            blocked: took.saturating_sub(cpu),
        }
    }
}

/// What a handler threw, in PHP's words.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Thrown {
    /// Class of the exception or error.
    pub class: String,
    /// Its message.
    pub message: String,
    /// The file it was thrown in.
    pub file: String,
    /// The line there.
    pub line: u32,
    /// The trace, a frame per line; may be cut by the worker.
    pub trace: String,
}

/// The message and the place, without the class.
impl fmt::Display for Thrown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} in {}:{}", self.message, self.file, self.line)
    }
}

impl Thrown {
    /// Reads one that stands by itself.
    ///
    /// # Errors
    ///
    /// When a part is missing.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        Reader { rest: bytes }.thrown()
    }
}

/// What a worker says beside its call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Aside<'a> {
    /// It asks for new workers, because its cache of code is of no more use to it.
    Renewal {
        /// The cache was full, and not reset.
        full: bool,
    },
    /// It found something wrong with the application, and went on.
    Remark(Thrown),
    /// A record that the application makes.
    Log(LogEntry),
    /// What the application has counted, as a JSON list.
    Counts(&'a [u8]),
    /// A text for PHP's log.
    Logged(Logged<'a>),
    /// A method of the server that it calls; the argument is the body, as JSON.
    Question(Question),
}

/// A text for PHP's log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Logged<'a> {
    /// All lines of it.
    pub text: Cow<'a, str>,
    /// PHP itself has put it into words. Else the application has, by `error_log()`, whatever it
    /// looks like.
    pub by_php: bool,
}

/// A record that an application makes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogEntry {
    /// As PSR-3 and syslog count: 0 is an emergency, 7 is for debugging.
    pub level: u8,
    /// What it says.
    pub message: String,
    /// A JSON object, as far as the application is right; empty where there is none.
    pub context: String,
}

/// A method of the server that a worker calls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Question {
    /// The worker's number for it, which the answer repeats.
    pub number: u32,
    /// `service.Method`.
    pub method: String,
}

/// What belongs to no call: `None` where a context is another message, or makes no sense. It comes
/// at any time, a question while the worker has a call. [`decode`] passes over all of them but
/// questions, which it refuses.
pub fn aside(context: &[u8]) -> Option<Aside<'_>> {
    Some(match context {
        [KIND_RENEW, _, small, 0, _, _, _, _] => Aside::Renewal { full: *small == 2 },
        [KIND_REMARK, _, _, _, _, _, _, _, rest @ ..] => {
            let mut input = Reader { rest };
            let thrown = input.thrown().ok().filter(|_| input.rest.is_empty());
            Aside::Remark(thrown?)
        }
        [KIND_LOG, _, level, 0, _, _, _, _, rest @ ..] => {
            let mut input = Reader { rest };
            let message = input.len().and_then(|len| input.text(len)).ok()?;
            Aside::Log(LogEntry {
                level: *level,
                message,
                context: input.text(input.rest.len()).ok()?,
            })
        }
        [KIND_COUNTS, _, 0, 0, _, _, _, _, changes @ ..] => Aside::Counts(changes),
        [KIND_MESSAGE, flags, _, _, _, _, _, _, text @ ..] => Aside::Logged(Logged {
            text: String::from_utf8_lossy(text),
            by_php: *flags & BY_PHP != 0,
        }),
        [KIND_ASK, _, 0, 0, a, b, c, d, method @ ..] => Aside::Question(Question {
            number: u32::from_le_bytes([*a, *b, *c, *d]),
            method: String::from_utf8_lossy(method).into_owned(),
        }),
        _ => return None,
    })
}

/// Reads a context that a worker sent, but for the head of a reply.
///
/// # Errors
///
/// When a length leads outside, bytes are left over, or the kind is not one that workers send.
pub fn decode(context: &Bytes) -> Result<Message, DecodeError> {
    let mut input = Reader { rest: context };
    let kind = input.u8()?;
    let flags = input.u8()?;
    let small = input.u16()?;
    let call = input.u32()?;
    if call == 0 {
        return Err(DecodeError::CallNumber);
    }
    let message = match kind {
        KIND_REPLY => {
            let flags = ReplyFlags::from_byte(flags);
            return Ok(Message::Reply { call, flags });
        }
        KIND_INFORMATIONAL => return Ok(Message::Informational { call }),
        KIND_CHUNK => Message::Chunk {
            call,
            flags: ReplyFlags::from_byte(flags),
        },
        KIND_ERROR => Message::Error {
            call,
            flags: ReplyFlags::from_byte(flags),
            thrown: input.thrown()?,
        },
        KIND_EXTEND => Message::Extend {
            call,
            left_ms: input.u32()?,
        },
        KIND_FREE => Message::Free {
            call,
            rest: (small > 0).then(|| REST_UNIT.saturating_mul(small.into())),
        },
        KIND_WANT => Message::Want {
            call,
            most: input.u32()?,
        },
        KIND_SPENT => Message::Spent {
            call,
            spent: Spent {
                cpu: input.micros()?,
                blocked: input.micros()?,
            },
        },
        KIND_ROUTE => Message::Route {
            call,
            name: input.text(input.rest.len())?,
        },
        KIND_PONG => Message::Pong { call },
        _ if flags & IGNORABLE != 0 => return Ok(Message::Ignorable),
        _ => return Err(DecodeError::Kind(kind)),
    };
    input.end().map(|()| message)
}

/// Reads the head of a *reply* or *informational* that answers a request or a script.
///
/// # Errors
///
/// When a length leads outside or bytes are left over.
pub fn decode_reply(context: &Bytes) -> Result<ReplyHead, DecodeError> {
    let mut input = Reader { rest: context };
    let [_kind, _flags] = input.array()?;
    let status = input.u16()?;
    let _call = input.u32()?;
    let headers = input.fields(context)?;
    input.end().map(|()| ReplyHead { status, headers })
}

/// Looks whether a context is that of a *reply* to a raw call.
///
/// # Errors
///
/// When it is another message, or says more than which call it answers.
pub fn decode_raw_reply(context: &Bytes) -> Result<(), DecodeError> {
    let mut input = Reader { rest: context };
    let [kind, _flags] = input.array()?;
    if kind != KIND_REPLY {
        return Err(DecodeError::Kind(kind));
    }
    let _small = input.u16()?;
    let _call = input.u32()?;
    input.end()
}

/// Reads the context of a *reply* to a job.
///
/// # Errors
///
/// When it is another message, or of another shape.
pub fn decode_job_reply(context: &Bytes) -> Result<JobReply, DecodeError> {
    let mut input = Reader { rest: context };
    let [kind, _flags] = input.array()?;
    if kind != KIND_REPLY {
        return Err(DecodeError::Kind(kind));
    }
    let small = input.u16()?;
    let _call = input.u32()?;
    let reply = match small {
        JOB_DONE => JobReply::Done,
        JOB_DONE_WITHOUT => JobReply::DoneWithout,
        JOB_FAILED => JobReply::Failed,
        JOB_RETRY => JobReply::Retry {
            delay: Duration::from_millis(u64::from_le_bytes(input.array()?)),
        },
        other => return Err(DecodeError::Outcome(other)),
    };
    input.end().map(|()| reply)
}

/// Reads the context of a *reply* to a TCP call.
///
/// # Errors
///
/// When it is another message, or of another shape, or a state that is too long.
pub fn decode_tcp_reply(context: &Bytes) -> Result<TcpReply, DecodeError> {
    let mut input = Reader { rest: context };
    let [kind, _flags] = input.array()?;
    if kind != KIND_REPLY {
        return Err(DecodeError::Kind(kind));
    }
    let small = input.u16()?;
    let _call = input.u32()?;
    if small & !(TCP_CLOSE | TCP_STATE) != 0 {
        return Err(DecodeError::Outcome(small));
    }
    let close = small & TCP_CLOSE != 0;
    if small & TCP_STATE == 0 {
        let state = None;
        return input.end().map(|()| TcpReply { close, state });
    }
    let state = context.slice_ref(input.rest);
    if state.len() > MAX_STATE as usize {
        return Err(DecodeError::State(state.len()));
    }
    let state = Some(state);
    Ok(TcpReply { close, state })
}

fn put_envelope(out: &mut Vec<u8>, kind: u8, flags: u8, small: u16, call: u32) {
    let [s0, s1] = small.to_le_bytes();
    let [c0, c1, c2, c3] = call.to_le_bytes();
    out.extend_from_slice(&[kind, flags, s0, s1, c0, c1, c2, c3]);
}

fn put_times(out: &mut Vec<u8>, accepted_us: u64, time_left_ms: Option<u32>) {
    out.extend_from_slice(&accepted_us.to_le_bytes());
    let left = time_left_ms.map_or(NO_LIMIT, |left| left.min(NO_LIMIT.saturating_sub(1)));
    put_u32(out, left);
}

/// A string behind another one.
fn put_next(out: &mut Vec<u8>, string: &[u8]) {
    out.push(0);
    out.extend_from_slice(string);
}

/// Fills in a number that was not known yet.
fn patch<const N: usize>(out: &mut [u8], at: usize, number: [u8; N]) {
    if let Some(place) = out.get_mut(at..at.saturating_add(N)) {
        place.copy_from_slice(&number);
    }
}

fn put_u32(out: &mut Vec<u8>, number: u32) {
    out.extend_from_slice(&number.to_le_bytes());
}

fn put_len(out: &mut Vec<u8>, len: usize) {
    put_u32(out, u32::try_from(len).expect("a head is far below 4 GiB"));
}

fn count16(count: usize) -> u16 {
    u16::try_from(count).expect("a head has at most a few hundred fields")
}

fn put_table<'a>(out: &mut Vec<u8>, fields: impl Iterator<Item = (&'a [u8], &'a [u8])>) {
    for (name, value) in fields {
        put_len(out, name.len());
        put_len(out, value.len());
    }
}

fn put_strings<'a>(out: &mut Vec<u8>, fields: impl Iterator<Item = (&'a [u8], &'a [u8])>) {
    for (name, value) in fields {
        out.extend_from_slice(name);
        out.extend_from_slice(value);
    }
}

/// Takes numbers and texts off the front; every failure is the same: the context is cut.
struct Reader<'a> {
    rest: &'a [u8],
}

const CUT: DecodeError = DecodeError::Cut {
    codec: Codec::Native,
};

impl<'a> Reader<'a> {
    fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let (first, rest) = self.rest.split_first_chunk::<N>().ok_or(CUT)?;
        self.rest = rest;
        Ok(*first)
    }

    fn end(&self) -> Result<(), DecodeError> {
        match self.rest.len() {
            0 => Ok(()),
            bytes => Err(DecodeError::LeftOver {
                codec: Codec::Native,
                bytes,
            }),
        }
    }

    fn u8(&mut self) -> Result<u8, DecodeError> {
        self.array::<1>().map(|[byte]| byte)
    }

    fn u16(&mut self) -> Result<u16, DecodeError> {
        self.array().map(u16::from_le_bytes)
    }

    fn u32(&mut self) -> Result<u32, DecodeError> {
        self.array().map(u32::from_le_bytes)
    }

    fn micros(&mut self) -> Result<Duration, DecodeError> {
        self.u32()
            .map(|micros| Duration::from_micros(micros.into()))
    }

    fn len(&mut self) -> Result<usize, DecodeError> {
        self.u32().map(|len| len as usize)
    }

    fn take(&mut self, len: usize) -> Result<&'a [u8], DecodeError> {
        let (first, rest) = self.rest.split_at_checked(len).ok_or(CUT)?;
        self.rest = rest;
        Ok(first)
    }

    fn text(&mut self, len: usize) -> Result<String, DecodeError> {
        self.take(len)
            .map(|text| String::from_utf8_lossy(text).into_owned())
    }

    /// The fields of a reply: a count, the table, the strings. `context` is the whole that `rest`
    /// is the tail of.
    fn fields(&mut self, context: &'a Bytes) -> Result<Fields, DecodeError> {
        let count = self.len()?;
        let mut table = Reader {
            rest: self.take(count.checked_mul(8).ok_or(CUT)?)?,
        };
        let mut at = context.len().saturating_sub(self.rest.len());
        if count == 0 {
            return Ok(Fields::new()); // and holds nothing
        }
        let mut fields = Fields::over(context.clone(), count);
        for _ in 0..count {
            let (name, value) = (table.len()?, table.len()?);
            let value_at = at.checked_add(name).ok_or(CUT)?;
            if !fields.push_received((at, name), (value_at, value)) {
                return Err(CUT);
            }
            at = value_at.checked_add(value).ok_or(CUT)?;
        }
        self.rest = context.get(at..).ok_or(CUT)?;
        Ok(fields)
    }

    fn thrown(&mut self) -> Result<Thrown, DecodeError> {
        let line = self.u32()?;
        let (class, message, file, trace) = (self.len()?, self.len()?, self.len()?, self.len()?);
        Ok(Thrown {
            class: self.text(class)?,
            message: self.text(message)?,
            file: self.text(file)?,
            line,
            trace: self.text(trace)?,
        })
    }
}

/// Fuzz entry: no input may panic or allocate beyond its own size.
#[doc(hidden)]
pub fn fuzz_decode(data: &[u8]) {
    let context = Bytes::copy_from_slice(data);
    if let Ok(Message::Reply { .. }) = decode(&context)
        && let Ok(head) = decode_reply(&context)
    {
        assert!(
            head.headers.len() <= data.len() / numbers::ENVELOPE,
            "more headers than table entries fit"
        );
    }
}

#[cfg(test)]
mod tests;
