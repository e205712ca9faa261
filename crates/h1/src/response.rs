//! The sending half: how a reply is framed, and its bytes.

use pronghorn_wire::Fields;

use crate::head::{RequestHead, Version};

/// How long a reply's body is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodySize {
    /// All of it is there.
    Known(u64),
    /// It comes in pieces; the head may announce a length of its own.
    Unknown,
}

/// How a reply's end is told to the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Framing {
    /// There is no body, whatever the reply has.
    None,
    /// So many bytes are left of those that were announced.
    Length(u64),
    Chunked,
    /// The end of the connection is the end of the body.
    Close,
}

/// Writes one reply to one request.
#[derive(Debug)]
pub struct Response {
    version: Version,
    to_head: bool,
    keep_alive: bool,
    framing: Framing,
    /// Some of the reply's fields go behind its body.
    trailers: bool,
    fault: Option<Fault>,
}

/// How a body differs from what its head announced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// It has more bytes. The client got those that were announced.
    TooLong,
    /// It ended before its end.
    CutShort,
}

/// What a reply's fields say about how it is framed.
#[derive(Debug, Default)]
struct Said {
    /// By the first `Content-Length`.
    announced: Option<u64>,
    asks_to_close: bool,
    trailers: bool,
}

impl Said {
    fn of(fields: &Fields) -> Self {
        let (mut said, mut has_length) = (Self::default(), false);
        for (name, value) in fields.iter() {
            // By length first: most fields are none of these.
            match name.len() {
                7 if name.eq_ignore_ascii_case(b"trailer") => said.trailers = true,
                10 if name.eq_ignore_ascii_case(b"connection") => {
                    let mut options = value.split(|&byte| byte == b',').map(<[u8]>::trim_ascii);
                    said.asks_to_close |= options.any(|one| one.eq_ignore_ascii_case(b"close"));
                }
                14 if !has_length && name.eq_ignore_ascii_case(b"content-length") => {
                    has_length = true;
                    said.announced = announced_length(value);
                }
                _ => {}
            }
        }
        said
    }
}

/// What surrounds a piece of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PieceFrame {
    /// Goes before the piece.
    pub before: ChunkHead,
    /// So many bytes of the piece are sent; the rest would pass the announced length.
    pub take: usize,
    /// Goes behind it.
    pub after: &'static [u8],
}

/// A chunk's size line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChunkHead {
    text: [u8; 18],
    len: u8,
}

impl ChunkHead {
    const NONE: Self = Self {
        text: [0; 18],
        len: 0,
    };

    fn new(size: usize) -> Self {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut text = [0; 18];
        let count = (usize::BITS.saturating_sub(size.leading_zeros()))
            .div_ceil(4)
            .max(1);
        let digits = (0..count).rev().map(|place| {
            let digit = size.checked_shr(place.saturating_mul(4)).unwrap_or(0) & 0xf;
            DIGITS.get(digit).copied().unwrap_or_default()
        });
        let mut len = 0_u8;
        for (place, byte) in text.iter_mut().zip(digits.chain(*b"\r\n")) {
            *place = byte;
            len = len.saturating_add(1);
        }
        Self { text, len }
    }
}

impl AsRef<[u8]> for ChunkHead {
    fn as_ref(&self) -> &[u8] {
        self.text.get(..usize::from(self.len)).unwrap_or_default()
    }
}

/// Fields that belong to the connection and not to the reply (RFC 9110, section 7.6.1), and the two
/// that are written here.
fn is_own(name: &[u8]) -> bool {
    match name.len() {
        2 => name.eq_ignore_ascii_case(b"te"),
        7 => name.eq_ignore_ascii_case(b"upgrade") || name.eq_ignore_ascii_case(b"trailer"),
        10 => name.eq_ignore_ascii_case(b"connection") || name.eq_ignore_ascii_case(b"keep-alive"),
        14 => name.eq_ignore_ascii_case(b"content-length"),
        16 => name.eq_ignore_ascii_case(b"proxy-connection"),
        17 => name.eq_ignore_ascii_case(b"transfer-encoding"),
        _ => false,
    }
}

