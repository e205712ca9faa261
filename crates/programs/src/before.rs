//! The programs of the processes before this one: the promise that no program runs twice.
//!
//! At an upgrade, a new process takes over while the programs of the old one still end. [`Before`]
//! knows how far that is, and everybody who starts a program asks it:
//!
//! - `Theirs`: the process before serves and runs its programs. This process may be a rehearsal. It
//!   ends when this process takes over.
//! - `Ending`: this process serves. The process before stops its programs. It ends with the last
//!   of them.
//! - `Gone`: no process before has programs. A server that follows nobody begins here.
//!
//! The promise has four parts:
//!
//! 1. A program starts in `Gone` alone, whoever asks: the server's start, a command, RPC, a changed
//!    file, a reload. Until then, whoever starts a program puts it in line, and whoever stops it
//!    takes it out again: [`Program`](crate::program::Program).
//! 2. Each process holds the writing end of a pipe until its programs are gone, and those of the
//!    processes before. If it is killed, the kernel closes the pipe, and ends its programs.
//! 3. The next process gets the reading end, and those of earlier processes that have programs. So
//!    the third process waits for the first one even if the second one is gone.
//! 4. A process that is to stop in `Ending` ends when it is in `Gone`, or at the end of its grace
//!    period: whoever starts the server anew then has no pipe to wait for.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};

use pronghorn_base::lock;
use pronghorn_plugin_api::Sockets;
use tokio::io::AsyncReadExt as _;
use tokio::net::unix::pipe::Receiver;
use tokio::sync::Mutex as AsyncMutex;
use tokio::time::{Instant, timeout_at};

use crate::channel::{Channel, record};

/// Clones are the same one.
#[derive(Clone, Debug)]
pub(crate) struct Before(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    channel: Channel,
    phase: Mutex<Phase>,
    /// The number of the process before.
    pid: u32,
    /// Each is closed at its other end when the programs of a process are gone.
    pipes: AsyncMutex<Vec<Receiver>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Theirs,
    Ending,
    Gone,
}

impl Before {
    /// Takes the pipes of the processes before, and offers the next process those that it has to
    /// wait for. `own` is closed at its other end when the programs of this process are gone.
    pub(crate) fn new(channel: Channel, sockets: &Sockets, own: &OwnedFd) -> io::Result<Self> {
        let mut pipes = Vec::new();
        for pipe in sockets.take(channel.ended()) {
            let pipe = Receiver::from_owned_fd(pipe)?;
            // Else each upgrade would add one.
            if rustix::io::read(&pipe, &mut [0]) != Ok(0) {
                sockets.offer(channel.ended(), &pipe)?;
                pipes.push(pipe);
            }
        }
        // Earlier releases look at the last one alone.
        sockets.offer(channel.ended(), own)?;
        let phase = if sockets.has_predecessor() {
            Phase::Theirs
        } else {
            Phase::Gone
        };
        Ok(Self(Arc::new(Inner {
            channel,
            phase: Mutex::new(phase),
            pid: std::os::unix::process::parent_id(),
            pipes: AsyncMutex::new(pipes),
        })))
    }

    /// Whether a program that is started may run beside one of theirs.
    pub(crate) fn are_there(&self) -> bool {
        *lock(&self.0.phase) != Phase::Gone
    }

    /// Names what a program in line waits for.
    pub(crate) fn wait(&self) -> String {
        let pid = self.0.pid;
        format!("the end of the programs of the process before (pid {pid})")
    }

    /// Clients are this process's from now on. Says whether there is a process before.
    pub(crate) fn take_over(&self) -> bool {
        let mut phase = lock(&self.0.phase);
        if *phase == Phase::Gone {
            return false;
        }
        *phase = Phase::Ending;
        true
    }

    /// Returns when their programs are gone. Cancel safe; any number may wait.
    pub(crate) async fn are_gone(&self) {
        let mut pipes = self.0.pipes.lock().await;
        while let Some(pipe) = pipes.last_mut() {
            match pipe.read(&mut [0; 16]).await {
                Ok(read) if read > 0 => continue,
                Ok(_) => {}
                Err(error) => {
                    record!(
                        self.0.channel,
                        error,
                        "cannot see the end of the programs before: {error}"
                    );
                }
            }
            pipes.pop();
        }
        *lock(&self.0.phase) = Phase::Gone;
    }

