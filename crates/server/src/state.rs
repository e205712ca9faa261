//! Where the server keeps what outlives it.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use pronghorn_store::{LazyStore, Surroundings, folder_of_systemd, state_folder};

/// As much as entries of the store may count. Far more than a healthy queue has, and less than a
/// disk of today.
const LIMIT: u64 = 8 << 30;

/// The state directory, which is `configured` or as the machine has it.
pub(crate) fn folder(
    configured: Option<PathBuf>,
    folder: &Path,
    environment: &[(OsString, OsString)],
) -> PathBuf {
    named(configured, folder, environment).unwrap_or_else(|| {
        state_folder(Surroundings {
            xdg_state_home: variable("XDG_STATE_HOME", environment),
            is_root: rustix::process::geteuid().is_root(),
            configuration: folder,
        })
    })
}

/// The one that the configuration or systemd names.
pub(crate) fn named(
    configured: Option<PathBuf>,
    folder: &Path,
    environment: &[(OsString, OsString)],
) -> Option<PathBuf> {
    match configured {
        Some(configured) => Some(folder.join(configured)),
        None => folder_of_systemd(variable("STATE_DIRECTORY", environment)?),
    }
}

fn variable<'a>(name: &str, environment: &'a [(OsString, OsString)]) -> Option<&'a OsStr> {
    let mut all = environment.iter().rev();
    let found = all.find(|(known, _)| known == OsStr::new(name));
    found.map(|(_, value)| value.as_os_str())
}

/// The store in the state directory. It is made when a service first needs it.
pub(crate) fn store(state: PathBuf) -> LazyStore {
    LazyStore::new(state, LIMIT)
}
