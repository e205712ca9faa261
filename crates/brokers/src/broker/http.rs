//! Requests to a broker that speaks HTTP.

use std::time::Duration;

use bytes::Bytes;
use pronghorn_base::with_causes;
use pronghorn_client::header::{HeaderName, HeaderValue};
use pronghorn_client::{
    ClientError, Limits, Method, Options, Origin, Protocol, Reply, Request, Tls,
};

use super::BrokerError;

const LIMITS: Limits = Limits {
    head: 64 << 10,
    // Ten jobs of the largest payload, in base64, and what is around them.
    body: 256 << 20,
};
/// A server has so many workers that end a job at one moment.
const MOST_KEPT: usize = 16;

/// A server, by the address of a URL.
pub(crate) struct Client(pronghorn_client::Client);

/// A request.
pub(crate) struct HttpRequest<'a> {
    pub(crate) method: Method,
    pub(crate) path: &'a str,
    pub(crate) fields: Vec<(HeaderName, String)>,
    pub(crate) body: Bytes,
}

impl Client {
    /// For `http://host:port` and `https://host`; requests bring what comes after that.
    pub(crate) fn new(url: &str, patience: Duration) -> Result<Self, BrokerError> {
        let wrong = || BrokerError::Refused(format!("`{url}` is no URL of a server"));
        let options = Options {
            protocol: Protocol::Http1,
            tls: Tls::default(),
            timeout: patience,
            limits: LIMITS,
            kept: MOST_KEPT,
            repeats: false,
        };
        let origin = Origin::parse(url).ok_or_else(wrong)?;
        Ok(Self(pronghorn_client::Client::new(origin, options)?))
    }

    /// The value of the field `Host`.
    pub(crate) fn authority(&self) -> &str {
        self.0.origin().authority()
    }

    /// Sends a request and reads its answer, whatever its status is.
    pub(crate) async fn ask(&self, asked: HttpRequest<'_>) -> Result<Reply, BrokerError> {
        let mut request = Request::new(asked.body);
        *request.method_mut() = asked.method;
        *request.uri_mut() = asked.path.parse().map_err(|_| ClientError::Forbidden)?;
        for (name, value) in asked.fields {
            let value = HeaderValue::from_str(&value).map_err(|_| ClientError::Forbidden)?;
            request.headers_mut().insert(name, value);
        }
        Ok(self.0.ask(request).await?)
    }
}

impl From<ClientError> for BrokerError {
    fn from(error: ClientError) -> Self {
        match error {
            ClientError::Tls(error) => error.into(),
            error if error.is_passing() => Self::Lost(with_causes(&error)),
            error => Self::Refused(with_causes(&error)),
        }
    }
}
