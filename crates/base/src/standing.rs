//! Which connection ends when a new one comes and there are as many as there may be: the one that
//! has been without a request for the longest time, as nginx does it. Else whoever holds
//! connections and asks nothing keeps all others out.
//!
//! Those that are idle come first: over HTTP their clients must expect it (RFC 9112, section 9.5).
//! Then those of which a request has begun and its rest is awaited, in handshakes too. Then those
//! whose response nobody takes: of the group, an address say, that has the most of them. One with
//! another request under way is never chosen.
//!
//! Connections that may be silent for hours, and whose clients do not expect an end, are all of the
//! last kind while they are silent; of a group with one alone, none ends.
//!
//! [`Cut`] ends a connection whatever it does.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::time::Instant;

use crate::mutex::lock;

/// Connections that were told to end and have not done so yet: so many more than the limit there
/// are at most, for a moment.
const LEAVING: usize = 64;

/// So many are found in one look at all connections, which takes half a millisecond where there are
/// ten thousand.
const FOUND: usize = 256;

/// After a look that found nobody, or only such as are not idle.
const NEXT_LOOK: Duration = Duration::from_millis(10);

/// A request is under way.
const BUSY: u64 = 0;
/// It is to end, unless a request has come meanwhile.
const EVICTED: u64 = u64::MAX;
/// Set while no head is complete, or a body is awaited.
const READING: u64 = 1 << 62;
/// Set beside [`READING`] while the client does not take the response.
const UNTAKEN: u64 = 1 << 61;
/// Below it stands since when, in microseconds.
const SINCE: u64 = UNTAKEN - 1;

/// A client that takes nothing for so long may be cut off for others. Whether it takes something
/// is for the service to find out: a socket may have no room for longer while its peer reads.
const UNREAD: Duration = Duration::from_secs(1);

/// All connections of a service.
#[derive(Debug)]
pub struct Standings {
    started: Instant,
    leaving: AtomicUsize,
    /// A group with fewer loses none of those whose response nobody takes.
    fewest: usize,
    ranks: Mutex<Ranks>,
}

#[derive(Debug, Default)]
struct Ranks {
    places: Vec<Option<Arc<Standing>>>,
    free: Vec<usize>,
    /// Those without a request for the longest time at the last look, the longest one last: all
    /// idle, or all with no head. Who has changed since is passed over; others of its kind have
    /// stood for less.
    longest: Vec<(u64, usize)>,
    looked: Option<Instant>,
    /// The last look found nobody.
    was_in_vain: bool,
}

/// Whether there is room for another connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admission {
    Free,
    /// Another one was told to end, which takes its task a moment.
    Freed,
    Full,
}

/// What a connection does.
#[derive(Debug)]
struct Standing {
    state: AtomicU64,
    /// Whose it is, with others; 0: it is one alone.
    group: AtomicU64,
    /// It is to end, whatever it does.
    is_cut: AtomicBool,
    hears: AtomicBool,
    waker: Mutex<Option<Waker>>,
}

/// Ends a connection from outside, also while it has a request.
#[derive(Debug)]
pub struct Cut(Arc<Standing>);

/// A connection's place among all; given back when it is dropped.
#[derive(Debug)]
pub struct Place {
    standings: Arc<Standings>,
    own: Arc<Standing>,
    at: usize,
}

impl Default for Standings {
    fn default() -> Self {
        Self {
            started: Instant::now(),
            leaving: AtomicUsize::new(0),
            fewest: 1,
            ranks: Mutex::default(),
        }
    }
}

impl Standings {
    /// For connections that may be silent: only who has several loses one.
    pub fn of_silent() -> Self {
        Self {
            fewest: 2,
            ..Self::default()
        }
    }

    /// A place for a connection of which nothing was read yet.
    pub fn enter(self: &Arc<Self>) -> Place {
        let own = Arc::new(Standing {
            state: AtomicU64::new(self.since(Instant::now()) | READING),
            group: AtomicU64::new(0),
            is_cut: AtomicBool::new(false),
            hears: AtomicBool::new(false),
            waker: Mutex::default(),
        });
        let mut ranks = self.ranks();
        let at = ranks.free.pop().unwrap_or_else(|| {
            ranks.places.push(None);
            ranks.places.len() - 1
        });
        if let Some(place) = ranks.places.get_mut(at) {
            *place = Some(own.clone());
        }
        drop(ranks);
        Place {
            standings: self.clone(),
            own,
            at,
        }
    }

