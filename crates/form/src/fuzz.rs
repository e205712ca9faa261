//! What must hold for any bytes. Each function asserts it; fuzz targets and the tests over
//! `corpus/` call them.

use crate::multipart::{Error, Event, Kind, MAX_HEAD, Parser, Part};
use crate::urlencoded::{self, Rules};
use crate::{Boundary, ContentType, Entry, File, Form, Limits, UploadError, native, tree};

/// Limits small enough to be met.
const LIMITS: Limits = Limits {
    fields: 20,
    files: 5,
    levels: 5,
    field_bytes: 10_000,
};

/// A multipart body: a line with the request's Content-Type, then the body.
///
/// # Panics
///
/// When the pieces that the body comes in change what it holds, when the parser holds more than a
/// head, when events come out of order, or when what was read can't be written.
pub fn fuzz_multipart(input: &[u8]) {
    let line = memchr::memchr(b'\n', input).unwrap_or(input.len());
    let (content_type, body) = input.split_at(line);
    let Ok(ContentType::Multipart(boundary)) = ContentType::parse(content_type) else {
        return;
    };
    let body = body.get(1..).unwrap_or_default();

    let whole = read(&boundary, [body].into_iter());
    assert_eq!(whole, read(&boundary, body.chunks(1)), "byte by byte");
    for size in [2, 3, 7, 64] {
        assert_eq!(
            whole,
            read(&boundary, body.chunks(size)),
            "in pieces of {size}"
        );
    }
    check_form(&Form { entries: whole.0 });
}

/// The complete parts of a body and how it ended.
fn read<'a>(
    boundary: &Boundary,
    pieces: impl Iterator<Item = &'a [u8]>,
) -> (Vec<Entry>, Result<(), Error>) {
    let mut parser = Parser::new(boundary, LIMITS);
    let mut entries = Vec::new();
    let mut open: Option<(Part, Vec<u8>)> = None;
    let mut ended = false;
    for mut piece in pieces {
        loop {
            match parser.next(&mut piece) {
                Err(error) => {
                    assert_eq!(parser.finish(), Err(error), "an error stays");
                    return (entries, Err(error));
                }
                Ok(None) => break,
                Ok(Some(Event::PartBegin(part))) => {
                    assert!(
                        !ended && open.is_none(),
                        "a part begins outside of all others"
                    );
                    open = Some((part, Vec::new()));
                }
                Ok(Some(Event::Data(data))) => {
                    let (part, content) = open.as_mut().expect("data comes within a part");
                    assert!(!data.is_empty() && part.kind() != Kind::EmptyInput);
                    content.extend_from_slice(data);
                }
                Ok(Some(Event::PartEnd)) => {
                    let (part, content) = open.take().expect("only a part that has begun ends");
                    entries.push(entry(part, content));
                }
                Ok(Some(Event::End)) => {
                    assert!(
                        !ended && open.is_none(),
                        "the form ends once, behind its parts"
                    );
                    ended = true;
                }
            }
        }
        assert!(piece.is_empty(), "all input is used");
        assert!(parser.held() <= MAX_HEAD.saturating_add(1));
    }
    let end = parser.finish();
    assert!(end.is_err() || (open.is_none() && (ended || entries.is_empty())));
    (entries, end)
}

fn entry(part: Part, content: Vec<u8>) -> Entry {
    match part.kind() {
        Kind::Field => part.into_field(content),
        Kind::File => part.into_file(content.len() as u64, "/spool".into()),
        Kind::EmptyInput => part.into_failed(UploadError::NoFile),
    }
}

/// A urlencoded body.
///
/// # Panics
///
/// When the check and the pairs don't agree, when encoding again changes a value, or when what was
/// checked can't be written.
pub fn fuzz_urlencoded(input: &[u8]) {
    let pairs = urlencoded::pairs(input).count();
    let checked = urlencoded::check(input, Rules::Php, &LIMITS);
    assert!(
        checked.is_err() || (pairs <= LIMITS.fields as usize && input.len() <= LIMITS.field_bytes)
    );

    for pair in urlencoded::pairs(input) {
        for raw in [pair.name, pair.value] {
            let decoded = urlencoded::decode(raw);
            assert!(decoded.len() <= raw.len());
            let encoded = decoded.iter().fold(String::new(), |encoded, byte| {
                format!("{encoded}%{byte:02X}")
            });
            assert_eq!(urlencoded::decode(encoded.as_bytes()), decoded);
        }
    }

    let strict = urlencoded::check(input, Rules::Strict, &LIMITS);
    assert!(
        strict.is_err() || checked.is_ok(),
        "strict rules are the stricter ones"
    );
    let mut json = Vec::new();
    match tree::write_urlencoded(input, &LIMITS, &mut json) {
        Ok(()) => check_json(&json),
        Err(tree::UrlencodedError::Body(error)) => assert_eq!(strict, Err(error)),
        Err(tree::UrlencodedError::Tree(_)) => assert_eq!(strict, Ok(())),
    }
}

/// A form: a line for each entry, `name=value`, or `name<file name` for a file.
///
/// # Panics
///
/// As [`fuzz_multipart`] for what can't be written.
pub fn fuzz_tree(input: &[u8]) {
    let entries = input.split(|byte| *byte == b'\n').filter_map(|line| {
        let (name, rest) = line.split_at(memchr::memchr2(b'=', b'<', line)?);
        let (kind, text) = rest.split_first()?;
        let (name, text) = (name.to_vec(), text.to_vec());
        Some(if *kind == b'=' {
            Entry::Field { name, value: text }
        } else {
            let media_type = b"text/plain".to_vec();
            let path = "/spool".into();
            Entry::File(File {
                name,
                filename: text,
                media_type,
                size: 1,
                error: UploadError::Ok,
                path,
            })
        })
    });
    check_form(&Form {
        entries: entries.collect(),
    });
}

/// Any form can be written and read, and its trees are JSON, or an error that writes nothing.
fn check_form(form: &Form) {
    let mut section = Vec::new();
    native::write(form, &mut section).expect("strings are short");
    assert_eq!(
        native::read(&section).as_ref(),
        Ok(&without_details_of_failed(form))
    );

    for write in [tree::write_fields, tree::write_uploads] {
        let mut json = Vec::new();
        match write(form, &LIMITS, &mut json) {
            Ok(()) => check_json(&json),
            Err(error) => assert!(json.is_empty() && error.to_string().len() < 1_000),
        }
    }
}

fn without_details_of_failed(form: &Form) -> Form {
    let mut form = form.clone();
    for entry in &mut form.entries {
        if let Entry::File(file) = entry
            && file.error != UploadError::Ok
        {
            file.media_type.clear();
        }
    }
    form
}

/// Not a JSON parser: balanced outside of strings, no control characters, UTF-8, not too deep.
fn check_json(json: &[u8]) {
    assert!(std::str::from_utf8(json).is_ok());
    let (mut depth, mut in_string, mut escaped) = (0_usize, false, false);
    for byte in json {
        assert!(*byte >= b' ');
        match byte {
            b'"' if !escaped => in_string = !in_string,
            b'{' | b'[' if !in_string => depth = depth.saturating_add(1),
            b'}' | b']' if !in_string => depth = depth.checked_sub(1).expect("closes what is open"),
            _ => {}
        }
        escaped = *byte == b'\\' && in_string && !escaped;
        // The root, the levels, and a file at the end.
        assert!(depth <= usize::from(LIMITS.levels).saturating_add(2));
    }
    assert!(depth == 0 && !in_string);
}
