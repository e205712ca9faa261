//! The section `tcp`, typed.

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use pronghorn_config::{Choice, Listen, Node, Section, Setting, Shown, Size, Table, Wrong};
use pronghorn_serve::{CertifiedClients, Pair, ProxyProtocol, read_pair, read_proxies};
use pronghorn_workers::settings::PoolSettings;

use crate::framing::{ByteOrder, Framing, LengthField};

/// As RoadRunner's.
const DELIMITER: &str = "\r\n";
const READ_BUFFER: Size = Size::megabytes(1);

/// RoadRunner has no limit. A long mail fits, and a call takes four times as much.
const MAX_MESSAGE: Size = Size::megabytes(16);
/// A call carries at most 64 MB.
const LONGEST_MESSAGE: Size = Size::megabytes(60);

/// Beside what workers take it is little, as for `http`.
const CLIENT_MEMORY: Size = Size::megabytes(256);

/// As the other services have it for a client that takes nothing.
const WRITE_TIMEOUT: Duration = Duration::from_mins(1);
const WAIT: RangeInclusive<Duration> = Duration::from_millis(10)..=Duration::from_hours(24);

/// Devices hold their connections for days; a deploy waits for nobody so long.
const HANDOVER: Duration = Duration::from_mins(1);
const LONGEST_HANDOVER: Duration = Duration::from_hours(24);

/// Each server has listening sockets of its own.
const MOST_SERVERS: usize = 100;
/// More take memory that is not expected, also where the limit of open files is high.
pub(crate) const CONNECTIONS: usize = 10_000;
const MOST_CONNECTIONS: usize = 1_000_000;
/// Each is read at the start and looked at every few seconds.
const MOST_CERTIFICATES: usize = 1000;

/// TCP servers, and the workers that answer.
#[derive(Clone, Debug)]
pub struct TcpSettings {
    pub servers: Vec<(String, ServerSettings)>,
    pub pool: PoolSettings,
    /// How long connections go on in a process that has handed over.
    pub handover_timeout: Duration,
}

/// One server.
#[derive(Clone, Debug)]
pub struct ServerSettings {
    /// None was wrong.
    pub listen: Option<Listen>,
    /// Connections that there may be, where there are descriptors for them.
    pub max_connections: usize,
    /// Memory that clients may make the server hold.
    pub client_memory: u64,
    pub max_per_address: Option<u32>,
    /// The certificates of a server whose clients must speak TLS.
    pub tls: Option<TlsSettings>,
    /// Its clients come by load balancers that tell who they are.
    pub proxies: Option<ProxyProtocol>,
    pub dialogue: Dialogue,
}

/// The section `ssl` of a server.
#[derive(Clone, Debug)]
pub struct TlsSettings {
    pub pairs: Vec<Pair>,
    pub clients: CertifiedClients,
}

/// The settings of one connection.
#[derive(Clone, Debug)]
pub struct Dialogue {
    pub framing: Framing,
    /// The most bytes that are one chunk when they arrive together.
    pub chunk: usize,
    pub max_message: usize,
    /// Sent to each client at once.
    pub banner: Bytes,
    /// Whether workers hear of a connection before its first message.
    pub asks_on_connect: bool,
    pub first_byte_timeout: Option<Duration>,
    pub idle_timeout: Option<Duration>,
    pub write_timeout: Duration,
    /// How long a message waits for a worker.
    pub patience: Duration,
    /// A connection has one worker.
    pub affinity: bool,
}

/// The answer to a client that connects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OnConnect {
    Worker,
    Continue,
}

impl Choice for OnConnect {
    const CHOICES: &'static [(&'static str, Self)] =
        &[("worker", Self::Worker), ("continue", Self::Continue)];
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FramingChoice {
    Chunk,
    Delimiter,
    Line,
    Length,
    None,
}

impl Choice for FramingChoice {
    const CHOICES: &'static [(&'static str, Self)] = &[
        ("chunk", Self::Chunk),
        ("delimiter", Self::Delimiter),
        ("line", Self::Line),
        ("length", Self::Length),
        ("none", Self::None),
    ];
}

impl Choice for ByteOrder {
    const CHOICES: &'static [(&'static str, Self)] =
        &[("big", Self::Big), ("little", Self::Little)];
}

