//! The head of a request on its way to a server, and that of a response on its way back.

use std::borrow::Cow;

use bytes::Bytes;
use hyper::Method;
use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use hyper::{Request as Message, Uri};
use pronghorn_serve::Request;
use pronghorn_wire::Fields;

use crate::address::Destination;
use crate::error::NotForwarded;
use crate::request_body::RequestBody;
use crate::server::Server;

/// The name of a server without one, where the client gives none either.
pub(crate) const UNNAMED: &str = "localhost";

/// The one protocol that connections change to.
pub(crate) const WEBSOCKET: &str = "websocket";

/// Fields that are made anew: a client must not tell a server who it is.
fn is_made_here(name: &[u8]) -> bool {
    match name {
        b"host" | b"content-length" | b"expect" | b"forwarded" | b"x-real-ip" | b"client-cert"
        | b"client-cert-chain" => true,
        _ => name.starts_with(b"x-forwarded-"),
    }
}

/// Fields of a connection, and not of what it carries (RFC 9110, section 7.6.1).
fn is_of_connection(name: &[u8]) -> bool {
    matches!(
        name,
        b"connection"
            | b"keep-alive"
            | b"proxy-connection"
            | b"proxy-authenticate"
            | b"proxy-authorization"
            | b"te"
            | b"transfer-encoding"
            | b"upgrade"
            | b"http2-settings"
    )
}

/// Whether one of the values of `Connection` names this field.
fn is_named(mut lists: impl Iterator<Item = impl AsRef<[u8]>>, name: &[u8]) -> bool {
    lists.any(|list| {
        let mut names = list
            .as_ref()
            .split(|&byte| byte == b',')
            .map(<[u8]>::trim_ascii);
        names.any(|named| named.eq_ignore_ascii_case(name))
    })
}

/// The request as a server gets it.
pub(crate) fn outgoing(
    request: &Request,
    to: &Server,
    host: Option<&str>,
    strip_prefix: Option<&str>,
    body: RequestBody,
) -> Result<Message<RequestBody>, NotForwarded> {
    let head = &request.head;
    let target = target(head.path(), head.query(), strip_prefix);
    let given = Some(head.authority()).filter(|it| !it.is_empty());
    let own = match &to.address.place {
        Destination::Host(origin) => origin.authority(),
        Destination::Unix(_) => UNNAMED,
    };
    let authority = host.or(given).unwrap_or(own);
    let mut message = Message::new(body);
    let method = Method::from_bytes(head.method().as_bytes());
    *message.method_mut() = method.map_err(|_| NotForwarded::Target)?;
    *message.uri_mut() = uri(target, authority, to.address.is_http2)?;
    let fields = message.headers_mut();
    let named = || head.fields().all("connection");
    let mut asks_for_trailers = false;
    for (name, value) in head.fields().iter() {
        if name == b"te" {
            asks_for_trailers |= is_named([value].into_iter(), b"trailers");
        }
        if is_made_here(name) || is_of_connection(name) || is_named(named(), name) {
            continue;
        }
        if let (Ok(name), Ok(value)) =
            (HeaderName::from_bytes(name), HeaderValue::from_bytes(value))
        {
            fields.append(name, value);
        }
    }
    let mut set = |name: &'static str, value: &[u8]| {
        if let Ok(value) = HeaderValue::from_bytes(value) {
            fields.insert(HeaderName::from_static(name), value);
        }
    };
    if !to.address.is_http2 {
        set("host", authority.as_bytes());
    } else if asks_for_trailers {
        set("te", b"trailers");
    }
    set("x-forwarded-for", request.peer.ip.as_bytes());
    set("x-forwarded-proto", request.peer.scheme().as_bytes());
    if let Some(given) = given {
        set("x-forwarded-host", given.as_bytes());
    }
    if let Some(certificate) = &request.peer.certificate {
        set("client-cert", certificate.field().as_bytes());
    }
    if request.asks_for(WEBSOCKET) && !to.address.is_http2 {
        set("connection", b"upgrade");
        set("upgrade", WEBSOCKET.as_bytes());
    }
    Ok(message)
}

fn uri(target: Vec<u8>, authority: &str, is_http2: bool) -> Result<Uri, NotForwarded> {
    let made = if is_http2 {
        let target = String::from_utf8(target).map_err(|_| NotForwarded::Target)?;
        let absolute = format!("http://{authority}{target}");
        Uri::from_maybe_shared(Bytes::from(absolute))
    } else {
        Uri::from_maybe_shared(Bytes::from(target))
    };
    made.map_err(|_| NotForwarded::Target)
}

/// The path and the query, as the client sent them: but for the prefix, and for bytes that no URI
/// has, which are encoded.
fn target(path: &[u8], query: Option<&[u8]>, strip_prefix: Option<&str>) -> Vec<u8> {
    let path = match strip_prefix {
        Some(prefix) => without_prefix(path, prefix),
        None => path,
    };
    let mut target = Vec::with_capacity(path.len() + query.map_or(0, <[u8]>::len) + 2);
    if !path.starts_with(b"/") && path != b"*" {
        target.push(b'/');
    }
    encode_into(&mut target, path);
    if let Some(query) = query {
        target.push(b'?');
        encode_into(&mut target, query);
    }
    target
}

fn encode_into(out: &mut Vec<u8>, text: &[u8]) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    for &byte in text {
        if byte.is_ascii_graphic() && !b"\"<>`#".contains(&byte) {
            out.push(byte);
        } else {
            let digit = |it: u8| DIGITS[usize::from(it & 0xf)];
            out.extend_from_slice(&[b'%', digit(byte >> 4), digit(byte)]);
        }
    }
}

