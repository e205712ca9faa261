//! Bodies that are too long for memory, in files.
//!
//! All spool files together may take at most half of what was free on their file system at the
//! start, and those that are held for clients three quarters of that: beyond it the client goes
//! that holds the most. Files are made and written by blocking calls: keep them off the I/O
//! threads.
//!
//! The directory may lie among the files of an application, whose user can put another one in its
//! place at any time: it is found anew for each file, by a way on which no stranger leads root
//! elsewhere, and what is done to the file afterwards is done in the directory that was found.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsStr;
use std::fmt::{Debug, Display};
use std::fs::File;
use std::io::{self, Seek as _};
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::time::{Duration, SystemTime};

use pronghorn_base::{LogThrottle, Trusted, begin_in, heaviest, lock};
use pronghorn_process::Credentials;
use pronghorn_process::file::{identity, name_of_open};
use pronghorn_process::open_files::open_in_time;
use rustix::fs::{Access, AtFlags, Dir, FileType, Mode, OFlags, openat, statat, unlinkat};
use rustix::io::Errno;
use thiserror::Error;
use tokio::time::Instant;
use tokio_util::task::TaskTracker;

/// Names of spool files: this, what they are for, where the server's number is its own, that
/// number, a count, something random.
const PREFIX: &str = "pronghorn-";
/// Nothing that is in use is older: the file of a call lives as long as the call.
const OLD: Duration = Duration::from_secs(24 * 3600);
/// A write waits for so long for the files of clients that were told to end.
const LEAVING: Duration = Duration::from_secs(1);

/// A folder for spool files and what is left of its share of the disk.
#[derive(Debug)]
pub struct Spool {
    /// As it is named.
    folder: PathBuf,
    /// Where the configuration's paths begin.
    working: PathBuf,
    /// As it was found last.
    found: Mutex<Arc<OwnedFd>>,
    /// Who may read files that workers are told of by name.
    owner: Option<Credentials>,
    share: Arc<Share>,
    namespace: u64,
    next: AtomicU64,
    /// Of files that are no longer needed.
    removals: TaskTracker,
}

/// What spool files may take of a disk.
#[derive(Debug)]
struct Share {
    device: u64,
    used: AtomicU64,
    limit: u64,
    /// Files that are held for clients.
    held: Mutex<BTreeMap<u64, HeldFile>>,
    /// One of these has gone, with its bytes.
    gone: Condvar,
    next: AtomicU64,
}

/// A client that makes the server keep files.
pub trait SpoolClient: Debug + Display + Send + Sync {
    /// Clients of one network count as one. `None` where many share one, as behind a proxy.
    fn network(&self) -> Option<IpAddr>;

    /// Ends its connection, and with that its files.
    fn close(&self);

    /// Whether it was told to end.
    fn is_closing(&self) -> bool;
}

/// A file that is held for a client.
#[derive(Debug)]
struct HeldFile {
    client: Arc<dyn SpoolClient>,
    bytes: u64,
}

/// Why a body cannot be spooled.
#[derive(Debug, Error)]
pub enum SpoolError {
    /// The load's: too many long bodies at once.
    #[error("spool files take {used} bytes already, half of what was free at the start is {limit}")]
    Full { used: u64, limit: u64 },
    /// The load's: no client holds more than this one, and there is no room for all.
    #[error(
        "no client holds more in spool files than this one, and those of all clients take {used} \
         bytes of {most}"
    )]
    Heaviest { used: u64, most: u64 },
    /// The machine's: no space, no permission.
    #[error("cannot write to the spool folder `{}`", .folder.display())]
    Io { folder: PathBuf, source: io::Error },
}

impl SpoolError {
    /// For a record.
    pub fn with_cause(&self) -> String {
        match self {
            Self::Full { .. } | Self::Heaviest { .. } => self.to_string(),
            Self::Io { source, .. } => format!("{self}: {source}"),
        }
    }
}

