use std::time::Duration;

use bytes::BytesMut;
use pronghorn_wire::Fields;

use crate::{BodySize, Connection, Limits, Received, RequestHead, Response, interim};

const DATE: &[u8] = b"Sat, 21 Nov 2026 20:00:00 GMT";

fn request(line: &str, fields: &str) -> RequestHead {
    let mut input = BytesMut::from(format!("{line}\r\nHost: h\r\n{fields}\r\n").as_bytes());
    let mut connection = Connection::new(Limits::default(), Duration::ZERO);
    match connection.receive(&mut input, Duration::ZERO) {
        Ok(Some(Received::Head(head))) => *head,
        other => panic!("{other:?}"),
    }
}

fn get() -> RequestHead {
    request("GET / HTTP/1.1", "")
}

fn fields(fields: &[(&str, &str)]) -> Fields {
    fields.iter().copied().collect()
}

fn end(response: &mut Response) -> Vec<u8> {
    let mut out = Vec::new();
    response.end(&mut out, &Fields::new());
    out
}

/// The head as text, without its first line and the Date.
fn head(response: &mut Response, status: u16, with: &[(&str, &str)], size: BodySize) -> String {
    let mut out = Vec::new();
    response.head(&mut out, status, &fields(with), size, DATE);
    let text = String::from_utf8(out).unwrap();
    let (_, rest) = text.split_once("\r\n").unwrap();
    let date = format!("Date: {}\r\n", std::str::from_utf8(DATE).unwrap());
    rest.replacen(&date, "", 1)
        .strip_suffix("\r\n")
        .unwrap()
        .replace("\r\n", "|")
}

#[test]
fn a_whole_body_gets_its_own_length_whatever_was_announced() {
    for announced in [
        vec![],
        vec![("Content-Length", "3")],
        vec![("content-length", "999")],
    ] {
        let mut response = Response::new(&get(), true);
        assert_eq!(
            head(&mut response, 200, &announced, BodySize::Known(5)),
            "Content-Length: 5|"
        );
        assert_eq!(response.piece(5).take, 5);
        assert_eq!(end(&mut response), b"");
        assert!(response.keeps_alive());
    }
}

#[test]
fn the_fields_keep_their_order_and_those_of_the_connection_are_left_out() {
    let with = [
        ("X-B", "2"),
        ("Connection", "keep-alive"),
        ("Set-Cookie", "a"),
        ("Transfer-Encoding", "gzip"),
        ("Set-Cookie", "b"),
        ("Upgrade", "h2c"),
        ("Keep-Alive", "timeout=5"),
        ("TE", "x"),
        ("X-A", "1"),
    ];
    let mut response = Response::new(&get(), true);
    let head = head(&mut response, 200, &with, BodySize::Known(0));
    assert_eq!(
        head,
        "X-B: 2|Set-Cookie: a|Set-Cookie: b|X-A: 1|Content-Length: 0|"
    );
}

#[test]
fn a_date_of_the_application_is_kept() {
    let mut out = Vec::new();
    let own = fields(&[("date", "yesterday")]);
    Response::new(&get(), true).head(&mut out, 200, &own, BodySize::Known(0), DATE);
    let text = String::from_utf8(out).unwrap();
    assert_eq!(text.to_lowercase().matches("date:").count(), 1);
    assert!(text.contains("yesterday"));
}

#[test]
fn pieces_of_unknown_length_are_chunked() {
    let mut response = Response::new(&get(), true);
    assert_eq!(
        head(&mut response, 200, &[], BodySize::Unknown),
        "Transfer-Encoding: chunked|"
    );
    for (len, size) in [
        (1, "1\r\n"),
        (15, "f\r\n"),
        (16, "10\r\n"),
        (255, "ff\r\n"),
        (1 << 20, "100000\r\n"),
    ] {
        let piece = response.piece(len);
        assert_eq!(
            (piece.before.as_ref(), piece.take, piece.after),
            (size.as_bytes(), len, &b"\r\n"[..])
        );
    }
    let nothing = response.piece(0);
    assert_eq!(
        (nothing.before.as_ref(), nothing.after),
        (&b""[..], &b""[..]),
        "an empty chunk would end the body"
    );
    assert_eq!(end(&mut response), b"0\r\n\r\n");
    assert!(response.keeps_alive());
}

