//! TLS as a client: whom it trusts, and who it is.
//!
//! Knows no peer and no configuration: sections name files, and connections are opened by others.

#![forbid(unsafe_code)]

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pronghorn_base::read_linked;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};
use thiserror::Error;
pub use tokio_rustls::TlsConnector;

/// Of a file with certificates, or a key.
const LONGEST_FILE: u64 = 1 << 20;

/// Files in PEM. They are read anew for each connector.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientTls {
    /// Whom to trust; the system's when there is none.
    pub root_ca: Option<PathBuf>,
    /// A certificate, with those between it and its root, and its key.
    pub identity: Option<(PathBuf, PathBuf)>,
}

/// Why there can be no encryption. All are the operator's.
#[derive(Debug, Error)]
pub enum TlsFailure {
    #[error("`{}` can't be read: {why}", path.display())]
    Unreadable { path: PathBuf, why: io::Error },
    #[error("`{}` is no PEM: {why}", path.display())]
    NoPem { path: PathBuf, why: String },
    #[error("`{}` holds no certificate", _0.display())]
    NoCertificate(PathBuf),
    #[error(
        "there are no root certificates to check a certificate by; name a file in `root_ca`, or \
         install `ca-certificates`"
    )]
    NoRoots,
    #[error("{what} can't be used: {why}")]
    Unusable { what: String, why: rustls::Error },
}

impl ClientTls {
    /// # Errors
    ///
    /// When a file is missing or wrong, or when there is nobody to trust.
    pub fn connector(&self) -> Result<TlsConnector, TlsFailure> {
        let mut roots = RootCertStore::empty();
        match &self.root_ca {
            None => {
                roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            }
            Some(path) => {
                roots.add_parsable_certificates(certificates(path)?);
            }
        }
        if roots.is_empty() {
            return Err(TlsFailure::NoRoots);
        }
        let unusable = |what: String| move |why| TlsFailure::Unusable { what, why };
        let config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(unusable("TLS".to_owned()))?
            .with_root_certificates(roots);
        let config = match &self.identity {
            None => config.with_no_client_auth(),
            Some((cert, path)) => {
                let key = PrivateKeyDer::from_pem_slice(&read(path)?);
                let key = key.map_err(|why| no_pem(path, &why))?;
                config
                    .with_client_auth_cert(certificates(cert)?, key)
                    .map_err(unusable(format!("`{}`", path.display())))?
            }
        };
        Ok(TlsConnector::from(Arc::new(config)))
    }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsFailure> {
    let bytes = read(path)?;
    let all = CertificateDer::pem_slice_iter(&bytes).collect::<Result<Vec<_>, _>>();
    let all = all.map_err(|why| no_pem(path, &why))?;
    if all.is_empty() {
        return Err(TlsFailure::NoCertificate(path.to_owned()));
    }
    Ok(all)
}

fn no_pem(path: &Path, why: &dyn std::fmt::Display) -> TlsFailure {
    TlsFailure::NoPem {
        path: path.to_owned(),
        why: why.to_string(),
    }
}

fn read(path: &Path) -> Result<Vec<u8>, TlsFailure> {
    read_linked(path, LONGEST_FILE).map_err(|why| TlsFailure::Unreadable {
        path: path.to_owned(),
        why,
    })
}
