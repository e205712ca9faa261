use std::time::Duration;

use bytes::BytesMut;
use proptest::prelude::*;
use serde_json::Value;

use crate::{Connection, Expiry, Limits, Received, Refusal, RequestHead, Version, fuzz_connection};

const AT: Duration = Duration::ZERO;

fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

fn connection() -> Connection {
    Connection::new(Limits::default(), AT)
}

fn head(input: &[u8]) -> Result<RequestHead, Refusal> {
    let mut bytes = BytesMut::from(input);
    match connection().receive(&mut bytes, AT)? {
        Some(Received::Head(head)) => Ok(*head),
        other => panic!("{other:?} for {}", input.escape_ascii()),
    }
}

/// The bodies of all requests in `input`, or why one was refused.
fn bodies(input: &[u8]) -> Result<Vec<Vec<u8>>, Refusal> {
    let (mut connection, mut bytes) = (connection(), BytesMut::from(input));
    let mut bodies = Vec::new();
    while let Some(received) = connection.receive(&mut bytes, AT)? {
        match received {
            Received::Head(_) => bodies.push(Vec::new()),
            Received::Body(len) => bodies
                .last_mut()
                .unwrap()
                .extend_from_slice(&bytes.split_to(len)),
            Received::End => assert!(connection.finish(AT)),
        }
    }
    Ok(bodies)
}

#[test]
fn a_head_is_split_into_its_parts() {
    let head = head(b"POST /a%20b//../c;d?x=1?y=%zz HTTP/1.1\r\nHost: Example.org:8080\r\nX-A:1\r\nx-a: \t2 \t\r\n\r\n").unwrap();
    assert_eq!(head.method(), "POST");
    assert_eq!(head.path(), b"/a%20b//../c;d");
    assert_eq!(head.query(), Some(&b"x=1?y=%zz"[..]));
    assert_eq!(head.authority(), "Example.org:8080");
    assert_eq!(head.version(), Version::Http11);
    let fields: Vec<_> = head.fields().iter().collect();
    assert_eq!(
        fields,
        [
            (&b"host"[..], &b"Example.org:8080"[..]),
            (b"x-a", b"1"),
            (b"x-a", b"2")
        ]
    );
}

#[test]
fn a_target_may_hold_bytes_of_any_encoding() {
    for (line, path, query) in [
        (&b"GET /\xe9"[..], &b"/\xe9"[..], None),
        (b"GET /\xc3\xa9", b"/\xc3\xa9", None),
        (b"GET /a?q=\xe9&\xff", b"/a", Some(&b"q=\xe9&\xff"[..])),
        (
            b"GET /\xc3\xa9\xe9/\x80?~",
            b"/\xc3\xa9\xe9/\x80",
            Some(b"~"),
        ),
        (b"GET http://h/\xfc#\xe9", b"/\xfc", None),
        (b"GET /\xc3?\xa9", b"/\xc3", Some(b"\xa9")),
    ] {
        let whole = [line, b" HTTP/1.1\r\nHost: h\r\nX-A: \xe9\r\n\r\n"].concat();
        let head = head(&whole).unwrap();
        let shown = line.escape_ascii();
        assert_eq!((head.path(), head.query()), (path, query), "{shown}");
        assert_eq!(head.authority(), "h", "{shown}");
        assert_eq!(head.fields().get("x-a"), Some(&b"\xe9"[..]), "{shown}");
    }
    for bad in [
        &b"G\xe9T / HTTP/1.1\r\nHost: h\r\n\r\n"[..],
        b"G\xe9T /\xe9 HTTP/1.1\r\nHost: h\r\n\r\n",
        b"GET \xe9 HTTP/1.1\r\nHost: h\r\n\r\n",
        b"GET /\xe9\x01 HTTP/1.1\r\nHost: h\r\n\r\n",
        b"GET /\xe9 \xe9 HTTP/1.1\r\nHost: h\r\n\r\n",
        b"GET /\xe9 HTTP/1.\xe9\r\nHost: h\r\n\r\n",
        b"GET http://\xe9/ HTTP/1.1\r\nHost: h\r\n\r\n",
        b"GET /\xe9 HTTP/1.1\r\nH\xe9st: h\r\n\r\n",
        b"GET /\xe9 HTTP/1.1\r\n\r\n",
    ] {
        assert!(head(bad).is_err(), "{}", bad.escape_ascii());
    }
}

