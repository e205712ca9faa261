//! The two kinds of worker behind a relay, and what their frames mean.

use bytes::Bytes;
use pronghorn_base::with_causes;
use pronghorn_wire::frame::{Flags, Header, OpenFrame, Stream, encode_plain};
use pronghorn_wire::native::{self, Message};
use pronghorn_wire::{Codec, DecodeError, Head};
use std::time::Duration;

use crate::call::{CallError, Payload};
use crate::content::Content;
use crate::fence::Fence;
use crate::pool::{Report, SlotHandle};
use crate::relay::incoming::{Garbage, Incoming, Item, LEFT_OUT};

/// What an official package sends when it wants to be replaced: as the answer to a call, that call
/// was not handled.
const REPLACE_ME: &[u8] = br#"{"stop":true}"#;

/// How a worker talks.
#[derive(Debug)]
pub enum Dialect {
    /// Our SDK: replies carry the number of their call.
    Native,
    /// The official packages: a reply answers whatever was asked last.
    Foreign {
        /// What each call begins with: the frame of the handshake once more, which every worker
        /// answers as soon as it takes something new up. What comes before that answer belongs to
        /// what it did before, and what comes behind it to the call. Empty: nothing.
        question: Vec<u8>,
        /// Output and frames share a pipe.
        prints: bool,
    },
}

/// A frame in answer to a call.
#[derive(Debug)]
pub(crate) enum Heard {
    Interim(Head),
    Reply {
        head: Head,
        file: bool,
        said: Said,
    },
    Chunk(Said),
    Failed {
        error: CallError,
        said: Said,
    },
    Extend(Duration),
    /// The next piece of the request's body is asked for, of at most so many bytes.
    Want(usize),
    /// It takes calls again, and says how long it was at what the call had left.
    Free(Option<Duration>),
    Pong,
    /// It waits for its next call and has not answered this one, which it need not.
    Unanswered(Head),
    /// The call was not handled: the worker wants to be replaced.
    Declined,
    Nothing,
}

/// The facts that a frame tells beside its content.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Said {
    /// More frames of this reply follow.
    pub(crate) more: bool,
    /// The worker wants to know whether anybody reads.
    pub(crate) ping: bool,
    /// The worker will say when it is free.
    pub(crate) busy: bool,
    /// The worker ends after this reply.
    pub(crate) leaving: bool,
    /// The frame's flags name its codec, as those of newer official packages do.
    pub(crate) named: bool,
}

impl Said {
    fn of(header: &Header) -> Self {
        Self {
            more: header.stream.has(Stream::MORE),
            ping: header.stream.has(Stream::PING),
            named: header.flags.has(Flags::JSON) || header.flags.has(Flags::PROTO),
            ..Self::default()
        }
    }

    fn with(self, flags: native::ReplyFlags) -> Self {
        Self {
            busy: flags.busy,
            leaving: flags.leaving,
            ..self
        }
    }
}

impl Dialect {
    pub fn foreign(fence: Fence, prints: bool) -> Self {
        let mut question = Vec::new();
        if fence == Fence::Always {
            let flags = Flags::CONTROL.with(Flags::JSON);
            let pid = format!(r#"{{"pid":{}}}"#, std::process::id());
            encode_plain(&mut question, flags, Stream::END, pid.as_bytes());
        }
        Self::Foreign { question, prints }
    }

    /// Reads a frame that came while call `number` is under way, or its reply, which began with
    /// `begun`.
    pub(crate) fn hear(
        &self,
        header: &Header,
        context: &Bytes,
        body: &Bytes,
        (number, call): (u32, &dyn Payload),
        begun: Option<Said>,
    ) -> Result<Heard, Garbage> {
        match self {
            Self::Native => hear_native(header, context, number, call, begun.is_some()),
            Self::Foreign { .. } => hear_foreign(header, context, body, call, begun),
        }
        .map_err(|error| Garbage(with_causes(&error)))
    }

    /// The frame that tells the worker that nobody reads its reply any more.
    pub(crate) fn cancel(&self, out: &mut Vec<u8>, number: u32) {
        match self {
            Self::Native => {
                let mut context = Vec::with_capacity(8);
                native::encode_cancel(&mut context, number);
                encode_context(out, &context);
            }
            Self::Foreign { .. } => encode_plain(out, Flags::NONE, Stream::STOP, b""),
        }
    }

    /// The frame, but for its `len` bytes, that carries a piece of a request's body, for which only
    /// native workers ask.
    pub(crate) fn body(out: &mut Vec<u8>, number: u32, len: usize, last: bool) {
        let frame = OpenFrame::begin(out);
        native::encode_body(out, number);
        let stream = if last { Stream::END } else { Stream::MORE };
        frame
            .finish(out, Flags::NATIVE, stream, len)
            .expect("a piece is short");
    }

    /// The frame that asks a free worker whether it hears; nothing where there is none.
    pub(crate) fn ping(&self, out: &mut Vec<u8>, number: u32) {
        if let Self::Native = self {
            let mut context = Vec::with_capacity(8);
            native::encode_ping(&mut context, number);
            encode_context(out, &context);
        }
    }

    /// Reads a frame that belongs to no call, and its body.
    pub(crate) fn aside<'i>(
        &self,
        item: &'i mut Item,
    ) -> Option<(native::Aside<'i>, &'i mut Content)> {
        match (self, item) {
            (Self::Native, Item::Frame { context, body, .. }) => {
                Some((native::aside(context)?, body))
            }
            _ => None,
        }
    }

