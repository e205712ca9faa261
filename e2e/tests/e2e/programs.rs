//! Programs that the server keeps running: the section `service`.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use pronghorn_testkit::{Server, Site, time, wait_for};
use pronghorn_wire::frame::Flags;
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use serde_json::{Value, json};

use crate::control::Rpc;

/// HTTP beside them has no part in this.
fn site(programs: &str) -> Site {
    Site::new().config(&configuration(programs))
}

fn configuration(programs: &str) -> String {
    format!(
        "version: '3'\n\
         server: {{command: php {}}}\n\
         http: {{address: 127.0.0.1:0, pool: {{num_workers: 1}}}}\n\
         rpc: {{listen: 'tcp://127.0.0.1:0'}}\n\
         state_dir: state\n\
         logs: {{level: debug}}\n\
         service:\n{programs}",
        Site::fixture("foreign/worker.php").display()
    )
}

fn start(programs: &str) -> Server {
    Server::start(site(programs))
}

fn all(server: &Server) -> Vec<Value> {
    let listed = server.steer(&["programs", "--json"]);
    assert_eq!(listed.code, Some(0), "{}", listed.stderr);
    let listed: Value = serde_json::from_str(&listed.stdout).expect("JSON");
    listed["programs"].as_array().expect("a list").clone()
}

pub(crate) fn processes(server: &Server, name: &str) -> Vec<Value> {
    let all = all(server);
    let program = all.iter().find(|program| program["name"] == name);
    let processes = program.map(|program| program["processes"].as_array().expect("a list"));
    processes.cloned().unwrap_or_default()
}

/// Waits until all processes of a program are in this state.
pub(crate) fn until(server: &Server, name: &str, state: &str) -> Vec<Value> {
    wait_for(&format!("{name} to be {state}"), || {
        let found = processes(server, name);
        let are_there = !found.is_empty() && found.iter().all(|it| it["state"] == state);
        are_there.then_some(found)
    })
}

pub(crate) fn pids(processes: &[Value]) -> Vec<i32> {
    let pids = processes.iter().filter_map(|it| it["pid"].as_i64());
    pids.map(|pid| i32::try_from(pid).expect("a pid")).collect()
}

pub(crate) fn is_there(pid: i32) -> bool {
    let pid = Pid::from_raw(pid).expect("a pid");
    if test_kill_process(pid).is_err() {
        return false;
    }
    // One that has ended and waits for its parent does not run.
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero()));
    stat.is_ok_and(|stat| !stat.contains(") Z "))
}

pub(crate) fn is_gone(pid: i32) {
    wait_for(&format!("the end of {pid}"), || {
        (!is_there(pid)).then_some(())
    });
}

fn number(server: &Server, file: &str) -> i32 {
    wait_for(file, || {
        let text = fs::read_to_string(server.site().path(file)).ok()?;
        text.trim().parse().ok()
    })
}

fn lines(server: &Server, file: &str) -> usize {
    let text = fs::read_to_string(server.site().path(file));
    text.unwrap_or_default().lines().count()
}

#[test]
fn programs_run_are_restarted_and_end_with_the_server() {
    let server = start(
        "  queue: {command: sleep 1000, process_num: 3, restart: always, start_time: 100ms}\n  \
           once: {command: sh -c 'echo done; exit 3', exit_codes: [3]}\n",
    );
    let queue = until(&server, "queue", "running");
    let before = pids(&queue);
    assert_eq!(before.len(), 3);
    until(&server, "once", "exited");
    // One of them is killed, and comes back alone.
    let killed = Pid::from_raw(before[1]).expect("a pid");
    kill_process(killed, Signal::KILL).expect("it is there");
    is_gone(before[1]);
    let after = wait_for("the next process", || {
        let pids = pids(&processes(&server, "queue"));
        (pids.len() == 3 && pids[1] != before[1]).then_some(pids)
    });
    assert_eq!((after[0], after[2]), (before[0], before[2]));
    server.logged(&[
        "ERROR",
        "service",
        "it ended with signal 9 (SIGKILL)",
        "\"index\":1",
    ]);
    let ended = server.stop();
    assert_eq!(ended.code, Some(0));
    after.into_iter().for_each(is_gone);
}

#[test]
fn commands_start_stop_restart_signal_and_show_what_was_said() {
    let server = start(
        "  talker: {command: sh -c 'trap \"echo heard\" USR1; echo out; echo err >&2; while :; do sleep 0.05; done', \
           start_time: 50ms, stop_timeout: 500ms}\n",
    );
    let first = pids(&until(&server, "talker", "running"));
    let said = |arguments: &[&str]| {
        let said = server.steer(arguments);
        assert_eq!(said.code, Some(0), "{arguments:?}: {}", said.stderr);
        said.stdout
    };
    let lines = said(&["programs", "logs", "talker"]);
    assert!(
        lines.contains(&format!("0 {} | out\n", first[0])),
        "{lines}"
    );
    assert!(
        lines.contains(&format!("0 {} ! err\n", first[0])),
        "{lines}"
    );
    said(&["programs", "signal", "usr1", "talker"]);
    wait_for("the signal", || {
        said(&["programs", "logs", "talker"])
            .contains("| heard")
            .then_some(())
    });
    said(&["programs", "restart", "talker"]);
    let second = pids(&until(&server, "talker", "running"));
    assert_ne!(first, second);
    assert!(!is_there(first[0]));
    said(&["programs", "stop", "talker"]);
    assert!(!is_there(second[0]));
    assert_eq!(processes(&server, "talker")[0]["state"], "stopped");
    let table = said(&["programs", "list"]);
    assert!(
        table.contains("talker") && table.contains("stopped"),
        "{table}"
    );
    said(&["programs", "start", "talker"]);
    until(&server, "talker", "running");
    for (arguments, why) in [
        (
            &["programs", "stop", "nobody"][..],
            "there is no program `nobody`\nhint: there are `talker`",
        ),
        (&["programs", "logs", "talkr"][..], "did you mean `talker`?"),
        (
            &["programs", "start", "talker:0"][..],
            "is a process, not a program\nhint: write `talker`",
        ),
        (
            &["programs", "signal", "talker", "HUP"][..],
            "hint: the signal comes first: `pronghorn programs signal HUP talker`",
        ),
        (
            &["programs", "signal", "HUP", "talker", "--index", "7"][..],
            "talker has no process 7\nhint: its only process is 0",
        ),
        (&["programs", "list", "talkr"][..], "did you mean `talker`?"),
        (
            &["programs", "signal", "SIGNOTHING", "talker"][..],
            "there is no signal `SIGNOTHING`",
        ),
    ] {
        let refused = server.steer(arguments);
        refused.assert_refused(&[why]);
    }
    for arguments in [
        &["start", "talkr"][..],
        &["stop", "talkr"],
        &["restart", "talkr"],
        &["restart", "all", "talkr"],
        &["signal", "HUP", "talkr"],
        &["logs", "talkr"],
        &["list", "talkr"],
    ] {
        let refused = server.steer(&[&["programs"], arguments].concat());
        refused.assert_refused(&[
            "there is no program `talkr`; did you mean `talker`?\nhint: there are `talker`",
        ]);
    }
    server.logged(&["\"stream\":\"stderr\"", "err"]);
    for (step, told) in [("start", "started"), ("stop", "stopped")] {
        server.steer(&["programs", step, "talker"]);
        let again = server.steer(&["programs", step, "talker"]);
        assert_eq!(again.stderr, format!("talker is {told} already\n"));
    }
    let refused = server.steer(&["programs", "signal", "HUP", "talker"]);
    refused.assert_refused(&[
        "talker has no process: it is stopped\nhint: `pronghorn programs start talker`",
    ]);
    server.stop();
}

#[test]
fn as_many_lines_are_shown_as_were_asked_for() {
    let server = start("  talker: {command: 'seq 1 9'}\n  other: {command: 'echo grün'}\n");
    until(&server, "talker", "exited");
    let shown = |number: &str| {
        let shown = server.steer(&["programs", "logs", "talker", "-n", number]);
        (shown.code, shown.stdout.lines().count())
    };
    for (number, lines) in [("0", 0), ("1", 1), ("9", 9), ("99999999999999999999", 9)] {
        assert_eq!(shown(number), (Some(0), lines), "{number}");
    }
    for number in ["-1", "x", "1.5", ""] {
        let refused = server.steer(&["programs", "logs", "talker", "-n", number]);
        assert_eq!(refused.code, Some(2), "{number}");
        let said = &refused.stderr;
        assert!(said.contains("accepted: a whole number from 0"), "{said}");
    }
    until(&server, "other", "exited");
    let shown = server.steer(&["programs", "logs", "other"]).stdout;
    assert!(shown.ends_with("| grün\n"), "{shown}");
    server.stop();
}

/// One after the other, hundreds would take longer than anybody waits.
#[test]
fn programs_are_stopped_at_once() {
    let deaf = "{command: sh -c 'trap \"\" INT; while :; do sleep 0.05; done', stop_timeout: 1s, start_time: 50ms}";
    let server = start(&format!(
        "  a: {deaf}\n  b: {deaf}\n  c: {deaf}\n  d: {deaf}\n  e: {deaf}\n"
    ));
    until(&server, "e", "running");
    for step in ["start", "stop", "restart"] {
        let unnamed = server.steer(&["programs", step]);
        assert_eq!(unnamed.code, Some(2));
        let all = format!("`pronghorn programs {step} all` for all");
        assert!(unnamed.stderr.contains(&all), "{}", unnamed.stderr);
    }
    let (stopped, took) = time(|| server.steer(&["programs", "stop", "all"]));
    assert_eq!(stopped.stderr, "all programs are stopped\n");
    assert!(took < Duration::from_secs(4), "{took:?}");
    server.stop();
}

