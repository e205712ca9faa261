//! `amqp`, in both shapes: flat keys as in RoadRunner 2025.1, sections as in RoadRunner 3.

use std::collections::BTreeMap;

use pronghorn_config::{Era, Pairs, Table};

use crate::address::{BrokerAddress, address};
use crate::kind::{object_of, text_of};
use crate::tls::{self, BrokerTls};

const AMQP: &str = "amqp://guest:guest@127.0.0.1:5672/";
/// The connection of a file that has one, and the one that is meant when none is named.
const DEFAULT: &str = "default";

/// A RabbitMQ, or what speaks as it does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AmqpServer {
    pub(crate) address: BrokerAddress,
    pub(crate) tls: BrokerTls,
}

/// Connections by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AmqpServers(pub(super) Vec<(String, AmqpServer)>);

/// The settings of a pipeline's place in such a broker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AmqpPipeline {
    pub(crate) server: AmqpServer,
    pub(crate) exchange: AmqpExchange,
    pub(crate) queue: AmqpQueue,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AmqpExchange {
    pub(crate) name: String,
    pub(crate) kind: String,
    pub(crate) durable: bool,
    pub(crate) auto_delete: bool,
    pub(crate) declare: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AmqpQueue {
    /// None: jobs are pushed to the exchange, and others have them.
    pub(crate) name: Option<String>,
    /// None: its name.
    pub(crate) routing_key: Option<String>,
    pub(crate) durable: bool,
    pub(crate) auto_delete: bool,
    pub(crate) exclusive: bool,
    pub(crate) delete_on_stop: bool,
    /// Arguments of its declaration.
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) consumer_id: String,
    pub(crate) declare: bool,
}

impl Default for AmqpExchange {
    fn default() -> Self {
        Self {
            name: "amqp.default".to_owned(),
            kind: "direct".to_owned(),
            durable: false,
            auto_delete: false,
            declare: true,
        }
    }
}

/// The section `amqp`.
pub(super) fn server(t: &mut Table<'_>) -> AmqpServers {
    let sentence = "The AMQP broker for pipelines with `driver: amqp`. With `compat: 3`, this \
                    section contains named sections with these keys, and a pipeline's `connection` \
                    selects one.";
    if t.era() == Era::V3 {
        return AmqpServers(t.sections_with(
            "amqp",
            sentence,
            "One connection to a broker.",
            connection,
        ));
    }
    let only = t.section_with("amqp", sentence, connection);
    AmqpServers(vec![(DEFAULT.to_owned(), only)])
}

fn connection(t: &mut Table<'_>) -> AmqpServer {
    AmqpServer {
        address: address(t, AMQP, &["amqp", "amqps"]),
        tls: tls::read(t),
    }
}

/// Whether `queue` is a section of RoadRunner 3, and no name.
pub(super) fn has_queue_section(t: &mut Table<'_>) -> bool {
    if t.era() == Era::V3 {
        return true;
    }
    let is_section = !t.names_in("queue").is_empty();
    if is_section {
        let message = "is a section, as in RoadRunner 3, and the file is read as for 2025.1";
        t.error("queue", message, "write `compat: 3` at the top of the file");
    }
    is_section
}

/// The keys of a pipeline's `config`. `queue` was read where it is a name.
pub(crate) fn read(
    t: &mut Table<'_>,
    servers: &AmqpServers,
    pipeline: &str,
    queue: Option<String>,
) -> AmqpPipeline {
    for (key, why) in NO_EFFECT {
        t.no_effect(key, why);
    }
    if t.era() != Era::V3 {
        let exchange = read_exchange(t, &FLAT);
        let queue = read_queue(t, &FLAT, queue);
        return AmqpPipeline::of(servers.of(DEFAULT), exchange, queue, pipeline);
    }
    let connection = t
        .key(
            "connection",
            "The section of `amqp` with the connection to use.",
        )
        .default(DEFAULT.to_owned());
    if servers.0.iter().all(|(name, _)| *name != connection) {
        let message = format!("names `{connection}`, and there is no section `amqp.{connection}`");
        t.error("connection", &message, "add it, with `addr` in it");
    }
    let exchange = t.section_with("exchange", "The exchange that jobs are pushed to.", |t| {
        read_exchange(t, &NESTED)
    });
    let queue = t.section_with("queue", "The queue that jobs wait in.", |t| {
        let name = t
            .key(
                "name",
                "The name in the broker. By default, the pipeline's name.",
            )
            .optional();
        read_queue(t, &NESTED, name)
    });
    AmqpPipeline::of(servers.of(&connection), exchange, queue, pipeline)
}

