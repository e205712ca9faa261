//! Jobs from a push over RPC to their acknowledgement by a PHP worker.

use std::fmt::Write as _;
use std::fs;
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, SystemTime};

use pronghorn_testkit::{
    Connection, Engine, Server, Site, free_address, php_command, time, wait_for,
};
use pronghorn_wire::frame::Flags;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::control::Rpc;

fn site(workers: usize) -> Site {
    site_of(
        &Site::fixture("foreign/jobs.php"),
        &format!("num_workers: {workers}"),
    )
}

fn site_of(worker: &Path, pool: &str) -> Site {
    site_with(worker, pool, "")
}

/// `more` are further pipelines and keys.
fn site_with(worker: &Path, pool: &str, more: &str) -> Site {
    let site = Site::new();
    let ran = site.path("ran");
    site.config(&format!(
        "version: '3'\n\
         server: {{command: php {}, env: {{RAN: '{}'}}}}\n\
         http: {{address: 127.0.0.1:0, pool: {{num_workers: 1, command: php {}}}}}\n\
         rpc: {{listen: 'tcp://127.0.0.1:0'}}\n\
         state_dir: state\n\
         logs: {{level: debug}}\n\
         jobs:\n  \
           pool: {{{pool}}}\n  \
           consume: [mail, kept]\n  \
           pipelines:\n    \
             mail: {{driver: memory, config: {{priority: 7}}, retry: {{backoff: [0s]}}}}\n    \
             kept: {{driver: embedded, retry: {{backoff: [0s]}}}}\n\
         {more}",
        worker.display(),
        ran.display(),
        Site::fixture("foreign/worker.php").display(),
    ))
}

fn start(workers: usize) -> (Server, Rpc) {
    let server = Server::start(site(workers));
    let rpc = Rpc::connect(&server);
    (server, rpc)
}

fn push(rpc: &mut Rpc, pipeline: &str, id: &str, name: &str, delay: u32) {
    let said = rpc.call("jobs.Push", &push_request(pipeline, id, name, delay));
    assert_eq!(said, "{}");
}

/// The payload is `8`.
fn push_request(pipeline: &str, id: &str, name: &str, delay: u32) -> String {
    format!(
        r#"{{"job":{{"job":"{name}","id":"{id}","payload":"OA==","options":{{"pipeline":"{pipeline}","delay":{delay}}}}}}}"#
    )
}

/// What has run, one line for each time.
fn ran(server: &Server) -> String {
    fs::read_to_string(server.site().path("ran")).unwrap_or_default()
}

/// A job of this name runs so often, and then its pipeline is empty.
fn runs_so_often(server: &Server, rpc: &mut Rpc, name: &str, runs: usize) {
    runs_so_often_in(server, rpc, ("mail", "memory"), name, runs);
}

