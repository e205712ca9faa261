//! Heads: reading a request's, writing a reply's.

use std::time::Duration;

use bytes::BytesMut;
use divan::{AllocProfiler, Bencher, black_box};
use pronghorn_h1::{BodySize, Connection, Limits, Received, RequestHead, Response};
use pronghorn_wire::Fields;

/// Allocations are counted beside the time: on the request path each has to have its reason.
#[global_allocator]
static ALLOCATOR: AllocProfiler = AllocProfiler::system();

fn main() {
    divan::main();
}

const SHORT: &str = "GET /hello HTTP/1.1\r\nHost: example.org\r\n\r\n";
const BROWSER: &str = "GET /articles/42?page=2&sort=date HTTP/1.1\r\n\
    Host: example.org:8080\r\n\
    User-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0\r\n\
    Accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8\r\n\
    Accept-Language: en-US,en;q=0.5\r\n\
    Accept-Encoding: gzip, deflate, br\r\n\
    Connection: keep-alive\r\n\
    Referer: https://example.org/articles?page=2\r\n\
    Cookie: session=0123456789abcdef0123456789abcdef; theme=dark\r\n\
    X-Request-Id: 7f9c2ba4-e88f-4d1a-9d33-7a1f0c9a6f11\r\n\r\n";
const DATE: &[u8] = b"Sat, 21 Nov 2026 20:00:00 GMT";

#[derive(Debug)]
enum Text {
    Short,
    Browser,
}

impl Text {
    fn bytes(&self) -> &'static [u8] {
        match self {
            Self::Short => SHORT.as_bytes(),
            Self::Browser => BROWSER.as_bytes(),
        }
    }
}

fn receive(connection: &mut Connection, input: &mut BytesMut) -> RequestHead {
    match connection.receive(input, Duration::ZERO) {
        Ok(Some(Received::Head(head))) => *head,
        other => unreachable!("a whole head was given: {other:?}"),
    }
}

/// From bytes to a head, and on to the next request.
#[divan::bench(args = [Text::Short, Text::Browser])]
fn head(bencher: Bencher<'_, '_>, text: &Text) {
    let mut connection = Connection::new(Limits::default(), Duration::ZERO);
    let mut input = BytesMut::with_capacity(4096);
    bencher.bench_local(|| {
        input.extend_from_slice(black_box(text.bytes()));
        let head = receive(&mut connection, &mut input);
        let end = connection.receive(&mut input, Duration::ZERO);
        (head, end.is_ok(), connection.finish(Duration::ZERO))
    });
}

/// A head that comes byte by byte must be read once and not once per byte.
#[divan::bench]
fn head_byte_by_byte(bencher: Bencher<'_, '_>) {
    let mut input = BytesMut::with_capacity(4096);
    bencher.bench_local(|| {
        let mut connection = Connection::new(Limits::default(), Duration::ZERO);
        input.clear();
        for byte in black_box(BROWSER.as_bytes()) {
            input.extend_from_slice(&[*byte]);
            if let Ok(Some(received)) = connection.receive(&mut input, Duration::ZERO) {
                return Some(received);
            }
        }
        None
    });
}

/// The head of a reply into a buffer that is kept.
#[divan::bench(args = [1, 4, 16])]
fn response(bencher: Bencher<'_, '_>, count: usize) {
    let mut connection = Connection::new(Limits::default(), Duration::ZERO);
    let request = receive(&mut connection, &mut BytesMut::from(SHORT));
    let fields: Fields = [("Content-Type", "text/html; charset=utf-8")]
        .into_iter()
        .chain(std::iter::repeat(("X-Frame-Options", "SAMEORIGIN")))
        .take(count)
        .collect();
    let mut out = Vec::with_capacity(4096);
    bencher.bench_local(|| {
        out.clear();
        let mut response = Response::new(&request, true);
        response.head(&mut out, 200, black_box(&fields), BodySize::Known(12), DATE);
        response
    });
}

/// What surrounds a chunk.
#[divan::bench]
fn chunk(bencher: Bencher<'_, '_>) {
    let mut connection = Connection::new(Limits::default(), Duration::ZERO);
    let request = receive(&mut connection, &mut BytesMut::from(SHORT));
    let mut response = Response::new(&request, true);
    let none = Fields::new();
    response.head(&mut Vec::new(), 200, &none, BodySize::Unknown, DATE);
    bencher.bench_local(|| response.piece(black_box(16_384)));
}
