//! Kept workers that are forked from an application which has booted once: what they share, what
//! each has of its own, and what forbids it.

mod kinds;

use pronghorn_testkit::{Server, Site, wait_for};
use rustix::process::{Pid, Signal, kill_process};

use crate::ring::extension;

/// A worker whose script is this, with these functions of [`Pronghorn\Worker`] called before
/// `onRequest`. Its handler tells who has booted and who answers.
fn site(workers: usize, pool: &str, boot: &str, calls: &str, answer: &str) -> Site {
    extension();
    let autoload = Site::sdk_worker("");
    let require = autoload.lines().nth(1).expect("it loads the package");
    Site::new()
        .file(
            "worker.php",
            &format!(
                "<?php\n{require}\n{boot}\n$booted = (int) basename(readlink('/proc/self'));\n(new Pronghorn\\Worker()){calls}\n    \
                 ->onRequest(function (Pronghorn\\Request $request) use ($booted): mixed {{\n{answer}\n}})->run();\n"
            ),
        )
        .config(&format!(
            "version: '3'\nserver: {{command: php worker.php}}\n\
             http: {{address: '127.0.0.1:0', pool: {{num_workers: {workers}, spawn: fork{pool}}}}}\n"
        ))
}

const WHO: &str = "usleep(20_000); return $booted . ' ' . getmypid();";

/// What so many different workers answer: behind the process that has booted, their own number.
fn answers(server: &Server, workers: usize) -> Vec<(u32, u32)> {
    let mut answers = Vec::new();
    wait_for("all workers to answer", || {
        let mut connections: Vec<_> = (0..workers).map(|_| server.connect()).collect();
        for connection in &mut connections {
            connection.request("GET", "/", "");
        }
        answers.clear();
        for connection in &mut connections {
            let text = connection.response().text();
            let (booted, pid) = text.split_once(' ')?;
            answers.push((booted.parse().ok()?, pid.parse().ok()?));
        }
        answers.sort_unstable();
        answers.dedup();
        (answers.len() == workers).then_some(())
    });
    answers
}

fn one_zygote(server: &Server) -> u32 {
    wait_for("one zygote", || match server.zygotes()[..] {
        [zygote] => Some(zygote),
        _ => None,
    })
}

fn kill(pid: u32) {
    let pid = Pid::from_raw(pid.cast_signed()).expect("it is none of the kernel's");
    kill_process(pid, Signal::KILL).expect("it lives");
}

#[test]
fn the_application_boots_once_for_all_workers() {
    let server = Server::start(site(3, "", "", "", WHO));
    let zygote = one_zygote(&server);
    let before = answers(&server, 3);
    for (booted, pid) in &before {
        assert_eq!(*booted, zygote, "worker {pid}");
    }
    let shown = server.steer(&["workers"]).stdout;
    let summary = format!("default: 3 workers, 0 busy, 0 calls waiting, forked by {zygote}");
    assert!(shown.contains(&summary), "{shown}");
    // The successor of a worker comes from the same one.
    let killed = before[0].1;
    kill(killed);
    wait_for("a successor", || {
        let now = server.workers();
        (now.len() == 3 && !now.contains(&killed)).then_some(())
    });
    for (booted, pid) in answers(&server, 3) {
        assert!(booted == zygote && pid != killed, "{booted} {pid}");
    }
    // A reload boots anew.
    let changed = server
        .site()
        .read("worker.php")
        .replace("$booted . ' '", "$booted . ' 1'");
    server.site().replace("worker.php", &changed);
    server.signal(Signal::HUP);
    server.logged(&["new workers have taken over"]);
    wait_for("the new generation's zygote alone", || {
        (server.zygotes().len() == 1 && !server.zygotes().contains(&zygote)).then_some(())
    });
    let next = one_zygote(&server);
    for (booted, pid) in answers(&server, 3) {
        assert!(
            booted == next && pid.to_string().starts_with('1'),
            "{booted} {pid}"
        );
    }
    let ended = server.stop();
    assert!(!ended.stderr.contains("the zygote"), "{}", ended.stderr);
}

