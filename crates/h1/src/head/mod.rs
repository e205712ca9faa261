//! The head of a request: found, checked line by line, split by `httparse`, checked again for what
//! decides its framing.

mod host;
mod parts;

use std::borrow::Cow;
use std::mem::MaybeUninit;
use std::ops::Range;

use bytes::Bytes;
use pronghorn_wire::Fields;

pub use host::{host_of, is_host};
pub use parts::Parts;

use crate::connection::Limits;
use crate::refusal::Refusal;

/// The version in a request line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// HTTP/1.0
    Http10,
    /// HTTP/1.1
    Http11,
    /// HTTP/2, whose heads come in [`Parts`].
    Http2,
    /// HTTP/3, likewise.
    Http3,
}

/// What follows a head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BodyFraming {
    None,
    Length(u64),
    Chunked,
}

/// A request's head, with all its bytes in one buffer.
#[derive(Debug, Clone)]
pub struct RequestHead {
    /// The buffer is the head as it came, but for the names, which are in lower case. All ranges
    /// are places in it.
    fields: Fields,
    /// The fields whose names have an underscore, if there are any.
    underscored: Option<Box<Fields>>,
    method: Range<usize>,
    authority: Range<usize>,
    path: Range<usize>,
    query: Option<Range<usize>>,
    version: Version,
    keep_alive: bool,
    expects_continue: bool,
    pub(crate) framing: BodyFraming,
    /// What counts in place of what the client sent.
    replaced: Option<Box<Replaced>>,
}

/// What middleware has put in the place of a part.
#[derive(Debug, Clone, Default)]
struct Replaced {
    authority: Option<Box<str>>,
    target: Option<PathAndQuery>,
    /// The method is GET.
    is_get: bool,
}

#[derive(Debug, Clone)]
struct PathAndQuery {
    path: Box<[u8]>,
    query: Option<Box<[u8]>>,
}

