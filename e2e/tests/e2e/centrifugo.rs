//! Centrifugo: its calls, answered by workers that speak as RoadRunner's package does, and its API
//! over RPC. Both ends are played here; `tests/centrifugo` has a real one.

#![expect(
    clippy::unwrap_used,
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "its client and its API are those of a test, and fail as one"
)]

use std::io::Write;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::{HeaderMap, Response};
use pronghorn_testkit::{Certificates, Connection, Server, Site, free_address, wait_for};
use pronghorn_wire::frame::Flags;
use rustix::process::{Pid, Signal, kill_process};
use tokio::runtime::Runtime;

use crate::control::Rpc;
use crate::grpc_client::{Client, Got, framed, runtime};

const PROXY: &str = "centrifugal.centrifugo.proxy.CentrifugoProxy";

/// A server, and where it takes Centrifugo's calls. `keys` are more of the section's.
fn start(keys: &str) -> (Server, SocketAddr) {
    start_with(Site::new(), keys)
}

fn start_with(site: Site, keys: &str) -> (Server, SocketAddr) {
    let address = free_address();
    let site = site.config(&format!(
        "version: '3'\n\
         server: {{command: php {}, env: {{COLOUR: red}}}}\n\
         http: {{address: '127.0.0.1:0', pool: {{num_workers: 1, command: php {}}}}}\n\
         rpc: {{listen: 'tcp://127.0.0.1:0'}}\n\
         logs: {{level: debug}}\n\
         centrifuge:\n  proxy_address: 'tcp://{address}'\n{keys}",
        Site::fixture("foreign/centrifugo.php").display(),
        Site::fixture("foreign/worker.php").display(),
    ));
    (Server::start(site), address)
}

const POOL: &str = "  pool: {num_workers: 2}\n";

/// A message with a text in its first field, and another field that nobody here knows.
fn message(text: &str) -> Vec<u8> {
    let length = u8::try_from(text.len()).unwrap();
    let unknown = b"\xfa\x07\x01x";
    [&[10, length], text.as_bytes(), unknown].concat()
}

/// The first field of a worker's message.
fn text_of(message: &[u8]) -> String {
    let length = usize::from(message[1] & 0x7f) | usize::from(message[2]) << 7;
    String::from_utf8(message[3..3 + length].to_vec()).unwrap()
}

fn connect(address: SocketAddr) -> Client {
    Client::connect(address, "pronghorn.test")
}

/// Centrifugo's connection.
impl Client {
    /// Calls a method with a body.
    fn exchange(&self, path: &str, fields: &[(&str, &str)], body: Bytes) -> Got {
        let fields = [&[("user-agent", "grpc-go/1.82.0")], fields].concat();
        let mut talking = self.begin(path, &fields, false);
        // A call without a key may be refused before its body is sent.
        _ = talking.sending.send_data(body, true);
        self.finish(talking)
    }

    fn ask(&self, method: &str, fields: &[(&str, &str)], word: &str) -> Got {
        let body = framed(0, &message(word));
        self.exchange(&format!("/{PROXY}/{method}"), fields, body)
    }

    /// The text of an answer.
    fn told(&self, method: &str, fields: &[(&str, &str)], word: &str) -> String {
        let got = self.ask(method, fields, word);
        assert_eq!(got.code(), "0", "{got:?}");
        text_of(&got.body[5..])
    }
}

