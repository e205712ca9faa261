use proptest::prelude::*;

use super::*;

fn parse(text: &[u8]) -> Result<Head, BadReply> {
    parse_lines(text, Lines::Fields)
}

fn parse_lines(text: &[u8], lines: Lines) -> Result<Head, BadReply> {
    let mut reader = HeadReader::of(lines);
    let len = reader.find(text)?.expect("a whole head");
    reader.parse(&Bytes::copy_from_slice(&text[..len]))
}

fn fields(head: &Head) -> Vec<(String, String)> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let fields = head.reply.headers.iter();
    fields
        .map(|(name, value)| (text(name), text(value)))
        .collect()
}

#[test]
fn a_document_has_its_status_and_fields_in_order() {
    let head =
        parse(b"Content-type: text/html\r\nStatus: 404 Not Found\r\nX-A:1\r\nX-A: 2 \r\n\r\nbody")
            .unwrap();
    assert_eq!(head.kind, Kind::Document);
    assert_eq!(head.reply.status, 404);
    let expected = [("Content-type", "text/html"), ("X-A", "1"), ("X-A", "2")];
    assert_eq!(
        fields(&head),
        expected.map(|(n, v)| (n.to_owned(), v.to_owned()))
    );
}

#[test]
fn a_lone_line_feed_ends_a_line_too() {
    let head = parse(b"Content-Type: text/plain\nX-B: \n\nbody").unwrap();
    assert_eq!(head.reply.status, 200);
    assert_eq!(head.reply.headers.get("x-b"), Some(&b""[..]));
}

#[test]
fn a_type_and_a_date_are_there_once_or_not_at_all() {
    let names = |text: &str| {
        let head = parse(format!("{text}\n\n").as_bytes()).unwrap();
        let all: Vec<String> = fields(&head)
            .into_iter()
            .map(|(n, v)| format!("{n}={v}"))
            .collect();
        all.join(" ")
    };
    assert_eq!(names("Content-Type:\nX: 1"), "X=1");
    assert_eq!(
        names("Content-Type: \ncontent-type: a/b\nX:"),
        "content-type=a/b X="
    );
    assert_eq!(
        names("Content-Type: a/b\nContent-Type: c/d"),
        "Content-Type=a/b"
    );
    assert_eq!(
        names("Content-Type: a/b\nContent-Type:"),
        "Content-Type=a/b"
    );
    assert_eq!(names("Date: \nX: 1\nDate: 1\ndate: 2"), "X=1 Date=1");
    for status in ["304 Not Modified", "204"] {
        assert_eq!(
            names(&format!("Content-Type: a/b\nStatus: {status}\nETag: 1")),
            "ETag=1"
        );
    }
    assert_eq!(names("Content-Type: a/b\nStatus: 205"), "Content-Type=a/b");
}

#[test]
fn a_reply_has_one_length_and_no_transfer_coding() {
    let names = |text: &str| {
        let head = parse(format!("Content-Type: a/b\n{text}\n\n").as_bytes())?;
        let all = fields(&head).into_iter().skip(1);
        let all: Vec<String> = all.map(|(n, v)| format!("{n}={v}")).collect();
        Ok((head.length, all.join(" ")))
    };
    let is = |length, text: &str| Ok((length, text.to_owned()));
    assert_eq!(names("Content-Length: 5"), is(Some(5), "Content-Length=5"));
    let twice = "content-length: 5\nX: y\nContent-Length: 5";
    assert_eq!(names(twice), is(Some(5), "content-length=5 X=y"));
    assert_eq!(
        names("Content-Length: 5\nContent-Length: 6"),
        Err(BadReply::Lengths(5, 6))
    );
    for none in ["", "-1", "+5", "5, 5", "0x5", "99999999999999999999"] {
        assert_eq!(names(&format!("Content-Length: {none}")), is(None, ""));
        let behind = format!("Content-Length: {none}\nContent-Length: 7");
        assert_eq!(names(&behind), is(Some(7), "Content-Length=7"));
    }
    let coded = "Transfer-Encoding: chunked\nContent-Length: 5\ntransfer-encoding: gzip";
    assert_eq!(names(coded), is(Some(5), "Content-Length=5"));
}

#[test]
fn a_location_without_a_status_is_a_redirect() {
    let kind = |text: &str| {
        let head = parse(format!("{text}\n\n").as_bytes()).unwrap();
        (head.kind, head.reply.status)
    };
    assert_eq!(
        kind("Location: /a?b=c"),
        (Kind::LocalRedirect(b"/a?b=c".to_vec()), 200)
    );
    assert_eq!(
        kind("Location: https://example.org/"),
        (Kind::ClientRedirect, 302)
    );
    assert_eq!(
        kind("Location: //example.org/"),
        (Kind::ClientRedirect, 302)
    );
    assert_eq!(
        kind("Location: /\\example.org/"),
        (Kind::ClientRedirect, 302)
    );
    assert_eq!(kind("Location: next.html"), (Kind::ClientRedirect, 302));
    for (path, sent) in [
        ("/page#top", "/page#top"),
        ("/a page?b=c d", "/a%20page?b=c%20d"),
        ("/caf\u{e9}%20x", "/caf%C3%A9%20x"),
        ("/\u{1}#\u{7f}", "/%01#%7F"),
        ("next page.html", "next%20page.html"),
        ("https://example.org/#top", "https://example.org/#top"),
    ] {
        let head = parse(format!("Location: {path}\n\n").as_bytes()).unwrap();
        assert_eq!((head.kind, head.reply.status), (Kind::ClientRedirect, 302));
        let location = head.reply.headers.get("location");
        assert_eq!(location, Some(sent.as_bytes()), "{path}");
    }
    assert_eq!(kind("Status: 301\nLocation: /a"), (Kind::Document, 301));
    assert_eq!(
        kind("location: /a\nstatus: 302 Found"),
        (Kind::Document, 302)
    );
}

