//! gRPC: calls by RoadRunner's package and by ours, streams, health, reflection, bad input.

#![expect(
    clippy::unwrap_used,
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "its client is that of a test, and fails as one"
)]

use std::io::Write as _;
use std::net::SocketAddr;
use std::process::Command;
use std::time::{Duration, Instant};

use bytes::{BufMut, Bytes, BytesMut};
use pronghorn_testkit::{Certificates, Connection, Server, Site, free_address, wait_for};
use rustix::process::Signal;

use crate::grpc_client::{self, Client, Got, Talking};
use crate::http2::literal;
use crate::memory::{endless_block, limited};
use crate::secure::{PREFACE, frame};

const PROTO: &str = "syntax = 'proto3';\npackage test.v1;\nmessage Text { string text = 1; int32 count = 2; }\n\
     service Talk {\n rpc Say(Text) returns (Text);\n rpc Count(Text) returns (stream Text);\n \
     rpc Join(stream Text) returns (Text);\n rpc Chat(stream Text) returns (stream Text);\n \
     rpc Absent(Text) returns (Text);\n}\n";

/// A server of gRPC alone, and where it listens.
pub(crate) fn start(fixture: &str, more: &str) -> (Server, SocketAddr) {
    start_with(site(fixture, more))
}

pub(crate) fn site(fixture: &str, more: &str) -> (Site, SocketAddr) {
    let address = free_address();
    let worker = Site::fixture(fixture);
    let config = format!(
        "version: '3'\nrpc: {{listen: 'tcp://127.0.0.1:0'}}\nlogs: {{level: debug}}\n\
         server: {{command: php {}}}\n\
         grpc:\n  listen: 'tcp://{address}'\n  proto: ['*.proto']\n{more}",
        worker.display()
    );
    (
        Site::new().config(&config).file("talk.proto", PROTO),
        address,
    )
}

pub(crate) fn start_with((site, address): (Site, SocketAddr)) -> (Server, SocketAddr) {
    let server = Server::start_without_http(site);
    (server, address)
}

const POOL: &str = "  pool: {num_workers: 2}\n";
/// With workers for streams.
const STREAMS: &str = "  pool: {num_workers: 1}\n  stream_pool: {num_workers: 1}\n";

/// A message, as it stands in a body.
pub(crate) fn text(text: &str, count: u8) -> Bytes {
    let mut message = Vec::new();
    if !text.is_empty() {
        message.put_u8(10);
        let length = text.len();
        if length > 127 {
            message.put_u8(u8::try_from(length & 0x7f).unwrap() | 0x80);
            message.put_u8(u8::try_from(length >> 7).unwrap());
        } else {
            message.put_u8(u8::try_from(length).unwrap());
        }
        message.put_slice(text.as_bytes());
    }
    if count > 0 {
        message.put_slice(&[16, count]);
    }
    framed(&message)
}

fn framed(message: &[u8]) -> Bytes {
    grpc_client::framed(0, message)
}

pub(crate) fn connect(address: SocketAddr) -> Client {
    Client::connect(address, "test.example")
}

impl Client {
    pub(crate) fn call(&self, method: &str, fields: &[(&str, &str)], body: Bytes) -> Got {
        let mut talking = self.begin(&format!("/test.v1.Talk/{method}"), fields, false);
        _ = talking.sending.send_data(body, true); // the call may have been refused by now
        self.finish(talking)
    }

    pub(crate) fn say(&self, said: &str) -> Got {
        self.call("Say", &[], text(said, 0))
    }
}

#[test]
fn the_official_packages_shapes_pass_both_ways() {
    let (server, address) = start("grpc/foreign.php", POOL);
    let client = connect(address);
    let got = client.say("plain");
    assert_eq!(
        (got.status, got.code(), &got.body[..]),
        (200, "0", &text("plain", 0)[..])
    );
    assert_eq!(got.header("content-type"), Some("application/grpc"));
    assert!(got.header("content-length").is_none());

    let fields = [
        ("x-one", "2"),
        ("x-one", "1"),
        ("user-agent", "tests"),
        ("grpc-timeout", "9S"),
        ("x-some-bin", "q6ur"),
        ("x-text-bin", "aGk="),
    ];
    let got = client.call("Say", &fields, text("context", 0));
    let body = String::from_utf8_lossy(&got.body).into_owned();
    let at = body.find("{\"service\"").unwrap();
    let (_, context) = body.split_at(at);
    let begins = "{\"service\":\"test.v1.Talk\",\"method\":\"Say\",\"context\":{\":authority\":[\"test.example\"],\
                  \":binary\":[\"x-some-bin\"],\":peer.address\":[\"127.0.0.1:";
    assert!(context.starts_with(begins), "{context}");
    let ends = "\"],\"content-type\":[\"application/grpc\"],\"user-agent\":[\"tests\"],\"x-one\":[\"2\",\"1\"],\
                \"x-some-bin\":[\"q6ur\"],\"x-text-bin\":[\"hi\"]}}";
    assert!(context.ends_with(ends), "{context}");

    let got = client.say("flat");
    assert_eq!(
        (got.header("x-a"), got.header("x-b")),
        (Some("1"), Some("2"))
    );
    let got = client.call("Say", &[("x-some-bin", "q6ur")], text("nested", 0));
    assert_eq!((got.header("x-a"), got.header("n")), (Some("1"), None));
    assert_eq!(got.trailer("x-behind"), Some("b"));
    assert_eq!(got.trailer("x-some-bin"), Some("q6ur"));

    let got = client.say("error");
    assert_eq!((got.code(), got.message()), ("5", "no"));
    assert!(got.header("error").is_none());
    let details = got.header("grpc-status-details-bin").unwrap();
    assert_eq!(details, "CAUSAm5vGgkKA3QveBICYWI");
    let got = client.say("error-nested");
    assert_eq!((got.code(), got.header("x-behind")), ("5", Some("b")));
    let got = client.say("large");
    assert_eq!((got.code(), got.body.len()), ("0", 3_000_000 + 10));
    assert_eq!(client.say("list").code(), "2");
    let got = client.say("thrown");
    assert_eq!((got.code(), got.message()), ("13", "boom"));
    let got = client.say("old");
    assert_eq!((got.code(), got.message()), ("7", "not you"));
    let got = client.call("Join", &[], text("a", 0));
    assert_eq!(got.code(), "12", "{got:?}");
    server.stop();
}

