use std::io::{Read, Write, pipe};
use std::time::Duration;

use pronghorn_testkit::Directory;

use super::*;
use crate::{Exit, Signal};

fn shell(script: &str) -> Command {
    Command {
        program: "sh".into(),
        args: vec!["-c".into(), script.into()],
        env: vec![("PATH".into(), "/usr/bin:/bin".into())],
        cwd: "/".into(),
        credentials: None,
        stdin: Stream::Null,
        stdout: Stream::Pipe,
        stderr: Stream::Null,
        passed: Vec::new(),
        mark: None,
        overtakes: false,
        limits: Limits::default(),
    }
}

async fn run(command: Command) -> (Exit, String) {
    let spawner = Spawner::start().unwrap();
    let mut child = spawner.spawn(command).await.unwrap();
    let exit = child.process.wait().await.unwrap();
    let mut said = String::new();
    std::fs::File::from(child.stdout.take().unwrap())
        .read_to_string(&mut said)
        .unwrap();
    (exit, said)
}

#[tokio::test]
async fn a_childs_output_and_exit_code_arrive() {
    assert_eq!(
        run(shell("echo hello; exit 7")).await,
        (Exit::Code(7), "hello\n".into())
    );
}

/// Whether a process is there and has not ended.
fn runs(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
    stat.is_ok_and(|stat| !stat.contains(") Z "))
}

#[tokio::test]
async fn what_a_marked_program_has_started_is_found_wherever_it_went() {
    // Out of the session; and out of the hands of its parents, without an environment.
    let script = "setsid sh -c 'echo $$; exec sleep 1000 >&-' & \
                  (setsid env -i /bin/sh -c 'echo $$; exec /bin/sleep 1000 >&-' &)";
    let (marked, other) = (Mark::new(), Mark::new());
    let start = async |mark| {
        let command = Command {
            mark: Some(mark),
            ..shell(script)
        };
        let (exit, said) = run(command).await;
        let pids: Vec<_> = said.lines().map(ToOwned::to_owned).collect();
        assert_eq!((exit, pids.len()), (Exit::Code(0), 2), "{said}");
        pids
    };
    let (killed, spared) = (start(marked).await, start(other).await);
    Mark::kill_all(&[marked].into());
    let left: Vec<_> = killed.iter().filter(|pid| runs(pid)).collect();
    assert!(left.is_empty(), "{left:?}");
    assert!(spared.iter().all(|pid| runs(pid)), "{spared:?}");
    Mark::kill_all(&[other].into());
    assert!(!spared.iter().any(|pid| runs(pid)), "{spared:?}");
}

/// Each process starts the next one and ends, faster than somebody can look at all of them.
#[tokio::test]
async fn whoever_forks_on_is_found_too() {
    let script = "next() { [ $1 -gt 0 ] || exec sleep 1000; next $(($1 - 1)) & }; next 300 &";
    for round in 0..12 {
        let mark = Mark::new();
        let command = Command {
            stdout: Stream::Null,
            mark: Some(mark),
            ..shell(script)
        };
        let spawner = Spawner::start().unwrap();
        let mut child = spawner.spawn(command).await.unwrap();
        child.process.wait().await.unwrap();
        Mark::kill_all(&[mark].into());
        tokio::time::sleep(Duration::from_millis(20)).await;
        let left = Mark::kill_all(&[mark].into());
        assert!(left.is_empty(), "round {round}: {left:?}");
    }
}

#[tokio::test]
async fn the_environment_is_what_was_given_and_nothing_else() {
    let mut command = shell("/usr/bin/env | grep -v -e ^PWD= -e ^SHLVL= -e ^_=");
    command.env.push(("GIVEN".into(), "yes".into()));
    let (_, said) = run(command).await;
    assert_eq!(said, "PATH=/usr/bin:/bin\nGIVEN=yes\n");
}

#[tokio::test]
async fn what_is_passed_becomes_descriptors_3_and_4() {
    let (mut ours, theirs) = pipe().unwrap();
    let (back, mut there) = pipe().unwrap();
    there.write_all(b"there and back").unwrap();
    drop(there);
    let mut command = shell("cat <&3 >&4");
    command.passed = vec![back.into(), theirs.into()];
    assert_eq!(run(command).await.0, Exit::Code(0));
    let mut said = String::new();
    ours.read_to_string(&mut said).unwrap();
    assert_eq!(said, "there and back");
}

#[tokio::test]
async fn no_other_descriptor_of_the_server_reaches_the_child() {
    let _open = std::fs::File::open("/dev/null").unwrap();
    let (_, said) = run(shell("ls /proc/self/fd | tr '\\n' ' '")).await;
    // 3 is the folder that `ls` itself reads.
    assert_eq!(said, "0 1 2 3 ");
}

