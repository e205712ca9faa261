//! `kafka`: where the brokers are, and what a pipeline says of its topics there.

use std::collections::BTreeMap;
use std::fmt;

use pronghorn_config::{Choice, Table};
use serde::Deserialize;

use crate::tls::{self, BrokerTls};

/// All servers are of one, so that each job goes to one of them.
const GROUP: &str = "pronghorn";

/// The brokers of a cluster that are asked first, and who this server is there.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct KafkaServer {
    /// `host:port` each.
    pub(crate) brokers: Vec<String>,
    /// None: the section is not written, and nothing is encrypted.
    pub(crate) tls: Option<BrokerTls>,
    pub(crate) sasl: Option<KafkaSasl>,
}

/// A name and a password.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct KafkaSasl {
    pub(crate) mechanism: SaslMechanism,
    pub(crate) username: String,
    pub(crate) password: String,
}

impl fmt::Debug for KafkaSasl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KafkaSasl")
            .field("mechanism", &self.mechanism)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for KafkaServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KafkaServer")
            .field("brokers", &self.brokers)
            .finish_non_exhaustive()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SaslMechanism {
    Plain,
    ScramSha256,
    ScramSha512,
}

impl Choice for SaslMechanism {
    const CHOICES: &'static [(&'static str, Self)] = &[
        ("plain", Self::Plain),
        ("SCRAM-SHA-256", Self::ScramSha256),
        ("SCRAM-SHA-512", Self::ScramSha512),
    ];
}

/// The place where a group begins that has not been there before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub(crate) enum KafkaStart {
    AtStart,
    AtEnd,
}

impl Choice for KafkaStart {
    const CHOICES: &'static [(&'static str, Self)] =
        &[("AtStart", Self::AtStart), ("AtEnd", Self::AtEnd)];
}

/// The moment when a push is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub(crate) enum KafkaAcks {
    #[serde(rename = "AllISRAck")]
    All,
    #[serde(rename = "LeaderAck")]
    Leader,
    #[serde(rename = "NoAck")]
    None,
}

impl Choice for KafkaAcks {
    const CHOICES: &'static [(&'static str, Self)] = &[
        ("AllISRAck", Self::All),
        ("LeaderAck", Self::Leader),
        ("NoAck", Self::None),
    ];
}

/// How jobs are packed on their way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum KafkaCompression {
    #[default]
    None,
    Gzip,
    Snappy,
    Lz4,
}

impl Choice for KafkaCompression {
    const CHOICES: &'static [(&'static str, Self)] = &[
        ("none", Self::None),
        ("gzip", Self::Gzip),
        ("snappy", Self::Snappy),
        ("lz4", Self::Lz4),
    ];
}

/// The settings of a pipeline's place in Kafka.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KafkaPipeline {
    pub(crate) server: KafkaServer,
    /// Jobs are taken from all, and pushed to the first one.
    pub(crate) topics: Vec<String>,
    pub(crate) create_topics: bool,
    pub(crate) group: String,
    /// A server that comes back under this name has its partitions again.
    pub(crate) instance: Option<String>,
    pub(crate) start: KafkaStart,
    pub(crate) acks: KafkaAcks,
    pub(crate) compression: KafkaCompression,
}

/// The section `kafka`.
pub(super) fn server(t: &mut Table<'_>) -> KafkaServer {
    let sentence = "The Kafka cluster for pipelines with `driver: kafka`.";
    t.section_with("kafka", sentence, |t| {
        let brokers: Vec<String> = t
            .key(
                "brokers",
                "Required. Brokers that the server connects to first, as `host:port`. They tell it \
                 the others.",
            )
            .default(Vec::new());
        let is_place = |it: &String| {
            it.rsplit_once(':')
                .is_some_and(|(_, p)| p.parse::<u16>().is_ok())
        };
        if let Some(wrong) = brokers.iter().find(|it| !is_place(it)) {
            let message = format!("has `{wrong}`, which is no `host:port`");
            t.error("brokers", &message, "for example `127.0.0.1:9092`");
        }
        let is_encrypted = t.is_written("tls");
        let tls = tls::read(t);
        let sasl = t.section_with("sasl", "How this server authenticates (SASL).", |t| {
            for key in ["zid", "nonce", "is_token", "user_agent"] {
                t.no_effect(
                    key,
                    "the server authenticates with a user name and a password",
                );
            }
            for key in ["access_key", "secret_key", "session_token"] {
                t.not_yet(key, "credentials of AWS");
            }
            let mechanism = t
                .key("mechanism", "The SASL mechanism.")
                .default(SaslMechanism::Plain);
            let username: Option<String> = t.key("username", "The user name.").optional();
            let password: Option<String> = t.key("password", "The password.").optional();
            Some(KafkaSasl {
                mechanism,
                username: username?,
                password: password.unwrap_or_default(),
            })
        });
        t.no_effect(
            "ping",
            "the server reconnects to a broker that does not answer",
        );
        KafkaServer {
            brokers,
            tls: is_encrypted.then_some(tls),
            sasl,
        }
    })
}

