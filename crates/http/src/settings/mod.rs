//! The keys of `http`, typed.

mod access_log;
mod basic_auth;
mod client;
mod compress;
mod development;
mod error_pages;
mod files;
mod fileserver;
mod headers;
mod limits;
mod listen;
pub(crate) mod middleware;
mod rate_limit;
mod rewrite;
mod routes;
mod sendfile;

use std::env;
use std::path::PathBuf;

use pronghorn_config::{Address, Era, Listen, Section, Size, Table};
use pronghorn_h1::FIELDS;
use pronghorn_proxy::UpstreamSettings;
use pronghorn_serve::{CLIENT_MEMORY, Http2Limits, ProxyProtocol, read_proxies};
use pronghorn_workers::settings::HttpPoolSettings;
use pronghorn_workers::{MAX_IO_THREADS, default_io_threads};

use crate::routes::is_token;

pub use crate::expression::Expression;
pub use access_log::{AccessLogSettings, LogFormat, LogPiece, Part, Placeholder};
pub use basic_auth::BasicAuthSettings;
pub use client::{Believed, ClientSettings, Trusted};
pub use compress::CompressSettings;
pub use development::{DevelopmentSettings, Editor};
pub use error_pages::{ErrorPagesSettings, StatusPages};
pub use files::{
    Extension, Kind, MOST_ROOTS, Page, RootKeys, StaticSettings, read_roots, read_tag,
};
pub use fileserver::FileServerSettings;
pub use headers::{CorsSettings, FieldRules, HeadersSettings, OriginPattern};
pub use limits::{Forms, Timeouts};
pub use listen::{
    HSTS_AGE, HstsSettings, Http3Settings, ListenSettings, Mode, SOCKET_MODE, SslSettings,
    UnixSocketSettings,
};
pub use pronghorn_workers::DEFAULT_POOL;
pub use rate_limit::{Rate, RateKey, RateLimitSettings, Refusal};
#[cfg(test)]
pub(crate) use rewrite::rule as rewrite_rule;
pub use rewrite::{MOST_RULES, RewriteRule, Target, TargetPiece};
pub use routes::{MOST_POOLS, MOST_ROUTES, RouteSettings};
pub use sendfile::SendfileSettings;

/// As RoadRunner's: uploads of a drop-in must pass. Bodies are spooled to disk, not held.
pub const MAX_REQUEST_SIZE: Size = Size::megabytes(1000);

/// As RoadRunner's.
pub const INTERNAL_ERROR_CODE: u16 = 500;

