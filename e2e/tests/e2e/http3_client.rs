//! A client of HTTP/3 that sends what a test wants, byte by byte.

use std::cell::RefCell;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use pronghorn_testkit::{PATIENCE, Server};
use quinn::crypto::rustls::QuicClientConfig;
use quinn::{
    ClientConfig, Connection, ConnectionError, Endpoint, ReadError, RecvStream, SendStream,
    TransportConfig, WriteError,
};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{aws_lc_rs, verify_tls13_signature};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{DigitallySignedStruct, SignatureScheme};
use tokio::runtime::Runtime;
use tokio::time::timeout;

use crate::secure::port;

/// One connection.
pub(crate) struct Client {
    runtime: Runtime,
    endpoint: Endpoint,
    pub(crate) connection: Connection,
    authority: String,
    /// Streams that stay open.
    kept: RefCell<Vec<SendStream>>,
}

/// A reply: `reset` is the code in place of its end.
#[derive(Debug, Default)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) informed: Vec<u16>,
    pub(crate) fields: Vec<(String, String)>,
    pub(crate) trailers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    pub(crate) reset: Option<u64>,
}

impl Reply {
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        let mut fields = self.fields.iter();
        fields
            .find(|(is, _)| is == name)
            .map(|(_, value)| value.as_str())
    }
}

impl Client {
    /// One that has sent its settings.
    pub(crate) fn new(server: &Server) -> Self {
        let client = Self::silent(server);
        client.keep(client.uni(&[0, 4, 0]));
        client
    }

    /// One that has sent nothing.
    pub(crate) fn silent(server: &Server) -> Self {
        Self::with_window(server, 1 << 20)
    }

    /// One that comes to this port.
    pub(crate) fn at(server: &Server, port: u16) -> Self {
        let client = Self::connect(server, port, 1 << 20);
        client.keep(client.uni(&[0, 4, 0]));
        client
    }

    /// One that takes so many bytes of a reply before it reads them.
    pub(crate) fn with_window(server: &Server, window: u32) -> Self {
        Self::connect(server, port(server), window)
    }

    fn connect(server: &Server, port: u16, window: u32) -> Self {
        let pem = server.site().path("localhost.pem");
        let only = CertificateDer::from_pem_file(pem).expect("it was made");
        let mut tls = rustls::ClientConfig::builder()
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Only(only)))
            .with_no_client_auth();
        tls.alpn_protocols = vec![b"h3".to_vec()];
        tls.enable_early_data = true;
        let tls = QuicClientConfig::try_from(tls).expect("TLS 1.3");
        let mut config = ClientConfig::new(Arc::new(tls));
        let mut transport = TransportConfig::default();
        transport
            .stream_receive_window(window.into())
            .receive_window(window.into());
        config.transport_config(Arc::new(transport));
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("threads");
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        let (endpoint, connection) = runtime.block_on(async {
            let mut endpoint = Endpoint::client(([127, 0, 0, 1], 0).into()).expect("a socket");
            endpoint.set_default_client_config(config);
            let connecting = endpoint.connect(address, "localhost").expect("an address");
            let connection = timeout(PATIENCE, connecting).await.expect("in time");
            (endpoint, connection.expect("it speaks HTTP/3"))
        });
        Self {
            runtime,
            endpoint,
            connection,
            authority: format!("localhost:{}", address.port()),
            kept: RefCell::default(),
        }
    }

    /// Does not end a stream as long as there is a connection.
    pub(crate) fn keep(&self, stream: SendStream) {
        self.kept.borrow_mut().push(stream);
    }

    /// A stream in one direction with these bytes, which stays open.
    pub(crate) fn uni(&self, bytes: &[u8]) -> SendStream {
        self.runtime.block_on(async {
            let mut stream = self.connection.open_uni().await.expect("it may");
            stream.write_all(bytes).await.expect("there is room");
            stream
        })
    }

    /// A stream in both directions with these bytes; `ends`: and no more.
    pub(crate) fn open(&self, bytes: &[u8], ends: bool) -> Exchange<'_> {
        let (mut send, receive) = self.runtime.block_on(async {
            let opened = timeout(PATIENCE, self.connection.open_bi()).await;
            opened.expect("in time").expect("it may")
        });
        match self.runtime.block_on(send.write_all(bytes)) {
            Ok(()) if ends => send.finish().expect("it is open"),
            // A server that refuses a long head takes no more of it.
            Ok(()) | Err(WriteError::Stopped(_)) => {}
            failed @ Err(_) => failed.expect("there is room"),
        }
        Exchange {
            client: self,
            send,
            receive,
        }
    }

    /// The fields that a request begins with.
    pub(crate) fn head(&self, method: &str, target: &str, more: &[(&str, &str)]) -> Vec<u8> {
        let begin = [
            (":method", method),
            (":scheme", "https"),
            (":authority", self.authority.as_str()),
            (":path", target),
        ];
        let all: Vec<_> = begin.into_iter().chain(more.iter().copied()).collect();
        headers(&all)
    }

    pub(crate) fn send(&self, method: &str, target: &str, body: &[u8]) -> Exchange<'_> {
        let mut bytes = self.head(method, target, &[]);
        if !body.is_empty() {
            bytes.extend(frame(0, body));
        }
        self.open(&bytes, true)
    }

    pub(crate) fn get(&self, target: &str) -> Reply {
        self.send("GET", target, b"").reply()
    }

    /// Comes back, and sends this before the handshake has ended.
    pub(crate) fn again(&self, method: &str) -> Reply {
        let early = async {
            let to = self.connection.remote_address();
            let connecting = self.endpoint.connect(to, "localhost").expect("an address");
            let (connection, accepted) = connecting.into_0rtt().expect("it was there before");
            let (mut send, receive) = connection.open_bi().await.expect("it may");
            let head = self.head(method, "/show", &[]);
            send.write_all(&head).await.expect("there is room");
            send.finish().expect("it is open");
            assert!(timeout(PATIENCE, accepted).await.expect("in time"), "taken");
            (connection, send, receive)
        };
        let (_connection, send, receive) = self.runtime.block_on(early);
        let exchange = Exchange {
            client: self,
            send,
            receive,
        };
        exchange.reply()
    }

    /// The code that the server ends the connection with.
    pub(crate) fn closed(&self) -> u64 {
        let closed = async { timeout(PATIENCE, self.connection.closed()).await };
        let closed = self.runtime.block_on(closed);
        match closed.expect("it is closed") {
            ConnectionError::ApplicationClosed(close) => close.error_code.into(),
            other => unreachable!("{other}"),
        }
    }

    pub(crate) fn is_open(&self) -> bool {
        self.connection.close_reason().is_none()
    }

    /// Goes on from another port.
    pub(crate) fn moves(&self) {
        let _context = self.runtime.enter();
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        self.endpoint.rebind(socket).expect("it may");
    }

    pub(crate) fn pause(&self, pause: Duration) {
        self.runtime
            .block_on(async { tokio::time::sleep(pause).await });
    }
}

