//! What calls leave to those after them is found, and told by its place.

use pronghorn_testkit::{Server, Site, wait_for};

use crate::ring::extension;

/// Paths of the fixture, and what is told of each.
const PLANTED: [(&str, &str, &str); 12] = [
    ("/user", "Leaky::$user", "null at first, string("),
    ("/log", "Leaky::$log", "array(0) at first, array("),
    ("/counter", "Leaky::$counter", "int, not the same"),
    ("/visit", "Leaky::$visit", "null at first, Visit now"),
    ("/locale", "Leaky::$locale", "string(2) at first, string("),
    ("/key", "Leaky::$byKey", "array(0) at first, array(1) now"),
    ("/method", "static $seen of Leaky::remember()", "array("),
    ("/function", "static $n of counted()", "int"),
    (
        "/service",
        "global $service",
        "Registry, not the same or with something else inside",
    ),
    ("/global", "global $plain", "int, not the same"),
    ("/registry", "Registry::$one", "null at first, Registry now"),
    ("/child", "Child::$own", "null at first, ArrayObject now"),
];

fn site(pool: &str) -> Site {
    extension();
    Site::new().config(&format!(
        "version: '3'\nserver: {{command: php {}}}\n\
         http: {{address: '127.0.0.1:0', pool: {{num_workers: 1{pool}}}}}\n",
        Site::fixture("leaks.php").display()
    ))
}

fn told(log: &str) -> usize {
    log.matches("keeps what a call leaves there").count()
}

#[test]
fn each_planted_leak_is_told_once_with_its_shapes_and_no_value() {
    let server = Server::start_with(site(""), &["serve", "--dev"]);
    for round in 0..5 {
        for n in 0..20 {
            // Caches are filled once for each path.
            server.get(&format!("/clean/{n}"));
        }
        for (path, ..) in PLANTED {
            if round > 0 {
                server.get(path);
            }
        }
    }
    for (path, place, shapes) in PLANTED {
        let begin = format!("{place} keeps what a call leaves there");
        let line = server.logged(&["ERROR", &begin]);
        assert!(line.contains(shapes), "{shapes} in {line}");
        assert!(
            line.contains(&format!("Three calls of `GET {path}`")),
            "{line}"
        );
        assert!(
            !line.contains("user 1") && !line.contains("locale 1"),
            "{line}"
        );
    }
    let log = server.stop().stderr;
    assert_eq!(told(&log), PLANTED.len(), "{log}");
}

#[test]
fn a_worker_that_leaks_is_replaced_where_that_is_wanted() {
    let server = Server::start(site(", leaks: recycle"));
    let first = server.get("/clean").text();
    // One call of 64 is examined.
    for _ in 0..63 {
        server.get("/clean");
    }
    assert_eq!(server.get("/clean").text(), first);
    assert_eq!(told(&server.log()), 0);
    wait_for("another worker", || {
        (server.get("/log").text() != first).then_some(())
    });
    server.logged(&["Leaky::$log keeps what a call leaves there"]);
    let log = server.stop().stderr;
    assert!(!log.contains("worker died"), "{log}");
}

#[test]
fn destructors_in_circles_run_behind_their_own_call_and_are_told() {
    let server = Server::start_with(site(""), &["serve", "--dev"]);
    for _ in 0..3 {
        let reply = server.get("/circle");
        assert_eq!((reply.status, reply.text().as_str()), (200, "circle"));
        let next = server.get("/clean");
        assert!(!next.text().contains("gone"), "{}", next.text());
        assert_eq!(next.header("x-gone"), None);
    }
    let line = server.logged(&["ERROR", "Circle::__destruct() runs in a later call"]);
    assert!(
        line.contains("`GET /circle`") && line.contains("leaks.php"),
        "{line}"
    );
    let log = server.stop().stderr;
    assert_eq!(log.matches("runs in a later call").count(), 1, "{log}");
}

/// Where the place can't be found, its route is.
#[test]
fn memory_that_each_call_of_a_route_leaves_is_told() {
    let server = Server::start_with(site(""), &["serve", "--dev"]);
    for _ in 0..120 {
        server.get("/hidden");
        server.get("/clean");
    }
    let line = server.logged(&["ERROR", "Each call of `GET /hidden` leaves "]);
    let bytes = line
        .split_once(" leaves ")
        .and_then(|(_, rest)| rest.split(' ').next());
    let bytes: usize = bytes
        .and_then(|bytes| bytes.parse().ok())
        .expect("a number");
    assert!((1000..4000).contains(&bytes), "{line}");
    let log = server.stop().stderr;
    assert_eq!(log.matches("leaves").count(), 1, "{log}");
}

#[test]
fn nothing_is_looked_for_where_nobody_wants_it() {
    let server = Server::start(site(""));
    for _ in 0..5 {
        server.get("/log");
    }
    assert_eq!(told(&server.stop().stderr), 0);
}
