//! Frames that cost their sender nothing: how many of them a client may send.
//!
//! `h2` keeps none of them, so they can't fill memory; without an end they would still keep a
//! thread busy that others wait for. Frames are counted as they are read, before `h2` sees them.
//! What is not counted here is bounded elsewhere: requests by the streams that may be open,
//! CONTINUATION by `h2` from the limit on heads, fields where their blocks are judged, a body's
//! bytes by flow control, and `WINDOW_UPDATE` by nothing, because whoever takes a large reply
//! sends many.

use std::time::Duration;

use tokio::time::Instant;

/// Over how long frames are counted.
const WINDOW: Duration = Duration::from_secs(10);
/// Requests that are taken back (rapid reset). A browser takes back some dozens when somebody
/// leaves a page, a proxy in front of many clients some for each hundred requests.
const RESETS: u32 = 1000;
/// One comes at the start, and one when a client changes its mind about its windows.
const SETTINGS: u32 = 50;
/// Clients that measure a path send one per round trip while a body comes; others one in some
/// seconds.
const PINGS: u32 = 1000;
/// Firefox sent one per request, and six at the start.
const PRIORITIES: u32 = 5000;
/// Frames of types that `h2` does not know and skips. Browsers send `PRIORITY_UPDATE` (RFC 9218),
/// about one per request.
const OTHERS: u32 = 5000;
/// Pieces of a body with nothing in them. They are allowed, and nobody needs them.
const EMPTY: u32 = 100;

/// Frames of bodies with less than this cost `h2` more than their bytes.
const SMALL: usize = 256;

/// Such frames that are read in one go: then the readers of bodies have a turn.
const SMALL_AT_ONCE: usize = 256;

/// A frame's head: length, type, flags, stream.
pub(super) const HEAD: usize = 9;
/// The bytes that a client sends before its first frame.
pub(super) const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The kind of frames of which there were too many.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Flood {
    Resets,
    Settings,
    Pings,
    Priorities,
    Others,
    EmptyData,
    /// In one block.
    Fields,
}

impl Flood {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Resets => "RST_STREAM",
            Self::Settings => "SETTINGS",
            Self::Pings => "PING",
            Self::Priorities => "PRIORITY",
            Self::Others => "unknown type",
            Self::EmptyData => "empty DATA",
            Self::Fields => "fields of a block",
        }
    }
}

/// Counts the frames in what a client sends.
#[derive(Debug)]
pub(super) struct Frames {
    head: [u8; HEAD],
    /// How much of a head is there.
    filled: usize,
    /// Bytes of the preface, or of a frame, that are still to come.
    skip: usize,
    resets: Rate,
    settings: Rate,
    pings: Rate,
    priorities: Rate,
    others: Rate,
    empty: Rate,
    /// Small frames of bodies since the readers of bodies had their turn.
    small: usize,
}

impl Frames {
    pub(super) fn new(now: Instant) -> Self {
        let rate = |most| Rate {
            most,
            seen: 0,
            since: now,
        };
        Self {
            head: [0; HEAD],
            filled: 0,
            skip: PREFACE.len(),
            resets: rate(RESETS),
            settings: rate(SETTINGS),
            pings: rate(PINGS),
            priorities: rate(PRIORITIES),
            others: rate(OTHERS),
            empty: rate(EMPTY),
            small: 0,
        }
    }

    /// Whether the readers of bodies are to take what is there before more is read.
    pub(super) fn take_turn(&mut self) -> bool {
        let is_due = self.small >= SMALL_AT_ONCE;
        if is_due {
            self.small = 0;
        }
        is_due
    }

    /// Takes the next bytes, however they are cut.
    pub(super) fn take(&mut self, mut bytes: &[u8]) -> Result<(), Flood> {
        loop {
            let skipped = self.skip.min(bytes.len());
            self.skip -= skipped;
            bytes = &bytes[skipped..];
            let taken = (HEAD - self.filled).min(bytes.len());
            self.head[self.filled..self.filled + taken].copy_from_slice(&bytes[..taken]);
            self.filled += taken;
            bytes = &bytes[taken..];
            if self.filled < HEAD {
                return Ok(());
            }
            self.filled = 0;
            self.count()?;
        }
    }

