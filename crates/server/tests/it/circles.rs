//! The modules of a crate use each other in one direction, too: who reads one need not read all of
//! them. A module here is one that the root of its crate names, with all that lies below it; each
//! file by itself is a module to `ratchet`, which counts those in circles.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Circles that stay, each with its reason: the crate and the modules.
const KNOWN: &[(&str, &[&str], &str)] = &[
    (
        "config",
        &[
            "diagnostic",
            "dotenv",
            "era",
            "expand",
            "key",
            "load",
            "node",
            "place",
            "resolve",
            "secret",
            "setting",
            "table",
            "yaml",
        ],
        "`Variables` and the joining of paths stand beside their first use",
    ),
    (
        "h1",
        &["connection", "head"],
        "the limits of a head are among those of a connection",
    ),
    (
        "metrics",
        &["family", "registry"],
        "a family registers, and a registry makes families",
    ),
    (
        "pool",
        &["relay", "session"],
        "the loop of a session reads the relay's inbox and drives its connection",
    ),
    (
        "ring",
        &["half", "layout", "model", "sync"],
        "the model replaces the atomics of the rest",
    ),
    (
        "ring",
        &["link", "loan", "thread"],
        "links are woken by the thread that they wake",
    ),
    (
        "rpc",
        &["connection", "server"],
        "a connection counts at its server",
    ),
    (
        "server",
        &["renewal", "server", "upgrade"],
        "reload and upgrade are methods of the server, and its start knows its predecessor",
    ),
    (
        "workers",
        &["pools", "settings", "start", "user", "watching"],
        "watched files reload the pools, whose settings name their users",
    ),
];

type Uses = BTreeMap<String, BTreeSet<String>>;