impl RequestHead {
    /// The same head as one of HTTP/1.1 that says the same, so that nobody has to know how it came:
    /// with a `host`, and one `cookie` (RFC 9113, sections 8.2.3 and 8.3.1).
    ///
    /// # Errors
    ///
    /// When the request can't be taken.
    pub fn from_parts<'a, F, I>(parts: &Parts<'a, F>, limits: &Limits) -> Result<Self, Refusal>
    where
        F: Fn() -> I,
        I: Iterator<Item = (&'a [u8], &'a [u8])>,
    {
        parts::assemble(parts, limits)
    }

    /// As received; methods are case-sensitive.
    pub fn method(&self) -> &str {
        if self
            .replaced
            .as_ref()
            .is_some_and(|replaced| replaced.is_get)
        {
            return "GET";
        }
        std::str::from_utf8(self.text(&self.method)).unwrap_or_default()
    }

    /// Whether the method is this one.
    pub fn has_method(&self, method: &str) -> bool {
        match &self.replaced {
            Some(replaced) if replaced.is_get => method == "GET",
            _ => self.text(&self.method) == method.as_bytes(),
        }
    }

    /// Host and port as the client named them: from an absolute target, else from `Host`; empty
    /// where HTTP/1.0 has none.
    pub fn authority(&self) -> &str {
        if let Some(authority) = self.replaced.as_ref().and_then(|r| r.authority.as_deref()) {
            return authority;
        }
        std::str::from_utf8(self.text(&self.authority)).unwrap_or_default()
    }

    /// The host that the request is for, without its port, in the form that is compared; see
    /// [`host_of`].
    pub fn host(&self) -> Cow<'_, str> {
        host_of(self.authority())
    }

    /// As received: not decoded, not normalised. Starts with `/`, or is `*` for OPTIONS.
    pub fn path(&self) -> &[u8] {
        if let Some(target) = self.replaced_target() {
            return &target.path;
        }
        self.received_target().0
    }

    /// What follows the first `?`, undecoded.
    pub fn query(&self) -> Option<&[u8]> {
        if let Some(target) = self.replaced_target() {
            return target.query.as_deref();
        }
        self.query.as_ref().map(|query| self.text(query))
    }

    /// Path and query as the client sent them, whatever has been put in their place.
    pub fn received_target(&self) -> (&[u8], Option<&[u8]>) {
        let path = match self.text(&self.path) {
            // An absolute target may leave it out (RFC 9110, section 4.2.3).
            b"" => b"/",
            path => path,
        };
        (path, self.query.as_ref().map(|query| self.text(query)))
    }

    fn replaced_target(&self) -> Option<&PathAndQuery> {
        self.replaced.as_ref()?.target.as_ref()
    }

    /// Replaces host and port, for what a proxy tells of its client.
    ///
    /// # Errors
    ///
    /// When it is no host; all is as before then.
    pub fn set_authority(&mut self, authority: &str) -> Result<(), Refusal> {
        host::check(authority.as_bytes())?;
        self.replaced.get_or_insert_default().authority = Some(authority.into());
        Ok(())
    }

    /// Replaces path and query. They are the caller's to have checked: what lands in URIs has no
    /// space and no control character, and a path begins with `/`.
    pub fn set_target(&mut self, path: &[u8], query: Option<&[u8]>) {
        self.replaced.get_or_insert_default().target = Some(PathAndQuery {
            path: path.into(),
            query: query.map(Into::into),
        });
    }

    /// The same client's request for another path and query, by GET and without a body. They are
    /// checked as for [`set_target`](Self::set_target).
    #[must_use]
    pub fn elsewhere(&self, path: &[u8], query: Option<&[u8]>) -> Self {
        let mut head = self.clone();
        head.set_target(path, query);
        head.replaced.get_or_insert_default().is_get = true;
        head.framing = BodyFraming::None;
        for of_body in [
            "content-length",
            "content-type",
            "content-encoding",
            "transfer-encoding",
        ] {
            head.fields.remove(of_body);
        }
        head
    }

    /// The same request line over the same bytes, without fields: cheap to make and to keep.
    #[must_use]
    pub fn without_fields(&self) -> Self {
        Self {
            fields: Fields::over(self.fields.received().clone(), 0),
            underscored: None,
            method: self.method.clone(),
            authority: self.authority.clone(),
            path: self.path.clone(),
            query: self.query.clone(),
            replaced: self.replaced.clone(),
            ..*self
        }
    }

    /// The client's version of HTTP.
    pub fn version(&self) -> Version {
        self.version
    }

    /// All fields in order, names in lower case; `host` is among them.
    pub fn fields(&self) -> &Fields {
        &self.fields
    }

    /// Fields that are not among [`fields`](Self::fields), because their names have an underscore:
    /// for who makes no variables of names. Nothing of them counts for HTTP.
    pub fn underscored(&self) -> Option<&Fields> {
        self.underscored.as_deref()
    }

    /// Bytes of memory: the buffer that all of it lies in, and the fields beyond those of ordinary
    /// requests.
    pub fn size(&self) -> usize {
        let underscored = self.underscored.as_ref().map_or(0, |fields| fields.len());
        let fields = self.fields.len().saturating_add(underscored);
        let beyond = fields.saturating_sub(SLOTS).saturating_mul(FIELD);
        self.fields.received().len().saturating_add(beyond)
    }

    /// For what middleware changes.
    pub fn fields_mut(&mut self) -> &mut Fields {
        &mut self.fields
    }

    /// Whether the client is ready for another request on this connection.
    pub fn keep_alive(&self) -> bool {
        self.keep_alive
    }

    /// Whether the client waits for `100 Continue` before it sends the body.
    pub fn expects_continue(&self) -> bool {
        self.expects_continue
    }

    /// The length of the body if it is known: `None` for a chunked one.
    pub fn body_len(&self) -> Option<u64> {
        match self.framing {
            BodyFraming::None => Some(0),
            BodyFraming::Length(len) => Some(len),
            BodyFraming::Chunked => None,
        }
    }

    /// The body will be had without the coding that it came in, and so with another length.
    pub fn forget_coding(&mut self) {
        self.fields.remove("content-encoding");
        self.fields.remove("content-length");
        if self.framing != BodyFraming::None {
            self.framing = BodyFraming::Chunked;
        }
    }

    fn text(&self, place: &Range<usize>) -> &[u8] {
        self.fields
            .received()
            .get(place.clone())
            .unwrap_or_default()
    }
}

/// Looks for the end of a head and checks every line end on the way.
///
/// `scanned` is how far the last look came, so that a head that arrives byte by byte is read once.
/// `Some(end)` is where the head ends.
pub(crate) fn find_end(
    input: &[u8],
    scanned: &mut usize,
    limit: usize,
) -> Result<Option<usize>, Refusal> {
    let window = input.get(..input.len().min(limit)).unwrap_or_default();
    let mut at = *scanned;
    while let Some(found) = memchr::memchr3(b'\r', b'\n', 0, window.get(at..).unwrap_or_default()) {
        let place = at.saturating_add(found);
        match window.get(place..).unwrap_or_default() {
            [0, ..] => return Err(Refusal::Nul),
            [b'\r', b'\n', rest @ ..] => match rest {
                [b'\r', b'\n', ..] => return Ok(Some(place.saturating_add(4))),
                // An end may come: look at this CRLF again with more bytes.
                [] | [b'\r'] => {
                    *scanned = place;
                    return too_long(input, limit);
                }
                _ => at = place.saturating_add(2),
            },
            [b'\r'] => {
                *scanned = place;
                return too_long(input, limit);
            }
            _ => return Err(Refusal::LineEnd),
        }
    }
    *scanned = window.len();
    too_long(input, limit)
}

