//! What `check` and `config show` print.

use std::fmt::Write;

use pronghorn_config::{
    Difference, Era, Input, Loaded, MAIN_FILES, Resolved, Severity, is_roadrunners, load,
};
use pronghorn_plugin_api::Finding;

use super::{Settings, eras};
use crate::services::Services;

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
/// this machine does not fit: it is asked when the text has no mistake.
pub fn check(
    services: &Services,
    input: &Input,
    to: Option<Era>,
    look: impl FnOnce(&Loaded, &Settings) -> Vec<Finding>,
) -> Said {
    let loaded = load(input);
    let Some(file) = &loaded.file else {
        return nothing_to_read(input);
    };
    let mut resolved = resolve(services, &loaded, Severity::Error);
    if !resolved.report().has_errors() {
        for finding in look(&loaded, resolved.settings()) {
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
    let mut out = format!("{report}{}: {}\n", file.display(), report.summary());
    if let Some(to) = to {
        eras::tell_changes(&loaded, to, &mut out);
    } else if is_roadrunners(file) {
        eras::tell(&loaded, &mut out);
        differences(resolved.differences(), &mut out);
    }
    Said {
        out,
        err: String::new(),
        passed: report.passes(),
    }
}

/// Every value that holds, as YAML. Mistakes go to standard error; the values are shown all the
/// same.
pub fn config_show(services: &Services, input: &Input) -> Said {
    let loaded = load(input);
    if loaded.file.is_none() && input.overrides.is_empty() {
        return nothing_to_read(input);
    }
    let resolved = resolve(services, &loaded, Severity::Warning);
    Said {
        out: format!("{}{}", origins(&loaded), resolved.effective()),
        err: resolved.report().to_string(),
        passed: !resolved.report().has_errors(),
    }
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
         hint: name a file with `-c`\n",
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
