//! Both ends over real sockets.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use pronghorn_testkit::Directory;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use crate::{
    Answer, Ask, Client, ClientError, ListenError, Listener, Place, Refusal, Reset, Steerable,
    Steering, Surroundings, Tell, Trusted, serve,
};

fn socket(directory: &Directory) -> PathBuf {
    directory.join("s.sock")
}

fn own() -> Trusted {
    Trusted::new(rustix::process::geteuid().as_raw(), None)
}

/// Tells what it is asked for; a reset takes until it is let go.
#[derive(Default)]
struct Fake {
    go: Notify,
    resets: AtomicU32,
}

impl Steerable for Fake {
    fn steer(self: Arc<Self>, ask: Ask, answer: Answer) -> Steering {
        Box::pin(async move {
            match ask {
                Ask::Stop { .. } => answer.tell(Tell::Stopping { pid: 7, within: 30 }).await,
                Ask::Reset { of } => {
                    for pool in of {
                        answer.tell(Tell::Resetting { pool: pool.clone() }).await;
                        self.go.notified().await;
                        self.resets.fetch_add(1, Ordering::Relaxed);
                        let reset = Reset {
                            pool,
                            took: 1,
                            workers: 2,
                            generation: 3,
                            failed: None,
                        };
                        answer.tell(Tell::Reset(reset)).await;
                    }
                }
                _ => return Err(Refusal("not today".to_owned())),
            }
            Ok(())
        })
    }
}

fn start(directory: &Directory) -> (Arc<Fake>, JoinHandle<std::io::Result<()>>) {
    let listener = Listener::bind(&[socket(directory)]).unwrap();
    let fake = Arc::new(Fake::default());
    let task = tokio::runtime::Handle::current().spawn(serve(listener, fake.clone()));
    (fake, task)
}

async fn ends(task: JoinHandle<std::io::Result<()>>) {
    task.abort();
    _ = task.await;
}

#[tokio::test]
async fn questions_are_answered_one_after_the_other() {
    let directory = Directory::new();
    let (fake, task) = start(&directory);
    let mut client = Client::connect(&socket(&directory), own()).await.unwrap();
    assert_eq!(client.pid(), Some(std::process::id()));
    let told = client.ask_once(Ask::Stop { force: false }).await.unwrap();
    assert_eq!(told, Tell::Stopping { pid: 7, within: 30 });

    fake.go.notify_one();
    let of = vec!["a".to_owned()];
    let mut answers = client.ask(Ask::Reset { of }).await.unwrap();
    let pool = "a".to_owned();
    assert_eq!(
        answers.next().await.unwrap(),
        Some(Tell::Resetting { pool: pool.clone() })
    );
    let reset = Reset {
        pool,
        took: 1,
        workers: 2,
        generation: 3,
        failed: None,
    };
    assert_eq!(answers.next().await.unwrap(), Some(Tell::Reset(reset)));
    assert_eq!(answers.next().await.unwrap(), None);

    let refused = client.ask_once(Ask::Status).await.unwrap_err();
    assert_eq!(refused.to_string(), "not today");
    ends(task).await;
    assert!(!socket(&directory).exists());
}

#[tokio::test(start_paused = true)]
async fn a_long_answer_is_no_silence() {
    let directory = Directory::new();
    let (fake, task) = start(&directory);
    let mut client = Client::connect(&socket(&directory), own()).await.unwrap();
    let of = vec!["a".to_owned()];
    let mut answers = client.ask(Ask::Reset { of }).await.unwrap();
    answers.next().await.unwrap();
    let (told, ()) = tokio::join!(answers.next(), async {
        tokio::time::sleep(Duration::from_secs(120)).await;
        fake.go.notify_one();
    });
    assert!(matches!(told, Ok(Some(Tell::Reset(_)))), "{told:?}");
    ends(task).await;
}

#[tokio::test]
async fn what_was_asked_is_carried_out_when_the_command_leaves() {
    let directory = Directory::new();
    let (fake, task) = start(&directory);
    let mut client = Client::connect(&socket(&directory), own()).await.unwrap();
    let of = vec!["a".to_owned(), "b".to_owned()];
    let mut answers = client.ask(Ask::Reset { of }).await.unwrap();
    answers.next().await.unwrap();
    drop(client);
    while fake.resets.load(Ordering::Relaxed) < 2 {
        fake.go.notify_one();
        tokio::task::yield_now().await;
    }
    ends(task).await;
}

#[tokio::test(start_paused = true)]
async fn a_server_that_says_nothing_is_left() {
    let directory = Directory::new();
    let _deaf = UnixListener::bind(socket(&directory)).unwrap();
    let mut client = Client::connect(&socket(&directory), own()).await.unwrap();
    let silent = client.ask_once(Ask::Status).await;
    assert!(matches!(silent, Err(ClientError::Silent(_))), "{silent:?}");
}

#[tokio::test]
async fn nobody_is_told_from_somebody_else() {
    let directory = Directory::new();
    let at = |path: PathBuf| async move { Client::connect(&path, own()).await.unwrap_err() };
    assert!(matches!(
        at(socket(&directory)).await,
        ClientError::Nobody(_)
    ));
    drop(UnixListener::bind(socket(&directory)).unwrap());
    assert!(matches!(
        at(socket(&directory)).await,
        ClientError::Nobody(_)
    ));
}

