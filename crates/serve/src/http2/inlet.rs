//! A client's frames on their way to `h2`: all pass as they came, but for malformed requests, which
//! are made such that `h2` ends their stream, or shows them to us, and not the connection.

use super::block::{Blocks, GROWN, Judged, Most, condemn, mark};
use super::flood::{HEAD, PREFACE};
use crate::field_name::Fault;

const HEADERS: u8 = 1;
const CONTINUATION: u8 = 9;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
const PADDED: u8 = 8;
const PRIORITY: u8 = 0x20;
/// The length that we announce by announcing nothing (RFC 9113, section 6.5.2).
const LONGEST_FRAME: usize = 16 << 10;
/// Frames that a block may be cut into beside those that its length needs. `h2` allows fewer.
const SPARE_FRAMES: usize = 8;

/// Finds blocks of fields among a client's frames.
#[derive(Debug)]
pub(super) struct Inlet {
    blocks: Blocks,
    /// Bytes of the preface, or of a frame, that pass without a look.
    skip: usize,
    /// The stream of the newest request. Fields on another one are trailers.
    newest: u32,
    /// The longest block that is held back until it is whole.
    longest: usize,
    /// Fields that a request may have.
    fields: usize,
    longest_seen: usize,
    /// Bytes since the last block of which the table keeps a field.
    since_kept: usize,
    /// Whether `h2` will end the connection: nothing more is judged.
    is_over: bool,
}

/// The next step behind the bytes that may pass.
#[derive(Debug)]
pub(super) enum Stop {
    /// Something that can be judged only when more is there, or nothing.
    Wait,
    /// So many bytes, in place of which `h2` is to get others. More may follow.
    Instead(usize, Vec<u8>),
    /// A block with so many fields that the connection is to end.
    Flood,
}

/// How a block's frames go on.
enum Verdict {
    Pass,
    Instead(Vec<u8>),
    Flood,
}

/// A whole block of fields and its frames.
struct FoundBlock {
    /// Bytes of its frames.
    length: usize,
    stream: u32,
    ends: bool,
    depends_on_itself: bool,
}

enum Search {
    Found(FoundBlock),
    Wait,
    /// `h2` won't take it, whatever its fields are.
    Hopeless,
}

impl Inlet {
    pub(super) fn new(longest: usize, fields: usize) -> Self {
        Self {
            blocks: Blocks::default(),
            skip: PREFACE.len(),
            newest: 0,
            longest,
            fields,
            longest_seen: 0,
            since_kept: 0,
            is_over: false,
        }
    }

    /// Bytes that `h2` keeps of blocks: for the table of fields, and the buffer that the longest
    /// frame has made it grow.
    pub(super) fn pinned(&self) -> usize {
        self.blocks.pinned() + GROWN * self.longest_seen
    }

    /// How many of these bytes may pass, and what follows them. Those that may not are shown again,
    /// with more.
    pub(super) fn take(&mut self, bytes: &[u8]) -> (usize, Stop) {
        let mut at = 0;
        loop {
            if self.is_over {
                return (bytes.len(), Stop::Wait);
            }
            let skipped = self.skip.min(bytes.len() - at);
            self.skip -= skipped;
            at += skipped;
            let rest = &bytes[at..];
            let Some((kind, length)) = frame(rest) else {
                return (at, Stop::Wait);
            };
            if kind != HEADERS {
                self.skip = HEAD + length;
                self.since_kept = self.since_kept.saturating_add(self.skip);
                continue;
            }
            let mut joined = Vec::new();
            match self.search(rest, &mut joined) {
                Search::Wait => return (at, Stop::Wait),
                Search::Hopeless => self.is_over = true,
                Search::Found(found) => {
                    let verdict = self.judge(&found, rest, &joined);
                    self.longest_seen = self.longest_seen.max(found.length.min(LONGEST_FRAME));
                    self.since_kept = self.since_kept.saturating_add(found.length);
                    if self.blocks.pin(self.since_kept) {
                        self.since_kept = 0;
                    }
                    match verdict {
                        Verdict::Instead(instead) => {
                            return (at, Stop::Instead(found.length, instead));
                        }
                        Verdict::Flood => return (at, Stop::Flood),
                        Verdict::Pass => at += found.length,
                    }
                }
            }
        }
    }

