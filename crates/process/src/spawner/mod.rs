//! The thread that starts children, and what happens between fork and exec.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread;

use rustix::process::Pid;
use thiserror::Error;
use tokio::sync::oneshot;

use crate::process::Process;
use crate::{Credentials, reap};

/// The descriptor on which a child finds its private socket, if it gets one.
const SOCKET_FD: i32 = 3;
/// Spawns that may wait for the thread. Each takes about a millisecond; a pool boots a few workers at a time.
const WAITING_SPAWNS: usize = 64;

/// What a child's standard stream is connected to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    Null,
    Pipe,
}

/// What to start, and how. The environment is whole: nothing is inherited.
#[derive(Debug)]
pub struct Command {
    pub program: OsString,
    pub args: Vec<OsString>,
    pub env: Vec<(OsString, OsString)>,
    pub cwd: PathBuf,
    pub credentials: Option<Credentials>,
    pub stdin: Stream,
    pub stdout: Stream,
    pub stderr: Stream,
    /// Becomes descriptor 3 of the child.
    pub socket: Option<OwnedFd>,
}

/// A started child with the server's ends of its pipes.
#[derive(Debug)]
pub struct Child {
    pub process: Process,
    pub stdin: Option<OwnedFd>,
    pub stdout: Option<OwnedFd>,
    pub stderr: Option<OwnedFd>,
}

/// The operator's: the child could not be started at all.
#[derive(Debug, Error)]
pub enum SpawnError {
    #[error("`{program}` was not found")]
    NotFound { program: String },
    #[error("the working folder `{}` was not found", .0.display())]
    NoFolder(PathBuf),
    #[error("cannot start `{program}`")]
    Failed { program: String, source: io::Error },
    /// The server is shutting down.
    #[error("the thread that starts processes has ended")]
    Gone,
}

/// The thread that starts children. Ends with the last clone of its handle; children that still run then get SIGTERM.
#[derive(Debug, Clone)]
pub struct Spawner {
    orders: SyncSender<Order>,
}

struct Order {
    command: Command,
    answer: oneshot::Sender<Result<Started, SpawnError>>,
}

struct Started {
    pid: Pid,
    pidfd: OwnedFd,
    stdin: Option<OwnedFd>,
    stdout: Option<OwnedFd>,
    stderr: Option<OwnedFd>,
}

impl Spawner {
    /// Starts the thread.
    pub fn start() -> io::Result<Self> {
        reserve_socket_fd()?;
        let (orders, inbox) = sync_channel::<Order>(WAITING_SPAWNS);
        thread::Builder::new()
            .name("spawner".into())
            .spawn(move || {
                for Order { command, answer } in inbox {
                    if let Err(Ok(unwanted)) = answer.send(start(command)) {
                        // Whoever asked has given up: the child has no owner and must not live on.
                        _ = rustix::process::kill_process_group(
                            unwanted.pid,
                            rustix::process::Signal::KILL,
                        );
                        reap::forget(unwanted.pid);
                    }
                }
            })?;
        Ok(Self { orders })
    }

    /// Starts a child. Must be called within a tokio runtime with I/O, which then watches the child.
    pub async fn spawn(&self, command: Command) -> Result<Child, SpawnError> {
        let program = command.program.to_string_lossy().into_owned();
        let (answer, started) = oneshot::channel();
        // Full means that many spawns are under way: waiting in line here would block this thread.
        let mut order = Order { command, answer };
        while let Err(refused) = self.orders.try_send(order) {
            match refused {
                std::sync::mpsc::TrySendError::Full(back) => order = back,
                std::sync::mpsc::TrySendError::Disconnected(_) => return Err(SpawnError::Gone),
            }
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        let started = started.await.map_err(|_| SpawnError::Gone)??;
        let process = Process::adopt(started.pid, started.pidfd)
            .map_err(|source| SpawnError::Failed { program, source })?;
        Ok(Child {
            process,
            stdin: started.stdin,
            stdout: started.stdout,
            stderr: started.stderr,
        })
    }
}

/// The standard library reports a failed exec over a descriptor of its own in the child. If that were number 3, placing
/// the socket there would overwrite it; so number 3 is taken here before it can be.
fn reserve_socket_fd() -> io::Result<()> {
    let null = std::fs::File::open("/dev/null")?;
    let kept = rustix::io::fcntl_dupfd_cloexec(&null, SOCKET_FD)?;
    // Any number from 3 up will do: either 3 was free and is now taken, or it was taken before. Kept for good.
    static RESERVED: std::sync::OnceLock<OwnedFd> = std::sync::OnceLock::new();
    RESERVED.get_or_init(|| kept);
    Ok(())
}

fn start(command: Command) -> Result<Started, SpawnError> {
    if !command.cwd.is_dir() {
        return Err(SpawnError::NoFolder(command.cwd));
    }
    let program = command.program.to_string_lossy().into_owned();
    let failed = |source: io::Error| match source.kind() {
        io::ErrorKind::NotFound => SpawnError::NotFound {
            program: program.clone(),
        },
        _ => SpawnError::Failed {
            program: program.clone(),
            source,
        },
    };
    let mut builder = std::process::Command::new(&command.program);
    builder
        .args(&command.args)
        .env_clear()
        .envs(command.env)
        .current_dir(&command.cwd)
        .process_group(0)
        .stdin(stdio(command.stdin))
        .stdout(stdio(command.stdout))
        .stderr(stdio(command.stderr));
    let parent = rustix::process::getpid();
    let (credentials, socket) = (command.credentials, command.socket);
    let in_child = move || {
        prepare_child(
            parent,
            credentials.as_ref(),
            socket.as_ref().map(AsFd::as_fd),
        )
    };
    #[expect(
        unsafe_code,
        reason = "std's only way to run code between fork and exec"
    )]
    // SAFETY: the closure makes system calls and reads memory that was allocated before the fork; it takes no lock and
    // allocates nothing (an error is made from a number).
    unsafe {
        builder.pre_exec(in_child);
    }
    let spawning = reap::spawning();
    let mut child = builder.spawn().map_err(failed)?;
    let pid = Pid::from_child(&child);
    spawning.remember(pid);
    let pidfd = Process::open_pidfd(pid).map_err(|source| {
        // Without a pidfd nobody would learn of its end.
        _ = child.kill();
        _ = child.wait();
        reap::forget(pid);
        SpawnError::Failed {
            program: command.program.to_string_lossy().into_owned(),
            source,
        }
    })?;
    Ok(Started {
        pid,
        pidfd,
        stdin: child.stdin.take().map(OwnedFd::from),
        stdout: child.stdout.take().map(OwnedFd::from),
        stderr: child.stderr.take().map(OwnedFd::from),
    })
}

