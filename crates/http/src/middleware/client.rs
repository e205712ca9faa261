//! Who the client is when a proxy stands before the server: `trusted_subnets`, RoadRunner's
//! `proxy_ip_parser`. `docs/reference/trusted-proxies.md` has the rules as a table.
//!
//! Each proxy adds the address that it got the request from at the right of a list. So the list is
//! read from the right, over the proxies that are trusted, up to the first address that is not one
//! of theirs: what stands left of that was sent by the client and may be invented. Nothing is taken
//! from a peer that is not trusted itself.
//!
//! A client can send whatever its proxy neither sets nor clears. Of headers that name the client,
//! those that are listed and there must agree: then one that the proxy sets is enough to keep a
//! forged one out. Where they do not, or what the last proxy says is no address, the request is
//! refused: with the proxy's own address in its place, a client could choose to be `127.0.0.1`.
//!
//! It is around everything else: log records, limits and PHP all see the same client.

use std::collections::VecDeque;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use pronghorn_base::LogThrottle;
use pronghorn_h1::RequestHead;
use pronghorn_serve::{
    Addresses, Exchange, Handled, Handler, NoPermit, OnSent, Peer, PeerAddress, Request, Response,
    Unhandled,
};
use pronghorn_wire::Fields;

use super::parts::Parts;
use crate::settings::{Believed, ClientSettings};

/// More proxies than anybody has one after the other. Of a longer list the right end is read.
const MOST_HOPS: usize = 32;

const FORWARDED: &str = "Forwarded";
const X_FORWARDED_FOR: &str = "X-Forwarded-For";

struct Client {
    next: Arc<dyn Handler>,
    settings: ClientSettings,
    addresses: Arc<Addresses>,
    doubtful: LogThrottle,
    refused: LogThrottle,
}

/// What proxies tell of a client.
#[derive(Debug, Default, PartialEq, Eq)]
struct Told {
    ip: Option<IpAddr>,
    tls: Option<bool>,
    authority: Option<String>,
}

/// Why what they tell can't be taken: one part of it was sent by the client, or a proxy hides who
/// that is.
#[derive(Debug, PartialEq, Eq)]
enum Doubt<'a> {
    NoAddress(&'a str),
    Differ(&'a str, &'a str),
}

impl fmt::Display for Doubt<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoAddress(header) => write!(
                f,
                "the proxy's `{header}` names no address (hint: let it set that header, list \
                 another one that it sets in `http.trusted_headers`, or take it out of \
                 `http.trusted_subnets`)"
            ),
            Self::Differ(one, other) => write!(
                f,
                "`{one}` and `{other}` contradict each other (hint: list in `http.trusted_headers` \
                 only what the proxy sets, and all your proxies in `http.trusted_subnets`)"
            ),
        }
    }
}

/// Who a proxy got a request from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Node {
    Ip(IpAddr),
    /// A client of a unix socket, as nginx writes it: `unix:`.
    Unix,
    /// It is not told: `unknown`, `_name`, nothing.
    Hidden,
    /// No address at all.
    Broken,
}

/// What one proxy has added to a list.
#[derive(Debug, PartialEq, Eq)]
struct Hop<'a> {
    node: Node,
    proto: Option<&'a [u8]>,
    host: Option<&'a [u8]>,
}

type Hops<'a> = VecDeque<Hop<'a>>;

/// What a list says when it is read from the right.
struct Walk<'a> {
    hops: Hops<'a>,
    /// `None` for a client of a unix socket.
    ip: Option<IpAddr>,
    /// How far from the right the proxy stands that the client is connected to.
    from_right: usize,
}

impl Walk<'_> {
    /// Whether it is the client or a proxy behind it.
    fn has_seen(&self, node: Node) -> bool {
        let mut seen = self.hops.iter().rev().take(self.from_right + 1);
        seen.any(|hop| hop.node == node)
    }

    fn client(&self) -> Option<&Hop<'_>> {
        self.hops.iter().rev().nth(self.from_right)
    }
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
        doubtful: LogThrottle::default(),
        refused: LogThrottle::default(),
    })
}

