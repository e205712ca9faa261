//! PHP's format of serialised values (`serialize()`), as text that a person can read.
//!
//! Nothing is made of it but text: objects are shown with the names of their classes, and no length
//! in it is believed before the bytes are there.

use std::fmt::Write as _;
use std::str::from_utf8;

use super::text::lines;

/// Deeper values are shown as they are kept.
const DEEPEST: usize = 64;

/// None where the bytes are something else, or not all of one value.
pub(super) fn readable(bytes: &[u8]) -> Option<String> {
    let mut reader = Reader {
        rest: bytes,
        out: String::new(),
    };
    reader.value(0)?;
    reader.rest.is_empty().then_some(reader.out)
}

struct Reader<'a> {
    rest: &'a [u8],
    out: String,
}

impl<'a> Reader<'a> {
    fn value(&mut self, depth: usize) -> Option<()> {
        match self.take(1)? {
            b"N" => {
                self.expect(b";")?;
                self.out.push_str("null");
            }
            b"b" => {
                let is_true = match self.number(b';')? {
                    "0" => false,
                    "1" => true,
                    _ => return None,
                };
                self.out.push_str(if is_true { "true" } else { "false" });
            }
            b"i" => {
                let number = self.number(b';')?;
                number.parse::<i64>().ok()?;
                self.out.push_str(number);
            }
            b"d" => {
                let number = self.number(b';')?;
                number.parse::<f64>().ok()?; // also `INF` and `NAN`
                self.out.push_str(number);
            }
            b"s" => {
                let text = self.text()?;
                self.expect(b";")?;
                self.quoted(text);
            }
            b"a" => {
                let count = self.count()?;
                self.entries(*b"[]", count, depth)?;
            }
            b"O" => {
                let class = self.text()?;
                self.name(class);
                self.out.push(' ');
                let count = self.count()?;
                self.entries(*b"{}", count, depth)?;
            }
            b"E" => {
                let case = from_utf8(self.text()?).ok()?;
                self.expect(b";")?;
                self.name(case.replacen(':', "::", 1).as_bytes());
            }
            // An object that writes itself in a way of its own.
            b"C" => {
                let class = self.text()?;
                self.name(class);
                let length: usize = self.number(b':')?.parse().ok()?;
                self.expect(b"{")?;
                self.take(length)?;
                self.expect(b"}")?;
                _ = write!(self.out, " {{{length} bytes of its own}}"); // a String takes all
            }
            b"r" | b"R" => {
                let number: u64 = self.number(b';')?.parse().ok()?;
                _ = write!(self.out, "(the same as value {number})"); // as above
            }
            _ => return None,
        }
        Some(())
    }

    /// Entries of an array or an object, one in a line.
    fn entries(&mut self, brackets: [u8; 2], count: usize, depth: usize) -> Option<()> {
        self.expect(b"{")?;
        let [open, close] = brackets.map(char::from);
        self.out.push(open);
        for _ in 0..count {
            self.line(depth + 1)?;
            self.key()?;
            self.out.push_str(" => ");
            self.value(depth + 1)?;
        }
        self.expect(b"}")?;
        if count > 0 {
            self.line(depth)?;
        }
        self.out.push(close);
        Some(())
    }

    fn line(&mut self, depth: usize) -> Option<()> {
        if depth > DEEPEST {
            return None;
        }
        self.out.push('\n');
        self.out.extend(std::iter::repeat_n("    ", depth));
        Some(())
    }

    /// A number or a text. Of a property that is not public, PHP puts the class before the name,
    /// between zeros.
    fn key(&mut self) -> Option<()> {
        match self.rest {
            [b'i', ..] => self.value(0),
            [b's', ..] => {
                self.take(1)?;
                let text = self.text()?;
                self.expect(b";")?;
                let name = match text {
                    [0, behind @ ..] => {
                        let end = behind.iter().position(|byte| *byte == 0)?;
                        behind.get(end + 1..)?
                    }
                    name => name,
                };
                self.quoted(name);
                Some(())
            }
            _ => None,
        }
    }

    /// `:5:"bytes"`
    fn text(&mut self) -> Option<&'a [u8]> {
        let length: usize = self.number(b':')?.parse().ok()?;
        self.expect(b"\"")?;
        let text = self.take(length)?;
        self.expect(b"\"")?;
        Some(text)
    }

    /// `:3:`
    fn count(&mut self) -> Option<usize> {
        self.number(b':')?.parse().ok()
    }

    /// `:12` and this sign.
    fn number(&mut self, end: u8) -> Option<&'a str> {
        self.expect(b":")?;
        let length = self.rest.iter().position(|byte| *byte == end)?;
        let number = from_utf8(self.take(length)?).ok()?;
        self.expect(&[end])?;
        Some(number)
    }

    fn expect(&mut self, what: &[u8]) -> Option<()> {
        (self.take(what.len())? == what).then_some(())
    }

    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(length)?;
        self.rest = rest;
        Some(taken)
    }

    fn quoted(&mut self, text: &[u8]) {
        let text = match from_utf8(text) {
            Ok(text) => lines(&text.replace('\\', "\\\\").replace('"', "\\\"")),
            Err(_) => text.escape_ascii().to_string(),
        };
        // A line of its own would look like an entry.
        let text = text.replace('\n', "\\n");
        _ = write!(self.out, "\"{text}\""); // a String takes all
    }

    fn name(&mut self, name: &[u8]) {
        let name = lines(&String::from_utf8_lossy(name)).replace('\n', " ");
        self.out.push_str(&name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_shown_as_a_person_writes_them() {
        for (kept, shown) in [
            ("N;", "null"),
            ("b:1;", "true"),
            ("i:-7;", "-7"),
            ("d:0.5;", "0.5"),
            ("d:-INF;", "-INF"),
            ("s:7:\"a \"\\\n\u{e9}\";", "\"a \\\"\\\\\\n\u{e9}\""),
            ("a:0:{}", "[]"),
            (
                "a:2:{s:4:\"name\";s:3:\"Ada\";i:7;a:1:{i:0;b:0;}}",
                "[\n    \"name\" => \"Ada\"\n    7 => [\n        0 => false\n    ]\n]",
            ),
            (
                "O:8:\"App\\User\":2:{s:2:\"id\";i:1;s:14:\"\0App\\User\0name\";R:2;}",
                "App\\User {\n    \"id\" => 1\n    \"name\" => (the same as value 2)\n}",
            ),
            ("E:11:\"Suit:Hearts\";", "Suit::Hearts"),
            ("C:3:\"Old\":4:{a:b;}", "Old {4 bytes of its own}"),
        ] {
            assert_eq!(readable(kept.as_bytes()).as_deref(), Some(shown), "{kept}");
        }
        let bytes = readable(b"s:2:\"\xff\x00\";").unwrap();
        assert_eq!(bytes, "\"\\xff\\x00\"");
        assert!(!readable(b"s:4:\"\x1b[2J\";").unwrap().contains('\u{1b}'));
    }

    #[test]
    fn what_is_no_whole_value_is_left_as_it_is() {
        let deep = format!("{}N;{}", "a:1:{i:0;".repeat(65), "}".repeat(65));
        for other in [
            "",
            "hello",
            "i:5",
            "i:5;i:6;",
            "i:five;",
            "b:2;",
            "s:99:\"short\";",
            "s:18446744073709551616:\"\";",
            "a:2:{i:0;N;}",
            "a:99999999999:{",
            "a:1:{N;N;}",
            "O:3:\"A\":0:{}",
            &deep,
        ] {
            assert_eq!(readable(other.as_bytes()), None, "{other}");
        }
    }
}
