//! What requests and responses pass between the client and PHP.

use pronghorn_testkit::{Server, Site};
use rustix::process::Signal;

/// The SDK's application, with more keys for `http`.
fn site(http: &str) -> Site {
    Site::new().config(&format!(
        "version: '3'\nserver:\n  command: php {}\nlogs: {{level: debug}}\nhttp:\n  address: 127.0.0.1:0\n  pool: {{num_workers: 1}}\n{http}",
        Site::fixture("app.php").display()
    ))
}

#[test]
fn headers_are_set_on_the_way_to_php_and_back() {
    let server = Server::start(site(
        "  middleware: [headers]
  headers:
    request: {X-Internal: 'yes', Cookie: ''}
    response: {X-Powered-By: Pronghorn, X-One: ours, X-Two: ''}
",
    ));
    let response = server.get("/headers");
    assert_eq!(response.all("x-powered-by"), ["Pronghorn"]);
    assert_eq!(response.all("x-one"), ["ours"], "in place of PHP's");
    assert_eq!(response.all("x-two"), Vec::<&str>::new(), "removed");
    let mut connection = server.connect();
    connection.request("GET", "/show", "X-INTERNAL: forged\r\nCookie: a=b\r\n");
    let shown = connection.response().text();
    assert!(shown.contains(r#""x-internal":["yes"]"#), "{shown}");
    assert!(!shown.contains(r#""cookie":"#), "{shown}");
    assert!(shown.contains(r#""cookies":[]"#), "{shown}");
    // What PHP never sees has them, too.
    let refused = server.get("/throw");
    assert_eq!(
        (refused.status, refused.header("x-one")),
        (500, Some("ours"))
    );
    server.stop();
}

#[test]
fn another_chain_is_in_effect_after_a_reload() {
    let server = Server::start(site(
        "  middleware: []\n  headers: {response: {X-Ours: first}}\n",
    ));
    assert_eq!(server.get("/").header("x-ours"), None);
    server.logged(&["`http.headers` is not used"]);
    server
        .site()
        .change_config("middleware: []", "middleware: [headers]");
    server.signal(Signal::HUP);
    server.logged(&["the configuration is applied"]);
    assert_eq!(server.get("/").header("x-ours"), Some("first"));
    server.stop();
}

#[test]
fn a_browser_s_question_is_answered_without_php() {
    let server = Server::start(site(
        "  middleware: [headers]
  headers:
    response: {X-Ours: 'yes'}
    cors: {allowed_origin: 'https://*.example.com', allowed_methods: 'GET,PUT', max_age: 60}
",
    ));
    let origin = "Origin: https://a.example.com\r\n";
    let mut connection = server.connect();
    let ask = format!("{origin}Access-Control-Request-Method: PUT\r\n");
    connection.request("OPTIONS", "/status?code=500", &ask);
    let answer = connection.response();
    assert_eq!((answer.status, answer.text()), (200, String::new()));
    assert_eq!(answer.header("access-control-allow-methods"), Some("PUT"));
    assert_eq!(answer.header("access-control-max-age"), Some("60"));
    assert_eq!(answer.header("x-ours"), Some("yes"));
    connection.request("GET", "/headers", origin);
    let response = connection.response();
    let allowed = response.all("access-control-allow-origin");
    assert_eq!(allowed, ["https://a.example.com"]);
    assert_eq!(response.all("vary"), ["Origin"]);
    // Another site's page is not told that it may read, and PHP answers it all the same: it is the browser that keeps it.
    connection.request("GET", "/", "Origin: https://example.org\r\n");
    let response = connection.response();
    assert_eq!(response.text(), "Hello");
    assert_eq!(response.header("access-control-allow-origin"), None);
    // Who asks for the options without a page behind it is PHP's.
    connection.request("OPTIONS", "/status?code=204", "");
    assert_eq!(connection.response().status, 204);
    server.stop();
}
