//! Kept workers whose calls are requests of PHP's own: a front controller written for php-fpm, and
//! a handler that uses `header()` and sessions. What one visitor does reaches no other one.

use pronghorn_testkit::{Response, Server, Site, wait_for};

use crate::ring::extension;

/// What such an application does, by its path.
const INDEX: &str = r#"<?php
    $path = strtok($_SERVER['REQUEST_URI'], '?');
    switch ($path) {
        case '/visit':
            session_start();
            $_SESSION['user'] ??= $_GET['user'];
            $_SESSION['cart'][] = $_POST['item'] ?? 'none';
            setlocale(LC_CTYPE, $_GET['locale']);
            date_default_timezone_set($_GET['zone']);
            ini_set('precision', $_GET['precision']);
            $flash = $_SESSION['flash'] ?? '';
            $_SESSION['flash'] = "for $_GET[user]";
            putenv("VISITOR=$_GET[user]");
            header("X-User: $_SESSION[user]");
            echo json_encode([$_SESSION['user'], count($_SESSION['cart']), $flash, date_default_timezone_get(),
                ini_get('precision'), getenv('VISITOR'), $_COOKIE['who'] ?? '', setlocale(LC_CTYPE, '0')]);
            break;
        case '/clean':
            echo json_encode([$_GET, $_POST, $_COOKIE, isset($_SESSION), session_id(), getenv('VISITOR'), ini_get('precision'),
                date_default_timezone_get(), headers_list(), http_response_code(), ob_get_level(), getcwd() === dirname(__DIR__), error_get_last()]);
            break;
        case '/login': header('Location: /home', true, 303); setcookie('seen', 'yes'); exit;
        case '/stream': header('Content-Type: text/plain'); echo 'first'; flush(); echo json_encode(headers_sent()); break;
        case '/upload':
            move_uploaded_file($_FILES['file']['tmp_name'], 'moved');
            echo $_FILES['file']['name'], ' ', $_POST['name'], ' ', file_get_contents('moved');
            break;
        case '/input': echo strlen(file_get_contents('php://input')), ' ', $_SERVER['CONTENT_TYPE']; break;
        case '/filter': echo json_encode([filter_input(INPUT_POST, 'name'), filter_input(INPUT_POST, 'of', FILTER_DEFAULT, FILTER_REQUIRE_ARRAY),
            filter_has_var(INPUT_POST, 'a_b'), filter_has_var(INPUT_POST, 'none')]); break;
        case '/parts': echo count($_POST), ' ', count($_FILES), ' ', file_get_contents('php://input'); break;
        case '/thrown': echo 'lost'; throw new LogicException('nobody catches it');
        case '/fatal': echo 'before'; ini_set('memory_limit', '16M'); str_repeat('x', 1 << 26); break;
        case '/page': register_shutdown_function(function () { while (ob_get_level() > 0) { ob_end_clean(); } http_response_code(503); echo 'a page of its own'; });
            ob_start(); echo 'lost'; ini_set('memory_limit', '16M'); str_repeat('x', 1 << 26); break;
        case '/twice': register_shutdown_function(function () { echo ' between '; str_repeat('x', 1 << 26); });
            echo 'before'; ini_set('memory_limit', '24M'); str_repeat('x', 1 << 26); break;
        case '/twice-deep': register_shutdown_function(function () { $deeper = function ($n) use (&$deeper) { $n ? $deeper($n - 1) : str_repeat('x', 1 << 26); }; $deeper(20000); });
            echo 'before'; ini_set('memory_limit', '32M'); str_repeat('x', 1 << 26); break;
        case '/twice-late': register_shutdown_function(function () { set_time_limit(1); while (true) {} });
            echo 'before'; set_time_limit(1); while (true) {}
        case '/callback-fatal': ob_start(fn () => eval('function twice() {} function twice() {}')); echo 'lost'; break;
        case '/callback-buffers': ob_start(fn () => ob_start()); echo 'lost'; break;
        case '/callback-memory': ini_set('memory_limit', '16M'); ob_start(fn () => str_repeat('x', 1 << 26)); ob_start(); echo str_repeat('lost', 50000); break;
        case '/callback-exit': ob_start(function () { exit; }); echo 'lost'; break;
        case '/callback-throws': ob_start(fn () => throw new LogicException('of a callback')); echo 'lost'; break;
        case '/endless':
            register_shutdown_function(function () { file_put_contents('php://stderr', 'left: ' . connection_aborted() . "\n"); });
            while (true) { echo str_repeat('x', 65536); }
        case '/slow': try { while (true) { usleep(1000); } } catch (Pronghorn\DeadlineExceeded $late) { echo 'too late'; } break;
        case '/early': echo 'early'; http_response_code(404); header('X-Late: yes'); setcookie('late', '1'); break;
        case '/fork':
            echo 'before, ';
            $child = pcntl_fork();
            if ($child === 0) { header('X-Child: 1'); echo 'of the child'; isset($_GET['exit']) && exit; break; }
            pcntl_waitpid($child, $status);
            echo 'of the parent';
            break;
        case '/wait': usleep(50000); echo 'waited'; break;
        default: http_response_code(404); echo 'no page';
    }