#[test]
fn each_worker_has_random_numbers_and_output_of_its_own() {
    // All are drawn from before the fork, and stderr is known by another number.
    // Where GMP is not there, its seed is looked at.
    let boot = "mt_rand(); lcg_value(); uniqid('', true); $log = fopen('php://stderr', 'w');
        if (!function_exists('gmp_random_seed')) {
            function gmp_random_seed(string $seed): void { $GLOBALS['seed'] = $seed; }
            function gmp_random_bits(int $bits): string { return $GLOBALS['seed'] ?? 'none'; }
        }
        gmp_random_bits(8);";
    let answer = "usleep(20_000); fwrite($GLOBALS['log'], 'said by ' . getmypid() . \"\\n\");
        return $booted . ' ' . json_encode([mt_rand(), lcg_value(), uniqid('', true), random_int(0, PHP_INT_MAX), array_rand(range(0, 1_000_000)),
            str_shuffle('abcdefghijklmnopqrstuvwxyz'), (string) gmp_random_bits(64)]);";
    let server = Server::start(site(3, "", boot, "", answer));
    let mut connections: Vec<_> = (0..3).map(|_| server.connect()).collect();
    for connection in &mut connections {
        connection.request("GET", "/", "");
    }
    let drawn: Vec<Vec<String>> = connections
        .iter_mut()
        .map(|connection| {
            let text = connection.response().text();
            let (_, numbers) = text.split_once(' ').expect("both");
            numbers.split(',').map(str::to_owned).collect()
        })
        .collect();
    let [one, two, three] = &drawn[..] else {
        panic!("three answers");
    };
    for ((one, two), three) in one.iter().zip(two).zip(three) {
        assert!(
            one != two && two != three && one != three,
            "{one} {two} {three}"
        );
    }
    for worker in server.workers() {
        server.logged(&[&format!("said by {worker}"), &format!("\"pid\":{worker}")]);
    }
    server.stop();
}

#[test]
fn what_is_open_is_named_with_the_call_that_opened_it() {
    let boot = "$server = stream_socket_server('tcp://127.0.0.1:0');
        $log = fopen('app.log', 'a');
        class Database { function __construct() { $this->pdo = new PDO('sqlite:data.sqlite'); $this->pdo->exec('create table if not exists a (b)'); } public $pdo; }
        $database = new Database();
        $client = stream_socket_client('tcp://' . stream_socket_get_name($server, false));";
    let server = Server::start(site(2, "", boot, "", WHO));
    let line = server.logged(&[
        "WARN",
        "each worker boots the application itself, in spite of `spawn: fork`",
    ]);
    for part in [
        "a socket, opened by stream_socket_server() in ",
        "worker.php:3",
        "data.sqlite`, opened by PDO::",
        "worker.php:5",
        "a connection to 127.0.0.1:",
        "opened by stream_socket_client() in ",
        "close it in `Worker::beforeFork()`, in Laravel and Symfony by a listener of `BeforeFork`, or open it later",
    ] {
        assert!(line.contains(part), "{part} in {line}");
    }
    assert!(!line.contains("app.log"), "{line}");
    // They are there all the same, and it is said once.
    for (booted, pid) in answers(&server, 2) {
        assert_eq!(booted, pid);
    }
    assert!(server.zygotes().is_empty());
    let ended = server.stop();
    assert_eq!(ended.stderr.matches("in spite of `spawn: fork`").count(), 1);
}

