//! A folder with an application in it.

use std::path::{Path, PathBuf};

use crate::directory::Directory;

/// An application in a directory of one test; removed with it.
#[derive(Debug, Default)]
pub struct Site {
    directory: Directory,
}

impl Site {
    /// An empty directory.
    pub fn new() -> Self {
        Self::default()
    }

    /// An application whose worker is one of `e2e/fixtures`, with two workers on a free port.
    /// Development logs at debug level go to stderr.
    pub fn with_worker(fixture: &str) -> Self {
        Self::new().config(&format!(
            "version: '3'\nserver:\n  command: php {}\nhttp:\n  address: 127.0.0.1:0\n  pool: {{num_workers: 2}}\nlogs: {{level: debug}}\n",
            Self::fixture(fixture).display()
        ))
    }

    /// One of the files that tests share.
    pub fn fixture(name: &str) -> PathBuf {
        let path = repository().join("e2e/fixtures").join(name);
        assert!(path.exists(), "there is no fixture {}", path.display());
        path
    }

    /// The configuration of one of `examples/`.
    pub fn example(name: &str) -> PathBuf {
        repository()
            .join("examples")
            .join(name)
            .join("pronghorn.yaml")
    }

    /// A file of one of `bench/apps/`.
    pub fn app(path: &str) -> PathBuf {
        let path = repository().join("bench/apps").join(path);
        assert!(path.exists(), "there is no {}", path.display());
        path
    }

    /// A worker of our SDK whose handler has this body; `$request` is there.
    pub fn sdk_worker(body: &str) -> String {
        format!(
            "<?php\nrequire '{}';\nPronghorn\\serve(function (Pronghorn\\Request $request): mixed {{\n{body}\n}});\n",
            repository().join("php/worker/autoload.php").display()
        )
    }

    /// Writes a file of the application.
    #[must_use]
    pub fn file(self, name: &str, content: &str) -> Self {
        self.write(name, content);
        self
    }

    /// Writes the configuration.
    #[must_use]
    pub fn config(self, yaml: &str) -> Self {
        self.file(".rr.yaml", yaml)
    }

    /// Writes a file while the application runs.
    pub fn write(&self, name: &str, content: &str) {
        self.directory.write(name, content);
    }

    /// Puts a file in the place of another in one step, as a deployment should: nobody reads half
    /// of it.
    pub fn replace(&self, name: &str, content: &str) {
        let next = format!("{name}.next");
        self.write(&next, content);
        std::fs::rename(self.path(&next), self.path(name)).expect("a file can be renamed");
    }

    /// Reads one back.
    pub fn read(&self, name: &str) -> String {
        self.directory.read(name)
    }

    /// Replaces a part of the configuration while the application runs.
    ///
    /// # Panics
    ///
    /// When it is not there.
    pub fn change_config(&self, from: &str, to: &str) {
        let config = self.read(".rr.yaml");
        assert!(config.contains(from), "{from} in\n{config}");
        self.write(".rr.yaml", &config.replace(from, to));
    }

    pub fn folder(&self) -> &Path {
        self.directory.path()
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }
}

/// The repository's root.
pub(crate) fn repository() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors()
        .nth(2)
        .expect("crates/testkit lies two folders below the root")
        .to_owned()
}
