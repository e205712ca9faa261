//! One of a few words.

use super::{Setting, Shape, Shown, Wrong, text};
use crate::node::Node;
use crate::suggest::nearest;

/// An enum whose values have spellings.
pub trait Choice: Copy + PartialEq + 'static {
    /// Every spelling; the first of a value is the one that is shown.
    const CHOICES: &'static [(&'static str, Self)];

    /// Words for a value in other programs. They are refused, and the hint names the value's own.
    const ELSEWHERE: &'static [(&'static str, Self)] = &[];

    /// The value with this spelling, to the letter.
    fn spelled(text: &str) -> Option<Self> {
        let mut choices = Self::CHOICES.iter();
        choices
            .find(|(spelling, _)| *spelling == text)
            .map(|(_, value)| *value)
    }

    /// The spelling that is shown.
    fn spelling(self) -> &'static str {
        let mut choices = Self::CHOICES.iter();
        choices
            .find(|(_, value)| *value == self)
            .map_or("", |(spelling, _)| spelling)
    }
}

impl<T: Choice> Setting for T {
    fn example() -> String {
        T::CHOICES
            .first()
            .map_or_else(String::new, |(spelling, _)| (*spelling).to_owned())
    }

    fn accepts() -> String {
        let shown = |(i, (_, value)): &(usize, &(_, T))| {
            T::CHOICES
                .iter()
                .take(*i)
                .all(|(_, before)| before != value)
        };
        let first_spellings = T::CHOICES.iter().enumerate().filter(shown);
        let spelled: Vec<String> = first_spellings
            .map(|(_, (s, _))| format!("`{s}`"))
            .collect();
        spelled.join(", ")
    }

    fn shape() -> Shape {
        Shape::Words(T::CHOICES.iter().map(|(spelling, _)| *spelling).collect())
    }

    fn read(node: &Node) -> Result<Self, Vec<Wrong>> {
        let text = text(node)?;
        let found = T::CHOICES
            .iter()
            .find(|(spelling, _)| spelling.eq_ignore_ascii_case(text));
        found.map(|(_, value)| *value).ok_or_else(|| {
            let mut elsewhere = T::ELSEWHERE.iter();
            let meant = elsewhere.find(|(word, _)| word.eq_ignore_ascii_case(text));
            let meant = meant.map(|(_, value)| value.spelling());
            let spellings = T::CHOICES.iter().map(|(spelling, _)| *spelling);
            match meant.or_else(|| nearest(text, spellings)) {
                Some(near) => Wrong::hinted(node, format!("did you mean `{near}`?")),
                None => Wrong::value(node),
            }
        })
    }

    fn show(&self) -> Shown {
        Shown::One(self.spelling().to_owned())
    }
}
