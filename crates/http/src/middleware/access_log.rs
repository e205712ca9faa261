//! `http.access_log`: a line for each request, made when its response is out.
//!
//! What a line shows of a request is kept, escaped, until then. The line is a record of the channel
//! `access`: it waits in the bounded queue of its output, and a thread of that output writes it.

use std::borrow::Cow;
use std::fmt::Write;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use pronghorn_base::{LONGEST_SHOWN, LeftOut};
use pronghorn_config::RequestMask;
use pronghorn_serve::{
    Destination, Exchange, Handled, Handler, OnSent, Peer, Request, Response, Sent, Unhandled,
};
use pronghorn_wire::Fields;

use super::parts::Parts;
use crate::settings::{LogFormat, LogPiece, Part, Placeholder};
use crate::trace::RequestTrace;

struct AccessLog {
    next: Arc<dyn Handler>,
    lines: Arc<Lines>,
}

/// How lines are written, and for whom.
#[derive(Debug)]
struct Lines {
    pieces: Vec<LogPiece>,
    escape: Escape,
    sample: u32,
    slow: Option<Duration>,
}

/// What keeps a value inside its place, whatever a client has sent.
#[derive(Debug, Clone, Copy)]
enum Escape {
    /// All but printable ASCII, the quote and the backslash as `\xHH`. Nothing at all is a `-`.
    Text,
    /// As in a JSON string.
    Json,
}

/// What a line can show of a request. What is not known is empty.
struct Shown<'a> {
    peer: &'a Peer,
    accepted_us: u64,
    method: &'a [u8],
    path: &'a [u8],
    query: Option<&'a [u8]>,
    protocol: &'a [u8],
    host: &'a str,
    id: &'a str,
    trace: Option<&'a RequestTrace>,
    fields: Option<&'a Fields>,
}

impl<'a> Shown<'a> {
    fn of(request: &'a Request) -> Self {
        let head = &request.head;
        Self {
            peer: &request.peer,
            accepted_us: request.accepted_us,
            method: head.method().as_bytes(),
            path: head.path(),
            query: head.query(),
            protocol: request.protocol().name().as_bytes(),
            host: head.authority(),
            id: request.id.as_deref().unwrap_or_default(),
            trace: RequestTrace::of(request),
            fields: Some(head.fields()),
        }
    }

    fn of_unhandled(request: &Unhandled<'a>) -> Self {
        let target = request.target;
        let (path, query) = match memchr::memchr(b'?', target) {
            Some(at) => (&target[..at], Some(&target[at + 1..])),
            None => (target, None),
        };
        Self {
            peer: request.peer,
            accepted_us: request.accepted_us,
            method: request.method,
            path,
            query,
            protocol: request.protocol,
            host: "",
            id: "",
            trace: None,
            fields: None,
        }
    }
}

/// What is kept of a request for its line.
#[derive(Debug)]
struct Entry {
    lines: Arc<Lines>,
    /// Values one after the other: those of the request, then those of the response.
    values: String,
    /// Where each ends.
    ends: Vec<usize>,
    of_request: usize,
    /// What knows where the request went, if the line shows it.
    knows_destination: Option<Arc<dyn OnSent>>,
    in_sample: bool,
}

pub(super) fn around(next: Arc<dyn Handler>, parts: Parts<'_>) -> Arc<dyn Handler> {
    let Some(settings) = &parts.settings.access_log else {
        return next;
    };
    let (pieces, escape) = match &settings.format {
        LogFormat::Combined => (combined(), Escape::Text),
        LogFormat::Json => {
            let (has_id, has_trace) = (
                parts.settings.request_id.is_some(),
                parts.recorder.is_some(),
            );
            (json(has_id, has_trace), Escape::Json)
        }
        LogFormat::Own(pieces) => (pieces.clone(), Escape::Text),
    };
    let lines = Lines {
        pieces,
        escape,
        sample: settings.sample,
        slow: settings.slow,
    };
    Arc::new(AccessLog {
        next,
        lines: Arc::new(lines),
    })
}

impl Handler for AccessLog {
    fn handle<'a>(&'a self, request: Request, exchange: &'a mut dyn Exchange) -> Handled<'a> {
        if !tracing::enabled!(target: "access", tracing::Level::INFO) {
            return self.next.handle(request, exchange);
        }
        let mut entry = Entry::new(&self.lines, &Shown::of(&request));
        Box::pin(async move {
            let mut response = self.next.handle(request, exchange).await;
            entry.note(&response.fields);
            if entry.lines.show_destination() {
                entry.knows_destination.clone_from(&response.on_sent);
            }
            response.when_sent(Arc::new(entry));
            response
        })
    }

