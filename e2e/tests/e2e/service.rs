//! The server as a service of the machine: the unit, sockets that systemd opens, and root.

use std::fs::{Permissions, set_permissions};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::Command;

use pronghorn_testkit::{Server, Site};

/// What `systemd-analyze security` may give the unit, times ten; an ordinary service has 96.
const EXPOSURE: &str = "--threshold=40";

fn site(more: &str) -> Site {
    let worker = Site::sdk_worker("return 'pid ' . posix_getppid();");
    Site::new().file("worker.php", &worker).config(&format!(
        "version: '3'\nserver: {{command: php worker.php}}\n{more}"
    ))
}

const HTTP: &str = "http: {address: '127.0.0.1:1', pool: {num_workers: 1}}\n";

#[test]
fn a_socket_of_systemds_is_served_by_its_name() {
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    let mut server = Server::start_activated(site(HTTP), socket, "http");
    server.logged(&["systemd has opened the socket", &address.to_string()]);
    assert_eq!(server.address(), address);
    assert_eq!(server.get("/").status, 200);
    server.upgrade();
    assert_eq!(server.get("/").status, 200);
    server.stop();
}

#[test]
fn a_socket_of_another_name_is_served_by_its_address() {
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    let site = site(&HTTP.replace("127.0.0.1:1", &address.to_string()));
    let server = Server::start_activated(site, socket, "pronghorn.socket");
    assert_eq!(server.get("/").status, 200);
    server.stop();
}

#[test]
fn a_unix_socket_of_systemds_is_there_after_the_server() {
    let elsewhere = Site::new();
    let path = elsewhere.path("rpc.sock");
    let socket = UnixListener::bind(&path).unwrap();
    let rpc = format!("rpc: {{listen: 'unix://{}'}}\n", path.display());
    let http = HTTP.replace("127.0.0.1:1", "127.0.0.1:0");
    let mut server = Server::start_activated(site(&(http + &rpc)), socket, "unknown");
    let ask = || UnixStream::connect(&path).expect("somebody listens");
    drop(ask());
    server.upgrade();
    drop(ask());
    server.stop();
    assert!(path.exists(), "systemd listens there still");
}

#[test]
fn a_socket_that_nobody_claims_is_named() {
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap().to_string();
    let mut command = Command::new("sh");
    command.args([
        "-c",
        "exec 3<&0; LISTEN_PID=$$ LISTEN_FDS=1 exec \"$@\" 2>&1",
        "sh",
    ]);
    command.arg(pronghorn_testkit::binary()).arg("serve");
    let site = site(HTTP);
    let run = command
        .current_dir(site.folder())
        .stdin(std::process::Stdio::from(std::os::fd::OwnedFd::from(
            socket,
        )));
    let run = run.env("XDG_RUNTIME_DIR", site.folder()).output().unwrap();
    let said = String::from_utf8_lossy(&run.stdout);
    assert_eq!(run.status.code(), Some(1), "{said}");
    for part in [
        &*address,
        "nothing in the configuration listens there",
        "FileDescriptorName=http",
    ] {
        assert!(said.contains(part), "{said}");
    }
}

#[test]
fn the_unit_is_hardened() {
    let is_there = Command::new("systemd-analyze").arg("--version").output();
    if !is_there.is_ok_and(|said| said.status.success()) {
        return;
    }
    let site = site(HTTP).file("units/.keep", "");
    let program = pronghorn_testkit::binary();
    let arguments = ["service", "install", "--into", "units", "--user", "daemon"];
    let sockets = ["--socket", "127.0.0.1:8080", "--program"];
    let arguments = [&arguments[..], &sockets[..], &[program.to_str().unwrap()]].concat();
    Server::run(&site, &arguments).assert_said(&["pronghorn.service", "pronghorn.socket"]);
    let unit = site.path("units/pronghorn.service");
    let socket = site.path("units/pronghorn.socket");
    let analyze = |arguments: &[&str]| {
        let said = Command::new("systemd-analyze")
            .args(arguments)
            .arg(&unit)
            .output()
            .unwrap();
        let text = [said.stdout, said.stderr].concat();
        (
            said.status.success(),
            String::from_utf8_lossy(&text).into_owned(),
        )
    };
    let (holds, said) = analyze(&["security", "--offline=yes", "--no-pager", EXPOSURE]);
    assert!(holds, "{said}");
    // Neither the man page nor the folders of a service are where tests run.
    let (_, said) = analyze(&["verify", "--man=no", socket.to_str().unwrap()]);
    assert!(!said.contains("pronghorn."), "{said}");
}

#[test]
fn as_root_a_service_needs_a_user() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let site = |server: &str| {
        let site = Site::new()
            .file(
                "worker.php",
                &Site::sdk_worker("return (string) posix_geteuid();"),
            )
            .file("as-service", "#!/bin/sh\nSYSTEMD_EXEC_PID=$$ exec \"$@\"\n")
            .file(
                "pronghorn.yaml",
                &format!(
                    "version: '3'\nserver: {{command: php worker.php{server}}}\n\
                     http: {{address: '127.0.0.1:0', pool: {{num_workers: 1}}}}\n"
                ),
            );
        let executable = Permissions::from_mode(0o755);
        set_permissions(site.path("as-service"), executable).unwrap();
        site
    };
    let refused = site("");
    let mut command = Command::new(refused.path("as-service"));
    command.arg(pronghorn_testkit::binary());
    let ended = Server::run_by(command, &refused, &["serve"]);
    ended.assert_refused(&[
        "systemd starts this server as root",
        "`User=www-data`",
        "`server: {user: www-data}`",
        "allow_root: true",
    ]);

    let allowed = site(", allow_root: true");
    let program = allowed.path("as-service");
    let server = Server::start_under(&program, allowed);
    assert_eq!(server.get("/").text(), "0");
    assert!(!server.log().contains("the server runs as root"));
    server.stop();
    // By hand, in a container, in a test: it serves, and says what is wrong.
    let server = Server::start(site(""));
    assert_eq!(server.get("/").text(), "0");
    server.logged(&["the server runs as root", "allow_root: true"]);
    server.stop();

    let refused = site(", user: root");
    for command in ["serve", "check"] {
        let ended = Server::run(&refused, &[command]);
        let said = [ended.stdout, ended.stderr].concat();
        assert_ne!(ended.code, Some(0), "{said}");
        assert!(said.contains("`server.user` is root"), "{said}");
    }
}

#[test]
fn a_unit_checks_before_it_reloads_and_has_a_configuration_of_its_own() {
    let with = site(HTTP);
    let printed = Server::run(&with, &["service", "print", "--name", "shop"]);
    for command in ["check", "reload"] {
        let line = format!("{command} -c {}\n", with.path(".rr.yaml").display());
        printed.assert_said(&["ExecReload=", &line]);
    }
    let without = Site::new();
    let refused = Server::run(&without, &["service", "install", "--name", "shop"]);
    assert_eq!(refused.code, Some(2), "{}", refused.stderr);
    for part in [
        "there is no configuration in",
        "the unit `pronghorn`",
        "-c FILE",
    ] {
        assert!(
            refused.stderr.contains(part),
            "{part} in {}",
            refused.stderr
        );
    }
}
