//! What `check` finds out about this machine, by the code that the start goes by. It asks PHP what
//! it is, and starts nothing else.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pronghorn_config::{Listen, Severity, nearest};
use pronghorn_metrics::Registry;
use pronghorn_plugin_api::{ConfiguredPool, Finding, Lack, Machine, reserved_by};
use pronghorn_pool::Incidents;
use pronghorn_pool::{Spool, Warmup};
use pronghorn_process::memory::of_control_group;
use pronghorn_process::{Credentials, NotRunnable, Spawner};
use pronghorn_store::judge_state_directory;
use pronghorn_wire::Kind;
use pronghorn_workers::settings::{Mode, OnInit, Runner};
use pronghorn_workers::{
    Launch, MemoryShare, PhpError, PoolResources, PoolSpec, SHORTER, Start, TooMuchMemory,
    UserError, Versions, WorkerUsers,
};
use tokio::runtime::Builder;

use crate::server::{WORKERS_OF_ROOT, run_as_root, worker_users};
use crate::settings::{LogOutput, Settings};
use crate::{VERSION, state};

/// Finds where this machine is not as the settings say: users, certificates, directories, sockets,
/// programs and scripts that are not there, and classic pools whose PHP has no extension. Somebody
/// who may not run programs as the workers' user is told nothing of the last.
pub fn look(
    settings: &Settings,
    folder: &Path,
    environment: &[(OsString, OsString)],
) -> Vec<Finding> {
    let mut findings = Vec::new();
    let users = match worker_users(settings) {
        Ok(users) => Some(users),
        // Somebody else may check than starts it.
        Err(error) if error.is_about_us => None,
        Err(UserError {
            key, what, hint, ..
        }) => {
            findings.push(Finding::missing(key, what, hint));
            None
        }
    };
    if run_as_root(settings) {
        let (message, hint) = WORKERS_OF_ROOT;
        findings.push(Finding {
            severity: Severity::Warning,
            key: "server.user".to_owned(),
            message: message.to_owned(),
            hint: hint.to_owned(),
        });
    }
    let state = state::folder(settings.state_dir.clone(), folder, environment);
    if let Err(error) = judge_state_directory(&state) {
        let message = format!("can't be used: {error}");
        let hint =
            "the server does not start with it as root: jobs, sessions and reports lie there";
        findings.push(Finding::missing("state_dir", message, hint));
    }
    if std::fs::metadata(&state).is_ok_and(|there| !there.is_dir()) {
        let message = format!("names `{}`, which is no directory", state.display());
        let hint = "the server does not start with it: name another place, or remove it";
        findings.push(Finding::missing("state_dir", message, hint));
    }
    findings.extend(look_at_logs(settings, folder));
    let mut of_commands = environment.to_vec();
    let own = settings.server.env.iter();
    of_commands.extend(own.map(|(name, value)| (name.into(), value.into())));
    let machine = Machine {
        directory: folder,
        environment: &of_commands,
        users: users.as_ref(),
        grace_period: settings.endure.grace_period,
        reserved: &reserved_by(settings.services.iter().map(|(_, it)| &**it)),
    };
    for (_, service) in &settings.services {
        findings.extend(service.look(&machine));
    }
    // It runs before the first workers.
    let mut services = settings.services.iter();
    if let Some(on_init) = &settings.server.on_init
        && services.any(|(_, service)| service.starts_processes())
    {
        findings.extend(look_at_on_init(on_init, environment, machine));
    }
    for (_, pool) in settings.pools() {
        look_at_files(&pool, folder, &mut findings);
    }
    if settings.pools().next().is_some()
        && let Ok(runtime) = Builder::new_current_thread().enable_all().build()
    {
        let found = runtime.block_on(look_at_pools(settings, folder, environment, users.as_ref()));
        findings.extend(found.into_iter().flatten());
        // A question that was given up leaves nothing to wait for.
        runtime.shutdown_background();
    }
    findings
}

/// Judges `server.on_init`, as its own user if it names one.
fn look_at_on_init(
    on_init: &OnInit,
    environment: &[(OsString, OsString)],
    machine: Machine<'_>,
) -> Option<Finding> {
    let command = on_init.command.as_ref()?;
    let own = on_init.user.as_ref();
    let user = match own.map(|user| Credentials::look_up(user, None)) {
        Some(Ok(user)) if user.is_current() || Credentials::may_change() => Some(user),
        // Another user may start the server, and could change to this one.
        Some(Ok(_)) => return None,
        Some(Err(error)) => {
            let message = format!("names a user that does not exist: {error}");
            let hint = "name another user, or remove it: then it is the workers' user";
            return Some(Finding::missing("server.on_init.user", message, hint));
        }
        None => machine.user().cloned(),
    };
    let mut environment = environment.to_vec();
    let own = on_init.env.iter();
    environment.extend(own.map(|(name, value)| (name.into(), value.into())));
    let machine = Machine {
        environment: &environment,
        ..machine
    };
    let Lack { message, hint, .. } = machine.lacks(command, user.as_ref())?;
    let key = "server.on_init.command";
    if on_init.exit_on_error {
        return Some(Finding::missing(key, message, hint));
    }
    let message = format!("{message}: the server starts without it");
    Some(Finding::doubtful(key, message, hint))
}

