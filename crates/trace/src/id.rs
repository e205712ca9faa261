//! Identifiers of traces and spans.

use std::fmt;

/// The ID of a trace: the same in all services that a request passes. Never zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TraceId(u128);

/// The ID of a span, within its trace. Never zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SpanId(u64);

impl TraceId {
    /// A new one.
    #[must_use]
    pub fn random() -> Self {
        // Half of it is what others sample by, so that half is never zero.
        Self(u128::from(fastrand::u64(..)) << 64 | u128::from(SpanId::random().0))
    }

    /// None of zero, which is no identifier.
    #[must_use]
    pub fn new(id: u128) -> Option<Self> {
        (id != 0).then_some(Self(id))
    }

    /// It as a number.
    #[must_use]
    pub const fn number(self) -> u128 {
        self.0
    }

    /// Its bytes in the order in which they are written.
    #[must_use]
    pub const fn to_bytes(self) -> [u8; 16] {
        self.0.to_be_bytes()
    }

    /// The half that decisions by ratio go by.
    pub(crate) fn low(self) -> u64 {
        let [_, _, _, _, _, _, _, _, low @ ..] = self.to_bytes();
        u64::from_be_bytes(low)
    }
}

impl SpanId {
    /// A new one.
    #[must_use]
    pub fn random() -> Self {
        Self(fastrand::u64(..).max(1))
    }

    /// None of zero, which is no identifier.
    #[must_use]
    pub fn new(id: u64) -> Option<Self> {
        (id != 0).then_some(Self(id))
    }

    /// Its bytes in the order in which they are written.
    #[must_use]
    pub const fn to_bytes(self) -> [u8; 8] {
        self.0.to_be_bytes()
    }
}

impl fmt::Display for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Display for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl TraceId {
    /// Its digits.
    pub(crate) fn digits(self) -> [u8; 32] {
        let high = u64::try_from(self.0 >> 64).unwrap_or_default(); // it fits
        let mut digits = [0; 32];
        let (first, second) = digits.split_at_mut(16);
        first.copy_from_slice(&hex_digits(high));
        second.copy_from_slice(&hex_digits(self.low()));
        digits
    }
}

impl SpanId {
    /// Its digits.
    pub(crate) fn digits(self) -> [u8; 16] {
        hex_digits(self.0)
    }
}

/// Formatting would take some hundred instructions, and a look at a table for each byte more than
/// a hundred; this is done for each request.
fn hex_digits(number: u64) -> [u8; 16] {
    let mut digits = [0; 16];
    let (high, low) = digits.split_at_mut(8);
    high.copy_from_slice(&half_of_digits(number >> 32));
    low.copy_from_slice(&half_of_digits(number & 0xffff_ffff));
    digits
}

/// Of a number of 32 bits, all digits at once: each half byte moves into a byte of its own, and
/// becomes the letter that it stands for.
fn half_of_digits(number: u64) -> [u8; 8] {
    const ONES: u64 = 0x0101_0101_0101_0101;
    let spread = number << 16 & 0x0000_ffff_0000_0000 | number & 0xffff;
    let spread = spread << 8 & 0x00ff_0000_00ff_0000 | spread & 0x0000_00ff_0000_00ff;
    let spread = spread << 4 & 0x0f00_0f00_0f00_0f00 | spread & 0x000f_000f_000f_000f;
    // 1 in each byte from ten on.
    let letters = (spread + 6 * ONES) >> 4 & ONES;
    let text = spread + u64::from(b'0') * ONES + letters * u64::from(b'a' - b'0' - 10);
    text.to_be_bytes()
}

/// A number in hexadecimal digits, of which there are 1 to `most`. None of anything else.
pub(crate) fn hex(digits: &[u8], most: usize) -> Option<u128> {
    if digits.is_empty() || digits.len() > most {
        return None;
    }
    digits.iter().try_fold(0_u128, |number, digit| {
        let digit = char::from(*digit).to_digit(16)?;
        Some(number << 4 | u128::from(digit))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_those_of_formatting() {
        let some = [1, 0x0123_4567_89ab_cdef, 0xa9a9_9a9a_ff00_00ff, u64::MAX];
        let more = std::iter::repeat_with(|| fastrand::u64(1..)).take(1000);
        for number in some.into_iter().chain(more) {
            let id = SpanId(number);
            assert_eq!(id.digits(), *id.to_string().as_bytes());
            let id = TraceId(u128::from(number) << 64 | u128::from(number.rotate_left(7)));
            assert_eq!(id.digits(), *id.to_string().as_bytes());
        }
    }
}
