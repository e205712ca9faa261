//! Requests that are malformed, or that two servers may read differently: every row of
//! `vectors/malformed.json` goes to our server and to Debian's nginx before PHP. What either does
//! otherwise than its row says fails, and so does a page that does not show the rows.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use pronghorn_testkit::{Connection, Server, Site, free_address, php_command, wait_for};
use serde_json::{Map, Value, json};

use crate::nginx::Nginx;

/// Sent behind each row. Only if it is answered does the server agree about where the row's request
/// ends.
const NEXT: &str = "GET /next HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n";

#[test]
fn every_row_is_answered_as_it_says() {
    let server = Server::start(
        Site::new()
            .config(
                "version: '3'\nserver: {command: php worker.php}\nhttp:\n  address: 127.0.0.1:0\n  pool: {num_workers: 1}\n  \
                 pools: {admin: {command: php worker.php admin, num_workers: 1}}\n  \
                 routes: [{path: '/admin/*', pool: admin}]\n",
            )
            .file("worker.php", &worker()),
    );
    let wrong = compare(|row| expected(row, None), || server.connect());
    assert!(wrong.is_empty(), "{wrong}");
    server.stop();
}

#[test]
fn every_difference_from_nginx_is_listed() {
    if !is_the_compared_version() {
        eprintln!("not compared: this is not the nginx of Debian 12");
        return;
    }
    let site = Site::new().file("index.php", &script());
    let (address, socket) = (free_address(), site.path("php.socket"));
    let mut php = php_behind(&socket);
    let nginx = Nginx::start(&site, &nginx_block(&site, &socket, address), address);
    let wrong = compare(|row| expected(row, row.get("nginx")), || nginx.connect());
    let (_, rows) = rows();
    for row in rows {
        if let Some(theirs) = row.get("nginx") {
            assert!(!text(theirs, "why").is_empty(), "a reason in {row}");
            let same = expected(&row, None) == expected(&row, Some(theirs));
            assert!(!same, "no difference in {row}");
        }
    }
    drop(nginx);
    php.kill().unwrap();
    php.wait().unwrap();
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn the_page_shows_every_row() {
    let path = repository().join("docs/reference/malformed-requests.md");
    let page = page();
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, &page).unwrap();
    }
    let shown = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        shown == page,
        "{} is not what vectors/malformed.json says; UPDATE_GOLDEN=1 writes it",
        path.display()
    );
}

/// Sends every row over a connection of its own. All that went otherwise than expected, as text.
#[expect(
    clippy::print_stderr,
    reason = "names the row when a server answers nothing at all"
)]
fn compare(expected: impl Fn(&Value) -> Value, connect: impl Fn() -> Connection) -> String {
    let mut wrong = String::new();
    for row in rows().1 {
        eprintln!("{}, {}", text(&row, "group"), text(&row, "name"));
        let mut connection = connect();
        connection.send(bytes(&row));
        connection.send(NEXT);
        let (seen, expected) = (seen(&connection.rest()), expected(&row));
        if seen != expected {
            _ = writeln!(
                wrong,
                "{}, {}:\n  expected {expected}\n  seen     {seen}",
                text(&row, "group"),
                text(&row, "name")
            );
        }
    }
    wrong
}

/// What a row says, with what stands in `theirs` instead.
fn expected(row: &Value, theirs: Option<&Value>) -> Value {
    let say = |key| {
        theirs
            .and_then(|theirs| theirs.get(key))
            .or_else(|| row.get(key))
    };
    let answer = say("answer").expect("every row has an answer").clone();
    let served = answer.as_u64().is_some_and(|status| status < 400);
    // What PHP sees of a request that only one of the two refuses.
    let reaches_php = served || answer.is_string();
    let php = reaches_php.then(|| say("php").cloned()).flatten();
    let next = say("next").and_then(Value::as_bool).unwrap_or(served);
    json!({"answer": answer, "php": php, "next": next})
}

/// What a server made of a row and the request behind it.
fn seen(received: &[u8]) -> Value {
    let mut answers = Vec::new();
    let mut rest = received;
    while !rest.is_empty() {
        let (status, body, behind) = answer(rest);
        rest = behind;
        if status != json!(100) {
            answers.push((status, php(&body)));
        }
    }
    let is_next = |php: &Option<Value>| matches!(php, Some(php) if php["target"] == json!("/next"));
    match answers.as_slice() {
        [] => json!({"answer": "closed", "php": null, "next": false}),
        [(status, php)] => json!({"answer": status, "php": php, "next": false}),
        [(status, php), (_, next)] if is_next(next) => {
            json!({"answer": status, "php": php, "next": true})
        }
        more => json!({"answers": more}),
    }
}

