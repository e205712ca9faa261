//! The command line: RoadRunner's flags and commands, and ours.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Args, FromArgMatches, Parser, Subcommand, ValueEnum};
use pronghorn_config::{Era, Input};
use pronghorn_server::VERSION;

use crate::exit::{Exit, misused, note, say};

/// Under which name the binary was called. Behaviour is the same; what other programs read of `rr`
/// is kept for them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Name {
    Pronghorn,
    /// A link named `rr`.
    Rr,
}

impl Name {
    pub(crate) fn of_this_call() -> Self {
        let called = std::env::args_os().next().unwrap_or_default();
        if Path::new(&called).file_name() == Some("rr".as_ref()) {
            Self::Rr
        } else {
            Self::Pronghorn
        }
    }

    /// What a person types.
    pub(crate) fn program(self) -> &'static str {
        match self {
            Self::Pronghorn => "pronghorn",
            Self::Rr => "rr",
        }
    }
}

/// An application server for PHP
#[derive(Debug, Parser)]
#[command(
    name = "pronghorn",
    disable_version_flag = true,
    subcommand_required = true,
    arg_required_else_help = true
)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) globals: Globals,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Flags that every command takes, before or behind its name.
#[derive(Debug, Args)]
pub(crate) struct Globals {
    /// Configuration file [default: pronghorn.yaml, else .rr.yaml]
    #[arg(short, long, global = true, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Working directory [default: the directory of the configuration file]
    #[arg(
        short = 'w',
        long = "workdir",
        alias = "WorkDir",
        global = true,
        value_name = "DIR"
    )]
    pub(crate) workdir: Option<PathBuf>,
    /// File with variables for the configuration and the workers
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) dotenv: Option<PathBuf>,
    /// Set a configuration key, for example `http.address=:8080`; repeatable
    #[arg(
        short = 'o',
        long = "override",
        global = true,
        value_name = "KEY=VALUE"
    )]
    pub(crate) overrides: Vec<String>,
    /// Print only results and errors; does not affect log records
    #[arg(short, long, global = true)]
    pub(crate) silent: bool,
    /// Write the server's process ID to `.pid` in the working directory
    #[arg(short, long, global = true)]
    pub(crate) pid: bool,
    /// Accepted for RoadRunner's profiler; does nothing
    #[arg(short, long, global = true, hide = true)]
    pub(crate) debug: bool,
    /// With `stop`: do not wait for requests in progress
    #[arg(short, long, global = true)]
    pub(crate) force: bool,
    /// Accepted for RoadRunner's experimental features; does nothing
    #[arg(short, long = "enable-experimental", global = true, hide = true)]
    pub(crate) experimental: bool,
    /// Print the version
    #[arg(short, long, global = true)]
    version: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Start the server; Ctrl-C stops it
    Serve(Serve),
    /// Validate the configuration; list all mistakes and the differences from RoadRunner
    Check(Check),
    /// Show the configuration
    Config {
        #[command(subcommand)]
        command: ConfigCommand,
    },
    /// Replace all workers without losing a request, and empty caches
    Reset {
        /// Pools to reset; `http` for all HTTP pools, `static` for the file cache [default: all]
        #[arg(value_name = "POOL")]
        of: Vec<String>,
    },
    /// Reload the configuration and replace all workers; if that fails, the old workers stay
    Reload,
    /// List workers and what each is running
    Workers {
        /// Pools to list; `http` for all HTTP pools [default: all]
        #[arg(value_name = "POOL")]
        of: Vec<String>,
        /// Update the list every second; press `q` to quit
        #[arg(short = 'i', long = "interactive")]
        live: bool,
        /// Add this many workers to the pool [default pool: default]
        #[arg(long, value_name = "COUNT", conflicts_with_all = ["live", "remove"])]
        add: Option<u16>,
        /// Remove this many workers from the pool; each finishes its request first
        #[arg(long, value_name = "COUNT", conflicts_with = "live")]
        remove: Option<u16>,
        /// Print JSON
        #[arg(long, conflicts_with_all = ["live", "add", "remove"])]
        json: bool,
    },
    /// List reports of crashes, timeouts, fatal errors and failed boots; works without a server
    Crashes(Crashes),
    /// Show the state of the server; exit with 1 unless the server is ready
    Status {
        /// Exit with 1 only if the server hangs or does not run; for health checks that restart it
        #[arg(long)]
        alive: bool,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Show the newest records of the server's log; `-f` waits for more
    Logs(Logs),
    /// Stop the server and wait until it has ended; with `-f`, do not wait for requests
    Stop,
    /// Show job pipelines; manage pipelines, jobs and dead letters
    Jobs(Jobs),
    /// Write a configuration for the application in this directory
    Init {
        /// Translate this configuration of nginx, php-fpm, Apache, Caddy, RoadRunner, Octane or
        /// supervisord; repeatable for nginx and php-fpm
        #[arg(long, value_name = "FILE")]
        from: Vec<PathBuf>,
    },
    /// Write or print a unit for systemd
    Service {
        #[command(subcommand)]
        command: ServiceCommand,
    },
    /// Generate PHP code for gRPC from `.proto` files
    Grpc {
        #[command(subcommand)]
        command: GrpcCommand,
    },
    /// Build the PHP extension, or show which PHP has one
    Extension {
        #[command(subcommand)]
        command: ExtensionCommand,
    },
    /// Make this machine trust the local certificate authority of `serve --tls`
    Trust(Trust),
    /// Show job schedules; run, pause or resume one
    Schedules(Schedules),
    /// Show the programs of `service`; start, stop and restart them
    Programs(Programs),
    /// Show the storages of `kv`; read and delete their entries
    Cache(Cache),
    /// Print the completion script for a shell
    Completion { shell: Shell },
    /// Print the version
    Version {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

/// The pipelines of jobs; RoadRunner's flags are there as well. Of several it takes the first in
/// the order of [`JobsAction::of`], and so do we.
#[derive(Debug, Args)]
pub(crate) struct Jobs {
    #[command(subcommand)]
    pub(crate) command: Option<JobsCommand>,
    /// Print JSON
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// List the pipelines
    #[arg(long)]
    list: bool,
    /// Pause pipelines; they accept jobs, but give none to workers
    #[arg(long)]
    pause: bool,
    /// Resume pipelines
    #[arg(long)]
    resume: bool,
    /// Destroy pipelines; jobs in memory are lost
    #[arg(long)]
    destroy: bool,
    /// Names of pipelines, separated by commas or spaces
    #[arg(value_name = "PIPELINE")]
    pub(crate) of: Vec<String>,
}

/// The schedules of jobs.
#[derive(Debug, Args)]
pub(crate) struct Schedules {
    #[command(subcommand)]
    pub(crate) command: Option<SchedulesCommand>,
    /// Print JSON
    #[arg(long, global = true)]
    pub(crate) json: bool,
}

/// Reads a number. One that is too large counts as the largest one.
fn number(text: &str) -> Result<u64, &'static str> {
    match text.parse::<u64>() {
        Ok(number) => Ok(number),
        Err(error) if *error.kind() == std::num::IntErrorKind::PosOverflow => Ok(u64::MAX),
        Err(_) => Err("accepted: a whole number from 0"),
    }
}

/// Reads a number of things in memory.
fn size(text: &str) -> Result<usize, &'static str> {
    number(text).map(|number| usize::try_from(number).unwrap_or(usize::MAX))
}

