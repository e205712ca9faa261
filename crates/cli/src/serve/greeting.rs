//! What `serve` says when it is ready: to a person at a terminal in a few lines, else in a log
//! record.

use std::fmt::Write as _;
use std::io::{self, IsTerminal};
use std::path::Path;

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
        &crate::folders::current(),
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
