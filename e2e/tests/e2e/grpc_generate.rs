//! `grpc generate`: what it writes is what `protoc --php_out` writes, and workers run by it. The
//! binary of tests has the feature `descriptors`.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "it looks at what commands have written, and fails as a test"
)]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;

use pronghorn_testkit::{Ended, Server, Site, php_command};

use crate::grpc;

/// All files of PHP in a directory, by their classes.
fn classes(directory: &Path) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut waiting = vec![directory.to_owned()];
    while let Some(next) = waiting.pop() {
        for entry in fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                waiting.push(path);
                continue;
            }
            let class = path.strip_prefix(directory).unwrap().with_extension("");
            let class = class.to_str().unwrap().replace('/', "\\");
            // protoc writes descriptors as they are, which is no text.
            let text = fs::read(&path).unwrap();
            found.insert(class, String::from_utf8_lossy(&text).into_owned());
        }
    }
    found
}

fn generate(site: &Site, arguments: &[&str]) -> Ended {
    let all = [&["grpc", "generate"], arguments].concat();
    Server::run(site, &all)
}

fn protoc(site: &Site, directory: &str, out: &str) {
    let script = format!(
        "mkdir {out} && find {directory} -name '*.proto' | sort | \
         xargs protoc --proto_path={directory} --php_out={out}"
    );
    let mut command = Command::new("sh");
    let output = command
        .args(["-c", &script])
        .current_dir(site.folder())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
}

/// What PHP sees of these classes, and what messages of them become.
fn seen(site: &Site, directory: &str, classes: &[&String]) -> String {
    let mut command = php_command("php");
    command
        .arg(Site::fixture("grpc/compare.php"))
        .arg(site.path(directory))
        .args(classes);
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}{errors}");
    said
}

/// Compares both generators over the files in `proto`.
fn compare(site: &Site, patterns: &[&str]) {
    protoc(site, "proto", "theirs");
    let ended = generate(site, &[patterns, &["--out", "ours"]].concat());
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let theirs = classes(&site.path("theirs"));
    // Names of releases before 2018, which protoc itself calls deprecated.
    let theirs = theirs
        .iter()
        .filter(|(_, text)| !text.contains("This class is deprecated."));
    let theirs: Vec<_> = theirs.map(|(class, _)| class).collect();
    let ours = classes(&site.path("ours"));
    let ours = ours
        .keys()
        .filter(|class| !class.ends_with("\\ShopInterface"));
    let ours: Vec<_> = ours.collect();
    assert_eq!(ours, theirs);
    let types: Vec<_> = ours.into_iter().filter(|it| !is_metadata(it)).collect();
    let (ours, theirs) = (seen(site, "ours", &types), seen(site, "theirs", &types));
    let differs = ours
        .lines()
        .zip(theirs.lines())
        .position(|(our, their)| our != their);
    if let Some(at) = differs {
        let around = |text: &str| {
            text.lines()
                .skip(at.saturating_sub(3))
                .take(5)
                .collect::<Vec<_>>()
                .join("\n")
        };
        panic!(
            "line {at}: {}\n--- protoc has\n{}",
            around(&ours),
            around(&theirs)
        );
    }
    assert_eq!(ours.lines().count(), theirs.lines().count());
    assert!(ours.lines().count() > 300, "{ours}");
}

fn is_metadata(class: &str) -> bool {
    class.starts_with("GPBMetadata\\") || class.starts_with("My\\Meta\\")
}

#[test]
fn generated_classes_are_those_of_protoc() {
    let site = Site::new();
    let from = Site::fixture("grpc/proto");
    for name in [
        "all.proto",
        "words.proto",
        "no_package.proto",
        "own_options.proto",
        "sub/file_2x.proto",
        "sub/list.proto",
        "sub/public.proto",
    ] {
        site.write(
            &format!("proto/{name}"),
            &fs::read_to_string(from.join(name)).unwrap(),
        );
    }
    compare(&site, &["proto/**/*.proto"]);
}

#[test]
fn generated_classes_of_random_files_are_those_of_protoc() {
    for seed in 0..6 {
        let text = random_file(&mut fastrand::Rng::with_seed(seed));
        let site = Site::new().file("proto/random.proto", &text);
        println!("seed {seed}:\n{text}"); // shown if it fails
        compare(&site, &["proto/random.proto"]);
    }
}

const SCALARS: [&str; 15] = [
    "double", "float", "int32", "int64", "uint32", "uint64", "sint32", "sint64", "fixed32",
    "fixed64", "sfixed32", "sfixed64", "bool", "string", "bytes",
];
const KEYS: [&str; 6] = ["int32", "int64", "uint32", "sint64", "bool", "string"];
const KNOWN: [&str; 5] = [
    "Timestamp",
    "Int64Value",
    "StringValue",
    "BoolValue",
    "Empty",
];
const NAMES: [&str; 8] = [
    "a",
    "some_name",
    "Some_Name",
    "x1y",
    "x_1_y",
    "camelCase",
    "CLASS",
    "list_",
];

