//! Starts that fail: each says what is wrong, where, and what to do, and leaves nothing behind.

use std::ffi::OsString;
use std::fs::Permissions;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Command;

use pronghorn_testkit::{Server, Site, binary};
use rustix::process::Signal;

fn site() -> Site {
    Site::new()
        .file("worker.php", &Site::sdk_worker("return 'Hello';"))
        .config("version: '3'\nserver: {command: php worker.php}\nhttp: {address: 127.0.0.1:0, pool: {num_workers: 1}}\n")
}

#[test]
fn a_script_that_is_missing_is_named_with_the_folder_it_was_looked_for_in() {
    let site = site();
    std::fs::remove_file(site.path("worker.php")).unwrap();
    let folder = site.folder().display().to_string();
    Server::run(&site, &["serve"]).assert_refused(&[
        "worker ended before it was ready (exit code 1)",
        "it said  Could not open input file: worker.php",
        &format!("hint: the script's path is taken from {folder}"),
    ]);
}

#[test]
fn a_syntax_error_is_shown_with_its_line() {
    let site = site().file("worker.php", "<?php\n\nfunction (\n");
    let script = site.path("worker.php").display().to_string();
    Server::run(&site, &["serve"]).assert_refused(&[
        "Parse error",
        &script,
        "on line",
        "hint: `php -l` checks a file",
    ]);
}

#[test]
fn packages_that_are_not_installed_are_asked_for() {
    let site = site().file(
        "worker.php",
        "<?php require __DIR__ . '/vendor/autoload.php';",
    );
    Server::run(&site, &["serve"]).assert_refused(&[
        "vendor/autoload.php",
        "hint: there is no composer.json in ",
        "`composer config repositories.pronghorn path '",
        "`composer require pronghorn/worker`",
    ]);
    let site = site.file("composer.json", "{}");
    Server::run(&site, &["serve"]).assert_refused(&[
        "vendor/autoload.php",
        "hint: the application's packages are not installed: run `composer install`",
    ]);
}

#[test]
fn a_machine_without_php_is_told_the_package() {
    let site = site();
    let empty = site.path("bin").display().to_string();
    std::fs::create_dir(site.path("bin")).unwrap();
    let ended = Server::run_with_path(&site, &["serve"], &empty);
    ended.assert_refused(&[
        "`php`",
        "hint: PHP is not installed, or not in PATH: `apt install php-cli`",
    ]);
}

#[test]
fn variables_that_are_too_long_are_named_with_the_limit() {
    let worker = Site::sdk_worker("return 'Hello';");
    let list = |prefix: &str, count: usize| -> Vec<(String, String)> {
        let names = (0..count).map(|number| format!("{prefix}_{number}"));
        names.map(|name| (name, "x".repeat(100_000))).collect()
    };
    let alone = vec![("SECRET_LIST".to_owned(), "x".repeat(200_000))];
    for (variables, inherited, parts) in [
        (
            alone,
            Vec::new(),
            [
                "the variable `SECRET_LIST` has 200012 bytes",
                "the system takes 131071 of each",
            ],
        ),
        (
            list("OWN", 9),
            list("ITS", 14),
            [
                "all arguments and variables have 23",
                "the system takes 2097152; the variable `",
            ],
        ),
    ] {
        let variables = variables.iter();
        let variables: Vec<_> = variables
            .map(|(name, value)| format!("{name}: {value}"))
            .collect();
        let variables = variables.join(", ");
        // These get of the server's environment what they need.
        let is_cleared = !inherited.is_empty();
        for (command, pool) in [
            ("php worker.php", "num_workers: 1"),
            // What does not tell which PHP it runs is not asked.
            ("sh -c 'exec php worker.php'", "num_workers: 1"),
            ("php worker.php", "mode: classic, root: ."),
            ("php worker.php", "mode: fastcgi, root: ."),
        ] {
            if is_cleared && pool.contains("fastcgi") {
                continue;
            }
            let config = format!(
                "version: '3'\nserver: {{command: \"{command}\", env: {{{variables}}}}}\n\
                 http: {{address: 127.0.0.1:0, pool: {{{pool}}}}}\n"
            );
            let site = Site::new().file("worker.php", &worker).config(&config);
            for verb in ["check", "serve"] {
                let mut server = Command::new("sh");
                server.args(["-c", "ulimit -s 8192; exec \"$@\"", "sh"]);
                server.arg(binary()).envs(inherited.clone());
                let ended = Server::run_by(server, &site, &[verb]);
                let said = [&*ended.stdout, &ended.stderr].concat();
                for part in [
                    "argument list too long",
                    parts[0],
                    parts[1],
                    "hint: put what is long",
                ] {
                    assert!(
                        said.contains(part),
                        "{verb}, {command}, {pool}: {said:.3000}"
                    );
                }
                assert!(
                    !said.contains("xxxxxxxx") && !said.contains("does not report"),
                    "{verb}"
                );
                assert_ne!(ended.code, Some(0), "{verb}, {command}, {pool}");
            }
        }
    }
}

