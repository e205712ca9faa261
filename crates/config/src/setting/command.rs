//! A program and its arguments.

use std::fmt;

use super::{Setting, Shape, Shown, Wrong, shell};
use crate::node::{Node, Value};
use crate::secret::masked_words;

/// A program and its arguments. Never empty; no shell is involved.
///
/// A list is taken as it stands. A text is split at commas as RoadRunner does, which is what
/// `-o server.command=php,app/worker.php` needs, but not when its first part holds a space: then,
/// and without commas, it is split at spaces. Quotes keep spaces and commas together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command {
    program: String,
    arguments: Vec<String>,
}

impl Command {
    /// The first of `argv` is the program; None when there is none.
    pub fn new(argv: impl IntoIterator<Item = String>) -> Option<Self> {
        let mut argv = argv.into_iter();
        let program = argv.next().filter(|program| !program.is_empty())?;
        Some(Self {
            program,
            arguments: argv.collect(),
        })
    }

    /// A path, or a name to look up in `PATH`.
    pub fn program(&self) -> &str {
        &self.program
    }

    /// What follows the program.
    pub fn arguments(&self) -> &[String] {
        &self.arguments
    }

    /// Why its first word is no program, and a step that mends it, where a shell would understand
    /// the word. Values of variables are not shown.
    pub fn needs_shell(&self) -> Option<(String, String)> {
        let words = || std::iter::once(&self.program).chain(&self.arguments);
        let variables = words().map_while(|word| shell::variable(word));
        let variables: Vec<_> = variables.collect();
        let (first, hint) = if let Some(first) = variables.first() {
            let rest = Self::new(words().skip(variables.len()).cloned());
            let rest = rest.map_or_else(|| "the program".to_owned(), |rest| format!("`{rest}`"));
            let hint = format!(
                "write {rest}, and `{}` below `env` of the section, or of `server` if the section \
                 has none",
                variables.join("` and `")
            );
            (format!("{first}="), hint)
        } else if shell::is_builtin(&self.program) {
            let hint = shell::by_shell(&self.to_string());
            (self.program.clone(), hint)
        } else {
            return None;
        };
        let message =
            format!("begins with `{first}`, which is no program: no shell runs the command");
        Some((message, hint))
    }
}

impl Setting for Command {
    fn example() -> String {
        "php worker.php".to_owned()
    }

    fn accepts() -> String {
        "a command, or a list of its parts".to_owned()
    }

    fn shape() -> Shape {
        Shape::List(Box::new(Shape::Text))
    }

    fn read(node: &Node) -> Result<Self, Vec<Wrong>> {
        let argv = match &node.value {
            Value::Null | Value::Map(_) => return Err(Wrong::value(node)),
            Value::List(items) => {
                let text = |item: &Node| item.text().map(ToOwned::to_owned);
                let parts: Option<Vec<String>> = items.iter().map(text).collect();
                parts.ok_or_else(|| Wrong::hinted(node, "each part of the list is a text"))?
            }
            Value::Text(text) => {
                let from_override = node.origin.place.is_override();
                split(text.text.trim(), from_override).map_err(|hint| Wrong::hinted(node, hint))?
            }
        };
        Self::new(argv).ok_or_else(|| Wrong::hinted(node, "name a program first"))
    }

    fn show(&self) -> Shown {
        let argv = std::iter::once(&self.program).chain(&self.arguments);
        Shown::List(argv.cloned().collect())
    }

    fn doubt(text: &str, has_variables: bool) -> Option<(String, String)> {
        shell_syntax(text, has_variables)
    }

    fn roadrunner(text: &str) -> Option<(&'static str, &'static str)> {
        let parts = text.split(',').count();
        if text.contains(['"', '\'']) {
            Some((
                "split at every space, quotes kept",
                "quotes keep words together",
            ))
        } else if parts > 1 && text.contains(' ') {
            Some((
                "split at commas alone, spaces kept",
                "a comma may be part of an argument",
            ))
        } else if text.trim() != text || text.contains("  ") {
            Some((
                "an empty argument for each extra space",
                "nobody means that",
            ))
        } else {
            None
        }
    }
}

/// The parts with spaces between, quoted where they hold one, and without passwords: for messages.
impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.program)?;
        let arguments = masked_words(self.arguments.iter().map(String::as_str));
        arguments.iter().try_for_each(|part| {
            let is_quoted = part.contains('"');
            if is_quoted && !part.contains('\'') {
                write!(f, " '{part}'")
            } else if is_quoted {
                let escaped = part.replace('\\', "\\\\").replace('"', "\\\"");
                write!(f, " \"{escaped}\"")
            } else if part.is_empty() || part.contains(|c: char| c.is_whitespace() || c == '\'') {
                write!(f, " \"{part}\"")
            } else {
                write!(f, " {part}")
            }
        })
    }
}

