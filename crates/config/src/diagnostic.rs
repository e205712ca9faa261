//! What is said to the person who wrote the configuration.

use std::fmt;

use crate::Place;

/// Whether the settings can be used all the same. Errors first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// It is asked for and not there; the rest can be used.
    Missing,
    /// Nothing starts with it.
    Error,
    /// What runs may not be what was meant.
    Warning,
}

/// One mistake, or one thing to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// Whether the settings can be used all the same.
    pub severity: Severity,
    /// Where.
    pub place: Place,
    /// What is wrong, with the key's path and the value given. One line.
    pub message: String,
    /// What to write instead, or what to do next.
    pub hint: Option<String>,
}

/// `error: .rr.yaml:7:15: …`, then a line `hint: …`. No line end after the last line.
impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let severity = match self.severity {
            Severity::Missing | Severity::Error => "error",
            Severity::Warning => "warning",
        };
        write!(f, "{severity}: {}: {}", self.place, self.message)?;
        match &self.hint {
            Some(hint) => write!(f, "\nhint: {hint}"),
            None => Ok(()),
        }
    }
}

/// Every diagnostic of one run, sorted by place. Displays as all of them, one line end after each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report(Vec<Diagnostic>);

impl Report {
    pub(crate) fn new(mut diagnostics: Vec<Diagnostic>) -> Self {
        diagnostics.sort_by(|a, b| (&a.place, a.severity).cmp(&(&b.place, b.severity)));
        diagnostics.dedup();
        Self(diagnostics)
    }

    /// All of them, by place.
    pub fn iter(&self) -> std::slice::Iter<'_, Diagnostic> {
        self.0.iter()
    }

    /// How many have this severity.
    pub fn count(&self, severity: Severity) -> usize {
        self.iter().filter(|d| d.severity == severity).count()
    }

    /// True when nothing may be started with these settings.
    pub fn has_errors(&self) -> bool {
        self.count(Severity::Error) > 0
    }

    /// True when what was asked for is done, as far as anybody knows.
    pub fn passes(&self) -> bool {
        !self.has_errors() && self.count(Severity::Missing) == 0
    }

    /// The same, the worst first: what is not there, what is wrong, what may be.
    #[must_use]
    pub fn worst_first(&self) -> Self {
        let mut sorted = self.0.clone();
        sorted.sort_by_key(|diagnostic| diagnostic.severity);
        Self(sorted)
    }

    /// True when there is nothing to say.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// `2 errors, 1 warning`, or `no mistakes`.
    pub fn summary(&self) -> String {
        let counted = |n: usize, word: &str| match n {
            0 => None,
            1 => Some(format!("1 {word}")),
            n => Some(format!("{n} {word}s")),
        };
        let parts: Vec<String> = [
            counted(
                self.count(Severity::Missing) + self.count(Severity::Error),
                "error",
            ),
            counted(self.count(Severity::Warning), "warning"),
        ]
        .into_iter()
        .flatten()
        .collect();
        if parts.is_empty() {
            "no mistakes".to_owned()
        } else {
            parts.join(", ")
        }
    }
}

impl<'a> IntoIterator for &'a Report {
    type Item = &'a Diagnostic;
    type IntoIter = std::slice::Iter<'a, Diagnostic>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.iter().try_for_each(|d| writeln!(f, "{d}"))
    }
}

/// The configuration cannot be used; `Display` is every mistake.
impl std::error::Error for Report {}

/// Where the steps of a run put what they find.
#[derive(Clone, Debug, Default)]
pub(crate) struct Diagnostics(pub(crate) Vec<Diagnostic>);

impl Diagnostics {
    pub(crate) fn error(&mut self, place: &Place, message: impl Into<String>, hint: &str) {
        self.push(Severity::Error, place, message.into(), hint);
    }

    pub(crate) fn warn(&mut self, place: &Place, message: impl Into<String>, hint: &str) {
        self.push(Severity::Warning, place, message.into(), hint);
    }

    /// An empty `hint` is none.
    pub(crate) fn push(&mut self, severity: Severity, place: &Place, message: String, hint: &str) {
        self.0.push(Diagnostic {
            severity,
            place: place.clone(),
            message,
            hint: (!hint.is_empty()).then(|| hint.to_owned()),
        });
    }
}
