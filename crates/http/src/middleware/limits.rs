//! Requests that a route refuses, for middleware that stands before the routes.

use std::net::IpAddr;

use pronghorn_h1::RequestHead;

use crate::routes::{Asked, Routes};
use crate::settings::{HttpSettings, RouteSettings};

/// Whether a route refuses a request.
#[derive(Default)]
pub(super) struct Refusals(Option<Routes<bool>>);

impl Refusals {
    /// By those routes that refuse.
    pub(super) fn by(settings: &HttpSettings, refuses: fn(&RouteSettings) -> bool) -> Self {
        let is_one = settings.routes.iter().any(refuses);
        Self(is_one.then(|| settings.compile(&[], refuses)))
    }

    /// `address`: the client's.
    pub(super) fn take(&self, head: &RequestHead, address: Option<IpAddr>) -> bool {
        self.0.as_ref().is_some_and(|routes| {
            let picked = routes.pick(&Asked {
                method: head.method(),
                authority: head.authority(),
                path: head.path(),
                fields: head.fields(),
                address,
            });
            // One of several readings may be refused: the router answers 400.
            picked.copied().unwrap_or(true)
        })
    }
}
