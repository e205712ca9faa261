//! Who the client is when a proxy stands before the server: `trusted_subnets`, RoadRunner's `proxy_ip_parser`.
//!
//! Each proxy adds the address that it got the request from at the right of a list. So the list is read from the right, over
//! the proxies that are trusted, up to the first address that is not one of theirs: what stands left of that was sent by the
//! client and may be invented. Nothing is taken from a peer that is not trusted itself.
//!
//! It is around everything else: log records, limits and PHP all see the same client.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use pronghorn_h1::RequestHead;
use pronghorn_pool::Seldom;
use pronghorn_wire::Fields;

use super::Parts;
use crate::addresses::{Addresses, NoSeat};
use crate::exchange::Exchange;
use crate::message::{Handled, Handler, Peer, PeerAddress, Request, Response, Unhandled};
use crate::record::Record;
use crate::settings::{Believed, ClientSettings};

/// More proxies than anybody has one after the other. Of a longer list the right end is read.
const MOST_HOPS: usize = 32;

struct Client {
    next: Arc<dyn Handler>,
    settings: ClientSettings,
    addresses: Arc<Addresses>,
    contradictions: Seldom,
    refused: Seldom,
}

/// What proxies tell of a client.
#[derive(Debug, Default, PartialEq, Eq)]
struct Told {
    ip: Option<IpAddr>,
    tls: Option<bool>,
    authority: Option<String>,
    /// Two headers name different clients, so neither counts: one of them was sent by the client itself.
    contradiction: bool,
}

/// What one proxy has added to a list.
#[derive(Debug, Default, PartialEq, Eq)]
struct Hop<'a> {
    /// `None` when it hides the address or does not know it.
    ip: Option<IpAddr>,
    proto: Option<&'a [u8]>,
    host: Option<&'a [u8]>,
}

pub(super) fn around(next: Arc<dyn Handler>, parts: Parts<'_>) -> Arc<dyn Handler> {
    let settings = &parts.settings.client;
    if settings.trusted.is_empty() {
        return next;
    }
    Arc::new(Client {
        next,
        settings: settings.clone(),
        addresses: parts.addresses.clone(),
        contradictions: Seldom::default(),
        refused: Seldom::default(),
    })
}

impl Handler for Client {
    fn handle<'a>(&'a self, mut request: Request, exchange: &'a mut dyn Exchange) -> Handled<'a> {
        let peer = &request.peer;
        let mut seat = None;
        if self.settings.trusts(peer.address.ip()) {
            let told = self.settings.told(&request.head);
            if told.contradiction
                && let Some(requests) = self.contradictions.event()
            {
                tracing::warn!(
                    target: "http", requests, proxy = %peer.address,
                    "`Forwarded` and `X-Forwarded-For` name different clients, so neither counts: name the one that the \
                     proxy sets in `http.trusted_headers`"
                );
            }
            if told.ip.is_some() || told.tls.is_some() {
                let address = told.ip.map_or(peer.address, PeerAddress::Told);
                let tls = told.tls.unwrap_or(peer.tls);
                request.peer = Arc::new(Peer::new(address, tls, peer.server));
            }
            if let Some(authority) = told.authority {
                // One that is none changes nothing.
                _ = request.head.set_authority(&authority);
            }
            seat = match told.ip.map(|ip| self.addresses.request(ip)) {
                Some(Ok(seat)) => seat,
                Some(Err(NoSeat)) => return self.refuse(&request),
                None => None,
            };
        }
        if seat.is_none() {
            return self.next.handle(request, exchange);
        }
        Box::pin(async move {
            let mut response = self.next.handle(request, exchange).await;
            response.record.get_or_insert_default().seat = seat;
            response
        })
    }

    fn unhandled(&self, request: &Unhandled<'_>) -> Option<Box<Record>> {
        self.next.unhandled(request)
    }
}

impl Client {
    /// The client has as many requests under way as it may.
    fn refuse(&self, request: &Request) -> Handled<'static> {
        if let Some(requests) = self.refused.event() {
            tracing::warn!(
                target: "http", requests, remote_address = %request.peer.address,
                "requests refused: a client has as many under way as `http.max_per_address` allows"
            );
        }
        let mut response = Response::status_only(429);
        response.fields.push("Retry-After", "1");
        response.record = self.next.unhandled(&Unhandled::of(request));
        Box::pin(std::future::ready(response))
    }
}

impl ClientSettings {
    fn believes(&self, header: &Believed) -> bool {
        self.headers.contains(header)
    }

