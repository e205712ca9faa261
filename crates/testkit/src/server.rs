//! A server under test: the real binary.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

use crate::php;
use crate::site::repository;
use crate::{Connection, PATIENCE, Response, Site, wait_for};

/// In every process that a server under test starts, so that those that are left can be found.
const MARK: &str = "PRONGHORN_TEST";
/// How often a server that has not said its address in the log is asked for it.
const ASKING: Duration = Duration::from_secs(1);
/// Time that what a killed server started may take to go. A worker that is deaf to signals looks
/// for its server every five seconds.
const TO_GO: Duration = Duration::from_secs(20);

/// A running server.
#[derive(Debug)]
pub struct Server {
    child: Child,
    /// The process that an upgrade put in the place of `child`.
    successor: Option<Pid>,
    address: SocketAddr,
    stdout: Output,
    stderr: Output,
    mark: String,
    site: Site,
    /// What asks it to end.
    stop: Signal,
    ended: bool,
}

/// A command that has ended.
#[derive(Debug)]
pub struct Ended {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Ended {
    /// A start that failed (code 1) and said all of these on stderr.
    ///
    /// # Panics
    ///
    /// When it ended otherwise or did not say one of them.
    pub fn assert_refused(&self, parts: &[&str]) {
        assert_eq!(self.code, Some(1), "{}", self.stderr);
        for part in parts {
            assert!(self.stderr.contains(part), "{part} in\n{}", self.stderr);
        }
    }

    /// One that had what was asked for (code 0), and said all of these on stdout.
    ///
    /// # Panics
    ///
    /// When it ended otherwise or did not say one of them.
    pub fn assert_said(&self, parts: &[&str]) {
        self.assert_said_with(0, parts);
    }

    /// As [`assert_said`](Self::assert_said), with this exit code.
    ///
    /// # Panics
    ///
    /// As that.
    pub fn assert_said_with(&self, code: i32, parts: &[&str]) {
        assert_eq!(self.code, Some(code), "{}", self.stdout);
        for part in parts {
            assert!(self.stdout.contains(part), "{part} in\n{}", self.stdout);
        }
    }
}

/// What a process prints, as it comes, and whether that was all.
#[derive(Debug, Clone, Default)]
struct Output(Arc<Mutex<String>>, Arc<AtomicBool>);

impl Output {
    fn follow(stream: impl std::io::Read + Send + 'static) -> Self {
        let output = Self::default();
        let copy = output.clone();
        std::thread::spawn(move || {
            let mut lines = BufReader::new(stream);
            let mut line = Vec::new();
            while lines
                .read_until(b'\n', &mut line)
                .is_ok_and(|read| read > 0)
            {
                copy.0
                    .lock()
                    .expect("nobody panics with it")
                    .push_str(&String::from_utf8_lossy(&line));
                line.clear();
            }
            copy.1.store(true, Ordering::Release);
        });
        output
    }

    fn text(&self) -> String {
        self.0.lock().expect("nobody panics with it").clone()
    }

    /// The first line behind `at` that has all of these in it; `at` moves past what was searched,
    /// so that waiting for a line reads a long log once.
    fn line_after(&self, at: &mut usize, parts: &[&str]) -> Option<String> {
        let text = self.0.lock().expect("nobody panics with it");
        let mut fresh = text.get(*at..).unwrap_or_default().lines();
        let line = fresh.find(|line| parts.iter().all(|part| line.contains(part)));
        *at = text.len();
        line.map(str::to_owned)
    }
}

impl Server {
    /// Starts a server on a site and waits until it serves.
    pub fn start(site: Site) -> Self {
        Self::start_with(site, &["serve"])
    }

    /// Starts it with these arguments.
    ///
    /// # Panics
    ///
    /// When it does not come up; with all that it said.
    pub fn start_with(site: Site, arguments: &[&str]) -> Self {
        let program = Command::new(binary());
        Self::start_called(program, site, arguments, Signal::TERM, |_, stderr| {
            served_at(stderr)
        })
    }

    /// Starts it by a program that executes the command which is its arguments.
    ///
    /// # Panics
    ///
    /// When it does not come up; with all that it said.
    pub fn start_under(program: &Path, site: Site) -> Self {
        let mut command = Command::new(program);
        command.arg(binary());
        Self::start_called(command, site, &["serve"], Signal::TERM, |_, stderr| {
            served_at(stderr)
        })
    }

