//! What systemd is told: that the server is up, goes over to another process, reloads, stops, and
//! that it lives.

use std::convert::Infallible;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::Path;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

/// Whoever started this process and wants to know how it is; nobody, mostly.
#[derive(Debug)]
pub struct Manager {
    socket: Option<(UnixDatagram, SocketAddr)>,
    /// How often it wants to hear that the server lives.
    heartbeat: Option<Duration>,
    /// Whether this process is the one that it listens to: not while another one serves.
    is_main: CancellationToken,
}

impl Manager {
    /// Of this process, by `NOTIFY_SOCKET`, `WATCHDOG_USEC` and `WATCHDOG_PID`. A written
    /// `watchdog_sec` wins over the unit's.
    pub fn of_this_process(watchdog: Option<Duration>) -> Self {
        let variable = |name| std::env::var(name).ok();
        let socket = std::env::var_os("NOTIFY_SOCKET").and_then(|address| {
            connect(address.as_bytes())
                .inspect_err(|error| {
                    tracing::warn!(target: "server", "systemd can't be notified: {error}");
                })
                .ok()
        });
        let units = variable("WATCHDOG_USEC")
            .and_then(|microseconds| microseconds.parse().ok())
            // Half of the limit, as systemd advises.
            .map(|limit| Duration::from_micros(limit) / 2);
        let is_main = CancellationToken::new();
        match variable("WATCHDOG_PID") {
            Some(pid) if pid == std::process::id().to_string() => is_main.cancel(),
            // A child of the one that is meant.
            Some(_) => {
                return Self {
                    socket,
                    heartbeat: watchdog,
                    is_main,
                };
            }
            None => {}
        }
        Self {
            socket,
            heartbeat: watchdog.or(units),
            is_main,
        }
    }

    pub fn ready(&self) {
        self.is_main.cancel();
        self.tell("READY=1\nSTATUS=serving");
    }

    /// Until the next [`ready`](Self::ready).
    pub fn reloading(&self) {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        let microseconds = now.tv_sec * 1_000_000 + now.tv_nsec / 1_000;
        self.tell(&format!(
            "RELOADING=1\nMONOTONIC_USEC={microseconds}\nSTATUS=reloading"
        ));
    }

    /// Another process is the server from now on, and is ready.
    pub fn handed_to(&self, pid: u32) {
        self.tell(&format!("MAINPID={pid}\nREADY=1\nSTATUS=serving"));
    }

    pub fn stopping(&self) {
        self.tell("STOPPING=1\nSTATUS=stopping");
    }

    /// Never returns. Says from time to time that the thread which it runs on is not stuck.
    pub async fn beat(&self) -> Infallible {
        let Some(heartbeat) = self.heartbeat.filter(|_| self.socket.is_some()) else {
            return std::future::pending().await;
        };
        self.is_main.cancelled().await;
        let mut ticks = tokio::time::interval(heartbeat.max(SHORTEST));
        loop {
            ticks.tick().await;
            self.tell("WATCHDOG=1");
        }
    }

    fn tell(&self, text: &str) {
        if let Some((socket, address)) = &self.socket {
            // Whoever doesn't read is not waited for.
            _ = socket.send_to_addr(text.as_bytes(), address);
        }
    }
}

/// More often makes nobody safer.
const SHORTEST: Duration = Duration::from_millis(100);

/// A path, or a name without a file behind `@`.
fn connect(address: &[u8]) -> io::Result<(UnixDatagram, SocketAddr)> {
    let socket = UnixDatagram::unbound()?;
    socket.set_nonblocking(true)?;
    let address = match address.strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(Path::new(std::ffi::OsStr::from_bytes(address)))?,
    };
    Ok((socket, address))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_process_is_heard_once_it_is_the_one_that_serves() {
        let name = format!("pronghorn-notify-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let systemd = UnixDatagram::bind_addr(&address).unwrap();
        systemd.set_nonblocking(true).unwrap();
        let hear = || {
            let mut text = [0; 200];
            let length = systemd.recv(&mut text).ok()?;
            Some(String::from_utf8_lossy(&text[..length]).into_owned())
        };
        let manager = Manager {
            socket: Some(connect(format!("@{name}").as_bytes()).unwrap()),
            heartbeat: Some(Duration::from_secs(2)),
            is_main: CancellationToken::new(),
        };
        let listen = async {
            tokio::time::sleep(Duration::from_secs(10)).await;
            assert_eq!(hear(), None);
            manager.ready();
            assert_eq!(hear().as_deref(), Some("READY=1\nSTATUS=serving"));
            tokio::time::sleep(Duration::from_secs(3)).await;
            assert_eq!([hear(), hear(), hear()].into_iter().flatten().count(), 2);
            manager.reloading();
            assert!(hear().unwrap().contains("RELOADING=1\nMONOTONIC_USEC="));
            manager.handed_to(7);
            assert!(hear().unwrap().starts_with("MAINPID=7\nREADY=1"));
        };
        tokio::select! {
            never = manager.beat() => match never {},
            () = listen => {}
        }
    }
}