"#;

fn site(pool: &str) -> Site {
    extension();
    let worker = Site::sdk_worker("").replace(
        "function (Pronghorn\\Request $request): mixed {\n\n}",
        "fn () => require 'public/index.php'",
    );
    Site::new()
        .file("worker.php", &worker)
        .file("public/index.php", INDEX)
        .file("sessions/.keep", "")
        .config(&format!(
            "version: '3'\nserver: {{command: php worker.php}}\nlogs: {{mode: production}}\nhttp:\n  address: '127.0.0.1:0'\n  \
             pool: {{num_workers: 1, ini: {{session.save_path: sessions, date.timezone: UTC, output_buffering: 0}}{pool}}}\n"
        ))
}

fn ask(server: &Server, method: &str, target: &str, headers: &str) -> Response {
    let mut connection = server.connect();
    connection.request(method, target, headers);
    connection.response()
}

#[test]
fn a_front_controller_answers_as_under_php_fpm() {
    let server = Server::start(site(""));
    let workers = server.workers();
    let reply = server.get("/login");
    assert_eq!(
        (
            reply.status,
            reply.header("location"),
            reply.header("set-cookie")
        ),
        (303, Some("/home"), Some("seen=yes"))
    );
    assert_eq!(server.get("/nowhere").status, 404);
    assert_eq!(server.get("/stream").text(), "firsttrue");
    let parts = "--b\r\nContent-Disposition: form-data; name=\"name\"\r\n\r\nalice\r\n--b\r\nContent-Disposition: form-data; \
                 name=\"file\"; filename=\"a.txt\"\r\n\r\nbytes\r\n--b--\r\n";
    let reply = server.post("/upload", "multipart/form-data; boundary=b", parts);
    assert_eq!(reply.text(), "a.txt alice bytes");
    assert_eq!(
        server
            .post("/input", "text/plain", vec![b'x'; 600_000])
            .text(),
        "600000 text/plain"
    );
    let reply = server.get("/thrown");
    assert_eq!(reply.status, 500);
    assert!(!reply.text().contains("lost"), "{}", reply.text());
    server.logged(&["nobody catches it", "index.php"]);
    assert_eq!(server.get("/clean").text(), clean());
    assert_eq!(server.workers(), workers);
    server.stop();
}

/// Without a buffer the first byte closes the head, as under php-fpm.
#[test]
fn a_form_of_several_parts_is_known_to_filter_input_and_can_be_read_of_other_methods() {
    const TYPE: &str = "multipart/form-data; boundary=b";
    let file = "--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.txt\"\r\n\
                Content-Type: text/plain\r\n\r\nof a file\r\n";
    let fields = |names: &[&str]| -> String {
        let field = |name: &&str| {
            format!("--b\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\nof {name}\r\n")
        };
        names.iter().map(field).collect()
    };
    let server = Server::start(site(""));
    let body = fields(&["name", "of[x][]", "of[x][]", "a.b"]) + file + "--b--\r\n";
    for _ in 0..2 {
        let reply = server.post("/filter", TYPE, body.as_bytes());
        assert_eq!(
            reply.text(),
            r#"["of name",{"x":["of of[x][]","of of[x][]"]},true,false]"#
        );
        let none = ask(&server, "GET", "/filter", "").text();
        assert_eq!(none, "[null,null,false,false]", "the next visitor");
    }
    for method in ["PUT", "PATCH", "DELETE"] {
        let mut client = server.connect();
        let head = format!("Content-Type: {TYPE}\r\nContent-Length: {}\r\n", body.len());
        client.request(method, "/parts", &head);
        client.send(body.as_bytes());
        assert_eq!(client.response().text(), format!("0 0 {body}"), "{method}");
    }
    let reply = server.post("/parts", TYPE, body.as_bytes()).text();
    assert_eq!(reply, "3 1 ", "PHP keeps none of a POST");
    server.stop();
}

