//! Where the socket of a configuration is.
//!
//! Nothing of this is secret. Only directories among temporary files are checked: the kernel says
//! who listens on a socket, and who connects.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use crate::private;
use crate::trusted::Trusted;

/// Root's folder; also where systemd makes `RuntimeDirectory=pronghorn`.
const SYSTEM_FOLDER: &str = "/run/pronghorn";
/// Where systemd makes the folders of further services, `RuntimeDirectory=pronghorn-shop`.
const OF_SERVICES: &str = "/run";
/// What `XDG_RUNTIME_DIR` is in practice, by user number.
const USERS_FOLDER: &str = "/run/user";
/// Users, and services, whose folders are looked through.
const MOST: usize = 256;

/// Names the server of one configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The configuration, or the folder of a server that has none.
    named: PathBuf,
    name: String,
}

/// What of a process's surroundings says where sockets are.
#[derive(Clone, Debug, Default)]
pub struct Surroundings {
    /// `RUNTIME_DIRECTORY`, from systemd: folders, with colons between them.
    pub runtime_directory: Option<OsString>,
    /// `XDG_RUNTIME_DIR`, from the login.
    pub xdg_runtime_dir: Option<OsString>,
    /// The folder for temporary files.
    pub temporary: PathBuf,
    /// The user.
    pub uid: u32,
}

impl Place {
    /// Of a configuration file, or of the folder where a server without one works; absolute, as the
    /// person wrote it: a link in it stays, so that a `current` link may move between start and
    /// command.
    pub fn of(path: &Path) -> Self {
        let named = without_dots(path);
        let name = format!("pronghorn-{:016x}.sock", hash(named.as_os_str()));
        Self { named, name }
    }

    /// What it was made of.
    pub fn named(&self) -> &Path {
        &self.named
    }

    /// The paths at which a server may put its socket. It takes the first one that works. If none
    /// does, it makes a directory of its own among temporary files.
    pub(crate) fn for_server(&self, surroundings: &Surroundings) -> Vec<PathBuf> {
        self.within(surroundings.of_server())
    }

    /// The same in a directory of the server's own, which is made.
    pub(crate) fn for_server_among_temporary(
        &self,
        surroundings: &Surroundings,
    ) -> io::Result<PathBuf> {
        let directory = private::make(&surroundings.temporary, surroundings.uid)?;
        Ok(directory.join(&self.name))
    }

    /// The paths at which the process before an upgrade may have put its socket.
    pub fn of_server_before(&self, surroundings: &Surroundings) -> Vec<PathBuf> {
        let mut directories = surroundings.of_server();
        let is_own = |owner| owner == surroundings.uid;
        directories.extend(private::find(
            &surroundings.temporary,
            is_own,
            surroundings.uid,
        ));
        self.within(directories)
    }

    /// Where a command looks for it, the likeliest first.
    pub fn for_command(&self, surroundings: &Surroundings) -> Vec<PathBuf> {
        let trusted = Trusted::at(&self.named);
        let mut paths = self.within(surroundings.of_command(trusted));
        // Other users' servers are not asked, but root is told of one that is there.
        let others = self.within(surroundings.of_others(trusted));
        paths.extend(
            others
                .into_iter()
                .filter(|path| path.symlink_metadata().is_ok()),
        );
        paths
    }

    fn within(&self, directories: Vec<PathBuf>) -> Vec<PathBuf> {
        let paths = directories
            .into_iter()
            .map(|directory| directory.join(&self.name));
        paths.collect()
    }
}

impl Surroundings {
    pub fn of_this_process() -> Self {
        Self {
            runtime_directory: std::env::var_os("RUNTIME_DIRECTORY"),
            xdg_runtime_dir: std::env::var_os("XDG_RUNTIME_DIR"),
            temporary: std::env::temp_dir(),
            uid: rustix::process::geteuid().as_raw(),
        }
    }

    fn of_server(&self) -> Vec<PathBuf> {
        let mut directories = self.given();
        if self.uid == 0 {
            directories.push(SYSTEM_FOLDER.into());
        }
        directories
    }

    /// A command may run in other surroundings than its server: by hand beside a unit, by root
    /// beside a user.
    fn of_command(&self, trusted: Trusted) -> Vec<PathBuf> {
        let mut directories = self.given();
        directories.push(SYSTEM_FOLDER.into());
        directories.extend(of_services(Path::new(OF_SERVICES)));
        directories.push(Path::new(USERS_FOLDER).join(self.uid.to_string()));
        if self.uid == 0
            && let Ok(users) = std::fs::read_dir(USERS_FOLDER)
        {
            directories.extend(users.flatten().take(MOST).map(|user| user.path()));
        }
        for temporary in [&self.temporary, Path::new("/tmp")] {
            directories.extend(private::find(
                temporary,
                |owner| trusted.has(owner),
                self.uid,
            ));
            // Servers of earlier releases have their sockets here.
            directories.push(temporary.to_owned());
        }
        let mut known = Vec::new();
        directories.retain(|directory| {
            let new = !known.contains(directory);
            known.push(directory.clone());
            new
        });
        directories
    }

