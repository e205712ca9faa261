//! The way to a Kafka: who this server is there, and what it needs to find.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use krafka::admin::{AdminClient, CreateTopicsOptions, DescribeTopicsOptions, NewTopic};
use krafka::auth::{AuthConfig, TlsConfig};
use krafka::consumer::{
    AutoOffsetReset, Consumer, ConsumerRebalanceListener, PartitionAssignmentStrategy,
};
use krafka::error::ErrorCode;
use krafka::producer::{Acks, Producer};
use krafka::{Compression, Kafka, KrafkaError, TopicInfo};
use tokio::time::sleep;

use crate::broker::BrokerError;
use crate::kafka::settings::{
    KafkaAcks, KafkaCompression, KafkaPipeline, KafkaServer, KafkaStart, SaslMechanism,
};
use crate::tls::BrokerTls;

/// A server that is not heard for so long is not of its group any more, and its partitions go to
/// others. Kafka takes no less than 6 seconds unless it is told to.
pub(super) const SESSION: Duration = if cfg!(test) {
    Duration::from_secs(6)
} else {
    Duration::from_secs(30)
};
const HEARTBEAT: Duration = if cfg!(test) {
    Duration::from_millis(500)
} else {
    Duration::from_secs(3)
};
pub(super) const PATIENCE: Duration = Duration::from_secs(10);
/// Jobs that wait to be packed together; a push of one is not to wait.
const LINGER: Duration = Duration::ZERO;
/// A topic that was just made is looked for so often.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// How many partitions topics have.
pub(super) type Partitions = BTreeMap<String, usize>;

pub(super) async fn reach(server: &KafkaServer) -> Result<Kafka, BrokerError> {
    let kafka = Kafka::builder(server.brokers.join(","))
        .client_id("pronghorn")
        .security(security(server))
        .request_timeout(PATIENCE)
        .connect_timeout(PATIENCE)
        .connect();
    kafka.await.map_err(|error| {
        let advice = advice(&error, server);
        let why = with_causes(&error);
        BrokerError::Lost(match advice {
            Some(advice) => format!("{why}; {advice}"),
            None => why,
        })
    })
}

/// Advice for a person who may have written something wrong, where the client does not say it.
fn advice(error: &KrafkaError, server: &KafkaServer) -> Option<&'static str> {
    let why = with_causes(error);
    let said = |part: &str| why.contains(part);
    let is_refused = matches!(error, KrafkaError::Auth { .. });
    Some(match (&server.tls, &server.sasl) {
        _ if said("UnsupportedSaslMechanism") => "write another `kafka.sasl.mechanism`",
        (_, Some(_)) if is_refused && (said("SASL") || said("SCRAM")) => {
            "look at `username` and `password` of `kafka.sasl`"
        }
        (Some(_), _) if said("alert: BadCertificate") || said("alert: CertificateRequired") => {
            "it asks for another certificate of this server, `kafka.tls.cert`"
        }
        (Some(_), _) if said("tls handshake eof") => {
            "if nothing is encrypted there, leave out `kafka.tls`"
        }
        // One that is not there says so.
        (None, None) if !said("refused") => {
            "if it asks for encryption or a password, write `kafka.tls` or `kafka.sasl`"
        }
        _ => return None,
    })
}

fn security(server: &KafkaServer) -> AuthConfig {
    let tls = server.tls.as_ref().map(tls_config);
    let Some(sasl) = &server.sasl else {
        return tls.map_or_else(AuthConfig::plaintext, AuthConfig::ssl);
    };
    let (name, password) = (sasl.username.as_str(), sasl.password.as_str());
    let config = match sasl.mechanism {
        SaslMechanism::Plain => AuthConfig::sasl_plain(name, password),
        SaslMechanism::ScramSha256 => AuthConfig::sasl_scram_sha256(name, password),
        SaslMechanism::ScramSha512 => AuthConfig::sasl_scram_sha512(name, password),
    };
    match tls {
        Some(tls) => config.with_tls(tls),
        None => config,
    }
}

fn tls_config(tls: &BrokerTls) -> TlsConfig {
    let path = |path: &Path| path.to_string_lossy().into_owned();
    let config = match &tls.root_ca {
        Some(root) => TlsConfig::new().with_ca_cert(path(root)),
        None => TlsConfig::new().with_native_roots(),
    };
    match &tls.identity {
        Some((cert, key)) => config.with_client_cert(path(cert), path(key)),
        None => config,
    }
}

