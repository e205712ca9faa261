//! The I/O thread that a new connection goes to.

use pronghorn_workers::IoThread;

/// Counts a connection on its thread.
pub(crate) struct Loaded(IoThread);

impl Loaded {
    pub(crate) fn on(thread: &IoThread) -> Self {
        thread.entered();
        Self(thread.clone())
    }
}

impl Drop for Loaded {
    fn drop(&mut self) {
        self.0.left();
    }
}

/// The thread with the fewest connections, if its lead over `own` is worth the move.
pub(crate) fn emptier<'a>(threads: &'a [IoThread], own: &IoThread) -> Option<&'a IoThread> {
    /// A difference of two comes and goes by itself.
    const LEAD: usize = 2;
    let emptiest = threads.iter().min_by_key(|thread| thread.connections())?;
    let lead = own.connections().saturating_sub(emptiest.connections());
    (lead > LEAD).then_some(emptiest)
}
