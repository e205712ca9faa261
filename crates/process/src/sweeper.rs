//! Kills what programs have left when they end.
//!
//! A look is at each process of the machine, and a thousand programs may end at once: all that end
//! during a look share the next one.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::thread;

use pronghorn_base::lock;
use tokio::sync::oneshot;

use crate::Mark;

/// Clones are the same one.
#[derive(Clone, Debug, Default)]
pub struct Sweeper(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    /// At most one for each program of the server.
    waiting: Vec<(Mark, oneshot::Sender<usize>)>,
    is_at_work: bool,
    #[cfg(test)]
    sweeps: usize,
}

impl Sweeper {
    /// Kills all processes that have this mark, beside this thread, and says how many those were.
    /// It does so, too, if nobody waits for the answer.
    pub fn sweep(&self, mark: Mark) -> oneshot::Receiver<usize> {
        let (done, killed) = oneshot::channel();
        let begins = {
            let mut state = lock(&self.0);
            state.waiting.push((mark, done));
            !std::mem::replace(&mut state.is_at_work, true)
        };
        if begins {
            let sweeper = self.clone();
            let thread = thread::Builder::new().name("sweeper".to_owned());
            if thread.spawn(move || sweeper.work()).is_err() {
                self.work(); // there are too many threads
            }
        }
        killed
    }

    fn work(&self) {
        loop {
            let batch = {
                let mut state = lock(&self.0);
                if state.waiting.is_empty() {
                    state.is_at_work = false;
                    return;
                }
                #[cfg(test)]
                {
                    state.sweeps += 1;
                }
                std::mem::take(&mut state.waiting)
            };
            let marks: HashSet<Mark> = batch.iter().map(|(mark, _)| *mark).collect();
            let killed = Mark::kill_all(&marks);
            for (mark, done) in batch {
                _ = done.send(killed.get(&mark).copied().unwrap_or_default()); // nobody waits for it
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_thousand_that_end_at_once_share_a_look() {
        let sweeper = Sweeper::default();
        let killed: Vec<_> = (0..1_000).map(|_| sweeper.sweep(Mark::new())).collect();
        for killed in killed {
            assert_eq!(killed.await, Ok(0));
        }
        let sweeps = lock(&sweeper.0).sweeps;
        assert!(sweeps < 20, "{sweeps}");
    }
}
