//! `basic_auth` of routes: who comes in, in every kind of pool, and to files.

use pronghorn_testkit::{Response, Server, Site, wait_for};

/// `ann` and `bob` with `open sesame`.
const USERS: &str = "ann:$2y$04$AKcx8nnvtdOVO/ZiYBBn5u987H6twAtWhBRt4WCvLJfoOBFSOqwHi
bob:$apr1$abcdefgh$T64oOxnD8c28.dQa.2Lty1
";
const ANN: &str = "Authorization: Basic YW5uOm9wZW4gc2VzYW1l\r\n";
const BOB: &str = "Authorization: bASIC   Ym9iOm9wZW4gc2VzYW1l\r\n";
const EVE: &str = "Authorization: Basic ZXZlOm9wZW4gc2VzYW1l\r\n";
const WRONG: &str = "Authorization: Basic YW5uOndyb25n\r\n";

fn get(server: &Server, path: &str, fields: &str) -> Response {
    let mut connection = server.connect();
    connection.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n{fields}\r\n"));
    connection.response()
}

#[test]
fn a_route_lets_in_who_knows_the_password_in_every_mode() {
    const SHOW: &str = "($_SERVER['REMOTE_USER'] ?? '-') . ' ' . ($_SERVER['AUTH_TYPE'] ?? '-') . ' ' . ($_SERVER['PHP_AUTH_USER'] ?? '-')";
    let script = format!("<?php echo {SHOW};");
    let handler = "return ($request->attributes['remote_user'] ?? 'nobody') . ' ' . ($_SERVER['REMOTE_USER'] ?? '-') . ' ' . ($_SERVER['AUTH_TYPE'] ?? '-');";
    let mut site = Site::new()
        .file(".htpasswd", USERS)
        .file("worker.php", &Site::sdk_worker(handler))
        .file("public/style.css", "a{}")
        .file("public/handler/style.css", "a{}");
    let modes = ["classic", "fastcgi"];
    let mut pools = String::from("    handler: {command: php worker.php, num_workers: 1}\n");
    let mut routes = String::from(
        "  - {path: /handler/*, pool: handler, basic_auth: {user_file: .htpasswd, realm: 'a \"b\" \\\\'}}\n",
    );
    for mode in modes {
        site = site
            .file(&format!("public/{mode}/index.php"), &script)
            .file(&format!("public/{mode}/style.css"), "a{}");
        let keys =
            format!("{{mode: {mode}, root: public, fallback: {mode}/index.php, num_workers: 1}}");
        pools = format!("{pools}    {mode}: {keys}\n");
        routes = format!(
            "{routes}  - {{path: /{mode}/*, pool: {mode}, basic_auth: {{user_file: .htpasswd, users: [ann]}}}}\n"
        );
    }
    let server = Server::start(site.config(&format!(
        "version: '3'
server: {{command: php worker.php}}
http:
  address: 127.0.0.1:0
  middleware: [static]
  static: {{dir: public, max_age: 60}}
  pools:
{pools}  routes:
{routes}  - {{refuse: 404}}
"
    )));
    for mode in modes.into_iter().chain(["handler"]) {
        // Whatever a client writes for it.
        for path in [
            "",
            "/",
            "/index.php",
            "/x/y",
            "/style.css",
            "//style.css",
            "/%2e/style.css",
        ] {
            let path = format!("/{mode}{path}");
            for (fields, status) in [
                ("", 401),
                (WRONG, 401),
                (EVE, 401),
                ("Authorization: Basic\r\n", 401),
                ("Authorization: Basic YW5u\r\n", 401),
                ("Authorization: Basic !\r\n", 401),
                ("Authorization: Bearer YW5uOm9wZW4gc2VzYW1l\r\n", 401),
                // More than one is no request.
                (&format!("{ANN}{ANN}"), 400),
            ] {
                // A client has ten wrong passwords.
                if [WRONG, EVE].contains(&fields) && !path.ends_with("/x/y") {
                    continue;
                }
                let got = get(&server, &path, fields);
                assert_eq!(got.status, status, "{path} {fields}");
                if status == 400 {
                    continue;
                }
                let challenge = got.header("www-authenticate").unwrap_or_default();
                let realm = if mode == "handler" {
                    "a \\\"b\\\" \\\\\\\\"
                } else {
                    "Restricted"
                };
                assert_eq!(
                    challenge,
                    format!("Basic realm=\"{realm}\", charset=\"UTF-8\"")
                );
                assert!(!String::from_utf8_lossy(&got.body).contains("a{}"));
            }
            let got = get(&server, &path, ANN);
            if path == format!("/{mode}") && mode != "handler" {
                assert_eq!(got.status, 301, "to the directory");
                continue;
            }
            let body = String::from_utf8_lossy(&got.body).into_owned();
            let expected = match (mode, path.ends_with("style.css")) {
                (_, true) => "a{}",
                ("handler", false) => "ann ann Basic",
                (_, false) => "ann Basic ann",
            };
            assert_eq!((got.status, body.as_str()), (200, expected), "{path}");
            if path.ends_with("style.css") {
                let cache = got.header("cache-control").unwrap_or_default();
                assert_eq!(cache, "private, max-age=60", "{path}");
            }
        }
        let of_bob = get(&server, &format!("/{mode}/"), BOB).status;
        assert_eq!(of_bob, if mode == "handler" { 200 } else { 401 }, "{mode}");
    }
    server.stop();
}

