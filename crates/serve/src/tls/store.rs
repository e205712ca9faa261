//! The certificates that are in use: which one a client gets, and new ones in their place.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use pronghorn_base::lock;
use pronghorn_h1::host_of;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use tokio::task::spawn_blocking;
use tokio::time::{MissedTickBehavior, interval};

use super::certificate::{Certificate, CertificateError, Pair, Stamp};

/// How often the files of certificates are looked at. Watching them would not see through the
/// symbolic links that certbot and Kubernetes exchange; a look is two system calls a file.
const LOOK: Duration = Duration::from_secs(5);

/// Certificates by name. Handshakes read it without a lock.
#[derive(Debug)]
pub struct Store {
    used: ArcSwap<Used>,
    files: Mutex<Vec<Watched>>,
}

/// A pair, its certificate, and the state of its files when they were read last, whatever came of
/// it.
#[derive(Debug, Clone)]
struct Watched {
    pair: Pair,
    stamp: Stamp,
    certificate: Arc<Certificate>,
}

/// How the reading of a pair ended whose files changed.
#[derive(Debug)]
pub struct Renewed {
    /// The files.
    pub pair: Pair,
    /// An error leaves the certificate in use that was there before.
    pub result: Result<(), CertificateError>,
}

#[derive(Debug, Default)]
struct Used {
    by_name: HashMap<String, Vec<Arc<CertifiedKey>>>,
    /// For clients that name nothing, or something that no certificate is for: the first one.
    otherwise: Vec<Arc<CertifiedKey>>,
}

impl Store {
    /// Loads all pairs.
    ///
    /// # Errors
    ///
    /// What is wrong with the first pair that can't be used.
    pub fn load(pairs: &[Pair]) -> Result<Self, CertificateError> {
        let load = |pair: &Pair| {
            Ok(Watched {
                // Before the files: what changes while they are read is read again.
                stamp: Stamp::of(pair),
                certificate: Arc::new(Certificate::load(pair)?),
                pair: pair.clone(),
            })
        };
        let files = pairs.iter().map(load).collect::<Result<Vec<_>, _>>()?;
        Ok(Self {
            used: ArcSwap::from_pointee(Used::of(&files)),
            files: Mutex::new(files),
        })
    }

    /// Reads those pairs again whose files have changed since they were read last. Blocks for the
    /// disk.
    pub fn refresh(&self) -> Vec<Renewed> {
        let mut files = lock(&self.files);
        let mut renewed = Vec::new();
        for watched in files.iter_mut() {
            let stamp = Stamp::of(&watched.pair);
            if stamp == watched.stamp {
                continue;
            }
            watched.stamp = stamp;
            let result = Certificate::load(&watched.pair).map(|certificate| {
                watched.certificate = Arc::new(certificate);
            });
            renewed.push(Renewed {
                pair: watched.pair.clone(),
                result,
            });
        }
        if renewed.iter().any(|renewed| renewed.result.is_ok()) {
            self.used.store(Arc::new(Used::of(&files)));
        }
        renewed
    }

    /// The same on a file thread. None where that panicked, which was reported.
    pub async fn refreshed(self: &Arc<Self>) -> Option<Vec<Renewed>> {
        let store = self.clone();
        spawn_blocking(move || store.refresh()).await.ok()
    }

    /// Looks for changed files until it is dropped, and tells what came of each.
    pub async fn watch(self: Arc<Self>, tell: fn(Renewed)) {
        let mut looks = interval(LOOK);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            looks.tick().await;
            let renewed = self.refreshed().await.unwrap_or_default();
            renewed.into_iter().for_each(tell);
        }
    }

    /// Whether it is these that are in use.
    pub fn has(&self, pairs: &[Pair]) -> bool {
        let files = lock(&self.files);
        files.iter().map(|watched| &watched.pair).eq(pairs)
    }

    /// Goes over to other pairs, which were loaded.
    pub fn replace(&self, others: Self) {
        let Self { used, files } = others;
        let files = files.into_inner().unwrap_or_else(PoisonError::into_inner);
        *lock(&self.files) = files;
        self.used.store(used.into_inner());
    }
}

impl Used {
    fn of(files: &[Watched]) -> Self {
        let mut used = Self::default();
        for Watched { certificate, .. } in files {
            for name in &certificate.names {
                let named = used.by_name.entry(name.clone()).or_default();
                named.push(certificate.key.clone());
            }
        }
        if let Some(first) = files.first() {
            // One of the other kind for the same names, if there is one: a client may know only
            // RSA.
            let alike = files.iter();
            let alike = alike.filter(|other| other.certificate.names == first.certificate.names);
            used.otherwise = alike.map(|other| other.certificate.key.clone()).collect();
        }
        used
    }

    /// The certificates for a name: its own, else those for all names of its domain.
    fn named(&self, name: &str) -> &[Arc<CertifiedKey>] {
        let name = host_of(name);
        let wildcard = || {
            let (_, domain) = name.split_once('.')?;
            self.by_name.get(&format!("*.{domain}"))
        };
        let found = self.by_name.get(&*name).or_else(wildcard);
        found.unwrap_or(&self.otherwise)
    }
}

impl ResolvesServerCert for Store {
    fn resolve(&self, client: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let used = self.used.load();
        let candidates = client
            .server_name()
            .map_or(&used.otherwise[..], |name| used.named(name));
        // Several kinds of keys for one name: the first that the client knows.
        let schemes = client.signature_schemes();
        let known = candidates
            .iter()
            .find(|candidate| candidate.key.choose_scheme(schemes).is_some());
        known.or_else(|| candidates.first()).cloned()
    }
}
