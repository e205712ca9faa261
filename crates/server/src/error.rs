//! Why a server does not start.

use std::io;

use pronghorn_http::CertificateError;
use pronghorn_pool::{LaunchError, SpoolError};
use pronghorn_process::LookupError;
use pronghorn_process::socket::BindError;
use thiserror::Error;

use pronghorn_workers::{OnInitError, UserError};

/// A start that failed. Nothing is left running.
#[derive(Debug, Error)]
pub enum StartError {
    /// The operator's.
    #[error(
        "there is nothing to serve: the configuration has no section `http`\n\
         hint: `-o http.address=127.0.0.1:8080` adds one"
    )]
    Nothing,
    #[error(transparent)]
    User(#[from] UserError),
    /// The operator's: `http.spool_dir` or `http.uploads.dir`.
    #[error("bodies can't be kept")]
    Spool(#[source] SpoolError),
    /// The operator's: `http.address` or `server.relay`.
    #[error("cannot listen")]
    Bind(#[from] BindError),
    /// The operator's: `user` or `group` in `http.listen`.
    #[error("nobody can own a socket of `http.listen` by this name")]
    SocketOwner(#[source] LookupError),
    /// The operator's: files of `http.ssl`.
    #[error("TLS needs a certificate")]
    Certificate(#[source] CertificateError),
    /// The system's.
    #[error("TLS can't be set up: {0}")]
    Tls(String),
    /// The operator's: what middleware needs.
    #[error(transparent)]
    Middleware(#[from] pronghorn_http::middleware::Unusable),
    /// The operator's: a host name in `http.address` that nobody knows.
    #[error("`{host}` in `http.address` is no name of this machine")]
    Host { host: String, source: io::Error },
    /// The application's.
    #[error("a worker does not start")]
    Boot(#[source] LaunchError),
    /// The application's: `server.on_init`, with `exit_on_error`.
    #[error("`server.on_init` failed")]
    OnInit(#[from] OnInitError),
    /// What a service says of itself.
    #[error("{name}: {source}")]
    Service {
        name: &'static str,
        source: pronghorn_plugin_api::StartError,
    },
    /// The process before has hung, or is of a release that speaks otherwise.
    #[error("the process that this one takes over from does not answer")]
    Predecessor(#[source] io::Error),
    /// Nobody's: this process only had to show that it could.
    #[error("this was a rehearsal of an upgrade")]
    Rehearsal,
    /// The system's: no threads, no descriptors.
    #[error("the system gives no resources")]
    System(#[from] io::Error),
}

impl StartError {
    /// A service's own error, or one of these that it passed on.
    pub(crate) fn of_service(name: &'static str, error: pronghorn_plugin_api::StartError) -> Self {
        match error.downcast::<Self>() {
            Ok(own) => *own,
            Err(source) => Self::Service { name, source },
        }
    }

    /// The whole story for a person, without `error:` before it and without a line end.
    pub fn report(&self) -> String {
        if let Self::Boot(error) = self {
            return error.report().to_owned();
        }
        let mut text = self.to_string();
        let mut source = match self {
            Self::Service { source, .. } => source.source(), // the source itself is in the text
            _ => std::error::Error::source(self),
        };
        while let Some(cause) = source {
            text = format!("{text}: {cause}");
            source = cause.source();
        }
        text
    }
}
