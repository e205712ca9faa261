//! Where files are looked for and read, and what callers get.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use pronghorn_config::{
    Command, Effective, Input, Pairs, Preset, Section, Severity, Table, describe, load,
};
use pronghorn_testkit::Directory;

use crate::{Sample, read};

fn input(directory: &Directory) -> Input {
    Input {
        folder: directory.to_path_buf(),
        ..Input::default()
    }
}

#[test]
fn our_file_is_preferred_and_none_is_no_mistake() {
    let directory = Directory::new();
    let nothing = load(&input(&directory));
    assert_eq!(nothing.file, None);
    assert_eq!(
        nothing
            .resolve::<Sample>(Severity::Error)
            .report()
            .to_string(),
        ""
    );

    directory.write(".rr.yaml", "name: theirs");
    assert_eq!(load(&input(&directory)).file, Some(".rr.yaml".into()));
    directory.write("pronghorn.yaml", "name: ours");
    let (settings, _) = read(&input(&directory));
    assert_eq!(settings.expect("settings").name.as_deref(), Some("ours"));
}

#[test]
fn overrides_alone_are_a_configuration() {
    let input = Input {
        folder: "/nowhere".into(),
        overrides: vec!["name=x".to_owned(), "count=0".to_owned()],
        ..Input::default()
    };
    let settings = read(&input).0.expect("settings");
    assert_eq!(settings.name.as_deref(), Some("x"));
    assert_eq!(settings.count, 3);
}

