//! A connection whose caller is played by the test, over a real socket, under a paused clock.
//!
//! With nothing left to do the clock jumps to the next deadline, so a test that waits for one takes
//! no time.

use std::collections::BTreeSet;

use pronghorn_base::Standings;
use pronghorn_plugin_api::rpc::{Binary, MOST_IN_A_LIST, MOST_PARTS, Methods};
use pronghorn_testkit::Records;
use pronghorn_wire::frame::{Flags, FrameError, Header, Options, Stream};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::net::unix::OwnedWriteHalf;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use super::*;
use crate::request::{MAX_METHOD, MAX_PAYLOAD};
use crate::room::{self, REPLIES_PER_POOL, REPLIES_UNREAD};
use crate::server::BYTES_UNDER_WAY;

/// A connection, its server, and the caller's end of it.
struct Stage {
    shared: Arc<Shared>,
    gates: Gates,
    caller: UnixStream,
    read: BytesMut,
    serving: JoinSet<()>,
    log: Records,
}

/// Calls of `test.Wait` that began, and those that may end.
#[derive(Clone, Default)]
struct Gates {
    began: watch::Sender<Vec<String>>,
    open: watch::Sender<BTreeSet<String>>,
}

impl Gates {
    fn open(&self, name: &str) {
        self.open.send_modify(|open| {
            open.insert(name.to_owned());
        });
    }

    async fn wait(self, name: String) -> Result<String, Failure> {
        self.began.send_modify(|began| began.push(name.clone()));
        let mut open = self.open.subscribe();
        _ = open.wait_for(|open| open.contains(&name)).await;
        Ok(name)
    }

    fn large(&self, bytes: String) -> Binary {
        let length = bytes.parse().expect("a number");
        self.began.send_modify(|began| began.push(bytes));
        Binary(vec![0; length].into())
    }

    async fn began(&self, names: &[&str]) {
        let mut began = self.began.subscribe();
        let all = |began: &Vec<String>| names.iter().all(|name| began.iter().any(|b| b == name));
        soon(began.wait_for(all)).await.unwrap();
    }

    fn count(&self) -> usize {
        self.began.borrow().len()
    }
}

fn methods(gates: &Gates) -> Methods {
    let methods = Methods::default();
    let rpc = methods.service("rpc", ());
    rpc.add("Version", async |(), _: bool| Ok("2025.1.15".to_owned()));
    rpc.add("Config", async |(), _: bool| Ok(Binary("{}".into())));
    let test = methods.service("test", gates.clone());
    test.add("Wait", Gates::wait);
    test.add_while_connected("Attend", Gates::wait);
    test.add("Large", async |gates: Gates, bytes: String| {
        Ok(gates.large(bytes))
    });
    test.add("Echo", async |_, it: Binary| Ok(it));
    let by_caller = gates.clone();
    let reserving = methods.service_by_caller("reserving", move |caller| {
        (by_caller.clone(), caller.clone())
    });
    reserving.add("Large", async |(gates, caller), bytes: String| {
        let bytes_of_reply: usize = bytes.parse().map_or(0, |bytes: usize| bytes / 3 * 4 + 2);
        caller.reserve(bytes_of_reply).await;
        sleep(Duration::from_millis(10)).await; // others begin meanwhile
        Ok(gates.large(bytes))
    });
    test.add("Panic", async |_, _: bool| -> Result<bool, Failure> {
        yield_now().await;
        panic!("for the test")
    });
    methods
}

impl Stage {
    fn new() -> Self {
        Self::with_budget(1 << 30)
    }

    fn with_budget(bytes: usize) -> Self {
        Self::with(bytes, 1 << 30)
    }

    fn with_room(bytes: usize) -> Self {
        Self::with(1 << 30, bytes)
    }

    fn with(bytes: usize, replies: usize) -> Self {
        let log = Records::new();
        let gates = Gates::default();
        let shared = Arc::new(Shared::new(methods(&gates), 1, bytes, replies));
        let (caller, served) = UnixStream::pair().unwrap();
        let (reader, writer) = served.into_split();
        let mut serving = JoinSet::new();
        let connection = shared.clone();
        let standing = Arc::<Standings>::default().enter();
        serving.spawn(async move { serve(reader, writer, "the test", standing, connection).await });
        Self {
            shared,
            gates,
            caller,
            read: BytesMut::new(),
            serving,
            log,
        }
    }