#[test]
fn http_1_0_gets_the_end_of_the_connection() {
    let mut response = Response::new(
        &request("GET / HTTP/1.0", "Connection: keep-alive\r\n"),
        true,
    );
    assert_eq!(
        head(&mut response, 200, &[], BodySize::Unknown),
        "Connection: close|"
    );
    assert_eq!(response.piece(5).before.as_ref(), b"");
    assert!(!response.keeps_alive());
    let mut response = Response::new(
        &request("GET / HTTP/1.0", "Connection: keep-alive\r\n"),
        true,
    );
    assert_eq!(
        head(&mut response, 200, &[], BodySize::Known(5)),
        "Content-Length: 5|Connection: keep-alive|"
    );
    assert!(response.keeps_alive());
}

#[test]
fn a_stream_that_announced_its_length_is_held_to_it() {
    let announced = [("Content-Length", "5")];
    let start = || {
        let mut response = Response::new(&get(), true);
        assert_eq!(
            head(&mut response, 200, &announced, BodySize::Unknown),
            "Content-Length: 5|"
        );
        response
    };
    let mut right = start();
    assert_eq!(
        (right.piece(3).take, right.piece(2).take, end(&mut right)),
        (3, 2, Vec::new())
    );
    assert!(right.keeps_alive());
    let mut short = start();
    assert_eq!((short.piece(4).take, end(&mut short)), (4, Vec::new()));
    assert!(short.is_broken() && !short.is_too_long() && !short.keeps_alive());
    let mut long = start();
    assert_eq!((long.piece(4).take, long.piece(4).take), (4, 1));
    assert_eq!((long.is_complete(), end(&mut long)), (true, Vec::new()));
    assert!(long.is_too_long() && !long.is_broken() && !long.keeps_alive());
}

#[test]
fn a_body_that_breaks_off_ends_the_connection() {
    let mut response = Response::new(&get(), true);
    head(&mut response, 200, &[], BodySize::Unknown);
    response.abort();
    assert_eq!(end(&mut response), b"", "an end would make it look whole");
    assert!(!response.keeps_alive());
}

#[test]
fn head_gets_the_length_but_no_body() {
    let to_head = || Response::new(&request("HEAD / HTTP/1.1", ""), true);
    let mut response = to_head();
    assert_eq!(
        head(&mut response, 200, &[], BodySize::Known(5)),
        "Content-Length: 5|"
    );
    assert_eq!(
        (
            response.sends_body(),
            response.piece(5).take,
            end(&mut response)
        ),
        (false, 0, Vec::new())
    );
    let announced = [("Content-Length", "7")];
    assert_eq!(
        head(&mut to_head(), 200, &announced, BodySize::Known(0)),
        "Content-Length: 7|"
    );
    assert_eq!(head(&mut to_head(), 200, &[], BodySize::Known(0)), "");
    assert_eq!(head(&mut to_head(), 200, &[], BodySize::Unknown), "");
}

#[test]
fn statuses_without_body_have_no_length() {
    for status in [204, 304] {
        let mut response = Response::new(&get(), true);
        assert_eq!(
            head(
                &mut response,
                status,
                &[("Content-Length", "5")],
                BodySize::Known(5)
            ),
            ""
        );
        assert_eq!((response.sends_body(), response.piece(5).take), (false, 0));
        assert!(response.keeps_alive());
    }
}

#[test]
fn a_reset_has_no_body_and_says_so() {
    for size in [BodySize::Known(5), BodySize::Unknown] {
        let mut response = Response::new(&get(), true);
        let said = head(&mut response, 205, &[("Content-Length", "5")], size);
        assert_eq!(said, "Content-Length: 0|");
        assert_eq!((response.sends_body(), response.piece(5).take), (false, 0));
        assert!(response.keeps_alive());
    }
}

