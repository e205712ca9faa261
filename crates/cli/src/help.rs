//! The definition of the command line as `--help`, man pages and completions show it: each command
//! with an example and the flags that it uses.

use clap::{Command, CommandFactory as _};

use crate::arguments::Arguments;
use crate::completing;

/// The flags that say which configuration is meant.
const CONFIGURED: &[&str] = &["config", "workdir", "dotenv", "overrides"];
/// The same for commands that say what they do.
const TALKS: &[&str] = &["config", "workdir", "dotenv", "overrides", "silent"];

/// What is told of a command beside its own arguments.
struct About {
    name: &'static str,
    /// Of the flags that all commands take, those that it uses.
    flags: &'static [&'static str],
    /// Without the name of the program.
    example: &'static str,
}

const ABOUT: &[About] = &[
    About::new(
        "serve",
        &["config", "workdir", "dotenv", "overrides", "silent", "pid"],
        "serve --dev --listen :8000",
    ),
    About::new(
        "check",
        CONFIGURED,
        "check -c /etc/pronghorn/pronghorn.yaml",
    ),
    About::new("config", CONFIGURED, "config show"),
    About::new(
        "config show",
        CONFIGURED,
        "config show -o http.pool.num_workers=4",
    ),
    About::new("config schema", &[], "config schema"),
    About::new("reset", TALKS, "reset default"),
    About::new("reload", TALKS, "reload"),
    About::new("workers", CONFIGURED, "workers -i"),
    About::new("crashes", CONFIGURED, "crashes --group"),
    About::new("status", CONFIGURED, "status --json"),
    About::new(
        "logs",
        &["config", "workdir", "dotenv", "overrides", "force"],
        "logs -f --level warn",
    ),
    About::new(
        "stop",
        &[
            "config",
            "workdir",
            "dotenv",
            "overrides",
            "silent",
            "force",
        ],
        "stop -c /srv/shop/pronghorn.yaml",
    ),
    About::new("jobs", TALKS, "jobs dead mails"),
    About::new("jobs tail", CONFIGURED, "jobs tail mails"),
    About::new("jobs list", CONFIGURED, "jobs list mails"),
    About::new("jobs dead", CONFIGURED, "jobs dead mails --json"),
    About::new("jobs batches", CONFIGURED, "jobs batches --json"),
    About::new("jobs show", CONFIGURED, "jobs show 8f14e45f"),
    About::new("jobs retry", CONFIGURED, "jobs retry --pipeline mails"),
    About::new("jobs discard", CONFIGURED, "jobs discard 8f14e45f"),
    About::new("jobs cancel", CONFIGURED, "jobs cancel 8f14e45f"),
    About::new("jobs clear", CONFIGURED, "jobs clear mails"),
    About::new("jobs export", CONFIGURED, "jobs export mails"),
    About::new("jobs import", CONFIGURED, "jobs import"),
    About::new("jobs pause", CONFIGURED, "jobs pause mails"),
    About::new("jobs resume", CONFIGURED, "jobs resume mails"),
    About::new(
        "init",
        &["workdir"],
        "init --from /etc/nginx/sites-enabled/shop --from /etc/php/8.2/fpm/pool.d/www.conf",
    ),
    About::new(
        "service",
        &["config", "workdir"],
        "service install --user www-data",
    ),
    About::new(
        "service install",
        &["config", "workdir"],
        "service install --user www-data",
    ),
    About::new("service print", &["config", "workdir"], "service print"),
    About::new("grpc", TALKS, "grpc generate"),
    About::new("grpc generate", TALKS, "grpc generate --out src"),
    About::new("extension", &[], "extension install"),
    About::new(
        "extension install",
        &[],
        "extension install --php /usr/bin/php8.3",
    ),
    About::new("extension status", &[], "extension status"),
    About::new("trust", CONFIGURED, "trust --remove"),
    About::new("schedules", CONFIGURED, "schedules run nightly"),
    About::new("schedules show", CONFIGURED, "schedules show nightly"),
    About::new("schedules run", CONFIGURED, "schedules run nightly"),
    About::new("schedules pause", CONFIGURED, "schedules pause nightly"),
    About::new("schedules resume", CONFIGURED, "schedules resume nightly"),
    About::new("programs", CONFIGURED, "programs --json"),
    About::new("programs list", CONFIGURED, "programs list queue"),
    About::new("programs start", CONFIGURED, "programs start queue"),
    About::new("programs stop", CONFIGURED, "programs stop queue"),
    About::new("programs restart", CONFIGURED, "programs restart queue"),
    About::new(
        "programs signal",
        CONFIGURED,
        "programs signal SIGUSR1 queue",
    ),
    About::new(
        "programs logs",
        &["config", "workdir", "dotenv", "overrides", "force"],
        "programs logs -f queue",
    ),
    About::new("cache", CONFIGURED, "cache --json"),
    About::new("cache get", CONFIGURED, "cache get pages front"),
    About::new("cache delete", CONFIGURED, "cache delete pages front"),
    About::new(
        "cache clear",
        CONFIGURED,
        "cache clear pages --prefix user:",
    ),
    About::new("completion", &[], "completion bash"),
    About::new("version", &[], "version --json"),
];