#[test]
fn calls_come_to_workers_as_roadrunners_package_reads_them() {
    let (server, address) = start(POOL);
    let client = connect(address);
    for (method, kind) in [
        ("Connect", "connect"),
        ("Refresh", "refresh"),
        ("Subscribe", "subscribe"),
        ("Publish", "publish"),
        ("RPC", "rpc"),
        ("SubRefresh", "subrefresh"),
        ("NotifyCacheEmpty", "notifycacheempty"),
        ("NotifyChannelState", "notifychannelstate"),
        ("SomethingLater", "somethinglater"),
    ] {
        assert_eq!(client.told(method, &[], "type"), kind);
        let got = client.ask(method, &[], "as it is");
        assert_eq!(got.body, framed(0, &message("as it is")), "{method}");
    }
    let fields = [
        ("grpc-timeout", "9S"),
        ("grpc-accept-encoding", "gzip"),
        ("x-b", "2"),
        ("x-a", "<é>"),
        ("x-b", "1"),
        ("type", "rpc"),
    ];
    let context = client.told("Connect", &fields, "context");
    assert_eq!(
        context,
        r#"{":authority":["pronghorn.test"],"content-type":["application/grpc"],"grpc-accept-encoding":["gzip"],"type":["connect"],"user-agent":["grpc-go/1.82.0"],"x-a":["<é>"],"x-b":["2","1"]}"#
    );
    let long = client.told("RPC", &[], "long 16000");
    assert_eq!(long.len(), 16_000);
    let mut rpc = Rpc::connect(&server);
    assert_eq!(rpc.workers("centrifuge").len(), 2);
    drop((rpc, client));
    server.stop();
}

#[test]
fn what_goes_wrong_is_a_status_and_the_next_call_is_answered() {
    let (server, address) = start(POOL);
    let client = connect(address);
    for (word, code, says) in [
        ("throw", "2", "thrown on purpose"),
        (
            "malformed",
            "2",
            "the worker's answer is no protobuf message",
        ),
        ("stream", "2", "streaming response not supported"),
        (
            "ignore",
            "2",
            "the worker did not answer: its package does not know the request, or its loop passed over \
             it",
        ),
        ("die", "14", "the worker ended with exit code 3"),
    ] {
        let got = client.ask("RPC", &[], word);
        assert_eq!((got.code(), got.message()), (code, says), "{word}");
        assert_eq!(client.told("RPC", &[], "type"), "rpc");
    }
    let begun = Instant::now();
    let got = client.ask("RPC", &[("grpc-timeout", "200m")], "sleep 3000");
    assert_eq!(got.code(), "4", "{got:?}");
    assert!(begun.elapsed() < Duration::from_secs(3));

    for (path, says) in [
        (
            format!("/{PROXY}/SubscribeBidirectional"),
            "SubscribeBidirectional streams, which is not supported",
        ),
        (
            "/other.Service/Connect".to_owned(),
            "unknown service other.Service",
        ),
    ] {
        let got = client.exchange(&path, &[], framed(0, b""));
        assert_eq!((got.code(), got.message()), ("12", says));
    }
    let got = client.exchange(
        &format!("/{PROXY}/RPC"),
        &[],
        Bytes::from_static(b"\0\xff\0\0\0"),
    );
    assert_eq!(got.code(), "8", "a message of four gigabytes: {got:?}");
    assert_eq!(client.told("RPC", &[], "type"), "rpc");
    server.logged(&["a call of Centrifugo failed", "RPC"]);
    drop(client);
    server.stop();
}

#[test]
fn compressed_messages_are_understood() {
    let (server, address) = start(POOL);
    let client = connect(address);
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    gzip.write_all(&message("long 3000")).unwrap();
    let body = framed(1, &gzip.finish().unwrap());
    let fields = [("grpc-encoding", "gzip"), ("grpc-accept-encoding", "gzip")];
    let got = client.exchange(&format!("/{PROXY}/RPC"), &fields, body);
    assert_eq!((got.code(), got.body[0]), ("0", 1));
    assert_eq!(got.headers["grpc-encoding"], "gzip");
    assert!(got.body.len() < 200, "{}", got.body.len());
    drop(client);
    server.stop();
}

