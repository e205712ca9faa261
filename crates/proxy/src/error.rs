//! Why a request has no response of an upstream.

use std::io;
use std::time::Duration;

use pronghorn_client::TlsError;
use pronghorn_serve::BodyError;
use thiserror::Error;

/// Why a server gave no response.
#[derive(Debug, Error)]
pub enum UpstreamError {
    #[error("it can't be reached: {0}")]
    Connect(io::Error),
    #[error("it did not take a connection within {} s", .0.as_secs_f64())]
    ConnectTimeout(Duration),
    #[error("TLS can't be set up with it: {0}")]
    Tls(#[source] TlsError),
    #[error("it did not begin to answer within {} s", .0.as_secs_f64())]
    ResponseTimeout(Duration),
    #[error("it took nothing of the request's body for {} s", .0.as_secs_f64())]
    BodyTimeout(Duration),
    #[error("its response is broken, or it closed the connection: {0}")]
    Http(#[source] hyper::Error),
    #[error("it changed to a protocol that the client did not ask for")]
    Switched,
    #[error("no server passes its health check")]
    NoneHealthy,
}

impl UpstreamError {
    /// The status that the client gets.
    pub const fn status(&self) -> u16 {
        match self {
            Self::NoneHealthy => 503,
            Self::ConnectTimeout(_) | Self::ResponseTimeout(_) | Self::BodyTimeout(_) => 504,
            Self::Connect(_) | Self::Tls(_) | Self::Http(_) | Self::Switched => 502,
        }
    }

    /// Whether the server is at fault in a way that the next request would meet as well.
    pub const fn is_down(&self) -> bool {
        matches!(
            self,
            Self::Connect(_) | Self::ConnectTimeout(_) | Self::Tls(_) | Self::Http(_)
        )
    }
}

/// Why no server of an upstream has answered a request.
#[derive(Debug, Error)]
pub enum NotForwarded {
    /// The client has left.
    #[error("the client has left")]
    Gone,
    /// The client's: its body did not come.
    #[error(transparent)]
    Body(BodyError),
    /// The client's: its body is longer than this.
    #[error("the body is too large: at most {0} bytes are taken")]
    TooLarge(u64),
    /// The client's: its target can't be sent on.
    #[error("the target can't be sent on")]
    Target,
    /// The last server that was tried.
    #[error("`{server}`: {error}")]
    Upstream {
        /// Its address.
        server: String,
        error: UpstreamError,
    },
}
