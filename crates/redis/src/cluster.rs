//! A cluster: which master has which key, and who is asked when that has changed.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt, stream};
use redis::{Arg, Cmd, RedisError, ServerErrorKind, Value};
use tokio::sync::Mutex;
use tokio::time::sleep;

use crate::failure::RedisFailure;
use crate::node::{Dialer, Node, NodeAddress};
use crate::settings::RedisAddress;

/// How often a command is sent again that met a node at a bad moment. Nothing was done then.
const TRIES: u32 = 6;
/// A slot that moves, or a master that was lost, takes some of these.
const UNTIL_NEXT_TRY: Duration = Duration::from_millis(100);
/// Redis advises against more.
const MOST_NODES: usize = 1000;
/// The most nodes that are asked for the map at a time.
const ASKED_AT_A_TIME: usize = 4;
const SLOTS: u16 = 16_384;

pub(crate) struct Cluster {
    dialer: Arc<Dialer>,
    map: Mutex<Map>,
}

/// First and last slot, and who has them.
type Ranges = Vec<(u16, u16, RedisAddress)>;

#[derive(Default)]
struct Map {
    ranges: Ranges,
    nodes: HashMap<RedisAddress, Arc<Node>>,
    is_stale: bool,
    /// Counts up, so that who was sent by an older map does not call this one stale.
    version: u64,
}

impl Map {
    fn owner(&self, slot: Option<u16>) -> Option<Arc<Node>> {
        let mut ranges = self.ranges.iter();
        let (_, _, address) = match slot {
            None => ranges.next(),
            Some(slot) => ranges.find(|(first, last, _)| (*first..=*last).contains(&slot)),
        }?;
        self.nodes.get(address).cloned()
    }
}

/// Who is asked next.
enum Next {
    Owner,
    /// Who has the slot now, says the one before.
    Moved(RedisAddress),
    /// Where the slot moves to: it may have the key already.
    Importer(RedisAddress),
}

impl Cluster {
    /// Connects to nobody yet.
    pub(crate) fn new(dialer: Arc<Dialer>) -> Self {
        Self {
            dialer,
            map: Mutex::default(),
        }
    }

