//! The certificates of a server.

use std::sync::Arc;

use pronghorn_serve::{Pair, Renewed, Store, Tls, TlsError};
use tokio::task::{JoinSet, spawn_blocking};

/// The certificates of one server.
#[derive(Clone, Debug)]
pub(crate) struct Certificates {
    pub(crate) tls: Tls,
    store: Arc<Store>,
}

impl Certificates {
    /// Reads the files.
    pub(crate) fn load(pairs: &[Pair]) -> Result<Self, TlsError> {
        let store = Arc::new(Store::load(pairs)?);
        let tls = Tls::new(store.clone())?.for_streams();
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
