//! WordPress as Debian has it, on a MariaDB of its own: `examples/wordpress`, where every request
//! is a script, and where pages come from processes in which WordPress is loaded.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use pronghorn_testkit::{
    Engine, Response, Server, Site, binary, free_address, php_command, wait_for,
};
use rustix::process::{Pid, Signal, kill_process};

use crate::applications::hidden;
use crate::apps::{Browser, json};
use crate::example::copy;
use crate::ring::extension;

/// Runs once for each event, and says so.
const PLUGIN: &str = "<?php
define('WP_CRON_LOCK_TIMEOUT', 1);
add_action('note', fn () => file_put_contents(ABSPATH . 'noted', 'noted ', FILE_APPEND));
add_action('init', fn () => isset($_GET['schedule']) && wp_schedule_single_event(time() - 1, 'note'));
";

/// A copy of the example, and the address for which the blog is installed.
fn example() -> (Site, SocketAddr) {
    extension();
    (copy("wordpress"), free_address())
}

/// Runs one of the example's programs.
fn run(site: &Site, program: &str, script: &str, address: SocketAddr) {
    let ran = php_command(program)
        .arg(script)
        .current_dir(site.folder())
        .env("WP_HOME", format!("http://{address}"))
        .env("TMPDIR", site.folder())
        .output()
        .expect("it starts");
    let said = String::from_utf8_lossy(&ran.stderr) + String::from_utf8_lossy(&ran.stdout);
    assert!(ran.status.success() && said.is_empty(), "{script}: {said}");
}

/// A MariaDB with nothing but what it brings, as user `root` without a password.
pub(crate) fn new_database(site: &Site) -> Engine {
    let folder = site.path("database");
    std::fs::create_dir_all(&folder).expect("a folder can be made");
    let made = Command::new("mariadb-install-db")
        .args(["--no-defaults", "--innodb-log-file-size=4M"])
        .arg("--auth-root-authentication-method=normal")
        .arg(format!("--datadir={}", folder.display()))
        .env("TMPDIR", site.path("."))
        .output();
    assert!(made.is_ok_and(|made| made.status.success()));
    database(site)
}

/// A MariaDB whose files are in the site's folder `database`, and its socket, too.
pub(crate) fn database(site: &Site) -> Engine {
    let folder = site.path("database").display().to_string();
    let rights = rustix::process::geteuid().is_root();
    Engine::start("/usr/sbin/mariadbd", |_| {
        let mut arguments = vec![
            "--no-defaults".to_owned(),
            "--skip-networking".to_owned(),
            format!("--datadir={folder}"),
            format!("--socket={folder}/socket"),
            // A server that starts removes what others have in a directory of temporary files.
            format!("--tmpdir={folder}"),
        ];
        arguments.extend(rights.then(|| "--user=root".to_owned()));
        arguments
    })
}

fn serve(site: Site, config: &str, address: SocketAddr) -> Server {
    let home = format!("http://{address}");
    let listen = format!("http.address={address}");
    Server::start_with_environment(
        site,
        &["serve", "-c", config, "-o", &listen],
        &[("WP_HOME", &home)],
    )
}

#[test]
fn a_blog_is_read_and_written() {
    let (site, address) = example();
    run(&site, "sh", "setup", address);
    site.write("site/wp-content/mu-plugins/note.php", PLUGIN);
    let mut database = database(&site);
    run(&site, "php", "install.php", address);
    let mut site = site;
    for (name, config) in [
        ("scripts", "pronghorn.yaml"),
        ("ahead", "preheat.yaml"),
        ("plugins", "preheat.yaml"),
    ] {
        if name == "plugins" {
            let worker = site.read("worker.php");
            site.write(
                "worker.php",
                &worker.replace("/site')", "/site', 'plugins_loaded')"),
            );
        }
        let server = serve(site, config, address);
        read(&server);
        write(&server, name);
        upload(&server);
        cron(&server);
        let shown = server.steer(&["cache", "-c", config]).stdout;
        assert!(shown.contains("wordpress"), "{shown}");
        database_goes_and_comes(&server, &mut database, name);
        // It can't ask for updates, and says so.
        let log = server.log();
        let log = log.lines().filter(|line| !line.contains("wordpress.org"));
        for line in log {
            for trouble in ["in spite of", "without a cache", "PHP Warning", "PHP Fatal"] {
                assert!(!line.contains(trouble), "{line}");
            }
        }
        site = server.into_site();
    }
}

fn database_goes_and_comes(server: &Server, database: &mut Engine, name: &str) {
    database.stop();
    let mut visitor = Browser::by_address(server);
    // Pages that are wholly in the cache are still made where no connection is opened first.
    let failed = visitor.get(&format!("/?s=for+{name}"));
    let said = failed.text();
    let is_said = [
        "establishing a database connection",
        "reconnecting to the database",
    ]
    .iter()
    .any(|words| said.contains(words));
    assert!(failed.status == 500 && is_said, "{}: {said}", failed.status);
    database.restart();
    wait_for("the database", || {
        let found = visitor.get(&format!("/?s=again+for+{name}"));
        (found.status == 200).then_some(())
    });
}

