//! Effective values as YAML, each with its origin as a comment.

use std::borrow::Cow;
use std::collections::{BTreeSet, HashSet};
use std::fmt;

use crate::expand::escape;
use crate::node::{Node, Value};
use crate::resolve::{Change, DefaultShown, Effective, KeyRecord, Record};
use crate::secret;
use crate::setting::{Pair, Shown, shorten};

/// Comments stand in one column, but one long value does not push them all away.
const WIDEST: usize = 56;

impl fmt::Display for Effective {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines = lines(&self.records);
        let width = |line: &Line| line.text.chars().count();
        let widest = lines
            .iter()
            .map(width)
            .filter(|w| *w <= WIDEST)
            .max()
            .unwrap_or(0);
        for line in &lines {
            if line.comment.is_empty() {
                writeln!(f, "{}", line.text)?;
            } else {
                let gap = widest.saturating_sub(width(line)) + 2;
                writeln!(f, "{}{:gap$}# {}", line.text, "", line.comment)?;
            }
        }
        Ok(())
    }
}

impl Effective {
    /// Each key with its value, secrets hidden, and where it comes from.
    pub fn keys(&self) -> impl Iterator<Item = (&str, Option<Shown>, String)> {
        self.records.iter().filter_map(|record| match record {
            Record::Key(key) => Some((key.path.as_str(), key.value(), key.comment())),
            _ => None,
        })
    }

    /// The keys that have another value in `newer`, in the order of the keys there.
    pub fn changes(&self, newer: &Self) -> Vec<Change> {
        let (before, after) = (self.values(), newer.values());
        let here = after.iter().filter(|(key, value)| {
            let known = before.iter().find(|(known, _)| known.path == key.path);
            known.map(|(_, before)| before) != Some(value)
        });
        let gone = before
            .iter()
            .filter(|(key, _)| !after.iter().any(|(known, _)| known.path == key.path));
        let change = |(key, _): &(&KeyRecord, String)| Change {
            key: key.path.clone(),
            live: key.live,
        };
        here.chain(gone).map(change).collect()
    }

    /// What of `newer` a reload leaves as it is here: names of keys, and of a section that is new
    /// or gone its name alone.
    pub fn held(&self, newer: &Self) -> Vec<String> {
        let (here, there) = (self.sections(), newer.sections());
        let mut held: Vec<String> = Vec::new();
        for Change { key, .. } in self.changes(newer).iter().filter(|change| !change.live) {
            let mut above = key.match_indices('.').filter_map(|(end, _)| key.get(..end));
            let moved = above.find(|section| here.contains(section) != there.contains(section));
            let name = moved.unwrap_or(key);
            if !held.iter().any(|known| known == name) {
                held.push(name.to_owned());
            }
        }
        held
    }

    fn sections(&self) -> HashSet<&str> {
        let sections = self.records.iter().filter_map(|record| match record {
            Record::Section { path, .. } => Some(path.as_str()),
            _ => None,
        });
        sections.collect()
    }

    /// Each key with its value as text; one without a value is not there.
    fn values(&self) -> Vec<(&KeyRecord, String)> {
        let keys = self.records.iter().filter_map(|record| match record {
            Record::Key(key) => Some((key, key.value()?)),
            _ => None,
        });
        keys.map(|(key, shown)| (key, format!("{shown:?}")))
            .collect()
    }
}

struct Line {
    text: String,
    comment: String,
}

fn lines(records: &[Record]) -> Vec<Line> {
    let alive = sections_with_values(records);
    let mut lines = vec![Line {
        text: "version: \"3\"".to_owned(),
        comment: String::new(),
    }];
    // Where the lines of a list's item begin, until its dash is set.
    let mut item = None;
    for record in records {
        match record {
            Record::Loading { .. } | Record::PassedOn { .. } => {}
            Record::Section { path, .. } if path.ends_with(']') => {
                if alive.contains(path.as_str()) {
                    item = Some(lines.len());
                } else {
                    let (indent, _) = place(path);
                    lines.push(line(format!("{indent}- {{}}"), ""));
                }
            }
            Record::Section { path, .. } => {
                let (indent, name) = place(path);
                let off = if alive.contains(path.as_str()) {
                    ""
                } else {
                    "# "
                };
                lines.push(line(format!("{indent}{off}{name}:"), ""));
            }
            Record::Key(key) => key_lines(key, &mut lines),
            Record::Unused {
                path, state, node, ..
            } => {
                if let Some(node) = node {
                    let (indent, name) = place(path);
                    let comment = format!("{}, {state}", node.origin);
                    node_lines(&indent, &name, node, &comment, false, &mut lines);
                }
            }
        }
        if let Some(first) = item.and_then(|at| lines.get_mut(at)) {
            // An item's keys stand as deep as their path is long, which leaves room for the dash.
            let indent = first.text.len() - first.text.trim_start().len();
            first
                .text
                .replace_range(indent.saturating_sub(2)..indent, "- ");
            item = None;
        }
    }
    lines
}

