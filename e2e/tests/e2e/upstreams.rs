//! Routes to other HTTP servers: what they get, what clients get, and what happens without them.

use std::fmt::Write as _;
use std::io::{Read, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Barrier, Mutex, mpsc};
use std::thread;

use pronghorn_testkit::{Certificates, Connection, PATIENCE, Server, Site, free_address, wait_for};
use rustix::process::Signal;

use crate::secure::{PREFACE, frame};

/// An application with routes to upstreams: two keys of `http`, two spaces in.
fn site(keys: &str) -> Site {
    Site::new().config(&format!(
        "version: '3'\nserver:\n  command: php {}\nlogs: {{level: debug}}\nhttp:\n  address: 127.0.0.1:0\n  \
         http2: {{h2c: true}}\n  pool: {{num_workers: 1}}\n{keys}",
        Site::fixture("app.php").display()
    ))
}

/// All below `/up` goes to these servers, and more keys of the upstream.
fn to(servers: &[String], more: &str) -> Site {
    site(&format!(
        "  upstreams: {{up: {{servers: {servers:?}{more}}}}}\n  \
         routes: [{{path: /up/*, upstream: up, strip_prefix: /up}}]\n"
    ))
}

/// A server that answers each request with the bytes that a function gives for it, and keeps what
/// it was sent.
struct Scripted {
    address: SocketAddr,
    requests: Arc<Mutex<Vec<String>>>,
    connections: Arc<AtomicUsize>,
    ended: Arc<AtomicBool>,
}

impl Scripted {
    /// `answer` gets the number of the request and its bytes; an empty answer closes the
    /// connection, as does one that ends in `\0`, which is not sent.
    fn start(answer: impl Fn(usize, &str) -> Vec<u8> + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("an address");
        let started = Self {
            address: listener.local_addr().expect("it is bound"),
            requests: Arc::default(),
            connections: Arc::default(),
            ended: Arc::default(),
        };
        let (requests, connections) = (started.requests.clone(), started.connections.clone());
        let ended = started.ended.clone();
        let answer = Arc::new(answer);
        thread::spawn(move || {
            for stream in listener.incoming() {
                if ended.load(SeqCst) {
                    return;
                }
                connections.fetch_add(1, SeqCst);
                let (requests, answer) = (requests.clone(), answer.clone());
                thread::spawn(move || serve(stream.expect("it is accepted"), &requests, &*answer));
            }
        });
        started
    }

    fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    fn last(&self) -> String {
        self.requests
            .lock()
            .expect("no thread panics")
            .last()
            .cloned()
            .unwrap_or_default()
    }

    fn count(&self) -> usize {
        self.requests.lock().expect("no thread panics").len()
    }
}

impl Drop for Scripted {
    fn drop(&mut self) {
        self.ended.store(true, SeqCst);
        _ = TcpStream::connect(self.address); // it wakes the thread
    }
}

fn serve(
    mut stream: TcpStream,
    requests: &Mutex<Vec<String>>,
    answer: &dyn Fn(usize, &str) -> Vec<u8>,
) {
    stream.set_read_timeout(Some(PATIENCE)).expect("a limit");
    let mut read = Vec::new();
    loop {
        let Some(request) = next_request(&mut stream, &mut read) else {
            return;
        };
        let number = {
            let mut requests = requests.lock().expect("no thread panics");
            requests.push(request.clone());
            requests.len() - 1
        };
        let mut bytes = answer(number, &request);
        let closes = bytes.is_empty() || bytes.last() == Some(&0);
        if bytes.last() == Some(&0) {
            bytes.pop();
        }
        if stream.write_all(&bytes).is_err() || closes {
            _ = stream.shutdown(Shutdown::Both);
            return;
        }
    }
}

