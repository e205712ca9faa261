//! The service `admin`: what a server knows of itself, for people and programs, read-only: metrics,
//! health, and as JSON what services show of themselves: its own pages are status, workers, queues,
//! reports and configuration. Beside them it has the pages of the documentation, where a package
//! has brought them.
//!
//! On the control thread, which requests for PHP never keep busy. Beyond this machine it wants a
//! token; without one it answers no request by a name, which a page in somebody's browser could
//! make.

mod api;
mod documentation;
mod settings;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use pronghorn_config::{Listen, Section, Table};
use pronghorn_http::files::Files;
use pronghorn_metrics_endpoint::{Collectors, Exposition};
use pronghorn_plugin_api::{self as api_of_services, BoxFuture, Context, Pages, Running};
use pronghorn_process::open_files::Share;
use pronghorn_process::socket::Access;
use pronghorn_serve::{
    ControlEndpoint, Exchange, Handled, Handler, Limits, ListenAddress, Listener, Request,
    Response, resolve,
};
use tokio::time::Instant;

use crate::reports::{Reports, folder_in};
use crate::status::{Checks, UNAVAILABLE};
use settings::AdminSettings;

/// The name of the service, and of its listening socket for the next process.
const ADMIN: &str = "admin";
/// What stands before a token.
const SCHEME: &[u8] = b"Bearer ";
const TAKEN_WITHIN: Duration = Duration::from_secs(10);

/// The service before its start.
#[derive(Debug)]
pub(crate) struct AdminService {
    settings: AdminSettings,
    collectors: Collectors,
}

impl AdminService {
    pub(crate) fn new(settings: AdminKeys, collectors: Collectors) -> Self {
        Self {
            settings: settings.0,
            collectors,
        }
    }
}

/// The section, for the table of services.
#[derive(Debug)]
pub(crate) struct AdminKeys(AdminSettings);

impl Section for AdminKeys {
    fn read(t: &mut Table<'_>) -> Self {
        Self(AdminSettings::read(t))
    }
}

/// Answers by path.
struct Admin {
    token: Option<String>,
    /// Whether it is reached by a path: no page in a browser finds it.
    is_unix: bool,
    exposition: Exposition,
    checks: Checks,
    pages: Pages,
    documentation: Option<Arc<Files>>,
}

impl api_of_services::Service for AdminService {
    fn listens(&self) -> Vec<Listen> {
        vec![self.settings.listen.clone()]
    }

    fn serves(&self) -> bool {
        false
    }

    fn start(
        self: Box<Self>,
        context: Context,
    ) -> BoxFuture<'static, Result<Box<dyn Running>, api_of_services::StartError>> {
        Box::pin(async move { Ok(Box::new(self.serve(&context)?) as _) })
    }
}

impl AdminService {
    fn serve(self, context: &Context) -> Result<ControlEndpoint, api_of_services::StartError> {
        let mut inherited = context.sockets.take(ADMIN);
        let listener = match &self.settings.listen {
            Listen::Tcp(address) => Listener::open(resolve(address)?, 1, &mut inherited)?,
            Listen::Unix(path) => {
                let path = context.folder.join(path);
                let is_systemds = context.sockets.is_systemds(&path);
                Listener::open_unix(&path, Access::only(&[]), is_systemds, &mut inherited)?
            }
        };
        context.metrics.announce_reader();
        let known = api::Known {
            health: context.health.clone(),
            pools: context.pools.clone(),
            configuration: context.configuration.clone(),
            reports: Reports::new(folder_in(&context.state)),
            started: Instant::now(),
        };
        known.show(&context.pages);
        let admin = Admin {
            token: self.settings.token,
            is_unix: matches!(self.settings.listen, Listen::Unix(_)),
            exposition: Exposition::new(context, &self.collectors),
            checks: Checks {
                health: context.health.clone(),
                unavailable: UNAVAILABLE,
            },
            pages: context.pages.clone(),
            documentation: documentation::open(),
        };
        let limits = Limits {
            connections: Share::ADMIN.connections(),
            whole_response: Some(TAKEN_WITHIN),
            ..Limits::default()
        };
        context.readiness.answer_with(|| Ok(()));
        let at_once = !listener.was_inherited();
        let opened = |address: &ListenAddress| tracing::debug!(target: "server", %address, "the admin listener listens");
        let admin = Arc::new(admin);
        let mut serving = ControlEndpoint::new(ADMIN, context, listener, admin, limits, opened)?;
        if at_once {
            serving.open()?;
        }
        Ok(serving)
    }
}

impl Handler for Admin {
    fn handle<'a>(&'a self, request: Request, exchange: &'a mut dyn Exchange) -> Handled<'a> {
        match request.head.path() {
            b"/health" | b"/livez" | b"/ready" | b"/readyz" => {
                return self.checks.handle(request, exchange);
            }
            _ => {}
        }
        if !matches!(request.head.method(), "GET" | "HEAD") {
            let refusal = Response::plain(405, "everything here is read-only\n");
            return Box::pin(std::future::ready(refusal));
        }
        if documentation::is_asked(request.head.path()) {
            return Box::pin(documentation::answer(self.documentation.as_ref(), request));
        }
        if let Some(refusal) = self.refusal(&request) {
            return Box::pin(std::future::ready(refusal));
        }
        if request.head.path() == b"/metrics" {
            return self.exposition.handle(request, exchange);
        }
        let has_documentation = self.documentation.is_some();
        Box::pin(
            async move { api::answer(&self.pages, has_documentation, request.head.path()).await },
        )
    }
}

impl Admin {
    fn refusal(&self, request: &Request) -> Option<Response> {
        let Some(token) = &self.token else {
            let is_name = !self.is_unix && !is_address(&request.head.host());
            return is_name.then(|| {
                let why = "without `admin.token`, ask by an IP address or by `localhost`\n";
                Response::plain(403, why)
            });
        };
        let sent = request.head.fields().get("authorization");
        let sent = sent.and_then(|sent| {
            // RFC 9110, 11.1: schemes have no case.
            let (scheme, token) = sent.split_at_checked(SCHEME.len())?;
            scheme.eq_ignore_ascii_case(SCHEME).then_some(token)
        });
        if sent.is_some_and(|sent| is_same(sent, token.as_bytes())) {
            return None;
        }
        let mut response = Response::plain(401, "send `Authorization: Bearer TOKEN`\n");
        response.fields.push("WWW-Authenticate", "Bearer");
        Some(response)
    }
}

/// In the same time, wherever they differ.
fn is_same(sent: &[u8], token: &[u8]) -> bool {
    let pairs = sent.iter().zip(token);
    let differs = pairs.fold(0, |differs, (one, other)| differs | (one ^ other));
    sent.len() == token.len() && differs == 0
}

/// Whether a `Host` is no name that somebody may have pointed here.
fn is_address(host: &str) -> bool {
    let ip = host.strip_prefix('[').and_then(|ip| ip.strip_suffix(']'));
    host == "localhost" || ip.unwrap_or(host).parse::<IpAddr>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_no_address() {
        for host in ["127.0.0.1", "localhost", "[::1]", "10.0.0.1"] {
            assert!(is_address(host), "{host}");
        }
        for host in ["evil.example", "localhost.evil.example", "", "[evil]"] {
            assert!(!is_address(host), "{host}");
        }
    }

    #[test]
    fn a_token_is_the_same_as_a_whole() {
        assert!(is_same(b"abc", b"abc"));
        for sent in [&b""[..], b"ab", b"abd", b"abcd"] {
            assert!(!is_same(sent, b"abc"));
        }
    }
}