    async fn send(&mut self, bytes: &[u8]) {
        self.caller.write_all(bytes).await.unwrap();
    }

    /// Flags, sequence, method and the rest, as text.
    async fn reply(&mut self) -> (u8, u32, String, String) {
        let bytes = self.frame().await;
        let header = Header::decode(&bytes, u32::MAX).unwrap().unwrap();
        let &[sequence, method] = header.options.as_slice() else {
            panic!("a reply has two options");
        };
        let (method, rest) = bytes[header.len()..].split_at(method as usize);
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        (header.flags.0, sequence, text(method), text(rest))
    }

    async fn frame(&mut self) -> Bytes {
        loop {
            if let Some(header) = Header::decode(&self.read, u32::MAX).unwrap() {
                let whole = header.len() + header.payload as usize;
                if self.read.len() >= whole {
                    return self.read.split_to(whole).freeze();
                }
            }
            let read = soon(self.caller.read_buf(&mut self.read)).await.unwrap();
            assert!(read > 0, "the server hung up");
        }
    }

    async fn is_closed(&mut self) {
        let read = soon(self.caller.read_buf(&mut self.read)).await;
        assert_eq!(read.unwrap(), 0);
        self.ended().await;
    }

    async fn ended(&mut self) {
        soon(self.serving.join_next()).await.unwrap().unwrap();
    }

    /// What a call with these flags is answered, as flags and text.
    async fn ask(&mut self, flags: u8, method: &str, argument: &str) -> (u8, String) {
        self.send(&call(flags, 7, method, argument.as_bytes()))
            .await;
        let (flags, sequence, echoed, text) = self.reply().await;
        assert_eq!((sequence, echoed.as_str()), (7, method));
        (flags, text)
    }
}

/// All that can be done is done, then time goes on.
async fn pass(time: Duration) {
    sleep(time).await;
}

/// What never comes fails the test instead of hanging it.
async fn soon<T>(what: impl Future<Output = T>) -> T {
    let waited = timeout(Duration::from_secs(100_000), what).await;
    waited.expect("it never comes")
}

fn call(flags: u8, sequence: u32, method: &str, argument: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    crate::reply::frame(
        &mut out,
        Flags(flags),
        sequence,
        method.as_bytes(),
        argument.len(),
    )
    .unwrap();
    out.extend_from_slice(argument);
    out
}

fn wait(sequence: u32, name: &str) -> Vec<u8> {
    call(0x08, sequence, "test.Wait", format!("{name:?}").as_bytes())
}

fn header(options: &[u32], payload: u32) -> Vec<u8> {
    let mut out = Vec::new();
    Header {
        flags: Flags::JSON,
        stream: Stream::END,
        options: Options::new(options),
        payload,
    }
    .encode(&mut out);
    out
}

/// A frame of `vectors/goridge.json`.
fn vector(name: &str) -> Vec<u8> {
    let vectors = include_str!("../../../../vectors/goridge.json");
    let vectors: serde_json::Value = serde_json::from_str(vectors).unwrap();
    let frames = vectors["frames"].as_array().unwrap();
    let frame = frames.iter().find(|frame| frame["name"] == name).unwrap();
    let hex = frame["hex"].as_str().unwrap();
    let digit = |digit: &u8| char::from(*digit).to_digit(16).unwrap();
    let pair = |pair: &[u8]| u8::try_from(digit(&pair[0]) * 16 + digit(&pair[1])).unwrap();
    hex.as_bytes().chunks(2).map(pair).collect()
}