#[test]
fn a_command_that_is_no_program_is_named() {
    let site = site();
    let ended = Server::run(&site, &["serve", "-o", "server.command=./nothing here"]);
    ended.assert_refused(&["./nothing", "hint: "]);
}

#[test]
fn a_port_in_use_is_named_with_the_way_to_see_who_has_it() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    Server::run(
        &site(),
        &["serve", "-o", &format!("http.address={address}")],
    )
    .assert_refused(&[
        &format!("{address} is in use by another process"),
        &format!("hint: `ss -ltnp 'sport = :{}'`", address.port()),
    ]);
}

#[test]
fn a_second_server_on_the_same_port_is_refused_and_the_first_one_serves_on() {
    let first = Server::start(site());
    let address = format!("http.address={}", first.address());
    Server::run(&site(), &["serve", "-o", &address])
        .assert_refused(&["is in use by another process"]);
    assert_eq!(first.get("/").text(), "Hello");
    first.stop();
}

#[test]
fn a_port_below_1024_without_the_right_names_the_capability() {
    let first = std::fs::read_to_string("/proc/sys/net/ipv4/ip_unprivileged_port_start").unwrap();
    if first.trim().parse::<u16>().unwrap() < 81 {
        return; // in some containers there is no such port
    }
    let ended = Server::run_without_rights(&site(), &["serve", "-o", "http.address=127.0.0.1:81"]);
    ended.assert_refused(&[
        "port 81 needs the right to bind ports below 1024",
        "cap_net_bind_service",
        "CAP_NET_BIND_SERVICE",
    ]);
}

#[test]
fn the_folder_of_a_socket_is_made_when_that_is_possible() {
    let mut server = Server::start_with(
        site(),
        &[
            "serve",
            "-o",
            "rpc.listen=unix://run/deep/rpc.sock",
            "-o",
            "server.relay=unix://run/relay.sock",
        ],
    );
    assert!(server.site().path("run/deep/rpc.sock").exists());
    assert_eq!(server.get("/").text(), "Hello");
    let folder = server.site().path("run");
    server.signal(Signal::TERM);
    assert_eq!(server.wait().code, Some(0));
    assert_eq!(files(&folder), ["deep"]);
    assert!(files(&folder.join("deep")).is_empty());
}

fn files(folder: &Path) -> Vec<OsString> {
    let entries = std::fs::read_dir(folder).expect("the folder is there");
    entries.flatten().map(|entry| entry.file_name()).collect()
}