fn read(server: &Server) {
    let mut visitor = Browser::by_address(server);
    let home = format!("http://{}", server.address());
    let front = visitor.get("/").text();
    assert!(front.contains("Hello world!</a>"), "{front}");
    let moved = visitor.get("/?p=1");
    let link = moved.header("location").expect("a permalink");
    let page = link.strip_prefix(&home).expect("of this blog");
    assert_eq!((moved.status, page.ends_with("/hello-world/")), (301, true));
    assert!(visitor.get(page).text().contains("Welcome to WordPress."));
    // What a file of WordPress asks the query while it is loaded.
    let to_reply = visitor.get(&format!("{page}?replytocom=1")).text();
    assert!(to_reply.contains("noindex"), "{to_reply}");
    let none = visitor.get("/no/such/page");
    assert!(none.status == 404 && none.text().contains("</html>"));
    assert!(visitor.get("/feed/").text().contains("<rss"));
    assert!(
        visitor
            .get("/robots.txt")
            .text()
            .contains("/wp-sitemap.xml")
    );
    assert_eq!(visitor.get("/wp-includes/css/buttons.css").status, 200);
    let found = visitor.get("/?s=nothing+of+it").text();
    assert!(found.contains("nothing of it"), "{found}");
    let posts = json(&visitor.get("/wp-json/wp/v2/posts?slug=hello-world"));
    assert_eq!(posts[0]["title"]["rendered"], "Hello world!");
}

fn log_in(server: &Server) -> Browser {
    let mut admin = Browser::by_address(server);
    admin.get("/wp-login.php");
    let refused = admin.post("/wp-login.php", "log=admin&pwd=wrong&testcookie=1");
    assert!(
        refused.text().contains("is incorrect"),
        "{}",
        refused.text()
    );
    let entered = admin.post("/wp-login.php", "log=admin&pwd=pronghorn&testcookie=1");
    assert_eq!(entered.status, 302, "{}", entered.text());
    assert!(admin.get("/wp-admin/").text().contains("Dashboard"));
    admin
}

/// What one of the administrator's programs sends over REST.
fn rest(admin: &mut Browser, path: &str, body: &str) -> Response {
    let nonce = admin.get("/wp-admin/admin-ajax.php?action=rest-nonce");
    let headers = format!(
        "Content-Type: application/json\r\nX-WP-Nonce: {}\r\n",
        nonce.text()
    );
    admin.ask("POST", &format!("/wp-json/wp/v2/{path}"), &headers, body)
}

