//! PHP's sessions in storages that workers do not map: the save handler of the extension asks for
//! them over RPC (`docs/decisions/0038-sessions-and-their-lock.md`).
//!
//! The lock of a session is kept here, for the process that has it open. Where several servers
//! share a storage, this server claims the session there as well, for as long as one of its
//! processes has it.

use std::collections::HashMap;
use std::collections::hash_map::Entry as Place;
use std::fmt::Display;
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

use bytes::Bytes;
use pronghorn_base::lock;
use pronghorn_plugin_api::rpc::{Argument, Binary, Failure, Methods, Outcome};
use pronghorn_process::peer::after_name;
use pronghorn_store::{Failed, LazyStore, Lender, Transaction};
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use tracing::{info, warn};

use crate::driver::{Claim, Driver, Entry, Item, Opened, SessionDriver, session_key};
use crate::moment::Moment;
use crate::storages::Storages;

const LOG: &str = "kv";

/// PHP's own limit.
const LONGEST_ID: usize = 256;
/// More than PHP's `memory_limit` lets a script have at ease.
const LONGEST_DATA: usize = 4 << 20;
/// Of what a request is called in the log.
const LONGEST_NAME: usize = 160;
/// Sessions that are open at a time: each is a request under way.
const MOST_OPEN: usize = 100_000;

/// Between two looks at whether the holder lives, and at what another server has claimed.
const LOOK: Duration = Duration::from_millis(50);
/// After which the log says who is waited for.
const LONG_WAIT: Duration = Duration::from_secs(1);
/// Who waits for ever has forgotten it.
const LONGEST_WAIT: Duration = Duration::from_secs(24 * 3600);

const RENEW_EVERY: Duration = Duration::from_secs(8);

/// An entry is written again for its end alone once a part of its time is over.
const PARTS: u32 = 8;

/// Clones are the same ones.
#[derive(Clone, Debug)]
pub(crate) struct Sessions {
    /// The storages that there are for whoever calls.
    storages: Storages,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    /// By storage and id.
    held: Mutex<HashMap<Name, Holder>>,
    /// One was let go.
    changed: Notify,
    /// This server, in claims.
    server: Bytes,
}

type Name = (String, String);

#[derive(Clone, Debug)]
struct Holder {
    process: Process,
    token: u64,
    since: Instant,
    doing: String,
}

/// A process, and when it was started: a number is given anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Process {
    number: u64,
    /// In the kernel's units; 0: it is not known.
    started: u64,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Request {
    storage: String,
    id: String,
    process: u64,
    started: u64,
    /// The request of that process, for the log.
    doing: String,
    /// Milliseconds for the lock; 0 for no limit.
    wait: u64,
    /// Without the lock.
    read_only: bool,
    /// Of the answer to `Open`.
    token: u64,
    data: Binary,
    /// The lock goes with what is written.
    is_last: bool,
    /// Seconds.
    ttl: u64,
}

#[derive(Debug, Default, Serialize)]
struct Answer {
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<Binary>,
    found: bool,
    /// Most of its time is left.
    young: bool,
    token: u64,
    /// Who has had it all the time.
    #[serde(skip_serializing_if = "Option::is_none")]
    holder: Option<Held>,
}

#[derive(Debug, Serialize)]
struct Held {
    /// 0: of another server.
    process: u64,
    doing: String,
    seconds: f64,
}

/// While both processes of an upgrade work with the store, each claims what it has open.
impl Lender for Sessions {
    fn lend(&self, transaction: &mut Transaction<'_>) -> Result<(), Failed> {
        for (storage, id) in self.held().keys() {
            let driver = self.storages.find(storage);
            if let Some(driver) = driver.and_then(Driver::sessions) {
                driver.note(transaction, &self.claim(id))?;
            }
        }
        Ok(())
    }

    fn stay(&self) {}
}

impl Argument for Request {}
impl Outcome for Answer {}