/// `host:port`, with or without `tcp://` before it, or `unix://path`.
#[derive(Clone, Debug)]
struct At(Listen);

impl Setting for At {
    fn example() -> String {
        "tcp://127.0.0.1:7777".to_owned()
    }

    fn accepts() -> String {
        "`tcp://host:port`, `tcp://:port` for all addresses, or `unix:///path`".to_owned()
    }

    fn read(node: &Node) -> Result<Self, Vec<Wrong>> {
        Listen::read(node).map(Self)
    }

    fn show(&self) -> Shown {
        Shown::One(match &self.0 {
            Listen::Tcp(address) => format!("tcp://{address}"),
            at @ Listen::Unix(_) => at.to_string(),
        })
    }
}

impl Section for TcpSettings {
    fn read(t: &mut Table<'_>) -> Self {
        let read_buffer = t
            .key(
                "read_buf_size",
                "The largest chunk of data that arrives together. Memory is allocated only for \
                 data that has arrived.",
            )
            .zero_is_default()
            .range(READ_BUFFER..=Size::megabytes(100))
            .live()
            .default(READ_BUFFER);
        let servers = t.sections_with(
            "servers",
            "TCP servers by name. PHP gets the name of the server with each event.",
            "One server.",
            |t| ServerSettings::read(t, read_buffer),
        );
        if servers.is_empty() {
            let hint = "for example `servers: {mail: {addr: \"tcp://127.0.0.1:1025\"}}`";
            t.error("", "has no `servers`: nothing listens", hint);
        }
        if servers.len() > MOST_SERVERS {
            let message = format!(
                "has {} servers; accepted: at most {MOST_SERVERS}",
                servers.len()
            );
            t.error("servers", &message, "remove some of them");
        }
        check_addresses(t, &servers);
        let pool: PoolSettings = t.section("pool", "The workers that answer.");
        let servers = servers.into_iter().map(|(name, mut server)| {
            server.dialogue.patience = pool.common.queue_timeout;
            (name.to_lowercase(), server)
        });
        Self {
            servers: servers.collect(),
            pool,
            handover_timeout: t
                .key(
                    "handover_timeout",
                    "How long connections continue in the old process after an upgrade (SIGUSR2).",
                )
                .ours()
                .range(Duration::ZERO..=LONGEST_HANDOVER)
                .default(HANDOVER),
        }
    }
}

fn check_addresses(t: &mut Table<'_>, servers: &[(String, ServerSettings)]) {
    for (at, (name, server)) in servers.iter().enumerate() {
        let Some(listen) = &server.listen else {
            continue;
        };
        let others = servers[..at].iter();
        let same = others.filter_map(|(name, it)| Some((name, it.listen.as_ref()?)));
        if let Some((other, _)) = same.into_iter().find(|(_, it)| it.overlaps(listen)) {
            let message = format!("is `{listen}`, on which `{other}` listens already");
            t.error_below(&["servers", name, "addr"], &message, "give it another port");
        }
        let is_same_name = |it: &&(String, _)| it.0.eq_ignore_ascii_case(name);
        if let Some((other, _)) = servers[..at].iter().find(is_same_name) {
            let message = format!("is `{other}` in small letters, as PHP gets it");
            t.error_below(&["servers", name], &message, "give it another name");
        }
    }
}

