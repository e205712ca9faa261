//! Methods of gRPC as JSON over HTTP, by `google.api.http`. The binary of tests has the feature
//! `descriptors`.

use std::net::SocketAddr;
use std::time::Duration;

use pronghorn_testkit::{Connection, Response, Server, Site, wait_for};
use tokio::time::Instant;

use crate::grpc;

const PROTO: &str = r#"
syntax = "proto3";
package test.v1;
import "google/api/annotations.proto";
message Text { string text = 1; int32 count = 2; }
service Talk {
  rpc Say(Text) returns (Text) { option (google.api.http) = {
    get: "/v1/say/{text}"
    additional_bindings { post: "/v1/say" body: "*" }
    additional_bindings { put: "/v1/say/{count}" body: "text" response_body: "count" }
  }; }
  rpc Count(Text) returns (stream Text) { option (google.api.http) = { get: "/v1/count" }; }
  rpc Join(stream Text) returns (Text) { option (google.api.http) = { post: "/v1/join" body: "*" }; }
  rpc Chat(stream Text) returns (stream Text);
  rpc Absent(Text) returns (Text) { option (google.api.http) = { get: "/v1/absent:{never}" }; }
}
"#;

fn ask(address: SocketAddr, method: &str, target: &str, body: &str) -> Response {
    let mut connection = Connection::open(address);
    let fields = format!(
        "Content-Type: application/json\r\nX-A: 1\r\nContent-Length: {}\r\n",
        body.len()
    );
    connection.request(method, target, &fields);
    connection.send(body);
    connection.response()
}

