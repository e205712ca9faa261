//! HTTP/3: requests and replies, rules of the protocol, upgrades.

use std::time::Duration;

use pronghorn_testkit::{Server, Site, wait_for};
use rustix::process::Signal;
use serde_json::Value;

use crate::http3_client::{Client, frame, headers, varint};
use crate::secure::{get, site as secure_site};

fn site() -> Site {
    secure_site("app.php", "", "  http3: true\n")
}

#[test]
fn requests_are_answered_as_over_other_protocols() {
    let server = Server::start(site());
    let said = get(&server, "/", &["--http2", "--include"]);
    let port = crate::secure::port(&server);
    assert!(
        said.contains(&format!("alt-svc: h3=\":{port}\"; ma=86400")),
        "{said}"
    );
    let client = Client::new(&server);
    let shown = client.get("/show?x=1");
    assert_eq!((shown.status, shown.reset), (200, None));
    assert_eq!(shown.field("alt-svc"), None);
    assert!(shown.field("date").is_some(), "{shown:?}");
    let shown: Value = serde_json::from_slice(&shown.body).unwrap();
    assert_eq!(shown["protocol"], "HTTP/3.0");
    assert_eq!(shown["uri"], format!("https://localhost:{port}/show?x=1"));
    assert_eq!(shown["remote"], "127.0.0.1");
    // In pieces, as browsers send it.
    let head = client.head("GET", "/show", &[("cookie", "a=1"), ("cookie", "b=2")]);
    let shown = client.open(&head, true).reply();
    let shown: Value = serde_json::from_slice(&shown.body).unwrap();
    assert_eq!(shown["cookies"], serde_json::json!({"a": "1", "b": "2"}));
    assert_eq!(
        client
            .send("HEAD", "/", b"")
            .reply()
            .field("content-length"),
        Some("5")
    );
    assert_eq!(client.get("/status?code=204").status, 204);
    let hints = client.get("/hints");
    assert_eq!(
        (hints.informed.as_slice(), hints.text().as_str()),
        (&[103][..], "after the hints")
    );
    let stream = client.get("/stream?pieces=20&size=20000");
    assert_eq!(
        stream.body.len(),
        client.get("/stream?pieces=20&size=20000").body.len()
    );
    assert!(stream.body.len() >= 400_000, "{}", stream.body.len());
    let large = client.get("/large?kb=4000");
    let lines = large.text();
    assert!(
        lines
            .lines()
            .enumerate()
            .all(|(at, line)| line == format!("{at:015}"))
    );
    assert_eq!(lines.lines().count(), 256_000);
    assert_eq!(client.get("/breaks").reset, Some(0x102));
    server.stop();
}

#[test]
fn bodies_arrive_whole_however_they_are_cut() {
    let server = Server::start(site());
    let client = Client::new(&server);
    let body: Vec<u8> = (0..3_000_000_u32)
        .map(|at| at.to_le_bytes()[at as usize % 3])
        .collect();
    let told = client.send("POST", "/body", &body).reply().text();
    let mut exchange = client.open(&client.head("POST", "/body", &[]), false);
    for piece in body.chunks(70_001) {
        // With frames of a type that nobody knows between them.
        exchange.more(&[frame(0x21, b"grease"), frame(0, piece), frame(0, b"")].concat());
    }
    exchange.more(&headers(&[("x-sum", "1")]));
    exchange.ends();
    assert_eq!(exchange.reply().text(), told);
    assert!(told.starts_with("3000000 "), "{told}");
    // With a length that is said before, and a client that waits to be asked.
    let more = [("content-length", "4"), ("expect", "100-continue")];
    let mut exchange = client.open(&client.head("POST", "/body", &more), false);
    let asked = exchange.read(3);
    assert_eq!(asked.informed, [100]);
    exchange.more(&frame(0, b"four"));
    exchange.ends();
    assert!(exchange.reply().text().starts_with("4 "));
    server.stop();
}

