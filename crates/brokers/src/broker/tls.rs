//! Encryption for clients of our own.

use std::sync::Arc;

use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::{BrokerError, read_file};
use crate::tls::BrokerTls;

/// What clients read from and write to.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// Begins encryption with a host. Files are read anew.
pub(crate) async fn encrypt(
    tls: &BrokerTls,
    host: &str,
    stream: TcpStream,
) -> Result<impl Stream + use<>, BrokerError> {
    let name = ServerName::try_from(host.to_owned()).map_err(|_| {
        BrokerError::Refused(format!("`{host}` is no host that a certificate can be for"))
    })?;
    let connecting = connector(tls)?.connect(name, stream).await;
    connecting.map_err(|error| BrokerError::Lost(format!("TLS: {error}")))
}

fn connector(tls: &BrokerTls) -> Result<TlsConnector, BrokerError> {
    let unusable = |what: &str, error: &dyn std::fmt::Display| {
        BrokerError::Refused(format!("{what} can't be used: {error}"))
    };
    let mut roots = RootCertStore::empty();
    match &tls.root_ca {
        None => {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
        Some(path) => {
            roots.add_parsable_certificates(certificates(path)?);
        }
    }
    if roots.is_empty() {
        let why = "there are no root certificates to check its certificate by; name a file in \
                   `root_ca`, or install `ca-certificates`";
        return Err(BrokerError::Refused(why.to_owned()));
    }
    let provider = Arc::new(aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| unusable("TLS", &error))?
        .with_root_certificates(roots);
    let config = match &tls.identity {
        None => config.with_no_client_auth(),
        Some((cert, key)) => {
            let what = key.display().to_string();
            let chain = certificates(cert)?;
            let key = PrivateKeyDer::from_pem_slice(&read_file(key)?);
            let key = key.map_err(|error| unusable(&what, &error))?;
            let config = config.with_client_auth_cert(chain, key);
            config.map_err(|error| unusable(&what, &error))?
        }
    };
    Ok(TlsConnector::from(Arc::new(config)))
}

fn certificates(path: &std::path::Path) -> Result<Vec<CertificateDer<'static>>, BrokerError> {
    let bytes = read_file(path)?;
    let all = CertificateDer::pem_slice_iter(&bytes).collect::<Result<Vec<_>, _>>();
    let all = all.map_err(|error| {
        BrokerError::Refused(format!("`{}` is no PEM: {error}", path.display()))
    })?;
    if all.is_empty() {
        let why = format!("`{}` holds no certificate", path.display());
        return Err(BrokerError::Refused(why));
    }
    Ok(all)
}
