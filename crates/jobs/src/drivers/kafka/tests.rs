//! Against a real Kafka, one broker that is its own controller.

use std::collections::BTreeMap;
use std::process::{Command, Stdio};

use krafka::admin::CreatePartitionsOptions;
use pronghorn_base::BoxFuture;
use pronghorn_testkit::Engine;

use super::*;
use crate::brokers::tests::brokers;
use crate::drivers::conformance::{
    self, Ability, Subject, conforms, subject_with_later, unhealthy,
};
use crate::drivers::testing::{free_port, tool};

fn start() -> Engine {
    let mut engine = Engine::new("java");
    let (port, controller) = (engine.port(), free_port());
    let folder = engine.folder().to_owned();
    let settings = format!(
        "process.roles=broker,controller\n\
         node.id=1\n\
         controller.quorum.voters=1@127.0.0.1:{controller}\n\
         listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}\n\
         advertised.listeners=PLAINTEXT://127.0.0.1:{port}\n\
         controller.listener.names=CONTROLLER\n\
         listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT\n\
         log.dirs={}\n\
         offsets.topic.replication.factor=1\n\
         offsets.topic.num.partitions=1\n\
         transaction.state.log.replication.factor=1\n\
         transaction.state.log.min.isr=1\n\
         group.initial.rebalance.delay.ms=0\n",
        folder.join("data").display(),
    );
    std::fs::write(folder.join("server.properties"), settings).unwrap();
    let jars = tool("kafka");
    assert!(
        jars.is_dir(),
        "Kafka is there: `scripts/need kafka` brings it"
    );
    let jars = format!("{}/*", jars.display());
    let id = "MkU3OEVBNTcwNTJENDM2Qg";
    let format = [
        "kafka.tools.StorageTool",
        "format",
        "-t",
        id,
        "-c",
        "server.properties",
    ];
    let formatted = Command::new("java")
        .args(["-cp", &jars])
        .args(format)
        .current_dir(&folder)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    assert!(formatted.expect("java is there").success());
    let arguments = ["-Xmx400m", "-cp", &jars, "kafka.Kafka", "server.properties"];
    engine.set_arguments(arguments.map(ToOwned::to_owned).to_vec());
    engine.restart();
    engine
}

fn pipeline(engine: &Engine, topic: &str) -> KafkaPipeline {
    let mut server = brokers().kafka;
    server.brokers = vec![format!("127.0.0.1:{}", engine.port())];
    let group = format!(r#"{{"group_id":"{topic}"}}"#);
    let create = ("auto_create_topics_enable".to_owned(), "true".to_owned());
    let map = BTreeMap::from([create, ("group_options".to_owned(), group)]);
    KafkaPipeline::declared(&map, &server, topic).unwrap()
}

fn subject(settings: KafkaPipeline) -> BoxFuture<'static, Subject> {
    let ability = Ability {
        drops_nacked: true,
        sorts: false,
        // A partition is one server's, so only some of what is shared can be asked.
        is_shared: false,
        // Who has just come to a group waits for its partitions.
        lateness: Duration::from_secs(10),
        tells_oldest: false,
        largest: 900_000,
        ..Ability::OURS
    };
    subject_with_later(ability, move |wake, later| {
        open("p", &settings, wake, later)
    })
}

/// A delayed job is pushed before Kafka is up: its time would be over when it is.
async fn ready(settings: KafkaPipeline) -> Subject {
    let subject = subject(settings).await;
    while subject.driver.health().is_err() {
        sleep(Duration::from_millis(20)).await;
    }
    subject
}

#[tokio::test]
#[ignore = "Kafka is needed: `make test-brokers` runs it"]
async fn kafka_conforms() {
    let engine = start();
    // Kafka prepares what groups need when the first one comes.
    let first = ready(pipeline(&engine, "first")).await;
    first.driver.resume();
    first.driver.push(vec![Job::default()]).await.unwrap();
    first.ack_next().await;
    conforms(|name| Box::pin(ready(pipeline(&engine, name)))).await;
}

