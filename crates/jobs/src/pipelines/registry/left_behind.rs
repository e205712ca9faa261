//! Pipelines of which the store has jobs, and that neither the configuration nor PHP has declared
//! with this driver: their names or drivers have changed, or they were taken out. Nothing runs
//! their jobs.

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
            match self.get(&pipeline) {
                Ok(now) if now.name == pipeline => {
                    let driver = now.driver_name;
                    tracing::warn!(target: "jobs", pipeline, driver, jobs, "the store has jobs of this pipeline, which had another driver: they wait until it has `embedded` again; `pronghorn jobs export`, `clear` and `import` move them");
                }
                _ => {
                    tracing::warn!(target: "jobs", pipeline, jobs, "the store has jobs of a pipeline that is not in the configuration: they wait until one of this name is there, or `pronghorn jobs clear` removes them");
                }
            }
        }
    }

    /// The pipelines of a name, for somebody who looks at their jobs or removes them: the declared
    /// one, and what the store has of one that was declared before.
    pub(in crate::pipelines) async fn all_of(
        &self,
        name: &str,
    ) -> Result<Vec<Arc<Pipeline>>, PipelineError> {
        let (mut all, unknown) = match self.get_open(name).await {
            Err(unknown @ PipelineError::Unknown { .. }) => (Vec::new(), Some(unknown)),
            declared => (vec![declared?], None),
        };
        let is_stored = |it: &Arc<Pipeline>| it.driver.keeper() == Keeper::Store;
        if !all.iter().any(is_stored) {
            let name = all.first().map_or(name, |it| &it.name).to_owned();
            if self.left_behind().await?.contains_key(&name) {
                all.push(self.open_left_behind(&name).await?);
            }
        }
        match unknown {
            Some(unknown) if all.is_empty() => Err(unknown),
            _ => Ok(all),
        }
    }

    /// All that were left behind.
    pub(in crate::pipelines) async fn all_left_behind(
        &self,
    ) -> Result<Vec<Arc<Pipeline>>, PipelineError> {
        let mut all = Vec::new();
        for name in self.left_behind().await?.into_keys() {
            all.push(self.open_left_behind(&name).await?);
        }
        Ok(all)
    }

    async fn open_left_behind(&self, name: &str) -> Result<Arc<Pipeline>, PipelineError> {
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
