//! A shell that outlives a server which is killed, and ends what its programs have started.
//!
//! The kernel kills the first process of each program then, and does not know the others in its
//! process group. The shell has their numbers, and waits for the end of a pipe that the server
//! holds. What has left its group is out of its reach.
//!
//! Somebody may end the shell: then another one follows, which is told of all groups.

use std::collections::BTreeSet;
use std::future::poll_fn;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use pronghorn_base::{Backoff, lock, with_causes};
use pronghorn_process::{Command, Limits, Process, SpawnError, Spawner, Stream};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use tokio::sync::{Notify, OnceCell};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::channel::{Channel, record};

/// With words of the shell alone: each process that it started would be one more.
const SCRIPT: &str = r#"trap '' TERM INT HUP
groups=" $* "
while read -r what group; do
  case $what in
    +) groups="$groups$group " ;;
    -) groups="${groups%% $group *} ${groups#* $group }" ;;
  esac
done
for group in $groups; do kill -9 -"$group"; done"#;

/// Waits before the next shell where one ends again and again.
const FIRST_WAIT: Duration = Duration::from_millis(100);
const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// The shell; the first one is started with the first program.
#[derive(Debug)]
pub(crate) struct Guard {
    spawner: Spawner,
    channel: Channel,
    watched: Arc<Watched>,
    /// The task that keeps a shell there; it ends with this.
    keeper: OnceCell<JoinSet<()>>,
}

/// Groups that the shell is to know, and the pipe by which it is told.
#[derive(Debug, Default)]
struct Watched {
    state: Mutex<ShellState>,
    fell_behind: Notify,
}

#[derive(Debug, Default)]
struct ShellState {
    groups: BTreeSet<u32>,
    /// None while there is no shell.
    pipe: Option<OwnedFd>,
    /// The shell has not taken all that it was told.
    is_behind: bool,
}

impl Guard {
    pub(crate) fn new(spawner: Spawner, channel: Channel) -> Self {
        Self {
            spawner,
            channel,
            watched: Arc::default(),
            keeper: OnceCell::new(),
        }
    }

    /// A program has been started: it leads a process group of its number.
    pub(crate) async fn watch(&self, program: u32) -> Group {
        self.watched.add(program);
        let group = Group {
            watched: self.watched.clone(),
            number: program,
        };
        let start = || async {
            let started = start_shell(&self.spawner, &self.watched, self.channel, false).await;
            let (spawner, watched) = (self.spawner.clone(), self.watched.clone());
            let keeping = keep_shell(started, spawner, watched, self.channel);
            let mut keeper = JoinSet::new();
            keeper.spawn(keeping);
            keeper
        };
        self.keeper.get_or_init(start).await;
        group
    }
}

/// A process group that the shell knows. To be dropped when its program has ended and is not
/// reaped: after that, its number may be anybody's.
#[derive(Debug)]
pub(crate) struct Group {
    watched: Arc<Watched>,
    number: u32,
}

impl Drop for Group {
    fn drop(&mut self) {
        self.watched.remove(self.number);
    }
}

impl Watched {
    fn add(&self, group: u32) {
        let mut state = lock(&self.state);
        state.groups.insert(group);
        self.tell(&mut state, '+', group);
    }

    fn remove(&self, group: u32) {
        let mut state = lock(&self.state);
        if state.groups.remove(&group) {
            self.tell(&mut state, '-', group);
        }
    }

    fn groups(&self) -> BTreeSet<u32> {
        lock(&self.state).groups.clone()
    }

    /// From now on, this pipe leads to a shell that knows these groups.
    fn begin(&self, pipe: OwnedFd, known: &BTreeSet<u32>) {
        let mut state = lock(&self.state);
        state.pipe = Some(pipe);
        state.is_behind = false;
        let added: Vec<u32> = state.groups.difference(known).copied().collect();
        let removed: Vec<u32> = known.difference(&state.groups).copied().collect();
        for group in added {
            self.tell(&mut state, '+', group);
        }
        for group in removed {
            self.tell(&mut state, '-', group);
        }
    }

    /// Returns when the shell has not taken all that it was told.
    async fn is_behind(&self) {
        while !lock(&self.state).is_behind {
            self.fell_behind.notified().await;
        }
    }

    fn end(&self) {
        lock(&self.state).pipe = None;
    }

    /// So short a line is written whole or not at all.
    fn tell(&self, state: &mut ShellState, what: char, group: u32) {
        let Some(pipe) = &state.pipe else {
            return; // the next shell is told
        };
        let line = format!("{what} {group}\n");
        if rustix::io::write(pipe, line.as_bytes()).is_err() {
            state.is_behind = true;
            self.fell_behind.notify_one();
        }
    }
}

