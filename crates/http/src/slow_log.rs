//! `slow` of a pool: a record for each request that took longer, with all that is known of why.

use std::time::Duration;

use pronghorn_base::Budget;
use pronghorn_pool::Look;
use pronghorn_serve::{Request, Sent};

use crate::record::{Reached, Told};
use crate::trace::RequestTrace;

/// Records in a second. When everything is slow, ten say why as well as a thousand.
const MOST_RECORDS: u32 = 10;

/// What is slow in one pool.
#[derive(Debug)]
pub struct SlowLog {
    limit: Duration,
    records: Budget,
}

impl SlowLog {
    pub(crate) const fn new(limit: Duration) -> Self {
        Self {
            limit,
            records: Budget::per_second(MOST_RECORDS),
        }
    }

    pub(crate) fn is_slow(&self, sent: &Sent) -> bool {
        sent.elapsed > self.limit
    }

    /// A slow response is out. `look` is there if PHP alone took so long.
    pub(crate) fn note(
        &self,
        request: &Request,
        reached: &Reached<'_>,
        look: Option<&Look>,
        sent: &Sent,
    ) {
        if !tracing::enabled!(target: "http", tracing::Level::WARN) {
            return;
        }
        let Some(left_out) = self.records.spend() else {
            return;
        };
        let left_out = Some(left_out).filter(|records| *records > 0);
        let told = Told::of(sent.split);
        let trace_id = RequestTrace::of(request).map(RequestTrace::id);
        let (stack, unreadable) = match look.map(|look| &look.stack) {
            Some(Ok(frames)) => (Some(frames.join("\n")), None),
            Some(Err(why)) => (None, Some(why.as_str())),
            None => (None, None),
        };
        tracing::warn!(
            target: "http", status = sent.status, method = request.head.method(), URI = request.shown_target(),
            remote_address = %request.peer.address, read_bytes = reached.read_bytes, write_bytes = sent.bytes,
            elapsed_us = pronghorn_base::micros(sent.elapsed), read_us = told.read_us, queue_us = told.queue_us,
            php_us = told.php_us, write_us = told.write_us, php_cpu_us = told.php_cpu_us,
            php_blocked_us = told.php_blocked_us, pid = told.pid, worker_call = told.worker_call, retried = told.retried,
            pool = reached.pool, route = reached.route, request_id = request.id.as_deref(), trace_id,
            memory_mb = look.and_then(|look| look.memory).map(|bytes| bytes >> 20), stack, unreadable, left_out,
            "slow request"
        );
    }
}
