//! TCP servers whose messages PHP workers answer.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use pronghorn_testkit::{Certificates, PATIENCE, Server, Site, time, wait_for};
use rustix::process::Signal;

use crate::control::Rpc;
use crate::example::copy;
use crate::secure::certificate;

/// `servers` are in YAML's short form, `pool` as well.
fn site(worker: &Path, pool: &str, servers: &str) -> Site {
    let site = Site::new();
    let ran = site.path("ran");
    site.config(&format!(
        "version: '3'\n\
         server: {{command: php {}, env: {{RAN: '{}'}}}}\n\
         http: {{address: 127.0.0.1:0, pool: {{num_workers: 1, command: php {}}}}}\n\
         rpc: {{listen: 'tcp://127.0.0.1:0'}}\n\
         logs: {{level: debug}}\n\
         tcp: {{pool: {{{pool}}}, servers: {{{servers}}}}}\n",
        worker.display(),
        ran.display(),
        Site::fixture("foreign/worker.php").display(),
    ))
}

fn foreign(servers: &str) -> Server {
    let worker = Site::fixture("foreign/tcp.php");
    Server::start(site(&worker, "num_workers: 2", servers))
}

fn ours(pool: &str, servers: &str) -> Server {
    Server::start(site(&Site::fixture("tcp.php"), pool, servers))
}

/// Where a server listens that has port 0.
fn address(server: &Server, name: &str) -> SocketAddr {
    let named = format!("\"server\":\"{name}\"");
    wait_for("the address in the log", || {
        let log = server.log();
        let mut lines = log.lines();
        let line = lines.rfind(|line| line.contains(&named) && line.contains("listening"))?;
        let (_, address) = line.split_once("\"address\":\"tcp://")?;
        address.split_once('"')?.0.parse().ok()
    })
}

/// A client of a server.
struct Client(TcpStream);

impl Client {
    fn of(server: &Server, name: &str) -> Self {
        Self::at(address(server, name))
    }

    fn at(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).expect("it listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a time");
        stream.set_nodelay(true).expect("no delay");
        Self(stream)
    }

    fn send(&mut self, bytes: &str) {
        self.0.write_all(bytes.as_bytes()).expect("it takes it");
    }

    /// What comes, up to the end of a line.
    fn line(&mut self) -> String {
        let mut line = Vec::new();
        let mut byte = [0];
        while !line.ends_with(b"\n") {
            match self.0.read(&mut byte) {
                Ok(1) => line.push(byte[0]),
                ended => unreachable!("{ended:?} after {}", line.escape_ascii()),
            }
        }
        String::from_utf8(line).expect("text")
    }

    fn ask(&mut self, line: &str) -> String {
        self.send(&format!("{line}\r\n"));
        self.line().trim_end().to_owned()
    }

    /// All that comes until the end.
    fn rest(&mut self) -> String {
        let mut rest = Vec::new();
        // A reset is as good as an end.
        _ = self.0.read_to_end(&mut rest);
        String::from_utf8(rest).expect("text")
    }

    fn finish_sending(&self) {
        self.0.shutdown(Shutdown::Write).expect("it is open");
    }
}

/// The events of a server, without its name, once there are so many.
fn events(server: &Server, name: &str, count: usize) -> Vec<String> {
    wait_for("events", || {
        let ran = fs::read_to_string(server.site().path("ran")).unwrap_or_default();
        let of = ran.lines().filter_map(|line| line.strip_prefix(name));
        let of: Vec<_> = of.map(|line| line.trim().to_owned()).collect();
        (of.len() >= count).then_some(of)
    })
}

