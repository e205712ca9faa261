//! `docs/features.md` promises nothing that no test holds it to: each feature that is there names
//! one, and the test exists and is not left out. Nor does it deny what is there: the changelog and
//! the reference would have it.

use std::fs;
use std::path::{Path, PathBuf};

use pronghorn_server::settings::reference;

const STATES: [&str; 3] = ["yes", "no", "later"];

#[test]
fn each_feature_that_is_there_names_a_test_that_runs() {
    let page = fs::read_to_string(root().join("docs/features.md")).expect("the page");
    let changelog = fs::read_to_string(root().join("CHANGELOG.md")).expect("the changelog");
    let news: Vec<&str> = changelog.split("\n- ").skip(1).collect();
    let mut rows = 0;
    let mut wrong = Vec::new();
    for line in page.lines().filter(|line| line.starts_with("| ")) {
        let cells: Vec<&str> = line.trim_matches('|').split(" | ").map(str::trim).collect();
        let [feature, state, tests] = cells[..] else {
            wrong.push(format!("not three cells: {line}"));
            continue;
        };
        if feature == "Feature" {
            continue;
        }
        rows += 1;
        let named: Vec<&str> = tests.split('`').skip(1).step_by(2).collect();
        if !STATES.contains(&state) {
            wrong.push(format!("{feature}: `{state}` is none of {STATES:?}"));
        }
        if state == "yes" && named.is_empty() {
            wrong.push(format!("{feature}: no test is named"));
        }
        let look = if state == "yes" { find } else { is_unused };
        let problems = named.iter().filter_map(|name| look(name).err());
        wrong.extend(problems.map(|why| format!("{feature}: {why}")));
        if state != "yes" {
            let told = news.iter().filter(|entry| tells(entry, feature));
            wrong.extend(told.map(|entry| {
                format!(
                    "{feature}: `{state}`, but CHANGELOG.md has it, or only a part of it: {entry}"
                )
            }));
        }
    }
    assert!(rows > 70, "the tables are gone: {rows} rows");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_name_without_a_test_is_noticed() {
    for name in [
        "e2e",
        "e2e middleware::no_such_test",
        "e2e nowhere::readme",
        "e2e middleware::site",
        "http middleware::client::tests::told",
        "http middleware::nowhere::forwarded_is_read_by_its_rfc",
        "php PsrTest::testNothing",
        "php NoSuchTest::testNothing",
        "phpt nothing",
        "elsewhere a::b",
    ] {
        assert!(find(name).is_err(), "{name}");
    }
    for name in [
        "e2e guide::readme",
        "http middleware::client::tests::forwarded_is_read_by_its_rfc",
        "server configuration::every_case_gives_what_it_says",
    ] {
        assert_eq!(find(name), Ok(()), "{name}");
    }
    let ignored = "#[test]\n#[ignore = \"slow\"]\nfn a() {}\n\n#[test]\nfn b() {}\n\nfn c() {}\n";
    let judged = ["a", "b", "c"].map(|name| judge(ignored, name).is_ok());
    assert_eq!(judged, [false, true, false]);
    let skipped = "public function testA(): void\n{\n    $this->markTestSkipped();\n}\n\npublic function testB(): void\n{\n}\n";
    let judged = ["testA", "testB", "testC"].map(|name| judge_php(skipped, name));
    assert_eq!(judged, [Some(false), Some(true), None]);
}

#[test]
fn what_is_there_is_not_denied() {
    let entry = "Workers of classic pools are forked from one PHP, and so share one OPcache.";
    assert!(tells(entry, "One OPcache for all workers"));
    assert!(!tells(entry, "One OPcache for all kept workers"));
    assert!(!tells(
        "The proxy's `X-Forwarded-Proto` counts.",
        "PROXY protocol"
    ));
    assert!(!tells("A cache. Its responses.", "A cache of responses"));
    assert_eq!(is_unused("http.cache"), Ok(()));
    for there in ["http.ssl.cert", "http.pool.spawn", "http.nothing"] {
        assert!(is_unused(there).is_err(), "{there}");
    }
}

/// Whether a sentence of the changelog has all words of a feature's name that mean something, by
/// how they begin.
fn tells(entry: &str, feature: &str) -> bool {
    const SMALL: [&str; 14] = [
        "a", "an", "all", "and", "are", "by", "for", "from", "in", "of", "on", "one", "that", "to",
    ];
    let begins = |text: &str| -> Vec<String> {
        let text = text.to_lowercase();
        let words = text.split(|c: char| !c.is_ascii_alphanumeric());
        let words = words.filter(|word| !word.is_empty() && !SMALL.contains(word));
        words.map(|word| word.chars().take(6).collect()).collect()
    };
    let wanted = begins(feature);
    entry.split_inclusive(". ").any(|sentence| {
        let told = begins(sentence);
        wanted.iter().all(|word| told.contains(word))
    })
}

/// Err says that a key, which stands for a feature that is not there, is used or unknown.
fn is_unused(key: &str) -> Result<(), String> {
    let (section, name) = key.rsplit_once('.').unwrap_or(("", key));
    let reference = reference();
    let about = reference.split("\n## ").find(|part| {
        let title = part.lines().next().unwrap_or_default();
        title == format!("`{section}`") || (section.is_empty() && title == "Top level")
    });
    let mut lines = about.unwrap_or_default().lines();
    let is_unused = lines.any(|line| {
        let name = format!("`{name}`");
        line.starts_with("Not used yet:") && line.contains(&name)
            || line.starts_with(&format!("| {name} |")) && line.contains("**Not used yet:**")
    });
    if is_unused {
        return Ok(());
    }
    Err(format!(
        "the reference does not say of `{key}` that it is not used yet"
    ))
}

fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).expect("the repository").to_owned()
}

