//! `rate_limit`, and `rate_limiter` as RoadRunner 3 has it.

use std::sync::Arc;

use pronghorn_serve::Handler;

use super::parts::Parts;
use crate::rate_limit::{RateLimit, limited};
use crate::settings::RateLimitSettings;

pub(super) fn around(next: Arc<dyn Handler>, parts: Parts<'_>) -> Arc<dyn Handler> {
    by(next, parts.settings.rate_limit.as_ref())
}

pub(super) fn limiter_around(next: Arc<dyn Handler>, parts: Parts<'_>) -> Arc<dyn Handler> {
    by(next, parts.settings.rate_limiter.as_ref())
}

fn by(next: Arc<dyn Handler>, settings: Option<&RateLimitSettings>) -> Arc<dyn Handler> {
    limited(next, settings.map(RateLimit::new).map(Arc::new))
}
