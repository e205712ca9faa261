//! Requests to a collector: one at a time, over a connection that is kept.

use std::io::{self, Write};
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use flate2::Compression;
use flate2::write::GzEncoder;
use pronghorn_base::with_causes;
use pronghorn_client::header::{
    CONTENT_ENCODING, CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER, TE,
};
use pronghorn_client::{
    ClientError, Limits, Method, Options, Origin, Protocol, Reply, Request, Tls, TlsError,
};
use prost::Message;
use thiserror::Error;

use crate::messages::Answer;
use crate::settings::{Client, CollectorSettings};

/// An answer is a few bytes. More than that is none.
const LIMITS: Limits = Limits {
    head: 64 << 10,
    body: 64 << 10,
};
/// The length of a collector's words in a record.
const LONGEST_WORD: usize = 200;
/// No collector is waited for longer, whatever it asks for.
const LONGEST_RETRY_AFTER: Duration = Duration::from_secs(60);

/// A kind of data that is exported.
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
pub(crate) enum CollectorError {
    #[error(
        "the system has no root certificates to check the collector's by: install \
         `ca-certificates`, name a file in SSL_CERT_FILE, or write `insecure: true` in `otel`"
    )]
    NoRoots,
    #[error("`otel.endpoint` names no host that a certificate can be for: `{0}`")]
    Name(String),
    #[error("TLS can't be used")]
    Tls(#[source] ClientError),
}

pub(crate) struct Collector {
    settings: CollectorSettings,
    client: pronghorn_client::Client,
}

impl Collector {
    /// One whose certificate is checked by the system's roots.
    pub(crate) fn new(settings: CollectorSettings) -> Result<Self, CollectorError> {
        Self::trusting(settings, Tls::default())
    }

    fn trusting(settings: CollectorSettings, tls: Tls) -> Result<Self, CollectorError> {
        let options = Options {
            protocol: match settings.client {
                Client::Http => Protocol::Http1,
                Client::Grpc => Protocol::Http2,
            },
            tls,
            timeout: settings.timeout,
            limits: LIMITS,
            kept: 1,
            // A collector may close a connection at any moment, and takes a batch twice.
            repeats: true,
        };
        let origin = Origin::new(settings.tls, &settings.host, settings.port);
        let client = pronghorn_client::Client::new(origin, options);
        let client = client.map_err(|error| match error {
            ClientError::Tls(TlsError::NoRoots) => CollectorError::NoRoots,
            ClientError::Tls(TlsError::Name(host)) => CollectorError::Name(host),
            error => CollectorError::Tls(error),
        })?;
        Ok(Self { settings, client })
    }

    /// Sends one message and reads what the collector says to it.
    pub(crate) async fn send(&self, signal: Signal, message: &[u8]) -> Result<Accepted, Failure> {
        let body = self.body(message).map_err(|error| Failure {
            is_passing: false,
            after: None,
            why: format!("it can't be compressed: {error}"),
        })?;
        let request = self.request(signal, body)?;
        let reply = self.client.ask(request).await;
        let reply = reply.map_err(|error| self.failure(&error))?;
        match self.settings.client {
            Client::Http => of_http(&reply),
            Client::Grpc => of_grpc(&reply),
        }
    }

    fn failure(&self, error: &ClientError) -> Failure {
        let authority = self.client.origin().authority();
        let why = match error {
            ClientError::Timeout => {
                format!("no answer within {} s", self.settings.timeout.as_secs_f64())
            }
            ClientError::Answer(why) => format!("its answer can't be read: {why}"),
            ClientError::Http(why) => format!("{authority}: {}", with_causes(why)),
            _ => {
                let why = with_causes(error);
                format!("{authority}: {why}{}", hint(&why))
            }
        };
        Failure {
            is_passing: error.is_passing(),
            after: None,
            why,
        }
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

    fn request(&self, signal: Signal, body: Bytes) -> Result<Request<Bytes>, Failure> {
        let settings = &self.settings;
        let path = match (settings.client, signal) {
            (Client::Http, Signal::Traces) => &settings.traces_path,
            (Client::Http, Signal::Metrics) => &settings.metrics_path,
            (Client::Grpc, signal) => method(signal),
        };
        let mut request = Request::new(body);
        *request.method_mut() = Method::POST;
        *request.uri_mut() = path.parse().map_err(|_| Failure {
            is_passing: false,
            after: None,
            why: format!("bad URL `{path}`"),
        })?;
        let headers = request.headers_mut();
        for (name, value) in &settings.headers {
            headers.append(name, value.clone());
        }
        let (kind, coding) = match settings.client {
            Client::Http => ("application/x-protobuf", CONTENT_ENCODING),
            Client::Grpc => {
                headers.insert(TE, HeaderValue::from_static("trailers"));
                ("application/grpc", HeaderName::from_static("grpc-encoding"))
            }
        };
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
        if settings.compress {
            headers.insert(coding, HeaderValue::from_static("gzip"));
        }
        Ok(request)
    }
}

fn method(signal: Signal) -> &'static str {
    match signal {
        Signal::Traces => "/opentelemetry.proto.collector.trace.v1.TraceService/Export",
        Signal::Metrics => "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export",
    }
}

/// The mistake that most people make first.
fn hint(why: &str) -> &'static str {
    if why.contains("InvalidContentType") {
        " (hint: the collector seems to speak without TLS: `insecure: true` in `otel`)"
    } else {
        ""
    }
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
    // An answer that can't be read says more than this version knows.
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
