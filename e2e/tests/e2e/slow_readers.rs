//! Clients that take a response slowly, beside such as take nothing: at the limit of connections
//! these go.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::park_timeout;
use std::time::Duration;

use pronghorn_testkit::Server;
use rustix::net::{AddressFamily, SocketType, connect, socket, sockopt};

use crate::http2::{request, site_with_large_file, with_window};
use crate::memory::block;
use crate::secure::port;

/// Bytes per second.
const RATES: [usize; 3] = [5_000, 100_000, 1_000_000];
const PROTOCOLS: [&str; 3] = ["--http1.1", "--http2-prior-knowledge", "--http2"];

/// A slow network between a client and the server.
struct SlowLine {
    address: SocketAddr,
    taken: Arc<AtomicU64>,
}

impl SlowLine {
    fn to(server: SocketAddr, rate: usize) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let line = Self {
            address: listener.local_addr().expect("it is bound"),
            taken: Arc::default(),
        };
        let taken = line.taken.clone();
        std::thread::spawn(move || {
            let (mut client, _) = listener.accept().expect("a client");
            let mut far = narrow(server, rate / 4);
            let (mut sent, mut asked) = (
                client.try_clone().expect("a copy"),
                far.try_clone().expect("a copy"),
            );
            std::thread::spawn(move || std::io::copy(&mut sent, &mut asked));
            let mut bytes = vec![0; rate / 10];
            loop {
                match far.read(&mut bytes) {
                    Ok(0) | Err(_) => break,
                    Ok(read) => {
                        taken.fetch_add(read as u64, Ordering::Relaxed);
                        if client.write_all(&bytes[..read]).is_err() {
                            break; // the test is over
                        }
                        park_timeout(Duration::from_micros((read * 1_000_000 / rate) as u64));
                    }
                }
            }
        });
        line
    }

    fn taken(&self) -> u64 {
        self.taken.load(Ordering::Relaxed)
    }
}

/// A connection whose kernel holds no more than so many bytes for it, as over a network of this
/// rate.
fn narrow(address: SocketAddr, bytes: usize) -> TcpStream {
    let opened = socket(AddressFamily::INET, SocketType::STREAM, None).expect("a socket");
    sockopt::set_socket_recv_buffer_size(&opened, bytes).expect("it is set");
    connect(&opened, &address).expect("it accepts");
    opened.into()
}

/// What a client downloads through a slow line, until it is killed.
struct Download(SlowLine, Child, String);

impl Download {
    fn begin(server: &Server, protocol: &str, rate: usize) -> Self {
        let (scheme, at) = match protocol {
            "--http2" => ("https", (Ipv4Addr::LOCALHOST, port(server)).into()),
            _ => ("http", server.address()),
        };
        let line = SlowLine::to(at, rate);
        let curl = Command::new("curl")
            .args(["--silent", "--insecure", "--noproxy", "*", protocol])
            .arg(format!("{scheme}://{}/long.bin?slow", line.address))
            .stdout(Stdio::null())
            .spawn()
            .expect("curl is installed");
        Self(line, curl, format!("{protocol} at {rate} B/s"))
    }
}

impl Drop for Download {
    fn drop(&mut self) {
        _ = self.1.kill();
        _ = self.1.wait();
    }
}

/// What is in the server's buffers still reaches a client that it has cut off: only the server
/// knows.
fn none_has_ended(server: &Server) {
    let log = server.log();
    let ended: Vec<&str> = log.lines().filter(|it| it.contains("bin?slow")).collect();
    assert!(ended.is_empty(), "{ended:#?}");
}

#[test]
fn slow_clients_keep_their_places_beside_such_as_take_nothing() {
    const MOST: usize = 40;
    const ROUNDS: usize = 180; // some seconds
    let server = Server::start(site_with_large_file(&format!(
        "  max_connections: {MOST}\n"
    )));
    let path = server.site().path("public/long.bin");
    let long = std::fs::File::create(path).expect("a file");
    long.set_len(256 << 20).expect("it may be longer");
    let downloads: Vec<Download> = PROTOCOLS
        .iter()
        .flat_map(|protocol| RATES.map(|rate| Download::begin(&server, protocol, rate)))
        .collect();
    park_timeout(Duration::from_secs(2)); // they wait for room by now
    let mut unread = VecDeque::new();
    for _ in 0..ROUNDS {
        for begin in [
            b"GET /long.bin HTTP/1.1\r\nHost: a\r\n\r\n".to_vec(),
            [
                with_window(1 << 30),
                block(1, true, &request("/long.bin", &[])),
            ]
            .concat(),
            [with_window(0), block(1, true, &request("/long.bin", &[]))].concat(),
        ] {
            let mut stream = TcpStream::connect(server.address()).expect("it listens");
            _ = stream.write_all(&begin); // who is refused sees it later
            unread.push_back(stream);
        }
        // More than can be cut off a second later: whoever counts as such goes.
        park_timeout(Duration::from_millis(40));
        while unread.len() > 2 * MOST {
            unread.pop_front();
        }
    }
    let before: Vec<u64> = downloads.iter().map(|it| it.0.taken()).collect();
    park_timeout(Duration::from_secs(2));
    for (Download(line, _, what), before) in downloads.iter().zip(before) {
        assert!(line.taken() > before, "{what}: {before}");
    }
    none_has_ended(&server);
    assert_eq!(server.get("/show").status, 200, "there is room for others");
    server.logged(&["idle connections closed for new ones"]);
    drop((downloads, unread));
    server.stop();
}

#[test]
fn a_client_that_is_slower_than_buffers_are_large_gets_all_of_it() {
    // A write finds room again only once a third of the buffer is free.
    let files = "  timeouts: {send: 1s}\n";
    let server = Server::start(site_with_large_file(files));
    let path = server.site().path("public/long.bin");
    let long = std::fs::File::create(path).expect("a file");
    long.set_len(256 << 20).expect("it may be longer");
    let downloads: Vec<Download> = PROTOCOLS
        .iter()
        .map(|protocol| Download::begin(&server, protocol, RATES[0]))
        .collect();
    let unread = |begin: &[u8]| {
        let mut stream = TcpStream::connect(server.address()).expect("it listens");
        stream.write_all(begin).expect("it reads");
        stream
    };
    let unread = [
        unread(b"GET /long.bin HTTP/1.1\r\nHost: a\r\n\r\n"),
        unread(
            &[
                with_window(1 << 30),
                block(1, true, &request("/long.bin", &[])),
            ]
            .concat(),
        ),
    ];
    park_timeout(Duration::from_secs(6));
    none_has_ended(&server);
    for mut stream in unread {
        let read = std::io::copy(&mut stream, &mut std::io::sink());
        assert!(read.unwrap_or(0) < 256 << 20, "it was closed long before");
    }
    drop(downloads);
    server.stop();
}
