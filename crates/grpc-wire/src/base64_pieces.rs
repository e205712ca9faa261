//! Base64 that comes in pieces, each of which may be padded: gRPC-Web in text.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// Decodes pieces, however they are cut.
#[derive(Debug, Default)]
pub(crate) struct Pieces {
    /// Up to three characters of a group that is not whole.
    left: Vec<u8>,
}

impl Pieces {
    /// The bytes of the groups that are whole. `None` when it is no base64.
    pub(crate) fn decode(&mut self, piece: &[u8]) -> Option<Vec<u8>> {
        self.left.extend_from_slice(piece);
        let whole = self.left.len() / 4 * 4;
        let mut out = Vec::with_capacity(whole / 4 * 3);
        let mut rest = self.left.get(..whole)?;
        // Padding ends a piece, and another one may follow.
        while !rest.is_empty() {
            let padded = memchr::memchr(b'=', rest);
            let end = padded.map_or(rest.len(), |at| at / 4 * 4 + 4);
            let (piece, after) = rest.split_at(end.min(rest.len()));
            STANDARD.decode_vec(piece, &mut out).ok()?;
            rest = after;
        }
        self.left.drain(..whole);
        Some(out)
    }
}

/// A piece in base64, padded.
pub(crate) fn encode(piece: &[u8]) -> String {
    STANDARD.encode(piece)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn pieces_are_joined(
            pieces in proptest::collection::vec(
                proptest::collection::vec(any::<u8>(), 1..20), 0..6),
            cut in 1_usize..11,
        ) {
            let text: String = pieces.iter().map(|piece| encode(piece)).collect();
            let mut decoder = Pieces::default();
            let mut out = Vec::new();
            for piece in text.as_bytes().chunks(cut) {
                out.extend(decoder.decode(piece).unwrap());
            }
            prop_assert_eq!(out, pieces.concat());
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            Pieces::default().decode(&bytes);
        }
    }
}
