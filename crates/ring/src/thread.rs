//! An I/O thread that serves boxes: it looks at them before it sleeps, and a bell wakes it when it
//! does.

use std::cell::RefCell;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use rustix::event::{EventfdFlags, eventfd};
use rustix::thread::sched_yield;
use tokio::io::unix::AsyncFd;
use tokio::runtime::Handle;
use tokio::time::Instant;

use crate::half::{Server, Sleeper};
use crate::link::wake_if_asleep;
use crate::memory::{ParkingPage, SharedMemory};
use crate::questions::Questions;
use crate::turn::Turn;

/// What workers of an I/O thread need of it. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Thread(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    page: ParkingPage,
    bell: OwnedFd,
}

thread_local! {
    static HERE: RefCell<Option<Here>> = const { RefCell::new(None) };
}

/// The thread itself.
struct Here {
    shared: Arc<Shared>,
    /// Links that wait for their worker.
    waiting: Vec<Waiting>,
    /// Boxes that something was put into, whose workers may sleep.
    to_wake: Vec<Arc<SharedMemory>>,
    /// How often it may come by before it wakes them.
    passes_left: u32,
    turn: Turn,
    questions: Questions,
}

/// How long a question is looked for that may come at any moment.
const LOOK: Duration = Duration::from_micros(20);
/// Looks between two at the clock.
const LOOKS: u32 = 64;
/// Looks at the clock, which may stand still in a test.
const MOST_ROUNDS: u32 = 100;

/// How often a busy thread comes by before it wakes those it has put something for: some ten
/// requests, a tenth of a millisecond.
const PASSES: u32 = 32;
/// And one that has slept: workers sleep as well then, and one that is woken now will have answered
/// the first of the requests that came when this thread has read the last.
const PASSES_AFTER_SLEEP: u32 = 2;

/// A link that waits.
pub(crate) struct Waiting {
    pub(crate) owner: Arc<SharedMemory>,
    /// What the link has seen: another number is news.
    pub(crate) seen_put: u64,
    /// When it waits for room: what it has seen of that.
    pub(crate) seen_taken: Option<u64>,
    /// Whether the calls of its worker are quick.
    pub(crate) quick: bool,
    pub(crate) waker: Waker,
}

impl Waiting {
    fn has_news(&self) -> bool {
        let server = Server(self.owner.words());
        server.worker_has_put() != self.seen_put
            || self
                .seen_taken
                .is_some_and(|seen| server.worker_has_taken() != seen)
    }

    /// Whether its worker goes from one quick call to the next.
    fn runs_quick_calls(&self) -> bool {
        self.quick && Server(self.owner.words()).worker_has_calls()
    }
}

impl Thread {
    /// Makes the thread that runs `runtime`, a single-threaded one, serve boxes.
    /// [`before_park`](Self::before_park) and [`after_park`](Self::after_park) must be its hooks.
    ///
    /// # Errors
    ///
    /// When the kernel gives no memory or descriptors.
    pub fn serve(runtime: &Handle) -> io::Result<Self> {
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let shared = Arc::new(Shared {
            page: ParkingPage::new()?,
            bell,
        });
        let here = shared.clone();
        runtime.spawn(async move {
            HERE.with_borrow_mut(|place| {
                *place = Some(Here {
                    shared: here.clone(),
                    waiting: Vec::new(),
                    to_wake: Vec::new(),
                    passes_left: PASSES,
                    turn: Turn::default(),
                    questions: Questions::default(),
                });
            });
            if let Err(error) = listen(&here).await {
                // Without the bell it still looks whenever it wakes up; nothing can be done here.
                debug_assert!(false, "the bell can't be watched: {error}");
            }
        });
        Ok(Self(shared))
    }

    /// For workers: where they see whether it sleeps.
    pub fn page(&self) -> BorrowedFd<'_> {
        self.0.page.memory()
    }

    /// For workers: an eventfd.
    pub fn bell(&self) -> BorrowedFd<'_> {
        self.0.bell.as_fd()
    }

    /// The runtime's hook before the thread sleeps.
    pub fn before_park() {
        with_here(|here| {
            wake_all(here);
            if collect_in(here) {
                return;
            }
            if here.questions.is_one_near() && looks_longer(here) {
                return;
            }
            if here.waiting.iter().any(Waiting::runs_quick_calls) {
                here.turn.give(sched_yield);
            }
            let shared = here.shared.clone();
            Sleeper(shared.page.words()).is_on(processor());
            // A task that was woken keeps the thread from sleeping.
            Sleeper(shared.page.words()).sleeps(|| collect_in(here));
        });
    }

    /// The runtime's hook after it slept.
    pub fn after_park() {
        with_here(|here| {
            Sleeper(here.shared.page.words()).awake();
            here.passes_left = PASSES_AFTER_SLEEP;
        });
    }
}

