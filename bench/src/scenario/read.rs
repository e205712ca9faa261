//! From a file to a [`Scenario`]. Every mistake is told with file and line.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;
use thiserror::Error;
use toml::Spanned;

use super::{Body, Expected, Extent, Load, Protocol, Scenario, Setup};
use crate::servers::names as server_names;

/// More is a mistake in the file, and would be one of the machine.
const MOST_CONNECTIONS: u32 = 400;
const MOST_WORKERS: u16 = 64;
const HIGHEST_RATE: u32 = 100_000;
const LONGEST_WAIT: u64 = 10_000;
const LONGEST_SECONDS: u32 = 60;
/// What both servers allow by default.
const MOST_STREAMS: u16 = 100;

/// The author's, of the scenario.
#[derive(Debug, Error)]
pub(crate) enum ScenarioError {
    #[error("cannot read {}: {source}", file.display())]
    Read { file: PathBuf, source: io::Error },
    #[error("{}:{line}: {why}\nhint: bench/README.md describes scenarios", file.display())]
    Wrong {
        file: PathBuf,
        line: usize,
        why: String,
    },
}

/// As written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {
    what: String,
    app: Spanned<String>,
    #[serde(default = "get")]
    method: Spanned<String>,
    target: Spanned<String>,
    #[serde(default)]
    headers: BTreeMap<String, Spanned<String>>,
    body: Option<String>,
    /// Beside the scenario.
    body_file: Option<Spanned<String>>,
    protocol: Option<Spanned<String>>,
    streams: Option<Spanned<u16>>,
    gzip: Option<Spanned<u8>>,
    workers: Spanned<u16>,
    waits_ms: Option<Spanned<u64>>,
    seconds: Option<Spanned<u32>>,
    servers: Spanned<Vec<String>>,
    connections: Spanned<Vec<u32>>,
    #[serde(default)]
    open: Vec<Spanned<RawOpen>>,
    short: Option<Spanned<RawShort>>,
    expect: Spanned<RawExpect>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawShort {
    servers: Option<Spanned<Vec<String>>>,
    connections: Option<Spanned<Vec<u32>>>,
    #[serde(default)]
    open: Vec<Spanned<RawOpen>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawOpen {
    rate: u32,
    connections: u32,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawExpect {
    #[serde(default = "ok")]
    status: u16,
    body: Option<String>,
    contains: Option<String>,
    length: Option<usize>,
    crc32: Option<String>,
}

fn get() -> Spanned<String> {
    Spanned::new(0..0, "GET".to_owned())
}

const fn ok() -> u16 {
    200
}

/// Reads a scenario.
pub(crate) fn read(file: &Path) -> Result<Scenario, ScenarioError> {
    let text = read_text(file)?;
    let wrong = |mistake: Mistake| ScenarioError::Wrong {
        file: file.to_owned(),
        line: line(&text, &mistake.place),
        why: mistake.why,
    };
    let raw: Raw = toml::from_str(&text).map_err(|error| {
        wrong(Mistake {
            place: error.span().unwrap_or_default(),
            why: error.message().to_owned(),
        })
    })?;
    let body = match (&raw.body, &raw.body_file) {
        (None, None) => Vec::new(),
        (Some(text), None) => text.clone().into_bytes(),
        (None, Some(name)) => {
            let beside = file.with_file_name(name.get_ref());
            let unreadable = |error| {
                let why = format!("cannot read {}: {error}", beside.display());
                wrong(at(name, why))
            };
            std::fs::read(&beside).map_err(unreadable)?
        }
        (Some(_), Some(name)) => return Err(wrong(at(name, "either `body` or `body_file`"))),
    };
    raw.check(body, file).map_err(wrong)
}

fn read_text(file: &Path) -> Result<String, ScenarioError> {
    std::fs::read_to_string(file).map_err(|source| ScenarioError::Read {
        file: file.to_owned(),
        source,
    })
}

/// What is wrong, and at which bytes of the file.
struct Mistake {
    place: Range<usize>,
    why: String,
}

fn at<T>(place: &Spanned<T>, why: impl Into<String>) -> Mistake {
    Mistake {
        place: place.span(),
        why: why.into(),
    }
}

fn line(text: &str, place: &Range<usize>) -> usize {
    let before = text.get(..place.start).unwrap_or(text);
    before.matches('\n').count() + 1
}

impl Raw {
    fn check(self, body: Vec<u8>, file: &Path) -> Result<Scenario, Mistake> {
        let name = file.file_stem().unwrap_or_default().to_string_lossy();
        let is_word = |text: &str| {
            !text.is_empty()
                && text
                    .bytes()
                    .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
        };
        if !is_word(self.app.get_ref()) {
            return Err(at(&self.app, "`app` is the name of a folder in bench/apps"));
        }
        if !is_word(self.method.get_ref()) {
            return Err(at(&self.method, "`method` is a word such as GET"));
        }
        let target = self.target.get_ref();
        if !target.starts_with('/') || target.bytes().any(|byte| !byte.is_ascii_graphic()) {
            return Err(at(
                &self.target,
                "`target` is path and query: it begins with / and has no spaces",
            ));
        }
        if !(1..=MOST_WORKERS).contains(self.workers.get_ref()) {
            let why = format!("`workers` is 1 to {MOST_WORKERS}");
            return Err(at(&self.workers, why));
        }
        if let Some(waits) = &self.waits_ms
            && !(1..=LONGEST_WAIT).contains(waits.get_ref())
        {
            let why = format!("`waits_ms` is 1 to {LONGEST_WAIT}");
            return Err(at(waits, why));
        }
        if let Some(seconds) = &self.seconds
            && !(1..=LONGEST_SECONDS).contains(seconds.get_ref())
        {
            let why = format!("`seconds` is 1 to {LONGEST_SECONDS}");
            return Err(at(seconds, why));
        }
        if let Some(level) = &self.gzip
            && !(1..=9).contains(level.get_ref())
        {
            return Err(at(level, "`gzip` is a level from 1 to 9"));
        }
        let full = Extent {
            servers: servers(&self.servers)?,
            loads: loads(&self.connections, &self.open)?,
        };
        let protocol = protocol(self.protocol.as_ref())?;
        if protocol.is_http2() {
            self.check_http2()?;
        }
        let streams = streams(self.streams.as_ref(), protocol)?;
        let short = self.short.map(|short| short.into_inner().check(&full));
        Ok(Scenario {
            name: name.into_owned(),
            what: self.what,
            app: self.app.into_inner(),
            method: self.method.into_inner(),
            target: self.target.into_inner(),
            headers: headers(self.headers)?,
            body,
            protocol,
            streams,
            gzip: self.gzip.as_ref().map(|level| *level.get_ref()),
            workers: self.workers.into_inner(),
            waits: self
                .waits_ms
                .map(|ms| Duration::from_millis(ms.into_inner())),
            seconds: self.seconds.map(Spanned::into_inner),
            expected: expected(&self.expect, self.gzip.is_some())?,
            setup: Setup::default(),
            short: short.transpose()?,
            full,
        })
    }
}

impl Raw {
    /// What the load generator of HTTP/2 can't do.
    fn check_http2(&self) -> Result<(), Mistake> {
        if self.method.get_ref() != "GET" {
            return Err(at(&self.method, "in HTTP/2 `method` is GET"));
        }
        if let Some(open) = self.open.first() {
            return Err(at(open, "`open` is for HTTP/1.1"));
        }
        Ok(())
    }
}

fn protocol(name: Option<&Spanned<String>>) -> Result<Protocol, Mistake> {
    let Some(name) = name else {
        return Ok(Protocol::Http1);
    };
    match name.get_ref().as_str() {
        "tls" => Ok(Protocol::Tls),
        "h2" => Ok(Protocol::Http2),
        "h2c" => Ok(Protocol::ClearHttp2),
        _ => Err(at(
            name,
            "`protocol` is tls, h2 or h2c; without it HTTP/1.1",
        )),
    }
}

fn streams(streams: Option<&Spanned<u16>>, protocol: Protocol) -> Result<u16, Mistake> {
    let Some(streams) = streams else {
        return Ok(1);
    };
    if !protocol.is_http2() || !(1..=MOST_STREAMS).contains(streams.get_ref()) {
        let why = format!("`streams` is 1 to {MOST_STREAMS}, with `protocol` h2 or h2c");
        return Err(at(streams, why));
    }
    Ok(*streams.get_ref())
}

impl RawShort {
    /// What it doesn't say is as in the whole; but requests at a constant rate take their time, and
    /// have to be named.
    fn check(self, full: &Extent) -> Result<Extent, Mistake> {
        let closed = |load: &&Load| matches!(load, Load::Closed { .. });
        Ok(Extent {
            servers: match &self.servers {
                Some(names) => servers(names)?,
                None => full.servers.clone(),
            },
            loads: match &self.connections {
                Some(connections) => loads(connections, &self.open)?,
                None => {
                    let closed = full.loads.iter().filter(closed).copied();
                    closed.chain(open(&self.open)?).collect()
                }
            },
        })
    }
}

/// Names in the header; lengths and connections are the runner's.
fn headers(raw: BTreeMap<String, Spanned<String>>) -> Result<Vec<(String, String)>, Mistake> {
    let own = ["host", "content-length", "connection", "transfer-encoding"];
    let mut headers = Vec::new();
    for (name, value) in raw {
        let name_holds = name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte));
        if name.is_empty() || !name_holds || value.get_ref().contains(['\r', '\n', '\0']) {
            return Err(at(
                &value,
                format!("{name:?} with this value is no header field"),
            ));
        }
        if own.contains(&name.to_ascii_lowercase().as_str()) {
            return Err(at(&value, format!("the runner writes `{name}` itself")));
        }
        headers.push((name, value.into_inner()));
    }
    Ok(headers)
}

