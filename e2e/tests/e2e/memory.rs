//! What clients can make the server hold, each at its bound: `docs/reference/client-memory.md`
//! names a test for each row.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use pronghorn_testkit::{Connection, PATIENCE, Server, Site, free_address, time, wait_for};
use rustix::process::{Resource, getrlimit, setrlimit};

use crate::http2::{end_of, literal, request, site_with_large_file, with_window};
use crate::malformed::repository;
use crate::ring::extension;
use crate::secure::{frame, get, site};

const HEADERS: u8 = 1;
const GOAWAY: u8 = 7;
/// As many as a connection may have open.
const STREAMS: u32 = 128;
const ENHANCE_YOUR_CALM: u32 = 11;
/// `cookie: a`, kept by the table, and the newest field of the table.
const CRUMB: &[u8] = b"\x60\x01a";
const AGAIN: u8 = 0xbe;
/// Octets that stand for a field each.
const REFERENCES: usize = 3300;

/// A connection of which the client takes no body.
struct Stalled {
    stream: TcpStream,
    heads: BTreeMap<u32, Vec<u8>>,
    goodbye: Option<u32>,
}

impl Stalled {
    fn open(address: SocketAddr, window: u32) -> Self {
        let mut stream = TcpStream::connect(address).expect("it accepts");
        stream.set_read_timeout(Some(PATIENCE)).expect("a time-out");
        stream.write_all(&with_window(window)).expect("it reads");
        Self {
            stream,
            heads: BTreeMap::new(),
            goodbye: None,
        }
    }

    fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).expect("it reads");
    }

    /// Reads a frame. False at the end of the connection.
    fn read(&mut self) -> bool {
        let mut head = [0; 9];
        if self.stream.read_exact(&mut head).is_err() {
            return false;
        }
        let [a, b, c, kind, _, id @ ..] = head;
        let mut payload = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
        if self.stream.read_exact(&mut payload).is_err() {
            return false;
        }
        match kind {
            HEADERS => _ = self.heads.insert(u32::from_be_bytes(id), payload),
            GOAWAY => {
                let error = payload.get(4..8).and_then(|error| error.try_into().ok());
                self.goodbye = error.map(u32::from_be_bytes);
            }
            _ => {}
        }
        true
    }

    /// Waits until so many requests have the heads of their replies.
    fn answered(&mut self, requests: usize) {
        while self.heads.len() < requests {
            assert!(self.read(), "{} of {requests} heads", self.heads.len());
        }
    }

    /// Reads to the end of the connection: the error of the last GOAWAY.
    fn end(&mut self) -> Option<u32> {
        while self.read() {}
        self.goodbye
    }
}

/// The streams of a client, in order.
fn streams() -> impl Iterator<Item = u32> {
    (0..STREAMS).map(|number| 2 * number + 1)
}

/// A block in as many frames as it needs.
pub(crate) fn block(stream: u32, ends: bool, block: &[u8]) -> Vec<u8> {
    const LONGEST: usize = 16 << 10;
    let mut pieces = block.chunks(LONGEST).peekable();
    let (mut frames, mut kind, mut flags) = (Vec::new(), HEADERS, u8::from(ends));
    while let Some(piece) = pieces.next() {
        flags |= if pieces.peek().is_none() { 4 } else { 0 };
        frames.extend(frame(kind, flags, stream, piece));
        (kind, flags) = (9, 0);
    }
    frames
}

/// The beginning of a block, of which the last frame does not come.
pub(crate) fn endless_block(stream: u32) -> Vec<u8> {
    let piece = [0; 14_000];
    let first = frame(HEADERS, 0, stream, &piece);
    [first, frame(9, 0, stream, &piece).repeat(4)].concat()
}

/// What the server holds more than `before`, in KB.
fn grown(server: &Server, before: u64) -> u64 {
    server.resident_memory().saturating_sub(before)
}

#[test]
fn a_head_of_references_is_refused_and_not_kept() {
    const CONNECTIONS: u64 = 8;
    let server = Server::start(site("app.php", "", ""));
    assert_eq!(get(&server, "/", &["--http2"]), "Hello");
    let before = server.resident_memory();
    let mut connections = Vec::new();
    for _ in 0..CONNECTIONS {
        let mut stalled = Stalled::open(server.address(), 0);
        let mut bytes = Vec::new();
        for stream in streams() {
            let crumbs = [AGAIN; REFERENCES];
            let more = match stream {
                1 => [CRUMB, &crumbs].concat(),
                _ => crumbs.to_vec(),
            };
            bytes.extend(block(stream, true, &request("/", &more)));
        }
        stalled.send(&bytes);
        connections.push(stalled);
    }
    for stalled in &mut connections {
        stalled.answered(STREAMS as usize);
    }
    let grown = grown(&server, before);
    assert!(grown < 20 << 10, "{grown} KB more");
    // A request behind them is read right: the table has the crumb still.
    let mut stalled = connections.pop().expect("there are some");
    let next = 2 * STREAMS + 1;
    stalled.send(&frame(3, 0, 1, &[0, 0, 0, 8]));
    stalled.send(&frame(HEADERS, 5, next, &request("/", &[AGAIN])));
    while !stalled.heads.contains_key(&next) {
        assert!(stalled.read());
    }
    let ok = stalled.heads[&next][0];
    assert_eq!(ok, 0x88, "`:status: 200` of the static table");
    server.stop();
}

