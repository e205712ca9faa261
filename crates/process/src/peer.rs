//! Who is at the other end of a connection, by the kernel's word.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::str::SplitAsciiWhitespace;

/// A script that starts a script that starts a program is three.
const MOST_ANCESTORS: usize = 64;

/// A process, its parent, and so on up to the first one of the machine or container.
///
/// A process can change its group and its session; it can't choose who started it. One whose parent
/// has ended is a child of whoever adopts orphans.
pub fn lineage(pid: u32) -> impl Iterator<Item = u32> {
    let parent = |pid: &u32| parent(*pid).filter(|parent| *parent > 0);
    std::iter::successors(Some(pid), parent).take(MOST_ANCESTORS)
}

fn parent(pid: u32) -> Option<u32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    after_name(&stat)?.nth(1)?.parse().ok()
}

/// The fields of `/proc/PID/stat` from the third one on, the state. The name before them is in
/// brackets and may hold anything, brackets and spaces too.
pub fn after_name(stat: &str) -> Option<SplitAsciiWhitespace<'_>> {
    let (_, fields) = stat.rsplit_once(')')?;
    Some(fields.split_ascii_whitespace())
}

/// The users that a process runs as: real, effective, saved, and that of files. Who owns its
/// directory in `/proc` does not say: of a process that must not be looked into, that is root.
///
/// # Errors
///
/// When it has ended.
pub fn users_of(pid: u32) -> io::Result<[u32; 4]> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("Uid:"));
    let mut uids = line.unwrap_or_default().split_ascii_whitespace();
    let mut users = [0; 4];
    for user in &mut users {
        let uid = uids.next().and_then(|uid| uid.parse().ok());
        *user = uid.ok_or(io::ErrorKind::InvalidData)?;
    }
    Ok(users)
}

/// The other end of a TCP connection, where that is a socket of this machine and still open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TcpPeer {
    /// The user who has made it.
    pub uid: u32,
    inode: u64,
}

impl TcpPeer {
    /// Looks for the socket that is bound to `there` and connected to `here`. Reads a line for each
    /// connection of this network namespace.
    ///
    /// # Errors
    ///
    /// When the kernel does not tell of its sockets.
    pub fn find(there: SocketAddr, here: SocketAddr) -> io::Result<Option<Self>> {
        // An address of IPv4 may belong to a socket of either family.
        for table in ["/proc/self/net/tcp", "/proc/self/net/tcp6"] {
            let table = match File::open(table) {
                Ok(table) => BufReader::new(table),
                // Without IPv6.
                Err(error) if error.kind() == io::ErrorKind::NotFound && table.ends_with('6') => {
                    continue;
                }
                Err(error) => return Err(error),
            };
            for line in table.lines() {
                if let Some(found) = Self::in_line(&line?, there, here) {
                    return Ok(Some(found));
                }
            }
        }
        Ok(None)
    }

    fn in_line(line: &str, there: SocketAddr, here: SocketAddr) -> Option<Self> {
        let mut fields = line.split_ascii_whitespace().skip(1);
        let mut is_at = |wanted: SocketAddr| {
            let found = fields.next().and_then(address);
            found == Some((wanted.ip().to_canonical(), wanted.port()))
        };
        if !is_at(there) || !is_at(here) {
            return None;
        }
        let uid = fields.nth(4)?.parse().ok()?;
        let inode = fields.nth(1)?.parse().ok()?;
        // A socket that its process has closed has none, and no user any more.
        (inode != 0).then_some(Self { uid, inode })
    }

    /// Whether a process has this end open.
    ///
    /// # Errors
    ///
    /// `PermissionDenied` when this process may not look into that one: as root without
    /// `CAP_SYS_PTRACE`, in a container for instance.
    pub fn is_of(&self, pid: u32) -> io::Result<bool> {
        let name = format!("socket:[{}]", self.inode);
        for open in std::fs::read_dir(format!("/proc/{pid}/fd"))? {
            match std::fs::read_link(open?.path()) {
                Ok(it) if it == Path::new(&name) => return Ok(true),
                // The numbers may be read by who may not see what is open.
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Err(error),
                // Another one, or closed meanwhile.
                Ok(_) | Err(_) => {}
            }
        }
        Ok(false)
    }
}