/// The keys of a pipeline's `config`.
pub(crate) fn read(t: &mut Table<'_>, server: &KafkaServer, pipeline: &str) -> KafkaPipeline {
    let create_topics = t
        .key(
            "auto_create_topics_enable",
            "Whether to create topics that do not exist, with the brokers' default settings.",
        )
        .default(false);
    t.no_effect("sasl_options", "`kafka.sasl` has the credentials");
    let sentence = "Settings for pushing jobs.";
    let (acks, compression) = t.section_with("producer_options", sentence, |t| {
        for key in ["disable_idempotent", "max_message_bytes", "request_timeout"] {
            t.no_effect(key, "the Kafka client's own value applies");
        }
        for key in ["delivery_timeout", "transaction_timeout"] {
            t.no_effect(key, "`jobs.timeout` says how long a push may take");
        }
        t.no_effect(
            "partitioning_strategy",
            "jobs go to partitions by their IDs",
        );
        let acks = t
            .key(
                "required_acks",
                "Which brokers must have stored a job before its push is complete.",
            )
            .default(KafkaAcks::All);
        let compression = t
            .key("compression_codec", "The compression of jobs.")
            .default(KafkaCompression::None);
        (acks, compression)
    });
    let sentence = "Settings for taking jobs.";
    let (topics, start) = t.section_with("consumer_options", sentence, |t| {
        let topics: Vec<String> = t
            .key(
                "topics",
                "Topics that jobs are taken from. A job that is pushed without a topic goes to the \
                 first one. By default, the topic with the pipeline's name.",
            )
            .default(Vec::new());
        // A name that is no topic is a pattern then.
        let topics = if t.is_written("consume_regexp") {
            topics.into_iter().filter(|name| is_topic(name)).collect()
        } else {
            topics
        };
        t.not_yet("consume_regexp", "topics by a pattern");
        t.not_yet("consume_partitions", "partitions by number");
        for key in ["max_fetch_message_size", "min_fetch_message_size"] {
            t.no_effect(key, "jobs are fetched when workers are free");
        }
        let start = t.section_with(
            "consumer_offset",
            "Where a new consumer group begins.",
            |t| {
                t.no_effect("value", "a group begins at the start or at the end");
                t.key(
                    "type",
                    "`AtStart`: with the oldest job. `AtEnd`: only with jobs that are pushed from \
                     then on.",
                )
                .default(KafkaStart::AtStart)
            },
        );
        (topics, start)
    });
    let sentence = "The consumer group, which is all servers that share the jobs.";
    let (group, instance) = t.section_with("group_options", sentence, |t| {
        t.no_effect(
            "block_rebalance_on_poll",
            "the server learns when a partition moves",
        );
        let group = t
            .key(
                "group_id",
                "The name of the consumer group. Each group gets all jobs.",
            )
            .default(GROUP.to_owned());
        let instance: Option<String> = t
            .key(
                "instance_id",
                "The name of this server in its group. A server that reconnects with the same name \
                 gets the same partitions again.",
            )
            .optional();
        (group, instance)
    });
    let topics = if topics.is_empty() {
        vec![pipeline.to_owned()]
    } else {
        topics
    };
    // The page of the keys has no name of a pipeline.
    if pipeline != "<name>" {
        if let Some(wrong) = topics.iter().find(|name| !is_topic(name)) {
            let message = format!("has `{wrong}`, which {WRONG_TOPIC}");
            let hint = "write `topics` with such names";
            t.error("consumer_options", &message, hint);
        }
        if server.brokers.is_empty() {
            let message = "is for `driver: kafka`, and `kafka.brokers` names no broker";
            let hint = "add `kafka: {brokers: ['127.0.0.1:9092']}` to the file";
            t.error("", message, hint);
        }
    }
    KafkaPipeline {
        server: server.clone(),
        topics,
        create_topics,
        group,
        instance,
        start,
        acks,
        compression,
    }
}

