//! TLS as the section has it, and what PHP finds of a client.

use std::path::Path;
use std::sync::Arc;

use pronghorn_grpc_wire::Metadata;
use pronghorn_serve::{Peer, Renewed, Store, Tls, TlsError};
use tokio::task::JoinSet;

use crate::settings::TlsSettings;

/// A listener's TLS.
#[derive(Debug)]
pub(crate) struct Certificates {
    pub(crate) tls: Tls,
    store: Arc<Store>,
}

impl Certificates {
    /// Reads the files.
    pub(crate) fn load(settings: &TlsSettings, directory: &Path) -> Result<Self, TlsError> {
        let pair = settings.pair.in_directory(directory);
        let store = Arc::new(Store::load(std::slice::from_ref(&pair))?);
        let clients = settings.clients.load(directory)?;
        let tls = Tls::with_clients(store.clone(), clients)?;
        Ok(Self { tls, store })
    }

    /// Looks for changed files until the result is dropped.
    pub(crate) fn watch(certificates: Option<&Self>) -> JoinSet<()> {
        let mut tasks = JoinSet::new();
        if let Some(certificates) = certificates {
            tasks.spawn(certificates.store.clone().watch(tell));
        }
        tasks
    }
}

fn tell(renewed: Renewed) {
    let certificate = renewed.pair.certificate.display();
    match renewed.result {
        Ok(()) => tracing::info!(target: "grpc", %certificate, "the certificate is renewed"),
        Err(error) => tracing::error!(
            target: "grpc", %certificate,
            "the certificate can't be renewed, the one before stays in use: {error}"
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
