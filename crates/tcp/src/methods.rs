//! `tcp.Close` and its companions, over RPC.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use pronghorn_plugin_api::rpc::{Argument, Binary, Failure, Methods, Outcome};
use serde::{Deserialize, Serialize};

use crate::id::ConnectionId;
use crate::registry::{ConnectionEntry, Registry};

/// Connections in one answer.
const MOST_LISTED: usize = 1000;
/// Bytes of one write.
const LONGEST_WRITE: usize = 16 << 20;

/// The connections that methods act on.
#[derive(Clone, Debug)]
pub(crate) struct Connections {
    pub(crate) registry: Arc<Registry>,
    /// The names of servers, and where they listen.
    pub(crate) servers: Arc<[(Arc<str>, String)]>,
}

pub(crate) fn add(methods: &Methods, connections: &Connections) {
    let methods = methods.service("tcp", connections.clone());
    methods.add("Close", close);
    methods.add("Write", write);
    methods.add("List", list);
    methods.add("Count", count);
}

/// RoadRunner's says yes whatever it is given.
async fn close(connections: Connections, uuid: String) -> Result<bool, Failure> {
    if let Some(entry) = find(&connections, &uuid) {
        entry.close();
    }
    Ok(true)
}

/// Bytes for a client: as text, or in base64.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct WriteRequest {
    uuid: String,
    data: String,
    base64: Option<Binary>,
}

impl Argument for WriteRequest {}

async fn write(connections: Connections, request: WriteRequest) -> Result<bool, Failure> {
    let bytes = match request.base64 {
        Some(Binary(bytes)) => bytes,
        None => Bytes::from(request.data),
    };
    if bytes.len() > LONGEST_WRITE {
        let len = bytes.len();
        return Err(Failure::new(format!(
            "{len} bytes are more than one write takes: at most {LONGEST_WRITE}"
        )));
    }
    let Some(entry) = find(&connections, &request.uuid) else {
        return Err(Failure::new(format!(
            "there is no connection `{}`",
            request.uuid
        )));
    };
    let written = entry.write(bytes);
    written.map_err(|why| Failure::new(why.to_string()))?;
    Ok(true)
}

fn find(connections: &Connections, uuid: &str) -> Option<Arc<ConnectionEntry>> {
    let id: ConnectionId = uuid.parse().ok()?;
    connections.registry.get(id)
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct ListRequest {
    /// All servers, where it is empty.
    server: String,
}

impl Argument for ListRequest {}

#[derive(Debug, Serialize)]
struct Listed {
    connections: Vec<Shown>,
    /// There are more than are listed.
    truncated: bool,
}

impl Outcome for Listed {}

#[derive(Debug, Serialize)]
struct Shown {
    uuid: String,
    server: String,
    remote_addr: String,
    tls: bool,
    since: u64,
    messages: u64,
    received: u64,
    sent: u64,
}

async fn list(connections: Connections, request: ListRequest) -> Result<Listed, Failure> {
    let server = Some(request.server.to_lowercase()).filter(|name| !name.is_empty());
    if let Some(name) = &server
        && !connections
            .servers
            .iter()
            .any(|(known, _)| **known == **name)
    {
        return Err(Failure::new(format!("there is no server `{name}`")));
    }
    let mut all = connections
        .registry
        .list(server.as_deref(), MOST_LISTED + 1);
    let truncated = all.len() > MOST_LISTED;
    all.truncate(MOST_LISTED);
    let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let shown = all.iter().map(|entry| Shown {
        uuid: entry.uuid.to_string(),
        server: entry.server.to_string(),
        remote_addr: entry.remote.to_string(),
        tls: entry.tls,
        since: entry.since,
        messages: of(&entry.messages),
        received: of(&entry.received),
        sent: of(&entry.sent),
    });
    Ok(Listed {
        connections: shown.collect(),
        truncated,
    })
}

#[derive(Debug, Serialize)]
struct Counted {
    connections: usize,
    servers: Vec<ServerCount>,
}

impl Outcome for Counted {}

#[derive(Debug, Serialize)]
struct ServerCount {
    name: String,
    address: String,
    connections: usize,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Nothing {}

impl Argument for Nothing {}

async fn count(connections: Connections, _: Nothing) -> Result<Counted, Failure> {
    let servers = connections
        .servers
        .iter()
        .map(|(name, address)| ServerCount {
            name: name.to_string(),
            address: address.clone(),
            connections: connections.registry.list(Some(name), usize::MAX).len(),
        });
    Ok(Counted {
        connections: connections.registry.len(),
        servers: servers.collect(),
    })
}
