//! `--dev`: changes are served at once, and mistakes are shown in the browser.

use pronghorn_testkit::{Response, Server, Site, wait_for};
use rustix::process::Signal;

use crate::ring::extension;

const DEV: [&str; 2] = ["serve", "--dev"];

fn site() -> Site {
    Site::new()
        .file("worker.php", &Site::sdk_worker("return 'one';"))
        .config("version: '3'\nserver: {command: php worker.php}\nhttp: {address: 127.0.0.1:0, pool: {num_workers: 1}}\n")
}

fn wait_for_page(server: &Server, text: &str) -> Response {
    wait_for(text, || {
        Some(server.get("/")).filter(|page| page.text().contains(text))
    })
}

/// Writes code that works, and waits until it is served.
fn mend(server: &Server) {
    let mended = Site::sdk_worker("return 'mended';");
    server.site().write("worker.php", &mended);
    wait_for_page(server, "mended");
}

#[test]
fn a_change_of_code_is_served_without_a_restart() {
    let server = Server::start_with(site(), &DEV);
    assert_eq!(server.get("/").text(), "one");
    server
        .site()
        .write("worker.php", &Site::sdk_worker("return 'two';"));
    wait_for_page(&server, "two");
    server.logged(&["INFO", "worker.php changed: starting new workers"]);
    server.stop();
}

#[test]
fn code_that_does_not_boot_is_shown_until_it_does() {
    let server = Server::start_with(site(), &DEV);
    server.site().write("worker.php", "<?php function (");
    let page = wait_for_page(&server, "Parse error");
    assert_eq!((page.status, page.header("refresh")), (500, Some("1")));
    assert!(
        page.text()
            .contains("The server tries again when a file changes.")
    );
    server.logged(&["ERROR", "worker ended before it was ready"]);
    mend(&server);
    server.stop();
}

#[test]
fn a_start_with_broken_code_waits_for_a_change() {
    let server = Server::start_with(site().file("worker.php", "<?php function ("), &DEV);
    assert!(server.get("/").text().contains("Parse error"));
    mend(&server);
    server.stop();
}

#[test]
fn folders_that_come_and_go_are_watched() {
    let server = Server::start_with(site().file("src/page.php", "<?php"), &DEV);
    // As a checkout of another branch does it.
    std::fs::remove_dir_all(server.site().path("src")).unwrap();
    server.site().write("src/page.php", "<?php");
    let reloads = || server.log().matches("starting new workers").count();
    wait_for("the checkout to be seen", || (reloads() > 0).then_some(()));
    for file in 1.. {
        if server.log().contains("src/new") {
            break;
        }
        let before = reloads();
        server.site().write(&format!("src/new{file}.php"), "<?php");
        wait_for("a change in the new folder to be seen", || {
            (reloads() > before).then_some(())
        });
    }
    server.stop();
}

#[test]
fn an_exception_is_shown_in_development_only() {
    let throws = || {
        site().file(
            "worker.php",
            &Site::sdk_worker("throw new LogicException('<b>why</b>');"),
        )
    };
    let server = Server::start_with(throws(), &DEV);
    let mut connection = server.connect();
    connection.request("GET", "/", "Accept: text/html\r\n");
    let page = connection.response();
    assert_eq!(page.status, 500);
    let text = page.text();
    assert!(
        text.contains("LogicException") && text.contains("worker.php"),
        "{text}"
    );
    assert!(
        text.contains("&lt;b&gt;why") && !text.contains("<b>why"),
        "{text}"
    );
    server.stop();
    let server = Server::start(throws());
    let page = server.get("/");
    assert_eq!((page.status, page.text().contains("why")), (500, false));
    server.logged(&["ERROR", "<b>why</b>"]);
    server.stop();
}

