//! The limit on open files: all that the system allows for the server, what was there before for
//! its children.

use std::sync::OnceLock;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The limit that the server was started with, once it was raised.
static BEFORE: OnceLock<Rlimit> = OnceLock::new();

/// Raises the limit to the most that is allowed, and says how many files may be open now.
pub fn raise() -> u64 {
    let now = getrlimit(Resource::Nofile);
    let before = *BEFORE.get_or_init(|| now);
    let raised = Rlimit {
        current: before.maximum,
        maximum: before.maximum,
    };
    // Refused only to those who are at their limit already.
    _ = setrlimit(Resource::Nofile, raised);
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// Puts the limit back, in a child before exec: programs that use select(2) can't take numbers
/// above 1,023.
pub(crate) fn restore() {
    if let Some(before) = BEFORE.get() {
        _ = setrlimit(Resource::Nofile, *before);
    }
}
