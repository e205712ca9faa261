//! nginx from memory, and in front of php-fpm.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::Path;

use nix::unistd::geteuid;

use super::{Adapter, FLOOR, Kind, Place};
use crate::error::BenchError;
use crate::from_memory::BODY;
use crate::program::Argv;
use crate::site::{find, find_any};

/// nginx's processes, whatever the number of PHP's: it never waits.
const PROCESSES: u16 = 2;

/// Connections that wait for php-fpm by its default; more are refused.
const BACKLOG: u32 = 511;

/// Answers every request with the body of `hello`.
pub(crate) struct FromMemory;

impl Adapter for FromMemory {
    fn name(&self) -> &'static str {
        FLOOR
    }

    fn kind(&self) -> Kind {
        Kind::Floor
    }

    fn packages(&self) -> &'static str {
        "nginx"
    }

    fn programs(&self, place: &Place<'_>) -> Result<Vec<Argv>, BenchError> {
        let location = format!("default_type text/plain; return 200 \"{BODY}\";");
        Ok(vec![nginx(place, "", &place.public(), &location)?])
    }
}

/// nginx in front of php-fpm, with a unix socket between the two.
pub(crate) struct Fpm {
    name: &'static str,
    /// nginx keeps its connections to php-fpm. Each then occupies a child while it waits.
    kept: bool,
}

/// As Debian's packages set it up.
pub(crate) const FPM: Fpm = Fpm {
    name: "nginx-fpm",
    kept: false,
};

pub(crate) const FPM_KEPT: Fpm = Fpm {
    name: "nginx-fpm-kept",
    kept: true,
};

impl Adapter for Fpm {
    fn name(&self) -> &str {
        self.name
    }

    fn kind(&self) -> Kind {
        Kind::Rival
    }

    fn packages(&self) -> &'static str {
        "nginx php-fpm"
    }

    fn programs(&self, place: &Place<'_>) -> Result<Vec<Argv>, BenchError> {
        let script = place.script("public/index.php")?;
        let socket = place.folder.join("fpm.sock");
        let fpm = fpm(place, &socket.to_string_lossy())?;
        let upstream = format!(
            "upstream php {{
        server unix:{};
        {}
    }}",
            socket.display(),
            // Shared by nginx's processes: more than there are children would wait for each other.
            if self.kept {
                format!("keepalive {};", (place.workers() / PROCESSES).max(1))
            } else {
                String::new()
            },
        );
        let location = format!(
            "fastcgi_pass php;
            {}
            fastcgi_param SCRIPT_FILENAME {};
            {FASTCGI_PARAMETERS}",
            if self.kept {
                "fastcgi_keep_conn on;"
            } else {
                ""
            },
            script.display(),
        );
        Ok(vec![
            fpm,
            nginx(place, &upstream, &place.public(), &location)?,
        ])
    }
}

/// nginx with files.
pub(crate) struct Files {
    name: &'static str,
    /// Of a server.
    more: &'static str,
}

/// As Debian's package sets it up.
pub(crate) const FILES: Files = Files {
    name: "nginx-files",
    more: "",
};

/// Files are kept open, and looked at once a second.
pub(crate) const FILES_CACHED: Files = Files {
    name: "nginx-files-cached",
    more: "open_file_cache max=1000; open_file_cache_valid 1s;",
};

impl Adapter for Files {
    fn name(&self) -> &str {
        self.name
    }

    fn kind(&self) -> Kind {
        Kind::Rival
    }

    fn packages(&self) -> &'static str {
        "nginx"
    }

    fn programs(&self, place: &Place<'_>) -> Result<Vec<Argv>, BenchError> {
        let folder = crate::pages::write(&place.folder)?;
        Ok(vec![nginx(place, "", &folder, self.more)?])
    }
}

/// In front of a server of ours, as a tutorial writes it: a new connection for each request.
pub(super) fn in_front_of(place: &Place<'_>, server: SocketAddr) -> Result<Argv, BenchError> {
    let location = format!(
        "proxy_pass http://{server};
            proxy_set_header Host $host;
            proxy_set_header X-Real-IP $remote_addr;"
    );
    nginx(place, "", &place.public(), &location)
}

/// Those of Debian's `fastcgi.conf`, with one script for all paths.
const FASTCGI_PARAMETERS: &str = "fastcgi_param QUERY_STRING $query_string;
            fastcgi_param REQUEST_METHOD $request_method;
            fastcgi_param CONTENT_TYPE $content_type;
            fastcgi_param CONTENT_LENGTH $content_length;
            fastcgi_param SCRIPT_NAME /index.php;
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

/// What is spoken.
fn listen(place: &Place<'_>) -> String {
    let address = place.address;
    let protocol = place.scenario.protocol;
    let http2 = if protocol.is_http2() { " http2" } else { "" };
    if !protocol.is_secure() {
        return format!("listen {address}{http2};");
    }
    let (certificate, key) = place.site.certificate();
    format!(
        "listen {address} ssl{http2};
        ssl_certificate {};
        ssl_certificate_key {};
        ssl_protocols TLSv1.2 TLSv1.3;",
        certificate.display(),
        key.display(),
    )
}

fn nginx(
    place: &Place<'_>,
    upstream: &str,
    root: &Path,
    location: &str,
) -> Result<Argv, BenchError> {
    let program = find("nginx", "nginx")?;
    let folder = place.folder.display();
    // As root it would switch to a user who may not enter the folder.
    let user = if geteuid().is_root() {
        "user root;"
    } else {
        ""
    };
    let configuration = format!(
        "daemon off;
{user}
pid {folder}/nginx.pid;
error_log stderr{level};
worker_processes {PROCESSES};
worker_rlimit_nofile {files};
events {{
    worker_connections {files};
}}
http {{
    access_log off;
    sendfile on;
    tcp_nopush on;
    keepalive_requests 1000000000;
    client_max_body_size 0;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    {upstream}
    server {{
        {listen}
        root {root};
        {gzip}
        {file}
        location / {{
            {location}
        }}
    }}
}}
",
        listen = listen(place),
        // Until ours listens behind it, each question is an error.
        level = if place.setup().behind_nginx {
            " crit"
        } else {
            ""
        },
        file = match place.setup().file {
            Some(file) => format!("location = {file} {{}}"),
            None => String::new(),
        },
        // Both sides of each connection, all of which one of its processes may have to hold.
        files = (2 * place.setup().connections + 256).max(4096),
        gzip = place.scenario.gzip.map_or(String::new(), |level| {
            format!("gzip on; gzip_comp_level {level}; gzip_min_length 1024; gzip_types *;")
        }),
        root = root.display(),
    );
    let file = place.write("nginx.conf", &configuration)?;
    // Without -e it tries the system's log before it reads where to log.
    let arguments = ["-e".into(), "stderr".into(), "-c".into(), file.into()];
    Ok(Argv::new(program, arguments))
}

fn fpm(place: &Place<'_>, socket: &str) -> Result<Argv, BenchError> {
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
listen.backlog = {backlog}
pm = static
pm.max_children = {workers}
clear_env = no
",
        backlog = place
            .setup()
            .backlog
            .map_or_else(|| place.setup().connections.max(BACKLOG), u32::from,),
        workers = place.setup().children.unwrap_or_else(|| place.workers()),
    );
    let file = place.write("fpm.conf", &configuration)?;
    let mut arguments = vec![
        "-F".into(),
        "-c".into(),
        place.php_ini().into(),
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
