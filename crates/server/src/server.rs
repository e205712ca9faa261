//! From a configuration to a running server, and to its orderly end.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use pronghorn_config::Endpoint;
use pronghorn_lock::Lock;
use pronghorn_plugin_api::rpc::Methods;
use pronghorn_plugin_api::{Context, Readiness, Running, Service, Stopped};
use pronghorn_process::{Credentials, Spawner, open_files};
use pronghorn_rpc::{Listener, Rpc};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::control::{Control, Serving};
use crate::error::StartError;
use crate::health::Health;
use crate::http::{CrewInfo, HttpService, Site, resolve};
use crate::rpc;
use crate::settings::{Settings, StatusSettings, UNAVAILABLE};
use crate::status::StatusService;
use crate::workers::Pools;

/// What to start.
#[derive(Debug)]
pub struct Plan {
    pub settings: Settings,
    /// Where workers run and relative paths begin, as the operator wrote it.
    pub folder: PathBuf,
    /// What workers inherit.
    pub environment: Vec<(OsString, OsString)>,
    pub development: bool,
    /// The files that the settings came from, to watch in development.
    pub configuration: Vec<PathBuf>,
    /// What was written in them, as JSON without secrets, for `rpc.Config`.
    pub written: String,
    /// What the command line will steer it by.
    pub control: Control,
}

/// A server that serves.
pub struct Server {
    /// In the order in which they were started.
    services: Vec<(&'static str, Box<dyn Running>)>,
    shutdown: CancellationToken,
    site: Arc<OnceLock<Site>>,
    grace: Duration,
    /// Between the moment at which nothing is ready any more and the one at which nothing new is taken.
    drain_delay: Duration,
    health: Health,
    spawner: Spawner,
    control: Control,
}

impl Server {
    /// Brings everything up: what workers call comes before them.
    ///
    /// Must be called on the control runtime, which needs I/O and time, and lives as long as the server.
    ///
    /// # Errors
    ///
    /// What is in the way. Nothing is left running then.
    pub async fn start(plan: Plan) -> Result<Self, StartError> {
        let mut server = Self {
            services: Vec::new(),
            shutdown: CancellationToken::new(),
            site: Arc::default(),
            grace: plan.settings.endure.grace_period,
            drain_delay: Duration::ZERO,
            health: Health::default(),
            spawner: Spawner::start()?,
            control: plan.control.clone(),
        };
        let mut serving = Serving {
            site: server.site.clone(),
            health: server.health.clone(),
            rpc: None,
        };
        let status = plan.settings.status.as_ref();
        server.drain_delay = status.map_or(Duration::ZERO, |status| status.drain_delay);
        let unavailable = status.map_or(UNAVAILABLE, |status| status.unavailable_status_code);
        let methods = Methods::default();
        rpc::add(&methods, &server.health, &server.site, unavailable);
        let services: Vec<_> = server
            .services_of(plan, &mut serving)?
            .into_iter()
            .map(|service| (service, Readiness::default()))
            .collect();
        let with_workers = services.iter().filter(|(service, _)| service.has_workers());
        let watched = with_workers.map(|(service, readiness)| (service.name(), readiness.clone()));
        server.health.watch(watched.collect());
        for (service, readiness) in services {
            let name = service.name();
            let context = Context {
                shutdown: server.shutdown.clone(),
                rpc: methods.clone(),
                readiness,
            };
            match service.start(context).await {
                Ok(running) => server.services.push((name, running)),
                Err(error) => return Err(StartError::of_service(name, error)),
            }
        }
        server.control.serves(serving);
        Ok(server)
    }

