//! What is asked and told, a line of JSON each.
//!
//! A connection carries one question after the other; each is answered by any number of lines and
//! then by [`Tell::Done`] or [`Tell::Refused`]. Who reads passes over names that it does not know,
//! so both ends may be of different releases; what can't be understood by an older one gets a new
//! [`PROTOCOL`].

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// The version of all this. Stands in each question.
pub(crate) const PROTOCOL: u32 = 1;

/// A question with its version.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Question {
    pub(crate) pronghorn: u32,
    pub(crate) ask: Ask,
}

/// The version alone, which is looked at first.
#[derive(Debug, Deserialize)]
pub(crate) struct Version {
    pub(crate) pronghorn: u32,
}

/// What a command wants. Names are those of pools, or of RoadRunner's plugins; none means all.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ask {
    /// Answered by [`Tell::Status`].
    Status,
    /// Answered by [`Tell::Workers`].
    Workers { of: Vec<String> },
    /// Replaces all workers and empties caches. Answered by [`Tell::Emptied`], cache by cache, then
    /// [`Tell::Resetting`] and [`Tell::Reset`], pool by pool.
    Reset { of: Vec<String> },
    /// Reads the configuration again, as SIGHUP does, and replaces all workers. Answered by
    /// [`Tell::Reloaded`] when that is done.
    Reload,
    /// Starts further workers in a pool, or ends some. Answered by [`Tell::Resized`].
    Resize {
        /// None is the default pool.
        pool: Option<String>,
        /// Below 0 to end as many.
        by: i32,
    },
    /// Calls a method of a service, by the name that it has over RPC. Answered by [`Tell::Result`].
    Call {
        method: String,
        argument: serde_json::Value,
    },
    /// The newest records of the log. Answered by [`Tell::Records`]; one that follows has no end.
    Logs(LogsWanted),
    /// Stops the server. Answered at once by [`Tell::Stopping`]; the connection ends with the
    /// server.
    Stop {
        /// Without waiting for what is under way.
        force: bool,
    },
}

impl Ask {
    /// Whether the answer goes on for as long as somebody reads it.
    pub(crate) fn is_endless(&self) -> bool {
        matches!(self, Self::Logs(LogsWanted { follow: true, .. }))
    }
}

/// Which records of the log are wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogsWanted {
    /// So many of those that fit, the newest.
    pub lines: u64,
    /// Those of the request with this ID; none means all.
    #[serde(default)]
    pub request: Option<String>,
    /// `warn`: those of this level and above; none means all.
    #[serde(default)]
    pub level: Option<String>,
    /// And then those that are made.
    #[serde(default)]
    pub follow: bool,
}

/// What the server tells.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Tell {
    Status(Box<Status>),
    Workers(Vec<WorkersOf>),
    Resetting {
        pool: String,
    },
    Reset(Reset),
    /// The configuration was read again.
    Reloaded {
        /// Something goes on as it was.
        failed: bool,
        /// The part of the configuration that does not hold now, and why, for a person; none where
        /// all of it holds.
        pending: Option<String>,
        /// Warnings and errors that were logged meanwhile, each an object of JSON; the first of
        /// them if there are many. Older servers do not say.
        #[serde(default)]
        records: Vec<String>,
    },
    /// A cache was emptied, beside the pools of a [`Ask::Reset`].
    Emptied {
        cache: String,
    },
    /// Records of the log, the oldest first, each an object of JSON.
    Records {
        records: Vec<String>,
        /// Records before these that are gone: they were not read in time.
        lost: u64,
    },
    /// What the method of an [`Ask::Call`] gave.
    Result(serde_json::Value),
    Resized {
        pool: String,
        /// How many there are now, or will be once those that end have finished.
        workers: u64,
    },
    /// The server stops.
    Stopping {
        pid: u32,
        /// Seconds that it may take.
        within: u64,
    },
    /// It takes longer. Sent every second, so that a command knows a busy server from a dead one.
    Working,
    /// The end of an answer.
    Done,
    /// The end, in place of the answer: why not, for a person.
    Refused {
        why: String,
    },
}

