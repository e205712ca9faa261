//! A schedule's command: started beside the server, as its user, with an end to its time and to
//! what is kept of its words.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use pronghorn_base::{lock, with_causes};
use pronghorn_config::{Command, show_duration};
use pronghorn_process::{Command as Process, Credentials, Exit, Mark, Spawner, Stream};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::net::unix::pipe::Receiver;
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::timeout;

use super::Outcome;

/// Lines that are kept of a run, the last ones, and of a line. Twenty runs with them are written at
/// each.
const MOST_LINES: usize = 10;
const LONGEST_LINE: usize = 200;
/// A longer line becomes several.
const LONGEST_READ: u64 = 8 << 10;
/// How long its output is read after its end; all that it wrote is there already.
const AFTER_THE_END: Duration = Duration::from_millis(100);

/// What commands are started with.
#[derive(Clone, Debug)]
pub(crate) struct Surroundings {
    pub(crate) spawner: Spawner,
    pub(crate) folder: PathBuf,
    pub(crate) variables: Vec<(OsString, OsString)>,
    pub(crate) user: Option<Credentials>,
}

/// Its last lines.
#[derive(Clone, Debug, Default)]
struct Tail(Arc<Mutex<VecDeque<String>>>);

impl Surroundings {
    /// Runs a command to its end, or until its time is over: it is killed then. What it has started
    /// ends with it, wherever that has gone; so it is when this is dropped. Returns its last lines
    /// as well.
    pub(super) async fn run(
        &self,
        schedule: &str,
        command: &Command,
        limit: Duration,
    ) -> (Outcome, Vec<String>) {
        let tail = Tail::default();
        let outcome = match self.finish(schedule, command, limit, &tail).await {
            Ok(()) => Outcome::Done,
            Err(why) => Outcome::Failed(why),
        };
        let lines = lock(&tail.0).iter().cloned().collect();
        (outcome, lines)
    }

    async fn finish(
        &self,
        schedule: &str,
        command: &Command,
        limit: Duration,
        tail: &Tail,
    ) -> Result<(), String> {
        let mut started = Started {
            mark: Mark::new(),
            has_ended: false,
        };
        let process = Process {
            program: command.program().into(),
            args: command.arguments().iter().map(OsString::from).collect(),
            env: self.variables.clone(),
            cwd: self.folder.clone(),
            credentials: self.user.clone().filter(|user| !user.is_current()),
            stdin: Stream::Null,
            stdout: Stream::Pipe,
            stderr: Stream::Pipe,
            passed: Vec::new(),
            mark: Some(started.mark),
        };
        let spawned = self.spawner.spawn(process).await;
        let mut child = spawned.map_err(|error| {
            let why = with_causes(&error);
            format!("it can't be started: {why}")
        })?;
        let outputs = [child.stdout.take(), child.stderr.take()];
        let mut readers = JoinSet::new();
        for output in outputs.into_iter().flatten() {
            let output = Receiver::from_owned_fd(output).map_err(|error| error.to_string())?;
            readers.spawn(read(output, schedule.to_owned(), tail.clone()));
        }
        let ended = timeout(limit, child.process.wait_with_group()).await;
        started.end().await;
        let Ok(exit) = ended else {
            let limit = show_duration(limit);
            return Err(format!("it ran for longer than {limit}, and was killed"));
        };
        // What was not to be killed may hold them open: nobody listens to that.
        _ = timeout(AFTER_THE_END, async {
            while readers.join_next().await.is_some() {}
        })
        .await;
        match exit.map_err(|error| error.to_string())? {
            Exit::Code(0) => Ok(()),
            failed => Err(format!("it ended with {failed}")),
        }
    }
}

/// All that a command has started, itself included. Dropped, it is killed.
struct Started {
    mark: Mark,
    has_ended: bool,
}

impl Started {
    /// Kills what is left of it, aside: it looks at all processes.
    async fn end(&mut self) {
        let mark = self.mark;
        let killed = spawn_blocking(move || mark.kill_all()).await;
        self.has_ended = killed.is_ok();
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        if !self.has_ended {
            self.mark.kill_all();
        }
    }
}

/// Reads what it says, line by line, for the log and for the tail.
async fn read(output: Receiver, schedule: String, tail: Tail) {
    let mut output = BufReader::new(output);
    let mut line = Vec::new();
    loop {
        line.clear();
        let mut limited = (&mut output).take(LONGEST_READ);
        if !matches!(limited.read_until(b'\n', &mut line).await, Ok(1..)) {
            return;
        }
        let text = String::from_utf8_lossy(&line);
        let text = text.trim_end();
        tracing::info!(target: "jobs", schedule, "{text}");
        let mut lines = lock(&tail.0);
        if lines.len() == MOST_LINES {
            lines.pop_front();
        }
        lines.push_back(text.chars().take(LONGEST_LINE).collect());
    }
}
