//! A bound for what a broker sends, kept where its bytes come in: the client has none,
//! neither for a message nor for messages that nobody has taken yet.
//!
//! Follows the framing, and looks at no value but a message's length.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};

use bytes::Buf;
use pronghorn_base::lock;

/// The longest frame of the default settings of RabbitMQ. A broker is told it when the connection
/// is made.
pub(super) const MOST_FRAME: u32 = 128 << 10;
/// RabbitMQ takes no longer message by default.
const LONGEST_BODY: u64 = 128 << 20;
/// Messages that the client has read and the driver has not taken may have so many bytes together.
const MOST_UNTAKEN: u64 = 256 << 20;
/// A message costs about this beside its head and its body.
const MESSAGE: u64 = 1 << 10;
/// The type, the channel and the length of a frame.
const HEAD: usize = 1 + 2 + 4;
const METHOD: u8 = 1;
const CONTENT: u8 = 2;
const BODY: u8 = 3;
const HEARTBEAT: u8 = 8;
/// The class of a method, and which of that it is.
const METHOD_START: usize = 2 + 2;
/// A content's class, its weight and the length of its body.
const CONTENT_START: usize = 2 + 2 + 8;
/// A message follows these: `basic.return`, `basic.deliver` and `basic.get-ok`.
const WITH_CONTENT: [(u16, u16); 3] = [(60, 50), (60, 60), (60, 71)];

/// Messages that the client holds, by their channels. Clones are the same ones.
#[derive(Clone, Default)]
pub(super) struct Untaken(Arc<Mutex<Messages>>);

#[derive(Default)]
struct Messages {
    /// The cost of each message of a channel, in their order.
    channels: HashMap<u16, VecDeque<u64>>,
    all: u64,
}

impl Untaken {
    /// The first message of a channel is the driver's from now on.
    pub(super) fn taken(&self, channel: u16) {
        let mut messages = lock(&self.0);
        let first = messages.channels.get_mut(&channel);
        let cost = first.and_then(VecDeque::pop_front).unwrap_or_default();
        messages.all -= cost;
    }

    /// A message begins, or goes on and costs more.
    fn add(&self, channel: u16, cost: u64, begins: bool) -> Result<(), String> {
        let mut messages = lock(&self.0);
        let costs = messages.channels.entry(channel).or_default();
        match costs.back_mut() {
            Some(last) if !begins => *last += cost,
            _ => costs.push_back(cost),
        }
        messages.all += cost;
        if messages.all > MOST_UNTAKEN {
            return Err(format!(
                "it sent more messages than were asked for: they take more than {MOST_UNTAKEN} bytes"
            ));
        }
        Ok(())
    }
}

/// The frames of a connection, as far as they have come.
pub(super) struct Frames {
    untaken: Untaken,
    /// The head of a frame, and what is looked at of the bytes after it.
    start: [u8; HEAD + CONTENT_START],
    /// `start` has so many bytes so far, and will have so many.
    here: usize,
    expected: usize,
    /// The frame has so many bytes after those, its end included.
    left: usize,
}

impl Frames {
    pub(super) fn new(untaken: Untaken) -> Self {
        Self {
            untaken,
            start: [0; HEAD + CONTENT_START],
            here: 0,
            expected: HEAD,
            left: 0,
        }
    }

    /// Looks at the next bytes: says what is wrong with them.
    pub(super) fn follow(&mut self, mut bytes: &[u8]) -> Result<(), String> {
        while !bytes.is_empty() {
            if self.here < self.expected {
                let place = self.start.get_mut(self.here..self.expected);
                let place = place.unwrap_or_default();
                let count = place.len().min(bytes.len());
                let (now, later) = bytes.split_at(count);
                place.iter_mut().zip(now).for_each(|(to, from)| *to = *from);
                self.here += count;
                bytes = later;
                if self.here == HEAD {
                    self.begin()?;
                }
                if self.here == self.expected {
                    self.look()?;
                }
            } else {
                let count = self.left.min(bytes.len());
                bytes = bytes.get(count..).unwrap_or_default();
                self.left -= count;
            }
            if self.here == self.expected && self.left == 0 {
                (self.here, self.expected) = (0, HEAD);
            }
        }
        Ok(())
    }

    /// The head is there.
    fn begin(&mut self) -> Result<(), String> {
        let mut head = &self.start[..];
        let (kind, _channel, length) = (head.get_u8(), head.get_u16(), head.get_u32());
        let looked_at = match kind {
            METHOD => METHOD_START,
            CONTENT => CONTENT_START,
            BODY | HEARTBEAT => 0,
            _ => {
                let start = self.start[..HEAD].escape_ascii();
                return Err(format!(
                    "what answers speaks no AMQP 0-9-1: it says `{start}`"
                ));
            }
        };
        if length > MOST_FRAME {
            return Err(format!(
                "it sent a frame of {length} bytes, more than {MOST_FRAME}"
            ));
        }
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        // The client refuses a frame that is too short for what it is.
        let looked_at = looked_at.min(length);
        self.expected = HEAD + looked_at;
        self.left = length - looked_at + 1;
        Ok(())
    }

