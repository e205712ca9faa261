//! Frames and codecs: what a call costs between the HTTP side and a worker's pipe.

use bytes::Bytes;
use divan::{AllocProfiler, Bencher, black_box};
use pronghorn_wire::frame::{Flags, Header, MAX_PAYLOAD, OpenFrame, Stream};
use pronghorn_wire::{Fields, Form, Protocol, ReplyHead, Request, json, native, proto};

/// Allocations are counted beside the time: on the request path each has to have its reason.
#[global_allocator]
static ALLOCATOR: AllocProfiler = AllocProfiler::system();

fn main() {
    divan::main();
}

/// What a browser sends.
const HEADERS: [(&str, &str); 9] = [
    ("host", "example.org:8080"),
    (
        "user-agent",
        "Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0",
    ),
    (
        "accept",
        "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8",
    ),
    ("accept-language", "en-US,en;q=0.5"),
    ("accept-encoding", "gzip, deflate, br"),
    ("connection", "keep-alive"),
    ("referer", "https://example.org/articles?page=2"),
    (
        "cookie",
        "session=0123456789abcdef0123456789abcdef; theme=dark",
    ),
    ("x-request-id", "7f9c2ba4-e88f-4d1a-9d33-7a1f0c9a6f11"),
];

/// Nothing but what HTTP/1.1 asks for, and all that a browser sends.
const FIELDS: [usize; 2] = [1, HEADERS.len()];

fn fields(count: usize) -> Fields {
    HEADERS.into_iter().take(count).collect()
}

fn request<'a>(headers: &'a Fields, attributes: &'a Fields) -> Request<'a> {
    Request {
        method: "GET",
        tls: false,
        authority: "example.org:8080",
        path: b"/articles/42",
        query: Some(b"page=2&sort=date"),
        protocol: Protocol::Http11,
        remote: "192.0.2.1",
        headers,
        attributes,
        accepted_us: 1_700_000_000_000_000,
    }
}

/// Encodes into a buffer that is kept, as a relay's is.
fn encode(bencher: Bencher<'_, '_>, fields: &Fields, encode: impl Fn(&mut Vec<u8>, &Request<'_>)) {
    let none = Fields::new();
    let request = request(fields, &none);
    let mut out = Vec::with_capacity(4096);
    bencher.bench_local(|| {
        out.clear();
        encode(&mut out, black_box(&request));
        out.len()
    });
}

/// Decodes a reply whose context is given.
fn decode<T>(bencher: Bencher<'_, '_>, context: &[u8], decode: impl Fn(&Bytes) -> T) {
    let context = Bytes::copy_from_slice(context);
    bencher.bench_local(|| decode(black_box(&context)));
}

#[divan::bench]
fn frame_encode(bencher: Bencher<'_, '_>) {
    let mut out = Vec::with_capacity(64);
    bencher.bench_local(|| {
        out.clear();
        let frame = OpenFrame::begin(&mut out);
        frame.finish(&mut out, Flags::NATIVE, Stream::END, black_box(12))
    });
}

#[divan::bench]
fn frame_decode(bencher: Bencher<'_, '_>) {
    let mut bytes = Vec::new();
    OpenFrame::begin(&mut bytes)
        .finish(&mut bytes, Flags::NATIVE, Stream::END, 12)
        .expect("a short frame");
    bencher.bench_local(|| Header::decode(black_box(&bytes), MAX_PAYLOAD));
}

#[divan::bench(args = FIELDS)]
fn native_encode(bencher: Bencher<'_, '_>, count: usize) {
    let envelope = native::Envelope {
        call: 1,
        ..native::Envelope::default()
    };
    encode(bencher, &fields(count), |out, request| {
        native::encode_request(out, request, envelope);
    });
}

#[divan::bench(args = FIELDS)]
fn json_encode(bencher: Bencher<'_, '_>, count: usize) {
    encode(bencher, &fields(count), |out, request| {
        json::encode_request(out, request, Form::default());
    });
}

#[divan::bench(args = FIELDS)]
fn proto_encode(bencher: Bencher<'_, '_>, count: usize) {
    encode(bencher, &fields(count), |out, request| {
        proto::encode_request(out, request, Form::default());
    });
}

/// `Content-Type: text/html` and two more, as an application answers.
#[divan::bench]
fn native_decode(bencher: Bencher<'_, '_>) {
    let headers = [
        ("Content-Type", "text/html; charset=utf-8"),
        ("Cache-Control", "private"),
        ("Set-Cookie", "a=b; Path=/"),
    ];
    let mut context = vec![0x81, 0, 200, 0, 1, 0, 0, 0];
    let number = |number: usize| u32::try_from(number).expect("short").to_le_bytes();
    context.extend(number(headers.len()));
    for (name, value) in headers {
        context.extend(number(name.len()));
        context.extend(number(value.len()));
    }
    for (name, value) in headers {
        context.extend(name.bytes().chain(value.bytes()));
    }
    decode(bencher, &context, |context| {
        native::decode(context).expect("a reply");
        native::decode_reply(context).expect("a head")
    });
}

#[divan::bench]
fn json_decode(bencher: Bencher<'_, '_>) {
    let context = br#"{"status":200,"headers":{"Content-Type":["text/html; charset=utf-8"],"Cache-Control":["private"],"Set-Cookie":["a=b; Path=/"]}}"#;
    decode(bencher, context, |context| {
        json::decode_reply(context).expect("a reply")
    });
}

#[divan::bench]
fn proto_decode(bencher: Bencher<'_, '_>) {
    let mut context = b"\x08\xc8\x01".to_vec();
    for (name, value) in [
        ("Content-Type", "text/html; charset=utf-8"),
        ("Cache-Control", "private"),
        ("Set-Cookie", "a=b; Path=/"),
    ] {
        let len = |len: usize| u8::try_from(len).expect("below 128: one byte");
        context.extend([
            0x12,
            len(name.len() + value.len() + 6),
            0x0a,
            len(name.len()),
        ]);
        context.extend(name.bytes());
        context.extend([0x12, len(value.len() + 2), 0x0a, len(value.len())]);
        context.extend(value.bytes());
    }
    decode(bencher, &context, |context| {
        proto::decode_reply(context).expect("a reply")
    });
}

/// Looks at each field of a reply before it is sent.
#[divan::bench]
fn check_reply(bencher: Bencher<'_, '_>) {
    let head = ReplyHead {
        status: 200,
        headers: fields(HEADERS.len()),
    };
    bencher.bench_local(|| black_box(&head).check().is_ok());
}