#[test]
fn a_folder_that_cannot_be_made_or_used_comes_with_the_two_commands_to_type() {
    let site = site();
    std::fs::create_dir(site.path("theirs")).unwrap();
    std::fs::set_permissions(site.path("theirs"), Permissions::from_mode(0o555)).unwrap();
    let theirs = site.path("theirs").display().to_string();
    let user = String::from_utf8(Command::new("id").arg("-un").output().unwrap().stdout).unwrap();
    let user = user.trim();
    for key in ["server.relay", "rpc.listen"] {
        let at = |path: &str| format!("{key}=unix://{theirs}/{path}");
        let ended = Server::run_without_rights(&site, &["serve", "-o", &at("new/it.sock")]);
        ended.assert_refused(&[
            &format!(
                "the folder `{theirs}/new` for the socket cannot be created: Permission denied"
            ),
            &format!("hint: `sudo mkdir -p {theirs}/new` and `sudo chown {user} {theirs}/new`"),
        ]);
        let ended = Server::run_without_rights(&site, &["serve", "-o", &at("it.sock")]);
        ended.assert_refused(&[
            &format!("cannot create a socket in the folder `{theirs}`: Permission denied"),
            &format!("hint: `sudo chown {user} {theirs}`"),
        ]);
    }
}

#[test]
fn a_stale_socket_is_replaced_a_live_one_and_a_file_are_not_touched() {
    let site = site().file("data", "precious");
    let elsewhere = Site::new();
    let live = UnixListener::bind(elsewhere.path("live")).unwrap();
    let taken = elsewhere.path("live").display().to_string();
    for key in ["server.relay", "rpc.listen"] {
        let at = |path: &str| format!("{key}=unix://{path}");
        let in_use = Server::run(&site, &["serve", "-o", &at(&taken)]);
        in_use.assert_refused(&["a live server listens on", &taken, "hint: stop it first"]);
        let file = Server::run(&site, &["serve", "-o", &at("data")]);
        file.assert_refused(&["data` exists and is no socket"]);
    }
    drop(live);
    assert_eq!(
        std::fs::read_to_string(site.path("data")).unwrap(),
        "precious"
    );
    drop(UnixListener::bind(site.path("stale.sock")).unwrap());
    assert!(site.path("stale.sock").exists());
    let server = Server::start_with(site, &["serve", "-o", "rpc.listen=unix://stale.sock"]);
    assert_eq!(server.get("/").text(), "Hello");
    server.stop();
}

#[test]
fn a_command_runs_before_the_first_workers() {
    let site = |on_init: &str| {
        Site::new()
            .file("worker.php", &Site::sdk_worker("return file_get_contents('made');"))
            .config(&format!(
                "version: '3'\nserver: {{command: php worker.php, on_init: {on_init}}}\nhttp: {{address: 127.0.0.1:0, pool: {{num_workers: 1}}}}\n"
            ))
    };
    let server = Server::start(site(
        "{command: \"sh -c 'echo preparing; echo $$WHAT > made'\", env: {WHAT: schema}}",
    ));
    assert_eq!(server.get("/").text().trim(), "schema");
    server.logged(&["INFO", "on_init: preparing"]);
    server.stop();

    let server = Server::start(site("{command: \"sh -c 'echo x > made; exit 3'\"}"));
    server.logged(&["ERROR", "`server.on_init` failed", "exit code 3"]);
    server.stop();

    Server::run(
        &site("{command: \"sh -c 'exit 3'\", exit_on_error: true}"),
        &["serve"],
    )
    .assert_refused(&["`server.on_init` failed", "exit code 3"]);
    Server::run(
        &site("{command: sleep 1000, exec_timeout: 1s, exit_on_error: true}"),
        &["serve"],
    )
    .assert_refused(&["server.on_init.exec_timeout", "1s"]);
}

