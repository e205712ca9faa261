//! What a shell completes that the definition of the command line does not know: keys, pools, PHP
//! files. The shell asks this program for it, by a variable.

use std::ffi::OsStr;
use std::path::Path;

use clap::Command;
use clap_complete::engine::{ArgValueCompleter, CompletionCandidate, PathCompleter};
use clap_complete::env::{Bash, CompleteEnv, Fish, Shells, Zsh};
use pronghorn_config::{Input, Severity, describe_with, load};
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

/// The definition with what knows its values.
pub(crate) fn with_completions(command: Command) -> Command {
    let pools = |command: Command| {
        command.mut_arg("of", |argument| argument.add(ArgValueCompleter::new(pools)))
    };
    command
        .mut_arg("overrides", |argument| {
            argument.add(ArgValueCompleter::new(keys))
        })
        .mut_subcommand("reset", pools)
        .mut_subcommand("workers", pools)
        .mut_subcommand("serve", |command| {
            let scripts = PathCompleter::any().filter(is_served);
            command.mut_arg("target", |argument| {
                argument.add(ArgValueCompleter::new(scripts))
            })
        })
}

fn is_served(path: &Path) -> bool {
    path.is_dir() || path.extension() == Some(OsStr::new("php"))
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

/// Those of the configuration in the working directory.
fn pools(begun: &OsStr) -> Vec<CompletionCandidate> {
    let services = Services::default();
    let resolved = load(&Input::default())
        .resolve_with(Severity::Warning, |t| Settings::read_with(t, &services));
    let Ok(settings) = resolved.into_settings() else {
        return Vec::new();
    };
    let names = settings.pools().map(|(_, pool)| pool.name.to_owned());
    beginning(begun, names)
}