fn too_long(input: &[u8], limit: usize) -> Result<Option<usize>, Refusal> {
    if input.len() < limit {
        Ok(None)
    } else if memchr::memchr(b'\n', input.get(..limit).unwrap_or_default()).is_none() {
        Err(Refusal::TargetTooLong(limit))
    } else {
        Err(Refusal::HeadTooLong(limit))
    }
}

/// What the stack has room for.
const SLOTS: usize = crate::connection::FIELDS;

/// Bytes that a field takes beside its text, here and where a handler makes something of it.
const FIELD: usize = 128;

/// Splits and checks a whole head, from its first byte to the empty line.
pub(crate) fn parse(head: &[u8], most_fields: usize) -> Result<RequestHead, Refusal> {
    match split(head, head, most_fields) {
        Err(refusal @ Refusal::Syntax(_)) => match masked(head) {
            Some(masked) => split(head, &masked, most_fields),
            None => Err(refusal),
        },
        split => split,
    }
}

/// A copy in whose target a letter stands for each byte beyond ASCII, when that is no UTF-8, which
/// `httparse` asks for: clients of old send Latin-1, and what they send is passed on as other bytes
/// are.
#[cold]
fn masked(head: &[u8]) -> Option<Vec<u8>> {
    let end = memchr::memchr(b'\r', head)?;
    let line = head.get(..end)?;
    let (start, end) = (memchr::memchr(b' ', line)?, memchr::memrchr(b' ', line)?);
    let target = start..end;
    std::str::from_utf8(line.get(target.clone())?).err()?;
    let mut masked = head.to_vec();
    let beyond = |byte: &&mut u8| !byte.is_ascii();
    for byte in masked.get_mut(target)?.iter_mut().filter(beyond) {
        *byte = b'~';
    }
    Some(masked)
}

/// `text` is `head`, or a copy whose tokens lie where those of `head` do.
fn split(head: &[u8], text: &[u8], most_fields: usize) -> Result<RequestHead, Refusal> {
    let mut slots = [const { MaybeUninit::uninit() }; SLOTS];
    let mut more_slots = Vec::new();
    let slots = match slots.get_mut(..most_fields) {
        Some(slots) => slots,
        None => {
            more_slots.resize_with(most_fields, MaybeUninit::uninit);
            more_slots.as_mut_slice()
        }
    };
    let mut request = httparse::Request::new(&mut []);
    let status = request
        .parse_with_uninit_headers(text, slots)
        .map_err(|error| match error {
            httparse::Error::HeaderName => Refusal::Syntax("a field's name"),
            httparse::Error::HeaderValue => Refusal::Syntax("a field's value"),
            httparse::Error::NewLine => Refusal::LineEnd,
            httparse::Error::Status => Refusal::Syntax("the request line"),
            httparse::Error::Token => Refusal::Syntax("the request line or a field's name"),
            httparse::Error::TooManyHeaders => Refusal::TooManyFields(most_fields),
            httparse::Error::Version => version_or_syntax(text),
        })?;
    let (httparse::Status::Complete(_), Some(method), Some(target), Some(version)) =
        (status, request.method, request.path, request.version)
    else {
        return Err(Refusal::Syntax("it ends early"));
    };
    let version = if version == 0 {
        Version::Http10
    } else {
        Version::Http11
    };
    let mut bytes = head.to_vec();
    for header in request.headers.iter() {
        bytes
            .get_mut(place(text, header.name.as_bytes()))
            .unwrap_or_default()
            .make_ascii_lowercase();
    }
    // And one that somebody here may add, the trace for instance: more room is made dearly.
    let places = request.headers.len().saturating_add(1);
    let mut fields = Fields::over(Bytes::from(bytes), places);
    let mut underscored = None;
    let mut facts = Facts::default();
    for header in request.headers.iter() {
        let name = header.name.as_bytes();
        // `X-A` and `X_A` become the same variable in CGI and PHP; a client must not be able to set
        // the one by the other.
        if memchr::memchr(b'_', name).is_some() {
            apart(&mut underscored, fields.received())
                .push_received(span(place(text, name)), span(place(text, header.value)));
            continue;
        }
        facts.note(name, header.value, text)?;
        fields.push_received(span(place(text, name)), span(place(text, header.value)));
    }
    let method_place = place(text, method.as_bytes());
    let target = split_target(head, place(text, target.as_bytes()), method)?;
    let authority = match (target.authority, facts.host.clone()) {
        (Some(authority), _) => authority,
        (None, Some(host)) => host,
        (None, None) => 0..0,
    };
    if version == Version::Http11 && facts.host.is_none() {
        return Err(Refusal::Host("missing"));
    }
    host::check(head.get(authority.clone()).unwrap_or_default())?;
    Ok(RequestHead {
        method: method_place,
        authority,
        path: target.path,
        query: target.query,
        version,
        keep_alive: facts.keep_alive(version),
        expects_continue: facts.expects_continue && version == Version::Http11,
        framing: facts.framing(version)?,
        replaced: None,
        fields,
        underscored,
    })
}

