//! A program that runs beside the workers: to its end, as a migration before the first ones and a
//! schedule's command, or for as long as its owner wishes.
//!
//! Has an end to its time and to the length of its lines. Knows nothing of what it is for.

use std::ffi::OsString;
use std::future::poll_fn;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use pronghorn_base::BoxFuture;
use pronghorn_process::{
    Command, Credentials, Exit, Limits, Mark, NamedSignal, Process, SpawnError, Spawner, Stream,
    Sweeper,
};
use thiserror::Error;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::process_output::{ProcessOutput, finish};

/// A longer line is told in several.
const LONGEST_LINE: u64 = 8 << 10;
/// How long a program that was killed is waited for: it ends at once, but for one that waits for a
/// disk.
const AFTER_THE_KILL: Duration = Duration::from_secs(2);

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

/// One of a program's two outputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputStream {
    Out,
    Err,
}

/// A line of a program, with its end; of a long one a part.
#[derive(Clone, Copy, Debug)]
pub struct SaidLine<'a> {
    pub pid: u32,
    pub stream: OutputStream,
    pub line: &'a [u8],
}

/// Hears what a program says.
pub trait Hear: Clone + Send + Sync + 'static {
    fn hear(&self, said: SaidLine<'_>);

    /// The program waits for this until it can say more.
    fn waits_for(&self) -> Option<BoxFuture<'_, ()>> {
        None
    }
}

impl<F: Fn(SaidLine<'_>) + Clone + Send + Sync + 'static> Hear for F {
    fn hear(&self, said: SaidLine<'_>) {
        self(said);
    }
}

impl OutputStream {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Out => "stdout",
            Self::Err => "stderr",
        }
    }
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
        say: impl Fn(&str) + Clone + Send + Sync + 'static,
    ) -> Result<(), ProgramError> {
        let limit = self.limit;
        let hear = move |said: SaidLine<'_>| say(String::from_utf8_lossy(said.line).trim_end());
        let running = self.start(spawner, Limits::default(), hear).await?;
        let Ok(ended) = timeout(limit, running.ended()).await else {
            running.kill();
            // One that the kernel can't end is left to itself.
            _ = timeout(AFTER_THE_KILL, running.finish()).await;
            return Err(ProgramError::TooLong);
        };
        ended?;
        match running.finish().await?.exit {
            Exit::Code(0) => Ok(()),
            failed @ (Exit::Code(_) | Exit::Signal(_)) => Err(ProgramError::Ended(failed)),
        }
    }

    /// Starts it, and gives each line of its output with its end to `hear`. The limit of its time
    /// is the caller's to keep.
    ///
    /// # Errors
    ///
    /// When it can't be started.
    pub async fn start(
        self,
        spawner: &Spawner,
        limits: Limits,
        hear: impl Hear,
    ) -> Result<RunningProgram, ProgramError> {
        let leftovers = self.leftovers;
        let started = match leftovers {
            Leftovers::Stay => None,
            Leftovers::End => Some(Started::new(spawner.sweeper())),
        };
        let command = self.command(started.as_ref().map(|started| started.mark), limits);
        let mut child = spawner.spawn(command).await?;
        let outputs = [
            (OutputStream::Out, child.stdout.take()),
            (OutputStream::Err, child.stderr.take()),
        ];
        let (mut readers, end) = (JoinSet::new(), CancellationToken::new());
        for (stream, output) in outputs {
            if let Some(output) = output {
                let pid = child.process.pid();
                let output = ProcessOutput::new(output, &end)?;
                readers.spawn(read(output, pid, stream, hear.clone()));
            }
        }
        Ok(RunningProgram {
            process: child.process,
            started,
            readers,
            end,
        })
    }

    fn command(self, mark: Option<Mark>, limits: Limits) -> Command {
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
            limits,
        }
    }
}

/// A program that was started. Dropped, it is killed, with what it has left where that is to end.
#[derive(Debug)]
pub struct RunningProgram {
    process: Process,
    started: Option<Started>,
    readers: JoinSet<()>,
    /// It has ended.
    end: CancellationToken,
}

/// How a program came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    pub exit: Exit,
    /// Processes that it had left running, and that were killed.
    pub left: usize,
    /// The most resident memory that it ever had, in bytes.
    pub peak_memory: Option<u64>,
}

impl RunningProgram {
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Waits until it has ended; [`finish`](Self::finish) is to follow. Cancel safe.
    ///
    /// # Errors
    ///
    /// When the kernel can't tell.
    pub async fn ended(&self) -> io::Result<()> {
        poll_fn(|cx| self.process.poll_exit(cx)).await.map(|_| ())
    }

    /// Sends a signal to it, or to its whole process group.
    pub fn signal(&self, signal: NamedSignal, group: bool) {
        if group {
            self.process.send_to_group(signal);
        } else {
            self.process.send(signal);
        }
    }

    /// Whether this process is the program itself, or was started by it or by what it has started.
    /// It has to be there still.
    pub fn has_started(&self, pid: u32) -> bool {
        let is_marked = |started: &Started| started.mark.is_on(pid);
        pid == self.pid() || self.started.as_ref().is_some_and(is_marked)
    }