#[test]
fn targets_in_all_their_forms() {
    let target = |line: &str| {
        let head = head(format!("{line} HTTP/1.1\r\nHost: h\r\n\r\n").as_bytes())?;
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        Ok((
            head.authority().to_owned(),
            text(head.path()),
            head.query().map(text),
        ))
    };
    let is = |authority: &str, path: &str, query: Option<&str>| {
        Ok((
            authority.to_owned(),
            path.to_owned(),
            query.map(str::to_owned),
        ))
    };
    assert_eq!(target("GET /"), is("h", "/", None));
    assert_eq!(target("GET /?"), is("h", "/", Some("")));
    assert_eq!(target("GET /a#b"), is("h", "/a", None));
    assert_eq!(
        target("GET //evil.example/x"),
        is("h", "//evil.example/x", None)
    );
    assert_eq!(
        target("GET http://other:1/p?q"),
        is("other:1", "/p", Some("q"))
    );
    assert_eq!(target("GET HTTPS://other/p"), is("other", "/p", None));
    assert_eq!(target("GET http://other"), is("other", "/", None));
    assert_eq!(
        target("GET http://other?q=1"),
        is("other", "/", Some("q=1"))
    );
    assert_eq!(target("OPTIONS *"), is("h", "*", None));
    assert_eq!(target("GET *"), Err(Refusal::Target));
    assert_eq!(target("GET a/b"), Err(Refusal::Target));
    assert_eq!(target("GET ftp://h/"), Err(Refusal::Target));
    assert_eq!(target("GET http:///p"), Err(Refusal::Target));
    assert_eq!(target("CONNECT h:443"), Err(Refusal::Connect));
    assert!(matches!(
        target("GET http://user@other/"),
        Err(Refusal::Host(_))
    ));
}

