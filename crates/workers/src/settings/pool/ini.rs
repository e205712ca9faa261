//! `ini`: settings of PHP. Its words mean what they mean in php.ini, where those in quotes are
//! texts.

use pronghorn_config::{Pair, Pairs, Table};
use pronghorn_launch::{Ini, IniSetting, Preset};

use super::Mode;
use super::choices::PresetWord;

/// Settings of PHP for workers that use our package, where nothing else is written. They live long
/// and read their code once: OPcache is off on the command line, and there it takes no file that is
/// newer than the process and sees no change of one. Messages go to stderr, once. The JIT is off:
/// it is not without risk, and gains little where most time is spent in C.
const INI: &[(&str, &str)] = &[
    ("display_errors", "stderr"),
    ("log_errors", "0"),
    ("html_errors", "0"),
    ("max_execution_time", "0"),
    // PHP's own, only where its files have none: distributions lift it for the command line, whose
    // scripts end soon. One endless allocation would take the machine's memory.
    ("memory_limit", "128M"),
    ("opcache.enable_cli", "1"),
    ("opcache.file_update_protection", "0"),
    ("opcache.revalidate_freq", "0"),
    ("opcache.jit", "disable"),
];
/// More than PHP itself has.
const MOST_INI: usize = 1000;

pub(super) fn read(t: &mut Table<'_>, mode: Mode) -> Ini {
    let preset = t
        .key(
            "ini_preset",
            "Whether workers get the default settings of `ini`. With `auto`, they do if their \
             script contains `Pronghorn\\`, as scripts for our package do.",
        )
        .ours()
        .no_effect(mode.ignores(&[Mode::FastCgi, Mode::Cgi]))
        .default(PresetWord(Preset::Auto))
        .0;
    // What is shown is what they get.
    let suits = match (mode, preset) {
        (Mode::Worker, Preset::Auto | Preset::On) | (Mode::Classic, Preset::On) => true,
        (Mode::Worker | Mode::Classic | Mode::FastCgi | Mode::Cgi, _) => false,
    };
    let (mut written, added) = t
        .key(
            "ini",
            "PHP settings for workers. They override `php.ini`. `ini_preset` says whether workers \
             get defaults for the other settings.",
        )
        .ours()
        .no_effect(mode.ignores(&[Mode::Cgi]))
        .over(
            if suits { INI } else { &[] },
            "settings for long-running processes, see [PHP's \
             settings](../operations/php-settings.md)",
        );
    if written.0.len() > MOST_INI {
        t.error(
            "ini",
            &format!(
                "has {} settings; at most {MOST_INI} are taken",
                written.0.len()
            ),
            "put them into php.ini",
        );
    }
    let plain = |name: &str| {
        !name.is_empty()
            && name
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b))
    };
    for (name, value) in written.iter() {
        if !plain(name) {
            t.error(
                "ini",
                &format!(
                    "has `{}`, which is no name of a setting",
                    name.escape_debug()
                ),
                "write it as in php.ini, `opcache.memory_consumption: 256` for instance",
            );
        } else if value.contains(['\n', '\r', '\0']) {
            t.error(
                "ini",
                &format!("has a value for `{name}` with a line end"),
                "put this one into php.ini",
            );
        }
    }
    for pair in &mut written.0 {
        if let Some(meaning) = meaning(pair) {
            meaning.clone_into(&mut pair.value);
        }
    }
    Ini {
        written: settings(written),
        added: settings(added),
        preset,
    }
}

fn settings(pairs: Pairs) -> Vec<IniSetting> {
    let settings = pairs.0.into_iter().map(|pair| IniSetting {
        name: pair.name,
        value: pair.value,
        quoted: pair.quoted,
    });
    settings.collect()
}

/// What a word means that is not in quotes: php.ini's for yes and no, in any case. None is as
/// written.
fn meaning(pair: &Pair) -> Option<&'static str> {
    let is = |words: &[&str]| {
        words
            .iter()
            .any(|word| pair.value.eq_ignore_ascii_case(word))
    };
    match () {
        () if pair.quoted => None,
        () if is(&["on", "yes", "true"]) => Some("1"),
        () if is(&["off", "no", "false", "none", "null"]) => Some(""),
        () => None,
    }
}
