//! Pools in `mode: classic`: PHP programs as they are under php-fpm.

use pronghorn_testkit::{Server, Site};

use crate::ring::extension;

/// A site of these scripts, in a pool with as many workers and further settings.
pub(crate) fn site(workers: usize, more: &str) -> Site {
    let php = format!("php -d extension={}", extension().display());
    Site::new().config(&format!(
        "version: '3'\nhttp:\n  address: 127.0.0.1:0\n  \
         pool: {{mode: classic, root: public, php: '{php}', num_workers: {workers}{more}}}\nlogs: {{level: debug}}\n"
    ))
}

#[test]
fn a_script_gets_its_request_and_leaves_nothing_for_the_next() {
    let script = "<?php
        if (defined('BEFORE') || function_exists('before')) { exit('something is left'); }
        define('BEFORE', 1);
        if (isset($_GET['a'])) { function before() {} }
        header('X-Sapi: ' . PHP_SAPI);
        http_response_code(201);
        setcookie('c', 'v');
        echo json_encode([$_GET, $_POST, $_COOKIE, $_SERVER['SCRIPT_NAME'], $_SERVER['argv'] ?? null, file_get_contents('php://input')]);
        exit(3);
    ";
    let server = Server::start(site(1, "").file("public/index.php", script));
    let workers = server.workers();
    for _ in 0..3 {
        let reply = server.post(
            "/some/page?a[b]=1",
            "application/x-www-form-urlencoded",
            "x=y",
        );
        assert_eq!(
            (reply.status, reply.header("x-sapi")),
            (201, Some("fpm-fcgi"))
        );
        assert_eq!(reply.header("set-cookie"), Some("c=v"));
        assert_eq!(
            reply.text(),
            r#"[{"a":{"b":"1"}},{"x":"y"},[],"\/index.php",null,"x=y"]"#
        );
    }
    assert_eq!(server.workers(), workers);
    server.stop();
}
