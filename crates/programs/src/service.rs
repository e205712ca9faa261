//! The service `service`.

use std::io::{self, PipeWriter};
use std::os::fd::IntoRawFd as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pronghorn_config::{Severity, Table, show_duration};
use pronghorn_plugin_api::{
    BoxFuture, Context, Finding, Lack, Machine, NotReady, Reload, Running, Service, StartError,
    Stopped,
};
use pronghorn_process::Credentials;
use pronghorn_workers::Pools;
use tokio::runtime::Handle;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::all::AllPrograms;
use crate::before::Before;
use crate::channel::{Channel, record};
use crate::files::{self, Writer};
use crate::guard::Guard;
use crate::instance::{Refused, Surroundings};
use crate::methods;
use crate::metrics;
use crate::notify;
use crate::program::Idle;
use crate::programs::{Programs, ProgramsError, user};
use crate::settings::ProgramSettings;
use crate::shown::reports;
use crate::{ALL, LOG};

/// Programs before their start.
#[derive(Debug)]
pub struct ProgramsService {
    programs: Configured,
    all: AllPrograms,
}

/// Programs of the configuration with their names.
pub(crate) type Configured = Vec<(String, ProgramSettings)>;

/// Reads the programs of a service of the same kind, which a reload has made.
pub(crate) type ReadAgain =
    fn(Box<dyn Service>, &Path, &Pools) -> Option<Result<Configured, String>>;

/// A service with programs at work.
pub(crate) struct AtWork {
    channel: Channel,
    read: ReadAgain,
    programs: Programs,
    /// Where relative paths begin.
    directory: PathBuf,
    pools: Pools,
    before: Before,
    starting: JoinSet<()>,
    /// Closed when all programs are gone, and those of the process before.
    ended: Option<PipeWriter>,
}

impl ProgramsService {
    /// `t` is the whole configuration. None without the section `service`. `all` has the programs
    /// of the server.
    pub fn read(t: &mut Table<'_>, all: AllPrograms) -> Option<Self> {
        let programs = t.optional_sections_with(
            LOG,
            "Programs that the server keeps running. Without this section, none can be created over \
             RPC.",
            "A program, by its name.",
            |t| {
                let settings = ProgramSettings::read(t);
                tell_names(t, &settings);
                if t.name() == ALL {
                    let message = "can't be the name of a program: `pronghorn programs` takes it \
                                   for all of them";
                    t.error("", message, "name it by what it does, such as `queue`");
                }
                settings
            },
        )?;
        Some(Self { programs, all })
    }
}

fn tell_names(t: &mut Table<'_>, settings: &ProgramSettings) {
    for (name, _) in &settings.env {
        let upper = name.to_uppercase();
        if upper != *name {
            let why = "names keep their case";
            t.differs("env", &format!("`{name}`"), &format!("`{upper}`"), why);
        }
    }
}

impl Service for ProgramsService {
    fn starts_processes(&self) -> bool {
        true
    }

    fn has_unnamed_user(&self) -> bool {
        self.programs.iter().any(|(_, it)| it.user.is_none())
    }

    /// Where the server needs a program.
    fn is_watched(&self) -> bool {
        self.programs.iter().any(|(_, it)| it.essential)
    }

    fn look(&self, machine: &Machine<'_>) -> Vec<Finding> {
        let programs = self.programs.iter();
        let found = programs.flat_map(|(name, settings)| look_at(name, settings, machine));
        found.collect()
    }

    fn start(
        self: Box<Self>,
        context: Context,
    ) -> BoxFuture<'static, Result<Box<dyn Running>, StartError>> {
        Box::pin(async move {
            let read: ReadAgain = |to, _, _| {
                let to = to.downcast::<Self>()?;
                Some(Ok(to.programs))
            };
            let programs = (self.programs, read);
            let running = start(Channel::Service, programs, &self.all, &context).await?;
            methods::add_roadrunners(&context.rpc, &running.programs);
            Ok(Box::new(running) as Box<dyn Running>)
        })
    }
}

