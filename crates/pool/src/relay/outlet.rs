//! The relay's end of a reply's body: hands pieces to the client's side, and puts what finds no
//! room into a file.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use pronghorn_base::LogThrottle;
use pronghorn_wire::Head;
use tokio::time::{Instant, sleep_until};

use crate::call::{Call, ReplyBody};
use crate::content::Content;
use crate::pieces::{Lead, Piece, PieceSender, pieces};
use crate::pool::SlotHandle;
use crate::spool::{Spool, SpoolError, SpoolFile};
use crate::stamps::Stamps;

/// Bytes per second that a client takes on average, or it is given up while others wait for the
/// worker that waits for it, and a file has no room.
const LEAST_RATE: u64 = 32 << 10;
/// A client may be as slow as it likes for so long in all. Requests wait for 30 s by default.
const GRACE: Duration = Duration::from_secs(15);
/// The same where the rest of its reply can go to a file, which costs the client nothing: however
/// much it has taken before. Clients that read nothing hold workers no longer than a short page.
const BEFORE_A_FILE: Duration = Duration::from_millis(20);

/// The call whose reply is passed on in pieces.
#[derive(Debug)]
pub struct Streamed {
    pub request: String,
    pub stamps: Stamps,
    /// How long the worker may take for each piece.
    pub limit: Option<Duration>,
}

impl Streamed {
    pub fn of(call: &Call, slot_handle: &SlotHandle) -> Self {
        Self {
            request: call.payload.describe(),
            stamps: call.stamps,
            limit: slot_handle.limit(call),
        }
    }
}

#[derive(Debug)]
pub struct Outlet {
    pieces: PieceSender,
    spool: Arc<Spool>,
    /// Once there is a file, everything that follows goes there.
    spilled: Option<SpoolFile>,
    may_spill: bool,
    /// Bytes that were handed over.
    handed: u64,
    /// The part of it that was handed over before the worker first waited.
    on_its_way: Option<u64>,
    /// How long the worker has waited for the client.
    waited: Duration,
}

impl Outlet {
    /// Hands the head of a reply over. Its body follows, of this length if that is known.
    pub fn begin(call: Call, head: Head, len: Option<u64>, spool: Arc<Spool>) -> Self {
        let (sender, pieces) = pieces();
        call.deliver(head, ReplyBody::Pieces { pieces, len });
        Self::new(sender, spool)
    }

    /// The outlet for a reply that nobody gets.
    pub fn closed_from_the_start(spool: Arc<Spool>) -> Self {
        Self::new(pieces().0, spool)
    }

    fn new(pieces: PieceSender, spool: Arc<Spool>) -> Self {
        Self {
            pieces,
            spool,
            spilled: None,
            may_spill: true,
            handed: 0,
            on_its_way: None,
            waited: Duration::ZERO,
        }
    }

    /// Whether nobody reads any more.
    pub fn is_closed(&self) -> bool {
        self.pieces.is_closed()
    }

    /// Waits until nobody reads any more.
    pub async fn closed(&self) {
        self.pieces.closed().await;
    }

    /// Hands a piece over if there is room, and gives it back if not.
    pub fn try_send(&mut self, bytes: Content, lead: Lead) -> Option<Content> {
        if self.is_closed() {
            return None;
        }
        if self.spilled.is_some() {
            return Some(bytes);
        }
        let len = bytes.len() as u64;
        let left = self.pieces.try_put(bytes, lead).err();
        if left.is_none() {
            self.handed += len;
        }
        left
    }

    /// As [`try_send`](Self::try_send), but what a worker leaves that has ended goes to a file if
    /// there is no room.
    pub async fn send_or_spill(&mut self, bytes: Content, lead: Lead) -> Option<Content> {
        let bytes = self.try_send(bytes, lead)?;
        match lead {
            Lead::Long => self.spill(bytes).await,
            Lead::Short => Some(bytes),
        }
    }

    /// Waits until the client has taken what is in its way, a file too, while the worker waits.
    /// When the client is slow and others wait for a worker, the piece goes to a file; where there
    /// can be none, the reply is broken off.
    pub async fn send(&mut self, bytes: Content, lead: Lead, slot_handle: &SlotHandle) {
        let mut left = Some(bytes);
        while let Some(bytes) = left.take() {
            let since = Instant::now();
            let due = since + self.patience().saturating_sub(self.waited);
            let is_in_time = tokio::select! {
                biased;
                () = self.room(&bytes, lead) => true,
                () = needed_by_others(due, slot_handle) => false,
            };
            self.waited += since.elapsed();
            if is_in_time {
                self.pass_file();
                self.handed += bytes.len() as u64;
                self.pieces.put_in_time(bytes, lead).await;
            } else if self.may_spill {
                left = self.spill(bytes).await;
            } else {
                self.break_off();
            }
        }
    }