/// `x: aaa…`, not kept by the table.
fn long_field(length: usize) -> Vec<u8> {
    let mut field = vec![0, 1, b'x', 0x7f];
    let mut rest = length - 0x7f;
    while rest >= 0x80 {
        field.push(0x80 | u8::try_from(rest & 0x7f).expect("seven bits"));
        rest >>= 7;
    }
    field.push(u8::try_from(rest).expect("seven bits"));
    field.resize(field.len() + length, b'a');
    field
}

/// Each is as long as a head may be that is not counted.
#[test]
fn heads_of_one_connection_are_counted_together() {
    let server = Server::start(site("app.php", "", "  client_memory: 16MB\n"));
    assert_eq!(get(&server, "/", &["--http2"]), "Hello");
    let before = server.resident_memory();
    let heads: Vec<u8> = streams()
        .take(30)
        .flat_map(|stream| block(stream, false, &request("/form", &long_field(15_000))))
        .collect();
    let mut connections = Vec::new();
    for _ in 0..150 {
        let mut stalled = Stalled::open(server.address(), 0);
        // Whoever is closed already takes no more.
        stalled.stream.write_all(&heads).ok();
        connections.push(stalled);
    }
    server.logged(&["clients hold more memory than `http.client_memory`"]);
    // The last ones are in the server now, or gone. All of them would take 180 MB.
    assert_eq!(get(&server, "/", &["--http2"]), "Hello");
    let grown = grown(&server, before);
    assert!(grown < 128 << 10, "{grown} KB more");
    server.stop();
}

/// Many connections send this and then nothing more. All of them would take 80 MB and more.
fn blocks_count(bytes: &[u8]) {
    const CONNECTIONS: usize = 1200;
    let server = Server::start(site("app.php", "", "  client_memory: 16MB\n"));
    assert_eq!(get(&server, "/", &["--http2"]), "Hello");
    let before = server.resident_memory();
    let mut connections = Vec::new();
    for _ in 0..CONNECTIONS {
        let mut stalled = Stalled::open(server.address(), 0);
        // A connection that is closed already takes no more.
        stalled.stream.write_all(bytes).ok();
        connections.push(stalled);
    }
    server.logged(&["clients hold more memory than `http.client_memory`"]);
    assert_eq!(get(&server, "/", &["--http2"]), "Hello");
    // Connections that are told to go have a second to do so.
    wait_for("others to have gone", || {
        (grown(&server, before) < 48 << 10).then_some(())
    });
    server.stop();
}

/// Each is as long as a head may be that is not counted over HTTP/1.1.
#[test]
fn half_requests_with_long_heads_count() {
    blocks_count(&block(1, false, &request("/form", &long_field(15_000))));
}

#[test]
fn heads_that_do_not_come_whole_count() {
    blocks_count(&endless_block(1));
}

/// A field of a few bytes that the table keeps, in a head of 15 KB that it came with.
#[test]
fn entries_of_the_table_count_with_what_they_keep() {
    const CONNECTIONS: usize = 60;
    const REQUESTS: u8 = 100;
    let server = Server::start(site("app.php", "", "  client_memory: 16MB\n"));
    assert_eq!(get(&server, "/", &["--http2"]), "Hello");
    let before = server.resident_memory();
    let requests: Vec<u8> = (0..REQUESTS)
        .zip(streams())
        .flat_map(|(number, stream)| {
            let kept = [0x40, 1, b'k', 1, b'!' + number % 90];
            let fields = [&kept[..], &long_field(15_000)].concat();
            block(stream, true, &request("/health", &fields))
        })
        .collect();
    let mut connections = Vec::new();
    for _ in 0..CONNECTIONS {
        let mut stalled = Stalled::open(server.address(), 1 << 20);
        // Whoever is closed already takes no more.
        if stalled.stream.write_all(&requests).is_ok() {
            while stalled.heads.len() < REQUESTS.into() && stalled.read() {}
        }
        connections.push(stalled);
    }
    // All of them would take 90 MB.
    server.logged(&["clients hold more memory than `http.client_memory`"]);
    assert_eq!(get(&server, "/", &["--http2"]), "Hello");
    // Connections that are told to go have a second to do so.
    wait_for("others to have gone", || {
        (grown(&server, before) < 48 << 10).then_some(())
    });
    server.stop();
}

