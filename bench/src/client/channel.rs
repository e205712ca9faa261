//! What bytes go over: a socket, with or without TLS.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, Error, SignatureScheme};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::scenario::Protocol;

pub(crate) type Channel = Box<dyn Bytes>;

pub(crate) trait Bytes: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Bytes for T {}

/// Connects, and shakes hands where the protocol has TLS.
pub(super) async fn open(address: SocketAddr, protocol: Protocol) -> io::Result<Channel> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    if !protocol.is_secure() {
        return Ok(Box::new(stream));
    }
    let name = ServerName::from(address.ip());
    let config = Arc::new(config(protocol).map_err(io::Error::other)?);
    let stream = TlsConnector::from(config).connect(name, stream).await?;
    Ok(Box::new(stream))
}

fn config(protocol: Protocol) -> Result<ClientConfig, Error> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let any = Arc::new(AnyCertificate(provider.clone()));
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .dangerous()
        .with_custom_certificate_verifier(any)
        .with_no_client_auth();
    if protocol.is_http2() {
        config.alpn_protocols = vec![b"h2".to_vec()];
    }
    Ok(config)
}

/// Who answers on this machine's own address is whom the run has started, with a certificate that
/// nobody has signed.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
