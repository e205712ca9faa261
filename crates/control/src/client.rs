//! The command's end.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use thiserror::Error;
use tokio::io::BufReader;
use tokio::net::UnixStream;
use tokio::time::timeout;

use crate::lines::{self, LineError};
use crate::message::{Ask, PROTOCOL, Question, Tell};
use crate::trusted::Trusted;

/// The longest line: the result of a call, of which RPC holds as much.
const LINE: usize = 16 << 20;
/// A server that says nothing for so long is dead: a busy one says so every second.
const SILENCE: Duration = Duration::from_secs(10);

/// A connection to a server.
#[derive(Debug)]
pub struct Client {
    stream: BufReader<UnixStream>,
    path: PathBuf,
    pid: Option<u32>,
}

/// Why a server did not answer.
#[derive(Debug, Error)]
pub enum ClientError {
    /// Nobody listens there, or there is no such file.
    #[error("no server listens on {}", .0.display())]
    Nobody(PathBuf),
    /// It belongs to another user.
    #[error("{} may not be used by this user\nhint: run the command as the server's user, or as root", .0.display())]
    NoRight(PathBuf),
    /// Somebody has put up a socket of that name who is not [`Trusted`].
    #[error("the server on {} belongs to user {uid}, whom this command does not trust, so it was not asked\nhint: if it is the right one, run the command as that user: `sudo -u '#{uid}' …`", .path.display())]
    Foreign { path: PathBuf, uid: u32 },
    /// The server's: it said why.
    #[error("{0}")]
    Refused(String),
    /// It listens and does not answer.
    #[error("the server{} does not answer\nhint: its log may say more; `kill -KILL` with its pid ends it", pid(*.0))]
    Silent(Option<u32>),
    /// It ended or closed the connection.
    #[error("the server{} ended the connection", pid(*.0))]
    Left(Option<u32>),
    /// Not a server of ours, or one of another time.
    #[error("what the server says can't be understood: {0}")]
    Strange(String),
    #[error("{}: {cause}", .path.display())]
    Io { path: PathBuf, cause: io::Error },
}

fn pid(pid: Option<u32>) -> String {
    pid.map_or_else(String::new, |pid| format!(" (pid {pid})"))
}

impl Client {
    /// Connects to the server that listens on `path`, if it is a trusted user's.
    pub async fn connect(path: &Path, trusted: Trusted) -> Result<Self, ClientError> {
        let connecting = timeout(SILENCE, UnixStream::connect(path)).await;
        let stream = match connecting {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => return Err(sorted(path, error)),
            Err(_) => return Err(ClientError::Silent(None)),
        };
        let peer = stream.peer_cred().map_err(|error| sorted(path, error))?;
        if !trusted.has_at(peer.uid(), path) {
            return Err(ClientError::Foreign {
                path: path.to_owned(),
                uid: peer.uid(),
            });
        }
        Ok(Self {
            stream: BufReader::new(stream),
            path: path.to_owned(),
            pid: peer.pid().and_then(|pid| u32::try_from(pid).ok()),
        })
    }

    /// The server's process, unless it is in another container.
    pub fn pid(&self) -> Option<u32> {
        self.pid
    }

    /// Where it listens.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Asks; the answer has to be read to its end before the next question.
    pub async fn ask(&mut self, ask: Ask) -> Result<Answers<'_>, ClientError> {
        let question = Question {
            pronghorn: PROTOCOL,
            ask,
        };
        match timeout(SILENCE, lines::write(self.stream.get_mut(), &question)).await {
            // It may have said why before it closed.
            Ok(Ok(()) | Err(_)) => Ok(Answers { client: self }),
            Err(_) => Err(ClientError::Silent(self.pid)),
        }
    }

    /// Asks what has one line for an answer.
    pub async fn ask_once(&mut self, ask: Ask) -> Result<Tell, ClientError> {
        let mut answers = self.ask(ask).await?;
        let mut only = None;
        while let Some(line) = answers.next().await? {
            only = Some(line);
        }
        only.ok_or_else(|| ClientError::Strange("an answer without content".to_owned()))
    }

    /// Waits until the server has ended, or at least closed the connection.
    pub async fn ended(mut self) {
        while let Ok(Some(_)) = lines::read(&mut self.stream, LINE).await {}
    }
}

/// The lines of an answer.
#[derive(Debug)]
pub struct Answers<'a> {
    client: &'a mut Client,
}

impl Answers<'_> {
    /// The next line with content; none at the end.
    pub async fn next(&mut self) -> Result<Option<Tell>, ClientError> {
        loop {
            let pid = self.client.pid;
            let line = match timeout(SILENCE, lines::read(&mut self.client.stream, LINE)).await {
                Ok(Ok(Some(line))) => line,
                Ok(Ok(None) | Err(LineError::Io(_) | LineError::Cut)) => {
                    return Err(ClientError::Left(pid));
                }
                Ok(Err(error)) => return Err(ClientError::Strange(error.to_string())),
                Err(_) => return Err(ClientError::Silent(pid)),
            };
            let told = lines::parse(&line);
            return match told.map_err(|error| ClientError::Strange(error.to_string()))? {
                Tell::Working => continue,
                Tell::Done => Ok(None),
                Tell::Refused { why } => Err(ClientError::Refused(why)),
                content => Ok(Some(content)),
            };
        }
    }
}

fn sorted(path: &Path, error: io::Error) -> ClientError {
    match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
            ClientError::Nobody(path.to_owned())
        }
        // The queue of those who connect is full: nobody takes them.
        io::ErrorKind::WouldBlock => ClientError::Silent(None),
        io::ErrorKind::PermissionDenied => ClientError::NoRight(path.to_owned()),
        _ => ClientError::Io {
            path: path.to_owned(),
            cause: error,
        },
    }
}
