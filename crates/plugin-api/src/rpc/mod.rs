//! Methods that PHP and the command line call over Goridge RPC, `service.Method`.
//!
//! A service adds its methods as it starts. Argument and result are types; how they are written
//! (JSON, MessagePack, protobuf, raw bytes) is the business of [`Argument`] and [`Outcome`]:
//!
//! ```
//! use pronghorn_plugin_api::rpc::{Failure, Methods};
//!
//! #[derive(Clone)]
//! struct Pools;
//!
//! async fn list(_: Pools, _: bool) -> Result<Vec<String>, Failure> {
//!     Ok(vec!["http".to_owned()])
//! }
//!
//! async fn reset(_: Pools, plugin: String) -> Result<bool, Failure> {
//!     Err(Failure::new(format!("no such plugin: {plugin}")))
//! }
//!
//! # let methods = Methods::default();
//! let resetter = methods.service("resetter", Pools);
//! resetter.add("List", list);
//! resetter.add("Reset", reset);
//! ```

mod go_json;
mod go_names;
mod parts;
mod value;

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, OnceLock, PoisonError, RwLock, Weak};
use std::time::Duration;

use bytes::Bytes;
use pronghorn_base::BoxFuture;
use pronghorn_metrics::{Counter, Registry};
use pronghorn_pool::transport::Borders;
use thiserror::Error;
use tokio::sync::watch;
use tokio::time::timeout;

pub use parts::{MOST_IN_A_LIST, MOST_PARTS};
use value::Form;
pub use value::{Argument, Binary, Outcome, Reader, Writer, read_message, write_message};

/// All methods of a server. Clones are the same table.
#[derive(Clone, Default)]
pub struct Methods(Arc<RwLock<Services>>);

/// The same table, for those that it leads to: they must not keep it.
#[derive(Clone)]
pub struct WeakMethods(Weak<RwLock<Services>>);

#[derive(Default)]
struct Services {
    /// By name, methods by their own.
    started: HashMap<&'static str, HashMap<&'static str, Method>>,
    /// Those that a section of their name would start.
    unconfigured: Vec<&'static str>,
    /// Where calls are counted.
    metrics: Registry,
    /// Tells of methods that are added while services start.
    growth: Option<watch::Sender<()>>,
}

/// How long a call waits for a method that may come while services start. The workers of one may
/// call another that is to start after them, and must come up all the same.
const WHILE_STARTING: Duration = Duration::from_secs(10);

/// What is counted of one method, from its first call on: most are never called.
struct Counted {
    name: String,
    metrics: Registry,
    counters: OnceLock<(Counter, Counter)>,
}

/// Whose call it is, and what there is for its reply.
#[derive(Clone, Debug, Default)]
pub struct Caller {
    borders: Option<Arc<Borders>>,
    room: Option<Arc<dyn ReplyRoom>>,
}

/// Memory for the reply to one call, of which all calls have a share.
pub trait ReplyRoom: fmt::Debug + Send + Sync {
    /// Waits until the reply may have at least so many bytes, and says how many it may have.
    fn reserve(&self, bytes: usize) -> BoxFuture<'_, usize>;

    /// The same without waiting: where so much is not free, only a short reply has room.
    fn try_reserve(&self, bytes: usize) -> usize;
}

/// One service's part of the table; what is added here gets what it acts on with each call.
pub struct ServiceMethods<S> {
    methods: Methods,
    service: &'static str,
    state: StateOf<S>,
}

/// What a service acts on for a caller.
type StateOf<S> = Arc<dyn Fn(&Caller) -> S + Send + Sync>;

/// A method, ready to be called with bytes.
#[derive(Clone)]
pub struct Method {
    begin: Begin,
    manner: Manner,
}

/// Where a call is carried out, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Manner {
    Usual,
    WhileConnected,
    AnyThread,
}

/// Begins a call.
type Begin = Arc<dyn Fn(&Caller, Encoding, Bytes) -> Calling + Send + Sync>;

/// A call under way. Polled on the thread of RPC: a method must not block.
pub type Calling = BoxFuture<'static, Result<Bytes, Failure>>;

/// Carries out calls in another process, by the names of their methods. It needs no answer in time:
/// it has an end of its own.
pub type Forward = Arc<dyn Fn(&str, Encoding, Bytes) -> Calling + Send + Sync>;

