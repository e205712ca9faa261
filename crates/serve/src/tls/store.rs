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
use super::managed::Managed;

/// The only protocol of a handshake in which an authority looks for its challenge (RFC 8737).
pub(super) const CHALLENGE: &[u8] = b"acme-tls/1";

/// Certificates by name. Handshakes read it without a lock.
#[derive(Debug)]
pub struct Store {
    used: ArcSwap<Used>,
    watched: Mutex<All>,
    /// Certificates that answer challenges, by the names that they prove. None where nobody fetches
    /// certificates: then no handshake asks for them.
    challenges: Option<ArcSwap<HashMap<String, Arc<CertifiedKey>>>>,
}

/// The sources of the certificates in use.
#[derive(Debug, Default)]
struct All {
    files: Vec<Watched>,
    /// The server fetched these, or made one until it has them.
    managed: Vec<Managed>,
    /// Where no certificate is for a name, and none is from a file.
    placeholder: Option<Managed>,
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
        let all = All {
            files: pairs.iter().map(load).collect::<Result<Vec<_>, _>>()?,
            ..All::default()
        };
        Ok(Self {
            used: ArcSwap::from_pointee(Used::of(&all)),
            watched: Mutex::new(all),
            challenges: None,
        })
    }

    /// Answers challenges of an authority in handshakes.
    #[must_use]
    pub fn with_challenges(self) -> Self {
        Self {
            challenges: Some(ArcSwap::default()),
            ..self
        }
    }

    pub(super) const fn has_challenges(&self) -> bool {
        self.challenges.is_some()
    }

    /// From now on, a handshake of an authority for this name gets this certificate.
    pub fn add_challenge(&self, name: &str, answer: &Managed) {
        self.change_challenges(|all| {
            all.insert(name.to_owned(), answer.0.key.clone());
        });
    }

    /// The challenge for this name is over.
    pub fn remove_challenge(&self, name: &str) {
        self.change_challenges(|all| {
            all.remove(name);
        });
    }

    fn change_challenges(&self, change: impl Fn(&mut HashMap<String, Arc<CertifiedKey>>)) {
        if let Some(challenges) = &self.challenges {
            challenges.rcu(|all| {
                let mut all = HashMap::clone(all);
                change(&mut all);
                all
            });
        }
    }

    /// Goes over to these certificates, which are not watched in files, from those before. The
    /// placeholder is for clients that would get none at all.
    pub fn set_managed(&self, managed: Vec<Managed>, placeholder: Option<Managed>) {
        let mut all = lock(&self.watched);
        all.managed = managed;
        all.placeholder = placeholder;
        self.used.store(Arc::new(Used::of(&all)));
    }

    /// Reads those pairs again whose files have changed since they were read last, or could not be
    /// read. An error leaves the certificate in use that was there before, and is given once.
    /// Blocks for the disk.
    pub(super) fn refresh(&self) -> Vec<(PathBuf, Result<(), CertificateError>)> {
        let mut all = lock(&self.watched);
        let mut renewed = Vec::new();
        for watched in &mut all.files {
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
            self.used.store(Arc::new(Used::of(&all)));
        }
        renewed
    }

    /// The pairs that are in use.
    pub(super) fn pairs(&self) -> Vec<Pair> {
        let all = lock(&self.watched);
        let pairs = all.files.iter().map(|watched| watched.pair.clone());
        pairs.collect()
    }

    /// Goes over to other pairs, which were loaded. Gives the files of those certificates that were
    /// not in use before.
    pub fn replace(&self, others: Self) -> Vec<PathBuf> {
        let others = others.watched.into_inner();
        let files = others.unwrap_or_else(PoisonError::into_inner).files;
        let mut all = lock(&self.watched);
        let is_new = |new: &&Watched| {
            let mut before = all.files.iter();
            !before.any(|old| old.certificate.key.cert == new.certificate.key.cert)
        };
        let new = files.iter().filter(is_new);
        let new = new.map(|new| new.pair.certificate.clone()).collect();
        all.files = files;
        self.used.store(Arc::new(Used::of(&all)));
        new
    }
}

impl Used {
    fn of(all: &All) -> Self {
        let mut used = Self::default();
        let files = all.files.iter().map(|watched| &*watched.certificate);
        // An operator's own file comes before what was fetched for the same name.
        let both = || files.clone().chain(all.managed.iter().map(|it| &*it.0));
        for certificate in both() {
            for name in &certificate.names {
                let named = used.by_name.entry(name.clone()).or_default();
                named.push(certificate.key.clone());
            }
        }
        if let Some(first) = both().next() {
            // One of the other kind for the same names, if there is one: a client may know only
            // RSA.
            let alike = both().filter(|other| other.names == first.names);
            used.otherwise = alike.map(|other| other.key.clone()).collect();
        } else if let Some(placeholder) = &all.placeholder {
            used.otherwise = vec![placeholder.0.key.clone()];
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
        if let Some(challenges) = &self.challenges
            && let Some(mut protocols) = client.alpn()
            && protocols.next() == Some(CHALLENGE)
        {
            let name = client.server_name()?.to_ascii_lowercase();
            return challenges.load().get(&name).cloned();
        }
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
