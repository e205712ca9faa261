//! What programs that were written for RoadRunner type and read: Laravel Octane, the bundles for
//! Laravel and Symfony.

use std::net::SocketAddr;

use pronghorn_testkit::{Ended, Server, Site, free_address, wait_for};
use serde_json::Value;

/// A worker of the packages that writes an event to stderr for each request, as Octane's does, and
/// answers with what it finds in its environment.
const WORKER: &str = r#"<?php
namespace Foreign;
require 'PACKAGES';
$worker = new Worker(Relay::connect());
$http = new Http($worker);
while (($request = $http->wait()) !== null) {
    $event = ['type' => 'request', 'method' => $request['method'], 'url' => $request['uri'], 'duration' => 1.5];
    \fwrite(\STDERR, \json_encode($event) . "\n");
    $http->respond(200, \json_encode(\getenv() + ['pid' => \getmypid()]));
}
"#;

fn with_worker(path: &str) -> Site {
    let packages = Site::fixture("foreign/packages.php").display().to_string();
    Site::new().file(path, &WORKER.replace("PACKAGES", &packages))
}

fn environment(server: &Server) -> Value {
    serde_json::from_str(&server.get("/env").text()).expect("the worker answers in JSON")
}

fn assert_quiet(ended: &Ended) {
    let said = (ended.code, ended.stdout.as_str(), ended.stderr.as_str());
    assert_eq!(said, (Some(0), "", ""));
}

/// How Octane starts a server: on a file that it has touched, with all on the command line, flags
/// before the command.
struct Octane {
    server: Server,
    rpc: String,
}

impl Octane {
    fn start(site: Site, http: SocketAddr, rpc: SocketAddr) -> Self {
        let base = site.folder().display().to_string();
        let rpc = format!("rpc.listen=tcp://{rpc}");
        let config = format!("{base}/.rr.yaml");
        let address = format!("http.address={http}");
        let command = format!("server.command=/usr/bin/php,{base}/vendor/bin/roadrunner-worker");
        let files = format!("http.static.dir={base}/public");
        let options = [
            "version=3",
            &address,
            &command,
            "http.pool.num_workers=2",
            "http.pool.max_jobs=500",
            &rpc,
            "http.pool.supervisor.exec_ttl=30s",
            &files,
            "http.middleware=static",
            "logs.mode=production",
            "logs.level=debug",
            "logs.output=stdout",
            "logs.encoding=json",
        ];
        let mut arguments = vec!["-c", &config];
        for option in options {
            arguments.extend(["-o", option]);
        }
        arguments.push("serve");
        let environment = [
            ("APP_ENV", "local"),
            ("APP_BASE_PATH", &base),
            ("LARAVEL_OCTANE", "1"),
        ];
        let server = Server::start_as_rr(site, &arguments, &environment, http);
        Self { server, rpc }
    }

    fn project() -> Site {
        with_worker("vendor/bin/roadrunner-worker")
            .config("")
            .file("public/index.php", "<?php echo 'source';")
    }
}

/// What Octane makes of a line: a stream event when the message is JSON itself.
fn records(server: &Server) -> Vec<Value> {
    let out = server.stdout();
    let parsed = out
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok());
    parsed.collect()
}

