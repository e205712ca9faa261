//! What is asked of a server and what it has to answer: one file of `bench/scenarios` each.
//!
//! Knows servers by name alone. `README.md` describes the files.

mod expected;
mod read;
mod setup;

use std::path::{Path, PathBuf};
use std::time::Duration;

pub(crate) use expected::{Body, Expected};
pub(crate) use read::{ScenarioError, read};
pub(crate) use setup::Setup;

use crate::error::BenchError;

/// One file, checked.
#[derive(Debug, Clone)]
pub(crate) struct Scenario {
    /// The file's, without its ending.
    pub(crate) name: String,
    /// One line for the tables.
    pub(crate) what: String,
    /// A folder of `bench/apps`.
    pub(crate) app: String,
    pub(crate) method: String,
    /// Path and query.
    pub(crate) target: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    pub(crate) protocol: Protocol,
    /// Requests that a connection has open at a time; more than one only in HTTP/2.
    pub(crate) streams: u16,
    /// The client takes gzip, and every server compresses with this level.
    pub(crate) gzip: Option<u8>,
    /// PHP processes of each server.
    pub(crate) workers: u16,
    /// How long a handler waits without using the CPU. It bounds the rate: so many workers, divided
    /// by this.
    pub(crate) waits: Option<Duration>,
    /// A measurement takes at least so long.
    pub(crate) seconds: Option<u32>,
    pub(crate) expected: Expected,
    pub(crate) setup: Setup,
    /// What `make bench-full` measures.
    pub(crate) full: Extent,
    /// What `make bench` measures; nothing of most.
    pub(crate) short: Option<Extent>,
}

/// Which servers are measured under which loads.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Extent {
    pub(crate) servers: Vec<String>,
    pub(crate) loads: Vec<Load>,
}

/// What clients speak.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Protocol {
    Http1,
    /// HTTP/1.1 over TLS.
    Tls,
    /// HTTP/2 over TLS.
    Http2,
    /// HTTP/2 in clear text.
    ClearHttp2,
}

impl Protocol {
    pub(crate) const fn is_secure(self) -> bool {
        matches!(self, Self::Tls | Self::Http2)
    }

    pub(crate) const fn is_http2(self) -> bool {
        matches!(self, Self::Http2 | Self::ClearHttp2)
    }

    pub(crate) const fn scheme(self) -> &'static str {
        if self.is_secure() { "https" } else { "http" }
    }
}

/// How requests come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Load {
    /// Each connection sends its next request when it has the answer.
    Closed { connections: u32 },
    /// Requests come at a constant rate, whatever the answers do. Each connection has its own share
    /// of them.
    Open {
        /// Requests per second, over all connections.
        rate: u32,
        connections: u32,
    },
}

impl Scenario {
    /// Those of the request, but for what the runner and the protocol add.
    pub(crate) fn fields(&self) -> impl Iterator<Item = (&str, &str)> {
        let written = self.headers.iter();
        let written = written.map(|(name, value)| (name.as_str(), value.as_str()));
        let coding = self.gzip.map(|_| ("Accept-Encoding", "gzip"));
        written.chain(coding)
    }

    /// The request in HTTP/1.1, as it is sent over a connection that is kept.
    pub(crate) fn request(&self) -> Vec<u8> {
        let Self { method, target, .. } = self;
        let mut head = format!("{method} {target} HTTP/1.1\r\nHost: 127.0.0.1\r\n");
        for (name, value) in self.fields() {
            head.extend([name, ": ", value, "\r\n"]);
        }
        if !self.body.is_empty() {
            let length = self.body.len().to_string();
            head.extend(["Content-Length: ", &length, "\r\n"]);
        }
        head.push_str("\r\n");
        let mut request = head.into_bytes();
        request.extend(&self.body);
        request
    }

    /// The highest rate that handlers which wait allow, in requests per second.
    pub(crate) fn ideal_rate(&self) -> Option<f64> {
        Some(f64::from(self.workers) / self.waits?.as_secs_f64())
    }
}

impl std::fmt::Display for Load {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Closed { connections } => write!(f, "{connections}"),
            Self::Open { rate, connections } => write!(f, "{rate}/s over {connections}"),
        }
    }
}

/// Where the scenarios are.
pub(crate) fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios")
}

/// Those of a folder with these names, in this order; without names all, in the order of their
/// names.
pub(crate) fn select(folder: &Path, names: &[String]) -> Result<Vec<Scenario>, BenchError> {
    let unreadable = |source| BenchError::Read {
        file: folder.to_owned(),
        source,
    };
    let mut known: Vec<String> = std::fs::read_dir(folder)
        .map_err(unreadable)?
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter_map(|name| Some(name.strip_suffix(".toml")?.to_owned()))
        .collect();
    known.sort();
    if let Some(name) = names.iter().find(|name| !known.contains(name)) {
        return Err(BenchError::NoScenario {
            name: name.clone(),
            known: known.join(", "),
        });
    }
    let names = if names.is_empty() { &known } else { names };
    let scenarios = names
        .iter()
        .map(|name| read(&folder.join(name).with_extension("toml")));
    Ok(scenarios.collect::<Result<_, _>>()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_scenarios_of_the_repository_can_be_read() {
        let all = select(&folder(), &[]).unwrap();
        assert!(all.iter().any(|scenario| scenario.short.is_some()));
    }

    #[test]
    fn an_unknown_name_is_answered_with_those_that_exist() {
        let error = select(&folder(), &["helo".to_owned()]).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("`helo`") && text.contains("hello"), "{text}");
    }

    #[test]
    fn a_request_is_sent_as_written() {
        let mut scenario = select(&folder(), &["hello".to_owned()]).unwrap().remove(0);
        assert_eq!(
            scenario.request(),
            b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
        );
        "POST".clone_into(&mut scenario.method);
        scenario.headers = vec![("X-A".to_owned(), "b".to_owned())];
        scenario.body = b"abc".to_vec();
        assert_eq!(
            scenario.request(),
            b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nX-A: b\r\nContent-Length: 3\r\n\r\nabc"
        );
    }

    #[test]
    fn handlers_that_wait_bound_the_rate() {
        let mut scenario = select(&folder(), &["hello".to_owned()]).unwrap().remove(0);
        assert_eq!(scenario.ideal_rate(), None);
        (scenario.workers, scenario.waits) = (16, Some(Duration::from_millis(10)));
        assert_eq!(scenario.ideal_rate(), Some(1600.0));
    }
}
