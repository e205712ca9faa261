//! `reset` and `reload`

use std::time::Duration;

use pronghorn_control::{Ask, Client, Reset, Tell};
use pronghorn_server::logs;

use super::logs::shown_record;
use super::text::{counted, line, lines, short_time};
use super::{Server, Task, over_rpc};
use crate::arguments::Name;
use crate::exit::{Exit, failed, mention, say};

pub(super) async fn run(task: &Task<'_>, of: &[String]) -> Result<Exit, String> {
    match (task.server().await?, task.name) {
        (Server::Control(mut client), Name::Pronghorn) => own(task, &mut client, of).await,
        (Server::Control(mut client), Name::Rr) => {
            let plugins = match of {
                [] => plugins(&mut client).await?,
                of => of.to_vec(),
            };
            by_plugin(task, &plugins, async |name| {
                let resets = resets(&mut client, &[name.to_owned()], |_| {}, |_| {}).await?;
                let failures = resets.into_iter().filter_map(|reset| reset.failed);
                let failures: Vec<_> = failures.collect();
                if failures.is_empty() {
                    Ok(())
                } else {
                    Err(failures.join("\n"))
                }
            })
            .await
        }
        (Server::Rpc(mut client, _), _) => {
            let plugins = over_rpc::resettable(&mut client, of).await?;
            by_plugin(task, &plugins, async |name| {
                over_rpc::reset(&mut client, name).await
            })
            .await
        }
    }
}

/// `reload`: the configuration is read again as well.
pub(super) async fn reload(task: &Task<'_>) -> Result<Exit, String> {
    let mut client = match task.server().await? {
        Server::Control(client) => client,
        Server::Rpc(_, endpoint) => {
            return Err(format!(
                "the server is known by its RPC at {endpoint} alone, which can't reload it\n\
                 hint: run the command with the `-c` of the server, or send it SIGHUP"
            ));
        }
    };
    let told = client.ask_once(Ask::Reload).await;
    if let Ok(Tell::Reloaded { records, .. }) = &told {
        for record in records {
            mention(&shown_record(record, false));
        }
    }
    match told {
        Ok(Tell::Reloaded {
            failed: true,
            pending,
            ..
        }) => {
            let why = pending.unwrap_or_default();
            Ok(failed(&format!(
                "the reload failed: {}\nhint: `pronghorn check` shows mistakes of the files, and \
                 `pronghorn logs` the rest; the parts that failed keep their old state",
                lines(&why)
            )))
        }
        Ok(Tell::Reloaded {
            pending: Some(held),
            ..
        }) => {
            mention(&format!(
                "warning: the configuration is applied except {}\n",
                lines(&held)
            ));
            Ok(Exit::Done)
        }
        Ok(Tell::Reloaded { .. }) => {
            if !task.arguments.globals.silent {
                say("the configuration is applied, and all workers are new\n");
            }
            Ok(Exit::Done)
        }
        Ok(_) => Err("the server answered with something else".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

async fn own(task: &Task<'_>, client: &mut Client, of: &[String]) -> Result<Exit, String> {
    let mut exit = Exit::Done;
    let is_silent = task.arguments.globals.silent;
    let show = |reset: &Reset| match &reset.failed {
        // It is a program: the reason names it, and tells what to do.
        Some(why) if reset.generation == 0 => exit = failed(&lines(why)),
        Some(why) => exit = failed(&format!("{}\nThe old workers go on.", lines(why))),
        None if is_silent => {}
        None if reset.generation == 0 => say(&format!(
            "{}: {} after {}\n",
            line(&reset.pool),
            match reset.workers {
                1 => "1 new process".to_owned(),
                processes => format!("{processes} new processes"),
            },
            short_time(Duration::from_millis(reset.took))
        )),
        None => say(&format!(
            "{}: {} of generation {} after {}\n",
            line(&reset.pool),
            counted(reset.workers, "new worker"),
            reset.generation,
            short_time(Duration::from_millis(reset.took))
        )),
    };
    let show_cache = |cache: &str| {
        if !is_silent {
            say(&format!("{}: the cache is emptied\n", line(cache)));
        }
    };
    resets(client, of, show, show_cache).await?;
    Ok(exit)
}

/// What RoadRunner calls so and can reset.
async fn plugins(client: &mut Client) -> Result<Vec<String>, String> {
    let said = |error: pronghorn_control::ClientError| error.to_string();
    let odd = || "the server answered with something else".to_owned();
    let Tell::Workers(workers) = client
        .ask_once(Ask::Workers { of: vec![] })
        .await
        .map_err(said)?
    else {
        return Err(odd());
    };
    let Tell::Status(status) = client.ask_once(Ask::Status).await.map_err(said)? else {
        return Err(odd());
    };
    let mut plugins: Vec<String> = workers.into_iter().map(|of| of.plugin).collect();
    plugins.dedup();
    plugins.extend(status.caches);
    Ok(plugins)
}

/// Empties caches and resets pool by pool; each is shown as it is done.
async fn resets(
    client: &mut Client,
    of: &[String],
    mut show: impl FnMut(&Reset),
    show_cache: impl Fn(&str),
) -> Result<Vec<Reset>, String> {
    let ask = Ask::Reset { of: of.to_vec() };
    let mut answers = client.ask(ask).await.map_err(|error| error.to_string())?;
    let mut resets = Vec::new();
    while let Some(told) = answers.next().await.map_err(|error| error.to_string())? {
        match told {
            Tell::Emptied { cache } => show_cache(&cache),
            Tell::Reset(reset) => {
                show(&reset);
                resets.push(reset);
            }
            _ => {}
        }
    }
    Ok(resets)
}

/// With RoadRunner's lines, on stderr as there.
async fn by_plugin(
    task: &Task<'_>,
    plugins: &[String],
    mut reset: impl AsyncFnMut(&str) -> Result<(), String>,
) -> Result<Exit, String> {
    let tell = |what: &str, plugin: &str| {
        if !task.arguments.globals.silent {
            mention(&format!("{} {what}: [{}]\n", stamp(), line(plugin)));
        }
    };
    let mut exit = Exit::Done;
    for plugin in plugins {
        tell("resetting plugin", plugin);
        match reset(plugin).await {
            Ok(()) => tell("plugin reset", plugin),
            Err(why) => exit = failed(&lines(&why)),
        }
    }
    Ok(exit)
}

/// `2026/11/21 19:26:15`, as Go's log has it.
pub(super) fn stamp() -> String {
    let now = logs::timestamp(std::time::SystemTime::now());
    let (moment, _zone) = now.split_once('+').unwrap_or((&now, ""));
    moment.replace('-', "/").replace('T', " ")
}
