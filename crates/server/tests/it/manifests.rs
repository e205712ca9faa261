//! What `Cargo.toml` says of a crate holds.

use std::fs;
use std::path::{Path, PathBuf};

/// rustdoc takes seconds to find no example in a crate, so most have none and say so.
#[test]
fn examples_in_documentation_are_run() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut wrong = Vec::new();
    let mut run = 0;
    for entry in fs::read_dir(crates).expect("the crates") {
        let directory = entry.expect("a crate").path();
        let manifest = fs::read_to_string(directory.join("Cargo.toml")).expect("a manifest");
        let is_run = !manifest.contains("\n[lib]\ndoctest = false\n");
        run += usize::from(is_run);
        let example = sources(&directory.join("src"))
            .into_iter()
            .find(|path| has_example(&fs::read_to_string(path).expect("a source")));
        match example {
            Some(path) if !is_run => wrong.push(format!(
                "{} has an example, which `doctest = false` leaves out",
                path.display()
            )),
            None if is_run => wrong.push(format!(
                "{} has no example: add `doctest = false` below `[lib]`",
                directory.display()
            )),
            _ => {}
        }
    }
    assert!(run > 0, "the examples are gone");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn has_example(text: &str) -> bool {
    let mut comments = text.lines().map(str::trim_start);
    comments.any(|line| line == "/// ```" || line == "//! ```")
}

fn sources(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut left = vec![directory.to_owned()];
    while let Some(directory) = left.pop() {
        for entry in fs::read_dir(directory).expect("sources") {
            let path = entry.expect("a source").path();
            if path.is_dir() {
                left.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.push(path);
            }
        }
    }
    found
}
