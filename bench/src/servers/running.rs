//! A server that runs: started, found in the process table, stopped.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::time::Duration;

use rustix::process::Signal;
use tokio::time::{Instant, sleep};

use super::{Adapter, Kind, Place};
use crate::client::{CheckError, check};
use crate::error::BenchError;
use crate::processes::{Processes, listeners};
use crate::program::Program;
use crate::scenario::Scenario;
use crate::site::{Site, free_address};

/// From a server's start to its first right answer: Laravel's first boot compiles everything.
const START: Duration = Duration::from_secs(20);
/// Between two questions whether it answers. A connection that is refused costs microseconds.
const START_STEP: Duration = Duration::from_millis(1);

pub(crate) struct Server {
    pub(crate) name: String,
    pub(crate) kind: Kind,
    pub(crate) address: SocketAddr,
    /// What it is asked, and has to answer.
    pub(crate) scenario: Scenario,
    /// From its start to its first right answer; `None` when it ran already.
    pub(crate) start: Option<Duration>,
    packages: &'static str,
    stop_signal: Signal,
    programs: Vec<Program>,
}

impl Server {
    /// Returns when it answers as it should.
    pub(crate) async fn start(
        adapter: &dyn Adapter,
        scenario: &Scenario,
        site: &Site,
    ) -> Result<Self, BenchError> {
        let mut server = Self {
            name: adapter.name().to_owned(),
            kind: adapter.kind(),
            address: adapter.runs_at().map_or_else(free_address, Ok)?,
            scenario: scenario.clone(),
            start: None,
            packages: adapter.packages(),
            stop_signal: adapter.stop_signal(),
            programs: Vec::new(),
        };
        if server.kind == Kind::Floor {
            server.scenario.expected = crate::from_memory::expected();
        }
        if adapter.runs_at().is_some() {
            check(server.address, &server.scenario).await?;
            return Ok(server);
        }
        let place = Place {
            site,
            scenario,
            address: server.address,
            folder: site.note(server.address),
        };
        Site::make_folder(&place.folder)?;
        if scenario.protocol.is_secure() {
            site.make_certificate().await?;
        }
        let programs = adapter.programs(&place)?;
        let start = Instant::now();
        for argv in programs {
            let program = Program::start(argv, site, &place.folder).await?;
            server.programs.push(program);
        }
        server.wait(start).await
    }

    async fn wait(mut self, start: Instant) -> Result<Self, BenchError> {
        loop {
            let Err(error) = check(self.address, &self.scenario).await else {
                self.start = Some(start.elapsed());
                return Ok(self);
            };
            if let Some(exit) = self.programs.iter_mut().find_map(Program::ended) {
                return Err(self.not_ready(format!("ended with {exit}")).await);
            }
            let is_final = match error {
                CheckError::Io(_) | CheckError::NoHttp2(_) => false,
                // nginx answers 502 until php-fpm is there.
                CheckError::Wrong { status, .. } => status < 500,
                CheckError::Slow | CheckError::NoHttp(_) => true,
            };
            if is_final || start.elapsed() > START {
                return Err(self.not_ready(error.to_string()).await);
            }
            sleep(START_STEP).await;
        }
    }

    /// Those of today: a server may replace some.
    pub(crate) fn processes(&self) -> Processes {
        let roots: Vec<u32> = match self.start {
            Some(_) => self.programs.iter().map(Program::pid).collect(),
            None => listeners(self.address.port()),
        };
        Processes::below(&roots)
    }

    pub(crate) async fn stop(self) {
        self.end().await;
    }

    async fn not_ready(self, why: String) -> BenchError {
        let packages = self.packages;
        BenchError::NotReady {
            why,
            said: self.end().await,
            packages,
        }
    }

    /// Ends its programs, the one in front first; returns what they said.
    async fn end(self) -> String {
        let mut said = String::new();
        for program in self.programs.into_iter().rev() {
            let program = program.stop(self.stop_signal).await;
            _ = writeln!(said, "{}\n{}", program.stdout(), program.stderr());
        }
        said.trim().to_owned()
    }
}
