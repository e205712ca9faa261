//! Multipart bodies (RFC 7578): bytes in any pieces to parts and their content.
//!
//! Reads what browsers, curl and HTTP libraries send, and beyond that what PHP itself accepts, as
//! long as it can be read in one way only. What PHP would drop or cut short without a word is an
//! error here. `docs/reference/forms.md` lists every case.

mod delimiter;
mod disposition;
mod error;
mod head;

pub use error::{Error, ErrorKind};
pub use head::{Kind, MAX_HEAD, MAX_HEADERS, Part};

use delimiter::{Delimiter, Scan};
use head::Head;

use crate::{Boundary, Limits};

/// What a body holds, piece by piece.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event<'a> {
    /// A part starts: its headers.
    PartBegin(Part),
    /// Content of the part, never empty. None comes for a [`Kind::EmptyInput`].
    Data(&'a [u8]),
    /// The part is complete.
    PartEnd,
    /// The form is complete. What follows in the body is ignored, unless it goes on like a form.
    End,
}

/// A multipart body on its way in. Feed it with [`next`](Self::next), and say that the body has
/// ended with [`finish`](Self::finish).
///
/// Keeps the headers of one part ([`MAX_HEAD`]) and the boundary, and none of the content.
#[derive(Debug)]
pub struct Parser {
    limits: Limits,
    delimiter: Delimiter,
    head: Head,
    state: State,
    /// Bytes taken so far.
    offset: u64,
    /// Where the latest head starts.
    head_start: u64,
    parts: u32,
    fields: u32,
    files: u32,
    files_without_name: u32,
    kept: usize,
}

/// In the order of a body; from `Line` it goes on to `Head` or to `Epilogue`.
#[derive(Debug, Clone, Copy)]
enum State {
    Preamble,
    /// Behind a boundary, on its line.
    Line(Line),
    Head,
    Body(Kind),
    Epilogue,
    Failed(Error),
}

/// What was seen behind the boundary.
#[derive(Debug, Clone, Copy)]
enum Line {
    Nothing,
    Dash,
    /// Spaces and tabs, which RFC 2046 tells a reader to expect.
    Padding,
    CarriageReturn,
}

impl Parser {
    /// Starts a body whose parts `boundary` separates.
    pub fn new(boundary: &Boundary, limits: Limits) -> Self {
        let mut delimiter = Delimiter::new(boundary);
        delimiter.at_line_start();
        Self {
            limits,
            delimiter,
            head: Head::default(),
            state: State::Preamble,
            offset: 0,
            head_start: 0,
            parts: 0,
            fields: 0,
            files: 0,
            files_without_name: 0,
            kept: 0,
        }
    }

    /// Takes bytes off the front of `input` and returns what they mean. Call it until it returns
    /// `None`: then `input` is used up, and the next piece of the body can be given.
    ///
    /// # Errors
    ///
    /// The client's: the body is malformed or beyond a limit. Every later call returns the same
    /// error.
    pub fn next<'s, 'i: 's>(
        &'s mut self,
        input: &mut &'i [u8],
    ) -> Result<Option<Event<'s>>, Error> {
        loop {
            let before = input.len();
            let step = self.step(input);
            let taken = before.saturating_sub(input.len());
            self.offset = self
                .offset
                .saturating_add(u64::try_from(taken).unwrap_or(u64::MAX));
            let step = step.map_err(|kind| self.fail(kind))?;
            return Ok(match step {
                Step::On => continue,
                Step::More => None,
                Step::Event(event) => Some(event),
                Step::Held(piece) => Some(Event::Data(self.delimiter.line(piece))),
            });
        }
    }

    /// The body has ended.
    ///
    /// # Errors
    ///
    /// The client's: the form was not complete, or an earlier error. A body without a single byte
    /// is an empty form: clients that set the header on every request send it.
    pub fn finish(mut self) -> Result<(), Error> {
        match self.state {
            State::Epilogue => Ok(()),
            State::Preamble if self.offset == 0 => Ok(()),
            State::Preamble => Err(self.fail(ErrorKind::NoBoundary)),
            State::Failed(error) => Err(error),
            State::Line(_) | State::Head | State::Body(_) => Err(self.fail(ErrorKind::Truncated)),
        }
    }

    /// Bytes of the body that the parser keeps at the moment, at most [`MAX_HEAD`] and a line feed.
    pub fn held(&self) -> usize {
        self.head.held()
    }
}

enum Step<'i> {
    /// Nothing to tell; there may be more input.
    On,
    More,
    Event(Event<'i>),
    /// Data that the delimiter had held back.
    Held(std::ops::Range<usize>),
}

