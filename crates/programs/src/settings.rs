//! The section `service`: programs, each by its name.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use pronghorn_config::{
    Choice, Command, Node, Pairs, Seconds, Setting, Shown, Size, SpacedCommand, Table, Wrong,
};
use pronghorn_process::{Limits, NamedSignal};
use pronghorn_workers::Watching;

use crate::environment::set;
use crate::machine::{Pause, Restart, Rules};
use crate::roadrunner::RoadRunnerFile;

/// Processes of one program, and programs of one server.
pub(crate) const MOST_PROCESSES: u32 = 1_000;

/// The pause of RoadRunner, and the time that it gives for a stop.
const RESTART_SEC: Duration = Duration::from_secs(30);
const STOP_TIMEOUT: Duration = Duration::from_secs(5);

/// As workers have it.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// Long enough that a program which can't start costs next to nothing.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// About two minutes of tries, with the pauses above.
const MOST_FAILURES: u32 = 10;
/// As supervisord has it.
const START_TIME: Duration = Duration::from_secs(1);
const START_TIMEOUT: Duration = Duration::from_secs(60);
const HEALTH_INTERVAL: Duration = Duration::from_secs(10);
const HEALTH_TIMEOUT: Duration = Duration::from_secs(5);
const HEALTH_FAILURES: u32 = 3;
/// More than the time that its file gives it, so that it ends by itself.
const ROADRUNNERS_STOP: Duration = Duration::from_secs(30);

/// One program.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ProgramSettings {
    /// None where it is missing, which is told.
    pub(crate) command: Option<Command>,
    pub(crate) process_num: u32,
    pub(crate) exec_timeout: Option<Duration>,
    pub(crate) rules: Rules,
    pub(crate) exit_codes: Vec<i32>,
    pub(crate) start_time: Duration,
    pub(crate) start_timeout: Duration,
    pub(crate) notify: bool,
    pub(crate) health: Option<HealthSettings>,
    pub(crate) stop_signal: NamedSignal,
    pub(crate) stop_timeout: Duration,
    pub(crate) stop_group: bool,
    pub(crate) replace: Replace,
    pub(crate) name_in_log: bool,
    pub(crate) env: Vec<(String, String)>,
    pub(crate) directory: Option<PathBuf>,
    pub(crate) user: Option<String>,
    pub(crate) group: Option<String>,
    pub(crate) limits: Limits,
    pub(crate) max_memory: Option<Size>,
    pub(crate) order: i32,
    pub(crate) autostart: bool,
    pub(crate) essential: bool,
    pub(crate) log: Option<LogFileSettings>,
    pub(crate) watch: Option<Watching>,
    /// The configuration of a RoadRunner, which is written for each process.
    pub(crate) roadrunner: Option<RoadRunnerFile>,
}

/// The process of an index that is there during a restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Replace {
    /// The old one ends before the new one starts.
    StopFirst,
    /// The old one ends when the new one is up.
    StartFirst,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct HealthSettings {
    pub(crate) command: Option<Command>,
    pub(crate) interval: Duration,
    pub(crate) timeout: Duration,
    pub(crate) failures: u32,
}

/// A file of a program's own for what it says.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct LogFileSettings {
    pub(crate) file: Option<PathBuf>,
    /// The file of stderr; none where `file` has that, too.
    pub(crate) stderr_file: Option<PathBuf>,
    pub(crate) max_size: Size,
    pub(crate) backups: u32,
    /// Whether its lines are records of the log as well.
    pub(crate) also_log: bool,
}

impl Choice for Restart {
    const CHOICES: &'static [(&'static str, Self)] = &[
        ("no", Self::No),
        ("on-failure", Self::OnFailure),
        ("always", Self::Always),
    ];

    /// Values of supervisord's `autorestart`, of systemd, and of containers.
    const ELSEWHERE: &'static [(&'static str, Self)] = &[
        ("unexpected", Self::OnFailure),
        ("true", Self::Always),
        ("unless-stopped", Self::Always),
        ("on-abnormal", Self::OnFailure),
        ("on-abort", Self::OnFailure),
        ("false", Self::No),
        ("never", Self::No),
    ];
}

