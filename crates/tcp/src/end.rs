//! How connections end.

use pronghorn_pool::CallError;
use pronghorn_serve::CutFor;

use crate::framing::BadMessage;

/// Why a connection ends.
#[derive(Debug)]
pub(crate) enum End {
    /// The client has closed it, or is gone.
    Client,
    /// The worker wants it.
    Worker,
    /// No worker has answered.
    Failed(CallError),
    /// Its answer can't be sent whole.
    BadAnswer(&'static str),
    BadMessage(BadMessage),
    /// The client has sent nothing for too long.
    Silent,
    /// The client takes nothing of what it is sent.
    Untaken,
    /// Somebody has ended it by `tcp.Close`.
    Ordered,
    /// It held the most memory, and there was too much.
    Memory,
    /// It made room for another one: its address had the most that were silent.
    Room,
    /// The server stops.
    Stopping,
}

impl From<CutFor> for End {
    fn from(cut: CutFor) -> Self {
        match cut {
            CutFor::Memory => Self::Memory,
            CutFor::Room => Self::Room,
        }
    }
}

impl End {
    pub(crate) const NAMES: [&'static str; 11] = [
        "client",
        "worker",
        "failed",
        "bad_answer",
        "bad_message",
        "silent",
        "untaken",
        "ordered",
        "memory",
        "room",
        "stopping",
    ];

    /// As metrics have it.
    pub(crate) const fn name(&self) -> &'static str {
        Self::NAMES[match self {
            Self::Client => 0,
            Self::Worker => 1,
            Self::Failed(_) => 2,
            Self::BadAnswer(_) => 3,
            Self::BadMessage(_) => 4,
            Self::Silent => 5,
            Self::Untaken => 6,
            Self::Ordered => 7,
            Self::Memory => 8,
            Self::Room => 9,
            Self::Stopping => 10,
        }]
    }

    /// Whether the client gets what was sent to it before.
    pub(crate) const fn is_orderly(&self) -> bool {
        matches!(
            self,
            Self::Worker | Self::Ordered | Self::Stopping | Self::Silent | Self::Client
        )
    }
}
