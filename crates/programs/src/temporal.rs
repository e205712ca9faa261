//! The service `temporal`: RoadRunner's program with the section of this name.

use std::ffi::OsString;
use std::path::Path;

use pronghorn_config::{Command, Map, Node, Table, Value, meant, shell_syntax};
use pronghorn_plugin_api::{
    BoxFuture, Context, Finding, Lack, Machine, Running, Service, StartError,
};
use pronghorn_process::{Credentials, NotRunnable, find_runnable, search_path};
use pronghorn_workers::{Pools, ServerSettings};

use crate::all::AllPrograms;
use crate::channel::Channel;
use crate::roadrunner::{self, RoadRunnerFile};
use crate::service::{self, Configured, ReadAgain};
use crate::settings::{ProgramSettings, Replace};

/// The section, and the name of its only program.
const TEMPORAL: &str = "temporal";
/// Below it, what runs activities.
const ACTIVITIES: &str = "activities";
/// The command of its workers.
const OWN_COMMAND: &str = "temporal.activities.command";
/// RoadRunner's keys, for suggestions. Others are passed on as well: a newer one may have more.
const KEYS: [&str; 7] = [
    "address",
    "namespace",
    "cache_size",
    "activities",
    "metrics",
    "tls",
    "disable_activity_workers",
];
/// RoadRunner's program, which its installer puts into the application's directory.
const BINARY: &str = "rr";
/// How to get it.
const GET: &str = "`composer require --dev spiral/roadrunner-cli` and `vendor/bin/rr get-binary` put it \
                   into this directory; or download it from \
                   https://github.com/roadrunner-server/roadrunner/releases and write `temporal.binary: \
                   /path/to/rr`";

/// RoadRunner's program before its start.
#[derive(Debug)]
pub struct TemporalService {
    binary: Option<String>,
    section: Map,
    all: AllPrograms,
}

impl TemporalService {
    /// `t` is the whole configuration. None without the section `temporal`. `all` has the programs
    /// of the server.
    pub fn read(t: &mut Table<'_>, all: AllPrograms) -> Option<Self> {
        t.optional_section_with(
            TEMPORAL,
            "Workflows and activities of Temporal. The server starts and watches RoadRunner's \
             program, which serves them. Without this section, there are none.",
            |t| {
                t.live();
                let binary = t
                    .key(
                        "binary",
                        "RoadRunner's program: a path, or a name that is looked up in `PATH`. By \
                         default, `rr` in the server's directory, or in `PATH`.",
                    )
                    .ours()
                    .optional();
                let mut section = t.pass_on(
                    "All other keys are RoadRunner's: `address`, `namespace`, `activities`, `tls`, \
                     `metrics` and so on. The server passes them on, and does not check them.",
                );
                let is_ours = |name: &str| name.eq_ignore_ascii_case("binary");
                section.entries.retain(|entry| !is_ours(&entry.name));
                Self {
                    binary,
                    section,
                    all,
                }
            },
        )
    }

    fn command_key(&self) -> Option<&Node> {
        match &self.section.get(ACTIVITIES)?.value {
            Value::Map(activities) => activities.get("command"),
            Value::Null | Value::Text(_) | Value::List(_) => None,
        }
    }

    /// The command of its workers in its own section. RoadRunner cuts a text at spaces.
    fn own_command(&self) -> Option<Vec<String>> {
        let command = self.command_key()?;
        let words: Vec<&str> = match &command.value {
            Value::Text(text) => text.text.split_whitespace().collect(),
            Value::List(items) => items.iter().filter_map(Node::text).collect(),
            Value::Null | Value::Map(_) => Vec::new(),
        };
        let words: Vec<String> = words.into_iter().map(ToOwned::to_owned).collect();
        (!words.is_empty()).then_some(words)
    }

    fn binary(&self, directory: &Path) -> String {
        match &self.binary {
            Some(binary) => binary.clone(),
            None if directory.join(BINARY).is_file() => format!("./{BINARY}"),
            None => BINARY.to_owned(),
        }
    }

    /// Its only program.
    pub(crate) fn programs(&self, directory: &Path, pools: &Pools) -> Result<Configured, String> {
        let of_server = |command: Command| {
            let program = command.program().to_owned();
            let arguments = command.arguments().iter().cloned();
            std::iter::once(program).chain(arguments).collect()
        };
        let workers = pools.server_command().map(of_server);
        let workers = workers.or_else(|| self.own_command());
        let workers =
            workers.ok_or("neither `server.command` nor `temporal.activities.command` is set")?;
        let binary = self.binary(directory);
        let user = pools.resources().users.of_server().map(|(_, user)| user);
        let variables = pools.command_variables(user);
        if let Some((missing, hint)) = missing(&binary, directory, &variables, user, true) {
            return Err(format!(
                "`{binary}`, which serves `temporal`, {missing} (hint: {hint})"
            ));
        }
        let command = Command::new([binary]).ok_or("`temporal.binary` is empty")?;
        // Both processes would listen on one address.
        let replace = if self.section.get("metrics").is_some() {
            Replace::StopFirst
        } else {
            Replace::StartFirst
        };
        let file = RoadRunnerFile::new(&self.section, workers);
        let settings = ProgramSettings::of_roadrunner(command, file, replace);
        Ok(vec![(TEMPORAL.to_owned(), settings)])
    }
}

