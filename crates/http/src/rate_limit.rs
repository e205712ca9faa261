//! `rate_limit`, and `rate_limiter` as RoadRunner 3 has it: so many requests of one client in a
//! time, and so many at once.

use std::sync::Arc;
use std::time::Duration;

use pronghorn_base::LogThrottle;
use pronghorn_config::show_duration;
use pronghorn_serve::{Exchange, Handled, Handler, Household, Request, Response};
use tokio::time::Instant;

use super::parts::Parts;
use crate::limiter::Limiter;
use crate::settings::{RateKey, RateLimitSettings, Refusal};

struct RateLimit {
    next: Arc<dyn Handler>,
    limiter: Limiter,
    by: RateKey,
    refusal: Refusal,
    per: Duration,
    started: Instant,
    refused: LogThrottle,
}

pub(super) fn around(next: Arc<dyn Handler>, parts: Parts<'_>) -> Arc<dyn Handler> {
    limited(next, parts.settings.rate_limit.as_ref())
}

pub(super) fn limiter_around(next: Arc<dyn Handler>, parts: Parts<'_>) -> Arc<dyn Handler> {
    limited(next, parts.settings.rate_limiter.as_ref())
}

/// Puts a limit around a handler, if there is one.
pub fn limited(next: Arc<dyn Handler>, settings: Option<&RateLimitSettings>) -> Arc<dyn Handler> {
    let Some(settings) = settings else {
        return next;
    };
    Arc::new(RateLimit {
        next,
        limiter: Limiter::new(settings.rate, settings.burst),
        by: settings.by.clone(),
        refusal: settings.refusal,
        per: settings.rate.per,
        started: Instant::now(),
        refused: LogThrottle::default(),
    })
}

impl Handler for RateLimit {
    fn handle<'a>(&'a self, request: Request, exchange: &'a mut dyn Exchange) -> Handled<'a> {
        let tag = match self.tag(&request) {
            Client::Known(tag) => tag,
            Client::Unknown => return self.next.handle(request, exchange),
            Client::Unnamed => return self.refuse(400, None),
        };
        let now = request.accepted.saturating_duration_since(self.started);
        let now = u64::try_from(now.as_nanos()).unwrap_or(u64::MAX);
        match self.limiter.take(tag, now) {
            Ok(()) => self.next.handle(request, exchange),
            Err(wait) => {
                if let Some(requests) = self.refused.should_log() {
                    tracing::warn!(
                        target: "http", requests, remote_address = %request.peer.address, URI = request.shown_target(),
                        "requests refused: a client has sent too many in {}", show_duration(self.per)
                    );
                }
                self.refuse(429, Some(wait.div_ceil(1_000_000_000).max(1)))
            }
        }
    }
}

/// Whose request it is.
enum Client {
    Known(u64),
    /// It can't be told from others.
    Unknown,
    /// The field that names it is missing.
    Unnamed,
}

impl RateLimit {
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

    fn refuse<'a>(&self, status: u16, retry_after: Option<u64>) -> Handled<'a> {
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
        Box::pin(std::future::ready(response))
    }
}
