//! Servers that a test plays, over TCP and over TLS.

use std::future::pending;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use hyper::header::HeaderMap;
use hyper::{Method, Response};
use pronghorn_base::with_causes;
use pronghorn_testkit::Certificates;
use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use super::*;
use crate::error::TlsError;

const LIMITS: Limits = Limits {
    head: 16 << 10,
    body: 1000,
};

fn options(protocol: Protocol) -> Options {
    Options {
        protocol,
        tls: Tls::default(),
        timeout: Duration::from_secs(20),
        limits: LIMITS,
        kept: 1,
        repeats: false,
    }
}

fn client(address: SocketAddr, options: Options) -> Client {
    let origin = Origin::new(false, "127.0.0.1", address.port());
    Client::new(origin, options).unwrap()
}

fn request(path: &str) -> Request<Bytes> {
    Request::builder()
        .method(Method::POST)
        .uri(path)
        .body(Bytes::from_static(b"body"))
        .unwrap()
}

async fn ask(client: &Client, path: &str) -> Result<String, String> {
    let reply = client.ask(request(path)).await;
    let reply = reply.map_err(|error| with_causes(&error))?;
    let text = String::from_utf8_lossy(&reply.body);
    Ok(format!("{} {text}", reply.status.as_u16()))
}

fn ok(body: &str) -> Vec<u8> {
    format!(
        "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

/// A head and `body`, the body of each request here.
async fn read_request(stream: &mut TcpStream) -> Option<String> {
    let mut got = Vec::new();
    while !got.ends_with(b"\r\n\r\nbody") {
        let mut byte = [0];
        stream.read_exact(&mut byte).await.ok()?;
        got.extend(byte);
    }
    String::from_utf8(got).ok()
}

/// A server that answers request number N of connection number M with what `says` gives, or closes
/// the connection when it gives nothing.
struct Fake {
    address: SocketAddr,
    connections: Arc<AtomicU32>,
    _serving: JoinSet<()>,
}

impl Fake {
    async fn start(says: impl Fn(u32, u32) -> Option<Vec<u8>> + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let connections = Arc::new(AtomicU32::new(0));
        let (count, says) = (connections.clone(), Arc::new(says));
        let mut serving = JoinSet::new();
        serving.spawn(async move {
            let mut tasks = JoinSet::new();
            while let Ok((mut stream, _)) = listener.accept().await {
                let connection = count.fetch_add(1, Relaxed);
                let says = says.clone();
                tasks.spawn(async move {
                    for number in 0.. {
                        if read_request(&mut stream).await.is_none() {
                            break;
                        }
                        let Some(bytes) = says(connection, number) else {
                            break;
                        };
                        _ = stream.write_all(&bytes).await;
                    }
                });
            }
        });
        Self {
            address,
            connections,
            _serving: serving,
        }
    }

    fn connections(&self) -> u32 {
        self.connections.load(Relaxed)
    }
}

#[tokio::test]
async fn a_connection_is_used_again_after_a_whole_answer() {
    let fake = Fake::start(|_, number| Some(ok(&number.to_string()))).await;
    let client = client(fake.address, options(Protocol::Http1));
    assert_eq!(ask(&client, "/").await, Ok("200 0".to_owned()));
    assert_eq!(ask(&client, "/").await, Ok("200 1".to_owned()));
    assert_eq!(fake.connections(), 1);
    let without = Options {
        kept: 0,
        ..options(Protocol::Http1)
    };
    let forgetful = Client::new(client.origin().clone(), without).unwrap();
    for _ in 0..2 {
        assert_eq!(ask(&forgetful, "/").await, Ok("200 0".to_owned()));
    }
    assert_eq!(fake.connections(), 3);
}

#[tokio::test]
async fn an_answer_of_another_status_is_an_answer() {
    let says = b"HTTP/1.1 503 X\r\nRetry-After: 7\r\nContent-Length: 2\r\n\r\nno";
    let fake = Fake::start(move |_, _| Some(says.to_vec())).await;
    let client = client(fake.address, options(Protocol::Http1));
    let reply = client.ask(request("/a?b=c")).await.unwrap();
    assert_eq!(reply.status.as_u16(), 503);
    assert_eq!(reply.headers["retry-after"], "7");
    assert_eq!(&reply.body[..], b"no");
}

/// The peer closes a connection that was kept as it reads the second request.
#[tokio::test]
async fn a_request_that_may_have_arrived_is_repeated_only_where_that_is_allowed() {
    let closes = |_, number| (number == 0).then(|| ok("x"));
    for (repeats, expected) in [(true, true), (false, false)] {
        let fake = Fake::start(closes).await;
        let options = Options {
            repeats,
            ..options(Protocol::Http1)
        };
        let client = client(fake.address, options);
        ask(&client, "/").await.unwrap();
        let second = ask(&client, "/").await;
        assert_eq!(second.is_ok(), expected, "{second:?}");
        assert_eq!(fake.connections(), if expected { 2 } else { 1 });
    }
}

#[tokio::test]
async fn a_server_that_closes_each_connection_is_tried_once() {
    let fake = Fake::start(|_, _| None).await;
    let options = Options {
        repeats: true,
        ..options(Protocol::Http1)
    };
    let client = client(fake.address, options);
    let why = ask(&client, "/").await.unwrap_err();
    assert!(why.starts_with("HTTP: "), "{why}");
    assert_eq!(fake.connections(), 1);
}

#[tokio::test]
async fn heads_and_bodies_have_a_limit() {
    let long = |length: usize| {
        let body = "x".repeat(length);
        Fake::start(move |_, _| Some(ok(&body)))
    };
    let fake = long(1000).await;
    let client_of = |fake: &Fake| client(fake.address, options(Protocol::Http1));
    assert!(ask(&client_of(&fake), "/").await.is_ok());
    let fake = long(1001).await;
    let why = ask(&client_of(&fake), "/").await.unwrap_err();
    assert!(why.starts_with("its answer is broken: "), "{why}");

    let head = |length: usize| {
        let says = format!(
            "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nX: {}\r\n\r\n",
            "x".repeat(length)
        );
        Fake::start(move |_, _| Some(says.clone().into_bytes()))
    };
    let fake = head(LIMITS.head - 1000).await;
    assert!(ask(&client_of(&fake), "/").await.is_ok());
    let fake = head(2 * LIMITS.head).await;
    let why = ask(&client_of(&fake), "/").await.unwrap_err();
    assert!(why.starts_with("HTTP: "), "{why}");
}

#[tokio::test]
async fn no_answer_and_half_an_answer_are_none() {
    for says in [
        "",
        "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n",
    ] {
        let fake = Fake::start(move |_, _| Some(says.as_bytes().to_vec())).await;
        let options = Options {
            timeout: Duration::from_millis(200),
            ..options(Protocol::Http1)
        };
        let client = client(fake.address, options);
        let error = client.ask(request("/")).await.unwrap_err();
        assert!(matches!(error, ClientError::Timeout), "{says:?}: {error:?}");
        assert!(error.is_passing());
        assert!(client.take().is_none(), "it may not be used again");
    }
    let fake = Fake::start(|_, _| Some(b"nonsense\r\n\r\n".to_vec())).await;
    let client = client(fake.address, options(Protocol::Http1));
    let error = client.ask(request("/")).await.unwrap_err();
    assert!(matches!(error, ClientError::Http(_)), "{error:?}");
}

#[tokio::test]
async fn who_is_not_there_is_said_in_the_words_of_the_system() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let client = client(address, options(Protocol::Http1));
    let why = ask(&client, "/").await.unwrap_err();
    assert!(why.starts_with("Connection refused"), "{why}");
}

/// The paths of requests that a server of HTTP/2 got, each answered with trailers.
async fn over_http2(stream: TcpStream, paths: Arc<Mutex<Vec<String>>>) {
    let mut connection = h2::server::handshake(stream).await.unwrap();
    while let Some(Ok((request, mut respond))) = connection.accept().await {
        lock(&paths).push(request.uri().to_string());
        let head = Response::builder().header("x", "y").body(()).unwrap();
        let mut send = respond.send_response(head, false).unwrap();
        send.send_data(Bytes::from_static(b"answer"), false)
            .unwrap();
        let mut trailers = HeaderMap::new();
        trailers.insert("grpc-status", HeaderValue::from_static("0"));
        send.send_trailers(trailers).unwrap();
    }
}

#[tokio::test]
async fn http2_has_whole_addresses_and_trailers_and_one_connection() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let paths = Arc::new(Mutex::default());
    let mut serving = JoinSet::new();
    let got = paths.clone();
    serving.spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        over_http2(stream, got).await;
        pending::<()>().await;
    });
    let client = client(address, options(Protocol::Http2));
    for path in ["/a", "/b?c=d"] {
        let reply = client.ask(request(path)).await.unwrap();
        assert_eq!(reply.trailers["grpc-status"], "0");
        assert_eq!(
            (&reply.headers["x"], &reply.body[..]),
            (&HeaderValue::from_static("y"), &b"answer"[..])
        );
    }
    let expected = ["/a", "/b?c=d"].map(|path| format!("http://{address}{path}"));
    assert_eq!(*lock(&paths), expected);
}

