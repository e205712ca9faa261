//! Commands for a server that runs: `reset`, `reload`, `stop`, `workers`, `status`, `logs`, `jobs`.

mod boxes;
mod cache;
mod find;
mod identity;
mod jobs;
mod live;
mod logs;
mod over_rpc;
mod programs;
mod reset;
mod resize;
mod schedules;
mod serialised;
mod status;
mod stop;
mod table;
mod terminal;
mod text;
mod workers;

use std::cell::OnceCell;
use std::path::PathBuf;

use pronghorn_config::Endpoint;
use pronghorn_control::{Client, Place};
use tokio::runtime::Builder;

use crate::arguments::{Arguments, Cache, Jobs, Logs, Name, Programs, Schedules};
use crate::exit::{Exit, failed, misused};

pub(crate) use find::place_of;

/// What a command has to know before it can look for a server.
struct Task<'a> {
    name: Name,
    arguments: &'a Arguments,
    /// The configuration, or the folder of a server that has none.
    place: Place,
    /// Whether there is a configuration.
    configured: bool,
    directory: PathBuf,
    /// Where RPC listens by the configuration, once that was read.
    rpc: OnceCell<Option<Endpoint>>,
}

/// A server that was found.
enum Server {
    Control(Client),
    /// Started with another configuration, or RoadRunner itself.
    Rpc(over_rpc::Methods, Endpoint),
}

/// Replaces the workers of these pools, of all for none.
pub(crate) fn reset(name: Name, arguments: &Arguments, of: &[String]) -> Exit {
    run(name, arguments, async |task| reset::run(task, of).await)
}

/// Has the configuration read again, and waits until that is done.
pub(crate) fn reload(name: Name, arguments: &Arguments) -> Exit {
    run(name, arguments, async |task| reset::reload(task).await)
}

/// Stops the server and waits for its end.
pub(crate) fn stop(name: Name, arguments: &Arguments) -> Exit {
    run(name, arguments, async |task| stop::run(task).await)
}

/// The table of workers, once or live.
pub(crate) fn workers(
    name: Name,
    arguments: &Arguments,
    of: &[String],
    live: bool,
    json: bool,
) -> Exit {
    run(name, arguments, async |task| {
        workers::run(task, of, live, json).await
    })
}

/// Further workers for a pool, or fewer.
pub(crate) fn resize(name: Name, arguments: &Arguments, of: &[String], by: i32) -> Exit {
    let pool = match of {
        [] => None,
        [pool] => Some(pool.as_str()),
        _ => return misused("workers are added to one pool, or taken from one\nhint: name one"),
    };
    run(name, arguments, async |task| {
        resize::run(task, pool, by).await
    })
}

/// The server as a whole.
pub(crate) fn status(name: Name, arguments: &Arguments, alive: bool, json: bool) -> Exit {
    run(name, arguments, async |task| {
        status::run(task, alive, json).await
    })
}

/// The newest records of the log.
pub(crate) fn logs(name: Name, arguments: &Arguments, logs: &Logs) -> Exit {
    run(name, arguments, async |task| logs::run(task, logs).await)
}

/// Where the server keeps what outlives it, if it runs.
pub(crate) fn state_folder(name: Name, arguments: &Arguments) -> Option<PathBuf> {
    let runtime = Builder::new_current_thread().enable_all().build().ok()?;
    runtime.block_on(status::state_folder(&Task::of(name, arguments)))
}

/// Pipelines of jobs, as RoadRunner's flags have it.
pub(crate) fn jobs(name: Name, arguments: &Arguments, jobs: &Jobs) -> Exit {
    run(name, arguments, async |task| jobs::run(task, jobs).await)
}

/// Programs that the server keeps running.
pub(crate) fn programs(name: Name, arguments: &Arguments, programs: &Programs) -> Exit {
    run(name, arguments, async |task| {
        programs::run(async || task.methods().await, programs).await
    })
}

/// Storages of keys and values.
pub(crate) fn cache(name: Name, arguments: &Arguments, cache: &Cache) -> Exit {
    run(name, arguments, async |task| cache::run(task, cache).await)
}

/// Schedules of jobs.
pub(crate) fn schedules(name: Name, arguments: &Arguments, schedules: &Schedules) -> Exit {
    run(name, arguments, async |task| {
        schedules::run(task, schedules).await
    })
}

fn run(
    name: Name,
    arguments: &Arguments,
    command: impl AsyncFnOnce(&Task<'_>) -> Result<Exit, String>,
) -> Exit {
    let runtime = match Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build()
    {
        Ok(runtime) => runtime,
        Err(error) => return failed(&format!("cannot start: {error}")),
    };
    let task = Task::of(name, arguments);
    match runtime.block_on(command(&task)) {
        Ok(exit) => exit,
        Err(why) => failed(&why),
    }
}
