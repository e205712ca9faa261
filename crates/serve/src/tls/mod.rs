//! TLS for listeners: what is offered, which certificate, and the handshake.
//!
//! Keys stay in here: nothing prints them, and no secrets of sessions are written for a debugger.

mod certificate;
mod client;
mod diagnosis;
mod managed;
pub(crate) mod renewal;
mod store;

use std::any::Any;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use arc_swap::ArcSwap;
use pronghorn_base::LogThrottle;
use quinn::crypto::rustls::QuicServerConfig;
use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::CertificateDer;
use rustls::server::{
    NoServerSessionStorage, ProducesTickets, ServerSessionMemoryCache, WebPkiClientVerifier,
};
use thiserror::Error;
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::client_certificate::ClientCertificate;
use crate::message::Peer;
use crate::owner::{Owner, tell};
use crate::tls_socket::TlsSocket;

pub use certificate::{CertificateError, Pair};
pub use client::{Authorities, ClientCertificates};
pub use managed::Managed;
pub use store::Store;

/// How long a client may take from the connection to the end of the handshake. As long as for a
/// head: it is what comes before one.
pub(crate) const HANDSHAKE: Duration = Duration::from_secs(15);

/// The names of protocols in a handshake (RFC 7301).
const HTTP_2: &[u8] = b"h2";
const HTTP_1_1: &[u8] = b"http/1.1";

/// The first byte of a record about a handshake (RFC 8446, section 5.1), and so of every client of
/// TLS.
const RECORD: u8 = 22;
/// How much is shown of what is no TLS: enough to recognize a protocol.
const SHOWN: usize = 8;

/// Sessions of QUIC that are kept for clients that come back, about a kilobyte each.
const SESSIONS: usize = 4096;

/// Sessions are not in tickets.
#[derive(Debug)]
struct NoTickets;

impl ProducesTickets for NoTickets {
    fn enabled(&self) -> bool {
        false
    }

    fn lifetime(&self) -> u32 {
        0
    }

    fn encrypt(&self, _: &[u8]) -> Option<Vec<u8>> {
        None
    }

    fn decrypt(&self, _: &[u8]) -> Option<Vec<u8>> {
        None
    }
}

/// A client of a port for TLS begins in one of these ways.
pub(crate) enum Accepted {
    Tls(Box<TlsStream<TlsSocket>>),
    /// It speaks no TLS but began with text, as HTTP does. Nothing is read of that yet.
    Text(TcpStream),
    /// It can't shake hands, or won't.
    Gone,
}

/// The operator's: TLS that can't be set up.
#[derive(Debug, Error)]
pub enum TlsError {
    #[error(transparent)]
    Certificate(#[from] CertificateError),
    #[error("TLS can't be set up: {0}")]
    Setup(rustls::Error),
}

/// How a listener speaks TLS: versions 1.2 and 1.3.
///
/// One for all I/O threads, so that a client that comes back on another thread resumes its session:
/// what a session needs is in its ticket, encrypted by keys that only this process has and that
/// change every six hours. Nothing is sent before the end of a handshake (0-RTT), because it could
/// be repeated by anybody who saw it.
#[derive(Debug, Clone)]
pub struct Tls {
    config: Arc<ArcSwap<ServerConfig>>,
    store: Arc<Store>,
    /// If there are any, a certificate that a client has shown is that of one of them.
    authorities: Option<Arc<Mutex<Authorities>>>,
    /// Clients must show a certificate of these authorities.
    requires: bool,
    /// Clients are asked for certificates.
    asks: bool,
    strangers: Arc<LogThrottle>,
    owner: Owner,
}

impl Tls {
    /// With the certificates in `store`, now and after they were renewed.
    ///
    /// # Errors
    ///
    /// When the system gives no random numbers for the keys of tickets.
    pub fn new(store: Arc<Store>) -> Result<Self, TlsError> {
        Self::with_clients(store, None)
    }

