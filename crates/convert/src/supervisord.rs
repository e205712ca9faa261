//! Configurations of supervisord: each `[program:x]` becomes a program of `service`.
//!
//! The grammar is that of Python's `ConfigParser` as supervisord uses it: `;` and `#` begin a
//! comment at the start of a line, ` ;` anywhere, and a line that begins with a space continues the
//! one before.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use super::tree::{Tree, Value, without_variables};

/// Files that `[include]` may name.
const MOST_INCLUDED: usize = 1_000;
/// Programs that one with a number in its keys may become.
const MOST_OF_ONE: u64 = 100;
/// Digits of a number that is filled with zeros.
const MOST_DIGITS: usize = 20;
/// The order of programs that have no `priority`; here it would be 0.
const PRIORITY: &str = "999";
/// A file that is never rotated has no size of its own here.
const NEVER_ROTATED: &str = "1000GB";
/// The time for a stop where nothing is written.
const STOP_WAIT: u64 = 10;
/// The server's own time for its stop, in seconds.
const GRACE: u64 = 30;

/// A statement `key=value` with its place.
#[derive(Clone, Debug)]
struct Setting {
    file: Rc<Path>,
    line: usize,
    key: String,
    value: String,
}

/// A section of a file, or of several ones.
#[derive(Debug)]
struct IniSection {
    file: Rc<Path>,
    line: usize,
    name: String,
    settings: Vec<Setting>,
}

impl Setting {
    /// Whether another one says the same; both have one key.
    fn means(&self, other: &Self) -> bool {
        let is_of_place = self.value.contains("%(here)s");
        self.value == other.value && (!is_of_place || self.file.parent() == other.file.parent())
    }
}

impl IniSection {
    /// The value of a key, if that is a number.
    fn number(&self, key: &str) -> Option<u64> {
        let found = self.settings.iter().rev().find(|it| it.key == key);
        found.and_then(|it| it.value.parse().ok())
    }
}

/// The programs of one or more files.
#[derive(Debug, Default)]
pub(super) struct SupervisedPrograms {
    pub(super) tree: Tree,
    pub(super) left_out: Vec<String>,
    pub(super) notes: Vec<String>,
    longest_stop: u64,
    /// In small letters: keys here are the same in both.
    names: HashSet<String>,
    /// Files that were read.
    taken: HashSet<PathBuf>,
    /// Programs without a `priority`, and whether others have one.
    unordered: Vec<String>,
    has_order: bool,
}

/// The program that is being read.
struct Program {
    name: String,
    count: u64,
    /// The number of its first process.
    first: u64,
}

impl SupervisedPrograms {
    /// Reads a file and those that it includes, as one: sections of the same name are one section.
    pub(super) fn read(&mut self, file: &Path, text: &str) {
        if !self.take(file) {
            return; // another one has included it
        }
        let mut all = Vec::new();
        for section in sections(file, text) {
            self.merge(&mut all, section);
        }
        let include = all.iter().position(|it| it.name == "include");
        if let Some(include) = include.map(|at| all.remove(at)) {
            self.include(file, &include, &mut all);
        }
        for section in &all {
            match section.name.split_once(':') {
                Some(("program", name)) => self.program(section, name.trim()),
                _ if section.name == "supervisord" => self.all_programs(section),
                _ => self.leave_out(&section.file, section.line, &format!("[{}]", section.name)),
            }
        }
    }

    /// Notes that a file is read; false if it was already.
    fn take(&mut self, file: &Path) -> bool {
        let real = file.canonicalize();
        self.taken.insert(real.unwrap_or_else(|_| file.to_owned()))
    }

    /// As Python's parser has it: of each key, the last value counts.
    fn merge(&mut self, all: &mut Vec<IniSection>, section: IniSection) {
        let IniSection {
            file,
            line,
            name,
            settings,
        } = section;
        let known = all.iter().position(|it| it.name == name);
        let at = known.unwrap_or_else(|| {
            all.push(IniSection {
                file,
                line,
                name,
                settings: Vec::new(),
            });
            all.len() - 1
        });
        let known = &mut all[at].settings;
        for setting in settings {
            if let Some(at) = known.iter().position(|it| it.key == setting.key) {
                let before = known.remove(at);
                if !before.means(&setting) {
                    let text = format!("{}={}", before.key, before.value);
                    self.leave_out(&before.file, before.line, &text);
                }
            }
            known.push(setting);
        }
    }

