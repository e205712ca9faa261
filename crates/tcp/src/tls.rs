//! The certificates of a server.

use std::path::Path;
use std::sync::Arc;

use pronghorn_serve::{Pair, Renewed, Store, Tls, TlsError};
use tokio::task::{JoinSet, spawn_blocking};

use crate::settings::TlsSettings;

/// The certificates of one server.
#[derive(Clone, Debug)]
pub(crate) struct Certificates {
    pub(crate) tls: Tls,
    store: Arc<Store>,
}

impl Certificates {
    /// Reads the files.
    pub(crate) fn load(settings: &TlsSettings, directory: &Path) -> Result<Self, TlsError> {
        let pairs = Pair::all_in(&settings.pairs, directory);
        let store = Arc::new(Store::load(&pairs)?);
        let clients = settings.clients.load(directory)?;
        let tls = Tls::with_clients(store.clone(), clients)?.for_streams();
        Ok(Self { tls, store })
    }

    /// Looks for changed files, as one of these tasks.
    pub(crate) fn watch(&self, tasks: &mut JoinSet<()>) {
        tasks.spawn(self.store.clone().watch(tell));
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
