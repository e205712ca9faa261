//! The limit on open files: all that the system allows for the server, what was there before for
//! its children.

use std::io;
use std::sync::{Mutex, OnceLock, Weak};
use std::thread;
use std::time::Duration;

use pronghorn_base::lock;
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The limit that the server was started with, once it was raised.
static BEFORE: OnceLock<Rlimit> = OnceLock::new();

/// Raises the limit to the most that is allowed, and says how many files may be open now.
pub fn raise() -> u64 {
    let now = getrlimit(Resource::Nofile);
    let before = *BEFORE.get_or_init(|| now);
    let raised = Rlimit {
        current: before.maximum,
        maximum: before.maximum,
    };
    // Refused only to those who are at their limit already.
    _ = setrlimit(Resource::Nofile, raised);
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// Puts the limit back, in a child before exec: programs that use select(2) can't take numbers
/// above 1,023.
pub(crate) fn restore() {
    if let Some(before) = BEFORE.get() {
        _ = setrlimit(Resource::Nofile, *before);
    }
}

/// An owner of open files that it can do without.
pub trait Spare: Send + Sync {
    /// Closes them. Called where the process has no descriptor left, on any thread.
    fn give_back(&self);
}

/// All who have some. The limit is the process's, and so is this.
static SPARE: Mutex<Vec<Weak<dyn Spare>>> = Mutex::new(Vec::new());

/// From now on this one is asked where descriptors are short.
pub fn spared_by(spare: Weak<dyn Spare>) {
    let mut all = lock(&SPARE);
    all.retain(|spare| spare.strong_count() > 0);
    all.push(spare);
}

/// Has each [`Spare`] close its files if this error says that no descriptor was left. True: another
/// try may succeed.
pub fn made_room(error: &io::Error) -> bool {
    let is_short = matches!(
        Errno::from_io_error(error),
        Some(Errno::MFILE | Errno::NFILE)
    );
    if is_short {
        let all = lock(&SPARE).clone();
        for spare in all.iter().filter_map(Weak::upgrade) {
            spare.give_back();
        }
    }
    is_short
}

/// Opens a file, on a thread that may block. Where no descriptor is left, connections of clients
/// that are silent have to end, and it waits for that.
///
/// # Errors
///
/// Those of the last try.
pub fn open_in_time<T>(mut open: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    /// Two seconds in all: a connection that has to end does so at its task's next turn.
    const TRIES: usize = 40;
    const PAUSE: Duration = Duration::from_millis(50);
    for _ in 0..TRIES {
        match open() {
            Err(error) if made_room(&error) => thread::park_timeout(PAUSE),
            opened => return opened,
        }
    }
    open()
}

/// A part of the open files that `http` leaves free: for a listener beside it, or for files that
/// are kept open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    most: u64,
    part: u64,
}

impl Share {
    /// Each PHP package that a worker uses may keep a connection: 200 workers with five.
    pub const RPC: Self = Self::new(1024, 8);
    /// Probes of a handful of balancers; each has one connection at a time.
    pub const STATUS: Self = Self::new(256, 16);
    /// A few people and programs; each connection may hold an answer until its client takes it.
    pub const ADMIN: Self = Self::new(32, 32);
    /// A few Prometheus servers and people.
    pub const METRICS: Self = Self::new(32, 32);
    /// People and scripts at work at the same time.
    pub const CONTROL: Self = Self::new(32, 32);

    /// Files that caches keep open, those of all roots together: as many as eight roots of old had,
    /// and so few that a visitor who asks for all that there is takes nobody's place.
    pub const FILES: Self = Self::new(4096, 8);

    /// The connections of all servers of `tcp` together. Many are silent for long, and each may.
    pub const TCP: Self = Self::new(u64::MAX, 4);
    /// A client has one connection for all its calls.
    pub const GRPC: Self = Self::new(10_000, 4);
    /// Each Centrifugo has one connection for each kind of call.
    pub const CENTRIFUGO: Self = Self::new(1000, 16);
    /// Visitors who load files from an address of its own.
    pub const FILESERVER: Self = Self::new(u64::MAX, 4);

    /// Every server leaves these; the others are left where their services are configured.
    const ALL: [Self; 6] = [
        Self::RPC,
        Self::STATUS,
        Self::ADMIN,
        Self::METRICS,
        Self::CONTROL,
        Self::FILES,
    ];
    /// Where the limit is very low.
    const FEWEST: u64 = 8;

    const fn new(most: u64, part: u64) -> Self {
        Self { most, part }
    }

    /// Connections at a time, of all that the system allows.
    pub fn connections(self) -> usize {
        usize::try_from(self.of(raise())).unwrap_or(usize::MAX)
    }

    fn of(self, open_files: u64) -> u64 {
        (open_files / self.part).clamp(Self::FEWEST, self.most)
    }
}

/// The open files that are not for connections of `http`.
#[derive(Clone, Debug, Default)]
pub struct Reserved {
    /// Parts for the clients of other services.
    pub shares: Vec<Share>,
    /// The most workers that all pools may have.
    pub workers: usize,
}

impl Reserved {
    /// Listeners, log files, spool files.
    const OTHERS: u64 = 256;
    /// Seven pipes, and one more while it is replaced.
    const EACH_WORKER: u64 = 8;

    /// Their number under this limit. Pools may be allowed to grow to far more workers than they
    /// ever have: all of them take at most half.
    pub fn of(&self, open_files: u64) -> u64 {
        let workers = (self.workers as u64).saturating_mul(Self::EACH_WORKER);
        let kept = workers.min(open_files / 2).saturating_add(Self::OTHERS);
        let shares = Share::ALL.iter().chain(&self.shares);
        shares
            .map(|share| share.of(open_files))
            .fold(kept, u64::saturating_add)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[derive(Default)]
    struct Given(AtomicUsize);

    impl Spare for Given {
        fn give_back(&self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn who_has_something_to_spare_is_asked_where_descriptors_are_short() {
        let given = Arc::new(Given::default());
        let as_spare: Arc<dyn Spare> = given.clone();
        spared_by(Arc::downgrade(&as_spare));
        assert!(!made_room(&Errno::CONNABORTED.into()));
        assert_eq!(given.0.load(Ordering::Relaxed), 0);
        assert!(made_room(&Errno::MFILE.into()) && made_room(&Errno::NFILE.into()));
        assert_eq!(given.0.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn shares_follow_the_limit_and_leave_most_of_it() {
        let reserved = |shares: &[Share], workers| Reserved {
            shares: shares.to_vec(),
            workers,
        };
        let nothing = reserved(&[], 0);
        for (limit, rpc, all) in [(256, 32, 104), (1024, 128, 416), (1 << 20, 1024, 5472)] {
            let found = (Share::RPC.of(limit), nothing.of(limit));
            assert_eq!(found, (rpc, 256 + all));
        }
        let others = [Share::TCP, Share::GRPC, Share::CENTRIFUGO];
        let all = 256 + 416 + 256 + 256 + 64;
        assert_eq!(reserved(&others, 0).of(1024), all);
        assert_eq!(reserved(&others, 4).of(1024), all + 32);
        assert_eq!(reserved(&others, 2048).of(1024), all + 512);
        assert_eq!(reserved(&[Share::TCP; 9], 0).of(u64::MAX), u64::MAX);
        assert_eq!(Share::RPC.of(u64::MAX), 1024);
    }
}
