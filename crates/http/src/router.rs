//! The handler that gives each request to the handler of its route.

use std::future::ready;
use std::sync::{Arc, OnceLock, Weak};

use pronghorn_base::LogThrottle;
use pronghorn_serve::{Exchange, Handled, Handler, Request, Response};

use crate::basic_auth::{BasicAuth, guarded};
use crate::rate_limit::{RateLimit, limited};
use crate::routes::{Ambiguous, Asked, Routes};

/// Asks the routes who answers a request.
pub struct Router {
    routes: Routes<Routed>,
    /// Some of them limit the rate of requests.
    has_limits: bool,
}

/// The handler of a route, with its guard and its limit.
#[derive(Clone)]
pub(crate) struct Routed {
    /// Asks for the password first, if there is one, and counts then.
    pub(crate) handler: Arc<dyn Handler>,
    pub(crate) guard: Option<Arc<BasicAuth>>,
    limit: Option<Arc<RateLimit>>,
}

impl Routed {
    pub(crate) fn new(
        handler: Arc<dyn Handler>,
        guard: Option<Arc<BasicAuth>>,
        limit: Option<Arc<RateLimit>>,
    ) -> Self {
        Self {
            handler: guarded(limited(handler, limit.clone()), guard.clone()),
            guard,
            limit,
        }
    }

    fn has_limit(&self, limit: &Arc<RateLimit>) -> bool {
        self.limit
            .as_ref()
            .is_some_and(|own| Arc::ptr_eq(own, limit))
    }
}

impl Router {
    pub(crate) fn new(routes: Routes<Routed>, has_limits: bool) -> Self {
        Self { routes, has_limits }
    }

    /// The limit of the path that the client has sent, where a rule of `http.rewrite` has put
    /// another one in its place: the rule takes it away from nobody.
    fn limit_of_sent(&self, request: &Request) -> Result<Option<&Arc<RateLimit>>, Ambiguous> {
        let (path, _) = request.head.received_target();
        // A script's own redirect within the server is no second request of the client.
        if !self.has_limits || path == request.head.path() || request.redirects > 0 {
            return Ok(None);
        }
        let asked = Asked {
            path,
            ..asked(request)
        };
        Ok(self.routes.pick(&asked)?.limit.as_ref())
    }
}

impl Handler for Router {
    fn handle<'a>(&'a self, request: Request, exchange: &'a mut dyn Exchange) -> Handled<'a> {
        let picked = self.routes.pick(&asked(&request));
        let (Ok(routed), Ok(limit)) = (picked, self.limit_of_sent(&request)) else {
            return Box::pin(ready(ambiguous(&request)));
        };
        let limit = limit.filter(|limit| !routed.has_limit(limit));
        match limit.and_then(|limit| limit.refusal(&request)) {
            Some(refusal) => Box::pin(ready(refusal)),
            None => routed.handler.handle(request, exchange),
        }
    }
}

fn asked(request: &Request) -> Asked<'_> {
    let head = &request.head;
    Asked {
        method: head.method(),
        authority: head.authority(),
        path: head.path(),
        fields: head.fields(),
        address: request.peer.address.ip(),
    }
}

/// The router, for handlers of its own routes. It is known only when all of them are there.
#[derive(Default)]
pub struct OwnRouter(OnceLock<Weak<Router>>);

impl OwnRouter {
    pub(crate) fn set(&self, router: &Arc<Router>) {
        _ = self.0.set(Arc::downgrade(router)); // it is set once
    }

    /// False where there are no routes to ask.
    pub(crate) fn is_there(&self) -> bool {
        self.0.get().is_some()
    }

    /// Asks the route that has a say about a script or a page that stands for the path of a
    /// request. `path` is its own, decoded.
    ///
    /// # Errors
    ///
    /// The answer of that route.
    pub(crate) async fn ask(
        &self,
        mut request: Request,
        path: &[u8],
        exchange: &mut dyn Exchange,
    ) -> Result<Request, Response> {
        let Some(router) = self.0.get().and_then(Weak::upgrade) else {
            return Ok(request);
        };
        let closing = router.routes.closing(&asked(&request), path).cloned();
        match closing {
            None => Ok(request),
            Some(Routed {
                guard: None,
                handler,
                ..
            }) => Err(handler.handle(request, exchange).await),
            Some(Routed {
                guard: Some(guard), ..
            }) => {
                guard.admit(&mut request).await?;
                Ok(request)
            }
        }
    }
}

impl std::fmt::Debug for OwnRouter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OwnRouter").finish_non_exhaustive()
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

impl std::fmt::Debug for Routed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Routed").finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Router {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Router").finish_non_exhaustive()
    }
}
