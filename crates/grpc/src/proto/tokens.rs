//! A `.proto` file as tokens with their lines.

use thiserror::Error;

/// Why a file is no `.proto` file.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("line {line}: {what}")]
pub(crate) struct SyntaxError {
    pub(crate) line: usize,
    pub(crate) what: String,
}

/// A token without its value where nobody needs that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Token {
    /// A name, with its dots; also a number.
    Name(String),
    Text(String),
    Symbol(char),
}

/// Tokens of a file.
#[derive(Debug)]
pub(crate) struct Tokens<'a> {
    rest: &'a [u8],
    line: usize,
    next: Option<Token>,
}

impl<'a> Tokens<'a> {
    pub(crate) fn new(text: &'a [u8]) -> Self {
        let rest = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
        Self {
            rest,
            line: 1,
            next: None,
        }
    }

    pub(crate) fn error(&self, what: impl Into<String>) -> SyntaxError {
        SyntaxError {
            line: self.line,
            what: what.into(),
        }
    }

    /// The next one, which stays.
    pub(crate) fn peek(&mut self) -> Result<Option<&Token>, SyntaxError> {
        if self.next.is_none() {
            self.next = self.read()?;
        }
        Ok(self.next.as_ref())
    }

    pub(crate) fn next(&mut self) -> Result<Option<Token>, SyntaxError> {
        match self.next.take() {
            Some(token) => Ok(Some(token)),
            None => self.read(),
        }
    }

    fn read(&mut self) -> Result<Option<Token>, SyntaxError> {
        self.skip_blank()?;
        let Some((&first, after)) = self.rest.split_first() else {
            return Ok(None);
        };
        if is_of_name(first) {
            let end = self.rest.iter().position(|byte| !is_of_name(*byte));
            let (name, rest) = self.rest.split_at(end.unwrap_or(self.rest.len()));
            self.rest = rest;
            return Ok(Some(Token::Name(
                String::from_utf8_lossy(name).into_owned(),
            )));
        }
        if matches!(first, b'"' | b'\'') {
            return self.text(first).map(Some);
        }
        if !(first.is_ascii_punctuation()) {
            let shown = first.escape_ascii();
            return Err(self.error(format!("`{shown}` is no part of a .proto file")));
        }
        self.rest = after;
        Ok(Some(Token::Symbol(char::from(first))))
    }

    /// Blanks and comments.
    fn skip_blank(&mut self) -> Result<(), SyntaxError> {
        loop {
            match self.rest {
                [b'\n', rest @ ..] => {
                    self.line += 1;
                    self.rest = rest;
                }
                [byte, rest @ ..] if byte.is_ascii_whitespace() || *byte == 0x0b => {
                    self.rest = rest;
                }
                [b'/', b'/', ..] => {
                    let end = self.rest.iter().position(|byte| *byte == b'\n');
                    self.rest = &self.rest[end.unwrap_or(self.rest.len())..];
                }
                [b'/', b'*', rest @ ..] => {
                    let end = rest.windows(2).position(|pair| pair == b"*/");
                    let Some(end) = end else {
                        return Err(self.error("a comment that begins here has no end"));
                    };
                    let (comment, after) = rest.split_at(end);
                    self.line += memchr::memchr_iter(b'\n', comment).count();
                    self.rest = &after[2..];
                }
                _ => return Ok(()),
            }
        }
    }

    /// A text in quotes. Escapes are left as they are, but for the sign itself.
    fn text(&mut self, quote: u8) -> Result<Token, SyntaxError> {
        let mut text = Vec::new();
        let mut rest = &self.rest[1..];
        loop {
            match rest {
                [byte, after @ ..] if *byte == quote => {
                    self.rest = after;
                    return Ok(Token::Text(String::from_utf8_lossy(&text).into_owned()));
                }
                [b'\\', escaped, after @ ..] => {
                    text.push(*escaped);
                    rest = after;
                }
                [] | [b'\n', ..] | [b'\\'] => {
                    return Err(self.error("a text that begins here has no end"));
                }
                [byte, after @ ..] => {
                    text.push(*byte);
                    rest = after;
                }
            }
        }
    }
}

/// Names and numbers have these; no token begins in the middle of another one by it.
fn is_of_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.') || byte >= 0x80
}
