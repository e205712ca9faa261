//! The servers that are compared. An adapter says which programs make up a server that answers a
//! scenario at an address; [`Server`] starts them, finds their processes and stops them.

mod apache;
mod nginx;
mod peer;
mod php;
mod pronghorn;
mod running;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

pub(crate) use nginx::find_fpm;
pub(crate) use peer::Peer;
pub(crate) use running::Server;

use rustix::process::Signal;

use crate::error::BenchError;
use crate::program::Argv;
use crate::scenario::{Scenario, Setup};
use crate::site::Site;

/// The yardstick: what every CPU time is told as a multiple of.
pub(crate) const FLOOR: &str = "nginx";

/// One kind of server.
pub(crate) trait Adapter {
    fn name(&self) -> &str;

    fn kind(&self) -> Kind;

    /// Debian's packages that it needs, for the hint when it does not start.
    fn packages(&self) -> &'static str;

    /// Writes configuration into the place; returns the programs to start, the one that listens
    /// last.
    ///
    /// # Errors
    /// When it is not installed here, or can't serve this scenario.
    fn programs(&self, place: &Place<'_>) -> Result<Vec<Argv>, BenchError>;

    /// What makes it end with all its processes.
    fn stop_signal(&self) -> Signal {
        Signal::TERM
    }

    /// Nobody waits for the programs that it starts, so that their CPU time is in no process's sum.
    fn forgets_children(&self) -> bool {
        false
    }

    /// Where it listens already, when it runs without us.
    fn runs_at(&self) -> Option<SocketAddr> {
        None
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Ours,
    Rival,
    /// Not PHP: what a server costs that does nothing but answer.
    Floor,
}

/// What an adapter works with.
pub(crate) struct Place<'a> {
    pub(crate) site: &'a Site,
    pub(crate) scenario: &'a Scenario,
    pub(crate) address: SocketAddr,
    /// The server's own, removed at the end: configuration, sockets, what the application writes.
    pub(crate) folder: PathBuf,
    /// Where our server tells its metrics, if it is to.
    pub(crate) metrics: Option<SocketAddr>,
}

impl Place<'_> {
    pub(crate) fn app(&self) -> PathBuf {
        Site::app(&self.scenario.app)
    }

    /// A file of the application.
    pub(crate) fn script(&self, name: &str) -> Result<PathBuf, BenchError> {
        let file = self.app().join(name);
        if file.exists() {
            Ok(file)
        } else {
            Err(BenchError::NoScript(file))
        }
    }

    /// The folder that the application shows to the world.
    pub(crate) fn public(&self) -> PathBuf {
        self.app().join("public")
    }

    pub(crate) fn write(&self, name: &str, content: &str) -> Result<PathBuf, BenchError> {
        Site::write(&self.folder.join(name), content)
    }

    pub(crate) fn workers(&self) -> u16 {
        self.scenario.workers
    }

    /// Of this server's PHP.
    pub(crate) fn php_ini(&self) -> PathBuf {
        self.folder.join("php.ini")
    }

    pub(crate) fn setup(&self) -> &Setup {
        &self.scenario.setup
    }
}

/// All that this crate brings.
pub(crate) fn built_in() -> impl Iterator<Item = &'static dyn Adapter> {
    let modes = pronghorn::MODES.iter().map(|mode| mode as &dyn Adapter);
    let roots = pronghorn::ROOTS.iter().map(|root| root as &dyn Adapter);
    let others: [&dyn Adapter; 11] = [
        &pronghorn::HttpAlone,
        &pronghorn::Files,
        &nginx::FromMemory,
        &nginx::FPM,
        &nginx::FPM_KEPT,
        &nginx::FILES,
        &nginx::FILES_CACHED,
        &apache::PHP,
        &apache::CGI,
        &apache::CGID,
        &php::CliServer,
    ];
    modes.chain(roots).chain(others)
}

pub(crate) fn floor() -> &'static dyn Adapter {
    &nginx::FromMemory
}

/// What is not ours is a rival.
pub(crate) fn kind(name: &str) -> Kind {
    let adapter = built_in().find(|adapter| adapter.name() == name);
    adapter.map_or(Kind::Rival, Adapter::kind)
}

/// What scenarios may name.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    built_in()
        .filter(|adapter| adapter.kind() != Kind::Floor)
        .map(Adapter::name)
}

/// The first of the files whose names begin and end so, in a folder.
fn find_file(folder: &Path, start: &str, end: &str) -> Option<PathBuf> {
    let entries = std::fs::read_dir(folder).ok()?;
    let mut files: Vec<PathBuf> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|file| {
            let name = file.file_name().unwrap_or_default().to_string_lossy();
            name.starts_with(start) && name.ends_with(end)
        })
        .collect();
    files.sort();
    files.into_iter().next()
}
