//! The handler that gives each request to the handler of its route.

use std::sync::Arc;

use crate::exchange::Exchange;
use crate::message::{Handled, Handler, Request};
use crate::routes::{Asked, Routes};

/// Asks the routes who answers a request.
pub struct Router(pub Routes<Arc<dyn Handler>>);

impl Handler for Router {
    fn handle<'a>(&'a self, request: Request, exchange: &'a mut dyn Exchange) -> Handled<'a> {
        let head = &request.head;
        let handler = self.0.pick(&Asked {
            method: head.method(),
            authority: head.authority(),
            path: head.path(),
            fields: head.fields(),
        });
        handler.handle(request, exchange)
    }
}

impl std::fmt::Debug for Router {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Router").finish_non_exhaustive()
    }
}
