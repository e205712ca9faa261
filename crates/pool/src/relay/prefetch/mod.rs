//! Which calls a worker is given before it has answered those it has, when they are sent, and when
//! they go to other workers.
//!
//! No I/O and no clock: the relay says what happened and when, sends what
//! [`unsent`](Prefetch::unsent) names, and asks the channel what can be taken back. A call is in
//! one of three places: at hand, waiting here, or with whoever took it out.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

use crate::core::PrefetchLimits;

mod pace;
mod tuning;

use pace::Pace;
pub(super) use tuning::LONGEST_BODY;
use tuning::{MOST_NUMBERS, NUMBERS_TO_PASS_OVER, PATIENCE, PATIENCE_WITH_REST};

/// A call on its way through a worker's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sent {
    /// 1 or more.
    pub(super) number: u32,
    /// Bytes that went to the worker before it.
    begins_at: u64,
}

/// A call for after the one at hand.
#[derive(Debug)]
pub struct Prefetched<C> {
    pub(super) call: C,
    /// Once the worker can see it.
    pub(super) sent: Option<Sent>,
}

impl<C> From<C> for Prefetched<C> {
    fn from(call: C) -> Self {
        Self { call, sent: None }
    }
}

/// The calls for later of the worker behind one connection.
#[derive(Debug)]
pub(super) struct Prefetch<C> {
    /// Whether the connection lets calls be taken back; without that none are given ahead.
    is_possible: bool,
    /// The call at hand, or the last one.
    at_hand: Sent,
    /// Since when, and whether it was prefetched.
    since: Instant,
    was_prefetched: bool,
    /// The number of the last call that was sent.
    last_number: u32,
    /// The number of the last call that the worker is known to have begun.
    begun: u32,
    /// Bytes that went to the worker.
    written: u64,
    /// For after the one at hand, in their order. Those that were sent come first.
    waiting: VecDeque<Prefetched<C>>,
    /// How many of them were sent.
    sent: usize,
    /// Whether they may be sent: nothing of the call at hand comes after them, and its end is near.
    may_send: bool,
    /// When they go to other workers.
    patient_until: Instant,
    pace: Pace,
}

impl<C> Prefetch<C> {
    pub(super) fn new(is_possible: bool, now: Instant) -> Self {
        Self {
            is_possible,
            at_hand: Sent {
                number: 0,
                begins_at: 0,
            },
            since: now,
            was_prefetched: false,
            last_number: 0,
            begun: 0,
            written: 0,
            waiting: VecDeque::new(),
            sent: 0,
            may_send: false,
            patient_until: now,
            pace: Pace::default(),
        }
    }

    /// The number of the call at hand, or of the last one; 0 before the first.
    pub(super) const fn number(&self) -> u32 {
        self.at_hand.number
    }

    /// Since when the worker has the call at hand.
    pub(super) const fn since(&self) -> Instant {
        self.since
    }

    /// A call that was dispatched then is at hand. None is sent before it is.
    pub(super) fn begin(&mut self, dispatched: Instant, sent: Option<Sent>) {
        self.since = self.since.max(dispatched);
        self.patient_until = self.since + PATIENCE;
        self.was_prefetched = sent.is_some();
        self.at_hand = sent.unwrap_or_else(|| {
            self.last_number = number_after(self.last_number);
            Sent {
                number: self.last_number,
                begins_at: self.written,
            }
        });
    }

    /// So many bytes went to the worker.
    pub(super) fn wrote(&mut self, bytes: usize) {
        self.written += bytes as u64;
    }

    /// The worker has said something of the call at hand.
    pub(super) fn heard(&mut self) {
        self.begun = self.at_hand.number;
    }

    /// The call at hand is sent. Those behind it may be, unless bytes of its body are to follow.
    pub(super) fn may_send(&mut self, may: bool) {
        self.may_send = may;
    }

    /// One more is for later. False: it has to be [taken back](Self::take_back), with the others.
    pub(super) fn add(&mut self, call: C) -> bool {
        self.waiting.push_back(call.into());
        self.may_send
    }

    /// More are for later; they are sent with the next call at hand.
    pub(super) fn extend(&mut self, calls: impl IntoIterator<Item = C>) {
        self.waiting.extend(calls.into_iter().map(Into::into));
    }

    /// The next one to be sent, and its number.
    pub(super) fn unsent(&self) -> Option<(u32, &C)> {
        let number = number_after(self.last_number);
        if !self.may_send || number.wrapping_sub(self.begun) >= MOST_NUMBERS {
            return None;
        }
        Some((number, &self.waiting.get(self.sent)?.call))
    }

