//! Asks a PHP what it is.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::File;
use std::io::Read as _;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use pronghorn_base::{lock, now_ms};
use pronghorn_process::{Command, Credentials, Exit, Limits, SpawnError, Spawner, Stream};
use tokio::sync::OnceCell;
use tokio::time::{Instant, timeout};

use super::kept::AskedPhp;
use super::{PhpError, Program};
use crate::spec::LaunchSpec;

/// For a command that somebody waits for, of each PHP on the machine. PHP starts in 30 ms.
const LONGEST: Duration = Duration::from_secs(5);
/// What it says is shorter. One that fills the pipe is not waited for.
const LONGEST_ANSWER: u64 = 64 << 10;
/// An option that it is asked with, to see whether the command takes any.
const TRIAL: &str = "pronghorn.settings=asked";
/// It prints what it complains of: an answer beside a complaint holds for one start.
const COMPLAINING: [&str; 4] = ["-d", "display_errors=1", "-d", "display_startup_errors=1"];
/// Answers that are kept; a server has a few PHPs. Another one is asked again.
const KEPT: usize = 64;

/// Says it in one line that nothing else looks like, whatever is printed around it. `phpinfo` alone
/// knows the number of the API; where a php.ini forbids it, the folder of extensions is called so.
/// A second line names the files that the answer stands on.
const QUESTION: &str = r#"
ob_start(); if (function_exists('phpinfo')) { phpinfo(INFO_GENERAL); } $info = ob_get_clean();
preg_match('/PHP Extension => (\d+)/', $info, $api) || preg_match('/(\d{8})/', basename(PHP_EXTENSION_DIR), $api);
$jit = ['xdebug', 'pcov', 'uopz', 'Zend Extension Manager'];
echo "\n", implode("\t", [
    'pronghorn-asks', PHP_VERSION, ($api[1] ?? '?') . (PHP_ZTS ? '-zts' : '-nts') . (PHP_DEBUG ? '-debug' : ''),
    (int) extension_loaded('pronghorn'), (int) extension_loaded('Zend OPcache'),
    (int) is_file(ini_get('extension_dir') . '/opcache.so'),
    implode(' ', array_filter($jit, 'extension_loaded')), ini_get('memory_limit'), php_ini_loaded_file(),
    (int) ini_get('opcache.jit_buffer_size') > 0 ? ini_get('opcache.jit') : '',
    (string) phpversion('pronghorn'), PHP_BINDIR,
    (int) (!function_exists('get_cfg_var') || get_cfg_var('pronghorn.settings') === 'asked'),
    function_exists('ini_get_all') ? implode(' ', array_keys(ini_get_all(null, false))) : '*',
]), "\n";
$of = [php_ini_loaded_file(), ini_get('extension_dir'), ini_get('extension_dir') . '/opcache.so'];
array_push($of, PHP_CONFIG_FILE_PATH . '/php.ini', PHP_CONFIG_FILE_PATH . '/php-cli.ini');
$of = array_merge($of, explode(PATH_SEPARATOR, PHP_CONFIG_FILE_SCAN_DIR));
$maps = function_exists('file_get_contents') ? (string) @file_get_contents('/proc/self/maps') : '';
preg_match_all('~^\S+ \S{3}p \S+ \S+ \S+ +(/.+)$~m', $maps, $mapped);
$of = array_merge($of, $mapped[1]);
// Paths of mapped files have no links.
$scanned = function_exists('php_ini_scanned_files') ? (string) php_ini_scanned_files() : '';
$variable = false;
foreach (array_merge([php_ini_loaded_file()], array_map('trim', explode(',', $scanned))) as $ini) {
    $text = $ini && function_exists('file_get_contents') ? (string) @file_get_contents($ini) : '';
    preg_match_all('~^\s*(?:zend_)?extension\s*=\s*(?|"([^"\r\n]*)|\'([^\'\r\n]*)|([^"\';\s]+))~mi', $text, $named);
    foreach ($named[1] as $name) {
        $variable = $variable || strpos($name, '$') !== false;
        $of[] = strpos($name, '/') !== false ? $name : ini_get('extension_dir') . "/$name";
    }
}
foreach (get_loaded_extensions() as $name) {
    $of[] = ini_get('extension_dir') . '/' . strtolower($name) . '.so';
}
$of = array_filter(array_unique($of), 'strlen');
sort($of);
// A variable may have another value at the next start.
echo $variable ? '' : implode("\0", array_merge(['pronghorn-stands-on'], $of)), "\n";
"#;

