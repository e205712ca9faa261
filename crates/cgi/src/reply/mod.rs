//! The head of a script's answer (RFC 3875, section 6).

use bytes::Bytes;
use pronghorn_wire::{self as wire, Fields, ReplyHead};
use thiserror::Error;

/// The longest head. Cookies and security policies of real applications fit several times.
pub const HEAD: usize = 64 << 10;
/// The most fields of one.
pub const FIELDS: usize = 256;
/// As much of a wrong line is shown.
const SHOWN: usize = 80;

/// A script's answer without its body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head {
    /// What is to be done with it.
    pub kind: Kind,
    /// Status and fields; those that are for the server alone are gone.
    pub reply: ReplyHead,
    /// The length of the body, as far as it is announced by a number.
    pub length: Option<u64>,
    /// The first line that was left out because it is no field, escaped.
    pub left_out: Option<String>,
}

/// What becomes of a head that RFC 3875 does not allow.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Lines {
    /// Each line is a field, and there is one at least (RFC 3875, section 6.2): the header of a
    /// program that does otherwise is missing. Apache answers 500.
    #[default]
    Fields,
    /// Lines without a colon are left out, and there need be none. PHP sends what scripts give to
    /// `header()` as it is; nginx and `mode: classic` answer 200.
    Some,
}

/// The kinds of answers (RFC 3875, section 6.2).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// For the client, redirects with a status of their own among them.
    Document,
    /// The client is sent elsewhere, and the script left the status to the server: it is 302.
    ClientRedirect,
    /// The server answers as if this path, with its query, had been asked for by GET.
    LocalRedirect(Vec<u8>),
}

/// What a script sent is no answer. The script's mistake.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum BadReply {
    /// Output begins at once, or there is none.
    #[error(
        "it has no header: the first line is empty, where `Content-Type: …`, `Status: …` or `Location: …` belongs"
    )]
    NoHeader,
    /// A script that writes HTTP itself.
    #[error(
        "it begins with `HTTP/`: scripts that write HTTP themselves (non-parsed headers) are not run, `Status: …` sets a status"
    )]
    NonParsed,
    /// Where a field was expected; its first bytes.
    #[error("line {line} of its header is no `Name: value`: `{text}`")]
    Line {
        /// Counted from 1.
        line: usize,
        /// Its beginning, escaped.
        text: String,
    },
    /// Not three digits, or outside of 200 to 599: a 1xx ends no request.
    #[error("its `Status: {0}` is none: three digits are, from 200 to 599, and a reason if any")]
    Status(String),
    /// Whoever reads the reply would take the one or the other.
    #[error("it announces two lengths, `Content-Length: {0}` and `Content-Length: {1}`")]
    Lengths(u64, u64),
    /// Longer than [`HEAD`], or with more than [`FIELDS`] fields.
    #[error("its header is longer than {HEAD} bytes or has more than {FIELDS} fields")]
    TooLong,
}

/// Finds the end of a head in what has been received so far, looking at each byte once.
#[derive(Debug, Default)]
pub struct HeadReader {
    lines: Lines,
    /// Where the line begins whose end is not there yet.
    line: usize,
    searched: usize,
}

impl HeadReader {
    /// Of such lines; by [default](Lines) all of them have to be fields.
    pub fn of(lines: Lines) -> Self {
        Self {
            lines,
            ..Self::default()
        }
    }

    /// Reads the head that was [found](Self::find): all of `head`.
    ///
    /// # Errors
    ///
    /// When a part of it makes no sense.
    pub fn parse(&self, head: &Bytes) -> Result<Head, BadReply> {
        Head::parse(head, self.lines)
    }

    /// The length of the head with its empty line, once all of it is there. `received` is all since
    /// the first byte.
    ///
    /// # Errors
    ///
    /// As soon as it is sure that no head follows.
    pub fn find(&mut self, received: &[u8]) -> Result<Option<usize>, BadReply> {
        loop {
            let rest = received.get(self.searched..).unwrap_or_default();
            let Some(at) = memchr::memchr(b'\n', rest) else {
                self.searched = received.len();
                if self.searched > HEAD {
                    return Err(BadReply::TooLong);
                }
                return Ok(None);
            };
            let end = self.searched.saturating_add(at);
            let next = end.saturating_add(1);
            if next > HEAD {
                return Err(BadReply::TooLong);
            }
            let line = received.get(self.line..end).unwrap_or_default();
            let is_first = self.line == 0;
            (self.line, self.searched) = (next, next);
            if line.is_empty() || line == b"\r" {
                return if is_first && self.lines == Lines::Fields {
                    Err(BadReply::NoHeader)
                } else {
                    Ok(Some(next))
                };
            }
            if is_first && (self.lines == Lines::Fields || line.starts_with(b"HTTP/")) {
                // A page without a head must not be read to its end first.
                field(line, 1)?;
            }
        }
    }
}

