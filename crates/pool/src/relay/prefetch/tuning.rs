//! How many calls a worker is given before it has answered those it has, and for how long: each
//! number with its reason. Measured on two processors (docs/decisions/0019).

use std::time::Duration;

/// Calls that take less, smoothed, are short: what a worker loses between two of them is worth a
/// place in the queue.
pub(super) const SHORT: Duration = Duration::from_millis(1);
/// Calls that take less, with no sleep before them, are quick: several of them are done before
/// another worker is awake.
pub(super) const QUICK: Duration = Duration::from_micros(32);
/// An idle worker is woken in about this time: so long a quick one is given calls instead.
pub(super) const UNTIL_AWAKE: Duration = Duration::from_micros(100);
/// Short calls that a worker may have beyond the one at hand, so that it need not sleep between
/// two.
pub(super) const FEW: u32 = 4;
/// The same of quick ones, which are over as soon.
pub(super) const MANY: usize = 12;
/// What is left of a call after its reply, where it takes less, is over before another worker is at
/// work: to wake that one, on another processor perhaps, and to fetch there what this one has in
/// its caches.
pub(super) const SOON: Duration = Duration::from_micros(300);
/// How long a reply may wait for the next ones, so that they wake the server together, while other
/// calls wait for the worker anyway: shorter than a wait that anybody notices.
pub(super) const UNTIL_TOLD: Duration = Duration::from_micros(600);
/// How long it may take until the worker has new calls: the server is woken and sends, a client
/// answers. What the worker still has when it wakes the server takes as long, or it would sleep in
/// between.
pub(super) const UNTIL_NEXT: Duration = Duration::from_micros(150);
/// A longer call counts as this: some fifteen short ones make up for it. Less than a second.
pub(super) const LONGEST: Duration = Duration::from_millis(50);
/// The last call is one of so many in the average: one that is unlike the others does not decide.
pub(super) const OF: u32 = 8;
/// How long the call at hand may take before those behind it go to other workers: twice what is
/// short.
pub(super) const PATIENCE: Duration = Duration::from_millis(2);
/// The same of what a long call has left. Its end is told late, and to look for it wakes a thread
/// that may sleep.
pub(super) const PATIENCE_WITH_REST: Duration = Duration::from_millis(10);
/// Calls in shared memory are told apart by the last five bits of their numbers, those that were
/// taken back included, until the worker has passed over them.
pub(super) const MOST_NUMBERS: u32 = 32;
/// The call at hand is taken back only while so few numbers are taken: its number is free again
/// when the worker comes to it.
pub(super) const NUMBERS_TO_PASS_OVER: u32 = MOST_NUMBERS / 2;
/// A longer body is not sent ahead: a dozen of them would fill the shared memory.
pub(in super::super) const LONGEST_BODY: usize = 16 << 10;
