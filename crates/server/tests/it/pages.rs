//! The pages agree with the reference, with the files of the repository and with each other, as far
//! as a program can tell.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use pronghorn_config::{Input, Severity, describe, load};
use pronghorn_server::settings::{Settings, reference};

/// Directories with pages, and pages that lie elsewhere.
const PAGES: [&str; 10] = [
    "README.md",
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "bench",
    "docs",
    "php/cache/README.md",
    "php/goridge/README.md",
    "php/wordpress/README.md",
    "php/worker/README.md",
];

/// Is written by the test of the settings.
const REFERENCE: &str = "docs/reference/configuration.md";

/// Describe the state of their day, and are not rewritten.
const HISTORY: [&str; 2] = ["docs/decisions/", "docs/internals/lab/"];

#[test]
fn links_lead_to_files_and_headings_that_are_there() {
    let mut dead = Vec::new();
    for page in pages() {
        for block in page.prose() {
            for rest in block.split("](").skip(1) {
                let link = rest.split(')').next().unwrap_or_default();
                if !link.contains("://") && !page.leads(link) {
                    dead.push(format!("{}: {link}", page.name));
                }
            }
        }
    }
    none(&dead);
}

#[test]
fn files_that_pages_name_are_there() {
    let known = tree();
    let mut gone = Vec::new();
    for page in pages() {
        if page.is_history() {
            continue;
        }
        for span in page.spans() {
            for path in alternatives(&span) {
                if is_source(&path) && !known.iter().any(|file| stands_for(&path, file)) {
                    gone.push(format!("{}: `{path}`", page.name));
                }
            }
        }
    }
    none(&gone);
}

#[test]
fn the_map_has_each_crate_and_the_make_targets_are_there() {
    let map = page("ARCHITECTURE.md").text;
    let crates = fs::read_dir(root().join("crates")).expect("the crates");
    let crates = crates.map(|entry| {
        entry
            .expect("a crate")
            .file_name()
            .into_string()
            .expect("a plain name")
    });
    let missing = crates.filter(|name| {
        !map.lines()
            .any(|line| line.starts_with("| `") && line.contains(&format!("`{name}`")))
    });
    let mut wrong: Vec<String> = missing
        .map(|name| format!("ARCHITECTURE.md: `{name}` is missing"))
        .collect();
    let makefile = fs::read_to_string(root().join("Makefile")).expect("the Makefile");
    for page in pages() {
        for span in page.spans() {
            let target = span
                .strip_prefix("make ")
                .and_then(|rest| rest.split(' ').next());
            let target = target.filter(|target| !target.starts_with('-'));
            if let Some(target) =
                target.filter(|target| !makefile.contains(&format!("\n{target}:")))
            {
                wrong.push(format!("{}: `make {target}`", page.name));
            }
        }
    }
    none(&wrong);
}

/// Who adds something begins with these paths: they are whole, from the root or from `crates`.
#[test]
fn the_map_says_where_to_add_what() {
    let map = page("ARCHITECTURE.md").text;
    let (_, rows) = map
        .split_once("\n## Where to add what\n")
        .expect("the section");
    let section = Page {
        name: "ARCHITECTURE.md".to_owned(),
        text: rows.to_owned(),
    };
    let mut wrong = Vec::new();
    let mut seen = 0;
    for span in section.spans() {
        for path in alternatives(&span) {
            if !path.contains('/') || !is_named(&path) {
                continue;
            }
            seen += 1;
            let places = [root().join(&path), root().join("crates").join(&path)];
            if !places.iter().any(|place| place.exists()) {
                wrong.push(format!("ARCHITECTURE.md: `{path}` is not there"));
            }
        }
    }
    assert!(seen > 30, "the paths are gone: {seen}");
    none(&wrong);
}

#[test]
fn keys_that_pages_name_are_in_the_reference() {
    let keys = Keys::read();
    let mut unknown = Vec::new();
    for page in pages() {
        if page.is_history() {
            continue;
        }
        for span in page.spans() {
            let name = span.split([':', '=']).next().unwrap_or_default();
            // RoadRunner's name of an exchange looks like a key.
            let is_key = keys.is_meant(name) && name != "amqp.default";
            if is_key && !keys.has(name) {
                unknown.push(format!("{}: `{span}`", page.name));
            }
        }
    }
    none(&unknown);
}

