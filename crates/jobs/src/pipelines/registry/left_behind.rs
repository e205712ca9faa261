//! Pipelines of which the store has jobs, and that neither the configuration nor PHP has declared:
//! their names have changed, or they were taken out. Nothing runs their jobs.

use std::collections::BTreeMap;
use std::sync::Arc;

use pronghorn_queue::{Keeper, Stored, Wake};

use super::Registry;
use crate::pipelines::error::PipelineError;
use crate::pipelines::pipeline::Pipeline;
use crate::rules::Rules;
use crate::settings::{DriverSettings, PRIORITY, PipelineSettings};

impl Registry {
    /// Those that there are; none where there is no store.
    pub(crate) async fn left_behind(&self) -> Result<BTreeMap<String, Stored>, PipelineError> {
        let Some(store) = self.0.store.get_if_there().await else {
            return Ok(BTreeMap::new());
        };
        let mut stored = pronghorn_queue::stored(&store?).await?;
        // First: what is not being opened any more is among the others.
        stored.retain(|name, _| !self.is_opening(name));
        for pipeline in self.all() {
            if pipeline.driver.keeper() == Keeper::Store {
                stored.remove(&pipeline.name);
            }
        }
        Ok(stored)
    }

    pub(crate) async fn warn_of_left_behind(&self) {
        // What is wrong with the store is told by who needs it.
        for (pipeline, stored) in self.left_behind().await.unwrap_or_default() {
            let jobs = stored.ready + stored.delayed;
            tracing::warn!(target: "jobs", pipeline, jobs, "the store has jobs of a pipeline that is not in the configuration: they wait until one of this name is there, or `pronghorn jobs clear` removes them");
        }
    }

    /// Also one that was left behind, for somebody who looks at its jobs or removes them.
    pub(in crate::pipelines) async fn get_or_left_behind(
        &self,
        name: &str,
    ) -> Result<Arc<Pipeline>, PipelineError> {
        let unknown = match self.get_open(name).await {
            Err(unknown @ PipelineError::Unknown { .. }) => unknown,
            known => return known,
        };
        if !self.left_behind().await?.contains_key(name) {
            return Err(unknown);
        }
        let store = self.0.store.get().await?;
        let driver = self.0.stored.open(name, store).await?;
        let settings = PipelineSettings {
            driver: DriverSettings::Embedded { is_boltdb: false },
            priority: PRIORITY,
            pool: String::new(),
            rules: Rules::default(),
        };
        let metrics = self.0.metrics.of_pipeline(name);
        let pipeline = Pipeline::new(name, &settings, Arc::new(driver), metrics, Wake::default());
        Ok(Arc::new(pipeline))
    }
}
