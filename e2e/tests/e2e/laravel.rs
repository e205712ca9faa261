//! Laravel's queue over the server's jobs.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixStream;

use pronghorn_testkit::{Server, Site, php_command, wait_for};

use crate::apps::{Browser, DATA, json};
use crate::example::copy;
use crate::ring::extension;
use crate::wordpress;

#[test]
fn jobs_of_laravel_are_kept_by_the_server_and_run_by_its_workers() {
    let site = Site::new();
    let (script, ran) = (Site::fixture("laravel-jobs.php"), site.path("ran"));
    let (data, rpc) = (site.path("data"), site.path("rpc.sock"));
    let config = format!(
        "version: '3'\nserver: {{command: php {}, env: {{RAN: '{}', {DATA}: '{}'}}}}\n\
         http: {{address: 127.0.0.1:0, pool: {{num_workers: 1}}}}\n\
         rpc: {{listen: 'unix://{}'}}\nstate_dir: state\n\
         jobs:\n  pool: {{num_workers: 1}}\n  consume: [lines]\n  pipelines: {{lines: {{driver: embedded}}}}\n",
        script.display(),
        ran.display(),
        data.display(),
        rpc.display(),
    );
    let server = Server::start(site.config(&config));
    let pushed = php_command("php")
        .arg(&script)
        .arg("push")
        .env("RR_RPC", format!("unix://{}", rpc.display()))
        .env(DATA, &data)
        .status();
    assert!(pushed.unwrap().success());
    let lines = wait_for("jobs to run", || {
        let text = fs::read_to_string(&ran).unwrap_or_default();
        (text.lines().count() == 7).then_some(text)
    });
    let mut lines: Vec<_> = lines.lines().collect();
    lines.sort_unstable();
    let expected = [
        "exits 2",
        "fails 1",
        "fails 2",
        "link one 1",
        "link two 1",
        "one 1",
        "spoils 1",
    ];
    assert_eq!(lines, expected);
    // Although the application has no table of failed jobs.
    let dead = wait_for("the dead letter", || {
        let dead = server.steer(&["jobs", "dead"]).stdout;
        dead.contains("Line").then_some(dead)
    });
    assert!(dead.contains("on purpose"), "{dead}");
    assert_eq!(dead.matches("Line").count(), 1, "{dead}");
    assert_eq!(server.get("/api/hello/you").text(), r#"{"hello":"you"}"#);
    server.stop();
}

#[test]
fn the_configuration_that_is_installed_serves_what_is_linked() {
    let stub = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../php/laravel/stubs/pronghorn.yaml"
    );
    let worker = Site::fixture("foreign/worker.php");
    let config = fs::read_to_string(stub).expect("it is there");
    let config = config
        .replace(
            "vendor/bin/pronghorn-laravel",
            &worker.display().to_string(),
        )
        .replace("127.0.0.1:8000", "127.0.0.1:0");
    let site = Site::new()
        .file("public/robots.txt", "robots")
        .file("storage/app/public/a.txt", "linked")
        .file("storage/app/secret.txt", "secret");
    for (link, to) in [("storage", "app/public"), ("all", "app")] {
        let link = site.path("public").join(link);
        symlink(format!("../storage/{to}"), link).expect("a link can be made");
    }
    let server = Server::start(site.config(&config));
    assert_eq!(server.get("/robots.txt").text(), "robots");
    assert_eq!(server.get("/storage/a.txt").text(), "linked");
    assert!(!server.get("/all/secret.txt").text().contains("secret"));
    server.stop();
}

#[test]
fn a_configuration_that_was_cached_elsewhere_is_said() {
    let site = copy("laravel");
    let cached = php_command("php")
        .args(["artisan", "config:cache"])
        .current_dir(site.folder())
        .output();
    assert!(cached.unwrap().status.success());
    let file = "bootstrap/cache/config.php";
    let moved = site
        .read(file)
        .replace(&site.folder().display().to_string(), "/srv/elsewhere");
    site.write(file, &moved);
    let ended = Server::run(&site, &["serve", "-c", "pronghorn.yaml"]);
    assert_eq!(ended.code, Some(1));
    for part in [
        "The configuration was cached in another folder: there is no /srv/elsewhere/resources/views.",
        "hint: `php artisan config:cache` here",
    ] {
        assert!(ended.stderr.contains(part), "{}", ended.stderr);
    }
    // A copy, as of a release before, and what it was copied from is still there.
    let before = copy("laravel");
    let old = before.folder().display().to_string();
    fs::create_dir_all(before.path("storage/framework/views")).expect("a folder can be made");
    site.write(file, &moved.replace("/srv/elsewhere", &old));
    let ended = Server::run(&site, &["serve", "-c", "pronghorn.yaml"]);
    assert_eq!(ended.code, Some(1), "{}", ended.stderr);
    let told = format!("its views would be those of {old}/resources/views.");
    assert!(ended.stderr.contains(&told), "{}", ended.stderr);
}