#[tokio::test]
async fn a_child_is_killed_before_the_server_when_memory_is_short() {
    let own = std::fs::read_to_string("/proc/self/oom_score_adj").unwrap();
    let own: i32 = own.trim().parse().unwrap();
    let (_, said) = run(shell("cat /proc/self/oom_score_adj")).await;
    assert_eq!(said.trim().parse(), Ok((own + 500).min(1000)));
}

#[tokio::test]
async fn a_killed_child_tells_the_signal_and_its_own_children_go_too() {
    let spawner = Spawner::start().unwrap();
    let mut child = spawner
        .spawn(shell("sleep 1000 & echo $!; wait"))
        .await
        .unwrap();
    let mut line = [0; 32];
    let stdout = child.stdout.take().unwrap();
    assert!(rustix::io::read(&stdout, &mut line).unwrap() > 0);
    child.process.kill_group();
    assert_eq!(child.process.wait().await.unwrap(), Exit::Signal(9));
    assert_eq!(Exit::Signal(9).to_string(), "signal 9 (SIGKILL)");
    // The pipe's other end is closed only when the grandchild is gone too.
    assert_eq!(rustix::io::read(&stdout, &mut line).unwrap(), 0);
}

#[tokio::test]
async fn a_child_that_a_debugger_holds_back_keeps_nobody_else_waiting() {
    let spawner = Spawner::start().unwrap();
    let mut child = spawner.spawn(shell("sleep 1000")).await.unwrap();
    // Attaches, and lets go when its input ends: 0x4206 is PTRACE_SEIZE.
    let attach = format!(
        "$| = 1; print syscall({}, 0x4206, {}, 0, 0) == 0 ? 'y' : 'n'; <STDIN>",
        nix::libc::SYS_ptrace,
        child.process.pid()
    );
    let mut debugger = std::process::Command::new("perl")
        .args(["-e", &attach])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut attached = [0];
    let stdout = debugger.stdout.as_mut().unwrap();
    stdout.read_exact(&mut attached).unwrap();
    child.process.kill_group();
    if attached == *b"y" {
        let held = Duration::from_millis(100);
        let wait = tokio::time::timeout(held, child.process.wait());
        assert!(wait.await.is_err(), "the debugger has not let go");
    }
    drop(debugger.stdin.take());
    let wait = tokio::time::timeout(Duration::from_secs(30), child.process.wait());
    assert_eq!(wait.await.unwrap().unwrap(), Exit::Signal(9));
    debugger.wait().unwrap();
}

#[tokio::test]
async fn an_ended_child_tells_how_much_memory_it_had() {
    const MB: u64 = 1 << 20;
    let spawner = Spawner::start().unwrap();
    // A hundred megabytes in a variable of the shell, then no more of it.
    let script = "x=$(head -c 100000000 /dev/zero | tr '\\0' x); x=; kill -KILL $$";
    let mut child = spawner.spawn(shell(script)).await.unwrap();
    assert_eq!(child.process.peak_memory(), None);
    assert_eq!(child.process.wait().await.unwrap(), Exit::Signal(9));
    let peak = child.process.peak_memory().unwrap();
    assert!((100 * MB..2000 * MB).contains(&peak), "{peak}");
    let cpu = child.process.cpu().unwrap();
    assert!(!cpu.is_zero() && cpu.as_secs() < 60, "{cpu:?}");
}

#[tokio::test]
async fn a_signal_after_the_end_is_nothing() {
    let spawner = Spawner::start().unwrap();
    let mut child = spawner.spawn(shell("exit 0")).await.unwrap();
    child.process.wait().await.unwrap();
    child.process.signal(Signal::Terminate);
    child.process.kill_group();
    assert_eq!(child.process.try_wait().unwrap(), Some(Exit::Code(0)));
}

#[tokio::test]
async fn what_cannot_be_started_is_named() {
    let spawner = Spawner::start().unwrap();
    let mut command = shell("");
    command.program = "/nope/php".into();
    let error = spawner.spawn(command).await.unwrap_err();
    assert_eq!(error.to_string(), "`/nope/php` was not found");
    let mut command = shell("");
    command.cwd = "/nope".into();
    let error = spawner.spawn(command).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "the working folder `/nope` was not found"
    );
}

#[tokio::test]
async fn children_end_when_the_spawners_thread_ends() {
    let spawner = Spawner::start().unwrap();
    let mut child = spawner.spawn(shell("exec sleep 1000")).await.unwrap();
    drop(spawner);
    assert_eq!(child.process.wait().await.unwrap(), Exit::Signal(15));
}

