//! From what a request takes to the rate, the workers and the memory that follow: the arithmetic of
//! a closed queue, and how far it is from what was measured.
//!
//! Knows no server and no file. `docs/benchmarks.md` tells the formulas.

/// What a request takes, and of what there is how much.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Model {
    pub(crate) processors: f64,
    /// CPU time of all processes for a request, a load generator on the same machine among them.
    pub(crate) cpu_us: f64,
    /// Of it, PHP's.
    pub(crate) php_us: f64,
    /// How long the handler waits without a processor.
    pub(crate) blocked_us: f64,
}

impl Model {
    /// Requests per second.
    ///
    /// The processors are one queue in front of which `connections` requests are at most
    /// (mean value analysis, several processors by Seidmann's approximation); workers bound it,
    /// each of which is held while PHP computes and waits.
    pub(crate) fn rate(&self, workers: u16, connections: u32) -> f64 {
        let held = self.php_us + self.blocked_us;
        let of_workers = f64::from(workers) / held * 1e6;
        self.processor_rate(connections).min(of_workers)
    }

    fn processor_rate(&self, connections: u32) -> f64 {
        /// Beyond it the queue is as long as it gets.
        const MOST: u32 = 10_000;
        let demand = self.cpu_us / self.processors;
        let elsewhere = self.cpu_us - demand + self.blocked_us;
        let (mut queue, mut rate) = (0.0, 0.0);
        for requests in 1..=connections.clamp(1, MOST) {
            let stay = demand * (1.0 + queue);
            rate = f64::from(requests) / (elsewhere + stay);
            queue = rate * stay;
        }
        rate * 1e6
    }

    /// How many workers keep the processors busy.
    pub(crate) fn workers(&self) -> f64 {
        (self.processors / self.cpu_us * (self.php_us + self.blocked_us)).max(1.0)
    }

    /// The share of a worker's time in which it waits.
    pub(crate) fn blocked_share(&self) -> f64 {
        self.blocked_us / (self.php_us + self.blocked_us)
    }
}

/// Memory of a server and its workers: a part of its own, and one for each worker.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Memory {
    pub(crate) server_bytes: f64,
    pub(crate) worker_bytes: f64,
}

impl Memory {
    /// Through two measurements, of a few workers and of more. `None` if these are as many.
    pub(crate) fn through(few: (u16, f64), more: (u16, f64)) -> Option<Self> {
        let workers = f64::from(more.0) - f64::from(few.0);
        if workers <= 0.0 {
            return None;
        }
        let worker_bytes = (more.1 - few.1) / workers;
        Some(Self {
            server_bytes: few.1 - worker_bytes * f64::from(few.0),
            worker_bytes,
        })
    }

    pub(crate) fn bytes(&self, workers: u16) -> f64 {
        self.server_bytes + self.worker_bytes * f64::from(workers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COMPUTES: Model = Model {
        processors: 2.0,
        cpu_us: 1000.0,
        php_us: 900.0,
        blocked_us: 0.0,
    };

    fn near(value: f64, expected: f64) -> bool {
        (value - expected).abs() < expected * 0.02
    }

    #[test]
    fn work_that_computes_is_bound_by_processors() {
        assert!(near(COMPUTES.rate(100, 1), 1000.0), "one request at a time");
        assert!(near(COMPUTES.rate(100, 200), 2000.0), "both processors");
        assert!(near(COMPUTES.rate(1, 200), 1111.0), "one worker");
        assert!(near(COMPUTES.workers(), 1.8));
    }

    #[test]
    fn work_that_waits_is_bound_by_workers() {
        let waits = Model {
            blocked_us: 9100.0,
            ..COMPUTES
        };
        assert!(near(waits.rate(4, 100), 400.0));
        assert!(near(waits.rate(64, 100), 2000.0), "the processors again");
        assert!(near(waits.workers(), 20.0));
        assert!(near(waits.blocked_share(), 0.91));
    }

    #[test]
    fn memory_grows_with_workers() {
        let memory = Memory::through((1, 30.0), (16, 180.0)).unwrap();
        assert_eq!((memory.server_bytes, memory.worker_bytes), (20.0, 10.0));
        assert!(near(memory.bytes(64), 660.0));
        assert_eq!(Memory::through((4, 1.0), (4, 2.0)), None);
    }
}