impl Head {
    fn parse(head: &Bytes, lines: Lines) -> Result<Self, BadReply> {
        let mut headers = Fields::over(head.clone(), 8);
        let mut left_out = None;
        let (mut status, mut fields, mut start) = (None, 0_usize, 0_usize);
        let (mut has_type, mut has_date, mut length) = (false, false, None);
        for (number, line) in (1..).zip(head.split(|&byte| byte == b'\n')) {
            let begin = start;
            start = start.saturating_add(line.len()).saturating_add(1);
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            if line.is_empty() {
                continue; // only the last one can be
            }
            fields = fields.saturating_add(1);
            if fields > FIELDS {
                return Err(BadReply::TooLong);
            }
            if lines == Lines::Some && memchr::memchr(b':', line).is_none() {
                left_out.get_or_insert_with(|| shown(line));
                continue;
            }
            let (name, value) = field(line, number)?;
            if name.eq_ignore_ascii_case(b"status") {
                // A second one changes nothing, as with nginx.
                if status.is_none() {
                    status = Some(status_of(value)?);
                }
                continue;
            }
            if name.len() == 14 && name.eq_ignore_ascii_case(b"content-length") {
                let is_news = length.is_none();
                length = one_length(length, value)?;
                if !is_news || length.is_none() {
                    continue;
                }
            }
            // The server decides how a reply is sent (RFC 3875, section 6.3.4). The body is sent as
            // it was printed, as nginx and Apache do.
            if name.len() == 17 && name.eq_ignore_ascii_case(b"transfer-encoding") {
                continue;
            }
            let had = match name.len() {
                12 if name.eq_ignore_ascii_case(b"content-type") => Some(&mut has_type),
                4 if name.eq_ignore_ascii_case(b"date") => Some(&mut has_date),
                _ => None,
            };
            // Of these there is one, and an empty one is none.
            if had.is_some_and(|had| {
                std::mem::replace(had, *had || !value.is_empty()) || value.is_empty()
            }) {
                continue;
            }
            let value_start = begin.saturating_add(place_in(line, value));
            headers.push_received((begin, name.len()), (value_start, value.len()));
        }
        if fields == 0 && lines == Lines::Fields {
            return Err(BadReply::NoHeader);
        }
        let mut head = Self {
            length,
            left_out,
            ..Self::of(status, headers)
        };
        if matches!(head.reply.status, 204 | 304) {
            // There is no content, and a cache would take the type over into what it has (RFC 9111,
            // section 4.3.4).
            head.reply.headers.remove("content-type");
        }
        Ok(head)
    }

    fn of(status: Option<u16>, mut headers: Fields) -> Self {
        let location = headers.get("location").filter(|_| status.is_none());
        let kind = match location {
            None => Kind::Document,
            // `//host/path` names another server, and so do the backslashes that browsers take for
            // slashes.
            Some([b'/', b'/' | b'\\', ..]) => Kind::ClientRedirect,
            Some(path @ [b'/', ..]) if path.iter().all(|byte| is_of_request(*byte)) => {
                Kind::LocalRedirect(path.to_vec())
            }
            // A fragment is the client's business (RFC 3875, section 6.3.2).
            Some(_) => Kind::ClientRedirect,
        };
        let encoded = location
            .filter(|_| kind == Kind::ClientRedirect)
            .and_then(encoded);
        if let Some(location) = encoded {
            headers.set("Location", location);
        }
        let usual = if kind == Kind::ClientRedirect {
            302
        } else {
            200
        };
        Self {
            reply: ReplyHead {
                status: status.unwrap_or(usual),
                headers,
            },
            kind,
            length: None,
            left_out: None,
        }
    }
}

impl Head {
    /// For a server that does not look for another path itself: as with nginx, the client asks
    /// again.
    pub fn for_client(mut self) -> wire::Head {
        if let Kind::LocalRedirect(_) = self.kind {
            self.reply.status = 302;
        }
        wire::Head::Http(self.reply)
    }
}