impl Choice for Replace {
    const CHOICES: &'static [(&'static str, Self)] = &[
        ("stop-first", Self::StopFirst),
        ("start-first", Self::StartFirst),
    ];
}

/// A signal as a value of a key.
#[derive(Clone, Copy, Debug, PartialEq)]
struct SignalName(NamedSignal);

impl Setting for SignalName {
    fn example() -> String {
        "SIGTERM".to_owned()
    }

    fn accepts() -> String {
        "the name of a signal such as `SIGTERM`".to_owned()
    }

    fn read(node: &Node) -> Result<Self, Vec<Wrong>> {
        let found = node.text().and_then(NamedSignal::find);
        found.map(Self).ok_or_else(|| Wrong::value(node))
    }

    fn show(&self) -> Shown {
        Shown::One(self.0.to_string())
    }
}

/// Permissions as `chmod` writes them.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Umask(u32);

impl Setting for Umask {
    fn example() -> String {
        "\"022\"".to_owned()
    }

    fn accepts() -> String {
        "an octal number such as `022`".to_owned()
    }

    fn read(node: &Node) -> Result<Self, Vec<Wrong>> {
        let text = node.text().map(str::trim).unwrap_or_default();
        let digits = text.strip_prefix("0o").unwrap_or(text);
        match u32::from_str_radix(digits, 8) {
            Ok(mask) if mask <= 0o777 && digits.len() <= 4 => Ok(Self(mask)),
            _ => Err(Wrong::value(node)),
        }
    }

    fn show(&self) -> Shown {
        Shown::One(format!("{:03o}", self.0))
    }
}

impl ProgramSettings {
    /// The directory in which it works, on a server that works in this one.
    pub(crate) fn directory_in(&self, server: &Path) -> PathBuf {
        match &self.directory {
            Some(own) => server.join(own),
            None => server.to_owned(),
        }
    }

    /// The files for what it says, by their keys.
    pub(crate) fn files(&self) -> impl Iterator<Item = (&'static str, &Path)> {
        let output = self.log.iter();
        output.flat_map(|log| {
            let file = log.file.as_deref().map(|file| ("output.file", file));
            let stderr = log.stderr_file.as_deref();
            file.into_iter()
                .chain(stderr.map(|file| ("output.stderr_file", file)))
        })
    }

    /// Adds the variables of its commands to those that the server gives them.
    pub(crate) fn set_variables(&self, variables: &mut Vec<(OsString, OsString)>) {
        for (name, value) in &self.env {
            set(variables, name, value.into());
        }
    }

    /// Settings of one that is created over RPC.
    pub(crate) fn of_command(command: Command) -> Self {
        Self {
            command: Some(command),
            process_num: 1,
            exec_timeout: None,
            rules: Rules {
                restart: Restart::No,
                pause: Pause::Fixed(RESTART_SEC),
                most_failures: None,
            },
            exit_codes: vec![0],
            start_time: START_TIME,
            start_timeout: START_TIMEOUT,
            notify: false,
            health: None,
            stop_signal: NamedSignal::INTERRUPT,
            stop_timeout: STOP_TIMEOUT,
            stop_group: true,
            replace: Replace::StopFirst,
            name_in_log: false,
            env: Vec::new(),
            directory: None,
            user: None,
            group: None,
            limits: Limits {
                dies_with_server: true,
                ..Limits::default()
            },
            max_memory: None,
            order: 0,
            autostart: true,
            essential: false,
            log: None,
            watch: None,
            roadrunner: None,
        }
    }

    /// Settings of a RoadRunner that is tried again for as long as it takes: its own server may be
    /// away.
    pub(crate) fn of_roadrunner(command: Command, file: RoadRunnerFile, replace: Replace) -> Self {
        Self {
            rules: Rules {
                restart: Restart::Always,
                pause: Pause::Growing {
                    first: FIRST_PAUSE,
                    longest: LONGEST_PAUSE,
                },
                most_failures: None,
            },
            health: Some(HealthSettings {
                command: None,
                interval: HEALTH_INTERVAL,
                timeout: HEALTH_TIMEOUT,
                failures: HEALTH_FAILURES,
            }),
            stop_signal: NamedSignal::TERMINATE,
            // It ends its workers itself.
            stop_group: false,
            stop_timeout: ROADRUNNERS_STOP,
            replace,
            essential: true,
            roadrunner: Some(file),
            ..Self::of_command(command)
        }
    }

