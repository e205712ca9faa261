//! The record of each request that reaches no pool: a file, a redirect, a refusal. A pool writes
//! the record of a request that it gets, because it knows more of it.

use std::sync::Arc;

use pronghorn_serve::{Exchange, Handled, Handler, OnSent, Request, Response, Sent, Unhandled};

use super::parts::Parts;
use crate::record::{self, Reached};
use crate::settings::DEFAULT_POOL;

struct Recorded {
    next: Arc<dyn Handler>,
    /// `http.access_logs`
    details: bool,
}

pub(super) fn around(next: Arc<dyn Handler>, parts: Parts<'_>) -> Arc<dyn Handler> {
    let details = parts.settings.access_logs;
    Arc::new(Recorded { next, details })
}

impl Handler for Recorded {
    fn handle<'a>(&'a self, request: Request, exchange: &'a mut dyn Exchange) -> Handled<'a> {
        if !record::is_wanted(200) {
            return self.next.handle(request, exchange);
        }
        let kept = kept(&request, self.details);
        Box::pin(async move {
            let mut response = self.next.handle(request, exchange).await;
            if response.on_sent.is_none() {
                let details = self.details;
                response.on_sent = Some(Arc::new(NoPool { kept, details }));
            }
            response
        })
    }

    fn unhandled(&self, request: &Unhandled<'_>) -> Option<Arc<dyn OnSent>> {
        self.next.unhandled(request)
    }

    fn without_tls(&self, request: &Request) -> Option<Response> {
        self.next.without_tls(request)
    }
}

/// The request, as far as its record shows it.
fn kept(request: &Request, details: bool) -> Request {
    let head = if details {
        (*request.head).clone()
    } else {
        request.head.without_fields()
    };
    Request {
        id: request.id.clone(),
        trace: request.trace.clone(),
        ..Request::new(
            Box::new(head),
            request.peer.clone(),
            request.accepted,
            request.accepted_us,
        )
    }
}

#[derive(Debug)]
struct NoPool {
    kept: Request,
    details: bool,
}

impl OnSent for NoPool {
    fn on_sent(&self, sent: &mut Sent) {
        if !record::is_wanted(sent.status) {
            return;
        }
        let reached = Reached {
            pool: DEFAULT_POOL,
            route: None,
            read_bytes: 0,
        };
        record::write(&self.kept, &reached, self.details, sent);
    }
}
