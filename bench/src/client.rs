//! A small HTTP client: looks at one answer, and holds connections open.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use thiserror::Error;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::rows::BODY;

/// For one answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// More is not what was asked for.
const LONGEST_ANSWER: usize = 16 << 10;

/// Why an answer is not the expected one.
#[derive(Debug, Error)]
pub(crate) enum CheckError {
    #[error("did not answer: {0}")]
    Io(#[from] io::Error),
    #[error("did not answer within {PATIENCE:?}")]
    Slow,
    #[error("answered something else: {0:?}")]
    Wrong(String),
}

/// Makes sure that a server answers with status 200 and the body that all rows have.
pub(crate) async fn check(address: SocketAddr) -> Result<(), CheckError> {
    let answer = timeout(PATIENCE, async {
        let mut stream = TcpStream::connect(address).await?;
        stream.write_all(&request("close")).await?;
        let mut answer = Vec::new();
        let mut limited = stream.take(LONGEST_ANSWER as u64);
        limited.read_to_end(&mut answer).await?;
        io::Result::Ok(answer)
    });
    let answer = answer.await.map_err(|_| CheckError::Slow)??;
    let answer = String::from_utf8_lossy(&answer);
    if is_expected(&answer) {
        Ok(())
    } else {
        Err(CheckError::Wrong(answer.into_owned()))
    }
}

/// A connection over which one request was answered, and that stays open.
pub(crate) async fn idle_connection(address: SocketAddr) -> Result<TcpStream, CheckError> {
    let opened = timeout(PATIENCE, async {
        let mut stream = TcpStream::connect(address).await?;
        stream.write_all(&request("keep-alive")).await?;
        let mut answer = Vec::new();
        while !is_expected(&String::from_utf8_lossy(&answer)) {
            if stream.read_buf(&mut answer).await? == 0 || answer.len() > LONGEST_ANSWER {
                return Err(CheckError::Wrong(
                    String::from_utf8_lossy(&answer).into_owned(),
                ));
            }
        }
        Ok(stream)
    });
    opened.await.map_err(|_| CheckError::Slow)?
}

fn request(connection: &str) -> Vec<u8> {
    format!("GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: {connection}\r\n\r\n").into_bytes()
}

fn is_expected(answer: &str) -> bool {
    let Some((head, body)) = answer.split_once("\r\n\r\n") else {
        return false;
    };
    let head = head.to_ascii_lowercase();
    let body = if head.contains("\r\ntransfer-encoding: chunked") {
        unchunked(body)
    } else {
        Some(body.to_owned())
    };
    head.starts_with("http/1.1 200 ") && body.as_deref() == Some(BODY)
}

/// `None` when it is not whole.
fn unchunked(mut chunks: &str) -> Option<String> {
    let mut body = String::new();
    loop {
        let (size, rest) = chunks.split_once("\r\n")?;
        let size = usize::from_str_radix(size, 16).ok()?;
        if size == 0 {
            return Some(body);
        }
        body.push_str(rest.get(..size)?);
        chunks = rest.get(size..)?.strip_prefix("\r\n")?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_counts_with_its_status_and_its_whole_body() {
        for (answer, expected) in [
            (
                "HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\nHello World!",
                true,
            ),
            (
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nHello\r\n7\r\n World!\r\n0\r\n\r\n",
                true,
            ),
            (
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nHello\r\n7\r\n World!\r\n",
                false,
            ),
            (
                "HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\nHello Worl",
                false,
            ),
            (
                "HTTP/1.1 200 OK\r\nContent-Length: 13\r\n\r\nHello World!\n",
                false,
            ),
            (
                "HTTP/1.1 502 Bad Gateway\r\nContent-Length: 12\r\n\r\nHello World!",
                false,
            ),
            ("", false),
        ] {
            assert_eq!(is_expected(answer), expected, "{answer:?}");
        }
    }
}
