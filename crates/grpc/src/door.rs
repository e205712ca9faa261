//! Calls that come to the listeners of HTTP.

use std::fmt;
use std::sync::Arc;

use arc_swap::ArcSwapOption;
use pronghorn_serve::{Exchange, Handled, Handler, OnSent, Request, Response, Unhandled};

use crate::front::Front;

/// Takes calls out of the requests of another service, where `grpc.on_http` says so.
#[derive(Clone, Default)]
pub struct Door(Arc<ArcSwapOption<Front>>);

impl Door {
    /// The handler of another service, with calls in front of it.
    #[must_use]
    pub fn before(&self, next: Arc<dyn Handler>) -> Arc<dyn Handler> {
        Arc::new(Beside {
            door: self.clone(),
            next,
        })
    }

    pub(crate) fn set(&self, server: Option<Arc<Front>>) {
        self.0.store(server);
    }
}

impl fmt::Debug for Door {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_open = self.0.load().is_some();
        f.debug_struct("Door").field("is_open", &is_open).finish()
    }
}

struct Beside {
    door: Door,
    next: Arc<dyn Handler>,
}

impl Handler for Beside {
    fn handle<'a>(&'a self, request: Request, exchange: &'a mut dyn Exchange) -> Handled<'a> {
        match self.door.0.load_full() {
            Some(server) if server.is_for(&request) => {
                Box::pin(async move { server.handle(request, exchange).await })
            }
            _ => self.next.handle(request, exchange),
        }
    }

    fn unhandled(&self, request: &Unhandled<'_>) -> Option<Arc<dyn OnSent>> {
        self.next.unhandled(request)
    }

    fn without_tls(&self, request: &Request) -> Option<Response> {
        self.next.without_tls(request)
    }
}