fn write(server: &Server, name: &str) {
    let mut stranger = Browser::by_address(server);
    let turned_away = stranger.get("/wp-admin/");
    let to = turned_away.header("location").unwrap_or_default();
    assert!(to.contains("/wp-login.php"), "{to}");
    let mut admin = log_in(server);
    assert!(admin.get("/").text().contains("id=\"wpadminbar\""));
    assert!(!stranger.get("/").text().contains("id=\"wpadminbar\""));

    let post =
        format!(r#"{{"title": "Of {name}", "content": "It's 'new'.", "status": "publish"}}"#);
    assert_eq!(rest(&mut stranger, "posts", &post).status, 403);
    assert_eq!(rest(&mut admin, "posts", &post).status, 201);
    let front = stranger.get("/").text();
    assert!(front.contains(&format!("Of {name}</a>")), "{front}");
    // Quotation marks are what WordPress adds slashes for, once.
    let page = format!("/{}/of-{name}/", year(&front));
    let page = stranger.get(&page).text();
    assert!(page.contains("It&#8217;s &#8216;new&#8217;."), "{page}");

    // What one process changes, all others read.
    for title in [format!("Blog of {name}"), "Pronghorn".to_owned()] {
        let told = rest(
            &mut admin,
            "settings",
            &format!(r#"{{"title": "{title}"}}"#),
        );
        assert_eq!(told.status, 200, "{}", told.text());
        for _ in 0..3 {
            let front = stranger.get("/").text();
            assert!(
                front.contains(&format!("<title>{title}</title>")),
                "{front}"
            );
        }
    }
}

/// That of the link of the first post.
fn year(page: &str) -> &str {
    let (_, link) = page
        .split_once("/hello-world/")
        .map_or(("", ""), |(before, _)| {
            before.rsplit_once('/').unwrap_or_default()
        });
    link
}

fn upload(server: &Server) {
    let mut admin = log_in(server);
    let picture = std::fs::read("/usr/share/wordpress/wp-admin/images/w-logo-blue.png");
    let picture = picture.expect("WordPress is installed");
    let page = admin.get("/wp-admin/media-new.php").text();
    let nonce = hidden(&page, "_wpnonce");
    let fields = [
        ("action", "upload-attachment"),
        ("_wpnonce", nonce.as_str()),
    ];
    let sent = admin.upload(
        "/wp-admin/async-upload.php",
        &fields,
        ("async-upload", "logo.png", "image/png", &picture),
    );
    let told = json(&sent);
    assert_eq!(told["success"], true, "{told}");
    let url = told["data"]["url"].as_str().expect("where it is");
    let (_, path) = url.split_once(&server.address().to_string()).expect("here");
    let got = Browser::by_address(server).get(path);
    assert_eq!(got.header("content-type"), Some("image/png"));
    assert!(got.body == picture, "the picture is another");

    let script = b"<?php echo 'it ', 'ran';";
    let refused = admin.upload(
        "/wp-admin/async-upload.php",
        &fields,
        ("async-upload", "evil.php", "image/png", script),
    );
    assert_eq!(json(&refused)["success"], false);
    // And if one gets there in spite of that.
    for name in ["evil.php", "evil.phtml", "2026/index.php"] {
        let folder = server.site().path("site/wp-content/uploads/2026");
        std::fs::create_dir_all(folder).expect("a folder can be made");
        let file = format!("site/wp-content/uploads/{name}");
        server.site().write(&file, &String::from_utf8_lossy(script));
    }
    for target in [
        "evil.php",
        "evil.phtml",
        "2026/",
        "2026/index.php",
        "evil.php/a.png",
    ] {
        for spelled in [
            format!("/wp-content/uploads/{target}"),
            format!("//wp-content/%75ploads/{target}"),
        ] {
            let answer = Browser::by_address(server).get(&spelled).text();
            assert!(
                !answer.contains("it ran") && !answer.contains("<?php"),
                "{spelled}: {answer}"
            );
        }
    }
}

/// WordPress calls itself for what is due, when somebody asks for a page.
fn cron(server: &Server) {
    let noted = server.site().path("site/noted");
    let before = std::fs::read_to_string(&noted).unwrap_or_default();
    let mut visitor = Browser::by_address(server);
    visitor.get("/?schedule=1");
    wait_for("what was due", || {
        visitor.get("/");
        let now = std::fs::read_to_string(&noted).unwrap_or_default();
        (now == format!("{before}noted ")).then_some(())
    });
}

/// Its object cache lies there, and there is no `wp-config.php`, which names the database and loads
/// the package; or something else has loaded that.
#[test]
fn a_blog_that_is_not_configured_asks_for_its_configuration() {
    let (site, address) = example();
    run(&site, "sh", "setup", address);
    for file in ["wp-config.php", "site/wp-config.php"] {
        std::fs::remove_file(site.path(file)).expect("it was there");
    }
    let package = concat!(env!("CARGO_MANIFEST_DIR"), "/../php/wordpress/autoload.php");
    let mut site = site;
    for prepended in ["none", package] {
        let ini = format!("http.pool.ini.auto_prepend_file={prepended}");
        let server = Server::start_with(site, &["serve", "-c", "pronghorn.yaml", "-o", &ini]);
        let sent = server.get("/").header("location").map(str::to_owned);
        let sent = sent.expect("WordPress asks for it");
        assert!(sent.ends_with("/wp-admin/setup-config.php"), "{sent}");
        let page = server.get("/wp-admin/setup-config.php");
        assert_eq!(page.status, 200, "{}", page.text());
        assert!(page.text().contains("language"), "{}", page.text());
        site = server.into_site();
    }
}

#[test]
fn what_cannot_be_loaded_ahead_is_said() {
    let (site, address) = example();
    run(&site, "sh", "setup", address);
    let _database = database(&site);
    run(&site, "php", "install.php", address);
    let settings = site.read("site/wp-config.php");
    for (constant, says) in [
        (
            "WP_CACHE",
            "WP_CACHE is on, and wp-content/advanced-cache.php looks at the request",
        ),
        (
            "MULTISITE",
            "the request says which site of the network is meant",
        ),
    ] {
        let more = format!("define('{constant}', true);\ndefined('ABSPATH')");
        site.write(
            "site/wp-config.php",
            &settings.replace("defined('ABSPATH')", &more),
        );
        let ended = Server::run(
            &site,
            &[
                "serve",
                "-c",
                "preheat.yaml",
                "-o",
                "http.address=127.0.0.1:0",
            ],
        );
        assert!(
            ended.code == Some(1) && ended.stderr.contains(says),
            "{}",
            ended.stderr
        );
    }
}

#[test]
fn one_command_makes_and_serves_it() {
    let (site, address) = example();
    let mut example = php_command("sh")
        .arg("run")
        .current_dir(site.folder())
        .env("ADDRESS", address.to_string())
        .env("PRONGHORN", binary())
        .spawn()
        .expect("it starts");
    wait_for("the blog", || {
        std::net::TcpStream::connect(address).ok()?;
        Some(())
    });
    let socket = site.path("database/socket");
    assert!(is_open(&socket));
    kill_process(Pid::from_child(&example), Signal::TERM).expect("it runs");
    let ended = example.wait().expect("it is a child");
    assert!(ended.success(), "{ended}");
    assert!(!is_open(&socket) && std::net::TcpStream::connect(address).is_err());
}

fn is_open(socket: &Path) -> bool {
    std::os::unix::net::UnixStream::connect(socket).is_ok()
}
