//! One request in HTTP/2.

use h2::client::{Builder, SendRequest};
use tokio::task::JoinSet;

use super::channel::Channel;
use super::{Answer, CheckError, LONGEST_BODY};
use crate::scenario::Scenario;

/// A connection, open as long as this is held.
pub(super) struct Connection {
    requests: SendRequest<&'static [u8]>,
    /// Reads and writes frames.
    _driver: JoinSet<()>,
}

impl Connection {
    pub(super) async fn over(channel: Channel) -> Result<Self, CheckError> {
        let (requests, connection) = Builder::new().handshake(channel).await?;
        let mut driver = JoinSet::new();
        // Its error is that of the request, too.
        driver.spawn(async move { _ = connection.await });
        Ok(Self {
            requests,
            _driver: driver,
        })
    }

    /// Without a deadline of its own.
    pub(super) async fn ask(&self, scenario: &Scenario) -> Result<Answer, CheckError> {
        let target = &scenario.target;
        let uri = format!("{}://127.0.0.1{target}", scenario.protocol.scheme());
        let mut request = http::Request::get(uri);
        for (name, value) in scenario.fields() {
            request = request.header(name, value);
        }
        let request = request
            .body(())
            .map_err(|_| CheckError::NoHttp("the request can't be written"))?;
        let requests = self.requests.clone();
        let (response, _) = requests.ready().await?.send_request(request, true)?;
        let (head, mut stream) = response.await?.into_parts();
        let mut body = Vec::new();
        while let Some(piece) = stream.data().await {
            let piece = piece?;
            body.extend_from_slice(&piece);
            if body.len() > LONGEST_BODY {
                return Err(CheckError::NoHttp("its body has no end"));
            }
            stream.flow_control().release_capacity(piece.len())?;
        }
        let coding = head.headers.get("content-encoding");
        Ok(Answer {
            status: head.status.as_u16(),
            size: body.len(),
            gzip: coding.is_some_and(|coding| coding == "gzip"),
            body,
            keep: true,
            unframed: false,
        })
    }
}
