//! Real brokers, on loopback, for tests.

use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use rustix::process::{Pid, Signal, kill_process_group};

use crate::settings::BrokerTls;

/// A broker in a folder and on a port of its own. It ends with the test.
pub(crate) struct Engine {
    program: PathBuf,
    arguments: Vec<String>,
    environment: Vec<(&'static str, String)>,
    /// What ends beside it.
    farewell: Option<Command>,
    folder: PathBuf,
    port: u16,
    child: Option<Child>,
    ends_in_order: bool,
}

impl Engine {
    /// Nobody waits until it is up: drivers do not need that.
    pub(crate) fn start(
        program: impl Into<PathBuf>,
        arguments: impl Fn(u16) -> Vec<String>,
    ) -> Self {
        let mut engine = Self::new(program);
        engine.arguments = arguments(engine.port);
        engine.restart();
        engine
    }

    /// As [`start`](Self::start), with a file of settings in its folder.
    pub(crate) fn start_with_file(
        program: impl Into<PathBuf>,
        name: &str,
        make: impl Fn(u16) -> (Vec<String>, String),
    ) -> Self {
        let mut engine = Self::new(program);
        let (arguments, text) = make(engine.port);
        std::fs::write(engine.folder.join(name), text).unwrap();
        engine.arguments = arguments;
        engine.restart();
        engine
    }

    /// With TLS on another port for who has a certificate, one scheduler, a daemon for names of its
    /// own, and only the applications that it is made of: at its start it reads all plugins that
    /// are installed, on or off, which takes longer than all else together.
    pub(crate) fn rabbitmq(tls: u16, certificates: &Certificates) -> Self {
        let mut engine = Self::new("/usr/lib/rabbitmq/bin/rabbitmq-server");
        let (names, folder) = (free_port().to_string(), engine.folder.clone());
        link_applications(&folder.join("applications"));
        let file = |name| certificates.path(name).display().to_string();
        let settings = format!(
            "[{{rabbit, [{{ssl_listeners, [{{\"127.0.0.1\", {tls}}}]}}, {{ssl_options, [\
             {{cacertfile, \"{}\"}}, {{certfile, \"{}\"}}, {{keyfile, \"{}\"}}, \
             {{verify, verify_peer}}, {{fail_if_no_peer_cert, true}}]}}]}}].\n",
            file("ca.pem"),
            file("server.pem"),
            file("server.key"),
        );
        std::fs::write(folder.join("advanced.config"), settings).unwrap();
        let text = |text: &str| text.to_owned();
        let path = |name: &str| folder.join(name).to_string_lossy().into_owned();
        engine.environment = vec![
            ("HOME", path("")),
            ("ERL_EPMD_ADDRESS", text("127.0.0.1")),
            ("ERL_EPMD_PORT", names.clone()),
            // Else it does not end while it knows a node.
            ("ERL_EPMD_RELAXED_COMMAND_CHECK", text("true")),
            (
                "RABBITMQ_NODENAME",
                format!("pronghorn{}@localhost", engine.port),
            ),
            ("RABBITMQ_NODE_IP_ADDRESS", text("127.0.0.1")),
            ("RABBITMQ_NODE_PORT", engine.port.to_string()),
            ("RABBITMQ_DIST_PORT", free_port().to_string()),
            ("RABBITMQ_MNESIA_BASE", path("data")),
            ("RABBITMQ_LOG_BASE", path("log")),
            ("RABBITMQ_CONFIG_FILE", path("none")),
            ("RABBITMQ_ADVANCED_CONFIG_FILE", path("advanced.config")),
            ("RABBITMQ_ENABLED_PLUGINS_FILE", path("plugins")),
            ("RABBITMQ_PLUGINS_DIR", path("applications")),
            ("RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS", text("+S 1:1")),
        ];
        let mut farewell = Command::new("epmd");
        farewell
            .args(["-port", &names, "-kill"])
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        engine.farewell = Some(farewell);
        engine.restart();
        engine
    }

