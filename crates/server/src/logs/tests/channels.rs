//! Which records are written, and under which name.

use std::cell::Cell;
use std::fs;
use std::path::Path;

use pronghorn_config::{Input, Severity, load};
use tracing::level_filters::LevelFilter;
use tracing::{Subscriber, debug, error, info, trace, warn};

use super::Rig;
use crate::logs::subscriber::with_buffer;
use crate::logs::{CHANNELS, tell};
use crate::settings::Settings;

/// `message` of each raw record.
fn raw(yaml: &str, make: impl FnOnce()) -> Vec<String> {
    let records = Rig::new().records(&format!("mode: raw\n{yaml}"), make);
    records.lines().map(str::to_owned).collect()
}

#[test]
fn each_channel_has_its_level() {
    let yaml =
        "level: error\nchannels: {HTTP: {level: debug}, Pool: {level: warn}, rpc: {mode: 'off'}}";
    let records = raw(yaml, || {
        debug!(target: "http", "http debug");
        trace!(target: "http", "http trace");
        info!(target: "POOL", "pool info");
        warn!(target: "pool", "pool warn");
        error!(target: "rpc", "rpc error");
        warn!(target: "server", "server warn");
        error!(target: "server", "server error");
    });
    assert_eq!(records, ["http debug", "pool warn", "server error"]);
}

#[test]
fn a_record_without_a_channel_is_the_servers_if_it_matters() {
    let yaml = "level: debug\nmode: development\nchannels: {'h2::frame': {level: debug}}";
    let records = Rig::new().records(yaml, || {
        info!("of this module");
        info!(target: "other::codec", "a library's");
        warn!(target: "other::codec", n = 1, "a library's warning");
        warn!(target: "krafka::network::pool", "one attempt of many");
        error!(target: "lapin::io_loop", "the same connection, lost");
        error!(target: "async_nats", "the same connection, lost");
        error!(target: "async_nats::connector", "the same connection, lost");
        warn!(target: "h2::proto", "one frame of many");
        debug!(target: "h2::frame", "named in the settings");
    });
    assert_eq!(
        records,
        "2026-11-21T19:26:15+0000\tWARN\tserver      \ta library's warning\t{\"n\":1,\"target\":\"other::codec\"}\n\
         2026-11-21T19:26:15+0000\tDEBUG\th2::frame   \tnamed in the settings\n"
    );
    let records = raw("channels: {server: {level: error}}", || {
        warn!(target: "other", "a library's warning");
    });
    assert!(records.is_empty(), "the server's level holds for it");
}

#[test]
fn what_no_channel_wants_is_refused_before_it_is_made() {
    let hint = |yaml: &str| Rig::new().start(yaml).unwrap().1.max_level_hint();
    assert_eq!(hint("level: error"), Some(LevelFilter::ERROR));
    assert_eq!(
        hint("{level: error, channels: {http: {level: info}}}"),
        Some(LevelFilter::INFO)
    );
    assert_eq!(hint("mode: 'off'"), Some(LevelFilter::OFF));

    let asked = Cell::new(false);
    let records = raw("level: info\nchannels: {pool: {level: error}}", || {
        assert!(tracing::enabled!(target: "http", tracing::Level::INFO));
        assert!(!tracing::enabled!(target: "http", tracing::Level::DEBUG));
        assert!(!tracing::enabled!(target: "pool", tracing::Level::WARN));
        assert!(!tracing::enabled!(target: "h2", tracing::Level::INFO));
        assert!(tracing::span!(target: "http", tracing::Level::ERROR, "s").is_disabled());
        warn!(target: "pool", n = asked.replace(true), "unwanted");
    });
    assert!(records.is_empty() && !asked.get(), "the fields were made");
}

#[test]
fn a_record_made_while_another_is_made_has_its_own_buffer() {
    with_buffer(|outer| {
        outer.push_str("outer");
        with_buffer(|inner| inner.push_str("inner"));
        assert_eq!(outer, "outer");
    });
}

#[test]
fn what_is_wrong_with_the_configuration_is_told_on_its_channel() {
    let file =
        "version: '3'\nserver: {command: php w.php}\nhttp: {adress: ':80'}\nlogs: {level: loud}\n";
    let loaded = load(&Input::from_text("app.yaml", file));
    let resolved = loaded.resolve::<Settings>(Severity::Warning);
    let report = resolved.into_settings().expect_err("`loud` is no level");
    let records = Rig::new().records("mode: production", || tell(&report));
    let told: Vec<serde_json::Value> = records
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(told.len(), report.iter().count());
    for (record, diagnostic) in told.iter().zip(&report) {
        let level = match diagnostic.severity {
            Severity::Missing | Severity::Error => "error",
            Severity::Warning => "warn",
        };
        let message = format!("{}: {}", diagnostic.place, diagnostic.message);
        assert_eq!(record["level"], level);
        assert_eq!(record["logger"], "config");
        assert_eq!(record["msg"], message);
        assert_eq!(record["hint"].as_str(), diagnostic.hint.as_deref());
    }
    let levels: Vec<_> = told.iter().map(|record| &record["level"]).collect();
    assert!(levels.contains(&&"error".into()) && levels.contains(&&"warn".into()));
}

#[test]
fn every_target_in_the_code_is_a_channel_and_in_the_reference() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = fs::read_to_string(root.join("docs/reference/logging.md")).expect("the page");
    for name in CHANNELS {
        assert!(
            page.contains(&format!("| `{name}` |")),
            "`{name}` is not in the reference"
        );
    }
    let mut found = 0;
    let mut folders = vec![root.join("crates")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap();
            if path.is_dir() && name != "tests" {
                folders.push(path);
            } else if path.extension().is_some_and(|ending| ending == "rs") {
                let code = fs::read_to_string(&path).unwrap();
                for rest in code.split("target: \"").skip(1) {
                    let target = rest.split('"').next().unwrap();
                    assert!(CHANNELS.contains(&target), "{}: `{target}`", path.display());
                    found += 1;
                }
            }
        }
    }
    assert!(found > 10, "the records are gone");
}
