//! `basic_auth` of routes: who may come in, by a file of names and password hashes (RFC 7617).
//!
//! A hash is slow by design. So what was right once is remembered, keyed, and costs no hash again;
//! what is not known is verified on a thread that may block, one after the other for each file, so
//! that a flood of wrong passwords takes one processor at most. Clients take turns at that, so that
//! the flood of one is in nobody else's way; and a client that was wrong too often has to wait.
//!
//! The file is looked at again once a second: `htpasswd` needs no reload.

use std::future::ready;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use pronghorn_base::{LogThrottle, begin_in, lock, read_linked};
use pronghorn_htpasswd::{Rejected, Users, Verified};
use pronghorn_plugin_api::Finding;
use pronghorn_serve::{Exchange, Handled, Handler, Household, Request, Response};
use pronghorn_wire::REMOTE_USER;
use tokio::time::Instant;

use crate::fair_queue::{FairQueue, Full};
use crate::limiter::Limiter;
use crate::settings::{BasicAuthSettings, HttpSettings, Rate, RouteSettings};

pub(crate) const KEY: &str = "http.routes[].basic_auth.user_file";
/// Ten thousand names.
const LONGEST_FILE: u64 = 1 << 20;
/// For so long the last look at a file holds.
const LOOK_HOLDS: Duration = Duration::from_secs(1);
/// A file that was written so shortly before it was read may have changed since, within what its
/// time can tell.
const UNSETTLED: Duration = Duration::from_secs(2);
/// Requests that wait until their passwords are verified.
const MOST_WAITING: usize = 100;
const LONGEST_WAIT: Duration = Duration::from_secs(10);
/// Wrong passwords of a client, and how many at once.
const WRONG: Rate = Rate {
    count: 10,
    per: Duration::from_mins(1),
};
const WRONG_AT_ONCE: u32 = 10;
const GUESSES: Rate = Rate {
    count: 100,
    per: Duration::from_mins(1),
};
/// Lines that let nobody in are told one by one, up to so many.
const MOST_TOLD: usize = 10;

/// The guards of all routes.
#[derive(Debug, Default)]
pub(crate) struct Guards(Vec<(BasicAuthSettings, Arc<BasicAuth>)>);

impl Guards {
    /// Reads all files.
    ///
    /// # Errors
    ///
    /// When one can't be read.
    pub(crate) fn open(
        settings: &HttpSettings,
        directory: &Path,
        files: &UserFiles,
    ) -> Result<Self, Unreadable> {
        let mut guards = Self::default();
        for settings in settings
            .routes
            .iter()
            .filter_map(|it| it.basic_auth.as_ref())
        {
            let path = begin_in(directory, &settings.user_file);
            let file = files.open(&path);
            let file = file.map_err(|source| Unreadable { path, source })?;
            let guard = BasicAuth::new(settings, file);
            guards.0.push((settings.clone(), Arc::new(guard)));
        }
        Ok(guards)
    }

    pub(crate) fn of(&self, route: &RouteSettings) -> Option<Arc<BasicAuth>> {
        let wanted = route.basic_auth.as_ref()?;
        let guard = self.0.iter().find(|(settings, _)| settings == wanted);
        guard.map(|(_, guard)| guard.clone())
    }
}

/// A file that can't be read.
#[derive(Debug)]
pub(crate) struct Unreadable {
    pub(crate) path: PathBuf,
    pub(crate) source: std::io::Error,
}

/// Findings on the files, before a start.
pub(crate) fn look(settings: &HttpSettings, directory: &Path) -> Vec<Finding> {
    let named = settings.routes.iter();
    let named = named.filter_map(|it| it.basic_auth.as_ref());
    let mut seen: Vec<&Path> = Vec::new();
    let mut findings = Vec::new();
    for of_route in named {
        let is_new = !seen.contains(&of_route.user_file.as_path());
        seen.push(&of_route.user_file);
        match read_linked(&begin_in(directory, &of_route.user_file), LONGEST_FILE) {
            Ok(text) => look_into(of_route, &text, is_new, &mut findings),
            Err(error) if is_new => findings.push(Finding::missing(
                KEY,
                format!(
                    "names `{}`, which can't be used: {error}",
                    of_route.user_file.display()
                ),
                "the server does not start without it: `htpasswd -cB FILE NAME` makes one",
            )),
            Err(_) => {}
        }
    }
    findings
}

