//! Where brokers are: the sections beside `jobs`, and what a pipeline says of its place in a
//! broker.

pub(crate) mod amqp;
pub(crate) mod kafka;
pub(crate) mod nats;
pub(crate) mod nsq;
pub(crate) mod pub_sub;
pub(crate) mod sqs;
mod tls;

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use pronghorn_config::Table;

pub use amqp::{AmqpExchange, AmqpPipeline, AmqpQueue, AmqpServer};
pub use kafka::{
    KafkaAcks, KafkaCompression, KafkaPipeline, KafkaSasl, KafkaServer, KafkaStart, SaslMechanism,
};
pub use nats::{NatsPipeline, NatsServer};
pub use nsq::{NsqPipeline, NsqServer};
pub use pub_sub::{PubSubPipeline, PubSubServer};
pub use sqs::{SqsPipeline, SqsServer};
pub use tls::BrokerTls;

const REDIS: &str = "redis://127.0.0.1:6379";
const BEANSTALK: &str = "tcp://127.0.0.1:11300";

/// As RoadRunner's.
const BEANSTALK_TIMEOUT: Duration = Duration::from_secs(30);

/// So long a server may be silent before others have its jobs. It says every few seconds that it
/// lives, so this is only for one that was killed or is cut off.
const CLAIM_AFTER: Duration = Duration::from_secs(60);
const CLAIM_AFTER_RANGE: std::ops::RangeInclusive<Duration> =
    Duration::from_secs(10)..=Duration::from_hours(24);

/// The brokers of a configuration.
#[derive(Clone, Debug)]
pub struct Brokers {
    /// By name.
    pub amqp: Vec<(String, AmqpServer)>,
    pub beanstalk: BeanstalkServer,
    pub kafka: KafkaServer,
    pub nats: NatsServer,
    pub nsq: NsqServer,
    pub pub_sub: PubSubServer,
    pub sqs: SqsServer,
}

impl Brokers {
    /// `t` is the whole configuration.
    pub(crate) fn read(t: &mut Table<'_>) -> Self {
        let beanstalk = t.section_with(
            "beanstalk",
            "The beanstalkd of pipelines with `driver: beanstalk`.",
            |t| BeanstalkServer {
                address: address(t, BEANSTALK, &["tcp", "unix"]),
                timeout: t
                    .key("timeout", "What a connection and an answer may take.")
                    .zero_is_default()
                    .default(BEANSTALK_TIMEOUT),
            },
        );
        Self {
            amqp: amqp::servers(t),
            beanstalk,
            kafka: kafka::server(t),
            nats: nats::server(t),
            nsq: nsq::server(t),
            pub_sub: pub_sub::server(t),
            sqs: sqs::server(t),
        }
    }
}

/// A JSON object of plain values, as PHP declares one: its empty array is one as well.
fn object_of(json: &str) -> Option<BTreeMap<String, String>> {
    if json == "[]" {
        return Some(BTreeMap::new());
    }
    let map: BTreeMap<String, serde_json::Value> = serde_json::from_str(json).ok()?;
    let plain = |value| match value {
        serde_json::Value::String(text) => text,
        other => other.to_string(),
    };
    let plain = map.into_iter().map(|(name, value)| (name, plain(value)));
    Some(plain.collect())
}

/// Which Redis a pipeline is in, and where there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RedisPipeline {
    pub address: BrokerAddress,
    pub tls: BrokerTls,
    pub queue: String,
    pub claim_after: Duration,
}

impl RedisPipeline {
    /// As PHP declares it.
    pub(crate) fn declared(address: Option<String>, queue: String) -> Self {
        Self {
            address: BrokerAddress(address.unwrap_or_else(|| REDIS.to_owned())),
            tls: BrokerTls::default(),
            queue,
            claim_after: CLAIM_AFTER,
        }
    }

    /// What of a pipeline's `config` no other driver has.
    pub(crate) fn read(t: &mut Table<'_>, queue: String) -> Self {
        let schemes = &["redis", "rediss", "unix", "redis+unix"];
        Self {
            address: address(t, REDIS, schemes),
            tls: BrokerTls::read(t),
            queue,
            claim_after: t
                .key(
                    "claim_after",
                    "How long a server may be silent before its jobs go to the others.",
                )
                .ours()
                .range(CLAIM_AFTER_RANGE)
                .default(CLAIM_AFTER),
        }
    }
}

/// A beanstalkd.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BeanstalkServer {
    pub address: BrokerAddress,
    pub timeout: Duration,
}

/// What a pipeline says of its place in beanstalkd.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BeanstalkPipeline {
    pub server: BeanstalkServer,
    pub tube: String,
}

