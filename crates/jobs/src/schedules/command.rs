//! A schedule's command: started beside the server, as its user, with an end to its time and to
//! what is kept of its words.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use pronghorn_base::{lock, with_causes};
use pronghorn_config::{Command, show_duration};
use pronghorn_launch::{Leftovers, Program, ProgramError};
use pronghorn_process::{Credentials, Spawner};

use super::Outcome;

/// Lines that are kept of a run, the last ones, and of a line. Twenty runs with them are written at
/// each.
const MOST_LINES: usize = 10;
const LONGEST_LINE: usize = 200;

/// What commands are started with.
#[derive(Clone, Debug)]
pub(crate) struct Surroundings {
    pub(crate) spawner: Spawner,
    pub(crate) folder: PathBuf,
    pub(crate) variables: Vec<(OsString, OsString)>,
    pub(crate) user: Option<Credentials>,
}

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
        let program = Program {
            path: command.program().into(),
            arguments: command.arguments().iter().map(OsString::from).collect(),
            environment: self.variables.clone(),
            directory: self.folder.clone(),
            user: self.user.clone(),
            limit,
            leftovers: Leftovers::End,
        };
        let tail = Arc::new(Mutex::new(VecDeque::new()));
        let (schedule, kept) = (schedule.to_owned(), tail.clone());
        let say = move |line: &str| {
            tracing::info!(target: "jobs", schedule, "{line}");
            let mut lines = lock(&kept);
            if lines.len() == MOST_LINES {
                lines.pop_front();
            }
            lines.push_back(line.chars().take(LONGEST_LINE).collect());
        };
        let outcome = match program.run(&self.spawner, say).await {
            Ok(()) => Outcome::Done,
            Err(ProgramError::TooLong) => {
                let limit = show_duration(limit);
                Outcome::Failed(format!("it ran for longer than {limit}, and was killed"))
            }
            Err(error) => Outcome::Failed(with_causes(&error)),
        };
        let lines = lock(&tail).iter().cloned().collect();
        (outcome, lines)
    }
}
