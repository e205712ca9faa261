//! FastCGI's records, the server's end: one request at a time on a connection, as a responder gets
//! it.
//!
//! What comes back is a peer's: a record announces at most 64 KB and is read in pieces as they
//! come, so nothing is kept that was not received.

use std::num::NonZeroU16;

use bytes::{Bytes, BytesMut};
use thiserror::Error;

/// The header of a record.
const HEADER: usize = 8;
/// The most that one record holds.
pub const LARGEST: usize = 0xffff;
const VERSION: u8 = 1;
/// The length of what a begin and an end hold.
const FIXED: usize = 8;

const BEGIN_REQUEST: u8 = 1;
const END_REQUEST: u8 = 3;
const PARAMS: u8 = 4;
const STDIN: u8 = 5;
const STDOUT: u8 = 6;
const STDERR: u8 = 7;
const GET_VALUES: u8 = 9;
const GET_VALUES_RESULT: u8 = 10;

/// The number of a request on its connection. Records of its answer have it too, so what somebody
/// sent for another request answers none: a peer that answered twice, or a child of a script that
/// inherited the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestId(NonZeroU16);

impl RequestId {
    /// Any but 0, which is no request's, and but the one before on the connection. `random` is
    /// below 65,534.
    pub fn after(before: Option<Self>, random: u16) -> Self {
        let id = random.saturating_add(1);
        let id = match before {
            Some(Self(before)) if id >= before.get() => id.saturating_add(1),
            _ => id,
        };
        Self(NonZeroU16::MIN.saturating_add(id.saturating_sub(1)))
    }

    /// How many there are to choose from when there is one before.
    pub const CHOICE: u16 = u16::MAX - 1;
}

/// What becomes of a connection when its request has ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum After {
    /// The peer closes it.
    #[default]
    Close,
    /// It is for the next request.
    Keep,
}

/// Appends the beginning of a request, which a responder is to answer.
pub fn begin(out: &mut Vec<u8>, id: RequestId, after: After) {
    const RESPONDER: u8 = 1;
    let flags = u8::from(after == After::Keep);
    out.extend_from_slice(&header(BEGIN_REQUEST, id, FIXED));
    out.extend_from_slice(&[0, RESPONDER, flags, 0, 0, 0, 0, 0]);
}

/// A question that every peer answers as soon as it is up, and that is about no request.
pub fn question() -> Vec<u8> {
    let mut record = [VERSION, GET_VALUES, 0, 0, 0, 0, 0, 0].to_vec();
    crate::variables::push(&mut record, b"FCGI_MPXS_CONNS", &[]);
    let len = record.len().saturating_sub(HEADER);
    if let Some(place) = record.get_mut(5) {
        *place = u8::try_from(len).unwrap_or_default();
    }
    record
}

/// Whether this is how an answer to the [`question`] begins.
pub fn is_answer(received: &[u8]) -> bool {
    received.starts_with(&[VERSION, GET_VALUES_RESULT])
}

/// Where the variables of a request begin in a buffer.
#[derive(Debug)]
#[must_use = "what follows is no record before it is finished"]
pub struct OpenParams {
    start: usize,
}

impl OpenParams {
    /// Variables follow in `out`, as [`Variables`](crate::Variables) writes them.
    pub fn begin(out: &mut Vec<u8>) -> Self {
        let start = out.len();
        out.extend_from_slice(&[0; HEADER]);
        Self { start }
    }

    /// All of them are there: makes records of them.
    pub fn finish(self, out: &mut Vec<u8>, id: RequestId) {
        let content = self.start.saturating_add(HEADER);
        let len = out.len().saturating_sub(content);
        if len > LARGEST {
            let all = out.split_off(content);
            out.truncate(self.start);
            for part in all.chunks(LARGEST) {
                out.extend_from_slice(&header(PARAMS, id, part.len()));
                out.extend_from_slice(part);
            }
        } else if let Some(place) = out.get_mut(self.start..content) {
            place.copy_from_slice(&header(PARAMS, id, len));
        }
        if len > 0 {
            out.extend_from_slice(&header(PARAMS, id, 0));
        }
    }
}

/// The header before a piece of a body, of at most [`LARGEST`] bytes; before none at all it says
/// that the body is complete.
pub fn stdin(id: RequestId, len: usize) -> [u8; HEADER] {
    header(STDIN, id, len)
}

