//! Fields by which a site tells clients to use TLS from now on (HSTS), and that it has HTTP/3
//! (`Alt-Svc`); the redirect of requests without TLS.

use std::fmt::Write;
use std::future::ready;
use std::sync::Arc;

use pronghorn_serve::{Exchange, Handled, Handler, Request, Response};
use pronghorn_wire::Protocol;

use super::parts::Parts;
use crate::settings::HstsSettings;

struct Https {
    next: Arc<dyn Handler>,
    /// The port to which requests without TLS are sent; `None` lets them pass. Those of a unix
    /// socket always pass: there is a proxy in front of it, whose business that is.
    redirect: Option<u16>,
    /// The value of `Strict-Transport-Security`, sent with TLS alone, as RFC 6797, section 7.2,
    /// wants it.
    hsts: Option<String>,
    /// Ports of HTTP/3, which a client learns of over the others.
    http3: Vec<u16>,
}

/// Around all that `http.middleware` lists: a client without TLS is to send it nothing.
pub(crate) fn around(next: Arc<dyn Handler>, parts: Parts<'_>) -> Arc<dyn Handler> {
    let ssl = parts.settings.ssl.as_ref();
    let https = Https {
        next,
        redirect: parts
            .https_port
            .filter(|_| ssl.is_some_and(|ssl| ssl.redirect)),
        hsts: ssl.and_then(|ssl| ssl.hsts.as_ref().map(HstsSettings::value)),
        http3: parts.http3_ports.to_vec(),
    };
    if https.redirect.is_none() && https.hsts.is_none() && https.http3.is_empty() {
        return https.next;
    }
    Arc::new(https)
}

impl Https {
    /// The service that a client may go over to (RFC 7838), for a day.
    fn alternative(&self, request: &Request) -> Option<String> {
        let first = *self.http3.first()?;
        let server = request.peer.server.map(|server| server.port());
        let same = server.filter(|port| self.http3.contains(port));
        let is_there = request.protocol() == Protocol::Http3;
        (!is_there).then(|| format!("h3=\":{}\"; ma=86400", same.unwrap_or(first)))
    }
}

impl Handler for Https {
    fn handle<'a>(&'a self, request: Request, exchange: &'a mut dyn Exchange) -> Handled<'a> {
        if !request.peer.tls {
            return match (self.redirect, request.peer.server) {
                (Some(port), Some(_)) => Box::pin(ready(redirect(&request, port))),
                _ => self.next.handle(request, exchange),
            };
        }
        let alternative = self.alternative(&request);
        if self.hsts.is_none() && alternative.is_none() {
            return self.next.handle(request, exchange);
        }
        Box::pin(async move {
            let mut response = self.next.handle(request, exchange).await;
            let fields = &mut response.fields;
            let mut default = |name: &str, value: Option<&str>| {
                if let Some(value) = value.filter(|_| fields.get(name).is_none()) {
                    fields.push(name, value);
                }
            };
            default("Strict-Transport-Security", self.hsts.as_deref());
            default("Alt-Svc", alternative.as_deref());
            response
        })
    }

    fn without_tls(&self, request: &Request) -> Option<Response> {
        self.redirect.map(|port| redirect(request, port))
    }
}

/// 308: the method and the body stay, as RoadRunner does it.
fn redirect(request: &Request, port: u16) -> Response {
    /// What a URL has for 443 and no other.
    const HTTPS: u16 = 443;
    let head = &request.head;
    let host = head.host();
    if host.is_empty() {
        return Response::plain(
            400,
            "the site is served with TLS, and the request names no host\n",
        );
    }
    let mut location = format!("https://{host}");
    if port != HTTPS {
        _ = write!(location, ":{port}"); // a String takes all
    }
    escape(head.path(), &mut location);
    if let Some(query) = head.query() {
        location.push('?');
        escape(query, &mut location);
    }
    let mut response = Response::plain(308, &format!("{location}\n"));
    response.fields.push("Location", location);
    response
}

/// A client may send bytes that have no place in a URL.
fn escape(part: &[u8], out: &mut String) {
    for &byte in part {
        match byte {
            b'"' | b'<' | b'>' | b'\\' | b'^' | b'`' | b'{' | b'|' | b'}' | 0..=0x20 | 0x7f.. => {
                _ = write!(out, "%{byte:02X}"); // a String takes all
            }
            _ => out.push(char::from(byte)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_url_is_escaped() {
        let mut out = String::new();
        escape("/a%20b/\u{e9}\"<x>".as_bytes(), &mut out);
        assert_eq!(out, "/a%20b/%C3%A9%22%3Cx%3E");
    }
}
