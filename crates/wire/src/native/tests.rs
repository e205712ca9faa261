use proptest::prelude::*;
use serde::Deserialize;
use serde_json::Value;

use super::*;
use crate::Protocol;
use crate::frame::{Flags, Header, MAX_PAYLOAD, OpenFrame, Stream};

#[derive(Deserialize)]
struct Vectors {
    messages: Vec<Vector>,
    raw: Vec<Vector>,
    jobs: Vec<Vector>,
    tcp: Vec<Vector>,
    grpc: Vec<Vector>,
    broken: Vec<Broken>,
}

#[derive(Deserialize)]
struct Vector {
    name: String,
    direction: String,
    kind: String,
    fields: Value,
    body_hex: String,
    stream: u8,
    context_hex: String,
    frame_hex: String,
}

#[derive(Deserialize)]
struct Broken {
    name: String,
    direction: String,
    context_hex: String,
}

fn vectors() -> Vectors {
    serde_json::from_str(include_str!("../../../../vectors/native.json")).unwrap()
}

fn bytes(hex: &str) -> Bytes {
    crate::frame::tests::bytes(hex).into()
}

fn latin1(text: &Value) -> Vec<u8> {
    text.as_str()
        .unwrap()
        .chars()
        .map(|c| u8::try_from(u32::from(c)).unwrap())
        .collect()
}

fn fields(list: &Value) -> Fields {
    list.as_array()
        .unwrap()
        .iter()
        .map(|pair| (latin1(&pair[0]), latin1(&pair[1])))
        .collect()
}

fn number<T: TryFrom<u64>>(value: &Value) -> T {
    T::try_from(value.as_u64().unwrap()).ok().unwrap()
}

#[test]
fn requests_are_written_as_the_vectors_say() {
    let mut seen = 0;
    for vector in vectors()
        .messages
        .iter()
        .filter(|vector| vector.direction == "to worker")
    {
        let mut context = Vec::new();
        let of = |key: &str| &vector.fields[key];
        let call = number(of("call"));
        match vector.kind.as_str() {
            "cancel" => encode_cancel(&mut context, call),
            "ping" => encode_ping(&mut context, call),
            "body" => encode_body(&mut context, call),
            _ => {
                let flags: u8 = number(of("flags"));
                let uri = of("uri").as_str().unwrap();
                let (head, query) = uri
                    .split_once('?')
                    .map_or((uri, None), |(h, q)| (h, Some(q)));
                let rest = head.split_once("://").unwrap().1;
                let (authority, path) = rest.split_at(rest.find('/').unwrap());
                let (headers, attributes) = (fields(of("headers")), fields(of("attributes")));
                let request = Request {
                    method: of("method").as_str().unwrap(),
                    tls: uri.starts_with("https"),
                    authority,
                    path: path.as_bytes(),
                    query: query.map(str::as_bytes),
                    protocol: match number::<u16>(of("protocol")) {
                        10 => Protocol::Http10,
                        11 => Protocol::Http11,
                        20 => Protocol::Http2,
                        _ => Protocol::Http3,
                    },
                    remote: of("remote").as_str().unwrap(),
                    headers: &headers,
                    attributes: &attributes,
                    accepted_us: number(of("started")),
                };
                let body = match flags & 0x13 {
                    0x01 => BodyKind::File,
                    0x02 => BodyKind::Form,
                    0x10 => BodyKind::Stream,
                    _ => BodyKind::Bytes,
                };
                let time_left_ms = of("left").as_u64().map(|left| left.try_into().unwrap());
                let envelope = Envelope {
                    call,
                    time_left_ms,
                    body,
                    development: flags & 8 != 0,
                    timed: flags & 0x20 != 0,
                };
                // The first vector with TLS says https in its URI only where the flag is set.
                assert_eq!(request.tls, flags & 4 != 0, "{}", vector.name);
                encode_request(&mut context, &request, envelope);
            }
        }
        assert_eq!(
            Bytes::from(context),
            bytes(&vector.context_hex),
            "{}",
            vector.name
        );
        assert_frame(vector);
        seen += 1;
    }
    assert!(seen >= 8, "the vectors lost messages to the worker");
}