#[test]
fn calls_without_the_proxys_key_are_refused_and_it_stays_here() {
    let (server, address) =
        start("  proxy_key: hush-hush\n  proxy_key_name: X-Key\n  pool: {num_workers: 1}\n");
    let client = connect(address);
    for fields in [
        &[][..],
        &[("x-key", "hush-hus")],
        &[("x-key", "hush-hush-")],
    ] {
        let got = client.ask("RPC", fields, "type");
        assert_eq!(got.code(), "16", "{fields:?} {got:?}");
    }
    let context = client.told("RPC", &[("x-key", "hush-hush")], "context");
    assert!(
        !context.contains("hush") && !context.contains("x-key"),
        "{context}"
    );
    assert!(!server.log().contains("hush"));
    drop(client);
    server.stop();
}

#[test]
fn a_worker_that_is_killed_ends_its_call_alone() {
    let (server, address) = start("  pool: {num_workers: 1}\n");
    let client = connect(address);
    let pid: i32 = client.told("RPC", &[], "pid").parse().unwrap();
    kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
    let other = wait_for("another worker", || {
        let got = client.ask("RPC", &[], "pid");
        (got.code() == "0").then(|| text_of(&got.body[5..]))
    });
    assert_ne!(other, pid.to_string());
    drop(client);
    server.stop();
}

/// What Centrifugo's API was asked.
type Asked = Arc<Mutex<Vec<(String, HeaderMap, Vec<u8>)>>>;

/// An API that gives each message back, until it is dropped.
struct Api {
    address: SocketAddr,
    asked: Asked,
    _runtime: Runtime,
}

impl Api {
    fn start() -> Self {
        let (runtime, asked) = (runtime(), Asked::default());
        let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0"));
        let listener = listener.unwrap();
        let address = listener.local_addr().unwrap();
        let noted = asked.clone();
        runtime.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(answer(stream, noted.clone()));
            }
        });
        Self {
            address,
            asked,
            _runtime: runtime,
        }
    }
}

async fn answer(stream: tokio::net::TcpStream, asked: Asked) {
    let mut connection = h2::server::handshake(stream).await.unwrap();
    while let Some(Ok((request, mut respond))) = connection.accept().await {
        let asked = asked.clone();
        tokio::spawn(async move {
            let (head, mut body) = request.into_parts();
            let mut all = Vec::new();
            while let Some(Ok(piece)) = body.data().await {
                _ = body.flow_control().release_capacity(piece.len());
                all.extend_from_slice(&piece);
            }
            let path = head.uri.path().to_owned();
            asked
                .lock()
                .unwrap()
                .push((path, head.headers, all.clone()));
            let head = Response::builder().header("content-type", "application/grpc");
            let mut send = respond
                .send_response(head.body(()).unwrap(), false)
                .unwrap();
            send.send_data(all.into(), false).unwrap();
            let mut trailers = HeaderMap::new();
            trailers.insert("grpc-status", "0".parse().unwrap());
            send.send_trailers(trailers).unwrap();
        });
    }
}

