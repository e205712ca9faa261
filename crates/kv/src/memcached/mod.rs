//! `memcached`: entries in one or several servers, each key in that which RoadRunner finds it in.
//!
//! By meta commands, which tell when an entry ends and take keys of any bytes (memcached 1.6).

mod address;
mod connection;

use std::sync::Mutex;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures_util::future::try_join_all;
use pronghorn_base::{PeerHealth, lock};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;

pub use address::MemcachedAddress;
use connection::{Connection, Failure, Reply};

use crate::driver::{Answer, Driver, DriverError, Item, Room};
use crate::moment::Moment;

/// Its own limit, for a key as it is sent.
const LONGEST_KEY: usize = 250;
/// Longer times to live are told as moments.
const LONGEST_TTL: u64 = 30 * 24 * 60 * 60;
/// In one server. More calls wait for each other.
const MOST_CONNECTIONS: usize = 16;
/// How many commands are sent before their answers are read: what both take fits into the socket's
/// memory, for either commands or answers are short.
const AT_A_TIME: usize = 64;

/// One storage in memcached.
#[derive(Debug)]
pub(crate) struct Memcached {
    servers: Vec<Server>,
    timeout: Duration,
    /// As the last answers told.
    health: PeerHealth,
}

#[derive(Debug)]
struct Server {
    address: MemcachedAddress,
    places: Semaphore,
    idle: Mutex<Vec<Connection>>,
}

/// For commands that bring no value.
static NO_ROOM: Room = Room::of(0);

/// What is sent for one key.
struct Command {
    key: Bytes,
    bytes: Vec<u8>,
}

impl Memcached {
    pub(crate) fn new(addresses: Vec<MemcachedAddress>, timeout: Duration) -> Self {
        let server = |address| Server {
            address,
            places: Semaphore::new(MOST_CONNECTIONS),
            idle: Mutex::default(),
        };
        Self {
            servers: addresses.into_iter().map(server).collect(),
            timeout,
            health: PeerHealth::supposed(),
        }
    }

    /// As RoadRunner's client chooses.
    fn server_of(&self, key: &[u8]) -> usize {
        let servers = u32::try_from(self.servers.len()).expect("they are few");
        (crc32fast::hash(key) % servers) as usize
    }

    /// The replies, in the order of the commands. Their values may have `most` bytes together.
    async fn ask(&self, commands: Vec<Command>, most: usize) -> Result<Vec<Reply>, DriverError> {
        let mut by_server: Vec<Vec<(usize, Command)>> = Vec::new();
        by_server.resize_with(self.servers.len(), Vec::new);
        for (number, command) in commands.into_iter().enumerate() {
            by_server[self.server_of(&command.key)].push((number, command));
        }
        let room = &Room::of(most);
        let asked = self.servers.iter().zip(&by_server);
        let asked = asked.filter(|(_, commands)| !commands.is_empty()).map(
            |(server, commands)| async move {
                let mut replies = Vec::with_capacity(commands.len());
                for part in commands.chunks(AT_A_TIME) {
                    let bytes: Vec<u8> = part.iter().flat_map(|it| it.1.bytes.clone()).collect();
                    let answers = self.with(server, &bytes, part.len(), room).await?;
                    replies.extend(part.iter().map(|(number, _)| *number).zip(answers));
                }
                Ok::<_, DriverError>(replies)
            },
        );
        let mut replies: Vec<(usize, Reply)> =
            try_join_all(asked).await?.into_iter().flatten().collect();
        replies.sort_unstable_by_key(|(number, _)| *number);
        Ok(replies.into_iter().map(|(_, reply)| reply).collect())
    }

    async fn with(
        &self,
        server: &Server,
        bytes: &[u8],
        count: usize,
        room: &Room,
    ) -> Result<Vec<Reply>, DriverError> {
        let answers = timeout(self.timeout, server.ask(bytes, count, room)).await;
        let (health, answers) = match answers {
            Ok(Ok(answers)) => (Ok(()), Ok(answers)),
            Ok(Err(Failure::Refused(why))) => {
                let said = DriverError::Unavailable(server.says(&why));
                (Ok(()), Err(said))
            }
            Ok(Err(Failure::TooLong)) => (Ok(()), Err(room.too_long())),
            Ok(Err(Failure::Lost(error))) => {
                let said = server.is_away(&error.to_string());
                (Err(said.clone()), Err(DriverError::Unavailable(said)))
            }
            Err(_) => {
                let said = server.is_away(&format!("no answer within {:?}", self.timeout));
                (Err(said.clone()), Err(DriverError::Unavailable(said)))
            }
        };
        _ = self.health.set(health); // the watch tells the log
        answers
    }

