//! Keys and values in order, and as YAML.

use std::fmt::Write as _;

/// Bytes of a line of which a person still reads the whole.
const LONGEST_LINE: usize = 800;

/// A value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Value {
    /// As it is: no variable stands in it.
    Text(String),
    /// Variables of the configuration stand in it, `${HOME}`.
    Expanded(String),
    /// A number, `true` or `false`.
    Bare(String),
    List(Vec<Self>),
    Map(Tree),
}

/// Keys in the order in which they came.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Tree(Vec<(String, Value)>);

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<u64> for Value {
    fn from(number: u64) -> Self {
        Self::Bare(number.to_string())
    }
}

impl From<bool> for Value {
    fn from(is: bool) -> Self {
        Self::Bare(is.to_string())
    }
}

impl From<Tree> for Value {
    fn from(map: Tree) -> Self {
        Self::Map(map)
    }
}

impl From<Vec<String>> for Value {
    fn from(list: Vec<String>) -> Self {
        Self::List(list.into_iter().map(Self::Text).collect())
    }
}

impl Tree {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The map at this path, made if it is not there.
    pub(super) fn map(&mut self, path: &[&str]) -> &mut Self {
        let Some((first, rest)) = path.split_first() else {
            return self;
        };
        let at = match self.0.iter().position(|(name, _)| name == first) {
            Some(at) => at,
            None => {
                self.0
                    .push(((*first).to_owned(), Value::Map(Self::default())));
                self.0.len() - 1
            }
        };
        let value = &mut self.0[at].1;
        if !matches!(value, Value::Map(_)) {
            *value = Value::Map(Self::default());
        }
        match value {
            Value::Map(map) => map.map(rest),
            Value::Text(_) | Value::Expanded(_) | Value::Bare(_) | Value::List(_) => {
                unreachable!("it is a map now")
            }
        }
    }

    pub(super) fn set(&mut self, name: &str, value: impl Into<Value>) -> &mut Self {
        let value = value.into();
        match self.0.iter_mut().find(|(known, _)| known == name) {
            Some((_, known)) => *known = value,
            None => self.0.push((name.to_owned(), value)),
        }
        self
    }

    /// Sets all keys of another one.
    pub(super) fn merge(&mut self, other: Self) {
        for (name, value) in other.0 {
            self.set(&name, value);
        }
    }

    /// As [`merge`](Self::merge), but maps in both are merged, too.
    pub(super) fn merge_deep(&mut self, other: Self) {
        for (name, value) in other.0 {
            match (value, self.get_mut(&name)) {
                (Value::Map(more), Some(Value::Map(known))) => known.merge_deep(more),
                (value, _) => _ = self.set(&name, value),
            }
        }
    }

    /// Adds to a list.
    pub(super) fn push(&mut self, name: &str, value: impl Into<Value>) {
        let value = value.into();
        match self.0.iter_mut().find(|(known, _)| known == name) {
            Some((_, Value::List(list))) => list.push(value),
            _ => _ = self.set(name, Value::List(vec![value])),
        }
    }

    pub(super) fn remove(&mut self, name: &str) {
        self.0.retain(|(known, _)| known != name);
    }

    pub(super) fn get(&self, name: &str) -> Option<&Value> {
        let entry = self.0.iter().find(|(known, _)| known == name);
        entry.map(|(_, value)| value)
    }

    pub(super) fn get_mut(&mut self, name: &str) -> Option<&mut Value> {
        let entry = self.0.iter_mut().find(|(known, _)| known == name);
        entry.map(|(_, value)| value)
    }

    pub(super) fn to_yaml(&self) -> String {
        let mut text = String::new();
        self.write(&mut text, 0);
        text
    }

    fn write(&self, text: &mut String, depth: usize) {
        for (name, value) in &self.0 {
            _ = write!(text, "{:1$}{2}:", "", depth * 2, quoted(name)); // a String takes all
            match value {
                Value::Map(map) => {
                    text.push('\n');
                    map.write(text, depth + 1);
                }
                Value::List(list) if list.iter().any(|it| matches!(it, Value::Map(_))) => {
                    text.push('\n');
                    for item in list {
                        _ = writeln!(text, "{:1$}- {2}", "", depth * 2 + 2, inline(item));
                    }
                }
                value => _ = writeln!(text, " {}", inline(value)),
            }
        }
    }
}

