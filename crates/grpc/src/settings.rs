//! The keys of `grpc`, typed.

use std::path::PathBuf;
use std::time::Duration;

use pronghorn_config::{Listen, Pairs, Section, Size, Table};
use pronghorn_grpc_wire::{Cors, MessageLimits};
use pronghorn_serve::{CertifiedClients, ClientAuth, Pair, read_pair};
use pronghorn_workers::settings::PoolSettings;

use crate::files::{NO_DESCRIPTORS, WITH_DESCRIPTORS};

/// As RoadRunner's.
const MESSAGE: Size = Size::megabytes(50);
/// Longer messages fit no frame to a worker.
const LONGEST_MESSAGE: Size = Size::megabytes(60);
/// One byte would refuse everything.
const SHORTEST_MESSAGE: Size = Size::kilobytes(1);

/// Calls that a client may have open on a connection. RoadRunner's 10 let its eleventh call wait,
/// whatever the pool could do; the pool's queue is the limit that counts.
const STREAMS: u32 = 128;
/// Each open call may keep 256 KB of its message in memory.
const MOST_STREAMS: u32 = 1000;

/// As HTTP's.
const CLIENT_MEMORY: Size = Size::megabytes(256);

/// As RoadRunner's.
const PING_TIME: Duration = Duration::from_hours(2);
const PING_TIMEOUT: Duration = Duration::from_secs(20);

const SHORTEST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_hours(24 * 365);

/// The name of `grpc.pool` in records and commands.
pub(crate) const POOL: &str = "grpc";
/// The same for `grpc.stream_pool`.
pub(crate) const STREAM_POOL: &str = "grpc-streams";

/// The section `grpc`.
#[derive(Clone, Debug)]
pub struct GrpcSettings {
    /// None where calls come to HTTP's addresses alone, or it is missing, which is told.
    pub listen: Option<Listen>,
    /// Calls are taken on the addresses of `http` as well.
    pub on_http: bool,
    /// Files and patterns.
    pub proto: Vec<String>,
    pub tls: Option<TlsSettings>,
    pub messages: MessageLimits,
    pub connections: ConnectionSettings,
    /// Methods with `google.api.http` answer JSON as well.
    pub json: bool,
    /// None where gRPC-Web is not spoken.
    pub web: Option<Cors>,
    pub pool: PoolSettings,
    /// Workers for methods that stream, where these have some of their own.
    pub stream_pool: Option<PoolSettings>,
    /// The directories of imports, and of files that only reflection knows: `protoreg`.
    pub proto_path: Vec<String>,
    pub known: Vec<String>,
}

/// The section `protoreg`.
#[derive(Clone, Debug)]
pub(crate) struct ProtoRegistry {
    pub(crate) paths: Vec<String>,
    pub(crate) files: Vec<String>,
}

impl Section for ProtoRegistry {
    fn read(t: &mut Table<'_>) -> Self {
        Self {
            paths: t
                .key("proto_path", "Directories in which imports are looked up.")
                .live()
                .default(Vec::new()),
            files: t
                .key("files", "Files in these directories.")
                .live()
                .default(Vec::new()),
        }
    }
}

/// Limits of connections.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionSettings {
    /// Without a call.
    pub idle: Option<Duration>,
    /// In all, and what calls under way get after that.
    pub age: Option<Duration>,
    pub age_grace: Option<Duration>,
    pub streams: u32,
    /// Bytes that clients may make the server hold in all.
    pub client_memory: Size,
    /// After so long without a sign of life a client is asked for one, and waited for so long.
    pub ping_time: Duration,
    pub ping_timeout: Duration,
}

/// The section `grpc.tls`.
#[derive(Clone, Debug)]
pub struct TlsSettings {
    pub pair: Pair,
    pub clients: CertifiedClients,
}

