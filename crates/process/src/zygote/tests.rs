use std::os::fd::AsFd;
use std::process::{Child, Command, Stdio};

use super::*;
use crate::process::Exit;

const PATIENCE: std::time::Duration = std::time::Duration::from_secs(30);

/// One that says this, whatever it is asked.
fn saying(answer: &str) -> (Zygote, Link) {
    let (ours, theirs) = Link::pair().unwrap();
    theirs.send(answer, &[]).unwrap();
    (Zygote(ours.watch().unwrap()), theirs)
}

async fn asked_for_a_fork(answer: &str) -> Result<Process, ForkError> {
    let (zygote, _theirs) = saying(answer);
    zygote.fork(std::process::id(), 3, &[]).await
}

/// A child of this process that no other test reaps.
fn started(command: &mut Command) -> (Child, Pid) {
    let spawning = reap::spawning();
    let child = command.spawn().unwrap();
    let pid = Pid::from_child(&child);
    spawning.remember(pid);
    (child, pid)
}

/// A process that becomes this one's child at its parent's end, as a forked one does.
fn orphan(code: u8) -> String {
    orphan_of("exec 3<&0", code)
}

fn orphan_of(first: &str, code: u8) -> String {
    crate::adopt_orphans();
    let script = format!("{first}; (read line <&3; exit {code}) >/dev/null & echo $!");
    let mut shell = Command::new("sh");
    let shell = shell.args(["-c", &script]).stdin(Stdio::piped());
    let (mut shell, pid) = started(shell.stdout(Stdio::piped()));
    // What it leaves behind ends when this is closed: after the shell, which would reap it.
    let input = shell.stdin.take();
    let output = shell.wait_with_output().unwrap();
    drop(input);
    reap::forget(pid);
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

#[tokio::test]
async fn an_orphan_that_it_names_is_a_child_with_an_owner() {
    let (ours, theirs) = Link::pair().unwrap();
    let zygote = Zygote(ours.watch().unwrap());
    let null = std::fs::File::open("/dev/null").unwrap();
    let passed = [null.as_fd()];
    let forking = zygote.fork(std::process::id(), 3, &passed);
    let answering = async {
        let (order, passed) = wait_for_order(&theirs).await;
        assert_eq!(order, format!("fork {} 3", std::process::id()));
        assert_eq!(passed.len(), 1);
        // It has ended, and is not reaped by anybody before it is known.
        let pid = orphan(7);
        let ended = || std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        while !ended().contains(") Z ") {
            tokio::task::yield_now().await;
        }
        assert_eq!(crate::reap_orphans(), 0);
        theirs.send(&format!("forked {pid}"), &[]).unwrap();
        pid
    };
    let both = async { tokio::join!(forking, answering) };
    let (forked, pid) = tokio::time::timeout(PATIENCE, both).await.unwrap();
    let mut process = forked.unwrap();
    assert_eq!(process.pid().to_string(), pid);
    assert_eq!(process.wait().await.unwrap(), Exit::Code(7));
}

async fn wait_for_order(link: &Link) -> (String, Vec<OwnedFd>) {
    loop {
        match link.try_receive() {
            Ok(order) => return order.unwrap(),
            Err(_) => tokio::task::yield_now().await,
        }
    }
}

#[tokio::test]
async fn a_process_of_others_is_not_taken_over() {
    let own = format!("forked {}", std::process::id());
    for answer in ["forked 2147483647", &own] {
        let error = asked_for_a_fork(answer).await.unwrap_err();
        assert!(matches!(error, ForkError::NotOurs(_)), "{answer}: {error}");
    }
    // One of this process's own, which has an owner already.
    let (mut child, pid) = started(Command::new("sleep").arg("60"));
    let answer = format!("forked {}", child.id());
    let error = asked_for_a_fork(&answer).await.unwrap_err();
    assert!(matches!(error, ForkError::NotOurs(_)), "{error}");
    child.kill().unwrap();
    child.wait().unwrap();
    reap::forget(pid);
}

/// A daemon that a worker of another user has left is a child of this process, and not the zygote's
/// to name.
#[tokio::test]
async fn an_orphan_of_another_user_is_not_taken_over() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root has children of other users");
        return;
    }
    let (zygote, theirs) = Link::pair().unwrap();
    let zygote = Zygote(zygote.watch().unwrap());
    let forking = zygote.fork(std::process::id(), 3, &[]);
    let answering = async {
        wait_for_order(&theirs).await;
        let of_nobody = "exec 3<&0; test \"$(id -u)\" = 0 && exec setpriv --reuid 65534 sh -c \
                         '(read line <&3; exit 0) >/dev/null & echo $!'";
        let pid = orphan_of(of_nobody, 0);
        theirs.send(&format!("forked {pid}"), &[]).unwrap();
        pid
    };
    let both = async { tokio::join!(forking, answering) };
    let (forked, pid) = tokio::time::timeout(PATIENCE, both).await.unwrap();
    let error = forked.unwrap_err();
    assert!(
        matches!(&error, ForkError::NotOurs(of) if of.to_string() == pid),
        "{error}"
    );
}

