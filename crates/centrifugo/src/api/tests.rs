//! An API that a test plays.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use h2::server::SendResponse;
use http::{HeaderMap, Request as Head, Response};
use pronghorn_base::lock;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use super::*;

type Seen = Arc<Mutex<Vec<(Head<()>, Bytes)>>>;

/// The answer to a request, chosen by its body.
type Says = fn(&Bytes) -> (Response<()>, Bytes, Option<(&'static str, &'static str)>);

struct Fake {
    address: SocketAddr,
    seen: Seen,
    _serving: JoinSet<()>,
}

impl Fake {
    async fn start(says: Says) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let seen = Seen::default();
        let (noted, mut serving) = (seen.clone(), JoinSet::new());
        serving.spawn(async move {
            let mut tasks = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let noted = noted.clone();
                tasks.spawn(async move {
                    let mut connection = h2::server::handshake(stream).await.unwrap();
                    let mut answers = JoinSet::new();
                    while let Some(Ok((request, respond))) = connection.accept().await {
                        answers.spawn(answer(request, respond, noted.clone(), says));
                    }
                });
            }
        });
        Self {
            address,
            seen,
            _serving: serving,
        }
    }

    fn api(&self, change: impl FnOnce(&mut ApiSettings)) -> Api {
        let mut settings = ApiSettings {
            host: "127.0.0.1".to_owned(),
            port: self.address.port(),
            key: None,
            tls: None,
            timeout: Duration::from_secs(20),
            gzip: false,
        };
        change(&mut settings);
        Api::new(settings, Path::new("/")).unwrap()
    }
}

async fn answer(
    request: Head<h2::RecvStream>,
    mut respond: SendResponse<Bytes>,
    seen: Seen,
    says: Says,
) {
    let (head, mut body) = request.into_parts();
    let mut all = Vec::new();
    while let Some(Ok(piece)) = body.data().await {
        _ = body.flow_control().release_capacity(piece.len());
        all.extend_from_slice(&piece);
    }
    let all = Bytes::from(all);
    let (response, body, status) = says(&all);
    lock(&seen).push((Head::from_parts(head, ()), all));
    let mut send = respond.send_response(response, false).unwrap();
    _ = send.send_data(body, status.is_none());
    if let Some((code, message)) = status {
        let mut trailers = HeaderMap::new();
        trailers.insert("grpc-status", code.parse().unwrap());
        trailers.insert("grpc-message", message.parse().unwrap());
        _ = send.send_trailers(trailers);
    }
}

fn head() -> Response<()> {
    let response = Response::builder().header("content-type", "application/grpc");
    response.body(()).unwrap()
}

async fn text_of(api: &Api, message: &'static [u8]) -> Result<Bytes, String> {
    let reply = api.ask("Publish", Bytes::from_static(message)).await;
    reply.map_err(|error| error.to_string())
}

#[tokio::test]
async fn bytes_pass_as_they_are() {
    let fake = Fake::start(|body| (head(), body.clone(), Some(("0", "")))).await;
    let api = fake.api(|settings| settings.key = Some("hush".to_owned()));
    let message = b"\x0a\x01a\xfa\x07\x01x";
    assert_eq!(text_of(&api, message).await.unwrap(), &message[..]);
    let seen = lock(&fake.seen);
    let (head, body) = &seen[0];
    let path = "/centrifugal.centrifugo.api.CentrifugoApi/Publish";
    assert_eq!(head.uri().path(), path);
    assert_eq!(head.headers()["authorization"], "apikey hush");
    assert_eq!(head.headers()["te"], "trailers");
    let left = head.headers()["grpc-timeout"].as_bytes();
    let left = pronghorn_grpc_wire::parse_timeout(left).unwrap();
    assert!(left > Duration::from_secs(10) && left <= Duration::from_secs(20));
    assert_eq!(body, &frame(false, message));
    assert!(!format!("{api:?}").contains("hush"));
}

#[tokio::test]
async fn compressed_messages_are_read_back() {
    let fake = Fake::start(|body| {
        let mut response = head();
        let gzip = "gzip".parse().unwrap();
        response.headers_mut().insert("grpc-encoding", gzip);
        (response, body.clone(), Some(("0", "")))
    })
    .await;
    let api = fake.api(|settings| settings.gzip = true);
    static LONG: [u8; 3000] = [b'a'; 3000];
    assert_eq!(text_of(&api, &LONG).await.unwrap(), &LONG[..]);
    assert!(lock(&fake.seen)[0].1.len() < 300);
}

#[tokio::test]
async fn a_status_is_an_error_as_go_writes_it() {
    let fake = Fake::start(|_| (head(), Bytes::new(), Some(("8", "too%20many%0Athings")))).await;
    let text = text_of(&fake.api(|_| {}), b"").await.unwrap_err();
    let expected = "rpc error: code = ResourceExhausted desc = too many things";
    assert_eq!(text, expected);
    let fake = Fake::start(|_| (head(), Bytes::new(), Some(("16", "unauthenticated")))).await;
    let text = text_of(&fake.api(|_| {}), b"").await.unwrap_err();
    assert!(
        text.contains("desc = unauthenticated (hint: `centrifuge.grpc_api_key`"),
        "{text}"
    );
}

#[tokio::test]
async fn what_is_no_answer_is_said() {
    let cases: [(Says, &str); 5] = [
        (
            |_| {
                (
                    head(),
                    Bytes::from_static(b"\0\0\0\0\x05ab"),
                    Some(("0", "")),
                )
            },
            "it has no whole message",
        ),
        (
            |_| (head(), Bytes::from_static(b"\0\xff\0\0\0"), Some(("0", ""))),
            "it is none of messages, or too long",
        ),
        (
            |_| {
                (
                    head(),
                    [frame(false, b""), frame(false, b"")].concat().into(),
                    Some(("0", "")),
                )
            },
            "it has more than one message",
        ),
        (
            |_| (head(), frame(true, b"no gzip"), Some(("0", ""))),
            "failed to decompress",
        ),
        (
            |_| (head(), Bytes::from_static(b"<html>"), None),
            "it answered 200 OK without a status of gRPC (hint: `centrifuge.grpc_api_address`",
        ),
    ];
    for (says, why) in cases {
        let fake = Fake::start(says).await;
        let text = text_of(&fake.api(|_| {}), b"").await.unwrap_err();
        assert!(text.contains(why), "{text}");
    }
}

#[tokio::test]
async fn a_peer_that_is_away_or_silent_is_not_waited_for() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let settings = ApiSettings {
        host: "127.0.0.1".to_owned(),
        port: listener.local_addr().unwrap().port(),
        key: None,
        tls: None,
        timeout: Duration::from_millis(100),
        gzip: false,
    };
    let api = Api::new(settings, Path::new("/")).unwrap();
    let text = text_of(&api, b"").await.unwrap_err();
    assert!(text.contains("code = DeadlineExceeded desc = Centrifugo's API at 127.0.0.1:"));
    assert!(text.contains("did not answer within 0.1 s"), "{text}");
    drop(listener);
    let text = text_of(&api, b"").await.unwrap_err();
    assert!(
        text.starts_with("rpc error: code = Unavailable desc = "),
        "{text}"
    );
    assert!(text.contains("Connection refused") && text.contains("hint: start Centrifugo"));
}