#[test]
fn modules_of_a_crate_use_each_other_in_one_direction() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut found = Vec::new();
    let mut modules = 0;
    for entry in fs::read_dir(crates).expect("the crates") {
        let crate_folder = entry.expect("a crate").path();
        let name = crate_folder.file_name().expect("a name").to_string_lossy();
        let uses = uses(&crate_folder.join("src"));
        modules += uses.len();
        found.extend(circles(&uses).map(|circle| (name.clone().into_owned(), circle)));
    }
    assert!(modules > 150, "the modules are gone: {modules}");
    found.sort();
    let mut wrong = Vec::new();
    for (name, circle) in &found {
        if !KNOWN
            .iter()
            .any(|(of, known, _)| of == name && is_part(circle, known))
        {
            wrong.push(format!("`{name}` has a new circle: {}", circle.join(", ")));
        }
    }
    for (name, circle, _) in KNOWN {
        if !found
            .iter()
            .any(|(of, found)| of == name && is_part(found, circle))
        {
            let circle = circle.join(", ");
            wrong.push(format!("`{name}` has no such circle any more: {circle}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn all_ways_to_name_a_module_are_seen() {
    let known = |name: &str| {
        ["a", "b", "c", "d"]
            .contains(&name)
            .then(|| name.to_owned())
    };
    let text = "use crate::a::Thing;\nuse crate::{b, c::{self, Other}};\n// crate::x\nfn f() { crate::d::g() }";
    let named: Vec<_> = named(text, "crate::").filter_map(known).collect();
    assert_eq!(named, ["a", "b", "c", "d"]);
    let uses = [("a", "b"), ("b", "c"), ("c", "a"), ("d", "a")];
    let uses = uses.map(|(user, used)| (user.to_owned(), BTreeSet::from([used.to_owned()])));
    let circles: Vec<_> = circles(&uses.into_iter().collect()).collect();
    assert_eq!(circles, [["a", "b", "c"]]);
}

#[test]
fn circles_below_the_root_are_seen() {
    let files = ["a", "a::b", "a::c", "d"].map(|name| (name.to_owned(), PathBuf::new()));
    let files = BTreeMap::from(files);
    for (module, text, used) in [
        ("a::b", "use super::c::Thing;", vec!["a::c"]),
        ("a::b", "use super::{Other, c};", vec!["a", "a::c"]),
        (
            "a::b",
            "use crate::{a::c::{self, X as Y}, d};",
            vec!["a::c", "d"],
        ),
        (
            "a",
            "mod b;\nuse self::c::X;\nfn f() { b::g() }",
            vec!["a::b", "a::c"],
        ),
        (
            "d",
            "fn f() { crate::a::b::g(); crate::nowhere() }",
            vec!["a::b"],
        ),
    ] {
        let found = used_by(module, text, &files, &BTreeMap::new());
        assert_eq!(found.into_iter().collect::<Vec<_>>(), used, "{text}");
    }
}

fn is_part(circle: &[String], known: &[&str]) -> bool {
    circle.iter().all(|module| known.contains(&&**module))
}

/// The sets of two and more modules each of which uses, in the end, all others.
fn circles(uses: &Uses) -> impl Iterator<Item = Vec<String>> {
    let reached: BTreeMap<&String, BTreeSet<&String>> = uses
        .keys()
        .map(|module| {
            let mut seen = BTreeSet::new();
            let mut left = vec![module];
            while let Some(next) = left.pop() {
                let used = uses.get(next).into_iter().flatten();
                left.extend(used.filter(|used| seen.insert(*used)));
            }
            (module, seen)
        })
        .collect();
    let of = |module: &String| -> Vec<String> {
        let all = reached[module].iter();
        let back = all.filter(|other| reached.get(*other).is_some_and(|far| far.contains(module)));
        back.map(|other| (*other).clone()).collect()
    };
    let sets: BTreeSet<_> = uses.keys().map(of).filter(|set| set.len() > 1).collect();
    sets.into_iter()
}

/// Which modules each module uses.
fn uses(src: &Path) -> Uses {
    let root = ["lib.rs", "main.rs"].map(|file| src.join(file));
    let root = root.iter().find(|file| file.exists()).expect("a root");
    let root = program(root);
    let modules: BTreeSet<&str> = root
        .lines()
        .filter_map(|line| {
            let line = line
                .trim_start_matches("pub(crate) ")
                .trim_start_matches("pub ");
            line.strip_prefix("mod ")?.strip_suffix(';')
        })
        .collect();
    let reexported = reexported(&root);
    modules
        .iter()
        .map(|&module| {
            let mut files = vec![src.join(format!("{module}.rs"))];
            add_files(&src.join(module), &mut files);
            let mut used = BTreeSet::new();
            for file in files.iter().filter(|file| file.exists()) {
                let text = program(file);
                let is_first =
                    file.parent() == Some(src) || file.ends_with(format!("{module}/mod.rs"));
                let above = named(&text, "super::").filter(|_| is_first);
                for name in named(&text, "crate::").chain(above) {
                    let home = modules.get(name).copied();
                    let home = home.or_else(|| reexported.get(name).map(String::as_str));
                    used.extend(home.filter(|home| *home != module).map(ToOwned::to_owned));
                }
            }
            (module.to_owned(), used)
        })
        .collect()
}

/// What a file says without comments and tests.
pub(crate) fn program(file: &Path) -> String {
    let text = fs::read_to_string(file).expect("a source");
    // Tests that a file holds itself come last; those of a file of their own are anywhere.
    let tests = text.match_indices("#[cfg(test)]\nmod ").find(|(at, _)| {
        let line = text.get(*at..).and_then(|rest| rest.lines().nth(1));
        line.is_some_and(|line| line.ends_with('{'))
    });
    let text = tests.map_or(&*text, |(at, _)| text.get(..at).unwrap_or_default());
    let lines = text
        .lines()
        .filter(|line| !line.trim_start().starts_with("//"));
    lines.collect::<Vec<_>>().join("\n")
}

/// All sources below a folder, but for tests.
pub(crate) fn add_files(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten() {
        let path = entry.expect("a source").path();
        if path.file_stem().is_some_and(|name| name == "tests") {
            continue;
        }
        if path.is_dir() {
            add_files(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
}

/// The names that follow `before`, also those of a list in braces.
fn named<'a>(text: &'a str, before: &'a str) -> impl Iterator<Item = &'a str> {
    let rests = text.split(before).skip(1);
    let earlier = text.split(before).map(|part| part.chars().next_back());
    let apart = |letter: char| !letter.is_alphanumeric() && !"_:".contains(letter);
    let found = rests.zip(earlier);
    let found = found.filter(move |(_, earlier)| earlier.is_none_or(apart));
    found.flat_map(|(rest, _)| match rest.strip_prefix('{') {
        Some(list) => first_names(list),
        None => vec![name(rest)],
    })
}

/// The first name of each item of a list that ends with a brace.
fn first_names(list: &str) -> Vec<&str> {
    let (mut depth, mut begins) = (0, true);
    let mut names = Vec::new();
    for (at, letter) in list.char_indices() {
        match letter {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => begins = true,
            _ if letter.is_whitespace() => {}
            _ if begins => {
                names.push(name(list.get(at..).unwrap_or_default()));
                begins = false;
            }
            _ => {}
        }
    }
    names
}

fn name(text: &str) -> &str {
    let is_end = |letter: char| !letter.is_alphanumeric() && letter != '_';
    text.split(is_end).next().unwrap_or_default()
}

/// What the root of a crate gives on, with the module that it comes from.
fn reexported(root: &str) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    for statement in root.split(';') {
        let statement = statement.trim();
        let Some(path) = statement
            .strip_prefix("pub use ")
            .or_else(|| statement.strip_prefix("pub(crate) use "))
        else {
            continue;
        };
        let module = name(path).to_owned();
        let last = path.rsplit_once("::").map_or(path, |(_, last)| last);
        let names = match path.split_once("::{") {
            Some((_, list)) => first_names(list),
            None => vec![name(last)],
        };
        all.extend(
            names
                .into_iter()
                .map(|name| (name.to_owned(), module.clone())),
        );
    }
    all
}

/// The circles of a crate's modules, each file by itself.
pub(crate) fn circles_of_files(src: &Path) -> Vec<Vec<String>> {
    let root = ["lib.rs", "main.rs"].map(|file| src.join(file));
    let root = root.iter().find(|file| file.exists()).expect("a root");
    let mut files = BTreeMap::new();
    add_modules("", root, src, &mut files);
    let text = program(root);
    let reexported = reexported(&text);
    let uses = files.iter().map(|(module, file)| {
        let used = used_by(module, &program(file), &files, &reexported);
        (module.clone(), used)
    });
    circles(&uses.collect()).collect()
}

/// The modules that a file declares, and those below them; without those of tests.
fn add_modules(path: &str, file: &Path, below: &Path, files: &mut BTreeMap<String, PathBuf>) {
    let text = fs::read_to_string(file).expect("a source");
    let mut is_of_tests = false;
    for line in text.lines() {
        let declared = line
            .trim_start_matches("pub(crate) ")
            .trim_start_matches("pub(super) ")
            .trim_start_matches("pub ");
        let declared = declared
            .strip_prefix("mod ")
            .and_then(|rest| rest.strip_suffix(';'));
        if let Some(name) = declared.filter(|name| *name != "tests" && !is_of_tests) {
            let beside = below.join(format!("{name}.rs"));
            let (file, below) = (below.join(name).join("mod.rs"), below.join(name));
            let file = if beside.exists() { beside } else { file };
            let module = if path.is_empty() {
                name.to_owned()
            } else {
                format!("{path}::{name}")
            };
            if file.exists() {
                add_modules(&module, &file, &below, files);
                files.insert(module, file);
            }
        }
        is_of_tests = line.starts_with("#[cfg(") && line.contains("test");
    }
}

/// The modules that a program names by a path, or by the name of a module below its own.
fn used_by(
    module: &str,
    program: &str,
    files: &BTreeMap<String, PathBuf>,
    reexported: &BTreeMap<String, String>,
) -> BTreeSet<String> {
    let own: Vec<&str> = module.split("::").collect();
    let mut used = BTreeSet::new();
    let mut add = |base: &[&str], path: &[&str]| {
        let mut full = [base, path].concat();
        if base.is_empty()
            && let Some(home) = path.first().and_then(|name| reexported.get(*name))
            && !files.contains_key(path[0])
        {
            full = vec![home];
        }
        while !full.is_empty() && !files.contains_key(&full.join("::")) {
            full.pop();
        }
        let found = full.join("::");
        if !found.is_empty() && found != module {
            used.insert(found);
        }
    };
    for (at, _) in program.match_indices("::") {
        let before = program.get(..at).unwrap_or_default();
        let start = before
            .rfind(|sign: char| !sign.is_alphanumeric() && sign != '_')
            .map_or(0, |found| found + 1);
        // A name in the middle of a path was seen with its beginning, but for `super::super`.
        let word = before.get(start..).unwrap_or_default();
        let is_first = !before.get(..start).is_some_and(|text| text.ends_with("::"));
        let base: Option<&[&str]> = match word {
            "crate" => Some(&[]),
            "self" if is_first => Some(&own),
            "super" if is_first => Some(own.get(..own.len() - 1).unwrap_or_default()),
            _ if is_first && files.contains_key(&format!("{module}::{word}")) => {
                add(&own, &[word]);
                None
            }
            _ => None,
        };
        let Some(base) = base else {
            continue;
        };
        let mut base = base.to_vec();
        let mut rest = program.get(at + 2..).unwrap_or_default();
        while let Some(above) = rest.strip_prefix("super::") {
            base.pop();
            rest = above;
        }
        let mut path = Vec::new();
        paths(rest, &mut path, &mut |path| add(&base, path));
    }
    used
}

/// Gives each path of a tree of names as `a::{b, c::d}`, and says what stands behind it.
fn paths<'a>(text: &'a str, path: &mut Vec<&'a str>, give: &mut impl FnMut(&[&str])) -> &'a str {
    if let Some(mut rest) = text.strip_prefix('{') {
        loop {
            rest = rest.trim_start_matches(|sign: char| sign.is_whitespace() || sign == ',');
            if let Some(behind) = rest.strip_prefix('}') {
                return behind;
            }
            let behind = paths(rest, path, give);
            if behind.len() == rest.len() {
                return behind;
            }
            let behind = behind.trim_start();
            rest = match behind.strip_prefix("as ") {
                Some(other) => other.get(name(other).len()..).unwrap_or_default(),
                None => behind,
            };
        }
    }
    let first = name(text);
    let rest = text.get(first.len()..).unwrap_or_default();
    if first.is_empty() {
        give(path);
        return rest.strip_prefix('*').unwrap_or(rest);
    }
    path.push(first);
    let behind = match rest.strip_prefix("::") {
        Some(below) => paths(below, path, give),
        None => {
            give(path);
            rest
        }
    };
    path.pop();
    behind
}