#[test]
fn what_is_in_the_way_has_the_status_that_fits() {
    let more = "  pool: {num_workers: 1, max_queue_size: 1, queue_timeout: 30s}\n";
    let (server, address) = start("grpc/foreign.php", more);
    let client = connect(address);
    // One is answered, one waits, one finds no place.
    let begin = |client: &Client| {
        let mut talking = client.begin("/test.v1.Talk/Say", &[], false);
        talking.sending.send_data(text("nap", 0), true).unwrap();
        talking
    };
    let calls: Vec<_> = (0..4).map(|_| begin(&client)).collect();
    let mut codes: Vec<_> = calls
        .into_iter()
        .map(|call| client.finish(call).code().to_owned())
        .collect();
    codes.sort();
    assert_eq!(codes, ["0", "0", "8", "8"]);

    let began = Instant::now();
    let got = client.call("Say", &[("grpc-timeout", "200m")], text("hang", 0));
    assert_eq!(got.code(), "4");
    assert!(
        began.elapsed() < Duration::from_secs(5),
        "{:?}",
        began.elapsed()
    );
    // The client's deadline ends the call in PHP as well.
    assert_eq!(client.say("after").code(), "0");

    let unknown = client.begin("/test.v1.Nobody/Say", &[], true);
    assert_eq!(client.finish(unknown).code(), "12");
    let got = client.call("Nothing", &[], text("a", 0));
    assert_eq!(
        (got.code(), got.message()),
        ("12", "unknown method Nothing for service test.v1.Talk")
    );
    server.stop();
}

/// As the table of the guide has it, with RoadRunner's texts; PHP is not asked.
#[test]
fn a_call_by_a_wrong_name_is_unimplemented() {
    let (server, address) = start("grpc/foreign.php", POOL);
    let client = connect(address);
    for (path, message) in [
        (
            "/test.v1.Talk/Nothing",
            "unknown method Nothing for service test.v1.Talk",
        ),
        // Case counts.
        (
            "/test.v1.Talk/say",
            "unknown method say for service test.v1.Talk",
        ),
        ("/test.v1.talk/Say", "unknown service test.v1.talk"),
        ("/Talk/Say", "unknown service Talk"),
        ("/test.v1.Talk/Say/x", "unknown service test.v1.Talk/Say"),
        (
            "/test.v1.Talk/",
            "malformed method name: \"/test.v1.Talk/\"",
        ),
        ("/Say", "malformed method name: \"/Say\""),
    ] {
        let mut talking = client.begin(path, &[], false);
        talking.sending.send_data(text("a", 0), true).unwrap();
        let got = client.finish(talking);
        let told = (got.status, got.code(), got.message());
        assert_eq!(told, (200, "12", message), "{path}");
    }
    assert_eq!(client.say("after").code(), "0");
    server.stop();
}

#[test]
fn our_package_answers_calls_with_metadata_and_details() {
    let (server, address) = start("grpc/ours.php", POOL);
    let client = connect(address);
    let got = client.call("Say", &[("x-a", "1"), ("x-b-bin", "q6ur")], text("hi", 1));
    assert_eq!(
        (got.code(), &got.body[..]),
        ("0", &text("hi!", 2)[..]),
        "{got:?}"
    );
    assert_eq!(
        (got.header("x-a"), got.trailer("back-x-a")),
        (Some("1"), Some("1"))
    );
    assert_eq!(got.header("x-b-bin"), Some("q6ur"));
    assert_eq!(got.trailer("back-x-b-bin"), Some("q6ur"));
    let got = client.call("Say", &[("x_tenant_id", "7")], text("hi", 1));
    assert_eq!(got.header("x_tenant_id"), Some("7"));
    let got = client.say("fail");
    assert_eq!((got.code(), got.message()), ("5", "no %E2%98%BA%0A"));
    assert!(got.header("grpc-status-details-bin").is_some());
    let got = client.say("throw");
    assert_eq!((got.code(), got.message()), ("13", "the method failed"));
    server.logged(&["a method threw: a secret"]);
    let got = client.say("die");
    assert_eq!(got.code(), "14", "{got:?}");
    let got = client.call("Absent", &[], text("a", 0));
    assert_eq!(got.code(), "12");
    let got = client.call("Say", &[], framed(b"\xff\xff"));
    assert_eq!(got.code(), "13");
    server.logged(&[
        "WARN",
        "a method of `grpc.proto` is not implemented: ",
        "/test.v1.Talk/Absent",
    ]);
    server.stop();
}

#[test]
fn nothing_of_a_call_stays_in_memory() {
    for transport in ["auto", "relay"] {
        let pool = format!("  pool: {{num_workers: 1, transport: {transport}}}\n");
        let (server, address) = start("grpc/ours.php", &pool);
        let client = connect(address);
        let memory = || -> u64 {
            let got = client.say("memory");
            let digits: Vec<_> = got.body.iter().filter(|b| b.is_ascii_digit()).collect();
            String::from_utf8(digits.into_iter().copied().collect())
                .unwrap()
                .parse()
                .unwrap()
        };
        for _ in 0..5 {
            memory();
        }
        let before = memory();
        for _ in 0..50 {
            assert_eq!(client.say("hi").code(), "0");
        }
        let after = memory();
        // One call's objects are above a kilobyte.
        assert!(after < before + 10_000, "{transport}: {before}, {after}");
        server.stop();
    }
}

#[test]
fn a_client_that_leaves_is_seen_in_php() {
    let (server, address) = start("grpc/ours.php", POOL);
    let client = connect(address);
    let mut talking = client.begin("/test.v1.Talk/Say", &[], false);
    talking.sending.send_data(text("sleep", 0), true).unwrap();
    wait_for("a worker that is busy", || {
        let ended = server.steer(&["workers"]);
        ended
            .stdout
            .contains("gRPC /test.v1.Talk/Say")
            .then_some(())
    });
    talking.sending.send_reset(h2::Reason::CANCEL);
    server.logged(&["the client was seen to leave"]);
    let got = client.call("Say", &[("grpc-timeout", "300m")], text("sleep", 0));
    assert_eq!(got.code(), "4");
    wait_for("the second one", || {
        let log = server.log();
        (log.matches("the client was seen to leave").count() == 2).then_some(())
    });
    server.stop();
}