    /// 0 is the time of RoadRunner.
    pub(crate) const fn restart_pause(seconds: u64) -> Pause {
        Pause::Fixed(match seconds {
            0 => RESTART_SEC,
            seconds => Self::seconds(seconds),
        })
    }

    /// No clock counts to the largest number, which stands for no limit.
    pub(crate) const fn seconds(seconds: u64) -> Duration {
        const LONGEST: u64 = 100 * 365 * 24 * 60 * 60;
        Duration::from_secs(if seconds < LONGEST { seconds } else { LONGEST })
    }

    /// The same of the time for a stop.
    pub(crate) const fn stop_time(seconds: u64) -> Duration {
        match seconds {
            0 => STOP_TIMEOUT,
            seconds => Self::seconds(seconds),
        }
    }

    #[expect(clippy::too_many_lines, reason = "a statement for each key")]
    pub(crate) fn read(t: &mut Table<'_>) -> Self {
        t.live();
        let (command, process_num) = read_command(t);
        let rules = read_rules(t);
        let (stop_signal, stop_timeout, stop_group) = read_stop(t);
        let limits = read_limits(t);
        let settings = Self {
            command,
            process_num,
            rules,
            stop_signal,
            stop_timeout,
            stop_group,
            limits,
            exec_timeout: t
                .key(
                    "exec_timeout",
                    "The longest time that a process may run. After that, it is stopped and, \
                     unless `restart` is `no`, replaced.",
                )
                .limit(),
            exit_codes: t
                .key("exit_codes", "The exit codes that mean success.")
                .ours()
                .default(vec![0_u8])
                .into_iter()
                .map(i32::from)
                .collect(),
            start_time: t
                .key(
                    "start_time",
                    "How long a process must run until it counts as up. A process that ends \
                     earlier has failed, whatever its exit code.",
                )
                .ours()
                .default(START_TIME),
            start_timeout: t
                .key(
                    "start_timeout",
                    "Time limit for a process to come up, if `notify` or `health` decides that.",
                )
                .ours()
                .zero_is_default()
                .default(START_TIMEOUT),
            notify: t
                .key(
                    "notify",
                    "Whether a process is up only when it has sent `READY=1` to the socket in \
                     `NOTIFY_SOCKET`, as services of systemd do.",
                )
                .ours()
                .default(false),
            health: t.optional_section_with(
                "health",
                "A command that checks whether a process works.",
                HealthSettings::read,
            ),
            replace: t
                .key(
                    "replace",
                    "The order of a restart. `stop-first`: the old process ends before the new one \
                     starts. `start-first`: the old process ends when the new one is up, so both \
                     run for a while.",
                )
                .ours()
                .default(Replace::StopFirst),
            name_in_log: t
                .key(
                    "service_name_in_log",
                    "Whether records of the program's output also have the program's name, in the \
                     field `service`.",
                )
                .default(false),
            env: t
                .key(
                    "env",
                    "Environment variables for the program. They override the server's own.",
                )
                .default(Pairs::default())
                .iter()
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .collect(),
            directory: t
                .key(
                    "directory",
                    "The working directory of the program. A relative path begins in the server's.",
                )
                .ours()
                .optional(),
            user: t
                .key(
                    "user",
                    "The user that the program runs as. Requires a server that is started as root. \
                     By default, the workers' user.",
                )
                .roadrunner(
                    "the server's user",
                    "`server.user` is there so that nothing runs as root",
                )
                .optional(),
            group: t
                .key(
                    "group",
                    "The group that the program runs as. By default, the user's own group.",
                )
                .ours()
                .optional(),
            max_memory: t
                .key(
                    "max_memory",
                    "The most resident memory of a process and of all that it has started. Beyond \
                     it, the process is stopped and, unless `restart` is `no`, replaced.",
                )
                .ours()
                .limit(),
            order: t
                .key(
                    "order",
                    "Programs with a lower number start before those with a higher one, and stop \
                     after them.",
                )
                .ours()
                .default(0),
            autostart: t
                .key("autostart", "Whether the program starts with the server.")
                .ours()
                .default(true),
            essential: t
                .key(
                    "essential",
                    "Whether the server is ready only while all processes of the program are up.",
                )
                .ours()
                .default(false),
            log: t.optional_section_with(
                "output",
                "A file for the output of the program.",
                LogFileSettings::read,
            ),
            watch: t.optional_section_with(
                "watch",
                "Files whose change restarts the program.",
                |t| {
                    t.ours();
                    Watching::read_one(t)
                },
            ),
            roadrunner: None,
        };
        if settings.exec_timeout.is_some() {
            let why = "it gets the signal and the time of a stop";
            t.differs("exec_timeout", "a stop", "a kill at once", why);
        }
        if settings.name_in_log {
            let why = "a field `service` has the name";
            let there = "the logger `service.NAME`";
            t.differs("service_name_in_log", "the logger `service`", there, why);
        }
        if settings.group.is_some() && settings.user.is_none() {
            t.error("group", "has no effect without `user`", "write `user`, too");
        }
        settings
    }
}

