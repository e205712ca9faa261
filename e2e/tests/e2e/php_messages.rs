//! What PHP says of errors and warnings: one record each, in every mode.

use std::fmt::Write;

use pronghorn_testkit::{Server, Site};
use serde_json::Value;

use crate::modes::{self, MODES};
use crate::php_fpm::program;
use crate::ring::extension;

const SCRIPT: &str = r#"<?php
function deep() { throw new LogicException("no\nway"); }
match ($_GET['do'] ?? '') {
    'throw' => deep(),
    'warn' => print($undefined),
    'memory' => str_repeat('x', 1 << 30),
    'parse' => eval('}'),
    'status' => http_response_code(503),
};
"#;

/// The records that are JSON.
fn records(log: &str) -> Vec<Value> {
    log.lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect()
}

/// The records of this level about this request, but for that of the request itself.
fn of(records: &[Value], level: &str, target: &str) -> Vec<Value> {
    let mut of = records.to_owned();
    of.retain(|record| record["level"] == level && record["URI"] == target);
    of.retain(|record| record["msg"] != "http log");
    of
}

/// Asks for each kind of failure, with an ID, and gives what is logged.
fn failing(server: Server) -> Vec<Value> {
    for (how, status) in [
        ("throw", 500),
        ("warn", 200),
        ("memory", 500),
        ("parse", 500),
        ("status", 503),
    ] {
        let mut client = server.connect();
        let id = format!("X-Request-Id: of-{how}\r\n");
        client.request("GET", &format!("/?do={how}"), &id);
        assert_eq!(client.response().status, status, "{how}");
    }
    let log = server.stop().stderr;
    records(&log)
}

fn check(records: &[Value], script: &str, line: u64) {
    let thrown = of(records, "error", "/?do=throw");
    assert_eq!(thrown.len(), 1, "{records:?}");
    let thrown = &thrown[0];
    assert_eq!(
        (&thrown["class"], &thrown["line"], &thrown["method"]),
        (&"LogicException".into(), &line.into(), &"GET".into())
    );
    let text = |name: &str| thrown[name].as_str().unwrap_or_default().to_owned();
    assert!(text("msg").contains("no\nway"), "{thrown}");
    assert!(text("file").ends_with(script), "{thrown}");
    assert!(text("trace").starts_with("#0 "), "{thrown}");
    assert_eq!(thrown["pool"], "default");
    assert!(thrown["pid"].as_u64() > Some(0), "{thrown}");
    assert_eq!(thrown["request_id"], "of-throw");
    for (how, says) in [("memory", "Allowed memory"), ("parse", "Unmatched '}'")] {
        let found = of(records, "error", &format!("/?do={how}"));
        assert_eq!(found.len(), 1, "{how}: {records:?}");
        assert!(found[0]["msg"].to_string().contains(says), "{found:?}");
    }
    let failed = records
        .iter()
        .filter(|record| record["msg"] == "http log" && record["status"].as_u64() >= Some(500));
    assert!(failed.clone().all(|record| record["level"] == "warn"));
    assert_eq!(failed.count(), 4);
    // PHP ends after a fatal error, and the server may see that before it has asked it to.
    let of_worker = |record: &Value| record["msg"].to_string().contains("worker died");
    let errors = records
        .iter()
        .filter(|record| record["level"] == "error" && !of_worker(record));
    assert_eq!(errors.count(), 3, "{records:?}");
}

const HTTP: &str = "version: '3'\nlogs: {mode: production}\n\
    http:\n  address: '127.0.0.1:0'\n  request_id: {}\n";

#[test]
fn of_a_script_a_failure_is_one_record() {
    let php = format!("php -d extension={}", extension().display());
    let site = Site::new()
        .config(&format!(
            "{HTTP}  pool: {{mode: classic, root: public, php: '{php}', num_workers: 1, ini: {{memory_limit: 32M}}}}\n"
        ))
        .file("public/index.php", SCRIPT);
    let records = failing(Server::start(site));
    check(&records, "public/index.php", 2);
    let warned = of(&records, "warn", "/?do=warn");
    assert_eq!(warned.len(), 1, "{records:?}");
    assert_eq!(warned[0]["class"], "Warning");
}

#[test]
fn of_a_kept_worker_a_failure_is_one_record() {
    let worker = SCRIPT
        .replace("<?php", &Site::sdk_worker("").lines().take(2).collect::<Vec<_>>().join("\n"))
        .replace("match ($_GET['do'] ?? '') {", "Pronghorn\\serve(fn (Pronghorn\\Request $request) => match ($request->query()['do']) {")
        .replace("print($undefined)", "$undefined . 'x'")
        .replace("http_response_code(503),\n}", "new Pronghorn\\Response('', 503),\n})");
    for without in ["", ", transport: relay"] {
        let site = Site::new()
            .config(&format!(
                "server: {{command: php worker.php}}\n{HTTP}  pool: {{num_workers: 1, ini: {{memory_limit: 32M}}{without}}}\n"
            ))
            .file("worker.php", &worker);
        let records = failing(Server::start(site));
        check(&records, "worker.php", 3);
        let warned = records.iter().filter(|record| record["class"] == "Warning");
        assert_eq!(warned.count(), 1, "{records:?}");
    }
}

#[test]
fn of_php_fpm_a_failure_is_one_record() {
    let fpm = program();
    let site = Site::new()
        .file("public/index.php", SCRIPT)
        .config(&format!(
            "{HTTP}  pool: {{mode: fastcgi, root: public, num_workers: 1, fastcgi: {{php_fpm: {}}}}}\n",
            fpm.display()
        ));
    let records = failing(Server::start(site));
    check(&records, "public/index.php", 2);
}

