//! Temporal by RoadRunner's program, for which `fixtures/rr` stands in.

use std::fs;
use std::path::Path;

use pronghorn_testkit::{Connection, Server, Site, free_address, wait_for};
use serde_json::{Value, json};

use crate::programs::{is_gone, is_there, pids, processes, until};

fn configuration(more: &str) -> String {
    format!(
        "version: '3'\n\
         server: {{command: php {}, env: {{OF_WORKERS: 'yes'}}}}\n\
         http: {{address: 127.0.0.1:0, pool: {{num_workers: 1}}}}\n\
         rpc: {{listen: 'tcp://127.0.0.1:0'}}\n\
         logs: {{level: debug}}\n\
         {more}",
        Site::fixture("foreign/worker.php").display()
    )
}

fn binary() -> String {
    Site::fixture("rr").display().to_string()
}

/// What the process of this number was given.
fn given(server: &Server, pid: i32) -> Value {
    let name = format!("rr-{pid}.json");
    wait_for(&name, || {
        let text = fs::read_to_string(server.site().path(&name)).ok()?;
        serde_json::from_str(&text).ok()
    })
}

fn temporal(address: &str) -> String {
    format!(
        "temporal: {{binary: '{}', address: '{address}', namespace: 'a$$b', cache_size: 5, \
         activities: {{num_workers: 2}}, tls: {{key: key.pem}}, later: {{key: [1, x]}}}}\n",
        binary()
    )
}

#[test]
fn roadrunners_program_gets_the_section_and_what_it_needs_beside_it() {
    let status = free_address();
    let status_section = format!("status: {{address: '{status}'}}\n");
    let site = Site::new().config(&configuration(&(status_section.clone() + &temporal("h:1"))));
    let server = Server::start(site);
    let ready = || {
        Connection::open(status)
            .get("/ready?plugin=temporal")
            .status
    };
    let starting = wait_for("its process", || {
        let pids = pids(&processes(&server, "temporal"));
        (pids.len() == 1).then(|| pids[0])
    });
    let first = given(&server, starting);
    assert_eq!(ready(), 503, "its plugin has not said that it is well");
    server.site().write("well", "");
    assert_eq!(pids(&until(&server, "temporal", "running")), [starting]);
    assert_eq!(ready(), 200);

    let config = &first["config"];
    assert_eq!(
        config["temporal"],
        json!({
            "address": "h:1",
            "namespace": "${PRONGHORN_TEMPORAL_0}",
            "cache_size": 5,
            "activities": {"num_workers": 2},
            "tls": {"key": "key.pem"},
            "later": {"key": [1, "x"]},
        })
    );
    let worker = Site::fixture("foreign/worker.php").display().to_string();
    assert_eq!(config["server"]["command"], json!(["php", worker]));
    assert_eq!(
        (&first["mode"], &first["of_directory"]),
        (&json!("600"), &json!("700"))
    );
    let environment = &first["env"];
    assert_eq!(environment["PRONGHORN_TEMPORAL_0"], "a$b");
    assert_eq!(environment["OF_WORKERS"], "yes");
    let own = environment["PRONGHORN_RPC"].as_str().expect("an address");
    assert!(own.starts_with("tcp://127.0.0.1:"), "{own}");
    let rpc = config["rpc"]["listen"].as_str().expect("an address");
    let file = first["file"].as_str().expect("a path").to_owned();
    let directory = Path::new(&file).parent().expect("it is in one").to_owned();
    assert!(
        rpc.starts_with(&format!("unix://{}/", directory.display())),
        "{rpc}"
    );

    for parts in [
        &[
            "INFO",
            "temporal",
            "connected to temporal server",
            r#""context":{"address":"h:1"}"#,
        ][..],
        &[
            "ERROR",
            "temporal",
            "a workflow has failed",
            "\"logger\":\"temporal\"",
        ],
        &["INFO", "temporal", "not a record", "\"stream\":\"stderr\""],
    ] {
        server.logged(parts);
    }
    let metrics = server.steer(&["programs", "logs", "temporal"]).stdout;
    assert!(metrics.contains("a workflow has failed"), "{metrics}");

    // What has not changed is not touched.
    server.steer(&["reload"]).assert_said(&[]);
    assert_eq!(pids(&processes(&server, "temporal")), [starting]);
    // The next one is up before the old one ends.
    fs::remove_file(server.site().path("well")).expect("it is there");
    let next = configuration(&(status_section + &temporal("h:2")));
    server.site().write(".rr.yaml", &next);
    std::thread::scope(|scope| {
        let reload = scope.spawn(|| server.steer(&["reload"]));
        server.logged(&[
            "connected to temporal server",
            r#""context":{"address":"h:2"}"#,
        ]);
        assert!(is_there(starting));
        assert_eq!(ready(), 200);
        server.site().write("well", "");
        assert_eq!(reload.join().expect("it ends").code, Some(0));
    });
    is_gone(starting);
    assert!(!directory.exists());
    let second = pids(&until(&server, "temporal", "running"));
    let after = given(&server, second[0]);
    assert_eq!(after["config"]["temporal"]["address"], "h:2");

    // A section that is gone ends with the server.
    let file = after["file"].as_str().expect("a path").to_owned();
    assert_eq!(server.stop().code, Some(0));
    is_gone(second[0]);
    assert!(!Path::new(&file).exists());
}