#[tokio::test(start_paused = true)]
async fn calls_are_answered_byte_for_byte_as_by_roadrunner() {
    let mut stage = Stage::new();
    let (request, reply) = (vector("RPC request"), vector("RPC reply"));
    assert_eq!(
        request,
        b"\x15\x08\x0f\0\0\0\x1c\x69\xca\x8a\0\0\x01\0\0\0\x0b\0\0\0rpc.Versiontrue"
    );
    assert_eq!(
        reply,
        b"\x15\x08\x16\0\0\0\x09\x71\xdb\xa7\0\0\x01\0\0\0\x0b\0\0\0rpc.Version\"2025.1.15\""
    );
    stage.send(&request).await;
    assert_eq!(stage.frame().await, reply);

    let error = vector("RPC error");
    assert_eq!(
        error,
        b"\x15\x48\x24\0\0\0\x6a\x19\x0a\xa5\0\0\x02\0\0\0\x06\0\0\0nope.Xrpc: can't find service nope.X"
    );
    stage.send(&call(0x08, 2, "nope.X", b"true")).await;
    assert_eq!(stage.frame().await, error);
}

#[tokio::test(start_paused = true)]
async fn every_error_has_the_flags_of_its_call_and_its_text() {
    let mut stage = Stage::new();
    let not_answered =
        "calls in Go's gob are not answered; call with JSON, MessagePack, protobuf or raw bytes"
            .to_owned();
    let undecoded = "goridge_read_request_body: unknown decoder used in frame".to_owned();
    let unknown = "rpc: can't find method rpc.version".to_owned();
    for (flags, method, argument, answer) in [
        (
            0x08,
            "nope.X",
            "",
            (0x48, "rpc: can't find service nope.X".to_owned()),
        ),
        (0x80, "rpc.version", "", (0xc0, unknown.clone())),
        (0x20, "rpc.version", "", (0x60, unknown)),
        (
            0x04,
            "X",
            "",
            (0x44, "rpc: service/method request ill-formed: X".to_owned()),
        ),
        (
            0x08,
            "",
            "",
            (0x48, "rpc: service/method request ill-formed: ".to_owned()),
        ),
        (
            0x08,
            "rpc.Version",
            "",
            (0x48, "json: bool unexpected end of JSON input".to_owned()),
        ),
        (
            0x08,
            "test.Wait",
            "",
            (0x48, "unexpected end of JSON input".to_owned()),
        ),
        (
            0x04,
            "rpc.Version",
            "true",
            (0x44, "unknown Raw payload type".to_owned()),
        ),
        (
            0x80,
            "rpc.Version",
            "",
            (
                0xc0,
                "rpc.Version has no protobuf form; call it with JSON".to_owned(),
            ),
        ),
        (
            0x10,
            "rpc.Version",
            "\u{3}",
            (
                0x50,
                "msgpack: invalid type: integer `3`, expected a boolean".to_owned(),
            ),
        ),
        (0x20, "rpc.Version", "", (0x60, not_answered)),
        (0x00, "rpc.Version", "true", (0x60, undecoded.clone())),
        // Of a worker's frames, or nobody's.
        (0x43, "rpc.Version", "true", (0x60, undecoded)),
    ] {
        assert_eq!(
            stage.ask(flags, method, argument).await,
            answer,
            "{flags:02x} {method}"
        );
    }
    stage.send(&call(0x08, 1, "x\u{e4}.X", b"")).await;
    assert_eq!(stage.reply().await.3, "rpc: can't find service x\u{e4}.X");
    assert_eq!(
        stage.log.text(),
        "",
        "a caller's mistake is the caller's business"
    );
}