fn assert_frame(vector: &Vector) {
    let (context, body) = (bytes(&vector.context_hex), bytes(&vector.body_hex));
    let mut frame = Vec::new();
    let open = OpenFrame::begin(&mut frame);
    frame.extend_from_slice(&context);
    open.finish(&mut frame, Flags::NATIVE, Stream(vector.stream), body.len())
        .unwrap();
    frame.extend_from_slice(&body);
    assert_eq!(
        Bytes::from(frame),
        bytes(&vector.frame_hex),
        "{}",
        vector.name
    );
    let header = Header::decode(&bytes(&vector.frame_hex), MAX_PAYLOAD)
        .unwrap()
        .unwrap();
    assert_eq!(
        header.options.as_slice(),
        [u32::try_from(context.len()).unwrap()]
    );
}

fn has_head(message: &Message) -> bool {
    matches!(
        message,
        Message::Reply { .. } | Message::Informational { .. }
    )
}

/// Reads a message of a worker that has requests, with the head that it may have.
fn read(context: &Bytes) -> Result<Message, DecodeError> {
    let message = decode(context)?;
    if has_head(&message) {
        decode_reply(context)?;
    }
    Ok(message)
}

#[test]
fn raw_calls_are_written_and_answered_as_the_vectors_say() {
    let [call, reply] = <[Vector; 2]>::try_from(vectors().raw).ok().unwrap();
    let envelope = Envelope {
        call: number(&call.fields["call"]),
        time_left_ms: Some(number(&call.fields["left"])),
        ..Envelope::default()
    };
    let mut context = Vec::new();
    encode_raw(&mut context, number(&call.fields["started"]), envelope);
    assert_eq!(Bytes::from(context), bytes(&call.context_hex));
    assert_frame(&call);

    let context = bytes(&reply.context_hex);
    let want = Message::Reply {
        call: number(&reply.fields["call"]),
        flags: ReplyFlags::from_byte(number(&reply.fields["flags"])),
    };
    assert_eq!(decode(&context).unwrap(), want);
    decode_raw_reply(&context).unwrap();
    assert_frame(&reply);
    for cut in 0..context.len() {
        assert!(decode_raw_reply(&context.slice(..cut)).is_err());
    }
    let (mut longer, mut informational) = (context.to_vec(), context.to_vec());
    longer.push(0);
    assert!(matches!(
        decode_raw_reply(&longer.into()),
        Err(DecodeError::LeftOver { bytes: 1, .. })
    ));
    informational[0] = KIND_INFORMATIONAL;
    assert!(matches!(
        decode_raw_reply(&informational.into()),
        Err(DecodeError::Kind(KIND_INFORMATIONAL))
    ));
}

#[test]
fn jobs_are_written_as_the_vectors_say() {
    let vectors = vectors().jobs;
    for vector in vectors.iter().filter(|it| it.direction == "to worker") {
        let of = |key: &str| &vector.fields[key];
        let text = |key: &str| of(key).as_str().unwrap();
        let job = Job {
            id: text("id"),
            name: text("name"),
            pipeline: text("pipeline"),
            driver: text("driver"),
            attempt: number(of("attempt")),
            wants_result: number::<u8>(of("flags")) == WANTS_RESULT,
        };
        let envelope = Envelope {
            call: number(of("call")),
            time_left_ms: of("left").as_u64().map(|left| left.try_into().unwrap()),
            ..Envelope::default()
        };
        let headers = fields(of("headers"));
        let mut context = Vec::new();
        let started = number(of("started"));
        encode_job(&mut context, &job, headers.iter(), started, envelope);
        let expected = bytes(&vector.context_hex);
        assert_eq!(Bytes::from(context), expected, "{}", vector.name);
        assert_frame(vector);
    }
}

#[test]
fn grpc_calls_are_written_and_answered_as_the_vectors_say() {
    for vector in &vectors().grpc {
        let of = |key: &str| &vector.fields[key];
        let expected = bytes(&vector.context_hex);
        assert_frame(vector);
        if vector.direction == "to server" {
            decode_raw_reply(&expected).unwrap();
            continue;
        }
        let flags = number::<u8>(of("flags"));
        let call = Grpc {
            service: of("service").as_str().unwrap(),
            method: of("method").as_str().unwrap(),
            server_streams: flags & STREAMS != 0,
        };
        let envelope = Envelope {
            call: number(of("call")),
            time_left_ms: of("left").as_u64().map(|left| left.try_into().unwrap()),
            body: if flags & BODY_STREAM != 0 {
                BodyKind::Stream
            } else {
                BodyKind::Bytes
            },
            ..Envelope::default()
        };
        let metadata = fields(of("metadata"));
        let mut context = Vec::new();
        let started = number(of("started"));
        encode_grpc(&mut context, &call, metadata.iter(), started, envelope);
        assert_eq!(Bytes::from(context), expected, "{}", vector.name);
    }
}

