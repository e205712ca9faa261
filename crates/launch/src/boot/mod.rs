//! From a command to a worker that is up: process, handshake, transcript.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::future::pending;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use pronghorn_base::BoxFuture;
use pronghorn_pool::transport::{
    Channel, Connect, Connection, Detached, Dialect, Inbox, LaunchError, Launched, Launcher, Pace,
    RelaySettings, warm_up,
};
use pronghorn_pool::{Fence, Home, Quote, SlotId, Via};
use pronghorn_process::{Command, Exit, Overtaking, Stream, may_overtake};
use pronghorn_wire::{Codec, Kind};
use tokio::net::unix::pipe;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::error::{BootCause, BootError};
use crate::php::{Php, classic_worker};
use crate::spec::LaunchSpec;
use crate::warm::until_warm;
use crate::worker::{RunningWorker, wait_for_exit};

mod handshake;
mod listener;
mod zygote;

pub use listener::{RelayAddress, RelayListener};
pub use zygote::{Booted, Spawn, Zygotes};

use handshake::{Announcement, Refusal};

/// Starts workers by a command.
#[derive(Debug)]
pub struct CommandLauncher {
    pub spec: LaunchSpec,
    /// What its calls are.
    pub kind: Kind,
    /// Where foreign workers connect, when not over their pipes.
    pub listener: Option<Arc<RelayListener>>,
    /// How calls to foreign workers are written.
    pub foreign_codec: Codec,
    pub fence: Fence,
    pub transport: TransportChoice,
    /// What its PHP is given besides.
    pub php: Php,
    /// Whether it was said already that shared memory is not used.
    pub told: AtomicBool,
    pub spawn: Spawn,
    /// How output is told that is in no reply and may be one.
    pub quote: Quote,
}

/// How workers are connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransportChoice {
    /// As the worker announces itself.
    Auto,
    /// Goridge frames.
    Relay,
    /// Shared memory.
    Ring,
}

impl Launcher for CommandLauncher {
    fn launch(&self, slot: SlotId, pace: Pace) -> BoxFuture<'_, Result<Launched, LaunchError>> {
        Box::pin(async move { Ok(self.launch_worker(slot, pace).await?) })
    }

    fn begin_generation(&self) {
        if let Spawn::Fork(zygotes) = &self.spawn {
            zygotes.begin_generation();
        }
    }

    fn finish(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            if let Spawn::Fork(zygotes) = &self.spawn {
                zygotes.finish().await;
            }
        })
    }

    fn died(&self, exit: Exit) -> bool {
        matches!(&self.spawn, Spawn::Fork(zygotes) if zygotes.died(exit))
    }

    fn left_a_lock(&self, exit: Exit) -> BoxFuture<'_, bool> {
        Box::pin(async move {
            match &self.spawn {
                Spawn::Fork(zygotes) => zygotes.left_a_lock(exit).await,
                Spawn::Exec => false,
            }
        })
    }

    fn own_memory(&self, pid: u32, at_least: u64) -> Option<u64> {
        match &self.spawn {
            Spawn::Fork(zygotes) if zygotes.fork() => {
                pronghorn_process::own_memory_of_forked(pid, at_least)
            }
            Spawn::Fork(_) | Spawn::Exec => pronghorn_process::own_memory(pid, at_least),
        }
    }
}

/// How much a worker can write before the server reads: a reply of 64 KB with its head goes out
/// without waiting.
const PIPE_SIZE: usize = 256 << 10;

/// The number of the first descriptor that a process is handed beside its standard streams.
const FIRST_PASSED: usize = 3;
/// Descriptors that every worker is handed.
const PIPES: usize = 2;