/// `is_new`: nothing was said of the file yet.
fn look_into(of: &BasicAuthSettings, text: &[u8], is_new: bool, findings: &mut Vec<Finding>) {
    let file = of.user_file.display();
    let (users, rejected) = Users::read(text);
    let mut doubt = |message: String, hint: String| {
        findings.push(Finding::doubtful(KEY, message, hint));
    };
    for Rejected { line, why } in rejected.iter().take(MOST_TOLD).filter(|_| is_new) {
        doubt(
            format!("names `{file}`, whose line {line} {why}"),
            "until then nobody comes in by that line".to_owned(),
        );
    }
    if users.is_empty() && rejected.is_empty() && is_new {
        doubt(
            format!("names `{file}`, which has no names: nobody can come in"),
            format!("add one: `htpasswd -B {file} NAME`"),
        );
    }
    for name in of
        .users
        .iter()
        .filter(|name| users.hash_of(name.as_bytes()).is_none())
    {
        let name = name.escape_debug();
        doubt(
            format!("names `{file}`, where nobody of `users` is called `{name}`"),
            format!("add the name: `htpasswd -B {file} {name}`, or take it out of `users`"),
        );
    }
}

/// The guard of a route.
#[derive(Debug)]
pub(crate) struct BasicAuth {
    file: Arc<UserFile>,
    /// The only names of it; empty is all.
    users: Vec<Box<[u8]>>,
    /// The value of `WWW-Authenticate`.
    challenge: String,
}

/// The name and the password of a request.
struct Credentials {
    name: Vec<u8>,
    password: Vec<u8>,
}

/// A verdict that needs no hash, or the wish for one.
enum Judged {
    In(Credentials),
    Out(Response),
    Unknown(Credentials),
}

impl BasicAuth {
    fn new(settings: &BasicAuthSettings, file: Arc<UserFile>) -> Self {
        let realm = settings.realm.replace('\\', "\\\\").replace('"', "\\\"");
        let users = settings.users.iter().map(|name| name.as_bytes().into());
        Self {
            file,
            users: users.collect(),
            challenge: format!("Basic realm=\"{realm}\", charset=\"UTF-8\""),
        }
    }

    /// Lets a request in, or says what it is answered.
    ///
    /// # Errors
    ///
    /// The answer.
    pub(crate) async fn admit(&self, request: &mut Request) -> Result<(), Response> {
        match self.judge(request) {
            Judged::In(credentials) => {
                admitted(request, &credentials);
                Ok(())
            }
            Judged::Out(response) => Err(response),
            Judged::Unknown(credentials) => self.verify(request, credentials).await,
        }
    }

    fn judge(&self, request: &Request) -> Judged {
        let Some(credentials) = Credentials::of(request) else {
            return Judged::Out(self.refusal());
        };
        if !self.lists(&credentials) {
            // Verified all the same: else the time would tell which names are listed.
            return Judged::Unknown(credentials);
        }
        if self.file.knows(client_of(request), &credentials) {
            Judged::In(credentials)
        } else {
            Judged::Unknown(credentials)
        }
    }

    fn lists(&self, credentials: &Credentials) -> bool {
        self.users.is_empty() || self.users.iter().any(|it| **it == *credentials.name)
    }

    async fn verify(
        &self,
        request: &mut Request,
        credentials: Credentials,
    ) -> Result<(), Response> {
        let client = client_of(request);
        let is_listed = self.lists(&credentials);
        let (verdict, credentials) = self.file.verify(client, credentials, is_listed).await;
        match verdict {
            Verdict::Right => {
                admitted(request, &credentials);
                Ok(())
            }
            Verdict::Wrong => Err(self.refusal()),
            Verdict::TooOften(seconds) => {
                self.file.tell_too_often(request);
                Err(later(429, seconds))
            }
            Verdict::Busy => Err(later(503, 1)),
            Verdict::Unreadable => Err(Response::status_only(500)),
        }
    }

