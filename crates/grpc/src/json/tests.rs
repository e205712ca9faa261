use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use pronghorn_testkit::Directory;
use proptest::prelude::*;
use prost_reflect::DynamicMessage;

use super::memory::MOST_MESSAGES;
use super::rules::Output;
use super::*;

const PROTO: &str = r#"
syntax = "proto3";
package shop.v1;
import "google/api/annotations.proto";
import "google/protobuf/wrappers.proto";
import "google/protobuf/timestamp.proto";
enum Kind { NONE = 0; BOOK = 1; }
message Item { string id = 1; Kind kind = 2; int64 price_cents = 3; repeated string tags = 4; }
message Request {
  string shop = 1;
  Item item = 2;
  bool is_draft = 3;
  google.protobuf.BoolValue flag = 4;
  google.protobuf.Timestamp since = 5;
  map<string, string> labels = 6;
  bytes raw = 7;
  repeated Request more = 8;
  map<string, Request> named = 9;
  Request next = 10;
}
service Shop {
  rpc Get(Request) returns (Item) { option (google.api.http) = {
    get: "/v1/{shop=shops/*}/items/{item.id}"
    additional_bindings { get: "/v1/items/{item.id}" }
    additional_bindings { custom: { kind: "HEAD" path: "/v1/items/{item.id}" } }
  }; }
  rpc Put(Request) returns (Item) { option (google.api.http) = {
    put: "/v1/{shop=shops/*}/items/{item.id}" body: "item" response_body: "tags"
  }; }
  rpc Post(Request) returns (Item) { option (google.api.http) = { post: "/v1/items:add" body: "*" }; }
  rpc Other(Request) returns (Item);
}
"#;

fn load(proto: &str) -> Result<Json, FileError> {
    let directory = Directory::new();
    directory.write("shop.proto", proto);
    let file = directory.join("shop.proto");
    let table = ServiceTable::load(&["shop.proto".to_owned()], directory.as_ref())?;
    let (descriptors, failed) = Descriptors::compile(&[file], &[]);
    assert!(failed.is_empty(), "{failed:?}");
    Json::new(&descriptors, &table)
}

/// The method that a request calls, and its message as JSON.
fn read(json: &Json, verb: &str, path: &str, query: &str, body: &str) -> Result<String, String> {
    let mut routes = json.routes.iter().filter(|route| route.verb == verb);
    let found = routes.find_map(|route| {
        let variables = route.template.matches(path.as_bytes())?;
        Some((route, variables))
    });
    let (route, variables) = found.ok_or("no route")?;
    let message = request::message(
        route,
        &variables,
        Some(query.as_bytes()),
        body.as_bytes(),
        &Wanted::default(),
    )?;
    let message = DynamicMessage::decode(route.method.input(), &message[..]).unwrap();
    let text = serde_json::to_string(&message).unwrap();
    Ok(format!("{} {text}", route.method.name()))
}

#[test]
fn path_query_and_body_are_one_message() {
    let json = load(PROTO).unwrap();
    let get = |path: &str, query: &str| read(&json, "GET", path, query, "");
    let seen = get(
        "/v1/shops/a/items/7",
        "item.kind=BOOK&item.price_cents=5&isDraft=true",
    );
    let expected =
        r#"Get {"shop":"shops/a","item":{"id":"7","kind":"BOOK","priceCents":"5"},"isDraft":true}"#;
    assert_eq!(seen.unwrap(), expected);
    let seen = get(
        "/v1/items/a%2Fb",
        "item.tags=x+y&item.tags=%C3%A9&flag=false&item.kind=1&",
    );
    let expected = r#"Get {"item":{"id":"a/b","kind":"BOOK","tags":["x y","é"]},"flag":false}"#;
    assert_eq!(seen.unwrap(), expected);
    let seen = get("/v1/items/7", "since=2026-11-30T10:00:00Z&raw=-_8%3D");
    let expected = r#"Get {"item":{"id":"7"},"since":"2026-11-30T10:00:00Z","raw":"+/8="}"#;
    assert_eq!(seen.unwrap(), expected);

    // The path counts more than the body, by either name of a field.
    let body = r#"{"id": "9", "price_cents": 12, "tags": ["a"]}"#;
    let seen = read(&json, "PUT", "/v1/shops/a/items/7", "isDraft=1", body);
    let expected =
        r#"Put {"shop":"shops/a","item":{"id":"7","priceCents":"12","tags":["a"]},"isDraft":true}"#;
    assert_eq!(seen.unwrap(), expected);
    let body = r#"{"item": {"price_cents": "3"}, "labels": {"a": "b"}, "flag": null}"#;
    let seen = read(&json, "POST", "/v1/items:add", "ignored=1", body);
    let expected = r#"Post {"item":{"priceCents":"3"},"labels":{"a":"b"}}"#;
    assert_eq!(seen.unwrap(), expected);
    assert_eq!(
        read(&json, "POST", "/v1/items:add", "", " ").unwrap(),
        "Post {}"
    );
    assert!(read(&json, "HEAD", "/v1/items/7", "", "").is_ok());
}

