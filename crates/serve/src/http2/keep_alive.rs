//! Whether the client is still there: one that says nothing for long is asked.

use std::task::{Context, Poll};
use std::time::Duration;

use h2::{Ping, PingPong};
use tokio::time::Instant;

/// Asks by PING.
pub(super) struct KeepAlive {
    /// After how long without a sign, and how long the answer may take.
    times: Option<(Duration, Duration)>,
    pings: Option<PingPong>,
    /// The last sign of life, or when it began.
    heard: Instant,
    /// Bytes that had come by then.
    read: u64,
    asked: Option<Instant>,
}

/// The outcome of a look.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Life {
    Sign,
    None,
}

/// Connections that began together, after a restart for instance, do not end together.
pub(super) fn jittered(age: Duration) -> Duration {
    use std::hash::{BuildHasher as _, RandomState};
    // From 0 to 10 %, as grpc-go has it.
    let part = u32::try_from(RandomState::new().hash_one(0_u8) % 100).unwrap_or_default();
    age + age / 1000 * part
}

impl KeepAlive {
    pub(super) fn new(
        times: Option<(Duration, Duration)>,
        pings: Option<PingPong>,
        now: Instant,
    ) -> Self {
        Self {
            times,
            pings,
            heard: now,
            read: 0,
            asked: None,
        }
    }

    /// Looks, and asks where it is time to. `read` are the bytes that have come in all.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>, read: u64) -> Life {
        let (Some((after, within)), Some(pings)) = (self.times, &mut self.pings) else {
            return Life::Sign;
        };
        let now = Instant::now();
        if read != self.read {
            (self.read, self.heard) = (read, now);
        }
        if let Some(asked) = self.asked {
            match pings.poll_pong(cx) {
                Poll::Ready(Ok(_)) => {
                    self.asked = None;
                    self.heard = now;
                }
                Poll::Ready(Err(_)) => return Life::None,
                Poll::Pending if now >= asked.max(self.heard) + within => return Life::None,
                Poll::Pending => {}
            }
        } else if now >= self.heard + after && pings.send_ping(Ping::opaque()).is_ok() {
            self.asked = Some(now);
            // The waker is to be there when the answer comes.
            _ = pings.poll_pong(cx);
        }
        Life::Sign
    }

    /// When to look again.
    pub(super) fn next(&self) -> Option<Instant> {
        let (after, within) = self.times?;
        self.pings.as_ref()?;
        Some(match self.asked {
            Some(asked) => asked.max(self.heard) + within,
            None => self.heard + after,
        })
    }
}
