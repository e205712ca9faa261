//! Against a real Redis.

use std::collections::BTreeSet;

use pronghorn_queue::conformance::{self, Ability, Subject, conforms, job};
use pronghorn_queue::{Driver, Settlement};
use pronghorn_redis::{RedisAddress, Tls};
use pronghorn_testkit::{Certificates, Engine, wait_for};

use super::*;
use crate::testing::{Restart, client_tls, free_port, says, survives_a_restart};

/// A Redis that is killed has on its disk what it has answered.
const DURABLE: [&str; 4] = ["--appendonly", "yes", "--appendfsync", "always"];

fn start() -> Engine {
    start_with(&[])
}

fn start_with(more: &[&str]) -> Engine {
    Engine::redis(&[&DURABLE[..], more].concat())
}

fn at(redis: RedisSettings, queue: &str) -> RedisPipeline {
    RedisPipeline {
        redis,
        queue: queue.to_owned(),
        claim_after: Duration::from_secs(1),
    }
}

fn pipeline(engine: &Engine, queue: &str, user: &str) -> RedisPipeline {
    let url = format!("redis://{user}127.0.0.1:{}", engine.port());
    at(RedisSettings::from_url(&url).unwrap(), queue)
}

/// A cluster by its nodes, or a master by its sentinel.
fn several(engines: &[Engine], master_name: Option<&str>) -> RedisPipeline {
    let address = |engine: &Engine| RedisAddress::Tcp("127.0.0.1".to_owned(), engine.port());
    let settings = RedisSettings {
        master_name: master_name.map(ToOwned::to_owned),
        ..RedisSettings::at(engines.iter().map(address).collect())
    };
    at(settings, "q")
}

fn subject(engine: &Engine, queue: &'static str) -> Subject {
    subject_at(pipeline(engine, queue, ""))
}

