//! What a script prints is its reply, by whichever way and in whichever mode; what belongs to no
//! reply is dropped, and its bytes stand in no log.

use pronghorn_testkit::{Server, Site};

use crate::classic;
use crate::ring::extension;

/// Ways to print a download: `a,b` is the reply. The log must never have it.
const WAYS: &str = r#"<?php
    function download(string $way): void
    {
        header('Content-Type: text/csv');
        switch ($way) {
            case 'buffered': echo "a,b\n"; break;
            case 'past the buffers': while (ob_get_level() > 0) { ob_end_clean(); } echo "a,b\n"; break;
            case 'past them once': @ob_end_clean(); echo "a,b\n"; break;
            case 'by a stream':
                @ob_end_clean();
                $file = fopen('php://output', 'w');
                fputcsv($file, ['a', 'b']);
                fclose($file);
                break;
            case 'flushed': @ob_end_flush(); echo "a,"; flush(); echo "b\n"; flush(); break;
            case 'flushed before': @ob_clean(); flush(); echo "a,b\n"; break;
            case 'a file':
                while (ob_get_level() > 0) { ob_end_clean(); }
                file_put_contents('printed.csv', "a,b\n");
                header('Content-Length: 4');
                readfile('printed.csv');
                flush();
                break;
            case 'in other buffers': ob_start(); echo 'a,'; ob_start(); echo "b\n"; break;
            case 'in a buffer of its own': @ob_end_clean(); ob_start(); echo "a,b\n"; break;
            case 'past an outer one': echo 'a,'; @ob_end_flush(); ob_start(); echo "b\n"; break;
            case 'at once': ob_implicit_flush(true); @ob_end_clean(); echo 'a,'; echo "b\n"; break;
            case 'at the end': register_shutdown_function(static function (): void { echo "a,b\n"; }); break;
            case 'at the end, past the buffers':
                register_shutdown_function(static function (): void { while (ob_get_level() > 0) { ob_end_clean(); } echo "a,b\n"; });
                break;
            case 'by a callback': ob_start(static fn (string $text): string => strtolower($text)); echo "A,B\n"; break;
        }
    }
"#;

fn ways() -> impl Iterator<Item = &'static str> {
    WAYS.lines().filter_map(|line| {
        let name = line.trim_start().strip_prefix("case '")?;
        name.split('\'').next()
    })
}

fn handler() -> String {
    Site::sdk_worker(
        "require_once 'ways.php'; download($request->query()['way']); isset($request->query()['return']) || exit; return '';",
    )
}

fn front() -> String {
    Site::sdk_worker("").replace(
        "function (Pronghorn\\Request $request): mixed {\n\n}",
        "function () { require 'public/index.php'; }",
    )
}

fn serve(worker: &str, pool: &str) -> Server {
    extension();
    let site = Site::new()
        .file("worker.php", worker)
        .file("ways.php", WAYS)
        .file(
            "public/index.php",
            "<?php require_once __DIR__ . '/../ways.php'; download($_GET['way']); if (!isset($_GET['return'])) { exit; }",
        )
        .config(&format!(
            "version: '3'\nserver: {{command: php worker.php}}\nlogs: {{mode: production, level: debug}}\nhttp:\n  \
             address: '127.0.0.1:0'\n  pool: {{num_workers: 1, {pool}}}\n"
        ));
    Server::start(site)
}

fn each_way_is_the_reply(worker: &str, pool: &str, but: &[&str]) {
    let server = serve(worker, pool);
    for way in ways().filter(|way| !but.contains(way)) {
        for end in ["", "&return=1"] {
            let reply = server.get(&format!("/?way={}{end}", way.replace(' ', "%20")));
            assert_eq!(
                (reply.status, reply.text().as_str()),
                (200, "a,b\n"),
                "{way}{end}"
            );
        }
    }
    let log = server.log();
    for line in log.lines().filter(|line| !line.contains("way=")) {
        assert!(!line.contains("a,") && !line.contains("b\\n"), "{line}");
    }
    server.stop();
}

#[test]
fn what_a_handler_prints_is_the_reply() {
    each_way_is_the_reply(&handler(), "", &[]);
}

#[test]
fn what_a_forked_handler_prints_is_the_reply() {
    each_way_is_the_reply(&handler(), "spawn: fork", &[]);
}

/// Functions for the end belong to the worker there, and not to a call.
#[test]
fn what_a_handler_without_globals_prints_is_the_reply() {
    let ends = ["at the end", "at the end, past the buffers"];
    each_way_is_the_reply(&handler(), "globals: false", &ends);
}

