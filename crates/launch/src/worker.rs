//! The process of a worker.

use std::io;
use std::time::Duration;

use pronghorn_base::BoxFuture;
use pronghorn_pool::transport::{StackLayout, Watched};
use pronghorn_process::{Exit, Overtaking, Process, Signal};

use crate::output::{Output, Readers};
use crate::php::stack;

/// A worker's process with its output.
pub(crate) struct RunningWorker {
    /// While it boots, and before what it belongs to.
    pub(crate) overtaking: Option<Overtaking>,
    pub(crate) process: Process,
    pub(crate) deadline_signal: Option<i32>,
    /// The number of its zygote.
    pub(crate) forked_by: Option<u32>,
    pub(crate) output: Output,
    pub(crate) readers: Readers,
    pub(crate) exit: Option<Exit>,
}

impl RunningWorker {
    pub(crate) fn new(pool: &str, process: Process) -> Self {
        Self {
            overtaking: None,
            output: Output::new(pool, process.pid()),
            process,
            deadline_signal: None,
            forked_by: None,
            readers: Readers::default(),
            exit: None,
        }
    }

    /// Waits for the end of its process, and no more.
    pub(crate) async fn end(&mut self) -> Exit {
        match self.exit {
            Some(exit) => exit,
            None => *self.exit.insert(wait_for_exit(&mut self.process).await),
        }
    }
}

impl Watched for RunningWorker {
    fn pid(&self) -> u32 {
        self.process.pid()
    }

    fn wait(&mut self) -> BoxFuture<'_, Exit> {
        Box::pin(async {
            let exit = self.end().await;
            self.readers.finish().await;
            exit
        })
    }

    fn signal(&self, signal: Signal) {
        match signal {
            Signal::Terminate => self.process.signal(signal),
            Signal::Kill => self.process.kill_group(),
        }
    }

    fn interrupt(&self, call: u32) {
        if let Some(signal) = self.deadline_signal {
            self.process.signal_with(signal, call);
        }
    }

    fn forked_by(&self) -> Option<u32> {
        self.forked_by
    }

    fn stack(&self, layout: &StackLayout) -> io::Result<Vec<String>> {
        stack::read(self.pid(), layout)
    }

    fn last_words(&self) -> Vec<String> {
        self.output.last_words().lines()
    }

    fn peak_memory(&self) -> Option<u64> {
        self.process.peak_memory()
    }

    fn cpu(&self) -> Option<Duration> {
        self.process.cpu()
    }
}

pub(crate) async fn wait_for_exit(process: &mut Process) -> Exit {
    match process.wait().await {
        Ok(exit) => exit,
        // The kernel has lost it, which can't happen; there is no process to wait for.
        Err(error) => {
            tracing::error!(target: "server", pid = process.pid(), "cannot wait for a worker: {error}");
            Exit::Code(-1)
        }
    }
}
