//! What an operation sees of a store.

use std::ops::{Bound, ControlFlow};

use redb::{ReadableTable, Table, TableDefinition, WriteTransaction};

/// Ordered keys of one user of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tree(&'static str);

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
    inner: &'t WriteTransaction,
    open: Vec<(Tree, Entries<'t>)>,
    size: u64,
    has_changes: bool,
    failure: Option<redb::Error>,
}

type Entries<'t> = Table<'t, &'static [u8], &'static [u8]>;

impl<'t> Transaction<'t> {
    pub(crate) fn new(inner: &'t WriteTransaction, size: u64) -> Self {
        Self {
            inner,
            open: Vec::new(),
            size,
            has_changes: false,
            failure: None,
        }
    }

    /// The value of a key.
    pub fn get(&mut self, tree: Tree, key: &[u8]) -> Result<Option<Vec<u8>>, Failed> {
        self.step(tree, |entries| {
            let found = entries.get(key)?;
            Ok(found.map(|value| value.value().to_vec()))
        })
    }

    /// Adds an entry, or replaces its value.
    pub fn put(&mut self, tree: Tree, key: &[u8], value: &[u8]) -> Result<(), Failed> {
        let before = self.step(tree, |entries| {
            let before = entries.insert(key, value)?;
            Ok(before.map(|before| entry_size(key, before.value())))
        })?;
        self.has_changes = true;
        self.size += entry_size(key, value);
        self.size = self.size.saturating_sub(before.unwrap_or(0));
        Ok(())
    }

    /// Removes an entry; says whether it was there.
    pub fn remove(&mut self, tree: Tree, key: &[u8]) -> Result<bool, Failed> {
        let before = self.step(tree, |entries| {
            let before = entries.remove(key)?;
            Ok(before.map(|before| entry_size(key, before.value())))
        })?;
        let Some(before) = before else {
            return Ok(false);
        };
        self.has_changes = true;
        self.size = self.size.saturating_sub(before);
        Ok(true)
    }

    /// Shows the entries from `from` on, in the order of keys, until `visit` has enough.
    pub fn scan(
        &mut self,
        tree: Tree,
        from: Bound<&[u8]>,
        mut visit: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<(), Failed> {
        self.step(tree, |entries| {
            for entry in entries.range::<&[u8]>((from, Bound::Unbounded))? {
                let (key, value) = entry?;
                if visit(key.value(), value.value()).is_break() {
                    break;
                }
            }
            Ok(())
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

    fn step<T>(
        &mut self,
        tree: Tree,
        step: impl FnOnce(&mut Entries<'t>) -> Result<T, redb::Error>,
    ) -> Result<T, Failed> {
        let done = self.entries(tree).and_then(step);
        done.map_err(|failure| {
            self.failure = Some(failure);
            Failed(())
        })
    }

    /// A table can be open once in a transaction, so it stays open for all operations of a group.
    fn entries(&mut self, tree: Tree) -> Result<&mut Entries<'t>, redb::Error> {
        let known = self.open.iter().position(|(name, _)| *name == tree);
        let place = match known {
            Some(place) => place,
            None => {
                let entries = self.inner.open_table(TableDefinition::new(tree.0))?;
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