/// Sends bytes and reads until the server closes.
async fn talk(path: &Path, bytes: &[u8]) -> String {
    let stream = tokio::net::UnixStream::connect(path).await.unwrap();
    let (mut reader, mut writer) = stream.into_split();
    _ = writer.write_all(bytes).await; // it may have closed before it has read all
    drop(writer);
    let mut said = Vec::new();
    _ = reader.read_to_end(&mut said).await; // closed with bytes unread, it is a reset
    String::from_utf8(said).unwrap()
}

#[tokio::test]
async fn whatever_is_sent_the_server_goes_on() {
    let directory = Directory::new();
    let (_fake, task) = start(&directory);
    let path = socket(&directory);
    let long = vec![b'{'; 17 << 20];
    for (sent, said) in [
        (&b"hello\n"[..], "can't be read"),
        (b"{}\n", "can't be read"),
        (b"{\"pronghorn\":1,\"ask\":\"dance\"}\n", "dance"),
        (
            b"{\"pronghorn\":9,\"ask\":{\"new\":1}}\n",
            "version 9 of the control protocol",
        ),
        (&long, "at most 16777216 bytes"),
        (b"{\"pronghorn\":1", ""),
        (b"\n\n\n", "can't be read"),
        (b"\xff\xfe\n", "can't be read"),
        (b"", ""),
    ] {
        let told = talk(&path, sent).await;
        assert!(told.contains(said), "{said:?} in {told:?}");
        assert!(told.is_empty() || told.ends_with("}\n"), "{told:?}");
    }
    let told = talk(
        &path,
        b"{\"pronghorn\":1,\"ask\":{\"stop\":{\"force\":true,\"new\":1}}}\n",
    )
    .await;
    assert_eq!(
        told, "{\"stopping\":{\"pid\":7,\"within\":30}}\n\"done\"\n",
        "what a later release adds is passed over"
    );
    ends(task).await;
}

#[test]
fn only_the_owner_can_connect() {
    let directory = Directory::new();
    let listener = Listener::bind(&[socket(&directory)]).unwrap();
    let mode = std::fs::metadata(listener.path())
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn a_stale_socket_is_replaced_and_a_live_one_is_named() {
    let directory = Directory::new();
    drop(UnixListener::bind(socket(&directory)).unwrap());
    let paths = [socket(&directory), directory.join("other.sock")];
    let first = Listener::bind(&paths).unwrap();
    assert_eq!(first.path(), paths[0]);
    let Err(ListenError::Running { path, pid }) = Listener::bind(&paths) else {
        panic!("it is in use");
    };
    assert_eq!((path, pid), (paths[0].clone(), Some(std::process::id())));
}

#[test]
fn a_directory_that_cannot_be_used_is_passed_over() {
    let directory = Directory::new();
    let long = directory.join("x".repeat(120)).join("s.sock");
    let paths = [PathBuf::from("/proc/nope/s.sock"), long, socket(&directory)];
    assert_eq!(Listener::bind(&paths).unwrap().path(), socket(&directory));
    let error = Listener::bind(&paths[..1]).unwrap_err();
    assert!(error.to_string().contains("/proc/nope"), "{error}");
}

/// Anybody may have taken the name of the socket, or that of the directory.
#[test]
fn a_server_listens_in_a_directory_of_its_own_and_takes_it_away() {
    let directory = Directory::new();
    let surroundings = Surroundings {
        temporary: directory.to_path_buf(),
        uid: rustix::process::geteuid().as_raw(),
        // As root it could be in `/run/pronghorn`.
        xdg_runtime_dir: Some("/proc/nope".into()),
        ..Surroundings::default()
    };
    let [one, two] = ["/srv/one", "/srv/two"].map(|path| Place::of(Path::new(path)));
    std::fs::write(
        directory.join(format!("pronghorn-{}", surroundings.uid)),
        "",
    )
    .unwrap();
    let bind = |place: &Place| Listener::bind_among_temporary(place, &surroundings);
    let first = bind(&one).unwrap();
    let found = |place: &Place| {
        let paths = place.for_command(&surroundings);
        paths
            .into_iter()
            .filter(|path| path.exists())
            .collect::<Vec<_>>()
    };
    assert_eq!(found(&one), [first.path()]);
    let own = first.path().parent().unwrap().to_owned();
    assert_eq!(own.metadata().unwrap().permissions().mode() & 0o777, 0o700);
    assert!(matches!(bind(&one), Err(ListenError::Running { .. })));

    let second = bind(&two).unwrap();
    assert_eq!(second.path().parent(), Some(&*own));
    drop(first);
    assert_eq!(found(&two), [second.path()]);
    let successor = Listener::take_over(second.path()).unwrap();
    drop(second);
    assert_eq!(found(&two), [successor.path()]);
    drop(successor);
    assert!(!own.exists());
}

#[test]
fn a_successor_takes_the_place_and_keeps_it() {
    let directory = Directory::new();
    let old = Listener::bind(&[socket(&directory)]).unwrap();
    let new = Listener::take_over(&socket(&directory)).unwrap();
    drop(old);
    UnixStream::connect(socket(&directory)).expect("the successor's socket stays");
    assert_eq!(std::fs::read_dir(&directory).unwrap().count(), 1);
    drop(new);
    assert!(!socket(&directory).exists());
}
