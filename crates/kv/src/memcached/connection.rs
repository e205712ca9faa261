//! One connection to a memcached: its meta commands, and what it answers.

use std::io;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};

use crate::driver::Room;
use crate::memcached::address::MemcachedAddress;

/// It answers with less, beside values.
const LONGEST_LINE: usize = 4096;
/// memcached itself takes a megabyte unless it is told otherwise.
const LONGEST_VALUE: usize = 64 << 20;
const CHUNK: usize = 16 << 10;

/// What a command is answered with.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Reply {
    /// With its flags.
    Done(String),
    Value(Bytes),
    /// It is not there.
    Missing,
}

/// Why there is no answer. The connection is of no use then.
#[derive(Debug)]
pub(super) enum Failure {
    Lost(io::Error),
    /// Its words.
    Refused(String),
    /// There is no room for what it answers.
    TooLong,
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Lost(error)
    }
}

trait Socket: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Socket for T {}

pub(super) struct Connection {
    socket: Box<dyn Socket>,
    read: BytesMut,
}

impl Connection {
    pub(super) async fn open(address: &MemcachedAddress) -> io::Result<Self> {
        let socket: Box<dyn Socket> = match address {
            MemcachedAddress::Unix(path) => Box::new(UnixStream::connect(path).await?),
            MemcachedAddress::Tcp(place) => {
                let socket = TcpStream::connect(place).await?;
                socket.set_nodelay(true)?;
                Box::new(socket)
            }
        };
        Ok(Self {
            socket,
            read: BytesMut::new(),
        })
    }

    /// Sends commands, and reads an answer for each. The commands have to fit into the socket's
    /// memory while nobody reads the answers, or the answers have to.
    pub(super) async fn ask(
        &mut self,
        commands: &[u8],
        count: usize,
        room: &Room,
    ) -> Result<Vec<Reply>, Failure> {
        self.socket.write_all(commands).await?;
        let mut replies = Vec::with_capacity(count);
        while replies.len() < count {
            replies.push(self.reply(room).await?);
        }
        Ok(replies)
    }

    async fn reply(&mut self, room: &Room) -> Result<Reply, Failure> {
        let line = self.line().await?;
        let (word, rest) = line.split_once(' ').unwrap_or((&line, ""));
        match word {
            "HD" | "OK" => Ok(Reply::Done(rest.to_owned())),
            "EN" | "NF" => Ok(Reply::Missing),
            "VA" => {
                let length = rest.split(' ').next().and_then(|text| text.parse().ok());
                let length = length.filter(|length| *length <= LONGEST_VALUE);
                let length = length.ok_or_else(|| unknown(&line))?;
                room.take(length).map_err(|_| Failure::TooLong)?;
                let mut value = self.bytes(length + 2).await?;
                if !value.ends_with(b"\r\n") {
                    return Err(unknown(&line));
                }
                value.truncate(length);
                Ok(Reply::Value(value))
            }
            "VERSION" => Ok(Reply::Done(rest.to_owned())),
            "ERROR" => Err(Failure::Refused(
                "it knows no meta commands: memcached 1.6 or newer is needed".to_owned(),
            )),
            "CLIENT_ERROR" | "SERVER_ERROR" | "NS" => Err(Failure::Refused(line.clone())),
            _ => Err(unknown(&line)),
        }
    }

    async fn line(&mut self) -> Result<String, Failure> {
        loop {
            if let Some(end) = self.read.windows(2).position(|it| it == b"\r\n") {
                let line = self.read.split_to(end + 2);
                let line = String::from_utf8_lossy(&line[..end]);
                return Ok(line.into_owned());
            }
            if self.read.len() > LONGEST_LINE {
                return Err(unknown("a line without an end"));
            }
            self.more(CHUNK).await?;
        }
    }

    async fn bytes(&mut self, length: usize) -> Result<Bytes, Failure> {
        while self.read.len() < length {
            let missing = length - self.read.len();
            self.more(missing.min(CHUNK * 16)).await?;
        }
        Ok(self.read.split_to(length).freeze())
    }

    async fn more(&mut self, room: usize) -> Result<(), Failure> {
        self.read.reserve(room);
        if self.socket.read_buf(&mut self.read).await? == 0 {
            return Err(Failure::Lost(io::ErrorKind::UnexpectedEof.into()));
        }
        Ok(())
    }
}

fn unknown(what: &str) -> Failure {
    let start: String = what.chars().take(100).collect();
    let why = format!(
        "what answers is no memcached: it says `{}`",
        start.escape_debug()
    );
    Failure::Lost(io::Error::new(io::ErrorKind::InvalidData, why))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The replies to `count` commands of a peer that answers so.
    async fn replies(answer: &[u8], count: usize) -> Result<Vec<Reply>, String> {
        replies_within(LONGEST_VALUE, answer, count).await
    }

    async fn replies_within(
        room: usize,
        answer: &[u8],
        count: usize,
    ) -> Result<Vec<Reply>, String> {
        let (ours, mut theirs) = tokio::io::duplex(1 << 20);
        theirs.write_all(answer).await.expect("there is room");
        theirs.shutdown().await.expect("it is open");
        let mut connection = Connection {
            socket: Box::new(ours),
            read: BytesMut::new(),
        };
        connection
            .ask(b"", count, &Room::of(room))
            .await
            .map_err(|failure| match failure {
                Failure::Lost(error) => error.to_string(),
                Failure::Refused(why) => why,
                Failure::TooLong => "too long".to_owned(),
            })
    }

    #[tokio::test]
    async fn answers_are_read_one_by_one() {
        let answer = b"HD t60\r\nEN\r\nVA 4\r\na\r\nb\r\nVA 0 s1\r\n\r\nNF\r\n";
        let done = |text: &str| Reply::Done(text.to_owned());
        let value = |bytes: &'static [u8]| Reply::Value(Bytes::from_static(bytes));
        let expected = vec![
            done("t60"),
            Reply::Missing,
            value(b"a\r\nb"),
            value(b""),
            Reply::Missing,
        ];
        assert_eq!(replies(answer, 5).await, Ok(expected));
    }

    #[tokio::test]
    async fn the_values_of_a_call_fit_into_one_answer() {
        let answer = b"VA 4\r\nabcd\r\nEN\r\nVA 4\r\nabcd\r\n";
        assert_eq!(replies_within(8, answer, 3).await.map(|it| it.len()), Ok(3));
        let told = replies_within(7, answer, 3).await.expect_err("it fails");
        assert_eq!(told, "too long");
    }

    #[tokio::test]
    async fn a_peer_that_is_none_is_given_up() {
        for (answer, said) in [
            (&b"ERROR\r\n"[..], "memcached 1.6 or newer"),
            (b"SERVER_ERROR out of memory\r\n", "out of memory"),
            (b"HTTP/1.1 400 Bad Request\r\n", "is no memcached"),
            (b"VA x\r\n", "is no memcached"),
            (b"VA 99999999999999999999\r\n", "is no memcached"),
            (b"VA 99999999\r\n", "is no memcached"),
            (b"VA 1\r\nabc\r\n", "is no memcached"),
            (b"VA 10\r\nabc", "unexpected end of file"),
            (b"", "unexpected end of file"),
            (&[b'x'; LONGEST_LINE + 2], "is no memcached"),
        ] {
            let told = replies(answer, 1).await.expect_err("it fails");
            assert!(told.contains(said), "{told}");
        }
    }
}
