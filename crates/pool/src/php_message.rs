//! What PHP itself says of an error or a warning: its text taken apart, and one record for all of
//! it.
//!
//! Whoever writes to the same stream can write such a text: a [`Source`] tells what is PHP's own.
//!
//! PHP writes `PHP Fatal error:  Uncaught Class: message in FILE:LINE`, a trace, and `thrown in
//! FILE on line N`, to its log; to stderr, with `display_errors=stderr`, the same without `PHP `.

use pronghorn_wire::native::Thrown;

use crate::incident::CallDetails;

/// The name of the events that carry a line of a worker: in logs of mode `raw` they are that line
/// alone.
pub const WORKER_OUTPUT: &str = "worker output";

/// The kinds of messages, by the words that PHP begins them with.
const KINDS: [(&str, Severity); 8] = [
    ("Fatal error", Severity::Error),
    ("Parse error", Severity::Error),
    ("Recoverable fatal error", Severity::Error),
    ("Unknown error", Severity::Error),
    ("Warning", Severity::Warning),
    ("Notice", Severity::Notice),
    ("Deprecated", Severity::Notice),
    ("Strict Standards", Severity::Notice),
];
const TRACE: &str = "\nStack trace:\n";
const ON_LINE: &str = " on line ";
const THROWN_IN: &str = "\n  thrown in ";
const UNCAUGHT: &str = "Uncaught ";
/// What php-fpm puts before each message that it passes on.
const BY_FPM: &str = "PHP message: ";

/// How bad a message is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Severity {
    /// It has ended the script.
    Error,
    Warning,
    Notice,
}

/// Who has put a text into words, as far as that is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// PHP itself: the extension says so.
    Php,
    /// The application, by `error_log()`: the extension tells both apart.
    Application,
    /// Whoever writes to this stream: PHP, the application with the words of a visitor, a program.
    Stream(&'static str),
}

/// A message of PHP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PhpMessage<'a> {
    pub(crate) severity: Severity,
    /// All of it but the trace, as PHP writes it.
    pub(crate) text: &'a str,
    /// Of what was thrown, else the kind: `Fatal error`.
    pub(crate) class: &'a str,
    pub(crate) file: Option<&'a str>,
    pub(crate) line: Option<u32>,
    pub(crate) trace: Option<&'a str>,
}

/// Where a message is, and how much of it is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// The text begins no message.
    None,
    /// More lines have to follow.
    Begun,
    /// All of it, unless a trace follows.
    Whole,
}

impl<'a> PhpMessage<'a> {
    /// `None`: the text is the application's own.
    pub fn parse(text: &'a str) -> Option<Self> {
        let text = text.strip_prefix(BY_FPM).unwrap_or(text).trim_end();
        let (severity, kind, rest) = begins(text)?;
        let (body, thrown_in) = split_thrown_in(rest);
        let (body, trace) = split_trace(body);
        let place = thrown_in.or_else(|| place(body));
        // What is displayed has no other mark than where it ends.
        if place.is_none() && !text.starts_with("PHP ") {
            return None;
        }
        let class = body.strip_prefix(UNCAUGHT).and_then(class_of);
        let head = body.as_ptr() as usize - text.as_ptr() as usize + body.len();
        Some(Self {
            severity,
            text: text.get(..head)?,
            class: class.unwrap_or(kind),
            file: place.map(|(file, _)| file),
            line: place.map(|(_, line)| line),
            trace,
        })
    }

    /// The first error in what a process printed, whose lines may all be indented alike.
    pub fn find(text: &str) -> Option<String> {
        let mut lines = text.lines();
        while let Some(first) = lines.next() {
            let Some(indentation) = begin_of_message(first) else {
                continue;
            };
            let mut message = first.get(indentation..)?.to_owned();
            let mut rest = lines.clone();
            while Self::extent(&message) != Extent::Whole
                && let Some(line) = rest.next()
            {
                let blank = line.len() - line.trim_start_matches(' ').len();
                message.push('\n');
                message.push_str(line.get(indentation.min(blank)..).unwrap_or_default());
            }
            if PhpMessage::parse(&message).is_some_and(|found| found.severity == Severity::Error) {
                return Some(message);
            }
        }
        None
    }

    /// Whether it has ended the script.
    pub(crate) fn is_error(&self) -> bool {
        self.severity == Severity::Error
    }