pub(super) async fn producer(
    kafka: &Kafka,
    settings: &KafkaPipeline,
) -> Result<Producer, BrokerError> {
    let producer = kafka
        .producer()
        .acks(match settings.acks {
            KafkaAcks::All => Acks::All,
            KafkaAcks::Leader => Acks::Leader,
            KafkaAcks::None => Acks::None,
        })
        .idempotent(settings.acks == KafkaAcks::All)
        .compression(match settings.compression {
            KafkaCompression::None => Compression::None,
            KafkaCompression::Gzip => Compression::Gzip,
            KafkaCompression::Snappy => Compression::Snappy,
            KafkaCompression::Lz4 => Compression::Lz4,
        })
        .linger(LINGER)
        .metrics_push(false)
        .delivery_timeout(PATIENCE * 2)
        .max_block(PATIENCE);
    Ok(producer.build().await?)
}

/// `instance` is who this server is in its group, also over its next connection.
pub(super) async fn consumer(
    kafka: &Kafka,
    settings: &KafkaPipeline,
    instance: &str,
    listener: impl ConsumerRebalanceListener + 'static,
) -> Result<Consumer, BrokerError> {
    let consumer = kafka
        .consumer(settings.group.clone())
        .group_instance_id(instance)
        .enable_auto_commit(false)
        .auto_offset_reset(match settings.start {
            KafkaStart::AtStart => AutoOffsetReset::Earliest,
            KafkaStart::AtEnd => AutoOffsetReset::Latest,
        })
        .partition_assignment_strategy(PartitionAssignmentStrategy::CooperativeSticky)
        .rebalance_listener(listener)
        .session_timeout(SESSION)
        .heartbeat_interval(HEARTBEAT)
        .metrics_push(false)
        .max_poll_records(1);
    Ok(consumer.build().await?)
}

pub(super) async fn create_topics(
    admin: &AdminClient,
    topics: &[String],
) -> Result<(), BrokerError> {
    let topics = topics.iter().map(|name| NewTopic::new(name, -1, -1));
    let topics = topics.collect::<Result<Vec<_>, _>>()?;
    let created = admin.create_topics(topics, CreateTopicsOptions::default());
    for (_, result) in created.await? {
        match result {
            Err(KrafkaError::Broker {
                code: ErrorCode::TopicAlreadyExists,
                ..
            }) => {}
            result => result?,
        }
    }
    Ok(())
}

/// The topics that `consumer` knows. A new one is not known to all brokers at once, and who
/// joins a group before it is gets nothing of it.
pub(super) async fn find_topics(
    consumer: &Consumer,
    settings: &KafkaPipeline,
) -> Result<Partitions, BrokerError> {
    let mut partitions = Partitions::new();
    for topic in &settings.topics {
        let count = loop {
            let known = consumer.fetch_metadata(Some(topic.as_str())).await?;
            let count = known.topics.first().map_or(0, TopicInfo::partition_count);
            if count > 0 {
                break count;
            }
            if !settings.create_topics {
                return Err(BrokerError::Refused(format!(
                    "it has no topic `{topic}`; create it, or write \
                     `auto_create_topics_enable: true`"
                )));
            }
            sleep(LOOK_AGAIN).await;
        };
        partitions.insert(topic.clone(), count);
    }
    Ok(partitions)
}

/// The topics, as the brokers tell them now.
pub(super) async fn look_at_topics(
    admin: &AdminClient,
    topics: &Partitions,
    patience: Duration,
) -> Result<Partitions, BrokerError> {
    let options = DescribeTopicsOptions::default().timeout(patience);
    let described = admin.describe_topics(topics.keys(), options).await?;
    let counted = described.into_iter().map(|(topic, description)| {
        let count = description?.partitions.len();
        Ok((topic, count))
    });
    counted.collect()
}

/// Some errors tell their cause themselves.
pub(super) fn with_causes(error: &dyn std::error::Error) -> String {
    let said = error.to_string();
    match error.source().map(with_causes) {
        Some(cause) if !said.contains(&cause) => format!("{said}: {cause}"),
        _ => said,
    }
}