fn servers(names: &Spanned<Vec<String>>) -> Result<Vec<String>, Mistake> {
    if names.get_ref().is_empty() {
        return Err(at(names, "`servers` names at least one"));
    }
    let unknown = |name: &&String| !server_names().any(|known| known == name.as_str());
    if let Some(name) = names.get_ref().iter().find(unknown) {
        let known: Vec<_> = server_names().collect();
        let why = format!(
            "there is no server `{name}`: there are {}",
            known.join(", ")
        );
        return Err(at(names, why));
    }
    Ok(names.get_ref().clone())
}

fn loads(closed: &Spanned<Vec<u32>>, raw: &[Spanned<RawOpen>]) -> Result<Vec<Load>, Mistake> {
    let mut loads = Vec::new();
    for &connections in closed.get_ref() {
        if !(1..=MOST_CONNECTIONS).contains(&connections) {
            let why = format!("`connections` are 1 to {MOST_CONNECTIONS} each");
            return Err(at(closed, why));
        }
        loads.push(Load::Closed { connections });
    }
    loads.extend(open(raw)?);
    if loads.is_empty() {
        return Err(at(
            closed,
            "`connections` and `open` are both empty: nothing to measure",
        ));
    }
    Ok(loads)
}

fn open(raw: &[Spanned<RawOpen>]) -> Result<Vec<Load>, Mistake> {
    let load = |place: &Spanned<RawOpen>| {
        let &RawOpen { rate, connections } = place.get_ref();
        if (1..=HIGHEST_RATE).contains(&rate) && (1..=MOST_CONNECTIONS).contains(&connections) {
            return Ok(Load::Open { rate, connections });
        }
        let why = format!(
            "`rate` is 1 to {HIGHEST_RATE} requests per second, over 1 to {MOST_CONNECTIONS} `connections`"
        );
        Err(at(place, why))
    };
    raw.iter().map(load).collect()
}

