//! The borders between pools, between users, and around the files that the server makes.

use std::io::Read as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use pronghorn_testkit::{Server, Site, wait_for};

/// Calls `method` with the JSON in the body, and says what comes.
const CALLS: &str = r"
    try {
        $result = Pronghorn\Rpc::connect()->call($request->query()['method'], json_decode($request->body(), true));
        return 'done ' . json_encode($result);
    } catch (Throwable $failure) {
        return $failure->getMessage();
    }
";

/// A worker for requests and jobs.
fn both(body: &str) -> String {
    let worker = Site::sdk_worker(body);
    let (head, _) = worker
        .split_once("Pronghorn\\serve(")
        .expect("a worker serves");
    format!(
        "{head}(new Pronghorn\\Worker())\n\
         ->onRequest(function (Pronghorn\\Request $request): mixed {{ {body} }})\n\
         ->onJob(function (Pronghorn\\Job $job) {{}})->run();\n"
    )
}

fn call(server: &Server, path: &str, method: &str, argument: &str) -> String {
    let target = format!("{path}?method={method}");
    server.post(&target, "application/json", argument).text()
}

#[test]
fn workers_reach_over_their_connection_what_is_their_pools() {
    for transport in ["auto", "relay"] {
        let site = Site::new()
            .file("worker.php", &both(CALLS))
            .config(&format!(
                "version: '3'\nserver: {{command: php worker.php}}\n\
                 http:\n  address: 127.0.0.1:0\n  pool: {{num_workers: 1, transport: {transport}}}\n  pools:\n    \
                 a: {{num_workers: 1, transport: {transport}, storages: [SA]}}\n    \
                 b: {{num_workers: 1, transport: {transport}, storages: [sb], pipelines: [pb], methods: [kv, cache, session, jobs.Push]}}\n  \
                 routes: [{{path: /a, pool: a}}, {{path: /b, pool: b}}]\n\
                 jobs: {{consume: [], pipelines: {{pa: {{driver: memory}}, pb: {{driver: memory}}}}, \
                 pools: {{default: {{command: php worker.php, num_workers: 1}}}}}}\n\
                 kv: {{sa: {{driver: memory, config: {{max_size: 4MB}}}}, sb: {{driver: memory, config: {{max_size: 4MB}}}}}}\n"
            ));
        let server = Server::start(site);
        let item = |storage: &str| {
            format!(r#"{{"storage":"{storage}","items":[{{"key":"k","value":"dg=="}}]}}"#)
        };
        for (path, storage, method, is_there) in [
            ("/a", "sa", "kv.Set", true),
            ("/b", "sb", "kv.Set", true),
            ("/a", "sb", "kv.MGet", false),
            ("/b", "sa", "kv.MGet", false),
            ("/b", "sA", "kv.Clear", false),
            ("/b", "sa", "cache.Get", false),
            ("/", "sa", "kv.MGet", true),
        ] {
            let said = call(&server, path, method, &item(storage));
            let is_done = said.starts_with("done ");
            assert_eq!(is_done, is_there, "{path} {method} {storage}: {said}");
            assert!(
                is_there || said.to_lowercase().contains("no such storage"),
                "{said}"
            );
        }
        for (path, pipeline, is_there) in
            [("/b", "pa", false), ("/b", "pb", true), ("/a", "pa", true)]
        {
            let job = format!(
                r#"{{"job":{{"job":"x","id":"1","payload":"","options":{{"pipeline":"{pipeline}"}}}}}}"#
            );
            let said = call(&server, path, "jobs.Push", &job);
            assert_eq!(
                said.starts_with("done "),
                is_there,
                "{path} {pipeline}: {said}"
            );
            assert!(
                is_there || said.contains("no such pipeline, requested: pa"),
                "{said}"
            );
        }
        let session = r#"{"storage":"sa","id":"x","process":1}"#;
        let said = call(&server, "/b", "session.Has", session);
        assert!(!said.starts_with("done "), "{said}");
        for (method, argument) in [
            ("resetter.Reset", "\"http\""),
            ("informer.Workers", "\"http\""),
            ("rpc.Config", "true"),
            ("lock.ForceRelease", r#"{"resource":"r","id":""}"#),
        ] {
            let said = call(&server, "/b", method, argument);
            let refused = format!("the pool `b` may not call {method}");
            assert!(said.contains(&refused), "{said}");
        }
        assert!(call(&server, "/a", "informer.Workers", "\"http\"").starts_with("done "));
        server.logged(&["a worker called a method that its pool may not call"]);
        server.stop();
    }
}

/// Asks without reading answers: often, or once, until there is a file `leave`.
const FLOODS: &str = r"
    $ask = function (int $number, int $values): void {
        static $pipe = null;
        $pipe ??= fopen('php://fd/4', 'w');
        $body = json_encode(['storage' => 'm', 'items' => array_fill(0, $values, ['key' => 'big'])]);
        $context = pack('CCvV', 0x8d, 0, 0, $number) . 'kv.MGet';
        $head = pack('CCV', 0x14, 2, strlen($context) + strlen($body));
        fwrite($pipe, $head . pack('V', crc32($head)) . qq . pack('V', strlen($context)) . $context . $body);
    };
    if ($request->path === '/flood') {
        for ($i = 1; $i <= 60000; $i++) {
            $ask($i, 50);
        }
    }
    if ($request->path === '/ask') {
        $ask(1, 150);
        touch(__DIR__ . '/asked-' . getmypid());
        while (!file_exists(__DIR__ . '/leave')) {
            usleep(1000);
        }
        exit(0);
    }
    if ($request->path === '/small') {
        Pronghorn\Rpc::connect()->call('kv.MGet', ['storage' => 'm', 'items' => [['key' => 'none']]]);
    }
    if ($request->path === '/fill') {
        $item = ['key' => 'big', 'value' => base64_encode(str_repeat('x', 200000))];
        Pronghorn\Rpc::connect()->call('kv.Set', ['storage' => 'm', 'items' => [$item]]);
    }
    return 'fine';
";

/// Such workers, and one of the pool `good`.
fn with_flooding(workers: usize) -> Server {
    let worker = FLOODS.replace("qq", "\"\\0\\0\"");
    let site = Site::new()
        .file("worker.php", &Site::sdk_worker(&worker))
        .config(&format!(
            "version: '3'\nserver: {{command: php worker.php}}\n\
             http:\n  address: 127.0.0.1:0\n  pool: {{num_workers: {workers}, transport: relay}}\n  \
             pools: {{good: {{num_workers: 1}}}}\n  routes: [{{path: /good, pool: good}}, {{path: /fill, pool: good}}]\n\
             kv: {{m: {{driver: memory, config: {{max_size: 64MB}}}}}}\n",
        ));
    let server = Server::start(site);
    assert_eq!(server.get("/fill").text(), "fine");
    server
}

#[test]
fn replies_that_workers_do_not_read_take_so_much_memory_and_no_more() {
    const ASKING: usize = 12;
    /// In KB. All replies together are 480 MB long.
    const MOST: u64 = 200 << 10;
    let server = with_flooding(ASKING + 1);
    let before = server.resident_memory();
    let mut asking = Vec::new();
    for _ in 0..ASKING {
        let mut connection = server.connect();
        connection.request("GET", "/ask", "");
        asking.push(connection);
    }
    wait_for("the calls", || {
        let files = std::fs::read_dir(server.site().folder()).expect("it is there");
        let is_asked = |name: &str| name.starts_with("asked-");
        let asked = files.filter(|it| {
            let name = it.as_ref().map(std::fs::DirEntry::file_name);
            name.is_ok_and(|it| it.to_str().is_some_and(is_asked))
        });
        (asked.count() == ASKING).then_some(())
    });
    // It has its turn after them.
    assert_eq!(server.get("/small").text(), "fine");
    let grown = server.resident_memory().saturating_sub(before);
    assert!(grown < MOST, "{grown} KB");
    std::fs::write(server.site().path("leave"), "").expect("it is written");
    drop(asking);
    server.stop();
}

#[test]
fn a_worker_that_floods_the_server_with_calls_costs_its_own_call_alone() {
    let server = with_flooding(1);
    assert_eq!(server.get("/flood").status, 502);
    server.logged(&["without waiting for their answers"]);
    assert_eq!(server.get("/good").text(), "fine");
    wait_for("a successor", || {
        (server.get("/").text() == "fine").then_some(())
    });
    server.stop();
}

#[test]
fn commands_print_nothing_that_a_terminal_obeys() {
    let worker = "error_log('failed for ' . $_GET['user']); posix_kill(getmypid(), 11);";
    let site = Site::new()
        .file("worker.php", &Site::sdk_worker(worker))
        .config(
            "version: '3'\nserver: {command: php worker.php}\nstate_dir: state\n\
             http: {address: '127.0.0.1:0', pool: {num_workers: 1}}\n",
        );
    let server = Server::start(site);
    let target = "/?user=%1b%5d0;owned%07%1b%5b2J%c2%9b31m%e2%80%aeX%d8%9c";
    assert_eq!(server.get(target).status, 502);
    let reports = server.site().path("state/reports");
    let id = wait_for("a report", || {
        let mut files = std::fs::read_dir(&reports).ok()?.flatten();
        let file = files.find(|file| file.path().extension().is_some_and(|it| it == "json"))?;
        Some(file.path().file_stem()?.to_str()?.to_owned())
    });
    for arguments in [
        &["crashes", &id][..],
        &["crashes"],
        &["crashes", "--json"],
        &["logs"],
        &["workers"],
    ] {
        let said = server.steer(arguments).stdout;
        let obeyed = |c: &char| {
            c.is_control() && !"\n\t".contains(*c) || matches!(c, '\u{202e}' | '\u{61c}')
        };
        let found: Vec<char> = said.chars().filter(obeyed).collect();
        assert!(found.is_empty(), "{arguments:?}: {found:?} in {said}");
    }
    let shown = server.steer(&["crashes", &id]).stdout;
    assert!(
        shown.contains("failed for \\u001b]0;owned\\u0007"),
        "{shown}"
    );
    server.stop();
}

/// The most that a stranger may do with something that the server has made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Strangers {
    Nothing,
    /// Read it, or look into it.
    Read,
}

/// Lines of SECURITY.md's table of what the server makes, and what is asked of each here.
fn rows() -> Vec<(String, Strangers)> {
    let page = std::fs::read_to_string(Site::fixture("../../SECURITY.md")).expect("it is there");
    let (_, table) = page
        .split_once("| what the server makes | owner, mode | strangers |\n")
        .expect("the table is there");
    table
        .lines()
        .skip(1)
        .map_while(|line| line.strip_prefix("| "))
        .map(|line| {
            let cells: Vec<&str> = line.split(" | ").collect();
            let strangers = match cells[2].trim_end_matches(" |") {
                "nothing" => Strangers::Nothing,
                other => {
                    assert_eq!(other, "read", "known here");
                    Strangers::Read
                }
            };
            (cells[0].to_owned(), strangers)
        })
        .collect()
}

/// A user who is nobody's, with what `setpriv` calls it.
const STRANGER: &str = "games";

/// Tries as the stranger to read, to write and to replace each of these, or to connect to it.
const TRIES: &str = r"
    foreach (array_slice($argv, 1) as $path) {
        $can = [];
        if (@filetype($path) === 'socket') {
            $socket = @stream_socket_client('unix://' . $path, $code, $why, 1);
            if ($socket !== false) {
                stream_set_timeout($socket, 10); // one that is refused is closed at once
                @fwrite($socket, 'x');
                // Closed, or reset with the byte unread.
                $can[] = in_array(@fread($socket, 1), ['', false], true) && feof($socket) ? null : 'connect';
            }
        } elseif (is_dir($path)) {
            $can[] = @scandir($path) === false ? null : 'read';
            $can[] = @touch($path . '/of-a-stranger') ? 'write' : null;
        } else {
            $can[] = @file_get_contents($path, false, null, 0, 1) === false ? null : 'read';
            $can[] = ($file = @fopen($path, 'r+')) === false ? null : 'write';
        }
        $can[] = @rename($path, $path . '-moved') ? 'replace' : null;
        echo $path, chr(9), implode(' ', array_filter($can)), chr(10);
    }
";

fn tries(folder: &Path, paths: &[PathBuf]) -> Vec<(PathBuf, String)> {
    let script = folder.join("tries.php");
    std::fs::write(&script, format!("<?php {TRIES}")).expect("a file");
    let mut command = Command::new("setpriv");
    command.args(["--reuid", STRANGER, "--regid", STRANGER, "--clear-groups"]);
    let said = command.arg("php").arg(&script).args(paths).output();
    let said = String::from_utf8(said.expect("setpriv is there").stdout).expect("text");
    let lines = said.lines().map(|line| {
        let (path, can) = line.split_once('\t').expect("a tab in each line");
        (PathBuf::from(path), can.to_owned())
    });
    lines.collect()
}

fn all_below(folder: &Path) -> Vec<PathBuf> {
    let mut found = vec![folder.to_owned()];
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_type().expect("it is known").is_dir() {
            found.extend(all_below(&entry.path()));
        } else {
            found.push(entry.path());
        }
    }
    found
}

