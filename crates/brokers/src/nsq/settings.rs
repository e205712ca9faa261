//! `nsq`: where nsqd is, and what a pipeline says of its place there, in RoadRunner 3's shape.

use std::collections::BTreeMap;
use std::time::Duration;

use pronghorn_config::Table;

use crate::kind::text_of;
use crate::tls::{self, BrokerTls};

/// As RoadRunner's.
const NSQ: &str = "127.0.0.1:4150";
const CHANNEL: &str = "default";
const DIAL_TIMEOUT: Duration = Duration::from_secs(1);
/// The defaults are those of NSQ's own client, whose names RoadRunner's keys have.
const READ_TIMEOUT: Duration = Duration::from_secs(60);
const WRITE_TIMEOUT: Duration = Duration::from_secs(1);
const TIMEOUTS: std::ops::RangeInclusive<Duration> =
    Duration::from_millis(100)..=Duration::from_mins(5);
/// As RoadRunner's.
const POLL_INTERVAL: Duration = Duration::from_secs(60);
const POLL_RANGE: std::ops::RangeInclusive<Duration> =
    Duration::from_secs(1)..=Duration::from_hours(1);
/// Nsqd has its HTTP there when nobody says otherwise.
#[cfg(feature = "nsq")]
const HTTP_PORT: u16 = 4151;

/// One nsqd.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NsqServer {
    pub(crate) address: String,
    pub(crate) http_address: Option<String>,
    pub(crate) dial_timeout: Duration,
    pub(crate) read_timeout: Duration,
    pub(crate) write_timeout: Duration,
    /// None: the section is not written, and nothing is encrypted.
    pub(crate) tls: Option<BrokerTls>,
    /// The servers that know where the topics are; none: `address` has them.
    pub(crate) lookupd: Vec<String>,
    pub(crate) lookupd_poll_interval: Duration,
}

#[cfg(feature = "nsq")]
impl NsqServer {
    pub(crate) fn place(&self) -> &str {
        place(&self.address)
    }

    /// The address where it counts its jobs.
    pub(crate) fn http_place(&self) -> String {
        if let Some(address) = &self.http_address {
            return place(address).to_owned();
        }
        let host = self.place().rsplit_once(':').map_or("", |(host, _)| host);
        format!("{host}:{HTTP_PORT}")
    }
}

fn place(address: &str) -> &str {
    address.strip_prefix("tcp://").unwrap_or(address)
}

/// The settings of a pipeline's place in nsqd.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NsqPipeline {
    pub(crate) server: NsqServer,
    pub(crate) topic: String,
    pub(crate) channel: String,
}

/// The section `nsq`.
pub(super) fn server(t: &mut Table<'_>) -> NsqServer {
    let sentence = "The nsqd for pipelines with `driver: nsq`.";
    t.section_with("nsq", sentence, |t| {
        let address = t
            .key("addr", "The address of nsqd for clients.")
            .default(NSQ.to_owned());
        check_place(t, "addr", &address, NSQ);
        let sentence = "The HTTP address of nsqd, which is used to count jobs. By default, port \
                        4151 on the host of `addr`.";
        let http_address: Option<String> = t.key("http_addr", sentence).ours().optional();
        if let Some(address) = &http_address {
            check_place(t, "http_addr", address, "127.0.0.1:4151");
        }
        let sentence = "The HTTP addresses of all nsqlookupd, as `host:port`. Jobs are also taken \
                        from each nsqd that they list.";
        let lookupd: Vec<String> = t.key("lookupd", sentence).default(Vec::new());
        for address in &lookupd {
            check_place(t, "lookupd", address, "127.0.0.1:4161");
        }
        let lookupd_poll_interval = t
            .key(
                "lookupd_poll_interval",
                "How often the server asks nsqlookupd.",
            )
            .zero_is_default()
            .range(POLL_RANGE)
            .default(POLL_INTERVAL);
        let is_encrypted = t.is_written("tls");
        let tls = tls::read(t);
        let mut timeout = |name, sentence, default| {
            t.key(name, sentence)
                .zero_is_default()
                .range(TIMEOUTS)
                .default(default)
        };
        NsqServer {
            dial_timeout: timeout("dial_timeout", "Time limit for connecting.", DIAL_TIMEOUT),
            read_timeout: timeout("read_timeout", "Time limit for an answer.", READ_TIMEOUT),
            write_timeout: timeout(
                "write_timeout",
                "Time limit for sending a command.",
                WRITE_TIMEOUT,
            ),
            tls: is_encrypted.then_some(tls),
            lookupd,
            lookupd_poll_interval,
            address,
            http_address,
        }
    })
}

