//! `reset`

use std::time::Duration;

use pronghorn_control::{Ask, Client, Reset, Tell};
use pronghorn_server::logs;

use super::text::{counted, line, lines, short_time};
use super::{Server, Task, over_rpc};
use crate::arguments::Name;
use crate::exit::{Exit, failed, mention, say};

pub(super) async fn run(task: &Task<'_>, of: &[String]) -> Result<Exit, String> {
    match (task.server().await?, task.name) {
        (Server::Control(mut client), Name::Pronghorn) => own(task, &mut client, of).await,
        (Server::Control(mut client), Name::Rr) => {
            // By plugin, as RoadRunner does, and http is the only one.
            let http = vec!["http".to_owned()];
            by_plugin(task, if of.is_empty() { &http } else { of }, async |name| {
                let resets = resets(&mut client, &[name.to_owned()], |_| {}).await?;
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

async fn own(task: &Task<'_>, client: &mut Client, of: &[String]) -> Result<Exit, String> {
    let mut exit = Exit::Done;
    resets(client, of, |reset| match &reset.failed {
        Some(why) => exit = failed(&format!("{}\nThe old workers go on.", lines(why))),
        None if task.arguments.globals.silent => {}
        None => say(&format!(
            "{}: {} of generation {} after {}\n",
            line(&reset.pool),
            counted(reset.workers, "new worker"),
            reset.generation,
            short_time(Duration::from_millis(reset.took))
        )),
    })
    .await?;
    Ok(exit)
}

/// Resets pool by pool; each is shown as it is done.
async fn resets(
    client: &mut Client,
    of: &[String],
    mut show: impl FnMut(&Reset),
) -> Result<Vec<Reset>, String> {
    let ask = Ask::Reset { of: of.to_vec() };
    let mut answers = client.ask(ask).await.map_err(|error| error.to_string())?;
    let mut resets = Vec::new();
    while let Some(told) = answers.next().await.map_err(|error| error.to_string())? {
        if let Tell::Reset(reset) = told {
            show(&reset);
            resets.push(reset);
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
