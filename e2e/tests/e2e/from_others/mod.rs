//! `init --from`: configurations as they stand in the field, each with a table of what is asked and
//! answered. What nginx, Apache or Caddy answers is compared with the table, too.

mod drawn;
mod original;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use pronghorn_testkit::{Response, Server, Site};

use self::original::{Original, free_port};
use crate::ring::extension;

/// Shows which script ran: by its place, as `mod_php` gives `SCRIPT_NAME` of the client's own path.
const SCRIPT: &str = "<?php echo 'RAN ', substr(__FILE__, strlen($_SERVER['DOCUMENT_ROOT']));";

/// Scripts below the root of all of them.
const SCRIPTS: [&str; 19] = [
    "index.php",
    "info.php",
    "xmlrpc.php",
    "wp-login.php",
    "wp-config.php",
    "console.php",
    "wp-admin/index.php",
    "admin/info.php",
    "admin/users/index.php",
    "app/info.php",
    "config/info.php",
    "data/shell.php",
    "uploads/shell.php",
    "media/shell.php",
    "files/shell.php",
    "static/shell.php",
    "regex/shell.php",
    "nested/shell.php",
    "late/shell.php",
];
const UPLOADS: [&str; 3] = [
    "wp-content/uploads/shell.php",
    "wp-content/uploads/sub/shell.php",
    "wp-content/uploads/SHELL.php",
];
const FILES: [&str; 26] = [
    "style.css",
    "robots.txt",
    "readme.html",
    "dump.sql",
    "old.bak",
    "app.log",
    "composer.json",
    "composer.lock",
    "package.json",
    ".env",
    ".htaccess",
    ".git/config",
    ".well-known/security.txt",
    "sub/dump.sql",
    "sub/composer.json",
    "admin/a.jpg",
    "data/users.json",
    "private/key.txt",
    "vendor/a.js",
    "occ",
    "uploads/a.jpg",
    "nested/a.jpg",
    "core/a.css",
    "wp-content/uploads/a.jpg",
    "letsencrypt/.well-known/acme-challenge/token",
    "manual/page.txt",
];

fn site() -> Site {
    let mut site = Site::new();
    for script in SCRIPTS.iter().chain(&UPLOADS) {
        site = site.file(&format!("root/{script}"), SCRIPT);
    }
    for file in FILES {
        site = site.file(&format!("root/{file}"), "FILE");
    }
    // They count where Apache reads them.
    let site = site
        .file("root/.htaccess", "# FILE\n")
        .file("root/private/.htaccess", "Require all denied\n")
        .file("root/data/.htaccess", "php_flag engine off\n");
    // A root of a site of its own.
    site.file("users", "ann:{SHA}qUqP5cyxm6YcTAhz05Hph5gvu9M=\n")
        .file("manual/page.txt", "FILE")
        .file("manual/index.html", "FILE")
        .file("manual/a.php", SCRIPT)
}

/// A line of a table.
struct Row {
    path: String,
    there: String,
    here: String,
}

#[expect(clippy::panic, reason = "a line that is not read says which")]
fn rows(text: &str) -> Vec<Row> {
    let rows = text
        .lines()
        .filter_map(|line| line.trim_start().strip_prefix("# crawl "));
    rows.map(|row| {
        let words: Vec<_> = row.split_whitespace().collect();
        let (there, here) = match words[1..] {
            [both] => (both, both),
            [there, "here", here] => (there, here),
            _ => panic!("{row}"),
        };
        Row {
            path: words[0].to_owned(),
            there: there.to_owned(),
            here: here.to_owned(),
        }
    })
    .collect()
}

/// A reply in a word.
fn word(reply: &Response) -> String {
    let text = reply.text();
    match reply.status {
        _ if text.starts_with("<?php") => "source".to_owned(),
        200 if text == "RAN /index.php" => "front".to_owned(),
        200 if text.starts_with("RAN") => "script".to_owned(),
        200 => "file".to_owned(),
        301 | 302 | 303 | 307 | 308 => "redirect".to_owned(),
        status => status.to_string(),
    }
}

/// The reply that a browser gets, which is sent the page of an application of its own.
fn as_browser(server: &Server, path: &str) -> Response {
    let mut connection = server.connect();
    connection.send(format!(
        "GET {path} HTTP/1.1\r\nHost: localhost\r\nAccept: text/html\r\n\r\n"
    ));
    connection.response()
}