/// By section of RFC 9112.
const REFUSED: &[(&str, &str, u16)] = &[
    (
        "2.2 lone LF behind the request line",
        "GET / HTTP/1.1\nHost: h\r\n\r\n",
        400,
    ),
    (
        "2.2 lone LF behind a field",
        "GET / HTTP/1.1\r\nHost: h\n\r\n",
        400,
    ),
    (
        "2.2 lone LF as the empty line",
        "GET / HTTP/1.1\r\nHost: h\r\n\n",
        400,
    ),
    (
        "2.2 lone CR in a value",
        "GET / HTTP/1.1\r\nHost: h\r\nX: a\rb\r\n\r\n",
        400,
    ),
    ("2.2 CR CR LF", "GET / HTTP/1.1\r\nHost: h\r\r\n\r\n", 400),
    (
        "2.2 white space before the first field",
        "GET / HTTP/1.1\r\n Host: h\r\n\r\n",
        400,
    ),
    ("3 two spaces", "GET  / HTTP/1.1\r\nHost: h\r\n\r\n", 400),
    (
        "3 tab for a space",
        "GET\t/ HTTP/1.1\r\nHost: h\r\n\r\n",
        400,
    ),
    ("3 no target", "GET HTTP/1.1\r\nHost: h\r\n\r\n", 400),
    ("3 HTTP/0.9", "GET /\r\n\r\n", 400),
    (
        "3 space in the target",
        "GET /a b HTTP/1.1\r\nHost: h\r\n\r\n",
        400,
    ),
    (
        "3 method that is no token",
        "G@T / HTTP/1.1\r\nHost: h\r\n\r\n",
        400,
    ),
    ("2.3 HTTP/2.0", "GET / HTTP/2.0\r\nHost: h\r\n\r\n", 505),
    ("2.3 HTTP/1.2", "GET / HTTP/1.2\r\nHost: h\r\n\r\n", 505),
    (
        "2.3 another protocol",
        "GET / FTP/1.1\r\nHost: h\r\n\r\n",
        400,
    ),
    ("3.2 no Host", "GET / HTTP/1.1\r\n\r\n", 400),
    (
        "3.2 two Hosts",
        "GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n",
        400,
    ),
    (
        "3.2 Host with a path",
        "GET / HTTP/1.1\r\nHost: a/b\r\n\r\n",
        400,
    ),
    (
        "3.2 Host with user information",
        "GET / HTTP/1.1\r\nHost: u@a\r\n\r\n",
        400,
    ),
    (
        "3.2 Host with a space",
        "GET / HTTP/1.1\r\nHost: a b\r\n\r\n",
        400,
    ),
    (
        "3.2 two hosts in one Host",
        "GET / HTTP/1.1\r\nHost: a,b\r\n\r\n",
        400,
    ),
    (
        "3.2 Host with an empty label",
        "GET / HTTP/1.1\r\nHost: a..\r\n\r\n",
        400,
    ),
    (
        "3.2 absolute target with an empty label",
        "GET http://.a/ HTTP/1.1\r\nHost: a\r\n\r\n",
        400,
    ),
    (
        "3.2 Host with an address that is none",
        "GET / HTTP/1.1\r\nHost: [1::2::3]\r\n\r\n",
        400,
    ),
    (
        "3.2 Host with a bad port",
        "GET / HTTP/1.1\r\nHost: a:80x\r\n\r\n",
        400,
    ),
    (
        "3.2 Host with an open bracket",
        "GET / HTTP/1.1\r\nHost: [::1\r\n\r\n",
        400,
    ),
    (
        "5.1 space before the colon",
        "GET / HTTP/1.1\r\nHost: h\r\nContent-Length : 5\r\n\r\n",
        400,
    ),
    (
        "5.1 no name",
        "GET / HTTP/1.1\r\nHost: h\r\n: x\r\n\r\n",
        400,
    ),
    (
        "5.1 no colon",
        "GET / HTTP/1.1\r\nHost: h\r\nX\r\n\r\n",
        400,
    ),
    (
        "5.2 folded line",
        "GET / HTTP/1.1\r\nHost: h\r\nX: a\r\n b\r\n\r\n",
        400,
    ),
    (
        "5.2 folded line by tab",
        "GET / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding:\r\n\tchunked\r\n\r\n",
        400,
    ),
    (
        "5.5 NUL in a value",
        "GET / HTTP/1.1\r\nHost: h\r\nX: a\0b\r\n\r\n",
        400,
    ),
    (
        "5.5 NUL in the target",
        "GET /\0 HTTP/1.1\r\nHost: h\r\n\r\n",
        400,
    ),
    (
        "6.1 both lengths",
        "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
        400,
    ),
    (
        "6.1 both lengths, turned",
        "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nContent-Length: 0\r\n\r\n",
        400,
    ),
    (
        "6.1 chunked in HTTP/1.0",
        "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n",
        400,
    ),
    (
        "6.1 an unknown coding",
        "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
        501,
    ),
    (
        "6.1 a coding before chunked",
        "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
        501,
    ),
    (
        "6.1 chunked twice in a line",
        "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked, chunked\r\n\r\n",
        400,
    ),
    (
        "6.1 chunked on two lines",
        "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n",
        400,
    ),
    (
        "6.1 identity",
        "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: identity\r\n\r\n",
        400,
    ),
    (
        "6.1 xchunked",
        "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: xchunked\r\n\r\n",
        400,
    ),
    (
        "6.1 chunked in quotes",
        "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: \"chunked\"\r\n\r\n",
        400,
    ),
    (
        "6.1 chunked with a vertical tab",
        "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: \x0bchunked\r\n\r\n",
        400,
    ),
    (
        "6.3 two lengths",
        "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
        400,
    ),
    (
        "6.3 the same length twice",
        "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\n",
        400,
    ),
    (
        "6.3 a list of lengths",
        "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5, 5\r\n\r\n",
        400,
    ),
    (
        "6.3 a signed length",
        "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: +5\r\n\r\n",
        400,
    ),
    (
        "6.3 a negative length",
        "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: -5\r\n\r\n",
        400,
    ),
    (
        "6.3 a hexadecimal length",
        "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 0x5\r\n\r\n",
        400,
    ),
    (
        "6.3 an empty length",
        "POST / HTTP/1.1\r\nHost: h\r\nContent-Length:\r\n\r\n",
        400,
    ),
    (
        "6.3 a length of 2^64",
        "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 18446744073709551616\r\n\r\n",
        400,
    ),
    (
        "RFC 9110, 10.1.1 another expectation",
        "POST / HTTP/1.1\r\nHost: h\r\nExpect: 200-ok\r\n\r\n",
        417,
    ),
];