const NO_EFFECT: &[(&str, &str)] = &[
    (
        "redial_timeout",
        "the server reconnects until the broker answers",
    ),
    ("multiple_ack", "each job is acknowledged separately"),
    (
        "requeue_on_fail",
        "`retry` of the pipeline says when a failed job runs again",
    ),
];

/// The names of keys in a shape.
struct Names {
    exchange: &'static str,
    kind: &'static str,
    exchange_durable: &'static str,
    exchange_auto_delete: &'static str,
    exchange_declare: &'static str,
    queue_auto_delete: &'static str,
    delete_on_stop: &'static str,
    headers: &'static str,
    queue_declare: &'static str,
}

const FLAT: Names = Names {
    exchange: "exchange",
    kind: "exchange_type",
    exchange_durable: "exchange_durable",
    exchange_auto_delete: "exchange_auto_delete",
    exchange_declare: "exchange_declare",
    queue_auto_delete: "queue_auto_delete",
    delete_on_stop: "delete_queue_on_stop",
    headers: "queue_headers",
    queue_declare: "queue_declare",
};

const NESTED: Names = Names {
    exchange: "name",
    kind: "type",
    exchange_durable: "durable",
    exchange_auto_delete: "auto_delete",
    exchange_declare: "declare",
    queue_auto_delete: "auto_delete",
    delete_on_stop: "delete_on_stop",
    headers: "headers",
    queue_declare: "declare",
};

fn read_exchange(t: &mut Table<'_>, names: &Names) -> AmqpExchange {
    let AmqpExchange { name, kind, .. } = AmqpExchange::default();
    AmqpExchange {
        name: t
            .key(
                names.exchange,
                "The name of the exchange that jobs are pushed to.",
            )
            .default(name),
        kind: t
            .key(
                names.kind,
                "How the exchange chooses queues: `direct`, `fanout`, `topic`, `headers`, or a \
                 type that a plugin of the broker adds.",
            )
            .default(kind),
        durable: t
            .key(
                names.exchange_durable,
                "Whether the exchange survives a restart of the broker.",
            )
            .default(false),
        auto_delete: t
            .key(
                names.exchange_auto_delete,
                "Whether the exchange is deleted together with its last queue.",
            )
            .default(false),
        declare: t
            .key(
                names.exchange_declare,
                "Whether to create the exchange if it does not exist.",
            )
            .default(true),
    }
}

/// Without a name of its own, and with an exchange: it is for pushes alone.
fn read_queue(t: &mut Table<'_>, names: &Names, name: Option<String>) -> AmqpQueue {
    let headers: Pairs = t
        .key(
            names.headers,
            "Arguments of the queue, such as `x-queue-type: quorum`.",
        )
        .default(Pairs::default());
    AmqpQueue {
        name,
        routing_key: t
            .key::<String>(
                "routing_key",
                "The routing key that leads from the exchange to the queue. By default, the \
                 queue's name.",
            )
            .optional(),
        durable: t
            .key(
                "durable",
                "Whether the queue survives a restart of the broker.",
            )
            .default(false),
        auto_delete: t
            .key(
                names.queue_auto_delete,
                "Whether the queue is deleted together with its last consumer.",
            )
            .default(false),
        exclusive: t
            .key(
                "exclusive",
                "Whether only this connection may use the queue.",
            )
            .default(false),
        delete_on_stop: t
            .key(
                names.delete_on_stop,
                "Whether the queue and its jobs are deleted when the server stops.",
            )
            .default(false),
        consumer_id: t
            .key(
                "consumer_id",
                "The name of the consumer. By default, the broker chooses one.",
            )
            .default(String::new()),
        declare: t
            .key(
                names.queue_declare,
                "Whether to create the queue if it does not exist.",
            )
            .default(true),
        headers: headers
            .iter()
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect(),
    }
}