/// Two pipes for the native codec: the server's ends, then the worker's, to read from and to write
/// to.
///
/// Pipes and not a socket: a call costs 4 to 7 µs of CPU over them and 6 to 11 over a socket pair,
/// whose reader wakes the writer for nothing (`docs/decisions/0002-pipes.md`).
fn private_pipes() -> io::Result<((OwnedFd, OwnedFd), Vec<OwnedFd>)> {
    use rustix::pipe::{PipeFlags, fcntl_setpipe_size, pipe_with};
    let (their_read, our_write) = pipe_with(PipeFlags::CLOEXEC)?;
    let (our_read, their_write) = pipe_with(PipeFlags::CLOEXEC)?;
    // Refused when a user has many pipes; then long replies take more turns.
    _ = fcntl_setpipe_size(&our_read, PIPE_SIZE);
    // The worker's ends stay blocking: `O_NONBLOCK` belongs to an end, not to the pipe.
    for ours in [&our_read, &our_write] {
        rustix::io::ioctl_fionbio(ours, true)?;
    }
    Ok(((our_read, our_write), vec![their_read, their_write]))
}

impl CommandLauncher {
    /// Looks whether workers can be given what the pool needs. Asks PHP the first time.
    ///
    /// # Errors
    ///
    /// When they can't. The operator's to mend.
    pub async fn prepare(&self) -> Result<(), LaunchError> {
        let wrong = self.php.wrong(&self.spec).await;
        wrong.map_or(Ok(()), |error| Err(self.spec.without(error).into()))
    }

    async fn launch_worker(&self, slot: SlotId, pace: Pace) -> Result<Launched, BootError> {
        let overtakes = pace == Pace::Overtaking && may_overtake(self.spec.other_user());
        let home = self.spec.homes[slot % self.spec.homes.len()].clone();
        let system = |error| self.spec.failed(BootCause::System(error), None);
        let offer = self.offer(&home).map_err(system)?;
        // People count from 1.
        let number = slot.saturating_add(1);
        let begun = match &self.spawn {
            // Scripts have no other way than shared memory: without, the worker says so itself.
            Spawn::Fork(zygotes) if zygotes.fork() && offer.memory.is_some() => {
                zygotes.begin(self, &home, number, offer, overtakes).await?
            }
            Spawn::Fork(_) | Spawn::Exec => {
                let started = self.start(number, offer, Vec::new(), overtakes).await?;
                started.into()
            }
        };
        let NewWorker {
            mut worker,
            way,
            is_warm,
        } = begun;
        let overtaking = worker.overtaking.take();
        let up = self.bring_up(&mut worker, way, &home, is_warm);
        match overtaken(overtaking, up).await {
            Ok((via, connect)) => {
                worker.output.up();
                Ok(Launched {
                    process: Box::new(worker),
                    via,
                    connect,
                })
            }
            Err(cause) => Err(self.given_up(worker, cause).await),
        }
    }

    /// Pipes and memory for a worker of this home.
    fn offer(&self, home: &Home) -> io::Result<Offer> {
        let (private, mut passed) = private_pipes()?;
        let memory = self.offer_ring(home).map(|(memory, offer)| {
            passed.extend(offer);
            memory
        });
        Ok(Offer {
            private,
            memory,
            passed,
        })
    }

    /// A start of the pool's command, with these variables besides.
    async fn start(
        &self,
        number: SlotId,
        offer: Offer,
        variables: Vec<(OsString, OsString)>,
        overtakes: bool,
    ) -> Result<(RunningWorker, Offered), BootError> {
        let mut command = self.command_line(offer.passed).await?;
        if self.php.runs_scripts() {
            command.env.push(classic_worker(number));
        }
        command.env.extend(variables);
        command.overtakes = overtakes;
        let spawned = self.spec.spawner.spawn(command).await;
        let child = spawned.map_err(|error| self.spec.failed(BootCause::Spawn(error), None))?;
        let offered = Offered {
            private: offer.private,
            memory: offer.memory,
            standard: StandardStreams {
                stdin: child.stdin,
                stdout: child.stdout,
                stderr: child.stderr,
            },
        };
        let mut worker = RunningWorker::new(&self.spec.pool, child.process);
        worker.overtaking = overtakes.then(|| worker.process.overtake());
        Ok((worker, offered))
    }

