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
mod size;

pub use address::{Address, Endpoint, Subnet};
pub use choice::Choice;
pub use command::Command;
pub use duration::show_duration;
pub use pairs::{Pair, Pairs};
pub use size::Size;

use crate::node::{Node, Value};
use crate::place::Place;

/// A type that a key can have.
pub trait Setting: Sized {
    /// A value as it is written in a file.
    const EXAMPLE: &'static str;

    /// An empty text is a value, such as an empty list. For all others it means "not written".
    const EMPTY_IS_VALUE: bool = false;

    /// What is accepted, in words that can follow "accepted:".
    fn accepts() -> String;

    /// Reads a value that is not null.
    ///
    /// # Errors
    /// What is wrong, one for each place.
    fn read(node: &Node) -> Result<Self, Vec<Wrong>>;

    /// The value as it would be written.
    fn show(&self) -> Shown;

    /// True for the 0 that means "off" or "default" in RoadRunner.
    fn is_zero(&self) -> bool {
        false
    }
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
            Value::Text(text) => format!("`{}`", shorten(&text.text)),
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

/// The text of a scalar, else what is wrong.
fn text(node: &Node) -> Result<&str, Vec<Wrong>> {
    node.text().map(str::trim).ok_or_else(|| Wrong::value(node))
}

/// One line, no control characters, not endless.
pub(crate) fn shorten(text: &str) -> String {
    const LONGEST: usize = 80;
    let mut out: String = text.chars().take(LONGEST).flat_map(visible).collect();
    if text.chars().nth(LONGEST).is_some() {
        out.push('…');
    }
    out
}

fn visible(c: char) -> impl Iterator<Item = char> {
    let escaped = c.is_control().then(|| c.escape_default());
    let plain = (!c.is_control()).then_some(c);
    escaped.into_iter().flatten().chain(plain)
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
