//! Methods that workers call over their own connection, for which they need no socket.
//!
//! Each pool has calls of its own, within its own borders: what its workers do holds up no other
//! pool's, and they reach what is theirs.

use std::future::ready;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use pronghorn_base::LogThrottle;
use pronghorn_plugin_api::rpc::{self, Caller, Encoding, Failure, Method, Methods, WeakMethods};
use pronghorn_pool::transport::{
    Allowed, Borders, Calling, Held, MethodCaller, MethodCallers, Returned,
};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;

use crate::room::{CallRoom, OwnRoom, REPLIES_PER_POOL, REPLIES_UNREAD, Room, SMALL, Taken};

/// Calls that are not done, of all workers of a pool together. One worker waits for one at a time;
/// those beyond that wait for nothing any more.
const MOST: usize = 1024;

/// Services and methods for workers of pools whose users differ: none of them acts on another
/// pool's workers, shows the configuration, or takes jobs and locks away from others.
pub const APART: [&str; 19] = [
    "app",
    "cache",
    "jobs.Await",
    "jobs.Batch",
    "jobs.Progress",
    "jobs.Push",
    "jobs.PushBatch",
    "kv",
    "lock.Exists",
    "lock.Lock",
    "lock.LockRead",
    "lock.Release",
    "lock.Token",
    "lock.UpdateTTL",
    "metrics",
    "pronghorn.Extend",
    "rpc.Version",
    "session",
    "status.Ready",
];

/// Answers workers, by the same methods as RPC.
#[derive(Debug)]
pub struct WorkerMethods {
    /// They lead to the pools, whose workers have this.
    methods: WeakMethods,
    /// Where calls are carried out.
    runtime: Handle,
    replies: Arc<Room>,
    /// The part of one pool.
    per_pool: usize,
}

/// Answers those of one pool.
#[derive(Debug)]
struct PoolMethods {
    methods: WeakMethods,
    borders: Arc<Borders>,
    orders: mpsc::Sender<Order>,
    /// Where orders are carried out.
    runtime: Handle,
    room: OwnRoom,
    refused: LogThrottle,
}

/// A call that is not done at once.
struct Order {
    /// The name of the method.
    name: String,
    work: Work,
    room: Arc<CallRoom>,
    caller: oneshot::Sender<Returned>,
    _held: Held,
}

enum Work {
    /// To be begun where it is carried out.
    New(Method, Caller, Bytes),
    /// Its service starts.
    ToCome(Methods, Caller, Bytes),
    Begun(rpc::Calling),
}

/// A reply that a worker has not read to its end.
struct Unread {
    bytes: Bytes,
    _taken: Taken,
}

