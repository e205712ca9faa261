//! A client on one kept connection.

use std::io::{Read, Write};
use std::net::TcpStream;

use crate::error::Error;
use crate::server::{PATIENCE, Server};

pub(crate) struct Client {
    stream: TcpStream,
}

impl Client {
    pub(crate) fn connect(server: &mut Server<'_>) -> Result<Self, Error> {
        let connect = || -> std::io::Result<TcpStream> {
            let stream = TcpStream::connect(server.address)?;
            stream.set_nodelay(true)?;
            stream.set_read_timeout(Some(PATIENCE))?;
            stream.set_write_timeout(Some(PATIENCE))?;
            Ok(stream)
        };
        let stream = connect().map_err(|error| server.wrong(format!("no connection: {error}")))?;
        server.wait_until_it_sleeps()?;
        Ok(Self { stream })
    }

    /// Sends a whole request, and lets the server do all it can with it.
    pub(crate) fn send(&mut self, server: &mut Server<'_>, request: &[u8]) -> Result<(), Error> {
        self.stream
            .write_all(request)
            .map_err(|error| server.wrong(format!("cannot send: {error}")))?;
        server.wait_until_it_sleeps()
    }

    /// Takes a whole reply, of whose body the length is announced.
    pub(crate) fn receive(&mut self, server: &mut Server<'_>, status: &str) -> Result<(), Error> {
        let mut reply = Vec::new();
        let mut buffer = vec![0; 128 << 10];
        while !is_whole(&reply) {
            match self.stream.read(&mut buffer) {
                Ok(read @ 1..) => reply.extend_from_slice(buffer.get(..read).unwrap_or_default()),
                Ok(_) => return Err(server.wrong("the connection was closed".to_owned())),
                Err(error) => return Err(server.wrong(format!("no reply: {error}"))),
            }
        }
        if !reply.starts_with(format!("HTTP/1.1 {status} ").as_bytes()) {
            let reply = String::from_utf8_lossy(&reply).into_owned();
            return Err(server.wrong(format!("status {status} was expected, not: {reply}")));
        }
        server.wait_until_it_sleeps()
    }
}

fn is_whole(reply: &[u8]) -> bool {
    let text = String::from_utf8_lossy(reply);
    let Some((head, body)) = text.split_once("\r\n\r\n") else {
        return false;
    };
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("Content-Length: ")?.parse().ok());
    length.is_some_and(|length: usize| body.len() >= length)
}
