//! A path that is walked step by step, and who may have had a hand in it.
//!
//! Each directory and each link on the way is looked at by a descriptor before the next step is
//! taken from it: a path that is judged first and opened afterwards may lead elsewhere meanwhile.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{
    CWD, FileType, Mode, OFlags, PROC_SUPER_MAGIC, Stat, fstat, fstatfs, mkdirat, openat,
    readlinkat,
};
use rustix::io::Errno;
use thiserror::Error;

/// Links on the way, as many as the kernel follows.
const MOST_LINKS: usize = 40;
/// Steps of the way. A path has at most 4096 bytes.
const MOST_STEPS: usize = 4096;
const STICKY: u32 = 0o1000;
const OTHERS_WRITE: u32 = 0o002;
const GROUP_WRITES: u32 = 0o020;
const STEP: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Whose steps of a path count, beside root's, and which steps are judged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trusted {
    users: Vec<u32>,
    rule: Rule,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Rule {
    Nothing,
    /// The link that the path itself is.
    LastLink,
    /// Directories may be anybody's. A stranger's link leads to the stranger's own directory or
    /// nowhere, and the path itself is none.
    Links,
    /// Nobody else could put something in the place of a step.
    Steps,
    /// Nor could a group.
    StepsAndGroups,
}

/// A step of a path that a stranger has a hand in.
#[derive(Debug, Error)]
pub enum Untrusted {
    #[error(
        "`{0}` belongs to user {owner}, who could put something else in its place: `chown root {0}`, or name another path",
        .step.display()
    )]
    Owner { step: PathBuf, owner: u32 },
    #[error(
        "`{0}` is a symbolic link of user {owner}, and links count that are root's or the server's: `chown -h root {0}` \
         if it is meant",
        .step.display()
    )]
    Link { step: PathBuf, owner: u32 },
    #[error(
        "`{0}` may be written to by others than its owner, who could put something else there: `chmod go-w {0}`, or name \
         another path",
        .step.display()
    )]
    Mode { step: PathBuf },
}

/// The directory in which a path ends, and the name that it has there.
#[derive(Debug)]
pub struct TrustedPlace {
    /// Known by its path alone: names in it can be opened, renamed and removed.
    pub directory: OwnedFd,
    pub name: OsString,
    /// The whole path, without links.
    pub path: PathBuf,
    /// It is in `/proc` or `/dev`, where links are the kernel's, and some lead to what has no name.
    /// Else the name is that of no link.
    pub is_of_kernel: bool,
}

impl TrustedPlace {
    /// Opens what is there, or makes it: no other thing's link is followed, and nothing is waited
    /// for.
    ///
    /// # Errors
    ///
    /// As of `open`.
    pub fn open(&self, flags: OFlags, mode: u32) -> io::Result<File> {
        let mut flags = flags | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        flags.set(OFlags::NOFOLLOW, !self.is_of_kernel);
        let mode = Mode::from_raw_mode(mode);
        Ok(openat(&self.directory, &self.name, flags, mode)?.into())
    }
}

impl Untrusted {
    fn error(self) -> io::Error {
        io::Error::new(io::ErrorKind::PermissionDenied, self)
    }

    /// Whether an error is one of these.
    pub fn is(error: &io::Error) -> bool {
        let inner = error.get_ref();
        inner
            .and_then(|inner| inner.downcast_ref::<Self>())
            .is_some()
    }
}

impl Trusted {
    /// These users: every step is judged, by its owner and by whether everybody may write to it.
    pub fn users(users: Vec<u32>) -> Self {
        let rule = Rule::Steps;
        Self { users, rule }
    }

    /// This user: the same, and no step is a group's to write to.
    pub fn alone(user: u32) -> Self {
        let rule = Rule::StepsAndGroups;
        let users = vec![user];
        Self { users, rule }
    }

    /// The server's user, for what decides which code runs and which jobs there are. As root each
    /// step is judged, groups too; any other user is free to use what that user may.
    pub fn steps_of_server() -> Self {
        Self::of_server(Rule::StepsAndGroups, Rule::Nothing)
    }

    /// The server's user, for what may lie among the files of an application: the directories may
    /// be a stranger's, and lead root nowhere but to this stranger's directories.
    pub fn links_of_server() -> Self {
        Self::of_server(Rule::Links, Rule::Nothing)
    }

    /// The same for a path that must not be a stranger's link whatever user the server has.
    pub fn last_link_of_server() -> Self {
        Self::of_server(Rule::Links, Rule::LastLink)
    }