/// How argument and result of a call are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// JSON, read as leniently as Go does: names without regard to case, `null` for the zero value,
    /// unknown names ignored.
    Json,
    /// MessagePack, with the same leniency.
    MessagePack,
    /// The method's protobuf messages.
    Protobuf,
    /// The bytes themselves. Arguments other than bytes are the zero value then, whatever was sent.
    Raw,
}

/// Why a call has no result. The text goes to the caller as it stands; programs look for parts of
/// it.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct Failure(String);

/// The caller's: no method of that name. The texts are those of Go's RPC, which programs look for.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Unknown {
    /// It has no dot.
    #[error("rpc: service/method request ill-formed: {0}")]
    IllFormed(String),
    /// No service, or none that is started.
    #[error("rpc: can't find service {0}")]
    Service(String),
    /// A service that the server has, and whose section is not written.
    #[error(
        "rpc: can't find service {0}: the configuration has no section `{1}`, without which there \
         is none (hint: write `{1}: {{}}`)"
    )]
    Unconfigured(String, &'static str),
    /// The service is there.
    #[error("rpc: can't find method {0}")]
    Method(String),
}

impl Failure {
    /// With what the caller is to read.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }
}

impl Caller {
    /// A process that nothing is kept from: one that has reached the socket of RPC, a command.
    pub const fn anyone() -> Self {
        Self {
            borders: None,
            room: None,
        }
    }

    /// The same, whose reply has this room.
    pub fn in_room(room: Arc<dyn ReplyRoom>) -> Self {
        Self {
            borders: None,
            room: Some(room),
        }
    }

    /// A worker of a pool, whose reply has this room.
    pub fn of_pool(borders: &Arc<Borders>, room: Arc<dyn ReplyRoom>) -> Self {
        Self {
            borders: Some(borders.clone()),
            room: Some(room),
        }
    }

    /// The borders of its pool; None where nothing is kept from it.
    pub fn borders(&self) -> Option<&Borders> {
        self.borders.as_deref()
    }

    /// Waits until there is room for a reply of so many bytes, and says how many it may have. A
    /// method whose reply may be long asks before it makes one, for what is usual first: what is
    /// there before it has room is bounded by nothing.
    pub async fn reserve(&self, bytes: usize) -> usize {
        match &self.room {
            Some(room) => room.reserve(bytes).await,
            None => usize::MAX,
        }
    }

    /// As [`reserve`](Self::reserve), without waiting: a reply of few bytes can always be made.
    pub fn try_reserve(&self, bytes: usize) -> usize {
        let room = self.room.as_ref();
        room.map_or(usize::MAX, |room| room.try_reserve(bytes))
    }
}

