//! The names of connections.

use std::fmt;
use std::str::FromStr;

/// A random UUID, version 4: RoadRunner's programs keep it as a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ConnectionId(u128);

/// A text is no name of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NoId;

/// Digits of each part.
const PARTS: [usize; 5] = [8, 4, 4, 4, 12];

impl ConnectionId {
    pub(crate) fn random() -> Self {
        const VERSION: u128 = 0xF << 76;
        const VARIANT: u128 = 0b11 << 62;
        let random = fastrand::u128(..) & !VERSION & !VARIANT;
        Self(random | 4 << 76 | 0b10 << 62)
    }
}

impl fmt::Display for ConnectionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = format!("{:032x}", self.0);
        let mut rest = &*digits;
        for (at, len) in PARTS.into_iter().enumerate() {
            let (part, more) = rest.split_at(len);
            if at > 0 {
                f.write_str("-")?;
            }
            f.write_str(part)?;
            rest = more;
        }
        Ok(())
    }
}

impl FromStr for ConnectionId {
    type Err = NoId;

    fn from_str(text: &str) -> Result<Self, NoId> {
        let lengths = text.split('-').map(str::len);
        let is_hex = |byte: u8| byte.is_ascii_hexdigit() || byte == b'-';
        if !lengths.eq(PARTS) || !text.bytes().all(is_hex) {
            return Err(NoId);
        }
        let digits = text.replace('-', "");
        u128::from_str_radix(&digits, 16)
            .map(Self)
            .map_err(|_| NoId)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_a_uuid_and_is_found_again() {
        let id = ConnectionId::random();
        let text = id.to_string();
        assert_eq!(text.len(), 36);
        assert_eq!(text.as_bytes()[14], b'4');
        assert!(b"89ab".contains(&text.as_bytes()[19]), "{text}");
        assert_eq!(text.parse(), Ok(id));
        assert_eq!(text.to_uppercase().parse(), Ok(id));
        for wrong in [
            "",
            "x",
            "0-0-0-0-0",
            text.split_at(1).1,
            &format!("{text}-"),
            &text.replace('-', "+"),
        ] {
            assert_eq!(wrong.parse::<ConnectionId>(), Err(NoId), "{wrong}");
        }
    }
}