impl Handler for Client {
    fn handle<'a>(&'a self, mut request: Request, exchange: &'a mut dyn Exchange) -> Handled<'a> {
        let peer = &request.peer;
        let mut permit = None;
        if self.settings.trusts(peer.address.ip()) {
            let told = match self.settings.told(&request.head) {
                Ok(told) => told,
                Err(doubt) => return self.doubt(&request, &doubt),
            };
            if told.ip.is_some() || told.tls.is_some() {
                let address = told.ip.map_or(peer.address, PeerAddress::Told);
                let tls = told.tls.unwrap_or(peer.tls);
                request.peer = Arc::new(Peer::new(address, tls, peer.server));
            }
            if let Some(authority) = told.authority {
                // One that is none changes nothing.
                _ = request.head.set_authority(&authority);
            }
            permit = match told.ip.map(|ip| self.addresses.request(ip)) {
                Some(Ok(permit)) => permit,
                Some(Err(NoPermit)) => return self.refuse(&request),
                None => None,
            };
        }
        if permit.is_none() {
            return self.next.handle(request, exchange);
        }
        Box::pin(async move {
            let mut response = self.next.handle(request, exchange).await;
            if let Some(permit) = permit {
                response.when_sent(Arc::new(permit));
            }
            response
        })
    }

    fn unhandled(&self, request: &Unhandled<'_>) -> Option<Arc<dyn OnSent>> {
        self.next.unhandled(request)
    }

    fn without_tls(&self, request: &Request) -> Option<Response> {
        self.next.without_tls(request)
    }
}

impl Client {
    /// Nobody can say who the client is.
    fn doubt(&self, request: &Request, doubt: &Doubt<'_>) -> Handled<'static> {
        if let Some(requests) = self.doubtful.should_log() {
            tracing::warn!(
                target: "http", requests, proxy = %request.peer.address,
                "requests refused: the client's address is unclear: {doubt}"
            );
        }
        self.answer(request, Response::status_only(400))
    }

    /// The client has as many requests under way as it may.
    fn refuse(&self, request: &Request) -> Handled<'static> {
        if let Some(requests) = self.refused.should_log() {
            tracing::warn!(
                target: "http", requests, remote_address = %request.peer.address,
                "requests refused: a client has reached `http.max_per_address`"
            );
        }
        let mut response = Response::status_only(429);
        response.fields.push("Retry-After", "1");
        self.answer(request, response)
    }

    fn answer(&self, request: &Request, mut response: Response) -> Handled<'static> {
        response.on_sent = self.next.unhandled(&Unhandled::of(request));
        Box::pin(std::future::ready(response))
    }
}

impl ClientSettings {
    fn believes(&self, header: &Believed) -> bool {
        self.headers.contains(header)
    }

