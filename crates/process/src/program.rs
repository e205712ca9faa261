//! The program of this process, to be started once more: beside it, or in its place.

use std::ffi::OsString;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::Pid;

use crate::activation::VARIABLES;
use crate::link::Link;
use crate::process::Process;
use crate::spawner::{close_on_exec_from, put_at, reserve_passed};
use crate::{open_files, reap, which};

/// The descriptor at which a process that was started beside finds its end of the link.
const LINK: i32 = 3;
/// Names that descriptor for the process that is started.
const VARIABLE: &str = "PRONGHORN_UPGRADE";

/// What this process runs, and how it was called.
#[derive(Debug, Clone)]
pub struct Program {
    /// As it was called, with its links: what lies there at the next start counts.
    path: PathBuf,
    name: OsString,
    args: Vec<OsString>,
    folder: PathBuf,
}

impl Program {
    /// Looks at how this process was called. `folder` is the current one as a person names it: a
    /// link in it is followed anew by what is started.
    pub fn of_this_process(folder: PathBuf) -> io::Result<Self> {
        reserve_passed()?;
        let mut args = std::env::args_os();
        let name = args.next().unwrap_or_default();
        let itself = std::env::current_exe()?;
        let path = which(&name, std::env::var_os("PATH"), &folder)
            .filter(|path| is_same(path, &itself))
            .unwrap_or(itself);
        Ok(Self {
            path,
            name,
            args: args.collect(),
            folder,
        })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The link that this process was started with, if it takes over from another one. To be asked
    /// once, at the start.
    pub fn inherited_link() -> Option<Link> {
        let number = std::env::var(VARIABLE).ok()?.parse().ok()?;
        Link::inherited(number)
    }

    /// Whether a variable is about the start itself, and nothing for children.
    pub fn is_private(variable: &std::ffi::OsStr) -> bool {
        // Whoever has these speaks to systemd in the server's name.
        const OF_SYSTEMD: [&str; 3] = ["NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"];
        let mut private = [VARIABLE].into_iter().chain(VARIABLES).chain(OF_SYSTEMD);
        private.any(|private| variable == private)
    }

    /// Starts it beside this process, with the same standard streams. It gets no descriptor but
    /// those and the link, lives on when this process ends, and is not in its process group. Must
    /// be called within a tokio runtime with I/O.
    pub fn start(&self, link: Link) -> io::Result<Process> {
        reserve_passed()?;
        let mut command = self.command();
        command.env(VARIABLE, LINK.to_string()).process_group(0);
        // systemd's watchdog is to be fed by whoever serves, and that will be the new one.
        command.env_remove("WATCHDOG_PID");
        let link = link.into_descriptor();
        let in_child = move || {
            open_files::restore();
            put_at(LINK, &link)?;
            close_on_exec_from(LINK + 1);
            Ok(())
        };
        #[expect(
            unsafe_code,
            reason = "std's only way to run code between fork and exec"
        )]
        // SAFETY: the closure makes system calls alone; it takes no lock and allocates nothing.
        unsafe {
            command.pre_exec(in_child);
        }
        let spawning = reap::spawning();
        let mut child = command.spawn()?;
        let pid = Pid::from_child(&child);
        spawning.remember(pid);
        Process::watch(pid)
            .and_then(|end| Process::adopt(pid, end))
            .inspect_err(|_| {
                // Nobody would learn of its end.
                _ = child.kill();
                _ = child.wait();
                reap::forget(pid);
            })
    }

    /// Puts it in the place of this process, which keeps its number. Returns only when that fails.
    pub fn replace(&self, link: Link) -> io::Error {
        let number = match link.pass_on() {
            Ok(number) => number,
            Err(error) => return error,
        };
        open_files::restore();
        ignore_wishes();
        self.command().env(VARIABLE, number.to_string()).exec()
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.path);
        command.arg0(&self.name).args(&self.args);
        if self.folder.is_dir() {
            command.current_dir(&self.folder).env("PWD", &self.folder);
        }
        command
    }
}

/// From now on, a signal that asks for a stop ends this process at once. One that came before was
/// seen by whoever listened.
pub fn end_by_stops() {
    use nix::sys::signal::{SigHandler, Signal, signal};
    for stop in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGQUIT] {
        #[expect(unsafe_code, reason = "nix says so for every handler")]
        // SAFETY: the default installs no code.
        let set = unsafe { signal(stop, SigHandler::SigDfl) };
        _ = set; // if not, a signal of that moment is lost
    }
}

/// Signals that a server is renewed by would end the new program until it listens for them.
fn ignore_wishes() {
    use nix::sys::signal::{SigHandler, Signal, signal};
    for wish in [Signal::SIGHUP, Signal::SIGUSR1, Signal::SIGUSR2] {
        #[expect(unsafe_code, reason = "nix says so for every handler")]
        // SAFETY: ignoring installs no code; the runtime's own handlers are gone with exec in a
        // moment.
        let ignored = unsafe { signal(wish, SigHandler::SigIgn) };
        _ = ignored; // if not, a signal of that moment is lost with the process
    }
}

fn is_same(path: &Path, other: &Path) -> bool {
    let identity = |path: &Path| {
        std::fs::metadata(path)
            .ok()
            .map(|found| (found.dev(), found.ino()))
    };
    identity(path).is_some_and(|one| Some(one) == identity(other))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Exit;

    fn shell(script: &str) -> Program {
        Program {
            path: "/bin/sh".into(),
            name: "rr".into(),
            args: vec!["-c".into(), script.into()],
            folder: "/".into(),
        }
    }

    #[tokio::test]
    async fn it_gets_its_name_the_link_and_no_other_descriptor() {
        let said = std::env::temp_dir().join(format!("pronghorn-program-{}", std::process::id()));
        let script = format!(
            "(ls /proc/$$/fd | tr '\\n' ' '; tr '\\0' ' ' < /proc/$$/cmdline | cut -d' ' -f1; pwd; echo ${VARIABLE}) > {}",
            said.display()
        );
        let _open = std::fs::File::open("/dev/null").unwrap();
        let (_ours, theirs) = Link::pair().unwrap();
        let mut process = shell(&script).start(theirs).unwrap();
        assert_eq!(process.wait().await.unwrap(), Exit::Code(0));
        let text = std::fs::read_to_string(&said).unwrap();
        std::fs::remove_file(&said).unwrap();
        assert_eq!(text, "0 1 2 3 rr\n/\n3\n");
    }

    #[tokio::test]
    async fn its_end_is_seen_at_the_link_and_a_released_one_lives_on() {
        let (ours, theirs) = Link::pair().unwrap();
        let ours = ours.watch().unwrap();
        let process = shell("exec sleep 1000").start(theirs).unwrap();
        let pid = Pid::from_raw(process.pid().cast_signed()).unwrap();
        drop(process.release());
        rustix::process::test_kill_process(pid).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
        assert_eq!(ours.receive().await.unwrap(), None);
    }

    #[test]
    fn this_program_is_found_as_it_was_called() {
        let program =
            Program::of_this_process(std::env::current_dir().unwrap_or_default()).unwrap();
        assert!(is_same(program.path(), &std::env::current_exe().unwrap()));
    }
}
