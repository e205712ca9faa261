//! Watching an application's files: a change brings new workers.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use notify::event::ModifyKind;
use notify::{Config, EventKind, PollWatcher, RecommendedWatcher, RecursiveMode, Watcher};
use pronghorn_base::{BoxFuture, lock};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout, timeout_at};

use crate::pools::Pools;

/// An editor writes a file in several steps, and a checkout writes many files: this long after the
/// last change it is over.
const QUIET: Duration = Duration::from_millis(100);
/// Directories watched at most; each takes a kernel object of its own.
const MOST_DIRECTORIES: usize = 5_000;
/// Paths that were not looked at yet. If there are more, everything is looked at.
const MOST_PATHS: usize = 4096;

/// Directories whose files come and go without being the application's code.
const LEFT_OUT: [&str; 7] = [
    "node_modules",
    ".git",
    ".idea",
    "cache",
    "storage",
    "log",
    "logs",
];
/// Templates of Blade end in `.php`. Symfony reads `.env.local` after `.env`.
const CODE: [&str; 7] = [
    ".php",
    ".env",
    ".env.local",
    "composer.lock",
    ".yaml",
    ".yml",
    ".twig",
];

/// The directories and files to watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Watching {
    /// Relative ones begin in the working directory.
    pub folders: Vec<PathBuf>,
    /// Whether directories in them are watched, too.
    pub recursive: bool,
    /// Names of directories that are left out below these, or the last names of their paths.
    pub ignored: Vec<PathBuf>,
    /// Endings of the names of files to watch.
    pub patterns: Vec<String>,
    /// The longest time for which changes are gathered: something may be written all the time.
    /// Also the time between two looks at files whose changes nobody reports, and at the watched
    /// directories, which may be others by then: a link may lead elsewhere.
    pub interval: Duration,
}

impl Watching {
    /// What is watched in development while nobody has written what to watch: all that is code.
    pub fn for_development() -> Self {
        Self {
            folders: vec![PathBuf::from(".")],
            recursive: true,
            ignored: LEFT_OUT.map(PathBuf::from).into(),
            patterns: CODE.map(String::from).into(),
            interval: Duration::from_secs(1),
        }
    }

    /// The same with directories that don't depend on where the server works.
    fn in_directory(mut self, directory: &Path) -> Self {
        for watched in &mut self.folders {
            // Without dots between, in which paths are not written by those who report changes.
            *watched = directory.join(&watched).components().collect();
        }
        self
    }

    fn counts(&self, file: &Path) -> bool {
        let name = file.file_name().unwrap_or_default().as_encoded_bytes();
        let mut patterns = self.patterns.iter();
        patterns.any(|ending| name.ends_with(ending.as_bytes()))
    }

    /// Packages change by `composer install`, which writes `vendor/composer`; their own directories
    /// are many and never edited.
    fn is_left_out(&self, directory: &Path) -> bool {
        let in_vendor = directory.parent().and_then(Path::file_name) == Some(OsStr::new("vendor"));
        let mut ignored = self.ignored.iter();
        ignored.any(|ignored| directory.ends_with(ignored.strip_prefix(".").unwrap_or(ignored)))
            || (in_vendor && directory.file_name() != Some(OsStr::new("composer")))
    }
}

