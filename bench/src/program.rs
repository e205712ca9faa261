//! A program that was started: what it prints, its end. Killed with its process group when it is
//! dropped.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use pronghorn_process::{Command, Exit, Limits, Process, Stream};
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::error::BenchError;
use crate::site::Site;

/// So much of what a program prints is kept. wrk and strace print a page.
const OUTPUT: usize = 64 << 10;
/// After its end, what a program printed is in the pipe already.
const AFTER_THE_END: Duration = Duration::from_millis(200);
/// How long a program may take to stop when it is asked to.
const STOP: Duration = Duration::from_secs(10);

pub(crate) struct Program {
    process: Process,
    stdout: Output,
    stderr: Output,
    readers: JoinSet<()>,
}

impl Program {
    /// In a folder: what it writes there, and below its `tmp`, goes with the run's.
    pub(crate) async fn start(argv: Argv, site: &Site, folder: &Path) -> Result<Self, BenchError> {
        let mut env: BTreeMap<OsString, OsString> = std::env::vars_os().collect();
        env.insert("TMPDIR".into(), folder.join("tmp").into());
        env.insert("PRONGHORN_APPS_DATA".into(), folder.join("tmp").into());
        env.insert("BENCH_SHARED".into(), site.shared().into());
        // Control sockets.
        env.insert("RUNTIME_DIRECTORY".into(), folder.into());
        if let Some(packages) = &site.packages {
            env.insert("PRONGHORN_COMPAT_DIR".into(), packages.into());
        }
        let command = Command {
            program: argv.0,
            args: argv.1,
            env: env.into_iter().collect(),
            cwd: folder.to_owned(),
            credentials: None,
            stdin: Stream::Null,
            stdout: Stream::Pipe,
            stderr: Stream::Pipe,
            passed: Vec::new(),
            mark: None,
            overtakes: false,
            limits: Limits::default(),
        };
        let child = site.spawner.spawn(command).await?;
        let mut readers = JoinSet::new();
        Ok(Self {
            process: child.process,
            stdout: Output::follow(child.stdout, &mut readers),
            stderr: Output::follow(child.stderr, &mut readers),
            readers,
        })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.pid()
    }

    pub(crate) fn stdout(&self) -> String {
        self.stdout.text()
    }

    pub(crate) fn stderr(&self) -> String {
        self.stderr.text()
    }

    /// How it ended, if it did.
    pub(crate) fn ended(&mut self) -> Option<Exit> {
        self.process.try_wait().ok().flatten()
    }

    /// Waits for its end and all that it printed; false when it takes longer than `limit`.
    pub(crate) async fn finish(&mut self, limit: Duration) -> bool {
        let ended = timeout(limit, self.process.wait()).await.is_ok();
        _ = timeout(AFTER_THE_END, async {
            while self.readers.join_next().await.is_some() {}
        })
        .await;
        ended
    }

    /// Asks it to end, waits; what is still there then is killed as it is dropped.
    pub(crate) async fn stop(mut self, signal: Signal) -> Self {
        // Not reaped as long as it is not known to have ended: the number is its own.
        if self.ended().is_none()
            && let Some(pid) = self.pid().try_into().ok().and_then(Pid::from_raw)
        {
            _ = kill_process(pid, signal); // fails only when it has ended just now
        }
        self.finish(STOP).await;
        self
    }
}

/// A program with its arguments.
pub(crate) struct Argv(pub(crate) OsString, pub(crate) Vec<OsString>);

impl Argv {
    pub(crate) fn new<const N: usize>(
        program: impl Into<OsString>,
        arguments: [OsString; N],
    ) -> Self {
        Self(program.into(), arguments.into())
    }

    /// Started by another program, which becomes this one.
    pub(crate) fn behind<const N: usize>(&self, starter: OsString, options: [&str; N]) -> Self {
        let mut arguments: Vec<OsString> = options.map(OsString::from).into();
        arguments.push(self.0.clone());
        arguments.extend_from_slice(&self.1);
        Self(starter, arguments)
    }

    /// What it prints goes to a terminal, by `script`, which reads it there.
    pub(crate) fn at_a_terminal(&self, script: OsString) -> Self {
        let words = std::iter::once(&self.0).chain(&self.1);
        let quoted: Vec<String> = words
            .map(|word| format!("'{}'", word.to_string_lossy().replace('\'', r"'\''")))
            .collect();
        let command = format!("exec {}", quoted.join(" "));
        Self::new(script, ["-qefc".into(), command.into(), "/dev/null".into()])
    }
}

/// What a program prints, as it comes.
#[derive(Clone, Default)]
struct Output(Arc<Mutex<Vec<u8>>>);

impl Output {
    fn follow(stream: Option<OwnedFd>, readers: &mut JoinSet<()>) -> Self {
        let output = Self::default();
        if let Some(pipe) = stream.and_then(|stream| pipe::Receiver::from_owned_fd(stream).ok()) {
            readers.spawn(output.clone().read(pipe));
        }
        output
    }

    async fn read(self, mut pipe: pipe::Receiver) {
        let mut buffer = vec![0; 8 << 10];
        while let Ok(read @ 1..) = pipe.read(&mut buffer).await {
            let mut text = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let room = OUTPUT.saturating_sub(text.len());
            text.extend(buffer.iter().take(read.min(room)));
        }
    }

    fn text(&self) -> String {
        let text = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&text).trim().to_owned()
    }
}