#[test]
fn either_side_can_end_the_connection() {
    let ends = |request: &RequestHead, keep: bool, with: &[(&str, &str)]| {
        let mut response = Response::new(request, keep);
        let head = head(&mut response, 200, with, BodySize::Known(0));
        assert_eq!(head.contains("Connection: close"), !response.keeps_alive());
        !response.keeps_alive()
    };
    assert!(!ends(&get(), true, &[]));
    assert!(ends(&get(), false, &[]));
    assert!(ends(
        &request("GET / HTTP/1.1", "Connection: close\r\n"),
        true,
        &[]
    ));
    assert!(ends(&get(), true, &[("connection", "x, Close")]));
    assert!(!ends(&get(), true, &[("connection", "keep-alive")]));
}

#[test]
fn what_cannot_be_read_is_answered_and_closed() {
    let mut response = Response::to_unreadable();
    assert_eq!(
        head(&mut response, 400, &[], BodySize::Known(3)),
        "Content-Length: 3|Connection: close|"
    );
}

#[test]
fn interim_replies_have_no_date_and_no_length() {
    let mut out = Vec::new();
    interim(&mut out, 100, &Fields::new());
    interim(
        &mut out,
        103,
        &fields(&[("Link", "</a>; rel=preload"), ("Content-Length", "5")]),
    );
    assert_eq!(
        out,
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>; rel=preload\r\n\r\n"
    );
}

#[test]
fn the_status_line_names_the_status() {
    let line = |status| {
        let mut out = Vec::new();
        Response::new(&get(), true).head(
            &mut out,
            status,
            &Fields::new(),
            BodySize::Known(0),
            DATE,
        );
        String::from_utf8(out)
            .unwrap()
            .lines()
            .next()
            .unwrap()
            .to_owned()
    };
    assert_eq!(line(200), "HTTP/1.1 200 OK");
    assert_eq!(line(404), "HTTP/1.1 404 Not Found");
    assert_eq!(line(599), "HTTP/1.1 599 ");
}

#[test]
fn fields_that_the_reply_names_as_trailers_follow_its_body() {
    let with = fields(&[
        ("Trailer", "X-Checksum, x-time,Content-Length,Vary,Missing"),
        ("X-Checksum", "abc"),
        ("Vary", "Accept"),
        ("X-Time", "3"),
        ("X-Other", "1"),
    ]);
    let pairs = [
        ("Trailer", "X-Checksum, x-time,Content-Length,Vary,Missing"),
        ("X-Checksum", "abc"),
        ("Vary", "Accept"),
        ("X-Time", "3"),
        ("X-Other", "1"),
    ];
    for size in [BodySize::Known(2), BodySize::Unknown] {
        let mut response = Response::new(&get(), true);
        assert_eq!(
            head(&mut response, 200, &pairs, size),
            "Vary: Accept|X-Other: 1|Transfer-Encoding: chunked|"
        );
        assert_eq!(response.piece(2).before.as_ref(), b"2\r\n");
        let mut out = Vec::new();
        response.end(&mut out, &with);
        assert_eq!(out, b"0\r\nX-Checksum: abc\r\nX-Time: 3\r\n\r\n");
        assert!(response.keeps_alive());
    }
    for (line, status) in [("HEAD / HTTP/1.1", 200), ("GET / HTTP/1.1", 304)] {
        let mut response = Response::new(&request(line, ""), true);
        head(&mut response, status, &pairs, BodySize::Known(2));
        assert_eq!(response.trailers(&with).count(), 0);
        assert_eq!(end(&mut response), b"", "{line} {status}");
    }
    // HTTP/1.0 has no place for them.
    let mut old = Response::new(&request("GET / HTTP/1.0", ""), true);
    assert_eq!(
        head(&mut old, 200, &pairs, BodySize::Known(2)),
        "Vary: Accept|X-Other: 1|Content-Length: 2|Connection: close|"
    );
    assert_eq!(end(&mut old), b"");
}
