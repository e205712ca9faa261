//! Against a real nsqd.

use std::collections::BTreeMap;

use pronghorn_base::now_ms;
use pronghorn_queue::conformance::{self, Ability, Subject, conforms};
use pronghorn_queue::{Driver, DriverError};
use pronghorn_testkit::{Certificates, Engine};

use super::*;
use crate::nsq::settings;
use crate::testing::{client_tls, free_port, of_nothing, survives_a_restart, tool};
use crate::tls::BrokerTls;

/// An nsqd, and where its HTTP is. It writes what it has in memory when it ends in order, and loses
/// it when it is killed.
fn start(more: &[&str]) -> (Engine, u16) {
    let http = free_port();
    let mut engine = Engine::start(tool("nsqd"), |port| {
        let addresses = [
            format!("-tcp-address=127.0.0.1:{port}"),
            format!("-http-address=127.0.0.1:{http}"),
        ];
        let fixed = ["-data-path=.", "-max-msg-size=20000000"];
        let fixed = fixed.iter().chain(more).map(|text| (*text).to_owned());
        addresses.into_iter().chain(fixed).collect()
    });
    engine.ends_in_order();
    (engine, http)
}

fn pipeline(engine: &Engine, http: u16, topic: &str) -> NsqPipeline {
    let mut server = of_nothing(settings::server);
    server.address = format!("127.0.0.1:{}", engine.port());
    server.http_address = Some(format!("127.0.0.1:{http}"));
    server.write_timeout = Duration::from_secs(30);
    server.dial_timeout = Duration::from_secs(30);
    NsqPipeline::declared(&BTreeMap::new(), &server, topic).unwrap()
}

fn subject(settings: &NsqPipeline) -> Subject {
    let settings = settings.clone();
    let ability = Ability {
        sorts: false,
        is_shared: true,
        most_reserved: 2000,
        // It looks for new channels every five seconds.
        lateness: Duration::from_secs(7),
        tells_oldest: false,
        ..Ability::OURS
    };
    conformance::subject(ability, move |wake| open("p", &settings, wake))
}

#[tokio::test]
async fn nsq_conforms() {
    let (engine, http) = start(&["-max-body-size=60000000"]);
    conforms(|name| {
        // nsqd takes 64 letters, and some tests have longer names.
        let topic: String = name.chars().rev().take(64).collect();
        let subject = subject(&pipeline(&engine, http, &topic));
        Box::pin(std::future::ready(subject))
    })
    .await;
}

#[tokio::test]
async fn an_nsqd_that_goes_and_comes_loses_no_job() {
    let (mut engine, http) = start(&[]);
    let subject = subject(&pipeline(&engine, http, "q"));
    survives_a_restart(&mut engine, subject).await;
}

#[tokio::test]
async fn a_job_that_nsqd_refuses_is_told_and_the_next_one_is_taken() {
    let (engine, http) = start(&["-max-body-size=1000000", "-max-req-timeout=1m"]);
    let driver = open("p", &pipeline(&engine, http, "q"), Wake::default());
    let big = Job {
        payload: vec![b'x'; 2_000_000].into(),
        ..Job::default()
    };
    let late = Job {
        delay: Duration::from_mins(2),
        ..Job::default()
    };
    for (job, code) in [(big, "E_BAD_BODY"), (late, "E_INVALID")] {
        let Err(DriverError::Unfit(refused)) = driver.push(vec![job]).await else {
            panic!("it is never taken")
        };
        let title = format!("nsq at 127.0.0.1:{}: {code}", engine.port());
        assert!(refused.starts_with(&title), "{refused}");
    }
    driver.push(vec![Job::default()]).await.unwrap();
    assert_eq!(driver.stat().await.unwrap().active, 1);
}

#[tokio::test]
async fn without_its_http_jobs_go_on_and_are_not_counted() {
    let (engine, _http) = start(&[]);
    let settings = pipeline(&engine, free_port(), "q");
    let subject = subject(&settings);
    subject.driver.resume();
    subject.driver.push(vec![Job::default()]).await.unwrap();
    let refused = subject.driver.stat().await.unwrap_err().to_string();
    assert!(refused.contains("`nsq.http_addr`"), "{refused}");
    subject.ack_next().await;
    assert_eq!(subject.driver.health(), Ok(()));
}

