//! The applications of `bench/apps`: kept by Pronghorn, they answer what they answer under PHP's
//! own server.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::process::Command;

use pronghorn_testkit::{Connection, Response, Server, Site};

/// Where an application writes, the variable that its processes look at.
pub(crate) const DATA: &str = "PRONGHORN_APPS_DATA";

/// One application, served twice: one worker keeps it, and `php -S` makes it anew for each request.
struct Both {
    kept: Server,
    fresh: Server,
}

impl Both {
    fn start(app: &str, worker: &str) -> Self {
        let kept = start_kept(app, worker);
        let site = Site::new();
        let data = site.path("data").display().to_string();
        let script = Site::app(&format!("{app}/public/index.php"));
        let fresh = Server::start_php(site, &script, &[(DATA, &data)]);
        Self { kept, fresh }
    }

    /// Has the same conversation with both, and compares all that was answered.
    fn compare(self, conversation: impl Fn(&mut Browser)) {
        let mut kept = Browser::new(&self.kept);
        let mut fresh = Browser::new(&self.fresh);
        // Twice, so that something of the first time may be left in the worker.
        for _ in 0..2 {
            conversation(&mut kept);
            conversation(&mut fresh);
            kept.cookies.clear();
            fresh.cookies.clear();
        }
        for (kept, fresh) in kept.heard.iter().zip(&fresh.heard) {
            assert_eq!(kept, fresh, "kept (left) and fresh (right) differ");
        }
        stop_kept(self.kept);
        self.fresh.stop();
    }
}

/// With one worker, so that every request meets what the one before has left; each is examined for
/// what it leaves.
fn start_kept(app: &str, worker: &str) -> Server {
    let site = Site::new();
    let config = format!(
        "version: '3'\nserver:\n  command: php {}\n  env: {{{DATA}: '{}', PRONGHORN_LEAKS: 'report 1'}}\nhttp:\n  address: 127.0.0.1:0\n  pool: {{num_workers: 1}}\n",
        Site::app(app).join(worker).display(),
        site.path("data").display(),
    );
    Server::start(site.config(&config))
}

/// Asserts as well that its worker lived from the first call to the last.
fn stop_kept(server: Server) {
    let log = server.stop().stderr;
    // Tests may run as root, and the server says so. An answer of 500 is one that was asked for.
    // Symfony ends a session by a cookie of its
    // reply and by `setcookie()` as well, which has no effect in a worker; the server says that
    // too.
    const MEANT: [&str; 3] = [
        "`server.user` is not set",
        "AbstractSessionHandler.php",
        "\thttp log\t",
    ];
    let is_meant = |line: &&str| MEANT.iter().any(|meant| line.contains(meant));
    let log: String = log
        .split_inclusive('\n')
        .filter(|line| !is_meant(line))
        .collect();
    for trouble in ["\tWARN\t", "\tERROR\t", "pronghorn: deferred work"] {
        assert!(!log.contains(trouble), "{trouble} in\n{log}");
    }
}

/// A client that keeps cookies and writes down what it hears.
pub(crate) struct Browser {
    address: SocketAddr,
    host: String,
    cookies: BTreeMap<String, String>,
    heard: Vec<String>,
}

impl Browser {
    pub(crate) fn new(server: &Server) -> Self {
        Self {
            address: server.address(),
            host: "test".to_owned(),
            cookies: BTreeMap::new(),
            heard: Vec::new(),
        }
    }

    /// For an application that has one address alone.
    pub(crate) fn by_address(server: &Server) -> Self {
        let mut browser = Self::new(server);
        browser.host = server.address().to_string();
        browser
    }

    pub(crate) fn get(&mut self, target: &str) -> Response {
        self.ask("GET", target, "", "")
    }

    pub(crate) fn post(&mut self, target: &str, form: &str) -> Response {
        let headers = "Content-Type: application/x-www-form-urlencoded\r\n";
        self.ask("POST", target, headers, form)
    }

