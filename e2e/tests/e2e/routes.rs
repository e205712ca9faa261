//! Several pools, and the routes that lead to them.

use std::collections::BTreeSet;
use std::fs::Permissions;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::mpsc::{Receiver, Sender, channel};

use pronghorn_testkit::{Connection, PATIENCE, Response, Server, Site, wait_for};

use crate::secure::run_curl;

/// Workers that say who they are, and wait at `/…/wait` until there is a file `go`.
fn site(http: &str) -> Site {
    let worker = Site::sdk_worker(
        "$name = $_SERVER['argv'][1];\n\
         if (str_ends_with($request->path, '/wait')) {\n\
             touch('at-work');\n\
             while (!file_exists('go')) { usleep(2000); clearstatcache(); }\n\
         }\n\
         if (str_contains($request->path, '/nap')) { usleep(600_000); }\n\
         $line = \"$name $request->method $request->path\";\n\
         file_put_contents('done', \"$line\\n\", FILE_APPEND);\n\
         return $line . ' ' . strlen($request->body());",
    );
    Site::new().file("worker.php", &worker).config(&format!(
        "version: '3'\nserver: {{command: php worker.php default}}\nlogs: {{level: debug}}\nhttp:\n  address: 127.0.0.1:0\n{http}"
    ))
}

/// Two pools beside the default one.
const POOLS: &str = "  pool: {num_workers: 1}
  pools:
    admin: {command: php worker.php admin, num_workers: 1}
    api: {command: php worker.php api, num_workers: 1}
";

