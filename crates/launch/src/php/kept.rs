//! Answers of PHPs about themselves from earlier starts, in one file.
//!
//! PHP takes tens of milliseconds for its answer, and the first start of a pool waits for it. An
//! answer is used if all that it depends on is as it was. It depends on files that only PHP can
//! name, so they are known after it has read them. One answer is therefore not enough: it counts
//! once a second question has got the same one, with the files alike before and after.

use std::ffi::{OsStr, OsString};
use std::fs::{File, read_dir};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io::{self, BufReader, Read as _, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use pronghorn_base::Trusted;
use pronghorn_process::Command;
use rustix::fs::{AtFlags, Mode, OFlags, openat, renameat, unlinkat};
use rustix::process::{getegid, geteuid, getgroups};
use serde::{Deserialize, Serialize};

/// The directories in which PHP looks for settings beside `php.ini`.
pub(super) const SCAN: &str = "PHP_INI_SCAN_DIR";
/// The directory in which PHP looks for `php.ini` first.
pub(super) const RC: &str = "PHPRC";
/// In the directory for answers.
const FILE: &str = "php-answers";
/// The file that becomes it. A server that was killed may have left one.
const DRAFT: &str = "php-answers.new";
/// Answers in it, the last ones. A server has a few PHPs, a user a few servers.
const KEPT: usize = 16;
/// An answer has some 20 KB.
const LONGEST: u64 = 1 << 20;
/// In seconds. A change that is younger may have the same time as another one: some file systems
/// count whole seconds, or two.
const SETTLED: i64 = 3;
/// Begins the line in which PHP names what its answer stands on.
const STANDS_ON: &str = "pronghorn-stands-on\0";
/// Variables that systemd gives another value at each start.
const OF_ONE_START: [&str; 6] = [
    "INVOCATION_ID",
    "JOURNAL_STREAM",
    "LISTEN_PID",
    "MAINPID",
    "SYSTEMD_EXEC_PID",
    "WATCHDOG_PID",
];

/// A question, and where its answer may be known from.
pub(super) struct AskedPhp<'a> {
    directory: &'a Path,
    /// Stands for the question, who asks, the release of the server and the boot of the machine.
    asked: u64,
    /// Where PHP looks for settings, by its command line and environment.
    places: Vec<PathBuf>,
    program: PathBuf,
    cwd: PathBuf,
    before: Option<KeptAnswer>,
}

#[derive(Deserialize, Serialize)]
struct KeptAnswer {
    asked: u64,
    /// Stands for all that was found out about the paths.
    facts: u64,
    is_confirmed: bool,
    paths: Vec<PathBuf>,
    said: String,
}

impl<'a> AskedPhp<'a> {
    /// None where it can't be told what the answer depends on.
    pub(super) fn new(directory: &'a Path, question: &Command) -> Option<Self> {
        // Another user may not be able to read what this one sees.
        question.credentials.is_none().then_some(())?;
        let asked = hash_of(question)?;
        let found = read(directory).into_iter().find(|it| it.asked == asked);
        Some(Self {
            directory,
            asked,
            places: places(question)?,
            program: Path::new(&question.program).canonicalize().ok()?,
            cwd: question.cwd.clone(),
            before: found.filter(|it| Facts::of(&it.paths).sum() == it.facts),
        })
    }

    pub(super) fn answer(&self) -> Option<&str> {
        let entry = self.before.as_ref()?;
        entry.is_confirmed.then_some(&*entry.said)
    }

    /// Takes down all that PHP has printed. A failure means another question at the next start.
    pub(super) fn note(&self, printed: &str, now_s: i64) {
        if let Some(entry) = self.entry(printed, now_s) {
            _ = self.write(entry);
        }
    }

    fn entry(&self, printed: &str, now_s: i64) -> Option<KeptAnswer> {
        // A name that is no UTF-8, or that the kernel writes with a backslash, is not the file's.
        let is_plain = !printed.contains([char::REPLACEMENT_CHARACTER, '\\']);
        let lines = printed.strip_prefix('\n').filter(|_| is_plain)?;
        // All else that is printed complains, of an extension that is not there yet for instance.
        let (said, named) = lines.strip_suffix('\n')?.split_once('\n')?;
        let named = named.strip_prefix(STANDS_ON)?.split('\0');
        let mut paths: Vec<_> = named.map(|path| self.cwd.join(path)).collect();
        // A program that has started PHP, a script for instance, may have asked anything.
        paths.contains(&self.program).then_some(())?;
        paths.extend_from_slice(&self.places);
        let facts = Facts::of(&paths);
        let is_settled = facts.last_change.saturating_add(SETTLED) < now_s;
        let is_same = |before: &KeptAnswer| {
            (before.facts, &before.paths, &*before.said) == (facts.sum(), &paths, said)
        };
        Some(KeptAnswer {
            asked: self.asked,
            facts: facts.sum(),
            is_confirmed: is_settled && self.before.as_ref().is_some_and(is_same),
            paths,
            said: said.to_owned(),
        })
    }

