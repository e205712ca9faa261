//! Memory of connections that only wait.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::time::sleep;

use crate::client::idle_connection;
use crate::error::BenchError;
use crate::scenario::Scenario;
use crate::servers::{Adapter, Server};
use crate::site::Site;

/// Connections that wait. Memory may come in huge pages of 2 MB: of fewer connections they would be most of the figure.
const IDLE: u32 = 8000;
/// Opened before the count starts: what comes with the first ones is there already.
const FIRST: u32 = 20;
/// After its last answer a server may still tidy up.
const SETTLE: Duration = Duration::from_millis(500);

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Idle {
    pub(crate) server: String,
    /// Resident, of a server just started and asked once, without PHP.
    pub(crate) rss_bytes: f64,
    /// Growth of the server's resident memory for each connection over which one request was answered.
    pub(crate) connection_bytes: f64,
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
        Ok::<_, BenchError>(memory.server.rss)
    };
    let rss_bytes = memory().await?;
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
        server: adapter.name().to_owned(),
        rss_bytes,
        connection_bytes: (many - few) / f64::from(IDLE),
    })
}
