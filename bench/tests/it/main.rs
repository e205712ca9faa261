//! The program itself: what it leaves behind, whatever happens.

#![expect(clippy::unwrap_used, reason = "a test")]

use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};

/// The runner with PHP's built-in server and nginx, for which nothing has to be built.
struct Run {
    child: Child,
    said: BufReader<std::process::ChildStderr>,
}

impl Run {
    fn start(arguments: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_pronghorn-bench"))
            .args([
                "--scenarios",
                "hello",
                "--connections",
                "2",
                "--pronghorn",
                "/bin/sh",
            ])
            .args(["--limit", "60"])
            .args(arguments)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let said = BufReader::new(child.stderr.take().unwrap());
        Self { child, said }
    }

    /// Reads what it says up to a line with these words.
    fn wait_for(&mut self, words: &str) {
        let mut line = String::new();
        while !line.contains(words) {
            line.clear();
            let read = self.said.read_line(&mut line).unwrap();
            assert!(read > 0, "it ended without {words:?}");
        }
    }

    fn interrupt(&self) {
        let pid = self.child.id().to_string();
        assert!(
            Command::new("kill")
                .args(["-INT", &pid])
                .status()
                .unwrap()
                .success()
        );
    }

    /// How it ended, what it said until then, and what is left of it.
    fn end(mut self) -> (ExitStatus, String, Vec<String>) {
        let mut said = String::new();
        self.said.read_to_string(&mut said).unwrap();
        let status = self.child.wait().unwrap();
        (status, said, left(self.child.id()))
    }
}

/// The folder, and processes that know of it.
fn left(pid: u32) -> Vec<String> {
    let folder = std::env::temp_dir().join(format!("pronghorn-bench-{pid}"));
    let name = folder.as_os_str().as_encoded_bytes();
    let knows = |process: &PathBuf| {
        let environment = std::fs::read(process.join("environ")).unwrap_or_default();
        environment.windows(name.len()).any(|window| window == name)
    };
    let processes = std::fs::read_dir("/proc")
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let folder = Some(folder.clone()).filter(|folder| folder.exists());
    let left = folder.into_iter().chain(processes.filter(knows));
    left.map(|path| path.display().to_string()).collect()
}

#[test]
fn after_a_signal_nothing_is_left() {
    let mut run = Run::start(&["--servers", "php-s", "--seconds", "30"]);
    run.wait_for("round 1");
    run.interrupt();
    let (status, said, left) = run.end();
    assert_eq!(status.code(), Some(1), "{said}");
    assert!(said.contains("error: stopped by a signal"), "{said}");
    assert_eq!(left, Vec::<String>::new());
}

#[test]
fn a_server_that_does_not_start_is_told_and_leaves_nothing() {
    let run = Run::start(&[
        "--rounds",
        "0",
        "--servers",
        "x",
        "--peer",
        "x=sh -c 'echo no licence >&2; exit 3; {port}'",
    ]);
    let (status, said, left) = run.end();
    assert_eq!(status.code(), Some(1), "{said}");
    assert!(
        said.contains("hello, x: it ended with exit code 3\nit said: no licence"),
        "{said}"
    );
    assert_eq!(left, Vec::<String>::new());
}

#[test]
fn a_process_that_a_server_leaves_behind_is_named_and_removed() {
    let leaver = "x=sh -c 'setsid sleep 1000 & exec php -S {address} -t {app}/public'";
    let run = Run::start(&["--rounds", "0", "--servers", "x", "--peer", leaver]);
    let (status, said, left) = run.end();
    assert_eq!(status.code(), Some(1), "{said}");
    assert!(
        said.contains("error: this was left, though everything was stopped:"),
        "{said}"
    );
    assert!(said.contains(": sleep 1000"), "{said}");
    assert_eq!(left, Vec::<String>::new());
}

#[test]
fn pages_have_the_figures_of_the_last_report() {
    let checked = Command::new(env!("CARGO_BIN_EXE_pronghorn-bench"))
        .args(["figures", "--check"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&checked.stderr);
    assert!(checked.status.success(), "{said}");
}

#[test]
fn an_unknown_part_is_answered_with_those_that_exist() {
    let refused = Command::new(env!("CARGO_BIN_EXE_pronghorn-bench"))
        .args(["report", "--parts", "lavarel", "--pronghorn", "/bin/sh"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(
        said.contains("there is no part `lavarel`") && said.contains("laravel-workers"),
        "{said}"
    );
}
