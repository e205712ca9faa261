//! Requests and responses as handlers see them.

use std::any::Any;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use pronghorn_base::BoxFuture;
use pronghorn_config::RequestMask;
use pronghorn_h1::{Refusal, RequestHead, Version, reason};
use pronghorn_pool::{Loan, Pieces};
use pronghorn_process::Credentials;
use pronghorn_wire::{Fields, Protocol};
use tokio::time::Instant;

use crate::client_certificate::ClientCertificate;
use crate::exchange::Exchange;
use crate::open_file::OpenFile;
use crate::peer_address::PeerAddress;
use crate::sent::{OnSent, add};
use crate::source::BodySource;

/// The answer to a client that came to a port of TLS without it.
pub(crate) const WITHOUT_TLS: &str = "this port speaks HTTPS, and the request came as plain HTTP: ask for https:// instead of http://\n";

/// Answers requests. Middleware is a handler that holds the next one.
pub trait Handler: Send + Sync + 'static {
    /// Answers one request. When the client leaves, the future is still carried on: whoever waits
    /// for something slow asks [`Exchange::poll_gone`].
    fn handle<'a>(&'a self, request: Request, exchange: &'a mut dyn Exchange) -> Handled<'a>;

    /// Tells what is done when a request was answered without a handler. The outermost one is
    /// asked; those around the access log pass it on.
    fn unhandled(&self, _request: &Unhandled<'_>) -> Option<Arc<dyn OnSent>> {
        None
    }

    /// The answer to a request of HTTP/2 or HTTP/3 whose head is refused; None for an answer of
    /// HTTP. `content` is its content type.
    fn refused(&self, _content: Option<&[u8]>, _refusal: Refusal) -> Option<Response> {
        None
    }

    /// The answer to a request that came to a port of TLS without it, if it is more than a word.
    /// Passed on likewise.
    fn without_tls(&self, _request: &Request) -> Option<Response> {
        None
    }
}

impl dyn Handler {
    pub(crate) fn answer_without_tls(&self, request: &Request) -> Response {
        let response = self.without_tls(request);
        let mut response = response.unwrap_or_else(|| Response::plain(400, WITHOUT_TLS));
        response.on_sent = self.unhandled(&Unhandled::of(request));
        response
    }

    /// The answer to a request whose head is refused, of HTTP/2 or HTTP/3.
    pub(crate) fn answer_refused(&self, content: Option<&[u8]>, refusal: Refusal) -> Response {
        let response = self.refused(content, refusal);
        let plain = || Response::plain(refusal.status(), &format!("{refusal}\n"));
        response.unwrap_or_else(plain)
    }

    /// The answer to `OPTIONS *`, which is for the server as a whole (RFC 9110, section 9.3.7).
    pub(crate) fn answer_for_all(&self, request: &Request) -> Response {
        let mut response = Response::new(200, Body::Empty);
        response.on_sent = self.unhandled(&Unhandled::of(request));
        response
    }
}

/// A request that was answered without a handler: its head could not be read, or is no request for
/// anything here.
#[derive(Debug)]
pub struct Unhandled<'a> {
    /// The client.
    pub peer: &'a Peer,
    /// As the client wrote it, as far as it is known; else empty. The same holds for the next two.
    pub method: &'a [u8],
    /// Its path, mostly with the query.
    pub target: &'a [u8],
    /// `HTTP/1.1`, for instance.
    pub protocol: &'a [u8],
    /// When it was seen to be one.
    pub accepted: Instant,
    /// The same moment in microseconds since the Unix epoch.
    pub accepted_us: u64,
}

impl<'a> Unhandled<'a> {
    /// A request with a whole head.
    pub fn of(request: &'a Request) -> Self {
        let head = &request.head;
        Self {
            peer: &request.peer,
            method: head.method().as_bytes(),
            target: head.path(),
            protocol: request.protocol().name().as_bytes(),
            accepted: request.accepted,
            accepted_us: request.accepted_us,
        }
    }

    /// With what the first line of `head` tells: that of a request, or whatever else a client has
    /// sent.
    pub(crate) fn unreadable(
        peer: &'a Peer,
        head: &'a [u8],
        accepted: Instant,
        accepted_us: u64,
    ) -> Self {
        let end = memchr::memchr2(b'\r', b'\n', head).unwrap_or(head.len());
        let line = &head[..end];
        let (mut method, mut target, mut protocol) = (line, &b""[..], &b""[..]);
        if let Some(space) = memchr::memchr(b' ', line) {
            (method, target) = (&line[..space], &line[space + 1..]);
        }
        if let Some(space) = memchr::memrchr(b' ', target) {
            (target, protocol) = (&target[..space], &target[space + 1..]);
        }
        Self {
            peer,
            method,
            target,
            protocol,
            accepted,
            accepted_us,
        }
    }
}

