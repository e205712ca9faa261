//! Symfony's runtime component runs an application in workers that keep it.

use std::collections::BTreeSet;
use std::fs;

use pronghorn_testkit::{Server, Site, php_command, wait_for};

use crate::apps::Browser;
use crate::ring::extension;
use crate::wordpress;

fn start(options: &str) -> Server {
    let site = Site::new();
    let config = format!(
        "version: '3'\nserver:\n  command: php {}\n  \
         env: {{DATA: '{}', APP_RUNTIME: 'Pronghorn\\Symfony\\Runtime', OPTIONS: '{options}'}}\n\
         http:\n  address: 127.0.0.1:0\n  pool: {{num_workers: 1}}\n",
        Site::fixture("symfony.php").display(),
        site.path("data").display(),
    );
    Server::start(site.config(&config))
}

/// What the application says for each of these paths; a failure is its status.
fn ask(server: &Server, paths: &[&str]) -> Vec<String> {
    let answers = paths.iter().map(|path| server.get(path));
    let texts = answers.map(|answer| match answer.status {
        200 => answer.text(),
        status => status.to_string(),
    });
    texts.collect()
}

#[test]
fn a_kernel_is_kept_and_its_services_are_reset() {
    let server = start("{}");
    assert_eq!(
        ask(&server, &["/", "/", "/fail", "/"]),
        [
            "1 calls, 1 goods",
            "2 calls, 1 goods",
            "500",
            "4 calls, 1 goods"
        ]
    );
    let mut client = server.connect();
    client.request("GET", "/file", "Range: bytes=2-4\r\n");
    let part = client.response();
    assert_eq!((part.status, part.text().as_str()), (206, "php"));
    server.stop();
}

/// A worker of the application that tells what it finds.
fn start_state(sessions: &str) -> Server {
    extension(); // or nothing sets PHP's own state back
    let site = Site::new();
    let config = format!(
        "version: '3'\nserver: {{command: php {}, env: {{DATA: '{}', SESSIONS: {sessions}}}}}\n\
         http: {{address: 127.0.0.1:0, pool: {{num_workers: 1}}}}\n",
        Site::fixture("symfony-state.php").display(),
        site.path("data").display(),
    );
    Server::start(site.config(&config))
}

#[test]
fn what_a_request_leaves_in_php_and_in_symfony_is_gone() {
    let server = start_state("factory");
    let workers = server.workers();
    let before = server.get("/state");
    let paths = [
        ("/change", 200),
        ("/throw", 500),
        ("/exit", 200),
        ("/late", 200),
        ("/late-reboot", 200),
    ];
    for (path, status) in paths {
        for _ in 0..2 {
            assert_eq!(server.get(path).status, status, "{path}");
            let after = server.get("/state");
            assert_eq!(after.text(), before.text(), "after {path}");
            assert_eq!(after.header("x-of-a-visitor"), None, "after {path}");
        }
    }
    assert_eq!(server.workers(), workers);
    server.stop();
}

#[test]
fn a_destructor_that_ends_badly_behind_a_request_ends_no_worker() {
    let server = start_state("factory");
    let workers = server.workers();
    let before = server.get("/state");
    for path in ["/late", "/late-reboot", "/late-static"] {
        for deed in ["throws", "exits", "throws", "exits"] {
            let path = format!("{path}?deed={deed}");
            assert_eq!(server.get(&path).status, 200, "{path}");
            let after = server.get("/state");
            assert_eq!(after.text(), before.text(), "after {path}");
            assert_eq!(server.workers(), workers, "{path}: {}", server.log());
        }
    }
    let log = server.log();
    assert!(log.matches("late on purpose").count() >= 6, "{log}");
    server.stop();
}

/// Symfony 5.4 sets PHP up for sessions once, whichever way they are made.
#[test]
fn sessions_are_their_visitors_in_each_request() {
    for sessions in ["factory", "service"] {
        let server = start_state(sessions);
        let mut visitors = [Browser::new(&server), Browser::new(&server)];
        for visit in 1..=3 {
            for visitor in &mut visitors {
                assert_eq!(visitor.get("/visit").text(), format!("VISITS {visit}"));
            }
            // The kernel boots anew behind it.
            server.get("/exit");
        }
        server.stop();
    }
}