/// The bell is never read: it is watched for its edges, and each ring is one.
async fn listen(shared: &Shared) -> io::Result<()> {
    #[expect(unsafe_code, reason = "tokio asks for a promise about the descriptor")]
    // SAFETY: the descriptor is borrowed from a value that lives as long as this function runs; it
    // is never closed or replaced meanwhile.
    let bell = unsafe { AsyncFd::register(shared.bell.as_fd()) }.map_err(io::Error::from)?;
    loop {
        bell.readable().await?.clear_ready();
        collect();
    }
}

/// Looks whether a worker of this thread has put or taken something, and wakes who waits for it.
/// Called wherever a busy thread comes by, because it looks by itself only before it sleeps. On
/// other threads it does nothing.
pub fn collect() {
    with_here(|here| {
        collect_in(here);
        if !here.to_wake.is_empty() {
            here.passes_left -= 1;
            if here.passes_left == 0 {
                wake_all(here);
            }
        }
    });
}

/// Wakes the worker of a box before this thread sleeps, or soon; at once where that is unknown.
pub(crate) fn wake_later(owner: &Arc<SharedMemory>) {
    let later = with_here(|here| {
        if !here.to_wake.iter().any(|it| Arc::ptr_eq(it, owner)) {
            here.to_wake.push(owner.clone());
        }
    });
    if later.is_none() {
        wake_if_asleep(owner);
    }
}

/// Wakes the worker of a box that [would be woken later](wake_later), now.
pub(crate) fn wake_now(owner: &Arc<SharedMemory>) {
    with_here(|here| here.to_wake.retain(|it| !Arc::ptr_eq(it, owner)));
    wake_if_asleep(owner);
}

fn wake_all(here: &mut Here) {
    here.passes_left = PASSES;
    for owner in here.to_wake.drain(..) {
        wake_if_asleep(&owner);
    }
}

fn collect_in(here: &mut Here) -> bool {
    let before = here.waiting.len();
    // Wakers of a runtime only put their task on a queue: none comes back here.
    here.waiting.retain(|waiting| {
        let news = waiting.has_news();
        if news {
            waiting.waker.wake_by_ref();
        }
        !news
    });
    here.waiting.len() < before
}

/// A worker has asked something beside its call.
pub fn asked() {
    with_here(|here| here.questions.asked(Instant::now()));
}

/// It has its answer.
pub fn answered() {
    with_here(|here| here.questions.answered(Instant::now()));
}

/// Looks for a question, or for anything else that a worker has put, for a moment.
fn looks_longer(here: &mut Here) -> bool {
    let until = Instant::now() + LOOK;
    for _ in 0..MOST_ROUNDS {
        for _ in 0..LOOKS {
            if collect_in(here) {
                return true;
            }
            std::hint::spin_loop();
        }
        if Instant::now() >= until {
            break;
        }
    }
    false
}

/// Waits in the name of a link; one that waits already waits for this now.
pub(crate) fn wait(waiting: Waiting) {
    let there = with_here(|here| {
        let mut places = here.waiting.iter_mut();
        match places.find(|place| Arc::ptr_eq(&place.owner, &waiting.owner)) {
            Some(place) => *place = waiting,
            None => here.waiting.push(waiting),
        }
    });
    debug_assert!(
        there.is_some(),
        "a link lives on a thread that serves boxes"
    );
}

/// The link is gone, or does something else.
pub(crate) fn forget(owner: &Arc<SharedMemory>) {
    with_here(|here| {
        here.waiting
            .retain(|waiting| !Arc::ptr_eq(&waiting.owner, owner));
    });
}

/// No processor's number where the kernel does not tell it.
fn processor() -> u32 {
    #[expect(unsafe_code, reason = "a system call's wrapper")]
    // SAFETY: takes nothing and changes nothing.
    let processor = unsafe { libc::sched_getcpu() };
    u32::try_from(processor).unwrap_or(u32::MAX)
}

fn with_here<R>(act: impl FnOnce(&mut Here) -> R) -> Option<R> {
    HERE.with(|here| here.try_borrow_mut().ok()?.as_mut().map(act))
}
