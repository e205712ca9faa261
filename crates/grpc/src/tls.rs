//! TLS as the section has it, and what PHP finds of a client.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use pronghorn_grpc_wire::Metadata;
use pronghorn_serve::{
    CertificateError, ClientCertificates, Pair, Peer, Store, Tls, read_authorities,
};
use thiserror::Error;
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;

use crate::settings::{ClientAuth, TlsSettings};

/// How often the files of the certificate are looked at.
const LOOK: Duration = Duration::from_secs(5);

/// The operator's: TLS that can't be set up.
#[derive(Debug, Error)]
pub(crate) enum TlsError {
    #[error(transparent)]
    Certificate(#[from] CertificateError),
    #[error("TLS can't be set up: {0}")]
    Setup(String),
}

/// A listener's TLS.
#[derive(Debug)]
pub(crate) struct Certificates {
    pub(crate) tls: Tls,
    store: Arc<Store>,
}

fn in_directory(pair: &Pair, directory: &Path) -> Pair {
    Pair {
        certificate: directory.join(&pair.certificate),
        key: directory.join(&pair.key),
    }
}

impl Certificates {
    /// Reads the files.
    pub(crate) fn load(settings: &TlsSettings, directory: &Path) -> Result<Self, TlsError> {
        let pair = in_directory(&settings.pair, directory);
        let store = Arc::new(Store::load(std::slice::from_ref(&pair))?);
        let roots = match &settings.root_ca {
            Some(path) => read_authorities(&directory.join(path))?,
            None => Vec::new(),
        };
        let clients = match settings.client_auth {
            ClientAuth::None => None,
            ClientAuth::Request => Some(ClientCertificates::Any { required: false }),
            ClientAuth::RequireAny => Some(ClientCertificates::Any { required: true }),
            ClientAuth::VerifyIfGiven => Some(ClientCertificates::Of {
                roots,
                required: false,
            }),
            ClientAuth::RequireAndVerify => Some(ClientCertificates::Of {
                roots,
                required: true,
            }),
        };
        let tls = Tls::with_clients(store.clone(), clients);
        let tls = tls.map_err(|error| TlsError::Setup(error.to_string()))?;
        Ok(Self { tls, store })
    }

    /// Looks for changed files until the result is dropped.
    pub(crate) fn watch(certificates: Option<&Self>) -> JoinSet<()> {
        let mut tasks = JoinSet::new();
        if let Some(store) = certificates.map(|it| it.store.clone()) {
            tasks.spawn(async move {
                let mut looks = tokio::time::interval(LOOK);
                looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
                loop {
                    looks.tick().await;
                    let store = store.clone();
                    let looked = tokio::task::spawn_blocking(move || store.refresh()).await;
                    for renewed in looked.unwrap_or_default() {
                        let certificate = renewed.pair.certificate.display();
                        match renewed.result {
                            Ok(()) => tracing::info!(
                                target: "grpc", %certificate, "the certificate is renewed"
                            ),
                            Err(error) => tracing::error!(
                                target: "grpc", %certificate,
                                "the certificate can't be renewed, the one before stays in use: \
                                 {error}"
                            ),
                        }
                    }
                }
            });
        }
        tasks
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
