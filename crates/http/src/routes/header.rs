//! Header fields, by regular expressions.

use pronghorn_config::{Node, Pair, Pairs, Setting, Shape, Shown, Text, Value, Wrong};
use pronghorn_wire::Fields;
use regex::bytes::Regex;

use super::method::is_token;
use crate::expression;
use crate::samples::samples;

/// A field with a value in which the expression is found. A request without it has an empty one: a
/// route for `^$` gets both.
#[derive(Debug, Clone)]
pub struct HeaderPattern {
    /// In lower case.
    name: String,
    value: Regex,
    written: Pair,
}

/// All of these.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct HeaderPatterns(pub Vec<HeaderPattern>);

impl PartialEq for HeaderPattern {
    fn eq(&self, other: &Self) -> bool {
        (&self.name, &self.written.value) == (&other.name, &other.written.value)
    }
}

impl HeaderPatterns {
    /// `closes`: they decide who is kept out. Of several fields of one name, one is enough for
    /// that; who is let in has no other, neither alone nor as PHP sees them, with commas between.
    pub(super) fn match_all(&self, fields: &Fields, closes: bool) -> bool {
        self.0.iter().all(|pattern| {
            let mut values = fields.all(&pattern.name);
            let found = |value: &[u8]| pattern.value.is_match(value);
            let (first, second) = (values.next(), values.next());
            if second.is_none() {
                return found(first.unwrap_or_default());
            }
            let all: Vec<&[u8]> = fields.all(&pattern.name).collect();
            let between: &[u8] = match pattern.name.as_str() {
                "cookie" => b"; ",
                _ => b", ",
            };
            let joined = all.join(between);
            let mut all = all.into_iter().chain([&joined[..]]);
            if closes {
                all.any(found)
            } else {
                all.all(found)
            }
        })
    }

    /// Fields that match, if some are found.
    pub(super) fn sample(&self) -> Option<Fields> {
        let mut fields = Fields::new();
        for pattern in self.0.iter().filter(|it| !it.value.is_match(b"")) {
            let texts = samples(pattern.value.as_str());
            let text = texts.iter().find(|text| pattern.value.is_match(text))?;
            fields.push(pattern.name.clone(), &text[..]);
        }
        self.match_all(&fields, false).then_some(fields)
    }
}

impl HeaderPattern {
    fn compile(pair: Pair) -> Result<Self, String> {
        if pair.name.is_empty() || !pair.name.bytes().all(is_token) {
            return Err(format!("`{}` is no field's name", pair.name));
        }
        if pair.name.contains('_') {
            return Err(format!(
                "`{}` never arrives: fields whose names have an underscore are dropped",
                pair.name
            ));
        }
        let value = expression::compile(&pair.value)?;
        Ok(Self {
            name: pair.name.to_ascii_lowercase(),
            value,
            written: pair,
        })
    }
}

impl Setting for HeaderPatterns {
    fn example() -> String {
        "{X-Tier: ^gold$}".to_owned()
    }

    fn accepts() -> String {
        "names of fields with regular expressions".to_owned()
    }

    fn shape() -> Shape {
        Shape::Pairs
    }

    fn read(node: &Node) -> Result<Self, Vec<Wrong>> {
        let (mut patterns, mut wrong) = (Vec::new(), Vec::new());
        for pair in Pairs::read(node)?.0 {
            let text = Text {
                text: pair.value.clone(),
                quoted: true,
            };
            let node = Node {
                value: Value::Text(text),
                origin: pair.origin.clone(),
            };
            match HeaderPattern::compile(pair) {
                Ok(pattern) => patterns.push(pattern),
                Err(hint) => wrong.append(&mut Wrong::hinted(&node, hint)),
            }
        }
        if wrong.is_empty() {
            Ok(Self(patterns))
        } else {
            Err(wrong)
        }
    }

    fn show(&self) -> Shown {
        Shown::Map(
            self.0
                .iter()
                .map(|pattern| pattern.written.clone())
                .collect(),
        )
    }
}