    fn of_server(as_root: Rule, else_: Rule) -> Self {
        let me = rustix::process::geteuid();
        Self {
            users: vec![me.as_raw()],
            rule: if me.is_root() { as_root } else { else_ },
        }
    }

    /// A file, for reading.
    ///
    /// # Errors
    ///
    /// [`Untrusted`], as `PermissionDenied`, when somebody else could have made it, or could
    /// replace it.
    pub fn open(&self, path: &Path) -> io::Result<File> {
        let file = self.place(path)?.open(OFlags::RDONLY, 0)?;
        let facts = fstat(&file)?;
        if FileType::from_raw_mode(facts.st_mode) != FileType::RegularFile {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        self.judge_last(path, &facts)?;
        Ok(file)
    }

    /// Judges what a file holds that is there.
    ///
    /// # Errors
    ///
    /// [`Untrusted`] alone, as `PermissionDenied`.
    pub fn judge_file(&self, path: &Path) -> io::Result<()> {
        if self.rule < Rule::Steps {
            return Ok(());
        }
        match self.open(path) {
            Err(error) if Untrusted::is(&error) => Err(error),
            _ => Ok(()),
        }
    }

    /// A directory.
    ///
    /// # Errors
    ///
    /// [`Untrusted`], as `PermissionDenied`; when it is not there, or none.
    pub fn directory(&self, path: &Path) -> io::Result<OwnedFd> {
        self.directory_or_make(path, None)
    }

    /// The same, made with the directories above it where they are missing.
    ///
    /// # Errors
    ///
    /// The same, and as of `mkdir`.
    pub fn make_directory(&self, path: &Path, mode: u32) -> io::Result<OwnedFd> {
        self.directory_or_make(path, Some(Mode::from_raw_mode(mode)))
    }

    /// Judges the steps of a directory's path that are there.
    ///
    /// # Errors
    ///
    /// [`Untrusted`] alone, as `PermissionDenied`.
    pub fn judge_directory(&self, path: &Path) -> io::Result<()> {
        match self.directory(path) {
            Err(error) if Untrusted::is(&error) => Err(error),
            _ => Ok(()),
        }
    }

    fn directory_or_make(&self, path: &Path, make: Option<Mode>) -> io::Result<OwnedFd> {
        if self.rule == Rule::Nothing && make.is_none() {
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            return Ok(openat(CWD, path, flags, Mode::empty())?);
        }
        let mut walk = Walk::begin(self, path, true)?;
        while let Some(name) = walk.rest.pop() {
            if !walk.step(&name, make)? {
                return Err(Errno::NOTDIR.into());
            }
        }
        self.judge_last(&walk.shown, &fstat(&walk.at)?)?;
        Ok(walk.at)
    }

    /// The place of a file, which need not be there. Links to it are followed.
    ///
    /// # Errors
    ///
    /// [`Untrusted`], as `PermissionDenied`; `IsADirectory` where that is what it is.
    pub fn place(&self, path: &Path) -> io::Result<TrustedPlace> {
        let mut walk = Walk::begin(self, path, false)?;
        let found = |walk: Walk<'_>, name, is_of_kernel| TrustedPlace {
            path: walk.shown.join(&name),
            directory: walk.at,
            name,
            is_of_kernel,
        };
        while let Some(name) = walk.rest.pop() {
            if self.rule <= Rule::Links && walk.is_of_kernel(&name)? {
                walk.judge_strange(usize::MAX)?;
                walk.rest.push(name);
                let names: PathBuf = walk.rest.iter().rev().collect();
                return Ok(found(walk, names.into(), true));
            }
            match walk.step(&name, None) {
                Ok(true) => {}
                Ok(false) if walk.rest.is_empty() => return Ok(found(walk, name, false)),
                Ok(false) => return Err(Errno::NOTDIR.into()),
                Err(error) if error.kind() == io::ErrorKind::NotFound && walk.rest.is_empty() => {
                    return Ok(found(walk, name, false));
                }
                Err(error) => return Err(error),
            }
        }
        Err(Errno::ISDIR.into())
    }

    fn is_one(&self, user: u32) -> bool {
        user == 0 || self.users.contains(&user)
    }

