//! `KEY=VALUE` files. Values are given back; the environment of the process is never changed.

use crate::diagnostic::Diagnostics;
use crate::expand::{Allowance, Expander};
use crate::load::Variables;
use crate::place::{Origin, Place};

/// Adds what `text` sets to `variables`, where those of before win; in the file, the last of a name
/// does.
///
/// A value may be bare (up to ` #`), in single quotes (as it stands) or in double quotes (with
/// `\n`, `\r`, `\t`, `\\`, `\"`, `\$`, over several lines). Bare and double quoted values may refer
/// to variables that are set already.
pub(crate) fn read(
    text: &str,
    file: &Place,
    variables: &mut Variables,
    allowance: &mut Allowance,
    diagnostics: &mut Diagnostics,
) {
    // Lines may end as on Windows, also those of a value in quotes.
    let unix = text.contains("\r\n").then(|| text.replace("\r\n", "\n"));
    let mut rest = unix.as_deref().unwrap_or(text);
    let mut line = 1;
    while !rest.is_empty() {
        let place = file.at(line, 1);
        let (taken, set) = statement(rest);
        match set {
            Ok(None) => {}
            Ok(Some((name, value))) => {
                let value = value.resolve(|text| {
                    let mut expander = Expander {
                        variables,
                        allowance,
                        diagnostics,
                        differences: &mut Vec::new(),
                    };
                    expander.text(text, name, &mut Origin::new(place.clone()))
                });
                variables.add(name, value);
            }
            Err(problem) => diagnostics.error(&place, problem, "write `NAME=value`"),
        }
        let (done, left) = rest.split_at(taken);
        line += done.matches('\n').count();
        rest = left;
    }
    variables.settle();
}

enum Quoted<'t> {
    Bare(&'t str),
    Single(&'t str),
    Double(&'t str),
}

impl Quoted<'_> {
    fn resolve(&self, expand: impl FnOnce(&str) -> String) -> String {
        match self {
            Self::Single(text) => (*text).to_owned(),
            Self::Bare(text) => expand(text),
            Self::Double(text) => expand(&unescape(text)),
        }
    }
}

/// The bytes the first statement takes, with its line end, and what it sets.
type Statement<'t> = (usize, Result<Option<(&'t str, Quoted<'t>)>, &'static str>);

fn statement(text: &str) -> Statement<'_> {
    let line = text.split_inclusive('\n').next().unwrap_or_default();
    let trimmed = line.trim();
    if trimmed.is_empty() || trimmed.starts_with('#') {
        return (line.len(), Ok(None));
    }
    let Some((before, after)) = line.split_once('=') else {
        return (line.len(), Err("no `=` in this line"));
    };
    let name = before.trim();
    let exported = name.strip_prefix("export");
    let exported = exported.filter(|rest| rest.starts_with([' ', '\t']));
    let name = exported.map_or(name, str::trim_start);
    if !is_name(name) {
        return (
            line.len(),
            Err("what stands before `=` is no variable name"),
        );
    }
    let indent = after.len() - after.trim_start_matches([' ', '\t']).len();
    let value_at = before.len() + 1 + indent;
    let (_, value) = text.split_at(value_at);
    if let Some(quote @ ('\'' | '"')) = value.chars().next() {
        let quoted = value.strip_prefix(quote).unwrap_or_default();
        let Some(length) = closing(quoted, quote) else {
            return (
                line.len(),
                Err("the quote at the value's begin is never closed"),
            );
        };
        let (inside, left) = quoted.split_at(length);
        let tail = left.split_inclusive('\n').next().unwrap_or_default();
        let taken = value_at + 1 + length + tail.len();
        let after = tail.strip_prefix(quote).unwrap_or_default().trim();
        if !after.is_empty() && !after.starts_with('#') {
            return (taken, Err("text after the closing quote"));
        }
        let inside = match quote {
            '"' => Quoted::Double(inside),
            _ => Quoted::Single(inside),
        };
        return (taken, Ok(Some((name, inside))));
    }
    // A comment begins behind a space.
    let comment = after.match_indices('#').find(|(at, _)| {
        after
            .get(..*at)
            .is_some_and(|before| before.ends_with([' ', '\t']))
    });
    let bare = comment.map_or(after, |(at, _)| after.get(..at).unwrap_or(after));
    let bare = bare.trim();
    (line.len(), Ok(Some((name, Quoted::Bare(bare)))))
}

