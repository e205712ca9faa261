//! Completion of what the definition of the command line does not know: keys, names in the
//! configuration, PHP files. A shell asks this program for it, by a variable.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use clap::Command;
use clap_complete::engine::{ArgValueCompleter, CompletionCandidate, PathCompleter};
use clap_complete::env::{Bash, CompleteEnv, Fish, Shells, Zsh};
use pronghorn_config::{Input, Resolved, Severity, describe_with, load};
use pronghorn_server::Services;
use pronghorn_server::settings::Settings;

/// By it a shell asks.
pub(crate) const VARIABLE: &str = "PRONGHORN_COMPLETE";

/// Answers a shell that asks; whether one has asked.
pub(crate) fn answer(definition: fn() -> Command) -> bool {
    let completing = CompleteEnv::with_factory(definition)
        .var(VARIABLE)
        .shells(Shells(&[&Bash, &Fish, &Zsh]));
    let here = std::env::current_dir().ok();
    // Nobody reads a complaint while a line is typed.
    completing
        .try_complete(std::env::args_os(), here.as_deref())
        .unwrap_or(true)
}

/// The sections that have the names for an argument, by the name of its value.
const NAMES: [(&str, &str); 4] = [
    ("PIPELINE", "jobs.pipelines."),
    ("PROGRAM", "service."),
    ("SCHEDULE", "jobs.schedules."),
    ("STORAGE", "kv."),
];

/// The definition with what knows its values.
pub(crate) fn with_completions(command: Command) -> Command {
    named(command)
        .mut_arg("overrides", |argument| {
            argument.add(ArgValueCompleter::new(keys))
        })
        .mut_subcommand("serve", |command| {
            let scripts = PathCompleter::any().filter(is_served);
            command.mut_arg("target", |argument| {
                argument.add(ArgValueCompleter::new(scripts))
            })
        })
        .mut_subcommand("grpc", |command| {
            command.mut_subcommand("generate", |command| {
                command.mut_arg("files", |argument| {
                    argument.add(ArgValueCompleter::new(
                        PathCompleter::any().filter(is_proto),
                    ))
                })
            })
        })
}

/// Completes names of the configuration in a command and those below it.
fn named(command: Command) -> Command {
    let command = command.mut_args(|argument| {
        // The name that help shows: without one of its own, that of the argument.
        let named = argument.get_value_names().and_then(<[_]>::first);
        let value = named.map_or_else(|| argument.get_id().as_str(), |name| name.as_str());
        let value = value.to_ascii_uppercase();
        if value == "POOL" {
            return argument.add(ArgValueCompleter::new(pools));
        }
        match NAMES.into_iter().find(|(name, _)| *name == value) {
            Some((_, section)) => argument.add(ArgValueCompleter::new(move |begun: &OsStr| {
                names_below(section, begun)
            })),
            None => argument,
        }
    });
    command.mut_subcommands(named)
}

fn is_served(path: &Path) -> bool {
    path.is_dir() || path.extension() == Some(OsStr::new("php"))
}

fn is_proto(path: &Path) -> bool {
    path.is_dir() || path.extension() == Some(OsStr::new("proto"))
}

fn beginning(with: &OsStr, words: impl Iterator<Item = String>) -> Vec<CompletionCandidate> {
    let with = with.to_string_lossy();
    let fitting = words.filter(|word| word.starts_with(&*with));
    fitting.map(CompletionCandidate::new).collect()
}

/// `http.address=` and the like, without those of lists and of pools with names of their own.
fn keys(begun: &OsStr) -> Vec<CompletionCandidate> {
    let services = Services::default();
    let reference = describe_with(|t| Settings::read_with(t, &services));
    let plain = reference.paths().filter(|path| !path.contains(['<', '[']));
    beginning(begun, plain.map(|path| format!("{path}=")))
}

/// The pools of the configuration.
fn pools(begun: &OsStr) -> Vec<CompletionCandidate> {
    let services = Services::default();
    let Ok(settings) = resolved(&services).into_settings() else {
        return Vec::new();
    };
    let names = settings.pools().map(|(_, pool)| pool.name.to_owned());
    beginning(begun, names)
}

/// The sections that the configuration has below this one.
fn names_below(section: &str, begun: &OsStr) -> Vec<CompletionCandidate> {
    let resolved = resolved(&Services::default());
    let keys = resolved.effective().keys();
    let below = keys.filter_map(|(path, _, _)| path.strip_prefix(section)?.split_once('.'));
    let names: BTreeSet<_> = below.map(|(name, _)| name.to_owned()).collect();
    beginning(begun, names.into_iter())
}

fn resolved(services: &Services) -> Resolved<Settings> {
    load(&input()).resolve_with(Severity::Warning, |t| Settings::read_with(t, services))
}

/// The file and the directory that the line names so far. It need not be a whole command yet.
fn input() -> Input {
    let mut input = Input::default();
    let mut words = std::env::args_os().skip_while(|word| word != "--");
    while let Some(word) = words.next() {
        match word.to_str() {
            Some("-c" | "--config") => input.file = words.next().map(PathBuf::from),
            Some("-w") => input.folder = words.next().map(PathBuf::from).unwrap_or_default(),
            _ => {}
        }
    }
    input
}