    fn new(program: impl Into<PathBuf>) -> Self {
        Self {
            program: program.into(),
            ends_in_order: false,
            arguments: Vec::new(),
            environment: Vec::new(),
            farewell: None,
            folder: folder(),
            port: free_port(),
            child: None,
        }
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// It is asked to end, and not killed.
    pub(crate) fn ends_in_order(&mut self) {
        self.ends_in_order = true;
    }

    /// Kills it; what it had on its disk stays.
    pub(crate) fn stop(&mut self) {
        if let Some(mut child) = self.child.take() {
            // Scripts that start a broker leave it as a child.
            let group = Pid::from_child(&child);
            let signal = if self.ends_in_order {
                Signal::TERM
            } else {
                Signal::KILL
            };
            kill_process_group(group, signal).unwrap();
            child.wait().unwrap();
        }
    }

    pub(crate) fn restart(&mut self) {
        let mut command = Command::new(&self.program);
        command
            .args(&self.arguments)
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .current_dir(&self.folder)
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let child = command.spawn();
        let program = self.program.display();
        let child = child.unwrap_or_else(|error| {
            panic!("{program} does not start ({error}): `scripts/need brokers` installs it")
        });
        self.child = Some(child);
    }
}

/// An authority with a certificate for 127.0.0.1 and one for a client: `ca.pem`, `server.pem` and
/// `server.key`, `client.pem` and `client.key`.
pub(crate) struct Certificates(PathBuf);

impl Certificates {
    pub(crate) fn new() -> Self {
        let made = Self(folder());
        let settings = "[req]\ndistinguished_name = name\n[name]\n";
        std::fs::write(made.path("openssl.cnf"), settings).unwrap();
        made.make("ca", &["basicConstraints=critical,CA:TRUE"]);
        made.make("server", &["subjectAltName=IP:127.0.0.1,DNS:localhost"]);
        made.make("client", &["extendedKeyUsage=clientAuth"]);
        made
    }

    fn make(&self, name: &str, extensions: &[&str]) {
        let mut command = Command::new("openssl");
        command.current_dir(&self.0).args(
            "req -x509 -config openssl.cnf -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2"
                .split(' '),
        );
        if name != "ca" {
            command.args(["-CA", "ca.pem", "-CAkey", "ca.key"]);
        }
        for extension in extensions {
            command.args(["-addext", extension]);
        }
        let made = command
            .args(["-subj", &format!("/CN={name}")])
            .args([
                "-keyout",
                &format!("{name}.key"),
                "-out",
                &format!("{name}.pem"),
            ])
            .output();
        let made = made.expect("openssl is there: `scripts/need brokers` installs it");
        assert!(
            made.status.success(),
            "{}",
            String::from_utf8_lossy(&made.stderr)
        );
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Those of the client, or only whom it trusts.
    pub(crate) fn client(&self, has_identity: bool) -> BrokerTls {
        let identity = (self.path("client.pem"), self.path("client.key"));
        BrokerTls {
            root_ca: Some(self.path("ca.pem")),
            identity: has_identity.then_some(identity),
        }
    }
}

impl Drop for Certificates {
    fn drop(&mut self) {
        _ = std::fs::remove_dir_all(&self.0);
    }
}

/// RabbitMQ without plugins.
const APPLICATIONS: [&str; 20] = [
    "accept",
    "aten",
    "credentials_obfuscation",
    "cuttlefish",
    "enough",
    "gen_batch_server",
    "getopt",
    "jsx",
    "observer_cli",
    "osiris",
    "ra",
    "rabbit",
    "rabbit_common",
    "rabbitmq_prelaunch",
    "ranch",
    "recon",
    "seshat",
    "stdout_formatter",
    "sysmon_handler",
    "systemd",
];

fn link_applications(to: &Path) {
    std::fs::create_dir(to).unwrap();
    let versions = std::fs::read_dir("/usr/lib/rabbitmq/lib");
    let versions = versions.expect("RabbitMQ is there: `scripts/need brokers` installs it");
    for version in versions {
        let plugins = version.unwrap().path().join("plugins");
        for plugin in std::fs::read_dir(plugins).unwrap() {
            let plugin = plugin.unwrap();
            let name = plugin.file_name().into_string().unwrap();
            if name
                .split_once('-')
                .is_some_and(|(name, _)| APPLICATIONS.contains(&name))
            {
                std::os::unix::fs::symlink(plugin.path(), to.join(name)).unwrap();
            }
        }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.stop();
        if let Some(farewell) = &mut self.farewell {
            _ = farewell.status();
        }
        _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn folder() -> PathBuf {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Relaxed);
    let name = format!("pronghorn-broker-{}-{number}", std::process::id());
    let folder = std::env::temp_dir().join(name);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// What `scripts/need` has built, beside the tests.
pub(crate) fn tool(name: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let target = test.ancestors().nth(3).unwrap();
    target.join("tools").join(name)
}

pub(crate) fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}