impl From<Head> for wire::Head {
    fn from(head: Head) -> Self {
        match head.kind {
            Kind::LocalRedirect(path) => Self::LocalRedirect(path),
            Kind::Document | Kind::ClientRedirect => Self::Http(head.reply),
        }
    }
}

/// Whether a byte may stand in the target of a request.
fn is_of_request(byte: u8) -> bool {
    byte.is_ascii_graphic() && byte != b'#'
}

/// A location with codes for bytes that no URI has. None for one that has none of these.
fn encoded(location: &[u8]) -> Option<Vec<u8>> {
    if location.iter().all(u8::is_ascii_graphic) {
        return None;
    }
    let code = |&byte: &u8| match byte {
        b'!'..=b'~' => vec![byte],
        _ => format!("%{byte:02X}").into_bytes(),
    };
    Some(location.iter().flat_map(code).collect())
}

fn shown(line: &[u8]) -> String {
    line.get(..SHOWN).unwrap_or(line).escape_ascii().to_string()
}

/// A part's distance from the start of the line that it lies in.
fn place_in(line: &[u8], part: &[u8]) -> usize {
    part.as_ptr().addr().saturating_sub(line.as_ptr().addr())
}

/// Name and value of a line.
fn field(line: &[u8], number: usize) -> Result<(&[u8], &[u8]), BadReply> {
    let bad = || BadReply::Line {
        line: number,
        text: shown(line),
    };
    if number == 1 && line.starts_with(b"HTTP/") {
        return Err(BadReply::NonParsed);
    }
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let colon = memchr::memchr(b':', line).ok_or_else(bad)?;
    let (name, rest) = line.split_at_checked(colon).ok_or_else(bad)?;
    let value = rest.get(1..).unwrap_or_default().trim_ascii();
    // What else a name or a value may not have, the server checks before it sends them.
    if name.is_empty() || !name.iter().all(u8::is_ascii_graphic) {
        return Err(bad());
    }
    Ok((name, value))
}

/// The length that a reply has by its fields so far and by one more, which counts only if it is a
/// number.
fn one_length(known: Option<u64>, value: &[u8]) -> Result<Option<u64>, BadReply> {
    let is_plain = value.iter().all(u8::is_ascii_digit);
    let text = std::str::from_utf8(value).ok().filter(|_| is_plain);
    match (known, text.and_then(|text| text.parse().ok())) {
        (Some(known), Some(length)) if length != known => Err(BadReply::Lengths(known, length)),
        (known, length) => Ok(known.or(length)),
    }
}

fn status_of(value: &[u8]) -> Result<u16, BadReply> {
    let (code, reason) = value.split_at_checked(3).unwrap_or((value, b""));
    let number = std::str::from_utf8(code)
        .ok()
        .and_then(|code| code.parse::<u16>().ok());
    match number {
        Some(status @ 200..=599)
            if code.iter().all(u8::is_ascii_digit) && matches!(reason, [] | [b' ' | b'\t', ..]) =>
        {
            Ok(status)
        }
        _ => Err(BadReply::Status(shown(value))),
    }
}

/// For fuzzing: what must hold for any bytes, in whichever pieces they come.
#[doc(hidden)]
pub fn fuzz_reply(bytes: &[u8]) {
    fuzz_lines(bytes, Lines::Fields);
    fuzz_lines(bytes, Lines::Some);
}

fn fuzz_lines(bytes: &[u8], lines: Lines) {
    let whole = HeadReader::of(lines).find(bytes);
    let mut reader = HeadReader::of(lines);
    let mut seen = Ok(None);
    for end in 0..=bytes.len() {
        seen = reader.find(bytes.get(..end).unwrap_or_default());
        if !matches!(seen, Ok(None)) {
            break;
        }
    }
    assert_eq!(whole, seen, "the pieces decide");
    let Ok(Some(len)) = whole else { return };
    assert!(len <= bytes.len() && len <= HEAD, "it ends outside");
    let head = Bytes::copy_from_slice(bytes.get(..len).unwrap_or_default());
    let Ok(head) = reader.parse(&head) else {
        return;
    };
    assert!(
        (200..=599).contains(&head.reply.status),
        "a status that ends no request"
    );
    assert!(
        head.reply.headers.get("status").is_none(),
        "what is for the server goes on"
    );
}

#[cfg(test)]
mod tests;