#[test]
fn a_stranger_gets_at_nothing_but_what_the_list_says() {
    if !rustix::process::geteuid().is_root() {
        return; // only root has pools of several users
    }
    let site = Site::new()
        .file("worker.php", &Site::sdk_worker("return 'fine';"))
        .file("public/index.php", "<?php echo 'fpm';")
        .file("uploads/readme", "")
        .config(
            &"version: '3'\nserver: {command: php worker.php, user: nobody, relay: 'unix://run/relay.sock'}\n\
             state_dir: state\nrpc: {listen: 'unix://run/rpc.sock'}\n\
             http:\n  address: 127.0.0.1:0\n  uploads: {dir: uploads}\n  pool: {num_workers: 1, ini: {precision: 5}}\n  pools:\n    \
             daemon: {num_workers: 1, user: daemon}\n    \
             fpm: {mode: fastcgi, root: public, user: daemon, num_workers: 1, fastcgi: {php_fpm: FPM}}\n  \
             routes: [{path: /daemon, pool: daemon}, {path: /fpm, pool: fpm}]\n\
             kv: {m: {driver: memory, config: {max_size: 4MB}}, e: {driver: embedded}}\n\
             logs: {output: own.log}\n"
            .replace("FPM", &crate::php_fpm::name()),
        );
    let sdk = Command::new("cp")
        .arg("-R")
        .arg(Site::fixture("../../php"))
        .arg(site.path("sdk"))
        .status();
    assert!(sdk.is_ok_and(|status| status.success()));
    let worker = site.read("worker.php");
    let (head, rest) = worker.split_once("require '").unwrap();
    let (_, rest) = rest.split_once("';").unwrap();
    let worker = format!("{head}require __DIR__ . '/sdk/autoload.php';{rest}");
    let server = Server::start(site.file("worker.php", &worker));
    assert_eq!(server.get("/daemon").status, 200);
    assert_eq!(server.get("/fpm").text(), "fpm");
    let folder = server.site().folder().to_owned();
    let path = |name: &str| folder.join(name);
    let of_fpm = all_below(&path("uploads"))
        .into_iter()
        .filter(|path| path.display().to_string().contains("/pronghorn-fpm-"));
    let worker = server.workers()[0];
    let of_worker = ["environ", "fd", "mem", "maps"]
        .map(|name| PathBuf::from(format!("/proc/{worker}/{name}")));
    for (name, strangers) in rows() {
        let paths: Vec<PathBuf> = match &*name {
            "state directory, with the store, reports and entries kept over a restart" => {
                all_below(&path("state"))
            }
            "control socket" => vec![server.control_socket()],
            "socket of `rpc.listen: unix://…`" => vec![path("run/rpc.sock")],
            "socket of `server.relay: unix://…`" => vec![path("run/relay.sock")],
            "port of `server.relay: tcp://…`" => {
                continue; // by `over_tcp_no_process_of_another_user_becomes_a_worker`
            }
            "directory of these sockets, if the server makes it" => vec![path("run")],
            "log files" => vec![path("own.log")],
            "directory of a php-fpm, with its socket" => of_fpm.clone().collect(),
            "memory, descriptors and environment of a worker" => of_worker.to_vec(),
            "spool files with a name, uploads among them" => {
                // Made for a call, and looked at by the tests of users.
                continue;
            }
            "certificates that the server fetches, with their keys and that of its account, in `certificates` in the state directory" =>
            {
                continue; // by the tests of `crates/acme/src/storage.rs`
            }
            "the stored answers of PHP about itself, in `$XDG_CACHE_HOME/pronghorn` or `~/.cache/pronghorn` if there is no state directory" =>
            {
                continue; // by the tests of `crates/launch/src/php/kept.rs`
            }
            other => panic!("SECURITY.md lists `{other}`, which nothing tries"),
        };
        assert!(!paths.is_empty(), "{name}");
        for (path, can) in tries(&folder, &paths) {
            let allowed = match strangers {
                Strangers::Nothing => "",
                Strangers::Read => "read",
            };
            assert!(
                can.is_empty() || can == allowed,
                "{name}: {} {can}",
                path.display()
            );
        }
    }
    // No file at all decides which code runs.
    let made = all_below(&path("uploads"));
    for path in made {
        let facts = path.symlink_metadata().unwrap();
        let is_plain = facts.is_dir() || facts.file_type().is_socket();
        assert!(
            is_plain || path.ends_with("readme"),
            "{} of {}",
            path.display(),
            facts.uid()
        );
    }
    server.stop();
}

