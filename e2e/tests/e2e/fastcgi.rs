//! Scripts below a root, by php-cgi, by php-fpm, and by servers at addresses.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use pronghorn_testkit::{Connection, Server, Site, free_address, php_command, wait_for};
use rustix::process::{Pid, Signal, kill_process};

use crate::php_fpm;
use crate::secure::{curl, run_curl};

/// A site of these scripts, in two processes. What is left of them is found by their environment.
/// `FPM` in the settings of the pool is this machine's php-fpm.
fn site(pool: &str) -> Site {
    let pool = pool.replace("FPM", &php_fpm::name());
    Site::new()
        .config(&format!(
            "version: '3'\nserver: {{env: {{PRONGHORN_TEST: '${{PRONGHORN_TEST}}'}}}}\nhttp:\n  address: 127.0.0.1:0\n  pool: {{mode: fastcgi, root: public, num_workers: 2{pool}}}\nlogs: {{level: debug}}\n"
        ))
        .file("public/index.php", "<?php echo 'front of ', $_SERVER['REQUEST_URI'];")
        .file("public/info.php", INFO)
        .file("public/style.css", "p { color: red }")
}

const INFO: &str = r"<?php
header('Content-Type: application/json');
$server = array_intersect_key($_SERVER, array_flip(explode(' ', $_GET['keys'] ?? '')));
echo json_encode(['server' => $server, 'get' => $_GET, 'post' => $_POST, 'cookie' => $_COOKIE,
    'files' => array_map(fn ($file) => [$file['name'], $file['size'], is_uploaded_file($file['tmp_name'])], $_FILES),
    'input' => strlen(file_get_contents('php://input')), 'pid' => getmypid()]);
";

fn json(connection: &mut Connection, target: &str) -> serde_json::Value {
    let response = connection.get(target);
    assert_eq!(response.status, 200, "{}", response.text());
    serde_json::from_str(&response.text()).expect("the script answers JSON")
}

#[test]
fn scripts_files_and_the_front_controller_share_a_root() {
    let server = Server::start(site(""));
    let mut client = server.connect();
    let told = json(
        &mut client,
        "/info.php/more%20of/it?keys=SCRIPT_NAME+PATH_INFO+REQUEST_URI+PHP_SELF&a[]=1&a[]=2",
    );
    assert_eq!(told["server"]["SCRIPT_NAME"], "/info.php");
    assert_eq!(told["server"]["PATH_INFO"], "/more of/it");
    assert_eq!(told["server"]["PHP_SELF"], "/info.php/more of/it");
    assert_eq!(
        told["server"]["REQUEST_URI"],
        "/info.php/more%20of/it?keys=SCRIPT_NAME+PATH_INFO+REQUEST_URI+PHP_SELF&a[]=1&a[]=2"
    );
    assert_eq!(told["get"]["a"], serde_json::json!(["1", "2"]));
    let css = client.get("/style.css");
    assert_eq!((css.status, css.text().as_str()), (200, "p { color: red }"));
    for path in ["/", "/a/b?c", "/.env", "/INFO.PHP"] {
        assert_eq!(client.get(path).text(), format!("front of {path}"));
    }
    for (path, status) in [
        ("/none.php", 404),
        ("/style.css/x.php", 404),
        ("/info%2ephp%00", 400),
        ("/x/../info.php", 403),
    ] {
        assert_eq!(client.get(path).status, status, "{path}");
    }
    server.stop();
}

#[test]
fn php_takes_bodies_apart_itself() {
    let server = Server::start(site(""));
    let form = server.post(
        "/info.php",
        "application/x-www-form-urlencoded",
        "a.b=1&c[d][]=2&c[d][]=3",
    );
    let told: serde_json::Value = serde_json::from_str(&form.text()).expect("JSON");
    assert_eq!(
        told["post"],
        serde_json::json!({"a_b": "1", "c": {"d": ["2", "3"]}})
    );
    let parts = "--x\r\nContent-Disposition: form-data; name=\"f\"; filename=\"a.txt\"\r\n\r\nhello\r\n--x--\r\n";
    let upload = server.post("/info.php", "multipart/form-data; boundary=x", parts);
    let told: serde_json::Value = serde_json::from_str(&upload.text()).expect("JSON");
    assert_eq!(told["files"]["f"], serde_json::json!(["a.txt", 5, true]));
    for size in [0, 1, 16 << 10, (64 << 10) + 1, 3 << 20] {
        let raw = server.post("/info.php", "application/octet-stream", vec![b'x'; size]);
        let told: serde_json::Value = serde_json::from_str(&raw.text()).expect("JSON");
        assert_eq!(told["input"], size);
    }
    server.stop();
}

