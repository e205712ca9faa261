//! Workers that speak FastCGI.
//!
//! By php-cgi, or any program that takes a listening socket as its standard input, each slot has a
//! process of its own, which only this server can reach: its socket has no name any more when it
//! starts, and the one connection that it is to serve waits in it already. So a call has a
//! deadline, and a crash a report, as in every pool.
//!
//! By php-fpm, and at addresses, a slot is a connection. Which process answers over it nobody can
//! tell, so a call that is given up runs on there, and only its connection is closed.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use pronghorn_base::BoxFuture;
use pronghorn_cgi::fastcgi::{After, RequestId, begin, is_answer, question};
use pronghorn_process::file::name_of_open;
use pronghorn_process::{Exit, Signal, Stream};
use rustix::fs::{AtFlags, Mode, unlinkat};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use crate::cgi::StandIn;
use crate::error::{BootCause, BootError};
use crate::output::Output;
use crate::spec::LaunchSpec;
use crate::warm::until_warm;
use crate::worker::RunningWorker;
use pronghorn_pool::SlotId;
use pronghorn_pool::SpoolPlace;
use pronghorn_pool::Via;
use pronghorn_pool::transport::Detached;
use pronghorn_pool::transport::Inbox;
use pronghorn_pool::transport::Transport;
use pronghorn_pool::transport::{Cold, warm};
use pronghorn_pool::transport::{Connect, LaunchError, Launched, Launcher, Pace, Watched};

mod addresses;
mod master;
mod request;
mod responder;

pub use addresses::{Addresses, Place};
pub use master::Fpm;

use master::Master;

use responder::{Dial, Responder};

/// Connections that may wait in a worker's socket: the question whether it is up, and the one that
/// it is to serve.
const BACKLOG: i32 = 2;
/// A process that ends closes its socket first. So long its end is waited for, which says more than
/// a broken connection.
const TO_END: Duration = Duration::from_millis(100);

/// Who answers.
#[derive(Debug)]
pub enum Peers {
    /// A process for each slot, by the launcher's command.
    Own,
    /// One php-fpm for all slots of a generation, by the launcher's command.
    Fpm(Fpm),
    /// Servers that somebody else runs.
    Addresses(Arc<Addresses>),
}

/// Fills slots with what speaks FastCGI.
#[derive(Debug)]
pub struct FastCgiLauncher {
    /// Its warm-up is not for servers at addresses.
    pub spec: LaunchSpec,
    pub peers: Peers,
    /// The php-fpm of the last generation.
    pub master: Current,
}

/// The php-fpm that new slots belong to.
#[derive(Debug, Default)]
pub struct Current {
    master: tokio::sync::Mutex<Weak<Master>>,
    is_old: AtomicBool,
}

impl Launcher for FastCgiLauncher {
    fn launch(&self, slot: SlotId, _: Pace) -> BoxFuture<'_, Result<Launched, LaunchError>> {
        Box::pin(async move {
            let launched = match &self.peers {
                Peers::Own => self.launch_worker(slot).await,
                Peers::Fpm(fpm) => {
                    let master = self.master(fpm).await?;
                    let places = vec![Place::Unix(master.socket.clone())];
                    let addresses = Arc::new(Addresses::new(self.spec.pool.clone(), places));
                    self.launch_line(slot, addresses, Some(master)).await
                }
                Peers::Addresses(addresses) => {
                    self.launch_line(slot, addresses.clone(), None).await
                }
            };
            Ok(launched?)
        })
    }

    fn begin_generation(&self) {
        self.master.is_old.store(true, Ordering::Relaxed);
    }

    fn own_memory(&self, pid: u32, at_least: u64) -> Option<u64> {
        match self.peers {
            Peers::Own => pronghorn_process::own_memory(pid, at_least),
            Peers::Fpm(_) | Peers::Addresses(_) => None,
        }
    }
}

/// A socket without a name, and both connections that wait in it.
struct Entrance {
    listening: OwnedFd,
    first: OwnedFd,
    second: OwnedFd,
    /// Of the request whose beginning is in the second one.
    id: RequestId,
}

