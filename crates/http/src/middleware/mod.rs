//! The chain of middleware: what requests pass on their way to the routes, and responses on their
//! way back.
//!
//! There is one chain, around everything that answers requests. `http.middleware` lists it in
//! RoadRunner's order, which is one in 2025.1 and the opposite one in 3: in the settings the first
//! name is the innermost, next to the routes, and the last one sees a request first and its
//! response last.

mod access_log;
mod client;
mod client_certificate;
mod compression;
mod cors;
pub(crate) mod error_pages;
mod headers;
mod https;
mod limits;
mod parts;
mod rate_limit;
mod record;
mod request_id;
pub(crate) mod rewrite;
mod sendfile;
mod static_files;
mod trace;

use std::sync::Arc;

use pronghorn_serve::Handler;

pub use parts::{Parts, Unusable};

use crate::coding::Coding;
use crate::settings::middleware::Middleware;

/// Puts a handler around the next one.
fn around(
    middleware: Middleware,
    next: Arc<dyn Handler>,
    parts: Parts<'_>,
) -> Result<Arc<dyn Handler>, Unusable> {
    Ok(match middleware {
        Middleware::Compress => compression::around(next, parts),
        Middleware::Gzip => compression::coding_around(next, parts, Coding::Gzip),
        Middleware::Zstd => compression::coding_around(next, parts, Coding::Zstd),
        // It has its place around all others, where `trusted_subnets` puts it.
        Middleware::ProxyIpParser => next,
        // All responses are counted, whether or not it is listed.
        Middleware::HttpMetrics => next,
        // All requests are traced once the section `otel` is there.
        Middleware::Otel => next,
        Middleware::Headers => headers::around(next, parts),
        Middleware::Sendfile => sendfile::around(next, parts),
        Middleware::Static => return static_files::around(next, parts),
        Middleware::RateLimit => rate_limit::around(next, parts),
        Middleware::RateLimiter => rate_limit::limiter_around(next, parts),
        Middleware::Rewrite => rewrite::around(next, parts),
        Middleware::ErrorPages => return error_pages::around(next, parts),
    })
}

/// Puts what `http.middleware` lists around `innermost`, and what stands around all of it.
///
/// # Errors
///
/// When something that a section names can't be used.
pub fn chain(innermost: Arc<dyn Handler>, parts: Parts<'_>) -> Result<Arc<dyn Handler>, Unusable> {
    let mut seen = Vec::new();
    let mut handler = innermost;
    let listed = parts.settings.middleware.iter();
    for middleware in listed.filter_map(|name| Middleware::by_name(name)) {
        // Nothing is there twice.
        if !seen.contains(&middleware) {
            seen.push(middleware);
            handler = around(middleware, handler, parts)?;
        }
    }
    // What names or observes requests is around all of them, so that nobody has to find the right
    // place for it.
    handler = https::around(handler, parts);
    handler = record::around(handler, parts);
    handler = access_log::around(handler, parts);
    handler = request_id::around(handler, parts);
    handler = trace::around(handler, parts.recorder);
    handler = client_certificate::around(handler, parts);
    handler = client::around(handler, parts);
    Ok(handler)
}

/// Puts around `innermost` what decides by a path who answers: for a request that a handler behind
/// the chain has sent elsewhere. Its response passes the whole chain once, with that handler's.
///
/// # Errors
///
/// As [`chain`].
pub fn by_path(
    innermost: Arc<dyn Handler>,
    parts: Parts<'_>,
) -> Result<Arc<dyn Handler>, Unusable> {
    let mut seen = Vec::new();
    let mut handler = innermost;
    let listed = parts.settings.middleware.iter();
    for middleware in listed.filter_map(|name| Middleware::by_name(name)) {
        let decides = matches!(middleware, Middleware::Static | Middleware::Rewrite);
        if decides && !seen.contains(&middleware) {
            seen.push(middleware);
            handler = around(middleware, handler, parts)?;
        }
    }
    Ok(handler)
}

#[cfg(test)]
pub(crate) mod testing {
    //! Requests for tests of middleware.

    use std::time::Duration;

    use bytes::BytesMut;
    use pronghorn_h1::{Connection, Limits, Received, RequestHead};
    use pronghorn_serve::{Body, Exchange, Handled, Handler, Peer, PeerAddress, Request, Response};
    use tokio::time::Instant;

    /// Answers 204.
    pub(crate) struct Nobody;

    impl Handler for Nobody {
        fn handle<'a>(&'a self, _: Request, _: &'a mut dyn Exchange) -> Handled<'a> {
            Box::pin(std::future::ready(Response::new(204, Body::Empty)))
        }
    }

    /// The head of a request as a client sends it.
    pub(crate) fn head(request: &str) -> Box<RequestHead> {
        let mut connection = Connection::new(Limits::default(), Duration::ZERO);
        let mut input = BytesMut::from(request);
        match connection.receive(&mut input, Duration::ZERO) {
            Ok(Some(Received::Head(head))) => head,
            other => panic!("{other:?} is no head: {request:?}"),
        }
    }

    /// The request with this head, of a client that has an address of the documentation.
    pub(crate) fn request(head: &str) -> Request {
        let address = PeerAddress::Ip("192.0.2.1:4711".parse().expect("an address"));
        Request {
            head: self::head(head),
            peer: std::sync::Arc::new(Peer::new(address, false, None)),
            attributes: pronghorn_wire::Fields::new(),
            id: None,
            accepted: Instant::now(),
            accepted_us: 784_111_777_123_456,
            redirects: 0,
            trace: None,
        }
    }
}