/// Directories where logs are to be files.
fn look_at_logs(settings: &Settings, directory: &Path) -> Vec<Finding> {
    let logs = &settings.logs;
    let channels = logs.channels.iter().map(|(_, target)| target);
    let targets = std::iter::once(&logs.target).chain(channels);
    let files = targets.flat_map(|target| {
        let output = target.output.iter().filter_map(|output| match output {
            LogOutput::File(path) => Some(path),
            LogOutput::Stdout | LogOutput::Stderr => None,
        });
        output.chain(target.file.as_ref().map(|file| &file.path))
    });
    let mut directories: Vec<_> = files.filter(|file| directory.join(file).is_dir()).collect();
    directories.dedup();
    let finding = |file: &PathBuf| {
        let message = format!("names `{}`, which is a directory", file.display());
        Finding::missing(
            "logs.output",
            message,
            "the server does not start with it: name a file",
        )
    };
    directories.into_iter().map(finding).collect()
}

/// The folder of its scripts, and sockets of FastCGI servers that somebody else runs.
fn look_at_files(pool: &ConfiguredPool<'_>, folder: &Path, findings: &mut Vec<Finding>) {
    let ConfiguredPool {
        section, settings, ..
    } = pool;
    if let Some(site) = settings.site() {
        findings.extend(Finding::of_folder(
            format!("{section}.root"),
            &site.root,
            folder,
        ));
    }
    for address in settings.addresses() {
        if let Listen::Unix(socket) = address
            && let Err(error) = std::fs::metadata(folder.join(socket))
        {
            findings.push(Finding::missing(
                format!("{section}.fastcgi"),
                format!("names the socket `{}`: {error}", socket.display()),
                "start what listens there, php-fpm for instance, or name another one",
            ));
        }
    }
}

/// None where it can't be found out.
async fn look_at_pools(
    settings: &Settings,
    folder: &Path,
    environment: &[(OsString, OsString)],
    users: Option<&WorkerUsers>,
) -> Option<Vec<Finding>> {
    let server = &settings.server;
    let spawner = Spawner::start().ok()?;
    let spool = Arc::new(Spool::open(&std::env::temp_dir(), None).ok()?);
    let mut findings: Vec<Finding> = Vec::new();
    let may_ask = users.is_some();
    let resources = PoolResources {
        users: users.cloned().unwrap_or_default(),
        folder: folder.to_owned(),
        variables: Vec::new(),
        spawner,
        homes: Vec::new(),
        metrics: Registry::default(),
        relay: server.relay.clone(),
        listener: None,
        versions: Versions {
            roadrunner: settings.compat.version(),
            pronghorn: VERSION,
        },
        development: false,
        incidents: Incidents::default(),
        methods: None,
        answers: None,
        storages: Vec::new(),
    };
    let mut shares = Vec::new();
    for (owner, pool) in settings.pools() {
        let spec = PoolSpec {
            name: pool.name,
            settings: pool.settings,
            kind: Kind::Raw, // nothing is called
            warmup: Warmup::default(),
            spool: spool.clone(),
        };
        let start = Start {
            owner,
            spec: &spec,
            server,
            environment,
            resources: &resources,
        };
        if let Some(finding) = look_at_environment(&start, &pool) {
            // PHP can't be asked with it either.
            if findings.iter().all(|it| it.message != finding.message) {
                findings.push(finding);
            }
            continue;
        }
        if may_ask {
            findings.extend(look_at_ini(&start, &pool).await);
            let share = start.memory().await;
            shares.extend(share.map(|share| (pool.section.clone(), share)));
        }
        let found = match pool.settings.mode() {
            Mode::Worker => match look_at_command(&start, &pool, may_ask) {
                None if may_ask => look_for_extension(&start, &pool).await,
                missing => missing,
            },
            Mode::FastCgi => look_at_fastcgi(&start, &pool, may_ask),
            Mode::Classic if may_ask => look_at_classic(&start, &pool).await,
            Mode::Classic | Mode::Cgi => None,
        };
        findings.extend(found);
        if let Some((message, hint)) = start.unreadable_script() {
            findings.push(Finding::missing(
                format!("{}.root", pool.section),
                message,
                hint,
            ));
        }
    }
    findings.extend(look_at_memory(&shares));
    Some(findings)
}

/// Workers of all pools that may take more than the control group of whoever checks allows.
fn look_at_memory(shares: &[(String, MemoryShare)]) -> Option<Finding> {
    let shares = shares.iter().map(|(section, share)| (&**section, *share));
    let found = TooMuchMemory::find(shares, of_control_group()?)?;
    Some(Finding {
        severity: Severity::Warning,
        key: found.pool,
        message: found.message,
        hint: found.hint,
    })
}