#[test]
fn output_before_headers_is_told_by_its_place_and_a_buffer_keeps_it_back() {
    let server = Server::start(site(""));
    let line = 1 + INDEX
        .lines()
        .position(|line| line.trim_start().starts_with("case '/early'"))
        .expect("a line of the script");
    for _ in 0..2 {
        let reply = server.get("/early");
        assert_eq!(reply.status, 200);
        assert!(reply.text().starts_with("early"), "{}", reply.text());
        assert_eq!(
            (reply.header("x-late"), reply.header("set-cookie")),
            (None, None)
        );
        let place = format!("index.php:{line})");
        server.logged(&["headers already sent by (output started at", &place]);
        assert_eq!(server.get("/clean").text(), clean());
    }
    let site = server.into_site();
    // PHP's command line has a setting of its own, which is not that of php.ini.
    site.change_config("output_buffering: 0", "output_buffering: 4096");
    let server = Server::start(site);
    let reply = server.get("/early");
    assert_eq!((reply.status, reply.text().as_str()), (404, "early"));
    assert_eq!(reply.header("x-late"), Some("yes"));
    assert!(
        reply
            .header("set-cookie")
            .is_some_and(|it| it.starts_with("late=1"))
    );
    assert!(
        !server.log().contains("headers already sent"),
        "{}",
        server.log()
    );
    server.stop();
}

#[test]
fn a_child_that_a_front_controller_forks_answers_nothing_for_it() {
    let server = Server::start(site(""));
    let workers = server.workers();
    for target in ["/fork", "/fork?exit"] {
        for _ in 0..2 {
            let reply = server.get(target);
            assert_eq!(reply.text(), "before, of the parent", "{target}");
            assert_eq!(reply.header("x-child"), None);
            assert_eq!(server.get("/clean").text(), clean());
        }
    }
    assert_eq!(server.workers(), workers);
    server.stop();
}

/// What `/clean` says when nothing is left of anybody.
fn clean() -> &'static str {
    r#"[[],[],[],false,"",false,"14","UTC",[],200,0,true,null]"#
}

