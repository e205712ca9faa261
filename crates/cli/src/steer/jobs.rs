//! `jobs`: pipelines by RoadRunner's flags. It asks over RPC, as `rr` does.

use super::boxes::boxes;
use super::text::line;
use super::{Task, over_rpc};
use crate::arguments::{Jobs, JobsAction};
use crate::exit::{Exit, say};

pub(super) async fn run(task: &Task<'_>, jobs: &Jobs) -> Result<Exit, String> {
    let program = task.name.program();
    let Some(action) = JobsAction::of(jobs) else {
        return Err(format!(
            "`jobs` needs `--list`, `--pause`, `--resume` or `--destroy`\n\
             hint: for example `{program} jobs --pause mail,orders`"
        ));
    };
    let given = jobs.of.iter().flat_map(|names| names.split(','));
    let names = given.map(str::trim).filter(|name| !name.is_empty());
    let names: Vec<String> = names.map(ToOwned::to_owned).collect();
    if names.is_empty() && action != JobsAction::List {
        return Err(format!(
            "no pipeline is named\nhint: `{program} jobs --list` prints their names"
        ));
    }
    let mut client = task.rpc_client().await?;
    let shown = match action {
        JobsAction::List => over_rpc::pipelines(&mut client, "jobs.List", &[]).await?,
        JobsAction::Destroy => over_rpc::pipelines(&mut client, "jobs.Destroy", &names).await?,
        JobsAction::Pause | JobsAction::Resume => {
            let method = match action {
                JobsAction::Pause => "jobs.Pause",
                _ => "jobs.Resume",
            };
            over_rpc::pipelines(&mut client, method, &names).await?;
            names
        }
    };
    if action == JobsAction::List || !task.arguments.globals.silent {
        let rows: Vec<_> = shown.iter().map(|name| [line(name)]).collect();
        say(&boxes(["PIPELINE ( S )"], &rows));
    }
    Ok(Exit::Done)
}
