//! What destructors do that run behind a call, when its last values are freed: the next visitor
//! finds nothing of it, and the worker stays.

use std::path::Path;

use pronghorn_testkit::{Server, Site, wait_for};

use crate::ring::extension;

/// An object that lies somewhere until it is freed, and does something then.
const LATE: &str = r#"<?php
    final class Late {
        public function __construct(private array $deeds) {}
        public function __destruct() {
            $deed = array_shift($this->deeds);
            // Its own deeds may be late as well.
            $next = $this->deeds === [] ? 'alice' : new self($this->deeds);
            match ($deed) {
                'session' => [session_id('alice'), session_start(), $_SESSION['user'] = 'alice', $_SESSION['next'] = $next],
                'shutdown' => register_shutdown_function(function () use ($next) { echo 'alice'; }),
                'superglobals' => $_GET['user'] = $_POST['user'] = $_COOKIE['user'] = $_REQUEST['user'] = $_FILES['user'] = $_SERVER['user'] = $_ENV['user'] = $next,
                'settings' => [date_default_timezone_set('Asia/Tokyo'), putenv('LATE=alice'), chdir('/'), ini_set('precision', '3'), setlocale(LC_ALL, 'C.UTF-8'),
                    umask(0), spl_autoload_extensions('.alice'), mb_internal_encoding('EUC-JP'), mb_language('ja'), mb_substitute_character(0x3f),
                    libxml_use_internal_errors(true)],
                // One thing each: it is the first that is put back, while what is thrown is there.
                'zone' => date_default_timezone_set('Asia/Tokyo'),
                'loader' => libxml_set_external_entity_loader(static fn () => null),
                'named' => [session_name('alice'), ini_set('session.gc_maxlifetime', '7'), session_start()],
                'none' => [$_SERVER = $_GET = null, (function () { unset($GLOBALS['_COOKIE']); })()],
                'save_handler' => set($next),
                'handlers' => [set_error_handler(function () use ($next) { exit('alice'); }), set_exception_handler(fn () => $next)],
                'assertion' => @assert_options(ASSERT_CALLBACK, fn () => $next),
                'head' => [@header_register_callback(function () use ($next) { header('X-User: alice'); }), @header('X-User: alice')],
                'many' => [$GLOBALS['kept'] = $_GET, array_map(function ($n) { $_SERVER["n$n"] = $_GET["n$n"] = $_COOKIE["n$n"] = $n; }, range(1, 3000))],
                'exit' => [register_shutdown_function(fn () => $next), exit],
                'throws' => throw new Exception('alice'),
                'buffer' => ob_start(fn (string $text) => "alice: $text", 0, 0),
                'error' => @file_get_contents('/alice'),
                // Freed once this one is told.
                'holds' => throw new class ('alice', $next) extends Exception { public function __construct(string $text, private mixed $next) { parent::__construct($text); } },
                default => throw new Exception($deed),
            };
        }
        public function handle() { return false; }
    }
    final class Saves extends SessionHandler {
        public function __construct(private mixed $late) {}
    }
    function set(mixed $late): void {
        session_set_save_handler(new Saves($late));
    }
    final class Kept {
        private static array $kept = [];
        public function __construct(private ?Late $late) {}
        public function __destruct() { self::$kept[] = $this; $this->late = null; }
    }
    function hold(string $where, Late $late, object $request): mixed {
        switch ($where) {
            case 'error handler': set_error_handler([$late, 'handle']); break;
            case 'exception handler': set_exception_handler([$late, 'handle']); break;
            case 'assertion': @assert_options(ASSERT_CALLBACK, [$late, 'handle']); break;
            case 'shutdown function': register_shutdown_function([$late, 'handle']); break;
            case 'superglobals': $_GET['late'] = $_POST['late'] = $_COOKIE['late'] = $_REQUEST['late'] = $_SERVER['late'] = $late; break;
            case 'superglobal by reference': $all = &$_GET; $all['late'] = $late; break;
            case 'session': session_start(); $_SESSION['late'] = $late; break;
            case 'save handler': set($late); break;
            case 'deferred': Pronghorn\Call::current()->defer(function () use ($late) {}); break;
            case 'context': stream_context_set_default(['http' => ['late' => $late]]); break;
            case 'exception': $thrown = new Exception('thrown'); $thrown->late = $late; throw $thrown;
            case 'buffer': ob_start([$late, 'handle']); break;
            case 'call': $GLOBALS['map'] ??= new WeakMap(); $GLOBALS['map'][Pronghorn\Call::current()] = $late; break;
            case 'request': $GLOBALS['map'] ??= new WeakMap(); $GLOBALS['map'][$request] = $late; break;
            case 'kept': $_GET['kept'] = new Kept($late); break;
            case 'generator': $_GET['late'] = (function () use ($late) { yield 1; })(); $_GET['late']->current(); break;
        }
        return 'held';
    }
    function see(): string {
        $seen = [session_status(), session_id(), $_GET, $_POST, $_COOKIE, $_REQUEST, $_FILES, isset($_SERVER['user']), isset($_ENV['user']),
            isset($_SERVER['n7']), date_default_timezone_get(), getenv('LATE'), getcwd(), ini_get('precision'), set_error_handler(null),
            set_exception_handler(null), error_get_last(), setlocale(LC_ALL, '0'), @assert_options(ASSERT_CALLBACK),
            session_name(), session_module_name(), ini_get('session.gc_maxlifetime'), umask(), spl_autoload_extensions(), mb_internal_encoding(),
            mb_language(), mb_substitute_character(), libxml_use_internal_errors(),
            function_exists('libxml_get_external_entity_loader') && libxml_get_external_entity_loader() !== null, ob_get_level()];
        // The destructor of one that is left would run in this call.
        set(null);
        session_start(['use_strict_mode' => 1]);
        $seen[] = $_SESSION;
        return json_encode($seen);
    }
    // A job's, of the same worker.
    function run(string $query): mixed {
        parse_str($query, $asked);
        echo "seen\n";
        return answer($asked, Pronghorn\Call::current());
    }
    function answer(array $query, ?object $request = null): mixed {
        return $query === [] ? see() : ($query['where'] === 'pid' ? (string) getmypid() : hold($query['where'], new Late(explode(' ', $query['deeds'])), $request ?? new stdClass()));
    }