/// `/blog/` is answered by a script, and that one is what the route is about.
#[test]
fn a_script_asks_for_the_password_by_whatever_path_it_runs() {
    const SCRIPT: &str = "<?php echo $_SERVER['SCRIPT_NAME'];";
    for mode in ["classic", "fastcgi"] {
        let site = Site::new()
            .file(".htpasswd", USERS)
            .file("public/index.php", SCRIPT)
            .file("public/blog/index.php", SCRIPT);
        let server = Server::start(site.config(&format!(
            "version: '3'
http:
  address: 127.0.0.1:0
  pool: {{mode: {mode}, root: public, fallback: index.php, num_workers: 1}}
  routes:
  - {{path: '~ ^/blog/.*\\.php', basic_auth: {{user_file: .htpasswd}}}}
"
        )));
        for path in ["/blog/index.php", "/blog/", "/blog//", "/blog/index.php/x"] {
            assert_eq!(get(&server, path, "").status, 401, "{mode} {path}");
            let got = get(&server, path, ANN);
            assert_eq!(got.status, 200, "{mode} {path}");
            assert!(got.body.starts_with(b"/blog/index.php"), "{mode} {path}");
        }
        assert_eq!(get(&server, "/", "").status, 200, "{mode}");
        server.stop();
    }
}

/// The same for a page that is no script, wherever files come from.
#[test]
fn a_page_that_stands_for_another_path_is_guarded_by_its_own_path() {
    const STATIC: &str = "  middleware: [static]\n  \
         static: {dir: public, index: [index.html], fallback: shell.html}\n  \
         pool: {command: php worker.php, num_workers: 1}\n";
    const CLASSIC: &str =
        "  pool: {mode: classic, root: public, num_workers: 1, index: [index.php, index.html]}\n";
    for (keys, pages) in [
        (
            STATIC,
            &["/d/", "/d//", "/d/index.html", "/any", "/shell.html"][..],
        ),
        (CLASSIC, &["/d/", "/d//", "/d/index.html"][..]),
    ] {
        for path in ["'~ \\.html$'", "[/d/index.html, /shell.html]"] {
            for (limit, closed, with_password) in [
                ("basic_auth: {user_file: .htpasswd}", 401, 200),
                ("refuse: 403", 403, 403),
            ] {
                let site = Site::new()
                    .file(".htpasswd", USERS)
                    .file("worker.php", &Site::sdk_worker("return 'php';"))
                    .file("public/d/index.html", "closed")
                    .file("public/shell.html", "closed")
                    .file("public/e/index.txt", "open");
                let server = Server::start(site.config(&format!(
                    "version: '3'\nhttp:\n  address: 127.0.0.1:0\n{keys}  routes:\n  - {{path: {path}, {limit}}}\n"
                )));
                for page in pages {
                    let html = "Accept: text/html\r\n";
                    let got = get(&server, page, html);
                    let case = format!("{path} {limit} {page}: {}", got.text());
                    assert_eq!(got.status, closed, "{case}");
                    let got = get(&server, page, &format!("{html}{ANN}"));
                    assert_eq!(got.status, with_password, "{case}");
                    assert_eq!(got.text() == "closed", with_password == 200, "{case}");
                }
                assert_eq!(get(&server, "/e/index.txt", "").text(), "open");
                server.stop();
            }
        }
    }
}