    /// Ends a worker that has not come up.
    async fn given_up(&self, mut worker: RunningWorker, cause: BootCause) -> BootError {
        if worker.exit.is_none() {
            worker.process.kill_group();
        }
        worker.readers.finish().await;
        let relay = self.listener.as_ref();
        BootError {
            relay: relay.map(|listener| listener.address().to_string()),
            kind: Some(self.kind),
            ..self.spec.failed(cause, Some(&worker.output))
        }
    }

    async fn bring_up(
        &self,
        worker: &mut RunningWorker,
        way: WorkerLink,
        home: &Home,
        is_warm: bool,
    ) -> Result<(Via, Connect), BootCause> {
        let until = Instant::now() + self.spec.boot_timeout;
        let connection = match way {
            WorkerLink::Offered(offered) => {
                let mut ways = offered.open(worker).map_err(BootCause::System)?;
                let answer = self.first_answer(worker, &mut ways).await;
                self.connect(worker, ways, answer).await?
            }
            WorkerLink::Connected(connection) => *connection,
        };
        let via = match connection.channel {
            Detached::Ring { .. } => Via::Ring,
            Detached::Unix(_) | Detached::Tcp(_) | Detached::Pipes { .. } => Via::Relay,
        };
        worker.deadline_signal = connection.deadline_signal;
        let settings = RelaySettings {
            codec: connection.codec,
            interruptible: connection.deadline_signal.is_some(),
            stream_timeout: self.spec.stream_timeout,
            spool: self.spec.spool.clone(),
            quote: self.quote,
            methods: self.spec.methods.clone(),
            last_words: worker.output.last_words(),
        };
        let home = home.runtime.clone();
        let calls = self.spec.warmup.calls().await;
        let Some(calls) = calls.filter(|_| !is_warm) else {
            return Ok((via, connection.connect(home, settings)));
        };
        // Ended by being dropped.
        let mut warming = JoinSet::new();
        let inbox = Arc::new(Inbox::default());
        let warm_up = warm_up(
            connection,
            settings,
            calls,
            self.spec.pool.clone(),
            home.clone(),
            inbox.clone(),
        );
        warming.spawn_on(warm_up, &home);
        let end = worker.end();
        let relay = until_warm(warming, &inbox, end, until, self.spec.boot_timeout).await?;
        Ok((via, relay.connect(home)))
    }

    /// Memory for a worker, and what it needs to find it. None where it is not wanted, or can't be
    /// had.
    fn offer_ring(&self, home: &Home) -> Option<(Arc<pronghorn_ring::SharedMemory>, Vec<OwnedFd>)> {
        if self.transport == TransportChoice::Relay {
            return None;
        }
        let make = |thread: &pronghorn_ring::Thread| -> io::Result<_> {
            let memory = Arc::new(pronghorn_ring::SharedMemory::new()?);
            let passed = [memory.memory(), thread.page(), thread.bell()];
            let passed: io::Result<Vec<_>> =
                passed.iter().map(BorrowedFd::try_clone_to_owned).collect();
            Ok((memory, passed?))
        };
        home.ring
            .as_ref()
            .map_err(Clone::clone)
            .and_then(|thread| make(thread).map_err(|error| error.to_string().into()))
            .inspect_err(|error| self.no_ring(&format!("there is no shared memory: {error}")))
            .ok()
    }

    /// Takes back what was offered and says once why.
    fn without_ring(&self, memory: Option<&pronghorn_ring::SharedMemory>, answer: &Announcement) {
        if let Some(memory) = memory {
            memory.give_back();
        }
        match &answer.ring {
            Some(Err(why)) => self.no_ring(why),
            None if self.transport == TransportChoice::Ring => {
                self.no_ring(
                    "the worker's PHP has no extension `pronghorn`, or its package is old",
                );
            }
            _ => {}
        }
    }

