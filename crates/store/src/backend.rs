//! The file as the engine sees it: with room that is kept for it on its volume, or, where the disk
//! takes no writes, with memory over it.
//!
//! An end of something, an acknowledgement or a removal, changes pages too, and the engine writes a
//! changed page to another place. On a volume that others have filled there is none. So blocks
//! behind what is written are allocated before they are needed, and what only adds something may
//! not use the last of them.
//!
//! The engine also writes into holes before that end, and far after it. Those blocks are nobody's
//! yet, so a file without a name keeps some more of them. It gives them up when a write finds
//! none.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::ops::Bound;
use std::path::Path;
use std::sync::{Arc, Mutex};

use pronghorn_base::lock;
use redb::{BackendError, StorageBackend};
use rustix::fs::{
    FallocateFlags, Mode, OFlags, SeekFrom, fallocate, fstatvfs, ftruncate, open, seek,
};
use rustix::io::Errno;

/// Enough for a group of ends, which changes some hundred pages. A small volume gives less.
const MOST_RESERVE: u64 = 16 << 20;
const LEAST_RESERVE: u64 = 256 << 10;
/// The share of a volume that is kept.
const SHARE_OF_VOLUME: u64 = 64;

/// Blocks of the file that are allocated behind what is written.
pub(crate) struct Room {
    reserve: u64,
    allocate: Allocate,
    spare: Spare,
    state: Mutex<Allocated>,
}

/// Keeps so many bytes of the volume outside of the file; with 0, gives all of them up.
type Spare = Box<dyn Fn(u64) -> io::Result<()> + Send + Sync>;

/// Allocates a part of the file, from an offset on, so long.
type Allocate = Box<dyn Fn(u64, u64) -> io::Result<()> + Send + Sync>;

#[derive(Clone, Copy, Debug, Default)]
struct Allocated {
    /// Where the last write ended.
    written: u64,
    /// Up to here there are blocks.
    until: u64,
    /// The longest page. A small end rewrites the whole page that it shares with a large entry.
    longest: u64,
    /// The bytes that are kept outside of the file.
    spare: u64,
}

impl Allocated {
    /// A page is free again only after the commit after the one that has left it.
    const fn wanted_spare(&self, reserve: u64) -> u64 {
        reserve + 2 * self.longest
    }
}

impl Room {
    pub(crate) fn new(reserve: u64, written: u64, allocate: Allocate, spare: Spare) -> Arc<Self> {
        let state = Mutex::new(Allocated {
            written,
            ..Allocated::default()
        });
        Arc::new(Self {
            reserve,
            allocate,
            spare,
            state,
        })
    }

    /// The reserve of a file, in proportion to its volume.
    pub(crate) fn of(file: &File, directory: &Path) -> io::Result<Arc<Self>> {
        let volume = fstatvfs(file)?;
        let size = volume.f_blocks.saturating_mul(volume.f_frsize);
        let reserve = (size / SHARE_OF_VOLUME).clamp(LEAST_RESERVE, MOST_RESERVE);
        let written = end_of_data(file)?;
        let file = file.try_clone()?;
        let allocate = move |from, length| {
            match fallocate(&file, FallocateFlags::KEEP_SIZE, from, length) {
                // This file system can't: its writes say when it is full.
                Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => Ok(()),
                done => Ok(done?),
            }
        };
        Ok(Self::new(
            reserve,
            written,
            Box::new(allocate),
            spare_in(directory),
        ))
    }

    /// Whether so many bytes can be added, and the reserve is there behind them.
    pub(crate) fn has(&self, bytes: u64) -> bool {
        let mut state = lock(&self.state);
        let spare = state.wanted_spare(self.reserve);
        if state.spare < spare {
            if (self.spare)(spare).is_err() {
                // A part of it may have been taken.
                self.give_up(&mut state);
                return false;
            }
            state.spare = spare;
        }
        let needed = state.written.saturating_add(bytes) + self.reserve;
        if needed <= state.until {
            return true;
        }
        // With some more, so that the next calls have nothing to do.
        for until in [needed + self.reserve, needed] {
            if (self.allocate)(state.until, until - state.until).is_ok() {
                state.until = until;
                return true;
            }
        }
        false
    }

    /// The room behind what is written.
    pub(crate) fn left(&self) -> u64 {
        let Allocated { written, until, .. } = *lock(&self.state);
        until.saturating_sub(written)
    }

    fn give_up(&self, state: &mut Allocated) {
        _ = (self.spare)(0); // a file that can't be cut keeps what it has
        state.spare = 0;
    }

