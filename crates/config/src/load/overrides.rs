//! `-o key.path=value`, and keys that code sets.

use std::fmt;

use crate::diagnostic::Diagnostics;
use crate::expand::escape;
use crate::node::{Entry, Map, Node, Text, Value, map_of_list, same_name};
use crate::place::{Origin, Place};
use crate::yaml::MAX_DEPTH;

/// One of them, taken apart.
pub(super) struct Override {
    pub(super) place: Place,
    pub(super) path: Vec<String>,
    value: PresetValue,
}

/// A key that code sets, such as one with a path that was found. Nothing in its value separates,
/// quotes or names a variable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Preset {
    key: String,
    value: PresetValue,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum PresetValue {
    Text(String),
    List(Vec<String>),
}

impl Preset {
    /// One value.
    pub fn text(key: impl Into<String>, text: impl fmt::Display) -> Self {
        Self {
            key: key.into(),
            value: PresetValue::Text(text.to_string()),
        }
    }

    /// The items of a list, or the words of a command.
    pub fn list<T: fmt::Display>(
        key: impl Into<String>,
        items: impl IntoIterator<Item = T>,
    ) -> Self {
        let items = items.into_iter().map(|item| item.to_string());
        Self {
            key: key.into(),
            value: PresetValue::List(items.collect()),
        }
    }

    /// The key that it sets.
    pub fn key(&self) -> &str {
        &self.key
    }
}

/// In their order.
pub(super) fn of_presets(presets: &[Preset]) -> Vec<Override> {
    let as_override = |preset: &Preset| Override {
        place: Place::overriding(0, &preset.key),
        path: preset.key.split('.').map(ToOwned::to_owned).collect(),
        value: match &preset.value {
            PresetValue::Text(text) => PresetValue::Text(escape(text).into_owned()),
            PresetValue::List(items) => {
                PresetValue::List(items.iter().map(|it| escape(it).into_owned()).collect())
            }
        },
    };
    presets.iter().map(as_override).collect()
}

/// Those that can be used. The first `=` separates; one pair of `"` around the value is taken off.
pub(super) fn parse(arguments: &[String], diagnostics: &mut Diagnostics) -> Vec<Override> {
    let mut overrides = Vec::new();
    for (argument, number) in arguments.iter().zip(1..) {
        let (key, value) = argument.split_once('=').unwrap_or((argument, ""));
        let place = Place::overriding(number, if key.is_empty() { "=" } else { key });
        let unquoted = value.strip_prefix('"').and_then(|v| v.strip_suffix('"'));
        let text = unquoted.unwrap_or(value);
        let path: Vec<String> = key.trim().split('.').map(ToOwned::to_owned).collect();
        let unusable = |name: &String| name.is_empty() || name.contains(char::is_control);
        let wrong = if path.iter().any(unusable) || path.len() > MAX_DEPTH {
            "has no usable key"
        } else if text.is_empty() {
            "has no value"
        } else if argument.contains('\0') {
            "holds a NUL character"
        } else {
            overrides.push(Override {
                place,
                path,
                value: PresetValue::Text(text.to_owned()),
            });
            continue;
        };
        diagnostics.error(&place, wrong, "write `-o section.key=value`");
    }
    overrides
}

/// Keys that are needed before includes are read.
const EARLY: [&str; 2] = ["include", "envfile"];

/// Applies those of the keys that say what else to load.
pub(super) fn apply_early(overrides: &[Override], root: &mut Map, diagnostics: &mut Diagnostics) {
    apply(overrides.iter().filter(|o| o.is_early()), root, diagnostics);
}

/// Applies all others.
pub(super) fn apply_late(overrides: &[Override], root: &mut Map, diagnostics: &mut Diagnostics) {
    apply(
        overrides.iter().filter(|o| !o.is_early()),
        root,
        diagnostics,
    );
}

fn apply<'o>(
    overrides: impl Iterator<Item = &'o Override>,
    root: &mut Map,
    diagnostics: &mut Diagnostics,
) {
    for o in overrides {
        if let Err(at) = o.set(root, &o.path) {
            diagnostics.error(
                &o.place,
                format!("cannot be set: what stands at {at} has no keys of its own"),
                "change it there",
            );
        }
    }
}

/// `serve[0]`: a list and the number of an item, as messages write it.
fn indexed(name: &str) -> Option<(&str, usize)> {
    let (name, index) = name.strip_suffix(']')?.rsplit_once('[')?;
    let index = index.parse().ok()?;
    (!name.is_empty()).then_some((name, index))
}

impl Override {
    fn is_early(&self) -> bool {
        matches!(self.path.as_slice(), [one] if EARLY.iter().any(|early| same_name(early, one)))
    }

    /// Err is the place of a value that is in the way.
    fn set(&self, map: &mut Map, path: &[String]) -> Result<(), Place> {
        let Some((name, rest)) = path.split_first() else {
            return Ok(());
        };
        let is_name = map.entries.iter().any(|entry| same_name(&entry.name, name));
        let (name, index) = match indexed(name) {
            Some((name, index)) if !is_name => (name, Some(index)),
            _ => (name.as_str(), None),
        };
        let at = map.position(name).unwrap_or_else(|| {
            map.entries.push(Entry {
                name: name.to_owned(),
                origin: Origin::new(self.place.clone()),
                node: self.node(Value::Null),
            });
            map.entries.len() - 1
        });
        let Some(entry) = map.entries.get_mut(at) else {
            return Ok(());
        };
        if let Some(index) = index {
            return self.set_item(&mut entry.node, index, rest);
        }
        if rest.is_empty() {
            entry.origin = Origin::new(self.place.clone());
            entry.node = self.value_node();
            return Ok(());
        }
        if let Value::List(items) = &entry.node.value
            && let Some(map) = map_of_list(items)
        {
            entry.node.value = Value::Map(map);
        }
        self.set_below(&mut entry.node, rest)
    }

    /// In a list, an item that is there, or the one behind its last.
    fn set_item(&self, list: &mut Node, index: usize, rest: &[String]) -> Result<(), Place> {
        if list.value == Value::Null {
            *list = self.node(Value::List(Vec::new()));
        }
        let place = list.origin.place.clone();
        let Value::List(items) = &mut list.value else {
            return Err(place);
        };
        if index == items.len() {
            items.push(self.node(Value::Null));
        }
        let item = items.get_mut(index).ok_or(place)?;
        if rest.is_empty() {
            *item = self.value_node();
            return Ok(());
        }
        self.set_below(item, rest)
    }

    fn set_below(&self, node: &mut Node, rest: &[String]) -> Result<(), Place> {
        if node.value == Value::Null {
            *node = self.node(Value::Map(Map::default()));
        }
        match &mut node.value {
            Value::Map(inner) => self.set(inner, rest),
            _ => Err(node.origin.place.clone()),
        }
    }

    fn value_node(&self) -> Node {
        let text = |text: &String| {
            self.node(Value::Text(Text {
                text: text.clone(),
                quoted: true,
            }))
        };
        match &self.value {
            PresetValue::Text(it) => text(it),
            PresetValue::List(items) => self.node(Value::List(items.iter().map(text).collect())),
        }
    }

    fn node(&self, value: Value) -> Node {
        Node {
            value,
            origin: Origin::new(self.place.clone()),
        }
    }
}
