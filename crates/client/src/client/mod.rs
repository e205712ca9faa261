//! A server, and the connections to it that are kept for the next request.

use std::fmt;
use std::sync::Mutex;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::Request;
use hyper::Uri;
use hyper::header::{HOST, HeaderValue};
use pronghorn_base::lock;
use tokio::time::timeout;

use crate::connection::{Connection, Limits, Protocol, Reply, Sent, read};
use crate::error::ClientError;
use crate::origin::Origin;
use crate::tls::Tls;

/// A connection that nobody has used for this long may be about to be closed by the peer.
const KEPT_FOR: Duration = Duration::from_secs(10);

/// The options of a client.
#[derive(Clone, Debug)]
pub struct Options {
    pub protocol: Protocol,
    /// For origins with TLS.
    pub tls: Tls,
    /// For a request with its answer, and the connection if it needs one.
    pub timeout: Duration,
    pub limits: Limits,
    /// How many connections without a request are kept.
    pub kept: usize,
    /// Whether a request is sent a second time, over a new connection, when one that was kept is
    /// lost before the answer. The peer may have got it twice then. A request of which nothing was
    /// sent is always sent again.
    pub repeats: bool,
}

/// A server. Requests at the same time have a connection each.
pub struct Client {
    origin: Origin,
    options: Options,
    kept: Mutex<Vec<Connection>>,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("origin", &self.origin)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

impl Client {
    /// Connects to nobody yet.
    ///
    /// # Errors
    ///
    /// When the origin has TLS, which cannot be begun with these options.
    pub fn new(origin: Origin, options: Options) -> Result<Self, ClientError> {
        if origin.is_tls() {
            options.tls.check(origin.host())?;
        }
        Ok(Self {
            origin,
            options,
            kept: Mutex::default(),
        })
    }

    pub const fn origin(&self) -> &Origin {
        &self.origin
    }

    /// Sends a request, whose URI is a path, and reads the whole answer, whatever its status is.
    ///
    /// Dropped, it ends the connection that it uses.
    ///
    /// # Errors
    ///
    /// When there is no whole answer in time.
    pub async fn ask(&self, request: Request<Bytes>) -> Result<Reply, ClientError> {
        let exchanged = timeout(self.options.timeout, self.exchange(request)).await;
        exchanged.map_err(|_| ClientError::Timeout)?
    }

    async fn exchange(&self, request: Request<Bytes>) -> Result<Reply, ClientError> {
        let Options {
            tls,
            protocol,
            limits,
            ..
        } = &self.options;
        let mut request = self.complete(request)?;
        let mut copy = self.options.repeats.then(|| request.clone());
        // Each connection that was kept is tried once.
        while let Some(mut connection) = self.take() {
            match connection.send(request).await {
                Ok(response) => return self.finish(connection, read(response, *limits).await),
                // The peer may have closed it at the same moment.
                Err(unanswered) => match unanswered.unsent.or_else(|| copy.take()) {
                    Some(again) => request = again,
                    None => return Err(unanswered.error),
                },
            }
        }
        let mut connection = Connection::open(&self.origin, tls, *protocol, *limits).await?;
        let response = connection.send(request).await;
        let response = response.map_err(|unanswered| unanswered.error)?;
        self.finish(connection, read(response, *limits).await)
    }

    /// Says to whom the request goes, as its protocol has it.
    fn complete(&self, request: Request<Bytes>) -> Result<Sent, ClientError> {
        let (mut head, body) = request.into_parts();
        let authority = self.origin.authority();
        match self.options.protocol {
            Protocol::Http1 => {
                let host = HeaderValue::from_str(authority);
                let host = host.map_err(|_| ClientError::Forbidden)?;
                head.headers.insert(HOST, host);
            }
            Protocol::Http2 => {
                let path = head.uri.path_and_query().map_or("/", |path| path.as_str());
                let uri = Uri::builder()
                    .scheme(self.origin.scheme())
                    .authority(authority)
                    .path_and_query(path)
                    .build();
                head.uri = uri.map_err(|_| ClientError::Forbidden)?;
            }
        }
        Ok(Request::from_parts(head, Full::new(body)))
    }

    /// Keeps a connection whose answer is whole.
    fn finish(
        &self,
        mut connection: Connection,
        reply: Result<Reply, ClientError>,
    ) -> Result<Reply, ClientError> {
        let reply = reply?;
        connection.used = tokio::time::Instant::now();
        let mut kept = lock(&self.kept);
        if kept.len() < self.options.kept {
            kept.push(connection);
        }
        Ok(reply)
    }

    fn take(&self) -> Option<Connection> {
        let mut kept = lock(&self.kept);
        kept.retain(|connection| connection.is_open() && connection.used.elapsed() < KEPT_FOR);
        kept.pop()
    }
}

#[cfg(test)]
mod tests;