#[test]
fn a_server_streams_messages_as_they_come() {
    let (server, address) = start("grpc/ours.php", POOL);
    let client = connect(address);
    let got = client.call("Count", &[], text("a", 3));
    let all = [text("a", 1), text("a", 2), text("a", 3)].concat();
    assert_eq!((got.code(), &got.body[..]), ("0", &all[..]));
    let got = client.call("Count", &[], text("fail", 5));
    assert_eq!((got.code(), got.message()), ("10", "enough"));
    assert_eq!(got.body, [text("fail", 1), text("fail", 2)].concat());
    let got = client.call("Count", &[], text("throw", 5));
    assert_eq!((got.code(), got.message()), ("13", "the method failed"));
    // Without an end, to a client that takes two and leaves.
    let mut talking = client.begin("/test.v1.Talk/Count", &[], false);
    talking.sending.send_data(text("endless", 0), true).unwrap();
    let mut body = client.head(talking.receiving);
    client.piece(&mut body);
    drop(body);
    drop(talking.sending);
    wait_for("the end of the count", || {
        let log = server.log();
        (log.matches("the count ended at").count() == 4).then_some(())
    });
    let got = client.call("Count", &[("grpc-timeout", "500m")], text("endless", 0));
    assert_eq!(got.code(), "4");
    server.stop();
}

#[test]
fn a_method_that_runs_out_of_memory_is_resource_exhausted() {
    let (server, address) = start("grpc/ours.php", POOL);
    let client = connect(address);
    let got = client.say("hungry");
    assert_eq!(
        (got.code(), got.message()),
        ("8", "the method ran out of memory")
    );
    let got = client.call("Count", &[], text("hungry", 5));
    assert_eq!(
        (got.code(), got.message()),
        ("8", "the method ran out of memory")
    );
    assert_eq!(got.body, [text("hungry", 1), text("hungry", 2)].concat());
    server.logged(&["Allowed memory size of"]);
    assert_eq!(
        client.say("a").body,
        text("a!", 1),
        "another worker takes its place"
    );
    server.stop();
}

#[test]
fn broken_binary_metadata_is_refused() {
    let (server, address) = start("grpc/ours.php", POOL);
    let client = connect(address);
    for value in ["!", "q6ur,!"] {
        // It is refused before its message.
        let talking = client.begin("/test.v1.Talk/Say", &[("x-a-bin", value)], true);
        let got = client.finish(talking);
        let message = "malformed binary metadata in header \"x-a-bin\"";
        assert_eq!((got.code(), got.message()), ("13", message));
    }
    assert_eq!(
        client
            .call("Say", &[("x-a-bin", "q6ur")], text("a", 0))
            .code(),
        "0"
    );
    server.stop();
}

/// One field in the table of HPACK stands for thousands of values, again and again.
#[test]
fn too_many_values_of_binary_metadata_are_refused() {
    let (server, address) = start("grpc/ours.php", POOL);
    let client = connect(address);
    let values = |count: usize| vec!["YQ"; count].join(",");
    let taken = client.call("Say", &[("x-a-bin", &values(1000))], text("a", 0));
    assert_eq!(taken.code(), "0");
    let talking = client.begin("/test.v1.Talk/Say", &[("x-a-bin", &values(1001))], true);
    let got = client.finish(talking);
    let message = "more than 1000 values of binary metadata";
    assert_eq!((got.code(), got.message()), ("8", message));
    server.stop();
}

#[test]
fn a_client_that_reads_nothing_holds_php_back() {
    let (server, address) = start("grpc/ours.php", POOL);
    let client = connect(address);
    let mut talking = client.begin("/test.v1.Talk/Count", &[], false);
    talking
        .sending
        .send_data(text(&"x".repeat(1000), 0), true)
        .unwrap();
    let mut body = client.head(talking.receiving);
    let first = client.piece(&mut body);
    assert!(!first.is_empty());
    let before = server.resident_memory();
    std::thread::sleep(Duration::from_millis(500)); // as long as the client reads nothing
    let grown = server.resident_memory().saturating_sub(before);
    assert!(grown < 16 << 10, "{grown} KB more");
    drop((body, talking.sending));
    server.logged(&["the count ended at"]);
    server.stop();
}

/// Ways to make the server hold a few megabytes, by each of many clients.
#[test]
fn messages_that_clients_make_the_server_hold_are_counted() {
    const REFLECTION: &str = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo";
    let zeros = {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(&vec![0; 4 << 20]).unwrap();
        grpc_client::framed(1, &encoder.finish().unwrap())
    };
    let half = {
        let mut half = BytesMut::from(&framed(&vec![0; 40 << 20])[..5]);
        half.extend_from_slice(&vec![0; 4 << 20]);
        half.freeze()
    };
    let gzip = [("grpc-encoding", "gzip")];
    for (what, path, fields, body, ends) in [
        ("a half message", REFLECTION, &[][..], half, false),
        ("a bomb", "/test.v1.Talk/Say", &gzip[..], zeros, true),
        (
            "an unread reply",
            "/test.v1.Talk/Say",
            &[][..],
            text("large", 0),
            true,
        ),
    ] {
        let more = format!("  client_memory: 16MB\n{POOL}");
        let (server, address) = start("grpc/foreign.php", &more);
        // Bombs wait for workers.
        let busy = connect(address);
        let hanging: Vec<_> = (0..2)
            .map(|_| {
                let mut talking = busy.begin("/test.v1.Talk/Say", &[], false);
                let said = if what == "a bomb" { "hang" } else { "" };
                talking.sending.send_data(text(said, 0), true).unwrap();
                talking
            })
            .collect();
        let before = server.resident_memory();
        let clients: Vec<_> = (0..16).map(|_| connect(address)).collect();
        let calls: Vec<_> = clients
            .iter()
            .map(|client| {
                let mut talking = client.begin(path, fields, false);
                // The server lets so much come as it has room for.
                talking.sending.send_data(body.clone(), ends).unwrap();
                talking
            })
            .collect();
        server.logged(&["clients hold more memory than `grpc.client_memory`"]);
        let grown = server.resident_memory().saturating_sub(before);
        assert!(grown < 64 << 10, "{what}: {grown} KB more");
        drop((calls, hanging));
        server.killed();
    }
}

