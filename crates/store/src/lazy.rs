//! A store that nobody may need.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use tokio::sync::OnceCell;
use tokio::task::spawn_blocking;

use crate::error::OpenError;
use crate::store::Store;

/// The store of a state directory, opened when somebody asks for it first: a server that keeps
/// nothing makes no folder. Clones are the same one.
///
/// The default has no folder, and nothing can be kept.
#[derive(Clone, Debug, Default)]
pub struct LazyStore(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    /// With the limit.
    place: Option<(PathBuf, u64)>,
    store: OnceCell<Store>,
}

impl LazyStore {
    /// See [`Store::open`].
    pub fn new(folder: PathBuf, limit: u64) -> Self {
        Self(Arc::new(Inner {
            place: Some((folder, limit)),
            store: OnceCell::new(),
        }))
    }

    /// The open store.
    ///
    /// # Errors
    ///
    /// As [`Store::open`]; the next call tries again.
    pub async fn get(&self) -> Result<Store, OpenError> {
        let open = || async {
            let (folder, limit) = self.0.place.clone().ok_or(OpenError::NoFolder)?;
            let path = folder.clone();
            let opened = spawn_blocking(move || Store::open(&folder, limit)).await;
            opened.unwrap_or_else(|ended| {
                let source = io::Error::other(ended);
                Err(OpenError::Io { path, source })
            })
        };
        self.0.store.get_or_try_init(open).await.cloned()
    }

    /// See [`Store::close`].
    pub async fn close(&self) {
        if let Some(store) = self.0.store.get() {
            store.close().await;
        }
    }
}