#[test]
fn answers_to_jobs_are_read_as_the_vectors_say() {
    let vectors = vectors().jobs;
    for vector in vectors.iter().filter(|it| it.direction == "to server") {
        let of = |key: &str| number::<u64>(&vector.fields[key]);
        let expected = match of("outcome") {
            0 => JobReply::Done,
            1 => JobReply::Failed,
            3 => JobReply::DoneWithout,
            _ => JobReply::Retry {
                delay: Duration::from_millis(of("delay")),
            },
        };
        let context = bytes(&vector.context_hex);
        let read = decode_job_reply(&context).unwrap();
        assert_eq!(read, expected, "{}", vector.name);
        for cut in 0..context.len() {
            assert!(decode_job_reply(&context.slice(..cut)).is_err());
        }
        let longer = [&*context, &[0]].concat();
        assert!(decode_job_reply(&longer.into()).is_err());
        let other = [0x81, 0, 4, 0, 1, 0, 0, 0];
        let refused = decode_job_reply(&Bytes::copy_from_slice(&other));
        assert!(matches!(refused, Err(DecodeError::Outcome(4))));
        assert_frame(vector);
    }
}

#[test]
fn tcp_calls_are_written_as_the_vectors_say() {
    let vectors = vectors().tcp;
    for vector in vectors.iter().filter(|it| it.direction == "to worker") {
        let of = |key: &str| &vector.fields[key];
        let text = |key: &str| of(key).as_str().unwrap();
        let tcp = Tcp {
            event: match text("event") {
                "connected" => TcpEvent::Connected,
                "data" => TcpEvent::Data,
                _ => TcpEvent::Closed,
            },
            server: text("server"),
            connection: text("connection"),
            remote: text("remote"),
            tls: number::<u8>(of("flags")) == TLS,
            state: &latin1(of("state")),
            certificate: text("certificate"),
        };
        let envelope = Envelope {
            call: number(of("call")),
            time_left_ms: of("left").as_u64().map(|left| left.try_into().unwrap()),
            ..Envelope::default()
        };
        let mut context = Vec::new();
        encode_tcp(&mut context, &tcp, number(of("started")), envelope);
        let expected = bytes(&vector.context_hex);
        assert_eq!(Bytes::from(context), expected, "{}", vector.name);
        assert_frame(vector);
    }
}

#[test]
fn answers_to_tcp_calls_are_read_as_the_vectors_say() {
    let vectors = vectors().tcp;
    for vector in vectors.iter().filter(|it| it.direction == "to server") {
        let state = &vector.fields["state"];
        let expected = TcpReply {
            close: vector.fields["close"].as_bool().unwrap(),
            state: (!state.is_null()).then(|| latin1(state).into()),
        };
        let context = bytes(&vector.context_hex);
        let read = decode_tcp_reply(&context).unwrap();
        assert_eq!(read, expected, "{}", vector.name);
        for cut in 0..numbers::ENVELOPE {
            assert!(decode_tcp_reply(&context.slice(..cut)).is_err());
        }
        assert_frame(vector);
    }
    let read = |bytes: &[u8]| decode_tcp_reply(&Bytes::copy_from_slice(bytes));
    let longer = read(&[0x81, 0, 1, 0, 1, 0, 0, 0, 0]);
    assert!(matches!(longer, Err(DecodeError::LeftOver { .. })));
    let other = read(&[0x81, 0, 4, 0, 1, 0, 0, 0]);
    assert!(matches!(other, Err(DecodeError::Outcome(4))));
    let mut long = vec![0x81, 0, 2, 0, 1, 0, 0, 0];
    long.resize(numbers::ENVELOPE + MAX_STATE as usize, b'x');
    assert!(read(&long).is_ok());
    long.push(b'x');
    assert!(matches!(read(&long), Err(DecodeError::State(65_537))));
}

