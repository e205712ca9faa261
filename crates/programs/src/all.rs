//! The programs of all services.

use std::sync::{Arc, Mutex};

use pronghorn_base::lock;
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use crate::program::Program;
use crate::programs::{Programs, ProgramsError};

/// The programs of a server, whichever service has them. Clones are the same ones.
#[derive(Clone, Debug, Default)]
pub struct AllPrograms(
    Arc<Mutex<Vec<Programs>>>,
    /// Starts that somebody has asked for; they end with the server.
    Arc<Mutex<JoinSet<()>>>,
);

impl AllPrograms {
    /// Adds those of a service that starts. Says whether it is the first one.
    pub(crate) fn add(&self, programs: &Programs) -> bool {
        let mut services = lock(&self.0);
        services.push(programs.clone());
        services.len() == 1
    }

    /// Does something that goes on after its caller; what it gives is ready when that is done.
    pub(crate) fn begin(
        &self,
        work: impl Future<Output = ()> + Send + 'static,
    ) -> oneshot::Receiver<()> {
        let (done, is_done) = oneshot::channel();
        let mut begun = lock(&self.1);
        while begun.try_join_next().is_some() {}
        begun.spawn(async move {
            work.await;
            _ = done.send(()); // nobody may wait any more
        });
        is_done
    }

    pub(crate) fn all(&self) -> Vec<Arc<Program>> {
        lock(&self.0).iter().flat_map(Programs::all).collect()
    }

    /// The program of this name, of the first service that has one.
    pub(crate) fn get(&self, name: &str) -> Result<Arc<Program>, ProgramsError> {
        let services = lock(&self.0);
        let found = services.iter().find_map(|programs| programs.get(name).ok());
        found.ok_or_else(|| ProgramsError::Unknown(name.to_owned()))
    }
}
