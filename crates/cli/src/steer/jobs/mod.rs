//! `jobs`: pipelines, and jobs that were given up; also by RoadRunner's flags. It asks over RPC, as
//! `rr` does.

mod batches;
mod letters;
mod lines;
mod pipelines;
mod removal;
mod tail;
mod waiting;

use serde::{Deserialize, Serialize};

use super::boxes::boxes;
use super::over_rpc::Methods;
use super::text::{counted, line};
use super::{Task, over_rpc};
use crate::arguments::{Jobs, JobsAction, JobsCommand, Letters, Name, Named};
use crate::exit::{Exit, mention, say, say_json};

/// What there is to do.
const COMMANDS: [&str; 13] = [
    "list", "pause", "resume", "tail", "dead", "batches", "show", "retry", "discard", "cancel",
    "clear", "export", "import",
];

/// IDs that the server takes in one call.
const MOST_NAMED: usize = 1000;

pub(super) async fn run(task: &Task<'_>, jobs: &Jobs) -> Result<Exit, String> {
    let action = JobsAction::of(jobs);
    if let Some(command) = &jobs.command {
        if action.is_some() {
            return Err(format!(
                "a command of `jobs` and one of RoadRunner's flags can't be given at once\n\
                 hint: a pipeline that is called like a command: `{} jobs pause NAME`",
                task.name.program()
            ));
        }
        let mut methods = task.methods().await?;
        return carry_out(&mut methods, command, jobs.json).await;
    }
    let Some(action) = action else {
        if task.name == Name::Rr {
            let program = task.name.program();
            return Err(format!(
                "`jobs` needs `--list`, `--pause`, `--resume` or `--destroy`\n\
                 hint: for example `{program} jobs --pause mail,orders`"
            ));
        }
        if let Some(unknown) = jobs.of.first() {
            let known = COMMANDS.iter().copied();
            let meant = pronghorn_config::nearest(unknown, known);
            let meant = meant.map_or_else(String::new, |it| format!("; did you mean `{it}`?"));
            return Err(format!(
                "`jobs` can't do `{unknown}`{meant}\n\
                 hint: `jobs` alone shows all pipelines, `jobs list NAME` the jobs of one; there are \
                 `{}`, and RoadRunner's flags",
                COMMANDS.join("`, `")
            ));
        }
        let mut methods = task.methods().await?;
        return pipelines::show(&mut methods, jobs.json).await;
    };
    by_flag(task, jobs, action).await
}

async fn carry_out(
    methods: &mut Methods,
    command: &JobsCommand,
    json: bool,
) -> Result<Exit, String> {
    match command {
        JobsCommand::List { pipeline } => waiting::list(methods, pipeline, json).await,
        JobsCommand::Dead(of) => letters::list(methods, of.name(), json).await,
        JobsCommand::Tail(of) => tail::run(methods, of.name(), json).await,
        JobsCommand::Batches => batches::list(methods, json).await,
        JobsCommand::Show { id, pipeline } => {
            letters::show(methods, id, pipeline.as_deref(), json).await
        }
        JobsCommand::Retry(which) => {
            let what = ("dead letter", "run again");
            done(methods, "jobs.Retry", which, what, json).await
        }
        JobsCommand::Discard(which) => {
            let what = ("dead letter", "discarded");
            done(methods, "jobs.Discard", which, what, json).await
        }
        JobsCommand::Cancel { ids, pipeline } => {
            removal::cancel(methods, ids, pipeline.as_deref(), json).await
        }
        JobsCommand::Clear { pipeline } => removal::clear(methods, pipeline, json).await,
        JobsCommand::Export { pipeline } => lines::export(methods, pipeline).await,
        JobsCommand::Import => lines::import(methods, json).await,
        JobsCommand::Pause(which) => change(methods, "jobs.Pause", which, json).await,
        JobsCommand::Resume(which) => change(methods, "jobs.Resume", which, json).await,
    }
}

async fn change(
    methods: &mut Methods,
    method: &str,
    which: &Named,
    json: bool,
) -> Result<Exit, String> {
    over_rpc::pipelines(methods, method, &which.pipelines).await?;
    if json {
        return say_json(&serde_json::json!({"pipelines": which.pipelines}));
    }
    let is = if method == "jobs.Pause" {
        "paused"
    } else {
        "resumed"
    };
    for pipeline in &which.pipelines {
        mention(&format!("{} is {is}\n", line(pipeline)));
    }
    Ok(Exit::Done)
}

/// What the server did, and for which jobs it did not.
#[derive(Default, Serialize, Deserialize)]
struct Done {
    done: Vec<String>,
    #[serde(default)]
    not_done: Vec<NotDone>,
}

#[derive(Serialize, Deserialize)]
struct NotDone {
    id: String,
    why: String,
}

async fn done(
    methods: &mut Methods,
    method: &str,
    which: &Letters,
    (what, how): (&str, &str),
    json: bool,
) -> Result<Exit, String> {
    // A whole pipeline takes one call.
    let calls = if which.ids.is_empty() {
        vec![which.ids.as_slice()]
    } else {
        which.ids.chunks(MOST_NAMED).collect()
    };
    let mut done = Done::default();
    for ids in calls {
        let named = serde_json::json!({"ids": ids, "pipeline": which.pipeline});
        let next: Done = over_rpc::ask(methods, method, &named).await?;
        done.done.extend(next.done);
        done.not_done.extend(next.not_done);
    }
    if json {
        say_json(&done)?;
    } else {
        let count = counted(done.done.len() as u64, what);
        say(&format!("{count} {how}\n"));
    }
    all_done(&done.not_done)
}

/// The command fails if there is a job for which nothing was done.
fn all_done(not_done: &[NotDone]) -> Result<Exit, String> {
    if not_done.is_empty() {
        return Ok(Exit::Done);
    }
    let why = not_done.iter();
    let why: Vec<_> = why
        .map(|it| format!("{}: {}", line(&it.id), line(&it.why)))
        .collect();
    Err(why.join("\n"))
}

/// As `rr` does it.
async fn by_flag(task: &Task<'_>, jobs: &Jobs, action: JobsAction) -> Result<Exit, String> {
    let program = task.name.program();
    let given = jobs.of.iter().flat_map(|names| names.split(','));
    let names = given.map(str::trim).filter(|name| !name.is_empty());
    let names: Vec<String> = names.map(ToOwned::to_owned).collect();
    if names.is_empty() && action != JobsAction::List {
        return Err(format!(
            "no pipeline is named\nhint: `{program} jobs --list` prints their names"
        ));
    }
    let mut methods = task.methods().await?;
    let shown = match action {
        JobsAction::List => over_rpc::pipelines(&mut methods, "jobs.List", &[]).await?,
        JobsAction::Destroy => over_rpc::pipelines(&mut methods, "jobs.Destroy", &names).await?,
        JobsAction::Pause | JobsAction::Resume => {
            let method = match action {
                JobsAction::Pause => "jobs.Pause",
                _ => "jobs.Resume",
            };
            over_rpc::pipelines(&mut methods, method, &names).await?;
            names
        }
    };
    if jobs.json {
        return say_json(&serde_json::json!({"pipelines": shown}));
    }
    if action == JobsAction::List || !task.arguments.globals.silent {
        let rows: Vec<_> = shown.iter().map(|name| [line(name)]).collect();
        say(&boxes(["PIPELINE ( S )"], &rows));
    }
    Ok(Exit::Done)
}
