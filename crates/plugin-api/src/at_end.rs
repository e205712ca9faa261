//! What services leave open for others until all of them have stopped, or another process has it.

use std::fmt;
use std::sync::{Arc, Mutex};

use pronghorn_base::{BoxFuture, lock};

use crate::rpc::Forward;

type Step = Box<dyn FnOnce(Option<Forward>) -> BoxFuture<'static, ()> + Send>;

/// Steps for the end of the server. Clones are the same ones.
#[derive(Clone, Default)]
pub struct AtEnd(Arc<Mutex<Vec<Step>>>);

impl AtEnd {
    /// Adds a step, which comes when all services have stopped. Where another process has taken
    /// over, it begins with the stop, waits for what its service has under way, and lets go of what
    /// that process waits for: calls go there from then on.
    pub fn add<F: Future<Output = ()> + Send + 'static>(
        &self,
        step: impl FnOnce(Option<Forward>) -> F + Send + 'static,
    ) {
        lock(&self.0).push(Box::new(|to| Box::pin(step(to))));
    }

    /// Carries out all steps, one after another.
    pub async fn carry_out(&self, successor: Option<Forward>) {
        let steps = std::mem::take(&mut *lock(&self.0));
        for step in steps {
            step(successor.clone()).await;
        }
    }
}

impl fmt::Debug for AtEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("AtEnd").field(&lock(&self.0).len()).finish()
    }
}