/// What a PHP says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct About {
    pub version: String,
    /// What an extension must have been built for: `20220829-nts`, `-zts`, `-debug`.
    pub identity: String,
    /// The extension is in its `php.ini`.
    pub has_extension: bool,
    pub has_opcache: bool,
    /// It is not loaded, and could be.
    pub could_have_opcache: bool,
    /// Extensions that OPcache's JIT does not go with.
    pub against_jit: String,
    pub memory_limit: String,
    /// Its `php.ini`; empty where it has none.
    pub ini_file: PathBuf,
    /// Its `opcache.jit`; empty where that has no memory.
    pub jit: String,
    /// The release of the extension in its `php.ini`; empty where there is none.
    pub release: String,
    /// Where its `phpize` was installed.
    pub binaries: PathBuf,
    /// It takes options of its command line.
    pub(super) takes_options: bool,
    /// Names of the settings that it has, with blanks between them; `*` where it can't say them.
    pub settings: String,
}

impl About {
    fn parse(answer: &str) -> Option<Self> {
        let line = answer
            .lines()
            .rev()
            .find_map(|line| line.strip_prefix("pronghorn-asks\t"))?;
        let parts: Vec<&str> = line.split('\t').collect();
        let [
            version,
            identity,
            extension,
            opcache,
            could,
            jit,
            memory,
            ini,
            mode,
            release,
            binaries,
            options,
            settings,
        ] = parts[..]
        else {
            return None;
        };
        // It becomes a part of a file's name.
        let plain = |text: &str| {
            !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
        };
        plain(identity).then(|| Self {
            version: version.to_owned(),
            identity: identity.to_owned(),
            has_extension: extension == "1",
            has_opcache: opcache == "1",
            could_have_opcache: opcache == "0" && could == "1",
            against_jit: jit.to_owned(),
            memory_limit: memory.to_owned(),
            ini_file: ini.into(),
            jit: mode.to_owned(),
            release: release.to_owned(),
            binaries: binaries.into(),
            takes_options: options == "1",
            settings: settings.to_owned(),
        })
    }

    /// Whether a line of php.ini with this name has an effect.
    pub fn knows(&self, name: &str) -> bool {
        // What loads an extension is no setting; OPcache's are there once it is loaded.
        matches!(name, "extension" | "zend_extension")
            || self.settings == "*"
            || self.could_have_opcache && name.starts_with("opcache.")
            || self.settings.split(' ').any(|known| known == name)
    }
}

/// A program as it was, and all that may change what it answers.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Asked {
    program: Program,
    file: (u64, u64, i64),
    variables: Vec<(OsString, OsString)>,
    cwd: PathBuf,
    user: Option<u32>,
}

/// An answer, or the question that is under way, and since when: pools that start at the same
/// moment ask once.
type Answer = Arc<OnceCell<Arc<About>>>;

static ANSWERS: Mutex<Option<HashMap<Asked, (Instant, Answer)>>> = Mutex::new(None);
/// After this time the files that it depends on may be others: somebody changes one and reloads.
const SAME_MOMENT: Duration = Duration::from_millis(500);

fn answer_to(asked: Asked) -> Answer {
    let mut answers = lock(&ANSWERS);
    let answers = answers.get_or_insert_default();
    let now = Instant::now();
    // A question that is under way is asked now.
    answers.retain(|_, (since, answer)| !answer.initialized() || now - *since < SAME_MOMENT);
    match answers.get(&asked) {
        Some((_, answer)) => answer.clone(),
        None if answers.len() >= KEPT => Answer::default(),
        None => {
            let (_, answer) = answers
                .entry(asked)
                .or_insert_with(|| (now, Answer::default()));
            answer.clone()
        }
    }
}

