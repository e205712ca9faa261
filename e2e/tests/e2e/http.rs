//! The protocol, over a real connection.

use std::fs;
use std::net::{SocketAddr, TcpListener};

use pronghorn_testkit::{Connection, Server, Site};
use rustix::io::Errno;
use rustix::net::getpeername;
use rustix::net::sockopt::tcp_congestion;
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};

#[test]
fn a_connection_carries_many_requests() {
    let server = Server::start(Site::with_worker("app.php"));
    let mut connection = server.connect();
    for _ in 0..100 {
        assert_eq!(connection.get("/").text(), "Hello");
    }
    connection.request("GET", "/", "Connection: close\r\n");
    assert_eq!(connection.response().header("connection"), Some("close"));
    assert!(connection.is_closed());
    server.stop();
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let server = Server::start(Site::with_worker("app.php"));
    let mut connection = server.connect();
    for code in 200..220 {
        connection.request("GET", &format!("/status?code={code}"), "");
    }
    for code in 200..220 {
        if code == 204 {
            assert_eq!(connection.head().0, 204);
        } else {
            assert_eq!(connection.response().status, code);
        }
    }
    server.stop();
}

#[test]
fn what_is_no_http_is_refused_and_the_connection_closed() {
    let server = Server::start(Site::with_worker("app.php"));
    let long = format!(
        "GET / HTTP/1.1\r\nHost: a\r\nX: {}\r\n\r\n",
        "b".repeat(70_000)
    );
    for (status, bytes) in [
        (400, "GET / HTTP/1.1\nHost: a\n\n"),
        (400, "GET / HTTP/1.1\r\n\r\n"),
        (
            400,
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        ),
        (400, "GET / HTTP/1.1\r\nHost: a\r\nX : b\r\n\r\n"),
        (400, "GET / HTTP/1.1\r\nHost: a\r\nX: b\r\n c\r\n\r\n"),
        (
            501,
            "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
        ),
        (505, "GET / HTTP/3.0\r\nHost: a\r\n\r\n"),
        (431, &long),
        (
            400,
            "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        ),
        (400, "\x16\x03\x01\x02\x00\x01\x00\x01"),
    ] {
        let mut connection = Connection::open(server.address());
        connection.send(bytes);
        let response = connection.response();
        assert_eq!(response.status, status, "{bytes:?}");
        assert!(connection.is_closed(), "{bytes:?}");
        // The client is told why, and the log as well.
        let why = response.text();
        assert!(why.trim().len() > 10, "{why}");
        let record = server.logged(&["DEBUG", "refused", why.trim()]);
        assert!(
            record.contains("\"remote_address\":\"127.0.0.1:"),
            "{record}"
        );
    }
    assert_eq!(server.get("/").text(), "Hello");
    server.stop();
}

#[test]
fn options_for_the_server_itself_needs_no_php() {
    let server = Server::start(Site::with_worker("app.php"));
    let mut connection = server.connect();
    connection.request("OPTIONS", "*", "");
    let response = connection.response();
    assert_eq!((response.status, response.body.len()), (200, 0));
    server.stop();
}

#[test]
fn a_client_that_leaves_is_noticed() {
    let server = Server::start(Site::with_worker("app.php"));
    let mut connection = server.connect();
    connection.request("GET", "/gone", "");
    server.logged(&["waiting for the client to leave"]);
    connection.leave();
    server.logged(&["the client left"]);
    assert_eq!(server.get("/").text(), "Hello");
    server.stop();
}

#[test]
fn a_client_of_the_same_machine_is_sent_to_without_timers() {
    let usual = tcp_congestion(TcpListener::bind("127.0.0.1:0").unwrap()).unwrap();
    let server = Server::start(Site::with_worker("app.php"));
    let mut connection = server.connect();
    assert_eq!(connection.get("/").text(), "Hello");
    let wanted = if usual.starts_with("bbr") {
        "reno"
    } else {
        &usual
    };
    // A sandbox may let nobody look into other processes.
    if let Some(own) = congestion_of(server.pid(), connection.address()) {
        assert_eq!(own, wanted, "{usual} is usual here");
    }
    server.stop();
}

/// The congestion control of the server's end of a connection; none where that can't be seen.
fn congestion_of(server: u32, client: SocketAddr) -> Option<String> {
    let pid = Pid::from_raw(server.cast_signed())?;
    let process = pidfd_open(pid, PidfdFlags::empty()).ok()?;
    for entry in fs::read_dir(format!("/proc/{server}/fd")).ok()?.flatten() {
        let number = entry.file_name().to_str()?.parse().ok()?;
        let file = match pidfd_getfd(&process, number, PidfdGetfdFlags::empty()) {
            Ok(file) => file,
            Err(Errno::PERM | Errno::NOSYS) => return None,
            Err(_) => continue, // closed meanwhile
        };
        let peer = getpeername(&file).ok().flatten();
        if peer.and_then(|peer| SocketAddr::try_from(peer).ok()) == Some(client) {
            return Some(tcp_congestion(&file).expect("it is a TCP socket"));
        }
    }
    unreachable!("the server has its end of it");
}
