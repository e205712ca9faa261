//! The command `pronghorn`, also called as `rr`: arguments in, exit code out. Everything that it
//! does is in the libraries.
//!
//! A library itself, so that a server of one's own has the same commands: [`run_with`] puts a
//! handler before PHP.

#![forbid(unsafe_code)]

mod application;
mod arguments;
mod authority;
mod completing;
mod completion;
mod config;
mod crashes;
mod directories;
mod exit;
mod extension;
mod generate;
mod help;
#[cfg(test)]
mod hostile_names;
mod htaccess;
mod init;
mod pid_file;
mod serve;
mod service;
mod steer;
mod trust;

use std::process::ExitCode;
use std::sync::Arc;

use arguments::{Arguments, Command, ConfigCommand, GrpcCommand, Name};
pub use pronghorn_http::Around;
use pronghorn_serve::Handler;
pub use pronghorn_server::Services;

/// The command line as `--help` shows it, for man pages.
pub fn definition() -> clap::Command {
    help::definition()
}

/// Does what the command line says.
pub fn run() -> ExitCode {
    run_services(Services::default())
}

/// The same for a server of one's own: `wrap` gets what answers requests by PHP and gives what
/// stands before it. It is called at the start of `serve` and for each reload.
/// `examples/own-server` shows it.
pub fn run_with(
    wrap: impl Fn(Arc<dyn Handler>) -> Arc<dyn Handler> + Send + Sync + 'static,
) -> ExitCode {
    run_services(Services::new(Around::new(wrap)))
}

/// The same for a server with services of one's own. `examples/service` shows it.
pub fn run_services(services: Services) -> ExitCode {
    if completing::answer(help::definition) {
        return ExitCode::SUCCESS;
    }
    let name = Name::of_this_call();
    let arguments = match Arguments::read(name, help::definition()) {
        Ok(arguments) => arguments,
        Err(exit) => return exit.code(),
    };
    match &arguments.command {
        Command::Serve(options) => serve::run(name, &arguments, options, services),
        Command::Check(options) => config::check(&arguments, &services, options),
        Command::Config {
            command: ConfigCommand::Show { json },
        } => config::show(&arguments, &services, *json),
        Command::Config {
            command: ConfigCommand::Schema,
        } => config::schema(&services),
        Command::Crashes(options) => crashes::run(name, &arguments, options),
        Command::Reset { of } => steer::reset(name, &arguments, of),
        Command::Reload => steer::reload(name, &arguments),
        Command::Workers {
            of,
            add: None,
            remove: None,
            live,
            json,
        } => steer::workers(name, &arguments, of, *live, *json),
        Command::Workers {
            of, add, remove, ..
        } => {
            let by = i32::from(add.unwrap_or(0)) - i32::from(remove.unwrap_or(0));
            steer::resize(name, &arguments, of, by)
        }
        Command::Status { alive, json } => steer::status(name, &arguments, *alive, *json),
        Command::Logs(logs) => steer::logs(name, &arguments, logs),
        Command::Stop => steer::stop(name, &arguments),
        Command::Init { from } => init::run(&arguments, from),
        Command::Service { command } => service::run(&arguments, command),
        Command::Grpc {
            command: GrpcCommand::Generate(options),
        } => generate::run(&arguments, options),
        Command::Extension { command } => extension::run(command),
        Command::Completion { shell } => completion::print(name, *shell),
        Command::Trust(options) => trust::run(&arguments, options),
        Command::Jobs(jobs) => steer::jobs(name, &arguments, jobs),
        Command::Programs(programs) => steer::programs(name, &arguments, programs),
        Command::Cache(cache) => steer::cache(name, &arguments, cache),
        Command::Schedules(schedules) => steer::schedules(name, &arguments, schedules),
        Command::Version { json: true } => {
            exit::say_json(&serde_json::json!({"version": pronghorn_server::VERSION}))
                .unwrap_or_else(|error| exit::failed(&error))
        }
        Command::Version { json: false } => {
            arguments::print_version(name, &arguments.globals.overrides)
        }
    }
    .code()
}
