//! Pools of workers: slots, queue, dispatcher, supervisor.
//!
//! A [`Pool`] takes calls and gives each to a free worker, or lets it wait. What a worker is and
//! how it is reached is behind a `Transport`; the relay (Goridge frames) is one. A supervisor keeps
//! the slots filled.
//!
//! Two threads of work, which never wait for each other: the *data path* (calls, on the threads
//! that serve requests) takes one short lock; the *control path* (processes, on the control thread)
//! sends its steps there.
//!
//! Knows no HTTP: what a call says is its [`Payload`]'s business.

#![forbid(unsafe_code)]
// A new state must be thought about everywhere.
#![cfg_attr(not(test), warn(clippy::wildcard_enum_match_arm))]

mod affinity;
#[doc(hidden)]
pub mod benchmark;
mod body;
mod call;
mod content;
mod contract;
mod core;
mod escalation;
mod fence;
mod home;
mod incident;
mod last_words;
mod log;
mod observer;
mod php_message;
mod pieces;
mod poison;
mod pool;
mod queue;
mod quote;
mod raw;
mod relay;
mod remarks;
mod roster;
mod session;
mod slot;
mod spool;
mod stamps;
mod stats;
mod supervisor;
mod warmup;

pub use affinity::AffinityId;
pub use body::{BodyFeed, BodyStream, streamed};
pub use call::{
    Answer, Body, CallError, Dispatch, Encoding, Payload, Pending, Refused, Reply, ReplyBody,
    Terms, Unencodable, WorkerFault,
};
pub use content::Content;
pub use core::{SlotId, SlotState};
pub use fence::Fence;
pub use home::{Home, collect};
pub use incident::{CallDetails, Incident, IncidentKind, Incidents, Progress};
pub use last_words::LastWords;
pub use observer::{Look, Observer, Origin, Taker};
pub use php_message::{Extent, PhpMessage, Source, Speaker, WORKER_OUTPUT};
pub use pieces::{Lead, NotWhole, Piece, PieceSender, Pieces, QueueCounter, pieces};
pub use poison::Identity;
pub use pool::{Affinity, NotExtended, Options, Pool};
pub use pronghorn_ring::Loan;
pub use quote::Quote;
pub use raw::{RawCall, RawError};
pub use roster::{Request, Via, WorkerInfo};
pub use spool::{Spool, SpoolClient, SpoolError, SpoolFile, SpoolPlace};
pub use stamps::Stamps;
pub use stats::{Counter, Stats};
pub use supervisor::{LaunchError, LauncherRef, Limits, NotResized, Plan, RunningPool, Scaling};
pub use warmup::{Warmup, WarmupCall};

/// What starts workers and what carries calls to them are made of.
pub mod transport {
    pub use crate::call::{Call, Inner as CallDetails};
    pub use crate::contract::{Order, Report, Transport, UnderWay};
    pub use crate::core::Next;
    pub use crate::pool::{Lifetime, Requeue, SlotHandle};
    pub use crate::relay::channel::{Channel, Detached};
    pub use crate::relay::connection::Connection;
    pub use crate::relay::inbox::{Inbox, News, Told};
    pub use crate::relay::incoming::{Garbage, Incoming, Item};
    pub use crate::relay::outlet::{Outlet, Streamed};
    pub use crate::relay::{
        Allowed, Borders, Calling, Dialect, Held, MethodCaller, MethodCallers, Prefetched, Relay,
        Returned, Sent, Settings as RelaySettings,
    };
    pub use crate::session::{Peer, PieceDeadline, Served, lost, lost_in_stream, run};
    pub use crate::supervisor::{Connect, LaunchError, Launched, Launcher, Pace, Watched};
    pub use crate::warmup::{Cold, warm, warm_up};
    pub use pronghorn_ring::StackLayout;
}

#[cfg(test)]
mod tests;
