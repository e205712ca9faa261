//! Laravel Octane, unmodified, with this server as its RoadRunner; packages that were made for it,
//! in our own workers; and the worker of spiral/roadrunner-laravel. `make compat-laravel DIR=…`
//! runs it: DIR has a checkout of Octane and of what it needs, or is a Composer project with them.

use std::net::SocketAddr;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use pronghorn_testkit::{Connection, Server, Site, binary, free_address, php_command, wait_for};
use rustix::process::{Pid, Signal, kill_process};

#[path = "../e2e/example.rs"]
mod example;

fn packages() -> PathBuf {
    std::env::var_os("PRONGHORN_COMPAT_DIR")
        .expect("`make compat-laravel DIR=…` sets it")
        .into()
}

/// The Laravel of `examples`, with Octane and nothing of ours but where a test asks for it.
fn site() -> Site {
    let site = example::copy("laravel");
    let finder = Site::fixture("foreign/find-packages.php");
    let (finder, packages) = (finder.display(), packages());
    let packages = packages.display();
    let loads = format!(
        "<?php\nrequire_once __DIR__ . '/../bootstrap/autoload.php';\nrequire_once '{finder}';\n\
         if (is_file('{packages}/vendor/autoload.php')) {{\n    require_once '{packages}/vendor/autoload.php';\n\
         }} else {{\n    Foreign\\loadCheckouts('{packages}');\n}}\n"
    );
    let worker = format!(
        "<?php require is_file('{packages}/vendor/bin/roadrunner-worker') ? '{packages}/vendor/bin/roadrunner-worker' : '{packages}/octane/bin/roadrunner-worker';"
    );
    site.write("vendor/autoload.php", &loads);
    site.write("vendor/bin/roadrunner-worker", &worker);
    let own = format!("{packages}/vendor/autoload.php");
    if Path::new(&own).is_file() {
        // A Composer project has a Laravel of its own, in place of Debian's.
        let boot = site.read("bootstrap/autoload.php");
        let debian = "require 'Illuminate/autoload.php';";
        let boot = boot.replace(debian, &format!("require '{own}';"));
        site.write("bootstrap/autoload.php", &boot);
    }
    let routes = site.read("routes/web.php");
    let pid = "Route::get('/pid', static fn (): string => (string) getmypid());\n";
    site.write("routes/web.php", &(routes + pid));
    for (file, from, to) in [
        ("artisan", "/bootstrap/autoload.php", "/vendor/autoload.php"),
        (
            "worker.php",
            "/bootstrap/autoload.php",
            "/vendor/autoload.php",
        ),
        (
            "config/app.php",
            "App\\RouteServiceProvider::class,",
            "App\\RouteServiceProvider::class,\nLaravel\\Octane\\OctaneServiceProvider::class,",
        ),
        (
            "config/app.php",
            "'env' => 'production'",
            "'env' => 'local'",
        ),
        (
            "config/cache.php",
            "'driver' => 'pronghorn', 'storage' => 'cache'",
            "'driver' => 'array'",
        ),
        (
            "config/queue.php",
            "'driver' => 'pronghorn', 'queue' => 'default', 'tries' => 3",
            "'driver' => 'sync'",
        ),
        (
            "config/logging.php",
            "'driver' => 'pronghorn'",
            "'driver' => 'errorlog'",
        ),
    ] {
        let text = site.read(file);
        assert!(text.contains(from), "{from} in {file}");
        site.write(file, &text.replace(from, to));
    }
    symlink(binary(), site.path("rr")).expect("a link can be made");
    site
}

/// `php artisan octane:start`, and what it prints.
struct Octane {
    site: Site,
    child: Child,
    http: SocketAddr,
}

impl Octane {
    fn start(more: &[&str]) -> Self {
        let (site, http, rpc) = (site(), free_address(), free_address());
        let output = std::fs::File::create(site.path("output")).expect("it can be written");
        let child = php_command("php")
            .args([
                "artisan",
                "octane:start",
                "--server=roadrunner",
                "--host=127.0.0.1",
            ])
            .args([
                format!("--port={}", http.port()),
                format!("--rpc-port={}", rpc.port()),
            ])
            .args(["--workers=2", "--max-requests=500"])
            .args(more)
            .current_dir(site.folder())
            .stdin(Stdio::null())
            .stderr(output.try_clone().expect("it is open"))
            .stdout(output)
            .spawn()
            .expect("php is there");
        let octane = Self { site, child, http };
        wait_for("Octane's server", || {
            std::net::TcpStream::connect(http).ok()?;
            Some(())
        });
        octane
    }