/// A [`Command`] whose text is cut at spaces alone: a comma is a letter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpacedCommand(pub Command);

impl Setting for SpacedCommand {
    fn example() -> String {
        "php artisan queue:work".to_owned()
    }

    fn accepts() -> String {
        Command::accepts()
    }

    fn shape() -> Shape {
        Command::shape()
    }

    fn read(node: &Node) -> Result<Self, Vec<Wrong>> {
        let Value::Text(text) = &node.value else {
            return Command::read(node).map(Self);
        };
        let argv = split_quoted(&text.text).map_err(|hint| Wrong::hinted(node, hint))?;
        let command = Command::new(argv);
        let command = command.ok_or_else(|| Wrong::hinted(node, "name a program first"))?;
        Ok(Self(command))
    }

    fn show(&self) -> Shown {
        self.0.show()
    }

    fn doubt(text: &str, has_variables: bool) -> Option<(String, String)> {
        shell_syntax(text, has_variables)
    }

    fn roadrunner(text: &str) -> Option<(&'static str, &'static str)> {
        Command::roadrunner(text).filter(|_| text.contains(['"', '\'']) || !text.contains(','))
    }
}

impl SpacedCommand {
    /// A command in a text that comes from elsewhere than a configuration.
    ///
    /// # Errors
    /// The mistake in it.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        let command = Command::new(split_quoted(text)?);
        command.map(Self).ok_or("it names no program")
    }
}

fn split(text: &str, from_override: bool) -> Result<Vec<String>, &'static str> {
    if text.contains(['"', '\'']) {
        return split_quoted(text);
    }
    let by_comma: Vec<String> = text.split(',').map(|part| part.trim().to_owned()).collect();
    let one_word = by_comma
        .first()
        .is_some_and(|first| !first.contains(char::is_whitespace));
    if by_comma.len() > 1 && (from_override || one_word) {
        Ok(by_comma)
    } else {
        Ok(text.split_whitespace().map(ToOwned::to_owned).collect())
    }
}

fn split_quoted(text: &str) -> Result<Vec<String>, &'static str> {
    let words = shell::split(text)?.into_iter();
    Ok(words.map(|word| word.text).collect())
}