/// A response to come.
pub type Handled<'a> = BoxFuture<'a, Response>;

/// The other end of a connection, one for all its requests; or the client behind it, when that is a
/// trusted proxy.
#[derive(Debug)]
pub struct Peer {
    /// The address, with its port if it is known.
    pub address: PeerAddress,
    /// The address without its port, as text: what applications find in `REMOTE_ADDR`.
    pub ip: String,
    /// Whether it speaks TLS, with this server or with the proxy in front.
    pub tls: bool,
    /// Where it connected to: `SERVER_ADDR` and `SERVER_PORT`. None over a unix socket.
    pub server: Option<SocketAddr>,
    /// The certificate that proves who it is, where the listener asks for one and knows the
    /// authority.
    pub certificate: Option<ClientCertificate>,
}

impl Peer {
    /// `address` as text, for the records of requests: made of `ip`, because to format four numbers
    /// costs a thousand instructions.
    pub fn shown_address(&self) -> String {
        let PeerAddress::Ip(SocketAddr::V4(address)) = self.address else {
            return self.address.to_string();
        };
        let mut shown = String::with_capacity(self.ip.len() + ":65535".len());
        shown.push_str(&self.ip);
        shown.push(':');
        shown.push_str(itoa::Buffer::new().format(address.port()));
        shown
    }

    /// A client, by what its socket or its proxy tells.
    pub fn new(address: PeerAddress, tls: bool, server: Option<SocketAddr>) -> Self {
        let ip = match address.ip() {
            Some(ip) => ip.to_string(),
            None => address.to_string(),
        };
        Self {
            address,
            ip,
            tls,
            server,
            certificate: None,
        }
    }

    /// The same client, which has shown a certificate.
    #[must_use]
    pub(crate) fn certified(&self, certificate: ClientCertificate) -> Self {
        Self {
            address: self.address,
            ip: self.ip.clone(),
            tls: self.tls,
            server: self.server,
            certificate: Some(certificate),
        }
    }

    /// `https` or `http`.
    pub const fn scheme(&self) -> &'static str {
        if self.tls { "https" } else { "http" }
    }
}

/// A request without its body, which is read through the [`Exchange`].
#[derive(Debug)]
pub struct Request {
    /// The method, target and fields, which the strict reader of `h1` has let through.
    pub head: Box<RequestHead>,
    /// The client, which all requests of a connection share.
    pub peer: Arc<Peer>,
    /// Names and values that middleware adds for the application.
    pub attributes: Fields,
    /// By which log records name it, where it was given one.
    pub id: Option<Box<str>>,
    /// When the head was complete.
    pub accepted: Instant,
    /// The same moment in microseconds since the Unix epoch.
    pub accepted_us: u64,
    /// How often an application has sent it elsewhere in this server.
    pub redirects: u8,
    /// The trace, while traces are wanted: of a type that belongs to the handler which began it.
    pub trace: Option<Arc<dyn Any + Send + Sync>>,
}

impl Request {
    /// As it comes from a connection.
    pub fn new(
        head: Box<RequestHead>,
        peer: Arc<Peer>,
        accepted: Instant,
        accepted_us: u64,
    ) -> Self {
        Self {
            head,
            peer,
            attributes: Fields::new(),
            id: None,
            accepted,
            accepted_us,
            redirects: 0,
            trace: None,
        }
    }

    /// The version in which the client has asked.
    pub fn protocol(&self) -> Protocol {
        match self.head.version() {
            Version::Http10 => Protocol::Http10,
            Version::Http11 => Protocol::Http11,
            Version::Http2 => Protocol::Http2,
            Version::Http3 => Protocol::Http3,
        }
    }

    /// Whether the client offers to go on in this protocol, `websocket` for instance (RFC 9110,
    /// section 7.8).
    pub fn asks_for(&self, protocol: &str) -> bool {
        let lists = |field: &str, word: &str| {
            self.head.fields().all(field).any(|value| {
                let mut words = value.split(|&byte| byte == b',').map(<[u8]>::trim_ascii);
                words.any(|listed| listed.eq_ignore_ascii_case(word.as_bytes()))
            })
        };
        lists("connection", "upgrade") && lists("upgrade", protocol)
    }

    /// The same as it may stand in a record: without the values of secret parameters.
    pub fn shown_target(&self) -> String {
        let target = self.target();
        if !RequestMask::may_hide(target.as_bytes()) {
            return target;
        }
        RequestMask::default().target(&target)
    }