#[test]
fn what_a_front_controller_prints_is_the_reply() {
    each_way_is_the_reply(&front(), "", &[]);
}

#[test]
fn what_a_forked_front_controller_prints_is_the_reply() {
    each_way_is_the_reply(&front(), "spawn: fork", &[]);
}

#[test]
fn what_a_script_prints_is_the_reply() {
    each_way_is_the_reply("", "mode: classic, root: public", &[]);
    each_way_is_the_reply("", "mode: fastcgi, root: public", &[]);
}

/// Without the extension nobody can tell what is printed past all buffers from a log.
#[test]
fn what_is_printed_past_all_buffers_without_the_extension_is_in_no_log() {
    let body = "while (ob_get_level() > 0) { ob_end_clean(); } echo \"id,name\\n1,Ada\\n\"; return 'page';";
    let site = || {
        Site::new()
            .file("worker.php", &Site::sdk_worker(body))
            .config(
                "version: '3'\nserver: {command: php worker.php}\nlogs: {level: debug}\nhttp:\n  \
                 address: '127.0.0.1:0'\n  pool: {num_workers: 1, transport: relay}\n",
            )
    };
    let server = Server::start(site());
    assert_eq!(server.get("/").text(), "page");
    server.logged(&["WARN", "a worker printed 14 bytes on stdout, in no reply"]);
    assert!(!server.log().contains("Ada"), "{}", server.log());
    server.stop();
    // Where somebody develops, it is shown.
    let server = Server::start_with(site(), &["serve", "--dev"]);
    assert_eq!(server.get("/").text(), "page");
    server.logged(&["1,Ada"]);
    server.stop();
}

/// Behind the reply of a handler that has returned it.
const ENDS: [(&str, &str, &str); 5] = [
    ("much", "echo str_repeat('x', 70_000);", ""),
    (
        "much in a buffer",
        "ob_start(); echo str_repeat('x', 70_000);",
        "",
    ),
    ("flushed", "echo 'x'; @ob_flush(); flush(); echo 'y';", ""),
    ("a head", "header('X-End: 1'); echo 'x';", "X-End"),
    (
        "much by the callback for the head",
        "header_register_callback(function () { header('X-End: 1'); echo str_repeat('c', 70_000); }); echo str_repeat('x', 70_000);",
        "X-End",
    ),
];

#[test]
fn what_is_printed_at_the_end_of_a_handler_stands_behind_its_reply() {
    let cases = ENDS.map(|(end, code, _)| format!("'{end}' => function () {{ {code} }},\n"));
    let cases = cases.concat();
    let handler = Site::sdk_worker(&format!(
        "if ($request->path === '/pid') {{ return (string) getmypid(); }} \
         if ($request->query()['by'] === 'php') {{ header('Content-Length: 5'); }} \
         register_shutdown_function([{cases}][$request->query()['end']]); \
         return new Pronghorn\\Response('page ', 201, ['X-A' => '1'] \
         + ($request->query()['by'] === 'php' ? [] : ['Content-Length' => '5']));"
    ));
    let each = ENDS.map(|end| [(end, "reply"), (end, "php")]).concat();
    for pool in ["spawn: exec", "spawn: fork"] {
        let server = serve(&handler, pool);
        let pid = server.get("/pid").text();
        for ((end, _, field), by) in each.clone() {
            let reply = server.get(&format!("/?by={by}&end={}", end.replace(' ', "%20")));
            assert_eq!(reply.status, 201, "{end}");
            assert_eq!(reply.header("X-A"), Some("1"), "{end}");
            if !field.is_empty() {
                assert_eq!(reply.header(field), Some("1"), "{end}");
            }
            let text = reply.text();
            let (first, last) = (text.strip_prefix("page "), text.chars().last());
            assert!(first.is_some_and(|rest| !rest.is_empty()), "{end}");
            assert_eq!(
                last,
                Some(if end == "flushed" { 'y' } else { 'x' }),
                "{end}"
            );
        }
        assert_eq!(server.get("/pid").text(), pid, "{pool}");
        server.stop();
    }
}