    pub(crate) async fn ask(&self, command: &Cmd) -> Result<Value, RedisFailure> {
        let slot = key_of(command).map(slot);
        let mut next = Next::Owner;
        let mut version = 0;
        let mut tries = 0;
        loop {
            tries += 1;
            let is_importer = matches!(next, Next::Importer(_));
            let node = match next {
                Next::Owner => {
                    let (node, of) = self.owner(slot).await?;
                    version = of;
                    node
                }
                Next::Moved(address) | Next::Importer(address) => self.node(address).await,
            };
            let mut link = match node.link().await {
                Ok(link) => link,
                Err(failure) => {
                    self.stale(version).await;
                    return Err(failure);
                }
            };
            let answer = if is_importer {
                let mut commands = redis::pipe();
                commands.cmd("ASKING").add_command(command.clone());
                link.ask_last(&commands).await
            } else {
                link.ask(command).await
            };
            let error = match answer {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            node.failed(&error, &link).await;
            next = match redirected(&error) {
                Some(address) if error.kind() == ServerErrorKind::Ask.into() => {
                    Next::Importer(address)
                }
                Some(address) => {
                    self.stale(version).await;
                    Next::Moved(address)
                }
                None => {
                    self.stale(version).await;
                    Next::Owner
                }
            };
            if tries == TRIES || !error.is_cluster_error() {
                return Err(self.dialer.failure(&error));
            }
            if matches!(next, Next::Owner) {
                sleep(UNTIL_NEXT_TRY).await;
            }
        }
    }

    /// All masters, by their addresses.
    pub(crate) async fn masters(&self) -> Result<Vec<Arc<Node>>, RedisFailure> {
        let mut map = self.map.lock().await;
        self.refresh(&mut map).await?;
        Ok(map.nodes.values().cloned().collect())
    }

    async fn stale(&self, version: u64) {
        let mut map = self.map.lock().await;
        map.is_stale |= map.version == version;
    }

    /// Who has a slot; anybody, where no key says which.
    async fn owner(&self, slot: Option<u16>) -> Result<(Arc<Node>, u64), RedisFailure> {
        let mut map = self.map.lock().await;
        // A map without the slot was drawn while the cluster came up: it is drawn once more.
        for is_stale in [map.is_stale || map.ranges.is_empty(), true] {
            if is_stale {
                self.refresh(&mut map).await?;
            }
            if let Some(node) = map.owner(slot) {
                return Ok((node, map.version));
            }
        }
        Err(self.dialer.away("no node has the slot of this key"))
    }

    /// One that the map does not name yet has a connection for this command.
    async fn node(&self, address: RedisAddress) -> Arc<Node> {
        let known = self.map.lock().await.nodes.get(&address).cloned();
        known.unwrap_or_else(|| self.new_node(address))
    }

    fn new_node(&self, address: RedisAddress) -> Arc<Node> {
        Arc::new(Node::new(self.dialer.clone(), NodeAddress::At(address)))
    }

    /// Asks those that are known and those that the settings name, several at a time: one that is
    /// away does not hold up the others.
    async fn refresh(&self, map: &mut Map) -> Result<(), RedisFailure> {
        let named = self.dialer.settings.addresses.iter();
        let named = named.filter(|address| !map.nodes.contains_key(address));
        let named = named.map(|address| (address.clone(), self.new_node(address.clone())));
        let known = map.nodes.iter();
        let known = known.map(|(address, node)| (address.clone(), node.clone()));
        let all: Vec<_> = known.chain(named).collect();
        let mut failure = self.dialer.away("there is no node");
        let mut answers = stream::iter(all.into_iter().map(|it| self.slots_of(it)))
            .buffer_unordered(ASKED_AT_A_TIME);
        while let Some(answer) = answers.next().await {
            match answer {
                Ok((ranges, asked)) => {
                    drop(answers);
                    self.redraw(map, ranges, asked);
                    return Ok(());
                }
                Err(why) => failure = why,
            }
        }
        Err(failure)
    }

    async fn slots_of(
        &self,
        (address, node): (RedisAddress, Arc<Node>),
    ) -> Result<(Ranges, (RedisAddress, Arc<Node>)), RedisFailure> {
        let mut link = node.link().await?;
        let mut command = redis::cmd("CLUSTER");
        command.arg("SLOTS");
        match link.ask(&command).await {
            Ok(answer) => Ok((ranges(answer, &address), (address, node))),
            Err(error) => {
                node.failed(&error, &link).await;
                Err(self.dialer.failure(&error))
            }
        }
    }

    /// Masters that stay keep their connections.
    fn redraw(&self, map: &mut Map, ranges: Ranges, asked: (RedisAddress, Arc<Node>)) {
        let mut before = std::mem::take(&mut map.nodes);
        before.insert(asked.0, asked.1);
        for (_, _, address) in &ranges {
            if map.nodes.len() == MOST_NODES {
                break;
            }
            let node = map.nodes.entry(address.clone());
            node.or_insert_with(|| {
                let known = before.remove(address);
                known.unwrap_or_else(|| self.new_node(address.clone()))
            });
        }
        map.ranges = ranges;
        map.is_stale = false;
        map.version += 1;
    }
}

/// Slots and their masters; a node that names no host has the one that it was asked at.
fn ranges(answer: Value, asked: &RedisAddress) -> Ranges {
    let Value::Array(all) = answer else {
        return Vec::new();
    };
    let range = |range: Value| {
        let Value::Array(range) = range else {
            return None;
        };
        let mut parts = range.into_iter();
        let mut number = || redis::from_redis_value::<u16>(parts.next()?).ok();
        let (first, last) = (number()?, number()?);
        let Value::Array(master) = parts.next()? else {
            return None;
        };
        let mut parts = master.into_iter();
        let host: Option<String> = redis::from_redis_value(parts.next()?).ok()?;
        let port = redis::from_redis_value(parts.next()?).ok()?;
        let host = host.filter(|host| !host.is_empty() && host != "?");
        let address = match (host, asked) {
            (Some(host), _) => RedisAddress::Tcp(host, port),
            (None, RedisAddress::Tcp(host, _)) => RedisAddress::Tcp(host.clone(), port),
            (None, RedisAddress::Unix(_)) => return None,
        };
        Some((first, last, address))
    };
    all.into_iter().filter_map(range).collect()
}

fn redirected(error: &RedisError) -> Option<RedisAddress> {
    let (address, _) = error.redirect_node()?;
    let (host, port) = address.rsplit_once(':')?;
    if host.is_empty() {
        return None;
    }
    Some(RedisAddress::Tcp(host.to_owned(), port.parse().ok()?))
}

/// The key that says where a command goes; other keys of it have the same slot.
fn key_of(command: &Cmd) -> Option<&[u8]> {
    let mut arguments = command.args_iter().map(|argument| match argument {
        Arg::Simple(bytes) => bytes,
        _ => &[],
    });
    match arguments.next()? {
        b"PING" => None,
        // The script and how many keys there are stand in front.
        b"EVAL" => arguments.nth(2),
        b"XGROUP" => arguments.nth(1),
        b"XREADGROUP" => arguments.skip_while(|it| *it != b"STREAMS").nth(1),
        _ => arguments.next(),
    }
}

/// As Redis counts it: of what stands in the first braces, if anything does.
fn slot(key: &[u8]) -> u16 {
    let hashed = tag(key).filter(|tag| !tag.is_empty()).unwrap_or(key);
    crc16(hashed) % SLOTS
}

fn tag(key: &[u8]) -> Option<&[u8]> {
    let open = key.iter().position(|byte| *byte == b'{')?;
    let behind = key.get(open + 1..)?;
    let close = behind.iter().position(|byte| *byte == b'}')?;
    behind.get(..close)
}

/// By XMODEM's polynomial.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| {
        (0..8).fold(crc ^ (u16::from(*byte) << 8), |crc, _| {
            let shifted = crc << 1;
            if crc & 0x8000 == 0 {
                shifted
            } else {
                shifted ^ 0x1021
            }
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_is_that_of_what_stands_in_braces() {
        // `CLUSTER KEYSLOT` of a Redis says these.
        for (key, expected) in [
            ("", 0),
            ("123456789", 12_739),
            ("foo", 12_182),
            ("{foo}:bar", 12_182),
            ("x{foo}y{bar}", 12_182),
        ] {
            assert_eq!(slot(key.as_bytes()), expected, "{key}");
        }
        assert_eq!(slot(b"foo{}{bar}"), crc16(b"foo{}{bar}") % SLOTS);
        assert_eq!(slot(b"foo{{bar}}"), slot(b"{bar"));
    }

    #[test]
    fn a_command_goes_where_its_key_is() {
        let key = |words: &[&str]| {
            let mut command = redis::cmd(words[0]);
            command.arg(&words[1..]);
            key_of(&command).map(|key| String::from_utf8_lossy(key).into_owned())
        };
        assert_eq!(key(&["PING"]), None);
        assert_eq!(key(&["GET", "a"]).as_deref(), Some("a"));
        assert_eq!(key(&["EVAL", "script", "1", "a"]).as_deref(), Some("a"));
        assert_eq!(key(&["XGROUP", "CREATE", "a", "g"]).as_deref(), Some("a"));
        let read = [
            "XREADGROUP",
            "GROUP",
            "g",
            "c",
            "COUNT",
            "1",
            "STREAMS",
            "a",
            ">",
        ];
        assert_eq!(key(&read).as_deref(), Some("a"));
    }
}
