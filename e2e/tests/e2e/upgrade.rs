//! SIGUSR2: another process takes over, and no client notices.

use std::fs::{self, Permissions};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::process::Command;

use pronghorn_testkit::{Load, PATIENCE, Server, Site, binary, wait_for};
use rustix::process::Signal;

use crate::kind::Kind;
use crate::reload::{release, site};

#[test]
fn another_process_takes_over_and_no_request_is_lost() {
    let mut server = Server::start(site());
    let load = Load::start(server.address());
    load.go_on(50);
    for name in ["two", "three"] {
        let (pid, workers) = (server.pid(), server.workers());
        server.site().write("worker.php", &release(name));
        server.upgrade();
        assert_ne!(server.pid(), pid);
        assert!(server.workers().iter().all(|pid| !workers.contains(pid)));
        assert_eq!(server.get("/number?n=0").text(), format!("{name} 0"));
        load.go_on(50);
    }
    load.finish();
    server.stop();
}

/// The same with more in the configuration.
fn site_with(more: &str) -> Site {
    let site = site();
    let config = site.read(".rr.yaml");
    site.config(&format!("{config}{more}"))
}

#[test]
fn a_process_that_cannot_start_leaves_everything_as_it_was() {
    let mut server = Server::start(site());
    let (pid, workers) = (server.pid(), server.workers());
    let load = Load::start(server.address());
    let config = server.site().read(".rr.yaml");
    for (file, content, why) in [
        (
            ".rr.yaml",
            "version: '3'\nhttp: {pool: 7}\n",
            "nothing was started",
        ),
        ("worker.php", "<?php exit('no database');", "no database"),
    ] {
        server.site().write(file, content);
        server.signal(Signal::USR2);
        server.logged(&[
            "upgrade failed, this process continues",
            "the new process said",
            why,
        ]);
        server.site().write(".rr.yaml", &config);
    }
    load.go_on(50);
    assert_eq!((server.pid(), server.workers()), (pid, workers));
    server.site().write("worker.php", &release("two"));
    server.upgrade();
    load.go_on(50);
    load.finish();
    server.stop();
}

#[test]
fn a_process_that_takes_too_long_is_ended() {
    let server = Server::start(site_with("endure: {upgrade_timeout: 1s}\n"));
    let workers = server.workers();
    server.site().write("worker.php", "<?php sleep(1000);");
    server.signal(Signal::USR2);
    server.logged(&[
        "upgrade failed",
        "not ready within 1 s",
        "endure.upgrade_timeout",
    ]);
    assert_eq!(server.workers(), workers);
    assert_eq!(server.get("/number?n=1").text(), "one 1");
    server.stop();
}

#[test]
fn the_next_process_serves_though_the_one_before_was_killed_in_its_first_moments() {
    for more in ["", "endure: {upgrade: in_place}\n"] {
        let site = site_with(more);
        let program = site.path("server");
        symlink(binary(), &program).unwrap();
        let mut server = Server::start_by(Command::new(&program), site, &["serve"]);
        // What is started for the upgrade waits for the end of who has started it.
        let waits = format!(
            "#!/bin/sh\n: > begun\nuntil [ -e go ]; do sleep 0.01; done\nexec {} \"$@\"\n",
            binary().display()
        );
        let site = server.site();
        site.write("waiting", &waits);
        fs::set_permissions(site.path("waiting"), Permissions::from_mode(0o755)).unwrap();
        fs::rename(site.path("waiting"), &program).unwrap();
        site.write("worker.php", &release("two"));
        server.ask_for_upgrade();
        wait_for("the next process", || {
            server.site().path("begun").exists().then_some(())
        });
        server.follow_killed();
        server.site().write("go", "");
        server.logged(&["upgrade: this process has taken over"]);
        assert_eq!(server.get("/number?n=0").text(), "two 0", "{more}");
        server.stop();
    }
}

