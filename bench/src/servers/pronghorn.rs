//! Pronghorn in each of its modes, and its HTTP side alone.

use std::ffi::OsString;
use std::path::Path;

use serde_json::{Value, json};

use super::apache::build;
use super::{Adapter, Kind, Place};
use crate::error::BenchError;
use crate::program::Argv;
use crate::site::{find, free_address, own_binary};

/// Calls that wait by default; more are answered 503.
const QUEUE: u32 = 1024;

/// One way of ours to run an application.
pub(crate) struct Mode {
    name: &'static str,
    /// The application's script, with its arguments.
    worker: &'static [&'static str],
    /// Keys of the pool, besides the number of its workers.
    pool: fn() -> Value,
    insight: Insight,
    packages: &'static str,
}

/// What shows where the time of requests goes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Insight {
    /// Nothing is counted and nothing told.
    Off,
    /// The time of each request is split, metrics are counted, routes are learned.
    Metrics,
    /// Beside that each request has a trace, and one in a hundred is kept.
    Traces,
}

/// What most modes are.
const KEPT: Mode = Mode {
    name: "",
    worker: &["worker.php"],
    pool: as_it_comes,
    insight: Insight::Off,
    packages: "php-cli",
};

pub(crate) const MODES: [Mode; 12] = [
    Mode {
        name: "pronghorn",
        ..KEPT
    },
    Mode {
        name: "pronghorn-metrics",
        insight: Insight::Metrics,
        ..KEPT
    },
    Mode {
        name: "pronghorn-traces",
        insight: Insight::Traces,
        ..KEPT
    },
    Mode {
        name: "pronghorn-relay",
        pool: over_pipes,
        ..KEPT
    },
    Mode {
        name: "pronghorn-jit",
        pool: with_jit,
        ..KEPT
    },
    Mode {
        name: "pronghorn-no-sandbox",
        worker: &["worker-no-sandbox.php"],
        ..KEPT
    },
    Mode {
        name: "pronghorn-exec",
        pool: started_by_itself,
        ..KEPT
    },
    Mode {
        name: "pronghorn-pristine",
        pool: forked_for_one_call,
        ..KEPT
    },
    Mode {
        name: "pronghorn-psr7",
        worker: &["worker-psr7.php", "nyholm"],
        packages: "php-cli php-nyholm-psr7",
        ..KEPT
    },
    Mode {
        name: "pronghorn-psr7-nyholm",
        worker: &["worker-psr7.php", "nyholm-requests"],
        packages: "php-cli php-nyholm-psr7",
        ..KEPT
    },
    Mode {
        name: "pronghorn-psr7-guzzle",
        worker: &["worker-psr7.php", "guzzle"],
        packages: "php-cli php-guzzlehttp-psr7",
        ..KEPT
    },
    Mode {
        name: "pronghorn-roadrunner",
        worker: &[ROADRUNNER],
        packages: "php-cli php-nyholm-psr7",
        ..KEPT
    },
];

/// The worker of the official packages, which are not in Debian.
const ROADRUNNER: &str = "worker-roadrunner.php";

fn as_it_comes() -> Value {
    json!({})
}

/// Without shared memory, whether or not the extension is there.
fn over_pipes() -> Value {
    json!({"transport": "relay"})
}

/// The application boots in each worker, where by default it boots once for all of them.
fn started_by_itself() -> Value {
    json!({"spawn": "exec"})
}

/// A process for each request, forked after the boot.
fn forked_for_one_call() -> Value {
    json!({"spawn": "fork", "max_jobs": 1})
}

/// Off unless asked for: this is what it would gain.
fn with_jit() -> Value {
    json!({"ini": {"opcache.jit": "tracing", "opcache.jit_buffer_size": "64M"}})
}

impl Adapter for Mode {
    fn name(&self) -> &str {
        self.name
    }

    fn kind(&self) -> Kind {
        Kind::Ours
    }

