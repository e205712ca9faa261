//! `init --from`: configurations of other servers become one of ours, for the cases that
//! `docs/migration` shows. What has no counterpart, or was not understood, is named.
//!
//! Reads files and writes none. Each result is checked as the server would check it.

#![forbid(unsafe_code)]

mod access;
mod apache;
mod caddy;
mod clients;
mod directive;
mod draft;
mod handlers;
mod htaccess;
mod include;
mod limits;
mod nginx;
mod octane;
mod passwords;
mod php;
mod proof;
mod roadrunner;
mod spelling;
mod statements;
mod supervisord;
mod tree;
mod trial;
mod units;

use std::cell::RefCell;
use std::collections::HashSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use draft::Draft;
pub use htaccess::Closed;
use supervisord::SupervisedPrograms;
pub use tree::{one_line, yaml_path, yaml_text};

/// A longer file is no configuration.
const LONGEST: u64 = 4 << 20;

/// Whose configuration a file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Nginx,
    Fpm,
    Apache,
    Caddy,
    Octane,
    RoadRunner,
}

impl Kind {
    const fn name(self) -> &'static str {
        match self {
            Self::Nginx => "nginx",
            Self::Fpm => "php-fpm",
            Self::Apache => "Apache",
            Self::Caddy => "Caddy",
            Self::Octane => "Laravel Octane",
            Self::RoadRunner => "RoadRunner",
        }
    }

    fn of(path: &Path, text: &str) -> Self {
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .to_lowercase();
        let lines = || text.lines().map(str::trim);
        let ending = name.rsplit('.').next().unwrap_or_default();
        if ending == "yaml" || ending == "yml" {
            Self::RoadRunner
        } else if ending == "php" {
            Self::Octane
        } else if name.contains("caddyfile") || lines().any(|line| line.starts_with("php_server")) {
            Self::Caddy
        } else if lines().any(is_fpms) {
            Self::Fpm
        } else if name == ".htaccess" || lines().any(is_apaches) {
            Self::Apache
        } else {
            Self::Nginx
        }
    }
}

fn is_supervisors(text: &str) -> bool {
    let names = [
        "[program:",
        "[supervisord]",
        "[supervisorctl]",
        "[eventlistener:",
        "[fcgi-program:",
        "[include]",
    ];
    let mut lines = text.lines().map(str::trim);
    lines.any(|line| names.iter().any(|it| line.starts_with(it)))
}

fn is_fpms(line: &str) -> bool {
    let starts = [
        "pm.",
        "pm =",
        "php_admin_value[",
        "php_admin_flag[",
        "php_value[",
        "php_flag[",
    ];
    starts.iter().any(|it| line.starts_with(it)) || line == "[www]" || line == "[global]"
}

fn is_apaches(line: &str) -> bool {
    let first = line.split_whitespace().next().unwrap_or_default();
    let words = [
        "DocumentRoot",
        "RewriteEngine",
        "RewriteRule",
        "Listen",
        "SetEnv",
        "Alias",
        "ScriptAlias",
        "ServerName",
        "ServerRoot",
        "LoadModule",
        "Include",
        "IncludeOptional",
    ];
    let begins_block = |rest: &str| rest.starts_with(|c: char| c.is_ascii_alphabetic());
    line.strip_prefix('<').is_some_and(begins_block)
        || words.contains(&first)
        || first.starts_with("php_admin_")
        || ["Expires", "Redirect", "ErrorDocument"]
            .iter()
            .any(|it| first.starts_with(it))
}

/// A configuration of ours, and what has to be said of it.
#[derive(Debug)]
pub struct Converted {
    /// Of which servers the files are, in words.
    pub of: String,
    pub yaml: String,
    /// What limited who gets what, and is not in it.
    pub limits: Vec<String>,
    pub left_out: Vec<String>,
    pub notes: Vec<String>,
    /// Sites that do not answer as they did: their own routes were asked.
    pub lost: Vec<String>,
}

impl Converted {
    /// Whether a person has to look at it before it is served: a site does not answer, or a limit
    /// is not translated exactly.
    pub fn is_unsure(&self) -> bool {
        !self.limits.is_empty() || !self.lost.is_empty()
    }