#[test]
fn a_request_goes_where_its_route_says() {
    let routes = "  routes:
  - {path: /admin%2Fraw, pool: api}
  - {path: /admin/*, pool: admin}
  - {host: '*.example.com', method: [GET, POST], pool: api}
  - {header: {X-Tier: ^gold$}, pool: api}
";
    let server = Server::start(site(&format!("{POOLS}{routes}")));
    assert!(server.log().contains("(3 workers in 3 pools"));
    for (request, reply) in [
        ("GET /", "default GET /"),
        ("GET /admin", "admin GET /admin"),
        ("GET /admin/x", "admin GET /admin/x"),
        ("GET /administrator", "default GET /administrator"),
        // PHP gets what was sent, however it is written.
        ("GET //x/../%61dmin/y", "admin GET //x/../%61dmin/y"),
        ("GET /ADMIN/x/", "admin GET /ADMIN/x/"),
        ("GET /admin%2Fx", "admin GET /admin%2Fx"),
        ("GET /admin/%5Cx", "admin GET /admin/%5Cx"),
        ("GET /admin%2fraw", "api GET /admin%2fraw"),
        ("GET /x%2fy", "default GET /x%2fy"),
        ("GET http://a.example.com/y", "api GET /y"),
        ("POST http://A.Example.com.:80/y", "api POST /y"),
        ("PUT http://a.example.com/y", "default PUT /y"),
        ("GET http://example.com/y", "default GET /y"),
        ("GET http://a.example.com/admin", "admin GET /admin"),
    ] {
        let (method, target) = request.split_once(' ').unwrap();
        let mut connection = server.connect();
        connection.request(method, target, "");
        assert_eq!(
            connection.response().text(),
            format!("{reply} 0"),
            "{request}"
        );
    }
    // To who decodes the slash it is of one route, to who does not it is of another.
    let mut connection = server.connect();
    connection.request("GET", "http://a.example.com/admin%2Fx", "");
    assert_eq!(connection.response().status, 400);
    server.logged(&["request refused: programs read its path", "/admin%2Fx"]);
    let mut connection = server.connect();
    for (headers, reply) in [
        ("X-Tier: gold\r\n", "api GET /"),
        // Each of several has to match.
        ("X-Tier: silver\r\nX-Tier: gold\r\n", "default GET /"),
        ("X-Tier: golden\r\n", "default GET /"),
    ] {
        connection.request("GET", "/", headers);
        assert_eq!(
            connection.response().text(),
            format!("{reply} 0"),
            "{headers}"
        );
    }
    // The record names a pool that RoadRunner would not have.
    server.logged(&["http log", "\"URI\":\"/admin/x\"", "\"pool\":\"admin\""]);
    let record = server.logged(&["http log", "\"URI\":\"/administrator\""]);
    assert!(!record.contains("pool"), "{record}");
    server.stop();
}

/// Requests under way, each on a connection of its own, and their replies in the order in which
/// they come.
struct UnderWay {
    address: SocketAddr,
    replies: Receiver<Response>,
    sender: Sender<Response>,
}

impl UnderWay {
    fn to(server: &Server) -> Self {
        let (sender, replies) = channel();
        let address = server.address();
        Self {
            address,
            replies,
            sender,
        }
    }

    fn ask(&self, target: &'static str) {
        let (address, sender) = (self.address, self.sender.clone());
        std::thread::spawn(move || sender.send(Connection::open(address).get(target)));
    }

    /// Occupies the one worker of a pool until there is a file `go`.
    fn occupy(&self, server: &Server, target: &'static str) {
        self.ask(target);
        wait_for("a worker at work", || {
            server.site().path("at-work").exists().then_some(())
        });
    }

    fn reply(&self) -> Response {
        self.replies
            .recv_timeout(PATIENCE)
            .expect("every request is answered")
    }

    fn assert_refused(&self) {
        let refused = self.reply();
        assert_eq!(refused.status, 503, "{}", refused.text());
        assert_eq!(refused.header("retry-after"), Some("1"));
    }
}

#[test]
fn a_full_pool_leaves_the_others_alone() {
    let server = Server::start(site(
        "  pool: {num_workers: 1}
  pools:
    slow: {command: php worker.php slow, num_workers: 1, max_queue_size: 1}
  routes:
  - {path: /slow/*, pool: slow}
",
    ));
    let slow = UnderWay::to(&server);
    slow.occupy(&server, "/slow/wait");
    // One waits, and the other one finds no place.
    slow.ask("/slow/1");
    slow.ask("/slow/2");
    slow.assert_refused();
    for _ in 0..20 {
        assert_eq!(server.get("/slow/3").status, 503);
        assert_eq!(server.get("/fast").text(), "default GET /fast 0");
    }
    server.site().write("go", "");
    assert_eq!((slow.reply().status, slow.reply().status), (200, 200));
    server.logged(&[
        "WARN",
        "calls refused: the queue is full",
        "\"pool\":\"slow\"",
    ]);
    server.stop();
}

#[test]
fn who_waits_goes_by_the_priority_of_its_route() {
    let server = Server::start(site(
        "  pool: {num_workers: 1, max_queue_size: 5}
  routes:
  - {path: /urgent/*, priority: 1}
  - {path: /whenever/*, priority: 200}
",
    ));
    let waiting = UnderWay::to(&server);
    waiting.occupy(&server, "/wait");
    for target in [
        "/whenever/1",
        "/1",
        "/urgent/1",
        "/whenever/2",
        "/2",
        "/urgent/2",
    ] {
        waiting.ask(target);
    }
    waiting.assert_refused();
    server.site().write("go", "");
    for _ in 0..6 {
        assert_eq!(waiting.reply().status, 200);
    }
    let done = std::fs::read_to_string(server.site().path("done")).unwrap();
    let place = |line: &str| match line {
        line if line.contains("/urgent/") => 1,
        line if line.contains("/whenever/") => 3,
        _ => 2,
    };
    let places: Vec<i32> = done.lines().skip(1).map(place).collect();
    assert!(places.len() == 5 && places.is_sorted(), "{done}");
    server.stop();
}

#[test]
fn a_route_has_its_own_deadline() {
    let server = Server::start(site(
        "  pool: {num_workers: 2, supervisor: {exec_ttl: 50ms}}
  pools:
    patient: {num_workers: 1}
  routes:
  - {path: /short/*, deadline: 50ms, pool: patient}
  - {path: /long/*, deadline: 30s}
  - {path: /patient/*, pool: patient}
",
    ));
    for (target, status) in [
        ("/long/nap", 200),
        ("/patient/nap", 200),
        ("/short/nap", 504),
        ("/nap", 504),
    ] {
        assert_eq!(server.get(target).status, status, "{target}");
    }
    server.stop();
}

#[test]
fn a_route_has_its_own_limit_for_bodies() {
    let server = Server::start(site(
        "  max_request_size: 2
  pool: {num_workers: 1}
  routes:
  - {path: /small/*, max_request_size: 1}
  - {path: /large/*, max_request_size: 3}
",
    ));
    for (target, megabytes, status) in [
        ("/small/x", 1, 200),
        ("/small/x", 2, 413),
        ("/x", 2, 200),
        ("/x", 3, 413),
        ("/large/x", 3, 200),
        ("/large/x", 4, 413),
    ] {
        let body = vec![b'x'; megabytes << 20];
        let response = server.post(target, "text/plain", body);
        assert_eq!(response.status, status, "{target} {megabytes}");
    }
    server.stop();
}

#[test]
fn a_route_without_conditions_makes_the_default_pool_superfluous() {
    let site = site(
        "  pools:
    site: {command: php worker.php site, num_workers: 1}
    api: {command: php worker.php api, num_workers: 1}
  routes:
  - {path: /api/*, pool: api}
  - {pool: site}
",
    );
    let config = std::fs::read_to_string(site.path(".rr.yaml")).unwrap();
    let site = site.config(&config.replace("server: {command: php worker.php default}\n", ""));
    let server = Server::start(site);
    assert_eq!(server.get("/api/x").text(), "api GET /api/x 0");
    assert_eq!(server.get("/x").text(), "site GET /x 0");
    assert_eq!(server.get("/api%2Fx").status, 400);
    assert_eq!(server.get("/x%2Fy").text(), "site GET /x%2Fy 0");
    assert_eq!(server.workers().len(), 2);
    server.stop();
}

#[test]
fn a_pool_that_can_not_boot_ends_the_start_with_its_name() {
    let site = site(
        "  pool: {num_workers: 2}
  pools:
    fine: {num_workers: 2}
    broken: {command: php broken.php, num_workers: 2}
  routes:
  - {path: /fine/*, pool: fine}
  - {path: /broken/*, pool: broken}
",
    )
    .file("broken.php", "<?php function (");
    Server::run(&site, &["serve"]).assert_refused(&["pool `broken`: worker ended", "Parse error"]);
}

#[test]
fn in_development_a_broken_pool_shows_only_itself() {
    let site = site(
        "  pool: {num_workers: 1}
  pools:
    other: {command: php other.php, num_workers: 1}
  routes:
  - {path: /other/*, pool: other}
",
    )
    .file("other.php", "<?php function (");
    let server = Server::start_with(site, &["serve", "--dev"]);
    assert_eq!(server.get("/x").text(), "default GET /x 0");
    assert!(server.get("/other/x").text().contains("Parse error"));
    let mended = Site::sdk_worker("return 'mended';");
    server.site().write("other.php", &mended);
    wait_for("the other pool to be mended", || {
        (server.get("/other/x").text() == "mended").then_some(())
    });
    assert_eq!(server.get("/x").text(), "default GET /x 0");
    server.stop();
}

#[test]
fn foreign_workers_of_several_pools_share_the_relay_socket() {
    for relay in ["unix://rr.sock", "tcp://127.0.0.1:0"] {
        let worker = Site::fixture("foreign/worker.php");
        let server = Server::start(Site::new().config(&format!(
            "version: '3'\nserver: {{command: php {}, relay: '{relay}'}}\nhttp:\n  address: 127.0.0.1:0\n  pool: {{num_workers: 2}}\n  \
             pools:\n    other: {{num_workers: 2, codec: proto}}\n  routes:\n  - {{path: /pid, pool: other, header: {{X-Other: .}}}}\n",
            worker.display()
        )));
        let mut connection = server.connect();
        let mut pids = |headers: &str| {
            let all: BTreeSet<String> = (0..20)
                .map(|_| {
                    connection.request("GET", "/pid", headers);
                    connection.response().text()
                })
                .collect();
            all
        };
        let (default, other) = (pids(""), pids("X-Other: yes\r\n"));
        assert!(default.is_disjoint(&other), "{default:?} {other:?}");
        server.stop();
    }
}

/// A route for a host is met however a client writes that host, in each version of HTTP.
#[test]
fn a_host_is_one_however_it_is_written() {
    let server = Server::start(site(
        "  http2: {h2c: true}
  pool: {num_workers: 1}
  routes:
  - {host: [secret.example, '[::1]'], refuse: 403}
  - {host: '*.int.example', refuse: 404}
",
    ));
    for (host, status) in [
        ("open.example", 200),
        ("secret.example", 403),
        ("SECRET.example.:80", 403),
        ("secret%2Eexampl%65", 403),
        ("secret.example..", 400),
        ("a.int.example", 404),
        (".int.example", 400),
        ("a..int.example", 400),
        ("[::1]", 403),
        ("[0:0:0:0:0:0:0:1]:80", 403),
        ("[0::0001]", 403),
        ("[1::2::3]", 400),
        ("a,b", 400),
    ] {
        for start in [
            format!("GET / HTTP/1.1\r\nHost: {host}"),
            format!("GET http://{host}/ HTTP/1.1\r\nHost: open.example"),
        ] {
            let mut connection = server.connect();
            connection.send(format!("{start}\r\n\r\n"));
            assert_eq!(connection.response().status, status, "{start}");
        }
        let field = format!("Host: {host}");
        let url = format!("http://{}/", server.address());
        let asked = [
            "--http2-prior-knowledge",
            "--output",
            "/dev/null",
            "--header",
            &field,
        ];
        let arguments = [&asked[..], &["--write-out", "%{http_code}", &url]].concat();
        let said = String::from_utf8(run_curl(&server, &arguments).stdout).unwrap();
        // Where it is no authority to the library, which takes no codes, the stream is reset.
        let is_reset = (status == 400 || host.contains('%')) && said == "000";
        assert!(
            is_reset || said == status.to_string(),
            "HTTP/2 {host}: {said}"
        );
    }
    server.stop();
}

/// A closed expression of scripts closes directories that have such a script, in each kind of pool
/// with a root, and no page of the front controller.
#[test]
fn a_directory_is_closed_with_the_script_that_stands_for_it() {
    const SCRIPT: &str = "<?php echo $_SERVER['SCRIPT_NAME'], $_SERVER['PATH_INFO'] ?? '';";
    for mode in ["classic", "fastcgi"] {
        let mut site = Site::new();
        for script in [
            "index.php",
            "blog/index.php",
            "named/index.php",
            "a.php/index.php",
            "100%/index.php",
        ] {
            site = site.file(&format!("public/{script}"), SCRIPT);
        }
        let config = format!(
            "version: '3'
http:
  address: 127.0.0.1:0
  pool: {{mode: {mode}, root: public, fallback: index.php, num_workers: 1}}
  pools: {{bare: {{mode: {mode}, root: public, fallback: none, num_workers: 1}}}}
  routes:
  - {{host: bare, path: /index.php, refuse: 403}}
  - {{host: bare, pool: bare}}
  - {{host: front, path: '~ \\.php$', scripts: front}}
  - {{host: none, path: ['~ ^/[^/]+/.*\\.php$', '~ \\.git'], scripts: none}}
  - {{host: refused, path: '~ ^/.+/.*\\.php($|/)', refuse: 403}}
  - {{host: refused, path: /named/index.php, refuse: 410}}
"
        );
        let server = Server::start(site.config(&config));
        let index = ["/blog/", "/blog//", "/x/../blog/", "/100%25/", "/a.php/"];
        for host in ["open", "front", "none", "refused"] {
            let closed = match host {
                "front" => "200 /index.php",
                "none" => "404 ",
                "refused" => "403 ",
                _ => "200 /",
            };
            for path in ["/", "/page/", "/page/more/"].iter().chain(&index) {
                let mut connection = server.connect();
                connection.send(format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n"));
                let got = connection.response();
                let got = format!("{} {}", got.status, String::from_utf8_lossy(&got.body));
                let expected = match path {
                    _ if !index.contains(path) => "200 /index.php",
                    // Names that climb are refused before anything is looked for.
                    _ if path.contains("..") => "403 ",
                    // Its directory is called like a script.
                    _ if host == "front" && path.contains(".php") => "404 ",
                    _ => closed,
                };
                assert!(got.starts_with(expected), "{mode} {host} {path}: {got}");
                assert!(
                    closed == "200 /" || !got.contains("blog/index.php"),
                    "{got}"
                );
            }
        }
        let mut connection = server.connect();
        connection.send("GET /named/ HTTP/1.1\r\nHost: refused\r\n\r\n");
        assert_eq!(connection.response().status, 410, "{mode}");
        // The root's own script is closed where it is no front controller.
        let mut connection = server.connect();
        connection.send("GET / HTTP/1.1\r\nHost: bare\r\n\r\n");
        assert_eq!(connection.response().status, 403, "{mode}");
        server.stop();
    }
}

/// What closes a host closes it for PHP, too: scripts see the host that routes have seen.
#[test]
fn every_kind_of_pool_sees_the_host_that_routes_see() {
    const SCRIPT: &str = "<?php echo $_SERVER['HTTP_HOST'] ?? '', ' ', $_SERVER['SERVER_NAME'];";
    let handler = "return ($_SERVER['HTTP_HOST'] ?? '') . ' ' . $_SERVER['SERVER_NAME'];";
    let site = Site::new()
        .file("worker.php", &Site::sdk_worker(handler))
        .file("public/classic/a.php", SCRIPT)
        .file("public/fastcgi/a.php", SCRIPT)
        .file("programs/a", "#!/bin/sh\nprintf 'Content-Type: text/plain\\n\\n%s %s' \"$HTTP_HOST\" \"$SERVER_NAME\"")
        .config(
            "version: '3'
server: {command: php worker.php}
http:
  address: 127.0.0.1:0
  http2: {h2c: true}
  trusted_subnets: ['127.0.0.1/32']
  trusted_headers: [X-Forwarded-For, X-Forwarded-Host]
  pool: {num_workers: 1, globals: true}
  pools:
    classic: {mode: classic, root: public, num_workers: 1}
    fastcgi: {mode: fastcgi, root: public, num_workers: 1}
    cgi: {mode: cgi, root: programs, num_workers: 1}
  routes:
  - {host: closed.example, refuse: 403}
  - {path: /classic/*, pool: classic}
  - {path: /fastcgi/*, pool: fastcgi}
  - {path: /cgi/*, pool: cgi, strip_prefix: /cgi}
",
        );
    let program = site.path("programs/a");
    std::fs::set_permissions(program, Permissions::from_mode(0o755)).expect("it is there");
    let server = Server::start(site);
    for path in ["/worker", "/classic/a.php", "/fastcgi/a.php", "/cgi/a"] {
        for (start, answer) in [
            (
                "GET {} HTTP/1.1\r\nHost: open.example",
                "open.example open.example",
            ),
            (
                "GET http://open.example{} HTTP/1.1\r\nHost: closed.example",
                "open.example open.example",
            ),
            (
                "GET http://open.example:81{} HTTP/1.1\r\nHost: closed.example",
                "open.example:81 open.example",
            ),
            (
                "GET http://open.example{} HTTP/1.0",
                "open.example open.example",
            ),
            (
                "GET http://closed.example{} HTTP/1.1\r\nHost: open.example",
                "403",
            ),
            (
                "GET {} HTTP/1.1\r\nHost: closed.example\r\nX-Forwarded-For: 192.0.2.1\r\nX-Forwarded-Host: open.example",
                "open.example open.example",
            ),
            (
                "GET {} HTTP/1.1\r\nHost: open.example\r\nX-Forwarded-For: 192.0.2.1\r\nX-Forwarded-Host: closed.example",
                "403",
            ),
        ] {
            let mut connection = server.connect();
            let start = start.replace("{}", path);
            connection.send(format!("{start}\r\n\r\n"));
            let got = connection.response();
            let said = if got.status == 200 {
                got.text()
            } else {
                got.status.to_string()
            };
            assert_eq!(said, answer, "{start}");
        }
    }
    server.stop();
}