/// Each page has the styles and the script of its own.
#[test]
fn what_is_dumped_is_in_the_page() {
    extension(); // or each `dd()` ends its worker
    let server = start("{}");
    for _ in 0..2 {
        let page = server.get("/dump").text();
        let is_whole = page.starts_with("<script>") && page.ends_with("<p>the page</p>");
        assert!(is_whole && page.contains("the dump"), "{page}");
        let page = server.get("/dd").text();
        assert!(
            page.starts_with("<script>") && page.contains("the dump"),
            "{page}"
        );
    }
    assert!(server.get("/").text().ends_with("goods"));
    assert!(!server.log().contains("the dump"), "{}", server.log());
    server.stop();
}

/// The count is of a service that nobody resets, the goods are of one that Symfony does.
#[test]
fn a_kernel_has_answered_before_its_workers_are_forked() {
    extension();
    let site = Site::new();
    let config = format!(
        "version: '3'\nserver:\n  command: php {}\n  \
         env: {{DATA: '{}', APP_RUNTIME: 'Pronghorn\\Symfony\\Runtime'}}\n\
         http:\n  address: 127.0.0.1:0\n  \
         pool: {{num_workers: 2, spawn: fork, max_jobs: 1, warmup: [/, /]}}\n",
        Site::fixture("symfony.php").display(),
        site.path("data").display(),
    );
    let server = Server::start(site.config(&config));
    assert_eq!(ask(&server, &["/", "/", "/"]), ["3 calls, 1 goods"; 3]);
    // The process between it and a worker looks like it for a moment.
    wait_for("one zygote", || (server.zygotes().len() == 1).then_some(()));
    server.stop();
}

