//! A stretch of an open file, as a body.

use std::fs::File;
use std::ops::Range;
use std::sync::Arc;

/// A stretch of an open file.
#[derive(Debug, Clone)]
pub struct OpenFile {
    pub(crate) file: Arc<File>,
    pub(crate) start: u64,
    pub(crate) len: u64,
}

impl OpenFile {
    /// All of a file, which has `len` bytes.
    pub fn new(file: File, len: u64) -> Self {
        Self {
            file: Arc::new(file),
            start: 0,
            len,
        }
    }

    /// The whole file, whatever stretch of it this is.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Bytes of the stretch.
    pub const fn size(&self) -> u64 {
        self.len
    }

    /// A stretch of this one.
    #[must_use]
    pub fn stretch(&self, range: Range<u64>) -> Self {
        let start = range.start.min(self.len);
        Self {
            file: self.file.clone(),
            start: self.start + start,
            len: range.end.clamp(start, self.len) - start,
        }
    }
}