#[test]
fn fields_that_the_table_must_keep_end_the_connection() {
    let server = Server::start(site("app.php", "", ""));
    let mut stalled = Stalled::open(server.address(), 0);
    // `accept` with no value, kept each time.
    let more = [0x53, 0].repeat(REFERENCES);
    stalled.send(&block(1, true, &request("/", &more)));
    assert_eq!(stalled.end(), Some(ENHANCE_YOUR_CALM));
    server.logged(&["a flood of frames", "fields of a block"]);
    assert_eq!(get(&server, "/", &["--http2"]), "Hello");
    server.stop();
}

#[test]
fn errors_of_streams_end_their_connection() {
    let server = Server::start(site("app.php", "", ""));
    // A body longer than it was announced is an error of its stream, which the server resets.
    let length = literal(b"content-length", b"1");
    let frames: Vec<u8> = streams()
        .flat_map(|stream| {
            let begun = block(stream, false, &request("/", &length));
            [begun, frame(0, 1, stream, b"long")].concat()
        })
        .collect();
    assert_eq!(end_of(&server, &frames), Some(ENHANCE_YOUR_CALM));
    assert_eq!(get(&server, "/", &["--http2"]), "Hello");
    server.stop();
}

#[test]
fn trailers_are_not_kept() {
    const CONNECTIONS: u64 = 8;
    let server = Server::start(site("app.php", "", ""));
    assert_eq!(get(&server, "/", &["--http2"]), "Hello");
    let before = server.resident_memory();
    let mut connections = Vec::new();
    for _ in 0..CONNECTIONS {
        let mut stalled = Stalled::open(server.address(), 0);
        let mut bytes = Vec::new();
        for stream in streams() {
            let references = [AGAIN; REFERENCES];
            bytes.extend(block(stream, false, &request("/", &[])));
            let trailers = match stream {
                1 => [&b"\x40\x03x-a\x01b"[..], &references].concat(),
                _ => references.to_vec(),
            };
            bytes.extend(block(stream, true, &trailers));
        }
        stalled.send(&bytes);
        connections.push(stalled);
    }
    for stalled in &mut connections {
        stalled.answered(STREAMS as usize);
    }
    let grown = grown(&server, before);
    assert!(grown < 20 << 10, "{grown} KB more");
    server.stop();
}

#[test]
fn nothing_is_compressed_before_there_is_room_to_send() {
    const CONNECTIONS: u64 = 5;
    let server = Server::start(site_with_large_file(""));
    let lines: Vec<String> = (0..500_000).map(|number| number.to_string()).collect();
    server.site().write("public/lines.txt", &lines.concat());
    for coding in ["gzip", "zstd", "br"] {
        let compressed = [
            "--http2",
            "-H",
            &format!("Accept-Encoding: {coding}"),
            "-o",
            "got",
        ];
        get(&server, "/lines.txt", &compressed);
        let before = server.resident_memory();
        let accepts = literal(b"accept-encoding", coding.as_bytes());
        let mut connections = Vec::new();
        for _ in 0..CONNECTIONS {
            let mut stalled = Stalled::open(server.address(), 0);
            let asked = request("/lines.txt", &accepts);
            let bytes: Vec<u8> = streams().flat_map(|id| block(id, true, &asked)).collect();
            stalled.send(&bytes);
            connections.push(stalled);
        }
        for stalled in &mut connections {
            stalled.answered(STREAMS as usize);
        }
        let grown = grown(&server, before);
        assert!(grown < 20 << 10, "{coding}: {grown} KB more");
    }
    server.stop();
}

#[test]
fn compression_ends_where_memory_does() {
    const MOST: u64 = 64 << 10;
    let server = Server::start(site_with_large_file("  client_memory: 64MB\n"));
    let lines: Vec<String> = (0..500_000).map(|number| number.to_string()).collect();
    server.site().write("public/lines.txt", &lines.concat());
    let before = server.resident_memory();
    let mut connections = Vec::new();
    for _ in 0..8 {
        // An octet is room to begin, and no more.
        let mut stalled = Stalled::open(server.address(), 1);
        let asked = request("/lines.txt", &literal(b"accept-encoding", b"br"));
        let bytes: Vec<u8> = streams().flat_map(|id| block(id, true, &asked)).collect();
        stalled.send(&bytes);
        stalled.answered(STREAMS as usize);
        connections.push(stalled);
    }
    let grown = grown(&server, before);
    assert!(grown < 2 * MOST, "{grown} KB more");
    let coded = |stalled: &Stalled| {
        let heads = stalled.heads.values();
        let is_coded = |head: &&Vec<u8>| {
            head.windows(2)
                .any(|part| part == b"br" || part == [0x8e, 0xcf])
        };
        heads.filter(is_coded).count()
    };
    let counts: Vec<usize> = connections.iter().map(coded).collect();
    assert!(counts[0] > 0, "{counts:?}");
    let plain = get(&server, "/lines.txt", &["--http2", "--compressed"]);
    assert_eq!(plain, lines.concat());
    server.stop();
}

