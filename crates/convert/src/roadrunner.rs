//! A `.rr.yaml`. It is served as it is; this makes a `pronghorn.yaml` of it in which nothing stands
//! that this server does not have.

use std::path::Path;

use pronghorn_config::{Era, Input, Severity, load};
use pronghorn_server::Services;
use pronghorn_server::settings::Settings;

/// The text of the new file, and what was left out.
pub(super) fn read(path: &Path, text: &str) -> (String, Vec<String>) {
    let input = Input {
        file: Some(path.to_owned()),
        ..Input::default()
    };
    let loaded = load(&input);
    let services = Services::default();
    let resolved = loaded.resolve_with(Severity::Warning, |t| Settings::read_with(t, &services));
    let mut left_out = Vec::new();
    let mut sections = Vec::new();
    for diagnostic in resolved.report() {
        if diagnostic.severity != Severity::Missing {
            continue;
        }
        let key = diagnostic.message.split('`').nth(1).unwrap_or_default();
        if key.contains('.') || key.is_empty() {
            left_out.push(format!("{}: {}", diagnostic.place, diagnostic.message));
        } else {
            sections.push(key.to_owned());
            left_out.push(format!(
                "the section `{key}`: it stands in the file as a comment"
            ));
        }
    }
    let mut out = String::new();
    if loaded.compat().era == Era::V3 {
        out.push_str("compat: 3   # as RoadRunner 3 reads it\n");
    }
    let mut is_out = false;
    for line in text.lines() {
        if !line.starts_with([' ', '\t', '#', '-']) && !line.is_empty() {
            let key = line
                .split(':')
                .next()
                .unwrap_or_default()
                .trim_matches(['"', '\'']);
            is_out = sections.iter().any(|section| section == key);
        }
        if is_out && !line.trim().is_empty() {
            out.push_str("# ");
        }
        out.push_str(line);
        out.push('\n');
    }
    (out, left_out)
}
