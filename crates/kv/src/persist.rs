//! What a storage in memory with `persist` leaves for the next start: a file below the state
//! directory, written when the server stops in order, read when it starts, and removed once it is
//! up. So a server that is killed begins with nothing, and never with what was there long before.
//!
//! Each entry has a sum, and is believed if that fits. What stands behind one that is broken is not
//! read.

use std::ffi::OsStr;
use std::fs::{OpenOptions, TryLockError};
use std::io::{self, BufReader, BufWriter, ErrorKind, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use pronghorn_base::{Trusted, open_plain};
use pronghorn_cache::layout::{LARGEST_BLOCK, LONGEST_KEY};
use pronghorn_cache::{Cache, Entry, NewEntry};
use tokio::time::Instant;

use crate::moment::Moment;

const MAGIC: &[u8; 8] = b"PHKEPT1\n";
/// Sum, length of the key, length of the value, kind, end.
const HEAD: usize = 24;
/// Signs of the storage's name in that of the file, so that people find it.
const SHOWN: usize = 40;
/// Entries between two looks at the time.
const LOOK: u64 = 1000;

/// The file of one storage.
#[derive(Clone, Debug)]
pub(crate) struct Kept {
    path: PathBuf,
    storage: String,
}

/// What was found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) entries: u64,
    /// The file was cut off, or something else is in it: what stands there was not read.
    pub(crate) is_broken: bool,
}

/// Removes files that processes were writing when they were killed, of whichever storage. One is
/// nobody's where no lock is on it.
pub(crate) fn remove_begun(state: &Path) {
    let all = std::fs::read_dir(state).into_iter().flatten().flatten();
    for new in all.map(|entry| entry.path()) {
        let stem = new.file_stem().and_then(OsStr::to_str);
        let is_ours = stem.is_some_and(|it| it.starts_with("kv-"));
        if !is_ours || new.extension() != Some(OsStr::new("new")) {
            continue;
        }
        let found = open_plain(&new, OpenOptions::new().write(true));
        if found.is_ok_and(|file| file.try_lock().is_ok()) {
            _ = std::fs::remove_file(&new);
        }
    }
}