    /// The whole of it, with what holds for all programs.
    pub(super) fn finish(mut self) -> Self {
        if self.has_order {
            for name in &self.unordered {
                let order = Value::Bare(PRIORITY.to_owned());
                self.tree.map(&["service", name]).set("order", order);
            }
        }
        if self.longest_stop > GRACE {
            let time = format!("{}s", self.longest_stop);
            self.tree.map(&["endure"]).set("grace_period", time);
            self.notes.push(
                "`endure.grace_period` is as long as the longest `stopwaitsecs`: so long may a \
                 stop of the server take"
                    .to_owned(),
            );
        }
        self
    }

    fn leave_out(&mut self, file: &Path, line: usize, text: &str) {
        let text = format!("{}:{line}: `{text}`", file.display());
        if !self.left_out.contains(&text) {
            self.left_out.push(text);
        }
    }

    /// Reads the files that `file` includes, after all of its own sections.
    fn include(&mut self, file: &Path, section: &IniSection, all: &mut Vec<IniSection>) {
        for setting in &section.settings {
            let (written, line) = (&setting.file, setting.line);
            if setting.key != "files" {
                let text = format!("{}={}", setting.key, setting.value);
                self.leave_out(written, line, &text);
                continue;
            }
            let here = file.parent().unwrap_or_else(|| Path::new(""));
            for pattern in setting.value.split_whitespace() {
                let pattern = pattern.replace("%(here)s", &here.display().to_string());
                let pattern = here.join(pattern);
                let shown = format!("files = {}", pattern.display());
                let found = glob::glob(&pattern.to_string_lossy());
                let mut found: Vec<PathBuf> = match found {
                    Ok(found) => found.flatten().take(MOST_INCLUDED + 1).collect(),
                    Err(_) => Vec::new(),
                };
                found.sort();
                if found.is_empty() {
                    self.leave_out(written, line, &shown);
                }
                if found.len() > MOST_INCLUDED {
                    found.truncate(MOST_INCLUDED);
                    let text = format!("{shown}: more than {MOST_INCLUDED} files");
                    self.leave_out(written, line, &text);
                }
                for included in found {
                    match super::read(&included) {
                        Ok(text) => {
                            self.take(&included);
                            self.include_one(&included, &text, all);
                        }
                        Err(why) => {
                            let path = included.display();
                            self.leave_out(written, line, &format!("{path}: {why}"));
                        }
                    }
                }
            }
        }
    }

    fn include_one(&mut self, file: &Path, text: &str, all: &mut Vec<IniSection>) {
        for section in sections(file, text) {
            if section.name == "include" {
                // Files that it names are not taken by supervisord either.
                self.leave_out(&section.file, section.line, "[include]");
            } else {
                self.merge(all, section);
            }
        }
    }

    /// The user and the variables of all programs.
    fn all_programs(&mut self, section: &IniSection) {
        let program = Program {
            name: String::new(),
            count: 1,
            first: 0,
        };
        for setting in &section.settings {
            let Setting {
                file,
                line,
                key,
                value,
            } = setting;
            match (key.as_str(), environment(value)) {
                // As root, each program says so itself.
                ("user", _) if value != "root" => {
                    _ = self.tree.map(&["server"]).set("user", value.as_str());
                }
                ("environment", Some(pairs)) => {
                    let mut keys = Tree::default();
                    self.variables(pairs, &program, (file, *line), &mut keys);
                    self.tree.map(&["server"]).merge(keys);
                }
                _ => self.leave_out(file, *line, &format!("{key}={value}")),
            }
        }
    }

    /// A number of the process in another key than the command makes each process a program.
    fn program(&mut self, section: &IniSection, name: &str) {
        let count = section.number("numprocs").unwrap_or(1);
        let names_process =
            |it: &Setting| !may_number(&it.key) && it.value.contains("%(process_num)");
        if count <= 1 || count > MOST_OF_ONE || !section.settings.iter().any(names_process) {
            return self.one_program(section, name, name);
        }
        let first = section.number("numprocs_start").unwrap_or(0);
        for number in first..first.saturating_add(count) {
            let settings = section.settings.iter();
            let mut settings: Vec<Setting> = settings
                .filter(|it| !["numprocs", "numprocs_start"].contains(&&*it.key))
                .cloned()
                .collect();
            settings.push(Setting {
                file: section.file.clone(),
                line: section.line,
                key: "numprocs_start".to_owned(),
                value: number.to_string(),
            });
            let one = IniSection {
                file: section.file.clone(),
                line: section.line,
                name: section.name.clone(),
                settings,
            };
            self.one_program(&one, name, &format!("{name}-{number}"));
        }
    }

