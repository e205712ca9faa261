//! `logs`: the newest records of a server that runs.

use std::io::{self, IsTerminal};

use pronghorn_config::{Section, Table, load};
use pronghorn_control::{Ask, ClientError, LogsWanted, Tell};
use pronghorn_server::logs::readable;
use pronghorn_server::settings::{LogOutput, LogSettings};

use super::text::{counted, lines};
use super::{Server, Task, terminal};
use crate::arguments::Logs;
use crate::exit::{Exit, mention, write_out};

/// Until the last record, or with `follow` until a signal or the server ends it.
pub(super) async fn run(task: &Task<'_>, logs: &Logs) -> Result<Exit, String> {
    let server = task.server().await;
    let server = server.map_err(|why| format!("{why}\n{}", where_it_is(task)))?;
    let Server::Control(mut client) = server else {
        return Err(format!(
            "only RPC answers, which does not tell of the log\n\
             hint: name the server's configuration by `-c`, or its folder by `-w`\n{}",
            where_it_is(task)
        ));
    };
    let wanted = LogsWanted {
        lines: logs.lines,
        request: logs.request.clone(),
        level: logs.level.map(|level| level.word().to_owned()),
        follow: logs.follow,
    };
    let colours = io::stdout().is_terminal() && terminal::has_colours();
    let asked = client.ask(Ask::Logs(wanted)).await;
    let mut answers = asked.map_err(|error| error.to_string())?;
    let mut is_empty = true;
    loop {
        let (records, lost) = match answers.next().await {
            Ok(None) => {
                if is_empty {
                    mention("no record that the server keeps fits\n");
                }
                return Ok(Exit::Done);
            }
            Ok(Some(Tell::Records { records, lost })) => (records, lost),
            Ok(Some(other)) => {
                return Err(format!(
                    "the server answered with something else: {other:?}"
                ));
            }
            Err(error @ (ClientError::Left(_) | ClientError::Silent(_))) => {
                return Err(format!("{error}\n{}", where_it_is(task)));
            }
            Err(error) => return Err(error.to_string()),
        };
        is_empty &= records.is_empty();
        if lost > 0 {
            let lost = counted(lost, "record");
            mention(&format!("{lost} lost: the log is faster than its reader\n"));
        }
        let mut text = String::new();
        for record in &records {
            if logs.json {
                text.push_str(&(lines(record) + "\n"));
            } else {
                text.push_str(&shown_record(record, colours));
            }
        }
        match write_out(text.as_bytes()) {
            Ok(()) => {}
            // `| head` has seen enough.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(Exit::Done),
            Err(error) => return Err(format!("the records can't be written: {error}")),
        }
    }
}

/// A record for a person.
pub(super) fn shown_record(record: &str, colours: bool) -> String {
    readable(record, colours).unwrap_or_else(|| lines(record) + "\n")
}

/// The section `logs` alone.
struct LogsAlone(LogSettings);

impl Section for LogsAlone {
    fn read(t: &mut Table<'_>) -> Self {
        Self(t.section("logs", "Where records go."))
    }
}

/// What a server writes stays when it ends.
fn where_it_is(task: &Task<'_>) -> String {
    let resolved = load(&task.arguments.input()).resolve_part::<LogsAlone>();
    let target = resolved.into_settings().ok().map(|logs| logs.0.target);
    let file = target.and_then(|target| {
        let output = target.output.into_iter().find_map(|output| match output {
            LogOutput::File(path) => Some(path),
            LogOutput::Stdout | LogOutput::Stderr => None,
        });
        target.file.map(|file| file.path).or(output)
    });
    match file {
        Some(path) => format!(
            "hint: what was logged is in {}",
            task.directory.join(path).display()
        ),
        None => "hint: `journalctl -u pronghorn` has the log of a service; others write to \
                 standard error, or where `logs.output` says"
            .to_owned(),
    }
}