#[test]
fn the_file_may_change_and_a_client_that_guesses_has_to_wait() {
    let handler = "return 'in';";
    let site = Site::new()
        .file(".htpasswd", USERS)
        .file("worker.php", &Site::sdk_worker(handler));
    let server = Server::start(site.config(
        "version: '3'
server: {command: php worker.php}
http:
  address: 127.0.0.1:0
  pool: {num_workers: 1}
  routes: [{basic_auth: {user_file: .htpasswd}}]
",
    ));
    let status = |fields: &str| get(&server, "/", fields).status;
    assert_eq!((status(ANN), status(EVE)), (200, 401));
    let users = server.site().path(".htpasswd");
    let eve = USERS.replace("ann:", "eve:");
    std::fs::write(&users, eve).expect("it is written");
    // Not by one who is wrong until then: there are ten of these.
    wait_for("the change", || (status(ANN) == 401).then_some(()));
    assert_eq!(status(EVE), 200, "who has come");
    // Nobody comes in by a file that can't be read, and that is no 401.
    std::fs::remove_file(&users).expect("it was there");
    wait_for("the loss", || (status(EVE) == 500).then_some(()));
    assert!(
        server.log().contains("nobody can come in"),
        "{}",
        server.log()
    );
    std::fs::write(&users, USERS).expect("it is written");
    wait_for("the file", || (status(ANN) == 200).then_some(()));
    // Ten wrong passwords, some of them from before.
    let mut tries = (0..20).map(|_| get(&server, "/", WRONG));
    let late = tries.find(|got| got.status != 401).expect("too many");
    assert_eq!(late.status, 429);
    let wait: u64 = late
        .header("retry-after")
        .and_then(|it| it.parse().ok())
        .expect("a time");
    assert!((1..=7).contains(&wait), "{wait}");
    // A browser that is in stays in.
    assert_eq!(status(ANN), 200);
    assert!(!server.log().contains("sesame") && !server.log().contains("YW5u"));
    server.stop();
}

/// A slow hash, and many who wait for it.
#[test]
fn a_flood_of_wrong_passwords_keeps_no_other_client_out() {
    let users = "ann:$2y$09$WCyZaxBv7jO7SBR9CGVynOcYzrEZiLzeROd/bRhms64eoZ2Z4FLoe\n";
    let handler = "return 'in';";
    let site = Site::new()
        .file(".htpasswd", users)
        .file("worker.php", &Site::sdk_worker(handler));
    let server = Server::start(site.config(
        "version: '3'
server: {command: php worker.php}
http:
  address: 127.0.0.1:0
  trusted_subnets: [127.0.0.1]
  pool: {num_workers: 1}
  routes: [{basic_auth: {user_file: .htpasswd}}]
",
    ));
    let by = |client: &str, fields: &str| {
        let mut connection = server.connect();
        let fields = format!("X-Forwarded-For: {client}\r\n{fields}");
        connection.send(format!("GET / HTTP/1.1\r\nHost: a\r\n{fields}\r\n"));
        connection
    };
    let flood: Vec<_> = (0..150).map(|_| by("192.0.2.1", WRONG)).collect();
    for client in ["192.0.2.2", "2001:db8::1"] {
        assert_eq!(by(client, ANN).response().status, 200, "{client}");
    }
    for mut connection in flood {
        let late = connection.response();
        match late.status {
            401 => {}
            429 | 503 => assert!(late.header("retry-after").is_some()),
            other => panic!("{other}"),
        }
    }
    server.stop();
}