/// Calls whose messages do not come: each takes memory all the same.
#[test]
fn open_calls_count_with_what_they_take() {
    const CONNECTIONS: usize = 60;
    const CALLS: u32 = 100;
    let more = format!("  client_memory: 16MB\n{POOL}");
    let (server, address) = start("grpc/ours.php", &more);
    let head = [
        (&b":method"[..], &b"POST"[..]),
        (b":scheme", b"http"),
        (b":path", b"/test.v1.Talk/Say"),
        (b":authority", b"a"),
        (b"content-type", b"application/grpc"),
        (b"te", b"trailers"),
    ];
    let head = head.map(|(name, value)| literal(name, value)).concat();
    let calls = (0..CALLS).flat_map(|call| frame(1, 4, 2 * call + 1, &head));
    let bytes = [PREFACE.to_vec(), frame(4, 0, 0, &[]), calls.collect()].concat();
    let before = server.resident_memory();
    let clients: Vec<_> = (0..CONNECTIONS)
        .map(|_| {
            let mut client = std::net::TcpStream::connect(address).unwrap();
            client.write_all(&bytes).unwrap();
            client
        })
        .collect();
    server.logged(&["clients hold more memory than `grpc.client_memory`"]);
    assert_eq!(connect(address).say("a").code(), "0");
    let grown = server.resident_memory().saturating_sub(before);
    assert!(grown < 48 << 10, "{grown} KB more");
    drop(clients);
    server.stop();
}

/// They belong to no call yet.
#[test]
fn heads_of_calls_that_do_not_come_whole_count() {
    const CONNECTIONS: usize = 1200;
    let more = format!("  client_memory: 16MB\n{POOL}");
    let (server, address) = start("grpc/ours.php", &more);
    let bytes = [PREFACE.to_vec(), frame(4, 0, 0, &[]), endless_block(1)].concat();
    let before = server.resident_memory();
    let clients: Vec<_> = (0..CONNECTIONS)
        .map(|_| {
            let mut client = std::net::TcpStream::connect(address).unwrap();
            // Whoever is closed already takes no more.
            client.write_all(&bytes).ok();
            client
        })
        .collect();
    // All of them would take 90 MB.
    server.logged(&["clients hold more memory than `grpc.client_memory`"]);
    assert_eq!(connect(address).say("a").code(), "0");
    wait_for("others to have gone", || {
        let grown = server.resident_memory().saturating_sub(before);
        (grown < 48 << 10).then_some(())
    });
    drop(clients);
    server.stop();
}

#[test]
fn a_client_streams_and_both_do() {
    let (server, address) = start("grpc/ours.php", POOL);
    let client = connect(address);
    let mut talking = client.begin("/test.v1.Talk/Join", &[], false);
    for said in ["a", "b", "c"] {
        talking.sending.send_data(text(said, 0), false).unwrap();
    }
    talking.sending.send_data(Bytes::new(), true).unwrap();
    let got = client.finish(talking);
    assert_eq!((got.code(), &got.body[..]), ("0", &text("abc", 3)[..]));
    // No message at all.
    let talking = client.begin("/test.v1.Talk/Join", &[], true);
    assert_eq!(client.finish(talking).body, text("", 0));
    // An answer before the client's last message.
    let mut talking = client.begin("/test.v1.Talk/Join", &[], false);
    talking.sending.send_data(text("stop", 0), false).unwrap();
    let got = client.finish(Talking {
        sending: talking.sending,
        receiving: talking.receiving,
    });
    assert_eq!((got.code(), &got.body[..]), ("0", &text("stop", 1)[..]));

    let mut talking = client.begin("/test.v1.Talk/Chat", &[], false);
    talking.sending.send_data(text("one", 1), false).unwrap();
    let mut body = client.head(talking.receiving);
    assert_eq!(client.piece(&mut body), text("one?", 1));
    for number in 2..9 {
        talking
            .sending
            .send_data(text("more", number), false)
            .unwrap();
        assert_eq!(client.piece(&mut body), text("more?", number));
    }
    talking.sending.send_data(Bytes::new(), true).unwrap();
    let trailers = client.runtime.block_on(async {
        assert!(body.data().await.is_none());
        body.trailers().await.unwrap().unwrap()
    });
    assert_eq!(trailers["grpc-status"], "0");
    server.stop();
}

#[test]
fn a_client_may_stream_many_small_messages() {
    const MANY: usize = 20_000;
    let (server, address) = start("grpc/ours.php", POOL);
    let client = connect(address);
    let mut talking = client.begin("/test.v1.Talk/Join", &[], false);
    for _ in 0..MANY {
        talking.sending.send_data(text("a", 0), false).unwrap();
    }
    talking.sending.send_data(Bytes::new(), true).unwrap();
    // Faster than PHP takes them; and nobody else on the connection is hurt.
    assert_eq!(client.say("hello").code(), "0");
    let got = client.finish(talking);
    assert_eq!(got.code(), "0", "{}", got.message());
    assert!(got.body.len() > MANY, "{}", got.body.len());
    server.stop();
}

/// Whoever runs the server sees it, and not only its clients.
#[test]
fn a_service_that_is_registered_under_another_name_is_a_warning() {
    let (site, address) = site("grpc/ours.php", POOL);
    let other = "syntax = 'proto3';\npackage test.v1;\nimport 'talk.proto';\n\
                 service Tolk { rpc Say(Text) returns (Text); }\n";
    let (server, address) = start_with((site.file("tolk.proto", other), address));
    let client = connect(address);
    let mut talking = client.begin("/test.v1.Tolk/Say", &[], false);
    talking.sending.send_data(text("a", 0), true).unwrap();
    assert_eq!(client.finish(talking).code(), "12");
    server.logged(&[
        "WARN",
        "a method of `grpc.proto` is not implemented: unknown service test.v1.Tolk; the worker \
         has `test.v1.Talk`",
        "\"/test.v1.Tolk/Say\"",
    ]);
    server.stop();
}