/// Records of the log.
#[derive(Debug, Args)]
pub(crate) struct Logs {
    // The short flag is that of `--force`, which means nothing here.
    /// Continue with new records until Ctrl-C
    #[arg(id = "force", short = 'f', long = "follow")]
    pub(crate) follow: bool,
    /// Number of records to show
    #[arg(short = 'n', long, value_name = "N", default_value_t = 100, value_parser = number, allow_negative_numbers = true)]
    pub(crate) lines: u64,
    /// Show only records of the request with this ID
    #[arg(long, value_name = "ID")]
    pub(crate) request: Option<String>,
    /// Show only records of this level and above
    #[arg(long, value_name = "LEVEL")]
    pub(crate) level: Option<LogLevel>,
    /// Print JSON, one object per line
    #[arg(long)]
    pub(crate) json: bool,
}

/// How much a record matters.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum LogLevel {
    Debug,
    Info,
    Warn,
    Error,
}

impl LogLevel {
    /// As records have it.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Debug => "debug",
            Self::Info => "info",
            Self::Warn => "warn",
            Self::Error => "error",
        }
    }
}

/// The programs of `service`.
#[derive(Debug, Args)]
pub(crate) struct Programs {
    #[command(subcommand)]
    pub(crate) command: Option<ProgramsCommand>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Actions on programs.
#[derive(Debug, Subcommand)]
pub(crate) enum ProgramsCommand {
    /// List the processes of programs
    List {
        /// Programs to list [default: all]
        #[arg(value_name = "PROGRAM")]
        names: Vec<String>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Start programs that are stopped, have ended or were given up
    Start {
        /// Programs to start, or `all`
        #[arg(value_name = "PROGRAM")]
        names: Vec<String>,
    },
    /// Stop programs; they stay stopped until somebody starts them
    Stop {
        /// Programs to stop, or `all`
        #[arg(value_name = "PROGRAM")]
        names: Vec<String>,
    },
    /// Replace the processes of programs one by one; stop at one that does not come up
    Restart {
        /// Programs to restart, or `all`
        #[arg(value_name = "PROGRAM")]
        names: Vec<String>,
    },
    /// Send a signal to the processes of a program
    Signal {
        /// The signal, such as `SIGUSR1` or `HUP`
        signal: String,
        /// The program, by its name in the configuration
        #[arg(value_name = "PROGRAM")]
        name: String,
        /// Signal only the process with this index, which `pronghorn programs` shows after the name
        #[arg(long, value_parser = number, allow_negative_numbers = true)]
        index: Option<u64>,
    },
    /// Show the last lines that a program has printed: the index and the number of the process,
    /// `|` for its stdout or `!` for its stderr, and the line
    Logs {
        /// The program, by its name in the configuration
        #[arg(value_name = "PROGRAM")]
        name: String,
        // The short flag is that of `--force`, which means nothing here.
        /// Continue with new lines until Ctrl-C
        #[arg(id = "force", short = 'f', long = "follow")]
        follow: bool,
        /// Number of lines to show
        #[arg(short = 'n', long, value_name = "N", default_value_t = 100, value_parser = number, allow_negative_numbers = true)]
        lines: u64,
        /// Print JSON, one object per line
        #[arg(long)]
        json: bool,
    },
}

/// The storages of `kv`.
#[derive(Debug, Args)]
pub(crate) struct Cache {
    #[command(subcommand)]
    pub(crate) command: Option<CacheCommand>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// What there is to do with entries.
#[derive(Debug, Subcommand)]
pub(crate) enum CacheCommand {
    /// Print the value of a key; a value that PHP has serialised is shown as text
    Get {
        storage: String,
        key: String,
        /// Print the stored bytes
        #[arg(long)]
        raw: bool,
    },
    /// Delete keys
    Delete {
        storage: String,
        #[arg(required = true)]
        keys: Vec<String>,
    },
    /// Delete all entries of a storage
    Clear {
        storage: String,
        /// Delete only keys that begin with this text; only for storages in memory
        #[arg(long)]
        prefix: Option<String>,
    },
}

/// What there is to do with a schedule.
#[derive(Debug, Subcommand)]
pub(crate) enum SchedulesCommand {
    /// Show the last runs of a schedule and, for a command, its last lines of output
    Show {
        #[arg(value_name = "SCHEDULE")]
        name: String,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Run a schedule now, even if it is paused
    Run {
        #[arg(value_name = "SCHEDULE")]
        name: String,
    },
    /// Pause a schedule; it does not run on its own, even after a restart of the server
    Pause {
        #[arg(value_name = "SCHEDULE")]
        name: String,
    },
    /// Resume a schedule
    Resume {
        #[arg(value_name = "SCHEDULE")]
        name: String,
    },
}

/// What there is to do with jobs.
#[derive(Debug, Subcommand)]
pub(crate) enum JobsCommand {
    /// Print each job when it ends, until a signal arrives
    Tail(OfPipeline),
    /// List the waiting, delayed and running jobs of a pipeline
    List { pipeline: String },
    /// List dead letters, which are jobs that were given up, newest first
    Dead(OfPipeline),
    /// List unfinished batches
    Batches,
    /// Show a job: a dead letter, a running job and its progress, or a waiting job
    Show {
        /// The job's ID
        id: String,
        /// The job's pipeline, if jobs of several pipelines have the ID
        #[arg(long)]
        pipeline: Option<String>,
    },
    /// Run dead letters again, as if they had never run
    Retry(Letters),
    /// Remove dead letters
    Discard(Letters),
    /// Cancel jobs; waiting jobs are removed, running jobs are ended
    Cancel {
        /// IDs of jobs
        #[arg(required = true)]
        ids: Vec<String>,
        /// The jobs' pipeline, if jobs of several pipelines have an ID
        #[arg(long)]
        pipeline: Option<String>,
    },
    /// Remove all waiting and delayed jobs of a pipeline; running jobs continue
    Clear { pipeline: String },
    /// Print the jobs of a pipeline, one line of JSON for each; pause the pipeline first
    Export { pipeline: String },
    /// Push jobs from the output of `export` on standard input
    Import,
    /// Pause pipelines; they accept jobs, but give none to workers
    Pause(Named),
    /// Resume pipelines
    Resume(Named),
}

/// Which pipelines are meant.
#[derive(Debug, Args)]
pub(crate) struct Named {
    #[arg(required = true, value_delimiter = ',', value_name = "PIPELINE")]
    pub(crate) pipelines: Vec<String>,
}

/// Of all pipelines, or of one.
#[derive(Debug, Args)]
#[group(multiple = false)]
pub(crate) struct OfPipeline {
    /// Only this pipeline
    #[arg(value_name = "PIPELINE")]
    first: Option<String>,
    /// Only this pipeline, as an option; the same as for `retry` and `discard`
    #[arg(long)]
    pipeline: Option<String>,
}

impl OfPipeline {
    pub(crate) fn name(&self) -> Option<&str> {
        self.first.as_deref().or(self.pipeline.as_deref())
    }
}

/// Which dead letters are meant.
#[derive(Debug, Args)]
#[group(required = true, multiple = true)]
pub(crate) struct Letters {
    /// IDs of jobs
    pub(crate) ids: Vec<String>,
    /// Dead letters of this pipeline; all of it without IDs
    #[arg(long)]
    pub(crate) pipeline: Option<String>,
}

/// What [`Jobs`] asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum JobsAction {
    List,
    Pause,
    Resume,
    Destroy,
}

impl JobsAction {
    /// None without a flag.
    pub(crate) fn of(jobs: &Jobs) -> Option<Self> {
        let flags = [
            (jobs.pause, Self::Pause),
            (jobs.destroy, Self::Destroy),
            (jobs.resume, Self::Resume),
            (jobs.list, Self::List),
        ];
        let wanted = flags.into_iter().find(|(is_set, _)| *is_set);
        wanted.map(|(_, action)| action)
    }
}

#[derive(Debug, Args)]
pub(crate) struct Crashes {
    /// Show the report whose ID begins with this, or list the reports of a group
    #[arg(value_name = "ID")]
    pub(crate) id: Option<String>,
    /// Group reports by cause, and count them
    #[arg(long, conflicts_with = "id")]
    pub(crate) group: bool,
    /// Number of reports to list, newest first
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = size, allow_negative_numbers = true, conflicts_with_all = ["id", "group", "json"])]
    pub(crate) last: usize,
    /// Print whole reports as a JSON array; with `--group`, the last report of each cause
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Check {
    /// Print what to change in the file for this release of RoadRunner
    #[arg(long, value_name = "RELEASE", conflicts_with = "json")]
    pub(crate) to: Option<Release>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// A release of RoadRunner, as `compat` has it.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum Release {
    #[value(name = "2025")]
    V2025,
    #[value(name = "3")]
    V3,
}

impl From<Release> for Era {
    fn from(release: Release) -> Self {
        match release {
            Release::V2025 => Self::V2025,
            Release::V3 => Self::V3,
        }
    }
}

/// A shell with completions.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum Shell {
    Bash,
    Fish,
    Zsh,
}

#[derive(Debug, Args)]
pub(crate) struct Serve {
    /// Worker script, `index.php` or directory of an application [default: found automatically]
    #[arg(value_name = "PATH")]
    pub(crate) target: Option<PathBuf>,
    /// Development mode: reload on changes, show errors in the browser, no time limits
    #[arg(long)]
    pub(crate) dev: bool,
    /// Directory of PHP scripts and files to serve, as with nginx and php-fpm
    #[arg(long, value_name = "DIR", conflicts_with = "target")]
    pub(crate) root: Option<PathBuf>,
    /// Address for HTTP: `:8080`, or `8080` for this machine only; the same as `-o http.address=`
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) listen: Option<String>,
    /// Serve HTTPS with a certificate of a local authority, which `pronghorn trust` installs
    #[arg(long)]
    pub(crate) tls: bool,
    /// Serve this domain with a certificate from Let's Encrypt, at ports 80 and 443; repeatable
    #[arg(long = "domain", value_name = "NAME", conflicts_with = "tls")]
    pub(crate) domains: Vec<String>,
    /// Number of workers; the same as `-o http.pool.num_workers=`
    #[arg(long, value_name = "COUNT")]
    pub(crate) workers: Option<u16>,
    /// How scripts run; the same as `-o http.pool.mode=`
    #[arg(long, value_name = "MODE")]
    pub(crate) mode: Option<ScriptMode>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum GrpcCommand {
    /// Write the PHP classes of messages, and interfaces of services, without protoc
    Generate(Generate),
}

/// PHP code from `.proto` files.
#[derive(Debug, Args)]
pub(crate) struct Generate {
    /// `.proto` files; what they import is generated, too [default: `grpc.proto`]
    #[arg(value_name = "FILE")]
    pub(crate) files: Vec<String>,
    /// Directory for the code; files that this command did not write are never replaced
    #[arg(long, value_name = "DIR", default_value = "generated")]
    pub(crate) out: PathBuf,
    /// Directory in which imports are looked up; repeatable [default: `protoreg.proto_path`]
    #[arg(long = "proto-path", value_name = "DIR")]
    pub(crate) paths: Vec<PathBuf>,
    /// Write interfaces for spiral/roadrunner-grpc, which has no streams
    #[arg(long)]
    pub(crate) roadrunner: bool,
}

/// The system's store of authorities.
#[derive(Debug, Args)]
pub(crate) struct Trust {
    /// Remove the authority from the store
    #[arg(long)]
    pub(crate) remove: bool,
    /// Directory of the store; the command that applies changes then does not run
    #[arg(long, value_name = "DIR")]
    pub(crate) into: Option<PathBuf>,
}

/// How the scripts of an application run.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum ScriptMode {
    /// In persistent PHP processes
    Classic,
    /// In a FastCGI program
    Fastcgi,
}

