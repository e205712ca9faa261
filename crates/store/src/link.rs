//! The connection between two processes that have work with the same store, and what they say on
//! it. While a transaction is under way, the new process does nothing else with the store; it
//! reads what it is asked for, and changes come in one piece at the end. An end of the connection
//! in between changes nothing. Other releases must understand these words, too; each frame is a
//! letter, the length of what follows, and that:
//!
//! | from | letter | |
//! |---|---|---|
//! | new | `h` | it can be given the store |
//! | old | `B` | a transaction, which adds so much |
//! | new | `b` | it has begun |
//! | old | `G` | what is the value of a key |
//! | new | `v`, `n` | this; there is none |
//! | old | `S` | which entries follow |
//! | new | `e` | these, and whether there are more |
//! | old | `P`, `R` | an entry to put, to remove; no answer |
//! | old | `C` | all was said |
//! | new | `c`, `F`, `E` | it is on the disk; the store is full; it failed, and why |

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::ops::{Bound, ControlFlow};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// An entry has at most a payload of a job or a value of a storage, with what is around it.
const LONGEST: u32 = 256 << 20;

/// The other end may take so long for its next word within a transaction. The one that has the
/// store waits for it with all of its operations; longer than the system needs to run a process
/// that is not stopped.
pub(crate) const NEXT_WORD: Duration = Duration::from_secs(3);

/// The connection, at either end.
#[derive(Debug)]
pub(crate) struct Link(UnixStream);

impl Link {
    /// The new process, which can be given the store from now on.
    pub(crate) fn of_new(stream: UnixStream) -> io::Result<Self> {
        stream.set_nonblocking(false)?;
        stream.set_write_timeout(Some(NEXT_WORD))?;
        let mut link = Self(stream);
        link.send(b'h', &[])?;
        Ok(link)
    }

    /// The old process. None where the new one has not said that it can be given a store: it is of
    /// a release that can't.
    pub(crate) fn of_old(stream: UnixStream) -> io::Result<Option<Self>> {
        stream.set_nonblocking(true)?;
        let mut link = Self(stream);
        let said = link.receive();
        link.0.set_nonblocking(false)?;
        link.0.set_write_timeout(Some(NEXT_WORD))?;
        Ok(said.is_ok_and(|(letter, _)| letter == b'h').then_some(link))
    }

    pub(crate) fn wait(&self, most: Option<Duration>) -> io::Result<()> {
        self.0.set_read_timeout(most)
    }

    pub(crate) fn send(&mut self, letter: u8, parts: &[&[u8]]) -> io::Result<()> {
        let length = parts.iter().map(|part| part.len()).sum::<usize>();
        let length = u32::try_from(length).map_err(|_| too_long())?;
        let mut bytes = Vec::with_capacity(5 + length as usize);
        bytes.push(letter);
        bytes.extend_from_slice(&length.to_be_bytes());
        for part in parts {
            bytes.extend_from_slice(part);
        }
        self.0.write_all(&bytes)
    }

    pub(crate) fn receive(&mut self) -> io::Result<(u8, Vec<u8>)> {
        let mut head = [0; 5];
        self.0.read_exact(&mut head)?;
        let [letter, length @ ..] = head;
        let length = u32::from_be_bytes(length);
        if length > LONGEST {
            return Err(too_long());
        }
        let mut body = Vec::new();
        // It grows as the bytes come, whatever was announced.
        (&self.0).take(length.into()).read_to_end(&mut body)?;
        if body.len() < length as usize {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok((letter, body))
    }
}

fn too_long() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "a frame that is too long")
}

pub(crate) fn unexpected() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "a word that was not expected")
}

/// Reads what [`sized`] wrote.
pub(crate) fn split<'b>(bytes: &mut &'b [u8]) -> io::Result<&'b [u8]> {
    let (length, rest) = bytes.split_first_chunk::<4>().ok_or_else(unexpected)?;
    let length = u32::from_be_bytes(*length) as usize;
    let (part, rest) = rest.split_at_checked(length).ok_or_else(unexpected)?;
    *bytes = rest;
    Ok(part)
}

/// With its length in front.
pub(crate) fn sized(into: &mut Vec<u8>, part: &[u8]) {
    // A part of a frame, which is shorter than that.
    let length = u32::try_from(part.len()).unwrap_or(u32::MAX);
    into.extend_from_slice(&length.to_be_bytes());
    into.extend_from_slice(part);
}

fn named(tree: &str, key: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(8 + tree.len() + key.len());
    sized(&mut bytes, tree.as_bytes());
    sized(&mut bytes, key);
    bytes
}

type TreeName = Cow<'static, str>;

