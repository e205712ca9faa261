//! Why HTTP, or a server of files, does not start.

use std::io;

use pronghorn_acme::AcmeError;
use pronghorn_pool::SpoolError;
use pronghorn_process::LookupError;
use pronghorn_process::socket::BindError;
use pronghorn_serve::{CertificateError, ListenError, TlsError, UnknownHost};
use thiserror::Error;

use crate::middleware::Unusable;

#[derive(Debug, Error)]
pub(super) enum StartError {
    /// The operator's: `http.spool_dir` or `http.uploads.dir`.
    #[error("bodies can't be kept")]
    Spool(#[source] SpoolError),
    /// The operator's: an address, of which the error tells.
    #[error("cannot listen")]
    Bind(#[from] BindError),
    /// The operator's: `user` or `group` in `http.listen`.
    #[error("nobody can own a socket of `http.listen` by this name")]
    SocketOwner(#[source] LookupError),
    /// The operator's: files of `http.ssl`.
    #[error("TLS needs a certificate")]
    Certificate(#[source] CertificateError),
    /// The operator's: the state directory.
    #[error("`http.ssl.acme` has no place for certificates")]
    Acme(#[source] AcmeError),
    /// The system's.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The operator's: what middleware needs.
    #[error(transparent)]
    Middleware(#[from] Unusable),
    #[error(transparent)]
    Host(#[from] UnknownHost),
    /// The system's: no descriptors.
    #[error("the system gives no resources")]
    System(#[from] io::Error),
}

impl From<ListenError> for StartError {
    fn from(error: ListenError) -> Self {
        match error {
            ListenError::Host(error) => Self::Host(error),
            ListenError::Bind(error) => Self::Bind(error),
            ListenError::System(error) => Self::System(error),
        }
    }
}