    /// A worker that says that it has other settings than the pool's. One that says nothing of them
    /// is an old package, or one of others: its PHP has taken the options that it was started with.
    async fn lacks_settings(&self, answer: &Announcement) -> Option<String> {
        let said = answer.settings.as_deref()?;
        let expected = self.php.found(&self.spec).await.ok()?.digest()?;
        (said != expected).then(|| {
            "it runs without the pool's settings of PHP (`ini`): its command starts another PHP \
             than the one that was given them"
                .to_owned()
        })
    }

    fn no_ring(&self, why: &str) {
        if !self.told.swap(true, Ordering::Relaxed) {
            tracing::warn!(target: "server", pool = self.spec.pool, "pipes are used instead of the ring: {why}");
        }
    }

    /// # Errors
    ///
    /// When workers can't be given what the pool needs.
    async fn command_line(&self, mut passed: Vec<OwnedFd>) -> Result<Command, BootError> {
        let found = self.php.found(&self.spec).await;
        let found = found.map_err(|error| self.spec.without(error))?;
        let mut env = self.spec.env.clone();
        let besides = &found.variables;
        env.retain(|(known, _)| besides.iter().all(|(name, _)| known != name));
        env.extend(besides.iter().cloned());
        if passed.len() > PIPES {
            env.push(("PRONGHORN_RING".into(), "5,6,7".into()));
        }
        self.pass_storages(&mut passed, &mut env);
        let argv = found.argv(&self.spec.argv, FIRST_PASSED + passed.len());
        let extension = found.extension();
        let extension =
            extension.map_err(|error| self.spec.failed(BootCause::System(error), None))?;
        passed.extend(extension);
        // A foreign worker finds its relay on the pipes unless it is sent to a socket.
        let stdin = if self.listener.is_some() {
            Stream::Null
        } else {
            Stream::Pipe
        };
        Ok(self.spec.process(&argv, stdin, env, passed))
    }

    /// Behind pipes and memory. A storage for which there is no descriptor left is reached over
    /// RPC.
    fn pass_storages(&self, passed: &mut Vec<OwnedFd>, env: &mut Vec<(OsString, OsString)>) {
        let mut offer = String::new();
        for (name, memory) in &self.spec.storages {
            if let Ok(memory) = memory.try_clone() {
                _ = writeln!(offer, "{}={name}", FIRST_PASSED + passed.len()); // a string takes all
                passed.push(memory);
            }
        }
        if !offer.is_empty() {
            env.push(("PRONGHORN_CACHE".into(), offer.into()));
        }
    }

    /// The connection on the way that was answered first.
    async fn connect(
        &self,
        worker: &mut RunningWorker,
        ways: Ways,
        answer: Result<Answered, BootCause>,
    ) -> Result<Connection, BootCause> {
        let answer = match answer {
            Ok(answer) => answer,
            Err(cause) => {
                if matches!(cause, BootCause::Exited(_)) {
                    ways.close(worker);
                }
                return Err(cause);
            }
        };
        let Ways {
            private,
            memory,
            pipes,
        } = ways;
        match answer {
            Answered::Private(answer) => {
                let stdout = pipes.map(|(_, stdout)| stdout);
                self.ours(worker, answer, private, stdout, memory).await
            }
            Answered::Pipes(answer) => {
                if answer.native {
                    return Err(BootCause::Protocol(
                        "the native codec is spoken on descriptors 3 and 4, not on stdin and stdout".into(),
                    ));
                }
                let Some((write, read)) = pipes else {
                    unreachable!("the answer came over these pipes");
                };
                let channel = Channel::Pipes { read, write };
                self.foreign(channel, answer.leftover, true, memory)
            }
            Answered::Listener(channel, leftover) => {
                worker.output.quote_stdout(self.quote);
                self.foreign(channel, leftover, false, memory)
            }
        }
    }

