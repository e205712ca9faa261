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

#[cfg(test)]
mod tests {
    use std::io::Write;

    use bytes::Bytes;
    use flate2::Compression;
    use flate2::write::GzEncoder;
    use tokio::io::{DuplexStream, duplex};

    use super::*;
    use crate::scenario::{folder, select};

    /// Answers all requests of a connection with this.
    async fn serve(stream: DuplexStream, coding: &'static str, body: Vec<u8>) {
        let mut connection = h2::server::handshake(stream).await.unwrap();
        while let Some(asked) = connection.accept().await {
            let (request, mut respond) = asked.unwrap();
            assert_eq!(request.uri().path(), "/rows");
            assert_eq!(request.headers()["accept-encoding"], "gzip");
            let head = http::Response::builder().header("content-encoding", coding);
            let mut stream = respond
                .send_response(head.body(()).unwrap(), false)
                .unwrap();
            stream.send_data(Bytes::from(body.clone()), true).unwrap();
        }
    }

    async fn answer(coding: &'static str, body: Vec<u8>) -> (Answer, Result<(), CheckError>) {
        let mut scenario = select(&folder(), &["gzip-json".to_owned()])
            .unwrap()
            .remove(0);
        scenario.expected.body = crate::scenario::Body::Contains("the end".to_owned());
        let (ours, theirs) = duplex(1 << 10);
        let mut server = JoinSet::new();
        server.spawn(serve(theirs, coding, body));
        let connection = Connection::over(Box::new(ours)).await.unwrap();
        let answer = connection.ask(&scenario).await.unwrap();
        let judged = answer.judge(&scenario);
        (answer, judged)
    }

    #[tokio::test]
    async fn an_answer_is_read_to_its_end_and_judged_without_its_coding() {
        // More than a window that nobody makes room in.
        let mut text = vec![b'x'; 200_000];
        text.extend(b"the end");
        let (plain, judged) = answer("identity", text.clone()).await;
        assert_eq!((plain.status, plain.size), (200, text.len()));
        assert!(judged.unwrap_err().to_string().contains("not compressed"));
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(&text).unwrap();
        let (coded, judged) = answer("gzip", encoder.finish().unwrap()).await;
        assert!(coded.size < 10_000, "bytes on the wire count");
        judged.unwrap();
        let (_, judged) = answer("gzip", text).await;
        assert!(judged.unwrap_err().to_string().contains("not in gzip"));
    }
}
