//! The certificates of all names, and the tasks that keep them fresh.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use pronghorn_base::{lock, since_1970, with_causes};
use pronghorn_client::Tls;
use pronghorn_metrics::Registry;
use pronghorn_serve::{Handler, Managed, Store};
use pronghorn_store::LazyStore;
use tokio::sync::{Mutex as AsyncMutex, Notify, Semaphore};
use tokio::task::{JoinSet, spawn_blocking};

use crate::api::{Account, Api};
use crate::challenge::{Answering, Answers, Challenge, Tokens, self_signed};
use crate::error::AcmeError;
use crate::import;
use crate::jose::{AccountKey, sha256};
use crate::order::{Wanted, issue};
use crate::plan::{Action, Attempts, Window, is_alarming, plan, turn};
use crate::renewal_info::{ASKED_AFTER, identifier, suggested};
use crate::settings::AcmeSettings;
use crate::storage::{Certificate, Storage, file};

/// Orders at the same time. Others wait.
const ORDERS: usize = 4;
/// The longest time without a look at the clock, which may be set while the server runs.
const LONGEST_SLEEP: u64 = 600;

/// Certificates that the server fetches itself.
#[derive(Debug)]
pub struct Acme {
    settings: AcmeSettings,
    storage: Storage,
    tls: Tls,
    answers: Answers,
    names: Mutex<BTreeMap<String, Name>>,
    placeholder: Managed,
    /// By the addresses of their directories.
    authorities: AsyncMutex<HashMap<String, Arc<Authority>>>,
    orders: Semaphore,
    /// Ends pauses after failures.
    again: Notify,
}

#[derive(Debug)]
struct Authority {
    api: Api,
    account: Account,
}

/// The knowledge of one name.
#[derive(Clone, Debug, Default)]
struct Name {
    certificate: Option<Certificate>,
    attempts: Attempts,
    /// A certificate that is in use, and is not on the disk yet.
    unwritten: Option<String>,
    /// When the authority wants the certificate to be renewed, and when it is asked again.
    window: Option<Window>,
    asked_again: u64,
    /// Orders that have failed since the start.
    failures: u64,
}

impl Acme {
    /// Uses the certificates that are there, and orders none yet.
    ///
    /// # Errors
    ///
    /// When the directory for certificates can't be used.
    pub fn open(
        settings: AcmeSettings,
        directory: &Path,
        state: &Path,
        store: Arc<Store>,
    ) -> Result<Arc<Self>, AcmeError> {
        let first = settings.domains.first();
        let first = first.map_or("localhost", |domain| domain.as_str());
        let acme = Self {
            storage: Storage::open(state)?,
            tls: Tls {
                root_ca: settings.root_ca.as_ref().map(|file| directory.join(file)),
                identity: None,
            },
            answers: Answers {
                tokens: Arc::new(Tokens::default()),
                store,
            },
            names: Mutex::default(),
            placeholder: self_signed(first, Vec::new())?,
            authorities: AsyncMutex::default(),
            orders: Semaphore::new(ORDERS),
            again: Notify::new(),
            settings,
        };
        acme.import(directory);
        acme.read();
        acme.tell_missing();
        Ok(Arc::new(acme))
    }

