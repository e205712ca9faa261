//! TLS as the section has it, and what PHP finds of a client.

use std::path::Path;
use std::sync::Arc;

use pronghorn_grpc_wire::Metadata;
use pronghorn_serve::{Peer, ReadTls, Renewed, Store, Tls, TlsError};
use tokio::task::JoinSet;

use crate::settings::TlsSettings;

/// A listener's TLS.
#[derive(Debug)]
pub(crate) struct Certificates {
    pub(crate) tls: Tls,
}

impl Certificates {
    /// Reads the files.
    pub(crate) fn load(settings: &TlsSettings, directory: &Path) -> Result<Self, TlsError> {
        let pair = settings.pair.in_directory(directory);
        let store = Arc::new(Store::load(std::slice::from_ref(&pair))?);
        let clients = settings.clients.load(directory)?;
        let tls = Tls::with_clients(store, clients)?;
        Ok(Self { tls })
    }

    /// Looks for changed files until the result is dropped.
    pub(crate) fn watch(certificates: Option<&Self>) -> JoinSet<()> {
        let mut tasks = JoinSet::new();
        if let Some(certificates) = certificates {
            tasks.spawn(certificates.tls.clone().watch(tell));
        }
        tasks
    }

    /// Reads the files again that are in use, for [`replace`](Self::replace): others hold from a
    /// restart on.
    ///
    /// # Errors
    ///
    /// What is wrong with them, which is told.
    pub(crate) async fn read_again(&self) -> Result<ReadTls, String> {
        let read = self.tls.read_again(None).await;
        if let Err(error) = &read {
            tracing::error!(
                target: "grpc",
                "reload failed, nothing has changed; the old certificates stay in use: {error}"
            );
        }
        read
    }

    /// Goes over to what was read.
    pub(crate) fn replace(&self, read: ReadTls) {
        for file in self.tls.replace(read) {
            tracing::info!(
                target: "grpc", certificate = %file.display(),
                "new certificates are in use"
            );
        }
    }
}

fn tell(renewed: Renewed) {
    let certificate = renewed.file.display();
    let subject = renewed.subject;
    match renewed.result {
        Ok(()) => tracing::info!(target: "grpc", %certificate, "{subject} is renewed"),
        Err(error) => tracing::error!(
            target: "grpc", %certificate,
            "{subject} can't be renewed, the one before stays in use: {error}"
        ),
    }
}

/// Adds what is known of a client, by RoadRunner's names and ours.
pub(crate) fn peer_metadata(peer: &Peer, context: &mut Metadata) {
    context.push(":peer.address", peer.shown_address().as_bytes());
    if !peer.tls {
        return;
    }
    context.push(":peer.auth-type", b"tls");
    if let Some(certificate) = &peer.certificate {
        context.push(
            ":peer.certificate.subject",
            certificate.subject().as_bytes(),
        );
        for name in certificate.names() {
            context.push(":peer.certificate.name", name.as_bytes());
        }
    }
}
