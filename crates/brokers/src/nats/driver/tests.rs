//! Against a real NATS.

use std::collections::BTreeSet;

use pronghorn_queue::conformance::{self, Ability, Subject, conforms};
use pronghorn_queue::{Driver, DriverError};
use pronghorn_testkit::{Certificates, Engine};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::*;
use crate::address::BrokerAddress;
use crate::nats::settings;
use crate::testing::{client_tls, of_nothing, survives_a_restart};

fn start(settings: &str) -> Engine {
    let settings = settings.to_owned();
    Engine::start_with_file("nats-server", "nats.conf", move |port| {
        let text = format!(
            "listen: 127.0.0.1:{port}\njetstream {{store_dir: data}}\nmax_payload: 16MB\n{settings}\n"
        );
        (vec!["-c".to_owned(), "nats.conf".to_owned()], text)
    })
}

fn pipeline(engine: &Engine, name: &str, user: &str) -> NatsPipeline {
    pipeline_at(engine.port(), name, user)
}

fn pipeline_at(port: u16, name: &str, user: &str) -> NatsPipeline {
    let map = [
        ("subject", name),
        ("stream", name),
        ("delete_after_ack", "true"),
    ];
    let map = map.map(|(key, value)| (key.to_owned(), value.to_owned()));
    let mut settings = NatsPipeline::declared(&map.into(), &of_nothing(settings::server)).unwrap();
    let url = format!("nats://{user}127.0.0.1:{port}");
    settings.server.address = BrokerAddress::new(url);
    // Longer than what has to happen at once may take.
    settings.ack_wait = Duration::from_secs(8);
    settings
}

fn subject(engine: &Engine, name: &'static str) -> Subject {
    let settings = pipeline(engine, name, "");
    let ability = Ability {
        sorts: false,
        is_shared: true,
        tells_oldest: false,
        ..Ability::OURS
    };
    conformance::subject(ability, move |wake| open("p", &settings, wake))
}

#[tokio::test]
async fn nats_conforms() {
    let engine = start("");
    conforms(|name| Box::pin(std::future::ready(subject(&engine, name)))).await;
}

#[tokio::test]
async fn a_nats_that_goes_and_comes_loses_no_job() {
    let mut engine = start("");
    let subject = subject(&engine, "q");
    survives_a_restart(&mut engine, subject).await;
}

#[tokio::test]
async fn a_nats_that_refuses_is_named_and_its_password_is_not() {
    let engine = start("authorization {user: one, password: \"r!ght\"}");
    let wrong = open(
        "p",
        &pipeline(&engine, "q", "one:wr%40ng@"),
        Wake::default(),
    );
    let said = conformance::unhealthy(&wrong, "authorization violation").await;
    let title = format!("nats at 127.0.0.1:{} is away: ", engine.port());
    assert!(said.starts_with(&title) && !said.contains("wr"), "{said}");
    let right = open(
        "p",
        &pipeline(&engine, "q", "one:r%21ght@"),
        Wake::default(),
    );
    right.push(vec![Job::default()]).await.unwrap();
}

#[tokio::test]
async fn a_token_is_a_name_without_a_password() {
    let engine = start("authorization {token: secret}");
    let right = open("p", &pipeline(&engine, "q", "secret@"), Wake::default());
    right.push(vec![Job::default()]).await.unwrap();
}

#[tokio::test]
async fn what_can_not_be_declared_or_kept_is_said() {
    let engine = start("");
    let first = open("p", &pipeline(&engine, "q", ""), Wake::default());
    let big = Job {
        payload: vec![b'x'; 20_000_000].into(),
        ..Job::default()
    };
    let never_taken = |pushed: Result<(), DriverError>, why: &str| {
        let Err(DriverError::Unfit(said)) = pushed else {
            panic!("{pushed:?}");
        };
        assert!(said.contains(why), "{said}");
    };
    never_taken(first.push(vec![big]).await, "max payload size exceeded");
    first.push(vec![Job::default()]).await.unwrap();
    // A stream may have a limit of its own.
    let url = format!("nats://127.0.0.1:{}", engine.port());
    let context = jetstream::new(async_nats::connect(url).await.unwrap());
    let mut config = context
        .get_stream("q")
        .await
        .unwrap()
        .cached_info()
        .config
        .clone();
    config.max_message_size = 1000;
    context.update_stream(config).await.unwrap();
    let long = Job {
        payload: vec![b'x'; 2000].into(),
        ..Job::default()
    };
    never_taken(first.push(vec![long]).await, "exceeds maximum");

    let mut other = pipeline(&engine, "other", "");
    other.stream = "q".to_owned();
    let other = open("p", &other, Wake::default());
    conformance::unhealthy(&other, "stream `q` keeps the subject `q`, and not `other`").await;
}

