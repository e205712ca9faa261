//! `service`: a unit for systemd, for those without a package.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use crate::arguments::{Arguments, ServiceCommand, Unit};
use crate::directories;
use crate::exit::{Exit, failed, misused, say};

/// The unit of the machine's only application, and of a package.
const NAME: &str = "pronghorn";
const FOLDER: &str = "/etc/systemd/system";
/// Where the configuration of a machine's server is.
pub(crate) const CONFIGURATION: &str = "/etc/pronghorn/pronghorn.yaml";

pub(crate) fn run(arguments: &Arguments, command: &ServiceCommand) -> Exit {
    match command {
        ServiceCommand::Print { unit } => {
            let text = match &unit.socket {
                Some(address) => socket(address),
                None => text(arguments, unit),
            };
            match text {
                Ok(text) => {
                    say(&text);
                    Exit::Done
                }
                Err(why) => misused(&why),
            }
        }
        ServiceCommand::Install { unit, into } => {
            let into = into.as_deref().unwrap_or_else(|| Path::new(FOLDER));
            install(arguments, unit, into)
        }
    }
}

fn install(arguments: &Arguments, unit: &Unit, into: &Path) -> Exit {
    let socket = unit.socket.as_deref().map(socket).transpose();
    let file = configuration(arguments, &unit.name);
    let (file, text, socket) = match (file, text(arguments, unit), socket) {
        (Ok(file), Ok(text), Ok(socket)) => (file, text, socket),
        (Err(why), ..) | (_, Err(why), _) | (.., Err(why)) => return misused(&why),
    };
    if !file.is_file() {
        return misused(&format!(
            "there is no configuration `{}`\nhint: `pronghorn init` writes one; `-c FILE` names another",
            file.display()
        ));
    }
    if user_is_missing(&unit.user) {
        return misused(&format!(
            "there is no user `{0}`\nhint: `useradd --system --user-group --no-create-home {0}`, or \
             name another one by `--user`",
            unit.user
        ));
    }
    let units = [("service", Some(text)), ("socket", socket)];
    let units = units
        .map(|(kind, text)| text.map(|text| (into.join(format!("{}.{kind}", unit.name)), text)));
    let mut written = Vec::new();
    for (path, text) in units.iter().flatten() {
        if let Err(refused) = write(path, text) {
            // One unit without the other would be in the way of the next try.
            for path in written {
                _ = std::fs::remove_file(path);
            }
            return refused;
        }
        written.push(path);
    }
    for path in written {
        say(&format!("wrote {}\n", path.display()));
    }
    let name = &unit.name;
    let started = if unit.socket.is_some() {
        format!("{name}.socket {name}.service")
    } else {
        name.clone()
    };
    say(&format!(
        "`systemctl daemon-reload && systemctl enable --now {started}` starts it, now and at each boot\n"
    ));
    Exit::Done
}

fn write(path: &Path, text: &str) -> Result<(), Exit> {
    let shown = path.display();
    directories::write_new(path, text).map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => misused(&format!(
            "`{shown}` is there already, and is not replaced\nhint: `pronghorn service print` prints what \
             would be written; for another application `--name shop` names another unit"
        )),
        _ => {
            let hint = path.parent().and_then(|folder| directories::disk_hint(folder, &error));
            let hint = hint.unwrap_or_else(|| "`sudo pronghorn service install`".to_owned());
            failed(&format!("`{shown}` can't be written: {error}\nhint: {hint}"))
        }
    })
}

/// The unit of a socket at this address, as people write it.
fn socket(address: &str) -> Result<String, String> {
    let wrong = || {
        format!(
            "`--socket {}` is no address for systemd\nhint: write `:80` for all addresses, \
             `127.0.0.1:8080`, or `unix:///run/pronghorn.sock`",
            address.escape_debug()
        )
    };
    let as_systemd = match address.strip_prefix("unix://") {
        Some(path) if path.starts_with('/') && word(Path::new(path))? == path => path,
        Some(_) => return Err(wrong()),
        None => match address.strip_prefix(':') {
            Some(port) => port.parse::<u16>().map(|_| port).map_err(|_| wrong())?,
            None => address
                .parse::<SocketAddr>()
                .map(|_| address)
                .map_err(|_| wrong())?,
        },
    };
    Ok(include_str!("pronghorn.socket").replace("{address}", as_systemd))
}