fn corpus() -> Vec<PathBuf> {
    let folder = Site::fixture("from");
    let entries = std::fs::read_dir(folder).expect("the corpus");
    let mut all: Vec<_> = entries
        .map(|entry| entry.expect("an entry").path())
        .collect();
    all.sort();
    all
}

/// Apache with these rules in the root's own file, as long as it is there.
fn apache_with(site: &Site, root: &str, rules: &str) -> Option<Original> {
    site.write("root/.htaccess", rules);
    let given = "AllowOverride All\nRequire all granted";
    let text = format!("DocumentRoot {root}\n<Directory {root}>\n{given}\n</Directory>\n");
    Original::apache(site, &text)
}

/// Converts and crawls one; what is not as its table says.
fn crawl(file: &Path) -> Vec<String> {
    let name = file
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    let text = std::fs::read_to_string(file).expect(&name);
    let site = site();
    let root = site.path("root").display().to_string();
    let rules = text.replace("{root}", &root);
    let text = if name.ends_with(".htaccess") {
        format!("DocumentRoot {root}\n{rules}")
    } else {
        rules.clone()
    };
    let rows = rows(&text);
    assert!(rows.len() > 2, "{name} has a table");
    let mut wrong = Vec::new();
    let (stem, kind) = name.rsplit_once('.').expect("a kind");
    let original = match kind {
        "nginx" => Original::nginx(&site, &text),
        "caddy" => Original::caddy(&site, &text),
        "htaccess" => apache_with(&site, &root, &rules),
        _ => Original::apache(&site, &text),
    };
    if let Some(original) = original {
        for row in &rows {
            let said = word(&original.get(&row.path));
            if said != row.there {
                wrong.push(format!(
                    "{name} {}: the original {said}, not {}: {}",
                    row.path,
                    row.there,
                    original.get(&row.path).text()
                ));
            }
        }
    }
    let given = match kind {
        "nginx" => format!("{stem}.conf"),
        "apache" | "htaccess" => format!("{stem}-httpd.conf"),
        _ => "Caddyfile".to_owned(),
    };
    let text = text.replace("{port}", "8080").replace("{php}", "9000");
    site.write(&given, &text);
    site.write("root/.htaccess", "# FILE\n"); // as before
    let said = Server::run(&site, &["init", "--from", &given]);
    if !site.path("pronghorn.yaml").exists() {
        return vec![format!("{name}: {}{}", said.stdout, said.stderr)];
    }
    let checked = Server::run(&site, &["check"]);
    if checked.stdout.contains("error:") || checked.stderr.contains("error:") {
        wrong.push(format!("{name}: {}{}", checked.stdout, checked.stderr));
        return wrong;
    }
    let yaml = site.read("pronghorn.yaml");
    let php = format!("http.pool.php=php -d extension={}", extension().display());
    let many = yaml.contains("\n  pools:");
    let mut arguments = vec!["serve", "-o", "http.address=127.0.0.1:0"];
    if !many {
        arguments.extend(["-o", &php, "-o", "http.pool.num_workers=1"]);
    }
    let server = Server::start_with(site, &arguments);
    for row in &rows {
        let said = word(&as_browser(&server, &row.path));
        if said != row.here {
            wrong.push(format!(
                "{name} {}: here {said}, not {}",
                row.path, row.here
            ));
        }
    }
    if !wrong.is_empty() {
        wrong.push(format!("{yaml}\n{}", said.stdout));
    }
    server.stop();
    wrong
}

