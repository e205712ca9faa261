//! The server, under callgrind or not: started, cut into pieces, ended.

use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::error::Error;
use crate::worker::Worker;

/// For whatever is waited for: under callgrind the server is fifty times slower, and the machine
/// may be busy.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
/// Between two looks.
const STEP: Duration = Duration::from_micros(100);

/// The function before which callgrind cuts: SIGUSR1 leads there, and nothing else does.
const CUT: &str = "*logs::Logs::reopen*";

/// What the server's workers run: nothing. This program answers in their place.
pub(crate) const COMMAND: &str = "sleep";

/// The C library copies long runs by an instruction of which callgrind counts each byte, and not so
/// on all CPUs.
const TUNABLES: &str =
    "glibc.cpu.x86_rep_movsb_threshold=1000000000:glibc.cpu.x86_rep_stosb_threshold=1000000000";

/// Beside the binary: configurations, and the profiles that callgrind writes.
pub(crate) struct Folder(PathBuf);

impl Folder {
    /// `binary` is an absolute path.
    pub(crate) fn new(binary: &Path) -> Result<Self, Error> {
        let folder = binary.with_file_name("instructions");
        _ = fs::remove_dir_all(&folder); // of an earlier run, if there was one
        match fs::create_dir_all(&folder) {
            Ok(()) => Ok(Self(folder)),
            Err(source) => Err(Error::File {
                file: folder,
                source,
            }),
        }
    }

    pub(crate) fn file(&self, row: &str, ending: &str) -> PathBuf {
        self.0.join(format!("{row}.{ending}"))
    }

    /// The profile of a row's requests: callgrind's second part.
    pub(crate) fn profile(&self, row: &str) -> PathBuf {
        self.file(row, "profile.2")
    }
}

pub(crate) struct Server<'a> {
    row: &'static str,
    folder: &'a Folder,
    child: Child,
    pub(crate) address: SocketAddr,
    parts: u32,
}

impl<'a> Server<'a> {
    /// Starts a server under callgrind.
    pub(crate) fn under_callgrind(
        row: &'static str,
        configuration: &str,
        binary: &Path,
        folder: &'a Folder,
    ) -> Result<Self, Error> {
        let mut out_file = std::ffi::OsString::from("--callgrind-out-file=");
        out_file.push(folder.file(row, "profile"));
        let mut command = Command::new("valgrind");
        command
            .args(["--quiet", "--tool=callgrind"])
            .arg(format!("--dump-before={CUT}"))
            .arg(out_file)
            .arg(binary);
        Self::start(row, configuration, command, folder)
    }

    /// Starts a server by the command that its arguments follow.
    pub(crate) fn start(
        row: &'static str,
        configuration: &str,
        mut command: Command,
        folder: &'a Folder,
    ) -> Result<Self, Error> {
        let write = |ending, content: &str| {
            let file = folder.file(row, ending);
            match fs::write(&file, content) {
                Ok(()) => Ok(file),
                Err(source) => Err(Error::File { file, source }),
            }
        };
        let configuration = write("yaml", configuration)?;
        let output = |ending| {
            let file = folder.file(row, ending);
            File::create(&file).map_err(|source| Error::File { file, source })
        };
        let child = command
            .args(["serve", "-c"])
            .arg(configuration)
            .env("GLIBC_TUNABLES", TUNABLES)
            .stdin(Stdio::null())
            .stdout(output("stdout")?)
            .stderr(output("stderr")?)
            .spawn()
            .map_err(Error::NoProgram)?;
        Ok(Self {
            row,
            folder,
            child,
            address: SocketAddr::from(([127, 0, 0, 1], 0)),
            parts: 0,
        })
    }

