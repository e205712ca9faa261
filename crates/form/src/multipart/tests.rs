use super::*;

const FORM: &str = "--B\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n1\r\n--B\r\n\
    Content-Disposition: form-data; name=\"f\"; filename=\"x\"\r\n\r\n";

fn parser(limits: Limits) -> Parser {
    Parser::new(&Boundary::new(b"B").unwrap(), limits)
}

/// What a body given in these pieces holds, data of one part joined.
fn read(parser: &mut Parser, pieces: &[&[u8]]) -> Result<Vec<String>, Error> {
    let mut seen = Vec::new();
    let mut data = Vec::new();
    for mut piece in pieces.iter().copied() {
        while let Some(event) = parser.next(&mut piece)? {
            match event {
                Event::PartBegin(part) => seen.push(String::from_utf8(part.name).unwrap()),
                Event::Data(piece) => {
                    assert!(!piece.is_empty());
                    data.extend_from_slice(piece);
                }
                Event::PartEnd => seen.push(String::from_utf8(std::mem::take(&mut data)).unwrap()),
                Event::End => seen.push("end".to_owned()),
            }
        }
        assert!(piece.is_empty(), "all input is used");
    }
    Ok(seen)
}

fn error_of(body: &str) -> Error {
    let mut parser = parser(Limits::default());
    match read(&mut parser, &[body.as_bytes()]) {
        Ok(_) => parser.finish().unwrap_err(),
        Err(error) => error,
    }
}

#[test]
fn a_boundary_that_nearly_matches_at_an_edge_is_content() {
    let contents = [
        "\r\n--A",
        "\r",
        "\r\n",
        "\n",
        "\r\n-",
        "\r\n--",
        "\r\r\n--\r\n",
        "-",
        "--",
        "--\r\n",
        "\n\n--",
    ];
    for content in contents {
        let body =
            format!("--B\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n{content}\r\n--B--");
        for cut in 0..=body.len() {
            let (head, tail) = body.as_bytes().split_at(cut);
            let mut parser = parser(Limits::default());
            let seen = read(&mut parser, &[head, b"", tail]).unwrap();
            assert_eq!(seen, ["a", content, "end"], "cut at {cut}");
            parser.finish().unwrap();
        }
        let mut parser = parser(Limits::default());
        let bytes: Vec<&[u8]> = body.as_bytes().chunks(1).collect();
        assert_eq!(
            read(&mut parser, &bytes).unwrap(),
            ["a", content, "end"],
            "byte by byte"
        );
    }
}

#[test]
fn content_is_passed_on_without_waiting_for_more() {
    let mut parser = parser(Limits::default());
    read(&mut parser, &[FORM.as_bytes()]).unwrap();
    let mut piece = b"content\r\n--".as_slice();
    assert_eq!(parser.next(&mut piece), Ok(Some(Event::Data(b"content"))));
    assert_eq!(parser.next(&mut piece), Ok(None));
    let mut piece = b"A".as_slice();
    assert_eq!(parser.next(&mut piece), Ok(Some(Event::Data(b"\r\n--"))));
    assert_eq!(parser.next(&mut piece), Ok(Some(Event::Data(b"A"))));
}

#[test]
fn content_of_an_input_left_empty_is_not_passed_on() {
    let body =
        b"--B\r\nContent-Disposition: form-data; name=\"f\"; filename=\"\"\r\n\r\nx\r\n--\r\n--B--";
    for cut in 0..=body.len() {
        let (head, tail) = body.split_at(cut);
        assert_eq!(
            read(&mut parser(Limits::default()), &[head, tail]).unwrap(),
            ["f", "", "end"]
        );
    }
}