#[test]
fn what_is_no_answer_is_refused_with_its_reason() {
    let wrong = |text: &[u8]| parse(text).unwrap_err();
    assert_eq!(wrong(b"\r\nhello"), BadReply::NoHeader);
    assert_eq!(wrong(b"\n"), BadReply::NoHeader);
    assert_eq!(
        wrong(b"HTTP/1.1 200 OK\r\nX: y\r\n\r\n"),
        BadReply::NonParsed
    );
    for line in [
        &b"<html>"[..],
        b": no name",
        b"a b: c",
        b"Gr\xfcn: c",
        b" folded: x",
    ] {
        let text = [line, b"\n\n"].concat();
        assert!(
            matches!(wrong(&text), BadReply::Line { line: 1, .. }),
            "{line:?}"
        );
    }
    assert!(matches!(
        wrong(b"A: b\n folded\n\n"),
        BadReply::Line { line: 2, .. }
    ));
    for status in [
        "",
        "20",
        "2000",
        "abc",
        "+20 OK",
        "100 Continue",
        "600",
        "200OK",
    ] {
        let text = format!("Status: {status}\n\n");
        assert!(
            matches!(wrong(text.as_bytes()), BadReply::Status(_)),
            "{status}"
        );
    }
}

#[test]
fn php_may_send_lines_that_are_no_fields_and_none_at_all() {
    for (text, left_out, expected) in [
        (&b"NoColon\r\nX-A: 1\r\n\r\n"[..], Some("NoColon"), 1),
        (
            b"X-A: 1\r\nno colon here\r\nAlso\r\n\r\n",
            Some("no colon here"),
            1,
        ),
        (b"X-A: 1\n\tfolded\n\n", Some("\\tfolded"), 1),
        (b"Status\r\nX-A: 1\r\n\r\n", Some("Status"), 1),
        (b"Location\r\nX-A: 1\r\n\r\n", Some("Location"), 1),
        (b"<b>\xe9\x01\r\n\r\n", Some("<b>\\xe9\\x01"), 0),
        (b"NoColon\n\n", Some("NoColon"), 0),
        (b"\r\n", None, 0),
        (b"\n", None, 0),
    ] {
        let head = parse_lines(text, Lines::Some).unwrap();
        assert_eq!((head.reply.status, head.kind), (200, Kind::Document));
        assert_eq!(head.left_out.as_deref(), left_out);
        assert_eq!(head.reply.headers.iter().count(), expected, "{text:?}");
        assert!(parse(text).is_err(), "{text:?}");
    }
    let wrong = |text: &[u8]| parse_lines(text, Lines::Some).unwrap_err();
    assert_eq!(wrong(b"HTTP/1.1 200 OK\r\n\r\n"), BadReply::NonParsed);
    for line in [&b": no name"[..], b"a b: c", b"Gr\xfcn: c"] {
        let bad = wrong(&[b"A: b\n", line, b"\n\n"].concat());
        assert!(matches!(bad, BadReply::Line { line: 2, .. }), "{line:?}");
    }
    let many = "no field\n".repeat(FIELDS + 1);
    assert_eq!(wrong(format!("{many}\n").as_bytes()), BadReply::TooLong);
    let endless = vec![b'a'; HEAD + 1];
    let endless = HeadReader::of(Lines::Some).find(&endless);
    assert_eq!(endless, Err(BadReply::TooLong));
}

#[test]
fn a_page_without_a_head_is_refused_by_its_first_line() {
    assert_eq!(HeadReader::default().find(b"<p>"), Ok(None));
    let refused = HeadReader::default().find(b"<p>\nand so on");
    assert!(matches!(refused, Err(BadReply::Line { .. })), "{refused:?}");
}

#[test]
fn a_head_has_a_longest_length_and_a_most_of_fields() {
    let endless = vec![b'a'; HEAD + 1];
    assert_eq!(HeadReader::default().find(&endless), Err(BadReply::TooLong));
    let long = [b"X: ", &endless[..], b"\n\n"].concat();
    assert_eq!(HeadReader::default().find(&long), Err(BadReply::TooLong));
    let many = "X: y\n".repeat(FIELDS);
    assert!(parse(format!("{many}\n").as_bytes()).is_ok());
    assert_eq!(
        parse(format!("{many}X: y\n\n").as_bytes()),
        Err(BadReply::TooLong)
    );
}

proptest! {
    #[test]
    fn any_bytes_are_read_the_same_in_any_pieces(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        fuzz_reply(&bytes);
    }

    #[test]
    fn and_so_are_heads(text in "(Status: [0-9]{2,4}( [A-Z]{0,4})?\r?\n|[A-Za-z:/ -]{0,9}\r?\n){0,5}\r?\n?[a-z\n]{0,9}") {
        fuzz_reply(text.as_bytes());
    }
}
