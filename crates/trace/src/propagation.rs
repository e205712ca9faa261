//! How services tell each other to which trace a request belongs: the header fields of W3C Trace
//! Context, B3 and Jaeger.
//!
//! Fields that come in are a stranger's. Anything that is not exactly as it should be counts as not
//! sent.

use crate::id::{SpanId, TraceId, hex};

/// W3C allows it to be cut, and asks for at least this.
const LONGEST_STATE: usize = 512;

/// The caller's trace, as its request names it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Incoming {
    /// Its trace, and the span that this request is part of.
    pub parent: Option<(TraceId, SpanId)>,
    /// Whether it keeps the trace, where it has decided on that.
    pub sampled: Option<bool>,
    /// `tracestate` of W3C: not looked into, handed on.
    pub state: Box<str>,
}

/// The context that is sent to services that work on a part of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outgoing {
    /// The trace.
    pub trace: TraceId,
    /// The part that they work on, which becomes the parent of their spans.
    pub span: SpanId,
    /// Whether the trace is kept, as far as it is known.
    pub sampled: bool,
}

/// Whether a field of this name, in lower case, may say something of a trace. Most requests have
/// none: one look at each name is less than one for each of the eight.
#[must_use]
pub fn names_trace(name: &[u8]) -> bool {
    match name {
        b"b3" | b"traceparent" | b"tracestate" | b"uber-trace-id" => true,
        _ => name.starts_with(b"x-b3-"),
    }
}

impl Incoming {
    /// From the header fields of a request: the first of W3C, B3 and Jaeger that can be read.
    /// `field` finds the value of a field by its name in lower case.
    pub fn read<'f>(field: impl Fn(&str) -> Option<&'f [u8]>) -> Self {
        if let Some((trace, span, sampled)) = field("traceparent").and_then(w3c) {
            return Self {
                parent: Some((trace, span)),
                sampled: Some(sampled),
                state: field("tracestate").and_then(state).unwrap_or_default(),
            };
        }
        let single = || field("b3").and_then(b3);
        let several = || b3_fields(&field);
        let jaeger = || field("uber-trace-id").and_then(jaeger);
        single()
            .or_else(several)
            .or_else(jaeger)
            .unwrap_or_default()
    }
}

impl Outgoing {
    /// The value of `traceparent`. Made for each request: it takes no memory.
    #[must_use]
    pub fn w3c(&self) -> [u8; 55] {
        let mut text = *b"00-................................-................-00";
        text[3..35].copy_from_slice(&self.trace.digits());
        text[36..52].copy_from_slice(&self.span.digits());
        if self.sampled {
            text[54] = b'1';
        }
        text
    }

    /// The value of `b3`.
    #[must_use]
    pub fn b3(&self) -> String {
        let sampled = u8::from(self.sampled);
        format!("{}-{}-{sampled}", self.trace, self.span)
    }

    /// The value of `uber-trace-id`.
    #[must_use]
    pub fn jaeger(&self) -> String {
        let sampled = u8::from(self.sampled);
        format!("{}:{}:0:{sampled}", self.trace, self.span)
    }
}

/// `00-<32 digits>-<16 digits>-<2 digits>`, in lower case. Later versions may have more behind.
fn w3c(value: &[u8]) -> Option<(TraceId, SpanId, bool)> {
    let (head, more) = value.split_at_checked(55)?;
    let lower = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f' | b'-');
    if !head.iter().all(lower) {
        return None;
    }
    let mut parts = head.split(|byte| *byte == b'-');
    let mut part = |digits| parts.next().filter(|part| part.len() == digits);
    let (version, trace, span, flags) = (part(2)?, part(32)?, part(16)?, part(2)?);
    let fits = match version {
        b"ff" => false,
        b"00" => more.is_empty(),
        _ => more.is_empty() || more.starts_with(b"-"),
    };
    if !fits {
        return None;
    }
    let sampled = hex(flags, 2)? & 1 == 1;
    Some((trace_id(trace)?, span_id(span)?, sampled))
}