/// The HTTP side.
#[derive(Clone, Debug)]
pub struct HttpSettings {
    /// None: no plain listener.
    pub address: Option<Listen>,
    /// Its file, if it is a unix socket.
    pub unix_socket: UnixSocketSettings,
    /// Its clients come by load balancers that tell who they are.
    pub proxies: Option<ProxyProtocol>,
    /// More listeners.
    pub listen: Vec<ListenSettings>,
    pub ssl: Option<SslSettings>,
    pub http2: Http2Limits,
    /// None: it is not spoken.
    pub http3: Option<Http3Settings>,
    /// I/O threads, from 1 to [`MAX_IO_THREADS`].
    pub threads: usize,
    /// The status when PHP fails, from 400 to 599.
    pub internal_error_code: u16,
    /// More fields in the record of each request.
    pub access_logs: bool,
    /// Responses of PHP say what their time was spent on.
    pub server_timing: bool,
    /// A larger body is answered 413.
    pub max_request_size: Size,
    /// Forms reach PHP unparsed.
    pub raw_body: bool,
    /// The first is the innermost.
    pub middleware: Vec<String>,
    /// Of the middleware `headers`.
    pub headers: Option<HeadersSettings>,
    /// Files that PHP names for the server to send.
    pub sendfile: SendfileSettings,
    /// Shorter bodies.
    pub compress: CompressSettings,
    /// Files without PHP.
    pub files: Option<StaticSettings>,
    /// Files in forms.
    pub uploads: Uploads,
    /// One line for each request, when there is a section for it.
    pub access_log: Option<AccessLogSettings>,
    /// A number for each request, when there is a section for it.
    pub request_id: Option<RequestIdSettings>,
    /// Of the middleware `rate_limit`.
    pub rate_limit: Option<RateLimitSettings>,
    /// Of the middleware `rate_limiter`.
    pub rate_limiter: Option<RateLimitSettings>,
    /// Of the middleware `rewrite`.
    pub rewrite: Vec<RewriteRule>,
    /// Of the middleware `error_pages`.
    pub error_pages: Option<ErrorPagesSettings>,
    /// How long a client may take.
    pub timeouts: Timeouts,
    /// Limits of forms.
    pub forms: Forms,
    /// Connections in all; None is as many as there are descriptors for.
    pub max_connections: Option<usize>,
    /// Fields of a request's head.
    pub max_header_fields: usize,
    /// What clients may make the server hold in all.
    pub client_memory: Size,
    /// Connections of one address, and requests of one that a proxy tells of.
    pub max_per_address: Option<u32>,
    /// Whose word about clients is taken, and on what.
    pub client: ClientSettings,
    /// What development mode does in a browser.
    pub development: DevelopmentSettings,
    /// Directory for large request bodies while they arrive.
    pub spool_dir: PathBuf,
    /// The default pool.
    pub pool: HttpPoolSettings,
    /// More pools by name, in the order of the file.
    pub pools: Vec<(String, HttpPoolSettings)>,
    /// Other servers that answer requests, by name, in the order of the file.
    pub upstreams: Vec<(String, UpstreamSettings)>,
    /// First match wins; what matches none goes to the default pool.
    pub routes: Vec<RouteSettings>,
}

/// A number for each request.
#[derive(Clone, Debug)]
pub struct RequestIdSettings {
    /// As it is sent back.
    pub header: String,
    /// A client's own number counts.
    pub from_client: bool,
}

/// Files in forms.
#[derive(Clone, Debug)]
pub struct Uploads {
    /// Where they are put.
    pub dir: PathBuf,
    /// Endings that are refused, in lower case with their dot.
    pub forbid: Vec<String>,
    /// The only file extensions that are accepted; empty accepts all.
    pub allow: Vec<String>,
}

