//! The connection of a worker that has announced itself, and how it becomes a relay.

use std::fmt;
use std::sync::Arc;

use pronghorn_wire::Codec;
use tokio::runtime::Handle;

use super::channel::{Channel, Detached};
use super::inbox::Inbox;
use super::{Dialect, Relay, Settings};
use crate::pool::{Report, SlotHandle, Transport};
use crate::session;
use crate::supervisor::Connect;

/// The connection of a worker, before it is handed to its home.
#[derive(Debug)]
pub struct Connection {
    pub channel: Detached,
    /// The bytes that were read behind the announcement.
    pub leftover: Vec<u8>,
    pub dialect: Dialect,
    pub codec: Codec,
    /// The signal by which a call of it can be ended.
    pub deadline_signal: Option<i32>,
}

impl Connection {
    /// Has a relay on `home` carry calls, once the worker has its slot.
    pub fn connect(self, home: Handle, settings: Settings) -> Connect {
        Box::new(move |slot_handle| start(self, &home, settings, slot_handle))
    }
}

impl fmt::Debug for Relay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Relay").finish_non_exhaustive()
    }
}

impl Relay {
    /// The same for a relay that has carried calls before.
    pub fn connect(self, home: Handle) -> Connect {
        Box::new(move |slot_handle| {
            let inbox = Arc::new(Inbox::default());
            // Owned as below.
            home.spawn(session::run(self.in_slot(slot_handle, inbox.clone())));
            inbox
        })
    }
}

fn start(
    connection: Connection,
    home: &Handle,
    settings: Settings,
    slot_handle: SlotHandle,
) -> Arc<dyn Transport> {
    let inbox = Arc::new(Inbox::default());
    let transport: Arc<dyn Transport> = inbox.clone();
    // Owned by the worker's slot supervisor: it waits until the slot handle is left.
    home.spawn(async move {
        match Channel::attach(connection.channel) {
            Ok(channel) => {
                let Connection {
                    leftover, dialect, ..
                } = connection;
                let relay = Relay::new(channel, &leftover, dialect, settings, slot_handle, inbox);
                session::run(relay).await;
            }
            Err(error) => {
                slot_handle.report(Report::Garbage {
                    what: format!("nothing, its connection can't be watched ({error})"),
                    request: None,
                });
                std::future::poll_fn(|cx| inbox.poll_ended(cx, None)).await;
                slot_handle.leave();
            }
        }
    });
    transport
}
