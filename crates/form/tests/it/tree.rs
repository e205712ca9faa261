//! RoadRunner's trees, row by row of `docs/reference/forms.md`.

use pronghorn_form::{Entry, File, Form, Limits, UploadError, tree};
use serde_json::Value;

/// Whose result a row shows. The oracle test checks that it is PHP's where this says so, and only
/// there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Like {
    /// RoadRunner's and PHP's.
    Both,
    /// RoadRunner's: applications saw this.
    RoadRunner,
    /// PHP's, where RoadRunner loses fields, refuses, or decides by chance.
    Php,
}

use Like::{Both, Php, RoadRunner};

/// Body, JSON, and whose result it is.
pub(crate) const ROWS: &[(&str, &str, Like)] = &[
    ("a=1&a=2", r#"{"a":"2"}"#, Both),
    ("a[]=1&a[]=2", r#"{"a":["1","2"]}"#, Both),
    ("a[b][]=1&a[b][]=2", r#"{"a":{"b":["1","2"]}}"#, Both),
    ("a[][k]=1&a[][k]=2", r#"{"a":[{"k":"1"},{"k":"2"}]}"#, Php),
    ("a[][]=1&a[][]=2", r#"{"a":[["1"],["2"]]}"#, Php),
    ("e[0]=p&e[5]=q", r#"{"e":{"0":"p","5":"q"}}"#, Both),
    ("a", r#"{"a":""}"#, Both),
    ("a=", r#"{"a":""}"#, Both),
    ("", "{}", Both),
    ("=5", r#"{"":"5"}"#, RoadRunner),
    ("[c]=3", r#"{"":{"c":"3"}}"#, RoadRunner),
    ("%5Ba%5D=1", r#"{"":{"a":"1"}}"#, RoadRunner),
    ("[]=1", r#"{"":["1"]}"#, RoadRunner),
    ("a[b=1", r#"{"a":{"b":"1"}}"#, RoadRunner),
    ("a]b=2", r#"{"a":{"b":"2"}}"#, RoadRunner),
    ("d[e]f=4", r#"{"d":{"e":{"f":"4"}}}"#, RoadRunner),
    ("g[[h]]=6", r#"{"g":{"h":"6"}}"#, RoadRunner),
    ("a b[ c ]=1", r#"{"ab":{"c":"1"}}"#, RoadRunner),
    ("h+i=x", r#"{"hi":"x"}"#, RoadRunner),
    ("a.b=1", r#"{"a.b":"1"}"#, RoadRunner),
    (
        "b=1&a=2&10=3&9=4",
        r#"{"b":"1","a":"2","10":"3","9":"4"}"#,
        Php,
    ),
    ("a=1&b=2&a=3", r#"{"a":"3","b":"2"}"#, Php),
    ("a=&a[b]=1", r#"{"a":{"b":"1"}}"#, Both),
    ("a[b]=1&a=", r#"{"a":{"b":"1"}}"#, RoadRunner),
    ("a=&a[]=1&a[]=2", r#"{"a":["1","2"]}"#, Both),
    ("a[]=&a[]=", r#"{"a":["",""]}"#, Both),
    ("a=1&a=", r#"{"a":""}"#, Both),
    ("a[]=1&a=2", r#"{"a":"2"}"#, Both),
    ("a=1&a[]=", r#"{"a":"1"}"#, RoadRunner),
    ("a=1&a[]=2", r#"{"a":["2"]}"#, Php),
    ("a[b]=1&a[b][]=2", r#"{"a":{"b":["2"]}}"#, Php),
    ("a[b][]=1&a[b]=2&a[b][]=3", r#"{"a":{"b":["3"]}}"#, Php),
    // A list and keys in one: nothing is lost, so why refuse.
    ("a[]=1&a[x]=2", r#"{"a":{"0":"1","x":"2"}}"#, Php),
    ("a[x]=1&a[]=2", r#"{"a":{"x":"1","0":"2"}}"#, Php),
    ("a[5]=1&a[]=2", r#"{"a":{"5":"1","6":"2"}}"#, Php),
    ("a[]=1&a[0]=2", r#"{"a":["2"]}"#, Php),
    ("a[][x]=1&a[0][y]=2", r#"{"a":[{"x":"1","y":"2"}]}"#, Php),
    ("a[05]=1&a[]=2", r#"{"a":{"05":"1","0":"2"}}"#, Php),
    (
        "a[9223372036854775808]=1&a[]=2",
        r#"{"a":{"9223372036854775808":"1","0":"2"}}"#,
        Php,
    ),
    (
        "__proto__[x]=1&constructor=2",
        r#"{"__proto__":{"x":"1"},"constructor":"2"}"#,
        Both,
    ),
    ("a=%22%5C%0A%01%1f/", r#"{"a":"\"\\\n\u0001\u001f/"}"#, Both),
    (
        "a=%ff&%fe%c3[%c3]=%f0%9f%98%80%ed%a0%80",
        "{\"a\":\"\u{FFFD}\",\"\u{FFFD}\u{FFFD}\":{\"\u{FFFD}\":\"😀\u{FFFD}\u{FFFD}\u{FFFD}\"}}",
        RoadRunner,
    ),
];

/// Where RoadRunner answers 500, and PHP keeps one field and drops the other without a word.
const CONFLICTS: &[(&str, &str)] = &[
    ("a=1&a[b]=2", "a[b]"),
    ("a[b]=2&a=1", "a"),
    ("a[][k]=1&a=2", "a"),
    ("a[b][c]=1&a[b]=2", "a[b]"),
    ("a=1&a[][k]=2", "a[][k]"),
    ("a=1&a[b][]=2", "a[b][]"),
    ("a[9223372036854775807]=1&a[]=2", "a[]"),
];

fn tree(body: &str) -> Result<String, tree::UrlencodedError> {
    let mut out = b"kept".to_vec();
    let done = tree::write_urlencoded(body.as_bytes(), &Limits::default(), &mut out);
    let out = String::from_utf8(out).unwrap();
    let out = out.strip_prefix("kept").unwrap();
    done.map(|()| out.to_owned())
        .inspect_err(|_| assert_eq!(out, "", "an error writes nothing"))
}

#[test]
fn every_row_of_the_table_has_the_tree_it_shows() {
    for (body, expected, _) in ROWS {
        let json = tree(body).unwrap();
        assert_eq!(json, *expected, "{body}");
        serde_json::from_str::<Value>(&json).unwrap();
    }
}

#[test]
fn the_reference_shows_every_row() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/forms.md");
    let reference = std::fs::read_to_string(path).unwrap();
    for (body, tree, like) in ROWS {
        let body = if body.is_empty() {
            "(nothing)".to_owned()
        } else {
            format!("`{body}`")
        };
        let like = match like {
            Both => "Both",
            RoadRunner => "RoadRunner",
            Php => "PHP",
        };
        let row = format!("| {body} | `{tree}` | {like}");
        assert!(
            reference.lines().any(|line| line.starts_with(&row)),
            "{row}"
        );
    }
    for (body, _) in CONFLICTS {
        assert!(reference.contains(&format!("`{body}`")), "{body}");
    }
}

#[test]
fn a_field_that_would_hide_another_is_refused_by_its_name() {
    for (body, name) in CONFLICTS {
        let conflict = tree::Error::Conflict {
            name: (*name).to_owned(),
        };
        assert_eq!(tree(body), Err(conflict.into()), "{body}");
    }
}

#[test]
fn a_malformed_body_is_refused_before_a_tree_is_made() {
    for body in ["a=%zz", "a=1;b=2", "a%=1"] {
        assert!(
            matches!(tree(body), Err(tree::UrlencodedError::Body(_))),
            "{body}"
        );
    }
}

#[test]
fn levels_are_bounded_whichever_bracket_makes_them() {
    let limits = Limits {
        levels: 3,
        ..Limits::default()
    };
    let write = |body: &str| tree::write_urlencoded(body.as_bytes(), &limits, &mut Vec::new());
    assert_eq!(write("a[b][c][d]=1&a]b]c]d=1"), Ok(()));
    assert!(write("a[b][c][d][e]=1").is_err());
    let name = "a]b]c]d]e".to_owned();
    assert_eq!(
        write("a]b]c]d]e=1"),
        Err(tree::Error::TooManyLevels { name, limit: 3 }.into())
    );

    let deepest = Limits {
        levels: u8::MAX,
        ..Limits::default()
    };
    let body = format!("a{}=1", "[0]".repeat(255));
    assert_eq!(
        tree::write_urlencoded(body.as_bytes(), &deepest, &mut Vec::new()),
        Ok(())
    );
}

#[test]
fn an_error_shows_the_beginning_of_a_long_name_only() {
    let name = "n".repeat(10_000);
    let error = tree(&format!("{name}[b]=1&{name}=2"))
        .unwrap_err()
        .to_string();
    assert!(error.len() < 250, "{error}");
}

#[test]
fn a_thousand_long_keys_cost_no_comparison_of_each_with_each() {
    let stem = "k".repeat(8_000);
    let body: Vec<String> = (0..1_000)
        .map(|number| format!("a[{stem}{number:03}]=1"))
        .collect();
    let json: Value = serde_json::from_str(&tree(&body.join("&")).unwrap()).unwrap();
    assert_eq!(json["a"].as_object().unwrap().len(), 1_000);
}

fn file(name: &str, filename: &str) -> Entry {
    Entry::File(File {
        name: name.into(),
        filename: filename.into(),
        media_type: b"text/plain".to_vec(),
        size: 7,
        error: UploadError::Ok,
        path: format!("/spool/{}", filename.len()).into(),
    })
}

fn field(name: &str, value: &str) -> Entry {
    Entry::Field {
        name: name.into(),
        value: value.into(),
    }
}

fn uploads(entries: &[Entry]) -> Result<String, tree::Error> {
    let mut out = Vec::new();
    tree::write_uploads(
        &Form {
            entries: entries.to_vec(),
        },
        &Limits::default(),
        &mut out,
    )?;
    Ok(String::from_utf8(out).unwrap())
}

fn body(entries: &[Entry]) -> String {
    let mut out = Vec::new();
    tree::write_fields(
        &Form {
            entries: entries.to_vec(),
        },
        &Limits::default(),
        &mut out,
    )
    .unwrap();
    String::from_utf8(out).unwrap()
}

/// What a file leaves in the tree, in short.
fn leaf(name: &str, filename: &str) -> String {
    let length = filename.len();
    format!(
        r#"{{"name":"{name}","mime":"text/plain","size":7,"error":0,"tmpName":"/spool/{length}"}}"#
    )
}

#[test]
fn uploads_nest_as_fields_do_and_keep_the_order_of_the_body() {
    let entries = [
        file("z", "1"),
        file("f[]", "22"),
        field("f[]", "text"),
        file("f[]", "333"),
        file("h[k][l]", "4444"),
    ];
    let [z, first, second, nested] = ["1", "22", "333", "4444"].map(|name| leaf(name, name));
    assert_eq!(
        uploads(&entries).unwrap(),
        format!(r#"{{"z":{z},"f":[{first},{second}],"h":{{"k":{{"l":{nested}}}}}}}"#)
    );
    assert_eq!(body(&entries), r#"{"f":["text"]}"#);
}

#[test]
fn a_form_without_files_has_an_empty_tree_of_uploads() {
    assert_eq!(uploads(&[field("a", "1")]).unwrap(), "{}");
}

#[test]
fn of_several_files_under_a_plain_name_the_first_counts() {
    assert_eq!(
        uploads(&[file("f", "1"), file("f", "22")]).unwrap(),
        format!(r#"{{"f":{}}}"#, leaf("1", "1"))
    );
}

#[test]
fn a_file_under_a_plain_name_and_under_keys_is_refused() {
    for [first, second] in [["f", "f[]"], ["f[]", "f"], ["f", "f[a]"], ["f[a]", "f"]] {
        let conflict = tree::Error::Conflict {
            name: second.to_owned(),
        };
        assert_eq!(
            uploads(&[file(first, "1"), file(second, "2")]),
            Err(conflict),
            "{first} {second}"
        );
    }
}

#[test]
fn an_input_left_empty_is_an_empty_field_and_no_upload() {
    let mut empty = file("f[]", "");
    if let Entry::File(file) = &mut empty {
        file.error = UploadError::NoFile;
    }
    let entries = [field("a", "1"), empty, field("b", "2")];
    assert_eq!(uploads(&entries).unwrap(), "{}");
    assert_eq!(body(&entries), r#"{"a":"1","f":[""],"b":"2"}"#);
}

#[test]
fn a_file_with_an_error_has_neither_size_nor_path() {
    let mut failed = file("f", "x.php");
    if let Entry::File(file) = &mut failed {
        file.error = UploadError::Extension;
    }
    assert_eq!(
        uploads(&[failed]).unwrap(),
        r#"{"f":{"name":"x.php","mime":"text/plain","size":0,"error":8,"tmpName":""}}"#
    );
}

#[test]
fn a_path_in_a_file_name_is_left_out() {
    for (filename, base) in [
        ("a/b/c.txt", "c.txt"),
        ("C:\\d\\e.txt", "e.txt"),
        ("a\\b/c", "c"),
        ("../..", ".."),
        ("d/", ""),
    ] {
        let json: Value = serde_json::from_str(&uploads(&[file("f", filename)]).unwrap()).unwrap();
        assert_eq!(json["f"]["name"], base, "{filename}");
    }
}