#[tokio::test]
#[ignore = "Kafka is needed: `make test-brokers` runs it"]
async fn a_kafka_that_goes_and_comes_loses_no_job() {
    let mut engine = start();
    let subject = subject(pipeline(&engine, "q")).await;
    conformance::survives_a_restart(&mut engine, subject).await;
}

#[tokio::test]
#[ignore = "Kafka is needed: `make test-brokers` runs it"]
async fn jobs_of_a_server_that_ends_go_to_another_one() {
    let engine = start();
    let one = subject(pipeline(&engine, "q")).await;
    let job = |id: &str| Job {
        id: id.to_owned(),
        ..Job::default()
    };
    one.driver.resume();
    one.driver
        .push(vec![job("a"), job("b"), job("c")])
        .await
        .unwrap();
    assert_eq!(one.ack_next().await, "a");
    assert_eq!(one.next().await.job.id, "b");
    // Who comes first has the one partition.
    let two = subject(pipeline(&engine, "q")).await;
    two.driver.resume();
    two.nothing_comes().await;
    one.driver.close().await;
    assert_eq!([two.ack_next().await, two.ack_next().await], ["b", "c"]);
}

#[tokio::test]
#[ignore = "Kafka is needed: `make test-brokers` runs it"]
async fn a_push_names_its_topic_and_a_job_says_where_it_was() {
    let engine = start();
    let subject = subject(pipeline(&engine, "q")).await;
    let mut other = pipeline(&engine, "other");
    other.topics.push("q".to_owned());
    let other = self::subject(other).await;
    other.driver.resume();
    let mut job = Job {
        id: "1".to_owned(),
        ..Job::default()
    };
    crate::extras::put_topic(&mut job.headers, "other".to_owned(), 0);
    subject.driver.push(vec![job]).await.unwrap();
    let came = other.next().await;
    let place = crate::extras::place(&came.job.headers).expect("it is from Kafka");
    assert_eq!((&*place.topic, place.offset), ("other", 0));
}

#[tokio::test]
#[ignore = "Kafka is needed: `make test-brokers` runs it"]
async fn partitions_that_come_are_consumed_too() {
    let engine = start();
    let settings = pipeline(&engine, "q");
    let subject = subject(settings.clone()).await;
    subject.driver.resume();
    let job = |id: &str, partition| {
        let mut job = Job {
            id: id.to_owned(),
            ..Job::default()
        };
        crate::extras::put_topic(&mut job.headers, "q".to_owned(), partition);
        job
    };
    subject.driver.push(vec![job("a", 0)]).await.unwrap();
    assert_eq!(subject.ack_next().await, "a");
    let Ok(kafka) = reach(&settings.server).await else {
        panic!("it is up");
    };
    let options = CreatePartitionsOptions::default();
    let more = kafka.admin().create_partitions([("q", 2)], options).await;
    more.unwrap().remove("q").expect("it is there").unwrap();
    // Until the pipeline knows of it there is no such place.
    while subject.driver.push(vec![job("b", 1)]).await.is_err() {
        sleep(Duration::from_millis(100)).await;
    }
    let came = subject.next().await;
    let place = crate::extras::place(&came.job.headers).expect("it is from Kafka");
    assert_eq!((&*came.job.id, place.partition), ("b", 1));
}

#[tokio::test]
#[ignore = "Kafka is needed: `make test-brokers` runs it"]
async fn a_topic_that_is_not_there_is_told() {
    let engine = start();
    let mut settings = pipeline(&engine, "missing");
    settings.create_topics = false;
    let subject = subject(settings).await;
    unhealthy(&*subject.driver, "it has no topic `missing`; create it").await;
}

#[tokio::test]
async fn a_place_that_is_no_kafka_is_told() {
    let mut server = brokers().kafka;
    server.brokers = vec![format!("127.0.0.1:{}", free_port())];
    let settings = KafkaPipeline::declared(&BTreeMap::new(), &server, "q").unwrap();
    let subject = subject(settings).await;
    unhealthy(&*subject.driver, " is away: ").await;
}
