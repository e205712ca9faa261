//! The extension and settings of PHP reach a pool's workers by themselves, where its command tells
//! which PHP it runs.
//!
//! Needs what `scripts/build-extension` builds; without it these tests say so and pass.

use std::process::Command;
use std::time::Duration;

use pronghorn_testkit::{Load, Server, Site, binary, php_configuration, wait_for};

use crate::ring::extension;

/// Says what it has.
const WORKER: &str = r"
    return [
        'extension' => extension_loaded('pronghorn'),
        'box' => str_contains(file_get_contents('/proc/self/maps'), 'memfd:pronghorn'),
        'cli' => ini_get('opcache.enable_cli'),
        'errors' => ini_get('display_errors'),
        'limit' => ini_get('memory_limit'),
        'pid' => getmypid(),
        'exit' => $request->path === '/exit' ? exit('bye') : null,
    ];
";

fn site(pool: &str) -> Site {
    extension(); // or there is nothing to test
    let config = format!(
        "version: '3'\nserver: {{command: php worker.php}}\nhttp: {{address: '127.0.0.1:0', pool: {{num_workers: 1{pool}}}}}\n"
    );
    Site::new()
        .file("worker.php", &Site::sdk_worker(WORKER))
        .config(&config)
}

fn has(server: &Server, parts: &[&str]) {
    let said = server.get("/").text();
    for part in parts {
        assert!(said.contains(part), "{part} in {said}");
    }
}

#[test]
fn a_worker_gets_the_extension_and_settings_by_itself() {
    let site = site("");
    let server = Server::start(site);
    has(
        &server,
        &[
            r#""extension":true"#,
            r#""box":true"#,
            r#""cli":"1""#,
            r#""errors":"stderr""#,
        ],
    );
    server.stop();
}