    /// Starts a server of somebody's own, by the name of its binary.
    ///
    /// # Panics
    ///
    /// When it does not come up; with all that it said.
    pub fn start_own(name: &str, site: Site, arguments: &[&str]) -> Self {
        let program = Command::new(built(name));
        Self::start_called(program, site, arguments, Signal::TERM, |_, stderr| {
            served_at(stderr)
        })
    }

    /// Starts a server of somebody's own that does not serve HTTP, by the name of its binary.
    ///
    /// # Panics
    ///
    /// When it does not come up; with all that it said.
    pub fn start_own_without_http(name: &str, site: Site, arguments: &[&str]) -> Self {
        let nowhere = SocketAddr::from(([127, 0, 0, 1], 0));
        Self::start_called(
            Command::new(built(name)),
            site,
            arguments,
            Signal::TERM,
            |_, stderr| stderr.contains(" runs (").then_some(nowhere),
        )
    }

    /// Starts the server with a configuration that serves something else than HTTP.
    ///
    /// # Panics
    ///
    /// When it does not come up; with all that it said.
    pub fn start_without_http(site: Site) -> Self {
        let nowhere = SocketAddr::from(([127, 0, 0, 1], 0));
        Self::start_called(
            Command::new(binary()),
            site,
            &["serve"],
            Signal::TERM,
            |_, stderr| stderr.contains(" serves ").then_some(nowhere),
        )
    }

    /// Starts it by a command of the caller's: another copy of the binary, more variables.
    ///
    /// # Panics
    ///
    /// When it does not come up; with all that it said.
    pub fn start_by(command: Command, site: Site, arguments: &[&str]) -> Self {
        Self::start_called(command, site, arguments, Signal::TERM, |_, stderr| {
            served_at(stderr)
        })
    }

    /// Starts it under another name, as which it does not say its address.
    ///
    /// # Panics
    ///
    /// When it does not come up; with all that it said.
    pub fn start_as_rr(
        site: Site,
        arguments: &[&str],
        environment: &[(&str, &str)],
        address: SocketAddr,
    ) -> Self {
        let mut rr = Command::new(as_rr(&site));
        rr.envs(environment.iter().copied());
        Self::start_called(rr, site, arguments, Signal::TERM, |stdout, _| {
            stdout.contains("server started").then_some(address)
        })
    }

    /// Starts not ours but PHP's own, with one script for every request.
    ///
    /// # Panics
    ///
    /// When it does not come up; with all that it said.
    pub fn start_php(site: Site, script: &Path, environment: &[(&str, &str)]) -> Self {
        let mut php = Command::new("php");
        php.envs(environment.iter().copied());
        let folder = script.parent().unwrap_or(script);
        php.args(["-S", "127.0.0.1:0", "-t"])
            .arg(folder)
            .arg(script);
        Self::start_called(php, site, &[], Signal::INT, |_, stderr| {
            address_after("Server (http://", stderr)
        })
    }

    /// Starts it with more variables.
    ///
    /// # Panics
    ///
    /// When it does not come up; with all that it said.
    pub fn start_with_environment(
        site: Site,
        arguments: &[&str],
        environment: &[(&str, &str)],
    ) -> Self {
        let mut command = Command::new(binary());
        command.envs(environment.iter().copied());
        Self::start_called(command, site, arguments, Signal::TERM, |_, stderr| {
            served_at(stderr)
        })
    }

    /// Starts it as systemd does for a socket that it has opened, of this name.
    ///
    /// # Panics
    ///
    /// When it does not come up; with all that it said.
    pub fn start_activated(site: Site, socket: impl Into<OwnedFd>, name: &str) -> Self {
        const PASS: &str = "exec 3<&0 0</dev/null; LISTEN_PID=$$ LISTEN_FDS=1 exec \"$@\"";
        let mut command = Command::new("sh");
        command.args(["-c", PASS, "sh"]).arg(binary());
        command.env("LISTEN_FDNAMES", name);
        let stdin = Stdio::from(socket.into());
        Self::start_fed(
            command,
            stdin,
            site,
            &["serve"],
            Signal::TERM,
            |_, stderr| served_at(stderr),
        )
    }