/// Whole configurations have no mistakes but those that a page shows; a part of one has its place
/// below some section.
#[test]
fn configurations_in_pages_have_no_mistakes() {
    let mut wrong = Vec::new();
    let mut judged = 0;
    for page in pages() {
        for (info, text) in page.fences() {
            if !info.starts_with("yaml") || info.contains("wrong") {
                continue;
            }
            judged += 1;
            let places = ["", "http", "http.pool"].into_iter();
            let least = places
                .map(|place| mistakes(&text, place))
                .min_by_key(Vec::len);
            for mistake in least.unwrap_or_default() {
                wrong.push(format!("{}: {mistake}\n{text}", page.name));
            }
        }
    }
    assert!(judged > 40, "the blocks are gone: {judged}");
    none(&wrong);
}

#[test]
fn lists_count_from_one_and_the_index_has_each_page_once() {
    let mut wrong = Vec::new();
    for page in pages() {
        let mut next = 1;
        for block in page.prose() {
            let number = block
                .split_once(". ")
                .and_then(|(number, _)| number.parse().ok());
            let Some(number) = number.filter(|number: &usize| *number < 100) else {
                if !block.starts_with([' ', '-']) {
                    next = 1;
                }
                continue;
            };
            if number != 1 && number != next {
                wrong.push(format!("{}: {next} is missing before: {block}", page.name));
            }
            next = number + 1;
        }
    }
    let index = page("docs/README.md");
    for other in pages() {
        let is_listed = other.name.starts_with("docs/")
            && other.name != index.name
            && (!other.is_history() || other.name.ends_with("/README.md"));
        let link = other.name.trim_start_matches("docs/");
        let times = index.text.matches(&format!("]({link})")).count();
        if is_listed && times != 1 {
            wrong.push(format!("{}: {link} is listed {times} times", index.name));
        }
    }
    none(&wrong);
}

#[test]
fn what_needs_a_restart_is_named_and_not_applied_by_a_reload() {
    let keys = Keys::read();
    let mut wrong = Vec::new();
    for page in pages() {
        if page.is_history() || page.name == "CHANGELOG.md" {
            continue;
        }
        for sentence in page.sentences() {
            let says = [
                "needs a restart",
                "need a restart",
                "a restart on",
                "upgrade: SIGUSR2",
            ];
            if !says.iter().any(|words| sentence.contains(words)) {
                continue;
            }
            let named: Vec<&str> = spans_of(&sentence).filter(|span| keys.has(span)).collect();
            if named.is_empty() {
                wrong.push(format!("{}: no key is named: {sentence}", page.name));
            }
            for key in named.iter().filter(|key| is_applied(key)) {
                wrong.push(format!(
                    "{}: a reload applies `{key}`: {sentence}",
                    page.name
                ));
            }
        }
    }
    none(&wrong);
}

