//! `init`: a first configuration for what a folder shows, or from the configuration of another
//! server.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use pronghorn_config::MAIN_FILES;

use crate::application::{Application, FRONT, Relative, looked_for, missing_package};
use crate::arguments::Arguments;
use crate::directories;
use crate::exit::{Exit, failed, misused, say};
use pronghorn_convert::{convert, one_line, yaml_path, yaml_text};

const FILE: &str = "pronghorn.yaml";

pub(crate) fn run(arguments: &Arguments, from: &[PathBuf]) -> Exit {
    let folder = directories::working(arguments, None);
    let shown = folder.display();
    // One of RoadRunner's may stand beside the one that is made of it.
    let mut ours = MAIN_FILES
        .iter()
        .filter(|file| from.is_empty() || **file == FILE);
    if let Some(file) = ours.find(|file| folder.join(file).exists()) {
        return misused(&format!(
            "`{file}` is in {shown} already, and is not replaced\nhint: `pronghorn check` validates it"
        ));
    }
    if !from.is_empty() {
        return by_others(&folder, from);
    }
    let Some(application) = Application::in_folder(&folder) else {
        return misused(&format!(
            "there is no application in {shown}: none of `{}`\n\
             hint: type it in the directory of the application, or name that by `-w DIR`",
            looked_for().join("`, `")
        ));
    };
    if let Err(why) = write_new(&folder, &configuration(&application)) {
        return failed(&why);
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
    if let Some(missing) = missing_package(&folder) {
        say(&format!("{missing}\n"));
    }
    if let Some(closed) = application.closed() {
        if !closed.files.is_empty() {
            say(&format!(
                "closed as by `{}`: see `routes` and `no_scripts`\n",
                closed.files.join("`, `")
            ));
        }
        for text in &closed.told {
            say(&format!("warning: not in it: {}\n", one_line(text)));
        }
    }
    Exit::Done
}

/// `--from`: what other servers are told, in our words.
fn by_others(folder: &Path, from: &[PathBuf]) -> Exit {
    let converted = match convert(from) {
        Ok(converted) => converted,
        Err(why) => {
            let why: Vec<_> = why.lines().map(one_line).collect();
            return misused(&format!(
                "{}\nhint: `--from` takes a file of nginx, php-fpm, Apache, Caddy, RoadRunner, \
                 supervisord or Laravel Octane",
                why.join("\n")
            ));
        }
    };
    if let Err(why) = write_new(folder, &converted.file(from)) {
        return failed(&why);
    }
    say(&format!(
        "wrote {} from {}\n`pronghorn check` validates it, `pronghorn serve` serves it\n",
        folder.join(FILE).display(),
        converted.of
    ));
    let all = [
        ("warning: not in it: ", &converted.limits),
        ("left out, ", &converted.left_out),
        ("note: ", &converted.notes),
    ];
    for (what, texts) in all {
        for text in texts {
            say(&format!("{what}{}\n", one_line(text)));
        }
    }
    if !converted.is_unsure() {
        return Exit::Done;
    }
    for lost in &converted.lost {
        say(&format!("warning: {}\n", one_line(lost)));
    }
    say(&format!(
        "read the warnings in {FILE} before you serve it: exit code 3\n"
    ));
    Exit::Unsure
}

fn write_new(folder: &Path, text: &str) -> Result<(), String> {
    directories::write_new(&folder.join(FILE), text).map_err(|error| {
        let shown = folder.display();
        let hint = directories::disk_hint(folder, &error)
            .unwrap_or_else(|| format!("`namei -l {shown}` shows who may"));
        format!("`{FILE}` can't be written in {shown}: {error}\nhint: {hint}")
    })
}

pub(crate) fn configuration(application: &Application) -> String {
    let Application { name, sign, .. } = application;
    let mut text = format!(
        "# {name}, found by `{sign}`. `pronghorn check` validates this file, `pronghorn config show`\n\
         # prints every key. For completion in an editor, write `pronghorn config schema` to a file,\n\
         # and `# yaml-language-server: $schema=FILE` as the first line here.\n\
         version: \"3\"\n\n"
    );
    let runs = application.relative();
    if let Relative::Worker { script, env, .. } = &runs {
        _ = writeln!(text, "server:\n  command: [php, {}]", yaml_text(script)); // a String takes all
        if let Some((name, value)) = env {
            _ = writeln!(text, "  env: {{{name}: '{value}'}}");
        }
        text.push('\n');
    }
    text.push_str("http:\n  address: 127.0.0.1:8080   # on all addresses: `:8080`\n");
    let has_public = matches!(
        runs,
        Relative::Worker {
            has_public: true,
            ..
        }
    );
    let linked = application.linked();
    let closed = application.closed().cloned().unwrap_or_default();
    let list =
        |items: &mut dyn Iterator<Item = &str>| items.map(yaml_text).collect::<Vec<_>>().join(", ");
    let endings = closed.endings();
    let endings = list(&mut endings.iter().map(String::as_str));
    let middleware = application.middleware();
    _ = writeln!(text, "  middleware: [{}]", middleware.join(", "));
    if middleware.contains(&"static") {
        text.push_str("  static:                   # files are sent without PHP\n");
    }
    if has_public {
        text.push_str("    dir: public\n");
        if !endings.is_empty() {
            _ = writeln!(text, "    forbid: [{endings}]");
        }
    }
    if let Some((prefix, folder)) = linked {
        let folder = yaml_text(&folder);
        _ = writeln!(
            text,
            "    serve:                  # what visitors uploaded: sent, and never run"
        );
        let forbid = match &*endings {
            "" => String::new(),
            endings => format!(", forbid: [{endings}]"),
        };
        _ = writeln!(text, "      - {{prefix: {prefix}, root: {folder}{forbid}}}");
    }
    if let Relative::Worker { .. } = &runs {
        text.push_str(
            "  # pool:\n  #   num_workers: 4       # by default one for each processor, at least two\n  \
             #   warmup: [/]          # pages that only read: new workers answer them first\n",
        );
    }
    if let Relative::Scripts { root, rules } = &runs {
        _ = write!(
            text,
            "  pool:\n    # num_workers: 4         # by default one for each processor, at least two\n    \
             mode: classic          # scripts run as behind php-fpm\n    root: {}\n",
            yaml_text(root)
        );
        let mut no_scripts = rules.no_scripts.iter().chain(&closed.no_scripts).peekable();
        if no_scripts.peek().is_some() {
            let folders = list(&mut no_scripts.map(String::as_str));
            _ = writeln!(
                text,
                "    no_scripts: [{folders}]   # what lies there never runs"
            );
        }
        if closed.sends_nothing() {
            text.push_str("    forbid: [\"*\"]         # no file is sent\n");
        } else if !rules.forbid.is_empty() {
            text.push_str(
                "    forbid:                # files of the project that are not sent to visitors\n",
            );
            for item in rules.forbid {
                _ = writeln!(text, "      - {}", yaml_text(item));
            }
        }
        if application.has_front_pool() {
            let root = yaml_text(root);
            _ = writeln!(
                text,
                "  pools:\n    {FRONT}: {{mode: classic, root: {root}, forbid: [\"*\"]}}   # it \
                 sends no files"
            );
        }
    }
    let is_worker = matches!(runs, Relative::Worker { .. });
    let front = closed.front.iter().filter(|_| !is_worker);
    if !closed.routes.is_empty() || front.clone().count() > 0 {
        text.push_str("  routes:                  # what `.htaccess` files close\n");
        for (path, status) in &closed.routes {
            let path = yaml_path(path);
            _ = writeln!(text, "    - {{path: {path}, refuse: {status}}}");
        }
        for path in front {
            let path = yaml_path(path);
            let pool = if closed.sends_nothing() {
                String::new()
            } else {
                format!("pool: {FRONT}, ")
            };
            _ = writeln!(text, "    - {{path: {path}, {pool}scripts: front}}");
        }
    }
    text.push_str(
        "\n# As root, workers need a user of their own:\n# server: {user: www-data}\n\
         # Records as JSON, for machines:\n# logs: {mode: production}\n",
    );
    text
}
