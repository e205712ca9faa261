//! A server that runs: started, found in the process table, stopped.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::time::Duration;

use rustix::process::Signal;
use tokio::time::{Instant, sleep};

use super::{Adapter, Kind, Place, nginx};
use crate::client::{CheckError, check};
use crate::error::BenchError;
use crate::processes::{Processes, listeners};
use crate::program::{Argv, Program};
use crate::scenario::Scenario;
use crate::site::{Site, find, free_address};

/// From a server's start to its first right answer: Laravel's first boot compiles everything.
const START: Duration = Duration::from_secs(20);
/// More, for each worker that boots an application beside the others.
const WORKER_START: Duration = Duration::from_millis(500);
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
    /// What nobody else took of the machine is its programs' CPU time.
    pub(crate) forgets_children: bool,
    /// Where it tells its metrics.
    pub(crate) metrics: Option<SocketAddr>,
    packages: &'static str,
    stop_signal: Signal,
    programs: Vec<Program>,
}

/// Those of the adapter, as the setup wants them.
fn programs(adapter: &dyn Adapter, place: &Place<'_>) -> Result<Vec<Argv>, BenchError> {
    let setup = place.setup();
    let is_ours = adapter.kind() == Kind::Ours;
    let mut programs = if is_ours && setup.behind_nginx {
        let behind = Place {
            address: free_address()?,
            folder: place.folder.clone(),
            ..*place
        };
        place.site.also_note(behind.address);
        let mut programs = adapter.programs(&behind)?;
        programs.push(nginx::in_front_of(place, behind.address)?);
        programs
    } else {
        adapter.programs(place)?
    };
    if is_ours
        && setup.terminal
        && let Some(first) = programs.first_mut()
    {
        *first = first.at_a_terminal(find("script", "bsdutils")?);
    }
    if let Some(processors) = setup.processors {
        let taskset = find("taskset", "util-linux")?;
        for program in &mut programs {
            *program = program.behind(taskset.clone(), ["-c", processors]);
        }
    }
    Ok(programs)
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
            forgets_children: adapter.forgets_children(),
            metrics: None,
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
        if server.kind == Kind::Ours && scenario.setup.metrics {
            server.metrics = Some(free_address()?);
        }
        let place = Place {
            site,
            scenario,
            address: server.address,
            folder: site.note(server.address),
            metrics: server.metrics,
        };
        Site::make_folder(&place.folder)?;
        Site::write_php_ini(&place.php_ini(), &scenario.setup.ini)?;
        if scenario.protocol.is_secure() {
            site.make_certificate().await?;
        }
        let programs = programs(adapter, &place)?;
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
                // While many workers boot, a request waits for the first one of them.
                CheckError::Io(_) | CheckError::NoHttp2(_) | CheckError::Slow => false,
                // nginx answers 502 until php-fpm is there.
                CheckError::Wrong { status, .. } => status < 500,
                CheckError::NoHttp(_) => true,
            };
            let limit = START + WORKER_START * self.scenario.workers.into();
            if is_final || start.elapsed() > limit {
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
