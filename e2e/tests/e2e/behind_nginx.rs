//! The configurations of docs/operations/behind-nginx.md, in Debian's nginx.

use std::net::SocketAddr;
use std::path::Path;

use pronghorn_testkit::{Server, Site, free_address};

use crate::nginx::Nginx;

#[test]
fn the_least_block_passes_requests() {
    let server = Server::start(Site::with_worker("app.php"));
    let nginx = nginx_before(&server, 0);
    let shown = nginx.connect().get("/show").text();
    assert!(shown.contains(r#""protocol":"HTTP/1.0""#), "{shown}");
    assert!(shown.contains(r#""x-real-ip":["127.0.0.1"]"#), "{shown}");
    let mut client = nginx.connect();
    for kb in [1, 1000] {
        let large = client.get(&format!("/large?kb={kb}"));
        assert_eq!(large.body.len(), kb * 1024);
    }
    drop(nginx);
    server.stop();
}

#[test]
fn the_larger_one_keeps_connections_and_sends_files() {
    let site = Site::with_worker("app.php");
    std::fs::create_dir(site.path("public")).unwrap();
    site.write("public/style.css", "body {}");
    site.write("public/secret.php", "<?php // secret");
    let server = Server::start(site);
    let nginx = nginx_before(&server, 1);
    let mut client = nginx.connect();
    let shown = client.get("/show").text();
    assert!(shown.contains(r#""protocol":"HTTP/1.1""#), "{shown}");
    assert!(shown.contains(r#""host":["test"]"#), "{shown}");
    assert!(!shown.contains(r#""connection""#), "{shown}");
    assert_eq!(client.get("/style.css").text(), "body {}");
    assert_eq!(client.get("/secret.php").status, 404);
    assert_eq!(client.get("/stream").text(), "piece 1\npiece 2\npiece 3\n");

    let before = connections_to(server.address());
    for _ in 0..50 {
        assert_eq!(client.get("/").text(), "Hello");
    }
    assert_eq!(
        connections_to(server.address()),
        before,
        "one connection serves them all"
    );
    drop(nginx);
    server.stop();
}

/// nginx with one of the page's blocks.
fn nginx_before(server: &Server, block: usize) -> Nginx {
    let address = free_address();
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/operations/behind-nginx.md");
    let page = std::fs::read_to_string(page).expect("the page is there");
    let blocks = page
        .replace("listen 80;", &format!("listen {address};"))
        .replace("127.0.0.1:8080", &server.address().to_string())
        .replace("/srv/app", &server.site().folder().display().to_string());
    let text = blocks
        .split("```nginx\n")
        .nth(block + 1)
        .expect("the page has this block");
    let (text, _) = text.split_once("```").expect("the block ends");
    Nginx::start(server.site(), text, address)
}

/// Connections to an address that are, or were a moment ago: one that was closed is remembered by
/// the kernel for a minute.
fn connections_to(address: SocketAddr) -> usize {
    let remote = format!(" 0100007F:{:04X} ", address.port());
    let table = std::fs::read_to_string("/proc/net/tcp").expect("there is /proc");
    table.matches(&remote).count()
}
