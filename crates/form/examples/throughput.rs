//! How fast the parser is: `cargo run --release -p pronghorn-form --example throughput`.

#![expect(
    clippy::cast_precision_loss,
    clippy::disallowed_types,
    clippy::print_stdout,
    reason = "it measures and prints"
)]

use std::time::Instant;

use pronghorn_form::multipart::{Event, Parser};
use pronghorn_form::{Boundary, Limits, tree};

const BOUNDARY: &str = "----WebKitFormBoundaryx3nHd9sYgBq7LkPw";
/// As much as one read of a socket brings.
const PIECE: usize = 64 << 10;

fn main() {
    let size = 100 << 20;
    report(
        "random-like bytes",
        &upload((0..size).map(|n: u32| (n.wrapping_mul(2_654_435_761) >> 24) as u8)),
    );
    report(
        "text in lines",
        &upload((0..size).map(|n| if n % 80 == 0 { b'\n' } else { b'x' })),
    );
    report(
        "line ends only",
        &upload((0..size).map(|n| if n % 2 == 0 { b'\r' } else { b'\n' })),
    );
    let almost = BOUNDARY.strip_suffix('w').expect("its last letter");
    let beginning = format!("\r\n--{almost}").into_bytes();
    report(
        "almost boundaries only",
        &upload(beginning.iter().copied().cycle().take(size as usize)),
    );

    let field =
        format!("--{BOUNDARY}\r\nContent-Disposition: form-data; name=\"a[b][]\"\r\n\r\nvalue\r\n");
    report(
        "a hundred small fields",
        &close(field.repeat(100).into_bytes()),
    );

    let body = vec!["name[key][]=some+value%21"; 1_000].join("&");
    let start = Instant::now();
    let mut json = Vec::new();
    for _ in 0..100 {
        json.clear();
        tree::write_urlencoded(body.as_bytes(), &Limits::default(), &mut json)
            .expect("it is well-formed");
    }
    println!(
        "urlencoded, 1,000 fields to JSON: {:.0} µs",
        start.elapsed().as_secs_f64() * 1e4
    );
}

fn upload(content: impl Iterator<Item = u8>) -> Vec<u8> {
    let head = "Content-Disposition: form-data; name=\"f\"; filename=\"big\"\r\n\r\n";
    let mut body = format!("--{BOUNDARY}\r\n{head}").into_bytes();
    body.extend(content);
    body.extend_from_slice(b"\r\n");
    close(body)
}

fn close(mut body: Vec<u8>) -> Vec<u8> {
    body.extend_from_slice(format!("--{BOUNDARY}--\r\n").as_bytes());
    body
}

fn report(what: &str, body: &[u8]) {
    let boundary = Boundary::new(BOUNDARY.as_bytes()).expect("it is a good one");
    let rounds = (50 << 20) / body.len() + 1;
    let start = Instant::now();
    let mut content = 0;
    for _ in 0..rounds {
        let mut parser = Parser::new(&boundary, Limits::default());
        for mut piece in body.chunks(PIECE) {
            while let Some(event) = parser.next(&mut piece).expect("it is well-formed") {
                if let Event::Data(data) = event {
                    content += data.len();
                }
            }
        }
        parser.finish().expect("it is complete");
    }
    let seconds = start.elapsed().as_secs_f64();
    let megabytes = (body.len() * rounds) as f64 / 1e6;
    println!(
        "{what}: {:.0} MB/s, {:.1} µs a body, {content} bytes of content",
        megabytes / seconds,
        seconds / rounds as f64 * 1e6
    );
}
