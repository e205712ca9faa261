//! Names of directories in which something else could be read than a name: what `serve` sets and
//! what `init` writes closes what was closed, and serves the directory that is there.

use std::fmt::Write as _;
use std::path::Path;

use pronghorn_config::{Effective, Input, Preset, Severity, Shown, load};
use pronghorn_http::routes::PathPattern;
use pronghorn_server::Services;
use pronghorn_server::settings::Settings;
use pronghorn_testkit::Directory;
use proptest::prelude::*;

use crate::application::Application;
use crate::init::configuration;

/// The settings that decide what is served.
struct Served {
    root: String,
    no_scripts: Vec<String>,
    command: Option<Shown>,
    refused: Vec<PathPattern>,
}

fn served(input: &Input, directory: &Path) -> Served {
    let loaded = load(input);
    let resolved = loaded.resolve_with(Severity::Error, |t| {
        Settings::read_with(t, &Services::default())
    });
    let json = loaded.to_json(&Effective::default());
    let json: serde_json::Value = serde_json::from_str(&json).expect("it is JSON");
    let (report, effective) = (resolved.report().clone(), resolved.effective().clone());
    assert_eq!(report.to_string(), "", "{json}");
    let settings = resolved.into_settings().expect("no mistake was told");
    let refused = json["http"]["routes"].as_array().into_iter().flatten();
    let refused = refused.filter(|route| !route["refuse"].is_null());
    let patterns = refused.flat_map(|route| match &route["path"] {
        serde_json::Value::Array(all) => all.clone(),
        one => vec![one.clone()],
    });
    let pools = settings
        .pools()
        .filter_map(|(_, pool)| pool.settings.site());
    let site = pools.into_iter().next();
    let command = effective.keys().find(|(key, ..)| *key == "server.command");
    Served {
        root: site.map_or_else(String::new, |it| {
            directory.join(&it.root).display().to_string()
        }),
        no_scripts: site.map(|it| it.no_scripts.clone()).unwrap_or_default(),
        command: command.and_then(|(_, shown, _)| shown),
        refused: patterns
            .map(|it| PathPattern::parse(it.as_str().expect("a text")).expect("it was judged"))
            .collect(),
    }
}

/// By `serve`, and by the file that `init` writes.
fn both(directory: &Path) -> [Served; 2] {
    let application = Application::in_folder(directory).expect("it has a sign");
    let mut presets = application.keys();
    presets.push(Preset::text("version", "3"));
    presets.push(Preset::text("http.address", "127.0.0.1:0"));
    let by_keys = Input {
        presets,
        ..Input::default()
    };
    let by_file = Input::from_text("pronghorn.yaml", configuration(&application));
    [by_keys, by_file].map(|input| served(&input, directory))
}

fn escaped(name: &str) -> String {
    let mut path = String::new();
    for byte in name.bytes() {
        _ = write!(path, "%{byte:02X}"); // a String takes it
    }
    path
}

fn names() -> impl Strategy<Value = String> {
    let fixed = [
        ",",
        "$",
        "$HOME",
        "${X}",
        "a,b",
        "a$b",
        "old$files",
        "{",
        "}",
        "a{b}",
        "*",
        "?",
        "a*b",
        "[",
        "a[b]",
        "~",
        "~t",
        " ",
        " a ",
        "\"q\"",
        "'q'",
        "#",
        "#h",
        ":",
        "a: b",
        "ü",
        "%41",
        "-",
        "!u",
        "&a",
        "|",
        ">",
        "@",
        "`",
        "null",
        "1",
        "$$",
        "a\tb",
        "a\nb",
    ];
    prop_oneof![
        proptest::sample::select(fixed.to_vec()).prop_map(str::to_owned),
        "[a-z,$\\{\\}*?\\[\\]~ \"'#:;=!&%()|+^ü\u{2028}-]{1,8}",
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn what_was_closed_is_closed_and_what_is_there_is_served(name in names()) {
        let directory = Directory::with(&[]);
        directory.write(&format!("{name}/index.php"), "");
        directory.write(&format!("{name}/deny/{name}/.htaccess"), "Require all denied");
        directory.write(&format!("{name}/off/{name}/.htaccess"), "php_flag engine off");
        let project = directory.join(&name);
        let path = format!("/deny/{}/a.txt", escaped(&name));
        for served in both(&project) {
            prop_assert_eq!(Path::new(&served.root), project.as_path());
            let off = format!("off/{name}");
            prop_assert!(served.no_scripts.contains(&off), "{:?}", served.no_scripts);
            prop_assert!(served.refused.iter().any(|it| it.gets(&path)), "{}", path);
            prop_assert!(!served.refused.iter().any(|it| it.gets("/deny/other")));
        }
    }

    #[test]
    fn a_worker_is_started_by_its_own_path(name in names()) {
        let directory = Directory::with(&[]);
        let script = format!("{name}/worker.php");
        directory.write(&script, "<?php Pronghorn\\serve();");
        let [by_keys, by_file] = both(&directory.join(&name));
        let script = directory.join(&script).display().to_string();
        for (served, script) in [(by_keys, script.as_str()), (by_file, "worker.php")] {
            let expected = Shown::List(vec!["php".to_owned(), script.to_owned()]);
            prop_assert_eq!(served.command, Some(expected));
        }
    }
}
