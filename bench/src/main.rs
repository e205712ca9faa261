//! `pronghorn-bench`: the server beside its rivals in one run, rounds interleaved, medians, CPU time per request.
//!
//! `README.md` says what is measured and how to read it.

#![forbid(unsafe_code)]

mod arguments;
mod client;
mod error;
mod from_memory;
mod goals;
mod machine;
mod memory;
mod processes;
mod program;
mod report;
mod rounds;
mod rows;
#[expect(dead_code, reason = "rows are not measured by scenario yet")]
mod scenario;
mod site;
mod spread;
mod syscalls;
mod table;
mod wrk;

use std::process::ExitCode;

use clap::Parser;
use pronghorn_process::{Spawner, open_files};
use tokio::signal::unix::{SignalKind, signal};

use arguments::{Arguments, Command};
use error::BenchError;
use report::Report;
use rows::{RIVALS, Server};
use site::Site;

/// The server's own: `http-alone` is measured with what serves PHP.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime can be made");
    let done = runtime.block_on(async {
        tokio::select! {
            done = run(arguments) => done,
            // What was started is killed as `run` is dropped.
            () = stop_signal() => Err(BenchError::Stopped),
        }
    });
    match done {
        Ok(code) => code,
        Err(error) => {
            report::tell(&format!("error: {error}"));
            ExitCode::FAILURE
        }
    }
}

async fn stop_signal() {
    let kinds = [
        SignalKind::interrupt(),
        SignalKind::terminate(),
        SignalKind::hangup(),
    ];
    let [mut interrupt, mut terminate, mut hangup] =
        kinds.map(|kind| signal(kind).expect("a signal can be waited for"));
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
        _ = hangup.recv() => {}
    }
}

async fn run(arguments: Arguments) -> Result<ExitCode, BenchError> {
    open_files::raise(); // for thousands of idle connections
    match arguments.command {
        Some(Command::FromMemory { address, threads }) => {
            return from_memory::serve(address, threads, stop_signal()).await;
        }
        Some(Command::Scenarios) => {
            report::print_scenarios(&scenario::select(&scenario::folder(), &[])?);
            return Ok(ExitCode::SUCCESS);
        }
        None => {}
    }
    if cfg!(debug_assertions) {
        report::tell("warning: built without --release: these figures mean nothing");
    }
    let spawner = Spawner::start().map_err(BenchError::NoSpawner)?;
    let site = Site::new(spawner, &arguments)?;
    let rows = rows::select(&arguments.rows)?;
    let mut report = Report::new(machine::describe(&site).await, &arguments);

    let mut servers = Vec::new();
    for row in rows {
        report::tell(&format!("starting {}", row.name));
        match Server::start(row, &site).await {
            Ok(server) => servers.push(server),
            Err(error) => report.leave_out(row.name, &error),
        }
    }
    rounds::run(&mut servers, &site, &arguments, &mut report).await;
    if arguments.syscalls {
        syscalls::count(&servers, &site, &mut report).await;
    }
    let ours = servers.iter().map(|server| server.row);
    let ours: Vec<_> = ours.filter(|row| !RIVALS.contains(&row.name)).collect();
    for server in servers {
        server.stop().await;
    }
    for row in ours {
        report::tell(&format!("measuring memory: {}", row.name));
        match memory::measure(row, &site).await {
            Ok(at_rest) => report.memory.push(at_rest),
            Err(error) => report.leave_out(&format!("{}, memory", row.name), &error),
        }
    }
    report.print();
    if let Some(file) = &arguments.json {
        report.write(file)?;
    }
    Ok(report.exit_code())
}