/// The first answer of what was received: its status, its body, and what is behind it.
fn answer(received: &[u8]) -> (Value, Vec<u8>, &[u8]) {
    if !received.starts_with(b"HTTP/") {
        return (json!("HTTP/0.9"), received.to_vec(), b"");
    }
    let end = find(received, b"\r\n\r\n").expect("a head ends");
    let head = String::from_utf8_lossy(&received[..end]).to_ascii_lowercase();
    let status: u16 = head
        .get(9..12)
        .and_then(|status| status.parse().ok())
        .expect("a status is a number");
    let mut rest = &received[end + 4..];
    let mut body = Vec::new();
    if let Some((_, length)) = head.split_once("content-length: ") {
        let length = length.split("\r\n").next().unwrap_or_default();
        let length: usize = length.parse().expect("a length is a number");
        (body, rest) = (rest[..length].to_vec(), &rest[length..]);
    } else if head.contains("transfer-encoding: chunked") {
        loop {
            let line = find(rest, b"\r\n").expect("a size line ends");
            let size = std::str::from_utf8(&rest[..line]).expect("a size is text");
            let size = usize::from_str_radix(size, 16).expect("a size is a number");
            body.extend_from_slice(&rest[line + 2..line + 2 + size]);
            rest = &rest[line + 2 + size + 2..];
            if size == 0 {
                break;
            }
        }
    } else if status >= 200 {
        (body, rest) = (rest.to_vec(), b"");
    }
    (json!(status), body, rest)
}

fn find(text: &[u8], what: &[u8]) -> Option<usize> {
    text.windows(what.len()).position(|window| window == what)
}

/// What PHP says that it saw, without what is as usual; none if the answer is not PHP's.
fn php(body: &[u8]) -> Option<Value> {
    let mut seen: Map<String, Value> = serde_json::from_slice(body).ok()?;
    let usual = json!({"method": "GET", "target": "/", "host": "test", "body": "", "fields": [], "pool": "default"});
    seen.retain(|key, value| usual[key] != *value);
    Some(seen.into())
}

/// In front of both scripts: bytes as characters up to U+00FF, so that all of them fit into JSON.
const SHOW: &str = r"
function show(string $method, string $target, string $host, string $body, array $fields, string $pool): string {
    $text = static fn (string $bytes) => preg_replace_callback(
        '/[\x80-\xff]/',
        static fn (array $byte) => chr(0xc0 | ord($byte[0]) >> 6) . chr(0x80 | ord($byte[0]) & 0x3f),
        $bytes,
    );
    $fields = array_filter($fields, static fn ($name) => str_starts_with($name, 'x-'), ARRAY_FILTER_USE_KEY);
    return json_encode([
        'method' => $method, 'target' => $text($target), 'host' => $host, 'body' => $body,
        'fields' => array_map($text, $fields), 'pool' => $pool,
    ], JSON_UNESCAPED_SLASHES);
}
";

fn worker() -> String {
    let handler = "
        $query = $request->queryString === '' ? '' : '?' . $request->queryString;
        $fields = array_map(static fn (array $values) => $values[0], $request->headers);
        $host = $fields['host'] ?? '';
        $pool = $GLOBALS['argv'][1] ?? 'default';
        return show($request->method, $request->path . $query, $host, $request->body(), $fields, $pool);";
    format!("{}{SHOW}", Site::sdk_worker(handler))
}

fn script() -> String {
    format!(
        "<?php{SHOW}{}",
        r"
$fields = [];
foreach ($_SERVER as $name => $value) {
    if (str_starts_with($name, 'HTTP_')) {
        $fields[strtolower(strtr(substr($name, 5), '_', '-'))] = $value;
    }
}
echo show($_SERVER['REQUEST_METHOD'], $_SERVER['REQUEST_URI'], $_SERVER['HTTP_HOST'] ?? '',
    file_get_contents('php://input'), $fields, $_SERVER['POOL']);
"
    )
}

fn nginx_block(site: &Site, socket: &Path, address: std::net::SocketAddr) -> String {
    let location = |path: &str, pool: &str| {
        format!(
            "location {path} {{ fastcgi_pass unix:{}; fastcgi_param SCRIPT_FILENAME {};\n\
             fastcgi_param REQUEST_METHOD $request_method; fastcgi_param REQUEST_URI $request_uri;\n\
             fastcgi_param CONTENT_LENGTH $content_length; fastcgi_param CONTENT_TYPE $content_type;\n\
             fastcgi_param POOL {pool}; }}\n",
            socket.display(),
            site.path("index.php").display(),
        )
    };
    let (default, admin) = (location("/", "default"), location("/admin/", "admin"));
    format!("server {{ listen {address}; client_max_body_size 1000m;\n{default}{admin}}}\n")
}