    /// Finds the end of the block that begins here. Where it comes in more than one frame, it is
    /// put together in `joined`.
    fn search(&self, bytes: &[u8], joined: &mut Vec<u8>) -> Search {
        let (stream, mut flags) = (stream_of(bytes), bytes[4]);
        let ends = flags & END_STREAM != 0;
        let mut at = 0;
        let mut frames = 0;
        let mut depends_on_itself = false;
        if stream % 2 == 0 {
            return Search::Hopeless;
        }
        loop {
            let Some((kind, length)) = frame(&bytes[at..]) else {
                return Search::Wait;
            };
            let is_next = kind == CONTINUATION && stream_of(&bytes[at..]) == stream;
            let most = self.longest / LONGEST_FRAME + SPARE_FRAMES;
            if at > 0 && !is_next || length > LONGEST_FRAME || frames > most || at > self.longest {
                return Search::Hopeless;
            }
            let Some(payload) = bytes.get(at + HEAD..at + HEAD + length) else {
                return Search::Wait;
            };
            if at > 0 {
                flags = bytes[at + 4];
                joined.extend_from_slice(payload);
            } else {
                let Some(fragment) = fragment(payload, flags) else {
                    return Search::Hopeless;
                };
                depends_on_itself = flags & PRIORITY != 0 && depends_on(payload, flags) == stream;
                if flags & END_HEADERS == 0 {
                    joined.extend_from_slice(fragment);
                }
            }
            at += HEAD + length;
            frames += 1;
            if flags & END_HEADERS != 0 {
                return Search::Found(FoundBlock {
                    length: at,
                    stream,
                    ends,
                    depends_on_itself,
                });
            }
        }
    }

    /// Whether a block's frames may pass, or what is to take their place.
    fn judge(&mut self, found: &FoundBlock, frames: &[u8], joined: &[u8]) -> Verdict {
        let payload = frame(frames).map(|(_, length)| &frames[HEAD..HEAD + length]);
        let Some((payload, first)) =
            payload.and_then(|payload| Some((payload, fragment(payload, frames[4])?)))
        else {
            return Verdict::Pass;
        };
        let block = if HEAD + payload.len() == found.length {
            first
        } else {
            joined
        };
        let is_request = found.stream > self.newest;
        self.newest = self.newest.max(found.stream);
        let most = if is_request {
            Most::of_request(self.fields)
        } else {
            Most::of_trailers()
        };
        let (fault, mut block) = match self.blocks.judge(block, most) {
            Judged::Good if found.depends_on_itself => (Fault::Priority, block.to_vec()),
            Judged::Good => return Verdict::Pass,
            Judged::Mended(fault, block) => (fault, block),
            Judged::Broken => {
                self.is_over = true;
                return Verdict::Pass;
            }
            Judged::Flood => return Verdict::Flood,
        };
        match (is_request, fault) {
            (true, fault) => mark(&mut block, fault),
            (false, Fault::TooMany) => {}
            (false, _) => condemn(&mut block),
        }
        Verdict::Instead(framed(found, &block))
    }
}

/// The kind of a frame, and the length of what follows its head. `None` where the head is not
/// whole.
fn frame(bytes: &[u8]) -> Option<(u8, usize)> {
    match bytes {
        [a, b, c, kind, _, _, _, _, _, ..] => {
            Some((*kind, u32::from_be_bytes([0, *a, *b, *c]) as usize))
        }
        _ => None,
    }
}

fn stream_of(head: &[u8]) -> u32 {
    let stream = head.get(5..HEAD).and_then(|bytes| bytes.try_into().ok());
    stream.map_or(0, |bytes| u32::from_be_bytes(bytes) & (u32::MAX >> 1))
}

/// The part of the block in the payload of HEADERS. `None` where its padding leaves nothing.
fn fragment(payload: &[u8], flags: u8) -> Option<&[u8]> {
    let (mut start, mut end) = (0, payload.len());
    if flags & PADDED != 0 {
        end = end.checked_sub(usize::from(*payload.first()?))?;
        start = 1;
    }
    if flags & PRIORITY != 0 {
        start += 5;
    }
    payload.get(start..end)
}

