//! What a request leaves in PHP: each cell of the table in `docs/reference/reset-list.md` is proved
//! by one program, `e2e/fixtures/left.php`, that changes all of it in a request of one visitor and
//! looks at it in that of another.
//!
//! A mode is a column of the table and an application that answers `/look`, `/change`,
//! `/change-exit` and `/change-throw` by what the fixture gives for its path: [`prove`] asks for
//! them.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::net::UnixStream;
use std::process::Command;

use pronghorn_testkit::{Engine, Server, Site, wait_for};
use serde_json::Value;

use crate::apps::DATA;
use crate::ring::extension;
use crate::wordpress;

const PAGE: &str = "docs/reference/reset-list.md";

/// What the table says of a mode.
struct Column {
    /// Names of rows.
    back: BTreeSet<String>,
    stays: BTreeSet<String>,
}

fn cells(line: &str) -> Option<Vec<&str>> {
    let inner = line.strip_prefix('|')?.strip_suffix('|')?;
    Some(inner.split('|').map(str::trim).collect())
}

#[expect(clippy::panic, reason = "a page that is not read says where")]
fn column(mode: &str) -> Column {
    let repository = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
    let page =
        std::fs::read_to_string(format!("{repository}/{PAGE}")).expect("the page can be read");
    let mut lines = page.lines().filter_map(cells);
    let head = lines.find(|head| head[0] == "left by a request");
    let head = head.expect("the table of what is left");
    let at = head.iter().position(|it| *it == mode);
    let at = at.unwrap_or_else(|| panic!("{PAGE} has no column `{mode}`"));
    let mut column = Column {
        back: BTreeSet::new(),
        stays: BTreeSet::new(),
    };
    for row in lines.skip(1).take_while(|row| row.len() == head.len()) {
        let name = row[0].to_owned();
        match row[at] {
            "back" => column.back.insert(name),
            "stays" => column.stays.insert(name),
            other => {
                panic!("{PAGE}: `{name}` of `{mode}` is `{other}`, neither `back` nor `stays`")
            }
        };
    }
    column
}

fn look(server: &Server) -> BTreeMap<String, Value> {
    let text = server.get("/look").text();
    serde_json::from_str(&text).expect(&text)
}

/// The mode in which each request has a worker of its own; in all others one worker has them all.
const WORKER_OF_ONE_REQUEST: &str = "pristine";

/// Whether that is so, whatever way the request ends that changes all.
fn prove(mode: &str, server: &Server) {
    let column = column(mode);
    let first = look(server);
    for name in first.keys() {
        assert!(
            column.back.contains(name) || column.stays.contains(name),
            "{PAGE} has no row `{name}`"
        );
    }
    let pid = server.workers();
    for end in ["/change", "/change-exit", "/change-throw"] {
        let mut visitor = server.connect();
        visitor.request(
            "GET",
            &format!("{end}?left=A"),
            "Cookie: left=A\r\nX-Left: A\r\nAuthorization: Basic YTpi\r\nAccept-Encoding: gzip\r\n",
        );
        let status = visitor.response().status;
        let fits = [200, 202, 500].contains(&status);
        assert!(fits, "{mode} {end}: {status}");
        let after = look(server);
        // Another worker would have taken all of it along.
        if mode != WORKER_OF_ONE_REQUEST {
            assert_eq!(server.workers(), pid, "{mode} {end} ends the worker");
        }
        let left: BTreeSet<_> = first
            .iter()
            .filter(|(name, value)| after.get(*name) != Some(value))
            .map(|(name, _)| name.clone())
            .collect();
        let not_back: Vec<_> = left.intersection(&column.back).collect();
        assert!(
            not_back.is_empty(),
            "{mode} {end} leaves {not_back:?}\n{first:?}\n{after:?}"
        );
        let missing: Vec<_> = column
            .stays
            .iter()
            .filter(|name| first.contains_key(*name) && !left.contains(*name))
            .collect();
        assert!(missing.is_empty(), "{mode} {end} takes back {missing:?}");
    }
}

fn site(handler: &str, pool: &str) -> Site {
    extension();
    let fixture = Site::fixture("left.php");
    let worker = Site::sdk_worker("").replace(
        "function (Pronghorn\\Request $request): mixed {\n\n}",
        handler,
    );
    let script = format!(
        "<?php require_once '{}'; echo Left\\answer(strtok($_SERVER['REQUEST_URI'], '?'));",
        fixture.display()
    );
    Site::new()
        .file(
            "worker.php",
            &worker.replace("<?php", &format!("<?php require '{}';", fixture.display())),
        )
        .file("public/index.php", &script)
        .file("sessions/.keep", "")
        .config(&format!(
            "version: '3'\nserver: {{command: php worker.php}}\nhttp:\n  address: '127.0.0.1:0'\n  \
             pool: {{num_workers: 1, ini: {{session.save_path: sessions, date.timezone: UTC, output_buffering: 0, ffi.enable: 1}}, {pool}}}\n"
        ))
}