    /// Looks at a directory on the way: what is in it is its owner's, or, where others may write as
    /// in `/tmp`, of the one who made it, which the next step looks at.
    fn judge_step(&self, step: &Path, facts: &Stat) -> io::Result<()> {
        if facts.st_mode & STICKY != 0 {
            return self.judge_owner(step, facts);
        }
        self.judge_last(step, facts)
    }

    /// The same for what is used itself.
    fn judge_last(&self, step: &Path, facts: &Stat) -> io::Result<()> {
        self.judge_owner(step, facts)?;
        let step = || step.to_owned();
        let by_group = self.rule == Rule::StepsAndGroups && facts.st_gid != 0;
        let by_group = by_group && facts.st_mode & GROUP_WRITES != 0;
        if self.rule >= Rule::Steps && (facts.st_mode & OTHERS_WRITE != 0 || by_group) {
            return Err(Untrusted::Mode { step: step() }.error());
        }
        Ok(())
    }

    fn judge_owner(&self, step: &Path, facts: &Stat) -> io::Result<()> {
        if self.rule < Rule::Steps || self.is_one(facts.st_uid) {
            return Ok(());
        }
        let (step, owner) = (step.to_owned(), facts.st_uid);
        Err(Untrusted::Owner { step, owner }.error())
    }
}

/// A path on whose way somebody is.
struct Walk<'a> {
    by: &'a Trusted,
    at: OwnedFd,
    /// The same for people.
    shown: PathBuf,
    /// The names that follow, the first one last.
    rest: Vec<OsString>,
    links: usize,
    /// The path is that of a directory.
    to_directory: bool,
    strange: Vec<Strange>,
}

/// A stranger's link that is being followed.
struct Strange {
    step: PathBuf,
    owner: u32,
    /// Names of the path that are left when its target is reached.
    left: usize,
}

impl<'a> Walk<'a> {
    fn begin(by: &'a Trusted, path: &Path, to_directory: bool) -> io::Result<Self> {
        let path = std::path::absolute(path)?;
        let mut walk = Self {
            by,
            at: root()?,
            shown: "/".into(),
            rest: steps(&path),
            links: 0,
            to_directory,
            strange: Vec::new(),
        };
        walk.begin_again()?;
        Ok(walk)
    }

    fn begin_again(&mut self) -> io::Result<()> {
        self.at = root()?;
        self.shown = "/".into();
        self.by.judge_step(&self.shown, &fstat(&self.at)?)
    }

