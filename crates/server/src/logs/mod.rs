//! Log records: from `tracing` events to lines in files, on a terminal or in a pipe.
//!
//! The thread that makes a record formats it and puts the text into the queue of each of its
//! channel's outputs; a thread per output writes. Making a record never waits and takes bounded
//! memory: `docs/reference/logging.md` says what is dropped when.

mod backups;
mod complaints;
mod error;
mod file;
mod format;
mod host;
mod layout;
mod newest;
mod output;
mod outputs;
mod queue;
mod subscriber;
#[cfg(test)]
mod tests;
mod time;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

use pronghorn_base::lock;
use pronghorn_config::{Report, Severity};
use tokio::time::Instant;
use tracing::Subscriber;

pub use error::LogError;
pub use format::{printable, readable};
pub use newest::Newest;

use crate::settings::{Level, LogMode, LogSettings, LogTarget};
use host::Host;
use outputs::Outputs;
use queue::Queue;
use subscriber::{Channel, Channels, Router, SERVER};

/// The targets of our own records. What has another one is a stranger's, unless `logs.channels`
/// names it.
pub const CHANNELS: [&str; 20] = [
    "app",
    "http",
    ACCESS,
    SERVER,
    "pool",
    "rpc",
    "lock",
    "kv",
    "jobs",
    "service",
    "grpc",
    "tcp",
    "centrifuge",
    "temporal",
    "store",
    "metrics",
    "status",
    "config",
    "otel",
    "spans",
];

/// Of `http.access_log`: each record is a line that is finished.
pub(crate) const ACCESS: &str = "access";

/// How long the end waits for outputs that do not take their records.
const LAST_FLUSH: Duration = Duration::from_secs(2);

/// Keeps the logs going. Dropped, it writes what waits, for two seconds at most; later records go
/// nowhere.
#[derive(Debug)]
pub struct Logs {
    folder: PathBuf,
    outlets: Mutex<Outlets>,
    channels: Channels,
    newest: Arc<Newest>,
}

/// The outputs of one time. Dropped, they write what waits, for two seconds at most.
#[derive(Debug)]
struct Outlets(Vec<Running>);

/// An output and its thread.
#[derive(Debug)]
struct Running {
    queue: Arc<Queue>,
    /// `None` for standard output and standard error.
    path: Option<PathBuf>,
    /// Where the configuration's paths begin.
    working: PathBuf,
    thread: Option<JoinHandle<()>>,
}

/// `2026-11-21T19:26:15+0000`, as in records.
pub fn timestamp(time: SystemTime) -> String {
    let mut text = String::new();
    time::Moment::of(time).write_long(&mut text);
    text
}

/// Starts the logs for the whole process. Names of files begin in `folder`.
///
/// # Errors
///
/// A file cannot be opened, or there is a subscriber already.
pub fn init(settings: &LogSettings, folder: &Path) -> Result<Logs, LogError> {
    let (logs, subscriber) = Logs::start(settings, folder)?;
    tracing::subscriber::set_global_default(subscriber).map_err(|_| LogError::Taken)?;
    Ok(logs)
}

/// Makes records of a configuration's mistakes and warnings, on the channel `config`.
pub fn tell(report: &Report) {
    for told in report {
        let (place, message, hint) = (&told.place, &told.message, told.hint.as_deref());
        match told.severity {
            Severity::Missing | Severity::Error => {
                tracing::error!(target: "config", hint, "{place}: {message}");
            }
            Severity::Warning => tracing::warn!(target: "config", hint, "{place}: {message}"),
        }
    }
}

/// Opens the outputs, and says which channel has which.
fn open(host: Host, settings: &LogSettings) -> Result<(Outlets, Vec<Channel>), LogError> {
    let mut outputs = Outputs::new(host);
    let default = outputs.lanes(&settings.target)?;
    let mut channels = Vec::new();
    for (name, target) in &settings.channels {
        channels.push(Channel {
            name: name.clone(),
            level: target.least(),
            lanes: outputs.lanes(target)?,
        });
    }
    for name in CHANNELS
        .into_iter()
        .chain(settings.services.iter().copied())
    {
        let mut known = channels.iter_mut();
        match known.find(|channel| channel.name.eq_ignore_ascii_case(name)) {
            Some(channel) => name.clone_into(&mut channel.name),
            None => channels.push(Channel {
                name: name.to_owned(),
                level: settings.target.least(),
                lanes: default.clone(),
            }),
        }
    }
    Ok((Outlets(outputs.start()?), channels))
}