/// Fields over the same bytes.
fn apart<'a>(fields: &'a mut Option<Box<Fields>>, bytes: &Bytes) -> &'a mut Fields {
    fields.get_or_insert_with(|| Box::new(Fields::over(bytes.clone(), 1)))
}

/// Tells `HTTP/2.0` from `FTP/1.1`: only the first is a version that could be asked for.
fn version_or_syntax(head: &[u8]) -> Refusal {
    let line = head.split(|&byte| byte == b'\r').next().unwrap_or_default();
    let mut words = line.split(|&byte| byte == b' ').skip(2);
    match (words.next(), words.next()) {
        (Some([b'H', b'T', b'T', b'P', b'/', major, b'.', minor]), None)
            if major.is_ascii_digit() && minor.is_ascii_digit() =>
        {
            Refusal::Version
        }
        _ => Refusal::Syntax("the request line"),
    }
}

/// Where a token that was cut out of `head` lies in it.
fn place(head: &[u8], token: &[u8]) -> Range<usize> {
    let start = (token.as_ptr() as usize).saturating_sub(head.as_ptr() as usize);
    start..start.saturating_add(token.len())
}

fn span(place: Range<usize>) -> (usize, usize) {
    (place.start, place.len())
}

/// The transfer codings, all fields and elements together (RFC 9112, section 6.1).
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Coding {
    #[default]
    None,
    Chunked,
    /// One that nobody knows, and so far nothing that tells where the body ends.
    Unknown,
    /// The same, and `chunked` behind it.
    UnknownChunked,
}

impl Coding {
    /// Adds the codings of one field.
    fn then(self, value: &[u8]) -> Result<Self, Refusal> {
        let mut codings = value.split(|&byte| byte == b',').map(trim_white_space);
        codings.try_fold(self, |before, coding| {
            if coding.is_empty() {
                return Err(Refusal::TransferEncoding("has an empty element"));
            }
            match (before, coding.eq_ignore_ascii_case(b"chunked")) {
                (Self::None, true) => Ok(Self::Chunked),
                (Self::Unknown, true) => Ok(Self::UnknownChunked),
                (Self::None | Self::Unknown, false) => Ok(Self::Unknown),
                (_, true) => Err(Refusal::TransferEncoding("is `chunked` twice")),
                (_, false) => Err(NOT_LAST),
            }
        })
    }
}

const NOT_LAST: Refusal = Refusal::TransferEncoding("does not end in `chunked`");

/// Without the spaces and tabs around it, which belong to no value (RFC 9110, section 5.5).
fn trim_white_space(mut text: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] | [rest @ .., b' ' | b'\t'] = text {
        text = rest;
    }
    text
}

/// What the fields say about the connection and the body.
#[derive(Debug, Default)]
struct Facts {
    host: Option<Range<usize>>,
    length: Option<u64>,
    coding: Coding,
    close: bool,
    persist: bool,
    expects_continue: bool,
    content_type: Option<()>,
    authorization: Option<()>,
}

