//! Counts of what the sources and the pages have too much of: they may fall, and not rise.
//!
//! `UPDATE_GOLDEN=1` writes down what has become less.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use crate::circles::{self, add_files};

/// Names of types that say nothing without their module. One that is private to a short file is
/// read together with it.
const VAGUE: &[&str] = &[
    "Asked", "Entry", "Extras", "Found", "Heard", "Held", "Item", "Kept", "Last", "Later", "Named",
    "News", "Order", "Place", "Ran", "Recent", "Said", "Shared", "Standing", "State", "Told",
    "Way", "Work",
];
/// Lines of a file in which such a name is clear.
const SHORT: usize = 200;

/// How a comment begins whose subject is somewhere else.
const WITHOUT_SUBJECT: &[&str] = &["Of ", "What ", "Those ", "So long "];

const COUNTED: [(&str, &str); 4] = [
    (
        "modules in circles",
        "let one of two modules use the other, or move what both need into a third",
    ),
    (
        "types with a vague name",
        "name a type by what it is: `PoolState`, `QueuedJob`",
    ),
    ("lines with `folder`", "the word is `directory`"),
    (
        "comments without a subject",
        "begin a comment with its subject, not with `Of`, `What`, `Those` or `So long`",
    ),
];

type Counts = [usize; COUNTED.len()];

#[test]
fn nothing_gets_more_of_what_is_to_go() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/ratchet.txt");
    let mut known = read(&fs::read_to_string(&path).expect("the ratchet"));
    let mut wrong = Vec::new();
    let found = counts();
    assert!(found.len() > 25, "the crates are gone: {}", found.len());
    known.retain(|name, _| found.contains_key(name));
    for (name, counts) in found {
        // A new crate begins without.
        let allowed = known.entry(name.clone()).or_default();
        for ((what, hint), (now, most)) in COUNTED.iter().zip(counts.iter().zip(allowed)) {
            if now > most {
                wrong.push(format!("`{name}` has {now} {what}, and had {most}: {hint}"));
                if what == &COUNTED[0].0 {
                    // The benchmark and the end-to-end tests lie beside the crates.
                    let places = [root().join("crates").join(&name), root().join(&name)];
                    let place = places.iter().find(|place| place.exists());
                    let place = place.expect("it was counted");
                    let circles = circles::circles_of_files(&place.join("src"));
                    wrong.extend(
                        circles
                            .iter()
                            .map(|circle| format!("  {}", circle.join(", "))),
                    );
                }
            }
            *most = (*now).min(*most);
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(&path, write(&known)).expect("the ratchet can be written");
    }
}

#[test]
fn what_is_counted_is_seen() {
    for (text, count) in [
        ("struct State {", 0),
        ("pub(crate) struct State {", 1),
        ("pub enum Told<'a> {", 1),
        ("pub struct PoolState;", 0),
        ("impl State {", 0),
    ] {
        assert_eq!(vague_types(text), count, "{text}");
    }
    let long = "\n".repeat(SHORT);
    assert_eq!(vague_types(&format!("{long}struct State {{")), 1);
    let text =
        "/// Of a pool.\n/// Those are told.\nfn f() {}\n    // What is low.\n/// A pool of it.\n";
    assert_eq!(comments_without_subject(text), 2);
    assert_eq!(
        lines_with_folder("let folder = 1;\n// Two folders.\nFOLD"),
        2
    );
}

fn counts() -> BTreeMap<String, Counts> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(root().join("crates")).expect("the crates") {
        let directory = entry.expect("a crate").path();
        let name = directory.file_name().expect("a name").to_string_lossy();
        found.insert(name.into_owned(), counts_of(&directory));
    }
    for name in ["bench", "e2e"] {
        found.insert(name.to_owned(), counts_of(&root().join(name)));
    }
    let pages = pages(&root().join("docs"));
    assert!(pages.len() > 50, "the pages are gone: {}", pages.len());
    let lines = pages
        .iter()
        .map(|page| lines_with_folder(&fs::read_to_string(page).expect("a page")));
    found.insert("docs".to_owned(), [0, 0, lines.sum(), 0]);
    found
}

fn pages(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).expect("a directory of pages") {
        let path = entry.expect("a page").path();
        if path.is_dir() {
            found.extend(pages(&path));
        } else if path.extension().is_some_and(|extension| extension == "md") {
            found.push(path);
        }
    }
    found
}

fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).expect("the repository").to_owned()
}

fn counts_of(directory: &Path) -> Counts {
    let mut sources: Vec<PathBuf> = Vec::new();
    add_files(&directory.join("src"), &mut sources);
    let texts = sources
        .iter()
        .map(|file| fs::read_to_string(file).expect("a source"));
    let circles = circles::circles_of_files(&directory.join("src"));
    let mut counts = [circles.iter().map(Vec::len).sum(), 0, 0, 0];
    for text in texts {
        counts[1] += vague_types(&text);
        counts[2] += lines_with_folder(&text);
        counts[3] += comments_without_subject(&text);
    }
    counts
}

fn vague_types(text: &str) -> usize {
    let is_short = text.lines().count() <= SHORT;
    let declared = text.lines().filter(|line| {
        let line = line.trim_start();
        let is_public = line.starts_with("pub");
        let mut words = line.split(|sign: char| !sign.is_alphanumeric() && sign != '_');
        let kind = words.find(|word| ["struct", "enum", "trait", "type"].contains(word));
        let begins = ["pub", "struct", "enum", "trait", "type"];
        kind.is_some()
            && begins.iter().any(|word| line.starts_with(word))
            && words.next().is_some_and(|name| VAGUE.contains(&name))
            && (is_public || !is_short)
    });
    declared.count()
}

fn lines_with_folder(text: &str) -> usize {
    let lines = text.lines().map(str::to_lowercase);
    lines.filter(|line| line.contains("folder")).count()
}

/// Counts blocks of comments, by their first lines.
fn comments_without_subject(text: &str) -> usize {
    let mut is_inside = false;
    let mut count = 0;
    for line in text.lines().map(str::trim_start) {
        let comment = ["/// ", "//! ", "// "]
            .iter()
            .find_map(|sign| line.strip_prefix(sign));
        if let Some(comment) = comment
            && !is_inside
            && WITHOUT_SUBJECT
                .iter()
                .any(|begin| comment.starts_with(begin))
        {
            count += 1;
        }
        is_inside = line.starts_with("//");
    }
    count
}

fn read(text: &str) -> BTreeMap<String, Counts> {
    let rows = text.lines().filter(|line| !line.starts_with('#'));
    rows.map(|row| {
        let mut cells = row.split_whitespace();
        let name = cells.next().expect("a crate").to_owned();
        let counts = cells.map(|cell| cell.parse().expect("a number"));
        let counts = counts.collect::<Vec<_>>().try_into().expect("four counts");
        (name, counts)
    })
    .collect()
}

fn write(counts: &BTreeMap<String, Counts>) -> String {
    let names = COUNTED.map(|(what, _)| what).join(", ");
    let mut text = format!("# {names}: they may only fall (tests/it/ratchet.rs)\n");
    for (name, [circles, vague, folder, comments]) in counts {
        writeln!(text, "{name} {circles} {vague} {folder} {comments}").expect("a text takes all");
    }
    text
}
