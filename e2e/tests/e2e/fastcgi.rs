//! Scripts below a root, by php-cgi.

use pronghorn_testkit::{Connection, Server, Site, wait_for};

/// A site of these scripts, in two processes. What is left of them is found by their environment.
fn site(pool: &str) -> Site {
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

#[test]
fn a_deadline_and_a_crash_cost_one_process() {
    let server = Server::start(
        site(", supervisor: {exec_ttl: 300ms}")
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
