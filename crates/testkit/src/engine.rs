//! Real servers of others, on loopback.

use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use rustix::process::{Pid, Signal, kill_process_group};

use crate::free_address;

/// A server in a folder and on a port of its own. It ends with the test.
#[derive(Debug)]
pub struct Engine {
    program: &'static str,
    arguments: Vec<String>,
    folder: PathBuf,
    port: u16,
    child: Option<Child>,
}

impl Engine {
    /// With the arguments for its port. Nobody waits until it is up.
    ///
    /// # Panics
    ///
    /// When it is not installed.
    pub fn start(program: &'static str, arguments: impl Fn(u16) -> Vec<String>) -> Self {
        let port = free_address().port();
        let mut engine = Self {
            program,
            arguments: arguments(port),
            folder: folder(),
            port,
            child: None,
        };
        engine.restart();
        engine
    }

    /// Where it listens.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Kills it; what it had on its disk stays.
    ///
    /// # Panics
    ///
    /// When the system forbids it.
    pub fn stop(&mut self) {
        if let Some(mut child) = self.child.take() {
            // A shell that has started it leaves it as a child.
            let group = Pid::from_child(&child);
            kill_process_group(group, Signal::KILL).expect("it was not waited for");
            child.wait().expect("it is a child");
        }
    }

    /// Starts it again, with what it had on its disk.
    ///
    /// # Panics
    ///
    /// When it is not installed.
    pub fn restart(&mut self) {
        let child = Command::new(self.program)
            .args(&self.arguments)
            .current_dir(&self.folder)
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
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
        _ = std::fs::remove_dir_all(&self.folder);
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
