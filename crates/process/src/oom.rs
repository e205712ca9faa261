//! Whom the kernel kills when memory is short: rather a worker, of which there are others, than the
//! server, which holds storages in memory and everybody's connections.

use std::fs;
use std::io;
use std::sync::LazyLock;

const OWN: &str = "/proc/self/oom_score_adj";
/// The kernel compares what processes use, in thousandths of all memory that they may: a server is
/// killed first when it has half of that more than a worker.
const MORE: i32 = 500;
/// The kernel's largest value.
const MOST: i32 = 1000;

/// The value of children. `None`: this process can't tell its own, or has the largest.
static OF_CHILDREN: LazyLock<Option<String>> = LazyLock::new(|| {
    let own: i32 = fs::read_to_string(OWN).ok()?.trim().parse().ok()?;
    (own < MOST).then(|| (own + MORE).min(MOST).to_string())
});

/// In the server, before the fork.
pub(crate) fn of_children() -> Option<&'static str> {
    OF_CHILDREN.as_deref()
}

/// In the child, which then is killed first. Only system calls; before the change of user, after
/// which the file is root's.
pub(crate) fn prefer_this(value: &str) {
    use rustix::fs::{Mode, OFlags, open};
    let written = || -> io::Result<()> {
        let file = open(OWN, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
        rustix::io::write(file, value.as_bytes())?;
        Ok(())
    };
    _ = written(); // without /proc, all is as it was
}
