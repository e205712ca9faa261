//! A site with TLS in a real browser: `make browser`.

#[path = "../e2e/secure.rs"]
#[expect(dead_code, reason = "one test needs little of it")]
mod secure;

use std::process::Command;

use pronghorn_testkit::Server;

#[test]
fn chromium_loads_a_page_over_http_2() {
    let server = Server::start(secure::site("app.php", "", ""));
    let url = format!("https://localhost:{}/show", secure::port(&server));
    let shown = Command::new("timeout")
        .args([
            "60",
            "chromium",
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
        ])
        // Nobody has signed the certificate; nothing else is asked for.
        .args([
            "--ignore-certificate-errors",
            "--disable-background-networking",
        ])
        .arg(format!(
            "--user-data-dir={}",
            server.site().path("chromium").display()
        ))
        .args(["--dump-dom", &url])
        .output()
        .expect("chromium is installed");
    let page = String::from_utf8_lossy(&shown.stdout);
    let complaints = String::from_utf8_lossy(&shown.stderr);
    assert!(
        page.contains("\"protocol\":\"HTTP/2.0\""),
        "{page}\n{complaints}\n{}",
        server.log()
    );
    server.stop();
}
