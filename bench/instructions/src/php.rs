//! PHP's side of a request: its worker runs under callgrind, below a server that does not.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{self, Command};

use crate::client::Client;
use crate::error::Error;
use crate::server::{Folder, Server, status_of, total};

/// Before anything is counted: caches are filled, OPcache has optimised.
const WARM_UP: u64 = 50;
/// Requests that are counted.
const REQUESTS: u64 = 200;

/// Callgrind names a pipe for orders by it, and so does who gives them. The server gives a worker
/// the name of its own user, so the wrapper sets it once more.
const USER: (&str, &str) = ("LOGNAME", "instructions");

/// Which PHP the pools run: callgrind with PHP where it gets a worker's script, else PHP. Callgrind
/// keeps descriptors above the limit, where the extension does not take them for the application's.
const WRAPPER: &str = r#"#!/bin/sh
case "$*" in
*"SCRIPT"*)
    ulimit -Sn 256
    export USER
    exec valgrind --quiet --trace-children=yes --tool=callgrind --callgrind-out-file=PROFILE.%p php "$@" ;;
*) exec php "$@" ;;
esac
"#;

pub(crate) struct PhpRow {
    pub(crate) name: &'static str,
    app: App,
    /// More keys of the pool.
    pool: &'static str,
    target: &'static str,
    /// Bytes of the body of a POST.
    post: Option<usize>,
}

