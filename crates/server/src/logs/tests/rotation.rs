//! Files that are replaced when they grow.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::{PermissionsExt, chown, lchown, symlink};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use flate2::read::GzDecoder;
use pronghorn_testkit::Directory;
use rustix::fs::{Mode, mkfifoat};

use super::{Rig, settings};
use crate::logs::complaints::Complaints;
use crate::logs::file::{self, Rotating};
use crate::logs::queue::Batch;

const HOUR: Duration = Duration::from_secs(3600);

/// `app.log` in a directory, with these options.
struct Case {
    rig: Rig,
    directory: Directory,
    options: &'static str,
}

impl Case {
    fn new(options: &'static str) -> Self {
        Self {
            rig: Rig::new(),
            directory: Directory::new(),
            options,
        }
    }

    fn open(&self) -> Rotating {
        self.open_as(file::open(Path::new("/"), &self.directory.join("app.log")).unwrap())
    }

    fn open_as(&self, file: File) -> Rotating {
        let path = self.directory.join("app.log");
        let options = format!("log_output: '{}', {}", path.display(), self.options);
        let settings = settings(&format!("file_logger_options: {{{options}}}"));
        let complaints = Arc::new(Complaints::new("`app.log`", &self.rig.host()));
        let log = settings.target.file.expect("options");
        Rotating::new(&path, file, &log, self.rig.clock(), complaints)
    }

    /// Writes these records at once and waits for what follows.
    fn write(&self, records: &[&str]) {
        let mut file = self.open();
        assert!(file.write(&batch(records)).is_ok());
        file.wait_until_tidy();
    }

    fn old(&self, stamp: &str, content: &str) {
        fs::write(self.directory.join(format!("app-{stamp}.log")), content).unwrap();
    }
}

fn batch(records: &[&str]) -> Batch {
    let mut batch = Batch::default();
    for record in records {
        batch.push(record);
    }
    batch
}

fn unpacked(path: &Path) -> String {
    let mut text = String::new();
    GzDecoder::new(File::open(path).unwrap())
        .read_to_string(&mut text)
        .unwrap();
    text
}

#[test]
fn a_full_file_is_set_aside_between_two_records() {
    let case = Case::new("max_size: 10B");
    case.write(&[
        "1234\n",
        "1234\n",
        "next\n",
        "larger than a file\n",
        "last\n",
    ]);
    assert_eq!(
        case.directory.names(),
        [
            "app-2026-11-21T19-26-15.123.log",
            "app-2026-11-21T19-26-15.124.log",
            "app-2026-11-21T19-26-15.125.log",
            "app.log"
        ],
        "no old file replaces another"
    );
    assert_eq!(
        case.directory.read("app-2026-11-21T19-26-15.123.log"),
        "1234\n1234\n"
    );
    assert_eq!(
        case.directory.read("app-2026-11-21T19-26-15.124.log"),
        "next\n"
    );
    assert_eq!(
        case.directory.read("app-2026-11-21T19-26-15.125.log"),
        "larger than a file\n"
    );
    assert_eq!(case.directory.read("app.log"), "last\n");

    // What an earlier server wrote counts.
    case.rig.advance(HOUR);
    case.write(&["12345\n"]);
    assert_eq!(
        case.directory.read("app-2026-11-21T20-26-15.123.log"),
        "last\n"
    );
    assert_eq!(case.directory.read("app.log"), "12345\n");
    let mode = fs::metadata(case.directory.join("app.log"))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o640);
}