    fn refusal(&self) -> Response {
        let mut response = Response::status_only(401);
        response
            .fields
            .push("WWW-Authenticate", self.challenge.as_str());
        response
    }
}

/// Clients of unix sockets count as one.
fn client_of(request: &Request) -> Option<Household> {
    request.peer.address.ip().map(Household::of)
}

fn admitted(request: &mut Request, credentials: &Credentials) {
    request.attributes.set(REMOTE_USER, &*credentials.name);
}

fn later(status: u16, seconds: u64) -> Response {
    let mut response = Response::status_only(status);
    response.fields.push("Retry-After", seconds.to_string());
    response
}

impl Credentials {
    /// None without exactly one field that has some.
    fn of(request: &Request) -> Option<Self> {
        let mut fields = request.head.fields().all("authorization");
        let (Some(value), None) = (fields.next(), fields.next()) else {
            return None;
        };
        let (scheme, token) = value.split_at_checked(6)?;
        if !scheme.eq_ignore_ascii_case(b"basic ") {
            return None;
        }
        let decoded = STANDARD.decode(token.trim_ascii()).ok()?;
        let colon = memchr::memchr(b':', &decoded)?;
        Some(Self {
            name: decoded[..colon].to_vec(),
            password: decoded[colon + 1..].to_vec(),
        })
    }
}

/// The files that guards have, also those of the settings before: a reload makes nobody prove a
/// password again.
#[derive(Debug, Default)]
pub(crate) struct UserFiles(Mutex<Vec<Weak<UserFile>>>);

impl UserFiles {
    fn open(&self, path: &Path) -> std::io::Result<Arc<UserFile>> {
        let mut all = lock(&self.0);
        all.retain(|file| file.strong_count() > 0);
        let mut known = all.iter().filter_map(Weak::upgrade);
        if let Some(file) = known.find(|file| file.path == path) {
            let read = read(path)?;
            file.set(read, Instant::now());
            return Ok(file);
        }
        let file = Arc::new(UserFile::open(path.to_owned())?);
        all.push(Arc::downgrade(&file));
        Ok(file)
    }
}

/// A file of names with hashes, and what is known of it.
#[derive(Debug)]
struct UserFile {
    path: PathBuf,
    known: Mutex<Known>,
    /// The client whose password is being verified. Clients of unix sockets count as one.
    queue: FairQueue<Option<Household>>,
    wrong: Limiter,
    /// Counts all passwords that are not known and let nobody in. A client with too many has no use
    /// of those that were right: somebody else at its address may guess.
    guesses: Limiter,
    /// The moment from which that counts.
    started: Instant,
    told: LogThrottle,
    unreadable: LogThrottle,
}

#[derive(Debug)]
struct Known {
    /// None while the file can't be read.
    users: Option<Arc<Users>>,
    /// None is to be read again.
    stamp: Option<Stamp>,
    looked: Instant,
    verified: Verified,
}

impl Known {
    /// The last look at the file holds.
    fn is_new(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.looked) < LOOK_HOLDS
    }

    fn knows(&self, client: Option<Household>, credentials: &Credentials) -> bool {
        let Credentials { name, password } = credentials;
        let hash = self.users.as_ref().and_then(|users| users.hash_of(name));
        hash.is_some_and(|hash| self.verified.knows(client, name, hash, password))
    }
}

/// By which a file that has changed is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp {
    file: (u64, u64),
    modified: (i64, i64),
    /// The inode's change time: a change of rights alone moves it, and nobody can set it back.
    changed: (i64, i64),
    size: u64,
}

enum Verdict {
    Right,
    Wrong,
    /// Seconds until the client may try again.
    TooOften(u64),
    Busy,
    Unreadable,
}

