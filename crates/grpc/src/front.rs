//! The handler of a port of gRPC: calls, and JSON where methods have it.

use pronghorn_grpc_wire::{Content, Server};
use pronghorn_serve::{Exchange, Handled, Handler, Refusal, Request, Response};

use crate::calls::Calls;
use crate::json::Json;

/// Takes calls, and requests that are calls as JSON.
pub(crate) struct Front {
    pub(crate) server: Server<Calls>,
    /// None without `grpc.json_transcoding`.
    pub(crate) json: Option<Json>,
}

impl Front {
    /// Whether another service leaves a request to this one.
    pub(crate) fn is_for(&self, request: &Request) -> bool {
        let json = || self.json.as_ref().and_then(|json| json.find(request));
        self.server.is_for(request) || json().is_some()
    }
}

impl Handler for Front {
    fn handle<'a>(&'a self, request: Request, exchange: &'a mut dyn Exchange) -> Handled<'a> {
        let content = request.head.fields().get("content-type");
        if let Some(json) = &self.json
            && content.and_then(Content::parse).is_none()
        {
            if let Some(found) = json.find(&request) {
                return Box::pin(json.respond(found, &self.server, request, exchange));
            }
            let is_grpc = content.is_some_and(Content::is_of_grpc);
            if !is_grpc && !self.server.is_for(&request) {
                return Box::pin(std::future::ready(json.no_route()));
            }
        }
        self.server.handle(request, exchange)
    }

    fn refused(&self, content: Option<&[u8]>, refusal: Refusal) -> Option<Response> {
        self.server.refused(content, refusal)
    }
}