/// The callback for the head of a page that prints nothing runs at its end.
#[test]
fn a_callback_for_the_head_that_throws_or_exits_ends_the_call_and_not_the_worker() {
    let front = Site::sdk_worker("").replace(
        "function (Pronghorn\\Request $request): mixed {\n\n}",
        "function () {
            if ($_GET['way'] === 'pid') { echo getmypid(); return; }
            if (isset($_GET['prints'])) { echo 'printed'; }
            header_register_callback(fn () => match ($_GET['way']) {
                'throws' => throw new Exception('thrown'),
                'exits' => exit,
                'prints' => print('more'),
            });
        }",
    );
    for pool in ["spawn: exec", "spawn: fork"] {
        let server = serve(&front, pool);
        let pid = server.get("/?way=pid").text();
        for (way, status, text) in [
            ("throws", 500, None),
            ("exits", 200, Some("")),
            ("prints", 200, Some("more")),
            ("throws&prints", 500, None),
            ("exits&prints", 200, None),
        ] {
            let reply = server.get(&format!("/?way={way}"));
            assert_eq!(reply.status, status, "{way}, {pool}");
            if let Some(text) = text {
                assert_eq!(reply.text(), text, "{way}, {pool}");
            }
            assert_eq!(server.get("/?way=pid").text(), pid, "{way}, {pool}");
        }
        server.stop();
    }
}

/// As under php-fpm: an error that nobody has caught has the status 500, while no head is sent.
#[test]
fn what_a_function_for_the_end_throws_is_a_500_in_each_mode() {
    let code = "ini_set('display_errors', '0'); ini_set('log_errors', '1');
        register_shutdown_function(static fn () => throw new DomainException('at the end'));";
    let handler = Site::sdk_worker(&format!("{code} return 'page';"));
    let front = Site::sdk_worker("").replace(
        "function (Pronghorn\\Request $request): mixed {\n\n}",
        &format!("function () {{ {code} echo 'page'; }}"),
    );
    let script = format!("<?php {code} echo 'page';");
    let classic = classic::site(1, "").file("public/index.php", &script);
    for server in [
        serve(&handler, "spawn: exec"),
        serve(&front, "spawn: exec"),
        Server::start(classic),
    ] {
        for _ in 0..2 {
            let reply = server.get("/");
            assert_eq!((reply.status, &*reply.text()), (500, "page"));
        }
        server.logged(&["at the end"]);
        server.stop();
    }
}

/// A buffer that PHP lets nobody remove, and callbacks that end a call which has ended. What the
/// client gets of each: the status, and the text of a page that is one.
const BUFFERS: [(&str, &str, u16, Option<&str>); 12] = [
    ("returns", "$open(); return '';", 200, Some("[alice]")),
    ("exits", "$open(); exit;", 200, Some("[alice]")),
    (
        "throws",
        "$open(); throw new Exception('thrown');",
        500,
        None,
    ),
    (
        "two",
        "$open(); $open(); exit;",
        200,
        Some("[alice[alice]]"),
    ),
    (
        "defers",
        "Pronghorn\\Call::current()->defer($open); return 'page';",
        200,
        Some("page"),
    ),
    (
        "defers and exits",
        "Pronghorn\\Call::current()->defer(function () use ($open) { $open(); exit; }); return 'page';",
        200,
        Some("page"),
    ),
    (
        "at the end",
        "register_shutdown_function($open); return 'page';",
        200,
        Some("page[alice]"),
    ),
    (
        "in a destructor",
        "$_GET['late'] = new class($open) { function __construct(private $open) {} \
         function __destruct() { ($this->open)(); } }; return 'page';",
        200,
        Some("page"),
    ),
    (
        "an exit in a callback at an exit",
        "ob_start(function () { exit; }); echo 'x'; exit;",
        200,
        None,
    ),
    (
        "thrown in a callback at an exit",
        "ob_start(fn () => throw new Exception('late')); echo 'x'; exit;",
        0,
        None,
    ),
    (
        "thrown in a callback at an exception",
        "ob_start(fn () => throw new Exception('late')); echo 'x'; throw new Exception('thrown');",
        500,
        None,
    ),
    (
        "an exit in a callback at an exception",
        "ob_start(function () { exit; }); echo 'x'; throw new Exception('thrown');",
        500,
        None,
    ),
];

fn by_case(cases: &[(&str, &str)]) -> [String; 2] {
    let cases = cases
        .iter()
        .map(|(name, code)| format!("case '{name}': {code}"));
    let cases = cases.collect::<Vec<_>>().join("\n");
    let body = format!(
        "$open = function () {{ ob_start(fn (string $text) => \"[$text]\", 0, 0); echo 'alice'; }};
        switch ($_GET['do']) {{
            case 'look': return ob_get_level() . ' ' . getmypid() . json_encode(ob_list_handlers());
            {cases}
        }}"
    );
    let front = front().replace(
        "require 'public/index.php';",
        &format!("echo (function () {{ {body} }})();"),
    );
    [Site::sdk_worker(&body), front]
}