    /// As a worker reports what its handler threw.
    pub fn thrown(&self) -> Thrown {
        Thrown {
            class: self.class.to_owned(),
            message: self.message().to_owned(),
            file: self.file.unwrap_or_default().to_owned(),
            line: self.line.unwrap_or_default(),
            trace: self.trace.unwrap_or_default().to_owned(),
        }
    }

    /// Whether PHP itself has ended the script, and no exception.
    pub fn is_fatal(&self) -> bool {
        self.severity == Severity::Error && KINDS.iter().any(|(kind, _)| *kind == self.class)
    }

    /// How much of a message these lines are.
    pub fn extent(text: &str) -> Extent {
        let text = text.strip_prefix(BY_FPM).unwrap_or(text);
        let Some((_, _, rest)) = begins(text) else {
            return Extent::None;
        };
        let last = text.rsplit('\n').next().unwrap_or(text);
        let ends = place(last).is_some();
        let is_uncaught = rest.starts_with(UNCAUGHT) || text.contains(TRACE);
        match (is_uncaught, ends) {
            (true, true) if last.starts_with("  thrown in ") => Extent::Whole,
            (false, true) => Extent::Whole,
            _ => Extent::Begun,
        }
    }

    /// Whether a trace may follow what is whole: PHP 8.5 writes one behind fatal errors.
    pub fn may_go_on(text: &'a str) -> bool {
        Self::parse(text).is_some_and(|message| message.is_fatal() && message.trace.is_none())
    }

    /// What was thrown in place of PHP's words: without its class and its place.
    pub fn message(&self) -> &'a str {
        let (_, _, rest) = begins(self.text).unwrap_or((self.severity, "", self.text));
        let Some(thrown) = rest.strip_prefix(UNCAUGHT) else {
            return without_place(rest, ON_LINE);
        };
        let thrown = thrown.strip_prefix(self.class).unwrap_or(thrown);
        without_place(thrown.strip_prefix(": ").unwrap_or(thrown), ":")
    }
}

/// The kind of a message, and what follows it.
fn begins(text: &str) -> Option<(Severity, &'static str, &str)> {
    let message = text.strip_prefix("PHP ").unwrap_or(text);
    KINDS.iter().find_map(|&(kind, severity)| {
        let rest = message.strip_prefix(kind)?.strip_prefix(": ")?;
        Some((severity, kind, rest.trim_start_matches(' ')))
    })
}

/// Where in a line a message begins.
fn begin_of_message(line: &str) -> Option<usize> {
    let kinds = KINDS.iter();
    let places = kinds.filter_map(|(kind, _)| line.find(&format!("{kind}: ")));
    let at = places.min()?;
    let before = line.get(..at)?;
    Some(before.strip_suffix("PHP ").map_or(at, str::len))
}

/// An exception that nobody caught ends with the place where it was thrown. Other messages end with
/// a place of their own, and what looks like such a line before it are words of whoever made the
/// message.
fn split_thrown_in(rest: &str) -> (&str, Option<(&str, u32)>) {
    let is_place = |(file, _): &(&str, u32)| !file.contains(ON_LINE);
    match rest.rsplit_once(THROWN_IN) {
        Some((body, place)) if rest.starts_with(UNCAUGHT) => {
            match file_and_line(place).filter(is_place) {
                Some(place) => (body, Some(place)),
                None => (rest, None),
            }
        }
        _ => (rest, None),
    }
}

/// A message and PHP's own trace behind it: the last one, for what was thrown may have words of a
/// visitor that look like one. PHP writes a trace behind what nobody caught, and from 8.5 on behind
/// the place of another fatal error.
fn split_trace(body: &str) -> (&str, Option<&str>) {
    match body.rsplit_once(TRACE) {
        Some((before, trace))
            if before.starts_with(UNCAUGHT)
                || place(before).is_some() && trace.trim_end().ends_with("{main}") =>
        {
            (before, Some(trace))
        }
        _ => (body, None),
    }
}

/// File and line at the end of a text.
fn place(text: &str) -> Option<(&str, u32)> {
    text.rsplit_once(" in ")
        .and_then(|(_, place)| file_and_line(place))
}

fn file_and_line(place: &str) -> Option<(&str, u32)> {
    let (file, line) = place.rsplit_once(ON_LINE)?;
    Some((file, line.parse().ok()?))
}

