//! System calls per request, counted by strace while a server is asked.

use std::collections::BTreeMap;
use std::time::Duration;

use rustix::process::Signal;
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, sleep};

use crate::error::BenchError;
use crate::load;
use crate::processes::Processes;
use crate::program::{Argv, Program};
use crate::report::{Report, tell};
use crate::scenario::Load;
use crate::servers::Server;
use crate::site::{Site, find};

/// Connections that ask at once: one, which waits for each answer, and enough to keep all busy.
const CONNECTIONS: [u32; 2] = [1, 10];
const SECONDS: u32 = 2;
/// For strace to attach, and between two looks whether it has.
const ATTACH: Duration = Duration::from_secs(5);
const ATTACH_STEP: Duration = Duration::from_millis(20);

/// Calls per request by name.
pub(crate) type Calls = BTreeMap<String, f64>;

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Count {
    pub(crate) scenario: String,
    pub(crate) server: String,
    pub(crate) connections: u32,
    #[serde(rename = "server_calls")]
    pub(crate) of_server: Calls,
    #[serde(rename = "php_calls")]
    pub(crate) of_php: Calls,
}

/// Counts for all servers. Tracing slows them down several times: nothing else may be measured
/// meanwhile.
pub(crate) async fn count(servers: &[Server], site: &Site, report: &mut Report) {
    for server in servers {
        for connections in CONNECTIONS {
            let (scenario, name) = (&server.scenario.name, &server.name);
            tell(&format!(
                "  counting system calls: {name}, connections: {connections}"
            ));
            match count_one(server, connections, site).await {
                Ok(count) => report.results.syscalls.push(count),
                Err(error) => {
                    let what = format!("{scenario}: system calls of {name}");
                    report.leave_out(&what, &error);
                }
            }
        }
    }
}

async fn count_one(server: &Server, connections: u32, site: &Site) -> Result<Count, BenchError> {
    let Processes { server: own, php } = server.processes();
    let (own, php) = (
        Tracer::attach(&own, site).await?,
        Tracer::attach(&php, site).await?,
    );
    let seen = load::run(server, Load::Closed { connections }, SECONDS, site).await?;
    Ok(Count {
        scenario: server.scenario.name.clone(),
        server: server.name.clone(),
        connections,
        of_server: own.calls(seen.requests).await?,
        of_php: php.calls(seen.requests).await?,
    })
}

/// An strace that looks at some processes with all their threads.
struct Tracer(Option<Program>);

impl Tracer {
    async fn attach(pids: &[u32], site: &Site) -> Result<Self, BenchError> {
        if pids.is_empty() {
            return Ok(Self(None));
        }
        let mut arguments = vec!["-f".into(), "-c".into()];
        for pid in pids {
            arguments.extend(["-p".into(), pid.to_string().into()]);
        }
        let mut strace = Program::start(
            Argv(find("strace", "strace")?, arguments),
            site,
            &site.folder,
        )
        .await?;
        let deadline = Instant::now() + ATTACH;
        while strace.stderr().matches(" attached").count() < pids.len() {
            if Instant::now() > deadline || strace.ended().is_some() {
                return Err(failed(
                    "did not attach\nhint: root may, or kernel.yama.ptrace_scope=0 lets everybody",
                    &strace.stop(Signal::TERM).await,
                ));
            }
            sleep(ATTACH_STEP).await;
        }
        Ok(Self(Some(strace)))
    }

    async fn calls(self, requests: f64) -> Result<Calls, BenchError> {
        let Some(strace) = self.0 else {
            return Ok(Calls::new());
        };
        let strace = strace.stop(Signal::TERM).await;
        let mut calls = parse(&strace.stderr());
        if calls.is_empty() {
            return Err(failed("counted nothing", &strace));
        }
        for calls in calls.values_mut() {
            *calls /= requests;
        }
        Ok(calls)
    }
}

fn failed(why: &str, strace: &Program) -> BenchError {
    BenchError::Tool {
        program: "strace",
        why: why.to_owned(),
        said: strace.stderr(),
    }
}

/// Lines such as `61.16 0.000274 5 52 3 epoll_wait`, where the number of errors may be missing.
fn parse(summary: &str) -> Calls {
    let call = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let ([share, _, _, count, name] | [share, _, _, count, _, name]) = fields[..] else {
            return None;
        };
        share.parse::<f64>().ok()?;
        (name != "total").then_some((name.to_owned(), count.parse().ok()?))
    };
    summary.lines().filter_map(call).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_read_from_the_summary() {
        let summary = "strace: Process 4711 attached with 2 threads
strace: Process 4711 detached
% time     seconds  usecs/call     calls    errors syscall
------ ----------- ----------- --------- --------- ----------------
 61.16    0.000274           5        52           epoll_wait
 38.84    0.000174           3        53         2 recvfrom
------ ----------- ----------- --------- --------- ----------------
100.00    0.000448           4       105         2 total
";
        let expected = [("epoll_wait", 52.0), ("recvfrom", 53.0)];
        let expected: Calls = expected
            .map(|(name, calls)| (name.to_owned(), calls))
            .into();
        assert_eq!(parse(summary), expected);
    }

    #[test]
    fn a_total_without_errors_is_no_call() {
        assert!(parse("100.00    0.000448           4       105           total\n").is_empty());
    }
}
