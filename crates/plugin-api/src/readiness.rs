//! Whether a service can do its work right now.

use std::borrow::Cow;
use std::fmt;
use std::sync::{Arc, OnceLock};

use pronghorn_workers::{PoolHandle, PoolSet};
use thiserror::Error;
use tokio_util::sync::CancellationToken;

/// Answers for one service. Clones are the same one: the service has one, the server another.
#[derive(Clone, Default)]
pub struct Readiness(Arc<OnceLock<Probes>>);

struct Probes {
    ready: Box<Probe>,
    alive: Box<Probe>,
}

type Probe = dyn Fn() -> Result<(), NotReady> + Send + Sync;

/// What is missing, for the person who looks at the probe: `all workers are booting`.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct NotReady(pub Cow<'static, str>);

impl Readiness {
    /// From now on `probe` answers, also whether the service is alive. It is called often, from any
    /// thread, and must not wait.
    ///
    /// # Panics
    ///
    /// The second time.
    pub fn answer_with(
        &self,
        probe: impl Fn() -> Result<(), NotReady> + Clone + Send + Sync + 'static,
    ) {
        self.answer_apart(probe.clone(), probe);
    }

    /// For a service that may be alive and still not take more work: one that is full, or about to
    /// stop, is not to be restarted.
    ///
    /// # Panics
    ///
    /// The second time.
    pub fn answer_apart(
        &self,
        ready: impl Fn() -> Result<(), NotReady> + Send + Sync + 'static,
        alive: impl Fn() -> Result<(), NotReady> + Send + Sync + 'static,
    ) {
        let probes = Probes {
            ready: Box::new(ready),
            alive: Box::new(alive),
        };
        let first = self.0.set(probes).is_ok();
        assert!(first, "a service has one readiness probe");
    }

    /// For a service that does its work by pools: it is ready while all of them are and `also`
    /// says so, and until it is to stop.
    ///
    /// # Panics
    ///
    /// The second time.
    pub fn answer_by_pools(
        &self,
        pools: &PoolSet,
        stopping: CancellationToken,
        also: impl Fn() -> Result<(), String> + Send + Sync + 'static,
    ) {
        let not_ready = |why: String| NotReady(why.into());
        let (ready, alive) = (pools.clone(), pools.clone());
        self.answer_apart(
            move || {
                if stopping.is_cancelled() {
                    return Err(NotReady("stopping".into()));
                }
                let standing = ready.iter().try_for_each(PoolHandle::ready);
                standing.and_then(|()| also()).map_err(not_ready)
            },
            move || {
                let standing = alive.iter().try_for_each(PoolHandle::alive);
                standing.map_err(not_ready)
            },
        );
    }

    /// Whether the service takes work.
    ///
    /// # Errors
    ///
    /// While it can't do its work; until it has a probe, because it starts.
    pub fn check(&self) -> Result<(), NotReady> {
        (self.probes()?.ready)()
    }

    /// Whether it could, if there was less of it.
    ///
    /// # Errors
    ///
    /// While something is missing that a restart might bring; until it has a probe, because it
    /// starts.
    pub fn check_alive(&self) -> Result<(), NotReady> {
        (self.probes()?.alive)()
    }

    fn probes(&self) -> Result<&Probes, NotReady> {
        self.0.get().ok_or(NotReady(Cow::Borrowed("starting")))
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
        assert_eq!(server_side.check_alive(), Ok(()));
    }

    #[test]
    fn a_service_that_is_full_is_alive() {
        let readiness = Readiness::default();
        assert_eq!(readiness.check_alive(), Err(NotReady("starting".into())));
        readiness.answer_apart(|| Err(NotReady("full".into())), || Ok(()));
        assert_eq!(readiness.check(), Err(NotReady("full".into())));
        assert_eq!(readiness.check_alive(), Ok(()));
    }
}
