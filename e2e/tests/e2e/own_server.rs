//! A server of one's own: `examples/own-server`.

use pronghorn_testkit::{Connection, Server, Site};
use rustix::process::Signal;

fn start() -> Server {
    let config = Site::example("own-server");
    let config = config.to_str().expect("the path is UTF-8");
    let arguments = ["serve", "-c", config, "-o", "http.address=127.0.0.1:0"];
    Server::start_own("own-server", Site::new(), &arguments)
}

const UPGRADE: &str = "Connection: keep-alive, Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
                       Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";

/// A short text message as a client sends it: masked, by zeros.
fn message(text: &str) -> Vec<u8> {
    let len = u8::try_from(text.len()).expect("a short text");
    let mut frame = vec![0x81, 0x80 | len, 0, 0, 0, 0];
    frame.extend_from_slice(text.as_bytes());
    frame
}

/// The next message of the server.
fn heard(socket: &mut Connection) -> (u8, Vec<u8>) {
    let head = socket.take(2);
    (head[0], socket.take(usize::from(head[1])))
}

#[test]
fn some_routes_are_answered_in_rust_and_the_rest_by_php() {
    let server = start();
    let mut connection = server.connect();
    assert_eq!(connection.get("/ping").text(), "pong\n");
    assert_eq!(connection.get("/").text(), "PHP was asked for /\n");
    assert_eq!(connection.get("/ping").text(), "pong\n");
    // A reload keeps what is one's own, and the commands are there.
    server.signal(Signal::HUP);
    server.logged(&["reloaded"]);
    assert_eq!(connection.get("/ping").text(), "pong\n");
    assert_eq!(connection.get("/x").text(), "PHP was asked for /x\n");
    server.stop();
}

#[test]
fn a_web_socket_echoes_until_the_server_stops() {
    let mut server = start();
    let mut socket = server.connect();
    // What comes with the request is the first that the new protocol reads.
    let mut first = format!("GET /ws HTTP/1.1\r\nHost: test\r\n{UPGRADE}\r\n").into_bytes();
    first.extend(message("hello"));
    socket.send(first);
    let (status, headers) = socket.head();
    assert_eq!(status, 101);
    for (name, value) in [
        ("Connection", "Upgrade"),
        ("Upgrade", "websocket"),
        ("Sec-WebSocket-Accept", "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="),
    ] {
        let is_there = |(named, valued): &(String, String)| named == name && valued == value;
        assert!(
            headers.iter().any(is_there),
            "{name}: {value} in {headers:?}"
        );
    }
    assert_eq!(heard(&mut socket), (0x81, b"hello".to_vec()));
    socket.send(message("and again"));
    assert_eq!(heard(&mut socket), (0x81, b"and again".to_vec()));
    assert_eq!(server.get("/").text(), "PHP was asked for /\n");
    // The stop waits for it, and it ends as its protocol wants.
    server.signal(Signal::TERM);
    assert_eq!(heard(&mut socket).0, 0x88, "no close frame");
    assert!(socket.is_closed());
    let ended = server.wait();
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
}

#[test]
fn a_web_socket_wants_a_request_that_asks_for_it() {
    let server = start();
    let mut connection = server.connect();
    assert_eq!(connection.get("/ws").status, 426);
    // HTTP/1.0 has no upgrades.
    let mut old = server.connect();
    old.send(format!("GET /ws HTTP/1.0\r\nHost: test\r\n{UPGRADE}\r\n"));
    assert_eq!(old.response().status, 501);
    // Nor is there one in the middle of a body.
    connection.request("POST", "/ws", &format!("{UPGRADE}Content-Length: 5\r\n"));
    assert_eq!(connection.response().status, 501);
    // Whoever asks and is not heard goes on in HTTP.
    connection.send("hello");
    connection.request("GET", "/", UPGRADE);
    assert_eq!(connection.response().text(), "PHP was asked for /\n");
    server.stop();
}