/// Whether the reply's `Trailer` field names this one, and it may stand behind a body: not what
/// decides how the body is read or what is done with the reply (RFC 9110, section 6.5.1).
fn is_trailer(fields: &Fields, name: &[u8]) -> bool {
    const ONLY_IN_HEADS: [&[u8]; 12] = [
        b"age",
        b"cache-control",
        b"date",
        b"expires",
        b"host",
        b"location",
        b"retry-after",
        b"set-cookie",
        b"vary",
        b"warning",
        b"www-authenticate",
        b"proxy-authenticate",
    ];
    let is = |other: &[u8]| name.eq_ignore_ascii_case(other);
    let content = name
        .get(..8)
        .is_some_and(|start| start.eq_ignore_ascii_case(b"content-"));
    let mut named = fields
        .all("trailer")
        .flat_map(|list| list.split(|&byte| byte == b','))
        .map(<[u8]>::trim_ascii);
    named.any(is) && !is_own(name) && !content && !ONLY_IN_HEADS.into_iter().any(is)
}

/// Reset Content: no body, and a length that says so.
const RESET: u16 = 205;

impl Response {
    /// A reply to this request. `keep_alive` is the server's own wish; the client's is in the head.
    pub fn new(request: &RequestHead, keep_alive: bool) -> Self {
        Self {
            version: request.version(),
            to_head: request.has_method("HEAD"),
            keep_alive: keep_alive && request.keep_alive(),
            framing: Framing::None,
            trailers: false,
            fault: None,
        }
    }

    /// A reply to something that could not be read as a request; the connection ends with it.
    pub fn to_unreadable() -> Self {
        Self {
            version: Version::Http11,
            to_head: false,
            keep_alive: false,
            framing: Framing::None,
            trailers: false,
            fault: None,
        }
    }

    /// Appends the head. `date` is the value of the Date field, used unless the reply brings its
    /// own.
    ///
    /// A length that the reply announces is believed only while its body comes in pieces: a whole
    /// body has the length that it has.
    pub fn head(
        &mut self,
        out: &mut Vec<u8>,
        status: u16,
        fields: &Fields,
        size: BodySize,
        date: &[u8],
    ) {
        let length = self.frame(status, fields, size);
        status_line(out, status);
        let mut has_date = false;
        for (name, value) in self.head_fields(fields) {
            has_date |= name.eq_ignore_ascii_case(b"date");
            field(out, name, value);
        }
        if !has_date {
            field(out, b"Date", date);
        }
        if let Some(len) = length {
            field(
                out,
                b"Content-Length",
                itoa::Buffer::new().format(len).as_bytes(),
            );
        } else if self.framing == Framing::Chunked {
            field(out, b"Transfer-Encoding", b"chunked");
        }
        match (self.keep_alive, self.version) {
            (false, _) => field(out, b"Connection", b"close"),
            (true, Version::Http10) => field(out, b"Connection", b"keep-alive"),
            (true, Version::Http11 | Version::Http2 | Version::Http3) => {}
        }
        out.extend_from_slice(b"\r\n");
    }

    /// Decides how the body is framed, as [`head`](Self::head) does, for a protocol that writes
    /// heads in its own way. Returns the length to announce.
    pub fn frame(&mut self, status: u16, fields: &Fields, size: BodySize) -> Option<u64> {
        let Said {
            announced,
            asks_to_close,
            trailers,
        } = Said::of(fields);
        self.keep_alive &= !asks_to_close;
        let bodiless = matches!(status, 100..=199 | 204 | RESET | 304);
        self.trailers = trailers;
        let length = match size {
            // Nothing but its length tells a client that there is no body (RFC 9110, section
            // 15.3.6; RFC 9112, section 6.3).
            _ if status == RESET => Some(0),
            // A reply to HEAD may announce the length of the body it leaves out.
            BodySize::Known(0) if self.to_head => announced,
            BodySize::Known(len) => Some(len),
            BodySize::Unknown => announced,
        };
        self.framing = match length {
            _ if bodiless || self.to_head => Framing::None,
            // Only chunks have room behind them.
            Some(_) if self.trailers && self.version == Version::Http11 => Framing::Chunked,
            Some(len) => Framing::Length(len),
            None if self.version == Version::Http11 => Framing::Chunked,
            None => Framing::Close,
        };
        self.keep_alive &= self.framing != Framing::Close;
        length.filter(|_| (!bodiless || status == RESET) && self.framing != Framing::Chunked)
    }

