//! A kind of broker: what its directory brings into the table, and how a configuration and PHP say
//! where the jobs of a pipeline are.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use pronghorn_config::Table;
use pronghorn_queue::{Driver, DriverError, OpenPipelines, Wake};
use pronghorn_store::{LazyStore, OpenError};
use thiserror::Error;

use crate::KINDS;
use crate::broker::{Broker, Brokered, LaterJobs};

/// A row of [`KINDS`].
#[derive(Debug)]
pub struct Kind {
    /// The name of the driver in the configuration, in PHP and for workers.
    pub name: &'static str,
    /// Whether this build has the driver. Its settings are known in each build.
    pub is_built: bool,
    pub(crate) shared_key: Option<SharedKey>,
    /// Reads the section beside `jobs`, if the kind has one, of the whole configuration.
    pub(crate) servers: fn(&mut Table<'_>) -> Arc<dyn Servers>,
}

/// No two rows have the same name.
impl PartialEq for Kind {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Kind {}

/// A key of a pipeline's `config` that several kinds have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SharedKey {
    Queue,
    Topic,
}

impl SharedKey {
    const ALL: [Self; 2] = [Self::Queue, Self::Topic];

    const fn name(self) -> &'static str {
        match self {
            Self::Queue => "queue",
            Self::Topic => "topic",
        }
    }

    const fn sentence(self) -> &'static str {
        match self {
            Self::Queue => "The name of the queue in the broker. By default, the pipeline's name.",
            Self::Topic => {
                "The topic that jobs are pushed to. If the driver does not require this key, the \
                 default is the pipeline's name."
            }
        }
    }

    /// Says which pipelines have it, after the name of the key.
    fn whose(self) -> String {
        let kinds = KINDS.iter().filter(|kind| kind.shared_key == Some(self));
        let drivers: Vec<_> = kinds.map(|kind| with_driver(kind.name)).collect();
        match drivers.split_last() {
            Some((last, [])) => format!("is of pipelines with {last}"),
            Some((last, others)) => {
                format!("is of pipelines with {} or {last}", others.join(", "))
            }
            None => String::new(),
        }
    }
}

fn with_driver(name: &str) -> String {
    format!("`driver: {name}`")
}

/// The servers of one kind that a configuration names.
pub(crate) trait Servers: fmt::Debug + Send + Sync {
    /// Whether [`read`](Self::read) reads the shared key as well, as it is no plain text in this
    /// file.
    fn reads_shared_key(&self, _t: &mut Table<'_>) -> bool {
        false
    }

    /// The keys of a pipeline's `config`. `shared` is what its shared key says.
    fn read(
        &self,
        t: &mut Table<'_>,
        pipeline: &str,
        shared: Option<String>,
    ) -> Arc<dyn BrokerPlace>;

    /// A pipeline as PHP declares it: all values are texts.
    ///
    /// # Errors
    ///
    /// A text for a person says what is wrong.
    fn declared(
        &self,
        map: &BTreeMap<String, String>,
        pipeline: &str,
    ) -> Result<Arc<dyn BrokerPlace>, String>;
}

/// The place of a pipeline's jobs in a broker.
pub(crate) trait BrokerPlace: fmt::Debug + Send + Sync {
    /// There is none in a build without the driver.
    fn opener(&self) -> Option<Opener<'_>> {
        None
    }
}

type Open<'a> = dyn FnOnce(Opening<'_>) -> Arc<dyn Driver> + Send + 'a;
type OpenWithLater<'a> = dyn FnOnce(Opening<'_>, LaterJobs) -> Arc<dyn Driver> + Send + 'a;

/// Opens the driver of a pipeline.
pub(crate) enum Opener<'a> {
    Plain(Box<Open<'a>>),
    /// The broker can't keep jobs back for any time, so some of them wait in the server's store.
    WithLater(Box<OpenWithLater<'a>>),
}

impl<'a> Opener<'a> {
    pub(crate) fn plain<B: Broker>(
        open: impl FnOnce(&str, Wake) -> Brokered<B> + Send + 'a,
    ) -> Self {
        Self::Plain(Box::new(move |opening| {
            let driver = open(opening.pipeline, opening.wake);
            Arc::new(driver.with_priority(opening.priority))
        }))
    }

    #[cfg_attr(
        not(feature = "later"),
        expect(dead_code, reason = "no driver of this build needs it")
    )]
    pub(crate) fn with_later<B: Broker>(
        open: impl FnOnce(&str, Wake, LaterJobs) -> Brokered<B> + Send + 'a,
    ) -> Self {
        Self::WithLater(Box::new(move |opening, later| {
            let driver = open(opening.pipeline, opening.wake, later);
            Arc::new(driver.with_priority(opening.priority))
        }))
    }
}

/// A driver is told this when it is opened.
#[derive(Debug)]
pub struct Opening<'a> {
    /// The name of the pipeline.
    pub pipeline: &'a str,
    /// The priority of jobs that have none, as those that somebody else has pushed.
    pub priority: i64,
    /// Told when there may be a job.
    pub wake: Wake,
}

