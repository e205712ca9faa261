//! The handler that asks an upstream: other HTTP servers answer in place of PHP.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use pronghorn_base::{LogThrottle, lock};
use pronghorn_metrics::Registry;
use pronghorn_proxy::{NotForwarded, Terms, Upstream, UpstreamSettings};
use pronghorn_serve::{Destination, Exchange, Handled, Handler, OnSent, Request, Response, Sent};

use crate::body::{NotTaken, too_large};
use crate::bridge::not_taken;
use crate::record::{self, Reached};
use crate::trace::RequestTrace;

/// Upstreams by name. One whose keys are the same stays over a reload, with its connections.
#[derive(Debug, Default)]
pub(crate) struct Upstreams(Mutex<HashMap<String, Arc<Upstream>>>);

impl Upstreams {
    /// The upstreams of these settings, and no other ones.
    pub(crate) fn set(
        &self,
        wanted: &[(String, UpstreamSettings)],
        metrics: Option<&Registry>,
    ) -> HashMap<String, Arc<Upstream>> {
        let mut known = lock(&self.0);
        let next = wanted.iter().map(|(name, settings)| {
            let same = known.get(name).filter(|it| it.settings() == settings);
            let upstream = match same {
                Some(upstream) => upstream.clone(),
                None => Upstream::new(name, settings, metrics),
            };
            (name.clone(), upstream)
        });
        *known = next.collect();
        known.clone()
    }
}

/// Has the requests of a route answered by an upstream.
#[derive(Debug)]
pub(crate) struct UpstreamHandler {
    pub(crate) name: String,
    pub(crate) upstream: Arc<Upstream>,
    pub(crate) terms: Terms,
    /// More fields in the record of a request, `http.access_logs`.
    pub(crate) access_logs: bool,
}

/// An [`UpstreamHandler`] at work, which each of its requests keeps.
struct SharedUpstreamHandler(Arc<UpstreamHandler>);

impl UpstreamHandler {
    pub(crate) fn into_handler(self) -> Arc<dyn Handler> {
        Arc::new(SharedUpstreamHandler(Arc::new(self)))
    }

    async fn answer(self: &Arc<Self>, request: Request, exchange: &mut dyn Exchange) -> Response {
        let forwarded = self.upstream.forward(&request, exchange, &self.terms).await;
        let (mut response, read) = match forwarded {
            Ok(forwarded) => (forwarded.response, forwarded.read),
            Err(why) => (self.refuse(&request, why), Arc::default()),
        };
        response.on_sent = Some(Arc::new(Proxied {
            request,
            handler: self.clone(),
            read,
        }));
        response
    }

    fn refuse(&self, request: &Request, why: NotForwarded) -> Response {
        let (server, error) = match why {
            NotForwarded::Gone => return not_taken(request, NotTaken::Gone),
            NotForwarded::Body(error) => return not_taken(request, error.into()),
            NotForwarded::TooLarge(most) => return not_taken(request, too_large(most)),
            NotForwarded::Target => {
                return Response::plain(400, "the target can't be sent on\n");
            }
            NotForwarded::Upstream { server, error } => (server, error),
        };
        if error.is_down() {
            // The server's first failure has a record.
            tracing::debug!(
                target: "http", upstream = self.name, server, method = request.head.method(),
                URI = request.shown_target(), "an upstream did not answer: {error}"
            );
            return Response::status_only(error.status());
        }
        static FAILED: LogThrottle = LogThrottle::new();
        if let Some(requests) = FAILED.should_log() {
            tracing::warn!(
                target: "http", upstream = self.name, server, requests, method = request.head.method(),
                URI = request.shown_target(), "an upstream did not answer: {error}"
            );
        }
        Response::status_only(error.status())
    }
}

impl Handler for SharedUpstreamHandler {
    fn handle<'a>(&'a self, request: Request, exchange: &'a mut dyn Exchange) -> Handled<'a> {
        Box::pin(self.0.answer(request, exchange))
    }
}

/// A request that an upstream had.
#[derive(Debug)]
struct Proxied {
    request: Request,
    handler: Arc<UpstreamHandler>,
    read: Arc<AtomicU64>,
}

impl OnSent for Proxied {
    fn on_sent(&self, sent: &mut Sent) {
        if let Some(trace) = RequestTrace::of(&self.request).filter(|trace| trace.is_kept(sent)) {
            trace.answered_by(&self.handler.name, None);
            trace.keep(sent);
        }
        if record::is_wanted(sent.status) {
            let reached = Reached {
                pool: &self.handler.name,
                route: None,
                read_bytes: self.read.load(Relaxed),
            };
            record::write(&self.request, &reached, self.handler.access_logs, sent);
        }
    }

    fn ends_trace(&self) -> bool {
        self.request.trace.is_some()
    }

    fn destination(&self) -> Option<Destination<'_>> {
        Some(Destination {
            pool: &self.handler.name,
            route: None,
            pid: None,
        })
    }
}
