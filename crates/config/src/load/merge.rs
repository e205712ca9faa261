//! Two trees into one.

use crate::node::{Map, Node, Value, map_of_list};

/// Puts `from` over `into`: maps key by key, anything else as a whole. What is not written (null)
/// replaces nothing.
pub(super) fn merge(into: &mut Map, from: Map) {
    for entry in from.entries {
        let at = into.position(&entry.name);
        match at.and_then(|i| into.entries.get_mut(i)) {
            None => into.entries.push(entry),
            Some(there) => {
                if merge_node(&mut there.node, entry.node) {
                    there.name = entry.name;
                    there.origin = entry.origin;
                }
            }
        }
    }
}

/// True when the old value is gone.
fn merge_node(into: &mut Node, from: Node) -> bool {
    if let (Value::List(items), Value::Map(_)) = (&into.value, &from.value)
        && let Some(map) = map_of_list(items)
    {
        into.value = Value::Map(map);
    }
    match (&mut into.value, from.value) {
        (_, Value::Null) => false,
        (Value::Map(into), Value::Map(from)) => {
            merge(into, from);
            false
        }
        (Value::Map(into), Value::List(items)) if map_of_list(&items).is_some() => {
            merge(into, map_of_list(&items).unwrap_or_default());
            false
        }
        (_, value) => {
            into.value = value;
            into.origin = from.origin;
            true
        }
    }
}
