//! Keys that count in some sections and not in others.

use pronghorn_config::{Input, Section, Severity, Table, describe, load};

/// Of two kinds: one acts on all keys, the other on none.
#[derive(Debug, PartialEq)]
struct Part {
    count: usize,
    limit: Option<u32>,
    word: String,
    more: Option<(u32, u32)>,
}

impl Section for Part {
    fn read(t: &mut Table<'_>) -> Self {
        let full = t.key("full", "Whether all keys count.").default(false);
        Self {
            count: t
                .key("count", "A number.")
                .refused((!full).then_some(("is of full ones", "remove it")))
                .default(3),
            limit: t
                .key("limit", "A limit.")
                .refused((!full).then_some(("is of full ones", "remove it")))
                .limit(),
            word: t
                .key("word", "A text.")
                .no_effect((!full).then(|| "has no effect here".to_owned()))
                .default("usual".to_owned()),
            more: t.keys_where(full, "is of full ones, too", "say so", |t| {
                let first = t.key("first", "A number.").default(1);
                let below = |t: &mut Table<'_>| t.key("second", "A number.").default(2);
                let second = t.section_with("below", "A section.", below);
                if first > second {
                    t.error("first", "is more than the second", "swap them");
                }
                (first, second)
            }),
        }
    }
}

fn read(text: &str) -> (Part, String, String) {
    let loaded = load(&Input::from_text("a.yaml", text));
    let resolved = loaded.resolve::<Part>(Severity::Error);
    let (said, shown) = (resolved.report(), resolved.effective());
    let (said, shown) = (said.to_string(), shown.to_string());
    (
        resolved.into_settings().unwrap_or_else(|_| Part::nothing()),
        said,
        shown,
    )
}

impl Part {
    fn nothing() -> Self {
        Self {
            count: 0,
            limit: None,
            word: String::new(),
            more: None,
        }
    }
}

#[test]
fn what_counts_is_taken_without_a_word() {
    let (part, said, shown) =
        read("{full: true, count: 5, limit: 7, word: x, first: 3, below: {second: 4}}");
    assert_eq!(said, "");
    let expected = Part {
        count: 5,
        limit: Some(7),
        word: "x".to_owned(),
        more: Some((3, 4)),
    };
    assert_eq!(part, expected);
    assert!(
        shown.contains("first: 3") && shown.contains("second: 4"),
        "{shown}"
    );
}

#[test]
fn the_default_is_refused_nowhere() {
    let (part, said, shown) = read("{count: 3, limit: 0}");
    assert_eq!((said.as_str(), part.count, part.limit), ("", 3, None));
    assert_eq!(part.more, None);
    assert!(
        !shown.contains("first") && !shown.contains("below"),
        "{shown}"
    );
}

#[test]
fn each_key_that_does_not_count_is_named() {
    let (part, said, shown) = read("{count: 5, limit: 7, word: x, first: 9, below: {}}");
    let expected = "\
error: a.yaml:1:9: `count` is of full ones
hint: remove it
error: a.yaml:1:19: `limit` is of full ones
hint: remove it
warning: a.yaml:1:28: `word` has no effect here
hint: remove it
error: a.yaml:1:38: `first` is of full ones, too
hint: say so
error: a.yaml:1:41: `below` is of full ones, too
hint: say so
";
    assert_eq!(said, expected);
    assert_eq!(part, Part::nothing(), "there are no settings");
    assert!(!shown.contains("first"), "{shown}");
}

#[test]
fn the_reference_has_them_all() {
    let reference = describe::<Part>().to_string();
    for name in ["count", "limit", "word", "first", "second"] {
        assert!(reference.contains(name), "{name}: {reference}");
    }
}