/// A site with workers of other packages that every user can read.
fn foreign_site(config: &str) -> Site {
    let site = Site::new().config(config);
    let fixture = Site::fixture("foreign");
    let copied = Command::new("cp")
        .arg("-R")
        .args([&fixture, &site.path("foreign")])
        .status();
    assert!(copied.is_ok_and(|status| status.success()));
    // Slow enough that others can get in between.
    let slow = "<?php usleep(100000); require __DIR__ . '/foreign/worker.php';";
    let evil = "<?php exec('php ' . __DIR__ . '/foreign/steal.php unix://' . __DIR__ . '/run/relay.sock 20 >&2 &');\n\
                require __DIR__ . '/foreign/worker.php';";
    site.file("victim.php", slow).file("evil.php", evil)
}

/// Many requests, for each of which a worker may just be booting.
fn nothing_is_stolen(server: &Server) {
    let replies: Vec<String> = (0..60).map(|_| server.get("/").text()).collect();
    assert_eq!(replies, ["Hello"; 60]);
}

#[test]
fn over_tcp_no_process_of_another_user_becomes_a_worker() {
    if !rustix::process::geteuid().is_root() {
        return; // only root has pools of several users
    }
    // As in a container, where root may not look at the descriptors of other users' processes.
    let mut confined = Command::new("setpriv");
    confined
        .arg("--bounding-set=-sys_ptrace")
        .arg(pronghorn_testkit::binary());
    for command in [Command::new(pronghorn_testkit::binary()), confined] {
        let site = foreign_site(
            "version: '3'\nserver: {command: php victim.php, user: nobody, relay: 'tcp://127.0.0.1:0'}\n\
             http: {address: 127.0.0.1:0, pool: {num_workers: 2, max_jobs: 3}}\n",
        );
        let server = Server::start_by(command, site, &["serve"]);
        let environment = server.get("/environment").text();
        let (_, relay) = environment.split_once(r#""RR_RELAY":""#).unwrap();
        let (relay, _) = relay.split_once('"').unwrap();
        let mut thief = Command::new("php")
            .arg(server.site().path("foreign/steal.php"))
            .args([relay, "20"])
            .stderr(Stdio::piped())
            .uid(1)
            .gid(1)
            .spawn()
            .unwrap();
        let mut begins = [0; 6];
        let said = thief.stderr.as_mut().unwrap().read_exact(&mut begins);
        assert_eq!((said.unwrap(), &begins), ((), b"steals"));
        nothing_is_stolen(&server);
        server.logged(&["is not taken for a worker: "]);
        thief.kill().unwrap();
        thief.wait().unwrap();
        server.stop();
    }
}

#[test]
fn a_worker_of_one_user_does_not_become_one_of_another_by_joining_its_group() {
    if !rustix::process::geteuid().is_root() {
        return; // only root has pools of several users
    }
    let site = foreign_site(
        "version: '3'\nserver: {command: php victim.php, user: nobody, relay: 'unix://run/relay.sock'}\n\
         http:\n  address: 127.0.0.1:0\n  pool: {num_workers: 2, max_jobs: 3}\n  pools:\n    \
         evil: {command: php evil.php, num_workers: 1, user: daemon}\n  \
         routes: [{path: /evil, pool: evil}]\n",
    );
    let server = Server::start(site);
    server.logged(&["steals"]);
    nothing_is_stolen(&server);
    server.logged(&[
        "is not taken for a worker: a worker has started it, and there is no start that waits for it",
    ]);
    server.stop();
}
