//! The section `server`: how workers are started.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use pronghorn_config::{Command, Endpoint, Node, Pairs, Section, Setting, Shown, Table, Wrong};

/// What `on_init` may take, as RoadRunner's.
const ON_INIT_TIMEOUT: Duration = Duration::from_mins(1);

const BEYOND_LOOPBACK: &str = "is an address that others in the network reach, and workers are on \
                               this machine: all others are refused, as nothing proves who they are";

/// How workers are started.
#[derive(Clone, Debug)]
pub struct ServerSettings {
    /// What to run as a worker; a pool may have its own.
    pub command: Option<Command>,
    /// Name of the user that workers run as; None is the server's own.
    pub user: Option<String>,
    /// Name of their group; None is the user's.
    pub group: Option<String>,
    /// Whether a user of workers may be root.
    pub allow_root: bool,
    /// Variables for workers, in the order of the file, names as written.
    pub env: Pairs,
    /// The transport of workers of other packages.
    pub relay: RelayAddress,
    /// A command to run once before the workers.
    pub on_init: Option<OnInit>,
}

/// The transport of workers of other packages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RelayAddress {
    /// Standard input and output.
    Pipes,
    /// A unix socket that the server listens on.
    Unix(PathBuf),
    /// A TCP socket that the server listens on.
    Tcp(SocketAddr),
}

/// A command to run once before the workers.
#[derive(Clone, Debug)]
pub struct OnInit {
    /// What to run.
    pub command: Option<Command>,
    /// How long the command may take.
    pub exec_timeout: Duration,
    /// Whether the server ends if the command fails.
    pub exit_on_error: bool,
    /// Name of the user it runs as.
    pub user: Option<String>,
    /// Variables for it.
    pub env: Pairs,
}

impl Section for ServerSettings {
    fn read(t: &mut Table<'_>) -> Self {
        let settings = Self {
            command: t
                .key("command", "The command that starts a worker.")
                .live()
                .optional(),
            user: t
                .key(
                    "user",
                    "The user that workers run as. Requires a server that is started as root.",
                )
                .optional(),
            group: t
                .key(
                    "group",
                    "The group that workers run as. By default, the user's own group.",
                )
                .differs("read and ignored", "this server uses the key")
                .optional(),
            allow_root: t
                .key(
                    "allow_root",
                    "Whether workers may run as root. If false, the server refuses `user: root`, \
                     here and in pools. A server that is started as root without a `user` prints a \
                     warning; under systemd it does not start.",
                )
                .ours()
                .default(false),
            env: t
                .key(
                    "env",
                    "Environment variables for workers. They override the server's own.",
                )
                .live()
                .default(Pairs::default()),
            relay: t
                .key(
                    "relay",
                    "How workers of other packages connect. On a socket, the server accepts only \
                     processes that it has started for a pool and that run as the pool's user.",
                )
                .default(RelayAddress::Pipes),
            on_init: t.optional_section(
                "on_init",
                "A command that runs once before the first workers start. It also runs in the new \
                 process of an upgrade, but not at a reload.",
            ),
        };
        if let RelayAddress::Tcp(address) = settings.relay
            && !address.ip().is_loopback()
        {
            let hint = format!("write `relay: tcp://127.0.0.1:{}`", address.port());
            t.warn("relay", BEYOND_LOOPBACK, &hint);
        }
        t.no_effect(
            "relay_timeout",
            "RoadRunner ignores it since 2024.1; `pool.boot_timeout` is the limit",
        );
        for (name, _) in settings.env.iter() {
            let upper = name.to_uppercase();
            if upper != name {
                let why = "names keep their case";
                t.differs("env", &format!("`{name}`"), &format!("`{upper}`"), why);
            }
        }
        settings
    }
}

impl Section for OnInit {
    fn read(t: &mut Table<'_>) -> Self {
        let command = t.key("command", "What to run.").optional();
        if command.is_none() && !t.has_value("command") {
            t.error(
                "",
                "has no `command`",
                "for example `command: php migrate.php`",
            );
        }
        Self {
            command,
            exec_timeout: t
                .key("exec_timeout", "Time limit for the command.")
                .zero_is_default()
                .default(ON_INIT_TIMEOUT),
            exit_on_error: t
                .key(
                    "exit_on_error",
                    "Whether the server ends if the command fails.",
                )
                .default(false),
            user: t
                .key(
                    "user",
                    "The user that the command runs as. Requires a server that is started as root. \
                     By default, the workers' user.",
                )
                .optional(),
            env: t
                .key(
                    "env",
                    "Environment variables for the command. They override the server's own.",
                )
                .differs(
                    "the server's own take precedence",
                    "values in the file should win",
                )
                .default(Pairs::default()),
        }
    }
}

impl Setting for RelayAddress {
    fn example() -> String {
        "pipes".to_owned()
    }

    fn accepts() -> String {
        format!("`pipes`, {}", Endpoint::accepts())
    }

    fn read(node: &Node) -> Result<Self, Vec<Wrong>> {
        if node
            .text()
            .is_some_and(|text| text.trim().eq_ignore_ascii_case("pipes"))
        {
            return Ok(Self::Pipes);
        }
        let address = match Endpoint::read(node)? {
            Endpoint::Unix(path) => return Ok(Self::Unix(path)),
            Endpoint::Tcp(address) => address,
        };
        let ip = match address.host.as_deref() {
            Some("localhost") => Some(IpAddr::V4(Ipv4Addr::LOCALHOST)),
            Some(host) => host.parse().ok(),
            None => None,
        };
        match ip {
            Some(IpAddr::V6(_)) => Err(Wrong::hinted(
                node,
                "the PHP packages can't read IPv6 addresses: write `tcp://127.0.0.1:7000`",
            )),
            Some(ip) => Ok(Self::Tcp(SocketAddr::new(ip, address.port))),
            None => Err(Wrong::hinted(
                node,
                "workers are on this machine: write `tcp://127.0.0.1:7000`",
            )),
        }
    }

    fn show(&self) -> Shown {
        Shown::One(match self {
            Self::Pipes => "pipes".to_owned(),
            Self::Unix(path) => format!("unix://{}", path.display()),
            Self::Tcp(address) => format!("tcp://{address}"),
        })
    }
}
