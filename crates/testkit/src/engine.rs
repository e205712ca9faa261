//! Real servers of others, on loopback.

use std::ffi::OsStr;
use std::net::TcpStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use rustix::process::{Pid, Signal, kill_process_group};

use crate::{free_address, wait_for};

/// A server in a folder and on a port of its own. It ends with the test.
#[derive(Debug)]
pub struct Engine {
    program: PathBuf,
    arguments: Vec<String>,
    environment: Vec<(&'static str, String)>,
    /// What ends beside it.
    farewell: Option<Command>,
    folder: PathBuf,
    port: u16,
    child: Option<Child>,
    ends_in_order: bool,
}

impl Engine {
    /// With the arguments for its port. Nobody waits until it is up.
    ///
    /// # Panics
    ///
    /// When it is not installed.
    pub fn start(program: impl Into<PathBuf>, arguments: impl Fn(u16) -> Vec<String>) -> Self {
        let mut engine = Self::new(program);
        engine.arguments = arguments(engine.port);
        engine.restart();
        engine
    }

    /// A Redis that listens, and keeps nothing on its disk, unless `more` arguments say so.
    ///
    /// # Panics
    ///
    /// When it is not installed, or does not listen soon.
    pub fn redis(more: &[&str]) -> Self {
        let engine = Self::start("redis-server", |port| {
            let port = port.to_string();
            let fixed = ["--bind", "127.0.0.1", "--save", "", "--port", &port];
            let all = fixed.iter().chain(more);
            all.map(|text| (*text).to_owned()).collect()
        });
        wait_for("Redis to listen", || {
            TcpStream::connect(("127.0.0.1", engine.port)).ok()
        });
        engine
    }

    /// As [`start`](Self::start), with a file of settings in its folder.
    ///
    /// # Panics
    ///
    /// When it is not installed.
    pub fn start_with_file(
        program: impl Into<PathBuf>,
        name: &str,
        make: impl Fn(u16) -> (Vec<String>, String),
    ) -> Self {
        let mut engine = Self::new(program);
        let (arguments, text) = make(engine.port);
        std::fs::write(engine.folder.join(name), text).expect("the folder is there");
        engine.arguments = arguments;
        engine.restart();
        engine
    }

    /// One that [`restart`](Self::restart) starts.
    pub fn new(program: impl Into<PathBuf>) -> Self {
        Self {
            program: program.into(),
            arguments: Vec::new(),
            environment: Vec::new(),
            farewell: None,
            folder: folder(),
            port: free_address().port(),
            child: None,
            ends_in_order: false,
        }
    }

    /// What it is started with.
    pub fn set_arguments(&mut self, arguments: Vec<String>) {
        self.arguments = arguments;
    }

    /// Variables of its environment.
    pub fn set_environment(&mut self, environment: Vec<(&'static str, String)>) {
        self.environment = environment;
    }

    /// What ends beside it.
    pub fn set_farewell(&mut self, farewell: Command) {
        self.farewell = Some(farewell);
    }

    /// A program beside it, with its environment.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        let environment = self.environment.iter();
        command.envs(environment.map(|(name, value)| (name, value)));
        command
    }

    /// Where it runs.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Where it listens.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// It is asked to end, and not killed.
    pub fn ends_in_order(&mut self) {
        self.ends_in_order = true;
    }

    /// Kills it; what it had on its disk stays.
    ///
    /// # Panics
    ///
    /// When the system forbids it.
    pub fn stop(&mut self) {
        if let Some(mut child) = self.child.take() {
            // Scripts that start a server leave it as a child.
            let group = Pid::from_child(&child);
            let signal = if self.ends_in_order {
                Signal::TERM
            } else {
                Signal::KILL
            };
            kill_process_group(group, signal).expect("it was not waited for");
            child.wait().expect("it is a child");
        }
    }

    /// Starts it again, with what it had on its disk.
    ///
    /// # Panics
    ///
    /// When it is not installed.
    pub fn restart(&mut self) {
        let mut command = self.command(&self.program);
        let child = command
            .args(&self.arguments)
            .current_dir(&self.folder)
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let program = self.program.display();
        let child = child.unwrap_or_else(|error| {
            panic!("{program} does not start ({error}): `scripts/need apps brokers` installs it")
        });
        self.child = Some(child);
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.stop();
        if let Some(farewell) = &mut self.farewell {
            _ = farewell.status(); // it may have ended by itself
        }
        _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// An authority with a certificate for 127.0.0.1 and one for a client: `ca.pem`, `server.pem` and
/// `server.key`, `client.pem` and `client.key`.
#[derive(Debug)]
pub struct Certificates(PathBuf);

impl Certificates {
    /// Makes them.
    ///
    /// # Panics
    ///
    /// When openssl is not there, or fails.
    #[expect(clippy::new_without_default, reason = "it runs a program")]
    pub fn new() -> Self {
        let made = Self(folder());
        let settings = "[req]\ndistinguished_name = name\n[name]\n";
        std::fs::write(made.path("openssl.cnf"), settings).expect("the folder is there");
        made.make("ca", &["basicConstraints=critical,CA:TRUE"]);
        made.make("server", &["subjectAltName=IP:127.0.0.1,DNS:localhost"]);
        made.make("client", &["extendedKeyUsage=clientAuth"]);
        made
    }

    fn make(&self, name: &str, extensions: &[&str]) {
        let mut command = Command::new("openssl");
        command.current_dir(&self.0).args(
            "req -x509 -config openssl.cnf -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2"
                .split(' '),
        );
        if name != "ca" {
            command.args(["-CA", "ca.pem", "-CAkey", "ca.key"]);
        }
        for extension in extensions {
            command.args(["-addext", extension]);
        }
        let made = command
            .args(["-subj", &format!("/CN={name}")])
            .args([
                "-keyout",
                &format!("{name}.key"),
                "-out",
                &format!("{name}.pem"),
            ])
            .output();
        let made = made.expect("openssl is there: `scripts/need brokers` installs it");
        assert!(
            made.status.success(),
            "{}",
            String::from_utf8_lossy(&made.stderr)
        );
    }

    /// Of one of the files.
    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Certificates {
    fn drop(&mut self) {
        _ = std::fs::remove_dir_all(&self.0);
    }
}

fn folder() -> PathBuf {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Relaxed);
    let name = format!("pronghorn-engine-{}-{number}", std::process::id());
    let folder = std::env::temp_dir().join(name);
    std::fs::create_dir_all(&folder).expect("a folder can be made");
    folder
}
