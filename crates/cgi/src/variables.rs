//! What a script is told of its request: the variables of CGI/1.1 with the names and values that
//! nginx and php-fpm give them.
//!
//! They are one buffer of pairs, each with its two lengths before it as FastCGI writes them: it
//! goes as it is into FastCGI's records and into the frame of the native codec, and [`pairs`] reads
//! it for the environment of a process.

use std::net::SocketAddr;
use std::os::unix::ffi::OsStrExt;

use pronghorn_wire::{REMOTE_USER, Request};

use crate::site::{Script, Site};

/// A length below this takes one byte, others four with the highest bit set.
const LONG: usize = 0x80;
/// The most that four bytes hold.
const LONGEST: usize = 0x7fff_ffff;

/// Attributes that begin like this tell of the client's certificate.
const OF_CERTIFICATE: &[u8] = b"SSL_CLIENT_";

/// What a request is to its script.
#[derive(Debug, Clone, Copy)]
pub struct Variables<'a> {
    /// The request as it goes to any worker.
    pub request: &'a Request<'a>,
    /// The target as the client sent it, whatever middleware made of it.
    pub uri: (&'a [u8], Option<&'a [u8]>),
    /// Where the script lies.
    pub site: &'a Site,
    /// What answers.
    pub script: &'a Script,
    /// Of the body, in bytes; `None` where there is none.
    pub body_len: Option<u64>,
    /// The client's port, where it has one.
    pub remote_port: Option<u16>,
    /// Where the client connected to; `None` over a unix socket.
    pub server: Option<SocketAddr>,
    /// `SERVER_SOFTWARE`.
    pub software: &'a str,
}