fn inline(value: &Value) -> String {
    match value {
        Value::Text(text) => yaml_text(text),
        Value::Expanded(text) => quoted(text),
        Value::Bare(text) => text.clone(),
        Value::List(list) => {
            let items: Vec<_> = list.iter().map(inline).collect();
            format!("[{}]", items.join(", "))
        }
        Value::Map(Tree(entries)) => {
            let entries = entries.iter();
            let entries: Vec<_> = entries
                .map(|(name, value)| format!("{}: {}", quoted(name), inline(value)))
                .collect();
            format!("{{{}}}", entries.join(", "))
        }
    }
}

/// A value that reads back as this text, whatever is in it.
pub fn yaml_text(text: &str) -> String {
    quoted(&without_variables(text))
}

/// A value that reads back as this one pattern of a route: in a text, commas separate several.
pub fn yaml_path(pattern: &str) -> String {
    inline(&path_value(pattern))
}

/// The value of one pattern of a route in a tree.
pub(super) fn path_value(pattern: &str) -> Value {
    let text = Value::from(pattern);
    if pattern.contains(',') {
        Value::List(vec![text])
    } else {
        text
    }
}

/// A text in which no `$` begins a variable of the configuration.
pub(super) fn without_variables(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        let begins = |next: &char| next.is_ascii_alphabetic() || "{_$".contains(*next);
        if letter == '$' && letters.peek().is_some_and(begins) {
            out.push('$');
        }
        out.push(letter);
    }
    out
}

/// As YAML; JSON's texts are YAML's.
fn quoted(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-/".contains(c);
    let begins = |c: char| c.is_ascii_alphabetic() || c == '.' || c == '/';
    let means_other = ["true", "false", "yes", "no", "on", "off", "null", "y", "n"]
        .iter()
        .any(|word| text.eq_ignore_ascii_case(word));
    if text.starts_with(begins) && text.chars().all(is_plain) && !means_other {
        return text.to_owned();
    }
    let json = serde_json::to_string(text).unwrap_or_default();
    let mut out = String::with_capacity(json.len());
    for letter in json.chars() {
        if is_shown(letter) {
            out.push(letter);
        } else {
            let mut units = [0; 2];
            for unit in letter.encode_utf16(&mut units) {
                _ = write!(out, "\\u{unit:04x}"); // a String takes all
            }
        }
    }
    out
}

/// Whether a letter may stand in a file or on a terminal as it is: it neither controls them nor
/// changes the order of others.
fn is_shown(letter: char) -> bool {
    !letter.is_control()
        && !matches!(letter, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200b}'..='\u{200f}'
            | '\u{feff}' | '\u{fffe}' | '\u{ffff}' | '\u{e000}'..='\u{f8ff}')
        && !matches!(letter, '\u{10000}'..)
}

/// Text of others as one line of sane length, for a comment or a terminal.
pub fn one_line(text: &str) -> String {
    let mut out = String::new();
    for letter in text.chars() {
        if out.len() > LONGEST_LINE {
            out.push('…');
            break;
        }
        match letter {
            '\n' | '\r' | '\t' => out.push(' '),
            letter if is_shown(letter) => out.push(letter),
            letter => out.extend(letter.escape_unicode()),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_yaml_would_read_otherwise_is_quoted() {
        for (text, expected) in [
            ("public", "public"),
            (".", "."),
            ("/srv/a", "/srv/a"),
            ("a b", "\"a b\""),
            ("#x", "\"#x\""),
            ("8", "\"8\""),
            ("a: b", "\"a: b\""),
            ("off", "\"off\""),
        ] {
            assert_eq!(quoted(text), expected);
        }
    }

    #[test]
    fn lists_of_maps_and_maps_are_written_as_people_do() {
        let mut tree = Tree::default();
        tree.map(&["http", "pool"])
            .set("root", "public")
            .set("num_workers", 4);
        let mut route = Tree::default();
        route.set("path", "/a/*");
        tree.map(&["http"]).push("routes", Value::Map(route));
        assert_eq!(
            tree.to_yaml(),
            "http:\n  pool:\n    root: public\n    num_workers: 4\n  routes:\n    - {path: \"/a/*\"}\n"
        );
    }
}
