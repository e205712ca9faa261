//! `workers`

use std::io::IsTerminal;
use std::time::{Duration, SystemTime};

use pronghorn_control::{Ask, Client, Tell, Worker, WorkersOf};

use serde_json::{Value, json};

use super::table::{Look, Row, View, jobs_table, roadrunners, table};
use super::{Server, Task, live, over_rpc, terminal};
use crate::arguments::Name;
use crate::exit::{Exit, say, say_coloured, say_json};

pub(super) async fn run(
    task: &Task<'_>,
    of: &[String],
    live: bool,
    json: bool,
) -> Result<Exit, String> {
    let mut server = task.server().await?;
    let first = look_at(&mut server, of).await?;
    if json {
        let pools: Vec<_> = first.iter().map(to_json).collect();
        return say_json(&json!({"pools": pools}));
    }
    if live && terminal::can_be_redrawn() {
        return live::run(task, of, server, first).await;
    }
    match task.name {
        Name::Rr => {
            say(&roadrunners(&first));
            say(&jobs(task, &mut server, &first).await?);
        }
        Name::Pronghorn => say_coloured(&table(&first, look())),
    }
    Ok(Exit::Done)
}

/// `docs/reference/json.md` describes it.
fn to_json(view: &View) -> Value {
    let milliseconds = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    let workers = view.rows.iter().map(|row| {
        let request = row.request.as_ref();
        let request =
            request.map(|(what, age)| json!({"what": what, "age_ms": milliseconds(*age)}));
        json!({
            "pid": row.pid,
            "state": row.state,
            "transport": row.transport,
            "forked_by": row.forked_by,
            "generation": row.generation,
            "executions": row.executions,
            "memory_bytes": row.memory,
            "cpu_ms": row.cpu,
            "load_percent": row.load,
            "command": row.command,
            "age_ms": milliseconds(row.age),
            "request": request,
        })
    });
    let workers: Vec<Value> = workers.collect();
    json!({
        "pool": view.pool,
        "service": view.plugin,
        "waiting": view.waiting,
        "workers": workers,
    })
}

/// RoadRunner's table of pipelines, after those of workers; nothing without pipelines.
async fn jobs(task: &Task<'_>, server: &mut Server, views: &[View]) -> Result<String, String> {
    if !views.iter().any(|view| view.plugin == over_rpc::JOBS) {
        return Ok(String::new());
    }
    let pipelines = match server {
        Server::Rpc(methods, _) => over_rpc::jobs(methods).await?,
        Server::Control(_) => match task.methods().await {
            Ok(mut methods) => over_rpc::jobs(&mut methods).await?,
            Err(_) => return Ok(String::new()),
        },
    };
    Ok(jobs_table(pipelines))
}

fn look() -> Look {
    let shown = std::io::stdout().is_terminal();
    Look {
        width: shown.then(|| terminal::size().0),
        height: None,
        colours: shown && terminal::has_colours(),
    }
}

pub(super) async fn look_at(server: &mut Server, of: &[String]) -> Result<Vec<View>, String> {
    match server {
        Server::Control(client) => Ok(asked(client, of).await?.into_iter().map(view).collect()),
        Server::Rpc(client, _) => over_rpc::workers(client, of).await,
    }
}

async fn asked(client: &mut Client, of: &[String]) -> Result<Vec<WorkersOf>, String> {
    match client.ask_once(Ask::Workers { of: of.to_vec() }).await {
        Ok(Tell::Workers(workers)) => Ok(workers),
        Ok(other) => Err(format!(
            "the server answered with something else: {other:?}"
        )),
        Err(error) => Err(error.to_string()),
    }
}

fn view(of: WorkersOf) -> View {
    View {
        pool: of.pool,
        // A worker is reached by something; older servers don't say by what.
        takes_calls: of.workers.is_empty()
            || of
                .workers
                .iter()
                .any(|it| it.transport.is_some() || it.executions > 0),
        plugin: of.plugin,
        waiting: Some(of.waiting),
        rows: of.workers.into_iter().map(row).collect(),
    }
}

fn row(worker: Worker) -> Row {
    let started = SystemTime::UNIX_EPOCH + Duration::from_millis(worker.started);
    let age = match worker.started {
        0 => Duration::ZERO,
        _ => started.elapsed().unwrap_or_default(),
    };
    Row {
        pid: worker.pid,
        state: worker.state,
        transport: worker.transport,
        forked_by: worker.forked_by,
        generation: Some(worker.generation),
        executions: worker.executions,
        memory: worker.memory,
        cpu: Some(worker.cpu),
        load: load(Duration::from_millis(worker.cpu), age),
        age,
        command: worker.command,
        request: worker
            .request
            .map(|request| (request.what, Duration::from_millis(request.age))),
    }
}

/// Of one processor, in percent. What a worker took while it booted is not part of its age, and the
/// kernel counts in hundredths of a second: a worker, which has one thread, would seem to take more
/// than there is.
pub(super) fn load(cpu: Duration, over: Duration) -> f64 {
    let over = over.max(Duration::from_millis(10));
    (cpu.as_secs_f64() / over.as_secs_f64() * 100.0).min(100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_takes_no_more_than_a_processor() {
        let ms = Duration::from_millis;
        for (cpu, over, percent) in [
            (ms(30), ms(0), 100.0),
            (ms(100), ms(10), 100.0),
            (ms(100), ms(1000), 10.0),
            (ms(0), ms(0), 0.0),
            (ms(5000), ms(4000), 100.0),
        ] {
            assert!(
                (load(cpu, over) - percent).abs() < 0.001,
                "{cpu:?} {over:?}"
            );
        }
    }
}