/// Watches an application; ends when it is dropped.
#[derive(Debug)]
pub struct Watch {
    task: JoinHandle<()>,
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Watch {
    /// Reloads workers after each change that counts: those of the pools of a service, of all where
    /// none is named. `configuration` are files whose change needs a restart, which is said.
    ///
    /// # Errors
    ///
    /// When the system lets nobody watch, or no more.
    pub fn start(
        watching: Watching,
        directory: &Path,
        configuration: Vec<PathBuf>,
        pools: Pools,
        owner: Option<&'static str>,
    ) -> notify::Result<Self> {
        Self::with(watching, directory, configuration, move |file| {
            let pools = pools.clone();
            Box::pin(async move {
                tracing::info!(target: "server", "{} changed: starting new workers", file.display());
                // The reason of a failure is in the log and in the browser.
                pools
                    .reload(|of| owner.is_none_or(|owner| owner == of))
                    .await;
            })
        })
    }

    /// The same for something else than workers: `react` is called with a file that has changed,
    /// and not again before what it returns is done.
    ///
    /// # Errors
    ///
    /// When the system lets nobody watch, or no more.
    pub fn with(
        watching: Watching,
        directory: &Path,
        configuration: Vec<PathBuf>,
        react: impl Fn(PathBuf) -> BoxFuture<'static, ()> + Send + Sync + 'static,
    ) -> notify::Result<Self> {
        let watching = watching.in_directory(directory);
        let changes = Arc::new(Changes::default());
        let mut directories = watching.folders.iter();
        let silent = directories.find_map(|directory| silent_filesystem(directory));
        let watched = Watched::open(watching, silent.is_some(), changes.clone())?;
        for directory in &watched.watching.folders {
            tracing::info!(target: "server", folders = watched.directories.len(), "watching {} for changes", directory.display());
        }
        if let Some(kind) = silent {
            let every = watched.watching.interval;
            tracing::info!(
                target: "server",
                "files there are checked every {every:?}: {kind} does not report all changes"
            );
        }
        let follow = follow(watched, changes, configuration, react);
        let task = tokio::runtime::Handle::current().spawn(follow);
        Ok(Self { task })
    }
}

async fn follow(
    mut watched: Watched,
    changes: Arc<Changes>,
    configuration: Vec<PathBuf>,
    react: impl Fn(PathBuf) -> BoxFuture<'static, ()> + Send,
) {
    loop {
        let mut paths = changes.batch(watched.watching.interval).await;
        paths.extend(watched.replaced());
        let mut changed = None;
        for path in paths {
            let is_directory = watched.revise(&path);
            if configuration.contains(&path) {
                tracing::warn!(target: "server", "{} changed: restart the server to apply \
                                                  it", path.display());
            } else if is_directory || watched.watching.counts(&path) {
                changed.get_or_insert(path);
            }
        }
        if let Some(changed) = changed {
            react(changed).await;
        }
    }
}

/// Paths that were reported, and that nobody has looked at yet.
#[derive(Default)]
struct Changes {
    paths: Mutex<HashSet<PathBuf>>,
    news: Notify,
}

impl Changes {
    /// Notes `everything` where there are more paths than it has room for, or where the system has
    /// lost some.
    fn hear(&self, event: notify::Event, everything: &[PathBuf]) {
        if matches!(event.kind, EventKind::Access(_)) {
            return;
        }
        // A directory's time changes with each file that comes or goes in it. That file has an
        // event of its own.
        let is_metadata = matches!(event.kind, EventKind::Modify(ModifyKind::Metadata(_)));
        if is_metadata && !event.paths.is_empty() && event.paths.iter().all(|path| path.is_dir()) {
            return;
        }
        let mut paths = lock(&self.paths);
        let is_full = paths.len() + event.paths.len() > MOST_PATHS;
        if event.need_rescan() || is_full {
            *paths = everything.iter().cloned().collect();
        } else {
            paths.extend(event.paths);
        }
        self.news.notify_one();
    }

    /// Waits for changes, and then until it is quiet, or has gone on for as long as the interval.
    /// Nothing, if for an interval nothing changes.
    async fn batch(&self, interval: Duration) -> HashSet<PathBuf> {
        if timeout(interval, self.news.notified()).await.is_ok() {
            let at_last = Instant::now() + interval;
            while let quiet = at_last.min(Instant::now() + QUIET)
                && timeout_at(quiet, self.news.notified()).await.is_ok()
            {}
        }
        std::mem::take(&mut *lock(&self.paths))
    }
}

/// The directories that are watched. One by one: whole trees of packages would cost more than they
/// tell.
struct Watched {
    watching: Watching,
    watcher: Box<dyn Watcher + Send>,
    directories: HashSet<PathBuf>,
    /// The devices and inodes of the directories to watch, when they were looked at last.
    known: HashMap<PathBuf, Option<(u64, u64)>>,
}

impl Watched {
    /// All that matters. `poll`: by looking again and again, where the kernel does not tell.
    fn open(watching: Watching, poll: bool, changes: Arc<Changes>) -> notify::Result<Self> {
        let directories = watching.folders.clone();
        let everything = directories.clone();
        let hear = move |event: notify::Result<notify::Event>| {
            if let Ok(event) = event {
                changes.hear(event, &everything);
            }
        };
        let config = Config::default().with_poll_interval(watching.interval);
        let watcher: Box<dyn Watcher + Send> = if poll {
            Box::new(PollWatcher::new(hear, config)?)
        } else {
            Box::new(RecommendedWatcher::new(hear, config)?)
        };
        let mut watched = Self {
            watching,
            watcher,
            directories: HashSet::new(),
            known: directories
                .iter()
                .map(|it| (it.clone(), identity(it)))
                .collect(),
        };
        for directory in &directories {
            watched.add(directory)?;
        }
        Ok(watched)
    }

    /// The directories to watch that have come, gone or been replaced since the last look.
    fn replaced(&self) -> Vec<PathBuf> {
        let known = self.known.iter();
        let replaced = known.filter(|(directory, known)| identity(directory) != **known);
        replaced.map(|(directory, _)| directory.clone()).collect()
    }