#[tokio::test]
async fn messages_of_others_are_jobs_and_ours_are_read_by_roadrunner() {
    let engine = start("");
    let settings = pipeline(&engine, "q", "");
    let opened = settings.clone();
    let subject = conformance::subject(Ability::OURS, move |wake| {
        open("p", &opened, wake).with_priority(7)
    });
    subject.driver.resume();
    let job = Job {
        id: "1".to_owned(),
        name: "ours".to_owned(),
        payload: "hello".into(),
        headers: [("a b", "no name"), ("nats-ttl", "1s"), ("x-a", "1")]
            .map(|(name, value)| (name.to_owned(), vec![value.to_owned()]))
            .into(),
        priority: 3,
        ..Job::default()
    };
    subject.driver.push(vec![job]).await.unwrap();
    let client = async_nats::connect(settings.server.address.as_str())
        .await
        .unwrap();
    let context = jetstream::new(client);
    let stream = context.get_stream("q").await.unwrap();
    let message = stream.get_raw_message(1).await.unwrap();
    let json: serde_json::Value = serde_json::from_slice(&message.payload).unwrap();
    assert_eq!((&json["job"], &json["id"]), (&"ours".into(), &"1".into()));
    assert_eq!(
        (&json["payload"], &json["options"]["priority"]),
        (&"aGVsbG8=".into(), &3.into())
    );
    let names = message.headers.iter().map(|(name, _)| name.to_string());
    assert_eq!(names.collect::<Vec<_>>(), ["x-a"]);

    assert_eq!(subject.ack_next().await, "1");
    let mut headers = async_nats::HeaderMap::new();
    headers.append("X-Who", "somebody");
    let published = context.publish_with_headers("q", headers, "plain".into());
    published.await.unwrap().await.unwrap();
    let foreign = subject.next().await;
    assert_eq!(
        (&*foreign.job.name, &foreign.job.payload[..]),
        ("deduced_by_rr", &b"plain"[..])
    );
    assert_eq!(foreign.job.headers["X-Who"], ["somebody"]);
    assert_eq!(foreign.job.priority, 7);
}

#[tokio::test]
async fn a_stream_goes_at_a_stop_where_that_is_wished_and_else_keeps_what_is_done() {
    let engine = start("");
    let (mut kept, mut gone) = (pipeline(&engine, "kept", ""), pipeline(&engine, "gone", ""));
    kept.delete_after_ack = false;
    gone.delete_stream_on_stop = true;
    for settings in [&kept, &gone] {
        let driver = open("p", settings, Wake::default());
        driver.push(vec![Job::default()]).await.unwrap();
        let settled = settings.clone();
        let subject = conformance::subject(Ability::OURS, move |wake| open("p", &settled, wake));
        subject.driver.resume();
        subject.ack_next().await;
        driver.close().await;
    }
    let client = async_nats::connect(kept.server.address.as_str())
        .await
        .unwrap();
    let context = jetstream::new(client);
    let stream = context.get_stream("kept").await.unwrap();
    assert_eq!(stream.cached_info().state.messages, 1);
    assert!(context.get_stream("gone").await.is_err());
}

#[test]
fn a_pattern_covers_subjects() {
    for (pattern, subject) in [
        ("a", "a"),
        ("a.*", "a.b"),
        ("*.b", "a.b"),
        (">", "a"),
        ("a.>", "a.b.c"),
    ] {
        assert!(covers(pattern, subject), "{pattern} {subject}");
    }
    for (pattern, subject) in [
        ("a", "b"),
        ("a", "a.b"),
        ("a.*", "a"),
        ("a.*", "a.b.c"),
        ("a.>", "a"),
        ("a.b", "a"),
    ] {
        assert!(!covers(pattern, subject), "{pattern} {subject}");
    }
}

#[test]
fn each_subject_is_a_part_of_a_name() {
    assert_eq!(escaped("orders.mail_1"), "orders--mail_1");
    assert_eq!(escaped("a-b.c"), "a-2db--c");
    assert_eq!(escaped("ä"), "-c3-a4");
}