    fn packages(&self) -> &'static str {
        self.packages
    }

    fn programs(&self, place: &Place<'_>) -> Result<Vec<Argv>, BenchError> {
        let site = place.site;
        let [script, arguments @ ..] = self.worker else {
            unreachable!("each mode names its script");
        };
        if *script == ROADRUNNER && site.packages.is_none() {
            return Err(BenchError::NoPackages);
        }
        let mut command = vec![
            find("php", "php-cli")?,
            "-c".into(),
            place.php_ini().into(),
            place.script(script)?.into(),
        ];
        command.extend(arguments.iter().map(OsString::from));
        let command: Vec<_> = command.iter().map(|part| part.to_string_lossy()).collect();
        let mut sections = json!({"server": {"command": command}});
        let mut pool = (self.pool)();
        let collector = self.insight.add(place, &mut sections, &mut pool)?;
        let server = start(place, sections, pool, None)?;
        Ok(collector.into_iter().chain(server).collect())
    }
}

impl Insight {
    /// Adds what switches it on; returns the collector that takes the traces.
    fn add(
        self,
        place: &Place<'_>,
        sections: &mut Value,
        pool: &mut Value,
    ) -> Result<Option<Argv>, BenchError> {
        let port_for = || -> Result<String, BenchError> {
            let address = free_address()?;
            place.site.also_note(address);
            Ok(address.to_string())
        };
        if self == Self::Off {
            return Ok(None);
        }
        // Whoever is told of slow requests is told where their time went: it is known of each.
        pool["slow"] = json!("10s");
        sections["metrics"] = json!({"address": port_for()?});
        if self == Self::Metrics {
            return Ok(None);
        }
        let address = port_for()?;
        sections["otel"] = json!({
            "insecure": true,
            "endpoint": address,
            "sampling": {"ratio": 0.01, "slow": "10s"},
        });
        // To a client of OTLP a server that answers all with 200 is a collector.
        let arguments = ["from-memory".into(), address.into(), "1".into()];
        Ok(Some(Argv::new(own_binary(), arguments)))
    }
}

/// One way of ours to run what other servers run: scripts below a root, or programs.
pub(crate) struct Root {
    name: &'static str,
    kind: Scripts,
    packages: &'static str,
}

enum Scripts {
    Classic,
    FastCgi,
    Cgi,
}

pub(crate) const ROOTS: [Root; 3] = [
    Root {
        name: "pronghorn-classic",
        kind: Scripts::Classic,
        packages: "php-cli",
    },
    Root {
        name: "pronghorn-fastcgi",
        kind: Scripts::FastCgi,
        packages: "php-cgi",
    },
    Root {
        name: "pronghorn-cgi",
        kind: Scripts::Cgi,
        packages: "make gcc g++",
    },
];

impl Adapter for Root {
    fn name(&self) -> &str {
        self.name
    }

    fn kind(&self) -> Kind {
        Kind::Ours
    }

    fn packages(&self) -> &'static str {
        self.packages
    }

    fn programs(&self, place: &Place<'_>) -> Result<Vec<Argv>, BenchError> {
        let ini = place.php_ini();
        let with_ini = |php: OsString| json!([php.to_string_lossy(), "-c", ini]);
        let public = || -> Result<_, BenchError> {
            let script = place.script("public/index.php")?;
            Ok(script.parent().map(Path::to_owned))
        };
        let pool = match self.kind {
            Scripts::Classic => {
                json!({"mode": "classic", "root": public()?, "php": with_ini(find("php", "php-cli")?)})
            }
            Scripts::FastCgi => {
                json!({"mode": "fastcgi", "root": public()?, "command": with_ini(find("php-cgi", "php-cgi")?)})
            }
            Scripts::Cgi => json!({"mode": "cgi", "root": build(place)?}),
        };
        // Where the application writes, and other variables of the run: the others pass them on as
        // well.
        start(place, json!({"server": {}}), pool, None)
    }
}

