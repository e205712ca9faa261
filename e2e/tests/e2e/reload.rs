//! SIGHUP: new workers, and what changed of the configuration, under load.

use pronghorn_testkit::{Load, Server, Site, wait_for};
use rustix::process::Signal;

/// Replies with the number that was asked for, after the name of its release.
pub(crate) fn release(name: &str) -> String {
    Site::sdk_worker(&format!("return '{name} ' . $request->query()['n'];"))
}

pub(crate) fn site() -> Site {
    Site::new()
        .file("worker.php", &release("one"))
        .config("version: '3'\nserver: {command: php worker.php}\nhttp: {address: 127.0.0.1:0, pool: {num_workers: 2}}\nlogs: {channels: {http: {level: error}}}\n")
}

fn answer(server: &Server) -> String {
    server.get("/number?n=0").text()
}

#[test]
fn new_code_is_served_after_sighup_and_no_request_is_lost() {
    let server = Server::start(site());
    let load = Load::start(server.address());
    load.go_on(50);
    for name in ["two", "three"] {
        server.site().write("worker.php", &release(name));
        let before = server.workers();
        server.signal(Signal::HUP);
        wait_for("the new code", || {
            (answer(&server) == format!("{name} 0")).then_some(())
        });
        load.go_on(50);
        wait_for("the old workers to end", || {
            let now = server.workers();
            (now.len() == 2 && before.iter().all(|pid| !now.contains(pid))).then_some(())
        });
    }
    load.finish();
    server.stop();
}

#[test]
fn code_that_does_not_boot_leaves_the_workers_that_are_there() {
    let server = Server::start(site());
    let before = server.workers();
    let load = Load::start(server.address());
    server
        .site()
        .write("worker.php", "<?php exit('no database');");
    server.signal(Signal::HUP);
    server.logged(&["worker ended before it was ready"]);
    server.logged(&["not reloaded: the workers that were there go on"]);
    load.go_on(20);
    load.finish();
    assert_eq!(server.workers(), before);
    server.site().write("worker.php", &release("two"));
    server.signal(Signal::HUP);
    wait_for("the mended code", || {
        (answer(&server) == "two 0").then_some(())
    });
    server.stop();
}