#[test]
fn octane_finds_starts_reads_reloads_and_stops() {
    let project = Octane::project();
    // Its probe: the third word has to be 2023.3.0 at least.
    let version = Server::run_as_rr(&project, &["--version"]);
    assert_eq!((version.code, version.stderr.as_str()), (Some(0), ""));
    let words: Vec<_> = version.stdout.split(' ').collect();
    assert_eq!(words[..3], ["rr", "version", "2025.1.15"]);
    assert!(
        version.stdout.contains("), OS: linux, arch: "),
        "{}",
        version.stdout
    );

    let octane = Octane::start(project, free_address(), free_address());
    let server = &octane.server;
    let worker = environment(server);
    for (name, value) in [
        ("LARAVEL_OCTANE", "1"),
        ("APP_ENV", "local"),
        ("RR_MODE", "http"),
        ("RR_RELAY", "pipes"),
        ("RR_VERSION", "2025.1.15"),
        ("RR_RPC", octane.rpc.trim_start_matches("rpc.listen=")),
    ] {
        assert_eq!(worker[name], value, "{name}");
    }
    // RoadRunner hands out the source here.
    assert!(!server.get("/index.php").text().contains("<?php"));

    let record = wait_for("the record of the request", || {
        let records = records(server);
        let found = records.into_iter().find(|r| r["msg"] == "http log");
        found.filter(|record| record["URI"] == "/env")
    });
    assert_eq!(
        (&record["level"], &record["logger"], &record["method"]),
        (&"info".into(), &"http".into(), &"GET".into())
    );
    assert!(
        record["status"] == 200
            && record["elapsed"].is_u64()
            && record["remote_address"].is_string()
    );
    let event = wait_for("the event of the worker", || {
        let mut records = records(server).into_iter();
        records.find_map(|r| {
            serde_json::from_str::<Value>(r["msg"].as_str()?)
                .ok()
                .filter(Value::is_object)
        })
    });
    assert_eq!(
        (&event["type"], &event["duration"]),
        (&"request".into(), &1.5.into())
    );
    for record in records(server) {
        for name in ["msg", "logger", "level"] {
            assert!(record[name].is_string(), "{name} in {record}");
        }
    }

    // Any byte on stderr is an exception there.
    assert_quiet(&server.steer_as_rr(&["reset", "-o", &octane.rpc, "-s"]));
    assert_ne!(environment(server)["pid"], worker["pid"]);
    let shown = server.steer_as_rr(&["workers", "-o", &octane.rpc]);
    assert!(
        shown.stdout.starts_with("Workers of [http]:\n"),
        "{}",
        shown.stdout
    );

    // Lines on stderr would be shown as errors. Ours are in JSON, but for the two that RoadRunner
    // has as well.
    let ended = octane.server.stop();
    assert_eq!(ended.stderr, "");
    let plain: Vec<_> = ended
        .stdout
        .lines()
        .filter(|line| !line.starts_with('{'))
        .collect();
    assert_eq!(
        plain,
        [
            "[INFO] RoadRunner server started; version: 2025.1.15, buildtime: development",
            "stop signal received, grace timeout is: 30 seconds"
        ]
    );
}

#[test]
fn two_of_octanes_servers_in_one_project_are_reset_apart() {
    let first = Octane::start(Octane::project(), free_address(), free_address());
    let base = first.server.site().folder().display().to_string();
    let (http, rpc) = (free_address(), free_address());
    let listen = format!("rpc.listen=tcp://{rpc}");
    let second = Server::start_as_rr(
        Site::new(),
        &[
            "-c",
            &format!("{base}/.rr.yaml"),
            "-o",
            "version=3",
            "-o",
            &format!("http.address={http}"),
            "-o",
            &format!("server.command=/usr/bin/php,{base}/vendor/bin/roadrunner-worker"),
            "-o",
            "http.pool.num_workers=2",
            "-o",
            &listen,
            "serve",
        ],
        &[("XDG_RUNTIME_DIR", &base)],
        http,
    );
    let pids = |server: &Server| {
        let mut pids = server.workers();
        pids.sort_unstable();
        pids
    };
    let (of_first, of_second) = (pids(&first.server), pids(&second));
    assert_quiet(&first.server.steer_as_rr(&["reset", "-o", &listen, "-s"]));
    wait_for("new workers of the second alone", || {
        let now = pids(&second);
        (now.len() == 2 && now.iter().all(|pid| !of_second.contains(pid))).then_some(())
    });
    assert_eq!(pids(&first.server), of_first);
    second.stop();
    first.server.stop();
}

