//! A php-fpm of one generation: its master is our child, its workers are that one's.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use pronghorn_cgi::fastcgi::{is_answer, question};
use pronghorn_process::{Command, Exit, Limits, Stream};
use rustix::fs::{AtFlags, MemfdFlags, Mode, OFlags, SealFlags};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

use super::FastCgiLauncher;
use crate::error::{BootCause, BootError};
use crate::output::Output;
use crate::worker::RunningWorker;
use pronghorn_pool::SpoolPlace;
use pronghorn_pool::transport::Watched;

/// Between two looks at whether its socket is there.
const LOOK: Duration = Duration::from_millis(10);
const SOCKET: &str = "socket";

/// What php-fpm is told beside its command.
#[derive(Debug, Clone)]
pub struct Fpm {
    /// Connections that are served at a time: one for each slot.
    pub workers: usize,
    /// After so many requests one of its workers is replaced.
    pub max_requests: Option<u64>,
    /// It ends a request itself after so long: later than the client is told.
    pub terminate_after: Option<Duration>,
    /// What calls under way get from it when somebody tells php-fpm itself to reload or to end.
    pub drain: Duration,
}

/// A running master. Dropped, it is killed with its workers: by then none of them has a call.
#[derive(Debug)]
pub(super) struct Master {
    pub(super) pid: u32,
    pub(super) socket: PathBuf,
    pub(super) output: Output,
    exit: watch::Receiver<Option<Exit>>,
    /// Owns the process.
    _waiting: JoinSet<()>,
    _folder: Folder,
}

/// Where one php-fpm makes its socket. It is known by its descriptor, to this process and to
/// php-fpm: its name lies where others may put something else. Goes with its owner.
#[derive(Debug)]
struct Folder {
    place: SpoolPlace,
    folder: OwnedFd,
}

impl Folder {
    /// In the folder for spool files, whose leftovers the next server removes. Whoever runs php-fpm
    /// may write there, and nobody else.
    fn make(of: &FastCgiLauncher) -> io::Result<Self> {
        let place = of.spec.spool.place("fpm")?;
        let (above, name) = (&place.directory, &place.name);
        rustix::fs::mkdirat(above, name, Mode::RWXU)?;
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let folder = rustix::fs::openat(above, name, flags, Mode::empty())?;
        if rustix::fs::fstat(&folder)?.st_uid != rustix::process::geteuid().as_raw() {
            return Err(io::Error::other(format!(
                "`{}` is somebody else's by now",
                place.path.display()
            )));
        }
        if let Some((_, user)) = &of.spec.user {
            std::os::unix::fs::fchown(&folder, Some(user.uid()), Some(user.gid()))?;
        }
        Ok(Self { place, folder })
    }

    /// Where this process connects, whatever becomes of the folder's name.
    fn socket(&self) -> PathBuf {
        format!("/proc/self/fd/{}/{SOCKET}", self.folder.as_raw_fd()).into()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What can't be removed is in a folder for temporary files.
        _ = rustix::fs::unlinkat(&self.folder, SOCKET, AtFlags::empty());
        let (above, name) = (&self.place.directory, &self.place.name);
        _ = rustix::fs::unlinkat(above, name, AtFlags::REMOVEDIR);
    }
}

/// A file that nobody can change or take away. php-fpm reads it again when it is told to reload.
fn sealed(text: &str) -> io::Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let mut file = File::from(rustix::fs::memfd_create("pronghorn-fpm", flags)?);
    file.write_all(text.as_bytes())?;
    let seals = SealFlags::WRITE | SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL;
    rustix::fs::fcntl_add_seals(&file, seals)?;
    Ok(file.into())
}

impl Master {
    /// Whether it has ended.
    pub(super) fn has_ended(&self) -> bool {
        self.exit.borrow().is_some()
    }

    pub(super) async fn ended(&self) -> Exit {
        let mut exit = self.exit.clone();
        let exit = exit
            .wait_for(Option::is_some)
            .await
            .ok()
            .and_then(|exit| *exit);
        exit.unwrap_or(Exit::Code(-1))
    }