    #[expect(clippy::too_many_lines, reason = "one arm for each key of supervisord")]
    fn one_program(&mut self, section: &IniSection, name: &str, own: &str) {
        let own = self.name(section, own);
        let get = |key: &str| {
            let mut settings = section.settings.iter().rev();
            settings
                .find(|it| it.key == key)
                .map(|it| it.value.as_str())
        };
        let count = section.number("numprocs").unwrap_or(1);
        let program = Program {
            name: name.to_owned(),
            count,
            first: section.number("numprocs_start").unwrap_or(0),
        };
        let mut keys = Tree::default();
        keys.set("command", ""); // first, whatever comes first there
        let mut stop_wait = STOP_WAIT;
        let mut output = Tree::default();
        let mut taken_by_group = false;
        // Defaults of supervisord that are others here.
        let restarts = get("autorestart")
            .unwrap_or("unexpected")
            .to_ascii_lowercase();
        keys.set(
            "restart",
            match restarts.as_str() {
                "unexpected" => "on-failure",
                it if is_true(it) => "always",
                _ => "no",
            },
        );
        keys.set("stop_signal", "SIGTERM");
        let has_stderr_file = !get("redirect_stderr").is_some_and(is_true)
            && (is_file(get("stderr_logfile")) || get("stderr_logfile") == Some("NONE"))
            && get("stdout_logfile") != get("stderr_logfile");
        for setting in &section.settings {
            let Setting {
                file,
                line,
                key,
                value,
            } = setting;
            let expanded = program.expand(value, file);
            // Too many processes to make each of them a program.
            if !may_number(key) && expanded.as_ref().is_some_and(|it| it.has_index) {
                self.leave_out(file, *line, &format!("{key}={value}"));
                continue;
            }
            let number = value.parse::<u64>();
            let is_taken = match (key.as_str(), &expanded) {
                ("command", Some(command)) => {
                    keys.set("command", command.clone());
                    true
                }
                ("numprocs", _) if count <= 1 => true,
                ("numprocs", _) => {
                    keys.set("process_num", count);
                    true
                }
                ("process_name" | "autorestart" | "redirect_stderr", _) => true,
                // It stands in the command, where that names the number.
                ("numprocs_start", _) => number.is_ok(),
                ("directory", Some(text)) => {
                    keys.set("directory", text.as_value());
                    true
                }
                ("user", Some(text)) => {
                    keys.set("user", text.as_value());
                    true
                }
                ("autostart", _) => {
                    if !is_true(value) {
                        keys.set("autostart", false);
                    }
                    true
                }
                ("exitcodes", _) => {
                    let codes: Result<Vec<u8>, _> =
                        value.split(',').map(|it| it.trim().parse()).collect();
                    match codes {
                        Ok(codes) if codes != [0] => {
                            let codes = codes.iter().map(|code| Value::Bare(code.to_string()));
                            keys.set("exit_codes", Value::List(codes.collect()));
                            true
                        }
                        codes => codes.is_ok(),
                    }
                }
                ("startsecs", _) => match number {
                    Ok(1) => true,
                    Ok(seconds) => {
                        keys.set("start_time", format!("{seconds}s"));
                        true
                    }
                    Err(_) => false,
                },
                ("startretries", _) => match number {
                    Ok(tries) => {
                        keys.set("max_failures", tries.saturating_add(1));
                        true
                    }
                    Err(_) => false,
                },
                ("stopsignal", _) => {
                    let signal = value.to_ascii_uppercase();
                    let signal = signal.strip_prefix("SIG").unwrap_or(&signal);
                    keys.set("stop_signal", format!("SIG{signal}"));
                    true
                }
                ("stopwaitsecs", _) => match number {
                    Ok(seconds) => {
                        stop_wait = seconds.max(1);
                        true
                    }
                    Err(_) => false,
                },
                ("stopasgroup", _) => {
                    taken_by_group = is_true(value);
                    true
                }
                // All that a process has started is always killed with it.
                ("killasgroup", _) => true,
                ("umask", _) => {
                    keys.set("umask", value.clone());
                    true
                }
                ("priority", _) => match value.parse::<i32>() {
                    Ok(999) => true,
                    Ok(order) => {
                        keys.set("order", Value::Bare(order.to_string()));
                        true
                    }
                    Err(_) => false,
                },
                ("environment", _) => match environment(value) {
                    Some(pairs) => {
                        self.variables(pairs, &program, (file, *line), &mut keys);
                        true
                    }
                    None => false,
                },
                // A stream without a file of its own goes where the other stream goes.
                (key, _) if key.starts_with("stderr_logfile") && !has_stderr_file => true,
                ("stderr_logfile", Some(path))
                    if is_file(get("stderr_logfile")) && is_file(get("stdout_logfile")) =>
                {
                    output.set("stderr_file", path.as_value());
                    true
                }
                ("stderr_logfile_maxbytes", _) => {
                    get("stdout_logfile_maxbytes").unwrap_or("50MB") == value
                }
                ("stderr_logfile_backups", _) => {
                    get("stdout_logfile_backups").unwrap_or("10") == value
                }
                (key, expanded) if key.starts_with("stdout_") => {
                    let expanded = expanded.as_ref().map(|it| it.text.as_str());
                    take_output(key, value, expanded, &mut output)
                }
                _ => false,
            };
            if !is_taken {
                self.leave_out(file, *line, &format!("{key}={value}"));
            }
        }
        keys.set("stop_timeout", format!("{stop_wait}s"));
        self.longest_stop = self.longest_stop.max(stop_wait);
        if !taken_by_group {
            keys.set("stop_group", false);
        }
        if output.get("file").is_some() {
            keys.set("output", output);
        }
        // The command that it has was left out, or it has none.
        if keys.get("command") == Some(&Value::from("")) {
            let text = format!("[{}]: no command", section.name);
            return self.leave_out(&section.file, section.line, &text);
        }
        if keys.get("order").is_some() {
            self.has_order = true;
        } else {
            self.unordered.push(own.clone());
        }
        self.tree.map(&["service"]).set(&own, keys);
    }