#[test]
fn a_kernel_boots_anew_after_an_exception_or_so_many_requests() {
    let server = start(r#"{"reboot": "exception"}"#);
    assert_eq!(
        ask(&server, &["/", "/fail", "/", "/"]),
        [
            "1 calls, 1 goods",
            "500",
            "1 calls, 1 goods",
            "2 calls, 1 goods"
        ]
    );
    server.stop();
    let server = start(r#"{"reboot": 2}"#);
    assert_eq!(
        ask(&server, &["/", "/", "/", "/", "/"]),
        [1, 2, 1, 2, 1].map(|calls| format!("{calls} calls, 1 goods"))
    );
    server.stop();
}

/// An `exit` skips even `finally`, so the kernel would keep the request of that visitor, and reset
/// nothing any more.
#[test]
fn an_exit_in_middleware_or_behind_the_reply_leaves_nothing_for_the_next_visitor() {
    extension(); // or each exit ends its worker
    let server = start("{}");
    let workers = server.workers();
    for _ in 0..2 {
        assert_eq!(
            ask(&server, &["/exit", "/", "/behind", "/"]),
            [
                "closed",
                "1 calls, 1 goods",
                "2 calls, 1 goods",
                "3 calls, 1 goods"
            ]
        );
    }
    assert_eq!(server.workers(), workers);
    server.stop();
}

#[test]
fn a_worker_whose_services_cannot_be_reset_ends_before_the_next_request() {
    extension();
    let server = start("{}");
    let mut workers = server.workers();
    for how in ["throws", "exits", "shutdown"] {
        assert_eq!(
            ask(&server, &[&format!("/stuck/{how}"), "/", "/"]),
            ["sent", "1 calls, 1 goods", "2 calls, 1 goods"],
            "{how}"
        );
        let before = std::mem::replace(&mut workers, server.workers());
        assert_ne!(before, workers, "{how}");
    }
    let log = server.log();
    assert_eq!(log.matches("this process ends with GET /stuck/").count(), 3);
    server.stop();
}

#[test]
fn what_is_printed_stands_before_the_response() {
    let server = start("{}");
    let reply = server.get("/early");
    assert_eq!(
        (reply.status, reply.text().as_str()),
        (201, "printed earlythe page")
    );
    assert_eq!(reply.header("x-symfony"), Some("1"));
    assert!(!server.log().contains("printed early"));
    server.stop();
}

#[test]
fn an_endless_stream_ends_with_its_client() {
    let server = start("{}");
    let mut client = server.connect();
    client.request("GET", "/events", "");
    assert_eq!(client.head().0, 200);
    assert_eq!(client.chunk().as_deref(), Some(&b"data: x\n\n"[..]));
    drop(client);
    let next = wait_for("the worker", || Some(server.get("/")));
    assert_eq!(next.text(), "2 calls, 1 goods");
    assert!(!server.log().contains("data: x"), "{}", server.log());
    server.stop();
}

#[test]
fn messenger_cache_and_locks_are_the_servers() {
    for transport in ["ring", "relay"] {
        if transport == "ring" {
            extension();
        }
        let site = Site::new();
        let script = Site::fixture("symfony-services.php");
        let (ran, data, rpc) = (site.path("ran"), site.path("data"), site.path("rpc.sock"));
        let config = format!(
            "version: '3'\nserver: {{command: php {}, env: {{RAN: '{}', DATA: '{}'}}}}\n\
             http: {{address: 127.0.0.1:0, pool: {{num_workers: 2, transport: {transport}}}}}\n\
             rpc: {{listen: 'unix://{}'}}\nlogs: {{mode: production, level: info}}\n\
             kv: {{cache: {{driver: memory, config: {{max_size: 32MB}}}}}}\n\
             jobs:\n  pool: {{num_workers: 1}}\n  consume: [lines]\n  pipelines: {{lines: {{driver: memory}}}}\n",
            script.display(),
            ran.display(),
            data.display(),
            rpc.display(),
        );
        let server = Server::start(site.config(&config));
        let sent = php_command("php")
            .arg(&script)
            .arg("send")
            .env("RR_RPC", format!("unix://{}", rpc.display()))
            .env("DATA", &data)
            .env("RAN", &ran)
            .status();
        assert!(sent.unwrap().success());
        assert_eq!(server.get("/send").text(), "sent");
        let lines = wait_for("messages to be handled", || {
            let text = fs::read_to_string(&ran).unwrap_or_default();
            (text.lines().count() == 6).then_some(text)
        });
        let mut lines: Vec<_> = lines.lines().collect();
        lines.sort_unstable();
        // Symfony's own retry strategy has sent one anew.
        let handled = ["exits", "fails", "fails", "from a request", "later", "one"];
        assert_eq!(
            lines,
            handled.map(|text| format!("{text}, 1 since the reset"))
        );
        wait_for("the dead letter", || {
            let dead = server.steer(&["jobs", "dead"]).stdout;
            dead.contains("on purpose").then_some(())
        });

        let mut clients: Vec<_> = (0..2).map(|_| server.connect()).collect();
        for client in &mut clients {
            client.request("GET", "/locked", "");
        }
        let said: BTreeSet<_> = clients
            .iter_mut()
            .map(|client| client.response().text())
            .collect();
        assert_eq!(said, ["done".into(), "taken".into()].into());
        for visit in 1..=10 {
            assert_eq!(server.get("/count").text(), visit.to_string());
        }
        server.stop();
    }
}

#[test]
fn a_closed_entity_manager_and_a_lost_connection_are_made_anew() {
    let site = Site::new();
    let mut database = wordpress::new_database(&site);
    let config = format!(
        "version: '3'\nserver: {{command: php {}, env: {{DATA: '{}', SOCKET: '{}'}}}}\n\
         http: {{address: 127.0.0.1:0, pool: {{num_workers: 1}}}}\n",
        Site::fixture("symfony-doctrine.php").display(),
        site.path("data").display(),
        site.path("database/socket").display(),
    );
    let server = Server::start(site.config(&config));
    wait_for("the database", || {
        (server.get("/schema").status == 200).then_some(())
    });
    let workers = server.workers();
    let visits = |count: usize| format!("{count} visits, 0 known before");
    assert_eq!(ask(&server, &["/", "/"]), [visits(1), visits(2)]);
    // The constraint has closed the manager; the first of the two stays.
    assert_eq!(ask(&server, &["/twice", "/"]), ["500", &visits(4)]);
    assert_eq!(ask(&server, &["/open", "/"]), ["done", &visits(5)]);
    for left in [
        "/open-native",
        "/open-sql",
        "/no-auto-commit",
        "/implicit-commit",
    ] {
        let said = ask(&server, &[left, "/", "/count", "/delete-last"]);
        assert_eq!(said, ["done", &visits(6), "6", "done"], "after {left}");
    }
    assert_eq!(ask(&server, &["/killed", "/"]), ["500", &visits(6)]);
    assert_eq!(ask(&server, &["/killed-open", "/"]), ["done", &visits(7)]);
    // Only a query tells that a connection is lost: one visitor hears of it.
    assert_eq!(
        ask(&server, &["/killed-behind", "/", "/"]),
        ["done", "500", &visits(8)]
    );
    database.stop();
    assert_eq!(ask(&server, &["/", "/"]), ["500", "500"]);
    database.restart();
    wait_for("the database", || {
        let reply = server.get("/");
        (reply.status == 200).then(|| assert_eq!(reply.text(), visits(9)))
    });
    assert_eq!(server.workers(), workers);
    server.stop();
}
