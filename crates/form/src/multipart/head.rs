//! The headers of a part.

use std::path::PathBuf;

use memchr::memchr;

use super::{ErrorKind, disposition};
use crate::{Entry, File, UploadError};

/// Most bytes that the headers of one part may have. Browsers send below 1 KB; a file name as long
/// as a path may be, 4,096 bytes, percent-encoded, fits.
pub const MAX_HEAD: usize = 16 << 10;

/// Most headers a part may have. Three mean something; mail libraries add a few.
pub const MAX_HEADERS: usize = 32;

/// What the headers of a part said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// The field's name, as sent. A file without one is called `0`, the next such `1`, as PHP does
    /// it.
    pub name: Vec<u8>,
    /// The file's name as the client gave it, path included. `None`: a field. Empty: no file was
    /// chosen.
    pub filename: Option<Vec<u8>>,
    /// The part's `Content-Type` with its parameters; empty when there was none.
    pub media_type: Vec<u8>,
    /// The part's `Content-Transfer-Encoding`, empty when there was none. The content is given as
    /// it was sent: RFC 7578 forbids this header, PHP ignores it.
    pub transfer_encoding: Vec<u8>,
}

/// What to do with the content of a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Keep it in memory.
    Field,
    /// Write it to a file.
    File,
    /// There is none: an input in which no file was chosen.
    EmptyInput,
}

impl Part {
    /// A field, a file, or a file input left empty.
    pub fn kind(&self) -> Kind {
        match &self.filename {
            None => Kind::Field,
            Some(filename) if filename.is_empty() => Kind::EmptyInput,
            Some(_) => Kind::File,
        }
    }

    /// The form's entry for a field.
    pub fn into_field(self, value: Vec<u8>) -> Entry {
        Entry::Field {
            name: self.name,
            value,
        }
    }

    /// The form's entry for a file whose content, `size` bytes, is at `path`.
    pub fn into_file(self, size: u64, path: PathBuf) -> Entry {
        Entry::File(self.file(size, UploadError::Ok, path))
    }

    /// The form's entry for a file of which nothing was kept; [`UploadError::NoFile`] for an input
    /// left empty.
    pub fn into_failed(self, error: UploadError) -> Entry {
        Entry::File(self.file(0, error, PathBuf::new()))
    }

    fn file(self, size: u64, error: UploadError, path: PathBuf) -> File {
        File {
            name: self.name,
            filename: self.filename.unwrap_or_default(),
            media_type: self.media_type,
            size,
            error,
            path,
        }
    }

    /// Bytes of it that stay in memory.
    pub fn kept(&self) -> usize {
        [
            Some(&self.name),
            self.filename.as_ref(),
            Some(&self.media_type),
            Some(&self.transfer_encoding),
        ]
        .into_iter()
        .flatten()
        .fold(0, |sum: usize, text| sum.saturating_add(text.len()))
    }
}

/// Collects the lines of a part's head, whatever the chunks they come in.
#[derive(Debug, Default)]
pub(super) struct Head {
    /// Lines without their ends, separated by LF, folded ones joined.
    bytes: Vec<u8>,
    /// Where the line that is being read starts in `bytes`.
    line: usize,
}

impl Head {
    pub(super) fn held(&self) -> usize {
        self.bytes.len()
    }

    /// Takes lines off `input` up to the empty one, and then returns the part. `None`: more input
    /// is needed.
    pub(super) fn read(
        &mut self,
        input: &mut &[u8],
        files_without_name: &mut u32,
    ) -> Result<Option<Part>, ErrorKind> {
        while !input.is_empty() {
            let end = memchr(b'\n', input);
            let (text, rest) = input.split_at(end.unwrap_or(input.len()));
            if text.len() > MAX_HEAD.saturating_sub(self.bytes.len()) {
                return Err(ErrorKind::HeadTooLong);
            }
            self.bytes.extend_from_slice(text);
            *input = rest.get(1..).unwrap_or_default();
            if end.is_some() && self.end_line()? {
                let part = parse(&self.bytes, files_without_name);
                self.bytes.clear();
                self.line = 0;
                return part.map(Some);
            }
        }
        Ok(None)
    }

    /// Ends the line that is being read; true when it was the empty one.
    fn end_line(&mut self) -> Result<bool, ErrorKind> {
        if self.bytes.len() > self.line && self.bytes.ends_with(b"\r") {
            self.bytes.pop();
        }
        let line = self.bytes.get(self.line..).unwrap_or_default();
        if line.iter().any(|byte| matches!(byte, b'\r' | b'\0')) {
            return Err(ErrorKind::ControlByte);
        }
        let Some(first) = line.first() else {
            self.bytes.pop();
            return Ok(true);
        };
        // A folded line goes on with the one before it. Mail libraries fold; PHP joins them in the
        // same way.
        if matches!(first, b' ' | b'\t') {
            let Some(line_feed) = self.line.checked_sub(1) else {
                return Err(ErrorKind::HeaderLine);
            };
            self.bytes.remove(line_feed);
        }
        self.bytes.push(b'\n');
        self.line = self.bytes.len();
        Ok(false)
    }
}

fn parse(head: &[u8], files_without_name: &mut u32) -> Result<Part, ErrorKind> {
    let mut disposition = None;
    let mut media_type = None;
    let mut transfer_encoding = None;

    let lines = head
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty());
    for (count, line) in lines.enumerate() {
        if count >= MAX_HEADERS {
            return Err(ErrorKind::TooManyHeaders);
        }
        let colon = memchr(b':', line).ok_or(ErrorKind::HeaderLine)?;
        let (name, value) = line.split_at(colon);
        if name.is_empty() || !name.iter().all(|byte| disposition::is_token(*byte)) {
            return Err(ErrorKind::HeaderLine);
        }
        let value = value.get(1..).unwrap_or_default().trim_ascii_start();

        let (place, header) = if name.eq_ignore_ascii_case(b"content-disposition") {
            (&mut disposition, "Content-Disposition")
        } else if name.eq_ignore_ascii_case(b"content-type") {
            (&mut media_type, "Content-Type")
        } else if name.eq_ignore_ascii_case(b"content-transfer-encoding") {
            (&mut transfer_encoding, "Content-Transfer-Encoding")
        } else {
            continue;
        };
        if place.replace(value).is_some() {
            return Err(ErrorKind::HeaderTwice(header));
        }
    }

    let found = disposition::parse(disposition.ok_or(ErrorKind::NoDisposition)?)?;
    let name = match (found.name, &found.filename) {
        (Some(name), _) => name,
        (None, Some(_)) => {
            let number = *files_without_name;
            *files_without_name = number.saturating_add(1);
            number.to_string().into_bytes()
        }
        (None, None) => return Err(ErrorKind::NoName),
    };
    Ok(Part {
        name,
        filename: found.filename,
        media_type: media_type.unwrap_or_default().to_vec(),
        transfer_encoding: transfer_encoding.unwrap_or_default().to_vec(),
    })
}
