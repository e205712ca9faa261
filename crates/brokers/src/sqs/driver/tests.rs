//! Against moto's server, which keeps queues in memory: it stays, and the way to it is closed.

use std::collections::BTreeMap;

use pronghorn_base::BoxFuture;
use pronghorn_queue::Settlement;
use pronghorn_queue::conformance::{Ability, Subject, conforms, unhealthy};
use pronghorn_testkit::Engine;

use super::*;
use crate::sqs::settings::SqsServer;
use crate::testing::{Doorway, Restart, free_port, subject_with_later, survives_a_restart, tool};

const SERVER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../e2e/moto/serve.py");

fn start() -> Engine {
    let python = tool("moto/bin/python");
    assert!(
        python.is_file(),
        "moto is there: `scripts/need moto` installs it"
    );
    Engine::start(python, |port| {
        let arguments = [SERVER, "-H", "127.0.0.1", "-p", &port.to_string()];
        arguments.map(ToOwned::to_owned).to_vec()
    })
}

fn pipeline(port: u16, queue: &str) -> SqsPipeline {
    let server = SqsServer {
        key: Some("key".to_owned()),
        secret: Some("secret".to_owned()),
        endpoint: Some(format!("http://127.0.0.1:{port}")),
        ..SqsServer::default()
    };
    let map = BTreeMap::from([("queue".to_owned(), queue.to_owned())]);
    let mut pipeline = SqsPipeline::declared(&map, &server).unwrap();
    // moto is slow: it has to hear of all jobs that are out before.
    pipeline.visibility = Duration::from_secs(60);
    pipeline
}

fn subject(settings: SqsPipeline) -> BoxFuture<'static, Subject> {
    let ability = Ability {
        sorts: false,
        is_shared: true,
        tells_oldest: false,
        most_jobs: 300,
        largest: 150_000,
        ..Ability::OURS
    };
    subject_with_later(ability, move |wake, later| {
        open("p", &settings, wake, later)
    })
}

#[tokio::test]
#[ignore = "moto's server is needed: `make test-brokers` runs it"]
async fn sqs_conforms() {
    let engine = start();
    conforms(|name| {
        let queue: String = name.chars().rev().take(80).collect();
        let mut settings = pipeline(engine.port(), &queue);
        if name == "what_is_not_settled_outlives_the_driver" {
            // The jobs of a server that is gone are another one's after that.
            settings.visibility = Duration::from_secs(2);
        }
        subject(settings)
    })
    .await;
}

#[tokio::test]
#[ignore = "moto's server is needed: `make test-brokers` runs it"]
async fn an_sqs_that_goes_and_comes_loses_no_job() {
    let engine = start();
    let mut way = Way(Doorway::to(engine.port()));
    let subject = subject(pipeline(way.0.port, "q")).await;
    survives_a_restart(&mut way, subject).await;
}

struct Way(Doorway);

impl Restart for Way {
    fn stop(&mut self) {
        self.0.close();
    }

    fn restart(&mut self) {
        self.0.open();
    }
}

#[tokio::test]
#[ignore = "moto's server is needed: `make test-brokers` runs it"]
async fn a_queue_with_an_order_keeps_it_and_takes_delays() {
    let engine = start();
    let mut settings = pipeline(engine.port(), "q.fifo");
    settings.attributes = BTreeMap::from([("delayseconds".to_owned(), "0".to_owned())]);
    let subject = subject(settings).await;
    subject.driver.resume();
    let job = |id: &str, seconds| Job {
        id: id.to_owned(),
        name: "j".to_owned(),
        delay: Duration::from_secs(seconds),
        ..Job::default()
    };
    let jobs = vec![job("late", 1), job("1", 0), job("2", 0), job("3", 0)];
    subject.driver.push(jobs).await.unwrap();
    for id in ["1", "2", "3", "late"] {
        assert_eq!(subject.ack_next().await, id);
    }
}

#[tokio::test]
#[ignore = "moto's server is needed: `make test-brokers` runs it"]
async fn a_job_that_is_given_up_stays_where_the_queue_is_to_have_it() {
    let engine = start();
    let mut settings = pipeline(engine.port(), "q");
    settings.retain_failed = true;
    settings.error_visibility = Duration::from_secs(1);
    let subject = subject(settings).await;
    subject.driver.resume();
    let job = Job {
        id: "1".to_owned(),
        ..Job::default()
    };
    subject.driver.push(vec![job]).await.unwrap();
    let taken = subject.next().await;
    let rejected = subject.driver.settle(taken.ticket, Settlement::Reject);
    rejected.await.unwrap();
    assert_eq!(subject.ack_next().await, "1");
}

#[tokio::test]
async fn a_place_that_is_no_sqs_is_told() {
    let subject = subject(pipeline(free_port(), "q")).await;
    unhealthy(&*subject.driver, " is away: ").await;
}