    fn start_called(
        command: Command,
        site: Site,
        arguments: &[&str],
        stop: Signal,
        greeted: impl Fn(&str, &str) -> Option<SocketAddr>,
    ) -> Self {
        Self::start_fed(command, Stdio::null(), site, arguments, stop, greeted)
    }

    fn start_fed(
        mut command: Command,
        stdin: Stdio,
        site: Site,
        arguments: &[&str],
        stop: Signal,
        greeted: impl Fn(&str, &str) -> Option<SocketAddr>,
    ) -> Self {
        let mark = next_mark();
        command.args(arguments);
        let is_ours = command.get_program() == binary().as_os_str();
        // For the same server: with its configuration and folder.
        let named = arguments
            .windows(2)
            .filter(|two| matches!(two[0], "-c" | "-w"));
        let status = std::iter::once(["status"].as_slice()).chain(named);
        let status: Vec<&str> = status.flatten().copied().collect();
        let mut command = on_site(command, &site, &mark);
        command.stdin(stdin);
        let (mut child, stdout, stderr) = spawn(command);
        let start = Instant::now();
        let mut asked = ASKING;
        let address = loop {
            if let Some(address) = greeted(&stdout.text(), &stderr.text()) {
                break address;
            }
            if let Ok(Some(status)) = child.try_wait() {
                panic!(
                    "the server ended with {status}:\n{}{}",
                    stdout.text(),
                    stderr.text()
                );
            }
            assert!(
                start.elapsed() < PATIENCE,
                "the server did not come up:\n{}{}",
                stdout.text(),
                stderr.text()
            );
            // Logs may be written elsewhere, or not at all.
            if is_ours && start.elapsed() >= asked {
                asked += ASKING;
                let status = ended(self::command(&site, &status, &mark));
                // The listener of metrics may be there before, and is not asked for.
                let mut lines = status.stdout.lines().map(str::trim_start);
                let site = lines.find(|line| {
                    let name = line.split(' ').next();
                    matches!(name, Some("http" | "fileserver"))
                });
                if let Some(address) = site.and_then(|line| address_after("http://", line)) {
                    break address;
                }
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        Self {
            child,
            successor: None,
            address,
            stdout,
            stderr,
            mark,
            site,
            stop,
            ended: false,
        }
    }

    /// Runs a command that is expected to end by itself.
    ///
    /// # Panics
    ///
    /// When it doesn't, or leaves something behind.
    pub fn run(site: &Site, arguments: &[&str]) -> Ended {
        Self::run_to_end(site, |mark| command(site, arguments, mark))
    }

    /// Runs a command for this server.
    pub fn steer(&self, arguments: &[&str]) -> Ended {
        Self::run_beside(&self.site, arguments)
    }

    /// Runs it as `rr`.
    pub fn steer_as_rr(&self, arguments: &[&str]) -> Ended {
        let mut command = Command::new(as_rr(&self.site));
        command.args(arguments);
        ended(on_site(command, &self.site, &next_mark()))
    }

    /// Runs a command on a site on which a server may run, too.
    pub fn run_beside(site: &Site, arguments: &[&str]) -> Ended {
        ended(command(site, arguments, &next_mark()))
    }

    /// The control socket.
    ///
    /// # Panics
    ///
    /// When there is none, or another one.
    pub fn control_socket(&self) -> PathBuf {
        let mut sockets = control_sockets(self.site.folder());
        assert_eq!(sockets.len(), 1, "{sockets:?}");
        sockets.remove(0)
    }

    /// Runs it as `rr`.
    pub fn run_as_rr(site: &Site, arguments: &[&str]) -> Ended {
        Self::run_to_end(site, |mark| {
            let mut command = Command::new(as_rr(site));
            command.args(arguments);
            on_site(command, site, mark)
        })
    }

    /// Runs a command of the caller's, which is expected to end by itself.
    pub fn run_by(mut command: Command, site: &Site, arguments: &[&str]) -> Ended {
        Self::run_to_end(site, |mark| {
            command.args(arguments);
            on_site(command, site, mark)
        })
    }

    /// Runs a command that compiles, which takes minutes on a busy machine.
    pub fn build_by(mut command: Command, site: &Site, arguments: &[&str]) -> Ended {
        const OF_A_BUILD: Duration = Duration::from_mins(10);
        Self::run_within(OF_A_BUILD, site, |mark| {
            command.args(arguments);
            on_site(command, site, mark)
        })
    }

    /// Runs it with another search path.
    pub fn run_with_path(site: &Site, arguments: &[&str], path: &str) -> Ended {
        Self::run_to_end(site, |mark| {
            let mut command = command(site, arguments, mark);
            command.env("PATH", path);
            command
        })
    }

    /// Runs it as a user who may not do everything: as root, but without root's capabilities, when
    /// the test runs as root.
    pub fn run_without_rights(site: &Site, arguments: &[&str]) -> Ended {
        if !rustix::process::geteuid().is_root() {
            return Self::run(site, arguments);
        }
        Self::run_to_end(site, |mark| {
            let mut command = Command::new("setpriv");
            command
                .args(["--bounding-set=-all", "--inh-caps=-all"])
                .arg(binary())
                .args(arguments);
            on_site(command, site, mark)
        })
    }

    fn run_to_end(site: &Site, command: impl FnOnce(&str) -> Command) -> Ended {
        Self::run_within(PATIENCE, site, command)
    }

    fn run_within(limit: Duration, site: &Site, command: impl FnOnce(&str) -> Command) -> Ended {
        let mark = next_mark();
        let ended = ended_within(limit, command(&mark));
        assert_nothing_left(&mark, site.folder());
        ended
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn site(&self) -> &Site {
        &self.site
    }

    /// Of the process that serves.
    pub fn pid(&self) -> u32 {
        match self.successor {
            Some(pid) => pid.as_raw_nonzero().get().cast_unsigned(),
            None => self.child.id(),
        }
    }

    /// Upgrades it by a signal, and waits until the new process serves and the old one has ended.
    ///
    /// # Panics
    ///
    /// When that does not happen, or the old process fails.
    pub fn upgrade(&mut self) {
        self.ask_for_upgrade();
        self.follow_upgrade();
    }

    /// Only signals. The new process is then a stranger until it is
    /// [followed](Self::follow_upgrade).
    pub fn ask_for_upgrade(&self) {
        // The new process is to be this one's child when its parent has ended, so that its end can
        // be seen.
        rustix::process::set_child_subreaper(Pid::from_raw(1)).expect("Linux has it");
        self.signal(Signal::USR2);
    }

    /// Waits until the process that an upgrade has started is the one that serves.
    ///
    /// # Panics
    ///
    /// As [`upgrade`](Self::upgrade).
    pub fn follow_upgrade(&mut self) {
        let old = self.pid();
        let status = self.wait_for_process();
        assert_eq!(
            status.code(),
            Some(0),
            "process {old} failed:\n{}",
            self.log()
        );
        let new = self.serving().into_iter().next();
        let new = new.unwrap_or_else(|| panic!("no process serves:\n{}", self.log()));
        self.successor = Some(pid_of(new));
    }

    /// Kills the process that was asked for an upgrade, and goes on with the one that it has
    /// started.
    ///
    /// # Panics
    ///
    /// When it has started none.
    pub fn follow_killed(&mut self) {
        self.signal(Signal::KILL);
        self.wait_for_process();
        let new = self.serving().into_iter().next();
        let new = new.unwrap_or_else(|| panic!("no process follows:\n{}", self.log()));
        self.successor = Some(pid_of(new));
    }

    /// The numbers of all processes of this server, also of those that finish what they have.
    pub fn serving(&self) -> Vec<u32> {
        let mut pids = marked(&self.mark, self.site.folder());
        pids.retain(|pid| {
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            line.split(|byte| *byte == 0).any(|word| word == b"serve")
        });
        pids
    }

    fn wait_for_process(&mut self) -> ExitStatus {
        match self.successor {
            Some(pid) => wait_for("the new server to end", || {
                // A process between that is at its very end is still the parent of this one.
                let ended = match waitpid(Some(pid), WaitOptions::NOHANG) {
                    Err(Errno::CHILD) => None,
                    answer => answer.expect("it can be asked"),
                };
                ended.map(|(_, status)| ExitStatus::from_raw(status.as_raw()))
            }),
            None => wait(&mut self.child, "the server to end"),
        }
    }

    /// A new connection.
    pub fn connect(&self) -> Connection {
        Connection::open(self.address)
    }

    /// What the server's memory was at most since its start, in KB.
    ///
    /// # Panics
    ///
    /// When it has ended.
    pub fn peak_memory(&self) -> u64 {
        self.memory("VmHWM:")
    }

    /// What the server's memory is, in KB.
    ///
    /// # Panics
    ///
    /// When it has ended.
    pub fn resident_memory(&self) -> u64 {
        self.memory("VmRSS:")
    }

    fn memory(&self, which: &str) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid()));
        let status = status.expect("the server lives");
        let line = status.lines().find_map(|line| line.strip_prefix(which));
        let figure = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
        figure.expect("the kernel tells the memory of a process")
    }

