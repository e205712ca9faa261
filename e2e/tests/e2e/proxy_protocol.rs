//! Load balancers that say who their client is by the PROXY protocol.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use pronghorn_testkit::{Connection, Server, Site};

use crate::control::listening;
use crate::secure::{self, curl, port, run_curl};

const GET: &str = "GET /show HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n";
const V1: &[u8] = b"PROXY TCP4 192.0.2.1 198.51.100.2 12345 8443\r\n";

fn site(http: &str) -> Site {
    Site::new().config(&format!(
        "version: '3'\nserver: {{command: php {}}}\nlogs: {{level: debug}}\n\
         http:\n  address: 127.0.0.1:0\n  pool: {{num_workers: 1}}\n{http}",
        Site::fixture("app.php").display()
    ))
}

/// A header of version 2.
fn v2(command: u8, family: u8, rest: &[u8]) -> Vec<u8> {
    let len = u16::try_from(rest.len())
        .expect("a header is short")
        .to_be_bytes();
    [b"\r\n\r\n\0\r\nQUIT\n", &[command, family][..], &len, rest].concat()
}

/// The client of 192.0.2.1, with an extension that nobody knows.
fn v2_client() -> Vec<u8> {
    let rest = [
        192, 0, 2, 1, 198, 51, 100, 2, 0x30, 0x39, 0x20, 0xfb, 0xee, 0, 2, 7, 7,
    ];
    v2(0x21, 0x11, &rest)
}

fn asked(server: &Server, header: &[u8]) -> String {
    let mut connection = server.connect();
    connection.send([header, GET.as_bytes()].concat());
    connection.response().text()
}

/// Whether a connection that begins so is closed without an answer.
fn is_refused(server: &Server, bytes: &[u8]) -> bool {
    let mut connection = Connection::open(server.address());
    connection.send(bytes);
    connection.rest().is_empty()
}

