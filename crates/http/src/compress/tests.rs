//! Responses before and after.

use std::future::poll_fn;
use std::task::Poll;

use pronghorn_pool::{Lead, Piece, pieces};
use pronghorn_serve::{Read, Reader};

use super::encoder::testing::{LEVELS, decoded};
use super::*;

fn compressor() -> Compressor {
    Compressor {
        codings: vec![Coding::Zstd, Coding::Brotli, Coding::Gzip],
        levels: LEVELS,
        min_size: 1024,
        types: TypePattern::defaults(),
    }
}

fn html(body: Body, fields: &[(&str, &str)]) -> Response {
    let mut response = Response::new(200, body);
    response.fields.push("Content-Type", "text/html");
    for (name, value) in fields {
        response.fields.push(name, value);
    }
    response
}

fn long() -> Body {
    Body::Whole("hello ".repeat(1000).into())
}

fn sent(request: &[(&str, &str)], response: Response) -> Response {
    let compressor = compressor();
    let wish = compressor.wish("GET", &request.iter().copied().collect());
    compressor.apply(&wish, response, || true)
}

fn field<'a>(response: &'a Response, name: &str) -> Option<&'a str> {
    let value = response.fields.get(name)?;
    Some(std::str::from_utf8(value).unwrap())
}

const GZIP: &[(&str, &str)] = &[("accept-encoding", "gzip")];

#[test]
fn a_compressed_response_says_what_it_is() {
    let fields = [
        ("ETag", "\"a\""),
        ("Content-Length", "6000"),
        ("Accept-Ranges", "bytes"),
    ];
    let response = sent(GZIP, html(long(), &fields));
    assert_eq!(field(&response, "content-encoding"), Some("gzip"));
    assert_eq!(field(&response, "vary"), Some("Accept-Encoding"));
    assert_eq!(field(&response, "etag"), Some("W/\"a\""));
    assert_eq!(field(&response, "content-length"), None);
    assert_eq!(field(&response, "accept-ranges"), None);
    let Body::Whole(bytes) = response.body else {
        panic!("{:?}", response.body);
    };
    assert_eq!(
        decoded(Coding::Gzip, &bytes),
        "hello ".repeat(1000).as_bytes()
    );

    let best = sent(&[("accept-encoding", "gzip, br, zstd")], html(long(), &[]));
    assert_eq!(field(&best, "content-encoding"), Some("zstd"));
    let weak = sent(GZIP, html(long(), &[("ETag", "W/\"a\"")]));
    assert_eq!(field(&weak, "etag"), Some("W/\"a\""));
    let varies = sent(GZIP, html(long(), &[("Vary", "Cookie, accept-encoding")]));
    assert_eq!(varies.fields.all("vary").count(), 1);
}

#[test]
fn who_takes_no_coding_is_told_that_there_are_some() {
    let response = sent(&[], html(long(), &[("ETag", "\"a\"")]));
    assert_eq!(field(&response, "content-encoding"), None);
    assert_eq!(field(&response, "vary"), Some("Accept-Encoding"));
    assert_eq!(field(&response, "etag"), Some("\"a\""));
}

#[test]
fn what_stays_as_it_is() {
    let random: Vec<u8> = (0..2000).map(|_| fastrand::u8(..)).collect();
    let mut part = html(long(), &[("Content-Range", "bytes 0-5999/7000")]);
    part.status = 206;
    let mut image = Response::new(200, long());
    image.fields.push("Content-Type", "image/png");
    for (response, varies) in [
        (html(Body::Whole("short".into()), &[]), false),
        (html(long(), &[("Content-Encoding", "br")]), false),
        (
            html(long(), &[("Cache-Control", "private, No-Transform")]),
            false,
        ),
        (part, true),
        (image, false),
        (Response::new(200, long()), false),
        (html(Body::Whole(random.into()), &[]), true),
    ] {
        let before = response.fields.get("content-encoding").map(<[u8]>::to_vec);
        let len = response.body.known_len();
        let after = sent(GZIP, response);
        let encoding = after.fields.get("content-encoding").map(<[u8]>::to_vec);
        assert_eq!((encoding, after.body.known_len()), (before, len));
        assert_eq!(after.fields.get("vary").is_some(), varies, "{after:?}");
    }
}

