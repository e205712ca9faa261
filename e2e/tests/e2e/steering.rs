//! Commands for a server that runs: `reset`, `workers`, `status`, `stop`.

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use pronghorn_testkit::{Connection, Ended, Server, Site, binary, free_address, time, wait_for};

use crate::ring::extension;

/// Waits until a worker is at a request that takes a while.
fn busy(server: &Server) -> Connection {
    let mut connection = server.connect();
    connection.request("GET", "/sleep?ms=20000", "");
    wait_for("the call to be with its worker", || {
        let shown = server.steer(&["workers"]).stdout;
        shown.contains("GET /sleep").then_some(())
    });
    connection
}

fn assert_done(ended: &Ended) {
    assert_eq!(
        (ended.code, ended.stderr.as_str()),
        (Some(0), ""),
        "{}",
        ended.stdout
    );
}

fn assert_failed(ended: &Ended, parts: &[&str]) {
    assert_eq!(ended.code, Some(1), "{}{}", ended.stdout, ended.stderr);
    for part in parts {
        assert!(ended.stderr.contains(part), "{part} in\n{}", ended.stderr);
    }
}

/// The numbers at the beginning of the table's lines.
fn pids(table: &str) -> Vec<u32> {
    let first = |line: &str| line.split_whitespace().next()?.parse().ok();
    table.lines().filter_map(first).collect()
}

#[test]
fn a_reset_replaces_all_workers_and_fails_no_request() {
    let server = Server::start(Site::with_worker("app.php"));
    let before = pids(&server.steer(&["workers"]).stdout);
    assert_eq!(before.len(), 2);
    let over = AtomicBool::new(false);
    let resets = std::thread::scope(|scope| {
        let load: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(|| {
                    let mut answered = 0;
                    while !over.load(Ordering::Relaxed) {
                        assert_eq!(server.get("/").text(), "Hello");
                        answered += 1;
                    }
                    answered
                })
            })
            .collect();
        let resets = (2..=4).map(|_| server.steer(&["reset"]));
        let resets: Vec<_> = resets.collect();
        over.store(true, Ordering::Relaxed);
        for load in load {
            assert!(load.join().expect("no request failed") > 0);
        }
        resets
    });
    for (ended, generation) in resets.iter().zip(2..) {
        assert_done(ended);
        let said = format!("default: 2 new workers of generation {generation} after ");
        assert!(ended.stdout.starts_with(&said), "{}", ended.stdout);
    }
    let after = pids(&server.steer(&["workers", "default"]).stdout);
    assert!(
        after.iter().all(|pid| !before.contains(pid)),
        "{before:?} {after:?}"
    );
    server.stop();
}

#[test]
fn a_reset_to_code_that_does_not_boot_says_why_and_changes_nothing() {
    let site = Site::with_worker("app.php");
    let config = std::fs::read_to_string(site.path(".rr.yaml")).unwrap();
    let fixture = Site::fixture("app.php").display().to_string();
    let worker = format!("<?php require '{fixture}';");
    let site = site
        .config(&config.replace(&fixture, "worker.php"))
        .file("worker.php", &worker);
    let server = Server::start(site);
    let before = pids(&server.steer(&["workers"]).stdout);
    server.site().write(
        "worker.php",
        "<?php fwrite(STDERR, 'out of order'); exit(3);",
    );
    for arguments in [&["reset"][..], &["reset", "-s"]] {
        assert_failed(
            &server.steer(arguments),
            &["exit code 3", "out of order", "The old workers go on."],
        );
    }
    assert_eq!(pids(&server.steer(&["workers"]).stdout), before);
    server.site().write("worker.php", &worker);
    let silent = server.steer(&["reset", "http", "-s"]);
    assert_done(&silent);
    assert_eq!(silent.stdout, "");
    server.stop();
}

