//! Where the server keeps what outlives it.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use pronghorn_store::{LazyStore, Surroundings, state_folder};

/// As much as entries of the store may count. Far more than a healthy queue has, and less than a
/// disk of today.
const LIMIT: u64 = 8 << 30;

/// The state directory, which is `configured` or as the machine has it.
pub(crate) fn folder(
    configured: Option<PathBuf>,
    folder: &Path,
    environment: &[(OsString, OsString)],
) -> PathBuf {
    let variable = |name: &str| {
        let mut all = environment.iter().rev();
        let found = all.find(|(known, _)| known == OsStr::new(name));
        found.map(|(_, value)| value.as_os_str())
    };
    let of_machine = || {
        state_folder(Surroundings {
            state_directory: variable("STATE_DIRECTORY"),
            xdg_state_home: variable("XDG_STATE_HOME"),
            is_root: rustix::process::geteuid().is_root(),
            configuration: folder,
        })
    };
    configured.map_or_else(of_machine, |configured| folder.join(configured))
}

/// The store in the state directory. It is made when a service first needs it.
pub(crate) fn store(state: PathBuf) -> LazyStore {
    LazyStore::new(state, LIMIT)
}