    /// The reply's own fields that go into its head.
    pub fn head_fields<'a>(
        &self,
        fields: &'a Fields,
    ) -> impl Iterator<Item = (&'a [u8], &'a [u8])> + use<'a> {
        let trailers = self.trailers;
        let all = fields.iter();
        all.filter(move |(name, _)| !(is_own(name) || trailers && is_trailer(fields, name)))
    }

    /// Those that go behind its body: named by the reply's `Trailer` field, which RoadRunner's
    /// workers send them with. None where there is no body.
    pub fn trailers<'a>(
        &self,
        fields: &'a Fields,
    ) -> impl Iterator<Item = (&'a [u8], &'a [u8])> + use<'a> {
        let sent = self.trailers && self.framing != Framing::None;
        let all = fields.iter().filter(move |_| sent);
        all.filter(|(name, _)| is_trailer(fields, name))
    }

    /// Whether a body is sent at all: not to HEAD, not with 204, 205 and 304.
    pub fn sends_body(&self) -> bool {
        self.framing != Framing::None
    }

    /// Whether all bytes of an announced length were sent.
    pub fn is_complete(&self) -> bool {
        self.framing == Framing::Length(0)
    }

    /// Whether pieces have something around them.
    pub fn has_chunks(&self) -> bool {
        self.framing == Framing::Chunked
    }

    /// What surrounds the next `len` bytes of the body. For a piece of no bytes there is nothing to
    /// send.
    pub fn piece(&mut self, len: usize) -> PieceFrame {
        const BARE: PieceFrame = PieceFrame {
            before: ChunkHead::NONE,
            take: 0,
            after: b"",
        };
        match &mut self.framing {
            Framing::None => BARE,
            Framing::Close => PieceFrame { take: len, ..BARE },
            Framing::Chunked if len == 0 => BARE,
            Framing::Chunked => PieceFrame {
                before: ChunkHead::new(len),
                take: len,
                after: b"\r\n",
            },
            Framing::Length(left) => {
                let take = usize::try_from(*left).unwrap_or(usize::MAX).min(len);
                *left = left.saturating_sub(take as u64);
                if take < len {
                    self.fault.get_or_insert(Fault::TooLong);
                }
                PieceFrame { take, ..BARE }
            }
        }
    }

    /// Appends what ends the body. Afterwards [`keeps_alive`](Self::keeps_alive) tells whether
    /// another request may follow.
    pub fn end(&mut self, out: &mut Vec<u8>, fields: &Fields) {
        match self.framing {
            Framing::Chunked if self.is_broken() => {}
            Framing::Chunked => {
                out.extend_from_slice(b"0\r\n");
                for (name, value) in self.trailers(fields) {
                    field(out, name, value);
                }
                out.extend_from_slice(b"\r\n");
            }
            Framing::Length(1..) => self.abort(),
            Framing::Length(0) | Framing::None | Framing::Close => {}
        }
    }

    /// The connection ends with this reply. To be said before its head.
    pub fn close(&mut self) {
        self.keep_alive = false;
    }

    /// Whether the client knows interim replies.
    pub fn allows_interim(&self) -> bool {
        self.version != Version::Http10
    }

    /// The body ends here although it is not complete: the connection must be cut, so that it does
    /// not look whole.
    pub fn abort(&mut self) {
        self.fault.get_or_insert(Fault::CutShort);
    }

    /// Whether the client must not take what it got for the whole body.
    pub fn is_broken(&self) -> bool {
        self.fault == Some(Fault::CutShort)
    }

    /// Whether the body has more bytes than were announced. The client has got these, and what it
    /// has is whole.
    pub fn is_too_long(&self) -> bool {
        self.fault == Some(Fault::TooLong)
    }

    /// Whether nothing that follows of the body would be sent.
    pub fn has_fault(&self) -> bool {
        self.fault.is_some()
    }

    /// Whether the connection can carry another request.
    pub fn keeps_alive(&self) -> bool {
        self.keep_alive && self.fault.is_none()
    }
}

