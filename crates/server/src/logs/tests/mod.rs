//! Tests of the logs as a whole, on a process that the test makes up.

mod channels;
mod formats;
mod outputs;
mod rotation;

use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use pronghorn_config::{Input, Severity, load};

use super::host::{Clock, Host, Standard};
use super::subscriber::Router;
use super::{LogError, Logs};
use crate::settings::LogSettings;

/// 2026-11-21 19:26:15.123456789 UTC
const NOW: Duration = Duration::new(1_795_289_175, 123_456_789);

/// Nothing in a test takes so long unless it is broken.
const LONG: Duration = Duration::from_secs(20);

/// A process to log in.
#[derive(Clone)]
struct Rig {
    now: Arc<Mutex<SystemTime>>,
    stdout: Text,
    stderr: Text,
    complaints: Text,
    is_terminal: bool,
    is_journal: bool,
    is_octane: bool,
    colours: bool,
}

/// What was written.
#[derive(Clone, Default)]
struct Text(Arc<Mutex<Vec<u8>>>);

impl Rig {
    fn new() -> Self {
        Self {
            now: Arc::new(Mutex::new(SystemTime::UNIX_EPOCH + NOW)),
            stdout: Text::default(),
            stderr: Text::default(),
            complaints: Text::default(),
            is_terminal: false,
            is_journal: false,
            is_octane: false,
            colours: false,
        }
    }

    fn on_a_terminal() -> Self {
        Self {
            is_terminal: true,
            ..Self::new()
        }
    }

    fn clock(&self) -> Clock {
        let now = self.now.clone();
        Arc::new(move || *now.lock().unwrap())
    }

    fn advance(&self, by: Duration) {
        *self.now.lock().unwrap() += by;
    }

    fn host(&self) -> Host {
        self.host_with(self.stdout.clone())
    }

    /// With something else as standard output.
    fn host_with(&self, stdout: impl Write + Send + 'static) -> Host {
        let complaints = self.complaints.clone();
        let standard = |out, number| Standard {
            out,
            identity: (0, number),
            is_terminal: self.is_terminal,
            is_journal: self.is_journal,
        };
        Host {
            octane: self.is_octane,
            folder: PathBuf::new(),
            clock: self.clock(),
            stdout: standard(Box::new(stdout), 1),
            stderr: standard(Box::new(self.stderr.clone()), 2),
            colours: self.colours,
            complain: Arc::new(move |what| writeln!(complaints.clone(), "{what}").unwrap()),
        }
    }

    fn start(&self, yaml: &str) -> Result<(Logs, Router), LogError> {
        Logs::start_on(self.host(), &settings(yaml))
    }

    /// Makes records under these settings; what they add to standard error.
    fn records(&self, yaml: &str, make: impl FnOnce()) -> String {
        let (logs, router) = self.start(yaml).unwrap();
        tracing::subscriber::with_default(router, make);
        drop(logs);
        self.stderr.take()
    }
}

impl Text {
    fn get(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }

    fn take(&self) -> String {
        String::from_utf8(std::mem::take(&mut *self.0.lock().unwrap())).unwrap()
    }
}

impl Write for Text {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn settings(yaml: &str) -> LogSettings {
    let loaded = load(&Input::from_text("logs.yaml", yaml));
    let resolved = loaded.resolve::<LogSettings>(Severity::Error);
    match resolved.into_settings() {
        Ok(settings) => settings,
        Err(report) => panic!("{report}"),
    }
}