    /// That one was sent, with so many bytes.
    pub(super) fn sent(&mut self, bytes: usize) {
        self.last_number = number_after(self.last_number);
        let sent = Sent {
            number: self.last_number,
            begins_at: self.written,
        };
        if let Some(next) = self.waiting.get_mut(self.sent) {
            next.sent = Some(sent);
            self.sent += 1;
        }
        self.wrote(bytes);
    }

    /// The one that comes next.
    pub(super) fn next(&mut self) -> Option<Prefetched<C>> {
        let next = self.waiting.pop_front();
        self.sent = self.sent.saturating_sub(1);
        next
    }

    /// When it has been waited for the call at hand long enough.
    pub(super) fn patient_until(&self) -> Option<Instant> {
        (!self.waiting.is_empty()).then_some(self.patient_until)
    }

    /// Whether calls can be taken back at all, and hence are there.
    pub(super) const fn is_possible(&self) -> bool {
        self.is_possible
    }

    /// Gives back what the worker has not begun, as far as `take_back` can say so of a number, and
    /// sends none before the next call is at hand.
    pub(super) fn take_back(&mut self, mut take_back: impl FnMut(u32) -> bool) -> Vec<C> {
        self.may_send = false;
        let mut back = Vec::new();
        // From the end: the worker comes from the other one.
        while let Some(last) = self.waiting.pop_back() {
            if last.sent.is_some_and(|sent| !take_back(sent.number)) {
                self.waiting.push_back(last);
                break;
            }
            back.push(last.call);
        }
        self.sent = self.sent.min(self.waiting.len());
        back
    }

    /// All that are left, when there is no worker any more.
    pub(super) fn take_all(&mut self) -> VecDeque<Prefetched<C>> {
        self.sent = 0;
        std::mem::take(&mut self.waiting)
    }

    /// Bytes that went to the worker since a call began.
    pub(super) const fn written_since(&self, sent: Sent) -> u64 {
        self.written - sent.begins_at
    }

    /// The call at hand, and the bytes that went to the worker since it began.
    pub(super) const fn at_hand(&self) -> (u32, u64) {
        (self.at_hand.number, self.written_since(self.at_hand))
    }

    /// Whether there are numbers enough to let the worker pass over the call at hand.
    pub(super) const fn may_pass_over(&self) -> bool {
        self.last_number.wrapping_sub(self.begun) < NUMBERS_TO_PASS_OVER
    }

    /// The call at hand has ended. From then on the next one is.
    pub(super) fn end(&mut self, now: Instant) {
        let took = now.saturating_duration_since(self.since);
        self.pace.note(took, self.was_prefetched);
        self.since = now;
    }

    /// The rest of a call after its reply took so long.
    pub(super) fn note_rest(&mut self, took: Duration) {
        self.pace.note_rest(took);
    }

    pub(super) fn is_quick(&self) -> bool {
        self.pace.is_quick()
    }

    /// With how many calls that it has not begun the worker need not wake the server for a reply.
    pub(super) fn enough_calls(&self) -> u32 {
        self.pace.enough_calls()
    }

    /// How many calls a worker that gets so many more may have beyond the next one.
    pub(super) fn limits(&self, calls_left: Option<u64>) -> PrefetchLimits {
        self.within(self.pace.prefetch(), calls_left)
    }

    /// The call at hand is answered: how many may come behind what it has left, if that is more
    /// than behind a call. They are waited for from then on.
    pub(super) fn wind_down(
        &mut self,
        answered: Instant,
        calls_left: Option<u64>,
    ) -> Option<PrefetchLimits> {
        let behind_call = self.pace.prefetch();
        let limits = self.within(self.pace.may_have_behind_rest(), calls_left);
        if limits == self.within(behind_call, calls_left) {
            return None;
        }
        let is_long = behind_call == PrefetchLimits::default();
        self.patient_until = answered
            + if is_long {
                PATIENCE_WITH_REST
            } else {
                PATIENCE
            };
        self.may_send = true;
        Some(limits)
    }

    /// None beyond the worker's last one.
    fn within(&self, by_pace: PrefetchLimits, calls_left: Option<u64>) -> PrefetchLimits {
        if !self.is_possible {
            return PrefetchLimits::default();
        }
        let left = calls_left.map_or(usize::MAX, |left| {
            usize::try_from(left).unwrap_or(usize::MAX)
        });
        let beyond = left.saturating_sub(1);
        PrefetchLimits {
            most: by_pace.most.min(beyond),
            before_waking_idle: by_pace.before_waking_idle.min(beyond),
            when_cpus_busy: by_pace.when_cpus_busy.min(beyond),
        }
    }
}

fn number_after(number: u32) -> u32 {
    number.checked_add(1).unwrap_or(1)
}

#[cfg(test)]
mod tests;