    /// The same; clients are asked for certificates, if it says so.
    ///
    /// # Errors
    ///
    /// Also when the authorities can't be used.
    pub fn with_clients(
        store: Arc<Store>,
        clients: Option<ClientCertificates>,
    ) -> Result<Self, TlsError> {
        let (authorities, requires) = match &clients {
            Some(ClientCertificates::Of {
                authorities,
                required,
            }) => (Some(authorities.clone()), *required),
            _ => (None, false),
        };
        let asks = clients.is_some();
        let config = config(store.clone(), clients).map_err(TlsError::Setup)?;
        Ok(Self {
            config: Arc::new(ArcSwap::from_pointee(config)),
            store,
            authorities: authorities.map(Mutex::new).map(Arc::new),
            requires,
            asks,
            strangers: Arc::default(),
            owner: Owner::Http,
        })
    }

    /// For connections that speak no HTTP: no protocol is agreed on in the handshake.
    #[must_use]
    pub fn for_streams(mut self) -> Self {
        let mut config = ServerConfig::clone(&self.config.load());
        config.alpn_protocols.clear();
        self.config = Arc::new(ArcSwap::from_pointee(config));
        self.owner = Owner::Tcp;
        self
    }

    /// For QUIC, where HTTP/3 is spoken: with the same certificates, and TLS 1.3 alone.
    pub(crate) fn for_quic(&self) -> Option<QuicServerConfig> {
        let mut config = ServerConfig::clone(&self.config.load());
        config.alpn_protocols = vec![crate::http3::ALPN.to_vec()];
        if !self.asks {
            // Who comes back may send a request with its first packets. Sessions are kept here and
            // not in tickets, so that none is taken twice: what was seen on its way can't be
            // repeated.
            config.ticketer = Arc::new(NoTickets);
            config.session_storage = ServerSessionMemoryCache::new(SESSIONS);
            config.max_early_data_size = u32::MAX; // QUIC has limits of its own
        }
        QuicServerConfig::try_from(config).ok() // it has the cipher suite that QUIC begins with
    }

    const fn verifies(&self) -> bool {
        self.authorities.is_some()
    }

    /// Whether clients are asked for certificates: who they are is known when they have shaken
    /// hands, and not before.
    pub(crate) const fn asks(&self) -> bool {
        self.asks
    }

    /// The certificate that a client has shown in the handshake of QUIC.
    pub(crate) fn quic_certificate(
        &self,
        shown: Option<Box<dyn Any>>,
    ) -> Option<ClientCertificate> {
        let shown = shown.filter(|_| self.verifies())?;
        let shown = shown.downcast::<Vec<CertificateDer<'static>>>().ok()?;
        shown.first().map(|der| ClientCertificate::new(der))
    }

    /// Shakes hands with whoever speaks TLS.
    pub(crate) async fn accept(&self, stream: TcpStream, peer: &Peer) -> Accepted {
        match tokio::time::timeout(HANDSHAKE, self.shake(stream, peer)).await {
            Ok(accepted) => accepted,
            Err(_) => {
                let limit = HANDSHAKE.as_secs();
                tell!(
                    self.owner,
                    debug,
                    "TLS handshake took longer than {limit} s"
                );
                Accepted::Gone
            }
        }
    }

    /// Looks before it reads: once the handshake has failed, an alert is on its way in front of
    /// every answer.
    async fn shake(&self, stream: TcpStream, peer: &Peer) -> Accepted {
        let mut begins = [0; SHOWN];
        let begins = match stream.peek(&mut begins).await {
            Ok(len) => &begins[..len],
            Err(_) => &[],
        };
        match begins.first() {
            None => return Accepted::Gone,
            Some(&RECORD) => {}
            Some(first) => {
                self.tell_of_stranger(peer, begins);
                if first.is_ascii_graphic() || first.is_ascii_whitespace() {
                    return Accepted::Text(stream);
                }
            }
        }
        let socket = TlsSocket::new(stream, self.asks);
        match TlsAcceptor::from(self.config.load_full())
            .accept(socket)
            .await
        {
            // The authority has seen the certificate, which is all that it came for.
            Ok(stream) if stream.get_ref().1.alpn_protocol() == Some(store::CHALLENGE) => {
                Accepted::Gone
            }
            Ok(mut stream) => {
                stream.get_mut().0.gave();
                Accepted::Tls(Box::new(stream))
            }
            Err(error) => {
                tell!(self.owner, debug, "TLS handshake failed: {error}");
                Accepted::Gone
            }
        }
    }

