//! A request's body out of its coding, a bounded piece at a time: a few bytes may stand for
//! gigabytes.

use brotli::{BrotliDecompressStream, BrotliResult, BrotliState};
use bytes::{Buf, Bytes};
use flate2::{Decompress, FlushDecompress, Status};
use pronghorn_serve::BodyError;
use zstd::stream::raw::{Decoder as Zstd, InBuffer, Operation, OutBuffer};
use zstd::zstd_safe::DParameter;

use crate::coding::Coding;

/// What is decoded at a time.
const PIECE: usize = 64 << 10;
/// A body that becomes more than so many times as long is not meant to be read. Text becomes 10
/// times as long, tables of much the same numbers 100 times.
const MOST_TIMES: u64 = 200;
/// Up to here it does not matter.
const FREE: u64 = 1 << 20;
/// 8 MB, what RFC 9659 asks decoders of zstd to have.
const ZSTD_WINDOW: u32 = 23;
const GZIP_WINDOW: u8 = 15;
/// How long members of a body are on average, but for so many: programs that write many, such as
/// `bgzip`, make them longer.
const MEMBER: u64 = 4 << 10;
const SHORT_MEMBERS: u64 = 100;

/// Bytes of memory that decoding takes, by the coding and how the body begins.
pub(crate) fn memory(coding: Coding, begin: &[u8]) -> usize {
    /// Tables, and where each piece is decoded to, beside the window.
    const STATE: usize = 128 << 10;
    let window = match coding {
        Coding::Gzip => 1 << GZIP_WINDOW,
        // Each frame of a body may have another one.
        Coding::Zstd => 1 << ZSTD_WINDOW,
        Coding::Brotli => 1 << brotli_window(begin.first().copied().unwrap_or_default()),
    };
    window + STATE
}

/// RFC 7932, section 9.1: the window's size as a power of two.
fn brotli_window(first: u8) -> u32 {
    let (short, long) = (u32::from(first >> 1 & 7), u32::from(first >> 4 & 7));
    match (first & 1, short, long) {
        (0, ..) => 16,
        (_, 0, 0) => 17,
        (_, 0, long) => 8 + long,
        (_, short, _) => 17 + short,
    }
}

pub(crate) struct Decoder {
    kind: Kind,
    coding: Coding,
    taken: u64,
    given: u64,
    most: u64,
    has_ended: bool,
    /// Members that came behind the first one.
    members: u64,
    /// Where each piece is decoded to.
    out: Box<[u8]>,
}

enum Kind {
    Gzip(Decompress),
    Brotli(Box<Brotli>),
    Zstd(Box<Zstd<'static>>),
    /// It could not be made.
    None,
}

type Brotli =
    BrotliState<brotli::enc::StandardAlloc, brotli::enc::StandardAlloc, brotli::enc::StandardAlloc>;

/// What one step came to: bytes taken and given, and whether it was the last one.
struct Step {
    taken: usize,
    given: usize,
    is_end: bool,
}

impl Decoder {
    /// At most `most` bytes come out.
    pub(crate) fn new(coding: Coding, most: u64) -> Self {
        let kind = match coding {
            Coding::Gzip => Kind::Gzip(Decompress::new_gzip(GZIP_WINDOW)),
            Coding::Brotli => {
                let alloc = brotli::enc::StandardAlloc::default;
                Kind::Brotli(Box::new(BrotliState::new(alloc(), alloc(), alloc())))
            }
            Coding::Zstd => Zstd::new()
                .and_then(|mut zstd| {
                    zstd.set_parameter(DParameter::WindowLogMax(ZSTD_WINDOW))?;
                    Ok(Kind::Zstd(Box::new(zstd)))
                })
                .unwrap_or(Kind::None),
        };
        Self {
            kind,
            coding,
            taken: 0,
            given: 0,
            most,
            has_ended: false,
            members: 0,
            out: vec![0; PIECE].into(),
        }
    }

