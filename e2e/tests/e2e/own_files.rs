//! What no visitor gets: the server's own files, what lies in a project beside its site, and
//! scripts that somebody uploaded.

use std::fs::hard_link;
use std::os::unix::fs::symlink;

use pronghorn_testkit::{Server, Site, free_address, wait_for};
use rustix::process::Signal;

use crate::ring::extension;

const SECRET: &str = "a-password-of-the-server";
const RAN: &str = "<?php echo 'UPLOADED RAN';";

/// A folder that is served as it is, with the configuration in it.
fn site() -> Site {
    let config = format!(
        "version: '3'\nhttp:\n  address: 127.0.0.1:0\n  middleware: [static, sendfile]\n  \
         static: {{serve: [{{root: ., precompressed: [gzip]}}]}}\n  \
         pool: {{mode: classic, php: 'php -d extension={}', root: ., num_workers: 1}}\n\
         include: [more.yaml]\nenvfile: variables.txt\nstate_dir: state\n\
         logs: {{output: [stderr, server.log], level: debug, channels: {{access: {{output: visits.log}}}}}}\n\
         # {SECRET}\n",
        extension().display()
    );
    Site::new()
        .file("pronghorn.yaml", &config)
        .file("more.yaml", &included())
        .file("variables.txt", &format!("A={SECRET}\n"))
        .file("pronghorn.yaml~", SECRET)
        .file("pronghorn.yaml.gz", SECRET)
        .file("visits.log.1", SECRET)
        .file("state/reports/a.json", SECRET)
        .file("state/mine.txt", "mine")
        .file("a.txt", "a file")
        .file("index.php", "<?php echo 'front';")
        .file(
            "send.php",
            "<?php header('X-Sendfile: ' . __DIR__ . '/' . $_GET['file']);",
        )
}

fn included() -> String {
    format!("version: '3'\n# {SECRET}\n")
}

#[test]
fn no_file_of_the_server_is_sent() {
    let site = site();
    symlink("more.yaml", site.path("link.txt")).expect("a link can be made");
    hard_link(site.path("more.yaml"), site.path("hard.txt")).expect("a link can be made");
    symlink(".", site.path("round")).expect("a link can be made");
    let server = Server::start(site);
    assert_eq!(server.get("/a.txt").text(), "a file");
    for path in [
        "/pronghorn.yaml",
        "//pronghorn.yaml",
        "/./pronghorn.yaml",
        "/%70ronghorn.yaml",
        "/round/pronghorn.yaml",
        "/pronghorn.yaml~",
        "/pronghorn.yaml.gz",
        "/more.yaml",
        "/link.txt",
        "/hard.txt",
        "/variables.txt",
        "/server.log",
        "/visits.log",
        "/visits.log.1",
        "/state/reports/a.json",
        "/send.php?file=pronghorn.yaml",
        "/send.php?file=hard.txt",
        "/send.php?file=server.log",
    ] {
        let response = server.get(path);
        assert_eq!(response.status, 404, "{path}: {}", response.text());
        assert!(!response.text().contains(SECRET), "{path}");
    }
    // Whatever the server keeps there.
    let state = std::fs::read_dir(server.site().path("state")).expect("it is there");
    for entry in state {
        let entry = entry.expect("an entry");
        if entry.file_type().expect("its type").is_dir() {
            continue;
        }
        let name = entry.file_name();
        let name = name.to_str().expect("a plain name");
        let expected = if name == "mine.txt" { 200 } else { 404 };
        let path = format!("/state/{name}");
        assert_eq!(server.get(&path).status, expected, "{path}");
    }
    assert_eq!(server.get("/state/mine.txt").text(), "mine");
    assert_eq!(server.get("/send.php?file=a.txt").text(), "a file");
    // What a reload adds is the server's from then on.
    server.site().write("later.yaml", &included());
    assert_eq!(server.get("/later.yaml").status, 200);
    let config = server.site().read("pronghorn.yaml");
    let config = config.replace("[more.yaml]", "[more.yaml, later.yaml]");
    server.site().replace("pronghorn.yaml", &config);
    server.signal(Signal::HUP);
    wait_for("the reload", || {
        (server.get("/later.yaml").status == 404).then_some(())
    });
    server.stop();
}

