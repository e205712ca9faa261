//! Names with texts, in the order of the file.

use super::{Setting, Shape, Shown, Wrong, shorten};
use crate::node::{Map, Node, Value, map_of_list};
use crate::place::Origin;

/// A map of texts; also written as a list of maps with one key each. Names keep their case.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pairs(pub Vec<Pair>);

/// One of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pair {
    /// As written.
    pub name: String,
    /// Its text, variables expanded.
    pub value: String,
    /// Written in quotes or as a block of YAML. A text of `-o` is not.
    pub quoted: bool,
    /// Where the text came from.
    pub origin: Origin,
}

impl Pairs {
    /// Name and text, in the order of the file.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0
            .iter()
            .map(|pair| (pair.name.as_str(), pair.value.as_str()))
    }
}

impl Setting for Pairs {
    fn example() -> String {
        "{NAME: text}".to_owned()
    }
    const EMPTY_IS_VALUE: bool = true;

    fn accepts() -> String {
        "names with texts".to_owned()
    }

    fn shape() -> Shape {
        Shape::Pairs
    }

    fn read(node: &Node) -> Result<Self, Vec<Wrong>> {
        let (mut pairs, mut wrong) = (Vec::new(), Vec::new());
        match &node.value {
            Value::Map(map) => collect(map, "", &mut pairs, &mut wrong),
            Value::List(items) => match map_of_list(items) {
                Some(map) => collect(&map, "", &mut pairs, &mut wrong),
                None => wrong = Wrong::hinted(node, "in a list, write `- NAME: text`"),
            },
            Value::Text(text) if text.text.trim().is_empty() => {}
            Value::Null | Value::Text(_) => wrong = Wrong::value(node),
        }
        if wrong.is_empty() {
            Ok(Self(pairs))
        } else {
            Err(wrong)
        }
    }

    fn show(&self) -> Shown {
        Shown::Map(self.0.clone())
    }
}

/// A dot in a name has made a map of it (`a.b` is `a: {b: …}` everywhere): put it back.
fn collect(map: &Map, prefix: &str, pairs: &mut Vec<Pair>, wrong: &mut Vec<Wrong>) {
    for entry in &map.entries {
        let name = format!("{prefix}{}", entry.name);
        let mut quoted = false;
        let value = match &entry.node.value {
            Value::Null => String::new(),
            Value::Text(text) => {
                quoted = text.quoted && !entry.node.origin.place.is_override();
                text.text.clone()
            }
            Value::Map(inner) => {
                collect(inner, &format!("{name}."), pairs, wrong);
                continue;
            }
            Value::List(_) => {
                wrong.append(&mut Wrong::hinted(
                    &entry.node,
                    format!("`{name}` takes one text"),
                ));
                continue;
            }
        };
        if name.contains('=') {
            wrong.push(Wrong {
                place: entry.origin.place.clone(),
                given: format!("`{}`", shorten(&name)),
                hint: "a name holds no `=`".to_owned(),
            });
            continue;
        }
        let origin = entry.node.origin.clone();
        pairs.push(Pair {
            name,
            value,
            quoted,
            origin,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::setting::testing::read;

    fn shown(yaml: &str) -> String {
        let pairs = read::<Pairs>(yaml).expect(yaml);
        let texts = pairs
            .iter()
            .map(|(name, value)| [name, "=", value, ";"].concat());
        texts.collect()
    }

    #[test]
    fn a_map_and_a_list_of_maps_are_the_same() {
        assert_eq!(
            shown("{APP_ENV: prod, debug: true, N: 1}"),
            "APP_ENV=prod;debug=true;N=1;"
        );
        assert_eq!(
            shown("\n  - APP_ENV: prod\n  - N: 1\n  - APP_ENV: dev"),
            "N=1;APP_ENV=dev;"
        );
        assert_eq!(
            shown("{a.b: 1, a.c: 2, EMPTY: , QUOTED: \"\"}"),
            "a.b=1;a.c=2;EMPTY=;QUOTED=;"
        );
        assert_eq!(shown("[]"), "");
        assert_eq!(shown("{}"), "");
    }

    #[test]
    fn what_is_no_text_is_refused() {
        for yaml in ["text", "[text]", "{A: [1]}", "\n  - {A: 1, B: 2}"] {
            assert!(read::<Pairs>(yaml).is_err(), "{yaml}");
        }
    }
}
