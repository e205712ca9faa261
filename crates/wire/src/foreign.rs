//! What RoadRunner's two codecs have in common: Go's spelling of header names, values grouped by
//! name, Go's cookies.

use std::borrow::Cow;

use bytes::Bytes;

use crate::{DecodeError, ReplyHead, Request};

/// What a request's body is for these codecs.
#[derive(Debug, Clone, Copy, Default)]
pub struct Form<'a> {
    /// The body is a JSON tree of a form's fields.
    pub parsed: bool,
    /// The tree of uploaded files, as JSON; `None` when the body was not multipart.
    pub uploads: Option<&'a [u8]>,
}

/// A header with all its values, in the order of first appearance.
pub(crate) struct Group<'a> {
    pub(crate) name: String,
    pub(crate) values: Vec<&'a [u8]>,
}

/// The headers that a worker gets, grouped by name and spelled as Go spells them.
pub(crate) fn grouped_headers<'a>(request: &Request<'a>) -> Vec<Group<'a>> {
    let mut groups: Vec<Group<'a>> = Vec::with_capacity(request.headers.len());
    for (name, value) in request.worker_headers() {
        let known = groups
            .iter_mut()
            .find(|group| name.eq_ignore_ascii_case(group.name.as_bytes()));
        match known {
            Some(group) => group.values.push(value),
            None => groups.push(Group {
                name: canonical(name),
                values: vec![value],
            }),
        }
    }
    groups
}

/// `x-foo` becomes `X-Foo`: the first letter and each one behind a hyphen in upper case, all others
/// in lower case.
fn canonical(name: &[u8]) -> String {
    let mut upper = true;
    name.iter()
        .map(|byte| {
            let letter = if upper {
                byte.to_ascii_uppercase()
            } else {
                byte.to_ascii_lowercase()
            };
            upper = *byte == b'-';
            char::from(letter)
        })
        .collect()
}

/// Cookies as RoadRunner hands them over: values unescaped like a query's, those that can't be are
/// dropped, the last of a name wins.
pub(crate) fn cookies<'a>(request: &Request<'a>) -> Vec<(&'a [u8], Vec<u8>)> {
    let mut cookies: Vec<(&[u8], Vec<u8>)> = Vec::new();
    for header in request.headers.all("cookie") {
        for pair in header.split(|&byte| byte == b';').map(<[u8]>::trim_ascii) {
            let Some(equals) = memchr::memchr(b'=', pair) else {
                continue;
            };
            let (name, value) = pair.split_at(equals);
            let name = name.trim_ascii();
            let value = value.get(1..).unwrap_or_default();
            let value = value
                .strip_prefix(b"\"")
                .and_then(|inner| inner.strip_suffix(b"\""))
                .unwrap_or(value);
            let Some(value) = unescape(value) else {
                continue;
            };
            if name.is_empty() {
                continue;
            }
            match cookies.iter_mut().find(|(known, _)| *known == name) {
                Some(known) => known.1 = value.into_owned(),
                None => cookies.push((name, value.into_owned())),
            }
        }
    }
    cookies
}

/// `%2B` and `+` as in a query; `None` for a bad escape.
fn unescape(text: &[u8]) -> Option<Cow<'_, [u8]>> {
    if memchr::memchr2(b'%', b'+', text).is_none() {
        return Some(Cow::Borrowed(text));
    }
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.iter();
    while let Some(&byte) = rest.next() {
        out.push(match byte {
            b'+' => b' ',
            b'%' => (hex(*rest.next()?)? << 4) | hex(*rest.next()?)?,
            _ => byte,
        });
    }
    Some(Cow::Owned(out))
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit)
        .to_digit(16)
        .and_then(|value| u8::try_from(value).ok())
}

/// What must hold for any bytes that a reply is read from.
pub(crate) fn fuzz_reply(data: &[u8], decode: fn(&Bytes) -> Result<ReplyHead, DecodeError>) {
    if let Ok(head) = decode(&Bytes::copy_from_slice(data)) {
        assert!(head.headers.len() <= data.len(), "more headers than bytes");
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::{Fields, Protocol};

    pub(crate) fn request<'a>(headers: &'a Fields, attributes: &'a Fields) -> Request<'a> {
        Request {
            method: "GET",
            tls: false,
            authority: "example.org:8080",
            path: b"/a%20b",
            query: Some(b"x=1"),
            protocol: Protocol::Http11,
            remote: "127.0.0.1",
            headers,
            attributes,
            accepted_us: 0,
        }
    }

    #[test]
    fn names_are_spelled_as_go_spells_them_and_values_are_grouped() {
        let headers: Fields = [
            ("x-foo", "1"),
            ("host", "h"),
            ("x_under", "2"),
            ("x-foo", "3"),
        ]
        .into_iter()
        .collect();
        let none = Fields::new();
        let request = request(&headers, &none);
        let groups = grouped_headers(&request);
        let names: Vec<_> = groups.iter().map(|group| group.name.as_str()).collect();
        assert_eq!(names, ["X-Foo", "X_under"]);
        assert_eq!(groups[0].values, [b"1", b"3"]);
    }

    #[test]
    fn cookies_follow_go() {
        let headers: Fields = [(
            "cookie",
            "a=z; b=a%20b+c; bad=%zz; a=last; =x; none; q=\"quoted\"",
        )]
        .into_iter()
        .collect();
        let none = Fields::new();
        let request = request(&headers, &none);
        let got: Vec<_> = cookies(&request)
            .into_iter()
            .map(|(name, value)| {
                (
                    String::from_utf8_lossy(name).into_owned(),
                    String::from_utf8(value).unwrap(),
                )
            })
            .collect();
        let want = [("a", "last"), ("b", "a b c"), ("q", "quoted")];
        assert_eq!(got, want.map(|(n, v)| (n.to_owned(), v.to_owned())));
    }
}