#[test]
fn a_configuration_is_never_sent_even_by_a_server_that_has_another() {
    let site = Site::new()
        .file("index.php", "<?php echo 'front';")
        .file("a.txt", "a file")
        .file("sub/pronghorn.yaml", SECRET)
        .file("sub/Pronghorn.YML", SECRET);
    let server = found(site, &[]);
    assert_eq!(server.get("/a.txt").text(), "a file");
    for path in ["/sub/pronghorn.yaml", "/sub/Pronghorn.YML"] {
        assert_eq!(server.get(path).status, 404, "{path}");
    }
    server.stop();
}

/// Serves what is found in the folder, or what the arguments name.
fn found(site: Site, arguments: &[&str]) -> Server {
    extension(); // or it would be served by something else
    let address = free_address().to_string();
    let mark = "server.env.PRONGHORN_TEST=${PRONGHORN_TEST}";
    let mut all = vec!["serve", "--listen", &address, "--workers", "1", "-o", mark];
    all.extend(arguments);
    Server::start_with(site, &all)
}

#[test]
fn nothing_uploaded_runs_however_wordpress_was_named() {
    for (root, arguments) in [
        ("wp", &["wp"][..]),
        ("wp", &["wp/index.php"]),
        ("wp", &["--root", "wp"]),
        (".", &[]),
        ("public", &[]),
        ("web", &[]),
    ] {
        let mut site = Site::new();
        for (file, text) in [
            ("index.php", "<?php echo 'front';"),
            ("wp-load.php", "<?php"),
            ("wp-content/uploads/a.txt", "a file"),
            ("wp-content/uploads/evil.php", RAN),
            ("wp-content/uploads/2026/evil.php", RAN),
        ] {
            site = site.file(&format!("{root}/{file}"), text);
        }
        let content = site.path(&format!("{root}/wp-content"));
        symlink("uploads", content.join("up")).expect("a link can be made");
        symlink("uploads/evil.php", content.join("up.php")).expect("a link can be made");
        let server = found(site, arguments);
        server.logged(&["found WordPress"]);
        assert_eq!(server.get("/").text(), "front");
        assert_eq!(server.get("/wp-content/up/a.txt").text(), "a file");
        for path in [
            "/wp-content/uploads/evil.php",
            "/wp-content/uploads/2026/evil.php",
            "/wp-content/up/evil.php",
            "/wp-content/up/2026/evil.php/x",
            "/wp-content/up.php",
        ] {
            let response = server.get(path);
            assert_eq!(
                response.status,
                404,
                "{arguments:?} {path}: {}",
                response.text()
            );
        }
        server.stop();
    }
}

#[test]
fn a_folder_without_scripts_is_that_by_each_of_its_paths() {
    let site = Site::new()
        .config(&format!(
            "version: '3'\nhttp:\n  address: 127.0.0.1:0\n  pool: {{mode: classic, php: 'php -d \
             extension={}', root: public, no_scripts: [up, out], symlinks: anywhere, num_workers: 1}}\n",
            extension().display()
        ))
        .file("public/index.php", "<?php echo 'front';")
        .file("public/files/evil.php", RAN)
        .file("data/evil.php", RAN)
        .file("data/a.txt", "a file");
    symlink("files", site.path("public/up")).expect("a link can be made");
    symlink("../data", site.path("public/out")).expect("a link can be made");
    symlink("../data", site.path("public/again")).expect("a link can be made");
    let server = Server::start(site);
    assert_eq!(server.get("/again/a.txt").text(), "a file");
    for path in [
        "/up/evil.php",
        "/files/evil.php",
        "/out/evil.php",
        "/again/evil.php",
    ] {
        let response = server.get(path);
        assert_eq!(response.status, 404, "{path}: {}", response.text());
    }
    server.stop();
}