#[test]
fn too_many_and_too_old_files_are_removed_and_no_others() {
    let case = Case::new("max_size: 10B, max_backups: 3, max_age: 2");
    case.old("2026-11-19T19-26-15.122", "older than two days");
    case.old("2026-11-19T19-26-15.123", "two days");
    case.old("2026-11-20T00-00-00.000", "one day");
    let others = [
        "app-2020-01-01.log",
        "app-2020-01-01T00-00-00.00x.log",
        "app-2020-01-01T00-00-00.000.txt",
        "app-2020-01-01T00-00-00.000.log.bz2",
        "app2-2020-01-01T00-00-00.000.log",
        "napp-2020-01-01T00-00-00.000.log",
    ];
    for other in others {
        fs::write(case.directory.join(other), "").unwrap();
    }
    let mut expected: Vec<&str> = others.to_vec();
    expected.extend([
        "app-2026-11-19T19-26-15.123.log",
        "app-2026-11-20T00-00-00.000.log",
        "app.log",
    ]);
    expected.sort_unstable();
    case.write(&["1\n"]);
    assert_eq!(case.directory.names(), expected, "the start tidies too");

    case.write(&["123456789\n", "123456789\n", "123456789\n"]);
    expected.retain(|name| *name != "app-2026-11-19T19-26-15.123.log");
    expected.retain(|name| *name != "app-2026-11-20T00-00-00.000.log");
    expected.extend([
        "app-2026-11-21T19-26-15.123.log",
        "app-2026-11-21T19-26-15.124.log",
        "app-2026-11-21T19-26-15.125.log",
    ]);
    expected.sort_unstable();
    assert_eq!(case.directory.names(), expected, "three are kept");
}

#[test]
fn old_files_of_a_clock_that_was_ahead_go_first() {
    let case = Case::new("max_size: 10B, max_backups: 3, max_age: 2");
    case.old("2026-11-21T18-00-00.000", "before");
    case.old("2026-11-21T20-26-15.123", "an hour ahead");
    case.old("2040-01-01T00-00-00.000", "years ahead");
    case.write(&["1\n"]);
    assert_eq!(case.directory.names().len(), 4, "all have their places");
    case.write(&["123456789\n", "123456789\n"]);
    let kept = [
        "app-2026-11-21T18-00-00.000.log",
        "app-2026-11-21T19-26-15.123.log",
        "app-2026-11-21T19-26-15.124.log",
        "app.log",
    ];
    assert_eq!(case.directory.names(), kept);
}

#[test]
fn old_files_are_compressed() {
    let case = Case::new("max_size: 10B, max_backups: 3, compress: true");
    case.old("2026-11-20T00-00-00.000", "left uncompressed");
    let unfinished = "app-2026-11-20T01-00-00.000.log.gz.part";
    fs::write(case.directory.join(unfinished), "half of it").unwrap();
    case.old("2026-11-20T01-00-00.000", "left in the middle");
    case.write(&["123456789\n", "new\n"]);
    let names = case.directory.names();
    assert_eq!(
        names,
        [
            "app-2026-11-20T00-00-00.000.log.gz",
            "app-2026-11-20T01-00-00.000.log.gz",
            "app-2026-11-21T19-26-15.123.log.gz",
            "app.log"
        ]
    );
    let content: Vec<String> = names[..3]
        .iter()
        .map(|name| unpacked(&case.directory.join(name)))
        .collect();
    assert_eq!(
        content,
        ["left uncompressed", "left in the middle", "123456789\n"]
    );
    let mode = fs::metadata(case.directory.join(&names[0]))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o640);

    case.rig.advance(HOUR);
    case.write(&["123456789\n"]);
    let names = case.directory.names();
    assert_eq!(names.len(), 4, "compressed ones count: {names:?}");
    assert!(!names.contains(&"app-2026-11-20T00-00-00.000.log.gz".to_owned()));
}

#[test]
fn nothing_but_a_plain_file_is_compressed() {
    let case = Case::new("max_size: 1B, compress: true");
    fs::write(case.directory.join("precious"), "precious").unwrap();
    let old = |day: u32| {
        let name = format!("app-2026-11-{day}T00-00-00.000.log");
        case.directory.join(&name)
    };
    symlink("precious", old(10)).unwrap();
    mkfifoat(rustix::fs::CWD, old(11), Mode::RUSR | Mode::WUSR).unwrap();
    fs::create_dir(old(12)).unwrap();
    case.write(&["one"]);
    for day in 10..=12 {
        let mut compressed = old(day).into_os_string();
        compressed.push(".gz");
        assert!(!Path::new(&compressed).exists(), "{compressed:?}");
        compressed.push(".part");
        assert!(!Path::new(&compressed).exists(), "{compressed:?}");
    }
    assert_eq!(case.directory.read("precious"), "precious");
}