#[test]
fn the_api_is_asked_over_rpc_and_a_reload_changes_where_and_how() {
    let api = Api::start();
    let away = free_address();
    let (server, address) = start(&format!(
        "  grpc_api_address: 'tcp://{}'\n  grpc_api_key: hush-hush\n  pool: {{num_workers: 1}}\n",
        api.address
    ));
    let mut rpc = Rpc::connect(&server);
    let message = message("news");
    for method in ["Publish", "Broadcast", "Disconnect", "SharedPollPublish"] {
        let name = format!("centrifuge.{method}");
        let (flags, reply) = rpc.ask(Flags::PROTO, &name, &message);
        assert!(
            !flags.has(Flags::ERROR),
            "{}",
            String::from_utf8_lossy(&reply)
        );
        assert_eq!(reply, message);
        let asked = api.asked.lock().unwrap().pop().unwrap();
        assert_eq!(
            asked.0,
            format!("/centrifugal.centrifugo.api.CentrifugoApi/{method}")
        );
        assert_eq!(asked.1["authorization"], "apikey hush-hush");
        assert_eq!(asked.2, framed(0, &message));
    }
    assert_eq!(rpc.call("centrifuge.Info", "\"CgFh\""), "\"CgFh\"");
    let unknown = rpc.call("centrifuge.Nothing", "\"\"");
    assert!(unknown.contains("can't find method"), "{unknown}");

    let client = connect(address);
    assert_eq!(client.told("RPC", &[], "colour"), "red");
    let site = server.site();
    site.change_config("COLOUR: red", "COLOUR: blue");
    site.change_config(&format!("{}", api.address), &away.to_string());
    site.change_config("grpc_api_key: hush-hush", "proxy_key: a-secret");
    server.signal(Signal::HUP);
    wait_for("the reload", || {
        let got = client.ask("RPC", &[], "colour");
        (got.code() == "16").then_some(())
    });
    let colour = client.told("RPC", &[("proxy-key", "a-secret")], "colour");
    assert_eq!(colour, "blue", "over the same connection");
    let gone = rpc.call("centrifuge.Info", "\"\"");
    let begins = format!(
        "error: rpc error: code = Unavailable desc = Centrifugo's API at {away}: Connection refused"
    );
    assert!(
        gone.starts_with(&begins) && gone.contains("start Centrifugo"),
        "{gone}"
    );

    // A reload that can't be applied changes nothing.
    site.change_config(
        "proxy_key: a-secret",
        "proxy_key: another\n  tls: {root_ca: nowhere.pem}",
    );
    server.signal(Signal::HUP);
    server.logged(&["reload failed, nothing has changed", "nowhere.pem"]);
    assert_eq!(
        client.told("RPC", &[("proxy-key", "a-secret")], "colour"),
        "blue"
    );
    assert!(!server.log().contains("hush"));
    drop((rpc, client));
    server.stop();
}

#[test]
fn an_api_that_answers_nonsense_or_nothing_is_not_waited_for() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let keys = format!("  grpc_api_address: '{address}'\n  grpc_api_timeout: 300ms\n{POOL}");
    let (server, _) = start(&keys);
    let mut rpc = Rpc::connect(&server);
    // It is connected to, by the kernel, and nobody answers.
    let silent = rpc.call("centrifuge.Info", "\"\"");
    assert!(silent.contains("code = DeadlineExceeded"), "{silent}");
    assert!(silent.contains("did not answer within 0.3 s"), "{silent}");
    let serving = std::thread::spawn(move || {
        // The one from before, and that of the next call.
        for stream in listener.incoming().take(2) {
            let answer = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n";
            _ = stream.and_then(|mut stream| stream.write_all(answer));
        }
    });
    let nonsense = rpc.call("centrifuge.Info", "\"\"");
    assert!(nonsense.contains("code = Unavailable"), "{nonsense}");
    assert!(nonsense.contains("`grpc_api.port`"), "{nonsense}");
    serving.join().unwrap();
    drop(rpc);
    server.stop();
}

/// An HTTPS listener plays the API: whoever gets its 404 has come through TLS.
#[test]
fn the_api_is_reached_over_tls_with_an_authority_of_ones_own() {
    let certificates = Certificates::new();
    let (api, proxy) = (free_address(), free_address());
    let path = |name| certificates.path(name).display().to_string();
    let tls = |more: &str| {
        let config = format!(
            "version: '3'\n\
             server: {{command: php {}}}\n\
             rpc: {{listen: 'tcp://127.0.0.1:0'}}\n\
             logs: {{level: debug}}\n\
             http: {{address: '127.0.0.1:0', pool: {{num_workers: 1, command: php {}}}, \
             ssl: {{address: '{api}', cert: {}, key: {}}}}}\n\
             centrifuge: {{proxy_address: '{proxy}', grpc_api_address: '{api}', \
             tls: {{cert: {}, key: {}{more}}}, pool: {{num_workers: 1}}}}\n",
            Site::fixture("foreign/centrifugo.php").display(),
            Site::fixture("foreign/worker.php").display(),
            path("server.pem"),
            path("server.key"),
            path("client.pem"),
            path("client.key"),
        );
        let server = Server::start(Site::new().config(&config));
        let said = Rpc::connect(&server).call("centrifuge.Info", "\"\"");
        server.stop();
        said
    };
    let trusted = tls(&format!(", root_ca: {}", path("ca.pem")));
    assert!(trusted.contains("without a status of gRPC"), "{trusted}");
    let unknown = tls("");
    assert!(
        unknown.contains("`root_ca` names an authority of your own"),
        "{unknown}"
    );
}

