//! The service `status`: answers health checks over HTTP as RoadRunner does, on the control thread, which requests for PHP
//! never keep busy.

use std::sync::Arc;
use std::time::Duration;

use pronghorn_http::{
    Accepting, Exchange, Handled, Handler, Limits, Listener, Request, Response, Service,
};
use pronghorn_plugin_api::{self as api, BoxFuture, Context, Handover, NotReady, Running, Stopped};
use pronghorn_workers::IoThread;
use serde::Serialize;
use tokio::runtime::Handle;
use tokio::time::{Instant, timeout_at};

use crate::health::{Health, Question};

/// The listening socket, for the next process.
pub(crate) const STATUS: &str = "status";
/// Probes of a handful of balancers; each has one connection at a time. For more, those without a whole request are closed.
const CONNECTIONS: usize = 256;

/// Health checks before their start.
pub(crate) struct StatusService {
    pub(crate) listener: Listener,
    pub(crate) health: Health,
    pub(crate) unavailable: u16,
    /// How long a client may take to send its request.
    pub(crate) check_timeout: Duration,
}

struct Status {
    service: Arc<Service>,
    /// Until checks are answered.
    listener: Option<Listener>,
    accepting: Option<Accepting>,
}

/// How long a prober's connection is kept at the end.
const IDLE: Duration = Duration::from_millis(100);

/// Answers by path.
struct Checks {
    health: Health,
    unavailable: u16,
}

/// One service's line of an answer.
#[derive(Serialize)]
struct Report<'a> {
    plugin_name: &'a str,
    error_message: String,
    status_code: u16,
}

impl api::Service for StatusService {
    fn name(&self) -> &'static str {
        STATUS
    }

    fn start(
        self: Box<Self>,
        context: Context,
    ) -> BoxFuture<'static, Result<Box<dyn Running>, api::StartError>> {
        Box::pin(async move {
            let checks = Checks {
                health: self.health,
                unavailable: self.unavailable,
            };
            let mut limits = Limits {
                connections: CONNECTIONS,
                ..Limits::default()
            };
            limits.receive.head_time = self.check_timeout;
            let service = Service::new(Arc::new(checks), limits, Arc::default());
            for socket in self.listener.sockets() {
                context.sockets.offer(STATUS, socket)?;
            }
            // Also while the server starts, unless another one answers meanwhile.
            let at_once = !self.listener.was_inherited();
            let mut status = Status {
                service,
                listener: Some(self.listener),
                accepting: None,
            };
            if at_once {
                status.open()?;
            }
            context.readiness.answer_with(|| Ok(()));
            Ok(Box::new(status) as Box<dyn Running>)
        })
    }
}

impl Running for Status {
    fn open(&mut self) -> Result<(), api::StartError> {
        if let Some(listener) = self.listener.take() {
            tracing::debug!(target: "status", address = %listener.place(), "listening");
            let here = [IoThread::of(Handle::current())];
            self.accepting = Some(listener.serve(&here, &self.service)?);
        }
        Ok(())
    }

    fn hand_over(&mut self, step: Handover) {
        if step == Handover::Done {
            self.accepting = None;
        }
    }

    fn stop(self: Box<Self>, deadline: Instant) -> BoxFuture<'static, Stopped> {
        Box::pin(async move {
            _ = timeout_at(deadline, self.service.drain(IDLE)).await; // a probe that is cut off asks again
            drop(self.accepting);
            Stopped::Clean
        })
    }
}

impl Handler for Checks {
    fn handle<'a>(&'a self, request: Request, _: &'a mut dyn Exchange) -> Handled<'a> {
        let response = match request.head.path() {
            b"/health" => self.report(Question::Alive, request.head.query()),
            b"/ready" => self.report(Question::Ready, request.head.query()),
            b"/jobs" if self.health.is_leaving() => Response::plain(503, STOPPING),
            // There are no pipelines yet.
            b"/jobs" => Response::plain(200, "[]"),
            _ => Response::plain(404, "404 page not found\n"),
        };
        Box::pin(std::future::ready(response))
    }
}

const STOPPING: &str = "service is shutting down\n";

impl Checks {
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
