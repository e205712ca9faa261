//! `http.compress`.

use pronghorn_config::{Section, Size, Table};

use crate::coding::Coding;
use crate::compress::{Compressor, Levels, TypePattern};

/// The cheapest first, of those that make text about as short: measured, zstd takes half of gzip's
/// time, br half as much again.
const CODINGS: [Coding; 3] = [Coding::Zstd, Coding::Brotli, Coding::Gzip];
/// Below a packet's size there is little to gain; as RoadRunner's.
const MIN_SIZE: Size = Size::kilobytes(1);
/// Higher ones gain a few percent for twice the time.
const GZIP_LEVEL: u32 = 5;
const BROTLI_LEVEL: u32 = 4;
const ZSTD_LEVEL: u32 = 3;
/// Much more than what clients compress, little enough for a disk.
const MAX_REQUEST_BODY: Size = Size::megabytes(64);

/// How responses are compressed.
#[derive(Clone, Debug)]
pub struct CompressSettings {
    /// The best first.
    pub codings: Vec<Coding>,
    pub min_size: Size,
    pub types: Vec<TypePattern>,
    pub gzip_level: u32,
    pub br_level: u32,
    pub zstd_level: u32,
    /// What a request's body may become.
    pub max_request_body: Size,
}

impl CompressSettings {
    pub(crate) fn compressor(&self) -> Compressor {
        Compressor {
            codings: self.codings.clone(),
            levels: Levels {
                gzip: self.gzip_level,
                brotli: self.br_level,
                zstd: self.zstd_level,
            },
            min_size: self.min_size.bytes(),
            types: self.types.clone(),
        }
    }
}

impl Default for CompressSettings {
    fn default() -> Self {
        Self {
            codings: CODINGS.to_vec(),
            min_size: MIN_SIZE,
            types: TypePattern::defaults(),
            gzip_level: GZIP_LEVEL,
            br_level: BROTLI_LEVEL,
            zstd_level: ZSTD_LEVEL,
            max_request_body: MAX_REQUEST_BODY,
        }
    }
}

impl Section for CompressSettings {
    fn read(t: &mut Table<'_>) -> Self {
        t.ours();
        t.live();
        let by_default = Self::default();
        Self {
            codings: t
                .key(
                    "codings",
                    "Compression formats for responses, the preferred one first. The middlewares \
                     `gzip` and `zstd` support only their own.",
                )
                .default(by_default.codings),
            min_size: t
                .key("min_size", "The smallest response body that is compressed.")
                .default(by_default.min_size),
            types: t
                .key("types", "Content types to compress.")
                .default(by_default.types),
            gzip_level: t
                .key("gzip_level", "Compression level of gzip.")
                .range(1..=9)
                .default(by_default.gzip_level),
            br_level: t
                .key(
                    "br_level",
                    "Compression level of Brotli. Levels 10 and 11 take seconds for a megabyte.",
                )
                .range(0..=11)
                .default(by_default.br_level),
            zstd_level: t
                .key("zstd_level", "Compression level of zstd.")
                .range(1..=19)
                .default(by_default.zstd_level),
            max_request_body: t
                .key(
                    "max_request_body",
                    "The largest decompressed size of a compressed request body. A request with a \
                     larger one is answered 413. So is a body that is more than 200 times as long \
                     as its compressed form.",
                )
                .zero_is_default()
                .default(by_default.max_request_body),
        }
    }
}