    fn unhandled(&self, request: &Unhandled<'_>) -> Option<Arc<dyn OnSent>> {
        if !tracing::enabled!(target: "access", tracing::Level::INFO) {
            return None;
        }
        let mut entry = Entry::new(&self.lines, &Shown::of_unhandled(request));
        entry.note(&Fields::new());
        Some(Arc::new(entry))
    }

    fn without_tls(&self, request: &Request) -> Option<Response> {
        self.next.without_tls(request)
    }
}

impl Lines {
    fn placeholders(&self) -> impl Iterator<Item = &Placeholder> {
        self.pieces.iter().filter_map(|piece| match piece {
            LogPiece::Text(_) => None,
            LogPiece::Value(placeholder) => Some(placeholder),
        })
    }

    fn show_destination(&self) -> bool {
        use Placeholder::{Pid, Pool, Route};
        self.placeholders()
            .any(|placeholder| matches!(placeholder, Pool | Route | Pid))
    }

    fn is_in_sample(&self) -> bool {
        match self.sample {
            0 => false,
            1 => true,
            sample => fastrand::u32(..sample) == 0,
        }
    }
}

impl Entry {
    fn new(lines: &Arc<Lines>, shown: &Shown<'_>) -> Self {
        let mut entry = Self {
            lines: lines.clone(),
            values: String::new(),
            ends: Vec::new(),
            of_request: 0,
            knows_destination: None,
            in_sample: lines.is_in_sample(),
        };
        for placeholder in lines.placeholders() {
            match placeholder {
                Placeholder::Ip => entry.keep(shown.peer.ip.as_bytes()),
                Placeholder::Time => entry.keep(clf_time(shown.accepted_us).as_bytes()),
                Placeholder::TimeIso => entry.keep(iso_time(shown.accepted_us).as_bytes()),
                Placeholder::Method => entry.keep(shown.method),
                Placeholder::Target => {
                    let query = shown.query.map(|query| [b"?", query].concat());
                    entry.keep(&masked(&[shown.path, &query.unwrap_or_default()].concat()));
                }
                Placeholder::Path => entry.keep(&masked(shown.path)),
                Placeholder::Query => {
                    let query = shown.query.map(|query| [b"?", query].concat());
                    let query = query.unwrap_or_default();
                    entry.keep(masked(&query).get(1..).unwrap_or_default());
                }
                Placeholder::Host => entry.keep(shown.host.as_bytes()),
                Placeholder::Scheme => entry.keep(shown.peer.scheme().as_bytes()),
                Placeholder::Protocol => entry.keep(shown.protocol),
                Placeholder::RequestId => entry.keep(shown.id.as_bytes()),
                Placeholder::TraceId => {
                    let id = shown.trace.map(RequestTrace::id).unwrap_or_default();
                    entry.keep(id.as_bytes());
                }
                Placeholder::Header(name) => {
                    let fields = shown.fields;
                    let value = fields.and_then(|fields| fields.get(name));
                    entry.keep_field(name, value.unwrap_or_default());
                }
                Placeholder::Status
                | Placeholder::Bytes
                | Placeholder::Elapsed
                | Placeholder::ElapsedMs
                | Placeholder::ElapsedUs
                | Placeholder::Part(_)
                | Placeholder::Pool
                | Placeholder::Route
                | Placeholder::Pid
                | Placeholder::ResponseHeader(_) => {}
            }
        }
        entry.of_request = entry.ends.len();
        entry
    }

    fn note(&mut self, fields: &Fields) {
        let lines = self.lines.clone();
        for placeholder in lines.placeholders() {
            if let Placeholder::ResponseHeader(name) = placeholder {
                self.keep_field(name, fields.get(name).unwrap_or_default());
            }
        }
    }

    fn keep_field(&mut self, name: &str, value: &[u8]) {
        match name {
            "referer" | "location" => self.keep(&masked(value)),
            _ => self.keep(value),
        }
    }

    fn keep(&mut self, value: &[u8]) {
        self.lines.escape.push(&mut self.values, value);
        self.ends.push(self.values.len());
    }

