use std::sync::Arc;
use std::time::Duration;

use pronghorn_plugin_api::rpc::{Failure, Methods};
use pronghorn_plugin_api::{Context, Service, Stopped};
use pronghorn_rpc::{Rpc, Server};
use pronghorn_wire::frame::Flags;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use crate::support::{Caller, loopback, tcp};

/// A method that waits until the test lets it go.
fn waiting() -> (Methods, Arc<Semaphore>) {
    let (methods, gate) = (Methods::default(), Arc::new(Semaphore::new(0)));
    let service = methods.service("test", gate.clone());
    service.add(
        "Wait",
        async |gate: Arc<Semaphore>, _: bool| -> Result<bool, Failure> {
            gate.acquire().await.expect("nobody closes it").forget();
            Ok(true)
        },
    );
    (methods, gate)
}

async fn until(what: impl Fn() -> bool) {
    while !what() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn the_service_answers_its_two_methods() {
    let context = Context::default();
    context
        .configuration
        .set(r#"{"asked":0}"#.to_owned(), String::new());
    let service = Box::new(Rpc {
        listen: tcp(Some("127.0.0.1"), 0),
        version: "2025.1.15",
    });
    let running = service.start(context.clone()).await.unwrap();
    let address = running.addresses().remove(0);
    let port = address.strip_prefix("tcp://127.0.0.1:").unwrap();
    let endpoint = tcp(Some("127.0.0.1"), port.parse().unwrap());
    assert_eq!(running.variables(), [("RR_RPC", endpoint.to_string())]);
    assert_eq!(context.readiness.check(), Ok(()));

    let mut caller = Caller::connect(&endpoint).await;
    assert_eq!(caller.call("rpc.Version", "true").await, "\"2025.1.15\"");
    assert_eq!(
        caller.call("rpc.Config", "null").await,
        "\"eyJhc2tlZCI6MH0=\""
    );
    context
        .configuration
        .set(r#"{"asked":1}"#.to_owned(), String::new());
    caller.send(Flags::RAW, "rpc.Config", "").await;
    assert_eq!(caller.reply().await.unwrap(), "{\"asked\":1}");

    // What another service adds later is there from then on.
    assert_eq!(
        caller.call("late.Yes", "").await,
        "rpc: can't find service late.Yes"
    );
    context
        .rpc
        .service("late", ())
        .add("Yes", async |(), _: bool| Ok(true));
    assert_eq!(caller.call("late.Yes", "null").await, "true");
    assert_eq!(
        caller.call("late.No", "").await,
        "rpc: can't find method late.No"
    );

    // The server's shutdown begins: workers that finish their work still call.
    context.shutdown.cancel();
    assert_eq!(caller.call("late.Yes", "null").await, "true");
    assert_eq!(
        running.stop(Instant::now() + Duration::from_secs(60)).await,
        Stopped::Clean
    );
    assert_eq!(caller.reply().await, None);
}

#[tokio::test]
async fn connections_are_counted_and_idle_ones_do_not_hold_up_a_stop() {
    let listener = loopback();
    let endpoint = listener.endpoint().clone();
    let server = Server::start(listener, Methods::default()).unwrap();
    let mut callers = Vec::new();
    for _ in 0..20 {
        callers.push(Caller::connect(&endpoint).await);
    }
    until(|| server.connections() == 20).await;
    callers.truncate(5);
    until(|| server.connections() == 5).await;
    assert_eq!(server.calls(), 0);
    let deadline = Instant::now() + Duration::from_secs(60);
    assert_eq!(server.stop(deadline).await, Stopped::Clean);
    for caller in &mut callers {
        assert_eq!(caller.reply().await, None);
    }
}

#[tokio::test]
async fn a_stop_waits_for_calls_until_its_deadline() {
    let (methods, gate) = waiting();
    let listener = loopback();
    let endpoint = listener.endpoint().clone();
    let server = Server::start(listener, methods.clone()).unwrap();
    let mut caller = Caller::connect(&endpoint).await;
    caller.send(Flags::JSON, "test.Wait", "true").await;
    until(|| server.calls() == 1).await;
    let stopping = server.stop(Instant::now() + Duration::from_secs(60));
    let (stopped, reply) = tokio::join!(stopping, async {
        gate.add_permits(1);
        caller.reply().await
    });
    assert_eq!((stopped, reply.as_deref()), (Stopped::Clean, Some("true")));

    let listener = loopback();
    let endpoint = listener.endpoint().clone();
    let server = Server::start(listener, methods).unwrap();
    let mut caller = Caller::connect(&endpoint).await;
    for _ in 0..2 {
        caller.send(Flags::JSON, "test.Wait", "true").await;
    }
    until(|| server.calls() == 2).await;
    let stopped = server.stop(Instant::now()).await;
    assert_eq!(stopped, Stopped::CutOff("2 calls".into()));
    assert_eq!(caller.reply().await, None);
}

#[tokio::test]
async fn a_server_that_is_dropped_is_gone() {
    let listener = loopback();
    let endpoint = listener.endpoint().clone();
    let server = Server::start(listener, Methods::default()).unwrap();
    let mut caller = Caller::connect(&endpoint).await;
    caller.call("a.B", "").await;
    drop(server);
    assert_eq!(caller.reply().await, None);
}
