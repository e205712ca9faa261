//! Requests to a collector: one at a time, over a connection that is kept.

use std::io::{self, Write};
use std::sync::Arc;
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use flate2::Compression;
use flate2::write::GzEncoder;
use http_body_util::{BodyExt, Collected, Full, Limited};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper::header::{
    CONTENT_ENCODING, CONTENT_TYPE, HOST, HeaderMap, HeaderValue, RETRY_AFTER, TE,
};
use hyper::{Method, Request, Response, StatusCode, Uri};
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use crate::messages::Answer;
use crate::settings::{Client, CollectorSettings};

/// An answer is a few bytes. More than that is none.
const LONGEST_ANSWER: usize = 64 << 10;
/// Of what a collector says, in a record.
const LONGEST_WORD: usize = 200;
/// No collector is waited for longer, whatever it asks for.
const LONGEST_RETRY_AFTER: Duration = Duration::from_secs(60);

/// What is exported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Signal {
    Traces,
    Metrics,
}

/// The collector has taken it, but for so much of it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Accepted {
    pub(crate) rejected: u64,
    pub(crate) why: String,
}

/// The collector has not taken it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    /// Whether it may do so later.
    pub(crate) is_passing: bool,
    /// When, if it has said so.
    pub(crate) after: Option<Duration>,
    pub(crate) why: String,
}

/// The operator's, or the machine's: there is no way to speak TLS.
#[derive(Debug, Error)]
pub(crate) enum TlsError {
    #[error(
        "the system has no root certificates to check the collector's by: install \
         `ca-certificates`, name a file in SSL_CERT_FILE, or write `insecure: true` in `otel`"
    )]
    NoRoots,
    #[error("`otel.endpoint` names no host that a certificate can be for: `{0}`")]
    Name(String),
    #[error("TLS can't be used")]
    Provider(#[from] rustls::Error),
}

pub(crate) struct Collector {
    settings: CollectorSettings,
    tls: Option<(TlsConnector, ServerName<'static>)>,
    /// `host:port`
    authority: String,
    connection: Option<Connection>,
    /// Carries the bytes of the connection.
    driver: JoinSet<()>,
}

enum Connection {
    Http1(http1::SendRequest<Full<Bytes>>),
    Http2(http2::SendRequest<Full<Bytes>>),
}

impl Collector {
    pub(crate) fn new(settings: CollectorSettings) -> Result<Self, TlsError> {
        let CollectorSettings { host, port, .. } = &settings;
        let authority = if host.contains(':') {
            format!("[{host}]:{port}")
        } else {
            format!("{host}:{port}")
        };
        let tls = if settings.tls {
            let name = ServerName::try_from(host.clone());
            let name = name.map_err(|_| TlsError::Name(host.clone()))?;
            Some((connector(settings.client)?, name))
        } else {
            None
        };
        Ok(Self {
            tls,
            authority,
            settings,
            connection: None,
            driver: JoinSet::new(),
        })
    }

    /// Sends one message and reads what the collector says to it.
    pub(crate) async fn send(
        &mut self,
        signal: Signal,
        message: &[u8],
    ) -> Result<Accepted, Failure> {
        let limit = self.settings.timeout;
        let result = match timeout(limit, self.exchange(signal, message)).await {
            Ok(result) => result,
            Err(_) => Err(Failure {
                is_passing: true,
                after: None,
                why: format!("no answer within {} s", limit.as_secs_f64()),
            }),
        };
        if result.is_err() {
            self.connection = None; // whatever is on its way there is no answer to the next one
            self.driver.abort_all();
        }
        result
    }

    async fn exchange(&mut self, signal: Signal, message: &[u8]) -> Result<Accepted, Failure> {
        let body = self.body(message).map_err(|error| Failure {
            is_passing: false,
            after: None,
            why: format!("it can't be compressed: {error}"),
        })?;
        let request = || self.request(signal, body.clone());
        let (fresh, again) = (request()?, request()?);
        let kept = self.connection.take().filter(Connection::is_open);
        let (connection, response) = match kept {
            // A collector may close it at the same moment.
            Some(mut kept) => match kept.send(fresh).await {
                Ok(response) => (kept, response),
                Err(_) => self.send_anew(again).await?,
            },
            None => self.send_anew(fresh).await?,
        };
        let answer = read(response).await;
        self.connection = Some(connection);
        match self.settings.client {
            Client::Http => of_http(&answer?),
            Client::Grpc => of_grpc(&answer?),
        }
    }

