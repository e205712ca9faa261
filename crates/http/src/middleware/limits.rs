//! Limits of routes, for middleware in front of them.

use std::net::IpAddr;

use pronghorn_h1::RequestHead;

use crate::routes::{Ambiguous, Asked, Routes};
use crate::settings::{HttpSettings, RouteSettings};

/// The limit of each route that has one.
pub(super) struct Limits<T>(Option<Routes<Option<T>>>);

impl<T> Limits<T> {
    pub(super) fn by(settings: &HttpSettings, limit: impl Fn(&RouteSettings) -> Option<T>) -> Self {
        let is_one = settings.routes.iter().any(|route| limit(route).is_some());
        Self(is_one.then(|| settings.compile(&[], limit)))
    }

    /// The limit of the route of a request.
    ///
    /// # Errors
    ///
    /// When one of several readings of its path may be limited: the router answers 400.
    pub(super) fn of(&self, asked: &Asked<'_>) -> Result<Option<&T>, Ambiguous> {
        let Some(routes) = &self.0 else {
            return Ok(None);
        };
        routes.pick(asked).map(Option::as_ref)
    }

    /// That of a route for a page that stands for the path of a request. `path` is decoded.
    pub(super) fn of_page(
        &self,
        head: &RequestHead,
        path: &[u8],
        address: Option<IpAddr>,
    ) -> Option<&T> {
        let routes = self.0.as_ref()?;
        routes.closing(&asked(head, address), path)?.as_ref()
    }
}

/// `address`: the client's.
pub(super) fn asked(head: &RequestHead, address: Option<IpAddr>) -> Asked<'_> {
    Asked {
        method: head.method(),
        authority: head.authority(),
        path: head.path(),
        fields: head.fields(),
        address,
    }
}

impl<T> Default for Limits<T> {
    fn default() -> Self {
        Self(None)
    }
}