#[test]
fn workers_shows_what_each_is_at() {
    let server = Server::start(Site::with_worker("app.php"));
    let shown = server.steer(&["workers"]);
    assert_done(&shown);
    let sorted = |mut pids: Vec<_>| {
        pids.sort_unstable();
        pids
    };
    assert_eq!(sorted(pids(&shown.stdout)), sorted(server.workers()));
    let connection = busy(&server);
    let shown = server.steer(&["workers", "http"]).stdout;
    assert!(
        shown.contains("default: 2 workers, 1 busy, 0 calls waiting, forked by "),
        "{shown}"
    );
    let line = shown
        .lines()
        .find(|line| line.contains(" busy "))
        .expect("one is busy");
    assert!(
        line.ends_with("s GET /sleep?ms=20000") && line.contains(" MB "),
        "{line}"
    );
    // Without a terminal `-i` is the same.
    assert_eq!(pids(&server.steer(&["workers", "-i"]).stdout), pids(&shown));
    assert_failed(
        &server.steer(&["workers", "nope"]),
        &["no pool `nope`", "`default`"],
    );
    drop(connection);
    assert_done(&server.steer(&["stop", "-f"]));
    let mut server = server;
    assert_eq!(server.wait().code, Some(1), "forced");
}

/// The process may be gone before it has ended its answer: that is no failure.
#[test]
fn an_idle_server_is_stopped_at_once() {
    for _ in 0..5 {
        let mut server = Server::start(Site::with_worker("app.php"));
        let stopped = server.steer(&["stop", "-f"]);
        assert_done(&stopped);
        assert!(stopped.stdout.contains("has stopped"), "{stopped:?}");
        server.wait();
    }
}

#[test]
fn the_live_view_leaves_the_terminal_as_it_was() {
    let server = Server::start(Site::with_worker("app.php"));
    let pid = pids(&server.steer(&["workers"]).stdout)[0].to_string();
    let command = format!(
        "stty rows 20 cols 80; {} workers -i; stty -a",
        binary().display()
    );
    let mut terminal = Command::new("script")
        .args(["-qec", &command, "typescript"])
        .current_dir(server.site().folder())
        .env("PWD", server.site().folder())
        .env("XDG_RUNTIME_DIR", server.site().folder())
        .env("TERM", "xterm")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .expect("script is part of every Debian");
    let typescript =
        || std::fs::read_to_string(server.site().path("typescript")).unwrap_or_default();
    // It begins to draw with the cursor in the corner: three frames are three of these.
    wait_for("a few frames", || {
        (typescript().matches("\u{1b}[H").count() > 2).then_some(())
    });
    terminal
        .stdin
        .take()
        .expect("a pipe")
        .write_all(b"q")
        .unwrap();
    assert!(terminal.wait().unwrap().success());
    let shown = typescript();
    assert!(shown.contains(&pid) && shown.contains("q ends"), "{shown}");
    let after = shown
        .split("\u{1b}[?25h\u{1b}[?1049l")
        .nth(1)
        .expect("the screen is put back");
    for mode in ["icanon", "echo", "isig"] {
        assert!(
            after.split_whitespace().any(|word| word == mode),
            "{mode}: {after}"
        );
    }
    server.stop();
}

#[test]
fn status_tells_the_server_as_a_whole() {
    let site = Site::with_worker("app.php");
    let config = std::fs::read_to_string(site.path(".rr.yaml")).unwrap();
    let server =
        Server::start(site.config(&format!("{config}rpc: {{listen: 'unix://rpc.sock'}}\n")));
    let status = server.steer(&["status"]);
    assert_done(&status);
    let folder = server.site().folder().display();
    for part in [
        format!("pid {}, up ", server.pid()),
        "state    ready\n".to_owned(),
        format!("config   {folder}/.rr.yaml\n"),
        format!("http     http://{}\n", server.address()),
        format!("rpc      unix://{folder}/rpc.sock\n"),
        "pool     default: 2 workers, 0 busy, 0 calls waiting, generation 1\n".to_owned(),
    ] {
        assert!(
            status.stdout.contains(&part),
            "{part} in\n{}",
            status.stdout
        );
    }
    server.stop();
}

#[test]
fn workers_says_how_requests_reach_each() {
    let php = format!("php -d extension={}", extension().display());
    let config = format!(
        "version: '3'\nserver: {{command: {php} worker.php}}\nhttp:\n  address: 127.0.0.1:0\n  \
         pool: {{num_workers: 1}}\n  pools:\n    \
         piped: {{num_workers: 1, transport: relay}}\n    \
         scripts: {{mode: fastcgi, root: public, num_workers: 1}}\n    \
         programs: {{mode: cgi, root: public, num_workers: 1}}\n  \
         routes:\n    - {{path: /piped, pool: piped}}\n    - {{path: /scripts/*, pool: scripts}}\n    \
         - {{path: /programs/*, pool: programs}}\n"
    );
    let site = Site::new()
        .file("worker.php", &Site::sdk_worker("return 'fine';"))
        .file("public/index.php", "<?php echo 'fine';")
        .config(&config);
    let server = Server::start(site);
    let shown = server.steer(&["workers"]).stdout;
    for (pool, via) in [
        ("default", "ring"),
        ("piped", "relay"),
        ("scripts", "fastcgi"),
        ("programs", "cgi"),
    ] {
        let below = shown.lines().skip_while(|line| !line.starts_with(pool));
        let worker = below.skip(1).map(|line| line.split_whitespace().nth(2));
        assert_eq!(worker.take(1).collect::<Vec<_>>(), [Some(via)], "{shown}");
    }
    server.stop();
}

