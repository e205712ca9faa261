//! Requests against a service that echoes, without a connection.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use pronghorn_base::BoxFuture;
use pronghorn_h1::{Limits, Parts, RequestHead, Version};
use pronghorn_serve::{BodyError, Exchange, Peer, PeerAddress, Read, Request};
use pronghorn_wire::Fields;
use proptest::prelude::*;
use tokio::time::Instant;

use super::*;
use crate::call::{Messages, Streamed};
use crate::message::{Decoder, frame};

struct Pieces(VecDeque<Bytes>);

impl Exchange for Pieces {
    fn poll_body(&mut self, _: &mut Context<'_>) -> Poll<Result<Option<Bytes>, BodyError>> {
        Poll::Ready(Ok(self.0.pop_front()))
    }

    fn poll_gone(&mut self, _: &mut Context<'_>) -> Poll<()> {
        Poll::Pending
    }

    fn inform(&mut self, _: u16, _: &Fields) {}

    fn poll_flush(&mut self, _: &mut Context<'_>) -> Poll<()> {
        Poll::Ready(())
    }
}

struct Echo;

#[derive(Debug)]
struct Twice(Bytes, u8);

impl Streamed for Twice {
    fn poll_next(&mut self, _: &mut Context<'_>) -> Poll<Messages> {
        self.1 += 1;
        Poll::Ready(match self.1 {
            3 => Messages::End(Status::OK.into()),
            _ => Messages::Message(self.0.clone()),
        })
    }
}

impl Answers for Echo {
    fn answer<'a>(&'a self, call: Call, input: &'a mut Input<'_>) -> BoxFuture<'a, Reply> {
        Box::pin(async move {
            match &*call.method.method {
                "Hang" => std::future::pending().await,
                "Twice" => match input.only().await {
                    Ok(message) => Reply::stream(Twice(message, 0)),
                    Err(status) => Reply::ended(status),
                },
                _ => match input.only().await {
                    Ok(message) => {
                        let mut reply = Reply::message(message);
                        if let Some(value) = call.metadata.get("x-a-bin") {
                            reply.headers.push("x-a-bin", value.bytes());
                        }
                        reply
                    }
                    Err(status) => Reply::ended(status),
                },
            }
        })
    }
}

fn request(version: Version, method: &str, path: &str, fields: &[(&str, &str)]) -> Request {
    let parts = Parts {
        version,
        method,
        authority: Some(b"example.org"),
        target: path.as_bytes(),
        fields: || {
            fields
                .iter()
                .map(|(name, value)| (name.as_bytes(), value.as_bytes()))
        },
        ends: false,
    };
    let head = RequestHead::from_parts(&parts, &Limits::default()).unwrap();
    let address = PeerAddress::Ip("192.0.2.1:4711".parse().unwrap());
    let peer = std::sync::Arc::new(Peer::new(address, false, None));
    Request::new(Box::new(head), peer, Instant::now(), 0)
}

/// The status of HTTP, the fields, the body, the trailers.
type Got = (u16, Fields, Vec<u8>, Fields);

async fn ask(request: Request, body: &[&[u8]]) -> Got {
    let limits = MessageLimits {
        receive: 1000,
        send: 1000,
    };
    let cors = Cors {
        origins: vec!["https://example.org".to_owned()],
    };
    let server = Server::new(Echo, limits, Some(cors));
    let pieces = body.iter().map(|piece| Bytes::copy_from_slice(piece));
    let mut exchange = Pieces(pieces.collect());
    let response = server.handle(request, &mut exchange).await;
    let (mut all, mut trailers) = (Vec::new(), Fields::new());
    match response.body {
        Body::Made(mut made) => loop {
            match poll_fn(|cx| made.poll_next(cx)).await {
                Read::Bytes(bytes) => all.extend_from_slice(&bytes),
                Read::End => {
                    trailers = made.trailers();
                    break;
                }
                Read::Broken => panic!("it broke"),
            }
        },
        Body::Whole(bytes) => all.extend_from_slice(&bytes),
        _ => {}
    }
    (response.status, response.fields, all, trailers)
}

const GRPC: (&str, &str) = ("content-type", "application/grpc");

async fn grpc(path: &str, fields: &[(&str, &str)], body: &[&[u8]]) -> Got {
    let fields = [&[GRPC], fields].concat();
    ask(request(Version::Http2, "POST", path, &fields), body).await
}

fn status(fields: &Fields) -> &str {
    std::str::from_utf8(fields.get("grpc-status").unwrap()).unwrap()
}

#[tokio::test]
async fn a_message_comes_back_with_trailers() {
    let message = frame(false, b"hello");
    let (first, second) = message.split_at(7);
    let got = grpc("/a.B/C", &[("x-a-bin", "q6ur")], &[first, second]).await;
    assert_eq!(got.0, 200);
    assert_eq!(got.1.get("content-type"), Some(&b"application/grpc"[..]));
    assert_eq!(got.1.get("x-a-bin"), Some(&b"q6ur"[..]));
    assert_eq!(got.2, message);
    assert_eq!(status(&got.3), "0");
}

#[tokio::test]
async fn what_is_no_call_gets_a_status_of_http() {
    let ask = |version, method, content| async move {
        let request = request(version, method, "/a.B/C", &[("content-type", content)]);
        ask(request, &[]).await.0
    };
    assert_eq!(ask(Version::Http2, "POST", "application/json").await, 415);
    assert_eq!(ask(Version::Http2, "GET", "application/grpc").await, 405);
    assert_eq!(ask(Version::Http11, "POST", "application/grpc").await, 505);
}

