//! The programs of all services.

use std::sync::{Arc, Mutex};

use pronghorn_base::lock;

use crate::program::Program;
use crate::programs::{Programs, ProgramsError};

/// The programs of a server, whichever service has them. Clones are the same ones.
#[derive(Clone, Debug, Default)]
pub struct AllPrograms(Arc<Mutex<Vec<Programs>>>);

impl AllPrograms {
    /// Adds those of a service that starts. Says whether it is the first one.
    pub(crate) fn add(&self, programs: &Programs) -> bool {
        let mut services = lock(&self.0);
        services.push(programs.clone());
        services.len() == 1
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