    async fn send_anew(
        &mut self,
        request: Request<Full<Bytes>>,
    ) -> Result<(Connection, Response<Incoming>), Failure> {
        let mut connection = self.connect().await.map_err(|why| self.away(why))?;
        let response = connection.send(request).await;
        let response = response.map_err(|error| self.away(error.to_string()))?;
        Ok((connection, response))
    }

    fn away(&self, why: impl std::fmt::Display) -> Failure {
        Failure {
            is_passing: true,
            after: None,
            why: format!("{}: {why}", self.authority),
        }
    }

    async fn connect(&mut self) -> Result<Connection, String> {
        let address = (self.settings.host.as_str(), self.settings.port);
        let stream = TcpStream::connect(address).await;
        let stream = stream.map_err(|error| error.to_string())?;
        _ = stream.set_nodelay(true); // it would only be slower
        match self.tls.clone() {
            None => self.over(stream).await,
            Some((connector, name)) => {
                let stream = connector.connect(name, stream).await;
                let stream = stream.map_err(|error| format!("TLS: {error}{}", hint(&error)))?;
                self.over(stream).await
            }
        }
    }

    async fn over<S>(&mut self, stream: S) -> Result<Connection, String>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let io = TokioIo::new(stream);
        let text = |error: hyper::Error| error.to_string();
        self.driver.abort_all();
        while self.driver.try_join_next().is_some() {}
        Ok(match self.settings.client {
            Client::Http => {
                let (send, driver) = http1::handshake(io).await.map_err(text)?;
                self.driver.spawn(async {
                    _ = driver.await; // who sends hears of it
                });
                Connection::Http1(send)
            }
            Client::Grpc => {
                // What it starts ends with the connection.
                let executor = TokioExecutor::new();
                let (send, driver) = http2::handshake(executor, io).await.map_err(text)?;
                self.driver.spawn(async {
                    _ = driver.await; // who sends hears of it
                });
                Connection::Http2(send)
            }
        })
    }

    fn body(&self, message: &[u8]) -> io::Result<Bytes> {
        let compressed;
        let message = if self.settings.compress {
            let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
            encoder.write_all(message)?;
            compressed = encoder.finish()?;
            &compressed
        } else {
            message
        };
        if self.settings.client == Client::Http {
            return Ok(Bytes::copy_from_slice(message));
        }
        let len = u32::try_from(message.len()).map_err(io::Error::other)?;
        let mut frame = BytesMut::with_capacity(5 + message.len());
        frame.put_u8(u8::from(self.settings.compress));
        frame.put_u32(len);
        frame.put_slice(message);
        Ok(frame.freeze())
    }

    fn request(&self, signal: Signal, body: Bytes) -> Result<Request<Full<Bytes>>, Failure> {
        let settings = &self.settings;
        let scheme = if settings.tls { "https" } else { "http" };
        let uri = match (settings.client, signal) {
            (Client::Http, Signal::Traces) => settings.traces_path.clone(),
            (Client::Http, Signal::Metrics) => settings.metrics_path.clone(),
            (Client::Grpc, signal) => {
                format!("{scheme}://{}{}", self.authority, method(signal))
            }
        };
        let impossible = |why: String| Failure {
            is_passing: false,
            after: None,
            why,
        };
        let uri: Uri = uri
            .parse()
            .map_err(|_| impossible(format!("bad URL `{uri}`")))?;
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = uri;
        let headers = request.headers_mut();
        for (name, value) in &settings.headers {
            headers.append(name, value.clone());
        }
        let gzip = HeaderValue::from_static("gzip");
        if settings.client == Client::Grpc {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
            headers.insert(TE, HeaderValue::from_static("trailers"));
            if settings.compress {
                headers.insert("grpc-encoding", gzip);
            }
            return Ok(request);
        }
        let host = HeaderValue::from_str(&self.authority);
        headers.insert(HOST, host.map_err(|error| impossible(error.to_string()))?);
        headers.insert(
            CONTENT_TYPE,
            HeaderValue::from_static("application/x-protobuf"),
        );
        if settings.compress {
            headers.insert(CONTENT_ENCODING, gzip);
        }
        Ok(request)
    }
}

impl Connection {
    fn is_open(&self) -> bool {
        match self {
            Self::Http1(send) => !send.is_closed(),
            Self::Http2(send) => !send.is_closed(),
        }
    }

