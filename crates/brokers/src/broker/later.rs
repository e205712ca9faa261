//! Jobs that wait for longer than their broker can keep them back: they are in the server's store
//! until their time, and go to the broker then.

use std::sync::Mutex;
use std::time::Duration;

use pronghorn_base::lock;
use pronghorn_queue::{
    Delivery, Driver as _, DriverError, Embedded, Job, OpenPipelines, Settlement, Wake,
};
use pronghorn_store::Store;
use tokio::time::{Instant, sleep_until};

/// A job that its broker refuses is offered again after that.
const TRY_AGAIN: Duration = Duration::from_secs(60);

/// The jobs of one pipeline that wait.
pub(crate) struct LaterJobs {
    store: Embedded,
    wake: Wake,
    /// On its way to the broker: a connection that is lost leaves it here.
    current: Mutex<Option<Delivery>>,
}

impl LaterJobs {
    /// # Errors
    ///
    /// When the store does not answer.
    pub(crate) async fn open(
        pipeline: &str,
        open: &OpenPipelines,
        store: Store,
    ) -> Result<Self, DriverError> {
        let wake = Wake::default();
        // No name of a pipeline has such a sign.
        let name = format!("\u{1}{pipeline}");
        let store = open.open(&name, store).await?;
        store.tell(wake.clone());
        store.resume();
        Ok(Self {
            store,
            wake,
            current: Mutex::new(None),
        })
    }

    /// Keeps jobs until their time.
    pub(super) async fn keep(&self, jobs: Vec<Job>) -> Result<(), DriverError> {
        self.store.push(jobs).await
    }

    pub(super) async fn count(&self) -> Result<u64, DriverError> {
        let stat = self.store.stat().await?;
        Ok(stat.active + stat.delayed + stat.reserved)
    }

    /// Waits for a job whose time has come: the same one until it was handed over. Cancel safe.
    pub(super) async fn next(&self) -> Job {
        loop {
            let now = Instant::now();
            {
                let mut current = lock(&self.current);
                if current.is_none() {
                    *current = self.store.take(now);
                }
                if let Some(delivery) = &*current {
                    return Job::clone(&delivery.job);
                }
            }
            let due_comes = async {
                match self.store.next_due() {
                    Some(due) => sleep_until(due).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = self.wake.woken() => {}
                () = due_comes => {}
            }
        }
    }

    /// The broker has what [`next`](Self::next) gave, or does not want it now.
    pub(super) async fn handed_over(&self, has_it: bool) -> Result<(), DriverError> {
        let Some(ticket) = lock(&self.current).take().map(|delivery| delivery.ticket) else {
            return Ok(());
        };
        let settlement = if has_it {
            Settlement::Ack
        } else {
            Settlement::Nack { delay: TRY_AGAIN }
        };
        let settled = self.store.settle(ticket, settlement).await;
        if settled.is_err() {
            // The broker may have it twice.
            self.store.put_back(ticket);
        }
        settled
    }
}

impl Drop for LaterJobs {
    /// The pipeline may be open a second time, which goes on with it.
    fn drop(&mut self) {
        if let Some(delivery) = lock(&self.current).take() {
            self.store.put_back(delivery.ticket);
        }
    }
}