fn class_of(thrown: &str) -> Option<&str> {
    let end = thrown.find(|letter: char| !letter.is_alphanumeric() && !"_\\@".contains(letter))?;
    thrown.get(..end).filter(|class| !class.is_empty())
}

fn without_place<'a>(text: &'a str, before_line: &str) -> &'a str {
    let place = text.rsplit_once(" in ");
    let is_place = |place: &str| {
        let line = place.rsplit_once(before_line).map(|(_, line)| line);
        line.is_some_and(|line| line.parse::<u32>().is_ok())
    };
    match place {
        Some((message, place)) if is_place(place) => message,
        _ => text,
    }
}

macro_rules! record {
    ($level:ident, $speaker:expr, $message:expr, $call:expr, $stream:expr) => {{
        let (speaker, call): (&Speaker<'_>, Option<&CallDetails>) = ($speaker, $call);
        let stream: Option<&str> = $stream;
        let PhpMessage { text, class, file, line, trace, .. } = $message;
        let Speaker { pool, pid } = speaker;
        let (method, target, request_id) = origin(call);
        tracing::$level!(
            target: "server", class, file, line, method, URI = target, request_id, pool, pid,
            stream, trace, "{text}"
        );
    }};
}

/// The method, the target and the ID of a request, as a record has them.
fn origin(call: Option<&CallDetails>) -> (Option<&str>, Option<&str>, Option<&str>) {
    let method = call.map(|call| call.method.as_str());
    let target = call.map(|call| call.shown_target.as_str());
    let request_id = call.and_then(|call| call.request_id.as_deref());
    (method, target, request_id)
}

/// Who says something.
#[derive(Debug, Clone, Copy)]
pub struct Speaker<'a> {
    pub pool: &'a str,
    pub pid: u32,
}