#[test]
fn replies_long_and_short_come_as_they_were_sent() {
    let server = Server::start(
        site("")
            .file("public/long.php", "<?php for ($i = 0; $i < 3000; $i++) { printf('%07d,', $i); if ($i % 1000 == 0) flush(); } ")
            .file("public/head.php", "<?php http_response_code(418); header('X-A: 1'); header('X-A: 2', false); setcookie('c', 'd');")
            .file("public/away.php", "<?php header('Location: /there');")
            .file("public/warns.php", "<?php ini_set('log_errors', '1'); ini_set('error_log', ''); trigger_error('look here'); echo 'ok';"),
    );
    let mut client = server.connect();
    let long = client.get("/long.php").text();
    let expected: Vec<String> = (0..3000).map(|number| format!("{number:07},")).collect();
    assert_eq!(long, expected.concat());
    let head = client.get("/head.php");
    assert_eq!((head.status, head.all("x-a")), (418, vec!["1", "2"]));
    assert_eq!(head.header("set-cookie"), Some("c=d"));
    let away = client.get("/away.php");
    assert_eq!(
        (away.status, away.header("location")),
        (302, Some("/there"))
    );
    assert!(client.get("/warns.php").text().ends_with("ok"));
    server.logged(&["look here"]);
    server.stop();
}

/// As with nginx and php-fpm, and in `mode: classic`.
#[test]
fn what_is_no_field_is_left_out_of_a_head() {
    const NO_FIELDS: &str = "ini_set('default_mimetype', ''); ini_set('default_charset', '');";

    let scripts = [
        ("token", "header('NoColon'); echo 'page';"),
        ("words", "header('No colon here'); echo 'page';"),
        ("folded", "header(\"\\tfolded\"); echo 'page';"),
        ("status", "header('Status'); echo 'page';"),
        ("location", "header('Location'); echo 'page';"),
        ("two", "header('One'); header('Two', false); echo 'page';"),
        ("long", "header(str_repeat('x', 9000)); echo 'page';"),
        ("none", "echo 'page';"),
        ("only", "header('NoColon'); echo 'page';"),
    ];
    let site = scripts.iter().fold(site(""), |site, (name, code)| {
        let first = if matches!(*name, "none" | "only") {
            NO_FIELDS
        } else {
            ""
        };
        site.file(
            &format!("public/{name}.php"),
            &format!("<?php {first} header_remove('X-Powered-By'); header('X-A: 1'); header_remove('X-A'); {code}"),
        )
    });
    site.change_config("num_workers: 2}", "num_workers: 1}\n  pools: {classic: {mode: classic, root: public, num_workers: 1}}\n  routes: [{host: classic.test, pool: classic}]");
    let server = Server::start(site);
    let mut client = server.connect();
    for host in ["fastcgi.test", "classic.test"] {
        for (name, _) in scripts {
            client.send(format!("GET /{name}.php HTTP/1.1\r\nHost: {host}\r\n\r\n"));
            let got = client.response();
            assert_eq!(
                (got.status, got.text().as_str()),
                (200, "page"),
                "{host} {name}"
            );
            let has = ["NoColon", "Status", "Location", "One"];
            assert!(
                has.iter().all(|it| got.header(it).is_none()),
                "{host} {name}"
            );
        }
    }
    server.logged(&[
        "is left out, because it is no `Name: value`",
        "NoColon",
        "/token.php",
    ]);
    server.stop();
}

#[test]
fn a_slow_client_holds_no_process() {
    let site = site("").file(
        "public/much.php",
        "<?php for ($i = 0; $i < 750000; $i++) { printf('%07d%s', $i, \"0123456789abc\"); }",
    );
    site.change_config("num_workers: 2", "num_workers: 1");
    let server = Server::start(site);
    let mut slow = server.connect();
    slow.request("GET", "/much.php", "");
    let (status, _) = slow.head();
    assert_eq!(status, 200);
    // It reads no further, and the one process serves others.
    assert_eq!(server.get("/").text(), "front of /");
    let mut all = Vec::new();
    while let Some(chunk) = slow.chunk().filter(|chunk| !chunk.is_empty()) {
        all.extend_from_slice(&chunk);
    }
    assert_eq!(all.len(), 15_000_000);
    let right =
        |(number, line): (usize, &[u8])| line == format!("{number:07}0123456789abc").as_bytes();
    assert!(all.chunks(20).enumerate().all(right));
    server.stop();
}

#[test]
fn scripts_that_go_or_may_not_be_read_are_told_by_php_and_files_that_php_names_are_sent() {
    let site = site("")
        .file("public/brief.php", "<?php echo 'here';")
        .file("public/closed.php", "<?php echo 'read';")
        .file(
            "public/names.php",
            "<?php header('X-Sendfile: ' . dirname(__DIR__) . '/kept.txt');",
        )
        .file("kept.txt", "kept");
    let closed = std::fs::Permissions::from_mode(0o600);
    std::fs::set_permissions(site.path("public/closed.php"), closed).unwrap();
    site.change_config("server: {", "server: {user: nobody, ");
    site.change_config("http:", "http:\n  middleware: [sendfile]");
    let server = Server::start(site);
    assert_eq!(server.get("/brief.php").text(), "here");
    std::fs::remove_file(server.site().path("public/brief.php")).unwrap();
    assert_eq!(server.get("/brief.php").status, 404);
    assert_eq!(server.get("/closed.php").status, 403);
    assert_eq!(server.get("/names.php").text(), "kept");
    server.stop();
}