#[test]
fn a_file_that_cannot_be_replaced_grows_on() {
    let case = Case::new("max_size: 10B");
    let mut file = case.open();
    assert!(file.write(&batch(&["123456789\n"])).is_ok());
    let path = case.directory.join("app.log");
    let other_name = case.directory.join("other");
    fs::rename(&path, &other_name).unwrap();
    for record in ["a\n", "b\n", "c\n"] {
        assert!(file.write(&batch(&[record])).is_ok());
    }
    assert_eq!(
        fs::read_to_string(&other_name).unwrap(),
        "123456789\na\nb\nc\n"
    );
    let complaints = case.rig.complaints.take();
    assert_eq!(complaints.lines().count(), 1, "{complaints}");
    assert!(
        complaints.contains("app.log` is not replaced and grows on: cannot rename it to `"),
        "{complaints}"
    );

    fs::rename(&other_name, &path).unwrap();
    assert!(file.write(&batch(&["123456789\n"])).is_ok());
    assert_eq!(
        case.directory.read("app.log"),
        "123456789\n",
        "tried again after as much"
    );
    file.wait_until_tidy();
}

#[test]
fn records_that_cannot_be_written_fill_no_file() {
    let case = Case::new("max_size: 10B");
    fs::write(case.directory.join("app.log"), "1\n").unwrap();
    let cannot_be_written = File::open(case.directory.join("app.log")).unwrap();
    let mut file = case.open_as(cannot_be_written);
    for _ in 0..3 {
        let failed = file.write(&batch(&["1234\n", "1234\n"])).err();
        assert_eq!(failed.expect("it is open for reading").lost, 2);
    }
    file.wait_until_tidy();
    assert_eq!(case.directory.names(), ["app.log"]);
}

/// As an application's user makes it, who owns the directory of the log's.
#[test]
fn a_directory_that_is_a_strangers_link_gets_no_record() {
    const STRANGER: u32 = 65534;
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root makes files of others");
        return;
    }
    let directory = Directory::with(&[("app/lg/x", ""), ("roots/x", "")]);
    let at = |name: &str| directory.join(name);
    for name in ["app", "app/lg"] {
        chown(at(name), Some(STRANGER), None).unwrap();
    }
    let open = || file::open(&directory, Path::new("app/lg/acc.log"));
    open().unwrap();
    fs::rename(at("app/lg"), at("app/away")).unwrap();
    symlink("../roots", at("app/lg")).unwrap();
    lchown(at("app/lg"), Some(STRANGER), None).unwrap();
    let refused = open().unwrap_err().to_string();
    assert!(refused.contains("symbolic link of user 65534"), "{refused}");
    assert!(!at("roots/acc.log").exists());
    // It is root's that is meant, as the whole configuration may lie behind a stranger's.
    lchown(at("app/lg"), Some(0), None).unwrap();
    open().unwrap();
    assert!(at("roots/acc.log").exists());
    symlink("app", at("current")).unwrap();
    lchown(at("current"), Some(STRANGER), None).unwrap();
    file::open(&at("current"), Path::new("own.log")).unwrap();
    assert!(at("app/own.log").exists());
}

/// Nothing is renamed, compressed or removed in a directory that takes the place of the log's.
#[test]
fn old_files_are_set_aside_in_the_logs_own_directory() {
    const STRANGER: u32 = 65534;
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root makes files of others");
        return;
    }
    let case = Case::new("max_size: 10B, max_backups: 1");
    let roots = Directory::with(&[
        ("app.log", "root's"),
        ("app-2020-01-01T00-00-00.000.log", ""),
    ]);
    chown(&*case.directory, Some(STRANGER), None).unwrap();
    let mut file = case.open();
    assert!(file.write(&batch(&["1234\n"])).is_ok());
    let away = Directory::new();
    fs::remove_dir(&*away).unwrap();
    fs::rename(&*case.directory, &*away).unwrap();
    symlink(&*roots, &*case.directory).unwrap();
    lchown(&*case.directory, Some(STRANGER), None).unwrap();
    assert!(file.write(&batch(&["56789\n", "next\n"])).is_ok());
    file.wait_until_tidy();
    assert_eq!(
        roots.names(),
        ["app-2020-01-01T00-00-00.000.log", "app.log"]
    );
    assert_eq!(fs::read_to_string(roots.join("app.log")).unwrap(), "root's");
    fs::remove_file(&*case.directory).unwrap();
    fs::rename(&*away, &*case.directory).unwrap();
}
