//! The host that a request is for: one check and one form of it, whatever version of HTTP it came
//! by, for all who compare hosts.

use std::borrow::Cow;
use std::net::Ipv6Addr;

use crate::refusal::Refusal;

/// A host without its port, as it is compared: in lower case, without the dot that makes a name
/// absolute, without needless percent codes, an IPv6 address as RFC 5952 writes it. Of what no
/// request may have, it is just something.
pub fn host_of(authority: &str) -> Cow<'_, str> {
    let (host, _) = split_port(authority);
    if let Some(address) = bracketed(host) {
        return match address.parse::<Ipv6Addr>() {
            Ok(address) => Cow::Owned(format!("[{address}]")),
            Err(_) => Cow::Borrowed(host),
        };
    }
    let mut host = Cow::Borrowed(host);
    if host.contains('%') {
        host = Cow::Owned(decoded(&host));
    }
    if host.bytes().any(|byte| byte.is_ascii_uppercase()) {
        host.to_mut().make_ascii_lowercase();
    }
    match host {
        Cow::Borrowed(host) => Cow::Borrowed(host.strip_suffix('.').unwrap_or(host)),
        Cow::Owned(mut host) => {
            if host.ends_with('.') {
                host.pop();
            }
            Cow::Owned(host)
        }
    }
}

/// Whether a request may be for this host.
pub fn is_host(authority: &str) -> bool {
    check(authority.as_bytes()).is_ok()
}

/// Host and port of RFC 3986, section 3.2, without user information: what lands in URIs and is
/// compared with routes. Also an empty one. A comma is none: it stands between two hosts.
pub(super) fn check(authority: &[u8]) -> Result<(), Refusal> {
    const BAD: Refusal = Refusal::Host("no host name");
    if is_plain(authority) {
        return Ok(());
    }
    let authority = std::str::from_utf8(authority).map_err(|_| BAD)?;
    let (host, port) = split_port(authority);
    let port_ok = port.len() <= 5 && port.bytes().all(|byte| byte.is_ascii_digit());
    let host_ok = match bracketed(host) {
        Some(address) => address.parse::<Ipv6Addr>().is_ok(),
        None if !is_name(host.as_bytes()) => false,
        None if host.contains('%') => has_labels(&decoded(host)),
        None => has_labels(host),
    };
    if host_ok && port_ok { Ok(()) } else { Err(BAD) }
}

/// Most hosts, in one go: labels of letters, digits and hyphens, and a port.
fn is_plain(authority: &[u8]) -> bool {
    let mut is_in_label = false;
    for (at, byte) in authority.iter().enumerate() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' => is_in_label = true,
            b'.' if is_in_label => is_in_label = false,
            b':' if is_in_label => {
                let port = authority.get(at.saturating_add(1)..).unwrap_or_default();
                return port.len() <= 5 && port.iter().all(u8::is_ascii_digit);
            }
            _ => return false,
        }
    }
    is_in_label
}

/// The port is what follows the last colon, which is none of an IPv6 address; empty for none.
fn split_port(authority: &str) -> (&str, &str) {
    match authority.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, port),
        _ => (authority, ""),
    }
}

fn bracketed(host: &str) -> Option<&str> {
    host.strip_prefix('[')?.strip_suffix(']')
}

/// Whether no label is empty, but for that of the root, after the last dot.
fn has_labels(host: &str) -> bool {
    let name = host.strip_suffix('.').unwrap_or(host);
    host.is_empty() || name.split('.').all(|label| !label.is_empty())
}

/// The `reg-name` of RFC 3986, section 3.2.2: a percent sign begins a code.
fn is_name(mut host: &[u8]) -> bool {
    loop {
        host = match host {
            [] => return true,
            [b'%', high, low, rest @ ..] if [high, low].iter().all(|it| it.is_ascii_hexdigit()) => {
                rest
            }
            [byte, rest @ ..]
                if byte.is_ascii_alphanumeric() || b"-._~!$&'()*+;=".contains(byte) =>
            {
                rest
            }
            _ => return false,
        };
    }
}

/// Codes of letters, digits and `-._~` mean just these (RFC 3986, section 6.2.2.2).
fn decoded(host: &str) -> String {
    let mut out = String::with_capacity(host.len());
    let mut parts = host.split('%');
    out.push_str(parts.next().unwrap_or_default());
    for part in parts {
        let code = part
            .get(..2)
            .and_then(|hex| u8::from_str_radix(hex, 16).ok());
        let plain = code.filter(|byte| byte.is_ascii_alphanumeric() || b"-._~".contains(byte));
        if let Some(byte) = plain {
            out.push(char::from(byte));
            out.push_str(part.get(2..).unwrap_or_default());
        } else {
            out.push('%');
            out.push_str(part);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_plain_one_is_one_that_the_grammar_has(authority in "[a-zA-Z0-9:.%_-]{0,12}") {
            if is_plain(authority.as_bytes()) {
                let (host, port) = split_port(&authority);
                prop_assert!(is_name(host.as_bytes()) && has_labels(host));
                prop_assert!(port.len() <= 5 && port.bytes().all(|byte| byte.is_ascii_digit()));
            }
        }
    }

    #[test]
    fn a_host_has_one_form() {
        for (written, host) in [
            ("example.org", "example.org"),
            ("Example.ORG.:8080", "example.org"),
            ("example.org:", "example.org"),
            ("ex%61mple%2eORG%2E", "example.org"),
            ("%C3%a4.example", "%c3%a4.example"),
            ("[::1]", "[::1]"),
            ("[0:0:0:0:0:0:0:1]:80", "[::1]"),
            ("[2001:DB8::0001]", "[2001:db8::1]"),
            ("[::ffff:7f00:1]", "[::ffff:127.0.0.1]"),
            ("127.0.0.1:80", "127.0.0.1"),
            ("", ""),
            (":80", ""),
        ] {
            assert_eq!(check(written.as_bytes()), Ok(()), "{written}");
            let once = host_of(written);
            assert_eq!(once, host, "{written}");
            assert_eq!(host_of(&once), once, "{written}");
        }
    }

    #[test]
    fn some_are_none() {
        for written in [
            ".",
            "..",
            ".example.org",
            "a..b",
            "example.org..",
            "example.org..:80",
            "a%2e%2Eb",
            "a,b",
            "a%",
            "a b",
            "a/b",
            "u@a",
            "a:80x",
            "a:1:2",
            "a:123456",
            "[::1",
            "::1",
            "[]",
            "[::1]x",
            "[::1]:80x",
            "[1::2::3]",
            "[127.0.0.1]",
            "[v1.a]",
            "[::1%25lo]",
            "a]",
            "[a",
        ] {
            assert!(check(written.as_bytes()).is_err(), "{written}");
        }
        assert!(check(b"\xe9").is_err());
    }
}