fn read_command(t: &mut Table<'_>) -> (Option<Command>, u32) {
    let command: Option<SpacedCommand> = t
        .key(
            "command",
            "The program and its arguments. A text is split at spaces; quotes keep words together. \
             No shell is involved.",
        )
        .optional();
    if command.is_none() && !t.has_value("command") {
        let message = "has no `command`";
        t.error("", message, "for example `command: php artisan queue:work`");
    }
    let process_num = t
        .key("process_num", "The number of processes.")
        .zero_is_default()
        .range(1..=MOST_PROCESSES)
        .default(1);
    (command.map(|command| command.0), process_num)
}

fn read_rules(t: &mut Table<'_>) -> Rules {
    let restart: Option<Restart> = t
        .key(
            "restart",
            "When a process that has ended is started again: `no`: never. `on-failure`: if its \
             exit code is not in `exit_codes`, or if a signal has ended it. `always`: each time. \
             With this key, pauses grow, and the server gives up a process that fails too often.",
        )
        .ours()
        .optional();
    let remains = t
        .key(
            "remain_after_exit",
            "Whether a process is started again each time that it has ended, after a fixed pause \
             and without a limit. `restart` takes precedence.",
        )
        .default(false);
    let fixed: Option<Seconds> = t
        .key(
            "restart_sec",
            "A fixed pause before a process is started again. By default, 30s without `restart`; \
             with it, the pause grows from `restart_delay`.",
        )
        .zero_is_default()
        .optional();
    let first = t
        .key(
            "restart_delay",
            "The pause before a process is started again. It doubles with each failure. Each pause \
             is shortened at random, by up to a half.",
        )
        .ours()
        .range(Duration::from_millis(10)..=Duration::from_hours(1))
        .default(FIRST_PAUSE);
    let longest = t
        .key(
            "restart_max_delay",
            "The longest pause. The end of a process that has run for longer than this time does \
             not count as a failure.",
        )
        .ours()
        .range(Duration::from_millis(10)..=Duration::from_hours(24))
        .default(LONGEST_PAUSE);
    let most: Option<u32> = t
        .key(
            "max_failures",
            "After this number of failures in a row, the server gives up a process until somebody \
             starts it. By default, 10 with `restart`, and no limit without it.",
        )
        .ours()
        .optional();
    let ours = restart.is_some();
    let fixed = fixed.map(|fixed| fixed.0).filter(|fixed| !fixed.is_zero());
    Rules {
        restart: restart.unwrap_or(if remains {
            Restart::Always
        } else {
            Restart::No
        }),
        pause: match fixed {
            Some(fixed) => Pause::Fixed(fixed),
            None if ours => Pause::Growing {
                first,
                longest: longest.max(first),
            },
            None => Pause::Fixed(RESTART_SEC),
        },
        most_failures: match most {
            Some(0) => None,
            None if ours => Some(MOST_FAILURES),
            most => most,
        },
    }
}

