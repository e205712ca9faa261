//! The server of the row `http-alone`: our HTTP side with a handler in Rust behind it and no PHP.

use std::future::Future;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;

use bytes::Bytes;
use pronghorn_serve::{
    Body, Exchange, Handled, Handler, Limits, Listener, Request, Response, Service,
};
use pronghorn_workers::IoThreads;

use crate::error::BenchError;
use crate::scenario::{Body as ExpectedBody, Expected};

/// What it answers, nginx from memory as well.
pub(crate) const BODY: &str = "Hello World!";

/// The same, as something to expect.
pub(crate) fn expected() -> Expected {
    Expected {
        status: 200,
        gzip: false,
        body: ExpectedBody::Exactly(BODY.into()),
    }
}

struct FromMemory;

impl Handler for FromMemory {
    fn handle<'a>(&'a self, _: Request, _: &'a mut dyn Exchange) -> Handled<'a> {
        Box::pin(async {
            let mut response = Response::new(200, Body::Whole(Bytes::from_static(BODY.as_bytes())));
            response.fields.push("Content-Type", "text/plain");
            response
        })
    }
}

/// Serves until `stop`.
pub(crate) async fn serve(
    address: SocketAddr,
    threads: usize,
    stop: impl Future<Output = ()>,
) -> Result<ExitCode, BenchError> {
    let failed = |error: &dyn std::error::Error| BenchError::Listen {
        address,
        why: error.to_string(),
    };
    let io = IoThreads::start(threads).map_err(|error| failed(&error))?;
    let service = Service::new(
        Arc::new(FromMemory),
        Limits::default(),
        Arc::default(),
        None,
        None,
    );
    let accepting = Listener::open(address, threads, &mut Vec::new())
        .and_then(|listener| listener.serve(io.io().threads(), &service))
        .map_err(|error| failed(&error))?;
    stop.await;
    drop(accepting);
    Ok(ExitCode::SUCCESS)
}