/// The stream that this one depends on, where its HEADERS says so.
fn depends_on(payload: &[u8], flags: u8) -> u32 {
    let start = usize::from(flags & PADDED != 0);
    let stream = payload.get(start..start + 4);
    let stream = stream.and_then(|bytes| bytes.try_into().ok());
    stream.map_or(0, |bytes| u32::from_be_bytes(bytes) & (u32::MAX >> 1))
}

/// Frames for a block. What makes it malformed stands at its end: `h2` does not take what follows
/// in other frames.
fn framed(found: &FoundBlock, block: &[u8]) -> Vec<u8> {
    let mut frames = Vec::with_capacity(block.len() + HEAD);
    let mut kind = HEADERS;
    // Trailers may be left empty, which is a frame all the same.
    let mut left = Some(block);
    while let Some(rest) = left {
        let (piece, after) = rest.split_at(rest.len().min(LONGEST_FRAME));
        left = Some(after).filter(|after| !after.is_empty());
        let [.., a, b, c] = piece.len().to_be_bytes();
        let end = if left.is_none() { END_HEADERS } else { 0 };
        let ends = if found.ends && kind == HEADERS {
            END_STREAM
        } else {
            0
        };
        frames.extend([a, b, c, kind, end | ends]);
        frames.extend(found.stream.to_be_bytes());
        frames.extend_from_slice(piece);
        kind = CONTINUATION;
    }
    frames
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LONGEST: usize = 128 << 10;
    const FIELDS: usize = 20;

    fn framed_as(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
        let [.., a, b, c] = payload.len().to_be_bytes();
        let mut frame = vec![a, b, c, kind, flags];
        frame.extend(stream.to_be_bytes());
        frame.extend(payload);
        frame
    }

    /// The bytes that `h2` gets of these pieces.
    fn given(pieces: &[&[u8]]) -> Vec<u8> {
        let mut inlet = Inlet::new(LONGEST, FIELDS);
        assert!(matches!(inlet.take(PREFACE), (24, Stop::Wait)));
        let (mut held, mut given) = (Vec::new(), Vec::new());
        for piece in pieces {
            held.extend_from_slice(piece);
            loop {
                let (passed, stop) = inlet.take(&held);
                given.extend(held.drain(..passed));
                let Stop::Instead(length, instead) = stop else {
                    break;
                };
                held.drain(..length);
                given.extend(instead);
            }
        }
        given
    }

    const GOOD: &[u8] = b"\x82\x86\x84\x41\x01a";

    fn bad() -> Vec<u8> {
        [GOOD, b"\x00\x03x-a\x03a\rb"].concat()
    }

    fn mended(stream: u32) -> Vec<u8> {
        let mut block = [GOOD, b"\x00\x03x-a\x03xxx"].concat();
        mark(&mut block, Fault::Value);
        framed_as(1, 5, stream, &block)
    }

    #[test]
    fn what_is_well_formed_passes_as_it_is() {
        let frames = [
            framed_as(4, 0, 0, &[]),
            framed_as(1, 5, 1, GOOD),
            framed_as(1, 1, 3, &GOOD[..2]),
            framed_as(9, 4, 3, &GOOD[2..]),
            framed_as(1, 0x2d, 5, &[&[2, 0, 0, 0, 3, 9], GOOD, &[0, 0]].concat()),
            framed_as(0, 1, 5, b"body"),
        ]
        .concat();
        assert_eq!(given(&[&frames]), frames);
        let bytes: Vec<&[u8]> = frames.chunks(1).collect();
        assert_eq!(given(&bytes), frames);
    }

    #[test]
    fn a_malformed_request_is_marked_wherever_its_field_stands() {
        let bad = bad();
        for cut in 0..bad.len() {
            let frames = [
                framed_as(1, 1, 1, &bad[..cut]),
                framed_as(9, 0, 1, &[]),
                framed_as(9, 4, 1, &bad[cut..]),
                framed_as(1, 5, 3, GOOD),
            ]
            .concat();
            let expected = [mended(1), framed_as(1, 5, 3, GOOD)].concat();
            assert_eq!(given(&[&frames]), expected, "{cut}");
        }
        let padded = framed_as(1, 0xd, 1, &[&[3], &bad[..], &[0; 3]].concat());
        assert_eq!(given(&[&padded]), mended(1));
    }

    #[test]
    fn malformed_trailers_end_their_stream() {
        let frames = [
            framed_as(1, 4, 1, GOOD),
            framed_as(1, 5, 1, b"\x00\x01A\x01b"),
        ]
        .concat();
        let mut block = Vec::new();
        condemn(&mut block);
        let expected = [framed_as(1, 4, 1, GOOD), framed_as(1, 5, 1, &block)].concat();
        assert_eq!(given(&[&frames]), expected);
    }

    #[test]
    fn what_begins_a_request_ends_the_stream_in_trailers() {
        // `:method: GET` by its index, `:path` by the name of one, `:scheme` by its name, kept.
        for block in [&b"\x82"[..], b"\x04\x02/a", b"\x40\x07:scheme\x04http"] {
            let frames = [framed_as(1, 4, 1, GOOD), framed_as(1, 5, 1, block)].concat();
            let mut condemned = block.to_vec();
            condemn(&mut condemned);
            let expected = [framed_as(1, 4, 1, GOOD), framed_as(1, 5, 1, &condemned)];
            assert_eq!(given(&[&frames]), expected.concat());
        }
        let again = [framed_as(1, 5, 1, GOOD), framed_as(1, 5, 1, GOOD)].concat();
        assert_eq!(given(&[&again]), again, "an error of the connection");
    }

    #[test]
    fn a_stream_that_depends_on_itself_is_malformed() {
        let frame = framed_as(1, 0x25, 1, &[&[0, 0, 0, 1, 9], GOOD].concat());
        let mut block = GOOD.to_vec();
        mark(&mut block, Fault::Priority);
        assert_eq!(given(&[&frame]), framed_as(1, 5, 1, &block));
    }

    #[test]
    fn what_replaces_a_long_block_is_cut_into_frames() {
        let mut block = b"\x00\x03x-a\x7f\xa1\x9b\x01".to_vec(); // 20,000 octets
        block.resize(block.len() + 20_000, b'v');
        block.extend(b"\x00\x03x-a\x01\n");
        let frames = [
            framed_as(1, 1, 1, &block[..16_000]),
            framed_as(9, 4, 1, &block[16_000..]),
        ]
        .concat();
        let given = given(&[&frames]);
        let (kind, length) = frame(&given).unwrap();
        assert_eq!(
            (kind, length, given[4]),
            (HEADERS, LONGEST_FRAME, END_STREAM)
        );
        let (kind, rest) = frame(&given[HEAD + length..]).unwrap();
        assert_eq!(
            (kind, given[HEAD + length + 4]),
            (CONTINUATION, END_HEADERS)
        );
        assert_eq!(given.len(), 2 * HEAD + length + rest);
    }

    #[test]
    fn what_h2_ends_the_connection_for_reaches_it() {
        let hopeless = [
            framed_as(1, 5, 2, GOOD),
            framed_as(1, 5, 0, GOOD),
            [framed_as(1, 1, 1, GOOD), framed_as(0, 0, 1, GOOD)].concat(),
            [framed_as(1, 1, 1, GOOD), framed_as(9, 4, 3, GOOD)].concat(),
            framed_as(1, 0xd, 1, &[200, 0]),
            framed_as(1, 5, 1, &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff]),
            [
                framed_as(1, 1, 1, GOOD),
                framed_as(9, 0, 1, &[0; 16 << 10]).repeat(20),
            ]
            .concat(),
        ];
        for frames in hopeless {
            let whole = [frames.clone(), framed_as(1, 5, 3, &bad())].concat();
            assert_eq!(given(&[&whole]), whole, "{:?}", &frames[..HEAD]);
        }
    }

    proptest! {
        #[test]
        fn pieces_make_no_difference(
            payloads in proptest::collection::vec((0_u8..11, any::<u8>(), 0_u32..6, proptest::collection::vec(any::<u8>(), 0..30)), 0..12),
            cut in 1_usize..40,
        ) {
            let mut bytes = framed_as(1, 5, 1, &bad());
            for (kind, flags, stream, payload) in &payloads {
                bytes.extend(framed_as(*kind, *flags, *stream, payload));
            }
            let pieces: Vec<&[u8]> = bytes.chunks(cut).collect();
            let (whole, cut) = (given(&[&bytes]), given(&pieces));
            prop_assert_eq!(whole, cut);
        }
    }
}