#[test]
fn files_that_are_missing_are_told_in_the_words_of_check() {
    let (site, _) = site("grpc/foreign.php", POOL);
    site.change_config("proto: ['*.proto']", "proto: ['no.proto']");
    for command in ["check", "serve"] {
        let ended = Server::run(&site, &[command]);
        let said = ended.stdout + &ended.stderr;
        let parts = [
            "error: .rr.yaml:",
            ": `grpc.proto` can't be used: ",
            "\nhint: ",
        ];
        for part in parts {
            assert!(said.contains(part), "{command}: {part} in\n{said}");
        }
    }
}

#[test]
fn each_exception_has_a_record() {
    let (server, address) = start("grpc/ours.php", POOL);
    let client = connect(address);
    for number in 0..4 {
        let got = client.say(&format!("throw {number}"));
        assert_ne!(got.code(), "0");
        server.logged(&["a method threw", &format!("no throw {number}")]);
    }
    server.stop();
}

/// A reply that has begun makes no difference.
#[test]
fn each_exception_in_a_stream_has_a_record() {
    let (server, address) = start("grpc/ours.php", POOL);
    let client = connect(address);
    let exceptions = |server: &Server| server.log().matches("a method threw: a secret in ").count();
    for number in 1..4 {
        let got = client.call("Count", &[], text("throw", 5));
        assert_eq!((got.code(), got.message()), ("13", "the method failed"));
        assert_eq!(got.body, [text("throw", 1), text("throw", 2)].concat());
        assert_eq!(got.trailer("grpc-thrown-bin"), None);
        wait_for("a record", || (exceptions(&server) == number).then_some(()));
    }
    let log = server.log();
    let record = log.lines().find(|line| line.contains("a method threw"));
    for part in [
        "ERROR",
        "\"class\":\"RuntimeException\"",
        "\"method\":\"/test.v1.Talk/Count\"",
        "ours.php",
        "\"trace\":",
    ] {
        assert!(record.unwrap().contains(part), "{part} in {record:?}");
    }
    let got = client.call("Count", &[], text("exit", 5));
    assert_eq!((got.code(), got.message()), ("13", "the method failed"));
    server.logged(&[
        "ERROR",
        "a method called exit: exit() ended the stream in the middle of it. in ",
        "/test.v1.Talk/Count",
    ]);
    let got = client.say("exit");
    assert_eq!((got.code(), got.message()), ("13", "the method failed"));
    server.logged(&[
        "a method called exit: exit() ended the call, and nothing had been returned",
        "/test.v1.Talk/Say",
    ]);
    assert_eq!(client.say("a").code(), "0");
    server.stop();
}

/// As other servers take them.
#[test]
fn metadata_may_have_blanks_around_it_and_be_much() {
    let (server, address) = start("grpc/ours.php", POOL);
    let client = connect(address);
    let got = client.call("Say", &[("x-a", " \ta b \t")], text("a", 0));
    assert_eq!((got.code(), got.header("x-a")), ("0", Some("a b")));
    let names: Vec<_> = (0..1100).map(|at| format!("x-{at}")).collect();
    let fields: Vec<_> = names.iter().map(|name| (&**name, "1")).collect();
    // Beside those that the client makes itself.
    let got = client.call("Say", &fields[..900], text("a", 0));
    assert_eq!((got.code(), got.trailer("back-x-899")), ("0", Some("1")));
    let talking = client.begin("/test.v1.Talk/Say", &fields, true);
    let got = client.finish(talking);
    let message = "the head has more than 1000 fields";
    assert_eq!((got.status, got.code(), got.message()), (200, "8", message));
    let long = "x".repeat(70 << 10);
    let talking = client.begin("/test.v1.Talk/Say", &[("x-a", &long)], true);
    let got = client.finish(talking);
    assert_eq!((got.status, got.code()), (200, "8"));
    assert_eq!(client.say("a").code(), "0");
    server.stop();
}

#[test]
fn health_follows_the_workers() {
    let (mut server, address) = start("grpc/foreign.php", POOL);
    let client = connect(address);
    let check = |client: &Client| {
        let path = "/grpc.health.v1.Health/Check";
        let mut talking = client.begin(path, &[], false);
        talking.sending.send_data(framed(b""), true).unwrap();
        client.finish(talking).body
    };
    assert_eq!(check(&client), framed(&[8, 1]));
    let mut talking = client.begin("/grpc.health.v1.Health/Watch", &[], false);
    talking.sending.send_data(framed(b""), true).unwrap();
    let mut body = client.head(talking.receiving);
    assert_eq!(client.piece(&mut body), framed(&[8, 1]));
    // The service answers until its last call has ended.
    server.signal(Signal::TERM);
    assert_eq!(client.piece(&mut body), framed(&[8, 2]));
    drop((body, talking.sending, client));
    let ended = server.wait();
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
}

#[test]
fn calls_come_to_the_address_of_http_as_well() {
    let worker = Site::fixture("grpc/foreign.php");
    let config = format!(
        "version: '3'\nserver: {{command: php {}}}\n\
         http: {{address: '127.0.0.1:0', http2: {{h2c: true}}, pool: {{command: php web.php, num_workers: 1}}}}\n\
         grpc: {{on_http: true, proto: ['*.proto'], pool: {{num_workers: 1}}}}\n",
        worker.display()
    );
    let site = Site::new().config(&config).file("talk.proto", PROTO);
    let server = Server::start(site.file("web.php", &Site::sdk_worker("return 'a page';")));
    let client = connect(server.address());
    assert_eq!(client.say("plain").body, text("plain", 0));
    assert_eq!(server.get("/").text(), "a page");
    server.stop();
}

