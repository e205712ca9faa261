//! Crates depend downwards only: the order is the list of `Cargo.toml`, lowest first.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use crate::circles::{add_files, program};

/// The composition root: it uses all services, and has some that show what the server does.
const ROOT: &str = "server";

#[test]
fn no_crate_uses_one_that_stands_above_it() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let order = crates_in_order(&read(&root.join("Cargo.toml")));
    let entries = fs::read_dir(root.join("crates")).expect("the crates");
    let services = services(&root.join("crates"));
    assert!(services.len() > 5, "the services are gone: {services:?}");
    let mut wrong = Vec::new();
    let mut seen = 0;
    for entry in entries {
        let folder = entry.expect("a crate").path();
        let name = folder
            .file_name()
            .expect("a name")
            .to_string_lossy()
            .into_owned();
        let Some(&place) = order.get(&name) else {
            // The binary is used by nobody, and what stands in for a crate of others by these.
            assert!(
                matches!(&*name, "cli" | "tryhard"),
                "`{name}` is missing in the list of Cargo.toml"
            );
            continue;
        };
        seen += 1;
        for used in dependencies(&read(&folder.join("Cargo.toml"))) {
            // All know workers and the contract of a service, and not each other.
            if services.contains(&name) && services.contains(&used) {
                wrong.push(format!("the service `{name}` uses the service `{used}`"));
            }
            let above = order.get(&used).is_none_or(|other| *other >= place);
            if above {
                wrong.push(format!("`{name}` uses `{used}`, which stands above it"));
            }
        }
    }
    assert!(seen > 15, "the crates are gone: {seen}");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// What a call is stays its payload's business, and how a pool is configured that of crate
/// `workers`.
#[test]
fn the_pool_names_no_http_and_no_configuration() {
    const WORDS: [&str; 5] = ["http", "Http", "HTTP", "ReplyHead", "pronghorn_config"];
    assert_names_none("pool", &WORDS);
}

/// Every server of HTTP stands on it, whatever answers there.
#[test]
fn serve_names_no_php() {
    assert_names_none("serve", &["php", "Php", "PHP"]);
}

/// Looks for words in the code of a crate, beside its comments.
fn assert_names_none(name: &str, words: &[&str]) {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut directories = vec![crates.join(name).join("src")];
    let mut wrong = Vec::new();
    let mut files = 0;
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).expect("a directory of the crate") {
            let path = entry.expect("a file of the crate").path();
            if path.is_dir() {
                // Calls of the pool's tests are requests.
                directories.extend((!path.ends_with("tests")).then_some(path));
                continue;
            }
            files += 1;
            let text = read(&path);
            let code = text
                .lines()
                .filter(|line| !line.trim_start().starts_with("//"));
            let named = code.filter(|line| words.iter().any(|word| line.contains(word)));
            wrong.extend(named.map(|line| format!("{}: {}", path.display(), line.trim())));
        }
    }
    assert!(files > 25, "the files are gone: {files}");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The crates with a service: what the server's table may name.
fn services(crates: &Path) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for entry in fs::read_dir(crates).expect("the crates") {
        let directory = entry.expect("a crate").path();
        let name = directory.file_name().expect("a name").to_string_lossy();
        let mut sources = Vec::new();
        add_files(&directory.join("src"), &mut sources);
        if name != ROOT && sources.iter().any(|file| has_service(&program(file))) {
            found.insert(name.into_owned());
        }
    }
    found
}

/// Whether a program has `impl Service for …`, under any path of the trait.
fn has_service(program: &str) -> bool {
    program.lines().any(|line| {
        let name = line
            .strip_prefix("impl ")
            .and_then(|rest| rest.split_once(" for "));
        name.is_some_and(|(name, _)| name == "Service" || name.ends_with("::Service"))
    })
}

#[test]
fn a_service_is_seen_under_any_path_of_the_trait() {
    for (text, has) in [
        ("impl Service for Lock {", true),
        ("impl api::Service for HttpService {", true),
        ("impl SomeService for Lock {", false),
        ("impl Section for Service {", false),
        ("/// impl Service for Lock {", false),
    ] {
        assert_eq!(has_service(text), has, "{text}");
    }
}

/// Each crate of ours with its place in the list.
fn crates_in_order(manifest: &str) -> BTreeMap<String, usize> {
    let names = manifest.lines().filter_map(|line| {
        let (name, path) = line
            .strip_prefix("pronghorn-")?
            .split_once(" = { path = \"crates/")?;
        assert!(
            path.starts_with(name),
            "`{name}` lies in a folder of its name"
        );
        Some(name.to_owned())
    });
    names.zip(0..).collect()
}

/// Those of ours that the crate itself uses; its tests may use more.
fn dependencies(manifest: &str) -> Vec<String> {
    let of_crate = manifest
        .split("\n[dependencies]")
        .nth(1)
        .unwrap_or_default();
    let of_crate = of_crate.split("\n[").next().unwrap_or_default();
    let ours = of_crate
        .lines()
        .filter_map(|line| line.strip_prefix("pronghorn-"));
    ours.filter_map(|line| line.split(['.', ' ']).next().map(ToOwned::to_owned))
        .collect()
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).expect("a text")
}
