//! SIGHUP: new workers, and what changed of the configuration, under load.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::Duration;

use pronghorn_testkit::{Connection, Load, Server, Site, time, wait_for};
use rustix::process::{Pid, Signal, getpriority_process, kill_process};
use rustix::thread::{CapabilitySet, capabilities};

use crate::kind::{ALL_KINDS, Kind};
use crate::ring::extension;

/// Replies with the number that was asked for, after the name of its release.
pub(crate) fn release(name: &str) -> String {
    Kind::Worker.code(&numbers(name))
}

fn numbers(name: &str) -> String {
    format!("return '{name} ' . $request->query()['n'];")
}

pub(crate) fn site() -> Site {
    site_of(Kind::Worker)
}

fn site_of(kind: Kind) -> Site {
    let (server, pool) = (kind.server(), kind.pool());
    Site::new()
        .file(kind.file(), &kind.code(&numbers("one")))
        .config(&format!("version: '3'\nserver: {{{server}}}\nhttp: {{address: 127.0.0.1:0, pool: {{{pool}, num_workers: 2}}}}\nlogs: {{channels: {{http: {{level: error}}}}}}\n"))
}

fn answer(server: &Server) -> String {
    server.get("/number?n=0").text()
}

/// A log file that can't be opened is known only when it is applied.
#[test]
fn a_reload_whose_logs_cannot_be_written_changes_nothing() {
    let server = Server::start(site());
    let workers = server.workers();
    let config = server.site().read(".rr.yaml");
    let broken = config.replace("logs: {", "logs: {output: worker.php/log, ");
    server.site().write("worker.php", &release("two"));
    server.site().write(".rr.yaml", &broken);
    server.signal(Signal::HUP);
    server.logged(&["ERROR", "reload failed, nothing has changed", "worker.php"]);
    assert_eq!(server.workers(), workers);
    server.site().write(".rr.yaml", &config);
    server.signal(Signal::HUP);
    server.logged(&["the configuration is applied"]);
    assert_eq!(server.get("/number?n=0").text(), "two 0");
    server.stop();
}

/// The command waits, and says what became of it.
#[test]
fn a_command_reloads_and_fails_where_the_reload_fails() {
    let server = Server::start(site());
    let config = server.site().read(".rr.yaml");
    server.site().write("worker.php", &release("two"));
    let done = server.steer(&["reload"]);
    assert_eq!(
        (done.code, done.stderr.as_str()),
        (Some(0), ""),
        "{}",
        done.stdout
    );
    assert_eq!(answer(&server), "two 0", "they are new when it ends");
    // A key that holds from a restart on.
    let held = config.replace("http: {", "http: {threads: 2, ");
    server.site().write(".rr.yaml", &held);
    let done = server.steer(&["reload", "--silent"]);
    assert_eq!((done.code, done.stdout.as_str()), (Some(0), ""));
    assert!(
        done.stderr.contains("except `http.threads`"),
        "{}",
        done.stderr
    );
    let told = done.stderr.matches("the configuration is applied except");
    assert_eq!(told.count(), 1, "{}", done.stderr);
    // A mistake, and a worker that does not boot.
    let workers = server.workers();
    server.site().write(
        ".rr.yaml",
        &config.replace("num_workers: 2", "num_workers: x"),
    );
    let failed = server.steer(&["reload"]);
    failed.assert_refused(&[
        "the reload failed: the files have mistakes",
        "hint: `pronghorn check`",
        "`http.pool.num_workers` is `x`; accepted",
    ]);
    server.site().write(".rr.yaml", &config);
    server.site().write("worker.php", "<?php exit(3);");
    let failed = server.steer(&["reload"]);
    failed.assert_refused(&[
        "the reload failed: a part of it failed",
        "worker ended before it was ready (exit code 3)",
    ]);
    assert_eq!(server.workers(), workers);
    assert_eq!(answer(&server), "two 0");
    server.stop();
    let nobody = Server::run(&site(), &["reload"]);
    assert_eq!(nobody.code, Some(1), "{}", nobody.stderr);
}