    /// Whether there is room for another connection beside so many that are open, of at most so
    /// many: where there are as many, one is told to end. False when each has a request, or enough
    /// are ending.
    pub fn make_room(&self, open: usize, most: usize) -> Admission {
        match () {
            () if open < most => Admission::Free,
            () if open < most.saturating_add(LEAVING) && self.evict() => Admission::Freed,
            () => Admission::Full,
        }
    }

    /// Tells one to end. False when each has a request, or enough are ending.
    fn evict(&self) -> bool {
        if self.leaving.load(Ordering::Relaxed) >= LEAVING {
            return false;
        }
        let mut ranks = self.ranks();
        let now = Instant::now();
        let is_soon = ranks.looked.is_some_and(|at| now < at + NEXT_LOOK);
        if !is_soon && !ranks.has_idle() {
            ranks.longest.clear(); // others may be idle by now
        }
        let found = ranks.evict().or_else(|| {
            if is_soon && ranks.was_in_vain {
                return None;
            }
            ranks.looked = Some(now);
            ranks.look(self.since(now), self.fewest);
            let found = ranks.evict();
            ranks.was_in_vain = found.is_none();
            found
        });
        drop(ranks);
        let Some(standing) = found else {
            return false;
        };
        self.leaving.fetch_add(1, Ordering::Relaxed);
        if let Some(waker) = standing.waker().take() {
            waker.wake();
        }
        true
    }

    fn since(&self, moment: Instant) -> u64 {
        let since = moment.saturating_duration_since(self.started).as_micros();
        u64::try_from(since).map_or(SINCE, |since| (since + 1).min(SINCE))
    }

    fn ranks(&self) -> MutexGuard<'_, Ranks> {
        lock(&self.ranks)
    }
}

impl Ranks {
    fn evict(&mut self) -> Option<Arc<Standing>> {
        while let Some((seen, at)) = self.longest.pop() {
            if let Some(Some(standing)) = self.places.get(at)
                && standing.becomes(seen, EVICTED)
            {
                return Some(standing.clone());
            }
        }
        None
    }

    fn has_idle(&self) -> bool {
        let longest = self.longest.last();
        longest.is_some_and(|(state, _)| state & READING == 0)
    }

    fn look(&mut self, now: u64, fewest: usize) {
        let unread = now.saturating_sub(u64::try_from(UNREAD.as_micros()).unwrap_or(SINCE));
        let standing = self.places.iter().enumerate().filter_map(|(at, place)| {
            let state = place.as_ref()?.state.load(Ordering::Relaxed);
            let may_go = match kind(state) {
                UNREAD_KIND => state & SINCE <= unread,
                _ => state != BUSY && state != EVICTED,
            };
            may_go.then_some((state, at))
        });
        self.longest.extend(standing);
        let first = self.longest.iter().map(|(state, _)| kind(*state)).min();
        self.longest
            .retain(|(state, _)| Some(kind(*state)) == first);
        if first == Some(UNREAD_KIND) {
            self.keep_largest_group(fewest);
        }
        if self.longest.len() > FOUND {
            self.longest.select_nth_unstable(FOUND);
            self.longest.truncate(FOUND);
        }
        self.longest.sort_unstable_by_key(|&found| Reverse(found));
        self.longest.shrink_to(FOUND);
    }

