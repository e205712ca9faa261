use thiserror::Error;

use super::{MAX_HEAD, MAX_HEADERS};

/// Why a multipart body is refused. Always the client's fault: answer 400.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("malformed form (part {part}, byte {offset} of the body): {kind}")]
pub struct Error {
    /// What is wrong.
    pub kind: ErrorKind,
    /// The part it is in, from 1; 0 before the first.
    pub part: u32,
    /// Bytes of the body before it; for what is wrong with a part, before the part's headers.
    pub offset: u64,
}

/// What is wrong with a multipart body.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum ErrorKind {
    /// The body has no boundary line: often the boundary in Content-Type is another one than in the
    /// body.
    #[error("the boundary that Content-Type names is nowhere in the body")]
    NoBoundary,
    /// The body ended within a part or before the closing boundary.
    #[error("the body ends before the closing boundary line; was it cut off?")]
    Truncated,
    /// Text behind a boundary. PHP loses the part that follows.
    #[error(
        "there is text after the boundary on its line; end the line with CR LF, or with `--` \
         after the last part"
    )]
    BoundaryLine,
    /// A boundary as the first thing in a part: for RFC 2046 the part is empty, for PHP the
    /// boundary is its content.
    #[error("a boundary line directly after the headers; end an empty part with CR LF before it")]
    BoundaryAtStart,
    /// A boundary line behind the closing one. RFC 2046 ignores it, PHP reads on.
    #[error("there is another boundary line after the closing one")]
    AfterEnd,
    /// Headers beyond [`MAX_HEAD`].
    #[error("the headers are longer than {MAX_HEAD} bytes")]
    HeadTooLong,
    /// Headers beyond [`MAX_HEADERS`].
    #[error("more than {MAX_HEADERS} headers")]
    TooManyHeaders,
    /// NUL, at which PHP cuts the line, or a CR without LF.
    #[error("a header holds a NUL or a carriage return without line feed")]
    ControlByte,
    /// A line without colon, or whose name is no token (a space before the colon), or a folded
    /// first line.
    #[error("a header line is not of the form `Name: value`")]
    HeaderLine,
    /// PHP reads the first; others the last.
    #[error("two `{0}` headers; send one")]
    HeaderTwice(&'static str),
    /// PHP skips the part.
    #[error("no Content-Disposition header; expected `Content-Disposition: form-data; name=\"…\"`")]
    NoDisposition,
    /// Neither field nor file name: PHP ignores the rest of the form.
    #[error("no `name` in Content-Disposition")]
    NoName,
    /// PHP reads the last; others the first.
    #[error("two `{0}` parameters in Content-Disposition; send one")]
    ParameterTwice(&'static str),
    /// A quoted value that does not end.
    #[error("a quoted value in Content-Disposition has no closing quote")]
    OpenQuote,
    /// A missing semicolon, a value with a space or a quote in it that is not quoted, text behind a
    /// closing quote.
    #[error(
        "a parameter in Content-Disposition is not of the form `name=\"value\"`; send a quote in a value as `%22`"
    )]
    Parameter,
    /// Beyond [`Limits::fields`](crate::Limits::fields).
    #[error("more than {0} fields")]
    TooManyFields(u32),
    /// Beyond [`Limits::files`](crate::Limits::files).
    #[error("more than {0} files")]
    TooManyFiles(u32),
    /// Beyond [`Limits::levels`](crate::Limits::levels).
    #[error("a name with more than {0} brackets")]
    TooManyLevels(u8),
    /// Beyond [`Limits::field_bytes`](crate::Limits::field_bytes).
    #[error("fields and names are together longer than {0} bytes")]
    FieldsTooLong(usize),
}