/// The programs that make up a server of ours with this pool.
///
/// `sections` stand beside those of HTTP and the logs; `files` come before the pool.
fn start(
    place: &Place<'_>,
    mut sections: Value,
    mut pool: Value,
    files: Option<&Path>,
) -> Result<Vec<Argv>, BenchError> {
    let site = place.site;
    if let Some(keys) = pool.as_object_mut() {
        keys.insert("num_workers".to_owned(), place.workers().into());
        let connections = place.setup().connections;
        if connections > QUEUE {
            keys.insert("max_queue_size".to_owned(), connections.into());
        }
        if keys.get("mode").is_some() {
            keys.insert("clear_env".to_owned(), false.into());
        } else {
            // Of kept workers: scripts below a root have other keys.
            for (key, value) in &place.setup().pool {
                keys.insert((*key).to_owned(), value.clone());
            }
        }
    }
    let mut section = json!({"threads": site.io_threads, "pool": pool});
    for (key, value) in front(place) {
        section[key] = value;
    }
    let mut middleware = Vec::new();
    let public = place.public();
    if place.setup().file.is_some() {
        section["static"] = json!({"dir": public, "forbid": [".php"]});
        middleware.push("static");
    }
    if let Some(folder) = files {
        section["static"] = json!({"dir": folder});
        middleware.push("static");
    }
    if let Some(level) = place.scenario.gzip {
        section["compress"] = json!({"gzip_level": level});
        middleware.push("gzip");
    }
    section["middleware"] = middleware.into();
    if place.setup().terminal {
        section["access_log"] = json!({"output": "stdout"});
    }
    // JSON is YAML. No record for each request: the others write none either.
    sections["version"] = json!("3");
    sections["http"] = section;
    sections["logs"] = json!({"channels": {"http": {"level": "warn"}}});
    if let Some(address) = place.metrics {
        sections["metrics"] = json!({"address": address.to_string()});
    }
    let file = place.write("pronghorn.yaml", &sections.to_string())?;
    let arguments = ["serve".into(), "-c".into(), file.into()];
    Ok(vec![Argv::new(&site.pronghorn, arguments)])
}

/// Keys of `http`: where it listens, and what is spoken there.
fn front(place: &Place<'_>) -> Vec<(&'static str, Value)> {
    let address = place.address.to_string();
    let mut keys = Vec::new();
    let protocol = place.scenario.protocol;
    if protocol.is_secure() {
        let (cert, key) = place.site.certificate();
        keys.push(("ssl", json!({"address": address, "cert": cert, "key": key})));
    } else {
        keys.push(("address", address.into()));
        keys.push(("http2", json!({"h2c": protocol.is_http2()})));
    }
    keys
}

/// Files, with PHP behind them that nobody asks.
pub(crate) struct Files;

impl Adapter for Files {
    fn name(&self) -> &'static str {
        "pronghorn-files"
    }

    fn kind(&self) -> Kind {
        Kind::Ours
    }

    fn packages(&self) -> &'static str {
        "php-cli"
    }

    fn programs(&self, place: &Place<'_>) -> Result<Vec<Argv>, BenchError> {
        let php = find("php", "php-cli")?;
        let script = place.script("worker.php")?;
        let command = json!([php.to_string_lossy(), "-c", place.php_ini(), script]);
        let folder = crate::pages::write(&place.folder)?;
        let sections = json!({"server": {"command": command}});
        start(place, sections, as_it_comes(), Some(&folder))
    }
}

/// Our HTTP side with a handler in Rust behind it: what is left when PHP costs nothing.
pub(crate) struct HttpAlone;

impl Adapter for HttpAlone {
    fn name(&self) -> &'static str {
        "http-alone"
    }

    fn kind(&self) -> Kind {
        Kind::Ours
    }

    fn packages(&self) -> &'static str {
        ""
    }

    fn programs(&self, place: &Place<'_>) -> Result<Vec<Argv>, BenchError> {
        let arguments = [
            "from-memory".into(),
            place.address.to_string().into(),
            place.site.io_threads.to_string().into(),
        ];
        Ok(vec![Argv::new(own_binary(), arguments)])
    }
}