fn failed(why: impl Display) -> Failure {
    Failure::new(format!("sessions: {why}"))
}

pub(crate) fn add(methods: &Methods, storages: &Storages, store: &LazyStore) -> JoinSet<()> {
    let sessions = Sessions {
        storages: storages.clone(),
        shared: Arc::new(Shared {
            held: Mutex::default(),
            changed: Notify::new(),
            server: format!("{:032x}", fastrand::u128(..)).into(),
        }),
    };
    let all = sessions.clone();
    let methods = methods.service_by_caller("session", move |caller| Sessions {
        storages: all.storages.of(caller),
        shared: all.shared.clone(),
    });
    methods.add_while_connected("Open", async |sessions: Sessions, request: Request| {
        sessions.open(request).await
    });
    methods.add("Write", async |sessions: Sessions, request: Request| {
        sessions.write(request).await
    });
    methods.add("Close", async |sessions: Sessions, request: Request| {
        sessions.close(&request).await
    });
    methods.add("Destroy", async |sessions: Sessions, request: Request| {
        let driver = sessions.storage(&request)?;
        let gone = driver.delete(vec![session_key(&request.id)]).await;
        gone.map(|()| Answer::default()).map_err(failed)
    });
    methods.add("Has", async |sessions: Sessions, request: Request| {
        let driver = sessions.storage(&request)?;
        let found = driver
            .has(vec![session_key(&request.id)], Moment::now())
            .await;
        let found = found.map_err(failed)? == [true];
        Ok(Answer {
            found,
            ..Answer::default()
        })
    });
    let mut tasks = JoinSet::new();
    let lender = Arc::new(sessions.clone());
    let asked: Weak<Sessions> = Arc::downgrade(&lender);
    store.lends(asked);
    tasks.spawn(async move {
        sessions.renew().await;
        drop(lender);
    });
    tasks
}

/// PHP makes no other ids; those of cookies are anything.
fn is_id(id: &str) -> bool {
    let is_sign = |sign: char| sign.is_ascii_alphanumeric() || ",-".contains(sign);
    (1..=LONGEST_ID).contains(&id.len()) && id.chars().all(is_sign)
}

impl Sessions {
    fn storage(&self, request: &Request) -> Result<Arc<dyn SessionDriver>, Failure> {
        if !is_id(&request.id) {
            return Err(failed(
                "the id is too long or has signs other than letters, digits, `-` and `,`",
            ));
        }
        let name = &request.storage;
        let driver = self.storages.find(name);
        let driver = driver.ok_or_else(|| failed(format!("no such storage: {name}")))?;
        let kind = driver.name();
        driver.sessions().ok_or_else(|| {
            failed(format!(
                "the storage {name} has `driver: {kind}`, which keeps no sessions over RPC"
            ))
        })
    }

    fn claim(&self, id: &str) -> Claim {
        Claim {
            id: id.to_owned(),
            server: self.shared.server.clone(),
        }
    }

    /// The session, for this process alone unless it only reads.
    async fn open(&self, request: Request) -> Result<Answer, Failure> {
        let driver = self.storage(&request)?;
        if request.read_only {
            let key = session_key(&request.id);
            let read = |most| driver.get(vec![key.clone()], Moment::now(), most);
            let found = self.storages.read(read).await;
            let data = found.map_err(failed)?.into_iter().next().flatten();
            return Ok(Answer {
                found: data.is_some(),
                data: data.map(Binary),
                ..Answer::default()
            });
        }
        let begun = Instant::now();
        let wait = match request.wait {
            0 => LONGEST_WAIT,
            wait => Duration::from_millis(wait).min(LONGEST_WAIT),
        };
        let is_held = |holder| Answer {
            holder: Some(holder),
            ..Answer::default()
        };
        let mut mine = match self.take(&request, begun, wait).await? {
            Ok(mine) => mine,
            Err(holder) => return Ok(is_held(holder)),
        };
        let found = loop {
            let now = Moment::now();
            let open = |most| driver.open(self.claim(&request.id), now, most);
            let opened = self.storages.read(open).await;
            if let Opened::Here(found) = opened.map_err(failed)? {
                break found.map(|entry| (is_young(&entry, now, &request), entry.value));
            }
            let waited = begun.elapsed();
            if waited >= wait {
                return Ok(is_held(Held {
                    process: 0,
                    doing: "a request of another server".to_owned(),
                    seconds: waited.as_secs_f64(),
                }));
            }
            sleep(LOOK.min(wait.saturating_sub(waited))).await;
        };
        let (young, data) = found.unzip();
        Ok(Answer {
            found: data.is_some(),
            data: data.map(Binary),
            young: young.unwrap_or(false),
            // It is that of the process, from now on.
            token: std::mem::take(&mut mine.token),
            holder: None,
        })
    }