#[test]
fn commands_print_what_roadrunners_print() {
    let address = free_address();
    let site = with_worker("worker.php").config(&format!(
        "version: '3'\nrpc: {{listen: 'unix://rpc.sock'}}\nserver: {{command: php worker.php}}\n\
         http: {{address: '{address}', pool: {{num_workers: 2}}}}\n"
    ));
    let mut server = Server::start_as_rr(site, &["serve"], &[], address);

    let workers = server.steer_as_rr(&["workers"]);
    assert_eq!((workers.code, workers.stderr.as_str()), (Some(0), ""));
    let lines: Vec<_> = workers.stdout.lines().collect();
    assert_eq!(lines[0], "Workers of [http]:");
    let heads = lines[2]
        .split('│')
        .map(str::trim)
        .filter(|head| !head.is_empty());
    assert_eq!(
        heads.collect::<Vec<_>>(),
        ["PID", "STATUS", "EXECS", "MEMORY", "CPU %", "CREATED"]
    );
    assert_eq!(
        lines
            .iter()
            .filter(|line| line.contains("│ ready "))
            .count(),
        2,
        "{}",
        workers.stdout
    );

    for arguments in [&["reset"][..], &["reset", "http"]] {
        let reset = server.steer_as_rr(arguments);
        assert_eq!((reset.code, reset.stdout.as_str()), (Some(0), ""));
        // With the date and time of Go's log before it.
        let said: Vec<_> = reset
            .stderr
            .lines()
            .filter_map(|line| line.get(20..))
            .collect();
        assert_eq!(said, ["resetting plugin: [http]", "plugin reset: [http]"]);
    }
    // RoadRunner ends with 0 here and has done nothing.
    let unknown = server.steer_as_rr(&["reset", "https"]);
    assert_eq!(unknown.code, Some(1));
    assert!(
        unknown.stderr.contains("there is no pool `https`"),
        "{}",
        unknown.stderr
    );

    let stopped = server.steer_as_rr(&["stop"]);
    assert_eq!((stopped.code, stopped.stdout.as_str()), (Some(0), ""));
    let said = format!(" stopping process with PID: {}\n", server.pid());
    assert!(stopped.stderr.ends_with(&said), "{}", stopped.stderr);
    assert_eq!(server.wait().code, Some(0));
}

#[test]
fn pipelines_are_steered_as_with_roadrunner() {
    let (address, rpc) = (free_address(), free_address());
    let site = with_worker("worker.php").config(&format!(
        "version: '3'\nrpc: {{listen: 'tcp://{rpc}'}}\nserver: {{command: php worker.php}}\n\
         http: {{address: '{address}', pool: {{num_workers: 1}}}}\n\
         jobs:\n  pool: {{num_workers: 1, command: php {}}}\n  consume: [mail]\n\
         \x20 pipelines: {{mail: {{driver: memory}}, orders: {{driver: memory}}}}\n",
        Site::fixture("foreign/jobs.php").display()
    ));
    let server = Server::start_as_rr(site, &["serve"], &[], address);
    let table = |rows: &str| {
        let rule = "─".repeat(16);
        let rows = if rows.is_empty() {
            String::new()
        } else {
            format!("├{rule}┤\n{rows}")
        };
        format!("┌{rule}┐\n│ PIPELINE ( S ) │\n{rows}└{rule}┘\n")
    };
    let (mail, orders) = ("│ mail           │\n", "│ orders         │\n");
    let workers = server.steer_as_rr(&["workers"]).stdout;
    let (_, pipelines) = workers.split_once("Jobs of [jobs]:\n").expect(&workers);
    let rows = pipelines.lines().filter(|line| line.starts_with("│ READY"));
    assert_eq!(rows.count(), 1, "{workers}");
    assert!(
        pipelines.contains("│ PAUSED/STOPPED │ orders   │ memory │ orders │"),
        "{workers}"
    );
    let both = table(&format!("{mail}{orders}"));
    for (arguments, printed) in [
        (&["jobs", "--list"][..], both.as_str()),
        (&["jobs", "--pause", "mail,orders"], &both),
        (&["-s", "jobs", "--resume", "mail"], ""),
        (&["jobs", "--resume", "orders"], &table(orders)),
        (&["-s", "jobs", "--resume", "mail"], ""),
        (&["-s", "jobs", "--list"], &both),
        (&["jobs", "--destroy", "mail"], &table(mail)),
        (&["jobs", "--list"], &table(orders)),
        (&["jobs", "--destroy", "orders"], &table(orders)),
        (&["jobs", "--list"], &table("")),
    ] {
        let ended = server.steer_as_rr(arguments);
        let said = (ended.code, ended.stdout.as_str(), ended.stderr.as_str());
        assert_eq!(said, (Some(0), printed, ""), "{arguments:?}");
    }
    let workers = server.steer_as_rr(&["workers", "jobs"]);
    assert!(
        workers.stdout.starts_with("Workers of [jobs]:\n"),
        "{}",
        workers.stdout
    );
    for (arguments, says) in [
        (&["jobs"][..], "`rr jobs --pause mail,orders`"),
        (&["jobs", "--pause"], "no pipeline is named"),
        (
            &["jobs", "--pause", "gone"],
            "no such pipeline, requested: gone",
        ),
    ] {
        let ended = server.steer_as_rr(arguments);
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(1), ""));
        assert!(
            ended.stderr.contains(says),
            "{arguments:?}: {}",
            ended.stderr
        );
    }
    server.stop();
}

