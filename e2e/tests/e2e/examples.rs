//! The examples, as a user starts them.

use pronghorn_testkit::{Server, Site, binary, php_command, wait_for};

use crate::applications::hidden;
use crate::apps::Browser;
use crate::example::copy;

fn start(name: &str) -> Server {
    let config = Site::example(name);
    let config = config.to_str().expect("the path is UTF-8");
    Server::start_with(
        Site::new(),
        &["serve", "-c", config, "-o", "http.address=127.0.0.1:0"],
    )
}

#[test]
fn hello() {
    let server = start("hello");
    assert_eq!(server.get("/").text(), "Hello, world!\n");
    assert_eq!(server.get("/?name=you").text(), "Hello, you!\n");
    let typed = server.get("/?name=%3Cscript%3E");
    assert_eq!(typed.text(), "Hello, &lt;script&gt;!\n");
    server.stop();
}

/// All modes at once, behind one address.
#[test]
fn everything() {
    let server = start("everything");
    let mut client = server.connect();
    for _ in 0..2 {
        assert!(
            client
                .get("/api/status")
                .text()
                .contains(r#""mode":"worker""#)
        );
    }
    assert_eq!(client.get("/api/none").status, 404);

    let admin = client.get("/admin/");
    assert!(admin.text().contains("Hello, stranger"), "{}", admin.text());
    assert_eq!(client.get("/admin").header("location"), Some("/admin/"));
    let cookie = admin
        .header("set-cookie")
        .and_then(|cookie| cookie.split(';').next());
    let cookie = format!("Cookie: {}\r\n", cookie.expect("a session has begun"));
    let form = "Content-Type: application/x-www-form-urlencoded\r\nContent-Length: 8\r\n";
    client.request("POST", "/admin/", &format!("{cookie}{form}"));
    client.send("name=you");
    assert_eq!(
        client.response().header("location"),
        Some("/admin/index.php")
    );
    client.request("GET", "/admin/index.php", &cookie);
    assert!(client.response().text().contains("Hello, you"));

    assert_eq!(client.get("/old/a/b").text(), "An old page: /old/a/b\n");
    let style = client.get("/style.css");
    assert_eq!(
        style.header("content-type"),
        Some("text/css; charset=utf-8")
    );
    let program = client.get("/cgi-bin/uptime.sh").text();
    assert!(
        program.starts_with("GET /cgi-bin/uptime.sh: this machine is up for "),
        "{program}"
    );
    for source in ["/admin/index.php/../index.php", "/cgi-bin/", "/.env"] {
        let answer = client.get(source);
        assert!(!answer.text().contains("<?php"), "{source}");
    }
    server.stop();
}

#[test]
fn psr7() {
    let server = start("psr7");
    let form = "application/x-www-form-urlencoded";
    assert_eq!(
        server.post("/greet", form, "name=you").text(),
        "Hello, you!\n"
    );
    assert_eq!(server.get("/a?b=c").text(), "GET http://test/a?b=c\n");
    server.stop();
}

#[test]
fn psr15() {
    let server = start("psr15");
    assert_eq!(server.get("/you").text(), "Hello, you!\n");
    assert_eq!(server.get("/").status, 404);
    server.stop();
}

/// A front controller: what it prints is the reply, and each visitor has a session.
#[test]
fn plain() {
    crate::ring::extension(); // or it does not start
    let server = start("plain");
    let page = server.get("/");
    assert!(page.text().contains("Hello, stranger! This is visit 1."));
    let cookie = page.header("set-cookie").expect("a session's cookie");
    let form = format!(
        "Cookie: {cookie}\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: 8\r\n"
    );
    let mut visitor = server.connect();
    visitor.request("POST", "/", &form);
    visitor.send("name=you");
    let reply = visitor.response();
    assert_eq!((reply.status, reply.header("location")), (303, Some("/")));
    for visit in 2..5 {
        visitor.request("GET", "/", &format!("Cookie: {cookie}\r\n"));
        let page = visitor.response().text();
        assert!(
            page.contains(&format!("Hello, you! This is visit {visit}.")),
            "{page}"
        );
        assert!(
            server
                .get("/")
                .text()
                .contains("stranger! This is visit 1.")
        );
    }
    assert_eq!(server.get("/none").text(), "There is no such page.\n");
    server.stop();
}

/// A session, a form, a job and a cache, all by Laravel, and its schedule.
#[test]
fn laravel() {
    let site = copy("laravel");
    let server = Server::start_with(site, &["serve", "-c", "pronghorn.yaml"]);
    let mut visitor = Browser::new(&server);
    assert!(visitor.get("/").text().contains("your visit 1."));
    let page = visitor.get("/").text();
    assert!(
        page.contains("your visit 2.") && page.contains("greeted nobody"),
        "{page}"
    );
    let token = hidden(&page, "_token");
    assert_eq!(
        visitor.post("/", "name=Ada").status,
        419,
        "a form of nowhere"
    );
    let missing = visitor.post("/", &format!("_token={token}"));
    assert_eq!(missing.status, 302);
    assert!(visitor.get("/").text().contains("Who are you?"));
    assert_eq!(
        visitor
            .post("/", &format!("_token={token}&name=Ada"))
            .status,
        302
    );
    assert!(visitor.get("/").text().contains("You will be greeted."));
    wait_for("the job", || {
        let page = Browser::new(&server).get("/").text();
        page.contains("A job has greeted Ada.").then_some(())
    });
    server.logged(&["\tapp ", "Hello, Ada!"]);
    assert_eq!(visitor.get("/style.css").status, 200);
    let run = server.steer(&["schedules", "run", "laravel", "-c", "pronghorn.yaml"]);
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    wait_for("Laravel's schedule", || {
        let kept = server.steer(&[
            "cache",
            "get",
            "cache",
            "laravel:minutes",
            "-c",
            "pronghorn.yaml",
        ]);
        kept.stdout.trim().parse::<u64>().ok()
    });
    server.stop();
}

/// A session, a form, a message and a cache, all by Symfony.
#[test]
fn symfony() {
    let site = copy("symfony");
    let server = Server::start_with(site, &["serve", "-c", "pronghorn.yaml"]);
    let mut visitor = Browser::new(&server);
    for visit in 1..=3 {
        let page = visitor.get("/").text();
        assert!(page.contains(&format!("your visit {visit}.")), "{page}");
        assert!(
            Browser::new(&server)
                .get("/")
                .text()
                .contains("your visit 1.")
        );
    }
    assert_eq!(visitor.post("/", "name=%3CAda%3E").status, 303);
    wait_for("the message", || {
        let page = Browser::new(&server).get("/").text();
        page.contains("A message has greeted &lt;Ada&gt;.")
            .then_some(())
    });
    assert_eq!(visitor.get("/style.css").status, 200);
    let workers = server.workers();
    let asked = |command: &str| {
        let ran = php_command("php")
            .args(["bin/console", command])
            .current_dir(server.site().folder())
            .envs([("APP_ENV", "prod"), ("APP_DEBUG", "0")])
            .env("PRONGHORN_BINARY", binary())
            .env("XDG_RUNTIME_DIR", server.site().folder())
            .output()
            .expect("php is there");
        assert!(ran.status.success(), "{command}");
        String::from_utf8_lossy(&ran.stdout).into_owned()
    };
    let shown = asked("pronghorn:status");
    assert!(shown.contains("default: 2 workers"), "{shown}");
    asked("pronghorn:reload");
    // They finish behind those that have taken over.
    wait_for("the end of the old workers", || {
        let now = server.workers();
        now.iter().all(|pid| !workers.contains(pid)).then_some(())
    });
    server.stop();
}

/// What an application has to add: no more than five lines.
#[test]
fn workers_of_applications_are_short() {
    for name in [
        "codeigniter",
        "laravel",
        "mezzio",
        "plain",
        "psr15",
        "slim",
        "wordpress",
        "yii",
    ] {
        let worker = Site::example(name).with_file_name("worker.php");
        let text = std::fs::read_to_string(&worker).expect("an example has a worker");
        let is_code = |line: &&str| {
            !line.is_empty() && !line.starts_with("//") && !line.starts_with("declare(")
        };
        assert!(text.lines().skip(1).filter(is_code).count() <= 5, "{name}");
    }
}

#[test]
fn slim() {
    let server = start("slim");
    let response = server.get("/hello/you");
    assert_eq!(response.text(), "Hello, you!\n");
    assert_eq!(response.header("content-type"), Some("text/plain"));
    assert_eq!(server.get("/nowhere").status, 404);
    server.stop();
}

#[test]
fn upload() {
    let server = start("upload");
    assert!(server.get("/").text().contains("multipart/form-data"));
    let body = "--X\r\nContent-Disposition: form-data; name=\"title\"\r\n\r\nNotes\r\n\
                --X\r\nContent-Disposition: form-data; name=\"files[]\"; filename=\"a.txt\"\r\nContent-Type: text/plain\r\n\r\nabc\r\n--X--\r\n";
    let response = server.post("/", "multipart/form-data; boundary=X", body);
    assert_eq!(
        response.text(),
        r#"{"title":"Notes","files":[{"name":"a.txt","type":"text/plain","size":3,"sha256":"ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"}]}"#
    );
    server.stop();
}

#[test]
fn stream() {
    let server = start("stream");
    let mut connection = server.connect();
    connection.request("GET", "/count", "");
    assert_eq!(connection.head().0, 200);
    assert_eq!(
        connection.chunk().as_deref(),
        Some(b"5\n".as_slice()),
        "each element is sent at once"
    );
    while connection.chunk().is_some_and(|chunk| !chunk.is_empty()) {}
    let mut connection = server.connect();
    connection.request("GET", "/events", "");
    let (status, headers) = connection.head();
    let of_events = |(name, value): &(String, String)| {
        name.eq_ignore_ascii_case("content-type") && value.starts_with("text/event-stream")
    };
    assert!(
        status == 200 && headers.iter().any(of_events),
        "{headers:?}"
    );
    drop(connection);
    server.logged(&["the clock's reader has left"]);
    assert!(server.get("/source").text().starts_with("<?php"));
    server.stop();
}

/// A request pushes a job, and waits for what it gives; in a copy, for the store lies beside it.
#[test]
fn jobs() {
    let server = Server::start_with(copy("jobs"), &["serve", "-c", "pronghorn.yaml"]);
    let hello = server.get("/?name=Ada");
    assert_eq!(hello.text(), "Hello, Ada! This was attempt 1.\n");
    let failed = server.get("/?name=");
    let said = "The job was given up.\n";
    assert_eq!((failed.status, failed.text().as_str()), (500, said));
    server.stop();
}

/// Programs beside the workers; in a copy, for they write beside it.
#[test]
fn programs() {
    let server = Server::start_with(copy("programs"), &["serve", "-c", "pronghorn.yaml"]);
    wait_for("all programs", || {
        let page = server.get("/").text();
        let expected = "prepare:0 exited\nticker:0 running\nticker:1 running\n";
        (page == expected).then_some(())
    });
    server.stop();
}

/// What all workers share; in a copy of its configuration with other ports.
#[test]
fn cache() {
    let server = Server::start_with(copy("cache"), &["serve", "-c", "pronghorn.yaml"]);
    let first = server.get("/").text();
    assert!(first.starts_with("Visit 1 of a page built by "), "{first}");
    let second = server.get("/").text();
    assert_eq!(second, first.replace("Visit 1", "Visit 2"));
    for status in [200, 200, 200, 429] {
        assert_eq!(server.get("/limited?client=ada").status, status);
    }
    assert_eq!(server.get("/limited?client=bob").status, 200);
    let number = || {
        let done = server.get("/once").text();
        let number = done
            .strip_prefix("Done as number ")
            .and_then(|rest| rest.strip_suffix(".\n"));
        number
            .expect("it says so")
            .parse::<u64>()
            .expect("a number")
    };
    let first = number();
    assert!(number() > first, "numbers of a lock only grow");
    let first = server.get("/session");
    let cookie = first.header("set-cookie").expect("PHP sets it");
    let cookie = cookie.split(';').next().expect("its value").to_owned();
    let mut client = server.connect();
    client.request("GET", "/session", &format!("Cookie: {cookie}\r\n"));
    assert_eq!(client.response().text(), "You were here 2 times.\n");
    server.stop();
}
