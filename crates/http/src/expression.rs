//! Regular expressions in the configuration. Matching takes time linear in the length of what a
//! client sent.

use pronghorn_config::{Node, Setting, Shown, Wrong};
use regex::bytes::{Regex, RegexBuilder};

/// Bytes that an expression may take when it is compiled; a hundred times that of a usual one.
const MOST_COMPILED: usize = 256 << 10;

/// Compiles one for bytes: what clients send is mostly ASCII, and need not be UTF-8.
///
/// # Errors
///
/// With what is wrong, in words.
pub(crate) fn compile(text: &str) -> Result<Regex, String> {
    build(RegexBuilder::new(text).unicode(false))
}

/// Compiles one for decoded paths. The case of letters does not count, as for routes at all, and a
/// line end in a path is a byte as any other: it must not end what `.*` finds.
///
/// # Errors
///
/// With what is wrong, in words.
pub(crate) fn compile_for_paths(text: &str) -> Result<Regex, String> {
    let mut builder = RegexBuilder::new(text);
    builder.case_insensitive(true).dot_matches_new_line(true);
    build(builder.unicode(false))
}

fn build(builder: &mut RegexBuilder) -> Result<Regex, String> {
    let built = builder.size_limit(MOST_COMPILED).build();
    built.map_err(|error| reason(&error))
}

/// The reason alone, of several lines that also point at the place in the expression.
fn reason(error: &regex::Error) -> String {
    match error {
        regex::Error::CompiledTooBig(_) => "the expression takes too much memory".to_owned(),
        error => {
            let text = error.to_string();
            let last = text.lines().last().unwrap_or_default();
            last.trim_start_matches("error: ").to_owned()
        }
    }
}

/// An expression that is found in a text; `^` and `$` bind it to the ends.
#[derive(Clone, Debug)]
pub struct Expression(pub Regex);

impl Expression {
    /// A line end is a byte as any other: it must not end what `.*` finds in a decoded path.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut builder = RegexBuilder::new(text);
        builder.unicode(false).dot_matches_new_line(true);
        build(&mut builder).map(Self)
    }

    /// Whether it speaks of the whole text, and not of some part of it.
    pub(crate) fn is_bound(&self) -> bool {
        self.0.as_str().starts_with('^') && self.0.as_str().ends_with('$')
    }
}

impl PartialEq for Expression {
    fn eq(&self, other: &Self) -> bool {
        self.0.as_str() == other.0.as_str()
    }
}

impl Setting for Expression {
    fn example() -> String {
        "^/old/(.*)$".to_owned()
    }

    fn accepts() -> String {
        "a regular expression".to_owned()
    }

    fn read(node: &Node) -> Result<Self, Vec<Wrong>> {
        let text = node.text().ok_or_else(|| Wrong::value(node))?;
        Self::parse(text).map_err(|hint| Wrong::hinted(node, hint))
    }

    fn show(&self) -> Shown {
        Shown::One(self.0.as_str().to_owned())
    }
}