impl Variables<'_> {
    /// Appends all of them.
    pub fn write(&self, out: &mut Vec<u8>) {
        let request = self.request;
        let root = self.site.root().as_os_str().as_bytes();
        let mut put = |name: &str, value: &[&[u8]]| push(out, name.as_bytes(), value);
        let field = |name| request.headers.get(name).unwrap_or_default();
        put("SCRIPT_FILENAME", &[root, self.script.name()]);
        put("PATH_INFO", &[self.script.info()]);
        put("QUERY_STRING", &[request.query.unwrap_or_default()]);
        put("REQUEST_METHOD", &[request.method.as_bytes()]);
        put("CONTENT_TYPE", &[field("content-type")]);
        match self.body_len {
            Some(len) => put("CONTENT_LENGTH", &[Decimal::of(len).bytes()]),
            None => put("CONTENT_LENGTH", &[]),
        }
        put("SCRIPT_NAME", &[self.site.prefix(), self.script.name()]);
        match self.uri {
            (path, Some(query)) => put("REQUEST_URI", &[path, b"?", query]),
            (path, None) => put("REQUEST_URI", &[path]),
        }
        // Without what follows the script: where nginx looks whether it is there, that is cut off.
        put("DOCUMENT_URI", &[self.site.prefix(), self.script.name()]);
        put("DOCUMENT_ROOT", &[root]);
        put("SERVER_PROTOCOL", &[request.protocol.name().as_bytes()]);
        put(
            "REQUEST_SCHEME",
            &[if request.tls { b"https" } else { b"http" }],
        );
        if request.tls {
            put("HTTPS", &[b"on"]);
        }
        put("GATEWAY_INTERFACE", &[b"CGI/1.1"]);
        put("SERVER_SOFTWARE", &[self.software.as_bytes()]);
        put("REMOTE_ADDR", &[request.remote.as_bytes()]);
        match self.remote_port {
            Some(port) => put("REMOTE_PORT", &[Decimal::of(port.into()).bytes()]),
            None => put("REMOTE_PORT", &[]),
        }
        if let Some(user) = request.attributes.get(REMOTE_USER) {
            put("REMOTE_USER", &[user]);
            put("AUTH_TYPE", &[b"Basic"]);
        }
        for (name, value) in request.attributes.iter() {
            if name.starts_with(OF_CERTIFICATE) {
                push(out, name, &[value]);
            }
        }
        let mut put = |name: &str, value: &[&[u8]]| push(out, name.as_bytes(), value);
        let (host, written_port) = split_authority(request.authority);
        let address = self.server.map(|server| server.ip().to_string());
        let address = address.as_deref().unwrap_or_default().as_bytes();
        put("SERVER_ADDR", &[address]);
        match (self.server, written_port) {
            (Some(server), _) => put("SERVER_PORT", &[Decimal::of(server.port().into()).bytes()]),
            (None, Some(port)) => put("SERVER_PORT", &[port.as_bytes()]),
            (None, None) => put("SERVER_PORT", &[if request.tls { b"443" } else { b"80" }]),
        }
        put(
            "SERVER_NAME",
            &[if host.is_empty() {
                address
            } else {
                host.as_bytes()
            }],
        );
        // Without it a PHP that was built to be careful answers nothing.
        put("REDIRECT_STATUS", &[b"200"]);
        self.write_fields(out);
    }

    /// `HTTP_…`, in the order of the request. What came in several fields is one value (RFC 3875,
    /// section 4.1.18). The host is the one that routes see, which an absolute target (RFC 9112,
    /// section 3.2.2) or a trusted proxy may name.
    fn write_fields(&self, out: &mut Vec<u8>) {
        let fields = self.request.headers;
        let mut authority = Some(self.request.authority.as_bytes()).filter(|it| !it.is_empty());
        for (number, (name, value)) in fields.iter().enumerate() {
            let value = match name {
                b"host" => authority.take().unwrap_or(value),
                _ => value,
            };
            // Programs of old take HTTP_PROXY for the address of a proxy to use.
            if name == b"proxy"
                || !name
                    .iter()
                    .all(|&byte| byte.is_ascii_alphanumeric() || byte == b'-')
            {
                continue;
            }
            let same = |(other, _): &(&[u8], &[u8])| *other == name;
            if fields.iter().take(number).any(|field| same(&field)) {
                continue;
            }
            let between: &[u8] = if name == b"cookie" { b"; " } else { b", " };
            let further = fields.iter().skip(number.saturating_add(1)).filter(same);
            let length = further
                .clone()
                .map(|(_, value)| value.len().saturating_add(between.len()));
            let length = length.fold(value.len(), usize::saturating_add);
            if name.len() > LONGEST - 5 || length > LONGEST {
                continue;
            }
            push_len(out, name.len().saturating_add(5));
            push_len(out, length);
            out.extend_from_slice(b"HTTP_");
            out.extend(name.iter().map(|byte| match byte {
                b'-' => b'_',
                byte => byte.to_ascii_uppercase(),
            }));
            out.extend_from_slice(value);
            for (_, value) in further {
                out.extend_from_slice(between);
                out.extend_from_slice(value);
            }
        }
        if let Some(authority) = authority {
            push(out, b"HTTP_HOST", &[authority]);
        }
    }
}

/// Appends a variable whose value is these parts. One that is longer than can be written is left
/// out.
pub fn push(out: &mut Vec<u8>, name: &[u8], value: &[&[u8]]) {
    let length = value.iter().map(|part| part.len());
    let length = length.fold(0, usize::saturating_add);
    if name.len() > LONGEST || length > LONGEST {
        return;
    }
    push_len(out, name.len());
    push_len(out, length);
    out.extend_from_slice(name);
    for part in value {
        out.extend_from_slice(part);
    }
}

fn push_len(out: &mut Vec<u8>, len: usize) {
    match u8::try_from(len) {
        Ok(short) if len < LONG => out.push(short),
        _ => {
            let long = u32::try_from(len).unwrap_or(u32::MAX) | 0x8000_0000;
            out.extend_from_slice(&long.to_be_bytes());
        }
    }
}

/// Reads what [`Variables::write`] and [`push`] wrote: names and values in their order. Ends where
/// the bytes are no pair.
pub fn pairs(mut block: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    std::iter::from_fn(move || {
        let name_len = take_len(&mut block)?;
        let value_len = take_len(&mut block)?;
        let name = take(&mut block, name_len)?;
        Some((name, take(&mut block, value_len)?))
    })
}

