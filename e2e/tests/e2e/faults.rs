//! Kills, reloads and upgrades under load, and clients that leave: the short form of `make soak`.

use pronghorn_e2e::faults::{
    Killer, clients_for, deaths, for_a_while, leave_at_every_step, leaving_site, reload,
    reload_to_broken_code, site, site_of_scripts,
};
use pronghorn_e2e::load::Load;
use pronghorn_e2e::ring::extension;
use pronghorn_testkit::{Server, wait_for};
use rustix::process::Signal;

const WORKERS: usize = 4;

fn start() -> (Server, Load) {
    let server = Server::start(site(WORKERS, ""));
    let load = Load::start(server.address(), clients_for(WORKERS));
    load.let_all_be_answered();
    (server, load)
}

#[test]
fn killed_workers_cost_no_safe_request() {
    let (server, load) = start();
    let mut killer = Killer::new(WORKERS);
    let kills = for_a_while(|| killer.kill_one(&server, &load));
    let (tally, failures) = load.finish();
    let log = server.stop().stderr;
    let (busy, idle) = deaths(&log);
    assert_eq!(failures, Vec::<String>::new(), "{log}");
    assert_eq!(busy + idle, kills, "{log}");
    assert!(
        tally.lost <= busy as u64,
        "{tally:?}, {busy} died with a call"
    );
}

#[test]
fn reloads_cost_no_request() {
    let (server, load) = start();
    for_a_while(|| {
        reload(&server, &load, WORKERS);
    });
    reload_to_broken_code(&server, &load);
    reload(&server, &load, WORKERS);
    let (tally, failures) = load.finish();
    let log = server.stop().stderr;
    assert_eq!((failures, tally.lost), (Vec::new(), 0), "{log}");
}

/// Scripts of a pool with these keys, whose workers are killed and then replaced, all under load.
fn of_scripts(pool: &str) {
    let server = Server::start(site_of_scripts(WORKERS, pool));
    let load = Load::start(server.address(), clients_for(WORKERS));
    load.let_all_be_answered();
    let mut killer = Killer::new(WORKERS);
    let kills = for_a_while(|| killer.kill_one(&server, &load));
    wait_for("all workers to be there again", || {
        (server.workers().len() == WORKERS).then_some(())
    });
    load.let_all_be_answered();
    let lost = load.tally().lost;
    for_a_while(|| {
        reload(&server, &load, WORKERS);
    });
    let (tally, failures) = load.finish();
    let log = server.stop().stderr;
    let (busy, idle) = deaths(&log);
    assert_eq!(failures, Vec::<String>::new(), "{log}");
    assert_eq!(busy + idle, kills, "{log}");
    assert!(lost <= busy as u64, "{lost}, {busy} died with a call");
    assert_eq!(tally.lost, lost, "reloads lose nothing");
}

#[test]
fn killed_workers_and_reloads_cost_no_safe_request_of_scripts() {
    let extension = extension().display().to_string();
    of_scripts(&format!(
        "mode: classic, php: 'php -d extension={extension}'"
    ));
}

#[test]
fn killed_processes_of_php_cgi_and_reloads_cost_no_safe_request() {
    of_scripts("mode: fastcgi");
}

#[test]
fn upgrades_cost_no_request() {
    let (mut server, load) = start();
    for_a_while(|| {
        server.upgrade();
        load.let_all_be_answered();
    });
    let (tally, failures) = load.finish();
    let log = server.stop().stderr;
    assert_eq!((failures, tally.lost), (Vec::new(), 0), "{log}");
}

#[test]
fn workers_may_die_while_they_are_replaced() {
    let (mut server, load) = start();
    let mut killer = Killer::new(WORKERS);
    for_a_while(|| {
        killer.strike_while_replaced(&mut server, &load);
    });
    let (_, failures) = load.finish();
    let log = server.stop().stderr;
    assert_eq!(failures, Vec::<String>::new(), "{log}");
}

#[test]
fn signals_may_come_on_top_of_each_other() {
    let (mut server, load) = start();
    for_a_while(|| {
        server.signal(Signal::HUP);
        server.signal(Signal::HUP);
        server.ask_for_upgrade();
        server.signal(Signal::HUP);
        server.signal(Signal::USR2);
        server.follow_upgrade();
        load.let_all_be_answered();
    });
    let (tally, failures) = load.finish();
    let log = server.stop().stderr;
    assert_eq!((failures, tally.lost), (Vec::new(), 0), "{log}");
}

#[test]
fn a_client_that_leaves_at_any_step_leaves_no_worker_busy() {
    let server = Server::start(leaving_site(2));
    leave_at_every_step(&server, 2);
    server.stop();
}
