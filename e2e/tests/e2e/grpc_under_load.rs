//! gRPC while its server is upgraded, reloaded and stopped: no call that was taken fails.

#![expect(
    clippy::unwrap_used,
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "its client is that of a test, and fails as one"
)]

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bytes::Bytes;
use h2::RecvStream;
use pronghorn_testkit::{PATIENCE, wait_for};
use rustix::process::Signal;

use crate::grpc::{connect, start, text};
use crate::grpc_client::{Client, Talking};

const PAUSE: Duration = Duration::from_millis(2);

/// Clients that call until they are told to stop.
struct Calling {
    clients: Vec<JoinHandle<()>>,
    ends: Arc<AtomicBool>,
    answered: Arc<AtomicU64>,
}

impl Calling {
    fn start(address: SocketAddr) -> Self {
        let (ends, answered) = (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default());
        let client = |_| {
            let (ends, answered) = (ends.clone(), answered.clone());
            std::thread::spawn(move || {
                let mut client = connect(address);
                let mut number = 0_u64;
                while !ends.load(Ordering::Relaxed) {
                    number += 1;
                    // A server that goes away says which calls it has not taken.
                    while !call(&client, number) {
                        client = connect(address);
                    }
                    answered.fetch_add(1, Ordering::Relaxed);
                    std::thread::sleep(PAUSE);
                }
            })
        };
        let clients = (0..2).map(client).collect();
        Self {
            clients,
            ends,
            answered,
        }
    }

    fn go_on(&self, calls: u64) {
        let wanted = self.answered.load(Ordering::Relaxed) + calls;
        wait_for("answers", || {
            let dead = self.clients.iter().any(JoinHandle::is_finished);
            (dead || self.answered.load(Ordering::Relaxed) >= wanted).then_some(())
        });
    }

    fn finish(self) {
        self.ends.store(true, Ordering::Relaxed);
        for client in self.clients {
            client.join().expect("every call is answered");
        }
    }
}

/// Calls once. False where the server has not taken the call, and says so.
fn call(client: &Client, number: u64) -> bool {
    let said = format!("call {number}");
    client.runtime.block_on(async {
        let mut send = client.send.clone();
        let answered = async {
            std::future::poll_fn(|cx| send.poll_ready(cx)).await?;
            let request = http::Request::post("http://test.example/test.v1.Talk/Say")
                .header("te", "trailers")
                .header("content-type", "application/grpc");
            let (receiving, mut sending) = send.send_request(request.body(()).unwrap(), false)?;
            sending.send_data(text(&said, 0), true)?;
            let mut body = receiving.await?.into_body();
            let mut all = Vec::new();
            while let Some(piece) = body.data().await {
                let piece = piece?;
                body.flow_control().release_capacity(piece.len())?;
                all.extend_from_slice(&piece);
            }
            Ok::<_, h2::Error>((all, body.trailers().await?.unwrap_or_default()))
        };
        let answered = tokio::time::timeout(PATIENCE, answered).await;
        match answered.expect("an answer in time") {
            Ok((body, trailers)) => {
                assert_eq!(trailers["grpc-status"], "0");
                assert_eq!(body, text(&format!("{said}!"), 1));
                true
            }
            Err(error)
                if error.is_go_away() || error.reason() == Some(h2::Reason::REFUSED_STREAM) =>
            {
                false
            }
            Err(error) => unreachable!("{error}"),
        }
    })
}

/// A stream in both directions.
struct Chat<'a> {
    client: &'a Client,
    sending: h2::SendStream<Bytes>,
    body: RecvStream,
}

impl<'a> Chat<'a> {
    fn begin(client: &'a Client) -> Self {
        let Talking {
            mut sending,
            receiving,
        } = client.begin("/test.v1.Talk/Chat", &[], false);
        sending.send_data(text("first", 1), false).unwrap();
        let mut body = client.head(receiving);
        assert_eq!(client.piece(&mut body), text("first?", 1));
        Self {
            client,
            sending,
            body,
        }
    }

    fn go_on(&mut self) {
        self.sending.send_data(text("more", 2), false).unwrap();
        assert_eq!(self.client.piece(&mut self.body), text("more?", 2));
    }

    /// Waits for its end: status and message.
    fn end(mut self) -> (String, String) {
        let trailers = self.client.runtime.block_on(async {
            let trailers = async {
                assert!(self.body.data().await.is_none());
                self.body.trailers().await.unwrap().unwrap()
            };
            let trailers = tokio::time::timeout(PATIENCE, trailers).await;
            trailers.expect("an end in time")
        });
        let field = |name: &str| trailers[name].to_str().unwrap().to_owned();
        (field("grpc-status"), field("grpc-message"))
    }
}

const POOLS: &str = "  pool: {num_workers: 2}\n  \
                     stream_pool: {num_workers: 2, destroy_timeout: 3s}\n";

#[test]
fn an_upgrade_fails_no_call_and_ends_streams_with_a_status() {
    let (mut server, address) = start("grpc/ours.php", POOLS);
    let load = Calling::start(address);
    load.go_on(50);
    let client = connect(address);
    let mut chat = Chat::begin(&client);
    server.ask_for_upgrade();
    // The connection takes no more calls, but this one goes on.
    wait_for("the process before to go away", || {
        chat.go_on();
        let mut send = client.send.clone();
        let ready = std::future::poll_fn(|cx| send.poll_ready(cx));
        client.runtime.block_on(ready).is_err().then_some(())
    });
    chat.go_on();
    let (status, message) = chat.end();
    assert_eq!((&*status, &*message), ("14", "the server is stopping"));
    server.follow_upgrade();
    load.go_on(100);
    load.finish();
    let client = connect(address);
    Chat::begin(&client).go_on();
    drop(client);
    server.stop();
}

#[test]
fn a_reload_fails_no_call_and_keeps_connections() {
    let (server, address) = start("grpc/ours.php", POOLS);
    let load = Calling::start(address);
    load.go_on(50);
    let client = connect(address);
    for reload in 1..=2 {
        let workers = server.workers();
        let mut chat = Chat::begin(&client);
        server.signal(Signal::HUP);
        wait_for("other workers", || {
            let log = server.log();
            (log.matches("the configuration is applied").count() == reload).then_some(())
        });
        assert!(server.workers().iter().any(|pid| !workers.contains(pid)));
        chat.go_on();
        drop(chat);
        load.go_on(100);
    }
    load.finish();
    server.stop();
}

#[test]
fn a_stop_ends_calls_that_take_too_long_with_a_status() {
    let pool = "  pool: {num_workers: 2, destroy_timeout: 2s}\n";
    let (mut server, address) = start("grpc/ours.php", pool);
    let client = connect(address);
    let chat = Chat::begin(&client);
    let mut talking = client.begin("/test.v1.Talk/Say", &[], false);
    talking.sending.send_data(text("sleep", 0), true).unwrap();
    wait_for("a worker that is busy", || {
        let ended = server.steer(&["workers"]);
        ended.stdout.contains("/test.v1.Talk/Say").then_some(())
    });
    let began = Instant::now();
    server.signal(Signal::TERM);
    let got = client.finish(talking);
    assert_eq!(
        (got.code(), got.message()),
        ("14", "the server is stopping")
    );
    assert_eq!(chat.end().0, "14");
    assert!(
        began.elapsed() < Duration::from_secs(8),
        "{:?}",
        began.elapsed()
    );
    drop(client);
    let ended = server.wait();
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
}
