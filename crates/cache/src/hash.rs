//! The hash of keys, and the sum over entries: both ends compute the same.

use crate::layout::{FACTOR_A, FACTOR_B};

/// Sixteen bytes at a time, by the product of two words whose halves are folded.
pub(crate) fn hash(seed: u64, bytes: &[u8]) -> u64 {
    let mut state = seed ^ (bytes.len() as u64).wrapping_mul(FACTOR_A);
    let mut chunks = bytes.chunks_exact(16);
    for chunk in &mut chunks {
        let (a, b) = chunk.split_at(8);
        state = fold(word(a) ^ FACTOR_B ^ state, word(b) ^ state.rotate_left(32));
    }
    let rest = chunks.remainder();
    let (a, b) = rest.split_at(rest.len().min(8));
    state = fold(word(a) ^ FACTOR_B ^ state, word(b) ^ state.rotate_left(32));
    fold(state ^ FACTOR_A, FACTOR_B)
}

/// Up to eight bytes, the first one lowest.
fn word(bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    word[..bytes.len()].copy_from_slice(bytes);
    u64::from_le_bytes(word)
}

fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    #[expect(clippy::cast_possible_truncation, reason = "its two halves")]
    let (low, high) = (product as u64, (product >> 64) as u64);
    low ^ high ^ a
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_and_bits_count() {
        let mut seen = std::collections::HashSet::new();
        for length in 0..70 {
            let mut bytes = vec![0; length];
            assert!(seen.insert(hash(7, &bytes)), "{length} zeros");
            for bit in 0..length * 8 {
                bytes[bit / 8] ^= 1 << (bit % 8);
                assert!(seen.insert(hash(7, &bytes)), "bit {bit} of {length}");
                bytes[bit / 8] ^= 1 << (bit % 8);
            }
        }
    }

    /// Segments are found by processes of the next release too.
    #[test]
    fn it_stays_as_it_is() {
        assert_eq!(hash(1, b""), 17_295_430_118_964_181_294);
    }
}
