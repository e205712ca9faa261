//! A store that has gone to the process that took over, while this one still has work to bring to
//! its end. Operations of this process are carried out there, each group as one transaction.
//!
//! Both ends are here. While a transaction is under way, the other process does nothing else with
//! the store; it reads what it is asked for, and changes come in one piece at the end. An end of
//! the connection in between changes nothing. What the two say must be understood by other
//! releases, too; each frame is a letter, the length of what follows, and that:
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
use std::sync::mpsc;
use std::time::Duration;

use crate::engine::Operation;
use crate::error::StoreError;
use crate::transaction::{Failed, Transaction};

/// An entry has at most a payload of a job or a value of a storage, with what is around it.
const LONGEST: u32 = 256 << 20;
/// Entries of one answer, and about how many bytes.
const MOST_ENTRIES: usize = 256;
const MOST_BYTES: usize = 1 << 20;
/// Of changes in one transaction: far more than a group of operations makes.
const MOST_CHANGES: usize = 1 << 20;

/// What the other end may take for its next word within a transaction. The one that has the store
/// waits for it with all of its operations; longer than the system needs to run a process that is
/// not stopped.
const NEXT_WORD: Duration = Duration::from_secs(3);
/// What the one that has the store may take to begin, and to commit: others come before.
const TURN: Duration = Duration::from_secs(30);

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

    fn wait(&self, most: Option<Duration>) -> io::Result<()> {
        self.0.set_read_timeout(most)
    }

    fn send(&mut self, letter: u8, parts: &[&[u8]]) -> io::Result<()> {
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

    fn receive(&mut self) -> io::Result<(u8, Vec<u8>)> {
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

fn unexpected() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "a word that was not expected")
}

/// Reads what [`sized`] wrote.
fn split<'b>(bytes: &mut &'b [u8]) -> io::Result<&'b [u8]> {
    let (length, rest) = bytes.split_first_chunk::<4>().ok_or_else(unexpected)?;
    let length = u32::from_be_bytes(*length) as usize;
    let (part, rest) = rest.split_at_checked(length).ok_or_else(unexpected)?;
    *bytes = rest;
    Ok(part)
}

