//! Clients that are slow, idle or send a lot: the others are served meanwhile, and the server's
//! memory stays small.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use pronghorn_e2e::uploads::{GROWTH, send_form, send_raw};
use pronghorn_testkit::{Connection, PATIENCE, Server, Site, free_address, wait_for};
use rustix::process::{Resource, getrlimit, setrlimit};

use crate::first_minute::Disk;

/// `make soak` sends ten times as much.
const UPLOAD: usize = 200 << 20;
/// What an idle connection may cost, in KB.
const PER_CONNECTION: u64 = 4;

/// One worker, so that a client that holds it is noticed.
fn with_one_worker(fixture: &str, pool: &str) -> Server {
    let config = format!(
        "version: '3'\nserver:\n  command: php {}\nhttp:\n  address: 127.0.0.1:0\n  pool: {{num_workers: 1{pool}}}\n",
        Site::fixture(fixture).display()
    );
    Server::start(Site::new().config(&config))
}

#[test]
fn heads_and_bodies_that_do_not_come_hold_no_worker() {
    let server = with_one_worker("app.php", "");
    let mut slow: Vec<Connection> = Vec::new();
    for start in [
        "",
        "GET / HT",
        "GET / HTTP/1.1\r\nHost: test\r\nX-A",
        "POST /body HTTP/1.1\r\nHost: test\r\nContent-Length: 100000\r\n\r\nthe beginning",
        "POST /body HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel",
    ] {
        for _ in 0..50 {
            let mut connection = server.connect();
            connection.send(start);
            slow.push(connection);
        }
    }
    for _ in 0..20 {
        assert_eq!(server.get("/").text(), "Hello");
    }
    // A head has 15 s, and nobody who drips gets more: bodies have longer, so these are the
    // first 150.
    for connection in &mut slow[50..150] {
        assert_eq!(connection.response().status, 408);
        assert!(connection.is_closed());
    }
    for connection in &mut slow[..50] {
        assert!(
            connection.is_closed(),
            "nothing was said, nothing is answered"
        );
    }
    assert_eq!(server.get("/").text(), "Hello");
    drop(slow);
    server.stop();
}

#[test]
fn a_probe_is_answered_while_strangers_hold_half_requests() {
    let listeners = ["status", "metrics", "admin"].map(|name| (name, free_address()));
    let [(_, status), (_, metrics), (_, admin)] = listeners;
    let config = format!(
        "version: '3'\nserver: {{command: 'php {}'}}\nhttp: {{address: 127.0.0.1:0, pool: {{num_workers: 1}}}}\n\
         status: {{address: '{status}'}}\nmetrics: {{address: '{metrics}'}}\nadmin: {{listen: '{admin}'}}\n",
        Site::fixture("app.php").display()
    );
    let server = Server::start(Site::new().config(&config));
    for (name, address) in listeners {
        let path = match name {
            "status" => "/health?plugin=http",
            "metrics" => "/metrics",
            _ => "/health",
        };
        let post = format!("POST {path} HTTP/1.1\r\nHost: a\r\n");
        for (kind, start, is_answered) in [
            ("nothing", String::new(), false),
            ("a head that does not end", format!("{post}X-A"), false),
            ("a body", format!("{post}Content-Length: 9\r\n\r\n"), true),
            (
                "a long body",
                format!("{post}Content-Length: 999999\r\n\r\n"),
                true,
            ),
            (
                "chunks",
                format!("{post}Transfer-Encoding: chunked\r\n\r\n5\r\nhel"),
                true,
            ),
            (
                "a body that is asked for",
                format!("{post}Content-Length: 9\r\nExpect: 100-continue\r\n\r\n"),
                true,
            ),
            (
                "what is refused",
                "GET / HTTP/1.1\r\n\r\nmore".to_owned(),
                true,
            ),
        ] {
            // More than each of them has room for, at any limit of open files.
            let mut strangers = Vec::new();
            for number in 0..300 {
                let mut stranger = TcpStream::connect(address).unwrap();
                stranger.set_read_timeout(Some(PATIENCE)).unwrap();
                stranger.write_all(start.as_bytes()).unwrap();
                let answered = !is_answered || stranger.read(&mut [0; 100]).is_ok_and(|n| n > 0);
                assert!(answered, "{name}, {kind}: no answer to stranger {number}");
                strangers.push(stranger);
            }
            let mut probe = Connection::open(address);
            probe.request("GET", path, "");
            assert_eq!(probe.response().status, 200, "{name}, {kind}");
        }
    }
    server.stop();
}

