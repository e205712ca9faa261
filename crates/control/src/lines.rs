//! Lines of JSON over a stream, each with a limit.

use std::io;

use serde::Serialize;
use serde::de::DeserializeOwned;
use thiserror::Error;
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncWrite, AsyncWriteExt};

/// A line that is none.
#[derive(Debug, Error)]
pub(crate) enum LineError {
    #[error("the connection broke")]
    Io(#[from] io::Error),
    #[error("the connection ended in the middle of a line")]
    Cut,
    #[error("a line of more than {0} bytes")]
    TooLong(usize),
    #[error("no message: {0}")]
    NotJson(serde_json::Error),
}

/// The next line without its end; none when the peer has closed. A line longer than `limit` is an
/// error after `limit` bytes. Loses what it has read when it is dropped.
pub(crate) async fn read(
    from: &mut (impl AsyncBufRead + Unpin),
    limit: usize,
) -> Result<Option<Vec<u8>>, LineError> {
    let mut line = Vec::new();
    loop {
        let there = from.fill_buf().await?;
        if there.is_empty() {
            return if line.is_empty() {
                Ok(None)
            } else {
                Err(LineError::Cut)
            };
        }
        let end = there.iter().position(|byte| *byte == b'\n');
        let part = there.get(..end.unwrap_or(there.len())).unwrap_or_default();
        if line.len() + part.len() > limit {
            return Err(LineError::TooLong(limit));
        }
        line.extend_from_slice(part);
        let used = part.len() + usize::from(end.is_some());
        from.consume(used);
        if end.is_some() {
            return Ok(Some(line));
        }
    }
}

pub(crate) fn parse<T: DeserializeOwned>(line: &[u8]) -> Result<T, LineError> {
    serde_json::from_slice(line).map_err(LineError::NotJson)
}

pub(crate) async fn write(
    to: &mut (impl AsyncWrite + Unpin),
    message: &impl Serialize,
) -> io::Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    to.write_all(&line).await
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tokio::io::BufReader;

    use super::*;

    async fn all(bytes: &[u8], buffer: usize) -> Vec<Result<Vec<u8>, String>> {
        let mut from = BufReader::with_capacity(buffer, bytes);
        let mut lines = Vec::new();
        loop {
            match read(&mut from, 8).await {
                Ok(Some(line)) => lines.push(Ok(line)),
                Ok(None) => return lines,
                Err(error) => {
                    lines.push(Err(error.to_string()));
                    return lines;
                }
            }
        }
    }

    #[tokio::test]
    async fn lines_come_whole_however_they_arrive() {
        for buffer in 1..20 {
            assert_eq!(
                all(b"one\n\n12345678\n", buffer).await,
                [
                    Ok(b"one".to_vec()),
                    Ok(Vec::new()),
                    Ok(b"12345678".to_vec())
                ]
            );
        }
    }

    #[tokio::test]
    async fn a_line_without_end_costs_no_more_than_the_limit() {
        let long = vec![b'x'; 1 << 20];
        assert_eq!(
            all(&long, 5).await,
            [Err("a line of more than 8 bytes".to_owned())]
        );
        assert_eq!(all(b"123456789\n", 64).await.len(), 1);
        assert!(all(b"123456789\n", 64).await[0].is_err());
    }

    #[tokio::test]
    async fn a_line_that_was_cut_is_no_line() {
        assert!(all(b"stop", 64).await[0].is_err());
    }

    proptest! {
        #[test]
        fn any_bytes_end(bytes: Vec<u8>, buffer in 1usize..16) {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            let lines = runtime.block_on(all(&bytes, buffer));
            prop_assert!(lines.len() <= bytes.len() + 1);
        }
    }
}