    /// The next piece of what `input` stands for, which is taken as far as that needs it. Empty
    /// when more input is needed.
    ///
    /// # Errors
    ///
    /// The client's: no such coding, or too much of it.
    pub(crate) fn decode(&mut self, input: &mut Bytes) -> Result<Bytes, BodyError> {
        let broken = BodyError::Malformed(self.coding.name());
        loop {
            // At the end of its input it may still have something to give.
            let had = input.len();
            if self.has_ended {
                if input.is_empty() {
                    return Ok(Bytes::new());
                }
                if !self.begin_next() {
                    return Err(broken);
                }
            }
            let Some(step) = self.kind.step(input, &mut self.out) else {
                return Err(broken);
            };
            input.advance(step.taken);
            self.taken += step.taken as u64;
            self.given += step.given as u64;
            self.has_ended = step.is_end;
            if self.given > self.most {
                return Err(BodyError::TooLarge(self.most));
            }
            if self.given > FREE && self.given > self.taken.saturating_mul(MOST_TIMES) {
                return Err(BodyError::TooLarge(self.taken.saturating_mul(MOST_TIMES)));
            }
            if step.given > 0 {
                return Ok(Bytes::copy_from_slice(&self.out[..step.given]));
            }
            if had == 0 || step.taken == 0 {
                return Ok(Bytes::new());
            }
        }
    }

    /// Goes on with another member of gzip (RFC 1952, section 2.2) or frame of zstd (RFC 8878,
    /// section 3). False where the coding has none, and where they are so short that beginning them
    /// is all the work.
    fn begin_next(&mut self) -> bool {
        self.members += 1;
        self.has_ended = false;
        match &mut self.kind {
            Kind::Gzip(gzip) => *gzip = Decompress::new_gzip(GZIP_WINDOW),
            Kind::Zstd(_) => {}
            Kind::Brotli(_) | Kind::None => return false,
        }
        self.members <= SHORT_MEMBERS + self.taken / MEMBER
    }