impl About {
    const fn new(
        name: &'static str,
        flags: &'static [&'static str],
        example: &'static str,
    ) -> Self {
        Self {
            name,
            flags,
            example,
        }
    }
}

/// The definition, with all that is told of commands.
pub(crate) fn definition() -> Command {
    let mut definition = completing::with_completions(Arguments::command());
    // From here on commands have the flags of all.
    definition.build();
    let globals: Vec<String> = definition
        .get_arguments()
        .map(|argument| argument.get_id().to_string())
        .collect();
    for command in definition.get_subcommands_mut() {
        let name = command.get_name().to_owned();
        tell(command, &name, &globals);
    }
    definition
}

fn tell(command: &mut Command, name: &str, globals: &[String]) {
    for below in command.get_subcommands_mut() {
        let name = format!("{name} {}", below.get_name());
        tell(below, &name, globals);
    }
    let Some(about) = ABOUT.iter().find(|about| about.name == name) else {
        return; // clap's own `help`
    };
    let shows = |id: &str| {
        let is_global = globals.iter().any(|global| global == id);
        !is_global || about.flags.contains(&id) || id == "help"
    };
    let told = std::mem::take(command).mut_args(|argument| {
        let hides = !shows(argument.get_id().as_str());
        if hides { argument.hide(true) } else { argument }
    });
    *command = told.after_help(format!("Example:\n  pronghorn {}", about.example));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Commands that show nothing that a program could want as JSON: they act, or print what is for
    /// another program already.
    const WITHOUT_JSON: &[&str] = &[
        "serve",
        "config",
        "config schema",
        "reload",
        "reset",
        "stop",
        "init",
        "service",
        "service install",
        "service print",
        "grpc",
        "grpc generate",
        "extension",
        "extension install",
        "trust",
        "programs start",
        "programs stop",
        "programs restart",
        "programs signal",
        "cache get",
        "cache delete",
        "cache clear",
        "completion",
        "help",
    ];

    fn all(of: &Command, before: &str, into: &mut Vec<(String, Command)>) {
        for command in of.get_subcommands() {
            let name = format!("{before}{}", command.get_name());
            if command.get_name() == "help" {
                continue;
            }
            all(command, &format!("{name} "), into);
            into.push((name, command.clone()));
        }
    }

    fn commands() -> Vec<(String, Command)> {
        let mut commands = Vec::new();
        all(&definition(), "", &mut commands);
        assert!(commands.len() > 30);
        commands
    }

    #[test]
    fn each_command_has_an_example_that_can_be_typed() {
        let commands = commands();
        for (name, command) in &commands {
            let help = command.clone().render_help().to_string();
            let (_, example) = help
                .split_once("Example:\n  ")
                .unwrap_or_else(|| panic!("{name} has no example"));
            let example: Vec<&str> = example.split_whitespace().collect();
            let parsed = definition().try_get_matches_from(&example);
            assert!(parsed.is_ok(), "{example:?}: {:?}", parsed.err());
        }
        for about in ABOUT {
            let is_there = commands.iter().any(|(name, _)| name == about.name);
            assert!(is_there, "there is no command {}", about.name);
        }
    }

    #[test]
    fn help_shows_the_flags_that_a_command_uses_and_all_are_taken() {
        for (name, command) in commands() {
            let help = command.clone().render_help().to_string();
            let uses = |flag: &str| help.contains(flag);
            assert_eq!(uses("--pid"), name == "serve", "{name}\n{help}");
            assert_eq!(uses("--force"), name == "stop", "{name}\n{help}");
            let follows = ["logs", "programs logs"].contains(&name.as_str());
            assert_eq!(uses("--follow"), follows, "{name}\n{help}");
            assert!(!uses("--debug") && !uses("--version"), "{name}\n{help}");
            let is_alone = ["extension", "version", "completion", "config schema"]
                .iter()
                .any(|it| name.starts_with(it));
            assert_eq!(
                uses("--override"),
                !is_alone && name != "init" && !name.starts_with("service"),
                "{name}"
            );
        }
        let octanes = ["rr", "-p", "-d", "-s", "-f", "version"];
        assert!(definition().try_get_matches_from(octanes).is_ok());
    }

    #[test]
    fn what_shows_something_can_show_it_to_programs_and_the_reference_says_how() {
        let page = include_str!("../../../docs/reference/json.md");
        for (name, command) in commands() {
            let has_json = command
                .get_arguments()
                .any(|argument| argument.get_long() == Some("json"));
            let is_without = WITHOUT_JSON.contains(&name.as_str());
            assert_ne!(has_json, is_without, "{name}");
            if has_json {
                let heads = page.lines().filter(|line| line.starts_with("## "));
                let is_there = heads.flat_map(|head| head.split('`')).any(|it| it == name);
                assert!(is_there, "json.md lacks {name}");
            }
        }
    }

    #[test]
    fn no_command_is_hidden() {
        for (name, command) in commands() {
            assert!(!command.is_hide_set(), "{name}");
        }
    }
}
