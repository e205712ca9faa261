//! `check`, `config show` and `config schema`.

use pronghorn_config::{Era, Input};
use pronghorn_server::settings::{self, Form, Said, check as judge, config_show};
use pronghorn_server::{Services, environment, look};

use crate::application::{Application, missing_package};
use crate::arguments::{Arguments, Check};
use crate::directories;
use crate::exit::{Exit, mention, say};
use crate::htaccess;
use crate::serve::without_configuration;

pub(crate) fn check(arguments: &Arguments, services: &Services, options: &Check) -> Exit {
    let mut missing = None;
    let exit = tell(&judge(
        services,
        &input_of(arguments),
        options.to.map(Era::from),
        Form::of(options.json),
        |loaded, settings| {
            let folder = directories::working(arguments, loaded.file.as_deref());
            let mut findings = look(settings, &folder, &environment(loaded));
            findings.extend(htaccess::findings(settings, loaded, &folder));
            missing = missing_package(&folder);
            findings
        },
    ));
    if let Some(missing) = missing {
        mention(&format!("{missing}\n"));
    }
    exit
}

pub(crate) fn show(arguments: &Arguments, services: &Services, json: bool) -> Exit {
    tell(&config_show(services, &input_of(arguments), Form::of(json)))
}

/// No configuration is read: the schema has all keys that there are.
pub(crate) fn schema(services: &Services) -> Exit {
    say(&settings::schema(services));
    Exit::Done
}

/// Without a configuration what `serve` would find.
fn input_of(arguments: &Arguments) -> Input {
    let input = arguments.input();
    let Some((application, found)) = without_configuration(input.clone()) else {
        return input;
    };
    let Application { name, sign, .. } = application;
    mention(&format!(
        "there is no configuration: this is how `pronghorn serve` serves {name}, found by `{sign}`\n"
    ));
    found
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