#[test]
fn without_the_program_check_and_start_say_where_to_get_it() {
    let hint = "https://github.com/roadrunner-server/roadrunner/releases";
    for (section, said) in [
        (
            "temporal: {binary: ./nowhere/rr}\n",
            "`temporal.binary` names `./nowhere/rr`, which was not found",
        ),
        (
            "temporal: {address: 'h:1', binary: no-such-rr}\n",
            "`temporal.binary` names `no-such-rr`, which was not found",
        ),
    ] {
        let site = Site::new().config(&configuration(section));
        Server::run(&site, &["check"]).assert_said_with(2, &[said, hint, "get-binary"]);
        Server::run(&site, &["serve"]).assert_refused(&["was not found", hint]);
    }
    let section = "temporal: {addr: 'h:1', activities: {command: php no.php > x}}\n";
    let site = Site::new().config(&configuration(section));
    Server::run(&site, &["check"]).assert_said_with(
        2,
        &[
            "`temporal.addr` is passed on to RoadRunner, which has no such key\nhint: did you mean `address`?",
            "`temporal.activities.command` has `>`, which is an argument",
            "/no.php`, which can't be read: No such file or directory (os error 2): its workers do not start",
        ],
    );
    let site = Site::new().config(&configuration("temporal: {}\n"));
    std::os::unix::fs::symlink(pronghorn_testkit::binary(), site.path("rr")).expect("a link");
    for command in ["check", "serve"] {
        let refused = Server::run(&site, &[command]);
        let said = format!("{}{}", refused.stdout, refused.stderr);
        assert!(said.contains("`./rr`"), "{said}");
        assert!(
            said.contains("is this server, and not RoadRunner"),
            "{said}"
        );
    }
    let site = Site::new().config(&format!(
        "version: '3'\nrpc: {{listen: 'tcp://127.0.0.1:0'}}\ntemporal: {{binary: '{}'}}\n",
        binary()
    ));
    Server::run(&site, &["check"]).assert_said_with(
        2,
        &["neither `server.command` nor `temporal.activities.command` is set"],
    );
}

#[test]
fn one_that_ends_is_started_again_with_a_file_of_its_own() {
    let site = Site::new()
        .file("well", "")
        .config(&configuration(&temporal("h:1")));
    let server = Server::start(site);
    let first = pids(&until(&server, "temporal", "running"))[0];
    let file = given(&server, first)["file"].clone();
    rustix::process::kill_process(
        rustix::process::Pid::from_raw(first).expect("a pid"),
        rustix::process::Signal::KILL,
    )
    .expect("it is there");
    is_gone(first);
    let second = wait_for("the next process", || {
        let pids = pids(&processes(&server, "temporal"));
        pids.first().copied().filter(|pid| *pid != first)
    });
    assert_ne!(given(&server, second)["file"], file);
    server.logged(&["ERROR", "temporal", "it ended with signal 9 (SIGKILL)"]);
    until(&server, "temporal", "running");
    server.stop();
}
