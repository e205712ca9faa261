//! `pronghorn serve` in a folder: what it finds, what it says, and that a page comes.

use std::net::TcpListener;
use std::process::Command;
use std::time::Duration;

use pronghorn_testkit::{Server, Site, free_address, time, wait_for};

use crate::ring::extension;

/// What issue and guide promise for a folder with an application.
const SOON: Duration = Duration::from_secs(10);

/// Serves the folder as it is, on a free port; the page at `/`.
fn page(site: Site, arguments: &[&str]) -> (String, Server) {
    extension(); // or it would be served by something else
    let address = free_address().to_string();
    // The server's own variables reach no script; the tests look for its processes by this one.
    let mark = "server.env.PRONGHORN_TEST=${PRONGHORN_TEST}";
    let mut all = vec!["serve", "--listen", &address, "--workers", "1", "-o", mark];
    all.extend(arguments);
    let ((text, server), took) = time(|| {
        let server = Server::start_with(site, &all);
        (server.get("/").text(), server)
    });
    assert!(took < SOON, "the page took {took:?}");
    (text, server)
}

/// A script that says who it is, for an application that was taken apart.
const FRONT: &str = "<?php echo 'front ', PHP_SAPI, ' ', $_SERVER['REQUEST_URI'];";

#[test]
fn what_a_folder_shows_is_served() {
    let index = ("public/index.php", FRONT);
    for (files, name) in [
        (&[("artisan", ""), index][..], "found Laravel, by `artisan`"),
        (
            &[("bin/console", ""), index],
            "found Symfony, by `bin/console`",
        ),
        (
            &[("wp-load.php", ""), ("index.php", FRONT)],
            "found WordPress, by `wp-load.php`",
        ),
        (
            &[
                ("composer.json", r#"{"require": {"slim/slim": "^4"}}"#),
                index,
            ],
            "found Slim",
        ),
        (&[index], "found a PHP application, by `public/index.php`"),
        (
            &[("index.php", FRONT)],
            "found a PHP application, by `index.php`",
        ),
    ] {
        let mut site = Site::new();
        for (file, text) in files {
            site = site.file(file, text);
        }
        let (page, server) = page(site, &[]);
        assert!(
            page.starts_with("front ") && page.ends_with(" /"),
            "{name}: {page}"
        );
        server.logged(&["no configuration: ", name]);
        assert_eq!(server.stdout(), "", "records are all that is printed");
        server.stop();
    }
}

#[test]
fn a_worker_script_is_found_and_kept() {
    let site = Site::new()
        .file(
            "worker.php",
            &Site::sdk_worker("static $n = 0; return (string) ++$n;"),
        )
        .file("index.php", FRONT);
    let (page, server) = page(site, &[]);
    assert_eq!((page.as_str(), server.get("/").text().as_str()), ("1", "2"));
    server.logged(&["found a worker script, by `worker.php`"]);
    server.stop();
    // What another program calls its worker is none.
    let site = Site::new()
        .file("worker.php", "<?php sleep(9);")
        .file("index.php", FRONT);
    let (text, server) = self::page(site, &[]);
    assert!(text.starts_with("front "), "{text}");
    server.stop();
}

#[test]
fn frameworks_of_debian_answer_by_shared_memory() {
    for (app, sign, expected) in [
        ("laravel", "artisan", "Laravel"),
        ("symfony", "bin/console", "Symfony"),
    ] {
        let site = Site::new().file(sign, "").file(
            "public/index.php",
            &format!(
                "<?php require '{}';",
                Site::app(&format!("{app}/public/index.php")).display()
            ),
        );
        let (page, server) = page(site, &[]);
        assert!(!page.is_empty() && !page.contains("rror"), "{app}: {page}");
        server.logged(&["found ", expected]);
        server.stop();
    }
}

/// Laid out as Composer does, with packages of this repository.
#[test]
fn frameworks_with_a_package_of_ours_are_kept() {
    let package = |name: &str| {
        Site::app(&format!("../../php/{name}"))
            .display()
            .to_string()
    };
    let require = |file: &str| format!("<?php return require '{file}';");
    let laravel = Site::app("laravel").display().to_string();
    let site = Site::new()
        .file("artisan", "")
        .file("public/index.php", FRONT)
        .file("public/a.txt", "a file")
        .file("vendor/pronghorn/laravel/composer.json", "{}")
        .file(
            "vendor/autoload.php",
            &require(&format!("{}/autoload.php", package("laravel"))),
        )
        .file(
            "vendor/bin/pronghorn-laravel",
            &format!(
                "<?php $_composer_autoload_path = __DIR__ . '/../autoload.php'; include '{}/bin/pronghorn-laravel';",
                package("laravel")
            ),
        )
        .file(
            "bootstrap/app.php",
            &format!(
                "<?php putenv('PRONGHORN_APPS_DATA=' . __DIR__ . '/../data'); return require '{laravel}/bootstrap.php';"
            ),
        );
    let (_, server) = page(site, &[]);
    assert_eq!(server.get("/api/hello/you").text(), r#"{"hello":"you"}"#);
    assert_eq!(server.get("/a.txt").text(), "a file");
    server.logged(&["found Laravel, by `vendor/pronghorn/laravel`"]);
    server.stop();

    let site = Site::new()
        .file("bin/console", "")
        .file(
            "public/index.php",
            &format!(
                "<?php $_SERVER['DATA'] = __DIR__ . '/../data'; require '{}';",
                Site::fixture("symfony.php").display()
            ),
        )
        .file("vendor/pronghorn/symfony-runtime/composer.json", "{}");
    let (text, server) = page(site, &[]);
    assert_eq!(text, "1 calls, 1 goods");
    assert_eq!(server.get("/").text(), "2 calls, 1 goods");
    server.logged(&["found Symfony, by `vendor/pronghorn/symfony-runtime`"]);
    server.stop();
}

#[test]
fn files_uploaded_to_wordpress_do_not_run() {
    let site = Site::new()
        .file("wp-config.php", "<?php")
        .file("index.php", FRONT)
        .file("wp-content/uploads/evil.php", "<?php echo 'ran';")
        .file("wp-content/uploads/a.txt", "text");
    let (_, server) = page(site, &[]);
    assert_eq!(server.get("/wp-content/uploads/a.txt").text(), "text");
    assert!(
        !server
            .get("/wp-content/uploads/evil.php")
            .text()
            .contains("ran")
    );
    server.stop();
}

#[test]
fn a_script_and_a_folder_are_served_as_meant() {
    for (arguments, begins) in [
        (&["index.php"][..], "front "),
        (&["public"], "public "),
        (&["other"], "front "),
        (&["kept/index.php"], "kept"),
        (&["--mode", "fastcgi"], "public "),
    ] {
        let site = Site::new()
            .file("index.php", FRONT)
            .file("public/index.php", "<?php echo 'public ', PHP_SAPI;")
            .file("other/public/index.php", FRONT)
            .file("kept/index.php", &Site::sdk_worker("return 'kept';"));
        let (page, server) = page(site, arguments);
        assert!(page.starts_with(begins), "{arguments:?}: {page}");
        assert_eq!(
            page.ends_with("cgi-fcgi"),
            arguments.contains(&"fastcgi"),
            "{page}"
        );
        server.stop();
    }
}

#[test]
fn an_empty_folder_gets_a_page_that_says_what_was_looked_for() {
    let (page, server) = page(Site::new(), &[]);
    for part in [
        "<h1>Pronghorn serves</h1>",
        "artisan",
        "pronghorn.yaml",
        "index.php",
    ] {
        assert!(page.contains(part), "{part} in {page}");
    }
    assert_eq!(server.get("/other").status, 404);
    server.stop();
}

#[test]
fn two_applications_and_missing_packages_are_told() {
    let site = Site::new()
        .file("artisan", "")
        .file("public/index.php", FRONT)
        .file("wp-load.php", "")
        .file("composer.json", "{}")
        .file("composer.lock", "{}");
    let (_, server) = page(site, &[]);
    server.logged(&["WARN", "signs of another application, too: `wp-load.php`"]);
    server.logged(&["WARN", "run `composer install` in"]);
    server.stop();
}

#[test]
fn a_folder_with_a_configuration_is_pointed_to() {
    let site = Site::new().file("app/pronghorn.yaml", "version: '3'\n");
    let ended = Server::run(&site, &["serve", "app"]);
    assert_eq!(ended.code, Some(2));
    assert!(
        ended
            .stderr
            .contains("hint: `pronghorn serve -w app -c app/pronghorn.yaml`"),
        "{}",
        ended.stderr
    );
}

#[test]
fn in_development_a_taken_port_moves_on() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = taken.local_addr().expect("it is bound").to_string();
    let site = Site::new().file("index.php", FRONT);
    let refused = Server::run(&site, &["serve", "--listen", &address]);
    assert_eq!(refused.code, Some(1), "{}", refused.stderr);
    let mark = "server.env.PRONGHORN_TEST=${PRONGHORN_TEST}";
    let arguments = [
        "serve",
        "--dev",
        "--listen",
        &address,
        "--workers",
        "1",
        "-o",
        mark,
    ];
    let server = Server::start_with(site, &arguments);
    server.logged(&["is taken, so `127.0.0.1:", "is served"]);
    assert!(server.get("/").text().starts_with("front "));
    assert_ne!(server.address().to_string(), address);
    server.stop();
}

/// `script` of util-linux gives a command a terminal.
#[test]
fn a_person_at_a_terminal_reads_a_few_lines() {
    let site = Site::new()
        .file("artisan", "")
        .file("public/index.php", FRONT);
    let address = free_address();
    let binary = pronghorn_testkit::binary();
    let line = format!(
        "{} serve --listen {address} --workers 1 2>/dev/null",
        binary.display()
    );
    let mut script = Command::new("script");
    script
        .args(["-qefc", &line, "typescript"])
        .current_dir(site.folder());
    script
        .stdin(std::process::Stdio::null())
        .stdout(std::process::Stdio::null());
    let mut script = script
        .env("TMPDIR", site.folder())
        .env("XDG_RUNTIME_DIR", site.folder())
        .env("PWD", site.folder())
        .spawn()
        .expect("script is there");
    let said = wait_for("the greeting", || {
        let said = std::fs::read_to_string(site.path("typescript")).ok()?;
        said.contains("  php ").then_some(said)
    });
    // A signal to `script` would close the terminal, which is a reload for the server.
    let stopped = Server::run_beside(&site, &["stop"]);
    assert_eq!(stopped.code, Some(0), "{}", stopped.stderr);
    script.wait().expect("it ends");
    let lines: Vec<&str> = said
        .lines()
        .filter(|line| !line.starts_with("Script "))
        .collect();
    assert!(lines.len() <= 8, "{said}");
    for part in [
        &format!("serves http://{address} (1 worker of `php"),
        "Ctrl-C stops it",
        "  found    Laravel, by `artisan`",
        "  runs     scripts and files below",
        "  php      8.",
    ] {
        assert!(said.contains(part), "{part} in\n{said}");
    }
}

#[test]
fn a_first_configuration_and_a_unit_are_written_and_replace_nothing() {
    let site = Site::new()
        .file("artisan", "")
        .file("public/index.php", FRONT)
        .file("units/.keep", "");
    Server::run(&site, &["init"]).assert_said(&["wrote ", "for Laravel, by `artisan`"]);
    let written = site.read("pronghorn.yaml");
    Server::run(&site, &["check"]).assert_said(&["pronghorn.yaml"]);
    let again = Server::run(&site, &["init"]);
    assert_eq!(
        (again.code, site.read("pronghorn.yaml")),
        (Some(2), written)
    );
    assert!(again.stderr.contains("is not replaced"), "{}", again.stderr);
    let nothing = Server::run(&Site::new(), &["init"]);
    assert!(
        nothing.stderr.contains("there is no application in"),
        "{}",
        nothing.stderr
    );

    let install = ["service", "install", "--into", "units", "--user"];
    let run = |user: &str| Server::run(&site, &[&install[..], &[user]].concat());
    let stranger = run("nobody-of-this-name");
    assert!(
        stranger.stderr.contains("hint: `useradd --system"),
        "{}",
        stranger.stderr
    );
    run("nobody").assert_said(&["systemctl enable --now pronghorn"]);
    let unit = site.read("units/pronghorn.service");
    let configuration = site.path("pronghorn.yaml").display().to_string();
    for part in [
        "Type=notify",
        "User=nobody",
        &format!(" serve -c {configuration}\n"),
    ] {
        assert!(unit.contains(part), "{part} in\n{unit}");
    }
    assert!(run("nobody").stderr.contains("is not replaced"));
}
