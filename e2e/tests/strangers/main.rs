//! Programs of others: `make test-strangers`. They are the client of gRPC's interoperability tests,
//! grpcurl, Python's grpcio, and the authority Pebble.

use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::{Command, Output};

mod acme;

use pronghorn_testkit::{Certificates, Server, Site, built};

/// Cases of the client in Go that need no cloud.
const CASES: [&str; 18] = [
    "empty_unary",
    "large_unary",
    "client_streaming",
    "server_streaming",
    "ping_pong",
    "empty_stream",
    "timeout_on_sleeping_server",
    "cancel_after_begin",
    "cancel_after_first_response",
    "status_code_and_message",
    "special_status_message",
    "custom_metadata",
    "unimplemented_method",
    "unimplemented_service",
    "pick_first_unary",
    "rpc_soak",
    "channel_soak",
    "orca_per_rpc",
];

/// Has the client's balancer look at the reports of load.
const LOAD_REPORTS: &str =
    r#"{"loadBalancingConfig": [{"test_backend_metrics_load_balancer": {}}]}"#;

const PROTO: &str = "syntax = 'proto3';\npackage test.v1;\nmessage Text { string text = 1; int32 count = 2; }\n\
     service Talk {\n rpc Say(Text) returns (Text);\n rpc Count(Text) returns (stream Text);\n \
     rpc Join(stream Text) returns (Text);\n rpc Chat(stream Text) returns (stream Text);\n}\n";

fn tool(name: &str) -> PathBuf {
    built("pronghorn").with_file_name("../tools").join(name)
}

fn start(worker: &str, proto: &str, more: &str) -> (Server, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("it is bound");
    drop(listener);
    let config = format!(
        "version: '3'\nrpc: {{listen: 'tcp://127.0.0.1:0'}}\n\
         server: {{command: php {}}}\n\
         grpc:\n  listen: 'tcp://{address}'\n  proto: ['*.proto']\n  pool: {{num_workers: 4}}\n{more}",
        Site::fixture(worker).display()
    );
    let site = Site::new().config(&config).file("service.proto", proto);
    (Server::start_without_http(site), address)
}

fn run(command: &mut Command) -> (String, Output) {
    let output = command.output();
    let output = output.expect("`scripts/need strangers` has built it");
    let said = [&output.stdout[..], &output.stderr].concat();
    (String::from_utf8_lossy(&said).into_owned(), output)
}

/// Runs every case, and tells of all that failed.
fn interoperate(address: SocketAddr, more: &[&str]) {
    let mut failed = Vec::new();
    for case in CASES {
        let port = address.port().to_string();
        let mut command = Command::new(tool("grpc-interop-client"));
        command.args(["--server_host", "127.0.0.1", "--server_port", &port]);
        command.args(["--test_case", case, "--soak_iterations", "20"]);
        if case == "orca_per_rpc" {
            command.args(["--service_config_json", LOAD_REPORTS]);
        }
        let (said, output) = run(command.args(more));
        if !output.status.success() {
            failed.push(format!("{case}: {said}"));
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

#[test]
fn the_interoperability_client_of_go_passes() {
    let proto = std::fs::read_to_string(Site::fixture("grpc/interop.proto")).expect("a file");
    let (server, address) = start("grpc/interop.php", &proto, "");
    interoperate(address, &[]);
    server.stop();
}

#[test]
fn it_passes_over_tls() {
    let certificates = Certificates::new();
    let path = |name: &str| certificates.path(name).display().to_string();
    let tls = format!(
        "  tls: {{cert: {}, key: {}}}\n",
        path("server.pem"),
        path("server.key")
    );
    let proto = std::fs::read_to_string(Site::fixture("grpc/interop.proto")).expect("a file");
    let (server, address) = start("grpc/interop.php", &proto, &tls);
    let authority = path("ca.pem");
    let tls = ["--use_tls", "--use_test_ca", "--ca_file", &authority];
    interoperate(
        address,
        &[&tls[..], &["--server_host_override", "localhost"]].concat(),
    );
    server.stop();
}

#[test]
fn grpcurl_finds_and_calls_methods_by_reflection() {
    let (server, address) = start("grpc/ours.php", PROTO, "");
    let address = address.to_string();
    let grpcurl = |arguments: &[&str]| {
        let mut command = Command::new(tool("grpcurl"));
        let (said, output) = run(command.arg("-plaintext").args(arguments));
        assert!(output.status.success(), "{arguments:?}: {said}");
        said
    };
    let listed = grpcurl(&[&address, "list"]);
    for service in ["test.v1.Talk", "grpc.health.v1.Health"] {
        assert!(listed.contains(service), "{listed}");
    }
    let described = grpcurl(&[&address, "describe", "test.v1.Talk"]);
    assert!(
        described.contains("rpc Chat ( stream .test.v1.Text ) returns ( stream .test.v1.Text )"),
        "{described}"
    );
    // All that was listed.
    let described = grpcurl(&[&address, "describe"]);
    for service in listed.lines() {
        let is = format!("{service} is a service:");
        assert!(described.contains(&is), "{is} in {described}");
    }
    assert!(described.contains("rpc Watch ( "), "{described}");
    let said = grpcurl(&["-d", r#"{"text": "hi"}"#, &address, "test.v1.Talk/Say"]);
    assert!(said.contains("\"hi!\""), "{said}");
    let counted = grpcurl(&[
        "-d",
        r#"{"text": "a", "count": 3}"#,
        &address,
        "test.v1.Talk/Count",
    ]);
    assert!(counted.contains("\"count\": 3"), "{counted}");
    let asked = r#"{"text": "a"} {"text": "b"}"#;
    let chatted = grpcurl(&["-d", asked, &address, "test.v1.Talk/Chat"]);
    assert!(
        chatted.contains("\"a?\"") && chatted.contains("\"b?\""),
        "{chatted}"
    );
    server.stop();
}

#[test]
fn grpcio_of_python_calls_each_kind_of_method() {
    let (server, address) = start("grpc/ours.php", PROTO, "");
    let mut python = Command::new(tool("grpcio/bin/python"));
    let (said, output) = run(python
        .arg(Site::fixture("grpc/client.py"))
        .arg(address.to_string()));
    assert!(
        output.status.success() && said.contains("all is well"),
        "{said}\n{}",
        server.log()
    );
    server.stop();
}