    /// Offers every way at once. Waits for the first answer over any, for the end of the process,
    /// or for the end of its time.
    async fn first_answer(
        &self,
        worker: &mut RunningWorker,
        ways: &mut Ways,
    ) -> Result<Answered, BootCause> {
        let Ways { private, pipes, .. } = ways;
        let pid = worker.process.pid();
        let output = worker.output.clone();
        let over_pipes = async {
            match pipes {
                Some((stdin, stdout)) => {
                    // A worker that reads nothing from its pipes may be ours, and a full pipe is no
                    // mistake of its.
                    _ = handshake::say_pid(stdin).await;
                    answered(handshake::listen(stdout, Some(&output)).await).await
                }
                None => pending().await,
            }
        };
        let over_listener = async {
            match &self.listener {
                Some(listener) => listener.wait_for(pid, self.spec.uid()).await,
                None => pending().await,
            }
        };
        let over_private = async { answered(handshake::shake_hands(private, None).await).await };
        tokio::select! {
            biased;
            answer = over_private => answer.map(Answered::Private),
            (channel, leftover) = over_listener => Ok(Answered::Listener(channel, leftover)),
            answer = over_pipes => answer.map(Answered::Pipes),
            exit = wait_for_exit(&mut worker.process) => {
                worker.exit = Some(exit);
                Err(BootCause::Exited(exit))
            }
            () = tokio::time::sleep(self.spec.boot_timeout) => {
                let after = self.spec.boot_timeout;
                let listener = self.listener.as_ref();
                let strangers = listener.map(|listener| listener.strangers(after));
                Err(BootCause::TimedOut {
                    after,
                    strangers: strangers.unwrap_or_default(),
                })
            }
        }
    }

    /// The connection to a worker of our SDK, which has answered over its private pipes.
    async fn ours(
        &self,
        worker: &mut RunningWorker,
        answer: Announcement,
        private: Channel,
        stdout: Option<pipe::Receiver>,
        memory: Option<Arc<pronghorn_ring::SharedMemory>>,
    ) -> Result<Connection, BootCause> {
        if !answer.native {
            return Err(BootCause::Protocol(
                "only the native codec is spoken on descriptors 3 and 4".into(),
            ));
        }
        if let Some(why) = answer.cannot_answer(self.kind) {
            return Err(BootCause::Protocol(why));
        }
        if let Some(why) = self.lacks_settings(&answer).await {
            return Err(BootCause::Protocol(why));
        }
        let deadline_signal = answer.signal_of(worker.process.pid());
        if !self.php.runs_scripts() {
            worker.output.reports_fatals();
        }
        // The extension has what is printed past all buffers. Without it, stdout has it.
        if !matches!(answer.ring, Some(Ok(()))) && !self.php.has_extension(&self.spec).await {
            worker.output.quote_stdout(self.quote);
        }
        if let Some(stdout) = stdout {
            let output = worker.output.of_stdout();
            worker.readers.go_on(stdout, Vec::new(), output);
        }
        let private = private.detach().map_err(BootCause::System)?;
        let channel = match (private, memory, &answer.ring) {
            (Detached::Pipes { read, write }, Some(memory), Some(Ok(()))) => Detached::Ring {
                memory,
                read,
                write,
            },
            (pipes, memory, _) => {
                self.without_ring(memory.as_deref(), &answer);
                pipes
            }
        };
        Ok(Connection {
            channel,
            leftover: answer.leftover,
            dialect: Dialect::Native,
            codec: Codec::Native,
            deadline_signal,
        })
    }

    /// The connection to a worker of another package, which has no use for memory.
    fn foreign(
        &self,
        channel: Channel,
        leftover: Vec<u8>,
        prints: bool,
        memory: Option<Arc<pronghorn_ring::SharedMemory>>,
    ) -> Result<Connection, BootCause> {
        if let Some(memory) = memory {
            memory.give_back();
        }
        Ok(Connection {
            channel: channel.detach().map_err(BootCause::System)?,
            leftover,
            dialect: Dialect::foreign(self.fence, prints),
            codec: self.foreign_codec,
            deadline_signal: None,
        })
    }
}

/// Lets a process overtake others until it has booted, but no longer than a boot takes that is
/// worth it: one that never ends would keep a processor from who works.
async fn overtaken<T>(overtaking: Option<Overtaking>, boot: impl Future<Output = T>) -> T {
    const LONGEST: Duration = Duration::from_secs(5);
    let mut boot = pin!(boot);
    if overtaking.is_some() {
        tokio::select! {
            biased;
            booted = &mut boot => return booted,
            () = tokio::time::sleep(LONGEST) => {}
        }
    }
    drop(overtaking);
    boot.await
}

