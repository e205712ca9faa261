//! Development mode: the files of the application are watched, and a boot that failed is shown in the browser.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use notify::{Config, EventKind, PollWatcher, RecommendedWatcher, RecursiveMode, Watcher};
use pronghorn_http::{Exchange, Handled, Handler, Request, Response};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};

use crate::workers::{Pools, Standing};

/// An editor writes a file in several steps, and a checkout writes many files: this long after the last change it is over.
const QUIET: Duration = Duration::from_millis(100);
/// Something in the folder may be written all the time.
const LONGEST: Duration = Duration::from_secs(1);
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
/// Folders watched at most; each takes a kernel object of its own.
const MOST_FOLDERS: usize = 5_000;
/// How often files are looked at that nobody reports changes of.
const POLL_EVERY: Duration = Duration::from_secs(1);
/// Changes that were not looked at yet. More make no difference: one reload follows all of them.
const CHANGES: usize = 64;

/// Shows why the workers don't boot, in place of their replies.
pub(crate) struct Gate {
    pub(crate) next: Arc<dyn Handler>,
    pub(crate) standing: watch::Receiver<Standing>,
}

impl Handler for Gate {
    fn handle<'a>(&'a self, request: Request, exchange: &'a mut dyn Exchange) -> Handled<'a> {
        let why = match &*self.standing.borrow() {
            Standing::Up => None,
            Standing::Down(why) => Some(why.clone()),
        };
        match why {
            None => self.next.handle(request, exchange),
            Some(why) => Box::pin(async move {
                let mut response = Response::plain(
                    500,
                    &format!("{why}\n\nThe server tries again when a file changes.\n"),
                );
                // So that the page comes back by itself once the code boots.
                response.fields.push("Refresh", "1");
                response
            }),
        }
    }
}

/// Watches an application; ends when it is dropped.
#[derive(Debug)]
pub(crate) struct Watch {
    task: JoinHandle<()>,
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Watch {
    /// Reloads the workers after each change of a PHP file or `.env` below `folder`. `configuration` are files whose change
    /// needs a restart, which is said.
    pub(crate) fn start(
        folder: &Path,
        configuration: Vec<PathBuf>,
        pools: Pools,
    ) -> notify::Result<Self> {
        let (changes, inbox) = mpsc::channel(CHANGES);
        let silent = silent_filesystem(folder);
        let watched = Watched::open(folder, silent.is_some(), changes)?;
        tracing::info!(target: "server", folders = watched.folders.len(), "watching {} for changes", folder.display());
        if let Some(kind) = silent {
            tracing::info!(
                target: "server",
                "files there are looked at every {POLL_EVERY:?}: {kind} does not report all changes"
            );
        }
        let task =
            tokio::runtime::Handle::current().spawn(follow(watched, inbox, configuration, pools));
        Ok(Self { task })
    }
}

async fn follow(
    mut watched: Watched,
    mut changes: mpsc::Receiver<Vec<PathBuf>>,
    configuration: Vec<PathBuf>,
    pools: Pools,
) {
    while let Some(paths) = batch(&mut changes).await {
        for path in &paths {
            watched.revise(path);
        }
        if let Some(file) = paths.iter().find(|path| configuration.contains(path)) {
            tracing::warn!(target: "server", "{} changed: restart the server to apply it", file.display());
        }
        let Some(file) = paths.iter().find(|path| is_code(path)) else {
            continue;
        };
        tracing::info!(target: "server", "{} changed: starting new workers", file.display());
        // The reason of a failure is in the log and in the browser.
        pools.reload().await;
    }
}

/// What changes until it is quiet, or has gone on for too long.
async fn batch(changes: &mut mpsc::Receiver<Vec<PathBuf>>) -> Option<Vec<PathBuf>> {
    let mut paths = changes.recv().await?;
    let at_last = Instant::now() + LONGEST;
    while let quiet = at_last.min(Instant::now() + QUIET)
        && let Ok(Some(more)) = timeout_at(quiet, changes.recv()).await
    {
        paths.extend(more);
    }
    Some(paths)
}

fn is_code(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default();
    path.extension() == Some(OsStr::new("php")) || name == ".env" || name == "composer.lock"
}

/// The folders that are watched. One by one: whole trees of packages would cost more than they tell.
struct Watched {
    watcher: Box<dyn Watcher + Send>,
    folders: HashSet<PathBuf>,
}

impl Watched {
    /// All of a folder that matters. `poll`: by looking again and again, where the kernel does not tell.
    fn open(
        folder: &Path,
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
        let config = Config::default().with_poll_interval(POLL_EVERY);
        let watcher: Box<dyn Watcher + Send> = if poll {
            Box::new(PollWatcher::new(hear, config)?)
        } else {
            Box::new(RecommendedWatcher::new(hear, config)?)
        };
        let mut watched = Self {
            watcher,
            folders: HashSet::new(),
        };
        watched.add(folder)?;
        Ok(watched)
    }

    /// A folder that came, went, or went and came back as another one.
    fn revise(&mut self, path: &Path) {
        if self.folders.contains(path) {
            self.folders.retain(|known| !known.starts_with(path));
        }
        let (parent, name) = (path.parent(), path.file_name());
        if path.is_dir()
            && !parent
                .zip(name)
                .is_some_and(|(parent, name)| is_left_out(parent, name))
        {
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
            let Ok(entries) = std::fs::read_dir(&folder) else {
                continue;
            };
            let below = entries
                .flatten()
                .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
            todo.extend(
                below
                    .filter(|entry| !is_left_out(&folder, &entry.file_name()))
                    .map(|entry| entry.path()),
            );
        }
        Ok(())
    }
}

/// The kind of a folder's filesystem, when files there may change behind the kernel's back: on another machine, or on
/// the host of a container.
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

/// Packages change by `composer install`, which writes `vendor/composer`; their own folders are many and never edited.
fn is_left_out(parent: &Path, name: &OsStr) -> bool {
    let in_vendor = parent.file_name() == Some(OsStr::new("vendor"));
    LEFT_OUT.iter().any(|left_out| name == *left_out) || (in_vendor && name != "composer")
}

#[cfg(test)]
mod tests {
    use super::*;

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
            paths = batch(&mut changes) => (paths.unwrap(), start.elapsed()),
            () = writer => unreachable!("it writes for ever"),
        }
    }

    /// On the real clock: a thread of its own looks at the files.
    #[tokio::test]
    async fn changes_are_seen_whether_the_kernel_tells_them_or_not() {
        for poll in [false, true] {
            let name = format!("pronghorn-watch-{}-{poll}", std::process::id());
            let folder = std::env::temp_dir().join(name);
            std::fs::create_dir(&folder).unwrap();
            let (sender, mut changes) = mpsc::channel(CHANGES);
            let watched = Watched::open(&folder, poll, sender).unwrap();
            let file = folder.join("worker.php");
            std::fs::write(&file, "<?php").unwrap();
            let seen = async { while !changes.recv().await.unwrap().contains(&file) {} };
            let seen = tokio::time::timeout(Duration::from_secs(20), seen).await;
            drop(watched);
            std::fs::remove_dir_all(&folder).unwrap();
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
