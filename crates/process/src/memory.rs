//! The memory that this machine, or the container around this process, allows.

use std::fs;
use std::path::Path;

/// Bytes that this process may take: of the machine, and of the groups that it is in.
pub fn allowed() -> Option<u64> {
    let machine = fs::read_to_string("/proc/meminfo").ok();
    let machine = machine.and_then(|text| of_machine(&text));
    machine.into_iter().chain(of_control_group()).min()
}

/// Bytes that the control groups of this process, and so its children, may take together: of a
/// container, or of a unit of systemd. Beyond them the kernel kills.
pub fn of_control_group() -> Option<u64> {
    let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    of_groups(Path::new("/sys/fs/cgroup"), &own)
}

fn of_machine(meminfo: &str) -> Option<u64> {
    let line = meminfo
        .lines()
        .find_map(|it| it.strip_prefix("MemTotal:"))?;
    let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kilobytes.checked_mul(1024)
}

/// The limit of the group and of all above it. The old kind of groups is below a directory of its
/// own.
fn of_groups(root: &Path, own: &str) -> Option<u64> {
    let limits = own.lines().filter_map(|line| {
        let mut parts = line.splitn(3, ':');
        let (_, kinds, path) = (parts.next()?, parts.next()?, parts.next()?);
        let path = path.trim_start_matches('/');
        match kinds {
            "" => lowest(root, path, "memory.max"),
            _ if kinds.split(',').any(|kind| kind == "memory") => {
                lowest(&root.join("memory"), path, "memory.limit_in_bytes")
            }
            _ => None,
        }
    });
    limits.min()
}

fn lowest(root: &Path, path: &str, name: &str) -> Option<u64> {
    let own = root.join(path);
    let groups = own.ancestors().take_while(|group| group.starts_with(root));
    let limits = groups.filter_map(|group| {
        let text = fs::read_to_string(group.join(name)).ok()?;
        // `max` is none.
        text.trim().parse().ok()
    });
    limits.min()
}

#[cfg(test)]
mod tests {
    use pronghorn_testkit::Directory;

    use super::*;

    #[test]
    fn the_lowest_limit_of_a_group_and_those_above_it_counts() {
        let directory = Directory::new();
        fs::create_dir_all(directory.join("a/b")).expect("a directory");
        let write = |name: &str, text: &str| fs::write(directory.join(name), text).expect("a file");
        write("a/memory.max", "1000\n");
        write("a/b/memory.max", "max\n");
        assert_eq!(of_groups(&directory, "0::/a/b\n"), Some(1000));
        write("a/b/memory.max", "500\n");
        assert_eq!(of_groups(&directory, "0::/a/b\n"), Some(500));
        assert_eq!(of_groups(&directory, "0::/\n"), None);
        fs::create_dir_all(directory.join("memory/c")).expect("a directory");
        write("memory/c/memory.limit_in_bytes", "700\n");
        assert_eq!(
            of_groups(&directory, "3:cpu:/c\n2:memory:/c\n0::/x\n"),
            Some(700)
        );
    }

    #[test]
    fn a_machine_says_what_it_has() {
        assert_eq!(
            of_machine("MemTotal:  16 kB\nMemFree: 1 kB\n"),
            Some(16_384)
        );
        assert!(allowed().is_some_and(|bytes| bytes > 1 << 20));
    }
}