fn state(value: &[u8]) -> Option<Box<str>> {
    let printable = |byte: &u8| matches!(byte, b' '..=b'~');
    if value.len() > LONGEST_STATE || !value.iter().all(printable) {
        return None;
    }
    std::str::from_utf8(value).ok().map(Into::into)
}

/// `<trace>-<span>[-<decision>[-<parent>]]`, or a decision alone.
fn b3(value: &[u8]) -> Option<Incoming> {
    let mut parts = value.split(|byte| *byte == b'-');
    let first = parts.next()?;
    let Some(span) = parts.next() else {
        return Some(Incoming {
            sampled: Some(b3_decision(first)?),
            ..Incoming::default()
        });
    };
    let parent = (b3_trace_id(first)?, b3_span_id(span)?);
    let sampled = match parts.next() {
        Some(decision) => Some(b3_decision(decision)?),
        None => None,
    };
    let grandparent = parts.next();
    if parts.next().is_some() || grandparent.is_some_and(|span| b3_span_id(span).is_none()) {
        return None;
    }
    Some(Incoming {
        parent: Some(parent),
        sampled,
        ..Incoming::default()
    })
}

/// B3 in fields of their own.
fn b3_fields<'f>(field: impl Fn(&str) -> Option<&'f [u8]>) -> Option<Incoming> {
    let sampled = match field("x-b3-flags") {
        Some(b"1") => Some(true), // wanted for debugging
        _ => field("x-b3-sampled").and_then(b3_decision),
    };
    let trace = field("x-b3-traceid").and_then(b3_trace_id);
    let span = field("x-b3-spanid").and_then(b3_span_id);
    let parent = trace.zip(span);
    (parent.is_some() || sampled.is_some()).then_some(Incoming {
        parent,
        sampled,
        state: Box::default(),
    })
}

fn b3_decision(value: &[u8]) -> Option<bool> {
    match value {
        b"1" | b"d" | b"true" => Some(true),
        b"0" | b"false" => Some(false),
        _ => None,
    }
}

fn b3_trace_id(value: &[u8]) -> Option<TraceId> {
    matches!(value.len(), 16 | 32)
        .then(|| trace_id(value))
        .flatten()
}

fn b3_span_id(value: &[u8]) -> Option<SpanId> {
    (value.len() == 16).then(|| span_id(value)).flatten()
}

/// `<trace>:<span>:<parent>:<flags>`, each without its leading zeros if somebody likes. Some
/// clients encode the colons as in a URL.
fn jaeger(value: &[u8]) -> Option<Incoming> {
    let text = std::str::from_utf8(value).ok()?;
    let plain;
    let text = if text.contains('%') {
        plain = text.replace("%3A", ":").replace("%3a", ":");
        &*plain
    } else {
        text
    };
    let mut parts = text.split(':').map(str::as_bytes);
    let (trace, span) = (trace_id(parts.next()?)?, span_id(parts.next()?)?);
    hex(parts.next()?, 16)?; // the parent's parent: nobody needs it any more
    let flags = hex(parts.next()?, 2)?;
    if parts.next().is_some() {
        return None;
    }
    Some(Incoming {
        parent: Some((trace, span)),
        sampled: Some(flags & 1 == 1),
        state: Box::default(),
    })
}

fn trace_id(digits: &[u8]) -> Option<TraceId> {
    TraceId::new(hex(digits, 32)?)
}

fn span_id(digits: &[u8]) -> Option<SpanId> {
    SpanId::new(u64::try_from(hex(digits, 16)?).ok()?)
}