/// The path below a prefix, whatever way its letters are spelled in. All of it where it does not
/// begin with the prefix.
fn without_prefix<'a>(path: &'a [u8], prefix: &str) -> &'a [u8] {
    let mut rest = path;
    for wanted in prefix.split('/').filter(|segment| !segment.is_empty()) {
        let Some(inside) = rest.strip_prefix(b"/") else {
            return path;
        };
        let end = inside.iter().position(|&byte| byte == b'/');
        let (segment, behind) = inside.split_at(end.unwrap_or(inside.len()));
        if *decoded(segment) != *wanted.as_bytes() {
            return path;
        }
        rest = behind;
    }
    rest
}

fn decoded(segment: &[u8]) -> Cow<'_, [u8]> {
    if !segment.contains(&b'%') {
        return Cow::Borrowed(segment);
    }
    let digit = |byte: Option<&u8>| byte.and_then(|&byte| char::from(byte).to_digit(16));
    let mut out = Vec::with_capacity(segment.len());
    let mut rest = segment;
    while let Some((&byte, behind)) = rest.split_first() {
        match (byte, digit(behind.first()), digit(behind.get(1))) {
            (b'%', Some(high), Some(low)) => {
                // Two digits of 4 bits each.
                out.push(u8::try_from(high << 4 | low).unwrap_or_default());
                rest = behind.get(2..).unwrap_or_default();
            }
            _ => {
                out.push(byte);
                rest = behind;
            }
        }
    }
    Cow::Owned(out)
}

/// The fields of a response as the client gets them.
///
/// Fields that name files for this server to send are left out: a server elsewhere must not read
/// files of this machine. So is `Alt-Svc`, which is about the ports of that server.
pub(crate) fn incoming(headers: &HeaderMap) -> Fields {
    let mut fields = Fields::new();
    let connection = || {
        headers
            .get_all("connection")
            .iter()
            .map(HeaderValue::as_bytes)
    };
    for (name, value) in headers {
        let name = name.as_str().as_bytes();
        let is_for_server = matches!(
            name,
            b"x-sendfile" | b"x-accel-redirect" | b"x-accel-buffering" | b"alt-svc"
        );
        if is_for_server || is_of_connection(name) || is_named(connection(), name) {
            continue;
        }
        fields.push(name, value.as_bytes());
    }
    fields
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn told(path: &str, query: Option<&str>, prefix: Option<&str>) -> String {
        let target = target(path.as_bytes(), query.map(str::as_bytes), prefix);
        String::from_utf8(target).unwrap()
    }

    #[test]
    fn a_target_is_as_the_client_sent_it() {
        for same in [
            "/",
            "/a/../b",
            "//a",
            "/%2e%2E/a",
            "/a;b=c",
            "/%zz",
            "/a\\b|c",
            "*",
        ] {
            assert_eq!(told(same, None, None), same);
        }
        assert_eq!(told("/a", Some("b=c&d"), None), "/a?b=c&d");
        assert_eq!(told("/a", Some(""), None), "/a?");
        assert_eq!(
            told("/a\"<b>#é", Some("#"), None),
            "/a%22%3Cb%3E%23%C3%A9?%23"
        );
    }

    #[test]
    fn a_prefix_is_taken_off_in_every_spelling() {
        for (path, rest) in [
            ("/api", "/"),
            ("/api/", "/"),
            ("/api/x/api", "/x/api"),
            ("/%61p%69/x", "/x"),
            ("/apis", "/apis"),
            ("/x/api", "/x/api"),
            ("/api%2Fx", "/api%2Fx"),
            ("/api//x", "//x"),
            ("//api/x", "//api/x"),
        ] {
            assert_eq!(told(path, None, Some("/api")), rest, "{path}");
        }
        assert_eq!(told("/a/b/c", None, Some("/a/b")), "/c");
    }

    #[test]
    fn fields_of_the_connection_stay_here() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("connection", "close, X-Hop"),
            ("x-hop", "1"),
            ("keep-alive", "timeout=5"),
            ("transfer-encoding", "chunked"),
            ("x-accel-redirect", "/etc/shadow"),
            ("x-sendfile", "/etc/shadow"),
            ("alt-svc", "h3=\":3000\""),
            ("set-cookie", "a"),
            ("content-type", "text/html"),
        ] {
            headers.insert(name, HeaderValue::from_static(value));
        }
        headers.append("set-cookie", HeaderValue::from_static("b"));
        let fields = incoming(&headers);
        let mut left: Vec<_> = fields.iter().collect();
        left.sort_unstable();
        let expected: [(&[u8], &[u8]); 3] = [
            (b"content-type", b"text/html"),
            (b"set-cookie", b"a"),
            (b"set-cookie", b"b"),
        ];
        assert_eq!(left, expected);
    }

    proptest! {
        /// Each target is one line without a space, and a URI.
        #[test]
        fn any_path_becomes_a_uri(path in proptest::collection::vec(any::<u8>(), 0..40),
                                  query in proptest::option::of(proptest::collection::vec(any::<u8>(), 0..40))) {
            let path = [b"/", &path[..]].concat();
            let target = target(&path, query.as_deref(), Some("/a"));
            prop_assert!(target.iter().all(u8::is_ascii_graphic));
            let parsed = uri(target.clone(), "a", false).map_err(|e| TestCaseError::fail(e.to_string()))?;
            prop_assert_eq!(parsed.path_and_query().map(|it| it.as_str().as_bytes().to_vec()), Some(target));
        }
    }
}
