//! What end-to-end tests stand on: a folder with an application, a running server, a client that
//! sends exactly the bytes it is given.
//!
//! Everything that waits has a deadline and says what it waited for. When a [`Server`] is gone,
//! nothing of it may be left: its processes, sockets and spool files are looked for, and what is
//! found fails the test.

#![forbid(unsafe_code)]
#![expect(
    clippy::panic,
    clippy::print_stderr,
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "made for tests only: they run in real time, panic and print"
)]

mod client;
mod engine;
mod load;
mod server;
mod site;

pub use client::{Connection, Response};
pub use engine::{Certificates, Engine};
pub use load::Load;
pub use server::{Ended, Server, binary, built};
pub use site::Site;

use std::net::{SocketAddr, TcpListener};
use std::time::{Duration, Instant};

/// Longer than anything takes on a slow machine that does other things as well.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// An address that nobody listens on. Somebody may until it is used; the system hands out others
/// first.
///
/// # Panics
///
/// When there is none.
pub fn free_address() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    listener
        .local_addr()
        .expect("a bound socket has an address")
}

/// Looks until `found` finds something.
///
/// # Panics
///
/// When it doesn't within [`PATIENCE`].
pub fn wait_for<T>(what: &str, mut found: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = found() {
            return found;
        }
        assert!(start.elapsed() < PATIENCE, "waited {PATIENCE:?} for {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// How long something takes.
pub fn time<T>(what: impl FnOnce() -> T) -> (T, Duration) {
    let start = Instant::now();
    (what(), start.elapsed())
}
