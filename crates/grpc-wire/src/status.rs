//! Statuses: how a call ended.

use std::fmt::{self, Write as _};

use bytes::Bytes;

/// A status's number, by its name in gRPC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Code {
    Ok,
    Cancelled,
    Unknown,
    InvalidArgument,
    DeadlineExceeded,
    NotFound,
    AlreadyExists,
    PermissionDenied,
    ResourceExhausted,
    FailedPrecondition,
    Aborted,
    OutOfRange,
    Unimplemented,
    Internal,
    Unavailable,
    DataLoss,
    Unauthenticated,
}

impl Code {
    /// All of them, each at the place of its number.
    pub const ALL: [Self; 17] = [
        Self::Ok,
        Self::Cancelled,
        Self::Unknown,
        Self::InvalidArgument,
        Self::DeadlineExceeded,
        Self::NotFound,
        Self::AlreadyExists,
        Self::PermissionDenied,
        Self::ResourceExhausted,
        Self::FailedPrecondition,
        Self::Aborted,
        Self::OutOfRange,
        Self::Unimplemented,
        Self::Internal,
        Self::Unavailable,
        Self::DataLoss,
        Self::Unauthenticated,
    ];

    /// The code of this number. What nobody knows is `Unknown`, as the specification has it.
    pub fn of(number: i64) -> Self {
        let place = usize::try_from(number).ok();
        let known = place.and_then(|place| Self::ALL.get(place));
        known.copied().unwrap_or(Self::Unknown)
    }

    pub const fn number(self) -> u8 {
        self as u8
    }

    /// The word, as Go's `codes` writes it: RoadRunner's metrics have it in a label.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Ok => "OK",
            Self::Cancelled => "Canceled",
            Self::Unknown => "Unknown",
            Self::InvalidArgument => "InvalidArgument",
            Self::DeadlineExceeded => "DeadlineExceeded",
            Self::NotFound => "NotFound",
            Self::AlreadyExists => "AlreadyExists",
            Self::PermissionDenied => "PermissionDenied",
            Self::ResourceExhausted => "ResourceExhausted",
            Self::FailedPrecondition => "FailedPrecondition",
            Self::Aborted => "Aborted",
            Self::OutOfRange => "OutOfRange",
            Self::Unimplemented => "Unimplemented",
            Self::Internal => "Internal",
            Self::Unavailable => "Unavailable",
            Self::DataLoss => "DataLoss",
            Self::Unauthenticated => "Unauthenticated",
        }
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// How a call ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    pub code: Code,
    /// For people, any text.
    pub message: String,
    /// A serialized `google.rpc.Status`, where the application gave details.
    pub details: Option<Bytes>,
}

impl Status {
    pub const OK: Self = Self {
        code: Code::Ok,
        message: String::new(),
        details: None,
    };

    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            details: None,
        }
    }
}

/// Writes a message as the field `grpc-message` has it: what is no printable ASCII, and `%`, as
/// bytes in hexadecimal.
pub fn percent_encode(message: &str) -> String {
    let mut out = String::with_capacity(message.len());
    for byte in message.bytes() {
        if matches!(byte, 0x20..=0x7e) && byte != b'%' {
            out.push(char::from(byte));
        } else {
            _ = write!(out, "%{byte:02X}"); // a String takes all
        }
    }
    out
}

/// Reads such a field. What is no code stands for itself.
pub fn percent_decode(field: &[u8]) -> String {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let mut out = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&first, after)) = rest.split_first() {
        rest = after;
        let code = match (first, after) {
            (b'%', [high, low, ..]) => digit(*high).zip(digit(*low)),
            _ => None,
        };
        match code {
            Some((high, low)) => {
                out.push(u8::try_from(high * 16 + low).unwrap_or_default());
                rest = after.get(2..).unwrap_or_default();
            }
            None => out.push(first),
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn numbers_are_places() {
        for (place, code) in Code::ALL.into_iter().enumerate() {
            assert_eq!(usize::from(code.number()), place);
            assert_eq!(Code::of(i64::try_from(place).unwrap()), code);
        }
        assert_eq!(Code::of(17), Code::Unknown);
        assert_eq!(Code::of(-1), Code::Unknown);
    }

    #[test]
    fn the_special_message_of_interop_is_written_as_its_test_wants() {
        let message = "\t\ntest with whitespace\r\nand Unicode BMP ☺ and non-BMP 😈\t\n";
        let field = "%09%0Atest with whitespace%0D%0Aand Unicode BMP %E2%98%BA and non-BMP \
                     %F0%9F%98%88%09%0A";
        assert_eq!(percent_encode(message), field);
        assert_eq!(percent_decode(field.as_bytes()), message);
        assert_eq!(percent_decode(b"50% of %zz%4"), "50% of %zz%4");
    }

    proptest! {
        #[test]
        fn every_text_survives(message in any::<String>()) {
            let field = percent_encode(&message);
            prop_assert!(field.bytes().all(|byte| matches!(byte, 0x20..=0x7e)));
            prop_assert_eq!(percent_decode(field.as_bytes()), message);
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            percent_decode(&bytes);
        }
    }
}