#[test]
fn overrides_reach_the_items_of_a_list() {
    let with = |text: &str, overrides: &[&str]| {
        let mut input = Input::from_text("a.yaml", text);
        input.overrides = overrides.iter().map(|&it| it.to_owned()).collect();
        let loaded = load(&input);
        let report = loaded.resolve_part::<Sample>().report().to_string();
        (loaded.to_json(&Effective::default()), report)
    };
    let overrides = ["a[0].b=new", "a[1].b=more", "c.d[0]=text", "e[x]=name"];
    assert_eq!(
        with("a: [{b: old, k: kept}]\n", &overrides),
        (
            r#"{"a":[{"b":"new","k":"kept"},{"b":"more"}],"c":{"d":["text"]},"e[x]":"name"}"#
                .to_owned(),
            String::new()
        )
    );
    // Neither behind a gap, nor in what is no list.
    for wrong in ["a[2].b=x", "n[0]=x", "a[0].b.c=x"] {
        let (json, report) = with("a: [{b: old}]\nn: text\n", &[wrong]);
        assert_eq!(json, r#"{"a":[{"b":"old"}],"n":"text"}"#, "{wrong}");
        assert!(report.contains("cannot be set"), "{wrong}: {report}");
    }
}

#[test]
fn what_is_no_readable_file_is_told() {
    let directory = Directory::new();
    for (name, message) in [
        (
            "missing.yaml",
            "error: missing.yaml: cannot be read: No such file",
        ),
        (".", "error: .: cannot be read: Is a directory"),
        (
            "/dev/zero",
            "error: /dev/zero: is larger than a configuration may be",
        ),
    ] {
        let input = Input {
            file: Some(name.into()),
            ..input(&directory)
        };
        let said = read(&input).1;
        assert!(said.starts_with(message), "{said}");
    }
    directory.write("latin1.yaml", "");
    fs::write(directory.join("latin1.yaml"), b"a: 1\nname: caf\xe9\n").expect("a file");
    let input = Input {
        file: Some("latin1.yaml".into()),
        ..input(&directory)
    };
    assert!(
        read(&input)
            .1
            .starts_with("error: latin1.yaml:2:10: is not UTF-8")
    );
}

#[test]
fn every_file_that_was_read_is_known() {
    let directory = Directory::new();
    directory.write(".rr.yaml", "include: sub.yaml\nenvfile: .env\nname: $NAME");
    directory.write("sub.yaml", "count: 4");
    directory.write(".env", "NAME=Ann\nHOME=/elsewhere");
    let mut input = input(&directory);
    input.environment = [("HOME".to_owned(), "/root".to_owned())].into();
    let loaded = load(&input);
    let files: Vec<PathBuf> = [".rr.yaml", ".env", "sub.yaml"].map(PathBuf::from).into();
    assert_eq!(loaded.files, files);
    assert_eq!(
        loaded.dotenv,
        [("NAME".to_owned(), "Ann".to_owned())].into()
    );
    let settings = read(&input).0.expect("settings");
    assert_eq!((settings.name.as_deref(), settings.count), (Some("Ann"), 4));
}

#[test]
fn files_may_begin_and_end_their_lines_as_on_windows() {
    let directory = Directory::new();
    let bom = "\u{feff}";
    directory.write(
        ".rr.yaml",
        &format!("{bom}include: sub.yaml\r\nenvfile: .env\r\nname: $FIRST\r\n"),
    );
    directory.write("sub.yaml", &format!("{bom}count: 4\r\n"));
    directory.write(".env", &format!("{bom}FIRST=Ann\r\nSECOND=\"a\r\nb\"\r\n"));
    directory.write("dotenv", &format!("{bom}THIRD=1"));
    let mut input = input(&directory);
    input.dotenv = Some("dotenv".into());
    let (settings, said) = read(&input);
    assert_eq!(said, "");
    let settings = settings.expect("settings");
    assert_eq!((settings.name.as_deref(), settings.count), (Some("Ann"), 4));
    let set = [("FIRST", "Ann"), ("SECOND", "a\nb"), ("THIRD", "1")];
    let set = set.map(|(name, value)| (name.to_owned(), value.to_owned()));
    assert_eq!(load(&input).dotenv, set.into());
}

#[test]
fn settings_have_their_types() {
    let text = "\
env: [{B: 1}, {A: 2}]
list: a,b
former_patience: 5s
inner: {port: '81', limit: 0}
named: {First: {port: 1}, second: {}}
items: [{port: 7}, {}, {limit: 2s}]
";
    let settings = read(&Input::from_text("a.yaml", text)).0.expect("settings");
    let env: Vec<(&str, &str)> = settings.env.iter().collect();
    assert_eq!(env, [("B", "1"), ("A", "2")]);
    assert_eq!(settings.list, ["a", "b"]);
    assert_eq!(settings.patience, Duration::from_secs(5));
    assert_eq!((settings.inner.port, settings.inner.limit), (81, None));
    let named: Vec<(&str, u16)> = settings
        .named
        .iter()
        .map(|(name, inner)| (name.as_str(), inner.port))
        .collect();
    assert_eq!(named, [("First", 1), ("second", 80)]);
    let items: Vec<_> = settings
        .items
        .iter()
        .map(|inner| (inner.port, inner.limit.map(|limit| limit.as_secs())))
        .collect();
    assert_eq!(items, [(7, Some(1)), (80, Some(1)), (80, Some(2))]);
}

#[test]
fn a_list_of_sections_is_shown_as_one() {
    let text = "items: [{port: 7}, {limit: 0}]";
    let resolved = load(&Input::from_text("a.yaml", text)).resolve::<Sample>(Severity::Error);
    let shown = resolved.effective().to_string();
    let wanted = "items:\n- port: 7  # a.yaml:1\n  limit: 1s  # default\n- port: 80  # default\n  limit: 0  # a.yaml:1\n";
    let squeezed: Vec<String> = shown
        .lines()
        .map(|line| match line.split_once("  # ") {
            Some((text, comment)) => format!("{}  # {}\n", text.trim_end(), comment),
            None => format!("{line}\n"),
        })
        .collect();
    assert!(squeezed.concat().contains(wanted), "{shown}");
}

#[test]
fn mistakes_in_a_list_of_sections_have_their_places() {
    let text = "items:\n- 7\n- {prot: 1}\n- {port: x}\n- {}\n- {}\n";
    assert_eq!(
        read(&Input::from_text("a.yaml", text)).1,
        "error: a.yaml:2:3: `items[0]` is `7`; accepted: a section\n\
         hint: write its keys in braces: `- {key: value}`\n\
         error: a.yaml:3:4: unknown key `items[1].prot`\nhint: did you mean `port`?\n\
         error: a.yaml:4:10: `items[2].port` is `x`; accepted: a whole number\nhint: for example `port: 80`\n\
         error: a.yaml:5:3: `items` has 5 items; accepted: at most 3\nhint: join some of them\n"
    );
    for (text, said) in [
        (
            "items: {port: 1}",
            "error: a.yaml:1:8: `items` is a map; accepted: a list of sections\n",
        ),
        (
            "items: x",
            "error: a.yaml:1:8: `items` is `x`; accepted: a list of sections\n",
        ),
        (
            "items:",
            "warning: a.yaml:1:1: `items` is empty and counts as not written\n",
        ),
    ] {
        let all = read(&Input::from_text("a.yaml", text)).1;
        assert!(all.starts_with(said), "{all}");
    }
}

#[test]
fn a_bom_and_windows_line_ends_are_no_mistakes() {
    let text = "\u{feff}name: x\r\ninner:\r\n  port: 1\r\n";
    assert_eq!(read(&Input::from_text("a.yaml", text)).1, "");
}

#[test]
fn secrets_are_shown_by_nobody() {
    let resolved = load(&Input::from_text(
        "a.yaml",
        "password: hush\nenv: {TOKEN: hush}",
    ))
    .resolve::<Sample>(Severity::Error);
    let shown = resolved.effective().to_string();
    assert!(
        shown.contains("password: \"***\"") && !shown.contains("hush"),
        "{shown}"
    );
}

#[test]
fn a_mistake_in_a_secret_does_not_show_it() {
    let text = "password: [hush]\nlater: {token: hush}\npath: {password: hush}\nname: ${hush";
    let resolved = load(&Input::from_text("a.yaml", text)).resolve::<Sample>(Severity::Error);
    let shown = format!("{}{}", resolved.effective(), resolved.report());
    let leaks: Vec<&str> = shown.lines().filter(|line| line.contains("hush")).collect();
    assert_eq!(
        leaks,
        ["error: a.yaml:4:7: `name`: `${hush` is no reference to a variable"]
    );
}

#[test]
fn the_reference_has_every_key_and_its_default() {
    let page = describe::<Sample>().to_string();
    for row in [
        "| `count` | a whole number, from 1 to 10; 0 is the default | `3` |  |  | A number. |",
        "| `patience` | a duration such as `30s` | `former_patience`, else `30s` |",
        "Not used yet: `later` (what comes later).",
        "Without effect: `former` (it is gone).",
        "## `named.<name>`",
        "## `items[]`",
        "| `limit` | a duration such as `30s`; 0 is off | `1s` | yes |  | A limit. |",
    ] {
        assert!(page.contains(row), "{row}\n{page}");
    }
}

#[test]
fn a_change_says_whether_a_reload_applies_it() {
    let effective = |text: &str| {
        let resolved = load(&Input::from_text("a.yaml", text)).resolve::<Sample>(Severity::Error);
        resolved.effective().clone()
    };
    let before = effective("count: 1\ninner: {limit: 2s}\nnamed: {a: {port: 1}}");
    let after = effective("count: 2\ninner: {port: 3, limit: 4s}\nnamed: {b: {port: 1}}");
    let changes: Vec<_> = before.changes(&after);
    let changes: Vec<(&str, bool)> = changes.iter().map(|c| (c.key.as_str(), c.live)).collect();
    assert_eq!(
        changes,
        [
            ("count", false),
            ("inner.port", false),
            ("inner.limit", true),
            ("named.b.port", true),
            ("named.b.limit", true),
            ("named.a.port", true),
            ("named.a.limit", true),
        ]
    );
    assert_eq!(before.changes(&before), []);
    assert_eq!(before.held(&after), ["count", "inner.port"]);
    assert!(before.held(&before).is_empty());
}

#[test]
fn a_reload_leaves_a_new_section_as_a_whole() {
    let effective = |text: &str| {
        let resolved = load(&Input::from_text("a.yaml", text)).resolve::<Sample>(Severity::Error);
        resolved.effective().clone()
    };
    let before = effective("count: 1\nitems: [{port: 1}]");
    let after = effective("count: 1\nitems: [{port: 1}, {port: 2}]");
    assert_eq!(before.held(&after), ["items[1]"]);
    assert_eq!(after.held(&before), ["items[1]"]);
}

/// Secrets whose names do not say that they are some, in each shape, and commands.
struct Hiding;

impl Section for Hiding {
    fn read(t: &mut Table<'_>) -> Self {
        t.section_with("a", "A section.", |t| {
            t.key::<String>("one", "A text.").secret().optional();
            t.key::<Vec<String>>("list", "A list.").secret().optional();
            t.key::<Pairs>("map", "A map.").secret().optional();
            t.key::<Command>("command", "A command.").optional();
            t.key::<Vec<String>>("urls", "A list.").optional();
            t.key::<String>("open", "A text.").optional();
        });
        Self
    }
}

#[test]
fn what_is_shown_and_what_programs_are_told_hide_the_same() {
    let long = "0123456789abcdef";
    for written in [
        "one: hush",
        "one: hush.pem",
        "list: [hush, hush.key]",
        "list: 'hush,hush'",
        "map: {x-team: hush, dsn: hush}",
        "map: [{x-team: hush}]",
        "command: [php, w.php, --api-key, hush]",
        "command: [mysql, -p, hush]",
        "command: [curl, -u, 'me:hush']",
        "command: [sh, -c, 'mysql -phush']",
        "command: php w.php --token=hush",
        "urls: ['https://h/?sig=hush', 'nats://hush@h', 'redis://u:hush@h']",
        "urls: [https://hush@sentry.io/1]",
        &format!("urls: [ghp_hush{long}]"),
        "unknown: [php, --token, hush]",
        "unknown: {deep: [[x, --password, hush]], api_key: [hush]}",
        "unknown: {b: [{command: [mysql, -phush]}]}",
    ] {
        let written = format!("a: {{open: shown, {written}}}\n");
        let loaded = load(&Input::from_text("a.yaml", written.as_str()));
        let resolved = loaded.resolve::<Hiding>(Severity::Warning);
        let effective = resolved.effective();
        for said in [effective.to_string(), loaded.to_json(effective)] {
            assert!(!said.contains("hush"), "{written}{said}");
            assert!(said.contains("shown"), "{said}");
        }
    }
    let mut input = Input {
        overrides: ["a.open=shown", "a.one=hush", "a.map.x=hush"]
            .map(str::to_owned)
            .into(),
        ..Input::default()
    };
    for first in 0..3 {
        input.overrides.rotate_left(first);
        let loaded = load(&input);
        let resolved = loaded.resolve::<Hiding>(Severity::Warning);
        let json = loaded.to_json(resolved.effective());
        assert_eq!(
            json,
            r#"{"a":{"map":{"x":"***"},"one":"***","open":"shown"}}"#
        );
    }
}

#[test]
fn values_that_code_sets_are_taken_as_they_are() {
    let hostile = [
        "a,b", "$HOME", "${X}", "\"q\"", " a ", "'", "#", "~", "=", "$", "$$", "a: b",
    ];
    let mut input = Input::from_text("a.yaml", "a: {urls: [x, y, z], one: 1}\n");
    input.presets = vec![Preset::list("a.urls", hostile)];
    for text in hostile {
        input.presets.push(Preset::text("a.open", text));
        let json = load(&input).to_json(&Effective::default());
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(json["a"]["open"], text);
        assert_eq!(json["a"]["urls"], serde_json::json!(hostile));
    }
    input.overrides = vec!["a.open=typed".to_owned()];
    let json = load(&input).to_json(&Effective::default());
    assert!(json.contains(r#""open":"typed""#), "{json}");
}

#[test]
fn a_secret_that_its_variables_leave_empty_is_a_mistake() {
    let said = |text: &str| {
        let mut input = Input::from_text("a.yaml", text);
        input.environment = [("EMPTY", ""), ("SET", "x")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into();
        let (settings, said) = read(&input);
        (settings.is_ok(), said)
    };
    for (text, wanted) in [
        ("token: ${NOPE}", "would be open: `NOPE` has no value"),
        ("token: ${EMPTY}", "hint: set `EMPTY`, or remove `token`"),
        ("token: ${NOPE:-}", "`NOPE` has no value"),
        ("token: ''", "so access would be open"),
        ("token:", "hint: write a value, or remove `token`"),
    ] {
        let (is_right, said) = said(text);
        assert!(!is_right && said.contains(wanted), "{text}: {said}");
    }
    // Somebody has said that there is none.
    for text in [
        "token: ${SET}",
        "password: ${NOPE}",
        "password: ${EMPTY}",
        "password: ${NOPE:-}",
        "password: ''",
        "name: ${NOPE}",
    ] {
        let (is_right, said) = said(text);
        assert!(is_right, "{text}: {said}");
    }
}

/// A section whose other keys are another program's.
#[derive(Debug)]
struct Passing {
    ours: Option<String>,
    all: pronghorn_config::Map,
}

impl Section for Passing {
    fn read(t: &mut Table<'_>) -> Self {
        t.section_with("theirs", "A section.", |t| Self {
            ours: t.key("ours", "A text.").optional(),
            all: t.pass_on("Others are passed on."),
        })
    }
}

#[test]
fn keys_of_another_program_are_passed_on_and_none_is_unknown() {
    let text = "theirs: {ours: a, other: {deep: [1, {token: hush}], password: hush}, Size: 5}\n";
    let resolved = load(&Input::from_text("a.yaml", text)).resolve::<Passing>(Severity::Error);
    assert!(!resolved.report().has_errors(), "{}", resolved.report());
    let shown = resolved.effective().to_string();
    assert!(!shown.contains("hush"), "{shown}");
    assert!(
        shown.contains("Size: 5") && shown.contains("passed on"),
        "{shown}"
    );
    let Passing { ours, all } = resolved.settings();
    assert_eq!(ours.as_deref(), Some("a"));
    let names: Vec<_> = all
        .entries
        .iter()
        .map(|entry| entry.name.as_str())
        .collect();
    assert_eq!(names, ["ours", "other", "Size"]);
    let reference = describe::<Passing>().to_string();
    assert!(
        reference.contains("\nOthers are passed on.\n"),
        "{reference}"
    );
    let schema = pronghorn_config::schema(Passing::read);
    let schema: serde_json::Value = serde_json::from_str(&schema).expect("it is JSON");
    let theirs = &schema["properties"]["theirs"];
    assert_eq!(theirs["additionalProperties"], true);
    assert_eq!(schema["additionalProperties"], false);
}
