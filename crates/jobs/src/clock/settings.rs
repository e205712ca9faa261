//! The keys of `jobs.schedules`, typed.

use std::time::Duration;

use chrono_tz::Tz;
use pronghorn_config::{Choice, Command, Node, Setting, Shown, Table, Wrong};

use super::{Moments, When};

/// Each is a line of a crontab.
const MOST: usize = 1000;

/// A job by the clock.
#[derive(Clone, Debug, PartialEq)]
pub struct ScheduleSettings {
    pub moments: Moments,
    pub what: What,
    pub overlap: Overlap,
    pub catch_up: CatchUp,
    /// A run begins up to so much later.
    pub jitter: Duration,
}

/// What a schedule runs.
#[derive(Clone, Debug, PartialEq)]
pub enum What {
    /// A job is pushed.
    Job {
        name: String,
        pipeline: String,
        payload: String,
    },
    /// A program is started, and killed when its time is over.
    Command { command: Command, limit: Duration },
}

/// What a command may take. Whoever needs longer knows it, and one that hangs shows within the
/// day.
const COMMAND_TIMEOUT: Duration = Duration::from_hours(1);

/// What happens when the run before has not ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overlap {
    Skip,
    Queue,
    Allow,
}

impl Choice for Overlap {
    const CHOICES: &'static [(&'static str, Self)] = &[
        ("skip", Self::Skip),
        ("queue", Self::Queue),
        ("allow", Self::Allow),
    ];
}

/// Which runs are made up for that were due while the server was down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CatchUp {
    None,
    One,
    All,
}

impl Choice for CatchUp {
    const CHOICES: &'static [(&'static str, Self)] =
        &[("none", Self::None), ("one", Self::One), ("all", Self::All)];
}

#[derive(Clone, Debug, PartialEq)]
struct Pattern(When, String);

impl Setting for Pattern {
    fn example() -> String {
        "30 3 * * *".to_owned()
    }

    fn accepts() -> String {
        "five fields as in a crontab, or six with seconds in front: `30 3 * * *`".to_owned()
    }

    fn read(node: &Node) -> Result<Self, Vec<Wrong>> {
        let Some(text) = node.text() else {
            return Err(Wrong::value(node));
        };
        let text = text.trim();
        let when = Moments::pattern(text).map_err(|why| Wrong::hinted(node, why))?;
        Ok(Self(when, text.to_owned()))
    }

    fn show(&self) -> Shown {
        Shown::One(self.1.clone())
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Zone(Tz);

impl Setting for Zone {
    fn example() -> String {
        "Europe/Berlin".to_owned()
    }

    fn accepts() -> String {
        "the name of a time zone: `UTC`, `Europe/Berlin`".to_owned()
    }

    fn read(node: &Node) -> Result<Self, Vec<Wrong>> {
        let zone = node.text().and_then(|text| text.trim().parse().ok());
        zone.map(Self).ok_or_else(|| Wrong::value(node))
    }

    fn show(&self) -> Shown {
        Shown::One(self.0.name().to_owned())
    }
}

/// Schedules by name, those that make sense.
pub fn read(t: &mut Table<'_>) -> Vec<(String, ScheduleSettings)> {
    let schedules = t.sections_with(
        "schedules",
        "Schedules by name. Each one pushes a job or runs a command at certain times.",
        "One schedule. It has `cron` or `every`, and either the `job` to push or the `command` to \
         run.",
        |t| {
            t.ours();
            read_one(t)
        },
    );
    if schedules.len() > MOST {
        let message = format!(
            "has {} schedules; accepted: at most {MOST}",
            schedules.len()
        );
        t.error("schedules", &message, "remove some of them");
    }
    let named = schedules.into_iter();
    named
        .filter_map(|(name, schedule)| Some((name, schedule?)))
        .collect()
}

fn read_one(t: &mut Table<'_>) -> Option<ScheduleSettings> {
    let described = t.name() == "<name>";
    let cron = t
        .key::<Pattern>("cron", "The times, as in a crontab.")
        .optional();
    let every = t
        .key(
            "every",
            "The interval, counted from 1970: `5m` means 00:00, 00:05 and so on.",
        )
        .range(Duration::from_secs(1)..=Duration::from_hours(24 * 365))
        .optional();
    let Zone(zone) = t
        .key(
            "time_zone",
            "The time zone of `cron`. The time zone of the machine is not used.",
        )
        .default(Zone(Tz::UTC));
    let job: Option<String> = t
        .key(
            "job",
            "The name of the job to push. It selects the handler.",
        )
        .optional();
    let command: Option<Command> = t
        .key(
            "command",
            "A command to run instead of pushing a job. It runs in the server's directory, as the \
             server's user, with the variables of `server.env`.",
        )
        .optional();
    let limit = t
        .key(
            "timeout",
            "Time limit for the command. After it, the command is killed.",
        )
        .range(Duration::from_secs(1)..=Duration::from_hours(24 * 7))
        .default(COMMAND_TIMEOUT);
    let pipeline = t
        .key("pipeline", "The pipeline that the job is pushed to.")
        .default("default".to_owned());
    let payload = t
        .key("payload", "The job's payload.")
        .default(String::new());
    let overlap = t
        .key(
            "overlap",
            "What happens if the previous run has not ended. `skip`: this run is left out. \
             `queue`: it waits. `allow`: both run at the same time.",
        )
        .default(Overlap::Skip);
    let catch_up = t
        .key(
            "catch_up",
            "Which missed runs the server catches up on after it was down. `none`: no run. `one`: \
             the last run. `all`: up to 100 runs.",
        )
        .default(CatchUp::One);
    let jitter = t
        .key(
            "jitter",
            "The largest random delay of a run. With it, schedules of the same minute do not all \
             begin at once.",
        )
        .range(Duration::ZERO..=Duration::from_hours(24))
        .default(Duration::ZERO);
    if cron.is_some() && every.is_some() {
        t.error("every", "stands beside `cron`", "remove one of them");
        return None;
    }
    let when = cron
        .map(|Pattern(when, _)| when)
        .or_else(|| every.map(When::Every));
    if described {
        return None;
    }
    // What is written and wrong is told already.
    if when.is_none() && !t.has_value("cron") && !t.has_value("every") {
        t.error(
            "",
            "is never due: it has neither `cron` nor `every`",
            "for example `every: 5m`",
        );
    }
    let of_job = job.map(|name| What::Job {
        name,
        pipeline,
        payload,
    });
    let of_command = command.map(|command| What::Command { command, limit });
    let what = one_of(t, of_job, of_command);
    Some(ScheduleSettings {
        moments: Moments::new(when?, zone),
        what: what?,
        overlap,
        catch_up,
        jitter,
    })
}

/// A schedule has a job or a command.
fn one_of(t: &mut Table<'_>, job: Option<What>, command: Option<What>) -> Option<What> {
    match (job, command) {
        (Some(what), None) | (None, Some(what)) => Some(what),
        (None, None) => {
            t.error(
                "",
                "has neither `job` nor `command`",
                "name the job that is pushed, for example `job: cleanup`",
            );
            None
        }
        (Some(_), Some(_)) => {
            t.error("command", "stands beside `job`", "remove one of them");
            None
        }
    }
}
