//! Durability, limits, and files that are not as they were left.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Read, Write};
use std::ops::{Bound, ControlFlow};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use pronghorn_base::lock;
use pronghorn_testkit::Directory;
use redb::{Database, StorageBackend};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::backend::{Backend, LastHeader, Room};
use crate::engine::{self, Engine, FORMAT, Operation, Volume};
use crate::link::Link;
use crate::store::{Foreign, Keeper, builder};
use crate::transaction::Failed;
use crate::{LazyStore, Lender, OpenError, Store, StoreError, Transaction, Tree, entry_size};

const NOTES: Tree = Tree::new("notes");
const PLENTY: u64 = 1 << 30;

/// A process that is being started has the files of this one until it runs its own program, and so
/// the lock of a store that another test has just closed.
static STARTS_PROCESSES: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

/// A state directory that is not there yet.
struct StateDirectory {
    path: PathBuf,
    _parent: Directory,
}

impl StateDirectory {
    fn new() -> Self {
        let parent = Directory::new();
        Self {
            path: parent.join("state"),
            _parent: parent,
        }
    }

    fn open(&self) -> Store {
        self.open_again(PLENTY).unwrap()
    }

    /// After an end. A process that another test starts meanwhile has the lock as well, until its
    /// program runs.
    fn open_again(&self, limit: u64) -> Result<Store, OpenError> {
        for _ in 0..1000 {
            match Store::open(&self.path, limit) {
                Err(OpenError::InUse { .. }) => {}
                opened => return opened,
            }
            #[expect(clippy::disallowed_methods, reason = "it waits for another process")]
            std::thread::sleep(Duration::from_millis(5));
        }
        panic!("the store stays in use");
    }

    fn file(&self) -> PathBuf {
        self.path.join("store.redb")
    }
}

async fn put(store: &Store, key: u32, value: &'static [u8]) -> Result<(), StoreError> {
    let key = key.to_be_bytes();
    store
        .carry_out(
            entry_size(&key, value),
            move |transaction| transaction.put(NOTES, &key, value),
            |outcome| outcome,
        )
        .await?
}

async fn keys(store: &Store) -> Vec<u32> {
    let keys = store.carry_out(
        0,
        |transaction| {
            let mut keys = Vec::new();
            transaction.scan(NOTES, Bound::Unbounded, |key, _| {
                keys.push(u32::from_be_bytes(key.try_into().unwrap()));
                ControlFlow::Continue(())
            })?;
            Ok(keys)
        },
        |outcome| outcome,
    );
    keys.await.unwrap().unwrap()
}

#[tokio::test]
async fn what_was_answered_is_there_after_an_end_of_any_kind() {
    let directory = StateDirectory::new();
    let store = directory.open();
    for key in 0..10 {
        put(&store, key, b"value").await.unwrap();
    }
    // As a kill leaves it: the file is not closed.
    let image = fs::read(directory.file()).unwrap();
    store.close().await;
    let store = directory.open();
    assert_eq!(keys(&store).await, (0..10).collect::<Vec<_>>());
    store.close().await;
    fs::write(directory.file(), image).unwrap();
    assert_eq!(keys(&directory.open()).await, (0..10).collect::<Vec<_>>());
}

#[tokio::test]
async fn operations_that_wait_together_share_commits_and_keep_their_order() {
    let disk = Disk::default();
    let store = Store::start(
        Keeper::Here(disk.engine().unwrap(), None),
        Foreign::default(),
    )
    .unwrap();
    let order = Arc::new(Mutex::new(Vec::new()));
    let mut all = JoinSet::new();
    for key in 0..500u32 {
        let (store, order) = (store.clone(), order.clone());
        all.spawn(async move {
            let run = move |transaction: &mut Transaction<'_>| {
                let before = transaction.get(NOTES, b"last")?;
                transaction.put(NOTES, b"last", &key.to_be_bytes())?;
                Ok(before)
            };
            let then = move |outcome: Result<_, StoreError>| {
                lock(&order).push(key);
                outcome.unwrap()
            };
            let before = store.carry_out(100, run, then).await.unwrap();
            let expected = key
                .checked_sub(1)
                .map(|before| before.to_be_bytes().to_vec());
            assert_eq!(before, expected, "each sees what was written before it");
        });
    }
    all.join_all().await;
    assert_eq!(*lock(&order), (0..500).collect::<Vec<_>>());
    let steps = lock(&disk.0.steps);
    let syncs = steps.iter().filter(|step| matches!(step, Step::Sync));
    assert!(syncs.count() < 100, "commits are shared");
}

#[tokio::test]
async fn a_second_server_learns_who_has_the_store() {
    let directory = StateDirectory::new();
    let store = directory.open();
    let second = Store::open(&directory.path, PLENTY).unwrap_err();
    let said = second.to_string();
    let expected = format!(
        "the state directory {} is used by process {}: stop that server, or set a `state_dir` of its own for each",
        directory.path.display(),
        std::process::id()
    );
    assert_eq!(said, expected);
    store.close().await;
    directory.open();
}

/// As a cleaner of old files does.
#[tokio::test]
async fn a_store_whose_lock_was_removed_is_in_use_all_the_same() {
    let _alone = STARTS_PROCESSES.lock().await;
    let directory = StateDirectory::new();
    let store = directory.open();
    put(&store, 1, b"value").await.unwrap();
    fs::remove_file(directory.path.join("store.lock")).unwrap();
    let second = Store::open(&directory.path, PLENTY).unwrap_err();
    assert!(matches!(second, OpenError::InUse { .. }), "{second}");
    assert!(
        second
            .to_string()
            .contains("is used by another process: stop")
    );
    put(&store, 2, b"value").await.unwrap();
    store.close().await;
    assert_eq!(keys(&directory.open()).await, [1, 2]);
}