    fn value(&self, at: usize) -> &str {
        let end_of = |at: usize| self.ends.get(at).copied();
        let start = at.checked_sub(1).and_then(end_of).unwrap_or_default();
        let end = end_of(at).unwrap_or(start);
        self.values.get(start..end).unwrap_or_default()
    }
}

impl OnSent for Entry {
    fn on_sent(&self, sent: &mut Sent) {
        let elapsed = sent.elapsed;
        let is_slow = self.lines.slow.is_some_and(|slow| elapsed > slow);
        if self.in_sample || is_slow || sent.status >= 500 {
            let line = self.line(sent);
            tracing::info!(target: "access", "{line}");
        }
    }
}

impl Entry {
    fn line(&self, sent: &Sent) -> String {
        let mut line = String::with_capacity(self.values.len() + 128);
        let destination = self.knows_destination.as_ref();
        let destination = destination.and_then(|knows| knows.destination());
        let (mut of_request, mut of_response) = (0.., self.of_request..);
        for piece in &self.lines.pieces {
            match piece {
                LogPiece::Text(text) => line.push_str(text),
                LogPiece::Value(Placeholder::ResponseHeader(_)) => {
                    line.push_str(of_response.next().map_or("", |at| self.value(at)));
                }
                LogPiece::Value(placeholder) => {
                    let escape = self.lines.escape;
                    if !push_sent(&mut line, placeholder, escape, sent, destination.as_ref()) {
                        line.push_str(of_request.next().map_or("", |at| self.value(at)));
                    }
                }
            }
        }
        line
    }
}

/// A target or an address without the values of secret parameters, as in the record of a request.
/// Bytes that are no UTF-8 stay what they are.
fn masked(target: &[u8]) -> Cow<'_, [u8]> {
    if !RequestMask::may_hide(target) {
        return target.into();
    }
    let mask = RequestMask::default();
    if let Ok(text) = std::str::from_utf8(target) {
        return mask.target(text).into_bytes().into();
    }
    let text: String = target.iter().map(|&byte| char::from(byte)).collect();
    let masked = mask.target(&text);
    let bytes = masked.chars().map(|c| u8::try_from(c).unwrap_or(b'?'));
    bytes.collect::<Vec<u8>>().into()
}

/// Adds what is known since the response is out; `false` if this is nothing of that kind.
fn push_sent(
    line: &mut String,
    placeholder: &Placeholder,
    escape: Escape,
    sent: &Sent,
    destination: Option<&Destination<'_>>,
) -> bool {
    let elapsed = sent.elapsed;
    let number = |line: &mut String, number: Option<u128>| match number {
        Some(number) => write!(line, "{number}"),
        None => line.write_str(escape.unknown()),
    };
    // A String takes all.
    _ = match placeholder {
        Placeholder::Status => write!(line, "{}", sent.status),
        Placeholder::Bytes => write!(line, "{}", sent.bytes),
        Placeholder::Elapsed => {
            write!(line, "{}.{:03}", elapsed.as_secs(), elapsed.subsec_millis())
        }
        Placeholder::ElapsedMs => write!(line, "{}", elapsed.as_millis()),
        Placeholder::ElapsedUs => write!(line, "{}", elapsed.as_micros()),
        Placeholder::Part(part) => {
            let time = sent.split.and_then(|split| part.of(&split));
            number(line, time.map(|time| time.as_micros()))
        }
        Placeholder::Pid => {
            let pid = destination.and_then(|destination| destination.pid);
            number(line, pid.map(u128::from))
        }
        Placeholder::Pool => {
            let pool = destination.map(|destination| destination.pool);
            escape.push(line, pool.unwrap_or_default().as_bytes());
            Ok(())
        }
        Placeholder::Route => {
            let route = destination.and_then(|destination| destination.route.as_deref());
            escape.push(line, route.unwrap_or_default().as_bytes());
            Ok(())
        }
        _ => return false,
    };
    true
}

