//! `server.on_init`: a command before the first workers, such as a migration.

use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use pronghorn_config::show_duration;
use pronghorn_process::{Command, Credentials, Exit, LookupError, SpawnError, Spawner, Stream};
use thiserror::Error;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::net::unix::pipe::Receiver;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::settings::OnInit;

/// A longer line becomes several records.
const LONGEST_LINE: u64 = 8 << 10;
/// How long its output is read after its end; all that it wrote is there already.
const AFTER_THE_END: Duration = Duration::from_millis(100);

/// Why the command came to nothing. The application's, mostly.
#[derive(Debug, Error)]
pub enum OnInitError {
    #[error("`server.on_init.user` is nobody here")]
    User(#[source] LookupError),
    #[error("it can't be started")]
    Spawn(#[from] SpawnError),
    #[error("it ended with {0}; what it said is in the log")]
    Ended(Exit),
    #[error("it ran for longer than `server.on_init.exec_timeout`, {0}, and was killed")]
    TooLong(String),
    #[error("its output can't be read")]
    Output(#[from] std::io::Error),
}

/// Runs it to its end.
///
/// # Errors
///
/// Those that end the start: a user that nobody is, and with `exit_on_error` any failure.
pub async fn run(
    on_init: &OnInit,
    spawner: &Spawner,
    folder: &Path,
    environment: &[(OsString, OsString)],
    own: Option<&Credentials>,
) -> Result<(), OnInitError> {
    let Some(command) = &on_init.command else {
        return Ok(());
    };
    let named = on_init.user.as_deref();
    let user = named.map(|user| Credentials::look_up(user, None));
    let user = user.transpose().map_err(OnInitError::User)?;
    let mut env = environment.to_vec();
    for (name, value) in on_init.env.iter() {
        env.retain(|(known, _)| known != name);
        env.push((name.into(), value.into()));
    }
    let command = Command {
        program: command.program().into(),
        args: command.arguments().iter().map(OsString::from).collect(),
        env,
        cwd: folder.to_owned(),
        credentials: user
            .or_else(|| own.cloned())
            .filter(|user| !user.is_current()),
        stdin: Stream::Null,
        stdout: Stream::Pipe,
        stderr: Stream::Pipe,
        passed: Vec::new(),
        mark: None,
    };
    tracing::info!(target: "server", "running `server.on_init`");
    match finish(command, spawner, on_init).await {
        Ok(()) => Ok(()),
        Err(error) if on_init.exit_on_error => Err(error),
        Err(error) => {
            let why = std::error::Error::source(&error).map(ToString::to_string);
            tracing::error!(
                target: "server", why,
                "`server.on_init` failed, the server starts nevertheless: {error}"
            );
            Ok(())
        }
    }
}

async fn finish(command: Command, spawner: &Spawner, on_init: &OnInit) -> Result<(), OnInitError> {
    let mut child = spawner.spawn(command).await?;
    let outputs = [child.stdout.take(), child.stderr.take()];
    let mut readers = JoinSet::new();
    for output in outputs.into_iter().flatten() {
        readers.spawn(tell(Receiver::from_owned_fd(output)?));
    }
    let limit = on_init.exec_timeout;
    // Dropped, it is killed with all that it started.
    let Ok(exit) = timeout(limit, child.process.wait()).await else {
        return Err(OnInitError::TooLong(show_duration(limit)));
    };
    // Something that it left running may hold them open: nobody listens to that.
    _ = timeout(AFTER_THE_END, async {
        while readers.join_next().await.is_some() {}
    })
    .await;
    match exit? {
        Exit::Code(0) => Ok(()),
        failed => Err(OnInitError::Ended(failed)),
    }
}

/// Makes records of what it says, line by line.
async fn tell(output: Receiver) {
    let mut output = BufReader::new(output);
    let mut line = Vec::new();
    loop {
        line.clear();
        let mut limited = (&mut output).take(LONGEST_LINE);
        let read = limited.read_until(b'\n', &mut line).await;
        if !matches!(read, Ok(1..)) {
            return;
        }
        let text = String::from_utf8_lossy(&line);
        tracing::info!(target: "server", "on_init: {}", text.trim_end());
    }
}