fn header(kind: u8, RequestId(id): RequestId, len: usize) -> [u8; HEADER] {
    debug_assert!(len <= LARGEST, "it fits no record");
    let [id_high, id_low] = id.get().to_be_bytes();
    let [high, low] = u16::try_from(len).unwrap_or(u16::MAX).to_be_bytes();
    [VERSION, kind, id_high, id_low, high, low, 0, 0]
}

/// What a responder sends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Item {
    /// A part of the answer.
    Output(Bytes),
    /// A part of what it has to say to the operator.
    Errors(Bytes),
    /// The answer is complete.
    End(End),
}

/// How a request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// With this exit code of the application.
    Complete(u32),
    /// The responder takes one request at a time, and not on this connection.
    CannotMultiplex,
    /// The responder is out of something, and did nothing.
    Overloaded,
    /// It does not know what a responder is.
    UnknownRole,
}

/// What a peer sent is no FastCGI, or none that belongs here.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum BadRecord {
    /// The first byte of a record is the version.
    #[error("a record of version {0}, where FastCGI is 1")]
    Version(u8),
    /// For another request than the one that is under way, or in the place of none.
    #[error("a record for request {0}, which is not under way")]
    Request(u16),
    /// A kind that a responder does not send.
    #[error("a record of kind {0}, which answers no request")]
    Kind(u8),
    /// An end that is none.
    #[error(
        "an end of {len} bytes with status {status}, where 8 bytes and a status up to 3 belong"
    )]
    End {
        /// Of its content.
        len: usize,
        /// As it was sent, or 0.
        status: u8,
    },
}

/// Takes records apart.
#[derive(Debug, Default)]
pub struct Records {
    /// The one under way.
    request: Option<RequestId>,
    /// What is left of the record that has begun, with what pads it.
    open: Option<Open>,
}

#[derive(Debug, Clone, Copy)]
struct Open {
    is_error: bool,
    content: usize,
    padding: usize,
}

impl Records {
    /// A request is under way from now on, until its end was read.
    pub fn expect(&mut self, id: RequestId) {
        self.request = Some(id);
    }

    /// The next item in what was received; `None` when more has to come. What it takes is gone from
    /// `received`.
    ///
    /// # Errors
    ///
    /// When what was received makes no sense. Nothing behind it does then.
    pub fn next(&mut self, received: &mut BytesMut) -> Result<Option<Item>, BadRecord> {
        loop {
            if let Some(open) = &mut self.open {
                if open.content > 0 {
                    if received.is_empty() {
                        return Ok(None);
                    }
                    let piece = received.split_to(open.content.min(received.len())).freeze();
                    open.content = open.content.saturating_sub(piece.len());
                    return Ok(Some(if open.is_error {
                        Item::Errors(piece)
                    } else {
                        Item::Output(piece)
                    }));
                }
                let padding = received.split_to(open.padding.min(received.len()));
                open.padding = open.padding.saturating_sub(padding.len());
                if open.padding > 0 {
                    return Ok(None);
                }
                self.open = None;
            }
            let Some((header, rest)) = received.split_first_chunk::<HEADER>() else {
                return match received.first() {
                    Some(&version) if version != VERSION => Err(BadRecord::Version(version)),
                    _ => Ok(None),
                };
            };
            let &[version, kind, id_high, id_low, high, low, padding, _] = header;
            let id = u16::from_be_bytes([id_high, id_low]);
            let is_awaited = self.request.is_some_and(|RequestId(of)| of.get() == id);
            let content = usize::from(u16::from_be_bytes([high, low]));
            let padding = usize::from(padding);
            match (version, kind) {
                (VERSION, _) if !is_awaited => return Err(BadRecord::Request(id)),
                (VERSION, STDOUT | STDERR) => {
                    _ = received.split_to(HEADER);
                    self.open = Some(Open {
                        is_error: kind == STDERR,
                        content,
                        padding,
                    });
                }
                (VERSION, END_REQUEST) => {
                    let bad = |status| BadRecord::End {
                        len: content,
                        status,
                    };
                    if content != FIXED {
                        return Err(bad(0));
                    }
                    let Some(&[a, b, c, d, status, ..]) = rest.first_chunk::<FIXED>() else {
                        return Ok(None);
                    };
                    let end = match status {
                        0 => End::Complete(u32::from_be_bytes([a, b, c, d])),
                        1 => End::CannotMultiplex,
                        2 => End::Overloaded,
                        3 => End::UnknownRole,
                        _ => return Err(bad(status)),
                    };
                    _ = received.split_to(HEADER.saturating_add(FIXED));
                    self.request = None;
                    self.open = (padding > 0).then_some(Open {
                        is_error: false,
                        content: 0,
                        padding,
                    });
                    return Ok(Some(Item::End(end)));
                }
                (VERSION, _) => return Err(BadRecord::Kind(kind)),
                _ => return Err(BadRecord::Version(version)),
            }
        }
    }

