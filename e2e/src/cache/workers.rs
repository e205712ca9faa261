//! Workers of a server that write, read, count, remember, lock and have sessions, and are killed
//! while they do so.

use std::fs;

use pronghorn_testkit::{Server, Site};
use serde_json::Value;

use crate::faults::{Killer, clients_for};
use crate::load::Load;

const WORKERS: usize = 4;

/// Kept workers, and scripts in workers that were forked.
pub const POOLS: [&str; 2] = ["transport: ring", "mode: classic, root: public"];

/// What came of a run.
#[derive(Debug)]
pub struct Survived {
    pub requests: u64,
    /// Increments of one number, and steps of sessions.
    pub sums: u64,
    pub visits: u64,
}

/// Kills so many workers of a pool, one after the other.
///
/// # Panics
///
/// When a value is torn, two workers are where one may be, an increment or a step of a session is
/// lost or counted twice, or a client does not get its reply.
pub fn kill_workers_at_random(pool: &str, kills: usize) -> Survived {
    let server = Server::start(site(pool));
    assert_eq!(server.get("/?begin").text(), "begun", "{pool}");
    let load = Load::start(server.address(), clients_for(WORKERS));
    load.let_all_be_answered();
    let mut killer = Killer::new(WORKERS);
    for _ in 0..kills {
        killer.kill_one(&server, &load);
    }
    let (tally, failures) = load.finish();
    let wrong = fs::read_to_string(server.site().path("wrong")).unwrap_or_default();
    assert!(wrong.is_empty(), "{pool}: {wrong}");
    assert!(failures.is_empty(), "{pool}: {failures:?}");

    let totals = server.get("/?totals").text();
    let totals: Value = serde_json::from_str(&totals).expect(&totals);
    let [sums, visits] = ["sums", "visits"].map(|name| totals[name].as_u64().expect("a number"));
    let [noted_sums, noted_visits] = noted(&server);
    // What a killed worker was just doing is done or not.
    let may_be = |noted: u64| noted..=noted + kills as u64;
    assert!(
        may_be(noted_sums).contains(&sums),
        "{pool}: {noted_sums} increments, and the sum is {sums}"
    );
    assert!(
        may_be(noted_visits).contains(&visits),
        "{pool}: {noted_visits} visits, and sessions have {visits}"
    );
    let shown = server.steer(&["cache", "--json"]).stdout;
    let shown: Value = serde_json::from_str(&shown).expect(&shown);
    for storage in shown["storages"].as_array().expect("a list") {
        assert_eq!(storage["memory"]["evictions"], 0, "{pool}: {storage}");
    }
    server.stop();
    Survived {
        requests: tally.answered,
        sums,
        visits,
    }
}

fn site(pool: &str) -> Site {
    let work = Site::fixture("cache-work.php").display().to_string();
    let index = format!(
        "<?php
        require_once '{work}';
        if (isset($_GET['begin'])) {{
            Work::begin(dirname(__DIR__));
            echo 'begun';
        }} elseif (isset($_GET['totals'])) {{
            echo Work::totals();
        }} else {{
            Work::some(dirname(__DIR__));
            echo $_GET['n'], ' ', file_get_contents('php://input');
        }}"
    );
    let worker = Site::sdk_worker("").replace(
        "function (Pronghorn\\Request $request): mixed {\n\n}",
        "fn () => require 'public/index.php'",
    );
    let ini = "session.save_handler: pronghorn, session.use_strict_mode: '0', session.use_cookies: '0', \
               session.cache_limiter: ''";
    let storage = "{driver: memory, config: {max_size: 8MB}}";
    Site::new()
        .file("worker.php", &worker)
        .file("public/index.php", &index)
        .config(&format!(
            "version: '3'\nserver: {{command: php worker.php}}\n\
             http: {{address: 127.0.0.1:0, pool: {{num_workers: {WORKERS}, {pool}, ini: {{{ini}}}}}}}\n\
             rpc: {{listen: 'unix://rpc.sock'}}\n\
             kv: {{counts: {storage}, values: {storage}, sessions: {storage}}}\n\
             logs: {{channels: {{http: {{level: error}}}}}}\n"
        ))
}

/// What workers were told is done: increments, and steps of sessions.
fn noted(server: &Server) -> [u64; 2] {
    let mut sums = [0, 0];
    for file in fs::read_dir(server.site().folder()).expect("a folder") {
        let file = file.expect("it is there");
        if !file.file_name().to_string_lossy().starts_with("noted-") {
            continue;
        }
        let bytes = fs::read(file.path()).expect("it can be read");
        for (sum, number) in sums.iter_mut().zip(bytes.chunks_exact(8)) {
            *sum += u64::from_le_bytes(number.try_into().expect("eight bytes"));
        }
    }
    sums
}
