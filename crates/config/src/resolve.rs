//! One run of the sections over a tree, or over nothing.

use std::fmt;

use crate::diagnostic::{Diagnostics, Report, Severity};
use crate::era::Era;
use crate::expand::join;
use crate::load::Loaded;
use crate::node::{Map, Node, Value};
use crate::place::{Origin, Place};
use crate::setting::{Shape, Shown, Wrong, shorten};
use crate::suggest::{aliases, is_same, meant, needless};
use crate::table::Table;

/// Settings with everything that is to be said about them.
#[derive(Debug)]
pub struct Resolved<S> {
    settings: S,
    report: Report,
    differences: Vec<Difference>,
    effective: Effective,
    stand_ins: Vec<String>,
}

impl<S> Resolved<S> {
    /// The settings, whatever is wrong with them: what was wrong stands in as a default.
    pub fn settings(&self) -> &S {
        &self.settings
    }

    /// Every mistake, those of loading included.
    pub fn report(&self) -> &Report {
        &self.report
    }

    /// Adds to the report what turned out beside the text, about the key at this path of names.
    pub fn tell(
        &mut self,
        loaded: &Loaded,
        severity: Severity,
        path: &[&str],
        message: &str,
        hint: &str,
    ) {
        let message = format!("`{}` {message}", path.join("."));
        let mut found = Diagnostics::default();
        found.push(severity, loaded.place(path), message, hint);
        let all = self.report.iter().cloned().chain(found.0);
        self.report = Report::new(all.collect());
    }

    /// Paths of keys whose default stands in for what is written: that is wrong, or has the name of
    /// the key with a slip in it.
    pub fn stand_ins(&self) -> &[String] {
        &self.stand_ins
    }

    /// What this configuration makes RoadRunner do differently, in the order of the keys.
    pub fn differences(&self) -> &[Difference] {
        &self.differences
    }

    /// Every value that holds, and where it came from. Displays as YAML.
    pub fn effective(&self) -> &Effective {
        &self.effective
    }

    /// The settings.
    ///
    /// # Errors
    /// The report, when it holds an error: what was wrong would stand in as a default.
    pub fn into_settings(self) -> Result<S, Report> {
        if self.report.has_errors() {
            Err(self.report)
        } else {
            Ok(self.settings)
        }
    }
}

/// A key that RoadRunner reads or fills in differently.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The key's path.
    pub key: String,
    /// What holds here.
    pub here: String,
    /// What RoadRunner makes of it.
    pub there: String,
    /// The reason for ours.
    pub why: String,
}

/// `http.pool.queue_timeout: 30s; RoadRunner: 60s (a proxy should not give up before the 503)`
impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            key,
            here,
            there,
            why,
        } = self;
        write!(f, "{key}: {here}; RoadRunner: {there} ({why})")
    }
}

/// A key that has another value than before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The key's path.
    pub key: String,
    /// Whether a reload applies it, as its statement says.
    pub live: bool,
}

/// Every value that holds. Displays as YAML with each value's origin as a comment; loading that
/// text gives the same values, but for secrets, which are `***`.
#[derive(Clone, Debug, Default)]
pub struct Effective {
    pub(crate) records: Vec<Record>,
}

/// What one run collects.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) era: Era,
    pub(crate) diagnostics: Diagnostics,
    pub(crate) differences: Vec<Difference>,
    pub(crate) records: Vec<Record>,
    pub(crate) unknown: Vec<Unknown>,
    pub(crate) unknown_severity: Severity,
    pub(crate) stand_ins: Vec<String>,
    /// Over nothing: sections that may be absent are read all the same.
    pub(crate) describing: bool,
}

/// A statement that ran, in the order of the statements.
#[derive(Clone, Debug)]
pub(crate) enum Record {
    Section {
        path: String,
        sentence: &'static str,
    },
    Key(KeyRecord),
    /// Not acted on here, now or ever.
    Unused {
        path: String,
        /// `not used yet`, `without effect` or `passed on`.
        state: &'static str,
        why: &'static str,
        node: Option<Node>,
    },
    /// Another program reads what else is written in this section.
    PassedOn {
        section: String,
        sentence: &'static str,
    },
    /// The loader's own keys: their effect is in the tree already.
    Loading {
        path: &'static str,
        sentence: &'static str,
    },
}