    fn write(&self, entry: KeptAnswer) -> io::Result<()> {
        let mut entries = read(self.directory);
        entries.retain(|known| known.asked != self.asked);
        entries.insert(0, entry);
        entries.truncate(KEPT);
        let text = serde_json::to_vec(&entries)?;
        let directory = trusted().make_directory(self.directory, 0o700)?;
        _ = unlinkat(&directory, DRAFT, AtFlags::empty()); // mostly there is none
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let draft = openat(&directory, DRAFT, flags, Mode::RUSR | Mode::WUSR)?;
        File::from(draft).write_all(&text)?;
        Ok(renameat(&directory, DRAFT, &directory, FILE)?)
    }
}

/// Answers decide which extension a worker loads: this user and root alone may have written them.
fn trusted() -> Trusted {
    Trusted::alone(geteuid().as_raw())
}

/// Empty where another server is writing them, for instance.
fn read(directory: &Path) -> Vec<KeptAnswer> {
    let file = trusted().open(&directory.join(FILE));
    let text = file.map(|file| BufReader::new(file.take(LONGEST)));
    let entries = text.and_then(|text| Ok(serde_json::from_reader(text)?));
    entries.unwrap_or_default()
}

/// None where the loader of programs is told where to look. What it finds there is not known.
fn hash_of(question: &Command) -> Option<u64> {
    let mut hasher = DefaultHasher::new();
    for (name, value) in &question.env {
        if name.as_bytes().starts_with(b"LD_") {
            return None;
        }
        if OF_ONE_START.iter().all(|it| name != it) {
            (name, value).hash(&mut hasher);
        }
    }
    (&question.program, &question.args, &question.cwd).hash(&mut hasher);
    (geteuid().as_raw(), getegid().as_raw()).hash(&mut hasher);
    for group in getgroups().ok()? {
        group.as_raw().hash(&mut hasher);
    }
    let boot = std::fs::read("/proc/sys/kernel/random/boot_id").ok()?;
    (env!("CARGO_PKG_VERSION"), boot).hash(&mut hasher);
    Some(hasher.finish())
}

/// Where PHP may find settings beside the places that it names, and what leads to it. None where an
/// option is not known here.
fn places(question: &Command) -> Option<Vec<PathBuf>> {
    let (mut lists, mut loaded) = (Vec::new(), Vec::new());
    let mut options = question.args.iter();
    while let Some(option) = options.next() {
        match option.as_bytes() {
            b"-d" => loaded.extend(options.next().and_then(library)),
            b"-r" => _ = options.next(),
            b"-c" => lists.push(options.next()?),
            [b'-', b'd', ..] => loaded.extend(library(option)),
            b"-n" => {}
            _ => return None,
        }
    }
    let variable = |name: &str| question.env.iter().rfind(|it| it.0 == name).map(|it| &it.1);
    lists.extend(variable(RC));
    // It may also be the name of one file.
    let mut found: Vec<_> = lists.iter().map(PathBuf::from).collect();
    let program = PathBuf::from(&question.program);
    let real = program.canonicalize().ok()?;
    let beside = [&program, &real].into_iter().filter_map(|it| it.parent());
    let listed = lists.iter().flat_map(std::env::split_paths);
    for directory in listed.chain(beside.map(Path::to_owned)) {
        found.extend(["php.ini", "php-cli.ini"].map(|name| directory.join(name)));
    }
    let scanned = variable(SCAN).into_iter().flat_map(std::env::split_paths);
    found.extend(scanned.filter(|it| !it.as_os_str().is_empty()));
    found.extend(["/etc/ld.so.cache", "/etc/ld.so.preload"].map(PathBuf::from));
    found.push(program);
    found.append(&mut loaded);
    Some(found.iter().map(|path| question.cwd.join(path)).collect())
}

/// The path after `extension=` or `zend_extension=`, which may lead through links.
fn library(option: &OsString) -> Option<PathBuf> {
    let mut parts = option.as_bytes().splitn(2, |&byte| byte == b'=');
    let name = parts.next()?;
    let path = OsStr::from_bytes(parts.next()?.trim_ascii());
    name.trim_ascii_end()
        .ends_with(b"extension")
        .then(|| path.into())
}

/// All that can be seen of files without reading them.
#[derive(Default)]
struct Facts {
    hasher: DefaultHasher,
    /// When one of them was changed last, in seconds.
    last_change: i64,
}

