//! The configuration read once more, while the server runs.

use std::ffi::OsString;
use std::path::Path;
use std::time::SystemTime;

use pronghorn_base::since_1970;
use pronghorn_config::{Change, Effective, Era, Input, Loaded, Severity, load};
use pronghorn_metrics::{Gauge, Registry};
use pronghorn_plugin_api::Reload;
use pronghorn_process::Program;

use crate::control::ReloadOutcome;
use crate::log_readers::APPLIED_EXCEPT;
use crate::logs::{self, Logs};
use crate::own::own_files;
use crate::server::Server;
use crate::services::Services;
use crate::settings::{LogSettings, Settings, effective_json};

/// Where the configuration comes from, and what was in it at the start.
#[derive(Debug, Clone)]
pub struct Source {
    services: Services,
    input: Input,
    started_with: Effective,
    /// What the logs are written by now.
    logged_by: LogSettings,
}

impl Source {
    /// Of what was loaded from `input`. Its paths begin in `here` from now on: when a link in that
    /// moves, they follow.
    pub fn new(
        services: Services,
        mut input: Input,
        here: &Path,
        loaded: &Loaded,
        effective: &Effective,
        logs: &LogSettings,
    ) -> Self {
        input.folder = here.join(&input.folder);
        input.file.clone_from(&loaded.file);
        Self {
            services,
            input,
            started_with: effective.clone(),
            logged_by: logs.clone(),
        }
    }
}

/// What metrics tell of the configuration.
#[derive(Debug)]
pub(crate) struct ConfigurationMetrics {
    successful: Gauge,
    read: Gauge,
}

impl ConfigurationMetrics {
    /// Of a server that starts: all of it holds.
    pub(crate) fn new(metrics: &Registry, compat: Era, is_development: bool) -> Self {
        let metrics = metrics.named("config");
        let mode = if is_development {
            "development"
        } else {
            "production"
        };
        let info = metrics.labelled("compat", compat.version());
        let help = "Always 1; the labels say as which release of RoadRunner the server answers, and \
                    whether it runs for development.";
        info.labelled("mode", mode).gauge("info", help).set(1);
        let own = Self {
            successful: metrics.gauge(
                "last_reload_successful",
                "1 if the server has applied all settings of the configuration that it read last; \
                 else 0.",
            ),
            read: metrics.gauge(
                "last_reload_success_timestamp_seconds",
                "When that was so for the last time, in seconds since the Unix epoch.",
            ),
        };
        own.tell(true);
        own
    }

    fn tell(&self, is_whole: bool) {
        self.successful.set(is_whole.into());
        if is_whole {
            let now = since_1970(SystemTime::now()).as_secs();
            self.read.set(i64::try_from(now).unwrap_or(i64::MAX));
        }
    }
}

/// What workers inherit: the environment of this process, and what `--dotenv` adds to it.
pub fn environment(loaded: &Loaded) -> Vec<(OsString, OsString)> {
    let mut environment: Vec<_> = std::env::vars_os()
        .filter(|(name, _)| !Program::is_private(name))
        .collect();
    let added = loaded.dotenv.iter();
    environment.extend(added.map(|(name, value)| (name.into(), value.into())));
    environment
}

impl Server {
    /// Reads the configuration again, applies what can change while the server runs, and replaces
    /// all workers. What can't change is told, and holds from the next upgrade or start on. With
    /// mistakes in it nothing happens at all, and a pool whose new workers don't boot keeps its old
    /// ones and their settings.
    pub async fn reload(&mut self, logs: &Logs) -> ReloadOutcome {
        if self.source.is_none() {
            self.reload_workers().await;
            return ReloadOutcome::default();
        }
        let reloaded = self.read_again(logs).await;
        if let Some(metrics) = &self.configuration_metrics {
            metrics.tell(reloaded.pending.is_none());
        }
        self.configuration.set_pending(reloaded.pending.clone());
        reloaded
    }

