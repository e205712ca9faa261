//! `/api/v1`: what there is to know, as JSON. `openapi.json` says the same in a schema.

use std::fmt::Write;

use pronghorn_base::now_ms;
use pronghorn_control::{PoolStatus, WorkersOf};
use pronghorn_metrics::Reading;
use pronghorn_plugin_api::Question;
use pronghorn_plugin_api::rpc::{Caller, Encoding};
use pronghorn_serve::{Body, Response};
use pronghorn_workers::Pools;
use serde::Serialize;
use serde_json::{Value, json as value};

use super::{Known, json};
use crate::VERSION;
use crate::reports::{Report, groups};
use crate::views::{look_at, pool_status};

const SCHEMA: &str = include_str!("openapi.json");
/// Reports in one answer, the last ones.
const MOST_REPORTS: usize = 100;
/// What is counted by route.
const ROUTES: &str = "pronghorn_http_route_duration_seconds";

impl Known {
    pub(super) async fn answer(&self, path: &[u8]) -> Response {
        let answer = match path {
            b"/" => return page(),
            b"/openapi.json" => return json(200, SCHEMA.to_owned()),
            b"/api/v1/status" => self.status().await,
            b"/api/v1/workers" => self.workers().await,
            b"/api/v1/queue" => self.queue().await,
            b"/api/v1/routes" => self.routes(),
            b"/api/v1/config" => self.config(),
            b"/api/v1/jobs" => return self.asked("jobs.Overview").await,
            b"/api/v1/schedules" => return self.asked("schedules.List").await,
            b"/api/v1/reports" => return self.reports(None).await,
            _ => match path.strip_prefix(b"/api/v1/reports/") {
                Some(id) => return self.reports(Some(id)).await,
                None => return not_found("there is no such page: `/openapi.json` lists all"),
            },
        };
        json(200, answer.to_string())
    }

    async fn pools(&self) -> Vec<PoolStatus> {
        let mut pools = Vec::new();
        for pool in self.pools.get().map(Pools::all).unwrap_or_default() {
            pools.push(pool_status(&pool).await);
        }
        pools
    }

    async fn status(&self) -> Value {
        let ask = |name| self.health.ask(Question::Ready, name);
        let missing = self.health.names().filter_map(ask).find_map(Result::err);
        value!({
            "version": VERSION,
            "pid": std::process::id(),
            "uptime": self.started.elapsed().as_secs(),
            "not_ready": missing.map(|why| why.to_string()),
            "pending": self.configuration.pending(),
            "pools": self.pools().await,
        })
    }

    async fn workers(&self) -> Value {
        let mut pools = Vec::new();
        for pool in self.pools.get().map(Pools::all).unwrap_or_default() {
            pools.push(workers_of(&look_at(&pool).await));
        }
        value!(pools)
    }

    async fn queue(&self) -> Value {
        let queues = self.pools().await.into_iter().map(|pool| {
            value!({
                "pool": pool.name,
                "waiting": pool.waiting,
                "oldest": pool.oldest,
                "workers": pool.workers,
                "busy": pool.busy,
            })
        });
        queues.collect()
    }

    fn routes(&self) -> Value {
        let families = self.metrics.families();
        let family = families.into_iter().find(|family| family.name == ROUTES);
        let series = family.map(|family| family.series).unwrap_or_default();
        let routes = series.into_iter().filter_map(|series| {
            let Reading::Histogram { counts, sum, .. } = series.reading else {
                return None;
            };
            let label = |name: &str| {
                let mut labels = series.labels.iter();
                labels
                    .find(|(known, _)| *known == name)
                    .map(|(_, value)| value.clone())
            };
            let requests: u64 = counts.iter().sum();
            let (pool, route) = (label("pool")?, label("route")?);
            (requests > 0).then(
                || value!({"pool": pool, "route": route, "requests": requests, "seconds": sum}),
            )
        });
        routes.collect()
    }

    /// What the files say, and every value that holds with where it is from, as `config show
    /// --json`.
    fn config(&self) -> Value {
        let parsed = |text: &str| serde_json::from_str::<Value>(text).unwrap_or_default();
        let written = parsed(&self.configuration.json());
        value!({"written": written, "keys": parsed(&self.configuration.effective())})
    }

    /// What a method of RPC tells that needs no argument.
    async fn asked(&self, method: &str) -> Response {
        let Ok(method) = self.methods.find(method) else {
            return not_found("the configuration has no section `jobs`");
        };
        let told = method.call(&Caller::anyone(), Encoding::Json, "{}".into());
        match told.await {
            Ok(told) => json(200, String::from_utf8_lossy(&told).into_owned()),
            Err(failure) => json(500, value!({"error": failure.to_string()}).to_string()),
        }
    }

    /// Files are read beside this thread.
    async fn reports(&self, id: Option<&[u8]>) -> Response {
        let reports = crate::reports::Reports::new(self.reports.folder().to_owned());
        let id = id.map(|id| String::from_utf8_lossy(id).into_owned());
        let is_one = id.is_some();
        let read = move || match &id {
            Some(id) => reports.find(id),
            None => reports.all(),
        };
        match tokio::task::spawn_blocking(read).await {
            Ok(Ok(found)) if is_one => match &found.reports[..] {
                [report] => json(200, value!(report).to_string()),
                _ => not_found("no report, or several, have an ID that begins so"),
            },
            Ok(Ok(found)) => json(200, listed(&found.reports).to_string()),
            Ok(Err(error)) => json(500, value!({"error": error.to_string()}).to_string()),
            Err(error) => json(500, value!({"error": error.to_string()}).to_string()),
        }
    }
}

/// By the names of `workers --json`, which have units.
fn workers_of(pool: &WorkersOf) -> Value {
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

fn not_found(why: &str) -> Response {
    json(404, value!({ "error": why }).to_string())
}

/// For a person who came by.
fn page() -> Response {
    const PAGES: [&str; 12] = [
        "/metrics",
        "/health",
        "/ready",
        "/openapi.json",
        "/api/v1/status",
        "/api/v1/workers",
        "/api/v1/queue",
        "/api/v1/routes",
        "/api/v1/jobs",
        "/api/v1/schedules",
        "/api/v1/reports",
        "/api/v1/config",
    ];
    let mut text =
        String::from("<!doctype html><meta charset=utf-8><title>Pronghorn</title><ul>\n");
    for page in PAGES {
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
    fn the_schema_is_json_and_has_every_page() {
        let schema: Value = serde_json::from_str(SCHEMA).expect("JSON");
        let paths = schema["paths"].as_object().expect("paths");
        let pages: Vec<_> = paths.keys().map(String::as_str).collect();
        let expected = [
            "/api/v1/config",
            "/api/v1/jobs",
            "/api/v1/queue",
            "/api/v1/reports",
            "/api/v1/reports/{id}",
            "/api/v1/routes",
            "/api/v1/schedules",
            "/api/v1/status",
            "/api/v1/workers",
            "/health",
            "/livez",
            "/metrics",
            "/ready",
            "/readyz",
        ];
        assert_eq!(pages, expected);
        for (path, methods) in paths {
            let answer = &methods["get"]["responses"]["200"]["description"];
            assert!(answer.is_string(), "{path}");
        }
    }
}
