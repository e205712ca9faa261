//! `otel`.

use std::fmt;
use std::sync::LazyLock;
use std::time::Duration;

use pronghorn_client::header::{HeaderName, HeaderValue};
use pronghorn_config::{Address, Choice, Node, Pairs, Section, Setting, Shown, Table, Wrong};
use pronghorn_trace::Sampling;

/// Where the OpenTelemetry Collector listens by default: for OTLP over HTTP, and over gRPC.
const HTTP_PORT: u16 = 4318;
const GRPC_PORT: u16 = 4317;
const TRACES_PATH: &str = "/v1/traces";
const METRICS_PATH: &str = "/v1/metrics";
/// RoadRunner's default is its own name.
const SERVICE_NAME: &str = "pronghorn";
/// The length that OpenTelemetry's SDKs have, 2048 spans, at four spans for a request. Each trace
/// takes about 2 KB: it is a second's worth at 2000 requests per second, in 4 MB.
const QUEUE: usize = 2048;
/// That of OpenTelemetry's SDKs; about 100 KB.
const BATCH_SPANS: usize = 512;
/// That of OpenTelemetry's SDKs: whoever looks for a trace waits no longer.
const BATCH_WAIT: Duration = Duration::from_secs(5);
/// That of the specification of OTLP.
const TIMEOUT: Duration = Duration::from_secs(10);
/// That of OpenTelemetry's SDKs.
const METRICS_INTERVAL: Duration = Duration::from_secs(60);
/// All, as in RoadRunner: whoever switches traces on wants to see some. Sites with many requests
/// write less.
const RATIO: f64 = 1.0;
/// A page that takes longer is one that somebody will ask about.
const SLOW: Duration = Duration::from_secs(1);

/// The section `otel`.
#[derive(Clone, Debug)]
pub struct OtelSettings {
    pub(crate) target: Target,
    /// By the names of the semantic conventions.
    pub(crate) resource: Vec<(&'static str, String)>,
    pub(crate) sampling: Sampling,
    /// Traces that wait at most.
    pub(crate) queue: usize,
    pub(crate) batch: Batch,
    /// How often metrics are exported, if they are.
    pub(crate) metrics: Option<Duration>,
}

/// Where everything goes.
#[derive(Clone, Debug)]
pub(crate) enum Target {
    Collector(CollectorSettings),
    /// `stdout` or `stderr`.
    Lines(Vec<String>),
}

#[derive(Clone)]
pub(crate) struct CollectorSettings {
    pub(crate) client: Client,
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) tls: bool,
    pub(crate) compress: bool,
    pub(crate) traces_path: String,
    pub(crate) metrics_path: String,
    pub(crate) headers: Vec<(HeaderName, HeaderValue)>,
    /// The limit of one request.
    pub(crate) timeout: Duration,
}

/// When traces are sent: as soon as one of both is reached.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Batch {
    pub(crate) spans: usize,
    pub(crate) wait: Duration,
}

/// The protocol of the collector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Client {
    Http,
    Grpc,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Exporter {
    Otlp,
    Stdout,
    Stderr,
    Zipkin,
}

impl Choice for Client {
    const CHOICES: &'static [(&'static str, Self)] = &[("http", Self::Http), ("grpc", Self::Grpc)];
}

impl Choice for Exporter {
    const CHOICES: &'static [(&'static str, Self)] = &[
        ("otlp", Self::Otlp),
        ("stdout", Self::Stdout),
        ("stderr", Self::Stderr),
        ("zipkin", Self::Zipkin),
    ];
}

/// Values may be secret.
impl fmt::Debug for CollectorSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.headers.iter().map(|(name, _)| name);
        f.debug_struct("CollectorSettings")
            .field("client", &self.client)
            .field("host", &self.host)
            .field("port", &self.port)
            .field("headers", &names.collect::<Vec<_>>())
            .finish_non_exhaustive()
    }
}