/// Reads any bytes as each of the fields, and asserts that what was read can be written and read
/// again.
pub fn fuzz_propagation(bytes: &[u8]) {
    for name in ["traceparent", "b3", "uber-trace-id", "x-b3-traceid"] {
        let field = |asked: &str| match asked {
            _ if asked == name => Some(bytes),
            "x-b3-spanid" if name == "x-b3-traceid" => Some(&b"00f067aa0ba902b7"[..]),
            "tracestate" | "x-b3-sampled" => Some(bytes),
            _ => None,
        };
        let read = Incoming::read(field);
        assert!(read.state.len() <= LONGEST_STATE, "it is bounded");
        let Some((trace, span)) = read.parent else {
            continue;
        };
        let sampled = read.sampled.unwrap_or_default();
        let out = Outgoing {
            trace,
            span,
            sampled,
        };
        for (name, value) in [
            ("traceparent", out.w3c().to_vec()),
            ("b3", out.b3().into_bytes()),
            ("uber-trace-id", out.jaeger().into_bytes()),
        ] {
            assert!(names_trace(name.as_bytes()));
            let field = |asked: &str| (asked == name).then_some(&*value);
            let again = Incoming::read(field);
            assert_eq!(again.parent, read.parent, "{name}");
            assert_eq!(again.sampled, Some(sampled), "{name}");
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
    const SPAN: &str = "00f067aa0ba902b7";

    fn read(fields: &[(&str, &str)]) -> (String, String, Option<bool>) {
        let field = |asked: &str| {
            let found = fields.iter().find(|(name, _)| *name == asked);
            found.map(|(_, value)| value.as_bytes())
        };
        let read = Incoming::read(field);
        let (trace, span) = read.parent.unzip();
        let text = |id: Option<String>| id.unwrap_or_else(|| "none".to_owned());
        (
            text(trace.map(|id| id.to_string())),
            text(span.map(|id| id.to_string())),
            read.sampled,
        )
    }

    fn is_read(fields: &[(&str, &str)], sampled: Option<bool>) {
        let expected = (TRACE.to_owned(), SPAN.to_owned(), sampled);
        assert_eq!(read(fields), expected, "{fields:?}");
    }

    #[test]
    fn each_way_to_say_it_is_read() {
        let w3c = |rest: &str| format!("{rest}-{TRACE}-{SPAN}");
        is_read(&[("traceparent", &format!("{}-01", w3c("00")))], Some(true));
        is_read(
            &[("traceparent", &format!("{}-fe", w3c("00")))],
            Some(false),
        );
        let later = format!("{}-01-more", w3c("cc"));
        is_read(&[("traceparent", &later)], Some(true));
        is_read(&[("b3", &format!("{TRACE}-{SPAN}"))], None);
        is_read(&[("b3", &format!("{TRACE}-{SPAN}-d"))], Some(true));
        let with_parent = format!("{TRACE}-{SPAN}-0-{SPAN}");
        is_read(&[("b3", &with_parent)], Some(false));
        let several = [("x-b3-traceid", TRACE), ("x-b3-spanid", SPAN)];
        is_read(&several, None);
        is_read(
            &[several[0], several[1], ("x-b3-sampled", "0")],
            Some(false),
        );
        is_read(&[several[0], several[1], ("x-b3-flags", "1")], Some(true));
        let jaeger = format!("{TRACE}:f067aa0ba902b7:0:1");
        is_read(&[("uber-trace-id", &jaeger)], Some(true));
        let encoded = jaeger.replace(':', "%3A").replace("0%3A1", "abc%3a3");
        is_read(&[("uber-trace-id", &encoded)], Some(true));
    }

    #[test]
    fn w3c_counts_before_the_others_and_a_broken_one_does_not() {
        let jaeger = format!("{TRACE}:{SPAN}:0:1");
        let other = "0af7651916cd43dd8448eb211c80319c";
        let w3c = format!("00-{other}-{SPAN}-00");
        let both = [("uber-trace-id", &*jaeger), ("traceparent", &*w3c)];
        assert_eq!(
            read(&both),
            (other.to_owned(), SPAN.to_owned(), Some(false))
        );
        is_read(
            &[("uber-trace-id", &*jaeger), ("traceparent", "00-x")],
            Some(true),
        );
    }

    #[test]
    fn a_short_number_of_b3_is_a_trace() {
        let (trace, ..) = read(&[("b3", &format!("a3ce929d0e0e4736-{SPAN}-1"))]);
        assert_eq!(trace, "0000000000000000a3ce929d0e0e4736");
        assert_eq!(read(&[("b3", "0")]).2, Some(false));
    }

    #[test]
    fn what_is_not_as_it_should_be_counts_as_not_sent() {
        let zeros = "0".repeat(32);
        for (name, value) in [
            ("traceparent", format!("00-{TRACE}-{SPAN}-01-more")),
            ("traceparent", format!("00-{TRACE}-{SPAN}-1")),
            ("traceparent", format!("00-{TRACE}-{SPAN}-0g")),
            ("traceparent", format!("ff-{TRACE}-{SPAN}-01")),
            (
                "traceparent",
                format!("00-{}-{SPAN}-01", TRACE.to_uppercase()),
            ),
            ("traceparent", format!("00-{zeros}-{SPAN}-01")),
            ("traceparent", format!("00-{TRACE}-{}-01", "0".repeat(16))),
            ("traceparent", format!("00-{TRACE}{SPAN}---01")),
            ("traceparent", format!("01-{TRACE}-{SPAN}-01.")),
            ("b3", format!("{TRACE}-{SPAN}-2")),
            ("b3", format!("{TRACE}-{SPAN}-1-{SPAN}-1")),
            ("b3", format!("{TRACE}-{SPAN}-1-x")),
            ("b3", format!("{zeros}-{SPAN}-1")),
            ("b3", TRACE.to_owned()),
            ("uber-trace-id", format!("{TRACE}:{SPAN}:0")),
            ("uber-trace-id", format!("{TRACE}:{SPAN}:0:1:2")),
            ("uber-trace-id", format!("0:{SPAN}:0:1")),
            ("uber-trace-id", format!("1{TRACE}:{SPAN}:0:1")),
            ("uber-trace-id", format!("{TRACE}::0:1")),
            ("x-b3-traceid", TRACE.to_owned()),
        ] {
            let nothing = ("none".to_owned(), "none".to_owned(), None);
            assert_eq!(read(&[(name, &value)]), nothing, "{name}: {value}");
        }
    }

    #[test]
    fn a_state_is_handed_on_if_it_is_one() {
        let parent = format!("00-{TRACE}-{SPAN}-01");
        let state = |value: &[u8]| {
            let field = |name: &str| match name {
                "traceparent" => Some(parent.as_bytes()),
                "tracestate" => Some(value),
                _ => None,
            };
            Incoming::read(field).state
        };
        assert_eq!(&*state(b"rojo=00f067,congo=t61"), "rojo=00f067,congo=t61");
        assert_eq!(&*state(b"a=\x07"), "");
        assert_eq!(&*state(b"a=\xff"), "");
        assert_eq!(&*state(&[b'a'; LONGEST_STATE + 1]), "");
    }

    proptest! {
        #[test]
        fn any_bytes_are_read(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
            fuzz_propagation(&bytes);
        }

        #[test]
        fn what_looks_like_one_is_read(text in "[0-9a-f]{0,33}[-:%][0-9a-fA-F]{0,33}[-:][0-9a-f]{0,17}[-:]?[0-9a-fd]{0,3}[-:]?") {
            fuzz_propagation(text.as_bytes());
        }

        #[test]
        fn a_broken_traceparent_is_not_taken_for_another(at in 0_usize..55, byte in any::<u8>()) {
            let whole = format!("00-{TRACE}-{SPAN}-01");
            let mut broken = whole.into_bytes();
            broken[at] = byte;
            fuzz_propagation(&broken);
            if !byte.is_ascii_hexdigit() && byte != b'-' {
                prop_assert_eq!(w3c(&broken), None);
            }
        }
    }
}