    fn told(&self, head: &RequestHead) -> Told {
        let fields = head.fields();
        let forwarded = self.listed(&Believed::Forwarded, || forwarded(fields));
        let list = self.listed(&Believed::XForwardedFor, || addresses(fields));
        let (by_forwarded, by_list) = (self.client(&forwarded), self.client(&list));
        let mut told = Told::default();
        if let (Some((one, _)), Some((other, _))) = (by_forwarded, by_list)
            && one != other
        {
            told.contradiction = true;
            return told;
        }
        // How far from the right the proxy stands that the client is connected to, in every list.
        let mut from_right = 0;
        for header in &self.headers {
            let found = match header {
                Believed::Forwarded => by_forwarded.map(|(ip, at)| (ip, forwarded.len() - 1 - at)),
                Believed::XForwardedFor => by_list.map(|(ip, at)| (ip, list.len() - 1 - at)),
                Believed::Address(name) => {
                    let last = fields.all(name).last();
                    last.and_then(node).map(|ip| (ip, 0))
                }
                Believed::XForwardedProto | Believed::XForwardedHost | Believed::XForwardedPort => {
                    None
                }
            };
            if let Some((ip, distance)) = found {
                (told.ip, from_right) = (Some(ip), distance);
                break;
            }
        }
        let hop = by_forwarded.and_then(|(_, at)| forwarded.get(at));
        let listed = |believed: Believed, name| {
            let value = || pick(fields, name, from_right);
            self.believes(&believed).then(value).flatten()
        };
        told.tls = hop
            .and_then(|hop| hop.proto)
            .or_else(|| listed(Believed::XForwardedProto, "x-forwarded-proto"))
            .and_then(is_tls);
        let host = hop
            .and_then(|hop| hop.host)
            .filter(|_| self.believes(&Believed::XForwardedHost))
            .or_else(|| listed(Believed::XForwardedHost, "x-forwarded-host"));
        let port = listed(Believed::XForwardedPort, "x-forwarded-port");
        told.authority = authority(head.authority(), host, port, told.tls);
        told
    }

    fn listed<'a>(
        &self,
        header: &Believed,
        read: impl FnOnce() -> VecDeque<Hop<'a>>,
    ) -> VecDeque<Hop<'a>> {
        if self.believes(header) {
            read()
        } else {
            VecDeque::new()
        }
    }

    /// The first address from the right that is no proxy of ours, or the last one of ours that is known; and where it stands.
    fn client(&self, hops: &VecDeque<Hop<'_>>) -> Option<(IpAddr, usize)> {
        let mut client = None;
        for (at, hop) in hops.iter().enumerate().rev() {
            let Some(ip) = hop.ip else {
                break;
            };
            client = Some((ip, at));
            if !self.trusts(Some(ip)) {
                break;
            }
        }
        client
    }
}

/// The hops in all fields `X-Forwarded-For`, the nearest last.
fn addresses(fields: &Fields) -> VecDeque<Hop<'_>> {
    let mut hops = VecDeque::new();
    for value in fields.all("x-forwarded-for") {
        for item in value.split(|&byte| byte == b',') {
            add(
                &mut hops,
                Hop {
                    ip: node(item),
                    ..Hop::default()
                },
            );
        }
    }
    hops
}

fn add<'a>(hops: &mut VecDeque<Hop<'a>>, hop: Hop<'a>) {
    if hops.len() == MOST_HOPS {
        hops.pop_front();
    }
    hops.push_back(hop);
}

/// The hops in all fields `Forwarded` (RFC 7239), the nearest last. Of one that can't be read nothing is taken, and nothing of
/// what stands left of it: what it hides could be anything.
fn forwarded(fields: &Fields) -> VecDeque<Hop<'_>> {
    let mut hops = VecDeque::new();
    for value in fields.all("forwarded") {
        let mut rest = value;
        loop {
            let mut hop = Hop::default();
            let read = element(&mut rest, &mut hop);
            if read.is_none() {
                hops.clear();
                add(&mut hops, Hop::default());
                break;
            }
            add(&mut hops, hop);
            match rest {
                [b',', after @ ..] => rest = after,
                _ => break,
            }
        }
    }
    hops
}

/// Reads pairs up to a comma or the end. `None` when that is no element.
fn element<'a>(rest: &mut &'a [u8], hop: &mut Hop<'a>) -> Option<()> {
    loop {
        *rest = rest.trim_ascii_start();
        match rest {
            [] | [b',', ..] => return Some(()),
            [b';', after @ ..] => {
                *rest = after;
                continue;
            }
            _ => {}
        }
        let mark = rest.iter().position(|byte| b"=,;".contains(byte))?;
        let (name, after) = rest.split_at(mark);
        *rest = after.strip_prefix(b"=")?;
        let value = pair_value(rest)?;
        if name.eq_ignore_ascii_case(b"for") {
            hop.ip = node(value);
        } else if name.eq_ignore_ascii_case(b"proto") {
            hop.proto = Some(value);
        } else if name.eq_ignore_ascii_case(b"host") {
            hop.host = Some(value);
        }
        *rest = rest.trim_ascii_start();
        if !matches!(rest, [] | [b',' | b';', ..]) {
            return None;
        }
    }
}

