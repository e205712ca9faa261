//! TLS for listeners: what is offered, which certificate, and the handshake.
//!
//! Keys stay in here: nothing prints them, and no secrets of sessions are written for a debugger.

mod certificate;
mod diagnosis;
mod store;

use std::sync::Arc;
use std::time::Duration;

use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs;
use rustls::server::NoServerSessionStorage;
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

pub use certificate::{CertificateError, Pair};
pub use store::{Renewed, Store};

/// How long a client may take from the connection to the end of the handshake. As long as for a head: it is what comes
/// before one.
const HANDSHAKE: Duration = Duration::from_secs(15);

/// The names of protocols in a handshake (RFC 7301).
const HTTP_2: &[u8] = b"h2";
const HTTP_1_1: &[u8] = b"http/1.1";

/// How a listener speaks TLS: versions 1.2 and 1.3.
///
/// One for all I/O threads, so that a client that comes back on another thread resumes its session: what a session needs is
/// in its ticket, encrypted by keys that only this process has and that change every six hours. Nothing is sent before the
/// end of a handshake (0-RTT), because it could be repeated by anybody who saw it.
#[derive(Debug, Clone)]
pub struct Tls {
    config: Arc<ServerConfig>,
}

impl Tls {
    /// With the certificates in `store`, now and after they were renewed.
    ///
    /// # Errors
    ///
    /// When the system gives no random numbers for the keys of tickets.
    pub fn new(store: Arc<Store>) -> Result<Self, rustls::Error> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_cert_resolver(store);
        config.alpn_protocols = vec![HTTP_2.to_vec(), HTTP_1_1.to_vec()];
        config.ticketer = aws_lc_rs::Ticketer::new()?;
        config.session_storage = Arc::new(NoServerSessionStorage {});
        Ok(Self {
            config: Arc::new(config),
        })
    }

    /// Shakes hands. `None` when the client can't or won't.
    pub(crate) async fn accept(&self, stream: TcpStream) -> Option<TlsStream<TcpStream>> {
        let handshake = TlsAcceptor::from(self.config.clone()).accept(stream);
        match tokio::time::timeout(HANDSHAKE, handshake).await {
            Ok(Ok(stream)) => Some(stream),
            Ok(Err(error)) => {
                tracing::debug!(target: "http", "TLS handshake failed: {error}");
                None
            }
            Err(_) => {
                tracing::debug!(target: "http", "TLS handshake took longer than {} s", HANDSHAKE.as_secs());
                None
            }
        }
    }
}

/// Whether client and server agreed on HTTP/2.
pub(crate) fn chose_http2(stream: &TlsStream<TcpStream>) -> bool {
    stream.get_ref().1.alpn_protocol() == Some(HTTP_2)
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;
    use tokio::time::Instant;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_client_that_says_nothing_is_left_alone_after_a_while() {
        let tls = Tls::new(Arc::new(Store::load(&[]).unwrap())).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let _silent = TcpStream::connect(listener.local_addr().unwrap())
            .await
            .unwrap();
        let (stream, _) = listener.accept().await.unwrap();
        let start = Instant::now();
        assert!(tls.accept(stream).await.is_none());
        assert_eq!(start.elapsed(), HANDSHAKE);
    }
}