impl Verdict {
    /// `wait` in nanoseconds.
    const fn too_often(wait: u64) -> Self {
        Self::TooOften(wait.div_ceil(1_000_000_000))
    }
}

impl UserFile {
    fn open(path: PathBuf) -> std::io::Result<Self> {
        let (users, stamp) = read(&path)?;
        Ok(Self {
            path,
            known: Mutex::new(Known {
                users: Some(Arc::new(users)),
                stamp,
                looked: Instant::now(),
                verified: Verified::default(),
            }),
            queue: FairQueue::new(MOST_WAITING),
            wrong: Limiter::new(WRONG, WRONG_AT_ONCE),
            guesses: Limiter::new(GUESSES, GUESSES.count),
            started: Instant::now(),
            told: LogThrottle::default(),
            unreadable: LogThrottle::default(),
        })
    }

    /// Whether it was right, and its hash is the same since.
    fn knows(&self, client: Option<Household>, credentials: &Credentials) -> bool {
        let now = Instant::now();
        let known = lock(&self.known);
        known.is_new(now) && known.knows(client, credentials) && self.may_guess(client, now).is_ok()
    }

    fn moment(&self, now: Instant) -> u64 {
        let moment = now.saturating_duration_since(self.started).as_nanos();
        u64::try_from(moment).unwrap_or(u64::MAX)
    }

    fn set(&self, (users, stamp): (Users, Option<Stamp>), now: Instant) {
        let mut known = lock(&self.known);
        known.users = Some(Arc::new(users));
        known.stamp = stamp;
        known.looked = now;
    }

    async fn verify(
        self: &Arc<Self>,
        client: Option<Household>,
        credentials: Credentials,
        is_listed: bool,
    ) -> (Verdict, Credentials) {
        let (file, now) = (self.clone(), Instant::now());
        // A client that has guessed too often takes no thread: no password lets it in.
        if let Err(too_often) = self.may_guess(client, now) {
            return (too_often, credentials);
        }
        // A look at the file waits for no hash, and needs no place among those who do.
        if !lock(&self.known).is_new(now) {
            on_a_thread(move || file.refresh(now)).await;
        }
        if is_listed && self.knows(client, &credentials) {
            return (Verdict::Right, credentials);
        }
        // A client that may not try takes no place.
        if let Err(too_often) = self.may_try(client, now) {
            return (too_often, credentials);
        }
        let turn = tokio::time::timeout(LONGEST_WAIT, self.queue.turn(client)).await;
        let turn = match turn {
            Ok(Ok(turn)) => turn,
            Ok(Err(Full)) | Err(_) => {
                self.count_guess(client, Instant::now());
                return (Verdict::Busy, credentials);
            }
        };
        let file = self.clone();
        let now = Instant::now();
        let work = move || {
            let verdict = file.verify_now(client, &credentials, is_listed, now);
            drop(turn); // not when the client goes: its hash is still computed
            (verdict, credentials)
        };
        on_a_thread(work).await
    }

    fn verify_now(
        &self,
        client: Option<Household>,
        credentials: &Credentials,
        is_listed: bool,
        now: Instant,
    ) -> Verdict {
        let Some(users) = self.refresh(now) else {
            return Verdict::Unreadable;
        };
        // Others of the same client may have been verified while this one waited.
        if is_listed && self.knows(client, credentials) {
            return Verdict::Right;
        }
        if let Err(too_often) = self.may_try(client, now) {
            return too_often;
        }
        let Credentials { name, password } = credentials;
        if users.verify(name, password) && is_listed {
            // It holds for this hash: the file may have changed meanwhile.
            let hash = users.hash_of(name).unwrap_or_default();
            let mut known = lock(&self.known);
            known.verified.remember(client, name, hash, password);
            return Verdict::Right;
        }
        self.count_guess(client, now);
        // It was let through a moment ago.
        _ = self.wrong.take(self.wrong.tag(client), self.moment(now));
        Verdict::Wrong
    }