    /// The key of a program: keys have no dots, and no two programs have one.
    fn name(&mut self, section: &IniSection, name: &str) -> String {
        /// `pronghorn programs` takes it for all programs.
        const ALL: &str = "all";
        let base = match name {
            "" => "program".to_owned(),
            name => name.replace('.', "-"),
        };
        let (mut own, mut number) = (base.clone(), 2_u64);
        while own == ALL || !self.names.insert(own.to_lowercase()) {
            own = format!("{base}-{number}");
            number += 1;
        }
        if own != base {
            self.notes.push(format!(
                "`[{}]` of {}:{} is the program `{own}`: `{base}` is the name of another one, or \
                 means all",
                section.name,
                section.file.display(),
                section.line
            ));
        }
        own
    }

    fn variables(
        &mut self,
        pairs: Vec<(String, String)>,
        program: &Program,
        (file, line): (&Path, usize),
        keys: &mut Tree,
    ) {
        for (name, value) in pairs {
            match program.expand(&value, file) {
                Some(value) => {
                    keys.map(&["env"]).set(&name, value.as_value());
                }
                None => self.leave_out(file, line, &format!("environment={name}={value}")),
            }
        }
    }
}

/// Whether the number of a process may stand in a key of all processes.
fn may_number(key: &str) -> bool {
    ["command", "process_name"].contains(&key)
}

/// Whether the value of a key is the path of a file.
fn is_file(value: Option<&str>) -> bool {
    let is_word = |it: &str| ["AUTO", "NONE", "syslog"].contains(&it) || it.starts_with("/dev/");
    value.is_some_and(|it| !is_word(it))
}

/// Takes a key of the file of output; false where it means nothing here.
fn take_output(key: &str, value: &str, expanded: Option<&str>, output: &mut Tree) -> bool {
    match (key, expanded) {
        ("stdout_logfile", Some("AUTO" | "syslog")) => true,
        ("stdout_logfile", Some("NONE") | None) => false,
        ("stdout_logfile", Some(path)) => {
            if !path.starts_with("/dev/") {
                output.set("file", Value::Expanded(path.to_owned()));
            }
            true
        }
        ("stdout_logfile_maxbytes", _) => {
            match value {
                "50MB" => {}
                "0" => _ = output.set("max_size", NEVER_ROTATED),
                size => _ = output.set("max_size", size.to_ascii_uppercase()),
            }
            true
        }
        ("stdout_logfile_backups", _) => {
            let backups = value.parse::<u64>();
            let is_number = backups.is_ok();
            if let Ok(backups) = backups {
                output.set("backups", backups);
            }
            is_number
        }
        _ => false,
    }
}