#[test]
fn a_reload_changes_the_editor_of_links() {
    let config = |editor: &str| {
        format!(
            "version: '3'\nserver: {{command: php worker.php}}\n\
             http: {{address: 127.0.0.1:0, pool: {{num_workers: 1}}, development: {{editor: {editor}}}}}\n"
        )
    };
    let worker = Site::sdk_worker("throw new LogicException('why');");
    let site = Site::new()
        .file("worker.php", &worker)
        .config(&config("vscode"));
    let server = Server::start_with(site, &DEV);
    assert_parts(&page(&server, "/"), &["href=\"vscode://"]);
    server.site().write(".rr.yaml", &config("phpstorm"));
    server.signal(Signal::HUP);
    server.logged(&["the configuration is applied"]);
    assert_parts(&page(&server, "/"), &["href=\"phpstorm://"]);
    server.stop();
}

/// What a browser asks for when it shows a page.
const BROWSER: &str = "Accept: text/html,application/xhtml+xml\r\nSec-Fetch-Dest: document\r\n";

/// The page as a browser gets it.
fn page(server: &Server, target: &str) -> Response {
    let mut connection = server.connect();
    connection.request("GET", target, BROWSER);
    connection.response()
}

fn assert_parts(page: &Response, parts: &[&str]) {
    let text = page.text();
    for part in parts {
        assert!(text.contains(part), "{part} in\n{text}");
    }
}

#[test]
fn the_page_shows_the_lines_the_frames_the_request_and_links_to_an_editor() {
    let site = site()
        .file("src/Shop.php", "<?php\nfunction buy() {\n    // the reason\n    throw new LogicException('sold out');\n}\n")
        .file("vendor/acme/call.php", "<?php\nfunction call($it) { return $it(); }\n")
        .file(
            "worker.php",
            &Site::sdk_worker(
                "require_once __DIR__ . '/src/Shop.php'; require_once __DIR__ . '/vendor/acme/call.php';\n\
                 return call(fn () => buy());",
            ),
        );
    let editor = "http.development.editor=phpstorm";
    let server = Server::start_with(site, &["serve", "--dev", "-o", editor]);
    let mut connection = server.connect();
    connection.request(
        "GET",
        "/cart?a=1",
        &format!("{BROWSER}Cookie: s=hidden\r\nX-Note: shown\r\n"),
    );
    let page = connection.response();
    assert_eq!(page.status, 500);
    let folder = server.site().folder().display().to_string();
    assert_parts(
        &page,
        &[
            "sold out",
            "    // the reason",
            "class=\"here\"",
            "in packages and PHP itself",
            "vendor/acme/call.php",
            "GET /cart?a=1",
            "<td>shown</td>",
            &format!("phpstorm://open?file={folder}/src/Shop.php&amp;line=4"),
            "/.pronghorn/reload.js",
        ],
    );
    let text = page.text();
    assert!(!text.contains("hidden"), "{text}");
    let packages = text.find("in packages").expect("they are folded");
    assert!(
        text.find("worker.php:").expect("a frame") < packages,
        "{text}"
    );
    server.stop();
}

#[test]
fn a_file_that_does_not_parse_is_shown_with_its_lines() {
    let server = Server::start_with(site(), &DEV);
    server
        .site()
        .write("worker.php", "<?php\n\nfunction broken(\n}\n");
    let shown = wait_for("the page", || {
        Some(page(&server, "/")).filter(|page| page.text().contains("Parse error"))
    });
    assert_parts(
        &shown,
        &[
            "function broken(",
            "class=\"here\"",
            "What the server says",
            "/.pronghorn/reload.js",
        ],
    );
    assert_eq!(shown.header("refresh"), None, "the script knows when");
    mend(&server);
    server.stop();
}

