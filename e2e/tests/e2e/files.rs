//! Files without PHP.

use pronghorn_testkit::{Connection, Server, Site};

fn site(static_keys: &str) -> Site {
    let worker = Site::fixture("app.php");
    Site::new()
        .config(&format!(
            "version: '3'\nserver:\n  command: php {}\nhttp:\n  address: 127.0.0.1:0\n  pool: {{num_workers: 1}}\n  middleware: [static]\n  static: {static_keys}\nlogs: {{level: debug}}\n",
            worker.display()
        ))
        .file("public/a.css", "0123456789")
        .file("public/index.php", "<?php secret();")
        .file("public/large.txt", &"0123456789abcdef".repeat(100_000))
        .file("secret.txt", "secret")
}

#[test]
fn files_come_before_php_and_the_rest_goes_to_it() {
    let server = Server::start(
        site(
            "{dir: public, forbid: [.map, Composer.json, drafts/, log], request: {X-From: static}}",
        )
        .file("public/composer.json", "{}")
        .file("public/drafts/a.css", "a draft")
        .file("public/today.log", "a log")
        .file("public/log", "a log"),
    );
    let mut connection = server.connect();
    for path in ["/composer.json", "/drafts/a.css", "/today.log", "/log"] {
        assert_eq!(connection.get(path).text(), "not found", "{path}");
    }
    let css = connection.get("/a.css");
    assert_eq!((css.status, css.text().as_str()), (200, "0123456789"));
    assert_eq!(css.header("content-length"), Some("10"));
    let large = connection.get("/large.txt");
    assert_eq!(large.body.len(), 1_600_000);
    assert!(
        large
            .body
            .chunks(16)
            .all(|line| line == b"0123456789abcdef")
    );
    assert_eq!(connection.get("/").text(), "Hello");
    for path in ["/index.php", "/nope.css", "/INDEX.PHP"] {
        // The application's own words.
        assert_eq!(connection.get(path).text(), "not found", "{path}");
    }
    connection.request("HEAD", "/large.txt", "");
    let head = connection.head_response();
    assert_eq!(
        (head.status, head.header("content-length")),
        (200, Some("1600000"))
    );
    connection.request("GET", "/large.txt", "Range: bytes=1599998-\r\n");
    let part = connection.response();
    assert_eq!((part.status, part.text().as_str()), (206, "ef"));
    connection.request("GET", "/large.txt", "Range: bytes=16-17,-1\r\n");
    let parts = connection.response();
    assert!(parts.text().contains("\r\n\r\n01\r\n--") && parts.text().contains("\r\n\r\nf\r\n--"));
    connection.request(
        "GET",
        "/a.css",
        &format!("If-None-Match: {}\r\n", css.header("etag").unwrap()),
    );
    assert_eq!(connection.response().status, 304);
    assert_eq!(connection.get("/../secret.txt").status, 403);
    server.stop();
}

#[test]
fn a_folder_that_is_not_there_fails_the_start() {
    Server::run(&site("{dir: nowhere}"), &["serve"]).assert_refused(&["http.static", "nowhere"]);
}

#[test]
fn a_file_server_at_an_address_of_its_own() {
    let worker = Site::fixture("app.php");
    let site = Site::new()
        .config(&format!(
            "version: '3'\nserver:\n  command: php {}\nhttp: {{address: 127.0.0.1:0, pool: {{num_workers: 1}}}}\nfileserver:\n  address: 127.0.0.1:0\n  serve:\n    - {{prefix: /assets, root: build, compress: true, max_age: 60}}\n    - {{prefix: /, root: public, fallback: index.html}}\nlogs: {{level: debug}}\n",
            worker.display()
        ))
        .file("build/app.js", &"let a = 1;\n".repeat(1000))
        .file("public/index.html", "home");
    let server = Server::start(site);
    let record = server.logged(&["serves files"]);
    let address = record.split('"').find_map(|part| part.parse().ok());
    let mut connection = Connection::open(address.expect("it says where"));
    assert_eq!(connection.get("/").text(), "home");
    let app = connection.get("/assets/app.js");
    assert_eq!(app.header("cache-control"), Some("public, max-age=60"));
    connection.request("GET", "/assets/app.js", "Accept-Encoding: gzip\r\n");
    assert_eq!(
        connection.response().header("content-encoding"),
        Some("gzip")
    );
    connection.request("GET", "/users/1", "Accept: text/html\r\n");
    assert_eq!(connection.response().text(), "home");
    assert_eq!(connection.get("/nope.png").status, 404);
    connection.request("DELETE", "/", "");
    let refused = connection.response();
    assert_eq!(
        (refused.status, refused.header("allow")),
        (405, Some("GET, HEAD"))
    );
    server.stop();
}