#[test]
fn functions_run_before_and_after_the_fork() {
    let boot = "$database = new PDO('sqlite:data.sqlite'); $database->exec('create table if not exists a (b)');
        register_shutdown_function(fn () => fwrite(STDERR, 'registered: end of ' . getmypid() . \"\\n\"));";
    let calls = "->beforeFork(function () use (&$database) { $database = null; fwrite(STDERR, 'before in ' . getmypid() . \"\\n\"); })
        ->afterFork(function () use (&$database) { $database = new PDO('sqlite:data.sqlite'); })
        ->onStop(fn () => fwrite(STDERR, 'stopped: ' . getmypid() . \"\\n\"))";
    let answer = "return $booted . ' ' . getmypid() . ' ' . $GLOBALS['database']->query('select count(*) from a')->fetchColumn();";
    let server = Server::start(site(2, "", boot, calls, answer));
    let zygote = one_zygote(&server);
    let workers = server.workers();
    assert!(server.get("/").text().ends_with(" 0"));
    let ended = server.stop();
    assert_eq!(
        ended.stderr.matches("before in").count(),
        1,
        "{}",
        ended.stderr
    );
    assert!(ended.stderr.contains(&format!("before in {zygote}")));
    // What the boot has registered for its end is each worker's, and not the zygote's.
    for worker in workers {
        for text in [
            format!("stopped: {worker}"),
            format!("registered: end of {worker}"),
        ] {
            assert_eq!(
                ended.stderr.matches(&text).count(),
                1,
                "{text} in {}",
                ended.stderr
            );
        }
    }
    assert!(
        !ended.stderr.contains(&format!("end of {zygote}")),
        "{}",
        ended.stderr
    );
}

#[test]
fn a_fresh_process_for_each_request_has_the_boot_behind_it() {
    let answer = "static $calls = 0; $calls++; return $booted . ' ' . getmypid() . ' ' . $calls;";
    let server = Server::start(site(2, ", max_jobs: 1", "", "", answer));
    let zygote = one_zygote(&server);
    let mut pids = Vec::new();
    for _ in 0..20 {
        let text = server.get("/").text();
        let parts: Vec<u32> = text
            .split(' ')
            .map(|part| part.parse().expect("a number"))
            .collect();
        assert_eq!((parts[0], parts[2]), (zygote, 1), "{text}");
        pids.push(parts[1]);
    }
    pids.sort_unstable();
    pids.dedup();
    assert_eq!(pids.len(), 20, "none gets a second call");
    assert_eq!(one_zygote(&server), zygote);
    let ended = server.stop();
    assert!(!ended.stderr.contains("ERROR"), "{}", ended.stderr);
}

/// What the handler does for `/warm` is done before the first fork; what it leaves in PHP is not
/// there any more.
#[test]
fn the_application_answers_its_warm_up_before_workers_are_forked() {
    let boot = "setlocale(LC_ALL, 'C'); function state(): string { return json_encode([setlocale(LC_CTYPE, '0'), ini_get('precision'),
        date_default_timezone_get(), session_status(), isset($_SESSION), headers_list(), http_response_code(), ob_get_level(), getenv('LEFT'),
        getenv('PRONGHORN_WARMUP')]); }";
    let answer = "static $calls = 0, $paths = []; $calls++;
        if ($request->path === '/warm') {
            $paths[] = $request->queryString;
            setlocale(LC_ALL, 'C.UTF-8'); ini_set('precision', '3'); date_default_timezone_set('Asia/Tokyo'); putenv('LEFT=1');
            session_id('warm'); session_start(); header('X-Warm: 1'); http_response_code(404); ob_start(); echo 'said before the fork';
            Pronghorn\\Call::current()->defer(function () use (&$calls) { $calls += 10; exit; });
            return new Pronghorn\\Response((fn () => yield from ['a', 'b'])(), 404);
        }
        return $booted . ' ' . getmypid() . ' ' . $calls . ' ' . implode(',', $paths) . ' ' . state();";
    let pool = ", max_jobs: 1, warmup: [/warm?1, /warm?2], ini: {session.save_path: '.'}";
    let server = Server::start(site(2, pool, boot, "", answer));
    let zygote = one_zygote(&server);
    for _ in 0..4 {
        let said = server.get("/").text();
        let parts: Vec<_> = said.splitn(5, ' ').collect();
        assert_eq!(parts[0], zygote.to_string());
        assert_eq!(parts[2..4], ["23", "1,2"], "{said}");
        let (state, clean) = (parts[4], r#"["C","14","UTC",1,false,[],200,"#);
        assert!(
            state.starts_with(clean) && state.ends_with("false,false]"),
            "{state}"
        );
    }
    let ended = server.stop();
    // It is part of a page that nobody has asked for.
    let said = ended.stderr.contains("said before the fork");
    assert!(!said, "{}", ended.stderr);
    assert!(
        !ended.stderr.contains("failed before the fork"),
        "{}",
        ended.stderr
    );
}

#[test]
fn workers_answer_a_warm_up_that_failed_before_the_fork() {
    // In this process and no other; then in all.
    let answer = "if ($request->path === '/warm' && getmypid() === $booted) { throw new LogicException('cold'); }
        static $calls = 0; return $booted . ' ' . ++$calls;";
    let server = Server::start(site(1, ", warmup: [/warm]", "", "", answer));
    server.logged(&[
        "GET /warm failed before the fork, so each worker answers it: LogicException: cold",
    ]);
    let zygote = one_zygote(&server);
    assert_eq!(server.get("/").text(), format!("{zygote} 2"));
    server.stop();
    let answer = "return new Pronghorn\\Response('', 503);";
    let site = site(1, ", warmup: [/warm]", "", "", answer);
    Server::run(&site, &["serve"])
        .assert_refused(&["worker failed its warm-up: GET /warm: it answered 503"]);
}

#[test]
fn what_a_warm_up_has_opened_is_named() {
    let answer = "if ($request->path === '/warm') { $GLOBALS['kept'] = stream_socket_server('tcp://127.0.0.1:0'); }
        return getmypid() . ' ' . $booted;";
    let server = Server::start(site(1, ", warmup: [/warm]", "", "", answer));
    server.logged(&[
        "a socket, opened by stream_socket_server() in ",
        "worker.php",
    ]);
    assert!(server.zygotes().is_empty());
    server.stop();
}

#[test]
fn an_exit_a_fatal_error_and_a_front_controller_are_what_they_are_in_other_workers() {
    let answer = "
        register_shutdown_function(fn () => fwrite(STDERR, \"of a call\\n\"));
        switch ($request->path) {
            case '/exit': echo 'said'; exit;
            case '/fatal': ini_set('memory_limit', '16M'); return str_repeat('x', 1 << 26);
            default: header('X-Of: php'); return getmypid() . ' ' . ($_GET['a'] ?? '');
        }";
    let server = Server::start(site(1, ", retry: never", "", "", answer));
    let zygote = one_zygote(&server);
    let first = server.get("/?a=1");
    assert!(first.text().ends_with(" 1") && first.header("x-of") == Some("php"));
    assert_eq!(server.get("/exit").text(), "said");
    assert_eq!(
        server.get("/?a=2").text().split(' ').next(),
        first.text().split(' ').next()
    );
    assert_eq!(server.get("/fatal").status, 500);
    server.logged(&["Allowed memory size"]);
    assert!(server.get("/?a=3").text().ends_with(" 3"));
    assert_eq!(one_zygote(&server), zygote);
    server.stop();
}

#[test]
fn what_goes_wrong_on_the_way_to_a_fork_is_said() {
    let thrown = "throw new RuntimeException('no way');";
    // After the fork: as a worker that does not boot.
    let calls = format!("->afterFork(function () {{ {thrown} }})");
    let ended = Server::run(&site(1, "", "", &calls, WHO), &["serve"]);
    assert_eq!(ended.code, Some(1), "{}", ended.stderr);
    assert!(
        ended.stderr.contains("worker ended before it was ready"),
        "{}",
        ended.stderr
    );
    assert!(ended.stderr.contains("no way"), "{}", ended.stderr);
    // Before: nothing can be forked from that process.
    let calls = format!("->beforeFork(function () {{ {thrown} }})");
    let server = Server::start(site(1, "", "", &calls, WHO));
    server.logged(&[
        "in spite of `spawn: fork`",
        "has ended (exit code 255) instead of waiting",
        "it said: ",
        "RuntimeException: no way",
    ]);
    assert_eq!(answers(&server, 1).len(), 1);
    server.stop();
    // An application that does not boot is told of by its workers.
    let ended = Server::run(
        &site(1, "", "require 'vendor/autoload.php';", "", WHO).file("composer.json", "{}"),
        &["serve"],
    );
    assert_eq!(ended.code, Some(1), "{}", ended.stderr);
    assert!(
        ended.stderr.contains("run `composer install`"),
        "{}",
        ended.stderr
    );
}

#[test]
fn workers_of_other_packages_are_started_one_by_one() {
    extension();
    for relay in ["", ", relay: 'unix://rr.sock'"] {
        let worker = Site::fixture("foreign/worker.php");
        let server = Server::start(Site::new().config(&format!(
            "version: '3'\nserver: {{command: php {}{relay}}}\n\
             http: {{address: '127.0.0.1:0', pool: {{num_workers: 2, spawn: fork}}}}\n",
            worker.display()
        )));
        server.logged(&[
            "each worker boots the application itself",
            "its script uses another package than pronghorn/worker",
        ]);
        assert_eq!(server.workers().len(), 2);
        assert!(server.zygotes().is_empty());
        assert_eq!(server.get("/pid").status, 200);
        server.stop();
    }
}

/// [`site`] with what is the default.
fn by_default(workers: usize, pool: &str, boot: &str, answer: &str) -> Site {
    let site = site(workers, pool, boot, "", answer);
    let config = site.read(".rr.yaml").replace(", spawn: fork", "");
    site.config(&config)
}

#[test]
fn kept_workers_are_forked_by_default() {
    // What a request gets at random is no part of the boot.
    let answer = format!("random_bytes(8); {WHO}");
    let server = Server::start(by_default(3, ", warmup: [/]", "", &answer));
    let zygote = one_zygote(&server);
    let all = answers(&server, 3);
    assert!(all.iter().all(|(booted, _)| *booted == zygote), "{all:?}");
    server.stop();
}

/// Each fork ends a process of the zygote, and people signal all processes of a program.
#[test]
fn signals_to_the_zygote_are_not_seen_by_its_workers() {
    let boot = "$seen = 0; pcntl_async_signals(true); \
                pcntl_signal(SIGCHLD, function () { $GLOBALS['seen']++; }); \
                pcntl_signal(SIGUSR1, function () { $GLOBALS['seen']++; });";
    let answer = "return getmypid() . ' ' . $GLOBALS['seen'];";
    let server = Server::start(by_default(2, ", max_jobs: 1", boot, answer));
    let zygote = one_zygote(&server);
    for round in 0..6 {
        let pid = i32::try_from(zygote).ok().and_then(Pid::from_raw);
        kill_process(pid.expect("a process"), Signal::USR1).expect("it is there");
        let seen = server.get("/").text();
        assert!(seen.ends_with(" 0"), "{round}: {seen}");
    }
    server.stop();
}

/// PHP keeps it open.
#[test]
fn a_file_that_php_prepends_forbids_no_fork() {
    let site = by_default(2, ", ini: {auto_prepend_file: first.php}", "", WHO);
    let server = Server::start(site.file("first.php", "<?php define('FIRST', 1);"));
    one_zygote(&server);
    server.stop();
}

#[test]
fn what_the_boot_has_made_to_exclude_others_excludes_other_workers() {
    let cases = [
        (
            "$lock = fopen(__DIR__ . '/lock', 'a');",
            "flock($lock, LOCK_EX | LOCK_NB)",
            "flock($lock, LOCK_UN)",
        ),
        // A semaphore that the boot has had, and let go of.
        (
            "$lock = sem_get(ftok(__FILE__, 'a')); sem_acquire($lock); sem_release($lock); \
             register_shutdown_function(fn () => @sem_remove($lock));",
            "sem_acquire($lock, true)",
            "!$is || sem_release($lock)",
        ),
    ];
    for (boot, take, give) in cases {
        let answer = format!(
            "global $lock; $is = {take}; usleep(500_000); {give}; return $is ? 'locked' : 'busy';"
        );
        let server = Server::start(by_default(2, "", boot, &answer));
        one_zygote(&server);
        let mut connections = [server.connect(), server.connect()];
        for connection in &mut connections {
            connection.request("GET", "/", "");
        }
        let mut said = connections.map(|mut connection| connection.response().text());
        said.sort();
        assert_eq!(said, ["busy", "locked"], "{boot}");
        server.stop();
    }
}

#[test]
fn a_pool_of_one_and_one_in_debug_are_started() {
    for (workers, pool) in [(1, ""), (2, ", debug: true"), (2, ", transport: relay")] {
        let server = Server::start(by_default(workers, pool, "", "return 'fine';"));
        assert_eq!(server.get("/").text(), "fine");
        assert!(server.zygotes().is_empty(), "{pool}");
        server.stop();
    }
}

#[test]
fn forked_workers_share_the_memory_of_the_boot() {
    const WORKERS: usize = 8;
    let boot = "$data = array_map(fn ($i) => \"text $i\", range(1, 300_000));";
    let answer =
        "usleep(20_000); return $booted . ' ' . getmypid() . ' ' . count($GLOBALS['data']);";
    let memory = |spawn: &str| {
        let site = site(
            WORKERS,
            "",
            boot,
            "",
            &answer.replace(" . ' ' . count($GLOBALS['data'])", ""),
        );
        site.change_config("spawn: fork", &format!("spawn: {spawn}"));
        let server = Server::start(site);
        answers(&server, WORKERS);
        let mut all = server.workers();
        all.extend(server.zygotes());
        let kilobytes: u64 = all.into_iter().map(proportional_memory).sum();
        server.stop();
        kilobytes
    };
    let (forked, started) = (memory("fork"), memory("exec"));
    println!(
        "PSS of {WORKERS} workers: forked {forked} kB with their zygote, started {started} kB"
    );
    assert!(forked * 2 < started, "{forked} kB, {started} kB");
}

/// A worker took 4 MB of its own to read files of settings, before its first call.
#[test]
fn a_forked_worker_takes_little_memory_of_its_own() {
    const WORKERS: usize = 2;
    let server = Server::start(site(WORKERS, "", "", "", WHO));
    for (_, worker) in answers(&server, WORKERS) {
        let own = kilobytes(worker, "Private_Dirty:");
        assert!(own < 2_000, "{own} kB");
    }
    server.stop();
}

/// A later worker took those settings from the disk that the command line fixes, and no others.
#[test]
fn workers_have_the_settings_of_the_boot_whatever_php_ini_says_now() {
    let site = site(
        1,
        ", max_jobs: 1",
        "",
        "",
        "return $booted . ' ' . ini_get('max_input_time');",
    );
    let ini = site.path("php.ini");
    site.write("php.ini", "max_input_time = 1\n");
    let command = format!("php -c {} worker.php", ini.display());
    site.change_config("php worker.php", &command);
    let server = Server::start(site);
    let zygote = one_zygote(&server);
    for _ in 0..4 {
        assert_eq!(server.get("/").text(), format!("{zygote} 1"));
        std::fs::write(&ini, "max_input_time = 0\n").expect("a file of the site");
    }
    server.stop();
}

/// PSS: what processes share is divided among them.
fn proportional_memory(pid: u32) -> u64 {
    kilobytes(pid, "Pss:")
}

fn kilobytes(pid: u32, of: &str) -> u64 {
    let rollup = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).expect("it lives");
    let line = rollup.lines().find_map(|line| line.strip_prefix(of));
    let kilobytes = line.and_then(|line| line.trim().strip_suffix(" kB"));
    kilobytes
        .and_then(|number| number.parse().ok())
        .expect("a number")
}