    /// The certificate that proves who a client is.
    pub(crate) fn certificate(&self, stream: &TlsStream<TlsSocket>) -> Option<ClientCertificate> {
        let shown = stream
            .get_ref()
            .1
            .peer_certificates()
            .filter(|_| self.verifies())?;
        shown.first().map(|der| ClientCertificate::new(der))
    }

    fn tell_of_stranger(&self, peer: &Peer, begins: &[u8]) {
        if let Some(connections) = self.strangers.should_log() {
            tell!(
                self.owner, warn, connections, remote_address = %peer.address,
                port = peer.server.map(|server| server.port()),
                begins_with = %begins.escape_ascii(),
                "connections refused: the client does not speak TLS on a port for TLS"
            );
        }
    }
}

fn config(
    store: Arc<Store>,
    clients: Option<ClientCertificates>,
) -> Result<ServerConfig, rustls::Error> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let clients = match clients {
        Some(clients) => clients.verifier(&provider)?,
        None => WebPkiClientVerifier::no_client_auth(),
    };
    let has_challenges = store.has_challenges();
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_client_cert_verifier(clients)
        .with_cert_resolver(store);
    config.alpn_protocols = vec![HTTP_2.to_vec(), HTTP_1_1.to_vec()];
    if has_challenges {
        config.alpn_protocols.push(store::CHALLENGE.to_vec());
    }
    config.ticketer = aws_lc_rs::Ticketer::new()?;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    Ok(config)
}

