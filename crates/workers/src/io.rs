//! The threads that serve requests: a runtime each, and nothing on them that could block.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::Duration;

use pronghorn_pool::Home;
use pronghorn_process::cpus;
use tokio::runtime::{Builder, Handle};
use tokio::sync::Notify;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

/// Threads for file work of each I/O thread. They exist only while there is some.
const FILE_THREADS: usize = 4;

/// More threads than that only wake each other up.
pub const MAX_IO_THREADS: usize = 64;

/// Fewer connections hold so little that it may stay.
const MANY: usize = 256;
/// How long others may go at the same time before what they held is given back.
const SETTLED: Duration = Duration::from_millis(500);

/// How many I/O threads there are where nobody says it. PHP needs the cores, and fewer threads mean
/// fewer wake-ups.
pub fn default_io_threads() -> usize {
    (cpus::usable() / 4).clamp(1, MAX_IO_THREADS)
}

/// All I/O threads of a server.
#[derive(Debug)]
pub struct IoThreads {
    io: Io,
    ends: CancellationToken,
    handles: Vec<JoinHandle<()>>,
}

/// The I/O threads, as services see them.
#[derive(Clone, Debug, Default)]
pub struct Io {
    threads: Vec<IoThread>,
    homes: Vec<Home>,
}

/// One I/O thread, as others see it.
#[derive(Debug, Clone)]
pub struct IoThread {
    pub runtime: Handle,
    load: Arc<Load>,
}

/// The connections that live on a thread.
#[derive(Debug, Default)]
struct Load {
    now: AtomicUsize,
    /// The most of them since memory was last given back.
    most: AtomicUsize,
    fallen: Notify,
}

impl IoThread {
    /// Any other thread's runtime, to serve there what is not for PHP.
    pub fn of(runtime: Handle) -> Self {
        Self {
            runtime,
            load: Arc::default(),
        }
    }

    /// A connection lives here from now on.
    pub fn entered(&self) {
        let now = self.load.now.fetch_add(1, Relaxed) + 1;
        if now > self.load.most.load(Relaxed) {
            self.load.most.store(now, Relaxed);
        }
    }

    /// One of them is gone.
    pub fn left(&self) {
        let now = self.load.now.fetch_sub(1, Relaxed).saturating_sub(1);
        let most = self.load.most.load(Relaxed);
        if most >= MANY && now <= most / 2 {
            self.load.most.store(now, Relaxed);
            self.load.fallen.notify_one();
        }
    }

    /// How many live here.
    pub fn connections(&self) -> usize {
        self.load.now.load(Relaxed)
    }
}

impl Load {
    /// Whenever half of many connections are gone, what they held goes back to the system: this
    /// thread may sleep for long now.
    async fn give_back(&self) {
        loop {
            self.fallen.notified().await;
            sleep(SETTLED).await;
            pronghorn_allocator::give_back();
        }
    }
}

impl IoThreads {
    /// Starts `count` threads, at least one.
    ///
    /// # Errors
    ///
    /// When the system gives no thread or no descriptors for one.
    pub fn start(count: usize) -> io::Result<Self> {
        let ends = CancellationToken::new();
        let mut all = Self {
            io: Io::default(),
            ends: ends.clone(),
            handles: Vec::new(),
        };
        for index in 0..count.max(1) {
            let mut runtime = Builder::new_current_thread();
            runtime
                .enable_io()
                .enable_time()
                .max_blocking_threads(FILE_THREADS);
            let runtime = Home::prepare(&mut runtime).build()?;
            let io = IoThread::of(runtime.handle().clone());
            let load = io.load.clone();
            all.io.threads.push(io);
            all.io.homes.push(Home::new(runtime.handle().clone()));
            let ends = ends.clone();
            let thread = std::thread::Builder::new().name(format!("io-{index}"));
            all.handles.push(thread.spawn(move || {
                runtime.block_on(ends.run_until_cancelled(load.give_back()));
                // File work that hangs must not hold up the end.
                runtime.shutdown_background();
            })?);
        }
        Ok(all)
    }

    /// Good for as long as the threads are.
    pub const fn io(&self) -> &Io {
        &self.io
    }
}

impl Io {
    pub fn threads(&self) -> &[IoThread] {
        &self.threads
    }

    /// For pools: where connections of workers live.
    pub fn homes(&self) -> Vec<Home> {
        self.homes.clone()
    }
}

impl Drop for IoThreads {
    fn drop(&mut self) {
        self.ends.cancel();
        for handle in self.handles.drain(..) {
            _ = handle.join(); // a panic there was reported when it happened
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::timeout;

    use super::*;

    /// Whether memory would be given back now.
    async fn is_fallen(thread: &IoThread) -> bool {
        let fallen = timeout(Duration::ZERO, thread.load.fallen.notified());
        fallen.await.is_ok()
    }

    #[tokio::test(start_paused = true)]
    async fn memory_is_given_back_when_half_of_many_connections_are_gone() {
        let thread = IoThread::of(Handle::current());
        for _ in 0..MANY {
            thread.entered();
        }
        for _ in 1..MANY / 2 {
            thread.left();
        }
        assert!(!is_fallen(&thread).await, "more than half are there");
        thread.left();
        assert_eq!(thread.connections(), MANY / 2);
        assert!(is_fallen(&thread).await);
        for _ in 0..MANY / 2 {
            thread.left();
        }
        assert!(!is_fallen(&thread).await, "what is left is few");
        assert_eq!(thread.connections(), 0);
    }
}
