//! The raw tree: the file as written, every value with its origin.

use crate::Origin;
use crate::setting::one_line;

/// A value and where it came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// The value.
    pub value: Value,
    /// Where it came from; for a list or map, where it begins.
    pub origin: Origin,
}

/// What YAML knows, with every scalar left as text: the key that reads it decides its type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// Nothing, `~` or `null`: counts as not written.
    Null,
    /// Any other scalar.
    Text(Text),
    /// A list.
    List(Vec<Node>),
    /// A map.
    Map(Map),
}

/// A scalar.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Text {
    /// Its characters, variables expanded.
    pub text: String,
    /// Written in quotes or as a block.
    pub quoted: bool,
}

/// Keys and values in the order of the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Map {
    /// No two have the very same name; two may differ in case only.
    pub entries: Vec<Entry>,
}

/// One key of a map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// As written.
    pub name: String,
    /// Where the name stands.
    pub origin: Origin,
    /// What it is set to.
    pub node: Node,
}

impl Node {
    /// The scalar's text, or None for anything else.
    pub fn text(&self) -> Option<&str> {
        match &self.value {
            Value::Text(text) => Some(&text.text),
            Value::Null | Value::List(_) | Value::Map(_) => None,
        }
    }

    /// The texts of a list; of a single text those between its commas, as in RoadRunner.
    pub fn words(&self) -> Vec<&str> {
        match &self.value {
            Value::Text(text) => text.text.split(',').map(str::trim).collect(),
            Value::List(items) => items.iter().filter_map(Self::text).map(str::trim).collect(),
            Value::Null | Value::Map(_) => Vec::new(),
        }
    }

    /// An item of a list.
    pub(crate) fn item(&self, number: usize) -> Option<&Self> {
        match &self.value {
            Value::List(items) => items.get(number),
            Value::Null | Value::Text(_) | Value::Map(_) => None,
        }
    }

    /// True for nothing at all and for an empty text, which all but lists and maps read as unset.
    pub fn is_blank(&self) -> bool {
        matches!(self.value, Value::Null)
            || self.text().is_some_and(|t| t.trim_matches(' ').is_empty())
    }
}

impl Map {
    /// The first entry whose name matches without regard to case.
    pub fn get(&self, name: &str) -> Option<&Node> {
        let entry = self.entries.iter().find(|e| same_name(&e.name, name))?;
        Some(&entry.node)
    }

    /// All entries at a path of names, `http.pools.*.command` for instance: `*` is any name. Each
    /// with its whole path.
    pub fn find(&self, path: &str) -> Vec<(String, &Entry)> {
        let (name, rest) = match path.split_once('.') {
            Some((name, rest)) => (name, Some(rest)),
            None => (path, None),
        };
        let named = |entry: &&Entry| name == "*" || same_name(&entry.name, name);
        let found = self.entries.iter().filter(named).flat_map(|entry| {
            let here = one_line(&entry.name);
            match (rest, &entry.node.value) {
                (None, _) => vec![(here, entry)],
                (Some(rest), Value::Map(map)) => {
                    let below = map.find(rest).into_iter();
                    let whole = |(path, entry)| (format!("{here}.{path}"), entry);
                    below.map(whole).collect()
                }
                (Some(_), Value::Null | Value::Text(_) | Value::List(_)) => Vec::new(),
            }
        });
        found.collect()
    }

    /// The entry of that very name, else one that differs in case only.
    pub(crate) fn position(&self, name: &str) -> Option<usize> {
        let exact = self.entries.iter().position(|e| e.name == name);
        exact.or_else(|| self.entries.iter().position(|e| same_name(&e.name, name)))
    }
}

/// Names match without regard to case, as in RoadRunner, which lower-cases them all.
pub(crate) fn same_name(a: &str, b: &str) -> bool {
    a.eq_ignore_ascii_case(b)
}

/// `- A: 1` and `- B: 2`, RoadRunner's other form of a map, as that map; None for any other list.
/// Of two items with the same name the last counts, as there.
pub(crate) fn map_of_list(items: &[Node]) -> Option<Map> {
    let mut map = Map::default();
    for item in items {
        let Value::Map(Map { entries }) = &item.value else {
            return None;
        };
        let [entry] = entries.as_slice() else {
            return None;
        };
        map.entries.retain(|e| e.name != entry.name);
        map.entries.push(entry.clone());
    }
    Some(map)
}
