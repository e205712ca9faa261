//! Real brokers, on loopback, for tests, and what is tested with all of them.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use pronghorn_base::BoxFuture;
use pronghorn_config::{Input, Severity, Table, load};
use pronghorn_queue::conformance::{
    Ability, NEVER, PATIENCE, PLENTY, Subject, healthy, job, new_store, unhealthy,
};
use pronghorn_queue::{Driver, OpenPipelines, Settlement, Wake};
use pronghorn_testkit::{Certificates, Engine, free_address};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::broker::LaterJobs;

use crate::tls::BrokerTls;

/// RabbitMQ with TLS on another port for who has a certificate, one scheduler, a daemon for names
/// of its own, and only the applications that it is made of: at its start it reads all plugins that
/// are installed, on or off, which takes longer than all else together.
pub(crate) fn rabbitmq(tls: u16, certificates: &Certificates) -> Engine {
    let mut engine = Engine::new("/usr/lib/rabbitmq/bin/rabbitmq-server");
    let (names, folder) = (free_port().to_string(), engine.folder().to_owned());
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
    let environment = vec![
        ("HOME", path("")),
        ("ERL_EPMD_ADDRESS", text("127.0.0.1")),
        ("ERL_EPMD_PORT", names.clone()),
        // Else it does not end while it knows a node.
        ("ERL_EPMD_RELAXED_COMMAND_CHECK", text("true")),
        (
            "RABBITMQ_NODENAME",
            format!("pronghorn{}@localhost", engine.port()),
        ),
        ("RABBITMQ_NODE_IP_ADDRESS", text("127.0.0.1")),
        ("RABBITMQ_NODE_PORT", engine.port().to_string()),
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
    engine.set_environment(environment);
    engine.set_farewell(farewell);
    engine.restart();
    engine
}

/// The certificates of the client, or only those that it trusts.
pub(crate) fn client_tls(certificates: &Certificates, has_identity: bool) -> BrokerTls {
    let identity = (
        certificates.path("client.pem"),
        certificates.path("client.key"),
    );
    BrokerTls {
        root_ca: Some(certificates.path("ca.pem")),
        identity: has_identity.then_some(identity),
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

/// The path of a program that `scripts/need` has built beside the tests.
pub(crate) fn tool(name: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let target = test.ancestors().nth(3).unwrap();
    target.join("tools").join(name)
}

pub(crate) fn free_port() -> u16 {
    free_address().port()
}

/// The port of somebody who says this to everybody who comes, and then nothing any more, until the
/// task is dropped.
pub(crate) async fn says(what: &'static [u8]) -> (u16, JoinSet<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("it has one").port();
    let mut task = JoinSet::new();
    task.spawn(async move {
        let mut open = Vec::new();
        while let Ok((mut connection, _)) = listener.accept().await {
            _ = connection.write_all(what).await;
            open.push(connection);
        }
    });
    (port, task)
}

/// A way to a server that can be closed: the server stays as it is.
pub(crate) struct Doorway {
    pub(crate) port: u16,
    to: u16,
    open: Option<JoinSet<()>>,
}

impl Doorway {
    pub(crate) fn to(port: u16) -> Self {
        let mut doorway = Self {
            port: free_port(),
            to: port,
            open: None,
        };
        doorway.open();
        doorway
    }

    pub(crate) fn open(&mut self) {
        let (port, to) = (self.port, self.to);
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let listener = TcpListener::bind(("127.0.0.1", port)).await;
            let listener = listener.expect("the port is free");
            let mut connections = JoinSet::new();
            loop {
                let (mut near, _) = listener.accept().await.expect("it listens");
                connections.spawn(async move {
                    if let Ok(mut far) = tokio::net::TcpStream::connect(("127.0.0.1", to)).await {
                        // Either may go at any time.
                        _ = tokio::io::copy_bidirectional(&mut near, &mut far).await;
                    }
                });
            }
        });
        self.open = Some(tasks);
    }

    pub(crate) fn close(&mut self) {
        self.open = None;
    }
}

/// A driver under test of a broker that does not keep all delays. `open` has a place for those.
pub(crate) fn subject_with_later<D: Driver>(
    ability: Ability,
    open: impl Fn(Wake, LaterJobs) -> D + Clone + Send + Sync + 'static,
) -> BoxFuture<'static, Subject> {
    Box::pin(async move {
        let (directory, store) = new_store(PLENTY);
        let left = store.clone();
        let open = move |wake| -> BoxFuture<'static, Arc<dyn Driver>> {
            let (store, open) = (store.clone(), open.clone());
            Box::pin(async move {
                let stored = OpenPipelines::default();
                let later = LaterJobs::open("p", &stored, store).await.unwrap();
                Arc::new(open(wake, later)) as Arc<dyn Driver>
            })
        };
        let wake = Wake::default();
        Subject {
            driver: open(wake.clone()).await,
            wake,
            ability,
            again: Some(Box::new(open)),
            directory: Some((directory, left)),
        }
    })
}

/// A broker, or the way to it.
pub(crate) trait Restart {
    fn stop(&mut self);

    fn restart(&mut self);
}

impl Restart for Engine {
    fn stop(&mut self) {
        self.stop();
    }

    fn restart(&mut self) {
        self.restart();
    }
}

/// A broker goes away while jobs wait and one is out, and comes back.
pub(crate) async fn survives_a_restart(engine: &mut impl Restart, subject: Subject) {
    subject.driver.resume();
    subject.push([job("out"), job("a"), job("b")]).await;
    let out = subject.next().await;
    assert_eq!(out.job.id, "out");
    engine.stop();
    unhealthy(&*subject.driver, " is away: ").await;
    let refused = timeout(NEVER, subject.driver.push(vec![job("never")])).await;
    assert!(!matches!(refused, Ok(Ok(()))), "there is nobody to keep it");
    engine.restart();
    healthy(&*subject.driver).await;
    let ack = subject.driver.settle(out.ticket, Settlement::Ack);
    let acked = timeout(PATIENCE, ack).await.expect("it is settled at last");
    subject.push([job("c")]).await;
    let mut left = BTreeSet::from(["a", "b", "c"].map(ToOwned::to_owned));
    if acked.is_err() {
        left.insert("out".to_owned());
    }
    while !left.is_empty() {
        let id = subject.ack_next().await;
        assert!(left.remove(&id), "{id} is not expected");
    }
    subject.nothing_comes().await;
    subject.stat(0, 0, 0).await;
    assert_eq!(subject.driver.health(), Ok(()));
}

/// The settings of a configuration that says nothing.
pub(crate) fn of_nothing<T: Clone>(read: impl Fn(&mut Table<'_>) -> T) -> T {
    of_text("", read)
}

/// The settings of a configuration without mistakes.
pub(crate) fn of_text<T: Clone>(text: &str, read: impl Fn(&mut Table<'_>) -> T) -> T {
    let loaded = load(&Input::from_text("p.yaml", text));
    let resolved = loaded.resolve_with(Severity::Error, read);
    resolved.settings().clone()
}