impl Facts {
    fn note(&mut self, name: &[u8], value: &[u8], head: &[u8]) -> Result<(), Refusal> {
        // By length first: most fields are none of these.
        match name.len() {
            4 if name.eq_ignore_ascii_case(b"host") => {
                once(
                    &mut self.host,
                    place(head, value),
                    Refusal::Host("given twice"),
                )?;
            }
            6 if name.eq_ignore_ascii_case(b"expect") => {
                if !value.eq_ignore_ascii_case(b"100-continue") {
                    return Err(Refusal::Expectation);
                }
                self.expects_continue = true;
            }
            10 if name.eq_ignore_ascii_case(b"connection") => {
                for option in value.split(|&byte| byte == b',').map(<[u8]>::trim_ascii) {
                    self.close |= option.eq_ignore_ascii_case(b"close");
                    self.persist |= option.eq_ignore_ascii_case(b"keep-alive");
                }
            }
            // Parts of PHP would each take another one of two: the type decides how a body is read,
            // and the credentials decide who asks.
            12 if name.eq_ignore_ascii_case(b"content-type") => {
                once(
                    &mut self.content_type,
                    (),
                    Refusal::Repeated("Content-Type"),
                )?;
            }
            13 if name.eq_ignore_ascii_case(b"authorization") => {
                let twice = Refusal::Repeated("Authorization");
                once(&mut self.authorization, (), twice)?;
            }
            14 if name.eq_ignore_ascii_case(b"content-length") => {
                let twice = Refusal::ContentLength("given twice");
                once(&mut self.length, content_length(value)?, twice)?;
            }
            17 if name.eq_ignore_ascii_case(b"transfer-encoding") => {
                self.coding = self.coding.then(value)?;
            }
            _ => {}
        }
        Ok(())
    }

    fn keep_alive(&self, version: Version) -> bool {
        !self.close && (version == Version::Http11 || self.persist)
    }

    fn framing(&self, version: Version) -> Result<BodyFraming, Refusal> {
        match (self.coding, self.length) {
            (Coding::None, None | Some(0)) => Ok(BodyFraming::None),
            (Coding::None, Some(length)) => Ok(BodyFraming::Length(length)),
            (Coding::Unknown, _) => Err(NOT_LAST),
            (_, Some(_)) => Err(Refusal::TransferEncoding(
                "and Content-Length are both given",
            )),
            (_, None) if version == Version::Http10 => {
                Err(Refusal::TransferEncoding("does not exist in HTTP/1.0"))
            }
            (Coding::UnknownChunked, None) => Err(Refusal::TransferCoding),
            (Coding::Chunked, None) => Ok(BodyFraming::Chunked),
        }
    }
}

fn once<T>(place: &mut Option<T>, value: T, twice: Refusal) -> Result<(), Refusal> {
    place.replace(value).map_or(Ok(()), |_| Err(twice))
}

fn content_length(value: &[u8]) -> Result<u64, Refusal> {
    let digits = !value.is_empty() && value.iter().all(u8::is_ascii_digit);
    let text = std::str::from_utf8(value).ok().filter(|_| digits);
    text.ok_or(Refusal::ContentLength("not a number"))?
        .parse()
        .map_err(|_| Refusal::ContentLength("too large"))
}

struct Target {
    authority: Option<Range<usize>>,
    path: Range<usize>,
    query: Option<Range<usize>>,
}

/// The method of those who want a tunnel, by a proxy.
const CONNECT: &str = "CONNECT";

/// The four forms of RFC 9112, section 3.2.
fn split_target(head: &[u8], target: Range<usize>, method: &str) -> Result<Target, Refusal> {
    if method == CONNECT {
        return Err(Refusal::Connect);
    }
    let text = head.get(target.clone()).unwrap_or_default();
    // A fragment is the client's own business and was sent by mistake.
    let text = text.split(|&byte| byte == b'#').next().unwrap_or_default();
    let end = target.start.saturating_add(text.len());
    if text == b"*" && method == "OPTIONS" {
        return Ok(Target {
            authority: None,
            path: target.start..end,
            query: None,
        });
    }
    let (authority, path_start) = if text.starts_with(b"/") {
        (None, target.start)
    } else {
        let authority = absolute_authority(text, target.start).ok_or(Refusal::Target)?;
        let path_start = authority.end;
        (Some(authority), path_start)
    };
    let path = head.get(path_start..end).unwrap_or_default();
    let (path_end, query) = match memchr::memchr(b'?', path) {
        Some(mark) => {
            let mark = path_start.saturating_add(mark);
            (mark, Some(mark.saturating_add(1)..end))
        }
        None => (end, None),
    };
    Ok(Target {
        authority,
        path: path_start..path_end,
        query,
    })
}

/// Where host and port of an absolute target lie.
fn absolute_authority(target: &[u8], start: usize) -> Option<Range<usize>> {
    let scheme = [&b"http://"[..], b"https://"].into_iter().find(|scheme| {
        target
            .get(..scheme.len())
            .is_some_and(|start| start.eq_ignore_ascii_case(scheme))
    })?;
    let rest = target.get(scheme.len()..).unwrap_or_default();
    let len = memchr::memchr2(b'/', b'?', rest).unwrap_or(rest.len());
    let start = start.saturating_add(scheme.len());
    (len > 0).then_some(start..start.saturating_add(len))
}
