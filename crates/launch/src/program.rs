//! A program that runs to its end beside the workers: a migration before the first ones, a
//! schedule's command.
//!
//! Has an end to its time and to the length of its lines. Knows nothing of what it is for.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use pronghorn_process::{Command, Credentials, Exit, Mark, SpawnError, Spawner, Stream};
use thiserror::Error;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::net::unix::pipe::Receiver;
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::timeout;

/// A longer line is told in several.
const LONGEST_LINE: u64 = 8 << 10;
/// How long its output is read after its end: all that it wrote is there already.
const AFTER_THE_END: Duration = Duration::from_millis(100);

/// A program before its start.
#[derive(Debug)]
pub struct Program {
    pub path: OsString,
    pub arguments: Vec<OsString>,
    /// The whole environment: nothing is inherited.
    pub environment: Vec<(OsString, OsString)>,
    pub directory: PathBuf,
    /// As whom it runs; the server's user when it is none.
    pub user: Option<Credentials>,
    /// After this time it is killed.
    pub limit: Duration,
    pub leftovers: Leftovers,
}

/// The fate of processes that it leaves running.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leftovers {
    /// They go on.
    Stay,
    /// They are killed at its end, wherever they have gone.
    End,
}

/// Why a program came to nothing.
#[derive(Debug, Error)]
pub enum ProgramError {
    /// The operator's.
    #[error("it can't be started")]
    Spawn(#[from] SpawnError),
    /// The program's.
    #[error("it ended with {0}")]
    Ended(Exit),
    #[error("it ran for longer than it may, and was killed")]
    TooLong,
    #[error("its output can't be read")]
    Output(#[from] io::Error),
}

impl Program {
    /// Runs it until it ends, and gives each line of its output to `say`. Dropped, it is killed.
    ///
    /// # Errors
    ///
    /// When it does not end by itself, in time and with 0.
    pub async fn run(
        self,
        spawner: &Spawner,
        say: impl Fn(&str) + Clone + Send + 'static,
    ) -> Result<(), ProgramError> {
        let mut started = match self.leftovers {
            Leftovers::Stay => None,
            Leftovers::End => Some(Started::new()),
        };
        let (limit, leftovers) = (self.limit, self.leftovers);
        let command = self.command(started.as_ref().map(|started| started.mark));
        let mut child = spawner.spawn(command).await?;
        let outputs = [child.stdout.take(), child.stderr.take()];
        let mut readers = JoinSet::new();
        for output in outputs.into_iter().flatten() {
            readers.spawn(read(Receiver::from_owned_fd(output)?, say.clone()));
        }
        let ended = match leftovers {
            Leftovers::Stay => timeout(limit, child.process.wait()).await,
            Leftovers::End => timeout(limit, child.process.wait_with_group()).await,
        };
        if let Some(started) = &mut started {
            started.end().await;
        }
        let exit = ended.map_err(|_| ProgramError::TooLong)?;
        // Something that still runs may hold them open: nobody listens to that.
        _ = timeout(AFTER_THE_END, async {
            while readers.join_next().await.is_some() {}
        })
        .await;
        match exit? {
            Exit::Code(0) => Ok(()),
            failed @ (Exit::Code(_) | Exit::Signal(_)) => Err(ProgramError::Ended(failed)),
        }
    }

    fn command(self, mark: Option<Mark>) -> Command {
        Command {
            program: self.path,
            args: self.arguments,
            env: self.environment,
            cwd: self.directory,
            credentials: self.user.filter(|user| !user.is_current()),
            stdin: Stream::Null,
            stdout: Stream::Pipe,
            stderr: Stream::Pipe,
            passed: Vec::new(),
            mark,
            overtakes: false,
        }
    }
}

/// All that a program has started, itself included. Dropped, it is killed.
struct Started {
    mark: Mark,
    has_ended: bool,
}

impl Started {
    fn new() -> Self {
        Self {
            mark: Mark::new(),
            has_ended: false,
        }
    }

    /// Kills what is left of it, beside this thread: it looks at all processes.
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

async fn read(output: Receiver, say: impl Fn(&str)) {
    let mut output = BufReader::new(output);
    let mut line = Vec::new();
    loop {
        line.clear();
        let mut limited = (&mut output).take(LONGEST_LINE);
        if !matches!(limited.read_until(b'\n', &mut line).await, Ok(1..)) {
            return;
        }
        say(String::from_utf8_lossy(&line).trim_end());
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use pronghorn_base::lock;
    use pronghorn_testkit::Directory;

    use super::*;

    /// Longer than any of these takes.
    const SOON: Duration = Duration::from_secs(60);

    fn shell(script: &str, directory: &Directory, limit: Duration) -> Program {
        Program {
            path: "/bin/sh".into(),
            arguments: vec!["-c".into(), script.into()],
            environment: vec![
                ("PATH".into(), "/usr/bin:/bin".into()),
                ("WORD".into(), "said".into()),
            ],
            directory: directory.to_path_buf(),
            user: None,
            limit,
            leftovers: Leftovers::End,
        }
    }

    async fn run(program: Program) -> (Result<(), ProgramError>, Vec<String>) {
        let lines = Arc::new(Mutex::new(Vec::new()));
        let told = lines.clone();
        let say = move |line: &str| lock(&told).push(line.to_owned());
        let ended = program.run(&Spawner::start().unwrap(), say).await;
        let lines = lock(&lines).clone();
        (ended, lines)
    }

    #[tokio::test]
    async fn it_has_its_environment_its_directory_and_no_input() {
        let directory = Directory::with(&[("here", "found\n")]);
        let script = "echo $WORD; cat here >&2; cat; env | grep -c HOME";
        let (ended, mut lines) = run(shell(script, &directory, SOON)).await;
        lines.sort(); // its two outputs are read at once
        assert_eq!(lines, ["0", "found", "said"]);
        assert!(
            matches!(ended, Err(ProgramError::Ended(Exit::Code(1)))),
            "{ended:?}"
        );
    }

    #[tokio::test]
    async fn a_long_line_becomes_several_and_the_last_one_needs_no_end() {
        let script = "head -c 20000 /dev/zero | tr '\\0' x; printf '\\nlast'";
        let (ended, lines) = run(shell(script, &Directory::new(), SOON)).await;
        ended.unwrap();
        let lengths: Vec<_> = lines.iter().map(String::len).collect();
        assert_eq!(lengths, [8192, 8192, 20000 - 2 * 8192, 4]);
    }

    #[tokio::test]
    async fn one_that_takes_too_long_is_killed_with_all_that_it_started() {
        let directory = Directory::new();
        let script = "setsid sleep 1000 & echo $! > pid; echo begun; sleep 1000";
        let (ended, lines) = run(shell(script, &directory, Duration::from_millis(500))).await;
        assert!(matches!(ended, Err(ProgramError::TooLong)), "{ended:?}");
        assert_eq!(lines, ["begun"]);
        let pid = directory.read("pid").trim().parse().unwrap();
        let pid = rustix::process::Pid::from_raw(pid).unwrap();
        pronghorn_testkit::wait_for("the end of what it started", || {
            rustix::process::test_kill_process(pid)
                .is_err()
                .then_some(())
        });
    }

    #[tokio::test]
    async fn what_is_to_stay_goes_on() {
        let directory = Directory::new();
        let script = "sleep 1000 > /dev/null 2>&1 & echo $! > pid";
        let program = Program {
            leftovers: Leftovers::Stay,
            ..shell(script, &directory, SOON)
        };
        run(program).await.0.unwrap();
        let pid = directory.read("pid").trim().parse().unwrap();
        let pid = rustix::process::Pid::from_raw(pid).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("it is there");
    }

    #[tokio::test]
    async fn one_that_is_not_there_is_not_started() {
        let program = Program {
            path: "/nowhere/program".into(),
            ..shell("", &Directory::new(), SOON)
        };
        let (ended, lines) = run(program).await;
        assert!(matches!(ended, Err(ProgramError::Spawn(_))), "{ended:?}");
        assert_eq!(lines, [""; 0]);
    }
}
