//! `completion`

use clap::CommandFactory;
use clap_complete::generate;
use clap_complete::shells::{Bash, Fish, Zsh};

use crate::arguments::{Arguments, Name, Shell};
use crate::exit::{Exit, say};

pub(crate) fn print(name: Name, shell: Shell) -> Exit {
    let mut command = Arguments::command();
    let program = name.program();
    let mut script = Vec::new();
    match shell {
        Shell::Bash => generate(Bash, &mut command, program, &mut script),
        Shell::Fish => generate(Fish, &mut command, program, &mut script),
        Shell::Zsh => generate(Zsh, &mut command, program, &mut script),
    }
    say(&String::from_utf8_lossy(&script));
    Exit::Done
}
