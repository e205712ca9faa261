//! Slots that start a program per call, with real shell scripts: what they do takes no longer than
//! they do.

use std::io::Write as _;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use pronghorn_cgi::variables::push;
use pronghorn_process::Spawner;
use pronghorn_wire::{Codec, DecodeError, Head, ReplyHead};
use tokio::runtime::Handle;
use tokio::time::{Instant, timeout};

use pronghorn_pool::{
    Answer, Body, CallError, Encoding, Incidents, Limits, Observer, Options, Payload, Pending,
    Piece, Plan, Pool, Reply, ReplyBody, RunningPool, Spool, Terms, Unencodable, WorkerFault,
};

use super::ProgramLauncher;

/// The head of an answer to a request.
fn http(head: &Head) -> &ReplyHead {
    match head {
        Head::Http(head) => head,
        other => panic!("{other:?}"),
    }
}

const SOON: Duration = Duration::from_secs(20);

/// A pool over a folder of its own, with one slot.
struct Scripts {
    folder: PathBuf,
    pool: Pool,
    supervised: RunningPool,
    spool: Arc<Spool>,
}

struct Script {
    file: PathBuf,
    body: std::sync::Mutex<Option<Body>>,
}

impl Payload for Script {
    fn encode(&self, encoding: Encoding, out: &mut Vec<u8>) -> Result<Body, Unencodable> {
        assert!(
            matches!(encoding, Encoding::Variables),
            "programs get no frames"
        );
        push(
            out,
            b"SCRIPT_FILENAME",
            &[self.file.as_os_str().as_encoded_bytes()],
        );
        push(out, b"QUERY_STRING", &[b"a=b"]);
        Ok(self.body.lock().unwrap().take().unwrap_or_default())
    }

    fn decode_head(&self, _: Codec, _: &Bytes) -> Result<Head, DecodeError> {
        unreachable!("programs send no frames")
    }

    fn repeatable(&self) -> bool {
        true
    }

    fn describe(&self) -> String {
        format!("GET {}", self.file.display())
    }
}

impl Observer for Script {}