/// The same for a restart, which keeps the order as the start does.
#[test]
fn programs_are_restarted_at_once_and_in_their_order() {
    use std::fmt::Write as _;
    let mut programs = String::new();
    for number in 0..16 {
        // Writing to a String cannot fail.
        _ = writeln!(
            programs,
            "  p{number}: {{command: sleep 1000, start_time: 500ms}}"
        );
    }
    let noted = |name: &str, order: i32| {
        format!(
            "  {name}: {{command: sh -c 'date +%s%N >> {name}; exec sleep 1000', order: {order}, start_time: 300ms}}\n"
        )
    };
    let server = start(&format!("{programs}{}{}", noted("z", -1), noted("a", 1)));
    until(&server, "a", "running");
    let before = pids(&processes(&server, "p15"));
    let (restarted, took) = time(|| server.steer(&["programs", "restart", "all"]));
    assert_eq!(restarted.code, Some(0), "{}", restarted.stderr);
    // One after the other, they would need 8.6 s.
    assert!(took < Duration::from_secs(6), "{took:?}");
    assert_ne!(pids(&processes(&server, "p15")), before);
    let mut said = restarted.stderr.lines();
    assert_eq!(said.next(), Some("z is restarted"));
    assert_eq!(said.next_back(), Some("a is restarted"));
    assert_eq!(said.count(), 16);
    let mut rpc = Rpc::connect(&server);
    let (done, took) = time(|| rpc.call("programs.Restart", r#"{"names":[]}"#));
    assert_eq!(done, r#"{"message":"OK","ok":true}"#);
    assert!(took < Duration::from_secs(6), "{took:?}");
    let (reset, took) = time(|| server.steer(&["reset", "service"]));
    assert_eq!(reset.code, Some(0), "{}", reset.stderr);
    assert!(took < Duration::from_secs(6), "{took:?}");
    let told = reset.stdout;
    let first = told.lines().next().unwrap_or_default();
    let last = told.lines().last().unwrap_or_default();
    assert!(
        first.starts_with("z: ") && last.starts_with("a: "),
        "{told}"
    );
    let (done, took) = time(|| rpc.call("resetter.Reset", r#""service""#));
    assert_eq!(done, "true");
    assert!(took < Duration::from_secs(6), "{took:?}");
    server.steer(&["programs", "stop", "all"]);
    let started = rpc.call("programs.Start", r#"{"names":[]}"#);
    assert_eq!(started, r#"{"message":"OK","ok":true}"#);
    let starts = |name: &str| -> Vec<u64> {
        let text = server.site().read(name);
        let starts = text.lines().map(|line| line.parse().expect("a number"));
        starts.collect()
    };
    let (first, last) = (starts("z"), starts("a"));
    assert_eq!((first.len(), last.len()), (6, 6));
    // All others come between: each time is that of two starts at least.
    for (first, last) in first.iter().zip(&last) {
        assert!(last - first >= 800_000_000, "{first} {last}");
    }
    server.stop();
}

#[test]
fn a_program_that_does_not_come_up_is_told_to_who_starts_it() {
    let server = start("  failing: {command: sh -c 'exit 3', autostart: false}\n");
    let started = server.steer(&["programs", "start", "failing"]);
    started.assert_refused(&[
        "failing: it did not come up: it ended with exit code 3 before it was up",
        "hint: `pronghorn programs logs failing` shows what it has printed",
    ]);
    server.stop();
}

/// Each has a line of its own.
#[test]
fn a_program_that_fails_keeps_no_other_from_what_is_asked_for_all() {
    let server = start(
        "  bad: {command: sh -c 'exit 3', autostart: false}\n  \
           well: {command: sleep 1000, start_time: 50ms}\n",
    );
    let failed = "error: bad: it did not come up: it ended with exit code 3 before it was up\n\
                  hint: `pronghorn programs logs bad` shows what it has printed\n";
    let first = pids(&until(&server, "well", "running"));
    server
        .steer(&["programs", "stop", "nothing", "all"])
        .assert_refused(&["there is no program `nothing`"]);
    server
        .steer(&["programs", "list", "nothing", "all"])
        .assert_refused(&["there is no program `nothing`"]);
    assert_eq!(pids(&processes(&server, "well")), first);
    server.steer(&["programs", "stop", "all"]);
    let started = server.steer(&["programs", "start", "all"]);
    started.assert_refused(&[failed, "well is started\n"]);
    let started = pids(&until(&server, "well", "running"));
    server
        .steer(&["programs", "start", "bad", "well"])
        .assert_refused(&[failed, "well is started already\n"]);
    let did_not = "bad: process 0 did not come up: it ended with exit code 3 before it was up\n\
                   hint: `pronghorn programs logs bad` shows what it has printed\n";
    let restarted = server.steer(&["programs", "restart", "all"]);
    restarted.assert_refused(&[did_not, "well is restarted\n"]);
    let second = pids(&until(&server, "well", "running"));
    assert_ne!(second, started);
    let reset = server.steer(&["reset", "service"]);
    reset.assert_refused(&[did_not]);
    assert!(!reset.stderr.contains("old workers"), "{}", reset.stderr);
    assert!(
        reset.stdout.contains("well: 1 new process after "),
        "{}",
        reset.stdout
    );
    let reset = server.steer_as_rr(&["reset", "service"]);
    reset.assert_refused(&["bad: process 0 did not come up"]);
    let mut rpc = Rpc::connect(&server);
    let third = pids(&until(&server, "well", "running"));
    let refused = rpc.call("programs.Restart", r#"{"names":[]}"#);
    assert!(refused.contains("bad: process 0 did not"), "{refused}");
    assert_ne!(pids(&until(&server, "well", "running")), third);
    server.stop();
}

/// What is wrong with a key, where it stands and what to type.
#[test]
fn a_start_is_refused_in_the_words_of_check() {
    for (program, said) in [
        (
            "{command: cd x && php t.php}",
            "`service.a.command` begins with `cd`, which is no program: no shell runs the \
             command\nhint: write `sh -c 'cd x && php t.php'`\n",
        ),
        (
            "{command: sleep 1, directory: nowhere}",
            "`service.a.directory` names `",
        ),
        (
            "{command: nowhere}",
            "`service.a.command` runs `nowhere`, which was not found\nhint: ",
        ),
        (
            "{command: sleep 1, user: nobody-is-called-this}",
            "`service.a.user` can't be used: no user is called `nobody-is-called-this`\n\
             hint: name another user\n",
        ),
        (
            "{command: sleep 1, user: root, group: no-such-group}",
            "`service.a.group` can't be used: no group is called `no-such-group`\n\
             hint: name another group\n",
        ),
        (
            "{command: sleep 1, output: {file: no/a.log}}",
            "`service.a.output.file` names `no/a.log`, whose directory `",
        ),
        (
            "{command: sleep 1, output: {file: a.log, stderr_file: /dev/stdout}}",
            "`service.a.output.stderr_file` names `/dev/stdout`, which is the server's own output\n\
             hint: name a file, or remove `output`",
        ),
    ] {
        let site = site(&format!("  a: {program}\n"));
        let line = "error: .rr.yaml:8:";
        let checked = Server::run(&site, &["check"]);
        for ended in [&checked, &Server::run(&site, &["serve"])] {
            let both = format!("{}{}", ended.stdout, ended.stderr);
            assert!(both.contains(said) && both.contains(line), "{both}");
        }
    }
}

#[test]
fn no_program_has_the_name_that_commands_take_for_all() {
    let site = site("  all: {command: sleep 1}\n  allowed: {command: sleep 1}\n");
    for command in ["check", "serve"] {
        let ended = Server::run(&site, &[command]);
        assert_eq!(ended.code, Some(2), "{}", ended.stderr);
        let said = ended.stdout + &ended.stderr;
        let told = "error: .rr.yaml:8:3: `service.all` can't be the name of a program: \
                    `pronghorn programs` takes it for all of them\nhint: name it by what it does";
        assert!(said.contains(told), "{said}");
        assert!(!said.contains("`service.allowed`"), "{said}");
    }
}

#[test]
fn check_warns_of_what_only_a_later_start_or_the_servers_end_meets() {
    let site = site(
        "  later: {command: sleep 1, directory: nowhere, autostart: false}\n  \
           long: {command: sleep 1, stop_timeout: 1m}\n",
    );
    let checked = Server::run(&site, &["check"]);
    checked.assert_said(&[
        "warning: .rr.yaml:8:",
        "`service.later.directory` names `nowhere`, which can't be used: ",
        "the program can't be started\nhint: create it",
        "`service.long.stop_timeout` is 1m, and `endure.grace_period` is 30s: when the server \
         stops, the program is killed earlier\nhint: write `endure: {grace_period: 1m}`",
    ]);
}

#[test]
fn a_start_that_waits_for_a_program_says_so() {
    let server = start(
        "  slow: {command: sleep 1000, notify: true, start_timeout: 3s}\n  \
           next: {command: sleep 1000, order: 1}\n",
    );
    server.logged(&[
        "the start has waited 2s for it to come up (at most 3s, `start_timeout`)",
        "\"slow\"",
    ]);
    server.stop();
}

/// The program asks before it comes up: the server goes on waiting until it has its answers.
#[test]
fn a_start_shows_what_each_program_waits_for() {
    let pronghorn = pronghorn_testkit::binary();
    let pronghorn = pronghorn.display();
    let site = site(
        "  slow: {command: sh slow, health: {command: test -f go}, start_time: 50ms}\n  \
           next: {command: sleep 1000, order: 1, start_time: 50ms}\n  \
           last: {command: sleep 1000, order: 2, start_time: 50ms}\n  \
           later: {command: sleep 1000, autostart: false}\n",
    )
    .file(
        "slow",
        &format!(
            "until {pronghorn} programs > table && grep -q '(.order.)' table; do :; done\n\
             {pronghorn} programs stop last\n{pronghorn} programs --json > json\n\
             {pronghorn} status > status\ntouch go\nexec sleep 1000\n"
        ),
    );
    let server = Server::start(site);
    until(&server, "next", "running");
    let table = server.site().read("table");
    for (name, state, waits) in [
        ("slow", "starting", "for its `health` command"),
        ("next", "starting", "s for `slow` (`order`)"),
        ("last", "starting", "s for `slow` (`order`)"),
        ("later", "stopped", "-"),
    ] {
        let row = table.lines().find(|line| line.starts_with(name));
        let fits = row.is_some_and(|row| row.contains(state) && row.contains(waits));
        assert!(fits, "{name}: {table}");
    }
    let listed: Value = serde_json::from_str(&server.site().read("json")).expect("JSON");
    let process = |name: &str| {
        let all = listed["programs"].as_array().expect("a list");
        let program = all.iter().find(|it| it["name"] == name);
        program.expect("it is listed")["processes"][0].clone()
    };
    assert_eq!(process("next")["waits_for"], "`slow` (`order`)");
    assert!(process("next")["waits_since"].is_u64());
    assert_eq!(process("last")["state"], "stopped");
    let status = server.site().read("status");
    for part in [
        "state    starting\n",
        "programs 2 starting, 2 stopped\n",
        "waits    slow:0: has waited ",
        "waits    next:0: has waited ",
    ] {
        assert!(status.contains(part), "{part} in\n{status}");
    }
    // Somebody has stopped it before its turn.
    assert_eq!(processes(&server, "last")[0]["state"], "stopped");
    assert_eq!(processes(&server, "next")[0]["waits_for"], Value::Null);
    let status = server.steer(&["status"]).stdout;
    assert!(!status.contains("waits"), "{status}");
    server.stop();
}

#[test]
fn a_reload_shows_what_a_replacement_waits_for() {
    let program = |more: &str| {
        format!("  a: {{command: sleep 1000, replace: start-first, start_time: 50ms{more}}}\n")
    };
    let server = start(&program(""));
    let before = pids(&until(&server, "a", "running"));
    let changed = program(", health: {command: test -f go}");
    server.site().write(".rr.yaml", &configuration(&changed));
    server.signal(Signal::HUP);
    wait_for("the replacement", || {
        let process = processes(&server, "a").remove(0);
        let waits_for = process["waits_for"].as_str()?;
        assert!(waits_for.starts_with("its `health` command"), "{waits_for}");
        assert_eq!(process["state"], "running");
        Some(())
    });
    let table = server.steer(&["programs"]).stdout;
    assert!(table.contains("its replacement has waited "), "{table}");
    let status = server.steer(&["status"]).stdout;
    let waits = "waits    a:0: its replacement has waited ";
    assert!(status.contains(waits), "{status}");
    server.site().write("go", "");
    wait_for("the end of the wait", || {
        let process = processes(&server, "a").remove(0);
        process["waits_for"].is_null().then_some(())
    });
    before.into_iter().for_each(is_gone);
    server.stop();
}

#[test]
fn a_program_that_the_servers_end_kills_early_names_the_key() {
    let server = start(
        "  deaf: {command: sh -c 'trap \"\" INT; while :; do sleep 0.05; done', stop_timeout: 1m}\n\
         endure: {grace_period: 1s}\n",
    );
    until(&server, "deaf", "running");
    let ended = server.stop();
    assert!(
        ended
            .stderr
            .contains("it did not end after SIGINT (`stop_signal`), and was killed after ")
            && ended.stderr.contains("(`endure.grace_period`)"),
        "{}",
        ended.stderr
    );
}

#[test]
fn they_are_reset_and_shown_as_roadrunner_does_it() {
    let server = start(
        "  a: {command: sleep 1000, process_num: 2, start_time: 50ms}\n  \
           b: {command: sleep 1001, start_time: 50ms}\n",
    );
    let first = pids(&until(&server, "a", "running"));
    let other = pids(&until(&server, "b", "running"));
    let status = server.steer(&["status"]);
    status.assert_said(&["programs 3 running"]);
    // One by its name, and all by the name of the service.
    let reset = server.steer(&["reset", "a"]);
    reset.assert_said(&["a: 2 new processes after "]);
    let second = pids(&until(&server, "a", "running"));
    assert!(second.iter().all(|pid| !first.contains(pid)));
    assert_eq!(pids(&processes(&server, "b")), other);
    let reset = server.steer_as_rr(&["reset", "service"]);
    assert_eq!(reset.code, Some(0), "{}", reset.stderr);
    assert!(
        reset.stderr.contains("plugin reset: [service]"),
        "{}",
        reset.stderr
    );
    let third = pids(&until(&server, "a", "running"));
    assert!(third.iter().all(|pid| !second.contains(pid)));
    assert_ne!(pids(&until(&server, "b", "running")), other);
    // Without a name it is for workers, and `rr` means all.
    server
        .steer(&["reset"])
        .assert_said(&["default: 1 new worker"]);
    assert_eq!(pids(&processes(&server, "a")), third);
    let all = server.steer_as_rr(&["reset"]);
    assert_eq!(all.code, Some(0), "{}", all.stderr);
    let last = pids(&until(&server, "a", "running"));
    assert!(last.iter().all(|pid| !third.contains(pid)));
    let mut rpc = Rpc::connect(&server);
    assert_eq!(rpc.call("resetter.List", "true"), r#"["http","service"]"#);
    assert_eq!(rpc.call("resetter.Reset", "\"service\""), "true");
    let table = server.steer_as_rr(&["workers", "service"]).stdout;
    for part in ["Workers of [service]:", "PID", "COMMAND", "sleep 1001"] {
        assert!(table.contains(part), "{table}");
    }
    server.stop();
}

#[test]
fn a_server_without_the_section_says_so() {
    let server = Server::start(crate::reload::site());
    let refused = server.steer(&["programs"]);
    refused.assert_refused(&["has no section `service`"]);
    server.stop();
}

/// RoadRunner's methods with JSON and protobuf.
#[test]
fn php_creates_and_ends_programs_over_rpc() {
    let server = start("  mine: {command: sleep 1000}\n");
    let mut rpc = Rpc::connect(&server);
    let create = json!({"name": "its", "command": "sleep 1000", "process_num": 2,
        "env": {"A": "b"}, "remain_after_exit": true, "restart_sec": 1});
    let done = r#"{"message":"OK","ok":true}"#;
    assert_eq!(rpc.call("service.Create", &create.to_string()), done);
    let again = rpc.call("service.Create", &create.to_string());
    assert_eq!(again, "error: the service with its name already exists");
    let list: Value = serde_json::from_str(&rpc.call("service.List", "{}")).expect("JSON");
    assert_eq!(list, json!({"services": ["its", "mine"]}));
    let statuses: Value =
        serde_json::from_str(&rpc.call("service.Statuses", r#"{"name":"its"}"#)).expect("JSON");
    let statuses = statuses["status"].as_array().expect("a list").clone();
    assert_eq!(statuses.len(), 2);
    let first = pids(&statuses);
    assert!(first.iter().all(|pid| is_there(*pid)));
    assert!(
        statuses[0]["memory_usage"].as_u64() > Some(1000),
        "{statuses:?}"
    );
    assert_eq!(statuses[0]["command"], "sleep 1000");
    let environment = fs::read(format!("/proc/{}/environ", first[0])).expect("it runs");
    let environment = String::from_utf8_lossy(&environment).into_owned();
    for variable in [
        "A=b",
        "PRONGHORN_PROGRAM=its",
        "PRONGHORN_PROGRAM_INDEX=0",
        "RR_RPC=",
    ] {
        assert!(environment.contains(variable), "{variable}: {environment}");
    }
    // The same by protobuf: `Service{name}`, `Status` of the last process.
    let (flags, status) = rpc.ask(Flags::PROTO, "service.Status", b"\x0a\x03its");
    assert!(!flags.has(Flags::ERROR) && !status.is_empty(), "{status:?}");
    assert_eq!(rpc.call("service.Restart", r#"{"name":"its"}"#), done);
    first.into_iter().for_each(is_gone);
    let update = json!({"name": "its", "process_num": 1, "env": {"values": {"A": "c"}}});
    assert_eq!(rpc.call("service.Update", &update.to_string()), done);
    let second = pids(&processes(&server, "its"));
    assert_eq!(second.len(), 2, "an update touches nothing that runs");
    assert_eq!(rpc.call("service.Restart", r#"{"name":"its"}"#), done);
    assert_eq!(processes(&server, "its").len(), 1);
    assert_eq!(rpc.call("service.Terminate", r#"{"name":"its"}"#), done);
    second.into_iter().for_each(is_gone);
    for method in ["Terminate", "Restart", "Status", "Statuses", "Update"] {
        let missing = rpc.call(&format!("service.{method}"), r#"{"name":"its"}"#);
        assert_eq!(
            missing, "error: the service with its name doesn't exist",
            "{method}"
        );
    }
    let none = json!({"name": "x", "command": "sleep 1", "process_num": 0});
    assert_eq!(
        rpc.call("service.Create", &none.to_string()),
        "error: the service with x name should have at least 1 process"
    );
    let missing = json!({"name": "x", "command": "/nowhere/x", "process_num": 1});
    let refused = rpc.call("service.Create", &missing.to_string());
    assert!(
        refused.contains("runs `/nowhere/x`, which was not found"),
        "{refused}"
    );
    server.logged(&[
        "WARN",
        "service",
        "a call over RPC was refused: the service with its name already exists",
        "\"method\":\"service.Create\"",
    ]);
    let long = json!({"name": "x".repeat(256), "command": "sleep 1", "process_num": 1});
    let refused = rpc.call("service.Create", &long.to_string());
    assert!(refused.contains("the name has 256 bytes"), "{refused}");
    let all = json!({"name": "all", "command": "sleep 1", "process_num": 1});
    let refused = rpc.call("service.Create", &all.to_string());
    assert!(
        refused.contains("`all` can't be the name of a program"),
        "{refused}"
    );
    assert_eq!(
        processes(&server, "x"),
        [Value::Null; 0],
        "nothing of it is left"
    );
    server.stop();
}

/// As the table of the reference has it, for both services.
#[test]
fn a_call_by_a_wrong_name_is_an_error_with_its_name() {
    let server = start("  other: {command: sleep 1000}\n");
    let mut rpc = Rpc::connect(&server);
    for (method, said) in [
        ("service.Creat", "rpc: can't find method service.Creat"),
        // Case counts.
        ("programs.list", "rpc: can't find method programs.list"),
        ("services.List", "rpc: can't find service services.List"),
        ("programs.List.x", "rpc: can't find service programs.List.x"),
        ("List", "rpc: service/method request ill-formed: List"),
    ] {
        let (flags, text) = rpc.ask(Flags::JSON, method, b"{}");
        assert_eq!(String::from_utf8_lossy(&text), said);
        assert_eq!(flags, Flags::JSON.with(Flags::ERROR), "{method}");
    }
    // The connection is good for the next call.
    let list = rpc.call("service.List", r#"{"name":""}"#);
    assert_eq!(list, r#"{"services":["other"]}"#);
    server.stop();
}

/// RoadRunner starts it all the same, and nobody owns it then.
#[test]
fn one_that_is_terminated_during_a_pause_is_not_started_again() {
    let server = start("  other: {command: sleep 1000}\n");
    let mut rpc = Rpc::connect(&server);
    let starts = server.site().path("starts");
    let create = json!({"name": "pausing", "process_num": 1, "remain_after_exit": true,
        "restart_sec": 1, "command": format!("sh -c 'echo x >> {}'", starts.display())});
    rpc.call("service.Create", &create.to_string());
    until(&server, "pausing", "waiting");
    rpc.call("service.Terminate", r#"{"name":"pausing"}"#);
    let before = lines(&server, "starts");
    // Longer than the pause.
    rest(Duration::from_millis(1500));
    assert_eq!(lines(&server, "starts"), before);
    server.stop();
}

#[test]
fn one_that_ends_at_once_for_ever_is_given_up() {
    let server = start(
        "  hasty: {command: sh -c 'echo x >> starts; exit 0', restart: always, restart_delay: 10ms, \
           restart_max_delay: 1s, max_failures: 4}\n",
    );
    let hasty = until(&server, "hasty", "gave up");
    assert_eq!(hasty[0]["failures"], 4);
    assert_eq!(lines(&server, "starts"), 4);
    server.logged(&[
        "ERROR",
        "before it was up: given up",
        "pronghorn programs start hasty",
    ]);
    // It is final until somebody says so.
    server.steer(&["programs", "start", "hasty"]);
    until(&server, "hasty", "gave up");
    assert_eq!(lines(&server, "starts"), 8);
    let reports = server.steer(&["crashes", "--json"]);
    assert!(
        reports.stdout.contains("service.hasty"),
        "{}",
        reports.stdout
    );
    server.stop();
}

#[test]
fn what_a_program_leaves_behind_ends_with_it() {
    let server = start(
        "  daemon: {command: sh -c 'setsid sleep 1000 & echo $! > left; sleep 0.3'}\n  \
           family: {command: sh -c 'trap \"\" INT TERM; sleep 1000 & echo $! > child; while :; do wait; done', \
           stop_timeout: 300ms, start_time: 50ms}\n",
    );
    is_gone(number(&server, "left"));
    server.logged(&["WARN", "it has left processes behind, which were killed"]);
    let child = number(&server, "child");
    let family = pids(&until(&server, "family", "running"));
    let (_, took) = time(|| server.steer(&["programs", "stop", "family"]));
    assert!(took >= Duration::from_millis(300), "{took:?}");
    assert!(!is_there(family[0]) && !is_there(child));
    server.logged(&[
        "it did not end after SIGINT (`stop_signal`), and was killed after 300ms (`stop_timeout`)",
    ]);
    server.stop();
}

#[test]
fn any_output_is_taken_and_cut_into_lines() {
    let server = start(
        r#"  endless:
    command: "sh -c 'head -c 30000000 /dev/zero | tr \\0 x; echo; echo end'"
    output: {file: endless.log, max_size: 1MB, backups: 2}
  binary:
    command: [sh, -c, 'printf "a\000\377\033[31mb\n"; head -c 200000 /dev/urandom; sleep 1000']
    start_time: 50ms
"#,
    );
    until(&server, "endless", "exited");
    let binary = until(&server, "binary", "running");
    assert!(server.peak_memory() < 200 << 10, "{}", server.peak_memory());
    wait_for("the last line", || {
        let log = fs::read_to_string(server.site().path("endless.log")).ok()?;
        log.ends_with("\nend\n").then_some(())
    });
    let size = |name: &str| fs::metadata(server.site().path(name)).map(|it| it.len());
    assert!(size("endless.log.1").expect("an old one") <= 1 << 20);
    assert!(size("endless.log.2").is_ok() && size("endless.log.3").is_err());
    assert!(
        !server.log().contains("xxxxxxxx"),
        "they are in the file alone"
    );
    // No record is broken by them.
    let log = server.log();
    assert!(!log.contains('\u{1b}') && !log.contains('\0'));
    assert_eq!(pids(&binary).len(), 1);
    server.stop();
}

#[test]
fn both_streams_have_files_of_their_own_that_are_rotated() {
    let server = start(
        "  a: {command: sh -c 'seq 1 3000; seq 5001 8000 >&2; exec sleep 1000', start_time: 50ms, \
             output: {file: a.log, stderr_file: a.err, max_size: 10KB, backups: 1}}\n",
    );
    until(&server, "a", "running");
    for (name, last) in [("a.log", "3000\n"), ("a.err", "8000\n")] {
        let path = server.site().path(name);
        let log = wait_for("the last line", || {
            let log = fs::read_to_string(&path).ok()?;
            log.ends_with(last).then_some(log)
        });
        let old = fs::read_to_string(server.site().path(&format!("{name}.1"))).expect("an old one");
        let first: u32 = old
            .lines()
            .next()
            .expect("a line")
            .parse()
            .expect("a number");
        let lines = old
            .lines()
            .chain(log.lines())
            .map(|it| it.parse::<u32>().expect("a number"));
        assert!(lines.eq(first..=last.trim_end().parse().unwrap()), "{name}");
        assert!(
            old.len() > 5_000 && old.len() <= 10 << 10,
            "{name}: {}",
            old.len()
        );
    }
    server.stop();
}

/// A gigabyte in one line, in pieces of 8 KB.
#[test]
#[ignore = "it takes long: make weekly"]
fn a_gigabyte_without_a_line_break_takes_no_memory() {
    const BYTES: u64 = 1 << 30;
    let server = start(&format!(
        "  endless: {{command: sh -c 'head -c {BYTES} /dev/zero', stop_timeout: 1s, \
           output: {{file: endless.log, max_size: 100MB, backups: 20}}}}\n"
    ));
    let before = server.resident_memory();
    let ((), took) = time(|| {
        wait_for_long("the end of its output", || {
            (processes(&server, "endless")[0]["state"] == "exited").then_some(())
        });
    });
    let peak = server.peak_memory();
    println!(
        "{took:?}, {} MB before, {} MB at most",
        before >> 10,
        peak >> 10
    );
    assert!(peak < before + (64 << 10), "{before} {peak}");
    let all = || {
        let names = std::iter::once("endless.log".to_owned());
        let names = names.chain((1..=20).map(|old| format!("endless.log.{old}")));
        let sizes = names.filter_map(|name| fs::metadata(server.site().path(&name)).ok());
        sizes.map(|it| it.len()).sum::<u64>()
    };
    wait_for("all of it in its files", || (all() == BYTES).then_some(()));
    server.stop();
}

#[expect(clippy::disallowed_types, reason = "a real process is waited for")]
fn wait_for_long(what: &str, found: impl Fn() -> Option<()>) {
    let begun = std::time::Instant::now();
    while found().is_none() {
        assert!(begun.elapsed() < Duration::from_secs(300), "{what}");
        std::thread::yield_now();
    }
}

/// Files as people have them, but for the user and the paths.
const OF_SUPERVISORD: &str = "\
[program:laravel-worker]
process_name=%(program_name)s_%(process_num)02d
command=php artisan queue:work --sleep=3 --tries=3 --max-time=3600
autostart=true
autorestart=true
stopasgroup=true
killasgroup=true
numprocs=8
redirect_stderr=true
stdout_logfile=worker.log
stopwaitsecs=3600

[program:horizon]
process_name=%(program_name)s
command=php %(here)s/artisan horizon
autostart=true
autorestart=true
redirect_stderr=true
stdout_logfile=horizon.log
stopwaitsecs=3600

[program:scheduler]
command=php artisan schedule:work
autorestart=true

[program:reverb]
command=php artisan reverb:start --host=\"0.0.0.0\" --port=8080
autorestart=true
priority=10
stderr_logfile=/dev/stderr
stderr_logfile_maxbytes=0

[program:pulse]
command=php artisan pulse:check
environment=APP_ENV=\"production\",TAGS='a,b'
autorestart=true

[program:messenger-consume]
command=php bin/console messenger:consume async --time-limit=3600 --number=%(process_num)d
numprocs=2
numprocs_start=1
startsecs=0
autostart=true
autorestart=true
startretries=10
process_name=%(program_name)s_%(process_num)02d

[program:php-fpm]
command=sh -c 'exec php ./php-fpm -F'
autostart=true
autorestart=true
priority=5

[program:nginx]
command=php ./nginx -g 'daemon off;'
autostart=true
autorestart=true
priority=10
stdout_logfile=/dev/stdout
stdout_logfile_maxbytes=0
";

#[test]
fn files_of_supervisord_are_converted_and_run() {
    let stays = "<?php fwrite(STDOUT, json_encode([array_slice($argv, 1), getenv('TAGS')]) . \"\\n\"); sleep(1000);";
    let site = Site::new()
        .file("artisan", stays)
        .file("bin/console", stays)
        .file("php-fpm", stays)
        .file("nginx", stays)
        .file("all.conf", OF_SUPERVISORD);
    let made = Server::run(&site, &["init", "--from", "all.conf"]);
    assert_eq!(made.code, Some(0), "{}{}", made.stdout, made.stderr);
    Server::run(&site, &["check"]).assert_said(&[]);
    let yaml = site.read("pronghorn.yaml");
    let rpc = "rpc: {listen: 'tcp://127.0.0.1:0'}\nhttp: {address: 127.0.0.1:0, pool: {num_workers: 1, command: php ";
    let worker = Site::fixture("foreign/worker.php").display().to_string();
    let server =
        Server::start(site.file("pronghorn.yaml", &format!("{yaml}\n{rpc}{worker}}}}}\n")));
    let mut all_pids = Vec::new();
    for (name, count) in [
        ("laravel-worker", 8),
        ("horizon", 1),
        ("scheduler", 1),
        ("reverb", 1),
        ("pulse", 1),
        ("messenger-consume", 2),
        ("php-fpm", 1),
        ("nginx", 1),
    ] {
        let found = pids(&until(&server, name, "running"));
        assert_eq!(found.len(), count, "{name}");
        all_pids.extend(found);
    }
    let said = |name: &str, part: &str| {
        wait_for(part, || {
            let lines = server.steer(&["programs", "logs", name]).stdout;
            lines.contains(part).then_some(())
        });
    };
    for (name, part) in [
        (
            "laravel-worker",
            r#"["queue:work","--sleep=3","--tries=3","--max-time=3600"]"#,
        ),
        (
            "reverb",
            r#"["reverb:start","--host=0.0.0.0","--port=8080"]"#,
        ),
        ("pulse", r#"[["pulse:check"],"a,b"]"#),
        ("messenger-consume", "--number=1"),
        ("messenger-consume", "--number=2"),
        ("php-fpm", r#"["-F"]"#),
        ("nginx", r#"["-g","daemon off;"]"#),
    ] {
        said(name, part);
    }
    assert!(server.site().read("worker.log").contains("queue:work"));
    assert_eq!(server.stop().code, Some(0));
    all_pids.into_iter().for_each(is_gone);
}

#[test]
fn quotes_keep_words_together_and_a_list_needs_none() {
    let server = start(
        "  quoted: {command: \"sh -c 'echo \\\"a  b\\\" c' --queue=high,low\"}\n  \
           listed: {command: [sh, -c, 'echo \"d  e $0\"', 'f  g']}\n",
    );
    until(&server, "quoted", "exited");
    until(&server, "listed", "exited");
    server.logged(&["a  b c"]);
    server.logged(&["d  e f  g"]);
    server.stop();
}

#[test]
fn a_missing_command_is_no_start_and_check_says_so() {
    let site = site("  gone: {command: /nowhere/program}\n");
    let checked = Server::run(&site, &["check"]);
    assert_ne!(checked.code, Some(0));
    let said = checked.stdout + &checked.stderr;
    assert!(said.contains("service.gone.command"), "{said}");
    let started = Server::run(&site, &["serve"]);
    started.assert_refused(&["gone", "/nowhere/program", "was not found"]);
}

/// By one rule for all commands, and by the code that the start goes by.
#[test]
fn check_names_each_reason_that_prevents_a_start() {
    let site = site(
        "  named: {command: bin}\n  place: {command: ./bin}\n  plain: {command: bin/plain}\n  \
           windows: {command: bin/windows}\n  well: {command: sleep 1, health: {command: bin/plain}}\n  \
           later: {command: bin/plain, autostart: false}\n  \
           out: {command: sleep 1, output: {file: /dev/stdout}}\n  \
           log: {command: sleep 1, output: {file: no/a.log, stderr_file: bin}}\n  \
           null: {command: sleep 1, output: {file: /dev/null}}\n  \
           moved: {command: cd bin && ./plain}\n  with: {command: A=1 sleep 1}\n  \
           piped: {command: sleep 1 | cat}\n  script: {command: php no.php}\n  \
           code: {command: php -r 'sleep(1);'}\n  \
           wrapped: {command: env A=1 nice -n 5 php none.php}\n",
    )
    .file("bin/plain", "x")
    .file("bin/windows", "#!/bin/sh\r\n");
    let executable = fs::Permissions::from_mode(0o755);
    fs::set_permissions(site.path("bin/windows"), executable).expect("its owner may");
    let checked = Server::run(&site, &["check"]);
    assert_eq!(checked.code, Some(2), "{}", checked.stderr);
    let said = checked.stdout + &checked.stderr;
    for part in [
        "`service.named.command` runs `bin`, which was not found",
        "`service.place.command` runs `./bin`, which is a directory",
        "`service.plain.command` runs `bin/plain`, which is not executable\nhint: `chmod +x ",
        "`service.windows.command` runs `bin/windows`, which asks for `/bin/sh\\r` in its first line",
        "`service.well.health.command` runs `bin/plain`, which is not executable",
        "`service.out.output.file` names `/dev/stdout`, which is the server's own output\nhint: name a file, \
         or remove `output`",
        "`service.log.output.file` names `no/a.log`, whose directory `",
        "`service.log.output.stderr_file` names `bin`, which is a ",
    ] {
        assert!(said.contains(part), "{part} in\n{said}");
    }
    let later = said
        .lines()
        .find(|line| line.contains("service.later.command"));
    assert!(
        later.is_some_and(|line| line.starts_with("warning: ")),
        "{said}"
    );
    assert!(!said.contains("`service.null.output"), "{said}");
    for part in [
        "`service.moved.command` begins with `cd`, which is no program: no shell runs \
         the command\nhint: write `sh -c 'cd bin && ./plain'`",
        "`service.with.command` begins with `A=`",
        "hint: write `sleep 1`, and `A` below `env` of the section",
        "`service.piped.command` has `|`, which is an argument",
        "`service.script.command` runs `",
    ] {
        assert!(said.contains(part), "{part} in\n{said}");
    }
    let script = said
        .lines()
        .find(|line| line.contains("no.php`, which can't be read"));
    assert!(
        script.is_some_and(|line| line.starts_with("warning: ")),
        "{said}"
    );
    assert!(!said.contains("`service.code.command`"), "{said}");
    assert!(said.contains("/none.php`, which can't be read"), "{said}");
    let site = site.config(&configuration(
        "  out: {command: sleep 1, output: {file: /dev/stdout}}\n",
    ));
    let refused = Server::run(&site, &["serve"]);
    refused.assert_refused(&["out", "which is the server's own output", "remove `output`"]);
}

/// A person mends all of them, and then checks again.
#[test]
fn check_names_what_is_missing_beside_the_mistakes_of_the_text() {
    let site = site(
        "  gone: {command: nowhere, restart: sometimes}\n  place: {command: sleep 1, directory: nowhere}\n  \
           script: {command: php no.php, numprocs: 2}\n  wrong: {command: php no.php, directory: [a]}\n  \
           slip: {command: php no.php, directry: a}\n  own: {command: []}\n",
    );
    let checked = Server::run(&site, &["check"]);
    assert_eq!(checked.code, Some(2), "{}", checked.stderr);
    let said = checked.stdout + &checked.stderr;
    for part in [
        "error: .rr.yaml:8:19: `service.gone.command` runs `nowhere`, which was not found",
        "error: .rr.yaml:8:37: `service.gone.restart` is `sometimes`",
        "error: .rr.yaml:9:40: `service.place.directory` names `nowhere`, which can't be used: ",
        "error: .rr.yaml:10:33: unknown key `service.script.numprocs`",
        "warning: .rr.yaml:10:21: `service.script.command` runs `",
        "error: .rr.yaml:11:43: `service.wrong.directory` is a list",
        "error: .rr.yaml:12:31: unknown key `service.slip.directry`",
        "error: .rr.yaml:13:18: `service.own.command` is a list",
    ] {
        assert!(said.contains(part), "{part} in\n{said}");
    }
    // In the directory that was meant, they may be there.
    for part in ["`service.wrong.command`", "`service.slip.command`"] {
        assert!(!said.contains(part), "{part} in\n{said}");
    }
}

/// Units of systemd and files of compose are what people write by.
#[test]
fn check_knows_the_keys_of_systemd_and_compose() {
    for (key, meant) in [
        ("ExecStart: sleep 1", "command"),
        ("entrypoint: sleep 1", "command"),
        ("WorkingDirectory: /tmp", "directory"),
        ("working_dir: /tmp", "directory"),
        ("Environment: {A: '1'}", "env"),
        ("environment: {A: '1'}", "env"),
        ("User: nobody", "user"),
        ("Restart: always", "restart"),
        ("RestartSec: 5", "restart_sec"),
        ("KillSignal: SIGTERM", "stop_signal"),
        ("stop_grace_period: 5s", "stop_timeout"),
        ("TimeoutStartSec: 5", "start_timeout"),
        ("RuntimeMaxSec: 5", "exec_timeout"),
        ("SuccessExitStatus: 3", "exit_codes"),
        ("StartLimitBurst: 3", "max_failures"),
        ("LimitNOFILE: 1000", "open_files"),
        ("MemoryMax: 1GB", "max_memory"),
        ("mem_limit: 1GB", "max_memory"),
        ("healthcheck: {test: 'true'}", "health"),
        ("replicas: 2", "process_num"),
        ("depends_on: [database]", "order"),
        ("After: database", "order"),
        ("StandardOutput: /tmp/out", "output.file"),
    ] {
        let site = site(&format!("  p: {{command: sleep 1, {key}}}\n"));
        let checked = Server::run(&site, &["check"]);
        let said = checked.stdout + &checked.stderr;
        let hint = format!("did you mean `{meant}`?");
        let typed = key.split(':').next().unwrap_or_default();
        // A name that differs in case alone is no unknown one for RoadRunner either.
        let is_known = typed.to_lowercase() == meant;
        assert!(is_known || said.contains(&hint), "{key}: {said}");
    }
    for (value, meant) in [
        ("unless-stopped", "always"),
        ("on-abnormal", "on-failure"),
        ("never", "no"),
    ] {
        let site = site(&format!("  p: {{command: sleep 1, restart: {value}}}\n"));
        let checked = Server::run(&site, &["check"]);
        let said = checked.stdout + &checked.stderr;
        assert!(said.contains(&format!("did you mean `{meant}`?")), "{said}");
    }
}

#[test]
fn an_empty_command_is_a_mistake() {
    let site = site(
        "  a: {command: ''}\n  b: {command: }\n  c: {command: sleep 1, health: {command: ''}}\n  \
           d: {command: sleep 1, output: {file: ''}}\n  e: {command: []}\n  f:\n",
    );
    let checked = Server::run(&site, &["check"]);
    let said = checked.stdout + &checked.stderr;
    for part in [
        "`service.a` has no `command`",
        "`service.b` has no `command`",
        "`service.c.health` has no `command`",
        "`service.d.output` has no `file`",
        "hint: name a program first",
    ] {
        assert!(said.contains(part), "{part} in\n{said}");
    }
    assert!(
        !said.contains("`service.e` has no"),
        "one mistake is told once: {said}"
    );
    assert!(
        said.contains("`service.f` has no `command`\nhint: "),
        "{said}"
    );
    assert_eq!(said.matches("`service.f`").count(), 1, "{said}");
}

#[test]
fn the_user_of_a_program_has_to_be_able_to_run_it() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let site = site("  own: {command: bin/own}\n  others: {command: bin/own, user: nobody}\n")
        .file("bin/own", "#!/bin/sh\n");
    let for_owner = fs::Permissions::from_mode(0o744);
    fs::set_permissions(site.path("bin/own"), for_owner).expect("its owner may");
    let checked = Server::run(&site, &["check"]);
    let said = checked.stdout + &checked.stderr;
    assert!(
        said.contains(
            "`service.others.command` runs `bin/own`, which the user `nobody` may not execute: "
        ),
        "{said}"
    );
    assert!(!said.contains("`service.own.command"), "{said}");
}

#[test]
fn a_program_of_another_user_has_the_variables_of_that_account() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let told = "command: sh -c 'echo $(printenv USER) $(printenv HOME)', user: nobody";
    let server = start(&format!(
        "  own: {{{told}}}\n  written: {{{told}, env: {{HOME: /written}}}}\n"
    ));
    let home = std::process::Command::new("sh")
        .args(["-c", "getent passwd nobody | cut -d: -f6"])
        .output()
        .expect("getent runs");
    let home = String::from_utf8_lossy(&home.stdout);
    server.logged(&[&format!("nobody {}", home.trim()), "\"program\":\"own\""]);
    server.logged(&["nobody /written", "\"program\":\"written\""]);
    server.stop();
}

#[test]
fn a_reload_touches_only_what_has_changed() {
    let server = start(
        "  same: {command: sleep 1000, start_time: 50ms}\n  \
           changed: {command: sleep 1000, process_num: 2, start_time: 50ms}\n  \
           removed: {command: sleep 1000, start_time: 50ms}\n",
    );
    let before = ["same", "changed", "removed"].map(|name| pids(&until(&server, name, "running")));
    server.site().write(
        ".rr.yaml",
        &configuration(
            "  same: {command: sleep 1000, start_time: 50ms}\n  \
               changed: {command: sleep 1001, process_num: 3, start_time: 50ms, output: {file: said.log}, \
                 health: {command: touch well, interval: 100ms}, watch: {dirs: [.], interval: 100ms}}\n  \
               new: {command: sleep 1000, start_time: 50ms}\n",
        ),
    );
    let done = server.steer(&["reload"]);
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    assert_eq!(pids(&until(&server, "same", "running")), before[0]);
    let changed = pids(&until(&server, "changed", "running"));
    assert_eq!(changed.len(), 3);
    for file in ["said.log", "well"] {
        assert!(server.site().path(file).exists(), "{file}");
    }
    server.site().write("new.php", "");
    is_gone(changed[0]);
    until(&server, "changed", "running");
    until(&server, "new", "running");
    assert!(
        before[1]
            .iter()
            .chain(&before[2])
            .all(|pid| !is_there(*pid))
    );
    assert_eq!(all(&server).len(), 3);
    server.stop();
}

#[test]
fn a_reload_whose_new_program_fails_keeps_the_old_one() {
    let old = "  a: {command: sleep 1000, process_num: 2, start_time: 300ms}\n";
    let server = start(old);
    let before = pids(&until(&server, "a", "running"));
    // It is seen before anything is stopped.
    let missing = old.replace("sleep 1000", "/nowhere/sleep");
    server.site().write(".rr.yaml", &configuration(&missing));
    let failed = server.steer(&["reload"]);
    assert_ne!(failed.code, Some(0));
    assert_eq!(pids(&until(&server, "a", "running")), before);
    // The new one starts, and ends: the second process is never touched.
    let ending = old.replace("sleep 1000", "false");
    server.site().write(".rr.yaml", &configuration(&ending));
    let failed = server.steer(&["reload"]);
    assert_ne!(failed.code, Some(0));
    let after = pids(&until(&server, "a", "running"));
    assert_eq!(after[1], before[1]);
    assert_ne!(
        after[0], before[0],
        "by default, the old one of an index ends first"
    );
    assert_eq!(all(&server)[0]["command"], "sleep 1000");
    // With the other order, the old one goes on.
    let beside = ending.replace("start_time", "replace: start-first, start_time");
    server.site().write(".rr.yaml", &configuration(&beside));
    assert_ne!(server.steer(&["reload"]).code, Some(0));
    assert_eq!(pids(&until(&server, "a", "running")), after);
    server.logged(&[
        "ERROR",
        "the program goes on as it was",
        "process 0 did not come up",
    ]);
    server.stop();
}

/// The commands of the processes of a program.
fn commands(server: &Server, name: &str) -> Vec<String> {
    let pids = pids(&until(server, name, "running"));
    let lines = pids.iter().map(|pid| {
        let line = fs::read_to_string(format!("/proc/{pid}/cmdline")).expect("it runs");
        line.replace('\0', " ").trim_end().to_owned()
    });
    lines.collect()
}

#[test]
fn a_reload_that_fails_late_or_is_stopped_leaves_all_processes_as_they_were() {
    let old = "  a: {command: sleep 1000, process_num: 2, start_time: 1s}\n";
    let last_fails = "  a: {command: sh -c 'test $$PRONGHORN_PROGRAM_INDEX = 2 && exit 9; exec sleep 2000', \
                      process_num: 3, start_time: 1s}\n";
    for replace in ["stop-first", "start-first"] {
        let with =
            |text: &str| text.replace("start_time", &format!("replace: {replace}, start_time"));
        let server = start(&with(old));
        let before = vec!["sleep 1000"; 2];
        assert_eq!(commands(&server, "a"), before);
        let site = server.site();
        site.write(".rr.yaml", &configuration(&with(last_fails)));
        assert_ne!(server.steer(&["reload"]).code, Some(0));
        wait_for("the old ones", || {
            (commands(&server, "a") == before).then_some(())
        });
        site.write(".rr.yaml", &configuration(&with(old)));
        assert_eq!(server.steer(&["reload"]).code, Some(0));
        assert_eq!(commands(&server, "a"), before, "{replace}");
        // Somebody stops the program when one of the two is new.
        site.write(
            ".rr.yaml",
            &configuration(&with(&old.replace("1000", "2000"))),
        );
        let first = pids(&until(&server, "a", "running"))[0];
        std::thread::scope(|scope| {
            let reload = scope.spawn(|| server.steer(&["reload"]));
            wait_for("a new one", || {
                let now = pids(&processes(&server, "a"));
                let is_new = now.first().is_some_and(|pid| *pid != first);
                is_new.then_some(())
            });
            server.steer(&["programs", "stop", "a"]);
            let reload = reload.join().expect("it ends");
            assert_ne!(reload.code, Some(0), "{}", reload.stdout);
        });
        server.steer(&["programs", "start", "a"]);
        assert_eq!(commands(&server, "a"), before, "{replace}");
        server.stop();
    }
}

#[test]
fn a_start_that_fails_says_so_whatever_ran_before() {
    let site = site("  a: {command: ./program, start_time: 100ms}\n")
        .file("program", "#!/bin/sh\nexec sleep 1000\n");
    let program = site.path("program");
    let executable = fs::Permissions::from_mode(0o755);
    fs::set_permissions(&program, executable).expect("it is there");
    let server = Server::start(site);
    until(&server, "a", "running");
    server.steer(&["programs", "stop", "a"]);
    fs::remove_file(program).expect("it is there");
    let failed = server.steer(&["programs", "start", "a"]);
    assert_ne!(failed.code, Some(0), "{}", failed.stdout);
    server.stop();
}

#[test]
fn a_program_is_up_when_it_says_so_or_its_health_command_does() {
    let server = start(
        "  told: {command: sh -c 'sleep 0.3; php notify.php & wait', notify: true, start_time: 10ms}\n  \
           deaf: {command: sleep 1000, notify: true, start_time: 10ms}\n  \
           silent: {command: sleep 1000, notify: true, start_time: 10ms, start_timeout: 400ms, restart: always, max_failures: 1}\n  \
           well: {command: sleep 1000, start_time: 10ms, restart: always, restart_delay: 10ms, \
             health: {command: test -e well, interval: 100ms, failures: 2}}\n",
    );
    server.site().write(
        "notify.php",
        "<?php $to = getenv('NOTIFY_SOCKET'); $s = socket_create(AF_UNIX, SOCK_DGRAM, 0);\n\
         $m = \"STATUS=warm\\nREADY=1\"; socket_sendto($s, $m, strlen($m), 0, $to); sleep(1000);\n",
    );
    until(&server, "told", "running");
    // A process of the same user that is none of the program's.
    let deaf = pids(&until(&server, "deaf", "starting"))[0];
    let environment = fs::read_to_string(format!("/proc/{deaf}/environ")).expect("it is there");
    let mut variables = environment.split('\0');
    let socket = variables.find_map(|it| it.strip_prefix("NOTIFY_SOCKET="));
    let stranger = std::os::unix::net::UnixDatagram::unbound().expect("a socket");
    stranger
        .send_to(b"READY=1\nSTATUS=mine", socket.expect("it has one"))
        .expect("it may write to it");
    let sender = format!("\"sender\":{}", std::process::id());
    server.logged(&[
        "a message to `NOTIFY_SOCKET` has no effect",
        "\"deaf\"",
        &sender,
    ]);
    let deaf = &processes(&server, "deaf")[0];
    assert_eq!(deaf["state"], "starting", "{deaf}");
    assert_ne!(deaf["status"], "mine", "{deaf}");
    until(&server, "silent", "gave up");
    assert_eq!(processes(&server, "well")[0]["state"], "starting");
    server.site().write("well", "");
    let first = pids(&until(&server, "well", "running"));
    fs::remove_file(server.site().path("well")).expect("it is there");
    is_gone(first[0]);
    server.site().write("well", "");
    until(&server, "well", "running");
    server.logged(&["its health command has failed 2 times"]);
    server.stop();
}

#[test]
fn a_program_has_its_limits_its_directory_and_its_index() {
    let site = site(
        "  limited: {command: sh -c 'ulimit -n; umask; cut -d\" \" -f19 /proc/$$$$/stat; pwd; echo $$PRONGHORN_PROGRAM_INDEX $$OWN', \
           process_num: 2, nice: 7, open_files: 321, umask: '077', directory: below, env: [{OWN: value}]}\n",
    )
    .file("below/nothing", "");
    let server = Server::start(site);
    until(&server, "limited", "exited");
    let said = server.steer(&["programs", "logs", "limited"]).stdout;
    for part in [
        "| 321\n",
        "| 0077\n",
        "| 7\n",
        "/below\n",
        "| 0 value\n",
        "| 1 value\n",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    server.stop();
}

#[test]
fn one_that_takes_too_much_memory_or_time_is_replaced() {
    let server = start(
        "  heavy: {command: php heavy.php, max_memory: 60MB, restart: always, restart_delay: 10ms, start_time: 50ms}\n  \
           long: {command: sleep 1000, exec_timeout: 300ms, restart: always, restart_delay: 10ms, start_time: 50ms}\n",
    );
    server.site().write(
        "heavy.php",
        "<?php ini_set('memory_limit', '-1'); $a = str_repeat('x', 90 << 20); sleep(1000);",
    );
    server.logged(&["more than 60MB (`max_memory`): it is stopped"]);
    wait_for("several processes", || {
        (processes(&server, "long")[0]["starts"].as_u64() > Some(2)).then_some(())
    });
    server.stop();
}

#[test]
fn programs_start_in_their_order_and_end_in_the_reverse_one() {
    let program = |order: u32| {
        format!(
            "  p{order}: {{command: sh -c 'echo start {order} >> order; trap \"echo end {order} >> order; exit\" INT; \
               while :; do sleep 0.02; done', order: {order}, start_time: 50ms}}\n"
        )
    };
    let programs: String = [3, 1, 2].into_iter().map(program).collect();
    let server = start(&programs);
    until(&server, "p3", "running");
    let site = server.into_site();
    assert_eq!(
        site.read("order"),
        "start 1\nstart 2\nstart 3\nend 3\nend 2\nend 1\n"
    );
}

#[test]
fn a_changed_file_restarts_a_program() {
    let site = site(
        "  watched: {command: sleep 1000, start_time: 50ms, watch: {dirs: [code], interval: 100ms}}\n",
    )
    .file("code/a.php", "");
    let server = Server::start(site);
    let before = pids(&until(&server, "watched", "running"));
    server.site().write("code/a.php", "<?php // new");
    is_gone(before[0]);
    until(&server, "watched", "running");
    server.stop();
}

#[test]
fn a_changed_file_restarts_a_program_that_somebody_has_started() {
    let site = site(
        "  watched: {command: sleep 1000, autostart: false, start_time: 50ms, watch: {dirs: [code], interval: 100ms}}\n",
    )
    .file("code/a.php", "");
    let server = Server::start(site);
    server.steer(&["programs", "start", "watched"]);
    let before = pids(&until(&server, "watched", "running"));
    server.site().write("code/a.php", "<?php // new");
    is_gone(before[0]);
    until(&server, "watched", "running");
    server.steer(&["programs", "stop", "watched"]);
    server.stop();
}

/// Its processes show which version of a file each of them has read.
fn versions(server: &Server) -> [String; 3] {
    let seen = fs::read_to_string(server.site().path("seen")).unwrap_or_default();
    let of = |index: usize| {
        let mut lines = seen.lines().rev();
        let line = lines.find_map(|line| line.strip_prefix(&format!("{index} ")));
        line.unwrap_or_default().to_owned()
    };
    [of(0), of(1), of(2)]
}

#[test]
fn a_file_that_changes_during_a_restart_leads_to_another_one() {
    let watching = |more: &str| {
        format!(
            "  watched: {{command: sh -c 'echo $(printenv PRONGHORN_PROGRAM_INDEX) $(cat code/v.php) >> seen; exec sleep 1000', \
               process_num: 3, start_time: 300ms, watch: {{dirs: [code], interval: 100ms}}{more}}}\n"
        )
    };
    let site = site(&watching("")).file("code/v.php", "a");
    let server = Server::start(site);
    until(&server, "watched", "running");
    std::thread::scope(|scope| {
        scope.spawn(|| server.steer(&["programs", "restart", "watched"]));
        has_lines(&server, "seen", 4);
        server.site().write("code/v.php", "b");
    });
    wait_for("the new version", || {
        (versions(&server) == ["b"; 3]).then_some(())
    });
    until(&server, "watched", "running");
    // A reload is such a restart, too.
    let seen = lines(&server, "seen");
    server
        .site()
        .write(".rr.yaml", &configuration(&watching(", exit_codes: [7]")));
    server.signal(Signal::HUP);
    has_lines(&server, "seen", seen + 1);
    server.site().write("code/v.php", "c");
    wait_for("the next version", || {
        (versions(&server) == ["c"; 3]).then_some(())
    });
    server.stop();
}

#[test]
fn a_reload_starts_a_program_that_is_to_start_with_the_server_from_now_on() {
    let program =
        |more: &str| format!("  later: {{command: sleep 1000, start_time: 50ms{more}}}\n");
    let server = start(&program(", autostart: false"));
    server.site().write(
        ".rr.yaml",
        &configuration(&program(", autostart: false, nice: 1")),
    );
    server.signal(Signal::HUP);
    server.logged(&["later", "its settings have changed: it stays stopped"]);
    server
        .site()
        .write(".rr.yaml", &configuration(&program("")));
    server.signal(Signal::HUP);
    server.logged(&["later", "its settings have changed: it is started"]);
    until(&server, "later", "running");
    server.stop();
}

/// The programs of the old process end before those of the new one start.
#[test]
fn an_upgrade_never_has_a_program_twice() {
    let mut server = start(
        "  single: {command: sh -c 'mkdir only || echo twice >> wrong; trap \"sleep 0.3; rmdir only; exit\" INT; \
           echo x >> starts; while :; do sleep 0.02; done', start_time: 50ms}\n",
    );
    let before = pids(&until(&server, "single", "running"));
    server.upgrade();
    is_gone(before[0]);
    wait_for("the next one", || {
        (lines(&server, "starts") == 2).then_some(())
    });
    until(&server, "single", "running");
    assert_eq!(lines(&server, "wrong"), 0);
    server.stop();
}

#[test]
fn a_program_that_is_restarted_during_an_upgrade_does_not_run_twice() {
    let mut server = start(
        "  single: {command: sh -c 'mkdir only || echo twice >> wrong; trap \"rmdir only; exit\" INT; \
           echo x >> starts; while :; do sleep 0.02; done', start_time: 50ms}\n  \
           slow: {command: sh -c 'trap \"sleep 1; exit\" INT; while :; do sleep 0.02; done', start_time: 50ms}\n",
    );
    let before = pids(&until(&server, "single", "running"));
    let slow = pids(&until(&server, "slow", "running"));
    let mut rpc = Rpc::connect(&server);
    server.ask_for_upgrade();
    is_gone(before[0]);
    let restarted = rpc.call("service.Restart", r#"{"name":"single"}"#);
    assert!(restarted.contains("the server is stopping"), "{restarted}");
    server.follow_upgrade();
    is_gone(slow[0]);
    wait_for("the next one", || {
        (lines(&server, "starts") == 2).then_some(())
    });
    until(&server, "single", "running");
    assert_eq!(lines(&server, "wrong"), 0);
    server.stop();
}

/// A program notes each start, and each end that it was asked for.
fn noting(keys: &str) -> String {
    format!(
        "  noting: {{command: sh -c 'trap \"sleep 0.5; echo x >> clean; exit\" INT; \
           echo x >> begun; while :; do sleep 0.02; done', replace: start-first{keys}}}\n"
    )
}

fn has_lines(server: &Server, file: &str, wanted: usize) {
    wait_for(&format!("{wanted} lines of {file}"), || {
        (lines(server, file) == wanted).then_some(())
    });
}

#[test]
fn a_stop_during_a_restart_asks_the_process_that_comes_up_beside_the_old_one_to_end() {
    let server = start(&noting(", start_time: 60s"));
    has_lines(&server, "begun", 1);
    std::thread::scope(|scope| {
        let restart = scope.spawn(|| server.steer(&["programs", "restart", "noting"]));
        has_lines(&server, "begun", 2);
        let stopped = server.steer(&["programs", "stop", "noting"]);
        assert_eq!((stopped.code, lines(&server, "clean")), (Some(0), 2));
        let restarted = restart.join().expect("it ends");
        assert!(restarted.stderr.contains("it was stopped meanwhile"));
    });
    let log = server.stop().stderr;
    assert_eq!(log.matches("service was stopped").count(), 2, "{log}");
}

#[test]
fn a_stop_leaves_the_old_process_of_a_restart_its_time() {
    let server = start(&noting(", start_time: 50ms"));
    let before = pids(&until(&server, "noting", "running"));
    std::thread::scope(|scope| {
        scope.spawn(|| server.steer(&["programs", "restart", "noting"]));
        // The old one has half a second for its end.
        wait_for("the new one", || {
            let pids = pids(&processes(&server, "noting"));
            (!pids.is_empty() && pids != before).then_some(())
        });
        assert_eq!(lines(&server, "clean"), 0, "the test is too slow");
        server.steer(&["programs", "stop", "noting"]);
        assert_eq!(lines(&server, "clean"), 2);
    });
    server.stop();
}

#[test]
fn the_servers_end_during_a_restart_asks_both_processes_to_end() {
    let mut server = start(&noting(", start_time: 60s"));
    has_lines(&server, "begun", 1);
    std::thread::scope(|scope| {
        scope.spawn(|| server.steer(&["programs", "restart", "noting"]));
        has_lines(&server, "begun", 2);
        server.signal(Signal::TERM);
    });
    server.wait();
    assert_eq!(lines(&server, "clean"), 2);
}

/// A program that takes its time for its end, and notes each start and each one beside another.
fn slow(name: &str, seconds: u32, keys: &str) -> String {
    format!(
        "  {name}: {{command: sh -c 'mkdir {name}.only || echo twice >> wrong; \
           trap \"sleep {seconds}; rmdir {name}.only; exit\" INT; echo x >> {name}.starts; \
           while :; do sleep 0.02; done', start_time: 50ms{keys}}}\n"
    )
}

/// Asks for an upgrade. Returns the number of the new process when its program waits for the old
/// one's.
fn begin_upgrade(server: &Server, name: &str, of: u32) -> u32 {
    let known = server.serving();
    rustix::process::set_child_subreaper(Pid::from_raw(1)).expect("Linux has it");
    let pid = Pid::from_raw(of.cast_signed()).expect("a pid");
    kill_process(pid, Signal::USR2).expect("it is there");
    wait_for(&format!("{name} to wait for {of}"), || {
        let found = processes(server, name);
        let wait = found.first()?["waits_for"].as_str()?;
        wait.contains("process before").then_some(())
    });
    let mut serving = server.serving();
    serving.retain(|pid| !known.contains(pid));
    assert_eq!(serving.len(), 1, "{serving:?} of {known:?}");
    serving[0]
}

#[test]
fn a_second_upgrade_waits_for_the_programs_of_the_first_process() {
    let mut server = start(&slow("single", 3, ""));
    let before = pids(&until(&server, "single", "running"));
    let second = begin_upgrade(&server, "single", server.pid());
    let third = begin_upgrade(&server, "single", second);
    assert!(is_there(before[0]), "the test is too slow");
    wait_for("the third process to be alone", || {
        (server.serving() == [third]).then_some(())
    });
    server.follow_upgrade();
    until(&server, "single", "running");
    assert_eq!(
        (lines(&server, "single.starts"), lines(&server, "wrong")),
        (2, 0)
    );
    server.stop();
}

#[test]
fn commands_reach_programs_that_wait_for_the_process_before() {
    let rules = slow("again", 1, "") + &slow("begun", 1, "") + &slow("ended", 1, "");
    let mut server = start(&(rules + &slow("late", 1, ", autostart: false")));
    let names = ["again", "begun", "ended"];
    let before = names.map(|name| pids(&until(&server, name, "running"))[0]);
    begin_upgrade(&server, "again", server.pid());
    let (old, waits) = (server.pid(), &processes(&server, "again")[0]);
    let wait = format!("the end of the programs of the process before (pid {old})");
    assert_eq!(
        (&waits["state"], &waits["waits_for"]),
        (&json!("starting"), &json!(wait))
    );
    let stopped = server.steer(&["programs", "stop", "ended"]);
    assert!(
        stopped.stderr.contains("ended is stopped\n"),
        "{}",
        stopped.stderr
    );
    assert_eq!(processes(&server, "ended")[0]["state"], "stopped");
    assert!(before.into_iter().all(is_there), "the test is too slow");
    for command in [["restart", "again"], ["start", "begun"], ["start", "late"]] {
        let done = server.steer(&["programs", command[0], command[1]]);
        assert_eq!(done.code, Some(0), "{}", done.stderr);
        until(&server, command[1], "running");
    }
    server.follow_upgrade();
    let starts = ["again", "begun", "ended", "late"];
    let starts = starts.map(|name| lines(&server, &format!("{name}.starts")));
    assert_eq!((starts, lines(&server, "wrong")), ([2, 2, 1, 1], 0));
    assert_eq!(processes(&server, "ended")[0]["state"], "stopped");
    server.stop();
}

#[test]
fn a_stop_after_an_upgrade_waits_for_the_programs_of_the_process_before() {
    let mut server = start(&slow("single", 1, ""));
    let before = pids(&until(&server, "single", "running"));
    begin_upgrade(&server, "single", server.pid());
    let stopped = server.steer(&["stop"]);
    assert!(!is_there(before[0]), "{}", stopped.stderr);
    assert_eq!(stopped.code, Some(0), "{}", stopped.stderr);
    server.logged(&[
        "INFO",
        "the stop waits for the programs of the process before",
    ]);
    assert_eq!(server.wait().code, Some(0));
    assert_eq!(lines(&server, "single.starts"), 1);
}

#[test]
fn programs_end_when_their_server_is_killed() {
    let server = start(
        "  a: {command: sleep 1000, process_num: 2, start_time: 50ms}\n  \
           deaf: {command: sh -c 'trap \"\" TERM INT HUP; while :; do sleep 0.1; done', start_time: 50ms}\n  \
           gone: {command: sh -c 'sleep 1000 & echo done'}\n  \
           family: {command: sh -c 'trap \"\" TERM INT HUP; sleep 1000 & echo $! > child; wait', start_time: 50ms}\n",
    );
    let mut both = pids(&until(&server, "a", "running"));
    both.extend(pids(&until(&server, "deaf", "running")));
    until(&server, "gone", "exited");
    until(&server, "family", "running");
    let child = server.site().read("child").trim().parse();
    both.push(child.expect("a pid"));
    server.killed();
    both.into_iter().for_each(is_gone);
}

/// The shell that ends what programs have started may be ended, too.
#[test]
fn programs_end_with_their_server_when_their_guard_was_killed_before() {
    let server = start(
        "  family: {command: sh -c 'trap \"\" TERM INT HUP; sleep 1000 & echo $! > child; wait', start_time: 50ms}\n",
    );
    let before = pids(&until(&server, "family", "running"));
    let child = number(&server, "child");
    let guard = |other: i32| {
        wait_for("a guard", || {
            let entries = fs::read_dir("/proc").expect("/proc").flatten();
            let mut pids = entries.filter_map(|it| it.file_name().to_str()?.parse::<i32>().ok());
            pids.find(|pid| {
                let read = |file| fs::read_to_string(format!("/proc/{pid}/{file}"));
                let is_own = read("status")
                    .is_ok_and(|it| it.contains(&format!("\nPPid:\t{}\n", server.pid())));
                let is_guard = read("cmdline").is_ok_and(|it| it.contains("pronghorn-guard"));
                *pid != other && is_own && is_guard
            })
        })
    };
    let first = guard(0);
    kill_process(Pid::from_raw(first).expect("a pid"), Signal::KILL).expect("it is there");
    server.logged(&[
        "WARN",
        "`pronghorn-guard` has ended with signal 9 (SIGKILL): another one is started",
    ]);
    guard(first);
    // Programs go on, and are restarted by their rules.
    assert_eq!(pids(&processes(&server, "family")), before);
    server.killed();
    [before[0], child].into_iter().for_each(is_gone);
}

#[test]
fn the_table_says_why_a_process_was_ended() {
    let server = start(
        "  time: {command: sleep 1000, exec_timeout: 300ms, start_time: 50ms}\n  \
           deaf: {command: sh -c 'trap \"\" INT; while :; do sleep 0.05; done', exec_timeout: 300ms, stop_timeout: 100ms, start_time: 50ms}\n  \
           asked: {command: sh -c 'trap \"\" TERM; while :; do sleep 0.05; done', stop_signal: SIGTERM, stop_timeout: 100ms, start_time: 50ms}\n  \
           never: {command: sleep 1000, notify: true, start_timeout: 300ms, start_time: 50ms}\n  \
           unwell: {command: sleep 1000, start_timeout: 1500ms, health: {command: sh -c 'exit 7', interval: 100ms}}\n",
    );
    for (name, why) in [
        (
            "time",
            "it has run for 300ms (`exec_timeout`), and was stopped (signal 2 (SIGINT))",
        ),
        (
            "deaf",
            "it has run for 300ms (`exec_timeout`), did not end after SIGINT (`stop_signal`), and was killed after 100ms (`stop_timeout`)",
        ),
        (
            "never",
            "it was not up within 300ms (`start_timeout`): it has not said `READY=1` (`notify`), and was stopped (signal 2 (SIGINT))",
        ),
        (
            "unwell",
            "it was not up within 1500ms (`start_timeout`): its health command has failed: it ended with exit code 7, and was stopped (signal 2 (SIGINT))",
        ),
    ] {
        assert_eq!(until(&server, name, "exited")[0]["last"], why, "{name}");
        let table = server.steer(&["programs"]).stdout;
        assert!(table.contains(why), "{table}");
    }
    server.steer(&["programs", "stop", "asked"]);
    let killed =
        "it did not end after SIGTERM (`stop_signal`), and was killed after 100ms (`stop_timeout`)";
    assert_eq!(processes(&server, "asked")[0]["last"], killed);
    server.stop();
}

/// The server does nothing for programs that only run.
#[test]
fn a_hundred_programs_at_rest_cost_next_to_nothing() {
    let server = start("  many: {command: sleep 1000, process_num: 100, start_time: 50ms}\n");
    until(&server, "many", "running");
    let ticks = || {
        let stat = fs::read_to_string(format!("/proc/{}/stat", server.pid())).expect("it runs");
        let (_, rest) = stat.rsplit_once(") ").expect("a name");
        let fields: Vec<u64> = rest.split(' ').filter_map(|it| it.parse().ok()).collect();
        // utime and stime, behind the state, which is no number.
        fields[10] + fields[11]
    };
    let before = ticks();
    rest(Duration::from_secs(3));
    let took = ticks() - before;
    // Of 300 ticks, 1 % of a processor is 3; a busy machine may add some.
    assert!(took <= 9, "{took} ticks in 3 s");
    server.stop();
}

#[expect(
    clippy::disallowed_methods,
    reason = "nothing is to happen meanwhile, so there is nothing to wait for"
)]
fn rest(time: Duration) {
    std::thread::sleep(time);
}

#[test]
fn an_essential_program_that_is_not_up_makes_the_server_not_ready() {
    let site = site("  needed: {command: sleep 1000, essential: true, start_time: 50ms}\n");
    let config = site.read(".rr.yaml");
    let address = pronghorn_testkit::free_address();
    let server = Server::start(site.config(&format!("{config}status: {{address: '{address}'}}\n")));
    let ready = || {
        let mut connection = pronghorn_testkit::Connection::open(address);
        connection.get("/ready?plugin=service").status
    };
    until(&server, "needed", "running");
    assert_eq!(ready(), 200);
    server.steer(&["programs", "stop", "needed"]);
    assert_eq!(ready(), 503);
    server.steer(&["programs", "start", "needed"]);
    until(&server, "needed", "running");
    assert_eq!(ready(), 200);
    server.stop();
}
