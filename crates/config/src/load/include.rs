//! `include`: other files over this one.

use std::path::{Component, Path, PathBuf};

use super::{Loader, merge, shown};
use crate::node::{Map, Node, Value, same_name};
use crate::place::{Origin, Place};
use crate::resolve::Difference;

/// Files within files. Nobody keeps track of more.
const MAX_DEPTH: usize = 8;

/// All files of one configuration.
const MAX_FILES: usize = 64;

/// Merges everything that `root` includes over it. Gives the sections that came from includes.
pub(super) fn resolve(loader: &mut Loader<'_>, root: &mut Map, main: Option<&Path>) -> Vec<String> {
    let mut sections = Vec::new();
    let main = main.unwrap_or_else(|| Path::new(""));
    let mut chain = vec![plain(main)];
    into(loader, root, main, &mut chain, &mut sections);
    sections
}

fn into(
    loader: &mut Loader<'_>,
    map: &mut Map,
    file: &Path,
    chain: &mut Vec<PathBuf>,
    sections: &mut Vec<String>,
) {
    let Some(entry) = map.position("include").map(|at| map.entries.remove(at)) else {
        return;
    };
    let Some(names) = texts(&entry.node) else {
        let hint = "write `include: [one.yaml, two.yaml]`";
        let place = &entry.node.origin.place;
        loader
            .diagnostics
            .error(place, "`include` takes a list of files", hint);
        return;
    };
    for (name, place) in names {
        let mut origin = Origin::new(place.clone());
        let name = loader.expander().text(&name, "include", &mut origin);
        if name.is_empty() {
            continue;
        }
        let path = find(loader, &name, file);
        if let Some(problem) = refusal(loader, &path, chain) {
            let message = format!("`include`: `{}` {problem}", shown(&path));
            loader.diagnostics.error(&place, message, "");
            continue;
        }
        let source = loader.next_source(&path.display().to_string());
        let mut included = loader.parsed(&path, &source, &place);
        chain.push(plain(&path));
        into(loader, &mut included, &path, chain, sections);
        chain.pop();
        check_version(loader, map.get("version"), included.get("version"));
        if let Some(node) = included.get("envfile") {
            let hint = "move it to the main file";
            let at = node.origin.place.clone();
            loader
                .diagnostics
                .warn(&at, "`envfile` has no effect in an included file", hint);
        }
        let own = |name: &str| ["version", "envfile"].iter().any(|k| same_name(k, name));
        included.entries.retain(|entry| !own(&entry.name));
        for entry in &included.entries {
            if map.get(&entry.name).is_some() {
                loader.differences.push(Difference {
                    key: entry.name.clone(),
                    here: format!("merged with `{}` key by key", shown(&path)),
                    there: format!("the section of `{}` alone", shown(&path)),
                    why: "an included section should not drop the rest of it".to_owned(),
                });
            }
            sections.push(entry.name.clone());
        }
        merge::merge(map, included);
    }
}

/// A list, or texts apart by white space or commas.
fn texts(node: &Node) -> Option<Vec<(String, Place)>> {
    match &node.value {
        Value::Null => Some(Vec::new()),
        Value::Text(text) => {
            let parts = text.text.split(|c: char| c.is_whitespace() || c == ',');
            let place = &node.origin.place;
            Some(parts.map(|part| (part.to_owned(), place.clone())).collect())
        }
        Value::List(items) => {
            let text = |item: &Node| Some((item.text()?.to_owned(), item.origin.place.clone()));
            items.iter().map(text).collect()
        }
        Value::Map(_) => None,
    }
}

/// Beside the including file, else in the working folder, where RoadRunner looks.
fn find(loader: &mut Loader<'_>, name: &str, including: &Path) -> PathBuf {
    let input = loader.input;
    let there = |path: &Path| input.disk.exists(&input.folder.join(path));
    let beside = including.with_file_name(name);
    let in_folder = PathBuf::from(name);
    if !there(&beside) {
        return in_folder;
    }
    if plain(&beside) != plain(&in_folder) && there(&in_folder) {
        loader.differences.push(Difference {
            key: "include".to_owned(),
            here: format!("`{}`, beside the including file", shown(&beside)),
            there: format!("`{}`, in the working folder", shown(&in_folder)),
            why: "a file's includes should not depend on where the server is started".to_owned(),
        });
    }
    beside
}

/// Why this file may not be included here.
fn refusal(loader: &Loader<'_>, path: &Path, chain: &[PathBuf]) -> Option<String> {
    if chain.contains(&plain(path)) {
        Some("includes itself, directly or through others".to_owned())
    } else if chain.len() > MAX_DEPTH {
        Some(format!("lies deeper than {MAX_DEPTH} includes"))
    } else if loader.files.len() >= MAX_FILES {
        Some(format!(
            "is one file too many: at most {MAX_FILES} make a configuration"
        ))
    } else {
        None
    }
}

/// An included file may leave `version` out.
fn check_version(loader: &mut Loader<'_>, ours: Option<&Node>, theirs: Option<&Node>) {
    let (Some(ours), Some(theirs)) = (ours, theirs) else {
        return;
    };
    let major = |node: &Node| node.text().and_then(|t| t.chars().next());
    if major(ours) != major(theirs) {
        let message = format!("`version` differs from the one at {}", ours.origin.place);
        let hint = "remove it here";
        loader
            .diagnostics
            .error(&theirs.origin.place, message, hint);
    }
}

/// `./a/../b` as `b`, so that one file has one name. Links are not followed: depth bounds those.
fn plain(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir if out.file_name().is_some() => {
                out.pop();
            }
            part => out.push(part),
        }
    }
    out
}