    /// Does it again with the blocks that were kept outside of the file, when it finds none.
    fn with_spare(&self, step: impl Fn() -> io::Result<()>) -> io::Result<()> {
        let done = step();
        let is_full = |why: &io::Error| {
            use io::ErrorKind::{QuotaExceeded, StorageFull};
            matches!(why.kind(), StorageFull | QuotaExceeded)
        };
        if !done.as_ref().is_err_and(is_full) {
            return done;
        }
        let mut state = lock(&self.state);
        if state.spare == 0 {
            return done;
        }
        self.give_up(&mut state);
        step()
    }

    fn has_read(&self, length: usize) {
        let mut state = lock(&self.state);
        state.longest = state.longest.max(length as u64);
    }

    fn wrote(&self, offset: u64, length: usize) {
        let mut state = lock(&self.state);
        let length = length as u64;
        state.longest = state.longest.max(length);
        state.written = state.written.max(offset + length);
    }

    /// Blocks behind the end go when the file becomes shorter.
    fn set_length(&self, length: u64) {
        let mut state = lock(&self.state);
        state.until = state.until.min(length);
        state.written = state.written.min(length);
    }
}

impl std::fmt::Debug for Room {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Room")
            .field("reserve", &self.reserve)
            .field("state", &self.state)
            .finish_non_exhaustive()
    }
}

/// A file without a name: nothing of it is left after an end of any kind. A file system that has
/// none, or can't allocate, keeps no spare.
fn spare_in(directory: &Path) -> Spare {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let file = open(directory, flags, Mode::RUSR | Mode::WUSR).ok();
    Box::new(move |bytes| {
        let Some(file) = &file else {
            return Ok(());
        };
        if bytes == 0 {
            return Ok(ftruncate(file, 0)?);
        }
        match fallocate(file, FallocateFlags::empty(), 0, bytes) {
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => Ok(()),
            done => Ok(done?),
        }
    })
}

/// Behind it, the file has blocks at most that were never written.
fn end_of_data(file: &File) -> io::Result<u64> {
    let (mut end, length) = (0, file.metadata()?.len());
    // Each round passes a part with data.
    while end < length {
        match seek(file, SeekFrom::Data(end)) {
            Ok(data) => end = seek(file, SeekFrom::Hole(data))?,
            Err(Errno::NXIO) => return Ok(end),
            // A file system without holes.
            Err(_) => return Ok(length),
        }
    }
    Ok(end)
}

/// The header of the file as it was at its last sync. The engine's commits write pages that were
/// free, and count from their header on: with the one before, a commit that was refused is none.
///
/// A sync that fails leaves its commit with the system. It would be there when the file is opened
/// again, and the system may have given up writing its pages.
#[derive(Clone, Debug, Default)]
pub(crate) struct LastHeader(Arc<Mutex<Option<Vec<u8>>>>);

impl LastHeader {
    /// Keeps what a write to the beginning of the file replaces.
    fn keep(&self, inner: &impl StorageBackend, length: usize) -> io::Result<()> {
        let mut header = lock(&self.0);
        if header.is_none() && inner.len()? >= length as u64 {
            let mut before = vec![0; length];
            inner.read(0, &mut before)?;
            *header = Some(before);
        }
        Ok(())
    }

    fn is_synced(&self) {
        *lock(&self.0) = None;
    }

    /// Puts it back after a failure. Where that fails, too, it is done before the file is opened
    /// again.
    pub(crate) fn put_back(&self, inner: &impl StorageBackend) -> io::Result<()> {
        let mut header = lock(&self.0);
        if let Some(before) = &*header {
            inner.write(0, before)?;
            *header = None;
        }
        Ok(())
    }
}

/// The layer between the engine and its file.
#[derive(Debug)]
pub(crate) struct Backend<B> {
    inner: B,
    over: Over,
}

#[derive(Debug)]
enum Over {
    Room(Arc<Room>, LastHeader),
    Memory(Mutex<Overlay>),
}

impl<B> Backend<B> {
    pub(crate) const fn with_room(inner: B, room: Arc<Room>, header: LastHeader) -> Self {
        let over = Over::Room(room, header);
        Self { inner, over }
    }
}

impl<B: StorageBackend> Backend<B> {
    /// A change of the file: what was written since the last sync is taken back when it fails.
    fn change(&self, header: &LastHeader, step: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        let done = step();
        if done.is_err() {
            _ = header.put_back(&self.inner); // before the file is opened again
        }
        done
    }

    /// To read what is there, although nothing can be written: the engine's own notes, such as
    /// those of a repair, stay in memory.
    pub(crate) fn with_memory(inner: B) -> io::Result<Self> {
        let length = inner.len()?;
        let overlay = Overlay {
            length,
            there: length,
            blocks: BTreeMap::new(),
        };
        let over = Over::Memory(Mutex::new(overlay));
        Ok(Self { inner, over })
    }
}

const BLOCK: usize = 4096;
/// In blocks: a repair writes few.
const MOST_BLOCKS: usize = (64 << 20) / BLOCK;

