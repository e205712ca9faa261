//! RoadRunner's own package `kv` against each driver.

use pronghorn_testkit::{Engine, Server, Site, free_address, php_command};

#[test]
fn the_official_kv_package_runs_its_flows_over_every_driver() {
    let redis = Engine::redis(&[]);
    let memcached = Engine::start("memcached", |port| {
        let port = port.to_string();
        let all = ["-l", "127.0.0.1", "-U", "0", "-u", "nobody", "-p", &port];
        all.iter().map(|text| (*text).to_owned()).collect()
    });
    let rpc = format!("tcp://{}", free_address());
    let site = Site::with_worker("app.php");
    let config = site.read(".rr.yaml");
    let server = Server::start(site.config(&format!(
        "{config}rpc: {{listen: '{rpc}'}}\nstate_dir: state\nkv:\n  \
         fast: {{driver: memory}}\n  \
         kept: {{driver: embedded}}\n  \
         far: {{driver: redis, config: {{addrs: ['127.0.0.1:{}']}}}}\n  \
         spread: {{driver: memcached, config: {{addr: ['127.0.0.1:{}']}}}}\n",
        redis.port(),
        memcached.port()
    )));
    let script = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/fixtures/foreign/official-kv.php"
    );
    for (storage, driver) in [
        ("fast", "memory"),
        ("kept", "embedded"),
        ("far", "redis"),
        ("spread", "memcached"),
    ] {
        let ended = php_command("php")
            .args([script, &rpc, storage, driver])
            .output();
        let ended = ended.expect("php runs");
        let said = String::from_utf8_lossy(&ended.stdout);
        assert_eq!(said, "right", "{storage}");
    }
    server.stop();
}
