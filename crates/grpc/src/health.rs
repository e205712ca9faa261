//! `grpc.health.v1.Health`: whether the workers answer.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use pronghorn_grpc_wire::{Code, Messages, Reply, Status, Streamed};
use pronghorn_workers::PoolSet;
use prost::Message;
use tokio::time::{Sleep, sleep};
use tokio_util::sync::CancellationToken;

/// The pause after which a watcher looks again.
const LOOK: Duration = Duration::from_millis(250);

const SERVING: i32 = 1;
const NOT_SERVING: i32 = 2;

/// Whether the service takes calls.
#[derive(Clone, Debug)]
pub(crate) struct ServingState {
    pools: PoolSet,
    /// Set by the service: it is open, and no reload is under way.
    takes_calls: Arc<AtomicBool>,
    /// Cancelled when the server begins to stop.
    stopping: CancellationToken,
    /// Cancelled when calls have had their time after that.
    cut: CancellationToken,
}

/// The end of calls that a stop does not wait for any longer.
pub(crate) fn stopped() -> Status {
    Status::new(Code::Unavailable, "the server is stopping")
}

#[derive(Clone, PartialEq, Eq, Message)]
struct CheckResponse {
    #[prost(int32, tag = "1")]
    status: i32,
}

#[derive(Clone, PartialEq, Eq, Message)]
struct ListResponse {
    #[prost(btree_map = "string, message", tag = "1")]
    statuses: std::collections::BTreeMap<String, CheckResponse>,
}

impl ServingState {
    pub(crate) fn new(pools: PoolSet, stopping: CancellationToken) -> Self {
        Self {
            pools,
            takes_calls: Arc::default(),
            stopping,
            cut: CancellationToken::new(),
        }
    }

    /// Cancelled when calls have to end: each ends with [`stopped`].
    pub(crate) fn cut(&self) -> &CancellationToken {
        &self.cut
    }

    /// Cancelled when the server begins to stop: streams of its own end then.
    pub(crate) fn stopping(&self) -> &CancellationToken {
        &self.stopping
    }

    pub(crate) fn set(&self, takes_calls: bool) {
        self.takes_calls.store(takes_calls, Ordering::Relaxed);
    }

    fn status(&self) -> i32 {
        let is_ready = || self.pools.iter().all(|pool| pool.ready().is_ok());
        let takes_calls = self.takes_calls.load(Ordering::Relaxed);
        if takes_calls && !self.stopping.is_cancelled() && is_ready() {
            SERVING
        } else {
            NOT_SERVING
        }
    }

    /// Answers a method, whatever service it asks after: they have one state, as in RoadRunner.
    pub(crate) fn answer<'a>(
        &self,
        method: &str,
        services: impl Iterator<Item = &'a str>,
    ) -> Reply {
        let response = |status| CheckResponse { status };
        match method {
            "Check" => Reply::message(response(self.status()).encode_to_vec()),
            "List" => {
                let status = self.status();
                let names = services.chain(["", "grpc"]);
                let statuses = names
                    .map(|name| (name.to_owned(), response(status)))
                    .collect();
                Reply::message(ListResponse { statuses }.encode_to_vec())
            }
            "Watch" => Reply::stream(Watch {
                state: self.clone(),
                told: None,
                sleep: Box::pin(sleep(Duration::ZERO)),
            }),
            other => {
                let text = format!(
                    "unknown method {other} for service {}",
                    crate::table::HEALTH
                );
                Reply::ended(Status::new(Code::Unimplemented, text))
            }
        }
    }
}

/// Tells changes, the first state at once.
#[derive(Debug)]
struct Watch {
    state: ServingState,
    told: Option<i32>,
    sleep: Pin<Box<Sleep>>,
}

impl Streamed for Watch {
    fn is_news(&self) -> bool {
        true
    }

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Messages> {
        loop {
            let status = self.state.status();
            if self.told != Some(status) {
                self.told = Some(status);
                let message = CheckResponse { status }.encode_to_vec();
                return Poll::Ready(Messages::Message(message.into()));
            }
            if self.state.stopping.is_cancelled() {
                // A stop would wait for it.
                return Poll::Ready(Messages::End(stopped().into()));
            }
            std::task::ready!(self.sleep.as_mut().poll(cx));
            self.sleep = Box::pin(sleep(LOOK));
        }
    }
}