/// A file with messages whose fields have names, numbers and types at random.
fn random_file(random: &mut fastrand::Rng) -> String {
    let mut text = "syntax = \"proto3\";\npackage random.v1;\n".to_owned();
    for name in ["timestamp", "wrappers", "empty"] {
        _ = writeln!(text, "import \"google/protobuf/{name}.proto\";");
    }
    for message in 0..8 {
        _ = writeln!(text, "message M{message} {{");
        _ = writeln!(
            text,
            "  enum E {{ ZERO{message} = 0; OTHER{message} = {}; }}",
            random.i32(1..)
        );
        let mut number = 0;
        for field in 0..random.usize(1..9) {
            number += random.u32(1..300);
            let name = format!("{}{field}", NAMES[random.usize(..NAMES.len())]);
            let kind = random_type(random);
            let field = match random.u8(0..8) {
                0 => format!("repeated {kind} {name}"),
                1 => format!("optional {kind} {name}"),
                2 => format!("map<{}, {kind}> {name}", KEYS[random.usize(..KEYS.len())]),
                3 => {
                    format!("oneof choice_{name} {{ {kind} {name} = {number}; string other_{name}")
                }
                _ => format!("{kind} {name}"),
            };
            let end = if field.starts_with("oneof") {
                number += 1;
                " }"
            } else {
                ""
            };
            let end = if end.is_empty() { ";" } else { "; }" };
            _ = writeln!(text, "  {field} = {number}{end}");
        }
        text.push_str("}\n");
    }
    text
}

fn random_type(random: &mut fastrand::Rng) -> String {
    match random.u8(0..10) {
        0 => format!("M{}", random.u8(0..8)),
        1 => format!("M{}.E", random.u8(0..8)),
        2 => format!("google.protobuf.{}", KNOWN[random.usize(..KNOWN.len())]),
        _ => SCALARS[random.usize(..SCALARS.len())].to_owned(),
    }
}

#[test]
fn workers_run_by_what_was_generated() {
    let (site, address) = grpc::site("grpc/generated.php", "  pool: {num_workers: 2}\n");
    // Of the configuration, and where it is told to look.
    let ended = generate(&site, &[]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert_eq!(
        ended.stdout,
        "generated/GPBMetadata/Talk.php\ngenerated/Test/V1/TalkInterface.php\ngenerated/Test/V1/Text.php\n"
    );
    assert!(
        ended.stderr.contains("3 files written to `generated`"),
        "{}",
        ended.stderr
    );
    let (server, address) = grpc::start_with((site, address));
    let client = grpc::connect(address);
    assert_eq!(client.say("a").body, grpc::text("a!", 0));
    let three: Vec<u8> = (1..=3).flat_map(|number| grpc::text("a", number)).collect();
    assert_eq!(client.call("Count", &[], grpc::text("a", 3)).body, three);
    let two = [grpc::text("a", 0), grpc::text("b", 0)].concat();
    assert_eq!(
        client.call("Join", &[], two.clone().into()).body,
        grpc::text("ab", 0)
    );
    let answers = [grpc::text("a?", 0), grpc::text("b?", 0)].concat();
    assert_eq!(client.call("Chat", &[], two.into()).body, answers);
    server.stop();
}

#[test]
fn only_what_changed_is_written_and_never_in_the_place_of_other_files() {
    let proto = "syntax = \"proto3\"; message One {} message Two {}\n";
    let site = Site::new().file("a.proto", proto);
    assert_eq!(generate(&site, &["a.proto"]).code, Some(0));
    let ended = generate(&site, &["a.proto"]);
    assert_eq!((ended.code, &*ended.stdout), (Some(0), ""));
    assert!(
        ended
            .stderr
            .contains("0 files written to `generated`, 3 unchanged"),
        "{}",
        ended.stderr
    );

    site.write("a.proto", &proto.replace("One {}", "One { int32 a = 1; }"));
    site.write("generated/Two.php", "<?php\n// By hand.\n");
    let ended = generate(&site, &["a.proto"]);
    assert_eq!(ended.code, Some(1));
    for part in [
        "`generated/Two.php` was not written by this command",
        "--out DIR",
    ] {
        assert!(ended.stderr.contains(part), "{}", ended.stderr);
    }
    let one = fs::read_to_string(site.path("generated/One.php")).unwrap();
    assert!(
        !one.contains("getA"),
        "nothing is written if one file can't be"
    );

    let ended = generate(&site, &["-s", "a.proto", "--out", "src", "--roadrunner"]);
    assert_eq!((ended.code, &*ended.stderr), (Some(0), ""));
    assert!(
        ended.stdout.contains("src/GPBMetadata/A.php\n"),
        "{}",
        ended.stdout
    );
}

#[test]
fn mistakes_are_told_with_their_places() {
    let site = Site::new()
        .file("a.proto", "syntax = \"proto3\";\nmessage A { B b = 1; }\n")
        .file("new.proto", "edition = \"2023\";\nmessage A {}\n")
        .file("old.proto", "syntax = \"proto2\";\nmessage A {}\n");
    for (arguments, parts) in [
        (&["a.proto"][..], &["a.proto:2:13:", "hint: "][..]),
        (
            &["new.proto"],
            &[
                "new.proto: has `edition = \"2023\"`, and PHP code is made of proto3 alone",
                "syntax = \"proto3\"",
            ],
        ),
        (
            &["old.proto"],
            &["old.proto: has no `syntax = \"proto3\"`, and PHP code is made of proto3 alone"],
        ),
        (&["b.proto"], &["b.proto"]),
        (
            &["*.txt"],
            &[
                "there is no file `*.txt`",
                "pronghorn grpc generate proto/*.proto",
            ],
        ),
        (&["no.proto"], &["there is no file `no.proto`"]),
        (
            &["a.proto", "--proto-path", "nowhere"],
            &["`--proto-path nowhere`: there is no directory `/"],
        ),
        (&[], &["there are no `.proto` files", "grpc.proto"]),
    ] {
        let ended = generate(&site, arguments);
        assert_eq!(ended.code, Some(2), "{arguments:?}");
        for part in parts {
            assert!(ended.stderr.contains(part), "{part} in\n{}", ended.stderr);
        }
    }
}