#[tokio::test]
async fn a_child_runs_as_the_user_it_was_given() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let mut command = shell("id -un; id -Gn");
    command.credentials = Some(Credentials::look_up("www-data", None).unwrap());
    assert_eq!(run(command).await.1, "www-data\nwww-data\n");
}

/// The same shell by its path, which is started without a copy of this process.
fn light(script: &str) -> Command {
    Command {
        program: "/bin/sh".into(),
        ..shell(script)
    }
}

#[tokio::test]
async fn a_program_by_its_path_is_started_the_same() {
    assert_eq!(
        run(light("echo hello; exit 7")).await,
        (Exit::Code(7), "hello\n".into())
    );
    let mut command = light("/usr/bin/env | grep -v -e ^PWD= -e ^SHLVL= -e ^_=; pwd");
    command.env.push(("GIVEN".into(), "yes".into()));
    command.cwd = "/usr".into();
    assert_eq!(
        run(command).await.1,
        "PATH=/usr/bin:/bin\nGIVEN=yes\n/usr\n"
    );
    let (_, said) = run(light("kill -PIPE $$")).await;
    assert_eq!(said, "");
    assert_eq!(run(light("kill -PIPE $$")).await.0, Exit::Signal(13));
    // Its own group, no descriptors of others, nothing blocked or ignored.
    let _open = std::fs::File::open("/dev/null").unwrap();
    let script = "ls /proc/$$/fd | tr '\\n' ' '; grep -E '^Sig(Blk|Ign)' /proc/self/status; [ \"$(ps -o pgid= $$ | tr -d ' ')\" = $$ ] && echo group";
    let (_, said) = run(light(script)).await;
    assert!(said.starts_with("0 1 2 "), "{said}");
    assert!(said.contains("SigBlk:\t0000000000000000"), "{said}");
    let (_, ignored) = said.split_once("SigIgn:\t").unwrap();
    let ignored = u64::from_str_radix(ignored.get(..16).unwrap(), 16).unwrap();
    assert_eq!(ignored & 0x7fff_ffff, 0, "{said}");
    assert!(said.ends_with("group\n"), "{said}");
}

#[tokio::test]
async fn a_program_gets_what_is_open_already() {
    let mut file = std::fs::File::from(
        rustix::fs::open(
            std::env::temp_dir(),
            rustix::fs::OFlags::TMPFILE | rustix::fs::OFlags::RDWR,
            rustix::fs::Mode::RWXU,
        )
        .unwrap(),
    );
    file.write_all(b"from a file").unwrap();
    io::Seek::rewind(&mut file).unwrap();
    let mut command = light("cat");
    command.stdin = Stream::File(file.into());
    assert_eq!(run(command).await.1, "from a file");
}

#[tokio::test]
async fn what_is_no_program_says_so_and_leaves_no_child() {
    let spawner = Spawner::start().unwrap();
    let directory = Directory::new();
    let file = directory.join("script");
    let start = async |text: &str, mode: u32| {
        use std::os::unix::fs::PermissionsExt as _;
        std::fs::write(&file, text).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
        let mut command = light("");
        command.program = file.clone().into();
        match spawner.spawn(command).await.unwrap_err() {
            SpawnError::Failed { source, .. } => source.raw_os_error(),
            SpawnError::NotFound { .. } => Some(2),
            other => panic!("{other}"),
        }
    };
    assert_eq!(start("#!/bin/sh\n", 0o644).await, Some(13));
    assert_eq!(start("echo no interpreter\n", 0o755).await, Some(8));
    assert_eq!(start("#!/bin/nope\n", 0o755).await, Some(2));
    let mut command = light("");
    command.program = "/bin/a\0b".into();
    assert!(spawner.spawn(command).await.is_err());
}

#[tokio::test]
async fn an_environment_that_is_too_long_is_told_with_its_longest_variable() {
    let spawner = Spawner::start().unwrap();
    // By each of the two ways to start a program.
    for program in ["sh", "/bin/sh"] {
        let mut command = shell("");
        command.program = program.into();
        command
            .env
            .push(("SECRETS".into(), "s3cret".repeat(40_000).into()));
        command.env.push(("SHORT".into(), "x".into()));
        let error = spawner.spawn(command).await.unwrap_err();
        let SpawnError::Failed { source, .. } = &error else {
            panic!("{error:?}")
        };
        let said = source.to_string();
        assert!(
            said.starts_with("argument list too long: the variable `SECRETS` has 240008 bytes"),
            "{said}"
        );
        assert!(!said.contains("s3cret"), "{said}");
    }
}