/// A classic site in development, of one script that does what it is asked for.
fn classic() -> Server {
    let php = format!("php -d extension={}", extension().display());
    let site = Site::new()
        .config(&format!(
            "version: '3'\nhttp:\n  address: 127.0.0.1:0\n  pool: {{mode: classic, root: public, php: '{php}', num_workers: 1}}\n"
        ))
        .file("public/broken.php", "<?php\n\nfunction broken(\n")
        .file(".env", "APP_KEY=SECRET\n")
        .file("settings.php", "<?php return ['key' => 'SECRET'];\n")
        .file(
            "public/index.php",
            r"<?php
function deep() { throw new LogicException('no way'); }
switch ($_GET['do'] ?? '') {
    case 'throw': echo 'half a page'; deep();
    case 'buffered': ob_start(); echo 'half a page'; deep();
    case 'named': throw new InvalidArgumentException('no such user: ' . $_GET['name']);
    case 'quiet': ini_set('log_errors', '0'); deep();
    case 'memory': ini_set('memory_limit', '8M'); str_repeat('x', 1 << 30);
    case 'broken': require __DIR__ . '/broken.php';
    case 'own': register_shutdown_function(function () { echo '<h1>own page</h1>'; }); deep();
    case 'sent': echo 'begun'; while (ob_get_level()) { ob_end_flush(); } flush(); deep();
    case 'warn': echo $undefined, 'goes on'; break;
    case 'long': header('Content-Type: text/html'); echo str_repeat('<p>line</p>', 20000), '</body>'; break;
    default: echo '<body>fine</body>';
}
",
        );
    Server::start_with(site, &DEV)
}

#[test]
fn what_ends_a_classic_script_is_shown_on_the_same_page() {
    let server = classic();
    for (how, parts) in [
        ("throw", ["LogicException", "no way", "function deep()"]),
        ("buffered", ["LogicException", "no way", "function deep()"]),
        ("quiet", ["LogicException", "no way", "function deep()"]),
        (
            "memory",
            ["Fatal error", "Allowed memory size", "str_repeat"],
        ),
        ("broken", ["Parse error", "Unclosed", "function broken("]),
    ] {
        let shown = page(&server, &format!("/?do={how}"));
        assert_eq!(shown.status, 500, "{how}");
        assert_parts(&shown, &parts);
        assert_parts(&shown, &["class=\"here\"", "vscode://file/"]);
        assert!(shown.text().starts_with("<!DOCTYPE html>"), "{how}");
    }
    let script = page(&server, "/broken.php");
    assert_eq!(script.status, 500);
    assert_parts(&script, &["Parse error", "function broken("]);
    // A program gets text.
    let text = server.get("/?do=throw");
    assert_eq!(text.status, 500);
    assert!(
        text.text().starts_with("LogicException: no way\nin "),
        "{}",
        text.text()
    );
    server.stop();
}

/// A visitor's words in a message may look like PHP's.
#[test]
fn a_page_shows_no_file_that_a_message_names() {
    let server = classic();
    let folder = server.site().path("").display().to_string();
    for end in [
        "%23n%20{main}%0A%20%20thrown",
        "%0A%20%20thrown%20in%20/a.php%20on%20line%201",
    ] {
        let frames = [".env", "settings.php"]
            .map(|file| format!("%0A%230%20{folder}{file}(1):%20a()"))
            .concat();
        let name = format!("x%20in%20/a.php:1%0AStack%20trace:{frames}%0A{end}");
        let shown = page(&server, &format!("/?do=named&name={name}"));
        assert_eq!(shown.status, 500);
        assert_parts(&shown, &["InvalidArgumentException", "class=\"here\""]);
        assert!(!shown.text().contains("SECRET"), "{}", shown.text());
    }
    server.stop();
}

#[test]
fn what_a_classic_script_shows_itself_stays() {
    let server = classic();
    let own = page(&server, "/?do=own");
    assert_eq!(own.status, 500);
    assert!(
        own.text().starts_with("<h1>own page</h1>"),
        "{}",
        own.text()
    );
    let sent = page(&server, "/?do=sent");
    assert_eq!(sent.status, 200);
    assert!(sent.text().starts_with("begun"), "{}", sent.text());
    assert_parts(
        &page(&server, "/?do=warn"),
        &["Undefined variable", "goes on"],
    );
    server.stop();
}

