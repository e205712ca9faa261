//! What is measured beside what: a row is a server that answers every request with the same body.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::time::Duration;

use nix::unistd::geteuid;
use tokio::time::{Instant, sleep};

use crate::client::check;
use crate::error::BenchError;
use crate::processes::Processes;
use crate::program::{Argv, Program};
use crate::site::{Site, find, find_any, free_address, own_binary};

/// What every row answers.
pub(crate) const BODY: &str = "Hello World!";

/// PHP processes of every row that has PHP, and processes of nginx.
const WORKERS: usize = 2;
/// From a server's start to its first right answer.
const START: Duration = Duration::from_secs(10);
/// Between two questions whether it answers.
const START_STEP: Duration = Duration::from_millis(50);

/// One of the servers that are compared.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) name: &'static str,
    /// Writes its configuration; returns the programs to start, of which one listens on the address.
    start: fn(&Site, SocketAddr) -> Result<Vec<Argv>, BenchError>,
    /// Debian's, which it needs.
    packages: &'static str,
}

/// Not ours: what the others are compared with.
pub(crate) const RIVALS: [&str; 2] = ["nginx-fpm", "nginx"];

const ROWS: [Row; 6] = [
    Row {
        name: "native",
        start: |site, address| pronghorn(site, address, &["worker.php"]),
        packages: "php-cli",
    },
    Row {
        name: "psr7",
        start: |site, address| pronghorn(site, address, &["worker-psr7.php", "nyholm"]),
        packages: "php-cli php-nyholm-psr7",
    },
    Row {
        name: "psr7-guzzle",
        start: |site, address| pronghorn(site, address, &["worker-psr7.php", "guzzle"]),
        packages: "php-cli php-guzzlehttp-psr7",
    },
    Row {
        name: "http-alone",
        start: |site, address| Ok(from_memory(site, address)),
        packages: "",
    },
    Row {
        name: "nginx",
        start: nginx_from_memory,
        packages: "nginx",
    },
    Row {
        name: "nginx-fpm",
        start: nginx_and_fpm,
        packages: "nginx php-fpm",
    },
];

/// The rows with these names, in this order.
pub(crate) fn select(names: &[String]) -> Result<Vec<&'static Row>, BenchError> {
    let row = |name: &String| {
        ROWS.iter()
            .find(|row| row.name == name)
            .ok_or_else(|| BenchError::NoRow {
                name: name.clone(),
                known: ROWS.map(|row| format!("`{}`", row.name)).join(", "),
            })
    };
    names.iter().map(row).collect()
}

/// A row that runs.
pub(crate) struct Server {
    pub(crate) row: &'static Row,
    pub(crate) address: SocketAddr,
    programs: Vec<Program>,
}

impl Server {
    /// Returns when it answers as it should.
    pub(crate) async fn start(row: &'static Row, site: &Site) -> Result<Self, BenchError> {
        let address = free_address()?;
        let mut server = Self {
            row,
            address,
            programs: Vec::new(),
        };
        for argv in (row.start)(site, address)? {
            server.programs.push(Program::start(argv, site).await?);
        }
        let deadline = Instant::now() + START;
        loop {
            let Err(error) = check(address).await else {
                return Ok(server);
            };
            if let Some(exit) = server.programs.iter_mut().find_map(Program::ended) {
                return Err(server.not_ready(format!("ended with {exit}")).await);
            }
            if Instant::now() > deadline {
                return Err(server.not_ready(error.to_string()).await);
            }
            sleep(START_STEP).await;
        }
    }

    /// Those of today: a server may replace some.
    pub(crate) fn processes(&self) -> Processes {
        let roots: Vec<u32> = self.programs.iter().map(Program::pid).collect();
        Processes::below(&roots)
    }

    pub(crate) async fn stop(self) {
        self.end().await;
    }

    async fn not_ready(self, why: String) -> BenchError {
        let packages = self.row.packages;
        BenchError::NotReady {
            why,
            said: self.end().await,
            packages,
        }
    }

    /// Ends its programs, the one in front first; returns what they said.
    async fn end(self) -> String {
        let mut said = String::new();
        for program in self.programs.into_iter().rev() {
            let program = program.stop().await;
            _ = writeln!(said, "{}\n{}", program.stdout(), program.stderr());
        }
        said.trim().to_owned()
    }
}

fn pronghorn(site: &Site, address: SocketAddr, script: &[&str]) -> Result<Vec<Argv>, BenchError> {
    let [name, arguments @ ..] = script else {
        unreachable!("each row names its script");
    };
    let mut command = vec![
        find("php", "php-cli")?,
        "-c".into(),
        site.php_ini().into(),
        Site::app("hello").join(name).into(),
    ];
    command.extend(arguments.iter().map(OsString::from));
    let command: Vec<_> = command.iter().map(|part| part.to_string_lossy()).collect();
    // JSON is YAML. No record for each request: the others write none either.
    let configuration = serde_json::json!({
        "version": "3",
        "server": {"command": command},
        "http": {
            "address": address.to_string(),
            "threads": site.io_threads,
            "pool": {"num_workers": WORKERS},
        },
        "logs": {"channels": {"http": {"level": "warn"}}},
    });
    let file = site.write(
        &format!("{}.yaml", address.port()),
        &configuration.to_string(),
    )?;
    let arguments = ["serve".into(), "-c".into(), file.into()];
    Ok(vec![Argv::new(&site.pronghorn, arguments)])
}