impl Spool {
    /// Looks at the folder once: it must exist and be writable.
    pub fn open(folder: &Path, owner: Option<Credentials>) -> Result<Self, SpoolError> {
        Self::below(Path::new("/"), folder, owner)
    }

    /// The same for a path that may be relative: it begins in `working`.
    pub fn below(
        working: &Path,
        named: &Path,
        owner: Option<Credentials>,
    ) -> Result<Self, SpoolError> {
        let folder = working.join(named);
        let failed = |source| SpoolError::Io {
            folder: folder.clone(),
            source,
        };
        let found = find(working, &folder).map_err(failed)?;
        let look = || {
            rustix::fs::accessat(&found, ".", Access::WRITE_OK, AtFlags::empty())?;
            Ok::<_, Errno>((rustix::fs::fstat(&found)?, rustix::fs::fstatvfs(&found)?))
        };
        let (facts, free) = look().map_err(|error| failed(error.into()))?;
        let limit = free.f_bavail.saturating_mul(free.f_frsize) / 2;
        let share = Share::of_disk(facts.st_dev, limit);
        let namespace = pid_namespace();
        remove_leftovers(&found, namespace);
        Ok(Self {
            folder,
            working: working.to_owned(),
            found: Mutex::new(Arc::new(found)),
            owner,
            share,
            namespace,
            next: AtomicU64::new(1),
            removals: TaskTracker::new(),
        })
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// What the files in this folder, and those in others on the same disk, take, and what they may
    /// take.
    pub fn usage(&self) -> (u64, u64) {
        (self.share.used.load(Ordering::Relaxed), self.share.limit)
    }

    /// Waits until the files that are no longer needed are gone: else a process that ends leaves
    /// some of them behind.
    pub async fn settle(&self) {
        self.removals.close();
        self.removals.wait().await;
    }

    /// A file without a name: gone with its last descriptor, whatever happens.
    pub fn unnamed(self: &Arc<Self>) -> Result<SpoolFile, SpoolError> {
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let opened = open_in_time(|| {
            let found = self.find()?;
            Ok(openat(&found, ".", flags, Mode::RUSR | Mode::WUSR)?)
        });
        match opened {
            Ok(file) => Ok(SpoolFile {
                spool: self.clone(),
                file: file.into(),
                place: None,
                len: 0,
                held: None,
            }),
            // Not every file system knows nameless files.
            Err(error)
                if matches!(
                    Errno::from_io_error(&error),
                    Some(Errno::OPNOTSUPP | Errno::ISDIR | Errno::NOENT)
                ) =>
            {
                let mut named = self.named("reply")?;
                named.unlink();
                Ok(named)
            }
            Err(error) => Err(self.failed(error)),
        }
    }

    /// A name in this folder for what the next server removes if this one can't.
    ///
    /// # Errors
    ///
    /// When the folder is not there, or a stranger leads elsewhere.
    pub fn place(&self, what: &str) -> io::Result<SpoolPlace> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let (pid, random) = (std::process::id(), fastrand::u32(..));
        let namespace = self.namespace;
        let name = format!("{PREFIX}{what}-{namespace}-{pid}-{number}-{random:08x}");
        Ok(SpoolPlace {
            directory: self.find()?,
            path: self.folder.join(&name),
            name,
        })
    }

    /// The directory as it is now. All files of one share its descriptor.
    fn find(&self) -> io::Result<Arc<OwnedFd>> {
        let now = find(&self.working, &self.folder)?;
        let mut found = lock(&self.found);
        if identity(&**found)? != identity(&now)? {
            *found = Arc::new(now);
        }
        Ok(found.clone())
    }

