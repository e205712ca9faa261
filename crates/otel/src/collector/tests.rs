//! A collector that is played by the test, over TCP and over TLS.

use std::path::PathBuf;
use std::sync::Arc;

use http::{HeaderMap, Response};
use pronghorn_testkit::Certificates;
use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use super::*;

fn settings(client: Client, port: u16) -> CollectorSettings {
    CollectorSettings {
        client,
        host: "127.0.0.1".to_owned(),
        port,
        tls: false,
        compress: true,
        traces_path: "/v1/traces".to_owned(),
        metrics_path: "/v1/metrics".to_owned(),
        headers: Vec::new(),
        timeout: Duration::from_millis(500),
    }
}

fn collector(client: Client, port: u16) -> Collector {
    Collector::new(settings(client, port)).expect("no TLS")
}

fn trusting(root: PathBuf) -> Tls {
    Tls {
        root_ca: Some(root),
        identity: None,
    }
}

/// The result of a request to a server that says these bytes, whatever it is asked.
async fn asked(client: Client, says: Vec<u8>) -> Result<Accepted, Failure> {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("it is bound").port();
    let mut serving = JoinSet::new();
    serving.spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            _ = stream.read(&mut [0; 4096]).await; // whatever it asks
            _ = stream.write_all(&says).await;
        }
    });
    collector(client, port)
        .send(Signal::Traces, b"message")
        .await
}

async fn over_http(says: &str) -> Result<Accepted, Failure> {
    asked(Client::Http, says.as_bytes().to_vec()).await
}