impl Section for HttpSettings {
    fn read(t: &mut Table<'_>) -> Self {
        let address = read_address(t);
        let uploads: Uploads = t.section("uploads", "Files that clients upload in forms.");
        let mut settings = Self {
            unix_socket: listen::read_unix_socket(t, address.as_ref()),
            proxies: read_proxies(t, matches!(address, Some(Listen::Unix(_)))),
            address,
            listen: listen::read_list(t),
            ssl: t.optional_section(
                "ssl",
                "TLS. Without this section, the server does not offer TLS.",
            ),
            http2: t.section_with(
                "http2",
                "HTTP/2. It is always on for TLS.",
                listen::read_http2,
            ),
            http3: listen::read_http3(t),
            threads: read_threads(t),
            internal_error_code: read_internal_error_code(t),
            access_logs: t
                .key(
                    "access_logs",
                    "Adds more details to the log record of each request.",
                )
                .live()
                .default(false),
            server_timing: read_server_timing(t),
            max_request_size: t
                .key(
                    "max_request_size",
                    "The largest request body. A request with a larger one is answered 413.",
                )
                .live()
                .zero_is_default()
                .default(MAX_REQUEST_SIZE),
            raw_body: t
                .key("raw_body", "Whether PHP gets forms unparsed.")
                .live()
                .default(false),
            middleware: read_middleware(t),
            headers: t.optional_section(
                "headers",
                "Header fields that the server sets. Used by the middleware `headers`.",
            ),
            sendfile: t.section(
                "sendfile",
                "Files that the server sends for PHP: a response names them in `X-Sendfile` or \
                 `X-Accel-Redirect`. Used by the middleware `sendfile`.",
            ),
            compress: t.section(
                "compress",
                "Compression of responses and decompression of requests. Used by the middlewares \
                 `compress`, `gzip` and `zstd`.",
            ),
            files: t.optional_section(
                "static",
                "Static files, served without PHP. Used by the middleware `static`.",
            ),
            access_log: t.optional_section(
                "access_log",
                "An access log for log analysers: one line for each request, whether PHP, a file \
                 or the server itself answers it.",
            ),
            request_id: t.optional_section(
                "request_id",
                "An ID for each request. It is in the response and in log records. PHP gets it as \
                 a header and as the attribute `request_id`.",
            ),
            rate_limit: read_rate_limit(t),
            rate_limiter: read_rate_limiter(t),
            rewrite: rewrite::read(t),
            error_pages: t.optional_section(
                "error_pages",
                "Pages that replace the server's own short error texts. Clients that ask for JSON \
                 get JSON. Used by the middleware `error_pages`.",
            ),
            timeouts: t.section(
                "timeouts",
                "Time limits for clients. A connection that exceeds one is closed.",
            ),
            forms: t.section("forms", "Limits for forms."),
            max_connections: read_max_connections(t),
            max_header_fields: read_max_header_fields(t),
            client_memory: read_client_memory(t),
            max_per_address: read_max_per_address(t),
            client: ClientSettings::read(t),
            development: read_development(t),
            spool_dir: read_spool_dir(t, &uploads),
            uploads,
            pool: t.section(
                "pool",
                "The default pool of workers. Its name is `default`.",
            ),
            pools: routes::read_pools(t),
            upstreams: routes::read_upstreams(t),
            routes: Vec::new(),
        };
        if t.era() == Era::V3 {
            settings.middleware.reverse();
        }
        settings.routes =
            routes::read_routes(t, &settings.pool, &settings.pools, &settings.upstreams);
        check(t, &settings);
        not_yet(t);
        settings
    }
}

/// Looks for keys that contradict each other.
fn check(t: &mut Table<'_>, settings: &HttpSettings) {
    listen::check(t, settings);
    routes::check_use(t, settings);
    check_middleware(t, &settings.middleware);
    check_codings(t, &settings.middleware);
    settings.client.check(t, &settings.middleware);
    check_files(t, settings);
}

/// None where it only listens by other keys.
fn read_address(t: &mut Table<'_>) -> Option<Listen> {
    let elsewhere = t.is_written("listen") || t.is_written("ssl");
    let address = t.key(
        "address",
        "The address for HTTP. If only `listen` or `ssl` is set, the server listens only there.",
    );
    if elsewhere {
        address.optional()
    } else {
        Some(address.default(default_address()))
    }
}

fn read_threads(t: &mut Table<'_>) -> usize {
    t.key("threads", "Number of I/O threads.")
        .ours()
        .range(1..=MAX_IO_THREADS)
        .default_as(
            default_io_threads(),
            "1 below four CPUs, else a quarter of them",
        )
}

fn read_internal_error_code(t: &mut Table<'_>) -> u16 {
    t.key(
        "internal_error_code",
        "The status of the response if PHP fails.",
    )
    .live()
    .zero_is_default()
    .range(400..=599)
    .default(INTERNAL_ERROR_CODE)
}

/// As they are written.
fn read_middleware(t: &mut Table<'_>) -> Vec<String> {
    t.key(
        "middleware",
        "Middlewares that requests pass on their way to PHP. The last one listed sees a request \
         first; with `compat: 3`, the first one listed does.",
    )
    .live()
    .default(Vec::new())
}

fn read_rate_limit(t: &mut Table<'_>) -> Option<RateLimitSettings> {
    t.optional_section_with(
        "rate_limit",
        "Limit for the requests of each client. Used by the middleware `rate_limit`.",
        RateLimitSettings::read,
    )
    .flatten()
}