    /// The text of the file, with what has to be known of it at the top. `from`: what it was made
    /// of.
    pub fn file(&self, from: &[PathBuf]) -> String {
        let names: Vec<_> = from.iter().map(|file| file.display().to_string()).collect();
        let mut text = format!("# From {}: {}\n", self.of, one_line(&names.join(", ")));
        if !self.limits.is_empty() {
            text.push_str(
                "#\n# WARNING: the rules below restricted access there and are not translated exactly.\n\
                 # Check each of them before you serve this file:\n",
            );
            for limit in &self.limits {
                _ = writeln!(text, "# - {}", one_line(limit)); // a String takes all
            }
            text.push_str("#\n");
        }
        for lost in &self.lost {
            _ = writeln!(text, "# WARNING, asked for its pages: {}", one_line(lost));
        }
        for left in &self.left_out {
            _ = writeln!(text, "# Left out, {}", one_line(left));
        }
        for note in &self.notes {
            _ = writeln!(text, "# Note: {}", one_line(note));
        }
        text.push_str(&self.yaml);
        text
    }
}

/// Reads files of other servers; those of nginx and php-fpm together make one.
///
/// # Errors
///
/// For a person: which file can't be read, or is none of these.
pub fn convert(files: &[PathBuf]) -> Result<Converted, String> {
    let wrong = RefCell::new(String::new());
    let (made, overlooked) = trial::with_overlooked(
        || make(files).map_err(|why| wrong.replace(why)).ok(),
        |made| (made.yaml, made.limits),
    );
    let mut made = made.ok_or_else(|| wrong.take())?;
    // One that was not translated for another reason is there already.
    let is_told = |it: &String, limits: &[String]| {
        let place = it.split(": `").next().unwrap_or(it);
        limits
            .iter()
            .any(|told| told.contains(&format!("{place}: ")))
    };
    let overlooked = overlooked.into_iter();
    let mut overlooked: Vec<_> = overlooked.filter(|it| !is_told(it, &made.limits)).collect();
    made.limits.append(&mut overlooked);
    Ok(made)
}

fn make(files: &[PathBuf]) -> Result<Converted, String> {
    let mut texts = Vec::new();
    for file in files {
        let text = read(file).map_err(|why| format!("`{}`: {why}", file.display()))?;
        texts.push((file, Kind::of(file, &text), text));
    }
    let mut programs = SupervisedPrograms::default();
    for (path, _, text) in texts.iter().filter(|(_, _, text)| is_supervisors(text)) {
        programs.read(path, text);
    }
    texts.retain(|(_, _, text)| !is_supervisors(text));
    let programs = programs.finish();
    if texts.is_empty() {
        return of_programs(programs);
    }
    // A pool belongs to a site, and so does a `.htaccess`: sites must be known first.
    texts.sort_by_key(|(path, kind, _)| (*kind == Kind::Fpm, is_htaccess(path)));
    let mut of: Vec<&str> = texts.iter().map(|(_, kind, _)| kind.name()).collect();
    of.dedup();
    let of = of.join(" and ");
    if !programs.tree.is_empty() && texts.iter().any(|(_, kind, _)| *kind == Kind::RoadRunner) {
        return Err("RoadRunner's file is a whole one: give it alone".to_owned());
    }
    if let [(path, Kind::RoadRunner, text)] = &texts[..] {
        let (yaml, left_out) = roadrunner::read(path, text);
        return Ok(Converted {
            of,
            yaml,
            limits: Vec::new(),
            left_out,
            notes: Vec::new(),
            lost: Vec::new(),
        });
    }
    let mut draft = Draft::default();
    read_all(&texts, &mut draft)?;
    htaccess::close_overridden(&mut draft);
    let has_root = draft.sites.iter().any(|site| site.root.is_some());
    let probes: Vec<_> = draft.sites.iter().filter_map(proof::Probe::of).collect();
    let mut draft = draft.finish()?;
    if !has_root {
        draft.note("no folder of scripts was found: write it as `http.pool.root`");
    }
    draft.left_out.extend(programs.left_out);
    draft.notes.extend(programs.notes);
    for told in [&mut draft.limits, &mut draft.left_out, &mut draft.notes] {
        // One statement may hold in several sites.
        let mut seen = HashSet::new();
        told.retain(|it| seen.insert(it.clone()));
    }
    draft.tree.merge_deep(programs.tree);
    let yaml = format!("version: \"3\"\n{}", draft.tree.to_yaml());
    // Without a root, a pool is not whole yet.
    if has_root && let Some(wrong) = draft::mistake(&yaml) {
        return Err(format!(
            "the result is no valid configuration: {wrong}\n\
             remove the statement that causes this from a copy of the file"
        ));
    }
    Ok(Converted {
        of,
        lost: proof::judge(&yaml, &probes),
        yaml,
        limits: draft.limits,
        left_out: draft.left_out,
        notes: draft.notes,
    })
}

