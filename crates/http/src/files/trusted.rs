//! Links of a distribution's packages: only root can have made them, and only root can change what
//! they lead to.
//!
//! Debian's package of `WordPress`, for instance, has links to the libraries of other packages. A
//! link that an application was talked into making, by an archive that it unpacked for instance, is
//! none of these: its folder is not root's alone, unless the application runs as root, of which the
//! server warns.

use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use rustix::io::Errno;

/// As many as the kernel follows.
const MOST_LINKS: usize = 40;
/// A path is no longer, so links can't make more of them.
const MOST_PARTS: usize = 4096;

/// Where a path below a folder leads, without any link in it; `None` when somebody but root has a
/// hand in this, or not everybody may read what is there.
///
/// # Errors
///
/// When there is nothing.
pub(super) fn target(folder: &Path, path: &Path) -> io::Result<Option<PathBuf>> {
    let owned = |part: Component<'_>| part.as_os_str().to_owned();
    let mut at = folder.canonicalize()?;
    let mut rest: Vec<_> = path.components().rev().map(owned).collect();
    let mut links = 0;
    while let Some(part) = rest.pop() {
        match Path::new(&part).components().next() {
            Some(Component::RootDir) => at = PathBuf::from("/"),
            Some(Component::ParentDir) => _ = at.pop(),
            Some(Component::Normal(name)) => {
                let next = at.join(name);
                let metadata = next.symlink_metadata()?;
                if !metadata.is_symlink() {
                    at = next;
                    continue;
                }
                if metadata.uid() != 0 || !is_roots_alone(&at.symlink_metadata()?) {
                    return Ok(None);
                }
                links += 1;
                let leads_to = next.read_link()?;
                rest.extend(leads_to.components().rev().map(owned));
                if links > MOST_LINKS || rest.len() > MOST_PARTS {
                    return Err(Errno::LOOP.into());
                }
            }
            Some(Component::CurDir | Component::Prefix(_)) | None => {}
        }
    }
    for (number, step) in at.ancestors().enumerate() {
        let metadata = step.symlink_metadata()?;
        // What is at the end is read; all above it is only gone through.
        let right = if number == 0 && !metadata.is_dir() {
            0o4
        } else {
            0o1
        };
        if !is_roots_alone(&metadata) || metadata.mode() & right == 0 {
            return Ok(None);
        }
    }
    Ok(Some(at))
}

fn is_roots_alone(metadata: &Metadata) -> bool {
    metadata.uid() == 0 && metadata.mode() & 0o022 == 0
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, chown, symlink};

    use pronghorn_testkit::Directory;

    use super::*;

    /// A file that comes with every Debian and is root's alone; elsewhere there is nothing to test.
    const PACKAGED: &str = "/usr/share/common-licenses/GPL-3";

    #[test]
    fn only_roots_links_to_roots_files_are_trusted() {
        if !rustix::process::geteuid().is_root() || !Path::new(PACKAGED).exists() {
            return;
        }
        let directory = Directory::new();
        let site = directory.join("site");
        std::fs::create_dir_all(site.join("theirs")).unwrap();
        let mode = |path: &Path, mode| {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
        };
        mode(&site, 0o755);
        std::fs::write(directory.join("own"), "").unwrap();
        chown(site.join("theirs"), Some(65534), None).unwrap();
        for (to, link) in [
            (PACKAGED, "license"),
            ("/usr/share/common-licenses", "licenses"),
            ("/usr/share/../share/./common-licenses/GPL-3", "dots"),
            ("license", "twice"),
            ("/etc/shadow", "shadow"),
            ("../own", "own"),
            ("/nowhere", "dangling"),
            ("loop", "loop"),
            ("/proc/self/environ", "process"),
            (PACKAGED, "theirs/license"),
            (PACKAGED, "given"),
        ] {
            symlink(to, site.join(link)).unwrap();
        }
        std::os::unix::fs::lchown(site.join("given"), Some(65534), None).unwrap();
        let found = |path: &str| target(&site, Path::new(path));
        let real = PathBuf::from(PACKAGED).canonicalize().unwrap();
        for path in ["license", "licenses/GPL-3", "dots", "twice"] {
            assert_eq!(found(path).unwrap().as_ref(), Some(&real), "{path}");
        }
        assert!(found("licenses").unwrap().is_some(), "a directory");
        for path in ["shadow", "own", "theirs/license", "given"] {
            assert_eq!(found(path).unwrap(), None, "{path}");
        }
        for path in ["dangling", "loop", "licenses/none", "license/x"] {
            assert!(found(path).is_err(), "{path}");
        }
        mode(&site, 0o775);
        assert_eq!(
            found("license").unwrap(),
            None,
            "others may write to its directory"
        );
    }
}