#[test]
fn what_is_made_of_configurations_answers_as_they_did() {
    let wrong: Vec<_> = corpus().iter().flat_map(|file| crawl(file)).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Statements that refuse `@/secret/`, and those that send `@/…` to a script or as files, in this
/// order and in the other one: each pair has a path of its own for `@`.
fn pairs(refusals: &[&str], senders: &[&str]) -> Vec<(String, String, String)> {
    let all = refusals.iter().enumerate().flat_map(|(r, refusal)| {
        senders.iter().enumerate().map(move |(s, sender)| {
            let path = format!("/p{r}{s}");
            let (refusal, sender) = (refusal.replace('@', &path), sender.replace('@', &path));
            (path, refusal, sender)
        })
    });
    all.collect()
}

/// A root with files that are refused below each path.
fn site_of_pairs(pairs: &[(String, String, String)]) -> Site {
    let mut site = Site::new()
        .file("root/index.php", SCRIPT)
        .file("root/api.php", SCRIPT)
        .file("root/secret/x.txt", "FILE");
    for (path, ..) in pairs {
        site = site.file(&format!("root{path}/secret/x.txt"), "FILE");
    }
    site
}

/// What of a path that is refused is answered nevertheless, by what is made of a file; and what a
/// rule should have led to a script and did not.
fn crawl_pairs(
    site: Site,
    given: &str,
    text: &str,
    pairs: &[(String, String, String)],
) -> Vec<String> {
    site.write(given, text);
    let said = Server::run(&site, &["init", "--from", given]);
    let yaml = site.read("pronghorn.yaml");
    let php = format!("http.pool.php=php -d extension={}", extension().display());
    let server = Server::start_with(
        site,
        &[
            "serve",
            "-o",
            "http.address=127.0.0.1:0",
            "-o",
            &php,
            "-o",
            "http.pool.num_workers=1",
        ],
    );
    let mut wrong = Vec::new();
    for (path, refusal, sender) in pairs {
        for spelled in [
            "secret/x.txt",
            "%73ecret/x.txt",
            "a/../secret/x.txt",
            "SECRET/x",
        ] {
            let reply = server.get(&format!("{path}/{spelled}"));
            if reply.status < 400 {
                wrong.push(format!("{refusal}\n{sender}\n{spelled}: {}", word(&reply)));
            }
        }
        if sender.contains("api.php") {
            let reply = server.get(&format!("{path}/open"));
            if word(&reply) != "script" {
                wrong.push(format!("{refusal}\n{sender}\nopen: {}", word(&reply)));
            }
        }
    }
    if !wrong.is_empty() {
        wrong.push(format!("{text}\n{yaml}\n{}", said.stdout));
    }
    server.stop();
    wrong
}

#[test]
fn nothing_sends_what_nginx_refused_whatever_their_order() {
    let refusals = [
        "location @/secret/ { deny all; }",
        "location ~ ^@/secret/ { return 403; }",
        "location ^~ @/secret/ { internal; }",
        "location @/secret/ { proxy_pass http://127.0.0.1:1; }",
        "if ($request_uri ~ ^@/secret/) { return 403; }",
    ];
    let senders = [
        "rewrite ^@/(.*)$ /api.php?r=$1 last;",
        "location @/ { alias {root}/; }",
        "",
    ];
    let pairs = pairs(&refusals, &senders);
    let is_in_front = |sender: &str| sender.starts_with("rewrite");
    for refusals_are_first in [true, false] {
        let site = site_of_pairs(&pairs);
        let root = site.path("root").display().to_string();
        let mut text = format!(
            "server {{ listen 127.0.0.1:{{port}}; root {root};\n\
             location ~ \\.php$ {{ include fastcgi_params; fastcgi_pass 127.0.0.1:{{php}};\n\
             fastcgi_param SCRIPT_FILENAME $document_root$fastcgi_script_name; }}\n"
        );
        let front = pairs.iter().map(|(_, _, sender)| sender.as_str());
        let front: Vec<_> = front.filter(|sender| is_in_front(sender)).collect();
        let front = format!("location / {{\n{}\n}}\n", front.join("\n"));
        let others = pairs.iter().map(|(_, refusal, sender)| {
            let sender = if is_in_front(sender) { "" } else { sender };
            let sender = sender.replace("{root}", &root);
            if refusals_are_first {
                format!("{refusal}\n{sender}\n")
            } else {
                format!("{sender}\n{refusal}\n")
            }
        });
        let others: String = others.collect();
        text += &if refusals_are_first {
            others + &front
        } else {
            front + &others
        };
        text += "}\n";
        if let Some(nginx) = Original::nginx(&site, &text) {
            for (path, refusal, _) in &pairs {
                let reply = nginx.get(&format!("{path}/secret/x.txt"));
                assert!(reply.status >= 400, "{refusal}: {}", word(&reply));
            }
        }
        let text = text.replace("{port}", "8080").replace("{php}", "9000");
        let wrong = crawl_pairs(site, "site.conf", &text, &pairs);
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }
}

#[test]
fn nothing_sends_what_apache_refused_whatever_their_order() {
    let refusals = [
        "RewriteRule ^@/secret - [F]",
        "RewriteCond %{REQUEST_URI} ^@/secret\nRewriteRule .* - [F,L]",
        "Redirect 403 @/secret",
        "Redirect gone @/secret",
        "Redirect 503 @/secret",
        "RedirectMatch 404 ^@/secret",
        "<Location @/secret>\nRequire all denied\n</Location>",
        "<Location @/secret>\nRedirect 403\n</Location>",
        "<Location @/secret>\nProxyPass http://127.0.0.1:1/\n</Location>",
        "<LocationMatch ^@/secret>\nRequire ip 10.0.0.0/8\n</LocationMatch>",
        "ProxyPass @/secret http://127.0.0.1:1/",
        "RewriteRule ^@/secret/(.*)$ http://127.0.0.1:1/$1 [P]",
        "RewriteRule ^@/none|^@/secret - [F]",
        "RewriteRule (^@/none|^@/secret) - [F]",
        "RewriteRule ^.*@/secret - [F]",
        "RewriteCond %{REQUEST_URI} ^@/none [OR]\nRewriteCond %{REQUEST_URI} ^@/secret\n\
         RewriteCond %{REMOTE_ADDR} !^10\\.\nRewriteRule .* - [F]",
        "RewriteCond %{HTTP_COOKIE} !^.*auth=1.*$\nRewriteRule ^@/secret - [F]",
        "RewriteCond %{HTTP_COOKIE} !auth=1\nRewriteRule ^@/secret /login [R=302,L]",
        "RewriteCond %{REQUEST_URI} ^@/secret\nRewriteRule ^/(.*)$ http://127.0.0.1:1/$1 [P]",
        "RewriteCond %{REQUEST_FILENAME} !-f [OR]\nRewriteCond %{REQUEST_URI} ^@/secret\n\
         RewriteRule ^ /login [L]",
        "AliasMatch ^@/secret/(.*)$ /nowhere/$1",
    ];
    let senders = [
        "RewriteRule ^@/(.*)$ /api.php?r=$1 [L]",
        "Alias @ {root}",
        "",
    ];
    // Each limit of a file is tried by itself: twice as many take four times as long.
    const OF_A_FILE: usize = 16;
    let pairs = pairs(&refusals, &senders);
    let files = pairs.chunks(OF_A_FILE);
    for (pairs, refusals_are_first) in files.flat_map(|it| [(it, true), (it, false)]) {
        let site = site_of_pairs(pairs);
        let root = site.path("root").display().to_string();
        let mut text = format!("DocumentRoot {root}\nRewriteEngine On\n");
        for (_, refusal, sender) in pairs {
            let sender = sender.replace("{root}", &root);
            let (first, second) = if refusals_are_first {
                (refusal, &sender)
            } else {
                (&sender, refusal)
            };
            _ = writeln!(text, "{first}\n{second}"); // a String takes all
        }
        let wrong = crawl_pairs(site, "httpd.conf", &text, pairs);
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }
}

#[test]
fn nothing_but_what_apache_left_out_of_a_refusal_is_answered() {
    let site = Site::new()
        .file("root/index.php", SCRIPT)
        .file("root/ok/a.txt", "FILE")
        .file("root/secret/x.txt", "FILE");
    let root = site.path("root").display().to_string();
    let text = format!(
        "DocumentRoot {root}\nRewriteEngine On\nRewriteRule !^/(ok/.*)?$ - [F]\n\
         RewriteCond %{{REQUEST_METHOD}} !^(GET|HEAD)$\nRewriteRule .* - [F]\n"
    );
    site.write("httpd.conf", &text);
    Server::run(&site, &["init", "--from", "httpd.conf"]);
    let php = format!("http.pool.php=php -d extension={}", extension().display());
    let address = "http.address=127.0.0.1:0";
    let server = Server::start_with(site, &["serve", "-o", address, "-o", &php]);
    for (method, path, status) in [
        ("GET", "/ok/a.txt", 200),
        ("GET", "/", 200),
        ("GET", "/secret/x.txt", 403),
        ("GET", "/index.php", 403),
        ("GET", "/OK/a.txt", 403),
        ("FOO", "/", 403),
        ("POST", "/", 403),
        ("get", "/", 403),
    ] {
        let mut connection = server.connect();
        connection.request(method, path, "");
        assert_eq!(connection.response().status, status, "{method} {path}");
    }
    server.stop();
}

#[test]
fn nothing_of_a_root_is_answered_that_apache_led_elsewhere() {
    let files = [
        ("root/index.php", "<?php echo 'RAN index.php';"),
        ("root/config.json", "SECRET"),
        ("root/run.php", "<?php echo 'SECRET';"),
        ("root/a.css", "FILE a.css"),
        ("root/al/old.txt", "SECRET"),
        ("root/al/in/deep.txt", "SECRET"),
        ("root/al/run.php", "<?php echo 'SECRET';"),
        ("al/new.txt", "FILE new.txt"),
        ("al/run.php", "<?php echo 'SECRET';"),
        ("al/in/deep.txt", "SECRET"),
        ("in/new.txt", "FILE in/new.txt"),
    ];
    let build = || {
        let files = files.iter();
        files.fold(Site::new(), |site, (file, text)| site.file(file, text))
    };
    let aliases = "Alias /al/in {site}/in\nAlias /al {site}/al\n";
    let others = "RewriteEngine On\nRewriteRule !\\.(css|js)$ index.php\n";
    let host = "<VirtualHost *:80>\nServerName {name}.example\nDocumentRoot {site}/root\n";
    let first = host.replace("{name}", "one");
    let second = host.replace("{name}", "two");
    let many = format!("{first}</VirtualHost>\n{second}{aliases}</VirtualHost>\n");
    let one = format!("DocumentRoot {{site}}/root\n{aliases}");
    let led = format!("DocumentRoot {{site}}/root\n{others}");
    let of_alias: &[(&str, &str)] = &[
        ("/al/new.txt", "FILE new.txt"),
        ("/al/in/new.txt", "FILE in/new.txt"),
        ("/al/old.txt", ""),
        ("/al/%6fld.txt", ""),
        ("/AL/old.txt", ""),
        ("/x/../al/old.txt", ""),
        ("/al/in/deep.txt", ""),
        ("/al/run.php", ""),
        ("/al/run.php/x%2f", ""),
        ("/a.css", "FILE a.css"),
        ("/none", "RAN index.php"),
    ];
    let without: &[(&str, &str)] = &[("/al/new.txt", "RAN index.php"), ("/al/old.txt", "SECRET")];
    let front: &[(&str, &str)] = &[
        ("/a.css", "FILE a.css"),
        ("/none", "RAN index.php"),
        ("/run.php", ""),
        ("/config.json", ""),
        ("/config%2ejson", ""),
        ("/x.css/../config.json", ""),
        ("/config.json/x.css", ""),
        ("/al/old.txt", ""),
    ];
    for (text, host, rows) in [
        (&one, "one.example", of_alias),
        (&many, "two.example", of_alias),
        (&many, "one.example", without),
        (&led, "one.example", front),
    ] {
        let site = build();
        let folder = site.path("").display().to_string();
        let folder = folder.trim_end_matches('/');
        site.write("httpd.conf", &text.replace("{site}", folder));
        let said = Server::run(&site, &["init", "--from", "httpd.conf"]);
        let yaml = site.read("pronghorn.yaml");
        let php = format!("php=php -d extension={}", extension().display());
        let mut arguments = vec!["serve".to_owned()];
        let mut set = |text: String| arguments.extend(["-o".to_owned(), text]);
        set("http.address=127.0.0.1:0".to_owned());
        for pool in ["front", "one", "two", "al", "al-in"] {
            if yaml.contains(&format!("\n    {pool}:")) {
                set(format!("http.pools.{pool}.{php}"));
            }
        }
        if !yaml.contains("one:") {
            set(format!("http.pool.{php}"));
        }
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let server = Server::start_with(site, &arguments);
        for (path, expected) in rows {
            let mut connection = server.connect();
            connection.send(format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n"));
            let reply = connection.response();
            let said = format!(
                "{path} at {host}: {}\n{yaml}\n{}",
                reply.text(),
                said.stdout
            );
            if expected.is_empty() {
                assert!(!reply.text().contains("SECRET"), "{said}");
            } else {
                assert_eq!(reply.text(), *expected, "{said}");
            }
        }
        server.stop();
    }
}

#[test]
fn a_site_that_is_closed_as_a_whole_starts_and_refuses() {
    let site = Site::new().file("root/index.php", SCRIPT);
    let root = site.path("root").display().to_string();
    let text = format!("DocumentRoot {root}\nRedirect 403 /\n");
    site.write("httpd.conf", &text);
    Server::run(&site, &["init", "--from", "httpd.conf"]);
    let php = format!("http.pool.php=php -d extension={}", extension().display());
    let address = "http.address=127.0.0.1:0";
    let server = Server::start_with(site, &["serve", "-o", address, "-o", &php]);
    for path in ["/", "/index.php", "/x"] {
        assert_eq!(server.get(path).status, 404, "{path}");
    }
    server.stop();
}

/// The mark of a test's processes, for who has no configuration.
const MARK: &str = "server.env.PRONGHORN_TEST=${PRONGHORN_TEST}";

#[test]
fn what_htaccess_files_close_is_closed_without_a_configuration_and_named_with_one() {
    extension(); // or it would be served by something else
    let files = [
        ("user/accounts/admin.yaml", 403),
        ("data/users.json", 403),
        ("data/x.php", 403),
        ("wp-content/uploads/paid/a.zip", 403),
        ("upload/shell.php", 404),
        ("upload/a.jpg", 200),
        ("style.css", 200),
    ];
    let mut site = Site::new()
        .file("index.php", SCRIPT)
        .file(
            ".htaccess",
            "RewriteEngine On\nRewriteRule ^(user)/(.*)\\.(txt|yaml)$ error [F]\n",
        )
        .file("data/.htaccess", "Require all denied\n")
        .file("wp-content/uploads/paid/.htaccess", "deny from all\n")
        .file("upload/.htaccess", "php_flag engine off\n");
    for (file, _) in files {
        site = site.file(
            file,
            if Path::new(file).extension().is_some_and(|it| it == "php") {
                SCRIPT
            } else {
                "FILE"
            },
        );
    }
    let address = format!("127.0.0.1:{}", free_port());
    let server = Server::start_with(site, &["serve", "--listen", &address, "-o", MARK]);
    for (file, status) in files {
        assert_eq!(server.get(&format!("/{file}")).status, status, "{file}");
    }
    assert_eq!(server.get("/data%2Fusers.json").status, 403);
    let site = server.into_site();
    Server::run(&site, &["init"]).assert_said(&["closed as by `", "data/.htaccess"]);
    let made = site.read("pronghorn.yaml");
    assert!(made.contains("{path: \"/data/*\", refuse: 403}"), "{made}");
    let checked = Server::run(&site, &["check"]);
    assert!(!checked.stdout.contains(".htaccess"), "{}", checked.stdout);
    site.replace(
        "pronghorn.yaml",
        "version: '3'\nhttp: {address: 127.0.0.1:0, pool: {mode: classic, root: ., forbid: [data/]}}\n",
    );
    let checked = Server::run(&site, &["check"]);
    let said = format!("{}{}", checked.stdout, checked.stderr);
    assert!(
        said.contains("`.htaccess` files, which are not read"),
        "{said}"
    );
    assert!(said.contains("/wp-content/uploads/paid/*"), "{said}");
    assert!(!said.contains("`/data/*`"), "{said}");
}

#[test]
fn a_root_that_htaccess_keeps_from_some_is_closed_without_a_configuration() {
    extension(); // or it would be served by something else
    for text in [
        "AuthType Basic\nAuthName x\nAuthUserFile /etc/users\nRequire valid-user\n",
        "deny from all\n",
        "Require ip 10.0.0.1\n",
        "<FilesMatch \"^(?!index\\.php)\">\nRequire all denied\n</FilesMatch>\n",
    ] {
        let site = Site::new()
            .file("index.php", SCRIPT)
            .file(".htaccess", text)
            .file("style.css", "FILE")
            .file("data/users.json", "FILE");
        let paths = [
            "/",
            "/index.php",
            "/index.php/x",
            "/hello",
            "/style.css",
            "//style.css",
            "/data/users.json",
            "/data%2Fusers.json",
            "/./data/users.json",
        ];
        let address = format!("127.0.0.1:{}", free_port());
        let server = Server::start_with(site, &["serve", "--listen", &address, "-o", MARK]);
        for path in paths {
            assert_eq!(server.get(path).status, 404, "{text} {path}");
        }
        let site = server.into_site();
        Server::run(&site, &["init"]).assert_said(&["the whole site is answered 404"]);
        let server = Server::start_with(site, &["serve", "-o", "http.address=127.0.0.1:0"]);
        for path in paths {
            assert_eq!(server.get(path).status, 404, "{text} {path}");
        }
        let site = server.into_site();
        let checked = Server::run(&site, &["check"]);
        assert!(!checked.stdout.contains(".htaccess"), "{}", checked.stdout);
    }
}

#[test]
fn a_root_that_htaccess_leads_to_a_script_sends_no_file_without_a_configuration() {
    extension(); // or it would be served by something else
    for (rule, data, style) in [
        ("^(.*)$ index.php [L]", "404", "404"),
        ("^data/(.*) index.php [L]", "404", "file"),
    ] {
        let site = Site::new()
            .file("index.php", SCRIPT)
            .file(
                ".htaccess",
                &format!("RewriteEngine On\nRewriteRule {rule}\n"),
            )
            .file("closed/.htaccess", "Require all denied\n")
            .file("closed/key.txt", "SECRET")
            .file("style.css", "FILE")
            .file("data/users.json", "FILE");
        let expected = [
            ("/", "front"),
            ("/hello", "front"),
            ("/style.css", style),
            ("/data/users.json", data),
            ("//data/users.json", data),
            ("/closed/key.txt", "403"),
        ];
        let address = format!("127.0.0.1:{}", free_port());
        let server = Server::start_with(site, &["serve", "--listen", &address, "-o", MARK]);
        for (path, there) in expected {
            assert_eq!(word(&server.get(path)), there, "{rule} {path}");
        }
        let site = server.into_site();
        Server::run(&site, &["init"]).assert_said(&["closed as by `.htaccess`"]);
        let server = Server::start_with(site, &["serve", "-o", "http.address=127.0.0.1:0"]);
        for (path, there) in expected {
            assert_eq!(word(&server.get(path)), there, "{rule} {path}");
        }
        let site = server.into_site();
        let checked = Server::run(&site, &["check"]);
        assert!(!checked.stdout.contains(".htaccess"), "{}", checked.stdout);
    }
}

#[test]
fn copies_and_keys_of_a_project_are_not_sent() {
    const FILES: [&str; 16] = [
        "config.yml~",
        "app.log.1",
        "var/data.sqlite-wal",
        "var/data.sqlite-journal",
        "site.tar.gz",
        "site.tgz",
        "backup.zip",
        "error_log",
        "id_rsa",
        "server.p12",
        "bin/install.sh",
        "a.patch",
        "dump.sql.gz",
        "a.bak",
        "composer.lock",
        "#notes#",
    ];
    extension(); // or it would be served by something else
    let mut site = Site::new().file("index.php", SCRIPT).file("a.zip", "FILE");
    for file in FILES {
        site = site.file(file, "FILE");
    }
    let address = format!("127.0.0.1:{}", free_port());
    let server = Server::start_with(site, &["serve", "--listen", &address, "-o", MARK]);
    for file in FILES {
        let path = format!("/{}", file.replace('#', "%23"));
        assert_eq!(server.get(&path).status, 404, "{file}");
    }
    assert_eq!(server.get("/a.zip").text(), "FILE");
    // Neither does a secret of a query stay in the request's record.
    assert_eq!(server.get("/x?token=abc&a=1").status, 200);
    server.logged(&["http log", "/x?token=***&a=1"]);
    server.stop();
}

#[test]
fn a_configuration_that_is_a_named_pipe_holds_nobody_up() {
    let site = Site::new();
    let made = Command::new("mkfifo")
        .arg(site.path("pronghorn.yaml"))
        .status();
    assert!(made.expect("it is there").success());
    for command in ["check", "serve"] {
        let said = Server::run(&site, &[command]);
        let said = format!("{}{}", said.stdout, said.stderr);
        assert!(said.contains("it is a named pipe"), "{command}: {said}");
    }
    let said = Server::run(&site, &["check", "-c", "/dev/stdin"]);
    assert!(!said.stderr.contains("named pipe"), "{}", said.stderr);
}