fn take_len(block: &mut &[u8]) -> Option<usize> {
    let &first = block.first()?;
    if usize::from(first) < LONG {
        *block = block.get(1..)?;
        return Some(first.into());
    }
    let (long, rest) = block.split_first_chunk::<4>()?;
    *block = rest;
    usize::try_from(u32::from_be_bytes(*long) & 0x7fff_ffff).ok()
}

fn take<'a>(block: &mut &'a [u8], len: usize) -> Option<&'a [u8]> {
    let (taken, rest) = block.split_at_checked(len)?;
    *block = rest;
    Some(taken)
}

/// Host and port of `host:port`; the brackets of an IPv6 address are part of the host.
fn split_authority(authority: &str) -> (&str, Option<&str>) {
    match authority.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
        _ => (authority, None),
    }
}

/// A number as text, without an allocation.
struct Decimal {
    digits: [u8; 20],
    start: usize,
}

impl Decimal {
    fn of(mut number: u64) -> Self {
        let mut decimal = Self {
            digits: [b'0'; 20],
            start: 20,
        };
        for (place, digit) in decimal.digits.iter_mut().enumerate().rev() {
            *digit = b'0' | u8::try_from(number % 10).unwrap_or_default();
            decimal.start = place;
            number /= 10;
            if number == 0 {
                break;
            }
        }
        decimal
    }

