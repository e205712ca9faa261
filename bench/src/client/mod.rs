//! A small client: reads whole answers, in HTTP/1.1 as often as a connection allows.

mod channel;
mod http2;

use std::any::Any;
use std::future::ready;
use std::io::{self, Read};
use std::net::SocketAddr;
use std::time::Duration;

use flate2::bufread::GzDecoder;
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::timeout;

use crate::scenario::{Protocol, Scenario};
use channel::Channel;

/// For one answer.
const PATIENCE: Duration = Duration::from_secs(10);
const LONGEST_HEAD: usize = 64 << 10;
const MOST_FIELDS: usize = 100;
/// Above the longest answer of the scenarios, 100 MB.
const LONGEST_BODY: usize = 256 << 20;

/// Why there is no answer, or not the expected one.
#[derive(Debug, Error)]
pub(crate) enum CheckError {
    #[error("did not answer: {0}")]
    Io(#[from] io::Error),
    #[error("did not answer within {PATIENCE:?}")]
    Slow,
    #[error("does not answer in HTTP: {0}")]
    NoHttp(&'static str),
    #[error("does not answer in HTTP/2: {0}")]
    NoHttp2(#[from] h2::Error),
    #[error("answered wrongly: {why}")]
    Wrong { status: u16, why: String },
}

/// One answer, read to its end.
#[derive(Debug, PartialEq)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// As the coding left it.
    pub(crate) body: Vec<u8>,
    /// It came compressed.
    pub(crate) gzip: bool,
    /// Bytes on the wire: in HTTP/1.1 with head and framing, in HTTP/2 without.
    pub(crate) size: usize,
    /// Another request may follow on the connection.
    pub(crate) keep: bool,
    /// The end of the connection is the end of the body: nothing else tells it.
    pub(crate) unframed: bool,
}

/// Asks once and makes sure that the answer is as the scenario says.
pub(crate) async fn check(address: SocketAddr, scenario: &Scenario) -> Result<Answer, CheckError> {
    let (answer, _) = ask_once(address, scenario).await?;
    Ok(answer)
}

/// A connection over which one request was answered, and that stays open as long as this is held.
pub(crate) async fn idle_connection(
    address: SocketAddr,
    scenario: &Scenario,
) -> Result<Box<dyn Any>, CheckError> {
    let (_, connection) = ask_once(address, scenario).await?;
    Ok(connection)
}

async fn ask_once(
    address: SocketAddr,
    scenario: &Scenario,
) -> Result<(Answer, Box<dyn Any>), CheckError> {
    let asked = timeout(PATIENCE, async {
        if scenario.protocol.is_http2() {
            let channel = channel::open(address, scenario.protocol).await?;
            let connection = http2::Connection::over(channel).await?;
            let answer = connection.ask(scenario).await?;
            return Ok::<_, CheckError>((answer, Box::new(connection) as Box<dyn Any>));
        }
        let mut connection = Connection::open(address, scenario.protocol).await?;
        let answer = connection.ask(&scenario.request()).await?;
        Ok((answer, Box::new(connection)))
    });
    let (answer, connection) = asked.await.map_err(|_| CheckError::Slow)??;
    answer.judge(scenario)?;
    Ok((answer, connection))
}

impl Answer {
    /// Makes sure that it is as the scenario says.
    pub(crate) fn judge(&self, scenario: &Scenario) -> Result<(), CheckError> {
        let mut plain = Vec::new();
        let body = if self.gzip {
            // What is longer than the most is not the expected one either.
            let mut decoder = GzDecoder::new(&self.body[..]).take(LONGEST_BODY as u64);
            let decoded = decoder.read_to_end(&mut plain);
            decoded.map_err(|_| CheckError::NoHttp("its body is not in gzip"))?;
            &plain
        } else {
            &self.body
        };
        let right = scenario.expected.check(self.status, self.gzip, body);
        let status = self.status;
        right.map_err(|why| CheckError::Wrong { status, why })
    }
}

/// A kept connection.
pub(crate) struct Connection<S = Channel> {
    stream: S,
    /// Read, and not yet part of an answer.
    buffer: Vec<u8>,
}

impl Connection {
    pub(crate) async fn open(address: SocketAddr, protocol: Protocol) -> Result<Self, CheckError> {
        Ok(Self::of(channel::open(address, protocol).await?))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    pub(crate) const fn of(stream: S) -> Self {
        Self {
            stream,
            buffer: Vec::new(),
        }
    }

    /// False when the server has closed it, or said something unasked.
    pub(crate) async fn is_open(&mut self) -> bool {
        tokio::select! {
            biased;
            _ = self.more() => false,
            () = ready(()) => true,
        }
    }

    /// Sends a request and reads its answer. Without a deadline of its own; given up, the
    /// connection is of no more use.
    pub(crate) async fn ask(&mut self, request: &[u8]) -> Result<Answer, CheckError> {
        self.stream.write_all(request).await?;
        loop {
            let head = self.head().await?;
            let start = head.size;
            if (100..200).contains(&head.status) {
                self.buffer.drain(..start);
                continue;
            }
            let (body, end) = match head.framing {
                Framing::None => (Vec::new(), start),
                Framing::Length(length) => {
                    self.fill(start + length).await?;
                    (self.buffer[start..start + length].to_vec(), start + length)
                }
                Framing::Chunked => self.chunks(start).await?,
                Framing::Close => {
                    while self.more().await? {}
                    (self.buffer[start..].to_vec(), self.buffer.len())
                }
            };
            self.buffer.drain(..end);
            return Ok(Answer {
                status: head.status,
                body,
                gzip: head.gzip,
                size: end,
                keep: head.keep,
                unframed: head.framing == Framing::Close,
            });
        }
    }

    async fn head(&mut self) -> Result<Head, CheckError> {
        loop {
            if let Some(head) = Head::parse(&self.buffer)? {
                return Ok(head);
            }
            if self.buffer.len() > LONGEST_HEAD {
                return Err(CheckError::NoHttp("its head has no end"));
            }
            self.fill(self.buffer.len() + 1).await?;
        }
    }

    /// The body, and where the chunks end.
    async fn chunks(&mut self, mut at: usize) -> Result<(Vec<u8>, usize), CheckError> {
        let mut body = Vec::new();
        loop {
            let (digits, next) = self.line(at).await?;
            let digits = digits.split(';').next().unwrap_or_default().trim();
            let size = usize::from_str_radix(digits, 16)
                .ok()
                .filter(|size| size + body.len() <= LONGEST_BODY)
                .ok_or(CheckError::NoHttp("a chunk of no or too great a size"))?;
            at = next;
            if size == 0 {
                break;
            }
            self.fill(at + size + 2).await?;
            body.extend_from_slice(&self.buffer[at..at + size]);
            at += size + 2;
        }
        // Trailers, up to an empty line.
        loop {
            let (line, next) = self.line(at).await?;
            at = next;
            if line.is_empty() {
                return Ok((body, at));
            }
        }
    }

    /// The line that begins at a place, and where the next one does.
    async fn line(&mut self, at: usize) -> Result<(String, usize), CheckError> {
        loop {
            let rest = &self.buffer[at..];
            if let Some(length) = rest.windows(2).position(|pair| pair == b"\r\n") {
                let line = String::from_utf8_lossy(&rest[..length]).into_owned();
                return Ok((line, at + length + 2));
            }
            if rest.len() > LONGEST_HEAD {
                return Err(CheckError::NoHttp("a line between chunks has no end"));
            }
            self.fill(self.buffer.len() + 1).await?;
        }
    }

    /// Reads until the buffer holds so many bytes.
    async fn fill(&mut self, bytes: usize) -> Result<(), CheckError> {
        while self.buffer.len() < bytes {
            if !self.more().await? {
                return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
            }
        }
        Ok(())
    }

    /// False at the end.
    async fn more(&mut self) -> Result<bool, CheckError> {
        if self.buffer.len() > LONGEST_BODY + LONGEST_HEAD {
            return Err(CheckError::NoHttp("its body has no end"));
        }
        self.buffer.reserve(16 << 10);
        Ok(self.stream.read_buf(&mut self.buffer).await? > 0)
    }
}

#[derive(Debug, PartialEq)]
struct Head {
    status: u16,
    framing: Framing,
    keep: bool,
    gzip: bool,
    size: usize,
}

/// Where the body ends.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Framing {
    None,
    Length(usize),
    Chunked,
    /// With the connection.
    Close,
}

impl Head {
    /// `None` when it is not whole.
    fn parse(bytes: &[u8]) -> Result<Option<Self>, CheckError> {
        let mut fields = [httparse::EMPTY_HEADER; MOST_FIELDS];
        let mut head = httparse::Response::new(&mut fields);
        let size = match head.parse(bytes) {
            Ok(httparse::Status::Complete(size)) => size,
            Ok(httparse::Status::Partial) => return Ok(None),
            Err(_) => return Err(CheckError::NoHttp("its head makes no sense")),
        };
        let status = head.code.unwrap_or_default();
        let field = |name: &str| {
            let named = |field: &&httparse::Header<'_>| field.name.eq_ignore_ascii_case(name);
            let value = head.headers.iter().find(named)?.value;
            Some(String::from_utf8_lossy(value).to_ascii_lowercase())
        };
        let framing = if status < 200 || status == 204 || status == 304 {
            Framing::None
        } else if field("transfer-encoding").is_some() {
            Framing::Chunked
        } else if let Some(length) = field("content-length") {
            let length = length.parse().ok().filter(|length| *length <= LONGEST_BODY);
            Framing::Length(length.ok_or(CheckError::NoHttp("a length of no sense"))?)
        } else {
            Framing::Close
        };
        let connection = field("connection").unwrap_or_default();
        let kept = match head.version {
            Some(1) => !connection.contains("close"),
            _ => connection.contains("keep-alive"),
        };
        Ok(Some(Self {
            status,
            framing,
            keep: kept && framing != Framing::Close,
            gzip: field("content-encoding").is_some_and(|coding| coding == "gzip"),
            size,
        }))
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    /// What the client makes of bytes that a server sends and closes the connection behind.
    async fn answer(bytes: &'static str) -> Result<Answer, CheckError> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let serve = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = [0; 4];
            stream.read_exact(&mut request).await.unwrap();
            stream.write_all(bytes.as_bytes()).await.unwrap();
        };
        let ask = async {
            let address = listener.local_addr().unwrap();
            Connection::open(address, Protocol::Http1)
                .await?
                .ask(b"ask!")
                .await
        };
        tokio::join!(serve, ask).1
    }

    #[tokio::test]
    async fn an_answer_is_read_to_its_end_whatever_tells_it() {
        for (bytes, body, keep) in [
            (
                "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nHello",
                "Hello",
                true,
            ),
            (
                "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
                "",
                false,
            ),
            (
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nHello\r\n7;x=y\r\n World!\r\n0\r\nA: b\r\n\r\n",
                "Hello World!",
                true,
            ),
            (
                "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx",
                "x",
                true,
            ),
            ("HTTP/1.0 200 OK\r\n\r\nto the end", "to the end", false),
            ("HTTP/1.1 200 OK\r\n\r\nto the end", "to the end", false),
        ] {
            let answer = answer(bytes).await.unwrap();
            assert_eq!(String::from_utf8(answer.body).unwrap(), body, "{bytes:?}");
            assert_eq!((answer.status, answer.keep), (200, keep), "{bytes:?}");
        }
    }

    #[tokio::test]
    async fn what_is_cut_off_or_makes_no_sense_is_no_answer() {
        for (bytes, why) in [
            ("", "unexpected end"),
            ("HTTP/1.1 200 OK\r\nContent-Len", "unexpected end"),
            (
                "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nHell",
                "unexpected end",
            ),
            (
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nHello\r\n",
                "unexpected end",
            ),
            (
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfffffffff\r\n",
                "chunk",
            ),
            (
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nno\r\n",
                "chunk",
            ),
            (
                "HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n",
                "length",
            ),
            ("SSH-2.0-server\r\n", "head"),
        ] {
            let error = answer(bytes).await.unwrap_err().to_string();
            assert!(error.contains(why), "{bytes:?}: {error}");
        }
    }
}