#[test]
fn what_does_not_fit_is_told() {
    let json = load(PROTO).unwrap();
    for (query, why) in [
        ("nothing=1", "`shop.v1.Request` has no field `nothing`"),
        ("item=1", "`item` is a message, `shop.v1.Item`"),
        ("item.tags.a=1", "goes through a list"),
        ("shop.a=1", "no message"),
        ("labels=1", "`labels` is a map"),
        ("isDraft=maybe", "the field `isDraft` takes `bool`: "),
        (
            "item.price_cents=x",
            "the field `item.priceCents` takes `int64`: invalid digit",
        ),
        (
            "item.kind=CAR",
            "the field `item.kind` takes a value of `shop.v1.Kind` (NONE, BOOK): ",
        ),
        ("shop=%ff", "no UTF-8"),
        (
            "since=yesterday",
            "the field `since` takes `google.protobuf.Timestamp`: ",
        ),
    ] {
        let seen = read(&json, "GET", "/v1/items/7", query, "").unwrap_err();
        assert!(seen.contains(why), "{query}: {seen}");
    }
    let many = "item.tags=a&".repeat(1001);
    assert!(read(&json, "GET", "/v1/items/7", &many, "").is_err());
    for (body, why) in [
        ("{", "the body is no JSON: "),
        ("{} {}", "the body is no JSON: "),
        ("\u{0}", "the body is no JSON: "),
        ("[]", "the message `shop.v1.Request`: "),
        (
            r#"{"unknown": 1}"#,
            "the message `shop.v1.Request`: unrecognized field name 'unknown'",
        ),
        (
            r#"{"item": {"unknown": 1}}"#,
            "the field `item` takes `shop.v1.Item`: unrecognized field name 'unknown'",
        ),
        (r#"{"item": 1}"#, "the field `item` takes `shop.v1.Item`: "),
        (
            r#"{"item": {"tags": ["a", 2]}}"#,
            "the field `item.tags[1]` takes `string`: ",
        ),
        (
            r#"{"item": {"tags": "a"}}"#,
            "the field `item.tags` takes a list of `string`: ",
        ),
        (
            r#"{"labels": {"a": {}}}"#,
            "the field `labels.a` takes `string`: ",
        ),
        (r#"{"labels": []}"#, "the field `labels` takes an object: "),
        (
            r#"{"more": [{}, {"item": {"price_cents": true}}]}"#,
            "the field `more[1].item.price_cents` takes `int64`: ",
        ),
        (
            r#"{"named": {"x": {"raw": "!"}}}"#,
            "the field `named.x.raw` takes `bytes` in base64: ",
        ),
        (
            r#"{"flag": "maybe"}"#,
            "the field `flag` takes `google.protobuf.BoolValue`: ",
        ),
    ] {
        let seen = read(&json, "POST", "/v1/items:add", "", body).unwrap_err();
        assert!(seen.starts_with(why), "{body}: {seen}");
    }
    let nested = |brackets: usize| {
        let body = "[".repeat(brackets) + &"]".repeat(brackets);
        read(&json, "POST", "/v1/items:add", "", &body).unwrap_err()
    };
    assert!(nested(127).starts_with("the message `shop.v1.Request`: "));
    for brackets in [128, 100_000] {
        let why = "the body has more than 127 brackets in one another";
        assert_eq!(nested(brackets), why);
    }
    let long = format!("{{\"{}\": 1}}", "x".repeat(100_000));
    let why = read(&json, "POST", "/v1/items:add", "", &long).unwrap_err();
    assert!(why.len() < 20_000, "{}", why.len());
}

#[test]
fn both_ways_messages_are_nested_as_deep_as_in_protobuf() {
    let json = load(PROTO).unwrap();
    let request = |levels: usize| {
        let body = r#"{"next":"#.repeat(levels - 1) + "{}" + &"}".repeat(levels - 1);
        read(&json, "POST", "/v1/items:add", "", &body)
    };
    // The outermost one is not counted by protobuf.
    assert!(request(MOST_MESSAGES + 1).is_ok());
    let why = request(MOST_MESSAGES + 2).unwrap_err();
    assert!(why.contains("nested deeper than 100 messages"), "{why}");
    let output = Output {
        message: json.pool.get_message_by_name("shop.v1.Request").unwrap(),
        part: None,
    };
    let answer = |levels: usize| {
        let mut message = Vec::new();
        for _ in 1..levels {
            let mut outer = vec![0x52];
            prost::encode_length_delimiter(message.len(), &mut outer).unwrap();
            outer.extend(message);
            message = outer;
        }
        success(&output, &message)
    };
    assert!(answer(MOST_MESSAGES + 1).is_ok());
    let why = answer(MOST_MESSAGES + 2).unwrap_err().message;
    assert!(why.contains("nested deeper than 100 messages"), "{why}");
}

#[test]
fn routes_that_others_hide_are_told() {
    assert_eq!(load(PROTO).unwrap().hidden(), [""; 0]);
    let rpc = |name: &str, rule: &str| {
        format!(
            "rpc {name}(Request) returns (Item) {{ option (google.api.http) = {{ {rule} }}; }}\n"
        )
    };
    let more = [
        rpc("Same", r#"get: "/v1/items/{shop}""#),
        rpc(
            "Any",
            r#"custom: { kind: "*" path: "/v1/items/{item.id}" }"#,
        ),
        rpc(
            "Twice",
            r#"get: "/v1/a" additional_bindings { get: "/v1/a" }"#,
        ),
        rpc("Beside", r#"get: "/v1/items/{item.id}:show""#),
    ];
    let other = "rpc Other(Request) returns (Item);";
    let json = load(&PROTO.replace(other, &more.concat())).unwrap();
    let expected = [
        "gives `shop.v1.Shop.Twice` the route `GET /v1/a` twice: the first rule counts",
        "gives `shop.v1.Shop.Same` the route `GET /v1/items/{shop}`, which `shop.v1.Shop.Get` has \
         as `/v1/items/{item.id}`: `shop.v1.Shop.Get` comes first and gets the requests",
    ];
    assert_eq!(json.hidden(), expected);
    let called = |verb: &str| {
        let mut routes = json.routes.iter();
        let fits = |route: &&Arc<Route>| {
            let has_path = route.template.matches(b"/v1/items/7").is_some();
            has_path && (route.verb == verb || route.verb == "*")
        };
        routes
            .find(fits)
            .map(|route| route.method.name().to_owned())
    };
    // A rule for one method of HTTP comes before one for all.
    assert_eq!(called("HEAD").as_deref(), Some("Get"));
    assert_eq!(called("DELETE").as_deref(), Some("Any"));
}

#[test]
fn mistakes_in_rules_name_their_method() {
    for (rule, why) in [
        ("get: \"v1\"", "does not begin with `/`"),
        ("get: \"/{none}\"", "has no field `none`"),
        ("post: \"/\" body: \"none\"", "empty part"),
        ("post: \"/a\" body: \"none\"", "`body` names `none`"),
        (
            "get: \"/a\" response_body: \"none\"",
            "`response_body` names `none`",
        ),
        ("body: \"*\"", "no path"),
    ] {
        let option = format!(
            "rpc Other(Request) returns (Item) {{ option (google.api.http) = {{ {rule} }}; }}"
        );
        let proto = PROTO.replace("rpc Other(Request) returns (Item);", &option);
        let seen = load(&proto).unwrap_err().to_string();
        assert!(
            seen.contains("shop.v1.Shop.Other") && seen.contains(why),
            "{seen}"
        );
    }
}

#[test]
fn a_message_is_counted_before_it_becomes_json() {
    let json = load(PROTO).unwrap();
    let route = json.routes.iter().find(|route| route.verb == "POST");
    let input = route.unwrap().method.input();
    // Each is a message with a text: seven bytes.
    let many = [0x42, 0x05, 0x0a, 0x03, b'a', b'b', b'c'].repeat(1000);
    let counted = memory::of_message(&input, &many, false);
    assert!((840_000..1_500_000).contains(&counted), "{counted}");
    assert!(memory::of_message(&input, &many, true) > counted + 600_000);
    let text = [&[0x0a, 0x80, 0x08][..], &[b'x'; 1024]].concat();
    assert!(memory::of_message(&input, &text, false) < 8192);
    // It is counted up to what can't be read.
    assert!(memory::of_message(&input, &many[..many.len() - 1], false) > 800_000);
}

#[test]
fn replies_and_failures_are_json() {
    let json = load(PROTO).unwrap();
    let route = |name: &str| {
        json.routes
            .iter()
            .find(|it| it.method.name() == name)
            .unwrap()
    };
    let item = b"\x0a\x017\x18\x05\x22\x01a";
    let said = success(&route("Get").output, item).unwrap();
    assert_eq!(said, br#"{"id":"7","priceCents":"5","tags":["a"]}"#);
    assert_eq!(success(&route("Put").output, item).unwrap(), br#"["a"]"#);
    assert_eq!(success(&route("Put").output, b"").unwrap(), b"[]");
    assert_eq!(
        success(&route("Get").output, b"\xff").unwrap_err().code,
        Code::Internal
    );

    let any = b"\x1a\x1e\x0a\x12t/shop.v1.Unknown.\x12\x08abcdefgh";
    let known = b"\x1a\x18\x0a\x0et/shop.v1.Item\x12\x06\x0a\x017\x22\x01a";
    let status = Status {
        code: Code::NotFound,
        message: "no \"item\"".to_owned(),
        details: Some(Bytes::from([&known[..], any].concat())),
    };
    let response = failure(&json.pool, &status.into());
    assert_eq!(response.status, 404);
    let Body::Whole(body) = response.body else {
        panic!("it is whole");
    };
    let expected = format!(
        r#"{{"code":5,"details":[{{"@type":"t/shop.v1.Item","id":"7","tags":["a"]}},{{"@type":"t/shop.v1.Unknown.","value":"{}"}}],"message":"no \"item\""}}"#,
        STANDARD.encode("abcdefgh")
    );
    // The order of keys is that of serde_json, which features of other crates change.
    let parsed = |text: &[u8]| serde_json::from_slice::<serde_json::Value>(text).unwrap();
    assert_eq!(parsed(&body), parsed(expected.as_bytes()));
}

proptest! {
    #[test]
    fn no_request_makes_it_panic(query in "[a-z_.=&%0-9]{0,30}", body in "[{}\\[\\]\":,a-z0-9]{0,30}") {
        thread_local!(static JSON: Json = load(PROTO).unwrap());
        JSON.with(|json| {
            _ = read(json, "GET", "/v1/items/7", &query, "");
            _ = read(json, "POST", "/v1/items:add", "", &body);
            _ = read(json, "PUT", "/v1/shops/a/items/7", &query, &body);
        });
    }
}