    fn bytes(&self) -> &[u8] {
        self.digits.get(self.start..).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use pronghorn_wire::{Fields, Protocol};
    use proptest::prelude::*;

    use super::*;
    use crate::site::{Found, Target};

    fn variables_of(
        path: &str,
        query: Option<&str>,
        headers: &[(&str, &str)],
        body: Option<u64>,
    ) -> Vec<(String, String)> {
        let headers: Fields = headers.iter().copied().collect();
        let attributes = Fields::new();
        let request = Request {
            method: "POST",
            tls: true,
            authority: "shop.example:8443",
            path: path.as_bytes(),
            query: query.map(str::as_bytes),
            protocol: Protocol::Http11,
            remote: "192.0.2.7",
            headers: &headers,
            attributes: &attributes,
            accepted_us: 0,
        };
        let site = Site::new(
            PathBuf::from("/srv/shop"),
            vec!["index.php".into()],
            Some("index.php"),
        );
        let target = site.resolve(path.as_bytes(), |path| {
            Ok::<_, ()>(if path == b"a.php" {
                Found::File
            } else {
                Found::Nothing
            })
        });
        let Ok(Target::Script(script)) = target else {
            panic!("{target:?}")
        };
        let mut block = Vec::new();
        let variables = Variables {
            request: &request,
            uri: (request.path, request.query),
            site: &site,
            script: &script,
            body_len: body,
            remote_port: Some(50_123),
            server: Some("[2001:db8::1]:8443".parse().unwrap()),
            software: "pronghorn/1.2.3",
        };
        variables.write(&mut block);
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        pairs(&block)
            .map(|(name, value)| (text(name), text(value)))
            .collect()
    }

    #[test]
    fn a_script_is_told_what_it_is_told_by_nginx() {
        let headers = [
            ("host", "shop.example:8443"),
            ("content-type", "text/plain"),
            ("cookie", "a=1"),
            ("accept-language", "de"),
            ("proxy", "http://evil.example"),
            ("x.y", "1"),
            ("cookie", "b=2"),
            ("x-forwarded-for", "1.1.1.1"),
            ("x-forwarded-for", "2.2.2.2"),
        ];
        let all = variables_of("/a.php/more/x", Some("q=%20"), &headers, Some(12));
        let expected = [
            ("SCRIPT_FILENAME", "/srv/shop/a.php"),
            ("PATH_INFO", "/more/x"),
            ("QUERY_STRING", "q=%20"),
            ("REQUEST_METHOD", "POST"),
            ("CONTENT_TYPE", "text/plain"),
            ("CONTENT_LENGTH", "12"),
            ("SCRIPT_NAME", "/a.php"),
            ("REQUEST_URI", "/a.php/more/x?q=%20"),
            ("DOCUMENT_URI", "/a.php"),
            ("DOCUMENT_ROOT", "/srv/shop"),
            ("SERVER_PROTOCOL", "HTTP/1.1"),
            ("REQUEST_SCHEME", "https"),
            ("HTTPS", "on"),
            ("GATEWAY_INTERFACE", "CGI/1.1"),
            ("SERVER_SOFTWARE", "pronghorn/1.2.3"),
            ("REMOTE_ADDR", "192.0.2.7"),
            ("REMOTE_PORT", "50123"),
            ("SERVER_ADDR", "2001:db8::1"),
            ("SERVER_PORT", "8443"),
            ("SERVER_NAME", "shop.example"),
            ("REDIRECT_STATUS", "200"),
            ("HTTP_HOST", "shop.example:8443"),
            ("HTTP_CONTENT_TYPE", "text/plain"),
            ("HTTP_COOKIE", "a=1; b=2"),
            ("HTTP_ACCEPT_LANGUAGE", "de"),
            ("HTTP_X_FORWARDED_FOR", "1.1.1.1, 2.2.2.2"),
        ];
        let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(all, expected);
    }

    #[test]
    fn the_host_is_the_one_that_routes_see() {
        let host_of = |headers: &[(&str, &str)]| {
            let all = variables_of("/a.php", None, headers, None);
            let mut hosts = all.into_iter().filter(|(name, _)| name == "HTTP_HOST");
            let host = hosts.next().map(|(_, value)| value);
            assert_eq!(hosts.next(), None);
            host
        };
        // `authority` of the request is that of an absolute target, or of a trusted proxy.
        let expected = Some("shop.example:8443".to_owned());
        assert_eq!(host_of(&[("host", "admin.example")]), expected);
        assert_eq!(host_of(&[("accept", "*/*"), ("host", "")]), expected);
        assert_eq!(host_of(&[("accept", "*/*")]), expected);
    }

    #[test]
    fn what_there_is_not_is_empty() {
        let all = variables_of("/a.php", None, &[], None);
        let value = |wanted: &str| {
            let found = all.iter().find(|(name, _)| name == wanted);
            found.map(|(_, value)| value.as_str())
        };
        for name in [
            "CONTENT_LENGTH",
            "CONTENT_TYPE",
            "QUERY_STRING",
            "PATH_INFO",
        ] {
            assert_eq!(value(name), Some(""), "{name}");
        }
        assert_eq!(value("REQUEST_URI"), Some("/a.php"));
    }

    #[test]
    fn numbers_and_hosts() {
        for number in [0, 7, 10, 80, 65_535, u64::MAX] {
            assert_eq!(Decimal::of(number).bytes(), number.to_string().as_bytes());
        }
        assert_eq!(split_authority("a:80"), ("a", Some("80")));
        assert_eq!(split_authority("[::1]"), ("[::1]", None));
        assert_eq!(split_authority("[::1]:8"), ("[::1]", Some("8")));
        assert_eq!(split_authority(""), ("", None));
    }

    proptest! {
        #[test]
        fn pairs_come_back_as_they_were(all in prop::collection::vec(
            (prop::collection::vec(any::<u8>(), 0..300), prop::collection::vec(any::<u8>(), 0..300)), 0..8,
        )) {
            let mut block = Vec::new();
            for (name, value) in &all {
                push(&mut block, name, &[value]);
            }
            let read: Vec<_> = pairs(&block).map(|(n, v)| (n.to_vec(), v.to_vec())).collect();
            prop_assert_eq!(read, all);
        }

        #[test]
        fn any_bytes_end(block in prop::collection::vec(any::<u8>(), 0..100)) {
            prop_assert!(pairs(&block).count() <= block.len());
        }
    }
}
