use pronghorn_config::Endpoint;
use pronghorn_rpc::Listener;
use pronghorn_testkit::Directory;
use pronghorn_wire::frame::{Flags, Header, Options, Stream};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};

pub(crate) fn socket(directory: &Directory) -> Endpoint {
    Endpoint::Unix(directory.join("rpc.sock"))
}

pub(crate) fn tcp(host: Option<&str>, port: u16) -> Endpoint {
    Endpoint::Tcp(pronghorn_config::Address {
        host: host.map(ToOwned::to_owned),
        port,
    })
}

pub(crate) fn loopback() -> Listener {
    Listener::bind(&tcp(Some("127.0.0.1"), 0), &[]).unwrap()
}

pub(crate) trait Both: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Both for T {}

/// A caller that has one call at a time.
pub(crate) struct Caller(pub(crate) Box<dyn Both>);

impl Caller {
    pub(crate) async fn connect(endpoint: &Endpoint) -> Self {
        match endpoint {
            Endpoint::Tcp(address) => {
                let host = address.host.as_deref().unwrap_or("127.0.0.1");
                Self(Box::new(
                    TcpStream::connect((host, address.port)).await.unwrap(),
                ))
            }
            Endpoint::Unix(path) => Self(Box::new(UnixStream::connect(path).await.unwrap())),
        }
    }

    pub(crate) async fn send(&mut self, flags: Flags, method: &str, argument: &str) {
        let mut frame = Vec::new();
        Header {
            flags,
            stream: Stream::END,
            options: Options::new(&[1, u32::try_from(method.len()).unwrap()]),
            payload: u32::try_from(method.len() + argument.len()).unwrap(),
        }
        .encode(&mut frame);
        frame.extend_from_slice(method.as_bytes());
        frame.extend_from_slice(argument.as_bytes());
        self.0.write_all(&frame).await.unwrap();
    }

    /// The reply's text without the method's name, or `None` at the connection's end.
    pub(crate) async fn reply(&mut self) -> Option<String> {
        let mut header = [0; 20];
        if let Err(error) = self.0.read_exact(&mut header).await {
            assert_eq!(error.kind(), std::io::ErrorKind::UnexpectedEof);
            return None;
        }
        let header = Header::decode(&header, 1 << 20).unwrap().unwrap();
        let mut payload = vec![0; header.payload as usize];
        self.0.read_exact(&mut payload).await.unwrap();
        let result = payload.split_off(header.options.as_slice()[1] as usize);
        Some(String::from_utf8(result).unwrap())
    }

    pub(crate) async fn call(&mut self, method: &str, argument: &str) -> String {
        self.send(Flags::JSON, method, argument).await;
        self.reply().await.expect("a reply")
    }
}