    /// GETs over a connection of its own.
    pub fn get(&self, target: &str) -> Response {
        self.connect().get(target)
    }

    /// POSTs a body of the given type.
    pub fn post(&self, target: &str, content_type: &str, body: impl AsRef<[u8]>) -> Response {
        let body = body.as_ref();
        let mut connection = self.connect();
        connection.request(
            "POST",
            target,
            &format!(
                "Content-Type: {content_type}\r\nContent-Length: {}\r\n",
                body.len()
            ),
        );
        connection.send(body);
        connection.response()
    }

    /// What it has logged so far (on stderr).
    pub fn log(&self) -> String {
        self.stderr.text()
    }

    pub fn stdout(&self) -> String {
        self.stdout.text()
    }

    /// Waits until a line of the log has all of these in it, and returns it.
    pub fn logged(&self, parts: &[&str]) -> String {
        let mut at = 0;
        wait_for(&format!("{parts:?} in the log"), || {
            self.stderr.line_after(&mut at, parts)
        })
    }

    /// Processes that the server started and that live, without those that they are forked from.
    pub fn workers(&self) -> Vec<u32> {
        self.children(false)
    }

    /// Those that workers are forked from.
    pub fn zygotes(&self) -> Vec<u32> {
        self.children(true)
    }

    fn children(&self, zygotes: bool) -> Vec<u32> {
        let mut pids = marked(&self.mark, self.site.folder());
        pids.retain(|pid| *pid != self.pid() && is_zygote(*pid) == Some(zygotes));
        pids
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(pid_of(self.pid()), signal).expect("the server lives");
    }