impl Entrance {
    /// `place` is where the socket is for a moment. Only this process's user could connect
    /// meanwhile.
    fn open(place: &SpoolPlace) -> io::Result<Self> {
        // The path of a socket may have 107 bytes, and a folder's alone may have more.
        let short = name_of_open(&place.directory).join(&place.name);
        let address = SocketAddrUnix::new(&short)?;
        let socket = || {
            let (family, kind) = (AddressFamily::UNIX, SocketType::STREAM);
            rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, None)
        };
        let listening = socket()?;
        rustix::fs::fchmod(&listening, Mode::RUSR | Mode::WUSR)?;
        rustix::net::bind(&listening, &address)?;
        let connected = || -> io::Result<_> {
            rustix::net::listen(&listening, BACKLOG)?;
            let (first, second) = (socket()?, socket()?);
            for ours in [&first, &second] {
                rustix::net::connect(ours, &address)?;
                // Whoever owns the folder could have put a socket of its own under this name.
                let listener = rustix::net::sockopt::socket_peercred(ours)?.pid;
                if listener != rustix::process::getpid() {
                    let path = place.path.display();
                    let what = format!("somebody else has put a socket at `{path}`");
                    return Err(io::Error::other(what));
                }
                rustix::io::ioctl_fionbio(ours, true)?;
            }
            Ok((first, second))
        };
        let connected = connected();
        _ = unlinkat(&place.directory, &place.name, AtFlags::empty()); // what can't be removed here can't be reached either
        let (first, second) = connected?;
        let mut beginning = Vec::new();
        let id = request::number_after(None);
        begin(&mut beginning, id, After::Keep);
        // php-cgi closes a connection over which nothing comes within 5 s of its accept, and calls
        // may be rare.
        rustix::io::write(&second, &beginning)?;
        Ok(Self {
            listening,
            first,
            second,
            id,
        })
    }
}

impl FastCgiLauncher {
    /// The php-fpm of this generation, started with its first slot, and again after its end.
    async fn master(&self, fpm: &Fpm) -> Result<Arc<Master>, BootError> {
        let mut current = self.master.master.lock().await;
        let is_old = self.master.is_old.swap(false, Ordering::Relaxed);
        let known = current
            .upgrade()
            .filter(|master| !is_old && !master.has_ended());
        if let Some(master) = known {
            return Ok(master);
        }
        let started = Master::start(self, fpm).await;
        // Who tries next has to begin anew as well.
        let master = started.inspect_err(|_| *current = Weak::new())?;
        *current = Arc::downgrade(&master);
        Ok(master)
    }

    /// A slot that is a connection.
    async fn launch_line(
        &self,
        slot: SlotId,
        addresses: Arc<Addresses>,
        master: Option<Arc<Master>>,
    ) -> Result<Launched, BootError> {
        let until = Instant::now() + self.spec.boot_timeout;
        let end = Arc::new(watch::Sender::new(None));
        let unneeded = Arc::new(Notify::new());
        let output = match &master {
            Some(master) => master.output.clone(),
            None => {
                let output = Output::new(&self.spec.pool, 0);
                output.up();
                output
            }
        };
        let line = responder::Line::To(Dial { addresses, slot });
        let settings = self.settings(output.clone(), unneeded.clone());
        let its_end = async {
            match &master {
                Some(master) => master.ended().await,
                None => std::future::pending().await,
            }
        };
        let connect = self.connect(slot, line, settings, its_end, until).await;
        let connect = connect.map_err(|cause| self.spec.failed(cause, Some(&output)))?;
        let process = LineStandIn {
            stand_in: StandIn(end),
            master,
            unneeded,
        };
        Ok(Launched {
            process: Box::new(process),
            via: Via::FastCgi,
            connect,
        })
    }