#[test]
fn heads_that_are_refused() {
    for (name, input, status) in REFUSED {
        let refusal = head(input.as_bytes()).expect_err(name);
        assert_eq!(refusal.status(), *status, "{name}: {refusal}");
    }
}

#[test]
fn the_limits_of_a_head() {
    let with = |bytes: usize| {
        let start = "GET / HTTP/1.1\r\nHost: h\r\nX: ";
        format!("{start}{}\r\n\r\n", "a".repeat(bytes - start.len() - 4))
    };
    assert!(head(with(64 << 10).as_bytes()).is_ok());
    assert_eq!(
        head(with((64 << 10) + 1).as_bytes()).unwrap_err(),
        Refusal::HeadTooLong(64 << 10)
    );
    // Known as soon as the limit is passed, without waiting for an end.
    let mut endless = BytesMut::from(&vec![b'a'; 64 << 10][..]);
    assert_eq!(
        connection().receive(&mut endless, AT).unwrap_err(),
        Refusal::TargetTooLong(64 << 10)
    );

    let fields = |count: usize| {
        let names: Vec<_> = (1..count)
            .map(|field| format!("X-{field}: 1\r\n"))
            .collect();
        let fields = names.concat();
        format!("GET / HTTP/1.1\r\nHost: h\r\n{fields}\r\n")
    };
    assert_eq!(head(fields(100).as_bytes()).unwrap().fields().len(), 100);
    assert_eq!(
        head(fields(101).as_bytes()).unwrap_err(),
        Refusal::TooManyFields(100)
    );
}

#[test]
fn names_with_underscores_are_kept_apart() {
    let head =
        head(b"GET / HTTP/1.1\r\nHost: h\r\nX_A: evil\r\nContent_Length: 5\r\nX-A: good\r\n\r\n")
            .unwrap();
    assert_eq!(head.fields().len(), 2);
    assert_eq!(head.body_len(), Some(0));
    let apart = head.underscored().unwrap();
    let apart: Vec<_> = apart.iter().collect();
    assert_eq!(
        apart,
        [(&b"x_a"[..], &b"evil"[..]), (b"content_length", b"5")]
    );
}

#[test]
fn who_keeps_the_connection() {
    let keeps = |version: &str, connection: &str| {
        head(format!("GET / {version}\r\nHost: h\r\n{connection}\r\n").as_bytes())
            .unwrap()
            .keep_alive()
    };
    assert!(keeps("HTTP/1.1", ""));
    assert!(!keeps("HTTP/1.1", "Connection: close\r\n"));
    assert!(!keeps("HTTP/1.1", "Connection: upgrade, Close\r\n"));
    assert!(!keeps("HTTP/1.0", ""));
    assert!(keeps("HTTP/1.0", "Connection: Keep-Alive\r\n"));
    assert!(!keeps(
        "HTTP/1.0",
        "Connection: keep-alive\r\nConnection: close\r\n"
    ));
}

#[test]
fn http_1_0_needs_no_host_and_expects_nothing() {
    let head = head(b"GET / HTTP/1.0\r\nExpect: 100-continue\r\n\r\n").unwrap();
    assert_eq!((head.authority(), head.expects_continue()), ("", false));
}

