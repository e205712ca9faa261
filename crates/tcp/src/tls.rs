//! The certificates of a server.

use std::path::Path;
use std::sync::Arc;

use pronghorn_serve::{Pair, ReadTls, Renewed, Store, Tls, TlsError};
use tokio::task::JoinSet;

use crate::settings::TlsSettings;

/// The certificates of one server.
#[derive(Clone, Debug)]
pub(crate) struct Certificates {
    pub(crate) tls: Tls,
}

impl Certificates {
    /// Reads the files.
    pub(crate) fn load(settings: &TlsSettings, directory: &Path) -> Result<Self, TlsError> {
        let pairs = Pair::all_in(&settings.pairs, directory);
        let store = Arc::new(Store::load(&pairs)?);
        let clients = settings.clients.load(directory)?;
        let tls = Tls::with_clients(store, clients)?.for_streams();
        Ok(Self { tls })
    }

    /// Looks for changed files, as one of these tasks.
    pub(crate) fn watch(&self, tasks: &mut JoinSet<()>) {
        tasks.spawn(self.tls.clone().watch(tell));
    }

    /// Reads the pairs that the configuration names now, and the authorities of clients, for
    /// [`replace`](Self::replace).
    ///
    /// # Errors
    ///
    /// What is wrong with them, which is told.
    pub(crate) async fn read(&self, pairs: Vec<Pair>) -> Result<ReadTls, String> {
        let read = self.tls.read_again(Some(pairs)).await;
        if let Err(error) = &read {
            tracing::error!(
                target: "tcp",
                "reload failed, nothing has changed; the old certificates stay in use: {error}"
            );
        }
        read
    }

    /// Goes over to others.
    pub(crate) fn replace(&self, others: ReadTls) {
        for file in self.tls.replace(others) {
            tracing::info!(
                target: "tcp", certificate = %file.display(),
                "new certificates are in use"
            );
        }
    }
}

fn tell(renewed: Renewed) {
    let certificate = renewed.file.display();
    let subject = renewed.subject;
    match renewed.result {
        Ok(()) => tracing::info!(target: "tcp", %certificate, "{subject} is renewed"),
        Err(error) => tracing::error!(
            target: "tcp", %certificate,
            "{subject} can't be renewed, the one before stays in use: {error}"
        ),
    }
}
