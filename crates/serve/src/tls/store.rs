//! The certificates that are in use: which one a client gets, and new ones in their place.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use pronghorn_base::lock;
use pronghorn_h1::host_of;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use super::certificate::{Certificate, CertificateError, Pair, ReadState, Stamp};

/// Certificates by name. Handshakes read it without a lock.
#[derive(Debug)]
pub struct Store {
    used: ArcSwap<Used>,
    files: Mutex<Vec<Watched>>,
}

/// A pair and its certificate.
#[derive(Debug, Clone)]
struct Watched {
    pair: Pair,
    read: ReadState,
    certificate: Arc<Certificate>,
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
                read: ReadState::new(Stamp::of_pair(pair)),
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

    /// Reads those pairs again whose files have changed since they were read last, or could not be
    /// read. An error leaves the certificate in use that was there before, and is given once.
    /// Blocks for the disk.
    pub(super) fn refresh(&self) -> Vec<(PathBuf, Result<(), CertificateError>)> {
        let mut files = lock(&self.files);
        let mut renewed = Vec::new();
        for watched in files.iter_mut() {
            let stamp = Stamp::of_pair(&watched.pair);
            if !watched.read.is_due(&stamp) {
                continue;
            }
            let result = Certificate::load(&watched.pair).map(|certificate| {
                watched.certificate = Arc::new(certificate);
            });
            if watched.read.note(stamp, &result) {
                renewed.push((watched.pair.certificate.clone(), result));
            }
        }
        if renewed.iter().any(|(_, result)| result.is_ok()) {
            self.used.store(Arc::new(Used::of(&files)));
        }
        renewed
    }

    /// The pairs that are in use.
    pub(super) fn pairs(&self) -> Vec<Pair> {
        let files = lock(&self.files);
        files.iter().map(|watched| watched.pair.clone()).collect()
    }

    /// Goes over to other pairs, which were loaded. Gives the files of those certificates that were
    /// not in use before.
    pub fn replace(&self, others: Self) -> Vec<PathBuf> {
        let Self { used, files } = others;
        let files = files.into_inner().unwrap_or_else(PoisonError::into_inner);
        let mut before = lock(&self.files);
        let is_new = |new: &&Watched| {
            let mut before = before.iter();
            !before.any(|old| old.certificate.key.cert == new.certificate.key.cert)
        };
        let new = files.iter().filter(is_new);
        let new = new.map(|new| new.pair.certificate.clone()).collect();
        *before = files;
        self.used.store(used.into_inner());
        new
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
