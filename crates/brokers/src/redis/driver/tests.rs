//! Against a real Redis.

use pronghorn_queue::Driver;
use pronghorn_queue::conformance::{self, Ability, Subject, conforms};
use pronghorn_testkit::{Certificates, Engine};

use super::*;
use crate::address::BrokerAddress;
use crate::testing::{client_tls, free_port, survives_a_restart};

fn start() -> Engine {
    start_with(&[])
}

fn start_with(more: &[&str]) -> Engine {
    Engine::redis(&[&["--appendonly", "yes"], more].concat())
}

fn pipeline(engine: &Engine, queue: &str, user: &str) -> RedisPipeline {
    RedisPipeline {
        address: BrokerAddress::new(format!("redis://{user}127.0.0.1:{}", engine.port())),
        tls: BrokerTls::default(),
        queue: queue.to_owned(),
        claim_after: Duration::from_secs(1),
    }
}

fn subject(engine: &Engine, queue: &'static str) -> Subject {
    let settings = pipeline(engine, queue, "");
    let ability = Ability {
        sorts: false,
        is_shared: true,
        ..Ability::OURS
    };
    conformance::subject(ability, move |wake| open("p", &settings, wake))
}

#[tokio::test]
async fn redis_conforms() {
    let engine = start();
    conforms(|name| Box::pin(std::future::ready(subject(&engine, name)))).await;
}

#[tokio::test]
async fn the_first_server_that_claims_a_name_has_it() {
    let engine = start();
    let [first, second] =
        [(), ()].map(|()| open("p", &pipeline(&engine, "q", ""), Wake::default()));
    assert_eq!(second.claim("tick-1").await, Ok(true));
    assert_eq!(first.claim("tick-1").await, Ok(false));
    assert_eq!(first.claim("tick-2").await, Ok(true));
}

#[tokio::test]
async fn a_redis_that_goes_and_comes_loses_no_job() {
    let mut engine = start();
    let subject = subject(&engine, "q");
    survives_a_restart(&mut engine, subject).await;
}

#[tokio::test]
async fn a_redis_that_refuses_is_named_and_its_password_is_not() {
    let engine = start_with(&["--requirepass", "right"]);
    let driver = open("p", &pipeline(&engine, "q", ":wrong@"), Wake::default());
    let said = conformance::unhealthy(&driver, "Password authentication failed").await;
    let title = format!("redis at 127.0.0.1:{} is away: ", engine.port());
    assert!(said.starts_with(&title), "{said}");
    assert!(!said.contains("wrong@"), "{said}");
    let right = open("p", &pipeline(&engine, "q", ":right@"), Wake::default());
    right.push(vec![Job::default()]).await.unwrap();
}

#[tokio::test]
async fn redis_knows_this_server_by_its_certificate() {
    let (tls, certificates) = (free_port().to_string(), Certificates::new());
    let file = |name| certificates.path(name).display().to_string();
    let [cert, key, ca] = ["server.pem", "server.key", "ca.pem"].map(file);
    let engine = start_with(&[
        "--tls-port",
        &tls,
        "--tls-cert-file",
        &cert,
        "--tls-key-file",
        &key,
        "--tls-ca-cert-file",
        &ca,
        "--tls-auth-clients",
        "yes",
    ]);
    let mut settings = pipeline(&engine, "q", "");
    settings.address = BrokerAddress::new(format!("rediss://127.0.0.1:{tls}"));
    settings.tls = client_tls(&certificates, true);
    let known = open("p", &settings, Wake::default());
    known.push(vec![Job::default()]).await.unwrap();
    settings.tls = client_tls(&certificates, false);
    let unknown = open("p", &settings, Wake::default());
    conformance::unhealthy(&unknown, " is away: ").await;
    settings.tls.root_ca = None;
    let distrustful = open("p", &settings, Wake::default());
    conformance::unhealthy(
        &distrustful,
        "UnknownIssuer; name who signed its certificate in `tls.root_ca`",
    )
    .await;
}

#[tokio::test]
async fn all_jobs_in_redis_are_listed() {
    let engine = start();
    conformance::lists_all(subject(&engine, "q"), MOST_IN_PART).await;
}