#[test]
fn check_judges_all_commands_by_one_rule() {
    let site = Site::new().file("plain", "no program").config(
        "version: '3'\nserver: {command: ./plain w.php, on_init: {command: ./plain}}\nhttp:\n  address: 127.0.0.1:0\n  \
         pools:\n    a: {command: ./plain w.php}\n    b: {mode: fastcgi, root: ., command: ./plain}\n    \
         c: {mode: classic, root: ., php: ./plain}\n  \
         routes: [{path: /a, pool: a}, {path: /b/*, pool: b}, {path: /c/*, pool: c}]\n\
         grpc: {listen: '127.0.0.1:0', pool: {command: ./plain w.php}}\n\
         tcp: {pool: {command: ./plain w.php}, servers: {a: {addr: 'tcp://127.0.0.1:0'}}}\n\
         jobs: {schedules: {s: {every: 1h, command: ./plain}}}\n",
    );
    Server::run(&site, &["check"]).assert_said_with(
        2,
        &[
            "`server.on_init.command` runs `./plain`, which is not executable: the server starts without it",
            "`jobs.schedules.s.command` runs `./plain`, which is not executable: its runs will fail",
            "`server.command` runs `./plain`, which is not executable",
            "`http.pools.a.command` runs `./plain`, which is not executable",
            "plain` is not executable",
            "`http.pools.b.mode` is `fastcgi`, and `",
            "`http.pools.c.mode` is `classic`, and `./plain` is not executable",
            "`grpc.pool.command` runs `./plain`, which is not executable",
            "`tcp.pool.command` runs `./plain`, which is not executable",
            "hint: `chmod +x ",
        ],
    );
    let site = site.config("version: '3'\nserver: {command: php w.php, on_init: {command: '', user: nobody-at-all}}\nhttp: {address: 127.0.0.1:0}\n");
    Server::run(&site, &["check"]).assert_said_with(2, &["`server.on_init` has no `command`"]);
    let site = site.config("version: '3'\nserver: {command: php w.php, on_init: {command: 'true', user: nobody-at-all}}\nhttp: {address: 127.0.0.1:0}\n");
    let unknown = "`server.on_init.user` names a user that does not exist: ";
    Server::run(&site, &["check"]).assert_said_with(2, &[unknown]);
}

/// As the programs of workers do.
#[test]
fn a_path_of_the_configuration_counts_where_commands_are_looked_for() {
    let site = Site::new()
        .file("bin/own", "#!/bin/sh\nexec php \"$@\"\n")
        .file("w.php", "<?php")
        .config("version: '3'\nserver: {command: own w.php, env: {PATH: 'bin:/usr/bin:/bin'}}\nhttp: {address: 127.0.0.1:0}\n");
    let executable = Permissions::from_mode(0o755);
    std::fs::set_permissions(site.path("bin/own"), executable).expect("its owner may");
    let checked = Server::run(&site, &["check"]);
    let said = checked.stdout + &checked.stderr;
    assert!(!said.contains("was not found"), "{said}");
}

#[test]
fn check_says_first_what_will_not_run_and_what_is_not_there() {
    let site = Site::new().file("readable.php", "<?php").config(
        "version: '3'\nserver: {command: php missing.php}\nhttp:\n  address: 127.0.0.1:0\n  uploads: {dir: nowhere}\n  \
         ssl: {address: '127.0.0.1:0', cert: none.pem, key: none.key}\n  cache: {driver: memory}\n  \
         pools:\n    a: {command: nophp worker.php}\n    b: {command: php .}\n    c: {command: php readable.php}\n    \
         d: {mode: fastcgi, root: ., fastcgi: {address: 'unix://none.sock'}}\n  \
         routes: [{path: /a, pool: a}, {path: /b, pool: b}, {path: /c, pool: c}, {path: /d/*, pool: d}]\n\
         boltdb: {permissions: 0777}\nendure: {print_graph: true}\n",
    );
    let checked = Server::run(&site, &["check"]);
    checked.assert_said_with(
        2,
        &[
            "`http.uploads.dir` names `nowhere`, which can't be used: No such file or directory",
            "`http.ssl` can't be used: cannot read `",
            "none.pem`: No such file or directory",
            "`server.command` runs `",
            "missing.php`, which can't be read: No such file or directory",
            "`http.pools.a.command` runs `nophp`, which was not found",
            "`http.pools.b.command` runs `",
            "which is a folder",
            "`http.pools.d.fastcgi` names the socket `none.sock`: No such file or directory",
        ],
    );
    assert!(
        !checked.stdout.contains("readable.php"),
        "{}",
        checked.stdout
    );
    let kinds: Vec<String> = checked
        .stdout
        .lines()
        .filter_map(|line| {
            line.split_once(": ")
                .filter(|(kind, _)| ["error", "warning"].contains(kind))
        })
        .map(|(kind, said)| format!("{kind} {}", said.contains("is not used yet")))
        .collect();
    let mut sorted = kinds.clone();
    sorted.sort_by_key(|kind| match kind.as_str() {
        "error true" => 0,
        "error false" => 1,
        _ => 2,
    });
    assert_eq!(kinds, sorted, "{}", checked.stdout);
    assert_eq!(kinds.iter().filter(|kind| *kind == "error true").count(), 2);

    // Served, it is a warning, as before.
    let site = Site::new()
        .file("worker.php", &Site::sdk_worker("return 'x';"))
        .config(
            "version: '3'\nserver: {command: php worker.php}\nhttp: {address: 127.0.0.1:0, pool: {num_workers: 1}}\n\
             boltdb: {permissions: 0777}\n",
        );
    let server = Server::start(site);
    server.logged(&[
        "WARN",
        "`boltdb` is not used yet: message queues and caches",
    ]);
    server.stop();
}