#[test]
fn many_requests_of_one_connection_are_answered_at_a_time() {
    let server = Server::start(site());
    let client = Client::new(&server);
    let exchanges: Vec<_> = (0..100)
        .map(|at| client.send("POST", "/body", format!("{at}").as_bytes()))
        .collect();
    for (at, exchange) in exchanges.into_iter().enumerate() {
        let length = format!("{} ", at.to_string().len());
        assert!(exchange.reply().text().starts_with(&length));
    }
    // A client that has another address all of a sudden.
    client.moves();
    assert_eq!(client.get("/").text(), "Hello");
    server.stop();
}

#[test]
fn who_comes_back_may_ask_with_the_first_packets_and_change_nothing() {
    let server = Server::start(site());
    let client = Client::new(&server);
    let shown: Value = serde_json::from_slice(&client.get("/show").body).unwrap();
    assert_eq!(shown["headers"].get("early-data"), None);
    // The handshake may end before the server looks at the request, and then it is as any other.
    wait_for("a request before the end of the handshake", || {
        assert_eq!(client.get("/").status, 200); // its ticket is for the next one
        let early = client.again("GET");
        assert_eq!(early.status, 200);
        let shown: Value = serde_json::from_slice(&early.body).unwrap();
        let told = shown["headers"].get("early-data")?;
        assert_eq!(*told, serde_json::json!(["1"]));
        Some(())
    });
    wait_for("the refusal of one that changes something", || {
        (client.again("POST").status == 425).then_some(())
    });
    server.stop();
}

const SETTINGS: &[u8] = &[0, 4, 0];

/// Bytes on streams in one direction, and the code that they end the connection with.
fn rules_of_connections() -> Vec<(&'static str, Vec<Vec<u8>>, u64)> {
    let control = |bytes: &[u8]| vec![[SETTINGS, bytes].concat()];
    let two = |bytes: &[u8]| vec![SETTINGS.to_vec(), bytes.to_vec()];
    vec![
        (
            "no settings",
            vec![[&[0][..], &frame(0xd, &[0])].concat()],
            0x10a,
        ),
        ("settings twice", control(&frame(4, b"")), 0x105),
        (
            "a body on the control stream",
            control(&frame(0, b"x")),
            0x105,
        ),
        (
            "fields on the control stream",
            control(&frame(1, b"x")),
            0x105,
        ),
        ("a promise", control(&frame(5, b"x")), 0x105),
        ("a ping of HTTP/2", control(&frame(6, b"12345678")), 0x105),
        ("a window of HTTP/2", control(&frame(8, b"1234")), 0x105),
        (
            "a setting twice",
            vec![[&[0][..], &frame(4, &[6, 1, 6, 1])].concat()],
            0x109,
        ),
        (
            "a setting of HTTP/2",
            vec![[&[0][..], &frame(4, &[3, 1])].concat()],
            0x109,
        ),
        (
            "half a setting",
            vec![[&[0][..], &frame(4, &[6])].concat()],
            0x106,
        ),
        (
            "long settings",
            vec![[&[0][..], &frame(4, &[0x21; 4000])[..]].concat()],
            0x107,
        ),
        (
            "pushes that grow fewer",
            control(&[frame(13, &[9]), frame(13, &[8])].concat()),
            0x108,
        ),
        (
            "a goodbye that grows",
            control(&[frame(7, &[1]), frame(7, &[2])].concat()),
            0x108,
        ),
        ("a push that is called off", control(&frame(3, &[1])), 0x108),
        (
            "a number with something behind it",
            control(&frame(13, &[1, 1])),
            0x106,
        ),
        (
            "frames without end",
            control(&frame(0x21, b"").repeat(1200)),
            0x107,
        ),
        ("two control streams", two(SETTINGS), 0x103),
        ("a push of a client", two(&[1]), 0x103),
        (
            "two encoders",
            vec![SETTINGS.to_vec(), vec![2], vec![2]],
            0x103,
        ),
        (
            "an entry of a table that is not there",
            two(&[2, 0xc0, 1, b'x']),
            0x201,
        ),
        ("a larger table", two(&[2, 0x3f, 0x01]), 0x201),
        ("an acknowledgement of nothing", two(&[3, 0x80]), 0x202),
    ]
}