    /// For root: the directories of users whom it does not trust.
    fn of_others(&self, trusted: Trusted) -> Vec<PathBuf> {
        let mut directories = Vec::new();
        if self.uid == 0 {
            let is_other = |owner| !trusted.has(owner);
            directories = private::find(&self.temporary, is_other, self.uid);
            if self.temporary != Path::new("/tmp") {
                directories.extend(private::find(Path::new("/tmp"), is_other, self.uid));
            }
        }
        directories
    }

    fn given(&self) -> Vec<PathBuf> {
        let of_unit = self
            .runtime_directory
            .iter()
            .flat_map(std::env::split_paths);
        let of_login = self.xdg_runtime_dir.iter().map(PathBuf::from);
        let absolute = of_unit.chain(of_login).filter(|path| path.is_absolute());
        absolute.collect()
    }
}

fn of_services(run: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(run).into_iter().flatten().flatten();
    let ours = entries.filter(|entry| entry.file_name().as_bytes().starts_with(b"pronghorn-"));
    ours.take(MOST).map(|entry| entry.path()).collect()
}

/// As a shell reads a path: `..` takes the name before it away, link or not.
fn without_dots(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for component in path.components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir => _ = plain.pop(),
            other => plain.push(other),
        }
    }
    plain
}

/// FNV-1a: a name that is the same in every release. Two paths with one name would only share a
/// server's socket.
fn hash(text: &OsStr) -> u64 {
    text.as_bytes()
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
        })
}

#[cfg(test)]
mod tests {
    use pronghorn_testkit::Directory;

    use super::*;

    fn of(runtime: Option<&str>, xdg: Option<&str>, uid: u32) -> Surroundings {
        Surroundings {
            runtime_directory: runtime.map(Into::into),
            xdg_runtime_dir: xdg.map(Into::into),
            temporary: "/tmp/own".into(),
            uid,
        }
    }

    fn folders(surroundings: &Surroundings) -> Vec<String> {
        let paths = Place::of(Path::new("/a")).for_server(surroundings);
        let folders = paths.iter().filter_map(|path| path.parent());
        folders.map(|path| path.display().to_string()).collect()
    }

    #[test]
    fn each_service_has_a_folder_of_its_own() {
        let directory = Directory::new();
        for name in ["pronghorn", "pronghorn-shop", "redis"] {
            std::fs::create_dir_all(directory.join(name)).unwrap();
        }
        assert_eq!(of_services(&directory), [directory.join("pronghorn-shop")]);
        assert!(of_services(&directory.join("none")).is_empty());
    }

    #[test]
    fn the_folder_is_the_units_else_the_logins_else_roots_else_a_temporary_one() {
        let first = |runtime, xdg, uid| folders(&of(runtime, xdg, uid)).remove(0);
        assert_eq!(
            first(Some("/run/a:/run/b"), Some("/run/user/0"), 0),
            "/run/a"
        );
        assert_eq!(first(None, Some("/run/user/7"), 7), "/run/user/7");
        assert_eq!(first(None, None, 0), "/run/pronghorn");
        assert!(folders(&of(None, None, 7)).is_empty());
        assert!(folders(&of(Some(""), Some("relative"), 7)).is_empty());
    }

    #[test]
    fn a_command_looks_wherever_a_server_may_have_put_it() {
        let place = Place::of(Path::new("/srv/app/.rr.yaml"));
        for server in [
            of(Some("/run/pronghorn"), None, 33),
            of(None, None, 0),
            of(None, Some("/run/user/7"), 7),
        ] {
            let socket = place.for_server(&server).remove(0);
            let command = of(None, None, server.uid);
            assert!(place.for_command(&command).contains(&socket), "{socket:?}");
        }
        let directory = Directory::new();
        let surroundings = Surroundings {
            temporary: directory.to_path_buf(),
            uid: rustix::process::geteuid().as_raw(),
            ..Surroundings::default()
        };
        let socket = place.for_server_among_temporary(&surroundings).unwrap();
        assert_eq!(socket.parent().unwrap().parent(), Some(&*directory));
        assert!(place.of_server_before(&surroundings).contains(&socket));
        // Before what anybody may have put into the directory of all.
        let looked_at = place.for_command(&surroundings);
        let position = |path: &Path| looked_at.iter().position(|it| it == path);
        let name = socket.file_name().unwrap();
        assert!(position(&socket).unwrap() < position(&directory.join(name)).unwrap());
    }

    #[test]
    fn one_file_has_one_name_however_it_is_written() {
        let place = |path: &str| Place::of(Path::new(path));
        assert_eq!(
            place("/srv/app/.rr.yaml"),
            place("/srv/./bin/../app/.rr.yaml")
        );
        assert_ne!(place("/srv/app/.rr.yaml"), place("/srv/app/pronghorn.yaml"));
        assert_eq!(place("/../a"), place("/a"));
        let socket = place("/srv/app/.rr.yaml").for_server(&of(Some("/r"), None, 1));
        // Part of what commands of another release look for.
        assert_eq!(socket[0], Path::new("/r/pronghorn-02dccda60cda168f.sock"));
    }
}
