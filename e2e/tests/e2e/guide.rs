//! The README and the guide, as a reader follows them: their files are written, their commands run.
//!
//! What is done with a fenced block stands behind its language:
//!
//! - `file=NAME` is written to the working folder;
//! - `sh serve` is one `pronghorn …` command, which is started and runs until the next such block
//!   or the end of the page;
//! - `sh run` is run by `sh -e` and must succeed; `sh run=2` must end with that exit code;
//!   `sh run eventually` is repeated until what it prints is right;
//! - `text output` is what the `run` block before it prints; `…` stands for any text, alone on its
//!   line for any lines.
//!
//! All other blocks are only read. Ports 8080, 8443, 6001 and 9001 become free ones, also where
//! 8080 is the default; what a package puts into `/usr/share/pronghorn` is taken from the
//! repository.

use std::ffi::OsString;
use std::net::TcpListener;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU16, Ordering};

use pronghorn_testkit::{Server, Site, binary, wait_for};

#[test]
fn readme() {
    follow("README.md", Site::new());
}

#[test]
fn jobs() {
    follow("docs/guide/jobs.md", Site::new());
}

#[test]
fn grpc() {
    // What Composer writes; google/protobuf is Debian's.
    let autoloader = "<?php
        spl_autoload_register(static function (string $class): void {
            foreach ([__DIR__ . '/../generated', '/usr/share/php'] as $root) {
                $file = \"$root/\" . strtr($class, '\\\\', '/') . '.php';
                if (is_file($file)) {
                    require_once $file;

                    return;
                }
            }
        });";
    let site = Site::new().file("vendor/autoload.php", autoloader);
    follow("docs/guide/grpc.md", site);
}

#[test]
fn install() {
    follow("docs/guide/install.md", Site::new());
}

#[test]
fn first_worker() {
    follow("docs/guide/first-worker.md", Site::new());
}

#[test]
fn configure() {
    follow("docs/guide/configure.md", Site::new());
}

#[test]
fn pools_and_routes() {
    follow("docs/guide/pools-and-routes.md", Site::new());
}

#[test]
fn legacy() {
    follow("docs/guide/legacy.md", Site::new());
}

#[test]
fn tls() {
    follow("docs/guide/tls.md", Site::new());
}

#[test]
fn middleware() {
    follow("docs/guide/middleware.md", Site::new());
}

#[test]
fn static_files() {
    follow("docs/guide/static-files.md", Site::new());
}

#[test]
fn deploy() {
    follow("docs/guide/deploy.md", Site::new());
}

#[test]
fn troubleshooting() {
    follow("docs/guide/troubleshooting.md", Site::new());
}

#[test]
fn from_roadrunner() {
    // The exit code is that of the feature alone.
    let site = Site::new().file("worker.php", "<?php\n");
    follow("docs/migration/from-roadrunner.md", site);
}

/// Who copies an example copies what it forgets.
#[test]
fn no_worker_of_a_page_returns_what_a_visitor_typed_as_html() {
    let mut pages = vec![
        "README.md".into(),
        "php/goridge/README.md".into(),
        "php/worker/README.md".into(),
    ];
    for entry in std::fs::read_dir(repository().join("docs/guide")).expect("the guide") {
        let name = entry.expect("a page").file_name();
        pages.push(format!("docs/guide/{}", name.display()));
    }
    let mut seen = 0;
    for page in pages {
        let blocks = blocks(&read(&repository().join(&page)));
        let workers = blocks.iter().filter(|block| {
            block.info.first().is_some_and(|language| language == "php")
                && block.text.contains("autoload.php")
                && block.text.contains("Pronghorn\\serve(")
        });
        for worker in workers {
            let site = Site::new()
                .file("worker.php", &as_packaged(&worker.text))
                .file("vendor/autoload.php", "<?php require __DIR__ . '/../pronghorn/autoload.php';")
                .config("version: '3'\nserver: {command: php worker.php of-a-page}\nhttp: {address: '127.0.0.1:0', pool: {num_workers: 1}}\n");
            link(repository().join("php"), site.path("pronghorn"));
            let server = Server::start(site);
            for target in [
                "/<script>?name=<script>",
                "/%3Cscript%3E?name=%3Cscript%3E&page=%3Cscript%3E",
                "/?<script>",
            ] {
                let reply = server.get(target);
                let is_html = reply
                    .header("content-type")
                    .is_some_and(|of| of.starts_with("text/html"));
                assert!(
                    !is_html || !reply.text().contains("<script>"),
                    "{page}: {}",
                    reply.text()
                );
            }
            server.stop();
            seen += 1;
        }
    }
    assert!(seen > 7, "the workers of the pages are gone: {seen}");
}

