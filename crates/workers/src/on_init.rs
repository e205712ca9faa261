//! `server.on_init`: a command before the first workers, such as a migration.

use std::ffi::OsString;
use std::path::Path;

use pronghorn_base::with_causes;
use pronghorn_config::show_duration;
use pronghorn_launch::{Leftovers, Program, ProgramError};
use pronghorn_process::{Credentials, Exit, LookupError, SpawnError, Spawner};
use thiserror::Error;

use crate::settings::OnInit;

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
    let limit = on_init.exec_timeout;
    let program = Program {
        path: command.program().into(),
        arguments: command.arguments().iter().map(OsString::from).collect(),
        environment: env,
        directory: folder.to_owned(),
        user: user.or_else(|| own.cloned()),
        limit,
        leftovers: Leftovers::Stay,
    };
    tracing::info!(target: "server", "running `server.on_init`");
    let say = |line: &str| tracing::info!(target: "server", "on_init: {line}");
    let ended = program
        .run(spawner, say)
        .await
        .map_err(|error| match error {
            ProgramError::Spawn(error) => OnInitError::Spawn(error),
            ProgramError::Ended(exit) => OnInitError::Ended(exit),
            ProgramError::TooLong => OnInitError::TooLong(show_duration(limit)),
            ProgramError::Output(error) => OnInitError::Output(error),
        });
    match ended {
        Ok(()) => Ok(()),
        Err(error) if on_init.exit_on_error => Err(error),
        Err(error) => {
            let why = std::error::Error::source(&error).map(with_causes);
            tracing::error!(
                target: "server", why,
                "`server.on_init` failed, the server starts nevertheless: {error}"
            );
            Ok(())
        }
    }
}
