//! Real brokers, on loopback, for tests.

use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use rustix::process::{Pid, Signal, kill_process_group};

/// A broker in a folder and on a port of its own. It ends with the test.
pub(super) struct Engine {
    program: &'static str,
    arguments: Vec<String>,
    environment: Vec<(&'static str, String)>,
    /// What ends beside it.
    farewell: Option<Command>,
    folder: PathBuf,
    port: u16,
    child: Option<Child>,
}

impl Engine {
    /// Nobody waits until it is up: drivers do not need that.
    pub(super) fn start(program: &'static str, arguments: impl Fn(u16) -> Vec<String>) -> Self {
        let mut engine = Self::new(program);
        engine.arguments = arguments(engine.port);
        engine.restart();
        engine
    }

    /// As [`start`](Self::start), with a file of settings in its folder.
    pub(super) fn start_with_file(
        program: &'static str,
        name: &str,
        make: impl Fn(u16) -> (Vec<String>, String),
    ) -> Self {
        let mut engine = Self::new(program);
        let (arguments, text) = make(engine.port);
        std::fs::write(engine.folder.join(name), text).unwrap();
        engine.arguments = arguments;
        engine.restart();
        engine
    }

    /// With one scheduler, and a daemon for names of its own.
    pub(super) fn rabbitmq() -> Self {
        let mut engine = Self::new("/usr/lib/rabbitmq/bin/rabbitmq-server");
        let (names, folder) = (free_port().to_string(), engine.folder.clone());
        let text = |text: &str| text.to_owned();
        let path = |name: &str| folder.join(name).to_string_lossy().into_owned();
        engine.environment = vec![
            ("HOME", path("")),
            ("ERL_EPMD_ADDRESS", text("127.0.0.1")),
            ("ERL_EPMD_PORT", names.clone()),
            // Else it does not end while it knows a node.
            ("ERL_EPMD_RELAXED_COMMAND_CHECK", text("true")),
            (
                "RABBITMQ_NODENAME",
                format!("pronghorn{}@localhost", engine.port),
            ),
            ("RABBITMQ_NODE_IP_ADDRESS", text("127.0.0.1")),
            ("RABBITMQ_NODE_PORT", engine.port.to_string()),
            ("RABBITMQ_DIST_PORT", free_port().to_string()),
            ("RABBITMQ_MNESIA_BASE", path("data")),
            ("RABBITMQ_LOG_BASE", path("log")),
            ("RABBITMQ_CONFIG_FILE", path("none")),
            ("RABBITMQ_ENABLED_PLUGINS_FILE", path("plugins")),
            ("RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS", text("+S 1:1")),
        ];
        let mut farewell = Command::new("epmd");
        farewell
            .args(["-port", &names, "-kill"])
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        engine.farewell = Some(farewell);
        engine.restart();
        engine
    }

    fn new(program: &'static str) -> Self {
        Self {
            program,
            arguments: Vec::new(),
            environment: Vec::new(),
            farewell: None,
            folder: folder(),
            port: free_port(),
            child: None,
        }
    }

    pub(super) fn port(&self) -> u16 {
        self.port
    }

    /// Kills it; what it had on its disk stays.
    pub(super) fn stop(&mut self) {
        if let Some(mut child) = self.child.take() {
            // Scripts that start a broker leave it as a child.
            let group = Pid::from_child(&child);
            kill_process_group(group, Signal::KILL).unwrap();
            child.wait().unwrap();
        }
    }

    pub(super) fn restart(&mut self) {
        let mut command = Command::new(self.program);
        command
            .args(&self.arguments)
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .current_dir(&self.folder)
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let child = command.spawn();
        let program = self.program;
        let child = child.unwrap_or_else(|error| {
            panic!("{program} does not start ({error}): `scripts/need brokers` installs it")
        });
        self.child = Some(child);
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.stop();
        if let Some(farewell) = &mut self.farewell {
            _ = farewell.status();
        }
        _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn folder() -> PathBuf {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Relaxed);
    let name = format!("pronghorn-broker-{}-{number}", std::process::id());
    let folder = std::env::temp_dir().join(name);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}