/// A section or list without any would read back as null.
fn sections_with_values(records: &[Record]) -> BTreeSet<&str> {
    let mut alive = BTreeSet::new();
    for record in records {
        let mut path = match record {
            Record::Key(key) if key.value().is_some() => key.path.as_str(),
            Record::Unused {
                path,
                node: Some(_),
                ..
            } => path,
            _ => continue,
        };
        while let Some((section, _)) = path.rsplit_once('.') {
            alive.insert(section);
            if let Some((list, _)) = section.rsplit_once('[') {
                alive.insert(list);
            }
            path = section;
        }
    }
    alive
}

impl KeyRecord {
    fn value(&self) -> Option<Shown> {
        let off = || matches!(self.default, DefaultShown::Off).then(|| Shown::One("0".to_owned()));
        self.shown.clone().or_else(off)
    }

    fn comment(&self) -> String {
        let origin = match (&self.origin, &self.default) {
            (Some(origin), _) => origin.to_string(),
            (None, DefaultShown::Words(words)) => format!("default: {words}"),
            (None, DefaultShown::Off) => "default: off".to_owned(),
            (None, DefaultShown::Value(_)) => "default".to_owned(),
            (None, DefaultShown::None) => "not set".to_owned(),
        };
        match (self.not_yet, &self.origin) {
            (Some(_), Some(_)) => format!("{origin}, not used yet"),
            _ => origin,
        }
    }
}

fn key_lines(key: &KeyRecord, lines: &mut Vec<Line>) {
    let (indent, name) = place(&key.path);
    let comment = key.comment();
    match key.value() {
        None => lines.push(line(format!("{indent}# {name}:"), comment)),
        Some(Shown::One(text)) => {
            lines.push(line(format!("{indent}{name}: {}", scalar(&text)), comment));
        }
        Some(Shown::List(texts)) => {
            lines.push(line(format!("{indent}{name}: {}", flow(&texts)), comment));
        }
        Some(Shown::Map(pairs)) if pairs.is_empty() => {
            lines.push(line(format!("{indent}{name}: {{}}"), comment));
        }
        Some(Shown::Map(pairs)) => {
            lines.push(line(format!("{indent}{name}:"), ""));
            for Pair {
                name,
                value,
                quoted,
                origin,
            } in &pairs
            {
                let value = if *quoted && is_word(value) {
                    in_quotes(value).into()
                } else {
                    scalar(value)
                };
                let text = format!("{indent}  {}: {value}", plain_or_quoted(name));
                lines.push(line(text, origin.to_string()));
            }
        }
    }
}

/// A part that nothing acts on, as it was written.
fn node_lines(
    indent: &str,
    name: &str,
    node: &Node,
    comment: &str,
    below_secret: bool,
    lines: &mut Vec<Line>,
) {
    let secret = below_secret || secret::is_secret(name);
    let shown = |text: &str| {
        let secret = secret && !secret::is_key_file(text);
        scalar(&secret::masked(text, secret)).into_owned()
    };
    match &node.value {
        Value::Null => {}
        Value::Text(text) => {
            lines.push(line(
                format!("{indent}{name}: {}", shown(&text.text)),
                comment,
            ));
        }
        Value::Map(map) => {
            let empty = if map.entries.is_empty() { " {}" } else { "" };
            lines.push(line(format!("{indent}{name}:{empty}"), comment));
            let deeper = format!("{indent}  ");
            for entry in &map.entries {
                let comment = entry.node.origin.to_string();
                let name = plain_or_quoted(&entry.name);
                node_lines(&deeper, &name, &entry.node, &comment, secret, lines);
            }
        }
        Value::List(items) => {
            let empty = if items.is_empty() { " []" } else { "" };
            lines.push(line(format!("{indent}{name}:{empty}"), comment));
            for (item, text) in items.iter().zip(item_texts(items, secret)) {
                lines.push(line(format!("{indent}  - {text}"), item.origin.to_string()));
            }
        }
    }
}

