//! No bytes make the loader panic, run away or speak without a place.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use pronghorn_config::{Input, fuzz_load};
use proptest::prelude::*;

use crate::{Sample, read};

/// Pieces from which near-YAML is thrown together.
fn piece() -> impl Strategy<Value = String> {
    const WORDS: &[&str] = &[
        "name",
        "count",
        "env",
        "list",
        "inner",
        "named",
        "items",
        "port",
        "limit",
        "patience",
        "include",
        "version",
        "later",
        "password",
        "queue",
        "envfile",
        "command",
        "color",
        "a.b",
        "<<",
        "~",
        "null",
        "0",
        "3",
        "60",
        "1h",
        "-5",
        "a.yaml",
        "$SET",
        "${NOPE}",
        "${NOPE:-x}",
        "${",
        "$$",
        "true",
        "red",
        ": ",
        ":",
        "\n",
        "\n  ",
        "\n    ",
        "- ",
        ", ",
        "[",
        "]",
        "{",
        "}",
        "&a ",
        "*a",
        "\"",
        "'",
        "#",
        " # ",
        "|\n",
        ">-\n",
        "!!str ",
        "!x ",
        "---\n",
        "...\n",
        "\t",
        "%%",
        "\n%%\n",
        "=",
        "?",
        "@",
        "`",
        "%YAML 1.2\n",
        "\u{feff}",
        "\u{0}",
        "ü",
        "\r\n",
        "\\",
        "***",
        "http://u:p@h/",
        ",",
        "host:1",
        "[::1]:1",
        "tcp://",
        "\u{2028}",
        "\u{85}",
        "1 #",
        "a: #",
    ];
    prop_oneof![
        8 => proptest::sample::select(WORDS).prop_map(ToOwned::to_owned),
        1 => any::<char>().prop_map(String::from),
    ]
}

/// A value in a place that reads it, so that what is shown is often worth reading back.
fn line() -> impl Strategy<Value = String> {
    const KEYS: &[&str] = &[
        "name", "list", "env", "command", "path", "later", "password", "count",
    ];
    let values = proptest::collection::vec(piece(), 0..6);
    (proptest::sample::select(KEYS), values).prop_map(|(key, values)| {
        let value: String = values.concat().chars().filter(|c| *c != '\n').collect();
        let quoted: String = value.chars().flat_map(escape).collect();
        match value.len() % 5 {
            0 => format!("{key}: \"{quoted}\"\n"),
            1 => format!("{key}: [\"{quoted}\", b]\n"),
            2 => format!("{key}: {{A: \"{quoted}\"}}\n"),
            3 => format!("items: [{{limit: 0}}, {{port: {}}}, {{}}]\n", value.len()),
            _ => format!("{key}: {value}\n"),
        }
    })
}

fn escape(c: char) -> Vec<char> {
    match c {
        '"' | '\\' => vec!['\\', c],
        '\0' | '\r' => vec!['_'],
        c => vec![c],
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_are_loaded_or_refused(data in proptest::collection::vec(any::<u8>(), 0..200)) {
        fuzz_load::<Sample>(&data);
    }

    #[test]
    fn near_yaml_is_loaded_or_refused(pieces in proptest::collection::vec(piece(), 0..40)) {
        fuzz_load::<Sample>(pieces.concat().as_bytes());
    }

    #[test]
    fn what_is_shown_reads_back(lines in proptest::collection::btree_set(line(), 0..4)) {
        fuzz_load::<Sample>(lines.into_iter().collect::<String>().as_bytes());
    }
}

/// `n` texts, one after the other.
fn all(n: usize, text: impl Fn(usize) -> String) -> String {
    (0..n).map(text).collect()
}

/// Inputs that cost more than they weigh.
#[test]
fn bombs_are_refused_soon() {
    let aliases = all(30, |i| {
        format!("a{}: &a{} [*a{i}, *a{i}, *a{i}]\n", i + 1, i + 1)
    });
    let merges = all(20, |i| {
        format!("b{0}: &b{0} {{<<: [*b{i}, *b{i}], k{i}: 1}}\n", i + 1)
    });
    let bombs = [
        ("aliases", format!("a0: &a0 [x]\n{aliases}")),
        ("merges", format!("b0: &b0 {{k: 1}}\n{merges}")),
        (
            "texts",
            format!(
                "a: &a {}\nb: [{}]\n",
                "x".repeat(10_000),
                "*a,".repeat(9_000)
            ),
        ),
        ("flow depth", "[".repeat(500_000)),
        ("map depth", "{a: ".repeat(250_000)),
        (
            "block depth",
            all(1000, |i| format!("{}a:\n", " ".repeat(i))),
        ),
        ("list depth", "a:\n".to_owned() + &"- ".repeat(500_000)),
        ("anchors", all(60_000, |i| format!("k{i}: &a{i} x\n"))),
        ("keys", all(100_000, |i| format!("k{i}: 1\n"))),
        ("same keys", "k: 1\n".repeat(100_000)),
        ("items", format!("list: [{}]", "x,".repeat(300_000))),
        ("dots", format!("a{}: 1\n", ".a".repeat(60))),
        (
            "nested dots",
            format!("{}1", format!("{}a: {{", "a.".repeat(38)).repeat(20)),
        ),
        ("colons", ":".repeat(500_000)),
        ("questions", "? ".repeat(300_000)),
        ("long key", format!("{}: 1", "k".repeat(900_000))),
        ("open quote", format!("a: \"{}", "x\n".repeat(400_000))),
        ("blank lines", "\n".repeat(1_000_000)),
        ("spaces", " ".repeat(1_000_000)),
        ("comments", "#\n".repeat(500_000)),
        ("tags", format!("a: {}x", "!t ".repeat(300_000))),
        ("variables", format!("name: {}", "${SET}".repeat(100_000))),
        (
            "unset variables",
            format!("name: {}", all(90_000, |i| format!("${{V{i}}}"))),
        ),
        ("dollars", format!("name: {}", "$".repeat(900_000))),
        ("open braces", format!("name: {}", "${".repeat(400_000))),
        (
            "near names",
            all(9000, |i| format!("{}{i}: 1\n", "coun".repeat(10))),
        ),
        ("too large", "#".repeat(2_000_000)),
    ];
    for (name, text) in bombs {
        let began = SystemTime::now();
        let mut input = Input::from_text("bomb.yaml", text);
        input.environment = [("SET".to_owned(), "x".repeat(100_000))].into();
        let (_, said) = read(&input);
        let took = began.elapsed().unwrap_or_default();
        assert!(took < Duration::from_secs(20), "{name} took {took:?}");
        assert!(said.len() < 2_000_000, "{name} said {} bytes", said.len());
    }
}

#[test]
fn the_corpus_is_loaded_or_refused() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus");
    let entries = fs::read_dir(folder).expect("the folder of the corpus");
    let files: Vec<PathBuf> = entries.map(|e| e.expect("an entry").path()).collect();
    assert!(files.len() >= 10, "the corpus is gone");
    for file in files {
        fuzz_load::<Sample>(&fs::read(file).expect("a file of the corpus"));
    }
}