    /// Leaves, among all that were found, the group with the most of them, as many as it has more
    /// than the next one. Leaves nobody where it has less than `fewest`.
    fn keep_largest_group(&mut self, fewest: usize) {
        let group = |at: usize| match self.places.get(at) {
            Some(Some(standing)) => standing.group.load(Ordering::Relaxed),
            _ => 0,
        };
        let mut groups: HashMap<u64, (usize, Reverse<u64>)> = HashMap::new();
        let mut largest = (0, Reverse(u64::MAX), 0);
        let mut second = 1;
        for &(state, at) in &self.longest {
            if let group @ 1.. = group(at) {
                let (count, oldest) = groups.entry(group).or_insert((0, Reverse(state)));
                *count += 1;
                *oldest = (*oldest).max(Reverse(state));
            } else {
                largest = largest.max((1, Reverse(state), 0));
            }
        }
        for (group, (count, oldest)) in groups {
            let this = (count, oldest, group);
            second = second.max(this.min(largest).0);
            largest = largest.max(this);
        }
        let (count, Reverse(oldest), of_group) = largest;
        let mut longest = std::mem::take(&mut self.longest);
        match of_group {
            0 => longest.retain(|(state, at)| *state == oldest && group(*at) == 0),
            of_group => longest.retain(|(_, at)| group(*at) == of_group),
        }
        longest.sort_unstable();
        longest.truncate(count.saturating_sub(second).max(1));
        if count < fewest {
            longest.clear();
        }
        self.longest = longest;
    }
}

/// The kind of a connection that is not busy: a lower one goes first.
const fn kind(state: u64) -> u64 {
    state / UNTAKEN
}

/// The last [`kind`].
const UNREAD_KIND: u64 = kind(READING | UNTAKEN);

impl Standing {
    fn becomes(&self, from: u64, to: u64) -> bool {
        let (set, else_read) = (Ordering::AcqRel, Ordering::Relaxed);
        self.state
            .compare_exchange(from, to, set, else_read)
            .is_ok()
    }

    fn waker(&self) -> MutexGuard<'_, Option<Waker>> {
        lock(&self.waker)
    }
}

impl Place {
    /// A request is there: the connection stays, whatever it was told before.
    pub fn busy(&self) {
        if self.own.state.swap(BUSY, Ordering::AcqRel) == EVICTED {
            self.standings.leaving.fetch_sub(1, Ordering::Relaxed);
            self.own.hears.store(false, Ordering::Relaxed); // its waker is used up
        }
    }

    /// The last request has ended at this moment.
    pub fn idle(&self, moment: Instant) {
        self.own.becomes(BUSY, self.standings.since(moment));
        let state = self.own.state.load(Ordering::Relaxed);
        if state & READING != 0 && state != EVICTED {
            self.own.becomes(state, self.standings.since(moment));
        }
    }

    /// A part of the next head is there.
    pub fn reading(&self) {
        let state = self.own.state.load(Ordering::Relaxed);
        if state & READING == 0 && state != BUSY {
            let since = self.standings.since(Instant::now());
            self.own.becomes(state, since | READING);
        }
    }

    /// The request waits for more of its body. What comes of it makes the connection
    /// [busy](Self::busy) again.
    pub fn awaits(&self) {
        let since = self.standings.since(Instant::now());
        self.own.becomes(BUSY, since | READING);
    }

    /// The client has taken nothing of the response since this moment, until it [has](Self::taken).
    pub fn untaken(&self, since: Instant) {
        let since = self.standings.since(since);
        self.own.becomes(BUSY, since | READING | UNTAKEN);
    }

    /// The client has taken something. One that was told to end still does.
    pub fn taken(&self) {
        let state = self.own.state.load(Ordering::Relaxed);
        if kind(state) == UNREAD_KIND {
            self.own.becomes(state, BUSY);
        }
    }

    /// Wakes the task that asks whether the connection is to end.
    pub fn look(&self) {
        if let Some(waker) = &*self.own.waker() {
            waker.wake_by_ref();
        }
    }

    /// Whose it is, together with others of this number.
    pub fn belongs_to(&self, group: u64) {
        self.own.group.store(group, Ordering::Relaxed);
    }

    /// Returns when the connection is to end. It is waited for by one task.
    pub async fn evicted(&self) {
        poll_fn(|cx| self.poll_evicted(cx)).await;
    }

