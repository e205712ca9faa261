//! The identity of a request, by which the pool recognises it after a worker died of it.

use std::hash::{BuildHasher, Hash, Hasher, RandomState};
use std::sync::LazyLock;

use pronghorn_pool::Identity;
use pronghorn_serve::{Household, Request};
use pronghorn_trace::names_trace;

use crate::body::RequestBody;

/// A longer value is no number.
const LONGEST_NUMBER: usize = 128;

/// Body files count by their lengths: reading them would block this thread.
///
/// All fields count, with those that belong to the connection: PHP sees them, so they can be what
/// kills it. `X-Forwarded-For` and its like do, too.
pub(crate) fn identity(request: &Request, body: &RequestBody) -> Identity {
    /// Its keys are drawn at the start, so that nobody can make requests that look the same.
    static KEYS: LazyLock<RandomState> = LazyLock::new(RandomState::new);
    let mut hasher = KEYS.build_hasher();
    let Request { head, peer, .. } = request;
    (head.method(), head.authority(), request.target()).hash(&mut hasher);
    body.identify(&mut hasher);
    let page = hasher.finish();
    (request.protocol().name(), peer.tls).hash(&mut hasher);
    for (name, value) in head.fields().iter() {
        if !is_number(request, name, value) {
            (name, value).hash(&mut hasher);
        }
    }
    Identity {
        request: hasher.finish(),
        page,
        client: KEYS.hash_one(peer.address.ip().map(Household::of)),
    }
}

/// Whether a field is a number of this one request, which a proxy or this server gave to it: the
/// same request has another one the next time. Of other text a client could hide behind the name.
fn is_number(request: &Request, name: &[u8], value: &[u8]) -> bool {
    const NAMES: [&[u8]; 4] = [
        b"x-request-id",
        b"x-correlation-id",
        b"x-amzn-trace-id",
        b"cf-ray",
    ];
    let id = request.id.as_deref();
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.:=;".contains(byte);
    (names_trace(name) || NAMES.contains(&name) || id.is_some_and(|id| id.as_bytes() == value))
        && value.len() <= LONGEST_NUMBER
        && value.iter().all(is_plain)
}
