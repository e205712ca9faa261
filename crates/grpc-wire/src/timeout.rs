//! The field `grpc-timeout`: how long the client waits.

use std::time::Duration;

/// Digits that a time may have.
const MOST_DIGITS: usize = 8;

/// Reads a time: up to eight digits and a unit. `None` when it is none.
pub fn parse_timeout(value: &[u8]) -> Option<Duration> {
    let (unit, digits) = value.split_last()?;
    if digits.is_empty() || digits.len() > MOST_DIGITS {
        return None;
    }
    let mut count = 0_u64;
    for digit in digits {
        let digit = digit.is_ascii_digit().then(|| u64::from(digit - b'0'))?;
        count = count * 10 + digit;
    }
    Some(match unit {
        b'H' => Duration::from_secs(count * 3600),
        b'M' => Duration::from_secs(count * 60),
        b'S' => Duration::from_secs(count),
        b'm' => Duration::from_millis(count),
        b'u' => Duration::from_micros(count),
        b'n' => Duration::from_nanos(count),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn each_unit_is_known() {
        let read = |text: &str| parse_timeout(text.as_bytes());
        assert_eq!(read("1H"), Some(Duration::from_secs(3600)));
        assert_eq!(read("2M"), Some(Duration::from_secs(120)));
        assert_eq!(read("99999999S"), Some(Duration::from_secs(99_999_999)));
        assert_eq!(read("10m"), Some(Duration::from_millis(10)));
        assert_eq!(read("10u"), Some(Duration::from_micros(10)));
        assert_eq!(read("0n"), Some(Duration::ZERO));
        for wrong in ["", "S", "1", "1s", "123456789S", "-1S", "1.5S", " 1S"] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..12)) {
            parse_timeout(&bytes);
        }
    }
}
