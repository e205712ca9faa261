//! What the codecs carry: a request to a worker, the head of its reply.

use std::borrow::Cow;
use std::fmt;

use thiserror::Error;

use crate::Fields;
use crate::frame::Flags;

/// How a call and its reply are written inside a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Codec {
    /// RoadRunner's first: understood by every release of the official packages.
    Json,
    /// RoadRunner's since 2024.1: carries any bytes in header values.
    Proto,
    /// Ours.
    Native,
}

impl Codec {
    /// The frame flag that announces this codec.
    pub const fn flag(self) -> Flags {
        match self {
            Self::Json => Flags::JSON,
            Self::Proto => Flags::PROTO,
            Self::Native => Flags::NATIVE,
        }
    }

    /// The codec of a foreign worker's reply: no bit means JSON.
    pub const fn of_reply(flags: Flags) -> Self {
        if flags.has(Flags::PROTO) {
            Self::Proto
        } else {
            Self::Json
        }
    }
}

impl fmt::Display for Codec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Json => "json",
            Self::Proto => "proto",
            Self::Native => "native",
        })
    }
}

/// The version of HTTP that the client speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP/1.0
    Http10,
    /// HTTP/1.1
    Http11,
    /// HTTP/2
    Http2,
    /// HTTP/3
    Http3,
}

impl Protocol {
    /// As RoadRunner's codecs write it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Http10 => "HTTP/1.0",
            Self::Http11 => "HTTP/1.1",
            Self::Http2 => "HTTP/2.0",
            Self::Http3 => "HTTP/3.0",
        }
    }

    /// Ten times the major version and the minor one, as `native` writes it.
    pub const fn number(self) -> u16 {
        match self {
            Self::Http10 => 10,
            Self::Http11 => 11,
            Self::Http2 => 20,
            Self::Http3 => 30,
        }
    }
}

/// The attribute with the name of who has sent a request, where the server has verified it. Scripts
/// find it in the variable of that name.
pub const REMOTE_USER: &str = "remote_user";

/// An HTTP request on its way to a worker, without its body.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// As received.
    pub method: &'a str,
    /// Whether the client's connection is encrypted; decides the URI's scheme.
    pub tls: bool,
    /// Host and port as the client named them; may be empty for HTTP/1.0.
    pub authority: &'a str,
    /// The path as received: not decoded, not normalised.
    pub path: &'a [u8],
    /// What follows the first `?`, undecoded; `None` without a `?`.
    pub query: Option<&'a [u8]>,
    /// The client's version of HTTP.
    pub protocol: Protocol,
    /// The client's address without its port.
    pub remote: &'a str,
    /// Names in lower case. `host` may be among them; no codec passes it on, the URI has it.
    pub headers: &'a Fields,
    /// What middleware adds for the application.
    pub attributes: &'a Fields,
    /// When the server accepted the request, in microseconds since the Unix epoch.
    pub accepted_us: u64,
}

impl<'a> Request<'a> {
    /// Headers as a worker gets them: all but those that only concern the connection or stand in
    /// the URI.
    pub(crate) fn worker_headers(&self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> + Clone {
        self.headers
            .iter()
            .filter(|(name, _)| !matches!(*name, b"host" | b"transfer-encoding" | b"trailer"))
    }

    pub(crate) const fn scheme(&self) -> &'static str {
        if self.tls { "https://" } else { "http://" }
    }

    /// The absolute URI, in ASCII.
    pub(crate) fn uri(&self) -> String {
        let mut uri = String::with_capacity(
            self.scheme()
                .len()
                .saturating_add(self.authority.len())
                .saturating_add(self.path.len())
                .saturating_add(self.query.map_or(0, <[u8]>::len))
                .saturating_add(1),
        );
        uri.push_str(self.scheme());
        uri.push_str(self.authority);
        uri.push_str(&String::from_utf8_lossy(&ascii(self.path)));
        if let Some(query) = self.query {
            uri.push('?');
            uri.push_str(&String::from_utf8_lossy(&ascii(query)));
        }
        uri
    }
}

