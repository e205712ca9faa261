//! The thread that starts children, and what happens between fork and exec.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread;

use rustix::process::Pid;
use thiserror::Error;
use tokio::sync::oneshot;

use crate::process::Process;
use crate::{Credentials, Mark, Sweeper, oom, open_files, overtaking, reap};

mod light;
mod too_long;

use light::Image;
pub use too_long::TooLong;

/// The first descriptor behind the standard streams: what a child is handed beside them starts
/// here.
const FIRST_FD: i32 = 3;
/// So many can be handed over; the server keeps these numbers for itself.
const MOST_PASSED: i32 = 5 + 16 + 1;
/// Numbers from here on are nobody's place.
pub(crate) const FIRST_OWN: i32 = FIRST_FD + MOST_PASSED;
/// Spawns that may wait for the thread. Each takes about a millisecond; a pool boots a few workers
/// at a time.
const WAITING_SPAWNS: usize = 64;

/// What a child's standard stream is connected to.
#[derive(Debug)]
pub enum Stream {
    Null,
    Pipe,
    /// Something that is open already.
    File(OwnedFd),
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
    /// Become descriptors 3, 4 and so on of the child, in order, at most 22.
    pub passed: Vec<OwnedFd>,
    /// By which it and all that it starts can be found.
    pub mark: Option<Mark>,
    /// Its priority is raised from the start, and not that of what it starts: whoever asks for that
    /// [takes it over](Process::overtake). Only where it [may](crate::may_overtake).
    pub overtakes: bool,
    pub limits: Limits,
}

/// Limits of a child, and of all that it starts. None: as this process has it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Limits {
    /// From -20, the first to be served, to 19.
    pub nice: Option<i32>,
    /// Files and connections that a process may have open.
    pub open_files: Option<u64>,
    /// Permissions that new files do not get.
    pub umask: Option<u32>,
    /// It is killed if the server is. Others are asked to end, which they may ignore.
    pub dies_with_server: bool,
}

impl Limits {
    /// Between fork and exec, as the server's user, who may more: only system calls.
    fn put_on(self) -> io::Result<()> {
        use rustix::process::{Resource, Rlimit, setpriority_process, setrlimit};
        if let Some(nice) = self.nice {
            setpriority_process(None, nice)?;
        }
        if let Some(files) = self.open_files {
            let limit = Rlimit {
                current: Some(files),
                maximum: Some(files),
            };
            setrlimit(Resource::Nofile, limit)?;
        }
        if let Some(umask) = self.umask {
            rustix::process::umask(rustix::fs::Mode::from_raw_mode(umask));
        }
        Ok(())
    }
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

/// The thread that starts children. Ends with the last clone of its handle; children that still run
/// then get SIGTERM.
#[derive(Debug, Clone)]
pub struct Spawner {
    orders: SyncSender<Order>,
    sweeper: Sweeper,
}

struct Order {
    command: Command,
    answer: oneshot::Sender<Result<Started, SpawnError>>,
}

struct Started {
    pid: Pid,
    end: OwnedFd,
    stdin: Option<OwnedFd>,
    stdout: Option<OwnedFd>,
    stderr: Option<OwnedFd>,
}

impl Spawner {
    /// Starts the thread.
    pub fn start() -> io::Result<Self> {
        reserve_passed()?;
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
        Ok(Self {
            orders,
            sweeper: Sweeper::default(),
        })
    }

    /// Ends what marked children have left.
    pub const fn sweeper(&self) -> &Sweeper {
        &self.sweeper
    }

    /// Starts a child. Must be called within a tokio runtime with I/O, which then watches the
    /// child.
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
        let process = Process::adopt(started.pid, started.end)
            .map_err(|source| SpawnError::Failed { program, source })?;
        Ok(Child {
            process,
            stdin: started.stdin,
            stdout: started.stdout,
            stderr: started.stderr,
        })
    }
}