impl Parser {
    fn step<'i>(&mut self, input: &mut &'i [u8]) -> Result<Step<'i>, ErrorKind> {
        match self.state {
            State::Preamble => Ok(match self.delimiter.scan(input) {
                Scan::Content(_) | Scan::Held(_) => Step::On,
                Scan::More => Step::More,
                Scan::Delimiter { .. } => self.to(State::Line(Line::Nothing)),
            }),
            State::Line(line) => self.boundary_line(line, input),
            State::Head => match self.head.read(input, &mut self.files_without_name)? {
                None => Ok(Step::More),
                Some(part) => self.begin(part),
            },
            State::Body(kind) => self.body(kind, input),
            State::Epilogue => match self.delimiter.scan(input) {
                Scan::Content(_) | Scan::Held(_) => Ok(Step::On),
                Scan::More => Ok(Step::More),
                Scan::Delimiter { .. } => Err(ErrorKind::AfterEnd),
            },
            State::Failed(error) => Err(error.kind),
        }
    }

    /// One byte of what follows a boundary on its line. RFC 2046 counts any line that starts with
    /// the boundary, PHP ends the part there but then skips what comes up to the next whole line:
    /// only what both read alike is let through.
    fn boundary_line<'i>(
        &mut self,
        line: Line,
        input: &mut &'i [u8],
    ) -> Result<Step<'i>, ErrorKind> {
        let Some((byte, rest)) = input.split_first() else {
            return Ok(Step::More);
        };
        let next = match (line, byte) {
            (Line::Nothing, b'-') => State::Line(Line::Dash),
            (Line::Dash, b'-') => State::Epilogue,
            (Line::Nothing | Line::Padding, b' ' | b'\t') => State::Line(Line::Padding),
            (Line::Nothing | Line::Padding, b'\r') => State::Line(Line::CarriageReturn),
            (Line::Nothing | Line::Padding | Line::CarriageReturn, b'\n') => State::Head,
            _ => return Err(ErrorKind::BoundaryLine),
        };
        *input = rest;
        if matches!(next, State::Epilogue) {
            self.state = next;
            return Ok(Step::Event(Event::End));
        }
        if matches!(next, State::Head) {
            self.parts = self.parts.saturating_add(1);
            // `offset` does not have this byte yet.
            self.head_start = self.offset.saturating_add(1);
        }
        Ok(self.to(next))
    }

    fn begin<'i>(&mut self, part: Part) -> Result<Step<'i>, ErrorKind> {
        let kind = part.kind();
        let (count, limit, too_many) = match kind {
            Kind::File => (
                &mut self.files,
                self.limits.files,
                ErrorKind::TooManyFiles as fn(u32) -> ErrorKind,
            ),
            Kind::Field | Kind::EmptyInput => (
                &mut self.fields,
                self.limits.fields,
                ErrorKind::TooManyFields as fn(u32) -> ErrorKind,
            ),
        };
        *count = count.saturating_add(1);
        if *count > limit {
            return Err(too_many(limit));
        }
        let levels = memchr::memchr_iter(b'[', &part.name).count();
        if levels > usize::from(self.limits.levels) {
            return Err(ErrorKind::TooManyLevels(self.limits.levels));
        }
        self.keep(part.kept())?;
        self.delimiter.at_line_start();
        self.state = State::Body(kind);
        Ok(Step::Event(Event::PartBegin(part)))
    }

    fn body<'i>(&mut self, kind: Kind, input: &mut &'i [u8]) -> Result<Step<'i>, ErrorKind> {
        let scan = self.delimiter.scan(input);
        if kind == Kind::Field {
            self.keep(match &scan {
                Scan::Content(content) => content.len(),
                Scan::Held(piece) => piece.len(),
                Scan::Delimiter { .. } | Scan::More => 0,
            })?;
        }
        Ok(match scan {
            Scan::Content(_) | Scan::Held(_) if kind == Kind::EmptyInput => Step::On,
            Scan::Content(content) => Step::Event(Event::Data(content)),
            Scan::Held(piece) => Step::Held(piece),
            Scan::Delimiter { at_start: true } => return Err(ErrorKind::BoundaryAtStart),
            Scan::Delimiter { at_start: false } => {
                self.state = State::Line(Line::Nothing);
                Step::Event(Event::PartEnd)
            }
            Scan::More => Step::More,
        })
    }

    fn keep(&mut self, more: usize) -> Result<(), ErrorKind> {
        self.kept = self.kept.saturating_add(more);
        if self.kept > self.limits.field_bytes {
            return Err(ErrorKind::FieldsTooLong(self.limits.field_bytes));
        }
        Ok(())
    }

    fn to<'i>(&mut self, state: State) -> Step<'i> {
        self.state = state;
        Step::On
    }

    /// What is wrong with a part is found later than it begins; how much later depends on the
    /// pieces.
    fn fail(&mut self, kind: ErrorKind) -> Error {
        let offset = match kind {
            ErrorKind::NoBoundary
            | ErrorKind::Truncated
            | ErrorKind::BoundaryLine
            | ErrorKind::AfterEnd => self.offset,
            _ => self.head_start,
        };
        let error = Error {
            kind,
            part: self.parts,
            offset,
        };
        self.state = State::Failed(error);
        error
    }
}

#[cfg(test)]
mod tests;
