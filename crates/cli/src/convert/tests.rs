//! Each block of `docs/migration` becomes the configuration beside it.

use std::collections::BTreeMap;

use pronghorn_config::{Input, load};
use serde_json::Value;

use super::*;

/// What a piece of a configuration does not say, and the page does.
const AROUND: [&str; 6] = [
    "version",
    "http.address",
    "http.pool.mode",
    "http.pool.root",
    // PHP's own limits, which stand in php.ini.
    "http.pool.ini.post_max_size",
    "http.pool.ini.upload_max_filesize",
];

/// Code blocks of a page, by their languages.
fn blocks(page: &str) -> Vec<(String, String)> {
    let mut blocks = Vec::new();
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        if let Some(language) = line.strip_prefix("```") {
            let text: Vec<_> = lines.by_ref().take_while(|line| *line != "```").collect();
            blocks.push((language.to_owned(), text.join("\n")));
        }
    }
    blocks
}

/// A configuration as keys with their values.
fn flat(yaml: &str) -> BTreeMap<String, String> {
    fn add(into: &mut BTreeMap<String, String>, path: String, value: &Value) {
        match value {
            Value::Object(map) => {
                for (name, value) in map {
                    let path = if path.is_empty() {
                        name.clone()
                    } else {
                        format!("{path}.{name}")
                    };
                    add(into, path, value);
                }
            }
            // Hosts and paths are told apart, whatever their order.
            Value::Array(items) => {
                let mut items: Vec<_> = items.iter().map(Value::to_string).collect();
                items.sort();
                into.insert(path, items.join(" "));
            }
            other => _ = into.insert(path, other.to_string()),
        }
    }
    let loaded = load(&Input::from_text("pronghorn.yaml", yaml.to_owned()));
    let json: Value = serde_json::from_str(&loaded.to_json()).expect("it is JSON");
    let mut keys = BTreeMap::new();
    add(&mut keys, String::new(), &json);
    keys
}

fn converted(name: &str, text: &str) -> Converted {
    let folder = std::env::temp_dir().join(format!("pronghorn-convert-{:x}", fastrand::u64(..)));
    std::fs::create_dir(&folder).unwrap();
    let file = folder.join(name);
    std::fs::write(&file, text).unwrap();
    let converted = convert(&[file]).unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    converted
}

/// A piece of a site, in which its root is not said.
fn with_root(text: &str, language: &str, expected: &BTreeMap<String, String>) -> String {
    let root = expected
        .get("http.pool.root")
        .map(|root| root.trim_matches('"'));
    match (language, root) {
        ("nginx", Some(root)) if !text.contains("root ") => format!("root {root};\n{text}"),
        ("apache", Some(root)) if !text.contains("DocumentRoot") => {
            format!("DocumentRoot {root}\n{text}")
        }
        _ => text.to_owned(),
    }
}

fn compare_page(page: &str, language: &str, file: &str) -> usize {
    let blocks = blocks(page);
    let (mut compared, mut wrong) = (0, Vec::new());
    for pair in blocks.windows(2) {
        let [(theirs, text), (ours, yaml)] = pair else {
            unreachable!("windows of two")
        };
        if theirs != language || ours != "yaml" {
            continue;
        }
        compared += 1;
        // What pages say of logs and of forms is their own.
        let yaml = yaml
            .replace(", method: POST", "")
            .replace("/access.log", "/wiki.log");
        let expected = flat(&yaml);
        let Converted {
            yaml: made,
            left_out,
            ..
        } = converted(file, &with_root(text, language, &expected));
        let made_keys = flat(&made).into_iter();
        let made_keys: BTreeMap<_, _> = made_keys
            .map(|(key, value)| (key, value.replace("/access.log", "/wiki.log")))
            .collect();
        let differ = expected.iter().filter(|(key, value)| {
            (!AROUND.contains(&key.as_str()) || made_keys.contains_key(*key))
                && made_keys.get(*key) != Some(value)
        });
        let differ: Vec<_> = differ.map(|(key, _)| key).collect();
        let unknown: Vec<_> = made_keys
            .keys()
            .filter(|key| !expected.contains_key(*key))
            .collect();
        if !(left_out.is_empty() && differ.is_empty() && unknown.is_empty()) {
            wrong.push(format!(
                "{text}\nbecame\n{made}left out: {left_out:?}\ndiffer: {differ:?}\nnot on the page: {unknown:?}\n"
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    compared
}

#[test]
fn the_blocks_of_the_page_of_nginx_become_what_stands_beside_them() {
    let page = include_str!("../../../../docs/migration/from-nginx-fpm.md");
    assert_eq!(compare_page(page, "nginx", "nginx.conf"), 11);
    assert_eq!(compare_page(page, "ini", "www.conf"), 1);
}

#[test]
fn the_blocks_of_the_page_of_apache_become_what_stands_beside_them() {
    let page = include_str!("../../../../docs/migration/from-apache.md");
    assert_eq!(compare_page(page, "apache", "site.conf"), 11);
}
