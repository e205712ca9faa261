//! Pipelines of every driver in this build, whose brokers are nowhere.

use pronghorn_metrics::Registry;
use pronghorn_testkit::Directory;

use super::*;
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
