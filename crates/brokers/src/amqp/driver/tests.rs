//! Against a real RabbitMQ. It takes seconds to start, so one does for all.

use pronghorn_queue::Driver;
use pronghorn_queue::conformance::{self, Ability, Subject, conforms};
use pronghorn_testkit::{Certificates, Engine};

use super::*;
use crate::address::BrokerAddress;
use crate::amqp::settings;
use crate::testing::{
    client_tls, free_port, of_nothing, of_text, rabbitmq, says, survives_a_restart,
};

fn pipeline(engine: &Engine, queue: &str, user: &str) -> AmqpPipeline {
    let url = format!("amqp://{user}@127.0.0.1:{}/", engine.port());
    let map = [
        ("queue", queue),
        ("durable", "true"),
        ("exchange_durable", "true"),
    ];
    let map = map.map(|(key, value)| (key.to_owned(), value.to_owned()));
    let mut settings =
        AmqpPipeline::declared(&map.into(), "p", &of_nothing(settings::server)).unwrap();
    settings.server.address = BrokerAddress::new(url);
    settings
}

/// A message on a channel that nobody has opened, before anything else.
#[tokio::test]
async fn a_broker_that_announces_gigabytes_is_given_up() {
    let (port, _task) = says(b"\x02\0\x01\0\0\0\x0e\0\x3c\0\0\0\0\0\x01\0\0\0\0\0\0\xce").await;
    let mut settings =
        AmqpPipeline::declared(&[].into(), "p", &of_nothing(settings::server)).unwrap();
    settings.server.address = BrokerAddress::new(format!("amqp://127.0.0.1:{port}/"));
    let driver = open("p", &settings, Wake::default());
    let said = conformance::unhealthy(&driver, "a message of 4294967296 bytes").await;
    assert!(said.contains("amqp at 127.0.0.1"), "{said}");
}

/// The pipeline of a file.
fn configured(text: &str, port: u16) -> AmqpPipeline {
    let address = format!("amqp://guest:guest@127.0.0.1:{port}/");
    of_text(&text.replace("ADDR", &address), |t| {
        let servers = settings::server(t);
        t.section_with("config", "", |t| {
            let queue = if settings::has_queue_section(t) {
                None
            } else {
                t.key("queue", "").optional()
            };
            settings::read(t, &servers, "p", queue)
        })
    })
}

/// The same pipeline, as RoadRunner 2025.1 and as RoadRunner 3 would have it.
const SHAPES: [&str; 2] = [
    "
version: '3'
amqp: {addr: 'ADDR'}
config:
  queue: shapes
  exchange: things
  exchange_type: topic
  exchange_durable: true
  exchange_auto_delete: true
  routing_key: a.b
  durable: true
  queue_auto_delete: true
  delete_queue_on_stop: true
  consumer_id: me
  queue_headers: {x-max-length: 1000}
",
    "
version: '3'
compat: 3
amqp: {main: {addr: 'ADDR'}}
config:
  connection: main
  exchange: {name: things, type: topic, durable: true, auto_delete: true}
  queue:
    name: shapes
    routing_key: a.b
    durable: true
    auto_delete: true
    delete_on_stop: true
    consumer_id: me
    headers: {x-max-length: 1000}
",
];

/// The other one gets what one has pushed: both declare the same.
async fn both_shapes_are_one_queue(engine: &Engine) {
    let [flat, nested] = SHAPES.map(|text| configured(text, engine.port()));
    assert_eq!(flat, nested);
    let pushing = open("p", &flat, Wake::default());
    pushing.push(vec![Job::default()]).await.unwrap();
    let consuming = conformance::subject(Ability::OURS, move |wake| open("p", &nested, wake));
    consuming.driver.resume();
    consuming.ack_next().await;
}

/// RabbitMQ asks for a certificate at another port.
async fn certificates_are_shown_and_looked_at(tls: u16, certificates: &Certificates) {
    let mut settings = configured(SHAPES[0], tls);
    let url = format!("amqps://guest:guest@127.0.0.1:{tls}/");
    settings.server.address = BrokerAddress::new(url);
    settings.server.tls = client_tls(certificates, true);
    let known = open("p", &settings, Wake::default());
    known.push(vec![Job::default()]).await.unwrap();

    settings.server.tls = client_tls(certificates, false);
    let unknown = open("p", &settings, Wake::default());
    conformance::unhealthy(&unknown, " is away: ").await;

    settings.server.tls.root_ca = None;
    let distrustful = open("p", &settings, Wake::default());
    conformance::unhealthy(&distrustful, "UnknownIssuer").await;

    settings.server.tls.root_ca = Some("/nowhere/ca.pem".into());
    let without = open("p", &settings, Wake::default());
    conformance::unhealthy(&without, "`/nowhere/ca.pem` can't be read").await;
}

