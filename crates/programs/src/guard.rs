//! A shell that outlives a server which is killed, and ends what its programs have started.
//!
//! The kernel kills the first process of each program then, and does not know the others in its
//! process group. The shell has their numbers, and waits for the end of a pipe that the server
//! holds. What has left its group is out of its reach.

use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use pronghorn_base::with_causes;
use pronghorn_process::{Command, Limits, Process, SpawnError, Spawner, Stream};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use tokio::sync::OnceCell;

use crate::channel::{Channel, record};

/// With words of the shell alone: each process that it started would be one more.
const SCRIPT: &str = r#"trap '' TERM INT HUP
groups=' '
while read -r what group; do
  case $what in
    +) groups="$groups$group " ;;
    -) groups="${groups%% $group *} ${groups#* $group }" ;;
  esac
done
for group in $groups; do kill -9 -"$group"; done"#;

/// The shell; it is started with the first program.
#[derive(Debug)]
pub(crate) struct Guard {
    spawner: Spawner,
    channel: Channel,
    /// None where there is none.
    shell: OnceCell<Option<Shell>>,
}

#[derive(Debug)]
struct Shell {
    pipe: OwnedFd,
    _process: Process,
}

impl Guard {
    pub(crate) fn new(spawner: Spawner, channel: Channel) -> Self {
        Self {
            spawner,
            channel,
            shell: OnceCell::new(),
        }
    }

    /// A program has been started: it leads a process group of its number.
    pub(crate) async fn watch(&self, program: u32) {
        let start = || async {
            let started = Shell::start(&self.spawner).await;
            let told = |error: &SpawnError| {
                let why = with_causes(error);
                record!(
                    self.channel,
                    warn,
                    "if the server is killed, processes that programs have started go on: {why}"
                );
            };
            started.inspect_err(told).ok()
        };
        if let Some(shell) = self.shell.get_or_init(start).await {
            shell.tell('+', program);
        }
    }

    /// It has ended. While it is not reaped, its number is its own.
    pub(crate) fn forget(&self, program: u32) {
        if let Some(Some(shell)) = self.shell.get() {
            shell.tell('-', program);
        }
    }
}

impl Shell {
    async fn start(spawner: &Spawner) -> Result<Self, SpawnError> {
        let command = Command {
            program: "/bin/sh".into(),
            args: vec!["-c".into(), SCRIPT.into(), "pronghorn-guard".into()],
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
        Ok(Self {
            pipe,
            _process: child.process,
        })
    }

    fn tell(&self, what: char, program: u32) {
        let line = format!("{what} {program}\n");
        // Somebody may have ended it; so short a line is written whole or not at all.
        _ = rustix::io::write(&self.pipe, line.as_bytes());
    }
}
