//! Builds without the feature `descriptors` have no JSON: the settings refuse it.

use pronghorn_grpc_wire::Server;
use pronghorn_serve::{Exchange, Request, Response};

use crate::calls::Calls;
use crate::descriptors::Descriptors;
use crate::files::FileError;
use crate::table::ServiceTable;

/// There is none.
#[derive(Debug)]
pub(crate) enum Json {}

#[expect(
    clippy::unused_async,
    reason = "it is the same in builds that have JSON"
)]
impl Json {
    pub(crate) fn new(_: &Descriptors, _: &ServiceTable) -> Result<Self, FileError> {
        Err(FileError::NoDescriptors)
    }

    pub(crate) fn hidden(&self) -> Vec<String> {
        match *self {}
    }

    pub(crate) fn no_route(&self) -> Response {
        match *self {}
    }

    pub(crate) fn find(&self, _: &Request) -> Option<Self> {
        match *self {}
    }

    pub(crate) async fn respond(
        &self,
        _: Self,
        _: &Server<Calls>,
        _: Request,
        _: &mut dyn Exchange,
    ) -> Response {
        match *self {}
    }
}