/// A value in which expressions are replaced.
#[derive(Clone, Debug)]
struct ExpandedText {
    text: String,
    /// Whether the number of the process stood in it.
    has_index: bool,
}

impl ExpandedText {
    fn as_value(&self) -> Value {
        Value::Expanded(self.text.clone())
    }
}

impl From<ExpandedText> for Value {
    /// A command: where the number of the process stands in it, a shell has to put it there.
    fn from(command: ExpandedText) -> Self {
        if !command.has_index {
            return Self::Expanded(command.text);
        }
        let parts = ["sh", "-c", &format!("exec {}", command.text)];
        let parts = parts.map(|part| Self::Expanded(part.to_owned()));
        Self::List(parts.into())
    }
}

impl Program {
    /// Replaces `%(…)s`. None for an expression that there is nothing for here.
    fn expand(&self, value: &str, file: &Path) -> Option<ExpandedText> {
        let mut out = String::new();
        let (mut rest, mut has_index) = (value, false);
        while let Some((before, after)) = rest.split_once('%') {
            out.push_str(&without_variables(before));
            if let Some(after) = after.strip_prefix('%') {
                out.push('%');
                rest = after;
                continue;
            }
            let (name, after) = after.strip_prefix('(')?.split_once(')')?;
            let digits = after.trim_start_matches(|c: char| c.is_ascii_digit());
            rest = digits.strip_prefix(['s', 'd'])?;
            match name {
                "program_name" | "group_name" => out.push_str(&without_variables(&self.name)),
                "here" => {
                    // The configuration may be read from another directory.
                    let absolute = std::path::absolute(file);
                    let absolute = absolute.as_deref().unwrap_or(file);
                    let here = absolute.parent().unwrap_or_else(|| Path::new(""));
                    out.push_str(&without_variables(&here.display().to_string()));
                }
                "numprocs" => out.push_str(&self.count.to_string()),
                "process_num" if self.count <= 1 => {
                    let width = after.len() - digits.len();
                    let width = after.get(..width).and_then(|it| it.parse().ok());
                    let width: usize = width.unwrap_or(0).min(MOST_DIGITS);
                    _ = write!(out, "{:0width$}", self.first);
                }
                "process_num" => {
                    match self.first {
                        0 => out.push_str("$$PRONGHORN_PROGRAM_INDEX"),
                        first => {
                            let sum = format!("$((PRONGHORN_PROGRAM_INDEX+{first}))");
                            out.push_str(&sum);
                        }
                    }
                    has_index = true;
                }
                _ => {
                    let variable = name.strip_prefix("ENV_")?;
                    out.extend(["${", variable, "}"]);
                }
            }
        }
        out.push_str(&without_variables(rest));
        Some(ExpandedText {
            text: out,
            has_index,
        })
    }
}

fn is_true(text: &str) -> bool {
    ["true", "yes", "on", "1"].contains(&text.trim().to_ascii_lowercase().as_str())
}

/// `A="1",B='2',C=3`. None for what is no such list.
fn environment(text: &str) -> Option<Vec<(String, String)>> {
    let mut pairs = Vec::new();
    let mut rest = text.trim();
    while !rest.is_empty() {
        let (name, after) = rest.split_once('=')?;
        let after = after.trim_start();
        let (value, left) = match after.chars().next() {
            Some(quote @ ('"' | '\'')) => after.get(1..)?.split_once(quote)?,
            _ => after.split_once(',').map_or((after, ""), |(value, _)| {
                (value, after.get(value.len()..).unwrap_or_default())
            }),
        };
        pairs.push((name.trim().to_owned(), value.trim().to_owned()));
        let left = left.trim_start();
        rest = match left.strip_prefix(',') {
            Some(more) => more.trim_start(),
            None if left.is_empty() => left,
            None => return None,
        };
    }
    let is_name = |name: &str| !name.is_empty() && !name.contains(char::is_whitespace);
    pairs.iter().all(|(name, _)| is_name(name)).then_some(pairs)
}

