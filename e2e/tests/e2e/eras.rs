//! One application under `compat: 2025` and under `compat: 3`: each row of the table in
//! `docs/migration/from-roadrunner.md` that is about what is there.

use pronghorn_testkit::{Server, Site, free_address, wait_for};
use serde_json::Value;

/// Answers with the path that it gets, or names a file.
const WORKER: &str = "$path = $request->target();
return str_starts_with($path, '/sent')
    ? new Pronghorn\\Response('', 200, ['X-Sendfile' => 'kept.txt'])
    : new Pronghorn\\Response($path . ' ' . getenv('RR_VERSION') . ' ' . getenv('FROM_FILE'));";

fn site(compat: &str, more: &str) -> Site {
    Site::new()
        .file("worker.php", &Site::sdk_worker(WORKER))
        .file("kept.txt", "kept")
        .file("public/new.txt", "a file")
        .file("variables", "FROM_FILE=read")
        .file(
            ".rr.yaml",
            &format!(
                "version: '3'\ncompat: {compat}\nenvfile: variables\nserver: {{command: php worker.php}}\n\
                 http:\n  address: 127.0.0.1:0\n  pool: {{num_workers: 1}}\n\
                 \x20 middleware: [static, rewrite, sendfile]\n  static: {{dir: public}}\n\
                 \x20 rewrite: [{{path: '^/old$', to: /new.txt}}]\n  http2: {{h2c: true}}\n\
                 \x20 trusted_subnets: [127.0.0.0/8]\n  trusted_headers: [X-Real-Ip]\n\
                 logs: {{mode: production}}\n{more}"
            ),
        )
}

/// What a row is like under 2025 and under 3.
fn rows(compat: &str) -> Vec<(&'static str, String)> {
    let status = free_address();
    let site = site(compat, &format!("status: {{address: '{status}'}}\n"));
    let server = Server::start_with(site, &["serve", "-c", ".rr.yaml"]);
    let old = server.get("/old").text();
    let sent = server.get("/sent");
    assert_eq!(sent.text(), "kept");
    let app = server.get("/app").text();
    let words: Vec<&str> = app.split(' ').collect();
    assert_eq!(words.len(), 3, "{app}");
    let (version, variable) = (words[1], words[2]);
    let checks = ["/health", "/livez", "/ready", "/readyz"].map(|path| {
        let answer = pronghorn_testkit::Connection::open(status).get(path);
        (answer.status, answer.text())
    });
    assert!(checks.iter().all(|check| *check == checks[0]), "{checks:?}");
    let record = wait_for("the record of a request", || {
        let log = server.log();
        let found = log.lines().find(|line| line.contains("\"http log\""))?;
        serde_json::from_str::<Value>(found).ok()
    });
    let kinds = ["ts", "time"].map(|name| record[name].is_number() || record[name].is_string());
    let trusted = {
        let mut connection = server.connect();
        connection.request("GET", "/app", "X-Real-Ip: 192.0.2.7\r\n");
        assert_eq!(connection.response().status, 200);
        let found = wait_for("its record", || {
            server.log().contains("192.0.2.7").then_some("used")
        });
        found.to_owned()
    };
    let log = server.log();
    let asked = log.lines().find(|line| line.contains("reads it"));
    assert!(
        asked.is_some_and(|line| line.contains(&format!("`compat` is {compat}"))),
        "{log}"
    );
    let most = ["600", "500"].map(|workers| {
        let workers = format!("http.pool.num_workers={workers}");
        let said = Server::run_beside(server.site(), &["check", "-c", ".rr.yaml", "-o", &workers]);
        said.code == Some(0)
    });
    let rows = vec![
        ("the order of middleware", old),
        (
            "the type of a file that PHP names",
            sent.header("content-type").unwrap_or_default().to_owned(),
        ),
        (
            "log records in JSON",
            format!("ts, time: {kinds:?}, {}", record["level"]),
        ),
        ("trusted headers", trusted),
        ("the most workers", format!("600, 500: {most:?}")),
        ("envfile", variable.to_owned()),
        ("paths of status", checks[0].0.to_string()),
        ("RR_VERSION", version.to_owned()),
    ];
    server.stop();
    rows
}

#[test]
fn one_application_under_both() {
    let file = "a file";
    let expected = [
        ("the order of middleware", file, "/new.txt 3.0.0 read"),
        (
            "the type of a file that PHP names",
            "text/plain",
            "application/octet-stream",
        ),
        (
            "log records in JSON",
            "ts, time: [true, false], \"info\"",
            "ts, time: [false, true], \"INFO\"",
        ),
        ("trusted headers", "used", "used"),
        (
            "the most workers",
            "600, 500: [false, true]",
            "600, 500: [true, true]",
        ),
        ("envfile", "read", "read"),
        ("paths of status", "200", "200"),
        ("RR_VERSION", "2025.1.15", "3.0.0"),
    ];
    let (old, new) = (rows("2025"), rows("3"));
    assert_eq!((old.len(), new.len()), (expected.len(), expected.len()));
    for ((row, in_2025, in_3), (old, new)) in expected.iter().zip(old.iter().zip(&new)) {
        assert_eq!((*row, *in_2025), (old.0, old.1.as_str()));
        assert_eq!((*row, *in_3), (new.0, new.1.as_str()));
    }
}

/// Octane takes 3.0.0 for older than 2023.3.0, and knows levels in lower case.
#[test]
fn octane_works_under_both() {
    for (compat, greeted) in [("2025", "2025.1.15"), ("3", "3.0.0")] {
        let site = site(compat, "");
        let probed = Server::run_as_rr(&site, &["--version"]).stdout;
        assert_eq!(probed.split(' ').nth(2), Some("2025.1.15"), "{probed}");
        let asked = Server::run_as_rr(&site, &["--version", "-o", &format!("compat={compat}")]);
        let arch = if cfg!(target_arch = "x86_64") {
            "amd64"
        } else {
            "arm64"
        };
        assert_eq!(
            asked.stdout,
            format!(
                "rr version {greeted} (build time: development, pronghorn {}), OS: linux, arch: {arch}\n",
                env!("CARGO_PKG_VERSION")
            )
        );

        let http = free_address();
        let address = format!("http.address={http}");
        let config = site.path(".rr.yaml").display().to_string();
        let arguments = [
            "-c",
            &config,
            "-o",
            &address,
            "-o",
            "logs.output=stdout",
            "serve",
        ];
        let server = Server::start_as_rr(site, &arguments, &[("LARAVEL_OCTANE", "1")], http);
        server.get("/app");
        let record = wait_for("the record of a request", || {
            let out = server.stdout();
            let found = out.lines().find(|line| line.contains("\"http log\""))?;
            serde_json::from_str::<Value>(found).ok()
        });
        assert_eq!(
            (&record["level"], &record["logger"], record["ts"].is_u64()),
            (&"info".into(), &"http".into(), true)
        );
        let greeting = format!(
            "[INFO] RoadRunner server started; version: {greeted}, buildtime: development\n"
        );
        assert!(server.stdout().contains(&greeting), "{}", server.stdout());
        server.stop();
    }
}