#[test]
fn the_tutorials_configuration_serves_its_files() {
    // That of a tutorial for RoadRunner 2 with Laravel, but for its own worker and address.
    let site = Site::with_worker("app.php");
    let command = format!("php {}", Site::fixture("app.php").display());
    let site = site
        .config(&format!(
            r#"
server:
  command: "{command}"
http:
  address: 127.0.0.1:0
  middleware: ["headers", "static", "gzip"]
  pool:
    max_jobs: 64 # feel free to change this
    num_workers: 1
    supervisor:
      exec_ttl: 60s
  headers:
    response:
      X-Powered-By: "RoadRunner"
  static:
    dir: "public"
    forbid: [".php"]
"#
        ))
        .file("public/app.css", &"p { color: red }\n".repeat(1250))
        .file("public/index.php", "<?php secret();");
    let server = Server::start(site);
    let mut connection = server.connect();
    let hello = connection.get("/");
    assert_eq!(hello.header("x-powered-by"), Some("RoadRunner"));
    connection.request("GET", "/app.css", "Accept-Encoding: gzip\r\n");
    let css = connection.response();
    assert_eq!(
        (css.status, css.header("content-encoding")),
        (200, Some("gzip"))
    );
    assert!(css.body.len() < 1000);
    assert_eq!(connection.get("/app.css").body.len(), 21_250);
    assert!(!connection.get("/index.php").text().contains("secret"));
    server.stop();
}

/// RoadRunner 3's `reset static`.
#[test]
fn a_reset_makes_files_be_looked_at_anew() {
    let rpc = pronghorn_testkit::free_address();
    let site = Site::new()
        .file("public/assets/a.txt", "first")
        .file("public/b.txt", "b")
        .config(&format!(
            "version: '3'\nserver: {{command: php {}}}\nrpc: {{listen: 'tcp://{rpc}'}}\nlogs: {{level: debug}}\n\
             http:\n  address: 127.0.0.1:0\n  pool: {{num_workers: 1}}\n\
             \x20 middleware: [static]\n\
             \x20 static: {{dir: public, prefixes: [/assets/], cache_ttl: 1h}}\n",
            Site::fixture("app.php").display()
        ));
    let server = Server::start(site);
    let file = server.site().path("public/assets/a.txt");
    assert_eq!(server.get("/assets/a.txt").text(), "first");
    // Outside of the prefixes it is PHP's.
    assert_ne!(server.get("/b.txt").text(), "b");

    let change = |text: &str| std::fs::write(&file, text).expect("it can be written");
    change("second");
    assert_eq!(server.get("/assets/a.txt").text(), "first", "it is cached");
    let reset = server.steer(&["reset", "static"]);
    assert_eq!(
        (reset.code, reset.stdout.as_str()),
        (Some(0), "static: the cache is emptied\n")
    );
    assert_eq!(server.get("/assets/a.txt").text(), "second");

    change("third");
    let reset = server.steer_as_rr(&["reset", "static"]);
    assert_eq!((reset.code, reset.stdout.as_str()), (Some(0), ""));
    assert!(
        reset.stderr.ends_with("plugin reset: [static]\n"),
        "{}",
        reset.stderr
    );
    assert_eq!(server.get("/assets/a.txt").text(), "third");

    change("fourth");
    let mut rpc = crate::control::Rpc::connect(&server);
    assert_eq!(rpc.call("resetter.List", "true"), r#"["http","static"]"#);
    assert_eq!(rpc.call("resetter.Reset", r#""static""#), "true");
    assert_eq!(server.get("/assets/a.txt").text(), "fourth");

    change("fifth");
    let all = server.steer_as_rr(&["reset"]);
    let said: Vec<_> = all
        .stderr
        .lines()
        .filter_map(|line| line.get(20..))
        .collect();
    assert_eq!(
        said,
        [
            "resetting plugin: [http]",
            "plugin reset: [http]",
            "resetting plugin: [static]",
            "plugin reset: [static]"
        ]
    );
    assert_eq!(server.get("/assets/a.txt").text(), "fifth");
    server.stop();
}