    /// Kills it and its process group. What has left that is killed by [`finish`](Self::finish).
    pub fn kill(&self) {
        self.process.kill_group();
    }

    /// Waits for its end, kills what it has left, and hears the rest of what it said.
    ///
    /// # Errors
    ///
    /// When the kernel can't tell how it has ended.
    pub async fn finish(mut self) -> io::Result<Ended> {
        self.ended().await?;
        let mut left = 0;
        let exit = match &mut self.started {
            None => self.process.wait().await,
            Some(started) => {
                left = started.end().await;
                // As long as it is not reaped, its group is its own.
                self.process.wait_with_group().await
            }
        };
        finish(&mut self.readers, &self.end).await;
        Ok(Ended {
            exit: exit?,
            left,
            peak_memory: self.process.peak_memory(),
        })
    }
}

/// All that a program has started, itself included. Dropped, it is killed, beside this thread.
#[derive(Debug)]
struct Started {
    mark: Mark,
    sweeper: Sweeper,
    has_ended: bool,
}

impl Started {
    fn new(sweeper: &Sweeper) -> Self {
        Self {
            mark: Mark::new(),
            sweeper: sweeper.clone(),
            has_ended: false,
        }
    }

    /// Kills what is left of it. Says how many processes those were.
    async fn end(&mut self) -> usize {
        let killed = self.sweeper.sweep(self.mark).await;
        self.has_ended = killed.is_ok();
        killed.unwrap_or_default()
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        if !self.has_ended {
            drop(self.sweeper.sweep(self.mark));
        }
    }
}

/// Lines after which others on the thread have a turn.
const LINES_OF_A_TURN: u64 = 64;

async fn read(output: ProcessOutput, pid: u32, stream: OutputStream, hear: impl Hear) {
    let tell = |line: &[u8]| hear.hear(SaidLine { pid, stream, line });
    let mut output = BufReader::new(output);
    let mut line = Vec::new();
    for number in 1_u64.. {
        // Many short lines are in one buffer: whoever prints them as fast as it can takes turns.
        if number.is_multiple_of(LINES_OF_A_TURN) {
            tokio::task::yield_now().await;
        }
        let longest = LONGEST_LINE.saturating_sub(line.len() as u64);
        let mut limited = (&mut output).take(longest);
        if !matches!(limited.read_until(b'\n', &mut line).await, Ok(1..)) {
            if !line.is_empty() {
                tell(&line);
            }
            return;
        }
        let begun = begun_character(&line);
        let whole = line.len() - begun;
        tell(line.get(..whole).unwrap_or_default());
        line.drain(..whole);
        if let Some(room) = hear.waits_for() {
            room.await;
        }
    }
}

/// The number of bytes at the end that begin a character: a long line is cut before it.
fn begun_character(line: &[u8]) -> usize {
    let tail = line.get(line.len().saturating_sub(3)..).unwrap_or_default();
    let first = tail.iter().rposition(|byte| byte & 0xC0 == 0xC0);
    let begun = first
        .and_then(|first| tail.get(first..))
        .unwrap_or_default();
    match std::str::from_utf8(begun) {
        Err(error) if error.error_len().is_none() => begun.len(),
        _ => 0,
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
    async fn a_long_line_is_cut_between_characters() {
        let script = "head -c 20000 /dev/zero | tr '\\0' x | sed 's/x/xé/g'";
        let (ended, lines) = run(shell(script, &Directory::new(), SOON)).await;
        ended.unwrap();
        let all = lines.concat();
        assert_eq!(all.chars().count(), 40_000);
        assert!(!all.contains(char::REPLACEMENT_CHARACTER));
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

    /// Hears a line in a second.
    #[derive(Clone)]
    struct SlowHearer(Arc<Mutex<Vec<Vec<u8>>>>);

    impl Hear for SlowHearer {
        fn hear(&self, said: SaidLine<'_>) {
            lock(&self.0).push(said.line.to_vec());
        }

        fn waits_for(&self) -> Option<BoxFuture<'_, ()>> {
            Some(Box::pin(tokio::time::sleep(Duration::from_secs(1))))
        }
    }

    #[tokio::test(start_paused = true)]
    async fn last_words_are_heard_however_long_that_takes() {
        let script = "printf '1\n2\n3\n4'; sleep 1000 &";
        let (heard, directory) = (SlowHearer(Arc::default()), Directory::new());
        let program = Program {
            leftovers: Leftovers::Stay,
            ..shell(script, &directory, SOON)
        };
        let spawner = Spawner::start().unwrap();
        let running = program.start(&spawner, Limits::default(), heard.clone());
        let running = running.await.unwrap();
        let group = rustix::process::Pid::from_raw(running.pid().cast_signed()).unwrap();
        running.finish().await.unwrap();
        let heard = lock(&heard.0).concat();
        assert_eq!(heard, b"1\n2\n3\n4");
        rustix::process::kill_process_group(group, rustix::process::Signal::KILL)
            .expect("it goes on");
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