    /// Whether a client may try a password that is not known.
    fn may_try(&self, client: Option<Household>, now: Instant) -> Result<(), Verdict> {
        self.may_guess(client, now)?;
        let wrong = self.wrong.look(self.wrong.tag(client), self.moment(now));
        wrong.map_err(|wait| {
            self.count_guess(client, now);
            Verdict::too_often(wait)
        })
    }

    fn may_guess(&self, client: Option<Household>, now: Instant) -> Result<(), Verdict> {
        let guesses = self
            .guesses
            .look(self.guesses.tag(client), self.moment(now));
        guesses.map_err(Verdict::too_often)
    }

    /// Counts a password that is not known and has let nobody in.
    fn count_guess(&self, client: Option<Household>, now: Instant) {
        // With too many, one more changes nothing.
        _ = self
            .guesses
            .take(self.guesses.tag(client), self.moment(now));
    }

    /// The users of the file as it is now; none if it can't be read.
    fn refresh(&self, now: Instant) -> Option<Arc<Users>> {
        {
            let known = lock(&self.known);
            if known.is_new(now) && known.users.is_some() {
                return known.users.clone();
            }
        }
        let stamp = std::fs::metadata(&self.path).map(|it| Stamp::of(&it));
        let mut known = lock(&self.known);
        known.looked = now;
        if known.stamp.is_some() && stamp.as_ref().ok() == known.stamp.as_ref() {
            return known.users.clone();
        }
        match read(&self.path) {
            Ok((users, stamp)) => {
                known.users = Some(Arc::new(users));
                known.stamp = stamp;
            }
            Err(error) => {
                (known.users, known.stamp) = (None, None);
                if let Some(times) = self.unreadable.should_log() {
                    tracing::error!(
                        target: "http", times, %error,
                        "nobody can come in: `{}` can't be read", self.path.display()
                    );
                }
            }
        }
        known.users.clone()
    }

    fn tell_too_often(&self, request: &Request) {
        if let Some(requests) = self.told.should_log() {
            tracing::warn!(
                target: "http", requests, remote_address = %request.peer.address, URI = request.shown_target(),
                "requests refused: a client has sent too many wrong passwords"
            );
        }
    }
}

/// Does what may block. A panic in it is one of the caller.
async fn on_a_thread<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(panicked) => std::panic::resume_unwind(panicked.into_panic()),
    }
}

/// Its users, and the stamp by which it will be told from another one, if that can be relied on.
fn read(path: &Path) -> std::io::Result<(Users, Option<Stamp>)> {
    // Looked at before: what changes in between is read again.
    let before = std::fs::metadata(path)?;
    let text = read_linked(path, LONGEST_FILE)?;
    let (users, rejected) = Users::read(&text);
    for Rejected { line, why } in rejected.iter().take(MOST_TOLD) {
        tracing::warn!(
            target: "http", line, "nobody can come in by a line of `{}`: it {why}", path.display()
        );
    }
    let age = before
        .modified()
        .ok()
        .and_then(|at| SystemTime::now().duration_since(at).ok());
    let is_settled = age.is_some_and(|age| age > UNSETTLED);
    Ok((users, is_settled.then(|| Stamp::of(&before))))
}

impl Stamp {
    fn of(metadata: &std::fs::Metadata) -> Self {
        Self {
            file: (metadata.dev(), metadata.ino()),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
            size: metadata.len(),
        }
    }
}

/// Puts a guard around the handler of a route, if there is one.
pub(crate) fn guarded(next: Arc<dyn Handler>, guard: Option<Arc<BasicAuth>>) -> Arc<dyn Handler> {
    match guard {
        Some(guard) => Arc::new(Guarded { next, guard }),
        None => next,
    }
}

struct Guarded {
    next: Arc<dyn Handler>,
    guard: Arc<BasicAuth>,
}

