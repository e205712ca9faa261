//! `--json`: what commands print for programs is what the reference says.

use std::collections::BTreeSet;

use pronghorn_testkit::{Ended, Server, Site};
use serde_json::Value;

/// The paths of all keys; of lists, those of all items.
fn paths(value: &Value, before: &str, into: &mut BTreeSet<String>) {
    match value {
        Value::Object(map) => {
            for (name, value) in map {
                let path = format!("{before}.{name}");
                paths(value, &path, into);
                into.insert(path);
            }
        }
        Value::Array(items) => {
            for item in items {
                paths(item, before, into);
            }
        }
        _ => {}
    }
}

fn keys(value: &Value) -> BTreeSet<String> {
    let mut keys = BTreeSet::new();
    paths(value, "", &mut keys);
    keys
}

/// The example of a command in the reference.
fn documented(command: &str) -> BTreeSet<String> {
    let page = include_str!("../../../docs/reference/json.md");
    let (_, section) = page
        .split_once(&format!("\n## `{command}`\n"))
        .expect("the page has all commands");
    let (_, example) = section.split_once("```json\n").expect("an example");
    let (example, _) = example.split_once("```").expect("its end");
    keys(&serde_json::from_str(example).expect("the example is JSON"))
}

fn assert_documented(command: &str, ended: &Ended) {
    let said = serde_json::from_str::<Value>(&ended.stdout);
    assert!(said.is_ok(), "{command}: {} {}", ended.stdout, ended.stderr);
    let said = said.expect("it was looked at");
    let (said, documented) = (keys(&said), documented(command));
    // What is in an operator's own table has the operator's names.
    let unknown = said.difference(&documented);
    let unknown: Vec<_> = unknown
        .filter(|path| !path.starts_with(".keys.value."))
        .collect();
    assert!(
        unknown.is_empty(),
        "{command} has {unknown:?}, which the reference lacks"
    );
    let top = |path: &&String| path.matches('.').count() == 1;
    let missing: Vec<_> = documented
        .iter()
        .filter(top)
        .filter(|path| !said.contains(*path))
        .collect();
    assert!(missing.is_empty(), "{command} lacks {missing:?}");
}

#[test]
fn each_command_prints_what_the_reference_says() {
    let jobs = Site::fixture("jobs.php").display().to_string();
    let site = Site::new().file("worker.php", &Site::sdk_worker("return 'x';")).config(&format!(
        "version: '3'\nserver: {{command: php worker.php}}\n\
         http: {{address: 127.0.0.1:0, pool: {{num_workers: 1}}}}\n\
         rpc: {{listen: 'unix://rpc.sock'}}\n\
         kv: {{pages: {{driver: memory, config: {{}}}}}}\n\
         jobs:\n  pool: {{num_workers: 1, command: php {jobs}}}\n  pipelines: {{mails: {{driver: memory, config: {{}}}}}}\n  \
         consume: [mails]\n  schedules: {{nightly: {{cron: '0 3 * * *', pipeline: mails, job: Clean}}}}\n",
    ));
    let server = Server::start(site);
    server.get("/");
    for command in [
        "status",
        "workers",
        "check",
        "config show",
        "jobs",
        "jobs list",
        "jobs dead",
        "schedules",
        "schedules show",
        "cache",
        "version",
        "extension status",
    ] {
        let mut words: Vec<&str> = command.split(' ').collect();
        match command {
            "schedules show" => words.push("nightly"),
            "jobs list" => words.push("mails"),
            _ => {}
        }
        words.push("--json");
        assert_documented(command, &server.steer(&words));
    }
    let workers: Value =
        serde_json::from_str(&server.steer(&["workers", "--json"]).stdout).expect("JSON");
    assert_eq!(
        workers["pools"][0]["workers"][0]["pid"],
        server.workers()[0]
    );
    let crashes = server.steer(&["crashes", "--json"]);
    assert_eq!(crashes.stdout.trim(), "[]");
    server.stop();
}

#[test]
fn check_tells_programs_what_it_tells_people() {
    let site = Site::new().config("version: '3'\nboltdb: {permissions: 0777}\nhttp: {address: 127.0.0.1:0, middleware: [new_relic], pool: {num_workers: 1, command: php worker.php}}\n");
    let ended = Server::run(&site, &["check", "--json"]);
    assert_eq!(ended.code, Some(2));
    let said: Value = serde_json::from_str(&ended.stdout).expect("JSON");
    assert_eq!(said["passed"], false);
    let first = &said["findings"][0];
    assert!(first["message"].to_string().contains("boltdb"), "{said}");
    assert_eq!(first["severity"], "missing", "the worst comes first");
    let text = Server::run(&site, &["check"]).stdout;
    for finding in said["findings"].as_array().expect("a list") {
        assert!(
            text.contains(finding["message"].as_str().expect("a text")),
            "{finding} in\n{text}"
        );
    }
}
