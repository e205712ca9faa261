//! An HTTP client that sends exactly what it is given and shows exactly what came back.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use rustix::net::SendFlags;

use crate::PATIENCE;

/// One connection to a server.
#[derive(Debug)]
pub struct Connection {
    stream: TcpStream,
    read: Vec<u8>,
}

/// A reply, taken apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Response {
    pub status: u16,
    /// As they came.
    pub headers: Vec<(String, String)>,
    /// Without the framing of chunks.
    pub body: Vec<u8>,
    /// Whether the body ended as its framing says.
    pub complete: bool,
}

impl Response {
    /// The first value of a header, by name in any case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.all(name).into_iter().next()
    }

    /// All values of a header, in order.
    pub fn all(&self, name: &str) -> Vec<&str> {
        let named = self
            .headers
            .iter()
            .filter(|(known, _)| known.eq_ignore_ascii_case(name));
        named.map(|(_, value)| value.as_str()).collect()
    }

    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

impl Connection {
    pub fn open(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).expect("the server accepts connections");
        stream
            .set_read_timeout(Some(PATIENCE))
            .expect("a time-out can be set");
        stream.set_nodelay(true).expect("no delay can be set");
        Self {
            stream,
            read: Vec::new(),
        }
    }

    /// Where it comes from, as the server sees it.
    ///
    /// # Panics
    ///
    /// When the system doesn't tell.
    pub fn address(&self) -> SocketAddr {
        self.stream.local_addr().expect("it is connected")
    }

    /// Sends bytes. A server that has closed the connection already is no failure: its answer may
    /// be there.
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        _ = self.stream.write_all(bytes.as_ref());
    }

    /// Sends a request without a body.
    pub fn request(&mut self, method: &str, target: &str, headers: &str) {
        self.send(format!(
            "{method} {target} HTTP/1.1\r\nHost: test\r\n{headers}\r\n"
        ));
    }

    /// GETs on this connection and reads the reply.
    pub fn get(&mut self, target: &str) -> Response {
        self.request("GET", target, "");
        self.response()
    }

    /// Says that nothing more comes.
    pub fn finish_sending(&self) {
        self.stream
            .shutdown(Shutdown::Write)
            .expect("the connection is open");
    }

    /// Sends bytes and says in the same packet that nothing more comes.
    pub fn finish_with(&self, bytes: impl AsRef<[u8]>) {
        let bytes = bytes.as_ref();
        let sent = rustix::net::send(&self.stream, bytes, SendFlags::MORE);
        assert_eq!(sent, Ok(bytes.len()), "the kernel has room");
        self.finish_sending();
    }

    /// Closes the connection of a client that has waited for its reply and gives up. A client that
    /// closes within 3 ms of its request counts as one that has only finished sending.
    pub fn leave(self) {
        std::thread::sleep(Duration::from_millis(20));
    }

    /// Reads a reply to anything but HEAD.
    pub fn response(&mut self) -> Response {
        self.read_response(false)
    }

    /// The final reply to anything but HEAD; `None` when the connection ends without one.
    pub fn answer(&mut self) -> Option<Response> {
        loop {
            while find(&self.read, b"\r\n\r\n").is_none() {
                if !self.more() {
                    return None;
                }
            }
            let response = self.response();
            if response.status >= 200 {
                return Some(response);
            }
        }
    }

    /// Reads a reply to HEAD.
    pub fn head_response(&mut self) -> Response {
        self.read_response(true)
    }

    fn read_response(&mut self, to_head: bool) -> Response {
        let (status, headers) = self.head();
        let mut response = Response {
            status,
            headers,
            body: Vec::new(),
            complete: true,
        };
        if to_head || matches!(status, 100..=199 | 204 | 304) {
            return response;
        }
        if response.header("transfer-encoding") == Some("chunked") {
            (response.body, response.complete) = self.chunks();
        } else if let Some(length) = response.header("content-length") {
            let length = length.parse().expect("Content-Length is a number");
            response.complete = self.fill(length);
            response.body = self.read.drain(..length.min(self.read.len())).collect();
        } else {
            while self.more() {}
            response.body = std::mem::take(&mut self.read);
        }
        response
    }

    /// The next status and headers.
    pub fn head(&mut self) -> (u16, Vec<(String, String)>) {
        let end = loop {
            if let Some(end) = find(&self.read, b"\r\n\r\n") {
                break end;
            }
            assert!(
                self.more(),
                "the connection ended in a head: {:?}",
                String::from_utf8_lossy(&self.read)
            );
        };
        let head = String::from_utf8_lossy(&self.read[..end]).into_owned();
        self.read.drain(..end + 4);
        let mut lines = head.split("\r\n");
        let status = lines.next().unwrap_or_default();
        let code = status.split(' ').nth(1).and_then(|code| code.parse().ok());
        let headers = lines.map(|line| {
            let (name, value) = line.split_once(": ").unwrap_or((line, ""));
            (name.to_owned(), value.to_owned())
        });
        (
            code.unwrap_or_else(|| panic!("no status line: {status:?}")),
            headers.collect(),
        )
    }

    fn chunks(&mut self) -> (Vec<u8>, bool) {
        let mut body = Vec::new();
        loop {
            let Some(chunk) = self.chunk() else {
                return (body, false);
            };
            if chunk.is_empty() {
                return (body, self.line().is_some());
            }
            body.extend_from_slice(&chunk);
        }
    }

    /// The next chunk of a body; empty at its end, `None` when the connection ended first.
    pub fn chunk(&mut self) -> Option<Vec<u8>> {
        let size = self.line()?;
        let size =
            usize::from_str_radix(&size, 16).unwrap_or_else(|_| panic!("no chunk size: {size:?}"));
        if size == 0 {
            return Some(Vec::new());
        }
        self.fill(size + 2).then(|| {
            let chunk = self.read.drain(..size).collect();
            self.read.drain(..2);
            chunk
        })
    }

    fn line(&mut self) -> Option<String> {
        loop {
            if let Some(end) = find(&self.read, b"\r\n") {
                let line = String::from_utf8_lossy(&self.read[..end]).into_owned();
                self.read.drain(..end + 2);
                return Some(line);
            }
            if !self.more() {
                return None;
            }
        }
    }

    fn fill(&mut self, bytes: usize) -> bool {
        while self.read.len() < bytes {
            if !self.more() {
                return false;
            }
        }
        true
    }

    /// The next bytes, exactly so many.
    ///
    /// # Panics
    ///
    /// When the connection ends before.
    pub fn take(&mut self, bytes: usize) -> Vec<u8> {
        assert!(
            self.fill(bytes),
            "the connection ended before {bytes} bytes came"
        );
        self.read.drain(..bytes).collect()
    }

    /// Everything until the server closes the connection, as it comes.
    pub fn rest(&mut self) -> Vec<u8> {
        while self.more() {}
        std::mem::take(&mut self.read)
    }

    /// Whether the server has closed the connection, without anything else before that.
    pub fn is_closed(&mut self) -> bool {
        self.read.is_empty() && !self.more()
    }

    fn more(&mut self) -> bool {
        let mut buffer = vec![0; 64 << 10];
        match self.stream.read(&mut buffer) {
            Ok(read) => {
                self.read.extend_from_slice(&buffer[..read]);
                read > 0
            }
            Err(error)
                if matches!(
                    error.kind(),
                    std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut
                ) =>
            {
                panic!("the server sent nothing for {PATIENCE:?}");
            }
            Err(_) => false,
        }
    }
}

fn find(text: &[u8], what: &[u8]) -> Option<usize> {
    text.windows(what.len()).position(|window| window == what)
}