#[test]
fn laravel() {
    follow("docs/guide/laravel.md", Site::new());
}

#[test]
fn symfony() {
    follow("docs/guide/symfony.md", Site::new());
}

#[test]
fn testing() {
    follow("docs/guide/testing.md", Site::new());
}

#[test]
fn wordpress() {
    crate::ring::extension(); // or its scripts do not run
    follow("docs/guide/wordpress.md", Site::new());
}

#[test]
fn crashes() {
    follow("docs/operations/crashes.md", Site::new());
}

/// A fenced block: its language with what stands behind it, and its lines.
struct Block {
    info: Vec<String>,
    text: String,
}

impl Block {
    fn is(&self, first: &str, second: &str) -> bool {
        self.info.first().is_some_and(|word| word == first)
            && self.info.get(1).is_some_and(|word| word == second)
    }

    /// What a word is set to: `file=worker.php`.
    fn value(&self, name: &str) -> Option<&str> {
        let mut words = self.info.iter();
        words.find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
    }
}

fn blocks(page: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut open: Option<Block> = None;
    for line in page.lines() {
        match (&mut open, line.strip_prefix("```")) {
            (None, Some(info)) => {
                open = Some(Block {
                    info: info.split_whitespace().map(str::to_owned).collect(),
                    text: String::new(),
                });
            }
            (Some(_), Some(_)) => blocks.extend(open.take()),
            (Some(block), None) => {
                block.text.push_str(line);
                block.text.push('\n');
            }
            (None, None) => {}
        }
    }
    assert!(open.is_none(), "a block does not end");
    blocks
}

/// Does what a page says, from top to bottom.
fn follow(page: &str, site: Site) {
    let text = read(&repository().join(page));
    let (port, secure) = (free_port().to_string(), free_port().to_string());
    let (rpc, grpc) = (free_port().to_string(), free_port().to_string());
    let text = text.replace("8080", &port).replace("8443", &secure);
    let text = text.replace("6001", &rpc).replace("9001", &grpc);
    let blocks = blocks(&as_packaged(&text));
    let home = Home::new(format!("tcp://127.0.0.1:{rpc}"));
    let mut place = Place::Idle(site);
    let mut done = 0;
    for (index, block) in blocks.iter().enumerate() {
        if let Some(name) = block.value("file") {
            place.site().write(name, &block.text);
        } else if block.is("sh", "serve") {
            place = place.serve(block.text.trim(), &port);
        } else if block.is("sh", "run") || block.value("run").is_some() {
            let expected = blocks
                .get(index + 1)
                .filter(|next| next.is("text", "output"));
            home.run(place.site(), block, expected.map(|next| next.text.as_str()));
        } else {
            continue;
        }
        done += 1;
    }
    assert!(done > 0, "{page} has nothing to run");
    place.end();
}

/// A page's text where no package is installed.
fn as_packaged(text: &str) -> String {
    text.replace("/usr/share/pronghorn", &repository().display().to_string())
}

/// The working folder, with or without a server in it.
enum Place {
    Idle(Site),
    Served(Box<Server>),
}

impl Place {
    fn site(&self) -> &Site {
        match self {
            Self::Idle(site) => site,
            Self::Served(server) => server.site(),
        }
    }

    fn serve(self, command: &str, port: &str) -> Self {
        let mut words: Vec<&str> = command.split_whitespace().collect();
        assert!(
            words.first() == Some(&"pronghorn") && !command.contains(['\n', '"', '\'']),
            "not one plain command: {command}"
        );
        let address = format!("http.address=127.0.0.1:{port}");
        if !self.site().path("pronghorn.yaml").exists() {
            words.extend(["-o", &address]);
        }
        Self::Served(Box::new(Server::start_with(self.end(), &words[1..])))
    }

    fn end(self) -> Site {
        match self {
            Self::Idle(site) => site,
            Self::Served(server) => server.into_site(),
        }
    }
}

/// A home folder in which the repository is called `pronghorn`, and a search path on which the
/// binary is.
struct Home {
    folder: Site,
    path: OsString,
    /// The address that scripts take where the page has the default one.
    rpc: String,
}

impl Home {
    fn new(rpc: String) -> Self {
        let folder = Site::new();
        link(repository(), folder.path("pronghorn"));
        std::fs::create_dir(folder.path("bin")).expect("a folder can be made");
        link(binary(), folder.path("bin/pronghorn"));
        let mut path = folder.path("bin").into_os_string();
        path.push(":");
        path.push(std::env::var_os("PATH").unwrap_or_default());
        Self { folder, path, rpc }
    }

