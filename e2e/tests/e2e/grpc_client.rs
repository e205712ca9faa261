//! A client of gRPC that shows every byte of an answer.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "it is that of a test, and fails as one"
)]

use std::net::SocketAddr;

use bytes::{BufMut, Bytes, BytesMut};
use h2::client::SendRequest;
use h2::{RecvStream, SendStream};
use http::{HeaderMap, Request};
use pronghorn_testkit::PATIENCE;
use tokio::runtime::Runtime;

/// A message as it stands in a body; `flag` is 1 for a compressed one.
pub(crate) fn framed(flag: u8, message: &[u8]) -> Bytes {
    let mut framed = BytesMut::new();
    framed.put_u8(flag);
    framed.put_u32(u32::try_from(message.len()).unwrap());
    framed.put_slice(message);
    framed.freeze()
}

pub(crate) fn runtime() -> Runtime {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(1).enable_all().build().unwrap()
}

/// The answer to a call.
#[derive(Debug)]
pub(crate) struct Got {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
    pub(crate) trailers: HeaderMap,
}

impl Got {
    fn field<'a>(map: &'a HeaderMap, name: &str) -> Option<&'a str> {
        Some(map.get(name)?.to_str().unwrap())
    }

    /// The number of the status, wherever it stands.
    pub(crate) fn code(&self) -> &str {
        let behind = Self::field(&self.trailers, "grpc-status");
        let code = behind.or_else(|| Self::field(&self.headers, "grpc-status"));
        code.unwrap_or_else(|| panic!("no status: {self:?}"))
    }

    pub(crate) fn message(&self) -> &str {
        let behind = Self::field(&self.trailers, "grpc-message");
        let message = behind.or_else(|| Self::field(&self.headers, "grpc-message"));
        message.unwrap_or_default()
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        Self::field(&self.headers, name)
    }

    pub(crate) fn trailer(&self, name: &str) -> Option<&str> {
        Self::field(&self.trailers, name)
    }
}

/// A connection of a client.
pub(crate) struct Client {
    pub(crate) runtime: Runtime,
    pub(crate) send: SendRequest<Bytes>,
    authority: &'static str,
}

/// A call whose messages go one by one.
pub(crate) struct Talking {
    pub(crate) sending: SendStream<Bytes>,
    pub(crate) receiving: h2::client::ResponseFuture,
}

impl Client {
    pub(crate) fn connect(address: SocketAddr, authority: &'static str) -> Self {
        let runtime = runtime();
        let send = runtime.block_on(async {
            let socket = tokio::net::TcpStream::connect(address).await.unwrap();
            let (send, connection) = h2::client::handshake(socket).await.unwrap();
            tokio::spawn(connection);
            send
        });
        Self {
            runtime,
            send,
            authority,
        }
    }

    pub(crate) fn begin(&self, path: &str, fields: &[(&str, &str)], ends: bool) -> Talking {
        let mut request = Request::builder()
            .method("POST")
            .uri(format!("http://{}{path}", self.authority))
            .header("te", "trailers")
            .header("content-type", "application/grpc");
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        let mut send = self.send.clone();
        self.runtime.block_on(async {
            std::future::poll_fn(|cx| send.poll_ready(cx))
                .await
                .unwrap();
            let (receiving, sending) = send.send_request(request.body(()).unwrap(), ends).unwrap();
            Talking { sending, receiving }
        })
    }

    pub(crate) fn finish(&self, talking: Talking) -> Got {
        self.runtime.block_on(async {
            let whole = async {
                let response = talking.receiving.await.unwrap();
                let (parts, mut body) = response.into_parts();
                let mut all = Vec::new();
                while let Some(piece) = body.data().await {
                    let piece = piece.unwrap();
                    body.flow_control().release_capacity(piece.len()).unwrap();
                    all.extend_from_slice(&piece);
                }
                Got {
                    status: parts.status.as_u16(),
                    headers: parts.headers,
                    body: all,
                    trailers: body.trailers().await.unwrap().unwrap_or_default(),
                }
            };
            tokio::time::timeout(PATIENCE, whole)
                .await
                .expect("an answer")
        })
    }

    /// Waits for the head of an answer.
    pub(crate) fn head(&self, receiving: h2::client::ResponseFuture) -> RecvStream {
        self.runtime.block_on(async {
            let head = tokio::time::timeout(PATIENCE, receiving).await;
            head.expect("a head").unwrap().into_body()
        })
    }

    pub(crate) fn piece(&self, body: &mut RecvStream) -> Bytes {
        self.runtime.block_on(async {
            let piece = tokio::time::timeout(PATIENCE, body.data()).await;
            let piece = piece.expect("a piece").unwrap().unwrap();
            body.flow_control().release_capacity(piece.len()).unwrap();
            piece
        })
    }
}
