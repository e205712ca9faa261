//! Where builds of the extension lie, and where a new one is put.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pronghorn_base::Trusted;
use rustix::fs::OFlags;

/// Folders with builds, before all others: absolute paths, separated by colons.
pub const VARIABLE: &str = "PRONGHORN_EXTENSIONS";

/// What the administrator of a machine has built, for all users.
const OF_MACHINE: &str = "/usr/local/lib/pronghorn";
/// Below a user's folder for data.
const OF_USER: &str = "pronghorn/extensions";

/// A build, held open: what a PHP loads by its descriptor is what was judged here, wherever its
/// path leads by then.
#[derive(Clone, Debug)]
pub struct Build {
    path: PathBuf,
    file: Arc<File>,
}

/// A folder where builds may lie.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Place {
    folder: PathBuf,
    /// None: the operator has named it.
    trusted: Option<Trusted>,
}

impl Build {
    /// For people.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// To be passed to the PHP that loads it.
    ///
    /// # Errors
    ///
    /// When there is no descriptor left.
    pub fn descriptor(&self) -> io::Result<OwnedFd> {
        Ok(self.file.try_clone()?.into())
    }
}

impl Place {
    fn open(&self, name: &str) -> Option<Build> {
        let path = self.folder.join(name);
        let file = match &self.trusted {
            Some(trusted) => trusted.open(&path),
            None => open(&path),
        };
        let file = Arc::new(file.ok()?);
        Some(Build { path, file })
    }
}

/// A file that links may lead to. A pipe does not hold this up.
fn open(path: &Path) -> io::Result<File> {
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    let file = File::options().read(true).custom_flags(flags).open(path)?;
    if file.metadata()?.is_file() {
        Ok(file)
    } else {
        Err(io::ErrorKind::InvalidInput.into())
    }
}

/// What a build is called, by what its PHP asks of extensions: `20220829-nts`.
pub fn file_name(identity: &str) -> String {
    format!("pronghorn-{identity}.so")
}

/// Where a server looks for builds, in this order: what the variable names, beside the binary,
/// where the administrator puts them, and last the user's own.
pub fn folders() -> Vec<PathBuf> {
    places().into_iter().map(|place| place.folder).collect()
}

/// The first build for this identity that nobody can have put there who is not trusted.
pub fn find(identity: &str) -> Option<Build> {
    let name = file_name(identity);
    places().iter().find_map(|place| place.open(&name))
}

fn places() -> Vec<Place> {
    let mut places: Vec<Place> = Vec::new();
    let me = rustix::process::geteuid().as_raw();
    let trusted = |folder, users: &[u32]| Place {
        folder,
        trusted: Some(Trusted::users(users.to_vec())),
    };
    let named = named().map(|folder| Place {
        folder,
        trusted: None,
    });
    let beside = beside_binary(me).into_iter();
    let beside = beside.map(|(folder, owner)| trusted(folder, &[me, owner]));
    let of_user = of_user().map(|folder| trusted(folder, &[me]));
    let of_machine = trusted(OF_MACHINE.into(), &[me]);
    for place in named.chain(beside).chain([of_machine]).chain(of_user) {
        if places.iter().all(|known| known.folder != place.folder) {
            places.push(place);
        }
    }
    places
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
fn beside_binary(me: u32) -> Vec<(PathBuf, u32)> {
    let binary = std::env::current_exe().unwrap_or_default();
    let owner = std::fs::metadata(&binary).map_or(me, |facts| facts.uid());
    let folders = candidates(&binary).into_iter();
    folders.map(|folder| (folder, owner)).collect()
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

/// Root has none.
fn of_user() -> Option<PathBuf> {
    if rustix::process::geteuid().is_root() {
        return None;
    }
    let variable = |name| std::env::var_os(name).map(PathBuf::from);
    data_folder(variable("XDG_DATA_HOME"), variable("HOME"))
}

fn data_folder(data: Option<PathBuf>, home: Option<PathBuf>) -> Option<PathBuf> {
    let data = data.filter(|folder| folder.is_absolute());
    let home = home.filter(|folder| folder.is_absolute());
    let data = data.or_else(|| home.map(|home| home.join(".local/share")))?;
    Some(data.join(OF_USER))
}

#[cfg(test)]
mod tests {
    use super::*;

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
