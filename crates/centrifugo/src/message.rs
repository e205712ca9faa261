//! The shape of a protobuf message, without its fields.

const VARINT: u64 = 0;
const EIGHT_BYTES: u64 = 1;
const LENGTH: u64 = 2;
const FOUR_BYTES: u64 = 5;

/// Whether bytes can be a message: fields, each with a number, and nothing else. Groups, which no
/// message of Centrifugo has, are none.
pub(crate) fn is_message(mut rest: &[u8]) -> bool {
    while !rest.is_empty() {
        let Some(tag) = varint(&mut rest) else {
            return false;
        };
        let number = tag >> 3;
        if number == 0 || u32::try_from(tag).is_err() {
            return false;
        }
        let length = match tag & 7 {
            VARINT => match varint(&mut rest) {
                Some(_) => 0,
                None => return false,
            },
            EIGHT_BYTES => 8,
            FOUR_BYTES => 4,
            LENGTH => match varint(&mut rest) {
                Some(length) => length,
                None => return false,
            },
            _ => return false,
        };
        let after = usize::try_from(length).ok();
        let Some(after) = after.and_then(|length| rest.get(length..)) else {
            return false;
        };
        rest = after;
    }
    true
}

/// A varint has at most ten bytes, of seven bits each.
fn varint(rest: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..70).step_by(7) {
        let (&byte, after) = rest.split_first()?;
        *rest = after;
        let bits = u64::from(byte & 0x7f);
        value |= if shift < 64 { bits << shift } else { 0 };
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn messages_and_others_are_told_apart() {
        for message in [
            &b""[..],
            b"\x0a\x02\x0a\x00",
            b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
            b"\x09\0\0\0\0\0\0\0\0\x0d\0\0\0\0",
        ] {
            assert!(is_message(message), "{message:?}");
        }
        for other in [
            &b"hello"[..],
            b"{}",
            b"\x0a",
            b"\x0a\x05abc",
            b"\x00\x00",
            b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
            b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\x7f",
            b"<b>Fatal error</b>",
        ] {
            assert!(!is_message(other), "{other:?}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            is_message(&bytes);
        }
    }
}
