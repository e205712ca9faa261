//! `init`: a first configuration for what a folder shows.

use std::fmt::Write as _;
use std::io;
use std::io::Write as _;
use std::path::Path;

use pronghorn_config::MAIN_FILES;

use crate::application::{Application, Relative, looked_for};
use crate::arguments::Arguments;
use crate::exit::{Exit, failed, misused, say};
use crate::folders;

const FILE: &str = "pronghorn.yaml";

pub(crate) fn run(arguments: &Arguments) -> Exit {
    let folder = folders::working(arguments, None);
    let shown = folder.display();
    if let Some(file) = MAIN_FILES.iter().find(|file| folder.join(file).exists()) {
        return misused(&format!(
            "`{file}` is in {shown} already, and is not replaced\nhint: `pronghorn check` validates it"
        ));
    }
    let Some(application) = Application::in_folder(&folder) else {
        return misused(&format!(
            "there is no application in {shown}: none of `{}`\n\
             hint: type it in the directory of the application, or name that by `-w DIR`",
            looked_for().join("`, `")
        ));
    };
    if let Err(error) = write_new(&folder.join(FILE), &configuration(&application)) {
        return failed(&format!(
            "`{FILE}` can't be written in {shown}: {error}\nhint: `namei -l {shown}` shows who may"
        ));
    }
    say(&format!(
        "wrote {} for {}, by `{}`\n`pronghorn check` validates it, `pronghorn serve` serves it\n",
        folder.join(FILE).display(),
        application.name,
        application.sign
    ));
    for other in &application.others {
        say(&format!(
            "not in it: the application of `{other}`, in the same directory\n"
        ));
    }
    if let Some(lacking) = application.lacks_packages() {
        say(&format!("{lacking}\n"));
    }
    Exit::Done
}

/// Never in the place of another one, nor through a link.
fn write_new(path: &Path, text: &str) -> io::Result<()> {
    let mut file = std::fs::File::create_new(path)?;
    file.write_all(text.as_bytes())
}

fn configuration(application: &Application) -> String {
    let Application { name, sign, .. } = application;
    let mut text = format!(
        "# {name}, found by `{sign}`. `pronghorn check` validates this file, `pronghorn config show`\n\
         # prints every key.\nversion: \"3\"\n\n"
    );
    let runs = application.relative();
    if let Relative::Worker { script, env, .. } = &runs {
        _ = writeln!(text, "server:\n  command: [php, {}]", quoted(script)); // a String takes all
        if let Some((name, value)) = env {
            _ = writeln!(text, "  env: {{{name}: '{value}'}}");
        }
        text.push('\n');
    }
    text.push_str("http:\n  address: 127.0.0.1:8080   # on all addresses: `:8080`\n");
    if let Relative::Worker {
        has_public: true, ..
    } = runs
    {
        text.push_str("  middleware: [static]      # files in `public` are sent without PHP\n  static: {dir: public}\n");
    }
    text.push_str("  pool:\n    # num_workers: 4         # by default one for each processor\n");
    if let Relative::Scripts { root, no_scripts } = &runs {
        _ = write!(
            text,
            "    mode: classic          # scripts run as behind php-fpm\n    root: {}\n",
            quoted(root)
        );
        if let Some(folder) = no_scripts {
            _ = writeln!(
                text,
                "    no_scripts: [{}]   # what is uploaded there never runs",
                quoted(folder)
            );
        }
    }
    text.push_str(
        "\n# As root, workers need a user of their own:\n# server: {user: www-data}\n\
         # Records as JSON, for machines:\n# logs: {mode: production}\n",
    );
    text
}

/// As YAML; JSON's texts are YAML's.
fn quoted(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-/".contains(c);
    if text.chars().all(is_plain) && text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '.')
    {
        return text.to_owned();
    }
    serde_json::to_string(text).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_yaml_would_read_otherwise_is_quoted() {
        for (text, expected) in [
            ("public", "public"),
            (".", "."),
            ("a b", "\"a b\""),
            ("#x", "\"#x\""),
            ("8", "\"8\""),
            ("a: b", "\"a: b\""),
        ] {
            assert_eq!(quoted(text), expected);
        }
    }
}