    /// The same for a process that stops: none waits for programs that were never its to wait for.
    ///
    /// # Errors
    ///
    /// Tells what is left then.
    pub(crate) async fn are_gone_by(&self, deadline: Instant) -> Result<(), String> {
        if *lock(&self.0.phase) != Phase::Ending {
            return Ok(());
        }
        let pid = self.0.pid;
        record!(
            self.0.channel,
            info,
            "the stop waits for the programs of the process before (pid {pid})"
        );
        let gone = timeout_at(deadline, self.are_gone()).await;
        gone.map_err(|_| format!("the programs of the process before (pid {pid})"))
    }
}

#[cfg(test)]
mod tests {
    use std::io::{PipeWriter, pipe};
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    /// A process of a server with one program.
    struct Process {
        sockets: Sockets,
        before: Before,
        _ended: PipeWriter,
        runs: bool,
        stops: bool,
    }

    impl Process {
        fn start(sockets: Sockets) -> Self {
            let (reader, ended) = pipe().unwrap();
            Self {
                before: Before::new(Channel::Service, &sockets, &reader.into()).unwrap(),
                sockets,
                _ended: ended,
                runs: false,
                stops: false,
            }
        }

        fn upgrade(&mut self) -> Self {
            let next = Self::start(Sockets::inherited(self.sockets.offered().unwrap()));
            self.sockets.close();
            assert!(next.before.are_there() && next.before.take_over());
            self.stops = true;
            next
        }

        async fn may_start(&self) -> bool {
            _ = timeout(Duration::from_millis(1), self.before.are_gone()).await;
            !self.before.are_there()
        }

        /// Whether it ends, when it was asked for it.
        async fn has_stopped(&self) -> bool {
            let deadline = Instant::now() + Duration::from_millis(1);
            !self.runs && self.before.are_gone_by(deadline).await.is_ok()
        }
    }

    /// A process that another test just starts has all pipes until it runs its own program. Until
    /// then, which takes real time, nobody sees their ends.
    const PATIENCE: Duration = Duration::from_secs(60);

    #[tokio::test]
    async fn whatever_happens_no_program_runs_twice() {
        let seed = fastrand::u64(..);
        println!("seed {seed}");
        fastrand::seed(seed);
        for _ in 0..200 {
            one_random_life().await;
        }
    }

    async fn one_random_life() {
        let mut processes = vec![Process::start(Sockets::default())];
        for _ in 0..60 {
            let at = fastrand::usize(..processes.len());
            let (many, is_newest) = (processes.len(), at + 1 == processes.len());
            let process = &mut processes[at];
            match fastrand::u8(..6) {
                0 if is_newest && !process.stops && many < 5 => {
                    let next = process.upgrade();
                    processes.push(next);
                }
                1 if is_newest && !process.stops => process.stops = true,
                2 if !process.stops => process.runs |= process.may_start().await,
                3 => process.runs &= !process.stops,
                4 if process.stops && process.has_stopped().await => {
                    processes.remove(at);
                    if is_newest {
                        // The server has stopped, and somebody starts it anew.
                        processes.push(Process::start(Sockets::default()));
                    }
                }
                // Killed, or at the end of its grace period.
                5 if !is_newest => _ = processes.remove(at),
                _ => {}
            }
            let runs = processes.iter().filter(|it| it.runs).count();
            assert!(runs <= 1, "{runs} at the same time");
        }
        while processes.len() > 1 {
            processes.remove(0);
        }
        let last = &mut processes[0];
        let gone = timeout(PATIENCE, last.before.are_gone());
        gone.await.expect("it waits for nobody");
        // Pipes of processes that are gone are not handed on.
        let next = last.upgrade();
        assert!(next.sockets.offered().unwrap().len() <= 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_rehearsal_waits_for_nobody_when_it_ends() {
        let first = Process::start(Sockets::default());
        let rehearsal = Process::start(Sockets::inherited(first.sockets.offered().unwrap()));
        assert!(rehearsal.before.are_there() && rehearsal.has_stopped().await);
    }
}