    fn artisan(&self, command: &str) -> (Option<i32>, String) {
        let ran = php_command("php")
            .args(["artisan", command, "--server=roadrunner"])
            .current_dir(self.site.folder())
            .output()
            .expect("php is there");
        let said = String::from_utf8_lossy(&ran.stdout) + String::from_utf8_lossy(&ran.stderr);
        (ran.status.code(), said.into_owned())
    }

    fn get(&self, target: &str) -> String {
        Connection::open(self.http).get(target).text()
    }

    fn printed(&self, part: &str) {
        wait_for(part, || {
            self.site.read("output").contains(part).then_some(())
        });
    }

    /// Waits until nothing of it is left.
    fn ended(mut self) -> String {
        self.child.wait().expect("it is a child");
        wait_for("the server's end", || {
            std::net::TcpStream::connect(self.http)
                .is_err()
                .then_some(())
        });
        self.site.read("output")
    }
}

#[test]
fn it_starts_tells_reloads_and_stops_the_server() {
    let octane = Octane::start(&[]);
    octane.printed("Server running");
    assert!(octane.get("/").contains("your visit 1."));
    // Its own line for a request, made of two records.
    octane.printed("200    GET / ");
    assert_eq!(octane.artisan("octane:status").0, Some(0));
    let first = octane.get("/pid");
    let (code, said) = octane.artisan("octane:reload");
    assert!(
        code == Some(0) && said.contains("Reloading workers"),
        "{said}"
    );
    wait_for("new workers", || {
        (octane.get("/pid") != first).then_some(())
    });
    let (code, said) = octane.artisan("octane:stop");
    assert!(
        code == Some(0) && said.contains("Stopping server"),
        "{said}"
    );
    let printed = octane.ended();
    assert!(!printed.contains("ERROR"), "{printed}");
}

#[test]
fn a_changed_file_brings_new_workers() {
    if !packages().join("node_modules/chokidar").is_dir() {
        println!("left out: `npm install chokidar` in DIR is for `--watch`");
        return;
    }
    let octane = Octane::start(&["--watch"]);
    // Workers load the application with their first request.
    assert!(octane.get("/").contains("your visit 1."));
    let routes = octane.site.read("routes/web.php");
    let changed = format!("{routes}\nRoute::get('/new', static fn (): string => 'new');\n");
    // What is written before the watcher looks is no change.
    wait_for("the watcher", || {
        octane.site.write("routes/web.php", &changed);
        let said = octane.site.read("output");
        said.contains("Application change detected. Restarting workers")
            .then_some(())
    });
    wait_for("the route that was added", || {
        (octane.get("/new") == "new").then_some(())
    });
    kill_process(Pid::from_child(&octane.child), Signal::INT).expect("it runs");
    octane.ended();
}

/// What a package for Octane listens to, in a worker of ours.
#[test]
fn packages_made_for_octane_are_told_by_our_workers() {
    let site = site();
    let listeners = "
use Illuminate\\Support\\Facades\\Event;
final class Kept { public static array $users = []; public static array $told = []; }
foreach (['WorkerStarting', 'RequestReceived', 'RequestHandled', 'RequestTerminated'] as $event) {
    Event::listen(\"Laravel\\\\Octane\\\\Events\\\\$event\", static function () use ($event): void {
        Kept::$told[] = $event;
        $event !== 'RequestReceived' || Kept::$users = [];
    });
}
Route::get('/kept', static function (): array {
    Kept::$users[] = 'a visitor';

    return [count(Kept::$users), Kept::$told];
});
";
    let routes = site.read("routes/web.php") + listeners;
    site.write("routes/web.php", &routes);
    let config = "version: '3'\nserver: {command: php worker.php}\n\
                  http: {address: '127.0.0.1:0', pool: {num_workers: 1}}\n";
    // In place of the example's, whose workers are more.
    site.write("pronghorn.yaml", config);
    let server = Server::start(site);
    let of_request = r#""RequestReceived","RequestHandled","RequestTerminated""#;
    assert_eq!(
        server.get("/kept").text(),
        r#"[1,["WorkerStarting","RequestReceived"]]"#
    );
    assert_eq!(
        server.get("/kept").text(),
        format!(r#"[1,["WorkerStarting",{of_request},"RequestReceived"]]"#)
    );
    // Octane's own listeners do no harm: each visitor has a session of its own.
    for visit in 1..20 {
        let page = server.get("/");
        assert!(
            page.text().contains("your visit 1."),
            "{visit}: {}",
            page.text()
        );
    }
    let ended = server.stop();
    assert!(!ended.stderr.contains("\tERROR\t"), "{}", ended.stderr);
}