    /// A file that a worker can open: only its user may read it. Removed when this value is
    /// dropped.
    pub fn named(self: &Arc<Self>, what: &str) -> Result<SpoolFile, SpoolError> {
        /// Somebody else's file of the same name is an accident; ten in a row are not.
        const TRIES: usize = 10;
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        for _ in 0..TRIES {
            let mode = Mode::RUSR | Mode::WUSR;
            let opened = open_in_time(|| {
                let place = self.place(what)?;
                let file = openat(&place.directory, &place.name, flags, mode)?;
                Ok((file, place))
            });
            match opened {
                Ok((file, place)) => {
                    let file = SpoolFile {
                        spool: self.clone(),
                        file: file.into(),
                        place: Some(place),
                        len: 0,
                        held: None,
                    };
                    file.hand_to_owner()?;
                    return Ok(file);
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(self.failed(error)),
            }
        }
        Err(self.failed(Errno::EXIST.into()))
    }

    fn failed(&self, source: io::Error) -> SpoolError {
        SpoolError::Io {
            folder: self.folder.clone(),
            source,
        }
    }
}

/// The shares of this process, one for each disk: spool files of all services together have half
/// of what was free when the first of them began.
static SHARES: Mutex<Vec<Weak<Share>>> = Mutex::new(Vec::new());

impl Share {
    fn of_disk(device: u64, limit: u64) -> Arc<Self> {
        let mut shares = lock(&SHARES);
        shares.retain(|share| share.strong_count() > 0);
        let mut known = shares.iter().filter_map(Weak::upgrade);
        if let Some(share) = known.find(|share| share.device == device) {
            return share;
        }
        let share = Arc::new(Self::new(device, limit));
        shares.push(Arc::downgrade(&share));
        share
    }

    fn new(device: u64, limit: u64) -> Self {
        Self {
            device,
            used: AtomicU64::new(0),
            limit,
            held: Mutex::default(),
            gone: Condvar::new(),
            next: AtomicU64::new(1),
        }
    }

