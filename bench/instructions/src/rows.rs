//! What is counted: a configuration, a kind of worker, and the steps of one request.

use std::path::Path;

use pronghorn_wire::Codec;
use pronghorn_wire::frame::Flags;

use crate::client::Client;
use crate::error::Error;
use crate::server::{Folder, Server};
use crate::worker::{Kind, Worker};

/// Before anything is counted: buffers have grown, pages of the allocator are there.
const WARM_UP: u64 = 50;
/// Requests that are counted.
const REQUESTS: u64 = 300;

/// Kinds of the native codec, and a flag of the first.
const REPLY: u8 = 0x81;
const BUSY: u8 = 0x02;
const FREE: u8 = 0x86;

/// One request in so many has a trace that is kept.
const TRACED: u64 = 100;
/// What such a request says: its caller has decided that the trace is kept, so that each run keeps
/// as many.
const TRACE_PARENT: &str =
    "traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01\r\n";

/// The rows that say what supervision costs, and what it costs to see where the time goes.
const NATIVE: &str = "native";
const BARE: &str = "no-limits";
const LIMITED: &str = "limits";
const MEASURED: &str = "metrics";
const SAMPLED: &str = "traces";

/// What a row takes beyond another one, from which it differs in one thing.
pub(crate) struct Cost {
    pub(crate) what: &'static str,
    pub(crate) row: &'static str,
    pub(crate) base: &'static str,
    pub(crate) most: Most,
}

/// In percent.
#[derive(Clone, Copy)]
pub(crate) enum Most {
    /// More fails the check.
    Allowed(f64),
    /// More is told.
    Aimed(f64),
}

pub(crate) const COSTS: [Cost; 3] = [
    Cost {
        what: "with every limit set",
        row: LIMITED,
        base: BARE,
        most: Most::Allowed(1.0),
    },
    Cost {
        what: "the split, metrics and learned routes",
        row: MEASURED,
        base: NATIVE,
        most: Most::Aimed(2.0),
    },
    Cost {
        what: "traces, one in a hundred kept",
        row: SAMPLED,
        base: MEASURED,
        most: Most::Aimed(1.0),
    },
];

pub(crate) struct Row {
    pub(crate) name: &'static str,
    /// The pool's keys beside `num_workers: 1`.
    pool: &'static str,
    /// Sections of the configuration beside those that all rows have.
    sections: &'static str,
    /// The level of the records about requests.
    records: &'static str,
    codec: Codec,
    request: Request,
    /// Bytes of the reply's body.
    reply: usize,
    /// Whether one request in a hundred says that its trace is kept.
    is_traced: bool,
    /// Whether the worker has something left to do then, and says in a word of its own that it is
    /// free. That comes with the reply, as it does from one that had another call to go on with.
    defers: bool,
    steps: Steps,
}

#[derive(Clone, Copy)]
enum Request {
    Get,
    /// With a body of so many bytes.
    Post(usize),
}

#[derive(Clone, Copy)]
enum Steps {
    /// A free worker takes the call.
    Answered,
    /// The worker is busy: the call waits until it is free.
    Queued,
    /// The worker is busy and the queue full.
    Refused,
}

/// What most rows have.
const PLAIN: Row = Row {
    name: "",
    pool: "",
    sections: "",
    records: "error",
    codec: Codec::Native,
    request: Request::Get,
    reply: 12,
    is_traced: false,
    defers: false,
    steps: Steps::Answered,
};

pub(crate) const ROWS: [Row; 13] = [
    Row {
        name: NATIVE,
        ..PLAIN
    },
    Row {
        name: "json",
        codec: Codec::Json,
        ..PLAIN
    },
    Row {
        name: "proto",
        pool: ", codec: proto",
        codec: Codec::Proto,
        ..PLAIN
    },
    Row {
        name: "post-8k",
        request: Request::Post(8 << 10),
        ..PLAIN
    },
    Row {
        name: "reply-64k",
        reply: 64 << 10,
        ..PLAIN
    },
    Row {
        name: "deferred",
        defers: true,
        ..PLAIN
    },
    Row {
        name: "records",
        records: "info",
        ..PLAIN
    },
    Row {
        name: "queued",
        steps: Steps::Queued,
        ..PLAIN
    },
    Row {
        name: "refused",
        // Those who wait here wait for the whole row.
        pool: ", max_queue_size: 1, queue_timeout: 10m",
        steps: Steps::Refused,
        ..PLAIN
    },
    Row {
        name: BARE,
        pool: ", supervisor: {exec_ttl: 0s}",
        ..PLAIN
    },
    Row {
        name: LIMITED,
        // None of them is reached. What is looked at from time to time is no part of a request.
        pool: ", max_jobs: 1000000, supervisor: {exec_ttl: 10m, ttl: 10h, idle_ttl: 10h, max_worker_memory: 1000, watch_tick: 10m}",
        ..PLAIN
    },
    Row {
        name: MEASURED,
        pool: SPLIT,
        sections: METRICS,
        ..PLAIN
    },
    Row {
        name: SAMPLED,
        pool: SPLIT,
        sections: TRACES,
        is_traced: true,
        ..PLAIN
    },
];

/// Whoever is told of slow requests is told where their time went: it is known of each.
const SPLIT: &str = ", slow: 10m";
/// Nobody asks for them meanwhile.
const METRICS: &str = "metrics: {address: '127.0.0.1:0'}\n";
/// What is kept waits for more until the row is over: a batch of 512 spans is one request to a
/// collector, and no part of one of a client.
const TRACES: &str = "metrics: {address: '127.0.0.1:0'}\n\
    otel: {insecure: true, sampling: {ratio: 0, slow: 10m}, batch: {wait: 300s}}\n";