#[test]
fn the_number_of_threads_may_change() {
    let mut server = Server::start(site_with_threads(2));
    let load = Load::start(server.address());
    // More than there are sockets, fewer, and more again.
    for (from, to) in [(2, 4), (4, 1), (1, 3)] {
        server
            .site()
            .change_config(&format!("threads: {from}"), &format!("threads: {to}"));
        server.upgrade();
        load.go_on(100);
    }
    load.finish();
    server.stop();
}

fn site_with_threads(threads: u8) -> Site {
    let site = site();
    let config = site.read(".rr.yaml");
    site.config(&config.replace("pool:", &format!("threads: {threads}, pool:")))
}

#[test]
fn the_process_can_keep_its_number() {
    let server = Server::start(site_with("endure: {upgrade: in_place}\n"));
    let (pid, workers) = (server.pid(), server.workers());
    let load = Load::start(server.address());
    load.go_on(50);
    server.site().write("worker.php", &release("two"));
    server.signal(Signal::USR2);
    wait_for("the new code", || {
        (server.get("/number?n=0").text() == "two 0").then_some(())
    });
    server.logged(&["upgrade: this process has taken over"]);
    load.go_on(50);
    load.finish();
    assert_eq!(server.pid(), pid);
    assert!(server.workers().iter().all(|pid| !workers.contains(pid)));
    server.stop();
}

#[test]
fn workers_call_the_server_all_the_time() {
    for listen in ["tcp://127.0.0.1:0", "unix://rpc.sock"] {
        let site = Site::with_worker("app.php");
        let config = site.read(".rr.yaml");
        let site = site.config(&format!("{config}rpc: {{listen: '{listen}'}}\n"));
        let mut server = Server::start(site);
        let mut kept = server.connect();
        assert_eq!(kept.get("/rpc").text(), "2025.1.15");
        server.ask_for_upgrade();
        // Until its connection is closed, the old server works for this client.
        while kept.get("/rpc").header("connection") != Some("close") {}
        server.follow_upgrade();
        assert_eq!(server.get("/rpc").text(), "2025.1.15", "{listen}");
        server.stop();
    }
}

#[test]
fn systemd_hears_of_it_all_and_the_pid_file_follows() {
    let name = format!("pronghorn-test-{}", std::process::id());
    let address = SocketAddr::from_abstract_name(&name).unwrap();
    let systemd = UnixDatagram::bind_addr(&address).unwrap();
    systemd.set_read_timeout(Some(PATIENCE)).unwrap();
    let hear = || {
        let mut text = [0; 500];
        let length = systemd.recv(&mut text).expect("the server says something");
        String::from_utf8_lossy(&text[..length]).into_owned()
    };
    let notify_socket = format!("@{name}");
    let environment = [("NOTIFY_SOCKET", notify_socket.as_str())];
    let mut server = Server::start_with_environment(site(), &["serve", "-p"], &environment);
    assert!(hear().contains("READY=1"));
    for worker in server.workers() {
        let environment = fs::read(format!("/proc/{worker}/environ")).unwrap();
        let environment = String::from_utf8_lossy(&environment);
        assert!(environment.contains("RR_VERSION"), "{environment}");
        assert!(!environment.contains("NOTIFY_SOCKET"), "{environment}");
    }
    server.signal(Signal::HUP);
    let said = hear();
    assert!(
        said.contains("RELOADING=1") && said.contains("MONOTONIC_USEC="),
        "{said}"
    );
    assert!(hear().contains("READY=1"));
    server.upgrade();
    let pid = server.pid().to_string();
    assert!(hear().contains("RELOADING=1"));
    // The two processes speak at the same time.
    let said = [hear(), hear()].join("\n");
    assert!(said.contains(&format!("MAINPID={pid}\nREADY=1")), "{said}");
    assert_eq!(server.site().read(".pid"), pid);
    let file = server.site().path(".pid");
    server.signal(Signal::TERM);
    assert!(hear().contains("STOPPING=1"));
    server.wait();
    assert!(!file.exists());
}

