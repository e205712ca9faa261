//! A form as the server holds it between its last byte and its dispatch.

use std::path::PathBuf;

/// What a form held, in the order of the body.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Form {
    /// Fields and files, as sent; names are not taken apart.
    pub entries: Vec<Entry>,
}

/// One part of a form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Entry {
    /// A value kept in memory.
    Field {
        /// As sent, brackets and all; not necessarily UTF-8.
        name: Vec<u8>,
        /// As sent; not necessarily UTF-8.
        value: Vec<u8>,
    },
    /// A file input.
    File(File),
}

/// A file input of a form and what became of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct File {
    /// The input's name as sent.
    pub name: Vec<u8>,
    /// The file's name as the client gave it, with its path if there was one; empty when no file
    /// was chosen.
    pub filename: Vec<u8>,
    /// The part's `Content-Type`, parameters included; empty when there was none.
    pub media_type: Vec<u8>,
    /// Length of the content in bytes.
    pub size: u64,
    /// [`UploadError::Ok`] when `path` holds the content.
    pub error: UploadError,
    /// Where the content is; ignored when there is an error.
    pub path: PathBuf,
}

impl File {
    /// Whether this is an input in which no file was chosen.
    pub fn is_empty_input(&self) -> bool {
        self.filename.is_empty()
    }

    /// The file's name without the path that some clients send: what stands behind the last slash
    /// or backslash.
    pub fn base_name(&self) -> &[u8] {
        let start =
            memchr::memrchr2(b'/', b'\\', &self.filename).map_or(0, |at| at.saturating_add(1));
        self.filename.get(start..).unwrap_or_default()
    }
}

/// PHP's `UPLOAD_ERR_*` numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum UploadError {
    /// The file is there.
    Ok = 0,
    /// Longer than the server's limit.
    IniSize = 1,
    /// Longer than the form's own `MAX_FILE_SIZE`.
    FormSize = 2,
    /// Received in part only.
    Partial = 3,
    /// No file was chosen.
    NoFile = 4,
    /// There is no folder for uploads.
    NoTmpDir = 6,
    /// It could not be written to disk.
    CantWrite = 7,
    /// Refused by its name's extension.
    Extension = 8,
}

impl UploadError {
    const ALL: [Self; 8] = [
        Self::Ok,
        Self::IniSize,
        Self::FormSize,
        Self::Partial,
        Self::NoFile,
        Self::NoTmpDir,
        Self::CantWrite,
        Self::Extension,
    ];

    /// PHP's number.
    pub fn number(self) -> u8 {
        self as u8
    }

    /// The error with this number; PHP has none with 5.
    pub fn from_number(number: u32) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|error| u32::from(error.number()) == number)
    }
}