/// Such sentences are forgotten when the thing comes. So they share a word with the list of what is
/// missing.
#[test]
fn what_a_page_says_is_missing_so_far_is_listed_as_missing() {
    let missing: BTreeSet<String> = {
        let features = page("docs/features.md").text;
        let rows = features
            .lines()
            .filter(|row| row.contains("| later |") || row.contains("| no |"));
        rows.flat_map(|row| long_words(row).collect::<Vec<_>>())
            .collect()
    };
    let mut wrong = Vec::new();
    for page in pages() {
        let is_elsewhere =
            [REFERENCE, "README.md", "CHANGELOG.md", "docs/features.md"].contains(&&*page.name);
        if is_elsewhere || page.is_history() || page.name.starts_with("bench/") {
            continue;
        }
        for sentence in page.sentences() {
            let words: Vec<&str> = words(&sentence).collect();
            let denies = words
                .iter()
                .any(|word| ["no", "not", "none", "nor"].contains(word));
            let so_far = words.contains(&"yet") && denies
                || sentence.contains("in this version")
                || (words.contains(&"has") || words.contains(&"have"))
                    && sentence.contains(" so far");
            if so_far && !long_words(&sentence).any(|word| missing.contains(&word)) {
                wrong.push(format!("{}: {sentence}", page.name));
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "docs/features.md does not call this missing; say what is so, without `yet`:\n{}",
        wrong.join("\n")
    );
}

#[test]
fn what_is_wrong_in_a_page_is_noticed() {
    let page = Page {
        name: "docs/README.md".to_owned(),
        text: "A list\nof `http.pool.ini`:\n\n1. one\n2. two\n\n```yaml\nhttp: {adress: x}\n```\n\n## A `b` & c\n".to_owned(),
    };
    assert_eq!(
        page.prose(),
        [
            "A list of `http.pool.ini`:",
            "1. one",
            "2. two",
            "## A `b` & c"
        ]
    );
    assert_eq!(page.spans(), ["http.pool.ini", "b"]);
    assert!(page.leads("#a-b--c") && page.leads("guide/tls.md#in-production"));
    for dead in [
        "#a-b",
        "guide/tls.md#for",
        "guide/nowhere.md",
        "guide/nowhere.md#a",
    ] {
        assert!(!page.leads(dead), "{dead}");
    }
    let keys = Keys::read();
    for (name, applied) in [
        ("http.pool", false), // its user is not
        ("http.pool.num_workers", true),
        ("http.routes", true),
        ("logs.level", true),
        ("http", false),
        ("http.poolish", false),
        ("http.address", false),
        ("rpc.listen", false),
    ] {
        assert_eq!(is_applied(name), applied, "{name}");
    }
    for (name, is_meant, has) in [
        ("http.pool.ini", true, true),
        ("pool.ini", true, true),
        ("http.pools.api.ini", true, true),
        ("server.env.NAME", false, true),
        ("http.routes[0].path", true, true),
        ("http.pool.inni", true, false),
        ("pool.php.ini", true, false),
        ("opcache.jit", false, false),
        ("server.log", false, false),
    ] {
        assert_eq!(
            (keys.is_meant(name), keys.has(name)),
            (is_meant, has),
            "{name}"
        );
    }
    let [(info, text)] = &page.fences()[..] else {
        panic!("one block");
    };
    assert_eq!(info, "yaml");
    assert_eq!(mistakes(text, "").len(), 1);
    assert_eq!(mistakes("spin: 50us\n", "http.pool").len(), 0);
    assert_eq!(mistakes("spin: 50\n", "http.pool").len(), 1);
    for path in [
        "core.rs",
        "pool/src/core.rs",
        "ext/pronghorn/classic*.c",
        "crates/pool",
    ] {
        assert!(
            is_source(path) && tree().iter().any(|file| stands_for(path, file)),
            "{path}"
        );
    }
    for path in ["ore.rs", "pool/core.rs", "crates/poo"] {
        assert!(
            is_source(path) && !tree().iter().any(|file| stands_for(path, file)),
            "{path}"
        );
    }
}

struct Page {
    /// Its path in the repository.
    name: String,
    text: String,
}

impl Page {
    fn is_history(&self) -> bool {
        HISTORY.iter().any(|folder| self.name.starts_with(folder))
    }

    /// Its paragraphs, items of lists and rows of tables, each in one line, without what is fenced.
    fn prose(&self) -> Vec<String> {
        let mut blocks: Vec<String> = Vec::new();
        let mut is_fenced = false;
        let mut is_open = false;
        for line in self.text.lines() {
            let trimmed = line.trim_start();
            if trimmed.starts_with("```") {
                is_fenced = !is_fenced;
                is_open = false;
            } else if is_fenced || trimmed.is_empty() {
                is_open = false;
            } else if is_open && !begins_a_block(trimmed) {
                let block = blocks.last_mut().expect("one is open");
                block.push(' ');
                block.push_str(trimmed);
            } else {
                blocks.push(line.to_owned());
                is_open = !trimmed.starts_with(['|', '#']);
            }
        }
        blocks
    }

    fn sentences(&self) -> Vec<String> {
        let prose = self.prose();
        let ends = |block: &String| -> Vec<String> {
            block.split_inclusive(". ").map(str::to_owned).collect()
        };
        prose.iter().flat_map(ends).collect()
    }

    /// What stands between backticks.
    fn spans(&self) -> Vec<String> {
        let prose = self.prose();
        let spans = prose.iter().flat_map(|block| spans_of(block));
        spans.map(str::to_owned).collect()
    }

    /// Fenced blocks: what stands behind the fence, and the lines.
    fn fences(&self) -> Vec<(String, String)> {
        let parts: Vec<&str> = self.text.split("\n```").collect();
        let fenced = parts.iter().skip(1).step_by(2);
        let fenced = fenced.filter_map(|block| block.split_once('\n'));
        fenced
            .map(|(info, text)| (info.to_owned(), format!("{text}\n")))
            .collect()
    }

    fn leads(&self, link: &str) -> bool {
        let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
        let folder = root().join(&self.name);
        let folder = folder.parent().expect("a page is in a directory");
        let text = match file {
            "" => self.text.clone(),
            file if anchor.is_empty() => return folder.join(file).exists(),
            file => fs::read_to_string(folder.join(file)).unwrap_or_default(),
        };
        let name = file.to_owned();
        let headings = Self { name, text }.prose();
        let mut headings = headings.iter().filter(|block| block.starts_with('#'));
        headings.any(|heading| anchor_of(heading) == anchor)
    }
}

fn begins_a_block(line: &str) -> bool {
    let digits = line.trim_start_matches(|c: char| c.is_ascii_digit());
    line.starts_with(['|', '#', '>'])
        || line.starts_with("- ")
        || (digits.len() < line.len() && digits.starts_with(". "))
}

/// As GitHub makes it of a heading.
fn anchor_of(heading: &str) -> String {
    let text = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = text
        .chars()
        .filter(|c| c.is_alphanumeric() || [' ', '-', '_'].contains(c));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

fn spans_of(block: &str) -> impl Iterator<Item = &str> {
    block.split('`').skip(1).step_by(2)
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric());
    words.filter(|word| !word.is_empty())
}

/// Those that mean something by themselves, whether one or several are meant.
fn long_words(text: &str) -> impl Iterator<Item = String> {
    let words = words(text).map(|word| word.trim_end_matches('s').to_lowercase());
    words.filter(|word| word.len() > 4 && word != "there" && word != "server")
}

/// The names of a section's keys, from the reference.
struct Keys {
    /// Each from the top, `http.pools.<name>.ini`.
    all: Vec<Vec<String>>,
    /// The last names of sections: with one of them the name of a key may begin.
    sections: BTreeSet<String>,
}

impl Keys {
    fn read() -> Self {
        let text = reference();
        let mut all = Vec::new();
        let mut sections = BTreeSet::new();
        for section in text.split("\n## ").skip(1) {
            let (title, body) = section
                .split_once('\n')
                .expect("a heading and what is below it");
            let Some(path) = title
                .strip_prefix('`')
                .and_then(|rest| rest.strip_suffix('`'))
            else {
                continue;
            };
            let path: Vec<String> = segments(path).map(str::to_owned).collect();
            sections.extend(path.last().filter(|name| !name.starts_with('<')).cloned());
            for line in body.lines() {
                let below = |name: &str| {
                    path.iter()
                        .cloned()
                        .chain([name.to_owned()])
                        .collect::<Vec<_>>()
                };
                if let Some(row) = line.strip_prefix("| `") {
                    let (name, rest) = row.split_once('`').expect("a name ends");
                    all.push(below(name));
                    // The names below it are anybody's.
                    if ["names ", "statuses "]
                        .iter()
                        .any(|kind| rest.trim_start_matches(" | ").starts_with(kind))
                    {
                        all.push(
                            below(name)
                                .into_iter()
                                .chain(["<name>".to_owned()])
                                .collect(),
                        );
                    }
                } else if line.starts_with("Not used yet:") || line.starts_with("Without effect:") {
                    all.extend(spans_of(line).map(below));
                }
            }
            all.push(path);
        }
        let of_default: Vec<_> = all
            .iter()
            .filter(|key| key.starts_with(&["http".into(), "pool".into()]))
            .cloned()
            .collect();
        for key in of_default {
            let below = key.into_iter().skip(2);
            all.push(
                ["http", "pools", "<name>"]
                    .map(str::to_owned)
                    .into_iter()
                    .chain(below)
                    .collect(),
            );
        }
        assert!(
            all.len() > 200,
            "the reference is read wrongly: {} keys",
            all.len()
        );
        Self { all, sections }
    }

    /// Whether it looks like a dotted name of one of our keys, and not like that of a file.
    fn is_meant(&self, name: &str) -> bool {
        const FILES: [&str; 10] = [
            "conf", "log", "php", "yaml", "sock", "rs", "md", "so", "pem", "html",
        ];
        let is_plain = |segment: &str| {
            segment
                .bytes()
                .all(|byte| byte.is_ascii_lowercase() || byte == b'_')
        };
        let parts: Vec<&str> = segments(name).collect();
        parts.len() > 1
            && self.sections.contains(parts[0])
            && parts
                .iter()
                .all(|part| !part.is_empty() && (is_plain(part) || *part == "<name>"))
            && parts.last().is_some_and(|last| !FILES.contains(last))
    }

    /// Pages leave out the sections above where that is clear: `pool.ini`.
    fn has(&self, name: &str) -> bool {
        let parts: Vec<&str> = segments(name).collect();
        let ends_so = |key: &Vec<String>| {
            let skipped = key.len().checked_sub(parts.len());
            let below = skipped.and_then(|skipped| key.get(skipped..));
            below.is_some_and(|below| {
                below
                    .iter()
                    .zip(&parts)
                    .all(|(known, part)| known == part || known == "<name>")
            })
        };
        parts.len() > 1 && self.all.iter().any(ends_so)
    }
}

/// The parts of a key's name, without the numbers of lists.
fn segments(key: &str) -> impl Iterator<Item = &str> {
    key.split('.')
        .map(|part| part.split('[').next().unwrap_or(part))
}

/// Whether a reload applies it: a key, or each of a section.
fn is_applied(name: &str) -> bool {
    let reference = describe::<Settings>();
    let keys = reference.reloads();
    let meant: Vec<bool> = keys
        .filter(|(key, _)| is_in(key, name))
        .map(|(_, live)| live)
        .collect();
    !meant.is_empty() && !meant.contains(&false)
}

fn is_in(key: &str, section: &str) -> bool {
    key.strip_prefix(section)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
}

/// What is wrong with a configuration, or with a part of one that stands below `place`.
fn mistakes(text: &str, place: &str) -> Vec<String> {
    let mut lines = Vec::new();
    let mut indent = String::new();
    for section in place.split('.').filter(|section| !section.is_empty()) {
        lines.push(format!("{indent}{section}:"));
        indent.push_str("  ");
    }
    let first = text
        .lines()
        .find(|line| !line.is_empty())
        .unwrap_or_default();
    let own = first.len() - first.trim_start().len();
    let below = text.lines().map(|line| line.get(own..).unwrap_or_default());
    lines.extend(below.map(|line| format!("{indent}{line}")));
    let whole = lines.join("\n");
    let loaded = load(&Input::from_text("page.yaml", whole));
    let resolved = loaded.resolve::<Settings>(Severity::Error);
    let is_whole = text.contains("version:");
    let said = resolved.report().iter().map(ToString::to_string);
    // A part may need what is not written in it.
    said.filter(|said| {
        said.contains("` opens `")
            || said.starts_with("error")
                && (is_whole || said.contains("unknown key") || said.contains("accepted:"))
    })
    .collect()
}

/// `a/{b,c}.rs` is two paths.
fn alternatives(path: &str) -> Vec<String> {
    let Some((before, rest)) = path.split_once('{') else {
        return vec![path.to_owned()];
    };
    let Some((within, after)) = rest.split_once('}') else {
        return vec![path.to_owned()];
    };
    within
        .split(',')
        .map(|one| format!("{before}{one}{after}"))
        .collect()
}

/// Whether it has the form of a path in the repository.
fn is_named(path: &str) -> bool {
    is_source(path) || is_a(path, "md") || is_a(path, "toml")
}

/// Whether it names a file or a directory of the sources, and not one of an application.
fn is_source(path: &str) -> bool {
    const ABOVE: [&str; 8] = [
        "scripts/",
        "crates/",
        "php/",
        "ext/",
        "e2e/",
        "bench/",
        "examples/",
        "vectors/",
    ];
    let is_path = path
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || b"_-./*".contains(&byte));
    is_path
        && (ABOVE.iter().any(|above| path.starts_with(above))
            || path.contains("/src")
            || is_a(path, "rs"))
}

/// Pages leave out what is above where that is clear: `core.rs`, `pool/src/escalation.rs`,
/// `classic*.c`.
fn stands_for(path: &str, file: &str) -> bool {
    let path = path.trim_end_matches('/');
    let (before, after) = path.split_once('*').unwrap_or((path, ""));
    let (file, before) = (format!("/{file}/"), format!("/{before}"));
    let mut found = file.split(&before).skip(1);
    found.any(|rest| {
        if path.contains('*') {
            rest.contains(&format!("{after}/"))
        } else {
            rest.starts_with('/')
        }
    })
}

/// All files of the repository that somebody wrote.
fn tree() -> Vec<String> {
    let mut files = Vec::new();
    let mut folders = vec![root()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder of the repository") {
            let path = entry.expect("an entry").path();
            let name = path
                .strip_prefix(root())
                .expect("it is below")
                .to_string_lossy()
                .into_owned();
            if path.is_dir() && !path.is_symlink() {
                if !name.starts_with(['.']) && name != "target" {
                    folders.push(path);
                }
            } else {
                files.push(name);
            }
        }
    }
    files
}

fn pages() -> Vec<Page> {
    let is_page = |file: &String| {
        is_a(file, "md") && PAGES.iter().any(|named| Path::new(file).starts_with(named))
    };
    let mut names: Vec<String> = tree().into_iter().filter(is_page).collect();
    names.sort();
    assert!(names.len() > 50, "the pages are gone: {names:?}");
    names.iter().map(|name| page(name)).collect()
}

fn page(name: &str) -> Page {
    let text = fs::read_to_string(root().join(name)).expect("the page");
    Page {
        name: name.to_owned(),
        text,
    }
}

fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).expect("the repository").to_owned()
}

fn is_a(file: &str, ending: &str) -> bool {
    Path::new(file).extension().is_some_and(|its| its == ending)
}

fn none(wrong: &[String]) {
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