    /// The process that was started as its worker.
    pub(crate) fn worker(&mut self) -> Result<Worker, Error> {
        let server = self.child.id();
        let pid = self.wait_for("its worker to be started", |_| {
            let processes = fs::read_dir("/proc").ok()?;
            processes
                .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
                .find(|pid| is_child(*pid, server, COMMAND))
        })?;
        Worker::of(pid).map_err(|what| self.wrong(what))
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits until it says where it serves.
    pub(crate) fn wait_until_it_serves(&mut self) -> Result<(), Error> {
        self.address = self.wait_for("the server to serve", |server| {
            let said = fs::read_to_string(server.folder.file(server.row, "stderr")).ok()?;
            let (_, rest) = said.split_once(" serves http://")?;
            rest.split(' ').next()?.parse().ok()
        })?;
        Ok(())
    }

    /// Waits until each of its threads waits for something. What the server did until then does not
    /// depend on how fast the other side is.
    pub(crate) fn wait_until_it_sleeps(&mut self) -> Result<(), Error> {
        let pid = self.child.id();
        self.wait_for("the server to come to rest", |_| {
            let threads = fs::read_dir(format!("/proc/{pid}/task")).ok()?;
            let asleep = threads.filter_map(Result::ok).all(|thread| {
                fs::read_to_string(thread.path().join("stat"))
                    .is_ok_and(|stat| state(&stat) == Some('S'))
            });
            asleep.then_some(())
        })
    }

    /// Ends a part of the profile; returns what it counted.
    pub(crate) fn cut(&mut self) -> Result<u64, Error> {
        self.wait_until_it_sleeps()?;
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        if let Some(pid) = pid {
            _ = kill_process(pid, Signal::USR1); // a dead one is noticed below
        }
        self.parts += 1;
        let file = self
            .folder
            .file(self.row, &format!("profile.{}", self.parts));
        let counted = self.wait_for("callgrind to cut its profile", |_| {
            total(&fs::read_to_string(&file).ok()?)
        })?;
        self.wait_until_it_sleeps()?;
        Ok(counted)
    }

    pub(crate) fn wait_for<T>(
        &mut self,
        what: &'static str,
        mut found: impl FnMut(&Self) -> Option<T>,
    ) -> Result<T, Error> {
        let start = Instant::now();
        loop {
            if let Some(found) = found(self) {
                return Ok(found);
            }
            if let Ok(Some(status)) = self.child.try_wait() {
                return Err(self.wrong(format!("the server ended with {status}")));
            }
            if start.elapsed() > PATIENCE {
                return Err(self.late(what));
            }
            std::thread::sleep(STEP);
        }
    }

    pub(crate) fn late(&self, what: &'static str) -> Error {
        Error::Late {
            row: self.row,
            what,
            seconds: PATIENCE.as_secs(),
            said: self.said(),
        }
    }

    pub(crate) fn wrong(&self, what: String) -> Error {
        Error::Wrong {
            row: self.row,
            what,
            said: self.said(),
        }
    }

    fn said(&self) -> String {
        let said = fs::read_to_string(self.folder.file(self.row, "stderr")).unwrap_or_default();
        if said.is_empty() {
            return said;
        }
        format!("\nit said:\n{said}")
    }
}

impl Drop for Server<'_> {
    /// Nothing of it counts any more; its worker dies with it.
    fn drop(&mut self) {
        _ = self.child.kill(); // it may have ended
        _ = self.child.wait();
    }
}

fn is_child(pid: u32, parent: u32, command: &str) -> bool {
    status_of(pid) == Some((command.to_owned(), parent))
}

/// The name of a process, and its parent.
pub(crate) fn status_of(pid: u32) -> Option<(String, u32)> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (start, rest) = stat.rsplit_once(')')?;
    let (_, name) = start.split_once('(')?;
    let parent = rest.split_whitespace().nth(1)?;
    Some((name.to_owned(), parent.parse().ok()?))
}

/// The state in a line of `/proc/<pid>/task/<tid>/stat`.
fn state(stat: &str) -> Option<char> {
    let (_, rest) = stat.rsplit_once(')')?;
    rest.trim_start().chars().next()
}

/// The sum at the end of a profile; none while it is being written.
pub(crate) fn total(profile: &str) -> Option<u64> {
    let line = profile
        .lines()
        .rev()
        .find_map(|line| line.strip_prefix("totals: "));
    line?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_of_a_thread_is_read_behind_its_name() {
        assert_eq!(state("42 (a) R (b) S 1 42"), Some('S'));
        assert_eq!(state("42 (io-0) R 1 42"), Some('R'));
        assert_eq!(state("42"), None);
    }

    #[test]
    fn a_profile_that_is_being_written_has_no_sum() {
        assert_eq!(total("fn=(1)\n1 2\n"), None);
        assert_eq!(total("fn=(1)\n1 2\n\ntotals: 12345\n"), Some(12_345));
    }
}