impl Section for GrpcSettings {
    fn read(t: &mut Table<'_>) -> Self {
        let listen = t
            .key("listen", "The address for gRPC, or a unix socket.")
            .optional();
        let on_http = t
            .key(
                "on_http",
                "Whether the addresses of `http` also accept calls. Clients without TLS need \
                 `http.http2.h2c`.",
            )
            .ours()
            .live()
            .default(false);
        if !t.is_written("listen") && !on_http {
            t.error(
                "",
                "has no `listen`",
                "for example `listen: 127.0.0.1:9001`",
            );
        }
        let proto = t
            .key(
                "proto",
                "The `.proto` files whose services the workers answer. `*`, `**`, `?`, `[a-z]` and \
                 `{a,b}` make a pattern. Imports are looked up beside each file; missing ones are \
                 ignored.",
            )
            .live()
            .default(Vec::new());
        let sentence = "TLS. Without this section, clients use clear text.";
        let tls = t.optional_section_with("tls", sentence, read_tls).flatten();
        let demands = |tls: &TlsSettings| {
            matches!(
                tls.clients.auth,
                ClientAuth::RequireAny | ClientAuth::RequireAndVerify
            )
        };
        if on_http && tls.as_ref().is_some_and(demands) {
            t.error(
                "on_http",
                "takes calls on the addresses of `http`, which ask clients for no certificate, \
                 and `tls.client_auth_type` wants one",
                "remove `on_http`, or let a proxy in front of `http` check certificates and remove \
                 `tls.client_auth_type`",
            );
        }
        let connections = ConnectionSettings::read(t);
        let messages = read_messages(t);
        refuse_interceptors(t);
        let env: Pairs = t
            .key(
                "env",
                "Environment variables for the workers of this section.",
            )
            .live()
            .default(Pairs::default());
        let web = read_web(t);
        let json = read_json(t);
        let mut pool: PoolSettings = t.section("pool", "The workers that answer calls.");
        let stream_pool = t.optional_section_with(
            "stream_pool",
            "Separate workers for methods that stream. A stream occupies its worker until the \
             stream ends. Without this section, `pool` answers streams, too.",
            |t| {
                t.ours();
                PoolSettings::read(t)
            },
        );
        pool.common.env = env.clone();
        Self {
            listen,
            on_http,
            proto,
            tls,
            messages,
            connections,
            json,
            web,
            pool,
            stream_pool: stream_pool.map(|mut pool: PoolSettings| {
                pool.common.env = env;
                pool
            }),
            proto_path: Vec::new(),
            known: Vec::new(),
        }
    }
}

fn read_messages(t: &mut Table<'_>) -> MessageLimits {
    let receive = t
        .key(
            "max_recv_msg_size",
            "The size limit of a message from a client, after decompression.",
        )
        .zero_is_default()
        .range(SHORTEST_MESSAGE..=LONGEST_MESSAGE)
        .live()
        .default(MESSAGE);
    let send = t
        .key(
            "max_send_msg_size",
            "The size limit of a message to a client.",
        )
        .zero_is_default()
        .range(SHORTEST_MESSAGE..=LONGEST_MESSAGE)
        .live()
        .default(MESSAGE);
    let bytes = |size: Size| usize::try_from(size.bytes()).unwrap_or(usize::MAX);
    MessageLimits {
        receive: bytes(receive),
        send: bytes(send),
    }
}

/// An interceptor may be what authenticates callers: without it, everybody would be let in.
fn refuse_interceptors(t: &mut Table<'_>) {
    let interceptors: Vec<String> = t
        .key(
            "interceptors",
            "RoadRunner's Go plugins that see each call. This server has none, and refuses every \
             name.",
        )
        .default(Vec::new());
    if let Some(first) = interceptors.first() {
        let message = format!("names `{first}`, a plugin in Go that this server does not have");
        let hint = "check callers in PHP by their metadata, or by `tls.client_auth_type`; then \
                    remove the key";
        t.error("interceptors", &message, hint);
    }
}

