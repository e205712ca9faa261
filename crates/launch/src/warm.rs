//! Waiting for workers that warm up.

use std::time::Duration;

use pronghorn_pool::transport::{Cold, Inbox, Order, Transport as _};
use pronghorn_process::Exit;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use crate::error::BootCause;

/// Waits for a worker that is warming up, until it ends or its time is over.
pub(crate) async fn until_warm<C: 'static>(
    mut warming: JoinSet<Result<C, Cold>>,
    inbox: &Inbox,
    end: impl Future<Output = Exit>,
    until: Instant,
    limit: Duration,
) -> Result<C, BootCause> {
    let warm = tokio::select! {
        biased;
        Some(warm) = warming.join_next() => {
            let warm = warm.map_err(|error| BootCause::System(error.into()))?;
            warm.map_err(|cold| cold.why)
        }
        exit = end => {
            inbox.order(Order::Ended(exit));
            // An answer, which may have come just before it, says more about an end than the end
            // does.
            match warming.join_next().await {
                Some(Ok(Err(cold))) if cold.answered => Err(cold.why),
                _ => Err(format!("the worker ended with {exit}")),
            }
        }
        () = sleep_until(until) => {
            Err(format!("no answer within `boot_timeout`, {limit:?} from its start"))
        }
    };
    warm.map_err(BootCause::WarmUp)
}
