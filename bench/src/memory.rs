//! Memory of what only waits: the server, connections, workers.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::time::sleep;

use crate::client::idle_connection;
use crate::error::BenchError;
use crate::processes::{Memory, shared};
use crate::program::{Argv, Program};
use crate::scenario::Scenario;
use crate::servers::{Adapter, Server};
use crate::site::{Site, find};

/// Connections that wait. Memory may come in huge pages of 2 MB: of fewer connections they would be
/// most of the figure.
const IDLE: u32 = 8000;
/// Opened before the count starts: what comes with the first ones is there already.
const FIRST: u32 = 20;
/// After its last answer a server may still tidy up.
const SETTLE: Duration = Duration::from_millis(500);

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Idle {
    /// Whose protocol the connections speak.
    #[serde(default = "hello")]
    pub(crate) scenario: String,
    pub(crate) server: String,
    /// Resident, of a server just started and asked once, without PHP.
    pub(crate) rss_bytes: f64,
    /// The part of it that the server has written and shares with nobody.
    #[serde(default)]
    pub(crate) private_bytes: f64,
    /// Growth of the server's resident memory for each connection over which one request was
    /// answered.
    pub(crate) connection_bytes: f64,
}

/// The only one in older files.
fn hello() -> String {
    "hello".to_owned()
}

/// A worker that has answered one request, beside PHP that does nothing.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct IdleWorker {
    pub(crate) server: String,
    /// What it shares with the server.
    pub(crate) box_bytes: f64,
    /// What it has written and shares with nobody.
    pub(crate) private_bytes: f64,
    /// The same of `php` with the same settings and a script that only waits.
    pub(crate) plain_bytes: f64,
}

/// Of one worker; they are alike.
pub(crate) async fn worker(
    adapter: &dyn Adapter,
    scenario: &Scenario,
    site: &Site,
) -> Result<IdleWorker, BenchError> {
    /// As `/proc/<pid>/maps` names it.
    const BOX: &str = "pronghorn-box";
    let server = Server::start(adapter, scenario, site).await?;
    let folder = site.note(server.address);
    Site::make_folder(&folder)?;
    let plain = Argv::new(
        find("php", "php-cli")?,
        [
            "-c".into(),
            site.php_ini().into(),
            "-r".into(),
            "sleep(60);".into(),
        ],
    );
    let plain = Program::start(plain, site, &folder).await?;
    sleep(SETTLE).await;
    let of = |pid: u32| Memory::of(&[pid]).ok_or(BenchError::Changed);
    // The first request went to one of them; it has run our code, and that is what it costs.
    let workers = server.processes().php;
    let mut memory = Vec::new();
    for pid in workers {
        let shared = shared(pid, BOX).ok_or(BenchError::Changed)?;
        memory.push((of(pid)?.private, shared));
    }
    let (private_bytes, box_bytes) = memory
        .into_iter()
        .max_by(|(one, _), (other, _)| one.total_cmp(other))
        .ok_or(BenchError::Changed)?;
    let plain_bytes = of(plain.pid())?.private;
    drop(plain);
    server.stop().await;
    Ok(IdleWorker {
        server: adapter.name().to_owned(),
        box_bytes,
        private_bytes,
        plain_bytes,
    })
}

/// Starts a server of its own for it.
pub(crate) async fn measure(
    adapter: &dyn Adapter,
    scenario: &Scenario,
    site: &Site,
) -> Result<Idle, BenchError> {
    let server = Server::start(adapter, scenario, site).await?;
    let memory = async || {
        sleep(SETTLE).await;
        let memory = server.processes().memory().ok_or(BenchError::Changed)?;
        Ok::<_, BenchError>(memory.server)
    };
    let at_rest = memory().await?;
    let mut connections = Vec::new();
    for _ in 0..FIRST {
        connections.push(idle_connection(server.address, scenario).await?);
    }
    let few = memory().await?;
    for _ in 0..IDLE {
        connections.push(idle_connection(server.address, scenario).await?);
    }
    let many = memory().await?;
    drop(connections);
    server.stop().await;
    Ok(Idle {
        scenario: scenario.name.clone(),
        server: adapter.name().to_owned(),
        rss_bytes: at_rest.rss,
        private_bytes: at_rest.private,
        connection_bytes: (many.rss - few.rss) / f64::from(IDLE),
    })
}
