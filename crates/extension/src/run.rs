//! Programs of a build, each with an end.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::io::{Read as _, Seek as _};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

use pronghorn_process::{Command, Exit, Limits, SpawnError, Spawner, Stream};
use thiserror::Error;

/// The longest step, `make`, takes ten seconds on a fast machine, and minutes on a small one.
const LONGEST: Duration = Duration::from_mins(10);
/// What a failed step said is shown from here on back.
const SHOWN: usize = 4 << 10;
/// What a step that succeeds says.
const RESERVED: u64 = 64 << 10;
/// A compiler that fails says less.
const MOST_OUTPUT: u64 = 1 << 20;

/// A step that did not succeed.
#[derive(Debug, Error)]
pub enum StepError {
    #[error(transparent)]
    Spawn(#[from] SpawnError),
    #[error("`{step}` failed ({exit})")]
    Failed {
        step: String,
        exit: Exit,
        /// The end of what it said.
        output: String,
    },
    #[error("`{0}` did not end within {LONGEST:?}")]
    TimedOut(String),
    /// The operator's: the folder for temporary files is full, or can't be written.
    #[error("cannot keep what `{0}` says as a temporary file")]
    Output(String, #[source] io::Error),
}

/// Runs a program with this process's environment; what it said on standard output, and on standard
/// error where it is not `quiet`. What is passed becomes its descriptors from 3 on.
pub(crate) async fn run(
    spawner: &Spawner,
    folder: &Path,
    program: &Path,
    args: &[OsString],
    variables: &[(&str, &str)],
    passed: Vec<OwnedFd>,
) -> Result<String, StepError> {
    let step = || {
        let words =
            std::iter::once(program.as_os_str()).chain(args.iter().map(OsString::as_os_str));
        let words: Vec<_> = words.map(|word| word.to_string_lossy()).collect();
        words.join(" ")
    };
    let unread = |error| StepError::Output(step(), error);
    let mut output = temporary().map_err(unread)?;
    let copy = || output.try_clone().map(|file| Stream::File(file.into()));
    let mut env: Vec<_> = std::env::vars_os().collect();
    env.extend(
        variables
            .iter()
            .map(|(name, value)| (name.into(), value.into())),
    );
    let command = Command {
        program: program.into(),
        args: args.to_vec(),
        env,
        cwd: folder.to_owned(),
        credentials: None,
        stdin: Stream::Null,
        stdout: copy().map_err(unread)?,
        stderr: copy().map_err(unread)?,
        passed,
        mark: None,
        overtakes: false,
        limits: Limits::default(),
    };
    let mut child = spawner.spawn(command).await?;
    let Ok(ended) = tokio::time::timeout(LONGEST, child.process.wait()).await else {
        child.process.kill_group();
        return Err(StepError::TimedOut(step()));
    };
    let exit = ended.map_err(unread)?;
    let mut said = Vec::new();
    output.rewind().map_err(unread)?;
    output
        .take(MOST_OUTPUT)
        .read_to_end(&mut said)
        .map_err(unread)?;
    let said = String::from_utf8_lossy(&said).into_owned();
    match exit {
        Exit::Code(0) => Ok(said),
        exit => Err(StepError::Failed {
            step: step(),
            exit,
            output: last_of(&said),
        }),
    }
}

/// A file without a name: it goes with its last descriptor. It has its place on the disk before a
/// program writes: few look at whether that succeeds.
fn temporary() -> io::Result<File> {
    use rustix::fs::{FallocateFlags, Mode, OFlags, fallocate, open};
    use rustix::io::Errno;
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let file = open(std::env::temp_dir(), flags, Mode::RUSR | Mode::WUSR)?;
    match fallocate(&file, FallocateFlags::KEEP_SIZE, 0, RESERVED) {
        Err(error @ Errno::NOSPC) => Err(error.into()),
        _ => Ok(file.into()), // some file systems can't reserve
    }
}

/// The last lines.
fn last_of(said: &str) -> String {
    let from = said.len().saturating_sub(SHOWN);
    let from = (from..said.len()).find(|&at| said.is_char_boundary(at));
    let end = said.get(from.unwrap_or_default()..).unwrap_or_default();
    let whole_lines = end.split_once('\n').filter(|_| end.len() < said.len());
    whole_lines
        .map_or(end, |(_, rest)| rest)
        .trim_end()
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_step_tells_what_it_said_and_how_it_failed() {
        let spawner = Spawner::start().unwrap();
        let sh = Path::new("/bin/sh");
        let folder = std::env::temp_dir();
        let args = |script: &str| ["-c".into(), OsString::from(script)];
        let said = run(
            &spawner,
            &folder,
            sh,
            &args("echo $X; echo b >&2"),
            &[("X", "a")],
            Vec::new(),
        )
        .await;
        assert_eq!(said.unwrap(), "a\nb\n");
        let failed = run(
            &spawner,
            &folder,
            sh,
            &args("echo why; exit 3"),
            &[],
            Vec::new(),
        )
        .await;
        let Err(StepError::Failed {
            exit: Exit::Code(3),
            output,
            ..
        }) = failed
        else {
            panic!("{failed:?}")
        };
        assert_eq!(output, "why");
    }

    #[test]
    fn the_end_of_a_long_output_is_shown_in_whole_lines() {
        let long: Vec<String> = (0..2000).map(|n| format!("é line {n}\n")).collect();
        let long = long.concat();
        let end = last_of(&long);
        assert!(end.len() <= SHOWN && end.starts_with("é line ") && end.ends_with("line 1999"));
        assert_eq!(last_of("short\n"), "short");
    }
}