#[derive(Clone, Debug)]
pub(crate) struct KeyRecord {
    pub(crate) path: String,
    pub(crate) sentence: &'static str,
    pub(crate) accepts: String,
    pub(crate) shape: Shape,
    pub(crate) default: DefaultShown,
    pub(crate) fallback: Option<&'static str>,
    /// RoadRunner has no such key.
    pub(crate) ours: bool,
    /// A reload applies it.
    pub(crate) live: bool,
    /// Its default and why ours is another.
    pub(crate) roadrunner: Option<(&'static str, &'static str)>,
    /// What it does with a written value, and why ours is not that.
    pub(crate) differs: Option<(&'static str, &'static str)>,
    pub(crate) not_yet: Option<&'static str>,
    /// Nothing that was written for it is shown.
    pub(crate) secret: bool,
    /// None when there is no value.
    pub(crate) shown: Option<Shown>,
    /// None when the default holds.
    pub(crate) origin: Option<Origin>,
}

#[derive(Clone, Debug)]
pub(crate) enum DefaultShown {
    None,
    Off,
    Value(Shown),
    Words(&'static str),
}

/// A key that nobody read.
#[derive(Debug)]
pub(crate) struct Unknown {
    pub(crate) place: Place,
    /// Path of the section it stands in; empty at the top.
    pub(crate) section: String,
    pub(crate) name: String,
    /// Its section takes none.
    pub(crate) is_error: bool,
    pub(crate) siblings: Vec<String>,
}

pub(crate) fn resolve<S>(
    loaded: &Loaded,
    unknown: Option<Severity>,
    statements: &dyn Fn(&mut Table<'_>) -> S,
) -> Resolved<S> {
    let mut run = Run::new(unknown.unwrap_or(Severity::Warning), loaded.compat.era);
    judge_version(loaded, &mut run);
    let settings = read(&mut run, Some(&loaded.root), &loaded.main, statements);
    if unknown.is_some() {
        tell_unknown(&mut run, statements);
    }
    if loaded.incomplete {
        // What seems to be missing may stand in the file that could not be read.
        run.diagnostics
            .0
            .retain(|d| d.place.line().is_some() || d.place.is_override());
        run.differences.clear();
    }
    let found = loaded.diagnostics.0.iter().cloned();
    let differences = loaded.differences.iter().cloned();
    Resolved {
        settings,
        report: Report::new(found.chain(run.diagnostics.0).collect()),
        differences: differences.chain(run.differences).collect(),
        effective: Effective {
            records: run.records,
        },
        stand_ins: run.stand_ins,
    }
}

/// Unknown keys told one by one. A file with more is not a configuration of ours, and each costs a
/// look through all names.
const MOST_UNKNOWN: usize = 100;

fn tell_unknown<S>(run: &mut Run, statements: &dyn Fn(&mut Table<'_>) -> S) {
    if run.unknown.is_empty() {
        return;
    }
    let known = described(statements, run.era);
    let severity = run.unknown_severity;
    for unknown in run.unknown.iter().take(MOST_UNKNOWN) {
        let message = format!("unknown key `{}`", unknown.path());
        // Whoever types one expects an effect; a file may be older than its server.
        let severity = if unknown.is_error || unknown.place.is_override() {
            Severity::Error
        } else {
            severity
        };
        run.diagnostics
            .push(severity, &unknown.place, message, &unknown.hint(&known));
        run.stand_ins.extend(unknown.meant());
    }
    if let Some(next) = run.unknown.get(MOST_UNKNOWN) {
        let message = format!("and {} more unknown keys", run.unknown.len() - MOST_UNKNOWN);
        run.diagnostics
            .push(severity, &next.place, message, "is this the right file?");
    }
}

/// The statements, run over nothing.
pub(crate) fn described<S>(statements: &dyn Fn(&mut Table<'_>) -> S, era: Era) -> Vec<Record> {
    let mut run = Run::new(Severity::Error, era);
    run.describing = true;
    read(&mut run, None, &Place::file(0, ""), statements);
    run.records
}

fn read<S>(
    run: &mut Run,
    map: Option<&Map>,
    place: &Place,
    statements: &dyn Fn(&mut Table<'_>) -> S,
) -> S {
    let mut table = Table::root(run, map, place.clone());
    table.loading_key(
        "version",
        "The version of the file format: `\"3\"`. `\"2\"`, or no version, is RoadRunner's older \
         format.",
    );
    table.loading_key(
        "include",
        "More files. Their values replace those of this file, key by key.",
    );
    table.loading_key(
        "envfile",
        "A file with variables, relative to this file's directory.",
    );
    let settings = statements(&mut table);
    table.finish();
    settings
}

impl Run {
    /// Who asks what a file is worth hears of it as of a mistake, and who serves it is warned.
    pub(crate) fn not_yet(&self) -> (Severity, &'static str) {
        match self.unknown_severity {
            Severity::Warning => (Severity::Warning, ""),
            Severity::Missing | Severity::Error => (
                Severity::Missing,
                "`pronghorn serve` warns and serves the rest; remove it, or leave this part to \
                 RoadRunner",
            ),
        }
    }

    pub(crate) fn tell_not_yet(&mut self, place: &Place, message: String) {
        let (severity, hint) = self.not_yet();
        self.diagnostics.push(severity, place, message, hint);
    }

    pub(crate) fn new(unknown_severity: Severity, era: Era) -> Self {
        Self {
            era,
            diagnostics: Diagnostics::default(),
            differences: Vec::new(),
            records: Vec::new(),
            unknown: Vec::new(),
            unknown_severity,
            stand_ins: Vec::new(),
            describing: false,
        }
    }
}

impl Unknown {
    fn path(&self) -> String {
        join(&self.section, &shorten(&self.name))
    }

    /// The path of the key beside it that is probably meant.
    fn meant(&self) -> Option<String> {
        let siblings: Vec<_> = self.siblings.iter().map(String::as_str).collect();
        meant(&self.name, &siblings).map(|near| join(&self.section, near))
    }

    /// The nearest name beside it, else the section that it belongs in, else all names there.
    fn hint(&self, known: &[Record]) -> String {
        let siblings: Vec<_> = self.siblings.iter().map(String::as_str).collect();
        if let Some(why) = needless(&self.name, &siblings) {
            return format!("remove it: {why}");
        }
        if let Some(near) = meant(&self.name, &siblings) {
            // Of an override there is no section to be seen.
            let is_bare = self.section.is_empty() || !self.place.is_override();
            let section = if is_bare { "" } else { &self.section };
            let point = if is_bare { "" } else { "." };
            return format!("did you mean `{section}{point}{near}`?");
        }
        let aliases = aliases(&self.name);
        let elsewhere = known.iter().map(Record::path).filter_map(|path| {
            let (section, name) = path.rsplit_once('.').unwrap_or(("", path));
            let last = |alias: &&str| alias.rsplit('.').next() == Some(name);
            (is_same(&self.name, name) || aliases.iter().any(last)).then_some((section, name))
        });
        match elsewhere.min_by_key(|(section, _)| self.steps_to(section)) {
            Some(("", name)) => format!("`{name}` stands at the top, in no section"),
            Some((section, name)) => format!("`{name}` belongs in `{section}`"),
            None => format!("known here: {}", self.siblings.join(", ")),
        }
    }

    /// Up from this section and down to another one.
    fn steps_to(&self, section: &str) -> usize {
        let names = |section: &'_ str| section.split('.').filter(|name| !name.is_empty()).count();
        let both = self.section.split('.').zip(section.split('.'));
        let shared = both.take_while(|(ours, theirs)| ours == theirs).count();
        names(&self.section) + names(section) - 2 * shared.min(names(section))
    }
}

impl Record {
    pub(crate) fn path(&self) -> &str {
        match self {
            Self::Section { path, .. } | Self::Unused { path, .. } => path,
            Self::Key(key) => &key.path,
            Self::PassedOn { section, .. } => section,
            Self::Loading { path, .. } => path,
        }
    }
}

/// `"3"`, `"2"`, `"2.7"` or nothing. RoadRunner insists on a text.
fn judge_version(loaded: &Loaded, run: &mut Run) {
    let differs = |here: &str, why: &str| Difference {
        key: "version".to_owned(),
        here: here.to_owned(),
        there: "refused".to_owned(),
        why: why.to_owned(),
    };
    let Some(node) = loaded.root.get("version").filter(|node| !node.is_blank()) else {
        if loaded.file.is_some() {
            run.differences
                .push(differs("read as version 2", "older files have none"));
        }
        return;
    };
    let major = node
        .text()
        .map(|text| text.split('.').next().unwrap_or_default().trim());
    if !matches!(major, Some("2" | "3")) {
        let mut wrong = Wrong::value(node);
        let given = wrong.pop().map_or_else(String::new, |wrong| wrong.given);
        run.diagnostics.error(
            &node.origin.place,
            format!("`version` is {given}; accepted: `\"3\"`, `\"2\"`, `\"2.7\"`"),
            "write `version: \"3\"`",
        );
    } else if matches!(&node.value, Value::Text(text) if !text.quoted) {
        run.differences
            .push(differs("accepted without quotes", "the meaning is clear"));
    }
}
