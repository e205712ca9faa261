//! A slot without a worker: each call starts a program of its own (CGI), whose end is the end of
//! the call.
//!
//! The slot is entered by a stand-in for a process, so that pool supervisor and slot supervisor
//! treat it as any other. One task per slot owns the program under way: its pipes, its end, and its
//! process group, which does not outlive a call that was given up.

use std::ffi::OsString;
use std::sync::Arc;

use pronghorn_base::{BoxFuture, Timer};
use pronghorn_process::{Credentials, Exit, Signal, Spawner};
use tokio::runtime::Handle;
use tokio::sync::watch;

use pronghorn_pool::SlotId;
use pronghorn_pool::Spool;
use pronghorn_pool::Via;
use pronghorn_pool::transport::Inbox;
use pronghorn_pool::transport::{LaunchError, Launched, Launcher, Pace, Watched, run};

mod runner;
mod running;
mod start;

use runner::CgiRunner;

/// Fills slots in which each call starts a program.
#[derive(Debug)]
pub struct ProgramLauncher {
    pub spawner: Spawner,
    /// What each finds in its environment beside what it is told of its request.
    pub environment: Vec<(OsString, OsString)>,
    /// Whom programs run as.
    pub user: Option<Credentials>,
    pub spool: Arc<Spool>,
    /// The threads that serve requests: each slot lives on one of them.
    pub homes: Vec<Handle>,
}

impl Launcher for ProgramLauncher {
    fn launch(&self, slot: SlotId, _: Pace) -> BoxFuture<'_, Result<Launched, LaunchError>> {
        let home = self.homes[slot % self.homes.len()].clone();
        let (spawner, user, spool) = (self.spawner.clone(), self.user.clone(), self.spool.clone());
        let environment = self.environment.clone();
        let end = Arc::new(watch::Sender::new(None));
        let stand_in = StandIn(end.clone());
        let launched = Launched {
            process: Box::new(stand_in),
            via: Via::Cgi,
            connect: Box::new(move |slot_handle| {
                let inbox = Arc::new(Inbox::default());
                let station = CgiRunner {
                    spawner,
                    environment,
                    user,
                    spool,
                    slot_handle,
                    inbox: inbox.clone(),
                    end,
                    under_way: None,
                    timer: Timer::default(),
                };
                // Owned by the slot's slot supervisor: it waits until the slot handle is left.
                home.spawn(run(station));
                inbox
            }),
        };
        Box::pin(async { Ok(launched) })
    }

    fn own_memory(&self, _: u32, _: u64) -> Option<u64> {
        None
    }
}

/// In place of the process that a slot otherwise has. Any signal ends it, and with it the program
/// under way.
pub(crate) struct StandIn(pub(crate) Arc<watch::Sender<Option<Exit>>>);

impl Watched for StandIn {
    /// No process has it.
    fn pid(&self) -> u32 {
        0
    }

    fn wait(&mut self) -> BoxFuture<'_, Exit> {
        Box::pin(async {
            let mut end = self.0.subscribe();
            let exit = end.wait_for(Option::is_some).await.ok();
            exit.and_then(|exit| *exit).unwrap_or(Exit::Code(0))
        })
    }

    fn signal(&self, signal: Signal) {
        let number = match signal {
            Signal::Terminate => 15,
            Signal::Kill => 9,
        };
        self.0.send_replace(Some(Exit::Signal(number)));
    }

    /// A program knows nothing of exceptions.
    fn interrupt(&self, _: u32) {}

    fn last_words(&self) -> Vec<String> {
        Vec::new()
    }

    fn peak_memory(&self) -> Option<u64> {
        None
    }
}

#[cfg(test)]
mod tests;
