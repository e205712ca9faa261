//! The server goes over to another process: what the old one does, and what the new one.
//!
//! The old process starts the program once more and gives it the listening sockets. The new one
//! boots all its workers and says that it is ready; only then does either of them change what it
//! does for clients. What the two say to each other must be understood by other releases, too:
//!
//! | from | message | |
//! |---|---|---|
//! | old | `sockets` and a name for each that comes with it | first of all |
//! | new | `ready` | it is up and takes no client yet |
//! | new | `failed`, then why | it is about to end |
//! | old | `go` | its clients are the new one's from now on; so does a closed link |
//! | old | `end` | this was a rehearsal |
//! | any | `stop` | after `go`: it was asked to end, which is meant for both |

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use pronghorn_config::Preset;
use pronghorn_plugin_api::{Handover, SYSTEMDS, Sockets};
use pronghorn_process::activation::{ActivatedPlace, place};
use pronghorn_process::{Exit, Link, Process, Program, Signal, WatchedLink};
use pronghorn_rpc::Successor;
use thiserror::Error;
use tokio::time::timeout;

use crate::activation::presets;
use crate::server::Server;
use crate::settings::UpgradeChoice;

const SOCKETS: &str = "sockets";
/// The name of a socket by which the new process answers calls of the old one.
pub(crate) const CALLS: &str = "calls";
/// The name of a socket by which the new process is given the store, and carries out what the old
/// one still does with it.
pub(crate) const STORE: &str = "store";
/// The name of the directory in which the store of the old process is open.
pub(crate) const STATE: &str = "state";
const READY: &str = "ready";
const FAILED: &str = "failed";
const GO: &str = "go";
const END: &str = "end";
const STOP: &str = "stop";

/// A process that said it was ready waits for its word so long: the other one has nothing to wait
/// for.
const WORD: Duration = Duration::from_secs(60);
/// A process that was told to end ends its workers first.
const END_OF_FAILED: Duration = Duration::from_secs(5);

/// The process that this one takes over from.
#[derive(Debug)]
pub struct Predecessor {
    link: Link,
    sockets: Vec<(String, OwnedFd)>,
}

/// What a process that is ready is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Word {
    TakeOver,
    End,
}

impl Predecessor {
    /// To be asked once, at the start of the process.
    pub fn of_this_process() -> Option<Self> {
        let link = Program::inherited_link()?;
        let (text, sockets) = link.try_receive().ok()??;
        let mut words = text.split_whitespace();
        let names: Vec<String> = match words.next()? {
            SOCKETS => words.map(ToOwned::to_owned).collect(),
            _ => return None,
        };
        // Cut short, it would name sockets wrongly.
        (names.len() == sockets.len()).then(|| Self {
            link,
            sockets: names.into_iter().zip(sockets).collect(),
        })
    }

    /// The keys that the names of systemd's sockets set in that process.
    pub fn presets(&self) -> Vec<Preset> {
        let named: Vec<_> = self.sockets.iter().filter_map(named_place).collect();
        presets(
            &named
                .iter()
                .map(|(name, place)| (*name, place))
                .collect::<Vec<_>>(),
        )
    }

    /// Says why this process does not take over.
    pub fn tell_failure(&self, why: &str) {
        _ = self.link.send(&format!("{FAILED} {why}"), &[]); // then it sees the end alone
    }

    pub(crate) fn sockets(&mut self) -> Sockets {
        Sockets::inherited(std::mem::take(&mut self.sockets))
    }

    /// Says that all is up, and waits to be told what now.
    pub(crate) async fn ready(self) -> io::Result<(Word, OtherProcess)> {
        let link = self.link.watch()?;
        match link.send(READY) {
            // It has become this process, or was killed.
            Err(error) if is_end(&error) => return Ok((Word::TakeOver, OtherProcess(link))),
            sent => sent?,
        }
        let word = timeout(WORD, link.receive()).await;
        let word = match word.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?? {
            Some(word) if word == END => Word::End,
            // Without a word the old process has died: its clients are nobody's.
            _ => Word::TakeOver,
        };
        Ok((word, OtherProcess(link)))
    }
}

/// The other process after an upgrade. A stop of one of the two is meant for both.
#[derive(Debug)]
pub struct OtherProcess(WatchedLink);

impl OtherProcess {
    /// Returns when that process was asked to end, and never when it ends by itself. Cancel safe.
    pub async fn was_asked(&self) {
        loop {
            match self.0.receive().await {
                Ok(Some(word)) if word == STOP => return,
                Ok(Some(_)) => {}
                Ok(None) | Err(_) => std::future::pending().await,
            }
        }
    }

