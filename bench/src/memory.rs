//! Memory: of a server at rest, and of connections that only wait.

use std::time::Duration;

use serde::Serialize;
use tokio::time::sleep;

use crate::client::idle_connection;
use crate::error::BenchError;
use crate::processes::Memory;
use crate::rows::{Row, Server};
use crate::site::Site;

/// Connections that wait. Memory may come in huge pages of 2 MB: of fewer connections they would be most of the figure.
const IDLE: u32 = 8000;
/// Opened before the count starts: what comes with the first ones is there already.
const FIRST: u32 = 20;
/// After its last answer a server may still tidy up.
const SETTLE: Duration = Duration::from_millis(500);

/// Bytes, of a server that has just started and was asked once.
#[derive(Debug, Serialize)]
pub(crate) struct AtRest {
    pub(crate) row: &'static str,
    pub(crate) server: Memory,
    pub(crate) php: Memory,
    /// Growth of the server's resident memory for each connection over which one request was answered.
    #[serde(rename = "idle_connection_bytes")]
    pub(crate) idle_connection: f64,
}

/// Starts a server of its own for it.
pub(crate) async fn measure(row: &'static Row, site: &Site) -> Result<AtRest, BenchError> {
    let server = Server::start(row, site).await?;
    let memory = async || {
        sleep(SETTLE).await;
        server.processes().memory().ok_or(BenchError::Changed)
    };
    let at_rest = memory().await?;
    let mut connections = Vec::new();
    for _ in 0..FIRST {
        connections.push(idle_connection(server.address).await?);
    }
    let few = memory().await?;
    for _ in 0..IDLE {
        connections.push(idle_connection(server.address).await?);
    }
    let many = memory().await?;
    drop(connections);
    server.stop().await;
    Ok(AtRest {
        row: row.name,
        server: at_rest.server,
        php: at_rest.php,
        idle_connection: (many.server.rss - few.server.rss) / f64::from(IDLE),
    })
}