/// Err says what is wrong with a name.
fn find(name: &str) -> Result<(), String> {
    let wrong = |why: &str| format!("`{name}`: {why}");
    let (runner, path) = name
        .split_once(' ')
        .ok_or_else(|| wrong("no test of a kind"))?;
    match runner {
        "php" => {
            let (class, test) = path.split_once("::").ok_or_else(|| wrong("no class"))?;
            php(class, test).map_err(|why| wrong(&why))
        }
        "phpt" => {
            let file = root()
                .join("ext/pronghorn/tests")
                .join(format!("{path}.phpt"));
            let text = fs::read_to_string(file).map_err(|_| wrong("there is no such file"))?;
            let fails = text.contains("--XFAIL--");
            if fails {
                Err(wrong("it is expected to fail"))
            } else {
                Ok(())
            }
        }
        "e2e" | "strangers" => {
            rust(&root().join("e2e/tests").join(runner), path).map_err(|why| wrong(&why))
        }
        package => {
            let package = root().join("crates").join(package);
            let in_source = rust(&package.join("src"), path);
            in_source
                .or_else(|why| rust(&package.join("tests/it"), path).map_err(|_| why))
                .map_err(|why| wrong(&why))
        }
    }
}

/// A test in the tree of modules below `folder`.
fn rust(folder: &Path, path: &str) -> Result<(), String> {
    let mut folder = folder.to_owned();
    let read = |path: &Path| fs::read_to_string(path).ok();
    let mut text = ["lib.rs", "main.rs"]
        .iter()
        .find_map(|name| read(&folder.join(name)))
        .ok_or("there are no sources")?;
    let (modules, test) = path.rsplit_once("::").unwrap_or(("", path));
    for module in modules.split("::").filter(|module| !module.is_empty()) {
        if text.contains(&format!("mod {module} {{")) {
            continue;
        }
        if !text.contains(&format!("mod {module};")) {
            return Err(format!("there is no module `{module}`"));
        }
        let file = folder.join(format!("{module}.rs"));
        let in_folder = folder.join(module).join("mod.rs");
        text = read(&file)
            .or_else(|| read(&in_folder))
            .ok_or_else(|| format!("the module `{module}` has no file"))?;
        folder.push(module);
    }
    judge(&text, test)
}

fn judge(text: &str, test: &str) -> Result<(), String> {
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let is_it = |line: &&str| {
        let line = line.trim_start_matches("async ");
        let rest = line
            .strip_prefix("fn ")
            .and_then(|rest| rest.strip_prefix(test));
        rest.is_some_and(|rest| rest.starts_with('('))
    };
    let at = lines
        .iter()
        .position(is_it)
        .ok_or("there is no such function")?;
    let above = lines.iter().take(at).rev();
    let attributes: Vec<_> = above
        .take_while(|line| line.starts_with(['#', '/']))
        .collect();
    let is_test = |line: &&&str| line.starts_with("#[test]") || line.starts_with("#[tokio::test");
    if !attributes.iter().any(is_test) {
        return Err("it is no test".to_owned());
    }
    if attributes.iter().any(|line| line.starts_with("#[ignore")) {
        return Err("it is ignored".to_owned());
    }
    Ok(())
}

/// A test of a class or of one that it extends.
fn php(class: &str, test: &str) -> Result<(), String> {
    const PACKAGES: [&str; 3] = ["worker", "http-foundation", "symfony"];
    /// More generations than any test class has.
    const GENERATIONS: usize = 4;
    let mut class = class.to_owned();
    for _ in 0..GENERATIONS {
        let text = PACKAGES.iter().find_map(|package| {
            let tests = root().join("php").join(package).join("tests");
            fs::read_to_string(tests.join(format!("{class}.php"))).ok()
        });
        let text = text.ok_or_else(|| format!("there is no class `{class}`"))?;
        match judge_php(&text, test) {
            Some(true) => return Ok(()),
            Some(false) => return Err("it is skipped".to_owned()),
            None => {}
        }
        let parent = text.split(" extends ").nth(1);
        let parent = parent.and_then(|rest| rest.split_whitespace().next());
        match parent {
            Some(parent) => parent.clone_into(&mut class),
            None => break,
        }
    }
    Err("there is no such test".to_owned())
}

/// Whether the test runs; None when there is none of that name.
fn judge_php(text: &str, test: &str) -> Option<bool> {
    let (_, from) = text.split_once(&format!("public function {test}("))?;
    let body = from.split(" function ").next().unwrap_or_default();
    Some(
        test.starts_with("test")
            && !body.contains("markTestSkipped")
            && !body.contains("markTestIncomplete"),
    )
}