"#;

const PLACES: [&str; 16] = [
    "error handler",
    "exception handler",
    "assertion",
    "shutdown function",
    "superglobals",
    "superglobal by reference",
    "session",
    "save handler",
    "deferred",
    "context",
    "exception",
    "buffer",
    "call",
    "request",
    "kept",
    "generator",
];

/// Each, and some behind others.
const DEEDS: [&str; 22] = [
    "session",
    "shutdown",
    "superglobals",
    "settings",
    "handlers",
    "assertion",
    "head",
    "many",
    "throws",
    "exit",
    "error",
    "buffer",
    "superglobals session",
    "session shutdown superglobals settings",
    "handlers handlers handlers session",
    "assertion handlers assertion head",
    "zone throws",
    "loader exit",
    "named",
    "shutdown named",
    "save_handler head",
    "none",
];

/// Where calls are no requests of PHP's own, settings stay; sessions are nobody's there, too.
#[test]
fn what_a_late_destructor_opens_is_no_visitors_without_globals() {
    let handler =
        Site::sdk_worker("require_once 'late.php'; return answer($request->query(), $request);");
    let server = serve(&handler, "spawn: exec, globals: false");
    let session = |text: String| {
        let seen: Vec<serde_json::Value> = serde_json::from_str(&text).unwrap();
        (seen[..7].to_vec(), seen.last().cloned())
    };
    let clean = session(server.get("/").text());
    let pid = server.get("/?where=pid").text();
    for place in PLACES.into_iter().filter(|place| *place != "save handler") {
        for deeds in [
            "session",
            "shutdown",
            "superglobals session",
            "throws",
            "exit",
            "none",
        ] {
            let target = format!("/?where={place}&deeds={deeds}").replace(' ', "%20");
            server.get(&target);
            assert_eq!(session(server.get("/").text()), clean, "{place}: {deeds}");
            assert_eq!(server.get("/?where=pid").text(), pid, "{place}: {deeds}");
        }
    }
    server.stop();
}

fn serve(worker: &str, pool: &str) -> Server {
    extension();
    let site = Site::new()
        .file("worker.php", worker)
        .file("late.php", LATE)
        .file("sessions/.keep", "")
        .config(&format!(
            "version: '3'\nserver: {{command: php worker.php}}\nlogs: {{mode: production, level: debug}}\nhttp:\n  \
             address: '127.0.0.1:0'\n  pool: {{num_workers: 1, {pool}, ini: {{session.save_path: sessions}}}}\n"
        ));
    Server::start(site)
}

#[test]
fn what_a_late_destructor_does_is_no_visitors() {
    let handler =
        Site::sdk_worker("require_once 'late.php'; return answer($request->query(), $request);");
    let front = Site::sdk_worker("").replace(
        "function (Pronghorn\\Request $request): mixed {\n\n}",
        "function () { require_once 'late.php'; echo answer($_GET); }",
    );
    for (worker, pool) in [
        (&handler, "spawn: exec"),
        (&handler, "spawn: fork"),
        (&front, "spawn: exec"),
        (&front, "spawn: fork"),
    ] {
        let server = serve(worker, pool);
        let clean = server.get("/");
        assert_eq!(clean.status, 200, "{}", clean.text());
        let clean = clean.text();
        let pid = server.get("/?where=pid").text();
        for place in PLACES {
            for deeds in DEEDS {
                let target = format!("/?where={place}&deeds={deeds}").replace(' ', "%20");
                let first = server.get(&target);
                let what = format!("{pool}, {place}: {deeds}");
                assert!(matches!(first.status, 200 | 500), "{what}");
                let seen = server.get("/");
                assert_eq!(seen.text(), clean, "{what}");
                assert_eq!(seen.header("X-User"), None, "{what}");
                assert_eq!(server.get("/?where=pid").text(), pid, "{what}");
            }
        }
        server.stop();
    }
}