/// A call comes to a pool as any request does: by the routes.
#[test]
fn calls_on_the_address_of_http_ask_its_routes() {
    let worker = Site::fixture("grpc/foreign.php");
    let config = format!(
        "version: '3'\nserver: {{command: php {}}}\n\
         http:\n  address: '127.0.0.1:0'\n  http2: {{h2c: true}}\n  \
           pool: {{command: php web.php, num_workers: 1}}\n  \
           routes:\n  \
           - {{path: '/grpc.health.v1.Health/*', refuse: 403}}\n  \
           - {{path: '/*', not_address: [127.0.0.0/8], refuse: 403}}\n\
         grpc: {{on_http: true, proto: ['*.proto'], pool: {{num_workers: 1}}}}\n",
        worker.display()
    );
    let site = Site::new().config(&config).file("talk.proto", PROTO);
    let server = Server::start(site.file("web.php", &Site::sdk_worker("return 'a page';")));
    let client = connect(server.address());
    assert_eq!(client.say("plain").body, text("plain", 0));
    let mut talking = client.begin("/grpc.health.v1.Health/Check", &[], false);
    talking.sending.send_data(framed(b""), true).unwrap();
    assert_eq!(client.finish(talking).status, 403);
    server.stop();
}

#[test]
fn calls_on_the_address_of_http_need_that_section() {
    let config = "version: '3'\nserver: {command: php worker.php}\n\
         grpc: {on_http: true, pool: {num_workers: 1}}\n";
    let ended = Server::run(&Site::new().config(config), &["check"]);
    ended.assert_said_with(2, &["`grpc.on_http`", "there is no section `http`"]);
}

/// `http` asks nobody for a certificate.
#[test]
fn certificates_of_clients_are_not_passed_by_on_the_address_of_http() {
    let config = "version: '3'\nserver: {command: php worker.php}\n\
         http: {address: '127.0.0.1:0'}\n\
         grpc:\n  listen: 127.0.0.1:0\n  on_http: true\n  \
           tls: {cert: a.pem, key: a.key, root_ca: ca.pem, client_auth_type: require_and_verify_client_cert}\n";
    let ended = Server::run(&Site::new().config(config), &["check"]);
    ended.assert_said_with(2, &["`grpc.on_http`", "ask clients for no certificate"]);
}

/// Streams for which nobody works make room, as idle connections do.
#[test]
fn streams_of_the_server_itself_keep_nobody_out() {
    const STREAMS: usize = 200;
    let worker = Site::fixture("grpc/foreign.php");
    let config = format!(
        "version: '3'\nserver: {{command: php {}}}\n\
         http: {{address: '127.0.0.1:0', http2: {{h2c: true}}, pool: {{command: php web.php, num_workers: 1}}}}\n\
         grpc: {{on_http: true, proto: ['*.proto'], pool: {{num_workers: 1}}, web: {{}}}}\n",
        worker.display()
    );
    let site = Site::new().config(&config).file("talk.proto", PROTO);
    let site = site.file("web.php", &Site::sdk_worker("return 'a page';"));
    let server = limited(site, 600);
    let watch = |path: &str| {
        let mut stream = std::net::TcpStream::connect(server.address()).expect("it accepts");
        let block = [
            &[0x83, 0x86][..],
            &literal(b":path", path.as_bytes()),
            &literal(b":authority", b"a"),
            &literal(b"content-type", b"application/grpc"),
            &literal(b"te", b"trailers"),
        ]
        .concat();
        let frames = [
            PREFACE,
            &frame(4, 0, 0, &[]),
            &frame(1, 4, 1, &block),
            &frame(0, 0, 1, &framed(b"")),
        ]
        .concat();
        stream.write_all(&frames).expect("it reads");
        stream
    };
    let web = |_| {
        let mut stream = std::net::TcpStream::connect(server.address()).expect("it accepts");
        let head = "POST /grpc.health.v1.Health/Watch HTTP/1.1\r\nHost: 127.0.0.1\r\n\
                    Content-Type: application/grpc-web+proto\r\nContent-Length: 5\r\n\r\n\0\0\0\0\0";
        stream.write_all(head.as_bytes()).expect("it reads");
        stream
    };
    let reflection = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo";
    for kind in 0..3 {
        let _held: Vec<_> = (0..STREAMS)
            .map(|at| match kind {
                0 => watch("/grpc.health.v1.Health/Watch"),
                1 => watch(reflection),
                _ => web(at),
            })
            .collect();
        for _ in 0..5 {
            assert_eq!(server.get("/").text(), "a page", "{kind}");
        }
    }
    server.stop();
}

#[test]
fn connections_end_with_their_age_and_without_a_sign_of_life() {
    let more = format!("  max_connection_age: 1s\n  ping_time: 200ms\n  timeout: 200ms\n{POOL}");
    let (server, address) = start("grpc/foreign.php", &more);
    // One that answers pings and grows old: its call finishes.
    let old = connect(address);
    assert_eq!(old.say("young").code(), "0");
    let began = Instant::now();
    wait_for("the connection to end", || {
        let mut send = old.send.clone();
        let ready = std::future::poll_fn(|cx| send.poll_ready(cx));
        old.runtime.block_on(ready).is_err().then_some(())
    });
    assert!(
        began.elapsed() > Duration::from_millis(500),
        "{:?}",
        began.elapsed()
    );
    // One that says nothing, not even to a ping.
    let mut dead = Connection::open(address);
    dead.send([PREFACE, &frame(4, 0, 0, &[])].concat());
    let began = Instant::now();
    dead.rest();
    assert!(
        began.elapsed() < Duration::from_secs(1),
        "{:?}",
        began.elapsed()
    );
    server.stop();
}

#[test]
fn reflection_tells_names() {
    let (server, address) = start("grpc/foreign.php", POOL);
    let client = connect(address);
    for version in ["v1", "v1alpha"] {
        let path = format!("/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo");
        let mut talking = client.begin(&path, &[], false);
        let list = framed(b"\x3a\x01*");
        talking.sending.send_data(list.clone(), false).unwrap();
        let mut body = client.head(talking.receiving);
        let names = String::from_utf8_lossy(&client.piece(&mut body)).into_owned();
        assert!(names.contains("test.v1.Talk"), "{names}");
        assert!(names.contains("grpc.health.v1.Health"), "{names}");
        for (name, file) in [
            ("test.v1.Talk", "talk.proto"),
            ("grpc.health.v1.Health", "grpc/health/v1/health.proto"),
            (
                "grpc.reflection.v1.ServerReflection",
                "grpc/reflection/v1/reflection.proto",
            ),
            (
                "grpc.reflection.v1alpha.ServerReflection",
                "grpc/reflection/v1alpha/reflection.proto",
            ),
        ] {
            assert!(names.contains(name), "{names}");
            let mut symbol = vec![0x22, u8::try_from(name.len()).unwrap()];
            symbol.extend(name.as_bytes());
            talking.sending.send_data(framed(&symbol), false).unwrap();
            let told = String::from_utf8_lossy(&client.piece(&mut body)).into_owned();
            assert!(told.contains(file) && told.contains("proto3"), "{told}");
        }
        talking.sending.send_data(list, true).unwrap();
        client.piece(&mut body);
        client
            .runtime
            .block_on(async { assert!(body.data().await.is_none()) });
    }
    server.stop();
}