#[test]
fn bodies_by_length_and_in_chunks() {
    let post = "POST / HTTP/1.1\r\nHost: h\r\n";
    for (name, input, want) in [
        (
            "length",
            format!("{post}Content-Length: 5\r\n\r\nhello"),
            "hello",
        ),
        ("length 0", format!("{post}Content-Length: 0\r\n\r\n"), ""),
        (
            "chunked",
            format!("{post}Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"),
            "hello",
        ),
        (
            "Chunked, upper case digits",
            format!("{post}Transfer-Encoding: CHUNKED\r\n\r\nA\r\n0123456789\r\n0\r\n\r\n"),
            "0123456789",
        ),
        (
            "extensions",
            format!(
                "{post}Transfer-Encoding: chunked\r\n\r\n5;a=b;c=\"d\"\r\nhello\r\n0;x\r\n\r\n"
            ),
            "hello",
        ),
        (
            "leading zeros",
            format!("{post}Transfer-Encoding: chunked\r\n\r\n0005\r\nhello\r\n000\r\n\r\n"),
            "hello",
        ),
        (
            "trailers",
            format!("{post}Transfer-Encoding: chunked\r\n\r\n0\r\nX: 1\r\nY: 2\r\n\r\n"),
            "",
        ),
    ] {
        assert_eq!(
            bodies(input.as_bytes()),
            Ok(vec![want.as_bytes().to_vec()]),
            "{name}"
        );
    }
}

#[test]
fn chunks_that_are_refused() {
    for (name, body) in [
        ("lone LF behind a size", "5\nhello\r\n0\r\n\r\n"),
        ("lone LF behind a chunk", "5\r\nhello\n0\r\n\r\n"),
        ("lone LF in an extension", "5;a\nb\r\nhello\r\n0\r\n\r\n"),
        ("lone CR in an extension", "5;a\rb\r\nhello\r\n0\r\n\r\n"),
        ("no size", "\r\nhello\r\n"),
        ("signed size", "+5\r\nhello\r\n0\r\n\r\n"),
        ("negative size", "-1\r\nhello\r\n0\r\n\r\n"),
        ("0x", "0x5\r\nhello\r\n0\r\n\r\n"),
        ("space behind the size", "5 \r\nhello\r\n0\r\n\r\n"),
        ("space before the size", " 5\r\nhello\r\n0\r\n\r\n"),
        ("more than 64 bits", "10000000000000000\r\n"),
        ("longer than its size", "4\r\nhello\r\n0\r\n\r\n"),
        ("lone LF in the trailers", "0\r\nX: 1\n\r\n"),
        ("a size line without end", &"0".repeat(300)),
        (
            "trailers without end",
            &format!("0\r\n{}", "X: aaaaaaaaaaaaaaaaaaaaaa\r\n".repeat(1000)),
        ),
    ] {
        let input =
            format!("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n{body}");
        assert!(
            matches!(bodies(input.as_bytes()), Err(Refusal::Chunk(_))),
            "{name}"
        );
    }
}

#[test]
fn requests_follow_each_other() {
    let input = b"\r\nPOST /1 HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc\r\n\r\nPOST /2 HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nd\r\n0\r\n\r\nGET /3 HTTP/1.1\r\nHost: h\r\n\r\n";
    assert_eq!(
        bodies(input),
        Ok(vec![b"abc".to_vec(), b"d".to_vec(), b"".to_vec()])
    );
}

#[test]
fn the_next_request_waits_until_this_one_is_answered() {
    let (mut connection, mut input) = (
        connection(),
        BytesMut::from(
            &b"GET /1 HTTP/1.1\r\nHost: h\r\n\r\nGET /2 HTTP/1.1\r\nHost: h\r\n\r\n"[..],
        ),
    );
    assert!(matches!(
        connection.receive(&mut input, AT),
        Ok(Some(Received::Head(_)))
    ));
    assert!(matches!(
        connection.receive(&mut input, AT),
        Ok(Some(Received::End))
    ));
    assert!(matches!(connection.receive(&mut input, AT), Ok(None)));
    assert!(connection.finish(AT));
    let Ok(Some(Received::Head(head))) = connection.receive(&mut input, AT) else {
        panic!()
    };
    assert_eq!(head.path(), b"/2");
}