    /// Asks the server to end and waits for that.
    ///
    /// # Panics
    ///
    /// When it doesn't end, ends with a failure, or leaves something behind.
    pub fn stop(mut self) -> Ended {
        self.signal(self.stop);
        let ended = self.wait();
        assert_eq!(ended.code, Some(0), "the server failed:\n{}", ended.stderr);
        ended
    }

    /// Stops it as [`stop`](Self::stop) does, and gives the application back so that it can be
    /// served in another way.
    ///
    /// # Panics
    ///
    /// As [`stop`](Self::stop).
    pub fn into_site(mut self) -> Site {
        let site = std::mem::take(&mut self.site);
        self.signal(self.stop);
        let status = self.wait_for_process();
        self.ended = true;
        assert_eq!(status.code(), Some(0), "the server failed:\n{}", self.log());
        assert_nothing_left(&self.mark, site.folder());
        site
    }

    /// Kills it, and gives the application back once its workers have noticed.
    ///
    /// # Panics
    ///
    /// When they do not.
    pub fn killed(mut self) -> Site {
        let site = std::mem::take(&mut self.site);
        self.signal(Signal::KILL);
        let status = self.wait_for_process();
        self.ended = true;
        assert_little_left(status, &self.mark, site.folder());
        site
    }

    /// Gives the application back when it has [ended](Self::wait).
    ///
    /// # Panics
    ///
    /// When it has not.
    pub fn into_ended_site(mut self) -> Site {
        assert!(self.ended, "it was not waited for");
        std::mem::take(&mut self.site)
    }

    /// Starts another one at once: this one was killed, and what it has left may still be there.
    ///
    /// # Panics
    ///
    /// When that one does not come up.
    #[must_use]
    pub fn started_again(mut self) -> Self {
        self.ended = true;
        Self::start(std::mem::take(&mut self.site))
    }

