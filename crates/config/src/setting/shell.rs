//! The words of a command's text, and syntax of shells among them. No shell runs commands.

/// A word of a command's text.
#[derive(Default)]
pub(super) struct Word {
    pub(super) text: String,
    /// A part of it is in quotes.
    is_quoted: bool,
}

/// Commands of shells alone.
const BUILTINS: [&str; 7] = ["cd", "exec", "export", "set", "source", "ulimit", "unset"];
/// Words between commands.
const OPERATORS: [&str; 6] = ["|", "||", "|&", "&", "&&", ";"];
/// Programs that run the text after `-c`.
const SHELLS: [&str; 4] = ["sh", "bash", "dash", "zsh"];

/// As a shell splits, but without its other meanings: a backslash is special in double quotes only,
/// before `"` and `\`.
pub(super) fn split(text: &str) -> Result<Vec<Word>, &'static str> {
    let mut words = Vec::new();
    let mut word: Option<Word> = None;
    let mut quote = None;
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (Some('"'), '\\') if chars.peek().is_some_and(|next| matches!(next, '"' | '\\')) => {
                word.get_or_insert_default().text.extend(chars.next());
            }
            (None, '"' | '\'') => {
                quote = Some(c);
                word.get_or_insert_default().is_quoted = true;
            }
            (None, c) if c.is_whitespace() => words.extend(word.take()),
            (_, c) => word.get_or_insert_default().text.push(c),
        }
    }
    words.extend(word);
    match quote {
        None => Ok(words),
        Some(_) => Err("a quote is not closed; a list of the parts needs no quotes"),
    }
}

/// Syntax of a shell among words, which is an argument here: words that go on after the key, and a
/// step that mends it. Quoted words are believed. `shown` are the words as they may be shown, where
/// they may.
pub(super) fn syntax(words: &[Word], shown: Option<&[String]>) -> Option<(String, String)> {
    let program = &words.first()?.text;
    if is_builtin(program) || variable(program).is_some() {
        return None; // there is no such program, which `Command::needs_shell` explains
    }
    let syntax = |word: &Word| !word.is_quoted && is_syntax(&word.text);
    let Some(at) = words.iter().position(syntax) else {
        return cut_off(words, shown);
    };
    let is_last = at + 1 == words.len();
    let found = &words.get(at)?.text;
    if is_last && found == ";" {
        return None; // `find -exec` ends with it
    }
    let syntax = match shown {
        Some(shown) => format!("`{}`", shown.get(at)?),
        None if OPERATORS.contains(&&**found) => format!("`{found}`"),
        None => "syntax of a shell".to_owned(),
    };
    let message = format!("has {syntax}, which is an argument: no shell runs the command");
    let has_text = words.iter().any(is_before_text);
    let hint = if is_shell(program) && has_text {
        "put the text after `-c` into quotes".to_owned()
    } else if is_last && found == "&" {
        "remove it: commands run beside the server in any case".to_owned()
    } else if words.iter().any(|word| word.is_quoted) {
        "write a list: `[sh, -c, \"…\"]`, with the text as its last item".to_owned()
    } else {
        by_shell(&shown.map_or_else(|| "…".to_owned(), |shown| shown.join(" ")))
    };
    Some((message, hint))
}

/// A shell whose text has lost its quotes: it runs the first word alone.
fn cut_off(words: &[Word], shown: Option<&[String]>) -> Option<(String, String)> {
    let [shell, option, text, _, ..] = words else {
        return None;
    };
    let is_text = is_before_text(option);
    let is_one_word = !text.is_quoted && !text.text.contains(char::is_whitespace);
    if !is_shell(&shell.text) || !is_text || !is_one_word {
        return None;
    }
    let Some(shown) = shown else {
        let message = "has no quotes after `-c`: the shell runs one word without its arguments";
        return Some((message.to_owned(), by_shell("…")));
    };
    let (before, after) = shown.split_at_checked(2)?;
    let (shell, first) = (shell.text.as_str(), after.first()?);
    let message =
        format!("has no quotes after `-c`: `{shell}` runs `{first}` without its arguments");
    let hint = format!("write `{} '{}'`", before.join(" "), after.join(" "));
    Some((message, hint))
}

/// `-c`, or `-lc`.
fn is_before_text(word: &Word) -> bool {
    word.text.starts_with('-') && word.text.ends_with('c')
}

fn is_shell(program: &str) -> bool {
    let name = program.rsplit('/').next().unwrap_or_default();
    SHELLS.contains(&name)
}

/// The step for a command that needs a shell.
pub(super) fn by_shell(text: &str) -> String {
    format!("write `sh -c '{text}'`")
}

/// Whether it is a command of shells alone.
pub(super) fn is_builtin(word: &str) -> bool {
    BUILTINS.contains(&word)
}

/// The name of the variable that a shell would set by this word.
pub(super) fn variable(word: &str) -> Option<&str> {
    let (name, _) = word.split_once('=')?;
    let mut letters = name.chars();
    let begins = letters.next()?;
    let is_name = (begins.is_ascii_alphabetic() || begins == '_')
        && letters.all(|c| c.is_ascii_alphanumeric() || c == '_');
    is_name.then_some(name)
}

fn is_syntax(word: &str) -> bool {
    let digits = word.trim_start_matches(|c: char| c.is_ascii_digit());
    let is_redirection = word.len() - digits.len() <= 1 && digits.starts_with(['<', '>']);
    OPERATORS.contains(&word)
        || is_redirection
        || word.starts_with("&>")
        || (word.len() > 1 && word.ends_with(';'))
        || word.contains("$(")
        || word.contains('`')
}