#[test]
fn workers_of_laravel_share_cache_and_locks_and_log_into_the_servers() {
    for transport in ["ring", "relay"] {
        if transport == "ring" {
            extension();
        }
        let site = Site::new();
        let config = format!(
            "version: '3'\nserver: {{command: php {}, env: {{{DATA}: '{}'}}}}\n\
             http: {{address: 127.0.0.1:0, pool: {{num_workers: 2, transport: {transport}}}}}\n\
             rpc: {{listen: 'unix://{}'}}\nlogs: {{mode: production, level: info}}\n\
             kv: {{cache: {{driver: memory, config: {{max_size: 32MB}}}}}}\n",
            Site::fixture("laravel-cache.php").display(),
            site.path("data").display(),
            site.path("rpc.sock").display(),
        );
        let server = Server::start(site.config(&config));
        let mut clients: Vec<_> = (0..2).map(|_| server.connect()).collect();
        for client in &mut clients {
            client.request("GET", "/cache/locked", "");
        }
        let said: BTreeSet<_> = clients
            .iter_mut()
            .map(|client| client.response().text())
            .collect();
        assert_eq!(said, ["done".into(), "taken".into()].into());
        assert_eq!(server.get("/cache/locked").text(), "done");
        for visit in 1..=20 {
            let said = server.get("/cache/count").text();
            assert_eq!(said.split(' ').next(), Some(&*visit.to_string()));
        }
        assert_eq!(server.get("/cache/once").text(), "first");
        assert_eq!(server.steer(&["reset"]).code, Some(0));
        assert_eq!(server.get("/cache/once").text(), "later");
        let dumped = server.get("/dd").text();
        assert!(
            dumped.contains("sf-dump-str") && dumped.contains("the page"),
            "{dumped}"
        );
        // Each page has the styles and the script of its own.
        for _ in 0..2 {
            let page = server.get("/dump").text();
            let is_whole = page.starts_with("<script>") && page.ends_with("<p>the page</p>");
            assert!(is_whole && page.contains("the dump"), "{page}");
        }
        assert_eq!(server.get("/cache/once").text(), "later", "without a dump");
        server.get("/cache/log");
        server.logged(&[
            "\"logger\":\"app\"",
            "Cart 7 is lost.",
            "\"extra\":{\"tenant\":\"blue\"}",
        ]);
        for not in ["Not this.", "the dump"] {
            assert!(!server.log().contains(not), "{not}");
        }
        server.stop();
    }
}

/// A process for each request, forked from one that has answered pages: the last one has exited
/// behind its reply, and has left what it could.
#[test]
fn an_application_has_answered_before_its_workers_are_forked() {
    extension();
    let kept = one_worker("laravel-ends.php", "ring");
    let clean = kept.get("/clean").text();
    kept.stop();
    let site = Site::new();
    let pool = "num_workers: 2, spawn: fork, max_jobs: 1, warmup: [/, /api/users, /behind]";
    let config = format!(
        "version: '3'\nserver: {{command: php {}, env: {{{DATA}: '{}'}}}}\n\
         http: {{address: 127.0.0.1:0, pool: {{{pool}}}}}\n",
        Site::fixture("laravel-ends.php").display(),
        site.path("data").display(),
    );
    let server = Server::start(site.config(&config));
    // Compiled by then.
    let views = fs::read_dir(server.site().path("data/laravel/views"));
    assert!(views.is_ok_and(|mut views| views.next().is_some()));
    for _ in 0..3 {
        assert_eq!(server.get("/clean").text(), clean);
    }
    let mut visitors = [Browser::new(&server), Browser::new(&server)];
    for visit in 1..=3 {
        for visitor in &mut visitors {
            let page = visitor.get("/").text();
            assert!(
                page.contains(&format!("Visit {visit} of a guest")),
                "{page}"
            );
        }
    }
    assert!(server.get("/api/users").text().contains("\"id\":1"));
    // The process between it and a worker looks like it for a moment.
    wait_for("one zygote", || (server.zygotes().len() == 1).then_some(()));
    let ended = server.stop();
    for trouble in ["failed before the fork", "in spite of", "\tERROR\t"] {
        assert!(!ended.stderr.contains(trouble), "{}", ended.stderr);
    }
}