    /// Takes the lock in this server. Err: who has had it for all of the time.
    async fn take(
        &self,
        request: &Request,
        begun: Instant,
        wait: Duration,
    ) -> Result<Result<Mine<'_>, Held>, Failure> {
        loop {
            let changed = self.shared.changed.notified();
            let holder = match self.try_take(request)? {
                Ok(token) => {
                    return Ok(Ok(Mine {
                        sessions: self,
                        name: name(request),
                        token,
                    }));
                }
                Err(holder) => holder,
            };
            let waited = begun.elapsed();
            if waited >= wait {
                return Ok(Err(holder.held()));
            }
            if waited >= LONG_WAIT && waited < LONG_WAIT + 2 * LOOK {
                tell(request, &holder);
            }
            // Let go or not: it looks again.
            _ = timeout(LOOK.min(wait.saturating_sub(waited)), changed).await;
        }
    }

    fn try_take(&self, request: &Request) -> Result<Result<u64, Holder>, Failure> {
        let mut held = self.held();
        if held.len() >= MOST_OPEN {
            return Err(failed(format!("{MOST_OPEN} sessions are open already")));
        }
        let is_plain = |sign: &char| sign.is_ascii_graphic() || *sign == ' ';
        let process = Process {
            number: request.process,
            started: request.started,
        };
        let mine = || Holder {
            process,
            // JSON's numbers are exact up to there.
            token: fastrand::u64(1..1 << 53),
            since: Instant::now(),
            doing: (request.doing.chars().filter(is_plain))
                .take(LONGEST_NAME)
                .collect(),
        };
        match held.entry(name(request)) {
            Place::Occupied(there)
                if there.get().process != process && there.get().process.lives() =>
            {
                Ok(Err(there.get().clone()))
            }
            // Of the dead, or of one that the answer did not reach: a process has it once.
            Place::Occupied(mut there) => {
                there.insert(mine());
                Ok(Ok(there.get().token))
            }
            Place::Vacant(free) => Ok(Ok(free.insert(mine()).token)),
        }
    }

    async fn write(&self, mut request: Request) -> Result<Answer, Failure> {
        let driver = self.storage(&request)?;
        if !self.has(&request) {
            return Err(failed(
                "the lock of the session was lost: nothing is written",
            ));
        }
        let data = std::mem::take(&mut request.data.0);
        if data.len() > LONGEST_DATA {
            let length = data.len();
            return Err(failed(format!(
                "the session has {length} bytes; {LONGEST_DATA} are allowed"
            )));
        }
        let now = Moment::now();
        // Also without values: the number was given, and strict mode asks for that.
        let entry = Entry {
            value: data,
            ends: Some(now.after(Duration::from_secs(request.ttl.max(1)))),
        };
        if request.is_last {
            let done = driver.write_and_close(self.claim(&request.id), entry, now);
            done.await.map_err(failed)?;
            self.let_go(&name(&request), request.token);
        } else {
            let key = session_key(&request.id);
            let done = driver.set(vec![Item { key, entry }], now);
            done.await.map_err(failed)?;
        }
        Ok(Answer::default())
    }

    /// The claim goes before the lock: whoever has the lock next claims the session anew.
    async fn close(&self, request: &Request) -> Result<Answer, Failure> {
        let driver = self.storage(request)?;
        if self.has(request) {
            let closed = driver.close(self.claim(&request.id)).await;
            // A claim that is left ends by itself.
            self.let_go(&name(request), request.token);
            closed.map_err(failed)?;
        }
        Ok(Answer::default())
    }

    fn has(&self, request: &Request) -> bool {
        let holder = self.held().get(&name(request)).map(|it| it.token);
        holder == Some(request.token)
    }

    fn let_go(&self, name: &Name, token: u64) {
        let mut held = self.held();
        if held.get(name).is_some_and(|it| it.token == token) {
            held.remove(name);
            drop(held);
            self.shared.changed.notify_waiters();
        }
    }

    /// Forgets what the dead have had, and lets claims not end while somebody has a session.
    /// Without end.
    async fn renew(self) {
        loop {
            sleep(RENEW_EVERY).await;
            let all: Vec<(Name, Holder)> = {
                let held = self.held();
                held.iter()
                    .map(|(name, it)| (name.clone(), it.clone()))
                    .collect()
            };
            for (name, holder) in all {
                self.renew_one(&name, &holder).await;
            }
        }
    }

    async fn renew_one(&self, name: &Name, holder: &Holder) {
        let Some(driver) = self.storages.find(&name.0).and_then(Driver::sessions) else {
            return;
        };
        let claim = self.claim(&name.1);
        if !holder.process.lives() {
            _ = driver.close(claim).await; // it ends by itself
            self.let_go(name, holder.token);
            return;
        }
        if matches!(driver.renew(claim).await, Ok(false)) {
            let process = holder.process.number;
            warn!(target: LOG, storage = name.0, process, "another server has the lock of a session that was open here: {}", holder.doing);
            self.let_go(name, holder.token);
        }
    }

    fn held(&self) -> MutexGuard<'_, HashMap<Name, Holder>> {
        lock(&self.shared.held)
    }
}