#[tokio::test]
async fn a_job_that_waits_for_longer_than_nsqd_keeps_it_is_given_back_until_its_time() {
    let (engine, http) = start(&[]);
    let subject = subject(&pipeline(&engine, http, "q"));
    let job = Job {
        id: "1".to_owned(),
        ..Job::default()
    };
    // The job is as nsqd gives it after an hour, with a little time left.
    let body = item::write(&job, "p", Some(now_ms() + 1500));
    let broker = NsqBroker {
        title: "nsq".to_owned(),
        pipeline: "p".to_owned(),
        settings: pipeline(&engine, http, "q"),
    };
    let link = connected(&broker).await;
    link.publish_several(&[body]).await.unwrap();
    let pushed = tokio::time::Instant::now();
    subject.driver.resume();
    assert_eq!(subject.ack_next().await, "1");
    let took = pushed.elapsed();
    assert!(took >= Duration::from_millis(1400), "{took:?}");
}

#[tokio::test]
async fn jobs_come_from_each_nsqd_that_nsqlookupd_names() {
    let lookup_tcp = free_port();
    let lookupd = Engine::start(tool("nsqlookupd"), |port| {
        vec![
            format!("-http-address=127.0.0.1:{port}"),
            format!("-tcp-address=127.0.0.1:{lookup_tcp}"),
        ]
    });
    let known = format!("-lookupd-tcp-address=127.0.0.1:{lookup_tcp}");
    let known = [&*known, "-broadcast-address=127.0.0.1"];
    let (near, http) = start(&known);
    let (mut far, far_http) = start(&known);
    let mut settings = pipeline(&near, http, "q");
    settings.server.lookupd = vec![format!("127.0.0.1:{}", lookupd.port())];
    settings.server.lookupd_poll_interval = Duration::from_millis(200);
    let subject = subject(&settings);
    let there = open("p", &pipeline(&far, far_http, "q"), Wake::default());
    let job = |id: &str| Job {
        id: id.to_owned(),
        ..Job::default()
    };
    there.push(vec![job("far")]).await.unwrap();
    subject.driver.resume();
    assert_eq!(subject.ack_next().await, "far");
    subject.driver.push(vec![job("near")]).await.unwrap();
    assert_eq!(subject.ack_next().await, "near");
    far.stop();
    subject.driver.push(vec![job("after")]).await.unwrap();
    assert_eq!(subject.ack_next().await, "after");
}

#[tokio::test]
async fn nsqd_is_spoken_to_with_tls() {
    let certificates = Certificates::new();
    let file = |name| certificates.path(name).display().to_string();
    let arguments = [
        format!("-tls-cert={}", file("server.pem")),
        format!("-tls-key={}", file("server.key")),
        format!("-tls-root-ca-file={}", file("ca.pem")),
        "-tls-required=true".to_owned(),
        "-tls-client-auth-policy=require-verify".to_owned(),
    ];
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let (engine, http) = start(&arguments);
    let mut settings = pipeline(&engine, http, "q");
    settings.server.tls = Some(client_tls(&certificates, true));
    let subject = subject(&settings);
    subject.driver.resume();
    subject.driver.push(vec![Job::default()]).await.unwrap();
    subject.ack_next().await;
    for has_identity in [false, true] {
        let mut other = settings.clone();
        other.server.tls = has_identity.then(|| client_tls(&certificates, false));
        let other = open("p", &other, Wake::default());
        conformance::unhealthy(&other, " is away: ").await;
    }
}

#[tokio::test]
async fn an_nsqd_without_a_certificate_is_told() {
    let (engine, http) = start(&[]);
    let mut settings = pipeline(&engine, http, "q");
    settings.server.tls = Some(BrokerTls::default());
    let driver = open("p", &settings, Wake::default());
    conformance::unhealthy(&driver, "`nsq.tls` asks for one").await;
}

/// nsqd may not listen yet.
async fn connected(broker: &NsqBroker) -> NsqLink {
    loop {
        if let Ok(link) = broker.connect().await {
            return link;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
