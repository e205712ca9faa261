//! What an operation sees of a store.

use std::borrow::Cow;
use std::ops::{Bound, ControlFlow};

use redb::{ReadableTable, Table, TableDefinition, WriteTransaction};

use crate::link::Changes;

/// Ordered keys of one user of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tree(pub(crate) &'static str);

impl Tree {
    /// A name that no other user has.
    pub const fn new(name: &'static str) -> Self {
        Self(name)
    }
}

/// The engine failed. Nothing of the operation counts, nor of those that shared its commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct Failed(());

/// What an entry takes in the file beside its key and value: its place in two levels of the tree.
const ENTRY_OVERHEAD: u64 = 32;

/// How much an entry counts towards the limit of the store.
pub fn entry_size(key: &[u8], value: &[u8]) -> u64 {
    (key.len() as u64)
        .saturating_add(value.len() as u64)
        .saturating_add(ENTRY_OVERHEAD)
}

/// All that the operations before have written, whether it is on the disk yet or not.
pub struct Transaction<'t> {
    place: Backing<'t>,
    size: u64,
    has_changes: bool,
    failure: Option<redb::Error>,
}

/// Where the entries are.
enum Backing<'t> {
    File(Tables<'t>),
    /// With the process that has taken over.
    Elsewhere(Changes<'t>),
}

struct Tables<'t> {
    inner: &'t WriteTransaction,
    open: Vec<(Cow<'static, str>, Entries<'t>)>,
}

type Entries<'t> = Table<'t, &'static [u8], &'static [u8]>;

impl<'t> Transaction<'t> {
    pub(crate) fn new(inner: &'t WriteTransaction, size: u64) -> Self {
        let open = Vec::new();
        Self::of(Backing::File(Tables { inner, open }), size)
    }

    pub(crate) fn elsewhere(changes: Changes<'t>) -> Self {
        Self::of(Backing::Elsewhere(changes), 0)
    }

    const fn of(place: Backing<'t>, size: u64) -> Self {
        Self {
            place,
            size,
            has_changes: false,
            failure: None,
        }
    }

    /// The value of a key.
    pub fn get(&mut self, tree: Tree, key: &[u8]) -> Result<Option<Vec<u8>>, Failed> {
        self.get_in(tree.0.into(), key)
    }

    /// Adds an entry, or replaces its value.
    pub fn put(&mut self, tree: Tree, key: &[u8], value: &[u8]) -> Result<(), Failed> {
        self.put_in(tree.0.into(), key, value)
    }

    /// Removes an entry; says whether it was there.
    pub fn remove(&mut self, tree: Tree, key: &[u8]) -> Result<bool, Failed> {
        self.remove_in(tree.0.into(), key)
    }

    /// Shows the entries from `from` on, in the order of keys, until `visit` has enough.
    pub fn scan(
        &mut self,
        tree: Tree,
        from: Bound<&[u8]>,
        visit: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<(), Failed> {
        self.scan_in(tree.0.into(), from, visit)
    }

    pub(crate) fn get_in(
        &mut self,
        tree: Cow<'static, str>,
        key: &[u8],
    ) -> Result<Option<Vec<u8>>, Failed> {
        self.step(|place| match place {
            Backing::File(tables) => {
                let found = tables.entries(tree)?.get(key)?;
                Ok(found.map(|value| value.value().to_vec()))
            }
            Backing::Elsewhere(changes) => Ok(changes.get(&tree, key)?),
        })
    }

    pub(crate) fn put_in(
        &mut self,
        tree: Cow<'static, str>,
        key: &[u8],
        value: &[u8],
    ) -> Result<(), Failed> {
        let before = self.step(|place| match place {
            Backing::File(tables) => {
                let before = tables.entries(tree)?.insert(key, value)?;
                Ok(before.map(|before| entry_size(key, before.value())))
            }
            Backing::Elsewhere(changes) => {
                changes.put(tree, key, value);
                Ok(None)
            }
        })?;
        self.has_changes = true;
        self.size += entry_size(key, value);
        self.size = self.size.saturating_sub(before.unwrap_or(0));
        Ok(())
    }

    pub(crate) fn remove_in(
        &mut self,
        tree: Cow<'static, str>,
        key: &[u8],
    ) -> Result<bool, Failed> {
        let before = self.step(|place| match place {
            Backing::File(tables) => {
                let before = tables.entries(tree)?.remove(key)?;
                Ok(before.map(|before| entry_size(key, before.value())))
            }
            Backing::Elsewhere(changes) => Ok(changes.remove(tree, key)?.then_some(0)),
        })?;
        let Some(before) = before else {
            return Ok(false);
        };
        self.has_changes = true;
        self.size = self.size.saturating_sub(before);
        Ok(true)
    }

    pub(crate) fn scan_in(
        &mut self,
        tree: Cow<'static, str>,
        from: Bound<&[u8]>,
        mut visit: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<(), Failed> {
        self.step(|place| match place {
            Backing::File(tables) => {
                let entries = tables.entries(tree)?;
                for entry in entries.range::<&[u8]>((from, Bound::Unbounded))? {
                    let (key, value) = entry?;
                    if visit(key.value(), value.value()).is_break() {
                        break;
                    }
                }
                Ok(())
            }
            Backing::Elsewhere(changes) => Ok(changes.scan(&tree, from, visit)?),
        })
    }

    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    pub(crate) fn has_changes(&self) -> bool {
        self.has_changes
    }

    pub(crate) fn failure(self) -> redb::Error {
        let unknown = || redb::Error::Corrupted("an operation failed without a reason".to_owned());
        self.failure.unwrap_or_else(unknown)
    }

    /// The changes for the process that has taken over.
    pub(crate) fn into_changes(self) -> Option<Changes<'t>> {
        match self.place {
            Backing::Elsewhere(changes) => Some(changes),
            Backing::File(_) => None,
        }
    }

    fn step<T>(
        &mut self,
        step: impl FnOnce(&mut Backing<'t>) -> Result<T, redb::Error>,
    ) -> Result<T, Failed> {
        step(&mut self.place).map_err(|failure| {
            self.failure = Some(failure);
            Failed(())
        })
    }
}

impl<'t> Tables<'t> {
    /// A table can be open once in a transaction, so it stays open for all operations of a group.
    fn entries(&mut self, tree: Cow<'static, str>) -> Result<&mut Entries<'t>, redb::Error> {
        let known = self.open.iter().position(|(name, _)| *name == tree);
        let place = match known {
            Some(place) => place,
            None => {
                let entries = self.inner.open_table(TableDefinition::new(&tree))?;
                self.open.push((tree, entries));
                self.open.len() - 1
            }
        };
        Ok(&mut self.open[place].1)
    }
}

impl std::fmt::Debug for Transaction<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Transaction")
            .field("size", &self.size)
            .field("has_changes", &self.has_changes)
            .finish_non_exhaustive()
    }
}
