//! The form section of the native codec, `docs/reference/native-codec.md`.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use thiserror::Error;

use crate::{Entry, File, Form, UploadError};

const FIELD: u32 = 0;
const FILE: u32 = 1;
const ENTRY_SIZE: usize = 32;

/// Appends the section to `out`. Of a file with an error neither type nor path nor size is written,
/// as PHP has none.
///
/// # Errors
///
/// A string of 4 GiB or more; limits on forms keep it away. `out` then ends with half a section.
pub fn write(form: &Form, out: &mut Vec<u8>) -> Result<(), TooLong> {
    let rows: Vec<Row<'_>> = form.entries.iter().map(Row::of).collect();
    put_length(out, rows.len())?;
    for row in &rows {
        out.extend_from_slice(&row.kind.to_le_bytes());
        out.extend_from_slice(&row.error.to_le_bytes());
        for string in row.strings {
            put_length(out, string.len())?;
        }
        out.extend_from_slice(&row.size.to_le_bytes());
    }
    for string in rows.iter().flat_map(|row| row.strings) {
        out.extend_from_slice(string);
    }
    Ok(())
}

/// An entry as the table has it.
struct Row<'a> {
    kind: u32,
    error: u32,
    size: u64,
    /// Name, value or file name, media type, path.
    strings: [&'a [u8]; 4],
}

impl<'a> Row<'a> {
    fn of(entry: &'a Entry) -> Self {
        match entry {
            Entry::Field { name, value } => {
                let size = u64::try_from(value.len()).unwrap_or(u64::MAX);
                Row {
                    kind: FIELD,
                    error: 0,
                    size,
                    strings: [name, value, b"", b""],
                }
            }
            Entry::File(file) => {
                let error = u32::from(file.error.number());
                let (size, media_type, path) = match file.error {
                    UploadError::Ok => (
                        file.size,
                        &file.media_type[..],
                        file.path.as_os_str().as_encoded_bytes(),
                    ),
                    _ => (0, &b""[..], &b""[..]),
                };
                Row {
                    kind: FILE,
                    error,
                    size,
                    strings: [&file.name, &file.filename, media_type, path],
                }
            }
        }
    }
}

fn put_length(out: &mut Vec<u8>, length: usize) -> Result<(), TooLong> {
    let length = u32::try_from(length).map_err(|_| TooLong { length })?;
    out.extend_from_slice(&length.to_le_bytes());
    Ok(())
}

/// Reads a section, which must fill `bytes`. For tests and tools: it is PHP's side that reads what
/// the server writes.
///
/// # Errors
///
/// The writer's: lengths that leave the section or do not fill it, or a number that means nothing.
pub fn read(bytes: &[u8]) -> Result<Form, ReadError> {
    let (count, rest) = bytes.split_first_chunk::<4>().ok_or(ReadError::Cut)?;
    let count = length(*count)?;
    let table = count
        .checked_mul(ENTRY_SIZE)
        .filter(|size| *size <= rest.len());
    let (table, mut strings) = rest.split_at(table.ok_or(ReadError::Cut)?);

    let mut form = Form {
        entries: Vec::with_capacity(count),
    };
    for row in table.chunks_exact(ENTRY_SIZE) {
        form.entries.push(read_entry(row, &mut strings)?);
    }
    if strings.is_empty() {
        Ok(form)
    } else {
        Err(ReadError::LeftOver {
            bytes: strings.len(),
        })
    }
}

fn read_entry(mut row: &[u8], strings: &mut &[u8]) -> Result<Entry, ReadError> {
    let kind = u32::from_le_bytes(take(&mut row)?);
    let error = u32::from_le_bytes(take(&mut row)?);
    let mut string = || -> Result<Vec<u8>, ReadError> {
        let (string, rest) = strings
            .split_at_checked(length(take(&mut row)?)?)
            .ok_or(ReadError::Cut)?;
        *strings = rest;
        Ok(string.to_vec())
    };
    let [name, text, media_type, path] = [string()?, string()?, string()?, string()?];
    let size = u64::from_le_bytes(take(&mut row)?);
    let error = UploadError::from_number(error).ok_or(ReadError::UploadError { number: error })?;
    match kind {
        FIELD => Ok(Entry::Field { name, value: text }),
        FILE => {
            let path = OsString::from_vec(path).into();
            Ok(Entry::File(File {
                name,
                filename: text,
                media_type,
                size,
                error,
                path,
            }))
        }
        kind => Err(ReadError::Kind { kind }),
    }
}

fn take<const N: usize>(bytes: &mut &[u8]) -> Result<[u8; N], ReadError> {
    let (taken, rest) = bytes.split_first_chunk().ok_or(ReadError::Cut)?;
    *bytes = rest;
    Ok(*taken)
}

fn length(bytes: [u8; 4]) -> Result<usize, ReadError> {
    usize::try_from(u32::from_le_bytes(bytes)).map_err(|_| ReadError::Cut)
}

/// The server's own: a form that can't be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error(
    "a string of {length} bytes in a form: the native codec takes less than 4 GiB; lower the limits on forms"
)]
pub struct TooLong {
    /// Its length.
    pub length: usize,
}

/// Why bytes are no form section.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum ReadError {
    /// A length leaves the section.
    #[error("the form section ends before its lengths are met")]
    Cut,
    /// The strings do not fill the section.
    #[error("{bytes} bytes behind the last string of the form section")]
    LeftOver {
        /// How many.
        bytes: usize,
    },
    /// Neither field nor file.
    #[error("an entry of kind {kind} in the form section: expected 0 or 1")]
    Kind {
        /// What was there.
        kind: u32,
    },
    /// No `UPLOAD_ERR_*` number.
    #[error("upload error {number} in the form section: PHP has no such number")]
    UploadError {
        /// What was there.
        number: u32,
    },
}
