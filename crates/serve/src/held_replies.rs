//! Replies that wait for their client, whose rest nobody else keeps: in memory, then in files. For
//! connections that have several at a time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use bytes::Bytes;
use pronghorn_base::LogThrottle;
use pronghorn_pool::{Spool, SpoolClient, SpoolError, SpoolFile};

/// Bytes of all replies of a connection that may wait in memory until the client gives room for
/// them. The rest waits in files.
const HELD: usize = 1 << 20;

/// The replies of one connection.
#[derive(Debug, Default)]
pub(crate) struct HeldReplies {
    /// Bytes of replies in memory for which the client has given no room.
    held: AtomicUsize,
    /// Bytes of replies that wait in files.
    spilled: AtomicU64,
}

/// A reply in a file that waits for the client.
pub(crate) struct Spilled<'a> {
    replies: &'a HeldReplies,
    bytes: u64,
}

impl Drop for Spilled<'_> {
    fn drop(&mut self) {
        self.replies
            .spilled
            .fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// A reply in memory that waits for the client.
pub(crate) struct HeldReply<'a> {
    replies: &'a HeldReplies,
    bytes: usize,
}

impl Drop for HeldReply<'_> {
    fn drop(&mut self) {
        self.replies.held.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// A reply can't be stored: its client must not get more of it.
pub(crate) struct NotStored;

impl HeldReplies {
    /// Keeps so much of a reply in memory until that is dropped; `None` when the connection has as
    /// much there as it may.
    pub(crate) fn hold(&self, bytes: usize) -> Option<HeldReply<'_>> {
        let held = self.held.fetch_add(bytes, Ordering::Relaxed);
        let kept = HeldReply {
            replies: self,
            bytes,
        };
        (held + bytes <= HELD).then_some(kept)
    }

    /// Counts so much of a reply in a file until that is dropped. `None` where files have no room
    /// for it: once they take half of what they may, a connection has a share, and in the end
    /// bodies of requests go before.
    fn count_spilled(&self, bytes: u64, (used, limit): (u64, u64)) -> Option<Spilled<'_>> {
        const OF_A_CONNECTION: u64 = 8;
        let spilled = self.spilled.fetch_add(bytes, Ordering::Relaxed);
        let kept = Spilled {
            replies: self,
            bytes,
        };
        let most = match used {
            used if used < limit / 2 => u64::MAX,
            used if used < limit / 4 * 3 => limit / OF_A_CONNECTION,
            _ => 0,
        };
        (spilled.saturating_add(bytes) <= most).then_some(kept)
    }

    /// Puts a reply into a file, from which no more is read than the client has room for.
    pub(crate) async fn spill(
        &self,
        spool: &Arc<Spool>,
        bytes: Vec<Bytes>,
        client: Option<Arc<dyn SpoolClient>>,
    ) -> Result<(SpoolFile, Spilled<'_>), NotStored> {
        let len = bytes.iter().map(|bytes| bytes.len() as u64).sum();
        let Some(counted) = self.count_spilled(len, spool.usage()) else {
            return Err(not_stored("replies take too much of what spool files may"));
        };
        let spool = spool.clone();
        let write = move || {
            let mut file = spool.unnamed()?;
            file.hold_for(client);
            for bytes in bytes {
                file.append(&bytes)?;
            }
            Ok::<_, SpoolError>(file)
        };
        let Ok(written) = tokio::task::spawn_blocking(write).await else {
            return Err(NotStored); // the server ends
        };
        let file = written.map_err(|error| not_stored(&error.with_cause()))?;
        Ok((file, counted))
    }
}

fn not_stored(why: &str) -> NotStored {
    static NOT_STORED: LogThrottle = LogThrottle::new();
    if let Some(replies) = NOT_STORED.should_log() {
        tracing::warn!(
            target: "http", replies,
            "a reply that waits for its client can't be stored: {why}"
        );
    }
    NotStored
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fuller_the_disk_the_less_of_it_has_one_connection() {
        const LIMIT: u64 = 800;
        let replies = HeldReplies::default();
        let all = replies
            .count_spilled(1000, (0, LIMIT))
            .expect("there is room");
        assert!(replies.count_spilled(1, (LIMIT / 2, LIMIT)).is_none());
        drop(all);
        let share = replies
            .count_spilled(100, (LIMIT / 2, LIMIT))
            .expect("its share");
        assert!(replies.count_spilled(1, (LIMIT / 2, LIMIT)).is_none());
        drop(share);
        assert!(replies.count_spilled(1, (LIMIT / 4 * 3, LIMIT)).is_none());
        assert_eq!(
            replies.spilled.load(Ordering::Relaxed),
            0,
            "what is refused is not counted"
        );
    }
}
