//! The control socket: how the command line finds a server, and what the two say to each other.
//!
//! - [`Place`]: where the socket of a configuration is, the same for server and command.
//! - [`Listener`] and [`serve`]: the server's end. What is asked is carried out by a [`Steerable`].
//! - [`Client`]: the command's end, which asks [`Trusted`] users' servers alone.
//! - [`Ask`] and [`Tell`]: the messages, a line of JSON each.
//!
//! Root and the user that the server runs as may connect; nobody else is answered. Knows no pools.

#![forbid(unsafe_code)]

mod client;
mod lines;
mod listener;
mod message;
mod place;
mod private;
mod server;
mod trusted;

pub use client::{Answers, Client, ClientError};
pub use listener::{ListenError, Listener};
pub use message::{
    Ask, Counter, LogsWanted, PoolStatus, ProgramWait, Reset, Served, State, Status, Tell,
    UnderWay, Worker, WorkersOf,
};
pub use place::{Place, Surroundings};
pub use server::{Answer, Refusal, Steerable, Steering, serve};
pub use trusted::Trusted;

#[cfg(test)]
mod tests;
