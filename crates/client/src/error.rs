//! Why a request has no answer.

use std::error::Error;
use std::io;
use std::path::PathBuf;

use thiserror::Error;

/// A request without an answer.
#[derive(Debug, Error)]
pub enum ClientError {
    /// The caller's: a path or a value cannot be sent.
    #[error("a value has signs that HTTP forbids")]
    Forbidden,
    #[error(transparent)]
    Tls(#[from] TlsError),
    #[error(transparent)]
    Connect(io::Error),
    #[error("HTTP")]
    Http(#[source] hyper::Error),
    /// The answer ends too early, or is longer than the limits.
    #[error("its answer is broken")]
    Answer(#[source] Box<dyn Error + Send + Sync>),
    #[error("it did not answer in time")]
    Timeout,
}

impl ClientError {
    /// Whether the same request may get an answer later. All else takes another configuration.
    pub const fn is_passing(&self) -> bool {
        match self {
            Self::Forbidden => false,
            Self::Tls(error) => matches!(error, TlsError::Handshake(_)),
            Self::Connect(_) | Self::Http(_) | Self::Answer(_) | Self::Timeout => true,
        }
    }
}

/// TLS cannot be begun.
#[derive(Debug, Error)]
pub enum TlsError {
    /// The machine's: the system names nobody whom to trust.
    #[error("there are no root certificates to check its certificate by")]
    NoRoots,
    #[error("`{0}` is no host that a certificate can be for")]
    Name(String),
    #[error("`{}` can't be read", .path.display())]
    Unreadable { path: PathBuf, source: io::Error },
    #[error("`{}` is no PEM", .path.display())]
    NoPem {
        path: PathBuf,
        source: rustls::pki_types::pem::Error,
    },
    #[error("`{}` holds no certificate", .0.display())]
    Empty(PathBuf),
    #[error("{what} can't be used")]
    Unusable {
        what: String,
        source: Box<dyn Error + Send + Sync>,
    },
    /// The peer's: its certificate is not trusted, it speaks without TLS, or it has gone.
    #[error("TLS")]
    Handshake(#[source] io::Error),
}
