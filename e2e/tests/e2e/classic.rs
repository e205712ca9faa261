//! Pools in `mode: classic`: PHP programs as they are under php-fpm.

use std::os::unix::fs::PermissionsExt;

use pronghorn_testkit::{Response, Server, Site, binary, php_command, wait_for};

use crate::php_fpm;
use crate::ring::extension;

/// A site in a pool with as many workers and further settings. Its scripts lie in `public`.
pub(crate) fn site(workers: usize, more: &str) -> Site {
    let php = format!("php -d extension={}", extension().display());
    Site::new().config(&format!(
        "version: '3'\nhttp:\n  address: 127.0.0.1:0\n  middleware: [sendfile]\n  \
         pool: {{mode: classic, root: public, php: '{php}', num_workers: {workers}{more}}}\n\
         logs: {{level: debug}}\n"
    ))
}

/// A server of these scripts, by their names without `.php`, with one worker.
fn serving(scripts: &[(&str, &str)]) -> Server {
    serving_with("", scripts)
}

fn serving_with(more: &str, scripts: &[(&str, &str)]) -> Server {
    let add = |site: Site, (name, script): &(&str, &str)| {
        site.file(&format!("public/{name}.php"), &format!("<?php {script}"))
    };
    Server::start(scripts.iter().fold(site(1, more), add))
}

fn form(server: &Server, target: &str, form: &str) -> Response {
    server.post(target, "application/x-www-form-urlencoded", form)
}

#[test]
fn a_script_gets_its_request_and_leaves_nothing_for_the_next() {
    let script = "
        if (defined('BEFORE') || function_exists('before')) { exit('something is left'); }
        define('BEFORE', 1);
        if (isset($_GET['a'])) { function before() {} }
        header('X-Sapi: ' . PHP_SAPI . ' ' . php_sapi_name());
        http_response_code(201);
        setcookie('c', 'v');
        echo json_encode([
            $_GET, $_POST, $_COOKIE, $_REQUEST, $_SERVER['SCRIPT_NAME'], $_SERVER['PHP_SELF'], $_SERVER['argv'] ?? null,
            file_get_contents('php://input'), getcwd() === __DIR__, count(get_included_files()), defined('STDIN'), file_get_contents('php://stdin'),
        ], JSON_UNESCAPED_SLASHES);
        (function () { exit(3); })();
    ";
    let server = serving(&[("index", script)]);
    let workers = server.workers();
    for _ in 0..3 {
        let reply = form(&server, "/some/page?a[b]=1", "x=y");
        assert_eq!(
            (reply.status, reply.header("x-sapi")),
            (201, Some("fpm-fcgi fpm-fcgi"))
        );
        assert_eq!(reply.header("set-cookie"), Some("c=v"));
        assert_eq!(
            reply.text(),
            r#"[{"a":{"b":"1"}},{"x":"y"},[],{"a":{"b":"1"},"x":"y"},"/index.php","/index.php",null,"x=y",true,1,false,""]"#
        );
    }
    assert_eq!(server.workers(), workers);
    let ended = server.stop();
    assert!(!ended.stderr.contains("worker died"), "{}", ended.stderr);
}

/// What a framework's log channel does on a site without kept workers.
#[test]
fn a_script_logs_by_the_package() {
    let package = Site::app("../../php/worker/autoload.php");
    let script = format!(
        "require 'Psr/Log/autoload.php';
        require '{}';
        (new Pronghorn\\Log())->warning('Cart {{id}} is lost.', ['id' => 7]);
        echo 'done';",
        package.display()
    );
    let server = serving(&[("index", &script)]);
    assert_eq!(server.get("/").text(), "done");
    server.logged(&["Cart 7 is lost."]);
    server.stop();
}