/// Bytes beyond ASCII are percent-encoded: clients send raw UTF-8 in targets, and a URI is ASCII
/// (RFC 3986).
pub(crate) fn ascii(target: &[u8]) -> Cow<'_, [u8]> {
    if target.is_ascii() {
        return Cow::Borrowed(target);
    }
    const HEX: &[u8; 16] = b"0123456789abcdef";
    let digit = |half: u8| HEX.get(usize::from(half)).copied().unwrap_or_default();
    let mut out = Vec::with_capacity(target.len().saturating_mul(3));
    for &byte in target {
        if byte.is_ascii() {
            out.push(byte);
        } else {
            out.extend([b'%', digit(byte >> 4), digit(byte & 0xf)]);
        }
    }
    Cow::Owned(out)
}

/// The head of a worker's reply, whichever codec it came in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplyHead {
    /// As the worker gave it; [`check`](Self::check) says whether it can be sent.
    pub status: u16,
    /// In the worker's order and spelling.
    pub headers: Fields,
}

impl ReplyHead {
    /// Whether this head can be sent to a client. What fails here is a mistake of the application
    /// and costs no worker: otherwise any client whose input reaches a header could have workers
    /// replaced.
    ///
    /// # Errors
    ///
    /// The first part that cannot be sent.
    pub fn check(&self) -> Result<(), BadHead> {
        if !(100..=599).contains(&self.status) || self.status == 101 {
            return Err(BadHead::Status(self.status));
        }
        let lossy = |text: &[u8]| String::from_utf8_lossy(text).into_owned();
        for (name, value) in self.headers.iter() {
            if name.is_empty() || !name.iter().all(|&byte| is_token_byte(byte)) {
                return Err(BadHead::Name(lossy(name)));
            }
            if memchr::memchr3(b'\r', b'\n', 0, value).is_some() {
                return Err(BadHead::Value {
                    name: lossy(name),
                    value: lossy(value),
                });
            }
        }
        Ok(())
    }

    /// Removes the fields whose values have a control character in them other than the tab: no
    /// field has one (RFC 9110, section 5.5), and not every protocol can send it. They break no
    /// framing, so the reply is sent without them.
    ///
    /// The name of the first one, and the character.
    pub fn leave_out_control_characters(&mut self) -> Option<(String, u8)> {
        // Without a way out in the middle, many bytes are looked at in one step.
        let is_clean = |value: &[u8]| {
            !value
                .iter()
                .fold(false, |has, byte| has | is_control(*byte))
        };
        if self.headers.iter().all(|(_, value)| is_clean(value)) {
            return None;
        }
        let mut first = None;
        self.headers.retain(|name, value| {
            let found = value.iter().find(|byte| is_control(**byte));
            if let (Some(byte), None) = (found, &first) {
                first = Some((String::from_utf8_lossy(name).into_owned(), *byte));
            }
            found.is_none()
        });
        first
    }
}

/// Whether a byte may not stand in a field's value.
const fn is_control(byte: u8) -> bool {
    byte.is_ascii_control() && byte != b'\t'
}

/// Part of a reply's head that cannot be sent. The application's mistake.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum BadHead {
    /// Not a status that a server may send: 100 to 599 without 101.
    #[error("status {}, it must be 100 to 599 and not 101", status_name(*.0))]
    Status(u16),
    /// Not a token (RFC 9110, section 5.6.2).
    #[error("header name `{}`, it must be letters, digits and -_.!#$%&'*+^`|~", .0.escape_debug())]
    Name(String),
    /// Carriage return, line feed or NUL: whoever controls it could write headers of their own.
    #[error("value of header `{name}` has a line break or NUL in it: `{}`", .value.escape_debug())]
    Value {
        /// The header.
        name: String,
        /// Its value, invalid UTF-8 replaced.
        value: String,
    },
}

/// The extension sends [`u16::MAX`] for all that is negative or no less.
fn status_name(status: u16) -> String {
    match status {
        u16::MAX => "below 0 or above 65534".to_owned(),
        _ => status.to_string(),
    }
}

/// Whether a byte may stand in a header's name or a method (RFC 9110, section 5.6.2).
pub(crate) const fn is_token_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
        || matches!(
            byte,
            b'!' | b'#'
                | b'$'
                | b'%'
                | b'&'
                | b'\''
                | b'*'
                | b'+'
                | b'-'
                | b'.'
                | b'^'
                | b'_'
                | b'`'
                | b'|'
                | b'~'
        )
}