    /// Counts for metrics: how long each certificate holds, and the failures.
    #[expect(
        clippy::cast_precision_loss,
        reason = "seconds since 1970 and failures are far below 2^52"
    )]
    pub fn register(self: &Arc<Self>, metrics: &Registry) {
        for domain in &self.settings.domains {
            let name = domain.as_str();
            let metrics = metrics.labelled("name", name);
            let read = |of: fn(&Name) -> u64| {
                let (acme, name) = (Arc::downgrade(self), name.to_owned());
                move || {
                    let known = acme.upgrade().map(|acme| acme.known(&name));
                    known.map_or(0, |known| of(&known)) as f64
                }
            };
            metrics.computed(
                "certificate_expiry_timestamp_seconds",
                "When the certificate expires that the server fetches for a name; 0 without one.",
                read(|known| {
                    known
                        .certificate
                        .as_ref()
                        .map_or(0, |it| it.facts.not_after)
                }),
            );
            metrics.counted(
                "certificate_failures_total",
                "Orders of certificates that failed.",
                read(|known| known.failures),
            );
        }
    }

    /// Orders at once what is waiting after a failure.
    pub fn try_again(&self) {
        self.again.notify_waiters();
    }

    /// Answers authorities before this handler.
    pub fn answering(&self, next: Arc<dyn Handler>) -> Arc<dyn Handler> {
        let tokens = self.answers.tokens.clone();
        Arc::new(Answering { tokens, next })
    }

    /// Orders and renews until it is dropped, once no other process uses the state directory.
    pub async fn run(self: Arc<Self>, state: LazyStore) {
        let claimed = state.claim_at_last().await;
        let _claim = match claimed {
            Ok(claim) => claim,
            Err(error) => {
                tracing::error!(
                    target: "http",
                    "no certificates are fetched, because the state directory can't be used: {}",
                    with_causes(&error)
                );
                return;
            }
        };
        // The process before may have renewed some.
        let this = self.clone();
        _ = spawn_blocking(move || this.read()).await; // a panic was reported
        let mut tasks = JoinSet::new();
        for domain in &self.settings.domains {
            let (this, name) = (self.clone(), domain.as_str().to_owned());
            tasks.spawn(async move { this.keep_fresh(&name).await });
        }
        while tasks.join_next().await.is_some() {}
    }

    /// Takes over RoadRunner's certificates for names that have none here.
    fn import(&self, directory: &Path) {
        let Some(cache) = &self.settings.cache else {
            return;
        };
        let cache = directory.join(cache);
        for domain in &self.settings.domains {
            let name = domain.as_str();
            if !matches!(self.storage.certificate(name), Ok(None)) {
                continue;
            }
            let Some(found) = import::find(&cache, name) else {
                continue;
            };
            match self.storage.keep_certificate(name, &found) {
                Ok(()) => tracing::info!(
                    target: "http", name, cache_dir = %cache.display(),
                    "RoadRunner's certificate is used"
                ),
                Err(error) => tracing::warn!(target: "http", name, "{}", with_causes(&error)),
            }
        }
    }

    /// Reads what is on the disk.
    fn read(&self) {
        for domain in &self.settings.domains {
            let name = domain.as_str();
            let attempts = self.storage.attempts(name);
            let certificate = match self.storage.certificate(name) {
                Ok(certificate) => certificate,
                Err(error) => {
                    tracing::error!(
                        target: "http", name,
                        "the certificate is ordered again: {}", with_causes(&error)
                    );
                    None
                }
            };
            let known = Name {
                certificate,
                attempts,
                ..self.known(name)
            };
            lock(&self.names).insert(name.to_owned(), known);
        }
        self.publish();
    }

    fn tell_missing(&self) {
        for (name, known) in &*lock(&self.names) {
            if known.certificate.is_none() {
                tracing::info!(
                    target: "http", name,
                    "there is no certificate yet: until the authority has issued one, clients get \
                     one that they do not trust"
                );
            }
        }
    }

    /// Handshakes take the certificates from now on.
    fn publish(&self) {
        let names = lock(&self.names);
        let certificates = names.values().filter_map(|name| name.certificate.as_ref());
        let managed = certificates.map(|it| it.managed.clone()).collect();
        let placeholder = Some(self.placeholder.clone());
        self.answers.store.set_managed(managed, placeholder);
    }

    async fn keep_fresh(&self, name: &str) {
        loop {
            self.write_again(name).await;
            self.ask_window(name).await;
            let known = self.known(name);
            let validity = known.certificate.as_ref().map(Certificate::validity);
            let chance = chance(name, known.certificate.as_ref());
            match plan(now(), validity, known.window, known.attempts, chance) {
                Action::Wait(seconds) => {
                    let pause = Duration::from_secs(seconds.min(LONGEST_SLEEP));
                    let asked = self.again.notified();
                    let is_asked = tokio::time::timeout(pause, asked).await.is_ok();
                    if is_asked && known.attempts.is_only_paused(now()) {
                        self.attempt(name, known.attempts).await;
                    }
                }
                Action::Order => self.attempt(name, known.attempts).await,
            }
        }
    }

    fn known(&self, name: &str) -> Name {
        lock(&self.names).get(name).cloned().unwrap_or_default()
    }

    fn change(&self, name: &str, change: impl FnOnce(&mut Name)) {
        if let Some(known) = lock(&self.names).get_mut(name) {
            change(known);
        }
    }

    /// One order, counted before it begins: a server that crashes by it orders no more than one
    /// that does not.
    async fn attempt(&self, name: &str, before: Attempts) {
        let _permit = self.orders.acquire().await;
        let mut attempts = Attempts {
            failed: before.failed.saturating_add(1),
            last: now(),
            not_before: 0,
        };
        self.keep_attempts(name, attempts).await;
        match self.order(name, before.failed).await {
            Ok((text, certificate)) => {
                let days = certificate.facts.not_after.saturating_sub(now()) / 86_400;
                tracing::info!(
                    target: "http", name, days, authority = certificate.from,
                    "a new certificate is in use"
                );
                self.change(name, |known| {
                    known.certificate = Some(certificate);
                    known.unwritten = Some(text);
                    known.window = None;
                    known.asked_again = 0;
                });
                self.publish();
                self.keep_attempts(name, Attempts::default()).await;
            }
            Err(error) => {
                let wait = error.retry_after().unwrap_or_default().as_secs();
                attempts.not_before = now().saturating_add(wait);
                self.change(name, |known| known.failures += 1);
                self.tell_failure(name, attempts, &error);
                self.keep_attempts(name, attempts).await;
            }
        }
    }

    fn tell_failure(&self, name: &str, attempts: Attempts, error: &AcmeError) {
        let failures = attempts.failed;
        let error = with_causes(error);
        let certificate = self.known(name).certificate;
        let Some(certificate) = certificate else {
            tracing::error!(
                target: "http", name, failures,
                "no certificate was issued, which is tried again: {error}"
            );
            return;
        };
        let validity = certificate.validity();
        let hours = validity.not_after.saturating_sub(now()) / 3600;
        if is_alarming(now(), validity) {
            tracing::error!(
                target: "http", name, failures, hours,
                "the certificate is about to expire and can't be renewed, which is tried again: \
                 {error}"
            );
        } else {
            tracing::warn!(
                target: "http", name, failures, hours,
                "the certificate can't be renewed, the one before stays in use: {error}"
            );
        }
    }

    /// Orders at the authority in turn, and at the next one if that can't be reached or takes no
    /// order now.
    async fn order(&self, name: &str, failed: u32) -> Result<(String, Certificate), AcmeError> {
        let challenges = self.settings.challenges();
        let directories = &self.settings.directories;
        let (first, challenge) = turn(failed, directories.len(), challenges.len());
        let challenge = challenges[challenge];
        let mut others = directories.len() - 1;
        let mut next = first;
        loop {
            let directory = directories[next].url();
            match self.order_at(directory, challenge, name, failed).await {
                Err(error) if others > 0 && error.is_trouble_of_authority() => {
                    tracing::warn!(
                        target: "http", name, authority = directory,
                        "the next authority is asked: {}", with_causes(&error)
                    );
                    others -= 1;
                    next = (next + 1) % directories.len();
                }
                ordered => return ordered,
            }
        }
    }

    async fn order_at(
        &self,
        directory: &str,
        challenge: Challenge,
        name: &str,
        failed: u32,
    ) -> Result<(String, Certificate), AcmeError> {
        let authority = self.authority(directory).await?;
        let before = self.known(name).certificate;
        // An authority may refuse it for a reason of its own: then it is left out.
        let before = before.filter(|it| failed == 0 && it.from == directory);
        let offers = authority.api.url("renewalInfo").is_some();
        let replaces = before.filter(|_| offers);
        let replaces = replaces.and_then(|it| identifier(&it.facts));
        let wanted = Wanted {
            name,
            challenge,
            replaces,
            profile: self.settings.profile.as_deref(),
        };
        let issued = issue(&authority.api, &authority.account, &wanted, &self.answers).await;
        if issued.as_ref().is_err_and(AcmeError::is_account_gone) {
            self.forget(directory).await;
        }
        let issued = issued?;
        let text = file(directory, &issued.key, &issued.chain);
        // Names the fault: `parse` does not.
        let managed = Managed::from_pem(text.as_bytes()).map_err(AcmeError::Unusable)?;
        if !managed.names().iter().any(|issued| issued == name) {
            return Err(AcmeError::OtherName(name.to_owned()));
        }
        let broken = || AcmeError::OtherName(name.to_owned());
        let certificate = Certificate::parse(&text).ok_or_else(broken)?;
        let facts = &certificate.facts;
        if facts.not_after <= now() {
            return Err(AcmeError::Clock {
                from: facts.not_before,
                to: facts.not_after,
                now: now(),
            });
        }
        Ok((text, certificate))
    }

    /// Asks the authority when it wants a certificate to be renewed, from time to time. Without an
    /// answer, the certificate's life says when.
    async fn ask_window(&self, name: &str) {
        let known = self.known(name);
        let Some(certificate) = known.certificate.filter(|_| known.asked_again <= now()) else {
            return;
        };
        let mut directories = self.settings.directories.iter();
        if !directories.any(|directory| directory.url() == certificate.from) {
            return;
        }
        let asked = match self.authority(&certificate.from).await {
            Ok(authority) => suggested(&authority.api, &certificate.facts).await,
            Err(error) => Err(error),
        };
        let (window, again) = asked.unwrap_or_else(|error| {
            tracing::debug!(target: "http", name, "{}", with_causes(&error));
            (known.window, ASKED_AFTER)
        });
        self.change(name, |known| {
            known.window = window;
            known.asked_again = now().saturating_add(again.as_secs());
        });
    }

    /// The authority of a directory, with this server's account there.
    async fn authority(&self, directory: &str) -> Result<Arc<Authority>, AcmeError> {
        let mut authorities = self.authorities.lock().await;
        if let Some(known) = authorities.get(directory) {
            return Ok(known.clone());
        }
        let api = Api::open(directory, self.tls.clone()).await?;
        let account = match self.storage.account(directory)? {
            Some(account) => account,
            None => {
                let key = AccountKey::generate();
                let key = key.map_err(|error| AcmeError::Key(error.to_string()))?;
                let email = self.settings.email.as_deref();
                let account = api
                    .register(key, email, self.settings.binding.as_ref())
                    .await?;
                self.storage.keep_account(directory, &account)?;
                account
            }
        };
        let authority = Arc::new(Authority { api, account });
        authorities.insert(directory.to_owned(), authority.clone());
        Ok(authority)
    }

    /// The next order has a new account.
    async fn forget(&self, directory: &str) {
        self.authorities.lock().await.remove(directory);
        self.storage.forget_account(directory);
    }

    async fn keep_attempts(&self, name: &str, attempts: Attempts) {
        self.change(name, |known| known.attempts = attempts);
        let (storage, of) = (self.storage.clone(), name.to_owned());
        let kept = spawn_blocking(move || storage.keep_attempts(&of, attempts)).await;
        if let Ok(Err(error)) = kept {
            tracing::warn!(target: "http", name, "{}", with_causes(&error));
        }
    }

    /// Writes a certificate that is not on the disk. Where that fails it is in use all the same.
    async fn write_again(&self, name: &str) {
        let Some(text) = self.known(name).unwritten else {
            return;
        };
        let (storage, of) = (self.storage.clone(), name.to_owned());
        match spawn_blocking(move || storage.keep_certificate(&of, &text)).await {
            Ok(Ok(())) => self.change(name, |known| known.unwritten = None),
            Ok(Err(error)) => tracing::error!(
                target: "http", name,
                "the new certificate is in use and would be lost at a restart; it is written again \
                 in some minutes: {}", with_causes(&error)
            ),
            Err(_) => {} // a panic was reported
        }
    }
}

fn now() -> u64 {
    since_1970(SystemTime::now()).as_secs()
}

/// From 0 to 1, the same for one certificate at each look: else the moment of its renewal would
/// move.
fn chance(name: &str, certificate: Option<&Certificate>) -> f64 {
    let serial = certificate.map_or(&[][..], |it| &it.facts.serial);
    let hash = sha256(&[name.as_bytes(), serial].concat());
    let number = hash.iter().take(4);
    let number = number.fold(0, |number: u32, &byte| number << 8 | u32::from(byte));
    f64::from(number) / f64::from(u32::MAX)
}