    /// Waits for its end, whatever brought it about.
    ///
    /// # Panics
    ///
    /// When it doesn't end or leaves something behind.
    pub fn wait(&mut self) -> Ended {
        let status = self.wait_for_process();
        self.ended = true;
        assert_little_left(status, &self.mark, self.site.folder());
        Ended {
            code: status.code(),
            stdout: settled(&self.stdout),
            stderr: settled(&self.stderr),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        _ = kill_process(pid_of(self.pid()), Signal::KILL);
        _ = self.child.kill();
        _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("--- the server's log\n{}---", self.log());
        } else {
            panic!(
                "a test must stop its server: what a server leaves behind is part of every test"
            );
        }
    }
}

/// Nothing of a process that has ended, such as the one in between from which a zygote forks a
/// worker: that one bears the zygote's name for a moment.
fn is_zygote(pid: u32) -> Option<bool> {
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
    Some(name.trim() == "php-zygote")
}

fn pid_of(number: u32) -> Pid {
    Pid::from_raw(number.cast_signed()).expect("a process number")
}

fn next_mark() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    format!(
        "{}-{}",
        std::process::id(),
        NEXT.fetch_add(1, Ordering::Relaxed)
    )
}

fn command(site: &Site, arguments: &[&str], mark: &str) -> Command {
    let mut command = Command::new(binary());
    command.args(arguments);
    on_site(command, site, mark)
}

/// Starts a command and follows what it prints on stdout and stderr.
fn spawn(mut command: Command) -> (Child, Output, Output) {
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary can be started");
    let stdout = Output::follow(child.stdout.take().expect("stdout is a pipe"));
    let stderr = Output::follow(child.stderr.take().expect("stderr is a pipe"));
    (child, stdout, stderr)
}

/// Runs a command to its end.
fn ended(command: Command) -> Ended {
    ended_within(PATIENCE, command)
}

fn ended_within(limit: Duration, command: Command) -> Ended {
    let (mut child, stdout, stderr) = spawn(command);
    let status = wait_within(limit, &mut child, "the command to end");
    Ended {
        code: status.code(),
        stdout: settled(&stdout),
        stderr: settled(&stderr),
    }
}

fn on_site(mut command: Command, site: &Site, mark: &str) -> Command {
    // What a test has set or removed itself wins.
    let own = command.get_envs();
    let own = own.map(|(name, value)| (name.to_owned(), value.map(ToOwned::to_owned)));
    let own: Vec<_> = own.collect();
    command
        .current_dir(site.folder())
        .env("PWD", site.folder())
        .env(MARK, mark)
        // Spool files land where they are looked for.
        .env("TMPDIR", site.folder())
        // Control sockets as well, and none of the machine's own servers is found.
        .env("XDG_RUNTIME_DIR", site.folder())
        // As root it would be that of the machine.
        .env("STATE_DIRECTORY", site.path("state"))
        // Nothing is kept for the next server, or taken from the one before.
        .env("XDG_CACHE_HOME", "/dev/null")
        .env(php::SCAN, php::php_configuration())
        .env_remove("RUNTIME_DIRECTORY")
        .env_remove("RUST_BACKTRACE")
        .stdin(Stdio::null());
    for (name, value) in own {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command
}

/// The binary under test: `PRONGHORN_BIN`, else what `cargo build` made last.
pub fn binary() -> PathBuf {
    if let Some(binary) = std::env::var_os("PRONGHORN_BIN") {
        return binary.into();
    }
    built("pronghorn")
}

/// What `cargo build` made last under this name.
/// A binary that `cargo build` has made.
///
/// # Panics
///
/// When it is not there.
pub fn built(name: &str) -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| repository().join("target"), PathBuf::from);
    let binary = target.join("debug").join(name);
    assert!(
        binary.exists(),
        "{} is not there: `make test` builds it first",
        binary.display()
    );
    binary
}

/// The binary by the name of the one that it replaces.
fn as_rr(site: &Site) -> PathBuf {
    let rr = site.path("rr");
    if !rr.exists() {
        std::os::unix::fs::symlink(binary(), &rr).expect("a link can be made");
    }
    rr
}

/// The first address without TLS that it says it serves.
fn served_at(said: &str) -> Option<SocketAddr> {
    let said = said.split_once("serves ")?.1;
    address_after("http://", said)
        .or_else(|| address_after("https://", said))
        .or_else(|| address_after("grpc://", said))
}

/// The address that stands behind these words.
fn address_after(words: &str, said: &str) -> Option<SocketAddr> {
    let rest = said.split_once(words)?.1;
    rest.split([' ', ')', '\n']).next()?.parse().ok()
}

fn wait(child: &mut Child, what: &str) -> ExitStatus {
    wait_within(PATIENCE, child, what)
}

