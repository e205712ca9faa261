//! Where the server keeps what outlives it.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Write as _};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};

use pronghorn_base::Trusted;

/// Where packages of Debian and others expect it.
const OF_ROOT: &str = "/var/lib/pronghorn";
/// The directory of the package's configuration, whose service has all of `OF_ROOT`.
const OF_PACKAGE: &str = "/etc/pronghorn";
/// Beside a configuration.
const BESIDE: &str = ".pronghorn";
/// In bytes, of a directory's name.
const LONGEST_NAME: usize = 255;

/// What the state directory depends on when the configuration names none.
#[derive(Clone, Copy, Debug)]
pub struct Surroundings<'a> {
    pub xdg_state_home: Option<&'a OsStr>,
    pub is_root: bool,
    /// The directory of the configuration file, absolute.
    pub configuration: &'a Path,
}

/// The first directory of systemd's `STATE_DIRECTORY`, which may name several.
pub fn folder_of_systemd(state_directory: &OsStr) -> Option<PathBuf> {
    let first = state_directory
        .as_bytes()
        .split(|byte| *byte == b':')
        .next()?;
    absolute(OsStr::from_bytes(first))
}

/// The state directory where neither the configuration nor systemd names one: below that of the
/// system or of the user, else a directory beside the configuration.
///
/// Each configuration has its own: two applications with a pipeline `mail` are not to get each
/// other's jobs.
pub fn state_folder(surroundings: Surroundings<'_>) -> PathBuf {
    let Surroundings {
        xdg_state_home,
        is_root,
        configuration,
    } = surroundings;
    let shared = match xdg_state_home.and_then(absolute) {
        _ if is_root && configuration == Path::new(OF_PACKAGE) => return OF_ROOT.into(),
        _ if is_root => Some(OF_ROOT.into()),
        home => home.map(|home| home.join("pronghorn")),
    };
    let own = shared.and_then(|shared| Some(shared.join(name_of(configuration)?)));
    own.unwrap_or_else(|| configuration.join(BESIDE))
}

/// A relative path would depend on where the server was started; systemd's rule and the one of XDG
/// say absolute.
fn absolute(path: &OsStr) -> Option<PathBuf> {
    Some(PathBuf::from(path)).filter(|path| path.is_absolute())
}

/// `/srv/shop` as the name of one directory, `srv+shop`; none where the system allows no such name.
/// Different paths have different names.
fn name_of(folder: &Path) -> Option<OsString> {
    let mut parts: Vec<Vec<u8>> = Vec::new();
    for part in folder.components() {
        match part {
            Component::Normal(part) => parts.push(escaped(part.as_bytes())),
            Component::ParentDir => _ = parts.pop(),
            Component::CurDir | Component::RootDir | Component::Prefix(_) => {}
        }
    }
    let mut name = parts.join(&b'+');
    if name.is_empty() {
        name.push(b'+'); // the root
    }
    (name.len() <= LONGEST_NAME).then(|| OsString::from_vec(name))
}

fn escaped(part: &[u8]) -> Vec<u8> {
    let escape = |&byte: &u8| match byte {
        b'+' => b"%2B".to_vec(),
        b'%' => b"%25".to_vec(),
        _ => vec![byte],
    };
    part.iter().flat_map(escape).collect()
}

/// Makes it for its owner alone. Among the files of an application it tells git to leave it alone.
///
/// # Errors
///
/// As of `mkdir`, and as [`judge_state_directory`].
pub fn create_state_folder(path: &Path) -> io::Result<()> {
    Trusted::steps_of_server().make_directory(path, 0o700)?;
    let ignored = path.join(".gitignore");
    if path.ends_with(BESIDE)
        && let Ok(mut file) = File::create_new(&ignored)
        && file.write_all(b"*\n").is_err()
    {
        // It is a courtesy, which the next start tries again: an empty one would stay.
        _ = std::fs::remove_file(&ignored);
    }
    Ok(())
}

/// Whether nobody else could put another directory in its place, and with that jobs, sessions and
/// reports: asked where the server is root, step by step. What is there by its path afterwards is
/// what was judged.
///
/// # Errors
///
/// [`Untrusted`](pronghorn_base::Untrusted).
pub fn judge_state_directory(path: &Path) -> io::Result<()> {
    Trusted::steps_of_server().judge_directory(path)
}

/// `directory/store.SUFFIX`
pub(crate) fn file(folder: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from("store.");
    name.push(suffix);
    folder.join(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::OpenError;

    #[test]
    fn each_configuration_has_a_state_directory_of_its_own() {
        let mut surroundings = Surroundings {
            xdg_state_home: Some(OsStr::new("/home/u/.state")),
            is_root: true,
            configuration: Path::new("/srv/shop"),
        };
        let expect = |surroundings, folder: &str| {
            assert_eq!(state_folder(surroundings), Path::new(folder));
        };
        expect(surroundings, "/var/lib/pronghorn/srv+shop");
        surroundings.configuration = Path::new("/etc/pronghorn");
        expect(surroundings, "/var/lib/pronghorn");
        surroundings.configuration = Path::new("/srv/shop");
        surroundings.is_root = false;
        expect(surroundings, "/home/u/.state/pronghorn/srv+shop");
        surroundings.xdg_state_home = Some(OsStr::new("relative"));
        expect(surroundings, "/srv/shop/.pronghorn");
        surroundings.xdg_state_home = None;
        expect(surroundings, "/srv/shop/.pronghorn");
    }

    #[test]
    fn systemd_may_name_several_folders() {
        let first = |all: &str| folder_of_systemd(OsStr::new(all));
        assert_eq!(
            first("/var/lib/shop:/var/lib/other"),
            Some("/var/lib/shop".into())
        );
        assert_eq!(first(""), None);
        assert_eq!(first("relative"), None);
    }

    #[test]
    fn different_folders_have_different_names() {
        let name = |path: &str| name_of(Path::new(path)).map(|name| name.into_string().unwrap());
        let expect = |path: &str, expected: &str| assert_eq!(name(path).as_deref(), Some(expected));
        expect("/srv/./a/../my-shop/", "srv+my-shop");
        expect("/srv/a+b%c", "srv+a%2Bb%25c");
        expect("/", "+");
        expect("/..", "+");
        assert_eq!(name(&"/a".repeat(200)), None);
    }

    #[test]
    fn a_store_that_a_stranger_could_replace_is_not_opened() {
        use std::os::unix::fs::chown;
        const STRANGER: u32 = 65534;
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped: only root makes files of others");
            return;
        }
        let directory = pronghorn_testkit::Directory::new();
        let state = directory.join("app/state");
        let open = || crate::Store::open(&state, 1 << 20);
        create_state_folder(&state).unwrap();
        std::fs::write(file(&state, "redb"), "").unwrap();
        let refused = || match open() {
            Err(error @ OpenError::Untrusted(_)) => error.to_string(),
            other => panic!("{other:?}"),
        };
        for strange in [directory.join("app"), state.clone(), file(&state, "redb")] {
            chown(&strange, Some(STRANGER), None).unwrap();
            let said = refused();
            let expected = format!("`{}` belongs to user {STRANGER}", strange.display());
            assert!(said.contains(&expected), "{said}");
            chown(&strange, Some(0), None).unwrap();
        }
        judge_state_directory(&state).unwrap();
        chown(directory.join("app"), Some(STRANGER), None).unwrap();
        judge_state_directory(&state).unwrap_err();
    }
}