impl Methods {
    /// A place for the methods of `service`; each call of one gets a clone of `state`.
    pub fn service<S>(&self, service: &'static str, state: S) -> ServiceMethods<S>
    where
        S: Clone + Send + Sync + 'static,
    {
        self.service_by_caller(service, move |_| state.clone())
    }

    /// The same where it depends on the caller what there is for it.
    pub fn service_by_caller<S>(
        &self,
        service: &'static str,
        state: impl Fn(&Caller) -> S + Send + Sync + 'static,
    ) -> ServiceMethods<S> {
        ServiceMethods {
            methods: self.clone(),
            service,
            state: Arc::new(state),
        }
    }

    /// Calls of methods that are added from now on are counted there.
    pub fn count_in(&self, metrics: &Registry) {
        let mut table = self.0.write().unwrap_or_else(PoisonError::into_inner);
        table.metrics = metrics.clone();
    }

    /// Names services that a section of their name would start: whoever calls one is told so.
    pub fn lack(&self, services: impl IntoIterator<Item = &'static str>) {
        let mut table = self.0.write().unwrap_or_else(PoisonError::into_inner);
        table.unconfigured.extend(services);
    }

    /// Services begin to add theirs: who calls one that is not there yet waits for a while.
    pub fn expect_more(&self) {
        let mut services = self.0.write().unwrap_or_else(PoisonError::into_inner);
        services.growth = Some(watch::Sender::new(()));
    }

    /// All services have started.
    pub fn are_complete(&self) {
        let mut services = self.0.write().unwrap_or_else(PoisonError::into_inner);
        services.growth = None;
    }

    /// Whether a method that is not there may come.
    pub fn may_grow(&self) -> bool {
        let services = self.0.read().unwrap_or_else(PoisonError::into_inner);
        services.growth.is_some()
    }

    /// As [`find`](Self::find), but while services start it waits for one that is not there.
    ///
    /// # Errors
    ///
    /// [`Unknown`], which is for the caller.
    pub async fn find_in_time(&self, name: &str) -> Result<Method, Unknown> {
        let growth = {
            let services = self.0.read().unwrap_or_else(PoisonError::into_inner);
            services.growth.as_ref().map(watch::Sender::subscribe)
        };
        let Some(mut growth) = growth else {
            return self.find(name);
        };
        let found = async {
            loop {
                let found = self.find(name);
                let may_come = matches!(&found, Err(Unknown::Service(_) | Unknown::Method(_)));
                if !may_come || growth.changed().await.is_err() {
                    return;
                }
            }
        };
        _ = timeout(WHILE_STARTING, found).await; // it may have come at the last moment
        self.find(name)
    }

    /// From now on, calls of the methods of `service` are carried out elsewhere. Those under way go
    /// on here.
    pub fn forward(&self, service: &str, to: &Forward) {
        let mut services = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let Some(methods) = services.started.get_mut(service) else {
            return;
        };
        for (name, method) in methods {
            let (to, name) = (to.clone(), format!("{service}.{name}"));
            *method = Method {
                begin: Arc::new(move |_, encoding, argument| to(&name, encoding, argument)),
                manner: Manner::Usual,
            };
        }
    }

    /// The same table for as long as somebody else has it.
    #[must_use]
    pub fn downgrade(&self) -> WeakMethods {
        WeakMethods(Arc::downgrade(&self.0))
    }

    /// Looks up `service.Method`, with regard to case; the last dot separates.
    ///
    /// # Errors
    ///
    /// [`Unknown`], which is for the caller.
    pub fn find(&self, name: &str) -> Result<Method, Unknown> {
        let Some((service, method)) = name.rsplit_once('.') else {
            return Err(Unknown::IllFormed(name.to_owned()));
        };
        let services = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let Some(methods) = services.started.get(service) else {
            let known = services.unconfigured.iter();
            let known = known.copied().find(|known| *known == service);
            return Err(known.map_or_else(
                || Unknown::Service(name.to_owned()),
                |section| Unknown::Unconfigured(name.to_owned(), section),
            ));
        };
        match methods.get(method) {
            Some(method) => Ok(method.clone()),
            None => Err(Unknown::Method(name.to_owned())),
        }
    }
}

impl WeakMethods {
    /// None once the server is gone.
    #[must_use]
    pub fn upgrade(&self) -> Option<Methods> {
        self.0.upgrade().map(Methods)
    }
}

impl<S: 'static> ServiceMethods<S> {
    /// Adds `service.name`.
    ///
    /// A call is carried on when its caller leaves: what it asked for may matter more than the
    /// answer. It is dropped when the server's time to stop is over.
    ///
    /// # Panics
    ///
    /// When there is such a method already.
    pub fn add<A, O, F, R>(&self, name: &'static str, method: F)
    where
        A: Argument,
        O: Outcome,
        F: Fn(S, A) -> R + Send + Sync + 'static,
        R: Future<Output = Result<O, Failure>> + Send + 'static,
    {
        self.insert(name, 0, method, Manner::Usual);
    }

    /// The same for a method that has up to so many bytes in memory for its reply: a call waits for
    /// room for them before it begins. One that can tell how long its reply becomes before it makes
    /// it asks for room itself, [`Caller::reserve`].
    ///
    /// # Panics
    ///
    /// When there is such a method already.
    pub fn add_with_room<A, O, F, R>(&self, name: &'static str, bytes: usize, method: F)
    where
        A: Argument,
        O: Outcome,
        F: Fn(S, A) -> R + Send + Sync + 'static,
        R: Future<Output = Result<O, Failure>> + Send + 'static,
    {
        self.insert(name, bytes, method, Manner::Usual);
    }

    /// The same for a method whose calls any thread may begin: none of them blocks, nor spawns
    /// tasks. A worker that calls it over its own connection is answered at once.
    ///
    /// # Panics
    ///
    /// When there is such a method already.
    pub fn add_on_any_thread<A, O, F, R>(&self, name: &'static str, method: F)
    where
        A: Argument,
        O: Outcome,
        F: Fn(S, A) -> R + Send + Sync + 'static,
        R: Future<Output = Result<O, Failure>> + Send + 'static,
    {
        self.insert(name, 0, method, Manner::AnyThread);
    }

    /// The same for a method that waits for something on behalf of its caller: a call is dropped
    /// when its caller leaves, and when all other services have stopped.
    ///
    /// # Panics
    ///
    /// When there is such a method already.
    pub fn add_while_connected<A, O, F, R>(&self, name: &'static str, method: F)
    where
        A: Argument,
        O: Outcome,
        F: Fn(S, A) -> R + Send + Sync + 'static,
        R: Future<Output = Result<O, Failure>> + Send + 'static,
    {
        self.insert(name, 0, method, Manner::WhileConnected);
    }

    fn insert<A, O, F, R>(&self, name: &'static str, room: usize, method: F, manner: Manner)
    where
        A: Argument,
        O: Outcome,
        F: Fn(S, A) -> R + Send + Sync + 'static,
        R: Future<Output = Result<O, Failure>> + Send + 'static,
    {
        let table = &self.methods.0;
        let mut services = table.write().unwrap_or_else(PoisonError::into_inner);
        let counted = Counted {
            name: format!("{}.{name}", self.service),
            metrics: services.metrics.clone(),
            counters: OnceLock::new(),
        };
        let state = self.state.clone();
        let begin = Arc::new(move |caller: &Caller, encoding, argument| {
            let failures = counted.call();
            let begun = Form::<A, O>::of(&counted.name, encoding).and_then(|form| {
                let argument = (form.read)(argument)?;
                Ok((form.write, method(state(caller), argument)))
            });
            let reserving = (room > 0).then(|| caller.clone());
            Box::pin(async move {
                if let Some(caller) = reserving {
                    caller.reserve(room).await;
                }
                let result = match begun {
                    Ok((write, work)) => work.await.and_then(|outcome| write(&outcome)),
                    Err(why) => Err(why),
                };
                if result.is_err() {
                    failures.increment();
                }
                result
            }) as Calling
        });
        let method = Method { begin, manner };
        let before = services
            .started
            .entry(self.service)
            .or_default()
            .insert(name, method);
        assert!(
            before.is_none(),
            "there are two methods {}.{name}",
            self.service
        );
        if let Some(growth) = &services.growth {
            growth.send_replace(());
        }
    }
}

impl Counted {
    /// One more; returns what counts it as failed.
    fn call(&self) -> Counter {
        let (calls, failures) = self.counters.get_or_init(|| {
            let metrics = self.metrics.named("rpc").labelled("method", &self.name);
            (
                metrics.counter("calls_total", "Calls of methods, by workers and over RPC."),
                metrics.counter("failures_total", "Of these, the ones that had no result."),
            )
        });
        calls.increment();
        failures.clone()
    }
}

impl Method {
    /// Begins a call. What can't be read is an error of the returned future too.
    pub fn call(&self, caller: &Caller, encoding: Encoding, argument: Bytes) -> Calling {
        (self.begin)(caller, encoding, argument)
    }

    /// Whether a call is to be dropped when its caller leaves, or the server does.
    pub fn is_while_connected(&self) -> bool {
        self.manner == Manner::WhileConnected
    }

    /// Whether any thread may begin a call.
    pub fn is_for_any_thread(&self) -> bool {
        self.manner == Manner::AnyThread
    }
}

impl<S> fmt::Debug for ServiceMethods<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ServiceMethods")
            .field(&self.service)
            .finish()
    }
}

impl fmt::Debug for WeakMethods {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WeakMethods")
    }
}

impl fmt::Debug for Methods {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let services = self.0.read().unwrap_or_else(PoisonError::into_inner);
        f.debug_map()
            .entries(
                services
                    .started
                    .iter()
                    .map(|(name, methods)| (name, methods.keys())),
            )
            .finish()
    }
}

impl fmt::Debug for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Method")
    }
}

#[cfg(test)]
mod tests;