/// A token, or what stands in quotes. Nothing that is used here needs a backslash: a value with one is not read.
fn pair_value<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    if let [b'"', inside @ ..] = *rest {
        let end = inside.iter().position(|&byte| byte == b'"')?;
        let (value, after) = inside.split_at(end);
        *rest = after.strip_prefix(b"\"")?;
        return (!value.contains(&b'\\')).then_some(value);
    }
    let end = rest.iter().position(|byte| b",; \t\"".contains(byte));
    let (value, after) = rest.split_at(end.unwrap_or(rest.len()));
    *rest = after;
    Some(value)
}

/// An address, with or without a port: `192.0.2.1`, `192.0.2.1:80`, `2001:db8::1`, `[2001:db8::1]:80`.
fn node(text: &[u8]) -> Option<IpAddr> {
    let text = std::str::from_utf8(text.trim_ascii()).ok()?;
    let is_port = |port: &str| {
        let digits = port.strip_prefix(':').unwrap_or_default();
        port.is_empty()
            || (!digits.is_empty()
                && digits.len() <= 5
                && digits.bytes().all(|b| b.is_ascii_digit()))
    };
    if let Some(inside) = text.strip_prefix('[') {
        let (address, port) = inside.split_once(']')?;
        let address: Ipv6Addr = address.parse().ok()?;
        return is_port(port).then(|| IpAddr::from(address).to_canonical());
    }
    if let Ok(address) = text.parse::<IpAddr>() {
        return Some(address.to_canonical());
    }
    let (address, _) = text.split_once(':')?;
    let address: Ipv4Addr = address.parse().ok()?;
    is_port(text.get(text.find(':')?..)?).then_some(address.into())
}

/// Of a list, the item that the proxy added which stands so far from the right; the first, when it is shorter.
fn pick<'a>(fields: &'a Fields, name: &'a str, from_right: usize) -> Option<&'a [u8]> {
    let mut near = VecDeque::with_capacity(0);
    for value in fields.all(name) {
        for item in value.split(|&byte| byte == b',') {
            if near.len() > from_right {
                near.pop_front();
            }
            near.push_back(item.trim_ascii());
        }
    }
    near.pop_front().filter(|item| !item.is_empty())
}

fn is_tls(scheme: &[u8]) -> Option<bool> {
    if scheme.eq_ignore_ascii_case(b"https") {
        return Some(true);
    }
    scheme.eq_ignore_ascii_case(b"http").then_some(false)
}

/// Host and port as the client named them to the first proxy; `None` when nothing new is told.
fn authority(
    own: &str,
    host: Option<&[u8]>,
    port: Option<&[u8]>,
    tls: Option<bool>,
) -> Option<String> {
    let port = port.and_then(|port| std::str::from_utf8(port).ok()?.parse::<u16>().ok());
    if host.is_none() && port.is_none() {
        return None;
    }
    let host = host.map_or(Some(own), |host| std::str::from_utf8(host).ok())?;
    let Some(port) = port else {
        return Some(host.to_owned());
    };
    // An address in brackets has colons of its own.
    let name_end = host.rfind(']').map_or(0, |bracket| bracket + 1);
    let bare = match host.get(name_end..).and_then(|rest| rest.rfind(':')) {
        Some(colon) => host.get(..name_end + colon).unwrap_or(host),
        None => host,
    };
    let usual = if tls == Some(true) { 443 } else { 80 };
    Some(if port == usual {
        bare.to_owned()
    } else {
        format!("{bare}:{port}")
    })
}

#[cfg(test)]
mod tests {
    use pronghorn_config::{Input, Section, Severity, Table, load};
    use proptest::prelude::*;

    use super::*;
    use crate::middleware::testing::head;

    struct Read(ClientSettings);

    impl Section for Read {
        fn read(t: &mut Table<'_>) -> Self {
            Self(ClientSettings::read(t))
        }
    }

    fn settings(yaml: &str) -> ClientSettings {
        let loaded = load(&Input::from_text("test", yaml));
        let resolved = loaded.resolve::<Read>(Severity::Error);
        resolved.into_settings().expect(yaml).0
    }