    /// Takes so many bytes for a file. Where other clients were told to end, and there is no room
    /// until they have, it waits for them, as long as a write may.
    fn take(&self, file: Option<u64>, bytes: u64) -> Result<(), SpoolError> {
        let end = Instant::now() + LEAVING;
        let mut held = lock(&self.held);
        loop {
            let taken = self.reserve(bytes);
            let left = end.saturating_duration_since(Instant::now());
            let is_leaving = |file: &HeldFile| file.bytes > 0 && file.client.is_closing();
            let leaves_itself = file.and_then(|id| held.get(&id)).is_some_and(is_leaving);
            let waits = !leaves_itself && held.values().any(is_leaving);
            if taken.is_ok() || left.is_zero() || !waits {
                return taken;
            }
            let waited = self.gone.wait_timeout(held, left);
            (held, _) = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn reserve(&self, bytes: u64) -> Result<(), SpoolError> {
        let used = self.used.fetch_add(bytes, Ordering::Relaxed);
        if used.saturating_add(bytes) > self.limit {
            self.give_back(bytes);
            return Err(SpoolError::Full {
                used,
                limit: self.limit,
            });
        }
        Ok(())
    }

    fn give_back(&self, bytes: u64) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Makes room for so much more of a file: closes the clients that hold the most, until what
    /// the others hold fits.
    ///
    /// # Errors
    ///
    /// When the file's own client is the next one: it gets an answer.
    fn make_room(&self, file: u64, bytes: u64) -> Result<(), SpoolError> {
        let mut held = lock(&self.held);
        let most = self.limit / 4 * 3;
        let used: u64 = held.values().map(|held| held.bytes).sum();
        if used.saturating_add(bytes) > most {
            let own = held.get(&file).map(|held| held.client.clone());
            let mut staying = by_client(held.values());
            let mut stay: u64 = staying.iter().map(|(_, bytes)| bytes).sum();
            while stay.saturating_add(bytes) > most {
                let weights = staying.iter().map(|(one, bytes)| (one.network(), *bytes));
                let next = heaviest(weights).map(|at| staying.remove(at));
                let next = next.filter(|(one, _)| {
                    let own = own.as_ref();
                    own.is_some_and(|own| !Arc::ptr_eq(own, one))
                });
                let Some((client, bytes)) = next else {
                    return Err(SpoolError::Heaviest { used, most });
                };
                stay -= bytes;
                tell_closed(&client, bytes, most);
                client.close();
            }
        }
        if let Some(held) = held.get_mut(&file) {
            held.bytes += bytes;
        }
        Ok(())
    }
}

/// The bytes of each client that was not told to end, in the order of their first files.
fn by_client<'a>(held: impl Iterator<Item = &'a HeldFile>) -> Vec<(Arc<dyn SpoolClient>, u64)> {
    let mut places = HashMap::new();
    let mut clients: Vec<(Arc<dyn SpoolClient>, u64)> = Vec::new();
    for HeldFile { client, bytes } in held.filter(|held| !held.client.is_closing()) {
        let at = *places
            .entry(Arc::as_ptr(client).cast::<()>())
            .or_insert(clients.len());
        match clients.get_mut(at) {
            Some((_, all)) => *all += bytes,
            None => clients.push((client.clone(), *bytes)),
        }
    }
    clients
}

fn tell_closed(client: &Arc<dyn SpoolClient>, bytes: u64, limit: u64) {
    static CLOSED: LogThrottle = LogThrottle::new();
    if let Some(connections) = CLOSED.should_log() {
        let remote_address = client.to_string();
        tracing::warn!(
            target: "server", connections, remote_address, bytes, limit,
            "connections closed: clients hold too much in spool files, and these hold the most"
        );
    }
}

/// Within which the numbers of processes are unique: containers may share a folder and not their
/// numbers. 0 if nobody knows.
fn pid_namespace() -> u64 {
    std::fs::metadata("/proc/self/ns/pid").map_or(0, |namespace| namespace.ino())
}

/// The directory of that name, by a way on which no stranger leads root elsewhere.
fn find(working: &Path, folder: &Path) -> io::Result<OwnedFd> {
    Trusted::links_of_server().directory(&begin_in(working, folder))
}

/// Removes what servers left behind that were killed: their files' names have their numbers.
/// Whether one of another container lives can't be seen, so its files are left until they are old.
fn remove_leftovers(found: &OwnedFd, here: u64) {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let listed = openat(found, ".", flags, Mode::empty()).and_then(Dir::new);
    for entry in listed.into_iter().flatten().flatten() {
        let name = OsStr::from_bytes(entry.file_name().to_bytes());
        let Some((namespace, pid)) = name.to_str().and_then(owner_of) else {
            continue;
        };
        let Ok(facts) = statat(found, name, AtFlags::SYMLINK_NOFOLLOW) else {
            continue;
        };
        let folder = FileType::from_raw_mode(facts.st_mode) == FileType::Directory;
        let left_over = if namespace == here {
            pid != std::process::id() && !Path::new(&format!("/proc/{pid}")).exists()
        } else if folder {
            // One of settings lives as long as its server.
            false
        } else {
            let changed = u64::try_from(facts.st_mtime).unwrap_or(0);
            let changed = SystemTime::UNIX_EPOCH + Duration::from_secs(changed);
            changed.elapsed().is_ok_and(|age| age > OLD)
        };
        // Another server may have been quicker.
        if left_over && folder {
            _ = std::fs::remove_dir_all(name_of_open(found).join(name));
        } else if left_over {
            _ = unlinkat(found, name, AtFlags::empty());
        }
    }
}

/// The namespace and the number of the server whose file this is, if it is one.
fn owner_of(name: &str) -> Option<(u64, u32)> {
    let mut words = name.strip_prefix(PREFIX)?.split('-').skip(1);
    let (namespace, pid) = (words.next()?, words.next()?);
    Some((namespace.parse().ok()?, pid.parse().ok()?))
}

/// A name in the directory for spool files.
#[derive(Debug)]
pub struct SpoolPlace {
    /// Known by its path alone.
    pub directory: Arc<OwnedFd>,
    pub name: String,
    /// The same for others: it may lead elsewhere by now.
    pub path: PathBuf,
}

/// A body in a file.
#[derive(Debug)]
pub struct SpoolFile {
    spool: Arc<Spool>,
    file: File,
    place: Option<SpoolPlace>,
    len: u64,
    /// Its number among those of clients.
    held: Option<u64>,
}

impl SpoolFile {
    /// Counts it for a client from now on, if there is one. The first one stays.
    pub fn hold_for(&mut self, client: Option<Arc<dyn SpoolClient>>) {
        let Some(client) = client.filter(|_| self.held.is_none()) else {
            return;
        };
        let share = &self.spool.share;
        let id = share.next.fetch_add(1, Ordering::Relaxed);
        let bytes = self.len;
        lock(&share.held).insert(id, HeldFile { client, bytes });
        self.held = Some(id);
    }