fn wait_within(limit: Duration, child: &mut Child, what: &str) -> ExitStatus {
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait().expect("it can be waited for") {
            return status;
        }
        if start.elapsed() > limit {
            _ = child.kill();
            panic!("waited {limit:?} for {what}");
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// The text of a stream whose writer has ended: the thread that reads it may be behind, on a busy
/// machine for long. A process that was left behind keeps the stream open.
fn settled(output: &Output) -> String {
    let start = Instant::now();
    while !output.1.load(Ordering::Acquire) && start.elapsed() < Duration::from_secs(5) {
        std::thread::sleep(Duration::from_millis(2));
    }
    output.text()
}

/// Live processes with this mark in their environment. Programs get little of a server's
/// environment: without a mark, their folder for temporary files tells whose they are.
fn marked(mark: &str, folder: &Path) -> Vec<u32> {
    let (wanted, temporary) = (
        format!("{MARK}={mark}"),
        format!("TMPDIR={}", folder.display()),
    );
    pids()
        .filter(|pid| {
            let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            let status = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            let zombie = status.contains(") Z ");
            let has =
                |wanted: &dyn Fn(&[u8]) -> bool| environment.split(|byte| *byte == 0).any(wanted);
            let is_unmarked = || !has(&|variable| variable.starts_with(MARK.as_bytes()));
            !zombie
                && (has(&|variable| variable == wanted.as_bytes())
                    || is_unmarked() && has(&|variable| variable == temporary.as_bytes()))
        })
        .collect()
}

fn pids() -> impl Iterator<Item = u32> {
    let processes = std::fs::read_dir("/proc").expect("/proc is there");
    let processes = processes.flatten();
    processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// Workers of a php-fpm without their master: they write over their environment, so their folder
/// tells whose they are.
fn orphans_of_php_fpm(folder: &Path) -> Vec<u32> {
    pids()
        .filter(|pid| {
            let file = |name: &str| std::fs::read_to_string(format!("/proc/{pid}/{name}"));
            let is_there = std::fs::read_link(format!("/proc/{pid}/cwd"))
                .is_ok_and(|there| there.starts_with(folder));
            let is_orphan = || file("status").is_ok_and(|it| it.contains("\nPPid:\t1\n"));
            is_there && file("cmdline").is_ok_and(|it| it.starts_with("php-fpm:")) && is_orphan()
        })
        .collect()
}

/// What was killed can't remove its control socket and the folder of php-fpm; the next start does.
fn assert_little_left(status: ExitStatus, mark: &str, folder: &Path) {
    if status.code().is_none() {
        for socket in control_sockets(folder) {
            std::fs::remove_file(socket).expect("it was there");
        }
        for of_fpm in named(folder, "pronghorn-fpm-") {
            std::fs::remove_dir_all(of_fpm).expect("it was there");
        }
    }
    assert_nothing_left(mark, folder);
}

fn control_sockets(folder: &Path) -> Vec<PathBuf> {
    let mut sockets = named(folder, "pronghorn-");
    sockets.retain(|path| path.extension().is_some_and(|it| it == "sock"));
    sockets
}

fn named(folder: &Path, prefix: &str) -> Vec<PathBuf> {
    let files = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let paths = files.map(|file| file.path());
    let named = paths.filter(|path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with(prefix)
    });
    named.collect()
}

fn assert_nothing_left(mark: &str, folder: &Path) {
    let start = Instant::now();
    let left = || [marked(mark, folder), orphans_of_php_fpm(folder)].concat();
    while !left().is_empty() && start.elapsed() < TO_GO {
        std::thread::sleep(Duration::from_millis(5));
    }
    let left: Vec<_> = left()
        .into_iter()
        .map(|pid| {
            (
                pid,
                std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default(),
            )
        })
        .collect();
    assert!(left.is_empty(), "processes are left: {left:?}");
    let Ok(entries) = std::fs::read_dir(folder) else {
        return;
    };
    for entry in entries.flatten() {
        use std::os::unix::fs::FileTypeExt;
        let name = entry.file_name().to_string_lossy().into_owned();
        let socket = entry.file_type().is_ok_and(|kind| kind.is_socket());
        assert!(
            !socket && !name.starts_with("pronghorn-"),
            "{name} is left in {}",
            folder.display()
        );
    }
}
