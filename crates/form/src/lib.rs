//! Forms: bodies of the two form media types to events, and a form to what each codec sends.
//!
//! Bytes in, events out: no I/O, no clock, no files. [`ContentType`] says whether a body is a form,
//! [`multipart::Parser`] takes one apart while it arrives, and a [`Form`] waits for its call. At
//! dispatch [`native`] writes it for our own SDK and [`tree`] for RoadRunner's packages. A
//! urlencoded body is kept as it came: [`urlencoded::check`] looks it through,
//! [`tree::write_urlencoded`] writes it for RoadRunner's packages, and PHP parses it for our SDK.
//!
//! ```
//! use pronghorn_form::multipart::{Event, Kind, Parser, Part};
//! use pronghorn_form::{ContentType, Form, Limits, UploadError, tree};
//!
//! let content_type = b"multipart/form-data; boundary=XX";
//! let pieces: [&[u8]; 2] = [
//!     b"--XX\r\nContent-Disposition: form-data; name=\"tags[]\"\r\n\r\nre",
//!     b"d\r\n--XX\r\nContent-Disposition: form-data; name=\"cv\"; filename=\"\"\r\n\r\n\r\n--XX--\r\n",
//! ];
//!
//! let ContentType::Multipart(boundary) = ContentType::parse(content_type)? else { panic!() };
//! let limits = Limits::default();
//! let mut parser = Parser::new(&boundary, limits);
//! let mut form = Form::default();
//! let mut open: Option<(Part, Vec<u8>)> = None;
//! for mut piece in pieces {
//!     while let Some(event) = parser.next(&mut piece)? {
//!         match (event, &mut open) {
//!             (Event::PartBegin(part), _) => open = Some((part, Vec::new())),
//!             // Content of a file goes to disk instead.
//!             (Event::Data(data), Some((_, value))) => value.extend_from_slice(data),
//!             (Event::PartEnd, open) => {
//!                 let (part, value) = open.take().expect("a part ends after it has begun");
//!                 form.entries.push(match part.kind() {
//!                     Kind::Field => part.into_field(value),
//!                     Kind::File => part.into_file(value.len() as u64, "/spool/1".into()),
//!                     Kind::EmptyInput => part.into_failed(UploadError::NoFile),
//!                 });
//!             }
//!             _ => {}
//!         }
//!     }
//! }
//! parser.finish()?;
//!
//! let mut body = Vec::new();
//! tree::write_fields(&form, &limits, &mut body)?;
//! assert_eq!(body, br#"{"tags":["red"],"cv":""}"#);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]
#![warn(missing_docs)]
#![warn(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::missing_errors_doc
)]

mod content_type;
mod form;
pub mod fuzz;
mod json;
mod limits;
pub mod multipart;
pub mod native;
pub mod tree;
pub mod urlencoded;

pub use content_type::{Boundary, BoundaryError, ContentType, MAX_BOUNDARY};
pub use form::{Entry, File, Form, UploadError};
pub use limits::{FIELD_BYTES, FIELDS, FILES, LEVELS, Limits};