#[test]
fn workers_are_added_and_removed() {
    let server = Server::start(Site::with_worker("app.php"));
    let counted = |arguments: &[&str]| {
        let ended = server.steer(arguments);
        assert_done(&ended);
        ended.stdout
    };
    assert_eq!(counted(&["workers", "--add", "2"]), "default: 4 workers\n");
    assert_eq!(pids(&counted(&["workers"])).len(), 4);
    assert_eq!(
        counted(&["workers", "default", "--remove", "3"]),
        "default: 1 worker\n"
    );
    wait_for("three to end", || {
        (server.workers().len() == 1).then_some(())
    });
    assert_failed(
        &server.steer(&["workers", "--remove", "1"]),
        &["would have 0 workers"],
    );
    assert_failed(
        &server.steer(&["workers", "nope", "--add", "1"]),
        &["no pool `nope`"],
    );
    for wrong in [
        &["workers", "a", "b", "--add", "1"][..],
        &["workers", "-i", "--add", "1"],
    ] {
        assert_eq!(server.steer(wrong).code, Some(2));
    }
    server.stop();
}

#[test]
fn stop_waits_for_requests_and_for_the_end() {
    let mut server = Server::start(Site::with_worker("app.php"));
    let mut connection = server.connect();
    connection.request("GET", "/wait", "");
    wait_for("the call to be with its worker", || {
        let shown = server.steer(&["workers"]).stdout;
        shown.contains("GET /wait").then_some(())
    });
    let stopped = std::thread::scope(|scope| {
        let stop = scope.spawn(|| server.steer(&["stop"]));
        server.logged(&["stopping"]);
        server.site().write("go", "");
        stop.join().expect("the command ends")
    });
    assert_done(&stopped);
    assert_eq!(
        stopped.stdout,
        format!("the server (pid {}) has stopped\n", server.pid())
    );
    assert_eq!(connection.response().text(), "awake");
    let (ended, took) = time(|| server.wait());
    assert_eq!(ended.code, Some(0));
    assert!(
        took < Duration::from_secs(3),
        "it had ended already: {took:?}"
    );
}

#[test]
fn when_nothing_is_found_it_says_where_it_looked() {
    let site = Site::new();
    for command in ["reset", "workers", "status", "stop"] {
        let ended = Server::run(&site, &[command]);
        assert_failed(
            &ended,
            &[
                "no server is running for",
                "where there is no configuration",
                "-c FILE",
            ],
        );
    }
    let site = site.config("rpc: {listen: 'unix://rpc.sock'}");
    let ended = Server::run(&site, &["workers"]);
    let file = site.path(".rr.yaml").display().to_string();
    assert_failed(
        &ended,
        &[
            &format!("no server of {file} is running"),
            &format!("looked at  {}/pronghorn-", site.folder().display()),
            &format!(
                "looked at  unix://{}/rpc.sock: No such file",
                site.folder().display()
            ),
            &format!("hint: `pronghorn serve -c {file}` starts one"),
        ],
    );
}

#[test]
fn servers_of_different_configurations_in_one_folder_are_told_apart() {
    let site = Site::with_worker("app.php");
    let config = std::fs::read_to_string(site.path(".rr.yaml")).unwrap();
    let site = site.file(
        "other.yaml",
        &config.replace("num_workers: 2", "num_workers: 1"),
    );
    let first = Server::start(site);
    let other = Site::new().file("app/.rr.yaml", &config);
    let second = Server::start_with(other, &["serve", "-c", "app/.rr.yaml"]);

    assert_failed(
        &first.steer(&["status", "-c", "other.yaml"]),
        &["other.yaml is running"],
    );
    for (server, arguments) in [
        (&first, &["status"][..]),
        (&second, &["status", "-c", "app/.rr.yaml"]),
        (&second, &["status", "-w", "app"]),
        (
            &second,
            &[
                "status",
                "-c",
                "../app/./none/../app/.rr.yaml",
                "-w",
                "app/..",
            ],
        ),
    ] {
        let status = server.steer(arguments);
        if arguments.len() < 5 {
            assert_done(&status);
            let pid = format!("pid {}, ", server.pid());
            assert!(
                status.stdout.contains(&pid),
                "{arguments:?}: {}",
                status.stdout
            );
        } else {
            assert_failed(&status, &["there is no file"]);
        }
    }
    assert_failed(&second.steer(&["status"]), &["no server"]);
    first.stop();
    second.stop();
}