#[test]
fn the_symfony_bundles_configuration_is_served() {
    let (address, rpc) = (free_address(), free_address());
    let config = format!(
        r#"version: "3"
server:
  command: "php public/index.php"
  env:
    - APP_RUNTIME: Vendor\Bundle\Runtime\Runtime
rpc:
  listen: tcp://{rpc}
http:
  address: {address}
  middleware: ["static", "gzip"]
  uploads:
    forbid: [".php", ".exe", ".bat"]
  static:
    dir: "public"
    forbid: [".php", ".htaccess"]
  pool:
    num_workers: 2
logs:
  mode: production
  channels:
    http: {{level: debug}}
    server: {{level: info, mode: raw}}
"#
    );
    let site = with_worker("public/index.php").file(".rr.dev.yaml", &config);
    let arguments = ["serve", "-c", ".rr.dev.yaml", "--debug"];
    let server = Server::start_as_rr(site, &arguments, &[], address);
    let worker = environment(&server);
    assert_eq!(worker["APP_RUNTIME"], r"Vendor\Bundle\Runtime\Runtime");
    assert_eq!(worker["RR_RPC"], format!("tcp://{rpc}"));
    assert_eq!(worker["RR_MODE"], "http");
    assert_quiet(&server.steer_as_rr(&["reset", "-c", ".rr.dev.yaml", "-s"]));
    assert_ne!(environment(&server)["pid"], worker["pid"]);
    // Without `-c` it would be another server.
    let nobody = server.steer_as_rr(&["reset"]);
    assert_eq!(nobody.code, Some(1));
    assert!(
        nobody.stderr.contains("`rr serve` starts one"),
        "{}",
        nobody.stderr
    );
    server.stop();
}

#[test]
fn the_laravel_bridges_configuration_is_served() {
    let (address, rpc) = (free_address(), free_address());
    let config = format!(
        r#"version: "3"
rpc:
  listen: tcp://{rpc}
server:
  command: "php ./vendor/spiral/roadrunner-laravel/bin/worker start"
http:
  address: {address}
  middleware: ["static", "headers", "gzip"]
  pool:
    max_jobs: 64
    num_workers: 2
    supervisor:
      exec_ttl: 60s
  headers:
    response:
      X-Powered-By: "RoadRunner"
  static:
    dir: "public"
    forbid: [".php"]
"#
    );
    let site = with_worker("vendor/spiral/roadrunner-laravel/bin/worker")
        .file("public/robots.txt", "")
        .config(&config);
    let server = Server::start_as_rr(site, &["serve", "-c", "./.rr.yaml"], &[], address);
    let worker = environment(&server);
    assert_eq!(worker["RR_RPC"], format!("tcp://{rpc}"));
    assert_quiet(&server.steer_as_rr(&["reset", "-s"]));
    assert_ne!(environment(&server)["pid"], worker["pid"]);
    server.stop();
}
