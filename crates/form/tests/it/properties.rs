//! What must hold for any form and for any bytes.

use std::path::Path;

use pronghorn_form::fuzz::{fuzz_multipart, fuzz_tree, fuzz_urlencoded};
use pronghorn_form::{Entry, File, Form, Limits, UploadError, native, tree};
use proptest::collection::vec;
use proptest::prelude::*;

use crate::cases;
use crate::support::{content_of, data_uri, parse};

const BOUNDARY: &str = "Bo undary";
const CONTENT_TYPE: &[u8] = b"multipart/form-data; boundary=\"Bo undary\"";

/// Content in which nearly everything looks like the beginning of a boundary.
fn content() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof!["\r", "\n", "--", "\r\n--Bo", "--Bo undar", "x", "\0"];
    prop_oneof![
        vec(piece, 0..12).prop_map(|pieces| pieces.concat().into_bytes()),
        vec(any::<u8>(), 0..300),
    ]
}

/// Any bytes that a header can carry.
fn name() -> impl Strategy<Value = Vec<u8>> {
    vec(prop_oneof![4 => b' '..=b'~', 1 => 0x80_u8..=0xFF], 0..20)
}

fn entry() -> impl Strategy<Value = Entry> {
    let field = (name(), content()).prop_map(|(name, value)| Entry::Field { name, value });
    let file = (name(), name(), content()).prop_map(|(name, filename, content)| {
        let empty = filename.is_empty();
        Entry::File(File {
            name,
            filename,
            media_type: b"application/x; a=\"b\"".to_vec(),
            size: if empty { 0 } else { content.len() as u64 },
            error: if empty {
                UploadError::NoFile
            } else {
                UploadError::Ok
            },
            path: if empty {
                "".into()
            } else {
                data_uri(&content).into()
            },
        })
    });
    prop_oneof![field, file]
}

fn form() -> impl Strategy<Value = Form> {
    vec(entry(), 0..6).prop_map(|entries| Form { entries })
}

/// As browsers do it, but with backslashes for quotes.
fn encode(form: &Form) -> Vec<u8> {
    let quoted = |text: &[u8]| {
        let escape = |byte: &u8| match byte {
            b'"' | b'\\' => vec![b'\\', *byte],
            _ => vec![*byte],
        };
        text.iter().flat_map(escape).collect::<Vec<u8>>()
    };
    let mut body = Vec::new();
    for entry in &form.entries {
        let (name, file) = match entry {
            Entry::Field { name, .. } => (name, None),
            Entry::File(file) => (&file.name, Some(file)),
        };
        body.extend_from_slice(
            format!("--{BOUNDARY}\r\nContent-Disposition: form-data; name=\"").as_bytes(),
        );
        body.extend_from_slice(&quoted(name));
        if let Some(file) = file {
            body.extend_from_slice(b"\"; filename=\"");
            body.extend_from_slice(&quoted(&file.filename));
            body.extend_from_slice(b"\"\r\nContent-Type: ");
            body.extend_from_slice(&file.media_type);
            body.extend_from_slice(b"\r\n\r\n");
            body.extend_from_slice(&content_of(file));
        } else if let Entry::Field { value, .. } = entry {
            body.extend_from_slice(b"\"\r\n\r\n");
            body.extend_from_slice(value);
        }
        body.extend_from_slice(b"\r\n");
    }
    body.extend_from_slice(format!("--{BOUNDARY}--\r\n").as_bytes());
    body
}

/// A boundary must not occur in the content, says RFC 2046; the generator makes it happen rarely.
fn is_honest(form: &Form) -> bool {
    let encoded = encode(form);
    let delimiters = memchr::memmem::find_iter(&encoded, "\n--Bo undary").count();
    delimiters == form.entries.len() && encoded.starts_with(b"--Bo") || form.entries.is_empty()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_form_comes_back_as_it_was_encoded(form in form()) {
        prop_assume!(is_honest(&form));
        prop_assert_eq!(parse(CONTENT_TYPE, &encode(&form), Limits::default()), Ok(form));
    }

    /// The function tries pieces of many sizes, and asserts what the parser holds.
    #[test]
    fn no_cut_and_no_damage_breaks_the_parser(
        form in form(),
        damage in vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        end in any::<prop::sample::Index>(),
    ) {
        let mut body = encode(&form);
        for (at, byte) in damage {
            let at = at.index(body.len());
            body[at] = byte;
        }
        body.truncate(end.index(body.len() * 2) + 1);
        fuzz_multipart(&[CONTENT_TYPE, b"\n", &body].concat());
    }

    #[test]
    fn no_bytes_break_anything(bytes in vec(any::<u8>(), 0..400)) {
        fuzz_multipart(&bytes);
        fuzz_multipart(&[b"multipart/form-data; boundary=".as_slice(), &bytes].concat());
        fuzz_urlencoded(&bytes);
        fuzz_tree(&bytes);
    }

    #[test]
    fn no_names_break_a_tree(text in "([ab0\\[\\] %5bBdD]{0,12}[=<]?[12+%]{0,2}[\n&]){0,12}") {
        fuzz_tree(text.as_bytes());
        fuzz_urlencoded(text.as_bytes());
    }

    #[test]
    fn trees_are_json_and_sections_come_back(form in form()) {
        for write in [tree::write_fields, tree::write_uploads] {
            let mut json = Vec::new();
            if write(&form, &Limits::default(), &mut json).is_ok() {
                let parsed = serde_json::from_slice::<serde_json::Value>(&json);
                prop_assert!(parsed.is_ok_and(|tree| tree.is_object()));
            }
        }
        let mut section = Vec::new();
        native::write(&form, &mut section).unwrap();
        let read = native::read(&section).unwrap();
        let mut again = Vec::new();
        native::write(&read, &mut again).unwrap();
        prop_assert_eq!(section, again);
    }
}

#[test]
fn the_corpus_and_the_bodies_for_php_keep_their_promises() {
    for (folder, fuzz) in [
        ("multipart", fuzz_multipart as fn(&[u8])),
        ("urlencoded", fuzz_urlencoded),
        ("tree", fuzz_tree),
    ] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("corpus")
            .join(folder);
        let inputs: Vec<_> = std::fs::read_dir(path)
            .unwrap()
            .map(|file| file.unwrap().path())
            .collect();
        assert!(inputs.len() >= 5, "{folder}: {inputs:?}");
        for input in inputs {
            fuzz(&std::fs::read(input).unwrap());
        }
    }
    for case in cases::all() {
        fuzz_multipart(&[case.content_type.as_bytes(), b"\n", &case.body].concat());
    }
}
