//! Spellings of paths: what a router of Symfony, Laravel, Slim or WordPress takes for a path that a
//! route has closed is closed.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::process::Stdio;

use pronghorn_testkit::{Server, Site, php_command};

use crate::ring::extension;

/// Paths that are closed, and one that is not.
const PATHS: [&str; 4] = [
    "/api/login",
    "/admin/users",
    "/wp-json/wp/v2/users",
    "/api/about",
];

const ROUTES: &str =
    "routes: [{path: [/api/login, '/admin/*', /wp-json/wp/v2/users], refuse: 403}]";

/// Spellings of a slash, each taken for one by somebody.
const SLASHES: [&str; 13] = [
    "/", "//", "///", "%2F", "%2f", "/%2F", "%252F", "/./", "/%2e/", "/x/../", "%5C", "\\", ";a=b/",
];
/// Texts that may stand behind a path.
const ENDS: [&str; 12] = [
    "", "/", "//", "%2F", "%00", "%0A", "%20", "%09", "+", ";a=b", "/.", "%00.css",
];

/// One thing of each kind at every place, and then many at once.
fn spellings() -> Vec<String> {
    let mut random = fastrand::Rng::with_seed(0x2f);
    let mut all = Vec::new();
    for path in PATHS {
        let segments: Vec<&str> = path.split('/').skip(1).collect();
        let (_, behind) = path.split_at(1);
        for byte in 0..=u8::MAX {
            // Behind the path, and behind its first slash.
            all.push(format!("{path}%{byte:02x}"));
            all.push(format!("/%{byte:02X}{behind}"));
            all.push(path.replacen('/', &format!("/%{byte:02x}/"), 1));
        }
        for at in 1..path.len() {
            let (before, after) = path.split_at(at);
            let first = after.as_bytes()[0];
            let (_, rest) = after.split_at(1);
            all.push(format!("{before}%{first:02x}{rest}"));
            all.push(format!("{before}%25{first:02X}{rest}"));
            all.push(format!(
                "{before}{}{rest}",
                char::from(first).to_ascii_uppercase()
            ));
        }
        for _ in 0..700 {
            let mut text = String::new();
            if random.u8(..6) == 0 {
                text.push_str("/index.php");
            }
            for (nth, segment) in segments.iter().enumerate() {
                let slash = SLASHES[random.usize(..SLASHES.len()) * random.usize(..2)];
                if nth == 0 && !slash.starts_with('/') {
                    text.push('/');
                }
                text.push_str(slash);
                for letter in segment.chars() {
                    match random.u8(..12) {
                        0 => _ = write!(text, "%{:02x}", u32::from(letter)), // a String takes all
                        1 => text.push(letter.to_ascii_uppercase()),
                        _ => text.push(letter),
                    }
                }
            }
            text.push_str(ENDS[random.usize(..ENDS.len()) * random.usize(..2)]);
            all.push(text);
        }
    }
    all.sort();
    all.dedup();
    all
}