#[test]
fn windows_of_compressed_bodies_are_counted() {
    // Empty blocks of a brotli stream with a window of 16 MB.
    const BEGIN: &[u8] = b"\x0f\x06";
    let metrics = free_address();
    let site = site("app.php", "", "  middleware: [compress]\n");
    let config = site.read(".rr.yaml");
    let config = format!("{config}metrics: {{address: '{metrics}'}}\n");
    site.write(".rr.yaml", &config);
    let server = Server::start(site);
    let mut connections = Vec::new();
    for _ in 0..20 {
        let mut connection = server.connect();
        connection.send(
            "POST /body HTTP/1.1\r\nHost: a\r\nContent-Encoding: br\r\nContent-Length: 100\r\n\r\n",
        );
        connection.send(BEGIN);
        connections.push(connection);
    }
    // 256 MB are for 15 of them.
    server.logged(&["clients hold more memory than `http.client_memory`"]);
    wait_for("those beyond it to be closed", || {
        let held = figure(metrics, "pronghorn_http_client_memory_bytes ");
        (held < 260e6).then_some(())
    });
    assert_eq!(server.get("/").text(), "Hello");
    server.stop();
}

/// A server with 16 MB for clients, and where its metrics are.
fn measured() -> (Server, SocketAddr) {
    let metrics = free_address();
    let site = site("app.php", "", "  client_memory: 16MB\n");
    let more = format!("metrics: {{address: '{metrics}'}}\n");
    site.write(".rr.yaml", &(site.read(".rr.yaml") + &more));
    (Server::start(site), metrics)
}

/// What metrics say of a name without labels.
fn figure(metrics: SocketAddr, name: &str) -> f64 {
    let text = Connection::open(metrics).get("/metrics").text();
    let mut lines = text.lines();
    let line = lines.find_map(|line| line.strip_prefix(name)).expect(name);
    line.trim().parse().expect("a figure")
}

#[test]
fn beyond_the_memory_for_clients_the_greediest_connection_goes() {
    const HALF: usize = 7 << 20;
    let (server, metrics) = measured();
    let before = server.resident_memory();
    let field = [&b"a="[..], &vec![b'x'; HALF]].concat();
    let half = |server: &Server, bytes: &[u8]| {
        let mut connection = server.connect();
        let head = "POST /form HTTP/1.1\r\nHost: a\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: 8000000\r\n\r\n";
        connection.send(head);
        connection.send(bytes);
        connection
    };
    let mut small = half(&server, &field[..1 << 20]);
    let held = || figure(metrics, "pronghorn_http_client_memory_bytes ");
    wait_for("the small one", || (held() > 1e6).then_some(()));
    let _first = half(&server, &field);
    wait_for("the first one", || (held() > 8e6).then_some(()));
    let greedy = half(&server, &field[..HALF - 1]);
    wait_for("the second one", || (held() > 15e6).then_some(()));
    // The small one is what makes it too much, and it stays.
    small.send(&field[..1 << 20]);
    server.logged(&["clients hold more memory than `http.client_memory`"]);
    wait_for("one to be closed", || {
        let closed = figure(metrics, "pronghorn_http_connections_over_memory_total ");
        (held() < 12e6 && (closed - 1.0).abs() < 0.1).then_some(())
    });
    small.send(vec![b'x'; 8_000_000 - (2 << 20)]);
    assert_eq!(small.response().status, 200);
    let grown = grown(&server, before);
    assert!(grown < 64 << 10, "{grown} KB more");
    drop(greedy);
    server.stop();
}

/// Parts of a form whose values are short, and whose names are not.
#[test]
fn names_of_parts_count() {
    let server = Server::start(site("app.php", "", "  client_memory: 16MB\n"));
    let name = "x".repeat(15_000);
    let part = format!("--b\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n1\r\n");
    let parts = part.repeat(400);
    let open = |_| {
        let mut connection = server.connect();
        let head = "POST /form HTTP/1.1\r\nHost: a\r\nContent-Type: multipart/form-data; boundary=b\r\nContent-Length: 8000000\r\n\r\n";
        connection.send(head);
        connection.send(&parts);
        connection
    };
    let clients: Vec<_> = (0..6).map(open).collect();
    server.logged(&["clients hold more memory than `http.client_memory`"]);
    drop(clients);
    server.stop();
}

