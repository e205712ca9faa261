//! `status`

use std::fmt::Write;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use pronghorn_base::since_1970;
use pronghorn_control::{Ask, PoolStatus, ProgramWait, State, Status, Tell};

use super::text::{count, counted, has_waited, line, lines, one_line, short_time, time};
use super::{Server, Task, over_rpc};
use crate::exit::{Exit, say, say_json};

pub(super) async fn run(task: &Task<'_>, alive: bool, json: bool) -> Result<Exit, String> {
    match task.server().await? {
        Server::Control(mut client) => match client.ask_once(Ask::Status).await {
            Ok(Tell::Status(status)) => {
                if json {
                    say_json(&status)?;
                } else {
                    say(&report(&status));
                }
                // A script that asks wants to know whether it may send requests, or, with
                // `--alive`, whether to restart the server.
                let wrong = if alive {
                    &status.not_alive
                } else {
                    &status.not_ready
                };
                Ok(if wrong.is_none() {
                    Exit::Done
                } else {
                    Exit::Failed
                })
            }
            Ok(_) => Err("the server answered with something else".to_owned()),
            Err(error) => Err(error.to_string()),
        },
        Server::Rpc(mut client, endpoint) => {
            if json {
                return Err("only RPC answers, which tells too little for `--json`\n\
                            hint: name the server's configuration by `-c`, or its folder by `-w`"
                    .to_owned());
            }
            let version = over_rpc::version(&mut client).await?;
            say(&format!(
                "rpc      {endpoint}, as RoadRunner {}; RPC tells no more\n",
                line(&version)
            ));
            for view in over_rpc::workers(&mut client, &[]).await? {
                let workers = counted(view.rows.len() as u64, "worker");
                say(&format!("{:<8} {workers}\n", line(&view.plugin)));
            }
            Ok(Exit::Done)
        }
    }
}

/// The state directory of a server that runs.
pub(super) async fn state_folder(task: &Task<'_>) -> Option<PathBuf> {
    match task.control().await?.ask_once(Ask::Status).await {
        Ok(Tell::Status(status)) => status.state_dir,
        _ => None,
    }
}

fn report(status: &Status) -> String {
    let state = match (status.state, &status.not_ready) {
        (State::Starting, _) => "starting".to_owned(),
        (State::Stopping, _) => "stopping".to_owned(),
        (State::Serving, None) => "ready".to_owned(),
        (State::Serving, Some(why)) => format!("not ready: {}", lines(why)),
    };
    let mut out = format!(
        "server   pronghorn {}, pid {}, up {}\nstate    {state}\n",
        line(&status.version),
        status.pid,
        time(Duration::from_secs(status.uptime))
    );
    let mut entry = |name: &str, value: Option<String>| {
        if let Some(value) = value {
            _ = writeln!(out, "{name:<8} {}", lines(&value)); // a String takes it
        }
    };
    let shown = |path: &Option<PathBuf>| path.as_ref().map(|path| path.display().to_string());
    entry("config", shown(&status.config));
    entry("pending", status.pending.clone());
    entry("data", shown(&status.state_dir));
    for served in &status.services {
        entry(&line(&served.service), Some(served.at.clone()));
    }
    for pool in &status.pools {
        entry("pool", Some(pool_report(pool)));
    }
    let states = status.programs.iter();
    let states = states.map(|state| format!("{} {}", count(state.count), state.name));
    let states: Vec<String> = states.collect();
    entry("programs", (!states.is_empty()).then(|| states.join(", ")));
    for wait in &status.waits {
        entry("waits", Some(wait_report(wait)));
    }
    out
}

fn wait_report(wait: &ProgramWait) -> String {
    let now = since_1970(SystemTime::now());
    let since = Duration::from_millis(wait.since);
    let waited = has_waited(&wait.state, &wait.waits_for, now.saturating_sub(since));
    format!("{}:{}: {waited}", one_line(&wait.program), wait.index)
}

fn pool_report(pool: &PoolStatus) -> String {
    let mut out = format!(
        "{}: {}, {} busy, {} waiting{}, generation {}",
        pool.name,
        counted(pool.workers, "worker"),
        count(pool.busy),
        counted(pool.waiting, "call"),
        pool.oldest.map_or_else(String::new, |oldest| {
            format!(" for {}", short_time(Duration::from_millis(oldest)))
        }),
        pool.generation
    );
    for counter in &pool.counters {
        _ = write!(
            out,
            "\n           {} {}",
            count(counter.count),
            counter.name
        );
    }
    if let Some(why) = &pool.down {
        _ = write!(out, "\n{why}");
    }
    out
}

#[cfg(test)]
mod tests {
    use pronghorn_control::{Counter, Served};

    use super::*;

    #[test]
    fn the_report_says_what_a_person_asks_first() {
        let pool = PoolStatus {
            name: "default".to_owned(),
            generation: 3,
            workers: 4,
            busy: 1,
            waiting: 2,
            oldest: Some(340),
            counters: vec![Counter {
                name: "client_gone".to_owned(),
                count: 12_345,
            }],
            ..PoolStatus::default()
        };
        let status = Status {
            version: "0.1.0".to_owned(),
            pid: 7,
            state: State::Serving,
            uptime: 3725,
            state_dir: Some("/var/lib/pronghorn".into()),
            config: Some("/srv/app/.rr.yaml".into()),
            services: vec![Served {
                service: "http".to_owned(),
                at: "http://127.0.0.1:8080".to_owned(),
            }],
            not_ready: None,
            not_alive: None,
            pending: Some("`http.threads`, from a restart on".to_owned()),
            pools: vec![pool],
            programs: vec![Counter {
                name: "running".to_owned(),
                count: 3,
            }],
            waits: Vec::new(),
            caches: Vec::new(),
        };
        assert_eq!(
            report(&status),
            "server   pronghorn 0.1.0, pid 7, up 1h 2m\n\
             state    ready\n\
             config   /srv/app/.rr.yaml\n\
             pending  `http.threads`, from a restart on\n\
             data     /var/lib/pronghorn\n\
             http     http://127.0.0.1:8080\n\
             pool     default: 4 workers, 1 busy, 2 calls waiting for 0.3s, generation 3\n           12,345 client_gone\n\
             programs 3 running\n"
        );
        let broken = Status {
            not_alive: None,
            not_ready: Some("a worker\u{1b}[2J".to_owned()),
            ..status
        };
        assert!(report(&broken).contains("state    not ready: a worker\\u001b[2J\n"));
    }
}