/// Laravel 11's defaults, and what the guide recommends: a page of the boot opens connections that
/// no two processes may share.
#[test]
fn an_application_with_sessions_and_cache_in_a_database_is_forked() {
    extension();
    let site = Site::new();
    let pool = "num_workers: 2, spawn: fork, max_jobs: 1, warmup: [/]";
    let config = format!(
        "version: '3'\nserver: {{command: php {}, env: {{{DATA}: '{}'}}}}\n\
         http: {{address: 127.0.0.1:0, pool: {{{pool}}}}}\n",
        Site::fixture("laravel-database.php").display(),
        site.path("data").display(),
    );
    let server = Server::start(site.config(&config));
    let mut visitors = [Browser::new(&server), Browser::new(&server)];
    for visit in 1..=3 {
        for visitor in &mut visitors {
            let page = visitor.get("/").text();
            let told = format!("Visit {visit} of a guest");
            assert!(page.contains(&told), "{page}");
        }
    }
    let mut processes = BTreeSet::new();
    for visit in 1..=3 {
        let told = json(&server.get("/boots"));
        let boots = told["boots"].as_array().map(Vec::len);
        assert_eq!(boots, Some(1), "each process is forked: {told}");
        assert_eq!(told["visits"], visit, "{told}");
        processes.insert(told["process"].as_u64());
    }
    assert_eq!(processes.len(), 3, "one for each request");
    wait_for("one zygote", || (server.zygotes().len() == 1).then_some(()));
    let ended = server.stop();
    for trouble in ["failed before the fork", "in spite of", "\tERROR\t"] {
        assert!(!ended.stderr.contains(trouble), "{}", ended.stderr);
    }
}

/// The worker of a fixture, alone in its pool.
fn one_worker(fixture: &str, transport: &str) -> Server {
    let site = Site::new();
    let config = format!(
        "version: '3'\nserver: {{command: php {}, env: {{{DATA}: '{}'}}}}\n\
         http: {{address: 127.0.0.1:0, pool: {{num_workers: 1, transport: {transport}}}}}\n\
         logs: {{mode: production, level: info}}\n",
        Site::fixture(fixture).display(),
        site.path("data").display(),
    );
    Server::start(site.config(&config))
}

#[test]
fn an_exit_in_middleware_or_behind_the_reply_leaves_nothing_for_the_next_visitor() {
    extension(); // or each exit ends its worker
    let server = one_worker("laravel-ends.php", "ring");
    let (clean, workers) = (server.get("/clean").text(), server.workers());
    assert!(clean.starts_with("[false,\"en\",null,"), "{clean}");
    for (path, said) in [("/exit", "closed"), ("/behind", "sent")] {
        for _ in 0..2 {
            assert_eq!(server.get(path).text(), said);
            assert_eq!(server.get("/clean").text(), clean, "after {path}");
        }
    }
    assert_eq!(server.workers(), workers);
    server.stop();
}

#[test]
fn what_destructors_do_behind_a_request_is_gone() {
    extension();
    let server = one_worker("laravel-ends.php", "ring");
    let (clean, workers) = (server.get("/clean").text(), server.workers());
    for place in [
        "container",
        "again",
        "call",
        "superglobal",
        "buffer",
        "handler",
    ] {
        for deed in ["", "throws", "exits", "throws", "exits"] {
            if place == "buffer" && !deed.is_empty() {
                continue; // its object goes within the request
            }
            let path = format!("/late/{place}?deed={deed}");
            assert_eq!(server.get(&path).text(), "later", "{path}");
            assert_eq!(server.get("/clean").text(), clean, "of the {path}");
            assert_eq!(server.workers(), workers, "{path}: {}", server.log());
        }
    }
    // Two of each place in the application.
    let log = server.log();
    assert!(log.matches("late on purpose").count() >= 6, "{log}");
    server.stop();
}