/// Waits for the file `go`: in its boot, or in the answer to `?slow`.
fn waiting_worker(waits_in_boot: bool) -> String {
    let wait = "touch('begun'); while (!is_file('go')) { usleep(2000); }";
    let code = format!("if (isset($request->query()['slow'])) {{ {wait} }} return 'waited';");
    let code = Kind::Worker.code(&code);
    if waits_in_boot {
        code.replacen("<?php", &format!("<?php {wait}"), 1)
    } else {
        code
    }
}

fn begun(server: &Server) {
    wait_for("the worker", || {
        server.site().path("begun").exists().then_some(())
    });
}

const WAYS: [&str; 2] = ["beside", "in_place"];

/// [`Server::wait`] fails where the other process lives on.
#[test]
fn a_stop_before_the_next_process_is_ready_ends_both() {
    for way in WAYS {
        for stop in [Signal::TERM, Signal::INT] {
            let mut server = Server::start(site_with(&format!("endure: {{upgrade: {way}}}\n")));
            server.site().write("worker.php", &waiting_worker(true));
            server.signal(Signal::USR2);
            begun(&server);
            server.signal(stop);
            let ended = server.wait();
            assert_eq!(ended.code, Some(0), "{way}: {}", ended.stderr);
        }
    }
}

#[test]
fn a_stop_while_the_process_before_finishes_ends_both() {
    for way in WAYS {
        let site = site_with(&format!("endure: {{upgrade: {way}}}\n"));
        let mut server = Server::start(site.file("worker.php", &waiting_worker(false)));
        let mut busy = server.connect();
        busy.request("GET", "/number?slow=1", "");
        begun(&server);
        server.ask_for_upgrade();
        server.logged(&[match way {
            "beside" => "upgrade: this process has taken over",
            _ => "stopping",
        }]);
        server.signal(Signal::TERM);
        if way == "beside" {
            server.logged(&["and so does the process that has taken over"]);
        }
        server.site().write("go", "");
        assert_eq!(busy.response().text(), "waited");
        let ended = server.wait();
        assert_eq!(ended.code, Some(0), "{way}: {}", ended.stderr);
    }
}

/// As systemd asks the process that it has heard of last.
#[test]
fn a_stop_of_the_next_process_ends_the_one_before_in_its_time() {
    let site = site_with("endure: {grace_period: 1s}\n");
    let mut server = Server::start(site.file("worker.php", &waiting_worker(false)));
    let mut busy = server.connect();
    busy.request("GET", "/number?slow=1", "");
    begun(&server);
    let before = server.pid();
    server.ask_for_upgrade();
    server.logged(&["upgrade: this process has taken over"]);
    let mut serving = server.serving();
    serving.retain(|pid| *pid != before);
    let next = rustix::process::Pid::from_raw(serving[0].cast_signed()).unwrap();
    rustix::process::kill_process(next, Signal::TERM).unwrap();
    server.logged(&["and so does the process that has taken over"]);
    // Its request is cut off after a second, and not after the time of a handover.
    let ended = server.wait();
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
}

/// Each moment of an upgrade, as far as a number of requests tells it. One beside the other, the
/// old process is there until its request is answered.
#[test]
fn a_stop_at_any_moment_of_an_upgrade_ends_both() {
    for way in WAYS {
        for requests in [0, 2, 10, 30, 60, 90, 120, 160, 200, 250, 300, 400] {
            let site = site_with(&format!("endure: {{upgrade: {way}}}\n"));
            let mut server = Server::start(site.file("worker.php", &waiting_worker(false)));
            let _busy = (way == "beside").then(|| {
                let mut busy = server.connect();
                busy.request("GET", "/number?slow=1", "");
                begun(&server);
                busy
            });
            server.ask_for_upgrade();
            for _ in 0..requests {
                server.get("/number");
            }
            server.signal(Signal::TERM);
            server.site().write("go", "");
            let ended = server.wait();
            // A process that begins in the place of another one does not listen yet.
            let in_time = ended.code == Some(0) || way == "in_place" && ended.code.is_none();
            assert!(in_time, "{way} {requests}: {}", ended.stderr);
        }
    }
}
