//! The certificates of a server.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use pronghorn_serve::{CertificateError, Pair, Renewed, Store, Tls};
use thiserror::Error;
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::{MissedTickBehavior, interval};

/// How often the files of certificates are looked at.
const LOOK: Duration = Duration::from_secs(5);

/// The operator's: TLS that can't be set up.
#[derive(Debug, Error)]
pub(crate) enum TlsError {
    #[error(transparent)]
    Certificate(#[from] CertificateError),
    #[error("TLS can't be set up: {0}")]
    Setup(String),
}

/// The certificates of one server.
#[derive(Clone, Debug)]
pub(crate) struct Certificates {
    pub(crate) tls: Tls,
    store: Arc<Store>,
}

/// With paths that begin in this directory.
pub(crate) fn in_directory(pairs: &[Pair], directory: &Path) -> Vec<Pair> {
    let pairs = pairs.iter().map(|pair| Pair {
        certificate: directory.join(&pair.certificate),
        key: directory.join(&pair.key),
    });
    pairs.collect()
}

impl Certificates {
    /// Reads the files.
    pub(crate) fn load(pairs: &[Pair]) -> Result<Self, TlsError> {
        let store = Arc::new(Store::load(pairs)?);
        let tls = Tls::new(store.clone());
        let tls = tls.map_err(|error| TlsError::Setup(error.to_string()))?;
        Ok(Self {
            tls: tls.for_streams(),
            store,
        })
    }

    /// Looks for changed files, as one of these tasks.
    pub(crate) fn watch(&self, tasks: &mut JoinSet<()>) {
        let store = self.store.clone();
        tasks.spawn(async move {
            let mut looks = interval(LOOK);
            looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                looks.tick().await;
                let store = store.clone();
                let renewed = spawn_blocking(move || store.refresh()).await;
                renewed.unwrap_or_default().into_iter().for_each(tell);
            }
        });
    }

    /// Reads the pairs that the configuration names now, for [`replace`](Self::replace). None where
    /// they can't be used, which is told.
    pub(crate) async fn read(pairs: Vec<Pair>) -> Option<Store> {
        let read = spawn_blocking(move || Store::load(&pairs)).await.ok()?;
        if let Err(error) = &read {
            tracing::error!(target: "tcp", "the old certificates stay in use: {error}");
        }
        read.ok()
    }

    /// Goes over to others.
    pub(crate) fn replace(&self, others: Store) {
        self.store.replace(others);
    }
}

fn tell(renewed: Renewed) {
    let certificate = renewed.pair.certificate.display();
    match renewed.result {
        Ok(()) => tracing::info!(target: "tcp", %certificate, "the certificate is renewed"),
        Err(error) => tracing::error!(
            target: "tcp", %certificate,
            "the certificate can't be renewed, the one before stays in use: {error}"
        ),
    }
}