    fn told(settings: &ClientSettings, fields: &str) -> Told {
        settings.told(&head(&format!(
            "GET / HTTP/1.1\r\nHost: own:8080\r\n{fields}\r\n"
        )))
    }

    fn ip(told: &Told) -> String {
        told.ip.map_or_else(|| "-".to_owned(), |ip| ip.to_string())
    }

    const NETS: &str = "trusted_subnets: [10.0.0.0/8, 'fd00::/8', unix]\n";

    #[test]
    fn the_client_is_the_first_from_the_right_that_is_no_proxy_of_ours() {
        let settings = settings(NETS);
        for (value, client) in [
            ("192.0.2.1", "192.0.2.1"),
            ("198.51.100.7, 192.0.2.1", "192.0.2.1"),
            ("192.0.2.1, 10.0.0.2", "192.0.2.1"),
            ("198.51.100.7, 192.0.2.1, 10.0.0.2,10.0.0.3", "192.0.2.1"),
            ("10.0.0.9, 10.0.0.2", "10.0.0.9"),
            ("192.0.2.1:4711", "192.0.2.1"),
            ("[2001:db8::1]:4711, fd00::1", "2001:db8::1"),
            ("2001:db8::1", "2001:db8::1"),
            ("::ffff:192.0.2.1", "192.0.2.1"),
            // Whoever wrote what is no address hides what stands left of it.
            ("192.0.2.1, unknown, 10.0.0.2", "10.0.0.2"),
            ("192.0.2.1, unknown", "-"),
            ("192.0.2.1, ", "-"),
            ("192.0.2.1, 10.0.0.2:x", "-"),
            ("192.0.2.1, 10.0.0.2:123456", "-"),
            ("192.0.2.999", "-"),
            ("[2001:db8::1", "-"),
            ("fe80::1%eth0", "-"),
            ("127.1", "-"),
            ("0x7f.0.0.1", "-"),
            ("010.0.0.1", "-"),
        ] {
            let told = told(&settings, &format!("X-Forwarded-For: {value}\r\n"));
            assert_eq!(ip(&told), client, "{value}");
        }
        let two = "X-Forwarded-For: 198.51.100.7\r\nX-Forwarded-For: 192.0.2.1, 10.0.0.2\r\n";
        assert_eq!(ip(&told(&settings, two)), "192.0.2.1");
    }

    #[test]
    fn forwarded_is_read_by_its_rfc() {
        let settings = settings(&format!(
            "{NETS}trusted_headers: [Forwarded, X-Forwarded-Host]\n"
        ));
        for (value, client, tls, authority) in [
            ("for=192.0.2.1", "192.0.2.1", None, None),
            ("For=\"192.0.2.1:47011\"", "192.0.2.1", None, None),
            (
                "for=\"[2001:db8:cafe::17]:4711\"",
                "2001:db8:cafe::17",
                None,
                None,
            ),
            (
                "for=192.0.2.60;proto=https;by=203.0.113.43",
                "192.0.2.60",
                Some(true),
                None,
            ),
            (
                "for=192.0.2.1;host=\"a.example:8443\";proto=http",
                "192.0.2.1",
                Some(false),
                Some("a.example:8443"),
            ),
            (
                "for=198.51.100.7;proto=https, for=192.0.2.1;proto=http, for=10.0.0.2;proto=https",
                "192.0.2.1",
                Some(false),
                None,
            ),
            ("for=192.0.2.1, for=unknown", "-", None, None),
            ("for=192.0.2.1, for=_hidden", "-", None, None),
            ("for=192.0.2.1, for=\"10.0.0.2", "-", None, None),
            ("for=192.0.2.1, for=\"10.0.0.2\\\"\"", "-", None, None),
            ("for=192.0.2.1, for=10.0.0.2 x", "-", None, None),
            ("for=192.0.2.1, secret", "-", None, None),
            ("for=192.0.2.1, proto=https", "-", None, None),
            ("by=\"a,b;c\";for=192.0.2.1", "192.0.2.1", None, None),
            (";;for=192.0.2.1;", "192.0.2.1", None, None),
            ("", "-", None, None),
        ] {
            let told = told(&settings, &format!("Forwarded: {value}\r\n"));
            assert_eq!(
                (ip(&told).as_str(), told.tls, told.authority.as_deref()),
                (client, tls, authority),
                "{value}"
            );
        }
    }