    /// Appends. Blocks on the disk.
    pub fn append(&mut self, bytes: &[u8]) -> Result<(), SpoolError> {
        let more = bytes.len() as u64;
        if let Some(held) = self.held {
            self.spool.share.make_room(held, more)?;
        }
        let taken = self.spool.share.take(self.held, more);
        let written = taken.and_then(|()| {
            let written = io::Write::write_all(&mut self.file, bytes);
            written.map_err(|source| {
                self.spool.share.give_back(more);
                self.cut_to_len();
                self.spool.failed(source)
            })
        });
        match written {
            Ok(()) => self.len += more,
            Err(_) => self.let_go(more),
        }
        written
    }

    /// Takes back the part of a write that has failed: it is not read.
    fn cut_to_len(&self) {
        _ = self.file.set_len(self.len); // what follows is not read
        _ = (&self.file).seek(io::SeekFrom::Start(self.len));
    }

    /// Takes back bytes that were to be held for the client.
    fn let_go(&self, bytes: u64) {
        let mut held = lock(&self.spool.share.held);
        if let Some(held) = self.held.and_then(|id| held.get_mut(&id)) {
            held.bytes -= bytes;
        }
    }

    pub fn len(&self) -> u64 {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub fn path(&self) -> Option<&Path> {
        self.place.as_ref().map(|place| &*place.path)
    }

    pub fn file(&self) -> &File {
        &self.file
    }

    fn hand_to_owner(&self) -> Result<(), SpoolError> {
        let Some(owner) = &self.spool.owner else {
            return Ok(());
        };
        std::os::unix::fs::fchown(&self.file, Some(owner.uid()), Some(owner.gid()))
            .map_err(|source| self.spool.failed(source))
    }

    /// Removing a long file takes its time, so it is done on a file thread where there is one.
    fn unlink(&mut self) {
        let Some(place) = self.place.take() else {
            return;
        };
        // The application may have moved it: that is what uploads are for.
        let remove = move || _ = unlinkat(&place.directory, &place.name, AtFlags::empty());
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) => drop(self.spool.removals.spawn_blocking_on(remove, &runtime)),
            Err(_) => remove(),
        }
    }
}

impl Drop for SpoolFile {
    fn drop(&mut self) {
        self.unlink();
        let share = &self.spool.share;
        // Both under the lock: whoever waits sees that it has gone when there is room.
        let mut held = lock(&share.held);
        if let Some(file) = self.held {
            held.remove(&file);
        }
        share.give_back(self.len);
        drop(held);
        share.gone.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::io::{Read, Seek};

    use pronghorn_testkit::Directory;

    use super::*;

    fn spool(limit: u64) -> Arc<Spool> {
        let mut spool = Spool::open(&std::env::temp_dir(), None).unwrap();
        // Other tests of this process use the disk's.
        spool.share = Arc::new(Share::new(spool.share.device, limit));
        Arc::new(spool)
    }

    #[test]
    fn a_named_file_is_private_and_gone_when_it_is_dropped() {
        use std::os::unix::fs::MetadataExt;
        let mut file = spool(100).named("body").unwrap();
        file.append(b"hello").unwrap();
        let path = file.path().unwrap().to_owned();
        assert_eq!(std::fs::read(&path).unwrap(), b"hello");
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        drop(file);
        assert!(!path.exists());
    }

    #[test]
    fn leftovers_of_dead_servers_are_removed_and_nothing_else() {
        let directory = Directory::new();
        let here = pid_namespace();
        assert_ne!(here, 0);
        let mine = format!("pronghorn-body-{here}-{}-1-0", std::process::id());
        let parents = format!(
            "pronghorn-body-{here}-{}-1-0",
            std::os::unix::process::parent_id()
        );
        // Process numbers end at 2^22.
        let dead = format!("pronghorn-upload-{here}-99999999-1-0");
        let foreign = "pronghorn-upload-1-99999999-1-0".to_owned();
        let forgotten = "pronghorn-upload-1-99999999-2-0".to_owned();
        let others = ["pronghorn-body-x-1", "other-1-99999999"].map(str::to_owned);
        for name in [&mine, &parents, &dead, &foreign, &forgotten]
            .into_iter()
            .chain(&others)
        {
            std::fs::write(directory.join(name), "").unwrap();
        }
        let file = File::options()
            .write(true)
            .open(directory.join(&forgotten))
            .unwrap();
        file.set_modified(SystemTime::now() - OLD - Duration::from_secs(1))
            .unwrap();
        Spool::open(&directory, None).unwrap();
        let left: BTreeSet<_> = std::fs::read_dir(&directory)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        let [one, two] = others;
        assert_eq!(left, BTreeSet::from([mine, parents, foreign, one, two]));
    }

    /// As an application does that owns the directory above.
    #[test]
    fn who_owns_the_directory_above_puts_no_file_anywhere_else() {
        use std::os::unix::fs::{chown, lchown, symlink};
        const STRANGER: u32 = 65534;
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped: only root makes files of others");
            return;
        }
        let directory = Directory::with(&[("app/tmp/x", ""), ("roots/x", "")]);
        let tmp = directory.join("app/tmp");
        for path in [directory.join("app"), tmp.clone()] {
            chown(path, Some(STRANGER), None).unwrap();
        }
        let names = |name: &str| std::fs::read_dir(directory.join(name)).unwrap().count();
        let spool = Arc::new(Spool::open(&tmp, None).unwrap());
        let before = spool.named("upload").unwrap();
        std::fs::rename(&tmp, directory.join("app/away")).unwrap();
        symlink("../roots", &tmp).unwrap();
        lchown(&tmp, Some(STRANGER), None).unwrap();
        for made in [spool.named("upload"), spool.unnamed()] {
            let refused = made.unwrap_err().with_cause();
            assert!(
                refused.contains("is a symbolic link of user 65534"),
                "{refused}"
            );
        }
        assert_eq!(names("roots"), 1);
        assert_eq!(names("app/away"), 2);
        drop(before);
        assert_eq!(names("app/away"), 1, "it is removed where it was made");
        Spool::open(&tmp, None).unwrap_err();
        std::fs::remove_file(&tmp).unwrap();
        spool.named("upload").unwrap_err();
        std::fs::rename(directory.join("app/away"), &tmp).unwrap();
        spool.named("upload").unwrap();
    }

