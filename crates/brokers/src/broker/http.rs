//! Requests to a broker that speaks HTTP: each over a connection of its own that is kept for the
//! next one.

use std::sync::Mutex;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::{HOST, HeaderName, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use pronghorn_base::lock;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use super::BrokerError;
use super::tls::{Stream, encrypt};
use crate::tls::BrokerTls;

/// Ten jobs of the largest payload, in base64, and what is around them.
const LONGEST_ANSWER: usize = 256 << 20;
/// A connection that nobody has used for so long may be about to be closed.
const KEPT: Duration = Duration::from_secs(10);
/// As many as a server has workers that end a job at one moment.
const MOST_KEPT: usize = 16;

/// A server, by the address of a URL.
pub(crate) struct Client {
    /// None: it speaks without.
    tls: Option<BrokerTls>,
    host: String,
    port: u16,
    /// As in the field `Host`.
    pub(crate) authority: String,
    patience: Duration,
    kept: Mutex<Vec<Connection>>,
}

struct Connection {
    send: SendRequest<Full<Bytes>>,
    /// Carries its bytes, and ends with it.
    _driver: JoinSet<()>,
    used: Instant,
}

/// What a request is answered with, whole.
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) body: Bytes,
}

/// What is sent.
pub(crate) struct Asked<'a> {
    pub(crate) method: Method,
    pub(crate) path: &'a str,
    pub(crate) fields: Vec<(HeaderName, String)>,
    pub(crate) body: Bytes,
}

impl Client {
    /// For `http://host:port` and `https://host`; what is behind that is left to the requests.
    pub(crate) fn new(url: &str, patience: Duration) -> Result<Self, BrokerError> {
        let wrong = || BrokerError::Refused(format!("`{url}` is no URL of a server"));
        let (scheme, rest) = url.split_once("://").ok_or_else(wrong)?;
        let authority = rest.split(['/', '?']).next().unwrap_or_default();
        let (tls, default_port) = match scheme {
            "http" => (None, 80),
            "https" => (Some(BrokerTls::default()), 443),
            _ => return Err(wrong()),
        };
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => {
                (host, port.parse().map_err(|_| wrong())?)
            }
            _ => (authority, default_port),
        };
        let host = host.trim_start_matches('[').trim_end_matches(']');
        if host.is_empty() {
            return Err(wrong());
        }
        Ok(Self {
            tls,
            host: host.to_owned(),
            port,
            authority: authority.to_owned(),
            patience,
            kept: Mutex::default(),
        })
    }

    /// Sends a request and reads its answer, whatever its status is. A connection is used again
    /// only after a whole answer.
    pub(crate) async fn ask(&self, asked: Asked<'_>) -> Result<Answer, BrokerError> {
        let exchanged = timeout(self.patience, self.exchange(asked)).await;
        exchanged.map_err(|_| BrokerError::Lost("it did not answer in time".to_owned()))?
    }

    async fn exchange(&self, asked: Asked<'_>) -> Result<Answer, BrokerError> {
        let mut request = self.request(asked)?;
        let mut kept = self.take_kept();
        let (connection, response) = loop {
            let mut connection = match kept.take() {
                Some(connection) => connection,
                None => self.connect().await?,
            };
            match connection.send.try_send_request(request).await {
                Ok(response) => break (connection, response),
                // It was closed meanwhile, and nothing was sent.
                Err(mut error) => match error.take_message() {
                    Some(unsent) => {
                        request = unsent;
                        kept = self.take_kept();
                    }
                    None => return Err(lost(&error.into_error())),
                },
            }
        };
        let answer = read(response).await?;
        self.keep(connection);
        Ok(answer)
    }

    fn request(&self, asked: Asked<'_>) -> Result<Request<Full<Bytes>>, BrokerError> {
        let impossible = || BrokerError::Refused("a value has signs that HTTP forbids".to_owned());
        let mut request = Request::new(Full::new(asked.body));
        *request.method_mut() = asked.method;
        *request.uri_mut() = asked.path.parse().map_err(|_| impossible())?;
        let fields = request.headers_mut();
        let host = HeaderValue::from_str(&self.authority);
        fields.insert(HOST, host.map_err(|_| impossible())?);
        for (name, value) in asked.fields {
            let value = HeaderValue::from_str(&value).map_err(|_| impossible())?;
            fields.insert(name, value);
        }
        Ok(request)
    }

    async fn connect(&self) -> Result<Connection, BrokerError> {
        let stream = TcpStream::connect((self.host.as_str(), self.port)).await?;
        stream.set_nodelay(true)?;
        match &self.tls {
            None => over(stream).await,
            Some(tls) => over(encrypt(tls, &self.host, stream).await?).await,
        }
    }

    fn take_kept(&self) -> Option<Connection> {
        let mut kept = lock(&self.kept);
        kept.retain(|it| !it.send.is_closed() && it.used.elapsed() < KEPT);
        kept.pop()
    }

    fn keep(&self, mut connection: Connection) {
        connection.used = Instant::now();
        let mut kept = lock(&self.kept);
        if kept.len() < MOST_KEPT {
            kept.push(connection);
        }
    }
}

async fn over(stream: impl Stream + 'static) -> Result<Connection, BrokerError> {
    let handshake = http1::handshake(TokioIo::new(stream)).await;
    let (send, driver) = handshake.map_err(|error| lost(&error))?;
    let mut tasks = JoinSet::new();
    tasks.spawn(async {
        _ = driver.await; // who sends hears of it
    });
    Ok(Connection {
        send,
        _driver: tasks,
        used: Instant::now(),
    })
}

async fn read(response: Response<Incoming>) -> Result<Answer, BrokerError> {
    let (head, body) = response.into_parts();
    let body = Limited::new(body, LONGEST_ANSWER).collect().await;
    let body = body.map_err(|error| BrokerError::Lost(format!("its answer is broken: {error}")))?;
    Ok(Answer {
        status: head.status,
        body: body.to_bytes(),
    })
}

fn lost(error: &hyper::Error) -> BrokerError {
    BrokerError::Lost(format!("HTTP: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_read_from_a_url() {
        for (url, host, port, tls) in [
            ("http://127.0.0.1:5000", "127.0.0.1", 5000, false),
            (
                "https://sqs.eu-west-1.amazonaws.com/x",
                "sqs.eu-west-1.amazonaws.com",
                443,
                true,
            ),
            ("http://[::1]:8085/v1", "::1", 8085, false),
            ("http://[::1]", "::1", 80, false),
        ] {
            let client = Client::new(url, Duration::ZERO).unwrap_or_else(|_| panic!("{url}"));
            let read = (&*client.host, client.port, client.tls.is_some());
            assert_eq!(read, (host, port, tls), "{url}");
        }
        for url in [
            "",
            "host",
            "ftp://host",
            "http://",
            "http://host:port",
            "https://:1",
        ] {
            assert!(Client::new(url, Duration::ZERO).is_err(), "{url}");
        }
    }
}
