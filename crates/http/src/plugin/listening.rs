//! Where HTTP is served: listeners as the configuration has them, and their certificates.

use std::path::Path;
use std::sync::Arc;

use pronghorn_acme::{Acme, AcmeSettings};
use pronghorn_config::Listen;
use pronghorn_plugin_api::Context;
use pronghorn_process::socket::Access;
use pronghorn_process::{Credentials, group_id};
use pronghorn_serve::{
    CertificateError, ListenAddress, ListenError, Listener, Pair, ReadTls, Renewed, Store, Tls,
    resolve,
};
use pronghorn_store::LazyStore;
use tokio::task::JoinSet;

use super::error::StartError;
use crate::settings::{Http3Settings, HttpSettings, ListenSettings};

/// The listening sockets, for the next process.
const HTTP: &str = "http";

/// Opens all listeners, those first that the process before has left.
pub(super) fn open(
    settings: &HttpSettings,
    certificates: Option<&Certificates>,
    context: &Context,
) -> Result<Vec<Listener>, StartError> {
    let mut inherited = context.sockets.take(HTTP);
    let mut listeners = Vec::new();
    let http3 = settings.http3.as_ref();
    for settings in settings.listeners() {
        let Some(at) = &settings.at else { continue };
        let access = match at {
            Listen::Tcp(_) => Access::OWNER_AND_GROUP, // there is nothing to own
            Listen::Unix(_) => access(&settings)?,
        };
        let listener = Listener::configured(HTTP, at, access, &mut inherited, context)?;
        let listener = match certificates {
            Some(certificates) if settings.tls => {
                let listener = listener.with_tls(certificates.tls.clone());
                match http3 {
                    Some(Http3Settings { address: None, .. }) => {
                        listener.with_http3(HTTP, &mut inherited, context)?
                    }
                    _ => listener,
                }
            }
            _ => listener,
        };
        listeners.push(match settings.proxies {
            Some(proxies) => listener.with_proxies(proxies),
            None => listener,
        });
    }
    let address = http3.and_then(|http3| http3.address.as_ref());
    if let (Some(address), Some(certificates)) = (address, certificates) {
        let address = resolve(address).map_err(ListenError::from)?;
        let listener = Listener::of_http3(address, certificates.tls.clone());
        listeners.push(listener.with_http3(HTTP, &mut inherited, context)?);
    }
    Ok(listeners)
}

/// What the owner's and group's names of a unix socket stand for.
pub(super) fn access(settings: &ListenSettings) -> Result<Access, StartError> {
    let user = settings.user.as_deref();
    let user = user.map(|user| Credentials::look_up(user, None));
    let group = settings.group.as_deref().map(group_id);
    Ok(Access {
        mode: settings.mode.0,
        uid: user
            .transpose()
            .map_err(StartError::SocketOwner)?
            .map(|user| user.uid()),
        gid: group.transpose().map_err(StartError::SocketOwner)?,
    })
}

/// The port of the first listener with TLS: where requests without it are sent.
pub(super) fn https_port(listeners: &[Listener]) -> Option<u16> {
    let mut with_tls = listeners.iter().filter(|listener| listener.has_tls());
    with_tls.find_map(|listener| match listener.place() {
        ListenAddress::Tcp(address) => Some(address.port()),
        ListenAddress::Unix(_) => None,
    })
}

/// The certificates of all listeners with TLS.
#[derive(Debug, Clone)]
pub(super) struct Certificates {
    tls: Tls,
    /// The client that fetches some of them.
    acme: Option<Arc<Acme>>,
}

