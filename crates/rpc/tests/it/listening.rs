use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use pronghorn_config::Endpoint;
use pronghorn_plugin_api::Stopped;
use pronghorn_plugin_api::rpc::Methods;
use pronghorn_process::socket::BindError;
use pronghorn_rpc::{ListenError, Listener, Server};
use pronghorn_testkit::Directory;
use tokio::time::Instant;

use crate::support::{Caller, socket, tcp};

/// A deadline that a stop does not need: the end of a connection takes a moment to be seen.
fn far() -> Instant {
    Instant::now() + Duration::from_secs(30)
}

#[tokio::test]
async fn a_port_that_was_given_is_told() {
    let listener = Listener::bind(&tcp(Some("localhost"), 0), &[]).unwrap();
    let text = listener.endpoint().to_string();
    let port = text.strip_prefix("tcp://localhost:").unwrap();
    assert_ne!(port.parse::<u16>().unwrap(), 0);
    assert!(!listener.is_exposed());
    let endpoint = tcp(Some("127.0.0.1"), port.parse().unwrap());
    let server = Server::start(listener, Methods::default()).unwrap();
    let said = Caller::connect(&endpoint).await.call("a.B", "").await;
    assert_eq!(said, "rpc: can't find service a.B");
    assert_eq!(server.stop(far()).await, Stopped::Clean);
}

#[tokio::test]
async fn a_unix_socket_is_for_its_owner_and_removed_at_the_end() {
    let directory = Directory::new();
    let endpoint = socket(&directory);
    let Endpoint::Unix(path) = &endpoint else {
        panic!("a unix socket");
    };
    let listener = Listener::bind(&endpoint, &[]).unwrap();
    assert!(!listener.is_exposed());
    let mode = path.metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
    let server = Server::start(listener, Methods::default()).unwrap();
    let said = Caller::connect(&endpoint).await.call("a.B", "").await;
    assert_eq!(said, "rpc: can't find service a.B");
    assert!(matches!(
        Listener::bind(&endpoint, &[]),
        Err(ListenError::Bind(BindError::SocketInUse(_)))
    ));
    assert_eq!(server.stop(far()).await, Stopped::Clean);
    assert!(!path.exists());

    drop(Listener::bind(&endpoint, &[]).unwrap());
    assert!(!path.exists());
}

#[test]
fn what_is_in_the_way_is_told() {
    let said = |endpoint| Listener::bind(&endpoint, &[]).unwrap_err().to_string();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let text = said(tcp(Some("127.0.0.1"), port));
    assert!(text.contains("is in use by another process"), "{text}");
    let text = said(tcp(Some("192.0.2.1"), 0));
    assert_eq!(text, "192.0.2.1:0 is no address of this machine");
    let text = said(tcp(Some("nobody.invalid"), 6001));
    assert!(
        text.starts_with("`nobody.invalid` has no address: "),
        "{text}"
    );
    assert!(
        text.ends_with("\nhint: write `tcp://127.0.0.1:6001`"),
        "{text}"
    );
    let text = said(Endpoint::Unix("/proc/nope/rpc.sock".into()));
    assert!(text.contains("cannot be created"), "{text}");
}
