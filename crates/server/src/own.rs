//! Which files on the disk are the server's own, so that no client gets them: what the
//! configuration was read from, and what it names to be written or kept secret.

use std::path::{Path, PathBuf};

use pronghorn_config::{Loaded, Map, Node, Value};

/// Keys, wherever they stand, whose values are files of TLS. Other sections have a `key` as well,
/// so a file has to be there.
const OF_TLS: [&str; 3] = ["key", "cert", "root_ca"];
/// The same for logs and passwords, which need not be there yet.
const OF_OTHERS: [&str; 3] = ["output", "log_output", "user_file"];

/// Absolute paths. `here` is where the configuration's own path begins, `folder` where those in it
/// do.
pub fn own_files(loaded: &Loaded, here: &Path, folder: &Path) -> Vec<PathBuf> {
    let mut own: Vec<PathBuf> = loaded.files.iter().map(|file| here.join(file)).collect();
    named(loaded.root(), folder, &mut own);
    own
}

fn named(map: &Map, folder: &Path, own: &mut Vec<PathBuf>) {
    for entry in &map.entries {
        let is = |keys: &[&str]| keys.iter().any(|key| entry.name.eq_ignore_ascii_case(key));
        let (of_tls, of_others) = (is(&OF_TLS), is(&OF_OTHERS));
        let mut add = |text: &str| {
            let path = folder.join(text);
            if !text.is_empty() && (of_others || of_tls && path.is_file()) {
                own.push(path);
            }
        };
        match &entry.node.value {
            Value::Map(map) => named(map, folder, own),
            Value::List(items) => {
                items.iter().filter_map(Node::text).for_each(&mut add);
                for item in items {
                    if let Value::Map(map) = &item.value {
                        named(map, folder, own);
                    }
                }
            }
            // `-o` writes a list with commas.
            Value::Text(text) => text.text.split(',').map(str::trim).for_each(add),
            Value::Null => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use pronghorn_config::{Input, load};
    use pronghorn_testkit::Directory;

    use super::*;

    #[test]
    fn what_a_configuration_names_is_found() {
        let files = ["tls/key.pem", "tls/cert.pem", "users", "broker.pem"];
        let directory = Directory::with(&files.map(|file| (file, "")));
        let cert = directory.join("tls/cert.pem");
        let yaml = format!(
            "http:\n  ssl: {{key: tls/key.pem, cert: {}}}\n  static: {{dir: tls}}\n  rate_limit: {{key: ip}}\n  routes: [{{basic_auth: {{user_file: users}}}}]\n\
             logs:\n  output: [stderr, app.log]\n  channels: {{access: {{output: access.log}}}}\n\
             jobs: {{pipelines: {{a: {{tls: [{{key: broker.pem}}]}}}}}}\n",
            cert.display()
        );
        let mut input = Input::from_text("conf/pronghorn.yaml", yaml);
        input.overrides = vec!["logs.file_logger_options.log_output=rotated.log".to_owned()];
        let mut own = own_files(&load(&input), Path::new("/here"), &directory);
        own.retain(|path| !path.ends_with("stderr"));
        let expected = [
            "tls/key.pem",
            "tls/cert.pem",
            "users",
            "app.log",
            "access.log",
            "broker.pem",
            "rotated.log",
        ];
        let mut expected: Vec<_> = expected.iter().map(|file| directory.join(file)).collect();
        expected.insert(0, "/here/conf/pronghorn.yaml".into());
        own.sort();
        expected.sort();
        assert_eq!(own, expected);
    }
}
