//! What must not happen to who serves scripts: each way to run them, the same attempts.

use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

use pronghorn_testkit::{Connection, Response, Server, Site};

use crate::ring::extension;

const SECRET: &str = "a secret below no root";
/// Shows that it ran, and with what.
const SCRIPT: &str = "<?php echo 'ran ', basename($_SERVER['SCRIPT_FILENAME']), ' ', getenv('HTTP_PROXY') ?: 'no proxy', ' ', ini_get('auto_prepend_file');";

/// Servers of the same site in each mode that runs PHP scripts.
fn of_scripts(check: impl Fn(&Server)) {
    of_scripts_with("", check);
}

fn of_scripts_with(more: &str, check: impl Fn(&Server)) {
    let classic = format!(
        "mode: classic, php: 'php -d extension={}'",
        extension().display()
    );
    for mode in [classic.as_str(), "mode: fastcgi"] {
        let site = Site::new()
            .config(&format!(
                "version: '3'\nhttp:\n  address: 127.0.0.1:0\n  pool: {{{mode}, root: public, fallback: none, num_workers: 1, no_scripts: [data, sub/files]{more}}}\n"
            ))
            .file("secret.php", &format!("<?php echo '{SECRET}';"))
            .file("outside/secret.txt", SECRET);
        for script in [
            "index.php",
            "sub/index.php",
            "uploads/shell.jpg",
            "uploads/shell.php.jpg",
            "uploads/index.html",
            "Upper.PHP",
            "kelvin.php",
            "old.php~",
            "config.php_old",
            "config.php copy",
            "config.php,v",
            "#config.php#",
            "a.phtml.bak",
            "a.inc.bak",
            ".git/hook.php",
            ".hidden.php",
            ".user.ini",
            ".htaccess",
            ".well-known/known.php",
            "sub/.env",
            "data/index.php",
            "data/shell.php",
            "data/picture.jpg",
            "data/2026/a.php/b.php",
            "sub/files/shell.php",
            "database/index.php",
        ] {
            site.write(&format!("public/{script}"), SCRIPT);
        }
        symlink("../secret.php", site.path("public/out.php")).expect("a link can be made");
        symlink("../outside", site.path("public/out")).expect("a link can be made");
        symlink("sub/index.php", site.path("public/inside.php")).expect("a link can be made");
        symlink("sub", site.path("public/linked")).expect("a link can be made");
        symlink("uploads/shell.jpg", site.path("public/inside.jpg")).expect("a link can be made");
        let server = Server::start(site);
        check(&server);
        server.stop();
    }
}

/// Neither what is not to be run was run, nor what is not to be sent was sent.
fn is_harmless(path: &str, response: &Response) {
    let text = response.text();
    for leak in ["ran ", "<?php", SECRET] {
        assert!(!text.contains(leak), "{path}: {} {text}", response.status);
    }
}

#[test]
fn no_spelling_of_a_path_leaves_the_root() {
    of_scripts(|server| {
        for (path, statuses) in [
            ("/../secret.php", &[403][..]),
            ("/sub/../../secret.php", &[403]),
            ("/%2e%2e/secret.php", &[403]),
            ("/.%2e/secret.php", &[403]),
            ("/..%2fsecret.php", &[403]),
            ("/..%5csecret.php", &[403]),
            ("/..\\secret.php", &[403]),
            ("/sub%2f..%2f..%2fsecret.php", &[403]),
            ("/sub%5C..%2f../secret.php", &[403]),
            ("/%2fsecret.php", &[404]),
            ("/%2f%2e%2e%5csecret.php", &[403]),
            ("/%252e%252e/secret.php", &[404]),
            ("/%c0%ae%c0%ae/secret.php", &[404]),
            ("/sub%2findex.php", &[404]),
            ("/sub%5Cindex.php", &[404]),
            ("/sub\\index.php", &[404]),
            ("/sub%2f", &[404]),
            ("/index.php%2f", &[404]),
            ("/index.php%2fx", &[404]),
            ("/uploads%2fshell.jpg", &[404]),
            ("/%2euploads%2f../index.php", &[403]),
            ("/.git%2fhook.php", &[404]),
            ("/index.php/..%2f..%2fsecret.php", &[403]),
            ("/index.php/%00%2f", &[400]),
            ("/index.php%00.txt", &[400]),
            ("/index.php%00", &[400]),
            ("/sub/%00/index.php", &[400]),
            ("/out.php", &[404]),
            ("/out/secret.txt", &[404]),
            ("//etc/passwd", &[404]),
            ("/index.php::$DATA", &[404]),
        ] {
            let response = server.get(path);
            assert!(
                statuses.contains(&response.status),
                "{path}: {}",
                response.status
            );
            is_harmless(path, &response);
        }
        assert_eq!(
            server.get("/inside.php").text(),
            "ran inside.php no proxy ",
            "a link within the root"
        );
    });
}