/// A configuration of programs alone.
fn of_programs(programs: SupervisedPrograms) -> Result<Converted, String> {
    let yaml = format!("version: \"3\"\n{}", programs.tree.to_yaml());
    if let Some(wrong) = draft::mistake(&yaml) {
        return Err(format!(
            "the result is no valid configuration: {wrong}\n\
             remove the statement that causes this from a copy of the file"
        ));
    }
    Ok(Converted {
        of: "supervisord".to_owned(),
        yaml,
        limits: Vec::new(),
        left_out: programs.left_out,
        notes: programs.notes,
        lost: Vec::new(),
    })
}

fn read_all(texts: &[(&PathBuf, Kind, String)], draft: &mut Draft) -> Result<(), String> {
    let mut included = Vec::new();
    let mut parsed = Vec::new();
    for (path, kind, text) in texts {
        let file = draft.begin(path);
        let all = match kind {
            Kind::Nginx | Kind::Apache | Kind::Caddy => {
                let mut includes = include::Includes::new(*kind, path, text);
                let all = includes.statements(path, text, file, draft)?;
                included.append(&mut includes.included);
                all
            }
            Kind::Fpm | Kind::Octane => Vec::new(),
            Kind::RoadRunner => {
                let path = path.display();
                return Err(format!(
                    "`{path}`, RoadRunner's file is a whole one: give it alone"
                ));
            }
        };
        parsed.push((file, path, *kind, text, all));
    }
    // One that another includes stands there.
    let is_included = |path: &Path| path.canonicalize().is_ok_and(|it| included.contains(&it));
    parsed.retain(|(_, path, ..)| !is_included(path));
    draft.has_tls = parsed
        .iter()
        .any(|(_, _, kind, _, all)| *kind == Kind::Apache && apache::has_tls(all));
    for (file, path, kind, text, all) in parsed {
        draft.file = file;
        let has_root = draft.sites.iter().any(|site| site.root.is_some());
        draft.note_parameters(&all);
        match kind {
            Kind::Apache if is_htaccess(path) && has_root => {
                htaccess::read_file(path, text, draft)
                    .map_err(|why| format!("`{}`, {why}", path.display()))?;
            }
            Kind::Nginx => nginx::read(all, draft),
            Kind::Apache => apache::read(all, draft),
            Kind::Caddy => caddy::read(&all, draft),
            Kind::Fpm => nginx::read_fpm(text, draft),
            Kind::Octane | Kind::RoadRunner => octane::read(text, draft),
        }
    }
    Ok(())
}

fn is_htaccess(file: &Path) -> bool {
    file.file_name().is_some_and(|name| name == ".htaccess")
}

fn read(file: &Path) -> Result<String, String> {
    let metadata = std::fs::metadata(file).map_err(|error| error.to_string())?;
    if !metadata.is_file() {
        return Err("it is no file".to_owned());
    }
    if metadata.len() > LONGEST {
        return Err(format!("it has more than {} MB", LONGEST >> 20));
    }
    let bytes = std::fs::read(file).map_err(|error| error.to_string())?;
    String::from_utf8(bytes).map_err(|_| "it is no text in UTF-8".to_owned())
}

#[cfg(test)]
mod tests;