    /// Ready when the connection is to end. It is asked by one task.
    pub fn poll_evicted(&self, cx: &Context<'_>) -> Poll<()> {
        if !self.own.hears.swap(true, Ordering::Relaxed) {
            *self.own.waker() = Some(cx.waker().clone());
        }
        if self.own.state.load(Ordering::Acquire) == EVICTED || self.is_cut() {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    }

    /// Whether it is to end whatever it does.
    pub fn is_cut(&self) -> bool {
        self.own.is_cut.load(Ordering::Acquire)
    }

    /// What ends it from outside.
    pub fn cut(&self) -> Cut {
        Cut(self.own.clone())
    }
}

impl Cut {
    /// Tells the connection to end.
    pub fn cut(&self) {
        self.0.is_cut.store(true, Ordering::Release);
        if let Some(waker) = self.0.waker().take() {
            waker.wake();
        }
    }

    /// Whether the connection was told to end.
    pub fn is_cut(&self) -> bool {
        self.0.is_cut.load(Ordering::Acquire)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.own.state.swap(BUSY, Ordering::AcqRel) == EVICTED {
            self.standings.leaving.fetch_sub(1, Ordering::Relaxed);
        }
        let mut ranks = self.standings.ranks();
        if let Some(place) = ranks.places.get_mut(self.at) {
            *place = None;
        }
        ranks.free.push(self.at);
        if ranks.free.len() == ranks.places.len() {
            // Nobody is left: what a crowd needed is given back.
            *ranks = Ranks::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    fn is_evicted(place: &Place) -> bool {
        place
            .poll_evicted(&Context::from_waker(Waker::noop()))
            .is_ready()
    }

    async fn later() {
        advance(Duration::from_millis(20)).await;
    }

    #[tokio::test(start_paused = true)]
    async fn the_longest_idle_one_goes_first_and_a_busy_one_never() {
        let standings = Arc::new(Standings::default());
        let places: Vec<Place> = (0..4).map(|_| standings.enter()).collect();
        for place in &places[..3] {
            later().await;
            place.busy();
        }
        for at in [1, 0] {
            later().await;
            places[at].idle(Instant::now());
        }
        let gone = || places.iter().map(is_evicted).collect::<Vec<_>>();
        assert_eq!(gone(), [false; 4]);
        assert!(standings.evict());
        assert_eq!(gone(), [false, true, false, false]);
        assert!(standings.evict());
        assert_eq!(gone(), [true, true, false, false]);
        assert!(standings.evict());
        assert_eq!(gone(), [true, true, false, true], "it has sent no head yet");
        later().await;
        assert!(!standings.evict(), "the last one has a request");
        drop(places);
        assert_eq!(standings.leaving.load(Ordering::Relaxed), 0);
        assert!(standings.ranks().places.is_empty(), "nothing is kept");
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_has_done_something_since_the_look_stands_behind() {
        let standings = Arc::new(Standings::default());
        let mut places: Vec<Place> = (0..3).map(|_| standings.enter()).collect();
        for place in &places {
            later().await;
            place.busy();
            place.idle(Instant::now());
        }
        assert!(standings.evict() && is_evicted(&places[0]));
        later().await;
        places[1].busy();
        places[1].idle(Instant::now());
        places[0] = standings.enter(); // in the place of the one that went
        assert!(standings.evict() && is_evicted(&places[2]));
        assert!(standings.evict() && is_evicted(&places[1]));
        assert!(standings.evict() && is_evicted(&places[0]));
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_in_the_last_moment_is_served() {
        let standings = Arc::new(Standings::default());
        let place = standings.enter();
        assert!(standings.evict());
        place.busy();
        assert!(!is_evicted(&place));
        assert!(!standings.evict());
        place.idle(Instant::now());
        later().await;
        assert!(standings.evict() && is_evicted(&place));
    }

    #[tokio::test(start_paused = true)]
    async fn a_head_in_pieces_stands_behind_those_that_are_idle() {
        let standings = Arc::new(Standings::default());
        let (slow, idle) = (standings.enter(), standings.enter());
        slow.busy();
        slow.idle(Instant::now());
        later().await;
        slow.reading();
        idle.busy();
        idle.idle(Instant::now());
        assert!(standings.evict() && is_evicted(&idle) && !is_evicted(&slow));
        later().await;
        let (other, later_idle) = (standings.enter(), standings.enter());
        assert!(standings.evict() && is_evicted(&slow));
        later().await;
        later_idle.busy();
        later_idle.idle(Instant::now());
        assert!(standings.evict() && is_evicted(&later_idle) && !is_evicted(&other));
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_waits_for_its_body_stands_as_one_without_a_whole_head() {
        let standings = Arc::new(Standings::default());
        let (head, body, busy) = (standings.enter(), standings.enter(), standings.enter());
        busy.busy();
        body.busy();
        body.awaits();
        later().await;
        head.reading();
        body.busy();
        later().await;
        body.awaits();
        assert!(standings.evict() && is_evicted(&head) && !is_evicted(&body));
        assert!(standings.evict() && is_evicted(&body) && !is_evicted(&busy));
        assert!(!standings.evict());
        body.busy();
        assert!(!is_evicted(&body), "more of it came in the last moment");
    }

    #[tokio::test(start_paused = true)]
    async fn of_responses_that_nobody_takes_those_of_the_largest_group_go() {
        let standings = Arc::new(Standings::default());
        let untaken = |group: u64| {
            let place = standings.enter();
            place.belongs_to(group);
            place.busy();
            place.untaken(Instant::now());
            place
        };
        let alone: Vec<Place> = (0..3).map(|_| untaken(0)).collect();
        let few: Vec<Place> = (0..2).map(|_| untaken(7)).collect();
        let many: Vec<Place> = (0..5).map(|_| untaken(8)).collect();
        assert!(!standings.evict(), "they may be about to read");
        advance(Duration::from_secs(2)).await;
        many[0].taken();
        many[0].untaken(Instant::now());
        let gone = |places: &[Place]| places.iter().filter(|it| is_evicted(it)).count();
        for (of_many, of_few) in [(1, 0), (2, 0)] {
            assert!(standings.evict());
            assert_eq!((gone(&many), gone(&few)), (of_many, of_few));
            later().await;
        }
        for _ in 0..2 {
            assert!(standings.evict());
            later().await;
        }
        assert!(!is_evicted(&many[0]) && gone(&many) == 3 && gone(&few) == 1);
        let reading = standings.enter();
        later().await;
        assert!(
            standings.evict() && is_evicted(&reading),
            "a half request goes first"
        );
        for _ in 0..5 {
            later().await;
            assert!(standings.evict());
        }
        assert_eq!((gone(&alone), gone(&few), gone(&many)), (3, 2, 4));
        later().await;
        assert!(!standings.evict(), "the last one takes something");
        many[0].taken();
        advance(Duration::from_secs(2)).await;
        assert!(!standings.evict(), "it has a request");
    }

    #[tokio::test(start_paused = true)]
    async fn of_silent_ones_those_go_whose_group_has_several() {
        let standings = Arc::new(Standings::of_silent());
        let silent = |group: u64| {
            let place = standings.enter();
            place.belongs_to(group);
            place.busy();
            place.untaken(Instant::now());
            place
        };
        let mut places: Vec<Place> = [1, 2, 2, 3, 0, 0].map(silent).into();
        advance(Duration::from_secs(2)).await;
        assert!(standings.evict() && is_evicted(&places[1]));
        later().await;
        assert!(!standings.evict(), "each has one");
        places.remove(1);
        assert!(!places.iter().any(is_evicted));
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_is_cut_ends_whatever_it_does() {
        let standings = Arc::new(Standings::default());
        let place = standings.enter();
        place.busy();
        let cut = place.cut();
        assert!(!is_evicted(&place) && !cut.is_cut());
        cut.cut();
        place.busy();
        assert!(is_evicted(&place) && place.is_cut());
        drop(place);
        cut.cut(); // it is gone already
    }

    #[tokio::test(start_paused = true)]
    async fn only_so_many_are_on_their_way_out() {
        let standings = Arc::new(Standings::default());
        let mut places: Vec<Place> = (0..FOUND * 2).map(|_| standings.enter()).collect();
        for _ in 0..LEAVING {
            assert!(standings.evict());
        }
        assert!(!standings.evict());
        places.retain(|place| !is_evicted(place));
        assert!(standings.evict());
    }
}