/// Below `bench/` of the copy.
enum App {
    /// A worker, with its arguments.
    Kept(&'static str),
    /// The scripts of a directory.
    Classic(&'static str),
}

const HELLO: PhpRow = PhpRow {
    name: "",
    app: App::Kept("apps/hello/worker.php"),
    pool: "num_workers: 1, spawn: exec",
    target: "/articles/42?page=2",
    post: None,
};

pub(crate) const ROWS: [PhpRow; 10] = [
    PhpRow {
        name: "php-handler",
        ..HELLO
    },
    PhpRow {
        name: "php-no-globals",
        pool: "num_workers: 1, spawn: exec, globals: false",
        ..HELLO
    },
    PhpRow {
        name: "php-forked",
        pool: "num_workers: 2, spawn: fork",
        ..HELLO
    },
    PhpRow {
        name: "php-globals",
        app: App::Kept("instructions/workers/globals.php"),
        ..HELLO
    },
    PhpRow {
        name: "php-front",
        app: App::Kept("instructions/workers/front.php"),
        ..HELLO
    },
    PhpRow {
        name: "php-classic",
        app: App::Classic("apps/hello/public"),
        pool: "num_workers: 1",
        target: "/index.php/articles/42?page=2",
        ..HELLO
    },
    PhpRow {
        name: "php-psr7",
        app: App::Kept("apps/hello/worker-psr7.php nyholm"),
        ..HELLO
    },
    PhpRow {
        name: "php-slim",
        app: App::Kept("apps/slim/worker.php"),
        target: "/hello/you?page=2",
        ..HELLO
    },
    PhpRow {
        name: "php-post-8k",
        app: App::Kept("apps/plain/worker.php"),
        target: "/post",
        post: Some(8 << 10),
        ..HELLO
    },
    PhpRow {
        name: "php-reply-64k",
        app: App::Kept("apps/plain/worker.php"),
        target: "/64k",
        ..HELLO
    },
];

impl PhpRow {
    /// Instructions of PHP per request.
    pub(crate) fn measure(
        &self,
        binary: &Path,
        folder: &Folder,
        copy: &Copied,
    ) -> Result<u64, Error> {
        let php = self.write_wrapper(folder)?;
        let at = |below| copy.0.join("bench").join(below);
        let configuration = format!(
            "version: '3'\n\
             server: {{allow_root: true{}}}\n\
             http:\n  address: 127.0.0.1:0\n  threads: 1\n  pool: {{{}, allocate_timeout: 60s{}}}\n\
             logs: {{mode: production, channels: {{http: {{level: error}}}}}}\n",
            match self.app {
                App::Kept(script) =>
                    format!(", command: {} {}", php.display(), at(script).display()),
                App::Classic(_) => String::new(),
            },
            self.pool,
            match self.app {
                App::Kept(_) => String::new(),
                App::Classic(root) => format!(
                    ", mode: classic, root: {}, php: {}, clear_env: false",
                    at(root).display(),
                    php.display()
                ),
            },
        );
        let mut command = Command::new(binary);
        // PHP copies each variable for `$_SERVER`.
        let kept = ["PATH", "PHP_INI_SCAN_DIR"];
        let kept = kept
            .iter()
            .filter_map(|name| Some((name, std::env::var_os(name)?)));
        command.env_clear().envs(kept).env(USER.0, USER.1);
        command.current_dir(&copy.0);
        let mut server = Server::start(self.name, &configuration, command, folder)?;
        server.wait_until_it_serves()?;
        let mut client = Client::connect(&mut server)?;
        let mut workers = Workers {
            row: self.name,
            folder,
            parts: 0,
        };
        self.ask(WARM_UP, &mut client, &mut server)?;
        workers.cut(&server)?;
        self.ask(REQUESTS, &mut client, &mut server)?;
        let counted = workers.cut(&server)?;
        // What the cut itself costs is in both.
        let cut = workers.cut(&server)?;
        Ok(counted.saturating_sub(cut) / REQUESTS)
    }

    fn write_wrapper(&self, folder: &Folder) -> Result<PathBuf, Error> {
        let script = match self.app {
            App::Kept(script) => script.split(' ').next().unwrap_or_default(),
            // Of what its command says where the extension does not take over.
            App::Classic(_) => "serves scripts",
        };
        let directory = folder.file(self.name, "bin");
        let file = directory.join("php");
        let profile = folder.file(self.name, "profile");
        let text = WRAPPER
            .replace("SCRIPT", script)
            .replace("USER", &format!("{}={}", USER.0, USER.1))
            .replace("PROFILE", &profile.to_string_lossy());
        fs::create_dir_all(&directory)
            .and_then(|()| fs::write(&file, text))
            .and_then(|()| fs::set_permissions(&file, fs::Permissions::from_mode(0o755)))
            .map_err(|source| Error::File {
                file: file.clone(),
                source,
            })?;
        Ok(file)
    }

    fn ask(&self, times: u64, client: &mut Client, server: &mut Server<'_>) -> Result<(), Error> {
        let method = if self.post.is_some() { "POST" } else { "GET" };
        let body = vec![b'x'; self.post.unwrap_or_default()];
        let mut request = format!(
            "{method} {} HTTP/1.1\r\nHost: example.org\r\nUser-Agent: instructions\r\nAccept: */*\r\n",
            self.target
        );
        if self.post.is_some() {
            let length = body.len();
            request.push_str("Content-Type: application/json\r\nContent-Length: ");
            request.push_str(&length.to_string());
            request.push_str("\r\n");
        }
        let request = [request.as_bytes(), b"\r\n", &body].concat();
        for _ in 0..times {
            client.send(server, &request)?;
            client.receive(server, "200")?;
        }
        Ok(())
    }
}

/// The applications, and the packages that they load, in a directory whose path has the same length
/// and depth wherever the checkout is: PHP resolves the path of a script with each request.
pub(crate) struct Copied(PathBuf);

impl Copied {
    pub(crate) fn new() -> Result<Self, Error> {
        let copy = Self(PathBuf::from(format!(
            "/tmp/instructions-{:07}",
            process::id()
        )));
        fs::create_dir(&copy.0).map_err(|source| Error::File {
            file: copy.0.clone(),
            source,
        })?;
        let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
        let copied = Command::new("cp")
            .args([
                "-R",
                "--parents",
                "bench/apps",
                "bench/instructions/workers",
                "php/worker",
                "php/goridge",
            ])
            .arg(&copy.0)
            .current_dir(root)
            .status();
        match copied.map_err(Error::NoProgram)? {
            status if status.success() => Ok(copy),
            _ => Err(Error::NoCopy(copy.0.clone())),
        }
    }
}

impl Drop for Copied {
    fn drop(&mut self) {
        _ = fs::remove_dir_all(&self.0);
    }
}

/// The processes of PHP below a server.
struct Workers<'a> {
    row: &'static str,
    folder: &'a Folder,
    parts: u32,
}

impl Workers<'_> {
    /// Ends a part of their profiles; returns what all counted.
    fn cut(&mut self, server: &Server<'_>) -> Result<u64, Error> {
        self.parts += 1;
        let mut sum = 0;
        for pid in traced_children(server.pid()) {
            let ordered = Command::new("vgdb")
                .arg(format!("--pid={pid}"))
                .args(["dump", "requests"])
                .env(USER.0, USER.1)
                .output()
                .map_err(Error::NoProgram)?;
            let file = format!("profile.{pid}.{}", self.parts);
            let profile = fs::read_to_string(self.folder.file(self.row, &file));
            sum += profile.ok().and_then(|it| total(&it)).ok_or_else(|| {
                let said = String::from_utf8_lossy(&ordered.stderr);
                server.wrong(format!("PHP has written no profile: {}", said.trim()))
            })?;
        }
        if sum == 0 && self.parts == 1 {
            return Err(server.wrong("PHP does not run under callgrind".to_owned()));
        }
        Ok(sum)
    }
}

fn traced_children(parent: u32) -> Vec<u32> {
    let is_traced = |pid: &u32| {
        let program = fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
        let name = program.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with("callgrind-")
            && status_of(*pid).is_some_and(|(_, its_parent)| its_parent == parent)
    };
    let all = fs::read_dir("/proc").into_iter().flatten();
    let all = all.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    all.filter(is_traced).collect()
}
