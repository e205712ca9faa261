//! What outlives the server: ordered keys with values, in one file below the state directory.
//!
//! - [`Store`]: the open file. One thread owns it; whoever reads or writes sends it an operation.
//!   Operations that wait at the same time share one commit, and each is answered when it is on
//!   the disk.
//! - [`LazyStore`]: the same before somebody needs it.
//! - [`Claim`]: keeps other servers away from the directory, for other files in it.
//! - [`Transaction`]: what an operation sees.
//! - [`state_folder`]: where the file is.
//!
//! One process has a store at a time. Knows nothing of what is kept in it: a user has a [`Tree`] of
//! its own.

#![forbid(unsafe_code)]

mod backend;
mod elsewhere;
mod engine;
mod error;
mod folder;
mod lazy;
mod link;
mod lock;
mod store;
mod transaction;

pub use error::{OpenError, StoreError};
pub use folder::{
    Surroundings, create_state_folder, folder_of_systemd, judge_state_directory, state_folder,
};
pub use lazy::{Claim, LazyStore};
pub use store::{Lender, Others, Store};
pub use transaction::{Failed, Transaction, Tree, entry_size};

#[cfg(test)]
mod tests;