/// Whether client and server agreed on HTTP/2.
pub(crate) fn chose_http2(stream: &TlsStream<TlsSocket>) -> bool {
    stream.get_ref().1.alpn_protocol() == Some(HTTP_2)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use rcgen::CertifiedKey;
    use rustls::pki_types::PrivateKeyDer;
    use rustls::{ClientConfig, ClientConnection, RootCertStore};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;
    use tokio::time::Instant;

    use super::*;
    use crate::peer_address::PeerAddress;

    #[tokio::test(start_paused = true)]
    async fn a_client_that_says_nothing_is_left_alone_after_a_while() {
        let tls = Tls::new(Arc::new(Store::load(&[]).unwrap())).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let _silent = TcpStream::connect(listener.local_addr().unwrap())
            .await
            .unwrap();
        let (stream, _) = listener.accept().await.unwrap();
        let start = Instant::now();
        assert!(matches!(tls.accept(stream, &peer()).await, Accepted::Gone));
        assert_eq!(start.elapsed(), HANDSHAKE);
    }

    /// A first message that goes on and on, of which rustls would keep 64 KB.
    #[tokio::test]
    async fn a_first_message_without_an_end_is_not_kept() {
        let tls = Tls::new(Arc::new(Store::load(&[]).unwrap())).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap())
            .await
            .unwrap();
        let record = [&[RECORD, 3, 1, 0x3f, 0xf0][..], &[0; 0x3ff0]].concat();
        let mut hello = record.clone();
        hello[5..9].copy_from_slice(&[1, 0, 0xff, 0]);
        let sent = [&hello[..], &record, &record].concat();
        client.write_all(&sent).await.unwrap();
        let (stream, _) = listener.accept().await.unwrap();
        let start = Instant::now();
        assert!(matches!(tls.accept(stream, &peer()).await, Accepted::Gone));
        assert!(start.elapsed() < HANDSHAKE / 2);
        drop(client);
    }

    /// As a part of a message about keys that never ends, of which rustls would keep 64 KB.
    #[tokio::test]
    async fn what_gives_no_text_is_limited_and_what_does_is_not() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap())
            .await
            .unwrap();
        let (stream, _) = listener.accept().await.unwrap();
        let mut socket = TlsSocket::new(stream, false);
        let mut buffer = vec![0; 8 << 10];
        for _ in 0..10 {
            client.write_all(&buffer).await.unwrap();
            socket.read_exact(&mut buffer).await.unwrap();
            socket.gave();
        }
        client.write_all(&vec![0; 24 << 10]).await.unwrap();
        let mut rest = vec![0; 4 << 10];
        let error = loop {
            if let Err(error) = socket.read_exact(&mut rest).await {
                break error;
            }
        };
        assert_eq!(error.kind(), std::io::ErrorKind::InvalidData);
    }

    /// As curl sends the head of a request and the beginning of its body.
    #[tokio::test]
    async fn the_longest_record_may_come_with_the_end_of_the_handshake() {
        const LONGEST: usize = 16 << 10;
        let (tls, mut session) = made_pair();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap())
            .await
            .unwrap();
        let (stream, _) = listener.accept().await.unwrap();
        let serves = async {
            let Accepted::Tls(mut stream) = tls.accept(stream, &peer()).await else {
                panic!("hands are shaken");
            };
            let mut text = vec![0; LONGEST];
            stream.read_exact(&mut text).await.unwrap();
        };
        let asks = async {
            let mut sent = Vec::new();
            session.write_tls(&mut sent).unwrap();
            client.write_all(&sent).await.unwrap();
            let mut part = [0; 4 << 10];
            while session.is_handshaking() {
                let len = client.read(&mut part).await.unwrap();
                let mut received = &part[..len];
                while !received.is_empty() {
                    session.read_tls(&mut received).unwrap();
                    session.process_new_packets().unwrap();
                }
            }
            session.writer().write_all(&vec![b'x'; LONGEST]).unwrap();
            sent.clear();
            while session.wants_write() {
                session.write_tls(&mut sent).unwrap();
            }
            client.write_all(&sent).await.unwrap();
        };
        tokio::join!(serves, asks);
    }

    /// A server, and a client that trusts it.
    fn made_pair() -> (Tls, ClientConnection) {
        let CertifiedKey { cert, signing_key } =
            rcgen::generate_simple_self_signed(["a.example".to_owned()]).unwrap();
        let provider = Arc::new(aws_lc_rs::default_provider());
        let mut known = RootCertStore::empty();
        known.add(cert.der().clone()).unwrap();
        let client = ClientConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(known)
            .with_no_client_auth();
        let key = PrivateKeyDer::try_from(signing_key.serialize_der()).unwrap();
        let server = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![cert.der().clone()], key)
            .unwrap();
        let tls = Tls {
            config: Arc::new(ArcSwap::from_pointee(server)),
            ..Tls::new(Arc::new(Store::load(&[]).unwrap())).unwrap()
        };
        let name = "a.example".try_into().unwrap();
        (tls, ClientConnection::new(Arc::new(client), name).unwrap())
    }

    fn peer() -> Peer {
        let client = "192.0.2.1:4711".parse().unwrap();
        Peer::new(PeerAddress::Ip(client), true, None)
    }

    #[tokio::test]
    async fn text_is_left_for_who_can_answer_it_and_nothing_else_is() {
        let tls = Tls::new(Arc::new(Store::load(&[]).unwrap())).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let texts: [&[u8]; 5] = [
            b"GET / HTTP/1.1\r\n",
            b"g",
            b"\r\n\r\n\0\r\nQUIT\n",
            b"SSH-2.0-x\r\n",
            b"PRI * HTTP/2.0\r\n",
        ];
        let others: [&[u8]; 5] = [b"", b"\x16\x03\x01GET", b"\0", b"\x80\x2e\x01", b"\xff"];
        let all = texts.into_iter().chain(others).enumerate();
        for (case, sent) in all {
            let mut client = TcpStream::connect(listener.local_addr().unwrap())
                .await
                .unwrap();
            client.write_all(sent).await.unwrap();
            client.shutdown().await.unwrap();
            let (stream, _) = listener.accept().await.unwrap();
            match tls.accept(stream, &peer()).await {
                Accepted::Text(mut stream) => {
                    let mut left = Vec::new();
                    stream.read_to_end(&mut left).await.unwrap();
                    assert_eq!(left, sent);
                    assert!(case < texts.len(), "{sent:?}");
                }
                Accepted::Gone => assert!(case >= texts.len(), "{sent:?}"),
                Accepted::Tls(_) => panic!("no hands were shaken: {sent:?}"),
            }
        }
    }
}