    /// The same command for each of these keys.
    async fn ask_for(
        &self,
        keys: &[Bytes],
        name: &str,
        flags: &str,
        most: usize,
    ) -> Result<Vec<Reply>, DriverError> {
        let command = |key: &Bytes| {
            let (sent, is_encoded) = sent_key(key)?;
            let encoded = if is_encoded { " b" } else { "" };
            Ok(Command {
                key: key.clone(),
                bytes: format!("{name} {sent}{flags}{encoded}\r\n").into_bytes(),
            })
        };
        let commands: Result<Vec<Command>, DriverError> = keys.iter().map(command).collect();
        self.ask(commands?, most).await
    }
}

impl Server {
    /// A connection that was not read to the end of its answers is closed: also when nobody waits
    /// for them any more.
    async fn ask(&self, bytes: &[u8], count: usize, room: &Room) -> Result<Vec<Reply>, Failure> {
        let _place = self.place().await;
        let kept = lock(&self.idle).pop();
        if let Some(mut connection) = kept {
            match connection.ask(bytes, count, room).await {
                Ok(replies) => {
                    lock(&self.idle).push(connection);
                    return Ok(replies);
                }
                // It has closed it since, or was started anew: the others are as old. All commands
                // may be carried out twice.
                Err(Failure::Lost(_)) => lock(&self.idle).clear(),
                Err(refused) => return Err(refused),
            }
        }
        let mut connection = Connection::open(&self.address).await?;
        let replies = connection.ask(bytes, count, room).await?;
        lock(&self.idle).push(connection);
        Ok(replies)
    }

    async fn place(&self) -> SemaphorePermit<'_> {
        let place = self.places.acquire().await;
        place.expect("nobody closes it")
    }

    fn is_away(&self, why: &str) -> String {
        format!("the memcached at {} does not answer: {why}", self.address)
    }

    fn says(&self, why: &str) -> String {
        format!("the memcached at {} refuses: {why}", self.address)
    }
}

/// As it is written in a command, and whether that is base64.
fn sent_key(key: &[u8]) -> Result<(String, bool), DriverError> {
    let is_plain = key.iter().all(u8::is_ascii_graphic);
    let sent = match str::from_utf8(key) {
        Ok(text) if is_plain => (text.to_owned(), false),
        _ => (STANDARD.encode(key), true),
    };
    if sent.0.len() > LONGEST_KEY {
        let length = key.len();
        return Err(DriverError::LongKey { length });
    }
    Ok(sent)
}

/// What memcached is told of an end: seconds, or a moment of the calendar. None: it has come.
fn expiration(end: Option<Moment>, now: Moment) -> Option<u64> {
    let Some(end) = end else {
        return Some(0);
    };
    let left = end.since(now).as_millis().div_ceil(1000);
    let left = u64::try_from(left).unwrap_or(u64::MAX);
    match left {
        0 => None,
        1..=LONGEST_TTL => Some(left),
        // It takes no later one.
        _ => Some(end.millis().div_ceil(1000).min(i32::MAX as u64)),
    }
}

fn deletion(key: &Bytes) -> Result<Command, DriverError> {
    let (sent, is_encoded) = sent_key(key)?;
    let encoded = if is_encoded { " b" } else { "" };
    Ok(Command {
        key: key.clone(),
        bytes: format!("md {sent}{encoded}\r\n").into_bytes(),
    })
}

fn storing(item: &Item, now: Moment) -> Result<Command, DriverError> {
    let Some(expires) = expiration(item.entry.ends, now) else {
        return deletion(&item.key);
    };
    let (sent, is_encoded) = sent_key(&item.key)?;
    let encoded = if is_encoded { " b" } else { "" };
    let length = item.entry.value.len();
    let mut bytes = format!("ms {sent} {length} T{expires}{encoded}\r\n").into_bytes();
    bytes.extend_from_slice(&item.entry.value);
    bytes.extend_from_slice(b"\r\n");
    Ok(Command {
        key: item.key.clone(),
        bytes,
    })
}

/// An end by what memcached says of it: `t60` seconds, or `t-1` for none.
#[expect(clippy::option_option, reason = "as a driver answers")]
fn end(reply: &Reply, now: Moment) -> Option<Option<Moment>> {
    let Reply::Done(flags) = reply else {
        return None;
    };
    let seconds = flags.split(' ').find_map(|flag| flag.strip_prefix('t'))?;
    Some(
        seconds
            .parse()
            .ok()
            .map(|it| now.after(Duration::from_secs(it))),
    )
}