#[test]
fn a_second_server_of_one_configuration_starts_and_says_who_is_steered() {
    let first = Server::start(Site::with_worker("app.php"));
    let folder = first.site().folder().to_owned();
    let config = folder.join(".rr.yaml").display().to_string();
    let second = Server::start_with(Site::new(), &["serve", "-c", &config]);
    // Its own folder for sockets is another one: it is found by its own surroundings alone.
    assert!(
        second
            .steer(&["status", "-c", &config])
            .stdout
            .contains(&format!("pid {}", second.pid()))
    );
    assert!(
        first
            .steer(&["status"])
            .stdout
            .contains(&format!("pid {}", first.pid()))
    );
    second.stop();

    let third = Server::run_beside(first.site(), &["serve", "-o", "server.command=false"]);
    assert_failed(
        &third,
        &[
            "another server of this configuration is running",
            &format!("(pid {})", first.pid()),
        ],
    );
    assert_done(&first.steer(&["status"]));
    first.stop();
}

#[test]
fn what_is_not_found_by_its_configuration_is_found_by_rpc() {
    let site = Site::with_worker("app.php");
    let config = std::fs::read_to_string(site.path(".rr.yaml")).unwrap();
    let rpc = free_address();
    let server = Server::start(site.config(&format!("{config}rpc: {{listen: 'tcp://{rpc}'}}\n")));
    let listen = format!("rpc.listen=tcp://{rpc}");
    let elsewhere = Site::new().config("");
    let by_rpc = Server::run(&elsewhere, &["workers", "-o", &listen]);
    assert_done(&by_rpc);
    assert!(
        by_rpc.stdout.contains("http: 2 workers, 0 busy\n"),
        "{}",
        by_rpc.stdout
    );
    assert_eq!(
        pids(&by_rpc.stdout),
        pids(&server.steer(&["workers"]).stdout)
    );
    let elsewhere = Site::new();
    let before = pids(&server.steer(&["workers"]).stdout);
    assert_done(&Server::run(&elsewhere, &["reset", "-s", "-o", &listen]));
    // Those that were told to end may take a moment.
    let after = wait_for("other workers", || {
        let after = pids(&server.steer(&["workers"]).stdout);
        let are_new = after.iter().all(|pid| !before.contains(pid));
        are_new.then_some(after)
    });
    let status = Server::run(&elsewhere, &["status", "-o", &listen]);
    assert_done(&status);
    assert!(
        status.stdout.contains("as RoadRunner 2025.1.15"),
        "{}",
        status.stdout
    );
    assert_failed(
        &Server::run(&elsewhere, &["reset", "nope", "-o", &listen]),
        &["no plugin `nope`", "`http`"],
    );
    assert_failed(
        &Server::run(&elsewhere, &["stop", "-o", &listen]),
        &["which can't stop it"],
    );
    // A server that is named by its RPC, and is not there, is not mistaken for the one of the
    // configuration.
    let other = format!("rpc.listen=tcp://{}", free_address());
    assert_failed(
        &server.steer(&["reset", "-o", &other]),
        &["has another `rpc.listen`"],
    );
    assert_eq!(
        pids(&server.steer(&["workers", "-o", &listen]).stdout),
        after
    );
    server.stop();
}