#[tokio::test]
async fn nats_knows_this_server_by_its_certificate() {
    let certificates = Certificates::new();
    let file = |name| certificates.path(name).display().to_string();
    let engine = start(&format!(
        "tls {{cert_file: {:?}, key_file: {:?}, ca_file: {:?}, verify: true}}",
        file("server.pem"),
        file("server.key"),
        file("ca.pem"),
    ));
    let mut settings = pipeline(&engine, "q", "");
    let url = format!("tls://127.0.0.1:{}", engine.port());
    settings.server.address = BrokerAddress::new(url);
    settings.server.tls = client_tls(&certificates, true);
    let known = open("p", &settings, Wake::default());
    known.push(vec![Job::default()]).await.unwrap();
    settings.server.tls = client_tls(&certificates, false);
    let unknown = open("p", &settings, Wake::default());
    conformance::unhealthy(&unknown, " is away: ").await;
    settings.server.tls.root_ca = None;
    let distrustful = open("p", &settings, Wake::default());
    conformance::unhealthy(
        &distrustful,
        "UnknownIssuer; name who signed its certificate in `tls.root_ca`",
    )
    .await;
}

#[tokio::test]
async fn all_jobs_in_nats_are_listed_where_those_that_are_done_leave() {
    let engine = start("");
    conformance::lists_all(subject(&engine, "q"), MOST_IN_PART).await;
    let mut kept = pipeline(&engine, "kept", "");
    kept.delete_after_ack = false;
    let driver = open("p", &kept, Wake::default());
    let refused = driver.list(None).await.unwrap_err().to_string();
    assert!(
        refused.ends_with("only with `delete_after_ack: true`"),
        "{refused}"
    );
    let refused = driver
        .list(Some(b"x".to_vec()))
        .await
        .unwrap_err()
        .to_string();
    assert_eq!(refused, "`after` is of no part of a list");
}

#[tokio::test]
async fn a_job_that_is_worked_on_stays_with_its_server() {
    let engine = start("");
    let mut settings = pipeline(&engine, "q", "");
    settings.ack_wait = Duration::from_secs(1);
    let one = settings.clone();
    let one = conformance::subject(Ability::OURS, move |wake| open("p", &one, wake));
    let two = conformance::subject(Ability::OURS, move |wake| open("p", &settings, wake));
    one.driver.resume();
    one.driver.push(vec![Job::default()]).await.unwrap();
    let taken = one.next().await;
    two.driver.resume();
    let stolen = timeout(Duration::from_secs(3), two.next()).await;
    assert!(stolen.is_err(), "it is out");
    let acked = one
        .driver
        .settle(taken.ticket, pronghorn_queue::Settlement::Ack);
    acked.await.unwrap();
}

/// Together they are longer than what is brought at once.
#[tokio::test]
async fn long_jobs_come_in_several_answers() {
    let engine = start("");
    let subject = subject(&engine, "q");
    let mut left: BTreeSet<String> = (0..7).map(|number| number.to_string()).collect();
    for id in &left {
        let job = Job {
            payload: vec![b'x'; 11 << 20].into(),
            ..conformance::job(id)
        };
        subject.driver.push(vec![job]).await.unwrap();
    }
    subject.driver.resume();
    while !left.is_empty() {
        let id = subject.ack_next().await;
        assert!(left.remove(&id), "{id} is not expected");
    }
}

/// It begins as NATS does, and then announces a message of gigabytes, of which it sends as much as
/// is taken.
#[tokio::test]
async fn a_nats_whose_message_has_no_end_is_given_up() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let mut task = JoinSet::new();
    task.spawn(async move {
        let info = br#"INFO {"server_id":"x","version":"2.10.0","max_payload":1048576,"proto":1,"headers":true}"#;
        loop {
            let (mut connection, _) = listener.accept().await.unwrap();
            connection.write_all(&[&info[..], b"\r\nPONG\r\n"].concat()).await.unwrap();
            let head = b"MSG _INBOX.x 1 4294967296\r\n";
            let mut sent = connection.write_all(head).await;
            while sent.is_ok() {
                sent = connection.write_all(&[b'x'; 1 << 14]).await;
            }
        }
    });
    let broker = NatsBroker {
        title: "nats".to_owned(),
        pipeline: "p".to_owned(),
        settings: pipeline_at(port, "q", ""),
        out: Out::default(),
    };
    let client = timeout(PATIENCE, broker.client()).await.unwrap().unwrap();
    let lost = timeout(conformance::PATIENCE, until_lost(&client)).await;
    let why = format!("it sends a message of more than {LONGEST_MESSAGE} bytes");
    assert_eq!(lost.unwrap(), BrokerError::Lost(why));
}
