//! Where the server keeps what outlives it.

use std::ffi::{OsStr, OsString};
use std::fs::DirBuilder;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// Where packages of Debian and others expect it.
const OF_ROOT: &str = "/var/lib/pronghorn";

/// What the state directory depends on when the configuration names none.
#[derive(Clone, Copy, Debug)]
pub struct Surroundings<'a> {
    /// systemd's `STATE_DIRECTORY`, which may name several.
    pub state_directory: Option<&'a OsStr>,
    pub xdg_state_home: Option<&'a OsStr>,
    pub is_root: bool,
    /// The folder of the configuration file.
    pub configuration: &'a Path,
}

/// The state directory: what systemd made for the service, else that of the system or of the user,
/// else a folder beside the configuration.
pub fn state_folder(surroundings: Surroundings<'_>) -> PathBuf {
    let Surroundings {
        state_directory,
        xdg_state_home,
        is_root,
        configuration,
    } = surroundings;
    // A relative path would depend on where the server was started; both rules say absolute.
    let absolute = |path: &OsStr| Some(PathBuf::from(path)).filter(|path| path.is_absolute());
    let of_systemd = state_directory.and_then(|several| {
        let first = several.as_bytes().split(|byte| *byte == b':').next()?;
        absolute(OsStr::from_bytes(first))
    });
    if let Some(folder) = of_systemd {
        return folder;
    }
    if is_root {
        return OF_ROOT.into();
    }
    match xdg_state_home.and_then(absolute) {
        Some(home) => home.join("pronghorn"),
        None => configuration.join(".pronghorn"),
    }
}

/// Makes it for its owner alone. One that is there keeps its mode: the files have theirs.
pub(crate) fn create(folder: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

/// `folder/store.SUFFIX`
pub(crate) fn file(folder: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from("store.");
    name.push(suffix);
    folder.join(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_directory_is_the_first_of_four() {
        let mut surroundings = Surroundings {
            state_directory: Some(OsStr::new("/var/lib/shop:/var/lib/other")),
            xdg_state_home: Some(OsStr::new("/home/u/.state")),
            is_root: true,
            configuration: Path::new("/srv/shop"),
        };
        let expect = |surroundings, folder: &str| {
            assert_eq!(state_folder(surroundings), Path::new(folder));
        };
        expect(surroundings, "/var/lib/shop");
        surroundings.state_directory = Some(OsStr::new(""));
        expect(surroundings, "/var/lib/pronghorn");
        surroundings.is_root = false;
        expect(surroundings, "/home/u/.state/pronghorn");
        surroundings.xdg_state_home = Some(OsStr::new("relative"));
        expect(surroundings, "/srv/shop/.pronghorn");
        surroundings.xdg_state_home = None;
        expect(surroundings, "/srv/shop/.pronghorn");
    }
}