impl Escape {
    /// Stands for a number that is not known.
    const fn unknown(self) -> &'static str {
        match self {
            Self::Text => "-",
            Self::Json => "null",
        }
    }

    /// Adds a value, as far as records show one.
    fn push(self, out: &mut String, value: &[u8]) {
        /// `\u202e`
        const LONGEST_ESCAPE: usize = 6;
        let end = out.len() + LONGEST_SHOWN - LONGEST_ESCAPE;
        match self {
            Self::Text if value.is_empty() => out.push('-'),
            Self::Text => {
                for (at, &byte) in value.iter().enumerate() {
                    match byte {
                        _ if out.len() > end => return left_out(out, value.len() - at),
                        b'"' | b'\\' => _ = write!(out, "\\x{byte:02x}"),
                        b' '..=b'~' => out.push(char::from(byte)),
                        _ => _ = write!(out, "\\x{byte:02x}"),
                    }
                }
            }
            Self::Json => {
                let value = String::from_utf8_lossy(value);
                for (at, letter) in value.char_indices() {
                    match letter {
                        _ if out.len() > end => return left_out(out, value.len() - at),
                        '"' | '\\' => out.extend(['\\', letter]),
                        // Line ends for some reader, and what turns the direction of writing.
                        '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {
                            _ = write!(out, "\\u{:04x}", u32::from(letter));
                        }
                        _ if letter.is_control() => _ = write!(out, "\\u{:04x}", u32::from(letter)),
                        _ => out.push(letter),
                    }
                }
            }
        }
    }
}

fn left_out(out: &mut String, bytes: usize) {
    _ = write!(out, "{}", LeftOut(bytes)); // a String takes all
}

fn text(text: &str) -> LogPiece {
    LogPiece::Text(text.to_owned())
}

fn combined() -> Vec<LogPiece> {
    vec![
        LogPiece::Value(Placeholder::Ip),
        text(" - - ["),
        LogPiece::Value(Placeholder::Time),
        text("] \""),
        LogPiece::Value(Placeholder::Method),
        text(" "),
        LogPiece::Value(Placeholder::Target),
        text(" "),
        LogPiece::Value(Placeholder::Protocol),
        text("\" "),
        LogPiece::Value(Placeholder::Status),
        text(" "),
        LogPiece::Value(Placeholder::Bytes),
        text(" \""),
        LogPiece::Value(Placeholder::Header("referer".to_owned())),
        text("\" \""),
        LogPiece::Value(Placeholder::Header("user-agent".to_owned())),
        text("\""),
    ]
}

fn json(has_id: bool, has_trace: bool) -> Vec<LogPiece> {
    let mut pieces = Vec::new();
    let mut add = |before: &str, placeholder| {
        pieces.extend([text(before), LogPiece::Value(placeholder)]);
    };
    add("{\"time\":\"", Placeholder::TimeIso);
    add("\",\"ip\":\"", Placeholder::Ip);
    add("\",\"method\":\"", Placeholder::Method);
    add("\",\"scheme\":\"", Placeholder::Scheme);
    add("\",\"host\":\"", Placeholder::Host);
    add("\",\"target\":\"", Placeholder::Target);
    add("\",\"protocol\":\"", Placeholder::Protocol);
    add(
        "\",\"referer\":\"",
        Placeholder::Header("referer".to_owned()),
    );
    add(
        "\",\"user_agent\":\"",
        Placeholder::Header("user-agent".to_owned()),
    );
    if has_id {
        add("\",\"request_id\":\"", Placeholder::RequestId);
    }
    if has_trace {
        add("\",\"trace_id\":\"", Placeholder::TraceId);
    }
    add("\",\"status\":", Placeholder::Status);
    add(",\"bytes\":", Placeholder::Bytes);
    add(",\"elapsed_us\":", Placeholder::ElapsedUs);
    for (before, part) in [
        (",\"read_us\":", Part::Read),
        (",\"queue_us\":", Part::Queue),
        (",\"php_us\":", Part::Php),
        (",\"php_cpu_us\":", Part::PhpCpu),
        (",\"php_blocked_us\":", Part::PhpBlocked),
        (",\"write_us\":", Part::Write),
    ] {
        add(before, Placeholder::Part(part));
    }
    add(",\"pid\":", Placeholder::Pid);
    add(",\"pool\":\"", Placeholder::Pool);
    add("\",\"route\":\"", Placeholder::Route);
    pieces.push(text("\"}"));
    pieces
}

/// `Sun, 06 Nov 1994 08:49:37 GMT`, of which the others are made.
fn http_date(micros: u64) -> String {
    httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_micros(micros))
}

/// `06/Nov/1994:08:49:37 +0000`
fn clf_time(micros: u64) -> String {
    let date = http_date(micros);
    let part = |range| date.get(range).unwrap_or_default();
    let (day, month, year, time) = (part(5..7), part(8..11), part(12..16), part(17..25));
    format!("{day}/{month}/{year}:{time} +0000")
}

