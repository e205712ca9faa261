//! Pipelines of every driver in this build, whose brokers are nowhere.

use pronghorn_metrics::Registry;
use pronghorn_testkit::Directory;

use super::*;
use crate::batches::Last;
use crate::settings::tests::brokers_of;

const LIMIT: u64 = 1 << 20;

/// At an upgrade the old process keeps the store for as long as the new one gets ready. So a
/// pipeline that asks for it without saying so makes the upgrade fail.
#[tokio::test]
async fn a_pipeline_that_asks_for_the_store_says_so() {
    let mut seen = Vec::new();
    for driver in crate::settings::built_drivers() {
        let map = [
            ("name", "p"),
            ("driver", driver),
            ("project_id", "project"),
            ("topic", "topic"),
        ];
        let map = map.map(|(key, value)| (key.to_owned(), value.to_owned()));
        let brokers = brokers_of("{version: '3', kafka: {brokers: ['127.0.0.1:1']}}");
        let map = map.into();
        let (name, settings) = PipelineSettings::declared(&map, &brokers).expect(driver);
        let directory = Directory::new();
        let state = directory.join("state");
        let store = LazyStore::new(state.clone(), LIMIT);
        let metrics = Metrics::new(&Registry::default());
        let patience = Duration::from_secs(60);
        let pools = ["default"].into_iter();
        let pipelines = Pipelines::new(store, patience, metrics, pools, brokers);
        pipelines.declare(name, &settings).await.expect(driver);
        assert_eq!(state.exists(), settings.is_stored(), "{driver}");
        seen.push(settings.is_stored());
    }
    assert!(seen.contains(&true) && seen.contains(&false), "{seen:?}");
}

/// Jobs of batches have its end while one that is cancelled has told the others, and has its key.
#[tokio::test]
async fn a_batch_that_comes_while_a_job_is_cancelled_has_its_end() {
    let directory = Directory::new();
    let store = LazyStore::new(directory.join("state"), LIMIT);
    let metrics = Metrics::new(&Registry::default());
    let brokers = brokers_of("{version: '3'}");
    let pools = ["default"].into_iter();
    let pipelines = Pipelines::new(
        store,
        Duration::from_secs(60),
        metrics,
        pools,
        brokers.clone(),
    );
    let map = [("name", "p"), ("driver", "memory")];
    let map = map.map(|(key, value)| (key.to_owned(), value.to_owned()));
    let map = map.into();
    let (name, settings) = PipelineSettings::declared(&map, &brokers).unwrap();
    pipelines.declare(name, &settings).await.unwrap();
    let job = |id: &str, has_key: bool| Job {
        id: id.to_owned(),
        headers: has_key
            .then(|| ("pronghorn-unique".to_owned(), vec!["k".to_owned()]))
            .into_iter()
            .collect(),
        ..Job::default()
    };
    let batch = async |last: &str, part: &str| {
        let last = Last {
            pipeline: "p".to_owned(),
            job: job(last, false),
        };
        let jobs = vec![("p".to_owned(), job(part, true))];
        let duplicates = pipelines.push_batch(jobs, last).await.unwrap();
        assert_eq!(duplicates[part], "other");
    };
    let other = vec![("p".to_owned(), job("other", true))];
    pipelines.admission().push(other).await.unwrap();
    let pipeline = pipelines.registry().get("p").unwrap();
    let removed = pipeline.driver.remove(Some("other"), None).await.unwrap();
    let other = &removed.jobs[0];
    let extras = JobOptions::of(&other.headers);
    pipelines.tell_batches(other, &extras, true).await.unwrap();
    batch("last", "part").await;
    let why = Dropped::Cancelled;
    pipelines.dropped(&pipeline, other, &extras, why).await;
    let left = pipeline.driver.list(None).await.unwrap().jobs;
    let left: Vec<_> = left.iter().map(|it| &*it.job.id).collect();
    assert_eq!(left, ["last"]);
}