impl Kept {
    pub(crate) fn new(state: &Path, storage: &str) -> Self {
        let plain = |sign: char| {
            if sign.is_ascii_alphanumeric() {
                sign
            } else {
                '_'
            }
        };
        let shown: String = storage.chars().take(SHOWN).map(plain).collect();
        let sum = crc32fast::hash(storage.as_bytes());
        Self {
            path: state.join(format!("kv-{shown}-{sum:08x}.kept")),
            storage: storage.to_owned(),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Once it was read and the server is up.
    pub(crate) fn remove(&self) -> io::Result<()> {
        match std::fs::remove_file(&self.path) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Writes all entries. The file is there as a whole or not at all; how many are in it.
    ///
    /// # Errors
    ///
    /// When it can't be written, or not until the deadline.
    pub(crate) fn write(&self, cache: &Cache, now: Moment, until: Instant) -> io::Result<u64> {
        let folder = self.path.parent().unwrap_or_else(|| Path::new("."));
        Trusted::steps_of_server().make_directory(folder, 0o700)?;
        let new = self.path.with_extension("new");
        let written = self.write_to(&new, cache, now, until);
        if matches!(&written, Err(error) if error.kind() == ErrorKind::WouldBlock) {
            // It is another server's, which goes on with it.
            return written;
        }
        let renamed = written.and_then(|entries| {
            std::fs::rename(&new, &self.path)?;
            Ok(entries)
        });
        if renamed.is_err() {
            // Nobody would read it. It may be that it was not even begun.
            _ = std::fs::remove_file(&new);
        }
        renamed
    }

    fn write_to(&self, new: &Path, cache: &Cache, now: Moment, until: Instant) -> io::Result<u64> {
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false).mode(0o600);
        let file = open_plain(new, &mut options)?;
        // Two servers with one state directory may stop at the same time.
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => {
                let why = "another server writes it, which has the same state directory";
                return Err(io::Error::new(ErrorKind::WouldBlock, why));
            }
            Err(TryLockError::Error(error)) => return Err(error),
            Ok(()) => file.set_len(0)?,
        }
        let mut file = BufWriter::new(file);
        file.write_all(MAGIC)?;
        let name = self.storage.as_bytes();
        file.write_all(&u32::try_from(name.len()).unwrap_or(0).to_le_bytes())?;
        file.write_all(name)?;
        let (mut entries, mut outcome) = (0, Ok(()));
        cache.visit(|entry| {
            outcome = file.write_all(&record(&entry, now));
            entries += 1;
            if entries % LOOK == 0 && Instant::now() >= until {
                outcome = Err(ErrorKind::TimedOut.into());
            }
            outcome.is_ok()
        });
        outcome?;
        let file = file.into_inner().map_err(io::IntoInnerError::into_error)?;
        file.sync_all()?;
        Ok(entries)
    }

    /// Puts what was left into the storage, without what is over; nothing where there is no file.
    ///
    /// # Errors
    ///
    /// When the file can't be read.
    pub(crate) fn read(&self, cache: &Cache, now: Moment) -> io::Result<Found> {
        Trusted::steps_of_server().judge_file(&self.path)?;
        let file = match open_plain(&self.path, OpenOptions::new().read(true)) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Found::default()),
            Err(error) => return Err(error),
        };
        // No more than the storage has room for, whoever has written it.
        let most = cache.figures().size.saturating_mul(2);
        let mut file = BufReader::new(file.take(most));
        let mut found = Found::default();
        match self.read_from(&mut file, cache, now, &mut found.entries) {
            Ok(()) => {}
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::UnexpectedEof | ErrorKind::InvalidData
                ) =>
            {
                found.is_broken = true;
            }
            Err(error) => return Err(error),
        }
        Ok(found)
    }

    fn read_from(
        &self,
        file: &mut impl Read,
        cache: &Cache,
        now: Moment,
        entries: &mut u64,
    ) -> io::Result<()> {
        let mut start = vec![0; MAGIC.len() + 4 + self.storage.len()];
        file.read_exact(&mut start)?;
        let length = u32::try_from(self.storage.len()).unwrap_or(0).to_le_bytes();
        if start != [&MAGIC[..], &length, self.storage.as_bytes()].concat() {
            return Err(ErrorKind::InvalidData.into());
        }
        while let Some(record) = next(file)? {
            let ends = Moment::from_millis(record.ends);
            if record.ends != 0 && ends <= now {
                continue;
            }
            let new = NewEntry {
                key: record.key(),
                value: record.value(),
                kind: record.kind,
                ends: if record.ends == 0 {
                    0
                } else {
                    Cache::end(ends.since(now))
                },
            };
            // One that the storage does not take any more, which is smaller now, is left out.
            *entries += u64::from(cache.set(&new).is_ok());
        }
        Ok(())
    }
}

/// An entry as it lies in the file.
fn record(entry: &Entry, now: Moment) -> Vec<u8> {
    let length = |bytes: &[u8]| u32::try_from(bytes.len()).unwrap_or(0).to_le_bytes();
    let ends = match entry.ends() {
        0 => 0,
        ends => now.after(Cache::until(ends)).millis(),
    };
    let mut bytes = vec![0; 4];
    bytes.extend_from_slice(&length(entry.key()));
    bytes.extend_from_slice(&length(entry.value()));
    bytes.extend_from_slice(&entry.kind().to_le_bytes());
    bytes.extend_from_slice(&ends.to_le_bytes());
    bytes.extend_from_slice(entry.key());
    bytes.extend_from_slice(entry.value());
    let sum = crc32fast::hash(&bytes[4..]);
    bytes[..4].copy_from_slice(&sum.to_le_bytes());
    bytes
}

struct Record {
    kind: u32,
    /// Milliseconds since 1970; 0 for no end.
    ends: u64,
    bytes: Vec<u8>,
    key: usize,
}

impl Record {
    fn key(&self) -> &[u8] {
        &self.bytes[..self.key]
    }

    fn value(&self) -> &[u8] {
        &self.bytes[self.key..]
    }
}