impl Section for OtelSettings {
    fn read(t: &mut Table<'_>) -> Self {
        let exporter = t
            .key(
                "exporter",
                "Where traces go: `otlp` to a collector that speaks OTLP, `stdout` and `stderr` as \
                 lines of JSON.",
            )
            .default(Exporter::Otlp);
        if exporter == Exporter::Zipkin {
            t.error(
                "exporter",
                "is `zipkin`, which is not exported any more",
                "write `exporter: otlp`, and let a collector hand traces on to Zipkin",
            );
        }
        let collector = read_collector(t);
        let target = match exporter {
            Exporter::Otlp | Exporter::Zipkin => Target::Collector(collector),
            Exporter::Stdout => Target::Lines(vec!["stdout".to_owned()]),
            Exporter::Stderr => Target::Lines(vec!["stderr".to_owned()]),
        };
        Self {
            target,
            resource: read_resource(t),
            sampling: t.section_with(
                "sampling",
                "Which traces are kept (sampling).",
                read_sampling,
            ),
            queue: t
                .key(
                    "queue",
                    "How many traces may wait for the exporter. Further traces are lost and \
                     counted.",
                )
                .ours()
                .range(1..=1_000_000)
                .default(QUEUE),
            batch: t.section_with(
                "batch",
                "When waiting traces are sent. The first of the two limits applies.",
                |t| {
                    t.ours();
                    Batch {
                        spans: t
                            .key(
                                "spans",
                                "Traces are sent when the waiting ones have this many spans.",
                            )
                            .range(1..=100_000)
                            .default(BATCH_SPANS),
                        wait: t
                            .key(
                                "wait",
                                "Traces are sent when the first one has waited this long.",
                            )
                            .range(Duration::from_millis(10)..=Duration::from_secs(300))
                            .default(BATCH_WAIT),
                    }
                },
            ),
            metrics: t.optional_section_with(
                "metrics",
                "The server's metrics for the same collector. Without this section, they are not \
                 exported.",
                |t| {
                    t.ours();
                    t.key("interval", "How often metrics are exported.")
                        .range(Duration::from_secs(1)..=Duration::from_secs(3600))
                        .default(METRICS_INTERVAL)
                },
            ),
        }
    }
}

fn read_collector(t: &mut Table<'_>) -> CollectorSettings {
    let client = t
        .key("client", "The OTLP transport of the collector.")
        .default(Client::Http);
    let port = match client {
        Client::Http => HTTP_PORT,
        Client::Grpc => GRPC_PORT,
    };
    let endpoint = t.key("endpoint", "The collector's address.").default_as(
        Address {
            host: Some("127.0.0.1".to_owned()),
            port,
        },
        "`127.0.0.1:4318`, with `client: grpc` `127.0.0.1:4317`",
    );
    let (traces_path, metrics_path) = read_paths(t);
    CollectorSettings {
        client,
        host: endpoint.host.unwrap_or_else(|| "127.0.0.1".to_owned()),
        port: endpoint.port,
        tls: !t
            .key("insecure", "Whether to connect without TLS.")
            .default(false),
        compress: t
            .key("compress", "Whether requests are compressed with gzip.")
            .default(false),
        traces_path,
        metrics_path,
        headers: read_headers(t),
        timeout: t
            .key("timeout", "Time limit for an answer of the collector.")
            .ours()
            .range(Duration::from_millis(10)..=Duration::from_secs(300))
            .default(TIMEOUT),
    }
}

/// The paths for traces, and for metrics beside them.
fn read_paths(t: &mut Table<'_>) -> (String, String) {
    let written: Option<String> = t
        .key(
            "custom_url",
            "The collector's path for traces, instead of `/v1/traces`.",
        )
        .optional();
    let written = written.filter(|path| !path.is_empty());
    let Some(path) = written else {
        return (TRACES_PATH.to_owned(), METRICS_PATH.to_owned());
    };
    let path = if path.starts_with('/') {
        path
    } else {
        format!("/{path}")
    };
    if path.contains("://") || !path.bytes().all(|byte| byte.is_ascii_graphic()) {
        t.error(
            "custom_url",
            "is not a path",
            "for example `custom_url: /otlp/v1/traces`; the host belongs in `endpoint`",
        );
    }
    let before = path.strip_suffix(TRACES_PATH).unwrap_or_default();
    let metrics = format!("{before}{METRICS_PATH}");
    (path, metrics)
}

fn read_headers(t: &mut Table<'_>) -> Vec<(HeaderName, HeaderValue)> {
    let written: Pairs = t
        .key(
            "headers",
            "Header fields for each request, such as an API key of the collector's provider.",
        )
        .secret()
        .default(Pairs::default());
    let mut headers = Vec::new();
    for (name, value) in written.iter() {
        let parsed = HeaderName::from_bytes(name.as_bytes());
        let value = HeaderValue::from_str(value);
        match (parsed, value) {
            (Ok(name), Ok(mut value)) => {
                value.set_sensitive(true);
                headers.push((name, value));
            }
            (Err(_), _) => t.error(
                "headers",
                &format!("has `{name}`, which can't name a header field"),
                "use letters, digits and `-`",
            ),
            (_, Err(_)) => t.error(
                "headers",
                &format!("has a value for `{name}` with characters that no header field can have"),
                "a line break at its end, perhaps",
            ),
        }
    }
    headers
}