pub(crate) fn read_named<'b>(bytes: &mut &'b [u8]) -> io::Result<(TreeName, &'b [u8])> {
    let tree = std::str::from_utf8(split(bytes)?).map_err(|_| unexpected())?;
    let tree = Cow::Owned(tree.to_owned());
    Ok((tree, split(bytes)?))
}

/// A transaction of the old process: what it has written so far, over what is there.
pub(crate) struct Changes<'l> {
    link: &'l mut Link,
    /// By tree and key; None where an entry is removed.
    all: BTreeMap<(TreeName, Vec<u8>), Option<Vec<u8>>>,
}

impl<'l> Changes<'l> {
    /// A transaction that has begun and has written nothing.
    pub(crate) const fn new(link: &'l mut Link) -> Self {
        Self {
            link,
            all: BTreeMap::new(),
        }
    }

    fn changed(&self, tree: &TreeName, key: &[u8]) -> Option<&Option<Vec<u8>>> {
        self.all.get(&(tree.clone(), key.to_vec()))
    }

    pub(crate) fn get(&mut self, tree: &TreeName, key: &[u8]) -> io::Result<Option<Vec<u8>>> {
        if let Some(changed) = self.changed(tree, key) {
            return Ok(changed.clone());
        }
        self.link.send(b'G', &[&named(tree, key)])?;
        match self.link.receive()? {
            (b'v', value) => Ok(Some(value)),
            (b'n', _) => Ok(None),
            _ => Err(unexpected()),
        }
    }

    pub(crate) fn put(&mut self, tree: TreeName, key: &[u8], value: &[u8]) {
        self.all.insert((tree, key.to_vec()), Some(value.to_vec()));
    }

    pub(crate) fn remove(&mut self, tree: TreeName, key: &[u8]) -> io::Result<bool> {
        let was_there = self.get(&tree, key)?.is_some();
        if was_there {
            self.all.insert((tree, key.to_vec()), None);
        }
        Ok(was_there)
    }

    pub(crate) fn scan(
        &mut self,
        tree: &TreeName,
        from: Bound<&[u8]>,
        mut visit: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> io::Result<()> {
        let mut from = from.map(<[u8]>::to_vec);
        loop {
            let (mut found, more) = self.ask(tree, &from)?;
            let last = found.last_key_value().map(|(key, _)| key.clone());
            // Changes up to there count, or behind the last one that is there.
            let until = match &last {
                Some(last) if more => Bound::Included((tree.clone(), last.clone())),
                _ => Bound::Unbounded,
            };
            let begin = match &from {
                Bound::Included(key) => Bound::Included((tree.clone(), key.clone())),
                Bound::Excluded(key) => Bound::Excluded((tree.clone(), key.clone())),
                Bound::Unbounded => Bound::Included((tree.clone(), Vec::new())),
            };
            let changed = self.all.range((begin, until));
            for ((_, key), value) in changed.take_while(|((of, _), _)| of == tree) {
                match value {
                    Some(value) => _ = found.insert(key.clone(), value.clone()),
                    None => _ = found.remove(key),
                }
            }
            for (key, value) in &found {
                if visit(key, value).is_break() {
                    return Ok(());
                }
            }
            match last {
                Some(last) if more => from = Bound::Excluded(last),
                _ => return Ok(()),
            }
        }
    }

    fn ask(&mut self, tree: &str, from: &Bound<Vec<u8>>) -> io::Result<(Entries, bool)> {
        let (kind, key): (u8, &[u8]) = match from {
            Bound::Unbounded => (0, &[]),
            Bound::Included(key) => (1, key),
            Bound::Excluded(key) => (2, key),
        };
        self.link.send(b'S', &[&[kind], &named(tree, key)])?;
        let (b'e', answer) = self.link.receive()? else {
            return Err(unexpected());
        };
        let (more, mut bytes) = answer.split_first().ok_or_else(unexpected)?;
        let mut entries = Entries::new();
        while !bytes.is_empty() {
            let key = split(&mut bytes)?.to_vec();
            entries.insert(key, split(&mut bytes)?.to_vec());
        }
        Ok((entries, *more != 0))
    }

    /// Says all that was written, and that this is all.
    pub(crate) fn send(self) -> io::Result<()> {
        for ((tree, key), value) in &self.all {
            let mut bytes = named(tree, key);
            match value {
                Some(value) => {
                    sized(&mut bytes, value);
                    self.link.send(b'P', &[&bytes])?;
                }
                None => self.link.send(b'R', &[&bytes])?,
            }
        }
        self.link.send(b'C', &[])
    }
}

type Entries = BTreeMap<Vec<u8>, Vec<u8>>;