fn from_memory(site: &Site, address: SocketAddr) -> Vec<Argv> {
    let arguments = [
        "from-memory".into(),
        address.to_string().into(),
        site.io_threads.to_string().into(),
    ];
    vec![Argv::new(own_binary(), arguments)]
}

fn nginx_from_memory(site: &Site, address: SocketAddr) -> Result<Vec<Argv>, BenchError> {
    let location = format!("default_type text/plain; return 200 \"{BODY}\";");
    Ok(vec![nginx(site, address, &location)?])
}

/// As Debian's packages set it up: a unix socket between the two, and the parameters of its `fastcgi.conf`.
fn nginx_and_fpm(site: &Site, address: SocketAddr) -> Result<Vec<Argv>, BenchError> {
    let socket = site.folder.join(format!("{}.sock", address.port()));
    let script = Site::app("hello").join("public/index.php");
    let location = format!(
        "fastcgi_pass unix:{};
            fastcgi_param SCRIPT_FILENAME {};
            {FASTCGI_PARAMETERS}",
        socket.display(),
        script.display(),
    );
    Ok(vec![
        fpm(site, address, &socket.to_string_lossy())?,
        nginx(site, address, &location)?,
    ])
}

const FASTCGI_PARAMETERS: &str = "fastcgi_param QUERY_STRING $query_string;
            fastcgi_param REQUEST_METHOD $request_method;
            fastcgi_param CONTENT_TYPE $content_type;
            fastcgi_param CONTENT_LENGTH $content_length;
            fastcgi_param SCRIPT_NAME $fastcgi_script_name;
            fastcgi_param REQUEST_URI $request_uri;
            fastcgi_param DOCUMENT_URI $document_uri;
            fastcgi_param DOCUMENT_ROOT $document_root;
            fastcgi_param SERVER_PROTOCOL $server_protocol;
            fastcgi_param REQUEST_SCHEME $scheme;
            fastcgi_param HTTPS $https if_not_empty;
            fastcgi_param GATEWAY_INTERFACE CGI/1.1;
            fastcgi_param SERVER_SOFTWARE nginx/$nginx_version;
            fastcgi_param REMOTE_ADDR $remote_addr;
            fastcgi_param REMOTE_PORT $remote_port;
            fastcgi_param REMOTE_USER $remote_user;
            fastcgi_param SERVER_ADDR $server_addr;
            fastcgi_param SERVER_PORT $server_port;
            fastcgi_param SERVER_NAME $server_name;
            fastcgi_param REDIRECT_STATUS 200;";

fn nginx(site: &Site, address: SocketAddr, location: &str) -> Result<Argv, BenchError> {
    let program = find("nginx", "nginx")?;
    let folder = site.folder.display();
    // As root it would switch to a user who may not enter the folder.
    let user = if geteuid().is_root() {
        "user root;"
    } else {
        ""
    };
    let configuration = format!(
        "daemon off;
{user}
pid {folder}/{port}.pid;
error_log stderr;
worker_processes {WORKERS};
worker_rlimit_nofile 4096;
events {{
    worker_connections 4096;
}}
http {{
    access_log off;
    keepalive_requests 1000000000;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    server {{
        listen {address};
        location / {{
            {location}
        }}
    }}
}}
",
        port = address.port(),
    );
    let file = site.write(&format!("{}.conf", address.port()), &configuration)?;
    // Without -e it tries the system's log before it reads where to log.
    let arguments = ["-e".into(), "stderr".into(), "-c".into(), file.into()];
    Ok(Argv::new(program, arguments))
}

fn fpm(site: &Site, address: SocketAddr, socket: &str) -> Result<Argv, BenchError> {
    let program = find_fpm()?;
    let root = geteuid().is_root();
    let user = if root {
        "user = root\ngroup = root"
    } else {
        ""
    };
    let configuration = format!(
        "[global]
error_log = /dev/stderr
daemonize = no
[bench]
{user}
listen = {socket}
pm = static
pm.max_children = {WORKERS}
"
    );
    let file = site.write(&format!("{}.fpm.conf", address.port()), &configuration)?;
    let mut arguments = vec![
        "-F".into(),
        "-c".into(),
        site.php_ini().into(),
        "-y".into(),
        file.into(),
    ];
    if root {
        arguments.push("-R".into());
    }
    Ok(Argv(program, arguments))
}

/// Debian's has the version in its name.
pub(crate) fn find_fpm() -> Result<OsString, BenchError> {
    const NAMES: [&str; 6] = [
        "php-fpm",
        "php-fpm8.5",
        "php-fpm8.4",
        "php-fpm8.3",
        "php-fpm8.2",
        "php-fpm8.1",
    ];
    find_any(&NAMES, "php-fpm")
}
