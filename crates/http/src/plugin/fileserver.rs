//! The service `fileserver`: files at an address of their own, on threads of their own.

use std::sync::Arc;

use pronghorn_config::Listen;
use pronghorn_plugin_api::{
    self as api, BoxFuture, Context, Finding, Handover, Machine, Running, Stopped,
};
use pronghorn_process::open_files::Share;
use pronghorn_serve::{Endpoint, Limits, Listener, resolve};
use pronghorn_workers::IoThreads;
use tokio::time::Instant;

use super::error::StartError;
use crate::FileServer;
use crate::middleware::Unusable;
use crate::settings::FileServerSettings;

/// The listening sockets, for the next process.
const FILESERVER: &str = "fileserver";

/// A server of files before its start.
#[derive(Debug)]
pub struct FileService {
    pub settings: FileServerSettings,
}

struct Serving {
    endpoint: Endpoint,
    io: IoThreads,
}

impl api::Service for FileService {
    fn listens(&self) -> Vec<Listen> {
        vec![Listen::Tcp(self.settings.address.clone())]
    }

    fn look(&self, machine: &Machine<'_>) -> Vec<Finding> {
        let Self { settings } = self;
        let unusable = FileServer::open(&settings.roots, machine.directory, settings.tag).err();
        unusable.iter().map(Unusable::finding).collect()
    }

    fn share(&self) -> Option<Share> {
        Some(Share::FILESERVER)
    }

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
        let limits = Limits {
            connections: Share::FILESERVER.connections(),
            ..Limits::default()
        };
        context.readiness.answer_with(|| Ok(()));
        Ok(Serving {
            endpoint: Endpoint::new(listener, Arc::new(files), limits),
            io,
        })
    }
}

impl Running for Serving {
    fn open(&mut self) -> Result<(), api::StartError> {
        if let Some(address) = self.endpoint.open(self.io.io().threads())? {
            tracing::info!(target: "server", %address, "serves files");
        }
        Ok(())
    }

    fn addresses(&self) -> Vec<String> {
        vec![self.endpoint.url()]
    }

    fn hand_over(&mut self, step: Handover) {
        self.endpoint.hand_over(step);
    }

    fn stop(self: Box<Self>, deadline: Instant) -> BoxFuture<'static, Stopped> {
        Box::pin(async move {
            match self.endpoint.stop(deadline).await {
                0 => Stopped::Clean,
                cut => Stopped::CutOff(format!("{cut} connections")),
            }
        })
    }
}