#[test]
fn browsers_call_by_grpc_web() {
    let more = format!("  web: {{allowed_origins: ['https://a.example']}}\n{POOL}");
    let (server, address) = start("grpc/ours.php", &more);
    let mut client = Connection::open(address);
    let asks = "Origin: https://a.example\r\nAccess-Control-Request-Method: POST\r\n\
                Access-Control-Request-Headers: x-grpc-web\r\n";
    client.request("OPTIONS", "/test.v1.Talk/Say", asks);
    let allowed = client.response();
    assert_eq!(allowed.status, 204);
    assert_eq!(
        allowed.header("access-control-allow-origin"),
        Some("https://a.example")
    );
    let body = text("hi", 0);
    let fields = format!(
        "Origin: https://a.example\r\nContent-Type: application/grpc-web+proto\r\nContent-Length: {}\r\n",
        body.len()
    );
    for (method, messages) in [("Say", vec![text("hi!", 1)]), ("Count", vec![])] {
        let body = if method == "Count" {
            text("hi", 2)
        } else {
            body.clone()
        };
        let fields = fields.replace("Length: 9", &format!("Length: {}", body.len()));
        client.request("POST", &format!("/test.v1.Talk/{method}"), &fields);
        client.send(&body);
        let answer = client.response();
        assert_eq!(answer.status, 200);
        let expected = if method == "Count" {
            vec![text("hi", 1), text("hi", 2)]
        } else {
            messages
        };
        let all = [
            expected.concat(),
            b"\x80\0\0\0\x10grpc-status: 0\r\n".to_vec(),
        ]
        .concat();
        assert_eq!(answer.body, all, "{method}");
    }
    server.stop();
}

#[test]
fn only_certified_clients_are_let_in() {
    let certificates = Certificates::new();
    let path = |name: &str| certificates.path(name).display().to_string();
    let tls = format!(
        "  tls: {{cert: {}, key: {}, root_ca: {}, client_auth_type: require_and_verify_client_cert}}\n{POOL}  web: {{}}\n",
        path("server.pem"),
        path("server.key"),
        path("ca.pem")
    );
    let (server, address) = start("grpc/ours.php", &tls);
    server
        .site()
        .write("body", &String::from_utf8_lossy(&text("peer", 0)));
    let ask = |more: &[&str]| {
        let url = format!("https://localhost:{}/test.v1.Talk/Say", address.port());
        let body = server.site().path("body").display().to_string();
        let ran = Command::new("curl")
            .args([
                "--silent",
                "--show-error",
                "--noproxy",
                "*",
                "--ipv4",
                "--cacert",
            ])
            .arg(path("ca.pem"))
            .args([
                "--http1.1",
                "-H",
                "Content-Type: application/grpc-web+proto",
            ])
            .args(["--data-binary", &format!("@{body}")])
            .args(more)
            .arg(&url)
            .output()
            .unwrap();
        (
            ran.status.success(),
            String::from_utf8_lossy(&ran.stdout).into_owned(),
        )
    };
    let (passed, said) = ask(&[]);
    assert!(!passed, "{said}");
    let (certificate, key) = (path("client.pem"), path("client.key"));
    let (passed, said) = ask(&["--cert", &certificate, "--key", &key]);
    assert!(passed && said.contains(" CN=client"), "{said}");
    // One of another authority.
    let others = Certificates::new();
    let path = |name: &str| others.path(name).display().to_string();
    let other = ["--cert", &path("client.pem"), "--key", &path("client.key")];
    let (passed, said) = ask(&other);
    assert!(!passed, "{said}");

    // A key that can't be used changes nothing, nor does it while nobody mends it.
    let server_key = certificates.path("server.key");
    let text = std::fs::read(&server_key).unwrap();
    std::fs::write(&server_key, "").unwrap();
    for _ in 0..2 {
        let failed = server.steer(&["reload"]);
        failed.assert_refused(&[
            "the reload failed",
            "there is no private key in",
            "server.key",
        ]);
    }
    let mine = ["--cert", &certificate, "--key", &key];
    assert!(ask(&mine).0);
    std::fs::write(&server_key, text).unwrap();
    // curl knows the server by the authority of before, wherefore it is still in the list.
    let authorities = [&certificates, &others].map(|of| {
        let text = std::fs::read_to_string(of.path("ca.pem"));
        text.unwrap()
    });
    std::fs::write(certificates.path("ca.pem"), authorities.concat()).unwrap();
    server.steer(&["reload"]).assert_said(&["is applied"]);
    assert!(ask(&mine).0 && ask(&other).0);
    server.stop();
}

#[test]
fn the_example_greets() {
    let worker = Site::example("grpc").with_file_name("worker.php");
    let (site, address) = site("grpc/foreign.php", "  pool: {num_workers: 2}\n");
    let stock = Site::fixture("grpc/foreign.php").display().to_string();
    site.change_config(&stock, &worker.display().to_string());
    let proto = std::fs::read_to_string(worker.with_file_name("proto/greeter.proto")).unwrap();
    site.write("greeter.proto", &proto);
    let (server, address) = start_with((site, address));
    let client = connect(address);
    let mut talking = client.begin("/hello.v1.Greeter/Greet", &[], false);
    talking.sending.send_data(text("Ada", 0), true).unwrap();
    let got = client.finish(talking);
    assert_eq!(
        (got.code(), &got.body[..]),
        ("0", &text("Hello, Ada!", 0)[..])
    );
    server.stop();
}

