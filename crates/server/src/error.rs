//! Why a server does not start.

use std::io;
use std::path::PathBuf;

use pronghorn_config::{Loaded, Place};
use pronghorn_plugin_api::Finding;
use pronghorn_pool::LaunchError;
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
    /// The operator's: systemd starts the server as root, and nobody has said as whom workers run.
    #[error(
        "systemd starts this server as root, and its workers and programs would be root as well: \
         whoever breaks into the application becomes root\nhint: write `User=www-data` into the unit, or \
         `server: {{user: www-data}}` into the configuration, or another unprivileged user who can \
         read the application; `server: {{allow_root: true}}` allows root"
    )]
    Root,
    /// The operator's: `state_dir`.
    #[error("the state directory can't be used")]
    State(#[source] io::Error),
    /// The operator's: `state_dir` is another one than that of the process before.
    #[error(
        "`state_dir` is {}, and the process that runs has its store in {}: an upgrade can't move \
         it\nhint: write the old `state_dir`, or stop the server, move the directory and start it",
        to.display(), from.display()
    )]
    Moved { from: PathBuf, to: PathBuf },
    /// The operator's: `server.relay`.
    #[error("cannot listen")]
    Bind(#[from] BindError),
    /// The application's.
    #[error("a worker does not start")]
    Boot(#[source] LaunchError),
    /// The application's: `server.on_init`, with `exit_on_error`.
    #[error("`server.on_init` failed")]
    OnInit(#[from] OnInitError),
    #[error(transparent)]
    Unclaimed(#[from] Unclaimed),
    /// What a service says of itself.
    #[error("{name}: {source}")]
    Service {
        name: &'static str,
        source: pronghorn_plugin_api::StartError,
    },
    /// The operator's: what a key says.
    #[error("{place}: {finding}")]
    Key { place: Place, finding: Finding },
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
    /// What a service says of itself, or of a worker of its.
    pub(crate) fn of_service(name: &'static str, error: pronghorn_plugin_api::StartError) -> Self {
        match error.downcast() {
            Ok(launch) => Self::Boot(*launch),
            Err(source) => Self::Service { name, source },
        }
    }

    /// The same with the place in the configuration, where one key is the reason.
    pub(crate) fn placed(self, loaded: &Loaded) -> Self {
        match self {
            Self::Service { name, source } => match source.downcast::<Finding>() {
                Ok(finding) => {
                    let path: Vec<&str> = finding.key.split('.').collect();
                    let place = loaded.place(&path).clone();
                    let finding = *finding;
                    Self::Key { place, finding }
                }
                Err(source) => Self::Service { name, source },
            },
            other => other,
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

/// The operator's: a unit opens a socket that nothing is configured for.
#[derive(Debug, Error)]
#[error(
    "systemd has opened `{place}` (`{name}`), and nothing in the configuration listens there\n\
     hint: `FileDescriptorName=http` in the socket's unit gives it to `http`, whatever its address \
     is; or write the same address into both"
)]
pub struct Unclaimed {
    pub(crate) place: String,
    pub(crate) name: String,
}