/// Messages of each kind, and a line of the application's own.
const SAYS: &str = r"<?php
match ($_GET['do'] ?? '') {
    'warn' => print($said_warn),
    'notice' => trigger_error('said_notice'),
    'deprecated' => trigger_error('said_deprecated', E_USER_DEPRECATED),
    'log' => error_log('said_log'),
    'late' => register_shutdown_function(fn () => trigger_error('said_late', E_USER_WARNING)),
};
echo 'x';
";

#[test]
fn a_record_of_what_is_said_names_its_request_in_all_modes() {
    for mode in MODES {
        let server = Server::start(modes::site(mode, SAYS, ""));
        let kinds = ["warn", "notice", "deprecated", "log", "late"];
        for kind in kinds {
            let mut client = server.connect();
            let target = format!("/?do={kind}&token=hush");
            client.request("GET", &target, &format!("X-Request-Id: of-{kind}\r\n"));
            assert_eq!(client.response().status, 200, "{} {kind}", mode.name);
        }
        let log = server.stop().stderr;
        let records = records(&log);
        for kind in kinds {
            let text = format!("said_{kind}");
            let said: Vec<_> = records
                .iter()
                .filter(|record| record["msg"].to_string().contains(&text))
                // php-fpm tells it to its own log, too.
                .filter(|record| !record["msg"].to_string().contains("NOTICE: PHP message"))
                .collect();
            assert_eq!(said.len(), 1, "{} {kind}: {log}", mode.name);
            let of = (&said[0]["method"], &said[0]["URI"], &said[0]["request_id"]);
            let target = format!("/?do={kind}&token=***");
            let expected = ("GET".into(), target.into(), format!("of-{kind}").into());
            assert_eq!(
                of,
                (&expected.0, &expected.1, &expected.2),
                "{} {kind}: {}",
                mode.name,
                said[0]
            );
        }
        assert!(!log.contains("hush"), "{}: {log}", mode.name);
    }
}

/// Words of a visitor in a text that the application logs, which must become no error of PHP.
const FORGED: [&str; 3] = [
    "PHP message: PHP Fatal error:  Uncaught App\\Forged: no in /etc/passwd:1\nStack trace:\n\
     #0 {main}\n  thrown in /etc/passwd on line 1",
    "PHP Fatal error:  Forged memory in /etc/passwd on line 1",
    "PHP Parse error:  Forged syntax in /etc/passwd on line 1",
];

const LOGS: &str = "<?php
if (isset($_GET['dies'])) { trigger_error('own', E_USER_ERROR); }
error_log($_GET['text']);
echo 'x';
";

#[test]
fn what_looks_like_an_error_of_php_makes_no_report_and_is_marked_in_all_modes() {
    for mode in MODES {
        let site = modes::site(mode, LOGS, "");
        let config = site.read(".rr.yaml");
        let server = Server::start(site.config(&format!("{config}state_dir: state\n")));
        let workers = server.workers();
        for text in FORGED {
            let mut target = "/?text=".to_owned();
            for byte in text.bytes() {
                _ = write!(target, "%{byte:02x}"); // a String takes all
            }
            assert_eq!(server.get(&target).status, 200);
        }
        if !mode.ends_its_worker() {
            assert_eq!(server.workers(), workers, "{}", mode.name);
        }
        let crashes = server.steer(&["crashes"]).stdout;
        assert!(
            crashes.starts_with("No reports"),
            "{}: {crashes}",
            mode.name
        );
        let log = server.stop().stderr;
        let records = records(&log);
        let forged = |record: &&Value| {
            let is_said = ["msg", "class"].map(|field| record[field].to_string());
            is_said.concat().contains("orged")
        };
        let forged: Vec<_> = records.iter().filter(forged).collect();
        assert!(forged.len() >= FORGED.len(), "{}: {log}", mode.name);
        for record in forged {
            // php-fpm tells it to its own log, too.
            if record["msg"].to_string().contains("NOTICE: PHP message") {
                continue;
            }
            // FastCGI has one stream for both. Elsewhere the extension tells them apart.
            let is_a_line = record["level"] == "info" && record["class"] == Value::Null;
            let is_marked = mode.is_fastcgi() && record["stream"] == "stderr";
            assert!(is_a_line || is_marked, "{}: {record}", mode.name);
        }
    }
}

#[test]
fn without_the_extension_a_text_that_looks_like_an_error_names_its_stream() {
    for transport in ["relay", "ring"] {
        if transport == "ring" {
            extension();
        }
        let worker = Site::sdk_worker("\\error_log($request->query()['text']); return 'x';");
        let site = Site::new().file("worker.php", &worker).config(&format!(
            "server: {{command: php worker.php}}\n{HTTP}  pool: {{num_workers: 1, transport: {transport}}}\n\
             state_dir: state\n"
        ));
        let server = Server::start(site);
        let text = "PHP%20Warning:%20%20Forged%20in%20/a.php%20on%20line%201";
        server.get(&format!("/?text={text}"));
        // The record of access has the text too, in another spelling.
        let log = server.logged(&["Forged in"]);
        let of = records(&log);
        let record = of
            .iter()
            .find(|record| record["msg"].to_string().contains("Forged"));
        let (level, stream) = match transport {
            "relay" => ("warn", "stderr".into()),
            _ => ("info", Value::Null),
        };
        let record = record.expect("it is logged");
        assert_eq!(
            (&record["level"], &record["stream"]),
            (&level.into(), &stream)
        );
        server.stop();
    }
}