const WRONG_TOPIC: &str = "is no topic: it has 1 to 249 letters, digits, `.`, `_` and `-`";

/// It holds for a topic that a push names, too.
pub(crate) fn is_topic(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    (1..=249).contains(&name.len()) && name != "." && name != ".." && name.bytes().all(is_plain)
}

/// The options as PHP declares them, in JSON.
#[derive(Default, Deserialize)]
#[serde(default)]
struct ConsumerOptions {
    topics: Vec<String>,
    consumer_offset: Option<ConsumerOffset>,
}

#[derive(Deserialize)]
struct ConsumerOffset {
    #[serde(rename = "type")]
    start: KafkaStart,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ProducerOptions {
    required_acks: Option<KafkaAcks>,
    compression_codec: Option<KafkaCompression>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct GroupOptions {
    group_id: Option<String>,
    instance_id: Option<String>,
}

impl KafkaPipeline {
    /// Reads a pipeline that PHP declares: parts of it are JSON.
    pub(crate) fn declared(
        map: &BTreeMap<String, String>,
        server: &KafkaServer,
        pipeline: &str,
    ) -> Result<Self, String> {
        fn part<T: Default + for<'de> Deserialize<'de>>(
            map: &BTreeMap<String, String>,
            key: &str,
        ) -> Result<T, String> {
            match map.get(key).map(String::as_str) {
                // An empty array of PHP.
                None | Some("" | "[]" | "null") => Ok(T::default()),
                Some(json) => serde_json::from_str(json)
                    .map_err(|error| format!("`{key}` can't be read: {error}")),
            }
        }
        let consumer: ConsumerOptions = part(map, "consumer_options")?;
        let producer: ProducerOptions = part(map, "producer_options")?;
        let group: GroupOptions = part(map, "group_options")?;
        let mut topics = consumer.topics;
        if topics.is_empty() {
            topics.push(pipeline.to_owned());
        }
        if let Some(wrong) = topics.iter().find(|name| !is_topic(name)) {
            return Err(format!("`{wrong}` {WRONG_TOPIC}"));
        }
        if server.brokers.is_empty() {
            return Err("`kafka.brokers` of the configuration names no broker".to_owned());
        }
        let filled = |text: Option<String>| text.filter(|text| !text.is_empty());
        Ok(Self {
            server: server.clone(),
            topics,
            create_topics: map
                .get("auto_create_topics_enable")
                .is_some_and(|text| text == "true"),
            group: filled(group.group_id).unwrap_or_else(|| GROUP.to_owned()),
            instance: filled(group.instance_id),
            start: consumer
                .consumer_offset
                .map_or(KafkaStart::AtStart, |it| it.start),
            acks: producer.required_acks.unwrap_or(KafkaAcks::All),
            compression: producer.compression_codec.unwrap_or_default(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::of_nothing;

    #[test]
    fn a_declared_pipeline_is_read_from_texts_and_json() {
        let map = |pairs: &[(&str, &str)]| {
            let pairs = pairs
                .iter()
                .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()));
            pairs.collect::<BTreeMap<_, _>>()
        };
        let mut server = of_nothing(server);
        let refused = KafkaPipeline::declared(&map(&[]), &server, "p").unwrap_err();
        assert!(refused.contains("`kafka.brokers`"), "{refused}");
        server.brokers = vec!["127.0.0.1:9092".to_owned()];
        let declared = map(&[
            (
                "consumer_options",
                r#"{"topics":["a","b"],"consumer_offset":{"type":"AtEnd","value":0}}"#,
            ),
            (
                "group_options",
                r#"{"group_id":"g","block_rebalance_on_poll":true}"#,
            ),
            (
                "producer_options",
                r#"{"required_acks":"LeaderAck","compression_codec":"gzip"}"#,
            ),
        ]);
        let read = KafkaPipeline::declared(&declared, &server, "p").unwrap();
        assert_eq!(
            (&*read.topics, &*read.group),
            (&["a".to_owned(), "b".to_owned()][..], "g")
        );
        assert_eq!(
            (read.start, read.acks),
            (KafkaStart::AtEnd, KafkaAcks::Leader)
        );
        let refused = KafkaPipeline::declared(&map(&[]), &server, "a b").unwrap_err();
        assert_eq!(refused, format!("`a b` {WRONG_TOPIC}"));
    }
}