/// Its own names: 200 bytes of letters, digits and a few signs.
pub(crate) fn is_tube(name: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-+/;.$_()".contains(c);
    (1..=200).contains(&name.len()) && !name.starts_with('-') && name.chars().all(is_plain)
}

/// A URL, which may hold a password: it is shown without.
#[derive(Clone, PartialEq, Eq)]
pub struct BrokerAddress(String);

impl BrokerAddress {
    #[cfg(test)]
    pub(crate) const fn new(url: String) -> Self {
        Self(url)
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    fn scheme(&self) -> Option<&str> {
        self.0.split_once("://").map(|(scheme, _)| scheme)
    }

    /// Of each one of several.
    #[cfg(feature = "nats")]
    pub(crate) fn places(&self) -> String {
        let each = self.0.split(',').map(|one| Self(one.to_owned()));
        let each = each.map(|one| one.place().to_owned());
        each.collect::<Vec<_>>().join(", ")
    }

    /// Without what says who asks.
    pub(crate) fn place(&self) -> &str {
        let (_, rest) = self.0.split_once("://").unwrap_or(("", &self.0));
        let rest = rest.split(['?', '#']).next().unwrap_or_default();
        let rest = rest.rsplit_once('@').map_or(rest, |(_, place)| place);
        match rest.split_once('/') {
            Some((place, _)) if !place.is_empty() => place,
            _ => rest,
        }
    }
}

impl fmt::Debug for BrokerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.place())
    }
}

fn address(t: &mut Table<'_>, default: &str, schemes: &[&str]) -> BrokerAddress {
    address_or(t, default, schemes, None)
}

/// `scheme` is meant where none is written.
fn address_or(
    t: &mut Table<'_>,
    default: &str,
    schemes: &[&str],
    scheme: Option<&str>,
) -> BrokerAddress {
    let address = t
        .key(
            "addr",
            "Its address, with the name and the password if it asks for them.",
        )
        .default(default.to_owned());
    let address = match scheme {
        Some(scheme) if !address.contains("://") => format!("{scheme}://{address}"),
        _ => address,
    };
    let address = BrokerAddress(address);
    let scheme = address.scheme();
    if !scheme.is_some_and(|scheme| schemes.contains(&scheme)) || address.place().is_empty() {
        let all = schemes.join("://`, `");
        let message = format!("is no address of a broker; accepted: what begins with `{all}://`");
        t.error("addr", &message, &format!("for example `{default}`"));
    }
    address
}

#[cfg(test)]
pub(crate) mod tests {
    use pronghorn_config::{Input, Severity, load};

    use super::*;

    /// Those of a configuration that says nothing.
    pub(crate) fn brokers() -> Brokers {
        let nothing = load(&Input::from_text("p.yaml", ""));
        let resolved = nothing.resolve_with(Severity::Error, Brokers::read);
        resolved.settings().clone()
    }

    #[test]
    fn an_empty_array_of_php_is_an_object_without_values() {
        let declared = |headers: &str| {
            let map = [("queue_headers".to_owned(), headers.to_owned())];
            let read = AmqpPipeline::declared(&map.into(), "p", &brokers())?;
            Ok::<_, String>(read.queue.headers)
        };
        assert_eq!(declared("[]"), Ok(BTreeMap::new()));
        let headers = declared(r#"{"x-queue-type":"quorum","x-max-length":5}"#).unwrap();
        assert_eq!(headers["x-queue-type"], "quorum");
        assert_eq!(headers["x-max-length"], "5");
        let refused = declared("[1]").unwrap_err();
        assert_eq!(refused, "`queue_headers` is no JSON object of values");
    }

    #[test]
    fn an_address_is_shown_without_who_asks() {
        for (url, place) in [
            ("redis://127.0.0.1:6379", "127.0.0.1:6379"),
            ("redis://user:pass@host:1/2", "host:1"),
            ("redis://:p@ss/word@host:1/2?a=b", "host:1"),
            ("amqp://guest:guest@127.0.0.1:5672/", "127.0.0.1:5672"),
            ("unix:///run/redis.sock?db=2&pass=secret", "/run/redis.sock"),
        ] {
            let address = BrokerAddress::new(url.to_owned());
            assert_eq!(address.place(), place, "{url}");
            assert_eq!(format!("{address:?}"), place);
        }
        let several = "nats://u:a@one:1,nats://u:b@two:2,three:3".to_owned();
        assert_eq!(
            BrokerAddress::new(several).places(),
            "one:1, two:2, three:3"
        );
    }
}
