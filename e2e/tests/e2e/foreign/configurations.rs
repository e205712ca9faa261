//! Configurations as users have them, taken from tutorials: only the worker's command, the port and
//! the place of the socket are replaced.

use std::path::Path;

use pronghorn_testkit::{Server, Site, wait_for};

use super::serving;

/// The configuration of a case in `crates/server/tests/configuration`.
fn tutorial(name: &str) -> String {
    let cases = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/server/tests/configuration");
    let case = std::fs::read_to_string(cases.join(name)).expect("the case is there");
    let (_, from) = case
        .split_once("--- file .rr.yaml\n")
        .expect("a case begins with its file");
    from.split_once("--- check")
        .expect("what is expected follows")
        .0
        .to_owned()
}

fn start(case: &str, more: &[&str]) -> Server {
    let worker = Site::fixture("foreign/worker.php");
    let command = format!("server.command=php {} start", worker.display());
    let mut arguments = vec!["serve", "-o", &command, "-o", "http.address=127.0.0.1:0"];
    arguments.extend(more);
    let site = Site::new().config(&tutorial(case));
    // Two of them serve files from there.
    let site = site.file("public/robots.txt", "User-agent: *\n");
    Server::start_with(site, &arguments)
}

#[test]
fn the_one_for_laravel_with_a_socket() {
    let server = start(
        "tutorial-laravel.case",
        &["-o", "server.relay=unix://rr.sock"],
    );
    serving::all(&server, &serving::Way::of("unix://rr.sock", "json"));
    let powered_by = server.get("/").header("x-powered-by").map(str::to_owned);
    assert_eq!(powered_by.as_deref(), Some("RoadRunner"));
    server.stop();
}

#[test]
fn the_same_tuned_to_a_hundred_workers() {
    let server = start(
        "tutorial-laravel-tuned.case",
        &["-o", "server.relay=unix://rr.sock"],
    );
    assert_eq!(server.workers().len(), 100);
    serving::requests(&server, &serving::Way::of("unix://rr.sock", "json"));
    wait_for("a record in the file that `logs.output` names", || {
        let log = std::fs::read_to_string(server.site().path("rr.log")).ok()?;
        log.contains(r#""msg":"http log""#).then_some(())
    });
    server.stop();
}

#[test]
fn the_one_for_slim_over_pipes() {
    // It logs errors only.
    let server = start("tutorial-slim.case", &[]);
    serving::without_output(&server, &serving::Way::of("pipes", "json"));
    server.stop();
}