/// The standard library reports a failed exec over a descriptor of its own in the child. If that
/// had a number at which a passed one is placed, it would be overwritten; so these numbers are
/// taken here before they can be, at the start of the process: what has such a number by then, and
/// is closed later, leaves it to whoever opens something next.
pub(crate) fn reserve_passed() -> io::Result<()> {
    static RESERVED: std::sync::OnceLock<Vec<OwnedFd>> = std::sync::OnceLock::new();
    if RESERVED.get().is_some() {
        return Ok(());
    }
    let null = std::fs::File::open("/dev/null")?;
    let mut kept = Vec::new();
    for number in FIRST_FD..FIRST_FD + MOST_PASSED {
        // Either the number was free and is now taken, or it was taken before and this is some
        // other one: both will do.
        kept.push(rustix::io::fcntl_dupfd_cloexec(&null, number)?);
    }
    // Kept for good; a second thread that was as quick gives its own back.
    _ = RESERVED.set(kept);
    Ok(())
}

fn start(command: Command) -> Result<Started, SpawnError> {
    if !command.cwd.is_dir() {
        return Err(SpawnError::NoFolder(command.cwd));
    }
    let program = command.program.to_string_lossy().into_owned();
    let is_path = command.program.as_encoded_bytes().contains(&b'/');
    let has_limits = command.limits != Limits::default();
    let is_plain = command.credentials.is_none() && command.mark.is_none() && !command.overtakes;
    let is_plain = is_plain && !has_limits;
    let light = is_path && is_plain && command.passed.is_empty();
    let failed = |source: io::Error| match source.kind() {
        io::ErrorKind::NotFound => SpawnError::NotFound {
            program: program.clone(),
        },
        _ => SpawnError::Failed {
            program: program.clone(),
            source,
        },
    };
    if light {
        return start_light(command).map_err(failed);
    }
    let mut builder = std::process::Command::new(&command.program);
    builder
        .args(&command.args)
        .env_clear()
        .envs(command.env.iter().map(|(name, value)| (name, value)))
        .current_dir(&command.cwd)
        .process_group(0)
        .stdin(stdio(command.stdin))
        .stdout(stdio(command.stdout))
        .stderr(stdio(command.stderr));
    let parent = rustix::process::getpid();
    let (credentials, passed, mark) = (command.credentials, command.passed, command.mark);
    let (overtakes, limits) = (command.overtakes, command.limits);
    let oom_score = oom::of_children();
    let in_child = move || {
        if let Some(score) = oom_score {
            oom::prefer_this(score);
        }
        if overtakes {
            // Before the change of user, who may not.
            overtaking::begin_own();
        }
        if let Some(mark) = mark {
            // Without it, what is in its process group can be killed.
            _ = mark.put_on();
        }
        prepare_child(parent, credentials.as_ref(), &passed, limits)
    };
    #[expect(
        unsafe_code,
        reason = "std's only way to run code between fork and exec"
    )]
    // SAFETY: the closure makes system calls and reads memory that was allocated before the fork;
    // it takes no lock and allocates nothing (an error is made from a number).
    unsafe {
        builder.pre_exec(in_child);
    }
    let spawning = reap::spawning();
    let explain = |error| TooLong::explain(error, &command.args, &command.env);
    let mut child = builder.spawn().map_err(|error| failed(explain(error)))?;
    let pid = Pid::from_child(&child);
    spawning.remember(pid);
    let end = Process::watch(pid).map_err(|source| {
        // Nobody would learn of its end.
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
        end,
        stdin: child.stdin.take().map(OwnedFd::from),
        stdout: child.stdout.take().map(OwnedFd::from),
        stderr: child.stderr.take().map(OwnedFd::from),
    })
}

/// Without a change of user, which must not happen in the memory of this process, and without
/// descriptors beside the standard streams.
fn start_light(command: Command) -> io::Result<Started> {
    let (stdin, our_stdin) = end_of(command.stdin, true)?;
    let (stdout, our_stdout) = end_of(command.stdout, false)?;
    let (stderr, our_stderr) = end_of(command.stderr, false)?;
    let streams = [stdin, stdout, stderr];
    let Command {
        program,
        args,
        env,
        cwd,
        ..
    } = command;
    let image = Image::new(&program, &args, &env, cwd.into_os_string(), streams)?;
    let spawning = reap::spawning();
    let started = image.start();
    let (pid, end) = started.map_err(|error| TooLong::explain(error, &args, &env))?;
    spawning.remember(pid);
    Ok(Started {
        pid,
        end,
        stdin: our_stdin,
        stdout: our_stdout,
        stderr: our_stderr,
    })
}