/// Why the driver of a pipeline was not opened.
#[derive(Debug, Error)]
pub enum OpenFailure {
    /// The store has no room for jobs that wait, or another process has it.
    #[error(transparent)]
    Store(#[from] OpenError),
    /// The store did not answer.
    #[error(transparent)]
    Driver(#[from] DriverError),
    /// Pipelines of such a driver are refused before they are opened.
    #[error("the driver `{0}` is not in this build")]
    NotBuilt(&'static str),
}

/// A pipeline's place in a broker. Clones are the same one.
#[derive(Clone, Debug)]
pub struct BrokerPipeline {
    kind: &'static Kind,
    place: Arc<dyn BrokerPlace>,
}

impl BrokerPipeline {
    /// The value of `driver` of the pipeline.
    pub const fn driver(&self) -> &'static str {
        self.kind.name
    }

    /// Whether it is opened with the server's store, for jobs that the broker can't keep back.
    pub fn needs_store(&self) -> bool {
        match self.place.opener() {
            Some(Opener::WithLater(_)) => true,
            Some(Opener::Plain(_)) | None => false,
        }
    }

    /// Opens its driver, paused. The connection is made apart, so a broker may be away.
    ///
    /// # Errors
    ///
    /// When it needs the store, and can't have it.
    pub async fn open(
        &self,
        opening: Opening<'_>,
        store: &LazyStore,
        open: &OpenPipelines,
    ) -> Result<Arc<dyn Driver>, OpenFailure> {
        match self.place.opener() {
            Some(Opener::Plain(opener)) => Ok(opener(opening)),
            Some(Opener::WithLater(opener)) => {
                let store = store.get().await?;
                let later = LaterJobs::open(opening.pipeline, open, store).await?;
                Ok(opener(opening, later))
            }
            None => Err(OpenFailure::NotBuilt(self.kind.name)),
        }
    }
}

/// The brokers of a configuration. Clones are the same ones.
#[derive(Clone, Debug)]
pub struct Brokers {
    /// One for each row of the table.
    servers: Vec<(&'static Kind, Arc<dyn Servers>)>,
}

impl Brokers {
    /// Reads the sections beside `jobs`: `t` is the whole configuration.
    pub fn read(t: &mut Table<'_>) -> Self {
        let servers = KINDS.iter().map(|kind| (kind, (kind.servers)(t)));
        Self {
            servers: servers.collect(),
        }
    }

    /// Reads the keys of a pipeline's `config` that drivers of brokers have, for a pipeline whose
    /// driver is `chosen`; keys of the others are refused. None for a driver that is no broker's.
    pub fn read_pipeline(
        &self,
        t: &mut Table<'_>,
        pipeline: &str,
        chosen: Option<&Kind>,
    ) -> Option<BrokerPipeline> {
        let shared = self.read_shared_keys(t, chosen);
        let mut found = None;
        for (kind, servers) in &self.servers {
            let is_chosen = chosen == Some(*kind);
            let message = format!("is of pipelines with {}", with_driver(kind.name));
            let place = t.keys_where(is_chosen, &message, "remove it", |t| {
                let mut values = shared.iter();
                let value = values.find(|(key, _)| Some(*key) == kind.shared_key);
                let value = value.and_then(|(_, value)| value.clone());
                servers.read(t, pipeline, value)
            });
            if let Some(place) = place.filter(|_| is_chosen) {
                found = Some(BrokerPipeline { kind, place });
            }
        }
        found
    }

    fn read_shared_keys(
        &self,
        t: &mut Table<'_>,
        chosen: Option<&Kind>,
    ) -> Vec<(SharedKey, Option<String>)> {
        let mut shared = Vec::new();
        for key in SharedKey::ALL {
            let is_chosens = chosen.is_some_and(|kind| kind.shared_key == Some(key));
            let mut all = self.servers.iter();
            let servers = all.find(|(kind, _)| is_chosens && chosen == Some(*kind));
            if servers.is_some_and(|(_, servers)| servers.reads_shared_key(t)) {
                continue;
            }
            let is_text = t.names_in(key.name()).is_empty();
            let value = t.keys_where(is_chosens && is_text, &key.whose(), "remove it", |t| {
                t.key::<String>(key.name(), key.sentence()).optional()
            });
            shared.push((key, value.flatten()));
        }
        shared
    }

    /// A pipeline as PHP declares it: all values are texts.
    ///
    /// # Errors
    ///
    /// A text for a person says what is wrong.
    pub fn declared(
        &self,
        kind: &Kind,
        map: &BTreeMap<String, String>,
        pipeline: &str,
    ) -> Result<BrokerPipeline, String> {
        let mut all = self.servers.iter();
        let (kind, servers) = all
            .find(|(known, _)| *known == kind)
            .expect("each row of the table was read");
        let place = servers.declared(map, pipeline)?;
        Ok(BrokerPipeline { kind, place })
    }
}

/// The text that PHP declares under a key, if it is not empty.
pub(crate) fn text_of(map: &BTreeMap<String, String>, key: &str) -> Option<String> {
    map.get(key).filter(|text| !text.is_empty()).cloned()
}

/// A JSON object of plain values, as PHP declares one: its empty array is one as well.
pub(crate) fn object_of(json: &str) -> Option<BTreeMap<String, String>> {
    if json == "[]" {
        return Some(BTreeMap::new());
    }
    let map: BTreeMap<String, serde_json::Value> = serde_json::from_str(json).ok()?;
    let plain = |value| match value {
        serde_json::Value::String(text) => text,
        other => other.to_string(),
    };
    let plain = map.into_iter().map(|(name, value)| (name, plain(value)));
    Some(plain.collect())
}
