//! What `check` and `config show` print.

use std::fmt::Write;
use std::path::Path;

use pronghorn_config::{
    Difference, Effective, Era, Input, Loaded, MAIN_FILES, Report, Resolved, Severity, Shown,
    is_roadrunners, load,
};
use pronghorn_plugin_api::Finding;
use serde_json::{Value, json};

use super::{Settings, eras};
use crate::services::Services;

/// For whom a command prints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// A person.
    Text,
    /// A program.
    Json,
}

impl Form {
    pub const fn of(json: bool) -> Self {
        if json { Self::Json } else { Self::Text }
    }
}

/// What a command prints, and whether it succeeded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Said {
    /// For standard output.
    pub out: String,
    /// For standard error.
    pub err: String,
    /// False when nothing would start with this configuration, or not all that it asks for: exit
    /// code 2.
    pub passed: bool,
}

/// Every mistake, and for a file of RoadRunner's name how each `RoadRunner` reads it and what
/// differs from them; with `to` what has to be changed for that one, instead. `look` says what of
/// this machine does not fit, whatever else is wrong with the text.
pub fn check(
    services: &Services,
    input: &Input,
    to: Option<Era>,
    form: Form,
    look: impl FnOnce(&Loaded, &Settings) -> Vec<Finding>,
) -> Said {
    let loaded = load(input);
    if loaded.file.is_none() && !input.sets_keys() {
        return nothing_to_read(input);
    }
    let file = loaded.file.as_deref();
    let mut resolved = resolve(services, &loaded, Severity::Error);
    if !loaded.is_incomplete() {
        for finding in look(&loaded, resolved.settings()) {
            let mut wrong = resolved.stand_ins().iter();
            if wrong.any(|wrong| may_follow(&finding.key, wrong)) {
                continue;
            }
            let path: Vec<&str> = finding.key.split('.').collect();
            let Finding {
                severity,
                message,
                hint,
                ..
            } = &finding;
            resolved.tell(&loaded, *severity, &path, message, hint);
        }
    }
    let report = resolved.report().worst_first();
    if form == Form::Json {
        return Said {
            out: check_json(file, &report, resolved.differences()),
            err: String::new(),
            passed: report.passes(),
        };
    }
    let name = file.map_or_else(
        || "without a file".to_owned(),
        |file| file.display().to_string(),
    );
    let mut out = format!("{report}{name}: {}\n", report.summary());
    if let Some(to) = to {
        eras::tell_changes(&loaded, to, &mut out);
    } else if file.is_some_and(is_roadrunners) {
        eras::tell(&loaded, &mut out);
        differences(resolved.differences(), &mut out);
    }
    Said {
        out,
        err: String::new(),
        passed: report.passes(),
    }
}

/// Keys that decide what is run, where and as whom.
const DECISIVE: [&str; 9] = [
    "allow_root",
    "command",
    "directory",
    "env",
    "group",
    "mode",
    "php",
    "root",
    "user",
];

/// Whether a finding about one key may come from the default that stands in for another one: that
/// is told, and without it there may be nothing to find.
fn may_follow(finding: &str, wrong: &str) -> bool {
    let (section, name) = wrong.rsplit_once('.').unwrap_or(("", wrong));
    let is_below = |key| {
        let rest = finding.strip_prefix(key);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    // Keys of `server` hold for all commands.
    is_below(wrong) || (DECISIVE.contains(&name) && (section == "server" || is_below(section)))
}

/// Every value that holds, as YAML. Mistakes go to standard error; the values are shown all the
/// same.
pub fn config_show(services: &Services, input: &Input, form: Form) -> Said {
    let loaded = load(input);
    if loaded.file.is_none() && !input.sets_keys() {
        return nothing_to_read(input);
    }
    let resolved = resolve(services, &loaded, Severity::Warning);
    let out = match form {
        Form::Text => format!("{}{}", origins(&loaded), resolved.effective()),
        Form::Json => config_json(&loaded, resolved.effective()),
    };
    Said {
        out,
        err: resolved.report().to_string(),
        passed: !resolved.report().has_errors(),
    }
}

/// `check --json`; `docs/reference/json.md` describes it.
fn check_json(file: Option<&Path>, report: &Report, differences: &[Difference]) -> String {
    let findings = report.iter().map(|diagnostic| {
        let severity = match diagnostic.severity {
            Severity::Missing => "missing",
            Severity::Error => "error",
            Severity::Warning => "warning",
        };
        json!({
            "severity": severity,
            "place": diagnostic.place.to_string(),
            "message": diagnostic.message,
            "hint": diagnostic.hint,
        })
    });
    let findings: Vec<Value> = findings.collect();
    let differences = differences.iter().map(|difference| {
        json!({
            "key": difference.key,
            "here": difference.here,
            "roadrunner": difference.there,
            "why": difference.why,
        })
    });
    let differences: Vec<Value> = if file.is_some_and(is_roadrunners) {
        differences.collect()
    } else {
        Vec::new()
    };
    pretty(&json!({
        "file": file,
        "passed": report.passes(),
        "findings": findings,
        "differences": differences,
    }))
}

/// `config show --json`, described there as well.
fn config_json(loaded: &Loaded, effective: &Effective) -> String {
    pretty(&json!({"files": loaded.files, "keys": keys(effective)}))
}

/// The `keys` of it alone.
pub fn effective_json(effective: &Effective) -> String {
    keys(effective).to_string()
}

fn keys(effective: &Effective) -> Value {
    let keys = effective.keys().map(|(key, value, source)| {
        let value = value.map(|value| match value {
            Shown::One(text) => Value::String(text),
            Shown::List(texts) => texts.into(),
            Shown::Map(pairs) => {
                let pairs = pairs.into_iter().map(|pair| (pair.name, pair.value.into()));
                Value::Object(pairs.collect())
            }
        });
        json!({"key": key, "value": value, "source": source})
    });
    keys.collect()
}

fn pretty(value: &Value) -> String {
    format!("{value:#}\n")
}

fn resolve(services: &Services, loaded: &Loaded, unknown: Severity) -> Resolved<Settings> {
    loaded.resolve_with(unknown, |t| Settings::read_with(t, services))
}

fn nothing_to_read(input: &Input) -> Said {
    let folder = if input.folder.as_os_str().is_empty() {
        "the working folder".to_owned()
    } else {
        format!("`{}`", input.folder.display())
    };
    let err = format!(
        "error: there is no configuration: neither `{}` is in {folder}\n\
         hint: name a file with `-c`, or write one with `pronghorn init`\n",
        MAIN_FILES.join("` nor `"),
    );
    Said {
        out: String::new(),
        err,
        passed: false,
    }
}

fn differences(differences: &[Difference], out: &mut String) {
    if differences.is_empty() {
        return;
    }
    out.push_str("RoadRunner would treat this file differently:\n");
    for difference in differences {
        // Writing to a String cannot fail.
        _ = writeln!(out, "  {difference}");
    }
}

/// The files in the order in which they were read.
fn origins(loaded: &Loaded) -> String {
    let names: Vec<String> = loaded
        .files
        .iter()
        .map(|f| f.display().to_string())
        .collect();
    format!("# {}\n", names.join(", "))
}