impl AsRef<[u8]> for Unread {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl WorkerMethods {
    /// Calls are carried out on this runtime, and cut off with it.
    pub fn new(methods: &Methods, runtime: Handle) -> Self {
        Self {
            methods: methods.downgrade(),
            runtime,
            replies: Arc::new(Room::new(REPLIES_UNREAD)),
            per_pool: REPLIES_PER_POOL,
        }
    }
}

impl MethodCallers for WorkerMethods {
    fn of_pool(&self, borders: Borders) -> Arc<dyn MethodCaller> {
        let (orders, inbox) = mpsc::channel(MOST);
        // Ends with the pool, which has the other end.
        self.runtime.spawn(carry_out(inbox));
        Arc::new(PoolMethods {
            methods: self.methods.clone(),
            borders: Arc::new(borders),
            orders,
            runtime: self.runtime.clone(),
            room: OwnRoom::new(self.per_pool, &self.replies),
            refused: LogThrottle::new(),
        })
    }
}

impl MethodCaller for PoolMethods {
    fn call(&self, method: &str, argument: Bytes, held: Held) -> Calling {
        let Some(methods) = self.methods.upgrade() else {
            return Calling::Done(Err("the server is stopping".to_owned()));
        };
        if !may_call(&self.borders.methods, method) {
            return Calling::Done(Err(self.refuse(method)));
        }
        let found = match methods.find(method) {
            Err(unknown) if !methods.may_grow() => {
                return Calling::Done(Err(unknown.to_string()));
            }
            found => found.ok(),
        };
        // Before it begins: what has begun is carried out.
        let Ok(place) = self.orders.try_reserve() else {
            let why = format!("{MOST} calls of methods are under way already");
            return Calling::Done(Err(why));
        };
        let room = Arc::new(CallRoom::new(&self.room));
        let caller = Caller::of_pool(&self.borders, room.clone());
        let name = method.to_owned();
        let work = match found {
            None => Work::ToCome(methods, caller, argument),
            Some(method) if method.is_for_any_thread() => {
                let mut calling = method.call(&caller, Encoding::Json, argument);
                // It goes on there, and so do its timers: this thread may end before.
                let _there = self.runtime.enter();
                let polled = calling
                    .as_mut()
                    .poll(&mut Context::from_waker(Waker::noop()));
                match polled {
                    Poll::Ready(Ok(reply)) if reply.len() > SMALL => {
                        Work::Begun(Box::pin(ready(Ok(reply))))
                    }
                    Poll::Ready(result) => return Calling::Done(of(result)),
                    Poll::Pending => Work::Begun(calling),
                }
            }
            Some(method) => Work::New(method, caller, argument),
        };
        let (caller, returned) = oneshot::channel();
        place.send(Order {
            name,
            work,
            room,
            caller,
            _held: held,
        });
        Calling::Later(returned)
    }
}

impl PoolMethods {
    fn refuse(&self, method: &str) -> String {
        let pool = &self.borders.pool;
        let method: String = method.chars().take(SHOWN).collect();
        if let Some(calls) = self.refused.should_log() {
            tracing::warn!(
                target: "rpc", pool, method, calls,
                "a worker called a method that its pool may not call: `methods` of the pool lists \
                 those that it may"
            );
        }
        format!(
            "rpc: the pool `{pool}` may not call {method} (hint: `methods: [{method}]` of the pool \
             lists what it may call)"
        )
    }
}

/// Of the name of a method, in messages.
const SHOWN: usize = 100;

fn may_call(allowed: &Allowed, method: &str) -> bool {
    let service = method.rsplit_once('.').map(|(service, _)| service);
    let is_it = |listed: &str| listed == method || Some(listed) == service;
    match allowed {
        Allowed::All => true,
        Allowed::Apart => APART.into_iter().any(is_it),
        Allowed::Listed(listed) => listed.iter().any(|listed| is_it(listed)),
    }
}

fn of(result: Result<Bytes, Failure>) -> Returned {
    result.map_err(|failure| failure.to_string())
}

async fn carry_out(mut orders: mpsc::Receiver<Order>) {
    let mut calls = JoinSet::new();
    loop {
        tokio::select! {
            // A panic was reported when it happened.
            Some(_) = calls.join_next() => {}
            order = orders.recv(), if calls.len() < MOST => match order {
                Some(order) => _ = calls.spawn(order.carry_out()),
                None => break,
            },
        }
    }
    // The pool is gone; what has begun is carried out.
    while calls.join_next().await.is_some() {}
}

impl Order {
    async fn carry_out(self) {
        let Self {
            name,
            work,
            room,
            mut caller,
            _held,
        } = self;
        if !matches!(work, Work::Begun(_)) {
            room.before(name.as_bytes()).await;
        }
        let result = match work {
            Work::Begun(calling) => Some(calling.await),
            // The worker is gone, or waits for something else.
            Work::New(..) | Work::ToCome(..) if caller.is_closed() => None,
            Work::New(method, whose, argument) => {
                carry_out_new(method, &whose, argument, &mut caller).await
            }
            Work::ToCome(methods, whose, argument) => match methods.find_in_time(&name).await {
                Ok(method) => carry_out_new(method, &whose, argument, &mut caller).await,
                Err(unknown) => Some(Err(Failure::new(unknown.to_string()))),
            },
        };
        // A worker that has ended needs no answer.
        match result {
            None => {}
            Some(Ok(bytes)) => tokio::select! {
                taken = room.after(name.as_bytes(), bytes.len()) => {
                    let unread = Bytes::from_owner(Unread { bytes, _taken: taken });
                    _ = caller.send(Ok(unread));
                }
                () = caller.closed() => {}
            },
            Some(failed) => _ = caller.send(of(failed)),
        }
    }
}

/// None when the caller has left, and the method was for its sake.
async fn carry_out_new(
    method: Method,
    whose: &Caller,
    argument: Bytes,
    caller: &mut oneshot::Sender<Returned>,
) -> Option<Result<Bytes, Failure>> {
    let calling = method.call(whose, Encoding::Json, argument);
    if !method.is_while_connected() {
        return Some(calling.await);
    }
    tokio::select! {
        biased; // what needs no wait is done, as for any other method
        result = calling => Some(result),
        () = caller.closed() => None,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::sync::atomic::{AtomicU32, Ordering};

    use tokio::task::yield_now;

    use super::*;

    fn later(calling: Calling) -> oneshot::Receiver<Returned> {
        match calling {
            Calling::Later(returned) => returned,
            Calling::Done(returned) => panic!("done at once: {returned:?}"),
        }
    }

    fn workers(methods: &Methods, borders: Borders) -> Arc<dyn MethodCaller> {
        WorkerMethods::new(methods, Handle::current()).of_pool(borders)
    }

    fn json(text: &'static str) -> Bytes {
        Bytes::from_static(text.as_bytes())
    }

    #[tokio::test]
    async fn what_can_be_done_at_once_is_and_the_rest_is_carried_out_elsewhere() {
        let methods = Methods::default();
        let done = Arc::new(AtomicU32::new(0));
        let own = methods.service("own", done.clone());
        own.add_on_any_thread("Now", async |_, text: String| Ok(text + "!"));
        own.add_on_any_thread("Slow", async |done: Arc<AtomicU32>, _: bool| {
            yield_now().await;
            done.fetch_add(1, Ordering::Relaxed);
            Ok(true)
        });
        own.add("Usual", async |_, _: bool| {
            Err::<bool, _>(Failure::new("not today"))
        });
        let workers = workers(&methods, Borders::default());

        let Calling::Done(Ok(result)) = workers.call("own.Now", json(r#""a""#), Held::default())
        else {
            panic!("not at once");
        };
        assert_eq!(&result[..], br#""a!""#);
        let failed = later(workers.call("own.Usual", json("true"), Held::default())).await;
        assert_eq!(failed, Ok(Err("not today".to_owned())));
        assert_eq!(
            later(workers.call("own.Slow", json("true"), Held::default())).await,
            Ok(Ok(json("true")))
        );
        drop(later(workers.call(
            "own.Slow",
            json("true"),
            Held::default(),
        )));
        while done.load(Ordering::Relaxed) < 2 {
            yield_now().await; // it is done although nobody waits
        }
        let Calling::Done(Err(why)) = workers.call("own.None", json("1"), Held::default()) else {
            panic!("there is no such method");
        };
        assert_eq!(why, "rpc: can't find method own.None");
    }

    /// A call that has begun is carried out, also when the thread ends on which it began.
    #[test]
    fn a_call_has_its_timers_where_it_is_carried_out() {
        let runtime = || {
            let mut builder = tokio::runtime::Builder::new_current_thread();
            builder.enable_all().build().unwrap()
        };
        let (there, here) = (runtime(), runtime());
        let methods = Methods::default();
        methods
            .service("own", ())
            .add_on_any_thread("Slow", async |(), _: bool| {
                tokio::time::sleep(std::time::Duration::from_millis(1)).await;
                Ok(true)
            });
        let workers = WorkerMethods::new(&methods, there.handle().clone());
        let workers = workers.of_pool(Borders::default());
        let calling =
            here.block_on(async { workers.call("own.Slow", json("true"), Held::default()) });
        drop(here);
        assert_eq!(there.block_on(later(calling)), Ok(Ok(json("true"))));
    }

    #[tokio::test]
    async fn a_worker_that_is_early_waits_for_a_method_of_a_service_that_starts() {
        let methods = Methods::default();
        methods.expect_more();
        let workers = workers(&methods, Borders::default());
        let early = later(workers.call("own.Late", json("true"), Held::default()));
        let never = later(workers.call("own.None", json("true"), Held::default()));
        yield_now().await;
        methods
            .service("own", ())
            .add("Late", async |(), _: bool| Ok(true));
        assert_eq!(early.await, Ok(Ok(json("true"))));
        methods.are_complete();
        let unknown = "rpc: can't find method own.None".to_owned();
        assert_eq!(never.await, Ok(Err(unknown)));
    }

    #[tokio::test]
    async fn a_method_that_waits_for_its_caller_ends_with_it_and_too_many_are_refused() {
        struct Dropped(Arc<AtomicU32>);
        impl Drop for Dropped {
            fn drop(&mut self) {
                self.0.fetch_add(1, Ordering::Relaxed);
            }
        }
        let methods = Methods::default();
        let ended = Arc::new(AtomicU32::new(0));
        let own = methods.service("own", ended.clone());
        own.add_while_connected("Wait", async |ended: Arc<AtomicU32>, _: bool| {
            let _dropped = Dropped(ended);
            std::future::pending::<Result<bool, Failure>>().await
        });
        let workers = workers(&methods, Borders::default());
        let waits = later(workers.call("own.Wait", json("true"), Held::default()));
        yield_now().await;
        assert_eq!(ended.load(Ordering::Relaxed), 0);
        drop(waits);
        while ended.load(Ordering::Relaxed) == 0 {
            yield_now().await;
        }
        let all: Vec<_> = (0..MOST)
            .map(|_| later(workers.call("own.Wait", json("true"), Held::default())))
            .collect();
        let Calling::Done(Err(why)) = workers.call("own.Wait", json("true"), Held::default())
        else {
            panic!("there is no room");
        };
        assert_eq!(why, "1024 calls of methods are under way already");
        drop(all);
    }

    /// Adds `own.Large`: notes that it has room, and has a reply of so many bytes.
    fn add_large(methods: &Methods, begun: &Arc<AtomicU32>) {
        let begun = begun.clone();
        let own = methods.service_by_caller("own", move |caller| (begun.clone(), caller.clone()));
        own.add("Large", async |(begun, caller), length: String| {
            let length = length.parse().expect("a number");
            caller.reserve(length).await;
            begun.fetch_add(1, Ordering::Relaxed);
            Ok("x".repeat(length - 2)) // and its quotes
        });
    }

    #[tokio::test]
    async fn replies_that_workers_have_not_read_have_a_bound() {
        const FIT: u32 = 3;
        let methods = Methods::default();
        let begun = Arc::new(AtomicU32::new(0));
        add_large(&methods, &begun);
        let all = WorkerMethods {
            replies: Arc::new(Room::new(1_000_000)),
            ..WorkerMethods::new(&methods, Handle::current())
        };
        let workers = all.of_pool(Borders::default());
        let large = || workers.call("own.Large", json(r#""300000""#), Held::default());
        let mut calls: VecDeque<_> = (0..8).map(|_| later(large())).collect();
        let mut unread = Vec::new();
        for _ in 0..FIT {
            let reply = calls.pop_front().expect("a call").await;
            unread.push(reply.expect("an answer").expect("a reply"));
        }
        let short = later(workers.call("own.Large", json(r#""10""#), Held::default()));
        assert_eq!(short.await, Ok(Ok(json(r#""xxxxxxxx""#))));
        assert_eq!(begun.load(Ordering::Relaxed), FIT + 1);
        // A worker that reads its reply makes room, and so does one that leaves.
        drop(unread.pop());
        let reply = calls.pop_front().expect("a call").await;
        assert_eq!(reply.expect("an answer").expect("a reply").len(), 300_000);
        drop(unread);
        drop(calls);
        let reply = later(large()).await;
        assert_eq!(reply.expect("an answer").expect("a reply").len(), 300_000);
    }

    #[tokio::test]
    async fn a_pool_has_no_more_room_for_replies_than_its_part() {
        let methods = Methods::default();
        let begun = Arc::new(AtomicU32::new(0));
        add_large(&methods, &begun);
        let all = WorkerMethods {
            per_pool: 300_000,
            ..WorkerMethods::new(&methods, Handle::current())
        };
        let [one, other] = ["a", "b"].map(|_| all.of_pool(Borders::default()));
        let large = |workers: &Arc<dyn MethodCaller>| {
            later(workers.call("own.Large", json(r#""200000""#), Held::default()))
        };
        let unread = large(&one).await;
        let waits = large(&one);
        let others = large(&other).await;
        assert_eq!(begun.load(Ordering::Relaxed), 2);
        drop((unread, others));
        drop(waits.await);
        assert_eq!(begun.load(Ordering::Relaxed), 3);
    }

    #[tokio::test]
    async fn a_pool_calls_what_is_its_own() {
        let methods = Methods::default();
        methods
            .service("kv", ())
            .add("Set", async |(), _: bool| Ok(true));
        let service = methods.service("resetter", ());
        service.add("Reset", async |(), _: bool| Ok(true));
        let listed = |names: &[&str]| {
            let names = names.iter().map(|&name| name.to_owned());
            Allowed::Listed(names.collect())
        };
        for (allowed, kv, resetter) in [
            (Allowed::All, true, true),
            (Allowed::Apart, true, false),
            (listed(&[]), false, false),
            (listed(&["resetter.Reset"]), false, true),
            (listed(&["kv", "resetter.List"]), true, false),
            (listed(&["kv.Se", "k"]), false, false),
        ] {
            let borders = Borders {
                pool: "b".to_owned(),
                methods: allowed.clone(),
                ..Borders::default()
            };
            let workers = workers(&methods, borders);
            for (method, may) in [("kv.Set", kv), ("resetter.Reset", resetter)] {
                let refused = match workers.call(method, json("true"), Held::default()) {
                    Calling::Done(refused) => refused.unwrap_err(),
                    Calling::Later(returned) => {
                        assert_eq!(returned.await, Ok(Ok(json("true"))));
                        String::new()
                    }
                };
                assert_eq!(refused.is_empty(), may, "{allowed:?} {method}");
                let why = format!("rpc: the pool `b` may not call {method} ");
                assert!(may || refused.starts_with(&why), "{refused}");
            }
        }
    }

    #[tokio::test]
    async fn a_call_that_has_not_begun_goes_with_its_worker() {
        let methods = Methods::default();
        let begun = Arc::new(AtomicU32::new(0));
        let own = methods.service("own", begun.clone());
        own.add("Count", async |begun: Arc<AtomicU32>, _: bool| {
            begun.fetch_add(1, Ordering::Relaxed);
            Ok(true)
        });
        let workers = workers(&methods, Borders::default());
        let held = Held::default();
        for _ in 0..10 {
            drop(later(workers.call("own.Count", json("true"), held.clone())));
        }
        let last = later(workers.call("own.Count", json("true"), held.clone()));
        assert_eq!(last.await, Ok(Ok(json("true"))));
        assert_eq!(begun.load(Ordering::Relaxed), 1);
    }
}
