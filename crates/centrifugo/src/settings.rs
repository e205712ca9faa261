//! The keys of `centrifuge`, typed.

use std::time::Duration;

use pronghorn_client::Tls;
use pronghorn_config::{Address, Listen, Section, Table};
use pronghorn_workers::settings::PoolSettings;

/// The places of the proxy and of Centrifugo's API, as RoadRunner has them.
const LOCAL: &str = "127.0.0.1";
const PROXY_PORT: u16 = 30_000;
const API_PORT: u16 = 10_000;

/// RoadRunner has none, and waits for ever where the answer does not come.
const API_TIMEOUT: Duration = Duration::from_secs(10);
const SHORTEST: Duration = Duration::from_millis(10);
const LONGEST: Duration = Duration::from_mins(5);

/// The name under which Centrifugo sends the proxy's key.
const KEY_NAME: &str = "proxy-key";

/// The section `centrifuge`.
#[derive(Clone, Debug)]
pub struct CentrifugoSettings {
    pub listen: Listen,
    /// Without it, whoever reaches the address may call.
    pub proxy_key: Option<ProxyKey>,
    pub api: ApiSettings,
    pub pool: PoolSettings,
}

/// A pair of metadata that Centrifugo sends with each call.
#[derive(Clone)]
pub struct ProxyKey {
    /// In lower case.
    pub name: String,
    pub value: String,
}

impl std::fmt::Debug for ProxyKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ProxyKey")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// Centrifugo's API: where it is and how it is asked.
#[derive(Clone, PartialEq, Eq)]
pub struct ApiSettings {
    pub host: String,
    pub port: u16,
    pub key: Option<String>,
    /// None is clear text.
    pub tls: Option<Tls>,
    pub timeout: Duration,
    /// Whether requests are compressed.
    pub gzip: bool,
}

impl std::fmt::Debug for ApiSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ApiSettings")
            .field("host", &self.host)
            .field("port", &self.port)
            .field("tls", &self.tls)
            .finish_non_exhaustive()
    }
}

impl Section for CentrifugoSettings {
    fn read(t: &mut Table<'_>) -> Self {
        let local = |port| Address {
            host: Some(LOCAL.to_owned()),
            port,
        };
        let listen = t
            .key(
                "proxy_address",
                "The address for Centrifugo's calls, without TLS: in Centrifugo, \
                 `endpoint: grpc://127.0.0.1:30000`.",
            )
            .default(Listen::Tcp(local(PROXY_PORT)));
        let proxy_key = read_proxy_key(t);
        let api = ApiSettings::read(t, local(API_PORT));
        for name in ["name", "version"] {
            t.no_effect(name, "RoadRunner does not use it either");
        }
        Self {
            listen,
            proxy_key,
            api,
            pool: t.section(
                "pool",
                "The workers that answer Centrifugo, with `roadrunner-php/centrifugo`.",
            ),
        }
    }
}

fn read_proxy_key(t: &mut Table<'_>) -> Option<ProxyKey> {
    let value: Option<String> = t
        .key(
            "proxy_key",
            "The secret that Centrifugo sends with each call (`credentials_value` in Centrifugo). \
             Calls without the secret are refused. By default, anybody who can reach the address \
             may call.",
        )
        .ours()
        .secret()
        .guards()
        .live()
        .optional();
    let name = t
        .key(
            "proxy_key_name",
            "The name of this secret in the metadata (`credentials_key` in Centrifugo).",
        )
        .ours()
        .public()
        .live()
        .default(KEY_NAME.to_owned());
    let name = name.to_ascii_lowercase();
    let is_good = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    if name.is_empty() || !name.bytes().all(is_good) || name.ends_with("-bin") {
        let message = "can't name metadata of text";
        t.error("proxy_key_name", message, "use letters, digits and `-`");
    }
    let value = value?;
    if !is_text(&value) {
        let message = "has characters that metadata can't have";
        t.error("proxy_key", message, "a line break at its end, perhaps");
    }
    Some(ProxyKey { name, value })
}

/// Whether a field of HTTP/2 can have this value and keeps it as it is.
fn is_text(value: &str) -> bool {
    value.bytes().all(|byte| matches!(byte, b' '..=b'~')) && value.trim() == value
}

impl ApiSettings {
    fn read(t: &mut Table<'_>, at: Address) -> Self {
        let address: Address = t
            .key(
                "grpc_api_address",
                "The address of Centrifugo's gRPC API, for the methods `centrifuge.*` of RPC.",
            )
            .live()
            .default(at);
        let key: Option<String> = t
            .key(
                "grpc_api_key",
                "The key for Centrifugo's gRPC API (`grpc_api.key` in Centrifugo).",
            )
            .ours()
            .secret()
            .live()
            .optional();
        if key.as_deref().is_some_and(|key| !is_text(key)) {
            let message = "has characters that metadata can't have";
            t.error("grpc_api_key", message, "a line break at its end, perhaps");
        }
        let timeout = t
            .key(
                "grpc_api_timeout",
                "Time limit for an answer of Centrifugo's gRPC API, including the time to connect.",
            )
            .ours()
            .range(SHORTEST..=LONGEST)
            .live()
            .default(API_TIMEOUT);
        let gzip = t
            .key(
                "use_compressor",
                "Whether requests to Centrifugo's gRPC API are compressed with gzip.",
            )
            .live()
            .default(false);
        let tls = t.optional_section_with(
            "tls",
            "TLS for the connection to Centrifugo's API. Without this section, the connection is \
             not encrypted.",
            |t| {
                t.live();
                read_tls(t)
            },
        );
        Self {
            host: address.host.unwrap_or_else(|| LOCAL.to_owned()),
            port: address.port,
            key: key.filter(|key| !key.is_empty()),
            tls,
            timeout,
            gzip,
        }
    }
}

fn read_tls(t: &mut Table<'_>) -> Tls {
    let identity = Tls::read_identity(t);
    let root_ca = t
        .key(
            "root_ca",
            "A PEM file with the authorities to trust. By default, those of the system.",
        )
        .ours()
        .is_path()
        .optional();
    Tls { root_ca, identity }
}
