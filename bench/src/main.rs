//! `pronghorn-bench`: the server beside its rivals in one run, rounds interleaved, medians, CPU
//! time per request.
//!
//! `README.md` says what is measured and how to read it.

#![forbid(unsafe_code)]

mod arguments;
mod benchmarks;
mod beside;
mod client;
mod compare;
mod error;
mod from_memory;
mod goals;
mod leftovers;
mod load;
mod machine;
mod memory;
mod pages;
mod phases;
mod plan;
mod processes;
mod program;
mod report;
mod results;
mod rounds;
mod scenario;
mod servers;
mod site;
mod spread;
mod syscalls;
mod table;

use std::process::ExitCode;

use clap::Parser;
use pronghorn_process::{Spawner, open_files};
use tokio::signal::unix::{SignalKind, signal};

use arguments::{Arguments, Command};
use error::BenchError;
use leftovers::Traces;
use plan::Job;
use report::Report;
use results::Results;
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
    let done = runtime.block_on(command(arguments));
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

async fn command(arguments: Arguments) -> Result<ExitCode, BenchError> {
    match &arguments.command {
        Some(Command::FromMemory { address, threads }) => {
            from_memory::serve(*address, *threads, stop_signal()).await
        }
        Some(Command::Scenarios) => {
            report::print_scenarios(&scenario::select(&scenario::folder(), &[])?);
            Ok(ExitCode::SUCCESS)
        }
        Some(Command::Compare { before, after }) => {
            let (before, after) = (Results::read(before)?, Results::read(after)?);
            report::print(&compare::text(&before, &after));
            Ok(ExitCode::SUCCESS)
        }
        Some(Command::Figures { check }) => benchmarks::fill_in(*check),
        Some(Command::Report(options)) => {
            at_a_site(&arguments, async |site| {
                benchmarks::run(options, &arguments, site).await
            })
            .await
        }
        None => {
            let jobs = plan::jobs(&arguments)?;
            at_a_site(&arguments, async |site| run(&jobs, site, &arguments).await).await
        }
    }
}

/// Measures, and makes sure that nothing is left of it: after an error and a signal too.
async fn at_a_site(
    arguments: &Arguments,
    work: impl AsyncFnOnce(&Site) -> Result<ExitCode, BenchError>,
) -> Result<ExitCode, BenchError> {
    open_files::raise(); // for thousands of idle connections
    if cfg!(debug_assertions) {
        report::tell("warning: built without --release: these figures mean nothing");
    }
    let spawner = Spawner::start().map_err(BenchError::NoSpawner)?;
    let site = Site::new(spawner, arguments)?;
    let done = tokio::select! {
        done = work(&site) => done,
        // What was started is killed as `work` is dropped.
        () = stop_signal() => Err(BenchError::Stopped),
    };
    let traces = Traces {
        folder: site.folder.clone(),
        ports: site.ports(),
    };
    drop(site);
    let left = traces.left().await;
    if left.is_empty() {
        return done;
    }
    if let Err(error) = done {
        report::tell(&format!("error: {error}"));
    }
    Err(BenchError::Left(left))
}

async fn run(jobs: &[Job<'_>], site: &Site, arguments: &Arguments) -> Result<ExitCode, BenchError> {
    let Arguments {
        rounds,
        seconds,
        noise,
        ..
    } = arguments;
    let mut results = Results::new(*rounds, *seconds, *noise);
    results.machine = machine::describe(site).await;
    let scenarios = jobs.iter().map(|job| job.scenario.clone()).collect();
    let mut report = Report::new(results, scenarios);
    rounds::run(jobs, site, arguments, &mut report).await;
    what_waits(jobs, site, &mut report).await;
    report.conclude();
    report.print();
    if let Some(file) = &arguments.json {
        report.results.write(file)?;
        report::tell(&format!("all figures are in {}", file.display()));
    }
    Ok(report.exit_code())
}

/// Of our server, which is the same whatever PHP does: in `hello`, where the least is done beside;
/// connections in each protocol.
async fn what_waits(jobs: &[Job<'_>], site: &Site, report: &mut Report) {
    const HELLO: &str = "hello";
    const PROTOCOLS: [&str; 3] = [HELLO, "hello-tls", "hello-h2"];
    for job in jobs {
        let name = &*job.scenario.name;
        let mut servers = job.servers.iter();
        let Some(server) = servers.find(|server| server.name() == "pronghorn") else {
            continue;
        };
        if PROTOCOLS.contains(&name) {
            report::tell(&format!("idle connections: {name}"));
            match memory::measure(*server, &job.scenario, site).await {
                Ok(idle) => report.results.idle.push(idle),
                Err(error) => report.leave_out(&format!("idle connections of {name}"), &error),
            }
        }
        if name == HELLO {
            report::tell(&format!("an idle worker: {name}"));
            match memory::worker(*server, &job.scenario, site).await {
                Ok(worker) => report.results.workers.push(worker),
                Err(error) => report.leave_out(&format!("an idle worker of {name}"), &error),
            }
        }
    }
}