    fn services_of(
        &self,
        plan: Plan,
        serving: &mut Serving,
    ) -> Result<Vec<Box<dyn Service>>, StartError> {
        let Settings {
            server,
            http,
            rpc,
            status,
            ..
        } = plan.settings;
        let user = worker_user(server.user.as_deref(), server.group.as_deref())?;
        let mut services: Vec<Box<dyn Service>> = Vec::new();
        let mut rpc_for_workers = None;
        if let Some(rpc) = rpc {
            let owner = user.as_ref().map(|(_, credentials)| credentials);
            let endpoint = match rpc.listen {
                Endpoint::Unix(path) => Endpoint::Unix(plan.folder.join(path)),
                tcp @ Endpoint::Tcp(_) => tcp,
            };
            let listener = Listener::bind(&endpoint, owner)
                .map_err(|error| StartError::of_service("rpc", error.into()))?;
            rpc_for_workers = Some(listener.endpoint_for_workers().to_string());
            serving.rpc = Some(listener.endpoint().to_string());
            let written = plan.written;
            services.push(Box::new(Rpc::new(listener, move || written.clone())));
        }
        let serves = !services.is_empty() || http.is_some();
        services.push(Box::new(Lock));
        if let Some(status) = status {
            services.push(Box::new(self.status(&status)?));
        }
        match http {
            Some(settings) => services.push(Box::new(HttpService {
                settings,
                server,
                user,
                folder: plan.folder,
                environment: plan.environment,
                rpc: rpc_for_workers,
                development: plan.development,
                configuration: plan.configuration,
                spawner: self.spawner.clone(),
                open_files: open_files::raise(),
                site: self.site.clone(),
            })),
            None if !serves => return Err(StartError::Nothing),
            None => {
                tracing::warn!(target: "server", "there is no section `http`: no worker is started");
            }
        }
        Ok(services)
    }

    fn status(&self, settings: &StatusSettings) -> Result<StatusService, StartError> {
        let listener = resolve(&settings.address)
            .and_then(|address| Ok(pronghorn_http::Listener::bind(address, 1)?));
        Ok(StatusService {
            listener: listener.map_err(|error| StartError::of_service("status", error.into()))?,
            health: self.health.clone(),
            unavailable: settings.unavailable_status_code,
            check_timeout: settings.check_timeout,
        })
    }

    /// Where HTTP is served.
    pub fn address(&self) -> Option<SocketAddr> {
        self.site.get()?.address
    }

    /// The pools of HTTP; none without it.
    pub fn pools(&self) -> Option<Pools> {
        Some(self.site.get()?.pools.clone())
    }

    /// Who works in which pool, for the one line that greets a person.
    pub fn crews(&self) -> &[CrewInfo] {
        self.site.get().map_or(&[], |site| &site.crews)
    }

    /// Stops the services in the reverse order of their start. All of it within the grace period; what still runs then is
    /// ended, and a record says what that was. Before, health checks say that nothing is ready, for as long as `drain_delay`.
    pub async fn stop(mut self) {
        self.control.stops();
        self.health.leave();
        if !self.drain_delay.is_zero() {
            let seconds = self.drain_delay.as_secs_f32();
            tracing::info!(target: "server", "serving for {seconds} s more, until health checks were heard");
            tokio::time::sleep(self.drain_delay).await;
        }
        let deadline = Instant::now() + self.grace;
        self.shutdown.cancel();
        while let Some((name, service)) = self.services.pop() {
            if let Stopped::CutOff(what) = service.stop(deadline).await {
                tracing::warn!(target: "server", service = name, "their time to stop is over, they were ended: {what}");
            }
        }
    }
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names: Vec<_> = self.services.iter().map(|(name, _)| name).collect();
        f.debug_struct("Server")
            .field("services", &names)
            .finish_non_exhaustive()
    }
}

fn worker_user(
    user: Option<&str>,
    group: Option<&str>,
) -> Result<Option<(String, Credentials)>, StartError> {
    let Some(user) = user else { return Ok(None) };
    let credentials = Credentials::look_up(user, group).map_err(StartError::User)?;
    if credentials.is_current() {
        return Ok(None);
    }
    if !Credentials::may_change() {
        return Err(StartError::NotRoot(user.to_owned()));
    }
    Ok(Some((user.to_owned(), credentials)))
}