impl Drop for Client {
    /// Says goodbye: a server waits for who is silent.
    fn drop(&mut self) {
        self.connection.close(0x100_u32.into(), b"");
        let idle = async { timeout(PATIENCE, self.endpoint.wait_idle()).await };
        _ = self.runtime.block_on(idle);
    }
}

/// Trusts one certificate, which has signed itself.
#[derive(Debug)]
struct Only(CertificateDer<'static>);

impl ServerCertVerifier for Only {
    fn verify_server_cert(
        &self,
        shown: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        assert_eq!(*shown, self.0);
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        unreachable!("QUIC has TLS 1.3")
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = aws_lc_rs::default_provider().signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, &algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        let provider = aws_lc_rs::default_provider();
        provider
            .signature_verification_algorithms
            .supported_schemes()
    }
}

/// A request on its way.
pub(crate) struct Exchange<'a> {
    client: &'a Client,
    pub(crate) send: SendStream,
    pub(crate) receive: RecvStream,
}

impl Exchange<'_> {
    pub(crate) fn more(&mut self, bytes: &[u8]) {
        let sent = async { timeout(PATIENCE, self.send.write_all(bytes)).await };
        self.client
            .runtime
            .block_on(sent)
            .expect("in time")
            .expect("it is open");
    }

    pub(crate) fn ends(&mut self) {
        self.send.finish().expect("it is open");
    }

    pub(crate) fn reply(mut self) -> Reply {
        self.read(usize::MAX)
    }

    /// Reads until the end, or until there are so many bytes.
    pub(crate) fn read(&mut self, most: usize) -> Reply {
        let (mut bytes, mut reset) = (Vec::new(), None);
        let reading = async {
            while bytes.len() < most {
                match self.receive.read_chunk(64 << 10, true).await {
                    Ok(Some(chunk)) => bytes.extend_from_slice(&chunk.bytes),
                    Ok(None) => return,
                    Err(ReadError::Reset(code)) => {
                        reset = Some(code.into());
                        return;
                    }
                    Err(error) => unreachable!("{error}"),
                }
            }
        };
        let read = async { timeout(PATIENCE, reading).await };
        self.client.runtime.block_on(read).expect("in time");
        let mut reply = parsed(&bytes);
        reply.reset = reset;
        reply
    }
}

