//! Each block of `docs/migration` becomes the configuration beside it.

use std::collections::BTreeMap;

use pronghorn_config::{Effective, Input, Severity, load};
use pronghorn_http::routes::{Asked, PathPattern};
use pronghorn_http::settings::HttpSettings;
use pronghorn_testkit::Directory;
use pronghorn_wire::Fields;
use serde_json::Value;

use super::*;

/// What a piece of a configuration does not say, and the page does.
const AROUND: [&str; 6] = [
    "version",
    "http.address",
    "http.pool.mode",
    "http.pool.root",
    // PHP's own limits, which stand in php.ini.
    "http.pool.ini.post_max_size",
    "http.pool.ini.upload_max_filesize",
];

/// Code blocks of a page, by their languages.
fn blocks(page: &str) -> Vec<(String, String)> {
    let mut blocks = Vec::new();
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        if let Some(language) = line.strip_prefix("```") {
            let text: Vec<_> = lines.by_ref().take_while(|line| *line != "```").collect();
            blocks.push((language.to_owned(), text.join("\n")));
        }
    }
    blocks
}

/// A configuration as keys with their values.
fn flat(yaml: &str) -> BTreeMap<String, String> {
    fn add(into: &mut BTreeMap<String, String>, path: String, value: &Value) {
        match value {
            Value::Object(map) => {
                for (name, value) in map {
                    let path = if path.is_empty() {
                        name.clone()
                    } else {
                        format!("{path}.{name}")
                    };
                    add(into, path, value);
                }
            }
            // Hosts and paths are told apart, whatever their order.
            Value::Array(items) => {
                let mut items: Vec<_> = items.iter().map(Value::to_string).collect();
                items.sort();
                into.insert(path, items.join(" "));
            }
            other => _ = into.insert(path, other.to_string()),
        }
    }
    let loaded = load(&Input::from_text("pronghorn.yaml", yaml.to_owned()));
    let json: Value =
        serde_json::from_str(&loaded.to_json(&Effective::default())).expect("it is JSON");
    let mut keys = BTreeMap::new();
    add(&mut keys, String::new(), &json);
    keys
}

fn converted(name: &str, text: &str) -> Converted {
    let directory = Directory::new();
    let file = directory.join(name);
    std::fs::write(&file, text).unwrap();
    let converted = convert(&[file]).unwrap();
    expect_nothing_opened(&converted.yaml);
    converted
}

/// Rules that are made leave to the routes what was closed there, or say that they open it.
fn expect_nothing_opened(yaml: &str) {
    let loaded = load(&Input::from_text("pronghorn.yaml", yaml.to_owned()));
    let resolved = loaded.resolve_with(Severity::Warning, |t| {
        t.optional_section::<HttpSettings>("http", "")
    });
    if let Ok(Some(settings)) = resolved.into_settings() {
        assert_eq!(settings.opened_paths(), [], "{yaml}");
    }
}

/// A piece of a site, in which its root is not said.
fn with_root(text: &str, language: &str, expected: &BTreeMap<String, String>) -> String {
    let root = expected
        .get("http.pool.root")
        .map(|root| root.trim_matches('"'));
    match (language, root) {
        ("nginx", Some(root)) if !text.contains("root ") => format!("root {root};\n{text}"),
        ("apache", Some(root)) if !text.contains("DocumentRoot") => {
            format!("DocumentRoot {root}\n{text}")
        }
        _ => text.to_owned(),
    }
}

