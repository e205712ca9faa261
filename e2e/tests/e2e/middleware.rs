//! What requests and responses pass between the client and PHP.

use std::fmt::Write as _;
use std::io::Write as _;
use std::net::TcpStream;

use pronghorn_testkit::{Connection, Server, Site, wait_for};
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
    // Another site's page is not told that it may read, and PHP answers it all the same: it is the
    // browser that keeps it.
    connection.request("GET", "/", "Origin: https://example.org\r\n");
    let response = connection.response();
    assert_eq!(response.text(), "Hello");
    assert_eq!(response.header("access-control-allow-origin"), None);
    // Who asks for the options without a page behind it is PHP's.
    connection.request("OPTIONS", "/status?code=204", "");
    assert_eq!(connection.response().status, 204);
    server.stop();
}

#[test]
fn every_request_has_a_line_that_nobody_from_outside_can_break() {
    let server = Server::start(site(
        "  request_id: {}
  access_log: {output: [access.log, stdout]}
",
    ));
    let mut connection = server.connect();
    connection.send(
        b"GET /?a=\"\\b HTTP/1.1\r\nHost: h\r\nUser-Agent: evil\" 200 1\t\"\xe2\x80\xa8\r\n\r\n",
    );
    assert_eq!(connection.response().text(), "Hello");
    server.get("/status?code=500");
    let seen = server.stop();
    let stdout: Vec<&str> = seen
        .stdout
        .lines()
        .filter(|line| line.starts_with("127.0.0.1"))
        .collect();
    let [first, second] = stdout[..] else {
        panic!("{}", seen.stdout);
    };
    assert!(first.starts_with("127.0.0.1 - - ["), "{first}");
    assert!(
        first.ends_with(
            r#"] "GET /?a=\x22\x5cb HTTP/1.1" 200 5 "-" "evil\x22 200 1\x09\x22\xe2\x80\xa8""#
        ),
        "{first}"
    );
    assert!(
        second.contains(r#""GET /status?code=500 HTTP/1.1" 500 0 "-""#),
        "{second}"
    );
}

#[test]
fn what_is_answered_before_anybody_saw_it_has_a_line_too() {
    let server = Server::start(site(
        "  timeouts: {head: 1s}
  access_log: {format: '{ip} {status} {bytes} {method} {target} {path} {protocol} {scheme} {host} {header:a}{response_header:b}', output: access.log}
",
    ));
    let long = format!(
        "GET / HTTP/1.1\r\nHost: h\r\nA: {}\r\n\r\n",
        "a".repeat(70_000)
    );
    let mut lines = String::new();
    for (request, status, line) in [
        (
            "GET /a?\"b HTTP/1.1\r\nHost: a, b\r\n\r\n",
            400,
            "GET /a?\\x22b /a HTTP/1.1 http - --",
        ),
        (
            "\u{16}\u{3}\u{1} x\"\r\n\r\n",
            400,
            "\\x16\\x03\\x01 x\\x22 x\\x22 - http - --",
        ),
        (&long, 431, "GET / / HTTP/1.1 http - --"),
        (
            "POST / HTTP/1.1\r\nHost: h",
            408,
            "POST / / HTTP/1.1 http - --",
        ),
        (
            "OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n",
            200,
            "OPTIONS * * HTTP/1.1 http - --",
        ),
    ] {
        let mut connection = server.connect();
        connection.send(request.as_bytes());
        let answer = connection.response();
        assert_eq!(answer.status, status, "{request:?}");
        let bytes = answer.body.len();
        writeln!(lines, "127.0.0.1 {status} {bytes} {line}").unwrap();
    }
    let site = server.into_site();
    assert_eq!(site.read("access.log"), lines);
}

#[test]
fn a_sample_of_none_still_shows_failures_and_what_was_slow() {
    let server = Server::start(site(
        "  request_id: {header: X-Trace}
  access_log: {format: '{status} {target} {request_id} {response_header:x-test}', output: access.log, sample: 0, slow: 1s}
",
    ));
    let made = server.get("/").header("x-trace").map(str::to_owned);
    assert!(made.is_some_and(|id| id.len() == 16));
    let mut connection = server.connect();
    connection.request("GET", "/status?code=503", "X-Trace: mine-1\r\n");
    assert_eq!(connection.response().header("x-trace"), Some("mine-1"));
    connection.request("GET", "/sleep?ms=1100", "X-Trace: <script>\r\n");
    let other = connection.response().header("x-trace").unwrap().to_owned();
    server.logged(&["http log", "\"status\":503", "\"request_id\":\"mine-1\""]);
    let site = server.into_site();
    let lines = format!("503 /status?code=503 mine-1 yes\n200 /sleep?ms=1100 {other} -\n");
    assert_eq!(site.read("access.log"), lines);
}

#[test]
fn php_knows_the_number_of_its_request() {
    let server = Server::start(site("  request_id: {from_client: false}\n"));
    let mut connection = server.connect();
    connection.request("GET", "/show", "X-Request-Id: forged\r\n");
    let response = connection.response();
    let id = response.header("x-request-id").unwrap();
    assert!(
        response
            .text()
            .contains(&format!(r#""x-request-id":["{id}"]"#)),
        "{}",
        response.text()
    );
    assert_ne!(id, "forged");
    let failed = server.get("/throw");
    let ids = failed.all("x-request-id");
    assert_eq!(ids.len(), 1, "one number for one request");
    server.logged(&[
        "thrown on purpose",
        &format!("\"request_id\":\"{}\"", ids[0]),
    ]);
    server.stop();
}

#[test]
fn a_trusted_proxy_tells_php_who_the_client_is() {
    let http = "  trusted_subnets: [127.0.0.0/8]
  trusted_headers: [X-Forwarded-For, X-Forwarded-Proto, X-Forwarded-Host]
  access_log: {format: '{ip} {scheme} {host}', output: access.log}
";
    let server = Server::start(site(http));
    let mut connection = server.connect();
    let told = "X-Forwarded-For: 198.51.100.7, 192.0.2.1\r\nX-Forwarded-Proto: https\r\n\
                X-Forwarded-Host: shop.example\r\nForwarded: for=198.51.100.8\r\n";
    connection.request("GET", "/show", told);
    let shown = connection.response().text();
    assert!(shown.contains(r#""remote":"192.0.2.1""#), "{shown}");
    assert!(
        shown.contains(r#""uri":"https://shop.example/show""#),
        "{shown}"
    );
    // The next request of the same connection is another client's.
    connection.request("GET", "/show", "X-Forwarded-For: 192.0.2.2\r\n");
    let shown = connection.response().text();
    assert!(shown.contains(r#""remote":"192.0.2.2""#), "{shown}");
    assert!(shown.contains(r#""uri":"http://test/show""#), "{shown}");
    // What is no host does not become one.
    connection.request(
        "GET",
        "/show",
        "X-Forwarded-For: 192.0.2.3\r\nX-Forwarded-Host: evil.example/@x\r\n",
    );
    let shown = connection.response().text();
    assert!(shown.contains(r#""uri":"http://test/show""#), "{shown}");
    server.logged(&["http log", r#""remote_address":"192.0.2.1""#]);
    let site = server.into_site();
    let lines = "192.0.2.1 https shop.example\n192.0.2.2 http test\n192.0.2.3 http test\n";
    assert_eq!(site.read("access.log"), lines);
}

#[test]
fn a_stranger_tells_nothing() {
    let server = Server::start(site(
        "  middleware: [proxy_ip_parser]\n  trusted_subnets: [10.0.0.0/8, unix]\n",
    ));
    let mut connection = server.connect();
    let forged =
        "X-Forwarded-For: 192.0.2.1\r\nX-Forwarded-Proto: https\r\nForwarded: for=192.0.2.2\r\n";
    connection.request("GET", "/show", forged);
    let shown = connection.response().text();
    assert!(shown.contains(r#""remote":"127.0.0.1""#), "{shown}");
    assert!(shown.contains(r#""uri":"http://test/show""#), "{shown}");
    server.stop();
}

#[test]
fn more_requests_than_the_rate_are_refused_until_later() {
    let server = Server::start(site(
        "  middleware: [rate_limit, headers]
  headers: {response: {X-Ours: 'yes'}}
  rate_limit: {rate: 3/h, by: 'header:X-Key'}
  routes: [{path: /pid, rate_limit: {rate: 1/h}}]
",
    ));
    let mut connection = server.connect();
    let mut ask = |target, key: &str| {
        connection.request("GET", target, &format!("X-Key: {key}\r\n"));
        connection.response()
    };
    for _ in 0..3 {
        assert_eq!(ask("/", "one").status, 200);
    }
    let refused = ask("/", "one");
    assert_eq!(refused.status, 429);
    let wait: u32 = refused.header("retry-after").unwrap().parse().unwrap();
    assert!(
        (1100..=1200).contains(&wait),
        "{wait} s to the next of three in an hour"
    );
    assert_eq!(
        refused.header("x-ours"),
        Some("yes"),
        "what is around it sees the refusal"
    );
    assert_eq!(ask("/", "two").status, 200, "another client");
    // A route's own, by the address.
    assert_eq!(ask("/pid", "three").status, 200);
    assert_eq!(ask("/pid", "four").status, 429);
    server.logged(&["requests refused: a client has sent too many in 1h"]);
    server.stop();
}

#[test]
fn the_limiter_of_roadrunner_3_has_its_answers() {
    let server = Server::start(site(
        "  middleware: [rate_limiter]
  rate_limiter: {key: header, header: X-Key, rate: 1, interval: 1h, burst: 2}
",
    ));
    let mut connection = server.connect();
    let mut ask = |headers: &str| {
        connection.request("GET", "/", headers);
        connection.response()
    };
    assert_eq!(
        [ask("X-Key: a\r\n").status, ask("X-Key: a\r\n").status],
        [200, 200]
    );
    assert_eq!(ask("X-Key: b\r\n").status, 200, "another client");
    for (headers, status, text, waits) in [
        ("X-Key: a\r\n", 429, "Too Many Requests\n", true),
        ("", 400, "Bad Request\n", false),
        ("X-Key:  \r\n", 400, "Bad Request\n", false),
    ] {
        let refused = ask(headers);
        assert_eq!((refused.status, refused.text().as_str()), (status, text));
        for (name, value) in [
            ("cache-control", "no-store"),
            ("content-type", "text/plain; charset=utf-8"),
            ("x-content-type-options", "nosniff"),
        ] {
            assert_eq!(refused.header(name), Some(value), "{headers:?}");
        }
        let wait = refused
            .header("retry-after")
            .map(|wait| wait.parse::<u32>().unwrap());
        assert_eq!(
            wait.is_some_and(|wait| (3590..=3600).contains(&wait)),
            waits
        );
    }
    server.stop();
}

#[test]
fn an_address_has_so_many_connections_and_no_more() {
    let server = Server::start(site("  max_per_address: 2\n"));
    let mut first = server.connect();
    let mut second = server.connect();
    assert_eq!((first.get("/").status, second.get("/").status), (200, 200));
    assert!(server.connect().is_closed());
    server.logged(&["connections refused: an address has reached `http.max_per_address`"]);
    drop(first);
    wait_for("the place is free again", || {
        let mut third = server.connect();
        third.request("GET", "/", "");
        (!third.is_closed()).then_some(())
    });
    drop(second);
    server.stop();
}

#[test]
fn behind_a_proxy_the_requests_of_an_address_are_counted() {
    let server = Server::start(site(
        "  max_per_address: 1\n  trusted_subnets: [127.0.0.1]\n  pools: {more: {num_workers: 2}}\n  routes: [{pool: more}]\n",
    ));
    let one = "X-Forwarded-For: 192.0.2.1\r\n";
    let (mut first, mut second) = (server.connect(), server.connect());
    first.request("GET", "/wait", one);
    // Else the second one may have the place, and the first one is refused.
    wait_for("the first one to be under way", || {
        let workers = server.steer(&["workers"]).stdout;
        workers.contains("/wait").then_some(())
    });
    second.request("GET", "/", one);
    assert_eq!(second.response().status, 429);
    second.request("GET", "/", "X-Forwarded-For: 192.0.2.2\r\n");
    assert_eq!(
        second.response().status,
        200,
        "another client over the same proxy"
    );
    server.site().write("go", "");
    assert_eq!(first.response().status, 200);
    wait_for("the place is free again", || {
        second.request("GET", "/", one);
        (second.response().status == 200).then_some(())
    });
    server.stop();
}

#[test]
fn paths_are_rewritten_and_redirected() {
    let server = Server::start(site(
        "  middleware: [rewrite]
  rewrite:
  - {path: '^/old/(.*)$', to: 'https://www.example.org/new/{1}', status: 308}
  - {host: go.example, path: '^/(.*)$', to: '/{1}', status: 302}
  - {path: '^/person/([0-9]+)$', to: '/show?id={1}'}
",
    ));
    let redirect = server.get("/old/a%0d%0ab?c=d");
    assert_eq!(redirect.status, 308);
    assert_eq!(
        redirect.header("location"),
        Some("https://www.example.org/new/a%0d%0ab?c=d")
    );
    let mut connection = server.connect();
    connection.request("GET", "http://go.example//evil.example", "");
    assert_eq!(
        connection.response().header("location"),
        Some("/evil.example")
    );
    let shown = server.get("/person/7?a=b").text();
    assert!(shown.contains(r#""path":"/show""#), "{shown}");
    assert!(shown.contains(r#""query":{"id":"7","a":"b"}"#), "{shown}");
    server.stop();
}

#[test]
fn a_rewrite_takes_no_limit_from_the_path_of_the_client() {
    let server = Server::start(site(
        "  middleware: [rewrite]
  rewrite:
  - {path: '^/(login|about)$', to: '/show?page={1}'}
  - {path: '^/show/(.*)$', to: '/show?page={1}'}
  routes:
  - {path: /login, rate_limit: {rate: 1/h}}
  - {path: [/show, '/show/*'], rate_limit: {rate: 5/h}}
",
    ));
    for (path, status) in [
        ("/login", 200),
        ("/login", 429),
        ("/%6Cogin?a", 429),
        // The limit of the new path holds, too, and counts once where both are one.
        ("/about", 200),
        ("/show/a", 200),
        ("/show/b", 200),
        ("/show", 200),
        ("/show/c", 429),
        ("/about", 429),
    ] {
        assert_eq!(server.get(path).status, status, "{path}");
    }
    server.stop();
}

#[test]
fn a_rule_leaves_to_a_route_what_that_refuses() {
    let server = Server::start(site(
        "  middleware: [rewrite]
  rewrite:
  - {path: '^/api/(.*)$', to: '/show?r={1}', unless_refused: true}
  - {path: '^/old/(.*)$', to: '/show?r={1}'}
  routes:
  - {not_method: [GET, POST], refuse: 405}
  - {path: /api/inner/open}
  - {path: ['/api/inner/*', '/old/*'], refuse: 403}
  - {path: '!~ ^/(api|show)', header: {X-Strict: '1'}, refuse: 410}
",
    ));
    for (path, status) in [
        ("/api/x", 200),
        ("/old/x", 200),
        ("/api/inner/open", 200),
        ("/api/inner/x", 403),
        ("/api/%69nner/x", 403),
        ("/api/INNER/x", 403),
        ("/api//inner/x", 403),
        ("/api/y/../inner/x", 403),
        ("/api/inner%2Fx", 403),
    ] {
        assert_eq!(server.get(path).status, status, "{path}");
    }
    for (method, target, field, status) in [
        ("PUT", "/api/x", "", 405),
        ("FOO", "/api/x", "", 405),
        ("POST", "/api/x", "Content-Length: 0\r\n", 200),
        ("GET", "/api/x", "X-Strict: 1\r\n", 200),
        ("GET", "/x", "X-Strict: 1\r\n", 410),
    ] {
        let mut connection = server.connect();
        connection.request(method, target, field);
        assert_eq!(connection.response().status, status, "{method} {target}");
    }
    server.stop();
}

#[test]
fn routes_tell_clients_apart_by_their_addresses() {
    let site = site(
        "  trusted_subnets: [127.0.0.1]
  middleware: [static, rewrite]
  static: {dir: public}
  rewrite: [{path: '^/open/(.*)$', to: '/admin/{1}', unless_refused: true}]
  routes:
  - {path: /open/b, address: 10.0.0.0/8, refuse: 410}
  - {path: ['/admin/*', '/files/*'], not_address: [10.0.0.0/8, 'fd00::/8'], refuse: 403}
  - {address: 10.6.6.6, refuse: 451}
",
    );
    let server = Server::start(site.file("public/files/a.txt", "a file"));
    // The application answers 404.
    for (client, path, status) in [
        ("10.1.2.3", "/admin/x", 404),
        ("10.1.2.3", "/files/a.txt", 200),
        ("fd00::1", "/admin/x", 404),
        ("::ffff:10.0.0.1", "/admin/x", 404),
        ("192.0.2.1", "/admin/x", 403),
        ("192.0.2.1", "/ADMIN//x", 403),
        ("192.0.2.1", "/files/a.txt", 403),
        ("192.0.2.1", "/files/%61.txt", 403),
        ("192.0.2.1", "/open/x", 403),
        ("192.0.2.1", "/open/b", 403),
        ("10.1.2.3", "/open/x", 404),
        ("10.1.2.3", "/open/b", 410),
        ("192.0.2.1", "/x", 404),
        ("10.6.6.6", "/x", 451),
        // The proxy itself, and what a client invents in front of its own address.
        ("", "/admin/x", 403),
        ("10.0.0.1, 192.0.2.1", "/admin/x", 403),
    ] {
        let field = match client {
            "" => String::new(),
            client => format!("X-Forwarded-For: {client}\r\n"),
        };
        let mut connection = server.connect();
        connection.request("GET", path, &field);
        assert_eq!(connection.response().status, status, "{client} {path}");
    }
    server.stop();
}

#[test]
fn routes_that_refuse_close_files_and_the_last_one_does_not() {
    const FILES: [&str; 6] = [
        "private/a.txt",
        "private/b/c.txt",
        "open/a.txt",
        "open/a.sql",
        "a.txt",
        "other.txt",
    ];
    let routes = |last: &str| {
        format!(
            "  middleware: [static]
  static: {{dir: public}}
  routes:
  - {{path: /private/b/*}}
  - {{path: ['/private/*', '~ \\.sql$'], refuse: 403}}
  - {{host: closed.example, refuse: 410}}
  - {{path: /a.txt, method: POST, refuse: 405}}
  - {{path: '!~ ^/(a|open|private)', refuse: 451}}
{last}"
        )
    };
    for last in ["", "  - {path: '/*', refuse: 404}\n", "  - {refuse: 404}\n"] {
        let site = site(&routes(last));
        let write = |site: Site, name: &&str| site.file(&format!("public/{name}"), "a file");
        let server = Server::start(FILES.iter().fold(site, write));
        for (path, status) in [
            ("/private/a.txt", 403),
            ("/PRIVATE/a.txt", 403),
            ("//private/a.txt", 403),
            ("/%70rivate/a.txt", 403),
            ("/private/b/c.txt", 200),
            ("/open/a.txt", 200),
            ("/open/a.sql", 403),
            ("/open/a%2Esql", 403),
            ("/a.txt", 200),
            ("/other.txt", 451),
        ] {
            // The first look opens the file, the next finds it open.
            for _ in 0..2 {
                let got = server.get(path);
                assert_eq!(got.status, status, "{path} {last}");
                assert_eq!(got.body == b"a file", status == 200, "{path} {last}");
            }
        }
        // Two routes, if the last one takes it as it is written.
        let climbs = server.get("/open/../private/a.txt").status;
        assert!([400, 403].contains(&climbs), "{climbs} {last}");
        let mut connection = server.connect();
        connection.send("GET /a.txt HTTP/1.1\r\nHost: closed.example\r\n\r\n");
        assert_eq!(connection.response().status, 410);
        server.stop();
    }
}

#[test]
fn error_pages_hide_what_the_server_says_and_not_what_php_says() {
    let site = site(
        "  middleware: [error_pages]
  error_pages: {pages: {500: errors/500.html, 4xx: errors/4xx.txt}}
  routes: [{path: /limited, max_request_size: 1B}]
",
    )
    .file("errors/500.html", "<h1>Sorry</h1>")
    .file("errors/4xx.txt", "yours");
    let server = Server::start(site);
    let failed = server.get("/throw");
    assert_eq!(
        (failed.status, failed.text().as_str()),
        (500, "<h1>Sorry</h1>")
    );
    assert_eq!(
        failed.header("content-type"),
        Some("text/html; charset=utf-8")
    );
    assert!(
        failed.header("x-request-id").is_some(),
        "by which it is found in the log"
    );
    let own = server.get("/nothing-here");
    assert_eq!(
        (own.status, own.text().as_str()),
        (404, "not found"),
        "PHP's own page"
    );
    let mut connection = server.connect();
    connection.request("GET", "/throw", "Accept: application/json\r\n");
    let json = connection.response();
    assert_eq!(
        json.header("content-type"),
        Some("application/problem+json")
    );
    assert_eq!(
        json.text(),
        "{\"status\":500,\"title\":\"Internal Server Error\"}\n"
    );
    let large = server.post("/limited", "text/plain", "much");
    assert_eq!((large.status, large.text().as_str()), (413, "yours"));
    // A page that is gone changes nothing at a reload.
    server.site().change_config("500: errors", "500: nowhere");
    server.signal(Signal::HUP);
    server.logged(&[
        "reload failed",
        "`http.error_pages.pages` names",
        "nowhere/500.html",
    ]);
    assert_eq!(server.get("/throw").text(), "<h1>Sorry</h1>");
    server.site().change_config("500: nowhere", "500: errors");
    server
        .site()
        .change_config("4xx.txt}", "4xx.txt}, intercept: true");
    server.signal(Signal::HUP);
    server.logged(&["the configuration is applied"]);
    assert_eq!(server.get("/nothing-here").text(), "yours");
    server.stop();
}

#[test]
fn at_the_limit_the_longest_idle_connection_makes_room() {
    let server = Server::start(site(
        "  max_connections: 4\n  pools: {more: {num_workers: 2}}\n  routes: [{pool: more}]\n",
    ));
    let served = |connection: &mut Connection| {
        connection.request("GET", "/", "");
        connection.response().status == 200
    };
    let (mut busy, mut first, mut second) = (server.connect(), server.connect(), server.connect());
    busy.request("GET", "/wait", "");
    let mut half_sent = server.connect();
    half_sent.send("GET / HTTP/1.1\r\n");
    // The first one has the later request.
    assert!(served(&mut second) && served(&mut first));
    let mut third = server.connect();
    assert!(served(&mut third), "there is room for one more");
    assert!(second.is_closed(), "that was idle for the longest time");
    assert!(served(&mut first), "the other one stays");
    let mut fourth = server.connect();
    assert!(served(&mut fourth) && third.is_closed());
    let mut fifth = server.connect();
    assert!(served(&mut fifth) && first.is_closed());
    server.site().write("go", "");
    assert_eq!(busy.response().status, 200, "it has a request");
    half_sent.send("Host: h\r\n\r\n");
    assert_eq!(half_sent.response().status, 200, "idle ones go before it");
    server.logged(&["idle connections closed for new ones"]);
    server.stop();
}

#[test]
fn nobody_who_asks_nothing_keeps_others_out() {
    let server = Server::start(site("  max_connections: 20\n  http2: {h2c: true}\n"));
    let mut holds = Vec::new();
    for start in [
        "",
        "GET / HT",
        "PRI * HTTP/2.0\r\n",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0",
    ] {
        for _ in 0..50 {
            let mut connection = TcpStream::connect(server.address()).expect("it is taken");
            _ = connection.write_all(start.as_bytes()); // it may be closed for a later one
            holds.push(connection);
        }
        assert_eq!(server.get("/").status, 200, "{start:?}");
    }
    server.stop();
}

#[test]
fn what_clients_may_take_and_send_can_be_set() {
    let server = Server::start(site(
        "  timeouts: {head: 1s, idle: 1s, body: 1s}\n  forms: {fields: 2, files: 0, levels: 1}\n  max_connections: 2\n",
    ));
    let mut slow = server.connect();
    slow.send("GET / HT");
    assert_eq!(slow.response().status, 408);
    let slow_body = || {
        let mut connection = server.connect();
        connection.send("POST /body HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\n1");
        connection
    };
    drop(slow);
    let (mut one, mut other) = (slow_body(), slow_body());
    // Within the same hundredth of a second it may be refused.
    let mut idle = wait_for("one of them makes room", || {
        let mut connection = server.connect();
        connection.request("GET", "/", "");
        (!connection.is_closed()).then_some(connection)
    });
    assert_eq!(idle.response().status, 200);
    // One has made room: what it gets depends on how far its request was read.
    for connection in [&mut one, &mut other] {
        let end = connection.rest();
        let end = String::from_utf8_lossy(&end);
        assert!(end.is_empty() || end.starts_with("HTTP/1.1 408"), "{end}");
    }
    assert!(idle.is_closed(), "after a second without a request");
    drop((one, other, idle));
    for (body, status) in [
        ("a=1&b=2", 200),
        ("a=1&b=2&c=3", 400),
        ("a[b]=1", 200),
        ("a[b][c]=1", 400),
    ] {
        // Those that are closed have their places for a moment.
        let answer = wait_for("there is room for a connection", || {
            let mut connection = server.connect();
            let length = body.len();
            let fields = format!(
                "Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {length}\r\n"
            );
            connection.request("POST", "/form", &fields);
            connection.send(body);
            (!connection.is_closed()).then(|| connection.response())
        });
        assert_eq!(answer.status, status, "{body}");
    }
    server.stop();
}