    /// Judges a head that is complete.
    fn count(&mut self) -> Result<(), Flood> {
        const ACK: u8 = 1;
        const END_STREAM: u8 = 1;
        /// The first type that RFC 9113 does not have.
        const UNKNOWN: u8 = 10;
        let [a, b, c, kind, flags, ..] = self.head;
        self.skip = u32::from_be_bytes([0, a, b, c]) as usize;
        if kind == 0 && self.skip < SMALL {
            self.small += 1;
        }
        let (rate, flood) = match kind {
            0 if self.skip == 0 && flags & END_STREAM == 0 => (&mut self.empty, Flood::EmptyData),
            2 => (&mut self.priorities, Flood::Priorities),
            3 => (&mut self.resets, Flood::Resets),
            4 if flags & ACK == 0 => (&mut self.settings, Flood::Settings),
            6 => (&mut self.pings, Flood::Pings),
            UNKNOWN.. => (&mut self.others, Flood::Others),
            _ => return Ok(()),
        };
        if rate.has_room() { Ok(()) } else { Err(flood) }
    }
}

/// So many in a window. Looks at the clock only when they were seen.
#[derive(Debug)]
struct Rate {
    most: u32,
    seen: u32,
    since: Instant,
}

impl Rate {
    fn has_room(&mut self) -> bool {
        self.seen += 1;
        if self.seen <= self.most {
            return true;
        }
        let now = Instant::now();
        let fits = now - self.since >= WINDOW;
        (self.seen, self.since) = (1, now);
        fits
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tokio::time::advance;

    use super::*;

    fn frame(kind: u8, flags: u8, payload: usize) -> Vec<u8> {
        let length = u32::try_from(payload).unwrap().to_be_bytes();
        let mut frame = vec![length[1], length[2], length[3], kind, flags, 0, 0, 0, 1];
        frame.resize(HEAD + payload, 0xff);
        frame
    }

    fn counter() -> Frames {
        let mut frames = Frames::new(Instant::now());
        frames.take(PREFACE).unwrap();
        frames
    }

    const KINDS: [(u8, u8, usize, u32, Flood); 6] = [
        (3, 0, 4, RESETS, Flood::Resets),
        (4, 0, 6, SETTINGS, Flood::Settings),
        (6, 0, 8, PINGS, Flood::Pings),
        (2, 0, 5, PRIORITIES, Flood::Priorities),
        (16, 0, 9, OTHERS, Flood::Others),
        (0, 0, 0, EMPTY, Flood::EmptyData),
    ];

    #[tokio::test(start_paused = true)]
    async fn of_each_kind_only_so_many_are_taken_in_a_window() {
        for (kind, flags, payload, most, flood) in KINDS {
            let mut frames = counter();
            let frame = frame(kind, flags, payload);
            for _ in 0..most {
                assert_eq!(frames.take(&frame), Ok(()), "{flood:?}");
            }
            assert_eq!(frames.take(&frame), Err(flood));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn who_sends_no_more_than_that_may_go_on_for_ever() {
        for (kind, flags, payload, most, flood) in KINDS {
            let mut frames = counter();
            let frame = frame(kind, flags, payload);
            for _ in 0..5 {
                for _ in 0..most {
                    assert_eq!(frames.take(&frame), Ok(()), "{flood:?}");
                }
                advance(WINDOW).await;
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_a_client_needs_is_not_counted() {
        let mut frames = counter();
        let useful = [
            frame(0, 0, 100),
            frame(0, 1, 0),
            frame(1, 5, 40),
            frame(4, 1, 0),
            frame(8, 0, 4),
        ];
        for _ in 0..2 * PRIORITIES {
            for frame in &useful {
                assert_eq!(frames.take(frame), Ok(()));
            }
        }
    }

    proptest! {
        #[test]
        fn frames_are_found_however_they_are_cut(
            kinds in proptest::collection::vec((0_u8..12, 0_u8..2, 0_usize..40), 0..200),
            cut in 1_usize..30,
        ) {
            let mut bytes = PREFACE.to_vec();
            for (kind, flags, payload) in kinds {
                bytes.extend(frame(kind, flags, payload));
            }
            let now = Instant::now();
            let (mut whole, mut pieces) = (Frames::new(now), Frames::new(now));
            let expected = whole.take(&bytes);
            let found = bytes.chunks(cut).try_for_each(|piece| pieces.take(piece));
            prop_assert_eq!(found, expected);
            if expected.is_ok() {
                prop_assert_eq!(format!("{pieces:?}"), format!("{whole:?}"));
            }
        }
    }
}