/// An environment with which no program can be started.
fn look_at_environment(start: &Start<'_>, pool: &ConfiguredPool<'_>) -> Option<Finding> {
    if !pool.settings.addresses().is_empty() {
        return None; // somebody else starts it
    }
    let too_long = start.launch().too_long()?;
    let message = format!("can't be given to workers: {too_long}");
    Some(Finding::missing("server.env", message, SHORTER))
}

/// Settings that the pool's PHP does not have: it would pass over them in silence.
async fn look_at_ini(start: &Start<'_>, pool: &ConfiguredPool<'_>) -> Vec<Finding> {
    let launch = start.launch();
    let Some((unknown, known)) = launch.unknown_settings().await else {
        return Vec::new();
    };
    let finding = |name: String| Finding {
        severity: Severity::Warning,
        message: "has no effect: this PHP has no such setting".to_owned(),
        hint: match nearest(&name, known.split(' ')) {
            Some(near) => format!("did you mean `{near}`?"),
            None => "is the extension that has it loaded?".to_owned(),
        },
        key: format!("{}.ini.{name}", pool.section),
    };
    unknown.into_iter().map(finding).collect()
}

/// The program of a worker script, and the script.
fn look_at_command(
    start: &Start<'_>,
    pool: &ConfiguredPool<'_>,
    knows_users: bool,
) -> Option<Finding> {
    let (message, hint) = start.lacks(knows_users)?;
    Some(Finding::missing(command_key(pool), message, hint))
}

fn command_key(pool: &ConfiguredPool<'_>) -> String {
    match &pool.settings.runner {
        Runner::Worker(worker) if worker.command.is_some() => format!("{}.command", pool.section),
        _ => "server.command".to_owned(),
    }
}

fn look_at_fastcgi(
    start: &Start<'_>,
    pool: &ConfiguredPool<'_>,
    knows_users: bool,
) -> Option<Finding> {
    let Launch::FastCgi(launcher) = start.launch() else {
        return None;
    };
    let program = launcher.spec.argv.first()?;
    let why = start.judge(program).err()?;
    if !knows_users && why.is_about_user() {
        return None;
    }
    Some(Finding::missing(
        format!("{}.mode", pool.section),
        format!("is `fastcgi`, and `{}` {why}", program.display()),
        match why {
            NotRunnable::Missing => {
                "install it, `apt install php-cgi` for instance, or name another one by `command`"
                    .to_owned()
            }
            why => why.hint(start.directory()),
        },
    ))
}

async fn look_at_classic(start: &Start<'_>, pool: &ConfiguredPool<'_>) -> Option<Finding> {
    let Some(why) = start.judge_program() else {
        return look_for_extension(start, pool).await;
    };
    Some(Finding::missing(
        format!("{}.mode", pool.section),
        format!("is `classic`, and `{}` {why}", start.launch().command()),
        match why {
            NotRunnable::Missing => {
                "install it, `apt install php-cli` for instance, or name another one by `php`"
                    .to_owned()
            }
            why => why.hint(start.directory()),
        },
    ))
}

/// Its workers do not start.
fn wrong_php(error: &PhpError, pool: &ConfiguredPool<'_>) -> Finding {
    let (key, message) = match (pool.settings.mode(), error) {
        (Mode::Classic, _) => (
            format!("{}.mode", pool.section),
            format!("is `classic`, and {error}"),
        ),
        (_, PhpError::Unknown { .. }) => (
            format!("{}.ini", pool.section),
            format!("can't be given to workers: {error}"),
        ),
        _ => (command_key(pool), format!("can't start workers: {error}")),
    };
    Finding::missing(key, message, error.hint())
}

/// What a pool loses whose PHP has no extension.
async fn look_for_extension(start: &Start<'_>, pool: &ConfiguredPool<'_>) -> Option<Finding> {
    let launch = start.launch();
    if let Some(error) = launch.wrong_php().await {
        return Some(wrong_php(&error, pool));
    }
    let lacking = launch.lacks_extension().await?;
    let remedy = &lacking.remedy;
    let (key, message) = match pool.settings.mode() {
        Mode::Classic => (
            format!("{}.mode", pool.section),
            format!("is `classic`, and {lacking}"),
        ),
        _ => (command_key(pool), format!("starts workers, and {lacking}")),
    };
    if !lacking.starts {
        let hint = format!("{remedy}; or `apt install php-cgi`");
        return Some(Finding::missing(key, message, hint));
    }
    let otherwise = match pool.settings.mode() {
        Mode::Classic => "mode: fastcgi",
        _ => "transport: relay",
    };
    Some(Finding {
        severity: Severity::Warning,
        key,
        message,
        hint: format!("{remedy}; `{otherwise}` turns this warning off"),
    })
}