#[tokio::test]
async fn a_store_that_nobody_asks_for_makes_no_folder() {
    let directory = StateDirectory::new();
    let lazy = LazyStore::new(directory.path.clone(), PLENTY);
    lazy.close().await;
    assert!(!directory.path.exists());
    let held = directory.open();
    assert!(matches!(lazy.get().await, Err(OpenError::InUse { .. })));
    let error = lazy.get_now().await.unwrap_err();
    assert!(!error.is_of_predecessor(), "it is this one's");
    held.close().await;
    put(&lazy.get().await.unwrap(), 1, b"value").await.unwrap();
    assert_eq!(keys(&lazy.get().await.unwrap()).await, [1]);
    lazy.close().await;
    directory.open();
}

#[tokio::test]
async fn who_claims_the_directory_keeps_others_from_it_and_not_its_own_store() {
    let directory = StateDirectory::new();
    let (lazy, other) = (
        LazyStore::new(directory.path.clone(), PLENTY),
        LazyStore::new(directory.path.clone(), PLENTY),
    );
    let claim = lazy.claim().await.unwrap();
    let refused = other.claim().await.unwrap_err().to_string();
    assert!(
        refused.contains("set a `state_dir` of its own"),
        "{refused}"
    );
    assert!(matches!(other.get().await, Err(OpenError::InUse { .. })));
    lazy.get().await.unwrap().close().await;
    assert!(matches!(other.get().await, Err(OpenError::InUse { .. })));
    drop(claim);
    let _store = other.get().await.unwrap();
    assert!(lazy.claim().await.is_err(), "the other one has its store");
}

#[tokio::test]
async fn folder_and_files_are_for_their_owner_alone() {
    let directory = StateDirectory::new();
    let _store = directory.open();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&directory.path), 0o700);
    assert_eq!(mode(&directory.file()), 0o600);
    assert_eq!(mode(&directory.path.join("store.lock")), 0o600);
}

#[tokio::test]
async fn a_full_store_refuses_what_grows_and_does_the_rest() {
    let directory = StateDirectory::new();
    let each = entry_size(&[0; 4], b"value");
    let store = Store::open(&directory.path, 3 * each).unwrap();
    for key in 0..3 {
        put(&store, key, b"value").await.unwrap();
    }
    let full = put(&store, 3, b"value").await.unwrap_err();
    let limit = 3 * each;
    assert_eq!(
        full.to_string(),
        format!("the store is full: {limit} bytes are allowed")
    );
    assert_eq!(keys(&store).await, [0, 1, 2]);
    let remove = |transaction: &mut Transaction<'_>| {
        assert!(transaction.remove(NOTES, &1u32.to_be_bytes())?);
        transaction.remove(NOTES, b"nothing")
    };
    let removed = store.carry_out(0, remove, |outcome| outcome).await.unwrap();
    assert!(!removed.unwrap());
    put(&store, 3, b"value").await.unwrap();
    store.close().await;
    let store = directory.open_again(3 * each).unwrap();
    assert!(
        put(&store, 4, b"value").await.is_err(),
        "the size outlives the process"
    );
}

#[tokio::test]
async fn an_owner_leaves_room_to_others_and_has_some_in_any_case() {
    let directory = StateDirectory::new();
    let store = Store::open(&directory.path, 100_000).unwrap();
    let put = async |owner: u32, number: u32| {
        let key = [owner.to_be_bytes(), number.to_be_bytes()].concat();
        let each = entry_size(&key, &[0; 100]);
        let held = move |transaction: &mut Transaction<'_>| {
            let mut held = 0;
            transaction.scan(NOTES, Bound::Unbounded, |key, value| {
                if key.starts_with(&owner.to_be_bytes()) {
                    held += entry_size(key, value);
                }
                ControlFlow::Continue(())
            })?;
            Ok(held)
        };
        let write =
            move |transaction: &mut Transaction<'_>| transaction.put(NOTES, &key, &[0; 100]);
        let put = store.carry_out_in_share(each, held, write, |outcome| outcome);
        put.await.unwrap()
    };
    let mut kept = Vec::new();
    for owner in 0..5 {
        let mut number = 0;
        let refused = loop {
            match put(owner, number).await {
                Ok(()) => number += 1,
                Err(refused) => break refused,
            }
        };
        assert!(matches!(refused, StoreError::Full { .. }), "{refused}");
        kept.push(number * 140);
    }
    let expected = [89_880, 9_100, 840];
    assert_eq!(kept[..3], expected, "nine tenths of what is free");
    assert!(kept[3..].iter().all(|bytes| *bytes <= 140), "{kept:?}");
    let whole = store
        .carry_out(100_000, |_| Ok(()), |outcome| outcome)
        .await;
    assert!(matches!(
        whole.unwrap(),
        Err(StoreError::Full { limit: 100_000 })
    ));
}

#[tokio::test]
async fn a_store_of_a_newer_version_is_left_alone() {
    let directory = StateDirectory::new();
    let store = directory.open();
    let about = Tree::new("store");
    let newer = store.carry_out(
        0,
        move |transaction| transaction.put(about, b"format", &(FORMAT + 1).to_be_bytes()),
        |outcome| outcome,
    );
    newer.await.unwrap().unwrap();
    store.close().await;
    let error = directory.open_again(PLENTY).unwrap_err();
    assert!(matches!(error, OpenError::Newer { found, .. } if found == FORMAT + 1));
    assert!(error.to_string().ends_with("start the newer version again"));
}

#[tokio::test]
async fn a_file_that_is_none_of_ours_is_left_alone() {
    for content in [&b"hello"[..], &[0; 8192], &[0xff; 9000], b""] {
        let directory = StateDirectory::new();
        fs::create_dir_all(&directory.path).unwrap();
        fs::write(directory.file(), content).unwrap();
        let error = directory.open_again(PLENTY).unwrap_err();
        assert!(matches!(error, OpenError::Broken { .. }), "{error:?}");
        assert_eq!(fs::read(directory.file()).unwrap(), content);
    }
}