#[test]
fn php_and_the_log_see_the_client_and_not_the_balancer() {
    let server = Server::start(site(
        "  proxy_protocol: {trusted_proxies: [127.0.0.1]}\n\
         \x20 access_log: {format: '{ip}', output: access.log}\n",
    ));
    for header in [V1.to_vec(), v2_client()] {
        let shown = asked(&server, &header);
        assert!(shown.contains(r#""remote":"192.0.2.1""#), "{shown}");
    }
    let v6 = asked(&server, b"PROXY TCP6 2001:db8::1 2001:db8::2 12345 443\r\n");
    assert!(v6.contains(r#""remote":"2001:db8::1""#), "{v6}");
    // It asks for itself, as a health check does.
    for header in [v2(0x20, 0, &[]), b"PROXY UNKNOWN\r\n".to_vec()] {
        let shown = asked(&server, &header);
        assert!(shown.contains(r#""remote":"127.0.0.1""#), "{shown}");
    }
    server.logged(&["http log", r#""remote_address":"192.0.2.1:12345""#]);
    let site = server.into_site();
    let lines = "192.0.2.1\n192.0.2.1\n2001:db8::1\n127.0.0.1\n127.0.0.1\n";
    assert_eq!(site.read("access.log"), lines);
}

/// A proxy behind the load balancer is trusted by the address that the balancer tells.
#[test]
fn trusted_subnets_are_of_the_told_address() {
    let server = Server::start(site(
        "  proxy_protocol: {trusted_proxies: [127.0.0.0/8]}\n\
         \x20 trusted_subnets: [192.0.2.0/24]\n  trusted_headers: [X-Real-Ip]\n",
    ));
    for (header, client) in [
        (V1, "203.0.113.9"),
        (b"PROXY TCP4 198.51.100.9 127.0.0.1 1 2\r\n", "198.51.100.9"),
        (b"PROXY UNKNOWN\r\n", "127.0.0.1"),
    ] {
        let mut connection = server.connect();
        connection.send(header);
        connection.request("GET", "/show", "X-Real-Ip: 203.0.113.9\r\n");
        let shown = connection.response().text();
        assert!(
            shown.contains(&format!(r#""remote":"{client}""#)),
            "{shown}"
        );
    }
    server.stop();
}

/// The counts that an operator sees.
fn refused(server: &Server) -> [(&'static str, u64); 2] {
    let address = listening(server, "metrics").parse().expect("an address");
    let text = Connection::open(address).get("/metrics").text();
    ["no_proxy_header", "untrusted_proxy"].map(|reason| {
        let series = format!("pronghorn_http_connections_refused_total{{reason=\"{reason}\"}} ");
        let value = text.lines().find_map(|line| line.strip_prefix(&series));
        (
            reason,
            value.and_then(|value| value.parse().ok()).expect(reason),
        )
    })
}

#[test]
fn who_sends_no_header_or_a_broken_one_is_let_go() {
    let server = Server::start(site(
        "  proxy_protocol: {trusted_proxies: [127.0.0.1], read_header_timeout: 300ms}\n\
         metrics: {address: '127.0.0.1:0'}\n",
    ));
    let too_long = v2(0x21, 0x11, &[0; 5000]);
    for bytes in [
        GET.as_bytes(),
        b"PROXY TCP4 192.0.2.1 nonsense 1 2\r\n",
        b"PROXY UDP4 192.0.2.1 192.0.2.2 1 2\r\n",
        &[b"PROXY UNKNOWN ".as_slice(), &[b'x'; 200]].concat(),
        &too_long,
        &v2(0x22, 0x11, &[0; 12]),
        // These wait until they are let go.
        b"",
        b"PROXY TCP4 192.0.2.1",
        &v2_client()[..20],
    ] {
        assert!(is_refused(&server, bytes), "{}", bytes.escape_ascii());
    }
    server.logged(&[
        "do not begin with a PROXY header",
        "switch the PROXY protocol on",
    ]);
    assert_eq!(
        refused(&server),
        [("no_proxy_header", 9), ("untrusted_proxy", 0)]
    );
    // The listener takes others all the same, and a header inside of a connection is no request.
    assert!(asked(&server, V1).contains("192.0.2.1"));
    let mut connection = server.connect();
    connection.send([V1, V1, GET.as_bytes()].concat());
    assert_eq!(connection.response().status, 400);
    server.stop();
}

#[test]
fn who_is_not_trusted_may_not_connect() {
    let server = Server::start(site(
        "  proxy_protocol: {trusted_proxies: [192.0.2.0/24]}\n\
         metrics: {address: '127.0.0.1:0'}\n",
    ));
    // Whatever it tells of itself.
    assert!(is_refused(&server, &[V1, GET.as_bytes()].concat()));
    server.logged(&[
        "none of `proxy_protocol.trusted_proxies`",
        r#""remote_address":"127.0.0.1"#,
    ]);
    assert_eq!(
        refused(&server),
        [("no_proxy_header", 0), ("untrusted_proxy", 1)]
    );
    server.stop();
}

#[test]
fn it_comes_before_tls() {
    let ssl = "    proxy_protocol: {trusted_proxies: ['127.0.0.1', '::1']}\n";
    let server = Server::start(secure::site("app.php", ssl, ""));
    let url = format!("https://localhost:{}/show", port(&server));
    let tls = ["--ipv4", "--cacert", "localhost.pem"];
    for version in ["--http1.1", "--http2"] {
        let arguments = [&tls[..], &["--haproxy-protocol", version, &url]].concat();
        let shown = curl(&server, &arguments);
        assert!(shown.contains(r#""remote":"127.0.0.1""#), "{shown}");
    }
    let without = run_curl(&server, &[&tls[..], &[url.as_str()]].concat());
    assert!(!without.status.success());
    // That without TLS has no such section.
    assert_eq!(server.get("/show").status, 200);
    server.stop();
}

#[test]
fn a_unix_socket_trusts_who_may_open_it() {
    let more = "  listen: [{address: 'unix://web.sock', proxy_protocol: {}}]\n";
    let server = Server::start(site(more));
    let mut connection = UnixStream::connect(server.site().path("web.sock")).unwrap();
    connection
        .write_all(&[V1, GET.as_bytes()].concat())
        .unwrap();
    let mut answer = String::new();
    connection.read_to_string(&mut answer).unwrap();
    assert!(answer.contains(r#""remote":"192.0.2.1""#), "{answer}");
    server.stop();
}

/// Of connections that a load balancer brings, each counts for its client.
#[test]
fn the_limit_of_an_address_is_that_of_the_told_one() {
    let server = Server::start(site(
        "  max_per_address: 2\n  proxy_protocol: {trusted_proxies: [127.0.0.1]}\n",
    ));
    let mut open = Vec::new();
    for client in ["192.0.2.1", "192.0.2.1", "192.0.2.2", "192.0.2.3"] {
        let mut connection = server.connect();
        connection.send(format!("PROXY TCP4 {client} 127.0.0.1 1 2\r\n"));
        assert_eq!(connection.get("/show").status, 200, "{client}");
        open.push(connection);
    }
    assert!(is_refused(&server, &[V1, GET.as_bytes()].concat()));
    drop(open);
    server.stop();
}