const HANDLER: &str = "fn (Pronghorn\\Request $request) => Left\\answer($request->path)";
const FRONT: &str = "fn () => require 'public/index.php'";
const PSR: &str = "function (Psr\\Http\\Message\\ServerRequestInterface $request) {
    return new Nyholm\\Psr7\\Response(200, [], Left\\answer($request->getUri()->getPath()));
}";

#[test]
fn a_kept_handler_leaves_what_the_table_says() {
    let server = Server::start(site(HANDLER, ""));
    prove("handler", &server);
    server.stop();
}

fn psr() -> Site {
    let site = site(PSR, "");
    let worker = std::fs::read_to_string(site.path("worker.php")).expect("a script");
    site.write(
        "worker.php",
        &worker.replacen("<?php", "<?php require 'Nyholm/Psr7/autoload.php';", 1),
    );
    site
}

#[test]
fn a_kept_handler_of_psr_7_leaves_what_the_table_says() {
    let server = Server::start(psr());
    prove("PSR-7", &server);
    server.stop();
}

#[test]
fn a_kept_front_controller_leaves_what_the_table_says() {
    let server = Server::start(site(FRONT, ""));
    prove("front controller", &server);
    server.stop();
}

#[test]
fn a_forked_worker_leaves_what_the_table_says() {
    for handler in [HANDLER, FRONT] {
        let server = Server::start(site(handler, "spawn: fork"));
        prove("fork", &server);
        server.stop();
    }
}

#[test]
fn a_worker_of_one_request_leaves_what_the_table_says() {
    for handler in [HANDLER, FRONT] {
        let server = Server::start(site(handler, "spawn: fork, max_jobs: 1"));
        prove("pristine", &server);
        server.stop();
    }
}

#[test]
fn a_script_leaves_what_the_table_says() {
    let server = Server::start(site(FRONT, "mode: classic, root: public"));
    prove("classic", &server);
    server.stop();
}

fn framework(fixture: &str) -> Site {
    extension();
    let site = Site::new();
    let data = site.path("data").display().to_string();
    let config = format!(
        "version: '3'\nserver: {{command: php {}, env: {{DATA: '{data}', {DATA}: '{data}'}}}}\n\
         http: {{address: '127.0.0.1:0', pool: {{num_workers: 1}}}}\n",
        Site::fixture(fixture).display(),
    );
    site.config(&config)
}

#[test]
fn a_controller_of_symfony_leaves_what_the_table_says() {
    let server = Server::start(framework("left-symfony.php"));
    prove("Symfony package", &server);
    server.stop();
}

#[test]
fn a_controller_of_laravel_leaves_what_the_table_says() {
    let server = Server::start(framework("left-laravel.php"));
    prove("Laravel package", &server);
    server.stop();
}

/// Its worker runs jobs alone. A request waits for each of them.
fn job() -> Site {
    extension();
    let repository = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
    let fixture = Site::fixture("left.php").display().to_string();
    let asks = format!(
        "<?php require '{repository}/php/jobs/autoload.php'; require '{repository}/php/worker/autoload.php';
        Pronghorn\\serve(function (Pronghorn\\Request $request) {{
            static $queue = null;
            $queue ??= Pronghorn\\Jobs\\Queue::connect(pipeline: 'left');
            return $queue->await($queue->push($request->path, '', new Pronghorn\\Jobs\\Options(result: true, attempts: 1)));
        }});"
    );
    let runs = format!(
        "<?php require '{fixture}'; require '{repository}/php/worker/autoload.php';
        (new Pronghorn\\Worker())->onJob(fn (Pronghorn\\Job $job) => Left\\answer($job->name))->run();"
    );
    let ini = "session.save_path: sessions, date.timezone: UTC";
    Site::new()
        .file("asks.php", &asks)
        .file("jobs.php", &runs)
        .file("sessions/.keep", "")
        .config(&format!(
            "version: '3'\nhttp:\n  address: '127.0.0.1:0'\n  pool: {{num_workers: 1, command: php asks.php}}\n\
             jobs:\n  pool: {{num_workers: 1, command: php jobs.php, ini: {{{ini}}}}}\n  \
             pipelines: {{left: {{driver: memory}}}}\n  consume: [left]\n"
        ))
}