/// `1994-11-06T08:49:37.123Z`
fn iso_time(micros: u64) -> String {
    const MONTHS: &str = "JanFebMarAprMayJunJulAugSepOctNovDec";
    let date = http_date(micros);
    let part = |range| date.get(range).unwrap_or_default();
    let (day, month, year, time) = (part(5..7), part(8..11), part(12..16), part(17..25));
    let month = MONTHS.find(month).unwrap_or_default() / 3 + 1;
    let millis = micros / 1000 % 1000;
    format!("{year}-{month:02}-{day}T{time}.{millis:03}Z")
}

#[cfg(test)]
mod tests {
    use pronghorn_serve::Split;
    use pronghorn_wire::native::Spent;
    use proptest::prelude::*;

    use super::*;
    use crate::middleware::testing::request;

    fn lines(pieces: Vec<LogPiece>, escape: Escape) -> Arc<Lines> {
        Arc::new(Lines {
            pieces,
            escape,
            sample: 1,
            slow: None,
        })
    }

    /// A call that a pool has answered.
    #[derive(Debug)]
    struct Answered;

    impl OnSent for Answered {
        fn on_sent(&self, _: &mut Sent) {}

        fn destination(&self) -> Option<Destination<'_>> {
            Some(Destination {
                pool: "api",
                route: Some("/a\"/{id}".into()),
                pid: Some(12),
            })
        }
    }

    fn line(lines: &Arc<Lines>, head: &str, is_phps: bool) -> String {
        let mut entry = Entry::new(lines, &Shown::of(&request(head)));
        entry.knows_destination = is_phps.then(|| Arc::new(Answered) as _);
        entry.note(&[("Content-Type", "text/html")].into_iter().collect());
        let millis = Duration::from_millis;
        entry.line(&Sent {
            status: 200,
            bytes: 1234,
            is_too_long: false,
            elapsed: Duration::from_micros(1_234_567),
            split: is_phps.then(|| Split {
                read: millis(1),
                queue: millis(200),
                worker: Some(millis(1000)),
                write: Duration::from_micros(33_567),
                spent: Some(Spent {
                    cpu: millis(2),
                    blocked: millis(997),
                }),
                answered_by: None,
            }),
        })
    }

    const HEAD: &str =
        "GET /a?b=\"c\" HTTP/1.1\r\nHost: example.org\r\nUser-Agent: x\\\"\u{e9}\r\n\r\n";

    #[test]
    fn combined_is_what_all_programs_read() {
        assert_eq!(
            line(&lines(combined(), Escape::Text), HEAD, true),
            "192.0.2.1 - - [06/Nov/1994:08:49:37 +0000] \"GET /a?b=\\x22c\\x22 HTTP/1.1\" 200 1234 \"-\" \
             \"x\\x5c\\x22\\xc3\\xa9\""
        );
    }

    #[test]
    fn json_is_an_object_on_a_line() {
        assert_eq!(
            line(&lines(json(true, true), Escape::Json), HEAD, true),
            "{\"time\":\"1994-11-06T08:49:37.123Z\",\"ip\":\"192.0.2.1\",\"method\":\"GET\",\"scheme\":\"http\",\
             \"host\":\"example.org\",\"target\":\"/a?b=\\\"c\\\"\",\"protocol\":\"HTTP/1.1\",\"referer\":\"\",\
             \"user_agent\":\"x\\\\\\\"\u{e9}\",\"request_id\":\"\",\"trace_id\":\"\",\"status\":200,\"bytes\":1234,\
             \"elapsed_us\":1234567,\"read_us\":1000,\"queue_us\":200000,\"php_us\":1000000,\
             \"php_cpu_us\":2000,\"php_blocked_us\":997000,\"write_us\":33567,\"pid\":12,\"pool\":\"api\",\
             \"route\":\"/a\\\"/{id}\"}"
        );
        let line = line(&lines(json(false, false), Escape::Json), HEAD, false);
        let unknown = ",\"write_us\":null,\"pid\":null,\"pool\":\"\",\"route\":\"\"}";
        assert!(line.ends_with(unknown), "{line}");
        assert!(!line.contains("_id"), "nothing has an ID: {line}");
    }

    #[test]
    fn secret_parameters_have_no_value_in_any_part() {
        use Placeholder::{Header, Path, Query, ResponseHeader, Target};
        let secret = "GET /a%3Ftoken=abc/b?token=abc&c=\u{e9}&next=%2F%3Fpassword%3Dabc HTTP/1.1\r\n\
                      Host: example.org\r\nReferer: http://x/?code=abcabcabc\r\n\r\n";
        let pieces = [
            Target,
            Path,
            Query,
            Header("referer".to_owned()),
            ResponseHeader("location".to_owned()),
        ];
        let pieces = pieces.into_iter().map(LogPiece::Value);
        let pieces: Vec<_> = pieces.flat_map(|piece| [piece, text(" ")]).collect();
        let lines = lines(pieces, Escape::Text);
        let request = request(secret);
        let mut entry = Entry::new(&lines, &Shown::of(&request));
        entry.note(&[("location", "/c?token=abc")].into_iter().collect());
        let line = entry.line(&Sent {
            status: 302,
            bytes: 0,
            is_too_long: false,
            elapsed: Duration::ZERO,
            split: None,
        });
        assert_eq!(
            line,
            "/a%3Ftoken=***/b?token=***&c=\\xc3\\xa9&next=*** /a%3Ftoken=***/b token=***&c=\\xc3\\xa9&next=*** \
             http://x/?code=*** /c?token=*** "
        );
        let latin = b"/\xe9?token=abc&b=\xe9";
        assert_eq!(*masked(latin), *b"/\xe9?token=***&b=\xe9");
    }

    #[test]
    fn where_a_request_went_is_told_if_it_reached_a_pool() {
        use Placeholder::{Pid, Pool, Route, TraceId};
        let pieces = [Pool, Route, Pid, TraceId].map(LogPiece::Value);
        let pieces: Vec<_> = pieces
            .into_iter()
            .flat_map(|piece| [piece, text(" ")])
            .collect();
        let lines = lines(pieces, Escape::Text);
        assert_eq!(line(&lines, HEAD, true), "api /a\\x22/{id} 12 - ");
        assert_eq!(line(&lines, HEAD, false), "- - - - ");
    }

    #[test]
    fn an_own_pattern_shows_what_it_names() {
        let pieces = vec![
            LogPiece::Value(Placeholder::ResponseHeader("content-type".to_owned())),
            text(" "),
            LogPiece::Value(Placeholder::Host),
            text(" "),
            LogPiece::Value(Placeholder::Elapsed),
            text(" "),
            LogPiece::Value(Placeholder::Part(Part::Queue)),
        ];
        assert_eq!(
            line(&lines(pieces, Escape::Text), HEAD, false),
            "text/html example.org 1.234 -"
        );
    }

    #[test]
    fn a_value_is_bounded_with_its_escapes_and_says_so() {
        for (unit, shown) in [("a", 1), ("\"", 4), ("é", 8), ("\u{202e}", 12)] {
            let value = unit.repeat(60 << 10);
            for escape in [Escape::Text, Escape::Json] {
                let mut out = String::from("before");
                escape.push(&mut out, value.as_bytes());
                assert!(out.len() < 2 << 10, "{}", out.len());
                let left_out = out
                    .split_once("...[")
                    .and_then(|(_, end)| end.split_once('-'));
                let left_out = left_out.and_then(|(bytes, _)| bytes.parse::<usize>().ok());
                let least = value.len() - (2 << 10);
                assert!(
                    left_out >= Some(least) && left_out < Some(value.len()),
                    "{out}"
                );
                assert!(!out.contains([' ', '\t']), "{out}");
            }
            let mut out = String::new();
            Escape::Text.push(&mut out, unit.as_bytes());
            assert_eq!(out.len(), shown);
        }
    }

    proptest! {
        /// No byte from outside ends a line, a quoted value or a string, whatever it is.
        #[test]
        fn a_value_stays_in_its_place(value: Vec<u8>) {
            let mut out = String::new();
            Escape::Text.push(&mut out, &value);
            prop_assert!(out.bytes().all(|byte| (b' '..=b'~').contains(&byte) && byte != b'"'), "{out:?}");
            let mut out = String::new();
            Escape::Json.push(&mut out, &value);
            let mut escaped = false;
            for letter in out.chars() {
                prop_assert!(!letter.is_control() && !('\u{2028}'..='\u{202e}').contains(&letter), "{out:?}");
                prop_assert!(escaped || letter != '"', "{out:?}");
                escaped = letter == '\\' && !escaped;
            }
            prop_assert!(!escaped, "{out:?}");
        }
    }
}
