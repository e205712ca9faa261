//! Why a request is refused, and with which status.

use thiserror::Error;

/// A request that is not taken. The client's mistake; the connection can't be used after it,
/// because nobody knows where the next request would start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Refusal {
    /// RFC 9112, section 2.2: only CRLF ends a line.
    #[error("a line of the head does not end in CRLF")]
    LineEnd,
    /// NUL never belongs there.
    #[error("the head has a NUL byte in it")]
    Nul,
    /// Anything that the grammar of RFC 9112 does not allow: a folded line, a space before the
    /// colon, no target.
    #[error("the head is not HTTP/1.1: {0}")]
    Syntax(&'static str),
    /// Longer than the limit.
    #[error("the head is longer than {0} bytes")]
    HeadTooLong(usize),
    /// RFC 9112, section 3: 414 when not even the request line fits.
    #[error("the request line is longer than {0} bytes")]
    TargetTooLong(usize),
    /// More fields than the limit.
    #[error("the head has more than {0} fields")]
    TooManyFields(usize),
    /// A version other than 1.0 and 1.1.
    #[error("the version of HTTP is not 1.0 or 1.1")]
    Version,
    /// RFC 9112, section 3.2: exactly one, and a name.
    #[error("the Host field is {0}")]
    Host(&'static str),
    /// RFC 9110, section 5.3: no list, so that it may come once only.
    #[error("{0} is given twice")]
    Repeated(&'static str),
    /// Not the form that RFC 9112, section 3.2, has for this method.
    #[error("the request's target has no known form")]
    Target,
    /// Only proxies connect.
    #[error("CONNECT is for proxies")]
    Connect,
    /// RFC 9112, section 6.3.
    #[error("Content-Length is {0}")]
    ContentLength(&'static str),
    /// Both lengths, or the second one in HTTP/1.0.
    #[error("Transfer-Encoding {0}")]
    TransferEncoding(&'static str),
    /// RFC 9112, section 6.1: 501 for a coding that is not understood, before the chunks that tell
    /// where the body ends.
    #[error("the transfer coding is not `chunked` alone")]
    TransferCoding,
    /// RFC 9110, section 10.1.1.
    #[error("the expectation is not `100-continue`")]
    Expectation,
    /// Not the grammar of RFC 9112, section 7.1.
    #[error("the chunked body is broken: {0}")]
    Chunk(&'static str),
}

impl Refusal {
    /// The status of the answer.
    pub const fn status(self) -> u16 {
        match self {
            Self::HeadTooLong(_) | Self::TooManyFields(_) => 431,
            Self::TargetTooLong(_) => 414,
            Self::Version => 505,
            Self::Connect | Self::TransferCoding => 501,
            Self::Expectation => 417,
            Self::LineEnd
            | Self::Nul
            | Self::Syntax(_)
            | Self::Host(_)
            | Self::Repeated(_)
            | Self::Target
            | Self::ContentLength(_)
            | Self::TransferEncoding(_)
            | Self::Chunk(_) => 400,
        }
    }
}
