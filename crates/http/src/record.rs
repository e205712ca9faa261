//! The one log record of a request that reached PHP.

use std::sync::Arc;
use std::time::SystemTime;

use tokio::time::Instant;

use crate::message::Request;

/// What a record needs of its request, kept until the response is out.
///
/// Names and order of the fields are RoadRunner's: Octane reads them.
#[derive(Debug)]
pub struct Record {
    request: Arc<Request>,
    read_bytes: u64,
}

impl Record {
    /// `None` when nobody would see it.
    pub(crate) fn of(request: &Arc<Request>, read_bytes: u64) -> Option<Box<Self>> {
        tracing::enabled!(target: "http", tracing::Level::INFO).then(|| {
            Box::new(Self {
                request: request.clone(),
                read_bytes,
            })
        })
    }

    pub(crate) fn write(&self, status: u16, write_bytes: u64) {
        let request = &self.request;
        let elapsed = request
            .accepted
            .saturating_duration_since(request.accepted)
            .max(request.accepted.elapsed());
        tracing::info!(
            target: "http",
            status,
            method = request.head.method(),
            URI = request.target(),
            URL = request.target(),
            remote_address = %request.peer.address,
            read_bytes = self.read_bytes,
            write_bytes,
            start = request.accepted_us * 1000,
            elapsed = u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX),
            elapsed_us = u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX),
            "http log"
        );
    }
}

/// The same moment on the clock that tells dates.
pub(crate) fn epoch_us(moment: Instant) -> u64 {
    let now = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    let then = now.saturating_sub(moment.elapsed());
    u64::try_from(then.as_micros()).unwrap_or(u64::MAX)
}
