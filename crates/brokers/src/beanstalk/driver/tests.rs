//! Against a real beanstalkd.

use pronghorn_queue::conformance::{self, Ability, Subject, conforms};
use pronghorn_queue::{Driver, DriverError};
use pronghorn_testkit::Engine;

use super::*;
use crate::address::BrokerAddress;
use crate::beanstalk::settings::BeanstalkServer;
use crate::testing::survives_a_restart;

fn start(more: &[&str]) -> Engine {
    Engine::start("beanstalkd", |port| {
        let mut arguments = vec!["-p".to_owned(), port.to_string()];
        let fixed = ["-l", "127.0.0.1", "-b", "."];
        arguments.extend(fixed.iter().chain(more).map(|text| (*text).to_owned()));
        arguments
    })
}

fn pipeline(engine: &Engine, tube: &str) -> BeanstalkPipeline {
    let url = format!("tcp://127.0.0.1:{}", engine.port());
    BeanstalkPipeline {
        server: BeanstalkServer {
            address: BrokerAddress::new(url),
            timeout: Duration::from_secs(10),
        },
        tube: tube.to_owned(),
    }
}

fn subject(engine: &Engine, tube: &'static str) -> Subject {
    let settings = pipeline(engine, tube);
    let ability = Ability {
        sorts: false,
        is_shared: true,
        most_reserved: 50,
        shortest_delay: Duration::from_secs(1),
        longest_delay: Duration::from_secs(u32::MAX.into()),
        tells_oldest: false,
        ..Ability::OURS
    };
    conformance::subject(ability, move |wake| open("p", &settings, wake))
}

#[tokio::test]
async fn beanstalk_conforms() {
    let engine = start(&["-z", "20000000"]);
    conforms(|name| Box::pin(std::future::ready(subject(&engine, name)))).await;
}

#[tokio::test]
async fn a_beanstalkd_that_goes_and_comes_loses_no_job() {
    let mut engine = start(&[]);
    let subject = subject(&engine, "q");
    survives_a_restart(&mut engine, subject).await;
}

#[tokio::test]
async fn a_job_that_is_too_big_for_beanstalkd_is_refused_and_the_connection_goes_on() {
    let engine = start(&[]);
    let driver = open("p", &pipeline(&engine, "q"), Wake::default());
    let big = Job {
        payload: vec![b'x'; 100_000].into(),
        ..Job::default()
    };
    let Err(DriverError::Unfit(refused)) = driver.push(vec![big]).await else {
        panic!("it is never taken")
    };
    assert!(refused.contains("its option `-z` allows more"), "{refused}");
    driver.push(vec![Job::default()]).await.unwrap();
    assert_eq!(driver.stat().await.unwrap().active, 1);
}