/// Why a program can't be used.
fn missing(
    binary: &str,
    directory: &Path,
    environment: &[(OsString, OsString)],
    user: Option<&Credentials>,
    knows_users: bool,
) -> Option<(String, String)> {
    match find_runnable(binary, search_path(environment), directory, user) {
        Ok(found) if is_own(&found) => Some((
            "is this server, and not RoadRunner".to_owned(),
            GET.to_owned(),
        )),
        Ok(_) => None,
        Err(why @ NotRunnable::Missing) => Some((why.to_string(), GET.to_owned())),
        Err(why) if !knows_users && why.is_about_user() => None,
        Err(why) => Some((why.to_string(), why.hint(directory))),
    }
}

/// Links called `rr` lead to this server where it has taken RoadRunner's place: it would start
/// itself again and again.
fn is_own(found: &Path) -> bool {
    let own = std::env::current_exe().and_then(|own| own.canonicalize());
    own.is_ok_and(|own| found.canonicalize().is_ok_and(|found| found == own))
}

impl Service for TemporalService {
    fn starts_processes(&self) -> bool {
        true
    }

    fn has_unnamed_user(&self) -> bool {
        true
    }

    fn is_watched(&self) -> bool {
        true
    }

    fn check(&self, t: &mut Table<'_>, server: &ServerSettings) {
        if server.command.is_none() && self.own_command().is_none() {
            t.error(
                TEMPORAL,
                "has no workers: neither `server.command` nor `temporal.activities.command` is set",
                "for example `activities: {command: php temporal.php}` in `temporal`",
            );
        }
        let names = self.section.entries.iter().map(|entry| &*entry.name);
        for name in names.filter(|name| !KEYS.contains(name)) {
            if let Some(meant) = meant(name, &KEYS) {
                let message = "is passed on to RoadRunner, which has no such key";
                let hint = format!("did you mean `{meant}`?");
                t.warn_below(&[TEMPORAL, name], message, &hint);
            }
        }
        if let Some(node) = self.command_key()
            && let Some(command) = node.text()
            && let Some((message, _)) = shell_syntax(command, !node.origin.variables.is_empty())
        {
            let hint = "put it into a file: `sh FILE`. RoadRunner takes quotes as letters";
            t.warn_below(&[TEMPORAL, ACTIVITIES, "command"], &message, hint);
        }
    }

    fn look(&self, machine: &Machine<'_>) -> Vec<Finding> {
        let Machine {
            directory,
            environment,
            ..
        } = *machine;
        let binary = self.binary(directory);
        let missing = missing(
            &binary,
            directory,
            environment,
            machine.user(),
            machine.users.is_some(),
        );
        let missing = missing.map(|(missing, hint)| {
            let (key, message) = match self.binary {
                Some(_) => (
                    "temporal.binary",
                    format!("names `{binary}`, which {missing}"),
                ),
                None => (
                    TEMPORAL,
                    format!("is served by RoadRunner's program, and `{binary}` {missing}"),
                ),
            };
            Finding::missing(key, message, hint)
        });
        let workers = self.own_command().and_then(Command::new);
        let lack = workers.and_then(|command| machine.lacks(&command, machine.user()));
        let lack = lack.map(|Lack { message, hint, .. }| {
            let message = format!("{message}: its workers do not start");
            Finding::doubtful(OWN_COMMAND, message, hint)
        });
        missing.into_iter().chain(lack).collect()
    }

    fn start(
        self: Box<Self>,
        context: Context,
    ) -> BoxFuture<'static, Result<Box<dyn Running>, StartError>> {
        Box::pin(async move {
            if roadrunner::is_inside() {
                return Err("`temporal.binary` is a Pronghorn, and not RoadRunner".into());
            }
            roadrunner::tidy();
            let workers = context.workers.as_ref().expect("a service with workers");
            let programs = self.programs(context.directory(), &workers.pools)?;
            let read: ReadAgain = |to, directory, pools| {
                let to = to.downcast::<Self>()?;
                Some(to.programs(directory, pools))
            };
            let programs = (programs, read);
            let running = service::start(Channel::Temporal, programs, &self.all, &context).await?;
            Ok(Box::new(running) as Box<dyn Running>)
        })
    }
}