fn sections(file: &Path, text: &str) -> Vec<IniSection> {
    let file: Rc<Path> = file.into();
    let mut sections: Vec<IniSection> = Vec::new();
    for (line, written) in (1..).zip(text.lines()) {
        let is_continued = written.starts_with([' ', '\t']);
        let trimmed = written.trim();
        if trimmed.is_empty() || trimmed.starts_with([';', '#']) {
            continue;
        }
        let trimmed = match trimmed.find(" ;") {
            Some(comment) => trimmed.get(..comment).unwrap_or(trimmed).trim_end(),
            None => trimmed,
        };
        if let Some(name) = trimmed
            .strip_prefix('[')
            .and_then(|it| it.strip_suffix(']'))
        {
            sections.push(IniSection {
                file: file.clone(),
                line,
                name: name.trim().to_owned(),
                settings: Vec::new(),
            });
            continue;
        }
        let Some(section) = sections.last_mut() else {
            continue; // nothing before the first section counts
        };
        if is_continued && let Some(last) = section.settings.last_mut() {
            last.value.push(' ');
            last.value.push_str(trimmed);
            continue;
        }
        let (key, value) = match trimmed.find(['=', ':']) {
            Some(at) => trimmed.split_at(at),
            None => (trimmed, ""),
        };
        let value = value.get(1..).unwrap_or_default();
        section.settings.push(Setting {
            file: file.clone(),
            line,
            key: key.trim().to_ascii_lowercase(),
            value: value.trim().to_owned(),
        });
    }
    sections
}

#[cfg(test)]
mod tests {
    use pronghorn_testkit::Directory;

    use crate::convert;
    use crate::draft::mistake;

    /// The file of Laravel's documentation, and those of Symfony's and others'.
    const LARAVEL: &str = "[program:laravel-worker]\n\
        process_name=%(program_name)s_%(process_num)02d\n\
        command=php /srv/app/artisan queue:work sqs --sleep=3 --tries=3 --max-time=3600\n\
        autostart=true\nautorestart=true\nstopasgroup=true\nkillasgroup=true\nuser=www-data\n\
        numprocs=8\nredirect_stderr=true\nstdout_logfile=/srv/app/worker.log\nstopwaitsecs=3600\n";

    fn made(text: &str) -> (String, Vec<String>) {
        let directory = Directory::with(&[("a.conf", text)]);
        let made = convert(&[directory.join("a.conf")]).unwrap();
        assert_eq!(mistake(&made.yaml), None, "{}", made.yaml);
        let short = |line: &String| line.rsplit_once('/').map(|(_, it)| it.to_owned());
        let left = made.left_out.iter().filter_map(short).collect();
        (made.yaml, left)
    }

    #[test]
    fn a_worker_of_laravel_becomes_a_program() {
        let (yaml, left) = made(LARAVEL);
        for part in [
            "laravel-worker:",
            "command: \"php /srv/app/artisan queue:work sqs --sleep=3 --tries=3 --max-time=3600\"",
            "process_num: 8",
            "restart: always",
            "stop_signal: SIGTERM",
            "stop_timeout: \"3600s\"",
            "user: www-data",
            "file: /srv/app/worker.log",
            "grace_period: \"3600s\"",
        ] {
            assert!(yaml.contains(part), "{part}: {yaml}");
        }
        assert!(!yaml.contains("stop_group"), "{yaml}");
        assert_eq!(left, [""; 0]);
    }

    #[test]
    fn what_is_not_taken_is_named_with_its_line() {
        let (yaml, left) = made(
            "[supervisord]\nnodaemon=true\n\n[program:messenger]\n\
             command=php bin/console messenger:consume async --limit=%(process_num)d ; fast\n\
             numprocs=2\nstartsecs=0\nstartretries=10\npriority=5\nexitcodes=0,2\n\
             environment=A=\"1,2\",B='%(ENV_HOME)s/x',C=$d\nserverurl=AUTO\n\
             stderr_logfile=/tmp/e\nnumprocs_start=1\n[group:all]\nprograms=messenger\n",
        );
        for part in [
            "command: [sh, \"-c\", \"exec php bin/console messenger:consume async --limit=$((PRONGHORN_PROGRAM_INDEX+1))\"]",
            "restart: on-failure",
            "start_time: \"0s\"",
            "max_failures: 11",
            "order: 5",
            "exit_codes: [0, 2]",
            "stop_timeout: \"10s\"",
            "stop_group: false",
        ] {
            assert!(yaml.contains(part), "{part}: {yaml}");
        }
        for part in ["1,2", "${HOME}/x", "$$d"] {
            assert!(yaml.contains(part), "{part}: {yaml}");
        }
        assert_eq!(
            left,
            [
                "a.conf:2: `nodaemon=true`",
                "a.conf:12: `serverurl=AUTO`",
                "e`",
                "a.conf:15: `[group:all]`"
            ]
        );
    }

