//! Methods that workers call over their own connection, for which they need no socket.

use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use pronghorn_plugin_api::rpc::{self, Encoding, Failure, Method, Methods, WeakMethods};
use pronghorn_pool::transport::{Calling, MethodCaller, Returned};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;

/// Calls that are not done, of all workers together. One worker waits for one at a time; those
/// beyond that wait for nothing any more.
const MOST: usize = 1024;

/// Answers workers, by the same methods as RPC.
#[derive(Debug)]
pub struct WorkerMethods {
    /// They lead to the pools, whose workers have this.
    methods: WeakMethods,
    orders: mpsc::Sender<Order>,
}

/// A call that is not done at once.
struct Order {
    work: Work,
    caller: oneshot::Sender<Returned>,
}

enum Work {
    /// To be begun where it is carried out.
    New(Method, Bytes),
    /// Its service starts.
    ToCome(Methods, String, Bytes),
    Begun(rpc::Calling),
}

impl WorkerMethods {
    /// The second is what carries calls out, on the runtime that this is called on. Dropped, it
    /// cuts them off.
    pub fn start(methods: &Methods) -> (Arc<Self>, JoinSet<()>) {
        let (orders, inbox) = mpsc::channel(MOST);
        let mut carrying = JoinSet::new();
        carrying.spawn(carry_out(inbox));
        let methods = methods.downgrade();
        (Arc::new(Self { methods, orders }), carrying)
    }
}

impl MethodCaller for WorkerMethods {
    fn call(&self, method: &str, argument: Bytes) -> Calling {
        let Some(methods) = self.methods.upgrade() else {
            return Calling::Done(Err("the server is stopping".to_owned()));
        };
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
        let work = match found {
            None => Work::ToCome(methods.clone(), method.to_owned(), argument),
            Some(method) if method.is_for_any_thread() => {
                let mut calling = method.call(Encoding::Json, argument);
                let polled = calling
                    .as_mut()
                    .poll(&mut Context::from_waker(Waker::noop()));
                match polled {
                    Poll::Ready(result) => return Calling::Done(of(result)),
                    Poll::Pending => Work::Begun(calling),
                }
            }
            Some(method) => Work::New(method, argument),
        };
        let (caller, returned) = oneshot::channel();
        place.send(Order { work, caller });
        Calling::Later(returned)
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
}

impl Order {
    async fn carry_out(self) {
        let Self { work, mut caller } = self;
        let result = match work {
            Work::Begun(calling) => Some(calling.await),
            Work::New(method, argument) => carry_out_new(method, argument, &mut caller).await,
            Work::ToCome(methods, name, argument) => match methods.find_in_time(&name).await {
                Ok(method) => carry_out_new(method, argument, &mut caller).await,
                Err(unknown) => Some(Err(Failure::new(unknown.to_string()))),
            },
        };
        if let Some(result) = result {
            // A worker that has ended needs no answer.
            _ = caller.send(of(result));
        }
    }
}

/// None when the caller has left, and the method was for its sake.
async fn carry_out_new(
    method: Method,
    argument: Bytes,
    caller: &mut oneshot::Sender<Returned>,
) -> Option<Result<Bytes, Failure>> {
    let calling = method.call(Encoding::Json, argument);
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
    use std::sync::atomic::{AtomicU32, Ordering};

    use tokio::task::yield_now;

    use super::*;

    fn later(calling: Calling) -> oneshot::Receiver<Returned> {
        match calling {
            Calling::Later(returned) => returned,
            Calling::Done(returned) => panic!("done at once: {returned:?}"),
        }
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
        let (workers, _carrying) = WorkerMethods::start(&methods);

        let Calling::Done(Ok(result)) = workers.call("own.Now", json(r#""a""#)) else {
            panic!("not at once");
        };
        assert_eq!(&result[..], br#""a!""#);
        let failed = later(workers.call("own.Usual", json("true"))).await;
        assert_eq!(failed, Ok(Err("not today".to_owned())));
        assert_eq!(
            later(workers.call("own.Slow", json("true"))).await,
            Ok(Ok(json("true")))
        );
        drop(later(workers.call("own.Slow", json("true"))));
        while done.load(Ordering::Relaxed) < 2 {
            yield_now().await; // it is done although nobody waits
        }
        let Calling::Done(Err(why)) = workers.call("own.None", json("1")) else {
            panic!("there is no such method");
        };
        assert_eq!(why, "rpc: can't find method own.None");
    }

    #[tokio::test]
    async fn a_worker_that_is_early_waits_for_a_method_of_a_service_that_starts() {
        let methods = Methods::default();
        methods.expect_more();
        let (workers, _carrying) = WorkerMethods::start(&methods);
        let early = later(workers.call("own.Late", json("true")));
        let never = later(workers.call("own.None", json("true")));
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
        let (workers, _carrying) = WorkerMethods::start(&methods);
        let waits = later(workers.call("own.Wait", json("true")));
        yield_now().await;
        assert_eq!(ended.load(Ordering::Relaxed), 0);
        drop(waits);
        while ended.load(Ordering::Relaxed) == 0 {
            yield_now().await;
        }
        let all: Vec<_> = (0..MOST)
            .map(|_| later(workers.call("own.Wait", json("true"))))
            .collect();
        let Calling::Done(Err(why)) = workers.call("own.Wait", json("true")) else {
            panic!("there is no room");
        };
        assert_eq!(why, "1024 calls of methods are under way already");
        drop(all);
    }
}