    /// Whether there is nothing behind the end of a request but what pads it: only then another
    /// request may follow.
    pub fn is_clean(&mut self, received: &mut BytesMut) -> bool {
        self.request.is_none() && matches!(self.next(received), Ok(None)) && received.is_empty()
    }
}

/// For fuzzing: what must hold for any bytes, in whichever pieces they come.
#[doc(hidden)]
pub fn fuzz_records(bytes: &[u8]) {
    let whole = read(bytes, bytes.len().max(1));
    for size in [1, 2, 7, 64] {
        assert_eq!(whole, read(bytes, size), "in pieces of {size}");
    }
    let (output, errors, ..) = &whole;
    assert!(output.len().saturating_add(errors.len()) <= bytes.len());
}

/// All output, all errors, the ends, and what was wrong.
type Read = (Vec<u8>, Vec<u8>, Vec<End>, Option<BadRecord>);

fn read(bytes: &[u8], size: usize) -> Read {
    let (mut records, mut received) = (Records::default(), BytesMut::new());
    let id = RequestId(NonZeroU16::MIN);
    records.expect(id);
    let (mut output, mut errors, mut ends) = (Vec::new(), Vec::new(), Vec::new());
    for piece in bytes.chunks(size) {
        received.extend_from_slice(piece);
        loop {
            match records.next(&mut received) {
                Ok(None) => break,
                Ok(Some(Item::Output(bytes))) => output.extend_from_slice(&bytes),
                Ok(Some(Item::Errors(bytes))) => errors.extend_from_slice(&bytes),
                Ok(Some(Item::End(end))) => {
                    ends.push(end);
                    records.expect(id);
                }
                Err(bad) => return (output, errors, ends, Some(bad)),
            }
        }
    }
    (output, errors, ends, None)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ID: RequestId = RequestId(NonZeroU16::MIN);

    fn record(kind: u8, content: &[u8], padding: u8) -> Vec<u8> {
        let mut record = header(kind, ID, content.len()).to_vec();
        record[6] = padding;
        record.extend_from_slice(content);
        record.resize(record.len() + usize::from(padding), 0xee);
        record
    }

    #[test]
    fn a_request_is_a_beginning_its_variables_and_its_body() {
        let mut out = Vec::new();
        begin(&mut out, ID, After::Keep);
        let params = OpenParams::begin(&mut out);
        crate::variables::push(&mut out, b"A", &[b"bc"]);
        params.finish(&mut out, ID);
        out.extend_from_slice(&stdin(ID, 2));
        out.extend_from_slice(b"hi");
        out.extend_from_slice(&stdin(ID, 0));
        let expected = [
            &b"\x01\x01\x00\x01\x00\x08\x00\x00\x00\x01\x01\x00\x00\x00\x00\x00"[..],
            b"\x01\x04\x00\x01\x00\x05\x00\x00\x01\x02Abc\x01\x04\x00\x01\x00\x00\x00\x00",
            b"\x01\x05\x00\x01\x00\x02\x00\x00hi\x01\x05\x00\x01\x00\x00\x00\x00",
        ];
        assert_eq!(out, expected.concat());
    }

    #[test]
    fn variables_longer_than_a_record_are_several() {
        for len in [0, LARGEST - 9, LARGEST - 10, 3 * LARGEST] {
            let mut out = b"before".to_vec();
            let params = OpenParams::begin(&mut out);
            if len > 0 {
                crate::variables::push(&mut out, b"N", &[&vec![b'v'; len]]);
            }
            params.finish(&mut out, ID);
            let (mut rest, mut block, mut last) = (&out[6..], Vec::new(), usize::MAX);
            while let Some((header, after)) = rest.split_first_chunk::<HEADER>() {
                assert_eq!(header[..4], [1, PARAMS, 0, 1]);
                last = usize::from(u16::from_be_bytes([header[4], header[5]]));
                let (content, after) = after.split_at(last);
                block.extend_from_slice(content);
                rest = after;
            }
            assert_eq!((last, rest.len()), (0, 0));
            let values: Vec<usize> = crate::variables::pairs(&block)
                .map(|(_, v)| v.len())
                .collect();
            assert_eq!(values, if len > 0 { vec![len] } else { vec![] });
        }
    }

    #[test]
    fn an_answer_is_output_errors_and_an_end() {
        let bytes = [
            record(STDOUT, b"Content-type: a\r\n\r\nhel", 3),
            record(STDERR, b"Warning", 0),
            record(STDOUT, b"lo", 255),
            record(STDOUT, b"", 0),
            record(END_REQUEST, &[0, 0, 0, 7, 0, 0, 0, 0], 5),
        ];
        let (output, errors, ends, bad) = read(&bytes.concat(), 5);
        assert_eq!(output, b"Content-type: a\r\n\r\nhello");
        assert_eq!(errors, b"Warning");
        assert_eq!((ends, bad), (vec![End::Complete(7)], None));
    }

    #[test]
    fn what_belongs_to_no_answer_is_refused() {
        let bad = |bytes: &[u8]| read(bytes, 64).3;
        assert_eq!(bad(b"HTTP/1.1 400"), Some(BadRecord::Version(b'H')));
        assert_eq!(
            bad(b"H"),
            Some(BadRecord::Version(b'H')),
            "at the first byte"
        );
        assert_eq!(
            bad(&[1, STDOUT, 0, 2, 0, 0, 0, 0]),
            Some(BadRecord::Request(2))
        );
        assert_eq!(bad(&[1, 10, 0, 0, 0, 0, 0, 0]), Some(BadRecord::Request(0)));
        assert_eq!(bad(&record(PARAMS, b"", 0)), Some(BadRecord::Kind(PARAMS)));
        let end = |len, status| Some(BadRecord::End { len, status });
        assert_eq!(bad(&record(END_REQUEST, b"1234567", 0)), end(7, 0));
        assert_eq!(
            bad(&record(END_REQUEST, &[0, 0, 0, 0, 9, 0, 0, 0], 0)),
            end(8, 9)
        );
    }

    #[test]
    fn each_request_has_another_number_than_the_one_before() {
        let number = |RequestId(id)| id.get();
        let first = |random| RequestId::after(None, random);
        assert_eq!(number(first(0)), 1);
        assert_eq!(number(first(RequestId::CHOICE - 1)), u16::MAX - 1);
        let last = RequestId(NonZeroU16::MAX);
        for before in [first(0), first(1), first(700), first(u16::MAX - 2), last] {
            let all: std::collections::BTreeSet<_> = (0..RequestId::CHOICE)
                .map(|random| number(RequestId::after(Some(before), random)))
                .collect();
            assert_eq!(all.len(), usize::from(RequestId::CHOICE), "each of them");
            assert!(!all.contains(&number(before)) && !all.contains(&0));
        }
    }

    #[test]
    fn what_comes_behind_an_end_answers_no_request() {
        let end = record(END_REQUEST, &[0; FIXED], 3);
        for (behind, clean) in [
            (&b""[..], true),
            (b"\x01", false),
            (b"x", false),
            (&record(STDOUT, b"Status: 200\n\n", 0), false),
            (&record(STDERR, b"late", 0), false),
            (&end, false),
            (&[1, GET_VALUES_RESULT, 0, 0, 0, 0, 0, 0], false),
        ] {
            let mut records = Records::default();
            records.expect(ID);
            let mut received = BytesMut::from(&[&end, behind].concat()[..]);
            assert!(!records.is_clean(&mut received.clone()), "before its end");
            let ended = records.next(&mut received);
            assert_eq!(ended, Ok(Some(Item::End(End::Complete(0)))));
            assert_eq!(records.is_clean(&mut received), clean, "{behind:?}");
        }
    }

    #[test]
    fn records_of_another_request_are_no_part_of_the_answer() {
        let other = RequestId::after(Some(ID), 0x1234);
        for kind in [STDOUT, STDERR, END_REQUEST] {
            let mut records = Records::default();
            records.expect(ID);
            let mut bytes = header(kind, other, FIXED).to_vec();
            bytes.extend_from_slice(&[0; FIXED]);
            let read = records.next(&mut BytesMut::from(&bytes[..]));
            assert_eq!(read, Err(BadRecord::Request(0x1236)));
        }
    }

    proptest! {
        #[test]
        fn pieces_decide_nothing(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            fuzz_records(&bytes);
        }

        #[test]
        fn pieces_of_records_decide_nothing(all in prop::collection::vec(
            (prop_oneof![Just(STDOUT), Just(STDERR), Just(END_REQUEST), any::<u8>()],
             prop::collection::vec(any::<u8>(), 0..40), any::<u8>()), 0..8,
        )) {
            let all: Vec<_> = all.iter().map(|(kind, content, padding)| record(*kind, content, *padding)).collect();
            fuzz_records(&all.concat());
        }
    }
}