/// What the PHP says of itself, within the time that a worker of the pool has for its start.
pub(super) async fn ask(
    of: &LaunchSpec,
    program: &Program,
    environment: &[(OsString, OsString)],
) -> Result<Arc<About>, PhpError> {
    let php = || program.path.clone();
    let file = std::fs::metadata(&program.path).map_err(|error| PhpError::NoAnswer {
        php: php(),
        said: error.to_string(),
    })?;
    let asked = Program {
        script: None,
        ..program.clone()
    };
    // Two pools differ in no more than these.
    let relevant = |(name, _): &&(OsString, OsString)| {
        name.to_str().is_some_and(|name| name.starts_with("PHP"))
    };
    let credentials = of.user.as_ref().map(|(_, user)| user.clone());
    let answer_there = answer_to(Asked {
        program: asked.clone(),
        file: (file.dev(), file.ino(), file.mtime()),
        variables: environment.iter().filter(relevant).cloned().collect(),
        cwd: of.cwd.clone(),
        user: credentials.as_ref().map(Credentials::uid),
    });
    let asking = answer_there.get_or_try_init(|| async {
        let question = question(&asked, environment, of.cwd.clone(), credentials);
        let directory = of.answers.as_deref();
        let kept = directory.and_then(|directory| AskedPhp::new(directory, &question));
        let known = kept
            .as_ref()
            .and_then(AskedPhp::answer)
            .and_then(About::parse);
        let pool = of.pool.as_str();
        if let Some(known) = known {
            tracing::debug!(target: "server", pool, "PHP is known from earlier starts");
            return Ok(Arc::new(known));
        }
        tracing::debug!(target: "server", pool, "PHP is asked what it is");
        let about = answer(&of.spawner, question, kept).await;
        about.map(Arc::new).map_err(|silence| match silence {
            Silence::NotStarted(error) => PhpError::not_started(&error),
            Silence::Said(said) => PhpError::NoAnswer { php: php(), said },
        })
    });
    let limit = of.boot_timeout;
    let answered = timeout(limit, asking).await;
    let about = answered.map_err(|_| PhpError::TimedOut { php: php(), limit })??;
    Ok(about.clone())
}

/// The same of one PHP by itself, as this process's user would run it.
pub async fn ask_one(spawner: &Spawner, php: &Path) -> Option<About> {
    let program = Program {
        path: php.to_owned(),
        options: Vec::new(),
        script: None,
    };
    let environment: Vec<_> = std::env::vars_os().collect();
    let question = question(&program, &environment, PathBuf::from("/"), None);
    let answered = timeout(LONGEST, answer(spawner, question, None)).await;
    answered.ok()?.ok()
}

fn question(
    program: &Program,
    environment: &[(OsString, OsString)],
    cwd: PathBuf,
    credentials: Option<Credentials>,
) -> Command {
    let mut args: Vec<OsString> = ["-d", TRIAL].map(OsString::from).into();
    args.extend_from_slice(&program.options);
    args.extend(COMPLAINING.map(OsString::from));
    args.extend(["-r", QUESTION].map(OsString::from));
    // What a worker of ours finds there, this one does not get.
    let is_ours = |(name, _): &&(OsString, OsString)| {
        let name = name.to_string_lossy();
        name.starts_with("PRONGHORN_")
    };
    Command {
        program: program.path.clone().into(),
        args,
        env: environment
            .iter()
            .filter(|it| !is_ours(it))
            .cloned()
            .collect(),
        cwd,
        credentials,
        stdin: Stream::Null,
        stdout: Stream::Pipe,
        stderr: Stream::Pipe,
        passed: Vec::new(),
        mark: None,
        overtakes: false,
        limits: Limits::default(),
    }
}

/// No answer.
enum Silence {
    NotStarted(SpawnError),
    /// In place of one.
    Said(String),
}