fn read_resource(t: &mut Table<'_>) -> Vec<(&'static str, String)> {
    const MOVED: &str = "has its place in `otel.resource` now";
    let mut moved = |name: &'static str, sentence: &'static str| {
        let value: Option<String> = t.key(name, sentence).optional();
        if value.is_some() {
            t.warn(name, MOVED, "move it into the section `resource`");
        }
        value
    };
    let name = moved("service_name", "Older spelling of `resource.service_name`.");
    let version = moved(
        "service_version",
        "Older spelling of `resource.service_version`.",
    );
    t.section_with(
        "resource",
        "The attributes of this server in traces and metrics.",
        |t| {
            let name = t
                .key("service_name", "The name of the application.")
                .roadrunner("`RoadRunner`", "each server uses its own name")
                .default(name.unwrap_or_else(|| SERVICE_NAME.to_owned()));
            let mut text = |name, sentence| t.key::<String>(name, sentence).optional();
            let own = text("service_version", "The application's version.").or(version);
            let namespace = text(
                "service_namespace",
                "The namespace, which several services can share.",
            );
            let instance = t
                .key(
                    "service_instance_id",
                    "The ID of this server among several.",
                )
                .default_as(instance(), "a random UUID");
            let optional = [("service.version", own), ("service.namespace", namespace)];
            let optional = optional
                .into_iter()
                .filter_map(|(name, text)| Some((name, text?)));
            let mut resource = vec![("service.name", name), ("service.instance.id", instance)];
            resource.extend(optional);
            resource
        },
    )
}

/// The same for as long as the process lives, also when a reload reads the settings again.
fn instance() -> String {
    static INSTANCE: LazyLock<String> = LazyLock::new(random_uuid);
    INSTANCE.clone()
}

fn random_uuid() -> String {
    // RFC 9562: version 4 and its variant, all else at random.
    let bits = fastrand::u128(..) & !(0xf000 << 64 | 0b11 << 62) | 0x4000 << 64 | 0b10 << 62;
    let digits = format!("{bits:032x}");
    let part = |range| digits.get(range).unwrap_or_default();
    let (first, second, third) = (part(0..8), part(8..12), part(12..16));
    format!("{first}-{second}-{third}-{}-{}", part(16..20), part(20..32))
}

fn read_sampling(t: &mut Table<'_>) -> Sampling {
    t.ours();
    t.live();
    Sampling {
        parent: t
            .key(
                "parent",
                "Whether a client's sampling decision takes precedence over `ratio`.",
            )
            .default(true),
        ratio: t
            .key(
                "ratio",
                "The fraction of other traces that is kept, from 0 to 1.",
            )
            .default(Ratio(RATIO))
            .0,
        errors: t
            .key(
                "errors",
                "Whether traces with a status of 500 or more are always kept.",
            )
            .default(true),
        slow: t
            .key("slow", "Traces that take longer than this are always kept.")
            .limit_of(SLOW),
    }
}

/// A part of a whole.
struct Ratio(f64);

impl Setting for Ratio {
    fn example() -> String {
        "0.1".to_owned()
    }

    fn accepts() -> String {
        "a number from 0 to 1".to_owned()
    }

    fn read(node: &Node) -> Result<Self, Vec<Wrong>> {
        let text = node.text().ok_or_else(|| Wrong::value(node))?.trim();
        if let Some(percent) = text.strip_suffix('%')
            && let Ok(percent) = percent.trim().parse::<f64>()
        {
            return Err(Wrong::hinted(node, format!("write `{}`", percent / 100.0)));
        }
        let number = text.parse().map_err(|_| Wrong::value(node))?;
        if !(0.0..=1.0).contains(&number) {
            return Err(Wrong::value(node));
        }
        Ok(Self(number))
    }

    fn show(&self) -> Shown {
        Shown::One(self.0.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_random_uuid_looks_like_one() {
        for _ in 0..100 {
            let id = random_uuid();
            let parts: Vec<usize> = id.split('-').map(str::len).collect();
            assert_eq!(parts, [8, 4, 4, 4, 12], "{id}");
            let at = |at: usize| id.as_bytes()[at];
            assert_eq!(at(14), b'4', "{id}");
            assert!(b"89ab".contains(&at(19)), "{id}");
        }
    }
}