/// Descriptors for a new process, and the server's ends of them.
struct Offer {
    /// To read from and to write to.
    private: (OwnedFd, OwnedFd),
    memory: Option<Arc<pronghorn_ring::SharedMemory>>,
    passed: Vec<OwnedFd>,
}

/// A process that is to be a worker.
struct NewWorker {
    worker: RunningWorker,
    way: WorkerLink,
    /// It need not be asked what new workers are.
    is_warm: bool,
}

impl From<(RunningWorker, Offered)> for NewWorker {
    fn from((worker, offered): (RunningWorker, Offered)) -> Self {
        Self {
            worker,
            way: WorkerLink::Offered(offered),
            is_warm: false,
        }
    }
}

/// How far the connection to it is.
enum WorkerLink {
    Offered(Offered),
    /// It was asked already what it is.
    Connected(Box<Connection>),
}

/// The server's ends of all ways on which a worker may answer, beside the listener.
struct Offered {
    /// To read from and to write to.
    private: (OwnedFd, OwnedFd),
    memory: Option<Arc<pronghorn_ring::SharedMemory>>,
    standard: StandardStreams,
}

impl Offered {
    fn open(self, worker: &mut RunningWorker) -> io::Result<Ways> {
        let (read, write) = self.private;
        Ok(Ways {
            private: Channel::attach(Detached::Pipes { read, write })?,
            memory: self.memory,
            pipes: self.standard.read_by(worker)?,
        })
    }
}

/// [`Offered`], ready to be read from.
struct Ways {
    private: Channel,
    memory: Option<Arc<pronghorn_ring::SharedMemory>>,
    /// The standard streams, where both are pipes.
    pipes: Option<(pipe::Sender, pipe::Receiver)>,
}

impl Ways {
    /// Gives up what was offered, and has what is printed read on.
    fn close(self, worker: &mut RunningWorker) {
        if let Some(memory) = self.memory {
            memory.give_back();
        }
        if let Some((_, stdout)) = self.pipes {
            let output = worker.output.of_stdout();
            worker.readers.go_on(stdout, Vec::new(), output);
        }
    }
}

/// The standard streams that are pipes.
struct StandardStreams {
    stdin: Option<OwnedFd>,
    stdout: Option<OwnedFd>,
    stderr: Option<OwnedFd>,
}

impl StandardStreams {
    /// Has the worker's output read. With a pipe for each direction, stdout is left for an answer.
    fn read_by(
        self,
        worker: &mut RunningWorker,
    ) -> io::Result<Option<(pipe::Sender, pipe::Receiver)>> {
        if let Some(stderr) = self.stderr {
            worker.readers.read(stderr, worker.output.clone())?;
        }
        match (self.stdin, self.stdout) {
            (Some(stdin), Some(stdout)) => {
                let stdin = pipe::Sender::from_owned_fd(stdin)?;
                Ok(Some((stdin, pipe::Receiver::from_owned_fd(stdout)?)))
            }
            (_, Some(stdout)) => {
                worker.readers.read(stdout, worker.output.of_stdout())?;
                Ok(None)
            }
            (_, None) => Ok(None),
        }
    }
}

/// The way on which a worker has answered first.
enum Answered {
    Private(Announcement),
    Pipes(Announcement),
    Listener(Channel, Vec<u8>),
}

/// An answer that decides. A way that is closed decides nothing: the process may answer elsewhere,
/// or its exit tells more.
async fn answered(answer: Result<Announcement, Refusal>) -> Result<Announcement, BootCause> {
    match answer {
        Ok(announcement) => Ok(announcement),
        Err(Refusal::Protocol(what)) => Err(BootCause::Protocol(what)),
        Err(Refusal::Io(_)) => pending().await,
    }
}