#[tokio::test]
async fn a_database_of_another_program_is_left_alone() {
    let directory = StateDirectory::new();
    fs::create_dir_all(&directory.path).unwrap();
    let table = redb::TableDefinition::<u32, u32>::new("theirs");
    let theirs = Database::create(directory.file()).unwrap();
    let transaction = theirs.begin_write().unwrap();
    transaction.open_table(table).unwrap().insert(1, 2).unwrap();
    transaction.commit().unwrap();
    drop(theirs);
    let error = directory.open_again(PLENTY).unwrap_err();
    assert!(
        error
            .to_string()
            .contains(" is broken: it is no store of Pronghorn; "),
        "{error}"
    );
    let theirs = Database::create(directory.file()).unwrap();
    let transaction = theirs.begin_write().unwrap();
    let names = transaction.list_tables().unwrap();
    assert_eq!(names.count(), 1, "nothing was added");
}

/// A full disk, or a copy that was cut off.
#[tokio::test]
async fn a_file_that_is_empty_is_no_new_store() {
    let directory = StateDirectory::new();
    let store = directory.open();
    put(&store, 1, b"value").await.unwrap();
    store.close().await;
    fs::write(directory.file(), b"").unwrap();
    let said = directory.open_again(PLENTY).unwrap_err().to_string();
    let path = directory.file().display().to_string();
    assert_eq!(
        said,
        format!(
            "{path} is broken: it is empty, as a full disk or an interrupted copy leaves a file; \
             put a copy back, or begin with an empty store: `mv {path} {path}.broken`"
        )
    );
    fs::rename(directory.file(), directory.path.join("store.redb.broken")).unwrap();
    // As a process leaves it that is killed at its first start.
    fs::write(directory.path.join("store.new"), b"half").unwrap();
    let store = directory.open();
    assert!(keys(&store).await.is_empty());
    assert!(!directory.path.join("store.new").exists());
}

#[test]
fn what_is_in_the_place_of_the_file_is_named() {
    let directory = StateDirectory::new();
    fs::create_dir_all(directory.file()).unwrap();
    let said = directory.open_again(PLENTY).unwrap_err().to_string();
    assert!(
        said.contains("store.redb is broken: it is a directory; put"),
        "{said}"
    );
    let denied = OpenError::io(&directory.file(), io::ErrorKind::PermissionDenied.into());
    let denied = denied.to_string();
    assert!(
        denied.contains("make it the owner by `chown USER /"),
        "{denied}"
    );
}

/// Whatever is cut off: what is opened is whole, and all else is an error that says so.
#[tokio::test]
async fn a_file_that_was_cut_is_never_taken_for_a_whole_one() {
    let _alone = STARTS_PROCESSES.lock().await;
    let directory = StateDirectory::new();
    let store = directory.open();
    for key in 0..300 {
        put(&store, key, &[7; 1000]).await.unwrap();
    }
    let killed = fs::read(directory.file()).unwrap();
    store.close().await;
    let closed = fs::read(directory.file()).unwrap();
    let all: Vec<u32> = (0..300).collect();
    for (round, whole) in [&killed, &closed].into_iter().cycle().take(60).enumerate() {
        let length = fastrand::usize(1..whole.len());
        fs::write(directory.file(), &whole[..length]).unwrap();
        match Store::open(&directory.path, PLENTY) {
            Ok(store) => {
                assert_eq!(keys(&store).await, all, "round {round}: {length} bytes");
                store.close().await;
            }
            Err(OpenError::Broken { .. } | OpenError::Io { .. }) => {}
            Err(other) => panic!("{other}"),
        }
    }
}

/// Starts this test again as a process of its own, which is killed while it writes.
#[tokio::test]
async fn a_killed_process_loses_nothing_that_it_answered() {
    const FOLDER: &str = "PRONGHORN_STORE_TEST_FOLDER";
    if let Some(directory) = std::env::var_os(FOLDER) {
        let store = Store::open(Path::new(&directory), PLENTY).unwrap();
        let first = keys(&store).await.len();
        for key in u32::try_from(first).unwrap().. {
            put(&store, key, &[1; 500]).await.unwrap();
            println!("answered {key}");
        }
    }
    let _alone = STARTS_PROCESSES.lock().await;
    let directory = StateDirectory::new();
    let mut answered = 0;
    for _ in 0..5 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([
                "a_killed_process_loses_nothing_that_it_answered",
                "--nocapture",
            ])
            .env(FOLDER, &directory.path)
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = io::BufRead::lines(io::BufReader::new(child.stdout.take().unwrap()));
        let enough = answered + fastrand::u32(5..30);
        let mut said = |line: io::Result<String>| {
            if let Some(key) = line.unwrap().strip_prefix("answered ") {
                answered = key.parse::<u32>().unwrap() + 1;
            }
            answered
        };
        while said(lines.next().unwrap()) < enough {}
        child.kill().unwrap();
        for line in lines {
            said(line);
        }
        child.wait().unwrap();
        let store = directory.open();
        let there = keys(&store).await;
        let count = u32::try_from(there.len()).unwrap();
        assert!(count >= answered, "{count} of {answered}");
        assert_eq!(there, (0..count).collect::<Vec<_>>());
        store.close().await;
    }
}

/// What reached the disk, and what the system still holds.
#[derive(Clone, Debug, Default)]
struct Disk(Arc<DiskState>);

#[derive(Debug, Default)]
struct DiskState {
    now: Mutex<Vec<u8>>,
    steps: Mutex<Vec<Step>>,
    full: AtomicBool,
    /// The file has room in itself, and the volume has none.
    no_new_files: AtomicBool,
    /// Blocks that were allocated, and how many there can be; 0 for as many as anybody wants.
    blocks: Mutex<BTreeSet<u64>>,
    capacity: AtomicU64,
    /// The bytes that are kept outside of the file.
    spare: AtomicU64,
    header: LastHeader,
    /// The numbers of all changes, from 1 on.
    step: AtomicUsize,
    fails: Mutex<Option<Failing>>,
}