/// Whether the entry need not be written again for its end alone.
fn is_young(entry: &Entry, now: Moment, request: &Request) -> bool {
    let ttl = Duration::from_secs(request.ttl);
    let left = entry.ends.map(|end| end.since(now));
    left.is_some_and(|left| left >= ttl / PARTS * (PARTS - 1))
}

fn name(request: &Request) -> Name {
    (request.storage.to_lowercase(), request.id.clone())
}

fn tell(request: &Request, holder: &Holder) {
    let Held {
        process,
        doing,
        seconds,
    } = holder.held();
    let waits: String = request
        .doing
        .chars()
        .filter(char::is_ascii_graphic)
        .collect();
    info!(target: LOG, "{waits} waits for the lock of its session, which process {process} has for {seconds:.1} s: {doing}");
}

/// What is let go where whoever asked for it goes before it has an answer.
struct Mine<'a> {
    sessions: &'a Sessions,
    name: Name,
    /// 0: there is nothing to let go.
    token: u64,
}

impl Drop for Mine<'_> {
    fn drop(&mut self) {
        self.sessions.let_go(&self.name, self.token);
    }
}

impl Holder {
    fn held(&self) -> Held {
        Held {
            process: self.process.number,
            doing: self.doing.clone(),
            seconds: self.since.elapsed().as_secs_f64(),
        }
    }
}

impl Process {
    /// Whether it is there, and the same one.
    fn lives(self) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.number));
        let stat = stat.unwrap_or_default();
        let Some(mut fields) = after_name(&stat) else {
            return false;
        };
        let state = fields.next();
        let started = fields.nth(18).and_then(|it| it.parse::<u64>().ok());
        !matches!(state, Some("Z" | "X"))
            && (self.started == 0 || started.is_none_or(|it| it == self.started))
    }
}