#[test]
fn a_fatal_error_ends_the_worker_and_its_own_page_is_the_reply() {
    let server = Server::start(site(""));
    let memory = "Allowed memory size of 16777216";
    for (path, status, body, error) in [
        ("/fatal", 500, "before", memory),
        ("/page", 503, "a page of its own", memory),
        (
            "/twice",
            500,
            "before between ",
            "Allowed memory size of 25165824",
        ),
        (
            "/twice-deep",
            500,
            "before",
            "Allowed memory size of 33554432",
        ),
        ("/twice-late", 500, "before", "Maximum execution time"),
    ] {
        let workers = server.workers();
        let reply = server.get(path);
        assert_eq!((reply.status, reply.text().as_str()), (status, body));
        server.logged(&[error, r#""slot":0"#, "index.php"]);
        wait_for("a new worker", || {
            let now = server.workers();
            (now.len() == 1 && now != workers).then_some(())
        });
    }
    assert_eq!(server.get("/clean").text(), clean());
    server.stop();
}

#[test]
fn an_output_callback_that_fails_is_answered_500() {
    let server = Server::start(site(""));
    let worker = server.workers();
    let ended = server.get("/callback-exit");
    assert_eq!((ended.status, ended.text().as_str()), (200, ""));
    assert_eq!(server.workers(), worker);
    for (path, error) in [
        ("/callback-fatal", "Cannot redeclare"),
        ("/callback-buffers", "Cannot use output buffering"),
        ("/callback-throws", "of a callback"),
        ("/callback-memory", "Allowed memory size"),
    ] {
        let reply = server.get(path);
        assert_eq!(reply.status, 500, "{path}");
        assert!(!reply.text().contains("lost"), "{path}");
        server.logged(&[error, "index.php"]);
    }
    assert_eq!(server.get("/clean").text(), clean());
    server.stop();
}

#[test]
fn a_client_that_leaves_ends_its_call_and_not_its_worker() {
    let server = Server::start(site(""));
    let workers = server.workers();
    let mut connection = server.connect();
    connection.request("GET", "/endless", "");
    connection.head();
    connection.leave();
    server.logged(&["left: 1"]);
    assert_eq!(server.get("/clean").text(), clean());
    assert_eq!(server.workers(), workers);
    server.stop();
}

#[test]
fn a_body_that_is_streamed_is_read_by_php() {
    let server = Server::start(site(", request_body: stream"));
    for length in [0, 10, 600_000] {
        let reply = server.post("/input", "text/plain", vec![b'x'; length]);
        assert_eq!(reply.text(), format!("{length} text/plain"));
    }
    let reply = server.post(
        "/visit?user=a&locale=C&zone=UTC&precision=9",
        "application/x-www-form-urlencoded",
        "item=1",
    );
    assert_eq!(reply.header("x-user"), Some("a"));
    assert_eq!(server.get("/clean").text(), clean());
    server.stop();
}

/// `$_POST` and the request both have it, also if it has not arrived when the call begins.
#[test]
fn a_form_that_is_streamed_is_there_for_php_and_for_the_handler() {
    let handler = "return json_encode([$_POST, $request->body(), $request->form()]);";
    let site = site(", request_body: stream").file("worker.php", &Site::sdk_worker(handler));
    site.change_config("num_workers: 1", "num_workers: 2");
    let server = Server::start(site);
    let form = "application/x-www-form-urlencoded";
    let expected = r#"[{"a":"1"},"a=1",{"a":"1"}]"#;
    assert_eq!(server.post("/", form, "a=1").text(), expected);
    let mut slow = server.connect();
    slow.request(
        "POST",
        "/",
        &format!("Content-Type: {form}\r\nContent-Length: 3\r\n"),
    );
    server.get("/");
    slow.send("a=1");
    assert_eq!(slow.response().text(), expected);
    server.stop();
}

/// Twenty users over two workers, each with an identity, a cart, a locale and a flash message of
/// their own.
#[test]
fn no_visitor_sees_another_one() {
    let site = site("");
    site.change_config("num_workers: 1", "num_workers: 2");
    let server = Server::start(site);
    std::thread::scope(|scope| {
        for user in 0..20 {
            let server = &server;
            scope.spawn(move || visit_often(server, user));
        }
    });
    for _ in 0..4 {
        assert_eq!(server.get("/clean").text(), clean());
    }
    assert!(!server.log().contains("\"error\""), "{}", server.log());
    server.stop();
}

fn visit_often(server: &Server, user: usize) {
    let zone = ["Europe/Paris", "Asia/Tokyo", "America/Lima"][user % 3];
    let locale = ["C", "C.UTF-8"][user % 2];
    let precision = user % 10 + 1;
    let target = format!("/visit?user=u{user}&locale={locale}&zone={zone}&precision={precision}");
    let mut cookie = String::new();
    for visit in 1..=50 {
        let headers = format!(
            "Cookie: who=u{user}{cookie}\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: 6\r\n"
        );
        let mut connection = server.connect();
        connection.request("POST", &target, &headers);
        connection.send("item=1");
        let reply = connection.response();
        if visit == 1 {
            let given = reply.header("set-cookie").expect("a session's cookie");
            let name = given.split(';').next().expect("a first part");
            cookie = format!("; {name}");
        }
        let flash = if visit == 1 {
            String::new()
        } else {
            format!("for u{user}")
        };
        let zone = zone.replace('/', "\\/");
        assert_eq!(
            reply.text(),
            format!(
                r#"["u{user}",{visit},"{flash}","{zone}","{precision}","u{user}","u{user}","{locale}"]"#
            )
        );
        assert_eq!(reply.header("x-user"), Some(&*format!("u{user}")));
    }
}

#[test]
fn a_handler_returns_and_php_adds_what_it_was_told() {
    extension();
    let handler = r"
        session_start();
        $_SESSION['n'] = ($_SESSION['n'] ?? 0) + 1;
        header('X-A: 1');
        http_response_code(202);
        return ['n' => $_SESSION['n']];
    ";
    let server = Server::start(site("").file("worker.php", &Site::sdk_worker(handler)));
    let reply = server.get("/");
    assert_eq!((reply.status, reply.header("x-a")), (202, Some("1")));
    let cookie = reply.header("set-cookie").expect("a cookie").to_owned();
    for n in 2..5 {
        let reply = ask(&server, "GET", "/", &format!("Cookie: {cookie}\r\n"));
        assert_eq!(reply.text(), format!(r#"{{"n":{n}}}"#));
        assert_eq!(server.get("/").text(), r#"{"n":1}"#);
    }
    server.stop();
}

#[test]
fn what_a_handler_prints_stands_before_what_it_returns_and_does_not_close_its_head() {
    extension();
    let handler =
        "echo 'printed early'; header('X-A: 1'); http_response_code(202); return 'the page';";
    let server = Server::start(site("").file("worker.php", &Site::sdk_worker(handler)));
    let reply = server.get("/");
    assert_eq!(
        (reply.status, reply.text().as_str()),
        (202, "printed earlythe page")
    );
    assert_eq!(reply.header("x-a"), Some("1"));
    assert!(!server.log().contains("printed early"));
    server.stop();
}

fn front(function: &str) -> String {
    let handler = "function (Pronghorn\\Request $request): mixed {\n\n}";
    Site::sdk_worker("").replace(handler, function)
}

/// PHP's command line fixes them over php.ini, and a kept worker is no command line any more.
#[test]
fn settings_that_the_command_line_fixes_are_those_of_the_pool() {
    let function = "function () {
        echo ' ';
        setcookie('login', '1');
        echo json_encode(array_map('ini_get', ['output_buffering', 'max_execution_time', 'html_errors', 'implicit_flush', 'max_input_time']));
    }";
    let site = site("").file("worker.php", &front(function));
    let fixed = "max_execution_time: 7, html_errors: 1, implicit_flush: off, max_input_time: 5";
    site.change_config(
        "output_buffering: 0",
        &format!("output_buffering: 4096, {fixed}"),
    );
    let server = Server::start(site);
    for _ in 0..2 {
        let reply = server.get("/");
        assert_eq!(reply.text(), r#" ["4096","7","1","","5"]"#);
        let cookie = reply.header("set-cookie");
        assert!(cookie.is_some_and(|it| it.starts_with("login=1")));
    }
    server.stop();
}

/// Distributions lift the limit for the command line.
#[test]
fn a_call_has_a_limit_of_memory_where_php_ini_has_none() {
    let worker = "for ($all = [];;) { $all[] = str_repeat('x', 1 << 20); }";
    for (of_php, limit) in [("-1", "134217728"), ("48M", "50331648")] {
        let site = site("")
            .file("worker.php", &Site::sdk_worker(worker))
            .file("ini/php.ini", &format!("memory_limit = {of_php}\n"));
        site.change_config("php worker.php", "php worker.php, env: {PHPRC: ini}");
        let server = Server::start(site);
        assert_eq!(server.get("/").status, 500);
        server.logged(&[&format!("Allowed memory size of {limit} bytes exhausted")]);
        assert!(!server.log().contains("no memory limit"));
        server.stop();
    }
}

/// A cache would take the type over into what it has.
#[test]
fn what_has_no_content_has_no_default_type() {
    let page = "http_response_code((int) $_GET['s']); echo 'b'; isset($_GET['flush']) && flush();";
    let handler = Site::sdk_worker(&format!("{page} return '';"));
    for worker in [handler, front(&format!("function () {{ {page} }}"))] {
        let server = Server::start(site("").file("worker.php", &worker));
        for query in ["s=304", "s=304&flush=1", "s=204", "s=204&flush=1"] {
            let reply = server.get(&format!("/?{query}"));
            assert_eq!(reply.header("content-type"), None, "{query}");
        }
        assert!(server.get("/?s=404").header("content-type").is_some());
        server.stop();
    }
}

#[test]
fn a_deadline_is_caught_in_a_front_controller() {
    let server = Server::start(site(", supervisor: {exec_ttl: 1s}"));
    assert_eq!(server.get("/slow").status, 504);
    wait_for("the worker", || {
        (server.get("/clean").text() == clean()).then_some(())
    });
    server.stop();
}

#[test]
fn a_front_controller_without_what_it_takes_does_not_start() {
    for (pool, why) in [
        (", globals: false", "the pool has `globals: false`"),
        (", transport: relay", "no extension `pronghorn`"),
    ] {
        let site = site(pool);
        let ended = Server::run(&site, &["serve"]);
        ended.assert_refused(&["takes no parameter, so its output would be the reply", why]);
    }
}

/// Names that begin as those of the server's variables, in programs that a request starts: one with
/// the process's environment, and one with what an application puts together of all that it has, as
/// Symfony's `Process` does.
const VARIABLES: &str = r"
    $all = array_filter($_ENV + $_SERVER + getenv(), 'is_string');
    $names = [];
    foreach ([null, $all] as $environment) {
        $program = proc_open(['/usr/bin/env'], [1 => ['pipe', 'w']], $pipes, null, $environment);
        preg_match_all('/^(?:PRONGHORN|RR)_\w+/m', stream_get_contents($pipes[1]), $found);
        proc_close($program);
        $names = array_merge($names, $found[0]);
    }
    $known = ['PRONGHORN_EXTENSIONS', 'PRONGHORN_BIN', 'PRONGHORN_TEST'];
    $names = array_diff(array_unique($names), $known);
    sort($names);
    ";

#[test]
fn programs_that_workers_start_do_not_take_themselves_for_workers() {
    let extension = extension().display().to_string();
    let worker = Site::sdk_worker(&format!("{VARIABLES} return implode(' ', $names);"));
    let require = worker.lines().nth(1).expect("it loads the package");
    let front = format!("<?php\n{require}\nPronghorn\\serve(fn () => require 'public/index.php');");
    let script = format!("<?php {VARIABLES} echo implode(' ', $names);");
    let of_workers = "PRONGHORN_VERSION RR_MODE RR_RELAY RR_RPC RR_VERSION";
    let php = format!("php -d extension={extension} -d variables_order=EGPCS");
    let classic = format!("mode: classic, root: public, php: '{php}'");
    for (worker, pool, expected) in [
        (&worker, "spin: 20us, leaks: report", of_workers),
        (
            &worker,
            "spawn: fork, warmup: [/], leaks: report",
            of_workers,
        ),
        (&worker, "globals: false", of_workers),
        (&worker, "transport: relay", of_workers),
        (&front, "leaks: report", of_workers),
        (&front, "spawn: fork", of_workers),
        (&front, &format!("{classic}, clear_env: true"), ""),
        (&front, &format!("{classic}, spawn: exec"), ""),
        (
            &front,
            &format!("{classic}, clear_env: false"),
            "RR_MODE RR_RELAY RR_RPC RR_VERSION",
        ),
    ] {
        let site = Site::new()
            .file("worker.php", worker)
            .file("public/index.php", &script)
            .config(&format!(
                "version: '3'\nserver: {{command: '{php} worker.php'}}\nrpc: {{listen: 'tcp://127.0.0.1:0'}}\n\
                 kv: {{local: {{driver: memory}}, kept: {{driver: embedded}}}}\n\
                 http: {{address: 127.0.0.1:0, pool: {{num_workers: 1, {pool}}}}}\n"
            ));
        let server = Server::start(site);
        for _ in 0..2 {
            assert_eq!(server.get("/").text(), expected, "{pool}");
        }
        server.stop();
    }
}

/// Functions of php-fpm, and those of PHP that look for the fields of a request in its own copy of
/// `$_SERVER`, which no code has named by then.
#[test]
fn functions_that_look_at_the_fields_of_a_request_find_them() {
    let site = site("").file(
        "public/index.php",
        "<?php if (isset($_GET['gzip'])) { ob_start('ob_gzhandler'); echo str_repeat('x', 1000); }
         else { echo json_encode([getallheaders(), apache_request_headers() === getallheaders()]); }",
    );
    let server = Server::start(site);
    let get = |target: &str, fields: &str| {
        let mut connection = server.connect();
        connection.send(format!("GET {target} HTTP/1.1\r\nHost: a\r\n{fields}\r\n"));
        connection.response()
    };
    let plain = get("/?gzip", "");
    assert_eq!(
        (plain.body.len(), plain.header("content-encoding")),
        (1000, None)
    );
    let packed = get("/?gzip", "Accept-Encoding: gzip\r\n");
    assert_eq!(packed.header("content-encoding"), Some("gzip"));
    assert!(packed.body.len() < 100);
    let fields = "X-Some-Field: 1\r\nX-Some-Field: 2\r\nCookie: a=b\r\n";
    let expected = r#"[{"Host":"a","X-Some-Field":"1, 2","Cookie":"a=b"},true]"#;
    assert_eq!(get("/", fields).text(), expected);
    assert_eq!(get("/", "").text(), r#"[{"Host":"a"},true]"#);
    server.stop();
}
