//! Forms: bodies of the two form media types to events, and a form to what each codec sends.
//!
//! Bytes in, events out: no I/O, no clock, no files.

#![forbid(unsafe_code)]
#![warn(missing_docs)]
#![warn(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::missing_errors_doc
)]

mod content_type;
mod form;
mod limits;
pub mod multipart;

pub use content_type::{Boundary, BoundaryError, ContentType, MAX_BOUNDARY};
pub use form::{Entry, File, Form, UploadError};
pub use limits::Limits;