/// Sets the part of the machine's memory that the broker may use. While it uses more, it reads
/// nothing from connections that publish.
fn allow_memory(engine: &Engine, part: &str) {
    let mut rabbitmqctl = engine.command("/usr/lib/rabbitmq/bin/rabbitmqctl");
    let done = rabbitmqctl
        .args(["set_vm_memory_high_watermark", part])
        .output()
        .unwrap();
    assert!(done.status.success(), "{done:?}");
}

/// Else its queues would never get shorter.
async fn a_broker_that_is_short_of_memory_is_told_what_is_done(engine: &Engine) {
    let short = subject(engine, "short");
    short.push(vec![Job::default(); 60]).await;
    allow_memory(engine, "0.00001");
    let driver = open(
        "p",
        &pipeline(engine, "short", "guest:guest"),
        Wake::default(),
    );
    // One that is published is not read, perhaps, and then the broker has said so.
    let (mut pushed, mut unread) = (60, 0);
    let refused = loop {
        assert!(pushed < 10_000, "the broker is not short of memory");
        match timeout(Duration::from_secs(1), driver.push(vec![Job::default()])).await {
            Ok(Ok(())) => pushed += 1,
            Ok(Err(refused)) => break refused.to_string(),
            Err(_) => unread += 1,
        }
    };
    assert!(refused.contains("short of memory or disk"), "{refused}");
    short.driver.resume();
    for _ in 0..pushed {
        short.ack_next().await;
    }
    allow_memory(engine, "0.4");
    // The broker now reads the pushes that it had left unread.
    for _ in 0..unread {
        short.ack_next().await;
    }
}

fn subject(engine: &Engine, queue: &'static str) -> Subject {
    let settings = pipeline(engine, queue, "guest:guest");
    let ability = Ability {
        sorts: false,
        is_shared: true,
        counts_delayed: false,
        longest_delay: LONGEST_DELAY,
        most_delays: 20,
        // Each one more than ever before is a new consumer.
        most_reserved: 50,
        tells_oldest: false,
        ..Ability::OURS
    };
    conformance::subject(ability, move |wake| open("p", &settings, wake))
}

#[tokio::test]
async fn amqp_conforms_and_survives_a_restart_and_refuses() {
    let (tls, certificates) = (free_port(), Certificates::new());
    let mut engine = rabbitmq(tls, &certificates);
    conforms(|name| Box::pin(std::future::ready(subject(&engine, name)))).await;
    let kept = subject(&engine, "q");
    survives_a_restart(&mut engine, kept).await;
    both_shapes_are_one_queue(&engine).await;
    a_broker_that_is_short_of_memory_is_told_what_is_done(&engine).await;
    certificates_are_shown_and_looked_at(tls, &certificates).await;

    let wrong = pipeline(&engine, "q", "guest:wrong");
    let driver = open("p", &wrong, Wake::default());
    let said = conformance::unhealthy(&driver, "ACCESS").await;
    let title = format!("amqp at 127.0.0.1:{} is away: ", engine.port());
    assert!(
        said.starts_with(&title) && !said.contains("guest:"),
        "{said}"
    );

    // Somebody else's queue of this name is of another kind.
    let mut other = pipeline(&engine, "q", "guest:guest");
    other.queue.durable = false;
    let driver = open("p", &other, Wake::default());
    conformance::unhealthy(&driver, "PRECONDITION").await;

    let right = pipeline(&engine, "q", "guest:guest");
    let driver = open("p", &right, Wake::default());
    let values = vec!["nowhere".to_owned()];
    let lost = Job {
        headers: [("x-routing-key".to_owned(), values)].into(),
        ..Job::default()
    };
    let refused = driver.push(vec![lost]).await.unwrap_err().to_string();
    assert!(refused.contains("no queue takes a job"), "{refused}");
}