    async fn read_again(&mut self, logs: &Logs) -> ReloadOutcome {
        let Some(source) = &mut self.source else {
            return ReloadOutcome::default();
        };
        let loaded = load(&source.input);
        let services = source.services.clone();
        let resolved =
            loaded.resolve_with(Severity::Warning, |t| Settings::read_with(t, &services));
        let effective = resolved.effective().clone();
        logs::tell(resolved.report());
        let settings = match resolved.into_settings() {
            Ok(settings) => settings,
            Err(report) => {
                let summary = report.summary();
                tracing::error!(target: "server", "reload failed, nothing has changed: {summary}");
                return ReloadOutcome::failed(format!("the files have mistakes: {summary}"));
            }
        };
        let here = source.input.folder.clone();
        let changed = source.started_with.changes(&effective);
        let mut held = source.started_with.held(&effective);
        // Also where `logs` is as before: the files may not be.
        let opened = if source.logged_by == settings.logs {
            logs.reopen()
        } else {
            logs.renew(&settings.logs).map_err(|error| vec![error])
        };
        if let Err(errors) = opened {
            for error in &errors {
                tracing::error!(target: "server", "reload failed, nothing has changed: {error}");
            }
            let errors: Vec<_> = errors.iter().map(ToString::to_string).collect();
            let why = errors.join("; ");
            return ReloadOutcome::failed(format!(
                "records can't be written as `logs` says: {why}"
            ));
        }
        source.logged_by = settings.logs.clone();
        let own = self.places.as_ref();
        let own = own.map(|places| own_files(&loaded, &here, &places.folder));
        // Until all of it is applied, those of before are the server's as well.
        let before = self.own_files.clone();
        if let Some(own) = &own {
            let both = before.iter().chain(own).cloned();
            self.keep_to_itself(both.collect());
        }
        let applied = self.apply(settings, &changed, &loaded).await;
        if let Some(own) = own.filter(|_| !applied.has_failed) {
            self.keep_to_itself(own);
        }
        if !applied.has_failed && applied.wait_for_restart.is_empty() {
            self.configuration
                .set(loaded.to_json(&effective), effective_json(&effective));
        }
        for service in applied.wait_for_restart {
            if !held.iter().any(|key| key == service || is_in(key, service)) {
                held.push(service.to_owned());
            }
        }
        ReloadOutcome {
            failed: applied.has_failed,
            pending: told(&held, applied.has_failed),
        }
    }

    /// Hands each running service its new settings. `changed` is what differs from those of the
    /// start.
    async fn apply(&mut self, settings: Settings, changed: &[Change], loaded: &Loaded) -> Applied {
        self.endure = settings.endure.clone();
        let pools = self.pools();
        if let Some(pools) = &pools {
            pools.configure(settings.server.clone(), environment(loaded));
        }
        let mut configured = settings.services;
        let mut applied = Applied::default();
        for (name, running) in &mut self.services {
            let to = configured.iter().position(|(to, _)| to == name);
            let reloaded = match to {
                Some(at) => running.reload(configured.remove(at).1).await,
                None => Reload::NeedsRestart,
            };
            if reloaded == Reload::NeedsRestart {
                let mut live = changed.iter().filter(|change| change.live);
                if to.is_none() || live.any(|change| is_in(&change.key, name)) {
                    applied.wait_for_restart.push(name);
                }
                if let Some(pools) = &pools {
                    pools.reload(|owner| owner == *name).await;
                }
            }
            applied.has_failed |= reloaded == Reload::Failed;
        }
        let new = configured.iter().map(|(name, _)| *name);
        applied.wait_for_restart.extend(new);
        applied
    }
}

/// How the services took their new settings.
#[derive(Default)]
struct Applied {
    /// A service goes on with what it had, and has said why.
    has_failed: bool,
    /// Services that take what has changed at a restart.
    wait_for_restart: Vec<&'static str>,
}

/// Of what holds from a restart on, so many are named.
const MOST_NAMED: usize = 10;

/// Writes the one record of how a reload came out. Gives the part of the files that does not hold.
fn told(held: &[String], has_failed: bool) -> Option<String> {
    let keys = held.iter().take(MOST_NAMED);
    let mut names: Vec<_> = keys.map(|key| format!("`{key}`")).collect();
    if let Some(more) = held.len().checked_sub(MOST_NAMED).filter(|more| *more > 0) {
        names.push(format!("{more} more"));
    }
    let names = names.join(", ");
    match (held, has_failed) {
        ([], false) => {
            tracing::info!(target: "server", "the configuration is applied");
            None
        }
        ([], true) => Some("a part of it failed, as the log says".to_owned()),
        (_, false) => {
            tracing::warn!(
                target: "server",
                "{APPLIED_EXCEPT} {names}: a reload can't apply these keys; they take effect with an upgrade (SIGUSR2) or a restart"
            );
            Some(format!("{names}: with an upgrade (SIGUSR2) or a restart"))
        }
        (_, true) => {
            tracing::warn!(
                target: "server",
                "a reload can't apply {names}: these keys take effect with an upgrade (SIGUSR2) \
                 or a restart"
            );
            Some(format!(
                "a part of it failed, as the log says; {names}: with an upgrade (SIGUSR2) or a \
                 restart"
            ))
        }
    }
}

/// Whether it is a key of this section.
fn is_in(key: &str, section: &str) -> bool {
    let rest = key.strip_prefix(section);
    rest.is_some_and(|rest| rest.starts_with(['.', '[']))
}
