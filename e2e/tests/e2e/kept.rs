//! Where calls are no requests of PHP's own: what a call leaves in a kept worker's PHP is no
//! visitor's after it, and what a handler gets wrong there is told once.

use pronghorn_testkit::{Server, Site, wait_for};

use crate::ring::extension;

/// Each path leaves something behind; `/` says what is there.
const HANDLER: &str = r"
    switch ($request->path) {
        case '/': break;
        case '/open': session_start(); $_SESSION['n'] = ($_SESSION['n'] ?? 0) + 1; return (string) $_SESSION['n'];
        case '/closed': session_start(); $_SESSION['n'] = ($_SESSION['n'] ?? 0) + 1; session_write_close(); break;
        case '/destroyed': session_start(); $_SESSION['n'] = 1; session_destroy(); break;
        case '/named': session_id('chosen'); break;
        case '/assigned': $_SESSION = ['user' => 'alice']; break;
        case '/throws': session_start(); $_SESSION['n'] = 1; throw new Exception('thrown');
        case '/streams': return (function () { yield 'a'; session_start(); $_SESSION['n'] = 1; yield 'b'; })();
        case '/defers': Pronghorn\Call::current()->defer(function () { session_start(); $_SESSION['n'] = 1; }); break;
        case '/broken':
            session_set_save_handler(new class extends SessionHandler {
                public function write(string $id, string $data): bool { throw new Exception('the disk is full'); }
            });
            session_start(); $_SESSION['n'] = 1; return 'served';
        case '/cured':
            session_id($request->cookies['PHPSESSID'] ?? '');
            session_start(['use_cookies' => 0, 'use_strict_mode' => 1]);
            $_SESSION['n'] = ($_SESSION['n'] ?? 0) + 1;
            $n = $_SESSION['n'];
            session_write_close();
            return new Pronghorn\Response((string) $n, 200, ['Set-Cookie' => 'PHPSESSID=' . session_id()]);
        case '/printed':
            session_start(); $_SESSION['n'] = 100; $id = session_id(); session_write_close();
            while (ob_get_level()) { ob_end_flush(); }
            echo 'past the buffers'; flush();
            return $id;
        case '/late':
            $_COOKIE['late'] = new class { public function __destruct() { session_start(); $_SESSION['n'] = 50; } };
            return 'late';
        case '/superglobals':
            $_GET['a'] = $_POST['b'] = $_COOKIE['PHPSESSID'] = $_REQUEST['d'] = $_FILES['e'] = 'alice';
            $_SERVER['HTTP_COOKIE'] = $_SERVER['REMOTE_USER'] = $_SERVER['PHP_AUTH_PW'] = 'alice';
            $_SERVER['APP_ENV'] = 'kept';
            break;
        case '/by_reference': $all = &$_COOKIE; $all['user'] = 'alice'; break;
        case '/header': header('X-User: alice'); break;
        case '/cookie': setcookie('user', 'alice'); break;
        case '/code': http_response_code(404); break;
        case '/location': header('Location: /elsewhere'); break;
        case '/exit': session_start(); $_SESSION['n'] = 1; echo 'bye'; exit;
    }
    return json_encode([
        session_status() === PHP_SESSION_NONE, session_id(), isset($_SESSION), @session_encode() ?: false, $_GET, $_POST, $_COOKIE, $_REQUEST,
        $_FILES, array_intersect_key($_SERVER, ['HTTP_COOKIE' => 1, 'REMOTE_USER' => 1, 'PHP_AUTH_PW' => 1]),
        in_array(http_response_code(), [false, 200]), ob_get_level(),
    ]);
";
const CLEAN: &str = r#"[true,"",false,false,[],[],[],[],[],[],true,1]"#;
const OPEN: &str = "A session was still open when the call was over";

/// The line of the worker's file that begins so.
fn line_of(beginning: &str) -> usize {
    4 + HANDLER
        .lines()
        .position(|line| line.trim_start().starts_with(beginning))
        .expect("a line of the handler")
}

