//! How much of the machine this process may use.

use std::thread;

/// CPUs by affinity (`taskset`, cpusets) and by the quota of control groups, both versions, rounded
/// down, at least 1. What a container was given counts, not what the machine has.
pub fn usable() -> usize {
    // The standard library reads all three. Where it can't tell, one CPU is the safe answer.
    thread::available_parallelism().map_or(1, usize::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_at_least_one() {
        assert!(usable() >= 1);
    }
}
