//! That nothing is left of a run: looked at when everything was stopped, after an error and Ctrl-C
//! too.
//!
//! What the runner starts finds the run's folder in its environment, and so does whatever that
//! starts: a process that left its group and its parent is found as well.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::time::{Instant, sleep};

use crate::processes::{all_pids, listeners, listening_ports, listening_sockets};

/// What was killed needs a moment to be gone.
const PATIENCE: Duration = Duration::from_secs(5);
const STEP: Duration = Duration::from_millis(20);

/// What a run must not leave.
#[derive(Debug, Clone)]
pub(crate) struct Traces {
    pub(crate) folder: PathBuf,
    pub(crate) ports: Vec<u16>,
}

impl Traces {
    /// A line for each thing that is still there after a while. It is removed then.
    pub(crate) async fn left(&self) -> Vec<String> {
        self.left_after(PATIENCE).await
    }

    async fn left_after(&self, patience: Duration) -> Vec<String> {
        let deadline = Instant::now() + patience;
        loop {
            let left = self.look();
            if left.is_empty() {
                return left;
            }
            if Instant::now() > deadline {
                self.remove().await;
                return left;
            }
            sleep(STEP).await;
        }
    }

    /// Told or not, it must not stay. Returns when it is gone, or gives up on it.
    async fn remove(&self) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let pids: Vec<u32> = self.processes().collect();
            if pids.is_empty() || Instant::now() > deadline {
                break;
            }
            for pid in pids {
                if let Some(pid) = pid.try_into().ok().and_then(Pid::from_raw) {
                    _ = kill_process(pid, Signal::KILL); // it may have ended just now
                }
            }
            sleep(STEP).await;
        }
        _ = fs::remove_dir_all(&self.folder); // told already
    }

    fn processes(&self) -> impl Iterator<Item = u32> {
        all_pids().filter(|pid| *pid != std::process::id() && belongs(*pid, &self.folder))
    }

    /// Somebody listens who is of this run, or can't be seen. Others may have got the port since it
    /// was free again.
    fn holds(&self, port: u16) -> bool {
        let listeners = listeners(port);
        let ours = |pid: &u32| *pid == std::process::id() || belongs(*pid, &self.folder);
        if listeners.is_empty() {
            !listening_sockets(port).is_empty()
        } else {
            listeners.iter().any(ours)
        }
    }

    fn look(&self) -> Vec<String> {
        let processes = self
            .processes()
            .map(|pid| format!("process {pid}: {}", command_line(pid)));
        // Once for all ports: the kernel's table is long where thousands of connections were closed
        // just now.
        let open = listening_ports();
        let ports = self.ports.iter();
        let ports = ports.filter(|port| open.contains(*port) && self.holds(**port));
        let ports = ports.map(|port| format!("somebody listens on port {port}"));
        let folder = self
            .folder
            .exists()
            .then(|| format!("folder {}", self.folder.display()));
        processes.chain(ports).chain(folder).collect()
    }
}

/// Of a run in this folder. A process that ended but was not waited for has no environment any
/// more.
fn belongs(pid: u32, folder: &Path) -> bool {
    let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    let folder = folder.as_os_str().as_encoded_bytes();
    environment
        .windows(folder.len())
        .any(|window| window == folder)
}

fn command_line(pid: u32) -> String {
    let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let text = String::from_utf8_lossy(&words);
    text.split('\0')
        .collect::<Vec<_>>()
        .join(" ")
        .trim()
        .to_owned()
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    fn traces(name: &str) -> Traces {
        let name = format!("pronghorn-leftovers-{name}-{}", std::process::id());
        Traces {
            folder: std::env::temp_dir().join(name),
            ports: Vec::new(),
        }
    }

    #[tokio::test]
    async fn of_a_clean_run_nothing_is_left() {
        assert_eq!(traces("none").left().await, Vec::<String>::new());
    }

    #[tokio::test]
    async fn a_process_that_hid_is_found_until_it_is_gone() {
        let traces = traces("process");
        // It leaves its group, session and parent.
        let planted = Command::new("setsid")
            .args(["sh", "-c", "sleep 60 >/dev/null 2>&1 & echo $!"])
            .env("TMPDIR", traces.folder.join("1234/tmp"))
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let pid: u32 = String::from_utf8(planted.stdout)
            .unwrap()
            .trim()
            .parse()
            .unwrap();
        let left = traces.left_after(Duration::ZERO).await;
        assert!(
            left.iter()
                .any(|line| *line == format!("process {pid}: sleep 60")),
            "{left:?}"
        );
        assert_eq!(traces.left().await, Vec::<String>::new(), "it was killed");
    }

    #[tokio::test]
    async fn a_port_that_is_still_listened_on_and_a_folder_are_found() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let traces = Traces {
            ports: vec![port],
            ..traces("port")
        };
        fs::create_dir(&traces.folder).unwrap();
        let left = traces.left_after(Duration::ZERO).await;
        drop(listener);
        assert!(!traces.folder.exists());
        let folder = format!("folder {}", traces.folder.display());
        assert_eq!(left, [format!("somebody listens on port {port}"), folder]);
    }
}