/// Bytes of a request's stream, and the code that they end the connection with.
fn rules_of_streams(head: &[u8]) -> Vec<(&'static str, Vec<u8>, u64)> {
    let head = |more: &[u8]| [head, more].concat();
    vec![
        ("a body before its head", frame(0, b"x"), 0x105),
        ("settings", frame(4, b""), 0x105),
        ("a frame of HTTP/2", frame(2, b"12345"), 0x105),
        ("a promise", head(&frame(5, b"x")), 0x105),
        (
            "a body behind trailers",
            head(&[headers(&[("a", "b")]), frame(0, b"x")].concat()),
            0x105,
        ),
        (
            "three heads",
            head(&headers(&[("a", "b")]).repeat(2)),
            0x105,
        ),
        ("half a frame", head(&[0, 5, 1]), 0x106),
        ("half a number", head(&[0xc0, 0]), 0x106),
        (
            "unknown frames without end",
            head(&frame(0x21, b"").repeat(100)),
            0x107,
        ),
        ("no QPACK", frame(1, &[0, 0, 0x27]), 0x200),
        ("a table that is not there", frame(1, &[1, 0, 0x80]), 0x200),
        (
            "an entry that is not there",
            frame(1, &[0, 0, 0xff, 0x7f]),
            0x200,
        ),
        ("an empty block", frame(1, b""), 0x200),
        (
            "no QPACK in trailers",
            head(&frame(1, &[0, 0, 0x10])),
            0x200,
        ),
    ]
}

#[test]
fn who_breaks_a_rule_of_the_connection_is_told_which() {
    let server = Server::start(site());
    for (what, streams, code) in rules_of_connections() {
        let client = Client::silent(&server);
        let _streams: Vec<_> = streams.iter().map(|bytes| client.uni(bytes)).collect();
        assert_eq!(client.closed(), code, "{what}");
    }
    let client = Client::silent(&server);
    let mut control = client.uni(SETTINGS);
    control.finish().unwrap();
    assert_eq!(client.closed(), 0x104, "the end of the control stream");
    let head = Client::new(&server).head("POST", "/body", &[]);
    for (what, bytes, code) in rules_of_streams(&head) {
        let client = Client::new(&server);
        let _exchange = client.open(&bytes, true);
        assert_eq!(client.closed(), code, "{what}");
    }
    // What a client may do, and others do not know.
    let client = Client::silent(&server);
    let _streams = [
        client.uni(&[SETTINGS, &frame(0x21, b"grease"), &frame(0xf0700, b"\0u=1")].concat()),
        client.uni(&[2, 0x20]),
        client.uni(&[3, 0x41, 0x7f, 0x01]),
        client.uni(&[varint(0x21), b"what nobody knows".to_vec()].concat()),
    ];
    let head = client.head("GET", "/", &[("priority", "u=1, i")]);
    let bytes = [frame(0x21, b"grease"), head, frame(0x21, b"")].concat();
    assert_eq!(client.open(&bytes, true).reply().text(), "Hello");
    assert!(client.is_open());
    server.stop();
}

