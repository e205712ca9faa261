//! What keeps a text inside its record: a worker's output, a URL or a header can neither end a
//! line, nor begin a column, nor talk to a terminal.

use std::fmt::{self, Write};

use pronghorn_base::{LONGEST_SHOWN, LeftOut};

/// Where the text is going to stand.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// Between the quotes of a JSON string.
    Json,
    /// In a column of a line. A backslash stands for itself: names of PHP classes stay readable.
    Column,
    /// As the message of a raw record: whatever else is in it, it stays one line.
    Raw,
    /// On a terminal, where it may have several lines: all but the first are indented.
    Screen,
    /// In what a command prints: its lines and its tabs are meant.
    Page,
}

/// A text that may hold what strangers have sent, as a terminal shows it and does not obey it.
/// Lines and tabs stay.
pub fn printable(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut left = usize::MAX;
    // A String takes all.
    _ = Escaped::new(&mut out, Place::Page, &mut left).write_str(text);
    out
}

/// What the lines of a text on a terminal begin with, but for the first.
pub(super) const INDENT: &str = "    ";
const NEXT_LINE: &str = "\n    ";

/// Fields that strangers have no say in, and that are long where they help: what a worker said
/// last, and where PHP was. All others are shown as far as any text of a stranger.
const LONG: [&str; 4] = ["stderr", "stack", "trace", "context"];

/// Appends escaped text to `out`, at most `left` bytes. Dropped, it says what was left out.
pub(super) struct Escaped<'a> {
    out: &'a mut String,
    place: Place,
    left: &'a mut usize,
    /// Bytes that this text may still take.
    own: usize,
    /// Bytes of the text that were left out. Once there are some, nothing follows.
    left_out: usize,
}

impl Drop for Escaped<'_> {
    fn drop(&mut self) {
        if self.left_out > 0 {
            _ = write!(self.out, "{}", LeftOut(self.left_out)); // a String takes all
        }
    }
}

impl Write for Escaped<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let mut plain = 0;
        let mut at = 0;
        loop {
            at += plain_run(text.as_bytes().get(at..).unwrap_or_default());
            let Some(c) = text.get(at..).and_then(|rest| rest.chars().next()) else {
                break;
            };
            if self.must_change(c) {
                self.push(text.get(plain..at).unwrap_or_default());
                self.change(c);
                plain = at + c.len_utf8();
            }
            at += c.len_utf8();
        }
        self.push(text.get(plain..).unwrap_or_default());
        Ok(())
    }
}

/// The first byte of all characters that are changed anywhere, and of few others: control
/// characters, the quote, the backslash, and what begins U+0080 to U+00BF, U+0600 to U+063F and
/// U+2000 to U+2FFF.
fn may_need_change(byte: u8) -> bool {
    let is = |yes: bool| u8::from(yes); // without branches, for `plain_run`
    let any = is(byte < 0x20)
        | is(byte == b'"')
        | is(byte == b'\\')
        | is(byte == 0x7f)
        | is(byte == 0xc2)
        | is(byte == 0xd8)
        | is(byte == 0xe2);
    any != 0
}

/// Counts the bytes before the first of these. The compiler turns looks at sixteen bytes into
/// vector instructions.
fn plain_run(text: &[u8]) -> usize {
    let (chunks, _) = text.as_chunks::<16>();
    let is_plain = |chunk: &&[u8; 16]| {
        !chunk
            .iter()
            .fold(false, |any, it| any | may_need_change(*it))
    };
    let at = 16 * chunks.iter().take_while(is_plain).count();
    let rest = text.get(at..).unwrap_or_default();
    at + rest.iter().take_while(|it| !may_need_change(**it)).count()
}

impl<'a> Escaped<'a> {
    /// `left` is shared by all texts of a record. What is beyond is left out.
    pub(super) fn new(out: &'a mut String, place: Place, left: &'a mut usize) -> Self {
        Self {
            out,
            place,
            left,
            own: usize::MAX,
            left_out: 0,
        }
    }

    /// For the value of a field, which is bounded by itself.
    pub(super) fn of_field(
        name: &str,
        out: &'a mut String,
        place: Place,
        left: &'a mut usize,
    ) -> Self {
        let mut escaped = Self::new(out, place, left);
        if !LONG.contains(&name) {
            escaped.own = LONGEST_SHOWN;
        }
        escaped
    }

    fn must_change(&self, c: char) -> bool {
        match self.place {
            Place::Raw => is_line_break(c),
            Place::Json => matches!(c, '"' | '\\') || is_line_break(c) || is_control(c),
            Place::Column | Place::Screen => is_line_break(c) || is_control(c),
            Place::Page => !matches!(c, '\n' | '\t') && (is_line_break(c) || is_control(c)),
        }
    }

    fn change(&mut self, c: char) {
        let escape: &str = match (c, self.place) {
            ('\n', Place::Screen) => NEXT_LINE,
            ('\t', Place::Screen) => INDENT,
            ('\n', _) => "\\n",
            ('\r', _) => "\\r",
            ('\t', _) => "\\t",
            ('"', _) => "\\\"",
            ('\\', _) => "\\\\",
            _ => &format!("\\u{:04x}", u32::from(c)),
        };
        if escape.len() <= self.room() {
            self.put(escape);
        } else {
            self.leave_out(c.len_utf8()); // half of one would be none
        }
    }

    fn push(&mut self, text: &str) {
        let fits = text.floor_char_boundary(self.room());
        let (text, rest) = text.split_at(fits);
        self.put(text);
        if !rest.is_empty() {
            self.leave_out(rest.len());
        }
    }

    /// Nothing, once something was left out.
    fn room(&self) -> usize {
        self.own.min(*self.left)
    }

    fn put(&mut self, text: &str) {
        self.out.push_str(text);
        self.own -= text.len();
        *self.left -= text.len();
    }

    fn leave_out(&mut self, bytes: usize) {
        if self.own >= *self.left {
            *self.left = 0;
        }
        self.own = 0;
        self.left_out += bytes;
    }
}

/// All that some reader of lines takes for the end of one.
fn is_line_break(c: char) -> bool {
    matches!(
        c,
        '\n' | '\r' | '\x0b' | '\x0c' | '\u{85}' | '\u{2028}' | '\u{2029}'
    )
}

/// Control characters, of ASCII and above, and those that turn the direction of writing: with them
/// a line shows another text than it holds.
fn is_control(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            '\u{061c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
        )
}
