//! Lists: a YAML list, a text with commas, or a single value.

use super::{Setting, Shape, Shown, Wrong};
use crate::node::{Node, Text, Value};

impl<T: Setting> Setting for Vec<T> {
    fn example() -> String {
        format!("[{}]", T::example())
    }
    const EMPTY_IS_VALUE: bool = true;

    fn accepts() -> String {
        format!("a list; each: {}", T::accepts())
    }

    fn shape() -> Shape {
        Shape::List(Box::new(T::shape()))
    }

    fn read(node: &Node) -> Result<Self, Vec<Wrong>> {
        let items = match &node.value {
            Value::Null | Value::Map(_) => return Err(Wrong::value(node)),
            Value::List(items) => items.clone(),
            Value::Text(text) => split(text, node),
        };
        let (mut read, mut wrong) = (Self::new(), Vec::new());
        for item in &items {
            match T::read(item) {
                Ok(value) => read.push(value),
                Err(mut more) => wrong.append(&mut more),
            }
        }
        if wrong.is_empty() {
            Ok(read)
        } else {
            Err(wrong)
        }
    }

    fn show(&self) -> Shown {
        let texts = self.iter().map(|item| match item.show() {
            Shown::One(text) => text,
            Shown::List(texts) => texts.join(" "),
            Shown::Map(_) => String::new(),
        });
        Shown::List(texts.collect())
    }

    fn roadrunner(text: &str) -> Option<(&'static str, &'static str)> {
        let spaces = text.contains(", ") || text.contains(" ,");
        spaces.then_some(("spaces beside commas kept", "no name begins with a space"))
    }
}

fn split(text: &Text, node: &Node) -> Vec<Node> {
    let parts = text
        .text
        .split(',')
        .map(str::trim)
        .filter(|part| !part.is_empty());
    let item = |part: &str| Node {
        value: Value::Text(Text {
            text: part.to_owned(),
            quoted: text.quoted,
        }),
        origin: node.origin.clone(),
    };
    parts.map(item).collect()
}

#[cfg(test)]
mod tests {
    use crate::setting::testing::read;

    #[test]
    fn three_forms_are_one_list() {
        for yaml in [
            "[gzip, static]",
            "\"gzip,static\"",
            "gzip, static",
            "\n  - gzip\n  - static",
        ] {
            let read = read::<Vec<String>>(yaml);
            assert_eq!(
                read,
                Ok(vec!["gzip".to_owned(), "static".to_owned()]),
                "{yaml}"
            );
        }
        assert_eq!(read::<Vec<u16>>("7"), Ok(vec![7]));
        assert_eq!(read::<Vec<u16>>("\"\""), Ok(vec![]));
        assert_eq!(read::<Vec<String>>("[\"a,b\"]"), Ok(vec!["a,b".to_owned()]));
    }

    #[test]
    fn every_wrong_item_is_told() {
        let said = read::<Vec<u16>>("[1, x, 2, [3], y, null]");
        assert_eq!(said, Err("`x`; \na list; \n`y`; \nnothing; ".to_owned()));
        assert!(read::<Vec<u16>>("{a: 1}").is_err());
    }
}
