//! The service `status`: answers health checks over RPC and, where there is a section for it, over
//! HTTP as RoadRunner does. On the control thread, which requests for PHP never keep busy.

mod methods;
mod settings;

use std::sync::Arc;
use std::time::Duration;

use pronghorn_config::{Listen, Table};
use pronghorn_plugin_api::{
    self as api, BoxFuture, Context, Health, NotReady, Question, QueueReport, Running, Stopped,
};
use pronghorn_process::open_files::Share;
use pronghorn_serve::{
    ControlEndpoint, Exchange, Handled, Handler, Limits, ListenAddress, Listener, Request,
    Response, resolve,
};
use serde::Serialize;
use tokio::time::Instant;

use settings::StatusSettings;
pub(crate) use settings::UNAVAILABLE;

/// The name of the service, and of its listening socket for the next process.
const STATUS: &str = "status";
/// A balancer gives up sooner: nobody waits longer for an answer of one line.
const TAKEN_WITHIN: Duration = Duration::from_secs(10);

/// Health checks before their start.
#[derive(Debug)]
pub(crate) struct StatusService {
    /// None: over RPC alone.
    settings: Option<StatusSettings>,
}

impl StatusService {
    pub(crate) fn read(t: &mut Table<'_>) -> Self {
        Self {
            settings: t.optional_section(
                STATUS,
                "Health checks over HTTP. Without this section, there are none.",
            ),
        }
    }
}

/// Without a listener: RPC has the methods, and nothing is left to do.
struct OverRpc;

/// Answers by path.
pub(crate) struct Checks {
    pub(crate) health: Health,
    pub(crate) unavailable: u16,
}

/// One service's line of an answer.
#[derive(Serialize)]
struct Report<'a> {
    plugin_name: &'a str,
    error_message: String,
    status_code: u16,
}

/// A pipeline's line of the answer about jobs.
#[derive(Serialize)]
struct Pipeline<'a> {
    pipeline: &'a str,
    priority: i64,
    ready: bool,
    queue: &'a str,
    active: u64,
    delayed: u64,
    reserved: u64,
    driver: &'a str,
    error_message: &'a str,
}

impl<'a> Pipeline<'a> {
    fn of(report: &'a QueueReport) -> Self {
        Self {
            pipeline: &report.pipeline,
            priority: report.priority,
            ready: report.ready,
            queue: &report.queue,
            active: report.active,
            delayed: report.delayed,
            reserved: report.reserved,
            driver: &report.driver,
            error_message: &report.error,
        }
    }
}

impl api::Service for StatusService {
    fn listens(&self) -> Vec<Listen> {
        let settings = self.settings.iter();
        settings
            .map(|settings| Listen::Tcp(settings.address.clone()))
            .collect()
    }

    fn serves(&self) -> bool {
        false
    }

    fn drain_delay(&self) -> Duration {
        self.settings
            .as_ref()
            .map_or(Duration::ZERO, |settings| settings.drain_delay)
    }

    fn start(
        self: Box<Self>,
        context: Context,
    ) -> BoxFuture<'static, Result<Box<dyn Running>, api::StartError>> {
        Box::pin(async move {
            let settings = self.settings.as_ref();
            let unavailable =
                settings.map_or(UNAVAILABLE, |settings| settings.unavailable_status_code);
            methods::add(&context.rpc, &context.health, unavailable);
            context.readiness.answer_with(|| Ok(()));
            match settings {
                Some(settings) => Ok(Box::new(settings.serve(&context)?) as _),
                None => Ok(Box::new(OverRpc) as _),
            }
        })
    }
}

impl Running for OverRpc {
    fn stop(self: Box<Self>, _: Instant) -> BoxFuture<'static, Stopped> {
        Box::pin(std::future::ready(Stopped::Clean))
    }
}

impl StatusSettings {
    fn serve(&self, context: &Context) -> Result<ControlEndpoint, api::StartError> {
        let mut inherited = context.sockets.take(STATUS);
        let listener = Listener::open(resolve(&self.address)?, 1, &mut inherited)?;
        let checks = Checks {
            health: context.health.clone(),
            unavailable: self.unavailable_status_code,
        };
        let mut limits = Limits {
            connections: Share::STATUS.connections(),
            whole_response: Some(TAKEN_WITHIN),
            ..Limits::default()
        };
        limits.receive.head_time = self.check_timeout;
        // Also while the server starts, unless another one answers meanwhile.
        let at_once = !listener.was_inherited();
        let opened =
            |address: &ListenAddress| tracing::debug!(target: "status", %address, "listening");
        let checks = Arc::new(checks);
        let mut status = ControlEndpoint::new(STATUS, context, listener, checks, limits, opened)?;
        if at_once {
            status.open()?;
        }
        Ok(status)
    }
}

impl Handler for Checks {
    fn handle<'a>(&'a self, request: Request, _: &'a mut dyn Exchange) -> Handled<'a> {
        let response = match request.head.path() {
            // The longer names are RoadRunner 3's.
            b"/health" | b"/livez" => self.report(Question::Alive, request.head.query()),
            b"/ready" | b"/readyz" => self.report(Question::Ready, request.head.query()),
            b"/jobs" if self.health.is_leaving() => Response::plain(503, STOPPING),
            b"/jobs" => return Box::pin(self.pipelines()),
            _ => Response::plain(404, "404 page not found\n"),
        };
        Box::pin(std::future::ready(response))
    }
}

const STOPPING: &str = "service is shutting down\n";

impl Checks {
    async fn pipelines(&self) -> Response {
        let reports = self.health.queues().ask().await.unwrap_or_default();
        let is_well = reports.iter().all(|report| report.error.is_empty());
        let status = if is_well { 200 } else { self.unavailable };
        let pipelines: Vec<_> = reports.iter().map(Pipeline::of).collect();
        let json = serde_json::to_string(&pipelines).expect("strings and numbers are JSON");
        Response::plain(status, &json)
    }

    fn report(&self, question: Question, query: Option<&[u8]>) -> Response {
        if self.health.is_leaving() {
            // A server that stops is not to be restarted.
            let status = match question {
                Question::Alive => 200,
                Question::Ready => 503,
            };
            return Response::plain(status, STOPPING);
        }
        let asked = asked_for(query.unwrap_or_default());
        let all: Vec<_> = self.health.names().map(ToOwned::to_owned).collect();
        let names = if asked.is_empty() { all } else { asked };
        let mut status = 200;
        let mut reports = Vec::new();
        for name in &names {
            let (status_code, error_message) = match self.health.ask(question, name) {
                None => continue,
                Some(Ok(())) => (200, String::new()),
                Some(Err(NotReady(why))) => (self.unavailable, why.into_owned()),
            };
            if status_code != 200 {
                status = status_code;
            }
            reports.push(Report {
                plugin_name: name,
                error_message,
                status_code,
            });
        }
        let json = serde_json::to_string(&reports).expect("strings and numbers are JSON");
        Response::plain(status, &json)
    }
}

/// The values of `plugin` in a query: names of services, which need no decoding.
fn asked_for(query: &[u8]) -> Vec<String> {
    let pairs = query.split(|byte| *byte == b'&');
    let names = pairs.filter_map(|pair| pair.strip_prefix(b"plugin="));
    names
        .map(|name| String::from_utf8_lossy(name).into_owned())
        .collect()
}

#[cfg(test)]
mod tests;
