//! `jobs.Await` and `jobs.Progress`: what comes of a job, and how far it has come.

use std::time::Duration;

use pronghorn_plugin_api::rpc::{Argument, Caller, Failure, Methods, Outcome};
use serde::{Deserialize, Serialize};
use tokio::time::sleep;

use crate::keys::Progress;
use crate::pipelines::{Pipelines, Standing};
use crate::results::{Ended, Visible, Waited};

/// Of one question; who wants to wait longer asks again.
const LONGEST_WAIT: Duration = Duration::from_mins(1);
/// Of a text that says what a job is at.
const LONGEST_TEXT: usize = 500;
/// A job may be on its way from its pipeline to a worker, or from there: it is looked for again.
const ON_ITS_WAY: Duration = Duration::from_millis(100);

pub(super) fn add(methods: &Methods, pipelines: &Pipelines) {
    let of = pipelines.clone();
    let by_caller = methods.service_by_caller("jobs", move |caller| (of.clone(), caller.clone()));
    by_caller.add_while_connected("Await", wait);
    by_caller.add_on_any_thread("Progress", progress);
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Wait {
    id: String,
    /// The pipeline of the job. Empty: any that the caller may see.
    pipeline: String,
    timeout_ms: u64,
    /// Where the job stands is wanted if it is not done by then, or sooner where waiting is no use.
    explain: bool,
}

impl Argument for Wait {}

#[derive(Default, Serialize)]
struct Answer {
    /// `done`, `failed`, `waiting`: not by then, or not known, or `stopping`: not before the server
    /// stopped.
    state: &'static str,
    /// JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    /// What was thrown, where, and PHP's stack there.
    #[serde(skip_serializing_if = "Option::is_none")]
    trace: Option<String>,
    /// Of a job that a worker has: 0 to 1, and what it is at.
    #[serde(skip_serializing_if = "Option::is_none")]
    progress: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    progress_text: Option<String>,
    /// Nothing, where that can't be told.
    #[serde(skip_serializing_if = "Option::is_none")]
    standing: Option<Standing>,
    /// Where the job is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pipeline: Option<String>,
}

impl Outcome for Answer {}

#[derive(Default, Deserialize)]
#[serde(default)]
struct SaidProgress {
    id: String,
    done: f64,
    text: String,
}

impl Argument for SaidProgress {}

/// Of a job that runs: others have come to their end meanwhile.
async fn progress(
    (pipelines, caller): (Pipelines, Caller),
    said: SaidProgress,
) -> Result<bool, Failure> {
    if !(0.0..=1.0).contains(&said.done) {
        let done = said.done;
        return Err(Failure::new(format!(
            "a progress of {done}; accepted: 0 to 1"
        )));
    }
    let progress = Progress {
        done: said.done,
        text: said.text.chars().take(LONGEST_TEXT).collect(),
    };
    let visible = pipelines.seen_by(&caller);
    Ok(pipelines.keys().note_progress(&visible, &said.id, progress))
}

async fn wait((pipelines, caller): (Pipelines, Caller), asked: Wait) -> Result<Answer, Failure> {
    let (id, mut visible) = (&asked.id, pipelines.seen_by(&caller));
    if !asked.pipeline.is_empty() {
        visible = visible.only(&asked.pipeline);
    }
    let visible = &visible;
    let mut within = Duration::from_millis(asked.timeout_ms).min(LONGEST_WAIT);
    if asked.explain
        && (pipelines.runs_unheard(visible, id) || pipelines.is_nowhere(visible, id).await)
    {
        within = Duration::ZERO;
    }
    let mut waited = wait_for_end(&pipelines, visible, id, within).await;
    let mut place = None;
    if waited == Waited::NotYet && asked.explain {
        place = pipelines.standing(visible, id).await;
        let again = match place {
            Some((Standing::Unknown, _)) => ON_ITS_WAY,
            _ => Duration::ZERO,
        };
        // It may have ended meanwhile.
        waited = wait_for_end(&pipelines, visible, id, again).await;
        if waited == Waited::NotYet && !again.is_zero() {
            place = pipelines.standing(visible, id).await;
        }
    }
    Ok(match waited {
        Waited::Ambiguous(all) => return Err(ambiguous(id, OF_AWAIT, &all)),
        Waited::Ended(ended) => {
            if asked.pipeline.is_empty() {
                let all = pipelines.with_result(visible, id).await;
                if all.len() > 1 {
                    return Err(ambiguous(id, OF_AWAIT, &all));
                }
            }
            // It is a text within the answer, and what it is written to is as long again.
            caller.reserve(2 * ended.len()).await;
            Answer::ended(ended)
        }
        Waited::NotYet => Answer::waiting(&pipelines, visible, id, place),
        Waited::Over => Answer {
            state: "stopping",
            ..Answer::default()
        },
    })
}

/// The parameter that says which job is meant.
const OF_AWAIT: &str = "`pipeline` of `jobs.Await`";
/// Pipelines that a complaint names.
const MOST_NAMED: usize = 10;

/// Whoever pushes chooses the ID, so none of these is taken for the one that is meant.
pub(super) fn ambiguous<'a>(
    id: &str,
    what_says: &str,
    pipelines: impl IntoIterator<Item = &'a String>,
) -> Failure {
    let named = pipelines.into_iter().take(MOST_NAMED);
    let named: Vec<_> = named
        .map(|name| format!("`{}`", name.escape_debug()))
        .collect();
    let (id, named) = (id.escape_debug(), named.join(", "));
    Failure::new(format!(
        "jobs of several pipelines have the ID `{id}`: {named} (hint: {what_says} says which one is \
         meant)"
    ))
}

/// While the server stops, it waits only for a job that a worker has: one that waits itself, in a
/// pipeline, does not begin any more.
async fn wait_for_end(
    pipelines: &Pipelines,
    visible: &Visible,
    id: &str,
    within: Duration,
) -> Waited {
    let does_not_begin = async {
        pipelines.dispatch().nothing_begins().cancelled().await;
        sleep(ON_ITS_WAY).await;
        if pipelines.keys().running_in(visible, id).is_some() {
            std::future::pending::<()>().await;
        }
    };
    tokio::select! {
        biased;
        waited = pipelines.results().wait(visible, id, within) => waited,
        () = does_not_begin => Waited::Over,
    }
}

impl Answer {
    fn ended(ended: Ended) -> Self {
        match ended {
            Ended::Done(result) => Self {
                state: "done",
                result: (!result.is_empty()).then(|| String::from_utf8_lossy(&result).into_owned()),
                ..Self::default()
            },
            Ended::Failed(reason) => Self {
                state: "failed",
                error: Some(reason.message),
                trace: reason.trace,
                ..Self::default()
            },
        }
    }

    fn waiting(
        pipelines: &Pipelines,
        visible: &Visible,
        id: &str,
        place: Option<(Standing, String)>,
    ) -> Self {
        let running = pipelines.keys().running_in(visible, id);
        let progress = running.and_then(|it| it.progress);
        let (progress, progress_text) = progress.map(|it| (it.done, it.text)).unzip();
        let (standing, pipeline) = place.unzip();
        Self {
            state: "waiting",
            progress,
            progress_text,
            standing,
            pipeline: pipeline.filter(|pipeline| !pipeline.is_empty()),
            ..Self::default()
        }
    }
}
