//! Copies of the examples.

use std::path::Path;

use pronghorn_testkit::Site;

/// A copy of an example, for those that write into their folder, with ports of its own.
pub(crate) fn copy(name: &str) -> Site {
    let source = Site::example(name);
    let source = source.parent().expect("it lies in a folder");
    let site = Site::new();
    copy_folder(source, source, &site);
    site
}

fn copy_folder(root: &Path, folder: &Path, site: &Site) {
    let packages = concat!(env!("CARGO_MANIFEST_DIR"), "/../php");
    // What a person who tried it has left there.
    let forgotten = std::fs::read_to_string(root.join(".gitignore")).unwrap_or_default();
    for entry in std::fs::read_dir(folder).expect("it is a folder") {
        let path = entry.expect("it can be read").path();
        let name = path.strip_prefix(root).expect("it lies below");
        let name = name.to_str().expect("it is UTF-8");
        if forgotten
            .lines()
            .any(|line| line.strip_prefix('/') == Some(name))
        {
            continue;
        }
        if path.is_dir() {
            copy_folder(root, &path, site);
            continue;
        }
        let mut text = std::fs::read_to_string(&path).expect("it is a text");
        for up in ["/../../../php", "/../../php"] {
            text = text.replace(&format!("__DIR__ . '{up}"), &format!("'{packages}"));
        }
        let text = text
            .replace("\"../../php", &format!("\"{packages}"))
            .replace("address: 127.0.0.1:8080", "address: 127.0.0.1:0")
            .replace("tcp://127.0.0.1:6001", "unix://rpc.sock");
        site.write(name, &text);
    }
}