    /// A path may be a directory that came, went, or went and came back as another one. True: code
    /// came or went with it.
    fn revise(&mut self, path: &Path) -> bool {
        let is_known = self.directories.contains(path);
        if is_known {
            for gone in self.directories.extract_if(|known| known.starts_with(path)) {
                _ = self.watcher.unwatch(&gone); // the kernel may have ended that already
            }
        }
        if let Some(known) = self.known.get_mut(path) {
            *known = identity(path);
        } else if !self.watching.recursive || self.watching.is_left_out(path) {
            return is_known;
        }
        // Gone again, or too many: the rest is still watched.
        let has_code = path.is_dir() && self.add(path).unwrap_or(true);
        is_known || has_code
    }

    /// Whether there is code in what is watched now and was not before.
    fn add(&mut self, directory: &Path) -> notify::Result<bool> {
        let mut todo = vec![directory.to_owned()];
        let mut has_code = false;
        while let Some(directory) = todo.pop() {
            if self.directories.len() >= MOST_DIRECTORIES
                || !self.directories.insert(directory.clone())
            {
                continue;
            }
            self.watcher
                .watch(&directory, RecursiveMode::NonRecursive)?;
            let Ok(entries) = std::fs::read_dir(&directory) else {
                continue;
            };
            for entry in entries.flatten() {
                let Ok(kind) = entry.file_type() else {
                    continue; // it has gone meanwhile
                };
                let path = entry.path();
                if !kind.is_dir() {
                    has_code |= self.watching.counts(&path);
                } else if self.watching.recursive && !self.watching.is_left_out(&path) {
                    todo.push(path);
                }
            }
        }
        Ok(has_code)
    }
}

/// Another one under the same path has another identity. None where there is nothing.
fn identity(path: &Path) -> Option<(u64, u64)> {
    let found = std::fs::metadata(path).ok()?;
    Some((found.dev(), found.ino()))
}

/// The kind of a directory's filesystem, when files there may change behind the kernel's back: on
/// another machine, or on the host of a container.
fn silent_filesystem(directory: &Path) -> Option<&'static str> {
    let kind = rustix::fs::statfs(directory).ok()?.f_type;
    // The magic numbers of statfs(2), which are 32 bits wide whatever holds them.
    match u32::try_from(kind & 0xFFFF_FFFF).ok()? {
        0x6969 => Some("NFS"),
        0x517B | 0xFF53_4D42 | 0xFE53_4D42 => Some("SMB"),
        0x0102_1997 => Some("9p"),
        0x6573_5546 => Some("FUSE or virtiofs"),
        0x00C3_6400 => Some("Ceph"),
        0x5346_414F => Some("AFS"),
        0x786F_4256 => Some("a VirtualBox directory"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use pronghorn_testkit::Directory;

    use super::*;

    const LONGEST: Duration = Duration::from_secs(1);

    fn watching(directory: &Path) -> Watching {
        Watching {
            folders: vec![directory.to_owned()],
            recursive: true,
            ignored: vec!["cache".into(), "./var/data".into()],
            patterns: vec![".php".into(), ".env".into()],
            interval: LONGEST,
        }
    }

    #[test]
    fn names_are_known_by_their_endings() {
        let watching = watching(Path::new("/app"));
        for (file, counts) in [
            ("/app/index.php", true),
            ("/app/.env", true),
            ("/app/index.php.swp", false),
            ("/app/php", false),
            ("/app/a.php/notes.txt", false),
            ("/", false),
        ] {
            assert_eq!(watching.counts(Path::new(file)), counts, "{file}");
        }
    }

    #[test]
    fn directories_are_left_out_by_their_last_names() {
        let watching = watching(Path::new("/app"));
        for (directory, left_out) in [
            ("/app/cache", true),
            ("/app/src/cache", true),
            ("/app/caches", false),
            ("/app/var/data", true),
            ("/app/data", false),
            ("/app/vendor", false),
            ("/app/vendor/composer", false),
            ("/app/vendor/acme", true),
        ] {
            assert_eq!(
                watching.is_left_out(Path::new(directory)),
                left_out,
                "{directory}"
            );
        }
    }

    #[test]
    fn directories_begin_in_the_working_directory() {
        let relative = Watching {
            folders: vec![".".into(), "./src".into(), "/srv/more".into()],
            ..watching(Path::new(""))
        };
        let directories = relative.in_directory(Path::new("/app")).folders;
        let shown: Vec<_> = directories
            .iter()
            .map(|directory| directory.to_str().unwrap())
            .collect();
        assert_eq!(shown, ["/app", "/app/src", "/srv/more"]);
    }

    fn writing(path: &Path) -> notify::Event {
        notify::Event::new(EventKind::Any).add_path(path.to_owned())
    }

    async fn changing_every(pause: Duration) -> (usize, Duration) {
        let (changes, start) = (Changes::default(), Instant::now());
        let writer = async {
            for number in 0.. {
                let path = format!("data.{number}");
                changes.hear(writing(Path::new(&path)), &[]);
                tokio::time::sleep(pause).await;
            }
        };
        tokio::select! {
            paths = changes.batch(LONGEST) => (paths.len(), start.elapsed()),
            () = writer => unreachable!("it writes for ever"),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn more_changes_than_there_is_room_for_are_changes_of_everything() {
        let changes = Changes::default();
        let root = PathBuf::from("/app");
        for number in 0..=MOST_PATHS {
            changes.hear(
                writing(&root.join(number.to_string())),
                std::slice::from_ref(&root),
            );
        }
        assert_eq!(changes.batch(LONGEST).await, [root.clone()].into());
        let lost = notify::Event::new(EventKind::Other).set_flag(notify::event::Flag::Rescan);
        changes.hear(lost, std::slice::from_ref(&root));
        assert_eq!(changes.batch(LONGEST).await, [root].into());
        assert!(changes.batch(LONGEST).await.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn the_time_of_a_directory_is_no_change() {
        let (directory, changes) = (Directory::new(), Changes::default());
        let file = directory.join("a.php");
        std::fs::write(&file, "").unwrap();
        let kind = EventKind::Modify(ModifyKind::Metadata(notify::event::MetadataKind::WriteTime));
        let of = |path: &Path| notify::Event::new(kind).add_path(path.to_owned());
        changes.hear(of(&directory), &[]);
        assert!(changes.batch(LONGEST).await.is_empty());
        changes.hear(of(&file), &[]);
        assert_eq!(changes.batch(LONGEST).await, [file].into());
    }

    /// Each step is one change of code, whatever the kernel has said of it.
    #[test]
    fn directories_that_come_and_go_as_a_whole_are_changes() {
        let directory = Directory::new();
        let [app, src, other] = ["app", "app/src", "other"].map(|name| directory.join(name));
        std::fs::create_dir_all(&src).unwrap();
        std::fs::create_dir_all(other.join("deep")).unwrap();
        std::fs::write(other.join("deep/a.php"), "").unwrap();
        let changes = Arc::new(Changes::default());
        let mut watched = Watched::open(watching(&app), false, changes).unwrap();
        assert!(!watched.revise(&app.join("nothing")));
        assert!(watched.replaced().is_empty());
        // In the place of another one.
        std::fs::remove_dir(&src).unwrap();
        std::fs::rename(&other, &src).unwrap();
        assert!(watched.revise(&src));
        assert!(watched.directories.contains(&src.join("deep")));
        // Gone, and back.
        std::fs::rename(&src, &other).unwrap();
        assert!(watched.revise(&src) && watched.directories.len() == 1);
        std::fs::create_dir(&src).unwrap();
        assert!(!watched.revise(&src), "it is empty");
        // The root itself.
        std::fs::remove_dir_all(&app).unwrap();
        assert_eq!(watched.replaced(), std::slice::from_ref(&app));
        assert!(watched.revise(&app) && watched.directories.is_empty());
        assert!(watched.replaced().is_empty());
        std::os::unix::fs::symlink(&other, &app).unwrap();
        assert_eq!(watched.replaced(), std::slice::from_ref(&app));
        assert!(watched.revise(&app) && watched.directories.len() == 2);
    }

    /// On the real clock: a thread of its own looks at the files.
    #[tokio::test]
    async fn changes_are_seen_whether_the_kernel_tells_them_or_not() {
        for poll in [false, true] {
            let directory = Directory::new();
            let changes = Arc::new(Changes::default());
            let watched = Watched::open(watching(&directory), poll, changes.clone()).unwrap();
            let file = directory.join("worker.php");
            std::fs::write(&file, "<?php").unwrap();
            let seen = async { while !changes.batch(LONGEST).await.contains(&file) {} };
            let seen = timeout(Duration::from_secs(20), seen).await;
            drop(watched);
            assert!(seen.is_ok(), "poll: {poll}");
        }
    }

    #[test]
    fn only_filesystems_that_keep_changes_to_themselves_are_polled() {
        assert_eq!(silent_filesystem(Path::new("/proc")), None);
        assert_eq!(silent_filesystem(Path::new("/nowhere")), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_batch_ends_when_it_is_quiet() {
        let (paths, took) = changing_every(Duration::from_secs(5)).await;
        assert_eq!((paths, took), (1, QUIET));
    }

    #[tokio::test(start_paused = true)]
    async fn files_that_are_written_all_the_time_hold_nothing_up() {
        let (paths, took) = changing_every(Duration::from_millis(50)).await;
        assert!(paths >= 19, "{paths}");
        assert_eq!(took, LONGEST);
    }
}