    #[test]
    fn an_unnamed_file_can_be_read_back() {
        let mut file = spool(100).unnamed().unwrap();
        file.append(b"hello ").unwrap();
        file.append(b"world").unwrap();
        assert_eq!(file.path(), None);
        let mut text = String::new();
        file.file().rewind().unwrap();
        file.file().read_to_string(&mut text).unwrap();
        assert_eq!(text, "hello world");
    }

    #[derive(Debug, Default)]
    struct Client {
        network: Option<IpAddr>,
        closed: AtomicU64,
    }

    impl Client {
        fn of(network: &str) -> Arc<Self> {
            Arc::new(Self {
                network: Some(network.parse().unwrap()),
                ..Self::default()
            })
        }
    }

    impl Display for Client {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("test")
        }
    }

    impl SpoolClient for Client {
        fn network(&self) -> Option<IpAddr> {
            self.network
        }

        fn close(&self) {
            self.closed.store(1, Ordering::Relaxed);
        }

        fn is_closing(&self) -> bool {
            self.closed.load(Ordering::Relaxed) > 0
        }
    }

    fn file_of(spool: &Arc<Spool>, client: &Arc<Client>, bytes: usize) -> SpoolFile {
        let mut file = spool.unnamed().unwrap();
        file.hold_for(Some(client.clone()));
        file.append(&vec![0; bytes]).unwrap();
        file
    }

