//! The header of the PROXY protocol, in both versions: bytes in, addresses out.
//!
//! Knows no sockets and nobody who is trusted. The specification is `proxy-protocol.txt`
//! of `HAProxy`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use memchr::memchr2;
use thiserror::Error;

/// The length that version 1 allows, with its line feed.
const LONGEST_LINE: usize = 107;

/// The most that is taken of version 2, which would allow 64 KB. Addresses, a name, a checksum and
/// what clouds add have some hundred bytes.
pub(super) const LONGEST: usize = 4096;

const LINE: &[u8] = b"PROXY ";
const SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";
/// Signature, version and command, family and protocol, and the length of the rest.
const FIXED: usize = SIGNATURE.len() + 4;

/// A connection as a proxy tells of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ProxyHeader {
    /// It asks for itself (`LOCAL`), or can't say for whom (`UNKNOWN`).
    Nothing,
    Client {
        client: SocketAddr,
        /// Where the client connected to.
        server: SocketAddr,
    },
}

/// How far a header has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Parsed {
    /// All bytes so far are of the header, and there are more to come.
    Partial,
    /// It ends after so many bytes.
    Whole(usize, ProxyHeader),
}

/// The proxy's: it sends something else, or is configured for something else.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub(super) enum Malformed {
    #[error("it begins with something else")]
    Other,
    #[error("its line is longer than {LONGEST_LINE} bytes")]
    LongLine,
    #[error("its line can't be read")]
    Line,
    #[error("it has {0} bytes, more than {LONGEST}")]
    Long(usize),
    #[error("its version or command is not known: 0x{0:02x}")]
    Version(u8),
    #[error("it is not about TCP: 0x{0:02x}")]
    Family(u8),
    #[error("it is too short for its addresses")]
    Short,
    #[error("its checksum is wrong")]
    Checksum,
}

/// Reads what a connection begins with.
pub(super) fn parse(received: &[u8]) -> Result<Parsed, Malformed> {
    let begins = |with: &[u8]| {
        received
            .iter()
            .zip(with)
            .all(|(ours, theirs)| ours == theirs)
    };
    if begins(SIGNATURE) {
        binary(received)
    } else if begins(LINE) {
        line(received)
    } else {
        Err(Malformed::Other)
    }
}

fn line(received: &[u8]) -> Result<Parsed, Malformed> {
    let most = &received[..received.len().min(LONGEST_LINE)];
    let end = memchr2(b'\r', b'\n', most).unwrap_or(most.len());
    match &most[end..] {
        [b'\r', b'\n', ..] => Ok(Parsed::Whole(end + 2, told(&most[..end])?)),
        [] | [b'\r'] if most.len() == LONGEST_LINE => Err(Malformed::LongLine),
        [] | [b'\r'] => Ok(Parsed::Partial),
        _ => Err(Malformed::Line),
    }
}

fn told(line: &[u8]) -> Result<ProxyHeader, Malformed> {
    let text = str::from_utf8(line).map_err(|_| Malformed::Line)?;
    let words: Vec<&str> = text.split(' ').collect();
    let client = match words[..] {
        // The rest of the line is for people.
        [_, "UNKNOWN", ..] => return Ok(ProxyHeader::Nothing),
        [_, "TCP4", client, server, from, to] => {
            addresses::<Ipv4Addr>([client, server], [from, to])
        }
        [_, "TCP6", client, server, from, to] => {
            addresses::<Ipv6Addr>([client, server], [from, to])
        }
        _ => None,
    };
    client.ok_or(Malformed::Line)
}

fn addresses<A: std::str::FromStr + Into<IpAddr>>(
    [client, server]: [&str; 2],
    [from, to]: [&str; 2],
) -> Option<ProxyHeader> {
    let socket = |ip: &str, port: &str| {
        let is_plain = port == "0" || !port.starts_with(['0', '+']);
        let ip: A = ip.parse().ok()?;
        Some(SocketAddr::new(
            ip.into(),
            port.parse().ok().filter(|_| is_plain)?,
        ))
    };
    Some(ProxyHeader::Client {
        client: socket(client, from)?,
        server: socket(server, to)?,
    })
}

