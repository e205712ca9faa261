//! The files, for whoever looks at them.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use pronghorn_base::{kind_of, read_plain};
use serde::Serialize;

use super::Report;

/// A report is not longer: the parts of one are bounded.
pub(crate) const LONGEST: u64 = 1 << 20;

/// The reports in a folder.
#[derive(Debug)]
pub struct Reports(PathBuf);

/// What was found in the folder.
#[derive(Debug, Default)]
pub struct Found {
    /// The oldest first.
    pub reports: Vec<Report>,
    /// What has the name of a report and is none, and why.
    pub others: Vec<String>,
}

/// Reports with the same cause.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Group {
    /// How many there are.
    pub reports: usize,
    /// The last one.
    pub last: Report,
}

impl Reports {
    pub const fn new(folder: PathBuf) -> Self {
        Self(folder)
    }

    pub fn folder(&self) -> &Path {
        &self.0
    }

    /// All that can be read. Without a folder there are none.
    ///
    /// # Errors
    ///
    /// When the folder is there and can't be read.
    pub fn all(&self) -> io::Result<Found> {
        let Files { files, others } = files(&self.0)?;
        Ok(read(&files, others))
    }

    /// One by its ID, or the beginning of it that no other has; else those of the group of this
    /// name.
    ///
    /// # Errors
    ///
    /// When the folder is there and can't be read.
    pub fn find(&self, id: &str) -> io::Result<Found> {
        let Files { mut files, others } = files(&self.0)?;
        if files.iter().any(|file| file.id().starts_with(id)) {
            files.retain(|file| file.id().starts_with(id));
            return Ok(read(&files, others));
        }
        let mut found = read(&files, others);
        found.reports.retain(|report| report.group == id);
        Ok(found)
    }
}

/// By cause, the one that came last first.
pub fn groups(reports: &[Report]) -> Vec<Group> {
    let mut counts: HashMap<&str, usize> = HashMap::new();
    for report in reports {
        *counts.entry(&report.group).or_default() += 1;
    }
    let last_first = reports.iter().rev();
    let groups = last_first.filter_map(|last| {
        let reports = counts.remove(&*last.group)?;
        let last = last.clone();
        Some(Group { reports, last })
    });
    groups.collect()
}

/// A file of a report.
#[derive(Debug)]
pub(crate) struct ReportFile {
    pub(crate) path: PathBuf,
    pub(crate) size: u64,
}

impl ReportFile {
    fn id(&self) -> &str {
        let stem = self.path.file_stem().and_then(|stem| stem.to_str());
        stem.unwrap_or_default()
    }
}

/// What has the name of a report.
#[derive(Debug, Default)]
pub(crate) struct Files {
    /// The oldest first: their names begin with the time.
    pub(crate) files: Vec<ReportFile>,
    /// What is none, and why.
    pub(crate) others: Vec<String>,
}

pub(crate) fn files(folder: &Path) -> io::Result<Files> {
    let mut found = Files::default();
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(found),
        Err(error) => return Err(error),
    };
    for entry in entries {
        let entry = entry?;
        let path = entry.path();
        let is_named_so = path
            .extension()
            .is_some_and(|extension| extension == "json");
        // One may go meanwhile.
        let Some(about) = entry.metadata().ok().filter(|_| is_named_so) else {
            continue;
        };
        let size = about.len();
        match kind_of(about.file_type()) {
            Some(kind) => found.others.push(other(&path, &format!("is {kind}"))),
            None if size > LONGEST => found.others.push(other(&path, "is too long")),
            None => found.files.push(ReportFile { path, size }),
        }
    }
    found.files.sort_by(|one, other| one.path.cmp(&other.path));
    found.others.sort();
    Ok(found)
}

fn other(path: &Path, why: &str) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    format!("`{}` {why}", name.escape_debug())
}

fn read(files: &[ReportFile], others: Vec<String>) -> Found {
    let reports = Vec::with_capacity(files.len());
    let mut found = Found { reports, others };
    for ReportFile { path, .. } in files {
        let read = match read_plain(path, LONGEST) {
            Ok(text) => serde_json::from_slice(&text).map_err(io::Error::from),
            Err(error) => Err(error),
        };
        match read {
            Ok(report) => found.reports.push(report),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {} // it has made room
            Err(error) => found
                .others
                .push(other(path, &format!("can't be read: {error}"))),
        }
    }
    found
}
