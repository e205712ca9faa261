//! The limit on open files: all that the system allows for the server, what was there before for
//! its children.

use std::sync::OnceLock;

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

/// The part of the open files that a listener beside `http` may hold. `http` leaves it free.
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

    const ALL: [Self; 5] = [
        Self::RPC,
        Self::STATUS,
        Self::ADMIN,
        Self::METRICS,
        Self::CONTROL,
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

    /// The parts of all of them under this limit.
    pub fn all_of(open_files: u64) -> u64 {
        Self::ALL.iter().map(|share| share.of(open_files)).sum()
    }

    fn of(self, open_files: u64) -> u64 {
        (open_files / self.part).clamp(Self::FEWEST, self.most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_follow_the_limit_and_leave_most_of_it() {
        for (limit, rpc, all) in [(256, 32, 72), (1024, 128, 288), (1 << 20, 1024, 1376)] {
            assert_eq!((Share::RPC.of(limit), Share::all_of(limit)), (rpc, all));
        }
        assert_eq!(Share::RPC.of(u64::MAX), 1024);
    }
}
