//! What a boot can leave in its process, kind by kind, and what becomes of it where workers are
//! forked from that: each worker has its own, or the boot is not forked and the record says why, or
//! `docs/reference/forked-workers.md` says what is shared.

use std::collections::HashSet;
use std::path::Path;

use pronghorn_testkit::{Server, Site, binary, php_command, wait_for};

use super::{WHO, answers, by_default, one_zygote, site};
use crate::classic;
use crate::malformed::repository;

enum Outcome {
    /// True in each worker.
    Own(&'static str),
    /// Never the same in two workers.
    Drawn(&'static str),
    /// True in each worker, and the page says this.
    Documented(&'static str, &'static str),
}
use Outcome::{Documented, Drawn, Own};

/// The extension that it takes, how the boot makes what it keeps as `$kept`, and an expression.
/// `spawn: fork` is asked for: with the default, some of them are not forked.
const FORKED: [(&str, &str, Outcome); 51] = [
    // Random numbers.
    (
        "standard",
        "mt_srand(5); return mt_rand();",
        Drawn("mt_rand()"),
    ),
    (
        "standard",
        "mt_srand(5, MT_RAND_PHP); return rand();",
        Drawn("rand(1, 1 << 30)"),
    ),
    ("standard", "return lcg_value();", Drawn("lcg_value()")),
    (
        "standard",
        "return uniqid('', true);",
        Drawn("uniqid('', true)"),
    ),
    (
        "standard",
        "return random_bytes(8);",
        Drawn("bin2hex(random_bytes(8))"),
    ),
    (
        "standard",
        "return random_int(1, 9);",
        Drawn("random_int(1, 1 << 60)"),
    ),
    (
        "standard",
        "return range(1, 99);",
        Drawn("(fn () => shuffle($kept) ? implode($kept) : '')()"),
    ),
    (
        "standard",
        "return range(1, 1 << 16);",
        Drawn("implode(' ', array_rand($kept, 9))"),
    ),
    (
        "standard",
        "return str_repeat('abcdefgh', 9);",
        Drawn("str_shuffle($kept)"),
    ),
    (
        "session",
        "return session_create_id();",
        Drawn("session_create_id()"),
    ),
    (
        "random",
        "return new Random\\Randomizer();",
        Drawn("$kept->getInt(1, 1 << 60)"),
    ),
    (
        "openssl",
        "return openssl_random_pseudo_bytes(8);",
        Drawn("bin2hex(openssl_random_pseudo_bytes(8))"),
    ),
    (
        "openssl",
        "return new_key();",
        Drawn("md5(openssl_pkey_get_details(new_key())['key'])"),
    ),
    (
        "openssl",
        "return new_key();",
        Drawn("(fn () => openssl_sign('a', $signed, $kept) ? bin2hex($signed) : '')()"),
    ),
    (
        "sodium",
        "return sodium_crypto_secretbox_keygen();",
        Drawn("bin2hex(sodium_crypto_secretbox_keygen())"),
    ),
    (
        "gmp",
        "return gmp_random_bits(64);",
        Drawn("(string) gmp_random_bits(64)"),
    ),
    (
        "ffi",
        "$c = FFI::cdef('int rand(void);'); $c->rand(); return $c;",
        Drawn("$kept->rand()"),
    ),
    (
        "ffi",
        "$c = FFI::cdef('long random(void);'); $c->random(); return $c;",
        Drawn("$kept->random()"),
    ),
    (
        "sqlite3",
        "$to = new SQLite3(':memory:'); $to->querySingle('select random()'); return $to;",
        Drawn("$kept->querySingle('select random()')"),
    ),
    (
        "pdo_sqlite",
        "$to = new PDO('sqlite::memory:'); $to->query('select random()')->fetchColumn(); return $to;",
        Drawn("$kept->query('select hex(randomblob(8))')->fetchColumn()"),
    ),
    (
        "random",
        "return new Random\\Engine\\Xoshiro256StarStar(5);",
        Documented(
            "(clone $kept)->generate() === (new Random\\Engine\\Xoshiro256StarStar(5))->generate()",
            "If the boot creates a generator with a state, such as `Random\\Engine\\Xoshiro256StarStar`, all workers get the same numbers from it",
        ),
    ),
    // Memory of the process.
    (
        "pdo_sqlite",
        "$to = new PDO('sqlite::memory:'); $to->exec('create table a (b)'); return $to;",
        Own(
            "$kept->exec('insert into a values (' . getmypid() . ')') && $kept->query('select count(distinct b) from a')->fetchColumn() == 1",
        ),
    ),
    (
        "standard",
        "$to = fopen('php://memory', 'r+'); fwrite($to, 'said'); return $to;",
        Own("rewrite($kept) === getmypid()"),
    ),
    (
        "standard",
        "$to = fopen('php://temp', 'r+'); fwrite($to, 'said'); return $to;",
        Own("rewrite($kept) === getmypid()"),
    ),
    (
        "spl",
        "$to = new SplTempFileObject(); $to->fwrite('said'); return $to;",
        Own("$kept->ftell() >= 4"),
    ),
    (
        "spl",
        "return new GlobIterator(__DIR__ . '/*.php');",
        Own("count($kept) > 0"),
    ),
    (
        "xmlwriter",
        "$to = new XMLWriter(); $to->openMemory(); return $to;",
        Own("$kept->text((string) getmypid()) && $kept->flush() === (string) getmypid()"),
    ),
    (
        "hash",
        "$to = hash_init('sha256'); hash_update($to, 'a'); return $to;",
        Own("hash_final(hash_copy($kept)) === hash('sha256', 'a')"),
    ),
    (
        "zlib",
        "return deflate_init(ZLIB_ENCODING_GZIP);",
        Own("is_string(deflate_add($kept, 'a'))"),
    ),
    (
        "core",
        "$to = new Fiber(function () { while (true) { Fiber::suspend(getmypid()); } }); $to->start(); return $to;",
        Own("$kept->resume() === getmypid()"),
    ),
    (
        "core",
        "$to = (function () { while (true) { yield getmypid(); } })(); $to->current(); return $to;",
        Own("($kept->next() ?? $kept->current()) === getmypid()"),
    ),
    (
        "core",
        "return ob_start() && print('said at the boot');",
        Own("ob_get_contents() === ''"),
    ),
    (
        "core",
        "return set_time_limit(60);",
        Own("ini_get('max_execution_time') === '60'"),
    ),
    // What belongs to the process.
    ("standard", "return umask(077);", Own("umask() === 077")),
    (
        "standard",
        "return putenv('OF_BOOT=1');",
        Own("getenv('OF_BOOT') === '1'"),
    ),
    (
        "pcntl",
        "return pcntl_async_signals(true) || pcntl_signal(SIGUSR2, fn () => $GLOBALS['got'] = getmypid());",
        Own("posix_kill(getmypid(), SIGUSR2) && $GLOBALS['got'] === getmypid()"),
    ),
    (
        "pcntl",
        "pcntl_alarm(60); return pcntl_alarm(0);",
        Own("pcntl_alarm(0) === 0"),
    ),
    (
        "pcntl",
        "return pcntl_sigprocmask(SIG_BLOCK, [SIGURG]);",
        Own("pcntl_sigprocmask(SIG_BLOCK, [], $now) && $now === [SIGURG]"),
    ),
    (
        "standard",
        "exec('true'); pclose(popen('true', 'r')); return proc_close(proc_open(['true'], [], $pipes));",
        Own("(fn () => exec('exit 3', $said, $code) === '' && $code === 3)()"),
    ),
    // Libraries.
    (
        "fileinfo",
        "return finfo_open(FILEINFO_MIME_TYPE);",
        Own("str_contains(finfo_file($kept, __FILE__), 'php')"),
    ),
    (
        "intl",
        "return new Collator('de');",
        Own("$kept->compare('ä', 'b') < 0"),
    ),
    (
        "gettext",
        "bindtextdomain('none', __DIR__); return textdomain('none');",
        Own("gettext('said') === 'said'"),
    ),
    (
        "curl",
        "$to = curl_init(); curl_setopt($to, CURLOPT_SHARE, curl_share_init()); return $to;",
        Own(
            "curl_setopt_array($kept, [CURLOPT_URL => 'file://' . __FILE__, CURLOPT_RETURNTRANSFER => true]) && curl_exec($kept) !== ''",
        ),
    ),
    (
        "openssl",
        "return stream_context_create(['ssl' => ['local_cert' => certificate()]]);",
        Own("encrypted($kept) === 'said by ' . getmypid()"),
    ),
    (
        "ffi",
        "return FFI::cdef('int getpid(void); void qsort(int *, size_t, size_t, int (*)(const int *, const int *));');",
        Own("$kept->getpid() === getmypid() && sorted($kept) === [1, 2, 3]"),
    ),
    (
        "ffi",
        "$number = FFI::new('int', false, true); $number->cdata = 5; return $number;",
        Own("(++$kept->cdata > 5)"),
    ),
    // What has a name, so that processes share it however they are started.
    (
        "sysvsem",
        "$to = sem_get(ftok(__FILE__, 'a')); register_shutdown_function(fn () => @sem_remove($to)); return $to;",
        Own("sem_acquire($kept) && sem_release($kept)"),
    ),
    (
        "shmop",
        "$to = shmop_open(ftok(__FILE__, 'b'), 'c', 0600, 4); shmop_write($to, 'said', 0); register_shutdown_function(fn () => @shmop_delete($to)); return $to;",
        Documented(
            "shmop_read($kept, 0, 4) === 'said'",
            "System V shared memory, semaphores and message queues that have a key are shared by all processes that know the key",
        ),
    ),
    (
        "sysvmsg",
        "$to = msg_get_queue(ftok(__FILE__, 'c')); register_shutdown_function(fn () => @msg_remove_queue($to)); return $to;",
        Own(
            "msg_send($kept, getmypid(), 'said') && msg_receive($kept, getmypid(), $kind, 99, $said, true, MSG_IPC_NOWAIT) && $said === 'said'",
        ),
    ),
    (
        "zlib",
        "$to = gzopen(__DIR__ . '/log.gz', 'a'); gzwrite($to, 'said'); return $to;",
        Own("gzwrite($kept, 'said') === 4"),
    ),
    (
        "standard",
        "return fopen(__DIR__ . '/log', 'a');",
        Own("fwrite($kept, 'said') === 4"),
    ),
];

/// What expressions of [`FORKED`] use.
const FUNCTIONS: &str = r#"
    function new_key() { return openssl_pkey_new(['private_key_type' => OPENSSL_KEYTYPE_EC, 'curve_name' => 'prime256v1']); }
    function rewrite($to): int { rewind($to); fwrite($to, sprintf('%20d', getmypid())); rewind($to); return (int) stream_get_contents($to); }
    function sorted(FFI $c): array {
        $all = $c->new('int[3]'); [$all[0], $all[1], $all[2]] = [3, 1, 2];
        $c->qsort($all, 3, 4, fn ($one, $other) => $one[0] <=> $other[0]);
        return [$all[0], $all[1], $all[2]];
    }
    function certificate(): string {
        $key = new_key();
        $request = openssl_csr_new(['commonName' => 'localhost'], $key);
        openssl_x509_export(openssl_csr_sign($request, null, $key, 1, ['digest_alg' => 'sha256']), $certificate);
        openssl_pkey_export($key, $private);
        file_put_contents($file = __DIR__ . '/certificate.pem', $certificate . $private);
        return $file;
    }
    /** What a client reads of a connection that is encrypted with this context. */
    function encrypted($context): string {
        $server = stream_socket_server('tcp://127.0.0.1:0', context: $context);
        $client = stream_socket_client('tcp://' . stream_socket_get_name($server, false),
            context: stream_context_create(['ssl' => ['verify_peer' => false, 'verify_peer_name' => false]]));
        $accepted = stream_socket_accept($server);
        stream_set_blocking($client, false); stream_set_blocking($accepted, false);
        for ($ends = [false, false]; !$ends[0] || !$ends[1];) {
            $ends[0] = $ends[0] ?: stream_socket_enable_crypto($accepted, true, STREAM_CRYPTO_METHOD_TLS_SERVER);
            $ends[1] = $ends[1] ?: stream_socket_enable_crypto($client, true, STREAM_CRYPTO_METHOD_TLS_CLIENT);
        }
        stream_set_blocking($client, true);
        fwrite($accepted, 'said by ' . getmypid() . "\n");
        return rtrim((string) fgets($client));
    }
"#;

/// What PHP has here, in small letters.
fn extensions() -> HashSet<String> {
    let asked = "echo strtolower(implode(' ', get_loaded_extensions()));";
    let said = php_command("php").args(["-r", asked]).output();
    let said = String::from_utf8(said.expect("PHP is there").stdout).expect("names");
    said.split(' ').map(str::to_owned).collect()
}

#[test]
fn each_worker_has_its_own_of_what_a_boot_leaves() {
    let (mut boot, mut seen_by) = (vec![format!("{FUNCTIONS}\n$kept = [];")], Vec::new());
    let mut cases = Vec::new();
    let there = extensions();
    for case in &FORKED {
        let (extension, leaves, outcome) = case;
        if !there.contains(*extension) {
            continue;
        }
        let (Own(seen) | Drawn(seen) | Documented(seen, _)) = outcome;
        let number = cases.len();
        boot.push(format!("$kept[{number}] = (function () {{ {leaves} }})();"));
        seen_by.push(format!(
            "$said[] = (fn ($kept) => {seen})($GLOBALS['kept'][{number}]);"
        ));
        cases.push(case);
    }
    let answer = format!(
        "$said = [];\n{}\nusleep(20_000);
        return implode(\"\\n\", [getmypid(), ...array_map(fn ($one) => is_bool($one) ? json_encode($one) : (string) $one, $said)]);",
        seen_by.join("\n")
    );
    let server = Server::start(site(2, "", &boot.join("\n"), "", &answer));
    one_zygote(&server);
    let said = said_by_two(&server);
    assert!(
        said.iter().all(|lines| lines.len() == cases.len()),
        "{said:?}"
    );
    for (number, (extension, leaves, outcome)) in cases.iter().enumerate() {
        let [one, other] = [0, 1].map(|worker| said[worker][number].as_str());
        match outcome {
            Drawn(seen) => assert!(one != other, "{extension}: {leaves} {seen}: {one}"),
            Own(seen) | Documented(seen, _) => {
                assert_eq!([one, other], ["true"; 2], "{extension}: {leaves} {seen}");
            }
        }
        if let Documented(_, sentence) = outcome {
            assert!(page().contains(sentence), "{sentence}");
        }
    }
    server.stop();
}

/// The page, without ends of lines.
fn page() -> String {
    let path = repository().join("docs/reference/forked-workers.md");
    std::fs::read_to_string(path)
        .expect("it is there")
        .replace('\n', " ")
}

/// The lines of two workers at once, behind their numbers.
fn said_by_two(server: &Server) -> [Vec<String>; 2] {
    wait_for("two workers", || {
        let mut connections = [server.connect(), server.connect()];
        for connection in &mut connections {
            connection.request("GET", "/", "");
        }
        let said = connections.map(|mut connection| {
            let response = connection.response();
            assert_eq!(response.status, 200, "{}", server.log());
            response.text()
        });
        let said = said.map(|text| text.lines().map(str::to_owned).collect::<Vec<_>>());
        (said[0][0] != said[1][0]).then_some(said)
    })
    .map(|lines| lines[1..].to_vec())
}

/// The extension that it takes, what the boot does, and what the record has.
const REFUSED: [(&str, &str, &str); 30] = [
    ("standard", "$kept = stream_socket_server('tcp://127.0.0.1:0');", "opened by stream_socket_server()"),
    ("standard", "$kept = stream_socket_pair(STREAM_PF_UNIX, STREAM_SOCK_STREAM, 0);", "opened by stream_socket_pair()"),
    ("sockets", "$kept = socket_create(AF_INET, SOCK_DGRAM, 0);", "opened by socket_create()"),
    ("curl", "$kept = curl_multi_init();", "opened by curl_multi_init()"),
    (
        "curl",
        "$kept = curl_init('file://' . __FILE__); curl_setopt($kept, CURLOPT_RETURNTRANSFER, true); curl_exec($kept);",
        "opened by curl_exec()",
    ),
    ("standard", "$kept = tmpfile();", "opened by tmpfile()"),
    ("standard", "$kept = fopen('php://temp', 'r+'); fwrite($kept, str_repeat('x', 3 << 20));", "opened by fwrite()"),
    ("spl", "$kept = new SplFileObject(__FILE__);", "opened by SplFileObject::__construct()"),
    ("standard", "$kept = opendir(__DIR__);", "opened by opendir()"),
    ("spl", "$kept = new DirectoryIterator(__DIR__);", "opened by DirectoryIterator::__construct()"),
    ("xmlreader", "$kept = new XMLReader(); $kept->open(__FILE__);", "opened by XMLReader::open()"),
    ("xmlwriter", "$kept = new XMLWriter(); $kept->openUri(__DIR__ . '/written');", "opened by XMLWriter::openUri()"),
    ("sqlite3", "$kept = new SQLite3(__DIR__ . '/data'); $kept->exec('create table if not exists a (b)');", "the SQLite database `"),
    ("session", "session_save_path(__DIR__); session_start();", "opened by session_start()"),
    ("dba", "$kept = dba_open(__DIR__ . '/flat', 'c', 'flatfile');", "opened by dba_open()"),
    ("standard", "$kept = fopen(__DIR__ . '/lock', 'a'); flock($kept, LOCK_SH);", "/lock`, opened by fopen()"),
    ("standard", "$kept = fopen('/dev/ptmx', 'r+');", "`/dev/ptmx`"),
    ("standard", "$kept = popen('cat', 'w');", "opened by popen()"),
    (
        "standard",
        "$null = ['file', '/dev/null', 'r+']; $kept = proc_open(['sleep', '60'], [$null, $null, $null], $pipes);
         register_shutdown_function('proc_terminate', $kept);",
        "(sleep), which the boot has started",
    ),
    (
        "standard",
        "$null = ['file', '/dev/null', 'r+']; $kept = proc_open(['true'], [$null, $null, $null], $pipes);
         $pid = (int) file_get_contents(glob('/proc/self/task/*/children')[0]);
         while (!str_contains(file_get_contents(\"/proc/$pid/stat\"), ') Z ')) { usleep(1000); }",
        "(true), which the boot has started, and has not waited for",
    ),
    ("pcntl", "if (pcntl_fork() === 0) { posix_kill(getmypid(), SIGKILL); }", "which the boot has started"),
    ("pcntl", "pcntl_alarm(60);", "an alarm, set by pcntl_alarm() in"),
    ("sysvsem", "$kept = sem_get(0); sem_acquire($kept); register_shutdown_function('sem_remove', $kept);", "a semaphore, acquired by sem_acquire() in"),
    ("shmop", "$kept = shmop_open(0, 'c', 0600, 4); shmop_delete($kept);", "had by shmop_open() in"),
    ("sysvshm", "$kept = shm_attach(0); shm_remove($kept);", "had by shm_attach() in"),
    (
        "ffi",
        "$kept = FFI::cdef('void *mmap(void *, size_t, int, int, int, long);')->mmap(null, 4096, 3, 0x21, -1, 0);",
        "shared memory `/dev/zero (deleted)`, had by mmap() in",
    ),
    ("ffi", "FFI::cdef('int open(const char *, int);')->open(__FILE__, 0);", "opened by open() in"),
    ("ffi", "FFI::cdef('int eventfd(unsigned, int);')->eventfd(0, 0);", "`anon_inode:[eventfd]`, opened by eventfd() in"),
    ("ffi", "FFI::cdef('int epoll_create1(int);')->epoll_create1(0);", "opened by epoll_create1() in"),
    ("ffi", "FFI::cdef('int inotify_init(void);')->inotify_init();", "opened by inotify_init() in"),
];

/// What is not forked by default: it returns what is one process's alone.
const DRAWN: [(&str, &str, &str); 10] = [
    (
        "standard",
        "$id = bin2hex(random_bytes(8));",
        "random_bytes()",
    ),
    ("standard", "$id = getmypid();", "getmypid()"),
    (
        "standard",
        "$id = array_map('random_int', [1], [9]);",
        "random_int()",
    ),
    (
        "standard",
        "$make = random_bytes(...); $id = $make(8);",
        "random_bytes()",
    ),
    ("standard", "$all = [1, 2, 3]; shuffle($all);", "shuffle()"),
    (
        "random",
        "$from = new Random\\Randomizer();",
        "Random\\Randomizer::__construct()",
    ),
    (
        "standard",
        "$jar = tempnam(sys_get_temp_dir(), 'jar'); register_shutdown_function('unlink', $jar);",
        "tempnam()",
    ),
    ("sysvsem", "sem_remove(sem_get(0));", "sem_get()"),
    (
        "sysvmsg",
        "msg_remove_queue(msg_get_queue(0));",
        "msg_get_queue()",
    ),
    (
        "ffi",
        "$id = FFI::cdef('int getpid(void);')->getpid();",
        "getpid()",
    ),
];

/// The default is more careful than one who asks for forks, and no boot of it is for nothing: the
/// process that has booted is a worker.
fn assert_not_forked(boot: &str, reasons: &[String]) {
    let boot = format!("file_put_contents(__DIR__ . '/boots', '.', FILE_APPEND);\n{boot}");
    let server = Server::start(by_default(2, "", &boot, WHO));
    let mut parts = vec!["INFO", "each worker boots the application itself"];
    parts.extend(reasons.iter().map(String::as_str));
    server.logged(&parts);
    let all = answers(&server, 2);
    assert!(
        all.iter().all(|(booted, pid)| booted == pid),
        "{boot}: {all:?}"
    );
    assert!(server.zygotes().is_empty());
    assert_eq!(server.site().read("boots"), "..", "{boot}");
    server.stop();
}

/// So many at once as a record has room for.
#[test]
fn what_processes_cannot_share_is_named_and_not_forked() {
    let there = extensions();
    let cases: Vec<_> = REFUSED
        .iter()
        .filter(|case| there.contains(case.0))
        .collect();
    for both in cases.chunks(2) {
        let boot: Vec<_> = both
            .iter()
            .enumerate()
            .map(|(i, case)| case.1.replace("$kept", &format!("$kept{i}")))
            .collect();
        let reasons: Vec<_> = both.iter().map(|case| case.2.to_owned()).collect();
        assert_not_forked(&boot.join("\n"), &reasons);
    }
}

#[test]
fn what_belongs_to_one_process_is_named_and_not_forked() {
    let there = extensions();
    for (_, boot, call) in DRAWN.iter().filter(|case| there.contains(case.0)) {
        assert_not_forked(boot, &[format!("its boot has called {call} in")]);
    }
}

/// As frameworks write their caches.
#[test]
fn a_boot_that_writes_a_file_under_a_name_of_its_own_and_renames_it_is_forked() {
    let boot = "$new = tempnam(__DIR__, 'new'); rename($new, __DIR__ . '/cache');
        $gone = tempnam(__DIR__, 'gone'); unlink($gone);";
    let server = Server::start(by_default(2, "", boot, WHO));
    one_zygote(&server);
    server.stop();
}

/// The timer is not the one of the boot, which forks do not have.
#[test]
fn a_limit_of_time_that_the_boot_has_set_ends_calls_of_each_worker() {
    let answer = "while ($request->path === '/long') {} return 'said';";
    let server = Server::start(site(2, ", max_jobs: 1", "set_time_limit(1);", "", answer));
    one_zygote(&server);
    assert_eq!(server.get("/long").status, 500);
    server.logged(&["ERROR", "Maximum execution time of 1 second exceeded"]);
    assert_eq!(server.get("/").text(), "said");
    server.stop();
}

/// Its memory is PHP's, and made before the boot: all workers have one.
#[test]
fn apcu_is_one_for_all_workers_also_for_those_that_replace_others() {
    let boot = "apcu_store('of the boot', 'said'); apcu_store('calls', 0);";
    let answer = "apcu_inc('calls'); apcu_entry('made', fn () => getmypid(), 1);
        return apcu_fetch('of the boot') . ' ' . apcu_fetch('calls');";
    let server = Server::start(with_apcu(site(2, ", max_jobs: 1", boot, "", answer)));
    one_zygote(&server);
    for calls in 1..=30 {
        assert_eq!(server.get("/").text(), format!("said {calls}"));
    }
    server.stop();
}

fn with_apcu(site: Site) -> Site {
    let (options, libraries) = unpacked("apcu");
    let command = format!(
        "command: 'php {options} -d apc.enable_cli=1 worker.php', env: {{LD_LIBRARY_PATH: '{libraries}'}}"
    );
    site.change_config("command: php worker.php", &command);
    site
}

/// All others of its zygote would wait for it, and their successors too.
#[test]
fn who_is_killed_with_the_lock_of_apcu_keeps_nobody_waiting() {
    let answer = |path: &str| {
        format!(
            "if ({path} === '/dies') {{
                apcu_entry('made', fn () => posix_kill(getmypid(), 9));
            }}
            if ({path} === '/killed') {{
                posix_kill(getmypid(), 9);
            }}
            apcu_store('here', getmypid());
            $here = (string) apcu_fetch('here');"
        )
    };
    let more = ", supervisor: {exec_ttl: 2s}, reset_timeout: 1s, destroy_timeout: 1s";
    let booted = format!("{} return $here;", answer("$request->path"));
    let script = format!("<?php {} echo $here;", answer("$_SERVER['PATH_INFO']"));
    let (options, _) = unpacked("apcu");
    let classic = classic::site(2, more).file("public/index.php", &script);
    classic.change_config("php -d", &format!("php {options} -d apc.enable_cli=1 -d"));
    for (site, script) in [
        (with_apcu(site(2, more, "", "", &booted)), ""),
        (classic, "/index.php"),
    ] {
        let server = Server::start(site);
        let zygote = one_zygote(&server);
        let get = |path: &str| server.get(&format!("{script}{path}"));
        // Without the lock it harms nobody.
        get("/killed");
        wait_for("a successor", || {
            (get("/").status == 200 && server.workers().len() == 2).then_some(())
        });
        assert!(!server.log().contains("new workers are wanted"));
        get("/dies");
        server.logged(&["new workers are wanted", "APCu"]);
        // One that came upon the lock meanwhile is ended with its generation.
        wait_for("workers without that lock", || {
            (0..6).all(|_| get("/").status == 200).then_some(())
        });
        assert_ne!(one_zygote(&server), zygote);
        server.stop();
    }
}

/// By which options PHP gets an extension that `scripts/php-extensions` has unpacked, and where its
/// libraries are.
fn unpacked(name: &str) -> (String, String) {
    let binary = binary();
    let target = binary
        .parent()
        .and_then(Path::parent)
        .expect("it is a build");
    let tools = target.join("tools/php-extensions");
    let read = |file: &str| {
        std::fs::read_to_string(tools.join(file)).expect("`scripts/php-extensions` makes it")
    };
    let list = read("list");
    let line = list
        .lines()
        .find_map(|line| line.strip_prefix(&format!("{name} ")));
    let options = line.expect("it is one of them").trim().to_owned();
    (options, read("libraries").trim().to_owned())
}