#[derive(Debug)]
struct Overlay {
    length: u64,
    /// How much of the file below is seen.
    there: u64,
    blocks: BTreeMap<u64, Box<[u8; BLOCK]>>,
}

impl Overlay {
    fn read(&self, inner: &impl StorageBackend, offset: u64, out: &mut [u8]) -> io::Result<()> {
        if offset.saturating_add(out.len() as u64) > self.length {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let of_file = self.there.saturating_sub(offset);
        let of_file = usize::try_from(of_file).map_or(out.len(), |of_file| of_file.min(out.len()));
        inner.read(offset, &mut out[..of_file])?;
        out[of_file..].fill(0);
        for (at, within, part) in parts(offset, out.len()) {
            if let Some(block) = self.blocks.get(&at) {
                let length = part.len();
                out[part].copy_from_slice(&block[within..within + length]);
            }
        }
        Ok(())
    }

    fn write(&mut self, inner: &impl StorageBackend, offset: u64, data: &[u8]) -> io::Result<()> {
        if self.blocks.len() > MOST_BLOCKS {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.length = self.length.max(offset + data.len() as u64);
        for (at, within, part) in parts(offset, data.len()) {
            let block = match self.blocks.remove(&at) {
                Some(block) => block,
                None => self.block(inner, at)?,
            };
            let block = self.blocks.entry(at).or_insert(block);
            block[within..within + part.len()].copy_from_slice(&data[part]);
        }
        Ok(())
    }

    /// As it is in the file.
    fn block(&self, inner: &impl StorageBackend, at: u64) -> io::Result<Box<[u8; BLOCK]>> {
        let mut block = Box::new([0; BLOCK]);
        let begin = at * BLOCK as u64;
        let there = self.there.saturating_sub(begin);
        let there = usize::try_from(there).map_or(BLOCK, |there| there.min(BLOCK));
        inner.read(begin, &mut block[..there])?;
        Ok(block)
    }

    fn set_length(&mut self, length: u64) {
        self.there = self.there.min(length);
        self.length = length;
        self.blocks.retain(|at, _| at * (BLOCK as u64) < length);
        // The bytes behind a new end are zero when the file grows again.
        let within = usize::try_from(length % BLOCK as u64).unwrap_or(0);
        if let Some(block) = self.blocks.get_mut(&(length / BLOCK as u64)) {
            block[within..].fill(0);
        }
    }
}

/// The blocks of a part of the file: their numbers, where in each it begins, and which bytes of the
/// part these are.
fn parts(offset: u64, length: usize) -> impl Iterator<Item = (u64, usize, std::ops::Range<usize>)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        if done == length {
            return None;
        }
        let at = offset + done as u64;
        let within = usize::try_from(at % BLOCK as u64).unwrap_or(0);
        let end = length.min(done + BLOCK - within);
        let part = done..end;
        done = end;
        Some((at / BLOCK as u64, within, part))
    })
}

impl<B: StorageBackend> StorageBackend for Backend<B> {
    fn len(&self) -> io::Result<u64> {
        match &self.over {
            Over::Room(..) => self.inner.len(),
            Over::Memory(overlay) => Ok(lock(overlay).length),
        }
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        match &self.over {
            Over::Room(room, _) => {
                room.has_read(out.len());
                self.inner.read(offset, out)
            }
            Over::Memory(overlay) => lock(overlay).read(&self.inner, offset, out),
        }
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        match &self.over {
            Over::Room(room, header) => {
                self.change(header, || room.with_spare(|| self.inner.set_len(length)))?;
                room.set_length(length);
            }
            Over::Memory(overlay) => lock(overlay).set_length(length),
        }
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        match &self.over {
            Over::Room(_, header) => {
                self.change(header, || self.inner.sync_data())?;
                header.is_synced();
                Ok(())
            }
            Over::Memory(_) => Ok(()),
        }
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        match &self.over {
            Over::Room(room, header) => {
                self.change(header, || {
                    if offset == 0 {
                        header.keep(&self.inner, data.len())?;
                    }
                    room.with_spare(|| self.inner.write(offset, data))
                })?;
                room.wrote(offset, data.len());
                Ok(())
            }
            Over::Memory(overlay) => lock(overlay).write(&self.inner, offset, data),
        }
    }

    fn close(&self) -> io::Result<()> {
        self.inner.close()
    }

    fn try_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.inner.try_lock_range(start, end)
    }

    fn try_lock_shared_range(
        &self,
        start: Bound<u64>,
        end: Bound<u64>,
    ) -> Result<bool, BackendError> {
        self.inner.try_lock_shared_range(start, end)
    }

    fn lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.inner.lock_range(start, end)
    }

    fn lock_shared_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.inner.lock_shared_range(start, end)
    }

    fn unlock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.inner.unlock_range(start, end)
    }

    fn query_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.inner.query_lock_range(start, end)
    }
}