    /// Sends a form with a file: its field, its name, its type, its content.
    pub(crate) fn upload(
        &mut self,
        target: &str,
        fields: &[(&str, &str)],
        (field, name, kind, content): (&str, &str, &str, &[u8]),
    ) -> Response {
        let disposition =
            |name: &str| format!("--XyZ\r\nContent-Disposition: form-data; name=\"{name}\"");
        let mut body = Vec::new();
        for (name, value) in fields {
            body.extend(format!("{}\r\n\r\n{value}\r\n", disposition(name)).into_bytes());
        }
        body.extend(
            format!(
                "{}; filename=\"{name}\"\r\nContent-Type: {kind}\r\n\r\n",
                disposition(field)
            )
            .into_bytes(),
        );
        body.extend_from_slice(content);
        body.extend_from_slice(b"\r\n--XyZ--\r\n");
        let headers = "Content-Type: multipart/form-data; boundary=XyZ\r\n";
        self.ask("POST", target, headers, &body)
    }

    /// Sends a request with the cookies it has.
    pub(crate) fn ask(
        &mut self,
        method: &str,
        target: &str,
        headers: &str,
        body: impl AsRef<[u8]>,
    ) -> Response {
        let body = body.as_ref();
        let mut head = headers.to_owned();
        if !self.cookies.is_empty() {
            let pairs = self
                .cookies
                .iter()
                .map(|(name, value)| format!("{name}={value}"));
            _ = write!(head, "Cookie: {}\r\n", pairs.collect::<Vec<_>>().join("; "));
        }
        if method == "POST" {
            _ = write!(head, "Content-Length: {}\r\n", body.len());
        }
        let mut connection = Connection::open(self.address);
        connection.send(format!(
            "{method} {target} HTTP/1.1\r\nHost: {}\r\n{head}\r\n",
            self.host
        ));
        connection.send(body);
        let response = connection.response();
        self.keep_cookies(&response);
        self.write_down(&format!("{method} {target}"), &response);
        response
    }

    fn keep_cookies(&mut self, response: &Response) {
        for cookie in response.all("set-cookie") {
            let pair = cookie.split(';').next().unwrap_or_default();
            if let Some((name, value)) = pair.split_once('=') {
                self.cookies.insert(name.to_owned(), value.to_owned());
            }
        }
    }

    /// Everything that must be the same wherever the application runs.
    fn write_down(&mut self, question: &str, response: &Response) {
        // PHP adds the character set of its `default_charset` to a text that names none.
        let kind = response
            .header("content-type")
            .map(|kind| kind.split(';').next());
        let headers =
            ["location", "cache-control", "allow", "x-app"].map(|name| response.header(name));
        let cookies = response.all("set-cookie").into_iter().map(without_value);
        let cookies: Vec<String> = cookies.collect();
        self.heard.push(format!(
            "{question}: {} {kind:?} {headers:?} {cookies:?}\n{}",
            response.status,
            without_token(&response.text())
        ));
    }
}

/// What an answer says in JSON.
pub(crate) fn json(response: &Response) -> serde_json::Value {
    let text = response.text();
    let parsed = serde_json::from_str(&text);
    assert!(parsed.is_ok(), "{}: {text}", response.status);
    parsed.expect("it is")
}

/// A cookie's name and attributes, without what is new each time.
fn without_value(cookie: &str) -> String {
    let mut parts = cookie.split("; ");
    let name = parts.next().and_then(|pair| pair.split('=').next());
    let attributes =
        parts.filter(|part| !part.starts_with("expires=") && !part.starts_with("Max-Age="));
    let all: Vec<&str> = name.into_iter().chain(attributes).collect();
    all.join("; ").to_lowercase()
}

/// What stands in a form against forged requests.
fn token(page: &str) -> Option<&str> {
    let rest = page.split_once("name=\"_token\" value=\"")?.1;
    rest.split('"').next()
}