fn stdio(stream: Stream) -> Stdio {
    match stream {
        Stream::Null => Stdio::null(),
        Stream::Pipe => Stdio::piped(),
    }
}

/// Runs in the child, after fork: only system calls.
fn prepare_child(
    parent: Pid,
    credentials: Option<&Credentials>,
    socket: Option<BorrowedFd<'_>>,
) -> io::Result<()> {
    if let Some(user) = credentials {
        become_user(user)?;
    }
    // After the change of user, which clears it. SIGTERM and not SIGKILL: an application with a handler may finish what
    // it is at; one without is gone at once.
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::TERM))?;
    if rustix::process::getppid() != Some(parent) {
        // The server died in between, so the signal will never come.
        return Err(io::ErrorKind::BrokenPipe.into());
    }
    let first_unknown = match socket {
        Some(socket) => place_socket(socket).map(|()| SOCKET_FD + 1)?,
        None => SOCKET_FD,
    };
    close_on_exec_from(first_unknown);
    Ok(())
}

/// What the server itself inherited, from a shell or a service manager, is not the child's business.
fn close_on_exec_from(first: i32) {
    use nix::libc;
    #[expect(unsafe_code, reason = "no library wraps close_range(2)")]
    // SAFETY: only marks descriptors, none is closed before exec. Kernels before 5.11 don't know the flag and do nothing,
    // which leaves things as they were.
    unsafe {
        libc::syscall(
            libc::SYS_close_range,
            first,
            i32::MAX,
            libc::CLOSE_RANGE_CLOEXEC,
        );
    }
}

fn become_user(user: &Credentials) -> io::Result<()> {
    use rustix::thread::{set_thread_gid, set_thread_groups, set_thread_uid};
    // The raw system calls act on the calling thread, and after fork there is only that one. Groups first: afterwards
    // the right to set them is gone.
    for_each_group(&user.groups, |groups| Ok(set_thread_groups(groups)?))?;
    set_thread_gid(rustix::fs::Gid::from_raw(user.gid))?;
    set_thread_uid(rustix::fs::Uid::from_raw(user.uid))?;
    Ok(())
}

/// Hands the groups over as the system call wants them, without allocating. Linux allows 65,536; past 64 nobody goes.
fn for_each_group(
    groups: &[u32],
    set: impl FnOnce(&[rustix::fs::Gid]) -> io::Result<()>,
) -> io::Result<()> {
    const MOST: usize = 256;
    let mut list = [rustix::fs::Gid::ROOT; MOST];
    let count = groups.len().min(MOST);
    for (place, group) in list.iter_mut().zip(groups) {
        *place = rustix::fs::Gid::from_raw(*group);
    }
    set(list.get(..count).unwrap_or_default())
}

fn place_socket(socket: BorrowedFd<'_>) -> io::Result<()> {
    if socket.as_raw_fd() == SOCKET_FD {
        rustix::io::fcntl_setfd(socket, rustix::io::FdFlags::empty())?;
        return Ok(());
    }
    #[expect(unsafe_code, reason = "naming descriptor 3 by its number")]
    // SAFETY: in the child nobody else owns descriptor 3: the parent keeps it reserved, and this is between fork and
    // exec. `mem::forget` below keeps it open.
    let mut place = unsafe { OwnedFd::from_raw_fd(SOCKET_FD) };
    let placed = rustix::io::dup2(socket, &mut place);
    #[expect(
        clippy::mem_forget,
        reason = "the program that is about to start owns it"
    )]
    std::mem::forget(place);
    Ok(placed?)
}

#[cfg(test)]
mod tests;