#[test]
fn bodies_on_their_way_to_files_count() {
    const CLIENTS: usize = 800;
    const MOST: u64 = 16 << 10;
    let (server, metrics) = measured();
    let before = server.resident_memory();
    let form = "Content-Type: multipart/form-data; boundary=b";
    let file = "--b\r\nContent-Disposition: form-data; name=\"f\"; filename=\"f\"\r\n\r\n";
    // All but the last piece that would be written.
    let body = "x".repeat(255_000);
    let open = |number: usize| {
        let mut connection = server.connect();
        let (kind, begin) = if number.is_multiple_of(2) {
            (form, file)
        } else {
            ("X-A: b", "")
        };
        let head =
            format!("POST /body HTTP/1.1\r\nHost: a\r\n{kind}\r\nContent-Length: 1000000\r\n\r\n");
        // Some are closed.
        connection.send([&head, begin, &body].concat());
        connection
    };
    let clients: Vec<_> = (0..CLIENTS).map(open).collect();
    let held = || figure(metrics, "pronghorn_http_client_memory_bytes ");
    wait_for("those that hold too much to go", || {
        (held() < 16.0 * 1024.0 * 1024.0).then_some(())
    });
    let grown = grown(&server, before);
    // Each also has 16 KB that do not count, and what a connection takes.
    assert!(grown < 2 * MOST + 32 * CLIENTS as u64, "{grown} KB more");
    assert_eq!(status(server.address(), "/"), 200);
    drop(clients);
    server.stop();
}

/// Some pieces are being written, and others wait for them.
#[test]
fn pieces_of_a_response_that_wait_count_whole() {
    const CLIENTS: u64 = 40;
    let metrics = free_address();
    let site = site("app.php", "", "");
    let more = format!("metrics: {{address: '{metrics}'}}\n");
    site.write(".rr.yaml", &(site.read(".rr.yaml") + &more));
    let server = Server::start(site);
    assert_eq!(
        server.get("/stream?pieces=20&size=100000").body.len(),
        2_000_000
    );
    let before = server.resident_memory();
    let open = |_| {
        let mut connection = server.connect();
        connection.request("GET", "/stream?pieces=100&size=100000", "");
        connection
    };
    let clients: Vec<_> = (0..CLIENTS).map(open).collect();
    let held = || figure(metrics, "pronghorn_http_client_memory_bytes ");
    let most = 300.0 * 1024.0 * 40.0;
    wait_for("what waits", || (held() > most).then_some(()));
    let (grown, held) = (grown(&server, before), held() / 1024.0);
    let counted = f64::from(u32::try_from(grown).expect("a few megabytes"));
    assert!(
        counted < 1.5 * held,
        "{grown} KB more, and {held} are counted"
    );
    drop(clients);
    server.stop();
}

/// An upstream sends as fast as it can, and nobody reads.
#[test]
fn what_upstreams_send_to_slow_clients_counts() {
    const CLIENTS: u64 = 100;
    let upstream = TcpListener::bind("127.0.0.1:0").expect("an address");
    let (metrics, url) = (free_address(), upstream.local_addr().expect("it is bound"));
    thread::spawn(move || {
        for stream in upstream.incoming() {
            thread::spawn(move || {
                let mut stream = stream.expect("it is accepted");
                // The head of the request is short.
                _ = stream.read(&mut [0; 4096]);
                let head = "HTTP/1.1 200 OK\r\nContent-Length: 100000000\r\n\r\n";
                _ = stream.write_all(head.as_bytes());
                let piece = vec![b'x'; 64 << 10];
                while stream.write_all(&piece).is_ok() {}
            });
        }
    });
    let keys = format!(
        "  client_memory: 16MB\n  upstreams: {{up: {{servers: ['http://{url}']}}}}\n  \
         routes: [{{path: /up, upstream: up}}]\n"
    );
    let site = site("app.php", "", &keys);
    let more = format!("metrics: {{address: '{metrics}'}}\n");
    site.write(".rr.yaml", &(site.read(".rr.yaml") + &more));
    let server = Server::start(site);
    let before = server.resident_memory();
    let open = |_| {
        let mut connection = server.connect();
        connection.request("GET", "/up", "");
        assert_eq!(connection.head().0, 200);
        connection
    };
    let clients: Vec<_> = (0..CLIENTS).map(open).collect();
    let held = || figure(metrics, "pronghorn_http_client_memory_bytes ");
    let counted = 128.0 * 1024.0 * 100.0 * 0.9;
    wait_for("what they hold", || (held() > counted).then_some(()));
    let grown = grown(&server, before);
    assert!(
        grown < 128 * CLIENTS,
        "{grown} KB more for {CLIENTS} clients"
    );
    drop(clients);
    wait_for("all of it to go", || (held() < 100_000.0).then_some(()));
    server.stop();
}

/// Requests whose bodies do not come, more than there are places.
fn half_bodies(address: SocketAddr, count: usize) -> Vec<TcpStream> {
    let open = |_| {
        let mut stream = TcpStream::connect(address).expect("it accepts");
        // Who is refused sees it later.
        _ = stream
            .write_all(b"POST /health HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100\r\n\r\n");
        stream
    };
    (0..count).map(open).collect()
}

/// Who asks a listener without a place is sent away: those whose answers are still made keep theirs
/// for a moment.
fn status(address: SocketAddr, target: &str) -> u16 {
    wait_for("an answer", || {
        let mut connection = Connection::open(address);
        connection.request("GET", target, "");
        Some(connection.answer()?.status)
    })
}