    /// Whether a frame answers a ping.
    pub(crate) fn is_pong(&self, item: &Item) -> bool {
        matches!((self, item), (Self::Native, Item::Frame { context, .. })
            if matches!(native::decode(context), Ok(Message::Pong { .. })))
    }

    /// Whether the worker may be told at any time; the official packages look only between two
    /// chunks of a stream, and anywhere else take the frame for a call.
    pub(crate) fn hears_cancel_before_its_reply(&self) -> bool {
        matches!(self, Self::Native)
    }

    /// The bytes that a call begins with; empty when that is the call itself.
    pub(crate) fn question(&self) -> &[u8] {
        match self {
            Self::Native => b"",
            Self::Foreign { question, .. } => question,
        }
    }

    /// A frame that nobody asked for, from a worker that has not taken a call up.
    pub(crate) fn stray(&self, item: Item, slot_handle: &SlotHandle) -> Result<(), Report> {
        match self {
            Self::Native => match item {
                Item::Frame { context, .. }
                    if matches!(native::decode(&context), Ok(Message::Ignorable)) =>
                {
                    Ok(())
                }
                Item::Frame { .. } | Item::Large { .. } | Item::Piece { .. } => {
                    Err(Report::Garbage {
                        what: "a frame while it had no call".into(),
                        request: None,
                    })
                }
            },
            Self::Foreign { .. } => {
                if let Item::Frame { context, body, .. } = &item
                    && context == REPLACE_ME
                    && body.is_empty()
                {
                    return Err(Report::Leaving);
                }
                if let Some(answers) = slot_handle.second_answer() {
                    tracing::warn!(
                        target: "server", pool = slot_handle.pool(), slot = slot_handle.slot(), answers,
                        "a worker answered twice: the second answer was dropped"
                    );
                }
                match item {
                    Item::Frame { .. } => Ok(()),
                    // Too long to read away while a call waits.
                    Item::Large { .. } | Item::Piece { .. } => Err(Report::Garbage {
                        what: "a second, long answer to one call".into(),
                        request: None,
                    }),
                }
            }
        }
    }

    /// Bytes that are no frame, from a worker that has not taken a call up.
    pub(crate) fn text(
        &self,
        incoming: &mut Incoming,
        garbage: Garbage,
        slot_handle: &SlotHandle,
    ) -> Result<(), Report> {
        match self {
            Self::Foreign { prints: true, .. } if incoming.holds_text() => {
                let (text, len) = incoming.skip_text();
                let quote = incoming.quote();
                let lines = text.lines().filter(|line| !line.is_empty());
                let (shown, hidden): (Vec<_>, Vec<_>) = lines.partition(|line| quote.shows(line));
                if !hidden.is_empty() {
                    slot_handle.tell_failure(|left_out| tracing::warn!(
                        target: "server", pool = slot_handle.pool(), slot = slot_handle.slot(), left_out,
                        "on stdout, between answers: {len} bytes, which {LEFT_OUT}"
                    ));
                }
                for line in shown {
                    slot_handle.tell_failure(|left_out| tracing::warn!(
                        target: "server", pool = slot_handle.pool(), slot = slot_handle.slot(), left_out,
                        "on stdout, between answers: {line}"
                    ));
                }
                Ok(())
            }
            Self::Foreign { .. } | Self::Native => Err(Report::Garbage {
                what: garbage.0,
                request: None,
            }),
        }
    }
}