    /// Starts one and waits until it takes requests.
    pub(super) async fn start(of: &FastCgiLauncher, fpm: &Fpm) -> Result<Arc<Self>, BootError> {
        let system = |error| of.spec.failed(BootCause::System(error), None);
        let folder = Folder::make(of).map_err(system)?;
        let socket = folder.socket();
        let passed = [sealed(&configuration(of, fpm)), folder.folder.try_clone()];
        let passed: io::Result<Vec<_>> = passed.into_iter().collect();
        let command = command_line(of, passed.map_err(system)?);
        let child = of.spec.spawner.spawn(command).await;
        let child = child.map_err(|error| of.spec.failed(BootCause::Spawn(error), None))?;
        let pid = child.process.pid();
        let mut worker = RunningWorker::new(&of.spec.pool, child.process);
        let up = bring_up(of, &mut worker, &socket, [child.stdout, child.stderr]).await;
        if let Err(cause) = up {
            if worker.exit.is_none() {
                worker.process.kill_group();
            }
            worker.readers.finish().await;
            return Err(of.spec.failed(cause, Some(&worker.output)));
        }
        let output = worker.output.clone();
        output.up();
        let (ended, exit) = watch::channel(None);
        let mut waiting = JoinSet::new();
        waiting.spawn(async move {
            // Its workers know nothing of its death, and would wait for connections for ever.
            _ = worker.process.wait_with_group().await; // what goes wrong is told below
            let exit = worker.wait().await;
            ended.send_replace(Some(exit));
        });
        Ok(Arc::new(Self {
            pid,
            socket,
            output,
            exit,
            _waiting: waiting,
            _folder: folder,
        }))
    }
}

/// Its own descriptors are those of [`command_line`].
fn configuration(of: &FastCgiLauncher, fpm: &Fpm) -> String {
    let seconds = |time: Duration| time.as_secs().max(1);
    let terminate = fpm.terminate_after.map_or(0, seconds);
    let user = if runs_as_root(of) {
        "user = root\ngroup = root\n"
    } else {
        ""
    };
    format!(
        "[global]\ndaemonize = no\nerror_log = /dev/null\nprocess_control_timeout = {drain}\n\
         [{pool}]\n{user}listen = /proc/self/fd/4/{SOCKET}\nlisten.mode = 0600\n\
         pm = static\npm.max_children = {children}\npm.max_requests = {requests}\n\
         request_terminate_timeout = {terminate}\nclear_env = no\n\
         catch_workers_output = yes\ndecorate_workers_output = no\n",
        pool = of.spec.pool,
        drain = seconds(fpm.drain),
        children = fpm.workers,
        requests = fpm.max_requests.unwrap_or(0),
    )
}

/// php-fpm has to be told that this is meant.
fn runs_as_root(of: &FastCgiLauncher) -> bool {
    match &of.spec.user {
        Some((_, user)) => user.uid() == 0,
        None => rustix::process::geteuid().is_root(),
    }
}

/// `passed` are its configuration and the folder of its socket, 3 and 4.
fn command_line(of: &FastCgiLauncher, passed: Vec<OwnedFd>) -> Command {
    let (program, own) = of
        .spec
        .argv
        .split_first()
        .map_or_else(Default::default, |(program, own)| {
            (program.clone(), own.to_vec())
        });
    let mut args = own;
    // To stderr, although that is no terminal.
    args.extend(["-F", "-O", "-y", "/proc/self/fd/3"].map(Into::into));
    if runs_as_root(of) {
        args.push("-R".into());
    }
    Command {
        program,
        args,
        env: of.spec.env.clone(),
        cwd: of.spec.cwd.clone(),
        credentials: of
            .spec
            .user
            .as_ref()
            .map(|(_, credentials)| credentials.clone()),
        stdin: Stream::Null,
        stdout: Stream::Pipe,
        stderr: Stream::Pipe,
        passed,
        mark: None,
        overtakes: false,
        limits: Limits::default(),
    }
}

async fn bring_up(
    of: &FastCgiLauncher,
    worker: &mut RunningWorker,
    socket: &Path,
    output: [Option<OwnedFd>; 2],
) -> Result<(), BootCause> {
    let until = Instant::now() + of.spec.boot_timeout;
    for pipe in output.into_iter().flatten() {
        let read = worker.readers.read(pipe, worker.output.clone());
        read.map_err(BootCause::System)?;
    }
    tokio::select! {
        biased;
        answer = answer(socket) => {
            if answer.is_some_and(|answer| !is_answer(&answer)) {
                return Err(BootCause::Protocol("what it answers is no FastCGI".to_owned()));
            }
            Ok(())
        }
        exit = worker.end() => Err(BootCause::Exited(exit)),
        () = sleep_until(until) => Err(BootCause::TimedOut {
            after: of.spec.boot_timeout,
            strangers: Vec::new(),
        }),
    }
}

/// Asks the question as soon as somebody listens. `None` when there is an end of the connection in
/// place of an answer.
async fn answer(socket: &Path) -> Option<[u8; 2]> {
    let mut connection = loop {
        match UnixStream::connect(socket).await {
            Ok(connection) => break connection,
            Err(_) => sleep(LOOK).await, // bounded by whoever waits for this
        }
    };
    connection.write_all(&question()).await.ok()?;
    let mut answer = [0; 2];
    connection.read_exact(&mut answer).await.ok()?;
    Some(answer)
}