#[test]
fn requests_whose_bodies_do_not_come_keep_nobody_out() {
    let addresses = [free_address(), free_address(), free_address()];
    let [probes, admin, metrics] = addresses;
    let site = site("app.php", "", "  max_connections: 40\n");
    let more = format!(
        "{}status: {{address: '{probes}'}}\nadmin: {{listen: '{admin}'}}\nmetrics: {{address: '{metrics}'}}\n",
        site.read(".rr.yaml")
    );
    site.write(".rr.yaml", &more);
    let server = Server::start(site);
    let listeners = [
        (probes, 400, "/health"),
        (admin, 60, "/health"),
        (metrics, 60, "/metrics"),
        (server.address(), 60, "/"),
    ];
    let mut held = Vec::new();
    for (address, count, target) in listeners {
        held.push(half_bodies(address, count));
        assert_eq!(status(address, target), 200, "{target} of {address}");
    }
    // Each listener has places of its own: with all of them taken, each one answers.
    for (address, _, target) in listeners {
        assert_eq!(status(address, target), 200, "{target} of {address}");
    }
    drop(held);
    // Over HTTP/2 a connection of which all requests wait for bodies goes, too.
    let mut stalled: Vec<Stalled> = (0..60)
        .map(|_| {
            let mut stalled = Stalled::open(server.address(), 0);
            stalled.send(&block(1, false, &request("/body", &[])));
            stalled
        })
        .collect();
    assert_eq!(status(server.address(), "/"), 200);
    stalled.truncate(1);
    server.stop();
}

#[test]
fn responses_that_nobody_reads_keep_nobody_out() {
    const CONNECTIONS: usize = 60;
    let server = Server::start(site_with_large_file("  max_connections: 40\n"));
    let path = server.site().path("public/long.bin");
    let long = std::fs::File::create(path).expect("a file");
    long.set_len(256 << 20).expect("it may be longer");
    let is_answered = || {
        let (answer, took) = time(|| status(server.address(), "/"));
        assert_eq!(answer, 200);
        // A client may pause for a minute, where there is room.
        assert!(took < Duration::from_secs(20), "{took:?}");
    };
    let ask = |_| {
        let mut stream = TcpStream::connect(server.address()).expect("it accepts");
        // Who is refused sees it later.
        _ = stream.write_all(b"GET /long.bin HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n");
        stream
    };
    let unread: Vec<TcpStream> = (0..CONNECTIONS).map(ask).collect();
    is_answered();
    drop(unread);
    let ask = |_| {
        let mut stalled = Stalled::open(server.address(), 0);
        stalled.send(&block(1, true, &request("/large.txt", &[])));
        stalled
    };
    let unread: Vec<Stalled> = (0..CONNECTIONS).map(ask).collect();
    is_answered();
    drop(unread);
    server.stop();
}

#[test]
fn idle_callers_of_rpc_keep_nobody_out() {
    let rpc = free_address();
    let site = site("app.php", "", "");
    let config = format!("{}rpc: {{listen: 'tcp://{rpc}'}}\n", site.read(".rr.yaml"));
    site.write(".rr.yaml", &config);
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit).expect("the soft limit may be raised to the hard one");
    let server = Server::start(site);
    let idle: Vec<TcpStream> = (0..1100)
        .map(|_| TcpStream::connect(rpc).expect("it accepts"))
        .collect();
    assert_eq!(server.get("/rpc").status, 200);
    server.logged(&["idle connections closed for new ones", "\"limit\":1024"]);
    drop(idle);
    server.stop();
}

#[test]
fn listeners_at_their_limits_leave_open_files_to_the_site() {
    let [rpc, status, metrics, admin, files] = [(); 5].map(|()| free_address());
    let site = site("app.php", "", "").file("f/a.txt", "a");
    let config = format!(
        "{}rpc: {{listen: 'tcp://{rpc}'}}\nstatus: {{address: '{status}'}}\n\
         metrics: {{address: '{metrics}'}}\nadmin: {{listen: '{admin}', token: 0123456789abcdef0123456789abcdef}}\n\
         fileserver: {{address: '{files}', serve: [{{prefix: /, root: f}}]}}\n",
        site.read(".rr.yaml")
    );
    site.write(".rr.yaml", &config);
    let server = limited(site, 1024);
    // The site's own last: it has what the others leave.
    let mut idle = Vec::new();
    for (address, many) in [
        (rpc, 1010),
        (status, 300),
        (metrics, 100),
        (admin, 100),
        (files, 1010),
        (server.address(), 1010),
    ] {
        for _ in 0..many {
            idle.extend(TcpStream::connect_timeout(&address, Duration::from_secs(5)));
        }
    }
    assert_eq!(server.get("/rpc").status, 200);
    let health = Connection::open(status).get("/health?plugin=http");
    assert_eq!(health.status, 200);
    let log = server.log();
    assert!(!log.contains("cannot accept connections"), "{log}");
    drop(idle);
    server.stop();
}

