//! What a script finds in its superglobals, compared with what nginx and php-fpm give it for the
//! same bytes.
//!
//! The expected values are in no file: both servers are asked in the same run, by the same client.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::SocketAddr;

use pronghorn_testkit::{Connection, Server, Site, free_address};
use serde_json::Value;

use crate::nginx::Nginx;
use crate::php_fpm::PhpFpm;
use crate::ring::extension;

mod cases;

use cases::Case;

/// What may differ in `$_SERVER`, and why.
const MAY_DIFFER: [(&str, &str); 16] = [
    ("SERVER_SOFTWARE", "a name"),
    ("SERVER_PORT", "a port"),
    ("REMOTE_PORT", "a port"),
    ("REQUEST_TIME", "a time"),
    ("REQUEST_TIME_FLOAT", "a time"),
    (
        "SERVER_NAME",
        "of nginx a setting, of this server the host that was asked for",
    ),
    (
        "REMOTE_USER",
        "nginx tells the name of `Authorization: Basic`, which nobody has checked",
    ),
    ("FCGI_ROLE", "of FastCGI, not of the request"),
    ("USER", "php-fpm tells its own user"),
    ("HOME", "php-fpm tells its own user's"),
    ("PATH", "php-cgi shows its own environment"),
    ("TMPDIR", "php-cgi shows its own environment"),
    ("PWD", "php-cgi shows its own environment"),
    ("PHP_FCGI_MAX_REQUESTS", "php-cgi shows its own environment"),
    ("PHP_FCGI_CHILDREN", "php-cgi shows its own environment"),
    ("PHP_INI_SCAN_DIR", "php-cgi shows its own environment"),
];

/// The application: the same script at each place that a case asks for.
fn write_site(site: &Site) {
    let script =
        std::fs::read_to_string(Site::fixture("superglobals.php")).expect("it can be read");
    for name in [
        "index.php",
        "dump.php",
        "sub/index.php",
        "odd.php/in.php",
        "with space.php",
    ] {
        site.write(&format!("public/{name}"), &script);
    }
    site.write("public/page.txt", "a page\n");
}

/// nginx and php-fpm, as Debian sets them up, with the fall-back to a front controller that
/// frameworks ask for.
struct Oracle {
    _nginx: Nginx,
    address: SocketAddr,
    _fpm: PhpFpm,
}

impl Oracle {
    fn start(site: &Site) -> Self {
        let fpm = PhpFpm::start(site);
        // Debian's file names it relative to the configuration.
        let params = std::fs::read_to_string("/etc/nginx/fastcgi.conf");
        site.write(
            "fastcgi.conf",
            &params.expect("nginx is installed (scripts/need tests)"),
        );
        let address = free_address();
        let (root, socket) = (site.path("public"), fpm.socket());
        let http = format!(
            "default_type application/octet-stream; client_max_body_size 64m;\n\
             server {{ listen {address}; server_name test; root {}; index index.php;\n\
             location / {{ try_files $uri $uri/ /index.php$is_args$args; }}\n\
             location ~ \\.php(/|$) {{ include /etc/nginx/snippets/fastcgi-php.conf; fastcgi_pass unix:{}; }}\n\
             location ~ /\\. {{ deny all; }} }}\n",
            root.display(),
            socket.display()
        );
        Self {
            _nginx: Nginx::start(site, &http, address),
            address,
            _fpm: fpm,
        }
    }
}

/// What came back: a status, and for 200 what the script has seen.
#[derive(Debug, Clone, PartialEq)]
struct Seen {
    /// 0 when the connection was closed without an answer.
    status: u16,
    superglobals: BTreeMap<String, String>,
}

fn ask(address: SocketAddr, request: &[u8]) -> Seen {
    let mut connection = Connection::open(address);
    connection.send(request);
    let mut superglobals = BTreeMap::new();
    let Some(answer) = connection.answer() else {
        return Seen {
            status: 0,
            superglobals,
        };
    };
    if answer.status == 200 {
        match serde_json::from_slice(&answer.body) {
            Ok(all) => flatten("", &all, &mut superglobals),
            Err(_) => _ = superglobals.insert("body".to_owned(), answer.text()),
        }
    }
    Seen {
        status: answer.status,
        superglobals,
    }
}

/// Each value by the way that leads to it.
fn flatten(way: &str, value: &Value, into: &mut BTreeMap<String, String>) {
    match value {
        Value::Object(items) if !items.is_empty() => {
            for (name, item) in items {
                flatten(&format!("{way}{name}"), item, into);
            }
        }
        _ => _ = into.insert(way.to_owned(), value.to_string()),
    }
}

/// What is not the same, for people; empty when all is.
fn differences(case: &Case, expected: &Seen, seen: &Seen) -> String {
    let mut text = String::new();
    if expected.status != seen.status {
        if !case.may_be(expected.status, seen.status) {
            _ = writeln!(
                text,
                "  status: nginx {}, ours {}",
                expected.status, seen.status
            );
        }
        return text;
    }
    let (expected, seen) = (&expected.superglobals, &seen.superglobals);
    let mut ways: Vec<&String> = expected.keys().chain(seen.keys()).collect();
    ways.sort();
    ways.dedup();
    for way in ways {
        let name = way.strip_prefix(".server.").unwrap_or_default();
        let (expected, seen) = (expected.get(way), seen.get(way));
        let none = "nothing".to_owned();
        let may_differ = MAY_DIFFER.iter().any(|(known, _)| *known == name) || case.may_differ(way);
        if expected != seen && !may_differ {
            let (expected, seen) = (expected.unwrap_or(&none), seen.unwrap_or(&none));
            _ = writeln!(text, "  {way}: nginx {expected}, ours {seen}");
        }
    }
    text
}

/// Runs all cases over a pool in this mode.
fn compare(mode: &str, more: &str) {
    let site = Site::new();
    write_site(&site);
    let oracle = Oracle::start(&site);
    let cases = cases::all();
    assert!(cases.len() >= 200, "{} cases", cases.len());
    let own = Site::new().config(&format!(
        "version: '3'\nhttp:\n  address: 127.0.0.1:0\n  pool: {{mode: {mode}, root: {}, num_workers: 2{more}}}\n",
        site.path("public").display()
    ));
    let server = Server::start(own);
    let mut wrong = String::new();
    for case in &cases {
        let expected = ask(oracle.address, &case.request);
        let differences = differences(case, &expected, &ask(server.address(), &case.request));
        if !differences.is_empty() {
            _ = writeln!(wrong, "{}\n{differences}", case.name);
        }
    }
    server.stop();
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn classic_gives_scripts_what_nginx_and_php_fpm_give_them() {
    let php = format!("php -d extension={}", extension().display());
    compare("classic", &format!(", php: '{php}'"));
}

#[test]
fn fastcgi_gives_scripts_what_nginx_and_php_fpm_give_them() {
    compare("fastcgi", "");
}