impl Logs {
    /// Starts the logs and leaves it to the caller to whom the subscriber belongs.
    ///
    /// # Errors
    ///
    /// A file cannot be opened.
    pub fn start(
        settings: &LogSettings,
        folder: &Path,
    ) -> Result<(Self, impl Subscriber + Send + Sync + use<>), LogError> {
        Self::start_on(Host::here(folder)?, settings)
    }

    fn start_on(host: Host, settings: &LogSettings) -> Result<(Self, Router), LogError> {
        let (clock, folder) = (host.clock.clone(), host.folder.clone());
        let (outlets, channels) = open(host, settings)?;
        let channels = Channels::new(channels);
        let newest = Arc::new(Newest::default());
        let router = Router {
            channels: channels.clone(),
            clock,
            newest: newest.clone(),
        };
        let logs = Self {
            folder,
            outlets: Mutex::new(outlets),
            channels,
            newest,
        };
        Ok((logs, router))
    }

    /// Writes records from now on as these settings say. Those that wait for an old output are
    /// still written.
    ///
    /// # Errors
    ///
    /// A file cannot be opened; all is as before then.
    pub fn renew(&self, settings: &LogSettings) -> Result<(), LogError> {
        let (outlets, channels) = open(Host::here(&self.folder)?, settings)?;
        self.channels.set(channels);
        tracing::callsite::rebuild_interest_cache();
        let old = std::mem::replace(&mut *self.outlets(), outlets);
        // Its end waits for outputs that don't take their records.
        std::thread::Builder::new()
            .name("logs-old".to_owned())
            .spawn(move || drop(old))?;
        Ok(())
    }

    /// The newest records, of all channels.
    pub fn newest(&self) -> Arc<Newest> {
        self.newest.clone()
    }

    fn outlets(&self) -> MutexGuard<'_, Outlets> {
        lock(&self.outlets)
    }

    /// Waits until all records so far are written. Blocks its thread, for `within` at most; false
    /// when that was not enough.
    pub fn flush(&self, within: Duration) -> bool {
        let deadline = Instant::now() + within;
        let flushed = |output: &Running| output.queue.flush(deadline);
        self.outlets()
            .0
            .iter()
            .map(flushed)
            .fold(true, |all, one| all & one)
    }

    /// Opens every file anew, by its name: after something moved it away. One that cannot be opened
    /// goes on as it is.
    ///
    /// # Errors
    ///
    /// One for each file that cannot be opened.
    #[inline(never)] // `make instructions` cuts its profiles here
    pub fn reopen(&self) -> Result<(), Vec<LogError>> {
        let mut errors = Vec::new();
        for output in &self.outlets().0 {
            let path = output.path.as_deref();
            match path.map(|path| file::open(&output.working, path)) {
                Some(Ok(file)) => output.queue.reopen(file),
                Some(Err(error)) => errors.push(error),
                None => {}
            }
        }
        if errors.is_empty() {
            Ok(())
        } else {
            Err(errors)
        }
    }
}

impl LogTarget {
    /// The least that is written; `None` when nothing is.
    fn least(&self) -> Option<Level> {
        (self.mode != LogMode::Off).then_some(self.level)
    }
}

impl Drop for Outlets {
    fn drop(&mut self) {
        for output in &self.0 {
            output.queue.close();
        }
        let deadline = Instant::now() + LAST_FLUSH;
        for output in &mut self.0 {
            if output.queue.has_ended(deadline)
                && let Some(thread) = output.thread.take()
            {
                _ = thread.join(); // a panic has been told by its hook
            }
        }
    }
}