/// Finds the reasons for which the start of a program, or its health command, would fail.
fn look_at(name: &str, settings: &ProgramSettings, machine: &Machine<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    let key = |key: &str| format!("{LOG}.{name}.{key}");
    // It starts only when somebody asks for it.
    let severity = if settings.autostart {
        Severity::Error
    } else {
        Severity::Warning
    };
    if let Some(named) = &settings.directory {
        let found = Finding::of_folder(key("directory"), named, machine.directory);
        findings.extend(found.map(|found| match severity {
            Severity::Warning => Finding::doubtful(
                found.key,
                format!("{}: the program can't be started", found.message),
                "create it, or name another directory",
            ),
            Severity::Missing | Severity::Error => found,
        }));
    }
    findings.extend(look_at_stop(name, settings, machine));
    let own = user(settings);
    if let Err(why) = &own {
        findings.push(why.clone().of(name));
    }
    let user = match &own {
        Ok(Some(own)) => Some(own),
        Ok(None) => machine.user(),
        Err(_) => None,
    };
    let knows_user = own.is_ok();
    let commands = look_at_commands(name, settings, machine, user, knows_user, severity);
    findings.extend(commands);
    findings.extend(look_at_files(name, settings, machine, severity));
    findings
}

/// Finds a time for the end that the server's own stop does not leave.
fn look_at_stop(name: &str, settings: &ProgramSettings, machine: &Machine<'_>) -> Option<Finding> {
    let (own, all) = (settings.stop_timeout, machine.grace_period);
    if own <= all {
        return None;
    }
    let shown = show_duration(own);
    Some(Finding::doubtful(
        format!("{LOG}.{name}.stop_timeout"),
        format!(
            "is {shown}, and `endure.grace_period` is {}: when the server stops, the program is \
             killed earlier",
            show_duration(all)
        ),
        format!("write `endure: {{grace_period: {shown}}}`, or a shorter `stop_timeout`"),
    ))
}

fn look_at_commands(
    name: &str,
    settings: &ProgramSettings,
    machine: &Machine<'_>,
    user: Option<&Credentials>,
    knows_user: bool,
    severity: Severity,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut environment = machine.environment.to_vec();
    settings.set_variables(&mut environment);
    let of_program = Machine {
        directory: &settings.directory_in(machine.directory),
        environment: &environment,
        users: machine.users.filter(|_| knows_user),
        ..*machine
    };
    let health = settings.health.as_ref();
    let health = health.and_then(|health| health.command.as_ref());
    let commands = [
        ("command", settings.command.as_ref()),
        ("health.command", health),
    ];
    for (of, command) in commands {
        if let Some(command) = command
            && let Some(lack) = of_program.lacks(command, user)
        {
            let Lack {
                message,
                hint,
                starts,
            } = lack;
            findings.push(Finding {
                severity: if starts { Severity::Warning } else { severity },
                key: format!("{LOG}.{name}.{of}"),
                message,
                hint,
            });
        }
    }
    findings
}

fn look_at_files(
    name: &str,
    settings: &ProgramSettings,
    machine: &Machine<'_>,
    severity: Severity,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (of, file) in settings.files() {
        if let Err(why) = files::judge(&machine.directory.join(file))
            && (machine.users.is_some() || !why.is_about_user())
        {
            findings.push(Finding {
                severity,
                key: format!("{LOG}.{name}.{of}"),
                message: format!("names `{}`, {why}", file.display()),
                hint: why.hint().to_owned(),
            });
        }
    }
    findings
}

