//! A store that has gone to the process that took over, while this one still has work to bring to
//! its end. Operations of this process are carried out there, each group as one transaction.
//!
//! Both ends are here; [`Link`] says what goes between them.

use std::io;
use std::ops::{Bound, ControlFlow};
use std::sync::mpsc;
use std::time::Duration;

use crate::engine::Operation;
use crate::error::StoreError;
use crate::link::{Changes, Link, NEXT_WORD, read_named, sized, split, unexpected};
use crate::transaction::{Failed, Transaction};

/// Entries of one answer, and about how many bytes.
const MOST_ENTRIES: usize = 256;
const MOST_BYTES: usize = 1 << 20;
/// The most changes in one transaction: far more than a group of operations makes.
const MOST_CHANGES: usize = 1 << 20;

/// The one that has the store may take so long to begin, and to commit: others come before.
const TURN: Duration = Duration::from_secs(30);

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
    let mut transaction = Transaction::elsewhere(Changes::new(link));
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

/// Serves the old process until it is gone: each of its transactions is handed to `carry_out`,
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
        let asked = TheirTransaction {
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
struct TheirTransaction {
    growth: u64,
    /// None once it was of no use.
    link: Option<Link>,
    back: mpsc::Sender<Link>,
}

impl Operation for TheirTransaction {
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
