//! What the processes of a pool are started with, whatever they speak.

use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use pronghorn_process::{Command, Credentials, Limits, Spawner, Stream};

use pronghorn_pool::Home;
use pronghorn_pool::Spool;
use pronghorn_pool::Warmup;
use pronghorn_pool::transport::MethodCaller;

/// What the processes of a pool are started with.
#[derive(Clone, Debug)]
pub struct LaunchSpec {
    pub pool: String,
    pub spawner: Spawner,
    /// As the operator wrote it, for messages.
    pub command: String,
    pub argv: Vec<OsString>,
    pub env: Vec<(OsString, OsString)>,
    /// Kept as it was written and resolved anew for each worker, so that a `current` link may move.
    pub cwd: PathBuf,
    /// Name and rights.
    pub user: Option<(String, Credentials)>,
    pub boot_timeout: Duration,
    /// Part of the boot.
    pub warmup: Warmup,
    pub stream_timeout: Duration,
    pub spool: Arc<Spool>,
    /// The threads that serve requests: the connection of each worker lives on one of them.
    pub homes: Vec<Home>,
    /// Who answers the methods that workers call beside RPC.
    pub methods: Option<Arc<dyn MethodCaller>>,
    /// The directory that keeps PHP's answers about itself from one start to the next.
    pub answers: Option<PathBuf>,
    /// Storages that the processes map, with their names. At most 16.
    pub storages: Vec<Storage>,
}

/// Shared memory with its name.
pub type Storage = (String, Arc<OwnedFd>);

impl LaunchSpec {
    /// The number of the user that the processes run as.
    pub(crate) fn uid(&self) -> u32 {
        let own = || rustix::process::geteuid().as_raw();
        let user = self.user.as_ref();
        user.map_or_else(own, |(_, credentials)| credentials.uid())
    }

    /// The user that the processes run as, if that is not the server's own.
    pub(crate) fn other_user(&self) -> Option<&Credentials> {
        self.user.as_ref().map(|(_, credentials)| credentials)
    }

    /// A process of this command line, with its output in pipes.
    pub(crate) fn process(
        &self,
        argv: &[OsString],
        stdin: Stream,
        env: Vec<(OsString, OsString)>,
        passed: Vec<OwnedFd>,
    ) -> Command {
        let (program, args) = argv
            .split_first()
            .map_or_else(Default::default, |(program, args)| {
                (program.clone(), args.to_vec())
            });
        Command {
            program,
            args,
            env,
            cwd: self.cwd.clone(),
            credentials: self.other_user().cloned(),
            stdin,
            stdout: Stream::Pipe,
            stderr: Stream::Pipe,
            passed,
            mark: None,
            overtakes: false,
            limits: Limits::default(),
        }
    }
}