    #[test]
    fn what_supervisord_has_by_default_is_kept_where_it_is_other_here() {
        let (yaml, left) = made(
            "[supervisord]\nenvironment=APP_ENV=\"prod\"\nuser=www-data\numask=027\n\
             [program:queue]\ncommand=a\n[program:redis]\ncommand=b\npriority=1\n\
             stdout_logfile=/b.log\nstdout_logfile_maxbytes=0\n",
        );
        assert!(
            yaml.contains("order: 1\n") && yaml.contains("order: 999\n"),
            "{yaml}"
        );
        assert!(yaml.contains("max_size: \"1000GB\""), "{yaml}");
        assert!(
            yaml.contains("APP_ENV: prod") && yaml.contains("user: www-data"),
            "{yaml}"
        );
        assert_eq!(left, ["a.conf:4: `umask=027`"]);
        let (yaml, _) = made("[program:a]\ncommand=a\n[program:b]\ncommand=b\n");
        assert!(!yaml.contains("order"), "{yaml}");
    }

    #[test]
    fn each_process_that_has_files_of_its_own_is_a_program() {
        let of = |count: u64| {
            made(&format!(
                "[program:w]\ncommand=php w.php %(process_num)d\nnumprocs={count}\n\
                 numprocs_start=3\nstdout_logfile=/%(program_name)s_%(process_num)02d.log\n\
                 environment=N=\"%(process_num)d\"\n"
            ))
        };
        let (yaml, left) = of(2);
        for part in [
            "w-3:",
            "php w.php 3",
            "file: /w_03.log",
            "w-4:",
            "file: /w_04.log",
        ] {
            assert!(yaml.contains(part), "{part}: {yaml}");
        }
        assert_eq!(left, [""; 0]);
        let (yaml, left) = of(super::MOST_OF_ONE + 1);
        assert!(
            yaml.contains("process_num: 101") && !yaml.contains("file:"),
            "{yaml}"
        );
        assert_eq!(left.len(), 2, "{left:?}");
    }

    #[test]
    fn a_program_whose_command_is_not_understood_is_left_out() {
        let (yaml, left) =
            made("[program:a]\ncommand=a %(host_node_name)s\n[program:b]\ncommand=b\n");
        assert!(yaml.contains("b:") && !yaml.contains("a:"), "{yaml}");
        assert_eq!(
            left,
            [
                "a.conf:2: `command=a %(host_node_name)s`",
                "a.conf:1: `[program:a]: no command`"
            ]
        );
    }

    #[test]
    fn the_file_of_errors_is_taken() {
        let of = |more: &str| made(&format!("[program:a]\ncommand=sleep 1\n{more}\n"));
        for taken in [
            "stderr_logfile=AUTO\nstderr_logfile_maxbytes=0",
            "stderr_logfile=/dev/stderr\nstderr_logfile_maxbytes=0",
            "stdout_logfile=/x.log\nstderr_logfile=/x.log",
            "redirect_stderr=true\nstderr_logfile=/y.log",
        ] {
            let (yaml, left) = of(taken);
            assert_eq!(left, [""; 0], "{taken}");
            assert!(!yaml.contains("stderr_file"), "{yaml}");
        }
        let (yaml, left) = of(
            "stderr_logfile=/e/%(program_name)s.err\nstdout_logfile=/x.log\n\
             stderr_logfile_maxbytes=1MB\nstdout_logfile_maxbytes=1MB\nstderr_logfile_backups=10",
        );
        assert!(yaml.contains("stderr_file: /e/a.err"), "{yaml}");
        assert_eq!(left, [""; 0]);
        for (left_out, count) in [
            ("stderr_logfile=/y.log", 1),
            ("stdout_logfile=/x.log\nstderr_logfile=NONE", 1),
            ("stdout_logfile=NONE\nstderr_logfile=/y.log", 2),
            (
                "stdout_logfile=/x\nstderr_logfile=/y\nstderr_logfile_backups=2",
                1,
            ),
        ] {
            assert_eq!(of(left_out).1.len(), count, "{left_out}");
        }
    }

