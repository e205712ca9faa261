//! The one log record of a request that reached PHP, and the number by which an error can be named.

use std::sync::Arc;
use std::time::SystemTime;

use tokio::time::Instant;

use crate::bridge::HttpCall;
use crate::message::Request;
use crate::settings::DEFAULT_POOL;

/// What a record needs of its request, kept until the response is out.
///
/// Message, names and order of the fields are RoadRunner's: Octane reads them. `elapsed` is in whole milliseconds there, so
/// `elapsed_us` stands beside it. RoadRunner has one pool; the name of any but the default one comes last.
#[derive(Debug)]
pub struct Record {
    call: Arc<HttpCall>,
    read_bytes: u64,
}

impl Record {
    /// `None` when nobody would see it.
    pub(crate) fn of(call: &Arc<HttpCall>, read_bytes: u64) -> Option<Box<Self>> {
        tracing::enabled!(target: "http", tracing::Level::INFO).then(|| {
            Box::new(Self {
                call: call.clone(),
                read_bytes,
            })
        })
    }

    /// What came of a body that was read while the worker had the call.
    pub(crate) fn set_read_bytes(&mut self, read_bytes: u64) {
        self.read_bytes = read_bytes;
    }

    pub(crate) fn write(&self, status: u16, write_bytes: u64) {
        let Self { call, read_bytes } = self;
        let request = &call.request;
        let target = request.target();
        let start = request.accepted_us.saturating_mul(1000);
        let elapsed_us = u64::try_from(request.accepted.elapsed().as_micros()).unwrap_or(u64::MAX);
        let elapsed = elapsed_us / 1000;
        let pool = Some(call.handler.pool.name()).filter(|name| *name != DEFAULT_POOL);
        let (method, remote_address) = (request.head.method(), request.peer.address);
        if !call.handler.access_logs {
            tracing::info!(
                target: "http", status, method, URI = target, URL = target, %remote_address, read_bytes, write_bytes,
                start, elapsed, elapsed_us, pool, "http log"
            );
            return;
        }
        let field =
            |name| String::from_utf8_lossy(request.head.fields().get(name).unwrap_or_default());
        let query = String::from_utf8_lossy(request.head.query().unwrap_or_default());
        tracing::info!(
            target: "http", status, method, URI = target, URL = target, %remote_address, query = &*query,
            content_len = request.head.body_len().unwrap_or(*read_bytes), host = request.head.authority(),
            user_agent = &*field("user-agent"), referer = &*field("referer"), read_bytes, write_bytes,
            start, request_time = start, elapsed, elapsed_us, pool, "http access log"
        );
    }
}

/// The client's own number for its request if it sent one, else a new one.
pub(crate) fn request_id(request: &Request) -> String {
    /// Longer ones are no numbers but an attempt at something.
    const LONGEST: usize = 128;
    let fits = |id: &&[u8]| {
        !id.is_empty()
            && id.len() <= LONGEST
            && id
                .iter()
                .all(|byte| byte.is_ascii_alphanumeric() || b"-_.:".contains(byte))
    };
    match request.head.fields().get("x-request-id").filter(fits) {
        Some(id) => String::from_utf8_lossy(id).into_owned(),
        None => format!("{:016x}", fastrand::u64(..)),
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