impl ScriptMode {
    /// As the configuration has it.
    pub(crate) fn key(self) -> &'static str {
        match self {
            Self::Classic => "classic",
            Self::Fastcgi => "fastcgi",
        }
    }
}

#[derive(Debug, Clone, Copy, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Show every effective value and its source
    Show {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Print a JSON Schema of the configuration, for completion in editors
    Schema,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ServiceCommand {
    /// Write the unit to /etc/systemd/system; never replace one
    Install {
        #[command(flatten)]
        unit: Unit,
        /// Write the unit to this directory instead
        #[arg(long, value_name = "DIR")]
        into: Option<PathBuf>,
    },
    /// Print the unit
    Print {
        #[command(flatten)]
        unit: Unit,
    },
}

#[derive(Debug, Args)]
pub(crate) struct Unit {
    /// Name of the unit; each application on this machine needs its own
    #[arg(long, value_name = "NAME", default_value = "pronghorn")]
    pub(crate) name: String,
    /// User that the server and the workers run as
    #[arg(long, value_name = "USER", default_value = "pronghorn")]
    pub(crate) user: String,
    /// Binary of the server [default: this one]
    #[arg(long, value_name = "FILE")]
    pub(crate) program: Option<PathBuf>,
    /// Let systemd open a socket at this address, instead of `http.address`; `print` then prints
    /// the unit of the socket
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) socket: Option<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ExtensionCommand {
    /// Build the extension for a PHP and install it where the server looks
    Install {
        /// PHP to build for, as a path or a name in PATH [default: php]
        #[arg(long, value_name = "PHP")]
        php: Option<PathBuf>,
    },
    /// Show each PHP in PATH and its build of the extension; exit with 1 if `php` has none
    Status {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

impl Arguments {
    /// Reads the process's arguments; what is wrong with them, or was asked for, is said already in
    /// the `Err`.
    pub(crate) fn read(name: Name, definition: clap::Command) -> Result<Self, Exit> {
        // `pronghorn --version` needs no command, whatever else is there.
        let asks = std::env::args_os().any(|given| given == "--version" || given == "-v");
        let definition = definition
            .subcommand_required(!asks)
            .arg_required_else_help(!asks);
        let matches = match definition.try_get_matches() {
            Ok(matches) => matches,
            Err(error) => {
                if let Some((word, meant)) = meant(&error) {
                    return Err(misused(&format!("there is no `{word}`\nhint: {meant}")));
                }
                let printed = error.print();
                if error.use_stderr() {
                    return Err(Exit::Misused);
                }
                note(printed);
                return Err(Exit::Done);
            }
        };
        let unfit = |error: clap::Error| misused(&error.to_string());
        let globals = Globals::from_arg_matches(&matches).map_err(unfit)?;
        if globals.version {
            return Err(print_version(name, &globals.overrides));
        }
        Self::from_arg_matches(&matches).map_err(unfit)
    }

    /// What the configuration is read from.
    pub(crate) fn input(&self) -> Input {
        let globals = &self.globals;
        let folder = globals.workdir.clone().unwrap_or_default();
        Input {
            folder,
            file: globals.config.clone(),
            presets: Vec::new(),
            overrides: globals.overrides.clone(),
            dotenv: std::env::var_os("DOTENV_PATH")
                .map(PathBuf::from)
                .or_else(|| globals.dotenv.clone()),
            environment: std::env::vars_os()
                .filter_map(|(name, value)| {
                    Some((name.into_string().ok()?, value.into_string().ok()?))
                })
                .collect::<BTreeMap<_, _>>(),
            disk: pronghorn_config::Disk::Real,
        }
    }
}

/// Commands and flags of other servers, and what they are here. clap would propose what is spelled
/// alike: `stop` for `top`.
const MEANT: [(&str, &str); 15] = [
    (
        "top",
        "`workers -i` shows the workers and updates the table every second",
    ),
    ("ps", "`workers` lists the workers"),
    (
        "list",
        "`workers` lists the workers; `--help` lists the commands",
    ),
    ("start", "`serve` starts the server"),
    ("run", "`serve` starts the server"),
    ("up", "`serve` starts the server"),
    (
        "restart",
        "`reload` reads the configuration again and replaces the workers, `reset` only replaces them; \
         `stop` and `serve` restart the server",
    ),
    ("down", "`stop` stops the server"),
    (
        "validate",
        "`check` looks for mistakes in the configuration",
    ),
    (
        "dev",
        "`serve --dev` restarts workers when a file changes and shows errors in the browser",
    ),
    (
        "watch",
        "`serve --dev` restarts workers when a file changes",
    ),
    ("--watch", "`--dev` restarts workers when a file changes"),
    (
        "--workers",
        "`-o http.pool.num_workers=4` sets their number",
    ),
    ("--port", "`--listen :8000` names the port"),
    ("--host", "`--listen 127.0.0.1:8000` names host and port"),
];

/// The same below `programs`: words of supervisorctl.
const MEANT_OF_PROGRAMS: [(&str, &str); 3] = [
    (
        "status",
        "`programs` shows all programs, `programs list NAME` one of them",
    ),
    (
        "tail",
        "`programs logs NAME` shows the last lines of a program, and follows with `-f`",
    ),
    ("kill", "`programs signal KILL NAME` sends a signal"),
];

/// What a person meant who typed a word of another server.
fn meant(error: &clap::Error) -> Option<(&'static str, &'static str)> {
    let kind = match error.kind() {
        ErrorKind::InvalidSubcommand => ContextKind::InvalidSubcommand,
        ErrorKind::UnknownArgument => ContextKind::InvalidArg,
        _ => return None,
    };
    let Some(ContextValue::String(typed)) = error.get(kind) else {
        return None;
    };
    let usage = error.get(ContextKind::Usage);
    let usage = usage.map(ToString::to_string).unwrap_or_default();
    let table: &[_] = if usage.contains(" programs ") {
        &MEANT_OF_PROGRAMS
    } else {
        &MEANT
    };
    table.iter().copied().find(|(word, _)| word == typed)
}

/// As `rr`, the line that Octane and RoadRunner's own tools parse: the third word is the version.
/// No file is read, so that Octane, which takes 3.0.0 for older than 2023.3, gets an answer that it
/// works with; `-o compat=3` asks for the other one.
pub(crate) fn print_version(name: Name, overrides: &[String]) -> Exit {
    match name {
        Name::Pronghorn => say(&format!("pronghorn {VERSION}\n")),
        Name::Rr => {
            let architecture = match std::env::consts::ARCH {
                "x86_64" => "amd64",
                "aarch64" => "arm64",
                other => other,
            };
            let asked = overrides
                .iter()
                .rev()
                .find_map(|o| o.strip_prefix("compat="));
            let era = match asked.map(str::trim) {
                Some("3") => Era::V3,
                _ => Era::V2025,
            };
            let release = era.version();
            say(&format!(
                "rr version {release} (build time: development, pronghorn {VERSION}), OS: {}, \
                 arch: {architecture}\n",
                std::env::consts::OS
            ));
        }
    }
    Exit::Done
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    fn read(line: &str) -> Arguments {
        Arguments::parse_from(line.split(' '))
    }

    #[test]
    fn the_definition_is_sound() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn words_of_other_servers_lead_to_ours() {
        let wrong = |line: &str| {
            let error = Arguments::try_parse_from(line.split(' ')).unwrap_err();
            meant(&error).map(|(_, meant)| meant)
        };
        assert!(wrong("pronghorn top").unwrap().contains("`workers -i`"));
        assert!(
            wrong("pronghorn serve --port 80")
                .unwrap()
                .contains("--listen")
        );
        assert!(
            wrong("pronghorn serve --port=80")
                .unwrap()
                .contains("--listen")
        );
        assert!(
            wrong("pronghorn programs status")
                .unwrap()
                .contains("`programs list NAME`")
        );
        assert!(
            wrong("pronghorn programs tail x")
                .unwrap()
                .contains("`programs logs NAME`")
        );
        assert_eq!(wrong("pronghorn resett"), None);
        for (word, _) in MEANT {
            let line = format!("pronghorn {word}");
            assert!(
                Arguments::try_parse_from(line.split(' ')).is_err(),
                "{word} is a command"
            );
        }
    }

    #[test]
    fn octanes_command_line_is_understood() {
        let line = "rr -c /app/.rr.yaml -o version=3 -o http.address=127.0.0.1:8000 -o \
                    server.command=/usr/bin/php,/app/vendor/bin/roadrunner-worker -o \
                    http.pool.num_workers=0 -o http.middleware=static -o logs.output=stdout serve";
        let arguments = read(&line.split_whitespace().collect::<Vec<_>>().join(" "));
        assert_eq!(arguments.globals.overrides.len(), 6);
        assert!(matches!(
            arguments.command,
            Command::Serve(Serve { dev: false, .. })
        ));
    }

    #[test]
    fn flags_may_stand_before_and_behind_the_command() {
        for line in [
            "rr -c a.yaml -d -s serve",
            "rr serve -c a.yaml -d -s",
            "rr -d serve -c a.yaml -s",
        ] {
            let globals = read(line).globals;
            assert!(
                globals.debug && globals.silent && globals.config == Some("a.yaml".into()),
                "{line}"
            );
        }
        assert_eq!(
            read("rr serve -w /srv").globals.workdir,
            Some("/srv".into())
        );
        assert_eq!(
            read("rr serve --WorkDir /srv").globals.workdir,
            Some("/srv".into())
        );
    }

    /// What the first column of a table of the reference has, by the heading above it.
    fn listed(heading: &str) -> Vec<String> {
        let page = include_str!("../../../docs/reference/command-line.md");
        let (_, section) = page
            .split_once(&format!("\n## {heading}\n"))
            .unwrap_or_else(|| panic!("the page lacks the section {heading}"));
        let section = section.split("\n## ").next().unwrap_or_default();
        // What stands below headings of its own is no argument.
        let section = section.split("\n### ").next().unwrap_or_default();
        let cells = section.lines().filter_map(|line| {
            let cell = line.strip_prefix("| `")?.split(" |").next()?;
            Some(format!("`{cell}"))
        });
        cells.collect()
    }

    /// An argument as the reference writes it: `-c`, `--config FILE`.
    fn written(argument: &clap::Arg) -> String {
        let value = argument
            .get_value_names()
            .filter(|_| argument.get_action().takes_values())
            .and_then(|names| names.first());
        let Some(long) = argument.get_long() else {
            return format!("`{}`", value.expect("it has a name"));
        };
        let value = value.map_or_else(String::new, |value| format!(" {value}"));
        let short = argument
            .get_short()
            .map_or_else(String::new, |short| format!("`-{short}`, "));
        format!("{short}`--{long}{value}`")
    }

    /// All commands by their whole names; clap's own `help` once.
    fn commands(of: &clap::Command, before: &str) -> Vec<String> {
        let names = of.get_subcommands().flat_map(|command| {
            let name = format!("{before}{}", command.get_name());
            match command.get_name() {
                "help" if before.is_empty() => vec![name],
                "help" => Vec::new(),
                _ if command.has_subcommands() => {
                    let mut below = commands(command, &format!("{name} "));
                    if !command.is_subcommand_required_set() {
                        below.push(name);
                    }
                    below
                }
                _ => vec![name],
            }
        });
        names.collect()
    }

    #[test]
    fn the_reference_lists_every_command_and_flag_and_no_other() {
        let mut definition = Arguments::command();
        definition.build();
        let sorted = |mut list: Vec<String>| {
            list.sort();
            list
        };

        let known = commands(&definition, "");
        let known = known.iter().map(|name| format!("`{name}`")).collect();
        assert_eq!(sorted(listed("Commands")), sorted(known));

        let globals: Vec<_> = definition.get_arguments().map(written).collect();
        assert_eq!(sorted(listed("Flags")), sorted(globals.clone()));

        for command in definition.get_subcommands() {
            let own = command.get_arguments().map(written);
            let own: Vec<_> = own.filter(|written| !globals.contains(written)).collect();
            if command.get_name() != "help" && !own.is_empty() {
                let heading = format!("`{}`", command.get_name());
                assert_eq!(sorted(listed(&heading)), sorted(own), "{heading}");
            }
        }
    }
}
