//! What is written of a request when its response is out, and the number by which it can be named.

use pronghorn_base::micros;
use pronghorn_config::RequestMask;
use pronghorn_serve::{Request, Sent, Split, request_number};

use crate::settings::DEFAULT_POOL;
use crate::trace::RequestTrace;

/// Where a request went.
#[derive(Debug)]
pub(crate) struct Reached<'a> {
    pub(crate) pool: &'a str,
    /// As the application calls it, or a pattern that its path was found to have.
    pub(crate) route: Option<&'a str>,
    /// Of its body.
    pub(crate) read_bytes: u64,
}

/// Whether anybody would see the record of a request that was answered so.
pub(crate) fn is_wanted(status: u16) -> bool {
    match status {
        ..500 => tracing::enabled!(target: "http", tracing::Level::INFO),
        _ => tracing::enabled!(target: "http", tracing::Level::WARN),
    }
}

/// Writes the log record of a request that reached PHP.
///
/// Message, names and order of the fields are RoadRunner's: Octane reads them. `elapsed` is in
/// whole milliseconds there, so `elapsed_us` stands beside it. RoadRunner has one pool; the name of
/// any but the default one comes last, and so does a number that the server gave the request.
/// `elapsed` hides in which part of it the time went: the parts stand behind it. With
/// `details` it has the fields of `http.access_logs`.
pub(crate) fn write(request: &Request, reached: &Reached<'_>, details: bool, sent: &Sent) {
    let &Sent {
        status,
        bytes: write_bytes,
        split,
        ..
    } = sent;
    let Told {
        read_us,
        queue_us,
        php_us,
        write_us,
        php_cpu_us,
        php_blocked_us,
        pid,
        worker_call,
        retried,
    } = Told::of(split);
    let target = request.shown_target();
    let start = request.accepted_us.saturating_mul(1000);
    let elapsed_us = micros(sent.elapsed);
    let elapsed = elapsed_us / 1000;
    let &Reached {
        pool,
        route,
        read_bytes,
    } = reached;
    let pool = Some(pool).filter(|name| *name != DEFAULT_POOL);
    let request_id = request.id.as_deref();
    let trace_id = RequestTrace::of(request).map(RequestTrace::id);
    let trace_id = trace_id.as_deref();
    let (method, remote_address) = (request.head.method(), request.peer.shown_address());
    // A failure of the server or the application is a warning; each level is a place of its own for
    // `tracing`. In brackets stands what a record with details has besides.
    macro_rules! record {
        ($level:ident, $message:literal, [$($asked:tt)*], [$($started:tt)*]) => {
            tracing::$level!(
                target: "http", status, method, URI = target, URL = target, remote_address, $($asked)* read_bytes,
                write_bytes, start, $($started)* elapsed, elapsed_us, read_us, queue_us, php_us, write_us, php_cpu_us,
                php_blocked_us, pid, worker_call, retried, pool, route, request_id, trace_id, $message
            )
        };
        ($($what:tt)*) => {
            if status < 500 {
                record!(info, $($what)*);
            } else {
                record!(warn, $($what)*);
            }
        };
    }
    if !details {
        record! {"http log", [], []}
        return;
    }
    let field = |name| String::from_utf8_lossy(request.head.fields().get(name).unwrap_or_default());
    let query = target.split_once('?').map_or("", |(_, query)| query);
    record! {
        "http access log",
        [
            query, content_len = request.head.body_len().unwrap_or(read_bytes), host = request.head.authority(),
            user_agent = &*field("user-agent"), referer = RequestMask::default().target(&field("referer")),
        ],
        [request_time = start,]
    }
}

/// What a record tells of the time, in microseconds, and of the worker. What is not known is left
/// out.
#[derive(Default)]
pub(crate) struct Told {
    pub(crate) read_us: Option<u64>,
    pub(crate) queue_us: Option<u64>,
    pub(crate) php_us: Option<u64>,
    pub(crate) write_us: Option<u64>,
    pub(crate) php_cpu_us: Option<u64>,
    pub(crate) php_blocked_us: Option<u64>,
    pub(crate) pid: Option<u32>,
    /// How many the worker was given, this one included: a first one finds cold caches.
    pub(crate) worker_call: Option<u64>,
    /// Another worker had it before.
    pub(crate) retried: Option<bool>,
}

impl Told {
    pub(crate) fn of(split: Option<Split>) -> Self {
        let Some(split) = split else {
            return Self::default();
        };
        let Split {
            spent, answered_by, ..
        } = split;
        Self {
            read_us: Some(micros(split.read)),
            queue_us: Some(micros(split.queue)),
            php_us: split.worker.map(micros),
            write_us: Some(micros(split.write)),
            php_cpu_us: spent.map(|spent| micros(spent.cpu)),
            php_blocked_us: spent.map(|spent| micros(spent.blocked)),
            pid: answered_by.map(|worker| worker.pid).filter(|pid| *pid != 0),
            worker_call: answered_by.map(|worker| worker.nth),
            retried: answered_by
                .map(|worker| worker.is_retry)
                .filter(|retry| *retry),
        }
    }
}

/// The number that the server gave a request, else the client's own if it sent one, else a new one.
pub(crate) fn request_id(request: &Request) -> Box<str> {
    known_id(request).unwrap_or_else(new_request_id)
}

/// The number that a request has by now.
pub(crate) fn known_id(request: &Request) -> Option<Box<str>> {
    let given = request.id.clone();
    given.or_else(|| request_id_in(request, "x-request-id"))
}

/// The number in this field, if it can be one.
pub(crate) fn request_id_in(request: &Request, field: &str) -> Option<Box<str>> {
    request.head.fields().get(field).and_then(request_number)
}

pub(crate) fn new_request_id() -> Box<str> {
    format!("{:016x}", fastrand::u64(..)).into()
}
