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
    /// One whose certificate is checked by the system's roots.
    pub(crate) fn new(settings: CollectorSettings) -> Result<Self, TlsError> {
        let mut roots = RootCertStore::empty();
        if settings.tls {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
        Self::with_roots(settings, roots)
    }

    fn with_roots(settings: CollectorSettings, roots: RootCertStore) -> Result<Self, TlsError> {
        let CollectorSettings { host, port, .. } = &settings;
        let authority = if host.contains(':') {
            format!("[{host}]:{port}")
        } else {
            format!("{host}:{port}")
        };
        let tls = if settings.tls {
            let name = ServerName::try_from(host.clone());
            let name = name.map_err(|_| TlsError::Name(host.clone()))?;
            Some((connector(settings.client, roots)?, name))
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

fn connector(client: Client, roots: RootCertStore) -> Result<TlsConnector, TlsError> {
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
mod tests;