    async fn send(
        &mut self,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<Incoming>, hyper::Error> {
        match self {
            Self::Http1(send) => {
                send.ready().await?;
                send.send_request(request).await
            }
            Self::Http2(send) => {
                send.ready().await?;
                send.send_request(request).await
            }
        }
    }
}

fn method(signal: Signal) -> &'static str {
    match signal {
        Signal::Traces => "/opentelemetry.proto.collector.trace.v1.TraceService/Export",
        Signal::Metrics => "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export",
    }
}

/// By the system's roots.
fn connector(client: Client) -> Result<TlsConnector, TlsError> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if roots.is_empty() {
        return Err(TlsError::NoRoots);
    }
    let mut config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = match client {
        Client::Http => vec![b"http/1.1".to_vec()],
        Client::Grpc => vec![b"h2".to_vec()],
    };
    Ok(TlsConnector::from(Arc::new(config)))
}

/// The mistake that most people make first.
fn hint(error: &io::Error) -> &'static str {
    if error.to_string().contains("InvalidContentType") {
        " (hint: the collector seems to speak without TLS: `insecure: true` in `otel`)"
    } else {
        ""
    }
}

/// What came back, whole.
struct Reply {
    status: StatusCode,
    headers: HeaderMap,
    trailers: HeaderMap,
    body: Bytes,
}

async fn read(response: Response<Incoming>) -> Result<Reply, Failure> {
    let (head, body) = response.into_parts();
    let collected = Limited::new(body, LONGEST_ANSWER).collect().await;
    let collected: Collected<Bytes> = collected.map_err(|error| Failure {
        is_passing: true,
        after: None,
        why: format!("its answer can't be read: {error}"),
    })?;
    Ok(Reply {
        status: head.status,
        headers: head.headers,
        trailers: collected.trailers().cloned().unwrap_or_default(),
        body: collected.to_bytes(),
    })
}

/// Which statuses pass is for OTLP to say, and what they may be followed by.
fn of_http(reply: &Reply) -> Result<Accepted, Failure> {
    if reply.status.is_success() {
        return Ok(accepted(&reply.body));
    }
    let after = reply.headers.get(RETRY_AFTER);
    let after = after.and_then(|value| value.to_str().ok()?.trim().parse().ok());
    let status = reply.status.as_u16();
    Err(Failure {
        is_passing: matches!(status, 429 | 502 | 503 | 504),
        after: after.map(|seconds| Duration::from_secs(seconds).min(LONGEST_RETRY_AFTER)),
        why: format!("answered {status}"),
    })
}

fn of_grpc(reply: &Reply) -> Result<Accepted, Failure> {
    let field = |name| reply.trailers.get(name).or_else(|| reply.headers.get(name));
    let code = field("grpc-status").and_then(|value| value.to_str().ok()?.parse::<u32>().ok());
    if code == Some(0) {
        // A compressed answer was not asked for.
        return Ok(accepted(reply.body.get(5..).unwrap_or_default()));
    }
    let Some(code) = code else {
        of_http(reply)?;
        return Err(Failure {
            is_passing: false,
            after: None,
            why: "is no server of gRPC (hint: `client: http` in `otel`)".to_owned(),
        });
    };
    let message =
        field("grpc-message").map(|value| word(&String::from_utf8_lossy(value.as_bytes())));
    Err(Failure {
        // Cancelled, deadline exceeded, aborted, out of range, unavailable, data loss.
        is_passing: matches!(code, 1 | 4 | 8 | 10 | 11 | 14 | 15),
        after: None,
        why: format!("answered with code {code}: {}", message.unwrap_or_default()),
    })
}

fn accepted(body: &[u8]) -> Accepted {
    // What can't be read is one that says more than this version knows.
    let partial = Answer::decode(body)
        .ok()
        .and_then(|answer| answer.partial_success);
    let Some(partial) = partial else {
        return Accepted::default();
    };
    Accepted {
        rejected: u64::try_from(partial.rejected).unwrap_or_default(),
        why: word(&partial.message),
    }
}

/// A line of what a stranger says, in a record.
fn word(text: &str) -> String {
    let line = text.chars().take(LONGEST_WORD);
    line.map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    fn collector(client: Client, port: u16) -> Collector {
        let settings = CollectorSettings {
            client,
            host: "127.0.0.1".to_owned(),
            port,
            tls: false,
            compress: true,
            traces_path: "/v1/traces".to_owned(),
            metrics_path: "/v1/metrics".to_owned(),
            headers: Vec::new(),
            timeout: Duration::from_millis(500),
        };
        Collector::new(settings).expect("no TLS")
    }

    /// What comes of a request to a server that says these bytes, whatever it is asked.
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

    /// What comes of a call to a server that answers with these two fields in its trailer.
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
}
