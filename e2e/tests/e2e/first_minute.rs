//! `pronghorn serve` in a folder: what it finds, what it says, and that a page comes.

use std::fs::Permissions;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;
use std::time::Duration;

use pronghorn_testkit::{Connection, Server, Site, free_address, time, wait_for};

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
fn what_is_found_is_served_compressed() {
    let long = "<?php echo str_repeat('a', 5000);";
    for files in [
        &[("index.php", long), ("a.txt", &"b".repeat(5000))][..],
        &[("artisan", ""), ("public/index.php", long)],
        &[(
            "worker.php",
            &Site::sdk_worker("return str_repeat('a', 5000);"),
        )],
    ] {
        let mut site = Site::new();
        for (file, text) in files {
            site = site.file(file, text);
        }
        let (_, server) = page(site, &[]);
        let mut connection = server.connect();
        // The second one is the front controller's where there is no such file.
        for path in ["/", "/a.txt"] {
            connection.request("GET", path, "Accept-Encoding: gzip\r\n");
            let response = connection.response();
            assert_eq!(
                response.header("content-encoding"),
                Some("gzip"),
                "{files:?} {path}"
            );
        }
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
    let folder = server.site().folder().display().to_string();
    server.logged(&[&format!("found an empty folder, {folder};")]);
    server.stop();
}

/// As a pod of Kubernetes is told where its probes ask.
#[test]
fn health_is_served_beside_what_is_found() {
    let status = free_address().to_string();
    let key = format!("status.address={status}");
    let (page, server) = page(Site::new().file("index.php", FRONT), &["-o", &key]);
    assert!(page.starts_with("front "), "{page}");
    server.logged(&["found a PHP application, by `index.php`"]);
    let mut connection = Connection::open(status.parse().expect("an address"));
    assert_eq!(connection.get("/ready").status, 200);
    server.stop();
}

#[test]
fn two_applications_and_missing_packages_are_told() {
    let site = Site::new()
        .file("artisan", "")
        .file("public/index.php", FRONT)
        .file("wp-load.php", "")
        .file("composer.json", r#"{"require": {"slim/slim": "^4"}}"#);
    let (_, server) = page(site, &[]);
    server.logged(&["WARN", "signs of another application, too: `wp-load.php`"]);
    server.logged(&["WARN", "run `composer install` in"]);
    let site = server.into_site();
    Server::run(&site, &["init"]).assert_said(&[
        "for Laravel, by `artisan`",
        "not in it: the application of `wp-load.php`, in the same directory",
        "run `composer install` in",
    ]);
    let worker = Site::sdk_worker("return 'kept';");
    let site = Site::new()
        .file("artisan", "")
        .file("public/index.php", FRONT)
        .file("worker.php", &worker);
    let (_, server) = page(site, &[]);
    server.logged(&["another application, too: `worker.php`; `serve worker.php` chooses one"]);
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
    // Before there is a file, what would be served is checked.
    let check = |site: &Site| Server::run(site, &["check", "-o", "server.allow_root=true"]);
    let found = check(&site);
    assert_eq!(found.code, Some(0), "{}", found.stderr);
    assert!(
        found.stderr.contains("serves Laravel, found by `artisan`"),
        "{}",
        found.stderr
    );
    Server::run(&site, &["init"]).assert_said(&["wrote ", "for Laravel, by `artisan`"]);
    let written = site.read("pronghorn.yaml");
    check(&site).assert_said(&["pronghorn.yaml: no mistakes"]);
    let worker = Site::new().file("worker.php", &Site::sdk_worker("return 'kept';"));
    Server::run(&worker, &["init"]).assert_said(&["for a worker script"]);
    check(&worker).assert_said(&["pronghorn.yaml: no mistakes"]);
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
    let again = run("nobody");
    assert!(again.stderr.contains("is not replaced"), "{}", again.stderr);
    assert!(again.stderr.contains("`--name shop`"), "{}", again.stderr);
    // Folders of its own, and the state where root's commands look without the server.
    let folder = site.folder().display().to_string();
    let state = folder.trim_start_matches('/').replace('/', "+");
    let state = format!("\nStateDirectory=pronghorn/{state}\n");
    assert!(unit.contains("\nRuntimeDirectory=pronghorn\n") && unit.contains(&state));
    let named = |name| Server::run(&site, &["service", "print", "--name", name]);
    let other = named("shop").stdout;
    assert!(
        other.contains("\nRuntimeDirectory=pronghorn-shop\n"),
        "{other}"
    );
    assert!(other.contains(&state), "{other}");
    let broken = named("shop\nExecStartPre=/x");
    assert!(
        broken.stderr.contains("is no name for systemd"),
        "{}",
        broken.stderr
    );
    let package = ["service", "print", "-c", "/etc/pronghorn/pronghorn.yaml"];
    let package = Server::run(&site, &package).stdout;
    assert!(
        package.contains("\nStateDirectory=pronghorn\n"),
        "{package}"
    );
}

/// The certificate of the local authority is the only one that this client trusts.
fn over_tls(address: &str, authority: &std::path::Path) -> String {
    let output = Command::new("curl")
        .args(["-sS", "--cacert"])
        .arg(authority)
        .arg(format!("https://{address}/"))
        .output()
        .expect("curl is there");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn https_is_served_by_a_local_authority_that_is_made_once() {
    let state = |server: &Server| server.site().path("state/tls");
    let mark = "server.env.PRONGHORN_TEST=${PRONGHORN_TEST}";
    let address = free_address().to_string();
    let arguments = [
        "serve",
        "--tls",
        "--listen",
        &address,
        "--workers",
        "1",
        "-o",
        "state_dir=state",
        "-o",
        mark,
    ];
    extension();
    let site = Site::new().file("index.php", FRONT).file("store/.keep", "");
    let server = Server::start_with(site, &arguments);
    let authority = state(&server).join("authority.crt");
    assert!(over_tls(&address, &authority).starts_with("front "));
    let made = std::fs::read(&authority).expect("it is there");
    let site = server.into_site();
    let server = Server::start_with(site, &arguments);
    assert!(over_tls(&address, &authority).starts_with("front "));
    assert_eq!(std::fs::read(&authority).expect("it is there"), made);

    let trust = |more: &[&str]| {
        Server::run_beside(
            server.site(),
            &[&["trust", "--into", "store", "-o", "state_dir=state"], more].concat(),
        )
    };
    let kept = || {
        std::fs::read_dir(server.site().path("store"))
            .expect("a folder")
            .count()
            - 1
    };
    trust(&[]).assert_said(&["is trusted: ", "certutil"]);
    assert_eq!(kept(), 1);
    trust(&["--remove"]).assert_said(&["is not trusted any more"]);
    assert_eq!(kept(), 0);
    trust(&["--remove"]).assert_said(&["was not trusted"]);
    let nowhere = Server::run_beside(
        server.site(),
        &["trust", "--into", "/proc", "-o", "state_dir=state"],
    );
    nowhere.assert_refused(&[
        "`/proc` can't be written",
        "hint: type `sudo install -m 644 ",
    ]);
    server.stop();
}

#[test]
fn what_another_server_refused_is_refused_in_the_configuration_made_of_its_own() {
    const FILES: [&str; 4] = [
        "wp-content/uploads/2026/evil.php",
        "vendor/a.php",
        "secret/a.php",
        "xmlrpc.php",
    ];
    extension(); // or it would be served by something else
    let mut site = Site::new()
        .file("public/index.php", FRONT)
        .file("public/vendor/a.txt", "text");
    for file in FILES {
        site = site.file(&format!("public/{file}"), "<?php echo 'evil';");
    }
    let root = site.path("public").display().to_string();
    site.write(
        "shop.conf",
        &format!(
            "server {{\n listen 80;\n root {root};\n location / {{ try_files $uri /index.php; }}\n\
             location ~ \\.php$ {{ fastcgi_pass a; }}\n location ^~ /vendor/ {{ return 403; }}\n\
             location = /xmlrpc.php {{ deny all; }}\n location /secret {{ auth_basic x; }}\n\
             location ~* /(?:uploads|files)/.*\\.php$ {{ deny all; }}\n}}\n"
        ),
    );
    let made = Server::run(&site, &["init", "--from", "shop.conf"]);
    made.assert_said_with(3, &["wrote ", "auth_basic x"]);
    let address = free_address().to_string();
    let mark = "server.env.PRONGHORN_TEST=${PRONGHORN_TEST}";
    let server = Server::start_with(site, &["serve", "--listen", &address, "-o", mark]);
    assert!(server.get("/any").text().starts_with("front"));
    for path in FILES.into_iter().chain([
        "vendor/a.txt",
        "secret",
        "secret/x",
        "%76endor/a.txt",
        "a/../secret/a.php",
    ]) {
        let reply = server.get(&format!("/{path}"));
        // What has no counterpart is not there.
        let expected = if path.contains("secret") { 404 } else { 403 };
        assert_eq!(reply.status, expected, "{path}: {}", reply.text());
    }
    server.stop();
}

#[test]
fn a_configuration_is_made_of_that_of_another_server() {
    let site = Site::new()
        .file(
            "shop.conf",
            "server {\n  listen 8081;\n  root /srv/shop/public;\n  auth_basic hello;\n  location / { try_files $uri /index.php; }\n}\n",
        )
        .file("www.conf", "[www]\npm = static\npm.max_children = 7\n");
    let made = Server::run(
        &site,
        &["init", "--from", "shop.conf", "--from", "www.conf"],
    );
    made.assert_said_with(
        3,
        &[
            "wrote ",
            "from nginx and php-fpm",
            "warning: not in it: shop.conf:4: `auth_basic hello`",
            "warning: the site without a name: nothing of it is answered",
            "read the warnings in pronghorn.yaml before you serve it: exit code 3",
        ],
    );
    let text = site.read("pronghorn.yaml");
    for part in [
        "# - shop.conf:4: `auth_basic hello`",
        "refuse: 404",
        "address: \":8081\"",
        "root: /srv/shop/public",
        "num_workers: 7",
    ] {
        assert!(text.contains(part), "{part} in\n{text}");
    }
    let again = Server::run(&site, &["init", "--from", "shop.conf"]);
    assert!(again.stderr.contains("is not replaced"), "{}", again.stderr);
    let site = Site::new().file("a.conf", "server {");
    let broken = Server::run(&site, &["init", "--from", "a.conf"]);
    assert!(
        broken.stderr.contains("`a.conf`, line 1: a `}` is missing"),
        "{}",
        broken.stderr
    );
    assert!(!site.path("pronghorn.yaml").exists());
}

#[test]
fn a_machine_without_php_is_told_what_an_application_needs() {
    let site = Site::new().file("index.php", FRONT).file("bin/.keep", "");
    let empty = site.path("bin").display().to_string();
    let address = free_address().to_string();
    let ended = Server::run_with_path(&site, &["serve", "--listen", &address], &empty);
    ended.assert_refused(&[
        "`php`",
        "hint: PHP is not installed, or not in PATH: `apt install php-cli`",
    ]);
}

#[test]
fn a_folder_that_may_not_be_written_comes_with_what_to_type() {
    let site = Site::new()
        .file("index.php", FRONT)
        .file("theirs/.keep", "")
        .file("pronghorn.yaml", "version: '3'\n");
    std::fs::set_permissions(site.path("theirs"), Permissions::from_mode(0o555))
        .expect("it is ours");
    let theirs = site.path("theirs").display().to_string();
    let unit = ["service", "install", "--user", "nobody", "--into", "theirs"];
    Server::run_without_rights(&site, &unit).assert_refused(&[
        "pronghorn.service` can't be written: Permission denied",
        "hint: `sudo pronghorn service install`",
    ]);
    site.write("shop.conf", "root /srv;");
    let init = ["init", "-w", "theirs", "--from", "shop.conf"];
    Server::run_without_rights(&site, &init).assert_refused(&[
        &format!("`pronghorn.yaml` can't be written in {theirs}: Permission denied"),
        "hint: `namei -l ",
    ]);
    let state = format!("state_dir={theirs}");
    let address = free_address().to_string();
    let tls = [
        "serve",
        "--tls",
        "-c",
        "pronghorn.yaml",
        "--listen",
        &address,
        "-o",
        &state,
    ];
    Server::run_without_rights(&site, &tls).assert_refused(&[
        &format!("the local authority can't be written: `{theirs}/tls`: Permission denied"),
        "hint: name another folder by `-o state_dir=DIR`",
    ]);
}

/// A small filesystem, gone with its owner.
pub(crate) struct Disk(std::path::PathBuf);

impl Disk {
    /// None for users who may not mount one.
    pub(crate) fn mounted(at: std::path::PathBuf) -> Option<Self> {
        Self::sized(at, "4k")
    }

    pub(crate) fn sized(at: std::path::PathBuf, size: &str) -> Option<Self> {
        std::fs::create_dir_all(&at).expect("the site is ours");
        let mounted = Command::new("mount")
            .args([
                "-t",
                "tmpfs",
                "-o",
                &format!("size={size},mode=0755"),
                "tmpfs",
            ])
            .arg(&at)
            .output()
            .expect("mount is there");
        mounted.status.success().then_some(Self(at))
    }

    pub(crate) fn fill(&self) {
        std::fs::write(self.0.join("filler"), vec![0; 4096]).expect("it has this much room");
    }

    pub(crate) fn make_read_only(&self) {
        let remounted = Command::new("mount")
            .args(["-o", "remount,ro"])
            .arg(&self.0)
            .status();
        assert!(remounted.expect("mount is there").success());
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        _ = Command::new("umount").arg(&self.0).status(); // the folder would stay
    }
}

#[test]
fn a_full_disk_and_one_that_is_read_only_are_told_as_that() {
    let site = Site::new().file("shop.conf", "root /srv;");
    let Some(disk) = Disk::mounted(site.path("disk")) else {
        return;
    };
    let shown = site.path("disk").display().to_string();
    disk.fill();
    let init = || Server::run(&site, &["init", "-w", "disk", "--from", "shop.conf"]);
    init().assert_refused(&[
        &format!("`pronghorn.yaml` can't be written in {shown}: No space left on device"),
        &format!("hint: `df -h {shown}` shows the disk"),
    ]);
    assert!(
        !disk.0.join("pronghorn.yaml").exists(),
        "half a file is none"
    );
    site.write("pronghorn.yaml", "version: '3'\n");
    let unit = ["service", "install", "--user", "nobody", "--into", "disk"];
    for _ in 0..2 {
        Server::run(&site, &unit).assert_refused(&[
            "disk/pronghorn.service` can't be written: No space left on device",
            "hint: `df -h disk` shows the disk",
        ]);
    }
    disk.make_read_only();
    Server::run(&site, &unit).assert_refused(&[
        "disk/pronghorn.service` can't be written: Read-only file system",
        "hint: `findmnt -T disk` shows the mount",
    ]);
    init().assert_refused(&[
        &format!("`pronghorn.yaml` can't be written in {shown}: Read-only file system"),
        &format!("hint: `findmnt -T {shown}` shows the mount"),
    ]);
    let state = format!("state_dir={shown}");
    let address = free_address().to_string();
    let tls = [
        "serve", "--tls", "--root", ".", "--listen", &address, "-o", &state,
    ];
    Server::run(&site, &tls).assert_refused(&[
        "the local authority can't be written",
        "Read-only file system",
        "hint: name another folder by `-o state_dir=DIR`",
    ]);
}

/// Whoever has made room is not to find what was begun without it.
#[test]
fn nothing_that_was_begun_on_a_full_disk_stays() {
    let site = Site::new();
    let Some(disk) = Disk::sized(site.path("disk"), "8k") else {
        return;
    };
    // A directory takes none of it.
    disk.fill();
    let left = |folder: &str| {
        let names = std::fs::read_dir(site.path(folder)).into_iter().flatten();
        let names = names.map(|it| it.expect("it is ours").file_name());
        names.collect::<Vec<_>>()
    };
    // There is room for one of two units.
    site.write("pronghorn.yaml", "version: '3'\n");
    let unit = [
        "service", "install", "--user", "nobody", "--into", "disk", "--socket", "[::]:80",
    ];
    Server::run(&site, &unit)
        .assert_refused(&["disk/pronghorn.socket` can't be written: No space left on device"]);
    assert_eq!(left("disk"), ["filler"]);
    std::fs::write(site.path("disk/more"), vec![0; 4096]).expect("there is room for this one");
    let address = free_address().to_string();
    let tls = [
        "serve",
        "--tls",
        "--root",
        ".",
        "--listen",
        &address,
        "-o",
        "state_dir=disk/ours",
    ];
    Server::run(&site, &tls).assert_refused(&[
        "the local authority can't be written",
        "No space left on device",
    ]);
    assert_eq!(left("disk/ours/tls"), [""; 0]);
    let jobs = "version: '3'\nserver: {command: 'php -r 0;'}\n\
                jobs: {pipelines: {a: {driver: memory}}, pool: {num_workers: 1}}\n";
    site.write("jobs.yaml", jobs);
    let serve = [
        "serve",
        "-c",
        "jobs.yaml",
        "-o",
        "state_dir=disk/.pronghorn",
    ];
    let ended = Server::run(&site, &serve);
    assert_ne!(ended.code, Some(0), "{}", ended.stderr);
    let left = left("disk/.pronghorn");
    let names = [".gitignore", "store.new"];
    assert!(
        !names.iter().any(|name| left.contains(&name.into())),
        "{left:?}\n{}",
        ended.stderr
    );
}

/// With the worker of `examples/hello`. The tests' own binary is not optimized: the promise of
/// 150 ms is for the release binary, which `PRONGHORN_BIN` names. Any other has two seconds.
#[test]
fn the_first_reply_comes_at_once_after_a_cold_start() {
    let limit = match std::env::var_os("PRONGHORN_BIN") {
        Some(binary) if binary.to_string_lossy().contains("release") => Duration::from_millis(150),
        _ => Duration::from_secs(2),
    };
    extension();
    let address = free_address();
    let worker = Site::example("hello").with_file_name("worker.php");
    let worker = worker.display().to_string();
    let fastest = (0..3).map(|_| {
        let listen = address.to_string();
        let arguments = ["serve", &worker, "--listen", &listen, "--workers", "2"];
        let site = Site::new();
        let mut command = Command::new(pronghorn_testkit::binary());
        command
            .args(arguments)
            .current_dir(site.folder())
            .env("PWD", site.folder())
            .env("XDG_RUNTIME_DIR", site.folder())
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null());
        let (mut server, took) = time(|| {
            let server = command.spawn().expect("the binary is there");
            wait_for("the first reply", || {
                let mut client = std::net::TcpStream::connect(address).ok()?;
                client.write_all(b"GET / HTTP/1.0\r\n\r\n").ok()?;
                let mut reply = String::new();
                client.read_to_string(&mut reply).ok()?;
                reply.contains(" 200 ").then_some(())
            });
            server
        });
        let stopped = Server::run_beside(&site, &["stop"]);
        assert_eq!(stopped.code, Some(0), "{}", stopped.stderr);
        server.wait().expect("it ends");
        took
    });
    let fastest = fastest.min().expect("three starts");
    println!("from the start to the first reply: {fastest:?}");
    assert!(fastest <= limit, "{fastest:?}");
}
