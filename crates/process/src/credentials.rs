//! Which user a child runs as.

use std::path::{Path, PathBuf};
use std::{fs, io, thread};

use nix::unistd::{Gid, Group, Uid, User, getgrouplist};
use thiserror::Error;

/// A user, its group and its supplementary groups, looked up once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Credentials {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) groups: Vec<u32>,
    name: String,
    home: PathBuf,
}

/// The operator's: a name that the system doesn't know.
#[derive(Debug, Error)]
pub enum LookupError {
    #[error("no user is called `{0}`")]
    NoSuchUser(String),
    #[error("no group is called `{0}`")]
    NoSuchGroup(String),
    #[error("the user database cannot be read for `{name}`")]
    Database { name: String, source: nix::Error },
}

impl Credentials {
    /// Looks up a user by name or number, and a group likewise; without a group, the user's own.
    pub fn look_up(user: &str, group: Option<&str>) -> Result<Self, LookupError> {
        let database = |source| LookupError::Database {
            name: user.to_owned(),
            source,
        };
        let found = match user.parse() {
            Ok(uid) => User::from_uid(Uid::from_raw(uid)),
            Err(_) => User::from_name(user),
        }
        .map_err(database)?
        .ok_or_else(|| LookupError::NoSuchUser(user.to_owned()))?;
        let gid = match group {
            Some(group) => Gid::from_raw(group_id(group)?),
            None => found.gid,
        };
        let name = std::ffi::CString::new(found.name.as_str())
            .map_err(|_| LookupError::NoSuchUser(user.to_owned()))?;
        let groups = getgrouplist(&name, gid).map_err(database)?;
        Ok(Self {
            uid: found.uid.as_raw(),
            gid: gid.as_raw(),
            groups: groups.into_iter().map(Gid::as_raw).collect(),
            name: found.name,
            home: found.dir,
        })
    }

    /// Who this process runs as; None where the system has no such account, in a container for
    /// instance.
    pub fn current() -> Option<Self> {
        Self::look_up(&nix::unistd::geteuid().to_string(), None).ok()
    }

    /// The kernel's user for who is unknown: it may do what everybody may.
    pub fn nobody() -> Self {
        const OVERFLOW: u32 = 65534;
        Self {
            uid: OVERFLOW,
            gid: OVERFLOW,
            groups: Vec::new(),
            name: "nobody".to_owned(),
            home: PathBuf::from("/"),
        }
    }

    /// The user's name, as the system knows it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The user's own folder.
    pub fn home(&self) -> &Path {
        &self.home
    }

    /// The user's number.
    pub fn uid(&self) -> u32 {
        self.uid
    }

    /// Whether this is the user who may do everything.
    pub fn is_root(&self) -> bool {
        self.uid == 0
    }

    /// Whether this is who the process runs as already.
    pub fn is_current(&self) -> bool {
        self.uid == nix::unistd::geteuid().as_raw() && self.gid == nix::unistd::getegid().as_raw()
    }

    /// Whether this process may start children of another user.
    pub fn may_change() -> bool {
        nix::unistd::geteuid().is_root()
    }

    /// Whether the user belongs to this group.
    pub fn is_in_group(&self, gid: u32) -> bool {
        self.gid == gid || self.groups.contains(&gid)
    }

    /// The group's number.
    pub fn gid(&self) -> u32 {
        self.gid
    }

    /// Whether the user may read a file, or list a directory, as the kernel judges it: with access
    /// control lists, and with the directories on the way.
    ///
    /// # Errors
    ///
    /// When the user may not, or this process may not find out.
    pub fn may_read(&self, path: &Path) -> io::Result<()> {
        self.ask(|| fs::File::open(path).map(|_| ()))
    }

    /// Whether the user may execute a file, judged in the same way.
    ///
    /// # Errors
    ///
    /// The same.
    pub fn may_run(&self, path: &Path) -> io::Result<()> {
        self.ask(|| may_run(path))
    }

    /// Asks the kernel as this user.
    fn ask(&self, question: impl FnOnce() -> io::Result<()> + Send) -> io::Result<()> {
        if self.is_current() {
            return question();
        }
        // Identities belong to threads: this one takes the user's, and ends with it.
        let ask = || {
            self.become_by_thread()?;
            question()
        };
        thread::scope(|scope| {
            let asked = thread::Builder::new().spawn_scoped(scope, ask)?;
            asked
                .join()
                .unwrap_or_else(|_| Err(io::ErrorKind::Other.into()))
        })
    }

    fn become_by_thread(&self) -> io::Result<()> {
        let groups: Vec<_> = self
            .groups
            .iter()
            .map(|&gid| rustix::fs::Gid::from_raw(gid))
            .collect();
        let (uid, gid) = (
            rustix::fs::Uid::from_raw(self.uid),
            rustix::fs::Gid::from_raw(self.gid),
        );
        rustix::thread::set_thread_groups(&groups)?;
        rustix::thread::set_thread_res_gid(gid, gid, gid)?;
        Ok(rustix::thread::set_thread_res_uid(uid, uid, uid)?)
    }
}

/// Whether this process may execute a file.
pub(crate) fn may_run(path: &Path) -> io::Result<()> {
    Ok(rustix::fs::access(path, rustix::fs::Access::EXEC_OK)?)
}

/// Looks up a group by name or number.
pub fn group_id(group: &str) -> Result<u32, LookupError> {
    let found = match group.parse() {
        Ok(gid) => Group::from_gid(Gid::from_raw(gid)),
        Err(_) => Group::from_name(group),
    };
    found
        .map_err(|source| LookupError::Database {
            name: group.to_owned(),
            source,
        })?
        .map(|group| group.gid.as_raw())
        .ok_or_else(|| LookupError::NoSuchGroup(group.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_is_found_by_name_and_by_number() {
        let by_name = Credentials::look_up("root", None).unwrap();
        assert_eq!((by_name.uid, by_name.gid), (0, 0));
        assert_eq!(Credentials::look_up("0", Some("0")).unwrap().uid, 0);
    }

    #[test]
    fn this_process_has_the_account_of_its_number() {
        let uid = nix::unistd::geteuid();
        let name = User::from_uid(uid).unwrap().map(|user| user.name);
        let current = Credentials::current().map(|user| user.name().to_owned());
        assert_eq!(current, name);
    }

    #[test]
    fn who_may_read_is_found_out_as_that_user() {
        if !Credentials::may_change() {
            return;
        }
        let nobody = Credentials::look_up("nobody", None).unwrap();
        let denied = nobody.may_read(Path::new("/etc/shadow")).unwrap_err();
        assert_eq!(denied.kind(), io::ErrorKind::PermissionDenied);
        nobody.may_read(Path::new("/etc/passwd")).unwrap();
        // This thread is who it was.
        Credentials::current()
            .unwrap()
            .may_read(Path::new("/etc/shadow"))
            .unwrap();
    }

    #[test]
    fn an_unknown_name_is_named() {
        let error = Credentials::look_up("nobody-is-called-this", None).unwrap_err();
        assert_eq!(
            error.to_string(),
            "no user is called `nobody-is-called-this`"
        );
        let error = Credentials::look_up("root", Some("no-such-group")).unwrap_err();
        assert_eq!(error.to_string(), "no group is called `no-such-group`");
    }
}
