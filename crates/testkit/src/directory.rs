//! A directory of one test.

use std::fs;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// An empty directory that only this test knows. It is removed with its owner.
#[derive(Debug)]
pub struct Directory(PathBuf);

impl Directory {
    /// Makes one among the temporary files. Its path is canonical, so that paths in messages can be
    /// compared.
    ///
    /// # Panics
    ///
    /// When it cannot be made.
    pub fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let temporary = std::env::temp_dir()
            .canonicalize()
            .expect("the directory for temporary files exists");
        let (process, number) = (std::process::id(), NEXT.fetch_add(1, Relaxed));
        let path = temporary.join(format!("pronghorn-test-{process}-{number}"));
        _ = fs::remove_dir_all(&path); // of a process that had this number before
        fs::create_dir(&path).expect("a directory can be made");
        Self(path)
    }

    /// Makes one with these files, each with its text.
    ///
    /// # Panics
    ///
    /// When a file cannot be written.
    pub fn with(files: &[(&str, &str)]) -> Self {
        let directory = Self::new();
        for (name, text) in files {
            directory.write(name, text);
        }
        directory
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Writes a file, and makes the directories that lead to it.
    ///
    /// # Panics
    ///
    /// When it cannot be written.
    pub fn write(&self, name: &str, text: &str) {
        let path = self.0.join(name);
        let parent = path.parent().expect("it is below the directory");
        fs::create_dir_all(parent).expect("a directory can be made");
        fs::write(path, text).expect("a file can be written");
    }

    /// Reads a file back.
    ///
    /// # Panics
    ///
    /// When it is not there, or no text.
    pub fn read(&self, name: &str) -> String {
        fs::read_to_string(self.0.join(name)).expect("the file is there")
    }

    /// The names of what is in it, in order.
    ///
    /// # Panics
    ///
    /// When it cannot be listed.
    pub fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.0).expect("the directory is there");
        let name = |entry: std::io::Result<fs::DirEntry>| {
            let name = entry.expect("an entry can be read").file_name();
            name.into_string().expect("a name is a text")
        };
        let mut names: Vec<_> = entries.map(name).collect();
        names.sort();
        names
    }
}

impl Default for Directory {
    fn default() -> Self {
        Self::new()
    }
}

impl Deref for Directory {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.0
    }
}

impl AsRef<Path> for Directory {
    fn as_ref(&self) -> &Path {
        &self.0
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        _ = fs::remove_dir_all(&self.0); // a failed test has worse to tell, and one may have removed it
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_another_one_and_goes_with_its_owner() {
        let (one, other) = (
            Directory::with(&[("a/b", "1"), ("c", "2")]),
            Directory::new(),
        );
        assert_ne!(one.path(), other.path());
        assert_eq!(
            (one.names(), other.names()),
            (vec!["a".into(), "c".into()], vec![])
        );
        assert_eq!(one.read("a/b"), "1");
        let path = one.to_owned();
        drop(one);
        assert!(!path.exists());
    }
}