    fn told(&self, head: &RequestHead) -> Result<Told, Doubt<'_>> {
        let fields = head.fields();
        let forwarded = self.listed(&Believed::Forwarded, || forwarded(fields))?;
        let list = self.listed(&Believed::XForwardedFor, || addresses(fields))?;
        if let (Some(one), Some(other)) = (&forwarded, &list)
            && one.ip != other.ip
        {
            return Err(Doubt::Differ(FORWARDED, X_FORWARDED_FOR));
        }
        let mut single: Option<(&str, Node)> = None;
        for header in &self.headers {
            let Believed::Address(name) = header else {
                continue;
            };
            let Some(node) = last_address(fields, name) else {
                continue;
            };
            if !self.is_known(node) {
                return Err(Doubt::NoAddress(name));
            }
            // A list tells more: of proxies in a row, the last one often names its neighbour.
            for (listed, walk) in [(FORWARDED, &forwarded), (X_FORWARDED_FOR, &list)] {
                if walk.as_ref().is_some_and(|walk| !walk.has_seen(node)) {
                    return Err(Doubt::Differ(listed, name));
                }
            }
            match single {
                Some((other, seen)) if seen != node && forwarded.is_none() && list.is_none() => {
                    return Err(Doubt::Differ(other, name));
                }
                Some(_) => {}
                None => single = Some((name, node)),
            }
        }
        let walk = list.as_ref().or(forwarded.as_ref());
        let ip = match (walk, single) {
            (Some(walk), _) => walk.ip,
            (None, Some((_, Node::Ip(ip)))) => Some(ip),
            (None, _) => None,
        };
        let from_right = walk.map_or(0, |walk| walk.from_right);
        // Scheme, host and port are of the proxy that names the client: without that one, anybody
        // could have sent them.
        let has_company = if self.believes(&Believed::XForwardedFor) {
            list.is_some()
        } else {
            forwarded.is_some() || single.is_some() || !self.names_clients()
        };
        let field = |believed: Believed, name| {
            let value = || pick(fields, name, from_right);
            (has_company && self.believes(&believed))
                .then(value)
                .flatten()
        };
        // Of two lists the client may have sent one: then both have to say it.
        let is_one = forwarded.is_none() || list.is_none();
        let hop = forwarded.as_ref().and_then(Walk::client);
        let tls = both(
            hop.and_then(|hop| hop.proto).and_then(is_tls),
            field(Believed::XForwardedProto, "x-forwarded-proto").and_then(is_tls),
            is_one,
        );
        let tls = tls.map_err(|Contradiction| Doubt::Differ(FORWARDED, "X-Forwarded-Proto"))?;
        let host = both(
            hop.and_then(|hop| hop.host)
                .filter(|_| self.believes(&Believed::XForwardedHost)),
            field(Believed::XForwardedHost, "x-forwarded-host"),
            is_one,
        );
        let host = host.map_err(|Contradiction| Doubt::Differ(FORWARDED, "X-Forwarded-Host"))?;
        let port = field(Believed::XForwardedPort, "x-forwarded-port");
        Ok(Told {
            ip,
            tls,
            authority: authority(head.authority(), host, port, tls),
        })
    }

    /// What one of the two lists says, if it is believed and there.
    fn listed<'a>(
        &self,
        header: &Believed,
        read: impl FnOnce() -> Hops<'a>,
    ) -> Result<Option<Walk<'a>>, Doubt<'static>> {
        if !self.believes(header) {
            return Ok(None);
        }
        let hops = read();
        if hops.is_empty() {
            return Ok(None);
        }
        let name = match header {
            Believed::Forwarded => FORWARDED,
            _ => X_FORWARDED_FOR,
        };
        self.walk(hops).map(Some).ok_or(Doubt::NoAddress(name))
    }

    /// Up to the first from the right that is no proxy of ours, or else the last one of ours that
    /// is known. `None` where the nearest proxy names nobody, or what it passes on can't be read.
    fn walk<'a>(&self, hops: Hops<'a>) -> Option<Walk<'a>> {
        let mut found = None;
        for (from_right, hop) in hops.iter().rev().enumerate() {
            match hop.node {
                Node::Broken => return None,
                node if !self.is_known(node) => break,
                Node::Ip(ip) => {
                    found = Some((Some(ip), from_right));
                    if !self.trusts(Some(ip)) {
                        break;
                    }
                }
                // It is a proxy of ours without an address.
                _ => found = Some((None, from_right)),
            }
        }
        let (ip, from_right) = found?;
        Some(Walk {
            hops,
            ip,
            from_right,
        })
    }

    fn is_known(&self, node: Node) -> bool {
        match node {
            Node::Ip(_) => true,
            Node::Unix => self.trusts(None),
            Node::Hidden | Node::Broken => false,
        }
    }
}

struct Contradiction;

/// What two say who must not contradict each other. What only one of them says counts if it is
/// `alone`.
fn both<T: PartialEq>(
    one: Option<T>,
    other: Option<T>,
    alone: bool,
) -> Result<Option<T>, Contradiction> {
    match (one, other) {
        (Some(one), Some(other)) if one == other => Ok(Some(one)),
        (Some(_), Some(_)) => Err(Contradiction),
        (one, other) => Ok(one.or(other).filter(|_| alone)),
    }
}