#[test]
fn an_error_says_in_which_part_and_where() {
    let third = format!("{FORM}\r\n--B\r\n");
    let start = third.len() as u64;
    let (cut, malformed) = (format!("{third}A\r\n"), format!("{third}A\r\n\r\n"));
    for (body, kind, part, offset) in [
        ("hello", ErrorKind::NoBoundary, 0, 5),
        ("--B!", ErrorKind::BoundaryLine, 0, 3),
        ("--B\r\nno colon\r\n\r\n", ErrorKind::HeaderLine, 1, 5),
        ("--B\r\nA: b\r\n\r\n", ErrorKind::NoDisposition, 1, 5),
        ("--B\r\nA: b", ErrorKind::Truncated, 1, 9),
        (FORM, ErrorKind::Truncated, 2, FORM.len() as u64),
        (&cut, ErrorKind::Truncated, 3, start + 3),
        (&malformed, ErrorKind::HeaderLine, 3, start),
    ] {
        assert_eq!(error_of(body), Error { kind, part, offset }, "{body}");
    }
}

#[test]
fn after_an_error_every_call_repeats_it() {
    let mut parser = parser(Limits::default());
    let error = read(&mut parser, &[b"--B?"]).unwrap_err();
    assert_eq!(read(&mut parser, &[FORM.as_bytes()]), Err(error));
    assert_eq!(parser.finish(), Err(error));
}

#[test]
fn a_head_is_never_held_beyond_its_cap() {
    let mut parser = parser(Limits::default());
    read(&mut parser, &[b"--B\r\nX: "]).unwrap();
    let piece = [b'x'; 1_000];
    let error = loop {
        match read(&mut parser, &[&piece]) {
            Ok(_) => assert!(parser.held() <= MAX_HEAD),
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind, ErrorKind::HeadTooLong);
}

#[test]
fn a_preamble_and_an_epilogue_are_not_held() {
    let mut parser = parser(Limits::default());
    let megabyte = vec![b'\n'; 1 << 20];
    assert_eq!(
        read(&mut parser, &[&megabyte, b"--B--", &megabyte]).unwrap(),
        ["end"]
    );
    assert_eq!(parser.held(), 0);
    parser.finish().unwrap();
}

#[test]
fn limits_count_what_they_say() {
    let part = |name: &str, file: &str, content: &str| {
        format!("--B\r\nContent-Disposition: form-data; name=\"{name}\"{file}\r\n\r\n{content}\r\n")
    };
    let (field, empty, file) = (
        part("a", "", "1"),
        part("e", "; filename=\"\"", "1"),
        part("f", "; filename=\"x\"", "1"),
    );
    let limits = Limits {
        fields: 2,
        files: 1,
        levels: 1,
        field_bytes: 12,
    };
    let kind = |parts: &[&str]| {
        read(&mut parser(limits), &[parts.concat().as_bytes()])
            .map(|_| ())
            .map_err(|error| error.kind)
    };

    assert_eq!(kind(&[&field, &empty, &file]), Ok(()));
    assert_eq!(
        kind(&[&field, &empty, &field]),
        Err(ErrorKind::TooManyFields(2))
    );
    assert_eq!(kind(&[&file, &file]), Err(ErrorKind::TooManyFiles(1)));
    assert_eq!(kind(&[&part("a[b]", "", "")]), Ok(()));
    assert_eq!(
        kind(&[&part("a[b][c]", "", "")]),
        Err(ErrorKind::TooManyLevels(1))
    );
    // Name and value; the content of a file does not count, its names do.
    assert_eq!(kind(&[&part("a", "", "12345678901")]), Ok(()));
    assert_eq!(
        kind(&[&part("a", "", "123456789012")]),
        Err(ErrorKind::FieldsTooLong(12))
    );
    assert_eq!(
        kind(&[&part("ab", "; filename=\"0123456789\"", "123456789012")]),
        Ok(())
    );
    assert_eq!(
        kind(&[&part("ab", "; filename=\"0123456789x\"", "")]),
        Err(ErrorKind::FieldsTooLong(12))
    );
    assert_eq!(
        kind(&[&part("a", "", "12345"), &part("a", "", "123456")]),
        Err(ErrorKind::FieldsTooLong(12))
    );
}

#[test]
fn every_kind_of_error_says_what_to_do() {
    let error = error_of("--B\r\nContent-Disposition: form-data; name=\"a\"; name=\"b\"\r\n\r\n");
    assert_eq!(
        error.to_string(),
        "malformed form (part 1, byte 5 of the body): two `name` parameters in Content-Disposition; send one"
    );
}