/// A request with its body, whose framing must be one of the two.
fn next_request(stream: &mut TcpStream, read: &mut Vec<u8>) -> Option<String> {
    let whole = |read: &[u8]| -> Option<usize> {
        let text = String::from_utf8_lossy(read);
        let head = text.find("\r\n\r\n")? + 4;
        let (head_text, body) = text.split_at(head);
        let lower = head_text.to_ascii_lowercase();
        if lower.contains("transfer-encoding: chunked") {
            return body.find("0\r\n\r\n").map(|at| head + at + 5);
        }
        let length = lower.split("content-length: ").nth(1);
        let length: usize = length.map_or(0, |rest| {
            rest.split('\r')
                .next()
                .and_then(|it| it.parse().ok())
                .expect("a length")
        });
        (read.len() >= head + length).then_some(head + length)
    };
    loop {
        if let Some(len) = whole(read) {
            let request: Vec<u8> = read.drain(..len).collect();
            return Some(String::from_utf8_lossy(&request).into_owned());
        }
        let mut buffer = [0; 16 << 10];
        match stream.read(&mut buffer) {
            Ok(0) | Err(_) => return None,
            Ok(len) => read.extend_from_slice(&buffer[..len]),
        }
    }
}

fn ok(body: &str) -> Vec<u8> {
    format!(
        "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

#[test]
fn a_server_gets_the_request_and_learns_who_the_client_is() {
    let upstream = Scripted::start(|_, _| ok("here"));
    let server = Server::start(to(&[upstream.url()], ""));
    let mut client = server.connect();
    client.request(
        "GET",
        "/up/%61/../b//c;d?e=%20f&g",
        "X-Own: 1\r\nX-Own: 2\r\nX-Forwarded-For: 6.6.6.6\r\nX-Forwarded-Proto: https\r\n\
         X-Forwarded-Server: evil\r\nX-Real-IP: 6.6.6.6\r\nForwarded: for=6.6.6.6\r\n\
         Connection: X-Hop, x-forwarded-for\r\nX-Hop: 1\r\nTE: trailers\r\nX_Under: 1\r\n\
         Client-Cert: :AAAA:\r\nKeep-Alive: 1\r\nProxy-Authorization: Basic x\r\n",
    );
    let response = client.response();
    assert_eq!((response.status, response.text()), (200, "here".to_owned()));
    assert_eq!(
        upstream.last(),
        "GET /%61/../b//c;d?e=%20f&g HTTP/1.1\r\nx-own: 1\r\nx-own: 2\r\nhost: test\r\n\
         x-forwarded-for: 127.0.0.1\r\nx-forwarded-proto: http\r\nx-forwarded-host: test\r\n\r\n"
    );
    // All other paths are PHP's.
    assert_eq!(server.get("/").text(), "Hello");
    // One connection is enough for requests one after the other.
    for _ in 0..20 {
        assert_eq!(client.get("/up/").status, 200);
    }
    assert_eq!(upstream.connections.load(SeqCst), 1);
    server.logged(&["http log", "/up/", "\"pool\":\"up\""]);
    server.stop();
}

#[test]
fn bodies_of_every_framing_arrive_whole_and_framed_once() {
    let upstream = Scripted::start(|_, request| {
        let body = request.split_once("\r\n\r\n").unwrap().1;
        ok(&format!(
            "{} {}",
            body.len(),
            request.matches("ncoding: ").count()
        ))
    });
    let server = Server::start(to(&[upstream.url()], ""));
    let mut client = server.connect();
    client.send("POST /up/a HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello");
    assert_eq!(client.response().text(), "5 0");
    assert!(upstream.last().contains("content-length: 5\r\n"));
    client.send(
        "POST /up/a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nX-Trail: 1\r\n\r\n",
    );
    assert_eq!(client.response().text(), "13 1");
    let last = upstream.last();
    assert!(last.contains("transfer-encoding: chunked\r\n") && !last.contains("content-length"));
    assert!(last.ends_with("\r\n\r\n3\r\nabc\r\n0\r\n\r\n"), "{last}");
    // No body has no framing, but a body of no bytes has.
    client.send("DELETE /up/a HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.response().text(), "0 0");
    assert!(!upstream.last().contains("content-length"));
    // What frames twice comes nowhere.
    let count = upstream.count();
    for bad in [
        "POST /up/a HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "POST /up/a HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
        "POST /up/a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
        "POST /up/a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
        "GET /up/a\x01b HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /up/a HTTP/1.1\r\nHost: a\r\nX: a\nb: c\r\n\r\n",
    ] {
        let mut client = server.connect();
        client.send(bad);
        assert!((400..=501).contains(&client.response().status), "{bad:?}");
    }
    assert_eq!(upstream.count(), count);
    // A body that breaks off is not taken for whole.
    let mut broken = server.connect();
    broken.send("POST /up/a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n");
    broken.finish_sending();
    _ = broken.rest();
    assert_eq!(upstream.count(), count);
    // Larger than allowed.
    let mut large = server.connect();
    large.send("POST /up/a HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999999\r\n\r\n");
    assert_eq!(large.response().status, 413);
    server.stop();
}

/// Another Pronghorn, reached in each way.
#[test]
fn every_way_to_a_server_carries_both_bodies() {
    let certificates = Certificates::new();
    let behind = Site::new().config(&format!(
        "version: '3'\nserver:\n  command: php {}\nhttp:\n  address: 127.0.0.1:0\n  http2: {{h2c: true}}\n  \
         pool: {{num_workers: 2}}\n  ssl: {{address: '127.0.0.1:0', cert: {}, key: {}}}\n  listen:\n    \
         - {{address: 'unix://behind.sock'}}\n    - {{address: '{}', proxy_protocol: {{trusted_proxies: [127.0.0.1]}}}}\n",
        Site::fixture("app.php").display(),
        certificates.path("server.pem").display(),
        certificates.path("server.key").display(),
        free_address(),
    ));
    let behind = Server::start(behind);
    let log = behind.log();
    let addresses: Vec<_> = log
        .lines()
        .find(|line| line.contains("https://"))
        .expect("it says where it listens")
        .split([' ', ',', '"'])
        .filter_map(|word| word.split_once("127.0.0.1:"))
        .map(|(_, port)| port.trim_end_matches('/').to_owned())
        .collect();
    let clear = behind.address().port();
    let secure = crate::secure::port(&behind);
    let proxied = addresses.last().expect("three ports");
    let socket = behind.site().path("behind.sock");
    let ways = [
        (format!("http://127.0.0.1:{clear}"), "HTTP/1.1", ""),
        (format!("h2c://127.0.0.1:{clear}"), "HTTP/2.0", ""),
        (format!("https://localhost:{secure}"), "HTTP/1.1", "root_ca"),
        (format!("unix://{}", socket.display()), "HTTP/1.1", ""),
        (
            format!("http://127.0.0.1:{proxied}"),
            "HTTP/1.1",
            "proxy_protocol",
        ),
    ];
    let (mut upstreams, mut routes) = (String::new(), String::new());
    for (at, (url, _, more)) in ways.iter().enumerate() {
        let more = match *more {
            "root_ca" => format!(", root_ca: {}", certificates.path("ca.pem").display()),
            "proxy_protocol" => ", proxy_protocol: true".to_owned(),
            _ => String::new(),
        };
        _ = writeln!(upstreams, "    way{at}: {{servers: [\"{url}\"]{more}}}");
        _ = writeln!(
            routes,
            "    - {{path: /{at}/*, upstream: way{at}, strip_prefix: /{at}}}"
        );
    }
    let front = Server::start(site(&format!(
        "  upstreams:\n{upstreams}  routes:\n{routes}"
    )));
    let body: Vec<u8> = (0..600_000_u32).map(|at| (at % 251) as u8).collect();
    for (at, (url, protocol, _)) in ways.iter().enumerate() {
        let mut client = front.connect();
        for _ in 0..3 {
            let shown = client.get(&format!("/{at}/show?a=b")).text();
            assert!(
                shown.contains(&format!("\"protocol\":\"{protocol}\"")),
                "{url}: {shown}"
            );
            assert!(
                shown.contains("\"x-forwarded-for\":[\"127.0.0.1\"]"),
                "{url}: {shown}"
            );
        }
        let large = client.get(&format!("/{at}/large?kb=900"));
        assert_eq!(
            (large.body.len(), large.complete),
            (900 << 10, true),
            "{url}"
        );
        assert_eq!(large.body[16 * 4711..16 * 4712], *b"000000000004711\n");
        let counted = front.post(&format!("/{at}/body"), "application/octet-stream", &body);
        assert!(
            counted.text().starts_with("600000 "),
            "{url}: {}",
            counted.text()
        );
        client.send(format!(
            "POST /{at}/body HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n{:x}\r\n",
            body.len()
        ));
        client.send(&body);
        client.send("\r\n0\r\n\r\n");
        assert_eq!(client.response().text(), counted.text(), "{url}");
        client.request("HEAD", &format!("/{at}/large?kb=900"), "");
        let head = client.head_response();
        assert_eq!(head.header("content-length"), Some("921600"), "{url}");
        assert_eq!(
            client.get(&format!("/{at}/status?code=204")).status,
            204,
            "{url}"
        );
        assert_eq!(
            client.get(&format!("/{at}/stream?pieces=9")).body.len(),
            9 * 8,
            "{url}"
        );
        client.request("GET", &format!("/{at}/hints"), "");
        if *protocol == "HTTP/1.1" {
            let hints = client.response();
            let hinted = (hints.status, hints.header("link"));
            assert_eq!(hinted, (103, Some("</a.css>; rel=preload")), "{url}");
        }
        assert_eq!(client.response().text(), "after the hints", "{url}");
    }
    front.stop();
    behind.stop();
}

#[test]
fn a_request_is_repeated_where_it_can_be_and_nowhere_else() {
    let dead = format!("http://{}", free_address());
    // It closes its connection instead of every second answer.
    let moody = Scripted::start(|number, _| match number % 2 {
        0 => ok("moody"),
        _ => Vec::new(),
    });
    let good = Scripted::start(|_, _| ok("good"));
    let server = Server::start(to(&[dead.clone(), moody.url(), good.url()], ""));
    let mut client = server.connect();
    for _ in 0..30 {
        assert_eq!(client.get("/up/").status, 200);
    }
    server.logged(&[
        "a server of an upstream does not answer",
        &dead,
        "Connection refused",
    ]);
    server.stop();

    // A POST that a server may have begun with is not sent again.
    let closing = Scripted::start(|_, _| Vec::new());
    let server = Server::start(to(&[closing.url()], ""));
    assert_eq!(server.post("/up/", "text/plain", "x").status, 502);
    assert_eq!(closing.count(), 1);
    assert_eq!(server.get("/up/").status, 502);
    server.stop();

    // A request that ends a worker reaches few of them, however many connections were kept.
    let (held, wait) = (Arc::new(AtomicUsize::new(0)), Arc::new(Barrier::new(8)));
    let (count, barrier) = (held.clone(), wait);
    let fragile = Scripted::start(move |_, request| {
        if request.starts_with("GET /crash ") {
            count.fetch_add(1, SeqCst);
            return Vec::new();
        }
        barrier.wait();
        ok("x")
    });
    let server = Server::start(to(&[fragile.url()], ""));
    let mut clients: Vec<_> = (0..8).map(|_| server.connect()).collect();
    for client in &mut clients {
        client.request("GET", "/up/", "");
    }
    for client in &mut clients {
        assert_eq!(client.response().status, 200);
    }
    assert_eq!(server.get("/up/crash").status, 502);
    assert!(held.load(SeqCst) <= 2, "{} times", held.load(SeqCst));
    server.stop();

    // A server that closes after each answer without a word costs nobody a request.
    let forgetful = Scripted::start(|_, _| [ok("x"), vec![0]].concat());
    let server = Server::start(to(&[forgetful.url()], ""));
    let mut client = server.connect();
    for _ in 0..50 {
        assert_eq!(client.get("/up/").status, 200);
        assert_eq!(server.post("/up/", "text/plain", "x").status, 200);
    }
    server.stop();
}

#[test]
fn a_server_that_takes_too_long_is_not_waited_for() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let stalled =
        Scripted::start(|_, _| b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf".to_vec());
    let server = Server::start(site(&format!(
        "  upstreams:\n    silent: {{servers: [\"http://{}\"], response_timeout: 100ms}}\n    \
         stalled: {{servers: [\"{}\"], idle_timeout: 100ms}}\n  \
         routes: [{{path: /silent, upstream: silent}}, {{path: /stalled, upstream: stalled}}]\n",
        silent.local_addr().unwrap(),
        stalled.url()
    )));
    assert_eq!(server.get("/silent").status, 504);
    server.logged(&["an upstream did not answer: it did not begin to answer within 0.1 s"]);
    let half = server.get("/stalled");
    assert_eq!(
        (half.status, half.complete, half.text()),
        (200, false, "half".to_owned())
    );
    server.logged(&["a response of an upstream broke off", "idle_timeout"]);
    server.stop();
}

#[test]
fn a_broken_response_is_no_response() {
    for answer in [
        &b"garbage\r\n\r\n"[..],
        b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n\0",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab\0",
        b"HTTP/1.1 200 OK\r\nBad name: 1\r\n\r\n\0",
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n\0",
        b"HTTP/1.1 200 OK\r\n\0",
    ] {
        let upstream = Scripted::start(move |_, _| answer.to_vec());
        let server = Server::start(to(&[upstream.url()], ""));
        let response = server.get("/up/");
        assert_eq!(
            response.status,
            502,
            "{:?}",
            String::from_utf8_lossy(answer)
        );
        server.stop();
    }
    // A head without an end.
    let upstream = Scripted::start(|_, _| {
        let mut head = b"HTTP/1.1 200 OK\r\n".to_vec();
        for field in 0..9000 {
            head.extend_from_slice(format!("X-{field}: {field}\r\n").as_bytes());
        }
        head
    });
    let server = Server::start(to(&[upstream.url()], ""));
    assert_eq!(server.get("/up/").status, 502);
    server.stop();
}

#[test]
fn files_that_a_server_elsewhere_names_are_not_sent() {
    let upstream = Scripted::start(|_, _| {
        b"HTTP/1.1 200 OK\r\nX-Sendfile: /etc/passwd\r\nX-Accel-Redirect: /etc/passwd\r\n\
          Alt-Svc: h3=\":9\"\r\nContent-Length: 4\r\n\r\nbody"
            .to_vec()
    });
    let server = Server::start(to(&[upstream.url()], "").config(&format!(
        "version: '3'\nserver:\n  command: php {}\nhttp:\n  address: 127.0.0.1:0\n  \
         pool: {{num_workers: 1}}\n  middleware: [sendfile]\n  sendfile: {{roots: [/etc]}}\n  \
         upstreams: {{up: {{servers: [\"{}\"]}}}}\n  routes: [{{path: /up, upstream: up}}]\n",
        Site::fixture("app.php").display(),
        upstream.url()
    )));
    let response = server.get("/up");
    assert_eq!(response.text(), "body");
    for name in ["x-sendfile", "x-accel-redirect", "alt-svc"] {
        assert_eq!(response.header(name), None);
    }
    server.stop();
}

#[test]
fn a_websocket_goes_through_until_the_server_stops() {
    let upstream = Scripted::start(|_, request| {
        assert!(request.contains("upgrade: websocket\r\n"), "{request}");
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
          Sec-WebSocket-Accept: x\r\n\r\nhello"
            .to_vec()
    });
    let server = Server::start(to(&[upstream.url()], ""));
    let mut client = server.connect();
    client.request(
        "GET",
        "/up/socket",
        "Connection: keep-alive, Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: x\r\n",
    );
    let (status, fields) = client.head();
    assert_eq!(status, 101);
    let is = |name: &str, value: &str| {
        let mut fields = fields.iter();
        fields.any(|it| it.0.eq_ignore_ascii_case(name) && it.1.eq_ignore_ascii_case(value))
    };
    assert!(
        is("upgrade", "websocket") && is("sec-websocket-accept", "x"),
        "{fields:?}"
    );
    assert_eq!(client.take(5), b"hello");
    // The script takes a whole head for one more request.
    client.send("GET /echoed HTTP/1.1\r\nupgrade: websocket\r\n\r\n");
    assert!(client.take(12).starts_with(b"HTTP/1.1 101"));
    assert!(upstream.last().starts_with("GET /echoed"));
    server.stop();
    _ = client.rest();
}

#[test]
fn trailers_come_after_the_body() {
    let upstream = Scripted::start(|_, _| {
        b"HTTP/1.1 200 OK\r\nTrailer: X-Sum\r\nTransfer-Encoding: chunked\r\n\r\n\
          4\r\nbody\r\n0\r\nX-Sum: 42\r\nX-Other: 1\r\n\r\n"
            .to_vec()
    });
    let server = Server::start(to(&[upstream.url()], ""));
    let mut client = server.connect();
    client.request("GET", "/up/", "Connection: close\r\n");
    let text = String::from_utf8(client.rest()).unwrap();
    assert!(
        text.ends_with("\r\n4\r\nbody\r\n0\r\nX-Sum: 42\r\n\r\n")
            || text.ends_with("0\r\nx-sum: 42\r\n\r\n"),
        "{text}"
    );
    server.stop();
}

#[test]
fn health_checks_decide_who_gets_requests() {
    let healthy = Arc::new(AtomicBool::new(true));
    let state = healthy.clone();
    let first = Scripted::start(move |_, request| {
        if request.starts_with("GET /ready ") && !state.load(SeqCst) {
            return b"HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n".to_vec();
        }
        ok("first")
    });
    let server = Server::start(to(
        &[first.url()],
        ", health: {path: /ready, interval: 100ms}",
    ));
    assert_eq!(server.get("/up/").text(), "first");
    healthy.store(false, SeqCst);
    server.logged(&["fails its health checks and gets no requests: its status is 500"]);
    assert_eq!(server.get("/up/").status, 503);
    healthy.store(true, SeqCst);
    server.logged(&["passes its health check again"]);
    wait_for("an answer", || {
        (server.get("/up/").status == 200).then_some(())
    });
    server.stop();
}

#[test]
fn a_client_that_leaves_ends_the_request() {
    // It keeps its answer for itself until the test is over.
    let (over, wait) = mpsc::channel::<()>();
    let wait = Mutex::new(wait);
    let upstream = Scripted::start(move |_, _| {
        _ = wait.lock().expect("no thread panics").recv();
        ok("late")
    });
    let server = Server::start(to(&[upstream.url()], ""));
    let mut client = server.connect();
    client.request("GET", "/up/", "");
    wait_for("the request", || (upstream.count() == 1).then_some(()));
    client.leave();
    server.logged(&["http log", "499"]);
    drop(over);
    server.stop();
}

/// A stream of HTTP/2 goes on with its body while the response comes.
#[test]
fn both_bodies_go_on_at_once_over_http2() {
    let upstream = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = upstream.local_addr().unwrap();
    let echo = thread::spawn(move || {
        let (mut stream, _) = upstream.accept().unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut read = Vec::new();
        let mut buffer = [0; 1024];
        let mut wait = |until: &str, stream: &mut TcpStream| {
            while !String::from_utf8_lossy(&read).contains(until) {
                let len = stream.read(&mut buffer).unwrap();
                assert!(len > 0, "{}", String::from_utf8_lossy(&read));
                read.extend_from_slice(&buffer[..len]);
            }
        };
        wait("ping", &mut stream);
        stream
            .write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\npong\r\n")
            .unwrap();
        wait("more", &mut stream);
        stream.write_all(b"4\r\nlast\r\n0\r\n\r\n").unwrap();
    });
    let server = Server::start(to(&[format!("http://{address}")], ""));
    let mut client = server.connect();
    client.send(PREFACE);
    client.send(frame(4, 0, 0, b""));
    // :method POST, :scheme http, :path /up/, :authority a
    let mut head = vec![0x83, 0x86, 0x04, 4];
    head.extend_from_slice(b"/up/");
    head.extend_from_slice(&[0x01, 1, b'a']);
    client.send(frame(1, 4, 1, &head));
    client.send(frame(0, 0, 1, b"ping"));
    let mut seen = Vec::new();
    while !seen.windows(4).any(|it| it == b"pong") {
        seen.extend(client.take(1));
    }
    client.send(frame(0, 1, 1, b"more"));
    while !seen.windows(4).any(|it| it == b"last") {
        seen.extend(client.take(1));
    }
    echo.join().unwrap();
    server.stop();
}

#[test]
fn a_reload_changes_where_requests_go() {
    let (first, second) = (
        Scripted::start(|_, _| ok("first")),
        Scripted::start(|_, _| ok("second")),
    );
    let server = Server::start(to(&[first.url()], ""));
    assert_eq!(server.get("/up/").text(), "first");
    server.site().change_config(&first.url(), &second.url());
    server.signal(Signal::HUP);
    server.logged(&["the configuration is applied"]);
    assert_eq!(server.get("/up/").text(), "second");
    server.stop();
}

#[test]
fn what_contradicts_an_upstream_is_refused() {
    for (keys, told) in [
        (
            "  routes: [{path: /a, upstream: node}]\n",
            "there is no such upstream",
        ),
        (
            "  upstreams: {node: {servers: [\"http://a\"]}}\n  routes: [{path: /a, upstream: nod}]\n",
            "did you mean `node`?",
        ),
        (
            "  upstreams: {node: {servers: [\"http://a\"]}}\n  routes: [{path: /a, upstream: node, pool: default}]\n",
            "no worker gets a request of this route",
        ),
        (
            "  upstreams: {node: {servers: [\"http://a/b\"]}}\n  routes: [{path: /a, upstream: node}]\n",
            "a server has no path",
        ),
        (
            "  upstreams: {node: {}}\n  routes: [{path: /a, upstream: node}]\n",
            "`http.upstreams.node.servers` is missing",
        ),
    ] {
        Server::run(&site(keys), &["check"]).assert_said_with(2, &[told]);
    }
    let unused = site("  upstreams: {node: {servers: [\"http://a\"]}}\n");
    Server::run(&unused, &["check"]).assert_said_with(0, &["to which no route leads"]);
}

#[test]
fn a_connection_is_like_any_other() {
    let upstream = Scripted::start(|_, _| ok("x"));
    let server = Server::start(to(&[upstream.url()], ""));
    let mut pipelined: Connection = server.connect();
    pipelined.send("GET /up/1 HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\nGET /up/2 HTTP/1.1\r\nHost: a\r\n\r\n");
    let texts: Vec<String> = (0..3).map(|_| pipelined.response().text()).collect();
    assert_eq!(texts, ["x", "Hello", "x"]);
    server.stop();
}

/// A client that reads nothing of many responses keeps no other one waiting.
#[test]
fn a_client_that_reads_nothing_stops_no_other_one() {
    let behind = Server::start(Site::new().config(&format!(
        "version: '3'\nserver:\n  command: php {}\nhttp:\n  address: 127.0.0.1:0\n  \
         http2: {{h2c: true, max_concurrent_streams: 20}}\n  pool: {{num_workers: 2}}\n",
        Site::fixture("app.php").display()
    )));
    for scheme in ["h2c", "http"] {
        let server = Server::start(to(&[format!("{scheme}://{}", behind.address())], ""));
        let mut silent: Vec<_> = (0..100).map(|_| server.connect()).collect();
        for client in &mut silent {
            client.request("GET", "/up/large?kb=8000", "");
        }
        for client in &mut silent {
            assert_eq!(client.head().0, 200);
        }
        assert_eq!(server.get("/up/").text(), "Hello", "{scheme}");
        drop(silent);
        server.stop();
    }
    behind.stop();
}
