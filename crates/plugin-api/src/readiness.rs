//! Whether a service can do its work right now.

use std::borrow::Cow;
use std::fmt;
use std::sync::{Arc, OnceLock};

use thiserror::Error;

/// Answers for one service. Clones are the same one: the service has one, the server another.
#[derive(Clone, Default)]
pub struct Readiness(Arc<OnceLock<Box<Probe>>>);

type Probe = dyn Fn() -> Result<(), NotReady> + Send + Sync;

/// What is missing, for the person who looks at the probe: `all workers are booting`.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct NotReady(pub Cow<'static, str>);

impl Readiness {
    /// From now on `probe` answers. It is called often, from any thread, and must not wait.
    ///
    /// # Panics
    ///
    /// The second time.
    pub fn answer_with(&self, probe: impl Fn() -> Result<(), NotReady> + Send + Sync + 'static) {
        let first = self.0.set(Box::new(probe)).is_ok();
        assert!(first, "a service has one readiness probe");
    }

    /// Asks the service.
    ///
    /// # Errors
    ///
    /// While it can't do its work; until it has a probe, because it starts.
    pub fn check(&self) -> Result<(), NotReady> {
        match self.0.get() {
            Some(probe) => probe(),
            None => Err(NotReady("starting".into())),
        }
    }
}

impl fmt::Debug for Readiness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Readiness").field(&self.check()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_is_not_ready_before_it_says_so() {
        let readiness = Readiness::default();
        let server_side = readiness.clone();
        assert_eq!(server_side.check(), Err(NotReady("starting".into())));
        readiness.answer_with(|| Ok(()));
        assert_eq!(server_side.check(), Ok(()));
    }
}
