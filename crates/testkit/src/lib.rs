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
mod directory;
mod engine;
mod load;
mod php;
mod records;
mod redis;
mod server;
mod site;

pub use client::{Connection, Response};
pub use directory::Directory;
pub use engine::{Certificates, Engine};
pub use load::Load;
pub use php::{php_command, php_configuration};
pub use records::Records;
pub use server::{Ended, Server, binary, built};
pub use site::Site;

use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Longer than anything takes on a slow machine that does other things as well.
pub const PATIENCE: Duration = Duration::from_mins(1);

/// An address on loopback where nobody listens.
///
/// It is below the ports that the kernel gives to whoever asks for any, so that nobody gets it
/// until it is used; each is given once.
///
/// # Panics
///
/// When all are in use.
pub fn free_address() -> SocketAddr {
    const FIRST: u32 = 10_000;
    const PORTS: u32 = 22_000;
    static GIVEN: AtomicU32 = AtomicU32::new(0);
    // Processes of tests that run at once begin elsewhere.
    let begin = std::process::id().wrapping_mul(977);
    (0..PORTS)
        .find_map(|_| {
            let number = begin.wrapping_add(GIVEN.fetch_add(1, Relaxed)) % PORTS;
            let port = u16::try_from(FIRST + number).ok()?;
            TcpListener::bind(("127.0.0.1", port))
                .ok()?
                .local_addr()
                .ok()
        })
        .expect("a port is free")
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