#[test]
fn forms_and_uploads_are_parsed_by_php() {
    let upload = "
        $file = $_FILES['file'] ?? [];
        $kept = dirname(__DIR__) . '/kept';
        echo json_encode([
            $_POST, $file['name'] ?? null, $file['size'] ?? null, $file['error'] ?? null,
            is_uploaded_file($file['tmp_name'] ?? ''), move_uploaded_file($file['tmp_name'] ?? '', $kept),
            is_uploaded_file($file['tmp_name'] ?? ''), file_get_contents($kept) === str_repeat('x', $file['size']), strlen(file_get_contents('php://input')),
        ]);";
    let raw = "echo json_encode([
            strlen($input = file_get_contents('php://input')), $input === file_get_contents('php://input'), $_POST, $_SERVER['CONTENT_LENGTH'],
        ]);";
    let server = serving_with(
        ", ini: {post_max_size: 3M, upload_max_filesize: 2M, max_input_vars: 5}",
        &[("upload", upload), ("raw", raw)],
    );
    for len in [0, 1, 100_000, 1_500_000] {
        let content = "x".repeat(len);
        let body = format!(
            "--b\r\nContent-Disposition: form-data; name=\"a[b]\"\r\n\r\nfield\r\n\
             --b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"n.txt\"\r\n\r\n{content}\r\n--b--\r\n"
        );
        let reply = server.post("/upload.php", "multipart/form-data; boundary=b", body);
        assert_eq!(
            reply.text(),
            format!(r#"[{{"a":{{"b":"field"}}}},"n.txt",{len},0,true,true,false,true,0]"#)
        );
        let reply = server.post("/raw.php", "application/octet-stream", &content);
        assert_eq!(reply.text(), format!(r#"[{len},true,[],"{len}"]"#));
    }
    // Beyond PHP's limits, and not the server's.
    let many = form(&server, "/raw.php", "a=1&b=2&c=3&d=4&e=5&f=6");
    assert!(many.text().contains(r#""d":"4""#));
    server.logged(&["Input variables exceeded 5"]);
    let long = form(&server, "/raw.php", &format!("a={}", "x".repeat(4 << 20)));
    assert!(long.text().contains("[],"), "{}", long.text());
    server.logged(&["POST Content-Length of 4194306 bytes exceeds the limit of 3145728 bytes"]);
    server.stop();
}

#[test]
fn the_head_of_a_reply_is_what_php_says() {
    let server = serving(&[
        (
            "headers",
            "header('X-A: 1'); header('X-A: 2', false); header('X-B:  spaced  '); header('Gone: 1'); header_remove('Gone');
             header_register_callback(function () { header('X-Late: yes'); });
             echo json_encode([headers_sent(), http_response_code(), headers_list()]);",
        ),
        ("status", "header('Status: 404 Nothing');"),
        ("line", "header('HTTP/1.1 418 I am a teapot'); echo 'tea';"),
        ("location", "header('Location: /elsewhere');"),
        ("code", "http_response_code((int) $_GET['code']);"),
        ("type", "header('Content-Type: application/json'); echo '{}';"),
        ("empty", ""),
        (
            "sent",
            "echo 'x'; while (ob_get_level()) { ob_end_flush(); } flush();
             $sent = headers_sent($file, $line); header('X-Too: late');
             echo json_encode([$sent, basename($file), $line]);",
        ),
        (
            "auth",
            "if (!isset($_SERVER['PHP_AUTH_USER'])) { header('WWW-Authenticate: Basic realm=\"x\"'); exit('who?'); }
             echo $_SERVER['PHP_AUTH_USER'], ' ', $_SERVER['PHP_AUTH_PW'];",
        ),
        ("all", "echo json_encode([getallheaders(), apache_request_headers() === getallheaders()]);"),
        ("many", "for ($i = 0; $i < 2000; $i++) { header(\"X-$i: \" . str_repeat('x', 200)); } echo 'much';"),
    ]);
    let headers = server.get("/headers.php");
    assert_eq!(headers.all("x-a"), ["1", "2"]);
    assert_eq!(headers.header("x-b"), Some("spaced"));
    assert_eq!(headers.header("x-late"), Some("yes"));
    assert_eq!(headers.header("gone"), None);
    assert!(
        headers.text().starts_with("[false,200,[\"X-"),
        "{}",
        headers.text()
    );
    let status = |target: &str| server.get(target).status;
    assert_eq!(status("/status.php"), 404);
    assert_eq!(server.get("/status.php").header("status"), None);
    assert_eq!(status("/line.php"), 418);
    let location = server.get("/location.php");
    assert_eq!(
        (location.status, location.header("location")),
        (302, Some("/elsewhere"))
    );
    assert_eq!(status("/code.php?code=503"), 503);
    assert_eq!(status("/code.php?code=204"), 204);
    assert_eq!(status("/code.php?code=999"), 500);
    let of_type = |target: &str| server.get(target).header("content-type").map(str::to_owned);
    assert_eq!(of_type("/type.php").unwrap(), "application/json");
    assert_eq!(of_type("/line.php").unwrap(), "text/html; charset=UTF-8");
    let empty = server.get("/empty.php");
    assert_eq!(
        (
            empty.status,
            empty.body.len(),
            empty.header("content-length")
        ),
        (200, 0, Some("0"))
    );
    assert_eq!(server.get("/sent.php").text(), "x[true,\"sent.php\",1]");
    server.logged(&["headers already sent by (output started at"]);
    let mut connection = server.connect();
    assert_eq!(connection.get("/auth.php").status, 401);
    connection.request("GET", "/auth.php", "Authorization: Basic bWU6c2VjcmV0\r\n");
    assert_eq!(connection.response().text(), "me secret");
    connection.request("GET", "/all.php", "X-Some-Thing: 1\r\n");
    let all = connection.response().text();
    let expected =
        r#"[{"Content-Type":"","Content-Length":"","Host":"test","X-Some-Thing":"1"},true]"#;
    assert_eq!(
        all, expected,
        "also of what the request has not, as with php-fpm"
    );
    assert_eq!(status("/many.php"), 500);
    server.logged(&["the headers of a reply have more than"]);
    connection.request("HEAD", "/line.php", "");
    let head = connection.head_response();
    assert_eq!(
        (head.status, head.header("content-length")),
        (418, Some("3"))
    );
    server.stop();
}

#[test]
fn what_is_flushed_is_sent_and_the_rest_in_one_piece() {
    let script = "
        echo 'first ';
        if (isset($_GET['buffered'])) { ob_flush(); }
        flush();
        while (!file_exists(dirname(__DIR__) . '/go')) { usleep(2000); clearstatcache(); }
        echo 'last';";
    let long = "for ($i = 0; $i < 200; $i++) { echo str_repeat(chr(97 + $i % 26), 100_000); }";
    let server = serving_with(
        ", ini: {output_buffering: 4096}",
        &[("index", script), ("long", long)],
    );
    let mut connection = server.connect();
    connection.request("GET", "/?buffered", "");
    let (status, headers) = connection.head();
    assert_eq!(status, 200);
    let chunked = ("transfer-encoding".to_owned(), "chunked".to_owned());
    let is_chunked =
        |(name, value): &(String, String)| (name.to_ascii_lowercase(), value.clone()) == chunked;
    assert!(headers.iter().any(is_chunked), "{headers:?}");
    assert_eq!(connection.chunk().as_deref(), Some(&b"first "[..]));
    server.site().write("go", "");
    assert_eq!(connection.chunk().as_deref(), Some(&b"last"[..]));
    assert_eq!(connection.chunk().as_deref(), Some(&b""[..]));
    // Nothing left PHP's own buffer, so there was nothing to send.
    let whole = server.get("/");
    assert_eq!(
        (whole.text().as_str(), whole.header("content-length")),
        ("first last", Some("10"))
    );
    // A client that is slower than PHP: PHP waits, and the server keeps little of it.
    let before = server.resident_memory();
    let mut slow = server.connect();
    slow.request("GET", "/long.php", "");
    assert_eq!(slow.head().0, 200);
    let grown = server.resident_memory().saturating_sub(before);
    assert!(grown < 20 << 20, "{grown} bytes");
    let mut bytes = 0;
    while let Some(chunk) = slow.chunk().filter(|chunk| !chunk.is_empty()) {
        bytes += chunk.len();
    }
    assert_eq!(bytes, 20_000_000);
    server.stop();
}

#[test]
fn a_script_may_end_in_every_way() {
    let failing = "
        register_shutdown_function(function () { echo ' shutdown'; });
        function deep($n) { if ($n > 0) { deep($n - 1); } else { eval($_GET['do']); } }
        deep(20);
        echo ' not ended';";
    let server = serving_with(
        ", ini: {memory_limit: 16M, max_execution_time: 1, display_errors: 0, output_buffering: 0}",
        &[("index", failing), ("parse", "}")],
    );
    let workers = server.workers();
    let of = |code: &str| {
        let code = code
            .replace('%', "%25")
            .replace(' ', "%20")
            .replace('&', "%26");
        let reply = server.get(&format!("/?do={code}"));
        (reply.status, reply.text())
    };
    let with = |status: u16, text: &str| (status, text.to_owned());
    assert_eq!(of("exit;"), with(200, " shutdown"));
    assert_eq!(of("echo 'x'; exit('said');"), with(200, "xsaid shutdown"));
    assert_eq!(of("exit(7);"), with(200, " shutdown"));
    assert_eq!(
        of("throw new Exception('one of mine');"),
        with(500, " shutdown")
    );
    server.logged(&["Uncaught Exception: one of mine"]);
    assert_eq!(
        of("echo 'begun'; throw new Exception('another');"),
        with(200, "begun shutdown")
    );
    assert_eq!(of("$a = str_repeat('x', 1 << 25);"), with(500, " shutdown"));
    server.logged(&["Allowed memory size of 16777216 bytes exhausted"]);
    assert_eq!(of("for (;;) {}"), with(500, " shutdown"));
    server.logged(&["Maximum execution time of 1 second exceeded"]);
    assert_eq!(of("nothing();"), with(500, " shutdown"));
    assert_eq!(
        of("set_exception_handler(function () { echo 'caught'; }); throw new Exception();"),
        with(200, "caught shutdown")
    );
    assert_eq!(
        of("ob_start(fn ($text) => strtoupper($text)); echo 'upper';"),
        with(200, "UPPER NOT ENDED SHUTDOWN")
    );
    assert_eq!(server.get("/parse.php").status, 500);
    server.logged(&["PHP Parse error:"]);
    assert_eq!(of("echo 'fine';"), with(200, "fine not ended shutdown"));
    assert_eq!(server.workers(), workers, "none of it ends the worker");
    server.stop();
}

#[test]
fn a_client_that_leaves_ends_the_script_unless_that_wants_to_go_on() {
    let script = "
        ignore_user_abort($_GET['ignore'] === '1');
        $folder = dirname(__DIR__);
        register_shutdown_function(function () use ($folder) {
            file_put_contents(\"$folder/end-$_GET[ignore]\", connection_aborted() . connection_status());
        });
        echo str_repeat('x', 100_000); flush();
        touch(\"$folder/begun-$_GET[ignore]\");
        for ($i = 0; $i < 20_000 && !connection_aborted(); $i++) { usleep(1000); echo 'x'; flush(); }
        file_put_contents(\"$folder/after-$_GET[ignore]\", '');";
    let server = serving(&[("index", script)]);
    for ignore in ["0", "1"] {
        let mut connection = server.connect();
        connection.request("GET", &format!("/?ignore={ignore}"), "");
        wait_for("the script to begin", || {
            let begun = server.site().path(&format!("begun-{ignore}"));
            begun.exists().then_some(())
        });
        drop(connection);
        let end = wait_for("the script to end", || {
            let end = server.site().path(&format!("end-{ignore}"));
            std::fs::read_to_string(end)
                .ok()
                .filter(|text| !text.is_empty())
        });
        assert_eq!(end, "11");
        let after = server.site().path(&format!("after-{ignore}"));
        assert_eq!(after.exists(), ignore == "1");
    }
    server.stop();
}

#[test]
fn a_client_is_answered_while_the_script_goes_on() {
    let script = "
        header('X-A: 1');
        echo 'answered';
        $first = fastcgi_finish_request();
        $second = fastcgi_finish_request();
        echo 'nobody reads this';
        while (!file_exists(dirname(__DIR__) . '/go')) { usleep(2000); clearstatcache(); }
        file_put_contents(dirname(__DIR__) . '/done', json_encode([$first, $second, headers_sent(), connection_status()]));";
    let server = serving(&[("index", script), ("other", "echo 'other';")]);
    let reply = server.get("/");
    assert_eq!(
        (
            reply.text().as_str(),
            reply.header("content-length"),
            reply.header("x-a")
        ),
        ("answered", Some("8"), Some("1"))
    );
    // The one worker is not free yet.
    let mut next = server.connect();
    next.request("GET", "/other.php", "");
    wait_for("the next call to wait", || {
        let status = server.steer(&["status"]).stdout;
        status.contains("1 call waiting").then_some(())
    });
    server.site().write("go", "");
    assert_eq!(next.response().text(), "other");
    assert_eq!(server.site().read("done"), "[true,false,true,0]");
    server.stop();
}

/// The next script would free what is gone.
#[test]
fn a_context_for_libxml_ends_with_its_script() {
    let script = "libxml_set_streams_context(stream_context_create(['http' => ['timeout' => 1]]));
        echo strlen(file_get_contents('php://input'));";
    let server = serving(&[("index", script)]);
    let workers = server.workers();
    for _ in 0..12 {
        let reply = form(&server, "/", "x=y");
        assert_eq!((reply.status, &*reply.text()), (200, "3"));
    }
    assert_eq!(server.workers(), workers);
    server.stop();
}

#[test]
fn sessions_are_kept_apart() {
    let script = "
        session_save_path(dirname(__DIR__));
        session_start();
        echo $_SESSION['n'] = ($_SESSION['n'] ?? 0) + 1, ' ', $_SESSION['name'] ??= $_GET['name'];";
    let server = serving(&[("index", script)]);
    let mut cookies = Vec::new();
    for name in ["ann", "ben"] {
        let reply = server.get(&format!("/?name={name}"));
        assert_eq!(reply.text(), format!("1 {name}"));
        let cookie = reply.header("set-cookie").unwrap();
        cookies.push(cookie.split(';').next().unwrap().to_owned());
    }
    for (name, count) in [("ann", 2), ("ben", 2), ("ann", 3)] {
        let cookie = &cookies[usize::from(name == "ben")];
        let mut connection = server.connect();
        connection.request("GET", "/", &format!("Cookie: {cookie}\r\n"));
        assert_eq!(connection.response().text(), format!("{count} {name}"));
    }
    server.stop();
}

#[test]
fn settings_are_those_of_php_ini_and_of_the_pool() {
    let settings = "
        $names = ['html_errors', 'implicit_flush', 'output_buffering', 'max_execution_time', 'register_argc_argv',
            'display_errors', 'memory_limit', 'auto_prepend_file'];
        echo json_encode([array_map('ini_get', $names), get_cfg_var('max_execution_time'), extension_loaded('pcntl'),
            ini_get('precision'), PREPENDED], JSON_UNESCAPED_SLASHES);";
    // As if the machine had no php.ini, then with one.
    let plain = |ini: &str| {
        let site = site(1, ", ini: {auto_prepend_file: prepended.php}")
            .file("public/index.php", &format!("<?php {settings}"))
            .file("prepended.php", "<?php const PREPENDED = 'yes';")
            .file("public/sub/index.php", &format!("<?php {settings}"))
            .file(
                "public/.user.ini",
                "precision = 5\nmemory_limit = 50M\nauto_prepend_file = none.php\n",
            )
            .file(
                "public/sub/.user.ini",
                "precision = 6\nmax_execution_time=7\nexpose_php=0\n",
            )
            .file("php/php.ini", ini);
        let folder = site.path("php").display().to_string();
        let prepended = site.path("prepended.php").display().to_string();
        site.change_config(
            "auto_prepend_file: prepended.php",
            &format!("include_path: '{prepended}'"),
        );
        site.write(
            "public/.user.ini",
            &format!("precision = 5\nmemory_limit = 50M\nauto_prepend_file = {prepended}\n"),
        );
        site.change_config("php: 'php ", &format!("php: 'php -c {folder} "));
        let config = site.read(".rr.yaml");
        Server::start_with_environment(
            site.config(&config),
            &["serve"],
            &[("PHP_INI_SCAN_DIR", "")],
        )
    };
    let without = plain("");
    let prepended = without.site().path("prepended.php").display().to_string();
    let found = without.get("/");
    assert_eq!(
        found.text(),
        format!(r#"[["1","0","0","30","0","1","50M","{prepended}"],"30",false,"5","yes"]"#)
    );
    assert!(found.header("x-powered-by").is_some());
    assert_eq!(
        without.get("/sub/").text(),
        format!(r#"[["1","0","0","7","0","1","50M","{prepended}"],"30",false,"6","yes"]"#)
    );
    // Of the folder alone, as long as its request.
    assert_eq!(without.get("/").text(), found.text());
    without.stop();
    let with = plain(
        "html_errors = Off\nimplicit_flush = On\noutput_buffering = 8192\nmax_execution_time = 12\n\
         register_argc_argv = On\ndisplay_errors = Off\n[PATH=/nowhere]\nmax_execution_time = 99\n",
    );
    let prepended = with.site().path("prepended.php").display().to_string();
    assert_eq!(
        with.get("/?x+y").text(),
        format!(r#"[["","1","8192","12","1","","50M","{prepended}"],"12",false,"5","yes"]"#)
    );
    with.stop();
}

/// Settings that PHP takes as they come, and some that switch something.
const WORDS: &[(&str, &str)] = &[
    ("user_agent", "off"),
    ("from", "Off"),
    ("docref_root", "NO"),
    ("docref_ext", "none"),
    ("error_prepend_string", "on"),
    ("error_append_string", "Yes"),
    ("browscap", "False"),
    ("arg_separator.output", "TRUE"),
    ("highlight.comment", "null"),
    ("highlight.default", "offen"),
    ("highlight.html", "\"off\""),
    ("highlight.keyword", "'on'"),
    ("highlight.string", "\"a;b=c #d\""),
    ("session.name", "E_ALL"),
    ("session.save_path", "M_PI_NOT"),
    ("error_reporting", "E_ALL & ~E_NOTICE"),
    ("precision", "-1"),
    ("date.default_latitude", "PHP_VERSION_ID"),
    ("auto_prepend_file", "none"),
    ("zlib.output_compression", "off"),
    ("display_errors", "no"),
];

#[test]
fn words_of_php_ini_mean_what_they_mean_there() {
    let names: Vec<String> = WORDS.iter().map(|(name, _)| format!("'{name}'")).collect();
    let script = format!(
        "echo json_encode(array_map(fn ($name) => [$name, ini_get($name)], [{}]));",
        names.join(",")
    );
    let written = |separator: &str, end: &str| {
        let lines = WORDS.iter();
        let lines = lines.map(|(name, value)| format!("{name}{separator}{value}{end}"));
        lines.collect::<String>()
    };
    let site = site(1, &format!(", ini: {{{}}}", written(": ", ", ")))
        .file("public/index.php", &format!("<?php {script}"))
        .file("other/php.ini", &written(" = ", "\n"));
    let asked = php_command("php")
        .env("PHP_INI_SCAN_DIR", "")
        .arg("-c")
        .arg(site.path("other/php.ini"))
        .args(["-r", &script])
        .output()
        .expect("php is there");
    let server = Server::start_with_environment(site, &["serve"], &[("PHP_INI_SCAN_DIR", "")]);
    let found: serde_json::Value = serde_json::from_str(&server.get("/").text()).unwrap();
    let expected: serde_json::Value = serde_json::from_slice(&asked.stdout).unwrap();
    assert_eq!(found, expected);
    server.stop();
}

#[test]
fn scripts_have_the_php_ini_of_php_fpm_where_there_is_one() {
    let asked = php_command("php")
        .args(["-r", "echo php_ini_loaded_file();"])
        .output()
        .expect("php is there");
    let of_cli = String::from_utf8(asked.stdout).expect("a path");
    let Some(folder) = of_cli.strip_suffix("/cli/php.ini") else {
        return; // only Debian and its like have several
    };
    let site = site(1, "").file(
        "public/index.php",
        "<?php echo php_ini_loaded_file(), ' ', dirname(strtok(php_ini_scanned_files(), ','));",
    );
    let mut command = std::process::Command::new(binary());
    command.env_remove("PHP_INI_SCAN_DIR");
    let server = Server::start_by(command, site, &["serve"]);
    assert_eq!(
        server.get("/").text(),
        format!("{folder}/fpm/php.ini {folder}/fpm/conf.d")
    );
    server.stop();
}

#[test]
fn an_empty_scan_dir_is_none() {
    let site = |folder: &str| {
        let site = site(1, ", ini: {precision: 5}")
            .file(
                "public/index.php",
                "<?php echo ini_get('precision'), ' ', php_ini_scanned_files();",
            )
            .file("more/user-agent.ini", "user_agent=x\n");
        let folder = folder.replace("SITE", &site.folder().display().to_string());
        let server =
            Server::start_with_environment(site, &["serve"], &[("PHP_INI_SCAN_DIR", &folder)]);
        let said = server.get("/").text();
        server.stop();
        said
    };
    assert_eq!(site(""), "5 ", "the pool's settings are in no file");
    let one = site("SITE/more");
    assert_eq!(one.matches(".ini").count(), 1, "{one}");
}

#[test]
fn the_environment_is_what_is_named_for_scripts() {
    let script = "
        ksort($_ENV);
        echo json_encode([getenv('SECRET'), getenv('GIVEN'), getenv('REQUEST_METHOD'), getenv('PATH'),
            isset($_SERVER['GIVEN'], $_SERVER['HOME']), isset(getenv()['GIVEN'], getenv()['REQUEST_METHOD']),
            array_intersect(['PRONGHORN_PIPES', 'PRONGHORN_RING', 'PRONGHORN_CLASSIC', 'PHPRC', 'PHP_INI_SCAN_DIR', 'RR_MODE'],
                array_keys(getenv())), $_ENV['GIVEN'] ?? null,
            shell_exec(PHP_BINARY . ' -r \"echo PHP_SAPI, extension_loaded(chr(112).\\'ronghorn\\') ? 1 : 0;\"')]);";
    for (clear, secret, path) in [("true", "false", "false"), ("false", "\"s\"", "\"\\/")] {
        let site = site(
            1,
            &format!(", clear_env: {clear}, ini: {{variables_order: EGPCS}}"),
        )
        .file("public/index.php", &format!("<?php {script}"));
        let config = site.read(".rr.yaml") + "server: {env: {GIVEN: there}}\n";
        let environment = [("SECRET", "s")];
        let server = Server::start_with_environment(site.config(&config), &["serve"], &environment);
        let text = server.get("/").text();
        assert!(
            text.starts_with(&format!("[{secret},\"there\",\"GET\",{path}")),
            "{text}"
        );
        let rest = ",true,true,";
        assert!(
            text.contains(rest) && text.ends_with(r#","there","cli0"]"#),
            "{text}"
        );
        server.stop();
    }
}

#[test]
fn scripts_run_as_the_user_of_the_workers() {
    let script = "<?php echo json_encode([posix_geteuid() === fileowner('/proc/self'), $_SERVER['USER'], $_SERVER['HOME'],
        strlen(file_get_contents('php://input')), getenv('USER'), is_readable('/etc/shadow')], JSON_UNESCAPED_SLASHES);";
    let site = site(1, "").file("public/index.php", script);
    // Wherever the repository lies, this user can read it.
    let extension = extension().display().to_string();
    std::fs::copy(&extension, site.path("pronghorn.so")).unwrap();
    let copied = site.path("pronghorn.so").display().to_string();
    site.change_config(&extension, &copied);
    let config = site.read(".rr.yaml") + "server: {user: nobody}\n";
    let server = Server::start(site.config(&config));
    let text = server.post("/", "text/plain", vec![b'x'; 400_000]).text();
    assert_eq!(
        text,
        r#"[true,"nobody","/nonexistent",400000,"nobody",false]"#
    );
    server.stop();
}

#[test]
fn a_file_that_a_script_names_is_sent() {
    let script = "header($_GET['by']); header('Content-Type: image/x-report'); header('X-Kept: yes'); echo 'instead';";
    let site = site(1, "")
        .file("public/index.php", &format!("<?php {script}"))
        .file("kept/report.txt", "0123456789")
        .file("kept/code.php", "<?php secret();")
        .file("secret.txt", "secret");
    let kept = site.path("kept").display().to_string();
    site.change_config(
        "  pool:",
        &format!("  sendfile: {{roots: [kept], locations: [{{prefix: /protected, root: {kept}}}]}}\n  pool:"),
    );
    let server = Server::start(site);
    let mut client = server.connect();
    for by in [
        &format!("X-Sendfile: {kept}/report.txt"),
        "X-Sendfile: kept/report.txt",
        "X-Accel-Redirect: /protected/report.txt",
    ] {
        let target = format!("/?by={}", by.replace(' ', "%20"));
        client.request("GET", &target, "Range: bytes=2-3\r\n");
        let part = client.response();
        assert_eq!((part.status, part.text().as_str()), (206, "23"), "{by}");
        let reply = client.get(&target);
        assert_eq!((reply.status, reply.text().as_str()), (200, "0123456789"));
        assert_eq!(reply.header("content-type"), Some("image/x-report"));
        assert_eq!(reply.header("x-kept"), Some("yes"));
        for name in ["x-sendfile", "x-accel-redirect"] {
            assert_eq!(reply.header(name), None, "{by}");
        }
    }
    for by in [
        &format!("X-Sendfile: {kept}/../secret.txt"),
        "X-Sendfile: secret.txt",
        "X-Sendfile: kept/code.php",
        "X-Accel-Redirect: /protected/../secret.txt",
        "X-Accel-Redirect: /protected/none.txt",
        "X-Accel-Redirect: /elsewhere/report.txt",
    ] {
        let reply = client.get(&format!("/?by={}", by.replace(' ', "%20")));
        assert!([403, 404].contains(&reply.status), "{by}: {}", reply.status);
        let text = reply.text();
        assert!(
            !text.contains("secret") && !text.contains("instead"),
            "{by}"
        );
    }
    server.stop();
}

#[test]
fn in_development_the_client_sees_what_went_wrong() {
    let script = "ini_set('log_errors', '0'); throw new Exception('what went wrong');";
    for debug in [false, true] {
        let more = format!(", debug: {debug}, ini: {{display_errors: 0}}");
        let server = serving_with(&more, &[("index", script)]);
        let text = server.get("/").text();
        assert_eq!(text.contains("what went wrong"), debug, "{text}");
        server.stop();
    }
}

#[test]
fn a_script_that_can_not_be_read_is_answered_as_such() {
    let server = serving(&[("index", "echo 'fine';"), ("gone", "echo 'here';")]);
    assert_eq!(server.get("/gone.php").text(), "here");
    std::fs::remove_file(server.site().path("public/gone.php")).unwrap();
    assert_eq!(server.get("/gone.php").status, 404);
    assert_eq!(server.get("/").text(), "fine");
    server.stop();
}

#[test]
fn a_php_that_reads_no_php_ini_has_the_extension_all_the_same() {
    let site = site(1, ", ini: {precision: 5}")
        .file("public/index.php", "<?php echo ini_get('precision');");
    let extension = format!(" -d extension={}", extension().display());
    site.change_config(&extension, " -n");
    let server = Server::start(site);
    assert_eq!(server.get("/").text(), "5");
    server.stop();
}

/// All that a program can change about its process.
const CHANGES: &str = "
    $left = [];
    $open = count(scandir('/proc/self/fd'));
    foreach (['CONSTANT' => defined('CONSTANT'), 'class' => class_exists('Left', false), 'function' => function_exists('left'),
        'precision' => ini_get('precision') !== '14', 'handler' => set_error_handler(null) !== null, 'error' => error_get_last() !== null,
        'exceptions' => set_exception_handler(null) !== null, 'locale' => setlocale(LC_TIME, 0) !== 'C', 'umask' => umask() !== 18,
        'environment' => getenv('LEFT') !== false, 'cwd' => getcwd() !== __DIR__, 'zone' => date_default_timezone_get() !== 'UTC',
        'include path' => get_include_path() === '/left', 'included' => count(get_included_files()) !== 1, 'autoload' => spl_autoload_functions() !== [],
        'stream' => in_array('left', stream_get_wrappers(), true), 'file' => !in_array('file', stream_get_wrappers(), true),
        'filter' => in_array('left', stream_get_filters(), true), 'context' => stream_context_get_options(stream_context_get_default()) !== [],
        'mb' => function_exists('mb_internal_encoding') && mb_internal_encoding() !== 'UTF-8', 'mb language' => function_exists('mb_language') && mb_language() !== 'neutral',
        'substitute' => function_exists('mb_substitute_character') && mb_substitute_character() !== 63,
        'libxml' => function_exists('libxml_use_internal_errors') && libxml_use_internal_errors(),
        'abort' => (bool) ignore_user_abort(), 'reporting' => error_reporting() !== 32767, 'level' => ob_get_level() !== 1, 'global' => isset($left_behind),
        'assert' => ini_get('assert.exception') !== '1', 'time' => ini_get('max_execution_time') !== '30', 'memory' => ini_get('memory_limit') !== '128M',
        'scale' => function_exists('bcscale') && bcscale() !== 0, 'ticks' => false, 'headers' => headers_list() !== ['X-Powered-By: PHP/' . PHP_VERSION, 'Content-Type: text/html; charset=UTF-8'] && count(headers_list()) > 2,
        'status' => http_response_code() !== 200, 'session' => session_status() === PHP_SESSION_ACTIVE, 'gc' => !gc_enabled(),
        'random' => isset($_GET['seed']) && mt_rand() === 1387371662,
    ] as $name => $is) { if ($is) { $left[] = $name; } }
    define('CONSTANT', 1);
    eval('class Left {} function left() {}');
    $GLOBALS['left_behind'] = str_repeat('x', 100_000);
    ini_set('precision', '3'); ini_set('assert.exception', '0'); ini_set('memory_limit', '200M'); set_time_limit(5);
    set_error_handler(fn () => true); set_exception_handler(fn () => true);
    setlocale(LC_ALL, 'C.UTF-8'); umask(0); putenv('LEFT=1'); putenv('PATH=/left'); date_default_timezone_set('Asia/Tokyo');
    set_include_path('/left'); file_put_contents(sys_get_temp_dir() . '/left-' . getmypid() . '.php', '<?php return 1;');
    $path = sys_get_temp_dir() . '/left-' . getmypid() . '.php'; include $path; unlink($path);
    spl_autoload_register(fn () => false);
    stream_wrapper_register('left', 'Left'); stream_wrapper_unregister('file');
    eval('class F extends php_user_filter {}'); stream_filter_register('left', 'F');
    stream_context_set_default(['http' => ['method' => 'POST']]);
    if (function_exists('mb_internal_encoding')) { mb_internal_encoding('EUC-JP'); mb_language('ja'); mb_substitute_character(0x3013); mb_http_output('SJIS'); mb_regex_encoding('EUC-JP'); }
    if (function_exists('iconv_set_encoding')) { @ini_set('iconv.internal_encoding', 'EUC-JP'); }
    if (function_exists('libxml_use_internal_errors')) { libxml_use_internal_errors(true); }
    ignore_user_abort(true); error_reporting(0); ob_start(); ob_start();
    header('X-Left: 1'); gc_disable(); mt_srand(1);
    register_shutdown_function(function () { chdir('/'); umask(0); putenv('LEFT=2'); setlocale(LC_ALL, 'C.UTF-8'); });
    $unfreed = new stdClass; $unfreed->self = $unfreed; $kept = [tmpfile(), opendir('/')];
    echo implode(', ', $left), ' (', $open, ')';
    trigger_error('left', E_USER_WARNING);
    if (isset($_GET['n']) && $_GET['n'] % 3 === 0) { exit; }
    if (isset($_GET['n']) && $_GET['n'] % 3 === 1) { throw new Exception('left'); }";

#[test]
fn a_thousand_requests_that_change_all_they_can_leave_nothing() {
    let ini = ", ini: {date.timezone: UTC, error_reporting: 32767, display_errors: 0, log_errors: 1, precision: 14, \
         memory_limit: 128M, max_execution_time: 30, output_buffering: 4096, opcache.file_update_protection: 0}";
    let server = serving_with(ini, &[("index", CHANGES)]);
    let workers = server.workers();
    let mut connection = server.connect();
    let mut memory = 0;
    let mut first = String::new();
    for n in 0..1000 {
        let text = connection.get(&format!("/?n={n}")).text();
        if n == 10 {
            memory = resident(workers[0]);
            first.clone_from(&text);
        }
        assert!(text.starts_with(" ("), "call {n}: {text}");
        assert!(n < 10 || text == first, "call {n}: {text}, {first} before");
    }
    let grown = resident(workers[0]).saturating_sub(memory);
    assert!(grown < 4 << 20, "{grown} bytes more after 1000 requests");
    assert_eq!(server.workers(), workers);
    server.stop();
}

/// Bytes of memory that a process has.
fn resident(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.and_then(|line| line.trim().split(' ').next()?.parse::<u64>().ok());
    kilobytes.expect("it lives") << 10
}

/// Pools of scripts in each mode, with a warm-up.
fn warming(script: &str, start: impl Fn(Site)) {
    let site = || site(2, ", fallback: none, warmup: [/warm.php/a?b, /]");
    let fastcgi = |more: &str| {
        let site = site();
        let php = format!(
            "mode: classic, root: public, php: 'php -d extension={}'",
            extension().display()
        );
        site.change_config(&php, &format!("mode: fastcgi, root: public{more}"));
        site
    };
    for site in [
        site(),
        fastcgi(""),
        fastcgi(&format!(", fastcgi: {{php_fpm: {}}}", php_fpm::name())),
    ] {
        let all = std::fs::Permissions::from_mode(0o777);
        let site = site
            .file("public/index.php", "<?php echo 'index';")
            .file("public/warm.php", &format!("<?php {script}"));
        std::fs::set_permissions(site.path("public"), all).expect("it is there");
        start(site);
    }
}

#[test]
fn workers_answer_their_warm_up_before_they_take_calls() {
    let script = "$told = array_intersect_key($_SERVER, array_flip(['SCRIPT_NAME', 'PATH_INFO', 'QUERY_STRING', 'HTTP_HOST', 'REMOTE_ADDR']));
        ksort($told);
        file_put_contents('warm', implode(' ', $told).\"\\n\", FILE_APPEND); http_response_code(404);";
    warming(script, |site| {
        let server = Server::start(site);
        let warm = server.site().read("public/warm");
        let expected = "localhost /a b 127.0.0.1 /warm.php\n";
        assert_eq!(warm, expected.repeat(2));
        assert_eq!(server.get("/").text(), "index");
        assert_eq!(server.steer(&["reset"]).code, Some(0));
        assert_eq!(server.site().read("public/warm"), expected.repeat(4));
        server.stop();
    });
}

#[test]
fn workers_that_fail_their_warm_up_are_not_let_in() {
    warming("throw new LogicException('cold');", |site| {
        let refused = Server::run(&site, &["serve"]);
        refused.assert_refused(&["worker failed its warm-up: GET /warm.php/a?b: it answered 500"]);
        std::fs::remove_file(site.path("public/warm.php")).expect("it is there");
        let refused = Server::run(&site, &["serve"]);
        refused.assert_refused(&[
            "worker failed its warm-up: GET /warm.php/a?b: ",
            "no script below the root answers it",
        ]);
    });
}

#[test]
fn a_worker_that_dies_costs_its_call() {
    let script = "if ($_SERVER['REQUEST_METHOD'] === 'POST') { posix_kill(getmypid(), SIGKILL); } echo getmypid();";
    let server = serving(&[("index", &script.replace("SIGKILL", "9"))]);
    let before = server.get("/").text();
    assert_eq!(form(&server, "/", "x=1").status, 502);
    server.logged(&[
        "worker died with signal 9 (SIGKILL) during a request",
        "POST /",
    ]);
    let after = wait_for("another worker", || {
        let reply = server.get("/");
        (reply.status == 200).then(|| reply.text())
    });
    assert_ne!(before, after);
    server.stop();
}

/// A table of functions that grows must not hide some of them from the end of the request.
#[test]
fn a_large_program_leaves_no_function_for_the_next_request() {
    let functions: String = (0..5000).fold(String::new(), |all, number| {
        all + &format!("function f{number}() {{}} ")
    });
    let server = serving(&[(
        "large",
        &format!("{functions} echo count(get_defined_functions()['user']);"),
    )]);
    for _ in 0..3 {
        assert_eq!(server.get("/large.php").text(), "5000");
    }
    server.stop();
}

/// Names of fields with their values.
type Others = &'static [(&'static str, &'static [&'static str])];

/// Scripts, and what their replies have: the status, values of `Content-Type`, and other fields
/// with their values.
const REPLIES: &[(&str, u16, &[&str], Others)] = &[
    (
        "http_response_code(304); header('ETag: \"v\"');",
        304,
        &[],
        &[("etag", &["\"v\""])],
    ),
    (
        "http_response_code(304); header('Content-Type: image/png');",
        304,
        &[],
        &[],
    ),
    (
        "header('Content-Type: image/png'); header('Status: 304');",
        304,
        &[],
        &[],
    ),
    (
        "header('HTTP/1.1 304 Not Modified'); header('Content-Length: 5');",
        304,
        &[],
        &[("content-length", &[])],
    ),
    (
        "http_response_code(204); header('Content-Length: 5');",
        204,
        &[],
        &[("content-length", &[])],
    ),
    (
        "header('Content-Type:'); echo 'x';",
        200,
        &[],
        &[("content-length", &["1"])],
    ),
    (
        "header('Content-Type: '); header('content-type:', false); echo 'x';",
        200,
        &[],
        &[],
    ),
    (
        "ini_set('default_mimetype', ''); header('X-A: 1'); echo 'x';",
        200,
        &[],
        &[],
    ),
    (
        "header('Content-Type: a/b'); header('Content-Type: c/d', false); echo 'x';",
        200,
        &["a/b"],
        &[],
    ),
    (
        "header('Date: Tue, 01 Jan 2019 00:00:00 GMT'); header('Date: x', false); echo 'x';",
        200,
        &[HTML],
        &[("date", &["Tue, 01 Jan 2019 00:00:00 GMT"])],
    ),
    (
        "header('Status: 404'); header('Status: 500', false); echo 'x';",
        404,
        &[HTML],
        &[("status", &[])],
    ),
    (
        "header('X-Empty:'); header('X-Twice: 1'); header('X-Twice: 2', false); echo 'x';",
        200,
        &[HTML],
        &[("x-empty", &[""]), ("x-twice", &["1", "2"])],
    ),
];
const HTML: &str = "text/html;charset=UTF-8";

#[test]
fn no_field_is_sent_twice_empty_or_against_the_status() {
    for mode in ["classic", "fastcgi"] {
        let php = if mode == "classic" {
            format!(", php: 'php -d extension={}'", extension().display())
        } else {
            String::new()
        };
        let site = Site::new().config(&format!(
            "version: '3'\nhttp:\n  address: 127.0.0.1:0\n  pool: {{mode: {mode}, root: public, num_workers: 1{php}}}\n"
        ));
        let add = |site: Site, (number, case): (usize, &(&str, _, _, _))| {
            site.file(
                &format!("public/{number}.php"),
                &format!("<?php {}", case.0),
            )
        };
        let server = Server::start(REPLIES.iter().enumerate().fold(site, add));
        for (number, (script, status, types, others)) in REPLIES.iter().enumerate() {
            let reply = server.get(&format!("/{number}.php"));
            let sent: Vec<_> = reply.all("content-type");
            let sent: Vec<_> = sent.iter().map(|value| value.replace(' ', "")).collect();
            assert_eq!(
                (reply.status, &sent[..]),
                (
                    *status,
                    &types.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>()[..]
                ),
                "{mode}: {script}"
            );
            for (name, values) in *others {
                assert_eq!(reply.all(name), *values, "{mode}: {script}");
            }
        }
        let empty = server.site().path("public/date.php");
        std::fs::write(empty, "<?php header('Date:'); echo 'x';").unwrap();
        let dates = server.get("/date.php");
        assert!(
            matches!(dates.all("date")[..], [date] if date.ends_with("GMT")),
            "{mode}"
        );
        server.stop();
    }
}

#[test]
fn a_callback_for_headers_that_prints_sends_each_field_once() {
    let head = "header('X-A: 1'); header('Set-Cookie: a=1');";
    let callback = |body: &str| {
        format!("{head} header_register_callback(function () {{ header('X-Late: 1'); {body} }});")
    };
    let scripts = [
        (
            "prints",
            format!("{} echo 'hello';", callback("echo 'early ';")),
        ),
        (
            "flushes",
            format!("{} echo 'hello';", callback("echo 'early '; flush();")),
        ),
        ("only", callback("echo 'early hello';")),
        (
            "finishes",
            format!(
                "{} echo 'hello'; fastcgi_finish_request(); echo 'lost';",
                callback("echo 'early ';")
            ),
        ),
        (
            "changes",
            format!(
                "{} echo 'hello';",
                callback("echo 'early '; @header('X-A: 2'); @header_remove('X-Late');")
            ),
        ),
        (
            "buffers",
            format!("ob_start(); {} echo 'hello';", callback("echo 'early ';")),
        ),
    ];
    let scripts: Vec<_> = scripts
        .iter()
        .map(|(name, script)| (*name, &**script))
        .collect();
    let server = serving(&scripts);
    for (name, _) in &scripts {
        let reply = server.get(&format!("/{name}.php"));
        let text = reply.text();
        assert!(
            text.contains("early ") && text.contains("hello"),
            "{name}: {text}"
        );
        assert!(!text.contains("lost"), "{name}: {text}");
        for (field, value) in [("x-a", "1"), ("set-cookie", "a=1"), ("x-late", "1")] {
            assert_eq!(reply.all(field), [value], "{name}: {field}");
        }
        assert_eq!(reply.all("content-type").len(), 1, "{name}");
    }
    server.stop();
}

#[test]
fn scripts_are_told_of_the_server_what_is_written() {
    let tells = [(
        "index",
        "echo $_SERVER['SERVER_SOFTWARE'], '|', getenv('SERVER_SOFTWARE');",
    )];
    for (more, expected) in [
        ("", format!("pronghorn/{}", env!("CARGO_PKG_VERSION"))),
        (", server_software: nginx/1.26", "nginx/1.26".to_owned()),
        (
            ", warmup: [/], server_software: 'Apache (Debian)'",
            "Apache (Debian)".to_owned(),
        ),
    ] {
        let server = serving_with(more, &tells);
        assert_eq!(server.get("/").text(), format!("{expected}|{expected}"));
        server
            .site()
            .change_config("num_workers: 1", "server_software: changed, num_workers: 1");
        if more.is_empty() {
            server.signal(rustix::process::Signal::HUP);
            wait_for("the reload", || {
                (server.get("/").text() == "changed|changed").then_some(())
            });
        }
        server.stop();
    }
}