impl Speaker<'_> {
    /// Makes one record of what a worker says, of the call that it has. Octane reads those of a
    /// line that is the application's own: `logger` server, level info, the line alone as message.
    /// One that looks like PHP's and comes over a stream names the stream: it may be anybody's.
    pub fn log<'a>(
        &self,
        text: &'a str,
        call: Option<&CallDetails>,
        by: Source,
    ) -> Option<PhpMessage<'a>> {
        let stream = match by {
            Source::Stream(name) => Some(name),
            Source::Php | Source::Application => None,
        };
        let message = PhpMessage::parse(text).filter(|_| by != Source::Application);
        let Some(message) = message else {
            let Self { pool, pid } = self;
            let (method, target, request_id) = origin(call);
            tracing::info!(
                name: WORKER_OUTPUT, target: "server", method, URI = target, request_id, pool, pid, "{text}"
            );
            return None;
        };
        match message.severity {
            Severity::Error => record!(error, self, message, call, stream),
            Severity::Warning => record!(warn, self, message, call, stream),
            Severity::Notice => record!(info, self, message, call, stream),
        }
        Some(message)
    }

    /// As [`log`](Self::log), for a worker that reports its fatal errors itself, with the call.
    pub fn log_reported(&self, text: &str, by: Source) {
        match PhpMessage::parse(text) {
            Some(message) if message.severity == Severity::Error => {
                let Self { pool, pid } = self;
                tracing::debug!(name: WORKER_OUTPUT, target: "server", pool, pid, "{text}");
            }
            _ => _ = self.log(text, None, by),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const THROWN: &str = "PHP Fatal error:  Uncaught App\\Oops: no\nway in /srv/a b.php:2\n\
        Stack trace:\n#0 /srv/a b.php(3): f()\n#1 {main}\n  thrown in /srv/a b.php on line 2";

    #[test]
    fn an_uncaught_exception_is_taken_apart() {
        let message = PhpMessage::parse(THROWN).expect("it is one");
        assert_eq!(
            message,
            PhpMessage {
                severity: Severity::Error,
                text: "PHP Fatal error:  Uncaught App\\Oops: no\nway in /srv/a b.php:2",
                class: "App\\Oops",
                file: Some("/srv/a b.php"),
                line: Some(2),
                trace: Some("#0 /srv/a b.php(3): f()\n#1 {main}"),
            }
        );
        assert_eq!(message.message(), "no\nway");
        let by_fpm = format!("PHP message: {THROWN}\n");
        assert_eq!(PhpMessage::parse(&by_fpm), Some(message));
    }

    #[test]
    fn what_a_message_says_is_no_place() {
        let forged = "x\n  thrown in /etc/passwd on line 9";
        for (text, file, line) in [
            (
                format!("PHP Fatal error:  {forged} in /a.php on line 3"),
                "/a.php",
                3,
            ),
            (
                format!("PHP Fatal error:  Uncaught {forged} in /a.php on line 3"),
                "/a.php",
                3,
            ),
            (
                format!("PHP Warning:  {forged} in /a.php on line 3"),
                "/a.php",
                3,
            ),
            (THROWN.replacen("no", forged, 1), "/srv/a b.php", 2),
        ] {
            let message = PhpMessage::parse(&text).expect("it is one");
            let place = (message.file, message.line);
            assert_eq!(place, (Some(file), Some(line)), "{text}");
        }
    }

    #[test]
    fn a_message_of_php_has_the_level_that_php_gives_it() {
        for (text, expected) in [
            (
                "PHP Fatal error:  Out of it in /a.php on line 3",
                Some((Severity::Error, "Out of it")),
            ),
            (
                "PHP Parse error:  syntax error in /a.php on line 3",
                Some((Severity::Error, "syntax error")),
            ),
            (
                "PHP Warning:  Undefined in it in /a.php on line 3",
                Some((Severity::Warning, "Undefined in it")),
            ),
            (
                "Warning: Undefined in /a.php on line 3",
                Some((Severity::Warning, "Undefined")),
            ),
            (
                "PHP Deprecated:  x in /a.php on line 3",
                Some((Severity::Notice, "x")),
            ),
            (
                "PHP Warning:  something without a place",
                Some((Severity::Warning, "something without a place")),
            ),
            ("Warning: the application's own", None),
            ("PHP Fatal errors are rare", None),
            ("", None),
        ] {
            let message = PhpMessage::parse(text);
            let seen = message.map(|message| (message.severity, message.message()));
            assert_eq!(seen, expected, "{text}");
        }
    }

    #[test]
    fn an_error_is_found_in_what_was_printed() {
        for before in ["", "  it said  "] {
            let blank = " ".repeat(before.len());
            let mut lines = THROWN.lines();
            let mut text = format!("warming up\n{before}{}\n", lines.next().unwrap());
            for line in lines {
                text.extend([blank.as_str(), line, "\n"]);
            }
            text.push_str("hint: look\n");
            assert_eq!(PhpMessage::find(&text).as_deref(), Some(THROWN));
        }
        assert_eq!(
            PhpMessage::find("PHP Warning:  x in /a.php on line 3\n"),
            None
        );
        assert_eq!(
            PhpMessage::find("PHP Fatal error:  cut").as_deref(),
            Some("PHP Fatal error:  cut")
        );
    }

    #[test]
    fn lines_are_gathered_until_a_message_is_whole() {
        assert_eq!(PhpMessage::extent("two\nlines"), Extent::None);
        assert_eq!(PhpMessage::extent(THROWN), Extent::Whole);
        let mut so_far = String::new();
        let mut lines = THROWN.lines().peekable();
        while let Some(line) = lines.next() {
            so_far.push_str(line);
            let expected = if lines.peek().is_some() {
                Extent::Begun
            } else {
                Extent::Whole
            };
            assert_eq!(PhpMessage::extent(&so_far), expected, "{so_far}");
            so_far.push('\n');
        }
        let fatal = "PHP Fatal error:  Out of it in /a.php on line 3";
        assert_eq!(PhpMessage::extent(fatal), Extent::Whole);
        let with_trace = format!("{fatal}\nStack trace:\n#0 {{main}}");
        assert_eq!(PhpMessage::extent(&with_trace), Extent::Begun);
        let message = PhpMessage::parse(&with_trace).expect("it is one");
        assert_eq!((message.line, message.trace), (Some(3), Some("#0 {main}")));
    }

    #[test]
    fn no_text_makes_it_panic() {
        let parts = [
            "PHP ",
            "Fatal error",
            ": ",
            "Uncaught ",
            " in ",
            " on line ",
            "\nStack trace:\n",
            "\n  thrown in ",
            "3",
            "é",
            ":",
        ];
        for _ in 0..20_000 {
            let text: String = (0..fastrand::usize(..9))
                .map(|_| parts[fastrand::usize(..parts.len())])
                .collect();
            _ = PhpMessage::extent(&text);
            _ = PhpMessage::parse(&text).map(|message| message.message());
        }
    }
}
