//! The servers whose configurations are converted, as Debian has them, with php-cgi behind them.

use std::fmt::Write as _;
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use pronghorn_testkit::{Connection, Response, Site, php_command, wait_for};

const MODULES: &str = "/usr/lib/apache2/modules";

pub(super) fn free_port() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    listener.local_addr().expect("it is bound").port()
}

/// A server and PHP, which end with this value.
pub(super) struct Original {
    processes: Vec<Child>,
    port: u16,
}

impl Original {
    /// `{port}` and `{php}` in the text are put in. None where there is no nginx.
    pub(super) fn nginx(site: &Site, text: &str) -> Option<Self> {
        let program = program(&["/usr/sbin/nginx", "/usr/bin/nginx"])?;
        Some(Self::start(site, text, |directory, text, _| {
            std::fs::write(directory.join("site.conf"), text).expect("a file");
            let parameters = directory.join("fastcgi_params");
            std::fs::copy("/etc/nginx/fastcgi_params", parameters).expect("nginx brings it");
            let shown = directory.display();
            let mut main = format!(
                "worker_processes 1; daemon off; master_process off; pid {shown}/pid; error_log {shown}/error.log;\n\
                 events {{ worker_connections 64; }}\nhttp {{ access_log off; types {{ text/css css; }} "
            );
            for name in ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"] {
                _ = write!(main, "{name}_temp_path {shown}/{name}; "); // a String takes all
            }
            _ = writeln!(main, "include {shown}/site.conf; }}"); // as above
            let file = directory.join("nginx.conf");
            std::fs::write(&file, main).expect("a file");
            let mut command = Command::new(&program);
            command.arg("-c").arg(file);
            command
        }))
    }

    /// Apache with `mod_php`, or with php-fpm's protocol where the text names it. None where there
    /// is no Apache.
    pub(super) fn apache(site: &Site, text: &str) -> Option<Self> {
        let program = program(&["/usr/sbin/apache2"])?;
        let php = std::fs::read_dir(MODULES).ok()?.find_map(|entry| {
            let name = entry.ok()?.file_name().into_string().ok()?;
            let is_php = name.starts_with("libphp") && Path::new(&name).extension()? == "so";
            is_php.then_some(name)
        })?;
        Some(Self::start(site, text, |directory, text, port| {
            let shown = directory.display();
            let mut main = format!(
                "ServerName localhost\nListen 127.0.0.1:{port}\nPidFile {shown}/pid\n\
                 ErrorLog {shown}/error.log\nDefine APACHE_LOG_DIR {shown}\nMutex file:{shown}\n\
                 LoadModule php_module {MODULES}/{php}\n"
            );
            for name in [
                "mpm_prefork",
                "access_compat",
                "alias",
                "auth_basic",
                "authn_core",
                "authn_file",
                "authz_core",
                "authz_host",
                "authz_user",
                "dir",
                "env",
                "filter",
                "headers",
                "mime",
                "proxy",
                "proxy_fcgi",
                "proxy_http",
                "rewrite",
                "setenvif",
            ] {
                _ = writeln!(main, "LoadModule {name}_module {MODULES}/mod_{name}.so"); // a String takes all
            }
            // As Debian has it; php-cgi does not know the prefix of names that php-fpm gets.
            main.push_str(
                "StartServers 1\nProxyFCGIBackendType GENERIC\nTypesConfig /etc/mime.types\nDirectoryIndex index.html index.php\n\
                 AccessFileName .htaccess\n<FilesMatch \"^\\.ht\">\nRequire all denied\n</FilesMatch>\n",
            );
            if !text.contains("fcgi://") {
                main.push_str(
                    "<FilesMatch \"\\.php$\">\nSetHandler application/x-httpd-php\n</FilesMatch>\n",
                );
            }
            main.push_str(&text.replace(":80>", &format!(":{port}>")));
            let file = directory.join("apache.conf");
            std::fs::write(&file, main).expect("a file");
            let mut command = Command::new(&program);
            command.args(["-X", "-f"]).arg(file);
            command
        }))
    }

    /// None where there is no Caddy, or where the text is for `FrankenPHP`'s.
    pub(super) fn caddy(site: &Site, text: &str) -> Option<Self> {
        let program = program(&["/usr/bin/caddy"]).filter(|_| !text.contains("php_server"))?;
        // The client names no host. Debian's Caddy of 2022 knows the older name of arguments alone.
        let text = text.replace("{args[0]}", "{args.0}");
        let text = text.replace("http://shop.example:8080", ":{port}");
        let text = text
            .replace(":8080", ":{port}")
            .replace("127.0.0.1:9000", "127.0.0.1:{php}");
        let text = format!("{{\nadmin off\nauto_https off\n}}\n{text}");
        Some(Self::start(site, &text, |directory, text, _| {
            let file = directory.join("Caddyfile");
            std::fs::write(&file, text).expect("a file");
            let mut command = Command::new(&program);
            command
                .args(["run", "--adapter", "caddyfile", "--config"])
                .arg(file);
            for name in ["HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME"] {
                command.env(name, directory);
            }
            command
        }))
    }

    fn start(site: &Site, text: &str, server: impl FnOnce(&Path, &str, u16) -> Command) -> Self {
        let (port, php) = (free_port(), free_port());
        let directory = site.path("original");
        std::fs::create_dir_all(&directory).expect("a directory");
        let text = text.replace("{port}", &port.to_string());
        let text = text.replace("{php}", &php.to_string());
        let said = directory.join("said");
        let output = std::fs::File::create(&said).expect("a file");
        let run = |command: &mut Command| {
            let output = output.try_clone().expect("a descriptor");
            let quiet = command.stdout(Stdio::null()).stderr(output);
            quiet.process_group(0).spawn().expect("it starts")
        };
        let processes = vec![
            run(php_command("php-cgi").args(["-b", &format!("127.0.0.1:{php}")])),
            run(&mut server(&directory, &text, port)),
        ];
        let mut original = Self { processes, port };
        for port in [port, php] {
            wait_for("the server and php-cgi", || {
                let ended = original
                    .processes
                    .iter_mut()
                    .any(|it| matches!(it.try_wait(), Ok(Some(_))));
                let said = std::fs::read_to_string(&said).unwrap_or_default();
                assert!(!ended, "{text}\n{said}");
                std::net::TcpStream::connect((Ipv4Addr::LOCALHOST, port)).ok()
            });
        }
        original
    }

    pub(super) fn get(&self, path: &str) -> Response {
        Connection::open((Ipv4Addr::LOCALHOST, self.port).into()).get(path)
    }
}

impl Drop for Original {
    fn drop(&mut self) {
        for process in &mut self.processes {
            _ = process.kill(); // it may have ended
            _ = process.wait(); // as above
        }
    }
}

fn program(places: &[&str]) -> Option<PathBuf> {
    places.iter().map(PathBuf::from).find(|it| it.exists())
}