impl Row {
    /// Instructions per request.
    pub(crate) fn measure(&self, binary: &Path, folder: &Folder) -> Result<u64, Error> {
        let mut server = Server::under_callgrind(self.name, &self.configuration(), binary, folder)?;
        let kind = match self.codec {
            Codec::Native => Kind::Native,
            Codec::Json | Codec::Proto => Kind::Foreign,
        };
        let worker = server.worker()?.announce(&mut server, kind)?;
        server.wait_until_it_serves()?;
        let mut stage = Stage {
            row: self,
            worker,
            client: Client::connect(&mut server)?,
            other: Client::connect(&mut server)?,
            server,
            steps: 0,
        };
        stage.begin()?;
        for _ in 0..WARM_UP {
            stage.step()?;
        }
        stage.server.cut()?;
        for _ in 0..REQUESTS {
            stage.step()?;
        }
        let counted = stage.server.cut()?;
        // What the cut itself costs is in both.
        let cut = stage.server.cut()?;
        Ok(counted.saturating_sub(cut) / (REQUESTS * self.steps.requests()))
    }

    fn configuration(&self) -> String {
        format!(
            "version: '3'\n\
             server: {{command: {} 86400}}\n\
             http:\n  address: 127.0.0.1:0\n  threads: 1\n  pool: {{num_workers: 1{}}}\n\
             logs: {{mode: production, channels: {{http: {{level: {}}}}}}}\n{}",
            crate::server::COMMAND,
            self.pool,
            self.records,
            self.sections
        )
    }
}

impl Steps {
    /// How many requests one step has.
    fn requests(self) -> u64 {
        match self {
            Self::Answered | Self::Refused => 1,
            Self::Queued => 2,
        }
    }
}

/// The server and everybody it talks to.
struct Stage<'a> {
    row: &'a Row,
    server: Server<'a>,
    worker: Worker,
    client: Client,
    other: Client,
    /// How many there were.
    steps: u64,
}

impl Stage<'_> {
    /// What has to be so before the first step.
    fn begin(&mut self) -> Result<(), Error> {
        if let Steps::Refused = self.row.steps {
            let request = self.request();
            self.other.send(&mut self.server, &request)?;
            self.worker.call(&mut self.server)?;
            let mut waiting = Client::connect(&mut self.server)?;
            waiting.send(&mut self.server, &request)?;
            // It waits on; only its place in the queue is needed.
            self.other = waiting;
        }
        Ok(())
    }

    fn step(&mut self) -> Result<(), Error> {
        let request = self.request();
        self.steps += 1;
        self.client.send(&mut self.server, &request)?;
        match self.row.steps {
            Steps::Answered => {
                self.serve()?;
                self.client.receive(&mut self.server, "200")
            }
            Steps::Queued => {
                let call = self.worker.call(&mut self.server)?;
                self.other.send(&mut self.server, &request)?;
                self.reply(&call)?;
                self.client.receive(&mut self.server, "200")?;
                self.serve()?;
                self.other.receive(&mut self.server, "200")
            }
            Steps::Refused => self.client.receive(&mut self.server, "503"),
        }
    }

    fn serve(&mut self) -> Result<(), Error> {
        let call = self.worker.call(&mut self.server)?;
        self.reply(&call)
    }

    fn reply(&mut self, call: &[u8]) -> Result<(), Error> {
        let body = vec![b'x'; self.row.reply];
        let (name, value) = ("Content-Type", "text/plain");
        let (flags, context) = match self.row.codec {
            Codec::Native => {
                let mut context = vec![REPLY, if self.row.defers { BUSY } else { 0 }, 200, 0];
                // The number of the call, as the envelope had it.
                context.extend_from_slice(call.get(4..8).unwrap_or_default());
                for number in [1, short(name), short(value)] {
                    context.extend_from_slice(&[number, 0, 0, 0]);
                }
                context.extend(name.bytes().chain(value.bytes()));
                (Flags::NATIVE, context)
            }
            Codec::Json => {
                let head = format!(r#"{{"status":200,"headers":{{"{name}":["{value}"]}}}}"#);
                (Flags::JSON, head.into_bytes())
            }
            Codec::Proto => {
                let mut head = b"\x08\xc8\x01\x12".to_vec();
                head.extend([short(name) + short(value) + 6, 0x0a, short(name)]);
                head.extend(name.bytes());
                head.extend([0x12, short(value) + 2, 0x0a, short(value)]);
                head.extend(value.bytes());
                (Flags::PROTO, head)
            }
        };
        let reply = (flags, context.as_slice(), body.as_slice());
        let free = [&[FREE, 0, 1, 0], call.get(4..8).unwrap_or_default()].concat();
        if self.row.defers {
            let free = (Flags::NATIVE, free.as_slice(), b"".as_slice());
            self.worker.reply(&mut self.server, &[reply, free])
        } else {
            self.worker.reply(&mut self.server, &[reply])
        }
    }

    fn request(&self) -> Vec<u8> {
        let is_traced = self.row.is_traced && self.steps.is_multiple_of(TRACED);
        let parent = if is_traced { TRACE_PARENT } else { "" };
        let head = |method: &str| {
            format!(
                "{method} /articles/42?page=2 HTTP/1.1\r\nHost: example.org\r\nUser-Agent: instructions\r\nAccept: */*\r\n{parent}"
            )
        };
        match self.row.request {
            Request::Get => format!("{}\r\n", head("GET")).into_bytes(),
            Request::Post(length) => {
                let mut request = format!(
                    "{}Content-Type: application/octet-stream\r\nContent-Length: {length}\r\n\r\n",
                    head("POST")
                )
                .into_bytes();
                request.resize(request.len() + length, b'x');
                request
            }
        }
    }
}

fn short(text: &str) -> u8 {
    u8::try_from(text.len()).expect("names and values here are short")
}
