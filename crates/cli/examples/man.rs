//! Man pages, from the definition that `--help` has:
//! `cargo run --example man -- DIR`

use std::path::PathBuf;
use std::{env, fs, io};

use clap::Command;

fn main() -> io::Result<()> {
    let folder = env::args_os().nth(1).map(PathBuf::from);
    let folder = folder.ok_or_else(|| io::Error::other("which directory?"))?;
    fs::create_dir_all(&folder)?;
    clap_mangen::generate_to(without_help(pronghorn_cli::definition()), folder)
}

/// `help` has all other commands below itself, which are pages of their own.
fn without_help(command: Command) -> Command {
    let names: Vec<String> = (command.get_subcommands())
        .map(|below| below.get_name().to_owned())
        .collect();
    let hidden = |below: Command| match below.get_name() {
        "help" => below.hide(true),
        _ => without_help(below),
    };
    let command = command.disable_help_subcommand(true);
    (names.into_iter()).fold(command, |command, name| {
        command.mut_subcommand(name, hidden)
    })
}
