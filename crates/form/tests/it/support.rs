//! Parses a whole body, the way the HTTP side does it piece by piece.

use std::fmt::Write as _;

use pronghorn_form::multipart::{self, Event, Kind, Parser, Part};
use pronghorn_form::{BoundaryError, ContentType, Entry, File, Form, Limits, UploadError};

/// Why a body was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refused {
    Boundary(BoundaryError),
    Body(multipart::ErrorKind),
}

/// Content of files is put into their path, as a `data:` URI.
pub(crate) fn parse(content_type: &[u8], body: &[u8], limits: Limits) -> Result<Form, Refused> {
    let boundary = match ContentType::parse(content_type).map_err(Refused::Boundary)? {
        ContentType::Multipart(boundary) => boundary,
        other => panic!("the test expects a multipart form: {other:?}"),
    };
    let refused = |error: multipart::Error| Refused::Body(error.kind);
    let mut parser = Parser::new(&boundary, limits);
    let mut rest = body;
    let mut form = Form::default();
    let mut open: Option<(Part, Vec<u8>)> = None;
    while let Some(event) = parser.next(&mut rest).map_err(refused)? {
        match event {
            Event::PartBegin(part) => assert!(open.replace((part, Vec::new())).is_none()),
            Event::Data(data) => open.as_mut().unwrap().1.extend_from_slice(data),
            Event::PartEnd => {
                let (part, content) = open.take().unwrap();
                form.entries.push(match part.kind() {
                    Kind::Field => part.into_field(content),
                    Kind::File => part.into_file(content.len() as u64, data_uri(&content).into()),
                    Kind::EmptyInput => part.into_failed(UploadError::NoFile),
                });
            }
            Event::End => assert!(open.is_none()),
        }
    }
    parser.finish().map_err(refused)?;
    Ok(form)
}

pub(crate) fn data_uri(content: &[u8]) -> String {
    format!("data:,{}", hex(content, "%"))
}

/// What [`data_uri`] was given.
pub(crate) fn content_of(file: &File) -> Vec<u8> {
    let path = file.path.to_str().unwrap();
    unhex(&path.trim_start_matches("data:,").replace('%', ""))
}

/// Each byte as `mark` and two digits.
pub(crate) fn hex(bytes: &[u8], mark: &str) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{mark}{byte:02x}").unwrap();
        text
    })
}

pub(crate) fn unhex(digits: &str) -> Vec<u8> {
    let pairs = digits.as_bytes().chunks(2);
    pairs
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect()
}

/// `name=value` and `name<filename|type|content>`, long runs of one letter as the letter and their
/// length.
pub(crate) fn summary(form: &Form) -> String {
    let text = |bytes: &[u8]| match bytes {
        [first, ..] if bytes.len() > 100 => format!("{}{}", char::from(*first), bytes.len()),
        _ => String::from_utf8_lossy(bytes).into_owned(),
    };
    let entries = form.entries.iter().map(|entry| match entry {
        Entry::Field { name, value } => format!("{}={}", text(name), text(value)),
        Entry::File(file) => {
            let content = String::from_utf8(content_of(file)).unwrap();
            format!(
                "{}<{}|{}|{content}>",
                text(&file.name),
                text(&file.filename),
                text(&file.media_type)
            )
        }
    });
    entries.collect::<Vec<_>>().join(" ")
}