    async fn launch_worker(&self, slot: SlotId) -> Result<Launched, BootError> {
        let Entrance {
            listening,
            first,
            second,
            id,
        } = (self.spec.spool.place("fastcgi"))
            .and_then(|place| Entrance::open(&place))
            .map_err(|error| self.spec.failed(BootCause::System(error), None))?;
        let stdin = Stream::File(listening);
        let (argv, env) = (&self.spec.argv, self.spec.env.clone());
        let command = self.spec.process(argv, stdin, env, Vec::new());
        let child = self.spec.spawner.spawn(command).await;
        let child = child.map_err(|error| self.spec.failed(BootCause::Spawn(error), None))?;
        let mut worker = RunningWorker::new(&self.spec.pool, child.process);
        let until = Instant::now() + self.spec.boot_timeout;
        let unneeded = Arc::new(Notify::new());
        let settings = self.settings(worker.output.clone(), unneeded.clone());
        let line = responder::Line::Of(Detached::Unix(second.into()), id);
        let up = async {
            let pipes = [child.stdout, child.stderr];
            self.bring_up(&mut worker, first, pipes, until).await?;
            self.connect(slot, line, settings, worker.end(), until)
                .await
        };
        match up.await {
            Ok(connect) => {
                worker.output.up();
                Ok(Launched {
                    process: Box::new(FastCgiProcess { worker, unneeded }),
                    via: Via::FastCgi,
                    connect,
                })
            }
            Err(cause) => {
                if worker.exit.is_none() {
                    worker.process.kill_group();
                }
                worker.readers.finish().await;
                Err(self.spec.failed(cause, Some(&worker.output)))
            }
        }
    }

    /// Waits until the process answers a question that is about no request.
    async fn bring_up(
        &self,
        worker: &mut RunningWorker,
        connection: OwnedFd,
        output: [Option<OwnedFd>; 2],
        until: Instant,
    ) -> Result<(), BootCause> {
        for pipe in output.into_iter().flatten() {
            let read = worker.readers.read(pipe, worker.output.clone());
            read.map_err(BootCause::System)?;
        }
        let answer = async {
            let mut connection = UnixStream::from_std(connection.into())?;
            connection.write_all(&question()).await?;
            let mut answer = [0; 2];
            let read = connection.read_exact(&mut answer).await;
            io::Result::Ok((read.is_ok(), answer))
        };
        let answer = async {
            let answer = answer.await;
            if !matches!(answer, Ok((true, _))) {
                tokio::time::sleep(TO_END).await;
            }
            answer
        };
        tokio::select! {
            biased;
            answer = answer => match answer.map_err(BootCause::System)? {
                (true, answer) if !is_answer(&answer) => {
                    Err(BootCause::Protocol("what it answers is no FastCGI".to_owned()))
                }
                // One that hangs up has taken the connection, and so it is up; if it ends, that
                // shows.
                _ => Ok(()),
            },
            exit = worker.end() => Err(BootCause::Exited(exit)),
            () = sleep_until(until) => Err(BootCause::TimedOut {
                after: self.spec.boot_timeout,
                strangers: Vec::new(),
            }),
        }
    }

    fn settings(&self, output: Output, unneeded: Arc<Notify>) -> responder::Settings {
        responder::Settings {
            stream_timeout: self.spec.stream_timeout,
            spool: self.spec.spool.clone(),
            output,
            unneeded,
        }
    }