#[test]
fn more_headers_than_a_job_can_have_are_left_out() {
    let one = (&b"a"[..], &b""[..]);
    let mut context = Vec::new();
    let many = std::iter::repeat_n(one, 70_000);
    encode_job(&mut context, &Job::default(), many, 0, Envelope::default());
    assert_eq!(context[2..4], [0xff, 0xff]);
    assert_eq!(context.len(), numbers::JOB_HEAD + 65_535 * 9);
}

#[test]
fn replies_are_read_as_the_vectors_say() {
    let mut seen = 0;
    for vector in vectors()
        .messages
        .iter()
        .filter(|vector| vector.direction == "to server")
    {
        let of = |key: &str| &vector.fields[key];
        let call = number(of("call"));
        let flags = ReplyFlags::from_byte(number(of("flags")));
        let want = match vector.kind.as_str() {
            "reply" => Message::Reply { call, flags },
            "informational" => Message::Informational { call },
            "chunk" => Message::Chunk { call, flags },
            "extend" => Message::Extend {
                call,
                left_ms: number(of("left")),
            },
            "free" => Message::Free {
                call,
                rest: vector
                    .fields
                    .get("rest")
                    .map(|of| Duration::from_micros(number(of))),
            },
            "want" => Message::Want {
                call,
                most: number(of("most")),
            },
            "pong" => Message::Pong { call },
            "error" => Message::Error {
                call,
                flags,
                thrown: Thrown {
                    class: of("class").as_str().unwrap().into(),
                    message: of("message").as_str().unwrap().into(),
                    file: of("file").as_str().unwrap().into(),
                    line: number(of("line")),
                    trace: of("trace").as_str().unwrap().into(),
                },
            },
            other => panic!("unknown kind {other}"),
        };
        let context = bytes(&vector.context_hex);
        assert_eq!(decode(&context).unwrap(), want, "{}", vector.name);
        if has_head(&want) {
            let head = ReplyHead {
                status: number(of("status")),
                headers: fields(of("headers")),
            };
            assert_eq!(decode_reply(&context).unwrap(), head, "{}", vector.name);
        }
        for cut in 0..context.len() {
            assert!(
                read(&context.slice(..cut)).is_err(),
                "{} cut to {cut}",
                vector.name
            );
        }
        assert_frame(vector);
        seen += 1;
    }
    assert!(seen >= 12, "the vectors lost messages to the server");
}

#[test]
fn broken_contexts_are_refused() {
    for vector in vectors()
        .broken
        .iter()
        .filter(|vector| vector.direction == "to server")
    {
        let got = read(&bytes(&vector.context_hex));
        assert!(got.is_err(), "{} gave {got:?}", vector.name);
    }
}

#[test]
fn a_worker_that_wants_to_be_renewed_says_why() {
    for (small, full) in [(1, false), (2, true), (99, false)] {
        let mut context = Vec::new();
        put_envelope(&mut context, KIND_RENEW, IGNORABLE, small, 1);
        assert_eq!(aside(&context), Some(Aside::Renewal { full }));
        assert_eq!(
            decode(&Bytes::from(context.clone())).unwrap(),
            Message::Ignorable
        );
        context.pop();
        assert_eq!(aside(&context), None);
    }
}

#[test]
fn a_remark_has_the_shape_of_an_error() {
    let mut context = Vec::new();
    put_envelope(&mut context, KIND_REMARK, IGNORABLE, 0, 1);
    for number in [7, 6, 4, 5, 0_u32] {
        context.extend_from_slice(&number.to_le_bytes());
    }
    context.extend_from_slice(b"headerlosta.php");
    let expected = Thrown {
        class: "header".into(),
        message: "lost".into(),
        file: "a.php".into(),
        line: 7,
        trace: String::new(),
    };
    assert_eq!(aside(&context), Some(Aside::Remark(expected)));
    assert_eq!(
        decode(&Bytes::from(context.clone())).unwrap(),
        Message::Ignorable
    );
    let longer = [&*context, b"."].concat();
    assert_eq!(aside(&longer), None, "bytes are left over");
    for end in 0..context.len() {
        assert_eq!(aside(&context[..end]), None, "cut at {end}");
    }
    context[0] = KIND_RENEW;
    assert_eq!(aside(&context), None);
}