#[test]
fn an_upgrade_takes_the_listener_over() {
    let (mut server, address) = start(POOL);
    let client = connect(address);
    assert_eq!(client.told("RPC", &[], "type"), "rpc");
    server.upgrade();
    let later = connect(address);
    assert_eq!(later.told("RPC", &[], "type"), "rpc");
    drop((client, later));
    server.stop();
}

#[test]
fn it_is_ready_with_its_workers_and_counts_calls() {
    let site = Site::new();
    let (metrics, status, admin) = (free_address(), free_address(), free_address());
    let (address, api) = (free_address(), free_address());
    let site = site.config(&format!(
        "version: '3'\n\
         server: {{command: php {}}}\n\
         http: {{address: '127.0.0.1:0', pool: {{num_workers: 1, command: php {}}}}}\n\
         metrics: {{address: '{metrics}'}}\nstatus: {{address: '{status}'}}\n\
         admin: {{listen: '{admin}'}}\nrpc: {{listen: 'tcp://127.0.0.1:0'}}\n\
         logs: {{level: debug}}\n\
         centrifuge: {{proxy_address: 'tcp://{address}', grpc_api_address: '{api}', \
           pool: {{num_workers: 1}}}}\n",
        Site::fixture("foreign/centrifugo.php").display(),
        Site::fixture("foreign/worker.php").display(),
    ));
    let server = Server::start(site);
    let client = connect(address);
    client.ask("RPC", &[], "throw");
    client.ask("LaterMethod", &[], "type");
    let page = Connection::open(metrics).get("/metrics").text();
    for line in [
        "pronghorn_centrifugo_calls_total{method=\"RPC\",status=\"Unknown\"} 1",
        "pronghorn_centrifugo_calls_total{method=\"other\",status=\"OK\"} 1",
        "pronghorn_centrifugo_calls_in_progress 0",
    ] {
        assert!(page.contains(line), "{line} in\n{page}");
    }
    let ready = Connection::open(status).get("/ready?plugin=centrifuge");
    assert_eq!(ready.status, 200);
    // The admin page has both directions.
    let failed = Rpc::connect(&server).call("centrifuge.Info", "\"\"");
    assert!(failed.contains("code = Unavailable"), "{failed}");
    let mut asking = Connection::open(admin);
    // Another host is refused: a page of somebody else's could ask so.
    asking.send(format!(
        "GET /api/v1/centrifugo HTTP/1.1\r\nHost: {admin}\r\n\r\n"
    ));
    let page = asking.response().text();
    let page: serde_json::Value = serde_json::from_str(&page).expect("JSON");
    assert_eq!(page["proxy"]["address"], format!("grpc://{address}"));
    assert_eq!(page["proxy"]["in_progress"], 0);
    let calls = page["proxy"]["calls"].as_array().expect("a list");
    let call = serde_json::json!({"method": "RPC", "status": "Unknown", "count": 1});
    assert!(calls.contains(&call), "{page}");
    let of_api = &page["api"];
    assert_eq!(
        (&of_api["calls"], &of_api["failures"]),
        (&1.into(), &1.into())
    );
    let why = of_api["last_failure"]["why"].as_str().expect("a text");
    assert!(why.contains("Unavailable"), "{why}");
    drop(client);
    server.stop();
}