fn read_rate_limiter(t: &mut Table<'_>) -> Option<RateLimitSettings> {
    t.optional_section_with(
        "rate_limiter",
        "The same limit with RoadRunner 3's keys and responses. Used by the middleware \
         `rate_limiter`.",
        RateLimitSettings::read_limiter,
    )
    .flatten()
}

fn read_spool_dir(t: &mut Table<'_>, uploads: &Uploads) -> PathBuf {
    t.key(
        "spool_dir",
        "The directory for large request bodies while they arrive.",
    )
    .ours()
    .default_as(uploads.dir.clone(), "`uploads.dir`")
}

fn read_server_timing(t: &mut Table<'_>) -> bool {
    t.key(
        "server_timing",
        "Adds the header `Server-Timing` to PHP's responses. It shows how long the request waited \
         for a worker and how PHP spent its time. In development mode, it is always added.",
    )
    .ours()
    .live()
    .default(false)
}

fn read_development(t: &mut Table<'_>) -> DevelopmentSettings {
    t.section(
        "development",
        "Features of [development mode](command-line.md#serve) in a browser.",
    )
}

fn read_max_connections(t: &mut Table<'_>) -> Option<usize> {
    t.key(
        "max_connections",
        "How many connections may be open at a time. At the limit, a new connection replaces the \
         one that has been idle for the longest time. If all connections have a request, the new \
         one is closed. By default, the limit is the process's limit of open files, minus what the \
         rest of the server needs.",
    )
    .ours()
    .range(1..=10_000_000)
    .optional()
}

fn read_max_header_fields(t: &mut Table<'_>) -> usize {
    t.key(
        "max_header_fields",
        "How many header fields a request may have. A request with more is answered 431. A cookie \
         that is split into parts, as in HTTP/2, counts as one field.",
    )
    .ours()
    .range(20..=2000)
    .default(FIELDS)
}

/// Nobody else reaches it before somebody has decided who may.
fn default_address() -> Listen {
    Listen::Tcp(Address {
        host: Some("127.0.0.1".to_owned()),
        port: 8080,
    })
}

fn read_client_memory(t: &mut Table<'_>) -> Size {
    t.key(
        "client_memory",
        "How much memory all clients together may use in the server. The limit counts request \
         bodies that are still arriving, responses that clients have not yet read, compression, \
         and open HTTP/2 streams, but not small requests. Above three quarters of it, bodies go to \
         files earlier and responses are not compressed. Above the limit, the server takes the \
         address that uses the most memory, and closes that address's largest connection.",
    )
    .ours()
    .range(Size::megabytes(16)..=Size::megabytes(1000 << 10))
    .default(Size::megabytes(CLIENT_MEMORY as u64 >> 20))
}

fn read_max_per_address(t: &mut Table<'_>) -> Option<u32> {
    t.key(
        "max_per_address",
        "How many connections one address may have at a time. For IPv6, an address is a /64 \
         network. Connections of trusted proxies are not counted. Instead, their requests count \
         for the client's address.",
    )
    .live()
    .ours()
    .range(0..=1_000_000)
    .limit()
}

impl Section for RequestIdSettings {
    fn read(t: &mut Table<'_>) -> Self {
        t.ours();
        t.live();
        let header = t
            .key(
                "header",
                "The header field with the ID, in requests and responses.",
            )
            .default("X-Request-Id".to_owned());
        if header.is_empty() || !header.bytes().all(is_token) || header.contains('_') {
            let hint = "letters, digits and `-` make a name";
            t.error("header", "is no field's name", hint);
        }
        Self {
            header,
            from_client: t
                .key(
                    "from_client",
                    "Whether to keep an ID that the client sends. A valid ID has at most 128 \
                     letters, digits and `-_.:`; any other is replaced.",
                )
                .default(true),
        }
    }
}

