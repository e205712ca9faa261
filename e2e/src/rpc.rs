//! A caller of RPC that sends exactly the bytes it is given.

use std::fmt;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;

use pronghorn_testkit::{PATIENCE, Server, wait_for};
use pronghorn_wire::frame::{Flags, Header, Options, Stream};

/// Where a service says that it listens.
///
/// # Panics
///
/// When it does not say so.
pub fn listening(server: &Server, service: &str) -> String {
    wait_for("the address in the log", || {
        let log = server.log();
        let line = log
            .lines()
            .find(|line| line.contains(service) && line.contains("listening"))?;
        let (_, address) = line.split_once("\"address\":\"")?;
        Some(address.split_once('"')?.0.to_owned())
    })
}

/// A connection with one call at a time. Its methods panic when the server does not answer, or with
/// something else than RPC.
pub struct Rpc(Box<dyn Both>);

impl fmt::Debug for Rpc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Rpc").finish_non_exhaustive()
    }
}

trait Both: Read + Write {}

impl<T: Read + Write> Both for T {}

impl Rpc {
    /// Over whatever the server says that it listens on.
    ///
    /// # Panics
    ///
    /// When nobody listens there.
    pub fn connect(server: &Server) -> Self {
        let address = listening(server, "rpc");
        if let Some(path) = address.strip_prefix("unix://") {
            let stream = UnixStream::connect(path).expect("the server listens");
            let limited = stream.set_read_timeout(Some(PATIENCE));
            limited.expect("a time-out can be set");
            return Self(Box::new(stream));
        }
        let address = address.strip_prefix("tcp://").expect("the other kind");
        let stream = TcpStream::connect(address).expect("the server listens");
        let limited = stream.set_read_timeout(Some(PATIENCE));
        limited.expect("a time-out can be set");
        Self(Box::new(stream))
    }

    /// One call, whose reply is not read.
    ///
    /// # Panics
    ///
    /// When the connection is closed.
    pub fn send(&mut self, flags: Flags, method: &str, argument: &[u8]) {
        let length = |bytes: usize| u32::try_from(bytes).expect("short");
        let mut frame = Vec::new();
        Header {
            flags,
            stream: Stream::END,
            options: Options::new(&[7, length(method.len())]),
            payload: length(method.len() + argument.len()),
        }
        .encode(&mut frame);
        frame.extend_from_slice(method.as_bytes());
        frame.extend_from_slice(argument);
        self.0.write_all(&frame).expect("the connection is open");
    }

    /// Flags and result of the reply.
    ///
    /// # Panics
    ///
    /// When no reply comes.
    pub fn ask(&mut self, flags: Flags, method: &str, argument: &[u8]) -> (Flags, Vec<u8>) {
        self.send(flags, method, argument);
        self.receive(method)
    }

    /// Flags and result of the next reply, which is one of this method.
    ///
    /// # Panics
    ///
    /// When no reply comes.
    pub fn receive(&mut self, method: &str) -> (Flags, Vec<u8>) {
        let mut head = [0; 20];
        self.0.read_exact(&mut head).expect("a reply");
        let header = Header::decode(&head, 1 << 20).expect("a frame");
        let header = header.expect("all of its head");
        let mut payload = vec![0; header.payload as usize];
        self.0.read_exact(&mut payload).expect("all of the reply");
        (header.flags, payload.split_off(method.len()))
    }

    /// In JSON; an error begins with `error: `.
    ///
    /// # Panics
    ///
    /// When no reply comes.
    pub fn call(&mut self, method: &str, argument: &str) -> String {
        let (flags, answer) = self.ask(Flags::JSON, method, argument.as_bytes());
        let text = String::from_utf8_lossy(&answer).into_owned();
        if flags.has(Flags::ERROR) {
            return format!("error: {text}");
        }
        text
    }

    /// Pids of the workers of `name`, and the names of their states.
    ///
    /// # Panics
    ///
    /// When the reply is no list of workers.
    pub fn workers(&mut self, name: &str) -> Vec<(u32, String)> {
        let list = self.call("informer.Workers", &format!("\"{name}\""));
        let workers = list.split("{\"pid\":").skip(1);
        workers
            .map(|worker| {
                let (pid, rest) = worker.split_once(',').expect("more fields");
                let (_, state) = rest.split_once("\"statusStr\":\"").expect("a state");
                let (state, _) = state.split_once('"').expect("its end");
                (pid.parse().expect("a number"), state.to_owned())
            })
            .collect()
    }

    /// Pids of the workers of `name`.
    ///
    /// # Panics
    ///
    /// When the reply is no list of workers.
    pub fn pids(&mut self, name: &str) -> Vec<u32> {
        let workers = self.workers(name);
        workers.into_iter().map(|(pid, _)| pid).collect()
    }
}
