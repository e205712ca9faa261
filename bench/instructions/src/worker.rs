//! A worker, played by this program on the pipes of a process that only sleeps.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};

use pronghorn_wire::frame::{Flags, Header, MAX_PAYLOAD, OpenFrame, Stream, encode_plain};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::error::Error;
use crate::server::{PATIENCE, Server};

/// How it announces itself.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Kind {
    /// As our SDK does, on descriptors 3 and 4.
    Native,
    /// As RoadRunner's packages do, on stdin and stdout.
    Foreign,
}

pub(crate) struct Worker {
    pid: u32,
    read: File,
    write: File,
    received: Vec<u8>,
}

/// Kinds of the native codec: the server asks a free worker whether it is there, and its answer.
const PING: u8 = 0x11;
const PONG: u8 = 0x91;

/// A frame that the server sent.
struct Frame {
    header: Header,
    payload: Vec<u8>,
}

impl Worker {
    /// Takes the place of a process at its private pipes.
    pub(crate) fn of(pid: u32) -> Result<Self, String> {
        Self::on(pid, 3, 4)
    }

    fn on(pid: u32, read: u32, write: u32) -> Result<Self, String> {
        let open = |descriptor: u32, options: &mut OpenOptions| {
            let file = format!("/proc/{pid}/fd/{descriptor}");
            options
                .open(&file)
                .map_err(|error| format!("cannot open `{file}`: {error}"))
        };
        Ok(Self {
            pid,
            read: open(read, OpenOptions::new().read(true))?,
            write: open(write, OpenOptions::new().write(true))?,
            received: Vec::new(),
        })
    }

    /// Answers the server's handshake.
    pub(crate) fn announce(mut self, server: &mut Server<'_>, kind: Kind) -> Result<Self, Error> {
        if matches!(kind, Kind::Foreign) {
            self = Self::on(self.pid, 0, 1).map_err(|what| server.wrong(what))?;
        }
        self.frame(server)?;
        let pid = self.pid;
        let announcement = match kind {
            Kind::Native => format!(
                r#"{{"pid":{pid},"codec":"native","version":1,"kinds":["http"],"sdk":"instructions","php":"8"}}"#
            ),
            Kind::Foreign => format!(r#"{{"pid":{pid}}}"#),
        };
        self.say_control(server, &announcement)?;
        Ok(self)
    }

    /// Waits for a call and returns its context; what is asked before a call is answered.
    pub(crate) fn call(&mut self, server: &mut Server<'_>) -> Result<Vec<u8>, Error> {
        loop {
            server.wait_until_it_sleeps()?;
            let Frame { header, payload } = self.frame(server)?;
            if let [PING, _, _, _, number @ ..] = payload.as_slice()
                && header.flags == Flags::NATIVE
            {
                let pong = [&[PONG, 0, 0, 0], number].concat();
                self.reply(server, &[(Flags::NATIVE, &pong, b"")])?;
                continue;
            }
            if !header.flags.has(Flags::CONTROL) {
                return Ok(payload);
            }
            let pid = format!(r#"{{"pid":{}}}"#, self.pid);
            self.say_control(server, &pid)?;
        }
    }

    /// Sends the frames of a reply at once, each with its context and its body, and lets the server
    /// do all it can with them.
    pub(crate) fn reply(
        &mut self,
        server: &mut Server<'_>,
        frames: &[(Flags, &[u8], &[u8])],
    ) -> Result<(), Error> {
        let mut bytes = Vec::new();
        for &(flags, context, body) in frames {
            let frame = OpenFrame::begin(&mut bytes);
            bytes.extend_from_slice(context);
            frame
                .finish(&mut bytes, flags, Stream::END, body.len())
                .map_err(|error| server.wrong(error.to_string()))?;
            bytes.extend_from_slice(body);
        }
        self.write(server, &bytes)
    }

    fn say_control(&mut self, server: &mut Server<'_>, json: &str) -> Result<(), Error> {
        let mut bytes = Vec::new();
        let flags = Flags::CONTROL.with(Flags::JSON);
        encode_plain(&mut bytes, flags, Stream::END, json.as_bytes());
        self.write(server, &bytes)
    }

    /// No frame of this program is longer than a pipe: it can't block.
    fn write(&mut self, server: &mut Server<'_>, bytes: &[u8]) -> Result<(), Error> {
        self.write
            .write_all(bytes)
            .map_err(|error| server.wrong(format!("the worker cannot write: {error}")))?;
        server.wait_until_it_sleeps()
    }

    fn frame(&mut self, server: &Server<'_>) -> Result<Frame, Error> {
        loop {
            let header = Header::decode(&self.received, MAX_PAYLOAD)
                .map_err(|error| server.wrong(format!("the server sent {error}")))?;
            if let Some(header) = header {
                let payload = header.payload as usize;
                if self.received.len() >= header.len() + payload {
                    let mut frame = self.received.drain(..header.len() + payload);
                    let payload = frame.by_ref().skip(header.len()).collect();
                    return Ok(Frame { header, payload });
                }
            }
            self.read_more(server)?;
        }
    }

    fn read_more(&mut self, server: &Server<'_>) -> Result<(), Error> {
        let mut pipe = [PollFd::new(&self.read, PollFlags::IN)];
        let patience = Timespec::try_from(PATIENCE).ok();
        if !matches!(poll(&mut pipe, patience.as_ref()), Ok(1..)) {
            return Err(server.late("a frame to the worker"));
        }
        let mut buffer = vec![0; 64 << 10];
        match self.read.read(&mut buffer) {
            Ok(read @ 1..) => {
                self.received
                    .extend_from_slice(buffer.get(..read).unwrap_or_default());
                Ok(())
            }
            Ok(_) => Err(server.wrong("the server closed the worker's pipe".to_owned())),
            Err(error) => Err(server.wrong(format!("the worker cannot read: {error}"))),
        }
    }
}
