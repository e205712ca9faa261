//! The command `pronghorn`, also called as `rr`: arguments in, exit code out. Everything that it does is in the libraries.

#![forbid(unsafe_code)]

mod arguments;
mod completion;
mod config;
mod exit;
mod folders;
mod serve;
mod steer;

use std::process::ExitCode;

use arguments::{Arguments, Command, ConfigCommand, Name};

/// A request makes a handful of small allocations; this allocator takes a third of the time of glibc's for them.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let name = Name::of_this_call();
    let arguments = match Arguments::read(name) {
        Ok(arguments) => arguments,
        Err(exit) => return exit.into(),
    };
    match &arguments.command {
        Command::Serve(options) => serve::run(name, &arguments, options),
        Command::Check => config::check(&arguments),
        Command::Config {
            command: ConfigCommand::Show,
        } => config::show(&arguments),
        Command::Reset { of } => steer::reset(name, &arguments, of),
        Command::Workers {
            of,
            add: None,
            remove: None,
            live,
        } => steer::workers(name, &arguments, of, *live),
        Command::Workers {
            of, add, remove, ..
        } => {
            let by = i32::from(add.unwrap_or(0)) - i32::from(remove.unwrap_or(0));
            steer::resize(name, &arguments, of, by)
        }
        Command::Status => steer::status(name, &arguments),
        Command::Stop => steer::stop(name, &arguments),
        Command::Completion { shell } => completion::print(name, *shell),
        Command::Jobs(_) => {
            exit::failed("message queues are not there yet, so there are no pipelines to steer")
        }
        Command::Version => arguments::print_version(name),
    }
    .into()
}