#[test]
fn a_malformed_request_ends_its_stream_alone() {
    let server = Server::start(site());
    let client = Client::new(&server);
    let full = [
        (":method", "GET"),
        (":scheme", "https"),
        (":authority", "localhost"),
        (":path", "/"),
    ];
    let with = |more: &[(&'static str, &'static str)]| [&full[..], more].concat();
    let without = |name: &str| {
        let kept = full.iter().filter(|(is, _)| *is != name);
        kept.copied().collect::<Vec<_>>()
    };
    let mut cases = vec![
        ("no method", headers(&without(":method"))),
        ("no scheme", headers(&without(":scheme"))),
        ("no path", headers(&without(":path"))),
        (
            "an empty path",
            headers(&[&without(":path")[..], &[(":path", "")]].concat()),
        ),
        ("a path twice", headers(&with(&[(":path", "/")]))),
        ("a status", headers(&with(&[(":status", "200")]))),
        ("a protocol", headers(&with(&[(":protocol", "websocket")]))),
        ("a capital", headers(&with(&[("X-a", "b")]))),
        ("a name with a blank", headers(&with(&[("x a", "b")]))),
        ("an empty name", headers(&with(&[("", "b")]))),
        ("a line end", headers(&with(&[("x-a", "b\r\nc: d")]))),
        ("a NUL", headers(&with(&[("x-a", "b\0")]))),
        ("a connection", headers(&with(&[("connection", "close")]))),
        (
            "an encoding of transfer",
            headers(&with(&[("transfer-encoding", "chunked")])),
        ),
        ("te", headers(&with(&[("te", "gzip")]))),
        (
            "a colon too late",
            headers(&[&[("x-a", "b")][..], &full].concat()),
        ),
        (
            "a length without a body",
            headers(&with(&[("content-length", "3")])),
        ),
    ];
    let post = |length: &str, rest: &[u8]| {
        [
            &client.head("POST", "/body", &[("content-length", length)]),
            rest,
        ]
        .concat()
    };
    cases.push(("a body that is too short", post("3", &frame(0, b"ab"))));
    cases.push(("a body that is too long", post("1", &frame(0, b"ab"))));
    cases.push(("a body without a length", post("0", &frame(0, b"ab"))));
    let trailers = [frame(0, b"a"), headers(&[(":path", "/")])].concat();
    cases.push(("a path in trailers", post("1", &trailers)));
    for (what, bytes) in cases {
        let reply = client.open(&bytes, true).reply();
        let ended = reply.reset == Some(0x10e) && reply.status == 0;
        // Somebody had begun to read the body.
        assert!(ended || reply.status == 400, "{what}: {reply:?}");
        assert!(client.is_open(), "{what}");
    }
    assert_eq!(client.open(b"", true).reply().reset, Some(0x10d));
    assert_eq!(client.get("/").text(), "Hello");
    server.stop();
}

#[test]
fn heads_have_limits() {
    let server = Server::start(site());
    let client = Client::new(&server);
    let long = "x".repeat(70_000);
    let fields = vec![("x-a", "b"); 200];
    let crumbs = vec![("cookie", "a=b"); 300];
    for head in [
        client.head("GET", "/", &[("x-a", &long)]),
        client.head("GET", "/", &fields),
        client.head("GET", "/", &crumbs),
        // One that would be long, and whose rest does not come.
        [varint(1), varint(1 << 40)].concat(),
    ] {
        assert_eq!(client.open(&head, false).reply().status, 431);
    }
    assert!(client.is_open());
    server.stop();
}

#[test]
fn who_leaves_is_noticed_and_who_is_too_fast_is_refused() {
    let server = Server::start(site());
    let client = Client::new(&server);
    // Rapid reset (CVE-2023-44487).
    for _ in 0..2000 {
        let mut exchange = client.send("GET", "/stream?pieces=1000&size=1000", b"");
        _ = exchange.send.reset(0x10c_u32.into());
        _ = exchange.receive.stop(0x10c_u32.into());
    }
    wait_for("an answer", || {
        (client.get("/").status == 200).then_some(())
    });
    server.stop();
}

#[test]
fn a_stop_lets_requests_finish_and_says_goodbye() {
    let mut server = Server::start(site());
    let client = Client::new(&server);
    let mut exchange = client.open(&client.head("POST", "/body", &[]), false);
    exchange.more(&frame(0, b"half"));
    assert_eq!(client.get("/").text(), "Hello");
    server.signal(Signal::TERM);
    server.logged(&["stopping"]);
    exchange.more(&frame(0, b", and the rest"));
    exchange.ends();
    assert!(exchange.reply().text().starts_with("18 "));
    assert_eq!(client.closed(), 0x100);
    assert_eq!(server.wait().code, Some(0));
}

