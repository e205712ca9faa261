//! Heads of later versions of HTTP, which come in parts.

use bytes::Bytes;
use pronghorn_wire::Fields;

use super::{BodyFraming, CONNECT, Facts, RequestHead, Version, span, split_target};
use crate::connection::Limits;
use crate::refusal::Refusal;

/// A request's head as a later version of HTTP brings it: its fields one by one, with names in
/// lower case, and nothing to tell their ends by.
#[derive(Debug)]
pub struct Parts<'a, F> {
    /// The version.
    pub version: Version,
    /// As received.
    pub method: &'a str,
    /// `:authority`, if there is one.
    pub authority: Option<&'a [u8]>,
    /// `:path`, with the query.
    pub target: &'a [u8],
    /// All other fields, once more at each call.
    pub fields: F,
    /// Whether there is no body.
    pub ends: bool,
}

/// Writes the parts into one buffer and judges them as those of HTTP/1.1 are judged.
pub(super) fn assemble<'a, F, I>(
    parts: &Parts<'a, F>,
    limits: &Limits,
) -> Result<RequestHead, Refusal>
where
    F: Fn() -> I,
    I: Iterator<Item = (&'a [u8], &'a [u8])>,
{
    let fields = &parts.fields;
    // A cookie that comes in parts is one field (RFC 9113, section 8.2.3).
    let count = fields().filter(|(name, _)| *name != b"cookie").count();
    let has_cookie = fields().any(|(name, _)| name == b"cookie");
    let count = count.saturating_add(usize::from(has_cookie));
    if count > limits.fields {
        return Err(Refusal::TooManyFields(limits.fields));
    }
    let host = asked_host(parts.authority, fields())?;
    let length = fields().map(|(name, value)| name.len().saturating_add(value.len()));
    let length = length.fold(host.len().saturating_add(4), usize::saturating_add);
    let line = parts.method.len().saturating_add(parts.target.len());
    let length = length.saturating_add(line);
    if length > limits.head {
        return Err(Refusal::HeadTooLong(limits.head));
    }
    let mut bytes = Vec::with_capacity(length);
    let mut append = |text: &[u8]| {
        let start = bytes.len();
        bytes.extend_from_slice(text);
        start..bytes.len()
    };
    let method = append(parts.method.as_bytes());
    let target = append(parts.target);
    let host_name = append(b"host");
    let authority = append(host);
    let mut facts = Facts::default();
    let mut places = Vec::with_capacity(count.saturating_add(1));
    places.push((span(host_name), span(authority.clone())));
    let mut underscored = Vec::new();
    let mut cookies = fields().filter(|(name, _)| *name == b"cookie").peekable();
    for (name, value) in fields() {
        let is_cookie = name == b"cookie";
        if name == b"host" || is_cookie && cookies.peek().is_none() {
            continue;
        }
        check_value(value)?;
        if memchr::memchr(b'_', name).is_some() {
            underscored.push((span(append(name)), span(append(value))));
            continue;
        }
        facts.note(name, value, &[])?;
        let name = append(name);
        let mut place = append(if is_cookie { b"" } else { value });
        if is_cookie {
            // Clients may send one in parts, to compress better.
            while let Some((_, part)) = cookies.next() {
                check_value(part)?;
                append(part);
                place = place.start..append(cookies.peek().map_or(b"", |_| b"; ")).end;
            }
        }
        places.push((span(name), span(place)));
    }
    // One that connects has no path.
    if parts.method != CONNECT && !matches!(parts.target, [b'/', ..] | b"*") {
        return Err(Refusal::Target);
    }
    let target = split_target(&bytes, target, parts.method)?;
    let received = Bytes::from(bytes);
    let mut fields = Fields::over(received, places.len());
    for (name, value) in places {
        fields.push_received(name, value);
    }
    let mut apart = None;
    for (name, value) in underscored {
        super::apart(&mut apart, fields.received()).push_received(name, value);
    }
    super::host::check(host)?;
    Ok(RequestHead {
        method,
        authority,
        path: target.path,
        query: target.query,
        version: parts.version,
        keep_alive: true,
        expects_continue: facts.expects_continue,
        replaced: None,
        framing: match facts.length {
            _ if parts.ends => BodyFraming::None,
            Some(length) => BodyFraming::Length(length),
            None => BodyFraming::Chunked,
        },
        fields,
        underscored: apart,
    })
}

/// Who is asked: `:authority`, or the `host` of a client that passes on a request of HTTP/1.1.
fn asked_host<'a>(
    authority: Option<&'a [u8]>,
    fields: impl Iterator<Item = (&'a [u8], &'a [u8])>,
) -> Result<&'a [u8], Refusal> {
    let mut hosts = fields.filter(|(name, _)| *name == b"host");
    let host = hosts.next().map(|(_, value)| value);
    if hosts.next().is_some() {
        return Err(Refusal::Host("given twice"));
    }
    match (authority, host) {
        (Some(authority), Some(host)) if !authority.eq_ignore_ascii_case(host) => {
            Err(Refusal::Host("another than `:authority`"))
        }
        (Some(authority), _) => Ok(authority),
        (None, Some(host)) => Ok(host),
        (None, None) => Err(Refusal::Host("missing")),
    }
}

/// RFC 9113, section 8.2.1: no space around a value, and nothing that would end it in HTTP/1.1.
fn check_value(value: &[u8]) -> Result<(), Refusal> {
    let blank = |byte: Option<&u8>| byte.is_some_and(|byte| matches!(byte, b' ' | b'\t'));
    if blank(value.first())
        || blank(value.last())
        || memchr::memchr3(b'\r', b'\n', 0, value).is_some()
    {
        return Err(Refusal::Syntax("a field's value"));
    }
    Ok(())
}