/// Starts another shell whenever one has ended.
async fn keep_shell(
    mut shell: Option<Process>,
    spawner: Spawner,
    watched: Arc<Watched>,
    channel: Channel,
) {
    let mut backoff = Backoff::new(FIRST_WAIT, LONGEST_WAIT);
    loop {
        let was_told = shell.is_none();
        if let Some(process) = &mut shell {
            let since = Instant::now();
            tokio::select! {
                _ = poll_fn(|cx| process.poll_exit(cx)) => {}
                // Somebody has stopped it: the groups that it knows are out of date, and their
                // numbers may be used again.
                () = watched.is_behind() => process.kill_group(),
            }
            watched.end();
            let ended = process.wait().await;
            let how = ended.map_or_else(|error| error.to_string(), |exit| exit.to_string());
            backoff.succeeded_for(since.elapsed());
            record!(
                channel,
                warn,
                "`pronghorn-guard` has ended with {how}: another one is started"
            );
        }
        sleep(backoff.next_wait()).await;
        shell = start_shell(&spawner, &watched, channel, was_told).await;
    }
}

/// None if no shell can be started, after a record.
async fn start_shell(
    spawner: &Spawner,
    watched: &Watched,
    channel: Channel,
    was_told: bool,
) -> Option<Process> {
    let known = watched.groups();
    let started = start(spawner, &known).await;
    let told = |error: &SpawnError| {
        // Tries go on while the server runs: one record for all of them.
        if was_told {
            return;
        }
        let why = with_causes(error);
        record!(
            channel,
            warn,
            "if the server is killed, processes that programs have started go on: {why}"
        );
    };
    let (process, pipe) = started.inspect_err(told).ok()?;
    watched.begin(pipe, &known);
    Some(process)
}

async fn start(
    spawner: &Spawner,
    groups: &BTreeSet<u32>,
) -> Result<(Process, OwnedFd), SpawnError> {
    let mut args = vec!["-c".into(), SCRIPT.into(), "pronghorn-guard".into()];
    args.extend(groups.iter().map(|group| group.to_string().into()));
    let command = Command {
        program: "/bin/sh".into(),
        args,
        env: Vec::new(),
        cwd: PathBuf::from("/"),
        credentials: None,
        stdin: Stream::Pipe,
        stdout: Stream::Null,
        stderr: Stream::Null,
        passed: Vec::new(),
        mark: None,
        overtakes: false,
        limits: Limits::default(),
    };
    let failed = |source: io::Error| SpawnError::Failed {
        program: "/bin/sh".to_owned(),
        source,
    };
    let mut child = spawner.spawn(command).await?;
    let pipe = child.stdin.take();
    let pipe = pipe.ok_or_else(|| failed(io::ErrorKind::BrokenPipe.into()))?;
    // A shell that somebody has stopped is not waited for.
    let flags = fcntl_getfl(&pipe).map(|flags| flags | OFlags::NONBLOCK);
    let set = flags.and_then(|flags| fcntl_setfl(&pipe, flags));
    set.map_err(|error| failed(error.into()))?;
    Ok((child.process, pipe))
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::CommandExt as _;

    use pronghorn_testkit::wait_for;
    use rustix::process::{Pid, Signal, kill_process, test_kill_process_group};

    use super::*;

    /// A process that leads a group.
    fn group() -> std::process::Child {
        let mut sleep = std::process::Command::new("sleep");
        sleep.arg("1000").process_group(0).spawn().unwrap()
    }

    fn shell(guard: &Guard, before: Option<u32>) -> u32 {
        let own = std::process::id().to_string();
        wait_for("the shell", || {
            let entries = std::fs::read_dir("/proc").unwrap().flatten();
            let mut pids = entries.filter_map(|it| it.file_name().to_str()?.parse::<u32>().ok());
            let has_pipe = lock(&guard.watched.state).pipe.is_some();
            pids.find(|pid| {
                let read = |file| std::fs::read_to_string(format!("/proc/{pid}/{file}"));
                let is_shell = read("cmdline").is_ok_and(|it| it.contains("pronghorn-guard"));
                let stat = read("stat").unwrap_or_default();
                let rest = stat
                    .rsplit_once(") ")
                    .map(|(_, rest)| rest)
                    .unwrap_or_default();
                is_shell && rest.split(' ').nth(1) == Some(&own) && !rest.starts_with('Z')
            })
            .filter(|pid| has_pipe && Some(*pid) != before)
        })
    }

    /// The test closes the server's end of the pipe: the shell kills the groups that it knows then.
    #[tokio::test(flavor = "multi_thread")]
    async fn a_shell_that_was_killed_or_stopped_is_followed_by_one_that_knows_all() {
        let guard = Guard::new(Spawner::start().unwrap(), Channel::Service);
        let (mut kept, mut gone) = (group(), group());
        let _kept = guard.watch(kept.id()).await;
        let left = guard.watch(gone.id()).await;
        let raw = |pid: u32| Pid::from_raw(pid.cast_signed()).unwrap();
        let first = shell(&guard, None);
        kill_process(raw(first), Signal::KILL).unwrap();
        drop(left);
        let second = shell(&guard, Some(first));
        kill_process(raw(second), Signal::STOP).unwrap();
        // More than a pipe holds.
        for number in 0..20_000 {
            guard.watched.add(1_000_000_000 + number);
            guard.watched.remove(1_000_000_000 + number);
        }
        shell(&guard, Some(second));
        let pipe = lock(&guard.watched.state).pipe.take();
        drop(pipe);
        let ended = wait_for("the end of the group", || kept.try_wait().unwrap());
        assert!(!ended.success());
        test_kill_process_group(raw(gone.id())).expect("nobody ends what has left");
        gone.kill().unwrap();
        gone.wait().unwrap();
    }
}