#[test]
fn a_reply_that_is_not_read_holds_no_worker_once_it_is_finished() {
    let server = with_one_worker("app.php", "");
    let before = server.peak_memory();
    let mut readers: Vec<Connection> = (0..10).map(|_| server.connect()).collect();
    for reader in &mut readers {
        reader.request("GET", "/large?kb=20000", "");
        // The head is there: the worker has begun, and soon it is done, whatever the client does.
        assert_eq!(reader.head().0, 200);
    }
    assert_eq!(server.get("/").text(), "Hello");
    let grown = server.peak_memory().saturating_sub(before);
    assert!(grown < 48 << 10, "200 MB wait, and {grown} KB are held");
    for mut reader in readers {
        assert_eq!(reader.take(20_000 << 10).len(), 20_000 << 10);
    }
    server.stop();
}

#[test]
fn a_stream_that_is_not_read_stops_its_worker_and_not_the_others() {
    let config = format!(
        "version: '3'\nserver:\n  command: php {}\nhttp:\n  address: 127.0.0.1:0\n  pool: {{num_workers: 2}}\n",
        Site::fixture("app.php").display()
    );
    let server = Server::start(Site::new().config(&config));
    let before = server.peak_memory();
    let mut reader = server.connect();
    reader.request("GET", "/stream?pieces=5000000", "");
    assert_eq!(reader.head().0, 200);
    for _ in 0..20 {
        assert_eq!(server.get("/").text(), "Hello");
    }
    let grown = server.peak_memory().saturating_sub(before);
    assert!(grown < 16 << 10, "{grown} KB are held");
    // It leaves, and the worker is free again.
    drop(reader);
    let mut busy = server.connect();
    busy.request("GET", "/gone", "");
    server.logged(&["waiting for the client to leave"]);
    assert_eq!(server.get("/").text(), "Hello", "by the other one");
    busy.leave();
    server.logged(&["the client left"]);
    server.stop();
}

#[test]
fn idle_connections_cost_little() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit).expect("the soft limit may be raised to the hard one");
    let server = with_one_worker("app.php", "");
    let most = limit.maximum.unwrap_or(u64::MAX).saturating_sub(1000) / 2;
    let count = usize::try_from(most.min(5000)).expect("a number of connections");
    let open = |count: usize| -> Vec<Connection> {
        (0..count)
            .map(|_| {
                let mut connection = server.connect();
                assert_eq!(connection.get("/").text(), "Hello");
                connection
            })
            .collect()
    };
    let few = open(100);
    // What the newest records take in the server is no connection's.
    let mut talker = server.connect();
    for _ in 0..3000 {
        talker.get("/");
    }
    let before = server.resident_memory();
    let many = open(count);
    let grown = server.resident_memory().saturating_sub(before);
    let (count, per) = (count as u64, grown / count as u64);
    assert!(per < PER_CONNECTION, "{count} connections hold {grown} KB");
    assert_eq!(server.get("/").text(), "Hello");
    let full = server.resident_memory();
    drop((few, many));
    wait_for("most of that memory to be given back", || {
        (server.resident_memory() < full - grown / 5 * 4).then_some(())
    });
    server.stop();
}

#[test]
fn an_upload_larger_than_memory_passes_through_little() {
    for pool in ["", ", request_body: stream"] {
        let server = with_one_worker("bodies.php", pool);
        let before = server.resident_memory();
        send_raw(&server, UPLOAD);
        assert_eq!(server.get("/").text(), "Hello");
        if pool.is_empty() {
            send_form(&server, UPLOAD);
        }
        let grown = server.peak_memory() - before;
        assert!(grown < GROWTH, "{grown} KB were held{pool}");
        // What was uploaded goes with its call.
        wait_for("its files to be removed", || {
            let left = std::fs::read_dir(server.site().folder()).ok()?.flatten();
            let mut names = left.map(|entry| entry.file_name().to_string_lossy().into_owned());
            let of_a_body = |name: &String| name.contains("upload-") || name.contains("body-");
            (!names.any(|name| of_a_body(&name))).then_some(())
        });
        server.stop();
    }
}

