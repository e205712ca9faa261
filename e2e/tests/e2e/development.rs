//! `--dev`: changes are served at once, and mistakes are shown in the browser.

use pronghorn_testkit::{Response, Server, Site, wait_for};

const DEV: [&str; 2] = ["serve", "--dev"];

fn site() -> Site {
    Site::new()
        .file("worker.php", &Site::sdk_worker("return 'one';"))
        .config("version: '3'\nserver: {command: php worker.php}\nhttp: {address: 127.0.0.1:0, pool: {num_workers: 1}}\n")
}

fn wait_for_page(server: &Server, text: &str) -> Response {
    wait_for(text, || {
        Some(server.get("/")).filter(|page| page.text().contains(text))
    })
}

/// Writes code that works, and waits until it is served.
fn mend(server: &Server) {
    let mended = Site::sdk_worker("return 'mended';");
    server.site().write("worker.php", &mended);
    wait_for_page(server, "mended");
}

#[test]
fn a_change_of_code_is_served_without_a_restart() {
    let server = Server::start_with(site(), &DEV);
    assert_eq!(server.get("/").text(), "one");
    server
        .site()
        .write("worker.php", &Site::sdk_worker("return 'two';"));
    wait_for_page(&server, "two");
    server.logged(&["INFO", "worker.php changed: starting new workers"]);
    server.stop();
}

#[test]
fn code_that_does_not_boot_is_shown_until_it_does() {
    let server = Server::start_with(site(), &DEV);
    server.site().write("worker.php", "<?php function (");
    let page = wait_for_page(&server, "Parse error");
    assert_eq!((page.status, page.header("refresh")), (500, Some("1")));
    assert!(
        page.text()
            .contains("The server tries again when a file changes.")
    );
    server.logged(&["ERROR", "worker ended before it was ready"]);
    mend(&server);
    server.stop();
}

#[test]
fn a_start_with_broken_code_waits_for_a_change() {
    let server = Server::start_with(site().file("worker.php", "<?php function ("), &DEV);
    assert!(server.get("/").text().contains("Parse error"));
    mend(&server);
    server.stop();
}

#[test]
fn folders_that_come_and_go_are_watched() {
    let server = Server::start_with(site().file("src/page.php", "<?php"), &DEV);
    // As a checkout of another branch does it.
    std::fs::remove_dir_all(server.site().path("src")).unwrap();
    server.site().write("src/page.php", "<?php");
    let reloads = || server.log().matches("starting new workers").count();
    wait_for("the checkout to be seen", || (reloads() > 0).then_some(()));
    for file in 1.. {
        if server.log().contains("src/new") {
            break;
        }
        let before = reloads();
        server.site().write(&format!("src/new{file}.php"), "<?php");
        wait_for("a change in the new folder to be seen", || {
            (reloads() > before).then_some(())
        });
    }
    server.stop();
}

#[test]
fn an_exception_is_shown_in_development_only() {
    let throws = || {
        site().file(
            "worker.php",
            &Site::sdk_worker("throw new LogicException('<b>why</b>');"),
        )
    };
    let server = Server::start_with(throws(), &DEV);
    let mut connection = server.connect();
    connection.request("GET", "/", "Accept: text/html\r\n");
    let page = connection.response();
    assert_eq!(page.status, 500);
    let text = page.text();
    assert!(
        text.contains("LogicException") && text.contains("worker.php"),
        "{text}"
    );
    assert!(
        text.contains("&lt;b&gt;why") && !text.contains("<b>why"),
        "{text}"
    );
    server.stop();
    let server = Server::start(throws());
    let page = server.get("/");
    assert_eq!((page.status, page.text().contains("why")), (500, false));
    server.logged(&["ERROR", "<b>why</b>"]);
    server.stop();
}

#[test]
fn a_change_of_the_configuration_asks_for_a_restart() {
    let server = Server::start_with(site(), &DEV);
    let config = std::fs::read_to_string(server.site().path(".rr.yaml")).unwrap();
    server.site().write(".rr.yaml", &config);
    server.logged(&["WARN", ".rr.yaml changed: restart the server to apply it"]);
    assert_eq!(server.get("/").text(), "one");
    server.stop();
}

#[test]
fn a_section_says_what_is_watched_without_development_mode() {
    let site = site().file("kept/old.php", "<?php");
    site.write(
        ".rr.yaml",
        &format!(
            "{}reload: {{interval: 1s, services: {{http: {{recursive: true, ignore: [kept], patterns: [.php, .tpl]}}}}}}\n",
            site.read(".rr.yaml")
        ),
    );
    let server = Server::start(site);
    server.logged(&["INFO", "for changes"]);
    let reloads = |file: &str| {
        let log = server.log();
        log.matches(&format!("{file} changed: starting new workers"))
            .count()
    };
    assert_eq!(server.get("/").text(), "one");
    // Each round is seen by its last change: had one before it counted, it would have been named
    // instead, or as well.
    for round in 1..=2 {
        server.site().write("kept/old.php", "<?php return 2;");
        server.site().write("notes.txt", "changed");
        server.site().write("page.tpl", "changed");
        wait_for("the template to be seen", || {
            (reloads("page.tpl") >= round).then_some(())
        });
    }
    let two = Site::sdk_worker("return 'two';");
    server.site().write("worker.php", &two);
    wait_for_page(&server, "two");
    assert_eq!((reloads("old.php"), reloads("notes.txt")), (0, 0));
    server.stop();
}