    #[test]
    fn two_headers_that_contradict_each_other_count_for_nothing() {
        let settings = settings(NETS);
        let both = "Forwarded: for=198.51.100.7\r\nX-Forwarded-For: 192.0.2.1\r\nX-Forwarded-Proto: https\r\n";
        let told_both = told(&settings, both);
        assert_eq!(
            (told_both.contradiction, told_both.ip, told_both.tls),
            (true, None, None)
        );
        let alike =
            "Forwarded: for=192.0.2.1\r\nX-Forwarded-For: 192.0.2.1\r\nX-Real-Ip: 198.51.100.7\r\n";
        assert_eq!(ip(&told(&settings, alike)), "192.0.2.1");
    }

    #[test]
    fn what_is_not_listed_is_not_looked_at() {
        let only = settings(&format!("{NETS}trusted_headers: X-Real-Ip\n"));
        let all = "Forwarded: for=198.51.100.7\r\nX-Forwarded-For: 198.51.100.8\r\nX-Real-Ip: 192.0.2.1\r\n\
                   X-Forwarded-Proto: https\r\nX-Forwarded-Host: evil.example\r\n";
        let expected = Told {
            ip: "192.0.2.1".parse().ok(),
            ..Told::default()
        };
        assert_eq!(told(&only, all), expected);
        // Host and port only when they are named.
        let told = told(
            &settings(NETS),
            "X-Forwarded-Host: evil.example\r\nX-Forwarded-Port: 1\r\n",
        );
        assert_eq!(told.authority, None);
    }

    #[test]
    fn scheme_host_and_port() {
        let settings = settings(&format!(
            "{NETS}trusted_headers: [X-Forwarded-For, X-Forwarded-Proto, X-Forwarded-Host, X-Forwarded-Port]\n"
        ));
        for (fields, tls, authority) in [
            ("X-Forwarded-Proto: HTTPS\r\n", Some(true), None),
            ("X-Forwarded-Proto: ftp\r\n", None, None),
            ("X-Forwarded-Host: a.example\r\n", None, Some("a.example")),
            (
                "X-Forwarded-Host: a.example, b.example\r\n",
                None,
                Some("b.example"),
            ),
            (
                "X-Forwarded-Port: 443\r\nX-Forwarded-Proto: https\r\n",
                Some(true),
                Some("own"),
            ),
            (
                "X-Forwarded-Port: 8443\r\nX-Forwarded-Host: a.example:1\r\n",
                None,
                Some("a.example:8443"),
            ),
            (
                "X-Forwarded-Port: 81\r\nX-Forwarded-Host: [::1]\r\n",
                None,
                Some("[::1]:81"),
            ),
            ("X-Forwarded-Port: 99999\r\n", None, None),
            // Two proxies: that of the client's own connection counts.
            (
                "X-Forwarded-For: 192.0.2.1, 10.0.0.2\r\nX-Forwarded-Proto: https, http\r\n",
                Some(true),
                None,
            ),
            (
                "X-Forwarded-For: 192.0.2.1, 10.0.0.2\r\nX-Forwarded-Proto: http, https, http\r\n",
                Some(true),
                None,
            ),
            (
                "X-Forwarded-For: 192.0.2.1, 10.0.0.2\r\nX-Forwarded-Proto: https\r\n",
                Some(true),
                None,
            ),
        ] {
            let told = told(&settings, fields);
            assert_eq!(
                (told.tls, told.authority.as_deref()),
                (tls, authority),
                "{fields}"
            );
        }
    }

    #[test]
    fn who_is_trusted() {
        let settings = settings(NETS);
        let ip = |text: &str| text.parse::<IpAddr>().ok();
        assert!(
            settings.trusts(ip("10.1.2.3"))
                && settings.trusts(ip("fd00::1"))
                && settings.trusts(None)
        );
        assert!(!settings.trusts(ip("11.0.0.1")));
    }

    proptest! {
        /// Whatever stands left of what the last proxy added, the client is who that proxy saw.
        #[test]
        fn no_byte_of_a_client_moves_it(bytes in "[ -~\u{80}-\u{ff}]{0,60}") {
            let settings = settings(NETS);
            let list = told(&settings, &format!("X-Forwarded-For: {bytes},192.0.2.1, 10.0.0.2\r\n"));
            prop_assert_eq!(ip(&list), "192.0.2.1");
            let two = told(&settings, &format!("Forwarded: {bytes}\r\nForwarded: for=192.0.2.1, for=10.0.0.2\r\n"));
            prop_assert_eq!(ip(&two), "192.0.2.1");
            // In one field, what the client sent may end in an open quote: then nobody is known, and never another one.
            let one = told(&settings, &format!("Forwarded: {bytes}, for=192.0.2.1, for=10.0.0.2\r\n"));
            prop_assert!(["192.0.2.1", "-"].contains(&ip(&one).as_str()), "{}", ip(&one));
        }
    }
}