#[test]
fn a_known_response_keeps_the_tag_by_which_it_is_known() {
    let not_modified = || {
        let mut response = Response::new(304, Body::Empty);
        response.fields.push("ETag", "\"a\"");
        response
    };
    let ask = |tag| {
        sent(
            &[("accept-encoding", "gzip"), ("if-none-match", tag)],
            not_modified(),
        )
    };
    assert_eq!(field(&ask("\"b\", W/\"a\""), "etag"), Some("W/\"a\""));
    assert_eq!(field(&ask("\"a\""), "etag"), Some("\"a\""));
    let plain = sent(&[("if-none-match", "W/\"a\"")], not_modified());
    assert_eq!(field(&plain, "etag"), Some("\"a\""));
}

/// A cache puts the fields of a 304, and of the parts, into what it keeps.
#[test]
fn a_part_and_a_known_response_vary_as_the_whole() {
    let html = ("Content-Type", "text/html");
    let image = ("Content-Type", "image/png");
    let parts = ("Content-Type", "multipart/byteranges; boundary=x");
    let fixed = ("Cache-Control", "no-transform");
    for status in [206, 304] {
        for (fields, varies) in [
            // The type may have been kept back.
            (&[("ETag", "\"a\"")][..], true),
            (&[html], true),
            (&[parts], true),
            (&[html, ("Content-Range", "bytes 0-1/2000")], true),
            (&[html, ("Content-Range", "bytes 0-1/200")], false),
            (&[image], false),
            (&[html, fixed], false),
            (&[html, ("Content-Encoding", "br")], false),
        ] {
            for request in [&[], GZIP, &[("if-none-match", "\"a\"")]] {
                let mut response = Response::new(status, Body::Empty);
                response.fields = fields.iter().copied().collect();
                let after = sent(request, response);
                let is_said = field(&after, "vary").is_some();
                assert_eq!(is_said, varies, "{status} {fields:?} {request:?}");
            }
        }
    }
}

#[test]
fn head_says_what_get_would() {
    let compressor = compressor();
    let wish = compressor.wish("HEAD", &GZIP.iter().copied().collect());
    let response = compressor.apply(&wish, html(long(), &[]), || false);
    assert_eq!(field(&response, "content-encoding"), Some("gzip"));
    assert_eq!(
        response.body.known_len(),
        None,
        "it is not compressed to be counted"
    );
}

#[tokio::test]
async fn a_stream_is_sent_as_it_comes() {
    let (sender, pieces) = pieces();
    let body = Body::Pieces { pieces, len: None };
    let response = sent(GZIP, html(body, &[]));
    assert_eq!(field(&response, "content-encoding"), Some("gzip"));
    let mut reader = Reader::new(response.body);
    let mut sent = Vec::new();
    for event in ["data: 1\n\n", "data: 2\n\n"] {
        sender
            .try_put(Bytes::from(event).into(), Lead::Long)
            .unwrap();
        // All there is comes now, and then nothing until there is more.
        loop {
            match poll_fn(|cx| Poll::Ready(reader.poll_next(cx))).await {
                Poll::Ready(Read::Bytes(bytes)) => sent.extend_from_slice(&bytes),
                Poll::Ready(other) => panic!("{other:?}"),
                Poll::Pending => break,
            }
        }
        assert!(decoded(Coding::Gzip, &sent).ends_with(event.as_bytes()));
    }
    sender.put_last(Piece::End);
    while let Read::Bytes(bytes) = poll_fn(|cx| reader.poll_next(cx)).await {
        sent.extend_from_slice(&bytes);
    }
    assert_eq!(decoded(Coding::Gzip, &sent), b"data: 1\n\ndata: 2\n\n");
}

#[tokio::test]
async fn long_pieces_and_broken_streams() {
    for coding in ["gzip", "br", "zstd"] {
        let text = "0123456789".repeat(INLINE);
        let body = Body::Whole(text.clone().into());
        let response = sent(&[("accept-encoding", coding)], html(body, &[]));
        let mut reader = Reader::new(response.body);
        let mut sent = Vec::new();
        while let Read::Bytes(bytes) = poll_fn(|cx| reader.poll_next(cx)).await {
            sent.extend_from_slice(&bytes);
        }
        let coding = Coding::by_name(coding.as_bytes()).unwrap();
        assert!(decoded(coding, &sent) == text.as_bytes(), "{coding:?}");
    }
    let (sender, pieces) = pieces();
    sender
        .try_put(Bytes::from("begun").into(), Lead::Long)
        .unwrap();
    drop(sender);
    let body = Body::Pieces { pieces, len: None };
    let mut reader = Reader::new(sent(GZIP, html(body, &[])).body);
    let end = loop {
        match poll_fn(|cx| reader.poll_next(cx)).await {
            Read::Bytes(_) => {}
            end => break end,
        }
    };
    assert!(matches!(end, Read::Broken), "it must not look whole");
}