    /// Has it end. One of a release that does not know of this goes on.
    pub fn stop(&self) {
        _ = self.0.send(STOP); // an error says that it has ended
    }

    /// This process has ended its work. Returns when the other one has, too.
    pub async fn ended(&self) {
        self.0.finish();
        while let Ok(Some(_)) = self.0.receive().await {}
    }
}

/// Whether the process at the other end is gone.
fn is_end(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionReset};
    matches!(error.kind(), BrokenPipe | ConnectionReset)
}

fn named_place((name, socket): &(String, OwnedFd)) -> Option<(&str, ActivatedPlace)> {
    Some((name.strip_prefix(SYSTEMDS)?, place(socket.as_fd()).ok()?))
}

/// Why the old process goes on.
#[derive(Debug, Error)]
pub enum UpgradeError {
    /// The system's: `/proc` is not there.
    #[error("the path of this program is unknown: {0}")]
    NoProgram(io::Error),
    /// The system's, or the operator's: the program is not there any more.
    #[error("`{program}` can't be started: {source}")]
    Start { program: String, source: io::Error },
    #[error("the new process ended with {0} before it was ready")]
    Ended(Exit),
    #[error("the new process said: {0}")]
    Failed(String),
    #[error(
        "the new process was not ready within {} s; `endure.upgrade_timeout` is the \
         limit", .0.as_secs()
    )]
    TooSlow(Duration),
    #[error("the two processes can't talk: {0}")]
    Link(#[from] io::Error),
    /// The operator's, who wants neither process any more.
    #[error("the server is asked to stop")]
    Stopped,
}

/// How the server goes over to another process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// The new process works beside the old one while that one finishes what it has.
    Beside,
    /// The process keeps its number: after a rehearsal beside it, it finishes what it has and
    /// becomes the new one. Clients that come meanwhile wait.
    InPlace,
}

impl Way {
    /// What is asked for, or what suits whoever watches this process now.
    pub fn here(choice: UpgradeChoice) -> Self {
        let own = std::process::id();
        let parent = std::os::unix::process::parent_id();
        let watcher = std::fs::read_to_string(format!("/proc/{parent}/comm")).unwrap_or_default();
        let can_be_told = std::env::var_os("NOTIFY_SOCKET").is_some();
        match choice {
            UpgradeChoice::Beside => Self::Beside,
            UpgradeChoice::InPlace => Self::InPlace,
            UpgradeChoice::Auto => Self::under(own, watcher.trim(), can_be_told),
        }
    }

    /// A container ends with its first process, and a supervisor starts another server when the one
    /// that it started ends.
    fn under(own: u32, watcher: &str, can_be_told: bool) -> Self {
        match watcher {
            _ if own == 1 => Self::InPlace,
            "systemd" if can_be_told => Self::Beside,
            _ if SUPERVISORS.contains(&watcher) => Self::InPlace,
            _ => Self::Beside,
        }
    }
}

/// Programs that watch the process that they started, as the kernel names them.
const SUPERVISORS: [&str; 9] = [
    "systemd",
    "supervisord",
    "runsv",
    "s6-supervise",
    "supervise",
    "tini",
    "docker-init",
    "dumb-init",
    "catatonit",
];

/// The server has gone over, as far as clients are concerned.
#[derive(Debug)]
pub enum Next {
    /// To the process of this number.
    Process(u32, OtherProcess),
    /// It will, once this process has [become](Self::become_it) the new one.
    InPlace(Sockets),
}

impl Next {
    /// Becomes the new process if it is to have the number of this one. Returns only when that
    /// fails.
    pub fn become_it(self, program: &Program) -> io::Result<()> {
        let Self::InPlace(sockets) = self else {
            return Ok(());
        };
        let (ours, theirs) = Link::pair()?;
        hand_out(&ours, &sockets, Vec::new())?;
        drop(sockets);
        // `ours` is closed by the exec, and that means `go`.
        Err(program.replace(theirs))
    }
}

fn hand_out(link: &Link, sockets: &Sockets, further: Vec<(&str, OwnedFd)>) -> io::Result<()> {
    let mut offered = sockets.offered()?;
    let further = further.into_iter();
    offered.extend(further.map(|(name, socket)| (name.to_owned(), socket)));
    let mut text = SOCKETS.to_owned();
    for (name, _) in &offered {
        text.extend([" ", name]);
    }
    let descriptors: Vec<_> = offered.iter().map(|(_, socket)| socket.as_fd()).collect();
    link.send(&text, &descriptors)
}