#[test]
fn new_code_is_served_after_sighup_and_no_request_is_lost() {
    for kind in ALL_KINDS {
        let server = Server::start(site_of(kind));
        let load = Load::start(server.address());
        load.go_on(50);
        for name in ["two", "three"] {
            server
                .site()
                .replace(kind.file(), &kind.code(&numbers(name)));
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
    server.logged(&["reload failed: the old workers stay"]);
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

#[test]
fn the_configuration_is_read_again() {
    let site = site().file(
        "worker.php",
        &Site::sdk_worker("return getenv('COLOUR') . ' ' . ($request->query()['n'] ?? '');"),
    );
    let server = Server::start(site);
    let load = Load::start(server.address());
    let site = server.site();
    site.change_config("num_workers: 2", "num_workers: 3");
    site.change_config("php worker.php", "php worker.php, env: {COLOUR: red}");
    site.change_config("address:", "max_request_size: 1MB, threads: 3, address:");
    site.change_config("{level: error}", "{level: info}");
    load.go_on(20);
    assert!(!server.log().contains("http log"));
    server.signal(Signal::HUP);
    server.logged(&[
        "WARN",
        "the configuration is applied except `http.threads`: a reload can't apply",
    ]);
    let status = server.steer(&["status"]).stdout;
    assert!(status.contains("pending  `http.threads`: with"), "{status}");
    assert_eq!(answer(&server), "red 0");
    server.logged(&["http log"]);
    load.go_on(20);
    load.finish();
    wait_for("the old workers to end", || {
        (server.workers().len() == 3).then_some(())
    });
    assert_eq!(
        server.post("/", "text/plain", vec![b'x'; 2 << 20]).status,
        413
    );
    assert_eq!(server.log().matches("a reload can't apply").count(), 1);
    server.stop();
}

#[test]
fn a_configuration_with_mistakes_changes_nothing() {
    let server = Server::start(site());
    let before = server.workers();
    server
        .site()
        .change_config("num_workers: 2", "num_workers: many, max_jobs: -1");
    server.signal(Signal::HUP);
    server.logged(&["ERROR", "reload failed, nothing has changed", "2 errors"]);
    server.logged(&["ERROR", "config", ".rr.yaml:3", "num_workers"]);
    server.logged(&["ERROR", "config", ".rr.yaml:3", "max_jobs"]);
    assert_eq!(server.workers(), before);
    assert_eq!(answer(&server), "one 0");
    server.stop();
}

#[test]
fn a_link_that_has_moved_is_followed() {
    let site = Site::new();
    for name in ["one", "two", "three"] {
        site.write(&format!("releases/{name}/worker.php"), &release(name));
        site.write(
            &format!("releases/{name}/.rr.yaml"),
            &format!("version: '3'\nserver: {{command: php worker.php, env: {{RELEASE: {name}}}}}\nhttp: {{address: 127.0.0.1:0, pool: {{num_workers: 2}}}}\n"),
        );
    }
    let switch = |site: &Site, name: &str| {
        let new = site.path("new");
        std::os::unix::fs::symlink(site.path("releases").join(name), &new).unwrap();
        fs::rename(new, site.path("current")).unwrap();
    };
    switch(&site, "one");
    let current = site.path("current");
    let mut server = Server::start_with(site, &["serve", "-w", current.to_str().unwrap()]);
    let load = Load::start(server.address());
    assert_eq!(answer(&server), "one 0");
    switch(server.site(), "two");
    fs::remove_dir_all(server.site().path("releases/one")).unwrap();
    server.signal(Signal::HUP);
    server.logged(&["the configuration is applied"]);
    assert_eq!(answer(&server), "two 0");
    switch(server.site(), "three");
    server.upgrade();
    assert_eq!(answer(&server), "three 0");
    load.go_on(20);
    load.finish();
    server.stop();
}

/// A worker that counts its requests, and fails those for `/warm` when `failure` says how.
fn counting(failure: &str) -> String {
    Site::sdk_worker(&format!(
        "static $count = 0; ++$count; if ($request->path === '/warm') {{ {failure} }} return \"$count\";"
    ))
}

#[test]
fn a_worker_is_warm_before_its_first_request() {
    let site = site().file("worker.php", &counting(""));
    site.change_config(
        "num_workers: 2",
        "num_workers: 1, warmup: [/warm, /warm?again]",
    );
    let server = Server::start(site);
    assert_eq!(server.get("/").text(), "3");
    assert_eq!(server.get("/").text(), "4");
    server.stop();
}

#[test]
fn a_worker_that_fails_its_warm_up_is_not_let_in() {
    let site = site().file("worker.php", &counting(""));
    site.change_config(
        "num_workers: 2",
        "num_workers: 2, spawn: exec, boot_timeout: 4s, warmup: [/warm]",
    );
    let server = Server::start(site);
    let before = server.workers();
    for (failure, said) in [
        ("throw new LogicException('cold');", "LogicException: cold"),
        (
            "return new Pronghorn\\Response(status: 503);",
            "it answered 503",
        ),
        ("exit(3);", "exit() ended the call"),
        (
            "posix_kill(getmypid(), 9);",
            "the worker ended with signal 9",
        ),
        ("sleep(60);", "no answer within `boot_timeout`"),
    ] {
        server.site().write("worker.php", &counting(failure));
        server.signal(Signal::HUP);
        server.logged(&["worker failed its warm-up: ", said]);
        let reset = server.steer(&["reset"]);
        assert!(
            reset.code != Some(0) && reset.stderr.contains(said),
            "{}",
            reset.stderr
        );
        wait_for("the new workers to end", || {
            (server.workers() == before).then_some(())
        });
    }
    assert!(["2", "3"].contains(&server.get("/").text().as_str()));
    server.site().write("worker.php", &counting(""));
    server.signal(Signal::HUP);
    wait_for("the mended code", || {
        let now = server.workers();
        (now.len() == 2 && before.iter().all(|pid| !now.contains(pid))).then_some(())
    });
    server.stop();
}

#[test]
fn a_start_whose_workers_fail_their_warm_up_ends() {
    let site = site().file("worker.php", &counting("throw new LogicException('cold');"));
    site.change_config("num_workers: 2", "warmup: [/warm]");
    Server::run(&site, &["serve"]).assert_refused(&[
        "error: pool `default`: worker failed its warm-up: GET /warm: LogicException: cold in",
        "command  php worker.php",
    ]);
}

/// A deployment by a link, without a reload: each answer is of one release, scripts and files.
#[test]
fn a_root_that_is_a_link_is_followed_for_each_request() {
    let classic = format!(
        "mode: classic, php: 'php -d extension={}'",
        extension().display()
    );
    for mode in [classic.as_str(), "mode: fastcgi"] {
        let site = Site::new().config(&format!(
            "version: '3'\nhttp:\n  address: 127.0.0.1:0\n  \
             pool: {{{mode}, root: current/public, resolve_root: each_request, num_workers: 1, warmup: [/]}}\n"
        ));
        for release in 1..=3 {
            let folder = format!("releases/{release}/public");
            let script = "<?php require __DIR__ . '/code.php'; echo code(), ' ', getcwd(), ' ', $_SERVER['DOCUMENT_ROOT'], ' ', __FILE__;";
            site.write(&format!("{folder}/index.php"), script);
            let code = format!("<?php function code() {{ return {release}; }}");
            site.write(&format!("{folder}/code.php"), &code);
            site.write(&format!("{folder}/f.txt"), &format!("file {release}"));
            // PHP looks at changed files only when they are old enough to be done.
            for name in ["index.php", "code.php", "f.txt"] {
                let file = fs::File::open(site.path(&format!("{folder}/{name}")));
                let hour_ago = std::time::SystemTime::now() - Duration::from_secs(3600);
                file.and_then(|file| file.set_modified(hour_ago))
                    .expect("it can be set");
            }
        }
        site.write("releases/3/public/only.txt", "only in 3");
        let point_at = |folder: &Path, release: u32| {
            let new = folder.join("new");
            std::os::unix::fs::symlink(format!("releases/{release}"), &new)
                .expect("a link can be made");
            fs::rename(new, folder.join("current")).expect("a link can be moved");
        };
        let folder = site.folder().canonicalize().expect("it is there");
        point_at(&folder, 1);
        let server = Server::start(site);
        for release in [1, 2, 1, 3] {
            point_at(&folder, release);
            let public = folder.join(format!("releases/{release}/public"));
            let public = public.display();
            for _ in 0..3 {
                assert_eq!(server.get("/f.txt").text(), format!("file {release}"));
                let expected = format!("{release} {public} {public} {public}/index.php");
                assert_eq!(server.get("/any/page").text(), expected);
            }
        }
        assert_eq!(server.get("/only.txt").text(), "only in 3");
        // In the middle of a deployment.
        fs::remove_file(folder.join("current")).expect("it is there");
        assert_eq!(server.get("/f.txt").text(), "file 3");
        point_at(&folder, 2);
        assert_eq!(server.get("/f.txt").text(), "file 2");
        assert!(server.get("/only.txt").text().starts_with("2 "));
        server.stop();
    }
}

/// All that a reload applies and that is cheap to see, at once.
/// Sections with keys that a reload applies, by the test that sees one of their keys count. Each is
/// replaced as a whole, with the settings of a pool below it, so one key stands for all.
const LIVE: &[(&str, &[&str])] = &[
    ("a_reload_changes_what_is_kept", &["otel.sampling"]),
    (
        "a_reload_changes_the_editor_of_links",
        &["http.development"],
    ),
    (
        "keys_that_a_reload_applies_count_after_it",
        &[
            "server",
            "http",
            "http.uploads",
            "http.headers",
            "http.headers.cors",
            "http.compress",
            "http.static",
            "http.access_log",
            "http.request_id",
            "http.rate_limit",
            "http.rewrite[]",
            "http.error_pages",
            "http.forms",
            "http.pool",
            "http.routes[]",
            "logs",
        ],
    ),
    (
        "what_excludes_other_settings_is_applied_by_a_reload_too",
        &[
            "http.sendfile",
            "http.sendfile.locations[]",
            "http.static.serve[]",
            "http.rate_limiter",
            "http.routes[].basic_auth",
            "http.routes[].rate_limit",
            "logs.file_logger_options",
            "logs.channels.<name>",
            "logs.channels.<name>.file_logger_options",
        ],
    ),
    (
        "other_certificates_are_taken_by_a_reload",
        &["http.ssl", "http.ssl.certificates[]", "http.ssl.hsts"],
    ),
    ("a_reload_changes_the_number_of_workers", &["jobs.pool"]),
    (
        "a_reload_serves_new_files_and_a_broken_one_changes_nothing",
        &[
            "grpc",
            "grpc.web",
            "grpc.pool",
            "grpc.stream_pool",
            "grpc.stream_pool.dynamic_allocator",
            "grpc.stream_pool.relay",
            "grpc.stream_pool.supervisor",
            "protoreg",
        ],
    ),
    (
        "a_reload_keeps_connections_and_changes_those_to_come",
        &[
            "tcp",
            "tcp.pool",
            "tcp.servers.<name>",
            "tcp.servers.<name>.length",
            "tcp.servers.<name>.ssl",
            "tcp.servers.<name>.ssl.certificates[]",
        ],
    ),
    (
        "a_reload_touches_only_what_has_changed",
        &[
            "service.<name>",
            "service.<name>.health",
            "service.<name>.output",
            "service.<name>.watch",
        ],
    ),
    (
        "the_api_is_asked_over_rpc_and_a_reload_changes_where_and_how",
        &["centrifuge", "centrifuge.tls", "centrifuge.pool"],
    ),
    (
        "roadrunners_program_gets_the_section_and_what_it_needs_beside_it",
        &["temporal"],
    ),
    (
        "a_destroy_timeout_that_a_reload_has_changed_holds_for_the_stop",
        &["endure"],
    ),
];

/// The reference is generated from the declared keys, and a test of the server keeps it so.
#[test]
fn every_section_that_a_reload_applies_has_a_test() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = fs::read_to_string(root.join("../docs/reference/configuration.md")).unwrap();
    let mut declared = BTreeSet::new();
    let mut section = String::new();
    for line in page.lines() {
        if let Some(heading) = line.strip_prefix("## ") {
            heading.trim_matches('`').clone_into(&mut section);
        }
        let reload = line
            .strip_prefix("| `")
            .and_then(|row| row.split('|').nth(3));
        if reload.is_some_and(|cell| cell.trim() == "yes") {
            let pool = section.find(".pool.").map(|at| at + ".pool".len());
            let name = pool.and_then(|end| section.get(..end));
            declared.insert(name.unwrap_or(&section).to_owned());
        }
    }
    let seen = LIVE.iter().flat_map(|(_, sections)| *sections);
    let seen: BTreeSet<_> = seen.map(|section| (*section).to_owned()).collect();
    assert_eq!(declared, seen, "a section without a test, or the other way");

    let sources = fs::read_dir(root.join("tests/e2e")).unwrap();
    let sources = sources.filter_map(|file| fs::read_to_string(file.unwrap().path()).ok());
    let sources: String = sources.collect();
    for (test, _) in LIVE {
        assert!(sources.contains(&format!("fn {test}()")), "{test}");
    }
}

#[test]
fn keys_that_a_reload_applies_count_after_it() {
    let worker = "
        switch ($request->path) {
            case '/fail': throw new \\RuntimeException('on purpose');
            case '/slow': usleep(1_500_000); return 'slow';
            case '/long': usleep(1_500_000); return 'long';
            case '/form': return json_encode([$request->form(), ($request->files()['file'] ?? null)?->error]);
            case '/asked': return json_encode([$request->server()['HTTP_X_ASKED'] ?? null, $request->server()['REMOTE_ADDR']]);
            case '/big': return str_repeat('a', 10_000);
            case '/ini': return ini_get('user_agent') . ' ' . getenv('COLOUR') . ' ' . ($_SERVER['argv'][1] ?? '');
        }
        return 'path ' . $request->path;";
    let http = "  address: 127.0.0.1:0\n";
    let site = Site::new()
        .file("worker.php", &Site::sdk_worker(worker))
        .file("files/a.txt", "a file")
        .file("404.html", "a page")
        .config(&format!(
            "version: '3'\nserver: {{command: php worker.php}}\nhttp:\n{http}  pool: {{num_workers: 1}}\n"
        ));
    let server = Server::start(site);
    server.site().write(
        ".rr.yaml",
        &format!(
            "version: '3'\nserver: {{command: php worker.php given, env: {{COLOUR: red}}}}\nhttp:\n{http}  \
             middleware: [rate_limit, static, rewrite, compress, headers, error_pages]\n  \
             internal_error_code: 555\n  max_request_size: 1MB\n  access_log: {{output: access.log}}\n  \
             compress: {{min_size: 1KB, codings: [gzip]}}\n  error_pages: {{pages: {{413: 404.html}}}}\n  \
             headers: {{response: {{X-Set: yes}}, request: {{X-Asked: yes}}, cors: {{allowed_origin: ['https://a.example']}}}}\n  \
             forms: {{fields: 2}}\n  uploads: {{forbid: [.exe]}}\n  request_id: {{header: X-Number}}\n  \
             rewrite: [{{path: '^/old$', to: /new}}]\n  static: {{dir: files}}\n  trusted_subnets: [127.0.0.1]\n  \
             rate_limit: {{rate: 20/h}}\n  \
             routes: [{{path: /short, deadline: 1s}}, {{path: /slow, deadline: 300ms}}, {{path: /*}}]\n  \
             pool: {{num_workers: 2, ini: {{user_agent: on}}, supervisor: {{exec_ttl: 700ms}}}}\n\
             logs: {{level: debug}}\nendure: {{grace_period: 20s}}\n"
        ),
    );
    server.signal(Signal::HUP);
    server.logged(&["the configuration is applied"]);
    assert!(
        !server.log().contains("a reload can't apply"),
        "{}",
        server.log()
    );

    let plain = server.get("/");
    assert_eq!(plain.text(), "path /");
    assert_eq!(plain.header("x-set"), Some("yes"));
    assert!(plain.header("x-number").is_some());
    assert_eq!(server.get("/fail").status, 555);
    assert_eq!(server.get("/slow").status, 504);
    assert_eq!(server.get("/long").status, 504);
    assert_eq!(server.get("/old").text(), "path /new");
    assert_eq!(server.get("/a.txt").text(), "a file");
    assert_eq!(server.get("/ini").text(), "1 red given");
    let large = server.post("/", "text/plain", vec![b'x'; 2 << 20]);
    assert_eq!((large.status, large.text().as_str()), (413, "a page"));
    let ask = |target: &str, fields: &str| {
        let mut client = server.connect();
        client.request("GET", target, fields);
        client.response()
    };
    assert_eq!(
        ask("/asked", "X-Forwarded-For: 192.0.2.7\r\n").text(),
        r#"["yes","192.0.2.7"]"#
    );
    let of_other_origin = ask("/", "Origin: https://a.example\r\n");
    assert_eq!(
        of_other_origin.header("access-control-allow-origin"),
        Some("https://a.example")
    );
    let three_fields = server.post("/form", "application/x-www-form-urlencoded", "a=1&b=2&c=3");
    assert_eq!(three_fields.status, 400);
    let upload = "--X\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.exe\"\r\n\r\nx\r\n--X--\r\n";
    let upload = server.post("/form", "multipart/form-data; boundary=X", upload);
    assert_eq!(upload.text(), "[[],8]", "UPLOAD_ERR_EXTENSION");
    let packed = ask("/big", "Accept-Encoding: gzip\r\n");
    assert_eq!(packed.header("content-encoding"), Some("gzip"));
    wait_for("the second worker", || {
        (server.workers().len() == 2).then_some(())
    });
    wait_for("a line in the access log", || {
        server
            .site()
            .read("access.log")
            .contains("/old")
            .then_some(())
    });
    server.logged(&["DEBUG"]);
    let statuses = (0..30).map(|_| server.get("/").status);
    assert!(statuses.into_iter().any(|status| status == 429));
    server.stop();
}

#[test]
fn what_excludes_other_settings_is_applied_by_a_reload_too() {
    let worker = "
        if ($request->path === '/send') {
            $by = $request->query()['by'];
            return new Pronghorn\\Response('instead', 200, [$by => $request->query()['name']]);
        }
        return 'path ' . $request->path;";
    let start = "version: '3'\nserver: {command: php worker.php}\n\
                 http:\n  address: 127.0.0.1:0\n  pool: {num_workers: 1}\n";
    let site = Site::new()
        .file("worker.php", &Site::sdk_worker(worker))
        .file("files/a.txt", "a file")
        .file("users", "ann:{SHA}qUqP5cyxm6YcTAhz05Hph5gvu9M=\n")
        .config(start);
    let server = Server::start(site);
    let files = server.site().path("files").display().to_string();
    server.site().write(
        ".rr.yaml",
        &format!(
            "{start}  middleware: [rate_limiter, static, sendfile]\n  \
             rate_limiter: {{key: header, header: X-Key, rate: 1, interval: 1h, burst: 20}}\n  \
             static: {{serve: [{{prefix: /assets, root: files}}]}}\n  \
             sendfile: {{roots: [files], locations: [{{prefix: /protected, root: '{files}'}}]}}\n  \
             routes: [{{path: /seldom, rate_limit: {{rate: 1/h}}}}, \
             {{path: /guarded, basic_auth: {{user_file: users}}}}, {{path: /*}}]\n\
             logs:\n  file_logger_options: {{log_output: all.log}}\n  \
             channels: {{http: {{file_logger_options: {{log_output: http.log}}}}}}\n"
        ),
    );
    server.signal(Signal::HUP);
    let applied = || {
        let log = server.site().path("all.log");
        let log = fs::read_to_string(log).unwrap_or_default();
        log.contains("the configuration is applied").then_some(())
    };
    wait_for("the record in the new file", applied);

    let ask = |target: &str| {
        let mut client = server.connect();
        client.request("GET", target, "X-Key: one\r\n");
        client.response()
    };
    assert_eq!(ask("/assets/a.txt").text(), "a file");
    assert_eq!(ask("/send?by=X-Sendfile&name=files/a.txt").text(), "a file");
    let location = ask("/send?by=X-Accel-Redirect&name=/protected/a.txt");
    assert_eq!(location.text(), "a file");
    assert_eq!([ask("/seldom").status, ask("/seldom").status], [200, 429]);
    assert_eq!(ask("/guarded").status, 401);
    assert_eq!(server.get("/").status, 400, "it has no key");
    let more = (0..20).map(|_| ask("/").status);
    assert!(more.into_iter().any(|status| status == 429));
    wait_for("a record in the channel's file", || {
        let log = server.site().path("http.log");
        let log = fs::read_to_string(log).unwrap_or_default();
        log.contains("/seldom").then_some(())
    });
    server.stop();
}

/// The boot's own process is raised, and neither what it starts nor any request is.
#[test]
fn a_boot_overtakes_the_workers_that_it_replaces_until_its_first_request() {
    let rights = capabilities(None).expect("they are this process's own");
    if !rights.effective.contains(CapabilitySet::SYS_NICE) {
        eprintln!("skipped: this user may not raise a priority");
        return;
    }
    extension();
    let autoload = Site::sdk_worker("");
    let require = autoload.lines().nth(1).expect("it loads the package");
    let script = format!(
        "<?php\n{require}
        const NICE = \"cut -d' ' -f19 /proc/self/stat\";
        function nice(): array {{
            $own = explode(' ', file_get_contents('/proc/' . readlink('/proc/self') . '/stat'));
            return [(int) $own[18], (int) shell_exec(NICE)];
        }}
        $boot = nice();
        $forked = null;
        (new Pronghorn\\Worker())->afterFork(function () use (&$forked) {{ $forked = nice(); }})
            ->onRequest(function (Pronghorn\\Request $request) use ($boot, &$forked): mixed {{
                return json_encode([$boot, $forked, nice()]);
            }})->run();"
    );
    for (spawn, at_start, after) in [
        ("exec", "[[0,0],null,[0,0]]", "[[-5,0],null,[0,0]]"),
        ("fork", "[[0,0],[0,0],[0,0]]", "[[-5,0],[-5,0],[0,0]]"),
    ] {
        let site = Site::new().file("worker.php", &script).config(&format!(
            "version: '3'\nserver: {{command: php worker.php}}\n\
             http: {{address: 127.0.0.1:0, pool: {{num_workers: 2, spawn: {spawn}}}}}\n"
        ));
        let server = Server::start(site);
        assert_eq!(server.get("/").text(), at_start, "{spawn}");
        let old = [server.workers(), server.zygotes()].concat();
        server.signal(Signal::HUP);
        server.logged(&["new workers have taken over"]);
        assert_eq!(server.get("/").text(), after, "{spawn}");
        let new = || [server.workers(), server.zygotes()].concat();
        wait_for("the old processes to end", || {
            new().iter().all(|pid| !old.contains(pid)).then_some(())
        });
        for pid in new() {
            assert_eq!(nice_of(pid), 0, "{spawn}");
        }
        // A successor of one that has died is no reload.
        let (killed, all) = (server.workers()[0], server.workers().len());
        let killed_pid = Pid::from_raw(killed.cast_signed()).expect("it is none of the kernel's");
        kill_process(killed_pid, Signal::KILL).expect("it lives");
        wait_for("a successor", || {
            let now = server.workers();
            (now.len() == all && !now.contains(&killed)).then_some(())
        });
        for pid in server.workers() {
            assert_eq!(nice_of(pid), 0, "{spawn}");
        }
        server.stop();
    }
}

fn nice_of(pid: u32) -> i32 {
    let pid = Pid::from_raw(pid.cast_signed());
    getpriority_process(pid).expect("it lives")
}

/// A server with a call under way that never ends, whose configuration was changed by a reload.
fn holding(grace: &str, from: &str, to: &str) -> (Server, Connection) {
    let site = Site::new()
        .file(
            "worker.php",
            &Site::sdk_worker("if ($request->path === '/slow') { sleep(100); } return 'x';"),
        )
        .config(&format!(
            "version: '3'\nserver: {{command: php worker.php}}\n\
             http: {{address: 127.0.0.1:0, pool: {{num_workers: 1, {from}}}}}\nendure: {{grace_period: {grace}}}\n"
        ));
    let server = Server::start(site);
    server.site().change_config(from, to);
    server.signal(Signal::HUP);
    server.logged(&["the configuration is applied"]);
    let mut slow = server.connect();
    slow.request("GET", "/slow", "");
    wait_for("the call to run", || {
        let table = server.steer(&["workers"]).stdout;
        table.contains("busy").then_some(())
    });
    (server, slow)
}

#[test]
fn a_destroy_timeout_that_a_reload_has_changed_holds_for_the_stop() {
    let (server, _slow) = holding("25s", "destroy_timeout: 90s", "destroy_timeout: 1s");
    let (_, took) = time(|| server.stop());
    assert!(took < Duration::from_secs(20), "{took:?}");
}

#[test]
fn a_reset_timeout_that_a_reload_has_changed_holds_for_an_upgrade() {
    let (mut server, _slow) = holding("1s", "reset_timeout: 90s", "reset_timeout: 1s");
    let old = server.pid();
    server.upgrade();
    wait_for("the old process to end", || {
        (!Path::new(&format!("/proc/{old}")).exists()).then_some(())
    });
    server.stop();
}