#[test]
fn silent_clients_of_tcp_leave_open_files_to_the_site() {
    let [status, tcp, other] = [(); 3].map(|()| free_address());
    let site = site("app.php", "", "");
    let config = format!(
        "{}status: {{address: '{status}'}}\n\
         tcp:\n  pool: {{num_workers: 1, command: 'env RAN=/dev/null php {}'}}\n  servers:\n    \
         echo: {{addr: 'tcp://{tcp}', framing: line, on_connect: continue}}\n    \
         few: {{addr: 'tcp://{other}', framing: line, max_connections: 200}}\n",
        site.read(".rr.yaml"),
        Site::fixture("tcp.php").display(),
    );
    site.write(".rr.yaml", &config);
    let server = limited(site, 1024);
    let open = || TcpStream::connect_timeout(&tcp, Duration::from_secs(5));
    let _silent: Vec<_> = (0..1010).filter_map(|_| open().ok()).collect();
    assert_eq!(server.get("/").status, 200);
    let health = Connection::open(status).get("/health?plugin=http");
    assert_eq!(health.status, 200);
    // They have been silent for a second at some time: one makes room for who has something to say.
    wait_for("an answer to another client", || {
        let mut client = open().ok()?;
        client.set_read_timeout(Some(PATIENCE)).ok()?;
        client.write_all(b"echo hello\r\n").ok()?;
        let mut answer = [0; 5];
        client.read_exact(&mut answer).ok()
    });
    let log = server.log();
    assert!(!log.contains("cannot accept connections"), "{log}");
    assert!(log.contains("\"wanted\":200,\"possible\":128"), "{log}");
    server.stop();
}

#[test]
fn workers_of_other_services_leave_fewer_connections_to_the_site() {
    let connections = |most_workers: usize| {
        let site = site("app.php", "", "  max_connections: 1024\n");
        let config = format!(
            "{}tcp:\n  pool: {{min_workers: 1, max_workers: {most_workers}, command: 'php {}'}}\n  \
             servers: {{echo: {{addr: '127.0.0.1:0', framing: line}}}}\n",
            site.read(".rr.yaml"),
            Site::fixture("tcp.php").display(),
        );
        site.write(".rr.yaml", &config);
        let server = limited(site, 2048);
        let log = server.logged(&["\"wanted\":1024,\"possible\":"]);
        let (_, possible) = log.split_once("\"possible\":").expect("it is logged");
        let possible: usize = possible
            .split('}')
            .next()
            .unwrap_or("")
            .parse()
            .expect("a number");
        server.stop();
        possible
    };
    assert_eq!(connections(1) - connections(11), 10 * 8);
}

/// A server under a limit of open files.
pub(crate) fn limited(site: Site, open_files: usize) -> Server {
    let mut command = std::process::Command::new("prlimit");
    command.arg(format!("--nofile={open_files}:{open_files}"));
    command.arg(pronghorn_testkit::binary());
    Server::start_by(command, site, &["serve"])
}

#[test]
fn check_warns_of_more_connections_than_there_may_be_files() {
    let checked = |connections: usize| {
        let site = site(
            "app.php",
            "",
            &format!("  max_connections: {connections}\n"),
        );
        let config = format!(
            "{}tcp:\n  pool: {{num_workers: 1, command: 'php {}'}}\n  servers:\n    \
             usual: {{addr: '127.0.0.1:0', framing: line}}\n    \
             many: {{addr: '127.0.0.1:0', framing: line, max_connections: {connections}}}\n",
            site.read(".rr.yaml"),
            Site::fixture("tcp.php").display(),
        );
        site.write(".rr.yaml", &config);
        let mut command = std::process::Command::new("prlimit");
        command.arg("--nofile=4096:4096");
        command.arg(pronghorn_testkit::binary()).arg("check");
        let output = command.current_dir(site.folder()).output();
        let output = output.expect("prlimit runs");
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        String::from_utf8_lossy(&output.stdout).into_owned()
            + &String::from_utf8_lossy(&output.stderr)
    };
    let leaves = "is 5000, and the limit of open files leaves";
    let many = checked(5000);
    for said in [
        format!("`http.max_connections` {leaves} "),
        format!("`tcp.servers.many.max_connections` {leaves} 512 here\nhint: raise that limit"),
    ] {
        assert!(many.contains(&said), "{many}");
    }
    assert!(!many.contains("`tcp.servers.usual"), "{many}");
    let few = checked(100);
    assert!(!few.contains("the limit of open files leaves"), "{few}");
}

