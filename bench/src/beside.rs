//! What runs beside all servers of a scenario, such as a database: a program `beside` of the
//! application. It says `ready`, and runs until it is stopped.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::error::BenchError;
use crate::processes::Processes;
use crate::program::{Argv, Program};
use crate::scenario::Scenario;
use crate::site::Site;

/// A database has to be made first.
const START: Duration = Duration::from_secs(120);
const START_STEP: Duration = Duration::from_millis(50);

/// Stopped with its processes when it is dropped.
pub(crate) struct Beside(Option<Program>);

impl Beside {
    /// Returns when it is ready, at once if the application has none.
    ///
    /// # Errors
    /// When it ends instead, or takes too long.
    pub(crate) async fn start(scenario: &Scenario, site: &Site) -> Result<Self, BenchError> {
        let file = Site::app(&scenario.app).join("beside");
        if !file.exists() {
            return Ok(Self(None));
        }
        let folder = site.shared().join(&scenario.app);
        if !folder.exists() {
            Site::make_folder(&folder)?;
        }
        let mut program = Program::start(Argv::new(&file, []), site, &folder).await?;
        let start = Instant::now();
        while !has_said_ready(&program.stdout()) {
            if program.ended().is_some() || start.elapsed() > START {
                return Err(BenchError::NotReady {
                    why: format!("{} did not say `ready`", file.display()),
                    said: format!("{}\n{}", program.stdout(), program.stderr()),
                    packages: "wordpress wordpress-theme-twentytwentythree mariadb-server-core",
                });
            }
            sleep(START_STEP).await;
        }
        Ok(Self(Some(program)))
    }

    /// CPU time since its start, which is neither a server's nor that of others.
    pub(crate) fn cpu(&self) -> Duration {
        let Some(program) = &self.0 else {
            return Duration::ZERO;
        };
        Processes::below(&[program.pid()]).cpu().sum()
    }

    pub(crate) async fn stop(self) {
        if let Some(program) = self.0 {
            program.stop(rustix::process::Signal::TERM).await;
        }
    }
}

fn has_said_ready(said: &str) -> bool {
    said.lines().any(|line| line == "ready")
}
