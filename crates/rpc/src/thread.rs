//! The thread on which methods are carried out.
//!
//! Nothing else runs on it: whatever workers and callers ask for, workers are supervised, signals
//! heard and health checks answered meanwhile.

use std::io;
use std::thread::{Builder, JoinHandle};

use tokio::runtime::{self, Handle};
use tokio_util::sync::CancellationToken;

/// The thread, with its runtime. Dropped, it ends, and what is under way there is cut off.
#[derive(Debug)]
pub struct RpcThread {
    runtime: Handle,
    ends: CancellationToken,
    thread: Option<JoinHandle<()>>,
}

impl RpcThread {
    /// Starts it.
    ///
    /// # Errors
    ///
    /// When the system gives no thread, or no descriptors for one.
    pub fn start() -> io::Result<Self> {
        let runtime = runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let handle = runtime.handle().clone();
        let ends = CancellationToken::new();
        let ended = ends.clone();
        let thread = Builder::new().name("rpc".into()).spawn(move || {
            runtime.block_on(ended.cancelled());
            // Blocking work that hangs must not hold up the end.
            runtime.shutdown_background();
        })?;
        Ok(Self {
            runtime: handle,
            ends,
            thread: Some(thread),
        })
    }

    /// Good for as long as the thread is.
    pub const fn runtime(&self) -> &Handle {
        &self.runtime
    }
}

impl Drop for RpcThread {
    fn drop(&mut self) {
        self.ends.cancel();
        if let Some(thread) = self.thread.take() {
            _ = thread.join(); // a panic there was reported when it happened
        }
    }
}
