//! What fuzz targets and the tests of the corpus call.

use std::collections::BTreeMap;

use crate::{Disk, Input, Section, Severity, load};

/// Bytes as a configuration: parts apart by a line `%%` are the file, an included `a.yaml`, a file
/// of variables, and overrides one a line. Nothing may panic, and every diagnostic must have a
/// place. Where there is no error, the shown values must read back as the same values.
pub fn fuzz_load<S: Section>(data: &[u8]) {
    let mut parts = split(data);
    parts.resize(4, &[]);
    let [main, included, variables, overrides] = parts.as_slice() else {
        return;
    };
    let mut input = Input::from_text("fuzz.yaml", *main);
    if let Disk::Memory(files) = &mut input.disk {
        files.insert("a.yaml".into(), included.to_vec());
        files.insert(".env".into(), variables.to_vec());
    }
    input.dotenv = Some(".env".into());
    input.environment = BTreeMap::from([("SET".to_owned(), "1".to_owned())]);
    let overrides = String::from_utf8_lossy(overrides);
    input.overrides = overrides.lines().map(ToOwned::to_owned).collect();

    let resolved = load(&input).resolve::<S>(Severity::Error);
    for diagnostic in resolved.report() {
        let place = diagnostic.place.to_string();
        assert!(!place.is_empty(), "{diagnostic}");
        assert!(!diagnostic.message.contains('\n'), "{diagnostic}");
    }
    let shown = resolved.effective().to_string();
    if !resolved.report().has_errors() && !shown.contains("***") {
        let again =
            load(&Input::from_text("shown.yaml", shown.clone())).resolve::<S>(Severity::Error);
        assert!(!again.report().has_errors(), "{shown}\n{}", again.report());
        assert_eq!(values(&again.effective().to_string()), values(&shown));
    }
}

fn split(data: &[u8]) -> Vec<&[u8]> {
    let mut parts = Vec::new();
    let mut rest = data;
    let separator = b"\n%%\n";
    while let Some(at) = rest.windows(separator.len()).position(|w| w == separator) {
        let (part, after) = rest.split_at(at);
        parts.push(part);
        rest = after.get(separator.len()..).unwrap_or_default();
    }
    parts.push(rest);
    parts
}

/// Without comments, whose places are others, and without the gap before them.
fn values(shown: &str) -> Vec<&str> {
    shown
        .lines()
        .map(|line| {
            line.rsplit_once("  # ")
                .map_or(line, |(text, _)| text.trim_end())
        })
        .collect()
}