/// The items of a list on one line each, as they may be shown.
fn item_texts(items: &[Node], secret: bool) -> Vec<String> {
    let texts = secret::masked_items(items).map(|(item, shown)| match shown {
        Some(shown) if !secret => scalar(&shown).into_owned(),
        _ => flow_node(item, secret),
    });
    texts.collect()
}

fn flow_node(node: &Node, secret: bool) -> String {
    match &node.value {
        Value::Null => "null".to_owned(),
        Value::Text(text) => scalar(&secret::masked(&text.text, secret)).into_owned(),
        Value::List(items) => {
            format!("[{}]", item_texts(items, secret).join(", "))
        }
        Value::Map(map) => {
            let entry = |e: &crate::node::Entry| {
                let secret = secret || secret::is_secret(&e.name);
                format!(
                    "{}: {}",
                    plain_or_quoted(&e.name),
                    flow_node(&e.node, secret)
                )
            };
            let entries: Vec<String> = map.entries.iter().map(entry).collect();
            format!("{{{}}}", entries.join(", "))
        }
    }
}

/// In lists of differences: the value alone, on one line.
impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::One(text) => f.write_str(&shorten(text)),
            Self::List(texts) => f.write_str(&shorten(&flow(texts))),
            Self::Map(pairs) => {
                let names: Vec<&str> = pairs.iter().map(|pair| pair.name.as_str()).collect();
                f.write_str(&shorten(&names.join(", ")))
            }
        }
    }
}

fn line(text: String, comment: impl Into<String>) -> Line {
    Line {
        text,
        comment: comment.into(),
    }
}

/// Indentation and last name of a path.
fn place(path: &str) -> (String, Cow<'_, str>) {
    let depth = path.matches('.').count();
    let name = path.rsplit('.').next().unwrap_or(path);
    ("  ".repeat(depth), plain_or_quoted(name))
}

fn flow(texts: &[String]) -> String {
    let texts: Vec<Cow<'_, str>> = texts.iter().map(|text| scalar(text)).collect();
    format!("[{}]", texts.join(", "))
}

/// A text that reads back as itself: dollar signs doubled, quoted where YAML would see more in it.
fn scalar(text: &str) -> Cow<'_, str> {
    match escape(text) {
        Cow::Borrowed(text) => plain_or_quoted(text),
        Cow::Owned(text) => Cow::Owned(plain_or_quoted(&text).into_owned()),
    }
}

fn plain_or_quoted(text: &str) -> Cow<'_, str> {
    let first = text.chars().next();
    let starts_plain =
        first.is_some_and(|c| c.is_ascii_alphanumeric() || matches!(c, '/' | '.' | '_' | '$'));
    let all_plain = text.chars().all(|c| {
        c.is_ascii_alphanumeric()
            || matches!(c, '/' | '.' | '_' | '-' | '$' | ':' | '=' | '+' | '@')
    });
    // `a: b` is a map and `a:` may be one; YAML's words for nothing are not texts.
    let colons_inside = !text.ends_with(':');
    let null = matches!(text, "null" | "Null" | "NULL" | "..." | "---");
    if starts_plain && all_plain && colons_inside && !null {
        return text.into();
    }
    in_quotes(text).into()
}

/// What may be more than a text without quotes: the words for yes, no and nothing, and names of
/// constants.
fn is_word(text: &str) -> bool {
    let words = ["on", "yes", "true", "off", "no", "false", "none", "null"];
    let constant = |b: u8| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_';
    words.iter().any(|word| text.eq_ignore_ascii_case(word))
        || (text.contains('_') && text.bytes().all(constant))
}

fn in_quotes(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            '\n' => quoted.push_str("\\n"),
            '\t' => quoted.push_str("\\t"),
            '\r' => quoted.push_str("\\r"),
            c if c.is_control() || matches!(c, '\u{2028}' | '\u{2029}' | '\u{feff}') => {
                quoted.extend([format!("\\U{:08x}", u32::from(c))]);
            }
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}