impl Server {
    /// Goes over to the program as it is on the disk now. The services of this server then take no
    /// further clients, and are to be [stopped](Self::stop). It is given up when `stop` is ready
    /// before the new process is.
    ///
    /// # Errors
    ///
    /// What kept the new process from becoming ready. It has ended, and all is as before.
    pub async fn upgrade(
        &mut self,
        program: &Program,
        way: Way,
        stop: impl Future<Output = ()>,
    ) -> Result<Next, UpgradeError> {
        let (calls, their_calls) = UnixStream::pair()?;
        let (store, their_store) = UnixStream::pair()?;
        let successor = Successor::new(calls)?;
        self.hand_over(Handover::Begun);
        let mut theirs = vec![(CALLS, their_calls.into()), (STORE, their_store.into())];
        let store_in = self.places.as_ref().and_then(|it| it.store.open_in());
        // One that was moved away meanwhile is nowhere, and the next process says what is wrong.
        theirs.extend(store_in.and_then(|it| Some((STATE, File::open(it).ok()?.into()))));
        let next = self.boot_next(program, way, theirs, stop).await;
        let is_beside = matches!(next, Ok(Next::Process(..)));
        if is_beside {
            // Their clients are the other process's, and nobody's where that one ends early.
            self.sockets().close();
            self.successor = Some(successor.forward());
        }
        self.hand_over(match next {
            Ok(_) => Handover::Done,
            Err(_) => Handover::Failed,
        });
        if is_beside {
            self.handed_over().await;
        }
        if is_beside
            && let Some(places) = &self.places
            && !places.store.hand_over(store).await
        {
            tracing::info!(target: "server", "the next process gets the store when this one has ended its work");
        }
        next
    }

    async fn boot_next(
        &mut self,
        program: &Program,
        way: Way,
        further: Vec<(&str, OwnedFd)>,
        stop: impl Future<Output = ()>,
    ) -> Result<Next, UpgradeError> {
        let (ours, theirs) = Link::pair()?;
        hand_out(&ours, self.sockets(), further)?;
        let link = ours.watch()?;
        let mut process = program
            .start(theirs)
            .map_err(|source| UpgradeError::Start {
                program: program.path().display().to_string(),
                source,
            })?;
        tracing::info!(target: "server", pid = process.pid(), "upgrade: `{}` boots", program.path().display());
        let limit = self.upgrade_timeout();
        let booted = tokio::select! {
            booted = timeout(limit, until_ready(&mut process, &link)) => {
                booted.unwrap_or(Err(UpgradeError::TooSlow(limit)))
            }
            () = stop => Err(UpgradeError::Stopped),
        };
        match booted {
            Err(error) => {
                end(process).await;
                Err(error)
            }
            Ok(()) if way == Way::InPlace => {
                link.send(END)?;
                end(process).await;
                Ok(Next::InPlace(self.sockets().clone()))
            }
            Ok(()) => {
                link.send(GO)?;
                let pid = process.pid();
                self.lost = Some(Box::pin(process.release()));
                Ok(Next::Process(pid, OtherProcess(link)))
            }
        }
    }
}

async fn until_ready(process: &mut Process, link: &WatchedLink) -> Result<(), UpgradeError> {
    let message = tokio::select! {
        // What it said matters more than that it ended.
        biased;
        message = link.receive() => message?,
        exit = process.wait() => return Err(UpgradeError::Ended(exit?)),
    };
    match message {
        Some(message) if message == READY => Ok(()),
        Some(message) => {
            let why = message.strip_prefix(FAILED).unwrap_or(&message).trim();
            Err(UpgradeError::Failed(why.to_owned()))
        }
        None => Err(UpgradeError::Ended(process.wait().await?)),
    }
}

/// Waits for its end, and brings it about.
async fn end(mut process: Process) {
    process.signal(Signal::Terminate);
    _ = timeout(END_OF_FAILED, process.wait()).await; // dropped, it is killed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_is_kept_where_somebody_watches_it_and_cannot_be_told() {
        for (own, watcher, can_be_told, way) in [
            (1, "", false, Way::InPlace),
            (7, "tini", false, Way::InPlace),
            (7, "systemd", false, Way::InPlace),
            (7, "systemd", true, Way::Beside),
            (7, "supervisord", true, Way::InPlace),
            (7, "bash", false, Way::Beside),
        ] {
            assert_eq!(Way::under(own, watcher, can_be_told), way, "{watcher}");
        }
    }
}