#[test]
fn only_what_is_called_a_script_runs_and_no_script_is_sent() {
    of_scripts(|server| {
        for path in [
            "/uploads/shell.jpg/x.php",
            "/uploads/shell.jpg/.php",
            "/uploads/shell.php.jpg/x.php",
            "/uploads/shell.php.jpg",
            "/uploads/shell.jpg%20.php",
            "/uploads/shell.jpg;.php",
            "/index.PHP",
            "/INDEX.php",
            "/Upper.php",
            "/index.php%20",
            "/index.php.",
            "/index.php%0a",
            "/index.p%68p%09",
            // The sign for Kelvin is a `k` without its case, a long s an `s`, a wide p a `p` in
            // another form.
            "/%e2%84%aaelvin.php",
            "/index.%ef%bd%90hp",
            "/%c5%bfub/index.php",
            "/old.php~",
            "/config.php_old",
            "/config.php%20copy",
            "/config.php,v",
            "/%23config.php%23",
            "/a.phtml.bak",
            "/a.%69nc.bak",
            "/.git/hook.php",
            "/.hidden.php",
            "/.git/",
            "/.user.ini",
            "/.htaccess",
            "/sub/.env",
            "/%2egit/hook.php",
        ] {
            let response = server.get(path);
            assert_eq!(response.status, 404, "{path}");
            is_harmless(path, &response);
        }
        // A file, which is sent as it is.
        let picture = server.get("/uploads/shell.jpg");
        let kind = picture.header("content-type");
        assert_eq!((picture.status, kind), (200, Some("image/jpeg")));
        assert_eq!(picture.text(), SCRIPT);
        for (path, ran) in [
            ("/index.php", "index.php"),
            ("/%69ndex.ph%70", "index.php"),
            ("/.well-known/known.php", "known.php"),
            ("/sub/", "index.php"),
        ] {
            assert_eq!(
                server.get(path).text(),
                format!("ran {ran} no proxy "),
                "{path}"
            );
        }
    });
}

#[test]
fn links_are_followed_as_far_as_is_written() {
    // Within the root, and out of it; scripts, folders, files.
    let inside = [
        "/inside.php",
        "/linked/index.php",
        "/linked/",
        "/inside.jpg",
    ];
    let outside = ["/out.php", "/out/secret.txt"];
    for (symlinks, followed) in [
        ("never", &[][..]),
        ("inside", &inside[..]),
        ("anywhere", &[inside.as_slice(), &outside].concat()),
    ] {
        of_scripts_with(&format!(", symlinks: {symlinks}"), |server| {
            for path in inside.iter().chain(&outside) {
                let response = server.get(path);
                let expected = if followed.contains(path) { 200 } else { 404 };
                assert_eq!(response.status, expected, "{symlinks}: {path}");
                if expected == 404 {
                    is_harmless(path, &response);
                }
            }
            assert_eq!(server.get("/sub/").status, 200);
        });
    }
}