/// Also by one whose object the exception of another held.
#[test]
fn what_a_late_destructor_throws_is_told() {
    let handler =
        Site::sdk_worker("require_once 'late.php'; return answer($request->query(), $request);");
    let server = serve(&handler, "spawn: exec");
    for place in ["superglobals", "session", "generator"] {
        server.get(&format!("/?where={place}&deeds=holds%20holds%20of-{place}"));
        let told = format!("Uncaught Exception: of-{place} in");
        wait_for(&told, || server.log().contains(&told).then_some(()));
    }
    server.stop();
}

/// A worker that answers requests and runs jobs, in a pool for each: all that is asked of the job's
/// one comes from a request, which waits for it.
fn serve_jobs(http: &str, jobs: &str) -> Server {
    extension();
    let worker = Site::sdk_worker("").replace(
        "Pronghorn\\serve(function (Pronghorn\\Request $request): mixed {\n\n});",
        "require_once 'late.php';
        (new Pronghorn\\Worker())->onRequest(function (Pronghorn\\Request $request) {
            static $queue = null;
            $queue ??= Pronghorn\\Jobs\\Queue::connect(pipeline: 'late');
            $options = new Pronghorn\\Jobs\\Options(result: true, attempts: 1);
            return $queue->await($queue->push($request->queryString ?: 'see', '', $options));
        })->onJob(fn (Pronghorn\\Job $job) => run($job->name === 'see' ? '' : $job->name))->run();",
    );
    assert!(worker.contains("onJob"), "{worker}");
    let repository = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
    let worker = worker.replacen(
        "<?php",
        &format!("<?php require '{repository}/php/jobs/autoload.php';"),
        1,
    );
    let site = Site::new()
        .file("worker.php", &worker)
        .file("late.php", LATE)
        .file("sessions/.keep", "")
        .config(&format!(
            "version: '3'\nserver: {{command: php worker.php}}\nlogs: {{mode: production, level: debug}}\n\
             http:\n  address: '127.0.0.1:0'\n  pool: {{num_workers: 1, {http}}}\n\
             jobs:\n  pool: {{num_workers: 1, {jobs}, ini: {{session.save_path: sessions}}}}\n  \
             pipelines: {{late: {{driver: memory}}}}\n  consume: [late]\n"
        ));
    Server::start(site)
}

/// Jobs are no requests: what they put into $_SERVER and $_ENV stays, as in `globals: false`.
#[test]
fn what_a_late_destructor_of_a_job_does_is_no_other_jobs() {
    for (http, jobs) in [
        ("spawn: exec", "spawn: exec"),
        ("spawn: fork, globals: false", "spawn: fork"),
    ] {
        let server = serve_jobs(http, jobs);
        let see = || {
            let seen = server.get("/");
            let mut seen: Vec<serde_json::Value> = serde_json::from_str(&seen.text())
                .unwrap_or_else(|_| panic!("{}: {}", seen.text(), server.log()));
            seen.drain(7..10);
            seen
        };
        let clean = see();
        let pid = server.get("/?where=pid").text();
        for place in PLACES {
            for deeds in DEEDS {
                let what = format!("{jobs}, {place}: {deeds}");
                server.get(&format!("/?where={place}&deeds={deeds}").replace(' ', "%20"));
                assert_eq!(see(), clean, "{what}");
                assert_eq!(server.get("/?where=pid").text(), pid, "{what}");
            }
        }
        let log = server.log();
        assert!(log.contains("seen"), "{log}");
        assert!(!log.contains("alice: seen"), "{log}");
        assert!(!log.contains("array_filter"), "{log}");
        server.stop();
    }
}

/// Workers begin with what the zygote has after its last answer.
#[test]
fn what_a_late_destructor_of_a_warm_up_does_is_no_workers() {
    let handler =
        Site::sdk_worker("require_once 'late.php'; return answer($request->query(), $request);");
    let see = |warmup: &str| {
        let server = serve(&handler, &format!("spawn: fork{warmup}"));
        let seen: Vec<serde_json::Value> = serde_json::from_str(&server.get("/").text()).unwrap();
        let folder = server.site().path("");
        server.stop();
        // Each server has its own.
        let is_folder = |value: &serde_json::Value| value.as_str().map(Path::new) == Some(&folder);
        assert_eq!(seen.iter().filter(|value| is_folder(value)).count(), 1);
        seen.into_iter()
            .filter(|value| !is_folder(value))
            .collect::<Vec<_>>()
    };
    let clean = see("");
    for place in ["context", "error%20handler", "call"] {
        for deeds in ["settings", "session", "handlers%20settings"] {
            let warmup = format!(", warmup: ['/?where={place}&deeds={deeds}']");
            assert_eq!(see(&warmup), clean, "{place}: {deeds}");
        }
    }
}