impl Section for Uploads {
    fn read(t: &mut Table<'_>) -> Self {
        let mut endings = |name, sentence| -> Vec<String> {
            let list: Vec<Extension> = t.key(name, sentence).live().default(Vec::new());
            list.into_iter().map(|it| it.0).collect()
        };
        Self {
            forbid: endings(
                "forbid",
                "Files with these extensions are refused, such as `.php`.",
            ),
            allow: endings(
                "allow",
                "Only files with these extensions are accepted. An empty list accepts all.",
            ),
            dir: t
                .key("dir", "The directory for uploaded files.")
                .default_as(
                    env::temp_dir(),
                    "the system's directory for temporary files",
                ),
        }
    }
}

fn is_in_list(listed: &[String], name: &str) -> bool {
    listed
        .iter()
        .any(|listed| listed.eq_ignore_ascii_case(name))
}

fn check_middleware(t: &mut Table<'_>, listed: &[String]) {
    let is_in = |names: &[&str], name: &str| names.iter().any(|n| n.eq_ignore_ascii_case(name));
    let known: Vec<&str> = middleware::names().collect();
    let (mut later, mut unknown) = (Vec::new(), Vec::new());
    for name in listed {
        if is_in(middleware::LATER, name) {
            later.push(format!("`{name}`"));
        } else if !is_in(&known, name) {
            unknown.push(format!("`{name}`"));
        }
    }
    if !later.is_empty() {
        let message = format!("names what is not there yet: {}", later.join(", "));
        t.value_not_yet("middleware", &message);
    }
    if !unknown.is_empty() {
        let message = format!("names unknown middleware: {}", unknown.join(", "));
        let hint = format!("known: {}", [&known, middleware::LATER].concat().join(", "));
        t.unknown("middleware", &message, &hint);
    }
    for name in known {
        let times = listed
            .iter()
            .filter(|l| l.eq_ignore_ascii_case(name))
            .count();
        if times > 1 {
            let message = format!("names `{name}` {times} times");
            t.warn("middleware", &message, "its first place counts");
        }
        let by_another =
            name == "compress" && (is_in_list(listed, "gzip") || is_in_list(listed, "zstd"));
        if times == 0 && !by_another && t.is_written(name) {
            let hint = format!("`http.middleware` does not list `{name}`");
            t.warn(name, "is not used", &hint);
        }
    }
}

/// The first one listed is the innermost here: what another one answers or makes outside of a
/// coding never passes that.
fn check_codings(t: &mut Table<'_>, listed: &[String]) {
    let place = |name: &str| listed.iter().position(|l| l.eq_ignore_ascii_case(name));
    for coding in ["compress", "gzip", "zstd"] {
        for files in ["static", "sendfile"] {
            if place(coding) < place(files) && place(coding).is_some() {
                let message =
                    format!("lists `{coding}` where it does not reach the files of `{files}`");
                let side = if t.era() == Era::V3 {
                    "behind"
                } else {
                    "before"
                };
                let hint = format!(
                    "`{files}` stands between it and the client: list `{files}` {side} `{coding}`"
                );
                t.warn("middleware", &message, &hint);
            }
        }
    }
}

fn check_files(t: &mut Table<'_>, settings: &HttpSettings) {
    if settings.files.is_none() && is_in_list(&settings.middleware, "static") {
        t.error(
            "middleware",
            "lists `static`, and there is no section for it",
            "for example `static: {dir: public}` beside it",
        );
    }
}

/// What later work brings; each line moves up into a key of its own then.
fn not_yet(t: &mut Table<'_>) {
    t.not_yet("fcgi", "a FastCGI listener");
    t.not_yet("cache", "a cache of replies");
    t.not_yet("new_relic", "New Relic");
    t.no_effect(
        "otel",
        "RoadRunner 2 had it here: write a section `otel` beside `http`",
    );
}
