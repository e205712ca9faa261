//! `check` and `config show`.

use pronghorn_config::Era;
use pronghorn_server::settings::{Form, Said, check as judge, config_show};
use pronghorn_server::{Services, environment, look};

use crate::arguments::{Arguments, Check};
use crate::exit::{Exit, mention, say};
use crate::folders;

pub(crate) fn check(arguments: &Arguments, services: &Services, options: &Check) -> Exit {
    tell(&judge(
        services,
        &arguments.input(),
        options.to.map(Era::from),
        Form::of(options.json),
        |loaded, settings| {
            let folder = folders::working(arguments, loaded.file.as_deref());
            look(settings, &folder, &environment(loaded))
        },
    ))
}

pub(crate) fn show(arguments: &Arguments, services: &Services, json: bool) -> Exit {
    tell(&config_show(services, &arguments.input(), Form::of(json)))
}

fn tell(said: &Said) -> Exit {
    say(&said.out);
    mention(&said.err);
    if said.passed {
        Exit::Done
    } else {
        Exit::Misused
    }
}