/// Appends an informational reply, 100 Continue or 103 Early Hints for instance. HTTP/1.0 knows
/// none.
pub fn interim(out: &mut Vec<u8>, status: u16, fields: &Fields) {
    status_line(out, status);
    for (name, value) in interim_fields(fields) {
        field(out, name, value);
    }
    out.extend_from_slice(b"\r\n");
}

/// The fields that an informational reply is sent with.
pub fn interim_fields(fields: &Fields) -> impl Iterator<Item = (&[u8], &[u8])> {
    fields.iter().filter(|(name, _)| !is_own(name))
}

/// Appends the head after which the connection goes on in another protocol (RFC 9110, section
/// 15.2.2).
pub fn switching(out: &mut Vec<u8>, protocol: &str, fields: &Fields) {
    status_line(out, 101);
    field(out, b"Connection", b"Upgrade");
    field(out, b"Upgrade", protocol.as_bytes());
    for (name, value) in fields.iter().filter(|(name, _)| !is_own(name)) {
        field(out, name, value);
    }
    out.extend_from_slice(b"\r\n");
}

fn status_line(out: &mut Vec<u8>, status: u16) {
    if status == 200 {
        return out.extend_from_slice(b"HTTP/1.1 200 OK\r\n");
    }
    out.extend_from_slice(b"HTTP/1.1 ");
    out.extend_from_slice(itoa::Buffer::new().format(status).as_bytes());
    out.push(b' ');
    out.extend_from_slice(reason(status).as_bytes());
    out.extend_from_slice(b"\r\n");
}

fn field(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    debug_assert!(
        memchr::memchr3(b'\r', b'\n', 0, value).is_none(),
        "values are checked before they come here"
    );
    out.extend_from_slice(name);
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

fn announced_length(value: &[u8]) -> Option<u64> {
    let digits = !value.is_empty() && value.iter().all(u8::is_ascii_digit);
    std::str::from_utf8(value)
        .ok()
        .filter(|_| digits)?
        .parse()
        .ok()
}

/// The phrase of the status registry; empty for a status that has none.
pub fn reason(status: u16) -> &'static str {
    match status {
        100 => "Continue",
        102 => "Processing",
        103 => "Early Hints",
        200 => "OK",
        201 => "Created",
        202 => "Accepted",
        203 => "Non-Authoritative Information",
        204 => "No Content",
        205 => "Reset Content",
        206 => "Partial Content",
        207 => "Multi-Status",
        208 => "Already Reported",
        226 => "IM Used",
        300 => "Multiple Choices",
        301 => "Moved Permanently",
        302 => "Found",
        303 => "See Other",
        304 => "Not Modified",
        305 => "Use Proxy",
        307 => "Temporary Redirect",
        308 => "Permanent Redirect",
        400 => "Bad Request",
        401 => "Unauthorized",
        402 => "Payment Required",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        406 => "Not Acceptable",
        407 => "Proxy Authentication Required",
        408 => "Request Timeout",
        409 => "Conflict",
        410 => "Gone",
        411 => "Length Required",
        412 => "Precondition Failed",
        413 => "Content Too Large",
        414 => "URI Too Long",
        415 => "Unsupported Media Type",
        416 => "Range Not Satisfiable",
        417 => "Expectation Failed",
        418 => "I'm a Teapot",
        421 => "Misdirected Request",
        422 => "Unprocessable Content",
        423 => "Locked",
        424 => "Failed Dependency",
        425 => "Too Early",
        426 => "Upgrade Required",
        428 => "Precondition Required",
        429 => "Too Many Requests",
        431 => "Request Header Fields Too Large",
        451 => "Unavailable For Legal Reasons",
        500 => "Internal Server Error",
        501 => "Not Implemented",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        505 => "HTTP Version Not Supported",
        506 => "Variant Also Negotiates",
        507 => "Insufficient Storage",
        508 => "Loop Detected",
        510 => "Not Extended",
        511 => "Network Authentication Required",
        _ => "",
    }
}