    /// The body has ended.
    ///
    /// # Errors
    ///
    /// When it ends in the middle.
    pub(crate) fn end(&self) -> Result<(), BodyError> {
        if self.has_ended {
            Ok(())
        } else {
            Err(BodyError::Malformed(self.coding.name()))
        }
    }
}

impl Kind {
    fn step(&mut self, input: &[u8], out: &mut [u8]) -> Option<Step> {
        match self {
            Self::Gzip(gzip) => {
                let (before_in, before_out) = (gzip.total_in(), gzip.total_out());
                let status = gzip.decompress(input, out, FlushDecompress::None).ok()?;
                Some(Step {
                    taken: usize::try_from(gzip.total_in() - before_in).ok()?,
                    given: usize::try_from(gzip.total_out() - before_out).ok()?,
                    is_end: status == Status::StreamEnd,
                })
            }
            Self::Brotli(state) => {
                let (mut left, mut taken) = (input.len(), 0);
                let (mut room, mut given, mut total) = (out.len(), 0, 0);
                let result = BrotliDecompressStream(
                    &mut left, &mut taken, input, &mut room, &mut given, out, &mut total, state,
                );
                let is_end = match result {
                    BrotliResult::ResultSuccess => true,
                    BrotliResult::NeedsMoreInput | BrotliResult::NeedsMoreOutput => false,
                    BrotliResult::ResultFailure => return None,
                };
                Some(Step {
                    taken,
                    given,
                    is_end,
                })
            }
            Self::Zstd(zstd) => {
                let mut source = InBuffer::around(input);
                let mut target = OutBuffer::around(out);
                let wanted = zstd.run(&mut source, &mut target).ok()?;
                Some(Step {
                    taken: source.pos(),
                    given: target.pos(),
                    is_end: wanted == 0,
                })
            }
            Self::None => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::compress::encoder::{Encoder, Then, testing::LEVELS};

    const ALL: [Coding; 3] = [Coding::Gzip, Coding::Brotli, Coding::Zstd];

    fn encoded(coding: Coding, bytes: &[u8]) -> Vec<u8> {
        let mut encoder = Encoder::new(coding, LEVELS).unwrap();
        encoder.encode(bytes, Then::End).unwrap()
    }

    fn decoded(coding: Coding, pieces: &[&[u8]], most: u64) -> Result<Vec<u8>, BodyError> {
        let mut decoder = Decoder::new(coding, most);
        let mut whole = Vec::new();
        for piece in pieces {
            let mut input = Bytes::copy_from_slice(piece);
            loop {
                let out = decoder.decode(&mut input)?;
                assert!(out.len() <= PIECE);
                if out.is_empty() {
                    break;
                }
                whole.extend_from_slice(&out);
            }
        }
        decoder.end().map(|()| whole)
    }

    #[test]
    fn the_window_of_a_body_is_known_by_its_first_octet() {
        for (first, window) in [
            (0x0c, 16),
            (0x01, 17),
            (0x21, 10),
            (0x71, 15),
            (0x03, 18),
            (0x0f, 24),
        ] {
            assert_eq!(brotli_window(first), window, "{first:#04x}");
        }
    }

    #[test]
    fn a_body_comes_out_whatever_the_pieces() {
        let text: Vec<u8> = (0..20_000_u32)
            .flat_map(|n| n.to_string().into_bytes())
            .collect();
        for coding in ALL {
            let bytes = encoded(coding, &text);
            for size in [1_usize, 7, 1000, bytes.len()] {
                let pieces: Vec<&[u8]> = bytes.chunks(size).collect();
                assert!(
                    decoded(coding, &pieces, 10 << 20).unwrap() == text,
                    "{coding:?} {size}"
                );
            }
        }
    }

    #[test]
    fn a_bomb_goes_off_small() {
        let zeros = vec![0; 64 << 20];
        for coding in ALL {
            let bomb = encoded(coding, &zeros);
            let told = decoded(coding, &[&bomb], 1 << 30);
            assert!(
                matches!(told, Err(BodyError::TooLarge(_))),
                "{coding:?}: {} bytes",
                bomb.len()
            );
            let small = encoded(coding, &zeros[..1 << 20]);
            assert_eq!(decoded(coding, &[&small], 1 << 30).unwrap().len(), 1 << 20);
            let told = decoded(coding, &[&small], 1000);
            assert!(matches!(told, Err(BodyError::TooLarge(1000))), "{coding:?}");
        }
    }

    #[test]
    fn what_is_cut_off_or_goes_on_is_malformed() {
        for coding in ALL {
            let bytes = encoded(coding, b"hello, hello, hello");
            let cut = &bytes[..bytes.len() - 1];
            let more = [&bytes[..], b"more"].concat();
            for wrong in [b"".as_slice(), b"hello", cut, &more] {
                let told = decoded(coding, &[wrong], 1000);
                assert!(
                    matches!(told, Err(BodyError::Malformed(_))),
                    "{coding:?} {wrong:?}: {told:?}"
                );
            }
        }
    }

    #[test]
    fn several_members_are_one_body() {
        for coding in [Coding::Gzip, Coding::Zstd] {
            let parts = [
                encoded(coding, b"hello "),
                encoded(coding, b""),
                encoded(coding, b"world"),
            ];
            let bytes = parts.concat();
            for size in [1, 5, bytes.len()] {
                let pieces: Vec<&[u8]> = bytes.chunks(size).collect();
                assert_eq!(
                    decoded(coding, &pieces, 1000).unwrap(),
                    b"hello world",
                    "{coding:?}"
                );
            }
            let cut = &bytes[..bytes.len() - 1];
            assert!(matches!(
                decoded(coding, &[cut], 1000),
                Err(BodyError::Malformed(_))
            ));
            assert!(matches!(
                decoded(coding, &[&bytes], 10),
                Err(BodyError::TooLarge(10))
            ));
            let tiny = encoded(coding, b"").repeat(10_000);
            let told = decoded(coding, &[&tiny], 1000);
            assert!(
                matches!(told, Err(BodyError::Malformed(_))),
                "{coding:?}: {told:?}"
            );
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn no_bytes_break_a_decoder(bytes in prop::collection::vec(any::<u8>(), 0..500)) {
            for coding in ALL {
                _ = decoded(coding, &[&bytes], 1 << 20);
            }
        }
    }
}