    fn run(&self, site: &Site, block: &Block, expected: Option<&str>) {
        let code: i32 = block
            .value("run")
            .map_or(0, |code| code.parse().expect("a number"));
        let once = || {
            let (ended, said) = self.run_once(site, &block.text);
            let right = ended == Some(code) && expected.is_none_or(|text| matches(text, &said));
            (right, format!("exit code {ended:?}\n{said}"))
        };
        if block.info.iter().any(|word| word == "eventually") {
            wait_for(&block.text, || once().0.then_some(()));
            return;
        }
        let (right, said) = once();
        assert!(
            right,
            "--- command\n{}--- is\n{said}--- should be\n{}",
            block.text,
            expected.unwrap_or_default()
        );
    }

    fn run_once(&self, site: &Site, script: &str) -> (Option<i32>, String) {
        let output = Command::new("timeout")
            .args(["30", "sh", "-e", "-c", &format!("exec 2>&1\n{script}")])
            .current_dir(site.folder())
            .env("HOME", self.folder.folder())
            .env("STATE_DIRECTORY", site.path("state"))
            .env("PATH", &self.path)
            .env("RR_RPC", &self.rpc)
            .output()
            .expect("sh can be started");
        let said = String::from_utf8_lossy(&output.stdout);
        (output.status.code(), as_no_root(&said))
    }
}

/// What the same command says to a reader, who is not root.
fn as_no_root(said: &str) -> String {
    let mut warned = false;
    let mut text = String::new();
    for line in said.split_inclusive('\n') {
        let of_root = line.starts_with("warning: ") && line.contains("the server runs as root");
        let its_hint = warned && line.starts_with("hint: write `server: {user: www-data}`");
        warned |= of_root;
        if !of_root && !its_hint {
            text.push_str(line);
        }
    }
    if warned {
        text = text.replace(": 1 warning\n", ": no mistakes\n");
        text = text.replace(", 1 warning\n", "\n");
    }
    text
}

/// Whether a text is what a page shows; see the top.
fn matches(expected: &str, text: &str) -> bool {
    let mut lines = text.lines();
    let mut any_lines = false;
    for wanted in expected.lines() {
        if wanted == "…" {
            any_lines = true;
            continue;
        }
        let found = if any_lines {
            lines.any(|line| line_matches(wanted, line))
        } else {
            lines.next().is_some_and(|line| line_matches(wanted, line))
        };
        if !found {
            return false;
        }
        any_lines = false;
    }
    any_lines || lines.next().is_none()
}

fn line_matches(expected: &str, line: &str) -> bool {
    let mut parts = expected.split('…');
    let Some(mut left) = parts.next().and_then(|first| line.strip_prefix(first)) else {
        return false;
    };
    let mut parts = parts.peekable();
    if parts.peek().is_none() {
        return left.is_empty();
    }
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            return left.ends_with(part);
        }
        match left.split_once(part) {
            Some((_, rest)) => left = rest,
            None => return false,
        }
    }
    true
}

/// Below the ports that the system gives to connections, so that none takes it in between.
fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let start = u16::try_from(std::process::id() % 8_000).expect("it is small");
    let ports = (0..1_000).map(|_| 20_000 + (start + NEXT.fetch_add(1, Ordering::Relaxed)) % 8_000);
    ports
        .into_iter()
        .find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok())
        .expect("one of so many ports is free")
}

fn link(to: PathBuf, at: PathBuf) {
    symlink(to, at).expect("a link can be made");
}

fn read(page: &Path) -> String {
    std::fs::read_to_string(page).expect("the page is there")
}

fn repository() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().expect("e2e lies in the root").to_owned()
}

#[test]
fn what_a_page_shows_is_compared_line_by_line() {
    for (expected, text, equal) in [
        ("a\nb\n", "a\nb\n", true),
        ("a\n", "a\nb\n", false),
        ("a\nb\n", "a\n", false),
        ("a…c\n", "abc\n", true),
        ("a…c…\n", "abc d\n", true),
        ("a…c\n", "ab\n", false),
        ("a…a\n", "a\n", false),
        ("…\nb\n…\n", "a\nb\nc\n", true),
        ("…\nx\n…\n", "a\nb\nc\n", false),
        ("a\n…\n", "a\n", true),
    ] {
        assert_eq!(matches(expected, text), equal, "{expected:?} {text:?}");
    }
}