#[test]
fn what_a_call_spent_is_told_in_microseconds() {
    let mut context = Vec::new();
    put_envelope(&mut context, KIND_SPENT, IGNORABLE, 0, 7);
    put_u32(&mut context, 1_500);
    put_u32(&mut context, u32::MAX);
    let spent = Spent {
        cpu: Duration::from_micros(1_500),
        blocked: Duration::from_micros(u32::MAX.into()),
    };
    let told = decode(&Bytes::from(context.clone())).unwrap();
    assert_eq!(told, Message::Spent { call: 7, spent });
    for end in 0..context.len() {
        let cut = Bytes::copy_from_slice(&context[..end]);
        assert!(decode(&cut).is_err(), "cut at {end}");
    }
    context.push(0);
    assert!(
        decode(&Bytes::from(context)).is_err(),
        "a byte is left over"
    );
}

#[test]
fn an_application_names_its_route_and_writes_records() {
    let mut context = Vec::new();
    put_envelope(&mut context, KIND_ROUTE, IGNORABLE, 0, 7);
    context.extend_from_slice(b"users.\xff");
    let (call, name) = (7, "users.\u{fffd}".to_owned());
    let told = decode(&Bytes::from(context)).unwrap();
    assert_eq!(told, Message::Route { call, name });

    let mut context = Vec::new();
    put_envelope(&mut context, KIND_LOG, IGNORABLE, 4, 1);
    put_u32(&mut context, 5);
    context.extend_from_slice(b"Lost.{\"a\":1}");
    let entry = LogEntry {
        level: 4,
        message: "Lost.".into(),
        context: "{\"a\":1}".into(),
    };
    assert_eq!(aside(&context), Some(Aside::Log(entry)));
    assert_eq!(
        decode(&Bytes::from(context.clone())).unwrap(),
        Message::Ignorable
    );
    for end in 0..17 {
        assert_eq!(aside(&context[..end]), None, "cut at {end}");
    }
    context[0] = KIND_RENEW;
    assert_eq!(aside(&context), None);
}

#[test]
fn php_says_what_it_would_write_to_its_log() {
    for (flags, by_php) in [(0, false), (BY_PHP, true)] {
        let mut context = Vec::new();
        put_envelope(&mut context, KIND_MESSAGE, IGNORABLE | flags, 0, 7);
        context.extend_from_slice(b"PHP Warning:  \xff");
        let text = "PHP Warning:  \u{fffd}".into();
        let said = Aside::Logged(Logged { text, by_php });
        assert_eq!(aside(&context), Some(said));
        for end in 0..8 {
            assert_eq!(aside(&context[..end]), None, "cut at {end}");
        }
        assert_eq!(decode(&Bytes::from(context)).unwrap(), Message::Ignorable);
    }
}

#[test]
fn a_worker_is_asked_what_the_time_is_spent_on() {
    for (timed, flags) in [(false, 0), (true, TIMED)] {
        let mut context = Vec::new();
        let call = 1;
        encode_raw(
            &mut context,
            0,
            Envelope {
                call,
                timed,
                ..Envelope::default()
            },
        );
        assert_eq!(context[1], flags);
    }
}

#[test]
fn a_kind_from_the_future_may_be_ignored_when_it_says_so() {
    let mut context = Vec::new();
    put_envelope(&mut context, 0x99, IGNORABLE, 0, 1);
    context.extend_from_slice(b"anything");
    assert_eq!(decode(&Bytes::from(context)).unwrap(), Message::Ignorable);
}

proptest! {
    #[test]
    fn no_bytes_make_the_decoder_panic(data in prop::collection::vec(any::<u8>(), 0..200)) {
        fuzz_decode(&data);
    }

    #[test]
    fn replies_with_one_byte_changed_are_read_or_refused(at in 0_usize..60, to: u8) {
        for vector in vectors().messages.iter().filter(|vector| vector.direction == "to server") {
            let mut context = bytes(&vector.context_hex).to_vec();
            if let Some(byte) = context.get_mut(at) {
                *byte = to;
            }
            fuzz_decode(&context);
        }
    }
}

#[test]
fn the_extension_and_the_package_have_these_numbers() {
    for (file, made) in [
        ("ext/pronghorn/native_numbers.h", numbers::c_header()),
        ("php/worker/src/Internal/Native.php", numbers::php_class()),
    ] {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../..")
            .join(file);
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            std::fs::write(&path, &made).unwrap();
        }
        let there = std::fs::read_to_string(&path).unwrap_or_default();
        assert_eq!(there, made, "UPDATE_GOLDEN=1 writes {file} anew");
    }
}
