//! Compressed messages. gzip is the only coding, as in grpc-go.

use std::io::{self, Read as _, Write as _};

use bytes::Bytes;
use flate2::Compression;
use flate2::read::MultiGzDecoder;
use flate2::write::GzEncoder;
use pronghorn_serve::Charge;

use crate::aside::{LONG, Wanted, aside};
use crate::status::{Code, Status};

/// Bytes after which it is counted what has come out.
const STEP: u64 = 256 << 10;
/// Shorter ones only grow.
const WORTH_IT: usize = 64;

/// A message out of its coding, of at most so many bytes: few may stand for many.
///
/// # Errors
///
/// When it is none in this coding, or longer.
pub async fn decompress(bytes: Bytes, most: usize) -> Result<Bytes, Status> {
    decompress_counted(bytes, most, &mut Charge::default()).await
}

/// The same, and counts what comes out while it does.
pub(crate) async fn decompress_counted(
    bytes: Bytes,
    most: usize,
    charge: &mut Charge,
) -> Result<Bytes, Status> {
    if bytes.len() <= LONG / 64 {
        return expand(&bytes, most, charge, &Wanted::default());
    }
    let (client, mut taken) = (charge.holder(), std::mem::take(charge));
    let work = move |wanted: &Wanted| {
        let expanded = expand(&bytes, most, &mut taken, wanted);
        (expanded, taken)
    };
    let (expanded, taken) = aside(client, work).await?;
    *charge = taken;
    expanded
}

fn expand(
    bytes: &[u8],
    most: usize,
    charge: &mut Charge,
    wanted: &Wanted,
) -> Result<Bytes, Status> {
    let mut out = Vec::new();
    let mut decoder = MultiGzDecoder::new(bytes).take(most as u64 + 1);
    loop {
        match decoder.by_ref().take(STEP).read_to_end(&mut out) {
            Ok(_) if out.len() > most => {
                let text =
                    format!("grpc: received message after decompression larger than max {most}");
                return Err(Status::new(Code::ResourceExhausted, text));
            }
            Ok(0) => return Ok(out.into()),
            Ok(_) if wanted.is_over() => {
                return Err(Status::new(Code::Cancelled, "the client left"));
            }
            Ok(_) => charge
                .try_set(bytes.len() + out.capacity())
                .map_err(|key| {
                    let text = format!("the message takes more memory than `{key}` has left");
                    Status::new(Code::ResourceExhausted, text)
                })?,
            Err(error) => {
                let text = format!("grpc: failed to decompress the received message: {error}");
                return Err(Status::new(Code::Internal, text));
            }
        }
    }
}

/// A message in its coding. None where that would not make it shorter.
pub async fn compress(bytes: Bytes) -> Option<Bytes> {
    if bytes.len() < WORTH_IT {
        return None;
    }
    let length = bytes.len();
    let compressed = if length <= LONG {
        shrink(&bytes)
    } else {
        let work = tokio::task::spawn_blocking(move || shrink(&bytes));
        work.await
            .unwrap_or_else(|_| Err(io::ErrorKind::Other.into()))
    };
    compressed.ok().filter(|shorter| shorter.len() < length)
}

/// The same for a message of a stream, where nobody can wait.
pub(crate) fn compress_now(bytes: &[u8]) -> Option<Bytes> {
    if bytes.len() < WORTH_IT || bytes.len() > LONG {
        return None;
    }
    shrink(bytes)
        .ok()
        .filter(|shorter| shorter.len() < bytes.len())
}

fn shrink(bytes: &[u8]) -> io::Result<Bytes> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes)?;
    Ok(encoder.finish()?.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_is_compressed_is_read_back() {
        for length in [64, 5000, 200_000] {
            let bytes = Bytes::from(vec![7; length]);
            let shorter = compress(bytes.clone()).await.unwrap();
            assert!(shorter.len() < length);
            assert_eq!(decompress(shorter, length).await.unwrap(), bytes);
        }
        assert!(compress(Bytes::from_static(b"short")).await.is_none());
    }

    #[tokio::test]
    async fn a_bomb_is_refused() {
        let bomb = shrink(&vec![0; 10 << 20]).unwrap();
        let refused = decompress(bomb, 1 << 20).await.unwrap_err();
        assert_eq!(refused.code, Code::ResourceExhausted);
        let refused = decompress(Bytes::from_static(b"no gzip"), 100).await;
        assert_eq!(refused.unwrap_err().code, Code::Internal);
    }
}