    /// Goes on to a name. False where it is neither a directory nor a link, and is still ahead.
    fn step(&mut self, name: &OsStr, make: Option<Mode>) -> io::Result<bool> {
        let (next, facts) = match self.look(name) {
            Err(Errno::NOENT) if make.is_some() => {
                match mkdirat(&self.at, name, make.unwrap_or(Mode::RWXU)) {
                    Ok(()) | Err(Errno::EXIST) => self.look(name)?,
                    Err(error) => return Err(error.into()),
                }
            }
            looked => looked?,
        };
        match FileType::from_raw_mode(facts.st_mode) {
            FileType::Symlink => self.follow(name, &next, &facts)?,
            FileType::Directory => {
                match name.to_str() {
                    Some("..") => _ = self.shown.pop(),
                    _ => self.shown.push(name),
                }
                self.by.judge_step(&self.shown, &facts)?;
                self.at = next;
                self.judge_strange(0)?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Opens what has a name, known by its path alone.
    fn look(&self, name: &OsStr) -> Result<(OwnedFd, Stat), Errno> {
        // A directory that is mounted when it is first used is mounted only for who asks for one.
        let next = match openat(&self.at, name, STEP | OFlags::DIRECTORY, Mode::empty()) {
            Err(Errno::NOTDIR | Errno::LOOP) => openat(&self.at, name, STEP, Mode::empty()),
            opened => opened,
        }?;
        let facts = fstat(&next)?;
        Ok((next, facts))
    }

    fn follow(&mut self, name: &OsStr, link: &OwnedFd, facts: &Stat) -> io::Result<()> {
        let (step, owner) = (self.shown.join(name), facts.st_uid);
        if !self.by.is_one(owner) {
            let is_last = self.rest.is_empty() && !self.to_directory;
            let left = self.rest.len();
            match self.by.rule {
                Rule::Links if !is_last => self.strange.push(Strange { step, owner, left }),
                Rule::Nothing => {}
                Rule::LastLink if !is_last => {}
                _ => return Err(Untrusted::Link { step, owner }.error()),
            }
        }
        self.links += 1;
        if self.links > MOST_LINKS {
            return Err(Errno::LOOP.into());
        }
        let target = readlinkat(link, "", Vec::new())?;
        let target = OsString::from_vec(target.into_bytes());
        if Path::new(&target).is_absolute() {
            self.begin_again()?;
        }
        self.rest.extend(steps(Path::new(&target)));
        if self.rest.len() > MOST_STEPS {
            return Err(Errno::LOOP.into());
        }
        self.judge_strange(0)
    }

    /// Whether the next name is one that only the kernel's user gives.
    fn is_of_kernel(&self, name: &OsStr) -> io::Result<bool> {
        // Everybody may write to `/dev/shm`.
        let is_device = self.shown == Path::new("/dev") && name != "shm" && name != "..";
        Ok(is_device || fstatfs(&self.at)?.f_type == PROC_SUPER_MAGIC)
    }

    /// Looks at where links of strangers have led: who leads to a directory of one's own gains
    /// nothing. Those to which `more` names belong still count as well.
    fn judge_strange(&mut self, more: usize) -> io::Result<()> {
        let here = fstat(&self.at)?.st_uid;
        let left = self.rest.len();
        let arrived = |link: &mut Strange| left <= link.left.saturating_add(more);
        while let Some(Strange { step, owner, .. }) = self.strange.pop_if(arrived) {
            if owner != here {
                return Err(Untrusted::Link { step, owner }.error());
            }
        }
        Ok(())
    }
}

fn root() -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(openat(CWD, "/", flags, Mode::empty())?)
}

/// A path of a configuration whose paths begin in `working`. How the configuration itself was found
/// is its operator's word, so links in the path of that directory are not judged again.
pub fn begin_in(working: &Path, path: &Path) -> PathBuf {
    let whole = working.join(path);
    let below = whole.strip_prefix(working).ok();
    let real = below.and_then(|below| Some(working.canonicalize().ok()?.join(below)));
    real.unwrap_or(whole)
}

/// The names of a path, the first one last.
fn steps(path: &Path) -> Vec<OsString> {
    let names = path.components().rev().filter_map(|part| match part {
        Component::Normal(_) | Component::ParentDir => Some(part.as_os_str()),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    });
    names.map(OsStr::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use std::fs::{create_dir, set_permissions, write};
    use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, lchown, symlink};

    use pronghorn_testkit::Directory;

    use super::*;

    const STRANGER: u32 = 65534;
    const OTHER: u32 = 65533;

    fn directory() -> Directory {
        Directory::with(&[("own/lib/x.so", "")])
    }

    fn me() -> Trusted {
        Trusted::users(vec![rustix::process::geteuid().as_raw()])
    }

    fn set_mode(path: &Path, mode: u32) {
        set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
    }

    fn is_root() -> bool {
        let is_root = rustix::process::geteuid().is_root();
        if !is_root {
            eprintln!("skipped: only root makes files of others");
        }
        is_root
    }

    fn why<T: std::fmt::Debug>(refused: io::Result<T>) -> String {
        let refused = refused.unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied);
        assert!(Untrusted::is(&refused));
        refused.to_string()
    }

    #[test]
    fn what_others_may_replace_is_not_opened() {
        let directory = directory();
        let path = directory.join("own/lib/x.so");
        assert!(me().open(&path).is_ok());
        assert!(me().open(&directory.join("own/../own/./lib/x.so")).is_ok());
        for (part, mode, is_trusted) in [
            ("own", 0o777, false),
            ("own", 0o1777, true),
            ("own", 0o755, true),
            ("own/lib/x.so", 0o666, false),
            ("own/lib/x.so", 0o644, true),
        ] {
            set_mode(&directory.join(part), mode);
            assert_eq!(me().open(&path).is_ok(), is_trusted, "{part} {mode:o}");
        }
        assert!(
            me().open(&directory.join("own/lib")).is_err(),
            "a directory"
        );
        let none = me().open(&directory.join("own/none/x.so")).unwrap_err();
        assert_eq!(none.kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn a_link_counts_as_its_owner_s() {
        let directory = directory();
        let (to, end) = (directory.join("to"), directory.join("own/lib/y.so"));
        symlink("own", &to).unwrap();
        symlink(directory.join("to/lib/x.so"), &end).unwrap();
        assert!(me().open(&to.join("lib/y.so")).is_ok());
        let circle = directory.join("circle");
        symlink("circle", &circle).unwrap();
        assert!(me().open(&circle).is_err());
        if is_root() {
            lchown(&to, Some(STRANGER), None).unwrap();
            why(me().open(&to.join("lib/x.so")));
            let path = to.join("lib/x.so");
            assert!(Trusted::users(vec![STRANGER]).open(&path).is_ok());
            chown(directory.join("own/lib/x.so"), Some(STRANGER), None).unwrap();
            assert!(me().open(&directory.join("own/lib/x.so")).is_err());
        }
    }

    #[test]
    fn what_decides_for_root_is_no_strangers_and_no_groups() {
        if !is_root() {
            return;
        }
        let directory = directory();
        let (above, end) = (directory.join("own"), directory.join("own/lib"));
        let strict = Trusted::steps_of_server();
        strict.directory(&end).unwrap();
        for (step, mode) in [(&above, 0o777), (&end, 0o777), (&end, 0o1777)] {
            set_mode(step, mode);
            let said = why(strict.directory(&end));
            assert!(
                said.contains(&format!("chmod go-w {}", step.display())),
                "{said}"
            );
            set_mode(step, 0o755);
        }
        set_mode(&above, 0o1777);
        strict.directory(&end).unwrap();
        set_mode(&above, 0o775);
        strict.directory(&end).unwrap();
        chown(&above, None, Some(STRANGER)).unwrap();
        why(strict.directory(&end));
        chown(&above, Some(STRANGER), Some(0)).unwrap();
        set_mode(&above, 0o755);
        let said = why(strict.judge_directory(&above.join("none")));
        let expected = format!("`{0}` belongs to user {STRANGER}, ", above.display());
        assert!(said.starts_with(&expected), "{said}");
        let made = directory.join("a/b");
        strict.judge_directory(&made).unwrap();
        strict.make_directory(&made, 0o700).unwrap();
        assert_eq!(made.metadata().unwrap().mode() & 0o777, 0o700);
    }

    #[test]
    fn a_stranger_leads_root_to_the_strangers_own_directories_alone() {
        if !is_root() {
            return;
        }
        let directory = Directory::new();
        let at = |name: &str| directory.join(name);
        for (name, owner) in [
            ("app", STRANGER),
            ("shared", STRANGER),
            ("roots", 0),
            ("others", OTHER),
        ] {
            create_dir(at(name)).unwrap();
            chown(at(name), Some(owner), None).unwrap();
        }
        create_dir(at("shared/logs")).unwrap(); // which the server has made
        for (link, to) in [
            ("own", "../shared"),
            ("of_root", "../roots"),
            ("of_other", "../others"),
            ("twice", "of_root"),
            ("back", "own/../../roots"),
            ("top", "/"),
            ("proc", "/proc/self"),
            ("file", "../shared/f"),
        ] {
            symlink(to, at("app").join(link)).unwrap();
            lchown(at("app").join(link), Some(STRANGER), None).unwrap();
        }
        symlink("../roots", at("app/meant")).unwrap();
        write(at("shared/f"), "").unwrap();
        let lenient = Trusted::links_of_server();
        for (path, is_followed) in [
            ("app/x", true),
            ("app/own/x", true),
            ("app/own/logs/x", true),
            ("app/meant/x", true),
            ("app/of_root/x", false),
            ("app/of_other/x", false),
            ("app/twice/x", false),
            ("app/back/x", false),
            ("app/top/x", false),
            ("app/proc/cwd/x", false),
            ("app/file", false),
        ] {
            let found = lenient.place(&at(path));
            assert_eq!(found.is_ok(), is_followed, "{path}: {found:?}");
        }
        lenient.directory(&at("app/own")).unwrap();
        for path in ["app/of_root", "app/top", "app/twice"] {
            why(lenient.directory(&at(path)));
        }
        let kernels = lenient.place(Path::new("/dev/stdout")).unwrap();
        assert!(kernels.is_of_kernel);
        assert_eq!(kernels.name, "stdout");
        let pipe = lenient.place(Path::new("/proc/self/fd/1")).unwrap();
        assert_eq!(pipe.name, "self/fd/1");
        assert!(!lenient.place(Path::new("/dev/shm/x")).unwrap().is_of_kernel);
        // It is what was found, wherever the path leads by now.
        let place = lenient.place(&at("app/own/x")).unwrap();
        let shared = at("shared").metadata().unwrap().ino();
        std::fs::rename(at("shared"), at("moved")).unwrap();
        assert_eq!(fstat(&place.directory).unwrap().st_ino, shared);
    }
}
