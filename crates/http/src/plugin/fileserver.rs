//! The service `fileserver`: files at an address of their own, on threads of their own.

use std::sync::Arc;
use std::time::Duration;

use pronghorn_plugin_api::{self as api, BoxFuture, Context, Handover, Running, Stopped};
use pronghorn_process::open_files;
use pronghorn_workers::IoThreads;
use tokio::time::{Instant, timeout_at};

use super::connections;
use super::error::StartError;
use super::listening::resolve;
use crate::FileServer;
use crate::files::MOST_OPEN;
use crate::limits::Limits;
use crate::listener::{Accepting, Listener};
use crate::service::Service;
use crate::settings::FileServerSettings;

/// The listening sockets, for the next process.
const FILESERVER: &str = "fileserver";
/// How long a connection without a request is kept at the end: one may be on its way.
const IDLE: Duration = Duration::from_millis(100);

/// A server of files before its start.
#[derive(Debug)]
pub struct FileService {
    pub settings: FileServerSettings,
}

struct Serving {
    address: String,
    service: Arc<Service>,
    /// Until clients are taken from it.
    listener: Option<Listener>,
    accepting: Option<Accepting>,
    io: IoThreads,
}

impl api::Service for FileService {
    fn start(
        self: Box<Self>,
        context: Context,
    ) -> BoxFuture<'static, Result<Box<dyn Running>, api::StartError>> {
        Box::pin(async move { Ok(Box::new((*self).begin(&context)?) as Box<dyn Running>) })
    }
}

impl FileService {
    fn begin(self, context: &Context) -> Result<Serving, StartError> {
        let Self { settings } = self;
        let files = FileServer::open(&settings.roots, &context.folder, settings.tag)?;
        let io = IoThreads::start(settings.threads)?;
        let mut inherited = context.sockets.take(FILESERVER);
        let address = resolve(&settings.address)?;
        let listener = Listener::open(address, io.io().threads().len(), &mut inherited)?;
        for socket in listener.sockets() {
            context.sockets.offer(FILESERVER, socket)?;
        }
        let kept = (MOST_OPEN * settings.roots.len()) as u64;
        let limits = Limits {
            connections: connections(open_files::raise().saturating_sub(kept), 0),
            ..Limits::default()
        };
        context.readiness.answer_with(|| Ok(()));
        Ok(Serving {
            address: listener.url(),
            service: Service::new(Arc::new(files), limits, Arc::default(), None),
            listener: Some(listener),
            accepting: None,
            io,
        })
    }
}

impl Running for Serving {
    fn open(&mut self) -> Result<(), api::StartError> {
        if let Some(listener) = self.listener.take() {
            tracing::info!(target: "server", address = %listener.place(), "serves files");
            self.accepting = Some(listener.serve(self.io.io().threads(), &self.service)?);
        }
        Ok(())
    }

    fn addresses(&self) -> Vec<String> {
        vec![self.address.clone()]
    }

    fn hand_over(&mut self, step: Handover) {
        if step == Handover::Done {
            self.accepting = None;
        }
    }

    fn stop(self: Box<Self>, deadline: Instant) -> BoxFuture<'static, Stopped> {
        Box::pin(async move {
            _ = timeout_at(deadline, self.service.drain(IDLE)).await; // what is left is cut off
            drop(self.accepting);
            match self.service.open() {
                0 => Stopped::Clean,
                cut => Stopped::CutOff(format!("{cut} connections")),
            }
        })
    }
}