/// The child's end of a standard stream, and ours if it has two.
fn end_of(stream: Stream, is_read: bool) -> io::Result<(OwnedFd, Option<OwnedFd>)> {
    Ok(match stream {
        Stream::Null => {
            let null = std::fs::File::options()
                .read(is_read)
                .write(!is_read)
                .open("/dev/null")?;
            (null.into(), None)
        }
        Stream::Pipe => {
            let (reader, writer) = io::pipe()?;
            let (reader, writer) = (OwnedFd::from(reader), OwnedFd::from(writer));
            if is_read {
                (reader, Some(writer))
            } else {
                (writer, Some(reader))
            }
        }
        Stream::File(file) => (file, None),
    })
}

fn stdio(stream: Stream) -> Stdio {
    match stream {
        Stream::Null => Stdio::null(),
        Stream::Pipe => Stdio::piped(),
        Stream::File(file) => file.into(),
    }
}

/// Runs in the child, after fork: only system calls.
fn prepare_child(
    parent: Pid,
    credentials: Option<&Credentials>,
    passed: &[OwnedFd],
    limits: Limits,
) -> io::Result<()> {
    open_files::restore();
    limits.put_on()?;
    if let Some(user) = credentials {
        become_user(user)?;
    }
    // After the change of user, which clears it. SIGTERM and not SIGKILL: an application with a
    // handler may finish what it is at; one without is gone at once.
    let signal = if limits.dies_with_server {
        rustix::process::Signal::KILL
    } else {
        rustix::process::Signal::TERM
    };
    rustix::process::set_parent_process_death_signal(Some(signal))?;
    if rustix::process::getppid() != Some(parent) {
        // The server died in between, so the signal will never come.
        return Err(io::ErrorKind::BrokenPipe.into());
    }
    let mut place = FIRST_FD;
    for descriptor in passed {
        put_at(place, descriptor)?;
        place += 1;
    }
    close_on_exec_from(place);
    Ok(())
}

/// What the server itself inherited, from a shell or a service manager, is not the child's
/// business.
pub(crate) fn close_on_exec_from(first: i32) {
    use nix::libc;
    #[expect(unsafe_code, reason = "no library wraps close_range(2)")]
    // SAFETY: only marks descriptors, none is closed before exec. Kernels before 5.11 don't know
    // the flag and do nothing, which leaves things as they were.
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
    // The raw system calls act on the calling thread, and after fork there is only that one. Groups
    // first: afterwards the right to set them is gone.
    for_each_group(&user.groups, |groups| Ok(set_thread_groups(groups)?))?;
    set_thread_gid(rustix::fs::Gid::from_raw(user.gid))?;
    set_thread_uid(rustix::fs::Uid::from_raw(user.uid))?;
    Ok(())
}

/// Hands the groups over as the system call wants them, without allocating. Linux allows 65,536;
/// past 64 nobody goes.
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

pub(crate) fn put_at(number: i32, descriptor: &OwnedFd) -> io::Result<()> {
    #[expect(unsafe_code, reason = "naming a descriptor by its number")]
    // SAFETY: in the child nobody else owns this number: the parent keeps it reserved, and this is
    // between fork and exec. `mem::forget` below keeps it open.
    let mut place = unsafe { OwnedFd::from_raw_fd(number) };
    if descriptor.as_raw_fd() == number {
        // There already, and closed on exec: dup2 would leave it so.
        let kept = rustix::io::fcntl_setfd(descriptor, rustix::io::FdFlags::empty());
        _ = place.into_raw_fd(); // the program that is about to start owns it
        return Ok(kept?);
    }
    let placed = rustix::io::dup2(descriptor, &mut place);
    #[expect(
        clippy::mem_forget,
        reason = "the program that is about to start owns it"
    )]
    std::mem::forget(place);
    Ok(placed?)
}

#[cfg(test)]
mod tests;