fn site(transport: &str) -> Site {
    if transport == "ring" {
        extension(); // or there is nothing to test
    }
    Site::new()
        .file("worker.php", &Site::sdk_worker(HANDLER))
        .file("sessions/.keep", "")
        .config(&format!(
            "version: '3'\nserver: {{command: php worker.php}}\nlogs: {{mode: production}}\nhttp:\n  address: '127.0.0.1:0'\n  \
             pool: {{num_workers: 1, transport: {transport}, globals: false, ini: {{session.save_path: sessions}}}}\n"
        ))
}

/// The records of level ERROR, without those of handlers that threw.
fn errors(server: &Server) -> Vec<String> {
    let log = server.log();
    let errors = log
        .lines()
        .filter(|line| line.to_lowercase().contains(r#""level":"error""#));
    errors
        .filter(|line| !line.contains("thrown"))
        .map(str::to_owned)
        .collect()
}

fn nothing_is_left(transport: &str) {
    let server = Server::start(site(transport));
    assert_eq!(server.get("/").text(), CLEAN);
    let worker = server.workers();
    for path in [
        "/open",
        "/closed",
        "/destroyed",
        "/named",
        "/assigned",
        "/throws",
        "/streams",
        "/defers",
        "/broken",
        "/cured",
        "/superglobals",
        "/by_reference",
        "/header",
        "/cookie",
        "/code",
        "/location",
    ] {
        for _ in 0..2 {
            server.get(path);
            assert_eq!(server.get("/").text(), CLEAN, "after {path}, {transport}");
        }
    }
    assert_eq!(server.workers(), worker);
    server.logged(&["could not be written", "the disk is full"]);
    server.stop();
}

#[test]
fn nothing_of_a_visitor_is_left_for_the_next() {
    nothing_is_left("relay");
}

#[test]
fn nothing_of_a_visitor_is_left_for_the_next_with_the_extension() {
    nothing_is_left("ring");
}

fn each_visitor_has_a_session(transport: &str) {
    let server = Server::start(site(transport));
    for _ in 0..3 {
        assert_eq!(server.get("/open").text(), "1", "{transport}");
    }
    let mut visitors = Vec::new();
    for _ in 0..2 {
        let reply = server.get("/cured");
        assert_eq!(reply.text(), "1", "{transport}");
        visitors.push(reply.header("set-cookie").expect("a cookie").to_owned());
    }
    for n in ["2", "3"] {
        for cookie in &visitors {
            let mut connection = server.connect();
            connection.request("GET", "/cured", &format!("Cookie: {cookie}\r\n"));
            assert_eq!(connection.response().text(), n, "{transport}");
        }
    }
    // A number that nobody was given becomes nobody's session.
    let mut connection = server.connect();
    connection.request("GET", "/cured", "Cookie: PHPSESSID=fixed\r\n");
    let reply = connection.response();
    assert_eq!(reply.text(), "1");
    assert_ne!(reply.header("set-cookie"), Some("PHPSESSID=fixed"));
    // What was left open was written.
    let files = std::fs::read_dir(server.site().path("sessions")).expect("a folder of the site");
    let names = files.filter_map(|file| file.ok()?.file_name().into_string().ok());
    let written = names.filter(|name| server.site().read(&format!("sessions/{name}")) == "n|i:1;");
    assert!(written.count() >= 3);
    server.stop();
}

#[test]
fn each_visitor_has_a_session_of_their_own() {
    each_visitor_has_a_session("relay");
}

#[test]
fn each_visitor_has_a_session_of_their_own_with_the_extension() {
    each_visitor_has_a_session("ring");
}

/// PHP lets nobody change the number of a session after output, which the command line counts as
/// headers that are sent.
fn what_is_printed_past_the_buffers_keeps_no_session(transport: &str) {
    let server = Server::start(site(transport));
    let printed = server.get("/printed").text();
    assert!(printed.len() > 20, "{printed}");
    wait_for("the worker, or its successor", || {
        let reply = server.connect().get("/cured");
        (reply.status == 200).then_some(())
    });
    for n in ["1", "1"] {
        let reply = server.get("/cured");
        let cookie = reply.header("set-cookie").expect("a cookie").to_owned();
        assert_eq!(reply.text(), n, "{transport}");
        assert!(!cookie.contains(&printed) && cookie.len() > 20, "{cookie}");
    }
    assert_eq!(server.get("/late").text(), "late");
    assert_eq!(server.get("/").text(), CLEAN, "{transport}");
    server.stop();
}

#[test]
fn what_is_printed_past_the_buffers_keeps_no_session_of_a_visitor() {
    what_is_printed_past_the_buffers_keeps_no_session("relay");
}

#[test]
fn what_is_printed_past_the_buffers_keeps_no_session_with_the_extension() {
    what_is_printed_past_the_buffers_keeps_no_session("ring");
}

#[test]
fn a_session_left_open_is_told_once_with_its_place() {
    for transport in ["relay", "ring"] {
        let server = Server::start(site(transport));
        for _ in 0..5 {
            server.get("/open");
            server.get("/closed");
            server.get("/cured");
            server.get("/named");
        }
        let line = if transport == "relay" {
            3
        } else {
            line_of("case '/open'")
        };
        server.logged(&[
            OPEN,
            "session_write_close()",
            "mode: classic",
            "worker.php",
            &format!(r#""line":{line}"#),
        ]);
        // A place of its own where the place is known.
        server.get("/throws");
        assert_eq!(server.get("/").text(), CLEAN);
        let expected = if transport == "relay" { 1 } else { 2 };
        wait_for("both places", || {
            (errors(&server).len() == expected).then_some(())
        });
        server.stop();
    }
}

#[test]
fn a_place_is_told_once_by_all_workers_and_again_after_a_reload() {
    let site = site("relay");
    site.change_config("num_workers: 1", "num_workers: 3");
    let server = Server::start(site);
    for told in 1..=2 {
        let before = server.workers();
        std::thread::scope(|scope| {
            for _ in 0..60 {
                scope.spawn(|| server.get("/open"));
            }
        });
        wait_for("the record", || {
            (errors(&server).len() == told).then_some(())
        });
        assert!(server.steer(&["reset"]).code == Some(0));
        wait_for("new workers", || {
            let now = server.workers();
            (now.len() == 3 && now.iter().all(|pid| !before.contains(pid))).then_some(())
        });
        assert_eq!(errors(&server).len(), told);
    }
    server.stop();
}

#[test]
fn what_php_would_have_sent_is_told_with_its_place() {
    let server = Server::start(site("ring"));
    for _ in 0..3 {
        for path in ["/header", "/cookie", "/code", "/location"] {
            assert_eq!(server.get(path).status, 200);
        }
    }
    for (function, case) in [
        ("header()", "case '/header'"),
        ("setcookie()", "case '/cookie'"),
        ("http_response_code()", "case '/code'"),
        ("header()", "case '/location'"),
    ] {
        let line = format!(r#""line":{}}}"#, line_of(case));
        server.logged(&[function, "new Pronghorn\\\\Response", "worker.php", &line]);
    }
    assert_eq!(errors(&server).len(), 4, "{:?}", errors(&server));
    server.stop();
}

#[test]
fn without_the_extension_a_status_is_told_with_its_handler() {
    for path in ["/code", "/location"] {
        let server = Server::start(site("relay"));
        for _ in 0..3 {
            assert_eq!(server.get(path).status, 200);
            assert_eq!(server.get("/header").status, 200);
        }
        server.logged(&[
            "has set the status",
            "new Pronghorn\\\\Response",
            "worker.php",
            r#""line":3"#,
        ]);
        assert_eq!(errors(&server).len(), 1, "{:?}", errors(&server));
        server.stop();
    }
}

#[test]
fn what_has_no_effect_on_anybody_is_not_told() {
    for transport in ["relay", "ring"] {
        let body = r"
            header_remove('X-Powered-By'); http_response_code(); headers_list(); headers_sent();
            http_response_code(200); session_name('OURS'); session_cache_limiter('');
            return 'fine';
        ";
        let server = Server::start(site(transport).file("worker.php", &Site::sdk_worker(body)));
        for _ in 0..3 {
            assert_eq!(server.get("/").text(), "fine");
        }
        assert!(errors(&server).is_empty(), "{:?}", errors(&server));
        server.stop();
    }
}

#[test]
fn an_exit_takes_its_session_along() {
    for transport in ["relay", "ring"] {
        let server = Server::start(site(transport));
        for _ in 0..2 {
            assert_eq!(server.get("/exit").text(), "bye");
            assert_eq!(server.get("/").text(), CLEAN, "{transport}");
        }
        server.stop();
    }
}

/// `session.auto_start` of php.ini, and a session that the script opens for itself.
#[test]
fn a_session_from_before_the_first_call_is_nobodys() {
    for transport in ["relay", "ring"] {
        for (ini, begin, told) in [
            (
                ", session.auto_start: 1",
                "",
                "session.auto_start has opened",
            ),
            (
                "",
                "session_start(); $_SESSION['n'] = 1;\n",
                "between two calls",
            ),
        ] {
            let site = site(transport);
            site.change_config(
                "session.save_path: sessions",
                &format!("session.save_path: sessions{ini}"),
            );
            let worker = Site::sdk_worker(HANDLER).replacen(
                "Pronghorn\\serve",
                &format!("{begin}Pronghorn\\serve"),
                1,
            );
            let server = Server::start(site.file("worker.php", &worker));
            assert_eq!(server.get("/").text(), CLEAN, "{transport}{ini}");
            server.logged(&[told, "worker.php"]);
            server.stop();
        }
    }
}

#[test]
fn an_own_loop_gets_no_session_of_another_call() {
    for transport in ["relay", "ring"] {
        let worker = Site::sdk_worker("")
            .split("Pronghorn\\serve")
            .next()
            .unwrap()
            .to_owned()
            + r"
            $worker = new Pronghorn\Worker();
            while ($call = $worker->next()) {
                session_start();
                $_SESSION['n'] = ($_SESSION['n'] ?? 0) + 1;
                $call->reply((string) $_SESSION['n']);
                $_SESSION['n'] = 'after the reply';
                $_COOKIE['n'] = 'after the reply';
            }
        ";
        let server = Server::start(site(transport).file("worker.php", &worker));
        for _ in 0..3 {
            assert_eq!(server.get("/").text(), "1", "{transport}");
        }
        server.logged(&[OPEN, "worker.php"]);
        assert_eq!(errors(&server).len(), 1, "{:?}", errors(&server));
        server.stop();
    }
}

/// Settings that an application puts into `$_SERVER` at its first call stay.
#[test]
fn settings_in_server_stay() {
    for transport in ["relay", "ring"] {
        let body = r"
            static $booted = false;
            if (!$booted) {
                $booted = true;
                $_SERVER['APP_ENV'] = 'kept';
            }
            $_SERVER = $request->server() + $_SERVER;
            return [$_SERVER['APP_ENV'], isset($_SERVER['HTTP_X_USER']), isset($_SERVER['SCRIPT_FILENAME'])];
        ";
        let server = Server::start(site(transport).file("worker.php", &Site::sdk_worker(body)));
        for user in ["X-User: alice\r\n", "", ""] {
            let mut connection = server.connect();
            connection.request("GET", "/", user);
            let expected = format!(r#"["kept",{},true]"#, !user.is_empty());
            assert_eq!(connection.response().text(), expected, "{transport}");
        }
        server.stop();
    }
}