#[test]
fn pages_load_again_after_a_change() {
    let server = classic();
    let shown = page(&server, "/");
    let text = shown.text();
    let (before, rest) = text
        .split_once("<script async src=\"/.pronghorn/reload.js\" data-generation=\"")
        .expect("a script");
    assert_eq!(before, "<body>fine");
    let (generation, _) = rest.split_once('"').expect("a number");
    assert_eq!(
        shown.header("content-length"),
        Some(text.len().to_string().as_str())
    );
    assert_eq!(shown.header("cache-control"), Some("no-store"));
    assert_parts(
        &page(&server, "/.pronghorn/reload.js"),
        &["EventSource('/.pronghorn/reload')"],
    );
    // A long page is kept as a whole.
    assert_parts(
        &page(&server, "/?do=long"),
        &["/.pronghorn/reload.js", "</body>"],
    );
    assert_eq!(
        server.get("/").text(),
        "<body>fine</body>",
        "a program gets it as it is"
    );

    let mut events = server.connect();
    events.request("GET", "/.pronghorn/reload", "Accept: text/event-stream\r\n");
    let (status, _) = events.head();
    assert_eq!(status, 200);
    let mut next = || String::from_utf8(events.chunk().expect("it goes on")).expect("text");
    assert_eq!(next(), format!("data: {generation}\n\n"));
    server.site().write("public/page.twig", "{{ changed }}");
    let changed = next();
    assert!(
        changed.starts_with("data: ") && !changed.contains(generation),
        "{changed}"
    );
    server.logged(&["page.twig changed: starting new workers"]);
    // A stream that is open holds nothing up.
    let (_, took) = pronghorn_testkit::time(|| server.stop());
    assert!(took < std::time::Duration::from_secs(5), "{took:?}");
}

#[test]
fn pages_are_left_alone_where_that_is_wanted_and_outside_of_development() {
    let start = |arguments: &[&str]| {
        let site = site().file(
            "worker.php",
            &Site::sdk_worker("return '<body>fine</body>';"),
        );
        Server::start_with(site, arguments)
    };
    for arguments in [
        &["serve", "--dev", "-o", "http.development.reload=false"][..],
        &["serve"],
    ] {
        let server = start(arguments);
        assert_eq!(page(&server, "/").text(), "<body>fine</body>");
        assert_eq!(
            page(&server, "/.pronghorn/reload.js").text(),
            "<body>fine</body>"
        );
        server.stop();
    }
}

#[test]
fn a_change_of_the_configuration_asks_for_a_restart() {
    let server = Server::start_with(site(), &DEV);
    let config = std::fs::read_to_string(server.site().path(".rr.yaml")).unwrap();
    server.site().write(".rr.yaml", &config);
    server.logged(&["WARN", ".rr.yaml changed: restart the server to apply it"]);
    assert_eq!(server.get("/").text(), "one");
    server.stop();
}

#[test]
fn a_section_says_what_is_watched_without_development_mode() {
    let site = site().file("kept/old.php", "<?php");
    site.write(
        ".rr.yaml",
        &format!(
            "{}reload: {{interval: 1s, services: {{http: {{recursive: true, ignore: [kept], patterns: [.php, .tpl]}}}}}}\n",
            site.read(".rr.yaml")
        ),
    );
    let server = Server::start(site);
    server.logged(&["INFO", "for changes"]);
    let reloads = |file: &str| {
        let log = server.log();
        log.matches(&format!("{file} changed: starting new workers"))
            .count()
    };
    assert_eq!(server.get("/").text(), "one");
    // Each round is seen by its last change: had one before it counted, it would have been named
    // instead, or as well.
    for round in 1..=2 {
        server.site().write("kept/old.php", "<?php return 2;");
        server.site().write("notes.txt", "changed");
        server.site().write("page.tpl", "changed");
        wait_for("the template to be seen", || {
            (reloads("page.tpl") >= round).then_some(())
        });
    }
    let two = Site::sdk_worker("return 'two';");
    server.site().write("worker.php", &two);
    wait_for_page(&server, "two");
    assert_eq!((reloads("old.php"), reloads("notes.txt")), (0, 0));
    server.stop();
}