impl AmqpPipeline {
    fn of(
        server: AmqpServer,
        exchange: AmqpExchange,
        mut queue: AmqpQueue,
        pipeline: &str,
    ) -> Self {
        let is_for_pushes = queue.name.is_none() && exchange != AmqpExchange::default();
        if queue.name.is_none() && !is_for_pushes {
            queue.name = Some(pipeline.to_owned());
        }
        Self {
            server,
            exchange,
            queue,
        }
    }

    /// Reads a pipeline that PHP declares: it is flat, and all values are texts.
    pub(crate) fn declared(
        map: &BTreeMap<String, String>,
        pipeline: &str,
        servers: &AmqpServers,
    ) -> Result<Self, String> {
        let text = |key: &str| text_of(map, key);
        let yes = |key: &str, default| text(key).map_or(default, |text| text == "true");
        let connection = text("connection").unwrap_or_else(|| DEFAULT.to_owned());
        let defaults = AmqpExchange::default();
        let exchange = AmqpExchange {
            name: text(FLAT.exchange).unwrap_or(defaults.name),
            kind: text(FLAT.kind).unwrap_or(defaults.kind),
            durable: yes(FLAT.exchange_durable, false),
            auto_delete: yes(FLAT.exchange_auto_delete, false),
            declare: yes(FLAT.exchange_declare, true),
        };
        let headers = match text(FLAT.headers) {
            None => BTreeMap::new(),
            Some(json) => object_of(&json)
                .ok_or_else(|| format!("`{}` is no JSON object of values", FLAT.headers))?,
        };
        let queue = AmqpQueue {
            name: text("queue"),
            routing_key: text("routing_key"),
            durable: yes("durable", false),
            auto_delete: yes(FLAT.queue_auto_delete, false),
            exclusive: yes("exclusive", false),
            delete_on_stop: yes(FLAT.delete_on_stop, false),
            headers,
            consumer_id: text("consumer_id").unwrap_or_default(),
            declare: yes(FLAT.queue_declare, true),
        };
        Ok(Self::of(servers.of(&connection), exchange, queue, pipeline))
    }
}

impl AmqpPipeline {
    /// The routing key that jobs are pushed with.
    #[cfg(feature = "amqp")]
    pub(crate) fn routing_key(&self) -> &str {
        let key = self.queue.routing_key.as_deref();
        key.or(self.queue.name.as_deref()).unwrap_or_default()
    }
}

impl AmqpServers {
    /// The default address where there is no such connection, which was told.
    fn of(&self, connection: &str) -> AmqpServer {
        let found = self.0.iter().find(|(name, _)| name == connection);
        found.map_or_else(AmqpServer::local, |(_, server)| server.clone())
    }
}

impl AmqpServer {
    fn local() -> Self {
        Self {
            address: BrokerAddress::new(AMQP.to_owned()),
            tls: BrokerTls::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::of_nothing;

    #[test]
    fn an_empty_array_of_php_is_an_object_without_values() {
        let declared = |headers: &str| {
            let map = [("queue_headers".to_owned(), headers.to_owned())];
            let read = AmqpPipeline::declared(&map.into(), "p", &of_nothing(server))?;
            Ok::<_, String>(read.queue.headers)
        };
        assert_eq!(declared("[]"), Ok(BTreeMap::new()));
        let headers = declared(r#"{"x-queue-type":"quorum","x-max-length":5}"#).unwrap();
        assert_eq!(headers["x-queue-type"], "quorum");
        assert_eq!(headers["x-max-length"], "5");
        let refused = declared("[1]").unwrap_err();
        assert_eq!(refused, "`queue_headers` is no JSON object of values");
    }
}
