//! Workers in shared memory, for tests of every length.

use std::path::PathBuf;

use pronghorn_testkit::{Load, Server, Site, binary, php_command, wait_for};

/// The extension for the `php` of this machine, as `scripts/build-extension` leaves it beside the
/// server.
pub fn extension() -> PathBuf {
    let target = binary();
    let target = target.ancestors().nth(2).expect("it lies in target/debug");
    let said = php_command("php")
        .arg("-i")
        .output()
        .expect("there is a PHP");
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    let (_, api) = said.split_once("PHP Extension => ").expect("it says so");
    let threads = said.contains("Thread Safety => enabled");
    let debug = said.contains("Debug Build => yes");
    let built = target.join("extensions").join(format!(
        "pronghorn-{}-{}{}.so",
        api.lines().next().unwrap_or_default(),
        if threads { "zts" } else { "nts" },
        if debug { "-debug" } else { "" },
    ));
    assert!(
        built.exists(),
        "`scripts/build-extension` builds {}",
        built.display()
    );
    built
}

/// With a worker of a pool besides, that has nothing to do with the ones under test.
pub fn site(worker: &str, workers: usize, more: &str) -> Site {
    let php = format!("php -d extension={}", extension().display());
    let numbers = "$answer = $request->query()['n'] ?? 'none'; return $answer;";
    Site::new()
        .file("numbers.php", &Site::sdk_worker(numbers))
        .config(&format!(
            "version: '3'\nserver:\n  command: {php} {worker}\nhttp:\n  address: 127.0.0.1:0\n  \
             pool: {{num_workers: {workers}, transport: ring{more}}}\n  \
             pools:\n    numbers: {{num_workers: 1, transport: ring, command: '{php} numbers.php'}}\n  \
             routes:\n    - {{path: /number, pool: numbers}}\nlogs: {{level: debug}}\n"
        ))
}

/// The one worker that runs this script.
pub fn worker_of(server: &Server, script: &str) -> u32 {
    let runs = |pid: &u32| {
        let command = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        command.contains(script)
    };
    let found = server.workers().into_iter().find(runs);
    found.expect("the worker lives")
}

/// What became of scribbles.
#[derive(Debug)]
pub struct Scribbles {
    /// In calls that failed.
    pub detected: usize,
    /// In calls that were answered as if nothing had happened.
    pub harmless: usize,
}

/// Has workers scribble over their own boxes: so many calls that do it so often each. Meanwhile
/// another pool is under load, of which no call may fail.
///
/// # Panics
///
/// When anything else than those calls suffers.
pub fn scribble(calls: &[(usize, usize)]) -> Scribbles {
    let worker = Site::fixture("scribbler.php").display().to_string();
    let server = Server::start(site(&worker, 3, ", supervisor: {exec_ttl: 10s}"));
    assert_eq!(server.get("/resize").text(), "refused");
    let load = Load::start(server.address());
    load.go_on(20);
    let numbers = worker_of(&server, "numbers.php");
    let (mut harmless, mut detected) = (0, 0);
    for &(calls, each) in calls {
        for _ in 0..calls {
            let path = format!("/scribble/{each}");
            let reply = server.post(&path, "text/plain", "");
            if reply.status == 200 && reply.text() == path {
                harmless += each;
            } else {
                // Its own reply may say anything; a call that was refused would have scribbled
                // nothing.
                assert_ne!(reply.status, 503);
                detected += each;
            }
        }
    }
    assert!(!server.log().contains("panicked"));
    wait_for("the pool", || {
        (server.get("/fine").text() == "/fine").then_some(())
    });
    load.go_on(20);
    load.finish();
    let now = worker_of(&server, "numbers.php");
    assert_eq!(now, numbers, "another worker was touched");
    server.stop();
    Scribbles { detected, harmless }
}

/// Runs a worker under valgrind through all that it can do, so many times. What valgrind says about
/// it: nothing, if all is well.
///
/// # Panics
///
/// When a call is answered wrongly.
pub fn under_valgrind(rounds: usize) -> String {
    const WORKER: &str = r"
        switch ($request->path) {
            case '/length': return (string) \strlen($request->body());
            case '/stream': return new Pronghorn\Response((function () { for ($i = 0; $i < 10; $i++) { yield \str_repeat('x', 100000); } })());
            case '/headers': return new Pronghorn\Response('x', 200, ['X-A' => ['b', 'c']]);
            case '/exit': echo 'bye'; exit;
            case '/throw': throw new \LogicException('oops');
            case '/late': for (;;) { }
            case '/form': return \json_encode([$request->form(), $request->query(), $request->cookies, $request->headers]);
        }
        Pronghorn\Call::current()->defer(fn () => \strlen(\str_repeat('y', 10)));
        return \str_repeat('x', (int) $request->query()['n']);
    ";
    // Without settings and extensions, whose start takes valgrind a minute.
    let command = format!(
        "env USE_ZEND_ALLOC=0 ZEND_DONT_UNLOAD_MODULES=1 valgrind -q --leak-check=full --log-file=valgrind.log php -n -d extension={} worker.php",
        extension().display()
    );
    let site = Site::new()
        .file("worker.php", &Site::sdk_worker(WORKER))
        .config(&format!(
            "version: '3'\nserver: {{command: {command}}}\nhttp:\n  address: 127.0.0.1:0\n  \
             pool: {{num_workers: 1, transport: ring}}\n  \
             routes: [{{path: /late, pool: default, deadline: 1s}}]\n"
        ));
    let server = Server::start(site);
    let worker = server.workers();
    for _ in 0..rounds {
        for len in [0, 12, 10_000, 300_000, 600_000] {
            assert_eq!(server.get(&format!("/?n={len}")).body.len(), len);
            let sent = vec![b'y'; len];
            let answer = server.post("/length", "text/plain", &sent);
            assert_eq!(answer.text(), len.to_string());
        }
        assert_eq!(server.get("/stream").body.len(), 1_000_000);
        assert_eq!(server.get("/headers").all("x-a"), ["b", "c"]);
        assert_eq!(server.get("/exit").text(), "bye");
        assert_eq!(server.get("/throw").status, 500);
        let form = "application/x-www-form-urlencoded";
        let said = server.post("/form?q=1", form, "a[b]=c").text();
        assert!(said.starts_with(r#"[{"a":{"b":"c"}},{"q":"1"}"#), "{said}");
    }
    assert_eq!(server.get("/late").status, 504);
    assert_eq!(server.get("/?n=1").body.len(), 1);
    assert_eq!(server.workers(), worker);
    mistakes(&server.into_site().read("valgrind.log"))
}

/// What is to be said about our code: PHP leaves what is alive at its end to the system.
fn mistakes(log: &str) -> String {
    let mut records = vec![String::new()];
    for line in log.lines() {
        let text = line.rsplit_once("== ").map_or("", |(_, text)| text);
        if text.trim().is_empty() {
            records.push(String::new());
        } else if let Some(record) = records.last_mut() {
            record.push_str(text);
            record.push('\n');
        }
    }
    let is_ours = |record: &str| record.to_lowercase().contains("pronghorn");
    records.retain(|record| !record.contains(" lost in loss record") || is_ours(record));
    records.join("\n").trim().to_owned()
}
