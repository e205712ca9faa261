//! Watching an application's files: a change brings new workers.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use notify::{Config, EventKind, PollWatcher, RecommendedWatcher, RecursiveMode, Watcher};
use pronghorn_base::BoxFuture;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};

use crate::pools::Pools;

/// An editor writes a file in several steps, and a checkout writes many files: this long after the
/// last change it is over.
const QUIET: Duration = Duration::from_millis(100);
/// Folders watched at most; each takes a kernel object of its own.
const MOST_FOLDERS: usize = 5_000;
/// Changes that were not looked at yet. More make no difference: one reload follows all of them.
const CHANGES: usize = 64;

/// Folders whose files come and go without being the application's code.
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

/// What to watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Watching {
    /// Relative ones begin in the working folder.
    pub folders: Vec<PathBuf>,
    /// Whether folders in them are watched, too.
    pub recursive: bool,
    /// Names of folders that are left out below `folders`, or the last names of their paths.
    pub ignored: Vec<PathBuf>,
    /// Endings of the names of files to watch.
    pub patterns: Vec<String>,
    /// Something may be written all the time: how long changes are gathered at most. And how often
    /// files are looked at that nobody reports changes of.
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

    /// The same with folders that don't depend on where the server works.
    fn in_folder(mut self, folder: &Path) -> Self {
        for watched in &mut self.folders {
            // Without dots between, in which paths are not written by those who report changes.
            *watched = folder.join(&watched).components().collect();
        }
        self
    }

    fn counts(&self, file: &Path) -> bool {
        let name = file.file_name().unwrap_or_default().as_encoded_bytes();
        let mut patterns = self.patterns.iter();
        patterns.any(|ending| name.ends_with(ending.as_bytes()))
    }

    /// Packages change by `composer install`, which writes `vendor/composer`; their own folders are
    /// many and never edited.
    fn is_left_out(&self, folder: &Path) -> bool {
        let in_vendor = folder.parent().and_then(Path::file_name) == Some(OsStr::new("vendor"));
        let mut ignored = self.ignored.iter();
        ignored.any(|ignored| folder.ends_with(ignored.strip_prefix(".").unwrap_or(ignored)))
            || (in_vendor && folder.file_name() != Some(OsStr::new("composer")))
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
        let watching = watching.in_folder(directory);
        let (changes, inbox) = mpsc::channel(CHANGES);
        let mut folders = watching.folders.iter();
        let silent = folders.find_map(|folder| silent_filesystem(folder));
        let watched = Watched::open(watching, silent.is_some(), changes)?;
        for folder in &watched.watching.folders {
            tracing::info!(target: "server", folders = watched.folders.len(), "watching {} for changes", folder.display());
        }
        if let Some(kind) = silent {
            let every = watched.watching.interval;
            tracing::info!(
                target: "server",
                "files there are checked every {every:?}: {kind} does not report all changes"
            );
        }
        let follow = follow(watched, inbox, configuration, react);
        let task = tokio::runtime::Handle::current().spawn(follow);
        Ok(Self { task })
    }
}

async fn follow(
    mut watched: Watched,
    mut changes: mpsc::Receiver<Vec<PathBuf>>,
    configuration: Vec<PathBuf>,
    react: impl Fn(PathBuf) -> BoxFuture<'static, ()> + Send,
) {
    while let Some(paths) = batch(&mut changes, watched.watching.interval).await {
        for path in &paths {
            watched.revise(path);
        }
        if let Some(file) = paths.iter().find(|path| configuration.contains(path)) {
            tracing::warn!(target: "server", "{} changed: restart the server to apply \
                                              it", file.display());
        }
        let mut code = paths.iter().filter(|path| !configuration.contains(path));
        if let Some(file) = code.find(|path| watched.watching.counts(path)) {
            react(file.clone()).await;
        }
    }
}

/// What changes until it is quiet, or has gone on for as long as the interval.
async fn batch(
    changes: &mut mpsc::Receiver<Vec<PathBuf>>,
    interval: Duration,
) -> Option<Vec<PathBuf>> {
    let mut paths = changes.recv().await?;
    let at_last = Instant::now() + interval;
    while let quiet = at_last.min(Instant::now() + QUIET)
        && let Ok(Some(more)) = timeout_at(quiet, changes.recv()).await
    {
        paths.extend(more);
    }
    Some(paths)
}

/// The folders that are watched. One by one: whole trees of packages would cost more than they
/// tell.
struct Watched {
    watching: Watching,
    watcher: Box<dyn Watcher + Send>,
    folders: HashSet<PathBuf>,
}