#[test]
fn roadrunners_package_answers_clients_by_its_protocol() {
    let server = foreign("Echo: {addr: 'tcp://127.0.0.1:0'}");
    let mut client = Client::of(&server, "echo");
    let local = client.0.local_addr().unwrap();
    assert_eq!(client.ask("hello"), "hello");
    let context = client.ask("context");
    let begin = format!(r#"{{"remote_addr":"{local}","server":"echo","uuid":""#);
    assert!(context.starts_with(&begin), "{context}");
    assert!(context.ends_with(r#"","event":"DATA"}"#), "{context}");
    client.send("read\r\n");
    events(&server, "echo", 4);
    assert_eq!(client.ask("after"), "after");
    // Two lines that arrive together are one message.
    client.send("one\r\ntwo\r\n");
    assert_eq!(
        (client.line(), client.line()),
        ("one\r\n".into(), "two\r\n".into())
    );
    client.send("quit\r\n");
    assert_eq!(client.rest(), "bye\r\n");
    assert_eq!(
        events(&server, "echo", 8),
        [
            "CONNECTED",
            "DATA hello\\r\\n",
            "DATA context\\r\\n",
            "DATA read\\r\\n",
            "DATA after\\r\\n",
            "DATA one\\r\\ntwo\\r\\n",
            "DATA quit\\r\\n",
            "CLOSE",
        ]
    );
    for word in ["close", "strange", "throw", "die"] {
        let mut client = Client::of(&server, "echo");
        client.send(&format!("{word}\r\n"));
        assert_eq!(client.rest(), "", "{word}");
    }
    server.stop();
}

#[test]
fn the_delimiter_is_found_however_the_bytes_arrive() {
    let server = foreign("echo: {addr: 'tcp://127.0.0.1:0', delimiter: \"--\\n\"}");
    let mut client = Client::of(&server, "echo");
    for byte in "slowly--\n".chars() {
        client.send(&byte.to_string());
        std::thread::yield_now(); // it may arrive alone
    }
    assert_eq!(client.line(), "slowly--\n");
    client.send("the rest");
    client.finish_sending();
    assert_eq!(client.rest(), "the rest");
    let seen = events(&server, "echo", 4);
    assert_eq!(seen[1..], ["DATA slowly--\\n", "DATA the rest", "CLOSE"]);
    server.stop();
}

#[test]
fn a_worker_that_does_not_answer_the_end_of_a_connection_goes_on() {
    let worker = Site::fixture("foreign/tcp.php");
    let servers = "mute: {addr: 'tcp://127.0.0.1:0'}, twice: {addr: 'tcp://127.0.0.1:0'}";
    let server = Server::start(site(&worker, "num_workers: 1", servers));
    let pids = server.workers();
    for name in ["mute", "twice", "mute"] {
        let mut client = Client::of(&server, name);
        assert_eq!(client.ask("hello"), "hello", "{name}");
    }
    assert_eq!(events(&server, "mute", 6).last().unwrap(), "CLOSE");
    server.logged(&["a worker answered twice"]);
    assert_eq!(server.workers(), pids);
    server.stop();
}

/// Over pipes and over the ring.
#[test]
fn our_package_answers_clients() {
    for transport in ["relay", "ring"] {
        let server = ours(
            &format!("num_workers: 1, transport: {transport}"),
            "line: {addr: 'tcp://127.0.0.1:0', framing: line}, greets: {addr: 'tcp://127.0.0.1:0'}",
        );
        let mut client = Client::of(&server, "greets");
        assert_eq!(client.line(), "hello\r\n");
        let mut client = Client::of(&server, "line");
        client.send("context\ncontext\n");
        let context = client.line();
        assert!(context.contains(r#""server":"line""#), "{context}");
        assert!(
            context.contains(r#""tls":false,"state":{"messages":1}"#),
            "{context}"
        );
        let context = client.line();
        assert!(context.contains(r#""state":{"messages":2}"#), "{context}");
        client.send("quit\n");
        assert_eq!(client.rest(), "bye\r\n");
        let seen = events(&server, "line", 5);
        let first = [
            "CONNECTED",
            "MESSAGE context",
            "MESSAGE context",
            "MESSAGE quit",
            "CLOSED",
        ];
        assert_eq!(seen, first);
        for word in ["exit", "die", "fat", "throw", "throw"] {
            let mut client = Client::of(&server, "line");
            client.send(&format!("{word}\n"));
            assert_eq!(client.rest(), "", "{word}");
        }
        // Each one, and whatever has closed other connections before.
        let thrown = "the handler threw, and the connection is closed: thrown on purpose in ";
        wait_for("a record of each exception", || {
            (server.log().matches(thrown).count() == 2).then_some(())
        });
        server.stop();
    }
}

#[test]
fn connections_are_written_to_listed_and_closed_over_rpc() {
    let server = ours(
        "num_workers: 1",
        "a: {addr: 'tcp://127.0.0.1:0'}, b: {addr: 'tcp://127.0.0.1:0'}",
    );
    let mut rpc = Rpc::connect(&server);
    let mut client = Client::of(&server, "a");
    let context = client.ask("context");
    let (_, id) = context.split_once(r#""id":""#).expect("an id");
    let id = id.get(..36).expect("36 characters");
    let count = rpc.call("tcp.Count", "{}");
    assert!(
        count.starts_with(r#"{"connections":1,"servers":[{"name":"a","#),
        "{count}"
    );
    let listed = rpc.call("tcp.List", "{}");
    assert!(
        listed.contains(id) && listed.contains(r#""messages":1"#),
        "{listed}"
    );
    assert_eq!(
        rpc.call("tcp.List", r#"{"server":"b"}"#),
        r#"{"connections":[],"truncated":false}"#
    );
    let write = format!(r#"{{"uuid":"{id}","data":"from outside\r\n"}}"#);
    assert_eq!(rpc.call("tcp.Write", &write), "true");
    assert_eq!(client.line(), "from outside\r\n");
    let write = format!(r#"{{"uuid":"{id}","base64":"eA0K"}}"#);
    assert_eq!(rpc.call("tcp.Write", &write), "true");
    assert_eq!(client.line(), "x\r\n");
    assert_eq!(rpc.call("tcp.Close", &format!("\"{id}\"")), "true");
    assert_eq!(client.rest(), "");
    assert_eq!(rpc.call("tcp.Close", "\"nobody\""), "true");
    assert_eq!(events(&server, "a", 3)[2], "CLOSED");
    server.stop();
}

#[test]
fn messages_that_wait_for_a_worker_count() {
    let server = ours(
        "num_workers: 1",
        "a: {addr: 'tcp://127.0.0.1:0', client_memory: 8MB}",
    );
    let mut busy = Client::of(&server, "a");
    busy.send("slow 20000\r\n");
    let message = format!("{}\r\n", "x".repeat(1 << 20));
    let clients: Vec<_> = (0..20)
        .map(|_| {
            let mut client = Client::of(&server, "a");
            client.send(&message);
            client
        })
        .collect();
    server.logged(&["clients hold more memory than `client_memory`"]);
    drop((busy, clients));
    server.stop();
}

#[test]
fn what_clients_do_not_take_counts_for_their_memory() {
    let server = ours(
        "num_workers: 1",
        "a: {addr: 'tcp://127.0.0.1:0', client_memory: 8MB}",
    );
    let mut rpc = Rpc::connect(&server);
    let data = "y".repeat(900_000);
    let clients: Vec<_> = (0..16)
        .map(|_| {
            let mut client = Client::of(&server, "a");
            let context = client.ask("context");
            let (_, id) = context.split_once(r#""id":""#).expect("an id");
            let id = id.get(..36).expect("36 characters").to_owned();
            // The kernel takes the first ones.
            for _ in 0..12 {
                rpc.call(
                    "tcp.Write",
                    &format!(r#"{{"uuid":"{id}","data":"{data}"}}"#),
                );
            }
            client
        })
        .collect();
    server.logged(&["clients hold more memory than `client_memory`"]);
    drop(clients);
    server.stop();
}

/// Whatever it is sent, the only worker goes on to answer others.
#[test]
fn bad_input_ends_its_connection_and_no_other() {
    let limits = "max_message: 1KB, write_timeout: 1s, idle_timeout: 1s";
    let server = ours(
        "num_workers: 1",
        &format!(
            "a: {{addr: 'tcp://127.0.0.1:0', {limits}}}, few: {{addr: 'tcp://127.0.0.1:0', max_per_address: 2}}"
        ),
    );
    let other = |server: &Server| {
        let mut client = Client::of(server, "a");
        assert_eq!(client.ask("hello"), "hello");
    };
    // Without an end.
    let mut endless = Client::of(&server, "a");
    endless.send(&"x".repeat(3000));
    assert_eq!(endless.rest(), "");
    server.logged(&["a message is longer than `max_message`"]);
    other(&server);
    // One that does not read what it has asked for.
    let mut slow = Client::of(&server, "a");
    slow.send("long 30000000\r\n");
    let ((), took) = time(|| other(&server));
    assert!(took < Duration::from_secs(1), "{took:?}");
    server.logged(&["a connection has ended", "untaken"]);
    assert!(slow.rest().len() < 30_000_000);
    // One that has begun a message, and one that says nothing.
    let mut silent = [Client::of(&server, "a"), Client::of(&server, "a")];
    silent[0].send("half");
    assert_eq!(silent[0].rest(), "");
    other(&server);
    assert_eq!(
        silent[1].ask("still there"),
        "still there",
        "no first byte was asked for"
    );
    // One that is gone, and one that is reset.
    drop(Client::of(&server, "a"));
    let mut reset = Client::of(&server, "a");
    reset.send("slow 100\r\n");
    rustix::net::sockopt::set_socket_linger(&reset.0, Some(Duration::ZERO)).unwrap();
    drop(reset);
    other(&server);
    // More than an address may have.
    let _two = [Client::of(&server, "few"), Client::of(&server, "few")];
    assert_eq!(Client::of(&server, "few").rest(), "");
    server.logged(&["an address has reached `max_per_address`"]);
    // Each connection that a worker knew of has ended once.
    let connected = |events: &[String]| events.iter().filter(|it| *it == "CONNECTED").count();
    let closed = |events: &[String]| events.iter().filter(|it| *it == "CLOSED").count();
    let seen = wait_for("the ends", || {
        let seen = events(&server, "a", 1);
        (connected(&seen) == closed(&seen) + 1).then_some(seen)
    });
    assert!(connected(&seen) > 8, "{seen:?}");
    server.stop();
}

#[test]
fn a_thousand_idle_connections_take_a_few_kilobytes_each() {
    const MANY: usize = 1000;
    let server = foreign("idle: {addr: 'tcp://127.0.0.1:0', on_connect: continue}");
    let address = address(&server, "idle");
    let mut first = Client::at(address);
    assert_eq!(first.ask("hello"), "hello");
    let before = server.resident_memory();
    let mut clients: Vec<_> = (0..MANY).map(|_| Client::at(address)).collect();
    // All are accepted, and each has had a message.
    for client in &mut clients {
        client.send("hello\r\n");
    }
    for client in &mut clients {
        assert_eq!(client.line(), "hello\r\n");
    }
    let each = server.resident_memory().saturating_sub(before) / MANY as u64;
    assert!(each < 8 << 10, "{each} bytes each");
    drop(clients);
    let seen = events(&server, "idle", 2 * MANY + 1);
    let count = |event: &str| seen.iter().filter(|it| it.starts_with(event)).count();
    assert_eq!((count("CONNECTED"), count("DATA")), (0, MANY + 1));
    server.stop();
}

/// A byte in each segment, and a side that is closed before the answer: each message is answered
/// once, and to its end, whatever the framing.
#[test]
fn bytes_that_come_one_by_one_and_half_closed_connections_are_answered() {
    let server = ours(
        "num_workers: 1",
        "chunk: {addr: 'tcp://127.0.0.1:0'}, \
         any: {addr: 'tcp://127.0.0.1:0', framing: delimiter}, \
         line: {addr: 'tcp://127.0.0.1:0', framing: line}, \
         length: {addr: 'tcp://127.0.0.1:0', framing: length, length: {bytes: 2}}",
    );
    for (name, sent) in [
        ("chunk", "ab\r\n"),
        ("any", "ab\r\n"),
        ("line", "ab\r\n"),
        ("length", "\0\x02ab"),
    ] {
        let mut client = Client::of(&server, name);
        for byte in sent.as_bytes() {
            client.send(std::str::from_utf8(&[*byte]).unwrap());
            std::thread::yield_now(); // it may arrive alone
        }
        let answer = if name == "line" { "ab" } else { sent };
        let mut got = vec![0; answer.len()];
        client.0.read_exact(&mut got).unwrap();
        assert_eq!(got, answer.as_bytes(), "{name}");
        client.finish_sending();
        assert_eq!(client.rest(), "", "{name}");
        assert_eq!(events(&server, name, 3).len(), 3, "{name}");
    }
    // The answer is slow, and long: it goes to whoever still reads.
    let mut half = Client::of(&server, "any");
    half.send("slow 200\r\nlong 3000000\r\nrest");
    half.finish_sending();
    let rest = half.rest();
    assert!(rest.starts_with("slept \r\nx"), "{rest:.20}");
    assert!(rest.ends_with("x\r\nrest"), "the rest without a delimiter");
    assert_eq!(rest.len(), "slept \r\n".len() + 3_000_002 + "rest".len());
    server.stop();
}

/// As many as a server takes by default: each is answered, and one more is refused.
#[test]
#[ignore = "it opens 20,000 descriptors: `make weekly`"]
fn ten_thousand_connections_are_answered() {
    const MANY: usize = 10_000;
    let (_, hard) = open_files();
    rustix::process::setrlimit(
        rustix::process::Resource::Nofile,
        rustix::process::Rlimit {
            current: hard,
            maximum: hard,
        },
    )
    .unwrap();
    let server = foreign("many: {addr: 'tcp://127.0.0.1:0', on_connect: continue}");
    let place = address(&server, "many");
    let mut first = Client::at(place);
    assert_eq!(first.ask("hello"), "hello");
    let before = server.resident_memory();
    let mut clients: Vec<_> = (1..MANY).map(|_| Client::at(place)).collect();
    for client in &mut clients {
        client.send("half of a ");
    }
    for client in &mut clients {
        assert_eq!(client.ask("message"), "half of a message");
    }
    let each = server.resident_memory().saturating_sub(before) / MANY as u64;
    assert!(each < 16 << 10, "{each} bytes each");
    assert_eq!(Client::at(place).rest(), "");
    assert_eq!(first.ask("still there"), "still there");
    drop(clients);
    wait_for("their ends", || {
        let ended = server.log().matches("a connection has ended").count();
        (ended >= MANY - 1).then_some(())
    });
    server.stop();
}

fn open_files() -> (Option<u64>, Option<u64>) {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    (limit.current, limit.maximum)
}

#[test]
fn clients_show_their_certificates() {
    let certificates = Certificates::new();
    let path = |name: &str| certificates.path(name).display().to_string();
    let servers = format!(
        "tls: {{addr: 'tcp://127.0.0.1:0', ssl: {{cert: {}, key: {}, root_ca: {}, \
         client_auth_type: require_and_verify_client_cert}}}}",
        path("server.pem"),
        path("server.key"),
        path("ca.pem")
    );
    let server = ours("num_workers: 1", &servers);
    let place = address(&server, "tls").to_string();
    let ask = |of: &Certificates, name: Option<&str>| {
        let mut client = Command::new("openssl");
        client.args(["s_client", "-quiet", "-connect", &place]);
        if let Some(name) = name {
            client.arg("-cert").arg(of.path(&format!("{name}.pem")));
            client.arg("-key").arg(of.path(&format!("{name}.key")));
        }
        let mut client = client
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("openssl is there");
        let mut input = client.stdin.take().expect("a pipe");
        _ = input.write_all(b"context\r\n"); // it may have been refused by now
        let mut said = String::new();
        let mut output = client.stdout.take().expect("a pipe");
        let mut byte = [0];
        while !said.ends_with('\n') && output.read(&mut byte).is_ok_and(|read| read == 1) {
            said.push(char::from(byte[0]));
        }
        _ = client.kill(); // it has ended already
        client.wait().unwrap();
        said
    };
    let said = ask(&certificates, Some("client"));
    assert!(said.contains(r#""certificate":"CN=client"#), "{said}");
    assert_eq!(ask(&certificates, None), "");
    let others = Certificates::new();
    assert_eq!(ask(&others, Some("client")), "");

    // A list of authorities that can't be used changes nothing, and is read again when it can be.
    fs::write(certificates.path("ca.pem"), "").unwrap();
    let failed = server.steer(&["reload"]);
    failed.assert_refused(&["the reload failed", "there is no certificate in", "ca.pem"]);
    assert_ne!(ask(&certificates, Some("client")), "");
    fs::copy(others.path("ca.pem"), certificates.path("ca.pem")).unwrap();
    server.steer(&["reload"]).assert_said(&["is applied"]);
    assert_ne!(ask(&others, Some("client")), "");
    assert_eq!(ask(&certificates, Some("client")), "");
    server.stop();
}

#[test]
fn a_stop_lets_a_message_finish_and_tells_workers_of_the_end() {
    let mut server = ours("num_workers: 2", "a: {addr: 'tcp://127.0.0.1:0'}");
    let mut idle = Client::of(&server, "a");
    assert_eq!(idle.ask("hello"), "hello");
    let mut busy = Client::of(&server, "a");
    busy.send("slow 500\r\n");
    events(&server, "a", 4);
    server.signal(Signal::TERM);
    assert_eq!(busy.rest(), "slept \r\n");
    assert_eq!(idle.rest(), "");
    let seen = events(&server, "a", 6);
    assert_eq!(
        seen.iter().filter(|it| *it == "CLOSED").count(),
        2,
        "{seen:?}"
    );
    assert_eq!(server.wait().code, Some(0));
}

#[test]
fn a_reload_keeps_connections_and_changes_those_to_come() {
    let server = ours("num_workers: 1", "a: {addr: 'tcp://127.0.0.1:0'}");
    let mut before = Client::of(&server, "a");
    let pid = before.ask("pid");
    server.site().change_config(
        "127.0.0.1:0'}}",
        "127.0.0.1:0', framing: line, max_per_address: 3}}",
    );
    server.signal(Signal::HUP);
    server.logged(&["the configuration is applied"]);
    let again = before.ask("pid");
    assert_ne!(again, pid, "another worker");
    before.send("one\r\ntwo\r\n");
    assert_eq!(before.line(), "one\r\n");
    assert_eq!(before.line(), "two\r\n", "as one message");
    let mut after = Client::of(&server, "a");
    after.send("long 1\nlong 2\n");
    assert_eq!(
        (after.line(), after.line()),
        ("x\r\n".into(), "xx\r\n".into())
    );
    server.stop();
}

#[test]
fn an_upgrade_refuses_nobody_and_leaves_connections_where_they_are() {
    let mut server = ours("num_workers: 1", "a: {addr: 'tcp://127.0.0.1:0'}");
    let place = address(&server, "a");
    let mut old = Client::at(place);
    let pid = old.ask("pid");
    server.ask_for_upgrade();
    let mut new = wait_for("the next process", || {
        let mut client = Client::at(place);
        (client.ask("pid") != pid).then_some(client)
    });
    assert_eq!(old.ask("pid"), pid);
    assert_eq!(old.ask("quit"), "bye");
    assert_eq!(old.rest(), "");
    server.follow_upgrade();
    assert_eq!(new.ask("hello"), "hello");
    server.stop();
}

#[test]
fn clients_come_by_tls_and_by_a_balancer() {
    let site = site(
        &Site::fixture("tcp.php"),
        "num_workers: 1",
        "tls: {addr: 'tcp://127.0.0.1:0', ssl: {cert: localhost.pem, key: localhost.key}}, \
         behind: {addr: 'tcp://127.0.0.1:0', proxy_protocol: {trusted_proxies: [127.0.0.1]}}, \
         hasty: {addr: 'tcp://127.0.0.1:0', first_byte_timeout: 50ms, \
           proxy_protocol: {trusted_proxies: [127.0.0.1], read_header_timeout: 1m}}",
    );
    certificate(&site, "localhost", &["localhost"]);
    let server = Server::start(site);
    let place = address(&server, "tls").to_string();
    let mut client = Command::new("openssl")
        .args(["s_client", "-quiet", "-alpn", "smtp", "-connect", &place])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("openssl is there");
    let input = client.stdin.as_mut().expect("a pipe");
    input.write_all(b"context\r\n").unwrap();
    let mut output = client.stdout.take().expect("a pipe");
    let mut said = String::new();
    let mut byte = [0];
    while !said.ends_with('\n') {
        assert_eq!(output.read(&mut byte).unwrap(), 1, "{said}");
        said.push(char::from(byte[0]));
    }
    assert!(said.contains(r#""tls":true"#), "{said}");
    client.kill().unwrap();
    client.wait().unwrap();
    // Text on such a port is let go.
    let mut text = Client::of(&server, "tls");
    text.send("hello\r\n");
    assert_eq!(text.rest(), "");
    server.logged(&["WARN\ttcp", "does not speak TLS"]);

    let mut behind = Client::of(&server, "behind");
    behind.send("PROXY TCP4 192.0.2.1 198.51.100.2 4711 25\r\n");
    let said = behind.ask("context");
    assert!(said.contains(r#""remote":"192.0.2.1:4711""#), "{said}");
    let mut other = Client::of(&server, "behind");
    other.send("hello\r\n");
    assert_eq!(other.rest(), "");
    let (rest, took) = time(|| Client::of(&server, "hasty").rest());
    assert_eq!(rest, "");
    assert!(took < Duration::from_secs(10), "{took:?}");
    server.stop();
}

/// Over pipes and over the ring, in which calls lie ahead of a worker.
#[test]
fn many_clients_that_come_and_leave_at_once_are_all_told_of_once() {
    const MANY: usize = 300;
    for transport in ["relay", "ring"] {
        let server = ours(
            &format!("num_workers: 2, max_queue_size: 10, transport: {transport}"),
            "a: {addr: 'tcp://127.0.0.1:0'}",
        );
        let place = address(&server, "a");
        let mut clients: Vec<_> = (0..MANY).map(|_| Client::at(place)).collect();
        for _ in 0..3 {
            for client in &mut clients {
                client.send("hello\r\n");
            }
            for client in &mut clients {
                assert_eq!(
                    client.line(),
                    "hello\r\n",
                    "more than wait in the pool's queue"
                );
            }
        }
        drop(clients);
        let seen = events(&server, "a", 5 * MANY);
        for (event, times) in [("CONNECTED", 1), ("MESSAGE", 3), ("CLOSED", 1)] {
            let count = seen.iter().filter(|it| it.starts_with(event)).count();
            assert_eq!(count, times * MANY, "{event} over {transport}");
        }
        server.stop();
    }
}

const AFFINE: &str = "a: {addr: 'tcp://127.0.0.1:0', affinity: true}";

/// Over pipes and over the ring.
#[test]
fn with_affinity_a_connection_has_one_worker_and_each_worker_as_many() {
    const EACH: usize = 10;
    for transport in ["relay", "ring"] {
        let server = ours(&format!("num_workers: 3, transport: {transport}"), AFFINE);
        let place = address(&server, "a");
        let mut clients: Vec<_> = (0..3 * EACH).map(|_| Client::at(place)).collect();
        let pids: Vec<_> = clients.iter_mut().map(|it| it.ask("pid")).collect();
        for _ in 0..3 {
            for client in &mut clients {
                client.send("pid\r\n");
            }
            let again: Vec<_> = clients.iter_mut().map(Client::line).collect();
            for (pid, again) in pids.iter().zip(&again) {
                assert_eq!(again.trim_end(), pid, "over {transport}");
            }
        }
        let mut counts = BTreeMap::<_, usize>::new();
        for pid in &pids {
            *counts.entry(pid).or_default() += 1;
        }
        assert!(
            counts.values().eq(&[EACH; 3]),
            "{counts:?} over {transport}"
        );
        server.stop();
    }
}

#[test]
fn with_affinity_a_slow_worker_holds_up_its_own_connections_alone() {
    let server = ours("num_workers: 2, max_queue_size: 1", AFFINE);
    let place = address(&server, "a");
    let mut clients: Vec<_> = (0..8).map(|_| Client::at(place)).collect();
    let pids: Vec<_> = clients.iter_mut().map(|it| it.ask("pid")).collect();
    let (mut same, mut others): (Vec<_>, Vec<_>) = clients
        .into_iter()
        .zip(&pids)
        .partition(|(_, pid)| **pid == pids[0]);
    assert_eq!((same.len(), others.len()), (4, 4));
    // Paused, so that it does not answer however slow the machine is.
    let stopped = rustix::process::Pid::from_raw(pids[0].parse().unwrap()).unwrap();
    rustix::process::kill_process(stopped, Signal::STOP).unwrap();
    for (client, _) in &mut same {
        client.send("pid\r\n");
    }
    for (client, pid) in &mut others {
        assert_eq!(&client.ask("pid"), *pid);
    }
    rustix::process::kill_process(stopped, Signal::CONT).unwrap();
    for (client, pid) in &mut same {
        assert_eq!(
            client.line().trim_end(),
            **pid,
            "more than wait in the queue"
        );
    }
    server.stop();
}

/// Killed, reloaded, and worn under load.
#[test]
fn with_affinity_a_connection_goes_on_when_its_worker_is_replaced() {
    let server = ours("num_workers: 2", AFFINE);
    let place = address(&server, "a");
    let mut clients: Vec<_> = (0..6).map(|_| Client::at(place)).collect();
    let ask = |clients: &mut [Client]| -> Vec<String> {
        clients.iter_mut().map(|it| it.ask("pid")).collect()
    };
    let first = ask(&mut clients);
    let killed = rustix::process::Pid::from_raw(first[0].parse().unwrap()).unwrap();
    rustix::process::kill_process(killed, Signal::KILL).unwrap();
    server.logged(&["worker died"]);
    let second = ask(&mut clients);
    for (before, after) in first.iter().zip(&second) {
        assert_eq!(before == after, *before != first[0], "{first:?} {second:?}");
    }
    assert_eq!(ask(&mut clients), second);
    server.signal(Signal::HUP);
    server.logged(&["the configuration is applied"]);
    let third = ask(&mut clients);
    assert!(third.iter().all(|pid| !second.contains(pid)), "{third:?}");
    assert_eq!(ask(&mut clients), third);
    // The state has come along, and nobody was greeted again or told of an end.
    let context = clients[0].ask("context");
    assert!(context.contains(r#""state":{"messages":6}"#), "{context}");
    let seen = events(&server, "a", 37);
    let connected = seen.iter().filter(|it| *it == "CONNECTED").count();
    assert_eq!((connected, seen.len()), (6, 37), "{seen:?}");
    server.stop();
}

#[test]
fn with_affinity_workers_that_wear_out_under_load_lose_no_message() {
    const CLIENTS: usize = 8;
    /// In which a client has its third worker, however long one takes to boot.
    const MOST: usize = 100_000;
    for transport in ["relay", "ring"] {
        let pool = format!("num_workers: 2, max_jobs: 20, transport: {transport}");
        let server = ours(&pool, AFFINE);
        let place = address(&server, "a");
        let clients = (0..CLIENTS).map(|_| {
            std::thread::spawn(move || {
                let mut client = Client::at(place);
                let (mut workers, mut asked) = (Vec::new(), 0);
                while workers.len() < 3 && asked < MOST {
                    let pid = client.ask("pid");
                    asked += 1;
                    if workers.last() != Some(&pid) {
                        assert!(!workers.contains(&pid), "it comes back: {workers:?}");
                        workers.push(pid);
                    }
                }
                assert_eq!(workers.len(), 3, "workers wear out");
                asked
            })
        });
        let clients: Vec<_> = clients.collect();
        let clients = clients.into_iter();
        let asked = clients.map(|it| it.join().expect("each message is answered"));
        let expected = asked.sum::<usize>() + 2 * CLIENTS;
        let seen = events(&server, "a", expected);
        assert_eq!(seen.len(), expected, "over {transport}");
        server.stop();
    }
}

#[test]
fn the_mail_trap_of_the_examples_takes_a_mail() {
    let site = copy("tcp");
    let config = site.read("pronghorn.yaml");
    let config = config.replace("tcp://127.0.0.1:1025", "tcp://127.0.0.1:0");
    let http = Site::fixture("foreign/worker.php");
    let http = format!(
        "http: {{address: 127.0.0.1:0, pool: {{num_workers: 1, command: php {}}}}}\nlogs: {{level: debug, encoding: json}}\n",
        http.display()
    );
    site.write("pronghorn.yaml", &format!("{config}{http}"));
    let server = Server::start_with(site, &["serve", "-c", "pronghorn.yaml"]);
    let mut client = Client::of(&server, "mail");
    assert!(client.line().starts_with("220 "));
    for (said, code) in [
        ("EHLO me", "250 "),
        ("DATA", "503 "),
        ("MAIL FROM:<a@example.org>", "250 "),
        ("RCPT TO:<b@example.org>", "250 "),
        ("DATA", "354 "),
    ] {
        let answer = client.ask(said);
        assert!(answer.starts_with(code), "{said}: {answer}");
    }
    // All at once, as mailers do it.
    client.send("Subject: hi\r\n\r\n..dots\r\n.\r\nQUIT\r\n");
    let rest = client.rest();
    assert!(
        rest.starts_with("250 ") && rest.ends_with("221 bye\r\n"),
        "{rest}"
    );
    let mails = fs::read_dir(server.site().path("mails")).expect("a directory");
    let mails: Vec<_> = mails.map(|mail| mail.unwrap().path()).collect();
    assert_eq!(mails.len(), 1, "{mails:?}");
    assert!(mails[0].extension().is_some_and(|it| it == "eml"));
    assert_eq!(
        fs::read_to_string(&mails[0]).unwrap(),
        "Subject: hi\n\n.dots\n"
    );
    server.stop();
}
