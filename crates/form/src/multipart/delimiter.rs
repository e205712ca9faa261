//! The search for the line that ends a part, over chunks that may cut it anywhere.

use std::ops::Range;

use memchr::{memmem::Finder, memrchr};

use crate::Boundary;

/// What [`Delimiter::scan`] found at the start of its input.
#[derive(Debug)]
pub(super) enum Scan<'i> {
    /// Content, not empty.
    Content(&'i [u8]),
    /// Content that earlier chunks ended with: a piece of [`Delimiter::line`], whose beginning it
    /// was taken for.
    Held(Range<usize>),
    /// The delimiter. What follows on its line was not looked at.
    Delimiter {
        /// It needed the line feed that [`Delimiter::at_line_start`] told of.
        at_start: bool,
    },
    /// All input is used up.
    More,
}

/// Finds a line feed, two dashes and the boundary, with or without a carriage return before them:
/// PHP takes a bare line feed for a line's end, and a part must not be longer or shorter for us
/// than for it.
///
/// Holds no bytes of the body: those it can't judge yet are always a piece of the delimiter itself.
/// Because a line feed occurs in it only once, a beginning that turns out wrong can't hide another
/// one.
#[derive(Debug)]
pub(super) struct Delimiter {
    /// CR LF `--` boundary.
    line: Vec<u8>,
    /// Searches `line` without its CR.
    finder: Finder<'static>,
    /// The piece of `line` that the input ended with. Empty at 0: none. Empty at 2: the line feed
    /// was there, but it belonged to what came before.
    held: Range<usize>,
}

const NOTHING: Range<usize> = 0..0;
const AFTER_LINE_FEED: Range<usize> = 2..2;

impl Delimiter {
    pub(super) fn new(boundary: &Boundary) -> Self {
        let line = [b"\r\n--", boundary.as_bytes()].concat();
        let finder = Finder::new(line.get(1..).unwrap_or_default()).into_owned();
        Self {
            line,
            finder,
            held: NOTHING,
        }
    }

    /// The next byte is the first of a line, so that the delimiter may follow without a line feed.
    pub(super) fn at_line_start(&mut self) {
        self.held = AFTER_LINE_FEED;
    }

    /// The bytes of [`Scan::Held`].
    pub(super) fn line(&self, piece: Range<usize>) -> &[u8] {
        self.line.get(piece).unwrap_or_default()
    }

    /// Looks at the start of `input` and takes off what it returns. A delimiter cut by the end of
    /// `input` is held back.
    pub(super) fn scan<'i>(&mut self, input: &mut &'i [u8]) -> Scan<'i> {
        if self.held.end > 0 {
            let wanted = self.line.get(self.held.end..).unwrap_or_default();
            let same = wanted
                .iter()
                .zip(*input)
                .take_while(|(want, got)| want == got)
                .count();
            if same == wanted.len() {
                *input = input.split_at(same).1;
                let at_start = self.held.start == AFTER_LINE_FEED.start;
                self.held = NOTHING;
                return Scan::Delimiter { at_start };
            }
            if same == input.len() {
                *input = &[];
                self.held.end = self.held.end.saturating_add(same);
                return Scan::More;
            }
            let held = std::mem::replace(&mut self.held, NOTHING);
            if !held.is_empty() {
                return Scan::Held(held);
            }
        }

        if let Some(at) = self.finder.find(input) {
            let (content, rest) = input.split_at(at);
            let content = content.strip_suffix(b"\r").unwrap_or(content);
            if content.is_empty() {
                *input = rest.split_at(self.finder.needle().len()).1;
                return Scan::Delimiter { at_start: false };
            }
            // The delimiter is found again, at once, by the next call.
            *input = input.split_at(content.len()).1;
            return Scan::Content(content);
        }

        self.held = self.beginning_at_end_of(input);
        let (content, _) = input.split_at(input.len().saturating_sub(self.held.len()));
        *input = &[];
        if content.is_empty() {
            Scan::More
        } else {
            Scan::Content(content)
        }
    }

    /// The piece of `line` that `input`, which holds no whole delimiter, ends with.
    fn beginning_at_end_of(&self, input: &[u8]) -> Range<usize> {
        let (_, tail) = input.split_at(input.len().saturating_sub(self.line.len()));
        if let Some(at) = memrchr(b'\n', tail) {
            let (before, piece) = tail.split_at(at);
            if self.finder.needle().starts_with(piece) {
                let start = usize::from(!before.ends_with(b"\r"));
                return start..piece.len().saturating_add(1);
            }
        }
        if tail.ends_with(b"\r") { 0..1 } else { NOTHING }
    }
}