impl ServerSettings {
    fn read(t: &mut Table<'_>, read_buffer: Size) -> Self {
        let listen: Option<At> = t
            .key("addr", "The address to listen on, or a unix socket.")
            .optional();
        if !t.has_value("addr") {
            let hint = "for example `addr: tcp://127.0.0.1:7777`";
            t.error("", "has no `addr`", hint);
        }
        t.no_effect(
            "read_buf_size",
            "it is a key of `tcp`, for all servers, as in RoadRunner",
        );
        let framing = read_framing(t);
        let max_message = t
            .key(
                "max_message",
                "The longest message. A connection with a longer one is closed.",
            )
            .ours()
            .live()
            .range(Size::kilobytes(1)..=LONGEST_MESSAGE)
            .roadrunner(
                "none",
                "a client that never ends its message would take all memory",
            )
            .default(MAX_MESSAGE);
        let banner: String = t
            .key(
                "banner",
                "A text that each client gets as soon as it has connected. In double quotes, \
                 `\\r\\n` is the end of a line.",
            )
            .ours()
            .live()
            .default(String::new());
        let on_connect = t
            .key(
                "on_connect",
                "What happens when a client connects. `worker`: a worker is asked. `continue`: the \
                 server waits for the client's first message. By default `worker`, but `continue` \
                 with a `banner`.",
            )
            .ours()
            .live()
            .optional();
        warn_of_escapes(t, "banner", &banner);
        let by_default = if banner.is_empty() {
            OnConnect::Worker
        } else {
            OnConnect::Continue
        };
        let dialogue = Dialogue {
            framing,
            chunk: usize::try_from(read_buffer.bytes()).unwrap_or(usize::MAX),
            max_message: usize::try_from(max_message.bytes()).unwrap_or(usize::MAX),
            banner: banner.into(),
            asks_on_connect: on_connect.unwrap_or(by_default) == OnConnect::Worker,
            first_byte_timeout: t
                .key(
                    "first_byte_timeout",
                    "Time limit for the first byte of a client. A PROXY header must also arrive \
                     within this time.",
                )
                .ours()
                .live()
                .range(WAIT)
                .limit(),
            idle_timeout: t
                .key(
                    "idle_timeout",
                    "Time limit for the next byte of a client. It begins when the client's last \
                     message is answered, and with each byte of a message.",
                )
                .ours()
                .live()
                .range(WAIT)
                .limit(),
            write_timeout: t
                .key(
                    "write_timeout",
                    "Time limit for a client to read more of the data that are sent to it. After \
                     that time, the average must also be at least 1,000 bytes per second.",
                )
                .ours()
                .live()
                .range(WAIT)
                .default(WRITE_TIMEOUT),
            patience: Duration::ZERO, // the pool's is read later
            affinity: t
                .key(
                    "affinity",
                    "Whether all messages of a connection go to one worker, as long as that worker \
                     takes calls. The first message selects the worker with the fewest \
                     connections. Otherwise, each message goes to a free worker.",
                )
                .ours()
                .live()
                .default(false),
        };
        let is_unix = matches!(listen, Some(At(Listen::Unix(_))));
        let tls = t.optional_section_with(
            "ssl",
            "TLS. Without this section, clients use clear text.",
            TlsSettings::read,
        );
        if tls.is_some() && is_unix {
            t.error("ssl", "is for addresses, not for unix sockets", "remove it");
        }
        let proxies = read_proxies(t, is_unix);
        Self {
            listen: listen.map(|At(listen)| listen),
            max_connections: t
                .key(
                    "max_connections",
                    "How many connections may be open. At the limit, a new connection replaces a \
                     silent one of the address that has the most silent connections, at least two. \
                     If there is no such address, the new connection is closed. All servers \
                     together can have at most a quarter of the process's limit of open files.",
                )
                .ours()
                .range(1..=MOST_CONNECTIONS)
                .roadrunner(
                    "none",
                    "each connection takes a descriptor, which other parts of the server need, too",
                )
                .default(CONNECTIONS),
            client_memory: t
                .key(
                    "client_memory",
                    "How much memory clients may use with messages that have begun, and with data \
                     of `tcp.Write` that they do not read. Above the limit, the connection that \
                     uses the most is closed.",
                )
                .ours()
                .range(Size::megabytes(1)..=Size::megabytes(1 << 20))
                .default(CLIENT_MEMORY)
                .bytes(),
            max_per_address: t
                .key(
                    "max_per_address",
                    "How many connections one address may have. For IPv6, an address is a /64 \
                     network.",
                )
                .ours()
                .live()
                .limit(),
            tls,
            proxies,
            dialogue,
        }
    }
}

impl Section for TlsSettings {
    fn read(t: &mut Table<'_>) -> Self {
        t.ours();
        let clients = CertifiedClients::read(t, false);
        t.live();
        Self {
            pairs: read_pairs(t),
            clients,
        }
    }
}