/// Each by a configuration; the server does not start with it, and `check` has said so.
#[test]
fn what_the_server_does_not_start_with_is_found_by_check() {
    let pages = "middleware: [error_pages], error_pages: {pages: {404: PAGE}}";
    let http =
        |keys: &str| format!("http: {{address: 127.0.0.1:0, {keys}, pool: {{num_workers: 1}}}}");
    for (rest, key, part) in [
        (
            http(&pages.replace("PAGE", "nowhere.html")),
            "http.error_pages.pages",
            "nowhere.html",
        ),
        (
            http(&pages.replace("PAGE", "folder")),
            "http.error_pages.pages",
            "directory",
        ),
        (
            http("listen: [{address: 'unix://http.sock', user: nobody-knows}]"),
            "http.listen",
            "nobody-knows",
        ),
        (
            http("listen: [{address: 'unix://file'}]"),
            "http.listen",
            "is no socket",
        ),
        (
            "fileserver: {address: 127.0.0.1:0, serve: [{prefix: /, root: nowhere}]}".to_owned(),
            "fileserver.serve",
            "nowhere",
        ),
        (
            "state_dir: file\nkv: {a: {driver: embedded}}\nrpc: {}".to_owned(),
            "state_dir",
            "no directory",
        ),
        (
            http("access_logs: false").replace("pool", "access_log: {output: [folder]}, pool"),
            "logs.output",
            "is a directory",
        ),
        (
            format!("logs: {{output: [folder]}}\n{}", http("access_logs: false")),
            "logs.output",
            "is a directory",
        ),
    ] {
        let site = Site::new()
            .file("worker.php", &Site::sdk_worker("return 'Hello';"))
            .file("file", "of somebody")
            .file("folder/.keep", "")
            .config(&format!(
                "version: '3'\nserver: {{command: php worker.php}}\n{rest}\n"
            ));
        let checked = Server::run(&site, &["check"]);
        let text = checked.stdout + &checked.stderr;
        assert!(text.contains(key) && text.contains(part), "{rest}: {text}");
        assert_ne!(checked.code, Some(0), "{rest}: {text}");
        let served = Server::run(&site, &["serve"]);
        assert_ne!(served.code, Some(0), "{rest}: {}", served.stderr);
    }
}

#[test]
fn what_is_there_and_of_another_kind_is_told_as_that() {
    let site = Site::new()
        .file("public/index.php", "<?php")
        .file("worker.php", "<?php");
    for (arguments, said) in [
        (
            &["serve", "--root", "public/index.php"][..],
            "`public/index.php` is a file, and `--root` takes a folder\nhint: `pronghorn serve --root public`",
        ),
        (&["serve", "none.php"][..], "there is no script `none.php`"),
    ] {
        let ended = Server::run(&site, arguments);
        assert_eq!(ended.code, Some(2));
        assert!(ended.stderr.contains(said), "{}", ended.stderr);
    }
}