fn runs_so_often_in(
    server: &Server,
    rpc: &mut Rpc,
    (pipeline, driver): (&str, &str),
    name: &str,
    runs: usize,
) {
    let before = ran(server).lines().count();
    push(rpc, pipeline, name, name, 0);
    wait_until_ran(server, before + runs);
    wait_until_stat(
        rpc,
        &format!(r#""driver":"{driver}","queue":"{pipeline}","ready":true"#),
    );
    let after = ran(server).lines().count();
    assert_eq!(after - before, runs, "{name}");
}

/// Waits until so many jobs have run.
fn wait_until_ran(server: &Server, count: usize) -> String {
    wait_for("jobs to run", || {
        let ran = ran(server);
        (ran.lines().count() >= count).then_some(ran)
    })
}

fn wait_until_stat(rpc: &mut Rpc, part: &str) {
    wait_for(part, || {
        rpc.call("jobs.Stat", "{}").contains(part).then_some(())
    });
}

#[test]
fn a_job_goes_from_a_push_through_a_worker_to_its_ack() {
    for (pipeline, driver, priority) in [("mail", "memory", 7), ("kept", "embedded", 10)] {
        let (server, mut rpc) = start(2);
        push(&mut rpc, pipeline, "id-1", "App\\\\Ping", 0);
        let expected = format!(
            r#"{{"id":"id-1","job":"App\\Ping","driver":"{driver}","headers":{{}},"pipeline":"{pipeline}"}} 8"#
        );
        assert_eq!(wait_until_ran(&server, 1).trim_end(), expected);
        let empty = format!(
            r#"{{"pipeline":"{pipeline}","driver":"{driver}","queue":"{pipeline}","ready":true,"priority":{priority}}}"#
        );
        wait_until_stat(&mut rpc, &empty);
        server.stop();
    }
}

/// Over pipes and over the ring.
#[test]
fn jobs_run_in_workers_of_our_package() {
    for transport in ["relay", "ring"] {
        let worker = Site::fixture("jobs.php");
        let server = Server::start(site_of(
            &worker,
            &format!("num_workers: 1, transport: {transport}"),
        ));
        let mut rpc = Rpc::connect(&server);
        push(&mut rpc, "kept", "id-1", "ping", 0);
        let expected = r#"{"id":"id-1","name":"ping","pipeline":"kept","driver":"embedded","headers":[],"attempt":1} 8"#;
        assert_eq!(wait_until_ran(&server, 1).trim_end(), expected);
        for (name, runs) in [
            ("fail", 1),
            ("again", 2),
            ("throw", 3),
            ("exit", 3),
            ("die", 3),
        ] {
            runs_so_often(&server, &mut rpc, name, runs);
        }
        let log = server.log();
        for said in [
            "failed on purpose",
            "thrown on purpose in ",
            "exit() ended the call",
            "attempt 1 of 3: its handler wants it again in 10ms",
        ] {
            assert!(log.contains(said), "{said} in {log}");
        }
        server.stop();
    }
}

/// The IDs of dead letters, the newest first.
fn dead(rpc: &mut Rpc) -> Vec<String> {
    let listed = rpc.call("jobs.DeadLetters", "{}");
    let listed: Value = serde_json::from_str(&listed).expect("a list");
    let letters = listed["letters"].as_array().expect("a list");
    let id = |letter: &Value| letter["id"].as_str().unwrap_or_default().to_owned();
    letters.iter().map(id).collect()
}

#[test]
fn a_job_that_is_given_up_is_a_dead_letter_that_outlives_the_server() {
    let site = site_of(&Site::fixture("jobs.php"), "num_workers: 1");
    let server = Server::start(site);
    let mut rpc = Rpc::connect(&server);
    for (pipeline, id, name) in [
        ("kept", "killer", "die"),
        ("mail", "thrower", "throw"),
        ("kept", "quitter", "fail"),
    ] {
        push(&mut rpc, pipeline, id, name, 0);
        wait_for(id, || dead(&mut rpc).contains(&id.to_owned()).then_some(()));
    }
    assert_eq!(
        ran(&server).lines().count(),
        7,
        "three times, three times, once"
    );
    let server = Server::start(server.killed());
    let mut rpc = Rpc::connect(&server);
    assert_eq!(dead(&mut rpc), ["quitter", "thrower", "killer"]);
    let shown = rpc.call("jobs.Show", r#"{"id":"thrower"}"#);
    for said in [
        r#""pipeline":"mail""#,
        r#""attempts":3"#,
        "DomainException: thrown on purpose in ",
        r#""payload":"8""#,
    ] {
        assert!(shown.contains(said), "{said} in {shown}");
    }
    let retried = rpc.call("jobs.Retry", r#"{"ids":["thrower","nobody"]}"#);
    let refused =
        r#"{"done":["thrower"],"not_done":[{"id":"nobody","why":"there is no such dead letter"}]}"#;
    assert_eq!(retried, refused);
    wait_until_ran(&server, 10);
    wait_for("it to be given up again", || {
        (dead(&mut rpc)[0] == "thrower").then_some(())
    });
    let discarded = rpc.call("jobs.Discard", r#"{"pipeline":"kept"}"#);
    assert_eq!(discarded, r#"{"done":["quitter","killer"]}"#);
    assert_eq!(dead(&mut rpc), ["thrower"]);
    server.stop();
}

/// A reload ends workers that don't finish in time; so does a stop.
#[test]
fn a_job_that_a_deploy_cuts_off_runs_again_and_that_is_no_attempt() {
    let pool = "num_workers: 1, reset_timeout: 100ms, destroy_timeout: 100ms, transport: ring";
    let server = Server::start(site_of(&Site::fixture("jobs.php"), pool));
    let mut rpc = Rpc::connect(&server);
    let long = push_request("kept", "long", "slow", 0).replace("OA==", "NjAwMDA="); // a minute
    assert_eq!(rpc.call("jobs.Push", &long), "{}");
    for runs in 1..4 {
        let ran = wait_until_ran(&server, runs);
        assert_eq!(ran.matches(r#""attempt":1"#).count(), runs, "{ran}");
        server.signal(Signal::HUP);
    }
    let server = Server::start(server.into_site());
    // The stop may have come before the end of the last reload.
    let ran = wait_until_ran(&server, 4);
    assert_eq!(
        ran.lines().count(),
        ran.matches(r#""attempt":1"#).count(),
        "{ran}"
    );
    let mut rpc = Rpc::connect(&server);
    rpc.call("jobs.Cancel", r#"{"ids":["long"]}"#);
    wait_until_stat(&mut rpc, r#""queue":"kept","ready":true"#);
    assert_eq!(dead(&mut rpc), [""; 0]);
    server.stop();
}

#[test]
fn each_pool_runs_the_jobs_of_its_pipelines_and_those_that_name_it() {
    let site = Site::new();
    let worker = Site::fixture("jobs.php");
    let [light, heavy] = ["light", "heavy"].map(|pool| site.path(pool));
    let site = site.config(&format!(
        "version: '3'\n\
         http: {{address: 127.0.0.1:0, pool: {{num_workers: 1, command: php {}}}}}\n\
         rpc: {{listen: 'tcp://127.0.0.1:0'}}\n\
         state_dir: state\n\
         logs: {{level: debug}}\n\
         jobs:\n  \
           pools:\n    \
             light: {{num_workers: 1, command: env RAN={} php {worker}}}\n    \
             heavy: {{num_workers: 1, command: env RAN={} php {worker}}}\n  \
           consume: [mail, images]\n  \
           pipelines:\n    \
             mail: {{driver: memory, pool: light}}\n    \
             images: {{driver: embedded, pool: heavy}}\n",
        Site::fixture("foreign/worker.php").display(),
        light.display(),
        heavy.display(),
        worker = worker.display(),
    ));
    let server = Server::start(site);
    let mut rpc = Rpc::connect(&server);
    push(&mut rpc, "mail", "m", "ping", 0);
    push(&mut rpc, "images", "i", "ping", 0);
    let named = push_request("mail", "n", "ping", 0);
    let headers = r#""headers":{"pool":{"value":["heavy"]}},"options""#;
    assert_eq!(
        rpc.call("jobs.Push", &named.replace(r#""options""#, headers)),
        "{}"
    );
    let of = |pool: &str| fs::read_to_string(server.site().path(pool)).unwrap_or_default();
    wait_for("three jobs", || {
        (of("light").lines().count() + of("heavy").lines().count() == 3).then_some(())
    });
    assert!(of("light").contains(r#""id":"m""#), "{}", of("light"));
    assert!(of("heavy").contains(r#""id":"i""#) && of("heavy").contains(r#""id":"n""#));
    server.stop();
}

/// By RPC, by a health check and by the command.
#[test]
fn pipelines_are_seen_from_outside() {
    let more = "  schedules: {often: {every: 1s, command: 'true'}}\n\
                status: {address: '127.0.0.1:0'}\nadmin: {listen: '127.0.0.1:0', token: an-admins-token-0}\n";
    let site = site_with(&Site::fixture("jobs.php"), "num_workers: 1", more);
    let server = Server::start(site);
    let mut rpc = Rpc::connect(&server);
    push(&mut rpc, "mail", "later", "ping", 3600);
    push(&mut rpc, "kept", "quitter", "fail", 0);
    wait_for("a dead letter", || {
        (dead(&mut rpc) == ["quitter"]).then_some(())
    });
    let admin = wait_for("the admin listener", || {
        let log = server.log();
        let mut lines = log.lines();
        let line = lines.find(|line| line.contains("the admin listener listens"))?;
        let (_, address) = line.split_once("\"address\":\"")?;
        let address = address.split_once('"')?.0;
        address.parse::<std::net::SocketAddr>().ok()
    });
    let admin = |path: &str| {
        let mut connection = Connection::open(admin);
        let token = "Authorization: Bearer an-admins-token-0\r\n";
        connection.request("GET", path, token);
        connection.response().text()
    };
    let metrics = wait_for("a run of the schedule", || {
        let metrics = admin("/metrics");
        metrics.contains("schedule_runs_total{").then_some(metrics)
    });
    let boards = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/operations/boards");
    let rules = fs::read_to_string(format!("{boards}/rules.yml")).expect("it is there");
    let words = rules.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
    let asked: Vec<_> = words
        .filter(|it| it.starts_with("pronghorn_jobs_"))
        .collect();
    assert!(asked.len() > 2, "{asked:?}");
    for name in asked {
        assert!(
            metrics.contains(&format!("\n{name}{{")),
            "{name} in {metrics}"
        );
    }
    for line in [
        r#"pronghorn_jobs_delayed{pipeline="mail"} 1"#,
        r#"pronghorn_jobs_oldest_wait_seconds{pipeline="mail"} 0"#,
        r#"pronghorn_jobs_dead_letters_kept{pipeline="kept"} 1"#,
        r#"pronghorn_jobs_outcomes_total{pipeline="kept",outcome="given_up"} 1"#,
        r#"pronghorn_jobs_attempt_duration_seconds_count{pipeline="kept"} 1"#,
    ] {
        assert!(
            metrics.contains(&format!("{line}\n")),
            "{line} in {metrics}"
        );
    }
    let shown = admin("/api/v1/jobs");
    let shown: Value = serde_json::from_str(&shown).expect("JSON");
    assert_eq!(shown["pipelines"][1]["delayed"], 1, "{shown}");
    let schedules = admin("/api/v1/schedules");
    assert!(schedules.contains(r#""name":"often""#), "{schedules}");
    let listed = rpc.call("informer.Jobs", r#""jobs""#);
    let mail = r#"{"Pipeline":"mail","Driver":"memory","Queue":"mail","Active":0,"Delayed":1,"Reserved":0,"Ready":true,"Priority":7,"ErrorMessage":""}"#;
    assert!(listed.contains(mail), "{listed}");
    assert_eq!(rpc.call("informer.Jobs", r#""http""#), "null");

    let status = crate::control::listening(&server, "status");
    let address = status.trim_start_matches("http://").parse();
    let answer = Connection::open(address.expect("an address")).get("/jobs");
    let mail = r#"{"pipeline":"mail","priority":7,"ready":true,"queue":"mail","active":0,"delayed":1,"reserved":0,"driver":"memory","error_message":""}"#;
    assert_eq!(answer.status, 200);
    assert!(answer.text().contains(mail), "{}", answer.text());

    let address = format!("rpc.listen={}", crate::control::listening(&server, "rpc"));
    let run = |arguments: &[&str]| {
        let all = [&["jobs"], arguments, &["-o", &address]].concat();
        Server::run_beside(server.site(), &all)
    };
    let table = run(&[]).stdout;
    let mail = "mail      memory    default  consumes  0      -       1        0         0     0";
    assert!(table.contains(mail), "{table}");
    let kept = "kept      embedded  default  consumes  0      -       0        0         1     1";
    assert!(table.contains(kept), "{table}");
    assert!(run(&["dead"]).stdout.contains("quitter  kept      fail  1"));
    let shown = run(&["show", "quitter"]).stdout;
    assert!(shown.contains("reason    failed on purpose"), "{shown}");
    let json = run(&["show", "quitter", "--json"]).stdout;
    let json: Value = serde_json::from_str(&json).expect("it is JSON");
    assert_eq!(json["payload"], "8");
    assert_eq!(
        run(&["retry", "quitter"]).stdout,
        "1 dead letter run again\n"
    );
    wait_until_ran(&server, 2);
    wait_for("a dead letter", || {
        (dead(&mut rpc) == ["quitter"]).then_some(())
    });
    assert_eq!(
        run(&["discard", "--pipeline", "kept"]).stdout,
        "1 dead letter discarded\n"
    );
    run(&["discard", "quitter"]).assert_refused(&["quitter: there is no such dead letter"]);
    let shown = run(&["show", "later"]).stdout;
    assert!(shown.contains("state     delayed\n"), "{shown}");
    assert!(shown.contains("due       in 59m "), "{shown}");
    let missing = Server::run_beside(server.site(), &["jobs", "-c", "none.yaml"]);
    missing.assert_refused(&["there is no file", "none.yaml"]);
    let paused = run(&["pause", "mail", "--json"]).stdout;
    assert!(paused.contains(r#""mail""#), "{paused}");
    push(&mut rpc, "mail", "waits", "ping", 0);
    let row = wait_for("a job that waits", || {
        let rows: Value = serde_json::from_str(&run(&["--json"]).stdout).expect("it is JSON");
        let rows = rows["pipelines"].as_array().expect("a list").clone();
        rows.into_iter()
            .find(|row| row["pipeline"] == "mail" && row["ready"] == 1)
    });
    assert!(row["oldest"].as_f64().is_some_and(|it| it < 60.0), "{row}");
    assert!(run(&[]).stdout.contains("paused    1      "));
    run(&["resume", "mail"]);
    let cancelled = run(&["cancel", "later", "--json"]).stdout;
    let cancelled: Value = serde_json::from_str(&cancelled).expect("it is JSON");
    assert_eq!(cancelled["done"], serde_json::json!(["later"]));
    assert_eq!(cancelled["removed"], 1);
    run(&["cancel", "later"]).assert_refused(&["later: no job waits or runs with this ID"]);
    run(&["pause", "mail,kept"]);
    push(&mut rpc, "mail", "later", "ping", 3600);
    let cleared = run(&["--json", "clear", "mail"]).stdout;
    let cleared: Value = serde_json::from_str(&cleared).expect("it is JSON");
    assert!(cleared["removed"].as_u64() >= Some(1), "{cleared}");
    let meant = "no such pipeline, requested: mial; did you mean `mail`? There are: `kept`, `mail`";
    for command in [
        &["tail", "mial"][..],
        &["dead", "mial"],
        &["discard", "--pipeline", "mial"],
        &["pause", "mial"],
    ] {
        run(command).assert_refused(&[meant]);
    }
    run(&["daed"]).assert_refused(&["`jobs` can't do `daed`; did you mean `dead`?"]);
    run(&["nonsense"]).assert_refused(&["`jobs` can't do `nonsense`", "hint: "]);
    server.stop();
}

#[test]
fn a_schedule_pushes_jobs_and_is_seen_run_and_paused() {
    let more = "  schedules:\n    \
                  tick: {every: 1s, job: ping, pipeline: kept, payload: tock}\n    \
                  never: {cron: '0 0 30 2 *', job: ping, pipeline: mail, time_zone: Europe/Berlin}\n";
    let site = site_with(&Site::fixture("jobs.php"), "num_workers: 1", more);
    let server = Server::start(site);
    server.logged(&["the schedule is never due", "\"schedule\":\"never\""]);
    let checked = Server::run_beside(server.site(), &["check"]);
    let said = "`jobs.schedules.never.cron` is never due: no date fits `0 0 30 2 * Europe/Berlin`";
    assert!(checked.stdout.contains(said), "{}", checked.stdout);
    assert!(
        !checked.stdout.contains("schedules.tick"),
        "{}",
        checked.stdout
    );
    let ran = wait_until_ran(&server, 2);
    assert!(
        ran.contains(r#""name":"ping","pipeline":"kept""#) && ran.contains(" tock"),
        "{ran}"
    );
    let address = format!("rpc.listen={}", crate::control::listening(&server, "rpc"));
    let run = |arguments: &[&str]| {
        let all = [&["schedules"], arguments, &["-o", &address]].concat();
        Server::run_beside(server.site(), &all)
    };
    let table = wait_for("the end of a run", || {
        let table = run(&[]).stdout;
        table.contains("done").then_some(table)
    });
    for said in [
        "never     0 0 30 2 * Europe/Berlin  never",
        "tick      every 1s",
        "done",
    ] {
        assert!(table.contains(said), "{said} in {table}");
    }
    run(&["pause", "tick"]);
    assert!(run(&[]).stdout.contains("paused"));
    run(&["run", "never"]);
    wait_for("a run by hand", || {
        self::ran(&server)
            .contains(r#""pipeline":"mail""#)
            .then_some(())
    });
    run(&["run", "none"]).assert_refused(&["there is no schedule `none`"]);
    let json: Value = serde_json::from_str(&run(&["--json"]).stdout).expect("it is JSON");
    assert_eq!(json["schedules"][1]["runs"][0]["outcome"], "done");
    server.stop();
}

#[test]
fn somebody_who_looks_on_sees_how_jobs_end() {
    let site = site_of(&Site::fixture("jobs.php"), "num_workers: 2");
    let server = Server::start(site);
    let mut rpc = Rpc::connect(&server);
    push(&mut rpc, "mail", "unseen", "ping", 0);
    wait_until_ran(&server, 1);
    // Its end is known a moment later.
    wait_until_stat(&mut rpc, r#""driver":"memory","queue":"mail","ready":true"#);
    let nothing = r#"{"endings":[],"number":0}"#;
    assert_eq!(rpc.call("jobs.Recent", "{}"), nothing);
    for (id, name) in [("one", "ping"), ("two", "fail")] {
        push(&mut rpc, "kept", id, name, 0);
        wait_until_ran(&server, if id == "one" { 2 } else { 3 });
    }
    let seen = wait_for("both", || {
        let seen = rpc.call("jobs.Recent", "{}");
        seen.contains(r#""number":2}"#).then_some(seen)
    });
    let seen: Value = serde_json::from_str(&seen).expect("it is JSON");
    let (one, two) = (&seen["endings"][0], &seen["endings"][1]);
    assert_eq!(
        (&one["id"], &one["outcome"]),
        (&"one".into(), &"done".into())
    );
    assert_eq!(
        (&two["outcome"], &two["why"], &two["attempt"]),
        (&"given up".into(), &"failed on purpose".into(), &1.into())
    );
    let all = rpc.call("jobs.Overview", "{}");
    assert!(all.contains(r#""consumers":2"#), "{all}");
    server.stop();
}

#[test]
fn a_schedule_runs_a_command_and_shows_what_it_said() {
    let more = "  schedules:\n    \
                  backup: {cron: '0 0 29 2 *', command: [sh, -c, 'echo $$RAN; echo no room >&2; exit 7']}\n    \
                  detached: {cron: '0 0 29 2 *', command: [sh, -c, 'setsid sh -c \"echo it has left; exec sleep 1000\" & sleep 1000']}\n";
    let site = site_with(&Site::fixture("jobs.php"), "num_workers: 1", more);
    let server = Server::start(site);
    let address = format!("rpc.listen={}", crate::control::listening(&server, "rpc"));
    let run = |arguments: &[&str]| {
        let all = [&["schedules"], arguments, &["-o", &address]].concat();
        Server::run_beside(server.site(), &all)
    };
    let shown = run(&["show", "backup"]);
    assert_eq!(shown.stdout, "it has not run yet\n", "{}", shown.stderr);
    run(&["run", "backup"]);
    let shown = wait_for("the end of the command", || {
        let shown = run(&["show", "backup"]).stdout;
        shown.contains("failed").then_some(shown)
    });
    let ran = server.site().path("ran").display().to_string();
    for said in ["failed: it ended with exit code 7", "    no room\n", &ran] {
        assert!(shown.contains(said), "{said} in {shown}");
    }
    run(&["show", "none"]).assert_refused(&["there is no schedule `none`"]);
    run(&["show", "bakcup"]).assert_refused(&["did you mean `backup`?"]);
    server.logged(&["no room", "backup"]);
    // What has left its session ends with the server, as `stop` looks.
    let asked = run(&["run", "detached"]).stderr;
    assert!(asked.starts_with("detached runs as detached-"), "{asked}");
    wait_for("the detached process", || {
        server.log().contains("it has left").then_some(())
    });
    server.stop();
}

/// Its members are of two pipelines, and one of them fails; a kill of the server in the middle does
/// not matter.
#[test]
fn a_batch_ends_with_its_last_job_and_a_job_says_how_far_it_is() {
    let site = site_of(&Site::fixture("jobs.php"), "num_workers: 1");
    let server = Server::start(site);
    let mut rpc = Rpc::connect(&server);
    let of = |id: &str, name: &str, pipeline: &str| {
        let options = format!(r#"{{"pipeline":"{pipeline}"}}"#);
        format!(r#"{{"job":"{name}","id":"{id}","payload":"OTAw","options":{options}}}"#)
    };
    let slow = r#"{"job":{"job":"halfway","id":"h","payload":"MzAwMA==","headers":{"pronghorn-result":{"value":["1"]}},"options":{"pipeline":"kept"}}}"#;
    assert_eq!(rpc.call("jobs.Push", slow), "{}");
    let halfway = r#"{"state":"waiting","progress":0.5,"progress_text":"half of it"}"#;
    wait_for("progress", || {
        let said = rpc.call("jobs.Await", r#"{"id":"h"}"#);
        (said == halfway).then_some(())
    });
    let shown: Value = serde_json::from_str(&rpc.call("jobs.Show", r#"{"id":"h"}"#)).expect("JSON");
    assert_eq!(
        (&shown["state"], &shown["progress"]),
        (&"running".into(), &0.5.into())
    );
    let address = format!("rpc.listen={}", crate::control::listening(&server, "rpc"));
    let arguments = ["jobs", "show", "h", "-o", &address];
    let shown = Server::run_beside(server.site(), &arguments).stdout;
    assert!(shown.contains("progress  50 % half of it\n"), "{shown}");
    let ended = rpc.call("jobs.Await", r#"{"id":"h","timeout_ms":30000}"#);
    assert_eq!(ended, r#"{"state":"done","result":"[null,null]"}"#);

    let jobs = [
        of("a", "fail", "kept"),
        of("b", "slow", "kept"),
        of("c", "ping", "kept"),
    ];
    let then = of("last", "ping", "kept");
    let batch = format!(r#"{{"jobs":[{}],"then":{then}}}"#, jobs.join(","));
    assert_eq!(rpc.call("jobs.Batch", &batch), "{}");
    wait_until_ran(&server, 3);
    let server = Server::start(server.killed());
    let ran = wait_for("the last one", || {
        let ran = ran(&server);
        ran.contains(r#""id":"last""#).then_some(ran)
    });
    let last = ran.lines().last().expect("a line");
    let headers = r#""headers":{"batch-failed":["1"],"batch-jobs":["3"]}"#;
    assert!(last.contains(headers), "{ran}");
    server.stop();
}

#[test]
fn a_cancelled_job_does_not_come_back_after_a_restart() {
    let site = site_of(&Site::fixture("jobs.php"), "num_workers: 1");
    let server = Server::start(site);
    let mut rpc = Rpc::connect(&server);
    push(&mut rpc, "kept", "later", "ping", 3600);
    push(&mut rpc, "kept", "other", "ping", 3600);
    assert_eq!(
        rpc.call("jobs.Cancel", r#"{"ids":["later"]}"#),
        r#"{"done":["later"],"removed":1,"running":0}"#
    );
    let server = Server::start(server.killed());
    let mut rpc = Rpc::connect(&server);
    wait_until_stat(&mut rpc, r#""queue":"kept","delayed":1"#);
    let left = rpc.call("jobs.Export", r#"{"pipeline":"kept"}"#);
    assert!(left.contains(r#""id":"other""#), "{left}");
    server.stop();
}

#[test]
fn jobs_of_a_pipeline_that_is_gone_are_told_and_can_be_moved() {
    let (server, mut rpc) = start(1);
    push(&mut rpc, "kept", "stays", "ping", 3600);
    let site = server.killed();
    let file = site.path(".rr.yaml");
    let text = fs::read_to_string(&file).expect("it is there");
    let text = text.replace("kept", "kpet").replace(", kpet]", "]");
    fs::write(&file, text).expect("it can be written");
    let server = Server::start(site);
    let log = server.log();
    let told = log
        .lines()
        .find(|it| it.contains("not in the configuration"));
    let told = told.expect("a warning");
    assert!(
        told.contains(r#""pipeline":"kept""#) && told.contains(r#""jobs":1"#),
        "{told}"
    );
    let unconsumed = log
        .lines()
        .find(|it| it.contains("`jobs.consume` lacks it"));
    let is_told = unconsumed.is_some_and(|it| it.contains("`jobs.pipelines.kpet`"));
    assert!(is_told, "{log}");
    let address = format!("rpc.listen={}", crate::control::listening(&server, "rpc"));
    let run = |arguments: &[&str]| {
        let all = [&["jobs"], arguments, &["-o", &address]].concat();
        Server::run_beside(server.site(), &all).stdout
    };
    let table = run(&[]);
    assert!(table.contains("not configured"), "{table}");
    assert_eq!(run(&["export", "kept"]).lines().count(), 1);
    assert_eq!(
        run(&["clear", "kept", "--json"])
            .trim()
            .replace([' ', '\n'], ""),
        r#"{"removed":1}"#
    );
    assert!(!run(&[]).contains("not configured"));
    server.stop();
}

/// Beginning with the store and going over to a broker is what the guide advises.
#[test]
fn jobs_of_a_pipeline_that_has_another_driver_now_are_told_and_can_be_moved() {
    let redis = Engine::redis(&[]);
    let in_redis = format!(
        "kept: {{driver: redis, config: {{addr: 'redis://127.0.0.1:{}'}}",
        redis.port()
    );
    for driver in ["kept: {driver: memory", &in_redis] {
        let (server, mut rpc) = start(1);
        for id in ["one", "two", "three"] {
            push(&mut rpc, "kept", id, "ping", 3600);
        }
        let site = server.killed();
        let file = site.path(".rr.yaml");
        let text = fs::read_to_string(&file).expect("it is there");
        fs::write(&file, text.replace("kept: {driver: embedded", driver)).expect("it is written");
        let server = Server::start(site);
        let mut rpc = Rpc::connect(&server);
        let log = server.log();
        let told = log.lines().find(|it| it.contains("had another driver"));
        let told = told.expect("a warning");
        assert!(told.contains(r#""pipeline":"kept""#), "{told}");
        assert!(told.contains(r#""jobs":3"#), "{told}");
        push(&mut rpc, "kept", "new", "ping", 3600);
        let address = format!("rpc.listen={}", crate::control::listening(&server, "rpc"));
        let run = |arguments: &[&str]| {
            let all = [&["jobs"], arguments, &["-o", &address]].concat();
            Server::run_beside(server.site(), &all)
        };
        assert!(run(&["list", "kept"]).stdout.contains("three"));
        assert!(run(&["show", "one"]).stdout.contains("one"));
        assert_eq!(
            rpc.call("jobs.Cancel", r#"{"ids":["one"]}"#),
            r#"{"done":["one"],"removed":1,"running":0}"#
        );
        let exported = run(&["export", "kept"]).stdout;
        assert_eq!(exported.lines().count(), 3, "{exported}");
        let cleared = run(&["clear", "kept", "--json"]).stdout;
        let in_store = if driver.contains("redis") { "2" } else { "3" };
        assert!(cleared.contains(in_store), "{cleared}");
        assert!(!run(&[]).stdout.contains("not configured"));
        import(&server, &address, &exported, &[]);
        wait_until_stat(&mut rpc, r#""queue":"kept","delayed":3"#);
        server.stop();
    }
}

fn import(server: &Server, address: &str, jobs: &str, options: &[&str]) -> Output {
    let file = server.site().path("lines");
    fs::write(&file, jobs).expect("it can be written");
    Command::new(pronghorn_testkit::binary())
        .args(["jobs", "import", "-o", address])
        .args(options)
        .current_dir(server.site().folder())
        .stdin(fs::File::open(&file).expect("it is there"))
        .output()
        .expect("it runs")
}

#[test]
fn jobs_move_as_lines_of_json() {
    let (server, mut rpc) = start(1);
    assert_eq!(
        rpc.call("jobs.Pause", r#"{"pipelines":["mail","kept"]}"#),
        "{}"
    );
    for number in 0..3 {
        push(
            &mut rpc,
            "kept",
            &format!("n{number}"),
            "ping",
            number * 100,
        );
    }
    let address = format!("rpc.listen={}", crate::control::listening(&server, "rpc"));
    let exported = Server::run_beside(server.site(), &["jobs", "export", "kept", "-o", &address]);
    assert_eq!(exported.stdout.lines().count(), 3, "{}", exported.stderr);
    let line = serde_json::json!({
        "job": "ping", "id": "n0", "payload": "OA==", "headers": {},
        "options": {"pipeline": "kept", "priority": 10, "delay": 0, "auto_ack": false},
    });
    let mut lines = exported.stdout.lines();
    let is_it = |it: &str| serde_json::from_str(it).is_ok_and(|it: Value| it == line);
    assert!(lines.any(is_it), "{}", exported.stdout);
    let moved = exported.stdout.replace(r#""kept""#, r#""mail""#);
    let imported = import(&server, &address, &moved, &[]);
    let said = String::from_utf8_lossy(&imported.stderr);
    assert!(said.ends_with("3 jobs pushed\n"), "{said}");
    wait_until_stat(&mut rpc, r#""queue":"mail","active":1,"delayed":2"#);
    let unknown = Server::run_beside(server.site(), &["jobs", "export", "none", "-o", &address]);
    unknown.assert_refused(&["no such pipeline, requested: none; there are: `kept`, `mail`"]);
    let again = import(&server, &address, &moved, &["--json"]);
    let said: Value = serde_json::from_slice(&again.stdout).expect("it is JSON");
    assert_eq!(
        (&said["pushed"], &said["already_there"]),
        (&0.into(), &3.into())
    );
    server.stop();
}

#[test]
fn a_job_that_takes_longer_than_its_deadline_has_failed() {
    for transport in ["relay", "ring"] {
        let pool = format!("num_workers: 1, transport: {transport}");
        let server = Server::start(site_of(&Site::fixture("jobs.php"), &pool));
        let mut rpc = Rpc::connect(&server);
        let headers = r#""headers":{"pronghorn-deadline":{"value":["0.2"]}},"options""#;
        let slow = push_request("mail", "late", "slow", 0).replace("OA==", "NjAwMDA="); // a minute
        let slow = slow.replace(r#""options""#, headers);
        assert_eq!(rpc.call("jobs.Push", &slow), "{}");
        wait_for("a dead letter", || {
            (dead(&mut rpc) == ["late"]).then_some(())
        });
        // The letter is there before its pipeline has forgotten the job.
        let letter = wait_for("the pipeline to forget the job", || {
            let shown = rpc.call("jobs.Show", r#"{"id":"late"}"#);
            shown.contains(r#""state":"dead""#).then_some(shown)
        });
        assert!(
            letter.contains(r#""reason":"the deadline of 200ms passed""#),
            "{letter}"
        );
        assert_eq!(ran(&server).lines().count(), 3);
        // The letter is there before the record of the attempt that led to it.
        let told = wait_for("a record of each attempt", || {
            let told = complaints(&server, "late");
            (told.len() == 3).then_some(told)
        });
        for (attempt, (message, fields)) in (1..).zip(&told) {
            let said = format!("attempt {attempt} of 3 failed: the deadline of 200ms passed; ");
            assert!(message.starts_with(&said), "{message}");
            let of = (&fields["pipeline"], &fields["job"], &fields["pool"]);
            assert_eq!(of, (&"mail".into(), &"slow".into(), &"default".into()));
            assert!(fields["pid"].is_u64(), "{fields}");
        }
        let wrong = slow.replace("0.2", "soon");
        let refused = rpc.call("jobs.Push", &wrong);
        assert!(
            refused.contains("the header pronghorn-deadline is `soon`"),
            "{refused}"
        );
        push(&mut rpc, "mail", "next", "ping", 0);
        wait_until_ran(&server, 4);
        server.stop();
    }
}

/// Records at warn and at error that name this: each with its fields.
fn complaints(server: &Server, of: &str) -> Vec<(String, Value)> {
    let log = server.log();
    let records = log.lines().filter(|line| line.contains(of));
    let records = records.filter_map(|line| {
        let columns: Vec<_> = line.split('\t').collect();
        let ["WARN" | "ERROR", _, message, fields] = columns.get(1..)? else {
            return None;
        };
        let fields = serde_json::from_str(fields).expect("they are JSON");
        Some(((*message).to_owned(), fields))
    });
    records.collect()
}

#[test]
fn a_job_whose_worker_dies_makes_one_record_for_each_attempt() {
    for transport in ["relay", "ring"] {
        let pool = format!("num_workers: 1, transport: {transport}");
        let server = Server::start(site_of(&Site::fixture("jobs.php"), &pool));
        let mut rpc = Rpc::connect(&server);
        push(&mut rpc, "mail", "killer", "die", 0);
        wait_for("a dead letter", || {
            (dead(&mut rpc) == ["killer"]).then_some(())
        });
        let told = wait_for("three records", || {
            let told = complaints(&server, "killer");
            (told.len() >= 3).then_some(told)
        });
        let said: Vec<_> = told.iter().map(|(message, _)| &**message).collect();
        let expected = [
            "attempt 1 of 3 failed: the worker ended with signal 9 (SIGKILL); again at once",
            "attempt 2 of 3 failed: the worker ended with signal 9 (SIGKILL); again at once",
            "attempt 3 of 3 failed: the worker ended with signal 9 (SIGKILL); the job is a dead letter now",
        ];
        assert_eq!(said, expected, "{transport}");
        server.stop();
    }
}

/// The short form of that part of `make soak`.
#[test]
fn kills_of_workers_of_the_server_and_of_a_broker_lose_no_job() {
    let counts = pronghorn_e2e::jobs::kill_at_random(1000, 40);
    assert_eq!(counts.lost, Vec::<String>::new(), "{counts:?}");
    // Workers that die young come again later and later, so not each kill finds one.
    assert!(
        counts.pushed > 500 && counts.worker_kills >= 4 && counts.broker_kills > 0,
        "{counts:?}"
    );
}

/// Each has three attempts: thirty workers die one after the other.
#[test]
fn jobs_that_kill_their_workers_leave_the_others_a_pool() {
    let site = site_of(&Site::fixture("jobs.php"), "num_workers: 2");
    let server = Server::start(site);
    let mut rpc = Rpc::connect(&server);
    for number in 0..10 {
        push(&mut rpc, "mail", &format!("deadly-{number}"), "die", 0);
        push(&mut rpc, "mail", &format!("good-{number}"), "ping", 0);
    }
    wait_until_ran(&server, 40);
    wait_until_stat(&mut rpc, r#""driver":"memory","queue":"mail","ready":true"#);
    assert_eq!(dead(&mut rpc).len(), 10);
    assert!(!server.log().contains("has had no worker"));
    server.stop();
}

/// Over pipes and over the ring, where a long answer comes in pieces.
#[test]
fn a_job_is_done_though_its_result_can_not_be_kept() {
    for transport in ["relay", "ring"] {
        let pool = format!("num_workers: 1, transport: {transport}");
        let server = Server::start(site_of(&Site::fixture("jobs.php"), &pool));
        let mut rpc = Rpc::connect(&server);
        let waits = r#"{"value":["1"]}"#;
        // How many bytes, in base64.
        for (id, name, payload, why) in [
            ("a", "long", "MTAwMDAwMA==", None),
            (
                "b",
                "long",
                "MTEwMDAwMA==",
                Some("1100002 bytes; at most 1048576 are kept"),
            ),
            (
                "c",
                "long",
                "MzAwMDAwMA==",
                Some("3000002 bytes; at most 1048576 are kept"),
            ),
            (
                "d",
                "long",
                "NDAwMDAwMDA=",
                Some("40000002 bytes; at most 1048576 are kept"),
            ),
            (
                "e",
                "nan",
                "MQ==",
                Some("can't be written as JSON: Inf and NaN"),
            ),
        ] {
            let push = format!(
                r#"{{"job":{{"job":"{name}","id":"{id}","payload":"{payload}","headers":{{"pronghorn-result":{waits}}},"options":{{"pipeline":"kept"}}}}}}"#
            );
            assert_eq!(rpc.call("jobs.Push", &push), "{}");
            let asked = format!(r#"{{"id":"{id}","timeout_ms":30000}}"#);
            let ended = rpc.call("jobs.Await", &asked);
            match why {
                None => assert!(ended.starts_with(r#"{"state":"done""#), "{id}"),
                Some(why) => {
                    assert!(ended.contains("the job is done, but "), "{ended}");
                    assert!(ended.contains(why), "{ended}");
                    server.logged(&[why]);
                }
            }
        }
        wait_until_stat(&mut rpc, r#""queue":"kept","ready":true"#);
        assert_eq!(ran(&server).lines().count(), 5, "each of them once");
        assert_eq!(dead(&mut rpc), Vec::<String>::new());
        server.stop();
    }
}

#[test]
fn who_waits_for_a_job_holds_up_no_stop() {
    let server = Server::start(site_of(&Site::fixture("jobs.php"), "num_workers: 1"));
    let mut rpc = Rpc::connect(&server);
    push(&mut rpc, "kept", "later", "ping", 600);
    let asked = r#"{"id":"later","timeout_ms":60000}"#;
    rpc.send(Flags::JSON, "jobs.Await", asked.as_bytes());
    // Calls of a connection begin in their order.
    wait_until_stat(&mut rpc, r#""delayed":1"#);
    let ((), took) = time(|| {
        server.signal(Signal::TERM);
        let (_, said) = rpc.receive("jobs.Await");
        assert_eq!(String::from_utf8_lossy(&said), r#"{"state":"stopping"}"#);
        server.stop();
    });
    assert!(took < Duration::from_secs(10), "{took:?}");
}

/// The example of its README, and what waits for a job that does not come.
#[test]
fn the_package_pushes_and_waits_for_results() {
    let more = "    welcome: {driver: memory}\n";
    let site = site_with(&Site::fixture("jobs.php"), "num_workers: 2", more);
    let server = Server::start(site);
    let address = crate::control::listening(&server, "rpc");
    let package = concat!(env!("CARGO_MANIFEST_DIR"), "/../php/jobs");
    let readme = fs::read_to_string(format!("{package}/README.md")).expect("it is there");
    let example = readme
        .split("```php example\n")
        .nth(1)
        .expect("there is one");
    let example = example.split("```").next().expect("it ends");
    let loader = "require __DIR__ . '/vendor/autoload.php';";
    assert!(example.contains(loader));
    let example = example.replace(loader, &format!("require '{package}/autoload.php';"));
    let script = server.site().path("example.php");
    fs::write(&script, example).expect("it can be written");
    let output = php_command("php")
        .arg(&script)
        .env("RR_RPC", &address)
        .output()
        .expect("PHP runs");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "6\n");
    let mut rpc = Rpc::connect(&server);
    wait_until_stat(&mut rpc, r#""delayed":1"#);
    let ran = wait_until_ran(&server, 4);
    assert!(ran.contains(r#"{"to":"ada@example.com"}"#), "{ran}");

    let code = format!(
        "require '{package}/autoload.php';
        $queue = Pronghorn\\Jobs\\Queue::connect('{address}', 'mail');
        $keep = new Pronghorn\\Jobs\\Options(result: true, unique: 'k');
        try {{ $queue->await($queue->push('fail', '', $keep)); }}
        catch (Pronghorn\\Jobs\\JobFailed $e) {{ echo $e->getMessage(), \"\\n\"; }}
        $id = $queue->push('slow', '300', $keep);
        var_dump($id === $queue->push('slow', '300', $keep));
        try {{ $queue->await($id, 0.01); }} catch (Pronghorn\\Jobs\\NotDone) {{ echo \"not yet\\n\"; }}
        var_dump($queue->await($id));
        $keep = new Pronghorn\\Jobs\\Options(result: true);
        try {{ $queue->await($queue->push('throw', '', $keep)); }}
        catch (Pronghorn\\Jobs\\JobFailed $e) {{
            echo $e->getMessage(), strpos($e->remoteTrace(), 'jobs.php:') ? ', with a trace' : '', \"\\n\";
        }}
        try {{ $queue->await('nobody', 1000); }}
        catch (Pronghorn\\Jobs\\NotDone $e) {{ echo substr($e->getMessage(), 0, 27), \"\\n\"; }}
        try {{ $queue->push('x', '', new Pronghorn\\Jobs\\Options(pipeline: 'none')); }}
        catch (Pronghorn\\RpcError $e) {{ echo $e->getMessage(), \"\\n\"; }}"
    );
    let output = php_command("php").args(["-r", &code]).output();
    let output = output.expect("PHP runs");
    let expected = "failed on purpose\nbool(true)\nnot yet\nNULL\n\
                    thrown on purpose, with a trace\nJob nobody is not there: it\n\
                    no such pipeline, requested: none; there are: `kept`, `mail`, `welcome`\n";
    assert_eq!(String::from_utf8_lossy(&output.stdout), expected);
    server.stop();
}

/// Workers that have a call push over its connection: there is no section `rpc`, so no socket. With
/// many requests at a time some lie ahead of the worker while it waits for an answer.
#[test]
fn workers_push_without_a_socket() {
    for transport in ["relay", "ring"] {
        let site = Site::new();
        let ran = site.path("ran");
        let site = site.config(&format!(
            "version: '3'\n\
             server: {{env: {{RAN: '{}'}}}}\n\
             http:\n  address: 127.0.0.1:0\n  pool: {{num_workers: 1, transport: {transport}, command: php {}}}\n\
             jobs:\n  pool: {{num_workers: 1, command: php {}}}\n  consume: [mail]\n  \
             pipelines: {{mail: {{driver: memory}}}}\n",
            ran.display(),
            Site::fixture("pushes.php").display(),
            Site::fixture("jobs.php").display(),
        ));
        let server = Server::start(site);
        assert_eq!(server.get("/one?id=first").text(), "first");
        assert_eq!(server.get("/batch").text(), "100");
        assert_eq!(server.get("/stream?id=s").text(), "a piece, s");
        assert_eq!(server.get("/deferred").text(), "later");
        assert_eq!(server.get("/list").text(), r#"{"pipelines":["mail"]}"#);
        let unknown = server.get("/unknown").text();
        let said = "Pronghorn\\RpcError: no such pipeline, requested: nowhere; there are: `mail`";
        assert_eq!(unknown, said);
        let large = server.get("/large").text();
        assert!(
            large.starts_with("Pronghorn\\ConnectionLost: No RPC server"),
            "{large}"
        );
        let clients = 8;
        let requests = 50;
        std::thread::scope(|scope| {
            for client in 0..clients {
                let server = &server;
                scope.spawn(move || {
                    let mut connection = server.connect();
                    for request in 0..requests {
                        let id = format!("{client}-{request}");
                        assert_eq!(connection.get(&format!("/one?id={id}")).text(), id);
                    }
                });
            }
        });
        wait_until_ran(&server, 1 + 100 + 1 + 1 + clients * requests);
        assert_eq!(server.workers().len(), 2, "{}", server.log());
        server.stop();
    }
}

#[test]
fn php_pushes_by_the_package_for_rpc() {
    let (server, mut rpc) = start(1);
    let address = crate::control::listening(&server, "rpc");
    let code = format!(
        "require '{}'; Pronghorn\\Rpc::connect('{address}')->call('jobs.Push', ['job' => [
            'job' => 'ping', 'id' => 'from-php', 'payload' => base64_encode(\"a\\0b\"),
            'headers' => ['x' => ['value' => ['1', '2']]], 'options' => ['pipeline' => 'mail'],
        ]]);",
        concat!(env!("CARGO_MANIFEST_DIR"), "/../php/goridge/autoload.php"),
    );
    let php = php_command("php").args(["-r", &code]).output();
    let php = php.expect("PHP runs");
    assert!(
        php.status.success(),
        "{}",
        String::from_utf8_lossy(&php.stdout)
    );
    let line = wait_until_ran(&server, 1);
    assert!(
        line.contains(r#""headers":{"x":["1","2"]}"#) && line.ends_with("a\0b\n"),
        "{line:?}"
    );
    wait_until_stat(&mut rpc, r#""queue":"mail","ready":true"#);
    server.stop();
}

#[test]
fn each_answer_of_a_worker_has_its_effect() {
    let (server, mut rpc) = start(1);
    for pipeline in [("mail", "memory"), ("kept", "embedded")] {
        for (name, runs, dies) in [
            ("fail", 1, true),
            ("nack", 1, true),
            ("requeue", 2, false),
            ("throw", 3, true),
            ("die", 3, true),
        ] {
            runs_so_often_in(&server, &mut rpc, pipeline, name, runs);
            let asked = format!(r#"{{"pipeline":"{}"}}"#, pipeline.0);
            let letters = rpc.call("jobs.DeadLetters", &asked);
            let is_there = letters.contains(&format!(r#""id":"{name}""#));
            assert_eq!(is_there, dies, "{name} of {pipeline:?}: {letters}");
        }
    }
    let log = server.log();
    for said in [
        "failed on purpose",
        "attempt 1 of 3 failed: the worker reported an error: thrown on purpose; again at once",
        "attempt 3 of 3 failed: the worker reported an error: thrown on purpose; the job is a dead letter now",
    ] {
        assert!(log.contains(said), "{said} in {log}");
    }
    let requeued = ran(&server);
    assert!(
        requeued.contains(r#""headers":{"tried":["once"]}"#),
        "{requeued}"
    );
    server.stop();
}

#[test]
fn a_paused_pipeline_keeps_its_jobs_and_a_delayed_job_comes_in_time() {
    let (server, mut rpc) = start(1);
    let mail = r#"{"pipelines":["mail"]}"#;
    assert_eq!(rpc.call("jobs.Pause", mail), "{}");
    push(&mut rpc, "mail", "waits", "ping", 0);
    let pushed = SystemTime::now();
    push(&mut rpc, "kept", "later", "ping", 1);
    assert!(wait_until_ran(&server, 1).contains(r#""id":"later""#));
    let took = pushed.elapsed().expect("time goes on");
    assert!(took > Duration::from_millis(990), "{took:?}");
    assert_eq!(rpc.call("jobs.Resume", mail), "{}");
    assert!(wait_until_ran(&server, 2).contains(r#""id":"waits""#));
    server.stop();
}

#[test]
fn jobs_run_on_as_many_workers_as_there_are_and_no_more() {
    let (server, mut rpc) = start(3);
    let mut batch = String::new();
    for number in 0..9 {
        let separator = if number == 0 { "" } else { "," };
        // 200 ms each.
        write!(
            batch,
            r#"{separator}{{"job":"slow","id":"{number}","payload":"MjAw","options":{{"pipeline":"mail"}}}}"#
        )
        .expect("a string takes all");
    }
    let started = SystemTime::now();
    assert_eq!(
        rpc.call("jobs.PushBatch", &format!(r#"{{"jobs":[{batch}]}}"#)),
        "{}"
    );
    wait_until_stat(&mut rpc, r#""active":6,"reserved":3,"#);
    wait_until_stat(&mut rpc, r#""queue":"mail","ready":true"#);
    let took = started.elapsed().expect("time goes on");
    assert!(took > Duration::from_millis(590), "{took:?}");
    assert_eq!(ran(&server).lines().count(), 9);
    server.stop();
}

#[test]
fn a_kill_of_the_server_loses_no_job_that_it_answered() {
    let (server, mut rpc) = start(1);
    push(&mut rpc, "kept", "done", "ping", 0);
    wait_until_ran(&server, 1);
    wait_until_stat(&mut rpc, r#""queue":"kept","ready":true"#);
    let kept = r#"{"pipelines":["kept"]}"#;
    assert_eq!(rpc.call("jobs.Pause", kept), "{}");
    for number in 0..5 {
        push(&mut rpc, "kept", &format!("left-{number}"), "ping", 0);
    }
    let site = server.killed();
    let server = Server::start(site);
    let ran = wait_until_ran(&server, 6);
    for number in 0..5 {
        assert!(ran.contains(&format!(r#""id":"left-{number}""#)), "{ran}");
    }
    assert_eq!(ran.matches(r#""id":"done""#).count(), 1, "{ran}");
    server.stop();
}

#[test]
fn an_upgrade_hands_the_store_on_when_its_jobs_have_run() {
    let (mut server, mut rpc) = start(1);
    push(&mut rpc, "kept", "slow", "slow", 0);
    wait_until_ran(&server, 1);
    for number in 0..3 {
        push(&mut rpc, "kept", &format!("n{number}"), "slow", 0);
    }
    server.upgrade();
    let mut rpc = Rpc::connect(&server);
    push(&mut rpc, "kept", "after", "ping", 0);
    wait_until_stat(&mut rpc, r#""queue":"kept","ready":true"#);
    let ran = wait_until_ran(&server, 5);
    assert_eq!(ran.lines().count(), 5, "each once: {ran}");
    server.stop();
}

#[test]
fn an_upgrade_warns_of_a_pause_that_it_ends() {
    let (mut server, mut rpc) = start(1);
    assert_eq!(rpc.call("jobs.Pause", r#"{"pipelines":["kept"]}"#), "{}");
    push(&mut rpc, "kept", "waits", "ping", 0);
    server.upgrade();
    wait_until_ran(&server, 1);
    let log = server.log();
    let mut warnings = log
        .lines()
        .filter(|it| it.contains("was paused, and the next"));
    let warning = warnings.next().expect("a warning");
    assert!(warning.contains(r#""pipeline":"kept""#), "{warning}");
    assert_eq!(warnings.next(), None, "{log}");
    server.stop();
}

/// The process before has a job that takes long. Nobody waits for it, and its end counts.
#[test]
fn an_upgrade_hands_the_store_over_while_a_job_runs() {
    let site = site_with(
        &Site::fixture("foreign/jobs.php"),
        "num_workers: 1",
        "kv: {stored: {driver: embedded}}\n",
    );
    let mut server = Server::start(site);
    let mut rpc = Rpc::connect(&server);
    // It runs until there is a file `8`.
    push(&mut rpc, "kept", "long", "until", 0);
    wait_until_ran(&server, 1);
    push(&mut rpc, "kept", "waits", "ping", 0);
    push(&mut rpc, "mail", "in-memory", "ping", 0);
    server.ask_for_upgrade();
    server.logged(&["upgrade: this process has taken over"]);
    let mut rpc = Rpc::connect(&server);
    push(&mut rpc, "kept", "after", "ping", 0);
    let set = r#"{"storage":"stored","items":[{"key":"a","value":"MQ=="}]}"#;
    assert_eq!(rpc.call("kv.Set", set), "{}");
    let ran = wait_until_ran(&server, 4);
    for id in ["waits", "in-memory", "after"] {
        assert!(ran.contains(&format!(r#""id":"{id}""#)), "{ran}");
    }
    wait_until_stat(&mut rpc, r#""queue":"kept","reserved":1,"ready":true"#);
    server.site().write("8", "");
    server.follow_upgrade();
    wait_until_stat(&mut rpc, r#""queue":"kept","ready":true"#);
    assert_eq!(self::ran(&server).lines().count(), 4, "each once");
    server.stop();
}

/// It is stopped while the process before it still has a job, which it brings to its end.
#[test]
fn a_server_that_stops_soon_after_an_upgrade_waits_for_all_of_its_jobs() {
    let (mut server, mut rpc) = start(1);
    let long = push_request("kept", "long", "slow", 0).replace("OA==", "MjAwMA=="); // 2 s
    assert_eq!(rpc.call("jobs.Push", &long), "{}");
    wait_until_ran(&server, 1);
    server.ask_for_upgrade();
    server.logged(&["upgrade: this process has taken over"]);
    let old = server.pid();
    let new = server.serving().into_iter().find(|pid| *pid != old);
    let new = Pid::from_raw(new.expect("it serves").cast_signed()).expect("it is not 0");
    kill_process(new, Signal::TERM).expect("it runs");
    server.logged(&["an attempt has ended: done", r#""id":"long""#]);
    wait_for("both processes to end", || {
        server.serving().is_empty().then_some(())
    });
    let server = Server::start({
        server.wait();
        server.into_ended_site()
    });
    let mut rpc = Rpc::connect(&server);
    wait_until_stat(&mut rpc, r#""queue":"kept","ready":true"#);
    assert_eq!(ran(&server).lines().count(), 1, "once");
    server.stop();
}

/// Its jobs are in the old directory.
#[test]
fn an_upgrade_does_not_leave_the_store_behind() {
    let (mut server, mut rpc) = start(1);
    let config = server.site().read(".rr.yaml");
    server.site().write(
        ".rr.yaml",
        &config.replace("state_dir: state", "state_dir: other"),
    );
    server.signal(Signal::USR2);
    server.logged(&["upgrade failed, this process continues", "`state_dir` is"]);
    push(&mut rpc, "kept", "waits", "ping", 600);
    // The same directory by another name is no other one.
    let (state, other) = (server.site().path("state"), server.site().path("other"));
    _ = fs::remove_dir_all(&other);
    fs::rename(state, other).expect("it is there");
    server.upgrade();
    let mut rpc = Rpc::connect(&server);
    wait_until_stat(&mut rpc, r#""queue":"kept","delayed":1,"#);
    server.stop();
}

/// The process before has a job whose end it can't settle any more, and no clients.
#[test]
fn a_process_that_handed_over_ends_with_the_one_that_took_over() {
    let (server, mut rpc) = start(1);
    let long = push_request("kept", "long", "slow", 0).replace("OA==", "MzAwMDA="); // 30 s
    assert_eq!(rpc.call("jobs.Push", &long), "{}");
    wait_until_ran(&server, 1);
    let old = server.pid();
    server.ask_for_upgrade();
    server.logged(&["upgrade: this process has taken over"]);
    drop(rpc);
    let new = server.serving().into_iter().find(|pid| *pid != old);
    let new = i32::try_from(new.expect("it serves")).expect("a number of a process");
    let new = Pid::from_raw(new).expect("it is not 0");
    kill_process(new, Signal::KILL).expect("it runs");
    let killed = SystemTime::now();
    wait_for("nobody to listen", || {
        TcpStream::connect(server.address()).err()
    });
    wait_for("the old process to end", || {
        let stat = fs::read_to_string(format!("/proc/{old}/stat")).unwrap_or_default();
        stat.contains(") Z ").then_some(())
    });
    let took = killed.elapsed().expect("time goes on");
    assert!(took < Duration::from_secs(10), "{took:?}");
    for entry in fs::read_dir(server.site().folder()).expect("it is there") {
        let path = entry.expect("it can be read").path();
        if path.extension().is_some_and(|it| it == "sock") {
            fs::remove_file(path).expect("the killed process has left it");
        }
    }
    let server = Server::start(server.into_site());
    let ran = wait_until_ran(&server, 2);
    assert_eq!(ran.matches(r#""id":"long""#).count(), 2, "{ran}");
    server.killed();
}

#[test]
fn jobs_in_memory_go_on_in_the_process_that_takes_over() {
    let (mut server, mut rpc) = start(1);
    let slow = push_request("mail", "slow", "slow", 0).replace("OA==", "NTAw"); // 500 ms
    assert_eq!(rpc.call("jobs.Push", &slow), "{}");
    wait_until_ran(&server, 1);
    for number in 0..20 {
        push(&mut rpc, "mail", &format!("n{number}"), "ping", 0);
    }
    push(&mut rpc, "mail", "later", "ping", 3600);
    server.upgrade();
    let mut rpc = Rpc::connect(&server);
    wait_until_stat(&mut rpc, r#""queue":"mail","delayed":1,"ready":true"#);
    let ran = wait_until_ran(&server, 21);
    assert_eq!(ran.lines().count(), 21, "each once: {ran}");
    server.logged(&["jobs in memory go on in the next process", r#""jobs":"#]);
    server.stop();
}

/// The first process has a job that goes back into its memory once the third one serves.
#[test]
fn jobs_in_memory_go_on_past_two_upgrades_in_a_row() {
    const TAKEN_OVER: &str = "upgrade: this process has taken over";
    let (mut server, mut rpc) = start(1);
    let long = push_request("mail", "long", "slowly-again", 0).replace("OA==", "NjAwMA=="); // 6 s
    assert_eq!(rpc.call("jobs.Push", &long), "{}");
    wait_until_ran(&server, 1);
    server.ask_for_upgrade();
    server.logged(&[TAKEN_OVER]);
    let second = server.serving().into_iter();
    let second = second.filter(|pid| *pid != server.pid()).max();
    let second = second.expect("it serves");
    let pid = Pid::from_raw(second.cast_signed()).expect("a number");
    kill_process(pid, Signal::USR2).expect("it is there");
    wait_for("the third process", || {
        (server.log().matches(TAKEN_OVER).count() == 2).then_some(())
    });
    assert_eq!(ran(&server).lines().count(), 1, "the first one is at work");
    server.follow_upgrade();
    if server.pid() == second {
        server.follow_upgrade();
    }
    let ran = wait_until_ran(&server, 2);
    assert_eq!(ran.lines().count(), 2, "{ran}");
    server.stop();
}

/// Calls `jobs.Push` until a file is there, and says what was refused and how many were kept.
const PUSHES: &str = r"
    [, $address, $way, $stop] = $argv;
    $rpc = Pronghorn\Rpc::connect($address);
    for ($n = 0; !file_exists($stop); $n++) {
        try {
            $rpc = $way === 'fresh' ? Pronghorn\Rpc::connect($address) : $rpc;
            $rpc->call('jobs.Push', ['job' => [
                'job' => 'ping', 'id' => qq$way-$nqq, 'payload' => '', 'options' => ['pipeline' => 'mail'],
            ]]);
        } catch (Exception $refused) {
            echo $n, ': ', $refused::class, ' ', $refused->getMessage(), PHP_EOL;
        }
        usleep(1000);
    }
    echo $n;";

/// By a connection that is kept, by one for each, and from workers. A connection that is kept is
/// closed between two calls: one that is sent at that very moment is lost, and its caller knows.
#[test]
fn an_upgrade_refuses_no_push() {
    let site = Site::new();
    let ran = site.path("ran");
    let site = site.config(&format!(
        "version: '3'\n\
         server: {{env: {{RAN: '{}'}}}}\n\
         http: {{address: 127.0.0.1:0, pool: {{num_workers: 2, command: php {}}}}}\n\
         rpc: {{listen: 'tcp://127.0.0.1:0'}}\n\
         state_dir: state\n\
         logs: {{level: debug}}\n\
         jobs:\n  pool: {{num_workers: 1, command: php {}}}\n  consume: [mail]\n  \
         pipelines: {{mail: {{driver: embedded}}}}\n",
        ran.display(),
        Site::fixture("pushes.php").display(),
        Site::fixture("jobs.php").display(),
    ));
    let mut server = Server::start(site);
    let address = crate::control::listening(&server, "rpc");
    let stop = server.site().path("stop");
    let package = concat!(env!("CARGO_MANIFEST_DIR"), "/../php/goridge/autoload.php");
    let code = format!("require '{package}';{}", PUSHES.replace("qq", "\""));
    let clients = ["kept", "fresh"].map(|way| {
        let client = php_command("php")
            .args(["-r", &code, "--", &address, way])
            .arg(&stop)
            .stdout(std::process::Stdio::piped())
            .spawn();
        (way, client.expect("PHP runs"))
    });
    let (http, until) = (server.address(), stop.clone());
    let requests = std::thread::spawn(move || {
        let (mut count, mut refused) = (0, Vec::new());
        while !until.exists() {
            let id = format!("http-{count}");
            let said = Connection::open(http).get(&format!("/one?id={id}")).text();
            if said != id {
                refused.push(said);
            }
            count += 1;
        }
        (count, refused)
    });
    for upgrades in 0..4 {
        if upgrades > 0 {
            server.upgrade();
        }
        let before = self::ran(&server).lines().count();
        wait_until_ran(&server, before + 50);
    }
    fs::write(&stop, "").expect("it can be written");
    let (count, refused) = requests.join().expect("no panic");
    assert_eq!(refused, Vec::<String>::new());
    let (mut counts, mut lost) = (vec![("http", count)], Vec::new());
    for (way, client) in clients {
        let output = client.wait_with_output().expect("it ends");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let mut lines: Vec<_> = said.lines().collect();
        let count = lines.pop().and_then(|count| count.parse().ok());
        counts.push((way, count.unwrap_or_else(|| panic!("{way}: {said}"))));
        let is_closed = |line: &&str| way == "kept" && line.ends_with(" closed the connection.");
        assert!(
            lines.iter().all(is_closed) && lines.len() <= 3,
            "{way}: {said}"
        );
        let number = |line: &str| line.split_once(':').map(|(number, _)| number.to_owned());
        lost.extend(lines.into_iter().filter_map(number));
    }
    let mut rpc = Rpc::connect(&server);
    wait_until_stat(&mut rpc, r#""queue":"mail","ready":true"#);
    let ran = self::ran(&server);
    for (way, count) in counts {
        assert!(count > 50, "{way}: {count}");
        for number in 0..count {
            let id = format!(r#""id":"{way}-{number}""#);
            let is_lost = way == "kept" && lost.contains(&number.to_string());
            assert!(is_lost || ran.contains(&id), "{id} has not run");
        }
    }
    server.stop();
}

#[test]
fn a_pipeline_that_is_destroyed_and_declared_again_starts_no_running_job_twice() {
    let broker = Engine::redis(&[]);
    let address = format!(r#","addr":"redis://127.0.0.1:{}""#, broker.port());
    let server = Server::start(site_of(&Site::fixture("jobs.php"), "num_workers: 3"));
    let mut rpc = Rpc::connect(&server);
    for (driver, more) in [("memory", ""), ("embedded", ""), ("redis", &address)] {
        let declare = format!(r#"{{"pipeline":{{"name":"{driver}","driver":"{driver}"{more}}}}}"#);
        let named = format!(r#"{{"pipelines":["{driver}"]}}"#);
        let declare = |rpc: &mut Rpc| {
            assert_eq!(rpc.call("jobs.Declare", &declare), "{}");
            assert_eq!(rpc.call("jobs.Resume", &named), "{}");
        };
        let before = ran(&server).lines().count();
        declare(&mut rpc);
        let slow = push_request(driver, driver, "slow", 0).replace("OA==", "NzAw"); // 700 ms
        assert_eq!(rpc.call("jobs.Push", &slow), "{}");
        wait_until_ran(&server, before + 1);
        assert_eq!(rpc.call("jobs.Destroy", &named), named);
        declare(&mut rpc);
        push(&mut rpc, driver, "beside", "ping", 0);
        wait_until_ran(&server, before + 2);
        server.logged(&["an attempt has ended", &format!(r#""id":"{driver}""#)]);
        wait_until_stat(&mut rpc, &format!(r#""queue":"{driver}","ready":true"#));
        let ran = ran(&server);
        let id = format!(r#""id":"{driver}""#);
        assert_eq!(ran.matches(&id).count(), 1, "{ran}");
        assert_eq!(rpc.call("jobs.Destroy", &named), named);
    }
    server.stop();
}

#[test]
fn jobs_that_were_removed_in_redis_are_told_as_lost_and_the_queue_goes_on() {
    let redis = Engine::redis(&[]);
    let more = format!(
        "    far: {{driver: redis, config: {{addr: 'redis://127.0.0.1:{}'}}}}\n",
        redis.port()
    );
    let site = site_with(&Site::fixture("jobs.php"), "num_workers: 1", &more);
    let config = site
        .read(".rr.yaml")
        .replace("[mail, kept]", "[mail, kept, far]");
    let server = Server::start(site.config(&config));
    let mut rpc = Rpc::connect(&server);
    push(&mut rpc, "far", "before", "ping", 0);
    wait_until_ran(&server, 1);
    assert_eq!(redis.redis_cli(&["flushall"]), "OK");
    server.logged(&[
        "WARN",
        "the jobs of this pipeline are lost",
        r#""pipeline":"far""#,
    ]);
    push(&mut rpc, "far", "after", "ping", 0);
    wait_until_ran(&server, 2);
    let log = server.log();
    assert!(!log.contains("is away"), "{log}");
    server.stop();
}

#[test]
fn a_store_that_was_cut_to_nothing_is_not_taken_for_a_new_one() {
    let (server, mut rpc) = start(1);
    push(&mut rpc, "kept", "later", "ping", 3600);
    let site = server.into_site();
    let file = site.path("state/store.redb");
    fs::write(&file, "").expect("it can be written");
    let path = file.display();
    Server::run(&site, &["serve"]).assert_refused(&[
        "pipeline `kept` can't be opened",
        &format!("{path} is broken: it is empty"),
        &format!("begin with an empty store: `mv {path} {path}.broken`"),
    ]);
    assert_eq!(fs::read(&file).expect("it is there").len(), 0);
}

/// A disk on which nothing can be written, as far as the server sees.
#[test]
fn what_has_run_when_the_disk_is_full_does_not_run_again() {
    let site = site_of(&Site::fixture("jobs.php"), "num_workers: 1");
    let server = Server::start(site);
    let mut rpc = Rpc::connect(&server);
    let slow = push_request("kept", "slow", "slow", 0).replace("OA==", "NzAw"); // 700 ms
    assert_eq!(rpc.call("jobs.Push", &slow), "{}");
    push(&mut rpc, "kept", "next", "ping", 0);
    wait_until_ran(&server, 1);
    let limit = |bytes: &str| {
        let pid = server.pid().to_string();
        let limited = Command::new("prlimit")
            .args(["--pid", &pid, &format!("--fsize={bytes}:unlimited")])
            .status();
        assert!(limited.expect("util-linux has it").success());
    };
    limit("4096");
    let refused = rpc.call("jobs.Push", &push_request("kept", "lost", "ping", 0));
    assert!(refused.contains("the store can't be written"), "{refused}");
    wait_for("the end of the job", || {
        let shown = rpc.call("jobs.Show", r#"{"id":"slow"}"#);
        (!shown.contains(r#""state":"running""#)).then_some(())
    });
    limit("unlimited");
    wait_until_stat(&mut rpc, r#""queue":"kept","ready":true"#);
    let ran = ran(&server);
    assert_eq!(ran.matches(r#""id":"slow""#).count(), 1, "{ran}");
    assert_eq!(ran.matches(r#""id":"next""#).count(), 1, "{ran}");
    server.stop();
}

#[test]
fn a_reload_replaces_workers_and_loses_no_job() {
    let (server, mut rpc) = start(2);
    for number in 0..40 {
        push(&mut rpc, "mail", &number.to_string(), "slow", 0);
        if number % 10 == 5 {
            server.signal(Signal::HUP);
        }
    }
    wait_until_stat(&mut rpc, r#""queue":"mail","ready":true"#);
    assert_eq!(ran(&server).lines().count(), 40);
    server.stop();
}

#[test]
fn a_reload_changes_the_number_of_workers() {
    let (server, mut rpc) = start(1);
    server.site().change_config(
        "pool: {num_workers: 1}\n  consume",
        "pool: {num_workers: 3}\n  consume",
    );
    server.signal(Signal::HUP);
    server.logged(&["the configuration is applied"]);
    // One is HTTP's.
    wait_for("three workers more", || {
        (server.workers().len() == 4).then_some(())
    });
    push(&mut rpc, "mail", "1", "ping", 0);
    wait_until_ran(&server, 1);
    server.stop();
}

#[test]
fn a_stop_waits_for_a_job_that_runs() {
    let (server, mut rpc) = start(1);
    let long = push_request("kept", "long", "slow", 0).replace("OA==", "NTAw"); // 500 ms
    assert_eq!(rpc.call("jobs.Push", &long), "{}");
    wait_until_ran(&server, 1);
    push(&mut rpc, "kept", "next", "ping", 0);
    let site = server.into_site();
    let server = Server::start(site);
    let ran = wait_until_ran(&server, 2);
    assert_eq!(ran.matches(r#""id":"long""#).count(), 1, "{ran}");
    server.stop();
}

#[test]
fn brokers_that_are_away_hold_up_neither_who_looks_nor_a_stop() {
    let nobody = free_address();
    let more = format!(
        "    far-1: {{driver: redis, config: {{addr: 'redis://{nobody}'}}}}\n    \
             far-2: {{driver: beanstalk}}\n    \
             far-3: {{driver: amqp}}\n\
         beanstalk: {{addr: 'tcp://{nobody}'}}\n\
         amqp: {{addr: 'amqp://{nobody}'}}\n\
         status: {{address: 127.0.0.1:0}}\n"
    );
    let site = site_with(&Site::fixture("jobs.php"), "num_workers: 1", &more);
    let server = Server::start(site);
    let mut rpc = Rpc::connect(&server);
    let status = crate::control::listening(&server, "status");
    let status = status.trim_start_matches("http://").parse();
    let mut status = Connection::open(status.expect("it is an address"));
    // A driver may take a minute for each step.
    let quick = |what: &str, took: Duration| {
        assert!(took < Duration::from_secs(20), "{what} took {took:?}");
    };
    let away = format!(" at {nobody} is away: ");
    let (seen, took) = time(|| rpc.call("jobs.Overview", "{}"));
    quick("jobs.Overview", took);
    assert_eq!(seen.matches(&away).count(), 3, "{seen}");
    let (seen, took) = time(|| status.get("/jobs").text());
    quick("/jobs", took);
    assert_eq!(seen.matches(&away).count(), 3, "{seen}");
    let ((), took) = time(|| {
        server.stop();
    });
    quick("a stop", took);
}

/// A counted attempt makes a job longer.
#[test]
fn a_job_that_has_grown_too_big_for_its_broker_is_a_dead_letter() {
    let broker = Engine::start("beanstalkd", |port| {
        let arguments = ["-l", "127.0.0.1", "-z", "1000", "-p"];
        let mut arguments: Vec<_> = arguments.map(ToOwned::to_owned).into();
        arguments.push(port.to_string());
        arguments
    });
    let more = format!(
        "    far: {{driver: beanstalk, retry: {{max: 3, backoff: [0s]}}}}\n\
         beanstalk: {{addr: 'tcp://127.0.0.1:{}'}}\n",
        broker.port()
    );
    let site = site_with(&Site::fixture("jobs.php"), "num_workers: 1", &more);
    site.change_config("consume: [mail, kept]", "consume: [mail, kept, far]");
    let server = Server::start(site);
    let mut rpc = Rpc::connect(&server);
    wait_until_stat(&mut rpc, r#""driver":"beanstalk""#);
    // The longest ones that it takes have no room for a count.
    let mut pushed = 0;
    let sizes = (300..).flat_map(|groups| ["", "x", "xx"].map(|more| (groups, more)));
    for (groups, more) in sizes {
        let payload = "eHh4".repeat(groups);
        let said = rpc.call(
            "jobs.Push",
            &format!(
                r#"{{"job":{{"job":"throw","id":"{groups}{more}","payload":"{payload}","options":{{"pipeline":"far"}}}}}}"#
            ),
        );
        if said != "{}" {
            assert!(said.contains("is too big for it"), "{said}");
            break;
        }
        pushed += 1;
    }
    let letters = wait_for("all to be dead letters", || {
        let listed = rpc.call("jobs.DeadLetters", "{}");
        (listed.matches(r#""reason""#).count() == pushed).then_some(listed)
    });
    let why = "; it can't be kept for another attempt: beanstalk at ";
    assert!(letters.contains(why), "{letters}");
    assert!(letters.contains(r#""attempts":3"#), "{letters}");
    server.logged(&["WARN", "can't be kept for another attempt"]);
    server.stop();
}

/// Schedules, and no pipeline in the store.
fn site_of_schedules() -> Site {
    let site = site(1);
    let config = site.read(".rr.yaml");
    let (kept, rest) = config.split_once("    kept:").expect("a pipeline");
    let (_, rest) = rest.split_once('\n').expect("a line");
    let config = format!("{kept}{rest}  schedules: {{often: {{every: 1h, command: 'true'}}}}\n");
    site.config(&config.replace("[mail, kept]", "[mail]"))
}

/// Its schedules would never run: the first one has what they need to know.
#[test]
fn a_second_server_with_schedules_is_told_so_too() {
    let server = Server::start(site_of_schedules());
    let ended = Server::run_beside(server.site(), &["serve"]);
    ended.assert_refused(&[&format!("is used by process {}", server.pid())]);
    server.stop();
}

#[test]
fn schedules_whose_store_cannot_be_claimed_are_refused() {
    let site = site_of_schedules().file("state/store.lock/file", "");
    let ended = Server::run(&site, &["serve"]);
    ended.assert_refused(&["store.lock is broken: it is a directory"]);
}

#[test]
fn a_second_server_is_told_who_has_the_store() {
    let (server, _) = start(1);
    let ended = Server::run_beside(server.site(), &["serve"]);
    let pid = server.pid();
    ended.assert_refused(&["pipeline `kept`", &format!("is used by process {pid}")]);
    server.stop();
}

/// Nothing but its next time begins it again: a person has to hear of it.
#[test]
fn a_command_of_a_schedule_that_an_upgrade_kills_is_told() {
    let site = site(1);
    let command = "sh -c \"touch begun; exec sleep 1000\"";
    let schedules = format!("  schedules: {{long: {{every: 1s, command: '{command}'}}}}\n");
    let config = site.read(".rr.yaml") + &schedules;
    let mut server = Server::start(site.config(&config));
    let begun = server.site().path("begun");
    wait_for("a run", || begun.exists().then_some(()));
    server.upgrade();
    server.logged(&["\"long\"", "the command is killed"]);
    server.stop();
}