/// None at the end of the file.
fn next(file: &mut impl Read) -> io::Result<Option<Record>> {
    let mut head = [0; HEAD];
    let mut filled = 0;
    while filled < HEAD {
        match file.read(&mut head[filled..])? {
            0 if filled == 0 => return Ok(None),
            0 => return Err(ErrorKind::UnexpectedEof.into()),
            more => filled += more,
        }
    }
    let number = |at: usize| {
        let bytes = head[at..at + 4].try_into().expect("four bytes");
        u32::from_le_bytes(bytes)
    };
    let (key, value) = (number(4) as usize, number(8) as usize);
    if !(1..=LONGEST_KEY).contains(&key) || value > LARGEST_BLOCK {
        return Err(ErrorKind::InvalidData.into());
    }
    let mut bytes = vec![0; key + value];
    file.read_exact(&mut bytes)?;
    let mut sum = crc32fast::Hasher::new();
    sum.update(&head[4..]);
    sum.update(&bytes);
    if sum.finalize() != number(0) {
        return Err(ErrorKind::InvalidData.into());
    }
    Ok(Some(Record {
        kind: number(12),
        ends: u64::from(number(16)) | u64::from(number(20)) << 32,
        bytes,
        key,
    }))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use pronghorn_cache::layout::{BYTES, INTEGER};
    use pronghorn_testkit::Directory;

    use super::*;

    const NOW: Moment = Moment::from_millis(1_795_667_400_000);

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(60)
    }

    fn cache() -> Cache {
        Cache::new(4 << 20, 7).expect("there is memory")
    }

    /// In a directory of its own, which is not there yet.
    fn kept() -> (Directory, Kept) {
        let directory = Directory::new();
        let kept = Kept::new(&directory.join("state"), "a / b");
        (directory, kept)
    }

    fn filled(entries: u32) -> Cache {
        let cache = cache();
        for number in 0..entries {
            let new = NewEntry {
                key: &number.to_le_bytes(),
                value: &vec![7; number as usize],
                kind: BYTES,
                ends: if number % 2 == 0 {
                    0
                } else {
                    Cache::end(Duration::from_secs(60))
                },
            };
            cache.set(&new).expect("kept");
        }
        cache
    }

    #[test]
    fn files_that_were_begun_are_removed_unless_somebody_writes_them() {
        let (directory, kept) = kept();
        let state = directory.join("state");
        remove_begun(&state);
        kept.write(&cache(), NOW, soon()).expect("written");
        let of_no_storage = state.join("kv-gone-01234567.new");
        let (new, other) = (kept.path().with_extension("new"), state.join("store.new"));
        for path in [&of_no_storage, &new, &other] {
            std::fs::write(path, "PH").expect("written");
        }
        let writer = std::fs::File::open(&new).expect("it is there");
        writer.lock().expect("nobody has it");
        remove_begun(&state);
        assert!(new.exists() && other.exists() && kept.path().exists());
        assert!(!of_no_storage.exists());
        drop(writer);
        remove_begun(&state);
        assert!(!new.exists());
    }

    #[test]
    fn what_is_left_is_found_again_without_what_is_over() {
        let (_directory, kept) = kept();
        assert_eq!(kept.read(&cache(), NOW).expect("nothing"), Found::default());
        let before = filled(300);
        before.increment(b"n", -5, 0).expect("kept");
        assert_eq!(kept.write(&before, NOW, soon()).expect("written"), 301);
        let after = cache();
        let found = kept
            .read(&after, NOW.after(Duration::from_secs(30)))
            .expect("read");
        assert_eq!(
            found,
            Found {
                entries: 301,
                is_broken: false
            }
        );
        assert_eq!(
            after.get(&200_u32.to_le_bytes()).expect("there").value(),
            [7; 200]
        );
        let left = Cache::until(after.get(&201_u32.to_le_bytes()).expect("there").ends());
        assert!(
            left > Duration::from_secs(28) && left <= Duration::from_secs(30),
            "{left:?}"
        );
        let number = after.get(b"n").expect("there");
        assert_eq!(
            (number.kind(), number.value()),
            (INTEGER, &(-5_i64).to_le_bytes()[..])
        );
        let late = kept
            .read(&cache(), NOW.after(Duration::from_secs(61)))
            .expect("read");
        assert_eq!(late.entries, 151, "the others are over");
        kept.remove().expect("it is there");
        kept.remove().expect("twice is no mistake");
        assert_eq!(kept.read(&cache(), NOW).expect("nothing"), Found::default());
    }

    #[test]
    fn what_is_broken_is_not_believed() {
        let (_directory, kept) = kept();
        kept.write(&filled(50), NOW, soon()).expect("written");
        let whole = std::fs::read(kept.path()).expect("it is there");
        for at in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[at] ^= 0x41;
            std::fs::write(kept.path(), &bytes).expect("written");
            let found = kept.read(&cache(), NOW).expect("read");
            assert!(found.is_broken && found.entries < 50, "{at}: {found:?}");
            std::fs::write(kept.path(), &whole[..at]).expect("written");
            let found = kept.read(&cache(), NOW).expect("read");
            assert!(found.entries < 50, "{at}");
        }
        let other = Kept {
            storage: "another".to_owned(),
            ..kept.clone()
        };
        std::fs::write(kept.path(), &whole).expect("written");
        assert!(other.read(&cache(), NOW).expect("read").is_broken);
    }

    /// Whoever may write in the folder can give its names to something else.
    #[test]
    fn what_is_no_file_is_not_read_or_written_to() {
        let (_directory, kept) = kept();
        let folder = kept.path().parent().expect("it has one");
        std::fs::create_dir_all(folder).expect("a folder");
        let theirs = folder.join("theirs");
        std::fs::write(&theirs, "theirs").expect("a file");
        for name in [kept.path().to_owned(), kept.path().with_extension("new")] {
            std::os::unix::fs::symlink(&theirs, name).expect("a link");
        }
        for refused in [
            kept.read(&cache(), NOW).map(|found| found.entries),
            kept.write(&filled(3), NOW, soon()),
        ] {
            let why = refused.expect_err("refused").to_string();
            assert_eq!(why, "it is a symbolic link, which is not followed");
        }
        assert_eq!(std::fs::read(&theirs).expect("it is there"), b"theirs");
        // The link that it would have written through went.
        assert_eq!(kept.write(&filled(3), NOW, soon()).expect("written"), 3);
        assert_eq!(kept.read(&cache(), NOW).expect("read").entries, 3);
        assert_eq!(std::fs::read(&theirs).expect("it is there"), b"theirs");
    }

    /// As two servers do that have one state directory and stop at the same time.
    #[test]
    fn one_of_two_that_write_at_once_is_refused_and_harms_nothing() {
        let (_directory, kept) = kept();
        let folder = kept.path().parent().expect("it has one");
        std::fs::create_dir_all(folder).expect("a folder");
        let theirs = std::fs::File::create(kept.path().with_extension("new")).expect("a file");
        theirs.lock().expect("it is theirs");
        let refused = kept.write(&filled(3), NOW, soon()).expect_err("refused");
        assert_eq!(refused.kind(), ErrorKind::WouldBlock);
        assert!(refused.to_string().contains("another server"), "{refused}");
        let there = kept.path().with_extension("new").exists();
        assert!(there, "it is left to whom it belongs");
        drop(theirs);
        // What a server that was killed has left is begun anew.
        std::fs::write(kept.path().with_extension("new"), vec![7; 100_000]).expect("written");
        assert_eq!(kept.write(&filled(3), NOW, soon()).expect("written"), 3);
        let found = kept.read(&cache(), NOW).expect("read");
        assert_eq!((found.entries, found.is_broken), (3, false));
    }

    #[test]
    fn a_stop_that_may_take_no_longer_leaves_nothing() {
        let (_directory, kept) = kept();
        let late = kept
            .write(&filled(1_500), NOW, Instant::now())
            .expect_err("too late");
        assert_eq!(late.kind(), ErrorKind::TimedOut);
        let folder = kept.path().parent().expect("it has one");
        assert_eq!(std::fs::read_dir(folder).expect("it is there").count(), 0);
    }
}
