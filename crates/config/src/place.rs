//! Where a value or a mistake is.

use std::fmt;
use std::sync::Arc;

use crate::setting::one_line;

/// A position in a file, a file as a whole, or a `-o` argument. Ordered as a report lists them:
/// files as they were read, then overrides as they were given.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    source: Source,
    /// From 1; 0 when the place is the source as a whole.
    line: u32,
    column: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Source {
    File { order: u16, name: Arc<str> },
    Override { number: u16, key: Arc<str> },
}

impl Place {
    /// The file as a whole: missing, unreadable, too large.
    pub(crate) fn file(order: u16, name: &str) -> Self {
        Self {
            source: Source::File {
                order,
                name: one_line(name).into(),
            },
            line: 0,
            column: 0,
        }
    }

    /// The `number`th `-o`, from 1. Only its key is kept: the value may be a secret.
    pub(crate) fn overriding(number: u16, key: &str) -> Self {
        Self {
            source: Source::Override {
                number,
                key: one_line(key).into(),
            },
            line: 0,
            column: 0,
        }
    }

    /// A position in the same file, both counted from 1, columns in characters.
    pub(crate) fn at(&self, line: usize, column: usize) -> Self {
        Self {
            source: self.source.clone(),
            line: u32::try_from(line).unwrap_or(u32::MAX),
            column: u32::try_from(column).unwrap_or(u32::MAX),
        }
    }

    pub(crate) fn is_override(&self) -> bool {
        matches!(self.source, Source::Override { .. })
    }

    /// Whether what stands here may be the value of a key of this name: an override also makes the
    /// sections above its key.
    pub(crate) fn may_set(&self, name: &str) -> bool {
        match &self.source {
            Source::File { .. } => true,
            Source::Override { key, .. } => {
                let last = key.rsplit('.').next().unwrap_or(key);
                let last = last.split('[').next().unwrap_or(last);
                last.trim().eq_ignore_ascii_case(name)
            }
        }
    }

    /// The file's name, or None for an override.
    pub fn file_name(&self) -> Option<&str> {
        match &self.source {
            Source::File { name, .. } => Some(name),
            Source::Override { .. } => None,
        }
    }

    /// From 1, or None for a file as a whole and for an override.
    pub fn line(&self) -> Option<u32> {
        (self.line > 0).then_some(self.line)
    }

    /// In characters from 1, or None as for [`Place::line`].
    pub fn column(&self) -> Option<u32> {
        (self.line > 0).then_some(self.column)
    }
}

/// `.rr.yaml:7:15`, `.rr.yaml` or `-o http.address`.
impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.source {
            Source::File { name, .. } if self.line == 0 => f.write_str(name),
            Source::File { name, .. } => write!(f, "{name}:{}:{}", self.line, self.column),
            Source::Override { key, .. } => write!(f, "-o {key}"),
        }
    }
}

/// Where a value came from: its place, and the variables that were put into it there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// Where it was written.
    pub place: Place,
    /// Names of the variables in it, in their order.
    pub variables: Vec<String>,
    /// Those of them that are not set and have no default.
    pub unset: Vec<String>,
}

impl Origin {
    pub(crate) fn new(place: Place) -> Self {
        Self {
            place,
            variables: Vec::new(),
            unset: Vec::new(),
        }
    }

    /// Of a part of a value that is written elsewhere.
    pub(crate) fn of_default() -> Self {
        Self::new(Place::file(0, "default"))
    }
}

/// `.rr.yaml:7`, `${PORT} in .rr.yaml:3` or `-o`.
impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, name) in self.variables.iter().enumerate() {
            let before = if i == 0 { "" } else { ", " };
            write!(f, "{before}${{{name}}}")?;
        }
        if !self.variables.is_empty() {
            f.write_str(" in ")?;
        }
        match (&self.place.source, self.place.line) {
            (Source::Override { .. }, _) => f.write_str("-o"),
            (Source::File { name, .. }, 0) => f.write_str(name),
            (Source::File { name, .. }, line) => write!(f, "{name}:{line}"),
        }
    }
}