async fn answer(
    spawner: &Spawner,
    question: Command,
    kept: Option<AskedPhp<'_>>,
) -> Result<About, Silence> {
    let spawned = spawner.spawn(question).await;
    let mut child = spawned.map_err(Silence::NotStarted)?;
    let ended = child.process.wait().await;
    let exit = ended.map_err(|error| Silence::Said(error.to_string()))?;
    let said = read(child.stdout.take());
    // A library that PHP does not find at a whole path is a complaint of the loader's, there alone.
    let complaint = read(child.stderr.take());
    if let Some(kept) = kept.filter(|_| exit == Exit::Code(0) && complaint.is_empty()) {
        kept.note(&said, (now_ms() / 1000).cast_signed());
    }
    About::parse(&said).ok_or_else(|| {
        let said = [said, complaint].concat();
        Silence::Said(match said.trim() {
            "" => format!("nothing, and ended ({exit})"),
            said => said.to_owned(),
        })
    })
}

/// It has ended, so all that it said is there. What it started may hold its pipes for ever.
fn read(pipe: Option<OwnedFd>) -> String {
    let mut said = Vec::new();
    if let Some(pipe) = pipe
        && rustix::io::ioctl_fionbio(&pipe, true).is_ok()
    {
        // What was read before an error is there.
        _ = File::from(pipe).take(LONGEST_ANSWER).read_to_end(&mut said);
    }
    String::from_utf8_lossy(&said).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_is_found_whatever_is_printed_around_it() {
        let answer = "\nWarning: Module \"x\" is already loaded in Unknown on line 0\n\n\
            pronghorn-asks\t8.2.36\t20220829-nts\t0\t1\t1\txdebug\t-1\t/etc/php.ini\ttracing\t\t/usr/bin\t1\tdate.timezone precision\nbye\n";
        let about = About::parse(answer).unwrap();
        assert_eq!(
            (&*about.version, &*about.identity),
            ("8.2.36", "20220829-nts")
        );
        assert!(!about.has_extension && about.has_opcache && !about.could_have_opcache);
        assert_eq!(
            (&*about.against_jit, &*about.memory_limit),
            ("xdebug", "-1")
        );
        assert_eq!(about.ini_file, PathBuf::from("/etc/php.ini"));
        assert_eq!(about.jit, "tracing");
        assert_eq!(about.binaries, PathBuf::from("/usr/bin"));
        for (name, is_known) in [
            ("precision", true),
            ("extension", true),
            ("precisio", false),
            ("opcache.jit", false),
        ] {
            assert_eq!(about.knows(name), is_known, "{name}");
        }
    }

    /// Somebody may change a `php.ini` and reload.
    #[tokio::test(start_paused = true)]
    async fn pools_share_an_answer_at_one_moment() {
        let asked = || Asked {
            program: Program {
                path: "/usr/bin/php".into(),
                options: Vec::new(),
                script: None,
            },
            file: (1, 2, 3),
            variables: Vec::new(),
            cwd: "/".into(),
            user: None,
        };
        let under_way = answer_to(asked());
        tokio::time::advance(LONGEST).await;
        assert!(Arc::ptr_eq(&under_way, &answer_to(asked())));
        let line = "pronghorn-asks\t8\tx\t0\t1\t1\t\t-1\t\t\t\t/b\t1\t*\n";
        under_way.set(About::parse(line).unwrap().into()).unwrap();
        let next = answer_to(asked());
        assert!(!Arc::ptr_eq(&under_way, &next));
        next.set(under_way.get().unwrap().clone()).unwrap();
        assert!(Arc::ptr_eq(&next, &answer_to(asked())));
        tokio::time::advance(SAME_MOMENT).await;
        assert!(!Arc::ptr_eq(&next, &answer_to(asked())));
    }

    #[test]
    fn what_is_no_answer_is_none() {
        for answer in [
            "",
            "hello\n",
            "pronghorn-asks\t8.2\n",
            "pronghorn-asks\t8.2.36\t../x\t0\t1\t1\t\t-1\t\t\t\t/b\t1\t\n",
            "pronghorn-asks\t8.2.36\t\t0\t1\t1\t\t-1\t\t\t\t/b\t1\t\n",
        ] {
            assert_eq!(About::parse(answer), None, "{answer:?}");
        }
    }
}