    /// The path and query as the client sent them.
    pub fn target(&self) -> String {
        let mut target = String::from_utf8_lossy(self.head.path()).into_owned();
        if let Some(query) = self.head.query() {
            target.push('?');
            target.push_str(&String::from_utf8_lossy(query));
        }
        target
    }
}

/// An answer on its way to a client.
#[derive(Debug)]
pub struct Response {
    /// The status; 101 only after [`Exchange::upgrade`].
    pub status: u16,
    /// The fields, to which the connection adds its own, such as `Date` and the length.
    pub fields: Fields,
    /// Left out where the method or the status has none.
    pub body: Body,
    /// The application has made it, or it shows a developer what is wrong: its body stands as it
    /// is.
    pub from_application: bool,
    /// Who the application runs as that has made it, if not as the server: files that it names are
    /// sent if this user may read them.
    pub worker_user: Option<Arc<Credentials>>,
    /// Called when the response is out.
    pub on_sent: Option<Arc<dyn OnSent>>,
}

/// A response's body, each kind with its own shortest way to the socket.
#[derive(Debug, Default)]
pub enum Body {
    #[default]
    Empty,
    Whole(Bytes),
    /// Whole as well, in the memory of the worker that wrote it.
    Lent(Loan),
    /// A stretch of a file.
    File(OpenFile),
    /// Stretches of a file with text between them, for several ranges.
    Parts(Vec<Part>),
    /// Made while it is sent: compressed, for instance.
    Made(Box<dyn BodySource>),
    /// From a worker, as it comes. A length is known when the worker has already announced all of
    /// it.
    Pieces {
        pieces: Pieces,
        len: Option<u64>,
    },
}

/// One of several parts of a body.
#[derive(Debug)]
pub enum Part {
    Bytes(Bytes),
    File(OpenFile),
}

impl Body {
    /// `None` when only its end will tell.
    pub fn known_len(&self) -> Option<u64> {
        match self {
            Self::Empty => Some(0),
            Self::Whole(bytes) => Some(bytes.len() as u64),
            Self::Lent(loan) => Some(loan.len() as u64),
            Self::File(file) => Some(file.len),
            Self::Parts(parts) => Some(parts.iter().map(Part::len).sum()),
            Self::Made(_) => None,
            Self::Pieces { len, .. } => *len,
        }
    }
}

impl Part {
    fn len(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::File(file) => file.len,
        }
    }
}

impl Response {
    /// A response of the server itself, without fields.
    pub fn new(status: u16, body: Body) -> Self {
        Self {
            status,
            fields: Fields::new(),
            body,
            from_application: false,
            worker_user: None,
            on_sent: None,
        }
    }

    /// Does this as well when the response is out, after what is done then already.
    pub fn when_sent(&mut self, then: Arc<dyn OnSent>) {
        add(&mut self.on_sent, then);
    }

    /// A short answer of the server itself, for people.
    pub fn plain(status: u16, text: &str) -> Self {
        let mut response = Self::new(status, Body::Whole(Bytes::copy_from_slice(text.as_bytes())));
        response
            .fields
            .push("Content-Type", "text/plain; charset=utf-8");
        response
    }

    /// Just the status, in words.
    pub fn status_only(status: u16) -> Self {
        Self::plain(status, &format!("{status} {}\n", reason(status)))
    }
}

/// Says in a response that it depends on this field of the request.
pub fn vary(fields: &mut Fields, name: &str) {
    let is_said = fields.all("vary").any(|value| {
        let mut names = value.split(|&byte| byte == b',').map(<[u8]>::trim_ascii);
        names.any(|said| said == b"*" || said.eq_ignore_ascii_case(name.as_bytes()))
    });
    if !is_said {
        fields.push("Vary", name);
    }
}

/// The number that a client or a proxy gives a request, if this value of a field can be one.
pub fn request_number(value: &[u8]) -> Option<Box<str>> {
    /// Longer ones are no numbers but an attempt at something.
    const LONGEST: usize = 128;
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.:".contains(byte);
    let fits = (1..=LONGEST).contains(&value.len()) && value.iter().all(is_plain);
    fits.then(|| String::from_utf8_lossy(value).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_shown_as_it_is_formatted() {
        for address in [
            "127.0.0.1:80",
            "[::1]:443",
            "[::ffff:10.1.2.3]:9",
            "[fe80::1%3]:5",
        ] {
            let address = PeerAddress::Ip(address.parse().unwrap());
            let peer = Peer::new(address, false, None);
            assert_eq!(peer.shown_address(), address.to_string());
        }
        for address in [PeerAddress::Unix, PeerAddress::Told([10, 1, 2, 3].into())] {
            let peer = Peer::new(address, false, None);
            assert_eq!(peer.shown_address(), address.to_string());
        }
    }
}