#[test]
fn what_a_project_holds_beside_its_site_is_not_sent() {
    let kept = [
        "composer.json",
        "composer.lock",
        "auth.json",
        "vendor/composer/installed.json",
        "storage/logs/today.txt",
        "dump.sql",
        "dump.sql.gz",
        "data/app.sqlite",
        "tls/a.pem",
        "wp-config.bak",
        "wp-config.txt",
        "wp-content/debug.log",
        "a.swp",
        ".user.ini",
    ];
    let site = || {
        let mut site = Site::new()
            .file("index.php", "<?php echo 'front';")
            .file("a.css", "a file")
            .file("vendor/bootstrap/a.css", "a file")
            .file("vendor/phpunit/eval.php", RAN);
        for file in kept {
            site = site.file(file, SECRET);
        }
        site
    };
    let check = |server: &Server| {
        for path in ["/a.css", "/vendor/bootstrap/a.css"] {
            assert_eq!(server.get(path).text(), "a file", "{path}");
        }
        for path in kept.iter().chain(&["DUMP.SQL", "vendor/phpunit/eval.php"]) {
            let response = server.get(&format!("/{path}"));
            assert!(!response.text().contains(SECRET), "{path}");
            assert!(!response.text().contains("RAN"), "{path}");
            if *path != "DUMP.SQL" {
                assert_eq!(response.status, 404, "{path}");
            }
        }
    };
    let server = found(site(), &[]);
    check(&server);
    let site = server.into_site();
    Server::run(&site, &["init"]).assert_said(&["wrote "]);
    Server::run(&site, &["config", "show"]).assert_said(&[".sql", "composer.json", "vendor"]);
    let server = found(site, &[]);
    check(&server);
    assert_eq!(server.get("/pronghorn.yaml").status, 404);
    server.stop();
}

#[test]
fn laravels_link_to_its_storage_is_served_and_runs_nothing() {
    let site = Site::new()
        .file("artisan", "")
        .file("public/index.php", "<?php echo 'front';")
        .file("storage/app/public/a.txt", "a file")
        .file("storage/app/public/e.php", RAN)
        .file("storage/app/secret.txt", SECRET);
    symlink("../storage/app/public", site.path("public/storage")).expect("a link can be made");
    symlink("../storage/app", site.path("public/all")).expect("a link can be made");
    let check = |server: &Server| {
        assert_eq!(server.get("/").text(), "front");
        assert_eq!(server.get("/storage/a.txt").text(), "a file");
        for path in ["/storage/e.php", "/all/public/e.php", "/all/secret.txt"] {
            let response = server.get(path);
            assert_eq!(response.status, 404, "{path}: {}", response.text());
        }
    };
    let server = found(site, &[]);
    check(&server);
    let site = server.into_site();
    // All links are followed: what lies in that folder does not run for that.
    let server = found(site, &["-o", "http.pool.symlinks=anywhere"]);
    for path in ["/storage/e.php", "/all/public/e.php"] {
        let response = server.get(path);
        assert_eq!(response.status, 404, "{path}: {}", response.text());
    }
    let site = server.into_site();
    Server::run(&site, &["init"]).assert_said(&["wrote "]);
    let server = found(site, &[]);
    check(&server);
    server.stop();
}

#[test]
fn development_for_everybody_is_warned_of() {
    let site = || Site::new().file("index.php", "<?php echo 'front';");
    let server = found(site(), &["--dev"]);
    assert!(!server.log().contains("development mode shows"));
    server.stop();
    let port = free_address().port();
    let open = format!("0.0.0.0:{port}");
    let mark = "server.env.PRONGHORN_TEST=${PRONGHORN_TEST}";
    let server = Server::start_with(
        site(),
        &[
            "serve",
            "--dev",
            "--listen",
            &open,
            "--workers",
            "1",
            "-o",
            mark,
        ],
    );
    server.logged(&["WARN", "development mode shows errors", &open]);
    server.stop();
}
