//! Programs below a root, a process for each call: `mode: cgi`.

use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::time::Duration;

use pronghorn_testkit::{Server, Site, wait_for};

/// A folder of programs behind `/cgi-bin`, and beside it what the rest of a site is.
fn site(more: &str) -> Site {
    Site::new()
        .config(&format!(
            "version: '3'
server: {{env: {{GIVEN: \"yes\"}}}}
http:
  address: 127.0.0.1:0
  pools:
    cgi: {{mode: cgi, root: programs, num_workers: 2{more}}}
    site: {{mode: fastcgi, root: public, num_workers: 1}}
  routes:
    - {{path: /cgi-bin/*, pool: cgi, strip_prefix: /cgi-bin}}
    - {{pool: site}}
logs: {{level: debug}}
"
        ))
        .file(
            "public/index.php",
            "<?php echo $_SERVER['REQUEST_METHOD'], ' front of ', $_SERVER['QUERY_STRING'];",
        )
        .file("public/page.txt", "a page\n")
}

trait Programs {
    /// Writes a program that may be executed.
    #[must_use]
    fn program(self, name: &str, text: &str) -> Self;
}

impl Programs for Site {
    fn program(self, name: &str, text: &str) -> Self {
        let name = format!("programs/{name}");
        self.write(&name, text);
        let all = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(self.path(&name), all).expect("it is there");
        self
    }
}

const SHOW: &str =
    "#!/bin/sh\necho 'Content-Type: text/plain'\necho\necho \"in $(pwd)\"\nenv | sort\ncat\n";

#[test]
fn a_program_is_told_of_its_request_and_nothing_else() {
    let server = Server::start_with_environment(
        site("").program("show", SHOW),
        &["serve"],
        &[("SECRET", "of the server")],
    );
    let mut client = server.connect();
    client.request(
        "POST",
        "/cgi-bin/show/a%20b/c?q=%31&x",
        "Content-Length: 5\r\nContent-Type: text/x\r\nX-Field: 1\r\nProxy: evil\r\nCookie: a=b\r\n",
    );
    client.send("hello");
    let shown = client.response();
    assert_eq!(
        (shown.status, shown.header("content-type")),
        (200, Some("text/plain"))
    );
    let (text, folder) = (shown.text(), server.site().folder().display().to_string());
    let port = server.address().port();
    for line in [
        &format!("in {folder}/programs"),
        "GATEWAY_INTERFACE=CGI/1.1",
        "REQUEST_METHOD=POST",
        "SCRIPT_NAME=/cgi-bin/show",
        "PATH_INFO=/a b/c",
        &format!("PATH_TRANSLATED={folder}/programs/a b/c"),
        &format!("SCRIPT_FILENAME={folder}/programs/show"),
        &format!("DOCUMENT_ROOT={folder}/programs"),
        "REQUEST_URI=/cgi-bin/show/a%20b/c?q=%31&x",
        "QUERY_STRING=q=%31&x",
        "CONTENT_LENGTH=5",
        "CONTENT_TYPE=text/x",
        "HTTP_X_FIELD=1",
        "HTTP_COOKIE=a=b",
        "REMOTE_ADDR=127.0.0.1",
        "SERVER_PROTOCOL=HTTP/1.1",
        &format!("SERVER_PORT={port}"),
        "GIVEN=yes",
    ] {
        assert!(text.lines().any(|other| other == line), "{line} in\n{text}");
    }
    assert!(text.ends_with("\nhello"), "{text}");
    for absent in [
        "SECRET",
        "HTTP_PROXY",
        "HTTP_CONTENT_LENGTH",
        "PRONGHORN",
        "RR_",
    ] {
        assert!(!text.contains(absent), "{absent} in\n{text}");
    }
    let bare = client.get("/cgi-bin/show").text();
    for absent in ["CONTENT_LENGTH", "PATH_INFO", "PATH_TRANSLATED"] {
        assert!(!bare.contains(absent), "{absent} in\n{bare}");
    }
    assert!(bare.contains("QUERY_STRING=\n"), "{bare}");
    server.stop();
}

/// A program has any name, so that its path does not show where it ends.
#[test]
fn what_closes_a_program_closes_it_with_more_text_too() {
    let config = "version: '3'
http:
  address: 127.0.0.1:0
  pools:
    cgi: {mode: cgi, root: programs, num_workers: 1}
    rest: {mode: classic, root: public, num_workers: 1}
  routes:
    - {path: /cgi-bin/open/*, pool: cgi, strip_prefix: /cgi-bin}
    - {path: [/cgi-bin/secret.sh, /cgi-bin/open/b], refuse: 403}
    - {path: '~ ^/cgi-bin/backup$', refuse: 410}
    - {path: /cgi-bin/*, pool: cgi, strip_prefix: /cgi-bin}
    - {pool: rest}
";
    let mut site = Site::new().config(config).file("public/a.txt", "a");
    for name in ["secret.sh", "backup", "a", "open/b"] {
        site = site.program(
            name,
            "#!/bin/sh\nprintf 'Content-Type: text/plain\\n\\nit runs'\n",
        );
    }
    let server = Server::start(site);
    for (program, status) in [
        ("secret.sh", 403),
        ("backup", 410),
        ("a", 200),
        ("open/b", 200),
    ] {
        for more in ["", "/", "/x", "//x/y.css", "/%2e%2e%2fa"] {
            let path = format!("/cgi-bin/{program}{more}");
            let got = server.get(&path);
            let refused = got.status == 400 || got.status == 403;
            assert!(
                got.status == status || more.contains('%') && refused,
                "{path} {}",
                got.status
            );
            assert_eq!(got.text() == "it runs", got.status == 200, "{path}");
        }
    }
    server.stop();
}

#[test]
fn programs_are_of_any_language() {
    let site = site("")
        .program(
            "hello.py",
            "#!/usr/bin/env python3\nprint('Content-Type: text/plain\\n\\nPython')\n",
        )
        .program(
            "hello.php",
            "#!/usr/bin/env php\n<?php echo \"Content-Type: text/plain\\n\\n\", PHP_SAPI;",
        )
        .program(
            "hello.cgi",
            "#!/usr/bin/env php-cgi\n<?php header('X-Php: yes'); echo $_GET['a'], ' ', PHP_SAPI;",
        );
    site.write("hello.c", "#include <stdio.h>\nint main(void) { puts(\"Content-Type: text/plain\\n\\nC\"); return 0; }\n");
    let compiled = Command::new("cc")
        .arg("-o")
        .arg(site.path("programs/hello"))
        .arg(site.path("hello.c"))
        .status();
    let server = Server::start(site);
    if compiled.is_ok_and(|status| status.success()) {
        assert_eq!(server.get("/cgi-bin/hello").text(), "C\n");
    }
    assert_eq!(server.get("/cgi-bin/hello.py").text(), "Python\n");
    assert_eq!(server.get("/cgi-bin/hello.php").text(), "cli");
    let php = server.get("/cgi-bin/hello.cgi?a=1");
    assert_eq!(
        (php.text().as_str(), php.header("x-php")),
        ("1 cgi-fcgi", Some("yes"))
    );
    server.stop();
}

/// As a client gets it who asks for the path: by `static` and `rewrite`, once each.
#[test]
fn an_answer_leads_to_files_and_rewritten_paths_too() {
    let server = Server::start(
        Site::new()
            .config(
                "version: '3'
http:
  address: 127.0.0.1:0
  middleware: [sendfile, static, rewrite, headers]
  static: {dir: files}
  rewrite: [{path: '^/old/(.*)$', to: '/{1}'}]
  headers: {response: {X-By: chain}}
  pools:
    cgi: {mode: cgi, root: programs, num_workers: 1}
    site: {mode: fastcgi, root: public, num_workers: 1}
  routes:
    - {path: /cgi-bin/*, pool: cgi, strip_prefix: /cgi-bin}
    - {pool: site}
",
            )
            .file("public/index.php", "<?php echo 'front';")
            .file("files/a.css", "p { color: red }")
            .program("style", "#!/bin/sh\necho 'Location: /a.css'\necho\n")
            .program("old", "#!/bin/sh\necho 'Location: /old/a.css'\necho\n")
            .program("none", "#!/bin/sh\necho 'Location: /b.css'\necho\n"),
    );
    let mut client = server.connect();
    for (program, text) in [
        ("style", "p { color: red }"),
        ("old", "p { color: red }"),
        ("none", "front"),
    ] {
        let said = client.get(&format!("/cgi-bin/{program}"));
        assert_eq!(
            (said.status, said.text().as_str()),
            (200, text),
            "{program}"
        );
        assert_eq!(said.all("x-by"), ["chain"], "{program}");
    }
    let style = client.get("/cgi-bin/style");
    assert_eq!(
        style.header("content-type"),
        Some("text/css; charset=utf-8")
    );
    server.stop();
}

#[test]
fn answers_lead_to_clients_or_elsewhere() {
    let server = Server::start(
        site("")
            .program(
                "here",
                "#!/bin/sh\necho 'Location: /somewhere?from=cgi'\necho\n",
            )
            .program("page", "#!/bin/sh\necho 'Location: /page.txt'\necho\n")
            .program("anchor", "#!/bin/sh\necho 'Location: /a page#top'\necho\n")
            .program(
                "there",
                "#!/bin/sh\necho 'Location: https://example.org/'\necho\n",
            )
            .program(
                "moved",
                "#!/bin/sh\necho 'Status: 301 Moved'; echo 'Location: /x'\necho\n",
            )
            .program(
                "round",
                "#!/bin/sh\necho 'Location: /cgi-bin/round'\necho\n",
            )
            .program("nph-raw", "#!/bin/sh\necho HTTP/1.1 200 OK\necho\n")
            .program("raw", "#!/bin/sh\necho HTTP/1.1 200 OK\necho\n"),
    );
    let post = server.post("/cgi-bin/here", "text/plain", "a body");
    assert_eq!(post.text(), "GET front of from=cgi");
    assert_eq!(server.get("/cgi-bin/page").text(), "a page\n");
    let there = server.get("/cgi-bin/there");
    assert_eq!(
        (there.status, there.header("location")),
        (302, Some("https://example.org/"))
    );
    let moved = server.get("/cgi-bin/moved");
    assert_eq!((moved.status, moved.header("location")), (301, Some("/x")));
    assert_eq!(server.get("/cgi-bin/round").status, 500);
    server.logged(&["/cgi-bin/round", "one redirect too many"]);
    let anchor = server.get("/cgi-bin/anchor");
    assert_eq!(
        (anchor.status, anchor.header("location")),
        (302, Some("/a%20page#top"))
    );
    for _ in 0..20 {
        assert_eq!(server.get("/cgi-bin/nph-raw").status, 403);
    }
    server.logged(&["nph-…"]);
    assert_eq!(
        server.log().matches("nph-…").count(),
        1,
        "clients choose how often"
    );
    assert_eq!(server.get("/cgi-bin/raw").status, 502);
    server.logged(&["non-parsed headers"]);
    server.stop();
}

#[test]
fn what_is_wrong_with_a_program_is_said() {
    let site = site("")
        .program("silent", "#!/bin/sh\necho oops >&2\nexit 3\n")
        .program("page", "#!/bin/sh\necho '<h1>hello</h1>'\n")
        .program("crash", "#!/bin/sh\nkill -SEGV $$\n")
        .program("nobody", "#!/bin/nope\n")
        .program("text", "echo hello\n")
        .program("headless", "#!/bin/sh\necho\necho hello\n")
        .program("status", "#!/bin/sh\necho 'Status: fine'\necho\n")
        .program("long", "#!/bin/sh\nyes 'X: y' | head -n 20000\necho\n")
        .file("programs/plain", "#!/bin/sh\n");
    let server = Server::start(site);
    for (program, status, said) in [
        (
            "silent",
            502,
            "ended with exit code 3 before it had sent anything",
        ),
        ("page", 502, "is no `Name: value`: `<h1>hello</h1>`"),
        ("crash", 502, "signal 11 (SIGSEGV)"),
        ("nobody", 502, "is not there; hint: look at its first line"),
        ("text", 502, "it has to begin with `#!`"),
        ("headless", 502, "it has no header"),
        ("status", 502, "`Status: fine`"),
        ("long", 502, "more than 256 fields"),
        ("plain", 502, "`chmod +x` it"),
        ("missing", 404, ""),
        ("", 404, ""),
        // It is below the route, or not: another one takes all others.
        ("../public/index.php", 400, ""),
        ("show%2fx", 404, ""), // below an encoded slash nothing is looked for
        (".hidden", 404, ""),
    ] {
        assert_eq!(
            server.get(&format!("/cgi-bin/{program}")).status,
            status,
            "{program}"
        );
        server.logged(&[said]);
    }
    server.logged(&["oops"]);
    server.stop();
}

#[test]
fn a_deadline_ends_a_program_and_what_it_started() {
    let site = site(", supervisor: {exec_ttl: 1s}")
        .program(
            "endless",
            "#!/bin/sh\ntrap '' TERM\nsh -c 'echo $$ > child; exec sleep 1000' & wait\n",
        )
        .program(
            "quick",
            "#!/bin/sh\necho 'Content-Type: text/plain'\necho\necho quick\n",
        );
    let server = Server::start(site);
    assert_eq!(server.get("/cgi-bin/endless").status, 504);
    server.logged(&[
        "deadline passed: the program is stopped",
        "GET /cgi-bin/endless",
    ]);
    // The other place is free meanwhile.
    assert_eq!(server.get("/cgi-bin/quick").text(), "quick\n");
    wait_for("all of them to end", || {
        let left = server.workers().len();
        (left == 1).then_some(()) // php-cgi
    });
    server.stop();
}

#[test]
fn a_program_whose_client_left_is_ended_and_a_slow_one_slows_it_down() {
    let site = site("")
        .program(
            "endless",
            "#!/bin/sh\necho 'Content-Type: text/plain'\necho\nexec yes\n",
        )
        .program("waits", "#!/bin/sh\nexec sleep 1000\n")
        .program(
            "big",
            "#!/bin/sh\necho 'Content-Type: text/plain'\necho\nhead -c 3000000 /dev/zero\n",
        );
    let server = Server::start(site);
    for program in ["endless", "waits"] {
        let mut client = server.connect();
        client.request("GET", &format!("/cgi-bin/{program}"), "");
        wait_for("it to run", || (server.workers().len() == 2).then_some(()));
        client.leave();
        wait_for("it to end", || (server.workers().len() == 1).then_some(()));
    }
    let big = server.get("/cgi-bin/big");
    assert_eq!((big.body.len(), big.complete), (3_000_000, true));
    server.stop();
}

#[test]
fn bodies_come_whole_however_long_they_are() {
    let server = Server::start(site("").program(
        "sum",
        "#!/bin/sh\necho 'Content-Type: text/plain'\necho\necho \"$CONTENT_LENGTH $(cat | md5sum | cut -d' ' -f1)\"\n",
    ));
    for length in [1, 100_000, 3_000_000] {
        let body = vec![b'x'; length];
        let told = server.post("/cgi-bin/sum", "text/plain", &body).text();
        let expected = md5(&body);
        assert_eq!(told, format!("{length} {expected}\n"));
    }
    server.stop();
}

/// Of these bytes, by the system's own program.
fn md5(bytes: &[u8]) -> String {
    use std::io::Write as _;
    let mut child = Command::new("md5sum")
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("coreutils are there");
    let mut stdin = child.stdin.take().expect("it is a pipe");
    stdin.write_all(bytes).expect("it reads");
    drop(stdin);
    let output = child.wait_with_output().expect("it ends");
    String::from_utf8_lossy(&output.stdout)
        .chars()
        .take(32)
        .collect()
}

#[test]
fn more_calls_than_places_wait_in_the_queue() {
    let site = site(", max_queue_size: 1").program(
        "slow",
        "#!/bin/sh\nwhile [ ! -e go ]; do sleep 0.01; done\necho 'X: y'\necho\necho done\n",
    );
    let server = Server::start(site);
    let idle = server.steer(&["workers", "cgi"]).stdout;
    assert_eq!(idle.matches("      -  ready").count(), 2, "{idle}");
    let mut clients: Vec<_> = (0..4).map(|_| server.connect()).collect();
    let (first, last) = clients.split_at_mut(3);
    for client in first.iter_mut() {
        client.request("GET", "/cgi-bin/slow", "");
    }
    let running = wait_for("both to run and one to wait", || {
        let shown = server.steer(&["workers", "cgi"]).stdout;
        let running: Vec<_> = shown.lines().filter(|it| it.contains("slow")).collect();
        let pid = |line: &str| line.split_whitespace().next()?.parse::<u32>().ok();
        let pids: Vec<u32> = running.into_iter().filter_map(pid).collect();
        (pids.len() == 2).then_some(pids)
    });
    for pid in running {
        let name = std::fs::read_to_string(format!("/proc/{pid}/comm"));
        assert_eq!(name.expect("it runs"), "slow\n");
    }
    let refused = wait_for("the queue to be full", || {
        let refused = last[0].get("/cgi-bin/slow");
        (refused.status == 503).then_some(refused)
    });
    assert_eq!(refused.header("retry-after"), Some("1"));
    server.site().write("programs/go", "");
    for client in first {
        assert_eq!(client.response().text(), "done\n");
    }
    server.stop();
}

#[test]
fn a_reload_waits_for_programs_under_way() {
    let site = site("").program("slow", "#!/bin/sh\necho > begun\nwhile [ ! -e go ]; do sleep 0.01; done\necho 'X: y'\necho\necho done\n");
    let server = Server::start(site);
    let mut client = server.connect();
    client.request("GET", "/cgi-bin/slow", "");
    let begun = server.site().path("programs/begun");
    wait_for("it to begin", || begun.exists().then_some(()));
    assert_eq!(server.steer(&["reset"]).code, Some(0));
    server.site().write("programs/go", "");
    assert_eq!(client.response().text(), "done\n");
    assert_eq!(server.get("/cgi-bin/slow").text(), "done\n");
    server.stop();
}

#[test]
fn a_stop_ends_programs_that_do_not_end() {
    let site = site(", destroy_timeout: 200ms").program(
        "endless",
        "#!/bin/sh\ntrap '' TERM\necho > begun\nwhile :; do sleep 0.05; done\n",
    );
    site.change_config("logs:", "endure: {grace_period: 2s}\nlogs:");
    let mut server = Server::start(site);
    let mut client = server.connect();
    client.request("GET", "/cgi-bin/endless", "");
    let begun = server.site().path("programs/begun");
    wait_for("it to begin", || begun.exists().then_some(()));
    server.signal(rustix::process::Signal::TERM);
    let (_, took) = pronghorn_testkit::time(|| server.wait());
    assert!(took < Duration::from_secs(10), "{took:?}");
}