#[test]
fn an_upgrade_loses_no_connection_before_its_requests_are_answered() {
    let mut server = Server::start(site());
    for upgrades in 1..3 {
        let client = Client::new(&server);
        let mut exchange = client.open(&client.head("POST", "/body", &[]), false);
        exchange.more(&frame(0, b"half"));
        assert_eq!(client.get("/").text(), "Hello");
        server.ask_for_upgrade();
        wait_for("the new process", || {
            let took_over = server.log().matches("this process has taken over").count();
            (took_over == upgrades).then_some(())
        });
        // The packets of both go to the same socket.
        for _ in 0..20 {
            assert_eq!(Client::new(&server).get("/").text(), "Hello");
        }
        for _ in 0..20 {
            exchange.more(&frame(0, &[b'x'; 10_000]));
        }
        exchange.ends();
        assert!(exchange.reply().text().starts_with("200004 "));
        assert_eq!(client.closed(), 0x100);
        server.follow_upgrade();
    }
    server.stop();
}

#[test]
fn the_section_of_roadrunner_has_an_address_of_its_own() {
    let address = pronghorn_testkit::free_address();
    let more =
        format!("  http3: {{address: '{address}', cert: localhost.pem, key: localhost.key}}\n");
    let server = Server::start(secure_site("app.php", "", &more));
    let said = get(&server, "/", &["--include"]);
    assert!(
        said.contains(&format!("alt-svc: h3=\":{}\"", address.port())),
        "{said}"
    );
    let client = Client::at(&server, address.port());
    assert_eq!(client.get("/").text(), "Hello");
    server.stop();
    let ended = Server::run(
        &Site::new().config("version: '3'\nserver: {command: 'php app.php'}\nhttp: {address: '127.0.0.1:0', http3: true}\n"),
        &["check"],
    );
    ended.assert_said_with(2, &["`http.http3` has no certificate", "a section `ssl`"]);
}

#[test]
fn a_client_that_takes_nothing_holds_no_worker_and_little_memory() {
    let server = Server::start(site());
    let client = Client::with_window(&server, 4096);
    let _control = client.uni(SETTINGS);
    let before = server.resident_memory();
    let waiting: Vec<_> = (0..50)
        .map(|_| client.send("GET", "/large?kb=1000", b""))
        .collect();
    // Workers are free for others.
    assert_eq!(Client::new(&server).get("/").text(), "Hello");
    client.pause(Duration::from_millis(500));
    let grown = server.resident_memory().saturating_sub(before);
    assert!(grown < 20 << 20, "{grown}");
    drop(waiting);
    server.stop();
}

/// Connections of one client, until one of them is closed for all that they hold.
fn closed_for_memory(clients: usize, open: impl Fn(&Client)) {
    let server = Server::start(secure_site(
        "app.php",
        "",
        "  http3: true\n  client_memory: 16MB\n",
    ));
    let clients: Vec<_> = (0..clients)
        .map(|_| {
            let client = Client::new(&server);
            open(&client);
            client
        })
        .collect();
    wait_for("an end", || {
        let open = clients.iter().filter(|client| client.is_open()).count();
        (open < clients.len()).then_some(())
    });
    let closed = clients.iter().find(|client| !client.is_open());
    assert_eq!(closed.expect("there is one").closed(), 0x107);
    // Most of them hold too little to be of use.
    assert!(clients.iter().any(Client::is_open));
    assert_eq!(Client::new(&server).get("/").text(), "Hello");
    drop(clients);
    server.stop();
}

#[test]
fn half_requests_over_http3_count() {
    closed_for_memory(16, |client| {
        let half = [varint(1), varint(60_000), vec![0; 50_000]].concat();
        for _ in 0..40 {
            client.keep(client.open(&half, false).send);
        }
    });
}

#[test]
fn half_bodies_over_http3_count() {
    closed_for_memory(80, |client| {
        let mut exchange = client.open(&client.head("POST", "/body", &[]), false);
        exchange.more(&frame(0, &[b'x'; 1000]));
        client.keep(exchange.send);
    });
}

/// They are short, and yet each may keep packets that come out of order.
#[test]
fn short_half_bodies_over_http3_count() {
    closed_for_memory(16, |client| {
        for _ in 0..40 {
            let head = client.head("POST", "/body", &[("content-length", "5")]);
            client.keep(client.open(&head, false).send);
        }
    });
}
