//! The same script in every mode in which PHP answers requests.

use pronghorn_testkit::{Server, Site};

use crate::php_fpm;
use crate::ring::extension;

/// A way to run `public/index.php`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mode {
    pub(crate) name: &'static str,
    /// What `Pronghorn\serve()` gets, in modes with a worker.
    handler: Option<&'static str>,
    /// Keys of the pool.
    pool: &'static str,
}

impl Mode {
    const fn worker(name: &'static str, handler: &'static str, pool: &'static str) -> Self {
        Self {
            name,
            handler: Some(handler),
            pool,
        }
    }

    /// Whether what is said of errors comes by FastCGI's one stream for that.
    pub(crate) fn is_fastcgi(&self) -> bool {
        self.pool.contains("mode: fastcgi")
    }

    /// Whether each request is the last one of its process.
    pub(crate) fn ends_its_worker(&self) -> bool {
        self.pool.contains("max_jobs: 1")
    }

    const fn scripts(name: &'static str, pool: &'static str) -> Self {
        Self {
            name,
            handler: None,
            pool,
        }
    }
}

const HANDLER: &str =
    "function (Pronghorn\\Request $request) { require 'public/index.php'; return ''; }";
const FRONT: &str = "function () { require 'public/index.php'; }";

const PSR: &str =
    "function (Psr\\Http\\Message\\ServerRequestInterface $request) { require 'public/index.php';
    return new Nyholm\\Psr7\\Response(); }";

pub(crate) const MODES: [Mode; 11] = [
    Mode::worker("handler", HANDLER, ""),
    Mode::worker("forked handler", HANDLER, "spawn: fork"),
    Mode::worker("PSR-7", PSR, ""),
    Mode::worker("front controller", FRONT, ""),
    Mode::worker("forked front controller", FRONT, "spawn: fork"),
    Mode::worker("pristine", FRONT, "spawn: fork, max_jobs: 1"),
    Mode::worker("front controller by exec, once", FRONT, "max_jobs: 1"),
    Mode::scripts("classic", "mode: classic, root: public"),
    Mode::scripts(
        "classic by exec",
        "mode: classic, root: public, spawn: exec",
    ),
    Mode::scripts("fastcgi", "mode: fastcgi, root: public"),
    Mode::scripts(
        "php-fpm",
        "mode: fastcgi, root: public, fastcgi: {php_fpm: FPM}",
    ),
];

const RETURNED: [Mode; 3] = [
    Mode::worker(
        "returned text",
        "fn (Pronghorn\\Request $request) => require 'public/index.php'",
        "",
    ),
    Mode::worker(
        "returned pieces",
        "function (Pronghorn\\Request $request) { $text = require 'public/index.php'; \
         return Pronghorn\\Response::stream(fn ($send) => $send($text)); }",
        "",
    ),
    Mode::worker(
        "returned PSR-7",
        "fn (Psr\\Http\\Message\\ServerRequestInterface $request) => new Nyholm\\Psr7\\Response(200, [], require 'public/index.php')",
        "",
    ),
];

/// A site with this script, and further settings of PHP.
pub(crate) fn site(mode: Mode, script: &str, ini: &str) -> Site {
    extension();
    let worker = mode.handler.map(|handler| {
        let worker = Site::sdk_worker("").replace(
            "function (Pronghorn\\Request $request): mixed {\n\n}",
            handler,
        );
        worker.replacen("<?php", "<?php require 'Nyholm/Psr7/autoload.php';", 1)
    });
    Site::new()
        .file("worker.php", &worker.unwrap_or_default())
        .file("public/index.php", script)
        .config(&format!(
            "version: '3'\nserver: {{command: php worker.php}}\nlogs: {{mode: production, level: debug}}\nhttp:\n  \
             address: '127.0.0.1:0'\n  request_id: {{}}\n  pool: {{num_workers: 1, ini: {{{ini}}}, {}}}\n",
            mode.pool.replace("FPM", &php_fpm::name())
        ))
}

/// What a script can do about the type of its reply.
const TYPES: [(&str, &str); 12] = [
    ("nothing", ""),
    ("no default", "ini_set('default_mimetype', '');"),
    (
        "another default",
        "ini_set('default_mimetype', 'text/plain');",
    ),
    (
        "another charset",
        "ini_set('default_charset', 'ISO-8859-1');",
    ),
    (
        "removed",
        "header('Content-Type: text/a'); header_remove('Content-Type');",
    ),
    ("removed, never there", "header_remove('Content-Type');"),
    (
        "removed last",
        "header_register_callback(fn () => header_remove('Content-Type'));",
    ),
    (
        "set last",
        "header_register_callback(fn () => header('Content-Type: text/a'));",
    ),
    (
        "two",
        "header('Content-Type: text/a'); header('Content-Type: text/b', false);",
    ),
    ("no content", "http_response_code(204);"),
    ("not modified", "http_response_code(304);"),
    ("empty", "header('Content-Type:');"),
];

#[test]
fn a_reply_has_the_type_that_php_fpm_gives_it_in_all_modes() {
    let cases = TYPES.map(|(name, code)| format!("case '{name}': {code} break;"));
    let script = |says: &str| {
        format!(
            "<?php switch (rawurldecode($_SERVER['QUERY_STRING'])) {{ {} }} {says}",
            cases.join("\n")
        )
    };
    let types = |mode: Mode, says: &str| {
        let server = Server::start(site(mode, &script(says), ""));
        let all = TYPES.map(|(name, _)| {
            let reply = server.get(&format!("/?{}", name.replace(' ', "%20")));
            (name, reply.header("content-type").map(str::to_owned))
        });
        server.stop();
        all
    };
    let [.., php_fpm] = MODES;
    let expected = types(php_fpm, "echo 'x';");
    for mode in MODES {
        assert_eq!(types(mode, "echo 'x';"), expected, "{}", mode.name);
    }
    // What a handler returns without a word printed.
    for returned in RETURNED {
        assert_eq!(
            types(returned, "return 'x';"),
            expected,
            "{}",
            returned.name
        );
    }
}

/// A status goes to the server in 16 bits.
#[test]
fn a_status_that_is_no_number_of_three_digits_is_not_told_as_another_one() {
    const SCRIPT: &str = "<?php http_response_code((int) $_GET['n']); echo 'x';";
    for (name, codes) in [
        ("handler", &["65736", "70000"][..]),
        ("front controller", &["-1", "65736"]),
        ("classic", &["-1", "65736"]),
    ] {
        let mode = MODES.into_iter().find(|mode| mode.name == name);
        let server = Server::start(site(mode.expect("it is there"), SCRIPT, ""));
        for code in codes {
            let target = format!("/?n={code}");
            assert_eq!(server.get(&target).status, 500, "{name} {code}");
            server.logged(&["can't be sent: status below 0 or above 65534", &target]);
        }
        server.stop();
    }
}