fn encode_context(out: &mut Vec<u8>, context: &[u8]) {
    let frame = OpenFrame::begin(out);
    out.extend_from_slice(context);
    frame
        .finish(out, Flags::NATIVE, Stream::END, 0)
        .expect("an envelope is short");
}

/// Why a frame makes no sense.
#[derive(Debug, thiserror::Error)]
enum Nonsense {
    #[error(transparent)]
    Context(#[from] DecodeError),
    #[error("a frame with flags 0x{0:02x}")]
    Flags(u8),
    #[error("an answer to call {got} while call {want} is under way")]
    Number { got: u32, want: u32 },
    #[error("a {0} at the wrong time")]
    Order(&'static str),
    #[error("a frame with {0} options")]
    Options(usize),
}

fn hear_native(
    header: &Header,
    context: &Bytes,
    number: u32,
    payload: &dyn Payload,
    streaming: bool,
) -> Result<Heard, Nonsense> {
    if header.flags != Flags::NATIVE {
        return Err(Nonsense::Flags(header.flags.0));
    }
    let said = Said::of(header);
    let message = native::decode(context)?;
    let (call, heard) = match message {
        Message::Reply { .. } | Message::Informational { .. } if streaming => {
            return Err(Nonsense::Order("second reply"));
        }
        Message::Reply { call, flags } => (
            call,
            Heard::Reply {
                head: payload.decode_head(Codec::Native, context)?,
                file: flags.file,
                said: said.with(flags),
            },
        ),
        Message::Informational { call } => {
            let head = payload.decode_head(Codec::Native, context)?;
            (call, Heard::Interim(head))
        }
        Message::Chunk { .. } if !streaming => return Err(Nonsense::Order("chunk")),
        Message::Chunk { call, flags } => (call, Heard::Chunk(said.with(flags))),
        Message::Error {
            call,
            flags,
            thrown,
        } => {
            let error = CallError::Thrown(Box::new(thrown));
            (
                call,
                Heard::Failed {
                    error,
                    said: Said {
                        more: false,
                        ..said.with(flags)
                    },
                },
            )
        }
        Message::Extend { call, left_ms } => (
            call,
            Heard::Extend(Duration::from_millis(u64::from(left_ms))),
        ),
        Message::Free { call, rest } => (call, Heard::Free(rest)),
        Message::Want { call, most } => (call, Heard::Want(most as usize)),
        Message::Spent { call, spent } => {
            payload.spent(spent);
            (call, Heard::Nothing)
        }
        Message::Route { call, name } => {
            payload.route(&name);
            (call, Heard::Nothing)
        }
        // Sent before the call was.
        Message::Pong { .. } => (number, Heard::Pong),
        Message::Ignorable => (number, Heard::Nothing),
    };
    if call != number {
        return Err(Nonsense::Number {
            got: call,
            want: number,
        });
    }
    Ok(heard)
}

fn hear_foreign(
    header: &Header,
    context: &Bytes,
    body: &Bytes,
    payload: &dyn Payload,
    begun: Option<Said>,
) -> Result<Heard, Nonsense> {
    let said = Said::of(header);
    if header.flags.has(Flags::ERROR) {
        let text = if header.options.as_slice().is_empty() {
            body
        } else {
            context
        };
        let error = CallError::Reported(String::from_utf8_lossy(text).into_owned());
        return Ok(Heard::Failed {
            error,
            said: Said::default(),
        });
    }
    if header.flags.has(Flags::CONTROL) {
        let asked_again = payload.unanswered().filter(|_| begun.is_none());
        return Ok(asked_again.map_or(Heard::Nothing, Heard::Unanswered));
    }
    if header.options.as_slice().len() != 1 {
        return Err(Nonsense::Options(header.options.as_slice().len()));
    }
    if let Some(begun) = begun {
        let bare = header.flags == Flags::NONE && context.is_empty() && body.is_empty();
        if bare && begun.named && !said.more {
            // Neither a chunk nor the end, which both name the codec: the package caught something,
            // or heeded a STOP.
            let error = CallError::Reported(
                "an exception ended its stream, the package does not say which".into(),
            );
            return Ok(Heard::Failed { error, said });
        }
        // Some releases repeat the head in every chunk: the client has it already.
        return Ok(Heard::Chunk(said));
    }
    if context == REPLACE_ME && body.is_empty() {
        return Ok(Heard::Declined);
    }
    let head = payload.decode_head(Codec::of_reply(header.flags), context)?;
    if head.is_interim() && said.more {
        return Ok(Heard::Interim(head));
    }
    Ok(Heard::Reply {
        head,
        file: false,
        said,
    })
}