#[test]
fn a_body_that_nobody_read_ends_the_connection() {
    let (mut connection, mut input) = (
        connection(),
        BytesMut::from(&b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhel"[..]),
    );
    assert!(matches!(
        connection.receive(&mut input, AT),
        Ok(Some(Received::Head(_)))
    ));
    assert!(!connection.finish(AT));
}

#[test]
fn how_long_a_client_may_take() {
    let mut connection = connection();
    assert_eq!(
        connection.deadline(),
        Some((seconds(15), Expiry::Idle)),
        "says nothing"
    );
    let mut input = BytesMut::from(&b"POST / HTT"[..]);
    assert!(
        connection
            .receive(&mut input, seconds(10))
            .unwrap()
            .is_none()
    );
    assert_eq!(
        connection.deadline(),
        Some((seconds(15), Expiry::Head)),
        "a slow head"
    );
    input.extend_from_slice(b"P/1.1\r\nHost: h\r\nContent-Length: 100000\r\n\r\n");
    assert!(
        connection
            .receive(&mut input, seconds(12))
            .unwrap()
            .is_some()
    );
    assert_eq!(
        connection.deadline(),
        Some((seconds(72), Expiry::Body)),
        "the body does not start"
    );
    input.extend_from_slice(&[b'a'; 1000]);
    let Some(Received::Body(len)) = connection.receive(&mut input, seconds(70)).unwrap() else {
        panic!()
    };
    _ = input.split_to(len);
    assert_eq!(
        connection.deadline(),
        Some((seconds(74), Expiry::Body)),
        "1,000 bytes earn 2 s"
    );
    input.extend_from_slice(&vec![b'a'; 99_000]);
    let Some(Received::Body(len)) = connection.receive(&mut input, seconds(73)).unwrap() else {
        panic!()
    };
    _ = input.split_to(len);
    assert!(matches!(
        connection.receive(&mut input, seconds(73)),
        Ok(Some(Received::End))
    ));
    assert_eq!(connection.deadline(), None, "it is the server's turn");
    assert!(connection.finish(seconds(80)));
    assert_eq!(
        connection.deadline(),
        Some((seconds(155), Expiry::Idle)),
        "kept"
    );
    input.extend_from_slice(b"G");
    assert!(
        connection
            .receive(&mut input, seconds(100))
            .unwrap()
            .is_none()
    );
    assert_eq!(
        connection.deadline(),
        Some((seconds(115), Expiry::Head)),
        "the next head"
    );
}

proptest! {
    #[test]
    fn the_result_does_not_depend_on_how_the_bytes_are_cut(
        parts in prop::collection::vec(prop::sample::select(PARTS), 0..30),
    ) {
        fuzz_connection(&parts.concat());
    }

    #[test]
    fn no_bytes_make_it_panic(data in prop::collection::vec(any::<u8>(), 0..200)) {
        fuzz_connection(&data);
    }
}

#[test]
fn two_empty_lines_before_a_request_are_skipped_however_they_come() {
    let request = b"GET / HTTP/1.1\r\nHost: h\r\n\r\n";
    for lines in 0..5 {
        let input = [b"\r\n".repeat(lines), request.to_vec()].concat();
        fuzz_connection(&input);
        // Those before an earlier request are not counted.
        let later = [&b"\r\n\r\n"[..], request, &input].concat();
        fuzz_connection(&later);
        let most = lines <= 2;
        assert_eq!(bodies(&input).is_ok(), most, "{lines}");
        assert_eq!(bodies(&later).is_ok(), most, "{lines}, later");
    }
}

/// What comes of each row is looked at end to end; here, that it is the same however it arrives.
#[test]
fn malformed_requests_are_the_same_in_any_pieces() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../vectors/malformed.json");
    let file: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let bytes = |text: &Value| -> Vec<u8> {
        let text = text.as_str().unwrap().chars();
        text.map(|char| u8::try_from(u32::from(char)).unwrap())
            .collect()
    };
    for row in file["rows"].as_array().unwrap() {
        // Those with repeated parts are long, not strange.
        if row["bytes"].is_string() {
            fuzz_connection(&bytes(&row["bytes"]));
        }
    }
}

const PARTS: &[&[u8]] = &[
    b"GET / HTTP/1.1\r\n",
    b"POST /a?b HTTP/1.0\r\n",
    b"Host: h\r\n",
    b"\r\n",
    b"\r",
    b"\n",
    b"0",
    b"5\r\nhello\r\n",
    b"Content-Length: 3\r\n",
    b"Transfer-Encoding: chunked\r\n",
    b"0\r\n\r\n",
    b"abc",
    b"\0",
    b" ",
    b"X: y\r\n",
    b"3;e\r\n",
];
