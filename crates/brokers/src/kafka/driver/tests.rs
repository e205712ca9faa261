//! Against a real Kafka, one broker that is its own controller.

use std::collections::BTreeMap;
use std::process::{Command, Stdio};

use krafka::admin::{
    CreatePartitionsOptions, DescribeConsumerGroupsOptions, ListConsumerGroupOffsetsOptions,
};
use pronghorn_base::BoxFuture;
use pronghorn_queue::Settlement;
use pronghorn_queue::conformance::{Ability, Subject, conforms, unhealthy};
use pronghorn_testkit::{Certificates, Engine};

use super::*;
use crate::kafka::settings;
use crate::kafka::settings::{KafkaSasl, SaslMechanism};
use crate::testing::{
    client_tls, free_port, of_nothing, subject_with_later, survives_a_restart, tool,
};
use crate::tls::BrokerTls;

fn start() -> Engine {
    start_with(&[], "", &[])
}

/// With more listeners, each a name, a protocol and a port, more settings, and people who are known
/// from the beginning.
fn start_with(listeners: &[(&str, &str, u16)], more: &str, people: &[&str]) -> Engine {
    let mut engine = Engine::new("java");
    let (port, controller) = (engine.port(), free_port());
    let folder = engine.folder().to_owned();
    let plain = [("PLAINTEXT", "PLAINTEXT", port)];
    let advertised: Vec<_> = plain.iter().chain(listeners).collect();
    let each = |write: fn(&(&str, &str, u16)) -> String| {
        let all = advertised.iter().map(|listener| write(listener));
        all.collect::<Vec<_>>().join(",")
    };
    let places = each(|(name, _, port)| format!("{name}://127.0.0.1:{port}"));
    let protocols = each(|(name, protocol, _)| format!("{name}:{protocol}"));
    let settings = format!(
        "process.roles=broker,controller\n\
         node.id=1\n\
         controller.quorum.voters=1@127.0.0.1:{controller}\n\
         listeners={places},CONTROLLER://127.0.0.1:{controller}\n\
         advertised.listeners={places}\n\
         controller.listener.names=CONTROLLER\n\
         listener.security.protocol.map=CONTROLLER:PLAINTEXT,{protocols}\n\
         log.dirs={}\n\
         offsets.topic.replication.factor=1\n\
         offsets.topic.num.partitions=1\n\
         transaction.state.log.replication.factor=1\n\
         transaction.state.log.min.isr=1\n\
         group.initial.rebalance.delay.ms=0\n\
         {more}\n",
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
    let people = people.iter().flat_map(|person| ["--add-scram", *person]);
    let formatted = Command::new("java")
        .args(["-cp", &jars])
        .args(format)
        .args(people)
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
    let mut server = of_nothing(settings::server);
    server.brokers = vec![format!("127.0.0.1:{}", engine.port())];
    let group = format!(r#"{{"group_id":"{topic}"}}"#);
    let create = ("auto_create_topics_enable".to_owned(), "true".to_owned());
    let map = BTreeMap::from([create, ("group_options".to_owned(), group)]);
    KafkaPipeline::declared(&map, &server, topic).unwrap()
}

fn subject(settings: KafkaPipeline) -> BoxFuture<'static, Subject> {
    let ability = Ability {
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
    survives_a_restart(&mut engine, subject).await;
}

#[tokio::test]
#[ignore = "Kafka is needed: `make test-brokers` runs it"]
async fn jobs_of_a_server_that_ends_go_to_another_one() {
    let engine = start();
    let one = subject(pipeline(&engine, "q")).await;
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

fn job(id: &str) -> Job {
    Job {
        id: id.to_owned(),
        ..Job::default()
    }
}

fn job_in(id: &str, topic: &str, partition: i32) -> Job {
    let mut job = job(id);
    pronghorn_queue::options::put_topic(&mut job.headers, topic.to_owned(), partition);
    job
}

/// Waits until a group has so many members.
async fn members(settings: &KafkaPipeline, count: usize) {
    let Ok(kafka) = reach(&settings.server).await else {
        panic!("it is up");
    };
    let admin = kafka.admin();
    let until = Instant::now() + Duration::from_secs(60);
    loop {
        let options = DescribeConsumerGroupsOptions::default();
        let described = admin.describe_consumer_groups([&settings.group], options);
        let mut described = described.await.unwrap();
        let members = match described.remove(&settings.group) {
            Some(Ok(group)) => group.members.len(),
            _ => 0,
        };
        if members == count {
            return;
        }
        assert!(Instant::now() < until, "{members} members, not {count}");
        sleep(Duration::from_millis(100)).await;
    }
}

/// Waits until Kafka knows where a group is in its topic.
async fn begun(settings: &KafkaPipeline) {
    let Ok(kafka) = reach(&settings.server).await else {
        panic!("it is up");
    };
    let (admin, until) = (kafka.admin(), Instant::now() + Duration::from_secs(60));
    loop {
        let options = ListConsumerGroupOffsetsOptions::default();
        let offsets = admin.list_consumer_group_offsets(&settings.group, options);
        if offsets.await.is_ok_and(|offsets| !offsets.is_empty()) {
            return;
        }
        assert!(Instant::now() < until, "it is told");
        sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test]
#[ignore = "Kafka is needed: `make test-brokers` runs it"]
async fn a_paused_server_leaves_its_partitions_when_its_last_job_is_done() {
    let engine = start();
    let settings = pipeline(&engine, "q");
    // Who only pushes is nobody in the group.
    let pushing = subject(settings.clone()).await;
    let push = |ids: &[&str]| {
        let jobs = ids.iter().map(|id| job(id)).collect();
        pushing.driver.push(jobs)
    };
    push(&["a", "b", "c"]).await.unwrap();
    let [one, two] = [
        subject(settings.clone()).await,
        subject(settings.clone()).await,
    ];
    one.driver.resume();
    assert_eq!(one.ack_next().await, "a");
    let out = one.next().await;
    two.driver.resume();
    two.nothing_comes().await;
    members(&settings, 2).await;
    one.driver.pause();
    // Longer than what nobody takes is held.
    sleep(Duration::from_secs(3)).await;
    two.nothing_comes().await;
    let ack = one.driver.settle(out.ticket, Settlement::Ack);
    ack.await.expect("it is not acknowledged in vain");
    assert_eq!(two.ack_next().await, "c");
    members(&settings, 1).await;
    push(&["d"]).await.unwrap();
    assert_eq!(two.ack_next().await, "d");
    assert_eq!(one.driver.stat().await.map(|stat| stat.active), Ok(0));

    one.driver.resume();
    two.driver.pause();
    push(&["e"]).await.unwrap();
    assert_eq!(one.ack_next().await, "e");
    members(&settings, 1).await;
    one.nothing_comes().await;
}

#[tokio::test]
#[ignore = "Kafka is needed: `make test-brokers` runs it"]
async fn a_server_without_free_workers_leaves_its_partitions_after_a_while() {
    let engine = start();
    let settings = pipeline(&engine, "q");
    let [one, two] = [
        subject(settings.clone()).await,
        subject(settings.clone()).await,
    ];
    one.driver.resume();
    one.driver.push(vec![job("a"), job("b")]).await.unwrap();
    let out = one.next().await;
    one.driver.want(0);
    two.driver.resume();
    two.nothing_comes().await;
    members(&settings, 2).await;
    one.driver
        .settle(out.ticket, Settlement::Ack)
        .await
        .unwrap();
    assert_eq!(two.ack_next().await, "b");
    members(&settings, 1).await;
}

#[tokio::test]
#[ignore = "Kafka is needed: `make test-brokers` runs it"]
async fn a_group_that_begins_at_the_end_passes_over_no_job_of_a_pause() {
    let engine = start();
    let mut settings = pipeline(&engine, "q");
    settings.start = KafkaStart::AtEnd;
    let pushing = subject(settings.clone()).await;
    pushing.driver.push(vec![job("before")]).await.unwrap();
    let consuming = subject(settings.clone()).await;
    consuming.driver.resume();
    consuming.nothing_comes().await;
    begun(&settings).await;
    consuming.driver.pause();
    members(&settings, 0).await;
    pushing.driver.push(vec![job("during")]).await.unwrap();
    consuming.driver.resume();
    assert_eq!(consuming.ack_next().await, "during");
}

/// The settings of a broker that has such files, and knows `one` by the password `right`.
fn secured(certificates: &Certificates) -> String {
    let read = |name| std::fs::read_to_string(certificates.path(name)).unwrap();
    let store = certificates.path("server.store");
    std::fs::write(&store, read("server.key") + &read("server.pem")).unwrap();
    let store = store.display();
    let trusted = certificates.path("ca.pem");
    let trusted = trusted.display();
    let module = "org.apache.kafka.common.security";
    let passwords = ["password", "both"].map(|listener| {
        let scram = ["scram-sha-256", "scram-sha-512"].map(|mechanism| {
            format!(
                "listener.name.{listener}.{mechanism}.sasl.jaas.config=\
                 {module}.scram.ScramLoginModule required;\n"
            )
        });
        format!(
            "listener.name.{listener}.plain.sasl.jaas.config=\
             {module}.plain.PlainLoginModule required user_one=\"right\";\n{}",
            scram.concat()
        )
    });
    format!(
        "ssl.keystore.type=PEM\n\
         ssl.keystore.location={store}\n\
         ssl.truststore.type=PEM\n\
         ssl.truststore.location={trusted}\n\
         listener.name.encrypted.ssl.client.auth=required\n\
         listener.name.password.sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512\n\
         listener.name.both.sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256\n{}",
        passwords.concat()
    )
}

#[tokio::test]
#[ignore = "Kafka is needed: `make test-brokers` runs it"]
async fn kafka_knows_this_server_by_its_certificate_or_its_password() {
    let certificates = Certificates::new();
    let [encrypted, password, both] = [(); 3].map(|()| free_port());
    let listeners = [
        ("ENCRYPTED", "SSL", encrypted),
        ("PASSWORD", "SASL_PLAINTEXT", password),
        ("BOTH", "SASL_SSL", both),
    ];
    let people = [
        "SCRAM-SHA-256=[name=one,password=right]",
        "SCRAM-SHA-512=[name=one,password=right]",
    ];
    let engine = start_with(&listeners, &secured(&certificates), &people);
    let at = |port: u16, tls: Option<BrokerTls>, sasl: Option<(SaslMechanism, &str)>| {
        let mut settings = pipeline(&engine, "q");
        settings.server.brokers = vec![format!("127.0.0.1:{port}")];
        settings.server.tls = tls;
        settings.server.sasl = sasl.map(|(mechanism, password)| KafkaSasl {
            mechanism,
            username: "one".to_owned(),
            password: password.to_owned(),
        });
        subject(settings)
    };
    use SaslMechanism::{Plain, ScramSha256, ScramSha512};
    let [known, unknown] = [true, false].map(|is_known| client_tls(&certificates, is_known));

    for (port, tls, sasl) in [
        (encrypted, Some(&known), None),
        (password, None, Some((Plain, "right"))),
        (password, None, Some((ScramSha256, "right"))),
        (password, None, Some((ScramSha512, "right"))),
        (both, Some(&unknown), Some((Plain, "right"))),
        (both, Some(&unknown), Some((ScramSha256, "right"))),
    ] {
        let subject = at(port, tls.cloned(), sasl).await;
        subject.driver.resume();
        subject.driver.push(vec![job("a")]).await.unwrap();
        assert_eq!(subject.ack_next().await, "a", "{sasl:?}");
        subject.driver.close().await;
    }

    let distrustful = BrokerTls {
        root_ca: None,
        ..known.clone()
    };
    let nowhere = BrokerTls {
        root_ca: Some("/nowhere/ca.pem".into()),
        identity: None,
    };
    let wrong = "look at `username` and `password` of `kafka.sasl`";
    let closes = "write `kafka.tls` or `kafka.sasl`";
    for (port, tls, sasl, part) in [
        (encrypted, Some(unknown.clone()), None, "`kafka.tls.cert`"),
        (encrypted, Some(distrustful), None, "UnknownIssuer"),
        (encrypted, Some(nowhere), None, "/nowhere/ca.pem"),
        (encrypted, None, None, closes),
        (password, None, None, closes),
        (password, None, Some((Plain, "wr0ng")), wrong),
        (password, None, Some((ScramSha256, "wr0ng")), wrong),
        (password, None, Some((ScramSha512, "wr0ng")), wrong),
        (
            both,
            Some(unknown.clone()),
            Some((ScramSha512, "right")),
            "`kafka.sasl.mechanism`",
        ),
        (
            password,
            Some(unknown),
            Some((Plain, "right")),
            "leave out `kafka.tls`",
        ),
    ] {
        let subject = at(port, tls, sasl).await;
        let said = unhealthy(&*subject.driver, part).await;
        assert!(!said.contains("wr0ng") && !said.contains("right"), "{said}");
    }
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
    let job = job_in("1", "other", 0);
    subject.driver.push(vec![job]).await.unwrap();
    let came = other.next().await;
    let place = pronghorn_queue::options::place(&came.job.headers).expect("it is from Kafka");
    assert_eq!((&*place.topic, place.offset), ("other", 0));
}

#[tokio::test]
#[ignore = "Kafka is needed: `make test-brokers` runs it"]
async fn partitions_that_come_are_consumed_too() {
    let engine = start();
    let settings = pipeline(&engine, "q");
    let subject = subject(settings.clone()).await;
    subject.driver.resume();
    let job = |id: &str, partition| job_in(id, "q", partition);
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
    let place = pronghorn_queue::options::place(&came.job.headers).expect("it is from Kafka");
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
    let mut server = of_nothing(settings::server);
    server.brokers = vec![format!("127.0.0.1:{}", free_port())];
    let settings = KafkaPipeline::declared(&BTreeMap::new(), &server, "q").unwrap();
    let subject = subject(settings).await;
    unhealthy(&*subject.driver, " is away: ").await;
}