#[tokio::test]
async fn what_makes_no_sense_is_shown_in_part() {
    for answer in [
        "forked",
        "forked 0",
        "forked 1",
        "forked -5",
        "forked 99999999999",
        "\u{1b}[2J",
        "zygote",
    ] {
        let error = asked_for_a_fork(answer).await.unwrap_err();
        assert!(
            matches!(&error, ForkError::Nonsense(_)),
            "{answer}: {error}"
        );
        assert!(!error.to_string().contains('\u{1b}'));
    }
    let long = asked_for_a_fork(&"x".repeat(5000)).await.unwrap_err();
    assert!(long.to_string().len() < 200);
    let refused = asked_for_a_fork("failed Resource temporarily unavailable");
    assert_eq!(
        refused.await.unwrap_err().to_string(),
        "it could not fork: Resource temporarily unavailable"
    );
}

#[tokio::test]
async fn one_says_whether_a_lock_is_stuck() {
    for (answer, stuck) in [("stuck", Some(true)), ("free", Some(false)), ("fork", None)] {
        let (ours, theirs) = Link::pair().unwrap();
        let zygote = Zygote(ours.watch().unwrap());
        theirs.send(answer, &[]).unwrap();
        assert_eq!(zygote.is_stuck().await.ok(), stuck);
        assert_eq!(wait_for_order(&theirs).await.0, "stuck?");
    }
}

#[tokio::test]
async fn one_that_has_closed_its_end_answers_nothing() {
    let (ours, theirs) = Link::pair().unwrap();
    let zygote = Zygote(ours.watch().unwrap());
    drop(theirs);
    assert!(matches!(
        zygote.introduction().await,
        Err(ForkError::Closed)
    ));
    assert!(zygote.fork(std::process::id(), 3, &[]).await.is_err());
}

#[tokio::test]
async fn it_says_what_forbids_a_fork() {
    let (zygote, _theirs) = saying("zygote 1 threads 2 jit 1 warm 0 grpc timer");
    assert_eq!(
        zygote.introduction().await.unwrap(),
        Introduction::Ready(Facts {
            threads: 2,
            thread: "grpc timer".into(),
            has_jit: true,
            is_warm: false,
            own: None,
        })
    );
    let (zygote, _theirs) = saying("refuses a \u{1b}[2Jpipe");
    assert_eq!(
        zygote.introduction().await.unwrap(),
        Introduction::Refuses("a [2Jpipe".into())
    );
    for wrong in [
        "",
        "zygote 2 threads 1 jit 0 warm 0 ",
        "zygote 1 threads x jit 0 warm 0 ",
        "zygote 1 threads 1 jit 2 warm 0 ",
        "zygote 1 threads 1 jit 0 warm 2 ",
        "zygote 1 threads 1 jit 0 warm 0",
        "zygote 1 threads 1 jit 0 ",
    ] {
        assert_eq!(Facts::parse(wrong), None, "{wrong}");
    }
}