#[test]
fn nothing_runs_in_a_folder_for_uploads() {
    of_scripts(|server| {
        for path in [
            "/data/shell.php",
            "/data/shell.php/x",
            "/data/shell.php/picture.jpg",
            "//data/.//shell%2ephp",
            "/%64ata/shell.php",
            "/data/index.php",
            "/data/",
            "/data",
            "/data/picture.jpg/x.php",
            "/data/2026/a.php/b.php",
            "/sub/files/shell.php",
        ] {
            let response = server.get(path);
            assert_eq!(response.status, 404, "{path}");
            is_harmless(path, &response);
        }
        for (path, statuses) in [
            ("/sub/../data/shell.php", 403),
            ("/data%2fshell.php", 404),
            ("/data/shell.php%2f", 404),
            ("/data%5cshell.php", 404),
        ] {
            let response = server.get(path);
            assert_eq!(response.status, statuses, "{path}");
            is_harmless(path, &response);
        }
        let picture = server.get("/data/picture.jpg");
        assert_eq!((picture.status, picture.text()), (200, SCRIPT.to_owned()));
        for path in [
            "/database/index.php",
            "/sub/index.php",
            "/index.php/data/shell.php",
        ] {
            assert!(
                server.get(path).text().starts_with("ran index.php"),
                "{path}"
            );
        }
    });
}

#[test]
fn fields_of_a_request_name_no_proxy_and_no_script() {
    of_scripts(|server| {
        let mut client = server.connect();
        let fields = "Proxy: http://evil.example/\r\nScript-Filename: /etc/passwd\r\nDocument-Root: /\r\nPhp-Value: auto_prepend_file=/etc/passwd\r\n\
                      Php-Admin-Value: auto_prepend_file=/etc/passwd\r\nContent-Type: text/plain\r\n";
        client.request("GET", "/index.php", fields);
        assert_eq!(client.response().text(), "ran index.php no proxy ");
    });
}

/// A folder of programs behind `/cgi-bin`.
fn of_programs() -> Server {
    let site = Site::new()
        .config(
            "version: '3'\nhttp:\n  address: 127.0.0.1:0\n  pools: {cgi: {mode: cgi, root: programs, num_workers: 1}}\n  \
             routes:\n    - {path: /cgi-bin/*, pool: cgi, strip_prefix: /cgi-bin}\n    - {pool: cgi, strip_prefix: /nowhere}\n",
        );
    let script = "#!/bin/sh\necho 'Content-Type: text/plain'\necho\necho \"ran $# $HTTP_PROXY\"\n";
    for name in [
        "programs/run",
        "programs/sub/run",
        "programs/.hidden/run",
        "programs/.run",
        "outside/run",
        "secret",
    ] {
        site.write(name, script);
        std::fs::set_permissions(site.path(name), std::fs::Permissions::from_mode(0o755))
            .expect("it is there");
    }
    site.write(
        "programs/source.cgi",
        "#!/usr/bin/env php-cgi\n<?php echo 'ran ', $argc ?? 0;",
    );
    std::fs::set_permissions(
        site.path("programs/source.cgi"),
        std::fs::Permissions::from_mode(0o755),
    )
    .expect("it is there");
    symlink("../outside", site.path("programs/out")).expect("a link can be made");
    symlink("../secret", site.path("programs/link")).expect("a link can be made");
    Server::start(site)
}

#[test]
fn no_program_outside_of_its_folder_runs() {
    let server = of_programs();
    for (path, status) in [
        // Below the route to some, and of the one that takes all others to some.
        ("/cgi-bin/../secret", 400),
        ("/cgi-bin/%2e%2e/secret", 400),
        ("/cgi-bin/..%2fsecret", 400),
        ("/cgi-bin/sub%2frun", 404),
        ("/cgi-bin/run%00", 400),
        ("/cgi-bin/run%00.txt", 400),
        ("/cgi-bin/sub\\run", 404),
        ("/cgi-bin/out/run", 404),
        ("/cgi-bin/link", 404),
        ("/cgi-bin/.hidden/run", 404),
        ("/cgi-bin/.run", 404),
        ("/cgi-bin/RUN", 404),
        ("/cgi-bin/run%20", 404),
        ("/cgi-bin/%72un/x", 200),
        ("/cgi-binrun", 404),
        ("/run", 404),
        ("/cgi-bin//bin/sh", 404),
    ] {
        let response = server.get(path);
        assert_eq!(response.status, status, "{path}");
        assert_eq!(
            response.text().contains("ran "),
            status == 200,
            "{path}: {}",
            response.text()
        );
    }
    server.stop();
}

