//! Applications as Debian's packages have them, in pools that run scripts: somebody logs in,
//! writes, uploads and reads back.

use pronghorn_testkit::{Server, Site};

use crate::apps::{Browser, DATA, laravel_conversation, symfony_conversation};
use crate::ring::extension;

/// The ways to run scripts, and PHP with an option of its own in each: the keys of a pool.
fn modes(option: &str) -> [String; 2] {
    let extension = extension();
    [
        format!(
            "mode: classic, php: 'php -d extension={} {option}'",
            extension.display()
        ),
        format!("mode: fastcgi, command: 'php-cgi {option}'"),
    ]
}

/// A server of a folder with an application.
fn serve(site: Site, mode: &str, root: &str, environment: &str) -> Server {
    let config = format!(
        "version: '3'\nserver: {{env: {{{environment}}}}}\nhttp:\n  address: 127.0.0.1:0\n  \
         pool: {{{mode}, root: '{root}', symlinks: anywhere, num_workers: 1}}\n"
    );
    Server::start(site.config(&config))
}

/// The value of a hidden field of a form.
pub(crate) fn hidden(page: &str, name: &str) -> String {
    let field = format!("name=\"{name}\" value=\"");
    let alone = format!("name='{name}' value='");
    let value = page.split_once(&field).map(|(_, rest)| (rest, '"'));
    let value = value.or_else(|| page.split_once(&alone).map(|(_, rest)| (rest, '\'')));
    assert!(value.is_some(), "no field {name} in\n{page}");
    let (rest, end) = value.unwrap_or_default();
    rest.split(end).next().unwrap_or_default().to_owned()
}

/// Files in folders, sessions, forms, uploads, and most of PHP's own functions for them.
#[test]
fn dokuwiki() {
    for mode in modes("-d auto_prepend_file={FOLDER}/prepend.php") {
        let site = Site::new();
        let folder = site.folder().display().to_string();
        for name in [
            "attic",
            "cache",
            "index",
            "locks",
            "log",
            "media",
            "media_attic",
            "media_meta",
            "meta",
            "pages",
            "tmp",
        ] {
            std::fs::create_dir_all(site.path(&format!("data/{name}")))
                .expect("a folder can be made");
        }
        let site = site
            .file("prepend.php", "<?php define('DOKU_CONF', __DIR__ . '/conf/');")
            .file("conf/local.php", "<?php $conf['useacl'] = 1; $conf['superuser'] = '@admin'; $conf['savedir'] = dirname(__DIR__) . '/data';")
            // The password is `secret`.
            .file("conf/users.auth.php", "ada:5ebe2294ecd0e0f08eab7690d2a6ee69:Ada:ada@example.org:admin,user\n")
            .file("conf/acl.auth.php", "* @ALL 1\n* @user 8\n");
        let server = serve(
            site,
            &mode.replace("{FOLDER}", &folder),
            "/usr/share/dokuwiki",
            "",
        );
        let mut browser = Browser::new(&server);
        let start = browser.get("/doku.php?id=start").text();
        assert!(start.contains("This topic does not exist yet"), "{start}");
        let login = "id=start&do=login&u=ada&p=";
        let refused = browser
            .post("/doku.php?id=start", &format!("{login}wrong"))
            .text();
        assert!(
            refused.contains("username or password was wrong"),
            "{refused}"
        );
        assert_eq!(
            browser
                .post("/doku.php?id=start", &format!("{login}secret"))
                .status,
            302
        );
        assert!(browser.get("/doku.php?id=start").text().contains("Log Out"));

        let form = browser.get("/doku.php?id=notes&do=edit").text();
        let fields = [
            "sectok",
            "rev",
            "date",
            "prefix",
            "suffix",
            "changecheck",
            "target",
        ];
        let fields = fields
            .map(|name| format!("{name}={}", hidden(&form, name)))
            .join("&");
        let text = "A+%2F%2Fpage%2F%2F+of+%C3%84da%0A%7B%7B%3Alogo.png%7D%7D";
        let saved = browser.post(
            "/doku.php",
            &format!("id=notes&{fields}&wikitext={text}&summary=first&do%5Bsave%5D=1"),
        );
        assert_eq!(saved.status, 302, "{}", saved.text());
        let mut stranger = Browser::new(&server);
        let page = stranger.get("/doku.php?id=notes").text();
        assert!(page.contains("A <em>page</em> of Äda"), "{page}");
        assert_eq!(
            server.site().read("data/pages/notes.txt"),
            "A //page// of Äda\n{{:logo.png}}"
        );

        let logo = std::fs::read("/usr/share/dokuwiki/lib/tpl/dokuwiki/images/logo.png")
            .expect("it is there");
        let sent = browser.upload(
            "/lib/exe/mediamanager.php?ns=",
            &[
                ("sectok", &hidden(&form, "sectok")),
                ("ns", ""),
                ("mediaid", "logo.png"),
            ],
            ("upload", "logo.png", "image/png", &logo),
        );
        assert!(sent.text().contains("Upload successful"), "{}", sent.text());
        let got = stranger.get("/lib/exe/fetch.php?media=logo.png");
        assert_eq!(
            (got.status, got.header("content-type")),
            (200, Some("image/png"))
        );
        assert!(got.body == logo, "the picture is another");
        let style = stranger.get("/lib/exe/css.php");
        assert_eq!(
            (style.status, style.header("content-type")),
            (200, Some("text/css; charset=utf-8"))
        );
        assert_eq!(stranger.get("/lib/tpl/dokuwiki/images/logo.png").body, logo);
        server.stop();
    }
}

