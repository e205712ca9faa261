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

/// With the worker that the tutorial names, which finds the socket by its own command line.
fn laravel_with_a_socket() -> (Site, String) {
    let worker = Site::fixture("foreign/rr-worker.php");
    let site = Site::new()
        .file("public/robots.txt", "User-agent: *\n")
        .file(
            "vendor/bin/rr-worker",
            &format!(
                "#!/usr/bin/env php\n<?php require '{}';\n",
                worker.display()
            ),
        );
    let socket = format!("unix://{}", site.path("run/rr-rpc.sock").display());
    let config = tutorial("tutorial-laravel.case");
    let config = config.replace("unix:///var/run/rr/rr-rpc.sock", &socket);
    assert_eq!(config.matches(&socket).count(), 2);
    (site.config(&config), socket)
}

const ANYWHERE: [&str; 3] = ["serve", "-o", "http.address=127.0.0.1:0"];

#[test]
fn the_one_for_laravel_with_a_socket() {
    let (site, socket) = laravel_with_a_socket();
    let server = Server::start_with(site, &ANYWHERE);
    serving::all(&server, &serving::Way::of(&socket, "json").old());
    let powered_by = server.get("/").header("x-powered-by").map(str::to_owned);
    assert_eq!(powered_by.as_deref(), Some("RoadRunner"));
    assert_eq!(server.get("/robots.txt").text(), "User-agent: *\n");
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
