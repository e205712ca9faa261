//! Golden cases of the configuration: each file of `tests/configuration` holds input and
//! expectation.
//!
//! A case is a sentence, then blocks that begin with `--- ` and a title: `file NAME` (the first is
//! the main one), `overrides` and `environment` (one a line), `dotenv NAME` (a file of variables);
//! then what is expected of `check` and, where the values matter, of `config show`: `show` has the
//! values that are no default, `show SECTION` one section with its defaults, `show all` everything.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::{env, fs};

use pronghorn_config::{Disk, Era, Input, fuzz_load};
use pronghorn_server::Services;
use pronghorn_server::settings::{Form, Settings, check, config_show, eras, reference};

const UPDATE: &str = "`UPDATE_GOLDEN=1 cargo test -p pronghorn-server --test it`";

#[test]
fn every_case_gives_what_it_says() {
    let cases = files("tests/configuration");
    assert!(cases.len() > 40, "the cases are gone");
    let wrong: Vec<String> = cases.iter().filter_map(|path| run(path)).collect();
    assert!(
        wrong.is_empty(),
        "{}\n{UPDATE} rewrites them",
        wrong.join("\n")
    );
}

/// A new key of a pool changes each case that prints the whole configuration.
#[test]
fn two_cases_show_the_whole_configuration() {
    let whole = files("tests/configuration").into_iter().filter(|path| {
        let text = fs::read_to_string(path).expect("a case");
        text.contains("\n--- show all\n")
    });
    assert_eq!(
        whole.count(),
        2,
        "`show` and `show SECTION` are for the others"
    );
}

#[test]
fn the_reference_page_is_what_the_settings_say() {
    let page = in_crate("../../docs/reference/configuration.md");
    if update() {
        fs::write(&page, reference()).expect("the page");
    }
    let committed = fs::read_to_string(&page).unwrap_or_default();
    assert!(
        committed == reference(),
        "{} is old: {UPDATE} writes it anew",
        page.display()
    );
}

#[test]
fn the_tables_of_eras_are_what_check_goes_by() {
    let page = in_crate("../../docs/migration/from-roadrunner.md");
    for era in [Era::V2025, Era::V3] {
        let text = fs::read_to_string(&page).expect("the page");
        let at = text.find(&format!("| what | {era} |"));
        let (before, rest) = text.split_at(at.expect("the page has the table"));
        let end = rest.find("\n\n").expect("something comes behind the table") + 1;
        let (table, after) = rest.split_at(end);
        if update() {
            fs::write(&page, format!("{before}{}{after}", eras(era))).expect("the page");
        } else {
            assert_eq!(table, eras(era), "{UPDATE} writes it anew");
        }
    }
}

#[test]
fn no_case_and_no_part_of_one_breaks_the_loader() {
    for path in files("tests/configuration") {
        let text = fs::read_to_string(path).expect("a case");
        for (_, block) in Case::parse(&text).blocks {
            fuzz_load::<Settings>(block.as_bytes());
        }
    }
    for path in files("../config/tests/corpus") {
        fuzz_load::<Settings>(&fs::read(path).expect("a file of the corpus"));
    }
}

fn in_crate(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn files(folder: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(in_crate(folder)).expect(folder);
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.expect(folder).path()).collect();
    files.sort();
    files
}

/// The warning is rare enough to be read.
#[test]
fn no_configuration_of_the_repository_opens_what_a_route_closes() {
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    let mut directories = vec![root.join("packaging"), root.join("php/laravel/stubs")];
    let examples = fs::read_dir(root.join("examples")).expect("the examples");
    directories.extend(examples.map(|it| it.expect("an example").path()));
    let mut judged = 0;
    for directory in directories {
        let file = directory.join("pronghorn.yaml");
        let Ok(text) = fs::read_to_string(&file) else {
            continue;
        };
        judged += 1;
        let input = Input::from_text("pronghorn.yaml", text);
        let services = Services::default();
        let said = check(&services, &input, None, Form::Text, |_, _| Vec::new());
        let (out, file) = (said.out, file.display());
        assert!(!out.contains("` opens `"), "{file}: {out}");
    }
    assert!(judged > 20, "the examples are gone: {judged}");
}

fn update() -> bool {
    env::var_os("UPDATE_GOLDEN").is_some()
}

/// What differs, if anything.
fn run(path: &Path) -> Option<String> {
    let text = fs::read_to_string(path).expect("a case");
    let mut case = Case::parse(&text);
    case.expectations();
    let now = case.to_string();
    if now == text {
        return None;
    }
    if update() {
        fs::write(path, now).expect("a case that can be written");
        return None;
    }
    Some(format!(
        "{}:\n--- is\n{now}\n--- should be\n{text}",
        path.display()
    ))
}

struct Case {
    sentence: String,
    blocks: Vec<(String, String)>,
}