fn binary(received: &[u8]) -> Result<Parsed, Malformed> {
    const LOCAL: u8 = 0x20;
    const PROXY: u8 = 0x21;
    const TCP4: u8 = 0x11;
    const TCP6: u8 = 0x21;
    let Some(&[version, family, high, low]) = received.get(SIGNATURE.len()..FIXED) else {
        return Ok(Parsed::Partial);
    };
    let len = FIXED + usize::from(u16::from_be_bytes([high, low]));
    if !matches!(version, LOCAL | PROXY) {
        return Err(Malformed::Version(version));
    }
    if version == PROXY && !matches!(family, TCP4 | TCP6) {
        return Err(Malformed::Family(family));
    }
    if len > LONGEST {
        return Err(Malformed::Long(len));
    }
    let Some(rest) = received.get(FIXED..len) else {
        return Ok(Parsed::Partial);
    };
    if version == PROXY {
        let addresses = if family == TCP4 { 12 } else { 36 };
        check_sum(&received[..len], FIXED + addresses)?;
    }
    let client = match (version, family) {
        (LOCAL, _) => Some(ProxyHeader::Nothing),
        (_, TCP4) => pairs(rest, |bytes: [u8; 4]| bytes.into()),
        _ => pairs(rest, |bytes: [u8; 16]| bytes.into()),
    };
    Ok(Parsed::Whole(len, client.ok_or(Malformed::Short)?))
}

/// Judges the checksum, if there is one. The other extensions, from `at` on, are about the
/// connection and of no use here.
fn check_sum(header: &[u8], mut at: usize) -> Result<(), Malformed> {
    const CRC32C: u8 = 3;
    while let Some(&[kind, high, low]) = header.get(at..at + 3) {
        let value = at + 3;
        let end = value + usize::from(u16::from_be_bytes([high, low]));
        if kind == CRC32C {
            let said = header.get(value..end).and_then(|sum| sum.try_into().ok());
            let zeros = header.iter().enumerate();
            let zeros = zeros.map(|(at, byte)| if (value..end).contains(&at) { 0 } else { *byte });
            let is_right = said.is_some_and(|said| u32::from_be_bytes(said) == crc32c(zeros));
            return is_right.then_some(()).ok_or(Malformed::Checksum);
        }
        at = end;
    }
    Ok(())
}

/// CRC-32C (Castagnoli), bit by bit: a header is short, and comes once.
fn crc32c(bytes: impl Iterator<Item = u8>) -> u32 {
    const POLYNOMIAL: u32 = 0x82f6_3b78;
    let shifted = |sum: u32, _| sum >> 1 ^ if sum & 1 == 1 { POLYNOMIAL } else { 0 };
    !bytes.fold(!0, |sum, byte| (0..8).fold(sum ^ u32::from(byte), shifted))
}

/// Both addresses, then both ports.
fn pairs<const N: usize>(rest: &[u8], ip: impl Fn([u8; N]) -> IpAddr) -> Option<ProxyHeader> {
    let (client, rest) = rest.split_first_chunk()?;
    let (server, rest) = rest.split_first_chunk()?;
    let (from, rest) = rest.split_first_chunk()?;
    let to = rest.first_chunk()?;
    let socket =
        |bytes: &[u8; N], port: &[u8; 2]| SocketAddr::new(ip(*bytes), u16::from_be_bytes(*port));
    Some(ProxyHeader::Client {
        client: socket(client, from),
        server: socket(server, to),
    })
}

/// Checks what must hold for any bytes.
///
/// # Panics
///
/// When it does not.
pub fn fuzz_proxy_header(bytes: &[u8]) {
    let whole = parse(bytes);
    if let Ok(Parsed::Whole(len, _)) = whole {
        assert!(0 < len && len <= bytes.len() && len <= LONGEST);
        // Bytes behind it are of no importance, and no beginning of it is mistaken for it.
        assert_eq!(parse(&bytes[..len]), whole);
        assert_eq!(parse(&bytes[..len - 1]), Ok(Parsed::Partial));
    }
    if whole == Ok(Parsed::Partial) {
        assert!(bytes.len() < LONGEST, "it ends somewhere");
    }
    // A verdict does not depend on how the bytes arrive.
    for at in [bytes.len() / 2, bytes.len().saturating_sub(1)] {
        match parse(&bytes[..at]) {
            Ok(Parsed::Partial) => {}
            verdict => assert_eq!(verdict, whole, "after {at} bytes"),
        }
    }
}

#[cfg(test)]
mod tests;
