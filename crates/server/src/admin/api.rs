//! `/api/v1`: pages of services and of the server as a whole, as JSON. `openapi.json` with the
//! schemas of the pages says the same.

use std::fmt::Write;
use std::sync::{Arc, OnceLock};

use pronghorn_base::now_ms;
use pronghorn_control::{PoolStatus, WorkersOf};
use pronghorn_plugin_api::{Configuration, Health, NotShown, Pages, Question, Shown};
use pronghorn_serve::{Body, Response};
use pronghorn_workers::{PoolFacts, Pools};
use serde::Serialize;
use serde_json::{Value, json as value};
use tokio::time::Instant;

use crate::VERSION;
use crate::reports::{Report, Reports, groups};
use crate::views::{pool_status, processes_of, workers_of};

/// The paths that are no pages, and how to show the token.
const SCHEMA: &str = include_str!("openapi.json");
/// The beginning of paths to pages.
const BELOW: &str = "/api/v1/";
/// Reports in one answer, the last ones.
const MOST_REPORTS: usize = 100;

/// Answers by the path of a request that may read everything.
pub(super) async fn answer(pages: &Pages, has_documentation: bool, path: &[u8]) -> Response {
    match path {
        b"/" => return page(pages, has_documentation),
        b"/openapi.json" => return json(200, schema(pages).to_string()),
        _ => {}
    }
    let path = std::str::from_utf8(path).ok();
    let shown = path
        .and_then(|path| path.strip_prefix(BELOW))
        .and_then(|path| pages.read(path));
    let Some(shown) = shown else {
        return not_found("there is no such page: `/openapi.json` lists all");
    };
    match shown.await {
        Ok(text) => json(200, text),
        Err(NotShown::Missing(why)) => not_found(&why),
        Err(NotShown::Failed(why)) => json(500, value!({ "error": why }).to_string()),
    }
}

/// The schema of this server: with the pages of its services.
fn schema(pages: &Pages) -> Value {
    let parsed = |text| serde_json::from_str::<Value>(text).expect("a schema is JSON");
    let mut schema = parsed(SCHEMA);
    let Some(paths) = schema["paths"].as_object_mut() else {
        unreachable!("the schema has paths");
    };
    for (_, page) in pages.schemas() {
        if let Value::Object(page) = parsed(page) {
            paths.extend(page);
        }
    }
    paths.sort_keys();
    schema
}

/// Facts about the server as a whole.
pub(super) struct Known {
    pub(super) health: Health,
    pub(super) pools: Arc<OnceLock<Pools>>,
    pub(super) configuration: Configuration,
    pub(super) reports: Reports,
    pub(super) started: Instant,
}

impl Known {
    /// Brings the pages that belong to the server as a whole.
    pub(super) fn show(self, pages: &Pages) {
        let known = Arc::new(self);
        let of = known.clone();
        let schema = include_str!("pages/status.json");
        pages.add("status", schema, move || of.clone().status());
        let of = known.clone();
        let schema = include_str!("pages/workers.json");
        pages.add("workers", schema, move || of.clone().workers());
        let of = known.clone();
        let schema = include_str!("pages/queue.json");
        pages.add("queue", schema, move || of.clone().queue());
        let of = known.clone();
        let config = move || std::future::ready(Ok(of.config().to_string()));
        pages.add("config", include_str!("pages/config.json"), config);
        let schema = include_str!("pages/reports.json");
        pages.add_with_parts("reports", schema, move |id| known.clone().reports(id));
    }

    async fn facts(&self) -> Vec<PoolFacts> {
        match self.pools.get() {
            Some(pools) => pools.facts().await,
            None => Vec::new(),
        }
    }

    async fn pools(&self) -> Vec<PoolStatus> {
        self.facts().await.iter().map(pool_status).collect()
    }

    async fn status(self: Arc<Self>) -> Shown {
        let ask = |name| self.health.ask(Question::Ready, name);
        let missing = self.health.names().filter_map(ask).find_map(Result::err);
        let status = value!({
            "version": VERSION,
            "pid": std::process::id(),
            "uptime": self.started.elapsed().as_secs(),
            "not_ready": missing.map(|why| why.to_string()),
            "pending": self.configuration.pending(),
            "pools": self.pools().await,
        });
        Ok(status.to_string())
    }

    async fn workers(self: Arc<Self>) -> Shown {
        let facts = self.facts().await;
        let mut all: Vec<_> = facts.iter().map(workers_of).collect();
        all.extend(processes_of(self.health.processes()));
        let pools = all.iter().map(listed_workers);
        Ok(pools.collect::<Value>().to_string())
    }

    async fn queue(self: Arc<Self>) -> Shown {
        let queues = self.pools().await.into_iter().map(|pool| {
            value!({
                "pool": pool.name,
                "waiting": pool.waiting,
                "oldest": pool.oldest,
                "workers": pool.workers,
                "busy": pool.busy,
            })
        });
        Ok(queues.collect::<Value>().to_string())
    }

    /// What the files say, and every value that holds with where it is from, as `config show
    /// --json`.
    fn config(&self) -> Value {
        let parsed = |text: &str| serde_json::from_str::<Value>(text).unwrap_or_default();
        let written = parsed(&self.configuration.json());
        value!({"written": written, "keys": parsed(&self.configuration.effective())})
    }

