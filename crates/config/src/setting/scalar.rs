//! Numbers, yes and no, text, paths.

use std::path::PathBuf;

use super::{Setting, Shape, Shown, Wrong, text};
use crate::node::Node;

macro_rules! whole_numbers {
    ($($type:ty),*) => {$(
        impl Setting for $type {
            fn example() -> String {
"4".to_owned()
}

            fn accepts() -> String {
                "a whole number".to_owned()
            }

            fn shape() -> Shape {
                Shape::Number
            }

            fn read(node: &Node) -> Result<Self, Vec<Wrong>> {
                let text = text(node)?;
                if has_octal_look(text) {
                    return Err(Wrong::hinted(node, OCTAL));
                }
                text.parse().map_err(|_| Wrong::value(node))
            }

            fn show(&self) -> Shown {
                Shown::One(self.to_string())
            }

            fn is_zero(&self) -> bool {
                *self == 0
            }
        }
    )*};
}

whole_numbers!(u8, u16, u32, u64, usize, i32, i64);

const OCTAL: &str = "remove the leading zero: RoadRunner reads such a number as octal";

fn has_octal_look(text: &str) -> bool {
    text.len() > 1 && text.starts_with('0') && text.bytes().all(|b| b.is_ascii_digit())
}

impl Setting for bool {
    fn example() -> String {
        "true".to_owned()
    }

    fn accepts() -> String {
        "`true` or `false`".to_owned()
    }

    fn shape() -> Shape {
        Shape::Bool
    }

    fn read(node: &Node) -> Result<Self, Vec<Wrong>> {
        match text(node)?.to_ascii_lowercase().as_str() {
            "true" | "t" | "1" | "yes" | "y" | "on" => Ok(true),
            "false" | "f" | "0" | "no" | "n" | "off" => Ok(false),
            _ => Err(Wrong::value(node)),
        }
    }

    fn show(&self) -> Shown {
        Shown::One(self.to_string())
    }

    fn roadrunner(text: &str) -> Option<(&'static str, &'static str)> {
        let words = ["yes", "no", "on", "off", "y", "n"];
        let yamls = words.iter().any(|word| text.eq_ignore_ascii_case(word));
        yamls.then_some(("refused", "YAML's older words for it"))
    }
}

impl Setting for String {
    fn example() -> String {
        "text".to_owned()
    }

    fn accepts() -> String {
        "a text".to_owned()
    }

    fn read(node: &Node) -> Result<Self, Vec<Wrong>> {
        node.text()
            .map(ToOwned::to_owned)
            .ok_or_else(|| Wrong::value(node))
    }

    fn show(&self) -> Shown {
        Shown::One(self.clone())
    }
}

impl Setting for PathBuf {
    fn example() -> String {
        "/srv/app".to_owned()
    }

    fn accepts() -> String {
        "a path".to_owned()
    }

    fn read(node: &Node) -> Result<Self, Vec<Wrong>> {
        text(node).map(Self::from)
    }

    fn show(&self) -> Shown {
        Shown::One(self.display().to_string())
    }
}

#[cfg(test)]
mod tests {
    use crate::setting::testing::read;

    #[test]
    fn numbers_may_be_quoted_but_must_be_whole() {
        for yaml in ["7", "\"7\"", "' 7 '", "+7"] {
            assert_eq!(read::<u64>(yaml), Ok(7), "{yaml}");
        }
        for yaml in [
            "-1",
            "7.0",
            "1e3",
            "0x10",
            "seven",
            "[7]",
            "{a: 7}",
            "18446744073709551616",
        ] {
            assert!(read::<u64>(yaml).is_err(), "{yaml}");
        }
        assert_eq!(read::<u16>("65536"), Err("`65536`; ".to_owned()));
        assert!(read::<u16>("010").is_err_and(|e| e.contains("octal")));
        assert_eq!(read::<u16>("0"), Ok(0));
    }

    #[test]
    fn yes_and_no_have_roadrunners_spellings_and_yamls() {
        for yaml in [
            "true", "True", "\"true\"", "1", "t", "yes", "on", "y", "On", "YES",
        ] {
            assert_eq!(read::<bool>(yaml), Ok(true), "{yaml}");
        }
        for yaml in ["false", "FALSE", "0", "no", "off", "n", "Off", "NO"] {
            assert_eq!(read::<bool>(yaml), Ok(false), "{yaml}");
        }
        for yaml in ["2", "maybe", "[true]"] {
            assert!(read::<bool>(yaml).is_err(), "{yaml}");
        }
    }
}