/// One file of 500 KB, a session, redirects, and a database.
#[test]
fn adminer_on_sqlite() {
    for mode in modes("") {
        let site = Site::new().file(
            "public/index.php",
            "<?php
            function adminer_object() {
                class Open extends Adminer { function login($login, $password) { return true; } }
                return new Open();
            }
            include '/usr/share/adminer/adminer.php';",
        );
        site.write("data.sqlite", ""); // is an empty database
        let database = format!("{}/data.sqlite", site.folder().display());
        let server = serve(site, &mode, "public", "");
        let mut browser = Browser::new(&server);
        assert!(
            browser
                .get("/")
                .text()
                .contains("<title>Login - Adminer</title>")
        );
        let form = format!(
            "auth%5Bdriver%5D=sqlite&auth%5Bserver%5D=&auth%5Busername%5D=&auth%5Bpassword%5D=&auth%5Bdb%5D={database}"
        );
        let entered = browser.post("/", &form);
        let at = entered.header("location").expect("it leads on");
        let (_, query) = at.split_once('?').expect("it has a query");
        let at = format!("/?{query}");
        let page = browser.get(&format!("{at}&sql=")).text();
        let token = hidden(&page, "token");
        let sql = "CREATE+TABLE+notes+(id+INTEGER+PRIMARY+KEY,+text+TEXT);+INSERT+INTO+notes+(text)+VALUES+('%C3%84+%3Cb%3E');";
        let run = browser.post(
            &format!("{at}&sql="),
            &format!("query={sql}&token={token}&limit=&error_stops=1"),
        );
        assert!(run.text().contains("1 row affected"), "{}", run.text());
        let listed = browser.get(&format!("{at}&select=notes")).text();
        assert!(listed.contains("Ä &lt;b&gt;"), "{listed}");
        server.stop();
    }
}

/// Hundreds of classes for one page.
#[test]
fn phpmyadmin_asks_who_is_there() {
    for mode in modes("") {
        let site = Site::new();
        let server = serve(site, &mode, "/usr/share/phpmyadmin", "");
        let mut browser = Browser::new(&server);
        for _ in 0..2 {
            let page = browser.get("/").text();
            assert!(
                page.contains("input_username") && page.contains("phpMyAdmin"),
                "{page}"
            );
        }
        assert_eq!(browser.get("/js/dist/common.js").status, 200);
        assert_eq!(
            browser.get("/themes/pmahomme/img/logo_left.png").status,
            200
        );
        server.stop();
    }
}