    /// Files are read beside this thread.
    async fn reports(self: Arc<Self>, id: Option<String>) -> Shown {
        let reports = Reports::new(self.reports.folder().to_owned());
        let is_one = id.is_some();
        let read = move || match &id {
            Some(id) => reports.find(id),
            None => reports.all(),
        };
        let found = tokio::task::spawn_blocking(read).await;
        let failed = |error: &dyn std::fmt::Display| NotShown::Failed(error.to_string());
        let found = found.map_err(|error| failed(&error))?;
        let found = found.map_err(|error| failed(&error))?;
        match &found.reports[..] {
            reports if !is_one => Ok(listed(reports).to_string()),
            [report] => Ok(value!(report).to_string()),
            _ => Err(NotShown::Missing(
                "no report, or several, have an ID that begins so".to_owned(),
            )),
        }
    }
}

/// By the names of `workers --json`, which have units.
fn listed_workers(pool: &WorkersOf) -> Value {
    let now = now_ms();
    let workers = pool.workers.iter().map(|worker| {
        let request = worker.request.as_ref();
        let request = request.map(|request| value!({"what": request.what, "age_ms": request.age}));
        value!({
            "pid": worker.pid,
            "slot": worker.slot,
            "generation": worker.generation,
            "state": worker.state,
            "transport": worker.transport,
            "forked_by": worker.forked_by,
            "age_ms": now.saturating_sub(worker.started),
            "executions": worker.executions,
            "memory_bytes": worker.memory,
            "cpu_ms": worker.cpu,
            "request": request,
        })
    });
    value!({
        "pool": pool.pool,
        "service": pool.plugin,
        "waiting": pool.waiting,
        "workers": workers.collect::<Vec<_>>(),
    })
}

/// A report in a list.
#[derive(Serialize)]
struct Listed<'a> {
    id: &'a str,
    time: &'a str,
    kind: &'a str,
    pool: &'a str,
    cause: &'a str,
    group: &'a str,
    request: Option<&'a str>,
}

impl<'a> From<&'a Report> for Listed<'a> {
    fn from(report: &'a Report) -> Self {
        Self {
            id: &report.id,
            time: &report.time,
            kind: &report.kind,
            pool: &report.pool,
            cause: &report.cause,
            group: &report.group,
            request: report.request.as_ref().map(|request| &*request.what),
        }
    }
}

fn listed(reports: &[Report]) -> Value {
    let last = reports.iter().rev().take(MOST_REPORTS);
    let groups = groups(reports);
    let groups = groups.iter().map(|group| {
        let last = Listed::from(&group.last);
        value!({"reports": group.reports, "last": last})
    });
    value!({
        "total": reports.len(),
        "reports": last.map(Listed::from).collect::<Vec<_>>(),
        "groups": groups.collect::<Vec<_>>(),
    })
}

fn json(status: u16, text: String) -> Response {
    let mut response = Response::new(status, Body::Whole(text.into()));
    response.fields.push("Content-Type", "application/json");
    response.fields.push("Cache-Control", "no-store");
    response
}

fn not_found(why: &str) -> Response {
    json(404, value!({ "error": why }).to_string())
}

/// For a person who came by.
fn page(pages: &Pages, has_documentation: bool) -> Response {
    const OTHERS: [&str; 4] = ["/metrics", "/health", "/ready", "/openapi.json"];
    let schemas = pages.schemas();
    let names = schemas.iter().map(|(name, _)| format!("{BELOW}{name}"));
    let mut text =
        String::from("<!doctype html><meta charset=utf-8><title>Pronghorn</title><ul>\n");
    let documentation = has_documentation.then(|| "/docs/".to_owned());
    let others = OTHERS.map(str::to_owned).into_iter();
    for page in others.chain(documentation).chain(names) {
        _ = writeln!(text, "<li><a href=\"{page}\">{page}</a>"); // a String takes all
    }
    let mut response = Response::new(200, Body::Whole(text.into()));
    response
        .fields
        .push("Content-Type", "text/html; charset=utf-8");
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_schema_has_the_pages_of_services() {
        let pages = Pages::default();
        let own = [
            ("config", include_str!("pages/config.json")),
            ("queue", include_str!("pages/queue.json")),
            ("reports", include_str!("pages/reports.json")),
            ("status", include_str!("pages/status.json")),
            ("workers", include_str!("pages/workers.json")),
        ];
        for (name, schema) in own {
            pages.add(name, schema, async || Ok("{}".to_owned()));
        }
        let schema = schema(&pages);
        let paths = schema["paths"].as_object().expect("paths");
        let found: Vec<_> = paths.keys().map(String::as_str).collect();
        let expected = [
            "/api/v1/config",
            "/api/v1/queue",
            "/api/v1/reports",
            "/api/v1/reports/{id}",
            "/api/v1/status",
            "/api/v1/workers",
            "/health",
            "/livez",
            "/metrics",
            "/ready",
            "/readyz",
        ];
        assert_eq!(found, expected);
        for (path, methods) in paths {
            let answer = &methods["get"]["responses"]["200"]["description"];
            assert!(answer.is_string(), "{path}");
        }
    }
}
