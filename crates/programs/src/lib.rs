//! Programs that the server keeps running: the service `service`, as RoadRunner calls it, and the
//! service `temporal`, whose only program is RoadRunner's.
//!
//! - [`ProgramsService`]: the service `service`.
//! - [`TemporalService`]: the service `temporal`; `roadrunner` knows what its program wants.
//! - `channel`: which of the two it is.
//! - `settings`: the section `service`.
//! - `machine`: what becomes of one process, without a clock and without processes.
//! - `before`: the programs of the process before, beside which none may run.
//! - `instance`: one process of a program, or the next one after it; a task that drives its
//!   machine.
//! - `program`: the processes of a program, and how all of them are replaced.
//! - `programs`: all programs of a service, and the order in which they start and stop.
//! - [`AllPrograms`]: those of both services.
//! - `said`, `files`: what programs say, and where it goes.
//! - `guard`: ends what programs have started if the server is killed.
//! - `messages`, `methods`: `service.*` and `programs.*` over RPC.
//!
//! Processes are started, watched and ended by `pronghorn-launch` and `pronghorn-process`, as those
//! of schedules and workers are.

#![forbid(unsafe_code)]

mod all;
mod before;
mod channel;
mod environment;
mod files;
mod guard;
mod instance;
mod machine;
mod messages;
mod methods;
mod metrics;
mod notify;
mod program;
mod programs;
mod roadrunner;
mod said;
mod service;
mod settings;
mod shown;
mod temporal;

pub use all::AllPrograms;
pub use service::ProgramsService;
pub use temporal::TemporalService;

/// The service's name, and where it writes its records.
const LOG: &str = "service";

/// A word of commands for all programs, which no program may have as its name.
const ALL: &str = "all";
