//! Against a real RabbitMQ. It takes many seconds to start, so one does for all.

use super::*;
use crate::brokers::tests::brokers;
use crate::drivers::Driver;
use crate::drivers::conformance::{self, Ability, Subject, conforms};
use crate::drivers::testing::Engine;
use crate::settings::BrokerAddress;

fn start() -> Engine {
    Engine::rabbitmq()
}

fn pipeline(engine: &Engine, queue: &str, user: &str) -> AmqpPipeline {
    let url = format!("amqp://{user}@127.0.0.1:{}/", engine.port());
    let map = [
        ("queue", queue),
        ("durable", "true"),
        ("exchange_durable", "true"),
    ];
    let map = map.map(|(key, value)| (key.to_owned(), value.to_owned()));
    let mut settings = AmqpPipeline::declared(&map.into(), "p", &brokers()).unwrap();
    settings.server.address = BrokerAddress::new(url);
    settings
}

fn subject(engine: &Engine, queue: &'static str) -> Subject {
    let settings = pipeline(engine, queue, "guest:guest");
    let ability = Ability {
        drops_nacked: true,
        sorts: false,
        is_shared: true,
        counts_delayed: false,
        longest_delay: LONGEST_DELAY,
        most_delays: 20,
        ..Ability::OURS
    };
    conformance::subject(ability, move |wake| open("p", &settings, wake))
}

#[tokio::test]
#[ignore = "`make test-brokers` runs it: RabbitMQ takes minutes"]
async fn amqp_conforms_and_survives_a_restart_and_refuses() {
    let mut engine = start();
    conforms(|name| Box::pin(std::future::ready(subject(&engine, name)))).await;
    let kept = subject(&engine, "q");
    conformance::survives_a_restart(&mut engine, kept).await;

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