#[test]
fn a_pools_own_settings_win() {
    let site = site(", ini: {display_errors: 0, memory_limit: 77M}");
    let server = Server::start(site);
    has(
        &server,
        &[r#""cli":"1""#, r#""errors":"0""#, r#""limit":"77M""#],
    );
    server.stop();
}

#[test]
fn a_jit_of_php_ini_that_workers_run_without_is_told() {
    let told = "php.ini switches OPcache's JIT on";
    for (pool, command, runs, is_told) in [
        ("", "php", false, true),
        (", ini: {opcache.jit: tracing}", "php", true, false),
        (", ini: {opcache.jit: disable}", "php", false, false),
        (
            ", ini_preset: off",
            "php -d opcache.enable_cli=1",
            true,
            false,
        ),
        ("", "php -d opcache.jit=tracing", true, false),
    ] {
        let site = Site::new()
            .file("conf/jit.ini", "opcache.jit = tracing\nopcache.jit_buffer_size = 8M\n")
            .file(
                "worker.php",
                &Site::sdk_worker("return json_encode(opcache_get_status(false)['jit']['on']);"),
            )
            .config(&format!(
                "version: '3'\nserver: {{command: {command} worker.php, env: [{{PHP_INI_SCAN_DIR: '{}:conf'}}]}}\n\
                 http: {{address: '127.0.0.1:0', pool: {{num_workers: 1{pool}}}}}\nlogs: {{level: info}}\n",
                php_configuration()
            ));
        let server = Server::start(site);
        assert_eq!(server.get("/").text(), runs.to_string(), "{pool} {command}");
        // It is told before the first worker is there.
        assert_eq!(server.log().contains(told), is_told, "{pool} {command}");
        server.stop();
    }
}

#[test]
fn relay_and_off_mean_what_they_say() {
    let site = site(", transport: relay, ini_preset: off");
    let server = Server::start(site);
    has(&server, &[r#""extension":false"#, r#""box":false"#]);
    assert!(!server.get("/").text().contains(r#""errors":"stderr""#));
    server.stop();
}

#[test]
fn where_the_php_cannot_be_told_a_record_says_so() {
    let site = site(", command: [sh, -c, 'exec php worker.php']");
    let server = Server::start(site);
    has(&server, &[r#""extension":false"#]);
    server.logged(&["it is unknown which PHP"]);
    server.stop();
}

/// A `php8.2` in the site's folder `bin`: a script that does this before it becomes the real one.
fn stand_in(site: Site, first: &str, last: &str) -> Site {
    use std::os::unix::fs::PermissionsExt as _;
    let php = Command::new("sh")
        .args(["-c", "command -v php"])
        .output()
        .expect("there is a shell");
    let php = String::from_utf8(php.stdout).expect("text");
    let script = format!("#!/bin/sh\n{first}\nexec {} {last}\n", php.trim());
    let site = site.file("bin/php8.2", &script);
    let path = site.path("bin/php8.2");
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).expect("it is ours");
    site
}

/// Some pools that run `bin/php8.2`.
fn pools(count: usize, more: &str) -> Site {
    let pools: Vec<_> = (0..count)
        .map(|n| {
            format!(
                "p{n}: {{num_workers: 1, ini: {{memory_limit: 6{n}M, disable_functions: exec}}}}"
            )
        })
        .collect();
    let pools = pools.join(", ");
    Site::new()
        .file(
            "worker.php",
            &Site::sdk_worker(
                "return ini_get('memory_limit') . ' ' . (int) function_exists('exec');",
            ),
        )
        .config(&format!(
            "version: '3'\nserver: {{command: bin/php8.2 worker.php}}\nlogs: {{level: info}}\n\
             http: {{address: '127.0.0.1:0', pool: {{num_workers: 1{more}}}, pools: {{{pools}}}, \
             routes: [{{path: /1, pool: p1}}]}}\n"
        ))
}

#[test]
fn a_php_that_is_slow_to_start_is_waited_for_and_asked_once_for_all_pools() {
    let first = "case \"$*\" in *pronghorn-asks*) echo asked >>questions; sleep 6 ;; esac";
    let server = Server::start(stand_in(pools(4, ""), first, "\"$@\""));
    assert_eq!(server.get("/1").text(), "61M 0");
    assert_eq!(server.site().read("questions"), "asked\n");
    server.stop();
}

#[test]
fn no_pool_starts_without_its_settings() {
    let late = stand_in(pools(2, ", boot_timeout: 1s"), "sleep 20", "\"$@\"");
    Server::run(&late, &["serve"]).assert_refused(&[
        "did not report its version within `boot_timeout`, 1s",
        "hint: ",
    ]);
    let broken = stand_in(pools(2, ""), "echo no disk; exit 3", "\"$@\"");
    Server::run(&broken, &["serve"]).assert_refused(&[
        "does not report its version",
        "it said  no disk",
        "hint: `",
    ]);
    let deaf = "test \"$1\" = -d && shift 2";
    let deaf = stand_in(pools(2, ""), deaf, "\"$@\"");
    Server::run(&deaf, &["serve"]).assert_refused(&["does not take PHP's option `-d`", "hint: "]);
    let unknown = site(", command: [sh, -c, 'exec php worker.php'], ini: {precision: 5}");
    let said = [
        "`sh -c \"exec php worker.php\"` does not tell which PHP it runs",
        "begin the command with `php`",
    ];
    Server::run(&unknown, &["serve"]).assert_refused(&said);
    Server::run(&unknown, &["check"]).assert_said_with(2, &said[1..]);
}

#[test]
fn a_worker_that_lost_its_settings_gets_no_call() {
    let start_again = "<?php $php = [PHP_BINARY, 'real.php'];\n\
        pcntl_exec($php[0], array_slice($php, 1));\n";
    let site = site(", ini: {precision: 5}");
    let worker = site.read("worker.php");
    let site = site
        .file("real.php", &worker)
        .file("worker.php", start_again);
    Server::run(&site, &["serve"]).assert_refused(&[
        "it runs without the pool's settings of PHP (`ini`)",
        "starts another PHP",
    ]);
}

#[test]
fn settings_are_in_no_file_and_reach_every_way_to_start_a_worker() {
    use std::os::unix::fs::PermissionsExt as _;
    let body = "return json_encode([ini_get('precision'), ini_get('error_reporting'), \
        ini_get('user_agent'), ini_get('memory_limit'), \
        array_values(array_filter(scandir('/proc/self/fd'), fn ($fd) => \
        str_ends_with((string) @readlink(\"/proc/self/fd/$fd\"), '.so')))]);";
    let ini =
        ", ini: {precision: 5, error_reporting: '~E_NOTICE & E_ALL', user_agent: \"it's; a=b\"}";
    for command in ["php -d memory_limit=77M worker.php", "./worker.php 1"] {
        let site = site(&format!("{ini}, command: {command}"));
        let script = format!(
            "#!/usr/bin/php -d memory_limit=77M\n{}",
            Site::sdk_worker(body)
        );
        let site = site.file("worker.php", &script);
        let mode = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(site.path("worker.php"), mode).unwrap();
        let server = Server::start(site);
        let said = server.get("/").text();
        assert_eq!(said, r#"["5","32759","it's; a=b","77M",[]]"#, "{command}");
        server.stop();
    }
}

/// As `crates/launch/src/php/kept.rs` has it: a change that is younger may not be the last one.
const SETTLED: Duration = Duration::from_millis(4_000);

#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "files get older by time alone, and nothing else is waited for"
)]
fn what_php_says_of_itself_is_known_from_earlier_starts() {
    let mut site = site("");
    site.change_config("version: '3'", "version: '3'\nlogs: {level: debug}");
    for file in std::fs::read_dir(php_configuration()).unwrap().flatten() {
        let name = format!("conf.d/{}", file.file_name().display());
        let text = std::fs::read_to_string(file.path()).unwrap();
        site.write(&name, &text);
    }
    site.write("conf.d/99-own.ini", "memory_limit = -1");
    std::thread::sleep(SETTLED);
    let start = |site: Site| {
        let mut command = Command::new(binary());
        command
            // Cargo sets it for tests, and with it no answer is kept.
            .env_remove("LD_LIBRARY_PATH")
            .env("XDG_CACHE_HOME", site.path("cache"))
            .env("PHP_INI_SCAN_DIR", site.path("conf.d"));
        let server = Server::start_by(command, site, &["serve"]);
        let said = server.get("/").text();
        let is_known = server.log().contains("PHP is known from earlier starts");
        assert_ne!(server.log().contains("PHP is asked what it is"), is_known);
        (server.into_site(), is_known, said)
    };
    // The second one confirms the first. Tests beside this one may change PHP's own directories.
    let mut asked = 0;
    loop {
        let (again, is_known, said) = start(site);
        assert!(said.contains(r#""extension":true"#), "{said}");
        assert!(!said.contains(r#""limit":"-1""#), "the preset's: {said}");
        site = again;
        if is_known {
            break;
        }
        asked += 1;
        assert!(asked < 60, "it is never known");
    }
    assert!(asked >= 2, "{asked}");
    site.write("conf.d/99-own.ini", "memory_limit = 77M");
    let (again, is_known, said) = start(site);
    assert!(!is_known);
    assert!(said.contains(r#""limit":"77M""#), "{said}");
    again.write("conf.d/a-new-one.ini", "precision = 5");
    let (mut site, is_known, _) = start(again);
    assert!(!is_known);
    // It may be there at the next start.
    site.write("conf.d/a-new-one.ini", "zend_extension = /none.so");
    std::thread::sleep(SETTLED);
    for number in 0..3 {
        let (again, is_known, _) = start(site);
        assert!(!is_known, "start {number} without a library");
        site = again;
    }
}

/// Calls this with `/spoil`; asserts that both workers are replaced, once, for this reason.
fn renewed(ini: &str, spoil: &str, why: &str) {
    extension(); // or there is nothing to test
    let body = format!(
        "if ($request->path === '/spoil') {{ {spoil} }} return $request->query()['n'] ?? 'none';"
    );
    let site = Site::new()
        .file("worker.php", &Site::sdk_worker(&body))
        .config(&format!(
            "version: '3'\nserver: {{command: php worker.php}}\nhttp: {{address: '127.0.0.1:0', pool: {{num_workers: 2{ini}}}}}\n"
        ));
    let server = Server::start(site);
    let before = server.workers();
    let load = Load::start(server.address());
    assert_eq!(server.get("/spoil").status, 200);
    server.logged(&["new workers are wanted", why]);
    server.logged(&["reloaded: new workers have taken over"]);
    // At once again is not at once.
    assert_eq!(server.get("/spoil").status, 200);
    wait_for("the second wish", || {
        (server.log().matches("new workers are wanted").count() == 2).then_some(())
    });
    wait_for("the end of the old ones", || {
        let now = server.workers();
        (now.len() == 2 && now.iter().all(|pid| !before.contains(pid))).then_some(())
    });
    load.go_on(50);
    load.finish();
    assert_eq!(server.log().matches("reloaded:").count(), 1);
    server.stop();
}

#[test]
fn a_reset_of_opcache_brings_new_workers() {
    renewed("", "opcache_reset();", "`opcache_reset()` was called");
}

#[test]
fn an_opcache_that_is_full_brings_new_workers() {
    let fill = r"
        file_put_contents('long.php', '<?php return [' . str_repeat('[\'some text\', 1, 2.5], ', 2000) . '];');
        for ($i = 0; $i < 100; $i++) {
            opcache_invalidate('long.php', true);
            include 'long.php';
        }
    ";
    let small = ", ini: {opcache.memory_consumption: 8, opcache.interned_strings_buffer: 1}";
    renewed(small, fill, "the OPcache of a worker is full");
}

#[test]
fn an_exit_costs_no_worker() {
    let site = site("");
    let server = Server::start(site);
    let before = server.workers();
    assert_eq!(server.get("/exit").text(), "bye");
    has(&server, &[r#""exit":null"#]);
    assert_eq!(server.workers(), before);
    server.stop();
}
