//! How the server is, for those who decide whether to send requests here, or to restart it.
//!
//! Reads what is known and waits for nothing, so that a server that is full still answers.

use std::sync::{Arc, OnceLock};

use tokio_util::sync::CancellationToken;

use crate::processes::Processes;
use crate::queues::Queues;
use crate::readiness::{NotReady, Readiness};

/// All services that health checks ask after. Clones are the same one.
#[derive(Clone, Debug, Default)]
pub struct Health {
    services: Arc<OnceLock<Vec<(&'static str, Readiness)>>>,
    queues: Queues,
    processes: Processes,
    leaving: CancellationToken,
}

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Question {
    /// Whether the service does its work at all.
    Alive,
    /// Whether it should get more of it.
    Ready,
}

impl Health {
    /// Before the first of them starts.
    pub fn watch(&self, services: Vec<(&'static str, Readiness)>) {
        _ = self.services.set(services); // the server starts once
    }

    /// The queues of the service that has some.
    #[must_use]
    pub fn queues(&self) -> &Queues {
        &self.queues
    }

    /// Processes of services that are no workers.
    #[must_use]
    pub fn processes(&self) -> &Processes {
        &self.processes
    }

    /// From now on nothing is ready, because the server is about to stop.
    pub fn leave(&self) {
        self.leaving.cancel();
    }

    /// Whether the server is about to stop.
    #[must_use]
    pub fn is_leaving(&self) -> bool {
        self.leaving.is_cancelled()
    }

    /// The services that are asked after.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        self.services
            .get()
            .into_iter()
            .flatten()
            .map(|(name, _)| *name)
    }

    /// None when there is no such service, or nobody asks after it.
    pub fn ask(&self, question: Question, name: &str) -> Option<Result<(), NotReady>> {
        let services = self.services.get()?;
        let (_, readiness) = services.iter().find(|(known, _)| *known == name)?;
        Some(match question {
            Question::Alive => readiness.check_alive(),
            Question::Ready if self.is_leaving() => Err(NotReady("the server is stopping".into())),
            Question::Ready => readiness.check(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_leaves_is_alive_and_not_ready() {
        let health = Health::default();
        assert_eq!(health.ask(Question::Ready, "http"), None);
        let http = Readiness::default();
        health.watch(vec![("http", http.clone())]);
        assert_eq!(health.names().collect::<Vec<_>>(), ["http"]);
        let starting = Some(Err(NotReady("starting".into())));
        assert_eq!(health.ask(Question::Alive, "http"), starting);
        http.answer_with(|| Ok(()));
        assert_eq!(health.ask(Question::Ready, "http"), Some(Ok(())));
        assert_eq!(health.ask(Question::Ready, "jobs"), None);
        health.leave();
        assert!(
            health
                .ask(Question::Ready, "http")
                .is_some_and(|answer| answer.is_err())
        );
        assert_eq!(health.ask(Question::Alive, "http"), Some(Ok(())));
    }
}