impl Certificates {
    /// `None` where there is no section `ssl`, nor one in `http3`.
    pub(super) fn load(
        settings: &HttpSettings,
        context: &Context,
    ) -> Result<Option<Self>, StartError> {
        let pairs = pairs(settings, context.directory());
        let acme = settings.ssl.as_ref().and_then(|ssl| ssl.acme.as_ref());
        if pairs.is_empty() && acme.is_none() {
            return Ok(None);
        }
        let mut store = Store::load(&pairs).map_err(StartError::Certificate)?;
        if acme.is_some() {
            store = store.with_challenges();
        }
        let store = Arc::new(store);
        let open = |acme: &AcmeSettings| {
            Acme::open(
                acme.clone(),
                context.directory(),
                &context.state,
                store.clone(),
            )
        };
        let acme = acme.map(open).transpose().map_err(StartError::Acme)?;
        let clients = settings.ssl.as_ref();
        let clients = clients.map(|ssl| ssl.clients.load(context.directory()));
        let clients = clients.transpose().map_err(StartError::Certificate)?;
        let tls = Tls::with_clients(store, clients.flatten())?;
        Ok(Some(Self { tls, acme }))
    }

    /// The client that fetches certificates, if there is one.
    pub(super) const fn acme(&self) -> Option<&Arc<Acme>> {
        self.acme.as_ref()
    }

    /// What is wrong with each pair that can't be used.
    pub(super) fn judge(settings: &HttpSettings, directory: &Path) -> Vec<CertificateError> {
        let pairs = pairs(settings, directory).into_iter();
        let errors = pairs.filter_map(|pair| Store::load(&[pair]).err());
        let clients = settings.ssl.as_ref().map(|ssl| ssl.clients.load(directory));
        errors.chain(clients.and_then(Result::err)).collect()
    }

    /// Looks for changed files until the result is dropped.
    pub(super) fn watch(certificates: Option<&Self>) -> JoinSet<()> {
        let mut tasks = JoinSet::new();
        if let Some(certificates) = certificates {
            tasks.spawn(certificates.tls.clone().watch(tell));
        }
        tasks
    }

    /// Fetches certificates until the result is dropped.
    pub(super) fn fetch(certificates: Option<&Self>, state: &LazyStore) -> JoinSet<()> {
        let mut tasks = JoinSet::new();
        if let Some(acme) = certificates.and_then(Self::acme) {
            tasks.spawn(acme.clone().run(state.clone()));
        }
        tasks
    }

    /// Reads what the configuration names now, for [`renew`](Self::renew). None where it has no
    /// section `ssl` any more: those in use stay until a restart.
    ///
    /// # Errors
    ///
    /// What is wrong with the first pair that can't be used.
    pub(super) async fn read(
        &self,
        settings: &HttpSettings,
        directory: &Path,
    ) -> Result<Option<ReadTls>, String> {
        let pairs = pairs(settings, directory);
        let fetches = settings.ssl.as_ref().is_some_and(|ssl| ssl.acme.is_some());
        if pairs.is_empty() && !fetches {
            return Ok(None);
        }
        self.tls.read_again(Some(pairs)).await.map(Some)
    }

    /// Goes over to what was read.
    pub(super) fn renew(&self, read: ReadTls) {
        for file in self.tls.replace(read) {
            tracing::info!(
                target: "http", certificate = %file.display(),
                "new certificates are in use"
            );
        }
    }
}

/// All that are configured, that of `ssl` first.
fn pairs(settings: &HttpSettings, directory: &Path) -> Vec<Pair> {
    let of_ssl = settings.ssl.iter().flat_map(|ssl| &ssl.pairs);
    let of_http3 = settings
        .http3
        .iter()
        .filter_map(|http3| http3.pair.as_ref());
    let pairs = of_ssl
        .chain(of_http3)
        .map(|pair| pair.in_directory(directory));
    pairs.collect()
}

/// The ports of UDP where HTTP/3 is spoken.
pub(super) fn http3_ports(listeners: &[Listener]) -> Vec<u16> {
    listeners.iter().filter_map(Listener::http3_port).collect()
}

fn tell(renewed: Renewed) {
    let certificate = renewed.file.display();
    let subject = renewed.subject;
    match renewed.result {
        Ok(()) => tracing::info!(target: "http", %certificate, "{subject} is renewed"),
        Err(error) => tracing::error!(
            target: "http", %certificate,
            "{subject} can't be renewed, the one before stays in use: {error}"
        ),
    }
}