fn user_is_missing(name: &str) -> bool {
    pronghorn_process::Credentials::look_up(name, None).is_err()
}

/// The one that is named, else the one in the working directory, else the machine's, which belongs
/// to the unit with the default name alone.
fn configuration(arguments: &Arguments, unit: &str) -> Result<PathBuf, String> {
    let workdir = arguments.globals.workdir.as_deref();
    let folder = directories::current().join(workdir.unwrap_or_else(|| Path::new("")));
    match arguments.input().main_file() {
        Some(file) => Ok(folder.join(file)),
        None if unit == NAME => Ok(CONFIGURATION.into()),
        None => Err(format!(
            "there is no configuration in {}, and `{CONFIGURATION}` belongs to the unit `{NAME}`\n\
             hint: `-c FILE` names the configuration of `{unit}`; `pronghorn init` writes one",
            folder.display()
        )),
    }
}

/// The unit. What it keeps from the server is what no PHP application should need either.
fn text(arguments: &Arguments, unit: &Unit) -> Result<String, String> {
    let program = match &unit.program {
        Some(program) => directories::current().join(program),
        None => std::env::current_exe().map_err(|error| {
            format!("it is unknown where this program is: {error}\nhint: `--program PATH` names it")
        })?,
    };
    let configuration = configuration(arguments, &unit.name)?;
    let command = |name: &str| -> Result<String, String> {
        Ok(format!(
            "{} {name} -c {}",
            word(&program)?,
            word(&configuration)?
        ))
    };
    for (option, name) in [("name", &unit.name), ("user", &unit.user)] {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        if name.is_empty() || name.starts_with(['.', '-']) || !name.chars().all(is_plain) {
            return Err(format!(
                "`--{option} {}` is no name for systemd\nhint: write letters, digits, `.`, `_` and `-`",
                name.escape_debug()
            ));
        }
    }
    // Each has folders of its own: systemd removes one of /run with its service.
    let folder = if unit.name == NAME {
        NAME.to_owned()
    } else {
        format!("{NAME}-{}", unit.name)
    };
    let of = configuration.parent().unwrap_or_else(|| Path::new("/"));
    let state = pronghorn_server::state_folder_of_service(of);
    let state = state
        .strip_prefix("/var/lib")
        .unwrap_or_else(|_| Path::new(NAME));
    Ok(include_str!("pronghorn.service")
        .replace("{command}", &command("serve")?)
        .replace("{check}", &command("check")?)
        .replace("{reload}", &command("reload")?)
        .replace("{folder}", &folder)
        .replace("{state}", &word(state)?)
        .replace("{user}", &unit.user))
}

/// A word of `ExecStart=`, in which systemd gives a meaning to some characters.
fn word(path: &Path) -> Result<String, String> {
    let shown = path.display().to_string();
    if shown
        .chars()
        .any(|c| c.is_control() || c == '"' || c == '\\')
    {
        return Err(format!(
            "a unit can't name `{}`: rename it",
            shown.escape_debug()
        ));
    }
    let escaped = shown.replace('%', "%%").replace('$', "$$");
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-+/%$".contains(c);
    Ok(if escaped.chars().all(is_plain) {
        escaped
    } else {
        format!("\"{escaped}\"")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_one_of_systemds() {
        for (address, expected) in [
            (":80", "80"),
            ("127.0.0.1:8080", "127.0.0.1:8080"),
            ("[::1]:8080", "[::1]:8080"),
            ("unix:///run/a.sock", "/run/a.sock"),
        ] {
            let unit = socket(address).unwrap();
            assert!(
                unit.contains(&format!("\nListenStream={expected}\n")),
                "{unit}"
            );
        }
        for wrong in [
            "80",
            "localhost:80",
            ":http",
            "unix://run",
            "unix:///a\nUser=x",
            "",
        ] {
            assert!(socket(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_path_is_a_word_of_a_unit() {
        for (path, expected) in [
            ("/srv/app.yaml", "/srv/app.yaml"),
            ("/srv/my app", "\"/srv/my app\""),
            ("/srv/50%", "/srv/50%%"),
        ] {
            assert_eq!(word(Path::new(path)).unwrap(), expected);
        }
        assert!(word(Path::new("/srv/a\nExecStartPre=x")).is_err());
    }
}
