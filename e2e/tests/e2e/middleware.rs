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