#[test]
fn a_reply_that_finds_no_room_on_the_disk_waits_and_is_whole() {
    const REPLY: usize = 12 << 20;
    let site = Site::new();
    let Some(_disk) = Disk::sized(site.path("disk"), "16m") else {
        return;
    };
    let config = format!(
        "version: '3'\nserver: {{command: php {}}}\nhttp: {{address: 127.0.0.1:0, spool_dir: disk}}\n",
        Site::fixture("app.php").display()
    );
    let server = Server::start(site.config(&config));
    std::fs::write(server.site().path("disk/filler"), vec![0; 13 << 20]).expect("it has room");
    let mut slow = server.connect();
    slow.send("GET /large?kb=12288 HTTP/1.1\r\nHost: test\r\n\r\n");
    wait_for("the disk to be full", || {
        server
            .log()
            .contains("must wait for a slow client")
            .then_some(())
    });
    assert_eq!(slow.response().text().len(), REPLY);
    server.stop();
}

/// A worker is busy, and what waits for it is told to end: it does not wait on.
#[test]
fn clients_who_hold_too_much_are_closed_while_their_requests_wait() {
    let site = Site::new().file(
        "worker.php",
        &Site::sdk_worker("if ($request->path === '/sleep') { sleep(5); } return 'x';"),
    );
    let config = "version: '3'\nserver: {command: php worker.php}\nhttp:\n  address: 127.0.0.1:0\n  \
                  client_memory: 16MB\n  pool: {num_workers: 1}\n";
    let server = Server::start(site.config(config));
    let mut busy = server.connect();
    busy.send("GET /sleep HTTP/1.1\r\nHost: test\r\n\r\n");
    let field = "a".repeat(3_000_000);
    let body =
        format!("--b\r\nContent-Disposition: form-data; name=\"f\"\r\n\r\n{field}\r\n--b--\r\n");
    let head = format!(
        "POST / HTTP/1.1\r\nHost: test\r\nContent-Type: multipart/form-data; boundary=b\r\n\
         Content-Length: {}\r\n\r\n",
        body.len()
    );
    let mut waiting: Vec<Connection> = Vec::new();
    for _ in 0..12 {
        let mut connection = server.connect();
        connection.send(&head);
        connection.send(&body);
        waiting.push(connection);
    }
    wait_for("connections to be closed", || {
        server
            .log()
            .contains("clients hold more memory")
            .then_some(())
    });
    assert!(waiting[0].is_closed(), "while the worker sleeps");
    server.stop();
}

#[test]
fn bodies_that_do_not_come_to_an_end_leave_the_disk_to_others() {
    const GREEDY: usize = 5 << 20;
    let site = Site::new();
    // Half of it is for all files, three quarters of that for those of clients: 6 MB.
    let Some(_disk) = Disk::sized(site.path("disk"), "16m") else {
        return;
    };
    let config = format!(
        "version: '3'\nserver: {{command: php {}}}\nhttp: {{address: 127.0.0.1:0, spool_dir: disk}}\n",
        Site::fixture("bodies.php").display()
    );
    let server = Server::start(site.config(&config));
    let mut greedy = server.connect();
    greedy.send("POST /whole HTTP/1.1\r\nHost: test\r\nContent-Length: 99999999\r\n\r\n");
    greedy.send(vec![b'x'; GREEDY]);
    wait_for("the body in its file", || {
        let files = std::fs::read_dir(server.site().path("disk"))
            .ok()?
            .flatten();
        let bytes: u64 = files
            .filter_map(|file| Some(file.metadata().ok()?.len()))
            .sum();
        (bytes + (1 << 19) > GREEDY as u64).then_some(())
    });
    let mut other = server.connect();
    for _ in 0..3 {
        other.send("POST /whole HTTP/1.1\r\nHost: test\r\nContent-Length: 4000000\r\n\r\n");
        other.send(vec![b'y'; 4_000_000]);
        let response = other.response();
        assert_eq!(response.status, 200, "{}", response.text());
        assert!(response.text().starts_with("4000000 "));
    }
    assert!(greedy.is_closed(), "the client that held the most");
    // Alone it gets an answer.
    let mut alone = server.connect();
    alone.send("POST /whole HTTP/1.1\r\nHost: test\r\nContent-Length: 7000000\r\n\r\n");
    alone.send(vec![b'z'; 7_000_000]);
    assert_eq!(alone.response().status, 503);
    let log = server.stop().stderr;
    assert!(log.contains("these hold the most"), "{log}");
}
