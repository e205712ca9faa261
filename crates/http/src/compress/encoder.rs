//! One body on its way through a coding.

use std::io::{self, Write};

use flate2::{Compress, Compression, FlushCompress, Status};

use crate::coding::Coding;

/// How hard each coding tries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Levels {
    pub(crate) gzip: u32,
    pub(crate) brotli: u32,
    pub(crate) zstd: u32,
}

impl Levels {
    /// What an encoder takes, in bytes: more than any was seen to take at the highest level.
    pub(crate) const fn memory(self, coding: Coding) -> usize {
        match coding {
            Coding::Gzip => 512 << 10,
            Coding::Brotli if self.brotli > 9 => 32 << 20,
            Coding::Brotli => 4 << 20,
            Coding::Zstd if self.zstd > 9 => 16 << 20,
            Coding::Zstd => 4 << 20,
        }
    }
}

/// 256 KB: as far back as web pages repeat themselves; each body has a window of its own.
const BROTLI_WINDOW: u32 = 18;
const ZSTD_WINDOW: u32 = 18;
/// The largest that gzip has.
const GZIP_WINDOW: u8 = 15;
/// What an output grows by.
const OUT: usize = 8 << 10;

/// Takes a body piece by piece.
pub(crate) enum Encoder {
    Gzip(Compress),
    /// None when it has ended.
    Brotli(Option<Box<brotli::CompressorWriter<Vec<u8>>>>),
    Zstd(Box<zstd::stream::write::Encoder<'static, Vec<u8>>>),
}

/// What becomes of the input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Then {
    /// More comes: it may be held back.
    More,
    /// A client has to be able to read all of it.
    Flush,
    End,
}

impl Encoder {
    pub(crate) fn new(coding: Coding, levels: Levels) -> io::Result<Self> {
        Ok(match coding {
            Coding::Gzip => {
                let level = Compression::new(levels.gzip);
                Self::Gzip(Compress::new_gzip(level, GZIP_WINDOW))
            }
            Coding::Brotli => Self::Brotli(Some(Box::new(brotli::CompressorWriter::new(
                Vec::new(),
                OUT,
                levels.brotli,
                BROTLI_WINDOW,
            )))),
            Coding::Zstd => {
                let level = i32::try_from(levels.zstd).map_err(io::Error::other)?;
                let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), level)?;
                encoder.window_log(ZSTD_WINDOW)?;
                Self::Zstd(Box::new(encoder))
            }
        })
    }

    /// Takes some of a body; returns what it becomes, as far as that is decided.
    pub(crate) fn encode(&mut self, input: &[u8], then: Then) -> io::Result<Vec<u8>> {
        match self {
            Self::Gzip(encoder) => gzip(encoder, input, then),
            Self::Brotli(brotli) => {
                let Some(encoder) = brotli else {
                    return Ok(Vec::new());
                };
                encoder.write_all(input)?;
                match then {
                    Then::More => {}
                    Then::Flush => encoder.flush()?,
                    Then::End => {
                        let ended = brotli.take().map(|encoder| encoder.into_inner());
                        return Ok(ended.unwrap_or_default());
                    }
                }
                Ok(std::mem::take(encoder.get_mut()))
            }
            Self::Zstd(encoder) => {
                encoder.write_all(input)?;
                match then {
                    Then::More => {}
                    Then::Flush => encoder.flush()?,
                    Then::End => encoder.do_finish()?,
                }
                Ok(std::mem::take(encoder.get_mut()))
            }
        }
    }
}

fn gzip(encoder: &mut Compress, mut input: &[u8], then: Then) -> io::Result<Vec<u8>> {
    let flush = match then {
        Then::More => FlushCompress::None,
        Then::Flush => FlushCompress::Sync,
        Then::End => FlushCompress::Finish,
    };
    // Most text becomes a quarter.
    let mut out = Vec::with_capacity(OUT.max(input.len() / 3));
    loop {
        let (before, room) = (encoder.total_in(), out.capacity() - out.len());
        let status = encoder.compress_vec(input, &mut out, flush)?;
        let taken = usize::try_from(encoder.total_in() - before).unwrap_or(usize::MAX);
        input = input.get(taken..).unwrap_or_default();
        let is_full = out.len() == out.capacity();
        match status {
            Status::StreamEnd => return Ok(out),
            // What is left over of a flush fits only when there is room to spare.
            Status::Ok | Status::BufError
                if input.is_empty() && !is_full && then != Then::End && room > 0 =>
            {
                return Ok(out);
            }
            Status::Ok | Status::BufError => out.reserve(OUT),
        }
    }
}

#[cfg(test)]
pub(crate) mod testing {
    //! What comes out, for tests.

    use std::io::Read;

    use super::{Levels, OUT};
    use crate::coding::Coding;

    pub(crate) const LEVELS: Levels = Levels {
        gzip: 5,
        brotli: 4,
        zstd: 3,
    };

    /// As far as it can be read.
    pub(crate) fn decoded(coding: Coding, bytes: &[u8]) -> Vec<u8> {
        let mut text = Vec::new();
        let read = match coding {
            Coding::Gzip => flate2::read::MultiGzDecoder::new(bytes).read_to_end(&mut text),
            Coding::Brotli => brotli::Decompressor::new(bytes, OUT).read_to_end(&mut text),
            Coding::Zstd => zstd::stream::read::Decoder::new(bytes)
                .unwrap()
                .read_to_end(&mut text),
        };
        // What was flushed can be read, whether or not the end has come.
        _ = read;
        text
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::testing::{LEVELS, decoded};
    use super::*;

    #[test]
    fn what_was_flushed_can_be_read() {
        for coding in [Coding::Gzip, Coding::Brotli, Coding::Zstd] {
            let mut encoder = Encoder::new(coding, LEVELS).unwrap();
            let mut sent = encoder.encode(b"first ", Then::Flush).unwrap();
            assert_eq!(decoded(coding, &sent), b"first ", "{coding:?}");
            sent.extend(encoder.encode(b"second", Then::Flush).unwrap());
            assert_eq!(decoded(coding, &sent), b"first second", "{coding:?}");
            sent.extend(encoder.encode(b"", Then::End).unwrap());
            assert_eq!(decoded(coding, &sent), b"first second", "{coding:?}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(16))]
        #[test]
        fn any_pieces_come_out_as_they_went_in(
            pieces in prop::collection::vec((prop::collection::vec(any::<u8>(), 0..1000), 0..100_usize, any::<bool>()), 0..6),
        ) {
            for coding in [Coding::Gzip, Coding::Brotli, Coding::Zstd] {
                let mut encoder = Encoder::new(coding, LEVELS).unwrap();
                let (mut whole, mut sent) = (Vec::new(), Vec::new());
                for (piece, times, flush) in &pieces {
                    let piece = piece.repeat(*times);
                    let then = if *flush { Then::Flush } else { Then::More };
                    sent.extend(encoder.encode(&piece, then).unwrap());
                    whole.extend(piece);
                }
                sent.extend(encoder.encode(b"", Then::End).unwrap());
                prop_assert!(decoded(coding, &sent) == whole);
            }
        }
    }
}
