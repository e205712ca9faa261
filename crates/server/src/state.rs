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

/// The directory for PHP's answers about itself: the state directory if there is one already, else
/// that in which the user's programs keep things for themselves.
pub(crate) fn answers(state: &Path, environment: &[(OsString, OsString)]) -> Option<PathBuf> {
    if state.is_dir() {
        return Some(state.to_owned());
    }
    let directory = |name| variable(name, environment).map(Path::new);
    let absolute = |directory: &&Path| directory.is_absolute();
    let caches = directory("XDG_CACHE_HOME").filter(absolute);
    let home = || Some(directory("HOME").filter(absolute)?.join(".cache"));
    Some(caches.map(Path::to_owned).or_else(home)?.join("pronghorn"))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_in_a_state_directory_that_is_there_else_in_the_users_cache() {
        let environment = |pairs: &[(&str, &str)]| -> Vec<(OsString, OsString)> {
            let pairs = pairs.iter();
            pairs
                .map(|(name, value)| (name.into(), value.into()))
                .collect()
        };
        let both = [("XDG_CACHE_HOME", "/c"), ("HOME", "/h")];
        for (state, pairs, expected) in [
            ("/proc", &both[..], Some("/proc")),
            ("/none", &both[..], Some("/c/pronghorn")),
            ("/none", &both[1..], Some("/h/.cache/pronghorn")),
            ("/none", &[("XDG_CACHE_HOME", ""), ("HOME", "h")], None),
        ] {
            let found = answers(Path::new(state), &environment(pairs));
            assert_eq!(found, expected.map(PathBuf::from));
        }
    }
}
