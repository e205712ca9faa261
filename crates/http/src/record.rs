//! What is written of a request when its response is out, and the number by which it can be named.

use std::sync::Arc;
use std::time::SystemTime;

use pronghorn_base::micros;
use tokio::time::Instant;

use crate::addresses::ConnectionPermit;
use crate::bridge::HttpCall;
use crate::message::Request;
use crate::middleware::Entry;
use crate::settings::DEFAULT_POOL;

/// What is written of a request when its response is out.
#[derive(Debug, Default)]
pub struct Record {
    pub(crate) call: Option<CallRecord>,
    pub(crate) access: Option<Entry>,
    /// What the client holds until its response is out.
    pub(crate) permit: Option<ConnectionPermit>,
}

/// The log record of a request that reached PHP.
///
/// Message, names and order of the fields are RoadRunner's: Octane reads them. `elapsed` is in whole milliseconds there, so
/// `elapsed_us` stands beside it. RoadRunner has one pool; the name of any but the default one comes last, and so does a
/// number that the server gave the request.
#[derive(Debug)]
pub(crate) struct CallRecord {
    call: Arc<HttpCall>,
    read_bytes: u64,
}

impl Record {
    /// Of a call; `None` when nobody would see it.
    pub(crate) fn of(call: &Arc<HttpCall>, read_bytes: u64) -> Option<Box<Self>> {
        tracing::enabled!(target: "http", tracing::Level::INFO).then(|| {
            let call = CallRecord {
                call: call.clone(),
                read_bytes,
            };
            Box::new(Self {
                call: Some(call),
                ..Self::default()
            })
        })
    }

    /// What came of a body that was read while the worker had the call.
    pub(crate) fn set_read_bytes(&mut self, read_bytes: u64) {
        if let Some(call) = &mut self.call {
            call.read_bytes = read_bytes;
        }
    }

    /// `bytes` are those of the body that the client took.
    pub(crate) fn write(&self, status: u16, bytes: u64) {
        if let Some(call) = &self.call {
            call.write(status, bytes);
        }
        if let Some(entry) = &self.access {
            entry.write(status, bytes);
        }
    }
}

impl CallRecord {
    fn write(&self, status: u16, write_bytes: u64) {
        let Self { call, read_bytes } = self;
        let request = &call.request;
        let target = request.target();
        let start = request.accepted_us.saturating_mul(1000);
        let elapsed_us = micros(request.accepted.elapsed());
        let elapsed = elapsed_us / 1000;
        let pool = Some(call.handler.pool.name()).filter(|name| *name != DEFAULT_POOL);
        let request_id = request.id.as_deref();
        let (method, remote_address) = (request.head.method(), request.peer.address);
        if !call.handler.access_logs {
            tracing::info!(
                target: "http", status, method, URI = target, URL = target, %remote_address, read_bytes, write_bytes,
                start, elapsed, elapsed_us, pool, request_id, "http log"
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
            start, request_time = start, elapsed, elapsed_us, pool, request_id, "http access log"
        );
    }
}

/// The number that the server gave a request, else the client's own if it sent one, else a new one.
pub(crate) fn request_id(request: &Request) -> Box<str> {
    match &request.id {
        Some(id) => id.clone(),
        None => request_id_in(request, "x-request-id").unwrap_or_else(new_request_id),
    }
}

/// The number in this field, if it can be one.
pub(crate) fn request_id_in(request: &Request, field: &str) -> Option<Box<str>> {
    /// Longer ones are no numbers but an attempt at something.
    const LONGEST: usize = 128;
    let fits = |id: &&[u8]| {
        !id.is_empty()
            && id.len() <= LONGEST
            && id
                .iter()
                .all(|byte| byte.is_ascii_alphanumeric() || b"-_.:".contains(byte))
    };
    let id = request.head.fields().get(field).filter(fits)?;
    Some(String::from_utf8_lossy(id).into())
}

pub(crate) fn new_request_id() -> Box<str> {
    format!("{:016x}", fastrand::u64(..)).into()
}

/// The same moment on the clock that tells dates.
pub(crate) fn epoch_us(moment: Instant) -> u64 {
    let now = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    let then = now.saturating_sub(moment.elapsed());
    micros(then)
}