    #[test]
    fn the_client_that_holds_the_most_goes_before_the_disk_is_full() {
        let spool = spool(400); // of which clients get 300
        let (crowd, other, proxy) = (
            [0, 1].map(|_| Client::of("192.0.2.1")),
            Client::of("192.0.2.2"),
            Arc::new(Client::default()),
        );
        let _files = [
            file_of(&spool, &crowd[0], 60),
            file_of(&spool, &crowd[1], 30),
            file_of(&spool, &crowd[1], 40), // a second one of the same client
            file_of(&spool, &other, 100),
        ];
        let mut small = file_of(&spool, &proxy, 70);
        let is_closed = || [&crowd[0], &crowd[1], &other, &proxy].map(|it| it.is_closing());
        assert_eq!(is_closed(), [false; 4]);
        small.append(&[0; 10]).unwrap();
        assert_eq!(is_closed(), [false, true, false, false]);
        small.append(&[0; 40]).unwrap(); // what is closing counts no more
        let refused = small.append(&[0; 80]).unwrap_err();
        assert!(
            matches!(refused, SpoolError::Heaviest { most: 300, .. }),
            "{refused}"
        );
        assert_eq!(is_closed(), [false, true, false, false]);
    }

    #[test]
    fn a_write_waits_for_the_room_of_a_client_that_ends() {
        let spool = spool(400); // of which clients get 300
        let (greedy, other) = (Client::of("192.0.2.1"), Client::of("192.0.2.2"));
        let leaving = file_of(&spool, &greedy, 250);
        let mut file = file_of(&spool, &other, 40);
        std::thread::scope(|scope| {
            let written = scope.spawn(|| file.append(&[0; 120]));
            while !greedy.is_closing() {
                std::thread::yield_now();
            }
            assert!(!written.is_finished(), "it waits: 410 bytes do not fit");
            drop(leaving);
            written.join().unwrap().unwrap();
        });
        assert_eq!(spool.usage().0, 160);
    }

    #[test]
    fn the_share_of_the_disk_has_an_end_and_is_given_back() {
        let spool = spool(10);
        let mut first = spool.unnamed().unwrap();
        first.append(b"12345678").unwrap();
        let mut second = spool.unnamed().unwrap();
        assert!(matches!(
            second.append(b"123"),
            Err(SpoolError::Full { used: 8, limit: 10 })
        ));
        drop(first);
        second.append(b"123").unwrap();
    }

    #[test]
    fn two_folders_of_one_disk_have_one_share() {
        let (first, second) = (Directory::new(), Directory::new());
        let open = |at: &Path| Spool::open(at, None).unwrap();
        let (first, second) = (open(first.path()), open(second.path()));
        assert!(Arc::ptr_eq(&first.share, &second.share));
        if let Ok(elsewhere) = Spool::open(Path::new("/dev/shm"), None) {
            assert!(!Arc::ptr_eq(&first.share, &elsewhere.share));
        }
    }

    #[test]
    fn files_of_one_share_have_one_limit() {
        let first = spool(10);
        let mut second = Spool::open(&std::env::temp_dir(), None).unwrap();
        second.share = first.share.clone();
        let second = Arc::new(second);
        first.unnamed().unwrap().append(b"12345678").unwrap();
        let mut file = first.unnamed().unwrap();
        file.append(b"12345678").unwrap();
        assert!(matches!(
            second.unnamed().unwrap().append(b"123"),
            Err(SpoolError::Full { used: 8, limit: 10 })
        ));
    }

    #[test]
    fn a_folder_that_is_missing_is_named() {
        let error = Spool::open(Path::new("/nope"), None).unwrap_err();
        assert_eq!(
            error.to_string(),
            "cannot write to the spool folder `/nope`"
        );
    }
}
