//! `http.ssl.client_auth_type`: what an application finds of a client's certificate.

use std::sync::Arc;

use pronghorn_serve::{
    ClientAuth, Exchange, Handled, Handler, OnSent, Request, Response, Unhandled,
};

use super::parts::Parts;

/// The attribute of a client without a certificate, and its value.
const NONE: (&str, &str) = ("SSL_CLIENT_VERIFY", "NONE");

struct WithCertificate(Arc<dyn Handler>);

pub(super) fn around(next: Arc<dyn Handler>, parts: Parts<'_>) -> Arc<dyn Handler> {
    match &parts.settings.ssl {
        Some(ssl) if ssl.clients.auth != ClientAuth::None => Arc::new(WithCertificate(next)),
        _ => next,
    }
}

impl Handler for WithCertificate {
    fn handle<'a>(&'a self, mut request: Request, exchange: &'a mut dyn Exchange) -> Handled<'a> {
        // A client must not tell by itself who it is.
        let fields = request.head.fields_mut();
        fields.remove("client-cert");
        fields.remove("client-cert-chain");
        match &request.peer.certificate {
            Some(certificate) => {
                for (name, value) in certificate.variables() {
                    request.attributes.push(name, value);
                }
            }
            None => request.attributes.push(NONE.0, NONE.1),
        }
        self.0.handle(request, exchange)
    }

    fn unhandled(&self, request: &Unhandled<'_>) -> Option<Arc<dyn OnSent>> {
        self.0.unhandled(request)
    }

    fn without_tls(&self, request: &Request) -> Option<Response> {
        self.0.without_tls(request)
    }
}
