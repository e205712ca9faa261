//! All keys as a page, from the statements that read them.

use std::fmt::{self, Write};

use crate::era;
use crate::resolve::{DefaultShown, KeyRecord, Record, described};
use crate::setting::Shown;
use crate::table::{Section, Table};

/// Everything that can be written. Displays as Markdown: a heading and a table per section.
#[derive(Clone, Debug)]
pub struct Reference {
    records: Vec<Record>,
}

/// Runs the statements of `S` over nothing.
pub fn describe<S: Section>() -> Reference {
    describe_with(S::read)
}

/// As [`describe`], for sections that are not known before the program runs.
pub fn describe_with<S>(read: impl Fn(&mut Table<'_>) -> S) -> Reference {
    Reference {
        records: described(&read, era::DEFAULT),
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("## Top level\n\nKeys that are not in a section.\n")?;
        self.keys(f, "")?;
        for record in &self.records {
            if let Record::Section { path, sentence } = record {
                write!(f, "\n## `{path}`\n\n{sentence}\n")?;
                self.keys(f, path)?;
            }
        }
        Ok(())
    }
}

impl Reference {
    /// The paths of all keys, in the order in which they are read.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        self.records.iter().filter_map(|record| match record {
            Record::Key(key) => Some(key.path.as_str()),
            _ => None,
        })
    }

    /// The path of each key, and whether a reload applies it.
    pub fn reloads(&self) -> impl Iterator<Item = (&str, bool)> {
        self.records.iter().filter_map(|record| match record {
            Record::Key(key) => Some((key.path.as_str(), key.live)),
            _ => None,
        })
    }

    fn keys(&self, f: &mut fmt::Formatter<'_>, section: &str) -> fmt::Result {
        let mut rows = String::new();
        let mut unused = [("not used yet", Vec::new()), ("without effect", Vec::new())];
        for record in &self.records {
            let path = record.path();
            let (in_section, name) = path.rsplit_once('.').unwrap_or(("", path));
            if in_section != section {
                continue;
            }
            match record {
                Record::Section { .. } | Record::PassedOn { .. } => {}
                Record::Key(key) => {
                    let cells = [
                        &key.accepts,
                        &default(key),
                        &(if key.live { "yes" } else { "" }).to_owned(),
                        &roadrunner(key),
                        &sentence(key),
                    ];
                    rows.push_str(&row(name, cells));
                }
                Record::Loading { sentence, .. } => {
                    let none = String::new();
                    rows.push_str(&row(
                        name,
                        [&none, &none, &none, &none, &(*sentence).to_owned()],
                    ));
                }
                Record::Unused { state, why, .. } => {
                    for (_, keys) in unused.iter_mut().filter(|(of, _)| of == state) {
                        keys.push(format!("`{name}` ({why})"));
                    }
                }
            }
        }
        if !rows.is_empty() {
            f.write_str(
                "\n| key | accepted | default | reload | in RoadRunner | |\n|---|---|---|---|---|---|\n",
            )?;
            f.write_str(&rows)?;
        }
        for record in &self.records {
            if let Record::PassedOn {
                section: of,
                sentence,
            } = record
                && of == section
            {
                write!(f, "\n{sentence}\n")?;
            }
        }
        for (state, keys) in unused {
            if !keys.is_empty() {
                write!(f, "\n{}: {}.\n", capital(state), keys.join(", "))?;
            }
        }
        Ok(())
    }
}

fn row(name: &str, cells: [&String; 5]) -> String {
    let cells = cells.map(|cell| cell.replace('|', "\\|"));
    format!("| `{name}` | {} |\n", cells.join(" | "))
}

fn default(key: &KeyRecord) -> String {
    let value = match &key.default {
        DefaultShown::None => String::new(),
        DefaultShown::Off => "off".to_owned(),
        DefaultShown::Words(words) => (*words).to_owned(),
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
        write!(
            text,
            " The default differs from RoadRunner's because {why}."
        )
        .ok();
    }
    if let Some((_, why)) = key.differs {
        write!(text, " The effect differs from RoadRunner's because {why}.").ok();
    }
    if let Some(what) = key.not_yet {
        write!(text, " **Not used yet:** {what}.").ok();
    }
    text
}

fn capital(text: &str) -> String {
    let mut chars = text.chars();
    let first = chars.next().map(|c| c.to_ascii_uppercase());
    first.into_iter().chain(chars).collect()
}