/// The hops in all fields `X-Forwarded-For`, the nearest last; none when it is empty.
fn addresses(fields: &Fields) -> Hops<'_> {
    let mut hops = VecDeque::new();
    let mut is_empty = true;
    for value in fields.all("x-forwarded-for") {
        for item in value.split(|&byte| byte == b',') {
            is_empty &= item.trim_ascii().is_empty();
            let node = node(item);
            add(
                &mut hops,
                Hop {
                    node,
                    proto: None,
                    host: None,
                },
            );
        }
    }
    if is_empty {
        hops.clear();
    }
    hops
}

/// What a field with one address says; of several, and of a list, the last, which the nearest proxy
/// added. `None` when it is empty.
fn last_address(fields: &Fields, name: &str) -> Option<Node> {
    let last = fields.all(name).last()?;
    let item = last.rsplit(|&byte| byte == b',').next().unwrap_or(last);
    (!last.trim_ascii().is_empty()).then(|| node(item))
}

fn add<'a>(hops: &mut Hops<'a>, hop: Hop<'a>) {
    if hops.len() == MOST_HOPS {
        hops.pop_front();
    }
    hops.push_back(hop);
}

/// The hops in all fields `Forwarded` (RFC 7239), the nearest last. Of a field that can't be read
/// nothing is taken, and nothing of what stands left of it: what it hides could be anything.
fn forwarded(fields: &Fields) -> Hops<'_> {
    let mut hops = VecDeque::new();
    for value in fields.all("forwarded") {
        let mut rest = value;
        while !rest.trim_ascii().is_empty() {
            let Some(hop) = element(&mut rest) else {
                hops.clear();
                let broken = Hop {
                    node: Node::Broken,
                    proto: None,
                    host: None,
                };
                add(&mut hops, broken);
                break;
            };
            add(&mut hops, hop);
            rest = rest.strip_prefix(b",").unwrap_or_default();
        }
    }
    hops
}

/// Reads pairs up to a comma or the end. `None` when that is no element: each name stands in it at
/// most once (RFC 7239 4).
fn element<'a>(rest: &mut &'a [u8]) -> Option<Hop<'a>> {
    let (mut client, mut proto, mut host) = (None, None, None);
    loop {
        *rest = rest.trim_ascii_start();
        match rest {
            [] | [b',', ..] => break,
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
        let place = if name.eq_ignore_ascii_case(b"for") {
            Some(&mut client)
        } else if name.eq_ignore_ascii_case(b"proto") {
            Some(&mut proto)
        } else if name.eq_ignore_ascii_case(b"host") {
            Some(&mut host)
        } else {
            None
        };
        if place.is_some_and(|place| place.replace(value).is_some()) {
            return None;
        }
        *rest = rest.trim_ascii_start();
        if !matches!(rest, [] | [b',' | b';', ..]) {
            return None;
        }
    }
    Some(Hop {
        node: client.map_or(Node::Hidden, node),
        proto,
        host,
    })
}

/// A token, or what stands in quotes. Nothing that is used here needs a backslash: a value with one
/// is not read.
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

/// An address, with or without a port: `192.0.2.1`, `192.0.2.1:80`, `2001:db8::1`,
/// `[2001:db8::1]:80`; or what stands for one (RFC 7239 6). A port may be hidden, too.
fn node(text: &[u8]) -> Node {
    let text = text.trim_ascii();
    match text {
        b"" | [b'_', ..] => return Node::Hidden,
        b"unix:" => return Node::Unix,
        _ if text.eq_ignore_ascii_case(b"unknown") => return Node::Hidden,
        _ => {}
    }
    let text = std::str::from_utf8(text).ok();
    text.and_then(address).map_or(Node::Broken, Node::Ip)
}