impl Handler for Guarded {
    fn handle<'a>(&'a self, mut request: Request, exchange: &'a mut dyn Exchange) -> Handled<'a> {
        match self.guard.judge(&request) {
            Judged::In(credentials) => {
                admitted(&mut request, &credentials);
                self.next.handle(request, exchange)
            }
            Judged::Out(response) => Box::pin(ready(response)),
            Judged::Unknown(credentials) => Box::pin(async move {
                match self.guard.verify(&mut request, credentials).await {
                    Ok(()) => self.next.handle(request, exchange).await,
                    Err(response) => response,
                }
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use pronghorn_testkit::Directory;
    use tokio::task::JoinSet;

    use super::*;

    fn client(address: &str) -> Household {
        Household::of(address.parse().expect(address))
    }

    fn credentials(password: &str) -> Credentials {
        Credentials {
            name: b"ann".to_vec(),
            password: password.as_bytes().to_vec(),
        }
    }

    /// `ann` with `open sesame`.
    fn file(directory: &Directory) -> Arc<UserFile> {
        let path = directory.join("users");
        let users = "ann:$2y$04$AKcx8nnvtdOVO/ZiYBBn5u987H6twAtWhBRt4WCvLJfoOBFSOqwHi\n";
        std::fs::write(&path, users).expect("it is written");
        Arc::new(UserFile::open(path).expect("it is read"))
    }

    /// Lets tasks do what they can do now.
    async fn settle_down() {
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn a_flood_of_one_client_keeps_no_other_one_out() {
        let directory = Directory::new();
        let file = file(&directory);
        let verify = |address: &str, password: String| {
            let (file, client) = (file.clone(), Some(client(address)));
            async move {
                let verified = file.verify(client, credentials(&password), true).await;
                verified.0
            }
        };
        // The password of somebody is being verified.
        let turn = file.queue.turn(None).await.expect("it is free");
        let mut flood = JoinSet::new();
        for number in 0..300 {
            // A network of IPv6 is one client.
            let address = format!("2001:db8::{}:{number}", number % 7);
            flood.spawn(verify(&address, number.to_string()));
        }
        settle_down().await;
        let mut others = JoinSet::new();
        for address in ["127.0.0.3", "2001:db8:0:1::1"] {
            others.spawn(verify(address, "open sesame".to_owned()));
        }
        settle_down().await;
        drop(turn);
        for verdict in others.join_all().await {
            assert!(matches!(verdict, Verdict::Right));
        }
        let (mut wrong, mut later) = (0, 0);
        for verdict in flood.join_all().await {
            match verdict {
                Verdict::Wrong => wrong += 1,
                Verdict::TooOften(1..) | Verdict::Busy => later += 1,
                _ => panic!("it was let in"),
            }
        }
        assert!(wrong <= 10 && wrong + later == 300, "{wrong} {later}");
        // It takes no place any more, and others have theirs.
        let turn = file.queue.turn(None).await.expect("it is free");
        let late = verify("2001:db8::1", "x".to_owned()).await;
        assert!(matches!(late, Verdict::TooOften(_)));
        drop(turn);
        let other = verify("127.0.0.4", "open sesame".to_owned()).await;
        assert!(matches!(other, Verdict::Right));
    }

    /// A guess that finds no place is a guess: the answer would tell it from a password that is
    /// remembered.
    #[tokio::test]
    async fn guesses_count_though_the_queue_is_full() {
        let directory = Directory::new();
        let file = file(&directory);
        let somebody = Some(client("192.0.2.1"));
        let right = || file.verify(somebody, credentials("open sesame"), true);
        assert!(matches!(right().await.0, Verdict::Right));
        let _turn = file.queue.turn(None).await.expect("it is free");
        let mut guesses = JoinSet::new();
        for number in 0..300 {
            let file = file.clone();
            let guess = credentials(&number.to_string());
            guesses.spawn(async move { file.verify(somebody, guess, true).await.0 });
        }
        settle_down().await;
        assert!(!file.knows(somebody, &credentials("open sesame")));
        assert!(matches!(right().await.0, Verdict::TooOften(_)));
        let other = Some(client("192.0.2.2"));
        assert!(
            !file.knows(other, &credentials("open sesame")),
            "never verified"
        );
    }
}
