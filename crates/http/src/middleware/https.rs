//! What a site with TLS says to clients: come back with it, and remember that.

use std::fmt::Write;
use std::future::ready;
use std::sync::Arc;

use pronghorn_serve::{Exchange, Handled, Handler, Request, Response};

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
}

/// Around all that `http.middleware` lists: a client without TLS is to send it nothing.
pub(crate) fn around(next: Arc<dyn Handler>, parts: Parts<'_>) -> Arc<dyn Handler> {
    match &parts.settings.ssl {
        Some(ssl) if ssl.redirect || ssl.hsts.is_some() => Arc::new(Https {
            next,
            redirect: parts.https_port.filter(|_| ssl.redirect),
            hsts: ssl.hsts.as_ref().map(HstsSettings::value),
        }),
        _ => next,
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
        let Some(hsts) = &self.hsts else {
            return self.next.handle(request, exchange);
        };
        Box::pin(async move {
            let mut response = self.next.handle(request, exchange).await;
            if response.fields.get("strict-transport-security").is_none() {
                response.fields.push("Strict-Transport-Security", hsts);
            }
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