#[test]
fn workers_of_root_are_warned_of_once() {
    let site = |user: &str| {
        Site::new()
            .file("worker.php", &Site::sdk_worker("return 'x';"))
            .config(&format!(
                "version: '3'\nserver: {{command: php worker.php{user}}}\n\
                 http: {{address: 127.0.0.1:0, pool: {{num_workers: 1}}}}\n"
            ))
    };
    let is_root = usize::from(rustix::process::geteuid().is_root());
    for (user, times) in [("", is_root), (", allow_root: true", 0)] {
        let site = site(user);
        let checked = Server::run(&site, &["check"]);
        checked.assert_said(&[]);
        let warned = |text: &str| text.matches("the server runs as root").count();
        assert_eq!(warned(&checked.stdout), times, "{}", checked.stdout);
        let server = Server::start(site);
        server.signal(Signal::HUP);
        server.logged(&["the configuration is applied"]);
        assert_eq!(warned(&server.log()), times);
        server.stop();
    }
    let site = Site::new().config("version: '3'\nservice: {a: {command: sleep 1}}\n");
    let checked = Server::run(&site, &["check"]);
    let warned = checked
        .stdout
        .matches("its workers and programs run as root");
    assert_eq!(warned.count(), is_root, "{}", checked.stdout);
}

#[test]
fn a_script_that_the_workers_may_not_read_is_told_as_that() {
    if !rustix::process::geteuid().is_root() {
        return; // nobody else can start a process as another user
    }
    let site = Site::new()
        .file("worker.php", "<?php")
        .config("version: '3'\nserver: {command: php worker.php, user: nobody}\nhttp: {address: 127.0.0.1:0}\n");
    let hidden = Permissions::from_mode(0o600);
    std::fs::set_permissions(site.path("worker.php"), hidden).unwrap();
    let ended = Server::run(&site, &["serve"]);
    assert!(
        ended
            .stderr
            .contains("is there, and nobody can't read it: `chmod a+r "),
        "{}",
        ended.stderr
    );
}

#[test]
fn an_override_of_an_unknown_key_is_refused_with_the_nearest_one() {
    let site = Site::new().config("version: '3'\nserver: {command: php worker.php}\n");
    let ended = Server::run(&site, &["serve", "-o", "http.adress=127.0.0.1:0"]);
    assert_eq!(ended.code, Some(2), "{}", ended.stderr);
    for part in [
        "-o http.adress: unknown key",
        "did you mean `http.address`?",
    ] {
        assert!(ended.stderr.contains(part), "{}", ended.stderr);
    }
}

#[test]
fn a_setting_that_php_does_not_have_is_found_by_asking_it() {
    let site = Site::new()
        .config(
            "version: '3'\nserver: {command: php worker.php}\nhttp: {address: ':0', \
             pool: {ini: {memory_limitt: 1G, opcache.enable_cli: 1, precision: 5}}}\n",
        )
        .file("worker.php", "<?php");
    let ended = Server::run(&site, &["check"]);
    ended.assert_said(&[
        "`http.pool.ini.memory_limitt` has no effect",
        "`memory_limit`?",
    ]);
    for known in ["precision", "opcache"] {
        assert!(!ended.stdout.contains(known), "{}", ended.stdout);
    }
}

/// As an application does it that owns its directory: the jobs of its own making would run.
#[test]
fn a_state_directory_that_a_stranger_could_replace_is_refused_to_root() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root makes files of others");
        return;
    }
    let site = Site::new()
        .file("worker.php", &Site::sdk_worker("return 'Hello';"))
        .file("store/x", "")
        .config(
            "version: '3'\nserver: {command: php worker.php}\nstate_dir: store/state\n\
             http: {address: 127.0.0.1:0, pool: {num_workers: 1}}\n",
        );
    let store = site.path("store");
    std::os::unix::fs::chown(&store, Some(65534), None).unwrap();
    let said = format!(
        "`{0}` belongs to user 65534, who could put something else in its place: `chown root {0}`",
        store.display()
    );
    Server::run(&site, &["serve"]).assert_refused(&["the state directory can't be used", &said]);
    let checked = Server::run(&site, &["check"]);
    let all = format!("{}{}", checked.stdout, checked.stderr);
    assert!(checked.code != Some(0) && all.contains(&said), "{all}");
    std::os::unix::fs::chown(&store, Some(0), None).unwrap();
    Server::start(site).stop();
}