#[tokio::test(start_paused = true)]
async fn results_are_in_the_codec_that_counts() {
    let mut stage = Stage::new();
    for (flags, method, argument, answer) in [
        (0x08, "rpc.Config", "null", (0x08, "\"e30=\"")),
        (0x04, "rpc.Config", "whatever", (0x04, "{}")),
        (0x04, "test.Echo", "\0bytes", (0x04, "\0bytes")),
        (0x2c, "test.Echo", "\"e30=\"", (0x08, "\"e30=\"")),
        (0x34, "test.Echo", "x", (0x04, "x")),
    ] {
        let answer = (answer.0, answer.1.to_owned());
        assert_eq!(
            stage.ask(flags, method, argument).await,
            answer,
            "{flags:02x} {method}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn calls_overtake_each_other() {
    let mut stage = Stage::new();
    stage
        .send(
            &[
                wait(1, "a"),
                wait(2, "b"),
                vector("RPC request"),
                wait(3, "c"),
            ]
            .concat(),
        )
        .await;
    assert_eq!(stage.reply().await.1, 1, "rpc.Version waits for nobody");
    stage.gates.began(&["a", "b", "c"]).await;
    for (gate, sequence) in [("c", 3), ("a", 1), ("b", 2)] {
        stage.gates.open(gate);
        let reply = stage.reply().await;
        assert_eq!((reply.1, reply.3), (sequence, format!("{gate:?}")));
    }
}

#[tokio::test(start_paused = true)]
async fn a_frame_may_come_byte_by_byte() {
    let mut stage = Stage::new();
    for byte in [vector("RPC request"), vector("RPC request")].concat() {
        stage.send(&[byte]).await;
        pass(Duration::from_millis(500)).await;
    }
    for _ in 0..2 {
        assert_eq!(stage.frame().await, vector("RPC reply"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_long_argument_and_a_long_result_pass() {
    let stage = Stage::new();
    let long = vec![b'x'; (3 << 20) + 1];
    let frame = [call(0x04, 1, "test.Echo", &long), vector("RPC request")].concat();
    let (mut reader, mut writer) = stage.caller.into_split();
    let sending = async {
        writer.write_all(&frame).await.unwrap();
        writer.shutdown().await.unwrap();
    };
    let mut all = Vec::new();
    let ((), read) = tokio::join!(sending, reader.read_to_end(&mut all));
    read.unwrap();
    // The short reply may come before the long one.
    let reply = vector("RPC reply");
    let expected = call(0x04, 1, "test.Echo", &long);
    assert_eq!(all.len(), reply.len() + expected.len());
    assert!(all == [reply.clone(), expected.clone()].concat() || all == [expected, reply].concat());
}

#[tokio::test(start_paused = true)]
async fn an_idle_connection_is_kept_and_half_a_frame_is_not() {
    let mut stage = Stage::new();
    stage.send(&vector("RPC request")).await;
    assert_eq!(stage.frame().await, vector("RPC reply"));
    pass(Duration::from_secs(100_000)).await;
    stage.send(&vector("RPC request")).await;
    assert_eq!(stage.frame().await, vector("RPC reply"));

    for cut in [1, 12, 19, 20, 34] {
        let mut stage = Stage::new();
        stage.send(&vector("RPC request")[..cut]).await;
        let began = Instant::now();
        stage.is_closed().await;
        assert_eq!(began.elapsed().as_secs(), 30, "cut to {cut} bytes");
        assert_eq!(
            stage.log.text(),
            " WARN rpc: connection closed: the rest of a frame did not come within 30 s peer=\"the test\" connections=1\n"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_never_calls_is_closed() {
    let mut stage = Stage::new();
    let began = Instant::now();
    stage.is_closed().await;
    assert_eq!(began.elapsed().as_secs(), FRAME_TIME.as_secs());
    assert_eq!(stage.log.text(), "");
}

#[tokio::test(start_paused = true)]
async fn what_is_no_call_closes_the_connection_and_is_told() {
    let mut bad_sum = vector("RPC request");
    bad_sum[6] ^= 1;
    let long = MAX_PAYLOAD + 1;
    let too_long = FrameError::TooLong {
        announced: long,
        limit: MAX_PAYLOAD,
    }
    .to_string();
    for (frame, why) in [
        (
            bad_sum,
            "these bytes are no frame: the header's check sum is 8aca691d, of its bytes 8aca691c",
        ),
        (
            b"GET / HTTP/1.1\r\n\r\n".to_vec(),
            "these bytes are no frame",
        ),
        (
            header(&[], 0),
            "a call has 2 options, its number and the length of the method's name; this frame has 0",
        ),
        (header(&[1], 4), "this frame has 1"),
        (header(&[1, 5], 4), "a name of 5 bytes in a payload of 4"),
        (
            header(&[1, 256], 1000),
            "a name of 256 bytes, methods have at most 255",
        ),
        (
            header(&[1, u32::MAX], 4),
            "a name of 4294967295 bytes in a payload of 4",
        ),
        (header(&[1, 4], long), too_long.as_str()),
    ] {
        let mut stage = Stage::new();
        stage
            .send(&[wait(5, "a"), frame, vector("RPC request")].concat())
            .await;
        stage.gates.began(&["a"]).await;
        stage.gates.open("a");
        assert_eq!(
            stage.reply().await.1,
            5,
            "{why}: what was asked before is answered"
        );
        stage.is_closed().await;
        let log = stage.log.text();
        assert!(
            log.starts_with(" WARN rpc: connection closed: ") && log.contains(why),
            "{log}"
        );
        assert_eq!(log.lines().count(), 1, "{log}");
    }
    let mut stage = Stage::new();
    stage.send(b"GET / HTTP/1.1\r\n\r\n").await;
    stage.is_closed().await;
    let log = stage.log.text();
    assert!(
        log.contains("the frame begins with `GET / HTTP/1`"),
        "{log}"
    );
}

#[tokio::test(start_paused = true)]
async fn many_callers_that_speak_something_else_make_one_record() {
    let stage = Stage::new();
    for _ in 0..100 {
        let (mut caller, served) = UnixStream::pair().unwrap();
        caller.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
        let (reader, writer) = served.into_split();
        let standing = Arc::<Standings>::default().enter();
        serve(reader, writer, "the test", standing, stage.shared.clone()).await;
    }
    let log = stage.log.text();
    assert_eq!(log.matches("connection closed: ").count(), 1, "{log}");
}

#[tokio::test(start_paused = true)]
async fn nothing_is_read_while_too_many_calls_are_under_way() {
    let mut stage = Stage::new();
    let names: Vec<String> = (0..=CALLS_PER_CONNECTION).map(|n| n.to_string()).collect();
    for (sequence, name) in (0..).zip(&names) {
        stage.send(&wait(sequence, name)).await;
    }
    let all: Vec<&str> = names.iter().map(String::as_str).collect();
    stage.gates.began(&all[..CALLS_PER_CONNECTION]).await;
    pass(Duration::from_secs(1000)).await;
    assert_eq!(stage.gates.count(), CALLS_PER_CONNECTION);
    assert_eq!(stage.shared.calls.now(), CALLS_PER_CONNECTION);
    stage.gates.open("3");
    assert_eq!(stage.reply().await.1, 3);
    stage.gates.began(&all[CALLS_PER_CONNECTION..]).await;
}

#[tokio::test(start_paused = true)]
async fn a_call_that_finds_no_memory_waits_and_its_time_with_it() {
    let mut stage = Stage::with_budget(10_000);
    let long = "a".repeat(5000);
    stage.send(&wait(1, &long)).await;
    stage.gates.began(&[&long]).await;
    let frame = call(0x04, 2, "test.Echo", &[b'x'; 5000]);
    let (part, rest) = frame.split_at(500);
    stage.send(part).await;
    pass(Duration::from_secs(1000)).await;
    stage.gates.open(&long);
    assert_eq!(stage.reply().await.1, 1);
    stage.send(rest).await;
    let reply = stage.reply().await;
    assert_eq!((reply.1, reply.3), (2, "x".repeat(5000)));
    assert_eq!(stage.shared.budget.available_permits(), 10_000);
}

#[tokio::test(start_paused = true)]
async fn a_small_call_needs_no_memory() {
    let mut stage = Stage::with_budget(0);
    stage.send(&vector("RPC request")).await;
    assert_eq!(stage.frame().await, vector("RPC reply"));
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_leaves_has_its_calls_carried_out() {
    let mut stage = Stage::new();
    stage
        .send(&[wait(1, "a"), vector("RPC request"), wait(2, "b")].concat())
        .await;
    let (ours, _) = UnixStream::pair().unwrap();
    drop(std::mem::replace(&mut stage.caller, ours));
    stage.gates.began(&["a", "b"]).await;
    assert_eq!(stage.shared.calls.now(), 2);
    stage.gates.open("a");
    stage.gates.open("b");
    stage.ended().await;
    assert_eq!(stage.shared.calls.now(), 0);
    assert_eq!(stage.log.text(), "");
}

#[tokio::test(start_paused = true)]
async fn a_call_that_waits_for_its_caller_holds_up_no_stop() {
    let mut stage = Stage::new();
    stage
        .send(&call(0x08, 1, "test.Attend", b"\"never\""))
        .await;
    stage.gates.began(&["never"]).await;
    let begun = Instant::now();
    stage.shared.stopping.cancel();
    let (flags, .., text) = stage.reply().await;
    assert_eq!((flags, text.as_str()), (0x48, "the server is stopping"));
    // A call that needs no wait is done all the same.
    stage.gates.open("done");
    stage.send(&call(0x08, 2, "test.Attend", b"\"done\"")).await;
    assert_eq!(stage.reply().await.3, "\"done\"");
    stage.is_closed().await;
    assert!(begun.elapsed() < Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn a_call_that_waits_for_its_caller_ends_with_it() {
    let attend = |name: &str| {
        let argument = serde_json::to_vec(name).unwrap();
        call(0x08, 1, "test.Attend", &argument)
    };
    // What needs no wait is done, although the caller has left.
    let mut stage = Stage::new();
    stage.gates.open("done");
    stage.send(&attend("done")).await;
    stage.caller.shutdown().await.unwrap();
    assert_eq!(stage.reply().await.3, "\"done\"");
    stage.is_closed().await;

    let mut stage = Stage::new();
    stage.send(&attend("never")).await;
    stage.gates.began(&["never"]).await;
    stage.caller.shutdown().await.unwrap();
    let (flags, .., text) = stage.reply().await;
    assert_eq!((flags, text.as_str()), (0x48, "the caller has left"));
    stage.is_closed().await;

    let mut stage = Stage::new();
    stage.send(&attend("never")).await;
    stage.gates.began(&["never"]).await;
    let (ours, _) = UnixStream::pair().unwrap();
    drop(std::mem::replace(&mut stage.caller, ours));
    stage.ended().await;
}

#[tokio::test(start_paused = true)]
async fn calls_are_read_to_the_last_after_a_reply_could_not_be_written() {
    let mut stage = Stage::new();
    let names: Vec<String> = (0..CALLS_PER_CONNECTION + 10)
        .map(|n| n.to_string())
        .collect();
    let frames: Vec<Vec<u8>> = (0..).zip(&names).map(|(n, name)| wait(n, name)).collect();
    stage.send(&frames.concat()).await;
    let (ours, _) = UnixStream::pair().unwrap();
    drop(std::mem::replace(&mut stage.caller, ours));
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    stage.gates.began(&names[..CALLS_PER_CONNECTION]).await;
    for name in &names {
        stage.gates.open(name);
    }
    stage.ended().await;
    assert_eq!(stage.gates.count(), names.len());
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_says_it_is_done_still_gets_its_replies() {
    let mut stage = Stage::new();
    stage.send(&wait(1, "a")).await;
    let (mut reader, writer): (_, OwnedWriteHalf) = stage.caller.into_split();
    drop(writer);
    stage.gates.began(&["a"]).await;
    stage.gates.open("a");
    let mut all = Vec::new();
    soon(reader.read_to_end(&mut all)).await.unwrap();
    assert!(all.ends_with(b"test.Wait\"a\""), "{}", all.escape_ascii());
}

#[tokio::test(start_paused = true)]
async fn a_method_that_panics_costs_one_call() {
    let mut stage = Stage::new();
    let text = "test.Panic failed by a bug in the server; its log says more".to_owned();
    assert_eq!(stage.ask(0x08, "test.Panic", "true").await, (0x48, text));
    stage.send(&vector("RPC request")).await;
    assert_eq!(stage.frame().await, vector("RPC reply"));
    let log = stage.log.text();
    assert!(
        log.starts_with("ERROR rpc: ") && log.contains("test.Panic"),
        "{log}"
    );
    assert_eq!(stage.shared.calls.now(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_never_reads_is_left_in_the_end() {
    let mut stage = Stage::new();
    let began = Instant::now();
    let frame = call(0x04, 1, "test.Echo", &vec![0; 100_000]);
    for _ in 0..CALLS_PER_CONNECTION {
        // The server stops reading once nothing can be written.
        if timeout(Duration::from_secs(1), stage.caller.write_all(&frame))
            .await
            .is_err()
        {
            break;
        }
    }
    stage.ended().await;
    assert!(
        (300..302).contains(&began.elapsed().as_secs()),
        "{:?}",
        began.elapsed()
    );
    let log = stage.log.text();
    assert!(
        log.contains("connection closed: its replies were not read for 300 s"),
        "{log}"
    );
}

/// A call whose reply has four thirds of this length: it is in base64.
fn large(sequence: u32, bytes: usize) -> Vec<u8> {
    call(
        0x08,
        sequence,
        "test.Large",
        format!("\"{bytes}\"").as_bytes(),
    )
}

#[tokio::test(start_paused = true)]
async fn long_replies_that_nobody_reads_keep_calls_from_being_taken() {
    const CALLS: u32 = 32;
    const BYTES: usize = 3_000_000;
    let mut stage = Stage::new();
    for sequence in 0..CALLS {
        stage.send(&large(sequence, BYTES)).await;
    }
    pass(Duration::from_secs(20)).await;
    assert_eq!(
        stage.gates.count(),
        REPLIES_PER_CONNECTION / (BYTES / 3 * 4)
    );
    // One that reads gets them all, and then has its room again.
    for sequence in 0..CALLS {
        let reply = stage.reply().await;
        assert_eq!((reply.1, reply.3.len()), (sequence, BYTES / 3 * 4 + 2));
    }
    stage.send(&large(CALLS, 1)).await;
    assert_eq!(stage.reply().await.1, CALLS);
    assert_eq!(stage.log.text(), "");
}

#[tokio::test(start_paused = true)]
async fn a_method_that_reserves_makes_no_more_than_there_is_room_for() {
    const CALLS: u32 = 32;
    const BYTES: usize = 3_000_000;
    let mut stage = Stage::new();
    for sequence in 0..CALLS {
        let argument = format!("\"{BYTES}\"");
        let call = call(0x08, sequence, "reserving.Large", argument.as_bytes());
        stage.send(&call).await;
    }
    pass(Duration::from_secs(20)).await;
    let fit = REPLIES_PER_CONNECTION / (BYTES / 3 * 4);
    assert_eq!(stage.gates.count(), fit);
    let mut sequences = Vec::new();
    for _ in 0..CALLS {
        sequences.push(stage.reply().await.1);
    }
    sequences.sort_unstable();
    assert!(sequences.into_iter().eq(0..CALLS));
    assert_eq!(stage.log.text(), "");
}

#[tokio::test(start_paused = true)]
async fn a_reply_longer_than_all_room_has_it_for_itself() {
    let mut stage = Stage::with_room(10_000);
    for sequence in 0..3 {
        stage.send(&large(sequence, 30_000)).await;
    }
    for sequence in 0..3 {
        assert_eq!(stage.reply().await.1, sequence);
    }
}

/// The room of a call over another connection.
fn other(stage: &Stage) -> CallRoom {
    let own = OwnRoom::new(REPLIES_PER_CONNECTION, &stage.shared.replies);
    CallRoom::new(&own)
}

#[tokio::test(start_paused = true)]
async fn long_replies_of_others_hold_up_long_ones_alone() {
    let mut stage = Stage::with_room(1_000_000);
    let theirs = other(&stage).after(b"test.Large", 1_000_000).await;
    assert_eq!(stage.ask(0x04, "test.Echo", "small").await.1, "small");
    stage.send(&large(1, 300_000)).await;
    pass(Duration::from_secs(20)).await;
    assert_eq!(stage.gates.count(), 0, "it has not even begun");
    drop(theirs);
    assert_eq!(stage.reply().await.1, 1);
}

#[tokio::test(start_paused = true)]
async fn who_reads_nothing_is_left_soon_while_others_wait_for_room() {
    let mut stage = Stage::with_room(4_000_002);
    let began = Instant::now();
    stage.send(&large(1, 3_000_000)).await;
    stage.gates.began(&["3000000"]).await;
    soon(other(&stage).after(b"test.Large", 4_000_002)).await;
    assert_eq!(began.elapsed().as_secs(), FRAME_TIME.as_secs());
    stage.ended().await;
    let log = stage.log.text();
    assert!(
        log.contains("connection closed: its replies were not read for 30 s"),
        "{log}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_stop_ends_idle_connections_and_lets_calls_finish() {
    let mut idle = Stage::new();
    idle.shared.stopping.cancel();
    idle.is_closed().await;

    let mut busy = Stage::new();
    busy.send(&wait(1, "a")).await;
    busy.gates.began(&["a"]).await;
    busy.shared.stopping.cancel();
    // The caller could not know.
    busy.send(&vector("RPC request")).await;
    assert_eq!(busy.frame().await, vector("RPC reply"));
    pass(2 * ON_ITS_WAY).await;
    busy.send(&wait(2, "late")).await;
    busy.gates.open("a");
    assert_eq!(busy.reply().await.3, "\"a\"");
    busy.ended().await;
    assert_eq!(busy.gates.count(), 1, "nothing more is taken");
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_goes_on_and_on_holds_no_stop_up() {
    let mut stage = Stage::new();
    stage.shared.stopping.cancel();
    let many = vector("RPC request").repeat(2 * CALLS_PER_CONNECTION);
    stage.send(&many).await;
    for _ in 0..CALLS_PER_CONNECTION {
        assert_eq!(stage.frame().await, vector("RPC reply"));
    }
    stage.ended().await;
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_cut_off_is_named() {
    let mut stage = Stage::new();
    stage.send(&wait(1, "a")).await;
    stage.gates.began(&["a"]).await;
    stage.serving.shutdown().await;
    while stage.shared.calls.now() > 0 {
        yield_now().await;
    }
    let log = stage.log.text();
    assert!(
        log.starts_with(" WARN rpc: call cut off") && log.contains("test.Wait"),
        "{log}"
    );
}

#[test]
fn the_reference_has_these_limits() {
    let grouped = |number: usize| {
        let (millions, rest) = (number / 1_000_000, number % 1_000_000);
        match millions {
            0 => format!("{},{:03}", rest / 1000, rest % 1000),
            _ => format!("{millions},{:03},{:03}", rest / 1000, rest % 1000),
        }
    };
    let page = include_str!("../../../../docs/reference/rpc.md");
    for row in [
        "| connections | an eighth of the limit of open files, at most 1,024 |".to_owned(),
        format!(
            "| connection without a call so far | {} s |",
            FRAME_TIME.as_secs()
        ),
        format!("| calls of one connection without a reply | {CALLS_PER_CONNECTION} |"),
        format!("| payload of a call | {} MB |", MAX_PAYLOAD >> 20),
        format!(
            "| payloads of all calls in progress, except those of up to {} KB | {} MB |",
            SMALL >> 10,
            BYTES_UNDER_WAY >> 20
        ),
        format!(
            "| replies that nobody has read yet, except those of up to {} KB | {} MB |",
            room::SMALL >> 10,
            REPLIES_UNREAD >> 20
        ),
        format!(
            "| unread replies of one connection | {} MB",
            REPLIES_PER_CONNECTION >> 20
        ),
        format!(
            "| unread replies of one pool's workers, over their own connections | {} MB of {} MB",
            REPLIES_PER_POOL >> 20,
            REPLIES_UNREAD >> 20
        ),
        format!(
            "| elements in one list or map of an argument | {} |",
            grouped(MOST_IN_A_LIST)
        ),
        format!(
            "| elements and fields of an argument together | {} |",
            grouped(MOST_PARTS)
        ),
        format!("| name of a method | {MAX_METHOD} bytes |"),
        format!(
            "from first to last byte | {} s each |",
            FRAME_TIME.as_secs()
        ),
        format!(
            "| replies that nobody reads | {} min, {} s while others wait for room |",
            UNREAD_TIME.as_secs() / 60,
            FRAME_TIME.as_secs()
        ),
    ] {
        assert!(page.contains(&row), "docs/reference/rpc.md lacks: {row}");
    }
}
