//! Where records go, and what happens when they cannot get there.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt, lchown, symlink};
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Duration;

use pronghorn_testkit::Directory;
use rustix::fs::{Mode, OFlags, fcntl_setfl, mkfifoat};
use tracing::subscriber::with_default;
use tracing::{debug, error, info};

use super::{LONG, Rig, Text, settings};
use crate::logs::host::Standard;
use crate::logs::{LogError, Logs};

/// An output that takes nothing until it is let go.
#[derive(Clone, Default)]
struct Gate {
    taken: Text,
    state: Arc<(Mutex<GateState>, Condvar)>,
}

#[derive(Default)]
struct GateState {
    open: bool,
    somebody_waits: bool,
}

impl Gate {
    /// Waits until a write has come.
    fn wait(&self) {
        let (state, change) = &*self.state;
        let waiting = |state: &mut GateState| !state.somebody_waits;
        let (_state, timeout) = change
            .wait_timeout_while(state.lock().unwrap(), LONG, waiting)
            .unwrap();
        assert!(!timeout.timed_out(), "nothing was written");
    }

    fn open(&self) {
        let (state, change) = &*self.state;
        state.lock().unwrap().open = true;
        change.notify_all();
    }
}

impl Write for Gate {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let (state, change) = &*self.state;
        let mut guard = state.lock().unwrap();
        guard.somebody_waits = true;
        change.notify_all();
        drop(change.wait_while(guard, |state| !state.open).unwrap());
        self.taken.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_slow_output_costs_records_and_no_time() {
    let (rig, gate) = (Rig::new(), Gate::default());
    let settings = settings("{mode: raw, output: stdout}");
    let (logs, router) = Logs::start_on(rig.host_with(gate.clone()), &settings).unwrap();
    let text = "x".repeat(100 << 10);
    with_default(router, || {
        info!(target: "http", "first");
        gate.wait();
        for n in 0..60 {
            info!(target: "http", "{n} {text}");
        }
        for n in 0..20 {
            error!(target: "server", "error {n} {text}");
        }
        assert!(!logs.flush(Duration::ZERO), "nothing can be written yet");
        gate.open();
        assert!(logs.flush(LONG));
        info!(target: "http", "last");
    });
    drop(logs);
    let written = gate.taken.get();
    let lines: Vec<&str> = written
        .lines()
        .map(|line| line.trim_end_matches('x'))
        .collect();
    // 40 of 100 KB fit into 4 MB; 11 more with the room for errors; 20 and 9 were dropped.
    let mut expected = vec!["first".to_owned()];
    expected.extend((0..40).map(|n| format!("{n} ")));
    expected.extend((0..11).map(|n| format!("error {n} ")));
    expected.push("29 log records were dropped: the output is too slow".to_owned());
    expected.push("last".to_owned());
    assert_eq!(lines, expected);
}

#[test]
fn a_flood_of_empty_records_is_bounded_too() {
    let (rig, gate) = (Rig::new(), Gate::default());
    let settings = settings("{mode: raw, output: stdout}");
    let (logs, router) = Logs::start_on(rig.host_with(gate.clone()), &settings).unwrap();
    with_default(router, || {
        info!(target: "http", "x");
        gate.wait();
        for _ in 0..200_000 {
            info!(target: "http", "");
        }
        gate.open();
    });
    drop(logs);
    let taken = gate.taken.get();
    // A record of one byte takes 33 of 4 MB.
    let kept = (4 << 20) / 33;
    let expected = format!(
        "x\n{}{} log records were dropped: the output is too slow\n",
        "\n".repeat(kept),
        200_000 - kept
    );
    assert!(taken == expected, "{}", taken.trim());
}

#[test]
fn one_output_does_not_wait_for_another() {
    let (rig, gate) = (Rig::new(), Gate::default());
    let settings = settings("{mode: raw, output: [stdout, stderr]}");
    let (logs, router) = Logs::start_on(rig.host_with(gate.clone()), &settings).unwrap();
    with_default(router, || {
        info!(target: "http", "one");
        gate.wait();
        info!(target: "http", "two");
    });
    let stderr = logs.outlets().0.last().unwrap().queue.clone();
    assert!(stderr.flush(tokio::time::Instant::now() + LONG));
    assert_eq!(rig.stderr.get(), "one\ntwo\n");
    gate.open();
    drop(logs);
    assert_eq!(gate.taken.get(), "one\ntwo\n");
}

#[test]
fn each_channel_writes_to_its_outputs_in_its_format() {
    let (rig, directory) = (Rig::new(), Directory::new());
    let file = directory.join("http.log");
    let yaml = format!(
        "{{mode: raw, channels: {{http: {{mode: production, output: [stdout, '{}', stdout]}}, pool: {{mode: 'off'}}}}}}",
        file.display()
    );
    let (logs, router) = rig.start(&yaml).unwrap();
    assert_eq!(logs.outlets().0.len(), 3);
    with_default(router, || {
        info!(target: "http", "to http");
        info!(target: "pool", "to nobody");
        info!(target: "rpc", "to all others");
    });
    drop(logs);
    let json =
        "{\"level\":\"info\",\"ts\":1795289175123456789,\"logger\":\"http\",\"msg\":\"to http\"}\n";
    assert_eq!(rig.stdout.get(), json);
    assert_eq!(directory.read("http.log"), json);
    assert_eq!(rig.stderr.get(), "to all others\n");
}

#[test]
fn a_file_with_two_names_has_one_writer() {
    let directory = Directory::new();
    let file = directory.join("app.log");
    fs::write(&file, "before\n").unwrap();
    symlink(&file, directory.join("link.log")).unwrap();
    let (a, b) = (file.display(), directory.join("link.log"));
    let limits = format!(
        "encoding: console, file_logger_options: {{log_output: '{}', max_size: 1KB}}",
        b.display()
    );
    let yaml = format!("{{mode: raw, output: '{a}', channels: {{http: {{{limits}}}}}}}");
    let (logs, router) = Rig::new().start(&yaml).unwrap();
    assert_eq!(logs.outlets().0.len(), 1);
    with_default(router, || {
        for n in 0..3 {
            info!(target: "http", "{n}");
            info!(target: "rpc", "{n} too");
        }
        info!(target: "rpc", "{}", "x".repeat(1010));
    });
    drop(logs);
    let names = directory.names();
    assert_eq!(
        names,
        ["app-2026-11-21T19-26-15.123.log", "app.log", "link.log"],
        "one channel's limits hold for the file"
    );
    assert_eq!(
        directory.read(&names[0]),
        "before\n0\n0 too\n1\n1 too\n2\n2 too\n"
    );

    let other = format!("file_logger_options: {{log_output: '{a}', max_size: 2KB}}");
    let yaml = format!("{{channels: {{http: {{{limits}}}, rpc: {{{other}}}}}}}");
    let error = Rig::new().start(&yaml).err().unwrap();
    assert!(matches!(error, LogError::TwoLimits(_)), "{error}");
}

#[test]
fn stdout_and_stderr_may_be_one() {
    let rig = Rig::new();
    let mut host = rig.host();
    host.stdout.identity = host.stderr.identity;
    let settings = settings("{mode: raw, output: [stderr, stdout]}");
    let (logs, router) = Logs::start_on(host, &settings).unwrap();
    with_default(router, || info!(target: "http", "once"));
    drop(logs);
    assert_eq!(
        (rig.stderr.get(), rig.stdout.get()),
        ("once\n".into(), String::new())
    );
}

#[test]
fn a_reader_that_leaves_is_told_of_once_a_minute_and_ends_nothing() {
    let (rig, (reader, writer)) = (Rig::new(), io::pipe().unwrap());
    let settings = settings("{mode: raw, output: [stdout, stderr]}");
    let (logs, router) = Logs::start_on(rig.host_with(writer), &settings).unwrap();
    with_default(router, || {
        let say = |text: &str| {
            info!(target: "http", "{text}");
            assert!(logs.flush(LONG));
        };
        say("read");
        let mut line = String::new();
        let mut reader = BufReader::new(reader);
        reader.read_line(&mut line).unwrap();
        assert_eq!(line, "read\n");
        drop(reader);

        say("lost 1");
        let lost = |n: &str| {
            format!("error: {n} lost: cannot write to standard output: Broken pipe (os error 32)\n")
        };
        assert_eq!(rig.complaints.take(), lost("1 log record"));
        say("lost 2");
        say("lost 3");
        rig.advance(Duration::from_secs(59));
        say("lost 4");
        assert_eq!(rig.complaints.take(), "");
        rig.advance(Duration::from_secs(1));
        say("lost 5");
        assert_eq!(rig.complaints.take(), lost("4 log records"));
        say("lost 6");
        drop(logs);
        assert_eq!(
            rig.complaints.take(),
            lost("1 log record"),
            "the rest at the end"
        );
    });
    let others = rig.stderr.get();
    assert_eq!(others.lines().count(), 7, "the other output got them all");
}

/// Takes so many bytes, then fails once, then takes all.
struct Torn(Text, usize);

impl Write for Torn {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match std::mem::replace(&mut self.1, usize::MAX) {
            0 => Err(io::ErrorKind::StorageFull.into()),
            room if room < bytes.len() => {
                self.1 = 0;
                self.0.write(&bytes[..room])
            }
            room => {
                self.1 = room.saturating_sub(bytes.len());
                self.0.write(bytes)
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_torn_record_does_not_run_into_the_next() {
    let (rig, text) = (Rig::new(), Text::default());
    let host = rig.host_with(Torn(text.clone(), 10));
    let (logs, router) = Logs::start_on(host, &settings("{mode: raw, output: stdout}")).unwrap();
    with_default(router, || {
        info!(target: "http", "whole");
        info!(target: "http", "torn here");
        info!(target: "http", "lost");
        assert!(logs.flush(LONG));
        info!(target: "http", "next");
    });
    drop(logs);
    assert_eq!(text.get(), "whole\ntorn\nnext\n");
    assert!(
        rig.complaints
            .get()
            .starts_with("error: 2 log records lost"),
        "{}",
        rig.complaints.get()
    );
}

#[test]
fn an_output_that_would_not_wait_is_waited_for() {
    let (rig, (mut reader, writer)) = (Rig::new(), io::pipe().unwrap());
    fcntl_setfl(&writer, OFlags::NONBLOCK).unwrap();
    let mut host = rig.host();
    host.stdout = Standard::of(&writer).unwrap();
    drop(writer);
    let (logs, router) = Logs::start_on(host, &settings("{mode: raw, output: stdout}")).unwrap();
    let read = thread::spawn(move || {
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        text
    });
    let text = "x".repeat(100 << 10); // a pipe takes 64 KB
    with_default(router, || {
        for _ in 0..10 {
            info!(target: "http", "{text}");
        }
        assert!(logs.flush(LONG));
    });
    drop(logs);
    assert_eq!(read.join().unwrap(), format!("{text}\n").repeat(10));
    assert_eq!(rig.complaints.get(), "");
}

#[test]
fn files_that_were_moved_are_opened_anew() {
    let (rig, directory) = (Rig::new(), Directory::new());
    let yaml = |rest| {
        format!(
            "{{mode: raw, {rest}: '{}'",
            directory.join("app.log").display()
        )
    };
    for (yaml, what) in [
        (yaml("output") + "}", "plain"),
        (
            yaml("encoding: console, file_logger_options: {log_output") + "}}",
            "rotating",
        ),
    ] {
        let (logs, router) = rig.start(&yaml).unwrap();
        with_default(router, || {
            info!(target: "http", "{what} old");
            assert!(logs.flush(LONG));
            fs::rename(directory.join("app.log"), directory.join("moved.log")).unwrap();
            logs.reopen().unwrap();
            info!(target: "http", "{what} new");
            assert!(logs.flush(LONG));

            fs::remove_file(directory.join("app.log")).unwrap();
            fs::create_dir(directory.join("app.log")).unwrap();
            let errors = logs.reopen().err().unwrap();
            let error = errors[0].to_string();
            assert!(error.contains("app.log`: Is a directory"), "{error}");
            fs::remove_dir(directory.join("app.log")).unwrap();
            logs.reopen().unwrap();
            info!(target: "http", "{what} newest");
        });
        drop(logs);
        assert_eq!(directory.read("moved.log"), format!("{what} old\n"));
        assert_eq!(directory.read("app.log"), format!("{what} newest\n"));
        fs::remove_file(directory.join("app.log")).unwrap();
    }
}

#[test]
fn a_file_is_created_with_its_directory_and_nobody_else_can_read_it() {
    let directory = Directory::new();
    let start = |path: &str| {
        let yaml = format!(
            "{{mode: raw, output: '{}'}}",
            directory.join(path).display()
        );
        Rig::new().start(&yaml)
    };
    let mode = |path: &str| {
        fs::metadata(directory.join(path))
            .unwrap()
            .permissions()
            .mode()
            & 0o777
    };
    drop(start("new/app.log").unwrap());
    assert_eq!((mode("new"), mode("new/app.log")), (0o750, 0o640));

    let why = |path: &str| start(path).err().unwrap().to_string();
    let error = why("new/a/b/app.log");
    let at = directory.display();
    assert!(
        error.starts_with(&format!(
            "the folder `{at}/new/a/b` for the log file `{at}/new/a/b/app.log` cannot be created: No such file"
        )) && error.contains("\nhint: `mkdir -p "),
        "{error}"
    );
    let error = why("new");
    assert!(
        error.starts_with(&format!(
            "cannot open the log file `{at}/new`: Is a directory"
        )) && error.contains("\nhint: "),
        "{error}"
    );
    let error = why("new/app.log/x");
    assert!(error.contains("Not a directory"), "{error}");
}

#[test]
fn a_link_counts_if_it_is_roots_or_the_servers() {
    let directory = Directory::new();
    let start = |path: &Path| {
        let yaml = format!("{{mode: raw, output: '{}'}}", path.display());
        Rig::new().start(&yaml)
    };
    // One to nothing yet, as an administrator makes them; then a chain of them.
    symlink("real.log", directory.join("app.log")).unwrap();
    symlink(directory.join("app.log"), directory.join("chain.log")).unwrap();
    for name in ["app.log", "chain.log"] {
        let (logs, router) = start(&directory.join(name)).unwrap();
        with_default(router, || info!(target: "http", "one"));
        drop(logs);
    }
    assert_eq!(directory.read("real.log"), "one\none\n");
    // Those of containers lead to what has no name.
    drop(start(Path::new("/dev/stderr")).unwrap());
    symlink("/proc/self/fd/2", directory.join("error.log")).unwrap();
    drop(start(&directory.join("error.log")).unwrap());

    if !rustix::process::geteuid().is_root() {
        return; // nobody else can make a link of another user's
    }
    for (name, target) in [("precious", "real.log"), ("new", "made.log")] {
        symlink(target, directory.join(name)).unwrap();
        lchown(directory.join(name), Some(65_534), None).unwrap();
        let error = start(&directory.join(name)).err().unwrap().to_string();
        assert!(
            error.contains("link of user 65534") && error.contains("chown -h root"),
            "{error}"
        );
    }
    assert_eq!(directory.read("real.log"), "one\none\n");
    assert!(!directory.names().contains(&"made.log".to_owned()));
}

#[test]
fn a_named_pipe_needs_its_reader_and_the_start_does_not_wait_for_it() {
    let directory = Directory::new();
    let path = directory.join("pipe");
    mkfifoat(rustix::fs::CWD, &path, Mode::RUSR | Mode::WUSR).unwrap();
    let options = format!(
        "encoding: console, file_logger_options: {{log_output: '{}', max_size: 1B}}",
        path.display()
    );
    let yaml = format!("{{mode: raw, {options}}}");
    let error = Rig::new().start(&yaml).err().unwrap().to_string();
    assert!(
        error.contains("/pipe` is a named pipe that nobody reads\nhint: "),
        "{error}"
    );

    // A reader that waits for nothing, neither.
    let mut reader = fs::OpenOptions::new()
        .read(true)
        .custom_flags(OFlags::NONBLOCK.bits().cast_signed())
        .open(&path)
        .unwrap();
    let (logs, router) = Rig::new().start(&yaml).unwrap();
    with_default(router, || {
        info!(target: "http", "one");
        info!(target: "http", "two");
    });
    drop(logs);
    let mut text = [0; 8];
    reader.read_exact(&mut text).unwrap();
    assert_eq!(&text, b"one\ntwo\n");
    assert_eq!(directory.names(), ["pipe"], "it is not replaced");
}

#[test]
fn after_the_end_records_go_nowhere() {
    let rig = Rig::new();
    let (logs, router) = rig.start("{mode: raw, level: debug}").unwrap();
    with_default(router, || {
        debug!(target: "http", "before");
        drop(logs);
        error!(target: "http", "after");
    });
    assert_eq!(rig.stderr.get(), "before\n");
}

#[test]
fn the_real_outputs_can_be_had() {
    let (logs, subscriber) = Logs::start(
        &settings("{mode: 'off', output: [stdout, stderr]}"),
        Path::new("/"),
    )
    .unwrap();
    with_default(subscriber, || error!(target: "http", "to nobody"));
    assert!(logs.flush(LONG));
    assert!(
        File::open("/dev/null")
            .and_then(|file| Standard::of(&file))
            .is_ok()
    );
}