impl Facts {
    /// A directory stands for the settings in it, too.
    fn of(paths: &[PathBuf]) -> Self {
        let mut facts = Self::default();
        for path in paths {
            facts.add(path);
            let entries = read_dir(path).into_iter().flatten().flatten();
            let mut settings: Vec<_> = entries.map(|entry| entry.path()).collect();
            settings.retain(|it| it.as_os_str().as_bytes().ends_with(b".ini"));
            settings.sort();
            for file in &settings {
                facts.add(file);
            }
        }
        facts
    }

    fn add(&mut self, path: &Path) {
        let hasher = &mut self.hasher;
        path.hash(hasher);
        let file = match path.metadata() {
            Ok(file) => file,
            Err(error) => return error.raw_os_error().hash(hasher),
        };
        (file.dev(), file.ino(), file.size()).hash(hasher);
        (file.mode(), file.uid(), file.gid()).hash(hasher);
        (file.mtime(), file.mtime_nsec()).hash(hasher);
        (file.ctime(), file.ctime_nsec()).hash(hasher);
        self.last_change = self.last_change.max(file.mtime()).max(file.ctime());
    }

    fn sum(&self) -> u64 {
        self.hasher.finish()
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{remove_file, rename, set_permissions};
    use std::os::unix::fs::{PermissionsExt, symlink};

    use pronghorn_base::now_ms;
    use pronghorn_process::{Limits, Stream};
    use pronghorn_testkit::Directory;

    use super::*;

    /// By then whatever a test has made is settled.
    const LATER: i64 = i64::MAX;

    fn machine() -> (Directory, Command) {
        let directory = Directory::with(&[
            ("php", "a program"),
            ("lib.so", "an extension"),
            ("conf.d/10.ini", "a=b"),
        ]);
        set_mode(&directory, "", 0o755);
        let question = Command {
            program: directory.join("php").into(),
            args: vec!["-d".into(), "a=b".into(), "-r".into(), "echo 1;".into()],
            env: vec![
                (SCAN.into(), directory.join("conf.d").into()),
                ("INVOCATION_ID".into(), "1".into()),
            ],
            cwd: directory.to_path_buf(),
            credentials: None,
            stdin: Stream::Null,
            stdout: Stream::Pipe,
            stderr: Stream::Pipe,
            passed: Vec::new(),
            mark: None,
            overtakes: false,
            limits: Limits::default(),
        };
        (directory, question)
    }

    fn set_mode(directory: &Directory, name: &str, mode: u32) {
        set_permissions(directory.join(name), PermissionsExt::from_mode(mode)).unwrap();
    }

    fn printed(directory: &Directory) -> String {
        let [lib, php] = ["lib.so", "php"].map(|name| directory.join(name));
        let [lib, php] = [lib.display(), php.display()];
        format!("\nthe answer\n{STANDS_ON}{lib}\0{php}\n")
    }

    fn learn_at(directory: &Directory, question: &Command, printed: &str, now: i64) {
        for _ in 0..2 {
            if let Some(kept) = AskedPhp::new(&directory.join("kept"), question) {
                kept.note(printed, now);
            }
        }
    }

    fn knows(directory: &Directory, question: &Command) -> bool {
        let place = directory.join("kept");
        let kept = AskedPhp::new(&place, question);
        let answer = kept.as_ref().and_then(AskedPhp::answer);
        assert!(matches!(answer, None | Some("the answer")), "{answer:?}");
        answer.is_some()
    }

    #[test]
    fn an_answer_counts_once_it_was_given_twice() {
        let (directory, question) = machine();
        let place = directory.join("kept");
        let whole = printed(&directory);
        for is_known in [false, false, true] {
            assert_eq!(knows(&directory, &question), is_known);
            let kept = AskedPhp::new(&place, &question).unwrap();
            kept.note(&whole, LATER);
            directory.write("kept/php-answers.new", "of a server that was killed");
        }
        let mode = |path: &Path| path.metadata().unwrap().mode() & 0o777;
        assert_eq!((mode(&place), mode(&place.join(FILE))), (0o700, 0o600));
        let kept = AskedPhp::new(&place, &question).unwrap();
        kept.note(&whole.replace("the answer", "another one"), LATER);
        assert!(!knows(&directory, &question));
    }

    #[test]
    fn a_file_that_changes_meanwhile_is_no_confirmation() {
        let (directory, question) = machine();
        let place = directory.join("kept");
        for content in ["a=1", "a=12", "a=123"] {
            let kept = AskedPhp::new(&place, &question).unwrap();
            directory.write("conf.d/10.ini", content);
            kept.note(&printed(&directory), LATER);
            assert!(!knows(&directory, &question));
        }
    }

    #[test]
    fn an_answer_counts_no_more_after_a_change() {
        type Change = fn(&Directory, &mut Command);
        const FILE: &str = "kept/php-answers";
        let changes: [(&str, bool, Change); 18] = [
            ("none", true, |_, _| ()),
            ("a variable of this start", true, |_, question| {
                question.env[1].1 = "2".into();
            }),
            ("a setting", false, |at, _| {
                at.write("conf.d/10.ini", "a=bc");
            }),
            ("settings without a name", false, |at, question| {
                at.write("conf.d/.ini", "a");
                learn_at(at, question, &printed(at), LATER);
                at.write("conf.d/.ini", "bc");
            }),
            ("new settings", false, |at, _| at.write("conf.d/20.ini", "")),
            ("settings that go", false, |at, _| {
                remove_file(at.join("conf.d/10.ini")).unwrap();
            }),
            ("a php.ini", false, |at, _| at.write("php-cli.ini", "")),
            ("an extension", false, |at, _| at.write("lib.so", "another")),
            ("a link to an extension", false, |at, question| {
                at.write("v1/x.so", "");
                at.write("v2/x.so", "");
                symlink("v1", at.join("now")).unwrap();
                let option = format!("extension={}", at.join("now/x.so").display());
                question.args[1] = option.into();
                learn_at(at, question, &printed(at), LATER);
                assert!(knows(at, question), "a link");
                symlink("v2", at.join("next")).unwrap();
                rename(at.join("next"), at.join("now")).unwrap();
            }),
            ("a program", false, |at, _| {
                at.write("new", "a program");
                rename(at.join("new"), at.join("php")).unwrap();
            }),
            ("rights", false, |at, _| {
                set_mode(at, "conf.d/10.ini", 0o600);
            }),
            ("a part", false, |at, _| {
                let text = at.read(FILE);
                at.write(FILE, text.strip_suffix(']').unwrap());
            }),
            ("a directory of others", false, |at, _| {
                set_mode(at, "kept", 0o777);
            }),
            ("a file of others", false, |at, _| set_mode(at, FILE, 0o666)),
            ("a link", false, |at, _| {
                rename(at.join(FILE), at.join("elsewhere")).unwrap();
                set_mode(at, "elsewhere", 0o666);
                symlink("../elsewhere", at.join(FILE)).unwrap();
            }),
            ("a variable", false, |_, question| {
                question.env.push(("XDEBUG_MODE".into(), "off".into()));
            }),
            ("an option", false, |_, question| {
                question.args.insert(0, "-n".into());
            }),
            ("a directory", false, |_, question| {
                question.cwd = "/".into();
            }),
        ];
        for (name, is_known, change) in changes {
            let (directory, mut question) = machine();
            learn_at(&directory, &question, &printed(&directory), LATER);
            assert!(knows(&directory, &question), "{name}");
            change(&directory, &mut question);
            assert_eq!(knows(&directory, &question), is_known, "{name}");
        }
    }

    #[test]
    fn what_it_depends_on_must_be_known() {
        let (directory, usual) = machine();
        let whole = printed(&directory);
        let now = (now_ms() / 1000).cast_signed();
        for (printed, now) in [
            (format!("\nWarning: no x.so{whole}"), LATER),
            (whole.replace("/php\n", "/other\n"), LATER),
            (whole.replace("lib", "l\u{fffd}b"), LATER),
            (whole.replace("lib", "l\\012b"), LATER),
            ("\nthe answer\n".to_owned(), LATER),
            (whole.clone(), now),
        ] {
            learn_at(&directory, &usual, &printed, now);
            assert!(!knows(&directory, &usual), "{printed}");
        }
        let changes: [fn(&mut Command); 2] = [
            |question| question.args.insert(0, "-z".into()),
            |question| question.env.push(("LD_PRELOAD".into(), "x".into())),
        ];
        for change in changes {
            let (_, mut question) = machine();
            change(&mut question);
            assert!(AskedPhp::new(&directory, &question).is_none());
        }
    }

    #[test]
    fn the_last_answers_are_kept() {
        let (directory, mut question) = machine();
        let mut is_known = |number: usize, learns: bool| {
            question.args[1] = format!("a={number}").into();
            if learns {
                learn_at(&directory, &question, &printed(&directory), LATER);
            }
            knows(&directory, &question)
        };
        assert!((0..KEPT + 4).all(|number| is_known(number, true)));
        let known = (0..KEPT + 4).filter(|&number| is_known(number, false));
        assert!(known.eq(4..KEPT + 4));
    }
}