fn parsed(mut bytes: &[u8]) -> Reply {
    let mut reply = Reply::default();
    while !bytes.is_empty() {
        let Some((kind, rest)) = number(bytes) else {
            break;
        };
        let Some((length, rest)) = number(rest) else {
            break;
        };
        let length = usize::try_from(length).expect("it fits").min(rest.len());
        let (content, rest) = rest.split_at(length);
        bytes = rest;
        match kind {
            0 => reply.body.extend_from_slice(content),
            1 => {
                let mut fields = decoded(content);
                let status = fields.iter().position(|(name, _)| name == ":status");
                match status.map(|at| fields.remove(at).1.parse().expect("a status")) {
                    Some(status @ 100..200) => reply.informed.push(status),
                    Some(status) => (reply.status, reply.fields) = (status, fields),
                    None => reply.trailers = fields,
                }
            }
            _ => {}
        }
    }
    reply
}

fn number(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let length = 1 << (bytes.first()? >> 6);
    let (number, rest) = bytes.split_at_checked(length)?;
    let mut value = u64::from(number[0] & 0x3f);
    for byte in &number[1..] {
        value = value << 8 | u64::from(*byte);
    }
    Some((value, rest))
}

/// A block of fields as this server writes it: without Huffman's code. Of the static table some
/// names are known, the rest shows by number.
fn decoded(block: &[u8]) -> Vec<(String, String)> {
    let mut at = 2;
    let integer = |at: &mut usize, prefix: u32| {
        let mask = (1_usize << prefix) - 1;
        let mut number = usize::from(block[*at]) & mask;
        *at += 1;
        let mut shift = 0;
        while number >= mask && shift < 28 {
            let byte = block[*at];
            *at += 1;
            number += usize::from(byte & 0x7f) << shift;
            shift += 7;
            if byte & 0x80 == 0 {
                break;
            }
        }
        number
    };
    let known = |index: usize| {
        let statuses = [
            (24, 103),
            (25, 200),
            (26, 304),
            (27, 404),
            (28, 503),
            (63, 100),
        ];
        let more = [
            (64, 204),
            (65, 206),
            (66, 302),
            (67, 400),
            (68, 403),
            (69, 421),
        ];
        let last = [(70, 425), (71, 500)];
        let status = [&statuses[..], &more, &last].concat();
        if let Some((_, status)) = status.iter().find(|(at, _)| *at == index) {
            return (":status".to_owned(), status.to_string());
        }
        match index {
            4 => ("content-length".to_owned(), "0".to_owned()),
            6 => ("date".to_owned(), String::new()),
            44..=54 => ("content-type".to_owned(), format!("{index}")),
            other => (format!("static-{other}"), String::new()),
        }
    };
    let mut fields = Vec::new();
    while at < block.len() {
        let first = block[at];
        if first & 0xc0 == 0xc0 {
            let index = integer(&mut at, 6);
            fields.push(known(index));
            continue;
        }
        let name = if first & 0xd0 == 0x50 {
            let index = integer(&mut at, 4);
            known(index).0
        } else {
            let length = integer(&mut at, 3);
            let name = String::from_utf8_lossy(&block[at..at + length]).into_owned();
            at += length;
            name
        };
        let length = integer(&mut at, 7);
        let value = String::from_utf8_lossy(&block[at..at + length]).into_owned();
        at += length;
        fields.push((name, value));
    }
    fields
}

/// A frame.
pub(crate) fn frame(kind: u64, content: &[u8]) -> Vec<u8> {
    let mut frame = varint(kind);
    frame.extend(varint(content.len() as u64));
    frame.extend_from_slice(content);
    frame
}

pub(crate) fn varint(number: u64) -> Vec<u8> {
    if number < 0x40 {
        return vec![number.to_le_bytes()[0]];
    }
    (number | 0xc0 << 56).to_be_bytes().to_vec()
}

/// A frame with a block of fields, all of them literal.
pub(crate) fn headers(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut block = vec![0, 0];
    for (name, value) in fields {
        append(&mut block, 0x20, 3, name.as_bytes());
        append(&mut block, 0, 7, value.as_bytes());
    }
    frame(1, &block)
}

fn append(to: &mut Vec<u8>, first: u8, prefix: u32, text: &[u8]) {
    let mask = (1_usize << prefix) - 1;
    let low = |number: usize| number.to_le_bytes()[0];
    to.push(first | low(text.len().min(mask)));
    if let Some(mut rest) = text.len().checked_sub(mask) {
        while rest >= 0x80 {
            to.push(low(rest) | 0x80);
            rest >>= 7;
        }
        to.push(low(rest));
    }
    to.extend_from_slice(text);
}