fn check_place(t: &mut Table<'_>, key: &str, address: &str, example: &str) {
    let parts = place(address).rsplit_once(':');
    let holds = |(host, port): (&str, &str)| !host.is_empty() && port.parse::<u16>().is_ok();
    if !parts.is_some_and(holds) {
        let message = "is no address; accepted: `host:port`";
        t.error(key, message, &format!("for example `{example}`"));
    }
}

/// The keys of a pipeline's `config`.
pub(crate) fn read(
    t: &mut Table<'_>,
    server: &NsqServer,
    pipeline: &str,
    topic: Option<String>,
) -> NsqPipeline {
    t.no_effect(
        "max_attempts",
        "`retry` of the pipeline says how often a job is tried",
    );
    let topic = topic.unwrap_or_else(|| pipeline.to_owned());
    let channel = t
        .key(
            "channel",
            "The channel that jobs are taken from. Each channel gets all jobs.",
        )
        .default(CHANNEL.to_owned());
    // The page of the keys has no name of a pipeline.
    if pipeline != "<name>" && !is_name(&topic) {
        t.error("topic", WRONG_NAME, "write `topic` with such a name");
    }
    if !is_name(&channel) {
        t.error("channel", WRONG_NAME, "write letters and digits");
    }
    NsqPipeline {
        server: server.clone(),
        topic,
        channel,
    }
}

const WRONG_NAME: &str = "is no name for nsqd: it takes 1 to 64 letters, digits, `.`, `_` and `-`";

impl NsqPipeline {
    /// Reads a pipeline that PHP declares.
    pub(crate) fn declared(
        map: &BTreeMap<String, String>,
        server: &NsqServer,
        pipeline: &str,
    ) -> Result<Self, String> {
        let text = |key: &str| text_of(map, key);
        let topic = text("topic").unwrap_or_else(|| pipeline.to_owned());
        let channel = text("channel").unwrap_or_else(|| CHANNEL.to_owned());
        for name in [&topic, &channel] {
            if !is_name(name) {
                return Err(format!("`{name}` {WRONG_NAME}"));
            }
        }
        Ok(Self {
            server: server.clone(),
            topic,
            channel,
        })
    }
}

/// A name says at its end that it is ephemeral.
fn is_name(name: &str) -> bool {
    let plain = name.strip_suffix("#ephemeral").unwrap_or(name);
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    (1..=64).contains(&name.len()) && !plain.is_empty() && plain.bytes().all(is_plain)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::of_nothing;

    #[test]
    fn names_that_nsqd_does_not_take_are_refused() {
        for name in ["", "a b", "ä", "#ephemeral", "a#b", &"n".repeat(65)] {
            assert!(!is_name(name), "{name:?}");
        }
        for name in ["a", "orders.mail-1_x", "a#ephemeral", &"n".repeat(64)] {
            assert!(is_name(name), "{name:?}");
        }
        let refused = NsqPipeline::declared(&BTreeMap::new(), &of_nothing(server), "a b");
        assert_eq!(refused.unwrap_err(), format!("`a b` {WRONG_NAME}"));
    }

    #[test]
    fn jobs_are_counted_on_the_same_host() {
        let mut server = of_nothing(server);
        server.address = "tcp://nsq.local:1".to_owned();
        assert_eq!(server.place(), "nsq.local:1");
        assert_eq!(server.http_place(), "nsq.local:4151");
        server.http_address = Some("[::1]:2".to_owned());
        assert_eq!(server.http_place(), "[::1]:2");
    }
}
