//! What fills the slots of a pool: PHP workers that are started or forked, FastCGI servers, and
//! programs for each call.
//!
//! A launcher starts a process, waits until it has announced itself, and hands its connection to
//! the pool. It knows what it starts; the pool knows only that a worker is up, and how it ends.

#![forbid(unsafe_code)]
// A new state must be thought about everywhere.
#![cfg_attr(not(test), warn(clippy::wildcard_enum_match_arm))]

mod boot;
mod cgi;
mod error;
mod fastcgi;
mod measured;
mod output;
mod php;
mod process_output;
mod program;
mod spec;
mod warm;
mod worker;

pub use boot::{
    Booted, CommandLauncher, RelayAddress, RelayListener, Spawn, TransportChoice, Zygotes,
};
pub use cgi::ProgramLauncher;
pub use error::{how_to_let_read, repository_command};
pub use fastcgi::{Addresses, Current, FastCgiLauncher, Fpm, Peers, Place};
pub use php::{
    About, Ini, IniSetting, LackingPhp, Php, PhpError, Preset, SHORTER, ask_php, classic_command,
    classic_variables, extension_command, installed_phps, php_option, script_of,
};
pub use program::{
    Ended, Hear, Leftovers, OutputStream, Program, ProgramError, RunningProgram, SaidLine,
};
pub use spec::{LaunchSpec, Storage};
