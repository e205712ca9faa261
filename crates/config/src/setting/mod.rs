//! The types a value can have: how each is read from text, what it accepts, how it is shown.
//!
//! RoadRunner's weak typing holds for all: `"1"` is a number, `"true"` is true or false, `a,b` is a
//! list, a single value is a list of one.

mod address;
mod choice;
mod command;
mod duration;
mod list;
mod pairs;
mod scalar;
mod shell;
mod size;

pub use address::{Address, Endpoint, Listen, Subnet};
pub use choice::Choice;
pub use command::{Command, SpacedCommand, shell_syntax};
pub use duration::{Seconds, show_duration};
pub use pairs::{Pair, Pairs};
pub use size::Size;

use crate::node::{Node, Value};
use crate::place::Place;
use crate::secret::masked;

/// A type that a key can have.
pub trait Setting: Sized {
    /// A value as it is written in a file.
    fn example() -> String;

    /// An empty text is a value, such as an empty list. For all others it means "not written".
    const EMPTY_IS_VALUE: bool = false;

    /// What is accepted, in words that can follow "accepted:".
    fn accepts() -> String;

    /// The form of a value in YAML, for editors.
    fn shape() -> Shape {
        Shape::Text
    }

    /// Reads a value that is not null.
    ///
    /// # Errors
    /// What is wrong, one for each place.
    fn read(node: &Node) -> Result<Self, Vec<Wrong>>;

    /// The value as it would be written.
    fn show(&self) -> Shown;

    /// What RoadRunner makes of a text that is read here, where that is something else, and why it
    /// is read here.
    fn roadrunner(_text: &str) -> Option<(&'static str, &'static str)> {
        None
    }

    /// A doubt about a text that is read: words that go on after the key, and what to type.
    fn doubt(_text: &str, _has_variables: bool) -> Option<(String, String)> {
        None
    }

    /// True for the 0 that means "off" or "default" in RoadRunner.
    fn is_zero(&self) -> bool {
        false
    }
}

/// The form of a value in YAML, as far as an editor has to know it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Shape {
    /// One text or number.
    Text,
    /// A whole number.
    Number,
    /// `true` or `false`.
    Bool,
    /// One of these words.
    Words(Vec<&'static str>),
    /// A list, or one of its items.
    List(Box<Self>),
    /// Names with texts.
    Pairs,
}

/// A value that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrong {
    /// Where it stands.
    pub(crate) place: Place,
    /// What was written, shortened.
    pub(crate) given: String,
    /// What was probably meant; empty for the type's example.
    pub(crate) hint: String,
}

impl Wrong {
    /// This value, with no idea what was meant.
    pub fn value(node: &Node) -> Vec<Self> {
        Self::hinted(node, "")
    }

    /// This value, and what was probably meant.
    pub fn hinted(node: &Node, hint: impl Into<String>) -> Vec<Self> {
        let mut given = match &node.value {
            Value::Null => "nothing".to_owned(),
            Value::Text(text) if text.text.trim().is_empty() => "an empty text".to_owned(),
            Value::Text(text) => format!("`{}`", shorten(&masked(&text.text, false))),
            Value::List(_) => "a list".to_owned(),
            Value::Map(_) => "a map".to_owned(),
        };
        if !node.origin.variables.is_empty() {
            let names = node.origin.variables.join("}`, `${");
            given = format!("{given} (from `${{{names}}}`)");
        }
        vec![Self {
            place: node.origin.place.clone(),
            given,
            hint: hint.into(),
        }]
    }
}

/// How a value is written in YAML.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Shown {
    /// One value.
    One(String),
    /// A list.
    List(Vec<String>),
    /// A map.
    Map(Vec<Pair>),
}

/// The text of a scalar without the space around it, else what is wrong.
fn text(node: &Node) -> Result<&str, Vec<Wrong>> {
    let text = node.text().map(str::trim).filter(|text| !text.is_empty());
    text.ok_or_else(|| Wrong::value(node))
}

/// One line, no control characters, not endless.
pub(crate) fn shorten(text: &str) -> String {
    const LONGEST: usize = 80;
    let mut out: String = text.chars().take(LONGEST).collect();
    if text.chars().nth(LONGEST).is_some() {
        out.push('…');
    }
    one_line(&out)
}

/// Control characters escaped: what people wrote must not break up what is said to them.
pub(crate) fn one_line(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() {
            out.extend(c.escape_default());
        } else {
            out.push(c);
        }
    }
    out
}

/// What tests of the types share.
#[cfg(test)]
pub(crate) mod testing {
    use super::Setting;
    use crate::node::Node;
    use crate::{Input, load};

    /// What stands behind `key:`.
    pub(crate) fn node(yaml: &str) -> Node {
        let loaded = load(&Input::from_text("test", format!("key: {yaml}")));
        assert_eq!(loaded.diagnostics.0, [], "{yaml}");
        loaded.root().get("key").expect("the key above").clone()
    }

    pub(crate) fn read<T: Setting>(yaml: &str) -> Result<T, String> {
        T::read(&node(yaml)).map_err(|wrong| {
            let said: Vec<String> = wrong
                .iter()
                .map(|w| format!("{}; {}", w.given, w.hint))
                .collect();
            said.join("\n")
        })
    }
}
