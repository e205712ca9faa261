//! TLS of a client: whom it trusts, who it is, and the handshake.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use pronghorn_base::lock;
use pronghorn_config::Table;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio::time::Instant;
use tokio_rustls::TlsConnector;

use crate::error::TlsError;

/// How long the system's root certificates are kept: reading them takes milliseconds, and an update
/// of the system may change them while the server runs.
const ROOTS_KEPT: Duration = Duration::from_secs(3600);

/// An encrypted connection.
pub type TlsStream = tokio_rustls::client::TlsStream<TcpStream>;

/// Whom a client trusts and who it is. The files are PEM, and read for each connection: one that
/// was replaced holds from the next connection on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tls {
    /// The certificates to trust; those of the system when there is none.
    pub root_ca: Option<PathBuf>,
    /// The client's certificate, with those between it and its root, and its key.
    pub identity: Option<(PathBuf, PathBuf)>,
}

impl Tls {
    /// Reads the client's certificate and its key. None where neither is there, or one is missing,
    /// which is told.
    pub fn read_identity(t: &mut Table<'_>) -> Option<(PathBuf, PathBuf)> {
        let cert: Option<PathBuf> = t
            .key("cert", "A PEM file with this server's certificate.")
            .is_path()
            .optional();
        let key: Option<PathBuf> = t
            .key("key", "A PEM file with the certificate's private key.")
            .is_path()
            .optional();
        if cert.is_some() != key.is_some() {
            let missing = if cert.is_some() { "key" } else { "cert" };
            let message = "is missing: `cert` and `key` belong together";
            t.error(missing, message, "write both");
        }
        cert.zip(key)
    }

    /// Encrypts a connection to a host, whose certificate has to be for its name.
    ///
    /// # Errors
    ///
    /// When a file cannot be used, or the handshake fails.
    pub async fn encrypt(&self, host: &str, stream: TcpStream) -> Result<TlsStream, TlsError> {
        self.encrypt_for(&[], host, stream).await
    }

    /// The same, for one of these protocols.
    pub(crate) async fn encrypt_for(
        &self,
        protocols: &[&[u8]],
        host: &str,
        stream: TcpStream,
    ) -> Result<TlsStream, TlsError> {
        let name = name(host)?;
        let connector = TlsConnector::from(self.config(protocols)?);
        let connecting = connector.connect(name, stream).await;
        connecting.map_err(TlsError::Handshake)
    }

    /// Looks whether encryption with a host could begin, without a connection.
    pub(crate) fn check(&self, host: &str) -> Result<(), TlsError> {
        name(host)?;
        self.config(&[]).map(drop)
    }

    fn config(&self, protocols: &[&[u8]]) -> Result<Arc<ClientConfig>, TlsError> {
        let unusable = |what: &str, source: rustls::Error| TlsError::Unusable {
            what: what.to_owned(),
            source: source.into(),
        };
        let roots = match &self.root_ca {
            None => roots_of_system(),
            Some(path) => {
                let mut roots = RootCertStore::empty();
                roots.add_parsable_certificates(certificates(path)?);
                Arc::new(roots)
            }
        };
        if roots.is_empty() {
            return Err(TlsError::NoRoots);
        }
        let provider = Arc::new(aws_lc_rs::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| unusable("TLS", error))?
            .with_root_certificates(roots);
        let mut config = match &self.identity {
            None => config.with_no_client_auth(),
            Some((certificate, key)) => {
                let what = key.display().to_string();
                let chain = certificates(certificate)?;
                let key = PrivateKeyDer::from_pem_slice(&read(key)?);
                let key = key.map_err(|source| TlsError::Unusable {
                    what: what.clone(),
                    source: source.into(),
                })?;
                let config = config.with_client_auth_cert(chain, key);
                config.map_err(|error| unusable(&what, error))?
            }
        };
        config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
        Ok(Arc::new(config))
    }
}

fn name(host: &str) -> Result<ServerName<'static>, TlsError> {
    ServerName::try_from(host.to_owned()).map_err(|_| TlsError::Name(host.to_owned()))
}

/// Empty where the system has none; then the next connection looks again.
fn roots_of_system() -> Arc<RootCertStore> {
    static KEPT: Mutex<Option<(Instant, Arc<RootCertStore>)>> = Mutex::new(None);
    let mut kept = lock(&KEPT);
    if let Some((read, roots)) = &*kept
        && read.elapsed() < ROOTS_KEPT
    {
        return roots.clone();
    }
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    let roots = Arc::new(roots);
    *kept = (!roots.is_empty()).then(|| (Instant::now(), roots.clone()));
    roots
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let bytes = read(path)?;
    let all = CertificateDer::pem_slice_iter(&bytes).collect::<Result<Vec<_>, _>>();
    let all = all.map_err(|source| TlsError::NoPem {
        path: path.to_owned(),
        source,
    })?;
    if all.is_empty() {
        return Err(TlsError::Empty(path.to_owned()));
    }
    Ok(all)
}

fn read(path: &Path) -> Result<Vec<u8>, TlsError> {
    fs::read(path).map_err(|source| TlsError::Unreadable {
        path: path.to_owned(),
        source,
    })
}

#[cfg(test)]
mod tests {
    use pronghorn_base::with_causes;
    use pronghorn_testkit::{Certificates, Directory};

    use super::*;

    fn refused(tls: &Tls) -> String {
        with_causes(&tls.check("localhost").unwrap_err())
    }

    #[test]
    fn files_that_cannot_be_used_are_named() {
        let directory = Directory::with(&[
            ("empty.pem", ""),
            (
                "broken.pem",
                "-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n",
            ),
        ]);
        let trusting = |name: &str| Tls {
            root_ca: Some(directory.join(name)),
            identity: None,
        };
        assert!(refused(&trusting("none")).contains("none` can't be read: No such file"));
        assert!(refused(&trusting("empty.pem")).ends_with("empty.pem` holds no certificate"));
        assert!(refused(&trusting("broken.pem")).contains("broken.pem` is no PEM: "));
    }

    #[test]
    fn a_key_has_to_belong_to_its_certificate() {
        let made = Certificates::new();
        let with_key = |key: &str| Tls {
            root_ca: Some(made.path("ca.pem")),
            identity: Some((made.path("server.pem"), made.path(key))),
        };
        with_key("server.key").check("localhost").unwrap();
        assert!(refused(&with_key("server.pem")).contains("server.pem can't be used: "));
    }

    #[test]
    fn a_host_has_to_be_one_that_a_certificate_can_be_for() {
        let made = Certificates::new();
        let tls = Tls {
            root_ca: Some(made.path("ca.pem")),
            identity: None,
        };
        for host in ["localhost", "a.example", "127.0.0.1", "::1"] {
            tls.check(host).unwrap();
        }
        for host in ["", "a b", "-"] {
            assert!(matches!(tls.check(host), Err(TlsError::Name(_))), "{host}");
        }
    }
}
