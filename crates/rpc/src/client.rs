//! The caller's end, for the command line: one call after the other, in JSON.

use std::io;
use std::time::Duration;

use pronghorn_config::{Address, Endpoint};
use pronghorn_wire::frame::{Flags, FrameError, Header, Options, Stream};
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;

/// A server on this machine takes connections at once or never; one elsewhere may be slow.
const CONNECTING: Duration = Duration::from_secs(5);
/// The longest result that is read. A job of 16 MB is the longest thing that is listed, in base64.
const LONGEST_RESULT: u32 = 32 << 20;
/// The longest header: thirteen words.
const LONGEST_HEADER: usize = 52;

/// A connection to an RPC server, ours or RoadRunner's.
pub struct Client {
    stream: Box<dyn Duplex>,
    calls: u32,
}

trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Duplex for T {}

/// Why a call has no result. All but [`Failed`](Self::Failed) end the connection's use.
#[derive(Debug, Error)]
pub enum CallError {
    /// Nobody listens there, or no network.
    #[error("{endpoint}: {cause}")]
    Connect {
        endpoint: Endpoint,
        cause: io::Error,
    },
    /// The server's own words.
    #[error("{0}")]
    Failed(String),
    #[error("no answer to {method} within {} s", .within.as_secs())]
    Silent { method: String, within: Duration },
    #[error("the connection broke: {0}")]
    Io(#[from] io::Error),
    /// Something else than an RPC server listens there.
    #[error("the answer is none of RPC: {0}")]
    Frame(#[from] FrameError),
    #[error("the answer is none to this call")]
    Another,
}

impl Client {
    /// Connects. A relative unix path begins in the current folder.
    pub async fn connect(endpoint: &Endpoint) -> Result<Self, CallError> {
        let connecting = async {
            Ok::<Box<dyn Duplex>, io::Error>(match endpoint {
                Endpoint::Unix(path) => Box::new(UnixStream::connect(path).await?),
                Endpoint::Tcp(Address { host, port }) => {
                    let host = host.as_deref().unwrap_or("127.0.0.1");
                    Box::new(TcpStream::connect((host, *port)).await?)
                }
            })
        };
        let too_long = || Err(io::ErrorKind::TimedOut.into());
        let connected = timeout(CONNECTING, connecting)
            .await
            .unwrap_or_else(|_| too_long());
        match connected {
            Ok(stream) => Ok(Self { stream, calls: 0 }),
            Err(cause) => Err(CallError::Connect {
                endpoint: endpoint.clone(),
                cause,
            }),
        }
    }

    /// Calls `method` with an argument in JSON; the result is JSON.
    pub async fn call(
        &mut self,
        method: &str,
        argument: &str,
        within: Duration,
    ) -> Result<Vec<u8>, CallError> {
        let called = timeout(within, self.exchange(method, argument)).await;
        called.unwrap_or_else(|_| {
            Err(CallError::Silent {
                method: method.to_owned(),
                within,
            })
        })
    }

    async fn exchange(&mut self, method: &str, argument: &str) -> Result<Vec<u8>, CallError> {
        self.calls = self.calls.wrapping_add(1);
        let length = |text: &str| u32::try_from(text.len()).unwrap_or(u32::MAX);
        let options = Options::new(&[self.calls, length(method)]);
        let header = Header {
            flags: Flags::JSON,
            stream: Stream::END,
            options,
            payload: length(method).saturating_add(length(argument)),
        };
        let mut frame = Vec::new();
        header.encode(&mut frame);
        frame.extend_from_slice(method.as_bytes());
        frame.extend_from_slice(argument.as_bytes());
        self.stream.write_all(&frame).await?;

        let reply = self.header().await?;
        let mut payload = Vec::new();
        let mut announced = (&mut self.stream).take(reply.payload.into());
        if announced.read_to_end(&mut payload).await? < reply.payload as usize {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
        if reply.options != options || !payload.starts_with(method.as_bytes()) {
            return Err(CallError::Another);
        }
        let result = payload.split_off(method.len());
        if reply.flags.has(Flags::ERROR) {
            return Err(CallError::Failed(
                String::from_utf8_lossy(&result).into_owned(),
            ));
        }
        Ok(result)
    }

    async fn header(&mut self) -> Result<Header, CallError> {
        let mut bytes = Vec::new();
        while bytes.len() < LONGEST_HEADER {
            bytes.extend_from_slice(&self.stream.read_u32_le().await?.to_le_bytes());
            if let Some(header) = Header::decode(&bytes, LONGEST_RESULT)? {
                return Ok(header);
            }
        }
        Err(CallError::Another)
    }
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client")
            .field("calls", &self.calls)
            .finish_non_exhaustive()
    }
}