/// A path, more fields, the pieces of a body, the status.
type Case<'a> = (&'a str, &'a [(&'a str, &'a str)], &'a [&'a [u8]], &'a str);

#[tokio::test]
async fn what_is_wrong_with_a_call_is_a_status() {
    let message = &frame(false, b"hello")[..];
    let cases: [Case<'_>; 9] = [
        ("/a.B", &[], &[message], "12"),
        ("/a.B/C", &[("grpc-encoding", "snappy")], &[message], "12"),
        ("/a.B/C", &[("grpc-timeout", "soon")], &[message], "13"),
        ("/a.B/C", &[], &[], "13"),
        ("/a.B/C", &[], &[message, message], "13"),
        ("/a.B/C", &[], &[&message[..6]], "13"),
        ("/a.B/C", &[], &[&[1, 0, 0, 0, 1, 0]], "13"),
        ("/a.B/C", &[], &[&[0, 0x40, 0, 0, 0]], "8"),
        ("/a.B/C", &[], &[&[9, 0, 0, 0, 0]], "13"),
    ];
    for (path, fields, body, expected) in cases {
        let got = grpc(path, fields, body).await;
        assert_eq!(
            (got.0, status(&got.1)),
            (200, expected),
            "{path} {fields:?} {body:?}"
        );
    }
}

#[test]
fn a_head_that_is_refused_is_a_status_for_calls() {
    let server = Server::new(Echo, MessageLimits::default(), None);
    let refused = |content: &[u8], refusal| server.refused(Some(content), refusal);
    for (refusal, code) in [
        (Refusal::TooManyFields(5), "8"),
        (Refusal::HeadTooLong(5), "8"),
        (Refusal::Syntax("a field's value"), "13"),
    ] {
        let response = refused(b"application/grpc+proto", refusal).unwrap();
        assert_eq!((response.status, status(&response.fields)), (200, code));
        assert!(response.fields.get("grpc-message").is_some());
        assert!(refused(b"text/html", refusal).is_none());
    }
}

#[tokio::test(start_paused = true)]
async fn the_deadline_is_the_clients() {
    let start = Instant::now();
    let got = grpc("/a.B/Hang", &[("grpc-timeout", "3S")], &[]).await;
    assert_eq!(status(&got.1), "4");
    assert_eq!(start.elapsed(), Duration::from_secs(3));
}

#[tokio::test]
async fn a_compressed_request_is_answered_so() {
    let message = Bytes::from(vec![b'a'; 500]);
    let shorter = gzip::compress(message.clone()).await.unwrap();
    let fields = [
        ("grpc-encoding", "gzip"),
        ("grpc-accept-encoding", "identity, gzip"),
    ];
    for path in ["/a.B/C", "/a.B/Twice"] {
        let got = grpc(path, &fields, &[&frame(true, &shorter)]).await;
        assert_eq!(got.1.get("grpc-encoding"), Some(&b"gzip"[..]));
        let mut decoder = Decoder::new(1000);
        decoder.add(&got.2);
        let first = decoder.take().unwrap().unwrap();
        assert!(first.compressed);
        assert_eq!(gzip::decompress(first.bytes, 500).await.unwrap(), message);
    }
}

async fn web(fields: &[(&str, &str)], body: &[u8]) -> Got {
    let origin = [("origin", "https://example.org")];
    let fields = [&origin, fields].concat();
    ask(
        request(Version::Http11, "POST", "/a.B/Twice", &fields),
        &[body],
    )
    .await
}

#[tokio::test]
async fn over_http1_the_trailers_are_the_last_message() {
    let message = frame(false, b"hello");
    let got = web(&[("content-type", "application/grpc-web+proto")], &message).await;
    let end = b"\x80\0\0\0\x10grpc-status: 0\r\n";
    assert_eq!(got.2, [&message, &message, &end[..]].concat());
    assert_eq!(
        got.1.get("access-control-allow-origin"),
        Some(&b"https://example.org"[..])
    );
    let body = base64_of(&message);
    let got = web(
        &[("content-type", "application/grpc-web-text")],
        body.as_bytes(),
    )
    .await;
    let text: String = [&message[..], &message, end].map(base64_of).concat();
    assert_eq!(got.2, text.as_bytes());
}

fn base64_of(bytes: &[u8]) -> String {
    crate::base64_pieces::encode(bytes)
}

#[tokio::test]
async fn a_script_of_another_origin_asks_first() {
    let ask_from = |origin| async move {
        let fields = [
            ("origin", origin),
            ("access-control-request-method", "POST"),
            ("access-control-request-headers", "x-grpc-web"),
        ];
        ask(request(Version::Http11, "OPTIONS", "/a.B/C", &fields), &[]).await
    };
    let got = ask_from("https://example.org").await;
    assert_eq!(got.0, 204);
    assert_eq!(
        got.1.get("access-control-allow-headers"),
        Some(&b"x-grpc-web"[..])
    );
    let got = ask_from("https://example.com").await;
    assert_eq!(got.1.get("access-control-allow-origin"), None);
}

proptest! {
    #[test]
    fn every_body_gets_an_answer(
        pieces in proptest::collection::vec(
            proptest::collection::vec(any::<u8>(), 0..20), 0..5),
        content in 0_usize..3,
    ) {
        let contents =
            ["application/grpc", "application/grpc-web", "application/grpc-web-text+proto"];
        let fields = [("content-type", contents[content])];
        let request = request(Version::Http2, "POST", "/a.B/C", &fields);
        let pieces: Vec<&[u8]> = pieces.iter().map(Vec::as_slice).collect();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let got = runtime.block_on(ask(request, &pieces));
        prop_assert_eq!(got.0, 200);
    }
}
