//! The handler that gives each request to the handler of its route.

use std::future::ready;
use std::sync::Arc;

use pronghorn_base::LogThrottle;
use pronghorn_serve::{Exchange, Handled, Handler, Request, Response};

use crate::routes::{Ambiguous, Asked, Routes};

/// Asks the routes who answers a request.
pub struct Router(pub Routes<Arc<dyn Handler>>);

impl Handler for Router {
    fn handle<'a>(&'a self, request: Request, exchange: &'a mut dyn Exchange) -> Handled<'a> {
        let head = &request.head;
        let picked = self.0.pick(&Asked {
            method: head.method(),
            authority: head.authority(),
            path: head.path(),
            fields: head.fields(),
            address: request.peer.address.ip(),
        });
        match picked {
            Ok(handler) => handler.handle(request, exchange),
            Err(Ambiguous) => Box::pin(ready(ambiguous(&request))),
        }
    }
}

/// Answers a request that one program would take for another one than the next.
pub(crate) fn ambiguous(request: &Request) -> Response {
    static REFUSED: LogThrottle = LogThrottle::new();
    if let Some(requests) = REFUSED.should_log() {
        tracing::info!(
            target: "http", URI = request.shown_target(), requests,
            "request refused: programs read its path in different ways, for which there are different routes or rules of `http.rewrite`"
        );
    }
    Response::plain(400, "the path can be read in more than one way\n")
}

/// Answers all requests of a route with one status.
pub(crate) struct Refusing(pub(crate) u16);

impl Handler for Refusing {
    fn handle<'a>(&'a self, _: Request, _: &'a mut dyn Exchange) -> Handled<'a> {
        Box::pin(ready(Response::status_only(self.0)))
    }
}

impl std::fmt::Debug for Router {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Router").finish_non_exhaustive()
    }
}
