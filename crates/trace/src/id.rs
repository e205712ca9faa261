//! Identifiers of traces and spans.

use std::fmt;

/// Of a trace: the same in all services that a request passes. Never zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TraceId(u128);

/// Of a span, within its trace. Never zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SpanId(u64);

impl TraceId {
    /// A new one.
    #[must_use]
    pub fn random() -> Self {
        // Half of it is what others sample by, so that half is never zero.
        Self(u128::from(fastrand::u64(..)) << 64 | u128::from(fastrand::u64(1..)))
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
        Self(fastrand::u64(1..))
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
    pub(crate) fn write(self, text: &mut String) {
        text.push_str(digits(self.to_bytes(), &mut [0; 32]));
    }
}

impl SpanId {
    /// Its digits.
    pub(crate) fn write(self, text: &mut String) {
        text.push_str(digits(self.to_bytes(), &mut [0; 16]));
    }
}

/// Formatting would take some hundred instructions, and so would a push for each digit; this is
/// done for each request.
fn digits<const BYTES: usize>(bytes: [u8; BYTES], out: &mut [u8]) -> &str {
    static PAIRS: [[u8; 2]; 256] = pairs();
    for (byte, pair) in bytes.iter().zip(out.chunks_exact_mut(2)) {
        pair.copy_from_slice(&PAIRS[usize::from(*byte)]);
    }
    std::str::from_utf8(out).unwrap_or_default()
}

/// Both digits of each byte.
const fn pairs() -> [[u8; 2]; 256] {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut pairs = [[0; 2]; 256];
    let mut byte = 0;
    while byte < pairs.len() {
        pairs[byte] = [DIGITS[byte >> 4], DIGITS[byte & 15]];
        byte += 1;
    }
    pairs
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