#[test]
fn bad_input_is_refused_and_others_go_on() {
    let (server, address) = start(
        "grpc/foreign.php",
        "  max_recv_msg_size: 1\n  pool: {num_workers: 1}\n",
    );
    let client = connect(address);
    let mut talking = client.begin("/test.v1.Talk/Say", &[], false);
    // A gigabyte in five bytes.
    let announced = Bytes::from_static(&[0, 0x40, 0, 0, 0]);
    talking.sending.send_data(announced, false).unwrap();
    let got = client.finish(Talking {
        sending: talking.sending,
        receiving: talking.receiving,
    });
    assert_eq!(got.code(), "8");
    let got = client.call(
        "Say",
        &[("grpc-encoding", "gzip")],
        Bytes::from_static(&[1, 0, 0, 0, 2, 1, 1]),
    );
    assert_eq!(got.code(), "13");
    // A flood of resets ends its connection alone.
    let mut flooding = Connection::open(address);
    let mut bytes = [PREFACE, &frame(4, 0, 0, &[])].concat();
    for call in 0..1500 {
        let stream = 2 * call + 1;
        bytes.extend(frame(1, 4, stream, b"\x83\x86\x84\x41\x01a"));
        bytes.extend(frame(3, 0, stream, &[0, 0, 0, 8]));
    }
    flooding.send(bytes);
    let said = flooding.rest();
    let calm = [0, 0, 0, 11];
    assert!(said.windows(4).any(|word| word == calm), "{said:?}");
    assert_eq!(client.say("still there").code(), "0");
    // HTTP/1.1 gets words.
    let mut plain = Connection::open(address);
    plain.request("GET", "/", "");
    assert_eq!(plain.response().status, 415);
    server.stop();
}

/// The replies wait with the client: the only worker answers others.
#[test]
fn a_client_that_takes_no_reply_holds_no_worker() {
    let (server, address) = start("grpc/foreign.php", "  pool: {num_workers: 1}\n");
    let greedy = connect(address);
    let begin = |_| {
        let mut talking = greedy.begin("/test.v1.Talk/Say", &[], false);
        talking.sending.send_data(text("large", 0), true).unwrap();
        talking
    };
    let untaken: Vec<_> = (0..8).map(begin).collect();
    let client = connect(address);
    let before = server.resident_memory();
    for _ in 0..20 {
        assert_eq!(client.say("others").code(), "0");
    }
    let grown = server.resident_memory().saturating_sub(before);
    assert!(grown < 64 << 20, "{grown} bytes for 24 MB of replies");
    drop(untaken);
    server.stop();
}

#[test]
fn a_reload_serves_new_files_and_a_broken_one_changes_nothing() {
    let (server, address) = start("grpc/foreign.php", POOL);
    let client = connect(address);
    let call = |client: &Client| {
        let mut talking = client.begin("/other.Service/Do", &[], false);
        talking.sending.send_data(text("a", 0), true).unwrap();
        client.finish(talking).code().to_owned()
    };
    assert_eq!(call(&client), "12");
    server.site().write("other.proto", "service {");
    server.signal(Signal::HUP);
    server.logged(&["reload failed, nothing has changed", "other.proto"]);
    assert_eq!(client.say("a").code(), "0");
    let proto = "edition = \"2023\"; package other; import \"missing.proto\"; service Service { rpc Do(X) returns (Y); }";
    server.site().write("other.proto", proto);
    server.signal(Signal::HUP);
    server.logged(&["the configuration is applied"]);
    assert_eq!(call(&client), "0");
    server.stop();
}

#[test]
fn check_tells_what_is_wrong_with_files() {
    let run = |name: &str, proto: &str| {
        let (site, _) = site("grpc/foreign.php", POOL);
        Server::run(&site.file(name, proto), &["check"])
    };
    let ended = run("b.proto", "service A {");
    ended.assert_said_with(2, &["b.proto", "line 1: service `A` has no `}`"]);
    let ended = run("b.proto", "package test.v1; service Talk { }");
    ended.assert_said_with(
        2,
        &[
            "the service `test.v1.Talk` is in two files",
            "b.proto",
            "talk.proto",
        ],
    );
    // The same at the start, which they do not prevent.
    for (proto, words) in [
        (
            "edition = \"2023\"; package other;",
            &[
                "a file of which reflection knows only names: `",
                "b.proto`: `edition = \"2023\"` is not compiled here",
            ][..],
        ),
        (
            "syntax = \"proto3\";\nimport \"none.proto\";",
            &["b.proto:2:", "'none.proto' not found"],
        ),
        (
            "syntax = \"proto2\"; package other; message M { required M m = 1; } \
             service S { rpc Do(M) returns (M); rpc DO(M) returns (M); }",
            &["gives `other.S` the methods `Do` and `DO`, which PHP does not tell apart"],
        ),
    ] {
        let (site, address) = site("grpc/ours.php", STREAMS);
        let site = site.file("b.proto", proto);
        let ended = Server::run(&site, &["check"]);
        ended.assert_said_with(0, &[&["`grpc.proto` "], words].concat());
        let (server, _) = start_with((site, address));
        server.logged(&[&["WARN", "`grpc.proto` "], words].concat());
        server.stop();
    }
    let (site, _) = site("grpc/ours.php", STREAMS);
    let config = site.read(".rr.yaml");
    let of_patterns = config.replace("proto: [", "proto: ['protos/*.proto', ");
    assert_ne!(config, of_patterns);
    site.write(".rr.yaml", &of_patterns);
    let said = "`grpc.proto` has `protos/*.proto`, which matches no file in /";
    Server::run(&site, &["check"]).assert_said_with(0, &["warning: ", said]);
    let server = Server::start_without_http(site);
    server.logged(&["WARN", said]);
    server.stop();
    let (site, _) = self::site("grpc/ours.php", STREAMS);
    let proto = "syntax = \"proto2\"; package other; message M { required int32 i = 1; }";
    let ended = Server::run(&site.file("b.proto", proto), &["check"]);
    assert!(!ended.stdout.contains("`grpc.proto`"), "{}", ended.stdout);
}