/// PHP behind nginx, as a FastCGI server.
fn php_behind(socket: &Path) -> Child {
    let php = php_command("php-cgi")
        .arg("-b")
        .arg(socket)
        // It would end after 500 requests.
        .env("PHP_FCGI_MAX_REQUESTS", "0")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .expect("php-cgi is installed (scripts/need tests)");
    wait_for("php-cgi to listen", || {
        std::os::unix::net::UnixStream::connect(socket)
            .ok()
            .map(drop)
    });
    php
}

fn is_the_compared_version() -> bool {
    let version = Command::new("/usr/sbin/nginx").arg("-v").output();
    let said = version.expect("nginx is installed (scripts/need tests)");
    String::from_utf8_lossy(&said.stderr).contains("nginx/1.22.")
}

pub(crate) fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// What the file says of itself, and its rows.
fn rows() -> (String, Vec<Value>) {
    let path = repository().join("vectors/malformed.json");
    let text_of_file = std::fs::read_to_string(path).expect("the file is there");
    let file: Value = serde_json::from_str(&text_of_file).expect("it is JSON");
    let rows = file["rows"].as_array().expect("it has rows").clone();
    (text(&file, "about").to_owned(), rows)
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}

/// A row's request. A character is a byte.
fn bytes(row: &Value) -> Vec<u8> {
    let bytes = |text: &str| -> Vec<u8> {
        let byte = |char| u8::try_from(u32::from(char)).expect("a byte");
        text.chars().map(byte).collect()
    };
    let part = |part: &Value| match part {
        Value::String(text) => bytes(text),
        repeated => {
            let times = repeated["times"].as_u64().expect("a number");
            bytes(text(repeated, "repeat")).repeat(usize::try_from(times).expect("a length"))
        }
    };
    match &row["bytes"] {
        Value::Array(parts) => parts.iter().flat_map(part).collect(),
        whole => part(whole),
    }
}

/// The page in docs/reference.
fn page() -> String {
    let (_, rows) = rows();
    let mut page = format!(
        "# Malformed requests\n\n\
         This page lists {} requests that are malformed, or that two servers on the way of a request may\n\
         read differently. It shows how this server answers each of them. They come from the RFCs and from\n\
         published advisories. `vectors/malformed.json` has the requests byte for byte, and this page is\n\
         generated from that file. A test sends each request to this server and to Debian's nginx (1.22, in\n\
         front of php-cgi), and fails if one of them does not answer as this page says.\n\n\
         After an answer of 400 or above, the server closes the connection, because it does not know where\n\
         the next request begins. After any other answer, it answers the next request on the connection.\n\
         [Decision 0008](../decisions/0008-strict-heads.md) explains why the server is strict.\n",
        rows.len()
    );
    let mut group = "";
    for row in &rows {
        if text(row, "group") != group {
            group = text(row, "group");
            _ = write!(
                page,
                "\n## {group}\n\n| request | source | answer | nginx, if it differs |\n|---|---|---|---|\n"
            );
        }
        let mut ours = shown(row, row);
        if let Some(note) = row["note"].as_str() {
            _ = write!(ours, ". {}", capitalised(note));
        }
        let theirs = row.get("nginx").map_or(String::new(), |theirs| {
            format!(
                "{}. {}",
                shown(theirs, row),
                capitalised(text(theirs, "why"))
            )
        });
        let (name, source) = (text(row, "name"), text(row, "source"));
        _ = writeln!(page, "| {name} | {source} | {ours} | {theirs} |");
    }
    page
}

/// An answer as a cell of the table.
fn shown(answer: &Value, row: &Value) -> String {
    let is_ours = std::ptr::eq(answer, row);
    let status = answer.get("answer").unwrap_or_else(|| &row["answer"]);
    let mut shown = status
        .as_str()
        .map_or_else(|| status.to_string(), str::to_owned);
    let served = status.as_u64().is_some_and(|status| status < 400);
    let php = answer
        .get("php")
        .or_else(|| row.get("php").filter(|_| !is_ours));
    if let Some(php) = php.and_then(Value::as_object).filter(|_| served) {
        // The order in which JSON's fields are kept depends on who else is being built.
        let php: BTreeMap<_, _> = php.iter().collect();
        let seen: Vec<_> = php
            .iter()
            .map(|(key, value)| {
                let value = value
                    .as_str()
                    .map_or_else(|| value.to_string(), |text| format!("{text:?}"));
                format!("{key} `{}`", value.replace('|', "\\|"))
            })
            .collect();
        if !seen.is_empty() {
            _ = write!(shown, ", PHP sees {}", seen.join(", "));
        }
    }
    match answer["next"].as_bool() {
        Some(true) => shown.push_str(", and goes on"),
        Some(false) => shown.push_str(", and closes"),
        None => {}
    }
    shown
}

fn capitalised(sentence: &str) -> String {
    let mut chars = sentence.chars();
    chars
        .next()
        .map(|first| first.to_uppercase().chain(chars).collect())
        .unwrap_or_default()
}
