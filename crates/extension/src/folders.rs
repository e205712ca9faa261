//! Where builds of the extension lie, and where a new one is put.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Folders with builds, before all others: absolute paths, separated by colons.
pub const VARIABLE: &str = "PRONGHORN_EXTENSIONS";

/// What the administrator of a machine has built, for all users.
const OF_MACHINE: &str = "/usr/local/lib/pronghorn";
/// Below a user's folder for data.
const OF_USER: &str = "pronghorn/extensions";

/// What a build is called, by what its PHP asks of extensions: `20220829-nts`.
pub fn file_name(identity: &str) -> String {
    format!("pronghorn-{identity}.so")
}

/// Where a server looks for builds, in this order: what the variable names, beside the binary,
/// where the administrator puts them, and last the user's own.
pub fn folders() -> Vec<PathBuf> {
    let mut folders: Vec<PathBuf> = Vec::new();
    let known = named().chain(beside_binary());
    for folder in known.chain([OF_MACHINE.into()]).chain(of_user()) {
        if !folders.contains(&folder) {
            folders.push(folder);
        }
    }
    folders
}

/// The first build for this identity.
pub fn find(identity: &str) -> Option<PathBuf> {
    let name = file_name(identity);
    let mut paths = folders().into_iter().map(|folder| folder.join(&name));
    paths.find(|path| path.is_file())
}

/// Where a new build goes: what the variable names, else as root for all users, else for this one.
/// None for a user without a home.
pub fn folder_to_install() -> Option<PathBuf> {
    if let Some(named) = named().next() {
        return Some(named);
    }
    if rustix::process::geteuid().is_root() {
        return Some(OF_MACHINE.into());
    }
    of_user()
}

fn named() -> impl Iterator<Item = PathBuf> {
    let named = std::env::var_os(VARIABLE).unwrap_or_default();
    let folders: Vec<PathBuf> = std::env::split_paths(&named).collect();
    folders.into_iter().filter(|folder| folder.is_absolute())
}

/// Where `make build` puts them, and where a package does. The binary may be in a folder where
/// others write, such as `/tmp`: who could have made a folder beside it, and is neither root, nor
/// the user, nor the owner of the binary, whose code runs anyway, is not trusted.
fn beside_binary() -> Vec<PathBuf> {
    let binary = std::env::current_exe().unwrap_or_default();
    let me = rustix::process::geteuid().as_raw();
    let owner = std::fs::metadata(&binary).map_or(me, |facts| facts.uid());
    let mut folders = candidates(&binary);
    folders.retain(|folder| is_trusted(folder, &[me, owner]));
    folders
}

fn candidates(binary: &Path) -> Vec<PathBuf> {
    let mut above = binary.ancestors().skip(1);
    let mut folders = Vec::new();
    folders.extend(above.next().map(|folder| folder.join("extensions")));
    if let Some(above) = above.next() {
        folders.push(above.join("extensions"));
        folders.push(above.join("lib/pronghorn"));
    }
    folders
}

/// `HOME` may name a stranger's folder after `sudo` or `su`. Root has none.
fn of_user() -> Option<PathBuf> {
    let user = rustix::process::geteuid();
    if user.is_root() {
        return None;
    }
    let variable = |name| std::env::var_os(name).map(PathBuf::from);
    let folder = data_folder(variable("XDG_DATA_HOME"), variable("HOME"))?;
    is_trusted(&folder, &[user.as_raw()]).then_some(folder)
}

fn data_folder(data: Option<PathBuf>, home: Option<PathBuf>) -> Option<PathBuf> {
    let data = data.filter(|folder| folder.is_absolute());
    let home = home.filter(|folder| folder.is_absolute());
    let data = data.or_else(|| home.map(|home| home.join(".local/share")))?;
    Some(data.join(OF_USER))
}

/// Code from there runs in workers, so it must be root's or one of these users'. A folder that is
/// not there is no danger.
fn is_trusted(folder: &Path, users: &[u32]) -> bool {
    std::fs::metadata(folder).map_or(true, |facts| {
        facts.mode() & 0o002 == 0 && (facts.uid() == 0 || users.contains(&facts.uid()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_users_builds_are_with_the_users_data() {
        let path = |text: &str| Some(PathBuf::from(text));
        assert_eq!(
            data_folder(path("/d"), path("/h")),
            path("/d/pronghorn/extensions")
        );
        assert_eq!(
            data_folder(path("d"), path("/h")),
            path("/h/.local/share/pronghorn/extensions")
        );
        assert_eq!(data_folder(None, path("h")), None);
    }

    #[test]
    fn a_folder_that_others_may_change_is_not_a_users_own() {
        let folder = std::env::temp_dir().join(format!("pronghorn-trust-{}", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        let me = rustix::process::geteuid().as_raw();
        assert!(is_trusted(&folder, &[me]));
        if me != 0 {
            assert!(!is_trusted(&folder, &[me + 1]));
        }
        std::fs::set_permissions(&folder, PermissionsExt::from_mode(0o777)).unwrap();
        assert!(!is_trusted(&folder, &[me]));
        std::fs::remove_dir(&folder).unwrap();
        assert!(is_trusted(&folder, &[me]), "it is not there");
    }

    #[test]
    fn builds_are_looked_for_beside_and_above_the_binary() {
        assert_eq!(
            candidates(Path::new("/opt/bin/pronghorn")),
            [
                "/opt/bin/extensions",
                "/opt/extensions",
                "/opt/lib/pronghorn"
            ]
            .map(PathBuf::from)
        );
    }

    #[test]
    fn a_build_is_named_by_what_its_php_asks_for() {
        assert_eq!(file_name("20220829-nts"), "pronghorn-20220829-nts.so");
    }
}
