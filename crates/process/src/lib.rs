//! Child processes: spawn them, know when they end, signal them.
//!
//! - [`Spawner`]: the one thread that starts children. The kernel sends a child's parent-death
//!   signal when the *thread* that spawned it ends, so it has to live as long as the server.
//! - [`Process`]: a running child. Its end is read from its pidfd, never from an end of file:
//!   grandchildren inherit pipes.
//! - [`Overtaking`]: a priority for as long as a process boots.
//! - [`Mark`]: by which all that a program has started is found and killed.
//! - [`Zygote`]: a process that forks children of this one.
//! - [`Program`] and [`Link`]: this program once more, for an upgrade, and how the two processes
//!   talk.
//! - [`activation`]: listening sockets that were open before this process.
//! - [`Credentials`]: the user that a child runs as.
//! - [`mod@file`]: what only Linux can do with files.
//! - [`memory`]: how much of it there is.
//! - [`own_files`]: what of the disk is never a client's.
//! - [`peer`]: who is at the other end of a connection.
//!
//! Knows nothing of pools or PHP. With `ring`, and but for the allocator of the binary, the only
//! crate with `unsafe`: what a child does between fork and exec.

pub mod activation;
pub mod cpus;
mod credentials;
pub mod file;
mod link;
mod mark;
pub mod memory;
mod oom;
pub mod open_files;
mod overtaking;
pub mod own_files;
pub mod peer;
mod process;
mod program;
mod reap;
mod runnable;
mod signals;
pub mod socket;
mod spawner;
mod sweeper;
mod usage;
mod which;
mod zygote;

pub use credentials::{Credentials, LookupError, group_id};
pub use link::{Link, MOST_SOCKETS, Message, WatchedLink};
pub use mark::Mark;
pub use overtaking::{Overtaking, may_overtake};
pub use process::{Exit, Process, Signal};
pub use program::{Program, end_by_stops};
pub use reap::{adopt_orphans, reap_orphans};
pub use runnable::{NotRunnable, after_shebang, find_runnable};
pub use signals::NamedSignal;
pub use spawner::{Child, Command, Limits, SpawnError, Spawner, Stream, TooLong};
pub use sweeper::Sweeper;
pub use usage::{CpuClock, Usage, family_memory, own_memory, own_memory_of_forked};
pub use which::{search_path, which};
pub use zygote::{Facts, ForkError, Introduction, Zygote};