/// Which routers lead each of these to what is closed.
fn routers(spellings: &[String]) -> Vec<Vec<String>> {
    let mut php = php_command("php")
        .args(["-d", "error_reporting=0"])
        .arg(Site::fixture("routers.php"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("php starts");
    let lines = format!("{}\n", spellings.join("\n"));
    let mut stdin = php.stdin.take().expect("it is piped");
    let writing = std::thread::spawn(move || stdin.write_all(lines.as_bytes()));
    let ended = php.wait_with_output().expect("it ends");
    writing.join().expect("no panic").expect("php reads all");
    let said = String::from_utf8(ended.stdout).expect("names");
    let of_line = |line: &str| line.split_whitespace().map(str::to_owned).collect();
    said.lines().map(of_line).collect()
}

#[test]
fn what_a_router_takes_for_a_closed_path_is_closed() {
    let spellings = spellings();
    let routers = routers(&spellings);
    assert_eq!(routers.len(), spellings.len(), "an answer for each");
    let site = Site::new()
        .config(&format!(
            "version: '3'\nhttp:\n  address: 127.0.0.1:0\n  {ROUTES}\n  \
             pool: {{mode: classic, php: 'php -d extension={}', root: public, num_workers: 1}}\n",
            extension().display()
        ))
        .file("public/index.php", "<?php echo 'front';");
    let server = Server::start(site);
    let mut connection = server.connect();
    let mut taken = BTreeMap::new();
    let mut open = Vec::new();
    for (spelling, routers) in spellings.iter().zip(&routers) {
        for router in routers {
            *taken.entry(router.as_str()).or_insert(0) += 1;
        }
        if routers.is_empty() {
            continue;
        }
        connection.request("GET", spelling, "");
        let reply = connection.response();
        if reply.status == 200 {
            open.push(format!("{spelling} of {}", routers.join(", ")));
        }
        if reply.header("connection") == Some("close") {
            connection = server.connect();
        }
    }
    assert!(open.is_empty(), "{} are open: {open:#?}", open.len());
    // Each of them undoes something, or nothing would have been tried.
    for router in [
        "symfony",
        "symfony-compiled",
        "symfony-lenient",
        "laravel",
        "slim",
        "wordpress",
    ] {
        assert!(taken.get(router).is_some_and(|it| *it > 40), "{taken:?}");
    }
    for (path, status) in [
        ("/", 200),
        ("/api/about", 200),
        ("/api%2Fabout", 200),
        ("/admin", 403),
    ] {
        assert_eq!(server.get(path).status, status, "{path}");
    }
    server.stop();
}

/// A kept front controller is known to frameworks by the name of the worker's script.
#[test]
fn the_name_of_a_worker_script_opens_no_closed_path() {
    extension();
    let script = Site::sdk_worker("").replace(
        "function (Pronghorn\\Request $request): mixed",
        "function (): void",
    );
    let site = Site::new().file("app.php", &script).config(&format!(
        "version: '3'\nserver: {{command: php app.php}}\n\
         http:\n  address: 127.0.0.1:0\n  {ROUTES}\n  pool: {{num_workers: 1}}\n"
    ));
    let server = Server::start(site);
    for (path, status) in [
        ("/admin/users", 403),
        ("/app.php/admin/users", 403),
        ("/app%2ephp/admin/users", 403),
        ("//app.php//admin/users", 403),
        ("/app.php/other", 200),
        ("/app.phpx/admin/users", 200),
    ] {
        assert_eq!(server.get(path).status, status, "{path}");
    }
    server.stop();
}

/// Symfony and others take `post` for `POST`.
#[test]
fn a_method_in_small_letters_is_the_same_method() {
    let site = Site::new()
        .config(
            "version: '3'\nserver: {command: php worker.php}\nhttp:\n  address: 127.0.0.1:0\n  \
             pool: {num_workers: 1}\n  routes: [{path: /login, method: POST, refuse: 429}]\n",
        )
        .file("worker.php", &Site::sdk_worker("return 'front';"));
    let server = Server::start(site);
    for (method, status) in [("POST", 429), ("post", 429), ("GET", 200)] {
        let mut connection = server.connect();
        connection.request(method, "/login", "");
        assert_eq!(connection.response().status, status, "{method}");
    }
    server.stop();
}

#[test]
fn a_route_says_which_scripts_answer() {
    let pool = |scripts: &str| {
        format!("{{path: /{scripts}/*, scripts: {scripts}, strip_prefix: /{scripts}}}")
    };
    let routes: Vec<_> = ["named", "front", "none"].map(pool).to_vec();
    let site = Site::new()
        .config(&format!(
            "version: '3'\nhttp:\n  address: 127.0.0.1:0\n  routes: [{}]\n  \
             pool: {{mode: classic, php: 'php -d extension={}', root: public, num_workers: 1}}\n",
            routes.join(", "),
            extension().display()
        ))
        .file("public/index.php", "<?php echo 'front';")
        .file("public/page.php", "<?php echo 'page';")
        .file("public/sub/index.php", "<?php echo 'sub';")
        .file("public/a.css", "css");
    let server = Server::start(site);
    for (path, all, named, front, none) in [
        ("/a.css", "css", "css", "css", "css"),
        ("/page.php", "page", "page", "404", "404"),
        ("/page.php/x", "page", "page", "404", "404"),
        ("/index.php", "front", "front", "front", "404"),
        ("/", "front", "front", "front", "404"),
        ("/sub/", "sub", "sub", "front", "404"),
        ("/missing", "front", "404", "front", "404"),
        ("/missing.php", "404", "404", "404", "404"),
    ] {
        for (prefix, expected) in [
            ("", all),
            ("/named", named),
            ("/front", front),
            ("/none", none),
        ] {
            let reply = server.get(&format!("{prefix}{path}"));
            let said = match reply.status {
                200 => reply.text(),
                other => other.to_string(),
            };
            assert_eq!(said, expected, "{prefix}{path}");
        }
    }
    server.stop();
}