/// What a request leaves goes back, or its process ends; what it has deferred is done.
fn ends_for_good(transport: &str, spawn: &str) {
    let site = Site::new();
    let done = site.path("data.done");
    let config = format!(
        "version: '3'\nserver: {{command: php {}, env: {{{DATA}: '{}', DATA: '{}'}}}}\n\
         http: {{address: 127.0.0.1:0, pool: {{num_workers: 1, transport: {transport}, spawn: {spawn}}}}}\n",
        Site::fixture("laravel-ends.php").display(),
        site.path("data").display(),
        site.path("data").display(),
    );
    let server = Server::start(site.config(&config));
    let clean = server.get("/clean").text();
    let process = server.get("/process").text();
    // Its connection is fine, and all else goes back.
    assert_eq!(server.get("/ended").text(), "ended");
    assert_eq!(server.get("/clean").text(), clean);
    assert_eq!(server.get("/process").text(), process);
    let mut processes = BTreeSet::from([process]);
    for how in ["throws", "exits"] {
        if (transport, how) == ("relay", "exits") {
            continue; // an exit ends the process there
        }
        // The next request is ahead of the end of the last one.
        let mut client = server.connect();
        client.request("GET", &format!("/stuck/{how}"), "");
        let mut next = server.connect();
        next.request("POST", "/clean", "Content-Length: 0\r\n");
        assert_eq!(client.response().text(), "sent", "{transport} {spawn}");
        let next = next.response();
        assert!(
            next.status == 405 || transport == "relay",
            "{transport} {spawn}: {}",
            next.status
        );
        assert_eq!(server.get("/clean").text(), clean, "{transport} {spawn}");
        assert!(processes.insert(server.get("/process").text()), "{how}");
        let done = fs::read_to_string(&done).expect("it was deferred");
        assert!(done.ends_with(&format!("{how}\n")), "{done}");
    }
    server.logged(&["this process ends with GET /stuck/throws", "on purpose"]);
    server.stop();
}

#[test]
fn a_worker_whose_application_cannot_go_back_ends_before_the_next_request() {
    extension();
    ends_for_good("ring", "exec");
    ends_for_good("ring", "fork");
    ends_for_good("relay", "exec");
}

#[test]
fn what_is_printed_stands_before_the_response() {
    for transport in ["ring", "relay"] {
        if transport == "ring" {
            extension();
        }
        let server = one_worker("laravel-ends.php", transport);
        let reply = server.get("/early");
        assert_eq!(
            (reply.status, reply.text().as_str()),
            (201, "printed earlythe page")
        );
        assert_eq!(reply.header("x-laravel"), Some("1"));
        assert!(!server.log().contains("printed early"));
        // Of PHP's own headers the extension alone knows.
        if transport == "ring" {
            assert_eq!(reply.header("x-php"), Some("1"));
        }
        server.stop();
    }
}

/// What a request leaves on its connection does not reach the next one, and one that is as it was
/// goes on: opened at the boot, by a request, or by a forked worker.
#[test]
fn a_connection_goes_on_with_nothing_of_a_visitor() {
    extension();
    let site = Site::new();
    let _database = wordpress::new_database(&site);
    let socket = site.path("database/socket");
    wait_for("the database", || {
        UnixStream::connect(&socket).is_ok().then_some(())
    });
    for (boot, spawn) in [("0", "exec"), ("1", "exec"), ("1", "fork")] {
        let config = format!(
            "version: '3'\nserver: {{command: php {}, env: {{{DATA}: '{}', SOCKET: '{}', BOOT: '{boot}'}}}}\n\
             http: {{address: 127.0.0.1:0, pool: {{num_workers: 1, spawn: {spawn}}}}}\n",
            Site::fixture("laravel-mariadb.php").display(),
            site.path("data").display(),
            socket.display(),
        );
        let server = Server::start(Site::new().config(&config));
        let workers = server.workers();
        let mut before = json(&server.get("/write"));
        for (way, goes_on) in [
            ("nothing", true),
            ("transaction", true),
            ("prefix", true),
            ("pdo", false),
            ("read-pdo", false),
            ("sql", false),
            ("sql-of-pdo", false),
            ("no-auto-commit", false),
            ("no-auto-commit-of-pdo", false),
            ("implicit-commit", false),
            ("lock", false),
            ("named-lock", false),
            ("variables", false),
            ("attributes", false),
            ("schema", false),
            ("killed", false),
        ] {
            let left = server.get(&format!("/leave/{way}"));
            assert_eq!(left.text(), "left", "{way}");
            let after = json(&server.get("/write"));
            assert_eq!(after["kept"], 1, "{way}, {boot}, {spawn}: {after}");
            for part in ["session", "lock"] {
                assert_eq!(after[part], before[part], "{way}: {after}");
            }
            let went_on = after["connection"] == before["connection"];
            assert_eq!(went_on, goes_on, "{way}: {after}, before {before}");
            before = after;
        }
        assert_eq!(server.workers(), workers);
        let ended = server.stop();
        assert!(!ended.stderr.contains("\tERROR\t"), "{}", ended.stderr);
    }
}