/// Each upload that does not come to its end keeps a file open for each of its parts.
#[test]
fn uploads_that_do_not_come_leave_open_files_to_others() {
    const FILES: usize = 15;
    let server = limited(site("app.php", "", ""), 300);
    let part = |file: usize| {
        format!(
            "--b\r\nContent-Disposition: form-data; name=\"f{file}\"; filename=\"f\"\r\n\r\nx\r\n"
        )
    };
    let parts: String = (0..FILES).map(part).collect();
    let form = "Content-Type: multipart/form-data; boundary=b";
    let open = |_| {
        let mut connection = server.connect();
        let head = format!(
            "POST /form HTTP/1.1\r\nHost: a\r\n{form}\r\nContent-Length: 100000\r\n\r\n{parts}"
        );
        connection.send(head);
        connection
    };
    let silent: Vec<_> = (0..30).map(open).collect();
    let whole = format!("{parts}--b--\r\n");
    for _ in 0..10 {
        let mut connection = server.connect();
        connection.send(format!(
            "POST /form HTTP/1.1\r\nHost: a\r\n{form}\r\nContent-Length: {}\r\n\r\n{whole}",
            whole.len()
        ));
        let answer = connection.response();
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
    drop(silent);
    server.stop();
}

#[test]
fn files_that_caches_keep_open_leave_open_files_to_the_site() {
    const FILES: usize = 300;
    for limit in [256, 1024] {
        let [rpc, status, files] = [(); 3].map(|()| free_address());
        let php = format!("php -d extension={}", extension().display());
        let scripts = |root: &str| {
            format!("{root}: {{mode: classic, root: {root}, php: '{php}', num_workers: 1}}")
        };
        let more = format!(
            "  pools:\n    {}\n    {}\n  \
             routes: [{{path: '/a/*', pool: a, strip_prefix: /a}}, {{path: '/b/*', pool: b, strip_prefix: /b}}]\n  \
             middleware: [static]\n  static: {{dir: c, serve: [{{prefix: /d, root: d}}, {{prefix: /e, root: e}}]}}\n",
            scripts("a"),
            scripts("b")
        );
        let mut site = site("app.php", "", &more);
        for root in ["a", "b"] {
            site = site.file(&format!("{root}/index.php"), "<?php echo 'a page';");
        }
        for root in ["a", "b", "c", "d", "e", "f"] {
            for number in 0..FILES {
                site.write(&format!("{root}/{number}.bin"), "");
                let path = site.path(&format!("{root}/{number}.bin"));
                let file = std::fs::File::options().write(true).open(path);
                file.and_then(|file| file.set_len(40_000))
                    .expect("it may be longer");
            }
        }
        let config = format!(
            "{}rpc: {{listen: 'tcp://{rpc}'}}\nstatus: {{address: '{status}'}}\n\
             fileserver: {{address: '{files}', serve: [{{prefix: /, root: f}}]}}\n",
            site.read(".rr.yaml")
        );
        site.write(".rr.yaml", &config);
        let server = limited(site, limit);
        let open = || {
            let open = std::fs::read_dir(format!("/proc/{}/fd", server.pid()));
            open.expect("it runs").count()
        };
        let before = open();
        let roots = [
            (server.address(), "/a/"),
            (server.address(), "/b/"),
            (server.address(), "/"),
            (server.address(), "/d/"),
            (server.address(), "/e/"),
            (files, "/"),
        ];
        for (address, root) in roots {
            let mut visitor = Connection::open(address);
            for number in 0..FILES {
                assert_eq!(visitor.get(&format!("{root}{number}.bin")).status, 200);
            }
        }
        let more = open() - before;
        assert!(more <= limit / 8 + 16, "{more} of {limit} were opened");
        for page in ["/", "/a/", "/b/", "/rpc"] {
            assert_eq!(server.get(page).status, 200, "{page}");
        }
        assert_eq!(Connection::open(status).get("/ready").status, 200);
        let log = server.log();
        assert!(!log.contains("cannot accept connections"), "{log}");
        server.stop();
    }
}

#[test]
fn the_page_names_a_test_for_each_bound() {
    let page = repository().join("docs/reference/client-memory.md");
    let page = std::fs::read_to_string(page).expect("the page is there");
    let tests = repository().join("e2e/tests/e2e");
    let sources = [
        "memory.rs",
        "slow_readers.rs",
        "http2.rs",
        "http3.rs",
        "hostile.rs",
        "tls.rs",
        "bodies.rs",
        "grpc.rs",
        "grpc_json.rs",
        "tcp.rs",
        "../../../crates/serve/src/tls/mod.rs",
    ];
    let sources = sources.map(|name| std::fs::read_to_string(tests.join(name)).expect(name));
    let rows = page
        .lines()
        .filter(|line| line.starts_with("| ") && line.ends_with("` |"));
    let mut named = 0;
    for row in rows {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        let test = cells.last().expect("a row has cells").trim_matches('`');
        let head = format!("fn {test}()");
        assert!(
            sources.iter().any(|source| source.contains(&head)),
            "no test of this name: {row}"
        );
        named += 1;
    }
    assert!(named > 15, "{named} rows");
}