#[test]
fn a_deadline_and_a_crash_cost_one_process() {
    let server = Server::start(
        site(", supervisor: {exec_ttl: 1s}")
            .file("public/sleep.php", "<?php sleep(30);")
            .file("public/die.php", "<?php posix_kill(getmypid(), SIGKILL);"),
    );
    let mut client = server.connect();
    assert_eq!(client.get("/sleep.php").status, 504);
    server.logged(&["deadline passed", "/sleep.php"]);
    client.request("POST", "/die.php", "Content-Length: 0\r\n");
    assert_eq!(client.response().status, 502);
    server.logged(&[
        "worker died with signal 9 (SIGKILL) during a request",
        "/die.php",
    ]);
    wait_for("both processes again", || {
        (server.workers().len() == 2).then_some(())
    });
    assert_eq!(client.get("/").text(), "front of /");
    server.stop();
}

#[test]
fn scripts_see_no_more_of_the_environment_than_is_named_for_them() {
    let script =
        "<?php echo json_encode([getenv('PATH'), getenv('OURS'), getenv('USER') !== false]);";
    let server = Server::start_with_environment(
        site("").file("public/env.php", script),
        &["serve", "-o", "server.env.OURS=yes"],
        &[("USER", "somebody")],
    );
    assert_eq!(server.get("/env.php").text(), r#"[false,"yes",true]"#);
    server.stop();
}

#[test]
fn scripts_run_as_the_user_of_the_workers() {
    for by in ["", ", fastcgi: {php_fpm: FPM}"] {
        let site = site(by).file(
            "public/who.php",
            "<?php echo posix_geteuid(), ' ', implode(' ', posix_getgroups()), ' ', getenv('USER'), ' ', getenv('HOME');",
        );
        site.change_config("server: {", "server: {user: nobody, ");
        let server = Server::start(site);
        let who = server.get("/who.php").text();
        assert_eq!(who, "65534 65534 nobody /nonexistent", "{by}");
        server.stop();
    }
}

#[test]
fn php_fpm_is_run_and_reloaded_and_its_death_noticed() {
    let mut server = Server::start(
        site(", fastcgi: {php_fpm: FPM}, supervisor: {exec_ttl: 2s}")
            .file(
                "public/master.php",
                "<?php echo posix_getppid(), ' ', PHP_SAPI, ' ', ini_get('memory_limit');",
            )
            .file("public/sleep.php", "<?php sleep(5);"),
    );
    let mut client = server.connect();
    let first = client.get("/master.php").text();
    assert!(first.ends_with(" fpm-fcgi 128M"), "{first}");
    let told = json(&mut client, "/info.php/x?keys=PATH_INFO+SCRIPT_FILENAME");
    assert_eq!(told["server"]["PATH_INFO"], "/x");
    assert_eq!(client.get("/sleep.php").status, 504);
    server.logged(&["deadline passed", "can't be stopped"]);
    assert_eq!(server.steer(&["reset"]).code, Some(0));
    let second = client.get("/master.php").text();
    assert_ne!(first, second, "another master");
    let master = master_of(&second);
    assert_eq!(group_of(master).len(), 3, "a master and two workers");
    kill_process(master, Signal::KILL).unwrap();
    let third = wait_for("a third master", || {
        let response = client.get("/master.php");
        (response.status == 200 && response.text() != second).then(|| response.text())
    });
    server.logged(&["worker died with signal 9 (SIGKILL)"]);
    wait_for("the workers of the second one to be gone", || {
        group_of(master).is_empty().then_some(())
    });
    let master = master_of(&third);
    server.signal(Signal::KILL);
    assert_eq!(server.wait().code, None);
    wait_for("the third one and its workers to be gone", || {
        group_of(master).is_empty().then_some(())
    });
}

#[test]
fn php_fpm_that_is_told_to_reload_lets_calls_end() {
    let site = site(", fastcgi: {php_fpm: FPM}").file(
        "public/slow.php",
        "<?php touch('begun'); while (!file_exists('go')) { usleep(10000); clearstatcache(); } echo posix_getppid(), ' done';",
    );
    let all = std::fs::Permissions::from_mode(0o777);
    std::fs::set_permissions(site.path("public"), all).unwrap();
    let server = Server::start(site);
    let mut client = server.connect();
    client.request("GET", "/slow.php", "");
    let begun = server.site().path("public/begun");
    wait_for("it to begin", || begun.exists().then_some(()));
    let workers = server.steer(&["workers"]).stdout;
    let master = workers.lines().find(|line| line.contains("/slow.php"));
    let master = master_of(master.expect("it is shown").trim());
    kill_process(master, Signal::USR2).unwrap();
    server.logged(&["Reloading in progress"]);
    server.site().write("public/go", "");
    assert_eq!(client.response().text().split(' ').nth(1), Some("done"));
    assert_eq!(server.get("/").text(), "front of /");
    server.stop();
}

fn master_of(said: &str) -> Pid {
    let number = said.split(' ').next().and_then(|it| it.parse().ok());
    Pid::from_raw(number.expect("a number")).expect("of a process")
}

/// Live processes of a group. php-fpm writes over the environment by which processes are otherwise
/// found.
fn group_of(leader: Pid) -> Vec<String> {
    let processes = std::fs::read_dir("/proc")
        .expect("/proc is there")
        .flatten();
    let stats = processes.filter_map(|it| std::fs::read_to_string(it.path().join("stat")).ok());
    let leader = leader.as_raw_nonzero().to_string();
    let is_of_group = |stat: &String| {
        // Behind the name: state, parent, group.
        let mut fields = stat.rsplit(") ").next().unwrap_or_default().split(' ');
        fields.next() != Some("Z") && fields.nth(1) == Some(&leader)
    };
    stats.filter(is_of_group).collect()
}

/// A FastCGI server that serves each connection so; it ends with the test.
fn peer(serve: impl Fn(TcpStream) + Send + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = listener.local_addr().expect("it is bound");
    std::thread::spawn(move || listener.incoming().flatten().for_each(serve));
    address
}

/// Answers the first request on a connection with these bytes.
fn answers(bytes: &'static [u8]) -> SocketAddr {
    peer(move |mut stream| answer(&mut stream, bytes))
}

/// Records of these bytes that are for request 1 are made those of the request that comes.
fn answer(stream: &mut TcpStream, bytes: &[u8]) {
    let mut request = [0; 4096];
    _ = stream.read(&mut request);
    let mut bytes = bytes.to_vec();
    let mut at = 0;
    while let Some([1, _, id_high, id_low, high, low, padding, _]) = bytes.get_mut(at..at + 8) {
        if (*id_high, *id_low) == (0, 1) {
            (*id_high, *id_low) = (request[2], request[3]);
        }
        at += 8 + usize::from(u16::from_be_bytes([*high, *low])) + usize::from(*padding);
    }
    _ = stream.write_all(&bytes);
}

/// What a client of the next request must not get: whole answers by this number.
fn forged(id: [u8; 2]) -> Vec<u8> {
    whole(
        id,
        "Content-Type: text/plain\r\nSet-Cookie: forged=1\r\n\r\nforged",
    )
}

fn whole([high, low]: [u8; 2], output: &str) -> Vec<u8> {
    let [longer, long] = u16::try_from(output.len())
        .expect("it is short")
        .to_be_bytes();
    let end = [1, 3, high, low, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    [
        &[1, 6, high, low, longer, long, 0, 0],
        output.as_bytes(),
        &end[..],
    ]
    .concat()
}

/// Reads a request: its number, and its script.
fn request(stream: &mut TcpStream) -> Option<([u8; 2], String)> {
    let mut params = Vec::new();
    loop {
        let mut header = [0; 8];
        stream.read_exact(&mut header).ok()?;
        let [_, kind, id_high, id_low, high, low, padding, _] = header;
        let len = usize::from(u16::from_be_bytes([high, low]));
        let mut content = vec![0; len + usize::from(padding)];
        stream.read_exact(&mut content).ok()?;
        match kind {
            4 => params.extend_from_slice(&content[..len]),
            5 if len == 0 => {
                let params = String::from_utf8_lossy(&params).into_owned();
                let name = params.split("SCRIPT_NAME").nth(1).unwrap_or_default();
                let name = name.split(".php").next().unwrap_or_default();
                return Some(([id_high, id_low], name.to_owned()));
            }
            _ => {}
        }
    }
}

#[test]
fn what_a_peer_sends_for_one_client_reaches_no_other() {
    let scripts = [
        "twice", "later", "byte", "errors", "values", "before", "begun", "padded", "mine",
    ];
    let peer = peer(|mut stream| {
        std::thread::spawn(move || {
            while let Some((id, name)) = request(&mut stream) {
                let mine = whole(id, &format!("Content-Type: text/plain\r\n\r\n{name}"));
                let other = [id[0] ^ 1, id[1]];
                let bytes = match name.as_str() {
                    "/twice" | "/later" => [mine, forged(id)].concat(),
                    "/byte" => [&mine[..], b"\x01"].concat(),
                    "/errors" => [&mine[..], b"\x01\x07", &id, b"\x00\x01\x00\x00x"].concat(),
                    "/values" => [&mine[..], b"\x01\x0a\x00\x00\x00\x00\x00\x00"].concat(),
                    "/before" => [forged(other), mine].concat(),
                    // In the middle of the answer.
                    "/begun" => [&mine[..mine.len() - 16], &forged(other)].concat(),
                    "/padded" => {
                        let mut mine = mine;
                        let at = mine.len() - 10;
                        mine[at] = 5;
                        [&mine[..], b"\x01\x06pad"].concat()
                    }
                    _ => mine,
                };
                let (now, later) = match name.as_str() {
                    "/later" => bytes.split_at(bytes.len() - forged(id).len()),
                    _ => (&bytes[..], &b""[..]),
                };
                _ = stream.write_all(now);
                if !later.is_empty() {
                    std::thread::park_timeout(Duration::from_millis(50));
                    _ = stream.write_all(later);
                }
            }
        });
    });
    let site = scripts.iter().fold(at(&[peer]), |site, name| {
        site.file(&format!("public/{name}.php"), "")
    });
    site.change_config("num_workers: 2", "num_workers: 1");
    let server = Server::start(site);
    for name in scripts {
        let first = server.post(&format!("/{name}.php"), "text/plain", "x");
        match name {
            "before" => assert_eq!(first.status, 502),
            "begun" => assert!(first.status == 502 || !first.text().contains("forged")),
            _ => assert_eq!(first.text(), format!("/{name}")),
        }
        // At once, and when what is late has come.
        for _ in 0..3 {
            let next = server.get("/mine.php");
            let got = (next.status, next.text(), next.header("set-cookie"));
            assert_eq!(got, (200, "/mine".to_owned(), None), "after {name}");
            std::thread::park_timeout(Duration::from_millis(30));
        }
    }
    server.logged(&["behind the end of one", "/twice.php"]);
    server.logged(&["which is not under way", "/before.php"]);
    server.stop();
}

/// PHP leaves the connection of its request to the programs that a script starts.
#[test]
fn a_child_that_a_script_leaves_behind_answers_nobody() {
    const CHILD: &str = r#"<?php
        $code = 'usleep(200000); foreach (glob("/proc/self/fd/*") as $f) { $n = (int) basename($f);
            if ($n > 2 && str_starts_with((string) @readlink($f), "socket:")) { $s = fopen("php://fd/$n", "w");
                $b = "Content-Type: text/plain\r\nSet-Cookie: forged=1\r\n\r\nforged";
                foreach ([1, 2, 3] as $id) { $r = fn ($t, $b) => pack("CCnnCC", 1, $t, $id, strlen($b), 0, 0) . $b;
                    @fwrite($s, $r(6, $b) . $r(3, str_repeat("\0", 8))); } } } touch("forged");';
        exec('php -r ' . escapeshellarg($code) . ' >/dev/null 2>&1 &');
        echo 'begun';"#;
    // It is under way until the child has written, however long PHP takes to start.
    const VICTIM: &str = "<?php
        for ($i = 0; $i < 400 && !file_exists('forged'); ++$i) { usleep(50000); clearstatcache(); }
        echo 'private';";
    for by in ["", ", fastcgi: {php_fpm: FPM}"] {
        let site = site(by)
            .file("public/child.php", CHILD)
            .file("public/victim.php", VICTIM);
        site.change_config("num_workers: 2", "num_workers: 1");
        let server = Server::start(site);
        assert_eq!(server.get("/child.php").text(), "begun");
        let victim = server.get("/victim.php");
        // It is repeated, as it may be.
        let got = (victim.status, victim.text(), victim.header("set-cookie"));
        assert_eq!(got, (200, "private".to_owned(), None), "{by}");
        if by.is_empty() {
            server.logged(&["which is not under way", "/victim.php"]);
        } // a connection to php-fpm is no other call's
        assert_eq!(server.get("/victim.php").text(), "private");
        server.stop();
    }
}

fn at(addresses: &[SocketAddr]) -> Site {
    let addresses: Vec<String> = addresses.iter().map(SocketAddr::to_string).collect();
    site(&format!(
        ", fastcgi: {{address: [{}]}}, supervisor: {{exec_ttl: 1s}}",
        addresses.join(", ")
    ))
}

#[test]
fn peers_that_make_no_sense_cost_a_502_and_nothing_else() {
    for (bytes, why) in [
        (&b"HTTP/1.1 400 Bad Request\r\n\r\n"[..], "a record of version 72"),
        (b"", "closed its connection in place of an answer"),
        (b"\x01\x06\x00\x01\x00\x10\x00\x00Content-", "closed its connection in place of an answer"),
        (b"\x01\x06\x00\x00\x00\x00\x00\x00", "a record for request 0, which is not under way"),
        (b"\x01\x0b\x00\x01\x00\x00\x00\x00", "a record of kind 11"),
        (b"\x01\x06\x00\x01\x00\x07\x00\x00<html>\n\x01\x03\x00\x01\x00\x08\x00\x00\0\0\0\0\0\0\0\0", "it ended the request without the end of a header"),
    ] {
        let server = Server::start(at(&[answers(bytes)]));
        let response = server.post("/index.php", "text/plain", "x");
        assert_eq!(response.status, 502, "{why}");
        server.logged(&[why, "/index.php"]);
        assert_eq!(server.get("/style.css").status, 200);
        server.stop();
    }
}

#[test]
fn a_peer_that_hangs_costs_its_deadline_and_one_that_breaks_off_cuts_the_reply() {
    let hangs = peer(|mut stream| {
        let mut all = Vec::new();
        _ = stream.read_to_end(&mut all); // until the server gives up
    });
    let server = Server::start(at(&[hangs]));
    assert_eq!(server.get("/index.php").status, 504);
    server.stop();
    let breaks_off = peer(|mut stream| {
        let begun = b"\x01\x06\x00\x01\x00\x1b\x00\x00Content-type: text/a\r\n\r\nhel";
        answer(&mut stream, begun);
        // Long enough for the beginning to be passed on.
        _ = stream.set_read_timeout(Some(Duration::from_millis(200)));
        _ = stream.read(&mut [0; 4096]);
    });
    let server = Server::start(at(&[breaks_off]));
    let mut client = server.connect();
    client.request("POST", "/index.php", "Content-Length: 0\r\n");
    let (status, _) = client.head();
    assert_eq!(status, 200);
    assert!(
        !String::from_utf8_lossy(&client.rest()).ends_with("0\r\n\r\n"),
        "it looks whole"
    );
    server.logged(&["in the middle of its answer"]);
    server.stop();
}

/// A server before one that answers each request with this output.
fn before(output: &'static str) -> Server {
    let address = peer(move |mut stream| answer(&mut stream, &whole([0, 1], output)));
    let site = at(&[address]);
    let http = "http:\n  http2: {h2c: true}\n  middleware: [gzip]\n";
    site.change_config("http:\n", http);
    Server::start(site)
}

#[test]
fn an_answer_that_is_shorter_than_it_said_does_not_look_whole() {
    const HTTP2: &str = "--http2-prior-knowledge";
    let server = before("Content-Type: text/plain\r\nContent-Length: 10\r\n\r\nhello");
    let url = format!("http://{}/index.php", server.address());
    let cut = server.get("/index.php");
    assert_eq!(
        (cut.status, cut.text().as_str(), cut.complete),
        (200, "hello", false)
    );
    server.logged(&["ended after 5 of the 10 bytes that its Content-Length announced"]);
    assert!(!run_curl(&server, &[HTTP2, &url]).status.success());
    for gzip in [&[][..], &[HTTP2]] {
        let ran = run_curl(&server, &[&["--compressed", &url], gzip].concat());
        assert!(!ran.status.success(), "{gzip:?}");
    }
    server.stop();
    // A script says to HEAD what it leaves out.
    let server = before("Content-Type: text/plain\r\nContent-Length: 10\r\n\r\n");
    let url = format!("http://{}/index.php", server.address());
    let mut client = server.connect();
    for _ in 0..2 {
        client.request("HEAD", "/index.php", "");
        let head = client.head_response();
        assert_eq!(
            (head.status, head.header("content-length")),
            (200, Some("10"))
        );
    }
    assert!(curl(&server, &[HTTP2, "--head", &url]).contains("content-length: 10"));
    server.stop();
    let server = before("Status: 304\r\nContent-Length: 10\r\n\r\n");
    let mut client = server.connect();
    assert_eq!([(); 2].map(|()| client.get("/index.php").status), [304; 2]);
    server.stop();
}

#[test]
fn an_answer_in_pieces_that_is_shorter_than_it_said_does_not_look_whole() {
    let short = peer(|mut stream| {
        let Some(([high, low], _)) = request(&mut stream) else {
            return;
        };
        let head = "Content-Type: text/plain\r\nContent-Length: 400000\r\n\r\n";
        let all = format!("{head}{}", "x".repeat(350_000));
        for piece in all.as_bytes().chunks(50_000) {
            let [long, longer] = u16::try_from(piece.len()).expect("it fits").to_be_bytes();
            _ = stream.write_all(&[&[1, 6, high, low, long, longer, 0, 0], piece].concat());
        }
        _ = stream.write_all(&[1, 3, high, low, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    });
    let server = Server::start(at(&[short]));
    let cut = server.get("/index.php");
    assert_eq!(
        (cut.status, cut.body.len(), cut.complete),
        (200, 350_000, false)
    );
    server.logged(&["ended after 350000 of the 400000 bytes"]);
    server.stop();
}

#[test]
fn how_an_answer_is_sent_is_not_for_the_script_to_say() {
    const CHUNKS: &str = "5\r\nhello\r\n0\r\n\r\n";
    let server = before(
        "Content-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    );
    let mut client = server.connect();
    for _ in 0..2 {
        let response = client.get("/index.php");
        assert_eq!(response.header("transfer-encoding"), None);
        assert_eq!(response.text(), CHUNKS);
    }
    server.stop();
    let server = before("Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello");
    assert_eq!(server.get("/index.php").status, 502);
    server.logged(&["it announces two lengths, `Content-Length: 5` and `Content-Length: 6`"]);
    server.stop();
}

#[test]
fn messages_to_the_operator_give_a_script_no_time() {
    let complains = peer(|mut stream| {
        let Some(([high, low], _)) = request(&mut stream) else {
            return;
        };
        let begun = b"Content-type: text/a\r\n\r\nhel";
        _ = stream.write_all(&[&[1, 6, high, low, 0, 27, 0, 0], &begun[..]].concat());
        for _ in 0..50 {
            std::thread::park_timeout(Duration::from_millis(100));
            let message = [&[1, 7, high, low, 0, 5, 0, 0], &b"still"[..]].concat();
            if stream.write_all(&message).is_err() {
                break;
            }
        }
    });
    let server = Server::start(at(&[complains]));
    assert!(!server.get("/index.php").complete);
    server.logged(&["deadline passed: the client was cut off"]);
    server.stop();
}

/// The server runs as root here, and does not know who answers: it sends what everybody may read.
#[test]
fn scripts_at_an_address_get_no_file_of_root_by_its_name() {
    let address = free_address();
    let site = at(&[address]);
    let config = site.read(".rr.yaml");
    site.write(
        ".rr.yaml",
        &config.replace("  pool:", "  middleware: [sendfile]\n  pool:"),
    );
    let site = site
        .file(
            "public/send.php",
            "<?php header('X-Sendfile: ' . realpath('../' . $_GET['name']));",
        )
        .file("open.txt", "for all")
        .file("closed.txt", "of root");
    let mode = |mode| std::fs::Permissions::from_mode(mode);
    std::fs::set_permissions(site.path("closed.txt"), mode(0o600)).unwrap();
    std::fs::set_permissions(site.folder(), mode(0o755)).unwrap();
    let mut php = php_command("php-cgi")
        .args(["-b", &address.to_string()])
        .env("PHP_FCGI_MAX_REQUESTS", "0")
        .spawn()
        .expect("php-cgi is installed (scripts/need tests)");
    wait_for("php-cgi to listen", || {
        TcpStream::connect(address).ok().map(drop)
    });
    let server = Server::start(site);
    let open = server.get("/send.php?name=open.txt");
    assert_eq!((open.status, &*open.text()), (200, "for all"));
    assert_eq!(server.get("/send.php?name=closed.txt").status, 404);
    server.logged(&["closed.txt", "the workers' user may not read it"]);
    server.stop();
    php.kill().unwrap();
    php.wait().unwrap();
}

#[test]
fn an_address_that_does_not_answer_is_passed_over() {
    const ANSWER: &[u8] = b"\x01\x06\x00\x01\x00\x1d\x00\x00Content-type: text/a\r\n\r\nhello\
        \x01\x03\x00\x01\x00\x08\x00\x00\0\0\0\0\0\0\0\0";
    let nobody = free_address();
    let server = Server::start(at(&[nobody, nobody, answers(ANSWER)]));
    for _ in 0..4 {
        assert_eq!(server.get("/index.php").text(), "hello");
    }
    server.logged(&["does not answer", &nobody.to_string()]);
    server.stop();
    let server = Server::start(at(&[nobody]));
    assert_eq!(server.get("/index.php").status, 502);
    // Somebody is there later: no restart is needed.
    let listener = TcpListener::bind(nobody).unwrap();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            answer(&mut stream, ANSWER);
        }
    });
    wait_for("an answer", || {
        (server.get("/index.php").status == 200).then_some(())
    });
    server.stop();
}

#[test]
fn what_cannot_be_used_ends_the_start() {
    let broken = site("");
    std::fs::remove_dir_all(broken.path("public")).unwrap();
    Server::run(&broken, &["serve"]).assert_refused(&["`root` names", "public"]);
    let no_cgi = site(", command: php-cgi9");
    Server::run(&no_cgi, &["serve"])
        .assert_refused(&["`php-cgi9` was not found", "apt install php-cgi"]);
    let no_fpm = site(", fastcgi: {php_fpm: php-fpm9}");
    Server::run(&no_fpm, &["serve"])
        .assert_refused(&["`php-fpm9` was not found", "apt install php-fpm"]);
    let ends = site(", command: 'sh -c \"echo no such luck >&2; exit 3\"'");
    Server::run(&ends, &["serve"]).assert_refused(&["ended before it was ready", "no such luck"]);
    let other =
        site(", fastcgi: {php_fpm: FPM}, ini: {extension: nowhere.so}").file("public/x", "");
    let server = Server::start(other);
    server.logged(&["nowhere.so"]);
    server.stop();
}

#[test]
fn a_call_does_not_wait_for_what_another_one_does_behind_its_answer() {
    let after = "<?php echo 'thanks'; fastcgi_finish_request();\n\
        for ($i = 0; $i < 2000 && !is_file('go'); $i++) { usleep(10000); clearstatcache(); }\n\
        touch('gone');";
    let hello = "<?php echo is_file('gone') ? 'late' : 'hello';";
    let site = site(", fastcgi: {php_fpm: FPM}")
        .file("public/after.php", after)
        .file("public/hello.php", hello);
    let server = Server::start(site);
    assert_eq!(server.get("/after.php").text(), "thanks");
    // More than there are slots: one of them had the call before.
    for _ in 0..4 {
        assert_eq!(server.get("/hello.php").text(), "hello");
    }
    server.site().write("public/go", "");
    server.stop();
}

#[test]
fn a_folder_is_served_without_a_configuration() {
    let site = Site::new()
        .file(
            "public/index.php",
            "<?php echo 'front of ', $_SERVER['REQUEST_URI'];",
        )
        .file("public/style.css", "p {}");
    // 8080 may be taken.
    let arguments = [
        "serve",
        "--root",
        ".",
        "-o",
        "http.address=127.0.0.1:0",
        "-o",
        "server.env.PRONGHORN_TEST=${PRONGHORN_TEST}",
    ];
    let server = Server::start_with(site, &arguments);
    assert_eq!(server.get("/some/page").text(), "front of /some/page");
    assert_eq!(server.get("/style.css").text(), "p {}");
    let public = server.site().path("public").display().to_string();
    server.logged(&["scripts and files below", &public, "`index.php`"]);
    server.stop();
    let empty = Site::new().file("public/index.php", "");
    let refused = Server::run(&empty, &["serve", "--root", "nowhere"]);
    assert!(
        refused.stderr.contains("there is no folder `nowhere`"),
        "{}",
        refused.stderr
    );
}

#[test]
fn a_classic_pool_without_the_extension_runs_by_fastcgi_and_says_what_is_lost() {
    // One for which no extension was built.
    let site = site("")
        .file("public/sapi.php", "<?php echo PHP_SAPI;")
        .file(
            "bin/php",
            "#!/bin/sh\nphp \"$@\" | sed 's/20[0-9]*-nts/20990101-nts/'\n",
        );
    let executable = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(site.path("bin/php"), executable).unwrap();
    site.change_config("mode: fastcgi", "mode: classic, php: bin/php");
    let checked = Server::run(&site, &["check"]);
    checked.assert_said(&[
        "warning: .rr.yaml:5:16: `http.pool.mode` is `classic`, and `bin/php` has no extension `pronghorn`, so scripts run by FastCGI (`php-cgi`)",
        "OPcache of its own",
        "/bin/php` builds it; `mode: fastcgi` turns this warning off",
    ]);
    let server = Server::start(site);
    assert_eq!(server.get("/sapi.php").text(), "cgi-fcgi");
    server.logged(&[
        "has no extension `pronghorn`",
        "php-cgi",
        "OPcache of its own",
    ]);
    let site = server.into_site();
    site.write("bin/php", "#!/bin/sh\necho none here\nexit 1\n");
    Server::run(&site, &["check"]).assert_said_with(
        2,
        &[
            "`http.pool.mode` is `classic`, and `",
            "/bin/php` does not report its version",
            "/bin/php -v` shows what it says",
        ],
    );
    let refused = Server::run(&site, &["serve"]);
    assert_ne!(refused.code, Some(0), "{}", refused.stderr);
    site.change_config("php: bin/php", "php: php9");
    let checked = Server::run(&site, &["check"]);
    checked.assert_said_with(
        2,
        &["error: .rr.yaml:5:16: `http.pool.mode` is `classic`, and `php9` was not found"],
    );
}

#[test]
fn check_finds_folders_that_are_not_there() {
    let site = site("");
    site.change_config(
        "http:\n",
        "http:\n  middleware: [static]\n  static: {dir: nothing}\n",
    );
    site.change_config("root: public", "root: publik");
    let checked = Server::run(&site, &["check"]);
    checked.assert_said_with(
        2,
        &[
            "`http.pool.root` names `publik`, which can't be used: No such file or directory",
            "`http.static` names `nothing`, which can't be used: No such file or directory",
            "hint: the server does not start without it",
            ": 2 errors",
        ],
    );
}