/// With its length in front.
fn sized(into: &mut Vec<u8>, part: &[u8]) {
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

fn read_named<'b>(bytes: &mut &'b [u8]) -> io::Result<(TreeName, &'b [u8])> {
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

impl Changes<'_> {
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
            // What was changed up to there, or behind the last one that is there.
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

    fn send(self) -> io::Result<()> {
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

/// Has operations carried out by the process that has taken over; one that is full takes them one
/// by one. False: that process is gone.
pub(crate) fn carry_out(link: &mut Link, mut group: Vec<Box<dyn Operation>>) -> bool {
    let outcome = transact(link, &mut group);
    match outcome {
        Ok(Err(StoreError::Full { .. })) if group.len() > 1 => {
            let mut operations = group.into_iter();
            // Dropped, an operation is one that a closed store has not carried out.
            operations.all(|operation| carry_out(link, vec![operation]))
        }
        Ok(outcome) => {
            for operation in group {
                operation.finish(outcome.clone());
            }
            true
        }
        Err(_) => {
            for operation in group {
                operation.finish(Err(StoreError::Gone));
            }
            false
        }
    }
}

fn transact(
    link: &mut Link,
    group: &mut [Box<dyn Operation>],
) -> io::Result<Result<(), StoreError>> {
    let growth: u64 = group.iter().map(|operation| operation.growth()).sum();
    link.wait(Some(TURN))?;
    link.send(b'B', &[&growth.to_be_bytes()])?;
    match link.receive()? {
        (b'b', _) => {}
        said => return Ok(Err(refusal(said)?)),
    }
    let all = BTreeMap::new();
    let mut transaction = Transaction::elsewhere(Changes { link, all });
    for operation in group {
        if operation.run(&mut transaction).is_err() {
            // Without the last word, nothing is done there; the connection is of no use any more.
            return Err(unexpected());
        }
    }
    let changes = transaction.into_changes().ok_or_else(unexpected)?;
    changes.send()?;
    match link.receive()? {
        (b'c', _) => Ok(Ok(())),
        said => Ok(Err(refusal(said)?)),
    }
}

fn refusal((letter, body): (u8, Vec<u8>)) -> io::Result<StoreError> {
    match letter {
        b'F' => {
            let limit = body.try_into().map_err(|_| unexpected())?;
            let limit = u64::from_be_bytes(limit);
            Ok(StoreError::Full { limit })
        }
        b'E' => Ok(StoreError::Elsewhere(String::from_utf8_lossy(&body).into())),
        _ => Err(unexpected()),
    }
}

/// What the old process asks for, until it is gone: each transaction is handed to `carry_out`,
/// which may wait.
pub(crate) fn serve(mut link: Link, mut carry_out: impl FnMut(Box<dyn Operation>) -> bool) {
    loop {
        let waits = link.wait(None);
        let Ok((b'B', growth)) = waits.and_then(|()| link.receive()) else {
            return;
        };
        let Ok(growth) = growth.try_into().map(u64::from_be_bytes) else {
            return;
        };
        let (back, next) = mpsc::channel();
        let asked = Asked {
            growth,
            link: Some(link),
            back,
        };
        if !carry_out(Box::new(asked)) {
            return;
        }
        // Dropped without an end where the store is closed.
        match next.recv() {
            Ok(again) => link = again,
            Err(_) => return,
        }
    }
}

/// A transaction of the old process, in the new one.
struct Asked {
    growth: u64,
    /// None once it was of no use.
    link: Option<Link>,
    back: mpsc::Sender<Link>,
}

impl Operation for Asked {
    fn growth(&self) -> u64 {
        self.growth
    }

    fn is_foreign(&self) -> bool {
        true
    }

    /// One that breaks off has changed nothing.
    fn run(&mut self, transaction: &mut Transaction<'_>) -> Result<(), Failed> {
        let Some(link) = &mut self.link else {
            return Ok(());
        };
        match converse(link, transaction) {
            Ok(Ok(())) => Ok(()),
            Ok(Err(failed)) => Err(failed),
            Err(_) => {
                self.link = None;
                Ok(())
            }
        }
    }

    fn finish(self: Box<Self>, outcome: Result<(), StoreError>) {
        let Self { link, back, .. } = *self;
        let Some(mut link) = link else { return };
        let said = match outcome {
            Ok(()) => link.send(b'c', &[]),
            Err(StoreError::Full { limit }) => link.send(b'F', &[&limit.to_be_bytes()]),
            Err(why) => link.send(b'E', &[why.to_string().as_bytes()]),
        };
        if said.is_ok() {
            // Who serves waits for it.
            _ = back.send(link);
        }
    }
}

fn converse(link: &mut Link, transaction: &mut Transaction<'_>) -> io::Result<Result<(), Failed>> {
    link.wait(Some(NEXT_WORD))?;
    link.send(b'b', &[])?;
    let mut changes = Vec::new();
    loop {
        let (letter, body) = link.receive()?;
        let mut bytes = &body[..];
        match letter {
            b'G' => {
                let (tree, key) = read_named(&mut bytes)?;
                match transaction.get_in(tree, key) {
                    Ok(Some(value)) => link.send(b'v', &[&value])?,
                    Ok(None) => link.send(b'n', &[])?,
                    Err(failed) => return Ok(Err(failed)),
                }
            }
            b'S' => {
                let (kind, rest) = bytes.split_first().ok_or_else(unexpected)?;
                bytes = rest;
                let (tree, key) = read_named(&mut bytes)?;
                let from = match kind {
                    0 => Bound::Unbounded,
                    1 => Bound::Included(key),
                    _ => Bound::Excluded(key),
                };
                let (mut answer, mut count, mut more) = (Vec::new(), 0, 0);
                let scanned = transaction.scan_in(tree, from, |key, value| {
                    if count == MOST_ENTRIES || answer.len() >= MOST_BYTES {
                        more = 1;
                        return ControlFlow::Break(());
                    }
                    count += 1;
                    sized(&mut answer, key);
                    sized(&mut answer, value);
                    ControlFlow::Continue(())
                });
                if let Err(failed) = scanned {
                    return Ok(Err(failed));
                }
                link.send(b'e', &[&[more], &answer])?;
            }
            b'P' | b'R' if changes.len() < MOST_CHANGES => {
                let (tree, key) = read_named(&mut bytes)?;
                let value = match letter {
                    b'P' => Some(split(&mut bytes)?.to_vec()),
                    _ => None,
                };
                changes.push((tree, key.to_vec(), value));
            }
            b'C' => break,
            _ => return Err(unexpected()),
        }
    }
    for (tree, key, value) in changes {
        let done = match value {
            Some(value) => transaction.put_in(tree, &key, &value),
            None => transaction.remove_in(tree, &key).map(drop),
        };
        if let Err(failed) = done {
            return Ok(Err(failed));
        }
    }
    Ok(Ok(()))
}