fn read_stop(t: &mut Table<'_>) -> (NamedSignal, Duration, bool) {
    let signal = t
        .key("stop_signal", "The signal that asks a process to end.")
        .ours()
        .default(SignalName(NamedSignal::INTERRUPT));
    let seconds = t
        .key(
            "timeout_stop_sec",
            "How long a process may take to end. After that, it is killed, with all processes that \
             it has started.",
        )
        .zero_is_default()
        .default(Seconds(STOP_TIMEOUT));
    let time: Option<Duration> = t
        .key(
            "stop_timeout",
            "The same as `timeout_stop_sec`. If both are set, this key applies.",
        )
        .ours()
        .zero_is_default()
        .optional();
    let group = t
        .key(
            "stop_group",
            "Whether the signal also goes to the processes that a process has started in its \
             process group.",
        )
        .ours()
        .roadrunner(
            "the process alone",
            "these processes would otherwise continue to run",
        )
        .default(true);
    let time = time.filter(|time| !time.is_zero()).unwrap_or(seconds.0);
    (signal.0, time, group)
}

fn read_limits(t: &mut Table<'_>) -> Limits {
    let umask: Option<Umask> = t
        .key(
            "umask",
            "Permissions that the program's new files do not get.",
        )
        .ours()
        .optional();
    Limits {
        nice: t
            .key(
                "nice",
                "The program's priority, from -20 (the highest) to 19. Below 0 only as root.",
            )
            .ours()
            .range(-20..=19)
            .optional(),
        open_files: t
            .key(
                "open_files",
                "How many files and connections a process may have open at a time.",
            )
            .ours()
            .range(16..=1_048_576)
            .optional(),
        umask: umask.map(|umask| umask.0),
        dies_with_server: true,
    }
}

impl HealthSettings {
    fn read(t: &mut Table<'_>) -> Self {
        t.ours();
        let command: Option<SpacedCommand> = t
            .key(
                "command",
                "The command. The process works if the command exits with 0. The command has the \
                 program's user, directory and environment, and `PRONGHORN_PROGRAM_PID`.",
            )
            .optional();
        if command.is_none() && !t.has_value("command") {
            t.error(
                "",
                "has no `command`",
                "for example `command: curl -fs http://127.0.0.1:8080/up`",
            );
        }
        Self {
            command: command.map(|command| command.0),
            interval: t
                .key("interval", "The time between two runs of the command.")
                .range(Duration::from_millis(100)..=Duration::from_hours(24))
                .default(HEALTH_INTERVAL),
            timeout: t
                .key("timeout", "How long the command may run.")
                .range(Duration::from_millis(10)..=Duration::from_hours(1))
                .default(HEALTH_TIMEOUT),
            failures: t
                .key(
                    "failures",
                    "After this number of failures in a row, the process is stopped, and counts as \
                     failed.",
                )
                .range(1..=1_000)
                .default(HEALTH_FAILURES),
        }
    }
}

impl LogFileSettings {
    fn read(t: &mut Table<'_>) -> Self {
        t.ours();
        let file: Option<PathBuf> = t
            .key(
                "file",
                "The file. Its directory must exist. The server's user writes to it. A link, a \
                 pipe or a device is refused, except `/dev/null`.",
            )
            .optional();
        if file.is_none() && !t.has_value("file") {
            t.error(
                "",
                "has no `file`",
                "for example `file: var/log/worker.log`",
            );
        }
        Self {
            file,
            stderr_file: t
                .key(
                    "stderr_file",
                    "Another file for lines that the program writes to stderr. By default, `file` \
                     gets the lines of both streams.",
                )
                .optional(),
            max_size: t
                .key("max_size", "The size at which a new file begins.")
                .zero_is_default()
                .default(Size::megabytes(50)),
            backups: t
                .key(
                    "backups",
                    "How many old files are kept. Their names are `FILE.1` and so on.",
                )
                .range(0..=1_000)
                .default(10),
            also_log: t
                .key(
                    "also_log",
                    "Whether the lines also become records of the server's log.",
                )
                .default(false),
        }
    }
}