/// Configurations that keep the default have one address: it must not lead to another application.
#[test]
fn the_rpc_of_a_configuration_leads_to_no_server_of_another_one() {
    let rpc = free_address();
    let section = format!("rpc: {{listen: 'tcp://{rpc}'}}\n");
    let site = Site::with_worker("app.php");
    let config = std::fs::read_to_string(site.path(".rr.yaml")).unwrap();
    let programs = "service: {p: {command: sleep 60}}\n";
    let server = Server::start(site.config(&format!("{config}{section}{programs}")));
    let own = server.site().path(".rr.yaml").display().to_string();
    let before = pids(&server.steer(&["workers"]).stdout);
    let elsewhere = Site::new().config(&section);
    let found = format!("that of {own} (pid {})", server.pid());
    let (that, whichever) = (
        format!("`-c {own}` names that server"),
        format!("`-o rpc.listen=tcp://{rpc}` whichever"),
    );
    for command in [
        &["reset"][..],
        &["programs", "stop", "p"],
        &["programs"],
        &["cache"],
        &["jobs"],
        &["schedules"],
        &["workers"],
        &["status"],
        &["stop"],
        &["reload"],
        &["logs"],
    ] {
        let refused = Server::run(&elsewhere, command);
        assert_failed(&refused, &[&found, &that, &whichever]);
    }
    assert_eq!(pids(&server.steer(&["workers"]).stdout), before);
    let programs = server.steer(&["programs"]).stdout;
    assert!(!programs.contains("stopped"), "{programs}");
    // Its own configuration, without its control socket.
    let surroundings = Site::new();
    let by_own = Server::run(&surroundings, &["workers", "-c", &own]);
    assert_done(&by_own);
    assert_eq!(pids(&by_own.stdout), before);
    server.stop();
}

#[test]
fn a_socket_that_nobody_listens_on_is_replaced() {
    let server = Server::start(Site::with_worker("app.php"));
    let socket = server.control_socket();
    let mode = std::fs::metadata(&socket).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let site = server.into_site();
    assert!(!socket.exists());
    drop(UnixListener::bind(&socket).unwrap());
    assert_failed(&Server::run_beside(&site, &["status"]), &["no server"]);
    let server = Server::start(site);
    assert_done(&server.steer(&["status"]));
    server.stop();
}

/// Anybody may put up a name in `/tmp` at which a command looks before it comes to the server.
#[test]
fn a_name_that_cannot_be_used_keeps_no_command_from_its_server() {
    let site = Site::with_worker("app.php");
    let links = Site::new();
    let link = links.folder().join("link");
    std::os::unix::fs::symlink(site.folder(), &link).unwrap();
    let named = link.join(".rr.yaml");
    let status = ["status", "-c", named.to_str().unwrap()];
    let said = Server::run_beside(&site, &status).stderr;
    let looked = said.lines().rev().find_map(|line| {
        let path = line.trim().strip_prefix("looked at  /tmp/")?;
        (!path.contains('/')).then(|| format!("/tmp/{path}"))
    });
    let mut names = said.lines().filter_map(|line| {
        let path = line.trim().strip_prefix("looked at")?.trim();
        (path.starts_with("/tmp/") && path.matches('/').count() == 2).then_some(path)
    });
    let path = looked.or_else(|| names.next().map(ToOwned::to_owned));
    let path = path.unwrap_or_else(|| panic!("{said}"));
    // Nobody can follow it.
    std::os::unix::fs::symlink(&path, &path).unwrap();
    let none = Server::run_beside(&site, &status);
    assert_failed(
        &none,
        &["no server of", "Too many levels of symbolic links"],
    );
    let server = Server::start(site);
    let found = server.steer(&status);
    std::fs::remove_file(&path).unwrap();
    assert_done(&found);
    server.stop();
}