#[test]
fn a_buffer_that_nobody_can_remove_ends_with_its_call() {
    let workers = by_case(&BUFFERS.map(|(name, code, ..)| (name, code)));
    for (worker, pool) in [
        (&workers[0], "spawn: exec"),
        (&workers[0], "spawn: fork"),
        (&workers[0], "spawn: exec, globals: false"),
        (&workers[1], "spawn: exec"),
        (&workers[1], "spawn: fork"),
    ] {
        let without = pool.contains("globals");
        let worker = if without {
            &worker.replace("$_GET['do']", "$request->query()['do']")
        } else {
            worker
        };
        let server = serve(worker, pool);
        let clean = server.get("/?do=look").text();
        for (name, _, status, text) in BUFFERS {
            let reply = server.get(&format!("/?do={}", name.replace(' ', "%20")));
            assert!(
                status == 0 || reply.status == status,
                "{name}: {}, {pool}",
                reply.status
            );
            // Its end is after the reply there.
            let text = text.filter(|_| !without || name != "at the end");
            if let Some(text) = text {
                assert_eq!(reply.text(), text, "{name}, {pool}");
            }
            assert_eq!(server.get("/?do=look").text(), clean, "{name}, {pool}");
        }
        assert!(!server.log().contains("alice"), "{}", server.log());
        server.stop();
    }
}

/// Without the extension PHP keeps such a buffer, and its worker leaves.
#[test]
fn a_buffer_that_nobody_can_remove_is_no_other_visitors_without_the_extension() {
    let workers = by_case(&BUFFERS.map(|(name, code, ..)| (name, code)));
    let server = serve(&workers[0], "transport: relay");
    let level = || {
        let look = server.get("/?do=look").text();
        look.split(' ').next().map(str::to_owned)
    };
    let clean = level();
    for name in ["returns", "exits", "throws", "two", "defers"] {
        server.get(&format!("/?do={name}"));
        assert_eq!(level(), clean, "{name}");
    }
    assert!(!server.log().contains("alice"), "{}", server.log());
    server.stop();
}

/// What PHP frees or calls when a process ends that has run out of memory, or was stopped.
const LAST: [(&str, &str); 4] = [
    (
        "the callback for the head",
        "header_register_callback(fn () => print('alice')); $full();",
    ),
    (
        "a stream",
        "stream_wrapper_register('last', get_class(new class { public $context; \
         function stream_open() { return true; } function stream_close() { echo 'alice'; } })); \
         $_SERVER['kept'] = fopen('last://', 'w'); $full();",
    ),
    (
        "a filter",
        "stream_filter_register('last', get_class(new class extends php_user_filter { \
         function onClose(): void { echo 'alice'; } })); \
         stream_filter_append($_SERVER['kept'] = fopen('php://memory', 'w'), 'last', STREAM_FILTER_WRITE); $full();",
    ),
    (
        "a destructor",
        "$GLOBALS['kept'] = new class { function __destruct() { echo 'alice'; } }; return 'page';",
    ),
];

#[test]
fn what_a_process_prints_at_its_end_is_in_no_log_as_text() {
    let full = "$full = function () { ini_set('memory_limit', '16M'); str_repeat('x', 1 << 26); };";
    let workers =
        by_case(&LAST).map(|worker| worker.replace("$open =", &format!("{full} $open =")));
    for worker in &workers {
        for (name, _) in LAST {
            let server = serve(worker, "spawn: exec");
            let reply = server.get(&format!("/?do={}", name.replace(' ', "%20")));
            let status = if name == "a destructor" { 200 } else { 500 };
            assert_eq!(reply.status, status, "{name}");
            if status == 500 {
                server.logged(&["has printed 5 bytes at its end, which nobody gets"]);
            }
            let log = server.stop().stderr;
            assert!(!log.contains("alice"), "{name}: {log}");
        }
    }
}

