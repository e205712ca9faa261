//! `completion`: what makes a shell ask this program how a line could go on.

use clap_complete::env::{Bash, EnvCompleter, Fish, Zsh};

use crate::arguments::{Name, Shell};
use crate::completing::VARIABLE;
use crate::exit::{Exit, failed, say};

pub(crate) fn print(name: Name, shell: Shell) -> Exit {
    let completer: &dyn EnvCompleter = match shell {
        Shell::Bash => &Bash,
        Shell::Fish => &Fish,
        Shell::Zsh => &Zsh,
    };
    let program = name.program();
    let mut script = Vec::new();
    match completer.write_registration(VARIABLE, program, program, program, &mut script) {
        Ok(()) => {
            say(&String::from_utf8_lossy(&script));
            Exit::Done
        }
        Err(error) => failed(&format!("the script can't be written: {error}")),
    }
}
