//! Embeds the sources of the extension: every file of `ext/pronghorn` that a build needs, so that
//! no list has to be kept.

use std::fmt::Write as _;
use std::path::Path;
use std::{env, fs, io};

/// The stub is left out: where it is newer than its header, PHP's Makefile remakes the header with
/// a parser that it downloads.
const NEEDED: [&str; 3] = ["c", "h", "m4"];

fn main() -> io::Result<()> {
    let here = env::var("CARGO_MANIFEST_DIR").map_err(io::Error::other)?;
    let folder = Path::new(&here)
        .join("../../ext/pronghorn")
        .canonicalize()?;
    println!("cargo::rerun-if-changed={}", folder.display());
    let mut names = Vec::new();
    for entry in fs::read_dir(&folder)? {
        let path = entry?.path();
        let extension = path.extension().and_then(|extension| extension.to_str());
        if extension.is_some_and(|extension| NEEDED.contains(&extension)) {
            names.extend(
                path.file_name()
                    .map(|name| name.to_string_lossy().into_owned()),
            );
        }
    }
    names.sort();
    let mut list = String::from("&[\n");
    for name in names {
        let path = folder.join(&name).display().to_string();
        // Writing to a String cannot fail.
        _ = writeln!(list, "    ({name:?}, include_bytes!({path:?})),");
    }
    list.push_str("]\n");
    let out = env::var("OUT_DIR").map_err(io::Error::other)?;
    fs::write(Path::new(&out).join("sources.rs"), list)
}