/// Ways in which a response of Symfony streams its body.
const STREAMED: &str = r"<?php
    require_once 'Symfony/Component/HttpFoundation/autoload.php';
    function streamed(string $way): Symfony\Component\HttpFoundation\Response
    {
        return new Symfony\Component\HttpFoundation\StreamedResponse(static function () use ($way): void {
            switch ($way) {
                case 'as it is': echo 'a'; echo 'b'; break;
                case 'one closed': if (ob_get_level()) { ob_end_clean(); } readfile('ab.txt'); break;
                case 'one flushed': @ob_end_flush(); echo 'a'; flush(); echo 'b'; break;
                case 'one got': @ob_get_clean(); echo 'ab'; break;
                case 'one got by flush': @ob_get_flush(); echo 'ab'; break;
                case 'two closed': @ob_end_clean(); @ob_end_clean(); echo 'a'; flush(); echo 'b'; break;
                case 'three flushed': @ob_end_flush(); @ob_end_flush(); @ob_end_flush(); echo 'ab'; break;
                case 'four closed': for ($i = 0; $i < 4; $i++) { @ob_end_clean(); } echo 'ab'; break;
                case 'all closed': while (ob_get_level() > 0) { ob_end_clean(); } echo 'a'; flush(); echo 'b'; break;
                case 'between': echo 'a'; @ob_end_flush(); echo 'b'; @ob_end_flush(); echo 'c'; @ob_end_flush(); echo 'd'; break;
                case 'a stream': @ob_end_clean(); fwrite(fopen('php://output', 'w'), 'ab'); break;
                case 'a stream, all open': fwrite(fopen('php://output', 'w'), 'ab'); break;
                case 'one of its own': @ob_end_clean(); ob_start(); echo 'ab'; break;
                case 'one closed and another': @ob_end_clean(); ob_start(); echo 'a'; ob_end_flush(); echo 'b'; break;
                case 'one dropped': @ob_end_clean(); ob_start(); echo 'dropped'; ob_end_clean(); echo 'b'; break;
                case 'cleaned before': @ob_clean(); @ob_end_clean(); echo 'ab'; break;
                case 'an exit': @ob_end_clean(); echo 'ab'; exit;
                case 'an exit, all open': echo 'ab'; exit;
                case 'an exit, all closed': while (ob_get_level() > 0) { ob_end_clean(); } echo 'ab'; exit;
                case 'long': @ob_end_clean(); for ($i = 0; $i < 1000; $i++) { echo str_repeat('long', 1000); } break;
                case 'long, two closed': @ob_end_clean(); @ob_end_clean(); echo str_repeat('long', 1_000_000); break;
                case 'a failure': @ob_end_clean(); throw new LogicException('on purpose');
                case 'a failure, all open': throw new LogicException('on purpose');
                case 'a failure, two closed': @ob_end_clean(); @ob_end_clean(); throw new LogicException('on purpose');
            }
        }, 200, ['Content-Type' => 'text/plain']);
    }
";

/// What a script answers as well.
#[test]
fn what_a_streamed_response_prints_is_the_reply_whatever_it_closes() {
    extension();
    let worker = "<?php require 'AUTOLOAD'; require __DIR__ . '/streamed.php';\n\
        Pronghorn\\serve(fn (Symfony\\Component\\HttpFoundation\\Request $request) => streamed($request->query->get('way')));";
    let autoload = concat!(env!("CARGO_MANIFEST_DIR"), "/../php/autoload.php");
    let script = "<?php require_once __DIR__ . '/../streamed.php'; ini_set('display_errors', '0'); chdir(__DIR__ . '/..');\n\
        streamed($_GET['way'])->send();";
    let serve = |pool: &str| {
        let site = Site::new()
            .file("worker.php", &worker.replace("AUTOLOAD", autoload))
            .file("streamed.php", STREAMED)
            .file("ab.txt", "ab")
            .file("public/index.php", script)
            .config(&format!(
                "version: '3'\nserver: {{command: php worker.php}}\nhttp:\n  address: '127.0.0.1:0'\n  \
                 pool: {{num_workers: 1, {pool}}}\n"
            ));
        Server::start(site)
    };
    let scripts = serve("mode: fastcgi, root: public");
    let pools = [
        "mode: classic, root: public",
        "",
        "globals: false",
        "spawn: fork",
        "spawn: fork, max_jobs: 1",
        "spawn: exec, max_jobs: 1",
        "transport: relay",
    ];
    let ways = STREAMED.lines().filter_map(|line| {
        let name = line.trim_start().strip_prefix("case '")?;
        name.split('\'').next()
    });
    let said: Vec<_> = ways
        .map(|way| {
            let target = format!("/?way={}", way.replace(' ', "%20"));
            let reply = scripts.get(&target);
            (target, reply.status, reply.text())
        })
        .collect();
    for pool in pools {
        let server = serve(pool);
        // Without the extension nobody has what is printed past all buffers, and the log says so.
        let is_past_all = |target: &str| target.contains("four") || target.contains("all%20closed");
        for (target, status, text) in &said {
            if pool.contains("relay") && is_past_all(target) {
                continue;
            }
            let reply = server.get(target);
            assert_eq!(reply.status, *status, "{pool} {target}");
            assert!(
                *status != 200 || reply.text() == *text,
                "{pool} {target}: {} for {}",
                reply.text().len(),
                text.len()
            );
        }
        server.stop();
    }
    scripts.stop();
}
