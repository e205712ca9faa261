//! Processes that services keep running and that are no workers, for whoever shows them: commands,
//! RPC, the admin listener.

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use pronghorn_base::lock;

/// One process, or the place of one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProcessReport {
    /// The name of the program that it belongs to.
    pub group: String,
    /// Its place there.
    pub index: u32,
    /// 0 where there is no process at the moment.
    pub pid: u32,
    /// In a word.
    pub state: String,
    /// As it was written.
    pub command: String,
    /// The start of the process, since 1970.
    pub started: Duration,
    /// The number of processes so far.
    pub starts: u64,
    /// Resident bytes.
    pub memory: u64,
    /// Processor time since its start.
    pub cpu: Duration,
}

type Source = Arc<dyn Fn() -> Vec<ProcessReport> + Send + Sync>;

/// The processes of a server, by the services that have them. Clones are the same ones.
#[derive(Clone, Default)]
pub struct Processes(Arc<Mutex<Vec<(&'static str, Source)>>>);

impl Processes {
    /// The service that has some says how they are asked. It is asked on any thread, and must not
    /// wait.
    pub fn answer_with(
        &self,
        service: &'static str,
        source: impl Fn() -> Vec<ProcessReport> + Send + Sync + 'static,
    ) {
        lock(&self.0).push((service, Arc::new(source)));
    }

    /// The services that have some.
    #[must_use]
    pub fn services(&self) -> Vec<&'static str> {
        lock(&self.0).iter().map(|(service, _)| *service).collect()
    }

    /// The processes of a service. None where it has none, or there is no such service.
    #[must_use]
    pub fn of(&self, service: &str) -> Option<Vec<ProcessReport>> {
        let found = lock(&self.0)
            .iter()
            .find(|(known, _)| *known == service)
            .map(|(_, source)| source.clone());
        found.map(|source| source())
    }
}

impl fmt::Debug for Processes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Processes").field(&self.services()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_are_those_of_their_service() {
        let processes = Processes::default();
        assert_eq!(processes.of("service"), None);
        processes.answer_with("service", || vec![ProcessReport::default()]);
        assert_eq!(processes.services(), ["service"]);
        assert_eq!(
            processes.of("service"),
            Some(vec![ProcessReport::default()])
        );
        assert_eq!(processes.of("http"), None);
    }
}
