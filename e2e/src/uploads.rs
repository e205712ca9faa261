//! Large bodies, to the application in `fixtures/bodies.php`.

use pronghorn_testkit::Server;

/// How much more the server may hold while bodies pass through it, in KB: buffers, and code that
/// had not run before.
pub const GROWTH: u64 = 8 << 10;

/// A body that PHP reads as a stream. So many bytes, in whole megabytes.
///
/// # Panics
///
/// When not all of it arrives.
pub fn send_raw(server: &Server, bytes: usize) {
    let answer = send(server, "/hash", "application/octet-stream", "", bytes, "");
    let size = format!("\"size\":{bytes}");
    assert!(answer.contains(&size), "{answer}");
}

/// A form with a file of so many bytes.
///
/// # Panics
///
/// When it does not arrive.
pub fn send_form(server: &Server, bytes: usize) {
    let part = "--X\r\nContent-Disposition: form-data; name=\"f\"; filename=\"f.bin\"\r\n\r\n";
    let boundary = "multipart/form-data; boundary=X";
    let answer = send(server, "/form", boundary, part, bytes, "\r\n--X--\r\n");
    assert_eq!(answer, r#"[[],["f"],""]"#);
}

fn send(
    server: &Server,
    path: &str,
    content_type: &str,
    before: &str,
    bytes: usize,
    behind: &str,
) -> String {
    let piece = vec![b'x'; 1 << 20];
    assert_eq!(bytes % piece.len(), 0, "whole megabytes");
    let mut connection = server.connect();
    let length = before.len() + bytes + behind.len();
    let fields = format!("Content-Type: {content_type}\r\nContent-Length: {length}\r\n");
    connection.request("POST", path, &fields);
    connection.send(before);
    for _ in 0..bytes / piece.len() {
        connection.send(&piece);
    }
    connection.send(behind);
    let response = connection.response();
    assert_eq!(response.status, 200, "{}", response.text());
    response.text()
}
