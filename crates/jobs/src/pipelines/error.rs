//! Why something was not done with a pipeline, in words for people and for PHP.

use pronghorn_brokers::OpenFailure;
use pronghorn_queue::DriverError;
use pronghorn_store::OpenError;
use thiserror::Error;

use crate::batches::BatchError;
use crate::keys;
use crate::settings::MOST_PIPELINES;

/// Of the pipelines that there are, in a complaint.
const MOST_NAMED: usize = 10;

/// Why something was not done with a pipeline. The texts of the first two are RoadRunner's.
#[derive(Debug, Error)]
pub(crate) enum PipelineError {
    #[error("no such pipeline, requested: {name}{hint}")]
    Unknown {
        name: String,
        /// What there is, behind RoadRunner's words.
        hint: String,
    },
    #[error("pipeline already exists, name: {name}, driver: {driver}")]
    Exists { name: String, driver: &'static str },
    #[error("there are {MOST_PIPELINES} pipelines already, and no more are taken")]
    TooMany,
    #[error(transparent)]
    Store(#[from] OpenError),
    #[error(transparent)]
    Driver(#[from] DriverError),
    #[error("the driver of pipeline {0} did not answer in time; it may have done it all the same")]
    Late(String),
    #[error(transparent)]
    Batch(#[from] BatchError),
    #[error(
        "of the {} jobs with the option `unique` that may wait or run, too many do, and no more are \
         taken",
        keys::MOST
    )]
    TooManyKeys,
    #[error("{0}")]
    Refused(String),
    #[error("pipeline {name} is not ready: {why}")]
    NotReady { name: String, why: String },
}

impl From<OpenFailure> for PipelineError {
    fn from(failure: OpenFailure) -> Self {
        match failure {
            OpenFailure::Store(error) => Self::Store(error),
            OpenFailure::Driver(error) => Self::Driver(error),
            OpenFailure::NotBuilt(_) => Self::Refused(failure.to_string()),
        }
    }
}

/// Behind the complaint about a name: the one that may be meant, and those that there are. Nothing
/// where there are none.
pub(crate) fn what_there_is<'a>(
    name: &str,
    known: impl Iterator<Item = &'a str> + Clone,
) -> String {
    let quoted = |name: &str| format!("`{}`", name.escape_debug());
    let meant = pronghorn_config::nearest(name, known.clone());
    let there_are = match meant {
        Some(meant) => format!("; did you mean {}? There are", quoted(meant)),
        None => "; there are".to_owned(),
    };
    let first: Vec<_> = known.clone().take(MOST_NAMED).map(quoted).collect();
    let more = known.count().saturating_sub(MOST_NAMED);
    match (first.len(), more) {
        (0, _) => String::new(),
        (_, 0) => format!("{there_are}: {}", first.join(", ")),
        (_, more) => format!("{there_are}: {} and {more} more", first.join(", ")),
    }
}