impl Scripts {
    async fn start(name: &str, exec_ttl: Duration) -> Self {
        let folder =
            std::env::temp_dir().join(format!("pronghorn-programs-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let options = Options {
            name: "cgi".into(),
            queue_limit: 10,
            queue_timeout: SOON,
            exec_ttl: Some(exec_ttl),
            slow: None,
            incidents: Incidents::default(),
            deadline_max: SOON,
            max_jobs: None,
            processors: 1,
            runs_alone: false,
        };
        let pool = Pool::new(
            options,
            &Handle::current(),
            &pronghorn_metrics::Registry::default(),
        );
        let spool = Arc::new(Spool::open(&std::env::temp_dir(), None).unwrap());
        let launcher = ProgramLauncher {
            spawner: Spawner::start().unwrap(),
            environment: vec![("PATH".into(), "/usr/bin:/bin".into())],
            user: None,
            spool: spool.clone(),
            homes: vec![Handle::current()],
        };
        let plan = Plan {
            workers: 1,
            scaling: None,
            most: 1,
            at_once: 1,
            limits: Limits {
                watch_tick: SOON,
                ttl: None,
                idle_ttl: None,
                max_memory: None,
            },
        };
        let supervised = RunningPool::start(pool.clone(), Arc::new(launcher), plan)
            .await
            .unwrap();
        Self {
            folder,
            pool,
            supervised,
            spool,
        }
    }

    fn write(&self, text: &str) -> PathBuf {
        let file = self.folder.join("script");
        // A child writes it: a process that another test forks meanwhile would have the descriptor,
        // and the kernel starts no file that somebody may write.
        let mut child = std::process::Command::new("sh")
            .args(["-c", r#"cat >"$0" && chmod 755 "$0""#])
            .arg(&file)
            .stdin(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        child
            .stdin
            .take()
            .unwrap()
            .write_all(text.as_bytes())
            .unwrap();
        assert!(child.wait().unwrap().success());
        file
    }

    fn call(&self, file: PathBuf, body: Body) -> Pending {
        let script = Script {
            file,
            body: std::sync::Mutex::new(Some(body)),
        };
        let now = Instant::now();
        self.pool.call(Arc::new(script), Terms::default(), now, now)
    }

    async fn run(&self, text: &str, body: Body) -> Result<Reply, CallError> {
        let file = self.write(&format!("#!/bin/sh\n{text}\n"));
        answer(&mut self.call(file, body)).await
    }

    /// Runs a script and reads all of its reply.
    async fn page(&self, text: &str, body: Body) -> (u16, String) {
        let reply = self.run(text, body).await.unwrap();
        (
            http(&reply.head).status,
            read(reply.body).await.expect("a whole body"),
        )
    }

    async fn stop(self) {
        assert_eq!(
            self.supervised.stop(SOON).await,
            0,
            "nothing had to be killed"
        );
        std::fs::remove_dir_all(&self.folder).unwrap();
    }
}

async fn answer(pending: &mut Pending) -> Result<Reply, CallError> {
    match timeout(SOON, pending.answer()).await.expect("in time")? {
        Answer::Reply(reply) => Ok(*reply),
        Answer::Interim(head) => panic!("{head:?}"),
    }
}

/// None when it broke off.
async fn read(body: ReplyBody) -> Option<String> {
    let mut text = Vec::new();
    match body {
        ReplyBody::Whole(bytes) => text.extend_from_slice(&Bytes::from(bytes)),
        ReplyBody::Pieces { mut pieces, .. } => loop {
            match timeout(SOON, pieces.next()).await.expect("in time")? {
                Piece::Bytes(bytes) => text.extend_from_slice(&Bytes::from(bytes)),
                Piece::Spooled(file) => {
                    use std::os::unix::fs::FileExt;
                    let mut rest = vec![0; usize::try_from(file.len()).unwrap()];
                    file.file().read_exact_at(&mut rest, 0).unwrap();
                    text.append(&mut rest);
                }
                Piece::End => break,
            }
        },
        other @ ReplyBody::File(_) => panic!("{other:?}"),
    }
    Some(String::from_utf8(text).unwrap())
}

async fn until_gone(pid: &str) {
    let proc = PathBuf::from(format!("/proc/{}", pid.trim()));
    // A zombie that waits for its reaper is gone, too.
    let gone = || match std::fs::read_to_string(proc.join("stat")) {
        Ok(stat) => stat.contains(") Z "),
        Err(_) => true,
    };
    timeout(SOON, async {
        while !gone() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await
    .expect("it ends");
}

#[tokio::test]
async fn a_program_answers_with_what_it_prints() {
    let scripts = Scripts::start("answers", SOON).await;
    let text = "echo 'Status: 404 Not Found'; echo 'X-Query:' $QUERY_STRING; echo; echo body; pwd";
    let reply = scripts.run(text, Body::Empty).await.unwrap();
    assert_eq!(http(&reply.head).status, 404);
    assert_eq!(http(&reply.head).headers.get("x-query"), Some(&b"a=b"[..]));
    let folder = scripts.folder.display().to_string();
    assert_eq!(read(reply.body).await.unwrap(), format!("body\n{folder}\n"));
    // What it leaves running keeps its output open, and nobody waits for that.
    let text = "sleep 1000 & echo 'X-Pid:' $!; echo; echo done";
    let reply = scripts.run(text, Body::Empty).await.unwrap();
    let pid = http(&reply.head).headers.get("x-pid").unwrap().to_vec();
    assert_eq!(read(reply.body).await.unwrap(), "done\n");
    let pid = String::from_utf8(pid).unwrap().trim().parse().unwrap();
    rustix::process::kill_process(
        rustix::process::Pid::from_raw(pid).unwrap(),
        rustix::process::Signal::KILL,
    )
    .unwrap();
    scripts.stop().await;
}

#[tokio::test]
async fn a_body_comes_in_over_a_pipe_or_as_a_file() {
    let scripts = Scripts::start("bodies", SOON).await;
    let long = "0123456789".repeat(50_000);
    let cat = "echo; cat";
    let script = format!("echo X: y; {cat}");
    let body = Body::Bytes(Bytes::from(long.clone()));
    assert_eq!(scripts.page(&script, body).await, (200, long.clone()));
    let mut file = scripts.spool.unnamed().unwrap();
    file.append(long.as_bytes()).unwrap();
    assert_eq!(
        scripts.page(&script, Body::File(Arc::new(file))).await,
        (200, long.clone())
    );
    // Who does not read it is not disturbed by it.
    let body = Body::Bytes(Bytes::from(long));
    assert_eq!(
        scripts.page("echo X: y; echo; echo no", body).await,
        (200, "no\n".into())
    );
    assert_eq!(
        scripts.page(&script, Body::Empty).await,
        (200, String::new())
    );
    scripts.stop().await;
}

#[tokio::test]
async fn redirects_within_the_server_are_its_business() {
    let scripts = Scripts::start("redirects", SOON).await;
    let reply = scripts
        .run("echo Location: /there?x=y; echo", Body::Empty)
        .await
        .unwrap();
    assert!(matches!(reply.head, Head::LocalRedirect(path) if path == b"/there?x=y"));
    let reply = scripts
        .run("echo Location: http://h/; echo", Body::Empty)
        .await
        .unwrap();
    assert_eq!(http(&reply.head).status, 302);
    scripts.stop().await;
}

#[tokio::test]
async fn what_is_no_answer_is_the_programs_fault() {
    let scripts = Scripts::start("faults", SOON).await;
    let why = async |text: &str| match scripts.run(text, Body::Empty).await {
        Err(CallError::Worker(WorkerFault::Garbage(why))) => why,
        other => panic!("{text}: {other:?}"),
    };
    assert!(
        why("echo '<p>hello'")
            .await
            .contains("line 1 of its header is no `Name: value`: `<p>hello`")
    );
    assert!(why("echo; echo hello").await.contains("no header"));
    assert!(
        why("echo HTTP/1.1 200 OK; echo; echo hello")
            .await
            .contains("non-parsed")
    );
    assert!(
        why("exit 3")
            .await
            .contains("ended with exit code 3 before it had sent anything")
    );
    assert!(
        why("echo X: y; exit 0")
            .await
            .contains("before its header was complete, 5 bytes")
    );
    let died = scripts.run("kill -SEGV $$", Body::Empty).await;
    assert!(
        matches!(died, Err(CallError::Worker(WorkerFault::Died(_)))),
        "{died:?}"
    );
    let cut = scripts
        .run(
            "echo X: y; echo; echo part; sleep 0.1; kill -SEGV $$",
            Body::Empty,
        )
        .await
        .unwrap();
    assert_eq!(read(cut.body).await, None);
    assert!(
        why("echo Content-Length: 1; echo Content-Length: 2; echo; echo ab")
            .await
            .contains("two lengths, `Content-Length: 1` and `Content-Length: 2`")
    );
    scripts.stop().await;
}

#[tokio::test]
async fn an_answer_that_is_shorter_than_it_said_breaks_off() {
    let scripts = Scripts::start("short", SOON).await;
    let body = async |length: u8, text: &str| {
        let text = format!("echo Content-Length: {length}; echo; {text}");
        read(scripts.run(&text, Body::Empty).await.unwrap().body).await
    };
    let whole = Some("hello".to_owned());
    assert_eq!(body(5, "printf hello").await, whole);
    assert_eq!(body(4, "printf hello").await, whole);
    assert_eq!(body(6, "printf hello").await, None);
    assert_eq!(body(6, "true").await, None);
    let in_pieces = "printf hel; sleep 0.1; printf lo";
    assert_eq!(body(5, in_pieces).await, whole);
    assert_eq!(body(6, in_pieces).await, None);
    let status = "echo Content-Length: 5; echo Status: 304; echo";
    let reply = scripts.run(status, Body::Empty).await.unwrap();
    assert_eq!(read(reply.body).await, Some(String::new()));
    scripts.stop().await;
}

#[tokio::test]
async fn what_cannot_be_started_says_what_to_do() {
    let scripts = Scripts::start("unstartable", SOON).await;
    let why = async |text: &str, mode: u32| {
        let file = scripts.write(text);
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
        match answer(&mut scripts.call(file, Body::Empty)).await {
            Err(CallError::Worker(WorkerFault::NotStarted(why))) => why,
            other => panic!("{text}: {other:?}"),
        }
    };
    assert!(why("#!/bin/sh\n", 0o644).await.contains("chmod +x"));
    assert!(
        why("#!/bin/sh\r\n", 0o755)
            .await
            .contains("a line feed alone")
    );
    scripts.stop().await;
}

#[tokio::test]
async fn a_deadline_ends_the_program_and_all_it_started() {
    let scripts = Scripts::start("deadline", Duration::from_millis(300)).await;
    let late = scripts
        .run(
            "sh -c 'echo $$ > child; trap \"\" TERM; while :; do sleep 0.05; done' & wait",
            Body::Empty,
        )
        .await;
    assert!(matches!(late, Err(CallError::Deadline)), "{late:?}");
    let child = std::fs::read_to_string(scripts.folder.join("child")).unwrap();
    until_gone(&child).await;
    // One that ignores the signal holds its slot until it is killed.
    let text = "echo X: y; echo; echo first; trap '' TERM; exec sleep 1000";
    let reply = scripts.run(text, Body::Empty).await.unwrap();
    assert_eq!(read(reply.body).await, None);
    assert_eq!(
        scripts
            .page("echo X: y; echo; echo next", Body::Empty)
            .await
            .1,
        "next\n"
    );
    scripts.stop().await;
}

#[tokio::test]
async fn a_program_whose_client_left_is_ended() {
    let scripts = Scripts::start("left", SOON).await;
    let file = scripts.write("#!/bin/sh\necho $$ > pid.new; mv pid.new pid; exec sleep 1000\n");
    let pid = async || {
        let path = scripts.folder.join("pid");
        timeout(SOON, async {
            while !path.exists() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await
        .expect("it starts");
        let pid = std::fs::read_to_string(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        pid
    };
    let pending = scripts.call(file, Body::Empty);
    let waiting = pid().await;
    drop(pending);
    until_gone(&waiting).await;
    let endless = "echo $$ > pid; echo X: y; echo; while :; do echo a lot of text; done";
    let reply = scripts.run(endless, Body::Empty).await.unwrap();
    drop(reply);
    until_gone(&pid().await).await;
    assert_eq!(
        scripts
            .page("echo X: y; echo; echo next", Body::Empty)
            .await
            .1,
        "next\n"
    );
    scripts.stop().await;
}

#[tokio::test]
async fn a_stop_waits_for_the_program_and_then_kills_it() {
    let scripts = Scripts::start("stop", SOON).await;
    let mut slow = {
        let file =
            scripts.write("#!/bin/sh\necho > begun; sleep 0.2; echo X: y; echo; echo whole\n");
        scripts.call(file, Body::Empty)
    };
    let begun = scripts.folder.join("begun");
    timeout(SOON, async {
        while !begun.exists() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await
    .expect("it starts");
    let folder = scripts.folder.clone();
    assert_eq!(scripts.supervised.stop(SOON).await, 0);
    let reply = answer(&mut slow).await.unwrap();
    assert_eq!(read(reply.body).await.unwrap(), "whole\n");
    std::fs::remove_dir_all(&folder).unwrap();

    let scripts = Scripts::start("kill", SOON).await;
    let mut endless = scripts.call(
        scripts.write("#!/bin/sh\ntrap '' TERM\nwhile :; do sleep 0.05; done\n"),
        Body::Empty,
    );
    let folder = scripts.folder.clone();
    assert_eq!(scripts.supervised.stop(Duration::ZERO).await, 1);
    let killed = answer(&mut endless).await;
    assert!(killed.is_err(), "{killed:?}");
    std::fs::remove_dir_all(&folder).unwrap();
}