impl Driver for Memcached {
    fn name(&self) -> &'static str {
        "memcached"
    }

    fn get(&self, keys: Vec<Bytes>, _: Moment, most: usize) -> Answer<'_, Vec<Option<Bytes>>> {
        Box::pin(async move {
            let replies = self.ask_for(&keys, "mg", " v", most).await?;
            let value = |reply| match reply {
                Reply::Value(value) => Some(value),
                Reply::Done(_) | Reply::Missing => None,
            };
            Ok(replies.into_iter().map(value).collect())
        })
    }

    fn has(&self, keys: Vec<Bytes>, _: Moment) -> Answer<'_, Vec<bool>> {
        Box::pin(async move {
            let replies = self.ask_for(&keys, "mg", "", 0).await?;
            Ok(replies.iter().map(|it| *it != Reply::Missing).collect())
        })
    }

    fn ends(&self, keys: Vec<Bytes>, now: Moment) -> Answer<'_, Vec<Option<Option<Moment>>>> {
        Box::pin(async move {
            let replies = self.ask_for(&keys, "mg", " t", 0).await?;
            Ok(replies.iter().map(|reply| end(reply, now)).collect())
        })
    }

    fn set(&self, items: Vec<Item>, now: Moment) -> Answer<'_, ()> {
        Box::pin(async move {
            let commands: Result<_, _> = items.iter().map(|item| storing(item, now)).collect();
            self.ask(commands?, 0).await.map(drop)
        })
    }

    fn expire(&self, ends: Vec<(Bytes, Moment)>, now: Moment) -> Answer<'_, ()> {
        Box::pin(async move {
            let command = |(key, end): (Bytes, Moment)| {
                let Some(expires) = expiration(Some(end), now) else {
                    return deletion(&key);
                };
                let (sent, is_encoded) = sent_key(&key)?;
                let encoded = if is_encoded { " b" } else { "" };
                let bytes = format!("mg {sent} T{expires}{encoded}\r\n").into_bytes();
                Ok(Command { key, bytes })
            };
            let commands: Result<_, _> = ends.into_iter().map(command).collect();
            self.ask(commands?, 0).await.map(drop)
        })
    }

    fn delete(&self, keys: Vec<Bytes>) -> Answer<'_, ()> {
        Box::pin(async move { self.ask_for(&keys, "md", "", 0).await.map(drop) })
    }

    /// memcached can't tell whose an entry is.
    fn clear(&self) -> Answer<'_, ()> {
        Box::pin(async move {
            let servers = self.servers.iter();
            let cleared = servers.map(|server| self.with(server, b"flush_all\r\n", 1, &NO_ROOM));
            try_join_all(cleared).await.map(drop)
        })
    }

    fn probe(&self) -> Option<Answer<'_, ()>> {
        Some(Box::pin(async move {
            let servers = self.servers.iter();
            let asked = servers.map(|server| self.with(server, b"version\r\n", 1, &NO_ROOM));
            try_join_all(asked).await.map(drop)
        }))
    }

    fn health(&self) -> Result<(), String> {
        self.health.check()
    }
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Connection")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_sent_as_it_is_where_memcached_takes_it() {
        let sent = |key: &[u8]| sent_key(key).ok();
        assert_eq!(sent(b"user:1"), Some(("user:1".to_owned(), false)));
        assert_eq!(sent(b"a b"), Some(("YSBi".to_owned(), true)));
        assert_eq!(sent(b"\xff"), Some(("/w==".to_owned(), true)));
        assert!(sent(&[b'k'; 250]).is_some());
        assert_eq!(sent(&[b'k'; 251]), None);
        assert!(sent(&[0; 186]).is_some());
        assert_eq!(sent(&[0; 188]), None);
    }

    #[test]
    fn an_end_is_told_in_seconds_or_as_a_moment() {
        let now = Moment::from_millis(1_795_667_400_000);
        let told = |millis| expiration(Some(now.after(Duration::from_millis(millis))), now);
        assert_eq!(expiration(None, now), Some(0));
        assert_eq!(told(0), None);
        assert_eq!(told(1), Some(1));
        assert_eq!(told(60_000), Some(60));
        assert_eq!(told(LONGEST_TTL * 1000), Some(LONGEST_TTL));
        let month = LONGEST_TTL * 1000 + 1;
        assert_eq!(told(month), Some(1_795_667_400 + LONGEST_TTL + 1));
        assert_eq!(told(u64::MAX / 4), Some(i32::MAX as u64));
    }
}
