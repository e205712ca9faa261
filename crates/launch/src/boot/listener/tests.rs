//! Who is taken for a worker.

use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command};

use pronghorn_wire::frame::{Flags, Stream, encode_plain};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;

use super::*;

/// Longer than any of these takes on a busy machine.
const LONG: Duration = Duration::from_secs(60);

fn unix(name: &str) -> (RelayListener, PathBuf) {
    let name = format!("relay-listener-{name}-{}.sock", std::process::id());
    let path = std::env::temp_dir().join(name);
    let address = RelayAddress::Unix(path.clone());
    let listener = RelayListener::open(&address, &[], Vec::new()).unwrap();
    (listener, path)
}

fn tcp() -> (RelayListener, SocketAddr) {
    let address = RelayAddress::Tcp("127.0.0.1:0".parse().unwrap());
    let listener = RelayListener::open(&address, &[], Vec::new()).unwrap();
    let RelayAddress::Tcp(bound) = *listener.address() else {
        panic!("it listens elsewhere");
    };
    (listener, bound)
}

async fn announce(stream: &mut (impl AsyncWrite + Unpin), pid: u32) {
    let body = format!(r#"{{"pid":{pid}}}"#);
    let mut announcement = Vec::new();
    encode_plain(
        &mut announcement,
        Flags::CONTROL,
        Stream::END,
        body.as_bytes(),
    );
    stream.write_all(&announcement).await.unwrap();
}

/// Reads until the server ends the connection.
async fn is_closed(stream: &mut (impl AsyncRead + Unpin)) -> bool {
    let read = timeout(LONG, stream.read_to_end(&mut Vec::new())).await;
    read.is_ok()
}

fn own_uid() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// A process that connects nowhere, killed when it is dropped.
struct Sleeps(Child);

impl Sleeps {
    fn start() -> Self {
        let mut command = Command::new("sleep");
        Self(command.arg("1000").process_group(0).spawn().unwrap())
    }

    fn pid(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Sleeps {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

#[tokio::test]
async fn a_connection_over_a_unix_socket_is_its_makers_whatever_it_says() {
    let (listener, path) = unix("maker");
    let mut stream = UnixStream::connect(&path).await.unwrap();
    announce(&mut stream, 4711).await;
    let me = std::process::id();
    tokio::select! {
        _ = listener.wait_for(4711, own_uid()) => panic!("it passed for another process"),
        _ = listener.wait_for(me, own_uid()) => {}
    }
}

#[tokio::test]
async fn a_connection_is_its_users_over_any_socket() {
    let (by_unix, path) = unix("user");
    let (by_tcp, address) = tcp();
    let me = std::process::id();
    let refused = async {
        let mut stream = UnixStream::connect(&path).await.unwrap();
        announce(&mut stream, me).await;
        assert!(is_closed(&mut stream).await);
        let mut stream = TcpStream::connect(address).await.unwrap();
        announce(&mut stream, me).await;
        assert!(is_closed(&mut stream).await);
    };
    let other = own_uid() + 1;
    tokio::select! {
        _ = by_unix.wait_for(me, other) => panic!("it passed for another user's"),
        _ = by_tcp.wait_for(me, other) => panic!("it passed for another user's"),
        () = refused => {}
    }
    assert_eq!(by_unix.strangers(LONG), [me]);
    assert_eq!(by_tcp.strangers(LONG), [me]);
    assert!(by_tcp.strangers(Duration::ZERO).is_empty());
}

#[tokio::test]
async fn over_tcp_nobody_passes_for_a_process_by_saying_its_number() {
    let (listener, address) = tcp();
    let awaited = Sleeps::start();
    let me = std::process::id();
    let refused = async {
        for pid in [awaited.pid(), 1] {
            let mut stream = TcpStream::connect(address).await.unwrap();
            announce(&mut stream, pid).await;
            assert!(is_closed(&mut stream).await, "{pid}");
        }
    };
    tokio::select! {
        _ = listener.wait_for(awaited.pid(), own_uid()) => panic!("it passed for another process"),
        () = refused => {}
    }
    assert_eq!(listener.strangers(LONG), [1, awaited.pid()]);
    let mut stream = TcpStream::connect(address).await.unwrap();
    announce(&mut stream, me).await;
    let taken = timeout(LONG, listener.wait_for(me, own_uid())).await;
    assert!(taken.is_ok(), "its own number");
}

/// Its number may come from the thread that starts processes only after it has connected.
#[tokio::test]
async fn a_worker_may_be_quicker_than_the_boot_that_started_it() {
    let (by_unix, path) = unix("early");
    let (by_tcp, address) = tcp();
    let me = std::process::id();
    let mut stream = UnixStream::connect(&path).await.unwrap();
    announce(&mut stream, me).await;
    let mut other = TcpStream::connect(address).await.unwrap();
    announce(&mut other, me).await;
    for stream in [&by_unix, &by_tcp] {
        while stream.entrance.begins.receiver_count() == 0 {
            yield_now().await;
        }
        let taken = timeout(LONG, stream.wait_for(me, own_uid())).await;
        assert!(taken.is_ok());
    }
}

#[tokio::test(start_paused = true)]
async fn a_process_of_this_server_that_nobody_waits_for_is_let_go() {
    let entrance = Entrance::default();
    let child = Sleeps::start();
    let before = Instant::now();
    let started = timeout(EARLY, entrance.started(child.pid())).await;
    assert!(started.is_err(), "it may yet be one that was started");
    assert_eq!(before.elapsed(), EARLY);
    let _boot = entrance.wait_for(child.pid(), 7);
    assert_eq!(
        entrance.started(child.pid()).await.unwrap(),
        (child.pid(), 7)
    );
    let stranger = timeout(EARLY, entrance.started(1)).await;
    assert!(matches!(stranger, Ok(Err(Refused::Stranger))));
}