/// Where the closing quote is; a backslash guards the next character in double quotes.
fn closing(text: &str, quote: char) -> Option<usize> {
    let mut guarded = false;
    for (at, c) in text.char_indices() {
        if guarded {
            guarded = false;
        } else if c == '\\' && quote == '"' {
            guarded = true;
        } else if c == quote {
            return Some(at);
        }
    }
    None
}

fn unescape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        if c != '\\' {
            out.push(c);
            continue;
        }
        match chars.next() {
            Some('n') => out.push('\n'),
            Some('r') => out.push('\r'),
            Some('t') => out.push('\t'),
            // Expanded after this: a dollar sign stays one by being doubled.
            Some('$') => out.push_str("$$"),
            Some(c @ ('\\' | '"')) => out.push(c),
            Some(c) => out.extend(['\\', c]),
            None => out.push('\\'),
        }
    }
    out
}

fn is_name(name: &str) -> bool {
    let letter = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '.';
    !name.is_empty() && name.chars().all(letter) && !name.starts_with(|c: char| c.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_all(text: &str) -> (Vec<(String, String)>, Vec<String>) {
        let home = ("HOME".to_owned(), "/root".to_owned());
        let mut variables = Variables::new([home].into());
        let (mut allowance, mut diagnostics) = (Allowance::default(), Diagnostics::default());
        let file = Place::file(0, ".env");
        read(
            text,
            &file,
            &mut variables,
            &mut allowance,
            &mut diagnostics,
        );
        let said = diagnostics.0.iter().map(ToString::to_string).collect();
        (variables.into_added().into_iter().collect(), said)
    }

    #[test]
    fn every_form_of_a_value_is_read() {
        let text = r#"
# a comment
APP_NAME=Shop
export APP_ENV = production   # trailing
EMPTY=
HASH=a#b
SINGLE='a $HOME "b" # c'   # trailing
DOUBLE="${APP_NAME} says \"hi\"\n\$5"
LINES="one
two"
AFTER=$APP_NAME
"#;
        let (set, said) = read_all(text);
        assert_eq!(said, [] as [&str; 0]);
        let set: Vec<(&str, &str)> = set.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
        assert_eq!(
            set,
            [
                ("AFTER", "Shop"),
                ("APP_ENV", "production"),
                ("APP_NAME", "Shop"),
                ("DOUBLE", "Shop says \"hi\"\n$5"),
                ("EMPTY", ""),
                ("HASH", "a#b"),
                ("LINES", "one\ntwo"),
                ("SINGLE", "a $HOME \"b\" # c"),
            ]
        );
    }

    #[test]
    fn files_of_other_editors_are_read_as_well() {
        let (set, said) = read_all(
            "A=1\r\nexport\tB = 2\t# x\r\nC=\"a\r\nb\"\r\nD='x'\r\nexport E=\r\nF=#1\r\n\r\n# c\r\nG=a\tb # c\r\nexported=1\r\nH=é #ü",
        );
        assert_eq!(said, [] as [&str; 0]);
        let set: Vec<(&str, &str)> = set.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
        assert_eq!(
            set,
            [
                ("A", "1"),
                ("B", "2"),
                ("C", "a\nb"),
                ("D", "x"),
                ("E", ""),
                ("F", "#1"),
                ("G", "a\tb"),
                ("H", "é"),
                ("exported", "1"),
            ]
        );
    }

    #[test]
    fn what_is_set_already_wins() {
        assert_eq!(read_all("HOME=/elsewhere\n").0, []);
        let (set, _) = read_all("A=1\nA=2\n");
        assert_eq!(set, [("A".to_owned(), "2".to_owned())]);
    }

    #[test]
    fn doubling_line_by_line_ends() {
        let text = format!("A={}\n{}", "x".repeat(1000), "A=$A$A\n".repeat(100));
        let (set, said) = read_all(&text);
        assert!(set.iter().all(|(_, value)| value.len() < 8 << 20));
        assert!(
            said.first()
                .is_some_and(|first| first.contains("more than")),
            "{said:?}"
        );
    }

    #[test]
    fn mistakes_have_their_line() {
        let (_, said) = read_all("A=1\nnonsense\n1X=2\nB=\"open\nC='a' b\nD=3");
        assert_eq!(
            said,
            [
                "error: .env:2:1: no `=` in this line\nhint: write `NAME=value`",
                "error: .env:3:1: what stands before `=` is no variable name\nhint: write `NAME=value`",
                "error: .env:4:1: the quote at the value's begin is never closed\nhint: write `NAME=value`",
                "error: .env:5:1: text after the closing quote\nhint: write `NAME=value`",
            ]
        );
    }
}