fn without_token(page: &str) -> String {
    token(page).map_or_else(|| page.to_owned(), |token| page.replace(token, "TOKEN"))
}

fn plain(browser: &mut Browser) {
    assert_eq!(browser.get("/").text(), "Hello World!");
    let json = browser.get("/json?name=%C3%A9+x");
    assert_eq!(json.header("content-type"), Some("application/json"));
    assert!(
        json.text().contains(r#""name":"\u00e9 x""#),
        "{}",
        json.text()
    );
    let body = "x".repeat(8192);
    let digest = browser.ask("POST", "/post", "Content-Type: application/json\r\n", &body);
    assert_eq!(digest.text(), "8192 94303bc70972121e4f1c88deb6521f1b");
    assert_eq!(browser.get("/64k").body.len(), 65_536);
    assert_eq!(
        browser.get("/sqlite?id=1000").text(),
        r#"{"id":1000,"name":"item 1000","price":250}"#
    );
    assert_eq!(browser.get("/sqlite?id=1001").status, 404);
    assert_eq!(browser.get("/slow").text(), "slow");
    assert_eq!(browser.get("/stall").text(), "stall");
    assert_eq!(browser.get("/nowhere").status, 404);
}

#[test]
fn without_a_framework() {
    Both::start("plain", "worker.php").compare(plain);
}

#[test]
fn without_a_framework_over_psr7() {
    for library in ["nyholm", "guzzle"] {
        Both::start("plain", &format!("worker-psr7.php {library}")).compare(plain);
    }
}

#[test]
fn slim() {
    Both::start("slim", "worker.php").compare(|browser| {
        let hello = browser.get("/hello/you");
        assert_eq!(hello.text(), "Hello, you!");
        assert_eq!(hello.header("x-app"), Some("slim"));
        assert_eq!(
            browser.post("/form", "a%5Bb%5D=c&d=e+f").text(),
            r#"{"form":{"a":{"b":"c"},"d":"e f"},"seen":1}"#,
            "the middleware ran once, on this request"
        );
        assert_eq!(browser.get("/api/users/12").status, 401);
        for client in ["one", "two"] {
            let client = format!("X-Client: {client}\r\n");
            browser.ask("GET", "/api/users/12", &client, "");
            browser.ask("GET", "/api/carts?page=3", &client, "");
            let gone = browser.ask("DELETE", "/api/pages/7", &client, "");
            assert_eq!(gone.status, 204);
        }
        assert_eq!(browser.get("/nowhere").status, 404);
        let refused = browser.post("/hello/you", "");
        assert_eq!(
            (refused.status, refused.header("allow")),
            (405, Some("GET"))
        );
    });
}

#[test]
fn laravel() {
    Both::start("laravel", "worker.php").compare(laravel_conversation);
}

pub(crate) fn laravel_conversation(browser: &mut Browser) {
    assert_eq!(browser.get("/api/hello/you").text(), r#"{"hello":"you"}"#);
    let users = r#"[{"id":1,"name":"ada"},{"id":2,"name":"grace"}]"#;
    assert_eq!(browser.get("/api/users").text(), users);
    let json = "Content-Type: application/json\r\n";
    assert_eq!(
        browser
            .ask("POST", "/api/echo?a=1", json, r#"{"b":[2]}"#)
            .text(),
        r#"{"got":{"b":[2],"a":"1"}}"#
    );
    browser.post("/api/echo", "a%5B%5D=+1+&b=");
    for (target, rest) in [
        ("/enc/a%2Fb", "a/b"),
        ("/enc/a%2Fb%5Cc.php", "a/b\\c.php"),
        ("/enc/%2f%2Fx", "//x"),
    ] {
        let expected = serde_json::json!([rest, target]);
        let response = browser.get(target);
        let got: serde_json::Value = serde_json::from_str(&response.text()).expect("JSON");
        assert_eq!(got, expected, "{target}");
    }

    assert!(browser.get("/").text().contains("Visit 1 of a guest"));
    assert!(browser.get("/").text().contains("Visit 2 of a guest"));
    let refused = browser.get("/me");
    assert_eq!(refused.header("location"), Some("http://test/login"));
    assert_eq!(browser.post("/login", "name=ada&password=ada").status, 419);
    log_in(browser, "ada", "wrong");
    let again = browser.get("/login").text();
    assert!(
        again.contains("do not fit") && again.contains(r#"value="ada""#),
        "{again}"
    );
    let welcome = log_in(browser, "ada", "ada");
    assert_eq!(welcome.header("location"), Some("http://test/me"));
    assert_eq!(browser.get("/me").text(), "ada");
    let page = browser.get("/").text();
    assert!(page.contains("Visit 3 of ada"), "{page}");
    let form = format!("_token={}", token(&page).expect("the form has one"));
    assert_eq!(browser.post("/logout", &form).status, 302);
    assert_eq!(browser.get("/me").status, 302);

    upload(browser, "/api/upload");
    assert_eq!(
        browser
            .ask("POST", "/api/upload", "Accept: application/json\r\n", "")
            .status,
        422
    );
    assert_eq!(browser.get("/nowhere").status, 404);
    assert_eq!(browser.post("/api/users", "").status, 405);
    assert_eq!(browser.get("/litter").status, 500);
    browser.get("/found");
}

/// Two users and a stranger take turns on one worker, and what one of them leaves behind is gone.
#[test]
fn laravel_keeps_users_apart() {
    let server = start_kept("laravel", "worker.php");
    let clean = Browser::new(&server).get("/found?number=1000").text();
    let mut users = ["ada", "grace"].map(|name| (name, Browser::new(&server)));
    for (name, browser) in &mut users {
        log_in(browser, name, name);
    }
    for visit in 1..=5 {
        for (name, browser) in &mut users {
            assert_eq!(browser.get("/me").text(), *name);
            let page = browser.get("/").text();
            assert!(page.contains(&format!("Visit {visit} of {name}")), "{page}");
            let mut stranger = Browser::new(&server);
            assert_eq!(stranger.get("/me").status, 302, "after {name}");
            let page = stranger.get("/").text();
            assert!(page.contains("Visit 1 of a guest"), "{page}");
            assert_eq!(stranger.get("/litter").status, 500);
            let found = Browser::new(&server).get(&format!("/found?number={visit}"));
            assert_eq!(found.text(), clean.replace("1000", &visit.to_string()));
        }
    }
    let page = users[0].1.get("/").text();
    let form = format!("_token={}", token(&page).expect("the form has one"));
    assert_eq!(
        users[1].1.post("/logout", &form).status,
        419,
        "a token of somebody else"
    );
    stop_kept(server);
}

#[test]
fn symfony() {
    Both::start("symfony", "worker.php").compare(symfony_conversation);
}

pub(crate) fn symfony_conversation(browser: &mut Browser) {
    assert_eq!(browser.get("/api/hello/you").text(), r#"{"hello":"you"}"#);
    let form = browser.post("/api/echo?a%5B%5D=1", "b%5Bc%5D=d+e&f");
    let expected =
        r#"{"query":{"a":["1"]},"form":{"b":{"c":"d e"},"f":""},"body":"b%5Bc%5D=d+e\u0026f"}"#;
    assert_eq!(form.text(), expected);
    assert!(browser.get("/").text().contains("Visit 1 of a guest"));
    assert!(browser.get("/").text().contains("Visit 2 of a guest"));
    assert_eq!(browser.get("/me").header("location"), Some("/"));
    assert_eq!(
        browser.post("/login", "name=ada&password=wrong").status,
        403
    );
    let before = browser.cookies.clone();
    assert_eq!(browser.post("/login", "name=ada&password=ada").status, 302);
    assert_ne!(browser.cookies, before, "a login gets a new session number");
    assert_eq!(browser.get("/me").text(), "ada");
    assert!(browser.get("/").text().contains("Visit 3 of ada"));
    assert_eq!(browser.get("/litter").status, 500);
    assert_eq!(browser.post("/logout", "").status, 302);
    assert_eq!(browser.get("/me").status, 302);
    upload(browser, "/api/upload");
    assert_eq!(browser.get("/report").text(), "line 1\nline 2\n");
    assert_eq!(browser.get("/nowhere").status, 404);
    let refused = browser.post("/me", "");
    assert_eq!(
        (refused.status, refused.header("allow")),
        (405, Some("GET"))
    );
}

#[test]
fn symfony_keeps_users_apart() {
    let server = start_kept("symfony", "worker.php");
    let mut users = ["ada", "grace"].map(|name| (name, Browser::new(&server)));
    for (name, browser) in &mut users {
        browser.post("/login", &format!("name={name}&password={name}"));
    }
    for visit in 1..=5 {
        for (name, browser) in &mut users {
            assert_eq!(browser.get("/me").text(), *name);
            let page = browser.get("/").text();
            assert!(page.contains(&format!("Visit {visit} of {name}")), "{page}");
            assert_eq!(browser.get("/litter").status, 500);
            let mut stranger = Browser::new(&server);
            assert_eq!(stranger.get("/me").status, 302, "after {name}");
            let page = stranger.get("/").text();
            assert!(page.contains("Visit 1 of a guest"), "{page}");
        }
    }
    assert_ne!(users[0].1.cookies, users[1].1.cookies);
    stop_kept(server);
}

fn log_in(browser: &mut Browser, name: &str, password: &str) -> Response {
    let page = browser.get("/login").text();
    let token = token(&page).expect("the form has one");
    browser.post(
        "/login",
        &format!("_token={token}&name={name}&password={password}"),
    )
}

/// Two files, one of them with bytes that are no text.
fn upload(browser: &mut Browser, target: &str) {
    let part = |name: &str, more: &str, content: &str| {
        format!("--X\r\nContent-Disposition: form-data; name=\"{name}\"{more}\r\n\r\n{content}\r\n")
    };
    let body = part("title", "", "Notes")
        + &part("files[]", "; filename=\"../a.txt\"", "abc")
        + &part("files[]", "; filename=\"b.bin\"", "\0\u{ff}\r\n--")
        + "--X--\r\n";
    let kind = "Content-Type: multipart/form-data; boundary=X\r\n";
    let answer = browser.ask("POST", target, kind, &body);
    assert_eq!(answer.status, 201, "{}", answer.text());
    let sum = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    assert!(
        answer.text().contains(r#""name":"a.txt""#),
        "{}",
        answer.text()
    );
    assert!(answer.text().contains(sum), "{}", answer.text());
}

#[test]
fn cgi_programs() {
    let site = Site::new();
    let folder = site.path("cgi-bin");
    let source = Site::app("cgi/Makefile");
    let made = Command::new("make")
        .arg("-C")
        .arg(source.parent().expect("it lies in a folder"))
        .arg(format!("OUT={}", folder.display()))
        .output()
        .expect("make is there");
    assert!(
        made.status.success(),
        "{}",
        String::from_utf8_lossy(&made.stderr)
    );
    let programs = [
        ("hello-c", "C"),
        ("hello-cpp", "C++"),
        ("hello.sh", "Bash"),
        ("hello.py", "Python"),
        ("hello.php", "PHP"),
    ];
    for (program, language) in programs {
        let output = Command::new(folder.join(program)).output();
        let output = output.unwrap_or_else(|error| panic!("{program}: {error}"));
        let text = String::from_utf8_lossy(&output.stdout);
        let (head, body) = text
            .split_once("\n\n")
            .expect("a head ends with an empty line");
        assert_eq!(head, "Content-Type: text/html");
        assert_eq!(
            body.trim_start(),
            format!("<html>\n<body>\n<h1>CGI {language} Example</h1>\n</body>\n</html>\n")
        );
    }
}