impl Watched {
    /// All that matters. `poll`: by looking again and again, where the kernel does not tell.
    fn open(
        watching: Watching,
        poll: bool,
        changes: mpsc::Sender<Vec<PathBuf>>,
    ) -> notify::Result<Self> {
        let hear = move |event: notify::Result<notify::Event>| {
            if let Ok(event) = event
                && !matches!(event.kind, EventKind::Access(_))
            {
                // Full: a reload is about to follow anyway.
                _ = changes.try_send(event.paths);
            }
        };
        let config = Config::default().with_poll_interval(watching.interval);
        let watcher: Box<dyn Watcher + Send> = if poll {
            Box::new(PollWatcher::new(hear, config)?)
        } else {
            Box::new(RecommendedWatcher::new(hear, config)?)
        };
        let folders = watching.folders.clone();
        let mut watched = Self {
            watching,
            watcher,
            folders: HashSet::new(),
        };
        for folder in &folders {
            watched.add(folder)?;
        }
        Ok(watched)
    }

    /// A folder that came, went, or went and came back as another one.
    fn revise(&mut self, path: &Path) {
        if self.folders.contains(path) {
            self.folders.retain(|known| !known.starts_with(path));
        }
        let wanted = self.watching.folders.iter().any(|folder| folder == path)
            || (self.watching.recursive && !self.watching.is_left_out(path));
        if wanted && path.is_dir() {
            _ = self.add(path); // gone again, or too many: the rest is still watched
        }
    }

    fn add(&mut self, folder: &Path) -> notify::Result<()> {
        let mut todo = vec![folder.to_owned()];
        while let Some(folder) = todo.pop() {
            if self.folders.len() >= MOST_FOLDERS || !self.folders.insert(folder.clone()) {
                continue;
            }
            self.watcher.watch(&folder, RecursiveMode::NonRecursive)?;
            if !self.watching.recursive {
                continue;
            }
            let Ok(entries) = std::fs::read_dir(&folder) else {
                continue;
            };
            let below = entries
                .flatten()
                .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
                .map(|entry| entry.path());
            todo.extend(below.filter(|folder| !self.watching.is_left_out(folder)));
        }
        Ok(())
    }
}

/// The kind of a folder's filesystem, when files there may change behind the kernel's back: on
/// another machine, or on the host of a container.
fn silent_filesystem(folder: &Path) -> Option<&'static str> {
    let kind = rustix::fs::statfs(folder).ok()?.f_type;
    // The magic numbers of statfs(2), which are 32 bits wide whatever holds them.
    match u32::try_from(kind & 0xFFFF_FFFF).ok()? {
        0x6969 => Some("NFS"),
        0x517B | 0xFF53_4D42 | 0xFE53_4D42 => Some("SMB"),
        0x0102_1997 => Some("9p"),
        0x6573_5546 => Some("FUSE or virtiofs"),
        0x00C3_6400 => Some("Ceph"),
        0x5346_414F => Some("AFS"),
        0x786F_4256 => Some("a VirtualBox folder"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use pronghorn_testkit::Directory;

    use super::*;

    const LONGEST: Duration = Duration::from_secs(1);

    fn watching(folder: &Path) -> Watching {
        Watching {
            folders: vec![folder.to_owned()],
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
    fn folders_are_left_out_by_their_last_names() {
        let watching = watching(Path::new("/app"));
        for (folder, left_out) in [
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
                watching.is_left_out(Path::new(folder)),
                left_out,
                "{folder}"
            );
        }
    }

    #[test]
    fn folders_begin_in_the_working_folder() {
        let relative = Watching {
            folders: vec![".".into(), "./src".into(), "/srv/more".into()],
            ..watching(Path::new(""))
        };
        let folders = relative.in_folder(Path::new("/app")).folders;
        let shown: Vec<_> = folders
            .iter()
            .map(|folder| folder.to_str().unwrap())
            .collect();
        assert_eq!(shown, ["/app", "/app/src", "/srv/more"]);
    }

    async fn changing_every(pause: Duration) -> (Vec<PathBuf>, Duration) {
        let (sender, mut changes) = mpsc::channel(CHANGES);
        let start = Instant::now();
        let writer = async move {
            loop {
                sender.send(vec!["data.sqlite".into()]).await.unwrap();
                tokio::time::sleep(pause).await;
            }
        };
        tokio::select! {
            paths = batch(&mut changes, LONGEST) => (paths.unwrap(), start.elapsed()),
            () = writer => unreachable!("it writes for ever"),
        }
    }

    /// On the real clock: a thread of its own looks at the files.
    #[tokio::test]
    async fn changes_are_seen_whether_the_kernel_tells_them_or_not() {
        for poll in [false, true] {
            let directory = Directory::new();
            let (sender, mut changes) = mpsc::channel(CHANGES);
            let watched = Watched::open(watching(&directory), poll, sender).unwrap();
            let file = directory.join("worker.php");
            std::fs::write(&file, "<?php").unwrap();
            let seen = async { while !changes.recv().await.unwrap().contains(&file) {} };
            let seen = tokio::time::timeout(Duration::from_secs(20), seen).await;
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
        assert_eq!((paths.len(), took), (1, QUIET));
    }

    #[tokio::test(start_paused = true)]
    async fn files_that_are_written_all_the_time_hold_nothing_up() {
        let (paths, took) = changing_every(Duration::from_millis(50)).await;
        assert!(paths.len() >= 19, "{}", paths.len());
        assert_eq!(took, LONGEST);
    }
}
