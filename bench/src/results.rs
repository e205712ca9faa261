//! The figures of a run, as they are in the file. Names end in their unit.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::error::BenchError;
use crate::goals::Goal;
use crate::load::Seen;
use crate::memory::{Idle, IdleWorker};
use crate::processes::{Memory, Split};
use crate::spread::Spread;
use crate::syscalls::Count;

/// Raised when a reader of older files would be wrong about newer ones.
const FORMAT: u32 = 1;

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Results {
    format: u32,
    /// Names and what is to be said about them.
    pub(crate) machine: Vec<(String, String)>,
    pub(crate) rounds: u32,
    pub(crate) seconds: u32,
    /// What others might take, in percent of one CPU.
    pub(crate) noise_percent: f64,
    pub(crate) rates: Vec<Rate>,
    pub(crate) servers: Vec<AtRest>,
    pub(crate) idle: Vec<Idle>,
    #[serde(default)]
    pub(crate) workers: Vec<IdleWorker>,
    pub(crate) syscalls: Vec<Count>,
    #[serde(skip_deserializing)]
    pub(crate) goals: Vec<Goal>,
    /// What could not be measured, and why.
    pub(crate) left_out: Vec<(String, String)>,
    pub(crate) samples: Vec<Sample>,
    /// Measurements that others disturbed: they count nowhere.
    pub(crate) refused: Vec<Sample>,
}

/// A server under a load of a scenario.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Row {
    pub(crate) scenario: String,
    pub(crate) server: String,
    /// Connections, or `rate/s over connections`.
    pub(crate) load: String,
}

/// One row in one round.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Sample {
    #[serde(flatten)]
    pub(crate) row: Row,
    pub(crate) round: u32,
    #[serde(flatten)]
    pub(crate) seen: Seen,
    /// CPU time per request.
    pub(crate) cpu_us_server: f64,
    pub(crate) cpu_us_php: f64,
    /// The same of the load generator and the runner, which share the machine.
    #[serde(default)]
    pub(crate) cpu_us_client: f64,
    /// Means of the parts of a request's time, in microseconds, where our server tells them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) phases_us: BTreeMap<String, f64>,
    /// Of one CPU, that went to other processes meanwhile.
    pub(crate) others_percent: f64,
    /// How many tries came before.
    pub(crate) repeats: u32,
}

impl Sample {
    pub(crate) fn cpu_us(&self) -> f64 {
        self.cpu_us_server + self.cpu_us_php
    }
}

/// What the rounds of one row gave.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Rate {
    #[serde(flatten)]
    pub(crate) row: Row,
    /// That were calm.
    pub(crate) rounds: u32,
    pub(crate) requests_per_second: Spread,
    pub(crate) p50_us: Spread,
    pub(crate) p90_us: Spread,
    pub(crate) p99_us: Spread,
    pub(crate) p999_us: Spread,
    pub(crate) max_us: Spread,
    pub(crate) cpu_us: Spread,
    pub(crate) cpu_us_server: Spread,
    pub(crate) cpu_us_php: Spread,
    /// CPU time as a multiple of that of nginx from memory in the same round.
    pub(crate) cpu_to_floor: Option<Spread>,
    /// The same of the rival that takes least under this load.
    pub(crate) cpu_to_best: Option<Spread>,
    pub(crate) best_rival: Option<String>,
    /// Where handlers wait: the share of the rate that so many workers can have.
    pub(crate) of_ideal_percent: Option<f64>,
    /// Requests of a constant rate that got no answer, over all rounds.
    pub(crate) unanswered: u64,
}

/// A server beside its load.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct AtRest {
    pub(crate) scenario: String,
    pub(crate) server: String,
    /// From its start to its first right answer.
    pub(crate) start_ms: Option<f64>,
    /// Asked once.
    pub(crate) rest: Option<Split<Memory>>,
    /// After the rounds.
    pub(crate) after: Option<Split<Memory>>,
}

impl Results {
    pub(crate) fn new(rounds: u32, seconds: u32, noise_percent: f64) -> Self {
        Self {
            format: FORMAT,
            machine: Vec::new(),
            rounds,
            seconds,
            noise_percent,
            rates: Vec::new(),
            servers: Vec::new(),
            idle: Vec::new(),
            workers: Vec::new(),
            syscalls: Vec::new(),
            goals: Vec::new(),
            left_out: Vec::new(),
            samples: Vec::new(),
            refused: Vec::new(),
        }
    }

    pub(crate) fn write(&self, file: &Path) -> Result<(), BenchError> {
        let text = serde_json::to_string_pretty(self).expect("all keys are texts");
        std::fs::write(file, text + "\n").map_err(|source| BenchError::Write {
            file: file.to_owned(),
            source,
        })
    }

    pub(crate) fn read(file: &Path) -> Result<Self, BenchError> {
        let unreadable = |source| BenchError::Read {
            file: file.to_owned(),
            source,
        };
        let text = std::fs::read_to_string(file).map_err(unreadable)?;
        let results: Self = serde_json::from_str(&text).map_err(|error| BenchError::NoResults {
            file: file.to_owned(),
            why: error.to_string(),
        })?;
        if results.format != FORMAT {
            let why = format!(
                "it has format {}, this program reads {FORMAT}",
                results.format
            );
            let file = file.to_owned();
            return Err(BenchError::NoResults { file, why });
        }
        Ok(results)
    }
}