    /// All of `start` is there.
    fn look(&self) -> Result<(), String> {
        let mut start = &self.start[..self.expected.min(HEAD + CONTENT_START)];
        let (kind, channel, length) = (start.get_u8(), start.get_u16(), start.get_u32());
        if kind == METHOD && start.len() >= METHOD_START {
            let method = (start.get_u16(), start.get_u16());
            if WITH_CONTENT.contains(&method) {
                return self.untaken.add(channel, MESSAGE, true);
            }
        }
        if kind == CONTENT && start.len() >= CONTENT_START {
            start.advance(CONTENT_START - 8);
            let body = start.get_u64();
            if body > LONGEST_BODY {
                return Err(format!(
                    "it sent a message of {body} bytes, more than {LONGEST_BODY}"
                ));
            }
            return self.untaken.add(channel, body + u64::from(length), false);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, channel: u16, payload: &[u8]) -> Vec<u8> {
        let mut bytes = vec![kind];
        bytes.extend(channel.to_be_bytes());
        bytes.extend(u32::try_from(payload.len()).unwrap().to_be_bytes());
        bytes.extend(payload);
        bytes.push(0xce);
        bytes
    }

    /// A message for a consumer: the method, the head of the content and a part of its body.
    fn message(channel: u16, body: u64) -> Vec<u8> {
        let deliver = frame(METHOD, channel, b"\0\x3c\0\x3c and more");
        let content = [&b"\0\x3c\0\0"[..], &body.to_be_bytes(), b"\0\0"].concat();
        let body = frame(BODY, channel, &[b'x'; 100]);
        [deliver, frame(CONTENT, channel, &content), body].concat()
    }

    fn follow(bytes: &[u8], part: usize) -> (Result<(), String>, Untaken) {
        let untaken = Untaken::default();
        let mut frames = Frames::new(untaken.clone());
        let mut parts = bytes.chunks(part);
        (parts.try_for_each(|part| frames.follow(part)), untaken)
    }

    #[test]
    fn messages_are_counted_until_they_are_taken() {
        let heartbeat = frame(HEARTBEAT, 0, b"");
        let confirmed = frame(METHOD, 2, b"\0\x3c\0\x50 and more");
        let bytes = [
            message(1, 100),
            heartbeat,
            message(2, 5000),
            confirmed,
            message(1, 0),
        ];
        for part in [1, 7, 1000] {
            let (followed, untaken) = follow(&bytes.concat(), part);
            assert_eq!(followed, Ok(()));
            assert_eq!(
                lock(&untaken.0).all,
                3 * (MESSAGE + 14) + 5100,
                "in parts of {part}"
            );
            untaken.taken(1);
            assert_eq!(lock(&untaken.0).all, 2 * (MESSAGE + 14) + 5000);
            untaken.taken(2);
            untaken.taken(1);
            untaken.taken(1);
            assert_eq!(lock(&untaken.0).all, 0);
        }
    }

    #[test]
    fn what_leads_beyond_a_bound_is_refused_where_it_is_announced() {
        let mut long_frame = frame(BODY, 1, b"");
        long_frame[3..7].copy_from_slice(&u32::MAX.to_be_bytes());
        for (bytes, said) in [
            (message(1, 1 << 32), "a message of 4294967296 bytes"),
            (long_frame, "a frame of 4294967295 bytes"),
            (
                message(1, LONGEST_BODY).repeat(3),
                "more messages than were asked for",
            ),
            (
                frame(METHOD, 1, b"\0\x3c\0\x3c").repeat(300_000),
                "more messages than were asked for",
            ),
            (
                b"AMQP\0\0\x09\x01".to_vec(),
                "speaks no AMQP 0-9-1: it says `AMQP",
            ),
            (b"HTTP/1.1 400 Bad Request".to_vec(), "it says `HTTP/1."),
        ] {
            for part in [1, 1000] {
                let (followed, _) = follow(&bytes, part);
                let refused = followed.unwrap_err();
                assert!(refused.contains(said), "{refused}");
            }
        }
    }

    #[test]
    fn no_bytes_are_too_much_for_it() {
        let mut random = fastrand::Rng::with_seed(1);
        for _ in 0..2000 {
            let mut bytes = message(random.u16(..3), random.u64(..200));
            for _ in 0..random.usize(..4) {
                let place = random.usize(..bytes.len());
                bytes[place] = random.u8(..);
            }
            let (whole, _) = follow(&bytes, bytes.len());
            let (parts, _) = follow(&bytes, 1);
            assert_eq!(whole, parts);
        }
    }
}
