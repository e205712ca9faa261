//! The files, for whoever looks at them.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::Report;

/// A report is not longer: the parts of one are bounded.
pub(crate) const LONGEST: u64 = 1 << 20;

/// The reports in a folder.
#[derive(Debug)]
pub struct Reports(PathBuf);

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

    /// All that can be read, the oldest first. Without a folder there are none.
    ///
    /// # Errors
    ///
    /// When the folder is there and can't be read.
    pub fn all(&self) -> io::Result<Vec<Report>> {
        let files = files(&self.0)?;
        Ok(files.iter().filter_map(|file| read(&file.path)).collect())
    }

    /// One by its ID, or the beginning of it that no other has; else those of the group of this
    /// name.
    ///
    /// # Errors
    ///
    /// When the folder is there and can't be read.
    pub fn find(&self, id: &str) -> io::Result<Vec<Report>> {
        let files = files(&self.0)?;
        let fits = files.iter().filter(|file| file.id().starts_with(id));
        let found: Vec<Report> = fits.filter_map(|file| read(&file.path)).collect();
        if !found.is_empty() {
            return Ok(found);
        }
        let all = files.iter().filter_map(|file| read(&file.path));
        Ok(all.filter(|report| report.group == id).collect())
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

/// The oldest first: their names begin with the time.
pub(crate) fn files(folder: &Path) -> io::Result<Vec<ReportFile>> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut files = Vec::new();
    for entry in entries {
        let entry = entry?;
        let path = entry.path();
        let is_report = path
            .extension()
            .is_some_and(|extension| extension == "json");
        // One may go meanwhile.
        if is_report && let Ok(about) = entry.metadata() {
            let size = about.len();
            files.push(ReportFile { path, size });
        }
    }
    files.sort_by(|one, other| one.path.cmp(&other.path));
    Ok(files)
}

/// None: it has gone, or is none.
fn read(path: &Path) -> Option<Report> {
    let size = fs::metadata(path).ok()?.len();
    if size > LONGEST {
        return None;
    }
    serde_json::from_slice(&fs::read(path).ok()?).ok()
}
