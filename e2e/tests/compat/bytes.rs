//! Whether the stand-in of `fixtures/foreign` sends what the official packages send: both get the
//! same calls, and what they write is compared byte for byte.

use std::path::Path;
use std::process::Stdio;

use pronghorn_testkit::{Site, php_command};
use pronghorn_wire::frame::{Flags, Header, MAX_PAYLOAD, OpenFrame, Stream, encode_plain};
use pronghorn_wire::{Codec, Fields, Form, Protocol, Request, json, proto};

use crate::serving::{codecs, worker};

#[test]
fn the_stand_in_sends_what_the_packages_send() {
    for (codec, old) in codecs() {
        let release = if old { "3.4" } else { "" };
        let site = Site::new();
        let once = site.path("asked-to-stop");
        let said = |worker: &Path| {
            _ = std::fs::remove_file(&once); // the first run has none
            answers(worker, release, &calls(codec, &once))
        };
        let (ours, theirs) = (said(&Site::fixture("foreign/worker.php")), said(&worker()));
        assert!(theirs.len() > 40, "{codec}: {theirs:#?}");
        for (ours, theirs) in ours.iter().zip(&theirs) {
            assert_eq!(ours, theirs, "{codec}");
        }
        assert_eq!(ours.len(), theirs.len(), "{codec}");
    }
}

/// What a server sends, all of it: what it says to a stream lies behind the call when the worker
/// looks for it.
fn calls(codec: &str, once: &Path) -> Vec<u8> {
    let mut out = Vec::new();
    let control = |out: &mut Vec<u8>, text: &[u8]| {
        encode_plain(out, Flags::CONTROL.with(Flags::JSON), Stream::END, text);
    };
    let about_stream = |out: &mut Vec<u8>, stream| encode_plain(out, Flags::NONE, stream, b"");
    let stop_instead = format!("/stop-instead?once={}", once.display());
    control(&mut out, br#"{"pid":1,"native":1}"#);
    for target in [
        "/",
        "/show?a=1",
        "/headers?status=201",
        "/headers?status=304",
    ] {
        call(&mut out, codec, target, None);
    }
    call(&mut out, codec, "/show", Some("{\"name\":\"Zo\u{eb}\"}"));
    for target in ["/psr", "/psr?chunk=3", "/psr?chunk=50", "/psr?chunk=200"] {
        call(&mut out, codec, target, None);
        if target.ends_with('3') {
            // 34 pieces; the worker asks with every fifth one but those while it waits for an
            // answer.
            (0..6).for_each(|_| about_stream(&mut out, Stream::PONG));
        }
    }
    for target in ["/stream?pieces=1", "/stream?pieces=5", "/stream?pieces=6"] {
        call(&mut out, codec, target, None);
    }
    call(&mut out, codec, "/stream?pieces=8", None);
    about_stream(&mut out, Stream::PONG);
    call(&mut out, codec, "/endless", None);
    about_stream(&mut out, Stream::STOP);
    for target in [
        "/breaks",
        "/hints",
        "/print",
        "/error",
        "/twice",
        &stop_instead,
        "/nowhere",
    ] {
        call(&mut out, codec, target, None);
    }
    // Too late for the stream that it was for.
    about_stream(&mut out, Stream::STOP);
    about_stream(&mut out, Stream::PONG);
    control(&mut out, br#"{"pid":1}"#);
    call(&mut out, codec, "/", None);
    control(&mut out, br#"{"stop":true}"#);
    out
}

fn call(out: &mut Vec<u8>, codec: &str, target: &str, form: Option<&str>) {
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let mut headers = Fields::new();
    headers.push("x-many", "1");
    headers.push("x-many", "2");
    headers.push("cookie", "a=b; c=d%20e");
    let request = Request {
        method: "POST",
        tls: false,
        authority: "example.org:81",
        path: path.as_bytes(),
        query: Some(query.as_bytes()),
        protocol: Protocol::Http11,
        remote: "127.0.0.1",
        headers: &headers,
        attributes: &Fields::new(),
        accepted_us: 0,
    };
    let parsed = Form {
        parsed: form.is_some(),
        uploads: None,
    };
    let body = form.unwrap_or("some text");
    let frame = OpenFrame::begin(out);
    let codec = if codec == "proto" {
        proto::encode_request(out, &request, parsed);
        Codec::Proto
    } else {
        json::encode_request(out, &request, parsed);
        Codec::Json
    };
    frame
        .finish(out, codec.flag(), Stream::END, body.len())
        .expect("it is short");
    out.extend_from_slice(body.as_bytes());
}

/// The frames that a worker writes, but for the numbers of processes in them.
fn answers(worker: &Path, release: &str, calls: &[u8]) -> Vec<String> {
    let site = Site::new();
    std::fs::write(site.path("calls"), calls).expect("a file can be written");
    let input = std::fs::File::open(site.path("calls")).expect("it was just written");
    let ran = php_command("php")
        .arg(worker)
        .env("RR_RELAY", "pipes")
        .env("RR_MODE", "http")
        .env("FOREIGN_RELEASE", release)
        .stdin(input)
        .stderr(Stdio::inherit())
        .output()
        .expect("php runs");
    assert!(ran.status.success(), "{}: {}", worker.display(), ran.status);
    let mut frames = Vec::new();
    let mut left = ran.stdout.as_slice();
    while let Some(header) = Header::decode(left, MAX_PAYLOAD).expect("a frame") {
        let (frame, rest) = left.split_at(header.len() + header.payload as usize);
        frames.push(if header.flags.has(Flags::CONTROL) {
            format!("control {:02x}", header.flags.0)
        } else {
            frame.escape_ascii().to_string()
        });
        left = rest;
    }
    assert!(left.is_empty(), "{}", left.escape_ascii());
    frames
}