#[test]
fn what_is_wrong_with_the_file_is_told_before_the_start() {
    let check = |users: Option<&str>, keys: &str| {
        let mut site = Site::new().file("worker.php", "<?php");
        if let Some(users) = users {
            site = site.file(".htpasswd", users);
        }
        let site = site.config(&format!(
            "version: '3'\nserver: {{command: php worker.php}}\nhttp:\n  address: 127.0.0.1:0\n  routes: [{{basic_auth: {keys}}}]\n"
        ));
        let ended = Server::run(&site, &["check"]);
        (ended.code == Some(0), ended.stdout + &ended.stderr)
    };
    for (users, keys, told) in [
        (None, "{user_file: .htpasswd}", "can't be used"),
        (None, "{}", "`user_file: .htpasswd`"),
        (
            Some(USERS),
            "{user_file: .htpasswd, users: []}",
            "nobody could come in",
        ),
        (
            Some(USERS),
            "{user_file: .htpasswd, realm: \"a\\nb\"}",
            "control characters",
        ),
        (Some(""), "{user_file: .htpasswd}", "nobody can come in"),
        (
            Some("ann:secret\n"),
            "{user_file: .htpasswd}",
            "line 1 has a hash of a kind",
        ),
    ] {
        let (_, text) = check(users, keys);
        assert!(text.contains(told), "{keys}: {text}");
        assert!(!text.contains("secret"), "{text}");
    }
    assert!(check(Some(USERS), "{user_file: .htpasswd}").0);
}

/// Wherever it lies, and whatever becomes of a reload.
#[test]
fn the_file_of_users_is_sent_to_nobody() {
    let config = |routes: &str| {
        format!(
            "version: '3'
server: {{command: php worker.php}}
http:
  address: 127.0.0.1:0
  middleware: [static]
  static: {{dir: files}}
  pool: {{num_workers: 1}}
  routes: [{routes}]
"
        )
    };
    let guarded = "{path: /in, basic_auth: {user_file: files/users}},
        {path: /link, basic_auth: {user_file: current/users}}";
    let site = Site::new()
        .file("files/users", USERS)
        .file("files/1/users", USERS)
        .file("files/2/users", USERS)
        .file("files/a.txt", "a")
        .file("worker.php", &Site::sdk_worker("return 'php';"))
        .config(&config(guarded));
    std::os::unix::fs::symlink("files/1", site.path("current")).unwrap();
    let server = Server::start(site);
    let is_kept = || get(&server, "/users", "").text() == "php";
    // A deployment makes the link lead to the next release.
    assert_eq!(get(&server, "/1/users", "").text(), "php");
    let next = server.site().path("next");
    std::os::unix::fs::symlink("files/2", &next).unwrap();
    std::fs::rename(next, server.site().path("current")).unwrap();
    assert_eq!(get(&server, "/2/users", "").text(), "php");
    assert_eq!(get(&server, "/a.txt", "").text(), "a");
    assert!(is_kept());
    // Another guard can't be made, so the first one stays, and so does its file.
    let other = "{path: /in, basic_auth: {user_file: none}}";
    server.site().write(".rr.yaml", &config(other));
    server
        .steer(&["reload"])
        .assert_refused(&["the reload failed"]);
    assert!(is_kept());
    assert_eq!(get(&server, "/in", "").status, 401);
    server.stop();
}