/// The package where Composer puts it, what Composer would say of it, and the providers that its
/// listeners ask for.
fn with_bridge(site: &Site, package: &Path) {
    let to = site.path("vendor/spiral/roadrunner-laravel/bin");
    std::fs::create_dir_all(&to).expect("the site is ours");
    std::fs::create_dir_all(site.path("vendor/bin")).expect("the site is ours");
    std::fs::copy(package.join("bin/rr-worker"), to.join("rr-worker")).expect("a checkout has it");
    symlink(to.join("rr-worker"), site.path("vendor/bin/rr-worker")).expect("a link can be made");
    let versions = "<?php\nnamespace Composer;\nif (!class_exists(InstalledVersions::class)) {\n    final class InstalledVersions\n    {\n        \
                    public static function getPrettyVersion(string $name): ?string { return null; }\n    }\n}\n";
    site.write("vendor/versions.php", versions);
    let loads = site.read("vendor/autoload.php")
        + "require_once 'Nyholm/Psr7/autoload.php';\nrequire_once __DIR__ . '/versions.php';\n";
    site.write("vendor/autoload.php", &loads);
    let provided = site.read("config/app.php").replace(
        "Laravel\\Octane\\OctaneServiceProvider::class",
        "Illuminate\\Auth\\AuthServiceProvider::class,\nIlluminate\\Broadcasting\\BroadcastServiceProvider::class,\n\
         Illuminate\\Mail\\MailServiceProvider::class,\nIlluminate\\Notifications\\NotificationServiceProvider::class,\n\
         Illuminate\\Pipeline\\PipelineServiceProvider::class,\nSpiral\\RoadRunnerLaravel\\ServiceProvider::class",
    );
    site.write("config/app.php", &provided);
}

/// `rr-worker` over a socket, by the configuration of a tutorial.
#[test]
fn the_bridge_of_spiral_serves_laravel_over_a_socket() {
    let package = packages().join("roadrunner-laravel");
    if !package.is_dir() {
        println!("left out: a checkout of spiral/roadrunner-laravel in DIR is for `rr-worker`");
        return;
    }
    let site = site().file("run/.keep", "");
    with_bridge(&site, &package);
    let socket = format!("unix://{}", site.path("run/rr-rpc.sock").display());
    let config = format!(
        "server:\n  command: \"php ./vendor/bin/rr-worker start --relay-dsn {socket}\"\n  relay: \"{socket}\"\n\
         http:\n  address: 127.0.0.1:0\n  middleware: [\"headers\", \"static\", \"gzip\"]\n  \
         pool:\n    num_workers: 2\n    max_jobs: 64\n    supervisor: {{exec_ttl: 60s}}\n  \
         headers: {{response: {{X-Powered-By: RoadRunner}}}}\n  static: {{dir: public, forbid: [\".php\"]}}\n"
    );
    let server = Server::start_with(site.config(&config), &["serve", "-c", ".rr.yaml"]);
    let first = server.get("/");
    assert!(first.text().contains("your visit 1."), "{}", first.text());
    assert_eq!(first.header("x-powered-by"), Some("RoadRunner"));
    let cookie = first.all("set-cookie");
    let cookies = cookie.iter().filter_map(|cookie| cookie.split(';').next());
    let cookies = format!("Cookie: {}\r\n", cookies.collect::<Vec<_>>().join("; "));
    let mut connection = server.connect();
    connection.request("GET", "/", &cookies);
    let again = connection.response().text();
    assert!(again.contains("your visit 2."), "{again}");
    // Each worker is replaced after 64 of them.
    let mut workers = std::collections::BTreeSet::new();
    for _ in 0..200 {
        let reply = connection.get("/pid");
        assert_eq!(reply.status, 200);
        workers.insert(reply.text());
        assert!(server.get("/").text().contains("your visit 1."));
    }
    assert!(workers.len() > 2, "{workers:?}");
    let ended = server.stop();
    assert!(!ended.stderr.contains("\tERROR\t"), "{}", ended.stderr);
}