/// So many steps fail from one on, after a part of what they were to write.
#[derive(Clone, Copy, Debug)]
struct Failing {
    at: usize,
    lasts: usize,
    kind: io::ErrorKind,
    part: usize,
}

/// The reserve of these tests' files.
const RESERVE: u64 = 256 << 10;

#[derive(Clone, Debug)]
enum Step {
    Length(usize),
    Write(usize, Vec<u8>),
    Sync,
    /// The store has answered.
    Answered,
}

impl Step {
    fn apply(&self, bytes: &mut Vec<u8>, part: usize) {
        match self {
            Self::Length(length) => bytes.resize(*length, 0),
            Self::Write(offset, data) => {
                let data = &data[..part.min(data.len())];
                let end = offset + data.len();
                bytes.resize(bytes.len().max(end), 0);
                bytes[*offset..end].copy_from_slice(data);
            }
            Self::Sync | Self::Answered => {}
        }
    }
}

impl Disk {
    /// A disk gives a file blocks when they are written, or asked for.
    fn has_blocks_in(&self, part: std::ops::Range<u64>) -> io::Result<()> {
        let capacity = self.0.capacity.load(Relaxed);
        let mut blocks = lock(&self.0.blocks);
        let new = (part.start / 4096..part.end.div_ceil(4096)).filter(|it| !blocks.contains(it));
        let new: Vec<u64> = new.collect();
        let spare = self.0.spare.load(Relaxed);
        if capacity > 0 && (blocks.len() + new.len()) as u64 * 4096 + spare > capacity {
            return Err(io::ErrorKind::StorageFull.into());
        }
        blocks.extend(new);
        Ok(())
    }

    fn step(&self, step: Step) -> io::Result<()> {
        if self.0.full.load(Relaxed) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let number = self.0.step.fetch_add(1, Relaxed) + 1;
        let fails = *lock(&self.0.fails);
        if let Some(Failing {
            at,
            lasts,
            kind,
            part,
        }) = fails
            && (at..at + lasts).contains(&number)
        {
            if matches!(step, Step::Write(..)) {
                step.apply(&mut lock(&self.0.now), part);
            }
            return Err(kind.into());
        }
        step.apply(&mut lock(&self.0.now), usize::MAX);
        // A disk that is filled has too many of them.
        if self.0.capacity.load(Relaxed) == 0 {
            lock(&self.0.steps).push(step);
        }
        Ok(())
    }

    fn engine(&self) -> Result<Engine, OpenError> {
        if lock(&self.0.now).is_empty() {
            let database = builder().create_with_backend(self.clone());
            engine::begin(&database.expect("it is new")).expect("it can be written");
        }
        Engine::open("disk".into(), Box::new(self.clone()), PLENTY)
    }
}

impl Volume for Disk {
    fn open(&self) -> Result<(Database, Arc<Room>), redb::Error> {
        let disk = self.clone();
        let allocate = move |from, length| {
            if disk.0.full.load(Relaxed) {
                Err(io::ErrorKind::StorageFull.into())
            } else {
                disk.has_blocks_in(from..from + length)
            }
        };
        self.0.spare.store(0, Relaxed);
        let disk = self.clone();
        let keep = move |bytes| {
            let before = disk.0.spare.swap(bytes, Relaxed);
            let kept = disk.has_blocks_in(0..0);
            if kept.is_err() {
                disk.0.spare.store(before, Relaxed);
            }
            kept
        };
        let written = lock(&self.0.now).len() as u64;
        let room = Room::new(RESERVE, written, Box::new(allocate), Box::new(keep));
        self.0.header.put_back(self)?;
        let backend = Backend::with_room(self.clone(), room.clone(), self.0.header.clone());
        Ok((builder().create_with_backend(backend)?, room))
    }

    fn open_to_read(&self) -> Result<Database, redb::Error> {
        Ok(builder().create_with_backend(Backend::with_memory(self.clone())?)?)
    }

    fn probe(&self) -> io::Result<()> {
        if self.0.full.load(Relaxed) || self.0.no_new_files.load(Relaxed) {
            Err(io::ErrorKind::StorageFull.into())
        } else {
            Ok(())
        }
    }
}