    #[test]
    fn included_files_are_read() {
        let directory = Directory::with(&[
            (
                "supervisord.conf",
                "[include]\nfiles = conf.d/*.conf none/*.ini\n",
            ),
            ("conf.d/a.conf", "[program:a]\ncommand=sleep 1\n"),
            (
                "conf.d/b.conf",
                "[program:b.c]\ncommand = sh -c 'a;\n   b'\n[program:none]\n",
            ),
        ]);
        let made = convert(&[directory.join("supervisord.conf")]).unwrap();
        assert!(
            made.yaml.contains("  a:") && made.yaml.contains("  b-c:"),
            "{}",
            made.yaml
        );
        assert!(made.yaml.contains("sh -c 'a; b'"), "{}", made.yaml);
        assert_eq!(made.left_out.len(), 2, "{:?}", made.left_out);
        assert_eq!(made.of, "supervisord");
    }

    #[test]
    fn sections_of_one_name_are_one_as_supervisord_has_it() {
        let directory = Directory::with(&[
            (
                "supervisord.conf",
                "[include]\nfiles = old/*.conf\n[program:w]\ncommand=first\nstartsecs=7\n\
                 [include]\nfiles = %(here)s/a/*.conf\n  b/*.conf a/w.conf\n",
            ),
            ("old/w.conf", "[program:old]\ncommand=old\n"),
            (
                "a/w.conf",
                "[program:w]\ncommand=second\ndirectory=%(here)s\n[include]\nfiles=x\n\
                 [supervisord]\nenvironment=A=\"1\"\n",
            ),
            (
                "b/w.conf",
                "[program:w]\ncommand=third\n[program:v]\ncommand=v\n",
            ),
        ]);
        let made = convert(&[directory.join("supervisord.conf")]).unwrap();
        let yaml = &made.yaml;
        // `a/w.conf` is read once more after `b/w.conf`.
        assert!(yaml.contains("command: second"), "{yaml}");
        assert!(
            yaml.contains("start_time: \"7s\"") && yaml.contains("/a\n"),
            "{yaml}"
        );
        assert!(yaml.contains("  v:") && yaml.contains("A: \"1\""), "{yaml}");
        assert!(!yaml.contains("w-2") && !yaml.contains("old:"), "{yaml}");
        let here = format!("{}/", directory.display());
        let left: Vec<String> = made
            .left_out
            .iter()
            .map(|it| it.replace(&here, ""))
            .collect();
        assert_eq!(
            left,
            [
                "supervisord.conf:2: `files=old/*.conf`",
                "supervisord.conf:4: `command=first`",
                "a/w.conf:4: `[include]`",
                "a/w.conf:2: `command=second`",
                "b/w.conf:2: `command=third`",
            ]
        );
    }

    #[test]
    fn programs_that_are_alike_are_all_there() {
        let text = "[program:w-2]\ncommand=one\n[program:w]\ncommand=two\nnumprocs=2\n\
                    environment=N=\"%(process_num)d\"\n[program:w-1]\ncommand=four\n\
                    [program:W.1]\ncommand=five\n[program:all]\ncommand=six\n";
        let directory = Directory::with(&[
            ("a.conf", text),
            ("b.conf", "[program:w-2]\ncommand=seven\n"),
            ("all.conf", "[include]\nfiles=a.conf\n"),
        ]);
        let files = ["all.conf", "a.conf", "b.conf"].map(|name| directory.join(name));
        let made = convert(&files).unwrap();
        let yaml = &made.yaml;
        for command in ["one", "two", "four", "five", "six", "seven"] {
            let count = if command == "two" { 2 } else { 1 };
            let part = format!("command: {command}\n");
            assert_eq!(yaml.matches(&part).count(), count, "{command}: {yaml}");
        }
        assert!(yaml.contains("  all-2:"), "{yaml}");
        assert_eq!(made.notes.len(), 4, "{:?}", made.notes);
        assert!(made.left_out.is_empty(), "{:?}", made.left_out);
        assert_eq!(mistake(yaml), None, "{yaml}");
    }
}
