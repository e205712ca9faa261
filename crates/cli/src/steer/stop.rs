//! `stop`

use std::io;
use std::path::Path;
use std::time::Duration;

use pronghorn_base::read_plain;
use pronghorn_control::{Ask, Client, ClientError, Tell};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};

use super::reset::stamp;
use super::{Server, Task};
use crate::arguments::Name;
use crate::exit::{Exit, mention, say};

/// Beyond the server's own limit: the last log records, files that are removed.
const LAST_WORDS: Duration = Duration::from_secs(10);
/// What a server has that is known by its `.pid` alone, its own limit not being known: twice the
/// usual one.
const BY_PID: Duration = Duration::from_secs(60);
/// Longer than what the signals of one stop may be apart, so that the second one counts.
const SECOND_STOP: Duration = Duration::from_millis(200);

pub(super) async fn run(task: &Task<'_>) -> Result<Exit, String> {
    match task.server().await {
        Ok(Server::Control(client)) => over_control(task, client).await,
        Ok(Server::Rpc(_, endpoint)) => match pid_in_file(&task.folder) {
            Some(pid) => by_pid(task, pid).await,
            None => Err(format!(
                "the server is known by its RPC at {endpoint} alone, which can't stop it\n\
                 hint: run the command with the `-c` of the server, or `kill` with its pid"
            )),
        },
        Err(nobody) => match pid_in_file(&task.folder) {
            Some(pid) => by_pid(task, pid).await,
            None => Err(nobody),
        },
    }
}

async fn over_control(task: &Task<'_>, mut client: Client) -> Result<Exit, String> {
    // Taken before, so that the number can't have gone to another process.
    let process = client.pid().and_then(|pid| Process::open(pid).ok());
    let force = task.arguments.globals.force;
    let told = stopping(&mut client, force).await;
    let (pid, within) = told.map_err(|error| error.to_string())?;
    announce(task, pid);
    let within = Duration::from_secs(within) + LAST_WORDS;
    let gone = tokio::time::timeout(within, client.ended()).await.is_ok()
        && process.is_none_or(|process| process.ends_within(LAST_WORDS));
    finish(task, pid, gone)
}

/// The server's process, and how many seconds it may take. A server that has said so may be gone
/// before it ends its answer.
async fn stopping(client: &mut Client, force: bool) -> Result<(u32, u64), ClientError> {
    let mut answers = client.ask(Ask::Stop { force }).await?;
    let Some(Tell::Stopping { pid, within }) = answers.next().await? else {
        return Err(ClientError::Strange("no word of a stop".to_owned()));
    };
    match answers.next().await {
        Ok(_) | Err(ClientError::Left(_)) => Ok((pid, within)),
        Err(error) => Err(error),
    }
}

/// A server without a control socket, started with `-p`.
async fn by_pid(task: &Task<'_>, pid: u32) -> Result<Exit, String> {
    let process =
        Process::open(pid).map_err(|error| format!("process {pid} of `.pid`: {error}"))?;
    let stop = || {
        let signalled = process.terminate();
        signalled.map_err(|error| format!("process {pid} of `.pid` can't be stopped: {error}"))
    };
    announce(task, pid);
    stop()?;
    if task.arguments.globals.force {
        tokio::time::sleep(SECOND_STOP).await;
        _ = stop(); // it may have ended
    }
    finish(task, pid, process.ends_within(BY_PID))
}

fn announce(task: &Task<'_>, pid: u32) {
    if task.name == Name::Rr && !task.arguments.globals.silent {
        mention(&format!("{} stopping process with PID: {pid}\n", stamp()));
    }
}

fn finish(task: &Task<'_>, pid: u32, gone: bool) -> Result<Exit, String> {
    if !gone {
        return Err(format!(
            "the server (pid {pid}) has not ended yet\nhint: `stop -f` ends it without waiting for requests"
        ));
    }
    if task.name == Name::Pronghorn && !task.arguments.globals.silent {
        say(&format!("the server (pid {pid}) has stopped\n"));
    }
    Ok(Exit::Done)
}

/// The process of `.pid`, if it still is a server: its number may be another process's by now.
fn pid_in_file(folder: &Path) -> Option<u32> {
    // Longer than any number. The folder may be another user's, and the name that of a pipe.
    let text = read_plain(&folder.join(".pid"), 32).ok()?;
    let pid: u32 = std::str::from_utf8(&text).ok()?.trim().parse().ok()?;
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
    matches!(name.trim_end(), "pronghorn" | "rr").then_some(pid)
}

/// A process that is no child.
struct Process {
    pid: Pid,
    end: OwnedFd,
}

impl Process {
    fn open(pid: u32) -> io::Result<Self> {
        let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
        let pid = pid.ok_or(io::ErrorKind::NotFound)?;
        let end = pidfd_open(pid, PidfdFlags::empty())?;
        Ok(Self { pid, end })
    }

    fn terminate(&self) -> io::Result<()> {
        Ok(kill_process(self.pid, Signal::TERM)?)
    }

    /// Blocks: there is nothing else to do.
    fn ends_within(&self, time: Duration) -> bool {
        let mut wait = [PollFd::new(&self.end, PollFlags::IN)];
        let time = Timespec::try_from(time).ok();
        poll(&mut wait, time.as_ref()).is_ok_and(|ready| ready > 0)
    }
}
