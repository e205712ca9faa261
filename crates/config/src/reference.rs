//! All keys as a page, from the statements that read them.

use std::fmt::{self, Write};

use crate::resolve::{DefaultShown, KeyRecord, Record, described};
use crate::setting::Shown;
use crate::table::Section;

/// Everything that can be written. Displays as Markdown: a heading and a table per section.
#[derive(Clone, Debug)]
pub struct Reference {
    records: Vec<Record>,
}

/// Runs the statements of `S` over nothing.
pub fn describe<S: Section>() -> Reference {
    Reference {
        records: described::<S>(),
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.section(f, "", "At the top of the file, in no section.")?;
        for record in &self.records {
            if let Record::Section { path, sentence } = record {
                self.section(f, path, sentence)?;
            }
        }
        Ok(())
    }
}

impl Reference {
    fn section(&self, f: &mut fmt::Formatter<'_>, section: &str, sentence: &str) -> fmt::Result {
        let mut rows = String::new();
        for record in &self.records {
            if let Some((in_section, row)) = row(record)
                && in_section == section
            {
                rows.push_str(&row);
            }
        }
        if section.is_empty() {
            writeln!(f, "## Top level\n\n{sentence}")?;
        } else {
            writeln!(f, "\n## `{section}`\n\n{sentence}")?;
        }
        if !rows.is_empty() {
            writeln!(
                f,
                "\n| key | accepted | default | in RoadRunner | |\n|---|---|---|---|---|"
            )?;
            f.write_str(&rows)?;
        }
        Ok(())
    }
}

/// The section a record stands in, and its row there; sections have none.
fn row(record: &Record) -> Option<(&str, String)> {
    let cells = match record {
        Record::Section { .. } => return None,
        Record::Key(key) => [
            key.accepts.clone(),
            default(key),
            roadrunner(key),
            sentence(key),
        ],
        Record::Unused { why, .. } => [String::new(), String::new(), String::new(), why.clone()],
        Record::Loading { sentence, .. } => [
            String::new(),
            String::new(),
            String::new(),
            (*sentence).to_owned(),
        ],
    };
    let path = match record {
        Record::Section { path, .. } | Record::Unused { path, .. } => path,
        Record::Key(key) => &key.path,
        Record::Loading { path, .. } => *path,
    };
    let (section, name) = path.rsplit_once('.').unwrap_or(("", path));
    let mut row = format!("| `{name}` |");
    for cell in cells {
        write!(row, " {} |", cell.replace('|', "\\|")).ok()?;
    }
    row.push('\n');
    Some((section, row))
}

fn default(key: &KeyRecord) -> String {
    let value = match &key.default {
        DefaultShown::None => String::new(),
        DefaultShown::Off => "off".to_owned(),
        DefaultShown::Words(_, words) => (*words).to_owned(),
        DefaultShown::Value(Shown::Map(pairs)) if pairs.is_empty() => "none".to_owned(),
        DefaultShown::Value(Shown::List(texts)) if texts.is_empty() => "none".to_owned(),
        DefaultShown::Value(shown) => format!("`{shown}`"),
    };
    match key.fallback {
        Some(other) => format!("`{other}`, else {value}"),
        None => value,
    }
}

fn roadrunner(key: &KeyRecord) -> String {
    let absent = key.ours.then(|| "no such key".to_owned());
    let default = key.roadrunner.map(|(value, _)| format!("default: {value}"));
    let differs = key.differs.map(|(there, _)| there.to_owned());
    let parts: Vec<String> = [absent, default, differs].into_iter().flatten().collect();
    parts.join("; ")
}

fn sentence(key: &KeyRecord) -> String {
    let mut text = key.sentence.to_owned();
    if let Some((_, why)) = key.roadrunner {
        write!(text, " Default: {why}.").ok();
    }
    if let Some((_, why)) = key.differs {
        write!(text, " Here: {why}.").ok();
    }
    if let Some(what) = key.not_yet {
        write!(text, " **Not used yet:** {what}.").ok();
    }
    text
}