#[test]
fn a_job_leaves_what_the_table_says() {
    let server = Server::start(job());
    prove("job", &server);
    server.stop();
}

/// A database `PostgreSQL` whose files, and its socket, are in the site's folder `postgres`; its
/// user `left` has no password.
fn postgres(site: &Site) -> Engine {
    let versions = std::fs::read_dir("/usr/lib/postgresql").expect("`scripts/need apps` has it");
    let newest = versions.filter_map(|it| Some(it.ok()?.path())).max();
    let programs = newest.expect("a version of it").join("bin");
    let folder = site.path("postgres").display().to_string();
    std::fs::create_dir_all(&folder).expect("a folder can be made");
    let mut own = vec!["env"];
    if rustix::process::geteuid().is_root() {
        // It refuses to run as root. Debian's package has made the user.
        let given = Command::new("chown").args(["postgres", &folder]).status();
        assert!(given.is_ok_and(|given| given.success()));
        own = vec!["setpriv", "--reuid=postgres", "--clear-groups"];
    }
    let arguments = |program: &str, more: &[&str]| {
        let program = programs.join(program).display().to_string();
        let all = [&own[1..], &[&program], more].concat();
        all.into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    let make = ["-D", &folder, "-A", "trust", "-U", "left", "--no-sync"];
    let made = Command::new(own[0])
        .args(arguments("initdb", &make))
        .current_dir("/")
        .output();
    assert!(made.is_ok_and(|made| made.status.success()));
    let serve = ["-D", &folder, "-k", &folder, "-c", "listen_addresses="];
    let mut engine = Engine::start(own[0], |_| arguments("postgres", &serve));
    engine.ends_in_order();
    wait_for("PostgreSQL", || {
        let asked = Command::new(programs.join("pg_isready"))
            .args(["-q", "-h", &folder])
            .status();
        asked.ok()?.success().then_some(())
    });
    engine
}

/// Also on databases whose connections PHP keeps. Each mode meets both of them.
#[test]
fn connections_that_php_keeps_leave_what_the_table_says() {
    let folders = Site::new();
    let _postgres = postgres(&folders);
    let _mariadb = wordpress::new_database(&folders);
    let socket = folders.path("database/socket");
    wait_for("MariaDB", || UnixStream::connect(&socket).ok());
    let databases = folders.path(".").display().to_string();
    let databases = format!("server.env.LEFT_DATABASES={databases}");
    for (mode, site) in [
        ("handler", site(HANDLER, "")),
        ("front controller", site(FRONT, "")),
        ("PSR-7", psr()),
        ("fork", site(FRONT, "spawn: fork")),
        ("pristine", site(FRONT, "spawn: fork, max_jobs: 1")),
        ("classic", site(FRONT, "mode: classic, root: public")),
        ("Symfony package", framework("left-symfony.php")),
        ("Laravel package", framework("left-laravel.php")),
        ("job", job()),
    ] {
        let server = Server::start_with(site, &["serve", "-o", &databases]);
        let rows = look(&server).into_keys();
        let of_databases = rows
            .filter(|row| row.starts_with("transactions of "))
            .count();
        assert_eq!(of_databases, 3, "{mode} looks at them");
        prove(mode, &server);
        server.stop();
    }
}

/// PHP itself waits for its end, for ever.
#[test]
fn a_copy_that_is_left_open_holds_up_no_worker() {
    let folders = Site::new();
    let _postgres = postgres(&folders);
    let copy = format!(
        "function () {{
            $link = pg_pconnect('host={} dbname=postgres user=left');
            $was = pg_transaction_status($link);
            pg_query($link, 'CREATE TABLE IF NOT EXISTS copied (it text)');
            pg_query($link, $_GET['copy']);
            echo $was, pg_transaction_status($link);
        }}",
        folders.path("postgres").display()
    );
    let server = Server::start(site(&copy, ""));
    let pid = server.workers();
    for copy in [
        "copied FROM STDIN",
        "(SELECT 1) TO STDOUT",
        "copied FROM STDIN",
    ] {
        let target = format!("/?copy=COPY {copy}").replace(' ', "%20");
        let seen = server.get(&target);
        assert_eq!((seen.status, seen.text().as_str()), (200, "01"), "{copy}");
    }
    assert_eq!(server.workers(), pid);
    server.stop();
}