/// As in `0100007F:1F90`: words of the machine's byte order, then the port as a number.
fn address(text: &str) -> Option<(IpAddr, u16)> {
    let (ip, port) = text.split_once(':')?;
    let word = |at: usize| u32::from_str_radix(ip.get(at..at + 8)?, 16).ok();
    let ip = match ip.len() {
        8 => IpAddr::V4(Ipv4Addr::from(word(0)?.to_ne_bytes())),
        32 => {
            let words = [word(0)?, word(8)?, word(16)?, word(24)?];
            let mut bytes = [0; 16];
            for (place, word) in bytes.chunks_exact_mut(4).zip(words) {
                place.copy_from_slice(&word.to_ne_bytes());
            }
            IpAddr::V6(Ipv6Addr::from(bytes))
        }
        _ => return None,
    };
    Some((ip.to_canonical(), u16::from_str_radix(port, 16).ok()?))
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::os::unix::process::CommandExt as _;
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn a_process_descends_from_who_started_it_whatever_its_group() {
        let mut shell = Command::new("sh")
            .args(["-c", "sleep 1000 & echo $!; wait"])
            .stdout(Stdio::piped())
            .process_group(0)
            .spawn()
            .unwrap();
        let mut said = String::new();
        let mut output = BufReader::new(shell.stdout.take().unwrap());
        output.read_line(&mut said).unwrap();
        let child: u32 = said.trim().parse().unwrap();
        let ancestors: Vec<u32> = lineage(child).take(3).collect();
        assert_eq!(ancestors, [child, shell.id(), std::process::id()]);
        // They share a group.
        assert!(!lineage(shell.id()).any(|pid| pid == child));
        assert_eq!(lineage(u32::MAX).count(), 1, "there is no such process");
        let child = i32::try_from(child)
            .ok()
            .and_then(rustix::process::Pid::from_raw);
        rustix::process::kill_process(child.unwrap(), rustix::process::Signal::KILL).unwrap();
        shell.wait().unwrap();
    }

    #[test]
    fn the_other_end_of_a_connection_is_found_and_whose_it_is() {
        let own = rustix::process::geteuid().as_raw();
        for any in ["127.0.0.1:0", "[::1]:0", "[::]:0"] {
            let Ok(listener) = TcpListener::bind(any) else {
                continue; // a machine without IPv6
            };
            let mut address = listener.local_addr().unwrap();
            if address.ip().is_unspecified() {
                // Over IPv4, to a socket of IPv6.
                address.set_ip(Ipv4Addr::LOCALHOST.into());
            }
            let stream = TcpStream::connect(address).unwrap();
            let (accepted, there) = listener.accept().unwrap();
            let here = accepted.local_addr().unwrap();
            let peer = TcpPeer::find(there, here).unwrap().unwrap();
            assert_eq!(peer.uid, own, "{any}");
            assert!(peer.is_of(std::process::id()).unwrap());
            let mut other = Command::new("sleep").arg("1000").spawn().unwrap();
            assert!(!peer.is_of(other.id()).unwrap());
            other.kill().unwrap();
            other.wait().unwrap();
            drop(stream);
            // A process that another test is just starting has it until its program begins.
            let looks = (0..100_000).take_while(|_| {
                std::thread::yield_now();
                TcpPeer::find(there, here).unwrap().is_some()
            });
            assert!(looks.count() < 100_000, "closed");
            let elsewhere = SocketAddr::new([192, 0, 2, 1].into(), there.port());
            assert_eq!(TcpPeer::find(elsewhere, here).unwrap(), None);
        }
    }

    #[test]
    fn addresses_are_words_of_this_machine() {
        let word = |bytes: [u8; 4]| format!("{:08X}", u32::from_ne_bytes(bytes));
        let v4 = word([127, 0, 0, 1]);
        let localhost = IpAddr::V4(Ipv4Addr::LOCALHOST);
        assert_eq!(address(&format!("{v4}:1F90")), Some((localhost, 8080)));
        let mapped = [word([0; 4]), word([0; 4]), word([0, 0, 255, 255]), v4].concat();
        assert_eq!(address(&format!("{mapped}:0050")), Some((localhost, 80)));
        for wrong in [
            "",
            "local_address",
            "0100007F",
            "0100007F:",
            "7F:1",
            "ü00007F:1",
        ] {
            assert_eq!(address(wrong), None, "{wrong}");
        }
    }
}