fn expected(place: &Spanned<RawExpect>, gzip: bool) -> Result<Expected, Mistake> {
    let raw = place.get_ref();
    if !(200..=599).contains(&raw.status) {
        return Err(at(place, "`status` is 200 to 599"));
    }
    let crc32 = match &raw.crc32 {
        Some(text) => match u32::from_str_radix(text, 16) {
            Ok(crc32) => Some(crc32),
            Err(_) => {
                return Err(at(
                    place,
                    "`crc32` is a number of up to eight hexadecimal digits",
                ));
            }
        },
        None => None,
    };
    let body = match (&raw.body, &raw.contains, raw.length) {
        (Some(body), None, None) if crc32.is_none() => Body::Exactly(body.clone().into_bytes()),
        (None, Some(text), None) if crc32.is_none() && !text.is_empty() => {
            Body::Contains(text.clone())
        }
        (None, None, Some(bytes)) => Body::Length { bytes, crc32 },
        _ => {
            return Err(at(
                place,
                "expects one of `body`, `contains`, `length`; beside `length` there may be `crc32`",
            ));
        }
    };
    Ok(Expected {
        status: raw.status,
        gzip,
        body,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"what = "twelve bytes"
app = "hello"
target = "/?a=b"
method = "POST"
body = "abc"
workers = 16
waits_ms = 10
servers = ["pronghorn", "nginx-fpm"]
connections = [1, 10]
open = [{ rate = 1000, connections = 20 }]

[headers]
Content-Type = "text/plain"

[short]
connections = [10]
servers = ["pronghorn"]

[expect]
status = 201
length = 3
crc32 = "352441c2"
"#;

    fn parsed(text: &str) -> Result<Scenario, String> {
        let folder = std::env::temp_dir().join(format!(
            "pronghorn-scenario-{}-{:?}",
            std::process::id(),
            std::thread::current().id()
        ));
        std::fs::create_dir_all(&folder).unwrap();
        let file = folder.join("some.toml");
        std::fs::write(&file, text).unwrap();
        let scenario = read(&file).map_err(|error| error.to_string());
        std::fs::remove_dir_all(&folder).unwrap();
        scenario.map_err(|text| text.split_once("some.toml:").unwrap().1.to_owned())
    }

    #[test]
    fn every_key_has_its_place() {
        let scenario = parsed(GOOD).unwrap();
        assert_eq!(
            (scenario.name.as_str(), scenario.app.as_str()),
            ("some", "hello")
        );
        assert_eq!(
            (scenario.method.as_str(), scenario.target.as_str()),
            ("POST", "/?a=b")
        );
        assert_eq!(
            (scenario.body.as_slice(), scenario.workers),
            (b"abc".as_slice(), 16)
        );
        assert_eq!(scenario.waits, Some(Duration::from_millis(10)));
        let closed = |connections| Load::Closed { connections };
        let open = Load::Open {
            rate: 1000,
            connections: 20,
        };
        assert_eq!(scenario.full.loads, [closed(1), closed(10), open]);
        let short = Extent {
            servers: vec!["pronghorn".to_owned()],
            loads: vec![closed(10)],
        };
        assert_eq!(scenario.short, Some(short));
        let body = Body::Length {
            bytes: 3,
            crc32: Some(0x3524_41c2),
        };
        let expected = Expected {
            status: 201,
            gzip: false,
            body,
        };
        assert_eq!(scenario.expected, expected);
    }

    #[test]
    fn the_short_run_is_as_the_full_one_where_it_says_nothing_but_without_constant_rates() {
        let text = GOOD.replace("connections = [10]\nservers = [\"pronghorn\"]", "");
        let scenario = parsed(&text).unwrap();
        let short = scenario.short.unwrap();
        assert_eq!(short.servers, scenario.full.servers);
        assert_eq!(short.loads, scenario.full.loads[..2]);
    }

    #[test]
    fn a_mistake_is_told_with_its_line() {
        for (good, bad, line, why) in [
            ("workers = 16", "workers = 0", 6, "`workers` is 1 to 64"),
            (
                "workers = 16",
                "workers = \"16\"",
                6,
                "invalid type: string \"16\", expected u16",
            ),
            ("workers = 16", "worker = 16", 6, "unknown field `worker`"),
            ("workers = 16", "", 1, "missing field `workers`"),
            ("workers = 16", "workers = ", 6, ""),
            (
                "app = \"hello\"",
                "app = \"../hello\"",
                2,
                "`app` is the name of a folder",
            ),
            ("/?a=b", "a=b", 3, "`target` is path and query"),
            ("\"POST\"", "\"PO ST\"", 4, "`method` is a word"),
            ("body = \"abc\"", "body_file = \"none\"", 5, "cannot read "),
            (
                "body = \"abc\"",
                "body = \"a\"\nbody_file = \"b\"",
                6,
                "either `body` or `body_file`",
            ),
            (
                "waits_ms = 10",
                "waits_ms = 0",
                7,
                "`waits_ms` is 1 to 10000",
            ),
            (
                "\"nginx-fpm\"",
                "\"nginx-fmp\"",
                8,
                "there is no server `nginx-fmp`",
            ),
            ("[1, 10]", "[1, 1000]", 9, "`connections` are 1 to 400"),
            ("rate = 1000", "rate = 0", 10, "`rate` is 1 to 100000"),
            (
                "Content-Type = ",
                "Content-Length = ",
                13,
                "the runner writes `Content-Length` itself",
            ),
            ("text/plain", "a\\nb", 13, "is no header field"),
            ("status = 201", "status = 99", 19, "`status` is 200 to 599"),
            (
                "length = 3",
                "length = 3\nbody = \"\"",
                19,
                "expects one of",
            ),
            ("352441c2", "xyz", 19, "`crc32` is a number"),
            (
                "workers = 16",
                "protocol = \"spdy\"\nworkers = 16",
                6,
                "`protocol` is tls, h2 or h2c",
            ),
            (
                "method = \"POST\"",
                "method = \"POST\"\nprotocol = \"h2\"",
                4,
                "in HTTP/2 `method` is GET",
            ),
            (
                "method = \"POST\"",
                "protocol = \"h2\"",
                10,
                "`open` is for HTTP/1.1",
            ),
            (
                "workers = 16",
                "streams = 2\nworkers = 16",
                6,
                "`streams` is 1 to 100, with `protocol` h2 or h2c",
            ),
            (
                "workers = 16",
                "gzip = 10\nworkers = 16",
                6,
                "`gzip` is a level from 1 to 9",
            ),
        ] {
            let text = GOOD.replacen(good, bad, 1);
            let message = parsed(&text).unwrap_err();
            let start = format!("{line}: {why}");
            let shown = message.contains(why) && message.starts_with(&format!("{line}: "));
            assert!(shown, "expected {start:?}, got {message:?}");
        }
    }

    #[test]
    fn a_file_that_is_not_there_is_named() {
        let error = read(Path::new("/nowhere/some.toml"))
            .unwrap_err()
            .to_string();
        assert!(
            error.starts_with("cannot read /nowhere/some.toml: "),
            "{error}"
        );
    }
}