fn compare_page(page: &str, language: &str, file: &str) -> usize {
    let blocks = blocks(page);
    let (mut compared, mut wrong) = (0, Vec::new());
    for pair in blocks.windows(2) {
        let [(theirs, text), (ours, yaml)] = pair else {
            unreachable!("windows of two")
        };
        if theirs != language || ours != "yaml" {
            continue;
        }
        compared += 1;
        // What pages say of logs and of forms is their own.
        let yaml = yaml
            .replace(", method: POST", "")
            .replace("/access.log", "/wiki.log");
        let expected = flat(&yaml);
        let Converted {
            yaml: made,
            left_out,
            ..
        } = converted(file, &with_root(text, language, &expected));
        let made_keys = flat(&made).into_iter();
        let made_keys: BTreeMap<_, _> = made_keys
            .map(|(key, value)| (key, value.replace("/access.log", "/wiki.log")))
            .collect();
        let differ = expected.iter().filter(|(key, value)| {
            (!AROUND.contains(&key.as_str()) || made_keys.contains_key(*key))
                && made_keys.get(*key) != Some(value)
        });
        let differ: Vec<_> = differ.map(|(key, _)| key).collect();
        let unknown: Vec<_> = made_keys
            .keys()
            .filter(|key| !expected.contains_key(*key))
            .collect();
        if !(left_out.is_empty() && differ.is_empty() && unknown.is_empty()) {
            wrong.push(format!(
                "{text}\nbecame\n{made}left out: {left_out:?}\ndiffer: {differ:?}\nnot on the page: {unknown:?}\n"
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    compared
}

#[test]
fn the_blocks_of_the_page_of_nginx_become_what_stands_beside_them() {
    let page = include_str!("../../../docs/migration/from-nginx-fpm.md");
    assert_eq!(compare_page(page, "nginx", "nginx.conf"), 11);
    assert_eq!(compare_page(page, "ini", "www.conf"), 1);
}

#[test]
fn the_blocks_of_the_page_of_apache_become_what_stands_beside_them() {
    let page = include_str!("../../../docs/migration/from-apache.md");
    assert_eq!(compare_page(page, "apache", "site.conf"), 12);
}

/// A whole site of nginx with PHP, and these statements.
fn nginx_site(more: &str) -> String {
    format!(
        "server {{ listen 80; root /srv/x;\nlocation / {{ try_files $uri /index.php; }}\n\
         location ~ \\.php$ {{ include fastcgi_params; fastcgi_pass unix:/a.sock; }}\n{more} }}\n"
    )
}

/// What is made, and whether a limit is told that has this in it.
fn made(name: &str, text: &str) -> (String, String) {
    let converted = converted(name, text);
    (converted.yaml, converted.limits.join("\n"))
}

/// A host whose `.htaccess` files count.
pub(crate) fn host_at(root: &Path) -> String {
    let root = root.display();
    format!(
        "<VirtualHost *:80>\nServerName site.example\nDocumentRoot {root}\n<Directory \
         {root}>\nAllowOverride All\nRequire all granted\n</Directory>\n</VirtualHost>\n"
    )
}

/// The answer to a client of an address: the status of a refusal, or the scripts that may run.
pub(crate) fn answer(yaml: &str, path: &str, address: &str) -> String {
    let loaded = load(&Input::from_text("pronghorn.yaml", yaml.to_owned()));
    let resolved = loaded.resolve_with(Severity::Warning, |t| {
        t.optional_section::<HttpSettings>("http", "")
    });
    let settings = resolved.into_settings().unwrap().unwrap();
    let routes = settings.compile(&[], |route| match route.refuse {
        Some(status) => status.to_string(),
        None => format!("{:?}", route.scripts),
    });
    let picked = routes.pick(&Asked {
        method: "GET",
        authority: "site.example",
        path: path.as_bytes(),
        fields: &Fields::default(),
        address: address.parse().ok(),
    });
    picked.map_or_else(|_| "400".to_owned(), Clone::clone)
}

const CLOSED: &str = "refuse: 404";

#[test]
fn what_limits_who_gets_what_is_translated_or_told() {
    let apache = |more: &str| format!("DocumentRoot /srv/x\n{more}\n");
    let caddy = |more: &str| format!(":80 {{\nroot * /srv/x\n{more}\nphp_server\n}}\n");
    // The file, a statement, what must be in what is made, and what must be told.
    let cases = [
        (
            "nginx.conf",
            nginx_site("location ^~ /vendor/ { return 403; }"),
            "\"/vendor/*\"",
            "",
        ),
        (
            "nginx.conf",
            nginx_site("location /secret { return 404; }"),
            "{path: \"~ ^/secret\", refuse: 404}",
            "",
        ),
        (
            "nginx.conf",
            nginx_site("location = /status { return 403; }"),
            "{path: /status, refuse: 403}",
            "",
        ),
        (
            "nginx.conf",
            nginx_site("location /a { auth_basic x; }"),
            "{path: \"~ ^/a\", refuse: 404}",
            "auth_basic x",
        ),
        (
            "nginx.conf",
            nginx_site("location /a { internal; deny 10.0.0.1; }"),
            "{path: \"~ ^/a\", refuse: 404}",
            "with `internal`",
        ),
        (
            "nginx.conf",
            nginx_site("location ^~ /up { }"),
            "{path: \"~ ^/up\", scripts: none}",
            "",
        ),
        (
            "nginx.conf",
            nginx_site("location /up { location ~ \\.php$ { deny all; } }"),
            "{path: \"~ ^/up\", scripts: none}",
            "",
        ),
        (
            "nginx.conf",
            nginx_site("location ^~ /up { alias /srv/up; }"),
            "{path: \"~ ^/up\", scripts: none}",
            "",
        ),
        // Longer paths come first, however they are written.
        (
            "nginx.conf",
            nginx_site(
                "location ^~ /a/ { try_files $uri /index.php; }\nlocation ^~ /a/b { expires 1h; }",
            ),
            "{path: \"~ ^/a/b\", scripts: none}\n    - {path: \"/a/*\"",
            "",
        ),
        // A comma in a path is not the end of it.
        (
            "nginx.conf",
            nginx_site("location ~ \"^/a{2,3}/\" { deny all; }"),
            "{path: [\"~ ^/a{2,3}/\"], refuse: 403}",
            "",
        ),
        (
            "nginx.conf",
            nginx_site("location /a,b/ { deny all; }"),
            "{path: [\"/a,b/*\"], refuse: 403}",
            "",
        ),
        (
            "nginx.conf",
            nginx_site("if ($request_uri ~* \"[?&]author=\") { return 403; }"),
            "refuse: 403",
            "the query is the application's",
        ),
        (
            "nginx.conf",
            nginx_site("auth_basic x;"),
            CLOSED,
            "auth_basic x",
        ),
        (
            "nginx.conf",
            nginx_site("allow 10.0.0.0/8; deny all;"),
            "not_address: [\"10.0.0.0/8\"], refuse: 403}",
            "",
        ),
        (
            "nginx.conf",
            nginx_site("limit_except GET { deny all; }"),
            CLOSED,
            "limit_except",
        ),
        (
            "nginx.conf",
            nginx_site("valid_referers none;"),
            CLOSED,
            "valid_referers",
        ),
        (
            "nginx.conf",
            nginx_site("if ($bad) { return 403; }"),
            CLOSED,
            "if ($bad)",
        ),
        (
            "nginx.conf",
            nginx_site("ssl_verify_client on;"),
            CLOSED,
            "ssl_verify_client",
        ),
        (
            "nginx.conf",
            nginx_site("location ~* /(?:uploads|files)/.*\\.php$ { deny all; }"),
            "no_scripts: [uploads, files]",
            "",
        ),
        (
            "nginx.conf",
            nginx_site("location ~ (composer\\.json|wp-config\\.php|vendor) { deny all; }"),
            "refuse: 403",
            "",
        ),
        (
            "nginx.conf",
            nginx_site("location ~ \\.(php|phtml)\\.bak$ { deny all; }"),
            "refuse: 403",
            "",
        ),
        (
            "nginx.conf",
            nginx_site("location ~ x+\\.php { deny all; }"),
            "refuse: 403",
            "",
        ),
        (
            "nginx.conf",
            nginx_site("location ~ (?<!a)b { deny all; }"),
            "{path: \"~ b\", refuse: 403}",
            "(?<!a)b",
        ),
        (
            "nginx.conf",
            nginx_site("location ~ ^/(?!index) { deny all; }"),
            CLOSED,
            "whole site",
        ),
        (
            "nginx.conf",
            nginx_site("location /files { alias /x/files; location ~ \\.php$ { return 403; } }"),
            "{prefix: /files, root: /x/files, index: [index.html]}",
            "",
        ),
        (
            "nginx.conf",
            nginx_site(
                "location /b { alias /x/b; location ~ \\.php$ { fastcgi_pass a; }\n\
                 location ~ /up/ { deny all; } }",
            ),
            CLOSED,
            "deny all",
        ),
        // Methods are refused by what is allowed, not by a list of those that are known.
        (
            "nginx.conf",
            nginx_site("if ($request_method !~ ^(GET|HEAD|POST)$) { return 405; }"),
            "{path: \"/*\", not_method: [GET, HEAD, POST], refuse: 405}",
            "",
        ),
        (
            "nginx.conf",
            nginx_site("if ($request_method != POST) { return 405; }"),
            "not_method: [POST], refuse: 405",
            "",
        ),
        (
            "nginx.conf",
            nginx_site("if ($request_method ~ ^TRAC) { return 405; }"),
            "method: [TRAC, TRACE, TRACK], refuse: 405",
            "",
        ),
        (
            "nginx.conf",
            nginx_site("if ($request_method !~ ^(get)$) { return 405; }"),
            CLOSED,
            "^(get)$",
        ),
        // Something else than files answered.
        (
            "nginx.conf",
            nginx_site("location /private { rewrite ^ /index.php last; }"),
            "{path: \"~ ^/private\", refuse: 404}",
            "rewrite ^ /index.php last",
        ),
        (
            "nginx.conf",
            nginx_site("location /files/ { proxy_pass http://a; }"),
            "{path: \"/files/*\", refuse: 404}",
            "proxy_pass http://a",
        ),
        (
            "nginx.conf",
            nginx_site("location ~ ^/files/ { proxy_pass http://a; }"),
            "{path: \"~ ^/files/\", refuse: 404}",
            "proxy_pass http://a",
        ),
        (
            "nginx.conf",
            nginx_site("location /in { return 302 https://$host/login; }"),
            "{path: \"~ ^/in\", refuse: 404}",
            "return 302",
        ),
        (
            "nginx.conf",
            nginx_site("location /a/ { rewrite ^/a/v[0-9]+/(.*)$ /a/$1 break; }"),
            "{path: \"^/a/v[0-9]+/(.*)$\", to: \"/a/{1}\"}",
            "",
        ),
        (
            "site.conf",
            apache("Redirect gone /x"),
            "{path: \"/x/*\", refuse: 410}",
            "",
        ),
        (
            "site.conf",
            apache("Redirect 403 /x/"),
            "{path: \"/x/*\", refuse: 403}",
            "",
        ),
        (
            "site.conf",
            apache("Redirect 503 /x"),
            "{path: \"/x/*\", refuse: 404}",
            "Redirect 503 /x",
        ),
        (
            "site.conf",
            apache("Redirect 403 /"),
            CLOSED,
            "Redirect 403 /",
        ),
        (
            "site.conf",
            apache("Redirect /x https://a.example"),
            "{path: \"/x/*\", refuse: 404}",
            "Redirect /x",
        ),
        (
            "site.conf",
            apache("RedirectMatch 404 ^/x\\.txt$"),
            "{path: \"~ ^/x\\\\.txt$\", refuse: 404}",
            "",
        ),
        (
            "site.conf",
            apache("<Location /x>\nRedirect 403\n</Location>"),
            "{path: \"/x/*\", refuse: 403}",
            "",
        ),
        (
            "site.conf",
            apache("<Location /x>\nRedirect /y\n</Location>"),
            "{path: \"/x/*\", refuse: 404}",
            "Location /x",
        ),
        (
            "site.conf",
            apache("ProxyPass /x http://a/"),
            "{path: \"/x/*\", refuse: 404}",
            "ProxyPass",
        ),
        (
            "site.conf",
            apache("<Location /x>\nProxyPass http://a/\n</Location>"),
            "{path: \"/x/*\", refuse: 404}",
            "ProxyPass",
        ),
        (
            "site.conf",
            apache("RewriteRule ^/x/(.*)$ http://a/$1 [P]"),
            "{path: \"~ ^/x/(.*)$\", refuse: 404}",
            "[P]",
        ),
        (
            "site.conf",
            apache("Include sites/x.conf"),
            "root: /srv/x",
            "Include sites/x.conf",
        ),
        (
            "site.conf",
            apache("RewriteRule !^/(ok)$ - [F]"),
            "{path: \"!~ ^/(ok)$\", refuse: 403}",
            "",
        ),
        (
            "site.conf",
            apache("RewriteRule !^(?=ok) - [F]"),
            CLOSED,
            "!^(?=ok)",
        ),
        (
            "site.conf",
            apache("RewriteCond %{REQUEST_URI} !^/ok\nRewriteRule ^ - [F]"),
            "{path: \"!~ ^/ok\", refuse: 403}",
            "",
        ),
        (
            "site.conf",
            apache(
                "RewriteCond %{REQUEST_URI} !^/a/ok\nRewriteCond %{REQUEST_URI} ^/a\n\
                 RewriteRule ^ - [F]",
            ),
            "{path: \"~ ^/a\", refuse: 403}",
            "more is refused",
        ),
        (
            "site.conf",
            apache("RewriteCond %{REQUEST_METHOD} !^(GET|POST)$\nRewriteRule .* - [F]"),
            "not_method: [GET, POST], refuse: 403",
            "",
        ),
        (
            "site.conf",
            apache("RewriteRule !\\.(js|css)$ index.php"),
            "{path: \"!~ \\\\.(js|css)$\", scripts: front, pool: front}",
            "",
        ),
        (
            "site.conf",
            apache("<Directory /srv/x/a>\nRequire all denied\n</Directory>"),
            "\"/a/*\"",
            "",
        ),
        (
            "site.conf",
            apache("<Directory /srv/x/a>\nRequire host example.com\n</Directory>"),
            "\"/a/*\"",
            "Require host",
        ),
        (
            "site.conf",
            apache("<Directory /srv/x>\nRequire valid-user\nAuthType Basic\n</Directory>"),
            CLOSED,
            "Require valid-user",
        ),
        (
            "site.conf",
            apache(
                "<Directory /srv/x>\nOrder deny,allow\nDeny from all\nAllow from a.x\n</Directory>",
            ),
            CLOSED,
            "Order",
        ),
        (
            "site.conf",
            apache("<Directory /srv/x>\nAllowOverride All\nRequire all granted\n</Directory>"),
            "root: /srv/x",
            "`AllowOverride` for `/srv/x`, which does not exist on this machine",
        ),
        (
            "site.conf",
            apache("<Location /admin>\nRequire host a.x\n</Location>"),
            "\"/admin/*\"",
            "Require host",
        ),
        (
            "site.conf",
            apache("<FilesMatch \"\\.(inc|bak)$\">\nRequire all denied\n</FilesMatch>"),
            "refuse: 403",
            "",
        ),
        (
            "site.conf",
            apache("<Files xmlrpc.php>\nRequire all denied\n</Files>"),
            "refuse: 403",
            "",
        ),
        (
            "site.conf",
            apache("RewriteRule ^wp-admin/includes/ - [F,L]"),
            "\"~ ^/wp-admin/includes/\"",
            "",
        ),
        (
            "Caddyfile",
            caddy("respond /secret/* 403"),
            "\"/secret/*\"",
            "",
        ),
        (
            "Caddyfile",
            caddy("basic_auth /a/* {\nbob x\n}"),
            "\"/a/*\"",
            "basic_auth",
        ),
        (
            "Caddyfile",
            caddy("@x path *.bak\nrespond @x 403"),
            "refuse: 403",
            "",
        ),
        (
            "Caddyfile",
            caddy("@x not path /a\nrespond @x 403"),
            CLOSED,
            "respond @x",
        ),
        ("Caddyfile", caddy("abort"), CLOSED, "abort"),
    ];
    for (name, text, expected, told) in cases {
        let (yaml, limits) = made(name, &text);
        assert!(yaml.contains(expected), "{text}\n{yaml}\n{limits}");
        assert!(limits.contains(told), "{text}\n{yaml}\n{limits}");
        assert_eq!(limits.is_empty(), told.is_empty(), "{text}\n{limits}");
        let names_place = limits.is_empty() || limits.contains(&format!("{name}:"));
        assert!(names_place, "{limits}");
    }
}

#[test]
fn what_leads_away_from_files_and_is_not_translated_closes_them() {
    for (name, text) in [
        (
            "site.conf",
            "DocumentRoot /srv/x\nAliasMatch ^/private/(.*)$ /srv/y/$1\n",
        ),
        (
            "nginx.conf",
            &nginx_site("if ($uri ~ ^/data/) { rewrite ^ /index.php last; }"),
        ),
        (
            "Caddyfile",
            ":80 {\nroot * /srv/x\nredir @gone /login\nphp_server\n}\n",
        ),
    ] {
        let (yaml, told) = made(name, text);
        assert!(yaml.contains(CLOSED), "{name}: {yaml}");
        assert!(!told.is_empty(), "{name}: {yaml}");
    }
}

/// Whether a configuration refuses a path, by the first route that has it.
fn is_closed(yaml: &str, path: &str) -> bool {
    let loaded = load(&Input::from_text("pronghorn.yaml", yaml.to_owned()));
    let json: Value =
        serde_json::from_str(&loaded.to_json(&Effective::default())).expect("it is JSON");
    let routes = json["http"]["routes"].as_array().cloned();
    let has = |route: &&Value| {
        let paths = match &route["path"] {
            Value::String(path) => vec![path.clone()],
            Value::Array(all) => all
                .iter()
                .filter_map(|it| it.as_str().map(str::to_owned))
                .collect(),
            _ => return route["header"].is_null() && route["method"].is_null(),
        };
        paths.iter().any(|it| {
            let pattern = PathPattern::parse(it).expect(it);
            pattern.gets(path)
        })
    };
    let routes = routes.unwrap_or_default();
    routes
        .iter()
        .find(has)
        .is_some_and(|it| !it["refuse"].is_null())
}

/// Each row: the places of statements, the statements, the paths they close, and those still open.
type Kept = (
    &'static str,
    &'static str,
    &'static [&'static str],
    &'static [&'static str],
);

const KEPT: &[Kept] = &[
    // Groups of conditions.
    (
        "all",
        "RewriteCond %{REQUEST_URI} ^/private [OR]\nRewriteCond %{REQUEST_URI} ^/internal\n\
             RewriteCond %{REMOTE_ADDR} !^10\\.\nRewriteRule .* - [F]",
        &["/private/a", "/internal/i.txt"],
        &["/open.txt"],
    ),
    (
        "all",
        "RewriteCond %{REMOTE_ADDR} !^10\\.\nRewriteCond %{REQUEST_URI} ^/private [NC,OR]\n\
             RewriteCond %{REQUEST_URI} ^/internal\nRewriteRule ^ - [F]",
        &["/private/a", "/internal/i.txt"],
        &["/open.txt"],
    ),
    (
        "all",
        "RewriteCond %{REMOTE_ADDR} !^10\\. [OR]\nRewriteCond %{REQUEST_URI} ^/private\n\
             RewriteRule .* - [F]",
        &["/private/a", "/open.txt"],
        &[],
    ),
    // Starts in each alternative.
    (
        "directories",
        "RewriteRule ^vendor/|^private/ - [F]",
        &["/vendor/a", "/private/a"],
        &["/open/vendor/a"],
    ),
    (
        "directories",
        "RewriteRule (^vendor|^private)/ - [F]",
        &["/vendor/a", "/private/a"],
        &["/open.txt"],
    ),
    (
        "directories",
        "RewriteRule (^|/)private/ - [F]",
        &["/private/a", "/a/private/a"],
        &["/open.txt"],
    ),
    (
        "directories",
        "RewriteRule ^(vendor|private)/ - [F]",
        &["/vendor/a", "/private/a"],
        &["/open.txt"],
    ),
    (
        "servers",
        "RewriteRule ^/vendor/|^/private/ - [F]",
        &["/vendor/a", "/private/a"],
        &["/open.txt"],
    ),
    // The path begins with a slash already.
    (
        "servers",
        "RewriteRule ^.*/private/ - [F]",
        &["/private/a", "/a/private/a"],
        &["/open.txt"],
    ),
    (
        "servers",
        "RewriteRule ^(.*/)config/ - [F]",
        &["/config/a", "/a/config/a"],
        &["/open.txt"],
    ),
    (
        "all",
        "RewriteRule ^(.*/)?private/ - [F]",
        &["/private/a", "/a/private/a"],
        &["/open.txt"],
    ),
    // Handlers.
    (
        "all",
        "AddHandler cgi-script .cgi .pl",
        &["/a.cgi", "/b/a.pl", "/a.pl.txt"],
        &["/open.txt"],
    ),
    (
        "all",
        "AddHandler application/x-httpd-php .php .module",
        &["/a.module"],
        &["/open.txt", "/a.php"],
    ),
    (
        "all",
        "AddType application/x-httpd-php .php .html",
        &["/a.html"],
        &["/open.txt", "/a.php"],
    ),
    (
        "all",
        "<FilesMatch \"\\.(php|module)$\">\nSetHandler application/x-httpd-php\n</FilesMatch>",
        &["/a.module"],
        &["/open.txt", "/a.php"],
    ),
    // Rules that lead away from files by a condition.
    (
        "directories",
        "RewriteCond %{REQUEST_URI} !^/public/\nRewriteRule ^(.*)$ public/$1 [L]",
        &["/composer.json", "/storage/a"],
        &["/public/a.css"],
    ),
    (
        "all",
        "RewriteCond %{REQUEST_FILENAME} !-f [OR]\nRewriteCond %{REQUEST_URI} ^/data/\n\
             RewriteRule ^ index.php [L]",
        &["/data/a"],
        &["/open.txt"],
    ),
    (
        "directories",
        "RewriteCond %{HTTP_COOKIE} !auth=1\nRewriteRule ^private/ /login [R=302,L]",
        &["/private/a"],
        &["/open.txt"],
    ),
    (
        "servers",
        "RewriteCond %{REQUEST_URI} ^/private/\nRewriteRule ^/(.*)$ http://127.0.0.1:1/$1 [P]",
        &["/private/a"],
        &["/open.txt"],
    ),
    (
        "all",
        "RewriteCond %{REMOTE_ADDR} !^10\\.\nRewriteRule ^ /wait.html [L]",
        &["/open.txt"],
        &[],
    ),
    (
        "servers",
        "<Directory /srv/x/private>\nRewriteEngine On\nRewriteRule ^ /index.php [L]\n</Directory>",
        &["/private/a"],
        &["/open.txt"],
    ),
    (
        "servers",
        "<Directory /srv/x/private>\nRewriteEngine On\nRewriteRule (^|/)a/ - [F]\n</Directory>",
        &["/private/a/x", "/private/b/a/x"],
        &["/a/x", "/private/b"],
    ),
    // Names.
    (
        "all",
        "<FilesMatch \"^\\.?config$\">\nRequire all denied\n</FilesMatch>",
        &["/config", "/a/config"],
        &["/open.txt"],
    ),
    (
        "all",
        "<FilesMatch \"^.ht\">\nRequire all denied\n</FilesMatch>",
        &["/xhtml"],
        &["/open.txt"],
    ),
    (
        "all",
        "<Files \"[!d]*.sql\">\nRequire all denied\n</Files>",
        &["/a.sql"],
        &["/d.sql"],
    ),
    (
        "servers",
        "AliasMatch ^/private/(.*)$ /srv/d/$1",
        &["/private/a"],
        &["/open.txt"],
    ),
    (
        "servers",
        "Alias /a.txt /srv/none/a.txt",
        &["/a.txt"],
        &["/open.txt"],
    ),
    (
        "servers",
        "Alias /al /srv/d\n<Directory /srv/d>\nRequire all granted\n\
             <FilesMatch \"\\.sql$\">\nRequire all denied\n</FilesMatch>\n</Directory>",
        &["/al/s.sql"],
        &[],
    ),
    (
        "directories",
        "RewriteCond %{HTTP_COOKIE} !^.*auth=1.*$\nRewriteRule ^private/ - [F]",
        &["/private/a"],
        &["/open.txt"],
    ),
    (
        "directories",
        "RewriteCond %{QUERY_STRING} ^$\nRewriteRule ^private/ - [F]",
        &["/private/a"],
        &["/open.txt"],
    ),
];

#[test]
fn what_apache_keeps_files_from_is_closed_in_each_form() {
    let server = |more: &str| format!("DocumentRoot /srv/x\nRewriteEngine On\n{more}\n");
    let directory = |more: &str| {
        format!(
            "DocumentRoot /srv/x\n<Directory /srv/x>\nRequire all granted\nRewriteEngine On\n{more}\n</Directory>\n"
        )
    };
    let host = |more: &str| {
        format!(
            "<VirtualHost *:80>\nDocumentRoot /srv/x\nRewriteEngine On\n{more}\n</VirtualHost>\n"
        )
    };
    let mut wrong = Vec::new();
    for (places, statements, closed, open) in KEPT {
        let mut texts = Vec::new();
        if *places != "directories" {
            texts.extend([server(statements), host(statements)]);
        }
        if *places != "servers" {
            texts.push(directory(statements));
        }
        for text in texts {
            let (yaml, limits) = made("site-httpd.conf", &text);
            for path in *closed {
                if !is_closed(&yaml, path) || yaml.contains("prefix: /al") {
                    wrong.push(format!("{path} is open:\n{text}\n{yaml}\n{limits}"));
                }
            }
            for path in *open {
                if is_closed(&yaml, path) {
                    wrong.push(format!("{path} is closed:\n{text}\n{yaml}\n{limits}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn usual_front_controllers_and_redirects_close_nothing() {
    let around = "DocumentRoot /srv/x\nDirectoryIndex index.php\nRewriteEngine On\n";
    let missing = "RewriteCond %{REQUEST_FILENAME} !-f\nRewriteCond %{REQUEST_FILENAME} !-d\n";
    for statements in [
        // WordPress
        "RewriteBase /\nRewriteRule ^index\\.php$ - [L]\n@RewriteRule . /index.php [L]",
        // Laravel
        "RewriteCond %{HTTP:Authorization} .\n\
         RewriteRule .* - [E=HTTP_AUTHORIZATION:%{HTTP:Authorization}]\n\
         RewriteCond %{REQUEST_FILENAME} !-d\nRewriteCond %{REQUEST_URI} (.+)/$\n\
         RewriteRule ^ %1 [L,R=301]\n@RewriteRule ^ index.php [L]",
        // Symfony
        "RewriteCond %{REQUEST_URI}::$0 ^(/.+)/(.*)::\\2$\nRewriteRule .* - [E=BASE:%1]\n\
         RewriteCond %{ENV:REDIRECT_STATUS} =\"\"\n\
         RewriteRule ^index\\.php(?:/(.*)|$) %{ENV:BASE}/$1 [R=301,L]\n\
         RewriteCond %{REQUEST_FILENAME} !-f\nRewriteRule ^ %{ENV:BASE}/index.php [L]",
        // Drupal
        "RewriteRule ^ - [E=protossl]\nRewriteCond %{HTTPS} on\nRewriteRule ^ - [E=protossl:s]\n\
         RewriteCond %{REQUEST_URI} ^(.*)?/(install\\.php) [OR]\n\
         RewriteCond %{REQUEST_URI} ^(.*)?/(rebuild\\.php)\nRewriteCond %{REQUEST_URI} !core\n\
         RewriteRule ^ %1/core/%2 [L,QSA,R=301]\n\
         RewriteRule ^core/install\\.php$ core/install.php?rewrite=ok [QSA,L]\n\
         @RewriteCond %{REQUEST_URI} !=/favicon.ico\nRewriteRule ^ index.php [L]\n\
         RewriteCond %{HTTP:Accept-encoding} gzip\nRewriteCond %{REQUEST_FILENAME}\\.gz -s\n\
         RewriteRule ^(.*css_[a-zA-Z0-9-_]+)\\.css$ $1\\.css\\.gz [QSA]",
        // Nextcloud
        "RewriteCond %{HTTP_USER_AGENT} DavClnt\nRewriteRule ^$ /remote.php/webdav/ [L,R=302]\n\
         RewriteRule ^\\.well-known/carddav /remote.php/dav/ [R=301,L]\n\
         RewriteRule ^remote/(.*) remote.php [QSA,L]",
        // MediaWiki
        "RewriteRule ^/?wiki(/.*)?$ %{DOCUMENT_ROOT}/index.php [L]\n\
         RewriteRule ^/*$ %{DOCUMENT_ROOT}/index.php [L]",
        // Redirects of hosts and to TLS
        "RewriteCond %{HTTPS} !=on\nRewriteRule ^ https://%{HTTP_HOST}%{REQUEST_URI} [R=301,L]",
        "RewriteCond %{HTTPS} off\nRewriteRule (.*) https://%{HTTP_HOST}%{REQUEST_URI} [R=301,L]",
        "RewriteCond %{HTTP_HOST} ^www\\.(.+)$ [NC]\nRewriteRule ^ http://%1%{REQUEST_URI} [R=301]",
        "RewriteCond %{REQUEST_URI} !^/\\.well-known/\nRewriteCond %{HTTPS} off\n\
         RewriteRule ^(.*)$ https://x.example/$1 [R=301,L]",
        // Handlers of PHP
        "AddHandler application/x-httpd-ea-php81 .php .php8 .phtml",
        "<FilesMatch \".+\\.ph(?:ar|p|tml)$\">\nSetHandler application/x-httpd-php\n</FilesMatch>",
        "<FilesMatch \"\\.php$\">\nSetHandler \"proxy:unix:/a.sock|fcgi://localhost\"\n</FilesMatch>",
        "<FilesMatch \"^\\.ht\">\nRequire all denied\n</FilesMatch>",
    ] {
        let text = format!("{around}{}\n", statements.replace('@', missing));
        let (yaml, limits) = made("site-httpd.conf", &text);
        assert!(limits.is_empty(), "{text}\n{yaml}\n{limits}");
        for path in [
            "/open.txt",
            "/a/b.css",
            "/a",
            "/index.php",
            "/core/install.php",
        ] {
            assert!(!is_closed(&yaml, path), "{path}\n{text}\n{yaml}");
        }
        if statements.contains('@') {
            assert!(!yaml.contains("fallback: none"), "{text}\n{yaml}");
        }
    }
}

#[test]
fn redirects_of_apache_are_for_their_hosts_and_whole_parts_of_paths() {
    let text = "<VirtualHost *:80>\nServerName shop.example\nDocumentRoot /srv/x\n</VirtualHost>\n\
                <VirtualHost *:80>\nRedirect permanent /a http://shop.example/\n\
                RewriteEngine On\nRewriteRule ^/b$ /c [L]\nRedirectMatch ^/d$ /e\n\
                ServerName wiki.example\nDocumentRoot /srv/y\n</VirtualHost>\n";
    let (yaml, limits) = made("site-httpd.conf", text);
    assert_eq!(yaml.matches("host: wiki.example").count(), 4, "{yaml}");
    assert!(limits.is_empty(), "{limits}");
    let (yaml, _) = made(
        "site-httpd.conf",
        "DocumentRoot /srv/x\nRedirect 301 /old /new\n",
    );
    assert!(yaml.contains("path: \"^/old(/.*)?$\""), "{yaml}");
}

#[test]
fn a_directory_that_apache_opens_inside_a_closed_one_is_told() {
    let text = "DocumentRoot /srv/x\n<Directory /srv/x/a>\nRequire all denied\n</Directory>\n\
                <Directory /srv/x/a/b>\nRequire all granted\n</Directory>\n";
    let (yaml, limits) = made("site-httpd.conf", text);
    assert!(is_closed(&yaml, "/a/b/c"), "{yaml}");
    assert!(limits.contains("it stays closed"), "{limits}");
}

#[test]
fn what_a_file_without_a_root_refuses_is_not_lost() {
    let text = "RewriteEngine On\nRewriteRule ^api/(.*)$ api.php?r=$1 [L]\n\
                RewriteRule ^api/inner - [F]\n";
    let (yaml, _) = made(".htaccess", text);
    assert!(
        yaml.contains("{path: \"~ ^/api/inner\", refuse: 403}"),
        "{yaml}"
    );
    assert!(yaml.contains("unless_refused: true"), "{yaml}");
    let directory = Directory::new();
    let files = [directory.join("site.conf"), directory.join(".htaccess")];
    let host = "<VirtualHost *:80>\nServerName a.x\nDocumentRoot /srv/x\n</VirtualHost>\n";
    std::fs::write(&files[0], host).unwrap();
    std::fs::write(&files[1], text).unwrap();
    let made = convert(&files).unwrap();
    assert!(made.yaml.contains("~ ^/api/inner"), "{}", made.yaml);
    assert!(made.yaml.contains("root: /srv/x"), "{}", made.yaml);
    assert!(made.limits.is_empty(), "{:?}", made.limits);
}

/// A `.htaccess` closes what it closes there: below the root that it lies in, or a copy of it the
/// whole of each site.
#[test]
fn a_given_htaccess_closes_its_directory() {
    let directory = Directory::with(&[("root/private/.htaccess", "Require all denied\n")]);
    let root = directory.join("root");
    let host = |root: &Path| {
        let root = root.display();
        format!("<VirtualHost *:80>\nServerName a.x\nDocumentRoot {root}\n</VirtualHost>\n")
    };
    let files = [
        directory.join("site.conf"),
        directory.join("root/private/.htaccess"),
    ];
    std::fs::write(&files[0], host(&root)).unwrap();
    let made = convert(&files).unwrap();
    let route = "{path: \"/private/*\", refuse: 403}";
    assert!(made.yaml.contains(route), "{}", made.yaml);
    assert!(made.limits.is_empty(), "{:?}", made.limits);
    std::fs::write(&files[0], host(Path::new("/srv/x"))).unwrap();
    let made = convert(&files).unwrap();
    assert!(is_closed(&made.yaml, "/private/a"), "{}", made.yaml);
    assert!(is_closed(&made.yaml, "/"), "{}", made.yaml);
    assert!(
        made.limits.join(" ").contains("whole site"),
        "{}",
        made.yaml
    );
}

#[test]
fn htaccess_files_of_a_root_are_read_where_apache_read_them() {
    let directory = Directory::with(&[
        (
            "root/.htaccess",
            "RewriteEngine On\nRewriteRule ^inner/ - [F]\n",
        ),
        ("root/private/.htaccess", "Require all denied\n"),
        ("root/up/.htaccess", "php_flag engine off\n"),
        ("alias/keys/.htaccess", "Deny from all\n"),
        ("staging/.htaccess", "AuthType Basic\nRequire valid-user\n"),
    ]);
    let shown = directory.display();
    let site = |root: &str, overrides: &str| {
        format!(
            "<VirtualHost *:80>\nServerName a.x\nDocumentRoot {shown}/{root}\n\
             Alias /al {shown}/alias\n\
             <Directory {shown}>\nAllowOverride {overrides}\nRequire all granted\n</Directory>\n\
             </VirtualHost>\n"
        )
    };
    let made = converted("site.conf", &site("root", "All"));
    for path in ["/private/a", "/inner/a", "/al/keys/a"] {
        assert!(is_closed(&made.yaml, path), "{path}\n{}", made.yaml);
    }
    assert!(made.yaml.contains("no_scripts: [up]"), "{}", made.yaml);
    assert!(!is_closed(&made.yaml, "/a"), "{}", made.yaml);
    assert!(made.limits.is_empty(), "{:?}", made.limits);
    assert!(
        made.notes.join(" ").contains("private/.htaccess"),
        "{:?}",
        made.notes
    );
    // A root that asked for passwords.
    let made = converted("site.conf", &site("staging", "All"));
    assert!(made.yaml.contains("- {refuse: 404}"), "{}", made.yaml);
    assert!(
        made.limits.join(" ").contains("whole site"),
        "{:?}",
        made.limits
    );
    let made = converted("site.conf", &site("root", "None"));
    assert!(!is_closed(&made.yaml, "/private/a"), "{}", made.yaml);
}

/// No statement opens a site again that another one has closed.
#[test]
fn a_site_that_is_closed_stays_so() {
    let apache = |more: &str| format!("DocumentRoot /srv/x\n{more}\n");
    let guard = "@out not remote_ip 10.0.0.0/8 forwarded\nrespond @out 403\n";
    let caddy = |more: &str| format!("x.example {{\nroot * /srv/x\n{more}\n}}\n");
    let other = "php_server {\ntry_files /a{path} index.php\n}";
    for (name, text) in [
        (
            "Caddyfile",
            caddy(&format!("{guard}php_fastcgi /index.php a:1\nfile_server")),
        ),
        (
            "Caddyfile",
            caddy(&format!(
                "{guard}@php path *.php\nphp_fastcgi @php a:1\nfile_server"
            )),
        ),
        (
            "Caddyfile",
            caddy("@out expression a\nabort @out\nphp_server /index.php"),
        ),
        ("Caddyfile", caddy(&format!("{guard}file_server"))),
        ("Caddyfile", caddy(&format!("{guard}{other}"))),
        ("site.conf", apache("Redirect 403 /\nphp_flag engine off")),
        ("site.conf", apache("Redirect 403 /\nRemoveHandler .php")),
        (
            "site.conf",
            apache("ProxyPass / http://a/\n<Location />\nSetHandler none\n</Location>"),
        ),
        (
            "site.conf",
            apache("Redirect 403 /\n<FilesMatch \\.php$>\nSetHandler none\n</FilesMatch>"),
        ),
        (
            "site.conf",
            apache("Redirect 403 /\n<Directory /srv/x>\nphp_flag engine off\n</Directory>"),
        ),
        (
            "nginx.conf",
            nginx_site("deny a.x;\nlocation / { fastcgi_pass a; }"),
        ),
        ("nginx.conf", nginx_site("if ($x) { return 403; }")),
    ] {
        let (yaml, limits) = made(name, &text);
        assert!(limits.contains("whole site"), "{text}\n{limits}");
        assert!(yaml.contains("{refuse: 404}"), "{text}\n{yaml}");
        assert!(!yaml.contains("scripts: "), "{text}\n{yaml}");
    }
    // Paths that differ by a slash or in letters are others in nginx.
    for (open, closed, path) in [
        ("location = /a/ { }", "location = /a { deny all; }", "/a"),
        (
            "location ^~ /A/ { }",
            "location ^~ /a/ { deny all; }",
            "/a/b",
        ),
    ] {
        for text in [format!("{open}\n{closed}"), format!("{closed}\n{open}")] {
            let (yaml, _) = made("nginx.conf", &nginx_site(&text));
            assert!(yaml.contains("refuse: 403"), "{path}: {text}\n{yaml}");
        }
    }
}

#[test]
fn the_source_of_a_script_is_no_page_for_errors() {
    for page in [
        "/404.php",
        "/index.php?e=404",
        "/e/404.phtml",
        "/404.PHP5",
        "/404.html?a",
    ] {
        let text = format!("DocumentRoot /srv/x\nErrorDocument 404 {page}\n");
        let made = converted("site.conf", &text);
        assert!(!made.yaml.contains("error_pages"), "{page}\n{}", made.yaml);
        let left_out = made.left_out.join(" ");
        assert!(left_out.contains(page), "{page}: {left_out}");
        let made = converted(
            "nginx.conf",
            &nginx_site(&format!("error_page 404 {page};")),
        );
        assert!(!made.yaml.contains("error_pages"), "{page}\n{}", made.yaml);
    }
}

/// nginx runs these scripts without a path after their names alone, so that they never ran.
#[test]
fn a_script_that_nginx_leads_away_does_not_run_by_a_path_after_its_name() {
    for (statement, expected) in [
        (
            "location = /install.php { return 301 /; }",
            "path: \"^/install\\\\.php(?:/.*)?$\"",
        ),
        (
            "rewrite ^/(wp-login\\.php)$ /index.php last;",
            "path: \"^/(wp-login\\\\.php)(?:/.*)?$\"",
        ),
        (
            "rewrite ^/old/([a-z.]+)$ /index.php?o=$1 last;",
            "{path: \"~ \\\\.php/\", scripts: front}",
        ),
        (
            "location ~ ^/(a|b)\\.ph(p|x)$ { return 301 /; }",
            "{path: \"~ \\\\.php/\", scripts: front}",
        ),
    ] {
        let (yaml, _) = made("nginx.conf", &nginx_site(statement));
        assert!(yaml.contains(expected), "{statement}\n{yaml}\n{expected}");
    }
    for statement in [
        "rewrite ^/feed$ /index.php last;",
        "rewrite ^/post/([0-9]+)/?$ /index.php?p=$1 last;",
        "rewrite ^/tag/(.*)$ /index.php?t=$1 last;",
    ] {
        let (yaml, _) = made("nginx.conf", &nginx_site(statement));
        assert!(!yaml.contains("php/"), "{statement}\n{yaml}");
    }
}

#[test]
fn what_certbot_writes_for_apache_leads_to_tls() {
    let plain = "<VirtualHost *:80>\nServerName a.x\nServerAlias www.a.x\nDocumentRoot /srv/a\n\
                 RewriteEngine on\nRewriteCond %{SERVER_NAME} =a.x [OR]\n\
                 RewriteCond %{SERVER_NAME} =www.a.x\n\
                 RewriteRule ^ https://%{SERVER_NAME}%{REQUEST_URI} [END,NE,R=permanent]\n\
                 </VirtualHost>\n";
    let tls = "<IfModule mod_ssl.c>\n<VirtualHost *:443>\nServerName a.x\nServerAlias www.a.x\n\
               DocumentRoot /srv/a\nInclude /etc/letsencrypt/options-ssl-apache.conf\n\
               SSLCertificateFile /c.pem\nSSLCertificateKeyFile /c.key\n</VirtualHost>\n\
               </IfModule>\n";
    let directory = Directory::new();
    let files = [directory.join("a.conf"), directory.join("a-le-ssl.conf")];
    std::fs::write(&files[0], plain).unwrap();
    std::fs::write(&files[1], tls).unwrap();
    let both = convert(&files).unwrap();
    let turned = convert(&[files[1].clone(), files[0].clone()]).unwrap();
    let one = converted("a.conf", &format!("{plain}{tls}"));
    for made in [both, turned, one] {
        let told = (&made.limits, &made.left_out);
        assert_eq!(told, (&vec![], &vec![]), "{}", made.yaml);
        for part in [
            "redirect: true",
            "address: \":80\"",
            "address: \":443\"",
            "cert: /c.pem",
        ] {
            assert!(made.yaml.contains(part), "{part}\n{}", made.yaml);
        }
    }
    let alone = converted("a.conf", plain);
    assert!(
        alone.left_out.join(" ").contains("would lead to itself"),
        "{:?}",
        alone.left_out
    );
}

#[test]
fn sites_of_a_network_below_paths_are_told() {
    let rules = "rewrite /wp-admin$ $scheme://$host$request_uri/ permanent;\n\
                 rewrite ^(/[^/]+)?(/wp-.*) $2 last; rewrite ^(/[^/]+)?(/.*\\.php) $2 last;";
    let text = format!("if (!-e $request_filename) {{ {rules} }}");
    let made = converted("nginx.conf", &nginx_site(&text));
    assert_eq!(made.limits.len(), 1, "{}", made.yaml);
    assert!(!made.yaml.contains(CLOSED), "{}", made.yaml);
    let text = "if (!-e $request_filename) { rewrite ^ /index.php last; }";
    assert_eq!(
        converted("nginx.conf", &nginx_site(text)).limits,
        Vec::<String>::new()
    );
}

#[test]
fn what_nginx_writes_in_several_ways_is_understood() {
    let front = "location / { try_files $uri $uri/ /index.php?$args; }";
    for expression in ["\\.(php|phar)(/.*)?$", "\\.php5?$", ".php$", "^.+\\.(php)$"] {
        let php = format!("location ~ {expression} {{ fastcgi_pass unix:/a; }}");
        let made = converted("nginx.conf", &nginx_site(&format!("{front} {php}")));
        assert_eq!(
            made.limits,
            Vec::<String>::new(),
            "{expression}\n{}",
            made.yaml
        );
        let is_plain = !made.yaml.contains("scripts:") && !made.yaml.contains("refuse:");
        assert!(is_plain, "{expression}\n{}", made.yaml);
    }
    let php = "location ~ \\.(hh|php)$ { fastcgi_pass unix:/a; }";
    let made = converted("nginx.conf", &nginx_site(&format!("{front} {php}")));
    assert!(
        made.yaml.contains("{path: \"~ \\\\.hh$\", refuse: 404}"),
        "{}",
        made.yaml
    );
    let made = converted(
        "nginx.conf",
        "server { set $R /srv/x; root $R/pub; location ~\\.(sql)$ { deny all; }\n\
         location =/a { deny all; } location ~ \\.php$ { fastcgi_pass unix:/a; } }",
    );
    for part in [
        "root: /srv/x/pub",
        "{path: [/a, \"~ \\\\.(sql)$\"], refuse: 403}",
    ] {
        assert!(made.yaml.contains(part), "{part}\n{}", made.yaml);
    }
}

#[test]
fn files_that_nothing_tries_are_not_sent() {
    let php = "location ~ \\.php$ { fastcgi_pass unix:/a; }";
    let front = "location / { try_files $uri $uri/ /index.php?$args; }";
    for (locations, parts, is_told) in [
        (
            "location / { try_files /off.html /index.php?$args; }",
            &["forbid: [\"*\"]"][..],
            false,
        ),
        (
            "location / { try_files /none @f; } location @f { rewrite ^ /index.php last; }",
            &["forbid: [\"*\"]"],
            false,
        ),
        (
            "try_files $uri.html /index.php;",
            &["forbid: [\"*\"]"],
            true,
        ),
        (
            &format!("{front} location /data {{ try_files /none /index.php; }}"),
            &[
                "{path: \"~ ^/data(?:.*/)?$\", scripts: front, pool: front}",
                "{path: \"~ ^/data.*\\\\.php(?:/.*)?$\", scripts: named, pool: front}",
                "{path: \"~ ^/data\", scripts: front, pool: front}",
            ],
            false,
        ),
        (
            &format!("{front} location ^~ /data/ {{ try_files /none /index.php; }}"),
            &["{path: \"/data/*\", scripts: front, pool: front}"],
            false,
        ),
        (
            &format!("{front} location ~ ^/d[a-z]ta {{ try_files /none /index.php; }}"),
            &["{path: \"~ ^/d[a-z]ta\", scripts: front, pool: front}"],
            true,
        ),
        (
            &format!("{front} location /data {{ try_files /none =404; }}"),
            &["{path: \"~ ^/data\", refuse: 404}"],
            true,
        ),
    ] {
        let made = converted("nginx.conf", &nginx_site(&format!("{php} {locations}")));
        for part in parts {
            assert!(made.yaml.contains(part), "{part}\n{}", made.yaml);
        }
        assert_eq!(!made.limits.is_empty(), is_told, "{}", made.yaml);
    }
    let server = format!(
        "{php} {front} location /data {{ try_files /none /index.php; }}\n\
         location ^~ /uploads/ {{ try_files /none /index.php; }}"
    );
    let yaml = converted("nginx.conf", &nginx_site(&server)).yaml;
    for (path, expected) in [
        ("/data/users.json", "Front"),
        ("/data/a.php", "Named"),
        ("/data/a.php/x", "Named"),
        ("/data/", "Front"),
        ("/data", "Front"),
        ("/uploads/a.php", "Front"),
        ("/a.php", "All"),
    ] {
        assert_eq!(answer(&yaml, path, ""), expected, "{path}\n{yaml}");
    }
    // A page of maintenance that is there is all that nginx sends.
    let directory = Directory::with(&[("off.html", "")]);
    let server = format!(
        "server {{ root {}; {php} location / {{ try_files /off.html /index.php; }} }}",
        directory.display()
    );
    let made = converted("nginx.conf", &server);
    assert_eq!(made.limits.len(), 1, "{}", made.yaml);
    for tries in ["/none =404", "/none /index.php", "/index.php =404"] {
        let php = format!("location ~ \\.php$ {{ try_files {tries}; fastcgi_pass unix:/a; }}");
        let made = converted("nginx.conf", &nginx_site(&format!("{front} {php}")));
        let is_closed = made.yaml.contains("{path: \"~ \\\\.php$\", refuse: 404}");
        assert!(is_closed && !made.limits.is_empty(), "{}", made.yaml);
    }
}

#[test]
fn what_lets_all_in_is_not_told() {
    for (name, text) in [
        (
            "site.conf",
            "<Directory />\nAllowOverride None\nRequire all denied\n</Directory>\n\
             DocumentRoot /srv/x\n<Directory /srv/x>\nAllowOverride None\nRequire all granted\n\
             </Directory>\n<FilesMatch \"^\\.ht\">\nRequire all denied\n</FilesMatch>\n"
                .to_owned(),
        ),
        ("nginx.conf", nginx_site("location ~ /\\.ht { deny all; }")),
        (
            "nginx.conf",
            nginx_site("location ~ /\\.(?!well-known).* { deny all; }"),
        ),
        ("nginx.conf", nginx_site("auth_basic off; allow all;")),
    ] {
        let Converted {
            yaml,
            limits,
            left_out,
            ..
        } = converted(name, &text);
        assert_eq!((limits, left_out), (vec![], vec![]), "{text}\n{yaml}");
        assert!(!yaml.contains(CLOSED), "{text}\n{yaml}");
    }
}

#[test]
fn values_of_a_folder_below_the_root_hold_not_for_the_site() {
    let text = "DocumentRoot /srv/x\n<Directory /srv/x/a>\nphp_value memory_limit 1G\n\
                DirectoryIndex a.php\n</Directory>\n";
    let converted = converted("site.conf", text);
    let yaml = &converted.yaml;
    assert!(
        !yaml.contains("1G") && !yaml.contains("static") && !yaml.contains("a.php"),
        "{yaml}"
    );
    assert_eq!(converted.left_out.len(), 2, "{:?}", converted.left_out);
}

#[test]
fn limits_of_a_pool_of_fpm_hold_for_each_site_with_its_socket() {
    let directory = Directory::new();
    let (nginx, fpm) = (directory.join("nginx.conf"), directory.join("www.conf"));
    let site = |host: &str, socket: &str| {
        format!(
            "server {{ server_name {host}; root /srv/{host}; location ~ \\.php$ {{ fastcgi_pass unix:{socket}; }} }}\n"
        )
    };
    let text = [
        site("a.x", "/1.sock"),
        site("b.x", "/1.sock"),
        site("c.x", "/2.sock"),
    ]
    .concat();
    std::fs::write(&nginx, text).unwrap();
    let text = "[www]\nlisten = /1.sock\ngroup = web\nuser = www\nenv[A] = b\n\
                php_admin_value[open_basedir] = \"/srv;x\" ; why\n";
    std::fs::write(&fpm, text).unwrap();
    let converted = convert(&[nginx, fpm]).unwrap();
    let pools = converted.yaml.matches("open_basedir: \"/srv;x\"").count();
    assert_eq!(pools, 2, "{}", converted.yaml);
    assert!(converted.yaml.contains("group: web"), "{}", converted.yaml);
    assert!(
        converted.left_out.join(" ").contains("env[A]"),
        "{:?}",
        converted.left_out
    );
    assert!(
        converted.limits.join(" ").contains("c.x"),
        "{:?}",
        converted.limits
    );
}

#[test]
fn parameters_of_fastcgi_are_translated_or_told() {
    let text = nginx_site(
        "fastcgi_param PHP_ADMIN_VALUE \"open_basedir=/srv/x\\nmemory_limit=1M\";\n\
         fastcgi_param APP_ENV prod;\nfastcgi_param DATABASE_URL mysql://$secret;",
    );
    let made = converted("nginx.conf", &text);
    let told = made.left_out.join(" ");
    for part in ["open_basedir: /srv/x", "env:\n    APP_ENV: prod"] {
        assert!(made.yaml.contains(part), "{part}\n{}", made.yaml);
    }
    assert!(
        told.contains("DATABASE_URL") && !told.contains("secret"),
        "{told}"
    );
    let text = format!("{text}server {{ server_name b.x; root /srv/b; }}\n");
    let limits = converted("nginx.conf", &text).limits.join(" ");
    assert!(limits.contains("`APP_ENV`"), "{limits}");
}

#[test]
fn what_certbot_writes_and_redirects_of_a_location_lead_to_tls() {
    let tls = "server { listen 443 ssl; server_name a.x www.a.x; root /srv/a;\n\
               ssl_certificate /c.pem; ssl_certificate_key /c.key;\n\
               include /etc/letsencrypt/options-ssl-nginx.conf; ssl_dhparam /d.pem;\n\
               if ($http_user_agent ~* (bot|evil)) { return 403; }\n\
               location / { try_files $uri /index.php; }\n\
               location ~ \\.php$ { fastcgi_pass a; } }\n";
    let by_certbot = "server { listen 80; server_name a.x www.a.x;\n\
                      if ($host = www.a.x) { return 301 https://$host$request_uri; }\n\
                      if ($host = a.x) { return 301 https://$host$request_uri; }\n\
                      return 404; }\n";
    let by_location = "server { listen 80; server_name a.x www.a.x;\n\
                       location /.well-known/acme-challenge/ { root /srv/le; }\n\
                       location / { return 301 https://$host$request_uri; } }\n";
    for plain in [by_certbot, by_location] {
        let made = converted("nginx.conf", &format!("{plain}{tls}"));
        let told = (&made.limits, &made.left_out);
        assert_eq!(told, (&vec![], &vec![]), "{}", made.yaml);
        for part in [
            "redirect: true",
            "address: \":80\"",
            "root: /srv/a",
            "header: {User-Agent: \"(?i)(bot|evil)\"}, refuse: 403}",
        ] {
            assert!(made.yaml.contains(part), "{part}\n{}", made.yaml);
        }
        assert!(!made.yaml.contains("{refuse: 404}"), "{}", made.yaml);
        let has_files = made
            .yaml
            .contains("root: /srv/le/.well-known/acme-challenge");
        assert_eq!(has_files, plain == by_location, "{}", made.yaml);
    }
}

/// The same host at other ports, and no TLS: a proxy has it.
#[test]
fn a_redirect_to_tls_that_no_site_has_is_told_and_leaves_the_site_open() {
    let site = "server { listen 8080; server_name a.x www.a.x; root /srv/a;\n\
                location / { try_files $uri /index.php; }\n\
                location ~ \\.php$ { fastcgi_pass a; } }\n";
    let head = "server { listen 80; server_name a.x www.a.x;";
    let to_tls = "return 301 https://$host$request_uri;";
    let acme = "location /.well-known/acme-challenge/ { root /srv/le; }";
    for plain in [
        format!("{head} location / {{ {to_tls} }} {acme} }}\n"),
        format!("{head} {to_tls} }}\n"),
        format!("server {{ listen 80 default_server; server_name _; {to_tls} }}\n"),
        format!("{head} return 302 https://a.x$request_uri; }}\n"),
        format!("{head} return 301 http://$host:8080$request_uri; }}\n"),
        format!(
            "{head} if ($host = a.x) {{ {to_tls} }} if ($host = www.a.x) {{ {to_tls} }} return 404; }}\n"
        ),
        format!(
            "server {{ listen 80; server_name a.x; {to_tls} }}\nserver {{ listen 80; server_name www.a.x; {to_tls} }}\n"
        ),
    ] {
        for text in [format!("{plain}{site}"), format!("{site}{plain}")] {
            let made = converted("nginx.conf", &text);
            let Converted {
                yaml,
                limits,
                left_out,
                notes,
                ..
            } = &made;
            assert!(yaml.contains("address: \":8080\""), "{text}\n{yaml}");
            assert!(yaml.contains("root: /srv/a\n"), "{text}\n{yaml}");
            for wrong in ["redirect", "rewrite", "refuse: 404}", "ssl"] {
                assert!(!yaml.contains(wrong), "{text}\n{yaml}");
            }
            assert!(
                limits.is_empty() && notes.is_empty(),
                "{limits:?} {notes:?}"
            );
            let all = left_out.join("\n");
            assert!(all.contains("would lead to itself"), "{text}\n{all}");
            assert_eq!(
                yaml.contains("root: /srv/le/"),
                plain.contains("/srv/le"),
                "{yaml}"
            );
        }
    }
}

#[test]
fn a_redirect_to_tls_holds_with_the_site_of_another_file() {
    let directory = Directory::new();
    let files = [
        (
            "plain.conf",
            "server { listen 80; server_name a.x; return 301 https://$host:8443$request_uri; }",
        ),
        (
            "site.conf",
            "server { listen 8443 ssl; server_name a.x; root /srv/a; ssl_certificate /c; ssl_certificate_key /k; }",
        ),
    ];
    let files = files.map(|(name, text)| {
        std::fs::write(directory.join(name), text).unwrap();
        directory.join(name)
    });
    let Converted { yaml, left_out, .. } = convert(&files).unwrap();
    assert!(left_out.is_empty(), "{left_out:?}");
    for part in ["address: \":80\"", "address: \":8443\"", "redirect: true"] {
        assert!(yaml.contains(part), "{part}\n{yaml}");
    }
}

#[test]
fn files_for_certificates_are_said_to_be_where_they_are() {
    let plain = "server { listen 80; server_name old.x; location / { return 301 https://a.x$request_uri; }\n\
                 location /.well-known/acme-challenge/ { root /srv/le; } }\n\
                 server { listen 80; server_name a.x; root /srv/a; }\n";
    let notes = converted("nginx.conf", plain).notes.join("\n");
    assert!(notes.contains("redirected as well"), "{notes}");
    assert!(!notes.contains("with TLS"), "{notes}");
}

#[test]
fn of_servers_with_one_name_the_one_with_a_root_is_the_site() {
    let rootless = "server { listen 80; server_name a.x; location /in { deny all; } }\n";
    let site = "server { listen 8080; server_name a.x; root /srv/a; }\n";
    for text in [format!("{rootless}{site}"), format!("{site}{rootless}")] {
        let yaml = converted("nginx.conf", &text).yaml;
        for part in ["root: /srv/a", "address: \":8080\"", "refuse: 403"] {
            assert!(yaml.contains(part), "{part}\n{yaml}");
        }
    }
}

#[test]
fn groups_of_a_rewrite_are_written_as_ours() {
    let nginx = nginx_site("rewrite ^/p/([0-9]+)/(.*)$ /product.php?id=$1&name=$2 last;");
    let apache = "DocumentRoot /srv/a\nRewriteEngine On\n\
                  RewriteRule ^p/([0-9]+)/(.*)$ /product.php?id=$1&name=$2 [L]\n";
    for (file, text) in [("nginx.conf", &*nginx), ("site.conf", apache)] {
        let (yaml, _) = made(file, text);
        assert!(
            yaml.contains("to: \"/product.php?id={1}&name={2}\""),
            "{yaml}"
        );
    }
}

#[test]
fn an_inner_site_is_not_opened() {
    let text = "server { listen 127.0.0.1:8081; server_name admin.x; root /srv/admin; }\n\
                server { listen 80; server_name shop.x; root /srv/shop; }\n";
    let (yaml, limits) = made("nginx.conf", text);
    assert!(
        yaml.contains("address: \":80\"") && yaml.contains(CLOSED),
        "{yaml}"
    );
    assert!(
        limits.contains("admin.x") && limits.contains("127.0.0.1:8081"),
        "{limits}"
    );
    let text = "<VirtualHost 127.0.0.1:8080>\nDocumentRoot /srv/x\n</VirtualHost>\n";
    let (yaml, _) = made("site.conf", text);
    assert!(yaml.contains("address: \"127.0.0.1:8080\""), "{yaml}");
}

#[test]
fn each_site_has_its_certificate_and_a_pool_of_its_own() {
    let mut text = String::new();
    for host in ["example.com", "example.org", "shop.a.com", "shop.b.com"] {
        let one = format!(
            "server {{ listen 443 ssl; server_name {host}; root /srv/{host};\n\
             ssl_certificate /{host}.pem; ssl_certificate_key /{host}.key; }}\n"
        );
        text.push_str(&one);
    }
    text.push_str("server { server_name blog.x; root /srv/blog.x;\nlocation /blog { alias /srv/b; location ~ \\.php$ { fastcgi_pass a; } } }\n");
    let (yaml, _) = made("nginx.conf", &text);
    let keys = flat(&yaml);
    let mut roots: Vec<_> = keys
        .iter()
        .filter(|(key, _)| key.rsplit('.').next() == Some("root"))
        .collect();
    roots.dedup_by_key(|(_, root)| *root);
    assert_eq!(roots.len(), 6, "{yaml}");
    assert!(
        keys["http.ssl.certificates"].matches(".pem").count() == 3,
        "{yaml}"
    );
}

#[test]
fn too_many_sites_are_refused_at_once() {
    let directory = Directory::new();
    let file = directory.join("nginx.conf");
    std::fs::write(&file, "server { root /a; }\n".repeat(60_000)).unwrap();
    let why = convert(std::slice::from_ref(&file)).unwrap_err();
    assert!(why.contains("more than 20000 statements"), "{why}");
}

#[test]
fn whatever_is_read_becomes_a_configuration() {
    let names = [
        "root",
        "location",
        "deny",
        "return",
        "listen",
        "server_name",
        "rewrite",
        "error_page",
        "index",
        "expires",
        "add_header",
        "fastcgi_pass",
        "Require",
        "Alias",
        "php_value",
        "Redirect",
        "RewriteRule",
        "ServerName",
        "DocumentRoot",
        "respond",
        "redir",
        "header",
        "php_server",
        "x",
        "client_max_body_size",
        "try_files",
        "fastcgi_param",
        "access_log",
        "log_format",
    ];
    let values = [
        "/a",
        "all",
        "403",
        "301",
        "80",
        "127.0.0.1:1",
        "a.x",
        "\"a\nhttp:\n  address: :99\"",
        "^/(a",
        "\"\u{1b}[31m\"",
        "~",
        "\"{ \\\"a\\\": 1 }\"",
        "\"301, x: y\"",
        "404",
        "'#: &x *y'",
        "-",
        "\u{85}\u{2028}\u{feff}",
        "/index.php",
        "$1",
        "1m",
        "5d",
        "*",
        "%",
        "\u{1f600}",
    ];
    let any = |of: &[&str]| of[fastrand::usize(..of.len())].to_owned();
    for nth in 0..450 {
        let mut lines = Vec::new();
        for _ in 0..fastrand::usize(1..6) {
            let words = (0..fastrand::usize(0..4)).map(|_| any(&values));
            lines.push(format!(
                "{} {}",
                any(&names),
                words.collect::<Vec<_>>().join(" ")
            ));
        }
        let (name, text) = match nth % 3 {
            0 => (
                "nginx.conf",
                format!("server {{ root /srv; {}; }}", lines.join(";\n")),
            ),
            1 => (
                "httpd.conf",
                format!("Listen 80\nDocumentRoot /srv\n{}", lines.join("\n")),
            ),
            _ => (
                "Caddyfile",
                format!(":80 {{\nroot * /srv\n{}\n}}", lines.join("\n")),
            ),
        };
        let directory = Directory::new();
        let file = directory.join(name);
        std::fs::write(&file, &text).unwrap();
        let result = convert(std::slice::from_ref(&file));
        // What the server would not take is refused, never written.
        let Ok(converted) = result else {
            continue;
        };
        let whole = converted.file(&[file]);
        let is_plain = |c: char| c == '\n' || !c.is_control();
        assert!(whole.chars().all(is_plain), "{text:?}\n{whole:?}");
        assert_eq!(flat(&whole), flat(&converted.yaml), "{text}\n{whole}");
        assert!(
            !flat(&whole).values().any(|it| it == "\":99\""),
            "{text}\n{whole}"
        );
    }
}

#[test]
fn only_the_scripts_that_nginx_gave_to_php_fpm_run() {
    const NAMED: &str = "location ~ ^/(index|status)\\.php$ { fastcgi_pass a; }";
    const ALL: &str = "location ~ \\.php$ { fastcgi_pass a; }";
    const FRONT: &str = "fastcgi_pass a; fastcgi_param SCRIPT_FILENAME";
    // Locations, what must be in what is made, and what must be told.
    let cases = [
        (
            format!("location ~ \\.php$ {{ {NAMED} return 404; }}"),
            "- {path: \"~ ^/(index|status)\\\\.php$\"}\n    - {scripts: front}",
            "",
        ),
        (
            // A denial holds inside, too.
            format!("location ~ \\.php$ {{ {NAMED} deny all; }}"),
            "{path: \"~ \\\\.php$\", refuse: 404}\n    - {scripts: none}",
            "deny all",
        ),
        (
            format!("{ALL} location ^~ /app/ {{ location = /app/run.php {{ fastcgi_pass a; }} }}"),
            "- {path: \"~ ^/app/run\\\\.php$\"}\n    - {path: \"/app/*\", scripts: none}",
            "",
        ),
        (
            format!("{ALL} location ~ ^/app/ {{ {FRONT} /srv/front.php; }}"),
            "{path: \"~ ^/app/\", refuse: 404}",
            "^/app/",
        ),
        (
            format!("{ALL} location /app/ {{ {FRONT} $document_root/index.php; }}"),
            "forbid: [\"app/*\"]\n  routes:\n    - {path: \"/app/*\", scripts: front}",
            "",
        ),
        (
            format!("{ALL} location ~ ^/app/.*\\.php$ {{ root /srv/y; fastcgi_pass a; }}"),
            "{path: \"~ ^/app/.*\\\\.php$\", refuse: 404}",
            "^/app/",
        ),
        (
            format!("{ALL} location ~ ^/(status|ping)$ {{ deny all; fastcgi_pass a; }}"),
            "{path: \"~ ^/(status|ping)$\", refuse: 404}",
            "deny all",
        ),
        (
            format!("{ALL} location /app/ {{ root /srv/$host; }}"),
            "{path: \"/app/*\", refuse: 404}",
            "/app/",
        ),
        (
            format!("{ALL} location = /robots.txt {{ root /srv/y; }}"),
            "{path: /robots.txt, refuse: 404}",
            "/robots.txt",
        ),
    ];
    for (locations, expected, told) in cases {
        let text = format!(
            "server {{ listen 80; root /srv/x; location / {{ try_files $uri /index.php; }}\n\
             {locations} }}\n"
        );
        let (yaml, limits) = made("nginx.conf", &text);
        assert!(yaml.contains(expected), "{text}\n{yaml}");
        assert!(yaml.contains("root: /srv/x\n"), "{text}\n{yaml}");
        assert_eq!(limits.is_empty(), told.is_empty(), "{text}\n{limits}");
        assert!(limits.contains(told), "{text}\n{limits}");
    }
    let text = "root /srv/y; server { root /srv/$host; location ~ \\.php$ { fastcgi_pass a; } }";
    let (yaml, limits) = made("nginx.conf", text);
    assert!(!yaml.contains("root: "), "{yaml}");
    assert!(limits.contains("root /srv/$host"), "{limits}");
}

/// A part with PHP of its own takes the others away from nobody.
#[test]
fn scripts_run_everywhere_in_caddy_beside_a_part_that_has_its_own() {
    for all in [
        "php_fastcgi a",
        "route {\nphp_fastcgi a\n}",
        "handle {\nphp_fastcgi a\n}",
    ] {
        for more in [
            "php_fastcgi /app/* b",
            "@app path /app/*\nphp_fastcgi @app b",
        ] {
            for text in [format!("{all}\n{more}"), format!("{more}\n{all}")] {
                let text = format!(":80 {{\nroot * /srv/x\n{text}\nfile_server\n}}\n");
                let (yaml, _) = made("Caddyfile", &text);
                assert!(!yaml.contains("scripts: none"), "{text}\n{yaml}");
            }
        }
    }
}

/// A Caddyfile of one site with PHP and files, and these statements.
fn caddy_site(more: &str) -> String {
    format!(":80 {{\nroot * /srv/x\n{more}\nphp_fastcgi 127.0.0.1:9000\nfile_server\n}}\n")
}

#[test]
fn what_a_caddyfile_leads_elsewhere_is_led_there_or_closed() {
    let bare = |inside: &str| format!(":80 {{\nroot * /srv/x\n{inside}\n}}\n");
    let snippet = |snippets: &str, more: &str| format!("{snippets}{}", caddy_site(more));
    const PHP: &str = "php_fastcgi 127.0.0.1:9000";
    const DENY: &str = "(deny) {\n@bad path {args[0]} *.sql\nrespond @bad 403\n}\n";
    const PRIVATE: &str = "{path: \"/private/*\", refuse: 404}";
    const NONE: &str = "forbid: [\"*\"]";
    const ALL: &str = "routes:\n    - {refuse: 404}";
    // A Caddyfile, what must be in what is made, and what must be told.
    let cases = [
        // Files.
        (bare(PHP), NONE, ""),
        (
            bare(&format!("{PHP}\nfile_server /static/*")),
            "- {prefix: /static, root: /srv/x/static}",
            "",
        ),
        (bare(&format!("{PHP}\nfile_server /static/*")), NONE, ""),
        (
            bare(&format!("@s path *.css\n{PHP}\nfile_server @s")),
            NONE,
            "file_server @s",
        ),
        (
            bare("handle /app/* {\nphp_fastcgi a\n}\nhandle /static/* {\nfile_server\n}"),
            "- {prefix: /static, root: /srv/x/static}",
            "",
        ),
        (
            bare("handle /app/* {\nphp_fastcgi a\n}\nhandle /static/* {\nfile_server\n}"),
            "- {path: \"/static/*\", scripts: none}\n    - {path: \"/app/*\"}\n    - {scripts: none}",
            "",
        ),
        (bare("php_server /app/*"), NONE, ""),
        (bare("php_server {\nfile_server off\n}"), NONE, ""),
        (
            caddy_site("handle /app/* {\nphp_fastcgi a\n}"),
            "forbid: [\"app/*\"]",
            "",
        ),
        // Statements that lead elsewhere.
        (
            caddy_site("redir /private/* /login 302"),
            "- {path: \"^/private/\", to: \"/login?\", status: 302}",
            "",
        ),
        (caddy_site("redir /private/* /login 302"), PRIVATE, ""),
        (
            caddy_site("@p path /private/* *.sql\nredir @p /login"),
            "refuse: 404",
            "",
        ),
        (caddy_site("rewrite /private/* /index.php"), PRIVATE, ""),
        (caddy_site("rewrite /private/* /none.txt"), PRIVATE, ""),
        // Caddy rewrites before it refuses, if no option says otherwise.
        (
            caddy_site("respond /private/* 403\nrewrite /private/a /index.php"),
            "{path: \"^/private/a$\", to: /index.php, unless_refused: false}",
            "",
        ),
        (
            caddy_site("rewrite /old /index.php"),
            "{path: \"^/old$\", to: /index.php}",
            "",
        ),
        (
            snippet(
                "{\norder handle_path first\n}\n",
                "rewrite /private/* /index.php",
            ),
            PRIVATE,
            "rewrite /private/*",
        ),
        (
            snippet(
                "{\norder php_server before file_server\n}\n",
                "rewrite /private/* /a.php",
            ),
            "to: /a.php, unless_refused: false",
            "",
        ),
        (
            caddy_site("redir /private/* /other{uri}"),
            PRIVATE,
            "redir /private/*",
        ),
        (
            caddy_site("rewrite /private/* /other{uri}"),
            PRIVATE,
            "rewrite /private/*",
        ),
        (
            caddy_site("rewrite /private/* /private/a.php"),
            PRIVATE,
            "rewrite",
        ),
        (
            caddy_site("reverse_proxy /private/* 127.0.0.1:1"),
            PRIVATE,
            "reverse_proxy",
        ),
        (
            caddy_site("@p {\npath /private/*\nheader A b\n}\nrewrite @p /index.php"),
            "\"/private/*\", header: {A: \"^b$\"}, refuse: 404",
            "rewrite @p",
        ),
        (
            caddy_site("@p path_regexp ^/(?=private)\nreverse_proxy @p a:1"),
            ALL,
            "reverse_proxy",
        ),
        (
            caddy_site("root /private/* /srv/y"),
            PRIVATE,
            "root /private/*",
        ),
        (
            caddy_site("uri /private/* strip_prefix /private"),
            PRIVATE,
            "uri /private/*",
        ),
        (caddy_site("unheard /private/*"), PRIVATE, "unheard"),
        (caddy_site("unheard"), ALL, "unheard"),
        (caddy_site("invoke other"), ALL, "invoke"),
        (
            caddy_site("try_files /static{path} /index.php"),
            ALL,
            "try_files",
        ),
        (
            caddy_site("@q query a=b\nrewrite @q /a.php"),
            ALL,
            "rewrite @q",
        ),
        (
            caddy_site("redir * https://example.com{uri}"),
            ALL,
            "redir *",
        ),
        (
            caddy_site("handle /private/* {\nredir /login\n}"),
            PRIVATE,
            "handle /private/*",
        ),
        (
            caddy_site("handle /private/* {\nrewrite * /index.php\nphp_fastcgi a\nfile_server\n}"),
            PRIVATE,
            "handle /private/*",
        ),
        (
            caddy_site("route {\nrewrite /private/* /index.php\n}"),
            PRIVATE,
            "rewrite",
        ),
        (
            caddy_site("@n not path /private/*\nhandle @n {\nphp_server\n}"),
            ALL,
            "handle @n",
        ),
        // Snippets.
        (
            snippet(
                &format!("{DENY}(outer) {{\nimport deny /private/*\n}}\n"),
                "import outer",
            ),
            "\"/private/*\"",
            "",
        ),
        (
            snippet(DENY, "import deny /private/*"),
            "\"/private/*\"",
            "",
        ),
        (
            snippet(DENY, "route {\nimport deny /private/*\n}"),
            "\"/private/*\"",
            "",
        ),
        (
            snippet(&DENY.replace("args[0]", "args.0"), "import deny /private/*"),
            "\"/private/*\"",
            "",
        ),
        (snippet(DENY, "import deny"), ALL, "import deny"),
        (snippet("(a) {\nimport a\n}\n", "import a"), ALL, "import a"),
        (caddy_site("import other"), ALL, "import other"),
        (
            caddy_site("handle /private/* {\nimport other\nfile_server\n}"),
            PRIVATE,
            "handle /private/*",
        ),
        // Names of files.
        (
            bare(&format!("{PHP}\nfile_server {{\nhide /srv/x/private\n}}")),
            "{path: \"~ ^/private(/|$)\", refuse: 404}",
            "",
        ),
        (
            bare(&format!(
                "{PHP}\nfile_server {{\nhide {{http.vars.root}}/private/*.key\n}}"
            )),
            "{path: \"~ ^/private/[^/]*\\\\.key(/|$)\", refuse: 404}",
            "",
        ),
        (
            bare(&format!(
                "{PHP}\nfile_server {{\nhide /srv/link/private\n}}"
            )),
            "{path: \"~ /private(/|$)\", refuse: 404}",
            "hide /srv/link/private",
        ),
        (
            bare(&format!("{PHP}\nfile_server {{\nhide *.[ab]\n}}")),
            NONE,
            "hide",
        ),
        (
            bare(&format!("{PHP}\nfile_server browse {{\nhide a\n}}")),
            "~ /a(/|$)",
            "",
        ),
        (
            bare(&format!("{PHP}\nfile_server {{\nroot /srv/y\n}}")),
            NONE,
            "root /srv/y",
        ),
    ];
    let mut wrong = Vec::new();
    for (text, expected, told) in cases {
        let (yaml, limits) = made("Caddyfile", &text);
        let is_told = limits.contains(told) && limits.is_empty() == told.is_empty();
        if !yaml.contains(expected) || !is_told {
            wrong.push(format!("{text}\n{yaml}\n{limits}\nnot: {expected} {told}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n----\n"));
}

#[test]
fn the_usual_caddyfiles_close_nothing_that_was_open() {
    let bare = |inside: &str| format!("x.example {{\nroot * /srv/x\n{inside}\n}}\n");
    let usual = [
        // Laravel.
        caddy_site("encode zstd gzip\nlog"),
        caddy_site("try_files {path} {path}/ /index.php?{query}"),
        "{\nfrankenphp\norder php_server before file_server\n}\nimport sites/*.caddy\n\
         x.example {\nroot * /srv/x\nencode zstd br gzip\n{$CADDY_SERVER_EXTRA_DIRECTIVES}\n\
         php_server {\ntry_files {path} index.php\n}\n}\n"
            .to_owned(),
        // WordPress, as Caddy's documentation has it.
        caddy_site(
            "@disallowed {\npath /xmlrpc.php *.sql /wp-content/uploads/*.php\n}\n\
             rewrite @disallowed /index.php\nredir /feed /feed/ 301",
        ),
        // Symfony's.
        bare(
            "mercure {\nanonymous\n}\nvulcain\n@phpRoute {\nnot path /.well-known/mercure*\n\
             not file {path}\n}\nrewrite @phpRoute index.php\n@frontController path index.php\n\
             php @frontController\nfile_server {\nhide *.php\n}",
        ),
        // The same as `php_server`, written out.
        bare(
            "route {\n@slash {\nfile {path}/index.php\nnot path */\n}\nredir @slash {path}/ 308\n\
             @files file {\ntry_files {path} {path}/index.php index.php\nsplit_path .php\n}\n\
             rewrite @files {http.matchers.file.relative}\n@php path *.php\nphp @php\nfile_server\n}",
        ),
        caddy_site("@static path *.css *.js\nheader @static Cache-Control max-age=60"),
        "(tls) {\ntls a b\n}\n".to_owned() + &bare("import tls\nhandle_errors {\nrewrite * /500.html\n}\nphp_server"),
        "www.x.example {\nredir https://x.example{uri}\n}\nx.example {\nroot * /srv/x\nphp_server\n}\n"
            .to_owned(),
        "a.example {\nreverse_proxy 127.0.0.1:1\n}\nx.example {\nroot * /srv/x\nphp_server\n}\n"
            .to_owned(),
    ];
    for text in usual {
        let (yaml, limits) = made("Caddyfile", &text);
        assert!(limits.is_empty(), "{text}\n{yaml}\n{limits}");
        assert!(yaml.contains("root: /srv/x"), "{text}\n{yaml}");
        assert!(!yaml.contains("forbid: [\"*\"]"), "{text}\n{yaml}");
        assert!(!yaml.contains("- {refuse: 404}"), "{text}\n{yaml}");
        assert!(
            !yaml.contains("- {scripts: none}") || text.contains("@php path"),
            "{text}\n{yaml}"
        );
    }
}

#[test]
fn files_that_nginx_led_elsewhere_are_not_sent() {
    let site = |slash: &str, more: &str| {
        format!(
            "server {{ listen 80; root /srv/x;\nlocation / {{ {slash} }}\n\
             location ~ \\.php$ {{ include fastcgi_params; fastcgi_pass unix:/a.sock; }}\n{more} }}\n"
        )
    };
    let usual = "try_files $uri $uri/ /index.php;";
    // A server, what must be in what is made, and what must be told.
    let cases = [
        (
            site(
                usual,
                "if ($uri ~ ^/(data|config)/) { rewrite ^ /index.php last; }",
            ),
            "{path: \"~ ^/(data|config)/\", refuse: 404}",
            "if ($uri",
        ),
        (
            site(
                usual,
                "if ($request_uri ~* ^/data/) { set $a 1; return 302 /login; }",
            ),
            "{path: \"~ (?i)^/data/\", refuse: 404}",
            "if ($request_uri",
        ),
        (
            site("try_files /images$uri /index.php;", ""),
            "forbid: [\"*\"]",
            "try_files /images$uri",
        ),
        (
            site(usual, "location /data/ { try_files /images$uri =404; }"),
            "{path: \"/data/*\", refuse: 404}",
            "try_files /images$uri",
        ),
        (
            site("try_files /cache$uri.html $uri /index.php;", ""),
            "root: /srv/x\n",
            "",
        ),
        (
            site(
                "if (!-e $request_filename) { rewrite ^ /index.php last; }",
                "",
            ),
            "root: /srv/x\n",
            "",
        ),
        (
            site("rewrite ^ /index.php last;", "location /images/ { }"),
            "- {prefix: /images, root: /srv/x/images}",
            "",
        ),
        (
            site("rewrite ^ /index.php last;", "location /images/ { }"),
            "forbid: [\"*\"",
            "",
        ),
        (
            site("rewrite ^(.*)$ /app.php?q=$1 last;", ""),
            "fallback: app.php",
            "",
        ),
        (
            site(
                "rewrite ^ /index.php last;",
                "location ~* \\.(css|js)$ { expires 30d; }",
            ),
            "- {prefix: /, root: /srv/x, allow: [.css, .js], max_age: 2592000}",
            "",
        ),
        (
            site(
                "rewrite ^ /index.php last;",
                "location ~ ^/img/ { expires 30d; }",
            ),
            "forbid: [\"*\"]",
            "^/img/",
        ),
        (
            site(
                "try_files $uri $uri/ @rw;",
                "location @rw { rewrite ^(.*)$ /app.php/$1 last; }",
            ),
            "fallback: app.php",
            "",
        ),
        (
            site(
                usual,
                "location ^~ /up { root /srv/y; } location /up/ { expires 1d; }",
            ),
            "{path: \"~ ^/up\", refuse: 404}",
            "location ^~ /up",
        ),
        (
            site(
                usual,
                "location /up { root /srv/y; } location /up/new/ { root /srv/z; }",
            ),
            "- {prefix: /up, root: /srv/y/up, index: [index.html]}",
            "",
        ),
    ];
    let mut wrong = Vec::new();
    for (text, expected, told) in cases {
        let (yaml, limits) = made("nginx.conf", &text);
        let is_told = limits.contains(told) && limits.is_empty() == told.is_empty();
        if !yaml.contains(expected) || !is_told {
            wrong.push(format!("{text}\n{yaml}\n{limits}\nnot: {expected} {told}"));
        }
        let sends = text.contains("$uri $uri/") || text.contains("/cache$uri.html");
        assert!(
            !sends || !yaml.contains("forbid: [\"*\"]"),
            "{text}\n{yaml}"
        );
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n----\n"));
}

#[test]
fn what_is_refused_of_a_script_is_refused_whatever_follows_its_name() {
    const ENDS: [&str; 14] = [
        "",
        "/",
        "/x",
        "/x%2f",
        "/x%2F%2e%2e",
        "/x%252f",
        "/%2f",
        "%2fx",
        "/x%5cy",
        "/x%00",
        "/x;a=b",
        "/x.css",
        "/x.php",
        "//x",
    ];
    const NAMES: [&str; 5] = [
        "/config.php",
        "//config.php",
        "/%63onfig.php",
        "/a/../config.php",
        "/CONFIG.PHP",
    ];
    let of_apache = [
        "<Files config.php>\nRequire all denied\n</Files>",
        "<FilesMatch \"^config\\.php$\">\nRequire all denied\n</FilesMatch>",
        "<FilesMatch \"config\">\nRequire all denied\n</FilesMatch>",
        "<Files \"conf*.php\">\nRequire ip 10.0.0.0/8\n</Files>",
        "<Location /config.php>\nRequire all denied\n</Location>",
        "<LocationMatch ^/config\\.php$>\nRequire all denied\n</LocationMatch>",
        "Redirect 403 /config.php",
        "RedirectMatch 404 ^/config\\.php$",
        "RewriteRule ^/?config\\.php$ - [F]",
        "RewriteRule config\\.php - [F]",
        "RewriteRule !^/?(index\\.php)?$ - [F]",
        "RewriteCond %{REQUEST_URI} ^/config\\.php$\nRewriteRule ^ - [F]",
        "RewriteCond %{REQUEST_URI} !^/(index\\.php)?$\nRewriteRule ^ - [F]",
    ];
    let of_nginx = [
        "location = /config.php { deny all; }",
        "location ^~ /config.php { deny all; }",
        "location ~ ^/config\\.php$ { deny all; }",
        "location ~ ^/config\\.php(/|$) { return 404; }",
        "if ($uri ~ ^/config\\.php$) { return 403; }",
        "if ($request_uri ~ ^/config\\.php) { return 403; }",
    ];
    let of_caddy = [
        "respond /config.php 403",
        "respond /config.php* 403",
        "@bad path /config.php\nrespond @bad 403",
        "@bad path_regexp ^/config\\.php$\nerror @bad 404",
        "@bad path *.php\nabort @bad",
    ];
    let apaches = of_apache.map(|it| {
        let text = format!("DocumentRoot /srv/x\nRewriteEngine On\n{it}\n");
        ("httpd.conf", text)
    });
    let nginxs = of_nginx.map(|it| ("site.conf", nginx_site(it)));
    let caddys = of_caddy.map(|it| ("Caddyfile", caddy_site(it)));
    let mut wrong = Vec::new();
    for (name, text) in apaches.iter().chain(&nginxs).chain(&caddys) {
        let (yaml, _) = made(name, text);
        let all = NAMES
            .iter()
            .flat_map(|name| ENDS.map(|end| format!("{name}{end}")));
        let open: Vec<_> = all.filter(|path| !is_closed(&yaml, path)).collect();
        if !open.is_empty() {
            wrong.push(format!("{open:?}\n{text}\n{yaml}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn programs_are_refused_by_their_names_whatever_follows_these() {
    for (block, is_open) in [
        ("<Files admin.cgi>\nRequire all denied\n</Files>", false),
        (
            "<FilesMatch \"^adm\">\nRequire ip 10.0.0.0/8\n</FilesMatch>",
            false,
        ),
        ("<Files other.cgi>\nRequire all denied\n</Files>", true),
    ] {
        let text = format!("DocumentRoot /srv/x\nScriptAlias /cgi-bin/ /srv/cgi\n{block}\n");
        let (yaml, _) = made("httpd.conf", &text);
        for path in [
            "/cgi-bin/admin.cgi",
            "/cgi-bin/admin.cgi/x",
            "/cgi-bin/admin.cgi/x%2f",
            "/cgi-bin//%61dmin.cgi/x/y",
        ] {
            let route = first_route(&yaml, path);
            assert_eq!(route["refuse"].is_null(), is_open, "{path}\n{text}\n{yaml}");
        }
    }
}

/// The first route that has a path, whatever the host.
fn first_route(yaml: &str, path: &str) -> Value {
    let loaded = load(&Input::from_text("pronghorn.yaml", yaml.to_owned()));
    let json: Value =
        serde_json::from_str(&loaded.to_json(&Effective::default())).expect("it is JSON");
    let routes = json["http"]["routes"].as_array().cloned();
    let has = |route: &Value| {
        let paths = match &route["path"] {
            Value::String(path) => vec![path.clone()],
            Value::Array(all) => all
                .iter()
                .map(|it| it.as_str().expect("a path").to_owned())
                .collect(),
            _ => return true,
        };
        paths.iter().any(|it| {
            let pattern = PathPattern::parse(it).expect(it);
            pattern.gets(path)
        })
    };
    let mut routes = routes.unwrap_or_default().into_iter();
    routes.find(has).unwrap_or_default()
}

#[test]
fn an_alias_has_its_path_alone_and_for_its_host_alone() {
    // A root's directory of the same path is neither sent nor run.
    let alias = "Alias /al /srv/d\n";
    let (yaml, limits) = made("httpd.conf", &format!("DocumentRoot /srv/x\n{alias}"));
    assert!(
        yaml.contains("forbid: [al/*]") || yaml.contains("forbid: [\"al/*\"]"),
        "{yaml}"
    );
    for path in ["/al/a.php", "/al/none", "/al/x/../a.php"] {
        assert_eq!(
            first_route(&yaml, path)["scripts"],
            "none",
            "{path}: {yaml}"
        );
    }
    assert!(limits.is_empty(), "{limits}");
    // Neither is one of an alias around it.
    let text = format!("DocumentRoot /srv/x\nAlias /al/in /srv/e\n{alias}");
    let (yaml, _) = made("httpd.conf", &text);
    let of = |path: &str| first_route(&yaml, path)["pool"].clone();
    assert_eq!(of("/al/in/x"), "al", "{yaml}");
    assert_eq!(of("/al/x"), "al-2", "{yaml}");
    assert!(!yaml.contains("static"), "{yaml}");
    // The first one has the path.
    let text = format!("DocumentRoot /srv/x\n{alias}Alias /al/in /srv/e\n");
    let (yaml, _) = made("httpd.conf", &text);
    assert!(!yaml.contains("root: /srv/e"), "{yaml}");
    // One of a single host is for its names.
    let host = |name: &str, more: &str| {
        format!(
            "<VirtualHost *:80>\nServerName {name}.example\nDocumentRoot /srv/{name}\n{more}</VirtualHost>\n"
        )
    };
    let text = format!("{}{}", host("one", ""), host("two", alias));
    let (yaml, limits) = made("httpd.conf", &text);
    let route =
        "- {host: two.example, path: \"/al/*\", pool: al, strip_prefix: /al, scripts: none}";
    assert!(yaml.contains(route), "{yaml}");
    assert!(
        !yaml.contains("static") && limits.is_empty(),
        "{yaml}{limits}"
    );
    // One that stands around all of them is for all, and those with one name are one.
    for text in [
        format!("{alias}{}{}", host("one", ""), host("two", "")),
        format!("{}{}", host("one", alias), host("one", alias)),
    ] {
        let (yaml, limits) = made("httpd.conf", &text);
        assert!(yaml.contains("{prefix: /al, root: /srv/d}"), "{yaml}");
        assert!(yaml.contains("al/*") && limits.is_empty(), "{yaml}{limits}");
    }
    // A directory that some may not have is closed at its own host.
    let limited = "<Directory /srv/d>\nRequire all denied\n</Directory>\n";
    let text = format!(
        "{}{}",
        host("one", ""),
        host("two", &format!("{alias}{limited}"))
    );
    let (yaml, limits) = made("httpd.conf", &text);
    assert!(
        yaml.contains("{host: two.example, path: \"/al/*\", refuse: 404}"),
        "{yaml}"
    );
    assert!(
        !yaml.contains("/srv/d") && limits.contains("`/al`"),
        "{yaml}{limits}"
    );
}

#[test]
fn a_rule_for_all_paths_but_some_lets_no_other_file_be_sent() {
    for rule in [
        "RewriteRule !\\.(css|js)$ index.php",
        "RewriteRule !\\.(css|js)$ /index.php [L]",
        "RewriteRule !^/?static/ index.php [NC]",
    ] {
        let text = format!("DocumentRoot /srv/x\nRewriteEngine On\n{rule}\n");
        let (yaml, limits) = made("httpd.conf", &text);
        let route = first_route(&yaml, "/composer.json");
        assert_eq!(
            (&route["pool"], &route["scripts"]),
            (&"front".into(), &"front".into()),
            "{yaml}"
        );
        let route = first_route(&yaml, "/static/a.css");
        assert!(route["pool"].is_null(), "{yaml}");
        let keys = flat(&yaml);
        assert_eq!(keys["http.pools.front.root"], "\"/srv/x\"", "{yaml}");
        assert_eq!(keys["http.pools.front.forbid"], "\"*\"", "{yaml}");
        assert!(!keys.contains_key("http.pool.forbid"), "{yaml}");
        assert!(limits.is_empty(), "{limits}");
    }
}

#[test]
fn the_script_for_paths_without_a_file_is_the_one_that_apache_asked() {
    let missing = "RewriteCond %{REQUEST_FILENAME} !-f\nRewriteCond %{REQUEST_FILENAME} !-d\n";
    for (statements, fallback) in [
        ("FallbackResource /app.php", "app.php"),
        ("FallbackResource /public/index.php", "public/index.php"),
        ("DirectoryIndex app.php\nFallbackResource /app.php", ""),
        (
            "DirectoryIndex app.php\nFallbackResource /index.php",
            "index.php",
        ),
        ("FallbackResource /index.php", ""),
        ("FallbackResource /index.html", "none"),
        ("{missing}RewriteRule ^ app.php [L]", "app.php"),
        ("{missing}RewriteRule ^(.*)$ app.php/$1 [QSA,L]", "app.php"),
        (
            "{missing}RewriteRule ^(.*)$ /web/app.php?q=$1 [L]",
            "web/app.php",
        ),
        ("{missing}RewriteRule ^ index.html [L]", "none"),
        (
            "{missing}RewriteRule ^(.*)$ $1.php [L]\n{missing}RewriteRule ^ index.php [L]",
            "",
        ),
        (
            "{missing}RewriteRule ^api/ api.php [L]\n{missing}RewriteRule ^ index.php [L]",
            "",
        ),
    ] {
        let statements = statements.replace("{missing}", missing);
        let all = format!("RewriteEngine On\n{statements}\n");
        for text in [
            format!("DocumentRoot /srv/x\n{all}"),
            format!(
                "DocumentRoot /srv/x\n<Directory /srv/x>\nRequire all granted\n{all}</Directory>\n"
            ),
            format!("<VirtualHost *:80>\nDocumentRoot /srv/x\n{all}</VirtualHost>\n"),
        ] {
            let (yaml, _) = made("httpd.conf", &text);
            let json = flat(&yaml);
            let made = json
                .get("http.pool.fallback")
                .map_or("", |it| it.trim_matches('"'));
            assert_eq!(made, fallback, "{text}\n{yaml}");
        }
    }
}

#[test]
fn an_application_below_a_path_of_nginx_has_the_fallback_that_it_had_there() {
    let server = |more: &str| {
        format!(
            "server {{ listen 80; root /srv/x;\nlocation / {{ try_files $uri /index.php; }}\n{more} }}\n"
        )
    };
    const PHP: &str = "include fastcgi_params; fastcgi_pass unix:/a.sock; \
                       fastcgi_param SCRIPT_FILENAME $document_root$fastcgi_script_name;";
    for (more, has_fallback) in [
        (format!("location ^~ /app {{ root /srv/y; {PHP} }}"), false),
        (format!("location ^~ /app/ {{ root /srv/y; {PHP} }}"), false),
        (
            format!("location ^~ /app/ {{ root /srv/y; try_files $uri =404; {PHP} }}"),
            false,
        ),
        (
            format!("location ^~ /app/ {{ root /srv/y; try_files $uri /index.php; {PHP} }}"),
            false,
        ),
        (
            format!(
                "location /app/ {{ root /srv/y; try_files $uri /app/index.php; location ~ \\.php$ {{ {PHP} }} }}"
            ),
            true,
        ),
    ] {
        let (yaml, _) = made("nginx.conf", &server(&more));
        let keys = flat(&yaml);
        if keys.contains_key("http.pools.app.root") {
            let is_none = keys
                .get("http.pools.app.fallback")
                .is_some_and(|it| it == "\"none\"");
            assert_eq!(!is_none, has_fallback, "{more}\n{yaml}");
        } else {
            assert!(
                !has_fallback && is_closed(&yaml, "/app/none"),
                "{more}\n{yaml}"
            );
        }
    }
    // A root that only scripts have says nothing of the front controller of another one.
    let text = format!(
        "server {{ listen 80; root /srv/x;\nlocation / {{ include fastcgi_params; \
         fastcgi_pass unix:/a.sock; fastcgi_param SCRIPT_FILENAME $document_root/index.php; }}\n\
         location ~ \\.php(/|$) {{ root /srv/y; {PHP} }} }}\n"
    );
    let (yaml, limits) = made("nginx.conf", &text);
    assert!(
        yaml.contains("fallback: none") && limits.contains("location /"),
        "{yaml}{limits}"
    );
}

/// The target of the first rule of `http.rewrite` that is about a path.
fn rule_of(yaml: &str, path: &str) -> Option<String> {
    let loaded = load(&Input::from_text("pronghorn.yaml", yaml.to_owned()));
    let json: Value =
        serde_json::from_str(&loaded.to_json(&Effective::default())).expect("it is JSON");
    let rules = json["http"]["rewrite"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    let is_about = |rule: &Value| {
        let expression = rule["path"].as_str().expect("an expression");
        draft::is_found(expression, path)
    };
    let rule = rules.into_iter().find(is_about)?;
    Some(rule["to"].as_str().expect("a target").to_owned())
}

#[test]
fn a_rewrite_of_a_location_leaves_the_paths_of_others_alone() {
    let server = |inside: &str, others: &str| {
        format!(
            "server {{ listen 80; root /srv/x;\nlocation / {{ {inside}\ntry_files $uri /index.php; }}\n\
             location ~ \\.php$ {{ include fastcgi_params; fastcgi_pass unix:/a.sock; }}\n{others} }}\n"
        )
    };
    let api = "rewrite ^/api/(.*)$ /api.php?r=$1 last;";
    let others = "location /api/files/ { expires 1d; }\nlocation = /api/one { expires 1d; }\n\
                  location ~* \\.css$ { expires 1d; }\nlocation /other/ { expires 1d; }";
    let (yaml, limits) = made("nginx.conf", &server(api, others));
    let api = Some("/api.php?r={1}".to_owned());
    for (path, to) in [
        ("/api/x", &api),
        ("/api/one/x", &api),
        ("/api/files/x", &Some("/api/files/{1}".to_owned())),
        ("/api/one", &Some("/api/one".to_owned())),
        ("/api/a.CSS", &Some("/{1}".to_owned())),
        ("/api/x.php", &Some("/{1}".to_owned())),
        ("/other/x", &None),
    ] {
        assert_eq!(rule_of(&yaml, path), *to, "{path}\n{yaml}{limits}");
    }
    // The server's own rules come before its locations, wherever they stand.
    let text = server(
        "rewrite ^/a(.*)$ /b$1 last;",
        "location /a/x/ { }\nrewrite ^/a/x/y$ /c last;",
    );
    let (yaml, _) = made("nginx.conf", &text);
    assert_eq!(rule_of(&yaml, "/a/x/y").as_deref(), Some("/c"), "{yaml}");
    // A text needs no such rule where no other location has it.
    let (yaml, _) = made(
        "nginx.conf",
        &server("rewrite ^/sitemap\\.xml$ /index.php?s=1 last;", ""),
    );
    assert!(!yaml.contains("{1}"), "{yaml}");
    // One that can't be said closes its own paths.
    let (yaml, limits) = made("nginx.conf", &server("rewrite ^/old/ $custom last;", ""));
    assert!(
        is_closed(&yaml, "/old/x") && !is_closed(&yaml, "/x"),
        "{yaml}"
    );
    assert!(limits.contains("rewrite ^/old/"), "{limits}");
}

#[test]
fn a_redirect_of_caddy_has_no_query_but_its_own() {
    for (statement, to) in [
        ("redir /old /new", "/new?"),
        ("redir /old /new?a=b 301", "/new?a=b?"),
        (
            "redir /old https://b.example/ permanent",
            "https://b.example/?",
        ),
        ("rewrite /old /new.txt", "/new.txt"),
    ] {
        let (yaml, _) = made("Caddyfile", &caddy_site(statement));
        assert_eq!(rule_of(&yaml, "/old").as_deref(), Some(to), "{yaml}");
    }
}

/// Usual sites of nginx of which one statement took every page.
#[test]
fn one_statement_takes_no_page_of_other_locations() {
    const PHP: &str = "location ~ \\.php$ { fastcgi_pass a; }";
    let server =
        |more: &str| format!("server {{ listen 80; root /srv/x; index index.php;\n{more} }}");
    let front = "location / { try_files $uri /index.php; }\n";
    for (text, expected, unexpected) in [
        // The rest is refused, and no more.
        (
            "location ~ ^/w/(a|b)\\.php$ { fastcgi_pass a; }\nlocation /up/ { }\nlocation / { return 404; }".to_owned(),
            "- {path: \"/up/*\", scripts: none}\n    - {refuse: 404}",
            "- {refuse: 404}\n    -",
        ),
        (
            format!("{PHP}\nlocation / {{ deny all; }}"),
            "- {path: \"~ \\\\.php$\"}\n    - {refuse: 403}",
            "scripts: none",
        ),
        (
            format!("location = / {{ expires 1h; }}\n{front}{PHP}"),
            "{path: /, scripts: named}",
            "none",
        ),
        // A script is no page of a directory where `index` does not say so.
        (
            format!("location = /d/ {{ index index.html; }}\n{front}{PHP}"),
            "{path: /d/, scripts: none}",
            "named",
        ),
        (
            format!("{front}location ~ \\.php$|^/update.php {{ fastcgi_pass a; }}"),
            "root: /srv/x",
            "scripts",
        ),
        (
            format!(
                "location ~* \\.(inc|sh)$|^(\\.(?!well-known).*|Root)$ {{ deny all; }}\n{front}{PHP}"
            ),
            "refuse: 403",
            "scripts",
        ),
        (
            format!(
                "{front}location ~ \\.php$ {{ rewrite ^/(?!index|cron) /index.php$request_uri; fastcgi_pass a; }}"
            ),
            "{path: \"!~ ^/(?:index|cron)\", scripts: front}",
            "refuse",
        ),
        (
            format!(
                "{front}location ~ \\.php$ {{ rewrite ^/(?!a)b /index.php last; fastcgi_pass a; }}"
            ),
            "{path: \"~ \\\\.php$\", scripts: front}",
            "refuse",
        ),
        (
            format!(
                "{front}{PHP}\nlocation ^~ /w {{ location /w/a {{ try_files $uri =404; }} proxy_pass http://a; }}"
            ),
            "{path: \"~ ^/w\", refuse: 404}",
            "- {refuse",
        ),
    ] {
        let (yaml, limits) = made("nginx.conf", &server(&text));
        assert!(
            yaml.contains(expected),
            "{text}\n{yaml}\n{limits}\n{expected}"
        );
        assert!(!yaml.contains(unexpected), "{text}\n{yaml}\n{limits}");
        assert!(!limits.contains("whole site"), "{text}\n{limits}");
    }
}

#[test]
fn a_directory_of_its_own_keeps_its_index_pages() {
    for (location, expected) in [
        (
            "location /d/ { alias /srv/d/; }",
            "root: /srv/d, index: [index.html]}",
        ),
        (
            "location /d/ { root /srv; index a.html; }",
            "root: /srv/d, index: [a.html]}",
        ),
        (
            "location /d/ { alias /srv/d/; try_files $uri $uri/ /d/app.html; }",
            "index: [index.html], fallback: app.html}",
        ),
        (
            "location /d/ { alias /srv/d/; try_files $uri =404; }",
            "index: [index.html]}",
        ),
    ] {
        let text = nginx_site(location).replacen("root /", "index index.php index.html; root /", 1);
        let (yaml, _) = made("nginx.conf", &text);
        assert!(yaml.contains(expected), "{location}\n{yaml}\n{expected}");
    }
}

#[test]
fn variables_have_their_defaults_or_are_left_out() {
    let text = "{$SERVER_NAME:localhost} {\nroot {$ROOT:/srv/x}\n{$MORE}\nphp_server\n}\n";
    let made = converted("Caddyfile", text);
    assert!(made.yaml.contains("root: /srv/x\n"), "{}", made.yaml);
    assert!(made.limits.is_empty(), "{:?}", made.limits);
    assert!(!made.yaml.contains('$'), "{}", made.yaml);
    let text = "DocumentRoot /srv/x\nDirectoryIndex /index.php\n\
                CustomLog ${APACHE_LOG_DIR}/access.log combined\n";
    let made = converted("site.conf", text);
    assert!(!made.yaml.contains("access_log"), "{}", made.yaml);
    assert!(!made.yaml.contains("index:"), "{}", made.yaml);
    assert!(
        made.left_out.join(" ").contains("CustomLog"),
        "{:?}",
        made.left_out
    );
}

#[test]
fn an_index_that_is_off_is_no_file() {
    let text = "x.example {\nroot * /srv/x\nphp_fastcgi a:1 {\nindex off\n}\n\
                try_files {path} /index.php\nfile_server\n}\n";
    let made = converted("Caddyfile", text);
    assert!(!made.yaml.contains("index"), "{}", made.yaml);
    assert!(
        made.left_out.concat().contains("index off"),
        "{:?}",
        made.left_out
    );
}

#[test]
fn addresses_of_caddys_matchers_are_conditions() {
    for (matcher, condition) in [
        (
            "not remote_ip 10.0.0.1/8 ::1",
            "not_address: [\"10.0.0.0/8\", \"::1\"]",
        ),
        (
            "not client_ip private_ranges",
            "not_address: [\"192.168.0.0/16\", ",
        ),
        ("remote_ip 192.0.2.7", "address: [\"192.0.2.7\"]"),
    ] {
        for path in ["", "path /admin/*\n"] {
            let text = format!(
                "x.example {{\nroot * /srv/x\n@out {{\n{path}{matcher}\n}}\nabort @out\n\
                 php_fastcgi a:1\nfile_server\n}}\n"
            );
            let (yaml, limits) = made("Caddyfile", &text);
            assert!(yaml.contains(condition), "{text}\n{yaml}");
            let route = if path.is_empty() { "/*" } else { "/admin/*" };
            assert!(yaml.contains(&format!("{{path: \"{route}\", ")), "{yaml}");
            assert_eq!(limits, "", "{text}");
        }
    }
}

#[test]
fn scripts_run_nowhere_that_apache_keeps_them_from() {
    let apache = |inside: &str| format!("DocumentRoot /srv/x\n{inside}\n");
    for name in [
        r"\.ph(?:ar|p|tml)$",
        r"\.ph(p|tml)$",
        r".+\.ph(ar|p|tml)$",
        ".*",
        r"\.php$",
    ] {
        let block = format!("<FilesMatch \"{name}\">\nSetHandler None\n</FilesMatch>");
        let inside = format!("<Directory /srv/x/up>\n{block}\n</Directory>");
        let (yaml, _) = made("site.conf", &apache(&inside));
        assert!(yaml.contains("no_scripts: [up]"), "{name}\n{yaml}");
        let directory = Directory::with(&[("up/.htaccess", &block)]);
        assert_eq!(Closed::below(&directory).no_scripts, ["up"], "{name}");
    }
    for block in [
        "<Files *>\nSetHandler None\n</Files>",
        "<Files \"*.php\">\nSetHandler text/plain\n</Files>",
        "php_admin_value engine Off",
        "php_value engine off",
    ] {
        let inside = format!("<Directory /srv/x/up>\n{block}\n</Directory>");
        let (yaml, _) = made("site.conf", &apache(&inside));
        assert!(yaml.contains("no_scripts: [up]"), "{block}\n{yaml}");
    }
    // Some scripts, and others run.
    for block in [
        "<FilesMatch \"^(x|s)\\.php$\">\nSetHandler None\n</FilesMatch>",
        "<Files adminer.php>\nSetHandler None\n</Files>",
    ] {
        let (yaml, _) = made("site.conf", &apache(block));
        let is_some = yaml.contains("\\\\.php(?:/|$)\", refuse: 404}");
        assert!(
            is_some && !yaml.contains("scripts: none"),
            "{block}\n{yaml}"
        );
        let closed = Closed::below(&Directory::with(&[(".htaccess", block)]));
        assert!(
            !closed.is_whole() && closed.routes.len() == 1,
            "{block} {closed:?}"
        );
    }
    let closed = Closed::below(&Directory::with(&[(".htaccess", "php_flag engine off\n")]));
    assert!(closed.is_whole());
    let (yaml, limits) = made(
        "site.conf",
        &apache("<FilesMatch \"\\.(txt|log)$\">\nSetHandler None\n</FilesMatch>"),
    );
    assert!(!yaml.contains("refuse") && limits.is_empty(), "{yaml}");
}

#[test]
fn files_that_are_granted_in_a_closed_directory_are_all_that_is() {
    let text =
        "Require all denied\n<Files ~ \"(?i)^.*\\.(jpg|png)$\">\nRequire all granted\n</Files>\n";
    let closed = Closed::below(&Directory::with(&[("img/.htaccess", text)]));
    assert!(closed.told.is_empty(), "{:?}", closed.told);
    let [(route, status)] = &closed.routes[..] else {
        panic!("{closed:?}");
    };
    assert_eq!(status, "403");
    let pattern = PathPattern::parse(route).unwrap();
    for (path, is_refused) in [
        ("/img/a.jpg", false),
        ("/img/p/1/a.PNG", false),
        ("/img/a.txt", true),
        ("/img", true),
        ("/img/", true),
        ("/img/p/a.jpg/x.php", true),
        ("/IMG/a.txt", true),
        ("//img/a.txt", true),
        ("/%69mg/a.txt", true),
        ("/x/../img/a.txt", true),
        ("/", false),
        ("/i", false),
        ("/im/a.txt", false),
        ("/images/a.txt", false),
        ("/x/img/a.txt", false),
    ] {
        assert_eq!(pattern.gets(path), is_refused, "{path} {route}");
    }
    // In the root they are all that is sent; of a name with other letters it is not known.
    let of = |name: &str| Closed::below(&Directory::with(&[(name, text)]));
    let root = of(".htaccess");
    assert!(root.told.is_empty() && !root.is_whole(), "{root:?}");
    assert_eq!(of("b\u{e4}r/.htaccess").told.len(), 1);
}

#[test]
fn the_first_host_answers_for_all_addresses() {
    let made_of = |address: &str| {
        let text = format!(
            "DocumentRoot /srv/a\n<VirtualHost {address}:80>\nServerName b.x\nDocumentRoot /srv/b\n\
             </VirtualHost>\n"
        );
        made("httpd.conf", &text).0
    };
    let yaml = made_of("*");
    assert!(
        !yaml.contains("/srv/a") && yaml.contains("/srv/b"),
        "{yaml}"
    );
    assert!(made_of("10.0.0.1").contains("/srv/a"));
}

#[test]
fn no_file_is_sent_that_try_files_does_not_try() {
    const PHP: &str = "location ~ \\.php$ { fastcgi_pass a; }";
    for tried in [
        "/maintenance.html /index.php?$args",
        "/nothing /index.php",
        "$uri.html /index.php",
        "$uri/ /index.php",
        "/nothing @php",
    ] {
        let server = format!("server {{ root /srv/x; {PHP} location / {{ try_files {tried}; }} }}");
        let (yaml, limits) = made("nginx.conf", &server);
        assert!(yaml.contains("forbid: [\"*\"]"), "{tried}\n{yaml}");
        // A fixed name that is not looked for is a note.
        assert_eq!(
            limits.contains("no files are sent"),
            tried.contains("$uri"),
            "{tried}\n{limits}"
        );
        let data = format!(
            "server {{ root /srv/x; {PHP} location / {{ try_files $uri /index.php; }}\n\
             location /data {{ try_files {tried}; }} }}"
        );
        let (yaml, _) = made("nginx.conf", &data);
        assert!(yaml.contains("/data"), "{tried}\n{yaml}");
    }
    for (tried, runs) in [
        ("/nothing =404", false),
        ("$uri =404", true),
        ("$fastcgi_script_name =404", true),
        ("$document_root$fastcgi_script_name =404", true),
    ] {
        let server = format!(
            "server {{ root /srv/x; location / {{ try_files $uri /index.php; }}\n\
             location ~ \\.php$ {{ try_files {tried}; fastcgi_pass a; }} }}"
        );
        let (yaml, _) = made("nginx.conf", &server);
        assert_eq!(!yaml.contains("php"), runs, "{tried}\n{yaml}");
    }
}

#[test]
fn a_directory_that_is_not_there_keeps_no_server_from_its_start() {
    let directory = Directory::with(&[("root/index.php", ""), ("media/a.css", "")]);
    let at = |name: &str| directory.join(name).display().to_string();
    let of_root = |root: &str, media: &str| {
        let text = format!(
            "server {{ root {root}; location / {{ try_files $uri /index.php; }}\n\
             location /media/ {{ alias {media}/; }}\n\
             location ^~ /.well-known/acme-challenge/ {{ root {media}; }}\n\
             location /css/ {{ expires 30d; }}\n\
             location ~ \\.php$ {{ fastcgi_pass a; }} }}"
        );
        converted("nginx.conf", &text)
    };
    let there = of_root(&at("root"), &at("media"));
    assert!(there.yaml.contains("prefix: /media"), "{}", there.yaml);
    let away = of_root(&at("root"), &at("other"));
    assert!(!away.yaml.contains("prefix"), "{}", away.yaml);
    assert_eq!(away.left_out.len(), 3, "{:?}", away.left_out);
    assert!(!away.is_unsure(), "{:?} {:?}", away.limits, away.lost);
    // The files are another machine's.
    let elsewhere = of_root("/not/there", "/nor/there");
    assert!(
        elsewhere.yaml.contains("prefix: /media"),
        "{}",
        elsewhere.yaml
    );
}

#[test]
fn what_else_a_htaccess_of_a_host_says_is_told() {
    let rules = "RewriteEngine On\nRewriteCond %{HTTPS} off\nRewriteRule ^ \
                 https://%{HTTP_HOST}%{REQUEST_URI} [R=301,L]\nErrorDocument 404 /404.php\n";
    let directory = Directory::with(&[("root/index.php", ""), ("root/.htaccess", rules)]);
    let root = directory.join("root").display().to_string();
    let text = format!(
        "<VirtualHost *:80>\nServerName a.x\nDocumentRoot {root}\n<Directory {root}>\nAllowOverride \
         All\nRequire all granted\n</Directory>\n</VirtualHost>\n"
    );
    let made = converted("site.conf", &text);
    let told = made.left_out.join("\n");
    assert!(told.contains(".htaccess:3: `RewriteRule ^"), "{told}");
    assert!(told.contains(".htaccess:4: `ErrorDocument 404"), "{told}");
    assert!(Closed::below(Path::new(&root)).is_empty());
}

/// As Nextcloud has it.
#[test]
fn a_root_that_htaccess_leads_to_its_front_controller_is_one_of_a_host_too() {
    let rules = "RewriteEngine On\nRewriteCond $1 !^(index\\.php|images)\nRewriteRule ^(.*)$ \
                 /index.php/$1 [L]\n";
    let directory = Directory::with(&[("root/index.php", ""), ("root/.htaccess", rules)]);
    let root = directory.join("root").display().to_string();
    let text = format!(
        "<VirtualHost *:80>\nServerName a.x\nDocumentRoot {root}\n<Directory {root}>\nAllowOverride \
         All\nRequire all granted\n</Directory>\n</VirtualHost>\n"
    );
    let made = converted("site.conf", &text);
    assert!(made.yaml.contains("forbid: [\"*\"]"), "{}", made.yaml);
    assert!(made.lost.is_empty(), "{:?}", made.lost);
}

#[test]
fn sites_of_the_corpus_answer_as_they_did() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../e2e/fixtures/from");
    for entry in std::fs::read_dir(corpus).unwrap() {
        let path = entry.unwrap().path();
        let text = std::fs::read_to_string(&path)
            .unwrap()
            .replace("{root}", "/srv/x")
            .replace("{port}", "80")
            .replace("{php}", "9000");
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let name = name
            .replace(".caddy", ".Caddyfile")
            .replace(".apache", ".httpd");
        let lost = converted(&name, &text).lost;
        assert!(lost.is_empty(), "{name}: {lost:?}");
    }
    for (text, expected) in [
        (nginx_site("auth_basic x;"), "nothing of it is answered"),
        (
            "server { listen 80; root /srv/x; index index.php;\n\
             location ~ \\.php$ { auth_basic x; fastcgi_pass a; } }"
                .to_owned(),
            "none of its scripts runs",
        ),
    ] {
        let made = converted("nginx.conf", &text);
        assert!(made.is_unsure(), "{text}\n{}", made.yaml);
        assert!(
            made.lost.join(" ").contains(expected),
            "{text}\n{:?}",
            made.lost
        );
    }
}

/// A server of nginx that refuses the rest of its paths has them refused here, too.
#[test]
fn a_refused_rest_stays_refused() {
    let rest = "location / { return 404; }";
    for more in [
        "location ~ ^/w/(a|b)\\.php$ { fastcgi_pass a; }",
        "location ~ \\.php$ { fastcgi_pass a; }",
        "location ~ \\.php$ { rewrite ^/(?!a) /index.php last; fastcgi_pass a; }",
        "location ~ /\\.(?!well-known) { deny all; }\nlocation ~ \\.php$ { fastcgi_pass a; }",
        "rewrite ^/old/([a-z.]+)$ /index.php last;\nlocation ~ \\.php$ { fastcgi_pass a; }",
        "location = /index.php { fastcgi_pass a; }",
        "location /up/ { expires 1h; }",
    ] {
        let text = format!("server {{ listen 80; root /srv/x; index index.php;\n{more}\n{rest} }}");
        let (yaml, _) = made("nginx.conf", &text);
        for path in ["/", "/a.txt", "/.well-known/a", "/sub/", "/w/", "/a/b.css"] {
            assert!(is_closed(&yaml, path), "{path}\n{text}\n{yaml}");
        }
        assert!(yaml.contains("{refuse: 404}"), "{text}\n{yaml}");
    }
}

/// Servers beside which the same pages are asked for, by their routes alone.
#[test]
fn routes_of_fixtures_answer_as_their_pages_say() {
    for (name, file) in [
        ("fpm_named.apache", "site.conf"),
        ("fpm_part.apache", "site.conf"),
        ("pages.apache", "site.conf"),
        ("endings.nginx", "nginx.conf"),
        ("tried_alone.nginx", "nginx.conf"),
        ("tried_fixed.nginx", "nginx.conf"),
    ] {
        let path = format!(
            "{}/../../e2e/fixtures/from/{name}",
            env!("CARGO_MANIFEST_DIR")
        );
        let text = std::fs::read_to_string(path).unwrap();
        let text = text.replace("{root}", "/srv/x").replace("{php}", "9000");
        let made = converted(file, &text.replace("{port}", "8080"));
        for line in text.lines().filter_map(|it| it.strip_prefix("# crawl ")) {
            let (path, says) = line.split_once(' ').unwrap();
            let says = says.rsplit_once(" here ").map_or(says, |(_, here)| here);
            let answer = answer(&made.yaml, path, "");
            let is_right = match says {
                "front" => ["All", "Named", "Front"].contains(&answer.as_str()),
                "script" => ["All", "Named"].contains(&answer.as_str()),
                "403" => answer == "403",
                // A pool that sends no files answers 404 itself.
                "404" if path.contains(".php") => !["All", "Named"].contains(&answer.as_str()),
                _ => answer != "403",
            };
            assert!(is_right, "{name}: {line}: {answer}\n{}", made.yaml);
        }
    }
}

/// Apache asks for leave when it leads a path to a script.
#[test]
fn no_script_answers_for_others_that_is_closed() {
    let denied = "Require all denied";
    let limited = "<Files app.php>\nRequire ip 10.0.0.0/8\n</Files>\n";
    let rule = "RewriteEngine on\nRewriteRule \\.php$ - [F]\n";
    let asked = "RewriteEngine on\nRewriteCond %{THE_REQUEST} index\\.php\nRewriteRule \
                 ^index\\.php - [F]\n";
    let files = |names: &str| format!("<Files {names}>\n{denied}\n</Files>");
    let granted = "<FilesMatch \"\\.php$\">\nRequire all denied\n</FilesMatch>\n<Files \
                   app.php>\nRequire all granted\n</Files>";
    let front = "FallbackResource";
    let index = "DirectoryIndex";
    for (inside, file, is_shut) in [
        (format!("{front} /app.php\n{}", files("app.php")), "", true),
        (format!("{index} app.php\n{}", files("app.php")), "", true),
        (
            format!("{front} /index.php\n{}", files("\"index.*\"")),
            "",
            true,
        ),
        (format!("{front} /app.php"), limited, true),
        (format!("{front} /index.php"), limited, false),
        (
            format!("{front} /app.php\n{}", files("index.php")),
            "",
            true,
        ),
        (format!("{index} app.php\n{}", files("x.php")), "", false),
        // Its `index.php` is closed.
        (format!("{front} /app.php\n{granted}"), "", true),
        (String::new(), rule, true),
        (format!("{front} /index.php"), asked, false),
    ] {
        let directory = Directory::with(&[("app.php", ""), ("index.php", ""), (".htaccess", file)]);
        let root = directory.display();
        let text = format!(
            "<VirtualHost *:80>\nServerName site.example\nDocumentRoot {root}\n<Directory \
             {root}>\nAllowOverride All\nRequire all \
             granted\n{inside}\n</Directory>\n</VirtualHost>\n"
        );
        directory.write("a-httpd.conf", &text);
        let made = convert(&[directory.join("a-httpd.conf")]).expect(&text);
        let is_said = made
            .limits
            .iter()
            .any(|it| it.contains("answer for other paths"));
        assert_eq!(is_said, is_shut, "{text}\n{file}\n{}", made.yaml);
        let root = answer(&made.yaml, "/", "192.0.2.1");
        let has_front = made.yaml.contains("fallback: app.php");
        let shut = if has_front { "Front" } else { "Nothing" };
        assert_eq!(
            root == shut,
            is_shut,
            "{root}\n{text}\n{file}\n{}",
            made.yaml
        );
    }
}

#[test]
fn a_grant_after_a_refusal_of_files_is_told() {
    let text = "DocumentRoot /srv/x\n<FilesMatch \"\\.php$\">\nRequire all denied\n</FilesMatch>\n\
                <FilesMatch \"^(index|a)\\.php$\">\nRequire all granted\n</FilesMatch>\n";
    let (yaml, told) = made("a-httpd.conf", text);
    assert!(told.contains("refuses stay refused"), "{told}\n{yaml}");
}

/// Directories of Apache are closed however their paths are written.
#[test]
fn paths_of_apache_are_read_as_apache_does() {
    let closed = |path: &str| format!("<Directory {path}>\nRequire all denied\n</Directory>\n");
    for text in [
        format!("Define S adm\n{}", closed("/srv/x/${S}")),
        format!("Define R /srv/x\nDefine S ${{R}}/adm\n{}", closed("${S}")),
        closed("/srv/x//adm"),
        closed("/srv/x/./adm/."),
        closed("/srv/x/y/../adm"),
        format!("Alias /x \"/srv/x//adm\"\n{}", closed("/srv/x/adm")),
        closed("${UNKNOWN}/adm"),
        "AccessFileName .acl\n".to_owned(),
        "Include {directory}/closed.inc\n".to_owned(),
        "Alias /adm {directory}\n<Directory {directory}>\nAllowOverride All\nRequire all \
         granted\n</Directory>\n"
            .to_owned(),
    ] {
        let directory = Directory::with(&[
            ("closed.inc", closed("/srv/x/adm").as_str()),
            (".htaccess", "\u{feff}Require all denied\n"),
        ]);
        let text = text.replace("{directory}", &directory.display().to_string());
        let host = format!(
            "<VirtualHost *:80>\nServerName site.example\nDocumentRoot /srv/x\n{text}</VirtualHost>\n"
        );
        directory.write("a-httpd.conf", &host);
        let made = convert(&[directory.join("a-httpd.conf")]).expect(&host);
        let paths = if text.contains("Alias /x") {
            vec!["/x/a", "/adm/a"]
        } else {
            vec!["/adm/a"]
        };
        for path in paths {
            assert!(is_closed(&made.yaml, path), "{path}\n{host}\n{}", made.yaml);
        }
    }
}

/// nginx asks for leave at the script, too, when it leads a path to the front controller.
#[test]
fn a_condition_of_scripts_closes_what_the_front_controller_answers() {
    let pass = "fastcgi_pass unix:/run/php.sock;";
    for (condition, is_shut) in [
        ("if ($blocked) { return 403; }", true),
        ("if ($http_x_secret != \"a\") { return 403; }", true),
        ("if ($request_method = POST) { return 405; }", true),
        (
            "if (!-f $document_root$fastcgi_script_name) { return 404; }",
            false,
        ),
        ("", false),
    ] {
        for location in ["~ \\.php$", "= /index.php"] {
            let text = format!(
                "server {{ listen 80; server_name site.example; root /srv/x; index index.php;\nlocation / {{ \
                 try_files $uri $uri/ /index.php?$args; }}\nlocation {location} {{ {condition} {pass} \
                 }}\n}}\n"
            );
            let directory = Directory::with(&[("a.conf", text.as_str())]);
            let made = convert(&[directory.join("a.conf")]).expect(&text);
            for path in ["/", "/page"] {
                let answer = answer(&made.yaml, path, "192.0.2.1");
                let runs = ["All", "Front", "Named"].contains(&answer.as_str());
                assert_eq!(!runs, is_shut, "{path}\n{text}\n{}", made.yaml);
            }
        }
    }
}

/// WordPress in a directory of another site.
#[test]
fn a_front_controller_below_a_path_has_a_pool() {
    let pass = "location ~ \\.php$ { fastcgi_pass unix:/run/php.sock; }";
    let blog = "location /blog/ { try_files $uri $uri/ /blog/index.php?$args; }";
    let rules = "RewriteEngine On\nRewriteBase /blog/\nRewriteRule ^index\\.php$ - [L]\nRewriteCond \
                 %{REQUEST_FILENAME} !-f\nRewriteCond %{REQUEST_FILENAME} !-d\nRewriteRule . \
                 /blog/index.php [L]\n";
    let relative = rules.replace("/blog/index.php", "index.php");
    let nginx = |rest: &str| {
        format!(
            "server {{ server_name site.example; root {{root}}; index index.php;\n{rest}\n{pass}\n}}\n"
        )
    };
    let apache = "<VirtualHost *:80>\nServerName site.example\nDocumentRoot {root}\n<Directory \
                  {root}>\nAllowOverride All\nRequire all granted\n</Directory>\n</VirtualHost>\n";
    let front = "location / { try_files $uri $uri/ /index.php?$args; }";
    let none = "location / { try_files $uri $uri/ =404; }";
    for (name, text, file, is_led) in [
        ("a.conf", nginx(&format!("{none} {blog}")), "", true),
        ("a.conf", nginx(&format!("{blog} {front}")), "", true),
        (
            "a.conf",
            nginx(&format!(
                "{front} {}",
                blog.replace("/blog/index", "/index")
            )),
            "",
            false,
        ),
        ("a-httpd.conf", apache.to_owned(), rules, true),
        ("a-httpd.conf", apache.to_owned(), relative.as_str(), true),
        ("a-httpd.conf", apache.to_owned(), "", false),
    ] {
        let directory = Directory::with(&[("blog/.htaccess", file), ("blog/index.php", "")]);
        let text = text.replace("{root}", &directory.display().to_string());
        directory.write(name, &text);
        let made = convert(&[directory.join(name)]).expect(&text);
        assert!(!made.is_unsure(), "{text}\n{:?}", made.limits);
        let is_there =
            made.yaml.contains("fallback: blog/index.php") && made.yaml.contains("pool: blog");
        assert_eq!(is_there, is_led, "{text}\n{}", made.yaml);
        for (path, answers) in [("/blog/x", "All"), ("/blog/a.php", "All"), ("/x", "All")] {
            assert_eq!(
                answer(&made.yaml, path, "192.0.2.1"),
                answers,
                "{path}\n{}",
                made.yaml
            );
        }
    }
}

#[test]
fn a_path_that_a_script_got_as_a_parameter_is_told() {
    let pass = "location ~ \\.php$ { fastcgi_pass unix:/run/php.sock; }";
    let nginx = |inside: &str| format!("server {{ root /srv/x; {inside} {pass} }}\n");
    let rule = |to: &str| {
        format!(
            "DocumentRoot /srv/x\nRewriteEngine On\nRewriteCond /srv/x%{{REQUEST_URI}} \
             !-f\nRewriteRule ^(.*)$ {to} [L,QSA]\n"
        )
    };
    for (name, text, is_told) in [
        (
            "a.conf",
            nginx("location / { try_files $uri /index.php?q=$uri&$args; }"),
            true,
        ),
        (
            "a.conf",
            nginx("location / { try_files $uri /index.php?$args; }"),
            false,
        ),
        (
            "a.conf",
            nginx(
                "location / { try_files $uri @x; } location @x { rewrite ^/(.*)$ /index.php?p=$1 last; }",
            ),
            true,
        ),
        ("a-httpd.conf", rule("/index.php?q=$1"), true),
        ("a-httpd.conf", rule("/index.php"), false),
    ] {
        let directory = Directory::with(&[(name, text.as_str())]);
        let made = convert(&[directory.join(name)]).expect(&text);
        let told = made.notes.iter().any(|it| it.contains("is not set"));
        assert_eq!(told, is_told, "{text}\n{:?}", made.notes);
    }
}

#[test]
fn a_script_for_missing_pages_is_the_front_controller() {
    let pass = "location ~ \\.php$ { fastcgi_pass unix:/run/php.sock; }";
    for (page, fallback) in [
        ("error_page 404 = /index.php;", "fallback: index.php"),
        ("error_page 404 = /app.php;", "fallback: app.php"),
        ("error_page 404 /index.php;", "fallback: none"),
        ("error_page 500 = /index.php;", "fallback: none"),
        ("", "fallback: none"),
    ] {
        let text = format!(
            "server {{ root /srv/x; {page} location / {{ try_files $uri $uri/ =404; }} {pass} }}\n"
        );
        let directory = Directory::with(&[("a.conf", text.as_str())]);
        let made = convert(&[directory.join("a.conf")]).expect(&text);
        assert!(made.yaml.contains(fallback), "{text}\n{}", made.yaml);
    }
}

#[test]
fn scripts_that_ran_in_a_refused_prefix_are_told() {
    let php = "location ~ \\.php$ { fastcgi_pass unix:/run/php.sock; }";
    for (location, is_told) in [
        ("location /adm/ { deny all; }", true),
        ("location ^~ /adm/ { deny all; }", false),
        ("location /adm/ { }", false),
    ] {
        let text = format!("server {{ root /srv/x; {location} {php} }}\n");
        let directory = Directory::with(&[("a.conf", text.as_str())]);
        let made = convert(&[directory.join("a.conf")]).expect(&text);
        let told = made
            .notes
            .iter()
            .any(|it| it.contains("scripts below it ran"));
        assert_eq!(told, is_told, "{text}\n{:?}", made.notes);
    }
}

#[test]
fn files_above_the_root_of_apache_close_it() {
    for (file, closed) in [
        ("Require all denied\n", vec!["/", "/a.php", "/x"]),
        (
            "<Files a.php>\nRequire all denied\n</Files>\n",
            vec!["/a.php", "/b/a.php"],
        ),
        (
            "RewriteEngine On\nRewriteRule secret - [F]\n",
            vec!["/", "/x"],
        ),
        ("Options -Indexes\n", vec![]),
    ] {
        let directory = Directory::with(&[(".htaccess", file), ("www/a.php", "")]);
        let above = directory.display();
        let host = format!(
            "<VirtualHost *:80>\nServerName site.example\nDocumentRoot {above}/www\n<Directory \
             {above}>\nAllowOverride All\nRequire all granted\n</Directory>\n</VirtualHost>\n"
        );
        directory.write("a-httpd.conf", &host);
        let made = convert(&[directory.join("a-httpd.conf")]).expect(&host);
        for path in ["/", "/a.php", "/b/a.php", "/x"] {
            let is_shut = closed.contains(&path) || closed.contains(&"/");
            assert_eq!(
                is_closed(&made.yaml, path),
                is_shut,
                "{path}\n{file}\n{}",
                made.yaml
            );
        }
    }
}

/// As plugins for caches write them, and hosts of many sites.
#[test]
fn settings_of_a_module_that_may_not_be_there_close_nothing() {
    for block in [
        "<IfModule LiteSpeed>\nCacheLookup on\n</IfModule>\n",
        "<IfModule mod_suphp.c>\nsuPHP_ConfigPath /srv\n</IfModule>\n",
        "<IfModule pagespeed_module>\nModPagespeed on\n</IfModule>\n",
    ] {
        let site = Directory::with(&[("index.php", ""), (".htaccess", block)]);
        site.write("httpd.conf", &host_at(&site));
        let made = convert(&[site.join("httpd.conf")]).unwrap();
        assert!(!is_closed(&made.yaml, "/"), "{block}\n{}", made.yaml);
        assert!(made.limits.is_empty(), "{block}\n{:?}", made.limits);
        site.write(".htaccess", &block.replace("IfModule ", "IfModule !"));
        let made = convert(&[site.join("httpd.conf")]).unwrap();
        assert!(is_closed(&made.yaml, "/"), "{block}\n{}", made.yaml);
    }
}

/// Whoever misspells `Require` keeps nobody out, and a module of others may keep anybody out.
#[test]
fn what_a_statement_that_nobody_knows_holds_for_is_closed() {
    const PATHS: [&str; 3] = ["/", "/adm/x", "/adm/a.php"];
    let wrong = |what: &str, made: &Converted, closed: &[&str]| {
        let is_told = made.limits.iter().any(|it| it.contains("misspelled"));
        let is_wrong = |path: &&&str| is_closed(&made.yaml, path) != closed.contains(*path);
        let wrong: Vec<_> = PATHS.iter().filter(is_wrong).collect();
        (!is_told || !wrong.is_empty())
            .then(|| format!("{what}: {wrong:?} {:?}\n{}", made.limits, made.yaml))
    };
    let mut all = Vec::new();
    let adm = &PATHS[1..];
    for statement in [
        "auth_pam on;",
        "denny all;",
        "rewrite_by_lua_block { ngx.exit(403) }",
    ] {
        for (text, closed) in [
            (
                format!("http {{ {statement}\n{} }}", nginx_site("")),
                &PATHS[..],
            ),
            (nginx_site(statement), &PATHS[..]),
            (
                nginx_site(&format!("location ^~ /adm/ {{ {statement} }}")),
                adm,
            ),
        ] {
            all.extend(wrong(&text, &converted("site.conf", &text), closed));
        }
    }
    for statement in [
        "Requre all denied",
        "SecRuleEngine On",
        "Use Closed",
        "RequireIp 10.0.0.1",
    ] {
        for (at, closed) in [("/srv/x", &PATHS[..]), ("/srv/x/adm", adm)] {
            let text = format!(
                "DocumentRoot /srv/x\nFallbackResource /index.php\n<Directory \
                 {at}>\n{statement}\n</Directory>\n"
            );
            all.extend(wrong(&text, &converted("httpd.conf", &text), closed));
        }
        let text = format!("DocumentRoot /srv/x\n<Location /adm>\n{statement}\n</Location>\n");
        all.extend(wrong(&text, &converted("httpd.conf", &text), adm));
        let text = format!("DocumentRoot /srv/x\n{statement}\n");
        all.extend(wrong(&text, &converted("httpd.conf", &text), &PATHS));
        for (file, closed) in [(".htaccess", &PATHS[..]), ("adm/.htaccess", adm)] {
            let site = Directory::with(&[("adm/a.php", ""), ("index.php", ""), (file, statement)]);
            site.write("httpd.conf", &host_at(&site));
            let made = convert(&[site.join("httpd.conf")]).unwrap();
            all.extend(wrong(&format!("{file}: {statement}"), &made, closed));
        }
    }
    assert!(all.is_empty(), "{}", all.join("\n"));
}

/// Each host has the limits that stand outside of hosts.
#[test]
fn what_apache_says_outside_of_hosts_holds_in_each() {
    let site = Directory::with(&[("priv/a.php", ""), ("priv/o.txt", ""), ("index.php", "")]);
    let root = site.display().to_string();
    let hosts = format!(
        "<VirtualHost *:80>\nServerName a.test\nDocumentRoot {root}\n</VirtualHost>\n\
         <VirtualHost *:80>\nServerName b.test\nDocumentRoot {root}\n</VirtualHost>\n"
    );
    let (file, script) = ("/priv/o.txt", "/priv/a.php");
    let mut wrong = Vec::new();
    for (statement, closed) in [
        ("Redirect 404 /priv", &[file, script][..]),
        ("Redirect gone /priv", &[file, script]),
        ("RedirectMatch 404 \\.txt$", &[file]),
        (
            "<Directory \"R/p*\">\nRequire all denied\n</Directory>",
            &[file, script],
        ),
        (
            "<Directory \"/*/*/p*\">\nRequire all denied\n</Directory>",
            &[file, script],
        ),
        (
            "<Directory ~ \"priv\">\nRequire all denied\n</Directory>",
            &[file, script],
        ),
        ("php_admin_flag engine off", &[script]),
        (
            "<FilesMatch \"\\.php$\">\nSetHandler none\n</FilesMatch>",
            &[script],
        ),
        (
            "<FilesMatch \"\\.php$\">\nSetHandler cgi-script\n</FilesMatch>",
            &[script],
        ),
        (
            "<Location /priv>\nSetHandler cgi-script\n</Location>",
            &[script],
        ),
        (
            "<LocationMatch \"/priv/.*\\.php$\">\nSetHandler none\n</LocationMatch>",
            &[script],
        ),
        (
            "<Directory R/priv>\n<Files *.php>\nSetHandler none\n</Files>\n</Directory>",
            &[script],
        ),
        (
            "<Directory R/priv>\nSetHandler cgi-script\n</Directory>",
            &[script],
        ),
        (
            "<Directory R/priv>\n<Files o.txt>\nRequire all denied\n</Files>\n</Directory>",
            &[file],
        ),
        ("RewriteEngine On\nRewriteRule ^/priv - [F]", &[]),
    ] {
        let statement = statement.replace("R/", &format!("{root}/"));
        let (yaml, limits) = made("httpd.conf", &format!("{statement}\n{hosts}"));
        for host in ["a.test", "b.test"] {
            for path in closed {
                let answer = answer(&yaml, path, host);
                let is_kept = yaml.matches("no_scripts: [priv]").count() == 2;
                let runs = ["All", "Named"].contains(&answer.as_str()) && !is_kept;
                if if *path == script {
                    runs
                } else {
                    !answer.starts_with('4')
                } {
                    wrong.push(format!(
                        "{statement}: {host}{path}: {answer} {limits}\n{yaml}"
                    ));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// None of them is dropped: it closes what it is about, or is named.
#[test]
fn limits_in_a_htaccess_are_held_or_named() {
    let refusals = [
        "RewriteRule priv - [F]",
        "RewriteRule priv - [f]",
        "RewriteRule priv - [G]",
        "RewriteRule priv - [NC,R=403,L]",
        "RewriteRule priv - [redirect=403]",
        "RewriteRule priv - [R=503]",
        "RewriteRule priv - [Forbiden]",
        "RewriteRule priv - [H=text/plain]",
        "Redirect 404 /priv",
        "RedirectMatch gone priv",
        "Require all denied",
        "<Files o.txt>\nRewriteRule ^ - [F]\n</Files>",
        "<FilesMatch \"\\.txt$\">\nRedirectMatch 404 .\n</FilesMatch>",
        "<If \"%{REQUEST_URI} =~ /priv/\">\nRewriteRule ^ - [F]\n</If>",
        "<If \"%{REQUEST_URI} =~ /priv/\">\nRedirect 404 /\n</If>",
        "<Directory /srv>\nRequire all denied\n</Directory>",
        "<Files>\nRequire all denied\n</Files>",
        "Include x",
        "RewriteEngine Of",
        "Options -Indexes\rRequire all denied\r",
        "Action x-my /a.php\nAddHandler x-my .txt",
    ];
    let mut wrong = Vec::new();
    for (file, below) in [
        (".htaccess", ""),
        ("www/.htaccess", ""),
        ("www/priv/.htaccess", "/priv"),
        ("www/node_modules/.htaccess", "/node_modules"),
    ] {
        for statement in refusals {
            let path = format!("{}/o.txt", if below.is_empty() { "/priv" } else { below });
            let is_of_path = ["Redirect", "RewriteRule priv"];
            if file.contains("www/")
                && is_of_path.iter().any(|it| statement.starts_with(it))
                && !below.is_empty()
            {
                continue; // it is about paths in that directory
            }
            let site = Directory::with(&[
                ("www/priv/o.txt", ""),
                ("www/node_modules/o.txt", ""),
                (file, &format!("RewriteEngine On\n{statement}\n")),
            ]);
            let host = host_at(&site).replace("\nDocumentRoot ", "\nDocumentRoot X");
            let host = host.replace(
                &format!("X{}", site.display()),
                &format!("{}/www", site.display()),
            );
            site.write("a-httpd.conf", &host);
            let made = convert(&[site.join("a-httpd.conf")]).unwrap();
            let is_named = made.limits.iter().any(|it| it.contains(".htaccess"));
            if !(is_named || is_closed(&made.yaml, &path)) {
                wrong.push(format!(
                    "{file}: {statement}: {:?}\n{}",
                    made.limits, made.yaml
                ));
            }
            if file.starts_with("www/") {
                let closed = Closed::below(&site.join("www"));
                let meets = closed
                    .routes
                    .iter()
                    .any(|(it, _)| PathPattern::parse(it).unwrap().gets(&path));
                if !meets && closed.told.is_empty() {
                    wrong.push(format!(
                        "{file}, without a configuration: {statement}: {closed:?}"
                    ));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_rewrite_that_a_later_one_goes_on_with_is_closed() {
    let of = |rules: &str| {
        let site = format!(
            "server {{ listen 80; root /srv/x;\n{rules}\nlocation ~ \\.php$ {{ fastcgi_pass a; }} }}"
        );
        made("site.conf", &site)
    };
    let chain = "rewrite ^/priv/(.*)$ /sub/$1; rewrite ^/sub/(.*)$ /up/$1;";
    let (yaml, limits) = of(chain);
    assert!(is_closed(&yaml, "/priv/x"), "{yaml}");
    assert!(limits.contains("^/priv/"), "{limits}");
    for rules in [
        "rewrite ^/priv/(.*)$ /sub/$1 last; rewrite ^/sub/(.*)$ /up/$1;",
        "rewrite ^/priv/(.*)$ /sub/$1; rewrite ^/other/(.*)$ /up/$1;",
    ] {
        let (yaml, limits) = of(rules);
        assert!(
            !is_closed(&yaml, "/priv/x") && limits.is_empty(),
            "{yaml} {limits}"
        );
    }
    let (yaml, _) = made(
        "site.conf",
        "server { listen 80; server_name a.x; root /srv/a; } server { listen 80; server_name .b.x; root /srv/b; }",
    );
    assert!(yaml.contains("b.x") && yaml.contains("*.b.x"), "{yaml}");
}

#[test]
fn what_frameworks_lead_to_their_front_controller_keeps_the_site_open() {
    let rules = |text: &str| {
        let site = Directory::with(&[("index.php", ""), ("a.css", ""), (".htaccess", text)]);
        let host = host_at(&site).replace("ServerName", "DirectoryIndex index.php\nServerName");
        site.write("httpd.conf", &host);
        convert(&[site.join("httpd.conf")]).unwrap()
    };
    // Kirby's, Joomla's and TYPO3's.
    let none = "RewriteCond %{REQUEST_FILENAME} !-f\n";
    for text in [
        format!(
            "RewriteEngine On\nRewriteRule (^|/)\\.(?!well-known\\/) index.php [L]\n{none}RewriteRule ^(.*) index.php [L]\n"
        ),
        format!(
            "RewriteEngine On\nRewriteCond %{{REQUEST_URI}} ^/api/\n{none}RewriteRule .* api/index.php [L]\nRewriteCond %{{REQUEST_URI}} !^/index\\.php\n{none}RewriteRule .* index.php [L]\n"
        ),
        format!(
            "RewriteEngine On\nRewriteRule ^.*$ - [E=CWD:x]\n{none}RewriteRule ^.*$ %{{ENV:CWD}}index.php [QSA,L]\n"
        ),
    ] {
        let made = rules(&text);
        let is_front = !made.yaml.contains("fallback: none") && !made.yaml.contains("api/");
        assert!(is_front, "{text}\n{}", made.yaml);
        assert!(
            !made.yaml.contains("scripts: front"),
            "{text}\n{}",
            made.yaml
        );
    }
}

#[test]
fn a_location_of_scripts_in_another_one_that_runs_none_is_closed() {
    for (inside, is_open) in [
        ("", false),
        ("expires 1h;", false),
        ("include fastcgi_params; fastcgi_pass unix:/a.sock;", true),
    ] {
        let location = format!("location /up/ {{ location ~ \\.php$ {{ {inside} }} }}");
        let (yaml, _) = made("site.conf", &nginx_site(&location));
        let runs = ["All", "Named"].contains(&&*answer(&yaml, "/up/e.php", ""));
        assert_eq!(runs, is_open, "{inside}\n{yaml}");
        assert!(!is_closed(&yaml, "/up/e.txt"), "{yaml}");
    }
}

#[test]
fn a_break_for_files_before_a_rewrite_of_all_is_a_front_controller() {
    let php = "location ~ \\.php$ { include fastcgi_params; fastcgi_pass unix:/a.sock; }";
    let rules = "if (-f $request_filename) { break; } rewrite ^ /index.php last;";
    for site in [
        format!("server {{ listen 80; root /srv/x; index index.php;\n{rules}\n{php} }}"),
        format!(
            "server {{ listen 80; root /srv/x; index index.php;\nlocation / {{ {rules} }}\n{php} }}"
        ),
    ] {
        let made = converted("site.conf", &site);
        let is_right = !made.yaml.contains("fallback: none") && !made.yaml.contains("forbid");
        assert!(
            is_right && !made.is_unsure(),
            "{site}\n{} {:?}",
            made.yaml,
            made.limits
        );
        assert!(!is_closed(&made.yaml, "/a.css"), "{}", made.yaml);
    }
}

#[test]
fn the_first_host_of_apache_that_has_a_name_answers_for_it() {
    let host = |port: u16, names: &str, root: &str| {
        format!("<VirtualHost *:{port}>\n{names}\nDocumentRoot /srv/{root}\n</VirtualHost>\n")
    };
    let first = host(80, "ServerName x.test\nServerAlias *.test", "a");
    for (second, has_b) in [
        (host(80, "ServerName a.test", "b"), false),
        (host(80, "ServerName a.test\nServerAlias b.org", "b"), true),
        (host(81, "ServerName a.test", "b"), true),
        (host(80, "ServerName test", "b"), true),
    ] {
        let made = converted("httpd.conf", &format!("{first}{second}"));
        assert_eq!(
            made.yaml.contains("/srv/b"),
            has_b,
            "{second}\n{}",
            made.yaml
        );
        let is_first = second.contains("*:80");
        let is_said = made.yaml.contains("host: a.test") || made.yaml.contains("[a.test");
        assert!(!(is_first && is_said), "{second}\n{}", made.yaml);
    }
}
