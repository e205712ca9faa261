//! `http.request_id`: a number for each request, the same for the client, PHP and the logs.

use std::sync::Arc;

use pronghorn_serve::{Exchange, Handled, Handler, OnSent, Request, Response, Unhandled};

use super::parts::Parts;
use crate::record::{new_request_id, request_id_in};

/// What PHP finds it by, besides the header.
const ATTRIBUTE: &str = "request_id";

struct RequestId {
    next: Arc<dyn Handler>,
    header: String,
    /// As names in requests are.
    lower: String,
    from_client: bool,
}

pub(super) fn around(next: Arc<dyn Handler>, parts: Parts<'_>) -> Arc<dyn Handler> {
    let Some(settings) = &parts.settings.request_id else {
        return next;
    };
    Arc::new(RequestId {
        next,
        header: settings.header.clone(),
        lower: settings.header.to_ascii_lowercase(),
        from_client: settings.from_client,
    })
}

impl Handler for RequestId {
    fn handle<'a>(&'a self, mut request: Request, exchange: &'a mut dyn Exchange) -> Handled<'a> {
        let sent = request_id_in(&request, &self.lower).filter(|_| self.from_client);
        let id = sent.unwrap_or_else(new_request_id);
        request.head.fields_mut().set(&self.lower, &*id);
        request.attributes.set(ATTRIBUTE, &*id);
        request.id = Some(id.clone());
        Box::pin(async move {
            let mut response = self.next.handle(request, exchange).await;
            response.fields.set(&self.header, &*id);
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