/// A context that cannot be read. The worker's mistake, and a reason to replace it.
#[derive(Debug, Error)]
pub enum DecodeError {
    /// It ends in the middle of something, or a length in it leads outside.
    #[error("the {codec} context ends too early or has a wrong length in it")]
    Cut {
        /// The codec it was read in.
        codec: Codec,
    },
    /// Bytes are left over behind what the context says it holds.
    #[error("the {codec} context has {bytes} bytes too many")]
    LeftOver {
        /// The codec it was read in.
        codec: Codec,
        /// How many.
        bytes: usize,
    },
    /// A kind of message that doesn't exist, or not in this direction.
    #[error("unknown kind of message 0x{0:02x}")]
    Kind(u8),
    /// A job, or a TCP call, ends in another way than there is.
    #[error("unknown outcome {0} of a call")]
    Outcome(u16),
    /// The state of a connection is longer than the server keeps.
    #[error("a state of {0} bytes, which is too long")]
    State(usize),
    /// Call numbers start at 1.
    #[error("call number 0")]
    CallNumber,
    /// Not the JSON that is expected.
    #[error("the JSON context cannot be read")]
    Json(#[source] serde_json::Error),
    /// Not the protobuf message that is expected.
    #[error("the protobuf context cannot be read: {0}")]
    Proto(&'static str),
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(status: u16, name: &str, value: &str) -> ReplyHead {
        ReplyHead {
            status,
            headers: [(name, value)].into_iter().collect(),
        }
    }

    #[test]
    fn heads_that_would_let_an_application_break_the_framing_are_refused() {
        assert_eq!(head(200, "X-A", "1").check(), Ok(()));
        assert_eq!(head(200, "X-A", "").check(), Ok(()));
        assert_eq!(head(200, "X-A", "caf\u{e9} \t").check(), Ok(()));
        for status in [0, 99, 101, 600, 65535] {
            assert_eq!(
                head(status, "X-A", "1").check(),
                Err(BadHead::Status(status))
            );
        }
        let shown = |status| BadHead::Status(status).to_string();
        assert_eq!(shown(600), "status 600, it must be 100 to 599 and not 101");
        assert!(shown(u16::MAX).starts_with("status below 0 or above 65534, "));
        for name in ["", "X A", "X:A", "X\r\nA", "Gr\u{fc}n", "X\0"] {
            assert_eq!(
                head(200, name, "1").check(),
                Err(BadHead::Name(name.into()))
            );
        }
        for value in ["a\r\nSet-Cookie: b", "a\n", "\r", "a\0b"] {
            assert!(
                matches!(head(200, "X", value).check(), Err(BadHead::Value { .. })),
                "{value:?}"
            );
        }
    }

    #[test]
    fn fields_with_control_characters_are_left_out() {
        let all: Vec<(String, Vec<u8>)> = (0..=255)
            .map(|byte| (format!("X-{byte}"), vec![b'a', byte, b'b']))
            .chain([("Empty".to_owned(), Vec::new())])
            .collect();
        let mut reply = ReplyHead {
            status: 200,
            headers: all.iter().cloned().collect(),
        };
        let first = reply.leave_out_control_characters();
        assert_eq!(first, Some(("X-0".to_owned(), 0)));
        let left: Vec<(Vec<u8>, Vec<u8>)> = reply
            .headers
            .iter()
            .map(|(name, value)| (name.to_vec(), value.to_vec()))
            .collect();
        let expected: Vec<(Vec<u8>, Vec<u8>)> = all
            .into_iter()
            .filter(|(_, value)| !matches!(value.get(1), Some(0..=8 | 10..=31 | 127)))
            .map(|(name, value)| (name.into_bytes(), value))
            .collect();
        assert_eq!(left, expected);
        assert_eq!(reply.leave_out_control_characters(), None);
    }

    #[test]
    fn raw_utf8_in_a_target_is_percent_encoded() {
        assert_eq!(*ascii("/caf\u{e9}".as_bytes()), *b"/caf%c3%a9");
        assert_eq!(*ascii(b"/a%20b/\xff"), *b"/a%20b/%ff");
    }
}
