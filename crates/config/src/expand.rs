//! `$NAME`, `${NAME}` and `${NAME:-default}` in a value; `$$` is a dollar sign.
//!
//! A default is taken as it stands up to the next `}`. A `$` before anything else is a dollar sign.

use std::borrow::Cow;

use crate::diagnostic::Diagnostics;
use crate::load::Variables;
use crate::node::{Map, Node, Value};
use crate::place::{Origin, Place};
use crate::resolve::Difference;
use crate::secret::is_secret;
use crate::setting::shorten;

/// Text that variables may still add. One for a whole configuration with its variable files: a
/// variable in each of many values, or one that doubles line by line, could fill the memory.
pub(crate) struct Allowance(usize);

/// Variables of one value that messages name.
const MOST_NAMED: usize = 10;

/// Far beyond what a configuration needs.
const MAX_EXPANDED_BYTES: usize = 4 << 20;

impl Default for Allowance {
    fn default() -> Self {
        Self(MAX_EXPANDED_BYTES)
    }
}

/// Expands every value of a tree, and remembers in each origin which variables are in it.
pub(crate) struct Expander<'a> {
    pub(crate) variables: &'a Variables,
    pub(crate) allowance: &'a mut Allowance,
    pub(crate) diagnostics: &'a mut Diagnostics,
    pub(crate) differences: &'a mut Vec<Difference>,
}

impl Expander<'_> {
    pub(crate) fn map(&mut self, map: &mut Map, path: &str) {
        for entry in &mut map.entries {
            let path = join(path, &entry.name);
            self.node(&mut entry.node, &path);
        }
    }

    pub(crate) fn node(&mut self, node: &mut Node, path: &str) {
        match &mut node.value {
            Value::Null => {}
            Value::List(items) => items.iter_mut().for_each(|item| self.node(item, path)),
            Value::Map(map) => self.map(map, path),
            Value::Text(text) => {
                let origin = &mut node.origin;
                text.text = self.text(&text.text, path, origin);
            }
        }
    }

    /// `origin` gets the names of the variables. An empty one counts as unset where there is a
    /// default.
    pub(crate) fn text(&mut self, text: &str, path: &str, origin: &mut Origin) -> String {
        let mut out = String::new();
        let Origin {
            place,
            variables: used,
            unset,
        } = origin;
        for piece in pieces(text) {
            let (name, default) = match piece {
                Piece::Text(text) => {
                    out.push_str(text);
                    continue;
                }
                Piece::Variable { name, default } => (name, default),
                Piece::Malformed(what) => {
                    self.tell_malformed(what, path, place);
                    break;
                }
            };
            let set = self.variables.get(name);
            let set = set.filter(|value| !value.is_empty() || default.is_none());
            let value = set.or(default);
            if value.is_none() {
                note(unset, name);
            }
            note(used, name);
            let value = value.unwrap_or_default();
            let Some(left) = self.allowance.0.checked_sub(value.len()) else {
                let most = MAX_EXPANDED_BYTES;
                let message = format!("`{path}`: variables add more than {most} bytes");
                self.diagnostics.error(place, message, "");
                break;
            };
            self.allowance.0 = left;
            out.push_str(value);
        }
        self.warn_unset(unset, path, place);
        if let Some((there, why)) = roadrunner_reads(text) {
            self.differences.push(Difference {
                key: path.to_owned(),
                here: "expanded".to_owned(),
                there: there.to_owned(),
                why: why.to_owned(),
            });
        }
        out
    }

    fn tell_malformed(&mut self, what: &str, path: &str, place: &Place) {
        let secret = is_secret(path.rsplit('.').next().unwrap_or(path));
        let what = if secret {
            "{…}".to_owned()
        } else {
            shorten(what)
        };
        let message = format!("`{path}`: `${what}` is no reference to a variable");
        let hint = "write `$NAME`, `${NAME}` or `${NAME:-default}`, and `$$` for a dollar sign";
        self.diagnostics.error(place, message, hint);
    }

    fn warn_unset(&mut self, names: &[String], path: &str, place: &Place) {
        if let Some(first) = names.first() {
            let names = names.join("`, `");
            let message = format!("`{path}`: not set, and empty here: `{names}`");
            let hint = format!("set it, write `${{{first}:-default}}`, or `$$` for a dollar sign");
            self.diagnostics.warn(place, message, &hint);
        }
    }
}

/// Each name once.
fn note(names: &mut Vec<String>, name: &str) {
    if names.len() < MOST_NAMED && !names.iter().any(|known| known == name) {
        names.push(name.to_owned());
    }
}

pub(crate) fn join(path: &str, name: &str) -> String {
    if path.is_empty() {
        name.to_owned()
    } else {
        format!("{path}.{name}")
    }
}

/// A `$` that begins no reference doubled, so that the text reads back as it is.
pub(crate) fn escape(text: &str) -> Cow<'_, str> {
    if text.contains('$') {
        text.replace('$', "$$").into()
    } else {
        text.into()
    }
}

#[derive(Debug, PartialEq)]
enum Piece<'t> {
    Text(&'t str),
    Variable {
        name: &'t str,
        default: Option<&'t str>,
    },
    /// What follows the `$`.
    Malformed(&'t str),
}

fn pieces(text: &str) -> Vec<Piece<'_>> {
    let mut pieces = Vec::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('$') {
        pieces.push(Piece::Text(before));
        let (piece, left) = after_dollar(after);
        pieces.push(piece);
        rest = left;
    }
    pieces.push(Piece::Text(rest));
    pieces
}

