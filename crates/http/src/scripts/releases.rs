//! A root whose path is, or goes through, a link that deployments move: each request gets the site
//! that is there when it comes.
//!
//! A release is a whole site with its own caches, at its real path. So no script of one runs beside
//! files of another, and PHP, which keeps code by real paths, compiles what is new.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use pronghorn_base::lock;
use pronghorn_process::file::{identity, name_of_open, open_folder, open_folder_at_once};
use pronghorn_workers::settings::{Mode, SiteSettings};

use super::{Mount, Scripts};
use crate::file::open_root;

/// Where a root has led, and what is there.
#[derive(Debug)]
pub(crate) struct Releases {
    settings: SiteSettings,
    mode: Mode,
    root: PathBuf,
    mount: Mount,
    current: Mutex<Release>,
}

#[derive(Debug, Clone)]
struct Release {
    scripts: Arc<Scripts>,
    /// Kept open, so that nothing else gets its identity.
    folder: Arc<OwnedFd>,
}

impl Releases {
    /// # Errors
    ///
    /// When the root can't be opened.
    pub(crate) fn open(
        settings: &SiteSettings,
        mode: Mode,
        root: PathBuf,
        mount: &Mount,
    ) -> io::Result<Self> {
        let current = Release::at(settings, mode, &root, mount)?;
        Ok(Self {
            settings: settings.clone(),
            mode,
            root,
            mount: mount.clone(),
            current: Mutex::new(current),
        })
    }

    /// The site that is there now. While there is none, in the middle of a deployment, the one
    /// before.
    pub(crate) async fn now(self: &Arc<Self>) -> Arc<Scripts> {
        let current = self.current();
        let folder = match open_folder_at_once(&self.root) {
            Ok(folder) => folder,
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => return current.scripts,
            Err(_) => return self.renewed(current).await,
        };
        match current.is(&folder) {
            Ok(true) => current.scripts,
            _ => self.renewed(current).await,
        }
    }

    /// Looks again, for as long as that takes.
    async fn renewed(self: &Arc<Self>, current: Release) -> Arc<Scripts> {
        let (releases, known) = (self.clone(), current.clone());
        let looking = tokio::task::spawn_blocking(move || -> io::Result<Release> {
            let root = &releases.root;
            if known.is(&open_folder(root)?)? {
                return Ok(known);
            }
            let Self {
                settings,
                mode,
                mount,
                ..
            } = &*releases;
            let release = Release::at(settings, *mode, root, mount)?;
            // Others may have seen it, too: all go on with one, and its caches.
            let mut current = releases.lock();
            if !current.is(&release.folder)? {
                *current = release;
            }
            Ok(current.clone())
        });
        match looking.await.map_err(io::Error::other).flatten() {
            Ok(release) => release.scripts,
            Err(_) => current.scripts,
        }
    }

    /// The one that was seen last.
    pub(crate) fn last(&self) -> Arc<Scripts> {
        self.lock().scripts.clone()
    }

    fn current(&self) -> Release {
        self.lock().clone()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Release> {
        lock(&self.current)
    }
}

impl Release {
    fn at(settings: &SiteSettings, mode: Mode, root: &Path, mount: &Mount) -> io::Result<Self> {
        let (found, readers) = open_root(root)?;
        // Without /proc, somebody else may have put another one in its place meanwhile.
        let real = std::fs::read_link(name_of_open(&found)).or_else(|_| root.canonicalize())?;
        Ok(Self {
            folder: Arc::new(open_folder(&real)?),
            scripts: Arc::new(Scripts::at(settings, mode, real, readers, mount)?),
        })
    }

    fn is(&self, folder: impl AsFd) -> io::Result<bool> {
        Ok(identity(folder)? == identity(&*self.folder)?)
    }
}