impl StorageBackend for Disk {
    fn len(&self) -> io::Result<u64> {
        Ok(lock(&self.0.now).len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let now = lock(&self.0.now);
        let start = usize::try_from(offset).unwrap();
        let bytes = now.get(start..start + out.len());
        out.copy_from_slice(bytes.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        self.step(Step::Length(usize::try_from(length).unwrap()))
    }

    fn sync_data(&self) -> io::Result<()> {
        self.step(Step::Sync)
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.has_blocks_in(offset..offset + data.len() as u64)?;
        self.step(Step::Write(usize::try_from(offset).unwrap(), data.to_vec()))
    }
}

/// The power fails at every step: what was synced is there, of the rest any part, in any order.
#[tokio::test]
async fn no_step_at_which_the_power_fails_loses_what_was_answered() {
    let disk = Disk::default();
    let store = Store::start(
        Keeper::Here(disk.engine().unwrap(), None),
        Foreign::default(),
    )
    .unwrap();
    let value: &[u8] = &[5; 700];
    for key in 0..30 {
        put(&store, key, value).await.unwrap();
        disk.step(Step::Answered).unwrap();
    }
    let steps = lock(&disk.0.steps).clone();
    store.close().await;
    let mut synced = Vec::new();
    let mut pending: Vec<Step> = Vec::new();
    let mut answered = 0;
    for step in &steps {
        let mut bytes = synced.clone();
        for step in &pending {
            match fastrand::u8(0..3) {
                0 => {}
                1 => step.apply(&mut bytes, fastrand::usize(0..5000)),
                _ => step.apply(&mut bytes, usize::MAX),
            }
        }
        // The file itself is as old as its first sync.
        if answered > 0 {
            let after = Disk::default();
            *lock(&after.0.now) = bytes;
            let store = Store::start(
                Keeper::Here(after.engine().unwrap(), None),
                Foreign::default(),
            )
            .unwrap();
            let there = keys(&store).await;
            assert!(there.len() >= answered, "{} of {answered}", there.len());
            assert_eq!(
                there,
                (0..u32::try_from(there.len()).unwrap()).collect::<Vec<_>>()
            );
            store.close().await;
        }
        match step {
            Step::Sync => {
                for step in pending.drain(..) {
                    step.apply(&mut synced, usize::MAX);
                }
            }
            Step::Answered => answered += 1,
            other => pending.push(other.clone()),
        }
    }
    assert_eq!(answered, 30);
    assert!(steps.len() > 100, "{}", steps.len());
}

#[tokio::test]
async fn a_full_disk_is_said_and_the_store_goes_on_after_it() {
    let disk = Disk::default();
    let store = Store::start(
        Keeper::Here(disk.engine().unwrap(), None),
        Foreign::default(),
    )
    .unwrap();
    put(&store, 0, b"before").await.unwrap();
    disk.0.full.store(true, Relaxed);
    let full = put(&store, 1, b"lost").await.unwrap_err();
    assert!(matches!(full, StoreError::Failed(_)), "{full}");
    let still = put(&store, 2, b"lost").await.unwrap_err();
    assert!(matches!(still, StoreError::Failed(_)), "{still}");
    disk.0.full.store(false, Relaxed);
    let mut tries = 0;
    while put(&store, 3, b"after").await.is_err() {
        sleep(Duration::from_millis(50)).await;
        tries += 1;
        assert!(tries < 200, "the store does not come back");
    }
    let there = keys(&store).await;
    assert!(
        there.starts_with(&[0]) && there.ends_with(&[3]),
        "{there:?}"
    );
}

/// An operation that writes something.
struct Note;

impl Operation for Note {
    fn growth(&self) -> u64 {
        0
    }

    fn run(&mut self, transaction: &mut Transaction<'_>) -> Result<(), Failed> {
        transaction.put(NOTES, b"key", b"value")
    }

    fn finish(self: Box<Self>, _: Result<(), StoreError>) {}
}

#[tokio::test(start_paused = true)]
async fn a_disk_that_is_still_full_is_not_taken_for_one_that_works_again() {
    let disk = Disk::default();
    let mut engine = disk.engine().unwrap();
    let later = || tokio::time::advance(Duration::from_secs(2));
    disk.0.full.store(true, Relaxed);
    engine.carry_out(vec![Box::new(Note)]);
    assert!(!engine.is_open());
    later().await;
    engine.carry_out(Vec::new());
    assert!(!engine.is_open());
    disk.0.full.store(false, Relaxed);
    later().await;
    engine.carry_out(Vec::new());
    assert!(engine.is_open());
}

/// Others have filled the volume, or the store has.
#[tokio::test]
async fn on_a_full_volume_what_is_there_is_read_and_removed_and_then_there_is_room() {
    for value in [2000, 20_000] {
        let disk = Disk::default();
        disk.0.capacity.store(3 << 20, Relaxed);
        let keeper = Keeper::Here(disk.engine().unwrap(), None);
        let store = Store::start(keeper, Foreign::default()).unwrap();
        let value: &'static [u8] = vec![7; value].leak();
        // A second filling may end by a failed write instead, and the store opens its file anew.
        for round in 0..1 {
            let mut count = 0;
            let full = loop {
                match put(&store, count, value).await {
                    Ok(()) => count += 1,
                    Err(full) => break full,
                }
                assert!(count < 20_000, "it is never full");
            };
            assert!(matches!(full, StoreError::NoRoom), "round {round}: {full}");
            assert!(count > 20, "round {round}: {count} of {}", value.len());
            assert_eq!(keys(&store).await.len(), count as usize);
            // One by one, as jobs end, and something small instead, as one that is tried again.
            for key in 0..count {
                let end = move |transaction: &mut Transaction<'_>| {
                    transaction.put(NOTES, b"note", &key.to_be_bytes())?;
                    transaction.remove(NOTES, &key.to_be_bytes())
                };
                let ended = store.carry_out(0, end, |outcome| outcome).await.unwrap();
                assert!(ended.unwrap_or_else(|why| panic!("round {round}, {key}: {why}")));
            }
        }
        store.close().await;
    }
}

/// The next process opens the file while the volume is full.
#[tokio::test]
async fn a_volume_that_the_store_filled_has_room_once_all_is_removed_after_a_restart() {
    let disk = Disk::default();
    disk.0.capacity.store(3 << 20, Relaxed);
    let start = || {
        let keeper = Keeper::Here(disk.engine().unwrap(), None);
        Store::start(keeper, Foreign::default()).unwrap()
    };
    let value: &'static [u8] = vec![7; 20_000].leak();
    let store = start();
    let mut count = 0;
    while put(&store, count, value).await.is_ok() {
        count += 1;
    }
    store.close().await;
    let store = start();
    let full = put(&store, count, value).await.unwrap_err();
    assert!(matches!(full, StoreError::NoRoom), "{full}");
    store.close().await;
    let store = start();
    for key in 0..count {
        let remove = move |it: &mut Transaction<'_>| it.remove(NOTES, &key.to_be_bytes());
        let removed = store.carry_out(0, remove, |outcome| outcome).await.unwrap();
        assert!(removed.unwrap());
    }
    for key in 0..count / 2 {
        put(&store, key, value)
            .await
            .unwrap_or_else(|full| panic!("{key} of {count}: {full}"));
    }
    store.close().await;
}

/// A job's end changes a page that it shares with a large one, and pages lie scattered.
#[tokio::test]
async fn a_volume_filled_by_values_of_all_sizes_is_emptied_again() {
    let first = fastrand::u64(..);
    for seed in (0..3).map(|round| first.wrapping_add(round)) {
        let mut random = fastrand::Rng::with_seed(seed);
        let disk = Disk::default();
        let capacity = random.u64(8..40) << 20;
        eprintln!("seed {seed}, {capacity} bytes");
        disk.0.capacity.store(capacity, Relaxed);
        let keeper = Keeper::Here(disk.engine().unwrap(), None);
        let store = Store::start(keeper, Foreign::default()).unwrap();
        let sizes: [&'static [u8]; 4] =
            [100, 5000, 100_000, 700_000].map(|size| &*vec![7; size].leak());
        let (mut there, mut refused) = (Vec::new(), 0);
        for key in 0..20_000 {
            match put(&store, key, sizes[random.usize(..4)]).await {
                Ok(()) => there.push(key),
                Err(StoreError::NoRoom) => refused += 1,
                Err(other) => panic!("seed {seed}, {key}: {other}"),
            }
            if refused == 20 {
                break;
            }
        }
        assert_eq!(refused, 20, "seed {seed}");
        assert_eq!(keys(&store).await, there, "seed {seed}");
        random.shuffle(&mut there);
        for key in there {
            let end = move |it: &mut Transaction<'_>| it.remove(NOTES, &key.to_be_bytes());
            let ended = store.carry_out(0, end, |outcome| outcome).await.unwrap();
            assert!(ended.unwrap_or_else(|why| panic!("seed {seed}, {key}: {why}")));
        }
        put(&store, 0, sizes[2]).await.unwrap();
        store.close().await;
    }
}

/// The volume stays full, as by what is in the file itself.
#[tokio::test(start_paused = true)]
async fn a_failed_store_on_a_full_volume_works_again_for_what_needs_no_room() {
    let disk = Disk::default();
    let mut engine = disk.engine().unwrap();
    engine.carry_out(vec![Box::new(Note)]);
    let step = disk.0.step.load(Relaxed);
    *lock(&disk.0.fails) = Some(Failing {
        at: step + 1,
        lasts: 1,
        kind: io::ErrorKind::StorageFull,
        part: 0,
    });
    disk.0.no_new_files.store(true, Relaxed);
    let failing = |engine: &mut Engine| engine.carry_out(vec![Box::new(Note)]);
    failing(&mut engine);
    assert!(!engine.is_open());
    tokio::time::advance(Duration::from_secs(3)).await;
    failing(&mut engine);
    assert!(engine.is_open());
}

#[tokio::test]
async fn what_is_there_is_read_while_the_disk_takes_no_writes() {
    let disk = Disk::default();
    let keeper = Keeper::Here(disk.engine().unwrap(), None);
    let store = Store::start(keeper, Foreign::default()).unwrap();
    put(&store, 1, b"value").await.unwrap();
    disk.0.full.store(true, Relaxed);
    let remove = |transaction: &mut Transaction<'_>| transaction.remove(NOTES, &1u32.to_be_bytes());
    let refused = store.carry_out(0, remove, |outcome| outcome).await.unwrap();
    assert!(matches!(refused, Err(StoreError::Failed(_))), "{refused:?}");
    for _ in 0..3 {
        let read = |transaction: &mut Transaction<'_>| transaction.get(NOTES, &1u32.to_be_bytes());
        assert_eq!(
            store.look(read).await.unwrap().as_deref(),
            Some(&b"value"[..])
        );
    }
    // Who says so, and writes, changes nothing.
    let steps = lock(&disk.0.steps).len();
    store.look(remove).await.unwrap();
    assert_eq!(lock(&disk.0.steps).len(), steps);
    let read = |transaction: &mut Transaction<'_>| transaction.get(NOTES, &1u32.to_be_bytes());
    assert!(store.look(read).await.unwrap().is_some());
    store.close().await;
}

/// A store of one process, and that of the next one, which can be given it.
async fn two_processes(
    directory: &StateDirectory,
) -> (LazyStore, LazyStore, UnixStream, JoinSet<()>) {
    let (old, new) = (
        LazyStore::new(directory.path.clone(), PLENTY),
        LazyStore::new(directory.path.clone(), PLENTY),
    );
    old.get().await.unwrap();
    let (ours, theirs) = UnixStream::pair().unwrap();
    let mut serving = JoinSet::new();
    serving.spawn(new.take_over(theirs).unwrap());
    (old, new, ours, serving)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_before_that_was_killed_leaves_its_store_to_the_next_one() {
    let _alone = STARTS_PROCESSES.lock().await;
    let directory = StateDirectory::new();
    let new = LazyStore::new(directory.path.clone(), PLENTY);
    let (ours, theirs) = UnixStream::pair().unwrap();
    drop(ours);
    new.take_over(theirs).unwrap().await;
    let store = new.get_now().await.unwrap();
    assert!(!new.others().are_there);
    put(&store, 1, b"value").await.unwrap();
    store.close().await;
}

#[derive(Debug, Default)]
struct Given {
    stays: AtomicBool,
}

impl Lender for Given {
    fn lend(&self, transaction: &mut Transaction<'_>) -> Result<(), Failed> {
        transaction.put(NOTES, b"lent", b"by the old one")
    }

    fn stay(&self) {
        self.stays.store(true, Relaxed);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_was_handed_over_does_what_the_process_before_asks_for() {
    let _alone = STARTS_PROCESSES.lock().await;
    let directory = StateDirectory::new();
    let (old, new, link, mut serving) = two_processes(&directory).await;
    let store = old.get().await.unwrap();
    let given: Arc<Given> = Arc::default();
    let lender: Weak<Given> = Arc::downgrade(&given);
    store.lends(lender);
    for key in 0..600 {
        put(&store, key, b"before").await.unwrap();
    }
    assert!(old.hand_over(link).await);
    let theirs = new.get().await.unwrap();
    let mut others = theirs.others();
    assert!(others.borrow_and_update().are_there);
    let lent = theirs.look(|it| it.get(NOTES, b"lent")).await.unwrap();
    assert_eq!(lent.as_deref(), Some(&b"by the old one"[..]));
    theirs
        .carry_out(0, |it| it.remove(NOTES, b"lent"), |it| it)
        .await
        .unwrap()
        .unwrap();

    // A transaction sees its own entries and those that were there as one.
    let work = |it: &mut Transaction<'_>| {
        assert!(it.remove(NOTES, &7u32.to_be_bytes())?);
        assert!(!it.remove(NOTES, &7u32.to_be_bytes())?);
        it.put(NOTES, &8u32.to_be_bytes(), b"changed")?;
        it.put(NOTES, &601u32.to_be_bytes(), b"new")?;
        let mut seen = Vec::new();
        it.scan(NOTES, Bound::Excluded(&5u32.to_be_bytes()), |key, value| {
            seen.push((u32::from_be_bytes(key.try_into().unwrap()), value.to_vec()));
            ControlFlow::Continue(())
        })?;
        Ok((it.get(NOTES, &6u32.to_be_bytes())?, seen))
    };
    let worked = store.carry_out(100, work, |outcome| outcome).await.unwrap();
    let (value, seen) = worked.unwrap();
    assert_eq!(value.as_deref(), Some(&b"before"[..]));
    let numbers: Vec<u32> = seen.iter().map(|(key, _)| *key).collect();
    let expected: Vec<u32> = [6].into_iter().chain(8..600).chain([601]).collect();
    assert_eq!(numbers, expected);
    assert_eq!(seen[1].1, b"changed");
    others.changed().await.unwrap();
    assert!(keys(&theirs).await.contains(&601));
    let full = store
        .carry_out(2 * PLENTY, |_| Ok(()), |outcome| outcome)
        .await
        .unwrap();
    assert!(
        matches!(full, Err(StoreError::Full { limit: PLENTY })),
        "{full:?}"
    );
    // Many at a time, of both.
    let mut writing = JoinSet::new();
    for key in 1000..1200 {
        let store = if key % 2 == 0 {
            store.clone()
        } else {
            theirs.clone()
        };
        writing.spawn(async move { put(&store, key, b"many").await });
    }
    assert!(writing.join_all().await.iter().all(Result::is_ok));
    assert_eq!(
        keys(&theirs)
            .await
            .iter()
            .filter(|key| **key >= 1000)
            .count(),
        200
    );

    old.close().await;
    serving.join_next().await.unwrap().unwrap();
    assert!(!others.borrow().are_there);
    assert!(!given.stays.load(Relaxed));
    put(&theirs, 5000, b"after").await.unwrap();
    new.close().await;
}

/// The one that took over was killed, and the one before it has workers that do not know it yet.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_process_has_given_out_is_its_own_until_it_has_ended_whoever_has_the_store() {
    let _alone = STARTS_PROCESSES.lock().await;
    let directory = StateDirectory::new();
    let (old, new, link, mut serving) = two_processes(&directory).await;
    put(&old.get().await.unwrap(), 1, b"value").await.unwrap();
    assert!(old.hand_over(link).await);
    new.get().await.unwrap();
    serving.shutdown().await;
    new.close().await;
    let fresh = LazyStore::new(directory.path.clone(), PLENTY);
    fresh.get().await.unwrap();
    assert!(fresh.others().are_there);
    let _gone = put(&old.get().await.unwrap(), 2, b"value")
        .await
        .unwrap_err();
    sleep(Duration::from_millis(100)).await;
    assert!(fresh.others().are_there);
    old.close().await;
    timeout(Duration::from_secs(10), fresh.left_alone())
        .await
        .unwrap();
    fresh.close().await;
}

/// While it has its own work, and the store has gone on.
#[tokio::test(flavor = "multi_thread")]
async fn a_process_of_a_chain_does_what_the_one_before_asks_for() {
    let _alone = STARTS_PROCESSES.lock().await;
    let directory = StateDirectory::new();
    let (old, new, link, mut serving) = two_processes(&directory).await;
    assert!(old.hand_over(link).await);
    new.get().await.unwrap();
    let newest = LazyStore::new(directory.path.clone(), PLENTY);
    let (ours, theirs) = UnixStream::pair().unwrap();
    let mut serving_new = JoinSet::new();
    serving_new.spawn(newest.take_over(theirs).unwrap());
    assert!(new.hand_over(ours).await);
    put(&old.get().await.unwrap(), 1, b"value").await.unwrap();
    assert_eq!(keys(&newest.get().await.unwrap()).await, [1]);
    old.close().await;
    serving.join_next().await.unwrap().unwrap();
    assert!(new.others().are_there, "it has handed over");
    assert!(newest.others().are_there);
    new.close().await;
    serving_new.join_next().await.unwrap().unwrap();
    assert!(!newest.others().are_there);
    newest.close().await;
}

/// As the system clears away one that was killed.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_goes_is_waited_for() {
    let _alone = STARTS_PROCESSES.lock().await;
    let directory = StateDirectory::new();
    let store = directory.open();
    let next = LazyStore::new(directory.path.clone(), PLENTY);
    let goes = async {
        sleep(Duration::from_millis(300)).await;
        store.close().await;
    };
    let (opened, ()) = tokio::join!(next.get_now(), goes);
    opened.unwrap();
    next.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_ends_within_a_transaction_has_changed_nothing() {
    let _alone = STARTS_PROCESSES.lock().await;
    let directory = StateDirectory::new();
    let (old, new, link, mut serving) = two_processes(&directory).await;
    put(&old.get().await.unwrap(), 1, b"value").await.unwrap();
    old.close().await;
    // It speaks for itself, and stops in the middle.
    let mut link = link;
    let said = tokio::task::spawn_blocking(move || {
        link.write_all(b"B\0\0\0\x08\0\0\0\0\0\0\0\0").unwrap();
        let mut said = [0; 10];
        link.read_exact(&mut said).unwrap();
        link.write_all(b"R\0\0\0\x11\0\0\0\x05notes\0\0\0\x04\0\0\0\x01")
            .unwrap();
        said
    });
    assert_eq!(&said.await.unwrap(), b"h\0\0\0\0b\0\0\0\0");
    serving.join_next().await.unwrap().unwrap();
    let store = new.get().await.unwrap();
    assert_eq!(keys(&store).await, [1]);
    put(&store, 2, b"after").await.unwrap();
    new.close().await;
}

#[tokio::test]
async fn a_store_stays_where_the_next_process_cannot_have_it() {
    let _alone = STARTS_PROCESSES.lock().await;
    let directory = StateDirectory::new();
    let old = LazyStore::new(directory.path.clone(), PLENTY);
    let store = old.get().await.unwrap();
    // A process of a release that does not know the socket.
    let (ours, theirs) = UnixStream::pair().unwrap();
    assert!(!old.hand_over(ours).await);
    drop(theirs);
    put(&store, 1, b"value").await.unwrap();
    assert_eq!(keys(&store).await, [1]);
    old.close().await;
    // One whose disk does not take the note of what was given out.
    let disk = Disk::default();
    let keeper = Keeper::Here(disk.engine().unwrap(), None);
    let store = Store::start(keeper, Foreign::default()).unwrap();
    let given: Arc<Given> = Arc::default();
    let lender: Weak<Given> = Arc::downgrade(&given);
    store.lends(lender);
    disk.0.full.store(true, Relaxed);
    let (ours, theirs) = UnixStream::pair().unwrap();
    let _new = Link::of_new(theirs).unwrap();
    assert!(!store.hand_over(Link::of_old(ours).unwrap().unwrap()).await);
    assert!(given.stays.load(Relaxed));
    store.close().await;
}

/// Each write, change of the length and sync in turn, in each way in which it can fail.
#[tokio::test]
async fn no_step_that_fails_loses_what_was_answered_or_keeps_what_was_refused() {
    const KEYS: u32 = 6;
    let count = {
        let disk = Disk::default();
        write_keys(&disk, KEYS).await;
        disk.0.step.load(Relaxed)
    };
    assert!(count > 30, "{count} steps");
    // Nothing of a write, and a part of it; one failure, and a disk that stays so.
    let kinds = [(io::ErrorKind::StorageFull, 100), (io::ErrorKind::Other, 0)];
    for (kind, part) in kinds {
        for (at, lasts) in (1..=count).flat_map(|at| [(at, 1), (at, usize::MAX - at)]) {
            let disk = Disk::default();
            // A new file is not at stake.
            disk.engine().unwrap();
            let failing = Failing {
                at,
                lasts,
                kind,
                part,
            };
            *lock(&disk.0.fails) = Some(failing);
            let answered = write_keys(&disk, KEYS).await;
            *lock(&disk.0.fails) = None;
            let keeper = Keeper::Here(disk.engine().unwrap(), None);
            let store = Store::start(keeper, Foreign::default()).unwrap();
            let there = keys(&store).await;
            assert_eq!(there, answered, "{failing:?} of {count} steps");
        }
    }
}

/// The keys whose write was answered.
async fn write_keys(disk: &Disk, count: u32) -> Vec<u32> {
    let Ok(engine) = disk.engine() else {
        return Vec::new();
    };
    let store = Store::start(Keeper::Here(engine, None), Foreign::default()).unwrap();
    let mut answered = Vec::new();
    for key in 0..count {
        if put(&store, key, &[3; 900]).await.is_ok() {
            answered.push(key);
        }
    }
    store.close().await;
    answered
}

#[tokio::test(start_paused = true)]
async fn what_a_disk_does_not_allow_is_tried_again_and_told_once() {
    let directory = Directory::new();
    let state = directory.join("state");
    fs::write(&state, "in the way").unwrap();
    let store = LazyStore::new(state.clone(), PLENTY);
    assert_eq!(store.health(), Ok(()), "nobody has needed it");
    let (began, mut tries, mut said) = (tokio::time::Instant::now(), 0, Vec::new());
    let attempt = || {
        tries += 1;
        if tries == 20 {
            fs::remove_file(&state).unwrap();
        }
        store.get_at_last()
    };
    let failed = |why: &str| {
        assert_eq!(store.health(), Err(why.to_owned()));
        said.push(why.to_owned());
    };
    store.until_done(attempt, failed).await;
    assert_eq!((tries, said.len()), (20, 1), "{said:?}");
    // Nine pauses grow, and ten are the longest.
    let took = began.elapsed();
    let most = Duration::from_secs(52 + 10 * 30);
    assert!(took > most / 2 && took < most, "{took:?}");
    assert_eq!(store.health(), Ok(()));
}

#[tokio::test(start_paused = true)]
async fn whoever_opens_a_store_ends_the_pauses_of_the_others() {
    let directory = Directory::new();
    let store = LazyStore::new(directory.join("state"), PLENTY);
    let opened = AtomicBool::new(false);
    let attempt = async || {
        if opened.load(Relaxed) {
            Ok(())
        } else {
            Err(io::Error::other("not yet"))
        }
    };
    let waiting = store.until_done(attempt, |_| opened.store(true, Relaxed));
    let began = tokio::time::Instant::now();
    let (opening, ()) = tokio::join!(store.get(), waiting);
    opening.unwrap();
    // The first pause is longer.
    assert!(began.elapsed() < Duration::from_millis(100));
}