fn read_pairs(t: &mut Table<'_>) -> Vec<Pair> {
    let own = read_own_pair(t);
    let more = t.section_list_with(
        "certificates",
        "More certificates. A client gets the certificate for the host name that it asks for.",
        "A certificate.",
        MOST_CERTIFICATES,
        read_own_pair,
    );
    let pairs: Vec<_> = own.into_iter().chain(more.into_iter().flatten()).collect();
    if pairs.is_empty() && !t.is_written("cert") && !t.is_written("key") {
        let hint = "for example `cert: fullchain.pem` and `key: privkey.pem`";
        t.error("", "has no certificate", hint);
    }
    pairs
}

fn read_own_pair(t: &mut Table<'_>) -> Option<Pair> {
    let certificate: Option<PathBuf> = t
        .key(
            "cert",
            "A PEM file with the certificate and, after it, the intermediate certificates.",
        )
        .optional();
    let key: Option<PathBuf> = t
        .key("key", "A PEM file with the certificate's private key.")
        .is_path()
        .optional();
    read_pair(t, certificate, key)
}

fn read_framing(t: &mut Table<'_>) -> Framing {
    let choice = t
        .key(
            "framing",
            "Where a message ends. `chunk`: when the data so far end with `delimiter`, as in \
             RoadRunner; one message may have several lines. `delimiter`: at each `delimiter`. \
             `line`: at each LF or CR LF, which is left out. `length`: after the number of bytes \
             in its length field. `none`: data that arrive together are a message.",
        )
        .ours()
        .live()
        .default(FramingChoice::Chunk);
    let has_delimiter = matches!(choice, FramingChoice::Chunk | FramingChoice::Delimiter);
    let message = "is of `framing: chunk` and `framing: delimiter`";
    let delimiter: Option<String> = t.keys_where(has_delimiter, message, "remove it", |t| {
        t.key(
            "delimiter",
            "The bytes at the end of a message, in double quotes: `\"\\r\\n\"`.",
        )
        .live()
        .default(DELIMITER.to_owned())
    });
    let delimiter = delimiter.unwrap_or_else(|| DELIMITER.to_owned());
    warn_of_escapes(t, "delimiter", &delimiter);
    let message = "is of `framing: length`";
    let is_length = choice == FramingChoice::Length;
    let length = t.keys_where(is_length, message, "remove it", |t| {
        t.section(
            "length",
            "The length field of a message, for `framing: length`.",
        )
    });
    let delimiter = delimiter.into_bytes();
    match choice {
        FramingChoice::Chunk => Framing::Chunk(delimiter),
        FramingChoice::Delimiter => Framing::Delimiter(delimiter),
        FramingChoice::Line => Framing::Line,
        FramingChoice::Length => Framing::Length(length.unwrap_or_default()),
        FramingChoice::None => Framing::None,
    }
}

/// Escapes of YAML that were read as they stand.
fn warn_of_escapes(t: &mut Table<'_>, key: &str, text: &str) {
    let escapes = ["\\r", "\\n", "\\t", "\\0", "\\x"];
    if !escapes.iter().any(|escape| text.contains(escape)) {
        return;
    }
    let hint = format!("YAML knows `\\r\\n` in double quotes alone: `{key}: \"{text}\"`");
    t.warn(key, "has a backslash in it", &hint);
}

impl Default for LengthField {
    fn default() -> Self {
        Self {
            offset: 0,
            bytes: 4,
            order: ByteOrder::Big,
            extra: 0,
        }
    }
}

impl Section for LengthField {
    fn read(t: &mut Table<'_>) -> Self {
        t.ours();
        t.live();
        let default = Self::default();
        let bytes = t
            .key(
                "bytes",
                "How many bytes the length field has: 1, 2, 4 or 8.",
            )
            .range(1..=8)
            .default(default.bytes);
        if ![1, 2, 4, 8].contains(&bytes) {
            let message = format!("is {bytes}; accepted: 1, 2, 4 or 8");
            t.error("bytes", &message, "for example `bytes: 4`");
        }
        Self {
            bytes,
            order: t
                .key(
                    "order",
                    "Which byte of the length field comes first: the most significant one (`big`), \
                     or the least significant one (`little`).",
                )
                .default(default.order),
            offset: t
                .key(
                    "offset",
                    "How many bytes of a message come before the length field.",
                )
                .range(0..=1024)
                .default(default.offset),
            extra: t
                .key(
                    "extra",
                    "How many bytes follow the length field that it does not count, such as those \
                     of a check sum. If it counts its own bytes, write them as a negative number: \
                     `-2`.",
                )
                .range(-1024..=1024)
                .default(default.extra),
        }
    }
}