#[test]
fn methods_with_rules_answer_json() {
    let more = "  json_transcoding: true\n  max_recv_msg_size: 1\n  pool: {num_workers: 2}\n";
    let (site, address) = grpc::site("grpc/ours.php", more);
    let proto = PROTO.replace("/v1/absent:{never}", "/v1/absent");
    site.write("talk.proto", &proto);
    let server = Server::start_without_http(site);
    let said = ask(address, "GET", "/v1/say/h%C3%A9?count=4", "");
    assert_eq!(said.status, 200);
    assert_eq!(said.header("content-type"), Some("application/json"));
    assert_eq!(said.header("x-a"), Some("1"), "the method's own metadata");
    assert_eq!(said.text(), r#"{"text":"hé!","count":5}"#);
    let said = ask(address, "POST", "/v1/say", r#"{"text": "a", "count": 1}"#);
    assert_eq!(said.text(), r#"{"text":"a!","count":2}"#);
    let said = ask(address, "PUT", "/v1/say/8", r#""a""#);
    assert_eq!(said.text(), "9");

    for (method, target, body, status, words) in [
        ("GET", "/v1/say/fail", "", 404, "\"details\":[{\"@type\":"),
        ("GET", "/v1/say/throw", "", 500, "the method failed"),
        ("GET", "/v1/say/a?none=1", "", 400, "has no field `none`"),
        ("POST", "/v1/say", "{", 400, "the body is no JSON"),
        (
            "POST",
            "/v1/say",
            "{\"count\": \"x\"}",
            400,
            "the field `count` takes `int32`: ",
        ),
        ("DELETE", "/v1/say/a", "", 405, "the path has other methods"),
        (
            "POST",
            "/v1/join",
            "{}",
            501,
            "methods whose clients stream have no JSON",
        ),
        ("GET", "/v1/absent", "", 501, "\"code\":12"),
        ("GET", "/v1/nothing", "", 404, "no method has this path"),
    ] {
        let said = ask(address, method, target, body);
        assert_eq!(said.status, status, "{target}: {}", said.text());
        assert!(said.text().contains(words), "{target}: {}", said.text());
    }
    let other = ask(address, "DELETE", "/v1/say/a", "");
    assert_eq!(other.header("allow"), Some("GET, PUT"));
    // Pages of other sites can send these without being asked.
    for (content, status) in [
        ("text/plain", 415),
        ("application/x-www-form-urlencoded", 415),
        ("multipart/form-data; boundary=b", 415),
        ("application/jsonx", 415),
        ("Application/JSON; charset=utf-8", 200),
        ("application/vnd.api+json", 200),
    ] {
        let mut connection = Connection::open(address);
        let fields = format!("Content-Type: {content}\r\nContent-Length: 13\r\n");
        connection.request("POST", "/v1/say", &fields);
        connection.send(r#"{"text": "a"}"#);
        let said = connection.response();
        assert_eq!(said.status, status, "{content}: {}", said.text());
        let has_hint = said
            .text()
            .contains("write `Content-Type: application/json`");
        assert_eq!(has_hint, status == 415, "{}", said.text());
    }
    let long = format!("{{\"text\": \"{}\"}}", "x".repeat(1 << 20));
    assert_eq!(ask(address, "POST", "/v1/say", &long).status, 429);
    // A form of gRPC that is not spoken is no path that is missing.
    let mut connection = Connection::open(address);
    connection.request(
        "POST",
        "/v1/nothing",
        "Content-Type: application/grpc+json\r\nContent-Length: 0\r\n",
    );
    assert_eq!(connection.response().status, 415);
    // Calls go on, on the same port.
    assert_eq!(grpc::connect(address).say("a").body, grpc::text("a!", 1));
    server.stop();
}

/// Reading it takes longer than anything else that an I/O thread does.
#[test]
fn a_long_list_keeps_no_other_client_waiting() {
    let more = "  json_transcoding: true\n  client_memory: 1GB\n  pool: {num_workers: 1}\n";
    let (site, address) = grpc::site("grpc/ours.php", more);
    site.write(
        "talk.proto",
        &PROTO.replace("/v1/absent:{never}", "/v1/absent"),
    );
    let server = Server::start_without_http(site);
    let list = format!("{{\"text\": [0{}]}}", ",0".repeat(3 << 20));
    // Each I/O thread has some of them.
    let mut others: Vec<_> = (0..8).map(|_| Connection::open(address)).collect();
    let mut long = Connection::open(address);
    let fields = format!("Content-Length: {}\r\n", list.len());
    long.request("POST", "/v1/say", &fields);
    long.send(&list);
    let begin = Instant::now();
    for other in &mut others {
        assert_eq!(other.get("/v1/nothing").status, 404);
    }
    let took = begin.elapsed();
    let said = long.response();
    assert_eq!(said.status, 400);
    assert!(
        said.text().contains("the field `text` takes"),
        "{}",
        said.text()
    );
    let all = begin.elapsed();
    assert!(took < all / 2, "others waited for {took:?} of {all:?}");
    server.stop();
}

/// Of few bytes many values: what they take is counted before they are read.
#[test]
fn lists_that_wait_to_be_read_are_counted_with_their_values() {
    let more = "  json_transcoding: true\n  client_memory: 64MB\n  pool: {num_workers: 1}\n";
    let (site, address) = grpc::site("grpc/ours.php", more);
    site.write(
        "talk.proto",
        &PROTO.replace("/v1/absent:{never}", "/v1/absent"),
    );
    let server = Server::start_without_http(site);
    let list = format!("{{\"text\": [0{}]}}", ",0".repeat(4 << 20));
    let mut long = Connection::open(address);
    long.request(
        "POST",
        "/v1/say",
        &format!("Content-Length: {}\r\n", list.len()),
    );
    long.send(&list);
    assert_eq!(long.response().status, 429);
    assert_eq!(ask(address, "GET", "/v1/nothing", "").status, 404);
    server.stop();
}

fn streaming() -> (Server, SocketAddr) {
    let more = "  json_transcoding: true\n  pool: {num_workers: 2}\n";
    let (site, address) = grpc::site("grpc/ours.php", more);
    let rules = PROTO.replace("/v1/absent:{never}", "/v1/absent");
    let rules = rules.replace(
        "get: \"/v1/count\"",
        "get: \"/v1/count\" additional_bindings { get: \"/v1/numbers\" response_body: \"count\" }",
    );
    site.write("talk.proto", &rules);
    (Server::start_without_http(site), address)
}

#[test]
fn a_stream_is_lines_of_json() {
    let (server, address) = streaming();
    let got = ask(address, "GET", "/v1/count?text=a&count=2", "");
    assert_eq!(got.status, 200);
    assert_eq!(got.header("content-type"), Some("application/x-ndjson"));
    let lines =
        "{\"result\":{\"text\":\"a\",\"count\":1}}\n{\"result\":{\"text\":\"a\",\"count\":2}}\n";
    assert_eq!(got.text(), lines);
    let got = ask(address, "GET", "/v1/numbers?count=2", "");
    assert_eq!(got.text(), "{\"result\":1}\n{\"result\":2}\n");

    // A failure after messages is the last line; one before them is as that of other methods.
    for (text, last) in [
        (
            "fail",
            "{\"code\":10,\"message\":\"enough\",\"details\":[]}",
        ),
        (
            "throw",
            "{\"code\":13,\"message\":\"the method failed\",\"details\":[]}",
        ),
    ] {
        let got = ask(
            address,
            "GET",
            &format!("/v1/count?text={text}&count=5"),
            "",
        );
        let lines: Vec<_> = got.text().lines().map(str::to_owned).collect();
        assert_eq!((got.status, lines.len()), (200, 3), "{lines:?}");
        assert_eq!(lines[2], format!("{{\"error\":{last}}}"));
    }
    let got = ask(address, "GET", "/v1/count?text=early", "");
    assert_eq!(
        (got.status, got.header("content-type")),
        (404, Some("application/json"))
    );
    assert!(got.text().contains("nothing to count"), "{}", got.text());
    server.stop();
}

#[test]
fn a_stream_of_json_ends_with_its_deadline_and_with_its_client() {
    let (server, address) = streaming();
    let mut connection = Connection::open(address);
    connection.request("GET", "/v1/count?text=endless", "grpc-timeout: 100m\r\n");
    let got = connection.response().text();
    let last = got.lines().last().unwrap_or_default();
    assert!(last.starts_with("{\"error\":{\"code\":4,"), "{last}");
    assert!(got.lines().count() > 2, "{got}");
    drop(connection);
    // Over HTTP/1.1 and without a word.
    let mut connection = Connection::open(address);
    connection.request("GET", "/v1/count?text=endless", "");
    connection.head();
    assert!(connection.chunk().is_some());
    connection.leave();
    wait_for("the end of the second count", || {
        let ended = server.log().matches("the count ended at").count();
        (ended == 2).then_some(())
    });
    server.stop();
}

#[expect(
    clippy::disallowed_methods,
    reason = "nothing happens that could be waited for: the client does not read"
)]
#[test]
fn a_client_that_reads_no_json_holds_php_back() {
    let (server, address) = streaming();
    let mut connection = Connection::open(address);
    let target = format!("/v1/count?text={}", "x".repeat(1000));
    connection.request("GET", &target, "");
    connection.head();
    assert!(connection.chunk().is_some());
    let before = server.resident_memory();
    std::thread::sleep(Duration::from_millis(500)); // as long as the client reads nothing
    let grown = server.resident_memory().saturating_sub(before);
    assert!(grown < 16 << 10, "{grown} KB more");
    connection.leave();
    server.logged(&["the count ended at"]);
    server.stop();
}

#[test]
fn json_comes_to_the_addresses_of_http_as_well() {
    let worker = Site::fixture("grpc/ours.php");
    let config = format!(
        "version: '3'\nserver: {{command: php {}}}\n\
         http: {{address: '127.0.0.1:0', pool: {{command: php web.php, num_workers: 1}}}}\n\
         grpc: {{on_http: true, json_transcoding: true, proto: ['*.proto'], pool: {{num_workers: 1}}}}\n",
        worker.display()
    );
    let proto = PROTO.replace("/v1/absent:{never}", "/v1/absent");
    let site = Site::new().config(&config).file("talk.proto", &proto);
    let server = Server::start(site.file("web.php", &Site::sdk_worker("return 'a page';")));
    assert_eq!(server.get("/v1/say/a").text(), r#"{"text":"a!","count":1}"#);
    assert_eq!(server.get("/v1/nothing").text(), "a page");
    server.stop();
}

#[test]
fn a_rule_that_cannot_be_used_is_told_by_check() {
    let (site, _) = grpc::site("grpc/ours.php", "  json_transcoding: true\n");
    site.write("talk.proto", PROTO);
    let ended = Server::run(&site, &["check"]);
    ended.assert_said_with(
        2,
        &[
            "google.api.http",
            "test.v1.Talk.Absent",
            "/v1/absent:{never}",
        ],
    );
}

#[test]
fn files_without_json_are_named_by_check_and_at_the_start() {
    let more =
        "  json_transcoding: true\n  pool: {num_workers: 1}\n  stream_pool: {num_workers: 1}\n";
    let (site, _) = grpc::site("grpc/ours.php", more);
    let rules = PROTO.replace("/v1/absent:{never}", "/v1/say/{count}");
    site.write("talk.proto", &rules);
    site.write("b.proto", "edition = \"2023\"; package other;");
    let words = [
        "a file that has no JSON, and of which reflection knows only names: `",
        "b.proto`: `edition = \"2023\"` is not compiled here",
    ];
    let route = "gives `test.v1.Talk.Absent` the route `GET /v1/say/{count}`, which \
                 `test.v1.Talk.Say` has as `/v1/say/{text}`: `test.v1.Talk.Say` comes first";
    let ended = Server::run(&site, &["check"]);
    ended.assert_said_with(0, &[words[0], words[1], route]);
    let server = Server::start_without_http(site);
    server.logged(&["WARN", words[0], words[1]]);
    server.logged(&["WARN", route]);
    server.stop();
}

const STRUCTS: &str = r#"
syntax = "proto3";
package test.v1;
import "google/api/annotations.proto";
import "google/protobuf/struct.proto";
message Text { string text = 1; int32 count = 2; google.protobuf.Struct any = 3; }
service Talk {
  rpc Say(Text) returns (Text) { option (google.api.http) = { post: "/v1/say" body: "*" }; }
}
"#;

/// A value of a `Struct` is a message: two bytes become a kilobyte.
#[test]
fn values_that_would_take_all_memory_are_refused() {
    let more = "  json_transcoding: true\n  client_memory: 64MB\n  pool: {num_workers: 1}\n";
    let (site, address) = grpc::site("grpc/ours.php", more);
    site.write("talk.proto", STRUCTS);
    let server = Server::start_without_http(site);
    let body = |values: usize| format!("{{\"any\": {{\"a\": [0{}]}}}}", ",0".repeat(values));
    let said = ask(address, "POST", "/v1/say", &body(40_000));
    assert!(
        said.text().contains("no Text"),
        "PHP has it: {}",
        said.text()
    );
    let before = server.peak_memory();
    let said = ask(address, "POST", "/v1/say", &body(1 << 20));
    assert_eq!(said.status, 429, "{}", said.text());
    let words = "take more memory than `grpc.client_memory`";
    assert!(said.text().contains(words), "{}", said.text());
    let grown = server.peak_memory().saturating_sub(before);
    assert!(grown < 64 << 10, "{grown} KB");
    server.stop();
}

/// The time that a client gives counts from the head of its request on.
#[test]
fn a_deadline_holds_while_long_bodies_wait() {
    let more = "  json_transcoding: true\n  pool: {num_workers: 1}\n";
    let (site, address) = grpc::site("grpc/ours.php", more);
    site.write("talk.proto", STRUCTS);
    let server = Server::start_without_http(site);
    let long = format!("{{\"any\": {{\"a\": [0{}]}}}}", ",0".repeat(100_000));
    let begin = Instant::now();
    assert_ne!(ask(address, "POST", "/v1/say", &long).status, 429);
    let all = begin.elapsed();
    let fields = format!("grpc-timeout: 1m\r\nContent-Length: {}\r\n", long.len());
    let mut connection = Connection::open(address);
    let begin = Instant::now();
    connection.request("POST", "/v1/say", &fields);
    connection.send(&long);
    let said = connection.response();
    assert_eq!(said.status, 504, "{}", said.text());
    let took = begin.elapsed();
    assert!(took < all / 2, "{took:?} of {all:?}");
    // What it began is left: the next one needs not wait for it.
    assert_eq!(ask(address, "POST", "/v1/say", "{}").status, 200);
    server.stop();
}