/// Starts the programs of one service, with all by which they are shown and steered.
pub(crate) async fn start(
    channel: Channel,
    (configured, read): (Configured, ReadAgain),
    all: &AllPrograms,
    context: &Context,
) -> Result<AtWork, StartError> {
    let workers = context.workers.clone().expect("a service with workers");
    let pools = workers.pools.clone();
    let resources = workers.pools.resources();
    let (reader, writer) = io::pipe()?;
    let before = Before::new(channel, &context.sockets, &reader.into())?;
    let around = Surroundings {
        before: before.clone(),
        spawner: resources.spawner.clone(),
        guard: Arc::new(Guard::new(resources.spawner.clone(), channel)),
        runtime: Handle::current(),
        directory: context.directory().to_owned(),
        incidents: resources.incidents.clone(),
        user: context.users.of_server().map(|(_, user)| user.clone()),
        pools: workers.pools,
        writer: Writer::start()?,
        channel,
    };
    let programs = Programs::new(around, CancellationToken::new());
    if configured.iter().any(|(_, it)| it.notify) {
        notify::tidy();
    }
    for (name, settings) in configured {
        let refused = |why: Refused| match channel {
            Channel::Service => StartError::from(why.of(&name)),
            Channel::Temporal => StartError::from(format!("{name}: {why}")),
        };
        let spec = Programs::spec(&name, settings).map_err(refused)?;
        let program = programs.add(spec, false)?;
        let spec = program.spec();
        if spec.settings.autostart {
            // An upgrade to what can't be started is to fail.
            program.look_up(&spec).map_err(refused)?;
        }
    }
    if all.add(&programs) {
        methods::add(&context.rpc, all);
        let schema = include_str!("page.json");
        context
            .pages
            .add_method("programs", schema, &context.rpc, "programs.List");
    }
    metrics::add(channel, &context.metrics, &programs);
    let shown = programs.clone();
    let processes = context.health.processes();
    let restarted = programs.clone();
    processes.answer_with(
        channel.name(),
        move || reports(&shown),
        move |name| {
            let found = restarted.get(&name);
            async move {
                let program = found.map_err(|error| error.to_string())?;
                program.replace(program.spec(), Idle::Starts).await
            }
        },
    );
    let asked = programs.clone();
    let ready = move || asked.ready().map_err(|why| NotReady(why.into()));
    // A server is not to be restarted for what it restarts itself.
    context.readiness.answer_apart(ready, || Ok(()));
    if before.are_there() {
        programs.line_up(&before.wait());
    } else {
        programs.line_up("its turn");
        programs.start_all().await?;
    }
    Ok(AtWork {
        channel,
        read,
        programs,
        directory: context.directory().to_owned(),
        pools,
        before,
        starting: JoinSet::new(),
        ended: Some(writer),
    })
}

impl Running for AtWork {
    /// No program runs twice: those of the process before end first.
    fn open(&mut self) -> Result<(), StartError> {
        if !self.before.take_over() {
            return Ok(());
        }
        let (before, programs) = (self.before.clone(), self.programs.clone());
        let channel = self.channel;
        self.starting.spawn(async move {
            before.are_gone().await;
            // One that can't be started is out of the line: the others go on.
            while let Err(error) = programs.start_all().await {
                if error == ProgramsError::Stopping {
                    break;
                }
                record!(channel, error, "{error}");
            }
        });
        Ok(())
    }

    fn reload(&mut self, to: Box<dyn Service>) -> BoxFuture<'_, Reload> {
        Box::pin(async move {
            let Some(to) = (self.read)(to, &self.directory, &self.pools) else {
                return Reload::NeedsRestart;
            };
            let renewed = match to {
                Ok(to) => self.programs.renew(to).await,
                Err(why) => Err(vec![why]),
            };
            match renewed {
                Ok(()) => Reload::Applied,
                Err(wrong) => {
                    for why in wrong {
                        record!(self.channel, error, "not reloaded: {why}");
                    }
                    Reload::Failed
                }
            }
        })
    }

    fn stop(mut self: Box<Self>, deadline: Instant) -> BoxFuture<'static, Stopped> {
        Box::pin(async move {
            self.starting.abort_all();
            let left = match self.programs.stop_all(deadline).await {
                0 => None,
                1 => Some("1 process of a program".to_owned()),
                left => Some(format!("{left} processes of programs")),
            };
            let theirs = self.before.are_gone_by(deadline).await.err();
            let ended = self.ended.take();
            let Some(left) = left.or(theirs) else {
                return Stopped::Clean;
            };
            if let Some(ended) = ended {
                // The next process waits for those that are left, as long as this one is there.
                _ = ended.into_raw_fd();
            }
            Stopped::CutOff(left)
        })
    }
}