/// Syntax of a shell in a command's text, which the server takes for arguments: words that go on
/// after the key, and a step that mends it. Quoted words are believed; passwords are not shown, nor
/// any word of a text that has values of variables.
pub fn shell_syntax(text: &str, has_variables: bool) -> Option<(String, String)> {
    let words = shell::split(text).ok()?;
    let shown = masked_words(words.iter().map(|word| &*word.text));
    shell::syntax(&words, Some(&*shown).filter(|_| !has_variables))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::setting::testing::read;

    fn argv(yaml: &str) -> Vec<String> {
        match read::<Command>(yaml).expect(yaml).show() {
            Shown::List(argv) => argv,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn texts_and_lists_become_arguments() {
        for (yaml, expected) in [
            ("php worker.php", vec!["php", "worker.php"]),
            ("php   worker.php -x ", vec!["php", "worker.php", "-x"]),
            ("php,app/worker.php,-x", vec!["php", "app/worker.php", "-x"]),
            (
                "\"php, app/my worker.php\"",
                vec!["php", "app/my worker.php"],
            ),
            (
                "php worker.php --queues=high,low",
                vec!["php", "worker.php", "--queues=high,low"],
            ),
            ("[php, my worker.php]", vec!["php", "my worker.php"]),
            ("[php, \"a,b\", \"\", 3]", vec!["php", "a,b", "", "3"]),
            (
                "php \"my worker.php\" '' -d'a b'=1",
                vec!["php", "my worker.php", "", "-da b=1"],
            ),
            (r#"'php "a \"b\" \\ \n"'"#, vec!["php", r#"a "b" \ \n"#]),
            (
                "php --kernel=App\\Kernel",
                vec!["php", "--kernel=App\\Kernel"],
            ),
        ] {
            assert_eq!(argv(yaml), expected, "{yaml}");
        }
    }

    #[test]
    fn a_comma_is_a_letter_where_spaces_alone_separate() {
        for (yaml, expected) in [
            ("php,a b", vec!["php,a", "b"]),
            (
                "php  artisan x --queue=high,low",
                vec!["php", "artisan", "x", "--queue=high,low"],
            ),
            ("sh -c 'a b, c'", vec!["sh", "-c", "a b, c"]),
            ("[a, b c]", vec!["a", "b c"]),
        ] {
            let read = read::<SpacedCommand>(yaml).expect(yaml);
            assert_eq!(
                read.show(),
                Shown::List(expected.into_iter().map(Into::into).collect())
            );
        }
        for yaml in ["''", "it's", "[]", "{a: b}"] {
            assert!(read::<SpacedCommand>(yaml).is_err(), "{yaml}");
        }
        assert!(SpacedCommand::roadrunner("a, b").is_none());
        assert!(SpacedCommand::roadrunner("a 'b'").is_some());
        assert_eq!(SpacedCommand::parse("  "), Err("it names no program"));
    }

    #[test]
    fn a_shown_command_reads_as_the_same_command() {
        for argv in [
            &["sh", "-c", "trap \"\" INT; echo it's"][..],
            &["sh", "-c", "echo \"a  b\" \\"],
            &["sh", "-c", "echo 'a b'"],
            &["php", "it's", "", "a b"],
        ] {
            let command = Command::new(argv.iter().map(ToString::to_string)).unwrap();
            let again = SpacedCommand::parse(&command.to_string());
            assert_eq!(again, Ok(SpacedCommand(command)), "{argv:?}");
        }
    }

    #[test]
    fn commas_of_an_override_always_separate() {
        assert_eq!(
            split("/my php/php,w.php", true),
            Ok(vec!["/my php/php".into(), "w.php".into()])
        );
    }

    #[test]
    fn a_command_needs_a_program_and_closed_quotes() {
        for yaml in ["[]", "[\"\"]", "',php'", "{a: b}", "[[php]]", "php it's"] {
            assert!(read::<Command>(yaml).is_err(), "{yaml}");
        }
        assert_eq!(
            read::<Command>("[a, b c, \"\"]").map(|c| c.to_string()),
            Ok("a \"b c\" \"\"".into())
        );
    }

    #[test]
    fn syntax_of_shells_is_found_outside_of_quotes() {
        for (text, word) in [
            ("php a.php | tee x", "|"),
            ("php a.php && php b.php", "&&"),
            ("php a.php ; php b.php", ";"),
            ("php a.php; php b.php", "a.php;"),
            ("php a.php >/dev/null 2>&1", ">/dev/null"),
            ("php a.php 2>&1", "2>&1"),
            ("php a.php &>x", "&>x"),
            ("php a.php < in", "<"),
            ("php a.php $(date)", "$(date)"),
            ("php a.php `date`", "`date`"),
            ("php a.php &", "&"),
            ("sh -c a && b", "&&"),
        ] {
            let (message, _) = shell_syntax(text, false).expect(text);
            assert!(
                message.starts_with(&format!("has `{word}`,")),
                "{text}: {message}"
            );
        }
        for text in [
            "php a.php",
            "sh -c 'a | b > c; d &'",
            "grep '|' a",
            "find . -name x -exec rm {} ;",
            "php a.php --where=a>b --or=a|b a&b 10>",
            "cd /tmp && php a.php",
            "",
        ] {
            assert_eq!(shell_syntax(text, false), None, "{text}");
        }
    }

    #[test]
    fn the_hint_is_what_to_type() {
        let hint = |text: &str| shell_syntax(text, false).expect(text).1;
        assert_eq!(hint(" php a | tee x"), "write `sh -c 'php a | tee x'`");
        assert!(hint("php 'a b' | tee x").starts_with("write a list"));
        assert!(hint("sh -c a | b").starts_with("put the text after `-c`"));
        assert!(hint("php a.php &").starts_with("remove it"));
        assert_eq!(hint("sh -c php t.php"), "write `sh -c 'php t.php'`");
        assert_eq!(
            hint("/bin/bash -lc php t.php a"),
            "write `/bin/bash -lc 'php t.php a'`"
        );
        for text in [
            "sh -c 'php t.php'",
            "sh -c 'echo $0' a",
            "sh -c php",
            "sh t.php a b",
        ] {
            assert_eq!(shell_syntax(text, false), None, "{text}");
        }
        assert_eq!(hint("sh a | b"), "write `sh -c 'sh a | b'`");
        for text in [
            "sh x hush | tee y",
            "sh x >hush",
            "sh x ;hush;",
            "sh -c hush | y",
            "sh -c hush x",
        ] {
            let (message, hint) = shell_syntax(text, true).expect(text);
            assert!(
                !format!("{message} {hint}").contains("hush"),
                "{message}: {hint}"
            );
        }

        let needs = |text: &str| SpacedCommand::parse(text).expect(text).0.needs_shell();
        let hint = |text: &str| needs(text).expect(text).1;
        assert_eq!(hint("cd /a && php b"), "write `sh -c 'cd /a && php b'`");
        let said = needs("A_KEY=hush B=1 php b --password=hush c").expect("variables");
        assert!(said.0.starts_with("begins with `A_KEY=`,"), "{said:?}");
        assert!(
            said.1
                .starts_with("write `php b --password=*** c`, and `A_KEY` and `B` below `env`"),
            "{said:?}"
        );
        let said = shell_syntax("mysql --password=hush | cat", false).expect("a pipe");
        assert_eq!(said.1, "write `sh -c 'mysql --password=*** | cat'`");
        for text in ["php a=b", "./a=b", "cdx", "1a=b c"] {
            assert_eq!(needs(text), None, "{text}");
        }
    }
}