#[cfg(test)]
mod tests {
    use pronghorn_config::{Input, Severity, load};

    use super::*;

    /// The settings of the section, or what is wrong.
    fn read(section: &str) -> Result<TcpSettings, String> {
        let text = format!("tcp:\n  pool: {{num_workers: 1}}\n{section}");
        let loaded = load(&Input::from_text("p.yaml", text.as_str()));
        let resolved = loaded.resolve_with(Severity::Error, |t| {
            t.optional_section::<TcpSettings>("tcp", "TCP.")
        });
        let report = resolved.report().to_string();
        if report.is_empty() {
            return Ok(resolved.settings().clone().expect("the section is written"));
        }
        Err(report)
    }

    fn server(keys: &str) -> Result<ServerSettings, String> {
        let settings = read(&format!("  servers: {{S1: {{addr: ':1', {keys}}}}}\n"))?;
        let (name, server) = settings.servers.into_iter().next().expect("one");
        assert_eq!(name, "s1", "PHP gets it in small letters");
        Ok(server)
    }

    #[test]
    fn roadrunners_defaults_hold() {
        let server = server("").unwrap();
        assert_eq!(server.dialogue.framing, Framing::Chunk(b"\r\n".to_vec()));
        assert!(server.dialogue.asks_on_connect);
        assert_eq!(server.dialogue.chunk, 1 << 20);
        assert_eq!(server.dialogue.idle_timeout, None);
    }

    #[test]
    fn each_framing_has_its_keys() {
        for (keys, framing) in [
            ("delimiter: \"--\"", Framing::Chunk(b"--".to_vec())),
            ("framing: delimiter", Framing::Delimiter(b"\r\n".to_vec())),
            ("framing: line", Framing::Line),
            ("framing: none", Framing::None),
            ("framing: length", Framing::Length(LengthField::default())),
            (
                "framing: length, length: {bytes: 2, order: little, offset: 3, extra: -5}",
                Framing::Length(LengthField {
                    offset: 3,
                    bytes: 2,
                    order: ByteOrder::Little,
                    extra: -5,
                }),
            ),
        ] {
            assert_eq!(server(keys).unwrap().dialogue.framing, framing, "{keys}");
        }
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (keys, said) in [
            ("framing: line, delimiter: x", "is of `framing: chunk`"),
            (
                "framing: length, length: {bytes: 3}",
                "accepted: 1, 2, 4 or 8",
            ),
            ("length: {bytes: 2}", "is of `framing: length`"),
            ("read_buf_size: 2", "it is a key of `tcp`"),
            ("delimiter: '\\r\\n'", "has a backslash"),
            (
                "banner: '220 hello\\r\\n'",
                "in double quotes alone: `banner: \"220 hello\\r\\n\"`",
            ),
            ("ssl: {}", "has no certificate"),
            ("ssl: {cert: a.pem}", "has no key"),
            ("proxy_protocol: {}", "nobody may connect"),
        ] {
            let report = server(keys).unwrap_err();
            assert!(report.contains(said), "{keys}: {report}");
        }
        for (section, said) in [
            ("  servers: {a: {}}\n", "has no `addr`"),
            ("  servers: {a: {addr: ''}}\n", "has no `addr`"),
            ("", "has no `servers`"),
            (
                "  servers: {a: {addr: ':1'}, b: {addr: ':1'}}\n",
                "`a` listens already",
            ),
            (
                "  servers: {a: {addr: ':1'}, A: {addr: ':2'}}\n",
                "in small letters",
            ),
        ] {
            let report = read(section).unwrap_err();
            assert!(report.contains(said), "{section}: {report}");
        }
    }

    #[test]
    fn a_banner_answers_for_workers_unless_they_are_wanted() {
        let asks = |keys: &str| server(keys).unwrap().dialogue.asks_on_connect;
        assert!(!asks("banner: \"220 hello\\r\\n\""));
        assert!(asks("banner: x, on_connect: worker"));
        assert!(!asks("on_connect: continue"));
    }
}