/// Anybody may listen in `/tmp` where a server would, and write a file that names a process.
#[test]
fn a_command_of_root_does_not_talk_to_anybodys_socket() {
    if !rustix::process::geteuid().is_root() {
        return; // only root can be somebody else
    }
    let server = Server::start(Site::with_worker("app.php"));
    let name = server.control_socket().file_name().unwrap().to_owned();
    let site = server.into_site();
    let socket = std::path::Path::new("/tmp").join(name);
    let script = format!(
        "$s = stream_socket_server('unix://{}'); echo 'listening', PHP_EOL;
         while ($c = stream_socket_accept($s, 60)) {{ $said = fgets($c); if ($said) echo \"asked $said\"; fclose($c); }}",
        socket.display()
    );
    let mut fake = Command::new("setpriv")
        .args([
            "--reuid=65534",
            "--regid=65534",
            "--clear-groups",
            "php",
            "-r",
            &script,
        ])
        .stdout(Stdio::piped())
        .spawn()
        .expect("setpriv is part of every Debian");
    let mut heard = std::io::BufReader::new(fake.stdout.take().unwrap());
    let mut line = String::new();
    std::io::BufRead::read_line(&mut heard, &mut line).unwrap();
    assert_eq!(line, "listening\n");
    let whose = "belongs to user 65534, whom this command does not trust, so it was not asked";
    for command in ["status", "workers", "stop"] {
        assert_failed(&Server::run_beside(&site, &[command]), &[whose]);
    }
    // The right server is found beside it.
    let server = Server::start(site);
    assert_done(&server.steer(&["status"]));
    server.stop();
    fake.kill().unwrap();
    fake.wait().unwrap();
    std::fs::remove_file(&socket).unwrap();
    let mut rest = String::new();
    std::io::Read::read_to_string(&mut heard, &mut rest).unwrap();
    assert_eq!(rest, "", "it was asked");
}

#[test]
fn stop_of_root_ends_no_process_that_anybody_names_or_has() {
    if !rustix::process::geteuid().is_root() {
        return; // only root can be somebody else
    }
    // Called as a server is, and readable for everybody.
    let program = std::path::Path::new("/tmp").join(format!("e2e-{:x}", fastrand::u64(..)));
    std::fs::create_dir(&program).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    let sleep = program.join("pronghorn");
    std::fs::copy("/bin/sleep", &sleep).unwrap();
    let start = |user: &str| {
        let mut command = Command::new("setpriv");
        command
            .args(["--reuid", user, "--clear-groups"])
            .arg(&sleep)
            .arg("60");
        command.spawn().expect("setpriv is part of every Debian")
    };
    let mut processes = [start("65534"), start("0")];
    let site = Site::with_worker("app.php");
    let file = site.path(".pid");
    for (process, owner, whose) in [
        (0, 0, "belongs to user 65534"),
        (1, 65534, ".pid belongs to user 65534"),
        (1, 0, "has stopped"),
    ] {
        let process = &mut processes[process];
        let pid = process.id();
        wait_for("the program to run", || {
            let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
            (name.trim() == "pronghorn").then_some(())
        });
        std::fs::write(&file, pid.to_string()).unwrap();
        std::os::unix::fs::chown(&file, Some(owner), None).unwrap();
        // It is this process's child: it is gone when it has been waited for.
        let stopping = std::thread::scope(|scope| {
            let stopping = scope.spawn(|| Server::run_beside(&site, &["stop"]));
            if whose == "has stopped" {
                process.wait().unwrap();
            }
            stopping.join().unwrap()
        });
        let said = [stopping.stdout, stopping.stderr].concat();
        assert!(said.contains(whose), "{said}");
        assert_eq!(
            process.try_wait().unwrap().is_some(),
            whose == "has stopped",
            "{said}"
        );
    }
    let [others, _] = &mut processes;
    others.kill().unwrap();
    others.wait().unwrap();
    std::fs::remove_dir_all(&program).unwrap();
}

#[test]
fn another_user_is_refused_even_if_the_socket_lets_him_in() {
    if !rustix::process::geteuid().is_root() {
        return; // only root can be somebody else
    }
    let server = Server::start(Site::with_worker("app.php"));
    let socket = server.control_socket();
    let ask = || {
        let question = r#"{"pronghorn":1,"ask":{"stop":{"force":true}}}"#;
        let script = format!(
            "$s = @stream_socket_client('unix://{}', $n, $why) or die($why); fwrite($s, '{question}' . \"\\n\"); echo fgets($s);",
            socket.display()
        );
        let asked = Command::new("setpriv")
            .args([
                "--reuid=65534",
                "--regid=65534",
                "--clear-groups",
                "php",
                "-r",
                &script,
            ])
            .output()
            .expect("setpriv is part of every Debian");
        String::from_utf8_lossy(&asked.stdout).into_owned()
    };
    assert_eq!(ask(), "Permission denied");
    std::fs::set_permissions(&socket, std::fs::Permissions::from_mode(0o666)).unwrap();
    assert!(
        ask().contains("user 65534 may not steer a server of user 0"),
        "{}",
        ask()
    );
    server.logged(&["WARN", "command refused: user 65534"]);
    assert_eq!(server.get("/").text(), "Hello");
    server.stop();
}

#[test]
fn a_mistake_in_the_configuration_keeps_nobody_from_the_server() {
    let server = Server::start(Site::with_worker("app.php"));
    server.site().write(".rr.yaml", "http: {address: [\n");
    for command in ["workers", "status", "reset", "stop"] {
        assert_done(&server.steer(&[command]));
    }
    let mut server = server;
    server.wait();
}

#[test]
fn a_server_without_a_configuration_is_found_by_its_folder() {
    let site = Site::new().file("worker.php", &Site::sdk_worker("return 'x';"));
    let server = Server::start_with(
        site,
        &["serve", "worker.php", "-o", "http.address=127.0.0.1:0"],
    );
    let status = server.steer(&["status"]);
    assert_done(&status);
    assert!(!status.stdout.contains("config"), "{}", status.stdout);
    assert_done(&server.steer(&["stop", "-w", "."]));
    let mut server = server;
    server.wait();
}

#[test]
fn completions_know_the_commands() {
    let site = Site::new();
    for shell in ["bash", "zsh", "fish"] {
        let script = Server::run(&site, &["completion", shell]);
        assert_done(&script);
        assert!(script.stdout.contains("PRONGHORN_COMPLETE"), "{shell}");
    }
    let mut command = Command::new(binary());
    command.env("PRONGHORN_COMPLETE", "fish");
    let could_follow = Server::run_by(command, &site, &["--", "pronghorn", "wor"]);
    assert!(
        could_follow.stdout.contains("workers"),
        "{}",
        could_follow.stdout
    );
    let jobs = Server::run_as_rr(&site, &["jobs", "--list"]);
    assert_failed(&jobs, &["there is no configuration"]);
}

#[test]
fn completions_know_the_names_of_the_configuration() {
    let site = Site::new();
    site.write(
        "other.yaml",
        "server: {command: php worker.php}\n\
         http: {address: 127.0.0.1:0, pools: {images: {num_workers: 1}}}\n\
         jobs:\n  pipelines: {mail: {driver: memory}, maps: {driver: memory}}\n  \
           schedules: {nightly: {cron: '0 3 * * *', pipeline: mail, job: night}}\n\
         kv: {pages: {driver: memory}}\n\
         service: {tick: {command: sleep 1}}\n",
    );
    let cases: [(&[&str], &str); 9] = [
        (&["jobs", "pause", "m"], "mail\nmaps\n"),
        (&["jobs", "list", "ma"], "mail\nmaps\n"),
        (&["jobs", "retry", "--pipeline", "mai"], "mail\n"),
        (&["schedules", "run", "n"], "nightly\n"),
        (&["programs", "restart", "t"], "tick\n"),
        (&["programs", "logs", "t"], "tick\n"),
        (&["cache", "clear", "p"], "pages\n"),
        (&["workers", "im"], "images\n"),
        (&["reset", "im"], "images\n"),
    ];
    for (words, completed) in cases {
        let mut command = Command::new(binary());
        command.env("PRONGHORN_COMPLETE", "fish");
        let line = [&["--", "pronghorn", "-c", "other.yaml"], words].concat();
        let answer = Server::run_by(command, &site, &line);
        assert_eq!(answer.stdout, completed, "{words:?}: {}", answer.stderr);
    }
}

#[test]
fn services_are_steered_without_a_section_rpc() {
    let worker = Site::fixture("foreign/jobs.php");
    let server = Server::start(Site::new().config(&format!(
        "version: '3'\nserver: {{command: php {}, env: {{RAN: ran}}}}\nstate_dir: state\n\
         http: {{address: 127.0.0.1:0, pool: {{num_workers: 1, command: php {}}}}}\n\
         kv: {{pages: {{driver: memory}}}}\n\
         jobs:\n  pool: {{num_workers: 1}}\n  consume: [mail]\n  pipelines: {{mail: {{driver: memory}}}}\n",
        worker.display(),
        Site::fixture("foreign/worker.php").display()
    )));
    server.steer(&["jobs"]).assert_said(&["mail", "memory"]);
    server.steer(&["jobs", "pause", "mail"]).assert_said(&[]);
    server
        .steer(&["jobs", "--json"])
        .assert_said(&["\"consumes\": false"]);
    server.steer(&["cache"]).assert_said(&["pages"]);
    server.steer(&["cache", "clear", "pages"]).assert_said(&[]);
    assert_failed(&server.steer(&["cache", "get", "nope", "key"]), &["nope"]);
    assert_failed(&server.steer(&["jobs", "list", "nope"]), &["nope"]);
    server.stop();
}