fn read_json(t: &mut Table<'_>) -> bool {
    let json = t
        .key(
            "json_transcoding",
            "Whether methods with the option `google.api.http` also answer JSON over HTTP/1.1 and \
             HTTP/2, on the same address.",
        )
        .ours()
        .live()
        .default(false);
    if json && !cfg!(feature = "descriptors") {
        t.error("json_transcoding", NO_DESCRIPTORS, WITH_DESCRIPTORS);
    }
    json
}

fn read_web(t: &mut Table<'_>) -> Option<Cors> {
    t.optional_section_with(
        "web",
        "gRPC-Web for browsers, on the same address, over HTTP/1.1 and HTTP/2. Without this \
         section, there is none.",
        |t| {
            t.ours();
            t.live();
            Cors {
                origins: t
                    .key(
                        "allowed_origins",
                        "The origins whose pages may call, such as `https://example.org`; `*` for \
                         all. By default, only pages of the same origin.",
                    )
                    .default(Vec::new()),
            }
        },
    )
}

impl ConnectionSettings {
    fn read(t: &mut Table<'_>) -> Self {
        Self {
            idle: t
                .key(
                    "max_connection_idle",
                    "How long a connection without a call is kept open.",
                )
                .range(SHORTEST..=LONGEST)
                .limit(),
            age: t
                .key(
                    "max_connection_age",
                    "How old a connection may become. After that, the client is asked to open \
                     another one, so that load balancers can distribute calls again.",
                )
                .range(SHORTEST..=LONGEST)
                .limit(),
            age_grace: t
                .key(
                    "max_connection_age_grace",
                    "How long running calls may still take on a connection that has reached \
                     `max_connection_age`.",
                )
                .range(SHORTEST..=LONGEST)
                .limit(),
            client_memory: t
                .key(
                    "client_memory",
                    "How much memory all clients together may use in the server: incomplete \
                     messages, messages that wait for a worker, and answers that clients have not \
                     yet read. Above the limit, the server takes the address that uses the most \
                     memory, and closes that address's largest connection. Calls on the addresses \
                     of `http` count for `http.client_memory`.",
                )
                .ours()
                .range(Size::megabytes(16)..=Size::megabytes(1000 << 10))
                .default(CLIENT_MEMORY),
            streams: t
                .key(
                    "max_concurrent_streams",
                    "How many calls a client may have open on a connection.",
                )
                .zero_is_default()
                .range(1..=MOST_STREAMS)
                .roadrunner("10", "the queue of the pool is the limit that counts")
                .default(STREAMS),
            ping_time: t
                .key(
                    "ping_time",
                    "How long a client may be silent before the server sends it a ping.",
                )
                .zero_is_default()
                .range(SHORTEST..=LONGEST)
                .default(PING_TIME),
            ping_timeout: t
                .key(
                    "timeout",
                    "How long the client may take to answer the ping.",
                )
                .zero_is_default()
                .range(SHORTEST..=LONGEST)
                .default(PING_TIMEOUT),
        }
    }
}

/// Without a certificate there is no TLS. A warning says so where both keys are blank, as in files
/// for RoadRunner.
fn read_tls(t: &mut Table<'_>) -> Option<TlsSettings> {
    let certificate: Option<PathBuf> = t
        .key("cert", "The server's certificate, in PEM.")
        .optional();
    let key: Option<PathBuf> = t
        .key("key", "The certificate's private key, in PEM.")
        .is_path()
        .optional();
    let clients = CertifiedClients::read(t, true);
    if t.is_empty("cert") && t.is_empty("key") {
        let message = "has a blank `cert` and a blank `key`: clients use clear text";
        t.warn("", message, "write both, or remove the section");
    } else if !t.is_written("cert") && !t.is_written("key") {
        // RoadRunner would speak clear text.
        t.error("", "has no certificate", "add `cert` and `key`");
    }
    let pair = read_pair(t, certificate, key)?;
    Some(TlsSettings { pair, clients })
}