    /// Waits until a piece can be handed over.
    async fn room(&self, bytes: &Content, lead: Lead) {
        match self.spilled {
            Some(_) => self.drained().await,
            None => self.pieces.room(bytes, lead).await,
        }
    }

    /// The time that the worker waits for the client, in all, while others wait for the worker.
    fn patience(&mut self) -> Duration {
        // Bytes that found room before may still lie in the kernel's buffers, megabytes of it.
        let on_its_way = *self.on_its_way.get_or_insert(self.handed);
        if self.may_spill {
            BEFORE_A_FILE
        } else {
            GRACE + Duration::from_secs((self.handed - on_its_way) / LEAST_RATE)
        }
    }

    fn break_off(&mut self) {
        static BROKEN_OFF: LogThrottle = LogThrottle::new();
        if let Some(replies) = BROKEN_OFF.should_log() {
            tracing::warn!(
                target: "server", replies,
                "replies broken off: their clients take less than 32 KB per second, and requests \
                 wait for the workers that wait for them"
            );
        }
        self.spilled = None;
        self.may_spill = false;
        self.pieces.break_off();
    }

    /// How much is in the file; `None` when there is none.
    pub fn spilled(&self) -> Option<u64> {
        self.spilled.as_ref().map(SpoolFile::len)
    }

    /// Waits until the client's side has taken everything that was handed over.
    pub async fn drained(&self) {
        self.pieces.emptied().await;
    }

    /// Hands over what is in the file, and what comes next is handed over again. For after
    /// [`drained`](Self::drained).
    pub fn pass_file(&mut self) {
        if let Some(file) = self.spilled.take() {
            self.handed += file.len();
            self.pieces.put_last(Piece::Spooled(file));
        }
    }

    /// Puts a piece into the file. Gives it back when there can be none: then the worker has to
    /// wait for the client.
    pub async fn spill(&mut self, bytes: Content) -> Option<Content> {
        if !self.may_spill {
            return Some(bytes);
        }
        let (spool, file) = (self.spool.clone(), self.spilled.take());
        let client = self.pieces.client().cloned();
        let bytes = Bytes::from(bytes);
        let piece = bytes.clone();
        let append = move || {
            let mut file = match file {
                Some(file) => file,
                None => spool.unnamed().map_err(|error| Box::new((None, error)))?,
            };
            file.hold_for(client);
            match file.append(&piece) {
                Ok(()) => Ok(file),
                Err(error) => Err(Box::new((Some(file), error))),
            }
        };
        match tokio::task::spawn_blocking(append).await {
            Ok(Ok(file)) => {
                self.spilled = Some(file);
                None
            }
            Ok(Err(refused)) => {
                let (file, error) = *refused;
                self.give_up(file, &error);
                Some(bytes.into())
            }
            Err(_) => None, // the runtime ends, and so does the client's connection
        }
    }

    fn give_up(&mut self, file: Option<SpoolFile>, error: &SpoolError) {
        static WAITING: LogThrottle = LogThrottle::new();
        if let Some(replies) = WAITING.should_log() {
            let why = error.with_cause();
            tracing::warn!(target: "server", replies, "a worker must wait for a slow client: {why}");
        }
        self.may_spill = false;
        if let Some(file) = file {
            self.pieces.put_last(Piece::Spooled(file));
        }
    }

    /// The reply is complete.
    pub fn end(&mut self) {
        self.pass_file();
        self.pieces.put_last(Piece::End);
    }
}

/// Waits until then, and until a request waits for a worker.
async fn needed_by_others(mut due: Instant, slot_handle: &SlotHandle) {
    /// Between two looks.
    const LOOK: Duration = Duration::from_millis(20);
    loop {
        // A clock of milliseconds waits for its next one, at each of many small pieces.
        if due > Instant::now() {
            sleep_until(due).await;
        }
        if slot_handle.others_wait() {
            return;
        }
        due = Instant::now() + LOOK;
    }
}