/// Whether a client that trusts `root` gets an answer of a server with this certificate, and which
/// protocol was agreed upon.
async fn over_tls(
    protocol: Protocol,
    made: &Certificates,
    root: PathBuf,
) -> (Result<Reply, ClientError>, Option<Vec<u8>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let chain = CertificateDer::from_pem_file(made.path("server.pem")).unwrap();
    let key = PrivateKeyDer::from_pem_file(made.path("server.key")).unwrap();
    let provider = Arc::new(aws_lc_rs::default_provider());
    let mut server = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![chain], key)
        .unwrap();
    server.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let acceptor = TlsAcceptor::from(Arc::new(server));
    let mut serving = JoinSet::new();
    serving.spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        let mut stream = acceptor.accept(stream).await.ok()?;
        let agreed = stream.get_ref().1.alpn_protocol()?.to_vec();
        if agreed == b"http/1.1" {
            _ = stream.read(&mut [0; 4096]).await; // whatever is asked
            stream.write_all(&ok("x")).await.unwrap();
        } else {
            let mut connection = h2::server::handshake(stream).await.unwrap();
            let (_, mut respond) = connection.accept().await?.unwrap();
            respond.send_response(Response::new(()), true).unwrap();
            while connection.accept().await.is_some() {}
        }
        Some(agreed)
    });
    let options = Options {
        tls: Tls {
            root_ca: Some(root),
            identity: None,
        },
        ..options(protocol)
    };
    let client = Client::new(Origin::new(true, "127.0.0.1", port), options).unwrap();
    let reply = client.ask(request("/")).await;
    drop(client);
    (reply, serving.join_next().await.unwrap().unwrap())
}

#[tokio::test]
async fn either_protocol_is_agreed_upon_over_tls() {
    let made = Certificates::new();
    for (protocol, name) in [(Protocol::Http1, "http/1.1"), (Protocol::Http2, "h2")] {
        let (reply, agreed) = over_tls(protocol, &made, made.path("ca.pem")).await;
        assert!(reply.unwrap().status.is_success());
        assert_eq!(agreed.as_deref(), Some(name.as_bytes()));
    }
}

#[tokio::test]
async fn a_server_that_nobody_trusts_gets_nothing() {
    let (made, others) = (Certificates::new(), Certificates::new());
    let (reply, agreed) = over_tls(Protocol::Http1, &made, others.path("ca.pem")).await;
    let error = reply.unwrap_err();
    assert!(
        matches!(error, ClientError::Tls(TlsError::Handshake(_))),
        "{error:?}"
    );
    let why = with_causes(&error);
    assert!(why.contains("TLS: invalid peer certificate"), "{why}");
    assert!(error.is_passing());
    assert_eq!(agreed, None);
}