fn subject_at(settings: RedisPipeline) -> Subject {
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
    let title = format!("the Redis at 127.0.0.1:{} is away: ", engine.port());
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
    let _engine = start_with(&[
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
    let url = format!("rediss://127.0.0.1:{tls}");
    let with = |tls| {
        let redis = RedisSettings::from_url(&url).unwrap();
        let settings = RedisSettings {
            tls: Some(tls),
            ..redis
        };
        open("p", &at(settings, "q"), Wake::default())
    };
    with(client_tls(&certificates, true))
        .push(vec![Job::default()])
        .await
        .unwrap();
    let unknown = with(client_tls(&certificates, false));
    conformance::unhealthy(&unknown, " is away: ").await;
    let distrustful = with(Tls {
        root_ca: None,
        ..client_tls(&certificates, false)
    });
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

/// Two of them are longer than what is brought at once; all come.
#[tokio::test]
async fn long_jobs_come_in_several_replies() {
    let engine = start();
    let subject = subject(&engine, "q");
    let long = |id: &str| Job {
        payload: vec![b'x'; 12 << 20].into(),
        ..job(id)
    };
    let mut left: BTreeSet<String> = (0..7).map(|number| number.to_string()).collect();
    for id in &left {
        subject.driver.push(vec![long(id)]).await.unwrap();
    }
    subject.driver.resume();
    while !left.is_empty() {
        let id = subject.ack_next().await;
        assert!(left.remove(&id), "{id} is not expected");
    }
}

/// Nobody pushes such a job here: somebody else has written it.
#[tokio::test]
async fn an_entry_that_is_longer_than_any_job_has_no_payload() {
    let engine = start();
    let subject = subject(&engine, "q");
    subject.push([job("first")]).await;
    let script = "redis.call('XADD', 'pronghorn:{q}', '*', 'job', string.rep('x', 50400000))";
    engine.redis_cli(&["eval", script, "0"]);
    subject.push([job("last")]).await;
    subject.driver.resume();
    let mut left = BTreeSet::from(["first", "", "last"].map(ToOwned::to_owned));
    while !left.is_empty() {
        let delivery = subject.next().await;
        let id = &delivery.job.id;
        assert!(left.remove(id), "{id} is not expected");
        assert!(delivery.job.payload.is_empty());
        let acked = subject.driver.settle(delivery.ticket, Settlement::Ack);
        assert_eq!(acked.await, Ok(()));
    }
    assert_eq!(subject.driver.health(), Ok(()));
}

#[tokio::test]
async fn a_redis_that_announces_gigabytes_is_given_up() {
    let (port, _task) = says(b"$4294967296\r\n").await;
    let redis = RedisSettings::at(vec![RedisAddress::Tcp("127.0.0.1".to_owned(), port)]);
    let driver = open("p", &at(redis, "q"), Wake::default());
    let bound = format!("a reply takes more than {LONGEST_REPLY} bytes");
    conformance::unhealthy(&driver, &bound).await;
}

#[tokio::test]
async fn a_redis_whose_keys_are_gone_is_not_away() {
    let engine = Engine::redis(&[]);
    let subject = subject(&engine, "q");
    subject.driver.resume();
    for number in 0..3 {
        let id = number.to_string();
        subject.push([job(&id)]).await;
        assert_eq!(subject.ack_next().await, id);
        assert_eq!(engine.redis_cli(&["flushall"]), "OK");
        subject.stat(0, 0, 0).await;
        assert_eq!(subject.driver.health(), Ok(()));
    }
    subject.push([job("more")]).await;
    assert_eq!(subject.ack_next().await, "more");
}

/// A node of a cluster: the one that has the jobs.
struct OneOf {
    nodes: [Engine; 3],
    which: usize,
}

impl Restart for OneOf {
    fn stop(&mut self) {
        self.nodes[self.which].stop();
    }

    fn restart(&mut self) {
        self.nodes[self.which].restart();
    }
}

#[tokio::test]
async fn a_cluster_loses_no_job_with_a_node() {
    let nodes = Engine::redis_cluster(&DURABLE);
    let settings = several(&nodes, None);
    let slot = nodes[0].redis_cli(&["cluster", "keyslot", "pronghorn:{q}"]);
    let which = slot.parse::<usize>().expect("a number") / 5461;
    let mut cluster = OneOf { nodes, which };
    survives_a_restart(&mut cluster, subject_at(settings.clone())).await;
    conforms(|name| {
        let settings = RedisPipeline {
            queue: name.to_owned(),
            ..settings.clone()
        };
        Box::pin(std::future::ready(subject_at(settings)))
    })
    .await;
}

#[tokio::test]
async fn jobs_go_on_at_the_master_that_sentinels_name_next() {
    let mut master = start();
    let port = master.port().to_string();
    let replica = start_with(&["--replicaof", "127.0.0.1", &port]);
    wait_for("the replica to follow", || {
        let info = replica.redis_cli(&["info", "replication"]);
        info.contains("master_link_status:up").then_some(())
    });
    let sentinel = Engine::redis_sentinel(&master);
    wait_for("the sentinel to know the replica", || {
        let known = sentinel.redis_cli(&["sentinel", "replicas", "main"]);
        known.contains(&replica.port().to_string()).then_some(())
    });
    let settings = several(std::slice::from_ref(&sentinel), Some("main"));
    let subject = subject_at(settings);
    subject.driver.resume();
    subject.push([job("out"), job("a")]).await;
    let out = subject.next().await;
    assert_eq!(out.job.id, "out");
    wait_for("the replica to have both", || {
        let length = replica.redis_cli(&["xlen", "pronghorn:{q}"]);
        let out = replica.redis_cli(&["xpending", "pronghorn:{q}", GROUP]);
        (length == "2" && out.starts_with('2')).then_some(())
    });
    master.stop();
    let ack = subject.driver.settle(out.ticket, Settlement::Ack);
    let acked = timeout(conformance::PATIENCE, ack).await;
    assert_eq!(acked.expect("it is settled at last"), Ok(()));
    subject.push([job("b")]).await;
    assert_eq!(subject.ack_next().await, "a");
    assert_eq!(subject.ack_next().await, "b");
    subject.stat(0, 0, 0).await;
}