/// What stands after a `$`, and what is left.
fn after_dollar(after: &str) -> (Piece<'_>, &str) {
    if let Some(left) = after.strip_prefix('$') {
        return (Piece::Text("$"), left);
    }
    if let Some(braced) = after.strip_prefix('{') {
        let Some((inside, left)) = braced.split_once('}') else {
            return (Piece::Malformed(after), "");
        };
        let (name, default) = match inside.split_once(":-") {
            Some((name, default)) => (name, Some(default)),
            None => (inside, None),
        };
        let piece = if !name.is_empty() && name_length(name) == name.len() {
            Piece::Variable { name, default }
        } else {
            let (braces, _) = after.split_at(inside.len() + "{}".len());
            Piece::Malformed(braces)
        };
        return (piece, left);
    }
    match after.split_at(name_length(after)) {
        ("", left) => (Piece::Text("$"), left),
        (name, left) => (
            Piece::Variable {
                name,
                default: None,
            },
            left,
        ),
    }
}

/// Bytes of the variable name that `text` begins with: letters, digits, `_`, no digit first.
fn name_length(text: &str) -> usize {
    let end = text.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    if text.starts_with(|c: char| c.is_ascii_digit()) {
        return 0;
    }
    end.unwrap_or(text.len())
}

/// What RoadRunner makes of the text where that is something else, and why.
fn roadrunner_reads(text: &str) -> Option<(&'static str, &'static str)> {
    let pieces = pieces(text);
    let without_default = pieces
        .iter()
        .any(|piece| matches!(piece, Piece::Variable { default: None, .. }));
    if text.contains(":-") && without_default {
        return Some((
            "empty",
            "it drops a text in which `:-` meets a reference without default",
        ));
    }
    // Its last character may be a lone `$`; everywhere else it takes the next one as a name.
    let dollars = pieces.iter().enumerate();
    let mut literal = dollars.filter(|(_, piece)| matches!(piece, Piece::Text("$")));
    let lone_at_end =
        |i: usize| i + 2 == pieces.len() && !text.ends_with("$$") && text.ends_with('$');
    literal
        .any(|(i, _)| !lone_at_end(i))
        .then_some(("without the dollar sign", "it has no escape for one"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expand(text: &str) -> (String, Vec<String>, Diagnostics) {
        let set = [("SET", "value"), ("EMPTY", "")];
        let variables = Variables::new(set.map(|(n, v)| (n.to_owned(), v.to_owned())).into());
        let mut diagnostics = Diagnostics::default();
        let mut origin = Origin::new(Place::file(0, "test"));
        let mut expander = Expander {
            variables: &variables,
            allowance: &mut Allowance::default(),
            diagnostics: &mut diagnostics,
            differences: &mut Vec::new(),
        };
        let out = expander.text(text, "key", &mut origin);
        (out, origin.variables, diagnostics)
    }

    #[test]
    fn every_form_expands() {
        for (text, expected) in [
            ("", ""),
            ("plain", "plain"),
            ("$SET/${SET}", "value/value"),
            ("${SET}s", "values"),
            ("$SETs", ""),
            ("pre-${SET:-d1}-${NOPE:-d2}", "pre-value-d2"),
            ("${EMPTY:-def}", "def"),
            ("[${EMPTY}]", "[]"),
            ("${NOPE:-http://x:80/?a=b}", "http://x:80/?a=b"),
            ("${NOPE:-}", ""),
            ("${NOPE:-$SET}", "$SET"),
            ("${NOPE}-${SET:-q}", "-value"),
            ("a:-b ${SET}", "a:-b value"),
            ("cost $5 $$ $", "cost $5 $ $"),
            ("$$SET $${SET}", "$SET ${SET}"),
            ("^\\.php$", "^\\.php$"),
            ("ü$SETü", "üvalueü"),
        ] {
            assert_eq!(expand(text).0, expected, "{text}");
        }
    }

    #[test]
    fn what_cannot_be_a_reference_is_an_error() {
        for text in [
            "${}",
            "${SET",
            "${1}",
            "${SET-x}",
            "${:-x}",
            "${SET NOPE}",
            "${a.b}",
        ] {
            assert_eq!(expand(text).2.0.len(), 1, "{text}");
        }
    }

    #[test]
    fn only_an_unset_variable_without_default_is_warned_about() {
        assert_eq!(expand("$SET ${EMPTY} ${NOPE:-x} ${NOPE:-}").2.0, []);
        assert_eq!(expand("$NOPE ${NOPE} $NO").2.0.len(), 1);
    }

    #[test]
    fn the_origin_names_what_was_used() {
        assert_eq!(expand("$SET ${NOPE:-x} $$EMPTY").1, ["SET", "NOPE"]);
    }

    #[test]
    fn texts_that_roadrunner_reads_differently_are_known() {
        for text in ["$$", "a $5", "$ a", "${NOPE}-${SET:-q}", "a:-b $SET"] {
            assert!(roadrunner_reads(text).is_some(), "{text}");
        }
        for text in [
            "",
            "a",
            "a$",
            "$SET",
            "${SET:-d}",
            "x ${SET:-d} ${NOPE:-e}",
            ":-",
        ] {
            assert!(roadrunner_reads(text).is_none(), "{text}");
        }
    }
}