#[test]
fn nothing_of_a_request_becomes_an_argument_or_a_proxy() {
    let server = of_programs();
    for query in ["-s", "-h+x", "a+b", "%3bls", "$(id)", "`id`"] {
        assert_eq!(
            server.get(&format!("/cgi-bin/run?{query}")).text(),
            "ran 0 \n",
            "{query}"
        );
    }
    let source = server.get("/cgi-bin/source.cgi?-s").text();
    assert!(
        !source.contains("<?php") && !source.contains("&lt;?php"),
        "{source}"
    );
    let mut client = Connection::open(server.address());
    client.request(
        "GET",
        "/cgi-bin/run",
        "Proxy: http://evil.example/\r\nX: () { :;}; echo broken\r\n",
    );
    assert_eq!(client.response().text(), "ran 0 \n");
    server.stop();
}

#[test]
fn what_is_there_and_is_not_served_is_not_the_front_controllers() {
    let classic = format!(
        "mode: classic, php: 'php -d extension={}'",
        extension().display()
    );
    for mode in [classic.as_str(), "mode: fastcgi"] {
        let site = Site::new()
            .config(&format!(
                "version: '3'\nhttp:\n  address: 127.0.0.1:0\n  pool: {{{mode}, root: public, num_workers: 1}}\n"
            ))
            .file("public/index.php", "<?php echo 'front';")
            .file("public/a.css", "a")
            .file("public/config.php.bak", SECRET)
            .file("public/A.PHP", SECRET)
            .file("public/.env", SECRET)
            .file("public/.git/config", SECRET)
            .file("elsewhere/jquery.js", SECRET)
            .file("elsewhere/index.php", SECRET);
        std::fs::create_dir(site.path("public/folder")).expect("a folder can be made");
        for (to, link) in [
            ("../elsewhere/jquery.js", "jquery.js"),
            ("../elsewhere", "js"),
            ("../elsewhere/index.php", "linked.php"),
            ("../../elsewhere/index.php", "folder/index.php"),
            ("nowhere", "dangling.js"),
            ("index.php", "innocent.txt"),
            (".env", "env.txt"),
            (".git", "git"),
            // What comes with every Debian.
            ("/usr/share/common-licenses/GPL-3", "license.txt"),
            ("/usr/share/common-licenses", "licenses"),
            ("/etc/shadow", "shadow"),
        ] {
            symlink(to, site.path("public").join(link)).expect("a link can be made");
        }
        let is_root = std::fs::metadata(site.path("public")).is_ok_and(|it| it.uid() == 0);
        let server = Server::start(site);
        for path in [
            "/jquery.js",
            "/js/jquery.js",
            "/js/",
            "/linked.php",
            "/linked.php/x",
            "/folder/",
            "/folder",
            "/config.php.bak",
            "/A.PHP",
            "/.env",
            "/%2eenv",
            "/shadow",
            "/innocent.txt",
            "/env.txt",
            "/git/config",
        ] {
            let response = server.get(path);
            assert_eq!(response.status, 404, "{path}");
            assert!(!response.text().contains("front"), "{path}");
            is_harmless(path, &response);
        }
        server.logged(&[
            "leads out of its folder",
            "`http.static.serve`",
            "symlinks: anywhere",
        ]);
        for path in ["/dangling.js", "/js/none.js", "/.git", "/a.css/", "/none"] {
            assert_eq!(server.get(path).text(), "front", "{path}");
        }
        let refused = server.post("/a.css", "text/plain", "x");
        assert_eq!(
            (refused.status, refused.header("allow")),
            (405, Some("GET, HEAD"))
        );
        if is_root {
            for path in ["/license.txt", "/licenses/GPL-3"] {
                let response = server.get(path);
                assert_eq!(response.status, 200, "{path}");
                assert!(
                    response.text().contains("GNU GENERAL PUBLIC LICENSE"),
                    "{path}"
                );
            }
        }
        server.stop();
    }
}