#[tokio::test]
async fn a_status_says_whether_to_try_again() {
    let ok = over_http("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await;
    assert_eq!(ok, Ok(Accepted::default()));
    for (status, is_passing) in [(400, false), (500, false), (429, true), (503, true)] {
        let says = format!("HTTP/1.1 {status} X\r\nContent-Length: 1\r\n\r\nx");
        let failure = over_http(&says).await.expect_err("a failure");
        assert_eq!(failure.is_passing, is_passing, "{status}");
        assert_eq!(failure.why, format!("answered {status}"));
    }
    let busy = "HTTP/1.1 503 X\r\nRetry-After: 99999999999\r\nContent-Length: 0\r\n\r\n";
    let failure = over_http(busy).await.expect_err("a failure");
    assert_eq!(failure.after, Some(LONGEST_RETRY_AFTER));
}

#[tokio::test]
async fn a_part_may_be_rejected() {
    let body = "\n\x0a\x08\x03\x12\x06no\nend";
    let len = body.len();
    let says = format!("HTTP/1.1 200 OK\r\nContent-Length: {len}\r\n\r\n{body}");
    let accepted = over_http(&says).await.expect("an answer");
    assert_eq!((accepted.rejected, &*accepted.why), (3, "no end"));
}

#[tokio::test]
async fn no_answer_is_waited_for_or_read_without_an_end() {
    for says in [
        "",
        "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
        "nonsense\r\n\r\n",
        "\0\0\0",
    ] {
        let failure = over_http(says).await.expect_err("no answer");
        assert!(failure.is_passing, "{says:?}: {failure:?}");
    }
    let endless = format!(
        "HTTP/1.1 200 OK\r\nContent-Length: 9999999\r\n\r\n{}",
        "x".repeat(1 << 20)
    );
    let failure = over_http(&endless).await.expect_err("too long");
    assert!(failure.why.contains("can't be read"), "{failure:?}");
}

/// The result of a call to a server that answers with these two fields in its trailer.
async fn over_grpc(
    status: &'static str,
    message: &'static str,
) -> (Vec<u8>, Result<Accepted, Failure>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("it is bound").port();
    let (got, mut received) = tokio::sync::mpsc::channel(1);
    let mut serving = JoinSet::new();
    serving.spawn(async move {
        let (stream, _) = listener.accept().await.expect("a client");
        let mut connection = h2::server::handshake(stream).await.expect("HTTP/2");
        while let Some(Ok((request, mut respond))) = connection.accept().await {
            assert_eq!(request.headers()["te"], "trailers");
            assert_eq!(request.headers()["grpc-encoding"], "gzip");
            assert_eq!(request.uri().path(), method(Signal::Traces));
            let mut body = request.into_body();
            let head = Response::builder().header(CONTENT_TYPE, "application/grpc");
            let head = head.body(()).expect("a head");
            let mut send = respond.send_response(head, false).expect("it is open");
            let got = got.clone();
            tokio::select! {
                _ = connection.accept() => {}
                data = body.data() => {
                    let data = data.expect("a message").expect("no error");
                    got.send(data.to_vec()).await.expect("the test waits");
                }
            }
            let answer = Bytes::from_static(b"\0\0\0\0\x04\x0a\x02\x08\x05");
            send.send_data(answer, false).expect("it is open");
            let mut trailers = HeaderMap::new();
            trailers.insert("grpc-status", HeaderValue::from_static(status));
            trailers.insert("grpc-message", HeaderValue::from_static(message));
            send.send_trailers(trailers).expect("it is open");
        }
    });
    let result = collector(Client::Grpc, port)
        .send(Signal::Traces, b"message")
        .await;
    (received.recv().await.expect("a message"), result)
}

#[tokio::test]
async fn a_collector_over_grpc_takes_a_message() {
    let (frame, result) = over_grpc("0", "").await;
    assert_eq!(result.expect("an answer").rejected, 5);
    let (head, compressed) = frame.split_at(5);
    assert_eq!(head[0], 1, "it is compressed");
    let len = u32::from_be_bytes([head[1], head[2], head[3], head[4]]);
    assert_eq!(len as usize, compressed.len());
    let mut message = Vec::new();
    let mut decoder = flate2::write::GzDecoder::new(&mut message);
    decoder.write_all(compressed).expect("gzip");
    decoder.finish().expect("gzip");
    assert_eq!(message, b"message");
}

#[tokio::test]
async fn a_code_of_grpc_says_whether_to_try_again() {
    for (status, is_passing) in [("14", true), ("8", true), ("16", false), ("12", false)] {
        let (_, result) = over_grpc(status, "no way").await;
        let failure = result.expect_err("a failure");
        assert_eq!(failure.is_passing, is_passing, "{status}");
        assert!(failure.why.contains(status), "{failure:?}");
    }
}

#[tokio::test]
async fn a_server_that_speaks_no_http_2_is_a_failure() {
    let says = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n";
    let failure = asked(Client::Grpc, says.to_vec()).await;
    assert!(failure.expect_err("no gRPC").is_passing);
}

/// The result of a call to a collector with this certificate, by a client that trusts `ca`. It
/// answers `200`, or with code 0 of gRPC, and says by which protocol it was asked.
async fn over_tls(
    client: Client,
    made: &Certificates,
    trusted: &str,
) -> (Result<Accepted, Failure>, Option<Vec<u8>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("it is bound").port();
    let provider = Arc::new(aws_lc_rs::default_provider());
    let chain = CertificateDer::from_pem_file(made.path("server.pem")).expect("a certificate");
    let key = PrivateKeyDer::from_pem_file(made.path("server.key")).expect("a key");
    let mut server = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("they are known")
        .with_no_client_auth()
        .with_single_cert(vec![chain], key)
        .expect("they belong together");
    server.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let acceptor = TlsAcceptor::from(Arc::new(server));
    let mut serving = JoinSet::new();
    serving.spawn(async move {
        let (stream, _) = listener.accept().await.expect("a client");
        let mut stream = acceptor.accept(stream).await.ok()?;
        let protocol = stream.get_ref().1.alpn_protocol()?.to_vec();
        if protocol == b"http/1.1" {
            _ = stream.read(&mut [0; 4096]).await; // whatever it asks
            let says = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
            stream.write_all(says).await.expect("it is open");
        } else {
            let mut connection = h2::server::handshake(stream).await.expect("HTTP/2");
            let (_, mut respond) = connection.accept().await?.expect("a call");
            let head = Response::builder().header("grpc-status", "0");
            let head = head.body(()).expect("a head");
            respond.send_response(head, true).expect("it is open");
            while connection.accept().await.is_some() {}
        }
        Some(protocol)
    });
    let tls = trusting(made.path(trusted));
    let settings = CollectorSettings {
        tls: true,
        timeout: Duration::from_secs(10),
        ..settings(client, port)
    };
    let collector = Collector::trusting(settings, tls).expect("TLS");
    let result = collector.send(Signal::Traces, b"message").await;
    drop(collector);
    let protocol = serving.join_next().await.expect("a task");
    (result, protocol.expect("no panic"))
}

#[tokio::test]
async fn a_collector_over_tls_takes_a_message_by_either_protocol() {
    let made = Certificates::new();
    for (client, expected) in [(Client::Http, "http/1.1"), (Client::Grpc, "h2")] {
        let (result, protocol) = over_tls(client, &made, "ca.pem").await;
        assert_eq!(result, Ok(Accepted::default()));
        assert_eq!(protocol.as_deref(), Some(expected.as_bytes()));
    }
}

#[tokio::test]
async fn a_collector_whose_certificate_nobody_trusts_gets_nothing() {
    let (made, others) = (Certificates::new(), Certificates::new());
    for client in [Client::Http, Client::Grpc] {
        std::fs::copy(others.path("ca.pem"), made.path("other.pem")).expect("it is there");
        let (result, protocol) = over_tls(client, &made, "other.pem").await;
        let failure = result.expect_err("a failure");
        assert!(
            failure.why.contains("TLS: invalid peer certificate"),
            "{failure:?}"
        );
        assert_eq!(protocol, None);
    }
}

#[tokio::test]
async fn a_collector_without_tls_is_told_of() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("it is bound").port();
    let mut serving = JoinSet::new();
    serving.spawn(async move {
        let (mut stream, _) = listener.accept().await.expect("a client");
        _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await; // it may have gone
    });
    let made = Certificates::new();
    let tls = trusting(made.path("ca.pem"));
    let settings = CollectorSettings {
        tls: true,
        ..settings(Client::Http, port)
    };
    let collector = Collector::trusting(settings, tls).expect("TLS");
    let failure = collector.send(Signal::Traces, b"message").await;
    let failure = failure.expect_err("no TLS");
    assert!(
        failure.why.contains("`insecure: true` in `otel`"),
        "{failure:?}"
    );
}
