//! The form section of the native codec, against the vectors that PHP's tests read too.

use pronghorn_form::native::{self, ReadError};
use pronghorn_form::{Entry, File, Form, UploadError};
use serde_json::Value;

use crate::support::unhex;

fn vectors() -> Value {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../vectors/native.json");
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

fn entry(vector: &Value) -> Entry {
    let text = |key: &str| vector[key].as_str().unwrap().to_owned();
    let number = |key: &str| vector[key].as_u64().unwrap();
    let name = text("name").into();
    if number("kind") == 0 {
        return Entry::Field {
            name,
            value: text("value").into(),
        };
    }
    Entry::File(File {
        name,
        filename: text("value").into(),
        media_type: text("type").into(),
        size: number("size"),
        error: UploadError::from_number(u32::try_from(number("error")).unwrap()).unwrap(),
        path: text("path").into(),
    })
}

#[test]
fn forms_are_written_and_read_as_the_vectors_show() {
    let vectors = vectors();
    let mut forms = 0;
    for message in vectors["messages"].as_array().unwrap() {
        let Some(entries) = message["fields"]["form"].as_array() else {
            continue;
        };
        let form = Form {
            entries: entries.iter().map(entry).collect(),
        };
        let mut section = Vec::new();
        native::write(&form, &mut section).unwrap();
        assert_eq!(
            section,
            unhex(message["body_hex"].as_str().unwrap()),
            "{}",
            message["name"]
        );
        assert_eq!(native::read(&section), Ok(form), "{}", message["name"]);
        forms += 1;
    }
    assert!(forms >= 2);
}

#[test]
fn broken_forms_of_the_vectors_are_refused() {
    let vectors = vectors();
    let broken = vectors["broken"].as_array().unwrap();
    let forms: Vec<_> = broken
        .iter()
        .filter(|message| message["body_hex"].is_string())
        .collect();
    assert!(!forms.is_empty());
    for message in forms {
        assert_eq!(
            native::read(&unhex(message["body_hex"].as_str().unwrap())),
            Err(ReadError::Cut),
            "{}",
            message["name"]
        );
    }
}

#[test]
fn a_section_that_its_lengths_do_not_fill_is_refused() {
    let form = Form {
        entries: vec![Entry::Field {
            name: b"a".to_vec(),
            value: b"12".to_vec(),
        }],
    };
    let mut section = Vec::new();
    native::write(&form, &mut section).unwrap();
    for end in 0..section.len() {
        assert_eq!(
            native::read(&section[..end]),
            Err(ReadError::Cut),
            "cut at {end}"
        );
    }
    section.push(0);
    assert_eq!(
        native::read(&section),
        Err(ReadError::LeftOver { bytes: 1 })
    );
    section[4] = 2;
    assert_eq!(native::read(&section), Err(ReadError::Kind { kind: 2 }));
    section[8] = 5;
    assert_eq!(
        native::read(&section),
        Err(ReadError::UploadError { number: 5 })
    );
}

#[test]
fn of_a_failed_file_its_names_are_written_alone() {
    let failed = File {
        name: b"f".to_vec(),
        filename: b"x".to_vec(),
        media_type: b"a/b".to_vec(),
        size: 9,
        error: UploadError::CantWrite,
        path: "/spool/1".into(),
    };
    let mut section = Vec::new();
    native::write(
        &Form {
            entries: vec![Entry::File(failed.clone())],
        },
        &mut section,
    )
    .unwrap();
    let left = File {
        media_type: Vec::new(),
        size: 0,
        path: "".into(),
        ..failed
    };
    assert_eq!(
        native::read(&section),
        Ok(Form {
            entries: vec![Entry::File(left)]
        })
    );
}