/// How the reset of one pool came out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reset {
    pub pool: String,
    /// Milliseconds.
    pub took: u64,
    /// The workers that there are now, and the generation of the newest; processes of programs have
    /// none, which is 0.
    pub workers: u64,
    pub generation: u64,
    /// Why the old workers go on; may have several lines.
    pub failed: Option<String>,
}

/// The server as a whole.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    pub version: String,
    pub pid: u32,
    pub state: State,
    /// Seconds since its start.
    pub uptime: u64,
    /// The configuration, if it has one.
    pub config: Option<PathBuf>,
    /// Where it keeps what outlives it; none while it starts.
    #[serde(default)]
    pub state_dir: Option<PathBuf>,
    /// Services that clients reach by an address.
    pub services: Vec<Served>,
    /// Why it is not ready; none when it is.
    pub not_ready: Option<String>,
    /// Why it does not do its work at all, and a restart may help; none when it does.
    #[serde(default)]
    pub not_alive: Option<String>,
    /// What of the configuration, as it was read last, does not hold; none when all does.
    #[serde(default)]
    pub pending: Option<String>,
    pub pools: Vec<PoolStatus>,
    /// The number of processes of programs in each state.
    #[serde(default)]
    pub programs: Vec<Counter>,
    /// The processes of programs that are not up yet, or whose replacements are not; the first ones
    /// of many.
    #[serde(default)]
    pub waits: Vec<ProgramWait>,
    /// What else a reset can name.
    #[serde(default)]
    pub caches: Vec<String>,
}

/// A process of a program that is not up, with the reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgramWait {
    pub program: String,
    pub index: u64,
    /// `starting`, or the state of the process that is replaced.
    pub state: String,
    /// Goes on after `waits for`.
    pub waits_for: String,
    /// Milliseconds since 1970.
    pub since: u64,
}

/// Where clients reach a service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Served {
    /// The name of its section, `http`.
    pub service: String,
    /// As a person would type it, `http://127.0.0.1:8080`; several with commas between them.
    pub at: String,
}

/// The server's life, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    Starting,
    Serving,
    Stopping,
}

/// One pool as a whole.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolStatus {
    pub name: String,
    /// Why it has no workers; none when it has.
    pub down: Option<String>,
    pub generation: u64,
    pub workers: u64,
    pub busy: u64,
    /// Calls that wait for a worker.
    pub waiting: u64,
    /// How long the oldest of them has waited, in milliseconds.
    pub oldest: Option<u64>,
    pub counters: Vec<Counter>,
}

/// Something that is counted since the start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counter {
    pub name: String,
    pub count: u64,
}

/// The workers of one pool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkersOf {
    pub pool: String,
    /// What RoadRunner calls the part of the server that they belong to: `http`.
    pub plugin: String,
    pub waiting: u64,
    pub workers: Vec<Worker>,
}

/// One worker.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Worker {
    /// 0 where no process is behind the slot at the moment.
    pub pid: u32,
    pub slot: u64,
    pub generation: u64,
    /// `ready`, `busy`, `booting`, …
    pub state: String,
    /// How calls reach it: `ring`, `relay`, `fastcgi` or `cgi`. Older servers don't say.
    #[serde(default)]
    pub transport: Option<String>,
    /// The number of the process that forked it.
    #[serde(default)]
    pub forked_by: Option<u32>,
    /// Milliseconds since 1970.
    pub started: u64,
    pub executions: u64,
    /// Bytes that it holds in memory; 0 when it is gone.
    pub memory: u64,
    /// Processor time since its start, in milliseconds.
    pub cpu: u64,
    /// The command of a program, as it was written; none for a PHP worker.
    #[serde(default)]
    pub command: Option<String>,
    /// The request that it is at.
    pub request: Option<UnderWay>,
}

/// A request that a worker is at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnderWay {
    /// `GET /`
    pub what: String,
    /// Milliseconds.
    pub age: u64,
}
