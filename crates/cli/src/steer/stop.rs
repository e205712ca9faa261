//! `stop`

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use pronghorn_base::read_plain;
use pronghorn_control::{Ask, Client, ClientError, Tell};
use pronghorn_process::peer::users_of;
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
        Ok(Server::Rpc(_, endpoint)) => match in_file(task)? {
            Some(process) => by_pid(task, &process).await,
            None => Err(format!(
                "the server is known by its RPC at {endpoint} alone, which can't stop it\n\
                 hint: run the command with the `-c` of the server, or `kill` with its pid"
            )),
        },
        Err(nobody) => match in_file(task)? {
            Some(process) => by_pid(task, &process).await,
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
async fn by_pid(task: &Task<'_>, process: &Process) -> Result<Exit, String> {
    let pid = process.pid.as_raw_nonzero().get().unsigned_abs();
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
fn in_file(task: &Task<'_>) -> Result<Option<Process>, String> {
    let path = task.directory.join(".pid");
    let Ok((pid, owner)) = number_in(&path) else {
        return Ok(None);
    };
    // Opened before it is looked at, so that the number can't go to another one.
    let process = match Process::open(pid) {
        Ok(process) if is_server(pid) => process,
        _ => return Ok(None),
    };
    let trusted = task.trusted();
    let shown = path.display();
    if !trusted.has(owner) {
        return Err(format!(
            "{shown} belongs to user {owner}, whom this command does not trust: process {pid} is \
             not stopped\nhint: `kill {pid}`, if it is the server"
        ));
    }
    let users = users_of(pid).map_err(|error| format!("process {pid} of {shown}: {error}"))?;
    match users.into_iter().find(|uid| !trusted.has(*uid)) {
        Some(uid) => Err(format!(
            "process {pid} of {shown} belongs to user {uid}, whom this command does not trust: \
             it is not stopped\nhint: `kill {pid}`, if it is the server"
        )),
        None => Ok(Some(process)),
    }
}

/// The number in a file, and whose the file is. The directory may be another user's, and the name
/// that of a pipe.
fn number_in(path: &Path) -> io::Result<(u32, u32)> {
    const LONGEST: u64 = 32; // longer than any number
    let owner = std::fs::symlink_metadata(path)?.uid();
    let text = read_plain(path, LONGEST)?;
    let pid = std::str::from_utf8(&text)
        .ok()
        .and_then(|text| text.trim().parse().ok());
    let pid = pid.ok_or(io::ErrorKind::InvalidData)?;
    Ok((pid, owner))
}

fn is_server(pid: u32) -> bool {
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm"));
    name.is_ok_and(|name| matches!(name.trim_end(), "pronghorn" | "rr"))
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
