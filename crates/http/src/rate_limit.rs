//! Limits on the requests of one client, in a time and at once: of all requests, or of a route.

use std::sync::Arc;
use std::time::Duration;

use pronghorn_base::LogThrottle;
use pronghorn_config::show_duration;
use pronghorn_serve::{Exchange, Handled, Handler, Household, Request, Response};
use tokio::time::Instant;

use crate::limiter::Limiter;
use crate::settings::{RateKey, RateLimitSettings, Refusal};

/// A limit of requests, and what clients have sent so far.
pub(crate) struct RateLimit {
    limiter: Limiter,
    by: RateKey,
    refusal: Refusal,
    per: Duration,
    started: Instant,
    refused: LogThrottle,
}

/// A handler that gets no more requests than a limit lets through.
struct Limited {
    next: Arc<dyn Handler>,
    limit: Arc<RateLimit>,
}

/// Puts a limit around a handler, if there is one.
pub(crate) fn limited(next: Arc<dyn Handler>, limit: Option<Arc<RateLimit>>) -> Arc<dyn Handler> {
    match limit {
        Some(limit) => Arc::new(Limited { next, limit }),
        None => next,
    }
}

impl Handler for Limited {
    fn handle<'a>(&'a self, request: Request, exchange: &'a mut dyn Exchange) -> Handled<'a> {
        match self.limit.refusal(&request) {
            None => self.next.handle(request, exchange),
            Some(refusal) => Box::pin(std::future::ready(refusal)),
        }
    }
}

/// The client of a request.
enum Client {
    Known(u64),
    /// It can't be told from others.
    Unknown,
    /// The field that names it is missing.
    Unnamed,
}

impl RateLimit {
    pub(crate) fn new(settings: &RateLimitSettings) -> Self {
        Self {
            limiter: Limiter::new(settings.rate, settings.burst),
            by: settings.by.clone(),
            refusal: settings.refusal,
            per: settings.rate.per,
            started: Instant::now(),
            refused: LogThrottle::default(),
        }
    }

    /// Counts a request of a client. The answer to one that is too many.
    pub(crate) fn refusal(&self, request: &Request) -> Option<Response> {
        let tag = match self.tag(request) {
            Client::Known(tag) => tag,
            Client::Unknown => return None,
            Client::Unnamed => return Some(self.refuse(400, None)),
        };
        let now = request.accepted.saturating_duration_since(self.started);
        let now = u64::try_from(now.as_nanos()).unwrap_or(u64::MAX);
        let wait = self.limiter.take(tag, now).err()?;
        if let Some(requests) = self.refused.should_log() {
            tracing::warn!(
                target: "http", requests, remote_address = %request.peer.address, URI = request.shown_target(),
                "requests refused: a client has sent too many in {}", show_duration(self.per)
            );
        }
        Some(self.refuse(429, Some(wait.div_ceil(1_000_000_000).max(1))))
    }

    fn tag(&self, request: &Request) -> Client {
        let by_address = || {
            let address = request.peer.address.ip().map(Household::of)?;
            Some(self.limiter.tag(address))
        };
        let value = |name: &str| request.head.fields().get(name).map(<[u8]>::trim_ascii);
        let tag = match &self.by {
            RateKey::Address => by_address(),
            RateKey::Global => Some(1),
            RateKey::Header(name) => match (value(name), self.refusal) {
                (None | Some(b""), Refusal::RoadRunners) => return Client::Unnamed,
                (None, Refusal::Ours) => by_address(),
                (Some(value), _) => Some(self.limiter.tag(value)),
            },
        };
        tag.map_or(Client::Unknown, Client::Known)
    }

    fn refuse(&self, status: u16, retry_after: Option<u64>) -> Response {
        let mut response = match self.refusal {
            Refusal::Ours => Response::status_only(status),
            Refusal::RoadRunners => {
                let text = match status {
                    400 => "Bad Request\n",
                    _ => "Too Many Requests\n",
                };
                let mut response = Response::plain(status, text);
                response.fields.push("Cache-Control", "no-store");
                response.fields.push("X-Content-Type-Options", "nosniff");
                response
            }
        };
        if let Some(seconds) = retry_after {
            response.fields.push("Retry-After", seconds.to_string());
        }
        response
    }
}