fn address(text: &str) -> Option<IpAddr> {
    let is_port = |port: &str| {
        let port = port.strip_prefix(':');
        port.is_some_and(|port| match port.strip_prefix('_') {
            Some(name) => !name.is_empty() && name.bytes().all(is_of_name),
            None => port.bytes().all(|b| b.is_ascii_digit()) && port.parse::<u16>().is_ok(),
        })
    };
    if let Some(inside) = text.strip_prefix('[') {
        let (address, port) = inside.split_once(']')?;
        let address: Ipv6Addr = address.parse().ok()?;
        return (port.is_empty() || is_port(port)).then(|| IpAddr::from(address).to_canonical());
    }
    if let Ok(address) = text.parse::<IpAddr>() {
        return Some(address.to_canonical());
    }
    let (address, port) = text.split_at(text.find(':')?);
    let address: Ipv4Addr = address.parse().ok()?;
    is_port(port).then_some(address.into())
}

fn is_of_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"._-".contains(&byte)
}

/// Of a list, the item that the proxy added which stands so far from the right; the first, when it
/// is shorter.
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

/// `wss` is what Traefik says of an upgrade to a WebSocket.
fn is_tls(scheme: &[u8]) -> Option<bool> {
    let is = |name: &[u8]| scheme.eq_ignore_ascii_case(name);
    if is(b"https") || is(b"wss") {
        return Some(true);
    }
    (is(b"http") || is(b"ws")).then_some(false)
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

    fn told(settings: &ClientSettings, fields: &str) -> Result<Told, String> {
        let head = head(&format!("GET / HTTP/1.1\r\nHost: own:8080\r\n{fields}\r\n"));
        settings.told(&head).map_err(|doubt| doubt.to_string())
    }

    /// `-` is the proxy's own, because nothing is told.
    fn ip(told: &Result<Told, String>) -> String {
        match told {
            Ok(told) => told.ip.map_or_else(|| "-".to_owned(), |ip| ip.to_string()),
            Err(_) => "400".to_owned(),
        }
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
            ("192.0.2.1:_port", "192.0.2.1"),
            // Whoever wrote what is no address hides what stands left of it.
            ("192.0.2.1, unknown, 10.0.0.2", "10.0.0.2"),
            ("192.0.2.1, _hidden, 10.0.0.2", "10.0.0.2"),
            ("192.0.2.1, , 10.0.0.2", "10.0.0.2"),
            ("192.0.2.1, unix:, 10.0.0.2", "192.0.2.1"),
            ("192.0.2.1, unix:", "192.0.2.1"),
            ("unix:", "-"),
            ("", "-"),
            ("192.0.2.1, Unknown", "400"),
            ("192.0.2.1, _hidden", "400"),
            ("192.0.2.1, ", "400"),
            ("192.0.2.1, evil, 10.0.0.2", "400"),
            ("192.0.2.1, 10.0.0.2:x", "400"),
            ("192.0.2.1, 10.0.0.2:", "400"),
            ("192.0.2.1, 10.0.0.2:_", "400"),
            ("192.0.2.1, 10.0.0.2:123456", "400"),
            ("192.0.2.999", "400"),
            ("[2001:db8::1", "400"),
            ("fe80::1%eth0", "400"),
            ("127.1", "400"),
            ("0x7f.0.0.1", "400"),
            ("010.0.0.1", "400"),
            ("for=192.0.2.1", "400"),
            ("\"192.0.2.1\"", "400"),
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
            ("for=192.0.2.1, for=unknown", "400", None, None),
            ("for=192.0.2.1, for=_hidden", "400", None, None),
            ("for=192.0.2.1, for=\"_hidden\"", "400", None, None),
            (
                "for=192.0.2.1, for=unknown, for=10.0.0.2",
                "10.0.0.2",
                None,
                None,
            ),
            ("for=192.0.2.1, for=\"10.0.0.2", "400", None, None),
            ("for=\"a, for=192.0.2.1, for=10.0.0.2", "400", None, None),
            ("for=192.0.2.1, for=\"10.0.0.2\\\"\"", "400", None, None),
            ("for=192.0.2.1, for=10.0.0.2 x", "400", None, None),
            ("for=192.0.2.1, secret", "400", None, None),
            ("for=192.0.2.1, proto=https", "400", None, None),
            ("for=192.0.2.1;for=192.0.2.2", "400", None, None),
            ("for=192.0.2.1;proto=http;proto=https", "400", None, None),
            ("for=192.0.2.1;proto=wss", "192.0.2.1", Some(true), None),
            ("for=2001:db8::1", "2001:db8::1", None, None),
            ("by=\"a,b;c\";for=192.0.2.1", "192.0.2.1", None, None),
            (";;for=192.0.2.1;", "192.0.2.1", None, None),
            ("", "-", None, None),
        ] {
            let told = told(&settings, &format!("Forwarded: {value}\r\n"));
            let ip = ip(&told);
            let told = told.unwrap_or_default();
            assert_eq!(
                (ip.as_str(), told.tls, told.authority.as_deref()),
                (client, tls, authority),
                "{value}"
            );
        }
    }

    #[test]
    fn headers_that_are_listed_must_agree() {
        let usual = settings(NETS);
        let all = settings(&format!(
            "{NETS}trusted_headers: [Forwarded, X-Forwarded-For, X-Forwarded-Proto, \
             X-Forwarded-Host, X-Real-Ip, Cf-Ip]\n"
        ));
        let single = settings(&format!(
            "{NETS}trusted_headers: [X-Real-Ip, X-Client-Ip]\n"
        ));
        let two = "X-Forwarded-For: 192.0.2.1\r\nX-Forwarded-Proto: http\r\n";
        for (settings, fields, client) in [
            // A proxy that sets one of them, and a client that adds the other one.
            (
                &usual,
                "X-Real-Ip: 192.0.2.1\r\nX-Forwarded-For: 6.6.6.6\r\n".to_owned(),
                "400",
            ),
            (
                &usual,
                "X-Real-Ip: 192.0.2.1\r\nX-Forwarded-For: 10.0.0.2\r\n".to_owned(),
                "400",
            ),
            (
                &usual,
                "X-Real-Ip: 192.0.2.1\r\nX-Forwarded-For: 192.0.2.1, 6.6.6.6\r\n".to_owned(),
                "400",
            ),
            (
                &usual,
                "X-Real-Ip: 192.0.2.1\r\nX-Forwarded-For: 6.6.6.6, 192.0.2.1\r\n".to_owned(),
                "192.0.2.1",
            ),
            (
                &usual,
                "X-Real-Ip: 192.0.2.1\r\nX-Forwarded-For: unknown\r\n".to_owned(),
                "400",
            ),
            (
                &usual,
                "X-Real-Ip: 192.0.2.1\r\nX-Forwarded-For: \r\n".to_owned(),
                "192.0.2.1",
            ),
            (
                &usual,
                "X-Real-Ip: 6.6.6.6\r\nX-Forwarded-For: 192.0.2.1\r\n".to_owned(),
                "400",
            ),
            (
                &usual,
                "X-Real-Ip: 10.0.0.9\r\nX-Forwarded-For: 192.0.2.1\r\n".to_owned(),
                "400",
            ),
            (
                &usual,
                "X-Real-Ip: evil\r\nX-Forwarded-For: 192.0.2.1\r\n".to_owned(),
                "400",
            ),
            (
                &usual,
                "X-Real-Ip: 6.6.6.6\r\nX-Real-Ip: 192.0.2.1\r\n".to_owned(),
                "192.0.2.1",
            ),
            (
                &usual,
                "X-Real-Ip: 6.6.6.6, 192.0.2.1:80\r\n".to_owned(),
                "192.0.2.1",
            ),
            // The last of two proxies names the first one.
            (
                &usual,
                "X-Real-Ip: 10.0.0.2\r\nX-Forwarded-For: 192.0.2.1, 10.0.0.2\r\n".to_owned(),
                "192.0.2.1",
            ),
            // Not listed.
            (
                &usual,
                format!("Forwarded: for=6.6.6.6;proto=https\r\n{two}"),
                "192.0.2.1",
            ),
            (&usual, format!("Forwarded: for=\"\r\n{two}"), "192.0.2.1"),
            (&all, two.to_owned(), "192.0.2.1"),
            (&all, format!("Forwarded: for=6.6.6.6\r\n{two}"), "400"),
            (
                &all,
                format!("Forwarded: for=192.0.2.1\r\n{two}"),
                "192.0.2.1",
            ),
            (
                &all,
                format!("Forwarded: for=192.0.2.1;proto=https\r\n{two}"),
                "400",
            ),
            (
                &all,
                format!("Forwarded: for=192.0.2.1;proto=http\r\n{two}"),
                "192.0.2.1",
            ),
            (&all, format!("Cf-Ip: 192.0.2.1\r\n{two}"), "192.0.2.1"),
            (&all, format!("Cf-Ip: 192.0.2.2\r\n{two}"), "400"),
            (
                &all,
                "Cf-Ip: 192.0.2.2\r\nForwarded: for=192.0.2.1\r\n".to_owned(),
                "400",
            ),
            (
                &single,
                "X-Real-Ip: 192.0.2.1\r\nX-Client-Ip: 192.0.2.1\r\n".to_owned(),
                "192.0.2.1",
            ),
            (
                &single,
                "X-Real-Ip: 192.0.2.1\r\nX-Client-Ip: 6.6.6.6\r\n".to_owned(),
                "400",
            ),
            (
                &single,
                "X-Client-Ip: 192.0.2.1\r\n".to_owned(),
                "192.0.2.1",
            ),
        ] {
            assert_eq!(ip(&told(settings, &fields)), client, "{fields}");
        }
        // What one of two lists says of the scheme and the host alone could be the client's.
        for one in [
            "Forwarded: for=192.0.2.1;proto=https;host=evil\r\nX-Forwarded-For: 192.0.2.1\r\n",
            "Forwarded: for=192.0.2.1\r\nX-Forwarded-For: 192.0.2.1\r\nX-Forwarded-Proto: \
             https\r\nX-Forwarded-Host: evil\r\n",
        ] {
            let told = told(&all, one).unwrap();
            assert_eq!((told.tls, told.authority), (None, None), "{one}");
        }
    }

    #[test]
    fn the_scheme_comes_with_the_address() {
        let proto = "X-Forwarded-Proto: https\r\n";
        for (listed, with, tls) in [
            (
                "[X-Forwarded-For, X-Forwarded-Proto, X-Real-Ip]",
                "X-Forwarded-For: 192.0.2.1\r\n",
                Some(true),
            ),
            (
                "[X-Forwarded-For, X-Forwarded-Proto, X-Real-Ip]",
                "X-Real-Ip: 192.0.2.1\r\n",
                None,
            ),
            ("[X-Forwarded-For, X-Forwarded-Proto, X-Real-Ip]", "", None),
            (
                "[X-Real-Ip, X-Forwarded-Proto]",
                "X-Real-Ip: 192.0.2.1\r\n",
                Some(true),
            ),
            ("[X-Real-Ip, X-Forwarded-Proto]", "", None),
            ("[X-Forwarded-Proto]", "", Some(true)),
            ("[X-Forwarded-For]", "X-Forwarded-For: 192.0.2.1\r\n", None),
        ] {
            let settings = settings(&format!("{NETS}trusted_headers: {listed}\n"));
            let told = told(&settings, &format!("{with}{proto}")).unwrap();
            assert_eq!(told.tls, tls, "{listed} {with}");
        }
    }

    #[test]
    fn an_empty_list_is_the_default() {
        let empty = settings(&format!("{NETS}trusted_headers: []\n"));
        assert_eq!(empty, settings(NETS));
    }

    /// The table of the reference.
    #[test]
    fn the_reference_tells_the_truth() {
        const PAGE: &str = include_str!("../../../../docs/reference/trusted-proxies.md");
        let (_, table) = PAGE
            .split_once("| `trusted_headers` | the request has | client | scheme | host |")
            .expect("the table");
        let mut rows = 0;
        for row in table.lines().skip(2).take_while(|row| row.starts_with('|')) {
            let cells: Vec<&str> = row.split('|').map(str::trim).collect();
            let [_, listed, has, client, scheme, host, _] = cells[..] else {
                panic!("{row}")
            };
            let listed = listed.trim_matches('`');
            let settings = settings(&if listed == "default" {
                NETS.to_owned()
            } else {
                format!("{NETS}trusted_headers: {listed}\n")
            });
            let fields: String = has
                .split('`')
                .skip(1)
                .step_by(2)
                .fold(String::new(), |fields, field| {
                    format!("{fields}{field}\r\n")
                });
            assert!(fields.is_empty() == (has == "nothing of it"), "{row}");
            let told = told(&settings, &fields);
            let expected = match client {
                "the proxy" => "-",
                client => client,
            };
            assert_eq!(ip(&told), expected, "{row}");
            if let Ok(told) = told {
                let tls = told
                    .tls
                    .map_or("", |tls| if tls { "https" } else { "http" });
                let authority = told.authority.unwrap_or_default();
                assert_eq!((tls, authority.as_str()), (scheme, host), "{row}");
            }
            rows += 1;
        }
        assert!(rows >= 30, "{rows}");
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
        assert_eq!(told(&only, all), Ok(expected));
        // Host and port only when they are named.
        let told = told(
            &settings(NETS),
            "X-Forwarded-For: 192.0.2.1\r\nX-Forwarded-Host: evil.example\r\nX-Forwarded-Port: \
             1\r\n",
        );
        assert_eq!(told.unwrap().authority, None);
    }

    #[test]
    fn scheme_host_and_port() {
        let settings = settings(&format!(
            "{NETS}trusted_headers: [X-Forwarded-For, X-Forwarded-Proto, X-Forwarded-Host, \
             X-Forwarded-Port]\n"
        ));
        for (fields, tls, authority) in [
            ("X-Forwarded-Proto: HTTPS\r\n", Some(true), None),
            ("X-Forwarded-Proto: wss\r\n", Some(true), None),
            ("X-Forwarded-Proto: ws\r\n", Some(false), None),
            (
                "X-Forwarded-Proto: https\r\nX-Forwarded-Proto: http\r\n",
                Some(false),
                None,
            ),
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
            let client = if fields.contains("-For:") {
                ""
            } else {
                "X-Forwarded-For: 192.0.2.1\r\n"
            };
            let told = told(&settings, &format!("{client}{fields}")).unwrap();
            assert_eq!(
                (told.tls, told.authority.as_deref()),
                (tls, authority),
                "{fields}"
            );
        }
    }

    #[test]
    fn an_address_may_have_a_port_that_there_is() {
        for (text, is_one) in [
            ("192.0.2.1:65535", true),
            ("192.0.2.1:_name", true),
            ("[2001:db8::1]:1", true),
            ("192.0.2.1:65536", false),
            ("[2001:db8::1]:99999", false),
            ("192.0.2.1:+1", false),
            ("192.0.2.1:", false),
        ] {
            assert_eq!(address(text).is_some(), is_one, "{text}");
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
            let settings = settings(&format!("{NETS}trusted_headers: [X-Forwarded-For, \
                                              Forwarded]\n"));
            let list = told(&settings, &format!("X-Forwarded-For: {bytes},192.0.2.1, \
                                                 10.0.0.2\r\n"));
            prop_assert_eq!(ip(&list), "192.0.2.1");
            let two = told(&settings, &format!("Forwarded: {bytes}\r\nForwarded: for=192.0.2.1, \
                                                for=10.0.0.2\r\n"));
            prop_assert_eq!(ip(&two), "192.0.2.1");
            // In one field, what the client sent may end in an open quote: then it is refused, and
            // never another one
            let one = told(&settings, &format!("Forwarded: {bytes}, for=192.0.2.1, \
                                                for=10.0.0.2\r\n"));
            prop_assert!(["192.0.2.1", "400"].contains(&ip(&one).as_str()), "{}", ip(&one));
        }
    }
}