impl Case {
    fn parse(text: &str) -> Self {
        let mut blocks = Vec::new();
        let mut parts = text.split("--- ");
        let sentence = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            let (title, body) = part.split_once('\n').expect("a title line");
            blocks.push((title.to_owned(), body.to_owned()));
        }
        Self { sentence, blocks }
    }

    fn input(&self) -> Input {
        let mut input = Input::default();
        let mut files = BTreeMap::new();
        for (title, body) in &self.blocks {
            match title.split_once(' ').unwrap_or((title, "")) {
                ("file", name) => {
                    input.file.get_or_insert_with(|| name.into());
                    files.insert(PathBuf::from(name), body.clone().into_bytes());
                }
                ("dotenv", name) => {
                    input.dotenv = Some(name.into());
                    files.insert(PathBuf::from(name), body.clone().into_bytes());
                }
                ("overrides", _) => input.overrides = body.lines().map(ToOwned::to_owned).collect(),
                ("environment", _) => {
                    let set = body.lines().filter_map(|line| line.split_once('='));
                    input.environment = set.map(|(n, v)| (n.to_owned(), v.to_owned())).collect();
                }
                (other, _) => assert!(
                    ["check", "show"].contains(&other),
                    "unknown block `{title}`"
                ),
            }
        }
        input.disk = Disk::Memory(files);
        input
    }

    fn expectations(&mut self) {
        let input = self.input();
        for (title, body) in &mut self.blocks {
            *body = match title.as_str() {
                "check" => {
                    check(&Services::default(), &input, None, Form::Text, |_, _| {
                        Vec::new()
                    })
                    .out
                }
                "check --to 3" => {
                    check(
                        &Services::default(),
                        &input,
                        Some(Era::V3),
                        Form::Text,
                        |_, _| Vec::new(),
                    )
                    .out
                }
                "check --to 2025" => {
                    check(
                        &Services::default(),
                        &input,
                        Some(Era::V2025),
                        Form::Text,
                        |_, _| Vec::new(),
                    )
                    .out
                }
                "show" => written(&config_show(&Services::default(), &input, Form::Text).out),
                "show all" => config_show(&Services::default(), &input, Form::Text).out,
                _ => match title.strip_prefix("show ") {
                    Some(section) => section_of(
                        &config_show(&Services::default(), &input, Form::Text).out,
                        section,
                    ),
                    None => continue,
                },
            };
            *body = body
                .lines()
                .map(|line| of_any_machine(line) + "\n")
                .collect();
        }
    }
}

/// The lines whose value is no default, below the sections they are in, without the alignment that
/// other keys give them.
fn written(shown: &str) -> String {
    let mut out = Vec::new();
    let mut above: Vec<&str> = Vec::new();
    for line in shown.lines() {
        above.retain(|section| indent(section) < indent(line));
        if is_section(line) {
            above.push(line);
        } else if !is_unset(line) {
            out.extend(above.drain(..).map(ToOwned::to_owned));
            out.push(match line.split_once("  # ") {
                Some((value, origin)) => format!("{}  # {origin}", value.trim_end()),
                None => line.to_owned(),
            });
        }
    }
    out.join("\n") + "\n"
}

/// The lines of the section with this dotted name, without those around it.
fn section_of(shown: &str, name: &str) -> String {
    let mut lines = shown.lines().skip(1).peekable();
    for part in name.split('.') {
        lines
            .find(|line| line.trim() == format!("{part}:"))
            .expect("a section of this name");
    }
    let depth = indent(lines.peek().expect("a section has lines"));
    let section: Vec<&str> = lines.take_while(|line| indent(line) >= depth).collect();
    section.join("\n") + "\n"
}

fn is_unset(line: &str) -> bool {
    line.contains("  # default")
        || line.contains("  # not set")
        || (line.trim_start().starts_with('#') && line.ends_with(':'))
}

fn is_section(line: &str) -> bool {
    line.ends_with(':') && !line.trim_start().starts_with('#')
}

fn indent(line: &str) -> usize {
    line.len() - line.trim_start().len()
}

/// What depends on the machine is left out.
fn of_any_machine(line: &str) -> String {
    let words = [
        "CPUs that this process",
        "below four CPUs",
        "the system's directory",
        "`uploads.dir`",
    ];
    let (name, _) = line.split_once(": ").unwrap_or((line, ""));
    if !words.iter().any(|word| line.contains(word)) {
        return line.to_owned();
    }
    match line.find("  # ").or_else(|| line.find(" (CPUs")) {
        Some(at) => format!("{name}: …{}", line.split_at(at).1.trim_end()),
        None => line.to_owned(),
    }
}

impl std::fmt::Display for Case {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.sentence)?;
        self.blocks
            .iter()
            .try_for_each(|(title, body)| write!(f, "--- {title}\n{body}"))
    }
}