    /// What gives the line a slot handle, once the warm-up over it is done. `end` is that of the
    /// process behind it.
    async fn connect(
        &self,
        slot: SlotId,
        line: responder::Line,
        settings: responder::Settings,
        end: impl Future<Output = Exit>,
        until: Instant,
    ) -> Result<Connect, BootCause> {
        let home = self.spec.homes[slot % self.spec.homes.len()]
            .runtime
            .clone();
        let Some(calls) = self.spec.warmup.calls().await else {
            return Ok(Box::new(move |slot_handle| {
                let inbox = Arc::new(Inbox::default());
                let transport: Arc<dyn Transport> = inbox.clone();
                // Owned by the slot's slot supervisor: it waits until the slot handle is left.
                home.spawn(Responder::new(line, settings, slot_handle, inbox).run());
                transport
            }));
        };
        // Ended by being dropped.
        let mut warming = JoinSet::new();
        let inbox = Arc::new(Inbox::default());
        let (name, there, told) = (self.spec.pool.clone(), home.clone(), inbox.clone());
        let warm_up = async move {
            let responder = |slot_handle| {
                let mut responder = Responder::new(line, settings, slot_handle, told);
                let attached = responder.attach();
                attached.map_err(|error| {
                    Cold::silent(format!("its connection can't be watched: {error}"))
                })?;
                Ok(responder)
            };
            warm(responder, calls, name, &there).await
        };
        warming.spawn_on(warm_up, &home);
        let responder = until_warm(warming, &inbox, end, until, self.spec.boot_timeout).await?;
        Ok(Box::new(move |slot_handle| {
            let inbox = Arc::new(Inbox::default());
            home.spawn(responder.in_slot(slot_handle, inbox.clone()).run()); // as above
            inbox
        }))
    }
}

/// A FastCGI program: it can't be asked over its connection to end.
struct FastCgiProcess {
    worker: RunningWorker,
    unneeded: Arc<Notify>,
}

impl Watched for FastCgiProcess {
    fn pid(&self) -> u32 {
        self.worker.pid()
    }

    fn wait(&mut self) -> BoxFuture<'_, Exit> {
        Box::pin(async {
            loop {
                tokio::select! {
                    exit = self.worker.wait() => return exit,
                    () = self.unneeded.notified() => {}
                }
                self.worker.signal(Signal::Terminate);
            }
        })
    }

    fn signal(&self, signal: Signal) {
        self.worker.signal(signal);
    }

    /// It has no means to hear of it.
    fn interrupt(&self, _: u32) {}

    fn last_words(&self) -> Vec<String> {
        self.worker.last_words()
    }

    fn peak_memory(&self) -> Option<u64> {
        self.worker.peak_memory()
    }

    fn cpu(&self) -> Option<Duration> {
        self.worker.cpu()
    }
}

/// In place of the process of a slot that is a connection. It ends with its php-fpm, if it has one.
struct LineStandIn {
    stand_in: StandIn,
    master: Option<Arc<Master>>,
    unneeded: Arc<Notify>,
}

impl Watched for LineStandIn {
    fn pid(&self) -> u32 {
        self.master.as_ref().map_or(0, |master| master.pid)
    }

    fn wait(&mut self) -> BoxFuture<'_, Exit> {
        Box::pin(async {
            let master = async {
                match &self.master {
                    Some(master) => master.ended().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                exit = self.stand_in.wait() => exit,
                exit = master => exit,
                () = self.unneeded.notified() => Exit::Code(0),
            }
        })
    }

    fn signal(&self, signal: Signal) {
        self.stand_in.signal(signal);
    }

    fn interrupt(&self, _: u32) {}

    fn last_words(&self) -> Vec<String> {
        let master = self.master.as_ref();
        master
            .map(|master| master.output.last_words().lines())
            .unwrap_or_default()
    }

    fn peak_memory(&self) -> Option<u64> {
        None
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::os::unix::net::UnixListener;

    use pronghorn_pool::Spool;

    use super::*;

    #[test]
    fn a_socket_has_no_name_and_what_php_cgi_waits_for_is_there() {
        let spool = Spool::open(&std::env::temp_dir(), None).unwrap();
        let place = spool.place("entrance").unwrap();
        let entrance = Entrance::open(&place).unwrap();
        assert!(!place.path.exists());
        let listener = UnixListener::from(entrance.listening);
        let (mut first, _) = listener.accept().unwrap();
        let (mut second, _) = listener.accept().unwrap();
        drop(entrance.first);
        let mut nothing = Vec::new();
        assert_eq!(first.read_to_end(&mut nothing).unwrap(), 0);
        let mut beginning = [0; 16];
        second.read_exact(&mut beginning).unwrap();
        let mut expected = Vec::new();
        begin(&mut expected, entrance.id, After::Keep);
        assert_eq!(beginning[..], expected);
    }
}
