//! One connection to beanstalkd: a command, an answer.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;

use crate::broker::BrokerError;

/// A line of an answer is a word and a few numbers.
const LONGEST_LINE: u64 = 512;
/// Any job that may be pushed is shorter, with its headers.
const LONGEST_BODY: usize = 64 << 20;

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

pub(super) struct Connection {
    stream: BufReader<Box<dyn Stream>>,
    /// An answer may take so long.
    patience: Duration,
    /// A command was begun. Who gives up before its answer leaves the connection of no use.
    is_busy: bool,
}

/// The words of a line.
pub(super) struct Answer(Vec<String>);

impl Answer {
    pub(super) fn word(&self) -> &str {
        self.0.first().map(String::as_str).unwrap_or_default()
    }

    pub(super) fn number(&self, at: usize) -> Result<u64, BrokerError> {
        let number = self.0.get(at).and_then(|word| word.parse().ok());
        number.ok_or_else(|| self.unexpected())
    }

    /// A connection with such an answer is of no use.
    pub(super) fn unexpected(&self) -> BrokerError {
        BrokerError::Lost(format!("it answered `{}`", self.0.join(" ")))
    }
}

impl Connection {
    pub(super) async fn open(place: &ServerPlace, patience: Duration) -> Result<Self, BrokerError> {
        let stream = timeout(patience, place.connect());
        let stream = stream.await.map_err(|_| late())??;
        let stream = BufReader::new(stream);
        Ok(Self {
            stream,
            patience,
            is_busy: false,
        })
    }

    /// A command, with a job that goes with it.
    pub(super) async fn ask(
        &mut self,
        command: &str,
        body: Option<&[u8]>,
    ) -> Result<Answer, BrokerError> {
        self.ask_for(Duration::ZERO, command, body).await
    }

    /// One that takes so long when nothing happens.
    pub(super) async fn ask_for(
        &mut self,
        wait: Duration,
        command: &str,
        body: Option<&[u8]>,
    ) -> Result<Answer, BrokerError> {
        if std::mem::replace(&mut self.is_busy, true) {
            return Err(BrokerError::Lost("a command was cut off".to_owned()));
        }
        let patience = self.patience + wait;
        let answer = timeout(patience, self.exchange(command, body)).await;
        let answer = answer.map_err(|_| late())??;
        self.is_busy = false;
        Ok(answer)
    }

    async fn exchange(&mut self, command: &str, body: Option<&[u8]>) -> io::Result<Answer> {
        let mut text = Vec::with_capacity(command.len() + 4 + body.map_or(0, <[u8]>::len));
        text.extend_from_slice(command.as_bytes());
        text.extend_from_slice(b"\r\n");
        if let Some(body) = body {
            text.extend_from_slice(body);
            text.extend_from_slice(b"\r\n");
        }
        self.stream.write_all(&text).await?;
        let mut line = Vec::new();
        let mut limited = (&mut self.stream).take(LONGEST_LINE);
        limited.read_until(b'\n', &mut line).await?;
        let Some(line) = line.strip_suffix(b"\r\n") else {
            return Err(io::ErrorKind::UnexpectedEof.into());
        };
        let line = String::from_utf8_lossy(line);
        Ok(Answer(line.split(' ').map(ToOwned::to_owned).collect()))
    }

    /// The bytes behind an answer that has said their length.
    pub(super) async fn body(&mut self, length: u64) -> Result<Vec<u8>, BrokerError> {
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        if length > LONGEST_BODY {
            return Err(BrokerError::Lost(format!(
                "it sent {length} bytes; at most {LONGEST_BODY} are read"
            )));
        }
        self.is_busy = true;
        let mut body = vec![0; length + 2];
        let read = timeout(self.patience, self.stream.read_exact(&mut body));
        read.await.map_err(|_| late())??;
        self.is_busy = false;
        body.truncate(length);
        Ok(body)
    }
}

/// The place where it listens.
#[derive(Clone, Debug)]
pub(super) enum ServerPlace {
    Tcp(String),
    Unix(String),
}

impl ServerPlace {
    async fn connect(&self) -> io::Result<Box<dyn Stream>> {
        Ok(match self {
            Self::Tcp(address) => {
                let stream = TcpStream::connect(address).await?;
                stream.set_nodelay(true)?;
                Box::new(stream)
            }
            Self::Unix(path) => Box::new(UnixStream::connect(path).await?),
        })
    }
}

fn late() -> BrokerError {
    BrokerError::Lost("it did not answer in time".to_owned())
}

impl From<io::Error> for BrokerError {
    fn from(error: io::Error) -> Self {
        Self::Lost(error.to_string())
    }
}
