//! Bugs that the model test plants, to see that it finds them. Outside of tests there are none of these.

/// What goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bug {
    /// A worker that becomes free does not look at the queue.
    LostWakeUp,
    /// A worn worker gets a second successor.
    DoubleReplace,
    /// The place of a worker that has gone is never used again.
    LeakedSlot,
    /// A reply goes to the caller before.
    #[cfg_attr(
        not(test),
        expect(dead_code, reason = "planted where tests alone look")
    )]
    WrongReply,
    /// A call whose worker died is dropped instead of repeated.
    LostCall,
    /// A call that may not run twice does.
    UnsafeRetry,
    /// A call whose client has left stays in the queue.
    ForgottenClient,
    /// The end of a wait is not noticed.
    EndlessWait,
    /// The queue's limit is not looked at.
    EndlessQueue,
    /// A busy worker is given a second call.
    Overbooked,
    /// A worker whose call passed its deadline is not ended.
    NeverKilled,
    /// A reload does not retire the old generation.
    OldStays,
    /// An idle worker that is drained is not told to end.
    DrainUntold,
    /// A worn worker is not replaced.
    WornStays,
    /// Calls that a worker had ahead and gave back are dropped.
    LostAhead,
    /// They still count as that worker's.
    PhantomAhead,
    /// A worker that asked for new ones is not known to leave.
    LostReport,
}

#[cfg(test)]
thread_local! {
    pub(crate) static PLANTED: std::cell::Cell<Option<Bug>> = const { std::cell::Cell::new(None) };
}

/// Whether this one is planted.
#[cfg(test)]
pub(crate) fn planted(bug: Bug) -> bool {
    PLANTED.get() == Some(bug)
}

#[cfg(not(test))]
pub(crate) const fn planted(_: Bug) -> bool {
    false
}