#[test]
fn laravel() {
    each("laravel", laravel_conversation);
}

#[test]
fn symfony() {
    each("symfony", symfony_conversation);
}

/// An application of `bench/apps`, in all ways to run scripts: it answers what it answers under
/// PHP's own server.
fn each(app: &str, conversation: fn(&mut Browser)) {
    for mode in modes("") {
        let site = Site::new();
        let data = site.path("data").display().to_string();
        let root = Site::app(app).join("public").display().to_string();
        let server = serve(site, &mode, &root, &format!("{DATA}: '{data}'"));
        conversation(&mut Browser::new(&server));
        server.stop();
    }
}

/// Scripts that read their paths as a blog (REST below `wp-json`) and a wiki (`rest.php`) of many
/// do.
#[test]
fn paths_with_encoded_slashes_and_long_ones_are_the_applications() {
    let front = "<?php $path = explode('?', $_SERVER['REQUEST_URI'])[0]; \
                 echo json_encode(['front', rawurldecode($path), $_SERVER['REQUEST_URI'], $_SERVER['PATH_INFO'] ?? '']);";
    let rest = "<?php [$path] = explode('?', $_SERVER['REQUEST_URI']); \
                echo json_encode(['rest', array_map('rawurldecode', explode('/', $path)), $_SERVER['PATH_INFO']]);";
    for mode in modes("") {
        let site = Site::new()
            .file("site/index.php", front)
            .file("site/rest.php", rest)
            .file("site/wp-cron.php", "<?php echo 'cron';")
            .file("site/wp-admin/index.php", "<?php echo 'admin';")
            .file("site/wp-content/a.css", "css");
        let root = site.path("site").display().to_string();
        let server = serve(site, &mode, &root, "");
        let json = |target: &str| -> serde_json::Value {
            let response = server.get(target);
            assert_eq!(response.status, 200, "{target}");
            serde_json::from_str(&response.text()).expect("JSON")
        };
        for target in [
            "/wp-json/wp/v2/templates/x%2F%2Findex",
            "/wp-json/wp/v2/templates/x%2F%2Findex?context=edit",
            "/wp-admin%2Findex.php",
            "/wp-admin%2f",
            "/wp-content%2Fa.css",
            "/wp-content/a.css%2F",
            "/wp-content%5Ca.css",
            "/wp-cron.php%2F",
            "/a/b%5Cc",
            "/a\\b",
        ] {
            let path = target.split('?').next().unwrap_or_default();
            let path = path
                .replace("%2F", "/")
                .replace("%2f", "/")
                .replace("%5C", "\\");
            assert_eq!(json(target), serde_json::json!(["front", path, target, ""]));
        }
        assert_eq!(
            json("/rest.php/v1/page/Main%2FSub%2F%2Fx?a=%2F"),
            serde_json::json!([
                "rest",
                ["", "rest.php", "v1", "page", "Main/Sub//x"],
                "/v1/page/Main/Sub/x"
            ])
        );
        assert_eq!(
            server.get("/wp-cron.php?doing_wp_cron=1%2F2").text(),
            "cron"
        );
        for bad in ["/a%00b", "/rest.php/%00", "/a%2Fb%", "/100%"] {
            assert_eq!(server.get(bad).status, 400, "{bad}");
        }
        // Longer than any file's path, in one segment and in many.
        for long in ["a".repeat(6000), "%E4%B8%AD".repeat(500), "a/".repeat(3500)] {
            let target = format!("/{long}");
            assert_eq!(json(&target)[2], target, "{}", target.len());
            let behind = format!("/rest.php/{long}");
            let info = json(&behind)[2].as_str().map(str::len);
            let decoded = long.replace("%E4%B8%AD", "\u{4e2d}").len() + 1;
            assert_eq!(info, Some(decoded), "{}", behind.len());
        }
        server.stop();
    }
}
