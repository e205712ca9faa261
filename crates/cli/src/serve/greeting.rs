//! What `serve` says when it is ready: to a person at a terminal in a few lines, else in a log
//! record.

use std::fmt::Write as _;
use std::io::{self, IsTerminal};
use std::net::IpAddr;
use std::path::Path;

use pronghorn_config::{Effective, Shown};
use pronghorn_launch::{ask_php, extension_command};
use pronghorn_process::{Spawner, which};
use pronghorn_server::{Server, VERSION};

use super::Call;
use super::found::Found;
use crate::arguments::Name;
use crate::exit::say;

/// Before the start: what was found, for who reads logs, and what should be looked at.
pub(super) fn record(found: &Found) {
    if !is_seen() && !found.lines.is_empty() {
        let parts: Vec<_> = found
            .lines
            .iter()
            .map(|(word, what)| format!("{word} {what}"))
            .collect();
        tracing::info!(target: "server", "no configuration: {}", parts.join("; "));
    }
    for warning in &found.warnings {
        tracing::warn!(target: "server", "{warning}");
    }
}

pub(super) async fn greet(call: &Call, server: &Server) {
    if call.name == Name::Rr {
        if !call.silent {
            say(&format!(
                "[INFO] RoadRunner server started; version: {}, buildtime: development\n",
                call.compat.version()
            ));
        }
        return;
    }
    let sentence = sentence(server);
    if !is_seen() {
        tracing::info!(target: "server", "{sentence}");
        return;
    }
    if call.silent {
        return;
    }
    let mut text = format!("{sentence}; Ctrl-C stops it\n");
    for (word, what) in &call.found.lines {
        _ = writeln!(text, "  {word:8} {what}"); // a String takes all
    }
    if let Some(php) = php(server).await {
        _ = writeln!(text, "  {:8} {php}", "php");
    }
    say(&text);
}

/// In development mode, where others than this machine may reach the application.
pub(super) fn warn_of_development(effective: &Effective) {
    let open = effective.keys().filter_map(|(key, value, _)| {
        let is_ours = key.starts_with("http.") && key.ends_with("address");
        match value {
            Some(Shown::One(place)) if is_ours && is_open(&place) => Some(place),
            _ => None,
        }
    });
    let open: Vec<_> = open.collect();
    if !open.is_empty() {
        tracing::warn!(
            target: "server",
            hint = "listen on 127.0.0.1, or serve without `--dev`",
            "development mode shows errors with lines of the sources and the request to everybody \
             who reaches `{}`",
            open.join("`, `")
        );
    }
}

/// Whether an address such as `:8080` is more than this machine's own.
fn is_open(place: &str) -> bool {
    let place = place.strip_prefix("tcp://").unwrap_or(place);
    let Some((host, _)) = place.rsplit_once(':') else {
        return false;
    };
    let host = host.trim_matches(['[', ']']);
    let is_own = |ip: IpAddr| ip.to_canonical().is_loopback();
    !place.starts_with("unix:") && host != "localhost" && !host.parse().is_ok_and(is_own)
}

fn is_seen() -> bool {
    io::stdout().is_terminal()
}

fn sentence(server: &Server) -> String {
    let places = server.places();
    let what = if places.is_empty() {
        "runs".to_owned()
    } else {
        format!("serves {}", places.join(" and "))
    };
    let pools = server.running_pools();
    let size: usize = pools.iter().map(|pool| pool.info().size).sum();
    let workers = match &pools[..] {
        [] => "no workers".to_owned(),
        [pool] if size == 1 => format!("1 worker of `{}`", pool.info().command),
        [pool] => format!("{size} workers of `{}`", pool.info().command),
        pools => format!("{size} workers in {} pools", pools.len()),
    };
    format!("Pronghorn {VERSION} {what} ({workers})")
}

/// The PHP of the first pool whose command names one, and its extension.
async fn php(server: &Server) -> Option<String> {
    let pools = server.running_pools();
    let mut programs = pools.iter().filter_map(|pool| {
        let command = &pool.info().command;
        let program = command.split(' ').next()?.to_owned();
        let name = Path::new(&program).file_name()?.to_str()?;
        (name.starts_with("php") && !name.contains("cgi") && !name.contains("fpm"))
            .then_some(program)
    });
    let program = programs.next()?;
    let path = which(
        &program,
        std::env::var_os("PATH"),
        &crate::directories::current(),
    )?;
    let spawner = Spawner::start().ok()?;
    let about = ask_php(&spawner, &path).await?;
    let has = about.has_extension || pronghorn_extension::find(&about.identity).is_some();
    let extension = if has {
        "with the extension".to_owned()
    } else {
        format!(
            "without the extension: `{}` builds it",
            extension_command(&path)
        )
    };
    Some(format!(
        "{} (`{}`), {extension}",
        about.version,
        path.display()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_others_reach_is_open() {
        for (place, open) in [
            ("127.0.0.1:8080", false),
            ("tcp://127.0.0.2:8080", false),
            ("localhost:8080", false),
            ("[::1]:8080", false),
            ("[::ffff:127.0.0.1]:8080", false),
            ("unix:///run/a.sock", false),
            (":8080", true),
            ("0.0.0.0:8080", true),
            ("[::]:8443", true),
            ("10.0.0.7:80", true),
            ("example.org:80", true),
        ] {
            assert_eq!(is_open(place), open, "{place}");
        }
    }
}
